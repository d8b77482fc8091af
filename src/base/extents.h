/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents of one segment. The allocator manages offsets, not memory: all of its metadata is outside
 * the segment. Two-level size bins with bitmaps make allocate and release O(1) but for a bounded
 * look into the request's own bin; neighbours coalesce at once. Extents much smaller than the mean
 * are kept apart from the others, at the end of the segment. Searches by address begin at one of
 * many fingers, which grow with the extents. Sizes are rounded up to 64 bytes
 * and nothing else is lost.
 */
#ifndef YOLK_BASE_EXTENTS_H
#define YOLK_BASE_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "yolk/status.h"

#define BASE_EXTENTS_UNIT 64u
#define BASE_EXTENTS_NONE UINT32_MAX

struct base_extents;

YOLK_MUST_USE enum yolk_status base_extents_create(uint64_t size, struct base_extents **out);
void base_extents_destroy(struct base_extents *alloc);
/* More free space at the end, up to `size` in all; extents and handles stay. */
YOLK_MUST_USE enum yolk_status base_extents_grow(struct base_extents *alloc, uint64_t size);

/* An extent of `size` > 0 bytes; its handle, or BASE_EXTENTS_NONE when no hole is large enough. */
uint32_t base_extents_take(struct base_extents *alloc, uint64_t size, void *owner);
/* The extent at exactly `offset` (a multiple of 64); BASE_EXTENTS_NONE unless all of it is free. */
uint32_t base_extents_reserve(struct base_extents *alloc, uint64_t offset, uint64_t size,
                              void *owner);
void base_extents_release(struct base_extents *alloc, uint32_t handle);

uint64_t base_extents_offset(const struct base_extents *alloc, uint32_t handle);
/* Bytes it occupies: the size asked for, rounded up. */
uint64_t base_extents_size(const struct base_extents *alloc, uint32_t handle);
void *base_extents_owner(const struct base_extents *alloc, uint32_t handle);

uint64_t base_extents_capacity(const struct base_extents *alloc);
uint64_t base_extents_free_bytes(const struct base_extents *alloc);
uint64_t base_extents_used_count(const struct base_extents *alloc);
/* Bytes of its own tables. */
uint64_t base_extents_memory(const struct base_extents *alloc);
/* A lower bound of the largest hole, exact to 1/32. An allocation up to it succeeds. */
uint64_t base_extents_largest(const struct base_extents *alloc);

/* Used extents by address: NONE starts, NONE ends. */
uint32_t base_extents_next(const struct base_extents *alloc, uint32_t handle);
/* The used extent that starts at `offset`, or NONE. */
uint32_t base_extents_find(struct base_extents *alloc, uint64_t offset);

/* The first used extent that ends above `offset`, or NONE. */
uint32_t base_extents_seek(struct base_extents *alloc, uint64_t offset);

/* NULL, or what is broken. */
const char *base_extents_check(const struct base_extents *alloc);

#endif
