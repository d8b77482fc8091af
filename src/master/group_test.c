/* SPDX-License-Identifier: Apache-2.0 */
/* Groups. A segment here holds sixteen values. */
#include "master/features_kit.h"

#include <stdio.h>

enum { VALUE = 4096, VALUES = 16, SEGMENT = VALUE * VALUES };

static struct kit kit;
static uint64_t owner, other;

static int start(void **state)
{
    struct master_config config = {.lease_ttl_ms = 1000,
                                   .policy = &master_policy_lru,
                                   .eviction_high_watermark_ratio = 1.0,
                                   .session_ttl_ms = 1000000,
                                   .tenants = "a=1GiB,b=1GiB"};
    (void)kit_start(state, &kit, &config, SEGMENT, &owner, &other);
    return 0;
}

static void put(const char *key, const char *group)
{
    struct wish wish = {.groups = group};
    assert_int_equal(kit_wait_put(&kit, 2, other, key, VALUE, &wish), YOLK_OK);
}

static int has(const char *key)
{
    return kit_lists(&kit, 2, other, key);
}

static void flood(int count)
{
    static int n;
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "flood%d", n++);
        put(key, NULL);
    }
}

/* Sixteen are there; the next put needs one place, and the group of the oldest goes as a whole. */
static void a_group_goes_together(void **state)
{
    (void)state;
    put("a1", "A");
    put("b1", "B");
    put("a2", "A");
    put("b2", "B");
    put("a3", "A");
    flood(11);
    assert_int_equal(kit_stats(&kit).objects, 16);
    flood(1);
    assert_false(has("a1") || has("a2") || has("a3"));
    assert_true(has("b1") && has("b2"));
    assert_int_equal(kit_stats(&kit).group_evictions, 2);
    assert_int_equal(kit_stats(&kit).evictions, 3);
}

/* One member that is leased or read keeps them all, while others can go. */
static void a_lease_on_one_keeps_all(void **state)
{
    (void)state;
    put("a1", "A");
    put("a2", "A");
    put("a3", "A");
    flood(13);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a3"), YOLK_OK);
    flood(20);
    assert_true(has("a1") && has("a2") && has("a3"));
    assert_true(kit_stats(&kit).group_withheld > 0);
    kit_pass(&kit, 2000, owner, other); /* the lease is over */
    flood(40);
    assert_false(has("a1") || has("a2") || has("a3"));
}

static void a_reader_of_one_keeps_all(void **state)
{
    (void)state;
    put("a1", "A");
    put("a2", "A");
    flood(14);
    assert_int_equal(kit_get(&kit, 2, other, 900, "a2", WIRE_GET_PIN, NULL), YOLK_OK);
    kit_pass(&kit, 5000, owner, other); /* the nominal lease ends, the pin does not */
    flood(40);
    assert_true(has("a1") && has("a2"));
    assert_int_equal(kit_beat(&kit, 2, other, 901), YOLK_OK); /* the pin ends */
    kit.op = 1000;
    kit_ack(&kit);
    flood(60);
    assert_false(has("a1") || has("a2"));
}

/* Leases alone do not fill a pool for ever. */
static void c05_leased_groups_alone_do_not_pin_the_pool(void **state)
{
    (void)state;
    char key[16], group[16];
    for (int i = 0; i < VALUES; i++) {
        snprintf(key, sizeof key, "k%d", i);
        snprintf(group, sizeof group, "g%d", i / 2);
        put(key, group);
    }
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < VALUES; i++) {
            snprintf(key, sizeof key, "k%d", i);
            (void)kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, key);
        }
        snprintf(key, sizeof key, "new%d", round);
        put(key, NULL);
    }
}

static void remove_takes_one_and_respects_the_lease_of_all(void **state)
{
    (void)state;
    put("a1", "A");
    put("a2", "A");
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a1"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_REMOVE, "a2"), YOLK_ERR_HAS_LEASE);
    assert_int_equal(kit_force_remove(&kit, 2, other, "a2"), YOLK_OK);
    assert_true(has("a1"));
    assert_false(has("a2"));
}

/* The first put decides: an upsert with another group, or without, stays in it. */
static void membership_lasts_over_an_upsert(void **state)
{
    (void)state;
    put("a1", "A");
    put("a2", "A");
    struct wish upsert = {.flags = WIRE_PUT_UPSERT, .groups = "B"};
    assert_int_equal(kit_wait_put(&kit, 2, other, "a2", VALUE, &upsert), YOLK_OK);
    flood(14);
    flood(1); /* a1 is the oldest */
    assert_false(has("a1") || has("a2"));
}

static void a_hard_pin_stays_when_its_group_goes(void **state)
{
    (void)state;
    put("a1", "A");
    struct wish pinned = {.flags = WIRE_PUT_HARD_PIN, .groups = "A"};
    assert_int_equal(kit_wait_put(&kit, 2, other, "a2", VALUE, &pinned), YOLK_OK);
    put("a3", "A");
    flood(14);
    assert_false(has("a1") || has("a3"));
    assert_true(has("a2"));
}

static void groups_of_two_tenants_are_two(void **state)
{
    (void)state;
    uint64_t a = kit_open_tenant(&kit, 5, "a").session, b = kit_open_tenant(&kit, 6, "b").session;
    struct wish wish = {.groups = "G"};
    assert_int_equal(kit_wait_put(&kit, 5, a,
                                  "\xff\x01"
                                  "ak",
                                  VALUE, &wish),
                     YOLK_OK);
    assert_int_equal(kit_wait_put(&kit, 6, b,
                                  "\xff\x01"
                                  "bk",
                                  VALUE, &wish),
                     YOLK_OK);
    put("k", "G");
    flood(14); /* the seventeenth: the oldest goes, alone */
    assert_int_equal(kit_stats(&kit).evictions, 1);
    assert_false(kit_lists(&kit, 5, a,
                           "\xff\x01"
                           "ak"));
    assert_true(kit_lists(&kit, 6, b,
                          "\xff\x01"
                          "bk"));
    assert_true(has("k"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(a_group_goes_together),
        KIT_TEST(a_lease_on_one_keeps_all),
        KIT_TEST(a_reader_of_one_keeps_all),
        KIT_TEST(c05_leased_groups_alone_do_not_pin_the_pool),
        KIT_TEST(remove_takes_one_and_respects_the_lease_of_all),
        KIT_TEST(membership_lasts_over_an_upsert),
        KIT_TEST(a_hard_pin_stays_when_its_group_goes),
        KIT_TEST(groups_of_two_tenants_are_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
