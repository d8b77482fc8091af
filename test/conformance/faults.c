/* SPDX-License-Identifier: Apache-2.0 */
/* The cases in which the wrapper `fault` stands between the engine and the transport. */
#include "cases.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void run_faulty(struct world *w)
{
    w->attempts_max = 60;
    w->breaker_failures = 1000;
    world_open(w);
    for (uint32_t round = 0; round < 4; round++) {
        memset(w->local, 0, WORLD_SIZE);
        assert_int_equal(world_transfer(w, YOLK_READ, w->local, 0, WORLD_SIZE), YOLK_OK);
        world_assert_filled(w->local, WORLD_SIZE, round == 0 ? 1 : 50 + round - 1, 0);
        world_fill(w->local, WORLD_SIZE, 50 + round);
        assert_int_equal(world_transfer(w, YOLK_WRITE, w->local, 0, WORLD_SIZE), YOLK_OK);
        world_assert_filled(w->memory.pointer, WORLD_SIZE, 50 + round, 0);
    }
    run_many(w, 1000, 1024, YOLK_READ);
    assert_true(atomic_load(&w->control.injected) > 0);
    world_close(w);
}

void fault_again(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.again_permille = 500;
    run_faulty(&w);
}

void fault_late(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.delay_permille = 500;
    w.faults.reorder_permille = 500;
    run_faulty(&w);
}

void fault_doubled(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.duplicate_permille = 500;
    w.faults.reorder_permille = 200;
    run_faulty(&w);
}

void fault_short(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.short_permille = 500;
    run_faulty(&w);
}

void fault_links(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.fail_permille = 150;
    w.faults.late_fail_permille = 150;
    run_faulty(&w);
}

void fault_everything(void **state)
{
    const struct conformance_fixture *fixture = *state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct world w;
        world_init(&w, fixture);
        w.faults.seed = seed;
        w.faults.again_permille = 100;
        w.faults.delay_permille = 100;
        w.faults.reorder_permille = 100;
        w.faults.duplicate_permille = 100;
        w.faults.short_permille = 100;
        w.faults.fail_permille = 50;
        w.faults.late_fail_permille = 50;
        run_faulty(&w);
    }
}

void dropped_ends_at_deadline(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.drop_permille = 1000;
    world_open(&w);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, 0, 2 * WORLD_SIZE / 4);
    request.deadline_ns = world_deadline(&w, 30);
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_TIMEOUT);
    request.deadline_ns = 1;
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_TIMEOUT);
    assert_int_equal(yolk_engine_unregister(w.consumer, w.local, WORLD_SIZE), YOLK_OK);
    world_close(&w);
}

void stuck(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.stuck_permille = 1000;
    w.drain_limit_ms = 30;
    world_open(&w);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local + 4096, 0, 4096);
    struct yolk_task_status status;
    enum yolk_status verdict;
    uint64_t batch;
    assert_int_equal(yolk_engine_batch_create(w.consumer, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(w.consumer, batch, &request, 1, &verdict, NULL),
                     YOLK_OK);
    uint64_t until = world_deadline(&w, 30000);
    while (atomic_load(&w.control.stuck) == 0) { /* however long it takes to connect */
        assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, 0, &status), YOLK_OK);
        assert_true(yolk_engine_now_ns(w.consumer) < until);
    }
    assert_int_equal(yolk_engine_batch_cancel(w.consumer, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(w.consumer, batch, until), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, 0, &status), YOLK_OK);
    assert_int_equal(status.status, YOLK_ERR_STUCK);
    assert_int_equal(yolk_engine_batch_free(w.consumer, batch), YOLK_OK); /* quarantined */
    /* The range stays the engine's; its neighbours do not. */
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local + 8191, 0, 1), YOLK_ERR_BUSY);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local + 4000, 0, 97), YOLK_ERR_BUSY);
    assert_int_equal(yolk_engine_unregister(w.consumer, w.local, WORLD_SIZE), YOLK_ERR_BUSY);
    struct yolk_engine_stats stats;
    yolk_engine_stats(w.consumer, &stats);
    assert_int_equal(stats.tasks_stuck, 1);
    assert_int_equal(stats.quarantined, 1);
    assert_int_equal(yolk_engine_destroy(w.consumer), YOLK_ERR_BUSY);
    atomic_store(&w.control.release, 1);
    world_close(&w);
}

void dead_peer_by_fault(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.wrapped = 1;
    world_open(&w);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_OK);
    atomic_store(&w.control.dead, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_ERR_PEER_DEAD);
    struct yolk_engine_stats stats;
    yolk_engine_stats(w.consumer, &stats);
    assert_int_equal(stats.breakers_opened, 1);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, 0, 4096);
    char *text = NULL;
    assert_int_equal(yolk_engine_describe_route(w.consumer, &request, &text), YOLK_OK);
    assert_non_null(strstr(text, "in a row"));
    free(text);
    world_close(&w);
}
