/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas on a disk: freed, offered, promoted, wrong. */
#include "master/tier_kit.h"
#include "master/twin.h"

static void a_removed_key_is_freed_on_the_disk_too(void **state)
{
    (void)state;
    fill(0, 13);
    kit_tick(&kit, 0);
    struct task first = next_task(), second = next_task();
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "k0"), YOLK_OK);
    copied(first, 4096); /* nobody wants it any more */
    assert_int_equal(freed_count, 1);
    assert_int_equal(freed[0], 4096);
    copied(second, 0);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k1"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 2);
    assert_int_equal(freed[1], 0);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 0);
    assert_false(exists(0));
    assert_false(exists(1));
}

static void space_that_is_read_is_not_told_free(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k0"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 0);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, VALUE);
    end_gets();
    assert_int_equal(freed_count, 1);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
}

/* The owner was killed and its disk has another one. */
static uint64_t take_over(uint64_t *session, uint64_t count)
{
    *session = kit_open(&kit, 3, 1);
    disk_seq = 0;
    disk = mount_disk(3, *session, 1, DISK, count);
    pump();
    return disk;
}

static void a_disk_comes_back_with_another_owner(void **state)
{
    (void)state;
    struct wire_replica at[4];
    uint64_t session;
    fill_all(); /* k0 to k4 at least */
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k1"), YOLK_OK);
    uint64_t before = disk;
    (void)take_over(&session, 5);
    assert_int_not_equal(disk, before);
    assert_false(exists(0)); /* the old owner is dead, and of the disk nothing is said yet */
    assert_true(offer(3, session, disk, "k0", (struct wire_offer){0, VALUE, 7}, 0));
    assert_false(offer(3, session, disk, "k1", (struct wire_offer){VALUE, VALUE, 4096 + 7}, 0));
    assert_false(offer(3, session, disk, "k2", (struct wire_offer){2 * VALUE, VALUE, 1}, 0));
    assert_true(
        offer(3, session, disk, "k3", (struct wire_offer){3 * VALUE, VALUE, 3 * VALUE + 7}, 0));
    assert_false(offer(3, session, disk, "new", (struct wire_offer){60 * VALUE, VALUE, 1}, 1));
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(freed_count, 0); /* what is refused its owner deletes */
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].segment, disk);
    assert_int_equal(at[0].checksum, 7);
    end_gets();
    assert_false(exists(1));
    assert_false(exists(2));
    assert_true(exists(3));
    assert_false(exists(4)); /* not offered */
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 2 * VALUE);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
    assert_int_equal(kit_beat(&kit, 1, owner, 0), YOLK_ERR_STALE);
}

static void an_offer_that_comes_again_revives_nothing(void **state)
{
    (void)state;
    uint64_t other = kit_open(&kit, 3, 1);
    uint64_t second = mount_disk(3, other, 2, DISK, 2);
    struct wire_offer at = {0, 100, 5};
    assert_true(offer(3, other, second, "a", at, 0)); /* never seen: believed */
    assert_true(offer(3, other, second, "a", at, 0));
    assert_int_equal(kit_force_remove(&kit, 2, reader, "a"), YOLK_OK);
    kit_ack(&kit);
    assert_false(offer(3, other, second, "a", at, 0));
    assert_true(offer(3, other, second, "b", (struct wire_offer){4096, 5000, 5}, 1));
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 8192);
}

static void a_disk_that_was_forgotten_is_not_believed(void **state)
{
    (void)state;
    uint64_t session;
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    struct wire_plain_request close = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_call(&kit, 1, WIRE_SESSION_CLOSE, &close, &reply);
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).disk_lost_bytes, VALUE); /* remembered */
    kit_pass(&kit, 3000, 0, reader);
    assert_int_equal(kit_stats(&kit).disk_lost_bytes, 0); /* and forgotten */
    disk = take_over(&session, 1);
    assert_false(offer(3, session, disk, "k0", (struct wire_offer){0, VALUE, 7}, 1));
}

static void a_disk_is_remembered_after_its_owner_closed(void **state)
{
    (void)state;
    uint64_t session;
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    struct wire_segment_unmount unmount = {.request = {.session = owner}, .segment = disk};
    struct wire_plain_request close = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &unmount);
    kit_tick(&kit, 0);
    assert_int_equal(kit.reply.kind, WIRE_SEGMENT_UNMOUNT_REPLY);
    kit_call(&kit, 1, WIRE_SESSION_CLOSE, &close, &reply);
    assert_false(exists(0));
    disk = take_over(&session, 1);
    assert_true(offer(3, session, disk, "k0", (struct wire_offer){0, VALUE, 7}, 1));
    assert_true(exists(0));
    assert_false(exists(1));
}

