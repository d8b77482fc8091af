/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of the format by hand, and what is not whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "storage/format.h"

static struct format_superblock superblock(void)
{
    return (struct format_superblock){.version = 1,
                                      .compatible = 0x10,
                                      .storage_id = "0123456789abcde",
                                      .generation = 3,
                                      .sequence = 9,
                                      .salt = 0x1122334455667788,
                                      .journal_bytes = 2u << 20,
                                      .capacity = 5u << 20,
                                      .epoch = 7,
                                      .clean = true,
                                      .end_block = 11};
}

static void superblock_has_its_bytes(void **state)
{
    (void)state;
    struct format_superblock sb = superblock(), back;
    uint8_t block[FORMAT_BLOCK];
    format_superblock_encode(&sb, block);
    assert_memory_equal(block, "YOLKEXT\0\1\0\0\0", 12);
    assert_int_equal(base_load_u64(block + 24), 0x10);
    assert_memory_equal(block + 32, "0123456789abcde", 16);
    assert_int_equal(base_load_u64(block + 64), 0x1122334455667788);
    assert_int_equal(base_load_u64(block + 80), 5u << 20);
    assert_int_equal(base_load_u32(block + 96), 1);
    assert_int_equal(base_load_u32(block + 100), 11);
    uint32_t crc = base_load_u32(block + 12);
    memset(block + 12, 0, 4);
    assert_int_equal(crc, base_crc32c(0, block, sizeof block));
    base_store_u32(block + 12, crc);
    assert_int_equal(format_superblock_decode(block, &back), FORMAT_VALID);
    assert_int_equal(back.generation, 3);
    assert_int_equal(back.epoch, 7);
    assert_true(back.clean && !back.preallocated);
    assert_int_equal(format_extent_offset(&back), 65536 + (4u << 20));
    /* Each bit counts. */
    for (size_t i = 0; i < 8 * sizeof block; i += 37) {
        block[i / 8] ^= 1u << i % 8;
        assert_int_equal(format_superblock_decode(block, &back),
                         i < 64 ? FORMAT_FOREIGN : FORMAT_DAMAGED);
        block[i / 8] ^= 1u << i % 8;
    }
}

static void superblock_is_judged(void **state)
{
    (void)state;
    uint8_t block[FORMAT_BLOCK] = {0};
    struct format_superblock sb, back;
    assert_int_equal(format_superblock_decode(block, &back), FORMAT_ZERO);
    block[4000] = 1;
    assert_int_equal(format_superblock_decode(block, &back), FORMAT_FOREIGN);
    for (unsigned i = 0; i < 8; i++) {
        static const enum format_found expected[] = {
            FORMAT_NEWER,   FORMAT_DAMAGED, FORMAT_NEWER,   FORMAT_DAMAGED,
            FORMAT_DAMAGED, FORMAT_DAMAGED, FORMAT_DAMAGED, FORMAT_DAMAGED,
        };
        sb = superblock();
        sb.version = i == 0 ? 2 : i == 1 ? 0 : 1;
        sb.incompatible = i == 2;
        sb.journal_bytes = i == 3 ? 1u << 19 : i == 4 ? (1u << 20) + 512 : 1u << 20;
        sb.capacity = i == 5 ? 0 : i == 6 ? UINT64_MAX : 1u << 20;
        sb.end_block = i == 7 ? 257 : 256;
        format_superblock_encode(&sb, block);
        assert_int_equal(format_superblock_decode(block, &back), expected[i]);
    }
}

/* Field by field: what lies between them says nothing. */
static void assert_same_frame(const struct format_frame *a, const struct format_frame *b)
{
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->blocks, b->blocks);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->records, b->records);
    assert_int_equal(a->synced, b->synced);
    assert_int_equal(a->complete, b->complete);
    assert_int_equal(a->cursor, b->cursor);
}

