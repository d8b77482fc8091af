/* SPDX-License-Identifier: Apache-2.0 */
/* Gets of values "v0", "v1", … into one registered buffer: what shm and tcp measure alike. */
#ifndef CLI_BENCH_DATA_H
#define CLI_BENCH_DATA_H

#include "cli/bench.h"

enum { BENCH_GET_MAX = 4096 };

struct bench_pool {
    struct bench_cluster cluster;
    uint8_t *memory; /* registered, its pages present */
    size_t memory_size;
    uint32_t count; /* of values */
    size_t size;    /* of each */
    uint32_t next;  /* the first of the next batch: all are gone through before one comes again */
};

YOLK_MUST_USE enum yolk_status bench_pool_open(struct bench_pool *pool,
                                               const struct bench_cluster_options *options,
                                               size_t memory_size);
void bench_pool_close(struct bench_pool *pool);
/* Removes what is there, puts these. */
YOLK_MUST_USE enum yolk_status bench_pool_fill(struct bench_pool *pool, uint32_t count,
                                               size_t size);
/* The number of the next value, for whoever reads one. */
uint32_t bench_pool_next(struct bench_pool *pool);
/* One batch of the next n values into memory + offset. */
YOLK_MUST_USE enum yolk_status bench_pool_get(struct bench_pool *pool, uint32_t n, size_t offset);

#endif
