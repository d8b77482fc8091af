/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/gds/window.h"
#include "yolk/status.h"

#define COOKIE(w, slot) ((void *)(uintptr_t)gds_window_cookie((w), (slot)))

static struct cufile_event event(const struct gds_window *w, unsigned slot, int status,
                                 int64_t bytes)
{
    return (struct cufile_event){COOKIE(w, slot), status, (size_t)bytes};
}

static unsigned submit_all(struct gds_window *w, unsigned *slots)
{
    unsigned count = gds_window_fill(w, slots, GDS_SLOTS_MAX);
    gds_window_submitted(w, slots, count, 0);
    return count;
}

static void a_task_goes_through_the_window_in_slices(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 25};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 2, 10);
    gds_task_begin(&w, &task);
    assert_int_equal(submit_all(&w, slots), 2);
    assert_int_not_equal(gds_window_cookie(&w, 0), 0);
    assert_int_equal(gds_window_fill(&w, slots, GDS_SLOTS_MAX), 0);
    /* The second first: nothing is certain from the start. */
    struct cufile_event e = event(&w, 1, CUFILE_COMPLETE, 10);
    gds_window_events(&w, &e, 1, CUFILE_OK, 1);
    assert_int_equal(gds_task_transferred(&w, &task), 0);
    assert_int_equal(submit_all(&w, slots), 1);
    assert_int_equal(w.slots[1].offset, 20);
    assert_int_equal(w.slots[1].size, 5);
    e = event(&w, 0, CUFILE_COMPLETE, 10);
    gds_window_events(&w, &e, 1, CUFILE_OK, 2);
    assert_int_equal(gds_task_transferred(&w, &task), 20);
    assert_false(gds_task_over(&task));
    e = event(&w, 1, CUFILE_COMPLETE, 3); /* short: it goes on */
    gds_window_events(&w, &e, 1, CUFILE_OK, 3);
    assert_int_equal(gds_task_transferred(&w, &task), 23);
    assert_int_equal(submit_all(&w, slots), 1);
    assert_int_equal(w.slots[1].offset, 23);
    assert_int_equal(w.slots[1].size, 2);
    e = event(&w, 1, CUFILE_COMPLETE, 2);
    gds_window_events(&w, &e, 1, CUFILE_OK, 4);
    assert_true(gds_task_over(&task));
    assert_int_equal(gds_task_status(&task), YOLK_OK);
    assert_int_equal(gds_task_transferred(&w, &task), 25);
    assert_true(gds_window_reusable(&w));
    struct gds_task empty = {.size = 0};
    gds_task_begin(&w, &empty);
    assert_true(gds_task_over(&empty));
    assert_int_equal(gds_task_status(&empty), YOLK_OK);
}

/* The first that became known is told, when no slice is in the library; a sibling is untouched. */
static void a_failure_is_held_until_all_is_quiet(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 40}, sibling = {.size = 20};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 4, 10);
    gds_task_begin(&w, &task);
    gds_task_begin(&w, &sibling);
    assert_int_equal(submit_all(&w, slots), 4); /* two of each */
    struct cufile_event e = event(&w, 2, CUFILE_TIMEOUT, 0);
    gds_window_events(&w, &e, 1, CUFILE_OK, 1);
    assert_false(gds_task_over(&task));
    assert_int_equal(submit_all(&w, slots), 0); /* not fed any more, and the sibling is cut */
    e = event(&w, 0, CUFILE_CANCELED, 0);
    gds_window_events(&w, &e, 1, CUFILE_OK, 2);
    assert_true(gds_task_over(&task));
    assert_int_equal(gds_task_status(&task), YOLK_ERR_TIMEOUT);
    assert_int_equal(gds_task_transferred(&w, &task), 0);
    assert_false(gds_window_reusable(&w));
    struct cufile_event both[] = {event(&w, 1, CUFILE_COMPLETE, 10),
                                  event(&w, 3, CUFILE_COMPLETE, 10)};
    gds_window_events(&w, both, 2, CUFILE_OK, 3);
    assert_int_equal(gds_task_status(&sibling), YOLK_OK);
    assert_int_equal(gds_task_transferred(&w, &sibling), 20);
    assert_true(gds_window_reusable(&w));
}

