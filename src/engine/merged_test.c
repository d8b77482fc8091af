/* SPDX-License-Identifier: Apache-2.0 */
/* Merged requests as a caller sees them: one io for many, each its own result. */
#include <yolk/engine.h>

#include "engine/rig.h"

enum { PIECE = 1024, MANY = 64 };

static void pieces(const struct rig *r, enum yolk_opcode opcode, struct yolk_request *requests,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        requests[i] = rig_request(r, opcode, (uint64_t)i * PIECE, PIECE);
        requests[i].cookie = 100 + i;
    }
}

static void many_are_one_io_with_a_result_each(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[MANY];
    struct yolk_engine_stats stats;
    rig_open(r);
    uint64_t batch = rig_batch(r, MANY);
    pieces(r, YOLK_READ, requests, MANY);
    rig_submit(r, batch, requests, MANY);
    assert_int_equal(r->scripts[0].count, 1);
    assert_int_equal(r->scripts[0].log[0].size, MANY * PIECE);
    for (uint32_t i = 0; i < MANY; i++) {
        rig_expect(r, batch, i, YOLK_OK, PIECE);
        assert_int_equal(rig_poll(r, batch, i).cookie, 100 + i);
        assert_string_equal(rig_poll(r, batch, i).transport, "first");
    }
    assert_memory_equal(r->local, r->memory, MANY * PIECE);
    yolk_engine_stats(r->engine, &stats);
    assert_int_equal(stats.tasks_submitted, MANY);
    assert_int_equal(stats.tasks_merged, MANY - 1);
    assert_int_equal(stats.tasks_ok, MANY);
    rig_free(r, batch);
    rig_close(r);
}

