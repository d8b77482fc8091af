/* SPDX-License-Identifier: Apache-2.0 */
/* What one pass over a batch tells the metrics and the load of its routes. Everything is tallied in
 * the batch, whose lock is held, and told when the pass ends: a pass costs a few atomic additions
 * and two looks at the clock, whatever it moves. */
#include "engine/internal.h"

_Static_assert((int)ENGINE_TRANSPORTS_MAX <= (int)METRICS_NO_TRANSPORT,
               "every transport has a place in the metrics");

/* What is copied in the caller's thread takes this long at least, so the clock is looked at again:
 * a look costs as much as a few hundred bytes. */
enum { COPIED_UNDATED_MAX = 65536 };

static struct metrics_shard *shard_of(struct yolk_engine *engine, const struct batch *batch)
{
    return &engine->metrics->shards[batch->index % METRICS_SHARDS];
}

static uint64_t pass_now(struct yolk_engine *engine, struct batch *batch)
{
    struct batch_pass *pass = &batch->pass;
    if (!pass->active)
        return engine_now(engine);
    if (pass->now_ns == 0 || pass->copied >= COPIED_UNDATED_MAX) {
        pass->now_ns = engine_now(engine);
        pass->copied = 0;
    }
    return pass->now_ns;
}

static enum metrics_operation operation_of(enum yolk_opcode opcode)
{
    return opcode == YOLK_READ ? METRICS_READ : METRICS_WRITE;
}

void counted_pass_begin(struct batch *batch)
{
    batch->pass.active = true;
    batch->pass.now_ns = 0;
    batch->pass.copied = 0;
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
    if (pass->done_bytes > 0)
        metrics_path_bytes(shard, channel->transport, METRICS_DIRECT, pass->done_bytes);
    telemetry_count(&channel->segment->routes[channel->transport].load, pass,
                    channel->pass_begin_ns, engine_now(engine));
    *pass = (struct telemetry_pass){0};
}

void counted_pass_end(struct yolk_engine *engine, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->channel_count; i++)
        if (batch->channels[i].channel != NULL)
            counted_channel_end(engine, batch, &batch->channels[i]);
    metrics_run_end(shard_of(engine, batch), &batch->pass.run);
    batch->pass.active = false;
}

void counted_dispatch(struct yolk_engine *engine, struct batch *batch, uint32_t index)
{
    struct task_times *times = &batch->tasks[index].times;
    if (times->dispatched_ns == 0)
        times->dispatched_ns = pass_now(engine, batch);
}

void counted_post(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                  struct engine_io *entry)
{
    struct engine_task *task = &batch->tasks[index];
    struct task_times *times = &task->times;
    struct engine_channel *channel = &batch->channels[entry->channel];
    uint64_t now_ns = pass_now(engine, batch);
    entry->posted_ns = now_ns;
    if (times->posted_ns == 0)
        times->posted_ns = now_ns;
    if (channel->pass.posted_ios == 0)
        channel->pass_begin_ns = now_ns;
    channel->pass.posted_ios++;
    channel->pass.posted_bytes += entry->io.size;
    if ((times->attempting & UINT32_C(1) << channel->transport) != 0)
        return;
    times->attempting |= UINT32_C(1) << channel->transport;
    times->attempt_ns = now_ns;
    channel->attempts[operation_of(task->opcode)]++;
    if (times->failed_from != METRICS_NO_TRANSPORT && times->failed_from != channel->transport)
        metrics_failover(engine->metrics, times->failed_from, channel->transport);
    times->failed_from = METRICS_NO_TRANSPORT;
}

static bool ended_on_purpose(enum yolk_status status)
{
    return status == YOLK_ERR_CANCELED;
}

static void fail_attempt(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                         uint8_t transport, uint64_t now_ns)
{
    struct task_times *times = &task->times;
    if ((times->attempting & UINT32_C(1) << transport) == 0)
        return; /* another slice of it said so */
    times->attempting &= ~(UINT32_C(1) << transport);
    times->failed_from = transport;
    metrics_attempt_failed(shard_of(engine, batch), transport, operation_of(task->opcode),
                           now_ns > times->attempt_ns ? now_ns - times->attempt_ns : 0);
}

void counted_over(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                  const struct engine_io *entry, enum yolk_status status, uint64_t transferred,
                  uint64_t now_ns)
{
    struct engine_channel *channel = &batch->channels[entry->channel];
    struct telemetry_pass *pass = &channel->pass;
    if (now_ns == 0) {
        batch->pass.copied += transferred + 1024;
        now_ns = pass_now(engine, batch);
    } else {
        batch->pass.now_ns = now_ns;
    }
    pass->over_ios++;
    pass->over_bytes += entry->io.size;
    pass->done_bytes += transferred;
    pass->latency_ns += now_ns > entry->posted_ns ? now_ns - entry->posted_ns : 0;
    if (status == YOLK_OK || ended_on_purpose(status))
        return;
    pass->errors++;
    fail_attempt(engine, batch, &batch->tasks[index], channel->transport, now_ns);
}

void counted_refusal(struct yolk_engine *engine, struct batch *batch, struct engine_task *task,
                     uint8_t transport)
{
    uint64_t now_ns = engine_now(engine);
    task->times.attempting |= UINT32_C(1) << transport;
    task->times.attempt_ns = now_ns;
    metrics_attempts(shard_of(engine, batch), transport, operation_of(task->opcode), 1);
    fail_attempt(engine, batch, task, transport, now_ns);
}

static uint64_t span(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns != 0 && to_ns > from_ns ? to_ns - from_ns : 0;
}

void counted_end(struct yolk_engine *engine, struct batch *batch, uint32_t index)
{
    const struct batch_task *state = &batch->state.tasks[index];
    const struct engine_task *task = &batch->tasks[index];
    const struct task_times *times = &task->times;
    uint64_t now_ns = pass_now(engine, batch);
    struct metrics_request request = {
        .operation = operation_of(task->opcode),
        .transport = task->last_transport == ENGINE_NO_TRANSPORT ? METRICS_NO_TRANSPORT
                                                                 : task->last_transport,
        .failed = state->failure != YOLK_OK,
        .size = state->size,
        .latency_ns = span(times->submitted_ns, now_ns),
        .queue_ns = span(times->submitted_ns, times->dispatched_ns),
        .dispatch_ns = span(times->dispatched_ns, times->posted_ns),
        .transport_ns = span(times->posted_ns, now_ns),
        .attempt_ns = span(times->attempt_ns, now_ns),
        .window_ns =
            state->deadline_ns == BATCH_NEVER ? 0 : span(times->submitted_ns, state->deadline_ns),
    };
    metrics_request_over(shard_of(engine, batch), &batch->pass.run, &request);
    if (!batch->pass.active)
        metrics_run_end(shard_of(engine, batch), &batch->pass.run);
}
