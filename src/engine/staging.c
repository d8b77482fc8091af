/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/staging.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

bool staging_cut(uint64_t bytes, uint32_t *count, uint64_t *chunk_bytes)
{
    uint64_t chunk = bytes / STAGING_CHUNKS & ~(uint64_t)(STAGING_CHUNK_MIN - 1);
    if (chunk < STAGING_CHUNK_MIN)
        chunk = STAGING_CHUNK_MIN;
    if (chunk > STAGING_CHUNK_MAX)
        chunk = STAGING_CHUNK_MAX;
    if (bytes / chunk < 2 || bytes / chunk >= STAGING_NONE)
        return false;
    *chunk_bytes = chunk;
    *count = (uint32_t)(bytes / chunk);
    return true;
}

enum yolk_status staging_init(struct staging *staging, uint64_t bytes)
{
    *staging = (struct staging){0};
    base_list_init(&staging->queue);
    base_list_init(&staging->holders);
    if (!staging_cut(bytes, &staging->count, &staging->chunk_bytes))
        return base_fail(YOLK_ERR_INVALID, 0,
                         "staging_bytes is %llu: it takes at least two chunks of %d bytes",
                         (unsigned long long)bytes, STAGING_CHUNK_MIN);
    staging->next_free = base_malloc(staging->count * sizeof(*staging->next_free));
    if (staging->next_free == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u chunks", staging->count);
    for (uint32_t i = 0; i < staging->count; i++)
        staging->next_free[i] = i + 1 < staging->count ? i + 1 : STAGING_NONE;
    staging->free = staging->count;
    return YOLK_OK;
}

void staging_free(struct staging *staging)
{
    free(staging->next_free);
    staging->next_free = NULL;
    staging->count = 0;
}

void staging_user_init(struct staging_user *user)
{
    base_list_init(&user->waiting);
    base_list_init(&user->holding);
    user->since_ns = 0;
    user->held = 0;
}

bool staging_has_share(const struct staging *staging, const struct staging_share *share)
{
    return staging->count >= STAGING_SHARED_MIN && share->held > 0 &&
           share->held + 2 > staging->free;
}

uint32_t staging_take(struct staging *staging, struct staging_user *user,
                      struct staging_share *share, uint64_t now_ns)
{
    const struct base_list *next = base_list_first(&staging->queue);
    bool first = next == NULL || next == &user->waiting;
    if (staging->free == 0 || !first) {
        if (!staging_waits(user)) {
            user->since_ns = now_ns;
            base_list_push_back(&staging->queue, &user->waiting);
            staging->waits++;
        }
        return STAGING_NONE;
    }
    staging_leave(user);
    uint32_t chunk = staging->free_head;
    staging->free_head = staging->next_free[chunk];
    staging->next_free[chunk] = chunk;
    staging->free--;
    user->held++;
    share->held++;
    base_list_remove(&user->holding);
    base_list_push_back(&staging->holders, &user->holding);
    return chunk;
}

void staging_give(struct staging *staging, struct staging_user *user, struct staging_share *share,
                  uint32_t chunk, uint64_t now_ns)
{
    assert(chunk < staging->count && staging->next_free[chunk] == chunk && user->held > 0 &&
           share->held > 0);
    staging->next_free[chunk] = staging->free == 0 ? STAGING_NONE : staging->free_head;
    staging->free_head = chunk;
    staging->free++;
    staging->given_ns = now_ns;
    share->held--;
    if (--user->held == 0)
        base_list_remove(&user->holding);
}

void staging_lose(struct staging *staging, struct staging_user *user, struct staging_share *share,
                  uint32_t chunk)
{
    assert(chunk < staging->count && staging->next_free[chunk] == chunk && user->held > 0 &&
           share->held > 0);
    share->held--;
    if (--user->held == 0)
        base_list_remove(&user->holding);
}

void staging_leave(struct staging_user *user)
{
    base_list_remove(&user->waiting);
}

bool staging_is_starved(const struct staging *staging, const struct staging_user *user,
                        uint64_t now_ns, uint64_t limit_ns)
{
    uint64_t since = user->since_ns > staging->given_ns ? user->since_ns : staging->given_ns;
    return staging_waits(user) && now_ns > since && now_ns - since > limit_ns;
}
