/* SPDX-License-Identifier: Apache-2.0 */
/* Names, words and bounds of the engine's metrics: the one table of counting, of texts and of
 * docs/engine-metrics.md. */
#ifndef YOLK_ENGINE_METRICS_TABLE_H
#define YOLK_ENGINE_METRICS_TABLE_H

#include "engine/metrics.h"

struct metrics_bounds {
    uint32_t count;
    uint64_t at[METRICS_BOUNDS_MAX];
};
const struct metrics_bounds *metrics_bounds_of(enum metrics_distribution which);

struct metrics_row {
    const char *name;
    const char *labels; /* names of them, for people; "" none */
    const char *help;
};
/* By enum metrics_distribution. */
extern const struct metrics_row metrics_distribution_rows[METRICS_DISTRIBUTIONS];

enum metrics_family {
    METRICS_READ_BYTES,
    METRICS_WRITE_BYTES,
    METRICS_READ_REQUESTS,
    METRICS_WRITE_REQUESTS,
    METRICS_READ_FAILURES,
    METRICS_WRITE_FAILURES,
    METRICS_INFEASIBLE,
    METRICS_ATTEMPTS,
    METRICS_ATTEMPT_FAILURES,
    METRICS_FAILOVERS,
    METRICS_PATH_BYTES,
    METRICS_FAMILIES
};
/* Counters, by enum metrics_family. */
extern const struct metrics_row metrics_family_rows[METRICS_FAMILIES];
extern const struct metrics_row metrics_attempt_latency_row;

#endif
