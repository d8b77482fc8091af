/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/limits.h"
#include "store/get.h"
#include "store/script.h"

#define MS NS_PER_MS

struct fixture {
    struct store_holds *holds;
    struct store_tuning tuning;
    struct store_item items[8];
    char keys[8][32];
    struct store_get *get;
    struct script script;
    struct store_action action;
    uint64_t now;
};

static void begin(struct fixture *f, size_t count, uint64_t size, uint64_t deadline)
{
    memset(f, 0, sizeof(*f));
    f->now = 1000 * MS;
    script_client(&f->script, &f->holds, &f->tuning, f->items, f->keys, count, size);
    assert_int_equal(
        store_get_create(f->holds, &f->tuning, NULL, f->items, count, f->now + deadline, &f->get),
        YOLK_OK);
}

static void finish(struct fixture *f)
{
    store_get_destroy(f->get);
    assert_int_equal(store_holds_live_count(f->holds), 0);
    store_holds_destroy(f->holds);
    script_free(&f->script);
}

static enum store_action_kind next(struct fixture *f)
{
    store_get_next(f->get, f->now, &f->action);
    return f->action.kind;
}

static void answer(struct fixture *f, int32_t status, uint64_t ttl_ms)
{
    assert_int_equal(script_get_reply(&f->script, status, ttl_ms), YOLK_OK);
    store_get_reply(f->get, f->now, WIRE_GET_START_REPLY, f->script.body.data, f->script.body.size);
    script_clear(&f->script);
}

static void expect_start(struct fixture *f)
{
    assert_int_equal(next(f), STORE_SEND);
    assert_int_equal(f->action.message, WIRE_GET_START);
    assert_int_equal(next(f), STORE_WAIT);
}

static uint32_t disk_first(void *self, const struct store_replica *replica)
{
    (void)self;
    return replica->medium == WIRE_MEDIUM_LOCAL_DISK ? 0 : 1;
}

static void plain(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 5, 100, 1000 * MS);
    expect_start(&f);
    assert_int_equal(script_place(&f.script, YOLK_OK, 60, 1, 10, 640), 0);
    assert_int_equal(script_place(&f.script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0), 0);
    assert_int_equal(script_place(&f.script, YOLK_OK, 101, 1, 10, 0), 0);
    assert_int_equal(script_place(&f.script, YOLK_OK, 0, 0, 0, 0), 0);
    assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 11, 64), 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.item, 0);
    assert_int_equal(f.action.segment, 10);
    assert_int_equal(f.action.offset, 640);
    assert_int_equal(f.action.size, 60);
    uint64_t first = f.action.cookie;
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.item, 4);
    uint64_t second = f.action.cookie;
    assert_int_equal(next(&f), STORE_WAIT);
    store_get_transferred(f.get, f.now, second, YOLK_OK);
    store_get_transferred(f.get, f.now, second, YOLK_OK); /* twice: ignored */
    assert_int_equal(next(&f), STORE_WAIT);
    store_get_transferred(f.get, f.now, first, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 60);
    assert_int_equal(f.items[1].result, YOLK_ERR_NOT_FOUND);
    assert_int_equal(f.items[2].result, YOLK_ERR_BUFFER_SMALL);
    assert_int_equal(f.items[3].result, 0);
    assert_int_equal(f.items[4].result, 100);
    finish(&f);
}

static void next_replica_after_a_failure(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 1000 * MS);
    expect_start(&f);
    assert_int_equal(script_place(&f.script, YOLK_OK, 100, 2, 20, 0), 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.segment, 20);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_ERR_PEER_DEAD);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.segment, 21);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

static void asks_again_when_all_replicas_failed(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 10000 * MS);
    for (int query = 0; query < 3; query++) {
        expect_start(&f);
        assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 20, 0), 0);
        answer(&f, YOLK_OK, 1000);
        assert_int_equal(next(&f), STORE_TRANSFER);
        store_get_transferred(f.get, f.now, f.action.cookie, YOLK_ERR_LINK);
        if (query == 2)
            break;
        assert_int_equal(next(&f), STORE_WAIT);
        f.now = f.action.deadline_ns;
    }
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_LINK);
    finish(&f);
}

