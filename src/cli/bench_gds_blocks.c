/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of KV cache as models have them, and which slices and depth suit all of them. */
#include <stdio.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_gds.h"
#include "transport/gds/driver.h"

enum { KINDS = 4, SLICES = 3, DEPTHS = 3, OPERATIONS = 2, ROUNDS = 3 };

/* Pieces of a layer each, side by side in the file and apart in memory. */
static const struct kind {
    const char *name;
    uint32_t pieces;
    uint64_t piece;
} kinds[KINDS] = {
    {"8B, 16 tokens", 64, 32 * KIB},
    {"70B, 16 tokens", 160, 32 * KIB},
    {"MLA, 64 tokens", 61, 72 * KIB},
    {"MLA, one piece", 1, 2560 * KIB},
};
static const uint64_t slices[SLICES] = {1 * MIB, 4 * MIB, 16 * MIB};
static const uint32_t depths[DEPTHS] = {8, 32, 64};
static const char *const operations[OPERATIONS] = {"read", "write"};

struct grid {
    double rates[SLICES][DEPTHS][KINDS][OPERATIONS]; /* GB/s */
};

static enum yolk_status run_kind(struct bench_gds_engine *e, const struct kind *kind, bool write,
                                 unsigned rounds, double *best)
{
    uint64_t object = kind->pieces * kind->piece;
    uint64_t most = 256 * MIB < e->size ? 256 * MIB : e->size;
    const struct bench_gds_work work = {.write = write,
                                        .slice = kind->piece,
                                        .bytes = most - most % object,
                                        .depth = 1,
                                        .pieces = kind->pieces};
    *best = 0;
    for (unsigned i = 0; i < rounds && work.bytes > 0; i++) {
        struct bench_gds_took took;
        enum yolk_status status = bench_gds_engine_pieces(e, &work, &took);
        if (status != YOLK_OK)
            return status;
        double rate = (double)work.bytes / took.seconds / 1e9;
        *best = rate > *best ? rate : *best;
    }
    return YOLK_OK;
}

static enum yolk_status run_grid(const struct bench_gds_engine_options *base, unsigned rounds,
                                 struct grid *grid)
{
    enum yolk_status status = YOLK_OK;
    for (unsigned i = 0; i < SLICES * DEPTHS && status == YOLK_OK; i++) {
        struct bench_gds_engine e;
        struct bench_gds_engine_options options = *base;
        options.slice = slices[i / DEPTHS];
        options.depth = depths[i % DEPTHS];
        status = bench_gds_engine_open(&e, &options);
        for (unsigned k = 0; k < KINDS * OPERATIONS && status == YOLK_OK; k++) {
            unsigned operation = k % OPERATIONS;
            status = run_kind(&e, &kinds[k / OPERATIONS], operation == 1, rounds,
                              &grid->rates[i / DEPTHS][i % DEPTHS][k / OPERATIONS][operation]);
        }
        bench_gds_engine_close(&e);
    }
    return status;
}

static double best_of(const struct grid *grid, unsigned kind, unsigned operation)
{
    double best = 0;
    for (unsigned i = 0; i < SLICES * DEPTHS; i++) {
        double rate = grid->rates[i / DEPTHS][i % DEPTHS][kind][operation];
        best = rate > best ? rate : best;
    }
    return best;
}

/* What it has of the best rate, where that is the least. */
static double worth(const struct grid *grid, unsigned slice, unsigned depth)
{
    double least = 1;
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned o = 0; o < OPERATIONS; o++) {
            double best = best_of(grid, k, o);
            double share = best > 0 ? grid->rates[slice][depth][k][o] / best : 1;
            least = share < least ? share : least;
        }
    return least;
}

static void tell(const struct grid *grid, struct bench_sheet *sheet)
{
    unsigned best = 0, usual = 0;
    printf("blocks of KV cache, GB/s read/write\n    slice x depth");
    for (unsigned k = 0; k < KINDS; k++)
        printf("  %15s", kinds[k].name);
    printf("  least of the best\n");
    for (unsigned i = 0; i < SLICES * DEPTHS; i++) {
        unsigned s = i / DEPTHS, d = i % DEPTHS;
        printf("    %2llu MiB x %-4u ", (unsigned long long)(slices[s] / MIB), depths[d]);
        for (unsigned k = 0; k < KINDS; k++)
            printf("  %7.3f/%7.3f", grid->rates[s][d][k][0], grid->rates[s][d][k][1]);
        printf("  %.3f\n", worth(grid, s, d));
        if (worth(grid, s, d) > worth(grid, best / DEPTHS, best % DEPTHS))
            best = i;
        if (slices[s] == GDS_SLICE_DEFAULT && depths[d] == GDS_DEPTH_DEFAULT)
            usual = i;
    }
    printf("recommended for all of them: transports/gds/slice_bytes %llu MiB, io_batch_depth %u\n",
           (unsigned long long)(slices[best / DEPTHS] / MIB), depths[best % DEPTHS]);
    json_object_set_new(sheet->root, "recommended",
                        json_pack("{s:I, s:i}", "slice_bytes", (json_int_t)slices[best / DEPTHS],
                                  "io_batch_depth", (int)depths[best % DEPTHS]));
    bench_sheet_add(sheet, &(struct bench_row){.name = "gds defaults, the worst block of KV cache",
                                               .unit = "of the best",
                                               .value = worth(grid, usual / DEPTHS, usual % DEPTHS),
                                               .ceiling_name = "recommended",
                                               .ceiling = worth(grid, best / DEPTHS, best % DEPTHS),
                                               .bound = BENCH_RATIO_AT_LEAST,
                                               .limit = 0.90});
}

static void record(const struct grid *grid, json_t *into)
{
    for (unsigned i = 0; i < SLICES * DEPTHS * KINDS * OPERATIONS; i++) {
        unsigned o = i % OPERATIONS, k = i / OPERATIONS % KINDS;
        unsigned d = i / OPERATIONS / KINDS % DEPTHS, s = i / OPERATIONS / KINDS / DEPTHS;
        json_array_append_new(into, json_pack("{s:s, s:s, s:I, s:i, s:f}", "block", kinds[k].name,
                                              "operation", operations[o], "slice",
                                              (json_int_t)slices[s], "depth", (int)depths[d],
                                              "gb_per_s", grid->rates[s][d][k][o]));
    }
}

enum yolk_status bench_gds_blocks(const struct bench_gds_engine_options *options,
                                  struct bench_sheet *sheet)
{
    struct grid grid = {0};
    enum yolk_status status = run_grid(options, sheet->check ? 1 : ROUNDS, &grid);
    if (status != YOLK_OK || sheet->check)
        return status;
    json_t *all = json_array();
    record(&grid, all);
    json_object_set_new(sheet->root, "blocks", all);
    tell(&grid, sheet);
    return YOLK_OK;
}
