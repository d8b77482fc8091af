/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/mutation.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

struct master_object *master_object_find(struct master_core *core, struct wire_view key,
                                         uint64_t hash)
{
    return (struct master_object *)master_index_find(core->index, hash, key.data, key.size);
}

/* NULL: larger than those that come from slabs. */
static struct base_slab *slab_for(struct master_core *core, uint32_t key_size)
{
    size_t class = (sizeof(struct master_object) + key_size + 7) / 8;
    return class < MASTER_OBJECT_SLABS ? &core->object_slabs[class] : NULL;
}

static struct master_object *object_alloc(struct master_core *core, uint32_t key_size)
{
    struct base_slab *slab = slab_for(core, key_size);
    return slab != NULL ? base_slab_take(slab)
                        : base_calloc(1, sizeof(struct master_object) + key_size);
}

static void object_free(struct master_core *core, struct master_object *object)
{
    struct base_slab *slab = slab_for(core, object->entry.key_size);
    if (slab != NULL)
        base_slab_give(slab, object);
    else
        free(object);
}

struct master_object *master_object_make(struct master_core *core, struct wire_view key,
                                         uint64_t hash, uint64_t size)
{
    struct master_object *object = object_alloc(core, (uint32_t)key.size);
    if (object == NULL)
        return NULL;
    memcpy(object->key, key.data, key.size);
    object->entry = (struct master_index_entry){
        .hash = hash,
        .key_size = (uint32_t)key.size,
        .key_at = offsetof(struct master_object, key),
    };
    object->size = size;
    object->era = core->era;
    object->detached = 1;
    if (master_extra_begin(core, object) != YOLK_OK) {
        object_free(core, object);
        return NULL;
    }
    return object;
}

enum yolk_status master_object_insert(struct master_core *core, struct master_object *object)
{
    enum yolk_status status = master_index_insert(core->index, &object->entry);
    if (status == YOLK_OK)
        object->detached = 0;
    return status;
}

struct master_object *master_object_create(struct master_core *core, struct wire_view key,
                                           uint64_t hash, uint64_t size)
{
    if (master_index_count(core->index) >= core->config.max_objects)
        return NULL;
    struct master_object *object = master_object_make(core, key, hash, size);
    if (object == NULL || master_object_insert(core, object) == YOLK_OK)
        return object;
    master_extra_end(core, object);
    object_free(core, object);
    return NULL;
}

static void emit_removed(struct master_core *core, const struct master_object *object)
{
    if (core->sink == NULL || core->sink->fact == NULL)
        return;
    struct master_fact fact = {.kind = MASTER_FACT_REMOVED,
                               .size = object->size,
                               .key = object->key,
                               .key_size = object->entry.key_size};
    core->sink->fact(core->sink->self, &fact);
}

void master_emit_committed(struct master_core *core, const struct master_object *object)
{
    if (core->sink == NULL || core->sink->fact == NULL)
        return;
    struct master_place places[MASTER_MAX_EXTENTS];
    uint32_t count = 0;
    MASTER_EXTENTS_FOREACH(extent, object)
    places[count++] = (struct master_place){extent->segment->id, master_extent_offset(extent),
                                            master_extent_size(extent), extent->checksum};
    struct master_fact fact = {.kind = MASTER_FACT_COMMITTED,
                               .size = object->size,
                               .key = object->key,
                               .key_size = object->entry.key_size,
                               .places = places,
                               .place_count = count};
    core->sink->fact(core->sink->self, &fact);
}

void master_emit_replica_removed(struct master_core *core, const struct master_extent *extent)
{
    const struct master_object *object = extent->object;
    if (object == NULL || object->put != NULL || core->sink == NULL || core->sink->fact == NULL)
        return;
    struct master_place place = {extent->segment->id, master_extent_offset(extent),
                                 master_extent_size(extent), extent->checksum};
    struct master_fact fact = {.kind = MASTER_FACT_REPLICA_REMOVED,
                               .size = object->size,
                               .key = object->key,
                               .key_size = object->entry.key_size,
                               .places = &place,
                               .place_count = 1};
    core->sink->fact(core->sink->self, &fact);
}

static void give_up(struct master_core *core, struct master_extent *extent);

void master_object_drop(struct master_core *core, struct master_object *object, int ghost)
{
    if (ghost != GHOST_NONE)
        master_ghost_set(core, object->entry.hash, ghost);
    if (object->put == NULL) {
        core->committed--;
        emit_removed(core, object);
    } else {
        core->processing -= !object->detached;
        object->put->object = NULL;
    }
    if (!object->detached)
        master_index_remove(core->index, &object->entry);
    while (object->extents != NULL)
        give_up(core, object->extents);
    if (core->config.policy->removed != NULL)
        core->config.policy->removed(core->policy_state, object);
    master_extra_end(core, object);
    object_free(core, object);
}

