/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: the placements an owner offers after a change of master or after its own absence, and
 * the facts of another core. What an offer confirms is readable at once; what it does not is
 * dropped after the last one.
 */
#include "base/hash.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

/* Of what a client wrote into its own file nobody told the checksum. */
static bool is_content(const struct master_segment *segment, const struct master_extent *extent,
                       struct wire_offer offer)
{
    return !master_segment_is_disk(segment) || extent->checksum == offer.checksum ||
           (segment->medium == WIRE_MEDIUM_GDS && extent->checksum == 0);
}

/* The segment was known: only what is remembered at this very place comes back. A key removed or
 * put anew meanwhile does not. */
static bool confirm(struct master_core *core, struct master_segment *segment,
                    struct master_extent *extent, struct wire_view key, struct wire_offer offer)
{
    struct master_object *object = extent->object;
    if (extent->state != EXTENT_LIVE || object == NULL || object->put != NULL ||
        object->size != offer.size || object->entry.key_size != key.size ||
        !is_content(segment, extent, offer) || memcmp(object->key, key.data, key.size) != 0)
        return false;
    if (extent->checksum != offer.checksum && master_segment_is_disk(segment)) {
        master_emit_replica_removed(core, extent);
        extent->checksum = offer.checksum;
        master_emit_committed(core, object);
    }
    if (extent->epoch != segment->epoch) {
        extent->epoch = segment->epoch;
        if (extent->fact_state == FACT_PLACED_QUEUED)
            base_list_remove(&extent->fact);
        if (extent->fact_state == FACT_PLACED_QUEUED || extent->fact_state == FACT_NONE)
            extent->fact_state = FACT_PLACED_SENT; /* the owner has just said so */
    }
    return true;
}

/* A refused placement is still in the owner's mirror. Its space is used again only when the owner
 * has acknowledged that it is not. On a disk the owner itself deletes it. */
static void retire(struct master_segment *segment, struct master_extent *extent,
                   struct wire_offer offer)
{
    if (master_segment_is_disk(segment))
        return;
    if (extent == NULL)
        extent = master_extent_reserve(segment, offer.offset, offer.size, EXTENT_DEAD);
    if (extent == NULL || extent->fact_state != FACT_NONE)
        return;
    extent->fact_state = FACT_FREED_QUEUED;
    base_list_push_back(&segment->queue, &extent->fact);
    master_facts_dirty(segment);
}

/* Bytes that an offer's extent takes in its segment. */
static uint64_t offer_room(const struct master_segment *segment, struct wire_offer offer)
{
    if (master_segment_is_disk(segment))
        return master_disk_room(offer.size);
    return (offer.size + BASE_EXTENTS_UNIT - 1) / BASE_EXTENTS_UNIT * BASE_EXTENTS_UNIT;
}

/* A new place of an object that may be known already: by its owner's word alone. */
static bool may_join(const struct master_object *object, const struct master_segment *segment,
                     struct wire_offer offer)
{
    if (object == NULL)
        return true;
    if (object->put != NULL || object->size != offer.size || object->upserted)
        return false;
    const struct master_extent *same = master_object_on(object, segment->medium);
    if (master_segment_is_disk(segment))
        return same == NULL || !master_extent_readable(same);
    return master_object_takes(object, segment);
}

static void join(struct master_core *core, struct master_object *object,
                 struct master_extent *extent, uint32_t checksum)
{
    struct master_extent *old = master_segment_is_disk(extent->segment)
                                    ? master_object_on(object, extent->segment->medium)
                                    : NULL;
    if (old != NULL)
        master_extent_drop(core, old);
    master_extent_set_state(extent, EXTENT_LIVE);
    extent->fact_state = FACT_PLACED_SENT; /* for all this core knows */
    extent->epoch = extent->segment->epoch;
    extent->checksum = checksum;
    master_extent_attach(core, extent, object);
    master_extent_use(extent);
}

static bool accept_one(struct master_core *core, struct master_segment *segment,
                       const struct master_key *at, struct wire_offer offer, bool pinned)
{
    struct wire_view key = at->bytes;
    uint64_t room = offer_room(segment, offer);
    if (key.size == 0 || key.size > MAX_KEY_SIZE || offer.size == 0 || offer.size > segment->size ||
        room > segment->size || offer.offset > segment->size - room)
        return false;
    uint32_t handle = base_extents_find(segment->alloc, offer.offset);
    struct master_extent *extent =
        handle == BASE_EXTENTS_NONE ? NULL : base_extents_owner(segment->alloc, handle);
    if (extent != NULL && extent->state != EXTENT_DEAD)
        return confirm(core, segment, extent, key, offer);
    struct master_object *object = master_object_find(core, key, at->hash);
    /* Only a new master takes the owner's word alone. A held extent may lie there already: DEAD,
     * never told. */
    bool fits = segment->trusting && may_join(object, segment, offer) &&
                (extent == NULL || (extent->fact_state == FACT_NONE && extent->put == NULL &&
                                    master_extent_size(extent) == room));
    if (fits && extent == NULL)
        extent = master_extent_reserve(segment, offer.offset, room, EXTENT_DEAD);
    if (!fits || extent == NULL) {
        retire(segment, extent, offer);
        return false;
    }
    if (object == NULL) {
        object = master_object_create(core, key, at->hash, offer.size);
        if (object == NULL) {
            retire(segment, extent, offer);
            return false;
        }
        core->committed++;
    }
    if (pinned && !master_segment_is_disk(segment))
        master_pin_hard(core, object);
    join(core, object, extent, offer.checksum);
    master_emit_committed(core, object);
    return true;
}

