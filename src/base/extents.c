/* SPDX-License-Identifier: Apache-2.0 */
#include "base/extents.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define SL_BITS    5u
#define SL_COUNT   (1u << SL_BITS)
#define FL_COUNT   60u
#define BIN_LOOK   16    /* holes of a bin that are looked at for a tight fit */
#define FINGERS    4096u /* starting points for a search by address, at first */
#define PER_FINGER 4u    /* nodes; beyond that there are to be twice as many fingers */
#define FILL_STEP  64u   /* nodes looked at for those with each new extent */
#define ZONES_EACH 64u   /* takes, after which the zones are fitted to what there is */
#define MAX_NODES  (UINT32_MAX - 1)

struct node {
    uint64_t offset; /* both in units */
    uint64_t size : 61;
    uint64_t state : 2;
    uint64_t zone : 1; /* free: whose bins it is in */
    uint32_t prev;     /* by address */
    uint32_t next;
    union {
        struct {
            uint32_t prev;
            uint32_t next;
        } bin;       /* free */
        void *owner; /* used */
    };
};

_Static_assert(sizeof(struct node) == 32, "one an extent: it is to stay compact");

enum { NODE_SPARE, NODE_FREE, NODE_USED };

/*
 * Extents much smaller than the mean would in time stand in all holes that large ones need. So
 * their place is the end of the segment, as much of it as they fill, and the large ones' the rest.
 * Both go to the other's zone when there is no hole in their own.
 */
enum { ZONE_LARGE, ZONE_SMALL, ZONES };

struct bins {
    uint64_t fl_map;
    uint32_t sl_map[FL_COUNT];
    uint32_t heads[FL_COUNT][SL_COUNT];
};

/* Each names the last node that was met there, plus one; 0: none. */
struct fingers {
    uint32_t *at;
    uint32_t count;
    uint64_t units; /* that one covers */
};

struct base_extents {
    struct node *nodes;
    uint32_t count; /* nodes ever taken from the array */
    uint32_t room;
    uint32_t spare; /* list of given back nodes, linked by `next` */
    uint32_t first;
    uint64_t units;
    uint64_t free_units;
    uint64_t used_count;
    uint64_t used_units[FL_COUNT]; /* by the size of the extent */
    uint64_t small_below;          /* units: extents that are small */
    uint64_t small_from;           /* their zone */
    uint32_t takes;                /* until the zones are fitted again */
    struct bins bins[ZONES];
    struct fingers fingers;
    struct fingers more; /* twice as many, being filled; `at` NULL: none */
    uint32_t filled;     /* nodes that were looked at for those */
};

#define NONE BASE_EXTENTS_NONE

/* The bin whose range holds `n`. Sizes below 32 units have a bin each. */
static uint32_t bin_of(uint64_t n)
{
    if (n < SL_COUNT)
        return (uint32_t)n;
    uint32_t log = 63u - (uint32_t)__builtin_clzll(n);
    uint32_t fl = log - SL_BITS + 1;
    return fl * SL_COUNT + (uint32_t)((n >> (log - SL_BITS)) & (SL_COUNT - 1));
}

static void bin_insert(struct base_extents *a, uint32_t h)
{
    struct node *n = &a->nodes[h];
    uint32_t bin = bin_of(n->size), fl = bin / SL_COUNT, sl = bin % SL_COUNT;
    n->zone = n->offset + n->size > a->small_from ? ZONE_SMALL : ZONE_LARGE;
    struct bins *bins = &a->bins[n->zone];
    uint32_t head = bins->heads[fl][sl];
    n->bin.prev = NONE;
    n->bin.next = head;
    if (head != NONE)
        a->nodes[head].bin.prev = h;
    bins->heads[fl][sl] = h;
    bins->sl_map[fl] |= 1u << sl;
    bins->fl_map |= 1ull << fl;
    n->state = NODE_FREE;
}

static void bin_remove(struct base_extents *a, uint32_t h)
{
    struct node *n = &a->nodes[h];
    uint32_t bin = bin_of(n->size), fl = bin / SL_COUNT, sl = bin % SL_COUNT;
    if (n->bin.next != NONE)
        a->nodes[n->bin.next].bin.prev = n->bin.prev;
    if (n->bin.prev != NONE) {
        a->nodes[n->bin.prev].bin.next = n->bin.next;
        return;
    }
    struct bins *bins = &a->bins[n->zone];
    bins->heads[fl][sl] = n->bin.next;
    if (n->bin.next != NONE)
        return;
    bins->sl_map[fl] &= ~(1u << sl);
    if (bins->sl_map[fl] == 0)
        bins->fl_map &= ~(1ull << fl);
}