static void failures_of_one_answer_have_no_order(void **state)
{
    static const int graver[] = {CUFILE_FAILED, CUFILE_TIMEOUT, CUFILE_CANCELED, CUFILE_INVALID};
    static const int wanted[] = {YOLK_ERR_IO, YOLK_ERR_TIMEOUT, YOLK_ERR_CANCELED,
                                 YOLK_ERR_INVALID};
    (void)state;
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            struct gds_window w;
            struct gds_task task = {.size = 20};
            unsigned slots[GDS_SLOTS_MAX];
            gds_window_init(&w, 2, 10);
            gds_task_begin(&w, &task);
            (void)submit_all(&w, slots);
            struct cufile_event events[] = {event(&w, 0, graver[a], -5),
                                            event(&w, 1, graver[b], -5)};
            gds_window_events(&w, events, 2, CUFILE_OK, 1);
            assert_true(gds_task_over(&task));
            assert_int_equal(gds_task_status(&task), wanted[a < b ? a : b]);
        }
    }
}

static void events_without_a_slice_are_dropped(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 10}, next = {.size = 10};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 1, 10);
    gds_task_begin(&w, &task);
    (void)submit_all(&w, slots);
    struct cufile_event first = event(&w, 0, CUFILE_COMPLETE, 10);
    gds_window_events(&w, &first, 1, CUFILE_OK, 1);
    gds_task_begin(&w, &next);
    (void)submit_all(&w, slots);
    struct cufile_event odd[] = {first, /* the slot is another slice's now */
                                 {NULL, CUFILE_COMPLETE, 10},
                                 {(void *)(uintptr_t)0xff01, CUFILE_FAILED, 0},
                                 {(void *)(uintptr_t)0xff, CUFILE_FAILED, 0},
                                 event(&w, 0, CUFILE_PENDING, 0)};
    gds_window_events(&w, odd, 5, CUFILE_OK, 2);
    assert_int_equal(w.strangers, 4);
    assert_false(gds_task_over(&next));
    struct cufile_event more = event(&w, 0, CUFILE_COMPLETE, 11); /* than was asked for */
    gds_window_events(&w, &more, 1, CUFILE_OK, 3);
    assert_int_equal(gds_task_status(&next), YOLK_ERR_IO);
    assert_int_equal(gds_task_transferred(&w, &next), 0);
}

/* As seen of 1.15: the call fails, the failed entry is never told, the array holds what else ended.
 */
static void an_entry_that_is_never_told_is_found_by_what_is_left(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 10}, sibling = {.size = 30};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 3, 10);
    gds_task_begin(&w, &task);
    gds_task_begin(&w, &sibling);
    assert_int_equal(submit_all(&w, slots), 3);
    struct cufile_event array[3] = {event(&w, 1, CUFILE_COMPLETE, 10)};
    gds_window_events(&w, array, 3, CUFILE_ERR_IO, 100);
    assert_int_equal(w.strangers, 0);           /* the array's empty rest */
    assert_int_equal(submit_all(&w, slots), 0); /* until it is known whose it is */
    gds_window_settle(&w, 100 + 2 * (uint64_t)GDS_QUIET_NS);
    assert_false(gds_task_over(&task)); /* two are left, and one of them may still move bytes */
    array[0] = event(&w, 2, CUFILE_COMPLETE, 10);
    gds_window_events(&w, array, 1, CUFILE_OK, 200);
    gds_window_settle(&w, 200 + GDS_QUIET_NS - 1);
    assert_false(gds_task_over(&task));
    gds_window_settle(&w, 200 + (uint64_t)GDS_QUIET_NS);
    assert_true(gds_task_over(&task));
    assert_int_equal(gds_task_status(&task), YOLK_ERR_IO);
    assert_int_equal(submit_all(&w, slots), 1); /* the sibling goes on */
    array[0] = event(&w, slots[0], CUFILE_COMPLETE, 10);
    gds_window_events(&w, array, 1, CUFILE_OK, 300);
    assert_int_equal(gds_task_status(&sibling), YOLK_OK);
    assert_true(gds_task_over(&sibling) && gds_window_quiet(&w));
    assert_false(gds_window_reusable(&w)); /* a handle whose status call failed is not pooled */
}

