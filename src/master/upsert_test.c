/* SPDX-License-Identifier: Apache-2.0 */
/* Upserts: what readers of the old and the new value see, and when an upsert is done. */
#include "master/features_kit.h"

enum { VALUE = 4096, SEGMENT = 16 * VALUE };

static struct kit kit;
static uint64_t owner, other;
static const struct wish upsert = {.flags = WIRE_PUT_UPSERT};

static int start(void **state)
{
    struct master_config config = {
        .lease_ttl_ms = 1000, .policy = &master_policy_lru, .session_ttl_ms = 5000};
    (void)kit_start(state, &kit, &config, SEGMENT, &owner, &other);
    return 0;
}

/* The place of a key's value, and its size. */
static struct wire_replica find(const char *key, uint64_t op, uint64_t *size)
{
    struct wire_replica at = {0};
    struct wire_get_start_reply reply;
    assert_int_equal(kit_get(&kit, 2, other, op, key, WIRE_GET_PIN, &at), YOLK_OK);
    assert_int_equal(wire_decode(WIRE_GET_START_REPLY, kit.reply.body, kit.reply.size, &reply),
                     YOLK_OK);
    *size = wire_result_at(reply.results, 0).size;
    return at;
}

static struct wire_replica begin(uint64_t op, const char *key, uint64_t size)
{
    struct wire_put_start_reply reply = kit_start_put(&kit, 2, other, op, key, size, &upsert);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_OK);
    return wire_replica_at(reply.replicas, 0);
}

static int end(uint64_t op, const char *key)
{
    return kit_keys_call(&kit, 2, other, op, WIRE_PUT_END, key);
}

static void of_a_missing_key_it_is_a_put(void **state)
{
    (void)state;
    uint64_t size;
    assert_int_equal(kit_wished(&kit, 2, other, "k", 100, &upsert), YOLK_OK);
    (void)find("k", 50, &size);
    assert_int_equal(size, 100);
    assert_int_equal(kit_stats(&kit).upserts, 0);
    assert_int_equal(kit_stats(&kit).objects, 1);
}

/* The old value is read until the new one is complete; its reader finishes afterwards, and only
 * then its space is free. */
static void readers_see_the_old_value_or_the_new_one(void **state)
{
    (void)state;
    uint64_t size;
    kit_store(&kit, 2, other, "k", 2 * VALUE);
    struct wire_replica old = find("k", 50, &size);
    struct wire_replica new = begin(60, "k", VALUE);
    assert_true(new.offset != old.offset);
    struct wire_replica now = find("k", 51, &size);
    assert_true(now.offset == old.offset && size == 2 * VALUE);
    assert_int_equal(end(60, "k"), YOLK_ERR_AGAIN); /* the owner has not heard of it yet */
    now = find("k", 52, &size);
    assert_true(now.offset == new.offset &&size == VALUE);
    kit_ack(&kit);
    assert_int_equal(end(60, "k"), YOLK_OK);
    assert_int_equal(end(60, "k"), YOLK_OK); /* as often as it is asked */
    assert_int_equal(kit_stats(&kit).upserts, 1);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 2 * VALUE); /* guarded by 50 and 51 */
    assert_int_equal(kit_beat(&kit, 2, other, 60), YOLK_OK);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
}

static void what_is_revoked_changes_nothing(void **state)
{
    (void)state;
    uint64_t size;
    kit_store(&kit, 2, other, "k", 100);
    (void)begin(60, "k", 200);
    assert_int_equal(kit_keys_call(&kit, 2, other, 60, WIRE_PUT_REVOKE, "k"), YOLK_OK);
    (void)find("k", 61, &size);
    assert_int_equal(size, 100);
    assert_int_equal(kit_stats(&kit).objects_open, 0);
}

static void what_runs_out_of_time_changes_nothing(void **state)
{
    (void)state;
    uint64_t size;
    kit_store(&kit, 2, other, "k", 100);
    (void)begin(60, "k", 200);
    kit_pass(&kit, 31000, owner, other);
    assert_int_equal(end(60, "k"), YOLK_ERR_TIMEOUT);
    (void)find("k", 61, &size);
    assert_int_equal(size, 100);
}

/* Of two at once the one that ends last stays. */
static void the_last_to_end_stays(void **state)
{
    (void)state;
    uint64_t size;
    (void)begin(60, "k", 100);
    (void)begin(61, "k", 200);
    assert_int_equal(end(61, "k"), YOLK_OK);
    kit_ack(&kit);
    assert_int_equal(end(60, "k"), YOLK_ERR_AGAIN);
    kit_ack(&kit);
    assert_int_equal(end(60, "k"), YOLK_OK);
    (void)find("k", 62, &size);
    assert_int_equal(size, 100);
    assert_int_equal(kit_stats(&kit).objects, 1);
}

