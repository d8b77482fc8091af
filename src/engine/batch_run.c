/* SPDX-License-Identifier: Apache-2.0 */
/* Moves one batch on: polls its channels, enforces deadlines, posts slices, fails over. */
#include "engine/batch_run.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "engine/counted.h"
#include "engine/merge.h"
#include "engine/way.h"

enum { POLL_MAX = 64 };

static void count_result(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                         enum yolk_status status)
{
    if (status != YOLK_OK)
        reason_failed(batch, index, status);
    switch (status) {
    case YOLK_OK:
    case YOLK_ERR_EOF: /* an answer: see YOLK_REQUEST_EXACT */
        batch->pass.ok++;
        break;
    case YOLK_ERR_CANCELED:
        ENGINE_COUNT(engine, canceled, 1);
        break;
    case YOLK_ERR_TIMEOUT:
        ENGINE_COUNT(engine, timeout, 1);
        break;
    case YOLK_ERR_STUCK:
        ENGINE_COUNT(engine, stuck, 1);
        break;
    default:
        ENGINE_COUNT(engine, failed, 1);
    }
}

/* Tasks of one pass mostly hold the same: it is released once for all of them. */
static void give_back_all(struct batch *batch)
{
    struct batch_pass *pass = &batch->pass;
    if (pass->registration != NULL)
        registry_release_many(pass->registration, pass->registration_times);
    if (pass->segment != NULL)
        segment_release_many(pass->segment, pass->segment_times);
    pass->registration = NULL;
    pass->segment = NULL;
    pass->registration_times = 0;
    pass->segment_times = 0;
}

static void give_back(struct batch *batch, struct engine_task *task)
{
    struct batch_pass *pass = &batch->pass;
    if ((task->registration != NULL && pass->registration != NULL &&
         pass->registration != task->registration) ||
        (task->segment != NULL && pass->segment != NULL && pass->segment != task->segment))
        give_back_all(batch);
    if (task->registration != NULL) {
        pass->registration = task->registration;
        pass->registration_times++;
    }
    if (task->segment != NULL) {
        pass->segment = task->segment;
        pass->segment_times++;
    }
    if (task->order != NULL)
        engine_order_drop(task->order);
    task->order = NULL;
    task->registration = NULL;
    task->segment = NULL;
}

/* After each change of a task: statistics once it is terminal, its references back once it is
 * quiet. */
static void after_change(struct yolk_engine *engine, struct batch *batch, uint32_t index)
{
    struct batch_task *state = &batch->state.tasks[index];
    struct engine_task *task = &batch->tasks[index];
    if (!state->terminal)
        return;
    if (!state->counted) {
        state->counted = true;
        count_result(engine, batch, index, state->failure);
        counted_end(engine, batch, index);
    }
    struct engine_task *owner = &batch->tasks[state->head];
    if (owner->gate.contract != NULL && batch->state.tasks[state->head].open == 0)
        gate_end(batch, state->head);
    if (state->taken > 0) {
        if (!state->listed) {
            const struct yolk_place place = batch_place(batch, index);
            state->listed = true;
            task->local = place.local;
            task->size = place.size;
            task->piece_count = index == state->head ? task->piece_count : 0;
            pthread_mutex_lock(&engine->stuck_lock);
            base_list_push_back(&engine->stuck, &task->stuck);
            atomic_fetch_add(&engine->stuck_count, 1);
            pthread_mutex_unlock(&engine->stuck_lock);
        }
        return;
    }
    if (state->listed) {
        state->listed = false;
        pthread_mutex_lock(&engine->stuck_lock);
        base_list_remove(&task->stuck);
        atomic_fetch_sub(&engine->stuck_count, 1);
        pthread_mutex_unlock(&engine->stuck_lock);
    }
    const struct batch_task *head = &batch->state.tasks[state->head];
    if (head->open > 0 || head->out > 0)
        return;
    if (owner->two_ways)
        way_end(engine, batch, state->head);
    give_back(batch, &batch->tasks[state->head]); /* which holds them for its group */
    if (!batch->pass.active)
        give_back_all(batch);
}

/* The same after a slice ended well that has bytes of these tasks of one group. */
static void after_members(struct yolk_engine *engine, struct batch *batch, uint32_t first,
                          uint32_t last)
{
    for (uint32_t i = first; i <= last;) {
        uint32_t alike = 0;
        for (; batch->pass.active && i + alike <= last; alike++) {
            struct batch_task *state = &batch->state.tasks[i + alike];
            if (!state->terminal || state->failure != YOLK_OK || state->counted ||
                state->size != batch->state.tasks[i].size)
                break;
            state->counted = true;
        }
        if (alike > 0) {
            batch->pass.ok += alike;
            counted_end(engine, batch, i);
            batch->pass.alike += alike - 1;
            i += alike;
        } else {
            after_change(engine, batch, i++);
        }
    }
    after_change(engine, batch, last); /* for what the group holds */
}

