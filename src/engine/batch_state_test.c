/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/batch_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "platform/random.h"

enum { WINDOW = 4, ATTEMPTS = 3, DRAIN = 1000 };

static struct batch_state make_state(uint32_t capacity)
{
    struct batch_state state;
    assert_int_equal(batch_state_init(&state, capacity, WINDOW, ATTEMPTS, DRAIN), YOLK_OK);
    return state;
}

static uint32_t take(struct batch_state *state, uint32_t task, uint64_t most)
{
    bool no_memory;
    uint32_t slice = batch_state_take(state, task, most, &no_memory);
    assert_false(no_memory);
    return slice;
}

static enum batch_outcome complete(struct batch_state *state, uint64_t cookie,
                                   enum yolk_status status, uint64_t transferred)
{
    uint32_t task;
    return batch_state_complete(state, 1, cookie, status, transferred, &task);
}

static void window_and_end(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(2);
    uint32_t task = batch_state_add(&state, 1050, BATCH_NEVER, 7);
    uint64_t cookies[11];
    uint32_t taken = 0;
    uint32_t slice;
    assert_int_equal(batch_state_dequeue(&state), task);
    assert_int_equal(batch_state_dequeue(&state), BATCH_NONE);
    while ((slice = take(&state, task, 100)) != BATCH_NONE)
        cookies[taken++] = batch_state_cookie(&state, slice);
    assert_int_equal(taken, WINDOW);
    uint64_t done = 0;
    for (uint32_t i = 0; i < 11; i++) {
        uint64_t size = i < 10 ? 100 : 50;
        assert_false(state.tasks[task].terminal);
        assert_int_equal(complete(&state, cookies[i], YOLK_OK, size), BATCH_PROGRESS);
        done += size;
        assert_int_equal(state.tasks[task].done, done);
        /* The same completion again, and one of nowhere: ignored. */
        assert_int_equal(complete(&state, cookies[i], YOLK_OK, size), BATCH_UNKNOWN);
        assert_int_equal(complete(&state, UINT64_MAX, YOLK_OK, size), BATCH_UNKNOWN);
        if ((slice = take(&state, task, 100)) != BATCH_NONE)
            cookies[taken++] = batch_state_cookie(&state, slice);
    }
    assert_int_equal(taken, 11);
    assert_true(state.tasks[task].terminal);
    assert_int_equal(state.tasks[task].terminal_events, 1);
    assert_int_equal(state.tasks[task].failure, YOLK_OK);
    assert_int_equal(state.pending, 0);
    assert_int_equal(state.unknown, 22);
    batch_state_free(&state);
}

static void empty_task(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(1);
    uint32_t task = batch_state_add(&state, 0, BATCH_NEVER, 0);
    uint32_t slice = take(&state, task, 100);
    assert_int_equal(state.slices[slice].size, 0);
    assert_int_equal(take(&state, task, 100), BATCH_NONE);
    assert_false(state.tasks[task].terminal); /* it is checked like any other */
    assert_int_equal(complete(&state, batch_state_cookie(&state, slice), YOLK_OK, 0),
                     BATCH_PROGRESS);
    assert_true(state.tasks[task].terminal);
    batch_state_free(&state);
}

static void refused_by_transport(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(1);
    uint32_t task = batch_state_add(&state, 10, BATCH_NEVER, 0);
    assert_int_equal(batch_state_dequeue(&state), task);
    uint32_t slice = take(&state, task, 100);
    batch_state_untake(&state, slice);
    assert_int_equal(state.taken, 0);
    assert_int_equal(batch_state_dequeue(&state), task); /* back in the queue */
    assert_int_equal(take(&state, task, 100), slice);
    assert_int_equal(state.slices[slice].attempts, 0);
    assert_int_equal(complete(&state, batch_state_cookie(&state, slice), YOLK_OK, 10),
                     BATCH_PROGRESS);
    assert_true(state.tasks[task].terminal);
    batch_state_free(&state);
}

