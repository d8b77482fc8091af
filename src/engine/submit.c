/* SPDX-License-Identifier: Apache-2.0 */
/* Submitting: what a request is refused for, what it holds, which requests are joined, how all of a
 * submit come into a batch. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/bulk.h"
#include "engine/counted.h"
#include "engine/merge.h"

enum { WHY_SIZE = 512 };

static bool overlap(const void *a, uint64_t a_size, const void *b, uint64_t b_size)
{
    return (uintptr_t)a < (uintptr_t)b + b_size && (uintptr_t)b < (uintptr_t)a + a_size;
}

static bool task_has(const struct engine_task *task, const void *pointer, uint64_t size)
{
    bool found = task->piece_count == 0 && overlap(task->local, task->size, pointer, size);
    for (uint32_t i = 0; i < task->piece_count && !found; i++)
        found = overlap(task->pieces[i].pointer, task->pieces[i].size, pointer, size);
    return found;
}

static bool range_is_stuck(struct yolk_engine *engine, const void *pointer, uint64_t size)
{
    if (atomic_load_explicit(&engine->stuck_count, memory_order_acquire) == 0)
        return false;
    bool found = false;
    pthread_mutex_lock(&engine->stuck_lock);
    BASE_LIST_FOREACH(node, &engine->stuck)
    {
        const struct engine_task *task = BASE_CONTAINER(node, struct engine_task, stuck);
        found = found || task_has(task, pointer, size);
    }
    pthread_mutex_unlock(&engine->stuck_lock);
    return found;
}

/* What the request before this one of the same call was given: its task still holds it, so another
 * reference needs no lock. */
