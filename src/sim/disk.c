/* SPDX-License-Identifier: Apache-2.0 */
/* The lives of a node's disk: opening, mounts and frames, the end of a process, and what must hold
 * when all is calm. */
#include "sim/disk.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "master/state.h"
#include "sim/cluster.h"

enum { SYNC_MAX_MS = 150, RETRY_MS = 10, RETRY_MAX_MS = 80, TURNS_MAX = 2000 };

static struct sim_disk *disk_of(struct sim *sim, int node)
{
    return &sim->peers[node].disk;
}

void sim_disk_create(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    struct random dice = random_sim_random(&sim->world.dice);
    disk->present = 1;
    disk->extents =
        SIM_EXTENTS_MIN + sim_world_below(&sim->world, SIM_EXTENTS_MAX - SIM_EXTENTS_MIN + 1);
    disk->sync_ns = (1 + sim_world_below(&sim->world, SYNC_MAX_MS)) * CLOCK_NS_PER_MS;
    int status = file_sim_create(random_u64(&dice), &disk->files);
    assert(status == YOLK_OK);
    if (sim_world_below(&sim->world, 4) == 0)
        file_sim_refuse_allocation(disk->files);
}

void sim_disk_destroy(struct sim *sim, int node)
{
    file_sim_destroy(disk_of(sim, node)->files);
}

/* ---- offers ---- */

static uint64_t committed(const struct sim_disk *disk)
{
    struct storage_stats stats;
    storage_stats(disk->storage, &stats);
    return stats.committed;
}

static uint64_t offer_count(void *self)
{
    struct sim_disk *disk = self;
    storage_let_go(disk->storage);
    return committed(disk);
}

static int offer_next(void *self, uint64_t *cursor, struct store_disk_offer *offer)
{
    struct sim_disk *disk = self;
    struct storage_extent extent;
    if (!storage_next(disk->storage, cursor, &extent))
        return 0;
    offer->offset = extent.offset;
    offer->size = extent.size;
    offer->checksum = extent.checksum;
    offer->key_size = (uint32_t)extent.key_size;
    memcpy(offer->key, extent.key, extent.key_size);
    return 1;
}

static int offer_reject(void *self, uint64_t offset)
{
    struct sim_disk *disk = self;
    uint64_t seq;
    int status = storage_delete(disk->storage, offset, &seq);
    disk->rejected += status == YOLK_OK;
    return status == YOLK_ERR_NOT_FOUND ? YOLK_OK : status;
}

/* ---- the beginning ---- */

static void lose_power(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    disk->end = SIM_POWER_LOST;
    disk->boot++;
    if (file_sim_crash(disk->files) != YOLK_OK)
        sim_world_fail(&sim->world, "a simulated file could not crash");
}

/* A device that fails now and then while the file is being opened. */
static void arm(struct sim *sim, struct sim_disk *disk)
{
    if (!sim->faults_on || !sim_world_chance(&sim->world, 150))
        return;
    enum file_sim_fault fault =
        sim_world_below(&sim->world, 2) == 0 ? FILE_SIM_FAIL_WRITE : FILE_SIM_FAIL_SYNC;
    file_sim_inject(disk->files, fault, (unsigned)sim_world_below(&sim->world, 5));
}

int sim_disk_open(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    static const uint8_t no_key[ACCESS_TICKET_KEY_SIZE];
    struct file_system files = file_sim_system(disk->files);
    struct storage_options options = {.path = "disk",
                                      .capacity_bytes = disk->extents * SIM_EXTENT_UNIT,
                                      .unchecked = node >= SIM_NODES,
                                      .random = random_sim_random(&sim->world.dice)};
    options.boot[0] = 1;
    options.boot[1] = disk->boot;
    arm(sim, disk);
    int status = storage_open(&files, &options, &disk->storage);
    file_sim_heal(disk->files);
    if (status != YOLK_OK) {
        if (!sim->faults_on)
            sim_world_fail(&sim->world, "after healing, the disk of node %d: %s", node,
                           yolk_last_error());
        sim_world_mark(&sim->world, SIM_MARK_DISK_OPEN_FAILED);
        disk->trouble = 1;
        if (sim_world_below(&sim->world, 2) == 0)
            lose_power(sim, node);
        return 0;
    }
    sim_kept_check(sim, node);
    disk->trouble = 0;
    struct store_tier_options tier = {.storage = disk->storage,
                                      .memory_size = SIM_SEGMENT,
                                      .depth = SIM_MOVES,
                                      .depth_bytes = 6000,
                                      .sync_ns = disk->sync_ns,
                                      .retry_first_ns = RETRY_MS * CLOCK_NS_PER_MS,
                                      .retry_max_ns = RETRY_MAX_MS * CLOCK_NS_PER_MS};
    status = store_tier_create(&tier, &disk->tier);
    assert(status == YOLK_OK);
    const struct storage_info *info = storage_info(disk->storage);
    disk->mount = (struct store_disk_mount){.size = info->capacity,
                                            .endpoints = "sim=1",
                                            .self = disk,
                                            .count = offer_count,
                                            .next = offer_next,
                                            .reject = offer_reject};
    disk->mount.storage_generation = info->generation;
    memcpy(disk->mount.storage_id, info->storage_id, sizeof disk->mount.storage_id);
    access_grant_init(&disk->grant, 0, info->capacity, no_key, 0);
    memset(disk->ios, 0, sizeof disk->ios);
    disk->quieting = 0;
    disk->tick_at_ns = 0;
    disk->frame_at_ns = 0;
    disk->rejected = 0;
    if (node >= SIM_NODES)
        sim_gds_open(sim, node);
    return 1;
}

