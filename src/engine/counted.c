/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/counted.h"

_Static_assert((int)ENGINE_TRANSPORTS_MAX <= (int)METRICS_NO_TRANSPORT,
               "every transport has a place in the metrics");

static struct metrics_shard *shard_of(struct yolk_engine *engine, const struct batch *batch)
{
    return &engine->metrics->shards[batch->index % METRICS_SHARDS];
}

static enum metrics_operation operation_of(enum yolk_opcode opcode)
{
    return opcode == YOLK_READ ? METRICS_READ : METRICS_WRITE;
}

void counted_channel_end(struct yolk_engine *engine, struct batch *batch,
                         struct engine_channel *channel)
{
    struct telemetry_pass *pass = &channel->pass;
    struct metrics_shard *shard = shard_of(engine, batch);
    if (pass->posted_ios == 0 && pass->over_ios == 0)
        return;
    for (int o = 0; o < METRICS_OPERATIONS; o++) {
        if (channel->attempts[o] > 0)
            metrics_attempts(shard, channel->transport, o, channel->attempts[o]);
        channel->attempts[o] = 0;
    }
    uint64_t staged = channel->pass_staged_bytes;
    uint64_t bounced = channel->pass_bounced_bytes;
    if (staged > 0)
        metrics_path_bytes(shard, channel->transport, METRICS_STAGED, staged);
    if (bounced > 0)
        metrics_path_bytes(shard, channel->transport, METRICS_BOUNCE, bounced);
    if (pass->done_bytes > staged + bounced)
        metrics_path_bytes(shard, channel->transport, METRICS_DIRECT,
                           pass->done_bytes - staged - bounced);
    channel->pass_staged_bytes = 0;
    channel->pass_bounced_bytes = 0;
    telemetry_count(&channel->segment->routes[channel->transport].load, pass,
                    channel->pass_begin_ns, engine_now(engine));
    *pass = (struct telemetry_pass){0};
}

void counted_attempt(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     struct engine_channel *channel)
{
    struct task_times *times = &task->times;
    times->attempting |= (uint16_t)(1u << channel->transport);
    times->attempt = counted_tick(batch->pass.now_ns);
    channel->attempts[operation_of(task->opcode)]++;
    if (times->failed_from != METRICS_NO_TRANSPORT && times->failed_from != channel->transport)
        metrics_failover(engine->metrics, times->failed_from, channel->transport);
    times->failed_from = METRICS_NO_TRANSPORT;
}

void counted_failure(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     uint8_t transport, uint64_t now_ns)
{
    struct task_times *times = &task->times;
    if ((times->attempting & 1u << transport) == 0)
        return; /* another slice of it said so */
    times->attempting &= (uint16_t) ~(1u << transport);
    times->failed_from = transport;
    metrics_attempt_failed(shard_of(engine, batch), transport, operation_of(task->opcode),
                           counted_span_ns(times->attempt, counted_tick(now_ns)));
}

void counted_refusal(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     uint8_t transport)
{
    uint64_t now_ns = engine_now(engine);
    task->times.attempting |= (uint16_t)(1u << transport);
    task->times.attempt = counted_tick(now_ns);
    metrics_attempts(shard_of(engine, batch), transport, operation_of(task->opcode), 1);
    counted_failure(engine, batch, task, transport, now_ns);
}

/* ---- ends of tasks ---- */

/* 0 if it never came to the first of them. */
static uint64_t span(uint32_t from, uint32_t to)
{
    return from != 0 && to != 0 ? counted_span_ns(from, to) : 0;
}

static void tell_alike(struct yolk_engine *engine, struct batch *batch)
{
    struct batch_pass *pass = &batch->pass;
    if (pass->alike == 0)
        return;
    const struct batch_task *state = &batch->state.tasks[pass->alike_index];
    const struct engine_task *task = &batch->tasks[state->head]; /* posted for its group */
    const struct task_times *times = &task->times;
    uint32_t now = counted_tick(pass->alike_now_ns);
    uint64_t latency_ns = span(times->submitted, now);
    uint64_t submitted_ns = pass->alike_now_ns - latency_ns;
    const struct metrics_request request = {
        .operation = operation_of(task->opcode),
        .transport = task->last_transport == ENGINE_NO_TRANSPORT ? METRICS_NO_TRANSPORT
                                                                 : task->last_transport,
        .failed = state->failure != YOLK_OK,
        .size = state->size,
        .latency_ns = latency_ns,
        .queue_ns = span(times->submitted, times->dispatched),
        .dispatch_ns = span(times->dispatched, times->posted),
        .transport_ns = span(times->posted, now),
        .attempt_ns = span(times->attempt, now),
        .window_ns = state->deadline_ns == BATCH_NEVER || state->deadline_ns < submitted_ns
                         ? 0
                         : state->deadline_ns - submitted_ns,
    };
    metrics_requests_over(shard_of(engine, batch), &pass->run, &request, pass->alike);
    pass->alike = 0;
}

static void tell(_Atomic uint64_t *counter, uint64_t *tally)
{
    if (*tally > 0)
        (void)atomic_fetch_add_explicit(counter, *tally, memory_order_relaxed);
    *tally = 0;
}

static void tell_all(struct yolk_engine *engine, struct batch *batch)
{
    struct batch_pass *pass = &batch->pass;
    tell_alike(engine, batch);
    metrics_run_end(shard_of(engine, batch), &pass->run);
    tell(&engine->counters.ok, &pass->ok);
    tell(&engine->counters.slices, &pass->slices);
    tell(&engine->counters.bytes_read, &pass->bytes_read);
    tell(&engine->counters.bytes_written, &pass->bytes_written);
}

void counted_end_slowly(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                        uint64_t now_ns)
{
    struct batch_pass *pass = &batch->pass;
    tell_alike(engine, batch);
    pass->alike = 1;
    pass->alike_index = index;
    pass->alike_now_ns = now_ns;
    if (!pass->active)
        tell_all(engine, batch);
}

void counted_pass_end(struct yolk_engine *engine, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->channel_count; i++)
        if (batch->channels[i].channel != NULL)
            counted_channel_end(engine, batch, &batch->channels[i]);
    tell_all(engine, batch);
    batch->pass.active = false;
}
