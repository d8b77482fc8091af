/* SPDX-License-Identifier: Apache-2.0 */
/* Files with wrong bytes, drawn by seed: whatever is in them, opening answers, and serves no extent
 * whose bytes do not match its checksum as if they did. */
#include "kit.h"

#include <stdio.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "storage/format.h"

#define CAPACITY (256u << 10)

/* A file with some history; the disk is the caller's. */
static struct disk *history(struct kit *kit, uint64_t seed, bool clean)
{
    kit_init(kit, seed, CAPACITY);
    kit->options.journal_bytes = 1u << 20;
    kit_open(kit);
    for (unsigned i = 0; i < 700 + seed % 300; i++)
        kit_step(kit);
    if (clean) {
        kit_close(kit);
    } else {
        disk_kill(kit->disk);
        storage_abandon(kit->s);
        kit->s = NULL;
    }
    return kit->disk;
}

/* What is served is self-consistent, and usable. */
static void use(struct kit *kit, struct disk *disk)
{
    struct file_system fs = disk_system(disk);
    struct storage_fsck_report report;
    int checked = storage_fsck(&fs, KIT_SLOT0, true, NULL, NULL, &report);
    struct storage *s;
    int status = storage_open(&fs, &kit->options, &s);
    assert_int_equal(status == YOLK_OK, checked == YOLK_OK);
    if (status != YOLK_OK)
        return;
    assert_null(storage_check(s));
    if (report.differences == 0)
        assert_int_equal(storage_info(s)->damaged, 0);
    uint64_t cursor = 0, seq = 0, id;
    struct storage_extent e;
    while (storage_next(s, &cursor, &e))
        assert_int_equal(storage_delete(s, e.offset, &seq), YOLK_OK);
    assert_int_equal(storage_reserve(s, "k", 1, 1, &id), YOLK_OK);
    assert_int_equal(storage_written(s, id, 0), YOLK_OK);
    assert_int_equal(storage_preserve(s, id), YOLK_OK);
    assert_int_equal(storage_close(s), YOLK_OK);
    assert_int_equal(storage_open(&fs, &kit->options, &s), YOLK_OK);
    assert_int_equal(storage_info(s)->extents, 1);
    storage_abandon(s);
}

static void wrong_bits(void **state)
{
    (void)state;
    unsigned refused = 0, damaged = 0;
    for (unsigned n = 0; n < 300; n++) {
        struct kit kit;
        struct disk *disk = history(&kit, n / 30, n % 2);
        random_sim_init(&kit.seeded, n);
        uint64_t size;
        uint8_t *bytes = disk_bytes(disk, KIT_SLOT0, &size);
        uint64_t end = n % 3 == 0 ? 40000 : size - CAPACITY; /* superblocks, or all but values */
        for (unsigned i = 0; i < 1 + n % 5; i++) {
            uint64_t at = kit_below(&kit, end);
            if (n % 3 == 1) /* where something is */
                while (bytes[at] == 0)
                    at = (at + 1) % end;
            if (n % 7 == 6)
                memset(bytes + at / 512 * 512, (int)kit_below(&kit, 2) * 255, 512);
            else
                bytes[at] ^= 1u << kit_below(&kit, 8);
        }
        struct file_system fs = disk_system(disk);
        struct storage_fsck_report report;
        int status = storage_fsck(&fs, KIT_SLOT0, false, NULL, NULL, &report);
        refused += status != YOLK_OK;
        damaged += status == YOLK_OK && report.differences > 0;
        use(&kit, disk);
        kit_free(&kit);
    }
    print_message("%u refused, %u damaged\n", refused, damaged);
    assert_true(damaged > 20);
}

/* Frames whose checksums are right and whose records are nonsense. */
static void well_sealed_nonsense(void **state)
{
    (void)state;
    unsigned differing = 0;
    for (unsigned n = 0; n < 400; n++) {
        struct kit kit;
        struct disk *disk = history(&kit, 3, false);
        random_sim_init(&kit.seeded, n);
        uint64_t size;
        uint8_t *bytes = disk_bytes(disk, KIT_SLOT0, &size);
        struct format_superblock sb;
        if (format_superblock_decode(bytes + FORMAT_SUPERBLOCK_GAP, &sb) != FORMAT_VALID)
            fail_msg("no superblock");
        /* Find the frames, and spoil one. */
        uint8_t *frames[512];
        size_t count = 0;
        for (uint64_t at = FORMAT_JOURNAL_OFFSET; at < format_extent_offset(&sb);
             at += FORMAT_BLOCK) {
            struct format_frame frame;
            if (count < 512 &&
                format_frame_decode(bytes + at, format_extent_offset(&sb) - at, sb.salt, &frame))
                frames[count++] = bytes + at;
        }
        assert_true(count > 3);
        for (unsigned i = 0; i < 1 + n % 4; i++) {
            uint8_t *at = frames[kit_below(&kit, count)];
            struct format_frame frame;
            if (!format_frame_decode(at, FORMAT_FRAME_MAX, sb.salt, &frame))
                continue;
            switch (kit_below(&kit, 6)) {
            case 0:
                frame.records += 1 - (uint32_t)kit_below(&kit, 3);
                break;
            case 1:
                frame.cursor = kit_below(&kit, CAPACITY);
                break;
            case 2:
                frame.complete = !frame.complete;
                break;
            case 3:
                frame.synced = (uint32_t)kit_below(&kit, frame.index + 1);
                break;
            default:
                if (frame.bytes > FORMAT_FRAME_HEADER)
                    at[FORMAT_FRAME_HEADER + kit_below(&kit, frame.bytes - FORMAT_FRAME_HEADER)] ^=
                        1u << kit_below(&kit, 8);
            }
            format_frame_seal(&frame, sb.salt, at);
        }
        struct file_system fs = disk_system(disk);
        struct storage_fsck_report report;
        if (storage_fsck(&fs, KIT_SLOT0, true, NULL, NULL, &report) == YOLK_OK)
            differing += report.differences > 0;
        use(&kit, disk);
        kit_free(&kit);
    }
    print_message("%u differ\n", differing);
    assert_true(differing > 100);
}

/* Rot in a value: fsck with data finds exactly it. */
static void wrong_value(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 5, CAPACITY);
    kit_open(&kit);
    kit_put(&kit, 9000);
    struct item item = *kit_put(&kit, 9000);
    kit_close(&kit);
    uint64_t size;
    uint8_t *bytes = disk_bytes(kit.disk, KIT_SLOT0, &size);
    uint8_t *value = bytes + size - CAPACITY + item.offset;
    struct storage_fsck_report report;
    value[9000] ^= 1; /* not of the value */
    assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
    assert_int_equal(report.differences, 0);
    assert_int_equal(report.checked, 2);
    value[8999] ^= 1;
    assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
    assert_int_equal(report.differences, 1);
    assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, false, NULL, NULL, &report), YOLK_OK);
    assert_int_equal(report.differences, 0);
    assert_int_equal(report.extents, 2);
    assert_int_equal(report.value_bytes, 18000);
    /* Not while a process has it open. */
    kit_open(&kit);
    assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, false, NULL, NULL, &report), YOLK_ERR_BUSY);
    assert_int_equal(storage_fsck(&kit.fs, "/disk/none", false, NULL, NULL, &report),
                     YOLK_ERR_NOT_FOUND);
    kit_free(&kit);
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_bits),
        cmocka_unit_test(well_sealed_nonsense),
        cmocka_unit_test(wrong_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
