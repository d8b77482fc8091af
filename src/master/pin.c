/* SPDX-License-Identifier: Apache-2.0 */
/* Soft and hard pins: what eviction comes to last, or never. */
#include "master/state.h"

enum { LOOK_BACK = 64 }; /* pins of other TTLs that a new one looks past */

/* Stands where its pin says from now on. */
static void restand(struct master_object *object)
{
    MASTER_EXTENTS_FOREACH(extent, object)
    if (extent->state == EXTENT_LIVE && extent->refs == 0)
        master_extent_use(extent);
}

enum yolk_status master_pin_ask(struct master_core *core, struct master_object *object,
                                const struct wire_put_start *msg, struct wire_view group)
{
    if (msg->flags & WIRE_PUT_HARD_PIN)
        master_pin_hard(core, object);
    if (msg->soft_pin != SOFT_PIN_PRESERVE) {
        struct master_extra *extra = master_extra_need(core, object);
        if (extra == NULL)
            return YOLK_ERR_NO_MEMORY;
        extra->soft_action = (uint8_t)msg->soft_pin;
        extra->soft_ttl_ms = msg->soft_pin_ttl_ms == UINT64_MAX ? core->config.soft_pin_ttl_ms
                                                                : msg->soft_pin_ttl_ms;
    }
    return group.size == 0 ? YOLK_OK : master_group_join(core, object, group);
}

void master_pin_hard(struct master_core *core, struct master_object *object)
{
    if (object->pin == PIN_HARD)
        return;
    core->extras.soft_count -= object->pin == PIN_SOFT;
    object->pin = PIN_HARD;
    MASTER_EXTENTS_FOREACH(extent, object)
    if (extent->segment->medium != WIRE_MEDIUM_LOCAL_DISK)
        extent->segment->hard_bytes += master_extent_size(extent);
    restand(object);
}

bool master_pin_fits(const struct master_core *core, const struct master_segment *segment,
                     const struct master_object *replaced, uint64_t size)
{
    double limit = (double)segment->size * core->config.hard_pin_ratio;
    uint64_t credit = 0;
    if ((double)(segment->hard_bytes + size) <= limit)
        return true;
    /* What goes in place of a pinned value of no smaller size always fits; not twice at a time. */
    if (replaced == NULL || (double)segment->hard_bytes > limit)
        return false;
    MASTER_EXTENTS_FOREACH(extent, replaced)
    credit += extent->segment == segment ? master_extent_size(extent) : 0;
    return (double)(segment->hard_bytes + size) <= limit + (double)credit;
}

void master_pin_forget(struct master_core *core, struct master_extra *extra)
{
    core->extras.soft_count -= extra->soft_until != 0 && extra->object->pin == PIN_SOFT;
    base_list_remove(&extra->soft_link);
    extra->soft_until = 0;
}

static void soften(struct master_core *core, struct master_extra *extra, uint64_t until)
{
    master_pin_forget(core, extra);
    extra->soft_until = until;
    struct base_list *place = core->extras.soft.prev;
    for (uint32_t n = 0; n < LOOK_BACK && place != &core->extras.soft; n++, place = place->prev)
        if (BASE_CONTAINER(place, struct master_extra, soft_link)->soft_until <= until)
            break;
    base_list_insert_after(place, &extra->soft_link);
    if (extra->object->pin == PIN_NONE)
        extra->object->pin = PIN_SOFT;
    core->extras.soft_count += extra->object->pin == PIN_SOFT;
}

void master_pin_commit(struct master_core *core, struct master_object *object,
                       const struct master_object *old)
{
    struct master_extra *extra = master_extra_of(core, object);
    const struct master_extra *before = old == NULL ? NULL : master_extra_of(core, old);
    if (old != NULL && old->pin == PIN_HARD)
        master_pin_hard(core, object);
    uint64_t until = 0;
    if (extra != NULL && extra->soft_action == SOFT_PIN_SET)
        until = extra->soft_ttl_ms == 0 ? 0 : core->now + master_ms(extra->soft_ttl_ms);
    else if (before != NULL && (extra == NULL || extra->soft_action == SOFT_PIN_PRESERVE))
        until = before->soft_until;
    if (until > core->now) {
        extra = master_extra_need(core, object);
        if (extra != NULL) /* else it is not pinned: memory is short, and the value counts more */
            soften(core, extra, until);
    }
    if (before != NULL && before->group != NULL) {
        struct master_group *group = before->group;
        if (extra != NULL)
            master_group_leave(core, extra);
        if (master_group_adopt(core, object, group) != YOLK_OK)
            core->stats.group_overflows++;
    }
}

void master_unpin(struct master_core *core, struct master_object *object)
{
    struct master_extra *extra = master_extra_of(core, object);
    if (extra != NULL)
        master_pin_forget(core, extra);
    if (object->pin == PIN_SOFT)
        object->pin = PIN_NONE;
    restand(object);
}

void master_pins_tick(struct master_core *core)
{
    struct base_list *node;
    for (uint32_t n = 0; n < core->config.step; n++) {
        node = base_list_first(&core->extras.soft);
        if (node == NULL)
            return;
        struct master_extra *extra = BASE_CONTAINER(node, struct master_extra, soft_link);
        if (extra->soft_until > core->now)
            return;
        master_unpin(core, extra->object);
    }
}
