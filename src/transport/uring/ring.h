/* SPDX-License-Identifier: Apache-2.0 */
/* One ring and the ios under way in it. Mostly one channel uses it at a time; where there are more
 * channels than rings, several do, and each takes in the others' completions too. */
#ifndef TRANSPORT_URING_RING_H
#define TRANSPORT_URING_RING_H

#include <liburing.h>

#include "platform/thread.h"
#include "transport/file/io.h"

enum { RING_DEPTH_MAX = 256, RING_BOUNCES = 16 };

enum ring_slot_state {
    RING_SLOT_FREE,
    RING_SLOT_WAITS,  /* for an entry for its next step */
    RING_SLOT_POSTED, /* the step is the kernel's */
    RING_SLOT_OVER,   /* to be reported */
};

/* A channel's part in a ring. */
struct ring_user {
    uint32_t busy; /* slots of it that are not free */
    uint32_t done_head, done_tail;
};

struct ring_slot {
    struct file_io io;
    struct ring_user *user;
    struct file_io_step step; /* the kernel reads its parts until the step is over */
    uint64_t transferred;
    enum ring_slot_state state;
    uint32_t next; /* in the list of the free, or of the user's finished */
};

struct ring {
    struct base_list node; /* in the process's list */
    const void *endpoint;
    uint32_t users; /* channels; guarded as the list is */
    struct mutex lock;
    struct io_uring uring;
    uint32_t depth;
    uint32_t under_way; /* slots neither free nor over */
    uint32_t waiting;
    uint32_t gathered; /* entries not yet given to the kernel */
    uint32_t free_head;
    struct ring_slot *slots;
    const struct file_served *registered; /* whose descriptor is fixed file 0 */
    bool has_files;                       /* the table of fixed files exists */
    bool bounces_fixed;                   /* registered as fixed buffer 0 */
    uint32_t bounces_used;                /* bits */
    uint8_t *bounces; /* RING_BOUNCES of FILE_IO_BOUNCE bytes, made when first needed */
};

/* SYSTEM, NO_MEMORY, LIMIT with the reason. A kernel that has no room for `depth` gets asked for
 * less. */
YOLK_MUST_USE enum yolk_status ring_create(uint32_t depth, struct ring **out);
void ring_destroy(struct ring *ring);
/* False before Linux 5.6, whose rings do less. */
bool ring_reads_and_writes(struct ring *ring);

/* The lock is held in all below. */
void ring_user_init(struct ring_user *user);
/* Before the first io of a target: its file may become the fixed one. */
void ring_use(struct ring *ring, const struct file_served *served);
/* Ends every io of served (NULL: of all) and lets go of its file. */
void ring_drain(struct ring *ring, const struct file_served *served, enum yolk_status ending);
enum yolk_submit ring_submit(struct ring *ring, struct ring_user *user,
                             const struct file_target *target, struct yolk_io *io);
/* Gives the kernel what was gathered. */
void ring_flush(struct ring *ring);
/* Takes in what is over and goes on with what is not. */
void ring_reap(struct ring *ring);
uint32_t ring_take_done(struct ring *ring, struct ring_user *user,
                        struct yolk_completion *completions, uint32_t max);
void ring_cancel(struct ring *ring, const struct ring_user *user, uint64_t cookie);
/* All that is under way is the kernel's now, and nothing is to be reported. */
bool ring_is_posted(const struct ring *ring, const struct ring_user *user);

#endif
