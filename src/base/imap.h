/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from disjoint half-open ranges [start, start+size) of 64-bit addresses to a pointer, as a
 * balanced tree: each operation is O(log n). Not synchronised.
 */
#ifndef BASE_IMAP_H
#define BASE_IMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

struct base_imap_node;

struct base_imap {
    struct base_imap_node *root;
    size_t count;
    uint64_t seed; /* state of the tree's priorities */
};

struct base_range {
    uint64_t start;
    uint64_t size;
    void *value;
};

void base_imap_init(struct base_imap *map);
/* Frees the nodes, not the values. */
void base_imap_free(struct base_imap *map);
size_t base_imap_count(const struct base_imap *map);

/*
 * YOLK_ERR_OVERLAP if any byte is taken, YOLK_ERR_INVALID for an empty range or one that goes over
 * the end of the address space, YOLK_ERR_NO_MEMORY.
 */
YOLK_MUST_USE int base_imap_insert(struct base_imap *map, uint64_t start, uint64_t size,
                                   void *value);
/* Takes out the range that starts exactly at `start`; false if there is none. `removed` may be
 * NULL. */
bool base_imap_remove(struct base_imap *map, uint64_t start, struct base_range *removed);

/* The range that starts exactly at `start`. */
bool base_imap_get(const struct base_imap *map, uint64_t start, struct base_range *found);
/* The one range that contains all of [start, start+size); an empty request matches the range its
 * start is in. */
bool base_imap_contains(const struct base_imap *map, uint64_t start, uint64_t size,
                        struct base_range *found);
/* The lowest range that shares a byte with [start, start+size); never one for an empty request. */
bool base_imap_overlap(const struct base_imap *map, uint64_t start, uint64_t size,
                       struct base_range *found);
/* The first range with start >= `from`; iterate with from = found.start + 1 (or + size). */
bool base_imap_next(const struct base_imap *map, uint64_t from, struct base_range *found);

#endif
