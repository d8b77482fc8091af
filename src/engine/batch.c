/* SPDX-License-Identifier: Apache-2.0 */
/* Batches as callers see them: handles, submit, poll, wait, cancel, free. batch_run.c moves them
 * on.
 *
 * A slot is never freed before the engine, so a handle is looked up without a lock of the whole
 * engine: load the chunk, lock the slot, compare the generation. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "engine/bulk.h"
#include "engine/counted.h"
#include "engine/merge.h"
#include "platform/clock.h"

enum { WAIT_FDS_MAX = 64, WAIT_PAUSE_MAX_NS = 20000000, WAIT_SPIN_NS = 50000, WAIT_SPINS = 64 };
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

/* The batch, locked, or NULL with last_error set. */
static struct batch *lock_batch(struct yolk_engine *engine, uint64_t handle)
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
        base_list_init(&chunk[i].gate.node);
        atomic_init(&chunk[i].gate.released, BATCH_NONE);
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
    if (engine == NULL || out == NULL || capacity == 0 || capacity > ENGINE_BATCH_TASKS_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "a batch takes 1 to %d tasks",
                         ENGINE_BATCH_TASKS_MAX);
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    struct batch_state state;
    enum yolk_status status = batch_state_init(&state, capacity, engine->window_slices,
                                               engine->attempts_max, engine->drain_limit_ns);
    if (status != YOLK_OK)
        return status;
    struct engine_task *tasks = calloc(capacity, sizeof(*tasks));
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
    batch->generation++;
    batch->live = true;
    batch->quarantined = false;
    *out = (uint64_t)batch->generation << 32 | batch->index;
    pthread_mutex_unlock(&batch->lock);
    return YOLK_OK;
}

static bool range_is_stuck(struct yolk_engine *engine, const void *pointer, uint64_t size)
{
    if (atomic_load_explicit(&engine->stuck_count, memory_order_acquire) == 0)
        return false;
    uint64_t start = (uint64_t)(uintptr_t)pointer;
    bool found = false;
    pthread_mutex_lock(&engine->stuck_lock);
    BASE_LIST_FOREACH(node, &engine->stuck)
    {
        const struct engine_task *task = BASE_CONTAINER(node, struct engine_task, stuck);
        uint64_t its = (uint64_t)(uintptr_t)task->local;
        found = found || (start < its + task->size && its < start + size);
    }
    pthread_mutex_unlock(&engine->stuck_lock);
    return found;
}

/* What the request before this one of the same call was given: its task still holds it, so another
 * reference needs no lock. */
struct admitted {
    const struct prepared_entry *given; /* of the next request, what was found before; or NULL */
    uint64_t deadline_ns;               /* in place of each request's own; 0: not */
    uint32_t accepted, merged;
    const struct yolk_request *request; /* NULL: none */
    uint64_t handle;
    struct segment *segment; /* NULL: none */
    struct registration *registration;
};

static struct segment *take_segment(struct yolk_engine *engine, uint64_t handle,
                                    const struct admitted *before)
{
    if (before->given != NULL)
        return segment_take(before->given->segment);
    if (before->segment == NULL || before->handle != handle)
        return segment_acquire(engine, handle);
    atomic_fetch_add_explicit(&before->segment->references, 1, memory_order_relaxed);
    return before->segment;
}

static struct registration *take_registration(struct yolk_engine *engine, const void *pointer,
                                              uint64_t size, const struct admitted *before)
{
    struct registration *same =
        before->given != NULL ? before->given->registration : before->registration;
    uint64_t inside = (uint64_t)(uintptr_t)pointer - (same != NULL ? same->start : 0);
    if (same == NULL || inside > same->size || size > same->size - inside)
        return registry_acquire(engine, pointer, size);
    atomic_fetch_add_explicit(&same->in_flight, 1, memory_order_relaxed);
    return same;
}

static uint64_t deadline_of(const struct admitted *before, const struct yolk_request *request)
{
    return before->deadline_ns != 0 ? before->deadline_ns : request->deadline_ns;
}

