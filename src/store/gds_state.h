/* SPDX-License-Identifier: Apache-2.0 */
/* A client's GDS file, shared by its files: gds.c (life, gets, figures) and gds_reserve.c
 * (reservations). All but what never changes is under the disk's lock. */
#ifndef STORE_GDS_STATE_H
#define STORE_GDS_STATE_H

#include "base/hash.h"
#include "storage/storage.h"
#include "store/gds.h"

enum { GDS_BUCKETS = 32 };

struct gds_figures {
    uint64_t values, bytes, failed, took_ns;
    uint64_t buckets[GDS_BUCKETS]; /* those that took less than 2^i us */
};

struct gds_stats {
    struct gds_figures writes, reads;
    uint64_t stale, no_space;
    uint64_t unchecked, by_gpu; /* values committed without a checksum, with one of a GPU */
    char why_unchecked[256];    /* the last reason */
};

struct gds_reservation {
    struct store_reservation given; /* first */
    struct gds_reservation *next, **at;
    uint64_t id;    /* the storage's */
    uint64_t mount; /* number of the one it was made in */
    uint8_t written;
    uint8_t gone;  /* aborted because its mount ended */
    uint8_t freed; /* the master said so before the put heard that it is dropped */
};

/* An extent that is nobody's, whose end is awaited. */
struct gds_limbo {
    uint64_t offset;
    uint64_t op;      /* of the messages that named it */
    uint8_t by_floor; /* free once no message of this op can come any more */
};

struct store_gds {
    struct store_disk *disk;
    uint8_t client_id[16];
    int verify; /* what is read, where it has a checksum */
    void (*look)(const char *path, bool why, struct yolk_file_figures *out);

    uint64_t segment; /* 0: not mounted */
    uint64_t mounts;
    struct gds_reservation *open;
    size_t open_count;
    struct gds_limbo *limbo;
    size_t limbo_count, limbo_room;
    struct gds_stats stats;
};

/* ---- gds_reserve.c; with the lock held ---- */
void store_gds_describe(const struct store_gds *gds, const struct storage_extent *extent,
                        struct wire_gds *out);
/* The file is mounted anew: of what was reserved before the new mount knows nothing, but for what
 * is committed, which is offered to it. */
void store_gds_forget_mount(struct store_gds *gds);
/* The master says so: what waited for it waits no more. */
void store_gds_was_freed(struct store_gds *gds, uint64_t offset);

/* What store_gds_commit does before it waits, without the lock; and what it waits for, with it. */
void store_gds_begin_commit(struct store_gds *gds, struct store_reservation *const *reservations,
                            size_t count);
int store_gds_is_committed(struct store_gds *gds, struct store_reservation *const *reservations,
                           size_t count);

#endif