/* As seen of 1.20: the call fails and tells the failed entry. */
static void an_entry_told_by_a_failing_call_harms_nobody_else(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 10}, sibling = {.size = 30};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 2, 10);
    gds_task_begin(&w, &task);
    gds_task_begin(&w, &sibling);
    (void)submit_all(&w, slots);
    struct cufile_event array[2] = {event(&w, 0, CUFILE_FAILED, -1)};
    gds_window_events(&w, array, 2, CUFILE_ERR_IO, 1);
    assert_true(gds_task_over(&task));
    assert_int_equal(gds_task_status(&task), YOLK_ERR_IO);
    assert_int_equal(submit_all(&w, slots), 1);
}

static void a_call_that_fails_otherwise_ends_in_quarantine(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 10}, waiting = {.size = 30};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 1, 10);
    gds_task_begin(&w, &task);
    gds_task_begin(&w, &waiting);
    (void)submit_all(&w, slots);
    gds_window_events(&w, NULL, 0, CUFILE_ERR_BATCH_STATUS, 1);
    assert_true(gds_task_over(&waiting)); /* the library has nothing of it */
    assert_int_equal(gds_task_status(&waiting), YOLK_ERR_IO);
    gds_window_settle(&w, 100 * (uint64_t)GDS_QUIET_NS);
    assert_false(gds_task_over(&task) || gds_window_quiet(&w));
    struct cufile_event late = event(&w, 0, CUFILE_COMPLETE, 10); /* it is well after all */
    gds_window_events(&w, &late, 1, CUFILE_OK, 2);
    assert_true(gds_task_over(&task) && gds_window_quiet(&w));
    assert_int_equal(gds_task_status(&task), YOLK_OK);
    assert_false(gds_window_reusable(&w));
}

static void a_cancel_drains(void **state)
{
    struct gds_window w;
    struct gds_task task = {.size = 100}, whole = {.size = 10};
    unsigned slots[GDS_SLOTS_MAX];
    (void)state;
    gds_window_init(&w, 3, 10);
    gds_task_begin(&w, &task);
    gds_task_begin(&w, &whole);
    assert_int_equal(gds_window_fill(&w, slots, GDS_SLOTS_MAX), 3);
    gds_window_submitted(&w, slots, 2, 0); /* the third is cut, not submitted */
    gds_task_cancel(&w, &task);
    gds_task_cancel(&w, &whole); /* all of it is submitted already */
    assert_int_equal(gds_window_fill(&w, slots, GDS_SLOTS_MAX), 0);
    struct cufile_event events[] = {event(&w, 0, CUFILE_COMPLETE, 10),
                                    event(&w, 1, CUFILE_COMPLETE, 10)};
    gds_window_events(&w, events, 2, CUFILE_OK, 1);
    assert_true(gds_task_over(&task) && gds_task_over(&whole));
    assert_int_equal(gds_task_status(&task), YOLK_ERR_CANCELED);
    assert_int_equal(gds_task_transferred(&w, &task), 10);
    assert_int_equal(gds_task_status(&whole), YOLK_OK);
    assert_true(gds_window_reusable(&w));
}

/* ---- drawn histories beside a model that knows each byte ---- */

enum { TASKS = 5, SIZE_MAX_ = 120 };

struct model_task {
    struct gds_task task;
    bool arrived[SIZE_MAX_];
    int failure; /* the first known */
    bool failed, over;
    uint64_t before; /* transferred when last looked at */
    unsigned in_library;
};

struct world {
    struct gds_window w;
    struct model_task tasks[TASKS];
    uint64_t seed, now;
    uint64_t strangers;
};

