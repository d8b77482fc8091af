/* SPDX-License-Identifier: Apache-2.0 */
/* Batches as callers see them: handles, poll, wait, cancel, free. submit.c fills them, batch_run.c
 * moves them on.
 *
 * A slot is never freed before the engine, so a handle is looked up without a lock of the whole
 * engine: load the chunk, lock the slot, compare the generation. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/bulk.h"
#include "engine/counted.h"
#include "platform/clock.h"

enum { WAIT_FDS_MAX = 256, WAIT_PAUSE_MAX_NS = 20000000, WAIT_SPIN_NS = 50000, WAIT_SPINS = 64 };
/* So long after something moved the next is looked for without sleep: what flows comes sooner than
 * a sleeper wakes. */
enum { WAIT_HOT_NS = 30000, WAIT_HOT_SPINS = 1000 };

static struct batch *slot_at(struct yolk_engine *engine, uint32_t index)
{
    if (index >= ENGINE_BATCH_CHUNK * ENGINE_BATCH_CHUNKS_MAX)
        return NULL;
    struct batch *chunk = atomic_load_explicit(&engine->batches.chunks[index / ENGINE_BATCH_CHUNK],
                                               memory_order_acquire);
    return chunk == NULL ? NULL : &chunk[index % ENGINE_BATCH_CHUNK];
}

struct batch *batch_lock(struct yolk_engine *engine, uint64_t handle)
{
    struct batch *batch = engine == NULL ? NULL : slot_at(engine, (uint32_t)handle);
    if (batch != NULL) {
        pthread_mutex_lock(&batch->lock);
        if (batch->live && batch->generation == (uint32_t)(handle >> 32))
            return batch;
        pthread_mutex_unlock(&batch->lock);
    }
    (void)base_fail(YOLK_ERR_STALE, 0, "there is no such batch, or not any more");
    return NULL;
}

/* The table's lock is held. */
static struct batch *new_chunk(struct batch_table *table)
{
    uint32_t place = table->count / ENGINE_BATCH_CHUNK;
    if (place == ENGINE_BATCH_CHUNKS_MAX)
        return NULL;
    struct batch *chunk = calloc(ENGINE_BATCH_CHUNK, sizeof(*chunk));
    if (chunk == NULL)
        return NULL;
    for (uint32_t i = 0; i < ENGINE_BATCH_CHUNK; i++) {
        pthread_mutex_init(&chunk[i].lock, NULL);
        base_list_init(&chunk[i].quarantine);
        staging_user_init(&chunk[i].stage.user);
        chunk[i].stage.head = STAGING_NONE;
        base_list_init(&chunk[i].gate.node);
        atomic_init(&chunk[i].gate.released, BATCH_NONE);
        chunk[i].gate.ended = BATCH_NONE;
        chunk[i].index = table->count + i;
        /* The first slot is used at once, the others are linked in rising order. */
        chunk[i].next_free = i + 1 < ENGINE_BATCH_CHUNK ? table->count + i + 1 : table->free_head;
    }
    table->free_head = table->count + 1;
    table->count += ENGINE_BATCH_CHUNK;
    atomic_store_explicit(&table->chunks[place], chunk, memory_order_release);
    return chunk;
}

static struct batch *take_slot(struct yolk_engine *engine)
{
    struct batch_table *table = &engine->batches;
    struct batch *batch;
    pthread_mutex_lock(&table->lock);
    if (table->free_head != BATCH_NONE) {
        batch = slot_at(engine, table->free_head);
        table->free_head = batch->next_free;
    } else {
        batch = new_chunk(table);
    }
    pthread_mutex_unlock(&table->lock);
    if (batch != NULL)
        atomic_fetch_add(&table->in_use, 1);
    return batch;
}

void batch_give_slot_back(struct yolk_engine *engine, struct batch *batch)
{
    pthread_mutex_lock(&engine->batches.lock);
    batch->next_free = engine->batches.free_head;
    engine->batches.free_head = batch->index;
    pthread_mutex_unlock(&engine->batches.lock);
    atomic_fetch_sub(&engine->batches.in_use, 1);
}

