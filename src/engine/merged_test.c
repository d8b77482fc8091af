/* SPDX-License-Identifier: Apache-2.0 */
/* Merged requests as a caller sees them: one io for many, each its own result. */
#include <stdio.h>

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

/* A transport that refuses one request has the next one all the same. */
static void a_second_choice_is_one_request_s_alone(void **state)
{
    (void)state;
    struct rig *r = rig_new(2);
    struct yolk_request requests[3];
    r->options.merge = YOLK_SWITCH_OFF;
    rig_open(r);
    uint64_t batch = rig_batch(r, 3);
    pieces(r, YOLK_READ, requests, 3);
    r->scripts[0].fail = YOLK_ERR_UNSUPPORTED;
    r->scripts[0].fail_below = PIECE;
    rig_submit(r, batch, requests, 3);
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    for (uint32_t i = 0; i < 3; i++) {
        rig_expect(r, batch, i, YOLK_OK, PIECE);
        assert_string_equal(rig_poll(r, batch, i).transport, i == 0 ? "second" : "first");
    }
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

/* -- over places -- */

/* Where the i-th lies, here and in the segment: no two follow each other. */
static uint64_t here(uint32_t i)
{
    return (uint64_t)(i * 7 % MANY) * 2 * PIECE + 64;
}

static uint64_t there(uint32_t i)
{
    return (uint64_t)(MANY - 1 - i) * 3 * PIECE + 128;
}

static void places(const struct rig *r, enum yolk_opcode opcode, struct yolk_request *requests,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        requests[i] = rig_request(r, opcode, there(i), PIECE);
        requests[i].local = r->local + here(i);
        requests[i].cookie = 100 + i;
    }
}

static bool is_moved(const struct rig *r, uint32_t i)
{
    return memcmp(r->local + here(i), r->memory + there(i), PIECE) == 0;
}

/* Engine and transports, of which the first takes places, and one request of each batch over it. */
static struct rig *places_new(uint32_t transports)
{
    struct rig *r = rig_new(transports);
    r->ops[0].caps |= YOLK_CAP_PLACES;
    rig_open(r);
    uint64_t batch = rig_batch(r, 1);
    const struct yolk_request first = rig_request(r, YOLK_READ, 0, 1);
    rig_submit(r, batch, &first, 1);
    rig_expect(r, batch, 0, YOLK_OK, 1);
    rig_free(r, batch);
    memset(r->local, 0, RIG_SIZE);
    r->scripts[0].count = 0;
    return r;
}

static uint64_t merged_of(const struct rig *r)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(r->engine, &stats);
    return stats.tasks_merged;
}

static void many_places_are_one_io(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        struct rig *r = places_new(1);
        struct yolk_request requests[MANY];
        uint64_t batch = rig_batch(r, MANY);
        places(r, write ? YOLK_WRITE : YOLK_READ, requests, MANY);
        if (write)
            memset(r->local, 0x5a, RIG_SIZE);
        rig_submit(r, batch, requests, MANY);
        assert_int_equal(r->scripts[0].count, 1);
        assert_int_equal(r->scripts[0].log[0].size, MANY * PIECE);
        assert_int_equal(r->scripts[0].log[0].places, MANY);
        assert_int_equal(r->scripts[0].log[0].offset, there(0));
        assert_ptr_equal(r->scripts[0].log[0].local, r->local + here(0));
        for (uint32_t i = 0; i < MANY; i++) {
            rig_expect(r, batch, i, YOLK_OK, PIECE);
            assert_int_equal(rig_poll(r, batch, i).cookie, 100 + i);
            assert_true(is_moved(r, i));
        }
        assert_int_equal(merged_of(r), MANY - 1);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* Not joined: long ones, what jumps from others that are moved as one, more than an io may have,
 * and all of them before it is known that their way takes places. */
static void what_gets_no_place(void **state)
{
    (void)state;
    enum { MOST = YOLK_PLACES_MAX + 2 };
    static struct yolk_request requests[MOST];
    struct rig *r = places_new(1);
    uint64_t batch = rig_batch(r, 3 + 3 + MOST);
    for (uint32_t i = 0; i < 3; i++)
        requests[i] = rig_request(r, YOLK_READ, (2 - i) * 8193, 8193);
    rig_submit(r, batch, requests, 3);
    assert_int_equal(r->scripts[0].count, 3);
    pieces(r, YOLK_READ, requests, 3);
    requests[2] = rig_request(r, YOLK_READ, 5 * PIECE, PIECE);
    rig_submit(r, batch, requests, 3);
    assert_int_equal(r->scripts[0].count, 5);
    r->scripts[0].count = 0;
    for (uint32_t i = 0; i < MOST; i++)
        requests[i] = rig_request(r, YOLK_READ, (MOST - i) * 2, 1);
    /* So that it is posted in one part. */
    requests[MOST - 1].priority = YOLK_PRIORITY_LOW;
    rig_submit(r, batch, requests, MOST);
    assert_int_equal(r->scripts[0].log[0].places, YOLK_PLACES_MAX);
    assert_int_equal(r->scripts[0].count, 3);
    rig_free(r, batch);
    rig_close(r);
    r = rig_new(1);
    r->ops[0].caps |= YOLK_CAP_PLACES;
    rig_open(r);
    batch = rig_batch(r, 4);
    places(r, YOLK_READ, requests, 4);
    rig_submit(r, batch, requests, 4);
    assert_int_equal(r->scripts[0].count, 4);
    rig_free(r, batch);
    rig_close(r);
}

/* Bytes in place are those of the first places, the cut one's up to the byte. */
static void each_place_has_its_bytes(void **state)
{
    (void)state;
    struct rig *r = places_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[4];
    s->hold = true;
    uint64_t batch = rig_batch(r, 4);
    places(r, YOLK_READ, requests, 4);
    rig_submit(r, batch, requests, 4);
    assert_true(scripted_end(s, 0, YOLK_OK, 2 * PIECE + 10));
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    assert_int_equal(rig_poll(r, batch, 2).transferred, 10);
    assert_int_equal(s->count, 2);
    assert_int_equal(s->log[1].offset, there(2) + 10);
    assert_ptr_equal(s->log[1].local, r->local + here(2) + 10);
    assert_int_equal(s->log[1].size, 2 * PIECE - 10);
    assert_int_equal(s->log[1].places, 2);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 3), YOLK_OK);
    rig_expect(r, batch, 3, YOLK_ERR_CANCELED, 0);
    assert_int_equal(s->log[2].places, 0); /* the rest of one */
    assert_int_equal(s->log[2].size, PIECE - 10);
    assert_true(scripted_end(s, 2, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(is_moved(r, i));
    for (uint32_t i = 0; i < PIECE; i++)
        assert_int_equal(r->local[here(3) + i], 0);
    rig_free(r, batch);
    rig_close(r);
}

/* The next transport takes none: each is its own io there. */
static void places_fail_over_one_by_one(void **state)
{
    (void)state;
    struct rig *r = places_new(2);
    struct yolk_request requests[MANY];
    r->scripts[0].fail = YOLK_ERR_LINK;
    uint64_t batch = rig_batch(r, MANY);
    places(r, YOLK_READ, requests, MANY);
    rig_submit(r, batch, requests, MANY);
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 1);
    assert_int_equal(r->scripts[1].count, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(r->scripts[1].log[i].size, PIECE);
        rig_expect(r, batch, i, YOLK_OK, PIECE);
        assert_true(is_moved(r, i));
    }
    /* What comes next for this segment is not joined in vain. */
    uint64_t merged = merged_of(r), other = rig_batch(r, 4);
    requests[0].hint = requests[1].hint = "second";
    rig_submit(r, other, requests, 2);
    rig_submit(r, other, requests + 2, 2);
    assert_int_equal(merged_of(r), merged);
    rig_free(r, batch);
    rig_free(r, other);
    rig_close(r);
}

