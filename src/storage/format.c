/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/format.h"

#include <string.h>

#include "base/buf.h"
#include "base/crc32c.h"

/* ---- superblock: where its fields lie. Magic, version, checksum and features stay in all
 * versions. */
enum {
    SB_MAGIC = 0,
    SB_VERSION = 8,
    SB_CRC = 12,
    SB_INCOMPATIBLE = 16,
    SB_COMPATIBLE = 24,
    SB_STORAGE_ID = 32,
    SB_GENERATION = 48,
    SB_SEQUENCE = 56,
    SB_SALT = 64,
    SB_JOURNAL_BYTES = 72,
    SB_CAPACITY = 80,
    SB_EPOCH = 88,
    SB_FLAGS = 96,
    SB_END_BLOCK = 100,
    SB_SPAN = 104,
    SB_BOOT = 112,
};
#define SB_CLEAN        1u
#define SB_PREALLOCATED 2u

static const uint8_t MAGIC[8] = {'Y', 'O', 'L', 'K', 'E', 'X', 'T', 0};

/* Of `size` bytes, the four at `hole` taken as zeros. */
static uint32_t checksum_around(uint32_t crc, const uint8_t *at, size_t size, size_t hole)
{
    static const uint8_t zeros[4];
    crc = base_crc32c(crc, at, hole);
    crc = base_crc32c(crc, zeros, sizeof zeros);
    return base_crc32c(crc, at + hole + 4, size - hole - 4);
}

void format_superblock_encode(const struct format_superblock *sb, uint8_t block[FORMAT_BLOCK])
{
    memset(block, 0, FORMAT_BLOCK);
    memcpy(block + SB_MAGIC, MAGIC, sizeof MAGIC);
    base_store_u32(block + SB_VERSION, sb->version);
    base_store_u64(block + SB_INCOMPATIBLE, sb->incompatible);
    base_store_u64(block + SB_COMPATIBLE, sb->compatible);
    memcpy(block + SB_STORAGE_ID, sb->storage_id, FORMAT_ID_SIZE);
    base_store_u64(block + SB_GENERATION, sb->generation);
    base_store_u64(block + SB_SEQUENCE, sb->sequence);
    base_store_u64(block + SB_SALT, sb->salt);
    base_store_u64(block + SB_JOURNAL_BYTES, sb->journal_bytes);
    base_store_u64(block + SB_CAPACITY, sb->capacity);
    base_store_u64(block + SB_EPOCH, sb->epoch);
    base_store_u32(block + SB_FLAGS,
                   (sb->clean ? SB_CLEAN : 0) | (sb->preallocated ? SB_PREALLOCATED : 0));
    base_store_u32(block + SB_END_BLOCK, sb->end_block);
    base_store_u64(block + SB_SPAN, sb->span > sb->capacity ? sb->span : 0);
    memcpy(block + SB_BOOT, sb->boot, FORMAT_ID_SIZE);
    base_store_u32(block + SB_CRC, checksum_around(0, block, FORMAT_BLOCK, SB_CRC));
}

static bool sizes_can_be(const struct format_superblock *sb)
{
    return sb->journal_bytes >= FORMAT_JOURNAL_MIN && sb->journal_bytes <= MAX_SEGMENT_SIZE &&
           sb->journal_bytes % FORMAT_BLOCK == 0 && sb->capacity >= FORMAT_BLOCK &&
           sb->capacity <= MAX_SEGMENT_SIZE && sb->capacity % FORMAT_BLOCK == 0 &&
           sb->span >= sb->capacity && sb->span <= MAX_SEGMENT_SIZE &&
           sb->journal_bytes / FORMAT_BLOCK <= UINT32_MAX &&
           sb->end_block <= sb->journal_bytes / FORMAT_BLOCK;
}

