/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

#define BUCKETS_AT_FIRST 64u
#define HEAP_OVERHEAD    16u /* of a heap block, about: its header and rounding */

int map_init(struct map *map, uint64_t capacity, uint64_t seed)
{
    *map = (struct map){.seed = seed, .bucket_count = 1, .bucket_room = BUCKETS_AT_FIRST};
    map->buckets = base_calloc(map->bucket_room, sizeof *map->buckets);
    if (map->buckets == NULL || base_extents_create(capacity, &map->places) != YOLK_OK) {
        free(map->buckets);
        map->buckets = NULL;
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "index of an extent file");
    }
    return YOLK_OK;
}

void map_free(struct map *map)
{
    if (map->places == NULL)
        return;
    for (uint32_t h = base_extents_next(map->places, BASE_EXTENTS_NONE); h != BASE_EXTENTS_NONE;
         h = base_extents_next(map->places, h))
        free(base_extents_owner(map->places, h));
    base_extents_destroy(map->places);
    free(map->buckets);
    *map = (struct map){0};
}

/* ---- the key table: buckets 0 to count-1; those below count - 2^k use one more bit of the hash */
static size_t bucket_of(const struct map *map, uint64_t hash)
{
    size_t whole = (size_t)1 << (63 - __builtin_clzll(map->bucket_count));
    size_t i = hash & (2 * whole - 1);
    return i < map->bucket_count ? i : i & (whole - 1);
}

static uint64_t hash_of(const struct map *map, const void *key, size_t key_size)
{
    return base_hash64_seed(key, key_size, map->seed);
}

/* One bucket more, for which another is split. Without memory the chains get longer, no more. */
static void table_grow(struct map *map)
{
    if (map->bucket_count == map->bucket_room) {
        struct extent **buckets =
            base_realloc(map->buckets, 2 * map->bucket_room * sizeof *buckets);
        if (buckets == NULL)
            return;
        map->buckets = buckets;
        map->bucket_room *= 2;
    }
    size_t whole = (size_t)1 << (63 - __builtin_clzll(map->bucket_count));
    struct extent *chain = map->buckets[map->bucket_count - whole];
    struct extent **low = &map->buckets[map->bucket_count - whole];
    struct extent **high = &map->buckets[map->bucket_count];
    for (; chain != NULL; chain = chain->next) {
        struct extent ***to = hash_of(map, chain->key, chain->key_size) & whole ? &high : &low;
        **to = chain;
        *to = &chain->next;
    }
    *low = *high = NULL;
    map->bucket_count++;
}

static void table_insert(struct map *map, struct extent *e)
{
    if (map->hashed >= map->bucket_count)
        table_grow(map);
    struct extent **bucket = &map->buckets[bucket_of(map, hash_of(map, e->key, e->key_size))];
    e->next = *bucket;
    *bucket = e;
    e->hashed = true;
    map->hashed++;
}

static void table_remove(struct map *map, struct extent *e)
{
    if (!e->hashed)
        return;
    struct extent **at = &map->buckets[bucket_of(map, hash_of(map, e->key, e->key_size))];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    e->next = NULL;
    e->hashed = false;
    map->hashed--;
}

struct extent *map_find(const struct map *map, const void *key, size_t key_size)
{
    struct extent *e = map->buckets[bucket_of(map, hash_of(map, key, key_size))];
    while (e != NULL && (e->key_size != key_size || memcmp(e->key, key, key_size) != 0))
        e = e->next;
    return e;
}

/* ---- extents ---- */
static uint64_t round_up(uint64_t size)
{
    return (size + FORMAT_BLOCK - 1) / FORMAT_BLOCK * FORMAT_BLOCK;
}

static struct extent *extent_new(const void *key, size_t key_size, uint64_t size)
{
    struct extent *e = base_malloc(sizeof *e + key_size);
    if (e == NULL)
        return NULL;
    *e = (struct extent){.size = size, .key_size = (uint16_t)key_size};
    memcpy(e->key, key, key_size);
    return e;
}

static int extent_add(struct map *map, struct extent *e, uint32_t handle, struct extent **out)
{
    if (handle == BASE_EXTENTS_NONE) {
        free(e);
        return YOLK_ERR_NO_SPACE;
    }
    e->handle = handle;
    e->state = EXTENT_RESERVED;
    map->counts[EXTENT_RESERVED]++;
    map->index_bytes += format_record_size(e->key_size);
    map->memory_bytes += sizeof *e + e->key_size + HEAP_OVERHEAD;
    *out = e;
    return YOLK_OK;
}

int map_take(struct map *map, const void *key, size_t key_size, uint64_t size, struct extent **out)
{
    struct extent *e = extent_new(key, key_size, size);
    if (e == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "an extent");
    return extent_add(map, e, base_extents_take(map->places, round_up(size), e), out);
}