static enum yolk_status read_wish(struct yolk_engine *engine, const struct yolk_request *request,
                                  struct segment *segment, const struct registration *registration,
                                  const struct admitted *before, struct engine_task *task)
{
    enum yolk_status status = YOLK_OK;
    if (before->given != NULL)
        task->wish = before->given->wish;
    else
        status =
            engine_wish_read(engine, request, task->priority, segment, registration, &task->wish);
    if (status != YOLK_OK || task->gate.contract == NULL)
        return status;
    task->wish.first_only = (task->gate.contract->actions & QOS_FALLBACK_TRANSPORT) == 0;
    task->staging = request->intent == YOLK_INTENT_STAGING_INTERNAL;
    return gate_check(engine, &task->gate, request);
}

static enum yolk_status check_request(const struct yolk_request *request, bool plain)
{
    if (request->opcode != YOLK_READ && request->opcode != YOLK_WRITE)
        return base_fail(YOLK_ERR_INVALID, 0, "opcode %d is none", (int)request->opcode);
    return plain ? YOLK_OK : engine_check_request(request);
}

/* References to what the request is about; *registration NULL for one without bytes. */
static enum yolk_status find(struct yolk_engine *engine, const struct yolk_request *request,
                             const struct admitted *before, struct segment **segment,
                             struct registration **registration)
{
    *registration = NULL;
    *segment = take_segment(engine, request->segment, before);
    if (*segment == NULL)
        return base_fail(YOLK_ERR_STALE, 0,
                         before->given == NULL ? "the segment handle was closed"
                                               : "the segment was closed, or its provider has "
                                                 "another life");
    enum yolk_status status = YOLK_OK;
    if (request->size > (*segment)->size || request->offset > (*segment)->size - request->size)
        status =
            base_fail(YOLK_ERR_INVALID, 0, "%llu + %llu lies outside the segment of %llu bytes",
                      (unsigned long long)request->offset, (unsigned long long)request->size,
                      (unsigned long long)(*segment)->size);
    else if (request->size > 0 && (*registration = take_registration(
                                       engine, request->local, request->size, before)) == NULL)
        status = base_fail(YOLK_ERR_NOT_REGISTERED, 0, "%p + %llu is not inside a registered range",
                           request->local, (unsigned long long)request->size);
    if (status != YOLK_OK)
        segment_release(*segment);
    return status;
}

enum yolk_status engine_find(struct yolk_engine *engine, const struct yolk_request *request,
                             struct prepared_entry *out)
{
    const struct admitted nothing = {0};
    enum yolk_priority priority = request->priority;
    enum yolk_status status = check_request(request, false);
    if (status == YOLK_OK)
        status = find(engine, request, &nothing, &out->segment, &out->registration);
    if (status != YOLK_OK)
        return status;
    (void)gate_contract(engine, request, &priority);
    status =
        engine_wish_read(engine, request, priority, out->segment, out->registration, &out->wish);
    if (status != YOLK_OK)
        engine_forget(out);
    return status;
}

void engine_forget(struct prepared_entry *entry)
{
    if (entry->registration != NULL)
        registry_release(entry->registration);
    segment_release(entry->segment);
}

/* Checks all that can be checked without touching memory; takes the references a task needs. */
static enum yolk_status admit(struct yolk_engine *engine, const struct yolk_request *request,
                              uint64_t now_ns, struct admitted *before, struct engine_task *task)
{
    enum yolk_status status = YOLK_OK;
    bool plain = before->given != NULL || engine_request_is_plain(request);
    if (before->given == NULL && (status = check_request(request, plain)) != YOLK_OK)
        return status;
    task->wish = engine->wish;
    task->priority = request->priority;
    if (engine->gate.on)
        task->gate.contract = gate_contract(engine, request, &task->priority);
    uint64_t deadline_ns = deadline_of(before, request);
    if (deadline_ns != 0 && deadline_ns <= now_ns)
        return base_fail(YOLK_ERR_TIMEOUT, 0, "the deadline passed before the request began");
    struct segment *segment;
    struct registration *registration;
    status = find(engine, request, before, &segment, &registration);
    if (status != YOLK_OK)
        return status;
    if (request->size > 0 && range_is_stuck(engine, request->local, request->size))
        status = base_fail(YOLK_ERR_BUSY, 0, "a stuck request may still touch this memory");
    else if (!plain || before->given != NULL || engine->has_policies || engine->gate.on ||
             engine->wish.direct)
        status = read_wish(engine, request, segment, registration, before, task);
    if (status != YOLK_OK) {
        if (registration != NULL)
            registry_release(registration);
        segment_release(segment);
        return status;
    }
    task->registration = registration;
    task->segment = segment;
    task->local = request->local;
    task->offset = request->offset;
    task->size = request->size;
    task->ticket = request->ticket;
    task->opcode = request->opcode;
    before->request = request;
    before->handle = request->segment;
    before->segment = segment;
    if (registration != NULL)
        before->registration = registration;
    return YOLK_OK;
}

