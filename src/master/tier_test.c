/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves memory is on the disk, whatever becomes of the copies. */
#include "master/tier_kit.h"

static void what_is_above_the_watermark_is_copied_ahead(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill(0, 11);
    kit_tick(&kit, 0);
    assert_true(no_task()); /* 11 of 16 */
    fill(11, 13);
    kit_tick(&kit, 0);
    struct task task = next_task();
    assert_string_equal(task.key, "k0"); /* the least recently used */
    assert_int_equal(task.rec.kind, WIRE_TASK_OFFLOAD);
    assert_int_equal(task.rec.size, VALUE);
    assert_int_equal(task.memory, memory);
    assert_int_equal(task.disk, disk);
    assert_int_equal(task.floor, task.rec.id);
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].offset, task.rec.offset);
    end_gets();
    assert_int_equal(kit_stats(&kit).tasks, 2);
    copied(task, 8192);
    assert_int_equal(kit_stats(&kit).tasks, 2); /* it was read: another is to go before it */
    assert_int_equal(kit_stats(&kit).offloads_done, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_MEMORY);
    assert_int_equal(at[0].segment, memory);
    assert_int_equal(at[1].medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(at[1].segment, disk);
    assert_int_equal(at[1].offset, 8192);
    assert_int_equal(at[1].checksum, 8199);
    end_gets();
    copied(next_task(), 0);
    copied(next_task(), 4096);
    assert_int_equal(kit_stats(&kit).tasks, 0);
}

static void memory_goes_when_the_disk_has_it(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_all();
    assert_true(kit_stats(&kit).offloads_done >= 4);
    for (int n = 16; n < 40; n++) {
        int status = put(n, VALUE);
        for (int tries = 0; status == YOLK_ERR_NO_SPACE && tries < 10; tries++) {
            while (!no_task()) {
                struct task task = next_task();
                copied(task, task.rec.id * VALUE);
            }
            status = put(n, VALUE);
        }
        assert_int_equal(status, YOLK_OK);
        kit_tick(&kit, 0);
        pump();
    }
    for (int n = 0; n < 40; n++)
        assert_true(exists(n));
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(get(39, at), 1);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_MEMORY);
    end_gets();
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.evictions, 0);
    assert_true(stats.memory_evictions >= 24);
    assert_int_equal(stats.offload_skipped, 0);
    assert_int_equal(stats.get_hits_disk, 1);
    assert_int_equal(stats.get_hits_memory, 1);
}

/* Memory is full of 16 keys and nothing is on the disk; two copies were asked for. */
static void fill_unanswered(void)
{
    fill(0, 16);
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(task_count, 2); /* an eighth of the memory at a time */
    assert_int_equal(kit_stats(&kit).tasks, 2);
}

static void a_disk_that_does_not_answer_is_waited_for_so_long(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    assert_int_equal(put_within(16, 1800), YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_stats(&kit).evictions, 0);
    assert_int_equal(put_within(16, 400), YOLK_OK);
    assert_int_equal(kit_stats(&kit).offload_skipped, kit_stats(&kit).evictions);
    assert_true(kit_stats(&kit).evictions > 0);
    assert_true(exists(0)); /* what is being copied stays */
    assert_true(exists(1));
    assert_false(exists(2));
    assert_int_equal(put_within(17, 100), YOLK_OK); /* and is not waited for again */
    uint64_t skipped = kit_stats(&kit).offload_skipped;
    task_count = 0;
    copied(first, 0); /* until it answers */
    copied(second, VALUE);
    assert_int_equal(put_within(18, 1800), YOLK_ERR_NO_SPACE);
    copied(next_task(), 2 * VALUE);
    assert_int_equal(put_within(18, 100), YOLK_OK);
    assert_int_equal(kit_stats(&kit).offload_skipped, skipped);
    assert_int_equal(kit_stats(&kit).memory_evictions, 1);
}