static void short_then_rest(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(1);
    uint32_t task = batch_state_add(&state, 100, BATCH_NEVER, 0);
    uint32_t slice = take(&state, task, 100);
    uint64_t old = batch_state_cookie(&state, slice);
    assert_int_equal(complete(&state, old, YOLK_OK, 30), BATCH_PROGRESS);
    assert_int_equal(state.tasks[task].done, 30);
    slice = take(&state, task, 100);
    assert_int_equal(state.slices[slice].offset, 30);
    assert_int_equal(state.slices[slice].size, 70);
    assert_int_equal(complete(&state, old, YOLK_OK, 30), BATCH_UNKNOWN);
    /* A failure with a part in place: tried again from the first byte not confirmed. */
    assert_int_equal(complete(&state, batch_state_cookie(&state, slice), YOLK_ERR_LINK, 20),
                     BATCH_RETRY);
    slice = take(&state, task, 100);
    assert_int_equal(state.slices[slice].offset, 50);
    /* Nothing at all, said to be fine, until the attempts are used up. */
    assert_int_equal(complete(&state, batch_state_cookie(&state, slice), YOLK_OK, 0), BATCH_RETRY);
    slice = take(&state, task, 100);
    assert_int_equal(complete(&state, batch_state_cookie(&state, slice), YOLK_OK, 0), BATCH_FAILED);
    assert_int_equal(state.tasks[task].failure, YOLK_ERR_EOF);
    assert_int_equal(state.tasks[task].done, 50);
    batch_state_free(&state);
}

static void quiet_before_terminal(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(1);
    uint32_t task = batch_state_add(&state, 1000, BATCH_NEVER, 0);
    uint64_t a = batch_state_cookie(&state, take(&state, task, 100));
    uint64_t b = batch_state_cookie(&state, take(&state, task, 100));
    uint64_t c = batch_state_cookie(&state, take(&state, task, 100));
    assert_int_equal(complete(&state, a, YOLK_ERR_ACCESS, 0), BATCH_FAILED);
    assert_false(state.tasks[task].terminal); /* two are still out */
    assert_int_equal(take(&state, task, 100), BATCH_NONE);
    assert_int_equal(complete(&state, b, YOLK_ERR_CANCELED, 0), BATCH_PROGRESS);
    assert_int_equal(complete(&state, c, YOLK_ERR_LINK, 0), BATCH_PROGRESS);
    assert_true(state.tasks[task].terminal);
    assert_int_equal(state.tasks[task].failure, YOLK_ERR_ACCESS); /* the first one */
    assert_int_equal(state.tasks[task].terminal_events, 1);
    batch_state_free(&state);
}

static void cancel_drains(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(3);
    uint32_t task = batch_state_add(&state, 300, BATCH_NEVER, 0);
    uint32_t other = batch_state_add(&state, 10, BATCH_NEVER, 0);
    uint32_t idle = batch_state_add(&state, 10, BATCH_NEVER, 0);
    uint64_t a = batch_state_cookie(&state, take(&state, task, 100));
    uint64_t o = batch_state_cookie(&state, take(&state, other, 100));
    assert_true(batch_state_end(&state, 1, task, YOLK_ERR_CANCELED));
    assert_false(batch_state_end(&state, 1, idle, YOLK_ERR_CANCELED));
    assert_true(state.tasks[idle].terminal); /* nothing of it was posted */
    assert_false(state.tasks[task].terminal);
    assert_int_equal(complete(&state, a, YOLK_OK, 100), BATCH_PROGRESS);
    assert_true(state.tasks[task].terminal);
    assert_int_equal(state.tasks[task].failure, YOLK_ERR_CANCELED);
    assert_int_equal(complete(&state, o, YOLK_OK, 10), BATCH_PROGRESS);
    assert_int_equal(state.tasks[other].failure, YOLK_OK);
    batch_state_free(&state);
}

static void cancel_too_late(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(1);
    uint32_t task = batch_state_add(&state, 100, BATCH_NEVER, 0);
    uint64_t a = batch_state_cookie(&state, take(&state, task, 100));
    assert_true(batch_state_end(&state, 1, task, YOLK_ERR_CANCELED));
    assert_int_equal(complete(&state, a, YOLK_OK, 100), BATCH_PROGRESS);
    assert_int_equal(state.tasks[task].failure, YOLK_OK); /* all was done */
    batch_state_free(&state);
}