/* k0 is on the disk only, and memory has room. */
static void only_on_disk(void)
{
    fill_all();
    for (int n = 16; kit_stats(&kit).memory_evictions == 0; n++)
        (void)put(n, VALUE);
    for (int n = 5; n < 12; n++)
        assert_int_equal(kit_force_remove(&kit, 2, reader, name_of(n)), YOLK_OK);
    pump();
    while (!no_task())
        answer(next_task().rec.id, YOLK_ERR_CANCELED, 0, 0, 0);
}

static void a_hot_key_comes_back_to_memory(void **state)
{
    (void)state;
    struct wire_replica at[4];
    only_on_disk();
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_true(no_task());
    kit_pass(&kit, 3000, owner, reader);
    assert_int_equal(get(0, at), 1);
    struct task task = next_task();
    assert_int_equal(task.rec.kind, WIRE_TASK_PROMOTE);
    assert_string_equal(task.key, "k0");
    assert_int_equal(task.rec.disk_offset, at[0].offset);
    assert_int_equal(task.rec.checksum, at[0].checksum);
    assert_int_equal(task.rec.size, VALUE);
    assert_int_equal(get(0, at), 1); /* and only once at a time */
    assert_true(no_task());
    end_gets();
    uint64_t open = kit_stats(&kit).open_bytes;
    assert_int_equal(open, VALUE);
    answer(task.rec.id, YOLK_OK, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).promotes_done, 1);
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_MEMORY);
    assert_int_equal(at[0].offset, task.rec.offset);
    end_gets();
}

/* What only a disk has is not mapped: the get that follows a pin of it is the one that counts. */
static void asking_for_a_key_and_pinning_it_do_not_warm_it(void **state)
{
    (void)state;
    static const uint32_t flags[] = {WIRE_GET_PEEK, WIRE_GET_PEEK, WIRE_GET_PIN, WIRE_GET_PIN};
    struct wire_replica at[4];
    only_on_disk();
    uint64_t hits = kit_stats(&kit).get_hits;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kit_get(&kit, 2, reader, ++kit.op, "k0", flags[i], at), YOLK_OK);
        assert_int_equal(at[0].medium, WIRE_MEDIUM_LOCAL_DISK);
        assert_true(no_task());
    }
    assert_int_equal(kit_stats(&kit).get_hits, hits);
    assert_int_equal(kit_stats(&kit).guards, 2);
    end_gets();
    assert_int_equal(get(0, at), 1);
    assert_true(no_task());
    assert_int_equal(get(0, at), 1);
    assert_int_equal(next_task().rec.kind, WIRE_TASK_PROMOTE);
    assert_int_equal(kit_stats(&kit).get_hits, hits + 2);
    end_gets();
}

static struct task promote_k0(void)
{
    struct wire_replica at[4];
    only_on_disk();
    assert_int_equal(get(0, at), 1);
    assert_int_equal(get(0, at), 1);
    struct task task = next_task();
    assert_int_equal(task.rec.kind, WIRE_TASK_PROMOTE);
    end_gets();
    return task;
}

static void a_failed_promotion_leaves_nothing_behind(void **state)
{
    (void)state;
    struct task task = promote_k0();
    answer(task.rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
    assert_int_equal(kit_stats(&kit).promotes_failed, 1);
    assert_true(exists(0));
}

static void a_promotion_that_finds_wrong_bytes_drops_them(void **state)
{
    (void)state;
    struct task task = promote_k0();
    uint64_t live = kit_stats(&kit).disk_live_bytes;
    answer(task.rec.id, YOLK_ERR_CORRUPT, 0, 0, 0);
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).replica_bad, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, live - VALUE);
    assert_int_equal(freed[freed_count - 1], task.rec.disk_offset);
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
}

static void a_key_removed_while_it_is_promoted_stays_removed(void **state)
{
    (void)state;
    struct task task = promote_k0();
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k0"), YOLK_OK);
    pump();
    uint32_t told = freed_count;
    answer(task.rec.id, YOLK_OK, 0, 0, 0);
    assert_int_equal(freed_count, told + 1); /* only now: it was being read */
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
}

static int replica_bad(const char *key, struct wire_replica at)
{
    struct base_buf keys, recs;
    (void)kit_keys(&keys, key);
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_replica_append(&recs, &at), YOLK_OK);
    struct wire_replica_bad msg = {.request = {.session = reader},
                                   .keys = wire_view_buf(&keys),
                                   .replicas = wire_view_buf(&recs)};
    struct wire_results_reply reply;
    kit_call(&kit, 2, WIRE_REPLICA_BAD, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    base_buf_free(&keys);
    base_buf_free(&recs);
    pump();
    return wire_i32s_at(reply.results, 0);
}

