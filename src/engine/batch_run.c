/* SPDX-License-Identifier: Apache-2.0 */
/* Moves one batch on: polls its channels, enforces deadlines, posts slices, fails over. The batch's
 * lock is held in every function here. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/counted.h"
#include "engine/merge.h"
#include "engine/way.h"

enum { POLL_MAX = 64, FULL_SKIPS_MAX = 32 };

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

/* Those with bytes of this task. Of what other tasks have in them the rest is posted again. */
static void cancel_slices(struct yolk_engine *engine, struct batch *batch, uint32_t index)
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
        cancel_slices(engine, batch, index);
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
            cancel_slices(engine, batch, i);
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

static bool channel_serves(const struct engine_channel *channel, const struct segment *segment)
{
    return channel->channel != NULL && channel->segment == segment && !channel->broken;
}

static uint32_t find_channel(const struct batch *batch, const struct segment *segment,
                             uint8_t transport)
{
    for (uint32_t i = 0; i < batch->channel_count; i++)
        if (channel_serves(&batch->channels[i], segment) &&
            batch->channels[i].transport == transport)
            return i;
    return BATCH_NONE;
}

/* An entry that is closed, so that links which break again and again do not make the array grow. */
static uint32_t free_entry(const struct batch *batch)
{
    uint32_t i = 0;
    while (i < batch->channel_count && batch->channels[i].channel != NULL)
        i++;
    return i;
}

/* False: the transport still has something of it. */
static bool close_channel(struct yolk_engine *engine, struct batch *batch,
                          struct engine_channel *channel)
{
    if (engine->transports[channel->transport].ops.channel_close(channel->channel) != YOLK_OK)
        return false;
    counted_channel_end(engine, batch, channel);
    channel->channel = NULL;
    engine_target_leave(&channel->segment->routes[channel->transport]);
    segment_release(channel->segment);
    channel->segment = NULL;
    return true;
}

static enum yolk_status open_channel(struct yolk_engine *engine, struct batch *batch,
                                     struct segment *segment, uint8_t index, uint64_t now_ns,
                                     uint32_t *out)
{
    *out = find_channel(batch, segment, index);
    if (*out != BATCH_NONE)
        return YOLK_OK;
    uint32_t entry = free_entry(batch);
    if (entry == batch->channel_room) {
        uint32_t room = batch->channel_room == 0 ? 4 : batch->channel_room * 2;
        struct engine_channel *channels = realloc(batch->channels, room * sizeof(*channels));
        if (channels == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
        batch->channels = channels;
        batch->channel_room = room;
    }
    struct transport *transport = &engine->transports[index];
    struct route *route = &segment->routes[index];
    void *channel = NULL;
    void *target = engine_target_enter(route, now_ns);
    if (target == NULL)
        return YOLK_ERR_AGAIN; /* it was just closed for another one */
    enum yolk_status status = transport->ops.channel_open(transport->endpoint, target, &channel);
    if (status != YOLK_OK) {
        engine_target_leave(route);
        return status;
    }
    atomic_fetch_add(&segment->references, 1);
    *out = entry;
    if (entry == batch->channel_count)
        batch->channel_count++;
    batch->channels[entry] =
        (struct engine_channel){.segment = segment, .channel = channel, .transport = index};
    return YOLK_OK;
}

/* No room for another target: what this batch has no use for now is given back. */
static void close_idle_channels(struct yolk_engine *engine, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->channel_count; i++) {
        struct engine_channel *channel = &batch->channels[i];
        if (channel->channel != NULL && channel->in_flight == 0)
            (void)close_channel(engine, batch, channel);
    }
}

static uint32_t accepted_by(const struct engine_task *task)
{
    return task->registration != NULL ? task->registration->accepted : UINT32_MAX;
}

static enum policy_memory memory_of(const struct engine_task *task)
{
    return task->registration != NULL ? task->registration->memory : POLICY_CPU;
}

static bool is_staged(const struct engine_task *task, uint8_t transport)
{
    return (accepted_by(task) & UINT32_C(1) << transport) == 0;
}

static bool is_of_gpu(const struct engine_task *task)
{
    return task->registration != NULL && task->registration->gpu != 0;
}

static bool takes_places(const struct yolk_engine *engine, const struct engine_task *task,
                         uint8_t transport)
{
    uint64_t cap = is_of_gpu(task) ? YOLK_CAP_GPU_PLACES : YOLK_CAP_PLACES;
    return !is_staged(task, transport) && (engine->transports[transport].ops.caps & cap) != 0;
}

