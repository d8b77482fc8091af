/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

static base_alloc_hook refuses;
static void *refuses_self;

void base_alloc_set_hook(base_alloc_hook hook, void *self)
{
    refuses_self = self;
    refuses = hook;
}

static bool refused(void)
{
    return refuses != NULL && refuses(refuses_self);
}

void *base_malloc(size_t size)
{
    return refused() ? NULL : malloc(size);
}

void *base_calloc(size_t count, size_t size)
{
    return refused() ? NULL : calloc(count, size);
}

void *base_realloc(void *memory, size_t size)
{
    return refused() ? NULL : realloc(memory, size);
}

static void *map(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Cuts the aligned part out of twice as much. */
static void *map_aligned(size_t size)
{
    char *all = map(2 * size);
    if (all == NULL)
        return NULL;
    size_t before = (size - (uintptr_t)all % size) % size;
    if (before > 0)
        munmap(all, before);
    munmap(all + before + size, size - before);
    return all + before;
}

void *base_pages_take(size_t size)
{
    if (refused())
        return NULL;
    /* The system mostly puts a mapping next to the last one, so the next is aligned as well. */
    void *at = map(size);
    if (at == NULL || (uintptr_t)at % size == 0)
        return at;
    munmap(at, size);
    return map_aligned(size);
}

void base_pages_give(void *memory, size_t size)
{
    munmap(memory, size);
}