void batch_cancel_slices(struct yolk_engine *engine, struct batch *batch, uint32_t index)
{
    uint32_t head = batch->state.tasks[index].head;
    for (uint32_t i = batch->state.tasks[head].taken_head; i != BATCH_NONE;
         i = batch->state.slices[i].next) {
        if (!batch_state_shares(&batch->state, i, index) || batch->state.slices[i].cancel_asked)
            continue;
        batch->state.slices[i].cancel_asked = true;
        if (!stage_is_posted(engine, batch_io_at(batch, i)))
            continue; /* it never will be */
        struct engine_channel *channel = &batch->channels[batch_io_at(batch, i)->channel];
        engine->transports[channel->transport].ops.cancel(channel->channel,
                                                          batch_state_cookie(&batch->state, i));
    }
}

void batch_end_task(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                    enum yolk_status status)
{
    if (batch->state.tasks[index].terminal)
        return;
    if (batch_state_end(&batch->state, engine_now(engine), index, status))
        batch_cancel_slices(engine, batch, index);
    after_change(engine, batch, index);
}

/* All tasks that are cut into slices together. */
void batch_end_group(struct yolk_engine *engine, struct batch *batch, uint32_t head,
                     enum yolk_status status)
{
    uint32_t end = head + batch->state.tasks[head].members;
    for (uint32_t i = head; i < end; i++)
        batch_end_task(engine, batch, i, status);
}

/* One slice is over: DONE, FAILED or a completion. The cookie is known to be of a taken slice. */
void batch_slice_over(struct yolk_engine *engine, struct batch *batch, uint64_t cookie,
                      enum yolk_status status, uint64_t transferred, uint64_t now_ns)
{
    struct engine_channel *channel =
        &batch->channels[batch_io_at(batch, (uint32_t)cookie)->channel];
    uint64_t size = batch_io_at(batch, (uint32_t)cookie)->io.size;
    uint32_t index;
    if (transferred > size)
        transferred = size;
    uint64_t exhausted = batch->state.exhausted;
    enum batch_outcome outcome =
        batch_state_complete(&batch->state, now_ns, cookie, status, transferred, &index);
    assert(outcome != BATCH_UNKNOWN);
    struct engine_task *task = &batch->tasks[index];
    if (outcome == BATCH_RETRY || outcome == BATCH_FAILED)
        reason_keep(engine, batch, index, status, channel);
    counted_over(engine, batch, task, batch_io_at(batch, (uint32_t)cookie), status, transferred,
                 now_ns);
    if (status != YOLK_OK ||
        atomic_load_explicit(&channel->segment->routes[channel->transport].troubled,
                             memory_order_relaxed)) {
        engine_route_result(engine, channel->segment, channel->transport, status, now_ns);
        channel->broken = channel->broken || failover_blames_route(status);
    }
    if (task->opcode == YOLK_READ)
        batch->pass.bytes_read += transferred;
    else
        batch->pass.bytes_written += transferred;
    if (batch->state.exhausted != exhausted)
        ENGINE_COUNT(engine, exhausted, 1);
    if (outcome == BATCH_RETRY) {
        ENGINE_COUNT(engine, retried, 1);
        task->channel = BATCH_NONE; /* the next slice chooses anew */
        batch->mixed = true;
    }
    if (outcome == BATCH_PROGRESS && task->scattered) {
        after_members(engine, batch, batch->state.touched_first, batch->state.touched_last);
        return;
    }
    for (uint32_t i = batch->state.touched_first; i <= batch->state.touched_last; i++) {
        const struct batch_task *touched = &batch->state.tasks[i];
        /* Of one that goes beyond the end of a file, what lies before it shall still come. */
        if (outcome == BATCH_FAILED && status != YOLK_ERR_EOF && touched->failure != YOLK_OK &&
            touched->taken > 0)
            batch_cancel_slices(engine, batch, i);
        after_change(engine, batch, i);
    }
}

/* The io of a taken slice; NULL: there is none of this cookie any more. */
static const struct engine_io *batch_io_of(const struct batch *batch, uint64_t cookie)
{
    uint32_t slice = (uint32_t)cookie;
    return slice < batch->state.slice_count &&
                   batch->state.slices[slice].state == BATCH_SLICE_TAKEN &&
                   batch_state_cookie(&batch->state, slice) == cookie
               ? batch_io_at(batch, slice)
               : NULL;
}