static void wrong_bytes_cost_that_replica_only(void **state)
{
    (void)state;
    struct wire_replica at[4], other;
    fill_all();
    assert_int_equal(get(0, at), 2);
    end_gets();
    other = at[1];
    other.offset += VALUE;
    assert_int_equal(replica_bad("k0", other), YOLK_ERR_NOT_FOUND);
    other = at[1];
    other.segment++;
    assert_int_equal(replica_bad("k0", other), YOLK_ERR_NOT_FOUND);
    assert_int_equal(replica_bad("k0", at[0]), YOLK_ERR_NOT_FOUND); /* of memory nobody says so */
    assert_int_equal(replica_bad("none", at[1]), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).replica_bad, 0);
    assert_int_equal(replica_bad("k0", at[1]), YOLK_OK);
    assert_int_equal(replica_bad("k0", at[1]), YOLK_ERR_NOT_FOUND);
    assert_int_equal(freed[0], at[1].offset);
    assert_int_equal(get(0, at), 1);
    end_gets();
}

static void wrong_bytes_of_the_last_replica_cost_the_key(void **state)
{
    (void)state;
    struct wire_replica at[4];
    only_on_disk();
    assert_int_equal(get(0, at), 1);
    end_gets();
    assert_int_equal(replica_bad("k0", at[0]), YOLK_OK);
    assert_false(exists(0));
    assert_int_equal(put(0, VALUE), YOLK_OK); /* it can be stored again */
    assert_int_equal(kit_stats(&kit).replica_bad, 1);
}

static void eviction_of_the_disk_leaves_memory_alone(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_all();
    uint64_t count = kit_stats(&kit).offloads_done;
    assert_int_equal(get(1, at), 2); /* is being read */
    /* A value in memory is copied again and again, as far as the owner says there is room. */
    acks_disk = true;
    for (int n = 16; kit_stats(&kit).disk_evictions == 0; n++) {
        (void)put(n, VALUE);
        while (!no_task()) {
            struct task task = next_task();
            if (task.rec.kind != WIRE_TASK_OFFLOAD)
                continue;
            copied(task, count++ * VALUE);
        }
        kit_tick(&kit, 0);
        assert_true(count <= DISK / VALUE);
    }
    struct master_stats stats = kit_stats(&kit);
    assert_true(stats.disk_live_bytes <= DISK * 95 / 100);
    assert_true(stats.disk_live_bytes >= DISK * 85 / 100);
    assert_true(exists(1)); /* guarded */
    assert_false(exists(0));
    assert_int_equal(stats.offload_skipped, 0);
    end_gets();
}

/* All restart; memory and disk are offered, each with its own. */
static void both_mirrors_meet_after_a_restart_of_the_master(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_all();
    kit_new_core(&kit, NULL, 43);
    owner = kit_open(&kit, 1, 1);
    reader = kit_open(&kit, 2, 1);
    struct wire_segment_mount msg = {.request = {.session = owner},
                                     .name = wire_view_text("s"),
                                     .size = MEMORY,
                                     .generation = memory,
                                     .mirror_count = 2};
    struct wire_segment_mount_reply reply;
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    memory = reply.segment;
    disk = mount_disk(1, owner, 1, DISK, 3);
    disk_seq = 0;
    pump();
    assert_true(offer(1, owner, memory, "k0", (struct wire_offer){0, VALUE, 0}, 0));
    assert_true(offer(1, owner, disk, "k0", (struct wire_offer){0, VALUE, 7}, 0));
    assert_true(offer(1, owner, disk, "k1", (struct wire_offer){VALUE, VALUE, 8}, 0));
    assert_false(offer(1, owner, disk, "k0", (struct wire_offer){2 * VALUE, VALUE, 7}, 0));
    assert_false(offer(1, owner, disk, "k1", (struct wire_offer){3 * VALUE, 100, 7}, 1));
    assert_true(offer(1, owner, memory, "k1", (struct wire_offer){VALUE, VALUE, 0}, 1));
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[0].segment, memory);
    assert_int_equal(at[1].segment, disk);
    assert_int_equal(at[1].checksum, 7);
    assert_int_equal(get(1, at), 2);
    end_gets();
}

static int start_twins(void **state)
{
    twin_start();
    return start(state);
}

