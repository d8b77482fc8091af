/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of format 1 as the first program that wrote them left them: they are read for ever. In
 * golden/NAME.blocks: the file's size, then offset and bytes of each 4 KiB block that is not zero.
 */
#include "kit.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/log.h"

#define BLOCK 4096u

static void load(struct disk *disk, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/test/storage/golden/%s.blocks", YOLK_SOURCE_DIR, name);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    uint8_t number[8];
    assert_int_equal(fread(number, 1, 8, in), 8);
    uint64_t size = base_load_u64(number);
    assert_in_range(size, BLOCK, 16u << 20);
    uint8_t *bytes = calloc(1, size);
    assert_non_null(bytes);
    unsigned blocks = 0;
    for (; fread(number, 1, 8, in) == 8; blocks++) {
        uint64_t at = base_load_u64(number);
        assert_true(at % BLOCK == 0 && at < size);
        assert_int_equal(fread(bytes + at, 1, BLOCK, in), BLOCK);
    }
    fclose(in);
    assert_in_range(blocks, 8, 20);
    disk_put(disk, KIT_SLOT0, bytes, size);
    free(bytes);
}

static void has(struct storage *s, const char *key, size_t key_size, uint64_t size, uint8_t seed)
{
    struct storage_extent e;
    assert_int_equal(storage_find(s, key, key_size, &e), YOLK_OK);
    assert_int_equal(e.size, size);
    uint8_t *bytes = aligned_alloc(BLOCK, e.allocated);
    assert_non_null(bytes);
    size_t got;
    assert_int_equal(file_pread(storage_file(s), bytes, e.allocated,
                                storage_info(s)->extent_offset + e.offset, &got),
                     YOLK_OK);
    assert_int_equal(e.checksum, base_crc32c(0, bytes, size));
    for (uint64_t i = 0; i < size; i++)
        assert_int_equal(bytes[i], (uint8_t)(seed + i * 7));
    free(bytes);
}

static void format_1_is_read(void **state)
{
    (void)state;
    static const char *const names[] = {"v1-closed", "v1-killed"};
    for (unsigned i = 0; i < 2; i++) {
        struct kit kit;
        kit_init(&kit, 1, 64u << 10);
        load(kit.disk, names[i]);
        struct storage_fsck_report report;
        assert_int_equal(storage_fsck(&kit.fs, KIT_SLOT0, true, NULL, NULL, &report), YOLK_OK);
        assert_int_equal(report.differences, 0);
        assert_int_equal(report.version, 1);
        assert_int_equal(report.checked, 3);
        kit_open(&kit);
        const struct storage_info *info = storage_info(kit.s);
        assert_int_equal(info->clean, i == 0);
        assert_false(info->created);
        assert_int_equal(info->capacity, 64u << 10);
        assert_int_equal(info->journal_bytes, 1u << 20);
        assert_int_equal(info->generation, 1);
        assert_int_equal(info->extents, 3);
        assert_int_equal(info->damaged, 0);
        static char big[4096];
        memset(big, 'K', sizeof big);
        has(kit.s, "alpha", 5, 1, 1);
        has(kit.s, "beta", 4, 4096, 2);
        has(kit.s, big, sizeof big, 9000, 4);
        struct storage_extent e;
        assert_int_equal(storage_find(kit.s, "gone", 4, &e), YOLK_ERR_NOT_FOUND);
        kit_put(&kit, 5000);
        kit_close(&kit);
        kit_free(&kit);
    }
}

int main(void)
{
    base_log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(format_1_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
