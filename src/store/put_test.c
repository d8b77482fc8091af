/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/limits.h"
#include "store/put.h"
#include "store/script.h"

#define MS NS_PER_MS

struct fixture {
    struct store_holds *holds;
    struct store_tuning tuning;
    struct store_item items[8];
    char keys[8][32];
    struct store_put *put;
    struct script script;
    struct store_action action;
    uint64_t now;
};

static void begin(struct fixture *f, size_t count, uint64_t size, uint64_t space, uint64_t deadline)
{
    memset(f, 0, sizeof(*f));
    f->now = 1000 * MS;
    script_client(&f->script, &f->holds, &f->tuning, f->items, f->keys, count, size);
    assert_int_equal(store_put_create(f->holds, &f->tuning, f->items, count,
                                      &(struct store_put_how){.replica_num = 1}, f->now + space,
                                      f->now + deadline, &f->put),
                     YOLK_OK);
}

static void finish(struct fixture *f)
{
    store_put_destroy(f->put);
    store_holds_destroy(f->holds);
    script_free(&f->script);
}

static enum store_action_kind next(struct fixture *f)
{
    store_put_next(f->put, f->now, &f->action);
    return f->action.kind;
}

static void expect_send(struct fixture *f, uint16_t message)
{
    while (next(f) == STORE_WAIT && f->action.deadline_ns != UINT64_MAX) {
        assert_true(f->action.deadline_ns > f->now);
        f->now = f->action.deadline_ns;
    }
    assert_int_equal(f->action.kind, STORE_SEND);
    assert_int_equal(f->action.message, message);
}

static void granted(struct fixture *f, int32_t status)
{
    assert_int_equal(script_put_reply(&f->script, status), YOLK_OK);
    store_put_reply(f->put, f->now, WIRE_PUT_START_REPLY, f->script.body.data, f->script.body.size);
    script_clear(&f->script);
}

static void closed(struct fixture *f, uint16_t kind, int32_t status, uint32_t count, int32_t result)
{
    assert_int_equal(script_results_reply(&f->script, kind, status, count, result), YOLK_OK);
    store_put_reply(f->put, f->now, kind, f->script.body.data, f->script.body.size);
    script_clear(&f->script);
}

static void place(struct fixture *f, int32_t status, uint32_t replicas)
{
    assert_int_equal(script_place(&f->script, status, 100, replicas, 10, 640), 0);
}

static void plain_with_duplicates(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 4, 100, 100 * MS, 1000 * MS);
    store_put_destroy(f.put);
    f.items[2].key = f.items[0].key;
    f.items[2].size = 5;
    f.items[3].key_size = 0;
    assert_int_equal(store_put_create(f.holds, &f.tuning, f.items, 4,
                                      &(struct store_put_how){.replica_num = 2}, f.now + 100 * MS,
                                      f.now + 1000 * MS, &f.put),
                     YOLK_OK);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_OK, 2);
    place(&f, YOLK_ERR_EXISTS, 0);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.segment, 10);
    assert_int_equal(f.action.ticket[0], 10);
    uint64_t first = f.action.cookie;
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.segment, 11);
    assert_int_equal(f.action.ticket[0], 11);
    assert_int_equal(next(&f), STORE_WAIT);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    store_put_transferred(f.put, f.now, first, YOLK_OK);
    store_put_transferred(f.put, f.now, first + 1, YOLK_OK);
    store_put_transferred(f.put, f.now, first, YOLK_OK); /* twice: ignored */
    expect_send(&f, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    assert_int_equal(f.items[1].result, 100);
    assert_int_equal(f.items[2].result, 100);
    assert_int_equal(f.items[3].result, YOLK_ERR_INVALID);
    assert_int_equal(store_holds_live_count(f.holds), 0);
    finish(&f);
}

static const char *const groups[8] = {"first", NULL, "", "last", "", "", "", ""};

