/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps any transport and writes down each call with its answer: which path a request took, and
 * why not another one.
 *
 * The last calls stay in a bounded ring of the caller's; with a file each one is also a line of it,
 * JSON, at once. The wrapper keeps the wrapped one's name and capabilities, and both understand
 * each other's endpoint text. It may wrap, and be wrapped by, fault.h. */
#ifndef YOLK_TRANSPORT_TRACE_H
#define YOLK_TRANSPORT_TRACE_H

#include <pthread.h>
#include <stdio.h>

#include <yolk/transport.h>

enum trace_call {
    TRACE_PROBE,
    TRACE_INIT,
    TRACE_STOP,
    TRACE_FINI,
    TRACE_ADD_BUFFER,
    TRACE_REMOVE_BUFFER,
    TRACE_MEMORY_ALLOC,
    TRACE_MEMORY_FREE,
    TRACE_SERVE,
    TRACE_SET_SEGMENT_ID,
    TRACE_FENCE_SESSION,
    TRACE_UNSERVE,
    TRACE_OPEN_TARGET,
    TRACE_CLOSE_TARGET,
    TRACE_TARGET_MAP,
    TRACE_CHANNEL_OPEN,
    TRACE_CHANNEL_CLOSE,
    TRACE_SUBMIT,
    TRACE_COMPLETION, /* one that poll reported; a poll without any leaves no record */
    TRACE_CANCEL,
    TRACE_CALLS
};

struct trace_record {
    uint64_t number; /* from 0, without a gap */
    uint64_t at_ns;  /* on the engine's clock; 0 for probe and init, which come before it is told */
    enum trace_call call;
    enum yolk_opcode opcode; /* SUBMIT */
    enum yolk_submit submit; /* SUBMIT: the answer; status goes with DONE and FAILED */
    enum yolk_status status;
    uint64_t cookie;      /* SUBMIT, COMPLETION, CANCEL */
    uint64_t offset;      /* SUBMIT; of the first byte */
    uint32_t places;      /* SUBMIT; 0: one range */
    uint64_t size;        /* SUBMIT, ADD_BUFFER, MEMORY_ALLOC, SERVE, OPEN_TARGET */
    uint64_t transferred; /* SUBMIT, COMPLETION */
    uint64_t segment;     /* SERVE, SET_SEGMENT_ID, OPEN_TARGET */
    uint64_t session;     /* FENCE_SESSION, OPEN_TARGET */
    char text[96];        /* OPEN_TARGET, SERVE: the endpoint's text; a failed call: why, cut */
};

/* The ring. Filled in by trace_log_init; may be shared by several wrappers, and looked at by
 * trace_log_copy at any time. */
struct trace_log {
    pthread_mutex_t lock; /* protects all below */
    struct trace_record *records;
    uint32_t room;
    uint64_t count; /* written so far; the ring holds the last min(count, room) */
    FILE *file;     /* NULL: none */
    int file_failed;
};

/* file: borrowed until trace_log_free, may be NULL. */
YOLK_MUST_USE enum yolk_status trace_log_init(struct trace_log *log, uint32_t room, FILE *file);
void trace_log_free(struct trace_log *log);
/* The oldest first; how many. */
uint32_t trace_log_copy(struct trace_log *log, struct trace_record *out, uint32_t max);
const char *trace_call_name(enum trace_call call);

struct trace_options {
    const struct yolk_transport_ops *inner;
    const void *inner_wrapped; /* the inner one's own `wrapped` option */
    struct trace_log *log;
};

/* Makes the table of a wrapper around options->inner in *out, which must outlive the engine. The
 * engine's option `wrapped` of this transport must point to `options`, which must too. */
void transport_trace_make(const struct trace_options *options, struct yolk_transport_ops *out);

#endif
