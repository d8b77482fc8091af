/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy_models.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NEVER = UINT32_MAX };

/* ---- numbering ---- */
static int compare_ids(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

int policy_trace_make(struct policy_trace *dense, const struct trace *trace)
{
    *dense = (struct policy_trace){.trace = trace};
    size_t count = trace->id_count;
    uint64_t *sorted = malloc((count + 1) * sizeof *sorted);
    dense->blocks = malloc((count + 1) * sizeof *dense->blocks);
    if (!sorted || !dense->blocks || count >= NEVER) {
        free(sorted);
        policy_trace_free(dense);
        return -1;
    }
    if (count)
        memcpy(sorted, trace->ids, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_ids);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || sorted[i] != sorted[dense->unique - 1])
            sorted[dense->unique++] = sorted[i];
    for (size_t i = 0; i < count; i++) {
        const uint64_t *at =
            bsearch(trace->ids + i, sorted, dense->unique, sizeof *sorted, compare_ids);
        dense->blocks[i] = (uint32_t)(at - sorted);
    }
    free(sorted);
    return 0;
}

void policy_trace_free(struct policy_trace *dense)
{
    free(dense->blocks);
    *dense = (struct policy_trace){0};
}

/* ---- a queue of blocks; each is in it at most once, so `unique` places are enough ---- */
struct queue {
    uint32_t *blocks;
    size_t room, first, count;
};

static bool queue_make(struct queue *queue, size_t room)
{
    *queue = (struct queue){.blocks = malloc((room + 1) * sizeof(uint32_t)), .room = room + 1};
    return queue->blocks != NULL;
}

static void queue_push(struct queue *queue, uint32_t block)
{
    queue->blocks[(queue->first + queue->count++) % queue->room] = block;
}

static uint32_t queue_pop(struct queue *queue)
{
    uint32_t block = queue->blocks[queue->first];
    queue->first = (queue->first + 1) % queue->room;
    queue->count--;
    return block;
}

/* ---- FIFO and S3-FIFO ---- */
enum place { NOWHERE, SMALL, MAIN, GHOST };

struct cache {
    struct queue small, main, ghost;
    uint8_t *place, *uses; /* by block */
    uint32_t *ghost_turn;  /* which of its entries among the ghosts is the valid one */
    uint32_t *ghost_turns; /* beside the ghosts: the turn of each entry */
    uint32_t turn;
    size_t capacity, small_room, ghost_room;
};

static bool cache_make(struct cache *cache, size_t unique, size_t capacity, size_t small_room)
{
    *cache = (struct cache){.capacity = capacity,
                            .small_room = small_room,
                            .ghost_room = capacity - small_room,
                            .place = calloc(unique + 1, 1),
                            .uses = calloc(unique + 1, 1),
                            .ghost_turn = calloc(unique + 1, sizeof(uint32_t)),
                            .ghost_turns = calloc(capacity + 2, sizeof(uint32_t))};
    bool queues = queue_make(&cache->small, capacity + 1);
    queues = queue_make(&cache->main, capacity + 1) && queues;
    queues = queue_make(&cache->ghost, cache->ghost_room + 1) && queues;
    return queues && cache->place && cache->uses && cache->ghost_turn && cache->ghost_turns;
}

static void cache_free(struct cache *cache)
{
    free(cache->small.blocks);
    free(cache->main.blocks);
    free(cache->ghost.blocks);
    free(cache->place);
    free(cache->uses);
    free(cache->ghost_turn);
    free(cache->ghost_turns);
}

static void ghost_drop(struct cache *cache)
{
    uint32_t turn = cache->ghost_turns[cache->ghost.first];
    uint32_t block = queue_pop(&cache->ghost);
    if (cache->place[block] == GHOST && cache->ghost_turn[block] == turn)
        cache->place[block] = NOWHERE;
}

static void ghost_add(struct cache *cache, uint32_t block)
{
    cache->place[block] = NOWHERE;
    if (cache->ghost_room == 0)
        return;
    if (cache->ghost.count == cache->ghost_room)
        ghost_drop(cache);
    cache->ghost_turns[(cache->ghost.first + cache->ghost.count) % cache->ghost.room] =
        cache->ghost_turn[block] = ++cache->turn;
    queue_push(&cache->ghost, block);
    cache->place[block] = GHOST;
}

/* Those used since they came go round again. */
static void evict_main(struct cache *cache)
{
    uint32_t block;
    while (cache->uses[block = queue_pop(&cache->main)] > 0) {
        cache->uses[block]--;
        queue_push(&cache->main, block);
    }
    cache->place[block] = NOWHERE;
}

/* Those used since they came move over to the main queue; the first other one goes. */
static void evict(struct cache *cache)
{
    while (cache->small.count > 0 &&
           (cache->small.count >= cache->small_room || cache->main.count == 0)) {
        uint32_t block = queue_pop(&cache->small);
        if (cache->uses[block] == 0) {
            ghost_add(cache, block);
            return;
        }
        cache->uses[block] = 0;
        cache->place[block] = MAIN;
        queue_push(&cache->main, block);
    }
    evict_main(cache);
}

static bool is_stored(const struct cache *cache, uint32_t block)
{
    return cache->place[block] == SMALL || cache->place[block] == MAIN;
}