static void begin_upsert(struct fixture *f, size_t count)
{
    static const char *const preferred[] = {"host:1", "host:2"};
    const struct store_put_how how = {.replica_num = 1,
                                      .flags = WIRE_PUT_UPSERT | WIRE_PUT_HARD_PIN,
                                      .soft_pin = 1,
                                      .soft_pin_ttl_ms = 1234,
                                      .preferred = preferred,
                                      .preferred_count = 2,
                                      .groups = groups};
    begin(f, count, 100, 100 * MS, 1000 * MS);
    store_put_destroy(f->put);
    f->put = NULL;
    if (count == 4)
        f->items[0].key = f->items[3].key; /* the last one counts */
    f->items[0].size = 50;
    assert_int_equal(store_put_create(f->holds, &f->tuning, f->items, count, &how,
                                      f->now + 100 * MS, f->now + 1000 * MS, &f->put),
                     YOLK_OK);
}

static void nth(struct wire_view list, uint32_t n, const char *text)
{
    struct wire_keys keys;
    struct wire_view one = {0};
    assert_int_equal(wire_keys_open(list, 100, &keys), YOLK_OK);
    for (uint32_t i = 0; i <= n; i++)
        assert_true(wire_keys_next(&keys, &one));
    assert_int_equal(one.size, strlen(text));
    assert_memory_equal(one.data, text, one.size);
}

/* What the caller asked for is in the message, for the keys that are in it. */
static void what_is_asked_for_is_said(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_put_start start;
    begin_upsert(&f, 4);
    expect_send(&f, WIRE_PUT_START);
    assert_int_equal(wire_decode(WIRE_PUT_START, f.action.body, f.action.body_size, &start),
                     YOLK_OK);
    assert_int_equal(start.flags, WIRE_PUT_UPSERT | WIRE_PUT_HARD_PIN);
    assert_int_equal(start.soft_pin, 1);
    assert_int_equal(start.soft_pin_ttl_ms, 1234);
    nth(start.preferred, 0, "host:1");
    nth(start.preferred, 1, "host:2");
    assert_int_equal(wire_u64s_count(start.sizes), 3); /* item 0 has the key of item 3 */
    nth(start.keys, 0, "k1");
    nth(start.keys, 2, "k3");
    nth(start.groups, 0, "");
    nth(start.groups, 1, "");
    nth(start.groups, 2, "last");
    assert_int_equal(wire_u64s_at(start.sizes, 2), 100);
    finish(&f);
}

/* END is asked again until the owner of the old value has let go of it, under the same operation;
 * past the deadline the caller hears that its time is over. */
static void an_upsert_waits_for_the_old_value(void **state)
{
    (void)state;
    struct fixture f;
    for (int late = 0; late < 2; late++) {
        begin_upsert(&f, 1);
        expect_send(&f, WIRE_PUT_START);
        uint64_t op = f.action.op;
        place(&f, YOLK_OK, 1);
        granted(&f, YOLK_OK);
        assert_int_equal(next(&f), STORE_TRANSFER);
        store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
        uint64_t waited = 0;
        for (int i = 0; i < 5; i++) {
            expect_send(&f, WIRE_PUT_END);
            assert_int_equal(f.action.op, op);
            closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_ERR_AGAIN);
            assert_int_equal(next(&f), STORE_WAIT);
            /* Soon at first, for the answer is under way, and then less and less often. */
            uint64_t wait = f.action.deadline_ns - f.now;
            assert_true(i == 0 ? wait <= MS / 10 : wait >= 2 * waited);
            waited = wait;
        }
        f.now += late ? 2000 * MS : 0;
        if (!late) {
            expect_send(&f, WIRE_PUT_END);
            closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_OK);
        } else {
            expect_send(&f, WIRE_PUT_REVOKE);
            closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_ERR_EXISTS);
        }
        assert_int_equal(next(&f), STORE_DONE);
        assert_int_equal(f.items[0].result, late ? (int64_t)YOLK_ERR_TIMEOUT : 50);
        finish(&f);
    }
}

