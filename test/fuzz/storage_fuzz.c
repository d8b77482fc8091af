/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole extent file whose checksums are all right and whose content is the input's: superblock,
 * frames and records. Opening it makes a sound storage or says why not. What was opened without a
 * word of damage, closed and opened again is the same. There is one exception: frames more than a
 * window behind the last one of their epoch, which no writer leaves, are not looked for; frames
 * written in between can lead to them, and then the file says that it is damaged, for its journal
 * does not end where it was closed. What was damaged is only sound each time, or refused.
 */
#include "base/error.h"
#include "kit.h"
#include "platform/file.h"
#include "platform/random.h"
#include "storage/format.h"
#include "storage/storage.h"

#define PATH  "/disk/tier"
#define SLOT0 "/disk/tier.slot0"

enum {
    CAPACITY = 64 * FORMAT_BLOCK,
    FILE_BYTES = FORMAT_JOURNAL_OFFSET + 2 * (1 << 20) + CAPACITY
};

static void put(struct file *file, const uint8_t *data, size_t size, uint64_t offset)
{
    FUZZ_MUST(file_pwrite(file, data, size, offset) == YOLK_OK);
}

static void put_superblock(struct file *file, struct fuzz_input *in)
{
    uint8_t block[FORMAT_BLOCK], how = fuzz_u8(in);
    struct format_superblock sb = {
        .version = FORMAT_VERSION,
        .generation = 1,
        .sequence = 1 + fuzz_u8(in) % 4,
        .salt = 7,
        .journal_bytes = FORMAT_JOURNAL_MIN,
        .capacity = CAPACITY,
        .span = how & 1 ? 2 * CAPACITY : CAPACITY,
        .epoch = how >> 2 & 3,
        .clean = how & 2,
        .end_block = how & 2 ? fuzz_u8(in) % 32 : 0,
    };
    if (how & 64)
        sb.capacity = fuzz_number(in, 8);
    if (how & 128)
        sb.journal_bytes = fuzz_number(in, 8);
    format_superblock_encode(&sb, block);
    put(file, block, sizeof(block), 0);
    if (!(how & 16))
        put(file, block, sizeof(block), FORMAT_SUPERBLOCK_GAP);
}

static uint8_t *put_record(struct fuzz_input *in, uint8_t *at)
{
    uint8_t how = fuzz_u8(in), key = fuzz_u8(in) % 8;
    struct format_record record = {
        .type = (uint8_t)(1 + how % 3),
        .offset = (uint64_t)(fuzz_u8(in) % 80) * FORMAT_BLOCK,
        .size = fuzz_number(in, 2) % (4 * FORMAT_BLOCK),
        .key = &key,
        .key_size = how % 3 == 2 ? 0 : 1,
    };
    record.allocated = (record.size + FORMAT_BLOCK - 1) / FORMAT_BLOCK * FORMAT_BLOCK;
    if (how & 64)
        record.allocated = fuzz_number(in, 8);
    if (how & 128)
        record.size = fuzz_number(in, 8);
    return format_record_encode(&record, at);
}

static void put_frame(struct file *file, struct fuzz_input *in, unsigned next[2])
{
    static uint8_t space[FORMAT_FRAME_MAX];
    uint8_t how = fuzz_u8(in), *at = space + FORMAT_FRAME_HEADER;
    struct format_frame frame = {
        .epoch = how >> 2 & 3,
        .records = how >> 4,
        .complete = how & 1,
        .cursor = how & 2 ? fuzz_number(in, 3) : UINT64_MAX,
    };
    frame.index = fuzz_u8(in) & 128 ? fuzz_u8(in) : next[frame.epoch % 2];
    frame.synced = fuzz_u8(in) % (frame.index + 1);
    for (unsigned i = 0; i < frame.records; i++)
        at = put_record(in, at);
    frame.bytes = (uint32_t)(at - space);
    format_frame_seal(&frame, 7, space);
    put(file, space, (size_t)frame.blocks * FORMAT_BLOCK,
        FORMAT_JOURNAL_OFFSET + (frame.epoch % 2) * FORMAT_JOURNAL_MIN +
            (uint64_t)frame.index * FORMAT_BLOCK);
    next[frame.epoch % 2] = frame.index + frame.blocks;
}

/* How many extents there are, each checked to lie apart from the one before. */
static uint64_t walk(struct storage *s)
{
    uint64_t cursor = 0, count = 0, end = 0;
    for (struct storage_extent e; storage_next(s, &cursor, &e); count++) {
        FUZZ_MUST(e.offset >= end && e.size > 0 && e.size <= e.allocated);
        end = e.offset + e.allocated;
        FUZZ_MUST(end <= storage_info(s)->capacity);
    }
    const char *broken = storage_check(s);
    if (broken != NULL)
        fuzz_fail(broken, __FILE__, __LINE__);
    return count;
}

static void no_line(void *self, const char *line)
{
    (void)self, (void)line;
}

static void check(const struct file_system *fs, bool with_fsck)
{
    struct random_sim seeded;
    struct storage_options options = {.path = PATH, .capacity_bytes = CAPACITY};
    struct storage_fsck_report report;
    struct storage *s;
    random_sim_init(&seeded, 1);
    options.random = random_sim_random(&seeded);
    base_error_clear();
    if (with_fsck) {
        int looked = storage_fsck(fs, SLOT0, true, no_line, NULL, &report);
        FUZZ_MUST(looked == YOLK_OK || yolk_last_error()[0] != '\0');
        base_error_clear();
    }
    if (storage_open(fs, &options, &s) != YOLK_OK) {
        FUZZ_MUST(yolk_last_error()[0] != '\0');
        return;
    }
    uint64_t count = walk(s);
    bool damaged = storage_info(s)->damaged > 0;
    FUZZ_MUST(storage_close(s) == YOLK_OK);
    base_error_clear();
    if (storage_open(fs, &options, &s) != YOLK_OK) {
        FUZZ_MUST(damaged && yolk_last_error()[0] != '\0');
        return;
    }
    FUZZ_MUST(walk(s) == count || damaged || storage_info(s)->damaged > 0);
    FUZZ_MUST(storage_info(s)->clean && !storage_info(s)->created);
    storage_abandon(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    struct file_sim *sim;
    struct file *file;
    unsigned next[2] = {0};
    FUZZ_MUST(file_sim_create(1, &sim) == YOLK_OK);
    struct file_system fs = file_sim_system(sim);
    FUZZ_MUST(file_open(&fs, SLOT0, FILE_CREATE | FILE_WRITE, &file) == YOLK_OK);
    FUZZ_MUST(file_resize(file, FILE_BYTES) == YOLK_OK);
    put_superblock(file, &in);
    while (in.at < in.end)
        put_frame(file, &in, next);
    FUZZ_MUST(file_fdatasync(file) == YOLK_OK);
    file_close(file);
    check(&fs, size % 4 == 0); /* a third of all costs */
    file_sim_destroy(sim);
    return 0;
}