/* A policy may be for requests of this one's size and not of the other's. */
static bool same_wish(struct yolk_engine *engine, const struct yolk_request *request,
                      const struct admitted *before, const struct engine_task *task)
{
    struct engine_wish wish;
    if (!engine->has_policies)
        return true;
    if (engine_wish_read(engine, request, task->priority, before->segment, before->registration,
                         &wish) != YOLK_OK)
        return false;
    return wish.policy == task->wish.policy;
}

/* Whether the request goes on where the one before it in the same submit ends. */
static bool joins(struct yolk_engine *engine, const struct batch *batch,
                  const struct yolk_request *request, const struct admitted *before)
{
    const struct registration *registration = before->registration;
    if (engine->merge_bytes_max == 0 || before->request == NULL || before->request + 1 != request ||
        registration == NULL)
        return false;
    uint32_t head = batch->state.tasks[batch->state.task_count - 1].head;
    /* A file's device does several at once sooner than one long one. */
    if (before->segment->file ||
        !merge_joins(before->request, request, batch->state.tasks[head].span,
                     engine->merge_bytes_max))
        return false;
    uint64_t inside = (uint64_t)(uintptr_t)request->local - registration->start;
    const struct engine_task *task = &batch->tasks[head];
    return inside <= registration->size && request->size <= registration->size - inside &&
           request->size <= before->segment->size - request->offset &&
           !range_is_stuck(engine, request->local, request->size) &&
           gate_may_merge(engine, &task->gate, batch->state.tasks[head].span + request->size) &&
           same_wish(engine, request, before, task);
}

/* The head of the group holds what all of it needs. */
static void join_task(struct batch *batch, const struct yolk_request *request,
                      struct admitted *before)
{
    uint32_t index = batch_state_join(&batch->state, request->size, request->cookie);
    struct engine_task *task = &batch->tasks[index];
    memset(task, 0, sizeof(*task));
    base_list_init(&task->stuck);
    task->local = request->local;
    task->size = request->size;
    before->request = request;
    before->accepted++;
    before->merged++;
}

static void add_task(struct yolk_engine *engine, struct batch *batch,
                     const struct yolk_request *request, uint64_t now_ns, struct admitted *before,
                     enum yolk_status *verdict)
{
    struct engine_task *task = &batch->tasks[batch->state.task_count];
    *verdict = YOLK_OK;
    if (joins(engine, batch, request, before)) {
        join_task(batch, request, before);
        return;
    }
    memset(task, 0, sizeof(*task));
    base_list_init(&task->stuck);
    task->channel = BATCH_NONE;
    task->last_transport = ENGINE_NO_TRANSPORT;
    task->times.submitted = counted_tick(now_ns);
    task->times.failed_from = METRICS_NO_TRANSPORT;
    *verdict = admit(engine, request, now_ns, before, task);
    if (*verdict != YOLK_OK) {
        (void)batch_state_reject(&batch->state, *verdict, request->cookie);
        task->counted = true;
        task->gate.contract = NULL;
        return;
    }
    before->accepted++;
    uint64_t deadline = deadline_of(before, request);
    if (deadline == 0)
        deadline = BATCH_NEVER;
    const struct batch_rank rank = {.level = (uint8_t)task->priority,
                                    .exact = (request->flags & YOLK_REQUEST_EXACT) != 0,
                                    .held = engine->gate.on,
                                    .now_ns = now_ns};
    (void)batch_state_add_ranked(&batch->state, request->size, deadline, request->cookie, rank);
}