/* A tenant's quota is waited for as space is. */
static void a_quota_is_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    uint64_t until = f.now + 100 * MS;
    int asked = 0;
    while (next(&f) != STORE_DONE) {
        if (f.action.kind == STORE_WAIT) {
            f.now = f.action.deadline_ns;
            continue;
        }
        asked++;
        place(&f, YOLK_ERR_QUOTA, 0);
        granted(&f, YOLK_OK);
    }
    assert_true(asked > 3);
    assert_true(f.now >= until && f.now < until + 100 * MS);
    assert_int_equal(f.items[0].result, YOLK_ERR_QUOTA);
    finish(&f);
}

static void one_replica_fails(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2, 100, 100 * MS, 10000 * MS);
    for (int round = 0; round < 3; round++) {
        expect_send(&f, WIRE_PUT_START);
        place(&f, YOLK_OK, 2);
        if (round == 0)
            place(&f, YOLK_OK, 1);
        granted(&f, YOLK_OK);
        assert_int_equal(next(&f), STORE_TRANSFER);
        store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
        assert_int_equal(next(&f), STORE_TRANSFER);
        store_put_transferred(f.put, f.now, f.action.cookie, YOLK_ERR_PEER_DEAD);
        if (round == 0) {
            assert_int_equal(next(&f), STORE_TRANSFER);
            assert_int_equal(f.action.item, 1);
            store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
            expect_send(&f, WIRE_PUT_END); /* of the other key */
            closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_OK);
        }
        expect_send(&f, WIRE_PUT_REVOKE);
        closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_OK);
    }
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_PEER_DEAD);
    assert_int_equal(f.items[1].result, 100);
    finish(&f);
}

static void waits_for_space(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 200 * MS, 1000 * MS);
    uint64_t began = f.now;
    int sends = 0;
    while (next(&f) != STORE_DONE) {
        if (f.action.kind == STORE_WAIT) {
            assert_true(f.action.deadline_ns > f.now);
            f.now = f.action.deadline_ns;
            continue;
        }
        sends++;
        place(&f, YOLK_ERR_NO_SPACE, 0);
        granted(&f, YOLK_OK);
    }
    assert_int_equal(f.items[0].result, YOLK_ERR_NO_SPACE);
    assert_true(sends >= 5 && sends <= 20); /* backs off, but not out of sight */
    assert_int_equal(f.now, began + 200 * MS);
    finish(&f);

    begin(&f, 1, 0, 200 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_ERR_NO_SPACE, 0);
    granted(&f, YOLK_OK);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_OK, 0); /* a value of no bytes has no place */
    granted(&f, YOLK_OK);
    expect_send(&f, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 0);
    finish(&f);
}

/* All copies are waited for as space is; the last try takes what there is, also when the time for
 * space ends with that of the call. */
static void waits_for_all_copies(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        struct fixture f;
        struct wire_put_start start;
        begin(&f, 1, 100, 1, 1);
        store_put_destroy(f.put);
        uint64_t began = f.now;
        assert_int_equal(store_put_create(f.holds, &f.tuning, f.items, 1,
                                          &(struct store_put_how){.replica_num = 2},
                                          began + 500 * MS, began + (whole ? 500 : 1000) * MS,
                                          &f.put),
                         YOLK_OK);
        for (;;) {
            expect_send(&f, WIRE_PUT_START);
            assert_int_equal(wire_decode(WIRE_PUT_START, f.action.body, f.action.body_size, &start),
                             YOLK_OK);
            if (!(start.flags & WIRE_PUT_ALL_COPIES))
                break;
            place(&f, YOLK_ERR_AGAIN, 0);
            granted(&f, YOLK_OK);
        }
        if (whole)
            assert_true(f.now >= began + 250 * MS && f.now < began + 500 * MS);
        else
            assert_int_equal(f.now, began + 500 * MS);
        finish(&f);
    }
}

