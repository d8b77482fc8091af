/* SPDX-License-Identifier: Apache-2.0 */
/* What one pass over a batch tells the metrics and the load of its routes. Everything is tallied in
 * the batch, whose lock is held, and told when the pass ends: a pass costs some atomic additions
 * and two looks at the clock, whatever it moves, and a request some 150 instructions. */
#ifndef YOLK_ENGINE_COUNTED_H
#define YOLK_ENGINE_COUNTED_H

#include <string.h>

#include "engine/internal.h"

/* What is copied in the caller's thread takes some microseconds then, so the clock is looked at
 * again; each io counts for COPIED_IO more. */
enum { COPIED_UNDATED_MAX = 131072, COPIED_IO = 512 };

/* Never 0. */
static inline uint32_t counted_tick(uint64_t now_ns)
{
    return (uint32_t)(now_ns >> 8) | 1;
}

static inline uint64_t counted_span_ns(uint32_t from, uint32_t to)
{
    return (uint64_t)(uint32_t)(to - from) << 8;
}

static inline void counted_pass_begin(struct batch *batch)
{
    batch->pass.active = true;
    batch->pass.now_ns = 0;
    batch->pass.copied = 0;
}

/* What was tallied is told. */
void counted_pass_end(struct yolk_engine *engine, struct batch *batch);
/* Before a channel is closed. */
void counted_channel_end(struct yolk_engine *engine, struct batch *batch,
                         struct engine_channel *channel);
/* The transport could not even be opened for it. */
void counted_refusal(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     uint8_t transport);
/* Parts of those below. */
void counted_attempt(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     struct engine_channel *channel);
void counted_failure(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     uint8_t transport, uint64_t now_ns);

void counted_end_slowly(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                        uint64_t now_ns);

static inline uint64_t counted_now(struct yolk_engine *engine, struct batch *batch)
{
    struct batch_pass *pass = &batch->pass;
    if (pass->now_ns == 0 || pass->copied >= COPIED_UNDATED_MAX) {
        pass->now_ns = engine_now(engine);
        pass->copied = 0;
    }
    return pass->now_ns;
}

/* It is the turn of this task, and it may be a while until a transport takes it. */
static inline void counted_dispatch(struct batch *batch, struct engine_task *task, uint64_t now_ns)
{
    if (task->times.dispatched == 0)
        task->times.dispatched = counted_tick(now_ns);
    batch->pass.now_ns = 0;
}

/* A transport took (or at once refused) this io of the task. */
static inline void counted_post(struct yolk_engine *engine, struct batch *batch,
                                struct engine_task *task, struct engine_io *entry)
{
    struct task_times *times = &task->times;
    struct engine_channel *channel = &batch->channels[entry->channel];
    uint64_t now_ns = counted_now(engine, batch);
    entry->posted = counted_tick(now_ns);
    if (channel->pass.posted_ios == 0)
        channel->pass_begin_ns = now_ns;
    channel->pass.posted_ios++;
    channel->pass.posted_bytes += entry->io.size;
    if (times->posted == 0) {
        times->posted = entry->posted;
        if (times->dispatched == 0)
            times->dispatched = entry->posted;
    }
    if ((times->attempting & 1u << channel->transport) == 0)
        counted_attempt(engine, batch, task, channel);
}

/* It is over; now_ns 0: it never left the caller's thread. */
static inline void counted_over(struct yolk_engine *engine, struct batch *batch,
                                struct engine_task *task, const struct engine_io *entry,
                                enum yolk_status status, uint64_t transferred, uint64_t now_ns)
{
    struct engine_channel *channel = &batch->channels[entry->channel];
    struct telemetry_pass *pass = &channel->pass;
    if (now_ns == 0) {
        batch->pass.copied += transferred + COPIED_IO;
        now_ns = counted_now(engine, batch);
    } else {
        batch->pass.now_ns = now_ns;
    }
    pass->over_ios++;
    pass->over_bytes += entry->io.size;
    pass->done_bytes += transferred;
    if (entry->io.bounced > 0)
        channel->pass_bounced_bytes +=
            entry->io.bounced < transferred ? entry->io.bounced : transferred;
    pass->latency_ns += counted_span_ns(entry->posted, counted_tick(now_ns));
    if (status != YOLK_OK && status != YOLK_ERR_CANCELED) {
        pass->errors++;
        counted_failure(engine, batch, task, channel->transport, now_ns);
    }
}

/* As numbers: no call. */
static inline bool counted_times_equal(const struct task_times *a, const struct task_times *b)
{
    return ((a->submitted ^ b->submitted) | (a->dispatched ^ b->dispatched) |
            (a->posted ^ b->posted) | (a->attempt ^ b->attempt) |
            (uint32_t)(a->attempting ^ b->attempting) |
            (uint32_t)(a->failed_from ^ b->failed_from)) == 0;
}

static inline bool counted_is_alike(const struct batch *batch, uint32_t a, uint32_t b)
{
    const struct batch_task *state_a = &batch->state.tasks[a], *state_b = &batch->state.tasks[b];
    const struct engine_task *task_a = &batch->tasks[state_a->head];
    const struct engine_task *task_b = &batch->tasks[state_b->head];
    if (state_a->size != state_b->size || state_a->failure != state_b->failure)
        return false;
    return task_a == task_b ||
           (state_a->deadline_ns == state_b->deadline_ns && task_a->opcode == task_b->opcode &&
            task_a->last_transport == task_b->last_transport &&
            counted_times_equal(&task_a->times, &task_b->times));
}

/* A task became terminal. */
static inline void counted_end(struct yolk_engine *engine, struct batch *batch, uint32_t index)
{
    struct batch_pass *pass = &batch->pass;
    uint64_t now_ns = pass->active ? counted_now(engine, batch) : engine_now(engine);
    if (pass->alike > 0 && pass->alike_now_ns == now_ns &&
        counted_is_alike(batch, pass->alike_index, index))
        pass->alike++;
    else
        counted_end_slowly(engine, batch, index, now_ns);
}

#endif
