/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench tcp`: gets over sockets beside a bare loop that asks for the same bytes over a socket
 * of its own, once sleeping while it waits and once polling; the better one is the ceiling. */
#include <stdlib.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_data.h"
#include "cli/bench_echo.h"

enum { BATCH = 32, SMALL = 4096, SMALL_BATCH = 2048, COST_CALLS = 100, ALONE = 16 };
enum { SPIN_NS = 100000 };
#define POOL_BYTES       (1 * GIB)
#define QUICK_POOL_BYTES (128 * MIB)

struct tcp {
    struct bench_pool pool;
    uint32_t batch;
    uint32_t in_a_row; /* in one run, each when the one before is over, as a busy caller's come */
};

struct bare {
    struct tcp *tcp;
    struct bench_echo echo;
};

static enum yolk_status run_get(void *self, double *seconds)
{
    struct tcp *tcp = self;
    uint64_t start = bench_now_ns();
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; i < tcp->in_a_row && status == YOLK_OK; i++)
        status = bench_pool_get(&tcp->pool, tcp->batch, 0);
    *seconds = bench_seconds_since(start) / tcp->in_a_row;
    return status;
}

static enum yolk_status run_bare(void *self, double *seconds)
{
    struct bare *bare = self;
    const struct bench_ask ask = {.count = bare->tcp->batch,
                                  .question = 16,
                                  .answer = (uint32_t)bare->tcp->pool.size,
                                  .to = bare->tcp->pool.memory};
    uint64_t start = bench_now_ns();
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; i < bare->tcp->in_a_row && status == YOLK_OK; i++)
        status = bench_echo_ask(&bare->echo, &ask);
    *seconds = bench_seconds_since(start) / bare->tcp->in_a_row;
    return status;
}

static double gb_per_s(const struct tcp *tcp, double seconds)
{
    return (double)tcp->batch * (double)tcp->pool.size / seconds / 1e9;
}

/* The rate of batches of 1 MiB in *rate. */
static enum yolk_status measure_large(struct bench_report *bench, struct tcp *tcp,
                                      struct bare bare[2], const char *name, uint32_t batch,
                                      double *rate)
{
    struct bench_contender all[] = {{"get", run_get, tcp, 0},
                                    {"sleeping", run_bare, &bare[0], 0},
                                    {"polling", run_bare, &bare[1], 0}};
    tcp->batch = batch;
    tcp->in_a_row = batch == 1 ? ALONE : 1;
    enum yolk_status status = bench_in_turn(all, 3, bench->quick ? 9 : 21);
    if (status != YOLK_OK)
        return status;
    int better = all[1].seconds < all[2].seconds ? 1 : 2;
    *rate = gb_per_s(tcp, all[0].seconds);
    bench_add(bench, &(struct bench_row){.name = name,
                                         .unit = "GB/s",
                                         .value = *rate,
                                         .ceiling_name = better == 1 ? "bare sockets, sleeping"
                                                                     : "bare sockets, polling",
                                         .ceiling = gb_per_s(tcp, all[better].seconds),
                                         .bound = BENCH_RATIO_AT_LEAST,
                                         .limit = 0.80});
    return YOLK_OK;
}

static enum yolk_status get_batch(void *self)
{
    struct tcp *tcp = self;
    return bench_pool_get(&tcp->pool, tcp->batch, 0);
}

static enum yolk_status measure_cost(struct bench_report *bench, struct tcp *tcp)
{
    struct bench_cost cost;
    tcp->batch = 1;
    enum yolk_status status = bench_cost(get_batch, tcp, COST_CALLS, &cost);
    if (status != YOLK_OK)
        return status;
    bench_add(bench, &(struct bench_row){.name = "tcp get 1 MiB, system calls",
                                         .unit = "a get",
                                         .value = cost.system_calls});
    bench_add(bench, &(struct bench_row){.name = "tcp get 1 MiB, allocations",
                                         .unit = "a get",
                                         .value = cost.allocations});
    return YOLK_OK;
}

static enum yolk_status measure_small(struct bench_report *bench, struct tcp *tcp, double large)
{
    struct bench_contender get = {"get", run_get, tcp, 0};
    enum yolk_status status =
        bench_pool_fill(&tcp->pool, bench->quick ? 4 * SMALL_BATCH : 32 * SMALL_BATCH, SMALL);
    tcp->batch = SMALL_BATCH;
    tcp->in_a_row = 1;
    if (status == YOLK_OK)
        status = bench_in_turn(&get, 1, bench->quick ? 9 : 21);
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = "tcp get 2048 x 4 KiB",
                                             .unit = "GB/s",
                                             .value = gb_per_s(tcp, get.seconds),
                                             .ceiling_name = "its rate at 32 x 1 MiB",
                                             .ceiling = large,
                                             .bound = BENCH_RATIO_AT_LEAST,
                                             .limit = 0.60});
    return status;
}

static enum yolk_status measure(struct bench_report *bench, struct tcp *tcp, struct bare bare[2])
{
    double one, large = 0;
    uint64_t bytes = bench->quick ? QUICK_POOL_BYTES : POOL_BYTES;
    enum yolk_status status = bench_pool_fill(&tcp->pool, (uint32_t)(bytes / MIB), MIB);
    if (status == YOLK_OK)
        status = measure_large(bench, tcp, bare, "tcp get 1 MiB", 1, &one);
    if (status == YOLK_OK)
        status = measure_large(bench, tcp, bare, "tcp get 32 x 1 MiB", BATCH, &large);
    if (status == YOLK_OK)
        status = measure_cost(bench, tcp);
    return status == YOLK_OK ? measure_small(bench, tcp, large) : status;
}

enum yolk_status bench_tcp(struct bench_report *bench)
{
    uint64_t bytes = bench->quick ? QUICK_POOL_BYTES : POOL_BYTES;
    const struct bench_cluster_options options = {.segment_bytes = bytes + bytes / 8,
                                                  .transport = "tcp"};
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    struct bare bare[2] = {{.tcp = tcp}, {.tcp = tcp}};
    enum yolk_status status =
        tcp == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "a measurement") : YOLK_OK;
    /* The bare loops' processes first: a fork of threads would be no bare one. */
    for (int i = 0; i < 2 && status == YOLK_OK; i++)
        status =
            bench_echo_open(&bare[i].echo, 256 * MIB, i == 0 ? 0 : SPIN_NS, i == 0 ? 0 : SPIN_NS);
    if (status == YOLK_OK)
        status = bench_pool_open(&tcp->pool, &options, BATCH * MIB);
    if (status == YOLK_OK)
        status = measure(bench, tcp, bare);
    for (int i = 0; i < 2; i++)
        bench_echo_close(&bare[i].echo);
    if (tcp != NULL)
        bench_pool_close(&tcp->pool);
    free(tcp);
    return status;
}
