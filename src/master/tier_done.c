/* SPDX-License-Identifier: Apache-2.0 */
/* What the owner of a disk answers: copies that were made or not, bytes that do not match. */
#include <stdlib.h>

#include "master/state.h"

/* ---- copies ---- */

/* NULL: `*open` says whether the answer may become true later. */
static struct master_extent *reserve_reported(struct master_core *core, struct master_segment *disk,
                                              const struct wire_task_done *done, bool *open)
{
    for (;;) {
        uint32_t handle = base_extents_seek(disk->alloc, done->disk_offset);
        struct master_extent *other =
            handle == BASE_EXTENTS_NONE ? NULL : base_extents_owner(disk->alloc, handle);
        if (other == NULL || master_extent_offset(other) >= done->disk_offset + done->disk_size) {
            *open = true; /* without memory */
            return master_extent_reserve(disk, done->disk_offset, done->disk_size, EXTENT_DEAD);
        }
        bool in_use = other->state != EXTENT_DEAD && other->epoch == disk->epoch;
        *open = !in_use; /* else the answer to FREED is still to come */
        if (in_use || other->state == EXTENT_DEAD)
            return NULL;
        master_replica_drop(core, other, GHOST_EXPIRED); /* not offered, and not swept yet */
    }
}

static bool is_sound(const struct master_segment *disk, const struct master_task *task,
                     const struct wire_task_done *done)
{
    uint64_t room = master_disk_room(task->size);
    return done->disk_offset % MASTER_DISK_UNIT == 0 && done->disk_size == room &&
           room <= disk->size && done->disk_offset <= disk->size - room;
}

/* The new place of the object, if it is still there; else the extent is freed again. */
static void settle_offload(struct master_core *core, struct master_extent *extent,
                           struct master_object *object, uint32_t checksum)
{
    struct master_extent *old = object == NULL ? NULL : master_object_disk(object);
    extent->fact_state = FACT_PLACED_SENT; /* the owner has just said so */
    if (object == NULL || (old != NULL && master_extent_readable(old))) {
        master_extent_settle(core, extent);
        return;
    }
    if (old != NULL)
        master_extent_drop(core, old);
    master_extent_set_state(extent, EXTENT_LIVE);
    extent->checksum = checksum;
    master_extent_attach(core, extent, object);
    master_extent_use(extent);
    master_emit_committed(core, object);
}

/* The task's reference to what was copied. When it was used meanwhile it goes back to the policy.
 */
static void end_offload(struct master_core *core, struct master_task *task,
                        enum master_extent_list list)
{
    const struct master_object *object = task->memory->object;
    uint64_t lease = task->begun_at + master_ms(core->config.lease_ttl_ms);
    task->memory->task_refs--;
    if (object != NULL && object->lease_until >= lease)
        master_extent_unref(core, task->memory);
    else
        master_extent_unref_named(core, task->memory, list);
}

static void paused(struct master_core *core, struct master_tier *tier)
{
    uint64_t pause = MASTER_PAUSE_MAX_MS;
    if (tier->failures < 6)
        pause = (uint64_t)MASTER_PAUSE_MS << tier->failures;
    if (core->now >= tier->pause_until) {
        tier->failures++;
        tier->pause_until =
            core->now + master_ms(pause < MASTER_PAUSE_MAX_MS ? pause : MASTER_PAUSE_MAX_MS);
    }
}

static void failed_offload(struct master_core *core, struct master_segment *memory,
                           struct master_task *task, int status)
{
    struct master_tier *tier = &memory->tier;
    struct master_segment *disk = tier->mate;
    bool fits = status != YOLK_ERR_TOO_LARGE && status != YOLK_ERR_INVALID;
    if (status == YOLK_ERR_NO_SPACE) {
        uint64_t room = task->size + MASTER_DISK_UNIT;
        if (room < disk->size / 64)
            room = disk->size / 64;
        core->stats.offloads_no_space++;
        fits = disk->live_bytes > 0 || disk->dead_bytes > 0;
        if (fits) {
            tier->no_space = true;
            tier->pause_until = core->now + master_ms(core->config.resend_ms);
        }
        tier->held_max = disk->live_bytes + disk->dead_bytes;
        if (disk->ack_bytes < room)
            (void)master_evict(core, disk, room, core->config.step);
    } else {
        core->stats.offloads_failed++;
        if (fits)
            paused(core, tier);
    }
    if (task->memory->object != NULL && !fits)
        task->memory->object->memory_only = true;
    end_offload(core, task, fits ? IN_DIRTY : IN_CLEAN);
}

