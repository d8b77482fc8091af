/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench callers`: gets of 1 MiB over sockets by 1, 4 and 16 callers of one store at once,
 * beside as many bare loops, each with a connection of its own. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_data.h"
#include "cli/bench_echo.h"
#include "platform/thread.h"

enum { CALLERS_MAX = 16, CORES_PROMISED = 16, GETS = 128, QUICK_GETS = 32, RUNS = 7 };
#define VALUE_BYTES      MIB
#define POOL_BYTES       (1 * GIB)
#define QUICK_POOL_BYTES (128 * MIB)

struct callers;
struct caller {
    struct callers *all;
    struct thread thread;
    uint8_t *memory;
    struct bench_echo echo;
    enum yolk_status status;
};

struct callers {
    struct bench_pool pool;
    struct caller each[CALLERS_MAX];
    uint32_t count; /* of those that run */
    uint32_t gets;  /* of each */
    bool bare;
    _Atomic uint32_t next;
};

static enum yolk_status get_one(struct caller *caller)
{
    struct callers *all = caller->all;
    char key[16];
    struct yolk_slice slice = {caller->memory, VALUE_BYTES};
    struct yolk_kv kv = {.key = key, .slices = &slice, .slice_count = 1};
    bench_key(key, atomic_fetch_add(&all->next, 1) % all->pool.count);
    kv.key_size = strlen(key);
    return yolk_store_get(all->pool.cluster.store, &kv, 1);
}

static void run_caller(void *arg)
{
    struct caller *caller = arg;
    const struct bench_ask ask = {
        .count = 1, .question = 16, .answer = (uint32_t)VALUE_BYTES, .to = caller->memory};
    caller->status = YOLK_OK;
    for (uint32_t i = 0; i < caller->all->gets && caller->status == YOLK_OK; i++)
        caller->status = caller->all->bare ? bench_echo_ask(&caller->echo, &ask) : get_one(caller);
}

static enum yolk_status run_all(struct callers *all, double *seconds)
{
    enum yolk_status status = YOLK_OK;
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < all->count && status == YOLK_OK; i++)
        status = (enum yolk_status)thread_start(&all->each[i].thread, "bench-caller", run_caller,
                                                &all->each[i]);
    for (uint32_t i = 0; i < all->count; i++) {
        thread_join(&all->each[i].thread);
        status = status == YOLK_OK ? all->each[i].status : status;
    }
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status run_gets(void *self, double *seconds)
{
    ((struct callers *)self)->bare = false;
    return run_all(self, seconds);
}

static enum yolk_status run_bare(void *self, double *seconds)
{
    ((struct callers *)self)->bare = true;
    return run_all(self, seconds);
}

static enum yolk_status measure(struct bench_report *bench, struct callers *all)
{
    static const struct {
        uint32_t callers;
        const char *rate, *scale;
        double limit;
    } rows[] = {{1, "callers 1", NULL, 0},
                {4, "callers 4", "callers 4 beside 1", 2.5},
                {16, "callers 16", "callers 16 beside 1", 5}};
    double one = 0, one_bare = 0;
    bool judged = !bench->quick && thread_cpu_count() >= CORES_PROMISED;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bench_contender both[] = {{"get", run_gets, all, 0}, {"bare", run_bare, all, 0}};
        all->count = rows[i].callers;
        enum yolk_status status = bench_in_turn(both, 2, RUNS);
        if (status != YOLK_OK)
            return status;
        double bytes = (double)all->count * all->gets * (double)VALUE_BYTES;
        double rate = bytes / both[0].seconds / 1e9, bare = bytes / both[1].seconds / 1e9;
        bench_add(bench, &(struct bench_row){.name = rows[i].rate,
                                             .unit = "GB/s",
                                             .value = rate,
                                             .ceiling_name = "as many bare loops",
                                             .ceiling = bare});
        one = i == 0 ? rate : one;
        one_bare = i == 0 ? bare : one_bare;
        if (i > 0)
            bench_add(bench,
                      &(struct bench_row){.name = rows[i].scale,
                                          .unit = "times",
                                          .value = rate / one,
                                          .ceiling_name = "what the bare loops gain",
                                          .ceiling = bare / one_bare,
                                          .bound = judged ? BENCH_VALUE_AT_LEAST : BENCH_OPEN,
                                          .limit = rows[i].limit});
    }
    return YOLK_OK;
}

enum yolk_status bench_callers(struct bench_report *bench)
{
    uint64_t bytes = bench->quick ? QUICK_POOL_BYTES : POOL_BYTES;
    const struct bench_cluster_options options = {.segment_bytes = bytes + bytes / 8,
                                                  .transport = "tcp"};
    struct callers *all = calloc(1, sizeof(*all));
    if (all == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a measurement");
    all->gets = bench->quick ? QUICK_GETS : GETS;
    enum yolk_status status = bench_echo_open(&all->each[0].echo, 256 * MIB, 0, 0);
    for (uint32_t i = 1; i < CALLERS_MAX && status == YOLK_OK; i++)
        status = bench_echo_again(&all->each[0].echo, &all->each[i].echo);
    if (status == YOLK_OK)
        status = bench_pool_open(&all->pool, &options, CALLERS_MAX * VALUE_BYTES);
    for (uint32_t i = 0; i < CALLERS_MAX && status == YOLK_OK; i++) {
        all->each[i].all = all;
        all->each[i].memory = all->pool.memory + i * VALUE_BYTES;
    }
    if (status == YOLK_OK)
        status = bench_pool_fill(&all->pool, (uint32_t)(bytes / VALUE_BYTES), VALUE_BYTES);
    if (status == YOLK_OK)
        status = measure(bench, all);
    for (uint32_t i = CALLERS_MAX; i-- > 0;)
        bench_echo_close(&all->each[i].echo);
    bench_pool_close(&all->pool);
    free(all);
    return status;
}
