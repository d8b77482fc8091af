/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure machine of a node's disk tier: what the master asks for (TASKS, and FACTS of the disk
 * segment) → moves between the memory segment and the extent file, journal writes and syncs →
 * answers (TASKS_DONE, FACTS_ACK).
 *
 *     OFFLOAD: queued → WRITE (extent reserved) → JOURNAL (extent written) → answered
 *     PROMOTE: queued → READ → answered
 *     FREED:   deleted → JOURNAL → SYNC → acknowledged, once no reader is left
 *
 * Rules.
 *  1. Tasks are of one mount of both segments. Ids only grow: one below the highest floor seen, or
 *     STORE_TIER_WINDOW or more above it, is not taken (the master sends it again); a known one is
 *     not done again, and answered again if it is finished. So a task is done at most once.
 *  2. A mount ends (store_tier_unmount) before the next one begins: what is queued is dropped, an
 *     extent that is being written is given up when its write is over, an answer is not sent. What
 *     was committed stays in the file and is offered with the next mount. The memory segment must
 *     not be mounted again before store_tier_memory_writes() is 0.
 *  3. FACTS are applied in order of their seq. One is acknowledged when its deletes, and all before
 *     it, are on stable media and no longer read: only then may the master place another extent
 *     there. Space can become free here before that; so the answer to an OFFLOAD that got such
 *     space waits until the FACTS that freed it are acknowledged.
 *  4. A failure of the disk fails the tasks it hits. When several writes fail in a row, or the
 *     journal, OFFLOADs are answered IO at once for a while; then one is tried again. Reads and
 *     deletes go on.
 *
 * No clock, thread or I/O: the driver performs what store_tier_next gives out, several at a time,
 * and reports each end. Bounded: STORE_TIER_WINDOW tasks, options.depth moves of
 * options.depth_bytes (one move always may), one journal write, one sync.
 */
#ifndef STORE_TIER_H
#define STORE_TIER_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

struct storage;
struct store_tier;

enum { STORE_TIER_WINDOW = 1024 };

struct store_tier_options {
    struct storage *storage; /* borrowed; its calls are serialized with those of the machine */
    uint64_t memory_size;    /* of the memory segment */
    uint32_t depth;          /* moves at a time */
    uint64_t depth_bytes;    /* of moves at a time */
    uint64_t sync_ns; /* a commit or delete is on stable media after this and a sync; without a
                         checksum, after both once more */
    uint64_t retry_first_ns; /* pause after a failure of the disk; doubles … */
    uint64_t retry_max_ns;   /* … up to this */
};

enum store_tier_output_kind {
    STORE_TIER_WRITE = 1, /* memory → disk; answer store_tier_moved with the bytes' crc32c */
    STORE_TIER_READ,      /* disk → memory; the same */
    STORE_TIER_JOURNAL,   /* pwrite `data` to storage_file; answer store_tier_journaled */
    STORE_TIER_SYNC,      /* fdatasync storage_file; answer store_tier_synced */
    STORE_TIER_SEND,      /* message, body: to the master, no answer */
    STORE_TIER_WAIT,      /* until deadline_ns or input */
};

struct store_tier_output {
    enum store_tier_output_kind kind;
    uint64_t deadline_ns; /* WAIT */
    /* WRITE, READ */
    uint32_t move; /* names it in store_tier_moved */
    uint64_t memory_offset;
    uint64_t disk_offset;
    uint64_t size;
    uint64_t key_hash; /* base_hash64 of the key */
    /* JOURNAL: unchanged until answered */
    const void *data;
    size_t data_size;
    uint64_t file_offset;
    /* SEND: borrowed until the next call of store_tier_next */
    uint16_t message;
    const uint8_t *body;
    size_t body_size;
};

struct store_tier_stats {
    uint64_t offloads, offload_bytes; /* committed */
    uint64_t offloads_no_space;       /* answered so: the master evicts and asks again */
    uint64_t offloads_failed;
    uint64_t promotes, promote_bytes;
    uint64_t promotes_failed;
    uint64_t corrupt; /* values read with a wrong checksum */
    uint64_t deletes;
    uint64_t tasks_refused; /* of another mount, below the floor, beyond the window, malformed */
    uint64_t disk_errors;   /* writes of values, the journal and syncs that failed */
    uint32_t queued, moving, committing; /* tasks now */
    uint32_t facts_waiting;              /* batches not yet acknowledged */
};

YOLK_MUST_USE enum yolk_status store_tier_create(const struct store_tier_options *options,
                                                 struct store_tier **out);
/* No move, journal write or sync may be under way, unless the storage is abandoned too. */
void store_tier_destroy(struct store_tier *tier);

/* Both segments are mounted under these ids; ids of tasks and seqs of facts begin anew. */
void store_tier_mounted(struct store_tier *tier, uint64_t memory, uint64_t disk);
/* All extents were offered. Only now tasks are taken: an extent that is made meanwhile would be
 * offered too, and be refused because its task was answered. */
void store_tier_offered(struct store_tier *tier);
void store_tier_unmount(struct store_tier *tier);
/* Moves under way that write to the memory segment. */
uint32_t store_tier_memory_writes(const struct store_tier *tier);
/* 1: nothing is under way (unmounted or not) but what is stuck. */
int store_tier_is_quiet(const struct store_tier *tier);

/* TASKS or FACTS; those of other segments are ignored. */
void store_tier_input(struct store_tier *tier, uint16_t message, const uint8_t *body,
                      size_t body_size);
void store_tier_next(struct store_tier *tier, uint64_t now_ns, struct store_tier_output *output);
/* checksum: of what was moved, if status is YOLK_OK. */
void store_tier_moved(struct store_tier *tier, uint64_t now_ns, uint32_t move,
                      enum yolk_status status, uint32_t checksum);
/* It ended without being known to be over: bytes may still land. Its extent and its place among the
 * moves stay taken, the task unanswered; one that writes to memory keeps it from being mounted. */
void store_tier_stuck(struct store_tier *tier, uint32_t move);
void store_tier_journaled(struct store_tier *tier, uint64_t now_ns, enum yolk_status status);
void store_tier_synced(struct store_tier *tier, uint64_t now_ns, enum yolk_status status);

/* NULL while OFFLOADs are tried, else why not. Borrowed until the next call. */
const char *store_tier_off(const struct store_tier *tier);
void store_tier_stats(const struct store_tier *tier, struct store_tier_stats *out);
#endif
