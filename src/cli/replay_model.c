/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay_model.h"

#include <stdlib.h>

#include "cli/policy_models.h"

enum { NONE = UINT32_MAX };

struct lru {
    uint32_t *older, *newer; /* by block; NONE: end of the list */
    uint8_t *present;
    uint32_t oldest, newest;
    size_t used, capacity;
};

static void unlink_block(struct lru *lru, uint32_t block)
{
    uint32_t older = lru->older[block], newer = lru->newer[block];
    if (older == NONE)
        lru->oldest = newer;
    else
        lru->newer[older] = newer;
    if (newer == NONE)
        lru->newest = older;
    else
        lru->older[newer] = older;
}

static void push_newest(struct lru *lru, uint32_t block)
{
    lru->older[block] = lru->newest;
    lru->newer[block] = NONE;
    if (lru->newest == NONE)
        lru->oldest = block;
    else
        lru->newer[lru->newest] = block;
    lru->newest = block;
}

static void insert_block(struct lru *lru, uint32_t block)
{
    if (lru->present[block]) {
        unlink_block(lru, block);
        push_newest(lru, block);
        return;
    }
    if (lru->capacity && lru->used == lru->capacity) {
        uint32_t victim = lru->oldest;
        unlink_block(lru, victim);
        lru->present[victim] = 0;
        lru->used--;
    }
    lru->present[block] = 1;
    lru->used++;
    push_newest(lru, block);
}

static uint64_t run_model(struct lru *lru, const struct policy_trace *dense)
{
    uint64_t hits = 0;
    for (size_t request = 0; request < dense->trace->count; request++) {
        const uint32_t *blocks = policy_trace_blocks(dense, request);
        size_t count = dense->trace->requests[request].count, prefix = 0;
        while (prefix < count && lru->present[blocks[prefix]])
            insert_block(lru, blocks[prefix++]);
        hits += prefix;
        for (size_t i = prefix; i < count; i++)
            insert_block(lru, blocks[i]);
    }
    return hits;
}

int replay_model_lru(const struct trace *trace, size_t capacity_blocks, uint64_t *hits)
{
    *hits = 0;
    struct policy_trace dense;
    if (policy_trace_make(&dense, trace))
        return -1;
    struct lru lru = {.oldest = NONE, .newest = NONE, .capacity = capacity_blocks};
    lru.older = malloc((dense.unique + 1) * sizeof *lru.older);
    lru.newer = malloc((dense.unique + 1) * sizeof *lru.newer);
    lru.present = calloc(dense.unique + 1, 1);
    int result = -1;
    if (lru.older && lru.newer && lru.present) {
        *hits = run_model(&lru, &dense);
        result = 0;
    }
    free(lru.older);
    free(lru.newer);
    free(lru.present);
    policy_trace_free(&dense);
    return result;
}