enum yolk_status yolk_engine_batch_create(struct yolk_engine *engine, uint32_t capacity,
                                          uint64_t *out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || out == NULL || capacity == 0 || capacity > ENGINE_BATCH_TASKS_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "a batch takes 1 to %d tasks, not %u",
                         ENGINE_BATCH_TASKS_MAX, capacity);
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    struct batch_state state;
    enum yolk_status status = batch_state_init(&state, capacity, engine->window_slices,
                                               engine->attempts_max, engine->drain_limit_ns);
    if (status != YOLK_OK)
        return status;
    /* Not cleared: each is when it is added, and of many that takes long. */
    struct engine_task *tasks = base_malloc((size_t)capacity * sizeof(*tasks));
    struct batch *batch = tasks == NULL ? NULL : take_slot(engine);
    if (batch == NULL) {
        free(tasks);
        batch_state_free(&state);
        return base_fail(tasks == NULL ? YOLK_ERR_NO_MEMORY : YOLK_ERR_LIMIT, 0,
                         "no room for another batch");
    }
    pthread_mutex_lock(&batch->lock);
    batch->state = state;
    batch->state.kinds = engine->kinds;
    batch->tasks = tasks;
    batch->failed = BATCH_NONE;
    batch->like = (struct engine_likeness){.registration = NULL};
    batch->mixed = false;
    batch->generation++;
    batch->live = true;
    batch->quarantined = false;
    *out = (uint64_t)batch->generation << 32 | batch->index;
    pthread_mutex_unlock(&batch->lock);
    return YOLK_OK;
}

enum yolk_status yolk_engine_batch_reset(struct yolk_engine *engine, uint64_t handle)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    enum yolk_status status = YOLK_OK;
    (void)batch_progress(engine, batch);
    if (batch->state.pending > 0 || batch->state.taken > 0)
        status = base_fail(YOLK_ERR_BUSY, 0, "%u tasks are not over yet, or their memory not quiet",
                           batch->state.pending);
    else {
        reason_forget(batch, 0);
        batch_state_reset(&batch->state);
        batch_pieces_free(batch);
    }
    pthread_mutex_unlock(&batch->lock);
    return status;
}

static void tell_status(struct yolk_engine *engine, const struct batch *batch, uint32_t index,
                        struct yolk_task_status *out)
{
    const struct batch_task *task = &batch->state.tasks[index];
    uint8_t transport = batch->tasks[task->head].last_transport;
    memset(out, 0, sizeof(*out));
    out->terminal = task->terminal;
    out->status = task->terminal ? task->failure : YOLK_OK;
    out->transferred = task->done;
    out->cookie = task->cookie;
    out->staged = batch->tasks[task->head].staged;
    if (transport != ENGINE_NO_TRANSPORT) {
        const char *name = engine->transports[transport].ops.name;
        memcpy(out->transport, name, strnlen(name, sizeof(out->transport) - 1));
    }
}

enum yolk_status engine_batch_look(struct yolk_engine *engine, uint64_t handle, uint32_t first,
                                   uint32_t count, struct yolk_task_status *out)
{
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    enum yolk_status result = YOLK_OK;
    if (first > batch->state.task_count || count > batch->state.task_count - first)
        result = base_fail(YOLK_ERR_INVALID, 0, "the batch has no task %u", first + count - 1);
    for (uint32_t i = 0; i < count && result == YOLK_OK; i++)
        tell_status(engine, batch, first + i, &out[i]);
    pthread_mutex_unlock(&batch->lock);
    return result;
}

/* Who asks until a task is terminal is told so of one that there is not. */
static enum yolk_status tell_error(struct yolk_task_status *out, enum yolk_status status)
{
    if (out != NULL)
        *out = (struct yolk_task_status){.terminal = 1, .status = status};
    return status;
}

enum yolk_status yolk_engine_batch_poll(struct yolk_engine *engine, uint64_t handle, uint32_t index,
                                        struct yolk_task_status *out)
{
    if (engine_is_forked(engine))
        return tell_error(out, engine_refuse_forked());
    if (engine != NULL)
        quarantine_step(engine);
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL)
        return tell_error(out, YOLK_ERR_STALE);
    enum yolk_status result = YOLK_OK;
    if (index >= batch->state.task_count || out == NULL) {
        result = tell_error(out, base_fail(YOLK_ERR_INVALID, 0, "the batch has no task %u", index));
    } else {
        const struct batch_task *task = &batch->state.tasks[index];
        batch->no_failover = !engine->failover_on_poll;
        if (!task->terminal || task->taken > 0) /* one that is stuck may have become quiet */
            (void)batch_progress(engine, batch);
        batch->no_failover = false;
        tell_status(engine, batch, index, out);
        if (task->terminal && task->failure != YOLK_OK)
            reason_tell(engine, batch, index);
    }
    pthread_mutex_unlock(&batch->lock);
    return result;
}

