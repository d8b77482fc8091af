/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench messages`: one question to the master beside a bare echo of as many bytes, with both
 * sides waiting alike. `yolk bench objects`: what a full master answers and takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "cli/bench_echo.h"
#include "platform/memory.h"
#include "platform/thread.h"
#include "store/message.h"
#include "wire/frame.h"

enum {
    EXISTS = 200,
    COST_CALLS = 1000,
    SPIN_NS = 50000,
    CLIENT_SPIN_NS = 30000,
    KEY_SIZE = 100,
    KEYS_BATCH = 128,
    KEY_BATCHES = 256
};
enum { ASKERS = 4, PUT_BATCH = 1024, MIN_VALUE = 64, KEY_TEXT = KEY_SIZE + 1 };

/* ---- one question ---- */
struct question {
    struct bench_cluster cluster;
    struct bench_echo echo;
    uint32_t question, answer; /* bytes of the frames */
};

static enum yolk_status exist_one(void *self)
{
    struct question *q = self;
    struct yolk_kv kv = {.key = "v0", .key_size = 2};
    return yolk_store_exist(q->cluster.store, &kv, 1);
}

static enum yolk_status run_exist(void *self, double *seconds)
{
    enum yolk_status status = YOLK_OK;
    uint64_t start = bench_now_ns();
    for (int i = 0; i < EXISTS && status == YOLK_OK; i++)
        status = exist_one(self);
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status run_echo(void *self, double *seconds)
{
    struct question *q = self;
    uint8_t answer[256];
    const struct bench_ask ask = {
        .count = 1, .question = q->question, .answer = q->answer, .to = answer};
    enum yolk_status status = YOLK_OK;
    uint64_t start = bench_now_ns();
    for (int i = 0; i < EXISTS && status == YOLK_OK; i++)
        status = bench_echo_ask(&q->echo, &ask);
    *seconds = bench_seconds_since(start);
    return status;
}

/* Bytes of the frames of an exist of one key of two bytes. */
static enum yolk_status frame_sizes(struct question *q)
{
    struct store_message message;
    const struct store_stamp stamp = {.session = UINT64_MAX, .floor = 1};
    const struct store_item item = {.key = (const uint8_t *)"v0", .key_size = 2};
    store_message_init(&message);
    int status = store_message_keys(&message, WIRE_EXIST, &stamp, 0, &item, NULL, 1, 0);
    q->question = (uint32_t)(WIRE_HEADER_SIZE + message.body.size);
    q->answer = WIRE_HEADER_SIZE + 8; /* a status and one result, packed */
    store_message_free(&message);
    return (enum yolk_status)status;
}

static enum yolk_status measure_exist(struct bench_report *bench, const char *name, bool spin)
{
    const struct bench_cluster_options options = {.segment_bytes = 16 * MIB, .spin = spin};
    struct question q;
    memset(&q, 0, sizeof(q));
    enum yolk_status status = frame_sizes(&q);
    /* The store's client polls for a while in any case, and so does the echo's. */
    if (status == YOLK_OK)
        status = bench_echo_open(&q.echo, 4096, CLIENT_SPIN_NS, spin ? SPIN_NS : 0);
    if (status == YOLK_OK)
        status = bench_cluster_open(&q.cluster, &options);
    if (status == YOLK_OK)
        status = bench_fill(q.cluster.store, 1, MIN_VALUE);
    struct bench_contender both[] = {{"exist", run_exist, &q, 0}, {"echo", run_echo, &q, 0}};
    if (status == YOLK_OK)
        status = bench_in_turn(both, 2, bench->quick ? 9 : 31);
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = name,
                                             .unit = "us",
                                             .value = both[0].seconds / EXISTS * 1e6,
                                             .ceiling_name = spin ? "bare echo, polling"
                                                                  : "bare echo, sleeping",
                                             .ceiling = both[1].seconds / EXISTS * 1e6,
                                             .less_is_better = true,
                                             .bound = BENCH_RATIO_AT_LEAST,
                                             .limit = 1 / 1.3});
    struct bench_cost cost;
    if (status == YOLK_OK && spin)
        status = bench_cost(exist_one, &q, COST_CALLS, &cost);
    if (status == YOLK_OK && spin) {
        bench_add(bench, &(struct bench_row){.name = "exist, system calls",
                                             .unit = "a call",
                                             .value = cost.system_calls});
        bench_add(bench, &(struct bench_row){.name = "exist, allocations",
                                             .unit = "a call",
                                             .value = cost.allocations});
    }
    bench_cluster_close(&q.cluster);
    bench_echo_close(&q.echo);
    return status;
}

enum yolk_status bench_messages(struct bench_report *bench)
{
    enum yolk_status status = measure_exist(bench, "exist, master sleeps", false);
    return status == YOLK_OK ? measure_exist(bench, "exist, master polls 50 us", true) : status;
}

/* ---- many objects ---- */
struct objects;

/* One caller, with keys made beforehand: it asks for them in turn. */
struct asker {
    struct objects *objects;
    char (*keys)[KEY_TEXT];
    struct yolk_kv *kvs;
    enum yolk_status status;
};

struct objects {
    struct bench_cluster cluster;
    uint32_t count;
    struct asker all[ASKERS];
    uint32_t askers, batches; /* of each, in a run */
};

static void long_key(char key[KEY_TEXT], uint32_t number)
{
    snprintf(key, KEY_TEXT, "%0*u", KEY_SIZE, number);
}

static uint64_t resident_bytes(int pid)
{
    char path[64];
    unsigned long long total = 0, pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &pages) != 2)
        pages = 0;
    (void)fclose(file);
    return pages * memory_page_size();
}

static enum yolk_status fill(struct objects *o)
{
    static uint8_t value[MIN_VALUE];
    struct yolk_slice slice = {value, sizeof(value)};
    struct yolk_kv *kvs = calloc(PUT_BATCH, sizeof(*kvs));
    char(*keys)[KEY_TEXT] = calloc(PUT_BATCH, sizeof(*keys));
    enum yolk_status status =
        kvs == NULL || keys == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "keys") : YOLK_OK;
    for (uint32_t from = 0; from < o->count && status == YOLK_OK; from += PUT_BATCH) {
        for (uint32_t i = 0; i < PUT_BATCH; i++) {
            long_key(keys[i], from + i);
            kvs[i] = (struct yolk_kv){
                .key = keys[i], .key_size = KEY_SIZE, .slices = &slice, .slice_count = 1};
        }
        status = yolk_store_put(o->cluster.store, kvs, PUT_BATCH);
    }
    free(keys);
    free(kvs);
    return status;
}

static void ask(void *arg)
{
    struct asker *asker = arg;
    for (uint32_t b = 0; b < asker->objects->batches && asker->status == YOLK_OK; b++)
        asker->status =
            yolk_store_exist(asker->objects->cluster.store,
                             asker->kvs + (size_t)(b % KEY_BATCHES) * KEYS_BATCH, KEYS_BATCH);
}

/* Keys from anywhere. */
static enum yolk_status make_asker(struct objects *o, uint32_t which)
{
    struct asker *asker = &o->all[which];
    uint32_t number = which * 7919;
    asker->objects = o;
    asker->keys = calloc(KEY_BATCHES * KEYS_BATCH, sizeof(*asker->keys));
    asker->kvs = calloc(KEY_BATCHES * KEYS_BATCH, sizeof(*asker->kvs));
    if (asker->keys == NULL || asker->kvs == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "keys");
    for (uint32_t i = 0; i < KEY_BATCHES * KEYS_BATCH; i++) {
        number = number * 1664525u + 1013904223u;
        long_key(asker->keys[i], number % o->count);
        asker->kvs[i] = (struct yolk_kv){.key = asker->keys[i], .key_size = KEY_SIZE};
    }
    return YOLK_OK;
}

static enum yolk_status run_askers(void *self, double *seconds)
{
    struct objects *o = self;
    struct asker *askers = o->all;
    struct thread threads[ASKERS];
    enum yolk_status status = YOLK_OK;
    memset(threads, 0, sizeof(threads));
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < o->askers; i++) {
        askers[i].status = YOLK_OK;
        int started = thread_start(&threads[i], "bench-asker", ask, &askers[i]);
        if (started != YOLK_OK)
            askers[i].status = (enum yolk_status)started;
    }
    for (uint32_t i = 0; i < o->askers; i++) {
        thread_join(&threads[i]);
        if (status == YOLK_OK)
            status = askers[i].status;
    }
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status measure_rate(struct bench_report *bench, struct objects *o)
{
    static const char *const names[] = {"exist x 128, 1 caller", "exist x 128, 2 callers",
                                        "exist x 128, 4 callers"};
    enum yolk_status status = YOLK_OK;
    double best = 0;
    for (uint32_t i = 0; i < ASKERS && status == YOLK_OK; i++)
        status = make_asker(o, i);
    for (int i = 0; i < 3 && status == YOLK_OK; i++) {
        struct bench_contender ours = {"exist", run_askers, o, 0};
        o->askers = 1u << i;
        o->batches = (bench->quick ? 400 : 4000) / o->askers;
        status = bench_in_turn(&ours, 1, 7);
        double rate = (double)o->askers * o->batches * KEYS_BATCH / ours.seconds;
        if (status == YOLK_OK)
            bench_add(bench,
                      &(struct bench_row){.name = names[i], .unit = "keys/s", .value = rate});
        if (status == YOLK_OK && rate > best)
            best = rate;
    }
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = "exist x 128, the best of these",
                                             .unit = "keys/s",
                                             .value = best,
                                             .bound = BENCH_VALUE_AT_LEAST,
                                             .limit = 1.5e6});
    for (uint32_t i = 0; i < ASKERS; i++) {
        free(o->all[i].keys);
        free(o->all[i].kvs);
    }
    return status;
}

enum yolk_status bench_objects(struct bench_report *bench)
{
    struct objects o;
    memset(&o, 0, sizeof(o));
    o.count = (bench->quick ? 100000 : 5000000) / PUT_BATCH * PUT_BATCH;
    const struct bench_cluster_options options = {
        .segment_bytes = (uint64_t)o.count * MIN_VALUE * 5 / 4 + 16 * MIB, .spin = true};
    enum yolk_status status = bench_cluster_open(&o.cluster, &options);
    double master = (double)resident_bytes(o.cluster.master.pid);
    double node = (double)resident_bytes(o.cluster.node.pid);
    uint64_t start = bench_now_ns();
    if (status == YOLK_OK)
        status = fill(&o);
    if (status == YOLK_OK) {
        double seconds = bench_seconds_since(start);
        double grown = (double)resident_bytes(o.cluster.master.pid) - master;
        bench_add(bench, &(struct bench_row){.name = "put x 1024, keys of 100 bytes",
                                             .unit = "keys/s",
                                             .value = o.count / seconds});
        bench_add(bench, &(struct bench_row){.name = "master memory, an object",
                                             .unit = "bytes",
                                             .value = grown / o.count,
                                             .bound = BENCH_VALUE_AT_MOST,
                                             .limit = 320});
        bench_add(bench,
                  &(struct bench_row){.name = "node memory, an object",
                                      .unit = "bytes",
                                      .value = ((double)resident_bytes(o.cluster.node.pid) - node) /
                                               o.count});
        status = measure_rate(bench, &o);
    }
    bench_cluster_close(&o.cluster);
    return status;
}
