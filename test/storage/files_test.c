/* SPDX-License-Identifier: Apache-2.0 */
/* Files and disks that are not what they should be. */
#include "kit.h"

#include "base/log.h"
#include "storage/format.h"

#define CAPACITY (1u << 20)

static void shrinks_to_the_disk(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 9, 1ull << 30);
    disk_set_space(kit.disk, 200u << 20);
    kit_open(&kit);
    const struct storage_info *info = storage_info(kit.s);
    assert_in_range(info->capacity, 160u << 20, 190u << 20);
    assert_true(info->extent_offset + info->capacity <= 190u << 20);
    assert_non_null(strstr(info->note, "instead of 1GiB"));
    kit_free(&kit);

    kit_init(&kit, 9, 1ull << 30);
    disk_set_space(kit.disk, 12u << 20);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), YOLK_ERR_NO_SPACE);
    assert_non_null(strstr(yolk_last_error(), "only 12MiB is free"));
    assert_false(disk_has(kit.disk, KIT_SLOT0));
    kit_free(&kit);
}

static void works_where_blocks_cannot_be_reserved(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 10, CAPACITY);
    disk_set_allocate(kit.disk, YOLK_ERR_UNSUPPORTED);
    kit_open(&kit);
    assert_false(storage_info(kit.s)->preallocated);
    assert_non_null(strstr(storage_info(kit.s)->note, "sparse"));
    kit_put(&kit, 4096);

    /* Values then may find the disk full. */
    storage_writes_failed(kit.s, "no space left for values");
    assert_string_equal(storage_unwritable(kit.s), "no space left for values");
    uint64_t id;
    assert_int_equal(storage_reserve(kit.s, "k", 1, 1, &id), YOLK_ERR_IO);
    assert_non_null(strstr(yolk_last_error(), "no space left for values"));
    kit_delete(&kit, kit_any_committed(&kit));
    kit_settle(&kit);
    assert_int_equal(storage_deleted(kit.s), 1);
    storage_writes_resumed(kit.s);
    assert_int_equal(storage_reserve(kit.s, "k", 1, 1, &id), YOLK_OK);
    assert_int_equal(storage_abort(kit.s, id), YOLK_OK);
    kit_close(&kit);
    kit_open(&kit);
    assert_false(storage_info(kit.s)->preallocated);
    kit_free(&kit);

    /* Somebody took the space in between. */
    kit_init(&kit, 10, CAPACITY);
    disk_set_allocate(kit.disk, YOLK_ERR_NO_SPACE);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), YOLK_ERR_NO_SPACE);
    kit_free(&kit);
}

static void refused(struct kit *kit, int status, const char *text)
{
    uint64_t size, after;
    const uint8_t *bytes = disk_bytes(kit->disk, KIT_SLOT0, &size);
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    for (unsigned empty = 0; empty < 2; empty++) {
        kit->options.start_empty = empty;
        assert_int_equal(storage_open(&kit->fs, &kit->options, &kit->s), status);
        if (strstr(yolk_last_error(), text) == NULL)
            fail_msg("\"%s\" says nothing of \"%s\"", yolk_last_error(), text);
        bytes = disk_bytes(kit->disk, KIT_SLOT0, &after);
        assert_int_equal(after, size);
        assert_memory_equal(bytes, copy, size);
    }
    free(copy);
    /* By an explicit option it is made anew. */
    kit->options.start_empty = false;
    kit->options.replace = true;
    kit_open(kit);
    assert_true(storage_info(kit->s)->created);
    kit->options.replace = false;
    kit_close(kit);
    kit_open(kit);
    assert_int_equal(storage_info(kit->s)->damaged, 0);
    kit_close(kit);
}

