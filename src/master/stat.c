/* SPDX-License-Identifier: Apache-2.0 */
#include "master/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct master_stat_row master_stat_rows[] = {
#define X(name, metric, help) {#name, metric, help, offsetof(struct master_stats, name), false},
    MASTER_GAUGES(X)
#undef X
#define X(name, metric, help) {#name, metric, help, offsetof(struct master_stats, name), true},
        MASTER_COUNTERS(X)
#undef X
};
const size_t master_stat_row_count = sizeof master_stat_rows / sizeof master_stat_rows[0];

/* Gauges that each medium has for itself. */
struct sums {
    uint64_t *live, *open, *limbo, *lost, *extents;
};

static struct sums sums_of(const struct master_segment *segment, struct master_stats *stats)
{
    if (segment->medium == WIRE_MEDIUM_GDS)
        return (struct sums){&stats->gds_live_bytes, &stats->gds_open_bytes,
                             &stats->gds_limbo_bytes, &stats->gds_lost_bytes, &stats->gds_extents};
    if (master_segment_is_disk(segment)) /* nothing is ever open there */
        return (struct sums){&stats->disk_live_bytes, &stats->open_bytes, &stats->disk_limbo_bytes,
                             &stats->disk_lost_bytes, &stats->disk_extents};
    return (struct sums){&stats->live_bytes, &stats->open_bytes, &stats->limbo_bytes,
                         &stats->lost_bytes, &stats->extents};
}

/* Whether it is lost. */
static bool count_mount(const struct master_segment *segment, struct master_stats *stats)
{
    bool lost = segment->state == SEGMENT_LOST || segment->state == SEGMENT_GONE;
    bool disk = segment->medium == WIRE_MEDIUM_LOCAL_DISK, gds = segment->medium == WIRE_MEDIUM_GDS;
    stats->segments++;
    stats->segments_open += segment->state == SEGMENT_OPEN;
    stats->segments_lost += lost;
    stats->disk_segments += disk && !lost;
    stats->gds_segments += gds && !lost;
    *(disk  ? &stats->disk_capacity_bytes
      : gds ? &stats->gds_capacity_bytes
            : &stats->capacity_bytes) += lost ? 0 : segment->size;
    stats->disks_failing += segment->tier.mate != NULL && segment->tier.failures > 0;
    stats->disks_full += segment->tier.mate != NULL && segment->tier.no_space;
    stats->tasks += segment->tier.offloads.count + segment->tier.promotes.count;
    return lost;
}

void master_core_stats(const struct master_core *core, struct master_stats *stats)
{
    *stats = core->stats;
    stats->sessions = core->session_count;
    stats->zombies = core->zombie_count;
    stats->objects = core->committed;
    stats->objects_open = core->processing;
    stats->guards = core->guard_count;
    stats->ops = core->op_count;
    stats->soft_pins = core->extras.soft_count;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        bool lost = count_mount(segment, stats);
        struct sums sums = sums_of(segment, stats);
        *(lost ? sums.lost : sums.live) += segment->live_bytes;
        stats->objects_lost += lost ? segment->live_count : 0;
        stats->gds_objects += !lost && segment->medium == WIRE_MEDIUM_GDS ? segment->live_count : 0;
        *sums.open += segment->open_bytes;
        stats->hard_bytes += master_segment_is_disk(segment) ? 0 : segment->hard_bytes;
        *(lost ? sums.lost : sums.limbo) += segment->dead_bytes;
        *sums.extents += base_extents_used_count(segment->alloc);
    }
}

struct counting {
    struct master_stats *stats;
    uint64_t listed_extents;
    const char *broken;
};

static void count_object(void *self, struct master_index_entry *entry)
{
    struct counting *counting = self;
    const struct master_object *object = (const struct master_object *)entry;
    if (object->put != NULL)
        counting->stats->objects_open++;
    else
        counting->stats->objects++;
    counting->stats->soft_pins += object->pin == PIN_SOFT;
    counting->listed_extents += object->extent_count;
    if (object->put != NULL && (object->put->object != object || object->put->state != PUT_OPEN))
        counting->broken = "a key being written has no open put";
    if (object->put == NULL && object->size > 0 && object->extent_count == 0)
        counting->broken = "a committed key has no place";
    uint32_t chained = 0;
    MASTER_EXTENTS_FOREACH(extent, object)
    {
        chained++;
        enum master_extent_state want = object->put != NULL ? EXTENT_OPEN : EXTENT_LIVE;
        if (extent->object != object || extent->state != want)
            counting->broken = "an object and its extent disagree";
    }
    if (chained != object->extent_count)
        counting->broken = "an object's extents are miscounted";
}

