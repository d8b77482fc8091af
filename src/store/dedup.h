/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_STORE_DEDUP_H
#define YOLK_STORE_DEDUP_H

#include "store/action.h"

/* first[i] = index of the first item with the key of item i (i itself when it is the first).
 * 0 when memory ran out. */
int store_dedup(const struct store_item *items, size_t count, uint32_t *first);
/* The same of the last item with that key. */
int store_dedup_last(const struct store_item *items, size_t count, uint32_t *last);

#endif