static void does_not_wait_for_what_fits_nowhere(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2, 100, 200 * MS, 1000 * MS);
    uint64_t began = f.now;
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_ERR_TOO_LARGE, 0);
    place(&f, YOLK_ERR_EXISTS, 0);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_TOO_LARGE);
    assert_int_equal(f.items[1].result, 100);
    assert_int_equal(f.now, began);
    finish(&f);
}

static void lost_answers_are_asked_for_again(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    uint64_t op = f.action.op;
    store_put_link_lost(f.put, f.now);
    expect_send(&f, WIRE_PUT_START);
    assert_int_equal(f.action.op, op); /* the master knows it again */
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    expect_send(&f, WIRE_PUT_END);
    store_put_link_lost(f.put, f.now);
    expect_send(&f, WIRE_PUT_END);
    assert_int_equal(f.action.op, op);
    closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

static void nothing_answers(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 300 * MS);
    while (next(&f) != STORE_DONE) {
        if (f.action.kind == STORE_WAIT)
            f.now = f.action.deadline_ns;
        else
            store_put_link_lost(f.put, f.now += 5 * MS);
    }
    assert_int_equal(f.items[0].result, YOLK_ERR_TIMEOUT);
    assert_true(f.now >= 1300 * MS && f.now < 1320 * MS);
    assert_int_equal(store_holds_live_count(f.holds), 0);
    finish(&f);
}

/* END refused because the put had run out of time: revoked, then put again under a new op. */
static void expired_put_is_put_again(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    uint64_t op = f.action.op;
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    expect_send(&f, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_ERR_TIMEOUT);
    expect_send(&f, WIRE_PUT_REVOKE);
    closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_OK);
    expect_send(&f, WIRE_PUT_START);
    assert_true(f.action.op > op);
    place(&f, YOLK_ERR_EXISTS, 0);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

/* The master died with the answer to an END, and the next one does not know the put. A put is made
 * again, which finds the key or fills it; an upsert is not, for it may have been replaced since. */
static void an_end_that_was_perhaps_performed(void **state)
{
    (void)state;
    enum { PUT, UPSERT, TOLD_UPSERT, CASES };
    for (int i = PUT; i < CASES; i++) {
        struct fixture f;
        if (i == PUT)
            begin(&f, 1, 100, 100 * MS, 1000 * MS);
        else
            begin_upsert(&f, 1);
        expect_send(&f, WIRE_PUT_START);
        place(&f, YOLK_OK, 1);
        granted(&f, YOLK_OK);
        assert_int_equal(next(&f), STORE_TRANSFER);
        store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
        expect_send(&f, WIRE_PUT_END);
        if (i == TOLD_UPSERT) {
            closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_ERR_AGAIN);
            expect_send(&f, WIRE_PUT_END);
        } else {
            store_put_link_lost(f.put, f.now);
            expect_send(&f, WIRE_PUT_END);
        }
        closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
        expect_send(&f, WIRE_PUT_REVOKE);
        closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
        if (i == PUT) {
            expect_send(&f, WIRE_PUT_START);
            place(&f, YOLK_ERR_EXISTS, 0);
            granted(&f, YOLK_OK);
        }
        assert_int_equal(next(&f), STORE_DONE);
        assert_int_equal(f.items[0].result, i == PUT ? 100 : YOLK_ERR_TIMEOUT);
        assert_int_equal(store_holds_live_count(f.holds), 0);
        finish(&f);
    }
}