/* False: it stays open. */
static bool answered_offload(struct master_core *core, struct master_segment *memory,
                             struct master_task *task, const struct wire_task_done *done)
{
    struct master_tier *tier = &memory->tier;
    struct master_extent *extent = NULL;
    bool open = false;
    if (done->status != YOLK_OK) {
        failed_offload(core, memory, task, done->status);
        return true;
    }
    if (is_sound(tier->mate, task, done))
        extent = reserve_reported(core, tier->mate, done, &open);
    if (extent == NULL && open) {
        task->sent_at = core->now + 1; /* asked again later */
        return false;
    }
    if (extent == NULL) {
        core->stats.disk_conflicts++;
        failed_offload(core, memory, task, YOLK_ERR_PROTOCOL);
        return true;
    }
    core->stats.offloads_done++;
    core->stats.offload_bytes += task->size;
    tier->failures = 0;
    if (!tier->no_space)
        tier->pause_until = 0;
    tier->stuck_since = tier->offloads.count > 1 ? core->now : 0;
    settle_offload(core, extent, task->memory->object, done->checksum);
    if (tier->held_max != 0 && tier->held_max < tier->mate->live_bytes)
        tier->held_max = tier->mate->live_bytes;
    end_offload(core, task, IN_CLEAN);
    return true;
}

static void drop_bad(struct master_core *core, struct master_extent *disk)
{
    core->stats.replica_bad++;
    master_replica_drop(core, disk, GHOST_EXPIRED);
}

/* The memory extent becomes a replica, if that is still wanted. */
static bool settle_promote(struct master_core *core, struct master_task *task)
{
    struct master_object *object = task->disk->object;
    struct master_extent *extent = task->memory;
    if (object == NULL || object->size != task->size ||
        !master_object_takes(object, extent->segment))
        return false;
    master_extent_set_state(extent, EXTENT_LIVE);
    master_extent_attach(core, extent, object);
    master_fact_placed(extent);
    extent->task_refs--;
    master_extent_unref(core, extent);
    master_emit_committed(core, object);
    return true;
}

static void answered_promote(struct master_core *core, struct master_task *task, int status)
{
    if (status == YOLK_OK && settle_promote(core, task)) {
        core->stats.promotes_done++;
        core->stats.promote_bytes += task->size;
        master_task_unhold_disk(core, task);
        return;
    }
    core->stats.promotes_failed++;
    if (status == YOLK_ERR_CORRUPT && task->disk->object != NULL)
        drop_bad(core, task->disk);
    master_task_unhold(core, task);
}

static struct master_task *find(const struct master_segment *memory, uint64_t id)
{
    const struct base_list *lists[] = {&memory->tier.offloads.open, &memory->tier.promotes.open};
    for (int i = 0; i < 2; i++)
        BASE_LIST_FOREACH(node, lists[i])
        {
            struct master_task *task = BASE_CONTAINER(node, struct master_task, link);
            if (task->id == id)
                return task;
        }
    return NULL;
}

void master_tasks_done(struct master_core *core, const struct wire_tasks_done *msg)
{
    struct master_segment *memory = master_segment_owned(core, msg->segment);
    if (memory == NULL || master_segment_is_disk(memory) || memory->tier.mate == NULL)
        return;
    for (uint32_t i = 0; i < wire_task_done_count(msg->recs); i++) {
        struct wire_task_done done = wire_task_done_at(msg->recs, i);
        struct master_task *task = find(memory, done.id);
        if (task == NULL)
            continue; /* answered before */
        if (task->kind == WIRE_TASK_OFFLOAD && !answered_offload(core, memory, task, &done))
            continue;
        master_task_close(memory, task);
        if (task->kind == WIRE_TASK_PROMOTE)
            answered_promote(core, task, done.status);
        free(task);
    }
    (void)master_evict_background(core, memory->tier.mate, core->config.step);
    (void)master_tier_ahead(core, memory, core->config.step);
}

/* ---- bytes that do not match ---- */

struct bad {
    const struct wire_replica_bad *msg;
};

static enum yolk_status bad_one(struct master_core *core, void *self, const struct master_key *key)
{
    const struct bad *bad = self;
    struct wire_replica at = wire_replica_at(bad->msg->replicas, key->index);
    struct master_object *object = master_object_find(core, key->bytes, key->hash);
    if (object == NULL || object->put != NULL)
        return YOLK_ERR_NOT_FOUND;
    MASTER_EXTENTS_FOREACH(extent, object)
    if (master_segment_is_disk(extent->segment) && extent->segment->id == at.segment &&
        master_extent_offset(extent) == at.offset) {
        drop_bad(core, extent);
        return YOLK_OK;
    }
    return YOLK_ERR_NOT_FOUND;
}

void master_replica_bad(struct master_core *core, const struct wire_replica_bad *msg)
{
    struct wire_keys keys;
    struct bad bad = {msg};
    if (master_keys_enter(core, &msg->request, msg->keys, WIRE_REPLICA_BAD, &keys) == NULL)
        return;
    if (keys.count != wire_replica_count(msg->replicas)) {
        master_reply_status(core, WIRE_REPLICA_BAD_REPLY, YOLK_ERR_INVALID, "");
        return;
    }
    master_keys_answer(core, WIRE_REPLICA_BAD, &keys, bad_one, &bad);
}
