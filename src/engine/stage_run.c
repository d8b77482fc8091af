/* SPDX-License-Identifier: Apache-2.0 */
/* The slices of a batch that go through the engine's memory: into the chunk, with the transport,
 * out of the chunk. For the batch's books they are taken all the while. The batch's lock is held.
 */
#include <string.h>

#include "base/error.h"
#include "engine/counted.h"
#include "engine/internal.h"

static struct stage_part *part_of(struct yolk_engine *engine, const struct engine_io *io)
{
    return &engine->stage.parts[io->chunk];
}

static void list_part(struct yolk_engine *engine, struct batch *batch, const struct engine_io *io)
{
    part_of(engine, io)->next = batch->stage.head;
    batch->stage.head = io->chunk;
}

/* The caller's memory that the slice is about; NULL: it lies in pieces. */
static uint8_t *outside(const struct batch *batch, uint32_t slice)
{
    return batch_local_at(batch, batch->state.slices[slice].task,
                          batch->state.slices[slice].offset);
}

static const struct registration *registered(const struct batch *batch, uint32_t slice)
{
    return batch->tasks[batch->state.slices[slice].task].registration;
}

/* Begins the copy that the slice wants next, out of the chunk or into it. */
static enum copy_state begin_copy(struct yolk_engine *engine, struct batch *batch, uint32_t slice,
                                  bool out, uint64_t size)
{
    struct engine_io *io = batch_io_at(batch, slice);
    struct stage_part *part = part_of(engine, io);
    const struct engine_task *task = &batch->tasks[batch->state.slices[slice].task];
    const struct registration *registration = task->registration;
    const struct copier *copier = stage_copier(&engine->stage, registration->gpu);
    void *chunk = stage_chunk(&engine->stage, io->chunk);
    void *memory = outside(batch, slice);
    part->job = (struct copy_job){.gpu = registration->gpu,
                                  .to_gpu = out,
                                  .pageable = atomic_load(&engine->stage.pinned) != 1,
                                  .pieces = task->pieces,
                                  .piece_count = task->piece_count,
                                  .skip = batch->state.slices[slice].offset};
    return copier->start(copier->self, out ? memory : chunk, out ? chunk : memory, size,
                         &part->job);
}

/* Nobody touches the caller's memory any more, nor the chunk, which is lost where nobody knows. */
static void finish(struct yolk_engine *engine, struct batch *batch, uint32_t slice,
                   enum yolk_status status, uint64_t transferred, uint64_t now_ns)
{
    struct engine_io *io = batch_io_at(batch, slice);
    struct engine_channel *channel = &batch->channels[io->channel];
    if (transferred > io->io.size)
        transferred = io->io.size;
    if (io->chunk != STAGING_NONE)
        stage_give(engine, batch, io);
    channel->in_flight--;
    channel->pass_staged_bytes += transferred;
    io->io.bounced = 0; /* none is counted twice */
    ENGINE_COUNT(engine, bytes_staged, transferred);
    batch_slice_over(engine, batch, io->io.cookie, status, transferred, now_ns);
}

/* The transport never had it, and shall not. */
static void give_up(struct yolk_engine *engine, struct batch *batch, uint32_t slice,
                    enum yolk_status status)
{
    struct engine_io *io = batch_io_at(batch, slice);
    counted_post(engine, batch, &batch->tasks[batch->state.slices[slice].task], io);
    finish(engine, batch, slice, status, 0, engine_now(engine));
}

/* A copy out of the chunk or into it ended, not well. */
static void copy_failed(struct yolk_engine *engine, struct batch *batch, uint32_t slice,
                        enum copy_state state)
{
    struct engine_io *io = batch_io_at(batch, slice);
    struct stage_part *part = part_of(engine, io);
    enum yolk_status status = part->job.status;
    bool posted = part->phase == STAGE_COPIED_OUT;
    if (state == COPY_STUCK)
        stage_lose(engine, batch, io);
    if (posted)
        finish(engine, batch, slice, status, 0, engine_now(engine));
    else
        give_up(engine, batch, slice, status);
}

/* As if it had not been taken. */
static void take_back(struct yolk_engine *engine, struct batch *batch, uint32_t slice)
{
    struct engine_io *io = batch_io_at(batch, slice);
    stage_give(engine, batch, io);
    batch->channels[io->channel].in_flight--;
    batch_state_untake(&batch->state, slice);
}

void stage_io_over(struct yolk_engine *engine, struct batch *batch, uint32_t slice,
                   enum yolk_status status, uint64_t transferred, uint64_t now_ns)
{
    struct engine_io *io = batch_io_at(batch, slice);
    struct stage_part *part = part_of(engine, io);
    if (transferred > io->io.size)
        transferred = io->io.size;
    if (io->io.opcode == YOLK_WRITE || transferred == 0) {
        finish(engine, batch, slice, status, transferred, now_ns);
        return;
    }
    /* Who ended meanwhile gets no bytes: its memory may be in use again, if it is stuck. */
    if (!batch_state_is_wanted(&batch->state, slice)) {
        finish(engine, batch, slice, status == YOLK_OK ? YOLK_ERR_CANCELED : status, 0, now_ns);
        return;
    }
    part->status = status;
    part->transferred = transferred;
    part->phase = STAGE_COPIED_OUT;
    enum copy_state state = begin_copy(engine, batch, slice, true, transferred);
    if (state == COPY_DONE)
        finish(engine, batch, slice, status, transferred, now_ns);
    else if (state == COPY_UNDER_WAY)
        list_part(engine, batch, io);
    else
        copy_failed(engine, batch, slice, state);
}

