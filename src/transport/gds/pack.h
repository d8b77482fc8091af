/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing: pieces that lie anywhere in a GPU's memory and side by side in a file are gathered into
 * a slab of registered GPU memory, or scattered out of it, by the gather kernel, and are one I/O
 * for cuFile. Small I/O runs at a fraction of the rate of large one. Also the way for memory that
 * cuFile would not register. Used by the one thread that calls cuFile, inside a scope.
 */
#ifndef GDS_PACK_H
#define GDS_PACK_H

#include "base/list.h"
#include "device/device.h"
#include "transport/gds/batch.h"

enum {
    GDS_PACK_BELOW = 1 << 20,  /* pieces from this size on go alone: see docs/gpu.md */
    GDS_PACK_BYTES = 16 << 20, /* of one I/O */
    GDS_PACK_OPS = 4,          /* at a time: the slab is as many times as large */
    GDS_PACK_PIECES_MAX = 1024
};

enum gds_pack_stage {
    GDS_PACK_FREE,
    GDS_PACK_FILLING, /* pieces are added */
    GDS_PACK_GATHERS,
    GDS_PACK_READY, /* its body may go into a batch: gds_pack_started tells that it did */
    GDS_PACK_RUNS,
    GDS_PACK_SCATTERS,
    GDS_PACK_OVER
};

struct gds_pack {
    struct gds_request body; /* first */
    struct gds_slab *slab;
    struct gds_batch *batch; /* for whoever has put it into one */
    enum gds_pack_stage stage;
    unsigned users; /* of its result; the last one frees it */
    int status;     /* once it is over */
    uint8_t *memory;
    uint64_t size;
    unsigned count, copied; /* pieces; copies that were begun */
    struct device_transfer *transfer;
    struct device_copy copies[GDS_PACK_PIECES_MAX];
};

struct gds_slab {
    struct base_list node; /* its driver's */
    struct device *device;
    const struct cufile *cufile;
    int ordinal;
    uint8_t *memory;
    bool registered;
    struct gds_pack ops[GDS_PACK_OPS];
};

/* Memory for all; NO_MEMORY and others with the reason: then nothing is packed. */
YOLK_MUST_USE int gds_slab_open(struct device *device, const struct cufile *cufile, int ordinal,
                                struct gds_slab **out);
/* Its memory is cuFile's no more. */
void gds_slab_deregister(struct gds_slab *slab);
/* No op is under way. NULL is allowed. */
void gds_slab_close(struct gds_slab *slab);

/* An empty one for this place of the file; NULL: all are in use. */
struct gds_pack *gds_pack_begin(struct gds_slab *slab, cufile_handle file, uint64_t file_offset,
                                bool write);
/* The next piece: at most GDS_PACK_PIECES_MAX, of GDS_PACK_BYTES together. */
void gds_pack_add(struct gds_pack *pack, uint8_t *memory, uint64_t size);
/* All are in it. */
void gds_pack_go(struct gds_pack *pack);
/* One step further. READY, RUNS (its body's task tells the end) and OVER are for the caller. */
void gds_pack_step(struct gds_pack *pack);
/* The body is in a batch; its task is over, and so it ended. */
void gds_pack_started(struct gds_pack *pack);
void gds_pack_ended(struct gds_pack *pack, int status);
/* It is not to be begun: fails as `status`. */
void gds_pack_fail(struct gds_pack *pack, int status);
void gds_pack_leave(struct gds_pack *pack); /* a user that has read the result */

#endif