enum format_found format_superblock_decode(const uint8_t block[FORMAT_BLOCK],
                                           struct format_superblock *sb)
{
    *sb = (struct format_superblock){0};
    if (memcmp(block + SB_MAGIC, MAGIC, sizeof MAGIC) != 0) {
        for (size_t i = 0; i < FORMAT_BLOCK; i++)
            if (block[i] != 0)
                return FORMAT_FOREIGN;
        return FORMAT_ZERO;
    }
    if (base_load_u32(block + SB_CRC) != checksum_around(0, block, FORMAT_BLOCK, SB_CRC))
        return FORMAT_DAMAGED;
    sb->version = base_load_u32(block + SB_VERSION);
    sb->incompatible = base_load_u64(block + SB_INCOMPATIBLE);
    sb->compatible = base_load_u64(block + SB_COMPATIBLE);
    if (sb->version > FORMAT_VERSION || (sb->incompatible & ~FORMAT_INCOMPATIBLE) != 0)
        return FORMAT_NEWER;
    memcpy(sb->storage_id, block + SB_STORAGE_ID, FORMAT_ID_SIZE);
    memcpy(sb->boot, block + SB_BOOT, FORMAT_ID_SIZE);
    sb->generation = base_load_u64(block + SB_GENERATION);
    sb->sequence = base_load_u64(block + SB_SEQUENCE);
    sb->salt = base_load_u64(block + SB_SALT);
    sb->journal_bytes = base_load_u64(block + SB_JOURNAL_BYTES);
    sb->capacity = base_load_u64(block + SB_CAPACITY);
    sb->epoch = base_load_u64(block + SB_EPOCH);
    uint32_t flags = base_load_u32(block + SB_FLAGS);
    sb->clean = flags & SB_CLEAN;
    sb->preallocated = flags & SB_PREALLOCATED;
    sb->end_block = base_load_u32(block + SB_END_BLOCK);
    sb->span = base_load_u64(block + SB_SPAN);
    if (sb->span == 0)
        sb->span = sb->capacity;
    return sb->version == FORMAT_VERSION && sizes_can_be(sb) ? FORMAT_VALID : FORMAT_DAMAGED;
}

bool format_superblock_begun(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size && i < sizeof MAGIC; i++)
        if (bytes[i] != 0 && bytes[i] != MAGIC[i])
            return false;
    return true;
}

/* ---- frame ---- */
enum {
    FR_MAGIC = 0,
    FR_CRC = 4,
    FR_EPOCH = 8,
    FR_INDEX = 16,
    FR_BLOCKS = 20,
    FR_BYTES = 24,
    FR_RECORDS = 28,
    FR_SYNCED = 32,
    FR_FLAGS = 36,
    FR_CURSOR = 40,
};
#define FRAME_MAGIC    0x4d524659u /* "YFRM" */
#define FRAME_COMPLETE 1u

static uint32_t frame_checksum(uint64_t salt, const uint8_t *at, size_t size)
{
    uint8_t seed[8];
    base_store_u64(seed, salt);
    return checksum_around(base_crc32c(0, seed, sizeof seed), at, size, FR_CRC);
}

void format_frame_seal(struct format_frame *frame, uint64_t salt, uint8_t *at)
{
    frame->blocks = (frame->bytes + FORMAT_BLOCK - 1) / FORMAT_BLOCK;
    size_t size = (size_t)frame->blocks * FORMAT_BLOCK;
    memset(at, 0, FORMAT_FRAME_HEADER);
    memset(at + frame->bytes, 0, size - frame->bytes);
    base_store_u32(at + FR_MAGIC, FRAME_MAGIC);
    base_store_u64(at + FR_EPOCH, frame->epoch);
    base_store_u32(at + FR_INDEX, frame->index);
    base_store_u32(at + FR_BLOCKS, frame->blocks);
    base_store_u32(at + FR_BYTES, frame->bytes);
    base_store_u32(at + FR_RECORDS, frame->records);
    base_store_u32(at + FR_SYNCED, frame->synced);
    base_store_u32(at + FR_FLAGS, frame->complete ? FRAME_COMPLETE : 0);
    base_store_u64(at + FR_CURSOR, frame->cursor);
    base_store_u32(at + FR_CRC, frame_checksum(salt, at, size));
}