/* The bytes landed after the guard: fetched once more under a new one, then given up. */
static void guard_ran_out(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 10000 * MS);
    for (int round = 0; round < 2; round++) {
        expect_start(&f);
        assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 20, 0), 0);
        answer(&f, YOLK_OK, 100);
        assert_int_equal(next(&f), STORE_TRANSFER);
        f.now += 99 * MS; /* exactly TTL less 1 %: no longer good */
        store_get_transferred(f.get, f.now, f.action.cookie, YOLK_OK);
    }
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_LEASE_EXPIRED);
    finish(&f);

    begin(&f, 1, 100, 10000 * MS);
    expect_start(&f);
    assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 20, 0), 0);
    answer(&f, YOLK_OK, 100);
    assert_int_equal(next(&f), STORE_TRANSFER);
    store_get_transferred(f.get, f.now + 99 * MS - 1, f.action.cookie, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

static void guard_is_renewed(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 10000 * MS);
    expect_start(&f);
    assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 20, 0), 0);
    answer(&f, YOLK_OK, 100);
    assert_int_equal(next(&f), STORE_TRANSFER);
    uint64_t cookie = f.action.cookie;
    assert_int_equal(next(&f), STORE_WAIT);
    f.now = f.action.deadline_ns;
    assert_int_equal(next(&f), STORE_SEND);
    assert_int_equal(f.action.message, WIRE_RENEW);
    struct wire_renew_reply reply = {.guard_ttl_ms = 100};
    assert_int_equal(wire_encode(WIRE_RENEW_REPLY, &reply, &f.script.body), YOLK_OK);
    store_get_reply(f.get, f.now, WIRE_RENEW_REPLY, f.script.body.data, f.script.body.size);
    f.now += 98 * MS; /* 148 ms after the first guard began */
    store_get_transferred(f.get, f.now, cookie, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

/* One key of 100 bytes with a replica on a disk and, if memory is not 0, one in memory. */
static void disk_answer(struct fixture *f, uint64_t memory)
{
    struct wire_replica disk = {
        .segment = 30, .offset = 8192, .medium = WIRE_MEDIUM_LOCAL_DISK, .checksum = 0xabcd1234};
    uint32_t count = memory == 0 ? 1 : 2;
    struct wire_result result = {.size = 100, .replica_count = count};
    assert_int_equal(wire_result_append(&f->script.results, &result), YOLK_OK);
    if (memory != 0) {
        struct wire_replica replica = {.segment = memory};
        assert_int_equal(wire_replica_append(&f->script.replicas, &replica), YOLK_OK);
    }
    assert_int_equal(wire_replica_append(&f->script.replicas, &disk), YOLK_OK);
    answer(f, YOLK_OK, 1000);
}

static void expect_disk_read(struct fixture *f)
{
    assert_int_equal(next(f), STORE_TRANSFER);
    assert_int_equal(f->action.segment, 30);
    assert_int_equal(f->action.offset, 8192);
    assert_int_equal(f->action.size, 100);
    assert_int_equal(f->action.medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(f->action.checksum, 0xabcd1234);
    assert_true(f->action.key_hash == base_hash64("k0", 2));
}

static void expect_bad_report(struct fixture *f)
{
    struct wire_replica_bad bad;
    struct wire_keys keys;
    struct wire_view key;
    assert_int_equal(next(f), STORE_SEND);
    assert_int_equal(f->action.message, WIRE_REPLICA_BAD);
    assert_int_equal(wire_decode(WIRE_REPLICA_BAD, f->action.body, f->action.body_size, &bad),
                     YOLK_OK);
    assert_int_equal(wire_keys_open(bad.keys, 10, &keys), YOLK_OK);
    assert_true(wire_keys_next(&keys, &key));
    assert_int_equal(key.size, 2);
    assert_memory_equal(key.data, "k0", 2);
    assert_int_equal(wire_replica_count(bad.replicas), 1);
    struct wire_replica replica = wire_replica_at(bad.replicas, 0);
    assert_int_equal(replica.segment, 30);
    assert_int_equal(replica.offset, 8192);
    assert_int_equal(replica.medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(next(f), STORE_WAIT);
}

static void bad_report_answered(struct fixture *f)
{
    assert_int_equal(script_results_reply(&f->script, WIRE_REPLICA_BAD_REPLY, YOLK_OK, 1, YOLK_OK),
                     YOLK_OK);
    store_get_reply(f->get, f->now, WIRE_REPLICA_BAD_REPLY, f->script.body.data,
                    f->script.body.size);
    script_clear(&f->script);
}

/* Bytes of a disk that do not match: not given out, the next replica is read, the master told. */
static void bad_bytes_of_a_disk(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 1000 * MS);
    expect_start(&f);
    disk_answer(&f, 0);
    expect_disk_read(&f);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_ERR_CORRUPT);
    expect_bad_report(&f);
    bad_report_answered(&f);
    assert_int_equal(next(&f), STORE_WAIT); /* asked again, after a pause */
    f.now = f.action.deadline_ns;
    expect_start(&f);
    assert_int_equal(script_place(&f.script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0), 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_NOT_FOUND);
    finish(&f);

    begin(&f, 1, 100, 1000 * MS);
    store_get_destroy(f.get);
    struct store_replica_choice choice = {NULL, disk_first};
    assert_int_equal(
        store_get_create(f.holds, &f.tuning, &choice, f.items, 1, f.now + 1000 * MS, &f.get),
        YOLK_OK);
    expect_start(&f);
    disk_answer(&f, 40);
    expect_disk_read(&f);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_ERR_CORRUPT);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.segment, 40);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_OK);
    expect_bad_report(&f);
    store_get_link_lost(f.get, f.now);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    assert_int_equal(f.items[0].medium, WIRE_MEDIUM_MEMORY);
    finish(&f);
}