static void frame_is_whole_or_none(void **state)
{
    (void)state;
    static uint8_t bytes[2 * FORMAT_BLOCK];
    struct format_record record = {.type = FORMAT_COMMIT,
                                   .checksum = 0xdeadbeef,
                                   .offset = 8192,
                                   .size = 5000,
                                   .allocated = 8192,
                                   .key = (const uint8_t *)"hello",
                                   .key_size = 5};
    uint8_t *end = format_record_encode(&record, bytes + FORMAT_FRAME_HEADER);
    assert_int_equal(end - bytes, 64 + 40);
    assert_memory_equal(bytes + 64, "\1\1\5\0\xef\xbe\xad\xde", 8);
    assert_int_equal(base_load_u64(bytes + 64 + 8), 8192);
    assert_int_equal(base_load_u64(bytes + 64 + 16), 5000);
    assert_int_equal(base_load_u32(bytes + 64 + 24), 2);
    assert_memory_equal(bytes + 64 + 32, "hello\0\0\0", 8);
    memset(end, 'x', 100); /* what was there before must not stay */
    struct format_frame frame = {.epoch = 5,
                                 .index = 3,
                                 .bytes = 64 + 40,
                                 .records = 1,
                                 .synced = 2,
                                 .complete = true,
                                 .cursor = 4096};
    format_frame_seal(&frame, 77, bytes);
    assert_int_equal(frame.blocks, 1);
    struct format_frame back;
    assert_true(format_frame_decode(bytes, FORMAT_BLOCK, 77, &back));
    assert_same_frame(&back, &frame);
    assert_false(format_frame_decode(bytes, FORMAT_BLOCK, 78, &back));
    assert_false(format_frame_decode(bytes, FORMAT_BLOCK - 1, 77, &back));
    for (size_t i = 0; i < 8 * FORMAT_BLOCK; i += 61) {
        bytes[i / 8] ^= 1u << i % 8;
        assert_false(format_frame_decode(bytes, FORMAT_BLOCK, 77, &back));
        bytes[i / 8] ^= 1u << i % 8;
    }
    /* Of two blocks, one of which is not there. */
    frame.bytes = FORMAT_BLOCK + 8;
    format_frame_seal(&frame, 77, bytes);
    assert_int_equal(frame.blocks, 2);
    assert_true(format_frame_decode(bytes, sizeof bytes, 77, &back));
    assert_false(format_frame_decode(bytes, FORMAT_BLOCK, 77, &back));
}

static void records_that_cannot_be(void **state)
{
    (void)state;
    const uint64_t capacity = 1u << 20;
    struct format_record good = {.type = FORMAT_COMMIT,
                                 .offset = 4096,
                                 .size = 4097,
                                 .allocated = 8192,
                                 .key = (const uint8_t *)"key",
                                 .key_size = 3};
    for (unsigned i = 0; i < 10; i++) {
        struct format_record r = good, back;
        uint8_t bytes[FORMAT_RECORD_MAX];
        switch (i) {
        case 1:
            r.type = 4;
            break;
        case 2:
            r.type = FORMAT_DELETE; /* with a key */
            break;
        case 3:
            r.key_size = 0;
            break;
        case 4:
            r.offset = 4097;
            break;
        case 5:
            r.offset = capacity - 4096;
            break;
        case 6:
            r.size = 4096; /* in an extent of 8192 */
            break;
        case 7:
            r.size = 8193;
            break;
        case 8:
            r.offset = UINT64_MAX - 4095;
            break;
        case 9:
            r.size = 0;
            break;
        default:
            break;
        }
        const uint8_t *at = bytes, *end = format_record_encode(&r, bytes);
        assert_int_equal(format_record_decode(&at, end, capacity, &back),
                         i == 0 ? 1 : YOLK_ERR_CORRUPT);
        if (i > 0)
            continue;
        assert_int_equal(format_record_decode(&at, end, capacity, &back), 0);
        for (const uint8_t *cut = bytes + 1; cut < end; cut++) {
            at = bytes;
            assert_int_equal(format_record_decode(&at, cut, capacity, &back), YOLK_ERR_CORRUPT);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(superblock_has_its_bytes),
        cmocka_unit_test(superblock_is_judged),
        cmocka_unit_test(frame_is_whole_or_none),
        cmocka_unit_test(records_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