/* The gate has no room for all: as if the submit had never been. */
static void take_back(struct yolk_engine *engine, struct batch *batch, uint32_t first)
{
    for (uint32_t i = first; i < batch->state.task_count; i++) {
        struct engine_task *task = &batch->tasks[i];
        if (task->gate.contract != NULL)
            gate_forget(engine, &task->gate, task->size);
        if (task->registration != NULL)
            registry_release(task->registration);
        if (task->segment != NULL)
            segment_release(task->segment);
    }
    batch_state_truncate(&batch->state, first);
}

enum { WHY_SIZE = 512 };

/* why: of the first verdict that is not YOLK_OK. */
static enum yolk_status add_all(struct yolk_engine *engine, struct batch *batch,
                                const struct submission *from, enum yolk_status *verdicts,
                                char why[WHY_SIZE])
{
    uint64_t now_ns = engine_now(engine);
    uint32_t first = batch->state.task_count;
    struct admitted before = {.deadline_ns = from->deadline_ns};
    enum yolk_status result = YOLK_OK;
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t n = from->indices != NULL ? from->indices[i] : i;
        enum yolk_status verdict;
        before.given = from->given != NULL ? &from->given[n] : NULL;
        add_task(engine, batch, &from->requests[n], now_ns, &before, &verdict);
        if (verdicts != NULL)
            verdicts[i] = verdict;
        if (result == YOLK_OK && verdict != YOLK_OK) {
            result = verdict;
            snprintf(why, WHY_SIZE, "%s", yolk_last_error());
        }
    }
    if (engine->gate.on) {
        enum yolk_status status = gate_admit(engine, batch, first, now_ns);
        if (status != YOLK_OK) {
            take_back(engine, batch, first);
            for (uint32_t i = 0; i < from->count && verdicts != NULL; i++)
                verdicts[i] = status;
            snprintf(why, WHY_SIZE, "%s", yolk_last_error());
            return status;
        }
    }
    ENGINE_COUNT(engine, submitted, before.accepted);
    if (before.merged > 0)
        ENGINE_COUNT(engine, merged, before.merged);
    return result;
}

