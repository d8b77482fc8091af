/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that end, fences, segments that are lost and come back, and a new master. */
#include "base/alloc.h"
#include "master/test_kit.h"

static struct kit kit;
static uint64_t owner, other, segment;

static int start(void **state)
{
    segment = kit_start(state, &kit, NULL, 4096, &owner, &other);
    return 0;
}

static void refuse_unknown_sessions(void **state)
{
    (void)state;
    assert_int_equal(kit_beat(&kit, 3, 12345, 0), YOLK_ERR_STALE);
    assert_int_equal(kit_get(&kit, 3, 0, 1, "a", 0, NULL), YOLK_ERR_STALE);
    assert_int_equal(kit_open(&kit, 2, 1), other); /* the same message again */
    assert_int_not_equal(kit_open(&kit, 2, 2), other);
    assert_int_equal(kit_beat(&kit, 2, other, 0), YOLK_ERR_STALE);
}

static void a_silent_writer_is_fenced_first(void **state)
{
    (void)state;
    struct wire_fence fence;
    assert_int_equal(kit_put(&kit, 2, other, 1, "a", 4096, NULL).status, YOLK_OK);
    kit_pass(&kit, 11000, owner, 0);
    assert_int_equal(kit_stats(&kit).zombies, 1);
    const struct kit_frame *push = kit_pushed(&kit, WIRE_FENCE);
    assert_non_null(push);
    assert_int_equal(push->connection, 1);
    assert_int_equal(wire_decode(WIRE_FENCE, push->body, push->size, &fence), YOLK_OK);
    assert_int_equal(fence.fenced_session, other);
    kit_ack(&kit);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "a", 4096, NULL).status, YOLK_ERR_NO_SPACE);
    kit_raw(&kit, 2, WIRE_FENCED, 0, &fence); /* not from the owner */
    assert_int_equal(kit_stats(&kit).zombies, 1);
    kit_raw(&kit, 1, WIRE_FENCED, 0, &fence);
    assert_int_equal(kit_stats(&kit).zombies, 0);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "a", 4096, NULL).status, YOLK_OK);
}

static void an_own_stall_is_nobodys_silence(void **state)
{
    (void)state;
    kit.now += 60 * NS_PER_S;
    kit_tick(&kit, 0);
    assert_int_equal(kit_stats(&kit).sessions, 2);
    assert_int_equal(kit_stats(&kit).stalls, 1);
    kit_pass(&kit, 10500, owner, 0);
    assert_int_equal(kit_stats(&kit).sessions, 1);
}

static struct wire_mirror_offer_reply offer(uint64_t session, uint64_t id, const char *key,
                                            uint64_t offset)
{
    struct base_buf keys;
    uint8_t rec[WIRE_OFFER_SIZE];
    struct wire_mirror_offer_reply reply;
    wire_set_u64(rec, offset);
    wire_set_u64(rec + 8, 1000);
    kit_keys(&keys, key);
    struct wire_mirror_offer msg = {.request = {.session = session},
                                    .segment = id,
                                    .keys = wire_view_buf(&keys),
                                    .recs = wire_view_of(rec, sizeof rec)};
    kit_call(&kit, 1, WIRE_MIRROR_OFFER, &msg, &reply);
    base_buf_free(&keys);
    assert_int_equal(reply.status, YOLK_OK);
    return reply;
}

static void last_offer(uint64_t session, uint64_t id)
{
    struct wire_mirror_offer_reply reply;
    struct wire_mirror_offer msg = {.request = {.session = session}, .segment = id, .last = 1};
    kit_call(&kit, 1, WIRE_MIRROR_OFFER, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
}

static uint64_t remount(uint64_t session, const uint8_t *prior_master, uint64_t old_session)
{
    uint8_t old[8];
    struct wire_segment_mount_reply reply;
    struct wire_segment_mount msg = {.request = {.session = session},
                                     .size = 4096,
                                     .generation = segment,
                                     .mirror_count = 3,
                                     .old_sessions = wire_view_of(old, 8)};
    wire_set_u64(old, old_session);
    memcpy(msg.prior_master, prior_master, WIRE_ID_SIZE);
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_not_equal(reply.segment, segment);
    return reply.segment;
}

static void a_lost_segment_gets_back_what_is_remembered(void **state)
{
    (void)state;
    struct wire_replica at[3], got;
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_put(&kit, 1, owner, (uint64_t)i + 1, names[i], 1000, &at[i]).status,
                         YOLK_OK);
        assert_int_equal(kit_keys_call(&kit, 1, owner, (uint64_t)i + 1, WIRE_PUT_END, names[i]),
                         YOLK_OK);
    }
    kit_ack(&kit);
    kit_pass(&kit, 10500, 0, other);
    kit.push_count = 0;
    assert_int_equal(kit_stats(&kit).segments_lost, 1);
    assert_int_equal(kit_get(&kit, 2, other, 9, "a", 0, NULL), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).miss_expired, 1);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_REMOVE, "b"),
                     YOLK_ERR_NOT_FOUND); /* forgotten now */
    owner = kit_open(&kit, 1, 2);
    uint64_t id = remount(owner, master_core_instance(kit.core), other);
    assert_int_equal(offer(owner, id, "a", at[0].offset).accepted, 1);
    assert_int_equal(offer(owner, id, "b", at[1].offset).accepted, 0);
    assert_int_equal(kit_get(&kit, 2, other, 9, "a", 0, &got), YOLK_OK);
    assert_int_equal(got.segment, id);
    assert_int_equal(got.offset, at[0].offset);
    last_offer(owner, id);
    kit_tick(&kit, 100);
    kit_ack(&kit);
    assert_int_equal(kit_stats(&kit).objects, 1); /* c was not offered */
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
    assert_int_equal(kit_stats(&kit).segments_open, 1);
}