static void refuses_foreign_files(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 11, CAPACITY);
    uint64_t size;
    static uint8_t text[8 << 20];

    memset(text, 'x', sizeof text);
    disk_put(kit.disk, KIT_SLOT0, text, sizeof text);
    refused(&kit, YOLK_ERR_UNSUPPORTED, "is not an extent file");

    memset(text, 0, sizeof text);
    disk_put(kit.disk, KIT_SLOT0, text, sizeof text);
    refused(&kit, YOLK_ERR_CORRUPT, "only zeros");

    disk_put(kit.disk, KIT_SLOT0, text, 0);
    refused(&kit, YOLK_ERR_EOF, "too few");
    disk_put(kit.disk, KIT_SLOT0, "hello", 5);
    refused(&kit, YOLK_ERR_EOF, "it has 5 bytes");

    uint8_t *bytes = kit_good_file(&kit, &size);
    memcpy(text, bytes, size);
    disk_put(kit.disk, KIT_SLOT0, text, size - 4096);
    refused(&kit, YOLK_ERR_CORRUPT, "cut off");

    bytes = kit_good_file(&kit, &size);
    bytes[100] ^= 1;
    bytes[FORMAT_SUPERBLOCK_GAP + 100] ^= 1;
    refused(&kit, YOLK_ERR_CORRUPT, "damaged");
    kit_free(&kit);
}

/* Under the name that a file has while it is made lies what a crash left, or something else. */
static void refuses_foreign_files_in_the_making(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        int status;
    } found[] = {{"hello", 5, YOLK_ERR_UNSUPPORTED},
                 {"YOLKED eggs", 11, YOLK_ERR_UNSUPPORTED},
                 {"", 0, YOLK_OK},
                 {"YOLK\0\0\0\0", 8, YOLK_OK}};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        struct kit kit;
        kit_init(&kit, 11, CAPACITY);
        disk_put(kit.disk, KIT_SLOT0 ".new", found[i].bytes, found[i].size);
        assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), found[i].status);
        if (found[i].status != YOLK_OK) {
            uint64_t size;
            assert_non_null(strstr(yolk_last_error(), KIT_SLOT0 ".new is refused"));
            assert_memory_equal(disk_bytes(kit.disk, KIT_SLOT0 ".new", &size), found[i].bytes,
                                found[i].size);
            assert_int_equal(size, found[i].size);
        }
        kit_free(&kit);
    }
}

static void refuses_newer_formats(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 12, CAPACITY);
    for (unsigned feature = 0; feature < 2; feature++) {
        uint64_t size;
        uint8_t *bytes = kit_good_file(&kit, &size);
        struct format_superblock sb;
        assert_int_equal(format_superblock_decode(bytes, &sb), FORMAT_VALID);
        if (feature)
            sb.incompatible = 1ull << 40;
        else
            sb.version = FORMAT_VERSION + 1;
        format_superblock_encode(&sb, bytes + (sb.sequence % 2) * FORMAT_SUPERBLOCK_GAP);
        refused(&kit, YOLK_ERR_UNSUPPORTED, feature ? "features 10000000000" : "format version 2");
    }
    /* A feature that may be ignored is ignored. */
    uint64_t size;
    uint8_t *bytes = kit_good_file(&kit, &size);
    for (unsigned i = 0; i < 2; i++) {
        struct format_superblock sb;
        assert_int_equal(format_superblock_decode(bytes + i * FORMAT_SUPERBLOCK_GAP, &sb),
                         FORMAT_VALID);
        sb.compatible = 1ull << 40;
        format_superblock_encode(&sb, bytes + i * FORMAT_SUPERBLOCK_GAP);
    }
    kit_open(&kit);
    assert_int_equal(storage_info(kit.s)->extents, 5);
    kit_free(&kit);
}