static bool fingers_init(struct fingers *fingers, uint32_t count, uint64_t units)
{
    fingers->at = base_calloc(count, sizeof *fingers->at);
    fingers->count = count;
    fingers->units = units / count + 1;
    return fingers->at != NULL;
}

static void finger_set(struct fingers *fingers, const struct node *node, uint32_t h)
{
    fingers->at[node->offset / fingers->units] = h + 1;
}

/* There are too few: twice as many take over when all nodes were looked at, some at a time. Without
 * memory searches get slower, no more. */
static void fingers_grow(struct base_extents *a)
{
    if (a->more.at == NULL) {
        if (!fingers_init(&a->more, a->fingers.count * 2, a->units))
            return;
        a->filled = 0;
    }
    for (uint32_t n = 0; n < FILL_STEP && a->filled < a->count; n++, a->filled++)
        if (a->nodes[a->filled].state != NODE_SPARE)
            finger_set(&a->more, &a->nodes[a->filled], a->filled);
    if (a->filled < a->count)
        return;
    free(a->fingers.at);
    a->fingers = a->more;
    a->more.at = NULL;
}

static void finger_note(struct base_extents *a, uint32_t h)
{
    finger_set(&a->fingers, &a->nodes[h], h);
    if (a->more.at != NULL)
        finger_set(&a->more, &a->nodes[h], h);
    if (a->more.at != NULL ||
        (a->count / PER_FINGER > a->fingers.count && a->fingers.count < a->units))
        fingers_grow(a);
}

static bool grow(struct base_extents *a, uint32_t need)
{
    uint32_t spare = 0;
    for (uint32_t h = a->spare; h != NONE && spare < need; h = a->nodes[h].next)
        spare++;
    need -= spare;
    if (a->room - a->count >= need)
        return true;
    if (a->room >= MAX_NODES / 2)
        return false;
    uint32_t room = a->room * 2;
    struct node *nodes = base_realloc(a->nodes, (size_t)room * sizeof *nodes);
    if (nodes == NULL)
        return false;
    a->nodes = nodes;
    a->room = room;
    return true;
}

/* grow() has made room for it. */
static uint32_t node_new(struct base_extents *a)
{
    uint32_t h = a->spare;
    if (h != NONE)
        a->spare = a->nodes[h].next;
    else
        h = a->count++;
    return h;
}

static void node_free(struct base_extents *a, uint32_t h)
{
    a->nodes[h].state = NODE_SPARE;
    a->nodes[h].next = a->spare;
    a->spare = h;
}

enum yolk_status base_extents_create(uint64_t size, struct base_extents **out)
{
    uint64_t units = size / BASE_EXTENTS_UNIT;
    if (units == 0)
        return YOLK_ERR_INVALID;
    struct base_extents *a = base_calloc(1, sizeof *a);
    if (a == NULL)
        return YOLK_ERR_NO_MEMORY;
    a->room = 64;
    a->nodes = base_malloc(a->room * sizeof *a->nodes);
    if (!fingers_init(&a->fingers, FINGERS, units) || a->nodes == NULL) {
        base_extents_destroy(a);
        return YOLK_ERR_NO_MEMORY;
    }
    a->spare = NONE;
    a->units = a->free_units = units;
    a->small_from = units;
    for (uint32_t zone = 0; zone < ZONES; zone++)
        for (uint32_t bin = 0; bin < FL_COUNT * SL_COUNT; bin++)
            a->bins[zone].heads[bin / SL_COUNT][bin % SL_COUNT] = NONE;
    uint32_t h = node_new(a);
    a->nodes[h] = (struct node){.offset = 0, .size = units, .prev = NONE, .next = NONE};
    a->first = h;
    bin_insert(a, h);
    *out = a;
    return YOLK_OK;
}

void base_extents_destroy(struct base_extents *a)
{
    if (a == NULL)
        return;
    free(a->nodes);
    free(a->fingers.at);
    free(a->more.at);
    free(a);
}

