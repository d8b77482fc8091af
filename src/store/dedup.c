/* SPDX-License-Identifier: Apache-2.0 */
#include "store/dedup.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

int store_dedup(const struct store_item *items, size_t count, uint32_t *first)
{
    if (count > UINT32_MAX / 4)
        return 0;
    size_t slots = 8;
    while (slots < count * 2)
        slots *= 2;
    /* Slots hold index + 1; 0 is empty. */
    uint32_t *table = base_calloc(slots, sizeof(*table));
    if (table == NULL)
        return 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = base_hash64(items[i].key, items[i].key_size) & (slots - 1);
        first[i] = (uint32_t)i;
        for (; table[at] != 0; at = (at + 1) & (slots - 1)) {
            const struct store_item *other = &items[table[at] - 1];
            if (other->key_size == items[i].key_size &&
                (other->key_size == 0 || memcmp(other->key, items[i].key, other->key_size) == 0)) {
                first[i] = table[at] - 1;
                break;
            }
        }
        if (table[at] == 0)
            table[at] = (uint32_t)i + 1;
    }
    free(table);
    return 1;
}

int store_dedup_last(const struct store_item *items, size_t count, uint32_t *last)
{
    if (!store_dedup(items, count, last))
        return 0;
    /* From behind: the first that is met of each key tells the group's first item, which tells the
     * others. Until then it names itself. */
    for (size_t i = count; i-- > 0;) {
        uint32_t first = last[i];
        if (first >= i)
            continue; /* the first itself, told or alone */
        if (last[first] == first)
            last[first] = (uint32_t)i;
        last[i] = last[first];
    }
    return 1;
}
