/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tier_kit.h"

static void offloads_and_promotes(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 8);
    uint64_t at = offloaded(&f, 1, 100, 10000);
    struct storage_extent extent;
    assert_int_equal(storage_find(f.storage, "k1", 2, &extent), YOLK_OK);
    assert_int_equal(extent.offset, at);
    assert_int_equal(extent.size, 10000);
    uint32_t crc = base_crc32c(0, f.memory + 100, 10000);
    assert_int_equal(extent.checksum, crc);

    promote(&f, 2, "k1", 65536, 10000, at, crc);
    run(&f);
    expect_failed(&f, 2, YOLK_OK);
    assert_memory_equal(f.memory + 65536, f.memory + 100, 10000);
    promote(&f, 3, "k1", 131072, 10000, at, crc ^ 1);
    run(&f);
    expect_failed(&f, 3, YOLK_ERR_CORRUPT);
    promote(&f, 4, "other", 131072, 10000, at, crc); /* not what lies there */
    run(&f);
    expect_failed(&f, 4, YOLK_ERR_STALE);
    promote(&f, 5, "k1", MEMORY - 9999, 10000, at, crc); /* over the end of the memory */
    run(&f);
    expect_failed(&f, 5, YOLK_ERR_INVALID);
    assert_int_equal(f.reads, 3);
    struct store_tier_stats stats;
    store_tier_stats(f.tier, &stats);
    assert_int_equal(stats.offloads, 1);
    assert_int_equal(stats.offload_bytes, 10000);
    assert_int_equal(stats.promotes, 1);
    assert_int_equal(stats.promotes_failed, 3);
    assert_int_equal(stats.corrupt, 1);
    finish(&f);
}

static void a_task_is_done_once(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 8);
    uint64_t at = offloaded(&f, 5, 0, 4096);
    offload(&f, 5, 0, 4096);
    run(&f);
    assert_int_equal(expect_offloaded(&f, 5, 0, 4096), at);
    assert_int_equal(f.writes, 1);
    f.hold_moves = 1;
    offload(&f, 6, 4096, 4096);
    offload(&f, 6, 4096, 4096);
    run(&f);
    assert_int_equal(f.move_count, 1);
    f.hold_moves = 0;
    perform_move(&f, &f.moves[0]);
    run(&f);
    (void)expect_offloaded(&f, 6, 4096, 4096);

    /* A floor forgets what lies below, and refuses it. */
    add_task(&f, WIRE_TASK_OFFLOAD, 8, 8192, 4096);
    push_tasks(&f, 10, 20, 7);
    run(&f);
    (void)expect_offloaded(&f, 8, 8192, 4096);
    add_task(&f, WIRE_TASK_OFFLOAD, 6, 4096, 4096);
    push_tasks(&f, 10, 20, 3);
    add_task(&f, WIRE_TASK_OFFLOAD, 7 + STORE_TIER_WINDOW, 4096, 4096);
    push_tasks(&f, 10, 20, 7);
    add_task(&f, WIRE_TASK_OFFLOAD, 9, 4096, 4096);
    push_tasks(&f, 11, 20, 7);
    add_task(&f, WIRE_TASK_OFFLOAD, 9, 4096, 4096);
    push_tasks(&f, 10, 21, 7);
    store_tier_mounted(f.tier, 10, 22);
    add_task(&f, WIRE_TASK_OFFLOAD, 1, 4096, 4096); /* the extents are not offered yet */
    push_tasks(&f, 10, 22, 1);
    run(&f);
    assert_int_equal(f.sent_count, 0);
    assert_int_equal(f.writes, 3);
    struct store_tier_stats stats;
    store_tier_stats(f.tier, &stats);
    assert_int_equal(stats.tasks_refused, 5);
    store_tier_offered(f.tier);
    add_task(&f, WIRE_TASK_OFFLOAD, 1, 4096, 4096);
    push_tasks(&f, 10, 22, 1);
    run(&f);
    (void)expect_offloaded(&f, 1, 4096, 4096);
    finish(&f);
}

static void moves_at_a_time(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 3);
    f.hold_moves = 1;
    for (uint64_t id = 1; id <= 5; id++)
        offload(&f, id, id * 4096, 4096);
    run(&f);
    assert_int_equal(f.move_count, 3); /* depth */
    f.hold_moves = 0;
    for (int i = 0; i < 3; i++)
        perform_move(&f, &f.moves[i]);
    run(&f);
    assert_int_equal(f.sent_count, 5);
    f.sent_count = 0;

    f.hold_moves = 1;
    f.move_count = 0;
    for (uint64_t id = 11; id <= 13; id++)
        offload(&f, id, 0, 33000); /* two are over 64 KiB */
    run(&f);
    assert_int_equal(f.move_count, 1);
    f.hold_moves = 0;
    perform_move(&f, &f.moves[0]);
    offload(&f, 14, 0, 200000); /* one always may */
    run(&f);
    assert_int_equal(f.sent_count, 4);
    finish(&f);
}