/* ---- a life ---- */

void sim_disk_mounted(struct sim *sim, int node, uint64_t segment)
{
    static const uint8_t no_key[ACCESS_TICKET_KEY_SIZE];
    struct sim_disk *disk = disk_of(sim, node);
    access_grant_set_segment(&disk->grant, segment, no_key);
    store_tier_mounted(disk->tier, store_session_segment(sim->peers[node].session), segment);
    sim_world_mark(&sim->world, SIM_MARK_DISK_MOUNTED);
}

/* All extents were offered. */
void sim_disk_opened(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    store_tier_offered(disk->tier);
    sim->world.marks[SIM_MARK_OFFER_REJECTED] += disk->rejected;
    if (disk->found > 0) {
        sim->world.marks[SIM_MARK_RECOVERED] += (uint64_t)disk->found;
        sim->world.marks[SIM_MARK_OFFER_ACCEPTED] += committed(disk);
    }
    disk->rejected = 0;
    disk->found = 0;
}

/* The driver has a thread of its own: what it has to say is on its way a moment. */
static void send_later(struct sim *sim, int node, const struct store_tier_output *output)
{
    struct sim_disk *disk = disk_of(sim, node);
    uint64_t at = sim->world.now_ns + sim_world_below(&sim->world, 50 * CLOCK_NS_PER_US);
    if (at < disk->frame_at_ns)
        at = disk->frame_at_ns;
    disk->frame_at_ns = at;
    uint8_t *body = malloc(output->body_size + 1);
    assert(body != NULL);
    memcpy(body, output->body, output->body_size);
    if (output->message == WIRE_FACTS_ACK)
        sim_world_mark(&sim->world, SIM_MARK_FREED_ACKNOWLEDGED);
    sim_world_push(&sim->world, (struct sim_event){.at_ns = at,
                                                   .kind = SIM_DISK_FRAME,
                                                   .actor = node,
                                                   .incarnation = sim->peers[node].incarnation,
                                                   .message = output->message,
                                                   .body = body,
                                                   .body_size = output->body_size});
}

static void tick_at(struct sim *sim, int node, uint64_t at_ns)
{
    struct sim_disk *disk = disk_of(sim, node);
    if (at_ns == CLOCK_NEVER || (disk->tick_at_ns > sim->world.now_ns && disk->tick_at_ns <= at_ns))
        return;
    if (at_ns <= sim->world.now_ns)
        at_ns = sim->world.now_ns + CLOCK_NS_PER_US;
    disk->tick_at_ns = at_ns;
    sim_world_push(&sim->world, (struct sim_event){.at_ns = at_ns,
                                                   .kind = SIM_DISK_TICK,
                                                   .actor = node,
                                                   .incarnation = sim->peers[node].incarnation});
}

void sim_disk_wake(struct sim *sim, int node)
{
    tick_at(sim, node, sim->world.now_ns);
}

int sim_disk_drive(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    struct store_tier_output output;
    for (int turn = 0;; turn++) {
        store_tier_next(disk->tier, sim->world.now_ns, &output);
        if (output.kind == STORE_TIER_WAIT)
            break;
        if (turn == TURNS_MAX) {
            sim_world_fail(&sim->world, "the disk tier of node %d never waits", node);
            return 0;
        }
        if (output.kind == STORE_TIER_SEND)
            send_later(sim, node, &output);
        else
            sim_disk_begin_io(sim, node, &output);
    }
    if (store_tier_off(disk->tier) != NULL)
        sim_world_mark(&sim->world, SIM_MARK_TIER_OFF);
    tick_at(sim, node, output.deadline_ns);
    if (!disk->quieting || store_tier_memory_writes(disk->tier) > 0)
        return 0;
    disk->quieting = 0;
    store_session_disk_quiet(sim->peers[node].session, sim->world.now_ns);
    return 1;
}

/* ---- the end of a life ---- */

static void count_marks(struct sim *sim, struct sim_disk *disk)
{
    struct store_tier_stats tier;
    struct storage_stats storage;
    store_tier_stats(disk->tier, &tier);
    storage_stats(disk->storage, &storage);
    sim->world.marks[SIM_MARK_PROMOTE_CORRUPT] += tier.corrupt;
    sim->world.marks[SIM_MARK_OFFLOAD_NO_SPACE] += tier.offloads_no_space;
    sim->world.marks[SIM_MARK_CHECKPOINT] += storage.checkpoints;
    const char *broken = storage_check(disk->storage);
    if (broken != NULL)
        sim_world_fail(&sim->world, "%s", broken);
}

