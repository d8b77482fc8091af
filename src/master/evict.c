/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By bytes, a segment at a time, in the order of the policy. Guarded extents stand in no order.
 * Those that a probe leased stand in a list of their own, by the end of the lease; they are left
 * alone as long as they are at most half of the segment.
 */
#include "master/state.h"

static struct master_extent *first_probed(const struct master_segment *segment)
{
    struct base_list *node = base_list_first(&segment->probed);
    return node == NULL ? NULL : BASE_CONTAINER(node, struct master_extent, order);
}

void master_probe(struct master_core *core, struct master_extent *extent)
{
    if (extent->list == IN_ORDER && master_extent_readable(extent))
        master_extent_probed(extent, core->now + master_ms(core->config.lease_ttl_ms));
}

/* Leases that have ended. */
static void return_probed(struct master_core *core, struct master_segment *segment, uint32_t budget)
{
    struct master_extent *extent;
    while (budget-- > 0 && (extent = first_probed(segment)) != NULL &&
           extent->probe_until <= core->now)
        master_extent_use(extent);
}

static struct master_extent *victim(struct master_core *core, struct master_segment *segment)
{
    return_probed(core, segment, 4);
    struct master_extent *extent = segment->policy->victim(segment->order);
    if (extent != NULL)
        return extent;
    if (segment->probed_bytes <= segment->size / 2)
        return NULL;
    extent = first_probed(segment);
    if (extent != NULL)
        core->stats.doomed++;
    return extent;
}

uint64_t master_evict(struct master_core *core, struct master_segment *segment, uint64_t bytes,
                      uint32_t budget)
{
    uint64_t done = 0;
    while (done < bytes && budget-- > 0) {
        struct master_extent *extent = victim(core, segment);
        if (extent == NULL)
            break;
        uint64_t size = master_extent_size(extent);
        struct master_object *object = extent->object;
        done += size;
        core->stats.evicted_bytes += size;
        if (object->extent_count > 1) {
            master_extent_drop(core, extent);
            continue;
        }
        core->stats.evictions++;
        master_object_drop(core, object, GHOST_EVICTED);
    }
    return done;
}

bool master_evict_background(struct master_core *core, struct master_segment *segment,
                             uint32_t budget)
{
    return_probed(core, segment, budget);
    if (segment->state != SEGMENT_OPEN)
        return false;
    uint64_t used = segment->live_bytes + segment->open_bytes;
    double high = (double)segment->size * core->config.eviction_high_watermark_ratio;
    double low = (double)segment->size *
                 (core->config.eviction_high_watermark_ratio - core->config.eviction_ratio);
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
