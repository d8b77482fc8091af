/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/gds.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "master/state.h"
#include "sim/cluster.h"

enum { STUCK_PERMILLE = 15, UNCHECKED_PERMILLE = 300 };

static struct sim_gds *gds_of(struct sim *sim, int peer)
{
    return sim->peers[peer].gds;
}

/* Seeds of before know nothing of it: their dice fall as they did. */
int sim_gds_is_drawn(uint64_t seed, int peer)
{
    uint64_t world = base_mix64(seed ^ UINT64_C(0x47445321)) % 5;
    return peer >= SIM_NODES &&
           (world == 0 || (world == 1 && base_mix64(seed + (uint64_t)peer) % 2));
}

/* ---- a life ---- */

void sim_gds_open(struct sim *sim, int peer)
{
    struct sim_disk *file = &sim->peers[peer].disk;
    struct sim_gds *gds = calloc(1, sizeof *gds);
    assert(gds != NULL);
    mutex_init(&gds->disk.lock);
    condition_init(&gds->disk.changed);
    condition_init(&gds->disk.journaled);
    gds->disk.medium = WIRE_MEDIUM_GDS;
    gds->disk.storage = file->storage;
    gds->disk.tier = file->tier;
    gds->disk.mount = file->mount;
    gds->file.disk = &gds->disk;
    gds->reserver = store_gds_reserver(&gds->file);
    sim->peers[peer].gds = gds;
}

void sim_gds_end(struct sim *sim, int peer)
{
    struct sim_gds *gds = gds_of(sim, peer);
    if (gds->file.open_count != 0)
        sim_world_fail(&sim->world, "R4: %zu reservations of peer %d never ended",
                       gds->file.open_count, peer);
    free(gds->file.limbo);
    condition_destroy(&gds->disk.journaled);
    condition_destroy(&gds->disk.changed);
    mutex_destroy(&gds->disk.lock);
    free(gds);
    sim->peers[peer].gds = NULL;
}

void sim_gds_mounted(struct sim *sim, int peer, uint64_t segment)
{
    static const uint8_t no_key[ACCESS_TICKET_KEY_SIZE];
    struct sim_gds *gds = gds_of(sim, peer);
    store_gds_forget_mount(&gds->file);
    gds->file.segment = segment;
    access_grant_set_segment(&sim->peers[peer].disk.grant, segment, no_key);
    store_tier_mounted(gds->disk.tier, segment, segment);
    sim_world_mark(&sim->world, SIM_MARK_GDS_MOUNTED);
    sim_gds_look(sim, peer);
}

/* ---- commits ---- */

static void committed(struct sim *sim, int peer, int index)
{
    struct sim_slot *slot = &sim->peers[peer].slots[index];
    slot->commit_count = 0;
    store_put_committed(slot->put, sim->world.now_ns);
    sim_slot_drive(sim, peer, index);
}

void sim_gds_look(struct sim *sim, int peer)
{
    struct sim_gds *gds = gds_of(sim, peer);
    store_gds_floor(&gds->file, store_session_floor(sim->peers[peer].session));
    for (int i = 0; i < SIM_SLOTS; i++) {
        struct sim_slot *slot = &sim->peers[peer].slots[i];
        if (slot->commit_count > 0 &&
            (store_gds_is_committed(&gds->file, slot->commits, slot->commit_count) ||
             store_tier_off(gds->disk.tier) != NULL || sim->world.now_ns >= slot->commit_by_ns))
            committed(sim, peer, i);
    }
}

void sim_gds_commit(struct sim *sim, int peer, int index, const struct store_action *action)
{
    struct sim_slot *slot = &sim->peers[peer].slots[index];
    assert(action->commit_count <= SIM_ITEMS);
    memcpy(slot->commits, action->commits, action->commit_count * sizeof *action->commits);
    slot->commit_count = action->commit_count;
    slot->commit_by_ns = action->deadline_ns;
    store_gds_begin_commit(&gds_of(sim, peer)->file, slot->commits, slot->commit_count);
    sim_world_mark(&sim->world, SIM_MARK_GDS_COMMIT);
    sim_disk_wake(sim, peer);
}

/* ---- transfers ---- */

int sim_gds_is_own(const struct sim *sim, const struct sim_transfer *t)
{
    return t->action.medium == WIRE_MEDIUM_GDS && sim->peers[t->peer].gds != NULL &&
           (t->write || store_gds_is_own(&sim->peers[t->peer].gds->file, &t->gds));
}

static const struct store_item *item_of(const struct sim *sim, const struct sim_transfer *t)
{
    return &sim->peers[t->peer].slots[t->slot].items[t->action.item];
}

/* What a lease promises, and a reservation: nobody else has the extent. */
static void check_alone(struct sim *sim, const struct sim_transfer *t)
{
    for (size_t i = 0; i < sim->transfer_count; i++) {
        const struct sim_transfer *other = &sim->transfers[i];
        if (other != t && other->live && other->action.medium == WIRE_MEDIUM_GDS &&
            other->node == t->node && other->node_incarnation == t->node_incarnation &&
            other->action.offset == t->action.offset && (other->leased || other->write))
            sim_world_fail(&sim->world,
                           "the GDS file of peer %d: the extent at %llu is written while it is %s",
                           t->node, (unsigned long long)t->action.offset,
                           other->write ? "being written by another put" : "read");
    }
}

static enum yolk_status begin_write(struct sim *sim, struct sim_transfer *t)
{
    check_alone(sim, t);
    sim_kept_writing(&sim->peers[t->peer].disk, t->action.offset);
    return YOLK_OK;
}

