/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of an io lie, whether in one place or in several. */
#ifndef TRANSPORT_PLACES_H
#define TRANSPORT_PLACES_H

#include <stdbool.h>

#include <yolk/transport.h>

struct place_walk {
    uint64_t left; /* bytes of the io */
    uint32_t next; /* place */
};

static inline struct place_walk place_walk_begin(const struct yolk_io *io)
{
    return (struct place_walk){.left = io->size};
}

/* The bytes that follow; false: there are none. An io without bytes has none. */
static inline bool place_walk_on(struct place_walk *walk, const struct yolk_io *io,
                                 struct yolk_place *out)
{
    if (walk->left == 0)
        return false;
    if (io->place_count == 0) {
        *out = (struct yolk_place){io->local, io->offset, io->size};
    } else if (walk->next == 0) {
        *out = io->places[0];
        out->local = (uint8_t *)out->local + io->skip;
        out->offset += io->skip;
        out->size -= io->skip;
    } else {
        *out = io->places[walk->next];
    }
    walk->next++;
    if (out->size > walk->left)
        out->size = walk->left;
    walk->left -= out->size;
    return true;
}

#endif