static void a_failing_disk_is_tried_again_after_a_pause(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    answer(first.rec.id, YOLK_ERR_IO, 0, 0, 0);
    answer(second.rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).offloads_failed, 2);
    assert_int_equal(kit_stats(&kit).tasks, 0);
    assert_int_equal(kit_stats(&kit).disks_failing, 1);
    assert_int_equal(kit_stats(&kit).disks_full, 0);
    assert_true(no_task());
    assert_int_equal(put(16, VALUE), YOLK_ERR_NO_SPACE); /* nothing is dropped yet */
    assert_true(no_task());
    kit_pass(&kit, 300, owner, reader);
    struct task again = next_task();
    assert_true(again.rec.id > second.rec.id);
    assert_true(strcmp(again.key, "k0") == 0 || strcmp(again.key, "k1") == 0);
    copied(again, 0);
    assert_int_equal(kit_stats(&kit).disks_failing, 0);
    assert_int_equal(kit_stats(&kit).evictions, 0);
    assert_int_equal(put_within(16, 100), YOLK_OK);
    assert_int_equal(kit_stats(&kit).evictions, 0);
}

static void a_disk_that_keeps_failing_costs_memory_nothing(void **state)
{
    (void)state;
    fill_unanswered();
    uint32_t done = 0;
    for (int n = 16; n < 60; n++) {
        int status = put(n, VALUE);
        for (int i = 0; i < 40 && status == YOLK_ERR_NO_SPACE; i++) {
            while (!no_task()) {
                answer(next_task().rec.id, YOLK_ERR_IO, 0, 0, 0);
                done++;
            }
            kit_pass(&kit, 100, owner, reader);
            status = put(n, VALUE);
        }
        assert_int_equal(status, YOLK_OK);
    }
    assert_true(done > 2 && done < 40);
    assert_int_equal(kit_stats(&kit).evictions, kit_stats(&kit).offload_skipped);
}

static void a_full_disk_makes_room_and_is_asked_again(void **state)
{
    (void)state;
    fill_all();
    uint64_t on_disk = kit_stats(&kit).offloads_done;
    assert_int_equal(kit_stats(&kit).disk_extents, on_disk);
    for (int n = 16; task_count == 0; n++) { /* until what is clean is used up */
        (void)put(n, VALUE);
        pump();
    }
    struct task task = next_task();
    acks_disk = false;
    answer(task.rec.id, YOLK_ERR_NO_SPACE, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).offloads_no_space, 1);
    assert_int_equal(kit_stats(&kit).disks_full, 1);
    assert_true(kit_stats(&kit).disk_evictions >= 2);
    assert_int_equal(freed_count, kit_stats(&kit).disk_evictions);
    assert_int_equal(freed[0], 0); /* k0 lay there, longest unused */
    assert_false(exists(0));
    assert_true(exists(4));
    uint32_t others = task_count;
    assert_int_equal(put(60, VALUE), YOLK_ERR_NO_SPACE);
    assert_int_equal(task_count, others); /* not before some is free */
    struct wire_facts_ack ack = {disk, disk_seq};
    kit_raw(&kit, 1, WIRE_FACTS_ACK, 0, &ack);
    pump();
    assert_true(task_count > others);
    assert_string_equal(tasks[others].key, task.key);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
}

static void what_an_empty_disk_cannot_take_stays_in_memory_only(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    answer(first.rec.id, YOLK_ERR_NO_SPACE, 0, 0, 0);
    answer(second.rec.id, YOLK_ERR_TOO_LARGE, 0, 0, 0);
    struct task third = next_task();
    assert_string_equal(third.key, "k2"); /* nothing has to pause */
    assert_int_equal(put_within(16, 100), YOLK_OK);
    assert_int_equal(kit_stats(&kit).offload_skipped, 1);
    assert_int_equal(exists(0) + exists(1), 1);
}

