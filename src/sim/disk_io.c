/* SPDX-License-Identifier: Apache-2.0 */
/* The I/O of a node's disk, a piece at a time, and what goes wrong with it. */
#include <assert.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "platform/random.h"
#include "sim/cluster.h"

enum { PIECE = 1024, SECTOR = 512 };

static struct sim_disk *disk_of(struct sim *sim, int node)
{
    return &sim->peers[node].disk;
}

int sim_disk_is_failing(const struct sim *sim, int node, enum sim_disk_fault fault)
{
    return sim->world.now_ns < sim->peers[node].disk.until_ns[fault];
}

static uint64_t place_of(const struct sim_disk *disk, uint64_t offset)
{
    return storage_info(disk->storage)->extent_offset + offset;
}

static void schedule(struct sim *sim, int node, size_t io)
{
    uint64_t delay = 5 * CLOCK_NS_PER_US + sim_world_below(&sim->world, 150 * CLOCK_NS_PER_US);
    if (sim_disk_is_failing(sim, node, SIM_DISK_SLOW))
        delay += sim_world_below(&sim->world, 60 * CLOCK_NS_PER_MS);
    sim_world_push(&sim->world, (struct sim_event){.at_ns = sim->world.now_ns + delay,
                                                   .kind = SIM_DISK_IO,
                                                   .actor = node,
                                                   .incarnation = sim->peers[node].incarnation,
                                                   .id = io});
}

enum yolk_status sim_disk_lease(struct sim *sim, int node, uint64_t offset, uint64_t size,
                                uint64_t key_hash)
{
    return (enum yolk_status)storage_lease(disk_of(sim, node)->storage, offset, size, key_hash);
}

enum yolk_status sim_disk_read(struct sim *sim, int node, uint64_t offset, uint8_t *bytes,
                               uint64_t size)
{
    struct sim_disk *disk = disk_of(sim, node);
    size_t got = 0;
    if (sim_disk_is_failing(sim, node, SIM_DISK_FAIL_READ) && sim_world_chance(&sim->world, 300)) {
        sim_world_mark(&sim->world, SIM_MARK_DISK_READ_FAILED);
        return YOLK_ERR_IO;
    }
    int status = file_pread(storage_file(disk->storage), bytes, size, place_of(disk, offset), &got);
    return status == YOLK_OK && got < size ? YOLK_ERR_EOF : (enum yolk_status)status;
}

/* 0, or how this write fails; a failed one may have been done in part. */
static int refuse_write(struct sim *sim, int node, uint64_t *size)
{
    int full = sim_disk_is_failing(sim, node, SIM_DISK_FULL);
    int failing = sim_disk_is_failing(sim, node, SIM_DISK_FAIL_WRITE);
    if ((!full && !failing) || !sim_world_chance(&sim->world, 500))
        return YOLK_OK;
    *size = sim_world_below(&sim->world, *size / SECTOR + 1) * SECTOR;
    sim_world_mark(&sim->world, full ? SIM_MARK_DISK_FULL : SIM_MARK_DISK_WRITE_FAILED);
    return full ? YOLK_ERR_NO_SPACE : YOLK_ERR_IO;
}

static int write_bytes(struct sim *sim, int node, const void *bytes, uint64_t size, uint64_t at)
{
    struct file *file = storage_file(disk_of(sim, node)->storage);
    int refused = refuse_write(sim, node, &size);
    int status = size > 0 ? file_pwrite(file, bytes, size, at) : YOLK_OK;
    return refused != YOLK_OK ? refused : status;
}

enum yolk_status sim_disk_write(struct sim *sim, int node, const uint8_t *bytes, uint64_t size,
                                uint64_t offset)
{
    return (enum yolk_status)write_bytes(sim, node, bytes, size,
                                         place_of(disk_of(sim, node), offset));
}

/* The promise that a lease gives, checked where it would be broken. */
static void check_not_read(struct sim *sim, int node, uint64_t offset)
{
    const struct sim_disk *disk = disk_of(sim, node);
    int read = 0;
    for (size_t i = 0; i < sim->transfer_count; i++) {
        const struct sim_transfer *t = &sim->transfers[i];
        read |= t->live && t->leased && t->node == node &&
                t->node_incarnation == sim->peers[node].incarnation && t->action.offset == offset;
    }
    for (int i = 0; i < SIM_IOS; i++)
        read |= disk->ios[i].leased && disk->ios[i].disk_offset == offset;
    if (read)
        sim_world_fail(&sim->world,
                       "the disk of node %d: the extent at %llu is written while it is read", node,
                       (unsigned long long)offset);
}

