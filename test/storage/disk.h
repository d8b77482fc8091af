/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk in memory that records what is written to it: every prefix of the record, with any choice
 * and order of the writes that no sync covered, can be made into the disk that a crash at that
 * moment could have left. Unlike the simulated file system it lets the test choose.
 */
#ifndef TEST_STORAGE_DISK_H
#define TEST_STORAGE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/file.h"

struct disk_event {
    enum { DISK_WRITE, DISK_SYNC, DISK_RENAME, DISK_RESIZE, DISK_MARK } kind;
    unsigned file;
    uint64_t offset, size; /* MARK: the caller's numbers */
    uint8_t *data;
};

struct disk;

/* Another disk with the files as they are now, nothing recorded yet. */
struct disk *disk_create(void);
struct disk *disk_copy(const struct disk *from);
void disk_destroy(struct disk *disk);
struct file_system disk_system(struct disk *disk);

/* ---- recording ---- */
void disk_record(struct disk *disk);
/* A note of the caller's in the record. */
void disk_mark(struct disk *disk, uint64_t a, uint64_t b);
size_t disk_events(const struct disk *disk);
const struct disk_event *disk_event(const struct disk *disk, size_t index);
/* Applies an event of another disk's record to this one. */
void disk_apply(struct disk *disk, const struct disk_event *event);
/* Only those 512-byte sectors of the write whose bit is set in `sectors` (bit i % 64). */
void disk_apply_torn(struct disk *disk, const struct disk_event *event, uint64_t sectors);

/* ---- faults ---- */
/* The next `count` operations of the kind after `after` others fail. */
void disk_fail_writes(struct disk *disk, unsigned after, unsigned count, int status);
void disk_fail_syncs(struct disk *disk, unsigned after, unsigned count);
void disk_fail_reads(struct disk *disk, unsigned after, unsigned count);
void disk_set_space(struct disk *disk, uint64_t bytes);
/* fallocate answers this from now on. */
void disk_set_allocate(struct disk *disk, int status);
/* What all handles of now do: answer CLOSED. Their locks are gone. */
void disk_kill(struct disk *disk);

/* The bytes of a file, to look at and to spoil; NULL if there is none. */
uint8_t *disk_bytes(struct disk *disk, const char *path, uint64_t *size);
void disk_put(struct disk *disk, const char *path, const void *bytes, uint64_t size);
bool disk_has(struct disk *disk, const char *path);

#endif
