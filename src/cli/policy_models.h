/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_POLICY_MODELS_H
#define YOLK_CLI_POLICY_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/trace.h"

/* A trace with its blocks numbered from 0. */
struct policy_trace {
    const struct trace *trace;
    uint32_t *blocks; /* one for each id of the trace */
    size_t unique;
};

/* 0, or -1 when memory is out. */
int policy_trace_make(struct policy_trace *dense, const struct trace *trace);
void policy_trace_free(struct policy_trace *dense);

static inline const uint32_t *policy_trace_blocks(const struct policy_trace *dense, size_t request)
{
    return dense->blocks + dense->trace->requests[request].first;
}

/*
 * What caches of `capacity` blocks (at least 1) do with the trace: each request reads its longest
 * present prefix, then writes what is missing. Each sets the number of blocks read and returns 0,
 * or -1 when memory is out.
 *
 * First in, first out. S3-FIFO (Yang et al., SOSP '23): a tenth of the capacity is for the new, as
 * many ghosts as the rest holds. Belady with admission: goes by the next use of a block, and a
 * block whose next use is further away than that of all others is not kept at all.
 */
int policy_model_fifo(const struct policy_trace *dense, size_t capacity, uint64_t *hits);
int policy_model_s3fifo(const struct policy_trace *dense, size_t capacity, uint64_t *hits);
int policy_model_belady(const struct policy_trace *dense, size_t capacity, uint64_t *hits);

#endif