/* It is done by its slice's good end alone, not because all its bytes, none, are there. */
static void no_bytes_are_done_by_a_good_end(void **unused)
{
    (void)unused;
    static const enum yolk_status ends[] = {YOLK_OK, YOLK_ERR_STALE, YOLK_ERR_PEER_DEAD,
                                            YOLK_ERR_CANCELED};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct batch_state state = make_state(1);
        uint32_t task = batch_state_add(&state, 0, BATCH_NEVER, 0);
        uint64_t a = batch_state_cookie(&state, take(&state, task, 100));
        assert_true(batch_state_end(&state, 1, task, YOLK_ERR_CANCELED));
        assert_false(state.tasks[task].terminal);
        (void)complete(&state, a, ends[i], 0);
        assert_true(state.tasks[task].terminal);
        assert_int_equal(state.tasks[task].failure,
                         ends[i] == YOLK_OK ? YOLK_OK : YOLK_ERR_CANCELED);
        batch_state_free(&state);
    }
}

static void deadline_then_stuck(void **unused)
{
    (void)unused;
    struct batch_state state = make_state(1);
    bool stuck;
    uint32_t task = batch_state_add(&state, 100, 50, 0);
    uint64_t a = batch_state_cookie(&state, take(&state, task, 100));
    assert_int_equal(batch_state_expire(&state, 49, &stuck), BATCH_NONE);
    assert_int_equal(batch_state_expire(&state, 50, &stuck), task);
    assert_false(stuck);
    assert_int_equal(batch_state_expire(&state, 50, &stuck), BATCH_NONE);
    assert_false(state.tasks[task].terminal);
    assert_int_equal(batch_state_expire(&state, 50 + DRAIN, &stuck), task);
    assert_true(stuck);
    assert_true(state.tasks[task].terminal);
    assert_int_equal(state.tasks[task].failure, YOLK_ERR_STUCK);
    assert_int_equal(state.taken, 1); /* the memory is still not quiet … */
    assert_int_equal(complete(&state, a, YOLK_OK, 100), BATCH_PROGRESS);
    assert_int_equal(state.taken, 0); /* … now it is, and the result stays */
    assert_int_equal(state.tasks[task].failure, YOLK_ERR_STUCK);
    assert_int_equal(state.tasks[task].terminal_events, 1);
    batch_state_free(&state);
}

/* That all run out of time at once costs one look at each, not one at each for each. */
static void mass_expiry_is_linear(void **unused)
{
    (void)unused;
    enum { MANY = 1000 };
    struct batch_state state = make_state(MANY);
    bool stuck;
    for (uint32_t i = 0; i < MANY; i++) {
        (void)batch_state_add(&state, 100, i % 3 == 0 ? 200 : 50, i);
        assert_int_not_equal(take(&state, i, 100), BATCH_NONE);
    }
    for (uint32_t i = 0; i < MANY; i++)
        if (i % 3 != 0)
            assert_int_equal(batch_state_expire(&state, 50, &stuck), i);
    assert_int_equal(batch_state_expire(&state, 50, &stuck), BATCH_NONE);
    assert_int_equal(state.expire_looked, MANY);
    assert_int_equal(state.next_due_ns, 200);
    assert_int_equal(batch_state_expire(&state, 199, &stuck), BATCH_NONE);
    assert_int_equal(state.expire_looked, MANY); /* nothing is due: nothing is looked at */
    for (uint32_t i = 0; i < MANY; i += 3)
        assert_int_equal(batch_state_expire(&state, 200, &stuck), i);
    assert_int_equal(batch_state_expire(&state, 200, &stuck), BATCH_NONE);
    assert_int_equal(state.expire_looked, 2 * MANY);
    assert_int_equal(state.next_due_ns, 50 + DRAIN);
    batch_state_free(&state);
}

