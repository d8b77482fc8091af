/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of memory that the transport does not take: what goes there goes through the engine's
 * own, and keeps every promise all the same. */
#include <stdatomic.h>
#include <string.h>

#include "cases.h"

enum { MANY = 48, BYTES = 9000, PLACE = 16384, LOOKS = 50 };

static void staged_init(struct world *w, const struct conformance_fixture *fixture)
{
    world_init(w, fixture);
    w->wrapped = 1;
    w->staged = 1;
}

static void staged_open(struct world *w)
{
    world_open(w);
    memset(w->local, 0xee, WORLD_SIZE);
}

static void assert_untouched(const uint8_t *memory, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        assert_int_equal(memory[i], 0xee);
}

static uint64_t staged_tasks(struct world *w)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(w->consumer, &stats);
    return stats.tasks_staged;
}

void staged_sizes(void **state)
{
    static const uint64_t list[] = {1, 4095, WORLD_SLICE + 1, WORLD_SIZE - 100};
    struct world w;
    struct yolk_task_status status;
    staged_init(&w, *state);
    staged_open(&w);
    for (uint32_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct yolk_request request = world_request(&w, YOLK_READ, w.local + 3, 5, list[i]);
        memset(w.local, 0xee, WORLD_SIZE);
        assert_int_equal(world_run(&w, &request, &status), YOLK_OK);
        assert_true(status.staged);
        assert_int_equal(status.transferred, list[i]);
        world_assert_filled(w.local + 3, list[i], 1, 5);
        assert_untouched(w.local, 3);
        assert_untouched(w.local + 3 + list[i], WORLD_SIZE - 3 - list[i]);
    }
    for (uint32_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        world_fill(w.memory.pointer, WORLD_SIZE, 1);
        world_fill(w.local, WORLD_SIZE, 80 + i);
        assert_int_equal(world_transfer(&w, YOLK_WRITE, w.local + 7, 9, list[i]), YOLK_OK);
        const uint8_t *there = w.memory.pointer;
        world_assert_filled(there + 9, list[i], 80 + i, 7);
        world_assert_filled(there, 9, 1, 0);
        world_assert_filled(there + 9 + list[i], WORLD_SIZE - 9 - list[i], 1, 9 + list[i]);
    }
    assert_int_equal(staged_tasks(&w), 2 * sizeof(list) / sizeof(list[0]));
    world_close(&w);
}

/* More than the engine's memory holds: they take turns. */
static void run_staged(struct world *w)
{
    struct yolk_request requests[MANY];
    enum yolk_status verdicts[MANY];
    struct yolk_task_status status;
    uint64_t batch;
    w->staging_bytes = 32768;
    staged_open(w);
    assert_int_equal(yolk_engine_batch_create(w->consumer, MANY, &batch), YOLK_OK);
    for (uint64_t i = 0; i < MANY; i++)
        requests[i] = world_request(w, YOLK_READ, w->local + i * PLACE, i * PLACE + 1, BYTES);
    assert_int_equal(yolk_engine_batch_submit(w->consumer, batch, requests, MANY, verdicts, NULL),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(w->consumer, batch, world_deadline(w, 30000)), YOLK_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(yolk_engine_batch_poll(w->consumer, batch, i, &status), YOLK_OK);
        assert_int_equal(status.status, YOLK_OK);
        world_assert_filled(requests[i].local, BYTES, 1, requests[i].offset);
        assert_untouched((uint8_t *)requests[i].local + BYTES, PLACE - BYTES);
    }
    assert_int_equal(yolk_engine_batch_free(w->consumer, batch), YOLK_OK);
    assert_int_equal(staged_tasks(w), MANY);
    world_close(w);
}

void staged_ones_take_turns(void **state)
{
    struct world w;
    staged_init(&w, *state);
    run_staged(&w);
}

void staged_ones_survive_faults(void **state)
{
    const struct conformance_fixture *fixture = *state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct world w;
        staged_init(&w, fixture);
        w.attempts_max = 60;
        w.breaker_failures = 1000;
        w.faults.seed = seed;
        w.faults.again_permille = 100;
        w.faults.defer_permille = 200;
        w.faults.reorder_permille = 200;
        w.faults.duplicate_permille = 200;
        w.faults.short_permille = 200;
        w.faults.late_fail_permille = 100;
        w.faults.partial_permille = 100;
        run_staged(&w);
    }
}

/* One that is canceled, and one that is out of time, while the transport has both. */
void staged_ones_end_early(void **state)
{
    struct world w;
    struct yolk_request requests[2];
    enum yolk_status verdicts[2];
    struct yolk_task_status status[2];
    uint64_t batch, until;
    staged_init(&w, *state);
    w.drain_limit_ms = 600000;
    staged_open(&w);
    for (uint64_t i = 0; i < 2; i++)
        requests[i] = world_request(&w, YOLK_READ, w.local + i * PLACE, i * PLACE, 4096);
    requests[1].deadline_ns = world_deadline(&w, 60000);
    assert_int_equal(yolk_engine_batch_create(w.consumer, 2, &batch), YOLK_OK);
    atomic_store(&w.control.hold, 1);
    atomic_store(&w.control.deaf, 1);
    until = world_deadline(&w, 200000);
    assert_int_equal(yolk_engine_batch_submit(w.consumer, batch, requests, 2, verdicts, NULL),
                     YOLK_OK);
    while (atomic_load(&w.control.stuck) < 2) {
        assert_int_equal(yolk_engine_batch_progress(w.consumer, batch, NULL), YOLK_OK);
        assert_true(yolk_engine_now_ns(w.consumer) < until);
    }
    assert_int_equal(yolk_engine_batch_cancel(w.consumer, batch, 0), YOLK_OK);
    world_jump(&w, 60000);
    for (uint32_t i = 0; i < LOOKS; i++)
        for (uint32_t k = 0; k < 2; k++)
            assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, k, &status[k]), YOLK_OK);
    atomic_store(&w.control.release, 1);
    assert_int_equal(yolk_engine_batch_wait(w.consumer, batch, until), YOLK_OK);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, k, &status[k]), YOLK_OK);
        if (status[k].status == YOLK_OK) {
            world_assert_filled(requests[k].local, 4096, 1, requests[k].offset);
            continue;
        }
        assert_int_equal(status[k].status, k == 0 ? YOLK_ERR_CANCELED : YOLK_ERR_TIMEOUT);
        assert_untouched(requests[k].local, 4096);
    }
    /* Over is over: what belonged to them is another's. */
    memset(w.local, 0x77, WORLD_SIZE);
    for (uint32_t i = 0; i < LOOKS; i++)
        assert_int_equal(yolk_engine_batch_progress(w.consumer, batch, NULL), YOLK_OK);
    for (uint64_t i = 0; i < WORLD_SIZE; i++)
        assert_int_equal(w.local[i], 0x77);
    world_close(&w);
}

void staged_ones_are_not_direct(void **state)
{
    struct world w;
    staged_init(&w, *state);
    staged_open(&w);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, 0, 4096);
    request.flags = YOLK_REQUEST_DIRECT;
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_UNSUPPORTED);
    assert_untouched(w.local, 4096);
    assert_int_equal(staged_tasks(&w), 0);
    world_close(&w);
}