static void sum(struct sim *sim, int node, struct sim_io *io)
{
    io->checksum = base_crc32c(0, sim->peers[node].memory->bytes + io->memory_offset, io->size);
    io->summed = 1;
}

static void begin_move(struct sim *sim, int node, struct sim_io *io)
{
    assert(io->size <= SIM_EXTENT_UNIT && io->memory_offset + io->size <= SIM_SEGMENT);
    if (io->kind == SIM_IO_READ) {
        io->status = sim_disk_lease(sim, node, io->disk_offset, io->size, io->key_hash);
        io->leased = io->status == YOLK_OK;
        return;
    }
    check_not_read(sim, node, io->disk_offset);
    sim_kept_writing(disk_of(sim, node), io->disk_offset);
    if (sim_world_below(&sim->world, 2) == 0)
        sum(sim, node, io);
}

void sim_disk_begin_io(struct sim *sim, int node, const struct store_tier_output *output)
{
    static const enum sim_io_kind kinds[] = {[STORE_TIER_WRITE] = SIM_IO_WRITE,
                                             [STORE_TIER_READ] = SIM_IO_READ,
                                             [STORE_TIER_JOURNAL] = SIM_IO_JOURNAL,
                                             [STORE_TIER_SYNC] = SIM_IO_SYNC};
    struct sim_disk *disk = disk_of(sim, node);
    size_t index = 0;
    while (disk->ios[index].kind != SIM_IO_NONE)
        index++;
    assert(index < SIM_IOS);
    struct sim_io *io = &disk->ios[index];
    *io = (struct sim_io){.kind = kinds[output->kind],
                          .move = output->move,
                          .memory_offset = output->memory_offset,
                          .disk_offset = output->disk_offset,
                          .size = output->size,
                          .key_hash = output->key_hash,
                          .data = output->data,
                          .file_offset = output->file_offset};
    if (io->kind == SIM_IO_JOURNAL)
        io->size = output->data_size;
    if (io->kind == SIM_IO_WRITE || io->kind == SIM_IO_READ)
        begin_move(sim, node, io);
    if (io->kind == SIM_IO_SYNC)
        sim_kept_sync_began(disk);
    schedule(sim, node, index);
}

/* ---- what moves at one step; 1: all of it is over ---- */

static int step_write(struct sim *sim, int node, struct sim_io *io)
{
    struct sim_disk *disk = disk_of(sim, node);
    uint8_t piece[PIECE];
    uint64_t left = io->size - io->done;
    uint64_t size = left < PIECE ? left : PIECE;
    memset(piece, 0x77, sizeof piece); /* what pads the last one */
    memcpy(piece, sim->peers[node].memory->bytes + io->memory_offset + io->done, size);
    io->status = write_bytes(sim, node, piece, PIECE, place_of(disk, io->disk_offset) + io->done);
    io->done += size;
    if (io->status == YOLK_OK && io->done < io->size)
        return 0;
    if (!io->summed)
        sum(sim, node, io);
    return 1;
}

static int step_read(struct sim *sim, int node, struct sim_io *io)
{
    uint8_t *memory = sim->peers[node].memory->bytes + io->memory_offset;
    uint64_t left = io->size - io->done;
    uint64_t size = left < PIECE ? left : PIECE;
    if (io->status == YOLK_OK)
        io->status = sim_disk_read(sim, node, io->disk_offset + io->done, memory + io->done, size);
    io->done += size;
    if (io->status == YOLK_OK && io->done < io->size)
        return 0;
    if (io->status == YOLK_OK)
        sum(sim, node, io);
    return 1;
}

/* A sync covers what was written before it began, and perhaps more: it is performed either at its
 * beginning or at its end. */
static int step_sync(struct sim *sim, int node, struct sim_io *io)
{
    if (!io->ready) {
        io->ready = 1;
        io->status = YOLK_OK;
        if (sim_disk_is_failing(sim, node, SIM_DISK_FAIL_SYNC) &&
            sim_world_chance(&sim->world, 700)) {
            sim_world_mark(&sim->world, SIM_MARK_DISK_SYNC_FAILED);
            io->status = YOLK_ERR_IO;
        } else {
            io->status = file_fdatasync(storage_file(disk_of(sim, node)->storage));
        }
        return sim_world_below(&sim->world, 2) == 0;
    }
    return 1;
}

