/* SPDX-License-Identifier: Apache-2.0 */
/* The extent file, state by state. */
#include "kit.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "storage/format.h"

#define CAPACITY (1u << 20)

static void goes_from_free_to_free(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 1, CAPACITY);
    kit_open(&kit);
    assert_true(storage_info(kit.s)->created);
    assert_int_equal(storage_info(kit.s)->capacity, CAPACITY);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY);

    struct item *item = kit_reserve(&kit, 5000);
    assert_int_equal(kit_stats(&kit).reserved, 1);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY - 8192);
    struct storage_extent found;
    assert_int_equal(storage_find(kit.s, item->key, item->key_size, &found), YOLK_ERR_NOT_FOUND);
    kit_write(&kit, item);
    assert_int_equal(kit_stats(&kit).written, 1);
    assert_true(kit_journal_begin(&kit));
    uint64_t id;
    assert_false(storage_next_committed(kit.s, &id, &found));
    kit_journal_end(&kit);
    assert_true(item->committed);
    assert_int_equal(storage_locate(kit.s, item->id, &found), YOLK_ERR_STALE);
    assert_int_equal(storage_find(kit.s, item->key, item->key_size, &found), YOLK_OK);
    assert_int_equal(found.offset, item->offset);
    assert_true(kit_bytes_right(&kit, kit.s, &found));

    /* A delete is over when its record is on stable media and nobody reads. */
    uint64_t hash = base_hash64(item->key, item->key_size);
    assert_int_equal(storage_lease(kit.s, item->offset, 5000, hash), YOLK_OK);
    kit_delete(&kit, item);
    assert_int_equal(item->delete_seq, 1);
    assert_int_equal(storage_find(kit.s, item->key, item->key_size, &found), YOLK_ERR_NOT_FOUND);
    assert_int_equal(storage_lease(kit.s, item->offset, 5000, hash), YOLK_ERR_STALE);
    assert_true(kit_journal_begin(&kit));
    kit_journal_end(&kit);
    assert_int_equal(storage_deleted(kit.s), 0);
    assert_true(kit_sync_begin(&kit));
    kit_sync_end(&kit);
    assert_int_equal(storage_deleted(kit.s), 0);
    assert_int_equal(kit_stats(&kit).doomed, 1);
    kit_check(&kit);
    storage_unlease(kit.s, item->offset);
    assert_int_equal(storage_deleted(kit.s), 1);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY);
    assert_int_equal(kit_stats(&kit).doomed, 0);
    kit_check(&kit);
    kit_free(&kit);
}

/* Also without a lease: not before the sync that began after the record was written. */
static void delete_waits_for_the_sync_after_it(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 2, CAPACITY);
    kit_open(&kit);
    struct item *other = kit_reserve(&kit, 100);
    kit_write(&kit, other);
    struct item *item = kit_put(&kit, 100);
    struct item *late = kit_reserve(&kit, 100);
    kit_write(&kit, late);
    assert_true(kit_journal_begin(&kit));
    kit_journal_end(&kit);
    assert_true(kit_sync_begin(&kit)); /* before the delete record */
    kit_delete(&kit, item);
    assert_true(kit_journal_begin(&kit));
    kit_journal_end(&kit);
    kit_sync_end(&kit);
    assert_int_equal(storage_deleted(kit.s), 0);
    assert_true(kit_sync_begin(&kit));
    kit_sync_end(&kit);
    assert_int_equal(storage_deleted(kit.s), 1);
    kit_free(&kit);
}