bool master_extent_readable(const struct master_extent *extent)
{
    const struct master_segment *segment = extent->segment;
    return extent->state == EXTENT_LIVE && extent->epoch == segment->epoch &&
           (segment->state == SEGMENT_OPEN || segment->state == SEGMENT_RECOVERING);
}

/* A killed owner is known by its connection long before its session ends, and readers would find
 * nobody. One that is only cut off from here comes back with all it has. */
bool master_extent_reachable(const struct master_extent *extent)
{
    return master_extent_readable(extent) && extent->segment->owner->connected;
}

bool master_object_readable(const struct master_object *object)
{
    if (object->put != NULL)
        return false;
    if (object->size == 0)
        return true;
    MASTER_EXTENTS_FOREACH(extent, object)
    if (master_extent_reachable(extent))
        return true;
    return false;
}

struct master_extent *master_object_on(const struct master_object *object, enum wire_medium medium)
{
    MASTER_EXTENTS_FOREACH(extent, object)
    if (extent->segment->medium == medium)
        return extent;
    return NULL;
}

struct master_extent *master_object_disk(const struct master_object *object)
{
    return master_object_on(object, WIRE_MEDIUM_LOCAL_DISK);
}

bool master_object_on_file(const struct master_object *object)
{
    MASTER_EXTENTS_FOREACH(extent, object)
    if (master_segment_is_disk(extent->segment))
        return true;
    return false;
}

bool master_object_takes(const struct master_object *object, const struct master_segment *memory)
{
    uint32_t count = 0;
    MASTER_EXTENTS_FOREACH(extent, object)
    {
        if (extent->segment == memory)
            return false;
        count += !master_segment_is_disk(extent->segment);
    }
    return count < MASTER_MAX_REPLICAS;
}

bool master_extent_spare(const struct master_extent *extent)
{
    MASTER_EXTENTS_FOREACH(other, extent->object)
    if (other != extent && master_extent_readable(other))
        return true;
    return false;
}

bool master_object_guarded(const struct master_object *object)
{
    MASTER_EXTENTS_FOREACH(extent, object)
    if (extent->refs > extent->task_refs)
        return true;
    return false;
}

uint64_t master_extent_size(const struct master_extent *extent)
{
    return base_extents_size(extent->segment->alloc, extent->handle);
}

uint64_t master_extent_offset(const struct master_extent *extent)
{
    return base_extents_offset(extent->segment->alloc, extent->handle);
}

static uint64_t *bytes_of(struct master_segment *segment, enum master_extent_state state)
{
    switch (state) {
    case EXTENT_OPEN:
        return &segment->open_bytes;
    case EXTENT_LIVE:
        return &segment->live_bytes;
    default:
        return &segment->dead_bytes;
    }
}

/* `extent` was handed to the allocator as the owner of `handle` beforehand. */
static void extent_init(struct master_extent *extent, struct master_segment *segment,
                        uint32_t handle, enum master_extent_state state)
{
    base_list_init(&extent->fact);
    extent->segment = segment;
    extent->handle = handle;
    extent->epoch = segment->epoch;
    extent->state = (uint8_t)state;
    *bytes_of(segment, state) += master_extent_size(extent);
    segment->live_count += state == EXTENT_LIVE;
}

struct master_extent *master_extent_take(struct master_segment *segment, uint64_t size,
                                         enum master_extent_state state)
{
    struct master_extent *extent = base_slab_take(segment->extent_slab);
    if (extent == NULL)
        return NULL;
    uint32_t handle = base_extents_take(segment->alloc, size, extent);
    if (handle == BASE_EXTENTS_NONE) {
        base_slab_give(segment->extent_slab, extent);
        return NULL;
    }
    extent_init(extent, segment, handle, state);
    return extent;
}

struct master_extent *master_extent_reserve(struct master_segment *segment, uint64_t offset,
                                            uint64_t size, enum master_extent_state state)
{
    struct master_extent *extent = base_slab_take(segment->extent_slab);
    if (extent == NULL)
        return NULL;
    uint32_t handle = base_extents_reserve(segment->alloc, offset, size, extent);
    if (handle == BASE_EXTENTS_NONE) {
        base_slab_give(segment->extent_slab, extent);
        return NULL;
    }
    extent_init(extent, segment, handle, state);
    return extent;
}

