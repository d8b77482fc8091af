/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay_model.h"

#include <stdlib.h>
#include <string.h>

/* Every reference of the trace is first turned into a dense index; then the cache is arrays only.
 */
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

static int compare_ids(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static uint32_t index_of(const uint64_t *sorted, size_t count, uint64_t id)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static uint64_t run_model(struct lru *lru, const struct trace *trace, const uint64_t *sorted,
                          size_t unique)
{
    uint64_t hits = 0;
    for (size_t request = 0; request < trace->count; request++) {
        const uint64_t *ids = trace_ids(trace, request);
        size_t count = trace->requests[request].count, prefix = 0;
        while (prefix < count) {
            uint32_t block = index_of(sorted, unique, ids[prefix]);
            if (!lru->present[block])
                break;
            insert_block(lru, block);
            prefix++;
        }
        hits += prefix;
        for (size_t i = prefix; i < count; i++)
            insert_block(lru, index_of(sorted, unique, ids[i]));
    }
    return hits;
}

int replay_model_lru(const struct trace *trace, size_t capacity_blocks, uint64_t *hits)
{
    *hits = 0;
    if (trace->id_count == 0)
        return 0;
    if (trace->id_count >= NONE)
        return -1;
    uint64_t *sorted = malloc(trace->id_count * sizeof *sorted);
    if (!sorted)
        return -1;
    memcpy(sorted, trace->ids, trace->id_count * sizeof *sorted);
    qsort(sorted, trace->id_count, sizeof *sorted, compare_ids);
    size_t unique = 1;
    for (size_t i = 1; i < trace->id_count; i++)
        if (sorted[i] != sorted[unique - 1])
            sorted[unique++] = sorted[i];

    struct lru lru = {.oldest = NONE, .newest = NONE, .capacity = capacity_blocks};
    lru.older = malloc(unique * sizeof *lru.older);
    lru.newer = malloc(unique * sizeof *lru.newer);
    lru.present = calloc(unique, 1);
    int result = -1;
    if (lru.older && lru.newer && lru.present) {
        *hits = run_model(&lru, trace, sorted, unique);
        result = 0;
    }
    free(lru.older);
    free(lru.newer);
    free(lru.present);
    free(sorted);
    return result;
}