static void lease_asks_for_the_same_extent(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 3, CAPACITY);
    kit_open(&kit);
    struct item item = *kit_put(&kit, 6000);
    uint64_t hash = base_hash64(item.key, item.key_size);
    assert_int_equal(storage_lease(kit.s, item.offset, 6000, hash + 1), YOLK_ERR_STALE);
    assert_int_equal(storage_lease(kit.s, item.offset, 6001, hash), YOLK_ERR_STALE);
    assert_int_equal(storage_lease(kit.s, item.offset + 4096, 6000, hash), YOLK_ERR_STALE);
    assert_int_equal(storage_lease(kit.s, 1ull << 60, 6000, hash), YOLK_ERR_STALE);
    assert_int_equal(storage_lease(kit.s, item.offset, 6000, hash), YOLK_OK);
    assert_int_equal(storage_lease(kit.s, item.offset, 6000, hash), YOLK_OK);
    assert_int_equal(kit_stats(&kit).leases, 2);
    storage_unlease(kit.s, item.offset);
    storage_unlease(kit.s, item.offset);
    assert_int_equal(kit_stats(&kit).leases, 0);
    kit_free(&kit);
}

static void each_id_ends_once(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 4, CAPACITY);
    kit_open(&kit);
    uint64_t id, seq;
    assert_int_equal(storage_reserve(kit.s, "k", 1, 4096, &id), YOLK_OK);
    assert_int_equal(kit_stats(&kit).handles, 1);
    assert_int_equal(storage_abort(kit.s, id), YOLK_OK);
    assert_int_equal(kit_stats(&kit).handles, 0);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY);
    assert_int_equal(storage_abort(kit.s, id), YOLK_ERR_STALE);
    assert_int_equal(storage_preserve(kit.s, id), YOLK_ERR_STALE);
    assert_int_equal(storage_written(kit.s, id, 1), YOLK_ERR_STALE);

    /* The same place, another id. */
    uint64_t again;
    assert_int_equal(storage_reserve(kit.s, "k", 1, 4096, &again), YOLK_OK);
    assert_int_not_equal(again, id);
    assert_int_equal(storage_written(kit.s, again, 7), YOLK_OK);
    assert_int_equal(storage_written(kit.s, again, 7), YOLK_ERR_INVALID);

    /* Aborted while its record is being written: never announced, and gone in the end. */
    assert_true(kit_journal_begin(&kit));
    assert_int_equal(storage_abort(kit.s, again), YOLK_OK);
    kit_settle(&kit);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY);
    kit_check(&kit);

    /* Aborted before it: no record at all. */
    uint64_t writes = kit_stats(&kit).journal_writes;
    assert_int_equal(storage_reserve(kit.s, "k", 1, 4096, &id), YOLK_OK);
    assert_int_equal(storage_written(kit.s, id, 7), YOLK_OK);
    assert_int_equal(storage_abort(kit.s, id), YOLK_OK);
    kit_settle(&kit);
    assert_int_equal(kit_stats(&kit).journal_writes, writes);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY);

    /* Preserved: kept until it is deleted, whether written or not. */
    struct storage_extent e;
    assert_int_equal(storage_reserve(kit.s, "r", 1, 4096, &id), YOLK_OK);
    assert_int_equal(storage_locate(kit.s, id, &e), YOLK_OK);
    uint64_t reserved = e.offset;
    assert_int_equal(storage_delete(kit.s, reserved, &seq), YOLK_ERR_NOT_FOUND);
    assert_int_equal(storage_preserve(kit.s, id), YOLK_OK);
    assert_int_equal(storage_reserve(kit.s, "w", 1, 4096, &id), YOLK_OK);
    assert_int_equal(storage_locate(kit.s, id, &e), YOLK_OK);
    uint64_t written = e.offset;
    assert_int_equal(storage_written(kit.s, id, 9), YOLK_OK);
    assert_int_equal(storage_preserve(kit.s, id), YOLK_OK);
    kit_settle(&kit);
    assert_int_equal(storage_find(kit.s, "w", 1, &e), YOLK_OK);
    assert_int_equal(storage_find(kit.s, "r", 1, &e), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY - 8192);
    assert_int_equal(kit_stats(&kit).handles, 0);
    assert_int_equal(storage_delete(kit.s, reserved, &seq), YOLK_OK);
    assert_int_equal(storage_delete(kit.s, written, &seq), YOLK_OK);
    assert_int_equal(storage_delete(kit.s, written, &seq), YOLK_ERR_NOT_FOUND);
    kit_settle(&kit);
    assert_int_equal(storage_deleted(kit.s), seq);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY);
    kit_check(&kit);
    kit_free(&kit);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 5, CAPACITY);
    kit_open(&kit);
    static char long_key[MAX_KEY_SIZE + 1];
    uint64_t id;
    assert_int_equal(storage_reserve(kit.s, "", 0, 1, &id), YOLK_ERR_INVALID);
    assert_int_equal(storage_reserve(kit.s, long_key, sizeof long_key, 1, &id), YOLK_ERR_INVALID);
    assert_int_equal(storage_reserve(kit.s, "k", 1, 0, &id), YOLK_ERR_INVALID);
    assert_int_equal(storage_reserve(kit.s, "k", 1, CAPACITY + 1, &id), YOLK_ERR_TOO_LARGE);
    assert_int_equal(storage_reserve(kit.s, "k", 1, UINT64_MAX, &id), YOLK_ERR_TOO_LARGE);
    assert_int_equal(storage_reserve(kit.s, long_key, MAX_KEY_SIZE, CAPACITY, &id), YOLK_OK);
    uint64_t more;
    assert_int_equal(storage_reserve(kit.s, "k", 1, 1, &more), YOLK_ERR_NO_SPACE);
    /* The longest key goes through the journal. */
    assert_int_equal(storage_written(kit.s, id, 3), YOLK_OK);
    kit_settle(&kit);
    assert_int_equal(kit_stats(&kit).committed, 1);
    assert_int_equal(storage_close(kit.s), YOLK_OK);
    kit_open(&kit);
    struct storage_extent e;
    assert_int_equal(storage_find(kit.s, long_key, MAX_KEY_SIZE, &e), YOLK_OK);
    assert_int_equal(e.size, CAPACITY);
    kit_free(&kit);
}

