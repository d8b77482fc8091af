/* SPDX-License-Identifier: Apache-2.0 */
/* The machine over a real extent file in a simulated file system, its driver and a scripted master:
 * for its tests. */
#ifndef STORE_TIER_KIT_H
#define STORE_TIER_KIT_H

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

static inline void begin(struct fixture *f, uint32_t depth)
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

static inline void finish(struct fixture *f)
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

static inline void perform_move(struct fixture *f, const struct store_tier_output *output)
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

static inline void note_sent(struct fixture *f, const struct store_tier_output *output)
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
static inline void run(struct fixture *f)
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
static inline void run_on(struct fixture *f)
{
    run(f);
    assert_int_not_equal(f->wait_ns, UINT64_MAX);
    f->now = f->wait_ns;
    run(f);
}

/* ---- the master ---- */

static inline void add_task(struct fixture *f, uint8_t kind, uint64_t id, uint64_t offset,
                            uint64_t size)
{
    struct wire_task task = {.kind = kind, .id = id, .offset = offset, .size = size};
    assert_int_equal(wire_task_append(&f->recs, &task), YOLK_OK);
}

/* Pushes what was added, task i with the key "k" and its id. */
static inline void push_tasks(struct fixture *f, uint64_t memory, uint64_t disk, uint64_t floor)
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

static inline void offload(struct fixture *f, uint64_t id, uint64_t offset, uint64_t size)
{
    add_task(f, WIRE_TASK_OFFLOAD, id, offset, size);
    push_tasks(f, 10, 20, 1);
}

static inline void freed(struct fixture *f, uint64_t seq, const uint64_t *offsets, size_t count)
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
static inline uint64_t expect_offloaded(struct fixture *f, uint64_t id, uint64_t offset,
                                        uint64_t size)
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

static inline void expect_failed(struct fixture *f, uint64_t id, int status)
{
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(f->sent[0].kind, WIRE_TASKS_DONE);
    assert_int_equal(f->sent[0].done.id, id);
    assert_int_equal(f->sent[0].done.status, status);
    f->sent_count = 0;
}

static inline uint64_t offloaded(struct fixture *f, uint64_t id, uint64_t offset, uint64_t size)
{
    offload(f, id, offset, size);
    run(f);
    return expect_offloaded(f, id, offset, size);
}

static inline void promote(struct fixture *f, uint64_t id, const char *key, uint64_t offset,
                           uint64_t size, uint64_t disk_offset, uint32_t checksum)
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

#endif