static void count_segment(const struct master_segment *segment, struct master_stats *stats)
{
    bool lost = count_mount(segment, stats);
    struct sums sums = sums_of(segment, stats);
    for (uint32_t h = base_extents_next(segment->alloc, BASE_EXTENTS_NONE); h != BASE_EXTENTS_NONE;
         h = base_extents_next(segment->alloc, h)) {
        const struct master_extent *extent = base_extents_owner(segment->alloc, h);
        uint64_t size = base_extents_size(segment->alloc, h);
        ++*sums.extents;
        if (extent->state == EXTENT_OPEN)
            *sums.open += size;
        else if (extent->state == EXTENT_DEAD)
            *(lost ? sums.lost : sums.limbo) += size;
        else
            *(lost ? sums.lost : sums.live) += size;
        if (extent->object != NULL && extent->object->pin == PIN_HARD &&
            !master_segment_is_disk(segment))
            stats->hard_bytes += size;
        stats->objects_lost += lost && extent->state == EXTENT_LIVE;
        stats->gds_objects +=
            !lost && segment->medium == WIRE_MEDIUM_GDS && extent->state == EXTENT_LIVE;
    }
}

static void count_sessions(const struct base_list *list, struct master_stats *stats,
                           uint64_t *gauge)
{
    BASE_LIST_FOREACH(node, list)
    {
        const struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        (*gauge)++;
        BASE_LIST_FOREACH(link, &session->ops)
        {
            stats->ops++;
            stats->guards += BASE_CONTAINER(link, struct master_op, session_link)->item_count;
        }
    }
}

static struct counting count_all(const struct master_core *core, struct master_stats *stats)
{
    struct counting counting = {.stats = stats};
    uint64_t cursor = 0;
    while (master_index_walk(core->index, &cursor, count_object, &counting)) {
    }
    BASE_LIST_FOREACH(node, &core->segments)
    count_segment(BASE_CONTAINER(node, struct master_segment, link), stats);
    count_sessions(&core->sessions, stats, &stats->sessions);
    count_sessions(&core->zombies, stats, &stats->zombies);
    return counting;
}

uint32_t master_core_recount(const struct master_core *core, struct master_stats *counted)
{
    struct master_stats running;
    uint32_t differences = 0;
    memset(counted, 0, sizeof *counted);
    (void)count_all(core, counted);
    master_core_stats(core, &running);
    for (size_t i = 0; i < master_stat_row_count; i++) {
        const struct master_stat_row *row = &master_stat_rows[i];
        uint64_t a, b;
        if (row->counter)
            continue;
        memcpy(&a, (const char *)&running + row->offset, sizeof a);
        memcpy(&b, (const char *)counted + row->offset, sizeof b);
        differences += a != b;
    }
    return differences;
}

static const char *check_extent(const struct master_extent *extent,
                                const struct master_segment *segment, uint32_t handle)
{
    if (extent->segment != segment || extent->handle != handle)
        return "an extent is not where it says";
    bool promoted = extent->state == EXTENT_OPEN && extent->put == NULL && extent->task_refs > 0;
    if ((extent->state == EXTENT_DEAD || promoted) != (extent->object == NULL))
        return "a dead extent belongs to an object, or a live one to none";
    if (extent->task_refs > extent->refs)
        return "an extent has more tasks than references";
    if (extent->refs > 0 && extent->list != IN_NO_LIST)
        return "a guarded extent can be evicted";
    if (extent->state == EXTENT_LIVE && extent->refs == 0 && extent->list == IN_NO_LIST)
        return "an unguarded extent cannot be evicted";
    if (extent->state == EXTENT_LIVE && extent->list == IN_NO_LIST && extent->put != NULL)
        return "a live extent has a writer";
    if (extent->state == EXTENT_DEAD && extent->refs == 0 && extent->put == NULL &&
        extent->fact_state == FACT_NONE)
        return "an extent is stuck in limbo";
    return NULL;
}