static void freed_space_is_acknowledged_when_it_is_durable(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 8);
    uint64_t a = offloaded(&f, 1, 0, 4096);
    uint64_t b = offloaded(&f, 2, 4096, 4096);
    uint64_t c = offloaded(&f, 3, 8192, 4096);
    run_on(&f); /* those are synced */
    int syncs = f.syncs;
    freed(&f, 2, &c, 1); /* one is missing before it */
    freed(&f, 1, &a, 1);
    run(&f);
    assert_int_equal(f.sent_count, 0); /* journaled, not synced */
    f.hold_sync = 1;
    f.now += 100 * MS;
    run(&f);
    assert_int_equal(f.sync_held, 1);
    assert_int_equal(f.sent_count, 0);
    f.hold_sync = 0;
    assert_int_equal(file_fdatasync(storage_file(f.storage)), YOLK_OK);
    store_tier_synced(f.tier, f.now, YOLK_OK);
    run(&f);
    assert_int_equal(f.sent_count, 1);
    assert_int_equal(f.sent[0].ack, 1);
    assert_int_equal(f.syncs, syncs);

    /* A reader keeps it; what is freed after it waits too: acknowledgements are of all before. */
    assert_int_equal(storage_lease(f.storage, b, 4096, base_hash64("k2", 2)), YOLK_OK);
    freed(&f, 2, &b, 1);
    freed(&f, 3, &c, 1);
    run_on(&f);
    assert_int_equal(f.sent_count, 1);
    storage_unlease(f.storage, b);
    run(&f);
    assert_int_equal(f.sent_count, 2);
    assert_int_equal(f.sent[1].ack, 3);

    freed(&f, 2, &b, 1); /* again: the answer may be lost */
    run(&f);
    assert_int_equal(f.sent_count, 3);
    assert_int_equal(f.sent[2].ack, 3);
    uint64_t nothing = 77 * 4096;
    freed(&f, 4, &nothing, 1);
    run(&f);
    assert_int_equal(f.sent[3].ack, 4);
    struct storage_stats stats;
    storage_stats(f.storage, &stats);
    assert_int_equal(stats.free_bytes, CAPACITY);
    finish(&f);
}

/* Space is free here before the master knows: it must hear of that before it hears of its next use.
 */
static void the_next_use_is_told_after_the_freeing(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 8);
    uint64_t places[4];
    for (uint64_t i = 0; i < 4; i++)
        places[i] = offloaded(&f, 1 + i, 0, CAPACITY / 4 > MEMORY ? MEMORY : CAPACITY / 4);
    assert_int_equal(storage_lease(f.storage, places[1], MEMORY, base_hash64("k2", 2)), YOLK_OK);
    freed(&f, 1, places, 2);
    run_on(&f); /* the first is free, the second is being read */
    assert_int_equal(f.sent_count, 0);
    offload(&f, 9, 0, CAPACITY / 4 > MEMORY ? MEMORY : CAPACITY / 4);
    run(&f);
    run_on(&f);
    assert_int_equal(f.sent_count, 0);
    assert_int_equal(f.writes, 5);
    storage_unlease(f.storage, places[1]);
    run(&f);
    assert_int_equal(f.sent_count, 2);
    assert_int_equal(f.sent[0].kind, WIRE_FACTS_ACK);
    assert_int_equal(f.sent[0].ack, 1);
    assert_int_equal(f.sent[1].kind, WIRE_TASKS_DONE);
    assert_int_equal(f.sent[1].done.id, 9);
    assert_int_equal(f.sent[1].done.status, YOLK_OK);
    finish(&f);
}