static void check_taken_lists(const struct batch_state *state)
{
    for (uint32_t i = 0; i < state->task_count; i++) {
        uint32_t count = 0;
        uint32_t before = BATCH_NONE;
        for (uint32_t at = state->tasks[i].taken_head; at != BATCH_NONE;
             at = state->slices[at].next) {
            assert_int_equal(state->slices[at].state, BATCH_SLICE_TAKEN);
            assert_int_equal(state->slices[at].task, i);
            assert_int_equal(state->slices[at].before, before);
            before = at;
            assert_true(++count <= WINDOW);
        }
        assert_int_equal(count, state->tasks[i].taken);
    }
}

/* Random histories: every task ends exactly once, with the books balanced. */
static void random_history(uint64_t seed)
{
    static const enum yolk_status statuses[] = {YOLK_OK,       YOLK_OK,         YOLK_OK,
                                                YOLK_ERR_LINK, YOLK_ERR_ACCESS, YOLK_ERR_PEER_DEAD};
    struct random_sim sim;
    random_sim_init(&sim, seed);
    struct random random = random_sim_random(&sim);
    struct batch_state state = make_state(16);
    uint64_t out[16 * WINDOW];
    uint32_t out_count = 0;
    for (uint32_t i = 0; i < 16; i++)
        (void)batch_state_add(
            &state, random_below(&random, 500),
            random_below(&random, 4) == 0 ? random_below(&random, 300) : BATCH_NEVER, i);
    for (uint64_t now_ns = 1; state.pending > 0; now_ns++) {
        assert_true(now_ns < 100000);
        uint32_t task = batch_state_dequeue(&state);
        uint32_t slice = task == BATCH_NONE ? BATCH_NONE : take(&state, task, 64);
        if (slice != BATCH_NONE && random_below(&random, 5) == 0) {
            batch_state_untake(&state, slice);
        } else if (slice != BATCH_NONE) {
            out[out_count++] = batch_state_cookie(&state, slice);
            batch_state_requeue(&state, task);
        }
        if (random_below(&random, 200) == 0)
            (void)batch_state_end(&state, now_ns, (uint32_t)random_below(&random, 16),
                                  YOLK_ERR_CANCELED);
        bool stuck;
        while (batch_state_expire(&state, now_ns, &stuck) != BATCH_NONE)
            continue;
        if (out_count > 0 && random_below(&random, 2) == 0) {
            uint32_t pick = (uint32_t)random_below(&random, out_count);
            uint32_t whose;
            uint64_t cookie = out[pick];
            uint64_t size = state.slices[(uint32_t)cookie].size;
            enum yolk_status status = statuses[random_below(&random, 6)];
            uint64_t moved = random_below(&random, 3) == 0 ? random_below(&random, size + 1) : size;
            if (status != YOLK_OK && moved == size)
                moved = 0;
            out[pick] = out[--out_count];
            assert_int_not_equal(
                batch_state_complete(&state, now_ns, cookie, status, moved, &whose), BATCH_UNKNOWN);
            assert_int_equal(batch_state_complete(&state, now_ns, cookie, status, moved, &whose),
                             BATCH_UNKNOWN);
        }
        assert_int_equal(state.taken, out_count);
        check_taken_lists(&state);
    }
    for (uint32_t i = 0; i < 16; i++) {
        const struct batch_task *task = &state.tasks[i];
        assert_true(task->terminal);
        assert_int_equal(task->terminal_events, 1);
        assert_true(task->failure != YOLK_OK || task->done == task->size);
        assert_true(task->done <= task->size);
        assert_true(task->taken == 0 || task->failure == YOLK_ERR_STUCK);
    }
    batch_state_free(&state);
}

static void random_histories(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 2000; seed++)
        random_history(seed);
}

static uint32_t add_at(struct batch_state *state, uint8_t level, uint64_t now_ns, bool held)
{
    const struct batch_rank rank = {.level = level, .held = held, .now_ns = now_ns};
    return batch_state_add_ranked(state, 10, BATCH_NEVER, 0, rank);
}

