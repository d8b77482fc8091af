/* SPDX-License-Identifier: Apache-2.0 */
/* Leases and look-ups. */
#include <assert.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mutation.h"
#include "storage/internal.h"

int storage_lease(struct storage *s, uint64_t offset, uint64_t size, uint64_t key_hash)
{
    struct extent *e = map_at(&s->map, offset);
    if (e == NULL || e->state != EXTENT_COMMITTED ||
        (!mutated(MUT_GDS_ANY_EXTENT) &&
         (e->size != size || base_hash64(e->key, e->key_size) != key_hash)))
        return base_fail(YOLK_ERR_STALE, 0, "no extent of that key and %llu bytes at %llu",
                         (unsigned long long)size, (unsigned long long)offset);
    e->leases++;
    s->leases++;
    return YOLK_OK;
}

void storage_unlease(struct storage *s, uint64_t offset)
{
    struct extent *e = map_at(&s->map, offset);
    s->leases--;
    if (mutated(MUT_REUSE_UNDER_READ) && (e == NULL || e->leases == 0))
        return;
    assert(e != NULL && e->leases > 0);
    e->leases--;
    if (e->state == EXTENT_DOOMED)
        storage_free_if_over(s, e);
}

int storage_find(struct storage *s, const void *key, size_t key_size, struct storage_extent *out)
{
    const struct extent *e = map_find(&s->map, key, key_size);
    if (e == NULL)
        return YOLK_ERR_NOT_FOUND;
    storage_describe(s, e, out);
    return YOLK_OK;
}

bool storage_next(struct storage *s, uint64_t *cursor, struct storage_extent *out)
{
    struct extent *e = map_from(&s->map, *cursor);
    while (e != NULL && (e->state != EXTENT_COMMITTED || map_offset(&s->map, e) < *cursor))
        e = map_after(&s->map, e);
    if (e == NULL)
        return false;
    storage_describe(s, e, out);
    *cursor = out->offset + FORMAT_BLOCK;
    return true;
}
