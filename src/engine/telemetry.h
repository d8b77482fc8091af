/* SPDX-License-Identifier: Apache-2.0 */
/* How loaded one route is: what is in flight on it, and its bandwidth and latency as weighted means
 * of the recent past. No lock and no clock: the caller says what time it is. Many threads may count
 * at once; a reader sees each figure whole, if not all of them of one moment.
 *
 * Bandwidth is bytes over the time in which something was in flight; idle time does not count. Each
 * measured window moves the mean by its length against TELEMETRY_MEMORY_NS of busy time, so that
 * neither many small nor few large transfers decide it. */
#ifndef YOLK_ENGINE_TELEMETRY_H
#define YOLK_ENGINE_TELEMETRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TELEMETRY_WINDOW_NS UINT64_C(1000000)    /* busy time that makes one measurement */
#define TELEMETRY_MEMORY_NS UINT64_C(1000000000) /* busy time after which 63 % is forgotten */

struct telemetry {
    _Atomic uint64_t inflight_bytes, inflight_ios;
    _Atomic uint64_t bytes, ios, errors; /* since the beginning */
    _Atomic uint64_t busy_since_ns;
    _Atomic bool measuring; /* one thread at a time closes a window; the others go on */
    /* Of the window that is open. */
    _Atomic uint64_t window_ns, window_bytes, window_latency_ns, window_ios;
    _Atomic uint64_t bandwidth_bytes; /* per second; 0: not measured yet */
    _Atomic uint64_t latency_ns;      /* of one io */
};

/* What one pass over a channel brought. */
struct telemetry_pass {
    uint64_t posted_ios, posted_bytes;
    uint64_t over_ios, over_bytes; /* as they were posted */
    uint64_t done_bytes;           /* of those, in place */
    uint64_t errors;
    uint64_t latency_ns; /* sum over the ios that are over */
};

struct telemetry_look {
    uint64_t inflight_bytes, inflight_ios;
    uint64_t bytes, ios, errors;
    uint64_t bandwidth_bytes, latency_ns;
};

/* begin_ns: when the pass began to post; end_ns: now. */
void telemetry_count(struct telemetry *load, const struct telemetry_pass *pass, uint64_t begin_ns,
                     uint64_t end_ns);
void telemetry_read(const struct telemetry *load, struct telemetry_look *out);
/* The mean after a measurement of `sample` over `ns`; mean 0: it is the first. */
uint64_t telemetry_mean(uint64_t mean, uint64_t sample, uint64_t ns);
/* bytes per second; no overflow whatever they are. ns 0: 0. */
uint64_t telemetry_rate(uint64_t bytes, uint64_t ns);

#endif
