/* SPDX-License-Identifier: Apache-2.0 */
/* What must, may and must not be found on a disk after a restart: storage.h's invariants 3 and 4,
 * kept beside it from what the tier machine was seen to do. Values whose bytes were harmed may be
 * missing; nothing else may. */
#include "base/hash.h"
#include "sim/cluster.h"

enum { WAIT_MS = 600 }; /* for a few pieces of I/O on a slow disk, and for the next try */

static struct sim_kept *unit_of(struct sim_disk *disk, uint64_t offset)
{
    return &disk->kept[offset / SIM_EXTENT_UNIT];
}

void sim_kept_writing(struct sim_disk *disk, uint64_t offset)
{
    *unit_of(disk, offset) = (struct sim_kept){.state = SIM_KEPT_NOTHING};
}

void sim_kept_written(struct sim_disk *disk, const struct sim_io *io)
{
    *unit_of(disk, io->disk_offset) = (struct sim_kept){.state = SIM_KEPT_MAYBE,
                                                        .key_hash = io->key_hash,
                                                        .size = io->size,
                                                        .unchecked = io->unchecked,
                                                        .checksum = io->checksum};
}

/* Cheaper than being told of every step: what is asked is asked only of these moments. */
void sim_kept_look(struct sim_disk *disk)
{
    struct storage_extent extent;
    int there[SIM_EXTENTS_MAX] = {0};
    for (uint64_t cursor = 0; storage_next(disk->storage, &cursor, &extent);)
        there[extent.offset / SIM_EXTENT_UNIT] = 1;
    for (uint64_t i = 0; i < disk->extents; i++) {
        struct sim_kept *kept = &disk->kept[i];
        if (there[i] && kept->state == SIM_KEPT_MAYBE)
            kept->state = SIM_KEPT_COMMITTED;
        else if (!there[i] && kept->state > SIM_KEPT_MAYBE)
            kept->state = SIM_KEPT_MAYBE;
    }
}

void sim_kept_sync_began(struct sim_disk *disk)
{
    sim_kept_look(disk);
    for (uint64_t i = 0; i < disk->extents; i++)
        disk->kept[i].covered = disk->kept[i].state == SIM_KEPT_COMMITTED;
}

/* The write that proves a sync is made at once, its own sync when one is due; either may wait for
 * what is under way on a slow disk, and after failures for the next try. */
static uint64_t proven_by(const struct sim_disk *disk, uint64_t now_ns)
{
    return now_ns + disk->sync_ns + WAIT_MS * CLOCK_NS_PER_MS;
}

void sim_kept_synced(struct sim_disk *disk, uint64_t now_ns)
{
    sim_kept_look(disk);
    for (uint64_t i = 0; i < disk->extents; i++) {
        struct sim_kept *kept = &disk->kept[i];
        if (kept->covered && kept->state == SIM_KEPT_COMMITTED) {
            kept->state = SIM_KEPT_DURABLE;
            kept->proven_ns = proven_by(disk, now_ns);
        }
    }
}

void sim_kept_failed(struct sim_disk *disk, uint64_t now_ns)
{
    for (uint64_t i = 0; i < disk->extents; i++) {
        if (disk->kept[i].proven_ns > now_ns)
            disk->kept[i].proven_ns = proven_by(disk, now_ns);
    }
}

void sim_kept_stopped(struct sim_disk *disk, uint64_t now_ns, uint64_t until_ns)
{
    for (uint64_t i = 0; i < disk->extents; i++) {
        if (disk->kept[i].proven_ns > now_ns)
            disk->kept[i].proven_ns += until_ns - now_ns;
    }
}

static void check_found(struct sim *sim, int node, const struct storage_extent *extent)
{
    const struct sim_kept *kept = unit_of(&sim->peers[node].disk, extent->offset);
    if (kept->state == SIM_KEPT_NOTHING)
        sim_world_fail(&sim->world, "the disk of node %d: what was free at %llu came back", node,
                       (unsigned long long)extent->offset);
    else if (kept->size != extent->size || kept->checksum != extent->checksum ||
             kept->key_hash != base_hash64(extent->key, extent->key_size))
        sim_world_fail(&sim->world, "the disk of node %d: at %llu is another extent than before",
                       node, (unsigned long long)extent->offset);
}

static void check_missing(struct sim *sim, int node, uint64_t unit)
{
    const struct sim_disk *disk = &sim->peers[node].disk;
    const struct sim_kept *kept = &disk->kept[unit];
    enum sim_kept_state needed =
        disk->end == SIM_POWER_LOST ? SIM_KEPT_DURABLE : SIM_KEPT_COMMITTED;
    int unproven =
        kept->unchecked && disk->end == SIM_POWER_LOST && disk->ended_ns < kept->proven_ns;
    if (kept->state >= needed && !kept->rotten && !unproven)
        sim_world_fail(&sim->world, "the disk of node %d: the extent at %llu is lost after %s",
                       node, (unsigned long long)(unit * SIM_EXTENT_UNIT),
                       disk->end == SIM_POWER_LOST ? "a power loss"
                       : disk->end == SIM_KILLED   ? "a kill"
                                                   : "an orderly end");
    else if (kept->state == SIM_KEPT_COMMITTED)
        sim_world_mark(&sim->world, SIM_MARK_RECORD_LOST);
}

void sim_kept_check(struct sim *sim, int node)
{
    struct sim_disk *disk = &sim->peers[node].disk;
    const struct storage_info *info = storage_info(disk->storage);
    struct storage_extent extent;
    int there[SIM_EXTENTS_MAX] = {0};
    disk->found = 0;
    for (uint64_t cursor = 0; storage_next(disk->storage, &cursor, &extent);) {
        there[extent.offset / SIM_EXTENT_UNIT] = 1;
        disk->found++;
        check_found(sim, node, &extent);
    }
    for (uint64_t i = 0; i < disk->extents; i++) {
        struct sim_kept *kept = &disk->kept[i];
        if (!there[i])
            check_missing(sim, node, i);
        /* What opening left is on stable media, what it dropped will not come back. */
        kept->state = there[i] ? SIM_KEPT_DURABLE : SIM_KEPT_NOTHING;
        kept->covered = 0;
        kept->proven_ns = 0;
    }
    if (info->damaged > 0 && !disk->trouble)
        sim_world_fail(&sim->world,
                       "the disk of node %d: %llu damages in the journal of a file "
                       "that nobody harmed",
                       node, (unsigned long long)info->damaged);
    for (uint64_t i = 0; i < info->dropped; i++)
        sim_world_mark(&sim->world, SIM_MARK_VALUE_TORN);
}
