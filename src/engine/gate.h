/* SPDX-License-Identifier: Apache-2.0 */
/* The queue in front of the transports: who is let in, who is dispatched, and that those who wait
 * move on though nobody polls. Off unless the engine has a queue or contracts, and costs nothing
 * then.
 *
 * What is dispatched is told to its batch by a list, which the batch looks at when it makes
 * progress; no batch's lock is taken under the gate's. */
#ifndef YOLK_ENGINE_GATE_H
#define YOLK_ENGINE_GATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "engine/qos.h"

struct batch;

/* Those of one contract that go to one peer. */
struct gate_lane {
    struct gate_lane *next;
    struct gate_peer *peer;
    const struct qos_class *contract;
    struct admission_class class;
};
/* Whom requests go to: the owner of a segment, which only its address stands for. */
struct gate_peer {
    struct gate_peer *next; /* in its bucket */
    const void *segment;
    uint32_t owners; /* that are not over */
    struct admission_peer share;
    struct gate_lane *lanes;
};
enum { GATE_BUCKETS = 256, GATE_IDLE_MAX = 64 };

struct gate {
    bool on;
    bool queue; /* there are windows, not only contracts */
    pthread_mutex_t lock;
    struct admission admission;
    struct qos qos;
    struct base_list batches; /* with requests that are not over */
    _Atomic uint32_t batch_count;
    _Atomic uint64_t refused;
    uint64_t tick_ms;
    struct gate_peer *peers[GATE_BUCKETS];
    uint32_t idle_peers; /* without an owner, kept for the next one */
};

/* A batch's part. */
struct gate_batch {
    struct base_list node;
    uint32_t owners;           /* of it that are not over */
    uint32_t held;             /* of those, the ones not yet posted */
    uint32_t ended;            /* tasks that are over and not yet settled, the last one first */
    _Atomic uint32_t released; /* the first task that was dispatched and not yet posted */
    uint32_t released_last;
};

/* A task's part; only the first of a merged group has one. */
struct gate_task {
    struct qos_class *contract; /* NULL: the gate is off, or it is over */
    struct gate_lane *lane;     /* while it is an owner */
    uint64_t token;             /* ADMISSION_NONE: it passed without a record */
    uint32_t next;              /* in the list of those released */
    uint32_t ended_next;
    bool charged, held;
};

YOLK_MUST_USE enum yolk_status gate_start(struct yolk_engine *engine,
                                          const struct yolk_engine_options *options);
void gate_free(struct yolk_engine *engine);

/* The contract that a request falls under, and the priority that it has by it. NULL: none, the gate
 * is off. */
struct qos_class *gate_contract(struct yolk_engine *engine, const struct yolk_request *request,
                                enum yolk_priority *priority);
/* LIMIT: more than its contract ever allows, or than it allows now and it may not wait. */
YOLK_MUST_USE enum yolk_status gate_check(struct yolk_engine *engine, struct gate_task *task,
                                          const struct yolk_request *request);
/* Gives back what gate_check took, of a task that is not admitted after all. */
void gate_forget(struct yolk_engine *engine, struct gate_task *task, uint64_t bytes);
/* May so many bytes be one owner? */
bool gate_may_merge(const struct yolk_engine *engine, const struct gate_task *task, uint64_t bytes);

/* With the batch's lock held. */
/* All tasks from first on that are not refused, or LIMIT and none. */
YOLK_MUST_USE enum yolk_status gate_admit(struct yolk_engine *engine, struct batch *batch,
                                          uint32_t first, uint64_t now_ns);
/* Lets post what was dispatched since; true if there was something. */
bool gate_release(struct yolk_engine *engine, struct batch *batch);
/* The task's owner is over; its place is given back by gate_settle, before the end of a pass. */
void gate_end(struct batch *batch, uint32_t task);
void gate_settle(struct yolk_engine *engine, struct batch *batch);
static inline bool gate_holds(const struct gate_batch *batch)
{
    return batch->owners > 0;
}

void gate_stats(struct yolk_engine *engine, struct yolk_engine_stats *out);

/* The engine's own thread: one look at each batch with requests in the gate. */
void gate_tick(struct yolk_engine *engine);

#endif
