/* SPDX-License-Identifier: Apache-2.0 */
/* What the admin pages show of a core, and the little that they do. Between two calls of core.h, by
 * the thread that owns the core; what a view borrows is good until the next call. */
#ifndef YOLK_MASTER_VIEW_H
#define YOLK_MASTER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/core.h"

struct master_segment_view {
    uint64_t id;
    uint64_t size;
    uint64_t used_bytes; /* that cannot be placed anew now */
    uint64_t owner;      /* session; 0: none */
    const uint8_t *client_id;
    const char *name, *endpoints;
    uint32_t medium;           /* enum wire_medium */
    bool disk;                 /* no memory */
    const uint8_t *storage_id; /* of a disk */
    uint64_t storage_generation, live_bytes, live_count;
    bool open;     /* takes new objects */
    bool draining; /* an unmount waits for its readers */
};

struct master_replica_view {
    uint64_t segment, offset;
    uint32_t medium;
    bool disk;                   /* not in memory */
    const uint8_t *client_id;    /* of the owner */
    const uint8_t *storage_id;   /* on a disk */
    uint64_t storage_generation; /* on GDS */
    uint64_t allocated;
    const char *name, *endpoints; /* the segment's */
};

struct master_key_view {
    enum yolk_status status; /* NOT_FOUND; NOT_READY: it is being written, or its owner is away */
    uint64_t size;
    uint32_t count;
    struct master_replica_view replicas[MASTER_MAX_REPLICAS + 2];
};

/* Mounted ones, lost ones not among them. */
void master_view_segments(const struct master_core *core,
                          void (*visit)(void *self, const struct master_segment_view *segment),
                          void *self);
/* Where the copies lie that a get would be told of. lease: as exist grants one. */
void master_view_key(struct master_core *core, uint64_t now_ns, const void *key, size_t key_size,
                     bool lease, struct master_key_view *out);
/* Some readable keys from *cursor on (0: from the beginning); false: there are no more. */
bool master_view_keys(struct master_core *core, uint64_t *cursor,
                      void (*visit)(void *self, const void *key, size_t key_size), void *self);
/* Removes all objects of a tenant (NULL: of all) in the background; the answer goes to the sink's
 * `send` as one of WIRE_REMOVE_ALL, for this connection and request. BUSY: as many such jobs run as
 * may. */
YOLK_MUST_USE enum yolk_status master_view_remove_all(struct master_core *core, uint64_t now_ns,
                                                      uint64_t connection, uint64_t request_id,
                                                      const char *tenant, bool force);

#endif
