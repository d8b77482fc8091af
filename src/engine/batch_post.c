/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts what a batch has to move into ios and posts them, level by level. */
#include "engine/batch_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/counted.h"
#include "engine/merge.h"

enum { FULL_SKIPS_MAX = 32 };

/* Room for the io of this slice, at an address that stays. */
static bool io_reserve(struct batch *batch, uint32_t slice)
{
    uint32_t need = slice / ENGINE_IO_CHUNK + 1;
    if (need <= batch->io_chunks)
        return true;
    struct engine_io **ios = realloc(batch->ios, need * sizeof(struct engine_io *));
    if (ios == NULL)
        return false;
    batch->ios = ios;
    while (batch->io_chunks < need) {
        ios[batch->io_chunks] = malloc(ENGINE_IO_CHUNK * sizeof(struct engine_io));
        if (ios[batch->io_chunks] == NULL)
            return false;
        batch->io_chunks++;
    }
    return true;
}

/* The largest io of this task on this route. */
static uint64_t io_bytes_max(const struct yolk_engine *engine, const struct engine_task *task,
                             uint8_t transport)
{
    uint64_t most = engine->transports[transport].limits.slice_bytes_max;
    uint64_t chunk_bytes = engine->stage.staging.chunk_bytes;
    return most > chunk_bytes && batch_is_staged(task, transport) ? chunk_bytes : most;
}

struct yolk_place batch_place(const struct batch *batch, uint32_t index)
{
    const struct batch_task *state = &batch->state.tasks[index];
    const struct engine_task *head = &batch->tasks[state->head];
    if (index == state->head)
        return (struct yolk_place){head->local, head->offset, head->size};
    if (head->scattered)
        return batch->places[index];
    return (struct yolk_place){head->local + state->start, head->offset + state->start,
                               state->size};
}

uint8_t *batch_local_at(const struct batch *batch, uint32_t head, uint64_t position)
{
    const struct engine_task *task = &batch->tasks[head];
    if (task->local == NULL || !task->scattered)
        return task->local == NULL ? NULL : task->local + position;
    uint32_t member = merge_member_at(&batch->state, head, position);
    return (uint8_t *)batch->places[member].local + (position - batch->state.tasks[member].start);
}

/* An io of one or several members of a scattered group; its size is set. */
static void fill_places(const struct batch *batch, const struct batch_slice *slice,
                        struct yolk_io *io)
{
    uint32_t first = merge_member_at(&batch->state, slice->task, slice->offset);
    uint32_t last = io->size <= 1
                        ? first
                        : merge_member_at(&batch->state, slice->task, slice->offset + io->size - 1);
    const struct yolk_place *place = &batch->places[first];
    io->skip = slice->offset - batch->state.tasks[first].start;
    io->local = (uint8_t *)place->local + io->skip;
    io->offset = place->offset + io->skip;
    if (last == first)
        return;
    io->places = place;
    io->place_count = last - first + 1;
}

static void fill_io(struct yolk_engine *engine, struct batch *batch, uint32_t slice_index,
                    uint32_t channel)
{
    const struct batch_slice *slice = &batch->state.slices[slice_index];
    const struct engine_task *task = &batch->tasks[slice->task];
    struct engine_io *entry = batch_io_at(batch, slice_index);
    uint8_t transport = batch->channels[channel].transport;
    uint64_t most = io_bytes_max(engine, task, transport);
    memset(&entry->io, 0, sizeof(entry->io));
    entry->channel = channel;
    entry->chunk = STAGING_NONE;
    entry->io.opcode = task->opcode;
    entry->io.local = task->local == NULL ? NULL : task->local + slice->offset;
    entry->io.pieces = task->pieces;
    entry->io.piece_count = task->piece_count;
    entry->io.skip = slice->offset;
    entry->io.offset = task->offset + slice->offset;
    /* Cut for another route with larger slices: the rest follows as the rest of a short one. */
    entry->io.size = slice->size < most ? slice->size : most;
    entry->io.key = task->registration != NULL ? task->registration->keys[transport] : NULL;
    entry->io.gpu = task->registration != NULL ? task->registration->gpu : 0;
    entry->io.ticket = task->ticket;
    entry->io.deadline_ns = batch->state.tasks[slice->task].deadline_ns;
    entry->io.cookie = batch_state_cookie(&batch->state, slice_index);
    if (task->scattered)
        fill_places(batch, slice, &entry->io);
}

