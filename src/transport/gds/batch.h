/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch handle of cuFile with its window (window.h): requests go in, slices are submitted and
 * polled until each request is over. One thread at a time, which is the library's own: cuFile
 * leaves contexts on the stack of its callers, and a submission may block.
 */
#ifndef GDS_BATCH_H
#define GDS_BATCH_H

#include "device/cufile.h"
#include "transport/gds/window.h"

enum {
    GDS_SUBMIT_COMPAT_MAX = 64
}; /* entries of one submission in compatibility mode: more hang */

struct gds_request {
    struct gds_task task; /* first, and its size set; borrowed until it is over */
    cufile_handle file;
    void *buffer; /* the registered base */
    uint64_t buffer_offset;
    uint64_t file_offset;
    bool write;
};

struct gds_batch {
    const struct cufile *cufile;
    cufile_batch handle;
    unsigned submit_max;
    struct gds_window window;
    /* cuFile may read these until an entry is over, so each slot has its own for good. */
    struct cufile_io ios[GDS_SLOTS_MAX];
    struct cufile_event events[GDS_SLOTS_MAX];
};

/* depth: at most what the driver says (properties.batch_max) and GDS_SLOTS_MAX. */
YOLK_MUST_USE int gds_batch_open(struct gds_batch *batch, const struct cufile *cufile,
                                 unsigned depth, uint64_t slice, bool direct);
/* Refuses by the task's status what cuFile never answers for: 0 bytes are over at once. */
void gds_batch_add(struct gds_batch *batch, struct gds_request *request);
/* Submits what there is room for and merges what has ended. */
void gds_batch_pump(struct gds_batch *batch, uint64_t now_ns);
/* BUSY while the library has something of it: then it must stay, with all that its requests refer
 * to. */
YOLK_MUST_USE int gds_batch_close(struct gds_batch *batch);

#endif
