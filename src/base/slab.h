/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of one size, of which there are millions: cut from pages of 64 KiB, without a head each. A
 * page goes back to the system with its last piece. Under the address sanitizer each piece is a
 * block of the heap, so that one used after its end is found.
 */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#if defined(__SANITIZE_ADDRESS__)
#define BASE_SLAB_ON_HEAP
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BASE_SLAB_ON_HEAP
#endif
#endif

struct base_slab {
    size_t size;           /* of a piece: a multiple of 8 */
    struct base_list open; /* pages with room, those that got it last in front */
};

/* `size` is rounded up to a multiple of 8, and at most 4096. */
void base_slab_init(struct base_slab *slab, size_t size);
/* All pieces have been given back. */
void base_slab_destroy(struct base_slab *slab);
/* Zeroed, at a multiple of 8. NULL: no memory. */
void *base_slab_take(struct base_slab *slab);
void base_slab_give(struct base_slab *slab, void *piece);

#endif