/* Adds the references to the segment's extents to `refs`. */
static const char *check_segment(const struct master_segment *segment, uint64_t *refs)
{
    const char *broken = base_extents_check(segment->alloc);
    uint64_t probed = 0, clean = 0, room = 0, dirty = 0, guarded = 0;
    if (broken == NULL)
        broken = master_tier_check(segment);
    for (uint32_t h = base_extents_next(segment->alloc, BASE_EXTENTS_NONE);
         broken == NULL && h != BASE_EXTENTS_NONE; h = base_extents_next(segment->alloc, h)) {
        const struct master_extent *extent = base_extents_owner(segment->alloc, h);
        broken = check_extent(extent, segment, h);
        uint64_t size = base_extents_size(segment->alloc, h);
        probed += extent->list == IN_PROBED ? size : 0;
        clean += extent->list == IN_CLEAN ? size : 0;
        room += extent->list == IN_CLEAN || extent->has_room ? master_disk_room(size) : 0;
        dirty += extent->list == IN_DIRTY ? size : 0;
        guarded += extent->refs > 0;
        *refs += extent->refs;
    }
    if (broken == NULL && guarded != segment->guarded)
        broken = "guarded extents differ";
    if (broken == NULL && (clean != segment->tier.clean_bytes || room != segment->tier.clean_room ||
                           dirty != segment->tier.dirty_bytes))
        broken = "bytes that are to go next differ";
    if (broken == NULL && probed != segment->probed_bytes)
        broken = "probed bytes differ";
    if (broken == NULL && segment->live_bytes + segment->open_bytes + segment->dead_bytes +
                                  base_extents_free_bytes(segment->alloc) !=
                              base_extents_capacity(segment->alloc))
        broken = "bytes of a segment do not add up";
    return broken;
}

const char *master_core_check(const struct master_core *core)
{
    struct master_stats counted = {0};
    struct counting counting = count_all(core, &counted);
    const char *broken = counting.broken;
    uint64_t refs = 0, held = counted.guards;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (broken == NULL)
            broken = check_segment(segment, &refs);
        held += master_tier_refs(segment);
    }
    if (broken == NULL && refs != held)
        broken = "references without a holder";
    BASE_LIST_FOREACH(node, &core->sessions)
    {
        const struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        uint64_t pending = 0;
        BASE_LIST_FOREACH(link, &session->ops)
        {
            const struct master_op *op = BASE_CONTAINER(link, struct master_op, session_link);
            BASE_LIST_FOREACH(item, &op->puts)
            {
                const struct master_put *put = BASE_CONTAINER(item, struct master_put, op_link);
                for (uint32_t i = 0; i < put->extent_count; i++)
                    if (!master_segment_is_disk(put->extents[i]->segment))
                        pending += master_extent_size(put->extents[i]);
            }
        }
        if (broken == NULL && pending != session->pending_bytes)
            broken = "pending bytes of a session differ";
    }
    return broken;
}

/* How evenly puts are spread: a line a segment whose owner lives. */
static enum yolk_status list_segments(const struct master_core *core, struct base_buf *text)
{
    enum yolk_status status = YOLK_OK;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (status == YOLK_OK && segment->owner != NULL)
            status = base_buf_printf(text, "segment_puts{segment=\"%016llx\"} %llu\n",
                                     (unsigned long long)segment->id,
                                     (unsigned long long)segment->put_count);
    }
    return status;
}

/* How evenly they are spread over memory controllers, of those that are named. */
static enum yolk_status list_controllers(const struct master_core *core, struct base_buf *text)
{
    enum yolk_status status = YOLK_OK;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *first = BASE_CONTAINER(node, struct master_segment, link);
        uint64_t bytes = 0, used = 0, puts = 0;
        bool told = false;
        if (status != YOLK_OK || first->owner == NULL || first->controller.size == 0)
            continue;
        BASE_LIST_FOREACH(at, &core->segments)
        {
            const struct master_segment *one = BASE_CONTAINER(at, struct master_segment, link);
            if (one->owner == NULL || !master_spread_together(one, first))
                continue;
            told = told || (bytes == 0 && one != first);
            bytes += one->size;
            used += one->live_bytes + one->open_bytes + one->dead_bytes;
            puts += one->put_count;
        }
        int size = (int)first->controller.size;
        const char *name = (const char *)first->controller.data;
        if (!told)
            status =
                base_buf_printf(text,
                                "numa_node_bytes{node=\"%.*s\"} %llu\n"
                                "numa_node_used_bytes{node=\"%.*s\"} %llu\n"
                                "numa_node_puts{node=\"%.*s\"} %llu\n",
                                size, name, (unsigned long long)bytes, size, name,
                                (unsigned long long)used, size, name, (unsigned long long)puts);
    }
    return status;
}