/* An upsert whose END certainly was not performed is made again. */
static void an_upsert_that_the_next_master_does_not_know(void **state)
{
    (void)state;
    struct fixture f;
    begin_upsert(&f, 1);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    expect_send(&f, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
    expect_send(&f, WIRE_PUT_REVOKE);
    closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
    expect_send(&f, WIRE_PUT_START);
    finish(&f);
}

/* This process stood still until its session was given up and the call's time was over: the END
 * comes too late for both. */
static void late_end_of_a_lost_session(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    f.now += 4000 * MS;
    store_holds_set_session(f.holds, 8);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    expect_send(&f, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
    expect_send(&f, WIRE_PUT_REVOKE);
    closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_TIMEOUT);
    assert_int_equal(store_holds_live_count(f.holds), 0);
    finish(&f);
}

/* The same pause before the places came, and during the write: the caller hears that its time is
 * over, not whose life the session belongs to. */
static void late_answers_to_a_lost_session(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    f.now += 4000 * MS;
    granted(&f, YOLK_ERR_STALE);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_TIMEOUT);
    finish(&f);

    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    f.now += 4000 * MS;
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_ERR_STALE);
    expect_send(&f, WIRE_PUT_REVOKE);
    closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_TIMEOUT);
    finish(&f);
}

/* The session was opened anew between the grant and the write: the place is void. */
static void grant_of_an_earlier_epoch(void **state)
{
    (void)state;
    struct fixture f;
    struct base_buf held;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    base_buf_init(&held, 4096);
    assert_int_equal(store_holds_report(f.holds, &held), YOLK_OK);
    base_buf_free(&held);
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    expect_send(&f, WIRE_PUT_REVOKE); /* nothing was written */
    closed(&f, WIRE_PUT_REVOKE_REPLY, YOLK_OK, 1, YOLK_ERR_NOT_FOUND);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_ERR_TOO_LARGE, 0);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_TOO_LARGE);
    finish(&f);
}

/* Memory that never went quiet: not revoked, and the op stays live. */
static void stuck(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_OK, 1);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_ERR_STUCK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_STUCK);
    assert_int_equal(store_holds_live_count(f.holds), 1);
    struct base_buf held;
    base_buf_init(&held, 4096);
    assert_int_equal(store_holds_report(f.holds, &held), YOLK_OK);
    assert_int_equal(wire_held_count(wire_view_buf(&held)), 1);
    assert_int_equal(wire_held_at(wire_view_buf(&held), 0).offset, 640);
    base_buf_free(&held);
    finish(&f);
}

static void no_session_yet(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 100 * MS, 1000 * MS);
    store_holds_set_session(f.holds, 0);
    assert_int_equal(next(&f), STORE_WAIT);
    f.now = f.action.deadline_ns;
    store_holds_set_session(f.holds, 8);
    expect_send(&f, WIRE_PUT_START);
    granted(&f, YOLK_ERR_STALE); /* and this one is not known either */
    store_holds_set_session(f.holds, 9);
    expect_send(&f, WIRE_PUT_START);
    place(&f, YOLK_ERR_EXISTS, 0);
    granted(&f, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_with_duplicates),
        cmocka_unit_test(what_is_asked_for_is_said),
        cmocka_unit_test(an_upsert_waits_for_the_old_value),
        cmocka_unit_test(a_quota_is_waited_for),
        cmocka_unit_test(one_replica_fails),
        cmocka_unit_test(waits_for_space),
        cmocka_unit_test(waits_for_all_copies),
        cmocka_unit_test(does_not_wait_for_what_fits_nowhere),
        cmocka_unit_test(lost_answers_are_asked_for_again),
        cmocka_unit_test(nothing_answers),
        cmocka_unit_test(expired_put_is_put_again),
        cmocka_unit_test(an_end_that_was_perhaps_performed),
        cmocka_unit_test(an_upsert_that_the_next_master_does_not_know),
        cmocka_unit_test(late_end_of_a_lost_session),
        cmocka_unit_test(late_answers_to_a_lost_session),
        cmocka_unit_test(grant_of_an_earlier_epoch),
        cmocka_unit_test(stuck),
        cmocka_unit_test(no_session_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
