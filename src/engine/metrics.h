/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine counts of requests, and the texts that show it: TENT's names and bounds, and
 * Yolk's own beside them. Counting takes no lock and no clock. Many batches count at once, so the
 * figures lie in METRICS_SHARDS copies that are summed up when somebody looks. */
#ifndef YOLK_ENGINE_METRICS_H
#define YOLK_ENGINE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#include "base/buf.h"

enum {
    METRICS_TRANSPORTS = 17, /* the last one: requests that came to no transport */
    METRICS_NO_TRANSPORT = METRICS_TRANSPORTS - 1,
    METRICS_SHARDS = 8,
    METRICS_BOUNDS_MAX = 11,
};

enum metrics_operation { METRICS_READ, METRICS_WRITE, METRICS_OPERATIONS };

/* How bytes went: as the transport does by itself, over a page of its own because they were not
 * aligned, or through host memory in between. */
enum metrics_path { METRICS_DIRECT, METRICS_STAGED, METRICS_BOUNCE, METRICS_PATHS };

enum metrics_distribution {
    METRICS_READ_LATENCY,
    METRICS_WRITE_LATENCY,
    METRICS_READ_SIZE,
    METRICS_WRITE_SIZE,
    METRICS_DEADLINE, /* time taken in thousandths of the time there was */
    METRICS_QUEUE_WAIT,
    METRICS_DISPATCH,
    METRICS_TRANSPORT,
    METRICS_DISTRIBUTIONS
};

struct metrics_histogram {
    _Atomic uint64_t counts[METRICS_BOUNDS_MAX + 1]; /* the last one: beyond all bounds */
    _Atomic uint64_t sum;
};

struct metrics_shard {
    _Alignas(64) struct metrics_histogram distributions[METRICS_DISTRIBUTIONS];
    struct metrics_transport {
        struct metrics_calls {
            _Atomic uint64_t bytes, requests, failures, attempts, attempt_failures;
            struct metrics_histogram attempt_latency;
        } calls[METRICS_OPERATIONS];
        _Atomic uint64_t paths[METRICS_PATHS];
        _Atomic uint64_t infeasible;
    } transports[METRICS_TRANSPORTS];
};

struct metrics {
    struct metrics_shard shards[METRICS_SHARDS];
    _Atomic uint64_t failovers[METRICS_TRANSPORTS][METRICS_TRANSPORTS]; /* from, to */
};

/* Requests that are over. Times are spans. */
struct metrics_request {
    enum metrics_operation operation;
    uint8_t transport; /* that ran it last, or METRICS_NO_TRANSPORT */
    bool failed;       /* whatever ended it before all was in place */
    uint64_t size;
    uint64_t latency_ns;   /* from its submit */
    uint64_t queue_ns;     /* until it was its turn */
    uint64_t dispatch_ns;  /* from then until a transport took it */
    uint64_t transport_ns; /* from then to its end */
    uint64_t attempt_ns;   /* of that, since the last transport took it */
    uint64_t window_ns;    /* that its deadline left it at submit; 0: it had none */
};

/* Requests of the same buckets that end one after the other are told together: a batch's own, given
 * to metrics_run_end before others may look. */
struct metrics_run {
    uint64_t key; /* 0: none */
    uint64_t count, bytes, latency_us, queue_us, dispatch_us, transport_us, attempt_us, permille;
};
/* So many of them, all alike. */
void metrics_requests_over(struct metrics_shard *shard, struct metrics_run *run,
                           const struct metrics_request *request, uint64_t count);
void metrics_run_end(struct metrics_shard *shard, struct metrics_run *run);

/* Requests were given to a transport, each at the beginning of an attempt; one of these failed. */
void metrics_attempts(struct metrics_shard *shard, uint8_t transport,
                      enum metrics_operation operation, uint64_t count);
void metrics_attempt_failed(struct metrics_shard *shard, uint8_t transport,
                            enum metrics_operation operation, uint64_t attempt_ns);
void metrics_failover(struct metrics *metrics, uint8_t from, uint8_t to);
void metrics_path_bytes(struct metrics_shard *shard, uint8_t transport, enum metrics_path path,
                        uint64_t bytes);

/* ---- looking at it ---- */

/* One series of Yolk's own that is not counted here. */
struct metrics_gauge {
    const char *name;
    const char *help;
    bool counter;
    char labels[360]; /* "a=\"b\"", escaped; "" none */
    double value;
};
/* Both are borrowed. Gauges of one name stand together. */
struct metrics_view {
    const struct metrics *metrics;
    const char *names[METRICS_TRANSPORTS]; /* NULL: this transport is not there */
    const struct metrics_gauge *gauges;
    size_t gauge_count;
};
/* Prometheus text format 0.0.4. Every series of a transport that is there is shown, zero or not. */
YOLK_MUST_USE int metrics_prometheus(const struct metrics_view *view, struct base_buf *out);
/* Counters by name, each also by its labels; histograms with count, sum and buckets by bound. */
YOLK_MUST_USE int metrics_json(const struct metrics_view *view, struct base_buf *out);
/* One line for people. */
YOLK_MUST_USE int metrics_summary(const struct metrics_view *view, struct base_buf *out);
/* The value of a label, with what Prometheus wants escaped; cut to fit. */
void metrics_escape(const char *text, char *out, size_t size);

/* Rows of the table of docs/engine-metrics.md. */
YOLK_MUST_USE int metrics_markdown(struct base_buf *out);

#endif