/* Takes [at, at + n) out of the hole `h`; what is left on either side stays free. */
static uint32_t carve(struct base_extents *a, uint32_t h, uint64_t at, uint64_t n, void *owner)
{
    if (!grow(a, 2))
        return NONE;
    bin_remove(a, h);
    struct node *hole = &a->nodes[h];
    if (at > hole->offset) {
        uint32_t left = node_new(a);
        a->nodes[left] = (struct node){
            .offset = hole->offset, .size = at - hole->offset, .prev = hole->prev, .next = h};
        if (hole->prev != NONE)
            a->nodes[hole->prev].next = left;
        else
            a->first = left;
        hole->size -= at - hole->offset;
        hole->offset = at;
        hole->prev = left;
        bin_insert(a, left);
    }
    if (hole->size > n) {
        uint32_t right = node_new(a);
        a->nodes[right] =
            (struct node){.offset = at + n, .size = hole->size - n, .prev = h, .next = hole->next};
        if (hole->next != NONE)
            a->nodes[hole->next].prev = right;
        hole->next = right;
        hole->size = n;
        bin_insert(a, right);
    }
    hole->state = NODE_USED;
    hole->owner = owner;
    a->free_units -= n;
    a->used_units[bin_of(n) / SL_COUNT] += n;
    a->used_count++;
    finger_note(a, h);
    return h;
}

static uint64_t units_of(uint64_t size)
{
    return size / BASE_EXTENTS_UNIT + (size % BASE_EXTENTS_UNIT != 0);
}

/* The tightest of the first few holes of a bin that fits, of equal ones the lowest; NONE: none. */
static uint32_t tightest(const struct base_extents *a, uint32_t h, uint64_t n)
{
    uint32_t best = NONE;
    for (int look = 0; h != NONE && look < BIN_LOOK; look++, h = a->nodes[h].bin.next) {
        const struct node *hole = &a->nodes[h];
        if (hole->size < n)
            continue;
        if (best == NONE || hole->size < a->nodes[best].size ||
            (hole->size == a->nodes[best].size && hole->offset < a->nodes[best].offset))
            best = h;
    }
    return best;
}

/* A hole of the zone for `n` units; NONE: none. */
static uint32_t hole_for(const struct base_extents *a, const struct bins *bins, uint64_t n)
{
    uint32_t bin = bin_of(n), fl = bin / SL_COUNT, sl = bin % SL_COUNT;
    uint32_t h = tightest(a, bins->heads[fl][sl], n);
    if (h != NONE)
        return h;
    /* Any hole of a higher bin fits. */
    uint32_t map = sl + 1 < SL_COUNT ? bins->sl_map[fl] & (~0u << (sl + 1)) : 0;
    if (map == 0) {
        uint64_t above = bins->fl_map & (~0ull << fl << 1);
        if (above == 0)
            return NONE;
        fl = (uint32_t)__builtin_ctzll(above);
        map = bins->sl_map[fl];
    }
    return tightest(a, bins->heads[fl][__builtin_ctz(map)], n);
}

/* Small are those of less than the power of two below the mean. Their zone is a little less than
 * they fill: what they have too little goes to small holes between the large ones. Holes are in the
 * zone that was theirs when they became holes. */
static void zones_fit(struct base_extents *a)
{
    if (a->used_count == 0 || a->takes++ % ZONES_EACH != 0)
        return;
    uint32_t mean = bin_of((a->units - a->free_units) / a->used_count) / SL_COUNT;
    uint64_t small = 0;
    for (uint32_t fl = 0; fl < mean; fl++)
        small += a->used_units[fl];
    a->small_below = mean == 0 ? 0 : 1ull << (mean + SL_BITS - 1);
    a->small_from = a->units - small / 8 * 7;
}

uint32_t base_extents_take(struct base_extents *a, uint64_t size, void *owner)
{
    uint64_t n = units_of(size);
    if (n == 0 || n > a->free_units)
        return NONE;
    zones_fit(a);
    uint32_t zone = n < a->small_below ? ZONE_SMALL : ZONE_LARGE;
    uint32_t h = hole_for(a, &a->bins[zone], n);
    if (h == NONE)
        h = hole_for(a, &a->bins[ZONES - 1 - zone], n);
    if (h == NONE)
        return NONE;
    const struct node *hole = &a->nodes[h];
    uint64_t at = zone == ZONE_SMALL ? hole->offset + hole->size - n : hole->offset;
    return carve(a, h, at, n, owner);
}

