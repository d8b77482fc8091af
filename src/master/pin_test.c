/* SPDX-License-Identifier: Apache-2.0 */
/* Pins and preferred segments. A segment here holds sixteen values. */
#include "master/features_kit.h"

#include <stdio.h>

enum { VALUE = 4096, VALUES = 16, SEGMENT = VALUE * VALUES };

static struct kit kit;
static uint64_t owner, other;
static const struct wish plain = {.flags = 0};
static const struct wish soft = {.soft_pin = 1, .ttl_ms = UINT64_MAX};
static const struct wish hard = {.flags = WIRE_PUT_HARD_PIN};

static int start(void **state)
{
    struct master_config config = {.lease_ttl_ms = 1000,
                                   .policy = &master_policy_lru,
                                   .eviction_high_watermark_ratio = 1.0,
                                   .soft_pin_ttl_ms = 60000,
                                   .session_ttl_ms = 1000000};
    (void)kit_start(state, &kit, &config, SEGMENT, &owner, &other);
    return 0;
}

static void put(const char *key, const struct wish *wish)
{
    assert_int_equal(kit_wait_put(&kit, 2, other, key, VALUE, wish), YOLK_OK);
}

/* So many puts, each of which needs the place of another one when the segment is full. */
static void flood(int count)
{
    static int n;
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "flood%d", n++);
        put(key, &plain);
    }
}

static int has(const char *key)
{
    return kit_lists(&kit, 2, other, key);
}

static void c04_soft_pins_go_last(void **state)
{
    (void)state;
    put("s1", &soft);
    put("s2", &soft);
    put("plain", &plain);
    assert_int_equal(kit_stats(&kit).soft_pins, 2);
    flood(64);
    assert_true(has("s1") && has("s2"));
    assert_false(has("plain"));
    assert_int_equal(kit_stats(&kit).soft_evictions, 0);
}

/* Nothing else can go: they are no promise, only an order. */
static void with_nothing_else_soft_pins_go(void **state)
{
    (void)state;
    char key[16];
    for (int i = 0; i < VALUES; i++) {
        snprintf(key, sizeof key, "s%d", i);
        put(key, &soft);
    }
    put("more", &plain);
    assert_true(has("more"));
    assert_false(has("s0")); /* the oldest */
    assert_true(has("s15"));
    assert_true(kit_stats(&kit).soft_evictions >= 1);
    assert_int_equal(kit_stats(&kit).soft_pins, VALUES - 1);
}

static void a_soft_pin_ends_by_time_and_reads_do_not_extend_it(void **state)
{
    (void)state;
    put("default", &soft);
    put("short", &(struct wish){.soft_pin = 1, .ttl_ms = 5000});
    put("none", &(struct wish){.soft_pin = 1, .ttl_ms = 0});
    assert_int_equal(kit_stats(&kit).soft_pins, 2);
    kit_pass(&kit, 4500, owner, other);
    assert_int_equal(kit_get(&kit, 2, other, 900, "short", 0, NULL), YOLK_OK);
    kit_pass(&kit, 1000, owner, other);
    assert_int_equal(kit_stats(&kit).soft_pins, 1);
    kit_pass(&kit, 20000, owner, other); /* its guard and lease end too */
    flood(40);
    assert_true(has("default"));
    assert_false(has("short"));
    assert_false(has("none"));
    kit_pass(&kit, 60000, owner, other);
    assert_int_equal(kit_stats(&kit).soft_pins, 0);
    flood(40);
    assert_false(has("default"));
}

