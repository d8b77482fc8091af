/* SPDX-License-Identifier: Apache-2.0 */
/* Which segment a new replica goes to: by chance in proportion to capacity; a full one spills to
 * the freest. */
#include "master/state.h"

static bool usable(const struct master_segment *segment, struct master_extent *const *taken,
                   uint32_t count)
{
    if (segment->state != SEGMENT_OPEN || segment->unmount_pending)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (taken[i]->segment == segment)
            return false;
    return true;
}

static struct master_segment *pick(struct master_core *core, struct master_extent *const *taken,
                                   uint32_t count)
{
    uint64_t total = 0;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        total += usable(segment, taken, count) ? segment->size : 0;
    }
    uint64_t at = total == 0 ? 0 : master_random(core) % total;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (!usable(segment, taken, count))
            continue;
        if (at < segment->size)
            return segment;
        at -= segment->size;
    }
    return NULL;
}

static struct master_segment *freest(struct master_core *core, uint64_t size,
                                     struct master_extent *const *taken, uint32_t count)
{
    struct master_segment *best = NULL;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (!usable(segment, taken, count) || master_alloc_largest(segment->alloc) < size)
            continue;
        if (best == NULL ||
            master_alloc_free_bytes(segment->alloc) > master_alloc_free_bytes(best->alloc))
            best = segment;
    }
    return best;
}

static struct master_extent *take(struct master_segment *segment, uint64_t size)
{
    struct master_extent *extent = master_extent_take(segment, size, EXTENT_OPEN);
    segment->put_count += extent != NULL;
    return extent;
}

struct master_extent *master_place(struct master_core *core, uint64_t size,
                                   struct master_extent *const *taken, uint32_t count)
{
    struct master_segment *first = pick(core, taken, count);
    if (first == NULL)
        return NULL;
    struct master_extent *extent = take(first, size);
    if (extent != NULL)
        return extent;
    /* Space given up now is clean only after its owner's answer. While enough of it is on the way,
     * nothing more is given up: the client asks again. In a third of the cases the spill alone is
     * to do, so that a segment that was filled by others is not emptied for them. */
    bool spill_only = master_random(core) % 3 == 0;
    struct master_segment *spill = freest(core, size, taken, count);
    if (size <= master_alloc_capacity(first->alloc) && (!spill_only || spill == NULL) &&
        first->ack_bytes < size) {
        (void)master_evict(core, first, size - first->ack_bytes, core->config.step);
        /* What no owner was told of is clean at once. */
        extent = take(first, size);
        if (extent != NULL)
            return extent;
    }
    return spill == NULL ? NULL : take(spill, size);
}
