/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use which part of the engine's memory for staged transfers. Pure: no locks, no memory of
 * its own to copy to; the driver (stage.c) holds a lock around each call.
 *
 * The memory is cut into chunks. A user takes them one at a time and gives each back when it is
 * quiet. One that finds none stands in a queue, in which each user stands once: what comes back is
 * the first one's, and whoever wants another one while others wait goes behind them. So no user is
 * passed over more than once by each other one, however many chunks that wants. */
#ifndef YOLK_ENGINE_STAGING_H
#define YOLK_ENGINE_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/status.h>

#include "base/list.h"

#define STAGING_NONE UINT32_MAX

enum {
    STAGING_CHUNK_MIN = 4096,
    STAGING_CHUNK_MAX = 1 << 20,
    STAGING_CHUNKS = 64, /* as many, unless they would be too small or too large */
};

struct staging_user {
    struct base_list waiting; /* in the queue; alone: not */
    struct base_list holding; /* in the list of those that have chunks */
    uint64_t since_ns;        /* that it waits */
    uint32_t held;
};

/* What goes to one peer has, beyond its first chunk, at most as many as are left: one that does not
 * answer leaves half to the others, the next one a quarter. Few chunks are not shared out. */
struct staging_share {
    uint32_t held;
};
enum { STAGING_SHARED_MIN = 8 };

struct staging {
    uint32_t count; /* chunks */
    uint64_t chunk_bytes;
    uint32_t *next_free; /* one for each chunk; its own number: taken */
    uint32_t free_head;
    uint32_t free;
    struct base_list queue;   /* first come first */
    struct base_list holders; /* who took one last is last */
    uint64_t given_ns;        /* when a chunk was given back last */
    uint64_t waits;           /* how often nothing was there, in all */
};

/* How the memory is cut; false: it is too small for two chunks. */
bool staging_cut(uint64_t bytes, uint32_t *count, uint64_t *chunk_bytes);

YOLK_MUST_USE enum yolk_status staging_init(struct staging *staging, uint64_t bytes);
void staging_free(struct staging *staging);
void staging_user_init(struct staging_user *user);

/* Has it its part already? It comes again later, and does not stand in the queue for more. */
bool staging_has_share(const struct staging *staging, const struct staging_share *share);
/* A chunk's number, or STAGING_NONE: the user waits now, or goes on to wait. */
uint32_t staging_take(struct staging *staging, struct staging_user *user,
                      struct staging_share *share, uint64_t now_ns);
void staging_give(struct staging *staging, struct staging_user *user, struct staging_share *share,
                  uint32_t chunk, uint64_t now_ns);
/* The chunk will not come back. */
void staging_lose(struct staging *staging, struct staging_user *user, struct staging_share *share,
                  uint32_t chunk);
/* It wants none any more. */
void staging_leave(struct staging_user *user);
static inline bool staging_waits(const struct staging_user *user)
{
    return !base_list_empty(&user->waiting);
}
/* It waits, and for so long no chunk was given back to anybody. */
bool staging_is_starved(const struct staging *staging, const struct staging_user *user,
                        uint64_t now_ns, uint64_t limit_ns);

#endif