/* Levels one after the other, each in the order of its tasks, against a list that is searched. */
static void levels_and_promotion(void **unused)
{
    (void)unused;
    enum { TASKS = 300 };
    struct {
        uint8_t level;
        uint64_t since_ns, place;
        bool waits;
    } model[TASKS];
    struct batch_state state;
    struct random_sim sim;
    random_sim_init(&sim, 11);
    const struct random random = random_sim_random(&sim);
    uint64_t now_ns = 0, place = 0;
    uint32_t added = 0, taken = 0;
    assert_int_equal(batch_state_init(&state, TASKS, WINDOW, ATTEMPTS, DRAIN), YOLK_OK);
    while (taken < TASKS) {
        now_ns += random_below(&random, 4000000);
        uint64_t what = random_below(&random, 4);
        if (what < 2 && added < TASKS) {
            uint8_t level = (uint8_t)random_below(&random, BATCH_LEVELS);
            assert_int_equal(add_at(&state, level, now_ns, false), added);
            model[added].level = level;
            model[added].since_ns = now_ns;
            model[added].place = place++;
            model[added++].waits = true;
        } else if (what == 2) {
            batch_state_promote(&state, now_ns);
            for (uint8_t level = 1; level < BATCH_LEVELS; level++)
                for (;;) { /* the heads alone are looked at */
                    uint32_t head = BATCH_NONE;
                    for (uint32_t i = 0; i < added; i++)
                        if (model[i].waits && model[i].level == level &&
                            (head == BATCH_NONE || model[i].place < model[head].place))
                            head = i;
                    if (head == BATCH_NONE || now_ns < model[head].since_ns + BATCH_PROMOTION_NS)
                        break;
                    model[head].level--;
                    model[head].since_ns += BATCH_PROMOTION_NS;
                    model[head].place = place++;
                }
        } else {
            uint32_t best = BATCH_NONE;
            for (uint32_t i = 0; i < added; i++)
                if (model[i].waits &&
                    (best == BATCH_NONE || model[i].level < model[best].level ||
                     (model[i].level == model[best].level && model[i].place < model[best].place)))
                    best = i;
            assert_int_equal(batch_state_dequeue(&state), best);
            if (best != BATCH_NONE) {
                model[best].waits = false;
                taken++;
            }
        }
    }
    assert_int_equal(state.queue_length, 0);
    batch_state_free(&state);
}

static void held_until_released(void **unused)
{
    (void)unused;
    struct batch_state state;
    assert_int_equal(batch_state_init(&state, 4, WINDOW, ATTEMPTS, DRAIN), YOLK_OK);
    uint32_t first = add_at(&state, 0, 0, true);
    uint32_t second = add_at(&state, 0, 0, true);
    (void)batch_state_reject(&state, YOLK_ERR_INVALID, 0);
    assert_int_equal(state.pending, 2);
    assert_int_equal(batch_state_dequeue(&state), BATCH_NONE);
    (void)batch_state_end(&state, 0, first, YOLK_ERR_CANCELED);
    assert_true(state.tasks[first].terminal);
    batch_state_release(&state, first); /* what is over stays so */
    batch_state_release(&state, second);
    assert_int_equal(batch_state_dequeue(&state), second);
    assert_int_equal(batch_state_dequeue(&state), BATCH_NONE);
    uint32_t third = add_at(&state, 0, 0, true);
    batch_state_truncate(&state, third);
    assert_int_equal(state.task_count, 3);
    assert_int_equal(state.pending, 1);
    batch_state_free(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_and_promotion),
        cmocka_unit_test(held_until_released),
        cmocka_unit_test(window_and_end),
        cmocka_unit_test(empty_task),
        cmocka_unit_test(refused_by_transport),
        cmocka_unit_test(short_then_rest),
        cmocka_unit_test(quiet_before_terminal),
        cmocka_unit_test(cancel_drains),
        cmocka_unit_test(cancel_too_late),
        cmocka_unit_test(deadline_then_stuck),
        cmocka_unit_test(no_bytes_are_done_by_a_good_end),
        cmocka_unit_test(mass_expiry_is_linear),
        cmocka_unit_test(random_histories),
    };
    return cmocka_run_group_tests_name("engine.batch_state", tests, NULL, NULL);
}