/* More keys than a checkpoint could hold are refused as if there were no space. */
static void keys_are_bounded_by_the_journal(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 6, 4u << 20);
    kit.options.journal_bytes = 1u << 20;
    kit_open(&kit);
    char key[MAX_KEY_SIZE] = {0};
    unsigned n = 0;
    uint64_t id;
    int status;
    for (;; n++) {
        snprintf(key, sizeof key, "%u", n);
        status = storage_reserve(kit.s, key, sizeof key, 1, &id);
        if (status != YOLK_OK)
            break;
        assert_int_equal(storage_written(kit.s, id, n), YOLK_OK);
        kit_settle(&kit);
    }
    assert_int_equal(status, YOLK_ERR_NO_SPACE);
    assert_in_range(n, 100, 120); /* 7/16 MiB of 4128 bytes each */
    assert_true(kit_stats(&kit).free_bytes > 0);
    /* And the journal goes round with them all. */
    struct storage_extent e;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t cursor = 0, seq;
        assert_true(storage_next(kit.s, &cursor, &e));
        memcpy(key, e.key, sizeof key);
        assert_int_equal(storage_delete(kit.s, e.offset, &seq), YOLK_OK);
        kit_settle(&kit);
        assert_int_equal(storage_reserve(kit.s, key, sizeof key, 1, &id), YOLK_OK);
        assert_int_equal(storage_written(kit.s, id, i), YOLK_OK);
        kit_settle(&kit);
    }
    assert_null(storage_unwritable(kit.s));
    assert_true(kit_stats(&kit).checkpoints > 3);
    kit_check(&kit);
    assert_int_equal(storage_close(kit.s), YOLK_OK);
    kit_open(&kit);
    assert_int_equal(kit_stats(&kit).committed, n);
    assert_int_equal(storage_info(kit.s)->damaged, 0);
    kit_free(&kit);
}

