/* SPDX-License-Identifier: Apache-2.0 */
/* The channels of a batch, and which of them a task takes. */
#include "engine/batch_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/counted.h"
#include "engine/way.h"

static uint32_t find_channel(const struct batch *batch, const struct segment *segment,
                             uint8_t transport)
{
    for (uint32_t i = 0; i < batch->channel_count; i++)
        if (batch_channel_serves(&batch->channels[i], segment) &&
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

bool batch_close_channel(struct yolk_engine *engine, struct batch *batch,
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
            (void)batch_close_channel(engine, batch, channel);
    }
}

static enum policy_memory memory_of(const struct engine_task *task)
{
    return task->registration != NULL ? task->registration->memory : POLICY_CPU;
}

static bool is_of_gpu(const struct engine_task *task)
{
    return task->registration != NULL && task->registration->gpu != 0;
}

bool batch_takes_places(const struct yolk_engine *engine, const struct engine_task *task,
                        uint8_t transport)
{
    uint64_t cap = is_of_gpu(task) ? YOLK_CAP_GPU_PLACES : YOLK_CAP_PLACES;
    return !batch_is_staged(task, transport) && (engine->transports[transport].ops.caps & cap) != 0;
}

/* The channel chosen before in this pass, if nothing tells this task from that one. A route in
 * trouble is looked at anew by each task: its breaker counts them. */
static bool same_choice(const struct batch *batch, const struct engine_task *task, uint32_t tried,
                        uint32_t *out)
{
    const struct engine_choice *before = &batch->choice;
    if (tried != 0 || before->two_ways || before->segment != task->segment ||
        before->opcode != task->opcode || !engine_wish_equal(before->wish, task->wish) ||
        task->wish.direct || before->accepted != batch_accepted_by(task) ||
        before->memory != memory_of(task))
        return false;
    const struct engine_channel *channel = &batch->channels[before->channel];
    if (!batch_channel_serves(channel, task->segment) ||
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
                                .accepted = batch_accepted_by(task),
                                .tried = tried,
                                .wish = task->wish,
                                .memory = memory_of(task),
                                .local = task->local,
                                .offset = task->offset,
                                .size = task->size};
    bool may_stage = task->registration != NULL && !task->wish.direct;
    if (may_stage && task->wish.hint != ENGINE_NO_TRANSPORT &&
        batch_is_staged(task, task->wish.hint)) {
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

enum yolk_status batch_choose_channel(struct yolk_engine *engine, struct batch *batch,
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
                                  batch_takes_places(engine, task, transport),
                                  memory_order_relaxed);
            if (tried == 0) /* a second choice is that of this task alone */
                batch->choice = (struct engine_choice){
                    task->segment, batch_accepted_by(task), memory_of(task), *out, task->opcode,
                    task->wish,    task->two_ways};
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

enum yolk_status batch_new_route(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                                 uint32_t tried, bool again_here, uint32_t *channel)
{
    struct engine_task *task = &batch->tasks[index];
    enum yolk_status status = batch_choose_channel(engine, batch, task, tried, channel);
    if (status == YOLK_OK && tried != 0)
        ENGINE_COUNT(engine, failed_over, 1);
    if (status != YOLK_OK && status != YOLK_ERR_AGAIN && tried != 0 && again_here) {
        base_error_clear(); /* that there is no other is no failure yet */
        status = same_again(batch, task, channel)
                     ? YOLK_OK
                     : batch_choose_channel(engine, batch, task, 0, channel);
    }
    return status;
}