static void refuses_a_file_without_its_journal(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 13, CAPACITY);
    uint64_t size;
    for (unsigned kill = 0; kill < 2; kill++) {
        uint8_t *bytes = kit_good_file(&kit, &size);
        if (kill) {
            kit_open(&kit);
            disk_kill(kit.disk);
            storage_abandon(kit.s);
        }
        memset(bytes + FORMAT_JOURNAL_OFFSET, 0, 2u << 20);
        assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), YOLK_ERR_CORRUPT);
        assert_non_null(strstr(yolk_last_error(), "its journal is gone"));
        kit.options.start_empty = true; /* it is ours, so this will do */
        kit_open(&kit);
        kit_close(&kit);
        kit.options.start_empty = false;
    }
    kit_free(&kit);
}

/* One superblock is enough; rotten blocks in the journal cost their records, and are counted. */
static void goes_on_with_damage(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 14, CAPACITY);
    uint64_t size;
    uint8_t *bytes = kit_good_file(&kit, &size);
    for (unsigned i = 0; i < 2; i++) {
        bytes[i * FORMAT_SUPERBLOCK_GAP + 50] ^= 4;
        kit_open(&kit);
        assert_int_equal(storage_info(kit.s)->damaged, 1);
        assert_int_equal(storage_info(kit.s)->extents, 5);
        kit_close(&kit);
        kit_open(&kit); /* both were written since */
        assert_int_equal(storage_info(kit.s)->damaged, 0);
        kit_close(&kit);
    }
    struct format_superblock sb;
    assert_int_equal(format_superblock_decode(bytes, &sb), FORMAT_VALID);
    bytes[format_area_offset(&sb, 1) + 2 * FORMAT_BLOCK + 70] ^= 1; /* epoch 1, third record */
    kit_open(&kit);
    assert_int_equal(storage_info(kit.s)->extents, 4);
    assert_int_equal(storage_info(kit.s)->damaged, 1);
    kit_check(&kit);
    kit_put(&kit, 5000);
    kit_close(&kit);
    kit_open(&kit); /* the place was filled */
    assert_int_equal(storage_info(kit.s)->damaged, 0);
    assert_int_equal(storage_info(kit.s)->extents, 5);
    kit_free(&kit);
}

/* ---- errors of the disk ---- */
static void goes_on_after_journal_errors(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 15, CAPACITY);
    kit_open(&kit);
    struct item kept = *kit_put(&kit, 4096);
    static const int statuses[] = {YOLK_ERR_IO, YOLK_ERR_NO_SPACE};
    for (unsigned i = 0; i < 2; i++) {
        struct item *item = kit_reserve(&kit, 4096);
        kit_write(&kit, item);
        disk_fail_writes(kit.disk, 0, 3, statuses[i]);
        for (unsigned n = 0; n < 3; n++) {
            assert_true(kit_journal_begin(&kit));
            kit_journal_end(&kit);
            assert_false(item->committed);
            uint64_t id;
            assert_int_equal(storage_reserve(kit.s, "k", 1, 1, &id), YOLK_ERR_IO);
            assert_non_null(strstr(yolk_last_error(), "a write of the journal failed"));
        }
        kit_settle(&kit);
        assert_true(item->committed);
        assert_null(storage_unwritable(kit.s));
    }
    assert_int_equal(kit_stats(&kit).journal_errors, 6);

    /* Nothing is durable after a sync that failed, until all was written again and synced. */
    kit_delete(&kit, kit_any_committed(&kit));
    assert_true(kit_journal_begin(&kit));
    kit_journal_end(&kit);
    disk_fail_syncs(kit.disk, 0, 2);
    uint64_t writes = kit_stats(&kit).journal_writes;
    for (unsigned n = 0; n < 2; n++) {
        assert_true(kit_sync_begin(&kit));
        kit_sync_end(&kit);
        assert_int_equal(storage_deleted(kit.s), 0);
        assert_non_null(strstr(storage_unwritable(kit.s), "a sync of the journal failed"));
        assert_false(storage_sync_plan(kit.s)); /* not without writing it again */
        assert_true(kit_journal_begin(&kit));
        kit_journal_end(&kit);
        assert_int_equal(kit_stats(&kit).journal_writes, ++writes);
        assert_int_equal(storage_deleted(kit.s), 0);
    }
    assert_true(kit_sync_begin(&kit));
    kit_sync_end(&kit);
    assert_int_equal(storage_deleted(kit.s), 1);
    assert_null(storage_unwritable(kit.s));
    assert_int_equal(kit_stats(&kit).sync_errors, 2);
    kit_check(&kit);
    (void)kept;
    kit_close(&kit);
    kit_open(&kit);
    assert_int_equal(storage_info(kit.s)->extents, 2);
    assert_int_equal(storage_info(kit.s)->damaged, 0);
    kit_free(&kit);
}

