/* SPDX-License-Identifier: Apache-2.0 */
/* The bookkeeping of one batch: which bytes are cut into slices, posted, in place; what each task's
 * result is, and when it is final. Pure: no locks, no clock, no transport, so that the simulator
 * runs the same code. The driver (batch.c) holds the batch's lock around each call.
 *
 * A slice lives from take to complete. Its cookie is index + generation, and the generation changes
 * when the slice ends: a completion that comes twice or late finds no slice and is ignored. */
#ifndef YOLK_ENGINE_BATCH_STATE_H
#define YOLK_ENGINE_BATCH_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/failover.h"

#define BATCH_NONE  UINT32_MAX
#define BATCH_NEVER UINT64_MAX

enum { BATCH_LEVELS = 3 };
#define BATCH_PROMOTION_NS UINT64_C(10000000)

enum batch_slice_state { BATCH_SLICE_FREE = 0, BATCH_SLICE_READY, BATCH_SLICE_TAKEN };

struct batch_slice {
    uint64_t offset; /* in the task */
    uint64_t size;
    uint32_t task;
    uint32_t generation;
    uint32_t next;   /* in the free list, or the task's list of ready or of taken slices */
    uint32_t before; /* in the task's list of taken slices */
    uint32_t tried;  /* bits of the routes that failed this slice */
    enum batch_slice_state state;
    uint8_t attempts; /* that failed */
    uint8_t route;    /* the present one, while taken */
    bool retry_here;  /* the last failure may not repeat on the same route */
    bool alone;       /* cut to one task at a time: of several it was refused */
    bool cancel_asked;
    enum yolk_status last; /* failure, for the case that no route is left */
};

/* Tasks that follow each other in every respect may be joined to a group, which is cut into slices
 * as if it were one: its *head* is the first of them, a task that is not joined is its own. Each
 * has its own result, its own bytes in place, its own deadline and its own cancel. What makes one
 * of them end leaves the bytes of the others to be moved; of slices that lie across both, what is
 * not in place comes back for the others alone. */
struct batch_task {
    uint64_t size;
    uint64_t done;  /* bytes certainly in place; never goes down */
    uint64_t start; /* of its bytes among those of its group */
    uint64_t span;  /* head: bytes of the group */
    uint64_t cut;   /* head: bytes made into slices so far */
    uint32_t head;
    uint32_t members; /* head: tasks of the group; their numbers follow each other */
    uint32_t open;    /* head: of those, the ones not terminal */
    uint32_t out;     /* head: slices of the group out with a transport */
    uint64_t deadline_ns;
    uint64_t drain_ns; /* once it fails or ends early: when it becomes STUCK */
    uint64_t cookie;
    uint32_t taken;      /* slices with bytes of its own out: the memory is quiet when 0 */
    uint32_t taken_head; /* head, as the next two */
    uint32_t ready_head;
    uint32_t queue_next;
    enum yolk_status failure; /* first one, or the more severe */
    bool whole_cut;           /* for a task of no bytes, whose one slice is empty */
    bool landed;              /* for such a task: that slice ended well */
    bool ending;              /* canceled or out of time */
    bool holes;               /* head: a member ended, so slices leave out its bytes */
    bool queued;
    bool exact;        /* the end of the data is a failure */
    uint8_t level;     /* head: of the queue it stands in */
    uint64_t since_ns; /* head: that it stands in this level */
    bool terminal;
    /* The driver's: its result is in the statistics; it is among the engine's stuck ones. */
    bool counted, listed;
    uint32_t terminal_events; /* must be 1 in the end */
};

struct batch_queue {
    uint32_t head, tail, length;
};

struct batch_state {
    struct batch_task *tasks;
    uint32_t task_count;
    uint32_t task_room;
    struct batch_slice *slices;
    uint32_t slice_count;
    uint32_t slice_room;
    uint32_t free_head;
    struct batch_queue queues[BATCH_LEVELS]; /* tasks that may have something to post */
    uint32_t queue_length;                   /* of all */
    uint32_t window;                         /* slices of one task taken at a time */
    uint32_t attempts_max;
    uint32_t pending;     /* tasks not terminal */
    uint32_t taken;       /* slices, of all tasks */
    uint64_t next_due_ns; /* no deadline or drain limit is earlier */
    uint64_t drain_limit_ns;
    uint32_t expire_next;   /* the task that a begun round of expire looks at next; 0: none */
    uint64_t expire_looked; /* tasks that expire looked at, in all: its cost */
    uint64_t unknown;       /* completions ignored */
    uint64_t exhausted;     /* slices that failed for good after attempts_max tries */
    const uint8_t *kinds;   /* of the routes, enum failover_kind; NULL: all FAILOVER_NETWORK */
    bool no_retry;          /* what fails now is not tried again */
    bool keeps_order;       /* what is put back now is the first of its queue again, not the last */
    uint32_t touched_first; /* the tasks that the last known completion was about */
    uint32_t touched_last;
};