/* The owner does not know the extent: it may just have mounted anew, so only the second time it is
 * reported. A good read says which medium it came from. */
static void extent_unknown_to_its_owner(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 1000 * MS);
    for (int round = 0; round < 2; round++) {
        expect_start(&f);
        disk_answer(&f, 0);
        expect_disk_read(&f);
        store_get_transferred(f.get, f.now, f.action.cookie, YOLK_ERR_STALE);
        if (round == 1) {
            expect_bad_report(&f);
            bad_report_answered(&f);
        }
        assert_int_equal(next(&f), STORE_WAIT);
        f.now = f.action.deadline_ns;
    }
    expect_start(&f);
    disk_answer(&f, 0);
    expect_disk_read(&f);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    assert_int_equal(f.items[0].medium, WIRE_MEDIUM_LOCAL_DISK);
    finish(&f);
}

static void lost_answer_and_deadline(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 500 * MS);
    uint64_t last = 0;
    int sends = 0;
    while (next(&f) != STORE_DONE) {
        if (f.action.kind == STORE_WAIT) {
            assert_true(f.action.deadline_ns > f.now);
            f.now = f.action.deadline_ns;
            continue;
        }
        assert_true(f.action.op > last); /* each try has a guard of its own */
        last = f.action.op;
        sends++;
        f.now += 10 * MS;
        store_get_link_lost(f.get, f.now);
    }
    assert_true(sends > 5);
    assert_int_equal(f.items[0].result, YOLK_ERR_LINK);
    finish(&f);
}

/* A grant from before the session was opened anew may not be used: nobody was told of it. */
static void grant_of_an_earlier_epoch(void **state)
{
    (void)state;
    struct fixture f;
    struct base_buf held;
    begin(&f, 1, 100, 500 * MS);
    expect_start(&f);
    base_buf_init(&held, 4096);
    assert_int_equal(store_holds_report(f.holds, &held), YOLK_OK);
    assert_int_equal(held.size, 0);
    base_buf_free(&held);
    assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 20, 0), 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_WAIT);
    f.now = f.action.deadline_ns;
    expect_start(&f);
    assert_int_equal(script_place(&f.script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0), 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_DONE);
    finish(&f);
}

static void windows_and_bad_keys(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 4, 100, 500 * MS);
    store_get_destroy(f.get);
    f.tuning.window_bytes = 250;
    f.items[1].key_size = 0;
    assert_int_equal(
        store_get_create(f.holds, &f.tuning, NULL, f.items, 4, f.now + 500 * MS, &f.get), YOLK_OK);
    expect_start(&f);
    (void)script_place(&f.script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0);
    (void)script_place(&f.script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0);
    answer(&f, YOLK_OK, 1000);
    expect_start(&f);
    (void)script_place(&f.script, YOLK_OK, 0, 0, 0, 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_NOT_FOUND);
    assert_int_equal(f.items[1].result, YOLK_ERR_INVALID);
    assert_int_equal(f.items[3].result, 0);
    finish(&f);
}

static void malformed_answers(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 100, 500 * MS);
    expect_start(&f);
    answer(&f, YOLK_OK, 1000); /* no results at all */
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_PROTOCOL);
    finish(&f);
    begin(&f, 1, 100, 500 * MS);
    expect_start(&f);
    (void)script_place(&f.script, YOLK_OK, 100, 3, 1, 0);
    base_buf_clear(&f.script.replicas); /* and none of the replicas it names */
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_PROTOCOL);
    finish(&f);
}

/* Five items in windows of two; the first window's reads are under way and the second is asked
 * about. */
static void begin_ahead(struct fixture *f, uint64_t cookies[2])
{
    begin(f, 5, 100, 10000 * MS);
    store_get_destroy(f->get);
    f->tuning.window_keys = 2;
    assert_int_equal(
        store_get_create(f->holds, &f->tuning, NULL, f->items, 5, f->now + 10000 * MS, &f->get),
        YOLK_OK);
    expect_start(f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(script_place(&f->script, YOLK_OK, 60, 1, 10, 640), 0);
    answer(f, YOLK_OK, 1000);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(next(f), STORE_TRANSFER);
        assert_int_equal(f->action.item, i);
        cookies[i] = f->action.cookie;
    }
    expect_start(f);
    assert_int_equal(store_holds_live_count(f->holds), 2);
}