static void survives_close_and_kill(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 7, CAPACITY);
    kit_open(&kit);
    struct storage_info first = *storage_info(kit.s);
    for (unsigned i = 0; i < 2; i++) {
        struct item *item = kit_put(&kit, 9000);
        struct item kept = *item;
        if (i == 0)
            kit_close(&kit);
        else {
            disk_kill(kit.disk);
            storage_abandon(kit.s);
        }
        kit_open(&kit);
        const struct storage_info *info = storage_info(kit.s);
        assert_int_equal(info->clean, i == 0);
        assert_false(info->created);
        assert_int_equal(info->damaged, 0);
        assert_int_equal(info->generation, first.generation);
        assert_memory_equal(info->storage_id, first.storage_id, STORAGE_ID_SIZE);
        assert_int_equal(info->extents, i + 1);
        uint64_t cursor = kept.offset;
        struct storage_extent e;
        assert_true(storage_next(kit.s, &cursor, &e));
        assert_int_equal(e.offset, kept.offset);
        assert_int_equal(e.checksum, kept.crc);
        assert_true(kit_bytes_right(&kit, kit.s, &e));
        kit_check(&kit);
    }
    /* Empty by wish: another identity, a later generation. */
    kit_close(&kit);
    kit.options.start_empty = true;
    kit.options.capacity_bytes = 2 * CAPACITY;
    kit_open(&kit);
    assert_true(storage_info(kit.s)->created);
    assert_int_equal(storage_info(kit.s)->generation, first.generation + 1);
    assert_memory_not_equal(storage_info(kit.s)->storage_id, first.storage_id, STORAGE_ID_SIZE);
    assert_int_equal(storage_info(kit.s)->capacity, 2 * CAPACITY);
    assert_int_equal(kit_stats(&kit).committed, 0);
    kit_close(&kit);
    kit.options.start_empty = false;
    kit_open(&kit);
    assert_false(storage_info(kit.s)->created);
    assert_int_equal(storage_info(kit.s)->extents, 0);
    kit_free(&kit);
}

/* Values whose bytes the processor never saw: kept by a close, and by a kill of the process; after
 * more than that only what had been synced, for nothing proves the rest. */
static void values_without_a_checksum(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct kit kit;
        struct storage_extent e;
        bool kept = i < 2, synced = i == 3;
        kit_init(&kit, 30 + i, CAPACITY);
        kit_open(&kit);
        struct item *item = kit_reserve(&kit, 5000);
        assert_int_equal(storage_written_unchecked(kit.s, item->id), YOLK_ERR_UNSUPPORTED);
        kit_close(&kit);
        kit.options.unchecked = true;
        memset(kit.options.boot, 7, sizeof kit.options.boot);
        kit_open(&kit);
        item = kit_reserve(&kit, 5000);
        uint64_t offset = item->offset;
        assert_int_equal(storage_written_unchecked(kit.s, item->id), YOLK_OK);
        if (synced)
            kit_settle(&kit);
        assert_true(synced || kit_journal_begin(&kit));
        if (!synced)
            kit_journal_end(&kit);
        if (i == 0) {
            kit_close(&kit);
        } else {
            disk_kill(kit.disk);
            storage_abandon(kit.s);
        }
        if (i == 2 || i == 3)
            kit.options.boot[3] = 8; /* the machine was started anew */
        kit_open(&kit);
        uint64_t cursor = offset;
        bool there = storage_next(kit.s, &cursor, &e) && e.offset == offset;
        assert_int_equal(there, kept || synced);
        assert_int_equal(storage_info(kit.s)->dropped, there ? 0 : 1);
        if (there) {
            assert_false(e.checked);
            assert_int_equal(e.checksum, 0);
        }
        kit_close(&kit);
        struct storage_fsck_report report;
        assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
        assert_int_equal(report.differences, 0);
        kit_open(&kit);
        kit_free(&kit);
    }
}