struct offering {
    uint32_t pinned_at; /* in the list of hard-pinned ones */
    const struct wire_mirror_offer *msg;
    struct master_segment *segment;
    bool closed; /* a repeated message after the last: only said again what is there */
    uint32_t accepted;
    bool no_memory; /* for the list of the rejected; the rest is performed all the same */
};

static enum yolk_status offer_one(struct master_core *core, void *self,
                                  const struct master_key *key)
{
    struct offering *offering = self;
    struct master_segment *segment = offering->segment;
    struct wire_offer offer = wire_offer_at(offering->msg->recs, key->index);
    bool taken, pinned = offering->pinned_at < wire_u32s_count(offering->msg->pinned) &&
                         wire_u32s_at(offering->msg->pinned, offering->pinned_at) == key->index;
    offering->pinned_at += pinned;
    /* Those of a disk come in order: this one was accepted before, or must not be. */
    bool again = master_segment_is_disk(segment) && offer.offset < segment->offered_to;
    if (offering->closed || again) {
        uint32_t handle = base_extents_find(segment->alloc, offer.offset);
        taken =
            handle != BASE_EXTENTS_NONE &&
            confirm(core, segment, base_extents_owner(segment->alloc, handle), key->bytes, offer);
    } else {
        segment->offered_to = offer.offset + 1;
        taken = accept_one(core, segment, key, offer, pinned);
    }
    if (!offering->closed) {
        core->stats.revived += taken;
        core->stats.mirror_rejected += !taken;
    }
    offering->accepted += taken;
    if (!taken && wire_u32s_append(&core->list[0], key->index) != YOLK_OK)
        offering->no_memory = true;
    return YOLK_OK;
}

void master_mirror_offer(struct master_core *core, const struct wire_mirror_offer *msg)
{
    struct wire_keys keys;
    struct wire_mirror_offer_reply reply = {.status = YOLK_OK};
    struct master_session *session =
        master_keys_enter(core, &msg->request, msg->keys, WIRE_MIRROR_OFFER, &keys);
    if (session == NULL)
        return;
    struct master_segment *segment = master_segment_find(core, msg->segment);
    if (segment == NULL || segment->owner != session)
        reply.status = YOLK_ERR_STALE;
    else if (keys.count != wire_offer_count(msg->recs))
        reply.status = YOLK_ERR_INVALID;
    if (reply.status != YOLK_OK) {
        master_reply(core, WIRE_MIRROR_OFFER_REPLY, &reply);
        return;
    }
    struct offering offering = {.msg = msg, .segment = segment, .closed = segment->offers_done};
    base_buf_clear(&core->list[0]);
    reply.status = master_keys_walk(core, &keys, offer_one, &offering);
    if (offering.no_memory)
        reply.status = YOLK_ERR_NO_MEMORY;
    reply.accepted = offering.accepted;
    if (msg->last && !offering.closed) {
        segment->offers_done = true;
        segment->sweeping = true;
        segment->sweep_at = 0;
    }
    reply.rejected = wire_view_buf(&core->list[0]);
    master_reply(core, WIRE_MIRROR_OFFER_REPLY, &reply);
    master_segment_try_open(core, segment);
}