/* A put that began before and is still being written is overtaken: it hears so at its end. */
static void a_put_under_way_is_overtaken(void **state)
{
    (void)state;
    uint64_t size;
    assert_int_equal(kit_put(&kit, 2, other, 60, "k", 100, NULL).status, YOLK_OK);
    (void)begin(61, "k", 200);
    assert_int_equal(end(61, "k"), YOLK_OK);
    assert_int_equal(end(60, "k"), YOLK_ERR_TIMEOUT);
    (void)find("k", 62, &size);
    assert_int_equal(size, 200);
    /* A put of a key that exists does not write, also after an upsert. */
    assert_int_equal(kit_put(&kit, 2, other, 63, "k", 300, NULL).status, YOLK_ERR_EXISTS);
}

/* Removed meanwhile: the upsert is the later one. */
static void a_remove_in_between_is_overtaken(void **state)
{
    (void)state;
    uint64_t size;
    kit_store(&kit, 2, other, "k", 100);
    (void)begin(60, "k", 200);
    assert_int_equal(kit_force_remove(&kit, 2, other, "k"), YOLK_OK);
    assert_false(kit_lists(&kit, 2, other, "k"));
    kit_ack(&kit);
    assert_int_equal(end(60, "k"), YOLK_OK);
    (void)find("k", 61, &size);
    assert_int_equal(size, 200);
}

/* An owner that does not answer is waited for until its session is over; what it offers to this
 * master afterwards is compared with what is there. */
static void a_silent_owner_is_waited_for(void **state)
{
    (void)state;
    uint64_t third = kit_open(&kit, 3, 1);
    kit_ack(&kit);
    kit_store(&kit, 2, other, "k", 100);
    (void)kit_mount(&kit, 3, third, SEGMENT);
    kit.push_count = 0;
    (void)begin(60, "k", 200);
    int status = end(60, "k");
    assert_int_equal(status, YOLK_ERR_AGAIN);
    kit.push_count = 0; /* lost */
    kit_pass(&kit, 2000, 0, other);
    kit.push_count = 0;
    assert_int_equal(end(60, "k"), YOLK_ERR_AGAIN);
    kit_pass(&kit, 4000, 0, other);
    kit.push_count = 0;
    assert_int_equal(end(60, "k"), YOLK_OK);
}

static void empty_values_replace_and_are_replaced(void **state)
{
    (void)state;
    uint64_t size;
    assert_int_equal(kit_wished(&kit, 2, other, "k", 0, &upsert), YOLK_OK);
    assert_int_equal(kit_wished(&kit, 2, other, "k", 100, &upsert), YOLK_OK);
    (void)find("k", 60, &size);
    assert_int_equal(size, 100);
    assert_int_equal(kit_wished(&kit, 2, other, "k", 0, &upsert), YOLK_OK);
    (void)find("k", 61, &size);
    assert_int_equal(size, 0);
    assert_int_equal(kit_stats(&kit).upserts, 2);
}

/* What an owner that is new to this master still has of a key is not a replica of its new value,
 * however well the sizes fit. */
static void an_old_value_that_is_offered_late_is_not_taken(void **state)
{
    (void)state;
    assert_int_equal(kit_wished(&kit, 2, other, "k", 100, &upsert), YOLK_OK);
    uint64_t third = kit_open(&kit, 3, 1);
    struct wire_segment_mount mount = {.request = {.session = third},
                                       .name = wire_view_text("late"),
                                       .size = SEGMENT,
                                       .generation = 0x500000001ull,
                                       .mirror_count = 1};
    struct wire_segment_mount_reply mounted;
    mount.prior_master[0] = 9;
    kit_call(&kit, 3, WIRE_SEGMENT_MOUNT, &mount, &mounted);
    assert_int_equal(mounted.status, YOLK_OK);
    struct base_buf keys, recs;
    (void)kit_keys(&keys, "k");
    base_buf_init(&recs, 4096);
    struct wire_offer rec = {0, 100, 0};
    assert_int_equal(wire_offer_append(&recs, &rec), YOLK_OK);
    struct wire_mirror_offer offer = {.request = {.session = third},
                                      .segment = mounted.segment,
                                      .keys = wire_view_buf(&keys),
                                      .recs = wire_view_buf(&recs),
                                      .last = 1};
    struct wire_mirror_offer_reply answer;
    kit_call(&kit, 3, WIRE_MIRROR_OFFER, &offer, &answer);
    assert_int_equal(answer.status, YOLK_OK);
    assert_int_equal(answer.accepted, 0);
    base_buf_free(&keys);
    base_buf_free(&recs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(of_a_missing_key_it_is_a_put),
        KIT_TEST(readers_see_the_old_value_or_the_new_one),
        KIT_TEST(what_is_revoked_changes_nothing),
        KIT_TEST(what_runs_out_of_time_changes_nothing),
        KIT_TEST(the_last_to_end_stays),
        KIT_TEST(a_put_under_way_is_overtaken),
        KIT_TEST(a_remove_in_between_is_overtaken),
        KIT_TEST(a_silent_owner_is_waited_for),
        KIT_TEST(empty_values_replace_and_are_replaced),
        KIT_TEST(an_old_value_that_is_offered_late_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