YOLK_MUST_USE enum yolk_status batch_state_init(struct batch_state *state, uint32_t capacity,
                                                uint32_t window, uint32_t attempts_max,
                                                uint64_t drain_limit_ns);
void batch_state_free(struct batch_state *state);
/* Forgets all tasks, which are terminal and quiet, and keeps the memory. */
void batch_state_reset(struct batch_state *state);

/* Takes the next task number; the caller checked that there is room. deadline_ns: BATCH_NEVER:
 * none. */
uint32_t batch_state_add(struct batch_state *state, uint64_t size, uint64_t deadline_ns,
                         uint64_t cookie);
/* The same with a place among the others. */
struct batch_rank {
    uint8_t level; /* 0 is the first; all 0: as batch_state_add */
    bool exact;
    bool held; /* not in the queue before batch_state_release */
    uint64_t now_ns;
};
uint32_t batch_state_add_ranked(struct batch_state *state, uint64_t size, uint64_t deadline_ns,
                                uint64_t cookie, struct batch_rank rank);
void batch_state_release(struct batch_state *state, uint32_t head);
/* Takes back all tasks from first on; those that are not refused were added held, and still are. */
void batch_state_truncate(struct batch_state *state, uint32_t first);
/* The same, for a task that is joined to the group of the task before it: nothing of that was taken
 * yet, and both have bytes. */
uint32_t batch_state_join(struct batch_state *state, uint64_t size, uint64_t cookie);
/* A task that is terminal from the beginning: it was refused. */
uint32_t batch_state_reject(struct batch_state *state, enum yolk_status status, uint64_t cookie);

/* The next task with something to post, BATCH_NONE if there is none. It leaves the queue; give it
 * back with requeue if batch_state_take was not asked until it answered BATCH_NONE. */
uint32_t batch_state_dequeue(struct batch_state *state);
/* The same of one level. */
uint32_t batch_state_dequeue_level(struct batch_state *state, uint8_t level);
void batch_state_requeue(struct batch_state *state, uint32_t task);
/* Those at the head of a level that stood there for BATCH_PROMOTION_NS go one up. */
void batch_state_promote(struct batch_state *state, uint64_t now_ns);
static inline bool batch_state_has_lower(const struct batch_state *state)
{
    return state->queue_length > state->queues[0].length;
}

static inline bool batch_task_is_cut(const struct batch_task *head)
{
    return head->span == 0 ? head->whole_cut : head->cut == head->span;
}

/* Whether there is, or may be once its window has room, something to post of this head's group. */
static inline bool batch_state_has_work(const struct batch_state *state, uint32_t index)
{
    const struct batch_task *head = &state->tasks[index];
    if (head->open == 0 || (head->members == 1 && head->failure != YOLK_OK))
        return false;
    return head->ready_head != BATCH_NONE || !batch_task_is_cut(head);
}

/* The next slice of this head's group, taken, or BATCH_NONE: nothing to post now (window full, all
 * cut, ended; or no memory, then *no_memory is set). Ready (failed or short) slices come first. */
uint32_t batch_state_take(struct batch_state *state, uint32_t head, uint64_t slice_bytes_max,
                          bool *no_memory);
/* The transport would not have it now: it is ready again, nothing is counted. */
void batch_state_untake(struct batch_state *state, uint32_t slice);
uint64_t batch_state_cookie(const struct batch_state *state, uint32_t slice);

enum batch_outcome {
    BATCH_UNKNOWN = 0, /* no such slice any more: doubled or late; ignored */
    BATCH_PROGRESS,    /* counted; a short one's rest is ready */
    BATCH_RETRY,       /* failed, and ready to be tried again elsewhere */
    BATCH_FAILED,      /* failed for good, and so did its tasks: cancel the others of theirs */
};
/* A taken slice ended with this status and that many bytes in place. *task: the head of the group
 * whose it was; see also touched_first. */
enum batch_outcome batch_state_complete(struct batch_state *state, uint64_t now_ns, uint64_t cookie,
                                        enum yolk_status status, uint64_t transferred,
                                        uint32_t *task);

/* Whether any task that has bytes in this slice is not over. */
bool batch_state_is_wanted(const struct batch_state *state, uint32_t slice);
/* Whether the slice holds bytes of the task, which is of the same group. */
bool batch_state_shares(const struct batch_state *state, uint32_t slice, uint32_t task);

/* Ends the task early (CANCELED, TIMEOUT), or as a failure (anything else): nothing more of it is
 * posted. True if slices with bytes of it are out: the driver cancels them. No effect on a terminal
 * task. */
bool batch_state_end(struct batch_state *state, uint64_t now_ns, uint32_t task,
                     enum yolk_status status);

/* The next task whose deadline passed (*stuck false: end it with TIMEOUT was done, cancel its
 * slices), or that became STUCK now (*stuck true). BATCH_NONE: no more; call until then, so that
 * one round looks at each task once. */
uint32_t batch_state_expire(struct batch_state *state, uint64_t now_ns, bool *stuck);

#endif