static void close_file(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    sim_transfer_end_leases(sim, node);
    store_tier_unmount(disk->tier);
    sim_disk_finish_all(sim, node);
    store_tier_destroy(disk->tier);
    sim_kept_look(disk);
    arm(sim, disk);
    if (storage_close(disk->storage) != YOLK_OK) {
        disk->end = SIM_KILLED;
        disk->trouble = 1;
    } else if (file_sim_crash(disk->files) != YOLK_OK) { /* no power loss harms it any more */
        sim_world_fail(&sim->world, "a simulated file could not crash");
    }
    file_sim_heal(disk->files);
}

void sim_disk_end(struct sim *sim, int node, enum sim_end end)
{
    struct sim_disk *disk = disk_of(sim, node);
    if (sim->peers[node].gds != NULL)
        sim_gds_end(sim, node);
    count_marks(sim, disk);
    sim_kept_look(disk);
    disk->end = end;
    disk->ended_ns = sim->world.now_ns;
    if (end == SIM_CLOSED) {
        close_file(sim, node);
    } else {
        sim_disk_cut_off(sim, node);
        store_tier_destroy(disk->tier);
        storage_abandon(disk->storage);
    }
    if (end == SIM_POWER_LOST)
        lose_power(sim, node);
    access_grant_free(&disk->grant);
    disk->storage = NULL;
    disk->tier = NULL;
}

/* ---- when all is calm ---- */

static void expect(struct sim *sim, int node, uint64_t value, const char *what)
{
    if (value != 0)
        sim_world_fail(&sim->world, "R6: after healing, the disk of node %d: %s: %llu", node, what,
                       (unsigned long long)value);
}

/* Each extent of the owner is the disk replica that the master has. */
static void check_books(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    struct storage_extent extent;
    struct storage_stats stats;
    storage_stats(disk->storage, &stats);
    struct master_segment *segment = master_segment_find(sim->master, disk->grant.segment);
    if (segment == NULL || segment->live_bytes != stats.committed_bytes ||
        base_extents_used_count(segment->alloc) != stats.committed)
        sim_world_fail(
            &sim->world, "R6: after healing, the disk of node %d has %llu extents, the master %llu",
            node, (unsigned long long)stats.committed,
            segment == NULL ? 0 : (unsigned long long)base_extents_used_count(segment->alloc));
    for (uint64_t cursor = 0; storage_next(disk->storage, &cursor, &extent);) {
        struct wire_view key = wire_view_of(extent.key, (uint32_t)extent.key_size);
        struct master_object *object =
            master_object_find(sim->master, key, base_hash64(extent.key, extent.key_size));
        struct master_extent *there = object == NULL ? NULL : master_object_disk(object);
        if (there == NULL || there->segment != segment ||
            master_extent_offset(there) != extent.offset || object->size != extent.size ||
            there->checksum != extent.checksum)
            sim_world_fail(&sim->world,
                           "R6: after healing, the disk of node %d has %.*s, which the master "
                           "does not have there",
                           node, (int)extent.key_size, (const char *)extent.key);
    }
}

void sim_disk_check_settled(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    struct storage_stats storage;
    struct store_tier_stats tier;
    storage_stats(disk->storage, &storage);
    store_tier_stats(disk->tier, &tier);
    const char *broken = storage_check(disk->storage);
    if (broken != NULL)
        sim_world_fail(&sim->world, "after healing, the disk of node %d: %s", node, broken);
    const char *off = store_tier_off(disk->tier);
    if (off != NULL)
        sim_world_fail(&sim->world, "R6: after healing, the disk of node %d is off: %s", node, off);
    expect(sim, node, storage.leases, "leases");
    uint64_t stuck = sim->peers[node].gds != NULL ? sim->peers[node].gds->stuck : 0;
    if (storage.handles != stuck || storage.reserved + storage.written != stuck)
        sim_world_fail(&sim->world,
                       "R6: after healing, the disk of node %d: %llu reservations and %llu extents "
                       "being written, of which %llu never end",
                       node, (unsigned long long)storage.handles,
                       (unsigned long long)(storage.reserved + storage.written),
                       (unsigned long long)stuck);
    expect(sim, node, storage.doomed, "extents that are deleted and not free");
    expect(sim, node, tier.queued + tier.moving + tier.committing, "tasks");
    expect(sim, node, tier.facts_waiting, "facts not acknowledged");
    if (sim->peers[node].gds != NULL)
        sim_gds_check_books(sim, node);
    else
        check_books(sim, node);
}

int sim_disk_sound_keys(const struct sim *sim, int node, int keys[SIM_EXTENTS_MAX])
{
    const struct sim_disk *disk = &sim->peers[node].disk;
    int count = 0;
    for (int key = 0; key < SIM_KEYS && disk->present; key++) {
        struct storage_extent extent;
        char text[16];
        snprintf(text, sizeof text, "key-%d", key);
        if (storage_find(disk->storage, text, strlen(text), &extent) == YOLK_OK &&
            !disk->kept[extent.offset / SIM_EXTENT_UNIT].rotten &&
            !disk->kept[extent.offset / SIM_EXTENT_UNIT].unchecked)
            keys[count++] = key;
    }
    return count;
}