/* The node that covers the unit `at`. Stale fingers are told by their state and place. */
static uint32_t covering(struct base_extents *a, uint64_t at)
{
    uint32_t h = NONE;
    uint64_t units = a->fingers.units;
    for (uint64_t f = at / units + 1; f-- > 0 && h == NONE;) {
        uint32_t c = a->fingers.at[f];
        if (c-- == 0)
            continue;
        const struct node *n = &a->nodes[c];
        if (n->state == NODE_SPARE || n->offset / units != f)
            a->fingers.at[f] = 0;
        else if (n->offset <= at)
            h = c;
        else if (f == at / units) {
            while (a->nodes[c].offset > at)
                c = a->nodes[c].prev;
            h = c;
        }
    }
    if (h == NONE)
        h = a->first;
    while (a->nodes[h].offset + a->nodes[h].size <= at)
        h = a->nodes[h].next;
    return h;
}

uint32_t base_extents_reserve(struct base_extents *a, uint64_t offset, uint64_t size, void *owner)
{
    uint64_t n = units_of(size), at = offset / BASE_EXTENTS_UNIT;
    if (n == 0 || offset % BASE_EXTENTS_UNIT != 0 || at >= a->units || n > a->units - at)
        return NONE;
    uint32_t h = covering(a, at);
    const struct node *hole = &a->nodes[h];
    if (hole->state != NODE_FREE || hole->offset + hole->size < at + n)
        return NONE;
    return carve(a, h, at, n, owner);
}

enum yolk_status base_extents_grow(struct base_extents *a, uint64_t size)
{
    uint64_t more = size / BASE_EXTENTS_UNIT;
    if (more <= a->units)
        return YOLK_OK;
    struct fingers fingers;
    if (!fingers_init(&fingers, a->fingers.count, more))
        return YOLK_ERR_NO_MEMORY;
    if (!grow(a, 1)) {
        free(fingers.at);
        return YOLK_ERR_NO_MEMORY;
    }
    more -= a->units;
    uint32_t last = covering(a, a->units - 1);
    if (a->nodes[last].state == NODE_FREE) {
        bin_remove(a, last);
        a->nodes[last].size += more;
    } else {
        uint32_t h = node_new(a);
        a->nodes[h] = (struct node){.offset = a->units, .size = more, .prev = last, .next = NONE};
        a->nodes[last].next = h;
        last = h;
    }
    bin_insert(a, last);
    a->units += more;
    a->small_from += more;
    a->free_units += more;
    free(a->fingers.at);
    free(a->more.at);
    a->more.at = NULL;
    a->fingers = fingers;
    for (uint32_t h = 0; h < a->count; h++)
        if (a->nodes[h].state != NODE_SPARE)
            finger_set(&a->fingers, &a->nodes[h], h);
    return YOLK_OK;
}

void base_extents_release(struct base_extents *a, uint32_t h)
{
    struct node *n = &a->nodes[h];
    a->free_units += n->size;
    a->used_units[bin_of(n->size) / SL_COUNT] -= n->size;
    a->used_count--;
    uint32_t prev = n->prev, next = n->next;
    if (next != NONE && a->nodes[next].state == NODE_FREE) {
        bin_remove(a, next);
        n->size += a->nodes[next].size;
        n->next = a->nodes[next].next;
        if (n->next != NONE)
            a->nodes[n->next].prev = h;
        node_free(a, next);
    }
    if (prev != NONE && a->nodes[prev].state == NODE_FREE) {
        bin_remove(a, prev);
        a->nodes[prev].size += n->size;
        a->nodes[prev].next = n->next;
        if (n->next != NONE)
            a->nodes[n->next].prev = prev;
        node_free(a, h);
        h = prev;
    }
    bin_insert(a, h);
}

uint64_t base_extents_offset(const struct base_extents *a, uint32_t h)
{
    return a->nodes[h].offset * BASE_EXTENTS_UNIT;
}

uint64_t base_extents_size(const struct base_extents *a, uint32_t h)
{
    return a->nodes[h].size * BASE_EXTENTS_UNIT;
}

void *base_extents_owner(const struct base_extents *a, uint32_t h)
{
    return a->nodes[h].owner;
}

uint64_t base_extents_capacity(const struct base_extents *a)
{
    return a->units * BASE_EXTENTS_UNIT;
}

uint64_t base_extents_free_bytes(const struct base_extents *a)
{
    return a->free_units * BASE_EXTENTS_UNIT;
}

