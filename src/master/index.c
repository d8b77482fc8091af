/* SPDX-License-Identifier: Apache-2.0 */
#include "master/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define FIRST_SIZE 1024u
#define PAGE_SLOTS 512u
#define MAX_SIZE   (1ull << 40)
#define TOUCH_EACH 16u /* insertions: a page of the next table is met; done before it is used */
/* Slots of the old table moved with each insertion: long before the next growth all are, and for a
 * short time only a key has to be looked for in both. */
#define MOVE_STEP 64u

typedef struct master_index_entry entry_t;

/* The place of an entry, with some bits of its hash where the address has none: what is not the one
 * looked for is mostly passed over without a look at its memory. */
typedef uintptr_t slot_t;
#define TAG_MASK ((slot_t)7)
#define EMPTY    ((slot_t)0)

struct table {
    slot_t *slots;
    uint64_t size;
    uint64_t used; /* tombstones of a draining table excluded */
};

struct master_index {
    struct table now;
    struct table old;  /* being emptied; slots NULL when there is none */
    struct table next; /* will take over; slots NULL when that is far off */
    uint64_t moved;    /* old slots below this are done */
    uint64_t touched;  /* next slots below this have memory behind them */
};

/* Stands in the table being emptied where an entry was, so that probes go on past it. */
static _Alignas(8) entry_t tombstone;

static entry_t *entry_in(slot_t slot)
{
    return (entry_t *)(slot & ~TAG_MASK);
}

static slot_t tag_of(uint64_t hash)
{
    return (slot_t)hash & TAG_MASK;
}

static slot_t slot_of(entry_t *e)
{
    return (slot_t)e | tag_of(e->hash);
}

static uint64_t ideal(const struct table *t, uint64_t hash)
{
    return (uint64_t)((unsigned __int128)hash * t->size >> 64);
}

static uint64_t after(const struct table *t, uint64_t i)
{
    return i + 1 == t->size ? 0 : i + 1;
}

/* Slots on the way from `i` to `j`. */
static uint64_t way(const struct table *t, uint64_t i, uint64_t j)
{
    return j >= i ? j - i : j + t->size - i;
}

/* 1, 1.5, 2, 3, 4, 6 ...: a table twice as large would be mostly empty for long. */
static uint64_t next_size(uint64_t size)
{
    return (size & (size - 1)) == 0 ? size / 2 * 3 : size / 3 * 4;
}

static bool table_init(struct table *t, uint64_t size)
{
    /* calloc of a large block is lazily zeroed by the system: no pause here, but one for each page
     * when it is met first. */
    t->slots = base_calloc(size, sizeof *t->slots);
    t->size = size;
    t->used = 0;
    return t->slots != NULL;
}

enum yolk_status master_index_create(struct master_index **out)
{
    struct master_index *index = base_calloc(1, sizeof *index);
    if (index == NULL)
        return YOLK_ERR_NO_MEMORY;
    if (!table_init(&index->now, FIRST_SIZE)) {
        free(index);
        return YOLK_ERR_NO_MEMORY;
    }
    *out = index;
    return YOLK_OK;
}

void master_index_destroy(struct master_index *index)
{
    if (index == NULL)
        return;
    free(index->now.slots);
    free(index->old.slots);
    free(index->next.slots);
    free(index);
}

static entry_t *table_find(const struct table *t, uint64_t hash, const void *key, size_t key_size)
{
    if (t->slots == NULL)
        return NULL;
    for (uint64_t i = ideal(t, hash); t->slots[i] != EMPTY; i = after(t, i)) {
        if ((t->slots[i] & TAG_MASK) != tag_of(hash))
            continue;
        entry_t *e = entry_in(t->slots[i]);
        if (e->hash == hash && e != &tombstone && e->key_size == key_size &&
            memcmp((const uint8_t *)e + e->key_at, key, key_size) == 0)
            return e;
    }
    return NULL;
}

void master_index_fetch_slot(const struct master_index *index, uint64_t hash)
{
    __builtin_prefetch(&index->now.slots[ideal(&index->now, hash)]);
}

void master_index_fetch_entry(const struct master_index *index, uint64_t hash)
{
    const struct table *t = &index->now;
    uint64_t i = ideal(t, hash);
    while (t->slots[i] != EMPTY && (t->slots[i] & TAG_MASK) != tag_of(hash))
        i = after(t, i);
    if (t->slots[i] == EMPTY)
        return;
    /* The head, and behind it the key. */
    const uint8_t *entry = (const uint8_t *)entry_in(t->slots[i]);
    __builtin_prefetch(entry);
    __builtin_prefetch(entry + 64);
    __builtin_prefetch(entry + 128);
}