/* What is staged lies in one piece of the engine's memory then. */
static bool takes_pieces(const struct yolk_engine *engine, const struct engine_task *task,
                         uint8_t transport)
{
    return task->piece_count == 0 || batch_is_staged(task, transport) ||
           (engine->transports[transport].ops.caps & YOLK_CAP_PIECES) != 0;
}

/* Whether the slice is to be cut at the ends of its members before this transport can have it. */
static bool has_too_many_places(const struct yolk_engine *engine, const struct batch *batch,
                                const struct batch_slice *slice, uint8_t transport)
{
    const struct engine_task *head = &batch->tasks[slice->task];
    if (!head->scattered || batch_takes_places(engine, head, transport))
        return false;
    const struct batch_task *first =
        &batch->state.tasks[merge_member_at(&batch->state, slice->task, slice->offset)];
    return slice->offset + slice->size > first->start + first->size;
}

/* The task's route, if this slice has not failed there. */
static enum yolk_status route_slice(struct yolk_engine *engine, struct batch *batch,
                                    const struct batch_slice *slice, uint32_t *channel)
{
    const struct engine_task *task = &batch->tasks[slice->task];
    *channel = task->channel;
    if (task->channel != BATCH_NONE &&
        batch_channel_serves(&batch->channels[task->channel], task->segment) &&
        (slice->tried & UINT32_C(1) << batch->channels[task->channel].transport) == 0)
        return YOLK_OK;
    return batch_new_route(engine, batch, slice->task, slice->tried, slice->retry_here, channel);
}

/* Posts one taken slice. */
static enum batch_post post_slice(struct yolk_engine *engine, struct batch *batch,
                                  uint32_t slice_index)
{
    struct batch_slice *slice = &batch->state.slices[slice_index];
    uint32_t index = slice->task;
    uint32_t channel_index;
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    if (io_reserve(batch, slice_index))
        status = route_slice(engine, batch, slice, &channel_index);
    if (status != YOLK_OK) {
        batch_state_untake(&batch->state, slice_index);
        enum yolk_status earlier = batch->state.slices[slice_index].last;
        if (status != YOLK_ERR_AGAIN && earlier == YOLK_OK)
            reason_keep(engine, batch, index, status, NULL);
        base_error_clear();
        if (status == YOLK_ERR_AGAIN)
            return BATCH_POST_FULL;
        batch_end_group(engine, batch, index, earlier != YOLK_OK ? earlier : status);
        return BATCH_POST_ENDED;
    }
    struct engine_channel *channel = &batch->channels[channel_index];
    if (channel->full) {
        batch_state_untake(&batch->state, slice_index);
        return BATCH_POST_FULL;
    }
    if (!takes_pieces(engine, &batch->tasks[index], channel->transport)) {
        batch_state_untake(&batch->state, slice_index);
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s moves no memory in pieces",
                           engine->transports[channel->transport].ops.name);
        reason_keep(engine, batch, index, status, channel);
        batch_end_group(engine, batch, index, status);
        return BATCH_POST_ENDED;
    }
    if (has_too_many_places(engine, batch, slice, channel->transport)) {
        slice->alone = true;
        batch_state_untake(&batch->state, slice_index);
        return BATCH_POST_WENT;
    }
    slice->route = channel->transport;
    batch->tasks[index].last_transport = channel->transport;
    fill_io(engine, batch, slice_index, channel_index);
    if (batch_is_staged(&batch->tasks[index], channel->transport))
        return stage_post(engine, batch, slice_index);
    struct yolk_io *io = &batch_io_at(batch, slice_index)->io;
    (void)counted_now(engine, batch); /* what it copies in there takes its time from here on */
    enum yolk_submit answer =
        engine->transports[channel->transport].ops.submit(channel->channel, io);
    if (answer != YOLK_SUBMIT_AGAIN)
        counted_post(engine, batch, &batch->tasks[index], batch_io_at(batch, slice_index));
    switch (answer) {
    case YOLK_SUBMIT_QUEUED:
        channel->in_flight++;
        channel->posted = true;
        break;
    case YOLK_SUBMIT_AGAIN:
        channel->full = true;
        base_error_clear(); /* it is no failure, whatever it was told with */
        batch_state_untake(&batch->state, slice_index);
        return BATCH_POST_FULL;
    case YOLK_SUBMIT_DONE:
        channel->posted = true; /* it may keep hold of something until its flush */
        /* Only a failure is dated. */
        batch_slice_over(engine, batch, io->cookie, YOLK_OK, io->transferred,
                         io->transferred == io->size ? 0 : engine_now(engine));
        break;
    case YOLK_SUBMIT_FAILED:
        batch_slice_over(engine, batch, io->cookie,
                         io->status != YOLK_OK ? io->status : YOLK_ERR_IO, io->transferred,
                         engine_now(engine));
        break;
    default: /* no answer of the contract: nothing that it says counts */
        batch_slice_over(engine, batch, io->cookie, YOLK_ERR_PROTOCOL, 0, engine_now(engine));
        break;
    }
    batch->pass.slices++;
    return BATCH_POST_WENT;
}