static bool poll_channel(struct yolk_engine *engine, struct batch *batch, uint32_t index)
{
    struct yolk_completion completions[POLL_MAX];
    bool moved = false;
    uint32_t count;
    do {
        struct engine_channel *channel = &batch->channels[index];
        base_error_clear(); /* what is said after this is said of what failed there */
        count = engine->transports[channel->transport].ops.poll(channel->channel, completions,
                                                                POLL_MAX);
        uint64_t now_ns = count > 0 ? engine_now(engine) : 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct yolk_completion *c = &completions[i];
            const struct engine_io *entry = batch_io_of(batch, c->cookie);
            /* Doubled, late, or another channel's: nobody waits for it. */
            if (entry == NULL || entry->channel != index || !stage_is_posted(engine, entry)) {
                uint32_t task;
                (void)batch_state_complete(&batch->state, now_ns, UINT64_MAX, c->status, 0, &task);
                ENGINE_COUNT(engine, unknown, 1);
                continue;
            }
            if (entry->chunk != STAGING_NONE) {
                stage_io_over(engine, batch, (uint32_t)c->cookie, c->status, c->transferred,
                              now_ns);
                continue;
            }
            batch->channels[index].in_flight--;
            batch_slice_over(engine, batch, c->cookie, c->status, c->transferred, now_ns);
        }
        moved = moved || count > 0;
    } while (count == POLL_MAX);
    return moved;
}

static void expire(struct yolk_engine *engine, struct batch *batch)
{
    uint64_t now_ns = batch->state.next_due_ns == BATCH_NEVER ? 0 : engine_now(engine);
    bool stuck;
    uint32_t index;
    while ((index = batch_state_expire(&batch->state, now_ns, &stuck)) != BATCH_NONE) {
        if (!stuck)
            batch_cancel_slices(engine, batch, index);
        after_change(engine, batch, index);
    }
}

/* What is over makes room for what waits, perhaps in this batch. */
static bool gate_turn(struct yolk_engine *engine, struct batch *batch)
{
    gate_settle(engine, batch);
    return gate_release(engine, batch);
}

bool batch_progress(struct yolk_engine *engine, struct batch *batch)
{
    bool moved = batch_pass(engine, batch);
    return (batch->stage.waits && stage_help(engine, batch)) || moved;
}

bool batch_pass(struct yolk_engine *engine, struct batch *batch)
{
    bool moved = false;
    batch->passes++;
    counted_pass_begin(batch);
    batch->state.no_retry = batch->no_failover;
    for (uint32_t i = 0; i < batch->channel_count; i++) {
        struct engine_channel *channel = &batch->channels[i];
        channel->full = false;
        if (channel->in_flight > 0)
            moved = poll_channel(engine, batch, i) || moved;
        if (channel->broken && channel->channel != NULL && channel->in_flight == 0)
            (void)batch_close_channel(engine, batch, channel);
    }
    batch->state.no_retry = false;
    expire(engine, batch);
    if (batch->stage.head != STAGING_NONE) {
        base_error_clear();
        moved = stage_work(engine, batch) || moved;
    }
    if (engine->gate.on)
        (void)gate_turn(engine, batch);
    do {
        if (batch->state.queue_length > 0)
            moved = batch_post_all(engine, batch) || moved;
    } while (engine->gate.on && gate_turn(engine, batch));
    for (uint32_t i = 0; i < batch->channel_count; i++) {
        struct engine_channel *channel = &batch->channels[i];
        if (channel->posted && channel->channel != NULL)
            engine->transports[channel->transport].ops.flush(channel->channel);
        channel->posted = false;
    }
    if (batch->stage.waits)
        stage_pass_end(engine, batch);
    give_back_all(batch);
    counted_pass_end(engine, batch);
    return moved;
}

bool batch_reclaim(struct yolk_engine *engine, struct batch *batch)
{
    if (batch->state.taken > 0)
        return false;
    for (uint32_t i = 0; i < batch->channel_count; i++) {
        if (batch->channels[i].channel == NULL)
            continue;
        if (!batch_close_channel(engine, batch, &batch->channels[i])) {
            (void)poll_channel(engine, batch, i); /* doubled completions are left in it */
            return false;
        }
    }
    for (uint32_t i = 0; i < batch->io_chunks; i++)
        free(batch->ios[i]);
    free(batch->ios);
    free(batch->channels);
    free(batch->tasks);
    free(batch->places);
    batch_pieces_free(batch);
    reason_free(batch);
    batch_state_free(&batch->state);
    atomic_store(&batch->gate.released, BATCH_NONE);
    batch->ios = NULL;
    batch->io_chunks = 0;
    batch->channels = NULL;
    batch->channel_count = 0;
    batch->channel_room = 0;
    batch->tasks = NULL;
    batch->places = NULL;
    return true;
}