enum yolk_status yolk_engine_batch_progress(struct yolk_engine *engine, uint64_t handle,
                                            uint32_t *pending)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct batch *batch = batch_lock(engine, handle);
    if (pending != NULL)
        *pending = 0;
    if (batch == NULL)
        return YOLK_ERR_STALE;
    (void)batch_progress(engine, batch);
    if (pending != NULL)
        *pending = batch->state.pending;
    pthread_mutex_unlock(&batch->lock);
    quarantine_step(engine);
    return YOLK_OK;
}

/* STUCK before failures before TIMEOUT before CANCELED before INVALID. */
static uint32_t gravity(enum yolk_status status)
{
    switch (status) {
    case YOLK_OK:
        return 0;
    case YOLK_ERR_INVALID:
        return 1;
    case YOLK_ERR_CANCELED:
        return 2;
    case YOLK_ERR_TIMEOUT:
        return 3;
    case YOLK_ERR_STUCK:
        return 5;
    default:
        return 4;
    }
}

static enum yolk_status look_at_all(struct yolk_engine *engine, uint64_t handle, bool poll,
                                    struct yolk_batch_status *out, struct yolk_task_status *tasks,
                                    uint32_t room)
{
    if (out == NULL || (tasks == NULL && room > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "the status of a batch needs room for it");
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    if (poll && (batch->state.pending > 0 || batch->state.taken > 0)) {
        batch->no_failover = !engine->failover_on_poll;
        (void)batch_progress(engine, batch);
        batch->no_failover = false;
    }
    uint32_t worst = BATCH_NONE;
    *out = (struct yolk_batch_status){.tasks = batch->state.task_count,
                                      .pending = batch->state.pending};
    for (uint32_t i = 0; i < batch->state.task_count; i++) {
        const struct batch_task *task = &batch->state.tasks[i];
        out->transferred += task->done;
        if (task->terminal && gravity(task->failure) > gravity(out->worst)) {
            out->worst = task->failure;
            worst = i;
        }
        if (i < room)
            tell_status(engine, batch, i, &tasks[i]);
    }
    if (worst != BATCH_NONE)
        reason_tell(engine, batch, worst);
    pthread_mutex_unlock(&batch->lock);
    return YOLK_OK;
}

enum yolk_status yolk_engine_batch_poll_all(struct yolk_engine *engine, uint64_t handle,
                                            struct yolk_batch_status *out,
                                            struct yolk_task_status *tasks, uint32_t room)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    return look_at_all(engine, handle, true, out, tasks, room);
}

enum yolk_status yolk_engine_batch_look(struct yolk_engine *engine, uint64_t handle,
                                        struct yolk_batch_status *out,
                                        struct yolk_task_status *tasks, uint32_t room)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    return look_at_all(engine, handle, false, out, tasks, room);
}

/* What to wait for; complete: each channel with something in flight said so. */
static uint32_t collect_fds(struct yolk_engine *engine, struct batch *batch, struct pollfd *fds,
                            bool *complete)
{
    uint32_t count = 0;
    *complete = true;
    for (uint32_t i = 0; i < batch->channel_count; i++) {
        struct engine_channel *channel = &batch->channels[i];
        if (channel->channel == NULL || channel->in_flight == 0)
            continue;
        uint32_t n = engine->transports[channel->transport].ops.wait_fds(
            channel->channel, fds + count, WAIT_FDS_MAX - count);
        *complete = *complete && n > 0;
        count += n;
    }
    *complete = *complete && count > 0 && batch->gate.held == 0 && !stage_is_busy(&batch->stage);
    return count;
}

