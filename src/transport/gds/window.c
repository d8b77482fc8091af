/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/window.h"

#include <assert.h>
#include <string.h>

#include "yolk/status.h"

void gds_window_init(struct gds_window *window, unsigned depth, uint64_t slice)
{
    assert(depth >= 1 && depth <= GDS_SLOTS_MAX && slice > 0);
    memset(window, 0, sizeof(*window));
    window->depth = depth;
    window->slice = slice;
    base_list_init(&window->tasks);
}

/* ---- tasks ---- */

void gds_task_begin(struct gds_window *window, struct gds_task *task)
{
    uint64_t size = task->size;
    *task = (struct gds_task){.size = size, .gap = UINT64_MAX};
    base_list_init(&task->node);
    if (size > 0)
        base_list_push_back(&window->tasks, &task->node);
}

static void free_slot(struct gds_window *window, struct gds_slot *slot)
{
    if (slot->state == GDS_SLOT_SUBMITTED)
        window->submitted--;
    slot->state = GDS_SLOT_FREE;
    slot->task->in_flight--;
    slot->task = NULL;
    window->used--;
}

/* What is cut but not submitted is taken back; what the library has goes its way. */
static void stop(struct gds_window *window, struct gds_task *task)
{
    task->stopped = true;
    base_list_remove(&task->node);
    for (unsigned i = 0; i < window->depth; i++) {
        struct gds_slot *slot = &window->slots[i];
        if (slot->state != GDS_SLOT_READY || slot->task != task)
            continue;
        if (slot->offset < task->gap)
            task->gap = slot->offset;
        free_slot(window, slot);
    }
}

void gds_task_cancel(struct gds_window *window, struct gds_task *task)
{
    if (gds_task_over(task))
        return;
    if (task->failure == YOLK_OK)
        task->failure = YOLK_ERR_CANCELED;
    stop(window, task);
}

bool gds_task_over(const struct gds_task *task)
{
    return task->in_flight == 0 && (task->stopped || task->cut == task->size);
}

int gds_task_status(const struct gds_task *task)
{
    /* A cancel that came when all had been submitted has canceled nothing. */
    if (task->failure == YOLK_ERR_CANCELED && task->cut == task->size && task->gap == UINT64_MAX)
        return YOLK_OK;
    return task->failure;
}

uint64_t gds_task_transferred(const struct gds_window *window, const struct gds_task *task)
{
    uint64_t least = task->cut < task->gap ? task->cut : task->gap;
    for (unsigned i = 0; i < window->depth && task->in_flight > 0; i++) {
        const struct gds_slot *slot = &window->slots[i];
        if (slot->state != GDS_SLOT_FREE && slot->task == task && slot->offset < least)
            least = slot->offset;
    }
    return least;
}

/* ---- slots ---- */

static void cut(struct gds_window *window, struct gds_slot *slot, struct gds_task *task)
{
    uint64_t left = task->size - task->cut;
    slot->state = GDS_SLOT_READY;
    slot->task = task;
    slot->offset = task->cut;
    slot->size = left < window->slice ? left : window->slice;
    slot->generation++;
    task->cut += slot->size;
    task->in_flight++;
    window->used++;
    base_list_remove(&task->node);
    if (task->cut < task->size) /* to the end: the others come first */
        base_list_push_back(&window->tasks, &task->node);
}

unsigned gds_window_fill(struct gds_window *window, unsigned *slots, unsigned max)
{
    unsigned count = 0;
    if (window->broken || window->paused)
        return 0;
    for (unsigned i = 0; i < window->depth && count < max; i++) {
        struct gds_slot *slot = &window->slots[i];
        struct base_list *first = base_list_first(&window->tasks);
        if (slot->state == GDS_SLOT_FREE && first != NULL)
            cut(window, slot, BASE_CONTAINER(first, struct gds_task, node));
        if (slot->state == GDS_SLOT_READY)
            slots[count++] = i;
    }
    return count;
}

uint64_t gds_window_cookie(const struct gds_window *window, unsigned slot)
{
    return window->slots[slot].generation << 8 | (slot + 1);
}