void master_extent_set_state(struct master_extent *extent, enum master_extent_state state)
{
    uint64_t size = master_extent_size(extent);
    *bytes_of(extent->segment, extent->state) -= size;
    *bytes_of(extent->segment, state) += size;
    extent->segment->live_count -= extent->state == EXTENT_LIVE;
    extent->segment->live_count += state == EXTENT_LIVE;
    extent->state = (uint8_t)state;
}

void master_extent_attach(struct master_core *core, struct master_extent *extent,
                          struct master_object *object)
{
    master_extra_count(core, extent, object, 1);
    struct master_extent **last = &object->extents;
    while (*last != NULL)
        last = &(*last)->next;
    *last = extent;
    extent->object = object;
    object->extent_count++;
}

static void count_clean(const struct master_extent *extent, int sign)
{
    struct master_tier *tier = &extent->segment->tier;
    uint64_t size = master_extent_size(extent);
    tier->clean_bytes += (uint64_t)sign * size;
    tier->clean_room += (uint64_t)sign * master_disk_room(size);
}

/* A pinned one is never named clean, but its copy takes room on the disk all the same. */
static void count_room(struct master_extent *extent, bool has_room)
{
    uint64_t room = master_disk_room(master_extent_size(extent));
    if (extent->has_room != has_room)
        extent->segment->tier.clean_room += has_room ? room : -room;
    extent->has_room = has_room;
}

static void leave_list(struct master_extent *extent)
{
    if (extent->list == IN_NO_LIST)
        return;
    count_room(extent, false);
    if (extent->list == IN_PROBED)
        extent->segment->probed_bytes -= master_extent_size(extent);
    if (extent->list == IN_CLEAN)
        count_clean(extent, -1);
    if (extent->list == IN_DIRTY)
        extent->segment->tier.dirty_bytes -= master_extent_size(extent);
    if (extent->list == IN_ORDER)
        extent->segment->policy->withdrawn(extent->segment->order, extent);
    else
        base_list_remove(&extent->order);
    extent->list = IN_NO_LIST;
    extent->put = NULL;
}

/* Guarded extents stand in no list at all: eviction then never meets them. */
void master_extent_use(struct master_extent *extent)
{
    leave_list(extent);
    if (extent->state != EXTENT_LIVE || extent->refs > 0)
        return;
    if (extent->object->pin != PIN_NONE) {
        bool hard = extent->object->pin == PIN_HARD;
        base_list_push_back(hard ? &extent->segment->hard : &extent->segment->soft, &extent->order);
        extent->list = hard ? IN_HARD : IN_SOFT;
        count_room(extent, !master_segment_is_disk(extent->segment) &&
                               master_object_disk(extent->object) != NULL);
        return;
    }
    const struct master_policy *policy = extent->segment->policy;
    (extent->inserted ? policy->touched : policy->inserted)(extent->segment->order, extent);
    extent->inserted = true;
    extent->list = IN_ORDER;
}

void master_extent_probed(struct master_extent *extent, uint64_t until)
{
    leave_list(extent);
    extent->probe_until = until;
    extent->segment->probed_bytes += master_extent_size(extent);
    base_list_push_back(&extent->segment->probed, &extent->order);
    extent->list = IN_PROBED;
}

void master_extent_named(struct master_extent *extent, enum master_extent_list list, bool first)
{
    struct master_tier *tier = &extent->segment->tier;
    leave_list(extent);
    if (extent->state != EXTENT_LIVE || extent->refs > 0)
        return;
    if (extent->object->pin != PIN_NONE) {
        master_extent_use(extent);
        return;
    }
    if (list == IN_CLEAN)
        count_clean(extent, 1);
    else
        tier->dirty_bytes += master_extent_size(extent);
    struct base_list *head = list == IN_CLEAN ? &tier->clean : &tier->dirty;
    base_list_insert_after(first ? head : head->prev, &extent->order);
    extent->list = (uint8_t)list;
}

void master_extent_ref(struct master_extent *extent)
{
    extent->segment->guarded += extent->refs == 0;
    extent->refs++;
    leave_list(extent);
}

static bool last_ref(struct master_core *core, struct master_extent *extent)
{
    extent->refs--;
    if (extent->refs > 0)
        return false;
    extent->segment->guarded--;
    if (extent->state == EXTENT_LIVE)
        return true;
    master_extent_settle(core, extent);
    return false;
}

void master_extent_unref(struct master_core *core, struct master_extent *extent)
{
    if (last_ref(core, extent))
        master_extent_use(extent);
}

void master_extent_unref_named(struct master_core *core, struct master_extent *extent,
                               enum master_extent_list list)
{
    if (last_ref(core, extent))
        master_extent_named(extent, list, list == IN_DIRTY);
}

