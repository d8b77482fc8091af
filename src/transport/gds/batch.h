/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Some batch handles of cuFile with their window (window.h): requests go in, slices are submitted
 * and polled until each request is over. One thread at a time, which is the library's own: cuFile
 * leaves contexts on the stack of its callers, and a submission may block.
 *
 * A handle is filled only when it is empty: an entry that was added to others under way was seen
 * never to be told (test/fakes/cufile.h, S14). Several handles keep the disk busy meanwhile.
 */
#ifndef GDS_BATCH_H
#define GDS_BATCH_H

#include "device/cufile.h"
#include "transport/gds/window.h"

enum {
    GDS_SUBMIT_COMPAT_MAX = 64, /* entries under way in compatibility mode: more hang */
    GDS_PARTS_MAX = 4
};

struct gds_request {
    struct gds_task task; /* first, and its size set; borrowed until it is over */
    cufile_handle file;
    uint8_t *buffer; /* the registered base */
    uint64_t buffer_offset;
    bool unregistered; /* then an address is all that cuFile looks at: offsets were seen to be left
                        * out for memory of the host */
    uint64_t file_offset;
    bool write;
};

/* One handle, for `count` of the window's slots: every n-th one. */
struct gds_part {
    cufile_batch handle;
    unsigned first, count; /* first: of its entries in ios */
    bool failed;           /* a status call of it said so: others of it may never be told */
    uint64_t last_ns;      /* then: of the last it told */
};

struct gds_batch {
    const struct cufile *cufile;
    struct gds_part parts[GDS_PARTS_MAX];
    unsigned part_count;
    unsigned submit_max;
    unsigned users; /* requests in it, for whoever pools it */
    struct gds_window window;
    /* cuFile may read these until an entry is over: a part's are written when it is empty. */
    struct cufile_io ios[GDS_SLOTS_MAX];
    struct cufile_event events[GDS_SLOTS_MAX];
};

/* How many handles share a depth: so that what is left of one does not leave the disk idle. */
unsigned gds_parts_for(unsigned depth);
/* depth: at most what the driver says (properties.batch_max) and GDS_SLOTS_MAX. */
YOLK_MUST_USE int gds_batch_open(struct gds_batch *batch, const struct cufile *cufile,
                                 unsigned depth, uint64_t slice, bool direct);
/* Refuses by the task's status what cuFile never answers for: 0 bytes are over at once. */
void gds_batch_add(struct gds_batch *batch, struct gds_request *request);
/* Merges what has ended, and submits the next once all of what was submitted before has. True:
 * something went in or ended. */
bool gds_batch_pump(struct gds_batch *batch, uint64_t now_ns);
/* BUSY while the library has something of it: then it must stay, with all that its requests refer
 * to. */
YOLK_MUST_USE int gds_batch_close(struct gds_batch *batch);

#endif
