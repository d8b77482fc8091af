/* SPDX-License-Identifier: Apache-2.0 */
/* Submitting: what a request is refused for, what it holds, which requests are joined, how all of a
 * submit come into a batch. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "engine/counted.h"
#include "engine/merge.h"

enum { WHY_SIZE = 512 };

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
    /* References of the submit itself, so that what follows is valid when the task is over. */
    struct segment *held_segment;
    struct registration *held_registration;
    const struct yolk_request *request; /* NULL: none */
    uint64_t handle;
    struct segment *segment; /* NULL: none */
    struct registration *registration;
    /* References to these two that no task has yet: taken many at a time. */
    uint64_t segment_spare, registration_spare;
    const struct yolk_request *wished; /* of this submit; NULL: none */
    struct engine_wish wish;           /* its */
    enum yolk_priority wish_priority;
};

enum { SPARE = 64 };

static void spend_spare(uint64_t *spare, _Atomic uint64_t *references)
{
    if (*spare == 0) {
        (void)atomic_fetch_add_explicit(references, SPARE, memory_order_relaxed);
        *spare = SPARE;
    }
    (*spare)--;
}

static void give_back_spare(struct admitted *before)
{
    if (before->registration_spare > 0)
        registry_release_many(before->registration, before->registration_spare);
    if (before->segment_spare > 0)
        segment_release_many(before->segment, before->segment_spare);
    before->registration_spare = 0;
    before->segment_spare = 0;
}

static struct segment *take_segment(struct yolk_engine *engine, uint64_t handle,
                                    struct admitted *before)
{
    if (before->given != NULL)
        return segment_take(before->given->segment);
    if (before->segment == NULL || before->handle != handle)
        return segment_acquire(engine, handle);
    spend_spare(&before->segment_spare, &before->segment->references);
    return before->segment;
}

static struct registration *take_registration(struct yolk_engine *engine, const void *pointer,
                                              uint64_t size, struct admitted *before)
{
    struct registration *same =
        before->given != NULL ? before->given->registration : before->registration;
    uint64_t inside = (uint64_t)(uintptr_t)pointer - (same != NULL ? same->start : 0);
    if (same == NULL || inside > same->size || size > same->size - inside)
        return registry_acquire(engine, pointer, size);
    if (same != before->registration)
        return registry_take(same);
    spend_spare(&before->registration_spare, &same->in_flight);
    return same;
}

static uint64_t deadline_of(const struct admitted *before, const struct yolk_request *request)
{
    return before->deadline_ns != 0 ? before->deadline_ns : request->deadline_ns;
}

/* Whether this request's wish is that of the one looked at last: addresses count for direct ones
 * alone. */
static bool wishes_the_same(const struct admitted *before, const struct yolk_request *request,
                            const struct segment *segment, const struct registration *registration,
                            const struct engine_task *task)
{
    const struct yolk_request *last = before->wished;
    return last != NULL && !before->wish.direct && before->segment == segment &&
           before->registration == registration && last->opcode == request->opcode &&
           last->size == request->size && before->wish_priority == task->priority &&
           last->intent == request->intent && last->flags == request->flags &&
           last->hint == request->hint && last->policy == request->policy;
}

static enum yolk_status find_wish(struct yolk_engine *engine, const struct yolk_request *request,
                                  struct segment *segment, const struct registration *registration,
                                  struct admitted *before, struct engine_task *task)
{
    if (wishes_the_same(before, request, segment, registration, task)) {
        task->wish = before->wish;
        return YOLK_OK;
    }
    before->wished = NULL;
    enum yolk_status status =
        engine_wish_read(engine, request, task->priority, segment, registration, &task->wish);
    if (status == YOLK_OK) {
        before->wished = request;
        before->wish = task->wish;
        before->wish_priority = task->priority;
    }
    return status;
}

static enum yolk_status read_wish(struct yolk_engine *engine, const struct yolk_request *request,
                                  bool plain, struct segment *segment,
                                  const struct registration *registration, struct admitted *before,
                                  struct engine_task *task)
{
    enum yolk_status status = YOLK_OK;
    if (before->given != NULL)
        task->wish = before->given->wish;
    else if (!plain || engine->has_policies || engine->wish.direct)
        status = find_wish(engine, request, segment, registration, before, task);
    if (status != YOLK_OK || task->gate.contract == NULL)
        return status;
    task->wish.first_only = (task->gate.contract->actions & QOS_FALLBACK_TRANSPORT) == 0;
    task->staging = request->intent == YOLK_INTENT_STAGING_INTERNAL;
    return gate_check(engine, &task->gate, request);
}

static enum yolk_status check_request(const struct yolk_request *request, bool plain)
{
    if (request->opcode == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "the opcode is neither a read nor a write");
    if (request->opcode != YOLK_READ && request->opcode != YOLK_WRITE)
        return base_fail(YOLK_ERR_INVALID, 0, "opcode %d is none of %d (read) and %d (write)",
                         (int)request->opcode, YOLK_READ, YOLK_WRITE);
    return plain ? YOLK_OK : engine_check_request(request);
}

static enum yolk_status check_deadline(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns == 0 || deadline_ns > now_ns
               ? YOLK_OK
               : base_fail(YOLK_ERR_TIMEOUT, 0, "the deadline passed before the request began");
}

static enum yolk_status check_stuck(struct yolk_engine *engine, const struct yolk_request *request)
{
    return request->size == 0 || !range_is_stuck(engine, request->local, request->size)
               ? YOLK_OK
               : base_fail(YOLK_ERR_BUSY, 0, "a stuck request may still touch this memory");
}