static void a_refused_place_harms_no_other(void **state)
{
    (void)state;
    struct rig *r = places_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[3];
    char where[64];
    s->hold = true;
    uint64_t batch = rig_batch(r, 3);
    places(r, YOLK_WRITE, requests, 3);
    rig_submit(r, batch, requests, 3);
    assert_true(scripted_end(s, 0, YOLK_ERR_ACCESS, 0));
    (void)rig_poll(r, batch, 0);
    assert_int_equal(s->count, 4);
    for (uint32_t i = 1; i < 4; i++) {
        bool bad = s->log[i].offset == there(1);
        assert_int_equal(s->log[i].places, 0);
        assert_true(scripted_end(s, i, bad ? YOLK_ERR_ACCESS : YOLK_OK, bad ? 0 : UINT64_MAX));
    }
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_expect(r, batch, 2, YOLK_OK, PIECE);
    rig_expect(r, batch, 1, YOLK_ERR_ACCESS, 0);
    snprintf(where, sizeof(where), "local %p, remote 0x%llx", requests[1].local,
             (unsigned long long)there(1));
    assert_non_null(strstr(yolk_last_error(), where));
    rig_free(r, batch);
    rig_close(r);
}

/* Of places that are stuck each is refused, and nothing between them. */
static void stuck_places(void **state)
{
    (void)state;
    struct rig *r = places_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[3];
    enum yolk_status verdict;
    s->hold = true;
    s->deaf = true;
    uint64_t batch = rig_batch(r, 3);
    places(r, YOLK_READ, requests, 3);
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
    s->hold = false;
    uint64_t other = rig_batch(r, 9);
    for (uint32_t i = 0; i < 3; i++) {
        struct yolk_request one = requests[i];
        one.deadline_ns = 0;
        one.size = 1;
        one.local = r->local + here(i) + PIECE - 1;
        assert_int_equal(yolk_engine_batch_submit(r->engine, other, &one, 1, &verdict, NULL),
                         YOLK_ERR_BUSY);
        one.local = r->local + here(i) + PIECE;
        assert_int_equal(yolk_engine_batch_submit(r->engine, other, &one, 1, &verdict, NULL),
                         YOLK_OK);
    }
    /* Nor does it join two that may have a place. */
    requests[0] = rig_request(r, YOLK_READ, 0, 1);
    requests[1] = requests[2] = requests[0];
    requests[1].offset = 9;
    requests[1].local = r->local + here(0) + 5;
    requests[2].offset = 17;
    enum yolk_status verdicts[3];
    assert_int_equal(yolk_engine_batch_submit(r->engine, other, requests, 3, verdicts, NULL),
                     YOLK_ERR_BUSY);
    assert_int_equal(verdicts[0], YOLK_OK);
    assert_int_equal(verdicts[1], YOLK_ERR_BUSY);
    assert_int_equal(verdicts[2], YOLK_OK);
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
        cmocka_unit_test(a_second_choice_is_one_request_s_alone),
        cmocka_unit_test(deadline_and_stuck),
        cmocka_unit_test(many_places_are_one_io),
        cmocka_unit_test(what_gets_no_place),
        cmocka_unit_test(each_place_has_its_bytes),
        cmocka_unit_test(places_fail_over_one_by_one),
        cmocka_unit_test(a_refused_place_harms_no_other),
        cmocka_unit_test(stuck_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