uint64_t base_extents_used_count(const struct base_extents *a)
{
    return a->used_count;
}

uint64_t base_extents_memory(const struct base_extents *a)
{
    return sizeof *a + (uint64_t)a->room * sizeof *a->nodes +
           (uint64_t)a->fingers.count * sizeof *a->fingers.at;
}

static uint64_t largest_of(const struct base_extents *a, const struct bins *bins)
{
    if (bins->fl_map == 0)
        return 0;
    uint32_t fl = 63u - (uint32_t)__builtin_clzll(bins->fl_map);
    uint32_t sl = 31u - (uint32_t)__builtin_clz(bins->sl_map[fl]);
    /* The first of the bin is looked at by take() for certain, so this much is promised. */
    return a->nodes[bins->heads[fl][sl]].size * BASE_EXTENTS_UNIT;
}

uint64_t base_extents_largest(const struct base_extents *a)
{
    uint64_t one = largest_of(a, &a->bins[ZONE_LARGE]), other = largest_of(a, &a->bins[ZONE_SMALL]);
    return one > other ? one : other;
}

uint32_t base_extents_next(const struct base_extents *a, uint32_t h)
{
    h = h == NONE ? a->first : a->nodes[h].next;
    while (h != NONE && a->nodes[h].state != NODE_USED)
        h = a->nodes[h].next;
    return h;
}

uint32_t base_extents_find(struct base_extents *a, uint64_t offset)
{
    uint64_t at = offset / BASE_EXTENTS_UNIT;
    if (at >= a->units || offset % BASE_EXTENTS_UNIT != 0)
        return NONE;
    uint32_t h = covering(a, at);
    return a->nodes[h].state == NODE_USED && a->nodes[h].offset == at ? h : NONE;
}

uint32_t base_extents_seek(struct base_extents *a, uint64_t offset)
{
    uint64_t at = offset / BASE_EXTENTS_UNIT;
    if (at >= a->units)
        return NONE;
    uint32_t h = covering(a, at);
    return a->nodes[h].state == NODE_USED ? h : base_extents_next(a, h);
}

static const char *check_bins(const struct base_extents *a, uint32_t zone, uint64_t *binned)
{
    const struct bins *bins = &a->bins[zone];
    for (uint32_t bin = 0; bin < FL_COUNT * SL_COUNT; bin++) {
        uint32_t fl = bin / SL_COUNT, sl = bin % SL_COUNT;
        if (((bins->sl_map[fl] >> sl) & 1) != (bins->heads[fl][sl] != NONE) ||
            ((bins->fl_map >> fl) & 1) != (bins->sl_map[fl] != 0))
            return "alloc: bitmap differs from bin";
        for (uint32_t h = bins->heads[fl][sl]; h != NONE; h = a->nodes[h].bin.next, ++*binned)
            if (a->nodes[h].state != NODE_FREE || a->nodes[h].zone != zone ||
                bin_of(a->nodes[h].size) != bin)
                return "alloc: hole in the wrong bin";
    }
    return NULL;
}

const char *base_extents_check(const struct base_extents *a)
{
    uint64_t at = 0, free_units = 0, used = 0, free_count = 0, binned = 0;
    uint64_t used_units[FL_COUNT] = {0};
    uint32_t prev = NONE;
    for (uint32_t h = a->first; h != NONE; prev = h, h = a->nodes[h].next) {
        const struct node *n = &a->nodes[h];
        if (n->offset != at || n->size == 0 || n->prev != prev)
            return "alloc: extents do not tile the segment";
        if (n->state == NODE_FREE && prev != NONE && a->nodes[prev].state == NODE_FREE)
            return "alloc: two free neighbours";
        free_units += n->state == NODE_FREE ? n->size : 0;
        free_count += n->state == NODE_FREE;
        used += n->state == NODE_USED;
        if (n->state == NODE_USED)
            used_units[bin_of(n->size) / SL_COUNT] += n->size;
        at += n->size;
    }
    if (at != a->units || free_units != a->free_units || used != a->used_count ||
        memcmp(used_units, a->used_units, sizeof used_units) != 0)
        return "alloc: sums differ";
    for (uint32_t zone = 0; zone < ZONES; zone++) {
        const char *broken = check_bins(a, zone, &binned);
        if (broken != NULL)
            return broken;
    }
    return binned == free_count ? NULL : "alloc: a hole is in no bin";
}