static void an_answer_that_overtook_an_acknowledgement_counts_later(void **state)
{
    (void)state;
    acks_disk = false;
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    struct task second = next_task();
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k0"), YOLK_OK);
    pump();
    assert_int_equal(freed[0], 0);
    copied(second, 0); /* where k0 lay */
    assert_int_equal(kit_stats(&kit).tasks, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 0);
    struct wire_facts_ack ack = {disk, disk_seq};
    kit_raw(&kit, 1, WIRE_FACTS_ACK, 0, &ack);
    kit_pass(&kit, 1500, owner, reader);
    struct task again = next_task();
    assert_int_equal(again.rec.id, second.rec.id);
    copied(again, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
    assert_int_equal(kit_stats(&kit).tasks, 0);
    assert_int_equal(freed_count, 1);
}

static void an_answer_counts_once_and_only_if_it_can_be_true(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    answer(first.rec.id + 100, YOLK_OK, 0, VALUE, 1);
    copied(first, 0);
    copied(first, VALUE);
    answer(first.rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).offloads_done, 1);
    assert_int_equal(kit_stats(&kit).offloads_failed, 0);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[1].offset, 0);
    end_gets();
    struct {
        uint64_t offset, size;
    } wrong[] = {
        {0, VALUE},
        {VALUE + 64, VALUE},
        {VALUE, 2 * VALUE},
        {VALUE, 64},
        {DISK, VALUE},
        {DISK - VALUE, 2 * VALUE},
        {UINT64_MAX - VALUE + 1, VALUE},
        {VALUE, 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        answer(second.rec.id, YOLK_OK, wrong[i].offset, wrong[i].size, 9);
        assert_int_equal(kit_stats(&kit).disk_conflicts, i + 1);
        assert_int_equal(kit_stats(&kit).disk_extents, 1);
        task_count = 0;
        kit_pass(&kit, 6000, owner, reader); /* it is a failure like others */
        pump();
        assert_true(task_count > 0);
        second = tasks[task_count - 1];
    }
}

static void an_unanswered_task_is_said_again(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task();
    task_count = 0;
    kit_pass(&kit, 900, owner, reader);
    assert_true(no_task());
    kit_pass(&kit, 200, owner, reader);
    struct task again = next_task();
    assert_int_equal(again.rec.id, first.rec.id);
    assert_int_equal(again.rec.offset, first.rec.offset);
    assert_string_equal(again.key, first.key);
    task_count = 0;
    /* The owner comes by another connection: at once. */
    struct wire_plain_request beat = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_call(&kit, 9, WIRE_HEARTBEAT, &beat, &reply);
    again = next_task();
    assert_int_equal(again.rec.id, first.rec.id);
    copied(again, 0); /* by the old one: nobody's word */
    assert_int_equal(kit_stats(&kit).offloads_done, 0);
}

static void what_is_being_copied_is_not_leased(void **state)
{
    (void)state;
    fill_unanswered();
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "k0"), YOLK_OK);
    assert_int_equal(kit_stats(&kit).limbo_bytes, VALUE); /* the owner still reads it */
    answer(tasks[0].rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
}

/* The disk goes and the memory stays: its owner may go on with what it has begun. */
static void memory_is_not_reused_under_a_task_whose_disk_went(void **state)
{
    (void)state;
    fill_unanswered();
    struct wire_segment_unmount unmount = {.request = {.session = owner}, .segment = disk};
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &unmount);
    assert_int_equal(kit_stats(&kit).tasks, 0);
    for (int n = 0; n < 16; n++)
        (void)kit_force_remove(&kit, 2, reader, name_of(n));
    pump();
    assert_int_equal(kit_stats(&kit).limbo_bytes, 2 * VALUE);
    copied(tasks[0], 0);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 2 * VALUE);
    assert_int_equal(kit_stats(&kit).disk_extents, 0);
    struct wire_segment_mount msg = {.request = {.session = owner, .op = 77},
                                     .name = wire_view_text("s"),
                                     .size = MEMORY,
                                     .generation = memory};
    memcpy(msg.prior_master, master_core_instance(kit.core), WIRE_ID_SIZE);
    struct wire_segment_mount_reply reply;
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
}