/* The blocks are written again at their old places, bytes and all. */
static void writes_the_same_again_after_a_failed_sync(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 16, CAPACITY);
    kit_open(&kit);
    kit_put(&kit, 4096);
    uint8_t first[3 * 4096];
    uint64_t at = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct item *item = kit_reserve(&kit, 4096);
        kit_write(&kit, item);
        assert_true(kit_journal_begin(&kit));
        assert_int_equal(kit.io.size, 4096);
        memcpy(first + i * 4096, kit.io.data, 4096);
        if (i == 0)
            at = kit.io.offset;
        kit_journal_end(&kit);
    }
    disk_fail_syncs(kit.disk, 0, 1);
    assert_true(kit_sync_begin(&kit));
    kit_sync_end(&kit);
    assert_true(kit_journal_begin(&kit));
    assert_int_equal(kit.io.size, sizeof first);
    assert_int_equal(kit.io.offset, at);
    assert_memory_equal(kit.io.data, first, sizeof first);
    kit_journal_end(&kit);
    kit_settle(&kit);
    assert_null(storage_unwritable(kit.s));
    kit_free(&kit);
}

static void says_what_fails_at_open(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 17, CAPACITY);
    uint64_t size;
    kit_good_file(&kit, &size);
    for (unsigned after = 0; after < 4; after++) {
        disk_fail_reads(kit.disk, after, 1);
        assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), YOLK_ERR_IO);
    }
    disk_fail_reads(kit.disk, 0, 0);
    disk_fail_syncs(kit.disk, 0, 1);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), YOLK_ERR_IO);
    disk_fail_writes(kit.disk, 0, 1, YOLK_ERR_IO);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &kit.s), YOLK_ERR_IO);
    kit_open(&kit);
    assert_int_equal(storage_info(kit.s)->extents, 5);
    kit.options.capacity_bytes = 0;
    struct storage *other;
    assert_int_equal(storage_open(&kit.fs, &kit.options, &other), YOLK_ERR_CONFIG);
    kit_free(&kit);
}

/* A write that cannot be had at close leaves a file as after a kill. */
static void close_answers_for_the_disk(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 18, CAPACITY);
    kit_open(&kit);
    kit_put(&kit, 4096);
    kit_delete(&kit, kit_any_committed(&kit));
    disk_fail_writes(kit.disk, 0, 100, YOLK_ERR_IO);
    assert_int_equal(storage_close(kit.s), YOLK_ERR_IO);
    disk_fail_writes(kit.disk, 0, 0, YOLK_OK);
    kit_open(&kit);
    assert_false(storage_info(kit.s)->clean);
    kit_check(&kit);
    kit_free(&kit);
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrinks_to_the_disk),
        cmocka_unit_test(works_where_blocks_cannot_be_reserved),
        cmocka_unit_test(refuses_foreign_files),
        cmocka_unit_test(refuses_foreign_files_in_the_making),
        cmocka_unit_test(refuses_newer_formats),
        cmocka_unit_test(refuses_a_file_without_its_journal),
        cmocka_unit_test(goes_on_with_damage),
        cmocka_unit_test(goes_on_after_journal_errors),
        cmocka_unit_test(writes_the_same_again_after_a_failed_sync),
        cmocka_unit_test(says_what_fails_at_open),
        cmocka_unit_test(close_answers_for_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
