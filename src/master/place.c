/* SPDX-License-Identifier: Apache-2.0 */
/* Which segment a new replica goes to: by chance in proportion to capacity; a full one spills to
 * the freest. One in doubt gets nothing while there is another. */
#include "master/state.h"

#include <string.h>

struct choice {
    struct master_core *core;
    struct master_wish *wish;
    uint64_t size;
    struct master_extent *const *taken; /* other replicas: each goes to a segment of its own */
    uint32_t count;
    bool doubtful_too; /* there is no other */
    uint64_t ahead;    /* segments whose controller is further ahead are not taken */
};

/* The owner may be dead or cut off: its connection ended, or a writer gave up there and it has not
 * been heard of since. */
static bool is_doubtful(const struct master_segment *segment)
{
    const struct master_session *owner = segment->owner;
    return owner != NULL && (!owner->connected ||
                             (segment->failed_at != 0 && owner->last_seen <= segment->failed_at));
}

static bool is_taken(const struct master_segment *segment, const struct choice *choice)
{
    for (uint32_t i = 0; i < choice->count; i++)
        if (choice->taken[i]->segment == segment)
            return true;
    return false;
}

static bool may_be_given(const struct master_segment *segment, const struct choice *choice)
{
    return segment->state == SEGMENT_OPEN && !master_segment_is_disk(segment) &&
           !segment->unmount_pending && (choice->doubtful_too || !is_doubtful(segment)) &&
           !is_taken(segment, choice);
}

static bool usable(const struct master_segment *segment, const struct choice *choice)
{
    if (!may_be_given(segment, choice) || !master_segment_knows_sessions(segment))
        return false;
    if (!choice->wish->hard)
        return true;
    bool fits = master_pin_fits(choice->core, segment, choice->wish->replaced, choice->size);
    *(fits ? &choice->wish->open : &choice->wish->limited) = true;
    return fits;
}

static bool is_next(const struct master_segment *segment, const struct choice *choice)
{
    return segment->ahead <= choice->ahead && usable(segment, choice);
}

static uint64_t usable_bytes(const struct master_core *core, const struct choice *choice)
{
    uint64_t total = 0;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        total += is_next(segment, choice) ? segment->size : 0;
    }
    return total;
}

/* Those of the controllers that are behind, if values are spread over these. */
static void look_behind(const struct master_core *core, struct choice *choice)
{
    uint64_t least = UINT64_MAX;
    choice->ahead = UINT64_MAX;
    if (!core->config.place_by_controller)
        return;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->ahead < least && is_next(segment, choice))
            least = segment->ahead;
    }
    choice->ahead = least;
}

static struct master_segment *pick(struct master_core *core, struct choice *choice)
{
    look_behind(core, choice);
    uint64_t total = usable_bytes(core, choice);
    if (total == 0) {
        choice->doubtful_too = true;
        look_behind(core, choice);
        total = usable_bytes(core, choice);
    }
    uint64_t at = total == 0 ? 0 : master_random(core) % total;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (!is_next(segment, choice))
            continue;
        if (at < segment->size)
            return segment;
        at -= segment->size;
    }
    return NULL;
}

static struct master_segment *freest(struct master_core *core, uint64_t size,
                                     const struct choice *choice)
{
    struct master_segment *best = NULL;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (!usable(segment, choice) || base_extents_largest(segment->alloc) < size)
            continue;
        if (best == NULL ||
            base_extents_free_bytes(segment->alloc) > base_extents_free_bytes(best->alloc))
            best = segment;
    }
    return best;
}

static struct master_extent *take(struct master_core *core, struct master_segment *segment,
                                  uint64_t size)
{
    struct master_extent *extent = master_extent_take(segment, size, EXTENT_OPEN);
    if (extent != NULL) {
        segment->put_count++;
        master_spread_placed(core, segment, size);
    }
    return extent;
}

bool master_segment_is_named(const struct master_segment *segment, struct wire_view name)
{
    return segment->name != NULL && strlen(segment->name) == name.size &&
           memcmp(segment->name, name.data, name.size) == 0;
}