static uint64_t journal_written(struct kit *kit)
{
    return kit_stats(kit).journal_written / STORAGE_UNIT;
}

/* One block after the sync of one or many such values, and none after its own sync, nor for values
 * with a checksum. */
static void the_proof_of_a_sync_ends(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 40, CAPACITY);
    kit.options.unchecked = true;
    kit_open(&kit);
    for (unsigned i = 0; i < 40; i++) {
        uint64_t id, written = journal_written(&kit), syncs = kit_stats(&kit).syncs;
        for (unsigned n = 0; n < 3; n++) {
            assert_int_equal(storage_reserve(kit.s, "key", 3, 100, &id), YOLK_OK);
            int status =
                i % 2 == 0 ? storage_written_unchecked(kit.s, id) : storage_written(kit.s, id, 0);
            assert_int_equal(status, YOLK_OK);
        }
        kit_settle(&kit);
        assert_int_equal(journal_written(&kit) - written, i % 2 == 0 ? 2 : 1);
        assert_int_equal(kit_stats(&kit).syncs - syncs, i % 2 == 0 ? 2 : 1);
        written = journal_written(&kit);
        kit_settle(&kit);
        assert_int_equal(journal_written(&kit), written);
    }
    kit_free(&kit);
}

/* Nothing tells which of them the disk lost: none is read again, by this process or a later one. */
static void a_failed_sync_gives_them_up(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 47, CAPACITY);
    kit.options.unchecked = true;
    kit_open(&kit);
    static const char *const keys[] = {"proven", "committed", "being written", "checked", "late"};
    enum { PROVEN, COMMITTED, WRITING, CHECKED, LATE, COUNT };
    uint64_t ids[COUNT], hashes[COUNT], seq;
    struct storage_extent places[COUNT], found;
    for (unsigned i = 0; i < COUNT; i++) {
        hashes[i] = base_hash64(keys[i], strlen(keys[i]));
        assert_int_equal(storage_reserve(kit.s, keys[i], strlen(keys[i]), 5000, &ids[i]), YOLK_OK);
        assert_int_equal(storage_locate(kit.s, ids[i], &places[i]), YOLK_OK);
    }
    assert_int_equal(storage_written_unchecked(kit.s, ids[PROVEN]), YOLK_OK);
    kit_settle(&kit);
    assert_int_equal(storage_written_unchecked(kit.s, ids[COMMITTED]), YOLK_OK);
    assert_int_equal(storage_written(kit.s, ids[CHECKED], 7), YOLK_OK);
    assert_true(kit_journal_begin(&kit));
    kit_journal_end(&kit);
    assert_int_equal(storage_lease(kit.s, places[COMMITTED].offset, 5000, hashes[COMMITTED]), 0);
    assert_int_equal(storage_written_unchecked(kit.s, ids[WRITING]), YOLK_OK);
    disk_fail_syncs(kit.disk, 0, 1);
    assert_true(kit_sync_begin(&kit));
    kit_sync_end(&kit);
    kit_settle(&kit);
    assert_int_equal(kit_stats(&kit).given_up, 2);
    assert_int_equal(storage_written_unchecked(kit.s, ids[LATE]), YOLK_OK); /* after it: as ever */
    kit_settle(&kit);
    for (unsigned i = 0; i < COUNT; i++) {
        bool gone = i == COMMITTED || i == WRITING;
        assert_int_equal(storage_find(kit.s, keys[i], strlen(keys[i]), &found),
                         gone ? YOLK_ERR_NOT_FOUND : YOLK_OK);
        assert_int_equal(storage_lease(kit.s, places[i].offset, 5000, hashes[i]),
                         gone ? YOLK_ERR_STALE : YOLK_OK);
        if (!gone)
            storage_unlease(kit.s, places[i].offset);
    }
    /* Its space is kept while it is read, and until the master has let go of it too. */
    uint64_t free_bytes = kit_stats(&kit).free_bytes;
    assert_int_equal(kit_stats(&kit).doomed, 2);
    storage_unlease(kit.s, places[COMMITTED].offset);
    assert_int_equal(kit_stats(&kit).free_bytes, free_bytes);
    assert_int_equal(storage_delete(kit.s, places[COMMITTED].offset, &seq), YOLK_OK);
    assert_int_equal(storage_deleted(kit.s), seq);
    assert_int_equal(kit_stats(&kit).free_bytes, free_bytes + 8192);
    storage_let_go(kit.s); /* or heard anew what is there */
    assert_int_equal(kit_stats(&kit).free_bytes, free_bytes + 2 * 8192);
    kit_check(&kit);
    kit_close(&kit);
    kit_open(&kit);
    assert_int_equal(storage_info(kit.s)->extents, 3);
    assert_int_equal(kit_stats(&kit).free_bytes, CAPACITY - 6 * 4096);
    kit_free(&kit);
}

