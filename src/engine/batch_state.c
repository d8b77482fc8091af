/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/batch_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/mutation.h"
#include "engine/merge.h"

static void clear_queues(struct batch_state *state)
{
    for (int i = 0; i < BATCH_LEVELS; i++)
        state->queues[i] = (struct batch_queue){BATCH_NONE, BATCH_NONE, 0};
    state->queue_length = 0;
}

enum yolk_status batch_state_init(struct batch_state *state, uint32_t capacity, uint32_t window,
                                  uint32_t attempts_max, uint64_t drain_limit_ns)
{
    memset(state, 0, sizeof(*state));
    state->tasks = base_malloc((capacity == 0 ? 1 : (size_t)capacity) * sizeof(*state->tasks));
    if (state->tasks == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a batch of %u tasks", capacity);
    state->task_room = capacity;
    state->free_head = BATCH_NONE;
    clear_queues(state);
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

void batch_state_reset(struct batch_state *state)
{
    assert(state->pending == 0 && state->taken == 0);
    clear_queues(state); /* of tasks that were over before their turn */
    state->task_count = 0;
    state->expire_next = 0;
    state->next_due_ns = BATCH_NEVER;
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
    if (task->queued || task->open == 0)
        return;
    task->queued = true;
    task->queue_next = BATCH_NONE;
    struct batch_queue *queue = &state->queues[task->level];
    if (queue->tail == BATCH_NONE) {
        queue->head = queue->tail = index;
    } else if (state->keeps_order) {
        task->queue_next = queue->head;
        queue->head = index;
    } else {
        state->tasks[queue->tail].queue_next = index;
        queue->tail = index;
    }
    queue->length++;
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
    task->head = index;
    task->members = 1;
    return index;
}

uint32_t batch_state_add(struct batch_state *state, uint64_t size, uint64_t deadline_ns,
                         uint64_t cookie)
{
    return batch_state_add_ranked(state, size, deadline_ns, cookie, (struct batch_rank){0});
}

uint32_t batch_state_add_ranked(struct batch_state *state, uint64_t size, uint64_t deadline_ns,
                                uint64_t cookie, struct batch_rank rank)
{
    uint32_t index = new_task(state, cookie);
    state->tasks[index].level = rank.level;
    state->tasks[index].since_ns = rank.now_ns;
    state->tasks[index].exact = rank.exact;
    state->tasks[index].size = size;
    state->tasks[index].span = size;
    state->tasks[index].open = 1;
    state->tasks[index].deadline_ns = deadline_ns;
    if (deadline_ns < state->next_due_ns)
        state->next_due_ns = deadline_ns;
    state->pending++;
    if (!rank.held)
        enqueue(state, index);
    return index;
}

void batch_state_release(struct batch_state *state, uint32_t head)
{
    enqueue(state, head);
}

void batch_state_truncate(struct batch_state *state, uint32_t first)
{
    for (uint32_t i = first; i < state->task_count; i++) {
        assert(!state->tasks[i].queued);
        state->pending -= !state->tasks[i].terminal;
    }
    state->task_count = first;
}

uint32_t batch_state_join(struct batch_state *state, uint64_t size, uint64_t cookie)
{
    uint32_t index = new_task(state, cookie);
    struct batch_task *task = &state->tasks[index];
    task->head = task[-1].head;
    struct batch_task *head = &state->tasks[task->head];
    assert(size > 0 && head->span > 0 && head->cut == 0 && head->open == head->members);
    task->size = size;
    task->start = head->span;
    task->exact = head->exact;
    task->deadline_ns = head->deadline_ns;
    head->span += size;
    head->members++;
    head->open++;
    state->pending++;
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

uint32_t batch_state_dequeue_level(struct batch_state *state, uint8_t level)
{
    struct batch_queue *queue = &state->queues[level];
    uint32_t index = queue->head;
    if (index == BATCH_NONE)
        return BATCH_NONE;
    struct batch_task *task = &state->tasks[index];
    queue->head = task->queue_next;
    if (queue->head == BATCH_NONE)
        queue->tail = BATCH_NONE;
    queue->length--;
    state->queue_length--;
    task->queued = false;
    return index;
}

uint32_t batch_state_dequeue(struct batch_state *state)
{
    uint32_t index = BATCH_NONE;
    for (uint8_t level = 0; level < BATCH_LEVELS && index == BATCH_NONE; level++)
        index = batch_state_dequeue_level(state, level);
    return index;
}

void batch_state_promote(struct batch_state *state, uint64_t now_ns)
{
    for (uint8_t level = 1; level < BATCH_LEVELS; level++) {
        uint32_t head;
        while ((head = state->queues[level].head) != BATCH_NONE) {
            struct batch_task *task = &state->tasks[head];
            if (now_ns < task->since_ns || now_ns - task->since_ns < BATCH_PROMOTION_NS)
                break;
            (void)batch_state_dequeue_level(state, level);
            task->level--;
            task->since_ns += BATCH_PROMOTION_NS;
            enqueue(state, head);
        }
    }
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

static void count_shared(struct batch_state *state, const struct batch_slice *slice, uint32_t by)
{
    struct batch_task *member = &state->tasks[merge_member_at(state, slice->task, slice->offset)];
    for (uint64_t end = slice->offset + slice->size, at = slice->offset; at < end; member++) {
        member->taken += by;
        at = member->start + member->size;
    }
}

/* Of bytes that just went to a transport (by 1) or came back from it (by -1). */
static inline void count_taken(struct batch_state *state, const struct batch_slice *slice,
                               struct batch_task *head, uint32_t by)
{
    head->out += by;
    state->taken += by;
    if (head->members == 1)
        head->taken += by;
    else
        count_shared(state, slice, by);
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
    count_taken(state, slice, task, 1);
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
    count_taken(state, slice, task, UINT32_MAX);
}

/* A new slice from where the last one ended. */
static uint32_t cut_slice(struct batch_state *state, uint32_t index, uint64_t most, bool *no_memory)
{
    struct batch_task *head = &state->tasks[index];
    uint64_t left = head->span - head->cut;
    uint64_t size = left < most ? left : most;
    if (head->holes) {
        size = merge_run(state, index, &head->cut, left, false);
        size = size < most ? size : most;
        if (size == 0) {
            head->cut = head->span;
            return BATCH_NONE;
        }
    }
    uint32_t slot = new_slice(state);
    if (slot == BATCH_NONE) {
        *no_memory = true;
        return BATCH_NONE;
    }
    struct batch_slice *slice = &state->slices[slot];
    uint32_t generation = slice->generation;
    *slice = (struct batch_slice){
        .offset = head->cut, .size = size, .task = index, .generation = generation};
    head->cut += size;
    head->whole_cut = true;
    return slot;
}

/* A slice that waits for another try, without the bytes of members that ended meanwhile; what lies
 * behind those waits on as another one. */
static uint32_t ready_slice(struct batch_state *state, uint32_t index, bool *no_memory)
{
    struct batch_task *head = &state->tasks[index];
    while (head->ready_head != BATCH_NONE) {
        uint32_t slot = head->ready_head;
        struct batch_slice *slice = &state->slices[slot];
        head->ready_head = slice->next;
        if (!head->holes && !slice->alone)
            return slot;
        uint64_t end = slice->offset + slice->size;
        uint64_t size = merge_run(state, index, &slice->offset, slice->size, slice->alone);
        if (size == 0) {
            free_slice(state, slot);
            continue;
        }
        if (slice->offset + size < end) {
            uint32_t rest = new_slice(state);
            slice = &state->slices[slot];
            if (rest == BATCH_NONE) {
                slice->size = end - slice->offset;
                make_ready(state, slot);
                *no_memory = true;
                return BATCH_NONE;
            }
            uint32_t generation = state->slices[rest].generation;
            state->slices[rest] = *slice;
            state->slices[rest].generation = generation;
            state->slices[rest].offset = slice->offset + size;
            state->slices[rest].size = end - slice->offset - size;
            make_ready(state, rest);
        }
        slice->size = size;
        return slot;
    }
    return BATCH_NONE;
}

uint32_t batch_state_take(struct batch_state *state, uint32_t index, uint64_t slice_bytes_max,
                          bool *no_memory)
{
    const struct batch_task *head = &state->tasks[index];
    *no_memory = false;
    if (head->out >= state->window || !batch_state_has_work(state, index))
        return BATCH_NONE;
    uint32_t slot = BATCH_NONE;
    if (head->ready_head != BATCH_NONE)
        slot = ready_slice(state, index, no_memory);
    if (slot == BATCH_NONE && !*no_memory && !batch_task_is_cut(head))
        slot = cut_slice(state, index, slice_bytes_max, no_memory);
    if (slot != BATCH_NONE)
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

static void drop_ready(struct batch_state *state, struct batch_task *head)
{
    while (head->ready_head != BATCH_NONE) {
        uint32_t index = head->ready_head;
        head->ready_head = state->slices[index].next;
        free_slice(state, index);
    }
}

static void become_terminal(struct batch_state *state, struct batch_task *task)
{
    struct batch_task *head = &state->tasks[task->head];
    task->terminal = true;
    task->terminal_events++;
    state->pending--;
    if (--head->open == 0)
        drop_ready(state, head);
}

/* Terminal = result known and memory quiet. */
static void settle(struct batch_state *state, uint32_t index)
{
    struct batch_task *task = &state->tasks[index];
    bool quiet = task->taken == 0;
    if (task->failure != YOLK_OK)
        quiet = quiet || mutated(task->ending ? MUT_FREE_AT_CANCEL : MUT_END_BEFORE_QUIET);
    if (task->terminal || !quiet)
        return;
    /* No byte is counted twice, so with all of them in place nothing is left to be cut. */
    bool complete = task->size > 0 ? task->done == task->size : task->landed;
    if (task->failure == YOLK_OK && !complete)
        return;
    /* A cancel that came too late, or a deadline: all bytes are there, so the request worked. */
    if (complete && task->ending)
        task->failure = YOLK_OK;
    become_terminal(state, task);
}

static void note_failure(struct batch_state *state, uint64_t now_ns, struct batch_task *task,
                         enum yolk_status status)
{
    struct batch_task *head = &state->tasks[task->head];
    if (status == YOLK_ERR_EOF && task->exact)
        status = YOLK_ERR_IO;
    if (task->failure == YOLK_OK || severity(status) > severity(task->failure))
        task->failure = status;
    if (task->drain_ns == BATCH_NEVER) {
        task->drain_ns = now_ns > BATCH_NEVER - state->drain_limit_ns
                             ? BATCH_NEVER
                             : now_ns + state->drain_limit_ns;
        if (task->drain_ns < state->next_due_ns)
            state->next_due_ns = task->drain_ns;
    }
    if (head->members == 1)
        drop_ready(state, head);
    else
        head->holes = true;
}

/* The part of the slice that is in place counts, whatever the rest became. */
static void advance(struct batch_state *state, struct batch_slice *slice, uint64_t transferred,
                    enum yolk_status status)
{
    struct batch_task *head = &state->tasks[slice->task];
    if (transferred > slice->size)
        transferred = slice->size;
    /* Of several slices behind the end of a file, any may be the first to say so. */
    bool open_only = status != YOLK_OK && status != YOLK_ERR_EOF;
    if (head->members > 1)
        merge_credit(state, slice->task, slice->offset, transferred, open_only);
    else if (!open_only || head->failure == YOLK_OK)
        head->done += transferred;
    else
        return;
    slice->offset += transferred;
    slice->size -= transferred;
}

/* Whether anybody still wants what is left of the slice. */
static bool is_wanted(const struct batch_state *state, const struct batch_slice *slice)
{
    const struct batch_task *head = &state->tasks[slice->task];
    if (head->members == 1)
        return !merge_is_over(head);
    uint64_t offset = slice->offset;
    return merge_run(state, slice->task, &offset, slice->size, true) > 0;
}

bool batch_state_is_wanted(const struct batch_state *state, uint32_t index)
{
    return is_wanted(state, &state->slices[index]);
}

/* The slice waits for the next try under another cookie. */
static void again(struct batch_state *state, uint32_t index)
{
    state->slices[index].generation++;
    state->slices[index].cancel_asked = false;
    make_ready(state, index);
}

static void try_anew(struct batch_state *state, uint32_t index)
{
    struct batch_slice *slice = &state->slices[index];
    slice->attempts = 0;
    slice->tried = 0;
    slice->last = YOLK_OK;
    again(state, index);
}

/* Nothing helps: ends the tasks of the slice that have not ended. */
static void fail_slice(struct batch_state *state, uint64_t now_ns, uint32_t index, uint32_t first,
                       enum yolk_status status, bool wanted)
{
    free_slice(state, index);
    for (uint32_t i = first; i <= state->touched_last; i++) {
        struct batch_task *task = &state->tasks[i];
        /* What comes back after the end was asked for is its consequence, and masks nothing. */
        if ((wanted && !merge_is_over(task)) || (status == YOLK_ERR_STUCK && !task->terminal))
            note_failure(state, now_ns, task, status);
    }
}

/* All of it is in place. */
static enum batch_outcome slice_done(struct batch_state *state, uint32_t index)
{
    uint32_t head = state->slices[index].task;
    free_slice(state, index);
    if (batch_state_has_work(state, head))
        enqueue(state, head); /* the window has room again */
    return BATCH_PROGRESS;
}

/* What becomes of a slice that was taken, with transferred bytes of it in place. */
static enum batch_outcome slice_ended(struct batch_state *state, uint64_t now_ns, uint32_t index,
                                      enum yolk_status status, uint64_t transferred)
{
    struct batch_slice *slice = &state->slices[index];
    if (status == YOLK_OK && transferred >= slice->size) {
        advance(state, slice, transferred, status);
        return slice_done(state, index);
    }
    bool empty = slice->size == 0;
    bool wanted = is_wanted(state, slice);
    advance(state, slice, transferred, status);
    if (slice->size == 0 && !empty && status != YOLK_ERR_STUCK)
        return slice_done(state, index);
    if (status != YOLK_ERR_STUCK) /* of which nothing is certain */
        wanted = is_wanted(state, slice);
    bool moved = status == YOLK_OK && transferred > 0;
    if (wanted && (moved || (status == YOLK_ERR_CANCELED && slice->cancel_asked))) {
        /* Short, or taken back for the sake of another task: the rest is another io. */
        try_anew(state, index);
        return BATCH_PROGRESS;
    }
    if (moved) {
        free_slice(state, index);
        return BATCH_PROGRESS;
    }
    if (status == YOLK_OK)
        status = YOLK_ERR_EOF; /* no bytes at all, twice and thrice */
    slice->attempts++;
    slice->tried |= UINT32_C(1) << slice->route;
    enum failover_kind kind =
        state->kinds != NULL ? (enum failover_kind)state->kinds[slice->route] : FAILOVER_NETWORK;
    enum failover_action action = failover_decide(kind, status);
    slice->retry_here = action == FAILOVER_RETRY;
    slice->last = status;
    if (wanted && action != FAILOVER_FAIL && !state->no_retry) {
        if (slice->attempts < state->attempts_max) {
            again(state, index);
            return BATCH_RETRY;
        }
        state->exhausted++;
    }
    /* Whose bytes are in place has them, unless nobody knows what still happens to them. */
    uint32_t first = status == YOLK_ERR_STUCK ? state->touched_first
                                              : merge_member_at(state, slice->task, slice->offset);
    if (wanted && first < state->touched_last && status != YOLK_ERR_STUCK &&
        !failover_blames_route(status)) {
        /* Of them together, which says nothing of each. */
        slice->alone = true;
        try_anew(state, index);
        return BATCH_RETRY;
    }
    fail_slice(state, now_ns, index, first, status, wanted);
    return wanted ? BATCH_FAILED : BATCH_PROGRESS;
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
    const struct batch_slice *slice = &state->slices[index];
    uint32_t head = slice->task;
    struct batch_task *task = &state->tasks[head];
    *task_out = head;
    state->touched_first = head;
    state->touched_last = head;
    if (task->members > 1) {
        state->touched_first = merge_member_at(state, head, slice->offset);
        state->touched_last = merge_member_at(state, head, slice->offset + slice->size - 1);
    }
    unlist_taken(state, index);
    if (task->members == 1 && status == YOLK_OK && transferred >= slice->size) {
        task->done += slice->size; /* as nearly all are */
        task->landed = true;
        enum batch_outcome done = slice_done(state, index);
        settle(state, head);
        return done;
    }
    enum batch_outcome outcome = slice_ended(state, now_ns, index, status, transferred);
    for (uint32_t i = state->touched_first; i <= state->touched_last; i++)
        settle(state, i);
    /* Whatever became of it: the window has room again for what the other members still miss. */
    if (batch_state_has_work(state, head))
        enqueue(state, head);
    return outcome;
}

bool batch_state_shares(const struct batch_state *state, uint32_t index, uint32_t task_index)
{
    const struct batch_slice *slice = &state->slices[index];
    const struct batch_task *task = &state->tasks[task_index];
    return state->tasks[slice->task].members == 1 ||
           (slice->offset < task->start + task->size && task->start < slice->offset + slice->size);
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
        if (now_ns < due || (!over && mutated(MUT_IGNORE_DEADLINE))) {
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