static void a_full_disk(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 8);
    uint64_t places[4];
    for (uint64_t i = 0; i < 4; i++)
        places[i] = offloaded(&f, 1 + i, 0, MEMORY);
    offload(&f, 5, 0, 4096);
    run(&f);
    expect_failed(&f, 5, YOLK_ERR_NO_SPACE);
    /* With a delete under way it waits for that, and has it synced at once. */
    uint64_t before = f.now;
    freed(&f, 1, places, 1);
    offload(&f, 6, 0, 4096);
    run(&f);
    assert_int_equal(f.now, before);
    assert_int_equal(f.sent_count, 2);
    assert_int_equal(f.sent[0].kind, WIRE_FACTS_ACK);
    assert_int_equal(f.sent[1].done.id, 6);
    assert_int_equal(f.sent[1].done.status, YOLK_OK);
    f.sent_count = 0;
    /* Not for ever: a reader may keep what is deleted. */
    offload(&f, 7, 0, MEMORY - 4096);
    run(&f);
    (void)expect_offloaded(&f, 7, 0, MEMORY - 4096);
    assert_int_equal(storage_lease(f.storage, places[1], MEMORY, base_hash64("k2", 2)), YOLK_OK);
    freed(&f, 2, places + 1, 1);
    offload(&f, 8, 0, 4096);
    run(&f);
    expect_failed(&f, 8, YOLK_ERR_NO_SPACE);
    storage_unlease(f.storage, places[1]);
    finish(&f);
}

static void a_mount_ends(void **state)
{
    (void)state;
    struct fixture f;
    struct storage_stats stats;
    begin(&f, 8);
    uint64_t at = offloaded(&f, 1, 0, 4096);
    uint32_t crc = base_crc32c(0, f.memory, 4096);
    f.hold_moves = 1;
    offload(&f, 2, 4096, 4096);
    promote(&f, 3, "k1", 8192, 4096, at, crc);
    run(&f);
    assert_int_equal(f.move_count, 2);
    assert_int_equal(store_tier_memory_writes(f.tier), 1);
    offload(&f, 4, 4096, 4096);
    store_tier_unmount(f.tier);
    assert_int_equal(store_tier_memory_writes(f.tier), 1);
    assert_false(store_tier_is_quiet(f.tier));
    perform_move(&f, &f.moves[0]);
    perform_move(&f, &f.moves[1]);
    assert_int_equal(store_tier_memory_writes(f.tier), 0);
    run(&f);
    assert_true(store_tier_is_quiet(f.tier));
    assert_int_equal(f.move_count, 2);
    assert_int_equal(f.sent_count, 0);
    f.now += 100 * MS;
    run(&f);
    storage_stats(f.storage, &stats);
    assert_int_equal(stats.committed, 1);
    assert_int_equal(stats.handles, 0);
    assert_int_equal(stats.free_bytes, CAPACITY - 4096);
    /* The next one knows nothing of it: ids and seqs begin anew. */
    f.hold_moves = 0;
    store_tier_mounted(f.tier, 10, 20);
    store_tier_offered(f.tier);
    (void)offloaded(&f, 2, 0, 4096);
    freed(&f, 1, &at, 1);
    run_on(&f);
    assert_int_equal(f.sent[0].ack, 1);
    finish(&f);
}

/* The mount ends while the record of an extent is being written: it was given up all the same. */
static void given_up_before_its_record(void **state)
{
    (void)state;
    struct fixture f;
    struct store_tier_output output;
    struct storage_stats stats;
    begin(&f, 8);
    offload(&f, 1, 0, 4096);
    store_tier_next(f.tier, f.now, &output);
    assert_int_equal(output.kind, STORE_TIER_WRITE);
    perform_move(&f, &output);
    store_tier_next(f.tier, f.now, &output);
    assert_int_equal(output.kind, STORE_TIER_JOURNAL);
    store_tier_unmount(f.tier);
    assert_int_equal(
        file_pwrite(storage_file(f.storage), output.data, output.data_size, output.file_offset),
        YOLK_OK);
    store_tier_journaled(f.tier, f.now, YOLK_OK);
    run_on(&f);
    f.now += 100 * MS;
    run(&f);
    storage_stats(f.storage, &stats);
    assert_int_equal(stats.committed, 0);
    assert_int_equal(stats.handles, 0);
    assert_int_equal(stats.free_bytes, CAPACITY);
    assert_int_equal(f.sent_count, 0);
    finish(&f);
}