static void answer_ahead(struct fixture *f)
{
    assert_int_equal(script_place(&f->script, YOLK_OK, 70, 1, 11, 64), 0);
    assert_int_equal(script_place(&f->script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0), 0);
    answer(f, YOLK_OK, 1000);
}

static void end_reads(struct fixture *f, const uint64_t cookies[2])
{
    for (int i = 0; i < 2; i++)
        store_get_transferred(f->get, f->now, cookies[i], YOLK_OK);
}

/* The rest, from the second window's first read on. */
static void end_ahead(struct fixture *f)
{
    assert_int_equal(next(f), STORE_TRANSFER);
    assert_int_equal(f->action.item, 2);
    assert_int_equal(f->action.segment, 11);
    uint64_t cookie = f->action.cookie;
    expect_start(f); /* the third, of one item */
    store_get_transferred(f->get, f->now, cookie, YOLK_OK);
    assert_int_equal(next(f), STORE_WAIT);
    assert_int_equal(script_place(&f->script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0), 0);
    answer(f, YOLK_OK, 1000);
    assert_int_equal(next(f), STORE_DONE);
    const int64_t results[] = {60, 60, 70, YOLK_ERR_NOT_FOUND, YOLK_ERR_NOT_FOUND};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(f->items[i].result, results[i]);
    finish(f);
}

static void next_window_is_asked_about_ahead(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t cookies[2];
    begin_ahead(&f, cookies);
    answer_ahead(&f);
    assert_int_equal(next(&f), STORE_WAIT); /* its turn has not come */
    end_reads(&f, cookies);
    end_ahead(&f);
}

static void answer_ahead_is_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t cookies[2];
    begin_ahead(&f, cookies);
    end_reads(&f, cookies);
    assert_int_equal(next(&f), STORE_WAIT);
    answer_ahead(&f);
    end_ahead(&f);
}

/* What went wrong ahead is asked once more when its turn comes, and not before. */
static void ahead_in_vain(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct fixture f;
        uint64_t cookies[2];
        begin_ahead(&f, cookies);
        if (how == 0)
            answer(&f, YOLK_ERR_AGAIN, 1000); /* refused as a whole */
        else if (how == 1)
            store_get_link_lost(f.get, f.now);
        else
            answer_ahead(&f);
        assert_int_equal(next(&f), STORE_WAIT);
        if (how == 1)
            assert_int_equal(store_holds_live_count(f.holds), 1);
        if (how == 2)
            f.now += 500 * MS; /* half of the guard's time is over: it would not last */
        end_reads(&f, cookies);
        expect_start(&f);
        assert_int_equal(store_holds_live_count(f.holds), 1);
        answer_ahead(&f);
        end_ahead(&f);
    }
}

/* A failed read's key is not asked about again before it is time, also not ahead. */
static void ahead_waits_with_what_failed(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t cookies[2];
    begin_ahead(&f, cookies);
    answer_ahead(&f);
    store_get_transferred(f.get, f.now, cookies[0], YOLK_ERR_LINK);
    assert_int_equal(next(&f), STORE_WAIT);
    store_get_transferred(f.get, f.now, cookies[1], YOLK_OK);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.item, 2);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_OK);
    assert_int_equal(next(&f), STORE_WAIT);
    f.now = f.action.deadline_ns;
    expect_start(&f); /* the first and the fifth */
    assert_int_equal(script_place(&f.script, YOLK_OK, 60, 1, 10, 640), 0);
    assert_int_equal(script_place(&f.script, YOLK_ERR_NOT_FOUND, 0, 0, 0, 0), 0);
    answer(&f, YOLK_OK, 1000);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.item, 0);
    store_get_transferred(f.get, f.now, f.action.cookie, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 60);
    assert_int_equal(f.items[4].result, YOLK_ERR_NOT_FOUND);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_window_is_asked_about_ahead),
        cmocka_unit_test(answer_ahead_is_waited_for),
        cmocka_unit_test(ahead_in_vain),
        cmocka_unit_test(ahead_waits_with_what_failed),
        cmocka_unit_test(plain),
        cmocka_unit_test(next_replica_after_a_failure),
        cmocka_unit_test(asks_again_when_all_replicas_failed),
        cmocka_unit_test(guard_ran_out),
        cmocka_unit_test(guard_is_renewed),
        cmocka_unit_test(bad_bytes_of_a_disk),
        cmocka_unit_test(extent_unknown_to_its_owner),
        cmocka_unit_test(lost_answer_and_deadline),
        cmocka_unit_test(grant_of_an_earlier_epoch),
        cmocka_unit_test(windows_and_bad_keys),
        cmocka_unit_test(malformed_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
