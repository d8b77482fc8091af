/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk below the memory of a node.
 *
 * A session may mount a segment of memory and one of medium LOCAL_DISK; they are mates then. An
 * object has replicas in memory, as many as its put asked for, and at most one on a disk. The
 * owner allocates on the disk and the master keeps the books: what lies where, who reads it, what
 * may go. So a disk segment takes no puts, and its owner is told of freed extents only.
 *
 *     put → memory ──OFFLOAD──▶ memory and disk ──eviction of memory──▶ disk only ──PROMOTE──▶ both
 *                                     │ eviction of the disk                 │
 *                                     ▼                                      ▼
 *                                  memory                                  gone
 *
 * Going from memory. The policy names what goes next. What it has named stands in one of two lists
 * of the segment: `clean`, it may go as it is, mostly because it is on a disk too; or `dirty`, it
 * may not (any more). Eviction takes a clean one, and drops it at once; without one it asks the
 * owner to copy the next to the disk and takes nothing: the put is answered NO_SPACE, and the
 * client asks again. From a low watermark on this is done ahead: what is in use above the watermark
 * is to stand clean. Without a mate, or when no copy was made for offload_wait_ms although one was
 * wanted, what is named is dropped as if there were no disk, and counted. So is what is not to be
 * copied: the disk cannot take it, or is nearly full and the policy wants something else on it.
 *
 * A memory that is unmounted with some grace takes no more puts, and goes only when all of it was
 * copied, or no copy is under way, or three quarters of the grace are over.
 *
 * Tasks. An OFFLOAD holds a reference to the memory extent, as a reader would; a PROMOTE holds one
 * to the disk extent and one to the memory extent it is to fill, which is OPEN and of no object.
 * The references end with the task: by its answer, or with the mount of the memory. When only the
 * disk's mount ends, the owner may go on with what it has begun, so what tasks hold of the memory
 * is kept (`ended`) until the memory's mount ends too. Ids grow as long as the memory is mounted;
 * an answer counts once, for an open task of exactly that id and segment, from the owner's
 * connection. A task without an answer is pushed again after resend_ms and on a new connection.
 * Bounds, a memory segment: MASTER_OFFLOADS and an eighth of its bytes, MASTER_PROMOTES and a
 * sixteenth, at most MASTER_TASK_BYTES (one task always may), and MASTER_TASK_WINDOW from the
 * lowest open id to the highest.
 *
 * What may fail, and what follows:
 *
 *     OFFLOAD: NO_SPACE             room is made on the disk, by the policy; when some came free,
 *                                   or after resend_ms, tried again, first of all
 *     OFFLOAD: too large for it     the object is dropped when its turn comes
 *     OFFLOAD: any other failure    a pause, doubling up to MASTER_PAUSE_MAX_MS; tried again
 *     the object went meanwhile     the reported extent is freed again
 *     reported space was given up,  the answer came before the acknowledgement: the task stays
 *     the owner's word is missing   open and is answered again
 *     reported space is in use      a mistake of the owner: the task has failed, counted
 *     PROMOTE: CORRUPT              the disk replica goes
 *     PROMOTE: any other failure    the memory is given back; the next reader may try again
 *     the owner, or a segment goes  see above; what it had finished is offered with the next mount
 *
 * Space of a disk. An extent that is given up waits for its readers, then the owner is told
 * (FREED), and its answer to that (the delete is on stable media) makes the range free here. The
 * owner may use it again before that, but answers an OFFLOAD that did only afterwards; so a new
 * extent meets a range that is free here, or the answer to FREED was lost and comes again.
 * A mount says anew what lies on the disk: facts of before are void. What the owner offers and is
 * not accepted, it deletes; what it does not offer is gone.
 *
 * Which offers are accepted. The extents of a disk outlive the process of their owner, so a disk is
 * known by its storage_id; its lock is the proof that the process which had it before is dead, so
 * that session ends at once. When it was lost, also by SEGMENT_UNMOUNT or SESSION_CLOSE, its keys
 * are remembered for disk_lost_keep_ms, and of those what lies where it lay is taken up again. A
 * disk may come back larger or smaller: what does not fit any more is not offered, and so is gone.
 * A disk never seen in this life of the master is believed. One that was seen and forgotten is not:
 * what was removed meanwhile would come back.
 */
#ifndef YOLK_MASTER_TIER_H
#define YOLK_MASTER_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/limits.h"
#include "wire/msg.h"

