/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench shm`: gets from a node of this machine beside a loop that copies the same bytes, with
 * streaming stores, from the same mapping. The pool is larger than any cache and gone through in
 * order, so both find their source in memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_data.h"
#include "platform/memory.h"
#include "platform/thread.h"

enum { BATCH = 32, COST_CALLS = 200 };
#define POOL_BYTES       (2 * GIB)
#define QUICK_POOL_BYTES (256 * MIB)

struct shm {
    struct bench_pool pool;
    const uint8_t **places; /* of the values, in the mapping */
    uint32_t batch;         /* values of one get or copy */
    uint32_t repeat;
};

/* Where each value lies in this process's mapping of the segment. The mapping stays, and so do the
 * values: nothing is evicted here. */
static enum yolk_status find_places(struct shm *shm)
{
    enum yolk_status status = YOLK_OK;
    free(shm->places);
    shm->places = calloc(shm->pool.count, sizeof(*shm->places));
    if (shm->places == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of places");
    for (uint32_t i = 0; i < shm->pool.count && status == YOLK_OK; i++) {
        struct yolk_buffer buffer;
        char key[16];
        bench_key(key, i);
        status = yolk_store_get_buffer(shm->pool.cluster.store, key, strlen(key), &buffer);
        if (status != YOLK_OK)
            break;
        shm->places[i] = buffer.data;
        if (!buffer.mapped)
            status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "the node's memory is not mapped here");
        yolk_store_release_buffer(shm->pool.cluster.store, &buffer);
    }
    return status;
}

static enum yolk_status run_get(void *self, double *seconds)
{
    struct shm *shm = self;
    enum yolk_status status = YOLK_OK;
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < shm->repeat && status == YOLK_OK; i++)
        status = bench_pool_get(&shm->pool, shm->batch, 0);
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status run_copy(void *self, double *seconds)
{
    struct shm *shm = self;
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < shm->repeat; i++)
        for (uint32_t k = 0; k < shm->batch; k++)
            copy_stream(shm->pool.memory + (size_t)k * shm->pool.size,
                        shm->places[bench_pool_next(&shm->pool)], shm->pool.size);
    *seconds = bench_seconds_since(start);
    return YOLK_OK;
}

static double gb_per_s(const struct shm *shm, double seconds)
{
    return (double)shm->repeat * shm->batch * (double)shm->pool.size / seconds / 1e9;
}

static enum yolk_status add_copy_row(struct bench_report *bench, struct shm *shm, const char *name,
                                     uint32_t batch, uint32_t repeat)
{
    struct bench_contender both[] = {{"get", run_get, shm, 0}, {"copy", run_copy, shm, 0}};
    shm->batch = batch;
    shm->repeat = repeat;
    enum yolk_status status = bench_in_turn(both, 2, bench->quick ? 9 : 31);
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = name,
                                             .unit = "GB/s",
                                             .value = gb_per_s(shm, both[0].seconds),
                                             .ceiling_name = "streaming copy",
                                             .ceiling = gb_per_s(shm, both[1].seconds),
                                             .bound = BENCH_RATIO_AT_LEAST,
                                             .limit = 0.85});
    return status;
}

/* ---- one value: the message apart from the copy ---- */
static enum yolk_status run_message(void *self, double *seconds)
{
    struct shm *shm = self;
    struct yolk_slice slice = {shm->pool.memory, 64};
    struct yolk_kv kv = {.key = "small", .key_size = 5, .slices = &slice, .slice_count = 1};
    enum yolk_status status = YOLK_OK;
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < shm->repeat && status == YOLK_OK; i++)
        status = yolk_store_get(shm->pool.cluster.store, &kv, 1);
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status measure_one(struct bench_report *bench, struct shm *shm)
{
    struct bench_contender all[] = {
        {"get", run_get, shm, 0}, {"copy", run_copy, shm, 0}, {"message", run_message, shm, 0}};
    struct yolk_slice slice = {shm->pool.memory, 64};
    struct yolk_kv kv = {.key = "small", .key_size = 5, .slices = &slice, .slice_count = 1};
    enum yolk_status status = yolk_store_put(shm->pool.cluster.store, &kv, 1);
    shm->batch = 1;
    shm->repeat = 32;
    if (status == YOLK_OK)
        status = bench_in_turn(all, 3, bench->quick ? 9 : 31);
    if (status != YOLK_OK)
        return status;
    double get = all[0].seconds / shm->repeat * 1e6, copy = all[1].seconds / shm->repeat * 1e6;
    double message = all[2].seconds / shm->repeat * 1e6;
    bench_add(bench, &(struct bench_row){
                         .name = "shm get 1 MiB, its message", .unit = "us", .value = message});
    bench_add(bench, &(struct bench_row){.name = "shm get 1 MiB, its copy",
                                         .unit = "us",
                                         .value = get - message,
                                         .ceiling_name = "streaming copy",
                                         .ceiling = copy,
                                         .less_is_better = true});
    return YOLK_OK;
}

/* ---- what it costs beside time ---- */
static enum yolk_status get_batch(void *self)
{
    struct shm *shm = self;
    return bench_pool_get(&shm->pool, shm->batch, 0);
}

/* The client's own count of the bytes it moved, beside those it was asked for. */
static enum yolk_status bytes_moved(struct shm *shm, double *moved)
{
    char *text = NULL;
    enum yolk_status status = yolk_store_stat(shm->pool.cluster.store, &text);
    const char *line = status == YOLK_OK ? strstr(text, "client_bytes_read ") : NULL;
    if (line != NULL)
        *moved = strtod(line + strlen("client_bytes_read "), NULL);
    free(text);
    return status;
}

static enum yolk_status measure_cost(struct bench_report *bench, struct shm *shm)
{
    struct bench_cost cost;
    double before = 0, after = 0;
    shm->batch = 1;
    enum yolk_status status = bytes_moved(shm, &before);
    if (status == YOLK_OK)
        status = bench_cost(get_batch, shm, COST_CALLS, &cost);
    if (status == YOLK_OK)
        status = bytes_moved(shm, &after);
    if (status != YOLK_OK)
        return status;
    bench_add(bench, &(struct bench_row){.name = "shm get 1 MiB, system calls",
                                         .unit = "a get",
                                         .value = cost.system_calls});
    bench_add(bench, &(struct bench_row){.name = "shm get 1 MiB, allocations",
                                         .unit = "a get",
                                         .value = cost.allocations});
    bench_add(bench,
              &(struct bench_row){.name = "shm get 1 MiB, bytes copied",
                                  .unit = "a byte",
                                  .value = (after - before) / (COST_CALLS + 1) / (double)MIB});
    return YOLK_OK;
}

/* ---- two callers ---- */
struct caller {
    struct shm *shm;
    size_t offset;
    enum yolk_status status;
    uint32_t first, count;
};

static void call(void *arg)
{
    struct caller *caller = arg;
    struct shm *shm = caller->shm;
    for (uint32_t i = 0; i < caller->count && caller->status == YOLK_OK; i++) {
        char key[16];
        struct yolk_slice slice = {shm->pool.memory + caller->offset, shm->pool.size};
        bench_key(key, (caller->first + i) % shm->pool.count);
        struct yolk_kv kv = {
            .key = key, .key_size = strlen(key), .slices = &slice, .slice_count = 1};
        caller->status = yolk_store_get(shm->pool.cluster.store, &kv, 1);
    }
}

static enum yolk_status run_callers(struct shm *shm, uint32_t callers, double *seconds)
{
    enum { EACH = 8 };
    struct caller all[2];
    struct thread threads[2] = {{.running = false}, {.running = false}};
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < callers; i++) {
        all[i] =
            (struct caller){shm, i * shm->pool.size, YOLK_OK, shm->pool.next, EACH * 2 / callers};
        shm->pool.next = (shm->pool.next + EACH * 2 / callers) % shm->pool.count;
        int status = thread_start(&threads[i], "bench-caller", call, &all[i]);
        if (status != YOLK_OK)
            all[i].status = (enum yolk_status)status;
    }
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; i < callers; i++) {
        thread_join(&threads[i]);
        if (status == YOLK_OK)
            status = all[i].status;
    }
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status run_one(void *self, double *seconds)
{
    return run_callers(self, 1, seconds);
}

static enum yolk_status run_two(void *self, double *seconds)
{
    return run_callers(self, 2, seconds);
}

static enum yolk_status measure_two(struct bench_report *bench, struct shm *shm)
{
    struct bench_contender both[] = {{"two", run_two, shm, 0}, {"one", run_one, shm, 0}};
    enum yolk_status status = bench_in_turn(both, 2, bench->quick ? 9 : 31);
    double bytes = 16.0 * (double)shm->pool.size / 1e9;
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = "shm get 16 MiB, two threads",
                                             .unit = "GB/s",
                                             .value = bytes / both[0].seconds,
                                             .ceiling_name = "one thread",
                                             .ceiling = bytes / both[1].seconds,
                                             .bound = BENCH_RATIO_AT_LEAST,
                                             .limit = 1.15});
    return status;
}

enum yolk_status bench_shm(struct bench_report *bench)
{
    uint64_t pool = bench->quick ? QUICK_POOL_BYTES : POOL_BYTES;
    const struct bench_cluster_options options = {.segment_bytes = pool + pool / 8,
                                                  .transport = "shm"};
    struct shm *shm = calloc(1, sizeof(*shm));
    enum yolk_status status = shm == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "a measurement")
                                          : bench_pool_open(&shm->pool, &options, BATCH * MIB);
    if (status == YOLK_OK)
        status = bench_pool_fill(&shm->pool, (uint32_t)(pool / MIB), MIB);
    if (status == YOLK_OK)
        status = find_places(shm);
    if (status == YOLK_OK)
        status = add_copy_row(bench, shm, "shm get 32 x 1 MiB", BATCH, 1);
    if (status == YOLK_OK)
        status = measure_one(bench, shm);
    if (status == YOLK_OK)
        status = measure_cost(bench, shm);
    if (status == YOLK_OK)
        status = bench_pool_fill(&shm->pool, (uint32_t)(pool / (16 * MIB)), 16 * MIB);
    if (status == YOLK_OK)
        status = find_places(shm);
    if (status == YOLK_OK)
        status = add_copy_row(bench, shm, "shm get 16 MiB", 1, 2);
    if (status == YOLK_OK)
        status = measure_two(bench, shm);
    if (shm != NULL) {
        bench_pool_close(&shm->pool);
        free(shm->places);
        free(shm);
    }
    return status;
}
