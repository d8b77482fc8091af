/* SPDX-License-Identifier: Apache-2.0 */
/* The cases in which a request is ended from outside: by a cancel, its deadline, its batch. At each
 * place where it may be then: not submitted, queued, posted, over. The wrapper's switches hold ios
 * back, and the clock jumps, so that nothing here is a matter of time. */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

enum { ONES = 4, ONE = 8192, LOOKS = 50, FAR_MS = 60000, WINDOW = 4 };

struct ends {
    struct world w;
    uint64_t batch;
    uint64_t until_ns; /* on the real clock */
    struct yolk_request requests[ONES];
    uint64_t seen[ONES]; /* bytes, at the last look */
};

/* Open, connected, and the buffer full of what nobody reads. drain_limit_ms far away. */
static void ends_open(struct ends *e, const struct conformance_fixture *fixture)
{
    memset(e, 0, sizeof(*e));
    world_init(&e->w, fixture);
    e->w.wrapped = 1;
    e->w.attempts_max = 1;
    if (e->w.drain_limit_ms == 0)
        e->w.drain_limit_ms = 100 * FAR_MS;
    world_open(&e->w);
    assert_int_equal(world_transfer(&e->w, YOLK_READ, e->w.local, 0, 64), YOLK_OK);
    memset(e->w.local, 0xee, WORLD_SIZE);
    e->until_ns = world_deadline(&e->w, 30000);
    assert_int_equal(yolk_engine_batch_create(e->w.consumer, ONES, &e->batch), YOLK_OK);
    for (uint64_t i = 0; i < ONES; i++) /* with gaps, so that each is moved for itself */
        e->requests[i] =
            world_request(&e->w, YOLK_READ, e->w.local + i * 2 * ONE, i * 2 * ONE, ONE);
}

static void jump(struct ends *e, uint64_t ms)
{
    world_jump(&e->w, ms);
    e->until_ns += ms * UINT64_C(1000000);
}

static void check_time(const struct ends *e)
{
    uint64_t now_ns = yolk_engine_now_ns(e->w.consumer);
    assert_true(now_ns < e->until_ns);
    if (yolk_engine_batch_wait(e->w.consumer, e->batch, now_ns + 1000000) != YOLK_ERR_TIMEOUT)
        (void)sched_yield();
}

static void submit(struct ends *e, uint32_t count)
{
    enum yolk_status verdicts[ONES];
    assert_int_equal(
        yolk_engine_batch_submit(e->w.consumer, e->batch, e->requests, count, verdicts, NULL),
        YOLK_OK);
}

/* The bytes in place never go down. */
static struct yolk_task_status look(struct ends *e, uint32_t task)
{
    struct yolk_task_status status;
    assert_int_equal(yolk_engine_batch_poll(e->w.consumer, e->batch, task, &status), YOLK_OK);
    assert_true(status.transferred >= e->seen[task]);
    e->seen[task] = status.transferred;
    return status;
}

/* Submits with the wrapper's door shut, and waits until so many ios are behind it, however long it
 * takes to connect. */
static void submit_held(struct ends *e, uint32_t count, uint64_t held, int deaf)
{
    atomic_store(&e->w.control.hold, 1);
    atomic_store(&e->w.control.deaf, deaf);
    submit(e, count);
    while (atomic_load(&e->w.control.stuck) < held) {
        (void)look(e, 0);
        check_time(e);
    }
    assert_int_equal(atomic_load(&e->w.control.stuck), held);
    atomic_store(&e->w.control.hold, 0);
}

static struct yolk_task_status until_terminal(struct ends *e, uint32_t task)
{
    struct yolk_task_status status;
    do {
        status = look(e, task);
        check_time(e);
    } while (!status.terminal);
    return status;
}

static void assert_pending(struct ends *e, uint32_t task)
{
    for (uint32_t i = 0; i < LOOKS; i++)
        assert_false(look(e, task).terminal);
}

static void assert_ended(struct ends *e, uint32_t task, enum yolk_status status, uint64_t bytes)
{
    struct yolk_task_status last = until_terminal(e, task);
    assert_int_equal(last.status, status);
    assert_int_equal(last.transferred, bytes);
}

static void assert_untouched(const uint8_t *memory, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        assert_int_equal(memory[i], 0xee);
}

static void assert_there(struct ends *e, uint32_t task)
{
    const struct yolk_request *request = &e->requests[task];
    assert_ended(e, task, YOLK_OK, request->size);
    world_assert_filled(request->local, request->size, 1, request->offset);
}

