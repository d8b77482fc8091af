/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies on the disk, version 1. All numbers are little-endian. Pure: bytes in, structs out.
 *
 *     0        superblock          4 KiB; the valid one with the higher sequence counts
 *     32 KiB   superblock          4 KiB
 *     64 KiB   journal area 0      journal_bytes
 *              journal area 1      journal_bytes
 *              extents             capacity
 *
 * An area is a sequence of frames, each of 1 to 16 blocks of 4 KiB: a header, records one after the
 * other, zeros up to the block's end. A frame is whole or worth nothing: its checksum covers all of
 * it, and begins with the superblock's salt, so that frames of an earlier life of the file, or
 * bytes of a key that look like a frame, are none.
 */
#ifndef STORAGE_FORMAT_H
#define STORAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "yolk/status.h"

#define FORMAT_VERSION        1u
#define FORMAT_BLOCK          4096u
#define FORMAT_SUPERBLOCKS    2u
#define FORMAT_SUPERBLOCK_GAP (32u * 1024)
#define FORMAT_JOURNAL_OFFSET (64u * 1024)
#define FORMAT_FRAME_BLOCKS   16u
#define FORMAT_FRAME_MAX      (FORMAT_FRAME_BLOCKS * FORMAT_BLOCK)
#define FORMAT_FRAME_HEADER   64u
#define FORMAT_RECORD_HEADER  32u
#define FORMAT_RECORD_MAX     (FORMAT_RECORD_HEADER + MAX_KEY_SIZE)
#define FORMAT_JOURNAL_MIN    (1024u * 1024)
#define FORMAT_ID_SIZE        16u

/* Features that a reader must know to read, and those it may ignore (none yet). Bit 0 was never
 * one.
 */
#define FORMAT_UNCHECKED_RECORDS UINT64_C(2) /* of values without a checksum */
#define FORMAT_INCOMPATIBLE      FORMAT_UNCHECKED_RECORDS

struct format_superblock {
    uint32_t version;
    uint64_t incompatible, compatible; /* feature bits */
    uint8_t storage_id[FORMAT_ID_SIZE];
    uint64_t generation;
    uint64_t sequence; /* of the superblock */
    uint64_t salt;
    uint64_t journal_bytes; /* of each area */
    uint64_t capacity;      /* bytes of extents */
    uint64_t epoch;         /* the journal has reached at least this; 0: it may be empty */
    bool clean;             /* closed; then the journal ends at end_block of area epoch % 2 */
    bool preallocated;
    uint32_t end_block;
    uint8_t boot[FORMAT_ID_SIZE]; /* of the machine while it was open; zeros: unknown */
    uint64_t span; /* places of records lie below: the largest capacity there ever was */
};

enum format_found {
    FORMAT_VALID,
    FORMAT_ZERO,    /* all bytes are 0 */
    FORMAT_FOREIGN, /* not the magic */
    FORMAT_DAMAGED, /* the magic, but not the checksum, or values that cannot be */
    FORMAT_NEWER,   /* a version or a feature that this program does not know */
};

void format_superblock_encode(const struct format_superblock *sb, uint8_t block[FORMAT_BLOCK]);
/* For FORMAT_NEWER `sb` holds version and features, for FORMAT_VALID everything. */
enum format_found format_superblock_decode(const uint8_t block[FORMAT_BLOCK],
                                           struct format_superblock *sb);
/* Whether a file that begins so may be one of ours whose making was cut off, at whichever byte. */
bool format_superblock_begun(const uint8_t *bytes, size_t size);

static inline uint64_t format_area_offset(const struct format_superblock *sb, unsigned area)
{
    return FORMAT_JOURNAL_OFFSET + area * sb->journal_bytes;
}
static inline uint64_t format_extent_offset(const struct format_superblock *sb)
{
    return FORMAT_JOURNAL_OFFSET + 2 * sb->journal_bytes;
}
static inline uint32_t format_area_blocks(const struct format_superblock *sb)
{
    return (uint32_t)(sb->journal_bytes / FORMAT_BLOCK);
}

struct format_frame {
    uint64_t epoch;  /* of the area it lies in: area epoch % 2 */
    uint32_t index;  /* block of the area it begins at */
    uint32_t blocks; /* 1 to FORMAT_FRAME_BLOCKS */
    uint32_t bytes;  /* header and records */
    uint32_t records;
    uint32_t synced; /* blocks of the area below this were on stable media when it was made */
    bool complete;   /* this area alone says everything: its checkpoint is on stable media */
    uint64_t cursor; /* the checkpoint in this area has all extents that begin below this */
};

/* Fills in the header and checksum of a frame whose records are in place, and zeros its tail.
 * `frame->blocks` is derived from bytes. */
void format_frame_seal(struct format_frame *frame, uint64_t salt, uint8_t *at);
/* `size` bytes are there, a multiple of FORMAT_BLOCK. False: no whole frame begins there. */
bool format_frame_decode(const uint8_t *at, size_t size, uint64_t salt, struct format_frame *frame);

enum format_record_type {
    FORMAT_COMMIT = 1,     /* the extent is there from now on */
    FORMAT_CHECKPOINT = 2, /* it is there; same fields */
    FORMAT_DELETE = 3,     /* it is no more; without the key */
};
/* Of a value without one nothing but a sync, or that the machine has not restarted since, proves
 * that it lies there. */
enum format_checksum { FORMAT_CRC32C = 1, FORMAT_NO_CHECKSUM = 2 };

struct format_record {
    uint8_t type;
    uint32_t checksum; /* 0 if unchecked */
    bool unchecked;
    uint64_t offset;
    uint64_t size;      /* of the value */
    uint64_t allocated; /* multiple of the block */
    const uint8_t *key;
    uint16_t key_size;
};

/* Bytes it takes: a multiple of 8, at most FORMAT_RECORD_MAX. */
static inline size_t format_record_size(size_t key_size)
{
    return FORMAT_RECORD_HEADER + (key_size + 7) / 8 * 8;
}
/* Answers where the next record goes. */
uint8_t *format_record_encode(const struct format_record *record, uint8_t *at);
/* Reads the record at *at and moves on. 1: there it is; 0: no more; CORRUPT: it cannot be (type,
 * size, place outside `capacity`). */
int format_record_decode(const uint8_t **at, const uint8_t *end, uint64_t capacity,
                         struct format_record *record);

#endif