/* What was clean by the disk that went is copied to the next one before it goes. */
static void another_disk_takes_the_place_of_one_that_went(void **state)
{
    (void)state;
    fill_all();
    struct wire_segment_unmount unmount = {.request = {.session = owner}, .segment = disk};
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &unmount);
    kit_tick(&kit, 0);
    struct master_stats before = kit_stats(&kit);
    uint64_t clean = before.offloads_done - before.memory_evictions;
    assert_true(clean > 0);
    disk = mount_disk(1, owner, 2, DISK, 0);
    disk_seq = 0;
    kit_tick(&kit, 0);
    pump();
    for (uint64_t at = 0; !no_task(); at += VALUE) {
        struct task task = next_task();
        assert_int_equal(task.disk, disk);
        copied(task, at);
    }
    assert_int_equal(kit_stats(&kit).offloads_done, before.offloads_done + clean);
    for (int n = 16; kit_stats(&kit).memory_evictions < before.memory_evictions + clean; n++)
        (void)put(n, VALUE);
    assert_int_equal(kit_stats(&kit).evictions, 0);
    for (int n = (int)before.memory_evictions; n < 16; n++)
        assert_true(exists(n));
}

/* Without a disk memory is as it was without one. */
static void a_disk_that_went_is_not_waited_for(void **state)
{
    (void)state;
    fill_all();
    struct wire_segment_unmount unmount = {.request = {.session = owner}, .segment = disk};
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &unmount);
    kit_tick(&kit, 0);
    for (int n = 16; n < 40; n++)
        assert_int_equal(put_within(n, 100), YOLK_OK);
    assert_true(no_task());
    assert_int_equal(kit_stats(&kit).offload_skipped, 0);
    assert_false(exists(20));
}

static void unmount_memory(uint64_t grace_ms)
{
    struct wire_segment_unmount msg = {
        .request = {.session = owner}, .segment = memory, .grace_ms = grace_ms};
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &msg);
    pump();
}

/* A node that is stopped in order takes nothing with it. */
static void memory_that_is_given_up_is_copied_before(void **state)
{
    (void)state;
    fill(0, 10);
    assert_true(exists(3)); /* leased by a probe */
    uint32_t replies = kit.replies;
    unmount_memory(4000);
    unmount_memory(4000); /* said again */
    assert_int_equal(put_within(20, 0), YOLK_ERR_NO_SPACE);
    for (uint64_t at = 0; at < 10 * VALUE; at += VALUE) {
        assert_int_equal(kit.replies, replies + 1); /* that to the put */
        copied(next_task(), at);
    }
    assert_true(no_task());
    kit_tick(&kit, 100);
    assert_int_equal(kit.reply.kind, WIRE_SEGMENT_UNMOUNT_REPLY);
    for (int n = 0; n < 10; n++)
        assert_true(exists(n));
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 10 * VALUE);
    assert_int_equal(kit_stats(&kit).live_bytes, 0);
}

static void memory_that_is_given_up_waits_for_no_dead_disk(void **state)
{
    (void)state;
    fill(0, 10);
    unmount_memory(4000);
    struct task first = next_task(), second = next_task();
    kit_pass(&kit, 2500, owner, reader);
    assert_true(exists(5));
    kit_pass(&kit, 1000, owner, reader); /* three quarters are over */
    assert_int_equal(kit_stats(&kit).capacity_bytes, 0);
    assert_false(exists(5));
    copied(first, 0);
    copied(second, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 0);
}

