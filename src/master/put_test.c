/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "master/test_kit.h"

static struct kit kit;
static uint64_t owner, writer, segment;

static int start(void **state)
{
    segment = kit_start(state, &kit, NULL, 4096, &owner, &writer);
    return 0;
}

static void appears_at_its_end_only(void **state)
{
    (void)state;
    struct wire_replica put, got;
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 100, &put).status, YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 0, WIRE_EXIST, "a"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_get(&kit, 2, writer, 2, "a", 0, NULL), YOLK_ERR_NOT_READY);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "a", 100, NULL).status, YOLK_ERR_EXISTS);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_END, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_END, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_REVOKE, "a"), YOLK_ERR_EXISTS);
    assert_int_equal(kit_get(&kit, 2, writer, 3, "a", 0, &got), YOLK_OK);
    assert_int_equal(got.offset, put.offset);
    assert_int_equal(got.segment, put.segment);
    assert_int_equal(kit_put(&kit, 1, owner, 2, "a", 100, NULL).status, YOLK_ERR_EXISTS);
}

static void a_repeated_start_gets_the_same_place(void **state)
{
    (void)state;
    struct wire_replica one, two;
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 100, &one).status, YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 100, &two).status, YOLK_OK);
    assert_int_equal(one.offset, two.offset);
    assert_int_equal(kit_stats(&kit).open_bytes, 128);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 101, NULL).status, YOLK_ERR_INVALID);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_REVOKE, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_REVOKE, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_END, "a"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).extents, 0); /* never told to anybody: free at once */
}

/* Many keys of one operation are found in whatever order they come again. */
static void many_keys_of_an_operation_are_told_apart(void **state)
{
    (void)state;
    enum { KEYS = 30, STEP = 17 }; /* without a common divisor */
    struct wire_replica first[KEYS], again;
    char key[16];
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(kit_put(&kit, 2, writer, 1, key, 64, &first[i]).status, YOLK_OK);
    }
    for (uint32_t i = 0, k = 0; i < KEYS; i++, k = (k + STEP) % KEYS) {
        snprintf(key, sizeof key, "k%u", k);
        assert_int_equal(kit_put(&kit, 2, writer, 1, key, 64, &again).status, YOLK_OK);
        assert_int_equal(again.offset, first[k].offset);
    }
    for (uint32_t i = KEYS; i-- > 0;) {
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(
            kit_keys_call(&kit, 2, writer, 1, i % 2 ? WIRE_PUT_END : WIRE_PUT_REVOKE, key),
            YOLK_OK);
    }
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_END, "k30"), YOLK_ERR_NOT_FOUND);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(kit_keys_call(&kit, 2, writer, 0, WIRE_EXIST, key),
                         i % 2 ? YOLK_OK : YOLK_ERR_NOT_FOUND);
    }
}

static void empty_values_need_no_space(void **state)
{
    (void)state;
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 0, NULL).replica_count, 0);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 1, WIRE_PUT_END, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 0, WIRE_EXIST, "a"), YOLK_OK);
    assert_int_equal(kit_get(&kit, 2, writer, 2, "a", 0, NULL), YOLK_OK);
    assert_int_equal(kit_stats(&kit).extents, 0);
}

static void a_timeout_frees_the_key_but_not_the_space(void **state)
{
    (void)state;
    struct wire_replica first, second;
    struct wire_put_expired msg;
    assert_int_equal(kit_put(&kit, 2, writer, 7, "a", 100, &first).status, YOLK_OK);
    kit_pass(&kit, 31000, owner, writer);
    assert_int_equal(kit_stats(&kit).put_timeouts, 1);
    const struct kit_frame *push = kit_pushed(&kit, WIRE_PUT_EXPIRED);
    assert_non_null(push);
    assert_int_equal(wire_decode(WIRE_PUT_EXPIRED, push->body, push->size, &msg), YOLK_OK);
    assert_int_equal(msg.op, 7);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 128);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "a", 100, &second).status, YOLK_OK);
    assert_int_not_equal(first.offset, second.offset);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 7, WIRE_PUT_END, "a"), YOLK_ERR_TIMEOUT);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
}

static void the_floor_ends_what_is_below(void **state)
{
    (void)state;
    assert_int_equal(kit_put(&kit, 2, writer, 5, "a", 100, NULL).status, YOLK_OK);
    assert_int_equal(kit_beat(&kit, 2, writer, 6), YOLK_OK);
    assert_int_equal(kit_stats(&kit).extents, 0);
    assert_int_equal(kit_stats(&kit).ops, 0);
    assert_int_equal(kit_get(&kit, 2, writer, 5, "a", 0, NULL), YOLK_ERR_STALE);
}