static enum yolk_status replay_mounted(struct master_core *core, const struct master_fact *fact)
{
    uint64_t slot = fact->segment >> 32;
    if (slot >= core->config.max_segments || (uint32_t)fact->segment == 0 ||
        fact->size < BASE_EXTENTS_UNIT || fact->size > MAX_SEGMENT_SIZE)
        return YOLK_ERR_INVALID;
    /* The other core had forgotten it when it gave its slot to others. */
    while (core->by_slot[slot] != NULL && core->by_slot[slot]->state == SEGMENT_GONE &&
           master_segment_tick(core, core->by_slot[slot])) {
    }
    if (core->by_slot[slot] != NULL && core->by_slot[slot]->state == SEGMENT_GONE)
        return YOLK_ERR_BUSY;
    if (core->by_slot[slot] != NULL) {
        /* Mounted again: the same memory or disk under its next id. */
        struct master_segment *segment = core->by_slot[slot];
        if (segment->size != fact->size && !master_segment_is_disk(segment))
            return YOLK_ERR_INVALID;
        if (base_extents_grow(segment->alloc, fact->size) != YOLK_OK)
            return YOLK_ERR_NO_MEMORY;
        segment->size = fact->size;
        segment->id = fact->segment;
        return YOLK_OK;
    }
    struct master_segment *segment = master_segment_create(core, fact->size, 0);
    if (segment == NULL)
        return YOLK_ERR_NO_MEMORY;
    segment->trusting = false;
    core->by_slot[segment->slot] = NULL;
    segment->slot = (uint32_t)slot;
    segment->id = fact->segment;
    core->by_slot[slot] = segment;
    segment->replayed = true;
    if (fact->medium != WIRE_MEDIUM_MEMORY && fact->storage_id != NULL) {
        segment->medium = fact->medium;
        segment->storage_generation = fact->storage_generation;
        core->gds_count += segment->medium == WIRE_MEDIUM_GDS;
        memcpy(segment->storage_id, fact->storage_id, WIRE_ID_SIZE);
        return master_storage_note(core, fact->storage_id);
    }
    return YOLK_OK;
}

static enum yolk_status replay_committed(struct master_core *core, const struct master_fact *fact)
{
    struct wire_view key = wire_view_of(fact->key, fact->key_size);
    if (key.size == 0 || key.size > MAX_KEY_SIZE || fact->place_count > MASTER_MAX_EXTENTS)
        return YOLK_ERR_INVALID;
    uint64_t hash = base_hash64(key.data, key.size);
    struct master_object *object = master_object_find(core, key, hash);
    if (object != NULL && (object->put != NULL || object->size != fact->size))
        return YOLK_ERR_EXISTS;
    if (object == NULL) {
        object = master_object_create(core, key, hash, fact->size);
        if (object == NULL)
            return YOLK_ERR_NO_MEMORY;
        core->committed++;
    }
    for (uint32_t i = 0; i < fact->place_count; i++) {
        const struct master_place *place = &fact->places[i];
        struct wire_offer offer = {place->offset, fact->size, place->checksum};
        struct master_segment *segment = master_segment_find(core, place->segment);
        if (segment == NULL || !may_join(object, segment, offer) || fact->size == 0)
            continue;
        uint64_t room = place->allocated != 0 ? place->allocated : offer_room(segment, offer);
        struct master_extent *extent =
            master_extent_reserve(segment, place->offset, room, EXTENT_DEAD);
        if (extent == NULL)
            continue; /* said before */
        join(core, object, extent, place->checksum);
    }
    if (object->size > 0 && object->extent_count == 0) /* none of its segments is known any more */
        master_object_drop(core, object, GHOST_EXPIRED);
    return YOLK_OK;
}

/* The other core gave the space to others only when the owner knew; what its mirror may still hold
 * is refused and retired at the mount. */
static void untell(struct master_extent *extent)
{
    base_list_remove(&extent->fact);
    extent->fact_state = FACT_NONE;
}

/* With its last replica the key goes too; a COMMITTED that brings another one follows then. */
static enum yolk_status replay_removed(struct master_core *core, const struct master_fact *fact)
{
    bool all = fact->kind == MASTER_FACT_REMOVED;
    if (!all && fact->place_count != 1)
        return YOLK_ERR_INVALID;
    struct master_object *object = master_object_find(core, wire_view_of(fact->key, fact->key_size),
                                                      base_hash64(fact->key, fact->key_size));
    if (object == NULL || object->put != NULL)
        return YOLK_OK;
    if (all) {
        MASTER_EXTENTS_FOREACH(extent, object)
        untell(extent);
        master_object_drop(core, object, GHOST_NONE);
        return YOLK_OK;
    }
    MASTER_EXTENTS_FOREACH(extent, object)
    {
        if (extent->segment->id != fact->places->segment ||
            master_extent_offset(extent) != fact->places->offset)
            continue;
        untell(extent);
        master_replica_drop(core, extent, GHOST_NONE);
        return YOLK_OK;
    }
    return YOLK_OK;
}

enum yolk_status master_core_replay(struct master_core *core, uint64_t now_ns,
                                    const struct master_fact *fact)
{
    core->now = now_ns;
    core->sink = NULL;
    struct master_segment *segment;
    switch (fact->kind) {
    case MASTER_FACT_MOUNTED:
        return replay_mounted(core, fact);
    case MASTER_FACT_UNMOUNTED:
        segment = master_segment_find(core, fact->segment);
        if (segment != NULL)
            master_segment_go(core, segment);
        return YOLK_OK;
    case MASTER_FACT_COMMITTED:
        return replay_committed(core, fact);
    case MASTER_FACT_REMOVED:
    case MASTER_FACT_REPLICA_REMOVED:
        return replay_removed(core, fact);
    }
    return YOLK_ERR_UNSUPPORTED;
}