enum yolk_status engine_submit(struct yolk_engine *engine, uint64_t handle,
                               const struct submission *from, enum yolk_status *verdicts,
                               uint32_t *first)
{
    struct batch *batch = lock_batch(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    enum yolk_status result = YOLK_OK;
    if (atomic_load(&engine->closing)) {
        result = YOLK_ERR_CLOSED;
    } else if (from->count > batch->state.task_room - batch->state.task_count) {
        result = base_fail(YOLK_ERR_LIMIT, 0, "the batch has room for %u more tasks, not %u",
                           batch->state.task_room - batch->state.task_count, from->count);
    } else {
        uint32_t begin = batch->state.task_count;
        char why[WHY_SIZE];
        result = add_all(engine, batch, from, verdicts, why);
        if (first != NULL && (result == YOLK_OK || batch->state.task_count > begin))
            *first = begin; /* else nothing was taken */
        (void)batch_progress(engine, batch);
        if (result != YOLK_OK)
            (void)base_fail(result, 0, "%s", why); /* what came since is of the others */
    }
    pthread_mutex_unlock(&batch->lock);
    return result;
}

enum yolk_status yolk_engine_batch_submit(struct yolk_engine *engine, uint64_t handle,
                                          const struct yolk_request *requests, uint32_t count,
                                          enum yolk_status *verdicts, uint32_t *first)
{
    if (engine == NULL || (count > 0 && (requests == NULL || verdicts == NULL)))
        return base_fail(YOLK_ERR_INVALID, 0, "requests and verdicts are required");
    const struct submission from = {.requests = requests, .count = count};
    return engine_submit(engine, handle, &from, verdicts, first);
}

enum yolk_status yolk_engine_batch_reset(struct yolk_engine *engine, uint64_t handle)
{
    struct batch *batch = lock_batch(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    enum yolk_status status = YOLK_OK;
    (void)batch_progress(engine, batch);
    if (batch->state.pending > 0 || batch->state.taken > 0)
        status = base_fail(YOLK_ERR_BUSY, 0, "%u tasks are not over yet, or their memory not quiet",
                           batch->state.pending);
    else
        batch_state_reset(&batch->state);
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
    if (transport != ENGINE_NO_TRANSPORT) {
        const char *name = engine->transports[transport].ops.name;
        memcpy(out->transport, name, strnlen(name, sizeof(out->transport) - 1));
    }
}

enum yolk_status engine_batch_look(struct yolk_engine *engine, uint64_t handle, uint32_t first,
                                   uint32_t count, struct yolk_task_status *out)
{
    struct batch *batch = lock_batch(engine, handle);
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
    struct batch *batch = lock_batch(engine, handle);
    if (batch == NULL)
        return tell_error(out, YOLK_ERR_STALE);
    enum yolk_status result = YOLK_OK;
    if (index >= batch->state.task_count || out == NULL) {
        result = tell_error(out, base_fail(YOLK_ERR_INVALID, 0, "the batch has no task %u", index));
    } else {
        const struct batch_task *task = &batch->state.tasks[index];
        batch->no_failover = !engine->failover_on_poll;
        if (!task->terminal)
            (void)batch_progress(engine, batch);
        batch->no_failover = false;
        tell_status(engine, batch, index, out);
    }
    pthread_mutex_unlock(&batch->lock);
    quarantine_step(engine);
    return result;
}

enum yolk_status yolk_engine_batch_progress(struct yolk_engine *engine, uint64_t handle,
                                            uint32_t *pending)
{
    struct batch *batch = lock_batch(engine, handle);
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
    struct batch *batch = lock_batch(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    if (poll && batch->state.pending > 0) {
        batch->no_failover = !engine->failover_on_poll;
        (void)batch_progress(engine, batch);
        batch->no_failover = false;
    }
    *out = (struct yolk_batch_status){.tasks = batch->state.task_count,
                                      .pending = batch->state.pending};
    for (uint32_t i = 0; i < batch->state.task_count; i++) {
        const struct batch_task *task = &batch->state.tasks[i];
        out->transferred += task->done;
        if (task->terminal && gravity(task->failure) > gravity(out->worst))
            out->worst = task->failure;
        if (i < room)
            tell_status(engine, batch, i, &tasks[i]);
    }
    pthread_mutex_unlock(&batch->lock);
    return YOLK_OK;
}

enum yolk_status yolk_engine_batch_poll_all(struct yolk_engine *engine, uint64_t handle,
                                            struct yolk_batch_status *out,
                                            struct yolk_task_status *tasks, uint32_t room)
{
    return look_at_all(engine, handle, true, out, tasks, room);
}

enum yolk_status yolk_engine_batch_look(struct yolk_engine *engine, uint64_t handle,
                                        struct yolk_batch_status *out,
                                        struct yolk_task_status *tasks, uint32_t room)
{
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
    *complete = *complete && count > 0 && batch->gate.held == 0;
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
    struct pollfd fds[WAIT_FDS_MAX];
    uint64_t until = deadline_ns == 0 ? BATCH_NEVER : deadline_ns;
    uint64_t hot_ns = 0;
    for (uint32_t idle = 0;; idle++) {
        struct batch *batch = lock_batch(engine, handle);
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
    struct batch *batch = lock_batch(engine, handle);
    if (batch == NULL)
        return YOLK_ERR_STALE;
    enum yolk_status result = YOLK_OK;
    if (index >= batch->state.task_count)
        result = base_fail(YOLK_ERR_INVALID, 0, "the batch has no task %u", index);
    else
        batch_end_task(engine, batch, index, YOLK_ERR_CANCELED);
    (void)batch_progress(engine, batch);
    pthread_mutex_unlock(&batch->lock);
    return result;
}

/* The lock is held and given up. */
static void free_locked(struct yolk_engine *engine, struct batch *batch)
{
    batch->live = false; /* the handle is dead from here on */
    for (uint32_t i = 0; i < batch->state.task_count; i++)
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
    struct batch *batch = lock_batch(engine, handle);
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
