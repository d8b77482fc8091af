/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key bytes to object. Open addressing on the high bits of the key's 64-bit hash; growth moves a
 * few entries with each insertion, so no single one waits for the whole table.
 *
 * Walks go by ranges of the hash and not of slots. They therefore see each key that lives through
 * the walk exactly once, however much the table grows meanwhile.
 */
#ifndef YOLK_MASTER_INDEX_H
#define YOLK_MASTER_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

/* The head of an object: the index knows no more of it. The key's bytes follow `key_at` bytes
 * behind its beginning. */
struct master_index_entry {
    uint64_t hash;
    uint32_t key_size;
    uint32_t key_at;
};

struct master_index;

YOLK_MUST_USE enum yolk_status master_index_create(struct master_index **out);
void master_index_destroy(struct master_index *index);

struct master_index_entry *master_index_find(const struct master_index *index, uint64_t hash,
                                             const void *key, size_t key_size);
/* The key must not be in it yet. NO_MEMORY leaves everything as it was. */
YOLK_MUST_USE enum yolk_status master_index_insert(struct master_index *index,
                                                   struct master_index_entry *entry);
void master_index_remove(struct master_index *index, struct master_index_entry *entry);
/* Two wishes, for whoever has many keys to find: a look into the table, and then, a few keys later,
 * into what it names, are under way while other keys are worked on. */
void master_index_fetch_slot(const struct master_index *index, uint64_t hash);
void master_index_fetch_entry(const struct master_index *index, uint64_t hash);
uint64_t master_index_count(const struct master_index *index);

/*
 * Calls `visit` for the entries of a small range of hashes that begins at *cursor and moves *cursor
 * to its end; false when that was the last range. `visit` must not change the index: collect, then
 * act.
 */
bool master_index_walk(const struct master_index *index, uint64_t *cursor,
                       void (*visit)(void *self, struct master_index_entry *entry), void *self);

#endif
