/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the index, the numbers the master reports, malformed input, and replayed facts. */
#include <stdio.h>

#include "master/test_kit.h"

static struct kit kit;
static uint64_t owner;

static int start(void **state)
{
    struct master_config config = {.step = 16, .max_jobs = 1};
    (void)kit_start(state, &kit, &config, 1 << 20, &owner, NULL);
    return 0;
}

static void store_many(uint32_t count)
{
    char name[16];
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "key-%u", i);
        kit_store(&kit, 1, owner, name, 100);
    }
}

static void list_gives_each_key_once(void **state)
{
    (void)state;
    enum { COUNT = 900 };
    uint8_t seen[COUNT] = {0};
    struct wire_list msg = {.request = {.session = owner}, .limit = 50};
    struct wire_list_reply reply;
    store_many(COUNT);
    do {
        struct wire_keys keys;
        struct wire_view key;
        kit_call(&kit, 1, WIRE_LIST, &msg, &reply);
        assert_int_equal(reply.status, YOLK_OK);
        assert_int_equal(wire_keys_open(reply.keys, 200, &keys), YOLK_OK);
        assert_int_equal(wire_u64s_count(reply.sizes), keys.count);
        for (uint32_t i = 0; wire_keys_next(&keys, &key); i++) {
            char name[16] = {0};
            memcpy(name, key.data, key.size);
            seen[strtoul(name + 4, NULL, 10)]++;
            assert_int_equal(wire_u64s_at(reply.sizes, i), 100);
        }
        msg.cursor = reply.cursor;
    } while (reply.cursor != 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 1);
}

static void remove_all_goes_in_steps(void **state)
{
    (void)state;
    struct wire_remove_all msg = {.request = {.session = owner, .op = 5000}};
    struct wire_remove_all_reply reply;
    store_many(300);
    assert_int_equal(kit_keys_call(&kit, 1, owner, 0, WIRE_EXIST, "key-7"), YOLK_OK); /* leased */
    uint32_t replies = kit.replies;
    kit_raw(&kit, 1, WIRE_REMOVE_ALL, 4000, &msg);
    assert_int_equal(kit.replies, replies);
    kit_raw(&kit, 1, WIRE_REMOVE_ALL, 4001, &msg); /* again: the same one */
    struct wire_remove_all another = {.request = {.session = owner, .op = 5001}};
    kit_call(&kit, 1, WIRE_REMOVE_ALL, &another, &reply);
    assert_int_equal(reply.status, YOLK_ERR_BUSY);
    assert_true(kit_stats(&kit).objects > 200);
    assert_int_equal(kit_put(&kit, 1, owner, 5002, "new", 100, NULL).status, YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 1, owner, 5002, WIRE_PUT_END, "new"), YOLK_OK);
    kit.request_id = 6000;
    for (int i = 0; i < 100 && kit.reply.kind != WIRE_REMOVE_ALL_REPLY; i++) {
        kit_tick(&kit, 0);
        kit_ack(&kit);
    }
    assert_int_equal(kit.reply.request_id, 4001);
    assert_int_equal(wire_decode(WIRE_REMOVE_ALL_REPLY, kit.reply.body, kit.reply.size, &reply),
                     YOLK_OK);
    assert_int_equal(reply.count, 299);
    assert_int_equal(kit_stats(&kit).objects, 2);
}

