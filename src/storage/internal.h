/* SPDX-License-Identifier: Apache-2.0 */
/* The storage and the steps of opening it. */
#ifndef STORAGE_INTERNAL_H
#define STORAGE_INTERNAL_H

#include "storage/journal.h"
#include "storage/map.h"
#include "storage/recover.h"
#include "storage/storage.h"

#define REASON_SIZE 256u

struct storage {
    struct file *file; /* locked */
    struct format_superblock sb;
    struct map map;
    struct journal journal;
    struct storage_info info;

    bool same_boot;   /* as when the file was last open */
    uint32_t serial;  /* of the last extent reserved */
    uint64_t handles; /* ids that have not ended */
    uint64_t leases;
    uint64_t held; /* extents that were given up, and not yet let go of */
    uint64_t index_bytes_max;

    uint64_t *committed; /* ids to announce: [committed_next, committed_count) */
    size_t committed_next, committed_count, committed_room;

    /* Ids of values without a checksum that no sync has proven, in the order in which they were
     * written; the sync under way covers the first unproven_sync. */
    uint64_t *unproven;
    size_t unproven_count, unproven_room, unproven_sync;

    uint8_t *deletes_over; /* a ring: is delete number n, at n % room, done; room: a power of two */
    uint64_t deletes_room, deletes, deletes_done;

    bool journal_failed, sync_failed, writes_failed;
    char journal_reason[REASON_SIZE], writes_reason[REASON_SIZE];
    struct storage_stats counts; /* those of the journal */
};

/* A slot's file, open and locked. */
struct slot {
    struct file *file;
    char path[STORAGE_PATH_SIZE];
    unsigned index;
    bool fresh; /* there was none: it is at path + SLOT_FRESH until slot_keep */
};
#define SLOT_FRESH ".new"

YOLK_MUST_USE int slot_take(const struct file_system *fs, const char *path, struct slot *slot);
/* Makes it an empty extent file, with what fits of options->capacity_bytes; `sb` and `info` get
 * what it became. `before`: the superblock it had, or NULL. At any moment it is what it was or what
 * it becomes. */
YOLK_MUST_USE int slot_format(struct slot *slot, const struct storage_options *options,
                              const struct format_superblock *before, struct format_superblock *sb,
                              struct storage_info *info);
/* A larger capacity, up to the one asked for, as far as the disk has room. */
YOLK_MUST_USE int slot_grow(struct slot *slot, const struct storage_options *options,
                            struct format_superblock *sb, struct storage_info *info);
/* Cuts off what a larger capacity left behind. */
YOLK_MUST_USE int slot_trim(struct file *file, const struct format_superblock *sb);
/* Gives a fresh file its name. */
YOLK_MUST_USE int slot_keep(const struct file_system *fs, struct slot *slot);

/* Writes the next superblock and syncs the file. */
YOLK_MUST_USE int superblock_write(struct file *file, struct format_superblock *sb);

/* The part of it that the superblock says. */
void storage_inform(struct storage_info *info, const struct format_superblock *sb);

/* Writes all that is queued and syncs. */
YOLK_MUST_USE int storage_drain(struct storage *s);

/* COMMITTED, WRITTEN or RESERVED -> DOOMED, and on to FREE as soon as that may be. */
void storage_doom(struct storage *s, struct extent *e);
/* DOOMED -> FREE if it is quiet and unread. */
void storage_free_if_over(struct storage *s, struct extent *e);
uint64_t storage_id_of(const struct storage *s, const struct extent *e);
void storage_describe(const struct storage *s, const struct extent *e, struct storage_extent *out);

#endif