/* Nobody writes any more: the memory is another's now, and other work goes on. */
static void assert_quiet(struct ends *e)
{
    struct world *w = &e->w;
    memset(w->local, 0x77, WORLD_SIZE - ONE);
    for (uint32_t i = 0; i < LOOKS; i++)
        assert_int_equal(
            world_transfer(w, YOLK_READ, w->local + WORLD_SIZE - ONE, WORLD_SIZE - ONE, ONE),
            YOLK_OK);
    for (uint64_t i = 0; i < WORLD_SIZE - ONE; i++)
        assert_int_equal(w->local[i], 0x77);
}

static void ends_close(struct ends *e)
{
    atomic_store(&e->w.control.again, 0);
    atomic_store(&e->w.control.release, 1);
    world_close(&e->w);
}

static struct yolk_engine_stats stats_of(struct ends *e)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(e->w.consumer, &stats);
    return stats;
}

/* -- cancel -- */

void cancel_before_submit(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 0), YOLK_ERR_INVALID);
    submit(&e, 1);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 1), YOLK_ERR_INVALID);
    assert_there(&e, 0);
    assert_int_equal(yolk_engine_batch_free(e.w.consumer, e.batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 0), YOLK_ERR_STALE);
    ends_close(&e);
}

void cancel_while_queued(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    atomic_store(&e.w.control.again, 1);
    submit(&e, ONES);
    for (uint32_t i = 0; i < ONES; i++)
        assert_pending(&e, i);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 1), YOLK_OK);
    assert_true(look(&e, 1).terminal); /* nothing of it was under way */
    assert_ended(&e, 1, YOLK_ERR_CANCELED, 0);
    assert_pending(&e, 0);
    atomic_store(&e.w.control.again, 0);
    for (uint32_t i = 0; i < ONES; i++)
        if (i != 1)
            assert_there(&e, i);
    assert_untouched(e.requests[1].local, ONE);
    assert_int_equal(stats_of(&e).tasks_canceled, 1);
    ends_close(&e);
}

void cancel_while_posted(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    submit_held(&e, ONES, ONES, 0);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 1), YOLK_OK);
    assert_ended(&e, 1, YOLK_ERR_CANCELED, 0);
    assert_untouched(e.requests[1].local, ONE);
    for (uint32_t i = 0; i < ONES; i++)
        if (i != 1)
            assert_pending(&e, i);
    atomic_store(&e.w.control.release, 1);
    for (uint32_t i = 0; i < ONES; i++)
        if (i != 1)
            assert_there(&e, i);
    assert_ended(&e, 1, YOLK_ERR_CANCELED, 0);
    assert_untouched(e.requests[1].local, ONE);
    assert_quiet(&e);
    ends_close(&e);
}

/* A transport that cannot take it back: the task is not over before its memory is quiet. */
void cancel_waits_for_quiet(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    submit_held(&e, ONES, ONES, 1);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 2), YOLK_OK);
    for (uint32_t i = 0; i < ONES; i++)
        assert_pending(&e, i);
    assert_int_equal(yolk_engine_unregister(e.w.consumer, e.w.local, WORLD_SIZE), YOLK_ERR_BUSY);
    atomic_store(&e.w.control.release, 1);
    for (uint32_t i = 0; i < ONES; i++)
        assert_there(&e, i); /* the cancel came too late: all was done */
    assert_quiet(&e);
    ends_close(&e);
}

void cancel_after_the_end(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    submit(&e, ONES);
    for (uint32_t i = 0; i < ONES; i++)
        assert_there(&e, i);
    for (uint32_t i = 0; i < ONES; i++) {
        assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, i), YOLK_OK);
        assert_there(&e, i);
    }
    assert_int_equal(stats_of(&e).tasks_canceled, 0);
    assert_int_equal(stats_of(&e).tasks_ok, ONES + 1); /* and the one that connected */
    ends_close(&e);
}

/* Some of its slices are in place, some posted, some not cut yet. */
static void open_in_the_middle(struct ends *e, const struct conformance_fixture *fixture, int deaf,
                               uint64_t deadline_ms)
{
    ends_open(e, fixture);
    atomic_store(&e->w.control.pass, WINDOW + 2);
    e->requests[0] = world_request(&e->w, YOLK_READ, e->w.local, 0, WORLD_SIZE);
    if (deadline_ms > 0)
        e->requests[0].deadline_ns = world_deadline(&e->w, deadline_ms);
    submit_held(e, 1, WINDOW, deaf);
    while (look(e, 0).transferred < (WINDOW + 2) * WORLD_SLICE)
        check_time(e);
    assert_pending(e, 0);
}