struct admitted {
    const struct prepared_entry *given;   /* of the next request, what was found before; or NULL */
    const struct engine_scatter *scatter; /* of the next request, if it lies in pieces; or NULL */
    uint64_t deadline_ns;                 /* in place of each request's own; 0: not */
    uint32_t accepted, merged;
    /* References of the submit itself, so that what follows is valid when the task is over. */
    struct segment *held_segment;
    struct registration *held_registration;
    const struct yolk_request *request; /* NULL: none */
    uint32_t task;                      /* what became of it, or of the head of its group */
    bool in_places;   /* its group is a scattered one, and no gate or policy has a say in it */
    bool has_pattern; /* of those that are like it: */
    struct engine_task pattern;
    uint64_t handle;
    struct segment *segment; /* NULL: none */
    struct registration *registration;
    /* References to these two that no task has yet: taken many at a time. */
    uint64_t segment_spare, registration_spare;
    const struct yolk_request *wished; /* of this submit; NULL: none */
    struct engine_wish wish;           /* its */
    enum yolk_priority wish_priority;
    const struct yolk_request *ordered; /* of this submit, the last that waits; NULL: none */
    struct engine_order *order;         /* what for */
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

/* Of a request in pieces: the one that its submitter holds. */
static struct registration *take_scattered(const struct engine_scatter *scatter, uint64_t size,
                                           struct admitted *before)
{
    struct registration *held = scatter->held;
    uint64_t left = size;
    for (uint32_t i = 0; i < scatter->count; i++) {
        const struct yolk_piece *piece = &scatter->pieces[i];
        uint64_t inside = (uint64_t)(uintptr_t)piece->pointer - held->start;
        if (inside > held->size || piece->size > held->size - inside || piece->size > left)
            return NULL;
        left -= piece->size;
    }
    if (left != 0 || held->gpu == 0)
        return NULL;
    if (held != before->registration)
        return registry_take(held);
    spend_spare(&before->registration_spare, &held->in_flight);
    return held;
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

static enum yolk_status check_stuck(struct yolk_engine *engine, const struct yolk_request *request,
                                    const struct engine_scatter *scatter)
{
    bool stuck = false;
    if (scatter == NULL)
        stuck = request->size > 0 && range_is_stuck(engine, request->local, request->size);
    for (uint32_t i = 0; scatter != NULL && i < scatter->count && !stuck; i++)
        stuck = range_is_stuck(engine, scatter->pieces[i].pointer, scatter->pieces[i].size);
    return stuck ? base_fail(YOLK_ERR_BUSY, 0, "a stuck request may still touch this memory")
                 : YOLK_OK;
}

/* What the task waits for; those of one submit that name the same stream share one mark in it. */
static enum yolk_status take_order(struct yolk_engine *engine, const struct yolk_request *request,
                                   const struct registration *registration, struct admitted *before,
                                   struct engine_task *task)
{
    const struct yolk_request *last = before->ordered;
    if (last == NULL || last->after_stream != request->after_stream ||
        last->after_event != request->after_event) {
        struct engine_order *made;
        enum yolk_status status =
            engine_order_make(engine, request, registration != NULL ? registration->gpu : 0, &made);
        if (status != YOLK_OK)
            return status;
        if (before->order != NULL)
            engine_order_drop(before->order);
        before->order = made;
        before->ordered = request;
    }
    task->order = engine_order_take(before->order);
    return YOLK_OK;
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
    else if (request->size > 0 &&
             (*registration =
                  before->scatter != NULL
                      ? take_scattered(before->scatter, request->size, before)
                      : take_registration(engine, request->local, request->size, before)) == NULL)
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
static enum yolk_status admit(struct yolk_engine *engine, const struct batch *batch,
                              const struct yolk_request *request, uint64_t now_ns,
                              struct admitted *before, struct engine_task *task)
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
    status = check_stuck(engine, request, before->scatter);
    if (status == YOLK_OK && (!plain || before->given != NULL || engine->has_policies ||
                              engine->gate.on || engine->wish.direct))
        status = read_wish(engine, request, plain, segment, registration, before, task);
    if (status == YOLK_OK && (request->after_stream != NULL || request->after_event != NULL))
        status = take_order(engine, request, registration, before, task);
    if (status != YOLK_OK) {
        if (registration != NULL)
            registry_release(registration);
        segment_release(segment);
        return status;
    }
    task->registration = registration;
    task->segment = segment;
    task->local = request->local;
    if (before->scatter != NULL) {
        task->pieces = before->scatter->pieces;
        task->piece_count = before->scatter->count;
    }
    task->offset = request->offset;
    task->size = request->size;
    task->ticket = request->ticket;
    task->opcode = request->opcode;
    if (before->segment != segment ||
        (registration != NULL && before->registration != registration))
        give_back_spare(before);
    before->request = before->scatter == NULL ? request : NULL; /* nothing joins pieces */
    before->task = (uint32_t)(task - batch->tasks);
    before->has_pattern = false;
    before->handle = request->segment;
    before->segment = segment;
    if (registration != NULL)
        before->registration = registration;
    return YOLK_OK;
}

/* Whether something tells the request from the one before it but its ticket and where its bytes
 * lie. */
static inline bool differs(const struct yolk_request *request, const struct yolk_request *last)
{
    return ((request->segment ^ last->segment) | (request->size ^ last->size) |
            (request->deadline_ns ^ last->deadline_ns) |
            ((uintptr_t)request->hint ^ (uintptr_t)last->hint) |
            ((uintptr_t)request->policy ^ (uintptr_t)last->policy) |
            ((uintptr_t)request->tenant ^ (uintptr_t)last->tenant) |
            (uintptr_t)request->after_stream | (uintptr_t)request->after_event |
            ((unsigned)request->opcode ^ (unsigned)last->opcode) |
            ((unsigned)request->priority ^ (unsigned)last->priority) |
            ((unsigned)request->intent ^ (unsigned)last->intent) |
            (request->flags ^ last->flags)) != 0;
}

/* Whether the bytes of a request of the size of the one before it lie where that one's may, and
 * none is stuck. */
static inline bool lies_alike(struct yolk_engine *engine, const struct yolk_request *request,
                              const struct admitted *before)
{
    const struct registration *registration = before->registration;
    uint64_t inside = (uint64_t)(uintptr_t)request->local - registration->start;
    return inside <= registration->size && request->size <= registration->size - inside &&
           request->offset <= before->segment->size - request->size &&
           !range_is_stuck(engine, request->local, request->size);
}

/* Whether nothing tells the request from the one before it but where its bytes lie, in the same
 * segment and registration: all that was looked up and checked for that one holds for it. */
static bool is_alike(struct yolk_engine *engine, const struct batch *batch,
                     const struct yolk_request *request, const struct admitted *before)
{
    const struct yolk_request *last = before->request;
    if (last == NULL || before->given != NULL || before->scatter != NULL || differs(request, last))
        return false;
    const struct engine_task *task = &batch->tasks[before->task];
    return before->registration != NULL && task->registration == before->registration &&
           !task->wish.direct && !task->gate.charged && task->order == NULL &&
           lies_alike(engine, request, before);
}

static void admit_alike(const struct batch *batch, const struct yolk_request *request,
                        struct admitted *before, struct engine_task *task)
{
    spend_spare(&before->segment_spare, &before->segment->references);
    spend_spare(&before->registration_spare, &before->registration->in_flight);
    /* A copy of what was written a moment ago waits for it: all but the first are of the copy. */
    if (!before->has_pattern)
        before->pattern = batch->tasks[before->task]; /* nobody has touched it since */
    before->has_pattern = true;
    *task = before->pattern;
    task->scattered = false;
    task->local = request->local;
    task->offset = request->offset;
    task->ticket = request->ticket;
    before->request = request;
    before->task = (uint32_t)(task - batch->tasks);
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
    status = check_stuck(engine, request, NULL);
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

/* Longer ones gain nothing. */
enum { PLACE_BYTES_MAX = 8192 };

/* Whether the group of this head may have another place, or become one of places. */
static bool takes_place(const struct batch *batch, uint32_t head,
                        const struct yolk_request *request, const struct admitted *before)
{
    const struct engine_task *task = &batch->tasks[head];
    uint32_t members = batch->state.tasks[head].members;
    return request->size <= PLACE_BYTES_MAX && before->request->size <= PLACE_BYTES_MAX &&
           (task->scattered ? members < YOLK_PLACES_MAX : members == 1) &&
           atomic_load_explicit(&before->segment->places[before->registration->gpu != 0],
                                memory_order_relaxed) &&
           !task->wish.direct;
}

/* Whether the request is moved as one with the one before it in the same submit. */
static bool joins(struct yolk_engine *engine, const struct batch *batch,
                  const struct yolk_request *request, const struct admitted *before)
{
    const struct registration *registration = before->registration;
    /* A file's device does several at once sooner than one long one. */
    if (engine->merge_bytes_max == 0 || before->scatter != NULL || before->request == NULL ||
        before->request + 1 != request || registration == NULL || before->segment->file)
        return false;
    uint32_t head = batch->state.tasks[batch->state.task_count - 1].head;
    const struct engine_task *task = &batch->tasks[head];
    /* What tells most requests apart comes first: those that do not join pay for little else. */
    bool goes_on = !task->scattered && merge_goes_on(before->request, request);
    if ((!goes_on && !takes_place(batch, head, request, before)) ||
        !merge_is_alike(before->request, request, batch->state.tasks[head].span,
                        engine->merge_bytes_max))
        return false;
    uint64_t inside = (uint64_t)(uintptr_t)request->local - registration->start;
    return inside <= registration->size && request->size <= registration->size - inside &&
           request->size <= before->segment->size &&
           request->offset <= before->segment->size - request->size &&
           !range_is_stuck(engine, request->local, request->size) &&
           gate_may_merge(engine, &task->gate, batch->state.tasks[head].span + request->size) &&
           same_wish(engine, request, before, task);
}

static struct yolk_place place_of(const struct yolk_request *request)
{
    return (struct yolk_place){request->local, request->offset, request->size};
}

/* False: no memory for that, and the request stays alone. */
static bool scatter(const struct yolk_engine *engine, struct batch *batch,
                    const struct yolk_request *request, struct admitted *before)
{
    uint32_t index = batch->state.task_count, head = batch->state.tasks[index - 1].head;
    struct engine_task *task = &batch->tasks[head];
    if (!task->scattered && merge_goes_on(before->request, request))
        return true;
    if (batch->places == NULL)
        batch->places = base_malloc(batch->state.task_room * sizeof(*batch->places));
    if (batch->places == NULL)
        return false;
    if (!task->scattered)
        batch->places[head] = place_of(before->request);
    batch->places[index] = place_of(request);
    task->scattered = true;
    before->in_places = !engine->gate.on && !engine->has_policies;
    return true;
}

/* The head of the group holds what all of it needs. */
static inline void join_task(struct batch *batch, const struct yolk_request *request,
                             struct admitted *before)
{
    (void)batch_state_join(&batch->state, request->size, request->cookie);
    before->request = request;
    before->accepted++;
    before->merged++;
}

/* Of a task that was taken: whether it is as the others of its batch. */
static void note_likeness(struct batch *batch, const struct yolk_request *request,
                          const struct engine_task *task)
{
    struct engine_likeness *like = &batch->like;
    bool alike = like->registration == task->registration && like->segment == request->segment &&
                 like->opcode == request->opcode && engine_wish_equal(like->wish, task->wish);
    if (batch->mixed || (alike && task->order == NULL && task->registration != NULL))
        return;
    batch->mixed = like->registration != NULL || task->registration == NULL || task->order != NULL;
    *like =
        (struct engine_likeness){task->registration, request->segment, request->opcode, task->wish};
}

static void add_task(struct yolk_engine *engine, struct batch *batch,
                     const struct yolk_request *request, uint64_t now_ns, struct admitted *before,
                     enum yolk_status *verdict)
{
    struct engine_task *task = &batch->tasks[batch->state.task_count];
    *verdict = YOLK_OK;
    before->in_places = false;
    if (joins(engine, batch, request, before) && scatter(engine, batch, request, before)) {
        join_task(batch, request, before);
        return;
    }
    if (is_alike(engine, batch, request, before)) {
        admit_alike(batch, request, before, task);
    } else {
        memset(task, 0, sizeof(*task));
        task->channel = BATCH_NONE;
        task->last_transport = ENGINE_NO_TRANSPORT;
        task->times.submitted = counted_tick(now_ns);
        task->times.failed_from = METRICS_NO_TRANSPORT;
        *verdict = admit(engine, batch, request, now_ns, before, task);
        if (*verdict == YOLK_OK)
            note_likeness(batch, request, task);
    }
    if (*verdict != YOLK_OK) {
        uint32_t index = batch_state_reject(&batch->state, *verdict, request->cookie);
        batch->state.tasks[index].counted = true;
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
        if (batch->state.tasks[i].head != i)
            continue; /* which holds nothing */
        if (task->gate.contract != NULL)
            gate_forget(engine, &task->gate, task->size);
        if (task->registration != NULL)
            registry_release(task->registration);
        if (task->segment != NULL)
            segment_release(task->segment);
        if (task->order != NULL)
            engine_order_drop(task->order);
    }
    reason_forget(batch, first);
    batch_state_truncate(&batch->state, first);
}

/* So many are posted before the next are looked at: their memory is still in the processor's cache,
 * and they are under way while the rest is made. A multiple of what tcp asks for at once. */
enum { PART = 480 };

/* Joins those of the requests from the i-th on, up to the end of a part, that differ in nothing but
 * where their bytes lie from the one before them, which was given a place: most of a long submit.
 * Returns how many. */
static uint32_t join_places(struct yolk_engine *engine, struct batch *batch,
                            const struct submission *from, uint32_t i, bool in_parts,
                            struct admitted *before)
{
    const struct yolk_request *like = before->request;
    if (from->indices != NULL || from->scatters != NULL || like == NULL)
        return 0;
    uint32_t begin = i, end = in_parts ? (i + PART - 1) / PART * PART : from->count;
    const struct batch_task *head = &batch->state.tasks[before->task];
    for (; i < end && i < from->count; i++) {
        const struct yolk_request *request = &from->requests[i];
        if (head->members == YOLK_PLACES_MAX || like->size > engine->merge_bytes_max - head->span ||
            differs(request, like) || !merge_same_ticket(&request->ticket, &like->ticket) ||
            !lies_alike(engine, request, before))
            break;
        batch->places[batch->state.task_count] = place_of(request);
        join_task(batch, request, before);
    }
    return i - begin;
}

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
        before.scatter =
            from->scatters != NULL && from->scatters[n].count > 0 ? &from->scatters[n] : NULL;
        add_task(engine, batch, &from->requests[n], now_ns, &before, &verdict);
        if (verdicts != NULL)
            verdicts[i] = verdict;
        uint32_t more =
            before.in_places ? join_places(engine, batch, from, i + 1, in_parts, &before) : 0;
        for (; more > 0; more--) {
            i++;
            if (verdicts != NULL)
                verdicts[i] = YOLK_OK;
        }
        if (result == YOLK_OK && verdict != YOLK_OK) {
            result = verdict;
            snprintf(why, WHY_SIZE, "%s", yolk_last_error());
        }
        if (in_parts && (i + 1) % PART == 0)
            post_part(engine, batch, &before);
    }
    let_go(&before);
    if (before.order != NULL)
        engine_order_drop(before.order);
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
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || (count > 0 && (requests == NULL || verdicts == NULL)))
        return base_fail(YOLK_ERR_INVALID, 0, "requests and verdicts are required");
    const struct submission from = {.requests = requests, .count = count};
    return engine_submit(engine, handle, &from, verdicts, first);
}
