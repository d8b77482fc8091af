/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one batch handle of cuFile is doing, without cuFile: which slices of which tasks lie in its
 * slots, what is known of them, and when its memory is quiet. Pure: time is an argument.
 *
 * A task of any size is cut into slices that go through the slots. It fails only when none of its
 * slices is in the library any more; until then its failure is known but not told. Other tasks of
 * the window are untouched. The library's cancel is never used: it was seen to stop no transfer and
 * to silence the events by which the end would be known (test/fakes/cufile.h, S4).
 */
#ifndef GDS_WINDOW_H
#define GDS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "device/cufile_abi.h"

enum {
    GDS_SLOTS_MAX = 128,
    GDS_SLICE_DEFAULT = 16 << 20,
    GDS_QUIET_NS = 1000000000, /* without an event, before a failed status call is held for told */
};

struct gds_task {
    /* The caller's, constant. */
    uint64_t size;
    /* The window's. */
    struct base_list node; /* among those with something left to cut */
    uint64_t cut;          /* bytes that are or were in slices */
    uint64_t gap;          /* the lowest byte that will not arrive; UINT64_MAX: none */
    uint32_t in_flight;    /* slots, with those that wait to be submitted */
    int failure;           /* the first that became known, or YOLK_OK */
    int pending_failure;   /* the gravest of this answer of the status call */
    bool stopped;
    bool lost; /* it failed for another's sake: nothing is known to be wrong with it */
};

enum gds_slot_state {
    GDS_SLOT_FREE,
    GDS_SLOT_READY,     /* cut, to be submitted */
    GDS_SLOT_SUBMITTED, /* the library has it */
};

struct gds_slot {
    enum gds_slot_state state;
    struct gds_task *task;
    uint64_t offset, size; /* in the task */
    uint64_t generation;   /* so that a late event meets no other slice */
};

struct gds_window {
    unsigned depth;
    uint64_t slice;
    struct base_list tasks;
    struct gds_slot slots[GDS_SLOTS_MAX];
    unsigned used;      /* slots that are not free */
    unsigned submitted; /* of them */
    unsigned errors;    /* failed status calls whose entry was not told */
    bool paused;        /* until it is known whose they are */
    bool unknown;       /* a status call failed in a way that says nothing of one entry */
    bool broken;        /* and so nothing goes in any more */
    bool tainted;       /* the handle must not be pooled */
    uint64_t strangers; /* events without a slice */
    uint64_t last_event_ns;
};

/* depth: 1 to GDS_SLOTS_MAX; slice: bytes, not 0. */
void gds_window_init(struct gds_window *window, unsigned depth, uint64_t slice);

/* task->size is set. A task of 0 bytes is over at once. */
void gds_task_begin(struct gds_window *window, struct gds_task *task);
/* Nothing more of it is submitted; it ends as CANCELED, or as what it became, once it is quiet. */
void gds_task_cancel(struct gds_window *window, struct gds_task *task);
/* None of its slices is in the library, and none is to come. */
bool gds_task_over(const struct gds_task *task);
/* Of a task that is over. */
int gds_task_status(const struct gds_task *task);
/* Bytes from the start that are certainly in place; never fewer than before. */
uint64_t gds_task_transferred(const struct gds_window *window, const struct gds_task *task);

/* Cuts slices into free slots, each task in turn, and lists the slots to be submitted: at most max.
 * Returns how many. A broken window lists none. */
unsigned gds_window_fill(struct gds_window *window, unsigned *slots, unsigned max);
/* The value for cuFile's cookie: never 0. */
uint64_t gds_window_cookie(const struct gds_window *window, unsigned slot);
/* The submission of these slots was taken; or refused with nothing of it in the library. */
void gds_window_submitted(struct gds_window *window, const unsigned *slots, unsigned count,
                          uint64_t now_ns);
void gds_window_refused(struct gds_window *window, const unsigned *slots, unsigned count,
                        int status);

/* One answer of the status call: its events (the whole array, zeroed before the call, where it
 * failed: its count says nothing then) and its own error. */
void gds_window_events(struct gds_window *window, const struct cufile_event *events, unsigned count,
                       int error, uint64_t now_ns);
/* Slices that no event will tell of are given up where that is safe; see window.c. */
void gds_window_settle(struct gds_window *window, uint64_t now_ns);

/* These, which the library has had, are over though nobody told it; with `broken` nothing can be
 * submitted any more. */
void gds_window_lost(struct gds_window *window, const unsigned *slots, unsigned count, bool broken);

/* The library has nothing of this window. */
bool gds_window_quiet(const struct gds_window *window);
/* It is quiet, and its handle may serve others. */
bool gds_window_reusable(const struct gds_window *window);

#endif