/* Not under the lock: others may cancel meanwhile, so each pause is short. */
static void pause_until(struct pollfd *fds, uint32_t count, bool complete, uint64_t now_ns,
                        uint64_t until_ns, uint32_t idle)
{
    if (!complete && idle < WAIT_SPINS) {
        (void)sched_yield();
        return;
    }
    uint64_t most = complete ? WAIT_PAUSE_MAX_NS : WAIT_SPIN_NS;
    uint64_t left = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec pause = {0, (long)(left < most ? left : most)};
    (void)ppoll(fds, count, &pause, NULL);
}

enum yolk_status yolk_engine_batch_wait(struct yolk_engine *engine, uint64_t handle,
                                        uint64_t deadline_ns)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct pollfd fds[WAIT_FDS_MAX];
    uint64_t until = deadline_ns == 0 ? BATCH_NEVER : deadline_ns;
    uint64_t hot_ns = 0;
    for (uint32_t idle = 0;; idle++) {
        struct batch *batch = batch_lock(engine, handle);
        if (batch == NULL)
            return YOLK_ERR_STALE;
        bool moved = batch_progress(engine, batch);
        uint64_t now_ns = engine_now(engine);
        if (moved || idle == 0) {
            idle = 0;
            hot_ns = clock_after(now_ns, WAIT_HOT_NS);
        }
        bool hot = now_ns < hot_ns && idle < WAIT_HOT_SPINS;
        uint32_t pending = batch->state.pending;
        bool complete = false;
        uint32_t count = hot ? 0 : collect_fds(engine, batch, fds, &complete);
        uint64_t due = batch->state.next_due_ns;
        if (pending == 0)
            reason_tell_first(engine, batch);
        pthread_mutex_unlock(&batch->lock);
        if (pending == 0)
            return YOLK_OK;
        if (now_ns >= until)
            return base_fail(YOLK_ERR_TIMEOUT, 0, "%u tasks are not over yet", pending);
        if (hot)
            (void)sched_yield();
        else
            pause_until(fds, count, complete, now_ns, due < until ? due : until, idle);
    }
}

enum yolk_status yolk_engine_batch_cancel(struct yolk_engine *engine, uint64_t handle,
                                          uint32_t index)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    bool there = index < batch->state.task_count;
    if (there)
        batch_end_task(engine, batch, index, YOLK_ERR_CANCELED);
    (void)batch_progress(engine, batch);
    enum yolk_status result =
        there ? YOLK_OK : base_fail(YOLK_ERR_INVALID, 0, "the batch has no task %u", index);
    pthread_mutex_unlock(&batch->lock);
    return result;
}

/* The lock is held and given up. */
static void free_locked(struct yolk_engine *engine, struct batch *batch)
{
    batch->live = false; /* the handle is dead from here on */
    for (uint32_t i = 0; i < batch->state.task_count && batch->state.pending > 0; i++)
        batch_end_task(engine, batch, i, YOLK_ERR_CANCELED);
    (void)batch_progress(engine, batch);
    bool quiet = batch_reclaim(engine, batch);
    if (!quiet)
        quarantine_add(engine, batch);
    pthread_mutex_unlock(&batch->lock);
    if (quiet)
        batch_give_slot_back(engine, batch);
}

enum yolk_status yolk_engine_batch_free(struct yolk_engine *engine, uint64_t handle)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct batch *batch = batch_lock(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    free_locked(engine, batch);
    return YOLK_OK;
}

void batches_free_all(struct yolk_engine *engine)
{
    for (uint32_t i = 0;; i++) {
        struct batch *batch = slot_at(engine, i);
        if (batch == NULL)
            return;
        pthread_mutex_lock(&batch->lock);
        if (batch->live)
            free_locked(engine, batch);
        else
            pthread_mutex_unlock(&batch->lock);
    }
}

void batches_destroy_table(struct yolk_engine *engine)
{
    for (uint32_t i = 0; i < ENGINE_BATCH_CHUNKS_MAX; i++) {
        struct batch *chunk = atomic_load(&engine->batches.chunks[i]);
        for (uint32_t k = 0; chunk != NULL && k < ENGINE_BATCH_CHUNK; k++)
            pthread_mutex_destroy(&chunk[k].lock);
        free(chunk);
    }
    pthread_mutex_destroy(&engine->batches.lock);
}