static void assert_first_slices(struct ends *e, uint64_t slices)
{
    uint64_t bytes = slices * WORLD_SLICE;
    world_assert_filled(e->w.local, bytes, 1, 0);
    assert_untouched(e->w.local + bytes, WORLD_SIZE - bytes);
}

void cancel_in_the_middle(void **state)
{
    struct ends e;
    open_in_the_middle(&e, *state, 0, 0);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 0), YOLK_OK);
    assert_ended(&e, 0, YOLK_ERR_CANCELED, (WINDOW + 2) * WORLD_SLICE);
    atomic_store(&e.w.control.release, 1);
    for (uint32_t i = 0; i < LOOKS; i++)
        (void)look(&e, 0);
    assert_first_slices(&e, WINDOW + 2);
    assert_quiet(&e);
    ends_close(&e);
}

void cancel_in_the_middle_waits(void **state)
{
    struct ends e;
    open_in_the_middle(&e, *state, 1, 0);
    assert_int_equal(yolk_engine_batch_cancel(e.w.consumer, e.batch, 0), YOLK_OK);
    assert_pending(&e, 0);
    atomic_store(&e.w.control.release, 1);
    assert_ended(&e, 0, YOLK_ERR_CANCELED, (2 * WINDOW + 2) * WORLD_SLICE);
    assert_first_slices(&e, 2 * WINDOW + 2); /* what was posted, and nothing more */
    assert_quiet(&e);
    ends_close(&e);
}

/* -- deadlines -- */

void deadline_while_queued(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    atomic_store(&e.w.control.again, 1);
    e.requests[1].deadline_ns = world_deadline(&e.w, FAR_MS);
    submit(&e, 3);
    assert_pending(&e, 1);
    jump(&e, FAR_MS);
    assert_ended(&e, 1, YOLK_ERR_TIMEOUT, 0);
    assert_pending(&e, 0);
    atomic_store(&e.w.control.again, 0);
    assert_there(&e, 0);
    assert_there(&e, 2);
    assert_untouched(e.requests[1].local, ONE);
    assert_int_equal(stats_of(&e).tasks_timeout, 1);
    ends_close(&e);
}

void deadline_while_posted(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    e.requests[1].deadline_ns = world_deadline(&e.w, FAR_MS);
    e.requests[2].deadline_ns = world_deadline(&e.w, 2 * FAR_MS);
    submit_held(&e, ONES, ONES, 0);
    for (uint32_t i = 0; i < ONES; i++)
        assert_pending(&e, i);
    jump(&e, FAR_MS);
    assert_ended(&e, 1, YOLK_ERR_TIMEOUT, 0);
    assert_pending(&e, 2);
    atomic_store(&e.w.control.release, 1);
    assert_there(&e, 0);
    assert_there(&e, 2);
    assert_there(&e, 3);
    assert_ended(&e, 1, YOLK_ERR_TIMEOUT, 0);
    assert_untouched(e.requests[1].local, ONE);
    assert_quiet(&e);
    ends_close(&e);
}

void deadline_waits_for_quiet(void **state)
{
    struct ends e;
    open_in_the_middle(&e, *state, 1, FAR_MS);
    jump(&e, FAR_MS);
    assert_pending(&e, 0);
    jump(&e, FAR_MS);
    assert_pending(&e, 0);
    atomic_store(&e.w.control.release, 1);
    assert_ended(&e, 0, YOLK_ERR_TIMEOUT, (2 * WINDOW + 2) * WORLD_SLICE);
    assert_first_slices(&e, 2 * WINDOW + 2);
    assert_quiet(&e);
    ends_close(&e);
}

/* -- failures -- */

/* One slice fails for good while others of its request are still under way. */
void failure_waits_for_quiet(void **state)
{
    struct ends e;
    ends_open(&e, *state);
    atomic_store(&e.w.control.fail, 3);
    e.requests[0] = world_request(&e.w, YOLK_READ, e.w.local, 0, WORLD_SIZE);
    submit_held(&e, 1, 2, 1);
    assert_pending(&e, 0);
    atomic_store(&e.w.control.release, 1);
    struct yolk_task_status status = until_terminal(&e, 0);
    assert_int_equal(status.status, YOLK_ERR_LINK);
    assert_true(status.transferred <= 2 * WORLD_SLICE);
    world_assert_filled(e.w.local, status.transferred, 1, 0);
    assert_untouched(e.w.local + 2 * WORLD_SLICE, WORLD_SIZE - 2 * WORLD_SLICE);
    assert_quiet(&e);
    ends_close(&e);
}

/* -- the batch is freed -- */

