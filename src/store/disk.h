/* SPDX-License-Identifier: Apache-2.0 */
/* A node's disk: the extent file, served as a segment, and the threads that do the I/O of its tier
 * machine. Nothing here waits for the disk but those, open and close; the control thread only
 * hands over what came from the master and takes what goes there. */
#ifndef STORE_DISK_H
#define STORE_DISK_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/engine.h>

#include "base/buf.h"
#include "platform/file.h"
#include "store/session.h"

struct store_disk;

struct store_disk_options {
    const struct file_system *fs; /* borrowed until open returns */
    uint32_t medium;              /* WIRE_MEDIUM_GDS, else LOCAL_DISK */
    const char *path;             /* of the extent files, PATH.slotN */
    uint64_t size_bytes;          /* of values */
    uint64_t sync_ms;
    int start_empty;
    /* Transports that may move between this process's memory and the file, the best first; ends
     * with NULL. NULL: uring and posix. */
    const char *const *ways;
    struct yolk_engine *engine;
    /* LOCAL_DISK: the memory segment; registered with the engine for the disk's life. */
    void *memory;
    uint64_t memory_size;
    void (*wake)(void *self); /* there is a frame to take, or memory is quiet */
    void *wake_self;
};

/* Locks and recovers (or makes) the file, serves it, starts the thread. The text of an error names
 * the file and the rule. */
YOLK_MUST_USE int store_disk_open(const struct store_disk_options *options,
                                  struct store_disk **out);
/* Ends what is under way, makes all durable, marks the file clean. The session is over: nobody
 * calls the functions below any more. A failure is in the log; the file is then recovered at the
 * next open. */
void store_disk_close(struct store_disk *disk);

/* For the session machine: size, endpoints, identity and offers. Borrowed for the disk's life. */
const struct store_disk_mount *store_disk_mount(struct store_disk *disk);

/* ---- from the control thread ---- */
void store_disk_mounted(struct store_disk *disk, uint64_t memory, uint64_t segment);
/* All extents were offered: tasks are taken from now on. */
void store_disk_offered(struct store_disk *disk);
/* The mount is over. Mount again only when memory is quiet: no move writes to the segment. */
void store_disk_unmount(struct store_disk *disk);
int store_disk_is_quiet(struct store_disk *disk);
/* TASKS or FACTS; others are ignored. */
void store_disk_input(struct store_disk *disk, uint16_t message, const uint8_t *body, size_t size);
/* 1: a frame for the master. */
int store_disk_take_frame(struct store_disk *disk, uint16_t *message, struct base_buf *body);
/* As yolk_served_fence_session, of the disk segment. */
YOLK_MUST_USE int store_disk_fence_session(struct store_disk *disk, uint64_t session);

/* Appends lines "name value". */
YOLK_MUST_USE int store_disk_stat(struct store_disk *disk, struct base_buf *lines);
#endif
