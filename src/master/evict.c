/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By bytes, a segment at a time, in the order of the policy. Guarded extents stand in no order.
 * Those that a probe leased stand in a list of their own, by the end of the lease; they are left
 * alone as long as they are at most half of the segment. What leaves memory is to be on a disk
 * before (tier.h).
 */
#include "master/state.h"

static struct master_extent *first_of(const struct base_list *list)
{
    struct base_list *node = base_list_first(list);
    return node == NULL ? NULL : BASE_CONTAINER(node, struct master_extent, order);
}

void master_probe(struct master_core *core, struct master_extent *extent)
{
    if (extent->list != IN_NO_LIST && extent->list != IN_PROBED &&
        extent->object->pin == PIN_NONE && master_extent_readable(extent))
        master_extent_probed(extent, core->now + master_ms(core->config.lease_ttl_ms));
}

/* Leases that have ended. */
static void return_probed(struct master_core *core, struct master_segment *segment, uint32_t budget)
{
    struct master_extent *extent;
    while (budget-- > 0 && (extent = first_of(&segment->probed)) != NULL &&
           extent->probe_until <= core->now)
        master_extent_use(extent);
}

struct master_extent *master_evict_next(struct master_core *core, struct master_segment *segment)
{
    return_probed(core, segment, 4);
    struct master_extent *extent = first_of(&segment->tier.dirty);
    if (extent == NULL)
        extent = segment->policy->victim(segment->order);
    if (extent == NULL && segment->probed_bytes > segment->size / 2)
        extent = first_of(&segment->probed);
    return extent != NULL ? extent : first_of(&segment->soft);
}

static void drop(struct master_core *core, struct master_extent *extent)
{
    const struct master_object *object = extent->object;
    uint64_t size = master_extent_size(extent);
    core->stats.doomed += extent->list == IN_PROBED;
    if (extent->segment->medium == WIRE_MEDIUM_GDS) {
        core->stats.gds_evictions++;
        core->stats.gds_evicted_bytes += size;
    } else if (master_segment_is_disk(extent->segment)) {
        core->stats.disk_evictions++;
        core->stats.disk_evicted_bytes += size;
    } else {
        core->stats.evicted_bytes += size;
        core->stats.memory_evictions += master_object_on_file(object);
    }
    core->stats.evictions += object->extent_count == 1;
    core->stats.soft_evictions += extent->list == IN_SOFT;
    struct master_group *group = master_group_begin(core, object);
    master_replica_drop(core, extent, GHOST_EVICTED);
    if (group != NULL)
        master_group_evict(core, group);
}

struct master_extent *master_evict_clean(struct master_core *core, struct master_segment *segment)
{
    for (uint32_t n = 0; n < core->config.step; n++) {
        struct master_extent *extent = first_of(&segment->tier.clean);
        if (extent == NULL || segment->tier.mate == NULL || master_extent_spare(extent) ||
            master_tier_refuses(core, extent))
            return extent;
        master_extent_named(extent, IN_DIRTY, false);
    }
    return NULL;
}

/* False: nothing more can go now. */
static bool evict_one(struct master_core *core, struct master_segment *segment, uint64_t *done)
{
    bool tiered = segment->tier.mate != NULL && !master_segment_is_disk(segment);
    struct master_extent *extent = master_evict_clean(core, segment);
    if (extent == NULL)
        extent = master_evict_next(core, segment);
    if (extent == NULL)
        return false;
    if (extent->object->has_extra && !master_group_may_go(core, extent)) {
        master_extent_use(extent);
        return true;
    }
    if (tiered && !master_extent_spare(extent)) {
        enum master_offload how = master_tier_offload(core, extent);
        if (how != OFFLOAD_DROP)
            return how == OFFLOAD_BEGUN;
    }
    *done += master_extent_size(extent);
    drop(core, extent);
    return true;
}

uint64_t master_evict(struct master_core *core, struct master_segment *segment, uint64_t bytes,
                      uint32_t budget)
{
    uint64_t done = 0;
    while (done < bytes && budget-- > 0 && evict_one(core, segment, &done)) {
    }
    return done;
}

/* Keys forgotten of a disk that is lost; the longest lost first. */
static void forget_lost(struct master_core *core)
{
    struct master_segment *longest = NULL;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        bool lost =
            segment->state == SEGMENT_LOST || (segment->state == SEGMENT_GONE && segment->sweeping);
        if (master_segment_is_disk(segment) && lost &&
            (longest == NULL || segment->lost_at < longest->lost_at))
            longest = segment;
    }
    if (longest == NULL)
        return;
    master_segment_go(core, longest);
    (void)master_segment_tick(core, longest);
}

bool master_evict_keys(struct master_core *core)
{
    uint64_t before = master_index_count(core->index);
    forget_lost(core);
    struct master_segment *fullest = NULL;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (master_segment_is_disk(segment) && segment->state == SEGMENT_OPEN &&
            (fullest == NULL || segment->live_count > fullest->live_count))
            fullest = segment;
    }
    for (uint32_t n = 0; fullest != NULL && n < core->config.step; n++)
        if (master_index_count(core->index) < before || master_evict(core, fullest, 1, 1) == 0)
            break;
    return master_index_count(core->index) < before;
}

bool master_evict_background(struct master_core *core, struct master_segment *segment,
                             uint32_t budget)
{
    return_probed(core, segment, budget);
    if (segment->state != SEGMENT_OPEN)
        return false;
    bool gds = segment->medium == WIRE_MEDIUM_GDS;
    double begin = gds ? core->config.gds_eviction_high_watermark_ratio
                       : core->config.eviction_high_watermark_ratio;
    double depth = gds ? core->config.gds_eviction_ratio : core->config.eviction_ratio;
    uint64_t used = segment->live_bytes + segment->open_bytes;
    double high = (double)segment->size * begin;
    double low = (double)segment->size * (begin - depth);
    if (!segment->evicting && (double)used <= high)
        return false;
    segment->evicting = (double)used > low;
    if (!segment->evicting)
        return false;
    uint64_t want = used - (low > 0 ? (uint64_t)low : 0);
    uint64_t done = master_evict(core, segment, want, budget);
    if (done >= want || done == 0)
        segment->evicting = false; /* done, or all the rest is in use */
    return segment->evicting;
}