static void use(struct cache *cache, uint32_t block, bool reuse_counts)
{
    enum { USES_MAX = 3 };
    if (is_stored(cache, block)) {
        cache->uses[block] += reuse_counts && cache->uses[block] < USES_MAX;
        return;
    }
    if (cache->small.count + cache->main.count >= cache->capacity)
        evict(cache);
    bool known = cache->place[block] == GHOST; /* may have been dropped just now */
    cache->uses[block] = 0;
    cache->place[block] = known ? MAIN : SMALL;
    queue_push(known ? &cache->main : &cache->small, block);
}

static int run_cache(const struct policy_trace *dense, struct cache *cache, bool reuse_counts,
                     uint64_t *hits)
{
    *hits = 0;
    for (size_t request = 0; request < dense->trace->count; request++) {
        const uint32_t *blocks = policy_trace_blocks(dense, request);
        size_t count = dense->trace->requests[request].count, prefix = 0;
        while (prefix < count && is_stored(cache, blocks[prefix]))
            prefix++;
        *hits += prefix;
        for (size_t i = 0; i < count; i++)
            use(cache, blocks[i], reuse_counts);
    }
    return 0;
}

int policy_model_fifo(const struct policy_trace *dense, size_t capacity, uint64_t *hits)
{
    struct cache cache;
    int result = -1;
    if (cache_make(&cache, dense->unique, capacity, capacity))
        result = run_cache(dense, &cache, false, hits);
    cache_free(&cache);
    return result;
}

int policy_model_s3fifo(const struct policy_trace *dense, size_t capacity, uint64_t *hits)
{
    struct cache cache;
    int result = -1;
    if (cache_make(&cache, dense->unique, capacity, capacity < 10 ? 1 : capacity / 10))
        result = run_cache(dense, &cache, true, hits);
    cache_free(&cache);
    return result;
}

/* ---- Belady ---- */
struct entry {
    uint32_t next; /* request of the next use, from 1 */
    uint32_t block;
};

/* A heap, the furthest next use on top. Entries whose block has a newer one are left in it. */
struct belady {
    struct entry *heap;
    size_t count;
    uint32_t *next;   /* by block; 0: not stored */
    uint32_t *follow; /* by id of the trace: the block's next use */
    size_t stored;
};

static void heap_push(struct belady *b, struct entry entry)
{
    size_t at = b->count++;
    for (; at > 0 && b->heap[(at - 1) / 2].next < entry.next; at = (at - 1) / 2)
        b->heap[at] = b->heap[(at - 1) / 2];
    b->heap[at] = entry;
}

static void heap_pop(struct belady *b)
{
    struct entry last = b->heap[--b->count];
    size_t at = 0;
    for (;;) {
        size_t child = at * 2 + 1;
        if (child + 1 < b->count && b->heap[child + 1].next > b->heap[child].next)
            child++;
        if (child >= b->count || b->heap[child].next <= last.next)
            break;
        b->heap[at] = b->heap[child];
        at = child;
    }
    b->heap[at] = last;
}

static int find_next_uses(const struct policy_trace *dense, struct belady *b)
{
    uint32_t *seen = malloc((dense->unique + 1) * sizeof *seen);
    if (!seen)
        return -1;
    for (size_t i = 0; i < dense->unique; i++)
        seen[i] = NEVER;
    for (size_t request = dense->trace->count; request-- > 0;) {
        size_t first = dense->trace->requests[request].first;
        for (size_t i = dense->trace->requests[request].count; i-- > 0;) {
            b->follow[first + i] = seen[dense->blocks[first + i]];
            seen[dense->blocks[first + i]] = (uint32_t)request + 1;
        }
    }
    free(seen);
    return 0;
}

static void keep(struct belady *b, size_t capacity, struct entry entry)
{
    b->stored -= b->next[entry.block] != 0;
    b->next[entry.block] = 0;
    if (entry.next == NEVER)
        return;
    if (b->stored == capacity) {
        while (b->next[b->heap[0].block] != b->heap[0].next)
            heap_pop(b);
        if (b->heap[0].next <= entry.next)
            return;
        b->next[b->heap[0].block] = 0;
        b->stored--;
        heap_pop(b);
    }
    b->next[entry.block] = entry.next;
    b->stored++;
    heap_push(b, entry);
}

int policy_model_belady(const struct policy_trace *dense, size_t capacity, uint64_t *hits)
{
    size_t ids = dense->trace->id_count;
    struct belady b = {.heap = malloc((ids + 1) * sizeof *b.heap),
                       .next = calloc(dense->unique + 1, sizeof *b.next),
                       .follow = malloc((ids + 1) * sizeof *b.follow)};
    int result = -1;
    *hits = 0;
    if (b.heap && b.next && b.follow && !find_next_uses(dense, &b)) {
        result = 0;
        for (size_t request = 0; request < dense->trace->count; request++) {
            const uint32_t *blocks = policy_trace_blocks(dense, request);
            size_t first = dense->trace->requests[request].first;
            size_t count = dense->trace->requests[request].count, prefix = 0;
            while (prefix < count && b.next[blocks[prefix]] != 0)
                prefix++;
            *hits += prefix;
            for (size_t i = 0; i < count; i++)
                keep(&b, capacity, (struct entry){b.follow[first + i], blocks[i]});
        }
    }
    free(b.heap);
    free(b.next);
    free(b.follow);
    return result;
}
