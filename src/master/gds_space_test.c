/* SPDX-License-Identifier: Apache-2.0 */
/* GDS files over time: what goes from memory and from the file, room that is asked for, owners that
 * leave and come back. */
#include <stdio.h>

#include "master/gds_kit.h"

static uint64_t disk;
static uint32_t offloads; /* asked for */

enum { NAME_SIZE = 16 };

static void name(char *out, int n)
{
    snprintf(out, NAME_SIZE, "k%d", n);
}

static void fill(int from, int to, uint64_t size)
{
    char key[NAME_SIZE];
    for (int n = from; n < to; n++) {
        name(key, n);
        (void)stored(key, size, (uint64_t)n * VALUE, NULL);
    }
}

static uint32_t with_memory(int to)
{
    char key[NAME_SIZE];
    uint32_t count = 0;
    for (int n = 0; n < to; n++) {
        name(key, n);
        count += peek(key).in_memory;
    }
    return count;
}

/* Only memory goes, and nothing is copied to a disk. */
static void count_offloads(void)
{
    for (uint32_t i = 0; i < kit.push_count; i++) {
        struct wire_tasks tasks;
        if (kit.pushes[i].kind != WIRE_TASKS)
            continue;
        assert_int_equal(wire_decode(WIRE_TASKS, kit.pushes[i].body, kit.pushes[i].size, &tasks),
                         YOLK_OK);
        offloads += wire_task_count(tasks.recs);
    }
}

static void what_has_gds_leaves_memory_without_a_copy(void **state)
{
    (void)state;
    struct wire_segment_mount msg = {.request = {.session = writer},
                                     .name = wire_view_text("d"),
                                     .size = FILE_SIZE,
                                     .medium = WIRE_MEDIUM_LOCAL_DISK};
    struct wire_segment_mount_reply reply;
    msg.storage_id[0] = 9;
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    disk = reply.segment;
    fill(0, 40, VALUE);
    for (int i = 0; i < 20; i++) {
        kit_tick(&kit, 100);
        count_offloads();
        pump();
        assert_int_equal(kit_beat(&kit, 1, writer, 0), YOLK_OK);
    }
    assert_int_equal(offloads, 0);
    assert_int_equal(kit_stats(&kit).offload_skipped, 0);
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.gds_objects, 40);
    assert_true(stats.memory_evictions > 0);
    assert_int_equal(stats.memory_evictions + with_memory(40), 40 - stats.gds_only);
    assert_int_equal(stats.evictions, 0);
    /* What has no extent is copied, as ever. */
    for (int n = 0; n < 40 && offloads == 0; n++) {
        char key[NAME_SIZE];
        name(key, 100 + n);
        uint64_t op = ++kit.op;
        if (kit_put(&kit, 1, writer, op, key, VALUE, NULL).status == YOLK_OK)
            assert_int_equal(kit_keys_call(&kit, 1, writer, op, WIRE_PUT_END, key), YOLK_OK);
        kit_tick(&kit, 50);
        count_offloads();
        pump();
    }
    assert_true(offloads > 0);
    kit_check(kit.core);
}

static int start_with_watermarks(void **state)
{
    struct master_config config = {.gds_eviction_high_watermark_ratio = 0.5,
                                   .gds_eviction_ratio = 0.25};
    set_up(state, &config, 0);
    return 0;
}

static void the_watermarks_of_the_file_are_its_own(void **state)
{
    (void)state;
    fill(0, 32, VALUE);
    kit_tick(&kit, 100);
    pump();
    assert_int_equal(freed_count, 0);
    fill(32, 33, VALUE);
    kit_tick(&kit, 100);
    pump();
    assert_int_equal(freed_count, 17); /* down to a quarter */
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.gds_objects, 16);
    assert_int_equal(stats.gds_evictions, 17);
    assert_int_equal(stats.gds_evicted_bytes, 17 * VALUE);
    assert_int_equal(stats.evictions, 17);
    assert_int_equal(stats.disk_evictions, 0);
    assert_int_equal(stats.gds_limbo_bytes, 0);
}

