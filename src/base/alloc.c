/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdlib.h>

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