/* As a program left it that proved nothing before it closed the file. */
static void call_it_clean(struct kit *kit)
{
    uint64_t size;
    uint8_t *bytes = disk_bytes(kit->disk, KIT_SLOT0, &size);
    struct format_superblock copies[FORMAT_SUPERBLOCKS];
    for (unsigned i = 0; i < FORMAT_SUPERBLOCKS; i++)
        assert_int_equal(
            format_superblock_decode(bytes + (size_t)i * FORMAT_SUPERBLOCK_GAP, &copies[i]),
            FORMAT_VALID);
    unsigned last = copies[1].sequence > copies[0].sequence;
    copies[last].clean = true;
    copies[last].epoch = copies[last].end_block = 1;
    format_superblock_encode(&copies[last], bytes + (size_t)last * FORMAT_SUPERBLOCK_GAP);
}

/* A process finds such a value by the boot id, after a kill, or by a clean end, which prove it
 * once: after a power loss it is there too, and however often the file is opened in between the
 * journal gets no longer. */
static void what_was_found_lasts(bool clean)
{
    struct kit kit;
    struct storage_extent e;
    struct storage_fsck_report report;
    uint64_t id, frames = 0;
    kit_init(&kit, 41, CAPACITY);
    kit.options.unchecked = true;
    memset(kit.options.boot, 7, sizeof kit.options.boot);
    kit_open(&kit);
    assert_int_equal(storage_reserve(kit.s, "key", 3, 100, &id), YOLK_OK);
    assert_int_equal(storage_written_unchecked(kit.s, id), YOLK_OK);
    assert_true(kit_journal_begin(&kit));
    kit_journal_end(&kit);
    for (unsigned i = 0; i < 4; i++) {
        disk_kill(kit.disk);
        storage_abandon(kit.s);
        if (clean && i == 0)
            call_it_clean(&kit);
        kit.options.boot[0] = (uint8_t)(7 + (clean ? i : i / 2));
        kit_open(&kit);
        assert_int_equal(storage_find(kit.s, "key", 3, &e), YOLK_OK);
        assert_int_equal(storage_info(kit.s)->dropped, 0);
        storage_abandon(kit.s);
        disk_kill(kit.disk);
        assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
        assert_int_equal(report.differences, 0);
        assert_true(i == 0 || report.frames == frames);
        frames = report.frames;
        kit_open(&kit);
    }
    kit_free(&kit);
}

static void what_a_kill_left_lasts(void **state)
{
    (void)state;
    what_was_found_lasts(false);
}

static void what_a_close_left_lasts(void **state)
{
    (void)state;
    what_was_found_lasts(true);
}

/* A smaller capacity takes effect at once, and costs what lies beyond it; a larger one too, as far
 * as the disk has room. */