/* Moves whose end nobody will ever know. */
static void stuck_moves(void **state)
{
    (void)state;
    struct fixture f;
    struct storage_stats stats;
    begin(&f, 8);
    uint64_t at = offloaded(&f, 1, 0, 4096);
    f.hold_moves = 1;
    offload(&f, 2, 4096, 4096);
    promote(&f, 3, "k1", 8192, 4096, at, base_crc32c(0, f.memory, 4096));
    run_on(&f);
    assert_int_equal(f.move_count, 2);
    assert_false(store_tier_is_quiet(f.tier));
    store_tier_stuck(f.tier, f.moves[0].move);
    assert_false(store_tier_is_quiet(f.tier));
    store_tier_stuck(f.tier, f.moves[1].move);
    assert_true(store_tier_is_quiet(f.tier));
    assert_int_equal(store_tier_memory_writes(f.tier), 1);
    run(&f);
    assert_int_equal(f.sent_count, 0);
    f.hold_moves = 0;
    (void)offloaded(&f, 4, 0, 4096);
    store_tier_unmount(f.tier);
    assert_int_equal(store_tier_memory_writes(f.tier), 1);
    storage_stats(f.storage, &stats);
    assert_int_equal(stats.free_bytes, CAPACITY - 3 * 4096);
    store_tier_destroy(f.tier);
    f.tier = NULL;
    storage_abandon(f.storage);
    f.storage = NULL;
    finish(&f);
}

static void a_failing_disk(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 8);
    /* One write: its task. */
    f.fail_writes = 1;
    offload(&f, 1, 0, 4096);
    run(&f);
    expect_failed(&f, 1, YOLK_ERR_IO);
    assert_null(store_tier_off(f.tier));
    (void)offloaded(&f, 2, 0, 4096);
    /* Three in a row: a pause, in which nothing is tried. */
    f.fail_writes = 4;
    for (uint64_t id = 3; id <= 5; id++) {
        offload(&f, id, 0, 4096);
        run(&f);
        expect_failed(&f, id, YOLK_ERR_IO);
    }
    assert_string_equal(store_tier_off(f.tier), "writing a value failed: input/output failed");
    offload(&f, 6, 0, 4096);
    run(&f);
    expect_failed(&f, 6, YOLK_ERR_IO);
    assert_int_equal(f.fail_writes, 1);
    /* Then one is tried, and the next pause is longer. */
    f.now += 1001 * MS;
    offload(&f, 7, 0, 4096);
    run(&f);
    expect_failed(&f, 7, YOLK_ERR_IO);
    assert_int_equal(f.fail_writes, 0);
    f.now += 1001 * MS;
    offload(&f, 8, 0, 4096);
    run(&f);
    expect_failed(&f, 8, YOLK_ERR_IO);
    f.now += 1000 * MS;
    offload(&f, 9, 0, 4096);
    offload(&f, 10, 4096, 4096);
    run(&f);
    assert_int_equal(f.sent_count, 2);
    assert_int_equal(f.sent[0].done.status, YOLK_OK);
    assert_int_equal(f.sent[1].done.status, YOLK_OK);
    assert_null(store_tier_off(f.tier));
    finish(&f);
}

static void a_failing_journal(void **state)
{
    (void)state;
    struct fixture f;
    struct storage_stats stats;
    begin(&f, 8);
    uint64_t at = offloaded(&f, 1, 0, 4096);
    run_on(&f);
    f.fail_journals = 2;
    offload(&f, 2, 4096, 4096);
    run(&f);
    expect_failed(&f, 2, YOLK_ERR_IO);
    assert_non_null(store_tier_off(f.tier));
    offload(&f, 3, 4096, 4096);
    run(&f);
    expect_failed(&f, 3, YOLK_ERR_IO);
    /* Reads go on, and deletes are kept for later. */
    promote(&f, 4, "k1", 8192, 4096, at, base_crc32c(0, f.memory, 4096));
    run(&f);
    expect_failed(&f, 4, YOLK_OK);
    freed(&f, 1, &at, 1);
    run(&f);
    assert_int_equal(f.sent_count, 0);
    int journals = f.journals;
    run_on(&f); /* the second failure */
    assert_int_equal(f.journals, journals + 1);
    assert_non_null(store_tier_off(f.tier));
    run_on(&f);
    assert_null(store_tier_off(f.tier));
    assert_int_equal(f.sent_count, 1);
    assert_int_equal(f.sent[0].ack, 1);
    f.sent_count = 0;
    (void)offloaded(&f, 5, 4096, 4096);
    run_on(&f);
    storage_stats(f.storage, &stats);
    assert_int_equal(stats.committed, 1);
    assert_int_equal(stats.free_bytes, CAPACITY - 4096);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offloads_and_promotes),
        cmocka_unit_test(a_task_is_done_once),
        cmocka_unit_test(moves_at_a_time),
        cmocka_unit_test(freed_space_is_acknowledged_when_it_is_durable),
        cmocka_unit_test(the_next_use_is_told_after_the_freeing),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_mount_ends),
        cmocka_unit_test(given_up_before_its_record),
        cmocka_unit_test(stuck_moves),
        cmocka_unit_test(a_failing_disk),
        cmocka_unit_test(a_failing_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