static bool has_figure(struct ends *e, const char *line)
{
    char *text = NULL;
    assert_int_equal(yolk_engine_metrics(e->w.consumer, &text), YOLK_OK);
    bool found = strstr(text, line) != NULL;
    free(text);
    return found;
}

void freed_in_flight_is_in_quarantine(void **state)
{
    struct ends e;
    enum yolk_status status;
    ends_open(&e, *state);
    submit_held(&e, ONES, ONES, 1);
    assert_int_equal(yolk_engine_batch_free(e.w.consumer, e.batch), YOLK_OK);
    struct yolk_task_status ignored;
    assert_int_equal(yolk_engine_batch_poll(e.w.consumer, e.batch, 0, &ignored), YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_batch_free(e.w.consumer, e.batch), YOLK_ERR_STALE);
    assert_int_equal(stats_of(&e).quarantined, 1);
    assert_true(has_figure(&e, "\nyolk_engine_quarantined_batches 1\n"));
    assert_int_equal(yolk_engine_unregister(e.w.consumer, e.w.local, WORLD_SIZE), YOLK_ERR_BUSY);
    uint8_t *apart = e.w.local + WORLD_SIZE - ONE;
    assert_int_equal(world_transfer(&e.w, YOLK_READ, apart, 0, ONE), YOLK_OK);
    atomic_store(&e.w.control.release, 1);
    /* The engine's own thread finds it quiet. */
    while ((status = yolk_engine_unregister(e.w.consumer, e.w.local, WORLD_SIZE)) == YOLK_ERR_BUSY)
        check_time(&e);
    assert_int_equal(status, YOLK_OK);
    while (!has_figure(&e, "\nyolk_engine_quarantined_batches 0\n"))
        check_time(&e);
    assert_int_equal(yolk_engine_register(e.w.consumer, e.w.local, WORLD_SIZE), YOLK_OK);
    assert_quiet(&e);
    assert_int_equal(stats_of(&e).tasks_canceled + stats_of(&e).tasks_ok - LOOKS - 2, ONES);
    ends_close(&e);
}

/* -- memory that does not become quiet -- */

static enum yolk_status verdict_of(struct ends *e, enum yolk_opcode opcode, uint64_t place,
                                   uint64_t size)
{
    return world_transfer(&e->w, opcode, e->w.local + place, 0, size);
}

void a_stuck_range_is_refused_until_quiet(void **state)
{
    struct ends e;
    memset(&e, 0, sizeof(e));
    ends_open(&e, *state);
    e.requests[0] = world_request(&e.w, YOLK_READ, e.w.local + ONE, ONE, ONE);
    e.requests[0].deadline_ns = world_deadline(&e.w, FAR_MS);
    submit_held(&e, 1, 1, 1);
    jump(&e, FAR_MS);
    assert_pending(&e, 0);
    jump(&e, 99 * FAR_MS);
    assert_pending(&e, 0);
    jump(&e, 2 * FAR_MS);
    assert_ended(&e, 0, YOLK_ERR_STUCK, 0);
    static const uint64_t cut[][2] = {
        {ONE, ONE}, {0, ONE + 1}, {2 * ONE - 1, 9}, {0, 4 * ONE}, {ONE + 7, 1}};
    for (uint32_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        assert_int_equal(verdict_of(&e, YOLK_READ, cut[i][0], cut[i][1]), YOLK_ERR_BUSY);
        assert_int_equal(verdict_of(&e, YOLK_WRITE, cut[i][0], cut[i][1]), YOLK_ERR_BUSY);
    }
    assert_int_equal(verdict_of(&e, YOLK_READ, 0, ONE), YOLK_OK);
    assert_int_equal(verdict_of(&e, YOLK_READ, 2 * ONE, ONE), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e.w.consumer, e.w.local, WORLD_SIZE), YOLK_ERR_BUSY);
    assert_untouched(e.w.local + ONE, ONE);
    assert_int_equal(stats_of(&e).tasks_stuck, 1);
    atomic_store(&e.w.control.release, 1);
    struct yolk_task_status status;
    while (verdict_of(&e, YOLK_READ, ONE, ONE) == YOLK_ERR_BUSY) {
        assert_int_equal(yolk_engine_batch_poll(e.w.consumer, e.batch, 0, &status), YOLK_OK);
        check_time(&e);
    }
    assert_int_equal(look(&e, 0).status, YOLK_ERR_STUCK); /* it was final */
    world_assert_filled(e.w.local + ONE, ONE, 1, 0);
    assert_quiet(&e);
    ends_close(&e);
}