static uint64_t draw(struct world *d, uint64_t below)
{
    d->seed = d->seed * 6364136223846793005u + 1442695040888963407u;
    return (d->seed >> 33) % below;
}

static struct model_task *owner(struct world *d, unsigned slot)
{
    return (struct model_task *)(void *)d->w.slots[slot].task;
}

static void draw_submission(struct world *d)
{
    unsigned slots[GDS_SLOTS_MAX];
    unsigned count = gds_window_fill(&d->w, slots, 1 + (unsigned)draw(d, 8));
    for (unsigned i = 0; i < count; i++) {
        const struct gds_slot *slot = &d->w.slots[slots[i]];
        struct model_task *m = owner(d, slots[i]);
        assert_false(m->failed); /* nothing more of what has failed */
        assert_true(slot->size > 0 && slot->size <= d->w.slice);
        assert_true(slot->offset + slot->size <= m->task.size);
        for (uint64_t b = slot->offset; b < slot->offset + slot->size; b++)
            assert_false(m->arrived[b]); /* nor what is there already */
    }
    if (draw(d, 20) == 0) {
        int status = draw(d, 2) ? YOLK_ERR_IO : YOLK_ERR_INVALID;
        struct model_task *owners[GDS_SLOTS_MAX];
        for (unsigned i = 0; i < count; i++)
            owners[i] = owner(d, slots[i]);
        gds_window_refused(&d->w, slots, count, status);
        for (unsigned i = 0; i < count; i++) {
            if (!owners[i]->failed)
                owners[i]->failure = status;
            owners[i]->failed = true;
        }
        return;
    }
    for (unsigned i = 0; i < count; i++)
        owner(d, slots[i])->in_library++;
    gds_window_submitted(&d->w, slots, count, d->now);
}

static int grave(int status)
{
    return status == YOLK_ERR_IO         ? 5
           : status == YOLK_ERR_TIMEOUT  ? 4
           : status == YOLK_ERR_CANCELED ? 3
           : status == YOLK_ERR_INVALID  ? 2
           : status == YOLK_ERR_EOF      ? 1
                                         : 0;
}

/* One answer of the status call: of the slices in the library some end, in any order, with noise.
 */
static void draw_answer(struct world *d)
{
    struct cufile_event events[2 * GDS_SLOTS_MAX];
    struct model_task *failing[GDS_SLOTS_MAX];
    int how[GDS_SLOTS_MAX];
    unsigned count = 0, failures = 0;
    unsigned start = (unsigned)draw(d, d->w.depth);
    for (unsigned k = 0; k < d->w.depth; k++) {
        unsigned i = (start + k) % d->w.depth;
        struct gds_slot *slot = &d->w.slots[i];
        if (slot->state != GDS_SLOT_SUBMITTED || draw(d, 3) == 0)
            continue;
        struct model_task *m = owner(d, i);
        uint64_t kind = draw(d, 24);
        uint64_t moved = kind == 1 ? draw(d, slot->size) : slot->size;
        if (draw(d, 6) == 0)
            events[count++] = event(&d->w, i, CUFILE_PENDING, 0);
        if (kind >= 2 && kind <= 5) {
            static const int statuses[] = {CUFILE_FAILED, CUFILE_TIMEOUT, CUFILE_CANCELED,
                                           CUFILE_INVALID};
            static const int wanted[] = {YOLK_ERR_IO, YOLK_ERR_TIMEOUT, YOLK_ERR_CANCELED,
                                         YOLK_ERR_INVALID};
            events[count++] = event(&d->w, i, statuses[kind - 2], -1);
            how[failures] = wanted[kind - 2];
            failing[failures++] = m;
        } else {
            events[count++] = event(&d->w, i, CUFILE_COMPLETE, (int64_t)moved);
            for (uint64_t b = slot->offset; b < slot->offset + moved; b++)
                m->arrived[b] = true;
            if (moved == 0) {
                how[failures] = YOLK_ERR_EOF;
                failing[failures++] = m;
            }
        }
        m->in_library--;
        if (draw(d, 8) == 0) { /* once more, when it is over */
            events[count++] = event(&d->w, i, CUFILE_FAILED, -1);
            d->strangers++;
        }
    }
    gds_window_events(&d->w, events, count, CUFILE_OK, d->now);
    for (unsigned i = 0; i < failures; i++) { /* the gravest of this answer, if it is the first */
        int gravest = YOLK_OK;
        for (unsigned k = 0; k < failures; k++) {
            if (failing[k] == failing[i] && grave(how[k]) > grave(gravest))
                gravest = how[k];
        }
        if (failing[i]->failure == YOLK_OK)
            failing[i]->failure = gravest;
        failing[i]->failed = true;
    }
}