/* References to what the request is about; *registration NULL for one without bytes. */
static enum yolk_status find(struct yolk_engine *engine, const struct yolk_request *request,
                             struct admitted *before, struct segment **segment,
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
        status = base_fail(YOLK_ERR_NOT_REGISTERED, 0,
                           "local %p + %llu is not inside a registered range", request->local,
                           (unsigned long long)request->size);
    if (status != YOLK_OK)
        segment_release(*segment);
    return status;
}

enum yolk_status engine_find(struct yolk_engine *engine, const struct yolk_request *request,
                             struct prepared_entry *out)
{
    struct admitted nothing = {0};
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
    if ((status = check_deadline(deadline_ns, now_ns)) != YOLK_OK)
        return status;
    struct segment *segment;
    struct registration *registration;
    status = find(engine, request, before, &segment, &registration);
    if (status != YOLK_OK)
        return status;
    status = check_stuck(engine, request);
    if (status == YOLK_OK && (!plain || before->given != NULL || engine->has_policies ||
                              engine->gate.on || engine->wish.direct))
        status = read_wish(engine, request, plain, segment, registration, before, task);
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
    if (before->segment != segment ||
        (registration != NULL && before->registration != registration))
        give_back_spare(before);
    before->request = request;
    before->handle = request->segment;
    before->segment = segment;
    if (registration != NULL)
        before->registration = registration;
    return YOLK_OK;
}

enum yolk_status engine_would_admit(struct yolk_engine *engine, const struct yolk_request *request,
                                    struct engine_task *task)
{
    struct prepared_entry found;
    enum yolk_priority priority = request->priority;
    enum yolk_status status = check_request(request, false);
    if (status == YOLK_OK)
        status = check_deadline(request->deadline_ns, engine_now(engine));
    if (status == YOLK_OK)
        status = engine_find(engine, request, &found);
    if (status != YOLK_OK)
        return status;
    *task = (struct engine_task){.registration = found.registration,
                                 .segment = found.segment,
                                 .local = request->local,
                                 .offset = request->offset,
                                 .size = request->size,
                                 .opcode = request->opcode,
                                 .wish = found.wish};
    task->gate.contract = engine->gate.on ? gate_contract(engine, request, &priority) : NULL;
    struct admitted given = {.given = &found};
    status = check_stuck(engine, request);
    if (status == YOLK_OK)
        status = read_wish(engine, request, true, found.segment, found.registration, &given, task);
    if (status != YOLK_OK)
        engine_unadmit(engine, task);
    return status;
}

void engine_unadmit(struct yolk_engine *engine, struct engine_task *task)
{
    if (task->gate.contract != NULL)
        gate_forget(engine, &task->gate, task->size);
    if (task->registration != NULL)
        registry_release(task->registration);
    segment_release(task->segment);
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
        uint32_t index = batch_state_reject(&batch->state, *verdict, request->cookie);
        task->counted = true;
        task->gate.contract = NULL;
        reason_refused(engine, batch, index, request, *verdict);
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
    reason_forget(batch, first);
    batch_state_truncate(&batch->state, first);
}

/* So many are posted before the next are looked at: their memory is still in the processor's cache,
 * and they are under way while the rest is made. A multiple of what tcp asks for at once. */
enum { PART = 480 };

/* Not where all of a submit are admitted or none, nor where a later one goes first. */
static bool goes_in_parts(const struct yolk_engine *engine, const struct submission *from)
{
    if (from->count <= PART || engine->gate.on || from->indices != NULL)
        return false;
    for (uint32_t i = 1; i < from->count; i++)
        if (from->requests[i].priority != from->requests[0].priority)
            return false;
    return true;
}

static void count_accepted(struct yolk_engine *engine, const struct admitted *before)
{
    ENGINE_COUNT(engine, submitted, before->accepted);
    if (before->merged > 0)
        ENGINE_COUNT(engine, merged, before->merged);
}

static void let_go(struct admitted *before)
{
    give_back_spare(before);
    if (before->held_registration != NULL)
        registry_release(before->held_registration);
    if (before->held_segment != NULL)
        segment_release(before->held_segment);
    before->held_registration = NULL;
    before->held_segment = NULL;
}

static void post_part(struct yolk_engine *engine, struct batch *batch, struct admitted *before)
{
    struct admitted last = *before;
    last.segment_spare = last.registration_spare = 0;
    last.held_segment = before->segment != NULL ? segment_take(before->segment) : NULL;
    last.segment = last.held_segment; /* a segment that was closed is looked up, and refused */
    last.held_registration =
        before->registration != NULL ? registry_take(before->registration) : NULL;
    let_go(before);
    count_accepted(engine, before);
    *before = last;
    before->accepted = 0;
    before->merged = 0;
    before->request = NULL; /* nothing joins what is posted */
    batch->in_parts = true;
    (void)batch_progress(engine, batch);
}

/* why: of the first verdict that is not YOLK_OK. */
static enum yolk_status add_all(struct yolk_engine *engine, struct batch *batch,
                                const struct submission *from, enum yolk_status *verdicts,
                                char why[WHY_SIZE])
{
    uint64_t now_ns = engine_now(engine);
    uint32_t first = batch->state.task_count;
    struct admitted before = {.deadline_ns = from->deadline_ns};
    enum yolk_status result = YOLK_OK;
    bool in_parts = goes_in_parts(engine, from);
    batch->choice.segment = NULL; /* of a pass long over */
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
        if (in_parts && (i + 1) % PART == 0)
            post_part(engine, batch, &before);
    }
    let_go(&before);
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
    count_accepted(engine, &before);
    return result;
}

enum yolk_status engine_submit(struct yolk_engine *engine, uint64_t handle,
                               const struct submission *from, enum yolk_status *verdicts,
                               uint32_t *first)
{
    struct batch *batch = batch_lock(engine, handle);
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
        batch->in_parts = false;
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