static void hard_pins_stay_and_are_bounded(void **state)
{
    (void)state;
    char key[16];
    for (int i = 0; i < VALUES / 2; i++) {
        snprintf(key, sizeof key, "h%d", i);
        put(key, &hard);
    }
    assert_int_equal(kit_stats(&kit).hard_bytes, SEGMENT / 2);
    assert_int_equal(kit_wish(&kit, 2, other, 700, "h8", VALUE, &hard), YOLK_ERR_PIN_LIMIT);
    assert_int_equal(kit_stats(&kit).put_pin_limit, 1);
    /* In place of a pinned value another one is let in, one at a time, though both are there for a
     * moment; a larger one is not. */
    struct wish upsert = {.flags = WIRE_PUT_UPSERT};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_wish(&kit, 2, other, 701, "h1", 2 * VALUE, &upsert),
                         YOLK_ERR_PIN_LIMIT);
        assert_int_equal(kit_wish(&kit, 2, other, 702 + 2 * (uint64_t)i, "h1", VALUE, &upsert),
                         YOLK_OK);
        assert_int_equal(kit_wish(&kit, 2, other, 703 + 2 * (uint64_t)i, "h2", VALUE, &upsert),
                         YOLK_ERR_PIN_LIMIT);
        assert_int_equal(kit_keys_call(&kit, 2, other, 702 + 2 * (uint64_t)i, WIRE_PUT_END, "h1"),
                         YOLK_ERR_AGAIN);
        kit_ack(&kit);
        assert_int_equal(kit_keys_call(&kit, 2, other, 702 + 2 * (uint64_t)i, WIRE_PUT_END, "h1"),
                         YOLK_OK);
        kit_ack(&kit);
        assert_int_equal(kit_stats(&kit).hard_bytes, SEGMENT / 2);
    }
    flood(100);
    for (int i = 0; i < VALUES / 2; i++) {
        snprintf(key, sizeof key, "h%d", i);
        assert_true(has(key));
    }
    /* Only remove ends them; that makes room for another one. */
    assert_int_equal(kit_force_remove(&kit, 2, other, "h3"), YOLK_OK);
    kit_ack(&kit);
    put("h8", &hard);
    assert_int_equal(kit_stats(&kit).hard_bytes, SEGMENT / 2);
    struct wire_remove_all all = {.request = {.session = other, .op = 800}, .force = 1};
    struct wire_remove_all_reply reply;
    kit_call(&kit, 2, WIRE_REMOVE_ALL, &all, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(kit_stats(&kit).hard_bytes, 0);
    kit_ack(&kit);
}

/* An upsert of a hard-pinned key is hard-pinned, whatever it asks; a soft pin is kept, set anew or
 * taken away. */
static void pins_over_an_upsert(void **state)
{
    (void)state;
    struct wish upsert = {.flags = WIRE_PUT_UPSERT};
    put("h", &hard);
    put("kept", &soft);
    put("cleared", &soft);
    put("set", &plain);
    put("h", &upsert);
    put("kept", &upsert);
    put("cleared", &(struct wish){.flags = WIRE_PUT_UPSERT, .soft_pin = 2});
    put("set", &(struct wish){.flags = WIRE_PUT_UPSERT, .soft_pin = 1, .ttl_ms = UINT64_MAX});
    assert_int_equal(kit_stats(&kit).hard_bytes, VALUE);
    assert_int_equal(kit_stats(&kit).soft_pins, 2);
    flood(64);
    assert_true(has("h") && has("kept") && has("set"));
    assert_false(has("cleared"));
}

/* The owner tells the next master of hard pins. */
static void hard_pins_outlive_the_master(void **state)
{
    (void)state;
    struct wire_replica at;
    struct wire_facts facts;
    assert_int_equal(kit_wish(&kit, 2, other, 5, "h", VALUE, &hard), YOLK_OK);
    struct wire_put_start_reply start_reply;
    assert_int_equal(wire_decode(kit.reply.kind, kit.reply.body, kit.reply.size, &start_reply),
                     YOLK_OK);
    at = wire_replica_at(start_reply.replicas, 0);
    assert_int_equal(kit_keys_call(&kit, 2, other, 5, WIRE_PUT_END, "h"), YOLK_OK);
    const struct kit_frame *pushed = kit_pushed(&kit, WIRE_FACTS);
    assert_non_null(pushed);
    assert_int_equal(wire_decode(WIRE_FACTS, pushed->body, pushed->size, &facts), YOLK_OK);
    struct wire_fact fact = wire_fact_at(facts.recs, wire_fact_count(facts.recs) - 1);
    assert_int_equal(fact.kind, WIRE_FACT_PLACED);
    assert_int_equal(fact.session, WIRE_FACT_HARD_PIN);
    kit_ack(&kit);

    uint8_t before[WIRE_ID_SIZE];
    memcpy(before, master_core_instance(kit.core), WIRE_ID_SIZE);
    struct master_config config = {.policy = &master_policy_lru, .session_ttl_ms = 1000000};
    kit_new_core(&kit, &config, 77);
    owner = kit_open(&kit, 1, 2);
    struct wire_segment_mount mount = {.request = {.session = owner},
                                       .name = wire_view_text("s"),
                                       .size = SEGMENT,
                                       .generation = at.segment,
                                       .mirror_count = 1};
    struct wire_segment_mount_reply mounted;
    memcpy(mount.prior_master, before, WIRE_ID_SIZE);
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &mount, &mounted);
    assert_int_equal(mounted.status, YOLK_OK);
    struct base_buf keys, recs, pinned;
    (void)kit_keys(&keys, "h");
    base_buf_init(&recs, 4096);
    base_buf_init(&pinned, 4096);
    struct wire_offer rec = {at.offset, VALUE, 0};
    assert_int_equal(wire_offer_append(&recs, &rec), YOLK_OK);
    assert_int_equal(wire_u32s_append(&pinned, 0), YOLK_OK);
    struct wire_mirror_offer offer = {.request = {.session = owner},
                                      .segment = mounted.segment,
                                      .keys = wire_view_buf(&keys),
                                      .recs = wire_view_buf(&recs),
                                      .pinned = wire_view_buf(&pinned),
                                      .last = 1};
    struct wire_mirror_offer_reply answer;
    kit_call(&kit, 1, WIRE_MIRROR_OFFER, &offer, &answer);
    assert_int_equal(answer.accepted, 1);
    base_buf_free(&keys);
    base_buf_free(&recs);
    base_buf_free(&pinned);
    assert_int_equal(kit_stats(&kit).hard_bytes, VALUE);
}