/* The channel chosen before in this pass, if nothing tells this task from that one. A route in
 * trouble is looked at anew by each task: its breaker counts them. */
static bool same_choice(const struct batch *batch, const struct engine_task *task, uint32_t tried,
                        uint32_t *out)
{
    const struct engine_choice *before = &batch->choice;
    if (tried != 0 || before->two_ways || before->segment != task->segment ||
        before->opcode != task->opcode || !engine_wish_equal(before->wish, task->wish) ||
        task->wish.direct || before->accepted != accepted_by(task) ||
        before->memory != memory_of(task))
        return false;
    const struct engine_channel *channel = &batch->channels[before->channel];
    if (!channel_serves(channel, task->segment) ||
        atomic_load_explicit(&task->segment->routes[channel->transport].troubled,
                             memory_order_relaxed))
        return false;
    *out = before->channel;
    return true;
}

/* The first route that takes the caller's memory, then the first that takes the engine's in its
 * place; one that is hinted at comes before both. */
static enum yolk_status pick_route(struct yolk_engine *engine, struct engine_task *task,
                                   uint32_t tried, uint64_t now_ns, uint8_t *transport)
{
    struct route_query query = {.segment = task->segment,
                                .opcode = task->opcode,
                                .accepted = accepted_by(task),
                                .tried = tried,
                                .wish = task->wish,
                                .memory = memory_of(task),
                                .local = task->local,
                                .offset = task->offset,
                                .size = task->size};
    bool may_stage = task->registration != NULL && !task->wish.direct;
    if (may_stage && task->wish.hint != ENGINE_NO_TRANSPORT && is_staged(task, task->wish.hint)) {
        struct route_query hinted = query;
        hinted.accepted = stage_accepted(engine, task->registration) & UINT32_C(1)
                                                                           << task->wish.hint;
        hinted.memory = POLICY_CPU;
        enum yolk_status status = engine_route_pick(engine, &hinted, now_ns, NULL, transport);
        if (status == YOLK_OK || status == YOLK_ERR_AGAIN)
            return status;
    }
    enum yolk_status status = engine_route_pick(engine, &query, now_ns, NULL, transport);
    if (status == YOLK_OK && may_stage && tried == 0 && task->segment->file)
        way_choose(engine, task, now_ns, transport);
    if (status == YOLK_OK || status == YOLK_ERR_AGAIN || !may_stage)
        return status;
    query.accepted = stage_accepted(engine, task->registration);
    query.memory = POLICY_CPU;
    if (query.accepted == 0)
        return status;
    enum yolk_status staged = engine_route_pick(engine, &query, now_ns, NULL, transport);
    bool tells = status != YOLK_ERR_NO_ROUTE && status != YOLK_ERR_UNSUPPORTED;
    return tells && staged != YOLK_OK && staged != YOLK_ERR_AGAIN ? status : staged;
}

/* Chooses a channel for the task that avoids the routes in tried. AGAIN: none is free now. */
static enum yolk_status choose_channel(struct yolk_engine *engine, struct batch *batch,
                                       struct engine_task *task, uint32_t tried, uint32_t *out)
{
    uint32_t avoid = tried;
    if (same_choice(batch, task, tried, out)) {
        task->channel = *out;
        return YOLK_OK;
    }
    uint64_t now_ns = engine_now(engine);
    counted_dispatch(batch, task, now_ns);
    enum yolk_status failed = YOLK_OK;
    for (;;) {
        uint8_t transport;
        enum yolk_status status = pick_route(engine, task, avoid, now_ns, &transport);
        if (status == YOLK_ERR_AGAIN && atomic_exchange(&task->segment->crowded, false))
            close_idle_channels(engine, batch);
        if (status != YOLK_OK && status != YOLK_ERR_AGAIN && failed != YOLK_OK) {
            base_error_clear(); /* why the one that was there failed says more */
            return failed;
        }
        if (status != YOLK_OK)
            return status;
        status = open_channel(engine, batch, task->segment, transport, now_ns, out);
        if (status == YOLK_OK) {
            task->channel = *out;
            atomic_store_explicit(&task->segment->places[is_of_gpu(task)],
                                  takes_places(engine, task, transport), memory_order_relaxed);
            if (tried == 0) /* a second choice is that of this task alone */
                batch->choice =
                    (struct engine_choice){task->segment, accepted_by(task), memory_of(task), *out,
                                           task->opcode,  task->wish,        task->two_ways};
            return YOLK_OK;
        }
        if (status == YOLK_ERR_LIMIT || status == YOLK_ERR_AGAIN)
            return YOLK_ERR_AGAIN;
        reason_no_channel(engine, batch, task, transport, status);
        engine_route_result(engine, task->segment, transport, status, now_ns);
        counted_refusal(engine, batch, task, transport);
        failed = status;
        avoid |= UINT32_C(1) << transport;
    }
}

