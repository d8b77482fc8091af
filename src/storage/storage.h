/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extent file: values of one process on one disk, kept over restarts. A file of fixed size
 * holds two superblocks, two journal areas and the area of extents; docs/storage.md has the format.
 *
 * States of an extent:
 *
 *     FREE ──reserve──▶ RESERVED ──written──▶ WRITTEN ──journal record written──▶ COMMITTED
 *       ▲                  │ abort               │ abort                              │ delete
 *       ├──────────────────┘                     ▼                                    ▼
 *       └─── delete record on stable media, no lease, no record under way ◀──── DOOMED
 *
 * Invariants:
 *  1. Live extents never overlap; each begins and ends at a multiple of 4 KiB within the capacity.
 *  2. A record is written only after the bytes of its value were; so what the journal says after a
 *     kill is true, and after a power loss is true or known by its checksum to be false.
 *  3. Space becomes FREE only when no record on the disk can bring the old extent back (its delete
 *     record survived an fdatasync) and nobody reads it (no lease).
 *  4. What was COMMITTED when a process was killed is there again after the next open; what was
 *     COMMITTED and covered by a completed sync is there after a power loss too (of values without
 *     a checksum storage_written_unchecked says more).
 *  5. Nothing is written into a file before its lock is held, nor into one that is no extent file
 * of this format unless storage_options.replace says so.
 *
 * Calls do not block on the disk, but for storage_open, storage_close and storage_fsck. There is no
 * thread, lock or clock inside: the caller serializes all calls on one storage. Disk work is split:
 * a *_plan call (serialized) says what to write, the caller does it (outside its lock), a *_done
 * call (serialized) says how it went. The bytes of values are read and written by the caller, at
 * storage_info()->extent_offset + offset in storage_file().
 *
 * Ownership: an extent between reserve and commit belongs to the caller who reserved it, by its id,
 * and the id ends with exactly one of: being handed out by storage_next_committed, storage_abort,
 * storage_preserve. storage_close counts those that never ended and logs them as a mistake. A lease
 * belongs to who took it and ends with storage_unlease.
 *
 * Failures and what follows:
 *
 *     journal write or sync fails     writable no more: reserve answers IO, with the reason;
 * nothing is taken as durable; the same plan is given out again, and when it succeeds (the blocks
 * written since the last good sync once more, and synced) the tier is writable again by itself
 *     value write fails               the caller aborts, and says storage_writes_failed if it is
 * the disk's fault: no reserve until storage_writes_resumed journal full of live keys       reserve
 * answers NO_SPACE, as for space journal damaged at open         other records hold; the rest is
 * counted in storage_info no memory                       NO_MEMORY, nothing changed
 */
#ifndef STORAGE_STORAGE_H
#define STORAGE_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/file.h"
#include "platform/random.h"
#include "yolk/status.h"

#define STORAGE_UNIT      4096u /* extents, journal and superblock are multiples of it */
#define STORAGE_ID_SIZE   16u
#define STORAGE_SLOTS     64u   /* PATH.slot0 to PATH.slot63 */
#define STORAGE_PATH_SIZE 4096u /* bytes of a path with its suffix and NUL */

struct storage;

struct storage_options {
    const char *path;        /* the files are PATH.slot0, PATH.slot1, ...; one a process */
    uint64_t capacity_bytes; /* for values; superblock and journal lie outside it. A file that
                                exists grows to it, or is cut, with the extents beyond it */
    uint64_t journal_bytes;  /* of each of the two areas; 0: derived from the capacity */
    bool start_empty;        /* forget what the file holds */
    bool unchecked;          /* storage_written_unchecked may be called */
    uint8_t
        boot[STORAGE_ID_SIZE]; /* names the machine's life since it was started; zeros: unknown */
    bool replace;              /* also overwrite a slot that is no readable extent file */
    struct random random;      /* for identities: random_real(), or the simulator's */
};