static uint64_t mount_named(uint64_t connection, uint64_t session, const char *name)
{
    struct wire_segment_mount msg = {
        .request = {.session = session}, .name = wire_view_text(name), .size = SEGMENT};
    struct wire_segment_mount_reply reply;
    kit_call(&kit, connection, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    kit_ack(&kit);
    return reply.segment;
}

static uint64_t placed(const char *key, const struct wish *wish, uint32_t which)
{
    struct wire_put_start_reply reply = kit_start_put(&kit, 2, other, ++kit.op, key, VALUE, wish);
    assert_int_equal(wire_result_at(reply.results, which).status, YOLK_OK);
    struct wire_result result = wire_result_at(reply.results, which);
    uint64_t segment = wire_replica_at(reply.replicas, result.first).segment;
    assert_int_equal(kit_keys_call(&kit, 2, other, kit.op, WIRE_PUT_END, key), YOLK_OK);
    kit_ack(&kit);
    return segment;
}

static void preferred_segments_are_tried_in_order(void **state)
{
    (void)state;
    uint64_t a = mount_named(3, kit_open(&kit, 3, 1), "host:1");
    uint64_t b = mount_named(4, kit_open(&kit, 4, 1), "host:2");
    char key[16];
    for (int i = 0; i < VALUES; i++) {
        snprintf(key, sizeof key, "a%d", i);
        assert_int_equal(placed(key, &(struct wish){.preferred = "host:1 host:2"}, 0), a);
    }
    assert_int_equal(kit_stats(&kit).put_not_preferred, 0);
    for (int i = 0; i < VALUES; i++) {
        snprintf(key, sizeof key, "b%d", i);
        assert_int_equal(placed(key, &(struct wish){.preferred = "host:1 host:2"}, 0), b);
    }
    /* Both are full: elsewhere, and counted. So is a name that nobody has. */
    uint32_t elsewhere = 0;
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "c%d", i);
        uint64_t third = placed(key, &(struct wish){.preferred = "host:1 host:2"}, 0);
        elsewhere += third != a && third != b;
    }
    assert_true(elsewhere > 0); /* a full one may give up something for it, too */
    assert_int_equal(kit_stats(&kit).put_not_preferred, elsewhere);
    (void)placed("d", &(struct wish){.preferred = "nobody"}, 0);
    assert_int_equal(kit_stats(&kit).put_not_preferred, elsewhere + 1);
}

static void replicas_never_share_a_segment(void **state)
{
    (void)state;
    uint64_t a = mount_named(3, kit_open(&kit, 3, 1), "host:1");
    for (int i = 0; i < 8; i++) {
        char key[16];
        snprintf(key, sizeof key, "r%d", i);
        struct wire_put_start_reply reply =
            kit_start_put(&kit, 2, other, ++kit.op, key, VALUE,
                          &(struct wish){.preferred = "host:1", .replica_num = 2});
        assert_int_equal(wire_replica_count(reply.replicas), 2);
        assert_int_equal(wire_replica_at(reply.replicas, 0).segment, a);
        assert_true(wire_replica_at(reply.replicas, 1).segment != a);
    }
}