int map_place_committed(struct map *map, const struct format_record *record, struct extent **out)
{
    struct extent *e = extent_new(record->key, record->key_size, record->size);
    if (e == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "an extent");
    e->checksum = record->checksum;
    e->unchecked = record->unchecked;
    int status = extent_add(
        map, e, base_extents_reserve(map->places, record->offset, record->allocated, e), out);
    if (status != YOLK_OK)
        return status;
    map->counts[EXTENT_RESERVED]--;
    map->counts[EXTENT_COMMITTED]++;
    map->committed_bytes += record->allocated;
    e->state = EXTENT_COMMITTED;
    return YOLK_OK;
}

int map_hash_all(struct map *map)
{
    size_t count = (size_t)map->counts[EXTENT_COMMITTED];
    if (count > map->bucket_room) {
        free(map->buckets);
        map->buckets = base_calloc(count, sizeof *map->buckets);
        if (map->buckets == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "index of an extent file");
        map->bucket_room = count;
    }
    map->bucket_count = count > 0 ? count : 1;
    for (struct extent *e = map_from(map, 0); e != NULL; e = map_after(map, e))
        table_insert(map, e);
    return YOLK_OK;
}

void map_set_state(struct map *map, struct extent *e, enum extent_state state)
{
    if (e->state == EXTENT_COMMITTED) {
        map->committed_bytes -= map_allocated(map, e);
        table_remove(map, e);
    }
    map->counts[e->state]--;
    e->state = (uint8_t)state;
    map->counts[state]++;
    if (state == EXTENT_COMMITTED) {
        map->committed_bytes += map_allocated(map, e);
        table_insert(map, e);
    }
}

void map_release(struct map *map, struct extent *e)
{
    if (e->state == EXTENT_COMMITTED)
        map_set_state(map, e, EXTENT_DOOMED);
    map->counts[e->state]--;
    map->index_bytes -= format_record_size(e->key_size);
    map->memory_bytes -= sizeof *e + e->key_size + HEAP_OVERHEAD;
    base_extents_release(map->places, e->handle);
    free(e);
}

static struct extent *owner(const struct map *map, uint32_t handle)
{
    return handle == BASE_EXTENTS_NONE ? NULL : base_extents_owner(map->places, handle);
}

struct extent *map_at(struct map *map, uint64_t offset)
{
    return owner(map, base_extents_find(map->places, offset));
}

struct extent *map_from(struct map *map, uint64_t offset)
{
    return owner(map, base_extents_seek(map->places, offset));
}

struct extent *map_after(struct map *map, const struct extent *e)
{
    return owner(map, base_extents_next(map->places, e->handle));
}

uint64_t map_offset(const struct map *map, const struct extent *e)
{
    return base_extents_offset(map->places, e->handle);
}

uint64_t map_allocated(const struct map *map, const struct extent *e)
{
    return base_extents_size(map->places, e->handle);
}

uint64_t map_memory(const struct map *map)
{
    return map->memory_bytes + map->bucket_room * sizeof *map->buckets +
           base_extents_memory(map->places);
}

const char *map_check(struct map *map)
{
    uint64_t counts[EXTENT_STATES] = {0}, committed_bytes = 0, index_bytes = 0;
    size_t hashed = 0;
    const char *broken = base_extents_check(map->places);
    for (struct extent *e = map_from(map, 0); broken == NULL && e != NULL; e = map_after(map, e)) {
        counts[e->state]++;
        index_bytes += format_record_size(e->key_size);
        if (map_allocated(map, e) != round_up(e->size) || map_offset(map, e) % FORMAT_BLOCK != 0)
            return "map: an extent is not as large as its value asks for";
        if (e->state != EXTENT_COMMITTED)
            continue;
        committed_bytes += map_allocated(map, e);
        struct extent *found = map->buckets[bucket_of(map, hash_of(map, e->key, e->key_size))];
        while (found != NULL && found != e)
            found = found->next;
        if (found == NULL)
            return "map: a committed extent is not found by its key";
    }
    for (size_t i = 0; i < map->bucket_count; i++)
        for (struct extent *e = map->buckets[i]; e != NULL; e = e->next)
            hashed++;
    if (broken == NULL && (hashed != map->hashed || hashed != counts[EXTENT_COMMITTED]))
        broken = "map: the key table differs from the extents";
    if (broken == NULL &&
        (memcmp(counts, map->counts, sizeof counts) != 0 ||
         committed_bytes != map->committed_bytes || index_bytes != map->index_bytes))
        broken = "map: sums differ";
    return broken;
}
