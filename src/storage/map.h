/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extents that are not FREE: by place (the allocator) and, the COMMITTED ones, by key. A small
 * heap block an extent holds key and state. The key table grows by one bucket an insertion (linear
 * hashing), so that no call stalls on a rehash.
 */
#ifndef STORAGE_MAP_H
#define STORAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/extents.h"
#include "storage/format.h"
#include "yolk/status.h"

enum extent_state {
    EXTENT_RESERVED,
    EXTENT_WRITTEN,
    EXTENT_COMMITTED,
    EXTENT_DOOMED,
    EXTENT_STATES
};

struct extent {
    struct extent *next; /* COMMITTED: in its bucket; WRITTEN, DOOMED: in a list of the journal */
    uint64_t size;       /* of the value */
    uint32_t handle;     /* of the allocator: place and allocated size */
    uint32_t checksum;
    uint32_t leases;
    uint32_t serial; /* live extents: upper half of the id; DOOMED by storage_delete: its number */
    uint16_t key_size;
    uint8_t state;
    bool owned : 1;     /* its id has not ended */
    bool journaled : 1; /* a record of it is, or may be, on the disk */
    bool erased : 1;    /* so is, or may be, its delete record */
    bool numbered : 1;  /* DOOMED by storage_delete */
    bool quiet : 1;     /* DOOMED: its delete record is on stable media */
    bool doubted : 1;   /* WRITTEN: it will be given up, for a sync failed */
    bool held : 1;      /* DOOMED: given up by ourselves; storage_delete is still to come */
    bool unchecked : 1; /* there is no checksum */
    bool hashed : 1;    /* COMMITTED: it is in the key table */
    bool unproven : 1;  /* recovery: no frame says that value and record were synced */
    bool current : 1;   /* recovery: the newer area has a record of it */
    uint8_t key[];
};

struct map {
    struct base_extents *places;
    struct extent **buckets;
    size_t bucket_count, bucket_room;
    size_t hashed;
    uint64_t seed; /* of the key table */
    uint64_t counts[EXTENT_STATES];
    uint64_t committed_bytes;
    uint64_t index_bytes;  /* records of all extents, as a checkpoint would hold them */
    uint64_t memory_bytes; /* of extents' heap blocks */
};

YOLK_MUST_USE int map_init(struct map *map, uint64_t capacity, uint64_t seed);
void map_free(struct map *map);

/* A RESERVED extent anywhere. NO_SPACE, NO_MEMORY. */
YOLK_MUST_USE int map_take(struct map *map, const void *key, size_t key_size, uint64_t size,
                           struct extent **out);
/* Moves it between the states' counts, and in and out of the key table. */
void map_set_state(struct map *map, struct extent *e, enum extent_state state);
/* Recovery: COMMITTED, but not in the key table before map_hash_all. */
YOLK_MUST_USE int map_place_committed(struct map *map, const struct format_record *record,
                                      struct extent **out);
YOLK_MUST_USE int map_hash_all(struct map *map);
/* To FREE. */
void map_release(struct map *map, struct extent *e);

/* The one that begins at `offset`; the first that ends above `offset`; NULL: none. */
struct extent *map_at(struct map *map, uint64_t offset);
struct extent *map_from(struct map *map, uint64_t offset);
struct extent *map_after(struct map *map, const struct extent *e);
/* COMMITTED only; of several the latest. */
struct extent *map_find(const struct map *map, const void *key, size_t key_size);

uint64_t map_offset(const struct map *map, const struct extent *e);
uint64_t map_allocated(const struct map *map, const struct extent *e);
uint64_t map_memory(const struct map *map);

/* NULL, or what is broken. */
const char *map_check(struct map *map);

#endif
