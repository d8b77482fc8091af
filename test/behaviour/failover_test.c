/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's behaviours of failover, by the public interface: what fails on one transport is done on
 * the next, by whom, and what is told meanwhile. Which failures, and how often, is in
 * src/engine/contract_test.c. */
#include <yolk/engine.h>
#include <yolk/peer.h>

#include "engine/rig.h"
#include "transport/fault/fault.h"

enum { PIECE = 1024, GAP = 2 * PIECE }; /* with gaps nothing is merged */

static struct yolk_request piece(const struct rig *r, uint32_t number)
{
    return rig_request(r, YOLK_READ, (uint64_t)number * GAP, PIECE);
}

static void assert_moved(const struct rig *r, uint32_t number)
{
    assert_memory_equal(r->local + number * GAP, r->memory + number * GAP, PIECE);
}

/* `count` requests are under way on the first transport; what the second one gets it does. */
static struct rig *under_way(struct rig *r, uint32_t count, uint64_t *batch)
{
    struct yolk_request requests[16];
    rig_open(r);
    r->scripts[0].hold = true;
    *batch = rig_batch(r, count);
    for (uint32_t i = 0; i < count; i++)
        requests[i] = piece(r, i);
    rig_submit(r, *batch, requests, count);
    assert_int_equal(r->scripts[0].count, count);
    return r;
}

static struct rig *quiet_polls(void)
{
    struct rig *r = rig_new(2);
    r->options.failover_on_poll = YOLK_SWITCH_OFF;
    return r;
}

static void a_failure_is_done_elsewhere_once(void **state)
{
    (void)state;
    uint64_t batch;
    struct rig *r = under_way(rig_new(2), 1, &batch);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_LINK, 0));
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    assert_int_equal(r->scripts[1].count, 1);
    assert_string_equal(rig_poll(r, batch, 0).transport, "second");
    assert_moved(r, 0);
    rig_free(r, batch);
    rig_close(r);
}

/* By one task, by all, as a whole. */
static void a_poll_may_be_told_to_leave_it(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        uint64_t batch;
        struct yolk_batch_status all;
        struct yolk_task_status one[1];
        struct rig *r = under_way(quiet_polls(), 1, &batch);
        assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_LINK, 0));
        if (way > 0) {
            assert_int_equal(yolk_engine_batch_poll_all(r->engine, batch, &all, one, way - 1),
                             YOLK_OK);
            assert_int_equal(all.pending, 0);
            assert_int_equal(all.worst, YOLK_ERR_LINK);
        }
        rig_expect(r, batch, 0, YOLK_ERR_LINK, 0);
        rig_expect(r, batch, 0, YOLK_ERR_LINK, 0);
        assert_int_equal(r->scripts[1].count, 0);
        /* What was seen to fail has failed. */
        uint32_t pending = 9;
        assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
        assert_int_equal(pending, 0);
        rig_expect(r, batch, 0, YOLK_ERR_LINK, 0);
        assert_int_equal(r->scripts[1].count, 0);
        rig_free(r, batch);
        rig_close(r);
    }
}

static void progress_and_wait_try_again_all_the_same(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        uint64_t batch;
        uint32_t pending = 9;
        struct rig *r = under_way(quiet_polls(), 1, &batch);
        assert_false(rig_poll(r, batch, 0).terminal);
        assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_LINK, 0));
        if (way == 0)
            assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
        else
            assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
        rig_expect(r, batch, 0, YOLK_OK, PIECE);
        assert_int_equal(r->scripts[1].count, 1);
        assert_moved(r, 0);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* Of two tasks with one further try each both end well. */
static void each_task_has_attempts_of_its_own(void **state)
{
    (void)state;
    uint64_t batch;
    struct rig *r = rig_new(2);
    r->options.attempts_max = 2;
    (void)under_way(r, 2, &batch);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_LINK, 0));
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    assert_true(scripted_end(&r->scripts[0], 1, YOLK_ERR_LINK, 0));
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    assert_int_equal(r->scripts[1].count, 2);
    rig_free(r, batch);
    rig_close(r);
}

static void a_batch_is_pending_until_all_are_over(void **state)
{
    (void)state;
    uint64_t batch;
    struct yolk_batch_status all;
    struct rig *r = under_way(rig_new(1), 3, &batch);
    r->options.attempts_max = 1;
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    assert_true(scripted_end(&r->scripts[0], 1, YOLK_ERR_ACCESS, 0));
    assert_int_equal(yolk_engine_batch_poll_all(r->engine, batch, &all, NULL, 0), YOLK_OK);
    assert_int_equal(all.tasks, 3);
    assert_int_equal(all.pending, 1); /* though one has failed already */
    assert_int_equal(all.worst, YOLK_ERR_ACCESS);
    assert_int_equal(all.transferred, PIECE);
    assert_true(scripted_end(&r->scripts[0], 2, YOLK_OK, UINT64_MAX));
    assert_int_equal(yolk_engine_batch_poll_all(r->engine, batch, &all, NULL, 0), YOLK_OK);
    assert_int_equal(all.pending, 0);
    assert_int_equal(all.worst, YOLK_ERR_ACCESS);
    assert_int_equal(all.transferred, 2 * PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* The worst of several, whichever came first. */
static void the_worst_of_a_batch(void **state)
{
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        static const enum yolk_status ends[] = {YOLK_OK, YOLK_ERR_INVALID, YOLK_ERR_TIMEOUT,
                                                YOLK_ERR_ACCESS};
        uint64_t batch;
        struct yolk_batch_status all;
        struct rig *r = rig_new(1);
        r->options.attempts_max = 1;
        (void)under_way(r, 5, &batch);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t at = backwards ? 3 - i : i;
            assert_true(scripted_end(&r->scripts[0], at, ends[at], ends[at] ? 0 : UINT64_MAX));
            (void)rig_poll(r, batch, at);
        }
        assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 4), YOLK_OK);
        assert_int_equal(yolk_engine_batch_poll_all(r->engine, batch, &all, NULL, 0), YOLK_OK);
        assert_int_equal(all.pending, 0);
        assert_int_equal(all.worst, YOLK_ERR_ACCESS);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* Nothing that was canceled is begun again. */