static void check(struct world *d)
{
    unsigned used = 0;
    for (unsigned i = 0; i < d->w.depth; i++)
        used += d->w.slots[i].state != GDS_SLOT_FREE;
    assert_int_equal(used, d->w.used);
    assert_int_equal(d->strangers, d->w.strangers);
    for (unsigned t = 0; t < TASKS; t++) {
        struct model_task *m = &d->tasks[t];
        uint64_t prefix = 0, transferred = gds_task_transferred(&d->w, &m->task);
        while (prefix < m->task.size && m->arrived[prefix])
            prefix++;
        assert_true(transferred <= prefix);
        assert_true(transferred >= m->before);
        m->before = transferred;
        bool over = gds_task_over(&m->task);
        assert_true(over || !m->over); /* it stays so */
        assert_false(over && m->in_library > 0);
        m->over = over;
        if (!over)
            continue;
        assert_int_equal(transferred, prefix);
        int status = gds_task_status(&m->task);
        if (prefix == m->task.size && m->failure == YOLK_ERR_CANCELED)
            assert_true(status == YOLK_OK || status == YOLK_ERR_CANCELED);
        else
            assert_int_equal(status, m->failure);
        assert_true(status != YOLK_OK || prefix == m->task.size);
    }
}

static bool all_over(const struct world *d)
{
    for (unsigned t = 0; t < TASKS; t++) {
        if (!gds_task_over(&d->tasks[t].task))
            return false;
    }
    return true;
}

static void drawn_histories_agree_with_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct world d = {.seed = seed};
        gds_window_init(&d.w, 1 + (unsigned)draw(&d, 12), 1 + draw(&d, 20));
        for (unsigned t = 0; t < TASKS; t++) {
            d.tasks[t].task.size = draw(&d, SIZE_MAX_ + 1);
            gds_task_begin(&d.w, &d.tasks[t].task);
        }
        for (unsigned step = 0; step < 3000 && !all_over(&d); step++) {
            uint64_t what = draw(&d, 40);
            d.now += draw(&d, 1000);
            if (what == 0) {
                struct model_task *m = &d.tasks[draw(&d, TASKS)];
                if (!gds_task_over(&m->task) && !m->failed) {
                    m->failure = YOLK_ERR_CANCELED;
                    m->failed = true;
                }
                gds_task_cancel(&d.w, &m->task);
            } else if (what < 20) {
                draw_submission(&d);
            } else {
                draw_answer(&d);
            }
            check(&d);
        }
        assert_true(all_over(&d));
        assert_true(gds_window_reusable(&d.w));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_goes_through_the_window_in_slices),
        cmocka_unit_test(a_failure_is_held_until_all_is_quiet),
        cmocka_unit_test(failures_of_one_answer_have_no_order),
        cmocka_unit_test(events_without_a_slice_are_dropped),
        cmocka_unit_test(an_entry_that_is_never_told_is_found_by_what_is_left),
        cmocka_unit_test(an_entry_told_by_a_failing_call_harms_nobody_else),
        cmocka_unit_test(a_call_that_fails_otherwise_ends_in_quarantine),
        cmocka_unit_test(a_cancel_drains),
        cmocka_unit_test(drawn_histories_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
