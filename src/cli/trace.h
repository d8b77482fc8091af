/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_TRACE_H
#define YOLK_CLI_TRACE_H

#include <stddef.h>
#include <stdint.h>

/* A replayable trace: requests in order, each a list of block ids. All ids live in one array; a
 * request names a range of it. */
struct trace_request {
    size_t first;
    size_t count;
};

struct trace {
    struct trace_request *requests;
    size_t count;
    size_t capacity;
    uint64_t *ids;
    size_t id_count;
    size_t id_capacity;
};

enum {
    TRACE_LINE_MAX = 4 << 20,
    TRACE_BLOCKS_MAX = 65536, /* blocks of one request */
    TRACE_REQUESTS_MAX = 16 << 20,
};

/* Adds a request; 0, or -1 when memory is out or a limit is passed. */
int trace_add(struct trace *trace, const uint64_t *ids, size_t count);

/* Reads one JSON object with "hash_ids" a line. At most `max_requests` are taken (0: all). On
 * failure -1 and `error` names the file, the line and what is wrong with it. */
int trace_load(struct trace *trace, const char *path, size_t max_requests, char *error,
               size_t error_size);

void trace_free(struct trace *trace);

static inline const uint64_t *trace_ids(const struct trace *trace, size_t request)
{
    return trace->ids + trace->requests[request].first;
}

#endif