/* How long a slice of this task may be: its route's limit, chosen first if there is none yet. */
static enum yolk_status slice_limit(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                                    uint64_t *limit)
{
    struct engine_task *task = &batch->tasks[index];
    uint32_t channel = task->channel;
    if (channel == BATCH_NONE || !batch_channel_serves(&batch->channels[channel], task->segment)) {
        /* With a slice waiting for another try, its own failed routes decide, in post_slice. */
        *limit = engine->slice_bytes_max;
        if (batch->state.tasks[index].ready_head != BATCH_NONE)
            return YOLK_OK;
        enum yolk_status status = batch_choose_channel(engine, batch, task, 0, &channel);
        if (status != YOLK_OK)
            return status;
    }
    *limit = io_bytes_max(engine, task, batch->channels[channel].transport);
    return YOLK_OK;
}

static enum batch_post post_task(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                                 bool *moved)
{
    for (;;) {
        if (!batch_state_has_work(&batch->state, index))
            return BATCH_POST_ENDED;
        uint64_t limit;
        struct engine_order *order = batch->tasks[index].order;
        enum yolk_status status = order == NULL ? YOLK_OK : engine_order_look(order, batch->passes);
        if (status == YOLK_ERR_AGAIN) {
            base_error_clear();
            batch_state_requeue(&batch->state, index);
            return BATCH_POST_WAITS;
        }
        if (status == YOLK_OK)
            status = slice_limit(engine, batch, index, &limit);
        if (status == YOLK_ERR_AGAIN) {
            base_error_clear();
            batch_state_requeue(&batch->state, index);
            return BATCH_POST_FULL;
        }
        if (status != YOLK_OK) {
            reason_keep(engine, batch, index, status, NULL);
            batch_end_group(engine, batch, index, status);
            return BATCH_POST_ENDED;
        }
        bool no_memory;
        uint32_t slice = batch_state_take(&batch->state, index, limit, &no_memory);
        if (slice == BATCH_NONE) {
            if (no_memory)
                batch_end_group(engine, batch, index, YOLK_ERR_NO_MEMORY);
            return BATCH_POST_ENDED;
        }
        enum batch_post post = post_slice(engine, batch, slice);
        if (post == BATCH_POST_FULL)
            return BATCH_POST_FULL;
        *moved = true;
        if (post == BATCH_POST_ENDED)
            return BATCH_POST_ENDED;
    }
}

static bool post_level(struct yolk_engine *engine, struct batch *batch, uint8_t level)
{
    bool moved = false;
    uint32_t full = 0;
    uint32_t left = batch->state.queues[level].length;
    for (; left > 0 && full < FULL_SKIPS_MAX; left--) {
        uint32_t index = batch_state_dequeue_level(&batch->state, level);
        if (index == BATCH_NONE)
            break;
        /* Where all go one way, none behind it has room either; and files like their order. */
        bool alike = !batch->mixed && batch->channel_count <= 1;
        batch->state.keeps_order = alike;
        enum batch_post post = post_task(engine, batch, index, &moved);
        batch->state.keeps_order = false;
        full = post == BATCH_POST_FULL ? full + 1 : 0;
        if (full > 0 && alike)
            break;
    }
    return moved;
}

bool batch_post_all(struct yolk_engine *engine, struct batch *batch)
{
    bool moved = false;
    base_error_clear();
    if (!batch->in_parts)
        batch->choice.segment = NULL;
    if (batch_state_has_lower(&batch->state))
        batch_state_promote(&batch->state, engine_now(engine));
    for (uint8_t level = 0; level < BATCH_LEVELS; level++)
        if (batch->state.queues[level].length > 0)
            moved = post_level(engine, batch, level) || moved;
    return moved;
}