/* The channel that had it last, unless its route is in trouble. */
static bool same_again(const struct batch *batch, struct engine_task *task, uint32_t *channel)
{
    uint32_t last = find_channel(batch, task->segment, task->last_transport);
    if (last == BATCH_NONE ||
        atomic_load_explicit(&task->segment->routes[task->last_transport].troubled,
                             memory_order_relaxed))
        return false;
    *channel = task->channel = last;
    return true;
}

/* A route for this slice: the task's, another one after a failure, or the same once more where that
 * makes sense and there is no other. */
static enum yolk_status route_slice(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                                    uint32_t tried, bool again_here, uint32_t *channel)
{
    struct engine_task *task = &batch->tasks[index];
    if (task->channel != BATCH_NONE &&
        channel_serves(&batch->channels[task->channel], task->segment) &&
        (tried & UINT32_C(1) << batch->channels[task->channel].transport) == 0) {
        *channel = task->channel;
        return YOLK_OK;
    }
    enum yolk_status status = choose_channel(engine, batch, task, tried, channel);
    if (status == YOLK_OK && tried != 0)
        ENGINE_COUNT(engine, failed_over, 1);
    if (status != YOLK_OK && status != YOLK_ERR_AGAIN && tried != 0 && again_here) {
        base_error_clear(); /* that there is no other is no failure yet */
        status = same_again(batch, task, channel) ? YOLK_OK
                                                  : choose_channel(engine, batch, task, 0, channel);
    }
    return status;
}

/* The largest io of this task on this route. */
static uint64_t io_bytes_max(const struct yolk_engine *engine, const struct engine_task *task,
                             uint8_t transport)
{
    uint64_t most = engine->transports[transport].limits.slice_bytes_max;
    uint64_t chunk_bytes = engine->stage.staging.chunk_bytes;
    return most > chunk_bytes && is_staged(task, transport) ? chunk_bytes : most;
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
    return task->piece_count == 0 || is_staged(task, transport) ||
           (engine->transports[transport].ops.caps & YOLK_CAP_PIECES) != 0;
}

/* Whether the slice is to be cut at the ends of its members before this transport can have it. */
static bool has_too_many_places(const struct yolk_engine *engine, const struct batch *batch,
                                const struct batch_slice *slice, uint8_t transport)
{
    const struct engine_task *head = &batch->tasks[slice->task];
    if (!head->scattered || takes_places(engine, head, transport))
        return false;
    const struct batch_task *first =
        &batch->state.tasks[merge_member_at(&batch->state, slice->task, slice->offset)];
    return slice->offset + slice->size > first->start + first->size;
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
        status = route_slice(engine, batch, index, slice->tried, slice->retry_here, &channel_index);
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
    if (is_staged(&batch->tasks[index], channel->transport))
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
    if (channel == BATCH_NONE || !channel_serves(&batch->channels[channel], task->segment)) {
        /* With a slice waiting for another try, its own failed routes decide, in post_slice. */
        *limit = engine->slice_bytes_max;
        if (batch->state.tasks[index].ready_head != BATCH_NONE)
            return YOLK_OK;
        if (same_choice(batch, task, 0, &channel)) {
            task->channel = channel;
        } else {
            enum yolk_status status = choose_channel(engine, batch, task, 0, &channel);
            if (status != YOLK_OK)
                return status;
        }
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

static bool post_all(struct yolk_engine *engine, struct batch *batch)
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

static void expire(struct yolk_engine *engine, struct batch *batch)
{
    uint64_t now_ns = batch->state.next_due_ns == BATCH_NEVER ? 0 : engine_now(engine);
    bool stuck;
    uint32_t index;
    while ((index = batch_state_expire(&batch->state, now_ns, &stuck)) != BATCH_NONE) {
        if (!stuck)
            cancel_slices(engine, batch, index);
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
            (void)close_channel(engine, batch, channel);
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
            moved = post_all(engine, batch) || moved;
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
        if (!close_channel(engine, batch, &batch->channels[i])) {
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