void gds_window_submitted(struct gds_window *window, const unsigned *slots, unsigned count,
                          uint64_t now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        assert(window->slots[slots[i]].state == GDS_SLOT_READY);
        window->slots[slots[i]].state = GDS_SLOT_SUBMITTED;
    }
    window->submitted += count;
    window->last_event_ns = now_ns;
}

/* The slice moved nothing, or what it moved is not known. */
static void fail_slot(struct gds_window *window, struct gds_slot *slot, int status)
{
    struct gds_task *task = slot->task;
    if (slot->offset < task->gap)
        task->gap = slot->offset;
    if (task->failure == YOLK_OK)
        task->failure = status;
    free_slot(window, slot);
    stop(window, task);
}

void gds_window_refused(struct gds_window *window, const unsigned *slots, unsigned count,
                        int status)
{
    for (unsigned i = 0; i < count; i++) {
        /* One that failed with a slice before it in the list has been taken back already. */
        if (window->slots[slots[i]].state == GDS_SLOT_READY)
            fail_slot(window, &window->slots[slots[i]], status);
    }
}

/* ---- events ---- */

/* The gravest first: what one answer tells at once has no order of its own. */
static int graver(int a, int b)
{
    static const int order[] = {YOLK_ERR_IO, YOLK_ERR_TIMEOUT, YOLK_ERR_CANCELED, YOLK_ERR_INVALID,
                                YOLK_ERR_EOF};
    for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (a == order[i] || b == order[i])
            return order[i];
    }
    return a != YOLK_OK ? a : b;
}

static int status_of(const struct cufile_event *event)
{
    switch (event->status) {
    case CUFILE_COMPLETE:
        return (int64_t)event->result < 0 ? YOLK_ERR_IO : YOLK_OK;
    case CUFILE_TIMEOUT:
        return YOLK_ERR_TIMEOUT;
    case CUFILE_CANCELED:
        return YOLK_ERR_CANCELED;
    case CUFILE_INVALID:
        return YOLK_ERR_INVALID;
    default:
        return YOLK_ERR_IO;
    }
}

static bool is_end(int status)
{
    return status != CUFILE_WAITING && status != CUFILE_PENDING && status != 0;
}

static struct gds_slot *slot_of(struct gds_window *window, uint64_t cookie)
{
    unsigned number = (unsigned)(cookie & 0xff);
    if (number == 0 || number > window->depth)
        return NULL;
    struct gds_slot *slot = &window->slots[number - 1];
    return slot->state == GDS_SLOT_SUBMITTED && slot->generation == cookie >> 8 ? slot : NULL;
}

/* A short slice goes on where it ended, in its slot; nothing at all is the end of the file. */
static int complete(struct gds_window *window, struct gds_slot *slot, uint64_t moved)
{
    if (moved > slot->size)
        return YOLK_ERR_IO; /* more than was asked for: nothing of it is to be believed */
    slot->offset += moved;
    slot->size -= moved;
    if (slot->size == 0) {
        free_slot(window, slot);
        return YOLK_OK;
    }
    if (moved == 0)
        return YOLK_ERR_EOF;
    if (window->broken && slot->task->failure == YOLK_OK)
        return YOLK_ERR_IO;
    if (slot->task->stopped) {
        if (slot->offset < slot->task->gap)
            slot->task->gap = slot->offset;
        free_slot(window, slot);
        return YOLK_OK;
    }
    slot->state = GDS_SLOT_READY;
    slot->generation++;
    window->submitted--;
    return YOLK_OK;
}

/* True: it told the end of a slice that failed. */
static bool take_event(struct gds_window *window, const struct cufile_event *event)
{
    struct gds_slot *slot = slot_of(window, (uintptr_t)event->cookie);
    if (slot == NULL) {
        window->strangers++;
        return false;
    }
    if (!is_end(event->status))
        return false;
    struct gds_task *task = slot->task;
    int status = status_of(event);
    if (status == YOLK_OK)
        status = complete(window, slot, event->result);
    if (status == YOLK_OK)
        return false;
    if (slot->offset < task->gap)
        task->gap = slot->offset;
    free_slot(window, slot);
    task->pending_failure = graver(task->pending_failure, status);
    return true;
}

/* Tasks are found by the slots they have, so before these are freed the failure stands in the task;
 * those that failed in this answer stop after all of it was read. */