/* What each client's GDS file holds. */
static enum yolk_status list_gds(const struct master_core *core, struct base_buf *text)
{
    enum yolk_status status = YOLK_OK;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        char client[2 * WIRE_ID_SIZE + 1];
        if (status != YOLK_OK || segment->owner == NULL || segment->medium != WIRE_MEDIUM_GDS)
            continue;
        for (size_t i = 0; i < WIRE_ID_SIZE; i++)
            snprintf(client + 2 * i, 3, "%02x", segment->client_id[i]);
        status = base_buf_printf(
            text,
            "gds_file_bytes{client=\"%s\"} %llu\ngds_file_used_bytes{client=\"%s\"} %llu\n"
            "gds_file_keys{client=\"%s\"} %llu\n",
            client, (unsigned long long)segment->size, client,
            (unsigned long long)(segment->live_bytes + segment->open_bytes + segment->dead_bytes),
            client, (unsigned long long)segment->live_count);
    }
    return status;
}

enum { TENANTS_LISTED = 64 }; /* so many lines stay readable, and the message small */

/* What those take whose bytes are counted; the others are told as a number. */
static enum yolk_status list_tenants(const struct master_core *core, struct base_buf *text)
{
    struct master_tenant_info info;
    enum yolk_status status = YOLK_OK;
    uint32_t listed = 0, left = 0;
    for (uint32_t i = 0; status == YOLK_OK && master_tenant_at(core, i, &info); i++) {
        if (info.quota_bytes == UINT64_MAX)
            continue;
        if (listed == TENANTS_LISTED) {
            left++;
            continue;
        }
        listed++;
        status = base_buf_printf(
            text,
            "tenant_quota_bytes{tenant=\"%s\"} %llu\ntenant_used_bytes{tenant=\"%s\"} %llu\n"
            "tenant_objects{tenant=\"%s\"} %llu\ntenant_refused_puts{tenant=\"%s\"} %llu\n"
            "tenant_evicted_bytes{tenant=\"%s\"} %llu\n",
            info.name, (unsigned long long)info.quota_bytes, info.name,
            (unsigned long long)info.used_bytes, info.name, (unsigned long long)info.objects,
            info.name, (unsigned long long)info.rejects, info.name,
            (unsigned long long)info.evicted_bytes);
    }
    if (status == YOLK_OK && left > 0)
        status = base_buf_printf(text, "tenants_not_listed %u\n", left);
    return status;
}

void master_stat(struct master_core *core, const struct wire_stat *msg)
{
    struct master_stats stats, counted;
    struct wire_stat_reply reply = {.status = YOLK_OK};
    master_core_stats(core, &stats);
    if (msg->recount) {
        reply.differences = master_core_recount(core, &counted);
        reply.differences += master_core_check(core) != NULL;
    }
    base_buf_clear(&core->list[0]);
    for (size_t i = 0; i < master_stat_row_count && reply.status == YOLK_OK; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&stats + master_stat_rows[i].offset, sizeof value);
        reply.status = base_buf_printf(&core->list[0], "%s %llu\n", master_stat_rows[i].name,
                                       (unsigned long long)value);
    }
    if (reply.status == YOLK_OK)
        reply.status = list_segments(core, &core->list[0]);
    if (reply.status == YOLK_OK)
        reply.status = list_controllers(core, &core->list[0]);
    if (reply.status == YOLK_OK)
        reply.status = list_gds(core, &core->list[0]);
    if (reply.status == YOLK_OK)
        reply.status = list_tenants(core, &core->list[0]);
    reply.text = wire_view_buf(&core->list[0]);
    master_reply(core, WIRE_STAT_REPLY, &reply);
}