static enum yolk_status begin_read(struct sim *sim, struct sim_transfer *t)
{
    const struct store_item *item = item_of(sim, t);
    const struct sim_kept *kept =
        &sim->peers[t->peer].disk.kept[t->action.offset / SIM_EXTENT_UNIT];
    uint32_t checksum;
    int verify;
    int status = store_gds_read_begin(&gds_of(sim, t->peer)->file, item->key, item->key_size,
                                      &t->gds, &checksum, &verify);
    if (status != YOLK_OK) {
        sim_world_mark(&sim->world, SIM_MARK_GDS_STALE);
        return (enum yolk_status)status;
    }
    t->leased = 1;
    t->leases++;
    if (kept->state == SIM_KEPT_NOTHING || kept->size != t->action.size ||
        kept->key_hash != base_hash64(item->key, item->key_size))
        sim_world_fail(&sim->world,
                       "R2: the GDS file of peer %d: a read was let in at %llu, where another "
                       "value is",
                       t->peer, (unsigned long long)t->action.offset);
    return YOLK_OK;
}

enum yolk_status sim_gds_begin(struct sim *sim, struct sim_transfer *t)
{
    return t->write ? begin_write(sim, t) : begin_read(sim, t);
}

enum yolk_status sim_gds_move(struct sim *sim, struct sim_transfer *t, uint64_t size)
{
    uint8_t *local = sim->peers[t->peer].slots[t->slot].buffers[t->action.item] + t->moved;
    uint64_t at = t->action.offset + t->moved;
    enum yolk_status status = t->write ? sim_disk_write(sim, t->peer, local, size, at)
                                       : sim_disk_read(sim, t->peer, at, local, size);
    if (status == YOLK_OK)
        t->moved += size;
    /* The library does not say any more what became of it. */
    if (t->write && sim->faults_on && sim_world_chance(&sim->world, STUCK_PERMILLE)) {
        gds_of(sim, t->peer)->stuck++;
        sim_world_mark(&sim->world, SIM_MARK_GDS_UNKNOWN);
        return YOLK_ERR_STUCK;
    }
    return status;
}

void sim_gds_land(struct sim *sim, struct sim_transfer *t)
{
    static const uint8_t garbage[64] = {0x5a, 0x5a, 0x5a, 0x5a};
    check_alone(sim, t);
    sim_world_mark(&sim->world, SIM_MARK_LATE_WRITE);
    (void)sim_disk_write(sim, t->peer, garbage, sizeof garbage, t->action.offset);
}

void sim_gds_written(struct sim *sim, struct sim_transfer *t)
{
    struct store_reservation *reservation = t->action.reservation;
    const struct store_item *item = item_of(sim, t);
    const uint8_t *bytes = sim->peers[t->peer].slots[t->slot].buffers[t->action.item];
    struct sim_io io = {.disk_offset = t->action.offset,
                        .size = t->action.size,
                        .key_hash = base_hash64(item->key, item->key_size)};
    reservation->checked = !sim_world_chance(&sim->world, UNCHECKED_PERMILLE);
    io.unchecked = !reservation->checked;
    if (reservation->checked)
        io.checksum = reservation->checksum = base_crc32c(0, bytes, t->action.size);
    sim_kept_written(&sim->peers[t->peer].disk, &io);
    sim_world_mark(&sim->world, SIM_MARK_GDS_WRITTEN);
}

void sim_gds_unlease(struct sim *sim, struct sim_transfer *t)
{
    store_gds_read_end(&gds_of(sim, t->peer)->file, &t->gds);
    sim_disk_wake(sim, t->peer);
}

/* ---- when all is calm ---- */

static void check_extent(struct sim *sim, int peer, const struct master_segment *segment,
                         const struct storage_extent *extent)
{
    struct wire_view key = wire_view_of(extent->key, (uint32_t)extent->key_size);
    struct master_object *object =
        master_object_find(sim->master, key, base_hash64(extent->key, extent->key_size));
    struct wire_gds right, told = {0};
    store_gds_describe(&gds_of(sim, peer)->file, extent, &right);
    struct master_extent *there = object == NULL ? NULL : master_object_on(object, WIRE_MEDIUM_GDS);
    if (there != NULL)
        told = master_gds_of(there);
    if (there == NULL || there->segment != segment || !wire_gds_equal(&told, &right))
        sim_world_fail(&sim->world,
                       "R6: after healing, the GDS file of peer %d has %.*s, which the master "
                       "does not have there",
                       peer, (int)extent->key_size, (const char *)extent->key);
}

/* A scan of the file equals the accounts of the master: no extent is leaked, none forgotten. */
void sim_gds_check_books(struct sim *sim, int peer)
{
    struct sim_gds *gds = gds_of(sim, peer);
    struct storage_extent extent;
    struct storage_stats stats;
    storage_stats(gds->disk.storage, &stats);
    const struct master_segment *segment = master_segment_find(sim->master, gds->file.segment);
    if (segment == NULL || segment->live_bytes != stats.committed_bytes ||
        base_extents_used_count(segment->alloc) != stats.committed)
        sim_world_fail(
            &sim->world,
            "R6: after healing, the GDS file of peer %d has %llu extents, the master "
            "%llu",
            peer, (unsigned long long)stats.committed,
            segment == NULL ? 0 : (unsigned long long)base_extents_used_count(segment->alloc));
    for (uint64_t cursor = 0; storage_next(gds->disk.storage, &cursor, &extent);)
        check_extent(sim, peer, segment, &extent);
    if (gds->file.limbo_count != 0)
        sim_world_fail(&sim->world, "R6: after healing, %zu extents of peer %d wait for ever",
                       gds->file.limbo_count, peer);
}