/* False: the channel is full; what is loaded stays so. */
static bool submit(struct yolk_engine *engine, struct batch *batch, uint32_t slice)
{
    struct engine_io *io = batch_io_at(batch, slice);
    struct stage_part *part = part_of(engine, io);
    struct engine_channel *channel = &batch->channels[io->channel];
    if (batch->state.slices[slice].cancel_asked || !batch_state_is_wanted(&batch->state, slice)) {
        give_up(engine, batch, slice, YOLK_ERR_CANCELED);
        return true;
    }
    if (channel->broken) {
        take_back(engine, batch, slice);
        return true;
    }
    part->phase = STAGE_POSTED;
    enum yolk_submit answer =
        channel->full
            ? YOLK_SUBMIT_AGAIN
            : engine->transports[channel->transport].ops.submit(channel->channel, &io->io);
    if (answer == YOLK_SUBMIT_AGAIN) {
        channel->full = true;
        part->phase = STAGE_LOADED;
        if (io->io.opcode == YOLK_WRITE)
            list_part(engine, batch, io);
        else
            take_back(engine, batch, slice);
        return false;
    }
    counted_post(engine, batch, &batch->tasks[batch->state.slices[slice].task], io);
    ENGINE_COUNT(engine, slices, 1);
    if (answer == YOLK_SUBMIT_FAILED) {
        enum yolk_status status = io->io.status != YOLK_OK ? io->io.status : YOLK_ERR_IO;
        stage_io_over(engine, batch, slice, status, io->io.transferred, engine_now(engine));
        return true;
    }
    channel->posted = true;
    if (answer == YOLK_SUBMIT_DONE)
        stage_io_over(engine, batch, slice, YOLK_OK, io->io.transferred, engine_now(engine));
    return true;
}

static bool load(struct yolk_engine *engine, struct batch *batch, uint32_t slice)
{
    struct engine_io *io = batch_io_at(batch, slice);
    struct stage_part *part = part_of(engine, io);
    part->phase = STAGE_COPIED_IN;
    enum copy_state state = begin_copy(engine, batch, slice, false, io->io.size);
    if (state == COPY_DONE)
        return submit(engine, batch, slice);
    if (state == COPY_UNDER_WAY)
        list_part(engine, batch, io);
    else
        copy_failed(engine, batch, slice, state);
    return true;
}

enum batch_post stage_post(struct yolk_engine *engine, struct batch *batch, uint32_t slice)
{
    struct engine_io *io = batch_io_at(batch, slice);
    uint32_t head = batch->state.slices[slice].task;
    if (!stage_take(engine, batch, io)) {
        batch_state_untake(&batch->state, slice);
        if (!stage_is_starved(engine, batch))
            return BATCH_POST_FULL;
        enum yolk_status status =
            base_fail(YOLK_ERR_LIMIT, 0,
                      "all %u chunks of staging memory are held by transfers that do not end",
                      engine->stage.staging.count);
        reason_keep(engine, batch, head, status, NULL);
        batch_end_group(engine, batch, head, status);
        return BATCH_POST_ENDED;
    }
    if (!batch->tasks[head].staged) {
        batch->tasks[head].staged = true;
        ENGINE_COUNT(engine, staged, batch->state.tasks[head].members);
    }
    batch->channels[io->channel].in_flight++;
    part_of(engine, io)->slice = slice;
    io->io.local = stage_chunk(&engine->stage, io->chunk);
    io->io.piece_count = 0;
    io->io.gpu = 0;
    io->io.key = engine->stage.keys[batch->channels[io->channel].transport];
    bool went = io->io.opcode == YOLK_WRITE && io->io.size > 0 ? load(engine, batch, slice)
                                                               : submit(engine, batch, slice);
    if (went)
        return BATCH_POST_WENT;
    batch_state_requeue(&batch->state, head);
    return BATCH_POST_FULL;
}

bool stage_is_posted(struct yolk_engine *engine, const struct engine_io *io)
{
    return io->chunk == STAGING_NONE || part_of(engine, io)->phase == STAGE_POSTED;
}

static bool step(struct yolk_engine *engine, struct batch *batch, uint32_t chunk)
{
    struct stage_part *part = &engine->stage.parts[chunk];
    uint32_t slice = part->slice;
    const struct copier *copier = stage_copier(&engine->stage, registered(batch, slice)->gpu);
    if (part->phase == STAGE_LOADED)
        return submit(engine, batch, slice);
    enum copy_state state = copier->poll(copier->self, &part->job);
    if (state == COPY_UNDER_WAY) {
        list_part(engine, batch, batch_io_at(batch, slice));
        return false;
    }
    if (state != COPY_DONE)
        copy_failed(engine, batch, slice, state);
    else if (part->phase == STAGE_COPIED_OUT)
        finish(engine, batch, slice, part->status, part->transferred, engine_now(engine));
    else
        (void)submit(engine, batch, slice);
    return true;
}

bool stage_work(struct yolk_engine *engine, struct batch *batch)
{
    bool moved = false;
    uint32_t chunk = batch->stage.head;
    batch->stage.head = STAGING_NONE;
    while (chunk != STAGING_NONE) {
        uint32_t next = engine->stage.parts[chunk].next;
        moved = step(engine, batch, chunk) || moved;
        chunk = next;
    }
    return moved;
}