static void never_after_a_cancel(void **state)
{
    (void)state;
    uint64_t batch;
    struct rig *r = rig_new(2);
    (void)under_way(r, 1, &batch);
    r->scripts[0].deaf = true;
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 0), YOLK_OK);
    assert_false(rig_poll(r, batch, 0).terminal); /* its memory is not quiet */
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_LINK, 0));
    rig_expect(r, batch, 0, YOLK_ERR_CANCELED, 0);
    assert_int_equal(r->scripts[1].count, 0);
    rig_free(r, batch);
    rig_close(r);
}

/* A part that is in place is not moved again, and none of it is told back. */
static void from_the_first_byte_that_is_missing(void **state)
{
    (void)state;
    uint64_t batch;
    struct rig *r = under_way(rig_new(2), 1, &batch);
    r->scripts[1].hold = true;
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_ERR_LINK, 300));
    assert_int_equal(rig_poll(r, batch, 0).transferred, 300);
    assert_int_equal(r->scripts[1].log[0].offset, 300);
    assert_int_equal(r->scripts[1].log[0].size, PIECE - 300);
    assert_true(scripted_end(&r->scripts[1], 0, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    assert_moved(r, 0);
    rig_free(r, batch);
    rig_close(r);
}

/* Three of ten fail on the first transport, by draw. */
static void many_with_some_that_fail(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    struct yolk_transport_ops broken;
    const struct fault_options faults = {
        .inner = &r->ops[0], .inner_wrapped = &r->scripts[0], .seed = 7, .late_fail_permille = 300};
    uint64_t failed = 0;
    transport_fault_make(&faults, &broken);
    r->transports[0] = &broken;
    r->wrapped[0] = &faults;
    r->options.breaker_failures = 100;
    rig_open(r);
    for (int round = 0; round < 10; round++) {
        struct yolk_request requests[10];
        uint64_t batch = rig_batch(r, 10);
        memset(r->local, 0, 10 * GAP);
        for (uint32_t i = 0; i < 10; i++)
            requests[i] = piece(r, i);
        rig_submit(r, batch, requests, 10);
        assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
        for (uint32_t i = 0; i < 10; i++) {
            rig_expect(r, batch, i, YOLK_OK, PIECE);
            assert_moved(r, i);
        }
        rig_free(r, batch);
    }
    failed = r->scripts[1].count;
    assert_true(failed > 10 && failed < 60);
    rig_close(r);
}

/* A blocking transfer leaves no batch behind, however it ends. */
static void a_transfer_gives_its_batch_back(void **state)
{
    (void)state;
    struct yolk_peer_options options;
    struct yolk_peer *peer;
    struct yolk_engine_stats stats;
    uint64_t own;
    uint8_t *memory = calloc(2, 4096);
    yolk_peer_options_init(&options);
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_OK);
    assert_int_equal(yolk_peer_register(peer, memory, 8192, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_open(peer, "", &own), YOLK_OK);
    struct yolk_request request = {.opcode = YOLK_READ,
                                   .local = memory,
                                   .segment = own,
                                   .offset = (uint64_t)(uintptr_t)memory + 4096,
                                   .size = 4096};
    assert_int_equal(yolk_peer_transfer(peer, &request, 1, 0), YOLK_OK);
    request.local = &request; /* not registered */
    assert_int_equal(yolk_peer_transfer(peer, &request, 1, 0), YOLK_ERR_NOT_REGISTERED);
    request.local = memory;
    request.segment = 4711;
    assert_int_not_equal(yolk_peer_transfer(peer, &request, 1, 0), YOLK_OK);
    yolk_engine_stats(yolk_peer_engine(peer), &stats);
    assert_int_equal(stats.batches, 0);
    assert_int_equal(yolk_peer_close(peer, own), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(peer), YOLK_OK);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_done_elsewhere_once),
        cmocka_unit_test(a_poll_may_be_told_to_leave_it),
        cmocka_unit_test(progress_and_wait_try_again_all_the_same),
        cmocka_unit_test(each_task_has_attempts_of_its_own),
        cmocka_unit_test(a_batch_is_pending_until_all_are_over),
        cmocka_unit_test(the_worst_of_a_batch),
        cmocka_unit_test(never_after_a_cancel),
        cmocka_unit_test(from_the_first_byte_that_is_missing),
        cmocka_unit_test(many_with_some_that_fail),
        cmocka_unit_test(a_transfer_gives_its_batch_back),
    };
    return cmocka_run_group_tests_name("behaviour.failover", tests, NULL, NULL);
}