static void follows_the_capacity(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 20, CAPACITY);
    kit_open(&kit);
    uint64_t size, whole = storage_info(kit.s)->extent_offset + CAPACITY, kept = 0;
    for (unsigned i = 0; i < 30; i++) {
        struct item *item = kit_put(&kit, 5 * 4096);
        kept += item->offset + 5 * 4096 <= CAPACITY / 4;
    }
    kit_close(&kit);
    static const uint32_t capacities[] = {CAPACITY / 4, CAPACITY, CAPACITY / 4};
    for (unsigned i = 0; i < 3; i++) {
        kit.options.capacity_bytes = capacities[i];
        kit_open(&kit);
        const struct storage_info *info = storage_info(kit.s);
        assert_int_equal(info->capacity, capacities[i]);
        assert_int_equal(info->extents, kept);
        assert_int_equal(info->damaged, 0);
        assert_string_equal(info->note, "");
        assert_int_equal(kit_stats(&kit).capacity, capacities[i]);
        assert_int_equal(kit_stats(&kit).free_bytes, capacities[i] - kept * 5 * 4096);
        disk_bytes(kit.disk, KIT_SLOT0, &size);
        assert_int_equal(size, whole - CAPACITY + capacities[i]);
        kit_check(&kit);
        if (i == 1)
            kit_put(&kit, CAPACITY / 2);
        if (i == 2)
            storage_abandon(kit.s);
        else
            kit_close(&kit);
        disk_kill(kit.disk);
        struct storage_fsck_report report;
        assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
        assert_int_equal(report.differences, 0);
    }
    kit.options.capacity_bytes = 1u << 30;
    disk_set_space(kit.disk, 10u << 20);
    kit_open(&kit);
    assert_in_range(storage_info(kit.s)->capacity, 9u << 20, 10u << 20);
    assert_non_null(strstr(storage_info(kit.s)->note, "instead of 1GiB"));
    assert_int_equal(storage_info(kit.s)->extents, kept);
    kit_free(&kit);
}

static void is_made_smaller_at_any_moment(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 21, CAPACITY);
    uint64_t kept = 0, size;
    kit_open(&kit);
    for (unsigned i = 0; i < 10; i++) {
        struct item *item = kit_put(&kit, 15 * 4096);
        kept += item->offset + 15 * 4096 <= CAPACITY / 4;
    }
    kit_close(&kit);
    struct disk *before = disk_copy(kit.disk);
    disk_record(kit.disk);
    kit.options.capacity_bytes = CAPACITY / 4;
    kit_open(&kit);
    for (size_t cut = 0; cut <= disk_events(kit.disk); cut++) {
        struct disk *disk = disk_copy(before);
        for (size_t i = 0; i < cut; i++)
            disk_apply(disk, disk_event(kit.disk, i));
        struct file_system fs = disk_system(disk);
        struct storage_fsck_report report;
        assert_int_equal(storage_fsck(&fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
        assert_int_equal(report.differences, 0);
        struct storage *s;
        assert_int_equal(storage_open(&fs, &kit.options, &s), YOLK_OK);
        assert_int_equal(storage_info(s)->extents, kept);
        assert_int_equal(storage_info(s)->damaged, 0);
        assert_null(storage_check(s));
        disk_bytes(disk, KIT_SLOT0, &size);
        assert_int_equal(size, storage_info(s)->extent_offset + CAPACITY / 4);
        storage_abandon(s);
        disk_destroy(disk);
    }
    disk_destroy(before);
    kit_free(&kit);
}

static void takes_the_first_free_slot(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 8, CAPACITY);
    kit_open(&kit);
    struct storage *one = kit.s, *two, *three;
    assert_int_equal(storage_info(one)->slot, 0);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &two), YOLK_OK);
    assert_int_equal(storage_info(two)->slot, 1);
    assert_string_equal(storage_info(two)->path, KIT_PATH ".slot1");
    assert_memory_not_equal(storage_info(one)->storage_id, storage_info(two)->storage_id,
                            STORAGE_ID_SIZE);
    kit_put(&kit, 4096);
    kit_close(&kit);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &three), YOLK_OK);
    assert_int_equal(storage_info(three)->slot, 0);
    assert_int_equal(storage_info(three)->extents, 1);
    assert_int_equal(storage_close(three), YOLK_OK);
    assert_int_equal(storage_close(two), YOLK_OK);
    kit_free(&kit);
}