static void one_writer_may_not_hold_everything(void **state)
{
    (void)state;
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 2048, NULL).status, YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, writer, 2, "b", 64, NULL).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "b", 64, NULL).status, YOLK_OK);
}

static void what_fits_nowhere_is_refused_at_once(void **state)
{
    (void)state;
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 4097, NULL).status, YOLK_ERR_TOO_LARGE);
    assert_int_equal(kit_stats(&kit).ops, 0);
    /* It is for this key only, and not for one that is merely out of room. */
    assert_int_equal(kit_put(&kit, 1, owner, 1, "b", 4096, NULL).status, YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 4097, NULL).status, YOLK_ERR_TOO_LARGE);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 4096, NULL).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_stats(&kit).put_no_space, 1);
    /* A larger segment comes: also before it may be placed in. */
    uint64_t other = kit_open(&kit, 3, 1);
    kit_ack(&kit);
    (void)kit_mount(&kit, 3, other, 8192);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 4097, NULL).status, YOLK_ERR_NO_SPACE);
    kit_ack(&kit);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 4097, NULL).status, YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, writer, 2, "c", 8193, NULL).status, YOLK_ERR_TOO_LARGE);
}

static void without_a_segment_one_may_come(void **state)
{
    (void)state;
    struct wire_segment_unmount msg = {.request = {.session = owner}, .segment = segment};
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &msg);
    assert_int_equal(kit_put(&kit, 2, writer, 1, "a", 4097, NULL).status, YOLK_ERR_NO_SPACE);
}

/* A transfer failed: where it was to go gets nothing before its owner is heard of again, unless
 * there is no other segment. */
static void a_failed_put_goes_elsewhere(void **state)
{
    (void)state;
    struct wire_replica at;
    uint64_t other = kit_open(&kit, 3, 1);
    uint64_t own = kit_mount(&kit, 3, other, 4096);
    kit_ack(&kit);
    do {
        uint64_t op = ++kit.op;
        assert_int_equal(kit_put(&kit, 2, writer, op, "a", 64, &at).status, YOLK_OK);
        assert_int_equal(kit_keys_call(&kit, 2, writer, op, WIRE_PUT_REVOKE, "a"), YOLK_OK);
        kit.now++;
        assert_int_equal(kit_beat(&kit, 1, owner, 0), YOLK_OK);
    } while (at.segment != own);
    for (int i = 0; i < 30; i++) {
        uint64_t op = ++kit.op;
        assert_int_equal(kit_put(&kit, 2, writer, op, "b", 64, &at).status, YOLK_OK);
        assert_int_not_equal(at.segment, own);
        assert_int_equal(kit_keys_call(&kit, 2, writer, op, WIRE_PUT_END, "b"), YOLK_OK);
        assert_int_equal(kit_force_remove(&kit, 2, writer, "b"), YOLK_OK);
        kit_ack(&kit);
    }
    kit.now++;
    assert_int_equal(kit_beat(&kit, 3, other, 0), YOLK_OK);
    int back = 0;
    for (int i = 0; i < 60 && !back; i++) {
        uint64_t op = ++kit.op;
        assert_int_equal(kit_put(&kit, 2, writer, op, "c", 64, &at).status, YOLK_OK);
        back = at.segment == own;
        assert_int_equal(kit_keys_call(&kit, 2, writer, op, WIRE_PUT_END, "c"), YOLK_OK);
        assert_int_equal(kit_force_remove(&kit, 2, writer, "c"), YOLK_OK);
        kit_ack(&kit);
    }
    assert_true(back);
    assert_int_equal(kit_put(&kit, 2, writer, 900, "a", 64, &at).status, YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, writer, 900, WIRE_PUT_REVOKE, "a"), YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, writer, 901, "a", 64, &at).status, YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(appears_at_its_end_only),
        KIT_TEST(a_repeated_start_gets_the_same_place),
        KIT_TEST(many_keys_of_an_operation_are_told_apart),
        KIT_TEST(empty_values_need_no_space),
        KIT_TEST(a_timeout_frees_the_key_but_not_the_space),
        KIT_TEST(the_floor_ends_what_is_below),
        KIT_TEST(one_writer_may_not_hold_everything),
        KIT_TEST(what_fits_nowhere_is_refused_at_once),
        KIT_TEST(without_a_segment_one_may_come),
        KIT_TEST(a_failed_put_goes_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
