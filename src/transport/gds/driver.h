/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process has of cuFile once, however many engines use it: the open driver, the memory and
 * the files registered with it, idle batch handles, and the thread that makes the calls which are
 * no I/O. (cuFile leaves contexts on the stack of the threads that call it, so none of the caller's
 * does.)
 */
#ifndef GDS_DRIVER_H
#define GDS_DRIVER_H

#include <yolk/transport.h>

#include "base/list.h"
#include "device/cuda.h"
#include "device/cufile.h"
#include "device/device.h"
#include "platform/thread.h"
#include "transport/gds/batch.h"
#include "transport/gds/buffers.h"
#include "transport/gds/pack.h"

enum {
    GDS_DEPTH_DEFAULT = 32,
    GDS_POOL_MAX = 16,                   /* idle batch handles */
    GDS_PROBE_TIMEOUT_DEFAULT_MS = 10000 /* of the other process that tries the driver first */
};

struct gds_call; /* one that waits for the thread */

struct gds_driver {
    struct device *device;
    const struct cufile *cufile;
    struct cufile_properties properties;
    struct gds_buffers buffers;
    bool opened;       /* by us; else by somebody else in the process, and not ours to close */
    bool counts;       /* cuFile counts by which way bytes went */
    struct mutex lock; /* of all below */
    struct condition changed;
    struct base_list calls;
    bool ending;
    struct thread thread;
    struct base_list files; /* files.h */
    struct base_list slabs; /* pack.h */
    unsigned compatible;    /* of them those in compatibility mode */
    struct gds_batch *idle[GDS_POOL_MAX];
    unsigned idle_count;
};

/* The one of this process, which the first caller opens. Each gives it back. UNSUPPORTED with the
 * reason; INVALID: it is open with other libraries. */
YOLK_MUST_USE int gds_driver_acquire(const struct yolk_transport_options *options,
                                     struct gds_driver **out);
void gds_driver_release(struct gds_driver *driver);
/* Runs it with the one that is open, if there is one, which stays open meanwhile. */
void gds_driver_look(void (*function)(struct gds_driver *driver, void *self), void *self);

/* Runs it in the driver's own thread, between device_enter and _leave of GPU 0, and waits for its
 * end; its last error becomes the caller's. */
int gds_driver_call(struct gds_driver *driver, int (*function)(void *self), void *self);

/* In threads of ours: a scope in which cuFile may be called, as device_enter. CLOSED: the process
 * ends. gds_leave takes what cuFile left on the thread's stack of contexts, too. */
YOLK_MUST_USE int gds_enter(struct gds_driver *driver, int ordinal, struct device_scope *scope);
void gds_leave(struct gds_driver *driver, struct device_scope *scope);
/* Only that: the scope goes on. */
void gds_tidy(struct gds_driver *driver);

/* Nothing more is to go into cuFile, and whoever is in it is to come out soon. */
bool gds_process_ends(void);

/* A slab whose memory is registered with cuFile, and no more; inside a scope. */
void gds_driver_add_slab(struct gds_driver *driver, struct gds_slab *slab);
void gds_driver_remove_slab(struct gds_driver *driver, struct gds_slab *slab);

/* A batch handle with nothing in it, out of the pool or new; inside a scope. */
YOLK_MUST_USE int gds_batch_take(struct gds_driver *driver, unsigned depth, uint64_t slice,
                                 struct gds_batch **out);
/* Of one that is quiet; it goes to the pool if it may be used again. Inside a scope. */
void gds_batch_give(struct gds_driver *driver, struct gds_batch *batch);

/* ---- between end.c and driver.c ---- */

/* Has the process's end close what is open, from now on. NO_MEMORY. */
YOLK_MUST_USE int gds_watch_end(void);
/* Nobody is inside: gives up all that cuFile has. False: not within the time. */
bool gds_driver_end(uint64_t deadline_ns);
void gds_scope_end(struct gds_driver *driver, struct device_scope *scope);

#endif