static void tell_freed(struct master_extent *extent)
{
    base_list_push_back(&extent->segment->queue, &extent->fact);
    extent->fact_state = FACT_FREED_QUEUED;
    master_facts_dirty(extent->segment);
}

/* The owner of a disk uses the space again when it hears that it is free, so it hears only when
 * nobody reads there. Of what it has not said in this mount it knows nothing. */
static void tell_disk(struct master_extent *extent)
{
    if (extent->segment->owner != NULL && extent->epoch == extent->segment->epoch)
        tell_freed(extent);
    else
        extent->fact_state = FACT_NONE;
}

static void give_up(struct master_core *core, struct master_extent *extent)
{
    struct master_object *object = extent->object;
    if (object != NULL) {
        struct master_extent **at = &object->extents;
        while (*at != extent)
            at = &(*at)->next;
        *at = extent->next;
        object->extent_count--;
        master_extra_count(core, extent, object, -1);
        extent->next = NULL;
        extent->object = NULL;
        if (master_segment_is_disk(extent->segment))
            master_tier_disk_gone(object);
    }
    leave_list(extent);
    master_extent_set_state(extent, EXTENT_DEAD);
    if (extent->fact_state == FACT_PLACED_QUEUED) {
        /* The owner never heard of it. */
        base_list_remove(&extent->fact);
        extent->fact_state = FACT_NONE;
    } else if (extent->fact_state == FACT_PLACED_SENT && !master_segment_is_disk(extent->segment)) {
        tell_freed(extent);
    }
    master_extent_settle(core, extent);
}

void master_extent_drop(struct master_core *core, struct master_extent *extent)
{
    master_emit_replica_removed(core, extent);
    give_up(core, extent);
}

void master_replica_drop(struct master_core *core, struct master_extent *extent, int ghost)
{
    struct master_object *object = extent->object;
    if (object->put == NULL && object->extent_count == 1)
        master_object_drop(core, object, ghost);
    else
        master_extent_drop(core, extent);
}

void master_extent_writer_done(struct master_core *core, struct master_extent *extent)
{
    struct master_put *put = extent->list == IN_NO_LIST ? extent->put : NULL;
    if (put == NULL)
        return;
    for (uint32_t i = 0; i < put->extent_count; i++)
        if (put->extents[i] == extent)
            put->extents[i] = put->extents[--put->extent_count];
    /* What is written in files is no space that others wait for. */
    if (!master_segment_is_disk(extent->segment))
        put->op->session->pending_bytes -= master_extent_size(extent);
    extent->put = NULL;
    master_extent_settle(core, extent);
}

void master_extent_settle(struct master_core *core, struct master_extent *extent)
{
    struct master_segment *segment = extent->segment;
    if (extent->state != EXTENT_DEAD)
        return;
    if (extent->refs > 0) {
        if (mutated(MUT_FREED_UNDER_READER) && extent->fact_state == FACT_PLACED_SENT)
            tell_disk(extent);
        return;
    }
    bool forgotten = segment->state == SEGMENT_GONE; /* nobody allocates there again */
    if (extent->fact_state == FACT_PLACED_SENT && master_segment_is_disk(segment) &&
        (extent->put == NULL || forgotten))
        tell_disk(extent);
    if (extent->put != NULL && !forgotten) {
        if (!mutated(MUT_REUSE_UNDER_WRITER))
            return;
    }
    if (extent->fact_state != FACT_NONE && !forgotten) {
        if (!extent->awaits_ack)
            segment->ack_bytes += master_extent_size(extent);
        extent->awaits_ack = true;
        return;
    }
    if (extent->put != NULL) {
        master_extent_writer_done(core, extent); /* comes back here */
        return;
    }
    if (extent->awaits_ack)
        segment->ack_bytes -= master_extent_size(extent);
    base_list_remove(&extent->fact);
    segment->dead_bytes -= master_extent_size(extent);
    base_extents_release(segment->alloc, extent->handle);
    base_slab_give(segment->extent_slab, extent);
}

/* A missing key is told apart by what was remembered last in its place: good enough for a counter.
 */
void master_ghost_set(struct master_core *core, uint64_t hash, int reason)
{
    core->ghosts[hash & core->ghost_mask] = (hash & ~3ull) | (uint64_t)reason;
}

int master_ghost_get(const struct master_core *core, uint64_t hash)
{
    uint64_t ghost = core->ghosts[hash & core->ghost_mask];
    return (ghost & ~3ull) == (hash & ~3ull) ? (int)(ghost & 3) : GHOST_NONE;
}
