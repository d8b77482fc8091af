/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench gds`: between a GPU's memory and a file, by the engine's gds transport, beside a bare
 * cuFile loop with the same slices and depth, in turn. */
#include "cli/bench_gds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/common.h"
#include "cli/mount.h"

static const struct cli_command command = {
    "bench gds", "",
    "Reads and writes between a GPU's memory and files that it makes in --path and removes: slices "
    "of\n256 KiB to 16 MiB, 1 to 128 at a time, each beside a bare cuFile loop of the same run; "
    "through\npinned memory and io_uring; many small pieces packed; and blocks of KV cache, with "
    "the\nslice and depth "
    "that suit them.",
    COMMAND_GPU};

enum { JUDGED_DEPTH = 32, ROUNDS_JUDGED = 5, ROUNDS = 3, OPERATIONS_MAX = 256 };

static const uint64_t slices[] = {256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB};
static const uint32_t depths[] = {1, 8, 64, 128}; /* and the default */
static const char *const names[] = {"read", "write"};

struct bench {
    struct bench_gpu gpu;
    struct bench_cufile bare;
    struct bench_gds_engine ours; /* keeps cuFile's driver open from first to last */
    struct bench_sheet sheet;
    struct file *bare_file, *our_file;
    char bare_path[512], our_path[512];
    struct cli_mount mount;
    struct yolk_file_figures figures;
    json_t *cases;
};

/* ---- set up ---- */
static struct bench_gds_engine_options options_of(const struct bench *b, bool gds, bool uring,
                                                  uint32_t depth)
{
    return (struct bench_gds_engine_options){.gds = gds,
                                             .uring = uring,
                                             .depth = depth,
                                             .file = b->our_file,
                                             .size = b->gpu.total,
                                             .memory = b->gpu.gpu};
}

/* What the transport found of our file. */
static void read_figures(struct bench *b)
{
    struct yolk_file_figures all[16];
    size_t count = gds_files(all, 16);
    for (size_t i = 0; i < count && i < 16; i++)
        if (strstr(all[i].path, strrchr(b->our_path, '/')) != NULL)
            b->figures = all[i];
}

static enum yolk_status set_up(struct bench *b, const char *folder, int ordinal, bool check)
{
    enum yolk_status status = bench_gpu_open(&b->gpu, ordinal, check);
    if (status == YOLK_OK)
        bench_gpu_fill(&b->gpu, b->gpu.host, b->gpu.total);
    if (status == YOLK_OK)
        status = bench_gds_file(folder, "bare", &b->gpu, &b->bare_file, b->bare_path);
    if (status == YOLK_OK)
        status = bench_gds_file(folder, "ours", &b->gpu, &b->our_file, b->our_path);
    const struct bench_gds_engine_options options = options_of(b, true, false, JUDGED_DEPTH);
    if (status == YOLK_OK)
        status = bench_gds_engine_open(&b->ours, &options);
    if (status == YOLK_OK)
        status = bench_cufile_open(&b->bare, &b->gpu, b->bare_file);
    if (status == YOLK_OK)
        status = (enum yolk_status)cli_mount_of(folder, &b->mount);
    return status;
}

static void tear_down(struct bench *b)
{
    bench_cufile_close(&b->bare);
    bench_gds_engine_close(&b->ours);
    bench_gds_file_remove(b->bare_file, b->bare_path);
    bench_gds_file_remove(b->our_file, b->our_path);
    bench_gpu_close(&b->gpu);
}

/* ---- that the bytes are right ---- */

/* What is in the GPU's memory goes to the file, comes back, and is the same. */
static enum yolk_status round_trip(struct bench *b, struct bench_gds_engine *e,
                                   struct bench_gds_work work)
{
    struct bench_gds_took took;
    struct bench_gpu *gpu = &b->gpu;
    bench_gpu_fill(gpu, gpu->host, work.bytes);
    enum yolk_status status = bench_gpu_bare(gpu, gpu->gpu, gpu->host, work.bytes);
    work.write = true;
    if (status == YOLK_OK)
        status = bench_gds_engine_run(e, &work, &took);
    memset(gpu->back, 0, work.bytes);
    if (status == YOLK_OK)
        status = bench_gpu_bare(gpu, gpu->gpu, gpu->back, work.bytes);
    work.write = false;
    if (status == YOLK_OK)
        status = bench_gds_engine_run(e, &work, &took);
    if (status == YOLK_OK)
        status = bench_gpu_bare(gpu, gpu->back, gpu->gpu, work.bytes);
    if (status == YOLK_OK && memcmp(gpu->host, gpu->back, work.bytes) != 0)
        status = base_fail(YOLK_ERR_CORRUPT, 0,
                           "slices of %llu KiB came back from the file as other bytes",
                           (unsigned long long)(work.slice / KIB));
    return status;
}

/* ---- cases ---- */
struct turns {
    struct bench *b;
    struct bench_gds_engine *e;
    const struct bench_gds_work *work;
    struct bench_gds_took ours[ROUNDS_JUDGED];
    unsigned round;
};

static enum yolk_status run_bare(void *self, double *seconds)
{
    struct turns *turns = self;
    struct bench_gds_took took;
    enum yolk_status status = bench_cufile_run(&turns->b->bare, turns->work, &took);
    *seconds = took.seconds;
    return status;
}

static enum yolk_status run_ours(void *self, double *seconds)
{
    struct turns *turns = self;
    struct bench_gds_took took;
    enum yolk_status status = bench_gds_engine_run(turns->e, turns->work, &took);
    turns->ours[turns->round++ % ROUNDS_JUDGED] = took;
    *seconds = took.seconds;
    return status;
}

static double rate(const struct bench_gds_work *work, double seconds)
{
    return (double)work->bytes / seconds / 1e9;
}

/* Enough of it to be at its depth, and no more than a moment takes. */
static struct bench_gds_work work_of(const struct bench *b, uint64_t slice, uint32_t depth,
                                     bool write)
{
    uint64_t wanted = depth == 1 ? 64 * MIB : 256 * MIB;
    if (wanted < 2 * depth * slice)
        wanted = 2 * depth * slice;
    if (wanted > b->gpu.total)
        wanted = b->gpu.total;
    return (struct bench_gds_work){
        .write = write, .slice = slice, .bytes = wanted - wanted % slice, .depth = depth};
}

/* One that holds for all rounds: the least of them. */
static double processor_of(const struct turns *turns)
{
    double least = 1e9;
    for (unsigned i = 0; i < turns->round && i < ROUNDS_JUDGED; i++)
        least = turns->ours[i].processor < least ? turns->ours[i].processor : least;
    return least;
}

static void add_case(struct bench *b, const struct turns *turns, const struct bench_row *row,
                     double p50, double p99)
{
    const struct bench_gds_work *work = turns->work;
    double processor = processor_of(turns) / ((double)work->bytes / 1e9);
    bool compatible = !b->figures.direct;
    bench_sheet_add(&b->sheet, row);
    if (b->sheet.check)
        return;
    printf("    p50 %.0f us, p99 %.0f us, %.2f processor seconds a GB, %s\n", p50, p99, processor,
           compatible ? "all bytes through cuFile's host memory" : "no byte through the host");
    json_array_append_new(
        b->cases, json_pack("{s:s, s:I, s:i, s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:I}",
                            "operation", names[work->write], "slice", (json_int_t)work->slice,
                            "depth", (int)work->depth, "mode", b->figures.mode, "file system",
                            b->mount.type, "registered", 1, "gb_per_s", row->value, "bare_gb_per_s",
                            row->ceiling, "p50_us", p50, "p99_us", p99, "processor_s_per_gb",
                            processor, "bounce_bytes", (json_int_t)(compatible ? work->bytes : 0)));
}

static enum yolk_status run_case(struct bench *b, struct bench_gds_engine *e,
                                 const struct bench_gds_work *work)
{
    struct turns turns = {.b = b, .e = e, .work = work};
    struct bench_contender contenders[] = {{"bare", run_bare, &turns, 0},
                                           {"ours", run_ours, &turns, 0}};
    struct bench_gds_work few = *work;
    bool judged = work->depth == JUDGED_DEPTH;
    double p50 = 0, p99 = 0;
    char name[96];
    if (few.bytes > OPERATIONS_MAX * few.slice)
        few.bytes = OPERATIONS_MAX * few.slice;
    enum yolk_status status = bench_in_turn(contenders, 2,
                                            b->gpu.check ? 1
                                            : judged     ? ROUNDS_JUDGED
                                                         : ROUNDS);
    if (status == YOLK_OK)
        status = bench_gds_engine_latency(e, &few, &p50, &p99);
    if (status != YOLK_OK)
        return status;
    snprintf(name, sizeof(name), "gds %s %llu KiB, depth %u", names[work->write],
             (unsigned long long)(work->slice / KIB), work->depth);
    add_case(b, &turns,
             &(struct bench_row){.name = name,
                                 .unit = "GB/s",
                                 .value = rate(work, contenders[1].seconds),
                                 .ceiling_name = "bare cuFile loop",
                                 .ceiling = rate(work, contenders[0].seconds),
                                 .bound = BENCH_RATIO_AT_LEAST,
                                 .limit = 0.95},
             p50, p99);
    return YOLK_OK;
}

static enum yolk_status at_depth(struct bench *b, uint32_t depth)
{
    struct bench_gds_engine e;
    const struct bench_gds_engine_options options = options_of(b, true, false, depth);
    enum yolk_status status = bench_gds_engine_open(&e, &options);
    for (size_t i = 0; i < sizeof(slices) / sizeof(slices[0]) && status == YOLK_OK; i++) {
        if (depth * slices[i] > b->gpu.total)
            continue;
        struct bench_gds_work work = work_of(b, slices[i], depth, true);
        status = round_trip(b, &e, work);
        for (int write = 1; write >= 0 && status == YOLK_OK; write--) {
            work.write = write != 0;
            status = run_case(b, &e, &work);
        }
    }
    bench_gds_engine_close(&e);
    return status;
}

/* ---- memory that is not registered: cuFile's own bounce buffers, whatever the mode ---- */
static enum yolk_status unregistered(struct bench *b)
{
    enum yolk_status status = YOLK_OK;
    for (size_t i = 1; i < sizeof(slices) / sizeof(slices[0]) && status == YOLK_OK; i += 2) {
        uint32_t depth = (uint32_t)(b->gpu.total / slices[i] < 8 ? 1 : 8);
        if (slices[i] > b->gpu.total)
            continue;
        const struct bench_gds_work work = work_of(b, slices[i], depth, false);
        struct bench_gds_took with = {0}, without = {0};
        char name[96];
        status = bench_cufile_run(&b->bare, &work, &with);
        if (status == YOLK_OK)
            status = bench_cufile_register(&b->bare, false);
        if (status == YOLK_OK)
            status = bench_cufile_run(&b->bare, &work, &without);
        if (status == YOLK_OK)
            status = bench_cufile_register(&b->bare, true);
        if (status != YOLK_OK)
            break;
        snprintf(name, sizeof(name), "cuFile read %llu KiB, depth %u, not registered",
                 (unsigned long long)(slices[i] / KIB), depth);
        bench_sheet_add(&b->sheet, &(struct bench_row){.name = name,
                                                       .unit = "GB/s",
                                                       .value = rate(&work, without.seconds),
                                                       .ceiling_name = "the same, registered",
                                                       .ceiling = rate(&work, with.seconds)});
    }
    return status;
}

/* ---- through pinned memory and io_uring ---- */
static enum yolk_status run_default(void *self, double *seconds)
{
    struct turns *turns = self;
    struct bench_gds_took took;
    enum yolk_status status = bench_gds_engine_run(&turns->b->ours, turns->work, &took);
    *seconds = took.seconds;
    return status;
}

/* With both allowed the engine takes the one that it measures faster: after some runs it has. */
static enum yolk_status choose(struct bench *b, struct bench_gds_engine *e,
                               struct bench_gds_work work, double better)
{
    enum { RUNS = 6 };
    struct bench_gds_took took = {0};
    enum yolk_status status = YOLK_OK;
    char name[96];
    for (int i = 0; i < RUNS && status == YOLK_OK; i++)
        status = bench_gds_engine_run(e, &work, &took);
    if (status != YOLK_OK)
        return status;
    printf("with both allowed, %s was chosen to %s\n", e->transport, names[work.write]);
    snprintf(name, sizeof(name), "chosen %s", names[work.write]);
    json_object_set_new(b->sheet.root, name, json_string(e->transport));
    snprintf(name, sizeof(name), "the chosen way, %s %llu KiB", names[work.write],
             (unsigned long long)(work.slice / KIB));
    bench_sheet_add(&b->sheet, &(struct bench_row){.name = name,
                                                   .unit = "GB/s",
                                                   .value = rate(&work, took.seconds),
                                                   .ceiling_name = "the faster of both",
                                                   .ceiling = better});
    return YOLK_OK;
}

static enum yolk_status through_memory(struct bench *b)
{
    struct bench_gds_engine e, both = {.engine = NULL};
    const struct bench_gds_engine_options options = options_of(b, false, true, 16);
    const struct bench_gds_engine_options all = options_of(b, true, true, JUDGED_DEPTH);
    uint64_t slice = b->gpu.check ? 1 * MIB : 16 * MIB;
    double better[2] = {0, 0};
    enum yolk_status status = bench_gds_engine_open(&e, &options);
    if (status == YOLK_OK)
        status = round_trip(b, &e, work_of(b, slice, 8, true));
    for (int write = 1; write >= 0 && status == YOLK_OK; write--) {
        const struct bench_gds_work work = work_of(b, slice, 8, write != 0);
        struct turns turns = {.b = b, .e = &e, .work = &work};
        struct bench_contender contenders[] = {{"gds", run_default, &turns, 0},
                                               {"uring", run_ours, &turns, 0}};
        char name[96];
        status = bench_in_turn(contenders, 2, b->gpu.check ? 1 : ROUNDS_JUDGED);
        snprintf(name, sizeof(name), "io_uring and pinned memory, %s %llu KiB", names[write],
                 (unsigned long long)(slice / KIB));
        if (status == YOLK_OK)
            bench_sheet_add(&b->sheet,
                            &(struct bench_row){.name = name,
                                                .unit = "GB/s",
                                                .value = rate(&work, contenders[1].seconds),
                                                .ceiling_name = "gds, the same slices",
                                                .ceiling = rate(&work, contenders[0].seconds)});
        better[write] = contenders[0].seconds < contenders[1].seconds
                            ? rate(&work, contenders[0].seconds)
                            : rate(&work, contenders[1].seconds);
    }
    bench_gds_engine_close(&e);
    if (status == YOLK_OK)
        status = bench_gds_engine_open(&both, &all);
    if (status == YOLK_OK)
        status = round_trip(b, &both, work_of(b, slice, 8, true));
    for (int write = 1; write >= 0 && status == YOLK_OK && !b->gpu.check; write--)
        status = choose(b, &both, work_of(b, slice, 8, write != 0), better[write]);
    bench_gds_engine_close(&both);
    return status;
}

/* ---- many small pieces ---- */
static enum yolk_status run_objects(const struct bench *b, struct bench_gds_engine *e, bool write,
                                    struct bench_gds_took *took)
{
    const struct bench_gds_work work = {
        .write = write, .slice = 32 * KIB, .bytes = b->gpu.total, .depth = 1, .pieces = 64};
    return bench_gds_engine_pieces(e, &work, took);
}

static enum yolk_status run_pieces(void *self, double *seconds)
{
    struct turns *turns = self;
    struct bench_gds_took first = {0}, second = {0};
    bool write = turns->work->write;
    /* Twice what the memory holds: 512 objects of 2 MiB. */
    enum yolk_status status = run_objects(turns->b, turns->e, write, &first);
    if (status == YOLK_OK)
        status = run_objects(turns->b, turns->e, write, &second);
    *seconds = first.seconds + second.seconds;
    return status;
}

static enum yolk_status run_twice(void *self, double *seconds)
{
    double second = 0;
    enum yolk_status status = run_ours(self, seconds);
    if (status == YOLK_OK)
        status = run_ours(self, &second);
    *seconds += second;
    return status;
}

static enum yolk_status pieces_come_back(struct bench *b)
{
    struct bench_gds_took took;
    struct bench_gpu *gpu = &b->gpu;
    bench_gpu_fill(gpu, gpu->host, gpu->total);
    enum yolk_status status = bench_gpu_bare(gpu, gpu->gpu, gpu->host, gpu->total);
    if (status == YOLK_OK)
        status = run_objects(b, &b->ours, true, &took);
    memset(gpu->back, 0, gpu->total);
    if (status == YOLK_OK)
        status = bench_gpu_bare(gpu, gpu->gpu, gpu->back, gpu->total);
    if (status == YOLK_OK)
        status = run_objects(b, &b->ours, false, &took);
    if (status == YOLK_OK)
        status = bench_gpu_bare(gpu, gpu->back, gpu->gpu, gpu->total);
    if (status == YOLK_OK && memcmp(gpu->host, gpu->back, gpu->total) != 0)
        status = base_fail(YOLK_ERR_CORRUPT, 0, "small pieces came back as other bytes");
    return status;
}

static enum yolk_status pieces(struct bench *b)
{
    enum yolk_status status = pieces_come_back(b);
    for (int write = 1; write >= 0 && status == YOLK_OK; write--) {
        const struct bench_gds_work work = {
            .write = write != 0,
            .slice = b->gpu.check ? 1 * MIB : 16 * MIB,
            .bytes = b->gpu.total,
            .depth = JUDGED_DEPTH,
        };
        struct turns turns = {.b = b, .e = &b->ours, .work = &work};
        struct bench_contender contenders[] = {{"slices", run_twice, &turns, 0},
                                               {"pieces", run_pieces, &turns, 0}};
        char name[96];
        status = bench_in_turn(contenders, 2, b->gpu.check ? 1 : ROUNDS);
        snprintf(name, sizeof(name), "gds %s of 512 objects of 64 x 32 KiB, packed", names[write]);
        if (status == YOLK_OK)
            bench_sheet_add(&b->sheet,
                            &(struct bench_row){.name = name,
                                                .unit = "GB/s",
                                                .value = 2 * rate(&work, contenders[1].seconds),
                                                .ceiling_name = "gds, 16 MiB slices",
                                                .ceiling = 2 * rate(&work, contenders[0].seconds),
                                                .bound = BENCH_RATIO_AT_LEAST,
                                                .limit = 0.90});
    }
    return status;
}

/* ---- the command ---- */
static void describe(struct bench *b)
{
    read_figures(b);
    json_object_set_new(b->sheet.root, "cases", b->cases);
    json_object_set_new(b->sheet.root, "cuFile", json_integer(b->bare.cufile->version));
    json_object_set_new(b->sheet.root, "mode", json_string(b->figures.mode));
    json_object_set_new(b->sheet.root, "reason", json_string(b->figures.reason));
    json_object_set_new(b->sheet.root, "file system", json_string(b->mount.type));
    json_object_set_new(b->sheet.root, "mount options", json_string(b->mount.options));
    printf("%s, mode %s: %s\n%s on %s (%s), %llu MiB a file, cuFile %d.%d\n", b->our_path,
           b->figures.mode, b->figures.reason, b->mount.type, b->mount.source, b->mount.options,
           (unsigned long long)(b->gpu.total / MIB), b->bare.cufile->version / 1000,
           b->bare.cufile->version % 1000 / 10);
}

/* What is promised comes first: the rest may be cut off by whoever has not the time. */
static void measure(struct bench *b)
{
    char name[64];
    (void)bench_sheet_part(&b->sheet, "gds at the default depth", at_depth(b, JUDGED_DEPTH));
    (void)bench_sheet_part(&b->sheet, "gds of small pieces", pieces(b));
    const struct bench_gds_engine_options options = options_of(b, true, false, 0);
    (void)bench_sheet_part(&b->sheet, "gds of blocks of KV cache",
                           bench_gds_blocks(&options, &b->sheet));
    (void)bench_sheet_part(&b->sheet, "io_uring and pinned memory", through_memory(b));
    (void)bench_sheet_part(&b->sheet, "cuFile, not registered", unregistered(b));
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        snprintf(name, sizeof(name), "gds at depth %u", depths[i]);
        (void)bench_sheet_part(&b->sheet, name, at_depth(b, depths[i]));
    }
}

int cli_bench_gds(int argc, char **argv)
{
    struct base_config config;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    struct bench *b = calloc(1, sizeof(*b));
    const char *folder = base_config_string(&config, SET_PATH);
    bool check = base_config_bool(&config, SET_CHECK);
    if (b == NULL || folder[0] == '\0') {
        code = b == NULL
                   ? cli_failure(&command, YOLK_ERR_NO_MEMORY, "rows")
                   : cli_usage_error(&command, "--path \"\": the name of a folder is not empty");
        free(b);
        base_config_free(&config);
        return code;
    }
    bench_sheet_open(&b->sheet, check);
    b->cases = json_array();
    enum yolk_status status = set_up(b, folder, (int)base_config_u64(&config, SET_GPU), check);
    if (status == YOLK_OK) {
        describe(b);
        measure(b);
        code = bench_sheet_close(&b->sheet, base_config_string(&config, SET_JSON));
    } else {
        code = cli_failure(&command, status, "--path %s", folder);
        json_decref(b->cases);
        bench_sheet_discard(&b->sheet);
    }
    tear_down(b);
    free(b);
    base_config_free(&config);
    return code;
}
