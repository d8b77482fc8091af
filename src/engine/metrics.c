/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/metrics.h"

#include "engine/metrics_table.h"

#define ADD(counter, by) ((void)atomic_fetch_add_explicit(&(counter), (by), memory_order_relaxed))
#define US(ns)           ((ns) / 1000)

/* The bucket whose bound is the first not below the value. */
static uint32_t bucket_of(enum metrics_distribution which, uint64_t value)
{
    const struct metrics_bounds *bounds = metrics_bounds_of(which);
    uint32_t i = 0;
    while (i < bounds->count && value > bounds->at[i])
        i++;
    return i;
}

static void observe(struct metrics_histogram *histogram, uint32_t bucket, uint64_t count,
                    uint64_t sum)
{
    ADD(histogram->counts[bucket], count);
    if (sum > 0)
        ADD(histogram->sum, sum);
}

/* What two requests must have in common to be counted together, 4 bits each but for the rest. */
enum {
    KEY_LATENCY = 0,
    KEY_SIZE = 4,
    KEY_QUEUE = 8,
    KEY_DISPATCH = 12,
    KEY_TRANSPORT_TIME = 16,
    KEY_ATTEMPT = 20,
    KEY_PERMILLE = 24,
    KEY_TRANSPORT = 28, /* 8 bits */
    KEY_OPERATION = 36,
    KEY_FAILED = 37,
    KEY_DATED = 38,
    KEY_MISSED = 39,
    KEY_USED = 40,
};

static uint64_t field(uint64_t value, int place)
{
    return value << place;
}

static uint32_t bits(uint64_t key, int place, uint32_t mask)
{
    return (uint32_t)(key >> place) & mask;
}

static uint64_t permille_of(const struct metrics_request *request)
{
    if (request->window_ns == 0)
        return 0;
    double share = (double)request->latency_ns * 1000 / (double)request->window_ns;
    return share >= 1e12 ? (uint64_t)1e12 : (uint64_t)share;
}

static uint64_t key_of(const struct metrics_request *request, uint64_t permille)
{
    bool reads = request->operation == METRICS_READ;
    bool dated = request->window_ns != 0;
    return field(1, KEY_USED) | field(request->failed, KEY_FAILED) |
           field(request->operation, KEY_OPERATION) | field(request->transport, KEY_TRANSPORT) |
           field(dated, KEY_DATED) |
           field(dated && request->latency_ns > request->window_ns, KEY_MISSED) |
           field(bucket_of(METRICS_DEADLINE, permille), KEY_PERMILLE) |
           field(bucket_of(METRICS_READ_LATENCY, US(request->attempt_ns)), KEY_ATTEMPT) |
           field(bucket_of(METRICS_TRANSPORT, US(request->transport_ns)), KEY_TRANSPORT_TIME) |
           field(bucket_of(METRICS_DISPATCH, US(request->dispatch_ns)), KEY_DISPATCH) |
           field(bucket_of(METRICS_QUEUE_WAIT, US(request->queue_ns)), KEY_QUEUE) |
           field(bucket_of(reads ? METRICS_READ_SIZE : METRICS_WRITE_SIZE, request->size),
                 KEY_SIZE) |
           field(bucket_of(METRICS_READ_LATENCY, US(request->latency_ns)), KEY_LATENCY);
}

void metrics_requests_over(struct metrics_shard *shard, struct metrics_run *run,
                           const struct metrics_request *request, uint64_t count)
{
    uint64_t permille = permille_of(request);
    uint64_t key = key_of(request, permille);
    if (key != run->key) {
        metrics_run_end(shard, run);
        run->key = key;
    }
    run->count += count;
    run->bytes += count * request->size;
    run->latency_us += count * US(request->latency_ns);
    run->queue_us += count * US(request->queue_ns);
    run->dispatch_us += count * US(request->dispatch_ns);
    run->transport_us += count * US(request->transport_ns);
    run->attempt_us += count * US(request->attempt_ns);
    run->permille += count * permille;
}

void metrics_run_end(struct metrics_shard *shard, struct metrics_run *run)
{
    uint64_t key = run->key;
    if (key == 0)
        return;
    uint32_t transport = bits(key, KEY_TRANSPORT, 0xff);
    uint32_t operation = bits(key, KEY_OPERATION, 1);
    bool reads = operation == METRICS_READ;
    struct metrics_histogram *d = shard->distributions;
    struct metrics_transport *its = &shard->transports[transport];
    struct metrics_calls *calls = &its->calls[operation];
    ADD(calls->requests, run->count);
    if (bits(key, KEY_MISSED, 1))
        ADD(its->infeasible, run->count);
    if (bits(key, KEY_DATED, 1))
        observe(&d[METRICS_DEADLINE], bits(key, KEY_PERMILLE, 15), run->count, run->permille);
    if (bits(key, KEY_FAILED, 1)) {
        ADD(calls->failures, run->count);
    } else {
        ADD(calls->bytes, run->bytes);
        observe(&d[reads ? METRICS_READ_LATENCY : METRICS_WRITE_LATENCY],
                bits(key, KEY_LATENCY, 15), run->count, run->latency_us);
        observe(&d[reads ? METRICS_READ_SIZE : METRICS_WRITE_SIZE], bits(key, KEY_SIZE, 15),
                run->count, run->bytes);
        observe(&d[METRICS_QUEUE_WAIT], bits(key, KEY_QUEUE, 15), run->count, run->queue_us);
        observe(&d[METRICS_DISPATCH], bits(key, KEY_DISPATCH, 15), run->count, run->dispatch_us);
        observe(&d[METRICS_TRANSPORT], bits(key, KEY_TRANSPORT_TIME, 15), run->count,
                run->transport_us);
        observe(&calls->attempt_latency, bits(key, KEY_ATTEMPT, 15), run->count, run->attempt_us);
    }
    *run = (struct metrics_run){0};
}

void metrics_attempts(struct metrics_shard *shard, uint8_t transport,
                      enum metrics_operation operation, uint64_t count)
{
    ADD(shard->transports[transport].calls[operation].attempts, count);
}

void metrics_attempt_failed(struct metrics_shard *shard, uint8_t transport,
                            enum metrics_operation operation, uint64_t attempt_ns)
{
    struct metrics_calls *calls = &shard->transports[transport].calls[operation];
    ADD(calls->attempt_failures, 1);
    observe(&calls->attempt_latency, bucket_of(METRICS_READ_LATENCY, US(attempt_ns)), 1,
            US(attempt_ns));
}

void metrics_failover(struct metrics *metrics, uint8_t from, uint8_t to)
{
    ADD(metrics->failovers[from][to], 1);
}

void metrics_path_bytes(struct metrics_shard *shard, uint8_t transport, enum metrics_path path,
                        uint64_t bytes)
{
    ADD(shard->transports[transport].paths[path], bytes);
}