static void a_new_master_waits_for_the_sessions_of_the_old(void **state)
{
    (void)state;
    uint8_t old_instance[WIRE_ID_SIZE];
    uint64_t old_other = other;
    memcpy(old_instance, master_core_instance(kit.core), WIRE_ID_SIZE);
    kit_new_core(&kit, NULL, 43);
    kit.push_count = 0;
    owner = kit_open(&kit, 1, 2);
    uint64_t id = remount(owner, old_instance, other);
    assert_int_equal(offer(owner, id, "a", 1024).accepted, 1);
    assert_int_equal(offer(owner, id, "b", 1088).accepted, 0); /* overlaps */
    last_offer(owner, id);
    assert_int_equal(kit_get(&kit, 1, owner, 1, "a", 0, NULL), YOLK_OK);
    assert_int_equal(kit_put(&kit, 1, owner, 2, "b", 64, NULL).status, YOLK_ERR_NO_SPACE);
    /* The other one comes back, with something it still holds. */
    uint8_t held[WIRE_HELD_SIZE];
    wire_set_u64(held, segment);
    wire_set_u64(held + 8, 2048);
    wire_set_u64(held + 16, 2048);
    wire_set_u64(held + 24, 77);
    struct wire_session_open msg = {.request = {.session = other, .floor = 77},
                                    .generation = 2,
                                    .client_id = {2},
                                    .held = wire_view_of(held, sizeof held)};
    struct wire_session_open_reply reply;
    kit_call(&kit, 2, WIRE_SESSION_OPEN, &msg, &reply);
    assert_int_equal(reply.session, old_other);
    assert_int_equal(kit_stats(&kit).segments_open, 1);
    kit_ack(&kit);
    assert_int_equal(kit_put(&kit, 1, owner, 2, "b", 1024, NULL).status, YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, other, 80, "c", 64, NULL).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_beat(&kit, 2, other, 78), YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, other, 80, "c", 64, NULL).status, YOLK_OK);
}

static void a_new_master_fences_those_that_stay_away(void **state)
{
    (void)state;
    uint8_t old_instance[WIRE_ID_SIZE];
    memcpy(old_instance, master_core_instance(kit.core), WIRE_ID_SIZE);
    kit_new_core(&kit, NULL, 43);
    kit.push_count = 0;
    owner = kit_open(&kit, 1, 2);
    uint64_t id = remount(owner, old_instance, other);
    last_offer(owner, id);
    kit_pass(&kit, 9000, owner, 0);
    assert_null(kit_pushed(&kit, WIRE_FENCE));
    kit_pass(&kit, 2000, owner, 0);
    assert_non_null(kit_pushed(&kit, WIRE_FENCE));
    assert_int_equal(kit_stats(&kit).segments_open, 0);
    struct wire_fence fence = {id, other};
    kit_raw(&kit, 1, WIRE_FENCED, 0, &fence);
    assert_int_equal(kit_stats(&kit).segments_open, 1);
}

static void unmount_waits_for_guards(void **state)
{
    (void)state;
    kit_store(&kit, 1, owner, "a", 1000);
    assert_int_equal(kit_get(&kit, 2, other, 1, "a", 0, NULL), YOLK_OK);
    struct wire_segment_unmount msg = {
        .request = {.session = owner}, .segment = segment, .grace_ms = 5000};
    uint32_t replies = kit.replies;
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, 999, &msg);
    kit_tick(&kit, 200);
    assert_int_equal(kit.replies, replies);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_beat(&kit, 2, other, 2), YOLK_OK);
    kit_tick(&kit, 0);
    assert_int_equal(kit.reply.kind, WIRE_SEGMENT_UNMOUNT_REPLY);
    assert_int_equal(kit.reply.request_id, 999);
    assert_int_equal(kit_stats(&kit).segments, 0);
}

static void facts_are_repeated_until_answered(void **state)
{
    (void)state;
    assert_int_equal(kit_put(&kit, 2, other, 1, "a", 64, NULL).status, YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, other, 1, WIRE_PUT_END, "a"), YOLK_OK);
    struct kit_frame first = *kit_pushed(&kit, WIRE_FACTS);
    kit.push_count = 0;
    kit_pass(&kit, 1500, owner, other);
    const struct kit_frame *again = kit_pushed(&kit, WIRE_FACTS);
    assert_non_null(again);
    assert_int_equal(again->size, first.size);
    assert_memory_equal(again->body, first.body, first.size);
    kit_ack(&kit);
    kit_pass(&kit, 1500, owner, other);
    assert_null(kit_pushed(&kit, WIRE_FACTS));
}

