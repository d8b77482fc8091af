/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of 64 bits to things that come and go: the place in a table, and how often it was given
 * out, so that a handle of an earlier life finds nothing. The caller holds the lock of the table.
 */
#ifndef YOLK_ENGINE_SLOTS_H
#define YOLK_ENGINE_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

struct slot {
    void *thing; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};
struct slots {
    struct slot *slots;
    uint32_t count; /* that were ever used */
    uint32_t room;
    uint32_t free_head;
};

void slots_init(struct slots *slots);
/* NO_MEMORY: nothing has changed; the last error is the caller's to say. */
YOLK_MUST_USE enum yolk_status slots_take(struct slots *slots, void *thing, uint64_t *handle);
/* What was there; NULL: it is free. */
void *slots_drop(struct slots *slots, uint32_t index);

static inline uint64_t slots_handle(const struct slots *slots, uint32_t index)
{
    return (uint64_t)slots->slots[index].generation << 32 | index;
}

/* NULL: there is none of this handle any more. */
static inline void *slots_find(const struct slots *slots, uint64_t handle)
{
    uint32_t index = (uint32_t)handle;
    return index < slots->count && slots->slots[index].generation == (uint32_t)(handle >> 32)
               ? slots->slots[index].thing
               : NULL;
}

#endif
