/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench space`: the allocator of a segment, which manages offsets: no memory is behind them.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/extents.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "platform/random.h"

enum { TURNOVERS = 10, TIMED = 1 << 16 };
#define CAPACITY (64 * GIB)
#define SMALLEST (64 * KIB)

static const struct mix {
    const char *name;
    double least_mib, most_mib; /* log-uniform between them */
} MIXES[] = {
    {"space 2 MiB", 2, 2},
    {"space 1.25 MiB", 1.25, 1.25},
    {"space 0.73 MiB", 0.73, 0.73},
    {"space 4.29 MiB", 4.29, 4.29},
    {"space 64 KiB to 32 MiB", 1.0 / 16, 32},
};
enum { MIX_COUNT = sizeof(MIXES) / sizeof(MIXES[0]) };

struct state {
    struct base_extents *extents;
    uint32_t *handles;
    uint32_t count;
    uint64_t capacity;
    struct random random;
};

static uint64_t draw_size(const struct state *s, const struct mix *mix)
{
    double part = (double)random_below(&s->random, 1 << 24) / (double)(1 << 24);
    double mib = mix->least_mib * pow(mix->most_mib / mix->least_mib, part);
    return (uint64_t)(mib * (double)MIB);
}

static bool take(struct state *s, uint64_t size)
{
    uint32_t handle = base_extents_take(s->extents, size, NULL);
    if (handle == BASE_EXTENTS_NONE)
        return false;
    s->handles[s->count++] = handle;
    return true;
}

static void evict_one(struct state *s)
{
    uint32_t victim = (uint32_t)random_below(&s->random, s->count);
    base_extents_release(s->extents, s->handles[victim]);
    s->handles[victim] = s->handles[--s->count];
}

static double used_share(const struct state *s)
{
    return 1 - (double)base_extents_free_bytes(s->extents) / (double)s->capacity;
}

/* The used share when an object first finds no room, after the segment's bytes were replaced so
 * many times by random eviction. */
static double churn(struct state *s, const struct mix *mix, int turnovers)
{
    uint64_t moved = 0;
    for (;;) {
        uint64_t size = draw_size(s, mix);
        if (take(s, size)) {
            moved += size;
            continue;
        }
        if (moved >= (uint64_t)turnovers * s->capacity)
            return used_share(s);
        do
            evict_one(s);
        while (!take(s, size));
        moved += size;
    }
}

static enum yolk_status measure_mix(struct bench_report *bench, const struct mix *mix,
                                    struct bench_row *row)
{
    enum { SEEDS = 11 };
    double shares[SEEDS];
    for (int seed = 0; seed < SEEDS; seed++) {
        struct random_sim seeded;
        random_sim_init(&seeded, (uint64_t)seed + 1);
        struct state s = {.capacity = bench->quick ? CAPACITY / 8 : CAPACITY,
                          .random = random_sim_random(&seeded)};
        s.handles = calloc(s.capacity / SMALLEST, sizeof(*s.handles));
        enum yolk_status status = s.handles == NULL
                                      ? base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of extents")
                                      : base_extents_create(s.capacity, &s.extents);
        if (status == YOLK_OK)
            shares[seed] = churn(&s, mix, TURNOVERS);
        base_extents_destroy(s.extents);
        free(s.handles);
        if (status != YOLK_OK)
            return status;
    }
    *row = (struct bench_row){.name = mix->name,
                              .unit = "share",
                              .value = bench_median(shares, SEEDS),
                              .bound = BENCH_VALUE_AT_LEAST,
                              .limit = 0.96};
    return YOLK_OK;
}

/* One allocation beside one release in a full segment, in blocks of 16 between two looks at the
 * clock, which costs as much as an allocation. */
static enum yolk_status measure_time(struct bench_report *bench)
{
    enum { BLOCK = 16 };
    struct random_sim seeded;
    random_sim_init(&seeded, 1);
    struct state s = {.capacity = CAPACITY, .random = random_sim_random(&seeded)};
    double *times = calloc(TIMED / BLOCK, sizeof(*times));
    s.handles = calloc(CAPACITY / SMALLEST, sizeof(*s.handles));
    enum yolk_status status = s.handles == NULL || times == NULL
                                  ? base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of extents")
                                  : base_extents_create(CAPACITY, &s.extents);
    const struct mix *mix = &MIXES[MIX_COUNT - 1];
    if (status == YOLK_OK) {
        (void)churn(&s, mix, 1);
        for (int i = 0; i < TIMED / BLOCK; i++) {
            uint64_t sizes[BLOCK];
            while (used_share(&s) > 0.9)
                evict_one(&s);
            for (int k = 0; k < BLOCK; k++)
                sizes[k] = draw_size(&s, mix);
            uint64_t start = bench_now_ns();
            for (int k = 0; k < BLOCK; k++)
                (void)take(&s, sizes[k]);
            times[i] = (double)(bench_now_ns() - start) / BLOCK;
        }
        bench_add(bench, &(struct bench_row){.name = "allocation p50",
                                             .unit = "ns",
                                             .value = bench_median(times, TIMED / BLOCK),
                                             .bound = BENCH_VALUE_AT_MOST,
                                             .limit = 150});
    }
    base_extents_destroy(s.extents);
    free(s.handles);
    free(times);
    return status;
}

enum yolk_status bench_space(struct bench_report *bench)
{
    enum yolk_status status = YOLK_OK;
    for (int i = 0; i < MIX_COUNT && status == YOLK_OK; i++) {
        struct bench_row row;
        status = measure_mix(bench, &MIXES[i], &row);
        if (status == YOLK_OK)
            bench_add(bench, &row);
    }
    return status == YOLK_OK ? measure_time(bench) : status;
}