static void memory_that_is_given_up_does_not_wait_for_a_failing_disk(void **state)
{
    (void)state;
    fill(0, 10);
    unmount_memory(4000);
    answer(next_task().rec.id, YOLK_ERR_IO, 0, 0, 0);
    answer(next_task().rec.id, YOLK_ERR_IO, 0, 0, 0);
    kit_tick(&kit, 100);
    assert_int_equal(kit_stats(&kit).capacity_bytes, 0);
}

/* How long a disk made no copy counts from when one was wanted, not from long ago. */
static void an_idle_disk_is_waited_for_again(void **state)
{
    (void)state;
    fill(0, 13);
    kit_tick(&kit, 0);
    answer(next_task().rec.id, YOLK_ERR_TOO_LARGE, 0, 0, 0);
    answer(next_task().rec.id, YOLK_ERR_TOO_LARGE, 0, 0, 0);
    assert_true(no_task());
    kit_pass(&kit, 9000, owner, reader);
    for (int n = 13; task_count == 0; n++)
        (void)put(n, VALUE); /* those two go */
    assert_int_equal(put_within(40, 1800), YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_stats(&kit).evictions, 2);
}

static bool admits_nothing(void *order, const struct master_object *object)
{
    (void)order;
    (void)object;
    return false;
}

static struct master_policy picky;

static int start_picky(void **state)
{
    picky = master_policy_lru;
    picky.admits = admits_nothing;
    /* The disk is short from its fourth value on. */
    struct master_config config = {.policy = &picky, .eviction_ratio = 0.9};
    set_up(state, &config);
    return 0;
}

static void what_the_policy_does_not_want_on_a_full_disk_just_goes(void **state)
{
    (void)state;
    fill(0, 16);
    for (int n = 16; n < 24; n++) {
        int status = put(n, VALUE);
        for (int i = 0; i < 5 && status == YOLK_ERR_NO_SPACE; i++) {
            while (!no_task()) {
                struct task task = next_task();
                copied(task, task.rec.id * VALUE);
            }
            status = put(n, VALUE);
        }
        assert_int_equal(status, YOLK_OK);
    }
    struct master_stats stats = kit_stats(&kit);
    assert_true(stats.disk_live_bytes >= 4 * VALUE && stats.disk_live_bytes <= 6 * VALUE);
    assert_true(stats.offload_refused > 0);
    assert_int_equal(stats.evictions, stats.offload_refused);
    assert_int_equal(stats.disk_evictions, 0);
    assert_int_equal(stats.offload_skipped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(what_is_above_the_watermark_is_copied_ahead),
        KIT_TEST(memory_goes_when_the_disk_has_it),
        KIT_TEST(a_disk_that_does_not_answer_is_waited_for_so_long),
        KIT_TEST(a_failing_disk_is_tried_again_after_a_pause),
        KIT_TEST(a_disk_that_keeps_failing_costs_memory_nothing),
        KIT_TEST(a_full_disk_makes_room_and_is_asked_again),
        KIT_TEST(what_an_empty_disk_cannot_take_stays_in_memory_only),
        KIT_TEST(an_answer_that_overtook_an_acknowledgement_counts_later),
        KIT_TEST(an_answer_counts_once_and_only_if_it_can_be_true),
        KIT_TEST(an_unanswered_task_is_said_again),
        KIT_TEST(an_idle_disk_is_waited_for_again),
        KIT_TEST(what_is_being_copied_is_not_leased),
        KIT_TEST(memory_is_not_reused_under_a_task_whose_disk_went),
        KIT_TEST(another_disk_takes_the_place_of_one_that_went),
        KIT_TEST(a_disk_that_went_is_not_waited_for),
        cmocka_unit_test_setup_teardown(what_the_policy_does_not_want_on_a_full_disk_just_goes,
                                        start_picky, kit_stop),
        KIT_TEST(memory_that_is_given_up_is_copied_before),
        KIT_TEST(memory_that_is_given_up_waits_for_no_dead_disk),
        KIT_TEST(memory_that_is_given_up_does_not_wait_for_a_failing_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