/* Free space in the segments that the put named, in its order; nothing is given up for it. */
static struct master_extent *take_preferred(struct master_core *core, const struct choice *choice)
{
    const struct master_wish *wish = choice->wish;
    struct master_segment *same =
        wish->segment == 0 ? NULL : master_segment_find(core, wish->segment);
    struct master_extent *extent =
        same != NULL && usable(same, choice) ? take(core, same, choice->size) : NULL;
    struct wire_keys names;
    struct wire_view name;
    if (extent != NULL || wish->preferred.size == 0 ||
        wire_keys_open(wish->preferred, MAX_PREFERRED, &names) != YOLK_OK)
        return extent;
    while (extent == NULL && wire_keys_next(&names, &name)) {
        BASE_LIST_FOREACH(node, &core->segments)
        {
            struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
            if (extent == NULL && master_segment_is_named(segment, name) && usable(segment, choice))
                extent = take(core, segment, choice->size);
        }
    }
    return extent;
}

static bool is_preferred(const struct master_segment *segment, const struct master_wish *wish)
{
    struct wire_keys names;
    struct wire_view name;
    if (wire_keys_open(wish->preferred, MAX_PREFERRED, &names) != YOLK_OK)
        return false;
    while (wire_keys_next(&names, &name))
        if (master_segment_is_named(segment, name))
            return true;
    return false;
}

/* By chance, with others giving up what they have when there is no free space. */
static struct master_extent *take_any(struct master_core *core, struct choice *choice)
{
    uint64_t size = choice->size;
    struct master_segment *first = pick(core, choice);
    if (first == NULL)
        return NULL;
    struct master_extent *extent = take(core, first, size);
    if (extent != NULL)
        return extent;
    /* Space given up now is clean only after its owner's answer. While enough of it is on the way,
     * nothing more is given up: the client asks again. In a third of the cases the spill alone is
     * to do, so that a segment that was filled by others is not emptied for them. */
    bool spill_only = master_random(core) % 3 == 0;
    struct master_segment *spill = freest(core, size, choice);
    if (size <= base_extents_capacity(first->alloc) && (!spill_only || spill == NULL) &&
        first->ack_bytes < size) {
        (void)master_evict(core, first, size - first->ack_bytes, core->config.step);
        /* What no owner was told of is clean at once. */
        extent = take(core, first, size);
        if (extent != NULL)
            return extent;
    }
    /* It was its turn all the same. */
    master_spread_placed(core, first, size);
    return spill == NULL ? NULL : take(core, spill, size);
}

/* An owner has only to answer: that it knows of all sessions (of one that is new, or it is), which
 * is `unopened`, or that what was evicted is gone. */
static void look_ahead(const struct master_core *core, const struct choice *choice,
                       struct master_wish *wish)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (!may_be_given(segment, choice) || is_doubtful(segment) ||
            choice->size > base_extents_capacity(segment->alloc))
            continue;
        bool unopened = !master_segment_knows_sessions(segment);
        wish->unopened = wish->unopened || unopened;
        wish->soon = wish->soon || unopened || segment->ack_bytes > 0;
    }
}

struct master_extent *master_place(struct master_core *core, uint64_t size,
                                   struct master_extent *const *taken, uint32_t count,
                                   struct master_wish *wish)
{
    struct choice choice = {core, wish, size, taken, count, false, UINT64_MAX};
    struct master_extent *extent = take_preferred(core, &choice);
    if (extent != NULL)
        return extent;
    extent = take_any(core, &choice);
    wish->soon = wish->unopened = false;
    if (extent == NULL)
        look_ahead(core, &choice, wish);
    core->stats.put_not_preferred +=
        extent != NULL && wish->preferred.size > 0 && !is_preferred(extent->segment, wish);
    return extent;
}

bool master_may_fit(const struct master_core *core, uint64_t size)
{
    bool any_mounted = false;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->state == SEGMENT_GONE || master_segment_is_disk(segment))
            continue;
        if (size <= base_extents_capacity(segment->alloc))
            return true;
        any_mounted |= segment->owner != NULL;
    }
    return !any_mounted;
}
