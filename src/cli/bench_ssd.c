/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench ssd`: objects read from and written to a file by the engine, at depth 16, beside a
 * loop of bare io_uring over the same file, offsets and memory. Both take turns, so that what else
 * the machine does meets both. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "cli/common.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/random.h"
#include "transport/file/served.h"
#include "transport/posix/posix.h"
#include "transport/uring/bare.h"
#include "transport/uring/uring.h"
#include "yolk/engine.h"

enum { DEPTH = 16, RUNS = 7, CASES = 4, SEGMENT = 1, SESSION = 1 };

#define FILE_BYTES   (1 * GIB)
#define MEMORY_BYTES (256 * MIB) /* moved in one run */

struct figure {
    const char *operation;
    uint32_t size;
    double bare_mb, ours_mb, ratio; /* medians over the runs */
};

struct bench {
    char path[512];
    struct file *file;
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment;
    uint8_t *memory;
    uint64_t *offsets;
    char transport[16];
    struct figure figures[CASES];
    double resident;
};

static const struct cli_command command = {"bench ssd", "",
                                           "Reads and writes objects of 1 MiB and 128 KiB in a "
                                           "file of 1 GiB that it makes and removes, at "
                                           "depth 16, beside a bare io_uring loop.",
                                           COMMAND_BENCH};

/* ---- set up ---- */
static enum yolk_status make_file(struct bench *b, const char *folder)
{
    const struct file_system fs = file_system_default();
    (void)snprintf(b->path, sizeof(b->path), "%s/yolk-bench-%ld", folder, (long)getpid());
    int status =
        file_open(&fs, b->path, FILE_READ | FILE_WRITE | FILE_CREATE | FILE_EXCLUSIVE | FILE_DIRECT,
                  &b->file);
    if (status == YOLK_OK) /* it is reached by its descriptor, so that no end leaves it behind */
        status = file_unlink(&fs, b->path);
    if (status == YOLK_OK)
        status = file_fallocate(b->file, 0, FILE_BYTES);
    /* Without blocks of its own the first round would measure their making; a reserved block that
     * was never written reads as zeros without the disk. */
    for (uint64_t at = 0; at < FILE_BYTES && status == YOLK_OK; at += MEMORY_BYTES)
        status = file_pwrite(b->file, b->memory, MEMORY_BYTES, at);
    if (status == YOLK_OK)
        status = file_fdatasync(b->file);
    return (enum yolk_status)status;
}

static enum yolk_status make_engine(struct bench *b)
{
    const struct yolk_transport_ops *transports[] = {transport_uring_ops(), transport_posix_ops()};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 2;
    options.transport.queue_depth = DEPTH;
    enum yolk_status status = yolk_engine_create(&options, &b->engine);
    if (status == YOLK_OK)
        status = yolk_engine_register(b->engine, b->memory, MEMORY_BYTES);
    const struct yolk_serve_file_options serve = {.struct_size = sizeof(serve),
                                                  .internal = b->file,
                                                  .writable = 1,
                                                  .pad_writes = 1,
                                                  .size = FILE_BYTES,
                                                  .segment = SEGMENT};
    if (status == YOLK_OK)
        status = yolk_engine_serve_file(b->engine, &serve, &b->served);
    if (status != YOLK_OK)
        return status;
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = FILE_BYTES, .endpoints = yolk_served_endpoints(b->served)};
    return yolk_engine_segment_open(b->engine, &descriptor, SESSION, &b->segment);
}

static enum yolk_status set_up(struct bench *b, const char *folder)
{
    void *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "%llu bytes to read into",
                         (unsigned long long)MEMORY_BYTES);
    b->memory = memory;
    memset(memory, 0x59, MEMORY_BYTES);
    b->offsets = calloc(MEMORY_BYTES / (128 * KIB), sizeof(*b->offsets));
    if (b->offsets == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of offsets");
    enum yolk_status status = make_file(b, folder);
    return status == YOLK_OK ? make_engine(b) : status;
}

static void tear_down(struct bench *b)
{
    if (b->served != NULL)
        yolk_engine_unserve(b->engine, b->served);
    base_ignore(yolk_engine_destroy(b->engine)); /* nothing is in flight */
    file_close(b->file);
    if (b->memory != NULL)
        munmap(b->memory, MEMORY_BYTES);
    free(b->offsets);
}

/* ---- one run ---- */
static enum yolk_status run_ours(struct bench *b, enum yolk_opcode opcode, uint32_t size,
                                 uint32_t count)
{
    struct yolk_request *requests = calloc(count, sizeof(*requests));
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    uint64_t batch = 0;
    enum yolk_status status = requests != NULL && verdicts != NULL
                                  ? yolk_engine_batch_create(b->engine, count, &batch)
                                  : base_fail(YOLK_ERR_NO_MEMORY, 0, "requests");
    for (uint32_t i = 0; i < count && status == YOLK_OK; i++)
        requests[i] = (struct yolk_request){.opcode = opcode,
                                            .local = b->memory + (uint64_t)i * size,
                                            .segment = b->segment,
                                            .offset = b->offsets[i],
                                            .size = size};
    if (status == YOLK_OK)
        status = yolk_engine_batch_submit(b->engine, batch, requests, count, verdicts, NULL);
    if (status == YOLK_OK)
        status = yolk_engine_batch_wait(b->engine, batch, 0);
    for (uint32_t i = 0; i < count && status == YOLK_OK; i++) {
        struct yolk_task_status task;
        status = yolk_engine_batch_poll(b->engine, batch, i, &task);
        if (status == YOLK_OK)
            status = task.status;
        memcpy(b->transport, task.transport, sizeof(b->transport));
    }
    if (batch != 0)
        base_ignore(yolk_engine_batch_free(b->engine, batch));
    free(requests);
    free(verdicts);
    return status;
}

static enum yolk_status run_one(struct bench *b, bool bare, bool write, uint32_t size, double *mb)
{
    const uint32_t count = (uint32_t)(MEMORY_BYTES / size);
    const struct uring_bare work = {.descriptor = file_descriptor(b->file),
                                    .write = write,
                                    .depth = DEPTH,
                                    .size = size,
                                    .count = count,
                                    .batch = count,
                                    .offsets = b->offsets,
                                    .memory = b->memory};
    uint64_t start = clock_real_now_ns();
    enum yolk_status status =
        bare ? uring_bare_run(&work) : run_ours(b, write ? YOLK_WRITE : YOLK_READ, size, count);
    *mb = (double)MEMORY_BYTES / 1e6 / ((double)(clock_real_now_ns() - start) / 1e9);
    return status;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *values)
{
    double sorted[RUNS];
    memcpy(sorted, values, sizeof(sorted));
    qsort(sorted, RUNS, sizeof(sorted[0]), compare);
    return sorted[RUNS / 2];
}

/* Different places of the file each time, in any order. */
static void choose_offsets(struct bench *b, uint32_t size, const struct random *random)
{
    for (uint64_t i = 0; i < MEMORY_BYTES / size; i++)
        b->offsets[i] = random_below(random, FILE_BYTES / size) * size;
}

static enum yolk_status measure(struct bench *b, struct figure *figure, bool write, uint32_t size,
                                const struct random *random)
{
    double bare[RUNS], ours[RUNS], ratio[RUNS];
    *figure = (struct figure){.operation = write ? "write" : "read", .size = size};
    for (int run = -1; run < RUNS; run++) { /* the first to warm up */
        for (int turn = 0; turn < 2; turn++) {
            bool is_bare = (turn + run) % 2 == 0; /* neither always comes first */
            double mb;
            choose_offsets(b, size, random);
            enum yolk_status status = run_one(b, is_bare, write, size, &mb);
            if (status != YOLK_OK)
                return status;
            if (run >= 0)
                (is_bare ? bare : ours)[run] = mb;
        }
        if (run >= 0)
            ratio[run] = ours[run] / bare[run];
    }
    figure->bare_mb = median(bare);
    figure->ours_mb = median(ours);
    figure->ratio = median(ratio);
    return YOLK_OK;
}

static enum yolk_status measure_all(struct bench *b)
{
    static const uint32_t sizes[] = {1 * MIB, 128 * KIB};
    struct random_sim seeded;
    random_sim_init(&seeded, 1);
    const struct random random = random_sim_random(&seeded);
    enum yolk_status status = YOLK_OK;
    for (int i = 0; i < CASES && status == YOLK_OK; i++)
        status = measure(b, &b->figures[i], i % 2 == 0, sizes[i / 2], &random);
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file_descriptor(b->file));
    if (status == YOLK_OK)
        status = (enum yolk_status)file_residency(path, &b->resident);
    return status;
}

/* ---- the report ---- */
static void print_text(const struct bench *b)
{
    printf("%s: %s, transport %s, depth %d, medians of %d runs in turn\n", b->path,
           file_direct(b->file) ? "direct I/O" : "through the page cache", b->transport, DEPTH,
           RUNS);
    printf("%-8s %10s %14s %14s %7s\n", "", "object", "bare MB/s", "yolk MB/s", "ratio");
    for (int i = 0; i < CASES; i++) {
        const struct figure *f = &b->figures[i];
        printf("%-8s %6llu KiB %14.0f %14.0f %7.2f\n", f->operation,
               (unsigned long long)(f->size / KIB), f->bare_mb, f->ours_mb, f->ratio);
    }
    printf("%.2f %% of the file is in the page cache\n", 100 * b->resident);
}

static int print_json(const struct bench *b)
{
    json_t *list = json_array(), *rows = json_array();
    for (int i = 0; i < CASES; i++) {
        const struct figure *f = &b->figures[i];
        char name[64];
        snprintf(name, sizeof(name), "ssd %s %u KiB, depth %d", f->operation, f->size / 1024,
                 DEPTH);
        json_array_append_new(rows,
                              bench_row_json(&(struct bench_row){.name = name,
                                                                 .unit = "MB/s",
                                                                 .value = f->ours_mb,
                                                                 .ceiling_name = "bare io_uring",
                                                                 .ceiling = f->bare_mb}));
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:f, s:f}", "operation",
                                              f->operation, "object_bytes", (json_int_t)f->size,
                                              "bare_mb_per_s", f->bare_mb, "yolk_mb_per_s",
                                              f->ours_mb, "ratio", f->ratio));
    }
    json_t *root = json_pack("{s:s, s:b, s:i, s:i, s:f, s:o, s:o}", "transport", b->transport,
                             "direct", file_direct(b->file), "depth", DEPTH, "runs", RUNS,
                             "resident", b->resident, "figures", list, "rows", rows);
    int failed = root != NULL ? json_dumpf(root, stdout, JSON_INDENT(2)) : 1;
    putchar('\n');
    json_decref(root);
    return failed ? CLI_FAILED : CLI_OK;
}

int cli_bench_ssd(int argc, char **argv)
{
    struct base_config config;
    struct bench b = {0};
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    const char *folder = base_config_string(&config, SET_PATH);
    if (folder[0] == '\0') {
        code = cli_usage_error(&command, "--path \"\": the name of a folder is not empty");
        base_config_free(&config);
        return code;
    }
    enum yolk_status status = set_up(&b, folder);
    if (status == YOLK_OK)
        status = measure_all(&b);
    if (status != YOLK_OK) {
        code = cli_failure(&command, status, "--path %s", folder);
    } else if (base_config_bool(&config, SET_DOCTOR_JSON)) {
        code = print_json(&b);
    } else {
        print_text(&b);
        code = CLI_OK;
    }
    tear_down(&b);
    base_config_free(&config);
    return code;
}