static int two_copies(const char *key, uint32_t flags, uint32_t *copies)
{
    struct wire_put_start_reply reply = kit_start_put(
        &kit, 2, other, ++kit.op, key, VALUE, &(struct wish){.flags = flags, .replica_num = 2});
    struct wire_result result = wire_result_at(reply.results, 0);
    *copies = result.replica_count;
    return result.status;
}

/* A node is not placed in before its owner has said that it knows of all sessions: a put that came
 * just then had one copy. Who would rather wait hears so, and nothing is kept for it meanwhile. */
static void fewer_copies_are_not_made_when_more_come_soon(void **state)
{
    (void)state;
    uint32_t copies;
    uint64_t third = kit_open(&kit, 3, 1);
    kit_ack(&kit);
    (void)kit_mount(&kit, 3, third, SEGMENT);
    assert_int_equal(two_copies("k", WIRE_PUT_ALL_COPIES, &copies), YOLK_ERR_AGAIN);
    assert_int_equal(kit_stats(&kit).extents, 0);
    assert_int_equal(kit_stats(&kit).put_short, 0);
    assert_int_equal(two_copies("old", 0, &copies), YOLK_OK); /* who does not ask so */
    assert_int_equal(copies, 1);
    assert_int_equal(kit_stats(&kit).put_short, 1);
    kit_ack(&kit);
    assert_int_equal(two_copies("k", WIRE_PUT_ALL_COPIES, &copies), YOLK_OK);
    assert_int_equal(copies, 2);
    assert_int_equal(kit_stats(&kit).put_short, 1);
}

/* Where no more are to come nothing is waited for. */
static void fewer_copies_are_made_when_there_are_no_more(void **state)
{
    (void)state;
    uint32_t copies;
    assert_int_equal(two_copies("k", WIRE_PUT_ALL_COPIES, &copies), YOLK_OK);
    assert_int_equal(copies, 1);
}

static void same_segment_follows_the_first_key(void **state)
{
    (void)state;
    (void)mount_named(3, kit_open(&kit, 3, 1), "host:1");
    (void)mount_named(4, kit_open(&kit, 4, 1), "host:2");
    for (int round = 0; round < 4; round++) {
        char keys[64];
        snprintf(keys, sizeof keys, "p%d q%d r%d", round, round, round);
        struct wire_put_start_reply reply = kit_start_put(
            &kit, 2, other, ++kit.op, keys, VALUE, &(struct wish){.flags = WIRE_PUT_SAME_SEGMENT});
        uint64_t first = wire_replica_at(reply.replicas, 0).segment;
        assert_int_equal(wire_replica_at(reply.replicas, 1).segment, first);
        assert_int_equal(wire_replica_at(reply.replicas, 2).segment, first);
    }
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    assert_int_equal(kit_wish(&kit, 2, other, 1, "k", VALUE, &(struct wish){.soft_pin = 3}),
                     YOLK_ERR_INVALID);
    assert_int_equal(
        kit_wish(&kit, 2, other, 1, "k", VALUE, &(struct wish){.soft_pin = 1, .ttl_ms = 86400001}),
        YOLK_ERR_INVALID);
    assert_int_equal(kit_wish(&kit, 2, other, 1, "k", VALUE, &(struct wish){.groups = "a b"}),
                     YOLK_ERR_INVALID);
    assert_int_equal(
        kit_wish(&kit, 2, other, 1, "k", VALUE, &(struct wish){.preferred = "1 2 3 4 5 6 7 8"}),
        YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(c04_soft_pins_go_last),
        KIT_TEST(with_nothing_else_soft_pins_go),
        KIT_TEST(a_soft_pin_ends_by_time_and_reads_do_not_extend_it),
        KIT_TEST(hard_pins_stay_and_are_bounded),
        KIT_TEST(pins_over_an_upsert),
        KIT_TEST(hard_pins_outlive_the_master),
        KIT_TEST(preferred_segments_are_tried_in_order),
        KIT_TEST(replicas_never_share_a_segment),
        KIT_TEST(fewer_copies_are_not_made_when_more_come_soon),
        KIT_TEST(fewer_copies_are_made_when_there_are_no_more),
        KIT_TEST(same_segment_follows_the_first_key),
        KIT_TEST(wrong_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
