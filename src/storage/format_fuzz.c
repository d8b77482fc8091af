/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void superblock(const uint8_t *data)
{
    struct format_superblock sb, back;
    uint8_t again[FORMAT_BLOCK];
    if (format_superblock_decode(data, &sb) != FORMAT_VALID)
        return;
    format_superblock_encode(&sb, again);
    assert(format_superblock_decode(again, &back) == FORMAT_VALID);
    assert(sb.capacity == back.capacity && sb.end_block == back.end_block);
}

static void records(const uint8_t *at, const uint8_t *end)
{
    const uint64_t capacity = 1ull << 30;
    struct format_record record;
    uint8_t again[FORMAT_RECORD_MAX];
    while (format_record_decode(&at, end, capacity, &record) > 0) {
        assert(record.offset + record.allocated <= capacity && record.size <= record.allocated);
        const uint8_t *p = again, *last = format_record_encode(&record, again);
        struct format_record back;
        assert(format_record_decode(&p, last, capacity, &back) == 1 && p == last);
        assert(back.offset == record.offset && back.size == record.size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct format_frame frame;
    records(data, data + size);
    if (size < FORMAT_BLOCK)
        return 0;
    superblock(data);
    if (format_frame_decode(data, size, 0, &frame))
        records(data + FORMAT_FRAME_HEADER, data + frame.bytes);
    return 0;
}