static void stat_recounts(void **state)
{
    (void)state;
    struct wire_stat msg = {.request = {.session = owner}, .recount = 1};
    struct wire_stat_reply reply;
    store_many(10);
    kit_call(&kit, 1, WIRE_STAT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(reply.differences, 0);
    char text[8192] = {0};
    memcpy(text, reply.text.data, reply.text.size);
    assert_non_null(strstr(text, "objects 10\n"));
    assert_non_null(strstr(text, "live_bytes 1280\n"));
}

static void malformed_frames_change_nothing(void **state)
{
    (void)state;
    struct master_sink sink = {.self = &kit, .send = kit_on_send};
    static const uint8_t junk[] = {0x81, 0x01, 0xc1, 0xff};
    uint64_t bad = 0;
    for (uint16_t kind = 0; kind < 100; kind++) {
        struct wire_header header = {kind, sizeof junk, 77};
        kit.reply.kind = 0;
        assert_int_not_equal(master_core_input(kit.core, kit.now, 1, &header, junk, &sink),
                             YOLK_OK);
        assert_int_equal(kit.reply.kind, WIRE_ERROR);
        struct wire_status_reply error;
        assert_int_equal(wire_decode(WIRE_ERROR, kit.reply.body, kit.reply.size, &error), YOLK_OK);
        assert_int_not_equal(error.status, YOLK_OK);
        assert_true(error.text.size > 0);
        assert_int_equal(kit_stats(&kit).requests_bad, ++bad);
    }
    struct wire_put_start put = {.request = {.session = owner, .op = 1},
                                 .keys = wire_view_of(junk, 4)};
    struct wire_put_start_reply reply;
    kit_call(&kit, 1, WIRE_PUT_START, &put, &reply);
    assert_int_equal(reply.status, YOLK_ERR_INVALID);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "", 10, NULL).status, YOLK_ERR_INVALID);
    assert_int_equal(kit_put(&kit, 1, owner, 1, "k", UINT64_MAX, NULL).status, YOLK_ERR_TOO_LARGE);
    assert_int_equal(kit_stats(&kit).extents, 0);
}

static struct master_core *copy;

static void on_fact(void *self, const struct master_fact *fact)
{
    (void)self;
    assert_int_equal(master_core_replay(copy, 1, fact), YOLK_OK);
}

static void facts_rebuild_the_index(void **state)
{
    (void)state;
    struct master_sink sink = {.self = &kit, .send = kit_on_send, .fact = on_fact};
    struct master_core *core = kit.core;
    struct master_stats a, b;
    assert_int_equal(master_core_create(NULL, 1, 9, &copy), YOLK_OK);
    assert_int_equal(master_core_create(NULL, kit.now, 8, &kit.core), YOLK_OK);
    owner = kit_open(&kit, 1, 1);
    struct wire_segment_mount mount = {.request = {.session = owner}, .size = 65536};
    struct base_buf out, keys;
    base_buf_init(&out, 1 << 16);
    assert_int_equal(wire_encode(WIRE_SEGMENT_MOUNT, &mount, &out), YOLK_OK);
    struct wire_header header = {WIRE_SEGMENT_MOUNT, (uint32_t)out.size, 1};
    assert_int_equal(master_core_input(kit.core, kit.now, 1, &header, out.data, &sink), YOLK_OK);
    kit_tick(&kit, 1);
    kit_ack(&kit); /* the owner knows of the session */
    for (uint64_t op = 1; op <= 20; op++) {
        char name[16];
        (void)snprintf(name, sizeof name, "k%u", (unsigned)op);
        assert_int_equal(kit_put(&kit, 1, owner, op, name, op * 10, NULL).status, YOLK_OK);
        for (uint16_t kind = WIRE_PUT_END; kind <= (op % 4 ? WIRE_PUT_END : WIRE_REMOVE);
             kind += 4) {
            kit_keys(&keys, name);
            struct wire_remove msg = {.request = {.session = owner, .op = op},
                                      .keys = wire_view_buf(&keys)};
            struct wire_keys_request end = {.request = msg.request, .keys = msg.keys};
            base_buf_clear(&out);
            assert_int_equal(
                wire_encode(kind, kind == WIRE_REMOVE ? (void *)&msg : (void *)&end, &out),
                YOLK_OK);
            header = (struct wire_header){kind, (uint32_t)out.size, 1};
            assert_int_equal(master_core_input(kit.core, kit.now, 1, &header, out.data, &sink),
                             YOLK_OK);
            base_buf_free(&keys);
        }
        kit_ack(&kit);
    }
    master_core_stats(kit.core, &a);
    master_core_stats(copy, &b);
    assert_int_equal(a.objects, 15);
    assert_int_equal(b.objects, 15);
    assert_int_equal(a.live_bytes, b.lost_bytes);
    assert_null(master_core_check(copy));
    assert_int_equal(master_core_recount(copy, &a), 0);
    base_buf_free(&out);
    master_core_destroy(copy);
    master_core_destroy(kit.core);
    kit.core = core;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(list_gives_each_key_once),
        KIT_TEST(remove_all_goes_in_steps),
        KIT_TEST(stat_recounts),
        KIT_TEST(malformed_frames_change_nothing),
        KIT_TEST(facts_rebuild_the_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