/* What storage_open found and did. */
struct storage_info {
    char path[STORAGE_PATH_SIZE]; /* of the slot's file */
    unsigned slot;
    uint8_t storage_id[STORAGE_ID_SIZE];
    uint64_t generation;     /* grows each time the file is made anew */
    uint64_t capacity;       /* bytes; may be less than asked for, then `note` says why */
    uint64_t extent_offset;  /* where the extents begin in the file; offsets count from there */
    uint64_t journal_bytes;  /* of each area */
    uint64_t overhead_bytes; /* of the file outside the capacity */
    bool created;            /* empty: made anew, by wish or because there was none */
    bool clean;              /* the last user closed it */
    bool preallocated;       /* false: the file is sparse, so writes of values may find no space */
    bool direct;             /* around the page cache */
    uint64_t extents;        /* found committed */
    uint64_t dropped;        /* records of the last moments whose value had not reached the disk */
    uint64_t damaged;        /* journal blocks and records that should have been there and were not,
                                and extents given up for overlapping later ones */
    char note[512];          /* what an operator should know, or "" */
};

/* An extent as the caller is told of it. The key is borrowed until the next call on the storage. */
struct storage_extent {
    const uint8_t *key;
    size_t key_size;
    uint64_t offset;
    uint64_t size;      /* of the value */
    uint64_t allocated; /* of the extent: size rounded up to 4 KiB */
    uint32_t checksum;  /* crc32c of the value; 0 before storage_written */
    bool checked;       /* it has one */
};

struct storage_stats {
    uint64_t capacity, free_bytes;            /* of the extents */
    uint64_t reserved, written, doomed;       /* extents by state */
    uint64_t committed, committed_bytes;      /* allocated bytes */
    uint64_t leases;                          /* in force */
    uint64_t handles;                         /* ids that have not ended */
    uint64_t index_bytes, index_bytes_max;    /* of the journal that live keys take, and may take */
    uint64_t journal_writes, journal_written; /* calls and bytes */
    uint64_t syncs, checkpoints;              /* completed */
    uint64_t journal_errors, sync_errors;     /* failed */
    uint64_t given_up;                        /* values without a checksum, for a failed sync */
    uint64_t memory_bytes;                    /* of the index: keys, tables and allocator */
    bool writable;
};

/*
 * Takes the first slot whose lock is free: adopts its extents, or makes the file if there is none.
 * A slot in use by another process is passed over; one that is no extent file of this format is
 * refused, whichever slot it is, unless options.replace.
 *   BUSY         all slots are in use
 *   CONFIG       a wrong option; a capacity of which no useful part is free on the disk (NO_SPACE)
 *   UNSUPPORTED  the file is of a newer format, or is foreign; CORRUPT: it is one of ours, but both
 *                superblocks or the journal are gone. Nothing was written.
 */
YOLK_MUST_USE int storage_open(const struct file_system *fs, const struct storage_options *options,
                               struct storage **out);
/* Writes what is queued, syncs and marks the file clean, all as far as the disk allows: a failure
 * is answered, and logged, and the file is then recovered at the next open as after a kill. No plan
 * may be outstanding. Frees everything in any case. */
int storage_close(struct storage *s);
/* Frees without writing: what a kill would leave. A plan may be outstanding (its I/O must be over).
 */
void storage_abandon(struct storage *s);

const struct storage_info *storage_info(const struct storage *s);
void storage_stats(const struct storage *s, struct storage_stats *out);
struct file *storage_file(struct storage *s);
/* NULL, or why nothing can be reserved now. */
const char *storage_unwritable(const struct storage *s);
/* Writes of values fail, and not for want of a free extent: nothing is reserved until the caller
 * says it is worth a try (after a time, as it knows no better). `reason` is copied. */
void storage_writes_failed(struct storage *s, const char *reason);
void storage_writes_resumed(struct storage *s);

/* ---- writing ---- */
/* FREE -> RESERVED. INVALID: no key, one over MAX_KEY_SIZE, or a size of 0; TOO_LARGE: over the
 * capacity; NO_SPACE: evict and try again; IO: not writable (the last error says why). */
YOLK_MUST_USE int storage_reserve(struct storage *s, const void *key, size_t key_size,
                                  uint64_t size, uint64_t *id);
/* Where to write; STALE for an id that has ended. */
YOLK_MUST_USE int storage_locate(struct storage *s, uint64_t id, struct storage_extent *out);
/* RESERVED -> WRITTEN: all bytes were written, and no write is under way. Its record is queued. */
YOLK_MUST_USE int storage_written(struct storage *s, uint64_t id, uint32_t checksum);
/* The same of bytes whose checksum nobody knows. What was not synced of them is there after a kill
 * (if options->boot tells that it was no more than that), but is given up after a power loss. That
 * it was synced is known by the next sync alone: after the first one a journal write is due. When a
 * sync fails, nothing tells which of those that it had to prove the disk has: all are given up.
 * They are not found any more, no lease of them is given, and a delete record is written; their
 * space is free when storage_delete has come too, or storage_let_go. */
