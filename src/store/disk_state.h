/* SPDX-License-Identifier: Apache-2.0 */
/* A node's disk, shared by its files: disk.c (life, access, offers, the control thread's side) and
 * disk_io.c (the threads). */
#ifndef STORE_DISK_STATE_H
#define STORE_DISK_STATE_H

#include <stdbool.h>

#include <yolk/engine.h>

#include "platform/thread.h"
#include "storage/storage.h"
#include "store/disk.h"
#include "store/disk_mount.h"
#include "store/tier.h"

enum { DISK_DEPTH = 32 };          /* moves at a time */
enum { DISK_ENDPOINT_MAX = 1024 }; /* the text of one transport */

struct disk_frame {
    struct disk_frame *next;
    uint16_t message;
    size_t size;
    uint8_t body[];
};

struct disk_flight;

struct store_disk {
    struct yolk_engine *engine;
    uint32_t medium;
    uint8_t *memory;
    uint64_t memory_size;
    void (*wake)(void *self);
    void *wake_self;
    struct yolk_served *served;
    struct store_disk_mount mount;
    char own[2 * DISK_ENDPOINT_MAX]; /* endpoints that move between this memory and the file */
    uint8_t write_key[16];           /* in the ticket of own writes: nobody else may write */
    struct thread thread;            /* moves, journal writes */
    struct thread syncer;

    struct mutex lock; /* protects all below; held over no I/O */
    struct condition changed;
    bool news; /* since the thread last asked the tier what to do */
    struct condition sync_changed;
    struct condition journaled; /* a write of the journal ended */
    struct storage *storage;
    struct store_tier *tier;
    uint64_t handle; /* of the own disk segment at the engine; 0: none */
    struct disk_frame *first, *last;
    int stop;
    int off;   /* as last logged */
    int stuck; /* something is under way that never ends */
    int sync_wanted;
    int sync_stop;

    /* The thread's own. */
    struct disk_flight *flights; /* newest first */
    struct yolk_request requests[DISK_DEPTH];
};

/* disk_io.c */
YOLK_MUST_USE int store_disk_start_threads(struct store_disk *disk);
/* With the lock held: there is something new for the thread, which may be about to sleep. */
void store_disk_rouse(struct store_disk *disk);
/* What is under way ends first. Either thread may never have started. */
void store_disk_stop_threads(struct store_disk *disk);

#endif