bool format_frame_decode(const uint8_t *at, size_t size, uint64_t salt, struct format_frame *frame)
{
    if (size < FORMAT_BLOCK || base_load_u32(at + FR_MAGIC) != FRAME_MAGIC)
        return false;
    *frame = (struct format_frame){
        .epoch = base_load_u64(at + FR_EPOCH),
        .index = base_load_u32(at + FR_INDEX),
        .blocks = base_load_u32(at + FR_BLOCKS),
        .bytes = base_load_u32(at + FR_BYTES),
        .records = base_load_u32(at + FR_RECORDS),
        .synced = base_load_u32(at + FR_SYNCED),
        .complete = base_load_u32(at + FR_FLAGS) & FRAME_COMPLETE,
        .cursor = base_load_u64(at + FR_CURSOR),
    };
    if (frame->blocks == 0 || frame->blocks > FORMAT_FRAME_BLOCKS ||
        (size_t)frame->blocks * FORMAT_BLOCK > size || frame->bytes < FORMAT_FRAME_HEADER ||
        frame->bytes > frame->blocks * FORMAT_BLOCK || frame->synced > frame->index)
        return false;
    return base_load_u32(at + FR_CRC) ==
           frame_checksum(salt, at, (size_t)frame->blocks * FORMAT_BLOCK);
}

/* ---- record ---- */
enum {
    RE_TYPE = 0,
    RE_CHECKSUM_KIND = 1,
    RE_KEY_SIZE = 2,
    RE_CHECKSUM = 4,
    RE_OFFSET = 8,
    RE_SIZE = 16,
    RE_ALLOCATED = 24, /* in blocks */
};

uint8_t *format_record_encode(const struct format_record *record, uint8_t *at)
{
    size_t size = format_record_size(record->key_size);
    memset(at, 0, size);
    at[RE_TYPE] = record->type;
    at[RE_CHECKSUM_KIND] = record->unchecked ? FORMAT_NO_CHECKSUM : FORMAT_CRC32C;
    base_store_u16(at + RE_KEY_SIZE, record->key_size);
    base_store_u32(at + RE_CHECKSUM, record->checksum);
    base_store_u64(at + RE_OFFSET, record->offset);
    base_store_u64(at + RE_SIZE, record->size);
    base_store_u32(at + RE_ALLOCATED, (uint32_t)(record->allocated / FORMAT_BLOCK));
    if (record->key_size > 0)
        memcpy(at + FORMAT_RECORD_HEADER, record->key, record->key_size);
    return at + size;
}

static bool record_can_be(const struct format_record *r, uint64_t capacity)
{
    bool keyed = r->type == FORMAT_COMMIT || r->type == FORMAT_CHECKPOINT;
    return (keyed || r->type == FORMAT_DELETE) && keyed == (r->key_size > 0) &&
           r->key_size <= MAX_KEY_SIZE && r->offset % FORMAT_BLOCK == 0 && r->size > 0 &&
           r->size <= r->allocated && r->allocated - r->size < FORMAT_BLOCK &&
           r->offset <= capacity && r->allocated <= capacity - r->offset;
}

int format_record_decode(const uint8_t **at, const uint8_t *end, uint64_t capacity,
                         struct format_record *record)
{
    const uint8_t *p = *at;
    if (p == end)
        return 0;
    if ((size_t)(end - p) < FORMAT_RECORD_HEADER)
        return YOLK_ERR_CORRUPT;
    *record = (struct format_record){
        .type = p[RE_TYPE],
        .key_size = base_load_u16(p + RE_KEY_SIZE),
        .checksum = base_load_u32(p + RE_CHECKSUM),
        .unchecked = p[RE_CHECKSUM_KIND] == FORMAT_NO_CHECKSUM,
        .offset = base_load_u64(p + RE_OFFSET),
        .size = base_load_u64(p + RE_SIZE),
        .allocated = (uint64_t)base_load_u32(p + RE_ALLOCATED) * FORMAT_BLOCK,
        .key = p + FORMAT_RECORD_HEADER,
    };
    if ((p[RE_CHECKSUM_KIND] != FORMAT_CRC32C && !record->unchecked) ||
        (record->unchecked && record->checksum != 0) || !record_can_be(record, capacity) ||
        format_record_size(record->key_size) > (size_t)(end - p))
        return YOLK_ERR_CORRUPT;
    *at = p + format_record_size(record->key_size);
    return 1;
}
