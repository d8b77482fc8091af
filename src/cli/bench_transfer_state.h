/* SPDX-License-Identifier: Apache-2.0 */
/* Inside `yolk bench engine`: bench_transfer.c has what is open, bench_transfer_run.c the loop,
 * bench_transfer_bare.c the loops beside it. */
#ifndef CLI_BENCH_TRANSFER_STATE_H
#define CLI_BENCH_TRANSFER_STATE_H

#include "cli/bench_echo.h"
#include "cli/bench_transfer.h"
#include "platform/file.h"
#include "platform/thread.h"

enum { BARE_CONNECTIONS = 4, BARE_MAX = 3 };

struct transfer {
    struct transfer_options options;
    struct yolk_engine *engine;
    uint8_t *memory; /* registered; its second half is read back into when bytes are looked at */
    uint64_t memory_bytes;
    uint64_t segment, segment_bytes; /* where the blocks are */
    struct bench_child child;        /* of ours that serves it */
    struct yolk_memory served_memory;
    struct yolk_served *served; /* or this process does */
    const uint8_t *mapped;      /* its bytes, where they can be seen; else NULL */
    struct file *file;          /* it is one; else NULL */
    /* The bare sockets: one process that sleeps while it waits and one that polls. */
    struct bench_echo echoes[2][TRANSFER_THREADS_MAX];
    uint32_t echo_count;
};

/* One caller. */
struct transfer_worker {
    struct transfer *t;
    const struct transfer_case *c;
    enum yolk_status (*step)(struct transfer_worker *w);
    uint32_t number;
    uint64_t share; /* its part of both memories, from number * share on */
    uint64_t drawn; /* state of the places drawn */
    uint64_t salt;  /* of what is written next */
    bool writes;    /* the next batch of a mix */
    uint64_t places[2];
    uint64_t *offsets; /* of a batch, or of as many blocks as the bare loop has in one go */
    uint32_t offset_count;
    struct yolk_request *requests;
    enum yolk_status *verdicts;
    struct bench_latency *latency;
    /* of one turn */
    pthread_barrier_t *begin;
    uint64_t until_ns;
    uint64_t blocks, apart_ns; /* moved; spent on what does not count */
    double seconds;
    enum yolk_status status;
    char text[256];
    struct thread thread;
    uint32_t bare; /* which of the bare loops */
};

/* Places for `count` blocks, drawn or the same again. */
void transfer_draw(struct transfer_worker *w, uint32_t count);
static inline uint8_t *transfer_local(const struct transfer_worker *w)
{
    return w->t->memory + (uint64_t)w->number * w->share;
}

/* ---- bench_transfer_bare.c ---- */

/* Before any thread and any other process. */
YOLK_MUST_USE enum yolk_status transfer_bare_open(struct transfer *t);
/* Before the threads of a case. */
YOLK_MUST_USE enum yolk_status transfer_bare_prepare(struct transfer *t,
                                                     const struct transfer_case *c);
void transfer_bare_close(struct transfer *t);
/* How many bare loops there are for it, at most BARE_MAX; their names and steps. */
uint32_t transfer_bare_count(const struct transfer *t);
const char *transfer_bare_name(const struct transfer *t, uint32_t bare);
enum yolk_status transfer_bare_step(struct transfer_worker *w);

#endif
