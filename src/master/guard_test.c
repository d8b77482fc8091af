/* SPDX-License-Identifier: Apache-2.0 */
/* Guards, pins, leases, and what eviction may take. */
#include "master/test_kit.h"

static struct kit kit;
static uint64_t owner, reader;

static int start(void **state)
{
    (void)kit_start(state, &kit, NULL, 4096, &owner, &reader);
    return 0;
}

static void guarded_space_is_not_reused(void **state)
{
    (void)state;
    kit_store(&kit, 1, owner, "a", 4096);
    assert_int_equal(kit_get(&kit, 2, reader, 1, "a", 0, NULL), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "a"), YOLK_ERR_HAS_LEASE);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "a"), YOLK_OK);
    kit_ack(&kit);
    assert_int_equal(kit_put(&kit, 1, owner, 90, "b", 4096, NULL).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_beat(&kit, 2, reader, 2), YOLK_OK);
    assert_int_equal(kit_put(&kit, 1, owner, 90, "b", 4096, NULL).status, YOLK_OK);
}

static void nor_before_the_owner_knows(void **state)
{
    (void)state;
    kit_store(&kit, 1, owner, "a", 4096);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "a"), YOLK_OK);
    assert_int_equal(kit_put(&kit, 1, owner, 90, "b", 4096, NULL).status, YOLK_ERR_NO_SPACE);
    kit_ack(&kit);
    assert_int_equal(kit_put(&kit, 1, owner, 90, "b", 4096, NULL).status, YOLK_OK);
}

static void a_guard_ends_by_time_a_pin_does_not(void **state)
{
    (void)state;
    kit_store(&kit, 1, owner, "a", 64);
    assert_int_equal(kit_get(&kit, 2, reader, 1, "a", 0, NULL), YOLK_OK);
    assert_int_equal(kit_get(&kit, 2, reader, 2, "a", WIRE_GET_PIN, NULL), YOLK_OK);
    assert_int_equal(kit_stats(&kit).guards, 2);
    kit_pass(&kit, 9000, owner, reader);
    struct wire_renew renew = {.request = {.session = reader}};
    struct wire_renew_reply reply;
    uint8_t ops[8];
    wire_set_u64(ops, 1);
    renew.ops = wire_view_of(ops, 8);
    kit_call(&kit, 2, WIRE_RENEW, &renew, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    kit_pass(&kit, 9000, owner, reader);
    assert_int_equal(kit_stats(&kit).guards, 2);
    kit_pass(&kit, 2000, owner, reader);
    assert_int_equal(kit_stats(&kit).guards, 1);
    kit_call(&kit, 2, WIRE_RENEW, &renew, &reply);
    assert_int_equal(reply.status, YOLK_ERR_LEASE_EXPIRED);
    struct wire_plain_request done = {.request = {.session = reader}};
    struct wire_status_reply beat;
    wire_set_u64(ops, 2);
    done.request.done = wire_view_of(ops, 8);
    kit_call(&kit, 2, WIRE_HEARTBEAT, &done, &beat);
    assert_int_equal(kit_stats(&kit).guards, 0);
}

static void eviction_takes_the_oldest_and_skips_guards(void **state)
{
    (void)state;
    kit_store(&kit, 1, owner, "a", 1024);
    kit_store(&kit, 1, owner, "b", 1024);
    kit_store(&kit, 1, owner, "c", 1024);
    kit_store(&kit, 1, owner, "d", 1024);
    assert_int_equal(kit_get(&kit, 2, reader, 1, "a", 0, NULL), YOLK_OK);
    kit_tick(&kit, 0); /* over the watermark */
    assert_int_equal(kit_stats(&kit).evictions, 1);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "b"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_get(&kit, 2, reader, 2, "b", 0, NULL), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).miss_evicted, 1);
    assert_int_equal(kit_get(&kit, 2, reader, 2, "x", 0, NULL), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).miss_never_stored, 1);
}

static void probes_protect_half_at_most(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        if (i < 3)
            kit_store(&kit, 1, owner, names[i], 1024);
        else
            assert_int_equal(kit_put(&kit, 1, owner, 99, names[i], 1024, NULL).status, YOLK_OK);
        if (i < 3)
            assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, names[i]), YOLK_OK);
    }
    /* All three are leased by probes, 3072 of 4096 bytes: one is doomed, then half is left alone.
     */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_put(&kit, 2, reader, 5, "e", 1024, NULL).status,
                         i == 0 ? YOLK_ERR_NO_SPACE : YOLK_OK);
        kit_ack(&kit);
    }
    kit_tick(&kit, 0);
    assert_int_equal(kit_stats(&kit).doomed, 1);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "a"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "b"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "c"), YOLK_OK);
}

static void a_probe_does_not_extend_a_lease_in_force(void **state)
{
    (void)state;
    kit_store(&kit, 1, owner, "a", 64);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "a"), YOLK_OK);
    kit_pass(&kit, 6000, owner, reader);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "a"), YOLK_ERR_HAS_LEASE);
    kit_pass(&kit, 4000, owner, reader);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "a"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "a"), YOLK_ERR_NOT_FOUND);
}

static void a_peek_leaves_no_trace(void **state)
{
    (void)state;
    struct wire_replica at = {.offset = 1};
    kit_store(&kit, 1, owner, "a", 1024);
    kit_store(&kit, 1, owner, "b", 1024);
    kit_store(&kit, 1, owner, "c", 1024);
    kit_store(&kit, 1, owner, "d", 1024);
    struct master_stats before = kit_stats(&kit);
    assert_int_equal(kit_get(&kit, 2, reader, 1, "a", WIRE_GET_PEEK, &at), YOLK_OK);
    assert_int_equal(at.offset, 0);
    assert_int_equal(kit_get(&kit, 2, reader, 1, "x", WIRE_GET_PEEK, NULL), YOLK_ERR_NOT_FOUND);
    struct master_stats after = kit_stats(&kit);
    assert_int_equal(after.get_hits, before.get_hits);
    assert_int_equal(after.miss_never_stored, before.miss_never_stored);
    assert_int_equal(after.guards, 0);
    assert_int_equal(after.ops, before.ops);
    /* "a" is still the oldest, and goes for the put. */
    assert_int_equal(kit_put(&kit, 1, owner, 99, "y", 64, NULL).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "a"), YOLK_ERR_NOT_FOUND);
    /* No lease. */
    assert_int_equal(kit_get(&kit, 2, reader, 1, "b", WIRE_GET_PEEK, NULL), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "b"), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(guarded_space_is_not_reused),
        KIT_TEST(nor_before_the_owner_knows),
        KIT_TEST(a_guard_ends_by_time_a_pin_does_not),
        KIT_TEST(eviction_takes_the_oldest_and_skips_guards),
        KIT_TEST(probes_protect_half_at_most),
        KIT_TEST(a_probe_does_not_extend_a_lease_in_force),
        KIT_TEST(a_peek_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