static void disconnect(uint64_t connection)
{
    struct master_sink sink = {.self = &kit, .send = kit_on_send};
    master_core_disconnect(kit.core, kit.now, connection, &sink);
}

static int store_again(const char *key, uint64_t size, struct wire_replica *at)
{
    int status = kit_put(&kit, 2, other, ++kit.op, key, size, at).status;
    if (status == YOLK_OK)
        assert_int_equal(kit_keys_call(&kit, 2, other, kit.op, WIRE_PUT_END, key), YOLK_OK);
    return status;
}

/* A killed owner is missed at once, not only when its session ends. */
static void readers_are_not_sent_to_an_owner_who_is_not_there(void **state)
{
    (void)state;
    assert_int_equal(store_again("a", 64, NULL), YOLK_OK);
    assert_int_equal(store_again("none", 0, NULL), YOLK_OK);
    disconnect(77); /* of nobody */
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a"), YOLK_OK);
    disconnect(1);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_get(&kit, 2, other, ++kit.op, "a", 0, NULL), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).miss_expired, 1);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "none"), YOLK_OK);
    assert_int_equal(kit_stats(&kit).live_bytes, 64); /* all is kept */
    assert_int_equal(kit_stats(&kit).segments_open, 1);
    assert_int_equal(kit_beat(&kit, 3, owner, 0), YOLK_OK); /* by another connection */
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a"), YOLK_OK);
    assert_int_equal(kit_get(&kit, 2, other, ++kit.op, "a", 0, NULL), YOLK_OK);
    disconnect(1); /* the old one ends late */
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "a"), YOLK_OK);
}

static void values_go_where_an_owner_is(void **state)
{
    (void)state;
    struct wire_replica at;
    uint64_t third = kit_open(&kit, 3, 1);
    uint64_t second = kit_mount(&kit, 3, third, 4096);
    kit_ack(&kit);
    do { /* until it lies in the one that will be cut off */
        (void)kit_force_remove(&kit, 2, other, "a");
        assert_int_equal(store_again("a", 64, &at), YOLK_OK);
        kit_ack(&kit);
    } while (at.segment != segment);
    disconnect(1);
    for (int i = 0; i < 20; i++) {
        char key[] = {'b', (char)('a' + i), 0};
        assert_int_equal(store_again(key, 64, &at), YOLK_OK);
        assert_int_equal(at.segment, second);
    }
    assert_int_equal(store_again("a", 100, &at), YOLK_OK); /* what cannot be read may be put */
    assert_int_equal(at.segment, second);
    assert_int_equal(kit_beat(&kit, 4, owner, 0), YOLK_OK);
    assert_int_equal(kit_get(&kit, 2, other, ++kit.op, "a", 0, &at), YOLK_OK);
    assert_int_equal(at.segment, second); /* the new value alone */
    /* Without any other place the one in doubt is better than none. */
    disconnect(4);
    disconnect(3);
    assert_int_equal(store_again("c", 64, NULL), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, other, 0, WIRE_EXIST, "c"), YOLK_ERR_NOT_FOUND);
}

static unsigned refuse_in;

static bool refuse_one(void *self)
{
    (void)self;
    return refuse_in > 0 && --refuse_in == 0;
}

/* Whichever allocation fails while a session opens: the owner hears of it all the same, and until
 * it does nothing is placed. */
static void an_owner_is_told_when_there_is_memory_again(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 16; n++) {
        struct wire_session_open msg = {.generation = 1, .client_id = {(uint8_t)(100 + n)}};
        struct base_buf body = kit_encode(WIRE_SESSION_OPEN, &msg);
        struct wire_header header = {WIRE_SESSION_OPEN, (uint32_t)body.size, 1000 + n};
        struct master_sink sink = {.self = &kit, .send = kit_on_send};
        refuse_in = n;
        base_alloc_set_hook(refuse_one, NULL);
        (void)master_core_input(kit.core, kit.now, 10 + n, &header, body.data, &sink);
        base_alloc_set_hook(NULL, NULL);
        base_buf_free(&body);
        kit_tick(&kit, 100);
        kit_ack(&kit);
        char key[] = {'m', (char)('a' + n), 0};
        assert_int_equal(kit_put(&kit, 2, other, ++kit.op, key, 64, NULL).status, YOLK_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(refuse_unknown_sessions),
        KIT_TEST(a_silent_writer_is_fenced_first),
        KIT_TEST(an_own_stall_is_nobodys_silence),
        KIT_TEST(a_lost_segment_gets_back_what_is_remembered),
        KIT_TEST(a_new_master_waits_for_the_sessions_of_the_old),
        KIT_TEST(a_new_master_fences_those_that_stay_away),
        KIT_TEST(unmount_waits_for_guards),
        KIT_TEST(facts_are_repeated_until_answered),
        KIT_TEST(readers_are_not_sent_to_an_owner_who_is_not_there),
        KIT_TEST(values_go_where_an_owner_is),
        KIT_TEST(an_owner_is_told_when_there_is_memory_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
