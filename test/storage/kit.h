/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storage on a recording disk, driven step by step, and beside it a plain list of what was put
 * into it and when: the independent account that the tests compare with.
 */
#ifndef TEST_STORAGE_KIT_H
#define TEST_STORAGE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "disk.h"
#include "platform/random.h"
#include "storage/storage.h"

#define KIT_PATH  "/disk/tier"
#define KIT_SLOT0 "/disk/tier.slot0"
#define KIT_KEYS  60u
#define NEVER     SIZE_MAX

/* One put. Times are numbers of events of the disk's record. */
struct item {
    uint64_t id;
    char key[64];
    size_t key_size;
    uint64_t offset, size;
    uint32_t crc;
    bool owned, committed, preserved;
    bool unchecked;         /* then crc is 0, */
    bool synced_once, said; /* and it is synced when what was written after its sync is, too */
    size_t said_at, written_at;
    bool proven, given_up; /* of those unchecked: by a sync that began later; since one failed */
    unsigned leases;
    uint64_t delete_seq; /* 0: not deleted */
    size_t committed_at, synced_at, delete_at, deleted_at;
};

struct kit {
    struct disk *disk;
    struct file_system fs;
    struct random_sim seeded;
    struct random random;
    struct storage_options options;
    struct storage *s;
    struct item *items;
    size_t count, room;
    struct storage_io io; /* of the write under way */
    bool writing, syncing;
    bool sync_failed; /* what is written next is an old write again */
    size_t sync_from; /* events when the sync under way was planned */
};

void kit_init(struct kit *kit, uint64_t seed, uint64_t capacity);
void kit_free(struct kit *kit);
void kit_open(struct kit *kit);
/* Closes; what was committed stays in the list. */
void kit_close(struct kit *kit);

uint64_t kit_below(struct kit *kit, uint64_t bound);

/* Each does one step and keeps the list. */
struct item *kit_reserve(struct kit *kit, uint64_t size); /* NULL: refused with *status */
void kit_write(struct kit *kit, struct item *item);
bool kit_journal_begin(struct kit *kit); /* false: nothing to write now */
void kit_journal_end(struct kit *kit);
bool kit_sync_begin(struct kit *kit);
void kit_sync_end(struct kit *kit);
void kit_delete(struct kit *kit, struct item *item);
/* All of the above until nothing is queued or unsynced. */
void kit_settle(struct kit *kit);
struct item *kit_put(struct kit *kit, uint64_t size); /* to COMMITTED and synced */
/* A random one that is committed and not deleted; NULL: none. */
struct item *kit_any_committed(struct kit *kit);
/* One step at random. */
void kit_step(struct kit *kit);

struct storage_stats kit_stats(struct kit *kit);
/* Fails with what is broken. */
void kit_check(struct kit *kit);
/* Makes a file with five extents in a storage that is not open; its bytes, to spoil. */
uint8_t *kit_good_file(struct kit *kit, uint64_t *size);

/* Is the value of `e` in the file? */
bool kit_bytes_right(struct kit *kit, struct storage *s, const struct storage_extent *e);

#endif
