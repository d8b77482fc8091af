/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/batch_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/mutation.h"

enum yolk_status batch_state_init(struct batch_state *state, uint32_t capacity, uint32_t window,
                                  uint32_t attempts_max, uint64_t drain_limit_ns)
{
    memset(state, 0, sizeof(*state));
    state->tasks = base_calloc(capacity == 0 ? 1 : capacity, sizeof(*state->tasks));
    if (state->tasks == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a batch of %u tasks", capacity);
    state->task_room = capacity;
    state->free_head = BATCH_NONE;
    state->queue_head = BATCH_NONE;
    state->queue_tail = BATCH_NONE;
    state->window = window == 0 ? 1 : window;
    state->attempts_max = attempts_max == 0 ? 1 : attempts_max;
    state->drain_limit_ns = drain_limit_ns;
    state->next_due_ns = BATCH_NEVER;
    return YOLK_OK;
}

void batch_state_free(struct batch_state *state)
{
    free(state->tasks);
    free(state->slices);
    memset(state, 0, sizeof(*state));
}

/* STUCK > FAILED > TIMEOUT > CANCELED > INVALID: what a caller must know first. */
static int severity(enum yolk_status status)
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

static void enqueue(struct batch_state *state, uint32_t index)
{
    struct batch_task *task = &state->tasks[index];
    if (task->queued || task->terminal)
        return;
    task->queued = true;
    task->queue_next = BATCH_NONE;
    if (state->queue_tail == BATCH_NONE)
        state->queue_head = index;
    else
        state->tasks[state->queue_tail].queue_next = index;
    state->queue_tail = index;
    state->queue_length++;
}

static uint32_t new_task(struct batch_state *state, uint64_t cookie)
{
    assert(state->task_count < state->task_room);
    uint32_t index = state->task_count++;
    struct batch_task *task = &state->tasks[index];
    memset(task, 0, sizeof(*task));
    task->ready_head = BATCH_NONE;
    task->taken_head = BATCH_NONE;
    task->queue_next = BATCH_NONE;
    task->deadline_ns = BATCH_NEVER;
    task->drain_ns = BATCH_NEVER;
    task->cookie = cookie;
    return index;
}

uint32_t batch_state_add(struct batch_state *state, uint64_t size, uint64_t deadline_ns,
                         uint64_t cookie)
{
    uint32_t index = new_task(state, cookie);
    state->tasks[index].size = size;
    state->tasks[index].deadline_ns = deadline_ns;
    if (deadline_ns < state->next_due_ns)
        state->next_due_ns = deadline_ns;
    state->pending++;
    enqueue(state, index);
    return index;
}

uint32_t batch_state_reject(struct batch_state *state, enum yolk_status status, uint64_t cookie)
{
    uint32_t index = new_task(state, cookie);
    state->tasks[index].failure = status;
    state->tasks[index].terminal = true;
    state->tasks[index].terminal_events = 1;
    return index;
}

uint32_t batch_state_dequeue(struct batch_state *state)
{
    uint32_t index = state->queue_head;
    if (index == BATCH_NONE)
        return BATCH_NONE;
    struct batch_task *task = &state->tasks[index];
    state->queue_head = task->queue_next;
    if (state->queue_head == BATCH_NONE)
        state->queue_tail = BATCH_NONE;
    state->queue_length--;
    task->queued = false;
    return index;
}

void batch_state_requeue(struct batch_state *state, uint32_t task)
{
    enqueue(state, task);
}

static uint32_t new_slice(struct batch_state *state)
{
    uint32_t index = state->free_head;
    if (index != BATCH_NONE) {
        state->free_head = state->slices[index].next;
        return index;
    }
    if (state->slice_count == state->slice_room) {
        uint32_t room = state->slice_room == 0 ? 64 : state->slice_room * 2;
        struct batch_slice *slices = base_realloc(state->slices, room * sizeof(*slices));
        if (slices == NULL)
            return BATCH_NONE;
        state->slices = slices;
        state->slice_room = room;
    }
    index = state->slice_count++;
    memset(&state->slices[index], 0, sizeof(state->slices[index]));
    return index;
}

static void free_slice(struct batch_state *state, uint32_t index)
{
    struct batch_slice *slice = &state->slices[index];
    slice->state = BATCH_SLICE_FREE;
    slice->generation++; /* its cookie is dead from here on */
    slice->next = state->free_head;
    state->free_head = index;
}

static void make_ready(struct batch_state *state, uint32_t index)
{
    struct batch_slice *slice = &state->slices[index];
    struct batch_task *task = &state->tasks[slice->task];
    slice->state = BATCH_SLICE_READY;
    slice->next = task->ready_head;
    task->ready_head = index;
    enqueue(state, slice->task);
}

static void list_taken(struct batch_state *state, uint32_t index)
{
    struct batch_slice *slice = &state->slices[index];
    struct batch_task *task = &state->tasks[slice->task];
    slice->state = BATCH_SLICE_TAKEN;
    slice->before = BATCH_NONE;
    slice->next = task->taken_head;
    if (slice->next != BATCH_NONE)
        state->slices[slice->next].before = index;
    task->taken_head = index;
    task->taken++;
    state->taken++;
}

static void unlist_taken(struct batch_state *state, uint32_t index)
{
    struct batch_slice *slice = &state->slices[index];
    struct batch_task *task = &state->tasks[slice->task];
    if (slice->before == BATCH_NONE)
        task->taken_head = slice->next;
    else
        state->slices[slice->before].next = slice->next;
    if (slice->next != BATCH_NONE)
        state->slices[slice->next].before = slice->before;
    task->taken--;
    state->taken--;
}

static bool all_cut(const struct batch_task *task)
{
    return task->size == 0 ? task->whole_cut : task->cut == task->size;
}

uint32_t batch_state_take(struct batch_state *state, uint32_t index, uint64_t slice_bytes_max,
                          bool *no_memory)
{
    struct batch_task *task = &state->tasks[index];
    *no_memory = false;
    if (task->terminal || task->ending || task->failure != YOLK_OK || task->taken >= state->window)
        return BATCH_NONE;
    uint32_t slot = task->ready_head;
    if (slot != BATCH_NONE) {
        task->ready_head = state->slices[slot].next;
    } else {
        if (all_cut(task))
            return BATCH_NONE;
        slot = new_slice(state);
        if (slot == BATCH_NONE) {
            *no_memory = true;
            return BATCH_NONE;
        }
        struct batch_slice *slice = &state->slices[slot];
        uint64_t left = task->size - task->cut;
        slice->task = index;
        slice->offset = task->cut;
        slice->size = left < slice_bytes_max ? left : slice_bytes_max;
        slice->tried = 0;
        slice->attempts = 0;
        slice->route = 0;
        slice->retry_here = false;
        slice->last = YOLK_OK;
        task->cut += slice->size;
        task->whole_cut = true;
    }
    list_taken(state, slot);
    return slot;
}

void batch_state_untake(struct batch_state *state, uint32_t index)
{
    assert(state->slices[index].state == BATCH_SLICE_TAKEN);
    unlist_taken(state, index);
    make_ready(state, index);
}

uint64_t batch_state_cookie(const struct batch_state *state, uint32_t slice)
{
    return (uint64_t)state->slices[slice].generation << 32 | slice;
}

static void become_terminal(struct batch_state *state, struct batch_task *task)
{
    task->terminal = true;
    task->terminal_events++;
    state->pending--;
}

static void drop_ready(struct batch_state *state, struct batch_task *task)
{
    while (task->ready_head != BATCH_NONE) {
        uint32_t index = task->ready_head;
        task->ready_head = state->slices[index].next;
        free_slice(state, index);
    }
}

/* Terminal = result known and memory quiet. */
static void settle(struct batch_state *state, uint32_t index)
{
    struct batch_task *task = &state->tasks[index];
    if (task->terminal || task->taken > 0)
        return;
    bool complete = all_cut(task) && task->ready_head == BATCH_NONE && task->done == task->size;
    if (task->failure == YOLK_OK && !complete)
        return;
    /* A cancel that came too late, or a deadline: all bytes are there, so the request worked. */
    if (complete && task->ending)
        task->failure = YOLK_OK;
    drop_ready(state, task);
    become_terminal(state, task);
}

static void note_failure(struct batch_state *state, uint64_t now_ns, struct batch_task *task,
                         enum yolk_status status)
{
    if (task->failure == YOLK_OK || severity(status) > severity(task->failure))
        task->failure = status;
    if (task->drain_ns == BATCH_NEVER) {
        task->drain_ns = now_ns > BATCH_NEVER - state->drain_limit_ns
                             ? BATCH_NEVER
                             : now_ns + state->drain_limit_ns;
        if (task->drain_ns < state->next_due_ns)
            state->next_due_ns = task->drain_ns;
    }
    drop_ready(state, task);
}

bool batch_status_is_retriable(enum yolk_status status)
{
    switch (status) {
    case YOLK_ERR_UNSUPPORTED:
    case YOLK_ERR_LIMIT:
    case YOLK_ERR_NO_MEMORY:
    case YOLK_ERR_CORRUPT:
    case YOLK_ERR_TIMEOUT:
    case YOLK_ERR_EOF:
        return true;
    case YOLK_ERR_FORKED:
    case YOLK_ERR_CLOSED:
        return false;
    default:
        return status <= YOLK_ERR_LINK;
    }
}

bool batch_status_is_retriable_here(enum yolk_status status)
{
    return (status <= YOLK_ERR_LINK && status > YOLK_ERR_PEER_DEAD) || status == YOLK_ERR_CORRUPT ||
           status == YOLK_ERR_EOF;
}

/* The part of the slice that is in place counts, whatever the rest became. */
static void advance(struct batch_task *task, struct batch_slice *slice, uint64_t transferred)
{
    if (transferred > slice->size)
        transferred = slice->size;
    slice->offset += transferred;
    slice->size -= transferred;
    task->done += transferred;
}

enum batch_outcome batch_state_complete(struct batch_state *state, uint64_t now_ns, uint64_t cookie,
                                        enum yolk_status status, uint64_t transferred,
                                        uint32_t *task_out)
{
    uint32_t index = (uint32_t)cookie;
    *task_out = BATCH_NONE;
    if (index >= state->slice_count || state->slices[index].state != BATCH_SLICE_TAKEN ||
        state->slices[index].generation != (uint32_t)(cookie >> 32)) {
        state->unknown++;
        if (mutated(MUT_COMPLETE_TWICE) && index < state->slice_count)
            state->tasks[state->slices[index].task].terminal_events++;
        return BATCH_UNKNOWN;
    }
    struct batch_slice *slice = &state->slices[index];
    uint32_t task_index = slice->task;
    struct batch_task *task = &state->tasks[task_index];
    *task_out = task_index;
    unlist_taken(state, index);
    bool empty = slice->size == 0;
    /* Of several slices behind the end of a file, any may be the first to say so. */
    if (status == YOLK_OK || task->failure == YOLK_OK || status == YOLK_ERR_EOF)
        advance(task, slice, transferred);
    if (status == YOLK_OK && (empty || transferred > 0)) {
        if (slice->size == 0) {
            free_slice(state, index);
            enqueue(state, task_index); /* the window has room again */
        } else {
            /* Short: the rest is another io under another cookie. */
            slice->generation++;
            slice->attempts = 0;
            slice->tried = 0;
            slice->last = YOLK_OK;
            make_ready(state, index);
        }
        if (task->ending || task->failure != YOLK_OK)
            drop_ready(state, task);
        settle(state, task_index);
        return BATCH_PROGRESS;
    }
    if (status == YOLK_OK)
        status = YOLK_ERR_EOF; /* no bytes at all, twice and thrice */
    slice->attempts++;
    slice->generation++;
    slice->tried |= UINT32_C(1) << slice->route;
    slice->retry_here = batch_status_is_retriable_here(status);
    slice->last = status;
    bool stopped = task->ending || task->failure != YOLK_OK || task->terminal;
    if (!stopped && batch_status_is_retriable(status) && slice->attempts < state->attempts_max) {
        make_ready(state, index);
        return BATCH_RETRY;
    }
    free_slice(state, index);
    /* What comes back after the end was asked for is its consequence, and masks nothing. */
    if (!stopped || (status == YOLK_ERR_STUCK && !task->terminal))
        note_failure(state, now_ns, task, status);
    settle(state, task_index);
    return stopped ? BATCH_PROGRESS : BATCH_FAILED;
}

bool batch_state_end(struct batch_state *state, uint64_t now_ns, uint32_t index,
                     enum yolk_status status)
{
    struct batch_task *task = &state->tasks[index];
    if (task->terminal)
        return false;
    if (task->failure == YOLK_OK) {
        task->ending = status == YOLK_ERR_CANCELED || status == YOLK_ERR_TIMEOUT;
        note_failure(state, now_ns, task, status);
    }
    settle(state, index);
    return task->taken > 0;
}

uint32_t batch_state_expire(struct batch_state *state, uint64_t now_ns, bool *stuck)
{
    *stuck = false;
    if (state->expire_next == 0) {
        if (now_ns < state->next_due_ns)
            return BATCH_NONE;
        state->next_due_ns = BATCH_NEVER; /* gathered anew, also by what is ended meanwhile */
    }
    for (uint32_t i = state->expire_next; i < state->task_count; i++) {
        struct batch_task *task = &state->tasks[i];
        state->expire_looked++;
        if (task->terminal)
            continue;
        bool over = task->failure != YOLK_OK;
        uint64_t due = over ? task->drain_ns : task->deadline_ns;
        if (now_ns < due) {
            if (due < state->next_due_ns)
                state->next_due_ns = due;
            continue;
        }
        state->expire_next = i + 1;
        if (over) {
            task->failure = YOLK_ERR_STUCK;
            become_terminal(state, task);
            *stuck = true;
        } else {
            (void)batch_state_end(state, now_ns, i, YOLK_ERR_TIMEOUT);
        }
        return i;
    }
    state->expire_next = 0;
    return BATCH_NONE;
}
