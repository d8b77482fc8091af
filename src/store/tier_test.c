/* SPDX-License-Identifier: Apache-2.0 */
/* The machine over a real extent file in a simulated file system; the master is scripted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/limits.h"
#include "storage/storage.h"
#include "store/tier.h"
#include "wire/msg.h"

#define MS       NS_PER_MS
#define MEMORY   (256u * 1024)
#define CAPACITY (1024u * 1024)

enum { MOVES_MAX = 64, MESSAGES_MAX = 32 };

struct fixture {
    struct file_sim *sim;
    struct storage *storage;
    struct store_tier *tier;
    uint8_t *memory;
    uint64_t now;
    struct base_buf recs, keys, body;
    /* Not performed but kept, when set. */
    int hold_moves, hold_sync;
    struct store_tier_output moves[MOVES_MAX];
    size_t move_count;
    int sync_held;
    /* The next ones of a kind fail so. */
    int fail_writes, fail_journals;
    int writes, reads, journals, syncs; /* performed */
    /* What was sent, in order. */
    struct {
        uint16_t kind;
        uint64_t ack;
        struct wire_task_done done;
    } sent[MESSAGES_MAX];
    size_t sent_count;
    uint64_t wait_ns;
};

static void begin(struct fixture *f, uint32_t depth)
{
    memset(f, 0, sizeof(*f));
    f->now = 1000 * MS;
    f->memory = malloc(MEMORY);
    assert_non_null(f->memory);
    for (uint32_t i = 0; i < MEMORY; i++)
        f->memory[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
    base_buf_init(&f->recs, 1 << 20);
    base_buf_init(&f->keys, 1 << 20);
    base_buf_init(&f->body, 1 << 20);
    assert_int_equal(file_sim_create(7, &f->sim), YOLK_OK);
    struct file_system fs = file_sim_system(f->sim);
    struct storage_options options = {.path = "disk",
                                      .capacity_bytes = CAPACITY,
                                      .journal_bytes = 4 << 20,
                                      .random = random_real()};
    assert_int_equal(storage_open(&fs, &options, &f->storage), YOLK_OK);
    struct store_tier_options tier = {
        .storage = f->storage,
        .memory_size = MEMORY,
        .depth = depth,
        .depth_bytes = 64 * 1024,
        .sync_ns = 100 * MS,
        .retry_first_ns = 1000 * MS,
        .retry_max_ns = 4000 * MS,
    };
    assert_int_equal(store_tier_create(&tier, &f->tier), YOLK_OK);
    store_tier_mounted(f->tier, 10, 20);
    store_tier_offered(f->tier);
}

static void finish(struct fixture *f)
{
    if (f->storage != NULL) {
        assert_null(storage_check(f->storage));
        store_tier_destroy(f->tier);
        assert_int_equal(storage_close(f->storage), YOLK_OK);
    }
    file_sim_destroy(f->sim);
    free(f->memory);
    base_buf_free(&f->recs);
    base_buf_free(&f->keys);
    base_buf_free(&f->body);
}

/* ---- the driver ---- */

static void perform_move(struct fixture *f, const struct store_tier_output *output)
{
    struct file *file = storage_file(f->storage);
    uint64_t at = storage_info(f->storage)->extent_offset + output->disk_offset;
    size_t padded = (output->size + 4095) / 4096 * 4096;
    uint8_t *page = aligned_alloc(4096, padded);
    int status = YOLK_OK;
    size_t got;
    assert_non_null(page);
    memset(page, 0, padded);
    if (output->kind == STORE_TIER_READ) {
        f->reads++;
        status = storage_lease(f->storage, output->disk_offset, output->size, output->key_hash);
        if (status == YOLK_OK) {
            assert_int_equal(file_pread(file, page, padded, at, &got), YOLK_OK);
            memcpy(f->memory + output->memory_offset, page, output->size);
            storage_unlease(f->storage, output->disk_offset);
        }
    } else if (f->fail_writes > 0) {
        f->fail_writes--;
        status = YOLK_ERR_IO;
    } else {
        f->writes++;
        memcpy(page, f->memory + output->memory_offset, output->size);
        assert_int_equal(file_pwrite(file, page, padded, at), YOLK_OK);
    }
    free(page);
    uint32_t crc = base_crc32c(0, f->memory + output->memory_offset, output->size);
    store_tier_moved(f->tier, f->now, output->move, (enum yolk_status)status, crc);
}

static void note_sent(struct fixture *f, const struct store_tier_output *output)
{
    if (output->message == WIRE_FACTS_ACK) {
        struct wire_facts_ack ack;
        assert_int_equal(wire_decode(WIRE_FACTS_ACK, output->body, output->body_size, &ack), 0);
        assert_int_equal(ack.segment, 20);
        assert_true(f->sent_count < MESSAGES_MAX);
        f->sent[f->sent_count].kind = WIRE_FACTS_ACK;
        f->sent[f->sent_count++].ack = ack.seq;
        return;
    }
    struct wire_tasks_done done;
    assert_int_equal(output->message, WIRE_TASKS_DONE);
    assert_int_equal(wire_decode(WIRE_TASKS_DONE, output->body, output->body_size, &done), 0);
    assert_int_equal(done.segment, 10);
    for (uint32_t i = 0; i < wire_task_done_count(done.recs); i++) {
        assert_true(f->sent_count < MESSAGES_MAX);
        f->sent[f->sent_count].kind = WIRE_TASKS_DONE;
        f->sent[f->sent_count++].done = wire_task_done_at(done.recs, i);
    }
}

/* Until the machine waits. */
static void run(struct fixture *f)
{
    struct store_tier_output output;
    for (int step = 0; step < 10000; step++) {
        store_tier_next(f->tier, f->now, &output);
        switch (output.kind) {
        case STORE_TIER_WRITE:
        case STORE_TIER_READ:
            if (!f->hold_moves) {
                perform_move(f, &output);
                break;
            }
            assert_true(f->move_count < MOVES_MAX);
            f->moves[f->move_count++] = output;
            break;
        case STORE_TIER_JOURNAL:
            f->journals++;
            if (f->fail_journals > 0) {
                f->fail_journals--;
                store_tier_journaled(f->tier, f->now, YOLK_ERR_IO);
                break;
            }
            assert_int_equal(file_pwrite(storage_file(f->storage), output.data, output.data_size,
                                         output.file_offset),
                             YOLK_OK);
            store_tier_journaled(f->tier, f->now, YOLK_OK);
            break;
        case STORE_TIER_SYNC:
            if (f->hold_sync) {
                f->sync_held = 1;
                break;
            }
            f->syncs++;
            assert_int_equal(file_fdatasync(storage_file(f->storage)), YOLK_OK);
            store_tier_synced(f->tier, f->now, YOLK_OK);
            break;
        case STORE_TIER_SEND:
            note_sent(f, &output);
            break;
        case STORE_TIER_WAIT:
            f->wait_ns = output.deadline_ns;
            assert_true(output.deadline_ns > f->now);
            return;
        }
    }
    fail_msg("the machine never waits");
}

/* Lets the time pass that it waits for. */
static void run_on(struct fixture *f)
{
    run(f);
    assert_int_not_equal(f->wait_ns, UINT64_MAX);
    f->now = f->wait_ns;
    run(f);
}

/* ---- the master ---- */

static void add_task(struct fixture *f, uint8_t kind, uint64_t id, uint64_t offset, uint64_t size)
{
    struct wire_task task = {.kind = kind, .id = id, .offset = offset, .size = size};
    assert_int_equal(wire_task_append(&f->recs, &task), YOLK_OK);
}

/* Pushes what was added, task i with the key "k" and its id. */
static void push_tasks(struct fixture *f, uint64_t memory, uint64_t disk, uint64_t floor)
{
    struct wire_view views[STORE_TIER_WINDOW];
    char text[STORE_TIER_WINDOW][24];
    uint32_t count = wire_task_count(wire_view_buf(&f->recs));
    for (uint32_t i = 0; i < count; i++) {
        struct wire_task task = wire_task_at(wire_view_buf(&f->recs), i);
        snprintf(text[i], sizeof(text[i]), "k%llu", (unsigned long long)task.id);
        views[i] = wire_view_text(text[i]);
    }
    base_buf_clear(&f->keys);
    base_buf_clear(&f->body);
    assert_int_equal(wire_keys_build(&f->keys, views, count), YOLK_OK);
    struct wire_tasks tasks = {memory, disk, floor, wire_view_buf(&f->recs),
                               wire_view_buf(&f->keys)};
    assert_int_equal(wire_encode(WIRE_TASKS, &tasks, &f->body), YOLK_OK);
    store_tier_input(f->tier, WIRE_TASKS, f->body.data, f->body.size);
    base_buf_clear(&f->recs);
}

static void offload(struct fixture *f, uint64_t id, uint64_t offset, uint64_t size)
{
    add_task(f, WIRE_TASK_OFFLOAD, id, offset, size);
    push_tasks(f, 10, 20, 1);
}

static void freed(struct fixture *f, uint64_t seq, const uint64_t *offsets, size_t count)
{
    struct wire_view views[8] = {{NULL, 0}};
    base_buf_clear(&f->recs);
    base_buf_clear(&f->keys);
    base_buf_clear(&f->body);
    for (size_t i = 0; i < count; i++) {
        struct wire_fact fact = {.kind = WIRE_FACT_FREED, .offset = offsets[i], .size = 4096};
        assert_int_equal(wire_fact_append(&f->recs, &fact), YOLK_OK);
    }
    assert_int_equal(wire_keys_build(&f->keys, views, (uint32_t)count), YOLK_OK);
    struct wire_facts facts = {20, seq, wire_view_buf(&f->recs), wire_view_buf(&f->keys)};
    assert_int_equal(wire_encode(WIRE_FACTS, &facts, &f->body), YOLK_OK);
    store_tier_input(f->tier, WIRE_FACTS, f->body.data, f->body.size);
    base_buf_clear(&f->recs);
}

/* The answer to task `id` is the only message, and good: where it lies. */
static uint64_t expect_offloaded(struct fixture *f, uint64_t id, uint64_t offset, uint64_t size)
{
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(f->sent[0].kind, WIRE_TASKS_DONE);
    const struct wire_task_done *done = &f->sent[0].done;
    f->sent_count = 0;
    assert_int_equal(done->id, id);
    assert_int_equal(done->status, YOLK_OK);
    assert_int_equal(done->disk_size, (size + 4095) / 4096 * 4096);
    assert_int_equal(done->checksum, base_crc32c(0, f->memory + offset, size));
    return done->disk_offset;
}

static void expect_failed(struct fixture *f, uint64_t id, int status)
{
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(f->sent[0].kind, WIRE_TASKS_DONE);
    assert_int_equal(f->sent[0].done.id, id);
    assert_int_equal(f->sent[0].done.status, status);
    f->sent_count = 0;
}

static uint64_t offloaded(struct fixture *f, uint64_t id, uint64_t offset, uint64_t size)
{
    offload(f, id, offset, size);
    run(f);
    return expect_offloaded(f, id, offset, size);
}

static void promote(struct fixture *f, uint64_t id, const char *key, uint64_t offset, uint64_t size,
                    uint64_t disk_offset, uint32_t checksum)
{
    struct wire_task task = {.kind = WIRE_TASK_PROMOTE,
                             .id = id,
                             .offset = offset,
                             .size = size,
                             .disk_offset = disk_offset,
                             .checksum = checksum};
    struct wire_view view = wire_view_text(key);
    base_buf_clear(&f->recs);
    base_buf_clear(&f->keys);
    base_buf_clear(&f->body);
    assert_int_equal(wire_task_append(&f->recs, &task), YOLK_OK);
    assert_int_equal(wire_keys_build(&f->keys, &view, 1), YOLK_OK);
    struct wire_tasks tasks = {10, 20, 1, wire_view_buf(&f->recs), wire_view_buf(&f->keys)};
    assert_int_equal(wire_encode(WIRE_TASKS, &tasks, &f->body), YOLK_OK);
    store_tier_input(f->tier, WIRE_TASKS, f->body.data, f->body.size);
    base_buf_clear(&f->recs);
}

/* ---- tests ---- */

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
    offload(&f, 9, 4096, 8192);
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
