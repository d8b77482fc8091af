/* SPDX-License-Identifier: Apache-2.0 */
#include "master/view.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/tenant.h"
#include "master/state.h"

#include <string.h>

enum { KEYS_A_PIECE = 1024, RANGES_A_PIECE = 4096 };

static uint64_t session_of(const struct master_segment *segment)
{
    return segment->owner != NULL ? segment->owner->id : 0;
}

void master_view_segments(const struct master_core *core,
                          void (*visit)(void *self, const struct master_segment_view *segment),
                          void *self)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->state == SEGMENT_LOST || segment->state == SEGMENT_GONE)
            continue;
        struct master_segment_view view = {
            .id = segment->id,
            .size = segment->size,
            .used_bytes = segment->live_bytes + segment->open_bytes + segment->dead_bytes,
            .owner = session_of(segment),
            .client_id = segment->client_id,
            .name = segment->name != NULL ? segment->name : "",
            .endpoints = segment->endpoints != NULL ? segment->endpoints : "",
            .medium = segment->medium,
            .disk = master_segment_is_disk(segment),
            .storage_id = segment->storage_id,
            .storage_generation = segment->storage_generation,
            .live_bytes = segment->live_bytes,
            .live_count = segment->live_count,
            .open = segment->state == SEGMENT_OPEN,
            .draining = segment->unmount_pending,
        };
        visit(self, &view);
    }
}

static void add_replica(struct master_key_view *out, const struct master_extent *extent)
{
    const struct master_segment *segment = extent->segment;
    out->replicas[out->count++] = (struct master_replica_view){
        .segment = segment->id,
        .offset = master_extent_offset(extent),
        .medium = segment->medium,
        .disk = master_segment_is_disk(segment),
        .client_id = segment->client_id,
        .storage_id = segment->storage_id,
        .storage_generation = segment->storage_generation,
        .allocated = master_extent_size(extent),
        .name = segment->name != NULL ? segment->name : "",
        .endpoints = segment->endpoints != NULL ? segment->endpoints : "",
    };
}

void master_view_key(struct master_core *core, uint64_t now_ns, const void *key, size_t key_size,
                     bool lease, struct master_key_view *out)
{
    struct master_object *object =
        master_object_find(core, wire_view_of(key, (uint32_t)key_size), base_hash64(key, key_size));
    *out = (struct master_key_view){.status = YOLK_ERR_NOT_FOUND};
    if (object == NULL)
        return;
    out->status = master_object_readable(object) ? YOLK_OK : YOLK_ERR_NOT_READY;
    if (out->status != YOLK_OK)
        return;
    out->size = object->size;
    MASTER_EXTENTS_FOREACH(extent, object)
    if (master_extent_reachable(extent) && out->count < MASTER_MAX_EXTENTS)
        add_replica(out, extent);
    if (!lease)
        return;
    core->now = now_ns > core->now ? now_ns : core->now;
    if (object->lease_until <= core->now)
        object->lease_until = core->now + master_ms(core->config.lease_ttl_ms);
    MASTER_EXTENTS_FOREACH(extent, object)
    master_probe(core, extent);
}

static void collect(void *self, struct master_index_entry *entry)
{
    struct master_collected *all = self;
    if (all->count < MASTER_COLLECT_MAX)
        all->objects[all->count++] = (struct master_object *)entry;
}

bool master_view_keys(struct master_core *core, uint64_t *cursor,
                      void (*visit)(void *self, const void *key, size_t key_size), void *self)
{
    struct master_collected *all = core->collected;
    bool more = true;
    all->count = 0;
    for (uint32_t n = 0; more && all->count < KEYS_A_PIECE && n < RANGES_A_PIECE; n++)
        more = master_index_walk(core->index, cursor, collect, all);
    for (uint32_t i = 0; i < all->count; i++)
        if (master_object_readable(all->objects[i]))
            visit(self, all->objects[i]->key, all->objects[i]->entry.key_size);
    return more;
}

enum yolk_status master_view_remove_all(struct master_core *core, uint64_t now_ns,
                                        uint64_t connection, uint64_t request_id,
                                        const char *tenant, bool force)
{
    core->now = now_ns > core->now ? now_ns : core->now;
    struct master_job *job =
        core->job_count < core->config.max_jobs ? base_calloc(1, sizeof *job) : NULL;
    if (job == NULL)
        return base_fail(YOLK_ERR_BUSY, 0, "as many removals run as may: %u", core->job_count);
    job->connection = connection;
    job->request_id = request_id;
    job->force = force;
    job->everything = tenant == NULL;
    if (tenant != NULL)
        job->prefix_size = (uint8_t)base_tenant_prefix(tenant, strlen(tenant), job->prefix);
    job->last_era = core->era++;
    base_list_push_back(&core->jobs, &job->link);
    core->job_count++;
    return YOLK_OK;
}