YOLK_MUST_USE int storage_written_unchecked(struct storage *s, uint64_t id);
/* Ends the id; the extent becomes free, at once or (after storage_written) by way of DOOMED. No
 * write to it may be under way. */
YOLK_MUST_USE int storage_abort(struct storage *s, uint64_t id);
/* Ends the id without a decision, when it is unknown whether the master knows the extent: it stays
 * as it is (WRITTEN goes on to COMMITTED, unannounced) until storage_delete, or, if it was only
 * RESERVED, at latest until the file is closed. */
YOLK_MUST_USE int storage_preserve(struct storage *s, uint64_t id);

/* ---- the journal ---- */
enum storage_step {
    STORAGE_NOTHING,    /* nothing is waiting to be written */
    STORAGE_WRITE,      /* pwrite `io` to storage_file, then storage_journal_done */
    STORAGE_SYNC_FIRST, /* records wait for a sync: storage_sync_plan, and so on */
};
struct storage_io {
    const void *data; /* 4 KiB aligned, unchanged until storage_journal_done */
    size_t size;
    uint64_t offset; /* in the file */
};
/* One journal write at a time; a sync may be under way beside it. A write takes all records queued
 * by then, up to 1 MiB: group commit. */
YOLK_MUST_USE enum storage_step storage_journal_plan(struct storage *s, struct storage_io *io);
/* WRITTEN -> COMMITTED for the extents of the plan, if `status` is YOLK_OK. */
void storage_journal_done(struct storage *s, int status);
/* Each extent that became COMMITTED since, once; its id has ended. False: no more. */
bool storage_next_committed(struct storage *s, uint64_t *id, struct storage_extent *out);
/* True: fdatasync storage_file, then storage_sync_done. It covers the values too that were written
 * before. False: all is on stable media, or a journal write must be made first. */
YOLK_MUST_USE bool storage_sync_plan(struct storage *s);
void storage_sync_done(struct storage *s, int status);

/* ---- deleting ---- */
/* COMMITTED or preserved -> DOOMED. `seq` counts the deletes: 1, 2, 3, ... NOT_FOUND: no such
 * extent begins there. */
YOLK_MUST_USE int storage_delete(struct storage *s, uint64_t offset, uint64_t *seq);
/* All deletes up to this one are done: on stable media, no lease left, the space FREE. */
uint64_t storage_deleted(const struct storage *s);
/* What was given up needs no storage_delete any more: a master hears anew what is there. */
void storage_let_go(struct storage *s);

/* ---- reading ---- */
/* For one read of the extent that begins at `offset`: STALE unless it is COMMITTED and has exactly
 * this value size and this key (base_hash64). */
YOLK_MUST_USE int storage_lease(struct storage *s, uint64_t offset, uint64_t size,
                                uint64_t key_hash);
/* Ends one lease on the extent at `offset`. */
void storage_unlease(struct storage *s, uint64_t offset);
/* The COMMITTED extent of the key; of several the one committed last since the file was opened. */
YOLK_MUST_USE int storage_find(struct storage *s, const void *key, size_t key_size,
                               struct storage_extent *out);
/* The COMMITTED extents by offset: start with *cursor = 0; false after the last. Others may come
 * and go between the calls. */
bool storage_next(struct storage *s, uint64_t *cursor, struct storage_extent *out);

/* NULL, or what of the state is broken: a recount of everything. Slow; for tests. */
const char *storage_check(struct storage *s);

/* ---- checking a file ---- */
struct storage_fsck_report {
    struct storage_info info;
    unsigned version;
    uint64_t epoch;
    uint64_t extents, value_bytes, allocated_bytes;
    uint64_t frames, records; /* of the journal that count */
    uint64_t pending;     /* frames after the last sync that are not whole: a crash, no mistake */
    uint64_t differences; /* each was handed to `say` */
    uint64_t checked;     /* values read and compared with their checksum */
};
/* Reads the file at `path` (PATH.slotN itself) and changes nothing. BUSY: a process has it open.
 * YOLK_OK: it could be read; report->differences says whether all was right. `say` gets a line for
 * each difference, up to 1000 of them. */
YOLK_MUST_USE int storage_fsck(const struct file_system *fs, const char *path, bool data,
                               void (*say)(void *self, const char *line), void *self,
                               struct storage_fsck_report *report);

#endif