#define MASTER_OFFLOADS     256u
#define MASTER_PROMOTES     32u
#define MASTER_TASK_BYTES   (64 * MIB)
#define MASTER_TASK_WINDOW  1000u /* the owner keeps 1024 */
#define MASTER_PAUSE_MS     100u
#define MASTER_PAUSE_MAX_MS 5000u
#define MASTER_PROMOTE_S    60u   /* two gets within this make an object hot */
#define MASTER_DISK_UNIT    4096u /* extents of a disk begin and end at multiples of it */
#define MASTER_STORAGE_IDS  65536u

struct master_core;
struct master_extent;
struct master_object;
struct master_segment;

struct master_task {
    struct base_list link; /* by id */
    uint64_t id;
    uint64_t begun_at;
    uint64_t sent_at; /* 0: to be sent */
    uint64_t size;    /* of the value */
    uint64_t hash;
    struct master_extent *memory;
    struct master_extent *disk; /* PROMOTE */
    uint8_t kind;               /* enum wire_task_kind */
    uint32_t key_size;
    uint8_t key[];
};

/* One direction of a memory segment. */
struct master_tasks {
    struct base_list open; /* by id */
    uint32_t count;
    uint64_t bytes;
};

/* In each segment; all but `mate` is of memory only. */
struct master_tier {
    struct master_segment *mate; /* NULL: none */
    struct master_tasks offloads, promotes;
    struct base_list ended; /* tasks whose disk went */
    uint64_t next_id;
    struct base_list clean, dirty; /* front: goes first */
    uint64_t clean_bytes, dirty_bytes;
    uint64_t clean_room;  /* that they and the pinned ones with a copy take on the disk, at most */
    uint64_t stuck_since; /* a copy is wanted, and none was made since; 0: not so */
    uint64_t pause_until;
    uint32_t failures;  /* in a row */
    uint64_t leaves_at; /* the memory is being unmounted; 0: not so */
    bool no_space;      /* the pause is for want of room on the disk */
    uint64_t held_max; /* what the disk held when it last had no room: it may be smaller than it was
                        * said to be; 0: it always had */
};

void master_tier_init(struct master_tier *tier);
/* The segment has been mounted: looks for its mate. */
void master_tier_pair(struct master_core *core, struct master_segment *segment);
/* Its mount is over. */
void master_tier_part(struct master_core *core, struct master_segment *segment);
/* The disk has free space again. */
void master_tier_room(struct master_core *core, struct master_segment *disk);

/* Bytes that a value takes on a disk. */
static inline uint64_t master_disk_room(uint64_t size)
{
    return (size + MASTER_DISK_UNIT - 1) / MASTER_DISK_UNIT * MASTER_DISK_UNIT;
}

enum master_offload { OFFLOAD_BEGUN, OFFLOAD_WAIT, OFFLOAD_DROP };
/* `extent` is to go from memory, and no other replica can be read. WAIT: it is in `dirty`. */
enum master_offload master_tier_offload(struct master_core *core, struct master_extent *extent);
/* It is not to be copied: it may go as it is, counted. */
bool master_tier_refuses(struct master_core *core, const struct master_extent *extent);
/* Copies to the disk what will have to go soon. True: it ended for the budget. */
bool master_tier_ahead(struct master_core *core, struct master_segment *memory, uint32_t budget);
/* The memory is being unmounted: copies all of it, as long as that goes on. False: it may go. */
bool master_tier_leaves(struct master_core *core, struct master_segment *memory, uint64_t grace_ms);
/* A get found the object on this disk only. */
void master_tier_hit(struct master_core *core, struct master_extent *disk);
/* The replica on the disk goes; those in memory are not clean any more. */
void master_tier_disk_gone(struct master_object *object);

void master_tier_push(struct master_core *core, struct master_segment *memory);
/* Of all tasks, or only those that wait for long. */
void master_tier_resend(struct master_core *core, struct master_segment *memory, bool at_once);
/* Not open any more; to be freed. */
void master_task_close(struct master_segment *memory, struct master_task *task);
/* Ends its references; what a PROMOTE was to fill is given back. */
void master_task_unhold_disk(struct master_core *core, struct master_task *task);
void master_task_unhold(struct master_core *core, struct master_task *task);
void master_tasks_done(struct master_core *core, const struct wire_tasks_done *msg);
void master_replica_bad(struct master_core *core, const struct wire_replica_bad *msg);

/* For checks: references that tasks hold, and what is broken. */
uint64_t master_tier_refs(const struct master_segment *memory);
const char *master_tier_check(const struct master_segment *segment);

/* Storage ids ever mounted here. */
bool master_storage_seen(const struct master_core *core, const uint8_t *storage_id);
YOLK_MUST_USE enum yolk_status master_storage_note(struct master_core *core,
                                                   const uint8_t *storage_id);
#endif