/* First at the master, then in the file: an extent with a reader is told of only after him. */
static void eviction_respects_readers_and_leases(void **state)
{
    (void)state;
    fill(0, 64, VALUE);
    struct found read = look(2, reader, "k0", 0);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "k1"), YOLK_OK);
    for (int n = 0; n < 80 && kit_stats(&kit).gds_objects > 2; n++) {
        (void)room(1, writer, file, VALUE);
        pump();
    }
    assert_int_equal(kit_stats(&kit).gds_objects, 2);
    assert_int_equal(peek("k0").gds_count, 1);
    assert_int_equal(peek("k1").gds_count, 1);
    struct wire_gds_room_reply reply = room(1, writer, file, VALUE);
    assert_int_equal(reply.status, YOLK_ERR_NO_SPACE);
    assert_true(reply.text.size > 0);
    assert_int_equal(kit_stats(&kit).gds_no_room, 1);
    /* The probe's lease ends, and so does the read. */
    kit_pass(&kit, 11000, writer, reader);
    pump();
    assert_int_equal(room(1, writer, file, VALUE).status, YOLK_OK);
    pump();
    assert_int_equal(kit_beat(&kit, 2, reader, read.op + 1), YOLK_OK);
    assert_int_equal(room(1, writer, file, VALUE).status, YOLK_OK);
    pump();
    assert_int_equal(kit_stats(&kit).gds_objects, 0);
    for (uint32_t i = 0; i < freed_count; i++) /* each once */
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(freed[i], freed[j]);
    assert_int_equal(freed_count, 64);
}