entry_t *master_index_find(const struct master_index *index, uint64_t hash, const void *key,
                           size_t key_size)
{
    entry_t *e = table_find(&index->now, hash, key, key_size);
    return e != NULL ? e : table_find(&index->old, hash, key, key_size);
}

static void table_put(struct table *t, entry_t *e)
{
    uint64_t i = ideal(t, e->hash);
    while (t->slots[i] != EMPTY)
        i = after(t, i);
    t->slots[i] = slot_of(e);
    t->used++;
}

static void move_some(struct master_index *index)
{
    if (index->old.slots == NULL)
        return;
    uint64_t size = index->old.size;
    for (uint32_t n = 0; n < MOVE_STEP && index->moved < size; n++, index->moved++) {
        entry_t *e = entry_in(index->old.slots[index->moved]);
        if (e == NULL || e == &tombstone)
            continue;
        table_put(&index->now, e);
        index->old.slots[index->moved] = slot_of(&tombstone);
        index->old.used--;
    }
    if (index->moved == size) {
        free(index->old.slots);
        index->old.slots = NULL;
    }
}

/* A new table's pages come from the system one after the other, before the table is used: else
 * nearly each of the first insertions would meet a new one. */
static bool prepare_next(struct master_index *index, uint64_t used)
{
    if (index->next.slots == NULL) {
        if (index->now.size >= MAX_SIZE || !table_init(&index->next, next_size(index->now.size)))
            return false;
        index->touched = 0;
    }
    if (used % TOUCH_EACH == 0 && index->touched < index->next.size) {
        *(volatile slot_t *)&index->next.slots[index->touched] = EMPTY;
        index->touched += PAGE_SLOTS;
    }
    return true;
}

enum yolk_status master_index_insert(struct master_index *index, entry_t *entry)
{
    uint64_t size = index->now.size, used = index->now.used + index->old.used + 1;
    bool prepared = used > size / 8 * 5 && prepare_next(index, used);
    if (used > size - size / 4) {
        if (!prepared)
            return YOLK_ERR_NO_MEMORY;
        /* MOVE_STEP makes it certain that the old table is empty by now, were it not for removals.
         */
        while (index->old.slots != NULL)
            move_some(index);
        index->old = index->now;
        index->now = index->next;
        index->next.slots = NULL;
        index->moved = 0;
    }
    move_some(index);
    table_put(&index->now, entry);
    return YOLK_OK;
}

/* Closes the gap at `i`: entries that probed over it move back. */
static void close_gap(struct table *t, uint64_t i)
{
    uint64_t j = i;
    for (;;) {
        t->slots[i] = EMPTY;
        uint64_t home;
        do {
            j = after(t, j);
            if (t->slots[j] == EMPTY)
                return;
            home = ideal(t, entry_in(t->slots[j])->hash);
        } while (way(t, home, j) < way(t, i, j));
        t->slots[i] = t->slots[j];
        i = j;
    }
}

static bool table_remove(struct table *t, entry_t *entry, bool draining)
{
    if (t->slots == NULL)
        return false;
    for (uint64_t i = ideal(t, entry->hash); t->slots[i] != EMPTY; i = after(t, i)) {
        if (entry_in(t->slots[i]) != entry)
            continue;
        if (draining)
            t->slots[i] = slot_of(&tombstone);
        else
            close_gap(t, i);
        t->used--;
        return true;
    }
    return false;
}

void master_index_remove(struct master_index *index, entry_t *entry)
{
    if (!table_remove(&index->now, entry, false))
        (void)table_remove(&index->old, entry, true);
}

uint64_t master_index_count(const struct master_index *index)
{
    return index->now.used + index->old.used;
}

static void table_walk(const struct table *t, uint64_t low, uint64_t last,
                       void (*visit)(void *self, entry_t *entry), void *self)
{
    if (t->slots == NULL)
        return;
    uint64_t end = ideal(t, last);
    /* Entries of the range stand in its slots or in the run that goes on after them. */
    for (uint64_t n = 0, i = ideal(t, low); n < t->size; n++, i = after(t, i)) {
        entry_t *e = entry_in(t->slots[i]);
        if (e == NULL && ideal(t, low) + n >= end)
            return;
        if (e != NULL && e != &tombstone && e->hash >= low && e->hash <= last)
            visit(self, e);
    }
}

bool master_index_walk(const struct master_index *index, uint64_t *cursor,
                       void (*visit)(void *self, entry_t *entry), void *self)
{
    /* 16 to 32 slots of the table a step. */
    uint32_t bits = 63u - (uint32_t)__builtin_clzll(index->now.size) - 4;
    uint64_t low = *cursor;
    uint64_t last = low | ((1ull << (64 - bits)) - 1);
    table_walk(&index->now, low, last, visit, self);
    table_walk(&index->old, low, last, visit, self);
    *cursor = last + 1; /* 0 after the last one */
    return last != UINT64_MAX;
}
