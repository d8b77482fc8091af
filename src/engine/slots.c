/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/slots.h"

#include <string.h>

#include "base/alloc.h"

#define NONE UINT32_MAX

void slots_init(struct slots *slots)
{
    *slots = (struct slots){.free_head = NONE};
}

enum yolk_status slots_take(struct slots *slots, void *thing, uint64_t *handle)
{
    uint32_t index = slots->free_head;
    if (index != NONE) {
        slots->free_head = slots->slots[index].next_free;
    } else {
        if (slots->count == slots->room) {
            uint32_t room = slots->room == 0 ? 16 : slots->room * 2;
            struct slot *more = base_realloc(slots->slots, room * sizeof(*more));
            if (more == NULL)
                return YOLK_ERR_NO_MEMORY;
            memset(more + slots->room, 0, (room - slots->room) * sizeof(*more));
            slots->slots = more;
            slots->room = room;
        }
        index = slots->count++;
    }
    slots->slots[index].thing = thing;
    slots->slots[index].generation++;
    *handle = slots_handle(slots, index);
    return YOLK_OK;
}

void *slots_drop(struct slots *slots, uint32_t index)
{
    struct slot *slot = &slots->slots[index];
    void *thing = slot->thing;
    if (thing == NULL)
        return NULL;
    slot->thing = NULL;
    slot->next_free = slots->free_head;
    slots->free_head = index;
    return thing;
}
