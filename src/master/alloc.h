/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents of one segment. The allocator manages offsets, not memory: all of its metadata is outside
 * the segment. Two-level size bins with bitmaps make allocate and release O(1) but for a bounded
 * look into the request's own bin; neighbours coalesce at once. Sizes are rounded up to 64 bytes
 * and nothing else is lost.
 */
#ifndef YOLK_MASTER_ALLOC_H
#define YOLK_MASTER_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "yolk/status.h"

#define MASTER_ALLOC_UNIT 64u
#define MASTER_ALLOC_NONE UINT32_MAX

struct master_alloc;

YOLK_MUST_USE enum yolk_status master_alloc_create(uint64_t size, struct master_alloc **out);
void master_alloc_destroy(struct master_alloc *alloc);

/* An extent of `size` > 0 bytes; its handle, or MASTER_ALLOC_NONE when no hole is large enough. */
uint32_t master_alloc_take(struct master_alloc *alloc, uint64_t size, void *owner);
/* The extent at exactly `offset` (a multiple of 64); MASTER_ALLOC_NONE unless all of it is free. */
uint32_t master_alloc_reserve(struct master_alloc *alloc, uint64_t offset, uint64_t size,
                              void *owner);
void master_alloc_release(struct master_alloc *alloc, uint32_t handle);

uint64_t master_alloc_offset(const struct master_alloc *alloc, uint32_t handle);
/* Bytes it occupies: the size asked for, rounded up. */
uint64_t master_alloc_size(const struct master_alloc *alloc, uint32_t handle);
void *master_alloc_owner(const struct master_alloc *alloc, uint32_t handle);

uint64_t master_alloc_capacity(const struct master_alloc *alloc);
uint64_t master_alloc_free_bytes(const struct master_alloc *alloc);
uint64_t master_alloc_used_count(const struct master_alloc *alloc);
/* A lower bound of the largest hole, exact to 1/32. An allocation up to it succeeds. */
uint64_t master_alloc_largest(const struct master_alloc *alloc);

/* Used extents by address: NONE starts, NONE ends. */
uint32_t master_alloc_next(const struct master_alloc *alloc, uint32_t handle);
/* The used extent that starts at `offset`, or NONE. */
uint32_t master_alloc_find(struct master_alloc *alloc, uint64_t offset);

/* The first used extent that ends above `offset`, or NONE. */
uint32_t master_alloc_seek(struct master_alloc *alloc, uint64_t offset);

/* NULL, or what is broken. */
const char *master_alloc_check(const struct master_alloc *alloc);

#endif
