/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench gpu`: copies between the host's memory and a GPU's, beside the driver's plain copies
 * of the same minute. */
#include "cli/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/common.h"
#include "device/gather.h"

static const struct cli_command command = {
    "bench gpu", "",
    "Copies between the memory of the host and of a GPU: large ones, scattered blocks, beside a "
    "kernel\nthat computes, and gets of a store on this machine; each beside the copy engine's "
    "rate in the same run.",
    COMMAND_GPU};

/* ---- copies ---- */
enum { CONTENDERS = 4 };
static const size_t blocks[] = {4 * KIB, 16 * KIB, 64 * KIB};
static const char *const ways[] = {"to the GPU", "from the GPU"};
static const char COPY_ENGINE[] = "copy engine, large";

static double rate(const struct bench_gpu *b, double seconds)
{
    return (double)b->total / seconds / 1e9;
}

static struct bench_gpu_run bare_large(struct bench_gpu *b, enum device_direction direction)
{
    return (struct bench_gpu_run){b, NULL, direction, b->total / 2, false};
}

static void add(struct bench_sheet *sheet, const char *name, double value, double ceiling,
                enum bench_bound bound, double limit)
{
    bench_sheet_add(sheet, &(struct bench_row){.name = name,
                                               .unit = "GB/s",
                                               .value = value,
                                               .ceiling_name = ceiling > 0 ? COPY_ENGINE : NULL,
                                               .ceiling = ceiling,
                                               .bound = bound,
                                               .limit = limit});
}

static enum yolk_status large(struct bench_gpu *b, struct bench_sheet *sheet,
                              enum device_direction direction)
{
    struct bench_gpu_run bare = bare_large(b, direction), ours = bare, loop = bare;
    char name[96];
    ours.device = b->device;
    loop.block = 16 * KIB;
    loop.scattered = true;
    struct bench_contender turns[] = {{"bare", bench_gpu_move, &bare, 0},
                                      {"ours", bench_gpu_move, &ours, 0},
                                      {"loop", bench_gpu_move, &loop, 0}};
    enum yolk_status status = bench_in_turn(turns, 3, b->runs);
    if (status == YOLK_OK)
        status = bench_gpu_verify(&ours);
    if (status != YOLK_OK)
        return status;
    double ceiling = rate(b, turns[0].seconds);
    snprintf(name, sizeof(name), "gpu large copies %s", ways[direction]);
    add(sheet, name, rate(b, turns[1].seconds), ceiling, BENCH_RATIO_AT_LEAST, 0.95);
    snprintf(name, sizeof(name), "gpu 16 KiB blocks %s, cuMemcpyAsync each", ways[direction]);
    add(sheet, name, rate(b, turns[2].seconds), ceiling, BENCH_OPEN, 0);
    return YOLK_OK;
}

static enum yolk_status scattered(struct bench_gpu *b, struct bench_sheet *sheet,
                                  enum device_direction direction)
{
    struct bench_gpu_run runs[CONTENDERS];
    struct bench_contender turns[CONTENDERS];
    char name[96];
    runs[0] = bare_large(b, direction);
    for (size_t i = 1; i < CONTENDERS; i++)
        runs[i] = (struct bench_gpu_run){b, b->device, direction, blocks[i - 1], true};
    for (size_t i = 0; i < CONTENDERS; i++)
        turns[i] = (struct bench_contender){"", bench_gpu_move, &runs[i], 0};
    enum yolk_status status = bench_in_turn(turns, CONTENDERS, b->runs);
    for (size_t i = 1; i < CONTENDERS && status == YOLK_OK; i++) {
        status = bench_gpu_verify(&runs[i]);
        snprintf(name, sizeof(name), "gpu scattered %zu KiB blocks %s", blocks[i - 1] / 1024,
                 ways[direction]);
        if (status == YOLK_OK)
            add(sheet, name, rate(b, turns[i].seconds), rate(b, turns[0].seconds),
                BENCH_RATIO_AT_LEAST, 0.90);
    }
    return status;
}

/* ---- from which size on the copy engine is the faster one ---- */
static enum yolk_status switch_over(struct bench_gpu *b, struct bench_sheet *sheet,
                                    enum device_direction direction)
{
    enum yolk_status status = YOLK_OK;
    size_t found = 0;
    char name[96];
    for (size_t block = 64 * KIB; block <= 1 * MIB && status == YOLK_OK; block *= 2) {
        struct bench_gpu_run kernel = {b, b->kernel, direction, block, true}, engine = kernel;
        engine.device = b->engine;
        struct bench_contender turns[] = {{"kernel", bench_gpu_move, &kernel, 0},
                                          {"engine", bench_gpu_move, &engine, 0}};
        status = bench_in_turn(turns, 2, b->runs);
        if (status == YOLK_OK)
            status = bench_gpu_verify(&kernel);
        if (status == YOLK_OK)
            status = bench_gpu_verify(&engine);
        if (status != YOLK_OK)
            return status;
        if (found == 0 && turns[1].seconds < turns[0].seconds)
            found = block;
        snprintf(name, sizeof(name), "gpu scattered %zu KiB blocks %s, kernel", block / 1024,
                 ways[direction]);
        bench_sheet_add(sheet, &(struct bench_row){.name = name,
                                                   .unit = "GB/s",
                                                   .value = rate(b, turns[0].seconds),
                                                   .ceiling_name = "copy engine, same blocks",
                                                   .ceiling = rate(b, turns[1].seconds)});
    }
    snprintf(name, sizeof(name), "gpu copy engine is the faster one %s from", ways[direction]);
    if (found > 0)
        bench_sheet_add(
            sheet, &(struct bench_row){.name = name, .unit = "KiB", .value = (double)found / 1024});
    else
        bench_sheet_skip(sheet, name, "the kernel is faster up to 1 MiB");
    return YOLK_OK;
}

/* ---- what they take from a kernel that computes ---- */
static enum yolk_status beside(struct bench_busy *busy, struct bench_sheet *sheet,
                               const struct bench_gpu_run *run, const char *what)
{
    enum { ROUNDS_MAX = 5 };
    double alone[ROUNDS_MAX], with[ROUNDS_MAX], copied[ROUNDS_MAX];
    size_t rounds = busy->b->check ? 1 : ROUNDS_MAX;
    char name[96];
    for (size_t i = 0; i < rounds; i++) {
        uint64_t bytes;
        enum yolk_status status = bench_busy_run(busy, NULL, &alone[i], &bytes);
        if (status == YOLK_OK)
            status = bench_busy_run(busy, run, &with[i], &bytes);
        if (status != YOLK_OK)
            return status;
        copied[i] = (double)bytes / with[i] / 1e9;
    }
    snprintf(name, sizeof(name), "gpu compute kernel beside %s %s", what, ways[run->direction]);
    bench_sheet_add(sheet,
                    &(struct bench_row){.name = name,
                                        .unit = "launches/s",
                                        .value = busy->launches / bench_median(with, rounds),
                                        .ceiling_name = "the kernel alone",
                                        .ceiling = busy->launches / bench_median(alone, rounds)});
    snprintf(name, sizeof(name), "gpu %s %s beside a compute kernel", what, ways[run->direction]);
    add(sheet, name, bench_median(copied, rounds), 0, BENCH_OPEN, 0);
    return YOLK_OK;
}

static enum yolk_status slow_down(struct bench_gpu *b, struct bench_sheet *sheet)
{
    struct bench_busy busy;
    enum yolk_status status = bench_busy_open(&busy, b);
    for (int d = DEVICE_TO_GPU; d <= DEVICE_FROM_GPU && status == YOLK_OK; d++) {
        struct bench_gpu_run run = {b, b->device, (enum device_direction)d, 16 * KIB, true};
        status = beside(&busy, sheet, &run, "16 KiB blocks");
        run.block = b->total / 16;
        run.scattered = false;
        if (status == YOLK_OK)
            status = beside(&busy, sheet, &run, "large copies");
    }
    bench_busy_close(&busy);
    return status;
}

/* ---- gets of a store on this machine ---- */
enum { VALUES = 128, PARTS = 64, PART = 32 * 1024 };

struct gets {
    struct bench_gpu *b;
    struct yolk_store *store;
    struct yolk_kv kvs[VALUES];
    struct yolk_slice slices[VALUES][PARTS];
    char keys[VALUES][16];
    uint32_t count;
};

static enum yolk_status run_gets(void *self, double *seconds)
{
    struct gets *gets = self;
    uint64_t start = bench_now_ns();
    enum yolk_status status = yolk_store_get(gets->store, gets->kvs, gets->count);
    *seconds = bench_seconds_since(start);
    return status;
}

/* The parts of all values lie apart from each other, as the layers of blocks do. */
static void prepare_gets(struct gets *gets)
{
    for (uint32_t i = 0; i < gets->count; i++) {
        bench_key(gets->keys[i], i);
        for (uint32_t k = 0; k < PARTS; k++)
            gets->slices[i][k] =
                (struct yolk_slice){gets->b->gpu + ((size_t)k * gets->count + i) * PART, PART};
        gets->kvs[i] = (struct yolk_kv){.key = gets->keys[i],
                                        .key_size = strlen(gets->keys[i]),
                                        .slices = gets->slices[i],
                                        .slice_count = PARTS};
    }
}

static enum yolk_status put_values(struct gets *gets)
{
    struct bench_gpu *b = gets->b;
    enum yolk_status status = YOLK_OK;
    bench_gpu_fill(b, b->host, (size_t)PARTS * PART * gets->count);
    for (uint32_t i = 0; i < gets->count && status == YOLK_OK; i++) {
        struct yolk_slice slices[PARTS];
        struct yolk_kv kv = {.key = gets->keys[i],
                             .key_size = strlen(gets->keys[i]),
                             .slices = slices,
                             .slice_count = PARTS};
        for (uint32_t k = 0; k < PARTS; k++)
            slices[k] = (struct yolk_slice){b->host + ((size_t)k * gets->count + i) * PART, PART};
        status = yolk_store_put(gets->store, &kv, 1);
    }
    return status;
}

static enum yolk_status verify_gets(struct gets *gets)
{
    struct bench_gpu *b = gets->b;
    size_t size = (size_t)PARTS * PART * gets->count;
    double seconds;
    memset(b->back, 0, size);
    enum yolk_status status = bench_gpu_bare(b, b->gpu, b->back, size);
    if (status == YOLK_OK)
        status = run_gets(gets, &seconds);
    if (status == YOLK_OK)
        status = bench_gpu_bare(b, b->back, b->gpu, size);
    if (status == YOLK_OK && memcmp(b->back, b->host, size) != 0)
        status = base_fail(YOLK_ERR_CORRUPT, 0, "a get into the GPU's memory brought other bytes");
    return status;
}

/* From the GPU; each time as new values, what is there being removed first, which is not counted.
 */
static enum yolk_status run_puts(void *self, double *seconds)
{
    struct gets *gets = self;
    enum yolk_status status = yolk_store_remove_all(gets->store, true, NULL);
    uint64_t start = bench_now_ns();
    if (status == YOLK_OK)
        status = yolk_store_put(gets->store, gets->kvs, gets->count);
    *seconds = bench_seconds_since(start);
    return status;
}

/* One of both, beside a large copy of the same direction. */
static enum yolk_status beside_a_copy(struct gets *gets, struct bench_sheet *sheet,
                                      enum device_direction direction)
{
    struct bench_gpu *b = gets->b;
    bool get = direction == DEVICE_TO_GPU;
    struct bench_gpu_run bare = bare_large(b, direction);
    struct bench_contender turns[] = {{"bare", bench_gpu_move, &bare, 0},
                                      {"store", get ? run_gets : run_puts, gets, 0}};
    enum yolk_status status = bench_in_turn(turns, 2, b->runs);
    if (status == YOLK_OK)
        add(sheet,
            get ? "gpu store get of 128 x 64 x 32 KiB into the GPU"
                : "gpu store put of 128 x 64 x 32 KiB from the GPU",
            (double)PARTS * PART * gets->count / turns[1].seconds / 1e9, rate(b, turns[0].seconds),
            get ? BENCH_RATIO_AT_LEAST : BENCH_OPEN, 0.85);
    return status;
}

static enum yolk_status measure_gets(struct gets *gets, struct bench_sheet *sheet)
{
    struct bench_gpu *b = gets->b;
    prepare_gets(gets);
    enum yolk_status status = put_values(gets);
    if (status == YOLK_OK)
        status = yolk_store_register_buffer(gets->store, b->gpu, b->total);
    if (status == YOLK_OK)
        status = verify_gets(gets);
    if (status == YOLK_OK)
        status = beside_a_copy(gets, sheet, DEVICE_TO_GPU);
    if (status == YOLK_OK)
        status = beside_a_copy(gets, sheet, DEVICE_FROM_GPU);
    return status;
}

static enum yolk_status store_gets(struct bench_gpu *b, struct bench_cluster *cluster,
                                   struct bench_sheet *sheet)
{
    struct gets *gets = calloc(1, sizeof(*gets));
    if (gets == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of values");
    gets->b = b;
    gets->store = cluster->store;
    gets->count = b->check ? (uint32_t)(b->total / ((size_t)PARTS * PART)) : VALUES;
    enum yolk_status status = measure_gets(gets, sheet);
    free(gets);
    return status;
}

/* ---- the command ---- */
static void describe(const struct bench_gpu *b, json_t *root)
{
    struct device_gpu gpu;
    char reason[512] = "", sums[512] = "";
    if (device_gpu(b->device, b->ordinal, &gpu) != YOLK_OK)
        return;
    if (device_gather_reason(b->device, b->ordinal, reason, sizeof(reason)) != YOLK_OK)
        snprintf(reason, sizeof(reason), "%s", yolk_last_error());
    if (device_sum_reason(b->device, b->ordinal, sums, sizeof(sums)) != YOLK_OK)
        snprintf(sums, sizeof(sums), "%s", yolk_last_error());
    json_object_set_new(root, "gpu", json_string(gpu.name));
    json_object_set_new(root, "driver", json_integer(device_cuda(b->device)->version));
    json_object_set_new(root, "kernel refused", json_string(reason));
    json_object_set_new(root, "checksum kernel refused", json_string(sums));
    printf("%s (%s), driver %d, copies of %llu MiB%s%s%s%s\n", gpu.name, gpu.bus,
           device_cuda(b->device)->version, (unsigned long long)(b->total / MIB),
           reason[0] != '\0' ? ", no gather kernel: " : "", reason,
           sums[0] != '\0' ? ", no checksum kernel: " : "", sums);
}

static void measure(struct bench_gpu *b, struct bench_cluster *cluster, struct bench_sheet *sheet)
{
    for (int d = DEVICE_TO_GPU; d <= DEVICE_FROM_GPU; d++) {
        enum device_direction direction = (enum device_direction)d;
        (void)bench_sheet_part(sheet, "gpu large copies", large(b, sheet, direction));
        (void)bench_sheet_part(sheet, "gpu scattered blocks", scattered(b, sheet, direction));
        (void)bench_sheet_part(sheet, "gpu switch-over", switch_over(b, sheet, direction));
    }
    (void)bench_sheet_part(sheet, "gpu compute kernel beside", slow_down(b, sheet));
    (void)bench_sheet_part(sheet, "gpu store get", store_gets(b, cluster, sheet));
}

int cli_bench_gpu(int argc, char **argv)
{
    struct base_config config;
    struct bench_gpu b = {0};
    struct bench_cluster cluster = {0};
    struct bench_sheet sheet;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    bool check = base_config_bool(&config, SET_CHECK);
    int ordinal = (int)base_config_u64(&config, SET_GPU);
    bench_sheet_open(&sheet, check);
    /* The processes beside this one come first: a fork after the driver's start would not do. */
    enum yolk_status status = bench_cluster_open(
        &cluster, &(struct bench_cluster_options){.segment_bytes = (check ? 64 : 512) * MIB});
    if (status == YOLK_OK)
        status = bench_gpu_open(&b, ordinal, check);
    if (status == YOLK_OK) {
        describe(&b, sheet.root);
        measure(&b, &cluster, &sheet);
        code = bench_sheet_close(&sheet, base_config_string(&config, SET_JSON));
    } else {
        code = cli_failure(&command, status, "--gpu %d", ordinal);
        bench_sheet_discard(&sheet);
    }
    bench_cluster_close(&cluster);
    bench_gpu_close(&b);
    base_config_free(&config);
    return code;
}