/* ---- memory ---- */
static bool refuse_after(void *self)
{
    unsigned *left = self;
    if (*left == 0)
        return true;
    --*left;
    return false;
}

/* With the n-th allocation refused, for each n: NO_MEMORY, and nothing has changed. */
static void goes_on_without_memory(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 19, CAPACITY);
    uint64_t size, id, seq;
    kit_good_file(&kit, &size);
    unsigned refusals = 0;
    int status = YOLK_ERR_NO_MEMORY;
    for (unsigned n = 0; status == YOLK_ERR_NO_MEMORY; n++) {
        unsigned left = n;
        base_alloc_set_hook(refuse_after, &left);
        status = storage_open(&kit.fs, &kit.options, &kit.s);
        base_alloc_set_hook(NULL, NULL);
        refusals += status == YOLK_ERR_NO_MEMORY;
    }
    assert_int_equal(status, YOLK_OK);
    assert_true(refusals > 5);
    assert_int_equal(storage_info(kit.s)->extents, 5);

    unsigned none = 0;
    struct storage_stats before = kit_stats(&kit);
    base_alloc_set_hook(refuse_after, &none);
    assert_int_equal(storage_reserve(kit.s, "k", 1, 1, &id), YOLK_ERR_NO_MEMORY);
    base_alloc_set_hook(NULL, NULL);
    assert_int_equal(kit_stats(&kit).free_bytes, before.free_bytes);
    assert_int_equal(storage_reserve(kit.s, "k", 1, 1, &id), YOLK_OK);
    base_alloc_set_hook(refuse_after, &none);
    assert_int_equal(storage_written(kit.s, id, 0), YOLK_ERR_NO_MEMORY);
    struct item *item = &kit.items[0];
    assert_int_equal(storage_delete(kit.s, item->offset, &seq), YOLK_ERR_NO_MEMORY);
    base_alloc_set_hook(NULL, NULL);
    kit_check(&kit);
    assert_int_equal(kit_stats(&kit).reserved, 1);
    assert_int_equal(storage_written(kit.s, id, 0), YOLK_OK);
    assert_int_equal(storage_delete(kit.s, item->offset, &seq), YOLK_OK);
    assert_int_equal(seq, 1);
    /* What is under way needs none. */
    base_alloc_set_hook(refuse_after, &none);
    kit_settle(&kit);
    base_alloc_set_hook(NULL, NULL);
    assert_int_equal(storage_deleted(kit.s), 1);
    assert_int_equal(kit_stats(&kit).committed, 5);
    kit_check(&kit);
    kit_free(&kit);
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_from_free_to_free),
        cmocka_unit_test(delete_waits_for_the_sync_after_it),
        cmocka_unit_test(lease_asks_for_the_same_extent),
        cmocka_unit_test(each_id_ends_once),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(keys_are_bounded_by_the_journal),
        cmocka_unit_test(survives_close_and_kill),
        cmocka_unit_test(values_without_a_checksum),
        cmocka_unit_test(the_proof_of_a_sync_ends),
        cmocka_unit_test(a_failed_sync_gives_them_up),
        cmocka_unit_test(what_a_kill_left_lasts),
        cmocka_unit_test(what_a_close_left_lasts),
        cmocka_unit_test(follows_the_capacity),
        cmocka_unit_test(is_made_smaller_at_any_moment),
        cmocka_unit_test(takes_the_first_free_slot),
        cmocka_unit_test(goes_on_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