static void note(struct gds_window *window, struct gds_task **touched, unsigned *count,
                 const struct cufile_event *event)
{
    struct gds_slot *slot = slot_of(window, (uintptr_t)event->cookie);
    for (unsigned i = 0; slot != NULL && i < *count; i++) {
        if (touched[i] == slot->task)
            return;
    }
    if (slot != NULL)
        touched[(*count)++] = slot->task;
}

static void stop_failed(struct gds_window *window, struct gds_task **touched, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct gds_task *task = touched[i];
        if (task->pending_failure == YOLK_OK)
            continue;
        if (task->failure == YOLK_OK)
            task->failure = task->pending_failure;
        task->pending_failure = YOLK_OK;
        stop(window, task);
    }
}

/* Nothing more goes in; what is cut but not submitted will never be. */
static void break_window(struct gds_window *window, int status)
{
    window->broken = true;
    struct base_list *node;
    while ((node = base_list_first(&window->tasks)) != NULL) {
        struct gds_task *task = BASE_CONTAINER(node, struct gds_task, node);
        if (task->failure == YOLK_OK)
            task->failure = status;
        stop(window, task);
    }
    for (unsigned i = 0; i < window->depth; i++) {
        if (window->slots[i].state == GDS_SLOT_READY)
            fail_slot(window, &window->slots[i], status);
    }
}

void gds_window_events(struct gds_window *window, const struct cufile_event *events, unsigned count,
                       int error, uint64_t now_ns)
{
    struct gds_task *touched[GDS_SLOTS_MAX];
    unsigned touched_count = 0;
    bool told_failure = false;
    for (unsigned i = 0; i < count; i++) {
        if (error != CUFILE_OK && events[i].cookie == NULL)
            continue; /* the rest of the array, which a failed call leaves as it was */
        note(window, touched, &touched_count, &events[i]);
        told_failure = take_event(window, &events[i]) || told_failure;
        window->last_event_ns = now_ns;
    }
    stop_failed(window, touched, touched_count);
    if (error == CUFILE_OK)
        return;
    window->last_event_ns = now_ns;
    window->tainted = true;
    if (error != CUFILE_ERR_IO) {
        window->unknown = true;
        break_window(window, YOLK_ERR_IO);
    } else if (!told_failure) {
        window->errors++;
        window->paused = true;
    }
}

/*
 * Of one entry that failed, some versions tell only that the status call fails with an I/O error
 * (S7), so each such answer without a failed event stands for one entry that is over. Nothing more
 * is submitted until it is known which: once all that is left is of that kind and nothing has come
 * for a while, those slices have failed and the memory is quiet, and the others go on. Where more
 * is left, or a call failed otherwise, nothing can be said: the window stays in quarantine.
 */
void gds_window_settle(struct gds_window *window, uint64_t now_ns)
{
    if (window->unknown || window->submitted > window->errors ||
        (window->submitted > 0 && now_ns - window->last_event_ns < GDS_QUIET_NS))
        return;
    for (unsigned i = 0; i < window->depth; i++) {
        if (window->slots[i].state == GDS_SLOT_SUBMITTED)
            fail_slot(window, &window->slots[i], YOLK_ERR_IO);
    }
    window->errors = 0;
    window->paused = false;
}

void gds_window_lost(struct gds_window *window, const unsigned *slots, unsigned count, bool broken)
{
    for (unsigned i = 0; i < count; i++) {
        /* One of a task that failed with a slice before it in the list is submitted all the same.
         */
        struct gds_slot *slot = &window->slots[slots[i]];
        if (slot->state != GDS_SLOT_SUBMITTED)
            continue;
        slot->task->lost = slot->task->lost || slot->task->failure == YOLK_OK;
        fail_slot(window, slot, YOLK_ERR_IO);
    }
    if (window->errors > window->submitted)
        window->errors = window->submitted;
    window->paused = window->errors > 0;
    window->tainted = true;
    if (broken)
        break_window(window, YOLK_ERR_IO);
}

bool gds_window_quiet(const struct gds_window *window)
{
    return window->submitted == 0;
}

bool gds_window_reusable(const struct gds_window *window)
{
    return window->submitted == 0 && !window->tainted;
}