/* A removed value under a reader is limbo: its extent is told of when he is done. */
static void removal_waits_for_readers(void **state)
{
    (void)state;
    fill(0, 2, VALUE);
    struct found read = look(2, reader, "k0", 0);
    assert_int_equal(read.gds_count, 1);
    assert_int_equal(kit_keys_call(&kit, 1, writer, 0, WIRE_REMOVE, "k0"), YOLK_ERR_HAS_LEASE);
    assert_int_equal(kit_force_remove(&kit, 1, writer, "k0"), YOLK_OK);
    assert_int_equal(kit_force_remove(&kit, 1, writer, "k1"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 1);
    assert_int_equal(freed[0], VALUE);
    assert_int_equal(kit_stats(&kit).gds_limbo_bytes, VALUE);
    /* Room is on its way, so nothing more is evicted for it. */
    fill(2, 4, VALUE);
    struct wire_gds_room_reply reply = room(1, writer, file, VALUE);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(reply.pending, VALUE);
    assert_int_equal(kit_stats(&kit).gds_objects, 2);
    assert_int_equal(kit_beat(&kit, 2, reader, read.op + 1), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 2);
    /* All at once. */
    struct wire_remove_all all = {.request = {.session = writer, .op = ++kit.op}, .force = 1};
    struct wire_remove_all_reply removed;
    kit_call(&kit, 1, WIRE_REMOVE_ALL, &all, &removed);
    pump();
    assert_int_equal(removed.count, 2);
    assert_int_equal(freed_count, 4);
    assert_int_equal(kit_stats(&kit).gds_extents, 0);
}

static void requests_for_room_that_make_no_sense(void **state)
{
    (void)state;
    assert_int_equal(room(2, reader, file, VALUE).status, YOLK_ERR_STALE);
    assert_int_equal(room(1, writer, memory, VALUE).status, YOLK_ERR_STALE);
    assert_int_equal(room(1, writer, file ^ 1, VALUE).status, YOLK_ERR_STALE);
    assert_int_equal(room(1, writer, file, 0).status, YOLK_ERR_INVALID);
    assert_int_equal(room(1, writer, file, FILE_SIZE + 1).status, YOLK_ERR_TOO_LARGE);
    assert_int_equal(room(1, writer, file, FILE_SIZE).status, YOLK_ERR_NO_SPACE); /* it is empty */
    /* What is being written cannot go. */
    assert_int_equal(put_at(++kit.op, "a", VALUE, 0, NULL).replica_count, 2);
    assert_int_equal(room(1, writer, file, VALUE).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_stats(&kit).gds_rooms, 7);
}

static void replicas_are_cleared_by_segment(void **state)
{
    (void)state;
    assert_int_equal(stored("a", VALUE, 0, NULL), 2);
    assert_int_equal(stored("b", VALUE, 8192, NULL), 2);
    assert_int_equal(clear(2, reader, "a", "nobody"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(clear(2, reader, "none", "s"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(clear(2, reader, "a", "g"), YOLK_ERR_NOT_FOUND); /* that is no memory */
    (void)look(2, reader, "a", 0);
    assert_int_equal(clear(1, writer, "a", "s"), YOLK_ERR_HAS_LEASE);
    assert_int_equal(kit_beat(&kit, 2, reader, kit.op + 1), YOLK_OK);
    assert_int_equal(clear(1, writer, "a", "s"), YOLK_ERR_HAS_LEASE); /* the lease outlives it */
    assert_int_equal(clear(1, writer, "b", "s"), YOLK_OK);
    kit_pass(&kit, 11000, writer, reader);
    assert_int_equal(clear(1, writer, "a", "s"), YOLK_OK);
    struct found found = peek("a");
    assert_true(found.in_memory == 0 && found.gds_count == 1);
    assert_int_equal(clear(1, writer, "a", "s"), YOLK_ERR_NOT_FOUND); /* there is none any more */
    assert_int_equal(kit_stats(&kit).live_bytes, 0);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
    assert_int_equal(freed_count, 0);
    /* Without a name all of it goes. */
    assert_int_equal(clear(1, writer, "a", ""), YOLK_OK);
    assert_int_equal(peek("a").status, YOLK_ERR_NOT_FOUND);
    assert_int_equal(freed_count, 1);
    assert_int_equal(kit_stats(&kit).replica_clears, 3);
    /* With the only replica goes the key; what is being written stays. */
    kit_store(&kit, 1, writer, "m", VALUE);
    assert_int_equal(clear(1, writer, "m", "s"), YOLK_OK);
    assert_int_equal(peek("m").status, YOLK_ERR_NOT_FOUND);
    assert_int_equal(put_at(++kit.op, "p", VALUE, 16384, NULL).replica_count, 2);
    assert_int_equal(clear(1, writer, "p", "s"), YOLK_ERR_NOT_READY);
    assert_int_equal(clear(1, writer, "p", ""), YOLK_ERR_NOT_READY);
}

static void a_key_of_another_tenant_is_not_cleared(void **state)
{
    struct master_config config = {.tenants = "*=1MiB"};
    set_up(state, &config, MEMORY);
    struct wire_session_open_reply opened = kit_open_tenant(&kit, 3, "t");
    assert_int_equal(opened.status, YOLK_OK);
    assert_int_equal(stored("a", VALUE, 0, NULL), 2);
    assert_int_equal(clear(3, opened.session, "a", "s"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(peek("a").in_memory, 1);
}

static void unregistering_hides_what_the_file_holds(void **state)
{
    (void)state;
    fill(0, 2, VALUE);
    assert_int_equal(clear(1, writer, "k0", "s"), YOLK_OK);
    struct wire_segment_unmount msg = {.request = {.session = writer}, .segment = file};
    struct wire_status_reply reply;
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &msg);
    kit_tick(&kit, 0); /* answered when nobody reads there */
    assert_int_equal(kit.reply.request_id, kit.request_id);
    assert_int_equal(
        wire_decode(WIRE_SEGMENT_UNMOUNT_REPLY, kit.reply.body, kit.reply.size, &reply), YOLK_OK);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(peek("k0").status, YOLK_ERR_NOT_FOUND);
    struct found found = peek("k1");
    assert_true(found.in_memory == 1 && found.gds_count == 0);
    assert_int_equal(put_at(++kit.op, "x", VALUE, 8192, NULL).status, YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).gds_segments, 0);
    /* Registered again, the same file is known; it offers what it has. */
    struct wire_segment_mount_reply mounted = mount_gds(1, writer, GENERATION, 2);
    assert_int_equal(mounted.status, YOLK_OK);
    file = mounted.segment;
    file_seq = 0;
    assert_true(offer(writer, "k0", (struct wire_offer){0, VALUE, 1234}, 0));
    assert_false(offer(writer, "k5", (struct wire_offer){5 * VALUE, VALUE, 1}, 1));
    kit_tick(&kit, 100);
    pump();
    assert_int_equal(peek("k0").gds_count, 1);
    assert_int_equal(peek("k1").gds_count, 0); /* not offered: gone */
    assert_int_equal(kit_stats(&kit).gds_extents, 1);
}

/* Nothing of a file that was made anew is there, and descriptors of before are refused. */
static void another_generation_is_another_file(void **state)
{
    (void)state;
    fill(0, 3, VALUE);
    assert_int_equal(clear(1, writer, "k0", "s"), YOLK_OK);
    assert_int_equal(put_at(77, "open", VALUE, 4 * VALUE, NULL).replica_count, 2);
    uint64_t before = file;
    struct wire_segment_mount_reply mounted = mount_gds(1, writer, GENERATION + 1, 0);
    assert_int_equal(mounted.status, YOLK_OK);
    file = mounted.segment;
    file_seq = 0;
    assert_true(file != before);
    kit_tick(&kit, 100);
    assert_int_equal(peek("k0").status, YOLK_ERR_NOT_FOUND);
    struct found found = peek("k1");
    assert_true(found.in_memory == 1 && found.gds_count == 0);
    assert_int_equal(put_at(++kit.op, "x", VALUE, 0, NULL).status, YOLK_ERR_STALE);
    struct wire_gds gds = place_at(1, 0, VALUE);
    gds.storage_generation++;
    struct wire_put_start_reply reply = start_put(1, writer, ++kit.op, "x", VALUE, &gds, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).replica_count, 2);
    /* A put that was under way keeps what is in memory. */
    assert_int_equal(end_put(77, "open"), YOLK_OK);
    found = peek("open");
    assert_true(found.in_memory == 1 && found.gds_count == 0);
    assert_int_equal(kit_stats(&kit).gds_extents, 1);
    assert_int_equal(freed_count, 0); /* of the old file nobody is told */
}

static void one_file_a_session(void **state)
{
    (void)state;
    struct wire_segment_mount msg = {.request = {.session = writer, .op = ++kit.op},
                                     .name = wire_view_text("g"),
                                     .size = FILE_SIZE,
                                     .medium = WIRE_MEDIUM_GDS,
                                     .storage_generation = 1};
    struct wire_segment_mount_reply reply;
    msg.storage_id[0] = 99;
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_ERR_EXISTS);
    msg.request.session = reader;
    msg.storage_generation = 0;
    kit_call(&kit, 2, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_ERR_INVALID);
    msg.storage_generation = 1, msg.size += 64;
    kit_call(&kit, 2, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_ERR_INVALID);
    msg.size -= 64, msg.storage_id[0] = 0;
    kit_call(&kit, 2, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_ERR_INVALID);
    msg.storage_id[0] = 98, msg.medium = 3;
    kit_call(&kit, 2, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_ERR_INVALID);
    msg.medium = WIRE_MEDIUM_GDS;
    kit_call(&kit, 2, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(kit_stats(&kit).gds_segments, 2);
    /* The same message again is answered again. */
    uint64_t first = reply.segment;
    kit_call(&kit, 2, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.segment, first);
}

/* The owner was killed: another process has the file now, and what it offers is as it was. */
static void the_file_comes_back_with_another_owner(void **state)
{
    (void)state;
    fill(0, 2, VALUE);
    assert_int_equal(clear(1, writer, "k0", "s"), YOLK_OK);
    uint64_t next = kit_open(&kit, 3, 1);
    struct wire_segment_mount_reply mounted = mount_gds(3, next, GENERATION, 2);
    assert_int_equal(mounted.status, YOLK_OK);
    file = mounted.segment;
    file_seq = 0;
    assert_int_equal(kit_beat(&kit, 1, writer, 0), YOLK_ERR_STALE); /* it has no lock any more */
    struct base_buf keys, recs;
    struct wire_mirror_offer_reply offered;
    (void)kit_keys(&keys, "k0 k1");
    base_buf_init(&recs, 4096);
    for (uint64_t n = 0; n < 2; n++) {
        struct wire_offer at = {n * VALUE, VALUE, 55};
        assert_int_equal(wire_offer_append(&recs, &at), YOLK_OK);
    }
    struct wire_mirror_offer msg = {.request = {.session = next},
                                    .segment = file,
                                    .keys = wire_view_buf(&keys),
                                    .recs = wire_view_buf(&recs),
                                    .last = 1};
    kit_call(&kit, 3, WIRE_MIRROR_OFFER, &msg, &offered);
    base_buf_free(&keys);
    base_buf_free(&recs);
    assert_int_equal(offered.accepted, 2);
    struct found found = peek("k0");
    struct wire_gds gds = place_at(3, 0, VALUE); /* its owner is the new client */
    assert_int_equal(found.gds_count, 1);
    assert_true(wire_gds_equal(&found.gds[0], &gds));
}

/* A master that knows nothing believes the file; what was removed under one that knows does not
 * come back. */
static void a_new_master_takes_up_the_file(void **state)
{
    (void)state;
    fill(0, 2, VALUE);
    kit_new_core(&kit, NULL, 77);
    kit.push_count = 0;
    writer = kit_open(&kit, 1, 2);
    reader = kit_open(&kit, 2, 2);
    struct wire_segment_mount_reply mounted = mount_gds(1, writer, GENERATION, 2);
    assert_int_equal(mounted.status, YOLK_OK);
    file = mounted.segment;
    file_seq = 0;
    assert_true(offer(writer, "k0", (struct wire_offer){0, VALUE, 55}, 0));
    assert_int_equal(peek("k0").gds_count, 1); /* at once */
    assert_true(offer(writer, "k1", (struct wire_offer){VALUE, VALUE, 56}, 1));
    assert_int_equal(stored("k2", VALUE, 2 * VALUE, NULL), 1);
    assert_int_equal(kit_force_remove(&kit, 1, writer, "k1"), YOLK_OK);
    mounted = mount_gds(1, writer, GENERATION, 2);
    if (mounted.segment == file) /* the same message again */
        mounted = (struct wire_segment_mount_reply){.segment = file};
    kit_pass(&kit, 12000, 0, reader);
    writer = kit_open(&kit, 1, 3);
    mounted = mount_gds(1, writer, GENERATION, 3);
    file = mounted.segment;
    file_seq = 0;
    assert_true(offer(writer, "k0", (struct wire_offer){0, VALUE, 55}, 0));
    assert_false(offer(writer, "k1", (struct wire_offer){VALUE, VALUE, 56}, 0));
    assert_true(offer(writer, "k2", (struct wire_offer){2 * VALUE, VALUE, 99}, 1));
    kit_tick(&kit, 100);
    assert_int_equal(kit_stats(&kit).gds_objects, 2);
    assert_int_equal(kit_stats(&kit).gds_lost_bytes, 0);
}

static void bad_bytes_end_the_replica(void **state)
{
    (void)state;
    fill(0, 1, VALUE);
    struct base_buf keys, recs;
    struct wire_replica at = {.segment = file, .offset = 0, .medium = WIRE_MEDIUM_GDS};
    struct wire_results_reply reply;
    (void)kit_keys(&keys, "k0");
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_replica_append(&recs, &at), YOLK_OK);
    struct wire_replica_bad msg = {.request = {.session = writer},
                                   .keys = wire_view_buf(&keys),
                                   .replicas = wire_view_buf(&recs)};
    kit_call(&kit, 1, WIRE_REPLICA_BAD, &msg, &reply);
    base_buf_free(&keys);
    base_buf_free(&recs);
    pump();
    assert_int_equal(wire_i32s_at(reply.results, 0), YOLK_OK);
    assert_int_equal(peek("k0").gds_count, 0);
    assert_int_equal(freed_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(what_has_gds_leaves_memory_without_a_copy),
        cmocka_unit_test_setup_teardown(the_watermarks_of_the_file_are_its_own,
                                        start_with_watermarks, kit_stop),
        KIT_TEST(eviction_respects_readers_and_leases),
        KIT_TEST(removal_waits_for_readers),
        KIT_TEST(requests_for_room_that_make_no_sense),
        KIT_TEST(replicas_are_cleared_by_segment),
        cmocka_unit_test_teardown(a_key_of_another_tenant_is_not_cleared, kit_stop),
        KIT_TEST(unregistering_hides_what_the_file_holds),
        KIT_TEST(another_generation_is_another_file),
        KIT_TEST(one_file_a_session),
        KIT_TEST(the_file_comes_back_with_another_owner),
        KIT_TEST(a_new_master_takes_up_the_file),
        KIT_TEST(bad_bytes_end_the_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