/* Each of these keeps two neighbours apart. */
static void what_differs_is_not_merged(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    struct yolk_request requests[10];
    rig_open(r);
    uint64_t batch = rig_batch(r, 10);
    pieces(r, YOLK_READ, requests, 10);
    requests[1].hint = "second";
    requests[3].deadline_ns = 1000000;
    requests[5].intent = YOLK_INTENT_CHECKPOINT;
    requests[7].tenant = "t";
    requests[9].opcode = YOLK_WRITE;
    rig_submit(r, batch, requests, 10);
    assert_int_equal(r->scripts[0].count + r->scripts[1].count, 10);
    assert_int_equal(r->scripts[1].count, 1);
    for (uint32_t i = 0; i < 10; i++)
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

static void no_io_lies_in_two_registrations(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[8];
    rig_open_bare(r);
    assert_int_equal(yolk_engine_register(r->engine, r->local, 3 * PIECE), YOLK_OK);
    assert_int_equal(yolk_engine_register(r->engine, r->local + 3 * PIECE, 5 * PIECE), YOLK_OK);
    uint64_t batch = rig_batch(r, 8);
    pieces(r, YOLK_READ, requests, 8);
    rig_submit(r, batch, requests, 8);
    assert_int_equal(r->scripts[0].count, 2);
    assert_int_equal(r->scripts[0].log[0].size, 3 * PIECE);
    assert_int_equal(r->scripts[0].log[1].size, 5 * PIECE);
    rig_free(r, batch);
    rig_close(r);
}

static void a_limit_and_a_switch(void **state)
{
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct rig *r = rig_new(1);
        struct yolk_request requests[9];
        r->options.merge_bytes_max = off ? 0 : 4 * PIECE;
        r->options.merge = off ? YOLK_SWITCH_OFF : YOLK_SWITCH_ON;
        rig_open(r);
        uint64_t batch = rig_batch(r, 9);
        pieces(r, YOLK_READ, requests, 9);
        rig_submit(r, batch, requests, 9);
        assert_int_equal(r->scripts[0].count, off ? 9 : 3);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* A request that is refused between two keeps them apart, and they work. */
static void a_refused_one_between(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[3];
    enum yolk_status verdicts[3];
    rig_open(r);
    uint64_t batch = rig_batch(r, 3);
    pieces(r, YOLK_READ, requests, 3);
    requests[1].segment ^= UINT64_C(1) << 40;
    assert_int_equal(yolk_engine_batch_submit(r->engine, batch, requests, 3, verdicts, NULL),
                     YOLK_ERR_STALE);
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_expect(r, batch, 1, YOLK_ERR_STALE, 0);
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* Canceled while the io for all is under way: that is taken back, and the rest of the others is
 * posted again without the bytes of this one. */
static void a_cancel_harms_no_other(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[4];
    rig_open(r);
    s->hold = true;
    uint64_t batch = rig_batch(r, 4);
    pieces(r, YOLK_READ, requests, 4);
    rig_submit(r, batch, requests, 4);
    assert_int_equal(s->count, 1);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 1), YOLK_OK);
    rig_expect(r, batch, 1, YOLK_ERR_CANCELED, 0);
    assert_int_equal(s->canceled, 1);
    assert_int_equal(s->count, 3); /* before it and behind it */
    for (uint32_t i = 1; i < 3; i++) {
        assert_true(s->log[i].offset + s->log[i].size <= PIECE || s->log[i].offset >= 2 * PIECE);
        assert_true(scripted_end(s, i, YOLK_OK, UINT64_MAX));
    }
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    rig_expect(r, batch, 3, YOLK_OK, PIECE);
    assert_memory_equal(r->local, r->memory, PIECE);
    assert_memory_equal(r->local + 2 * PIECE, r->memory + 2 * PIECE, 2 * PIECE);
    for (uint32_t i = PIECE; i < 2 * PIECE; i++)
        assert_int_equal(r->local[i], 0);
    rig_free(r, batch);
    rig_close(r);
}

/* A transport that hears no cancel: the canceled one drains with its neighbours' io. */
static void a_cancel_that_is_not_heard_drains(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[4];
    rig_open(r);
    s->hold = true;
    s->deaf = true;
    uint64_t batch = rig_batch(r, 4);
    pieces(r, YOLK_READ, requests, 4);
    rig_submit(r, batch, requests, 4);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 2), YOLK_OK);
    assert_false(rig_poll(r, batch, 2).terminal); /* its memory is not quiet */
    assert_true(scripted_end(s, 0, YOLK_ERR_LINK, 2 * PIECE + 10));
    rig_expect(r, batch, 2, YOLK_ERR_CANCELED, 0);
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    assert_int_equal(s->count, 2); /* what is left: the last one alone */
    assert_int_equal(s->log[1].offset, 3 * PIECE);
    assert_int_equal(s->log[1].size, PIECE);
    assert_true(scripted_end(s, 1, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 3, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* The first transport fails: the second gets the one io once, not once for each request. */
static void failover_resubmits_none_of_them(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    struct yolk_request requests[MANY];
    rig_open(r);
    r->scripts[0].fail = YOLK_ERR_LINK;
    uint64_t batch = rig_batch(r, MANY);
    pieces(r, YOLK_WRITE, requests, MANY);
    memset(r->local, 0x5a, MANY * PIECE);
    rig_submit(r, batch, requests, MANY);
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 1);
    assert_int_equal(r->scripts[1].count, 1);
    assert_int_equal(r->scripts[1].log[0].size, MANY * PIECE);
    for (uint32_t i = 0; i < MANY; i++)
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    assert_memory_equal(r->local, r->memory, MANY * PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* A whole that is refused says nothing of its parts. */
static void a_refused_whole_is_tried_in_parts(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[3];
    rig_open(r);
    s->hold = true;
    uint64_t batch = rig_batch(r, 3);
    pieces(r, YOLK_WRITE, requests, 3);
    rig_submit(r, batch, requests, 3);
    assert_true(scripted_end(s, 0, YOLK_ERR_ACCESS, 0));
    (void)rig_poll(r, batch, 0);
    assert_int_equal(s->count, 4);
    for (uint32_t i = 1; i < 4; i++)
        assert_true(scripted_end(s, i, s->log[i].offset == PIECE ? YOLK_ERR_ACCESS : YOLK_OK,
                                 s->log[i].offset == PIECE ? 0 : UINT64_MAX));
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_expect(r, batch, 1, YOLK_ERR_ACCESS, 0);
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* All time out together; one that is stuck is told of each that it may touch, and keeps BUSY. */
static void deadline_and_stuck(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[3];
    enum yolk_status verdict;
    rig_open(r);
    s->hold = true;
    s->deaf = true;
    uint64_t batch = rig_batch(r, 3);
    pieces(r, YOLK_READ, requests, 3);
    for (int i = 0; i < 3; i++)
        requests[i].deadline_ns = 5000;
    rig_submit(r, batch, requests, 3);
    assert_int_equal(s->count, 1);
    clock_sim_set(&r->clock, 6000);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(rig_poll(r, batch, i).terminal);
    clock_sim_set(&r->clock, 6000 + UINT64_C(5000) * 1000000);
    for (uint32_t i = 0; i < 3; i++)
        rig_expect(r, batch, i, YOLK_ERR_STUCK, 0);
    uint64_t other = rig_batch(r, 2);
    for (uint32_t i = 0; i < 2; i++) {
        requests[i].deadline_ns = 0;
        assert_int_equal(
            yolk_engine_batch_submit(r->engine, other, &requests[i], 1, &verdict, NULL),
            YOLK_ERR_BUSY);
    }
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_ERR_BUSY);
    assert_true(scripted_end(s, 0, YOLK_OK, UINT64_MAX));
    rig_free(r, batch);
    rig_free(r, other);
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_OK);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_are_one_io_with_a_result_each),
        cmocka_unit_test(what_differs_is_not_merged),
        cmocka_unit_test(no_io_lies_in_two_registrations),
        cmocka_unit_test(a_limit_and_a_switch),
        cmocka_unit_test(a_refused_one_between),
        cmocka_unit_test(a_cancel_harms_no_other),
        cmocka_unit_test(a_cancel_that_is_not_heard_drains),
        cmocka_unit_test(failover_resubmits_none_of_them),
        cmocka_unit_test(a_refused_whole_is_tried_in_parts),
        cmocka_unit_test(deadline_and_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
