/* SPDX-License-Identifier: Apache-2.0 */
/* Heap memory of the pure parts: malloc and its like, which the simulator can have refused. Freed
 * with free. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *base_malloc(size_t size);
void *base_calloc(size_t count, size_t size);
void *base_realloc(void *memory, size_t size);

/* Zeroed memory of its own from the system, `size` being a power of two of at least a page of the
 * machine, at a multiple of it; NULL: there is none. What is given back is the system's at once. */
void *base_pages_take(size_t size);
void base_pages_give(void *memory, size_t size);

/* Asked before each allocation whether to refuse it; NULL: never. Set while no other thread
 * allocates. */
typedef bool (*base_alloc_hook)(void *self);
void base_alloc_set_hook(base_alloc_hook hook, void *self);

#endif