/* Another master that has the facts knows the disk, and takes up only what lies there. */
static void facts_tell_of_disks_too(void **state)
{
    (void)state;
    struct wire_replica at[4];
    only_on_disk();
    assert_true(kit_stats(&kit).memory_evictions > 0); /* one replica went, the key stayed */
    assert_int_equal(get(0, at), 1);
    end_gets();
    twin_agrees(kit.core);
    kit_on_fact = NULL;
    master_core_destroy(kit.core);
    kit.core = twin;
    reader = kit_open(&kit, 2, 1);
    owner = kit_open(&kit, 1, 1);
    disk = mount_disk(1, owner, 1, DISK, 1);
    struct wire_offer offered = {at[0].offset, VALUE, at[0].checksum};
    assert_false(exists(0));
    assert_true(offer(1, owner, disk, "k0", offered, 0));
    assert_false(offer(1, owner, disk, "new", (struct wire_offer){DISK - VALUE, VALUE, 7}, 1));
    assert_true(exists(0));
    kit_tick(&kit, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
}

static void one_replica_on_disks_is_enough(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill(0, 13);
    kit_tick(&kit, 0);
    struct task task = next_task();
    uint64_t session = kit_open(&kit, 3, 1);
    uint64_t other = mount_disk(3, session, 9, DISK, 1);
    assert_true(offer(3, session, other, "k0", (struct wire_offer){0, VALUE, 5}, 1));
    copied(task, 8192);
    assert_int_equal(freed_count, 1);
    assert_int_equal(freed[0], 8192);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[1].segment, other);
    end_gets();
}

static int start_slow(void **state)
{
    struct master_config config = {.step = 1};
    set_up(state, &config);
    return 0;
}

/* The sweep of what was not offered has not come so far: the owner's new word is the better one. */
static void a_copy_may_lie_where_something_was_before_the_mount(void **state)
{
    (void)state;
    uint64_t session;
    fill(0, 16);
    kit_tick(&kit, 100);
    for (uint64_t at = 0; !no_task(); at += VALUE)
        copied(next_task(), at);
    uint64_t before = kit_stats(&kit).disk_extents;
    assert_true(before >= 4);
    disk = take_over(&session, 0); /* it has nothing any more */
    memory = kit_mount(&kit, 3, session, MEMORY);
    pump();
    for (int n = 30; n < 46; n++)
        (void)put(n, VALUE);
    assert_true(kit_stats(&kit).disk_extents == before);
    owner_connection = 3;
    kit_tick(&kit, 0);
    struct task task = next_task();
    copied(task, (before - 1) * VALUE);
    assert_int_equal(kit_stats(&kit).disk_conflicts, 0);
    assert_int_equal(kit_stats(&kit).offloads_done, before + 1);
    for (int i = 0; i < 20; i++)
        kit_tick(&kit, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
}

/* Nothing of memory goes for want of space in the index, and nothing of a disk before its time. */
static void disks_make_room_in_a_full_index(void **state)
{
    (void)state;
    fill_all();
    for (int n = 16; kit_stats(&kit).objects < 18; n++)
        (void)put(n, VALUE);
    uint64_t only_on_disk = kit_stats(&kit).memory_evictions;
    assert_true(only_on_disk >= 2);
    for (int n = 30; n < 30 + (int)only_on_disk; n++)
        assert_int_equal(put(n, 0), YOLK_OK);
    assert_int_equal(kit_stats(&kit).objects, 18);
    assert_int_equal(kit_stats(&kit).evictions, only_on_disk);
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).disk_evictions, only_on_disk);
}

static int start_small(void **state)
{
    struct master_config config = {.max_objects = 18, .policy = &master_policy_lru};
    set_up(state, &config);
    return 0;
}

static int start_forgetful(void **state)
{
    struct master_config config = {.disk_lost_keep_ms = 2000};
    set_up(state, &config);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(a_removed_key_is_freed_on_the_disk_too),
        KIT_TEST(space_that_is_read_is_not_told_free),
        KIT_TEST(a_disk_comes_back_with_another_owner),
        KIT_TEST(an_offer_that_comes_again_revives_nothing),
        KIT_TEST(a_disk_is_remembered_after_its_owner_closed),
        KIT_TEST(a_hot_key_comes_back_to_memory),
        KIT_TEST(asking_for_a_key_and_pinning_it_do_not_warm_it),
        KIT_TEST(a_failed_promotion_leaves_nothing_behind),
        KIT_TEST(a_promotion_that_finds_wrong_bytes_drops_them),
        KIT_TEST(a_key_removed_while_it_is_promoted_stays_removed),
        KIT_TEST(wrong_bytes_cost_that_replica_only),
        KIT_TEST(wrong_bytes_of_the_last_replica_cost_the_key),
        KIT_TEST(eviction_of_the_disk_leaves_memory_alone),
        KIT_TEST(both_mirrors_meet_after_a_restart_of_the_master),
        cmocka_unit_test_setup_teardown(facts_tell_of_disks_too, start_twins, kit_stop),
        KIT_TEST(one_replica_on_disks_is_enough),
        cmocka_unit_test_setup_teardown(a_copy_may_lie_where_something_was_before_the_mount,
                                        start_slow, kit_stop),
        cmocka_unit_test_setup_teardown(disks_make_room_in_a_full_index, start_small, kit_stop),
        cmocka_unit_test_setup_teardown(a_disk_that_was_forgotten_is_not_believed, start_forgetful,
                                        kit_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