static void tell(struct sim *sim, int node, const struct sim_io *io)
{
    struct sim_disk *disk = disk_of(sim, node);
    uint64_t now = sim->world.now_ns;
    enum yolk_status status = (enum yolk_status)io->status;
    switch (io->kind) {
    case SIM_IO_WRITE:
        if (status == YOLK_OK)
            sim_kept_written(disk, io);
        store_tier_moved(disk->tier, now, io->move, status, io->checksum);
        break;
    case SIM_IO_READ:
        if (io->leased)
            storage_unlease(disk->storage, io->disk_offset);
        store_tier_moved(disk->tier, now, io->move, status, io->checksum);
        break;
    case SIM_IO_JOURNAL:
        store_tier_journaled(disk->tier, now, status);
        if (status != YOLK_OK)
            sim_kept_failed(disk, now);
        break;
    case SIM_IO_SYNC:
        store_tier_synced(disk->tier, now, status);
        if (status == YOLK_OK)
            sim_kept_synced(disk, now);
        else
            sim_kept_failed(disk, now);
        break;
    case SIM_IO_NONE:
        break;
    }
}

/* 1: it is over. */
static int step(struct sim *sim, int node, struct sim_io *io)
{
    int over = 1;
    if (io->kind == SIM_IO_WRITE)
        over = step_write(sim, node, io);
    else if (io->kind == SIM_IO_READ)
        over = step_read(sim, node, io);
    else if (io->kind == SIM_IO_SYNC)
        over = step_sync(sim, node, io);
    else
        io->status = write_bytes(sim, node, io->data, io->size, io->file_offset);
    if (!over)
        return 0;
    struct sim_io ended = *io;
    io->kind = SIM_IO_NONE;
    io->leased = 0;
    tell(sim, node, &ended);
    if (sim->peers[node].gds != NULL)
        sim_gds_look(sim, node);
    return 1;
}

void sim_disk_step(struct sim *sim, int node, size_t io)
{
    if (step(sim, node, &disk_of(sim, node)->ios[io]))
        sim_peer_drive(sim, node);
    else
        schedule(sim, node, io);
}

void sim_disk_finish_all(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    for (int i = 0; i < SIM_IOS; i++) {
        while (disk->ios[i].kind != SIM_IO_NONE && !step(sim, node, &disk->ios[i])) {
        }
    }
}

/* ---- ends and harm ---- */

void sim_disk_cut_off(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    struct file *file = storage_file(disk->storage);
    for (int i = 0; i < SIM_IOS; i++) {
        const struct sim_io *io = &disk->ios[i];
        int journal = io->kind == SIM_IO_JOURNAL;
        if (!journal && io->kind != SIM_IO_WRITE)
            continue;
        const uint8_t *from =
            journal ? io->data : sim->peers[node].memory->bytes + io->memory_offset;
        uint64_t to = journal ? io->file_offset : place_of(disk, io->disk_offset);
        for (uint64_t at = io->done; at < io->size; at += SECTOR) {
            uint64_t size = io->size - at < SECTOR ? io->size - at : SECTOR;
            if (sim_world_below(&sim->world, 2) == 0 &&
                file_pwrite(file, from + at, size, to + at) != YOLK_OK)
                sim_world_fail(&sim->world, "a simulated file could not be written");
        }
    }
}

static void rot_unit(struct sim *sim, int node, uint64_t unit)
{
    struct sim_disk *disk = disk_of(sim, node);
    struct sim_kept *kept = &disk->kept[unit];
    struct file *file = storage_file(disk->storage);
    uint64_t at = place_of(disk, unit * SIM_EXTENT_UNIT) + sim_world_below(&sim->world, kept->size);
    uint8_t byte = 0;
    size_t got = 0;
    int status = file_pread(file, &byte, 1, at, &got);
    byte ^= (uint8_t)(1u << sim_world_below(&sim->world, 8));
    if (status == YOLK_OK)
        status = file_pwrite(file, &byte, 1, at);
    if (status != YOLK_OK)
        sim_world_fail(&sim->world, "a simulated file could not be harmed");
    kept->rotten = 1;
    sim_world_mark(&sim->world, SIM_MARK_BIT_ROT);
}

void sim_disk_rot(struct sim *sim, int node)
{
    struct sim_disk *disk = disk_of(sim, node);
    if (!sim->peers[node].alive || !disk->present)
        return;
    sim_kept_look(disk);
    for (uint64_t unit = 0; unit < disk->extents; unit++) {
        if (disk->kept[unit].state >= SIM_KEPT_COMMITTED && sim_world_below(&sim->world, 2) == 0)
            rot_unit(sim, node, unit);
    }
}
