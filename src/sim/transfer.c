/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on their way between a client's buffer and a node's memory, a piece at a time, so that
 * everything can happen in between. Two manners: shared memory (nobody asks once it is mapped) and
 * a stream (the node checks each access; a cut leaves a write of which the client cannot know). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "sim/cluster.h"
#include "wire/msg.h"

enum { CHUNK = 512 };

void sim_memory_put(struct sim_memory *memory)
{
    if (--memory->references == 0)
        free(memory);
}

static int is_writing(const struct sim *sim, int peer, const struct sim_memory *memory,
                      uint64_t session)
{
    for (size_t i = 0; i < sim->transfer_count; i++) {
        const struct sim_transfer *t = &sim->transfers[i];
        if (t->live && t->write && !t->abandoned && t->peer == peer && t->memory == memory &&
            t->action.session == session)
            return 1;
    }
    return 0;
}

void sim_memory_detach(struct sim *sim, int peer, uint64_t session)
{
    for (int node = 0; node < SIM_NODES; node++) {
        struct sim_memory *memory = sim->peers[node].memory;
        for (int i = 0; memory != NULL && i < memory->attached_count;) {
            if (memory->attached_peer[i] == peer && memory->attached[i] != session &&
                !is_writing(sim, peer, memory, memory->attached[i])) {
                memory->attached_count--;
                memory->attached[i] = memory->attached[memory->attached_count];
                memory->attached_peer[i] = memory->attached_peer[memory->attached_count];
            } else {
                i++;
            }
        }
    }
}

static void attach(struct sim_memory *memory, int peer, uint64_t session)
{
    for (int i = 0; i < memory->attached_count; i++) {
        if (memory->attached[i] == session && memory->attached_peer[i] == peer)
            return;
    }
    assert(memory->attached_count < SIM_ATTACHED_MAX);
    memory->attached[memory->attached_count] = session;
    memory->attached_peer[memory->attached_count++] = peer;
}

int sim_memory_has_writer(const struct sim *sim, const struct sim_memory *memory, uint64_t session)
{
    for (int i = 0; i < memory->attached_count; i++) {
        if (memory->attached[i] == session)
            return 1;
    }
    for (size_t i = 0; i < sim->transfer_count; i++) {
        const struct sim_transfer *t = &sim->transfers[i];
        if (t->live && t->write && t->checked && t->memory == memory &&
            t->action.session == session)
            return 1;
    }
    return 0;
}

static void end_lease(struct sim *sim, struct sim_transfer *t)
{
    const struct sim_peer *node = &sim->peers[t->node];
    if (t->leased && sim_gds_is_own(sim, t)) {
        sim_gds_unlease(sim, t);
    } else if (t->leased && node->alive && node->incarnation == t->node_incarnation) {
        struct storage_stats before, after;
        storage_stats(node->disk.storage, &before);
        storage_unlease(node->disk.storage, t->action.offset);
        storage_stats(node->disk.storage, &after);
        if (after.doomed < before.doomed)
            sim_world_mark(&sim->world, SIM_MARK_FREED_WAITED);
        sim_disk_wake(sim, t->node);
    }
    t->leased = 0;
}

void sim_transfer_end_leases(struct sim *sim, int node)
{
    for (size_t i = 0; i < sim->transfer_count; i++) {
        if (sim->transfers[i].live && sim->transfers[i].node == node)
            end_lease(sim, &sim->transfers[i]);
    }
}

void sim_transfer_free(struct sim *sim, struct sim_transfer *transfer)
{
    transfer->live = 0;
    end_lease(sim, transfer);
    batch_state_free(&transfer->batch);
    if (transfer->memory != NULL)
        sim_memory_put(transfer->memory);
    transfer->memory = NULL;
}

/* The engine's books: one request, one slice. */
static void keep_books(struct sim_transfer *t)
{
    bool no_memory = false;
    enum yolk_status status = batch_state_init(&t->batch, 1, 1, 1, CLOCK_NS_PER_S);
    assert(status == YOLK_OK);
    uint32_t task = batch_state_add(&t->batch, t->action.size, BATCH_NEVER, t->action.cookie);
    uint32_t slice = batch_state_take(&t->batch, task, t->action.size, &no_memory);
    assert(slice != BATCH_NONE && !no_memory);
    t->cookie = batch_state_cookie(&t->batch, slice);
}

/* Completions come twice now and then; the books must end the request once (promise R4). */
static void close_books(struct sim *sim, struct sim_transfer *t, enum yolk_status status)
{
    uint32_t task = 0;
    int times = sim_world_chance(&sim->world, 200) ? 2 : 1;
    for (int i = 0; i < times; i++)
        (void)batch_state_complete(&t->batch, sim->world.now_ns, t->cookie, status, t->moved,
                                   &task);
    if (times == 2)
        sim_world_mark(&sim->world, SIM_MARK_COMPLETION_DOUBLED);
    if (!t->batch.tasks[0].terminal || t->batch.tasks[0].terminal_events != 1)
        sim_world_fail(&sim->world, "R4: a request ended %u times",
                       t->batch.tasks[0].terminal_events);
}

static void schedule(struct sim *sim, size_t index)
{
    struct sim_transfer *t = &sim->transfers[index];
    uint64_t delay = 5 * CLOCK_NS_PER_US + sim_world_below(&sim->world, 200 * CLOCK_NS_PER_US);
    if (sim->faults_on && sim_world_chance(&sim->world, 10))
        delay += sim_world_below(&sim->world, 100 * CLOCK_NS_PER_MS); /* a slow one */
    if (t->leased && sim_disk_is_failing(sim, t->node, SIM_DISK_SLOW))
        delay += sim_world_below(&sim->world, 60 * CLOCK_NS_PER_MS);
    /* The worker of the file's library has other things to do first. */
    if (sim->load_on && t->moved == 0 && !t->checked && !t->write && sim_gds_is_own(sim, t) &&
        sim_world_chance(&sim->world, 200))
        delay += (150 + sim_world_below(&sim->world, 500)) * CLOCK_NS_PER_MS;
    /* What is under way in a network moves even if its sender is stopped or gone. */
    int actor = t->abandoned ? SIM_PEERS : t->peer;
    sim_world_push(
        &sim->world,
        (struct sim_event){.at_ns = sim->world.now_ns + delay,
                           .kind = SIM_CHUNK,
                           .actor = actor,
                           .incarnation = t->abandoned ? 0 : sim->peers[t->peer].incarnation,
                           .id = index});
}

static int node_of(const struct sim *sim, uint64_t segment, int disk)
{
    for (size_t i = sim->segment_count; i-- > 0;) {
        if (sim->segments[i].id == segment && sim->segments[i].disk == disk)
            return sim->segments[i].node;
    }
    return -1;
}

static void tell(struct sim *sim, const struct sim_transfer *t, enum yolk_status status)
{
    struct sim_slot *slot = &sim->peers[t->peer].slots[t->slot];
    if (t->write ? slot->put == NULL : slot->get == NULL)
        sim_world_fail(&sim->world, "a %s of peer %d ended before a transfer of it",
                       t->write ? "put" : "get", t->peer);
    else if (t->write)
        store_put_transferred(slot->put, sim->world.now_ns, t->action.cookie, status);
    else
        store_get_transferred(slot->get, sim->world.now_ns, t->action.cookie, status);
}

static int is_from_disk(const struct sim_transfer *t)
{
    return !t->write && t->action.medium != WIRE_MEDIUM_MEMORY;
}

/* What a disk gave is believed only with its checksum. Under one lease only harm done to the disk
 * explains a wrong one. */
static enum yolk_status verify(struct sim *sim, const struct sim_transfer *t,
                               enum yolk_status status)
{
    const struct sim_peer *node = &sim->peers[t->node];
    const uint8_t *bytes = sim->peers[t->peer].slots[t->slot].buffers[t->action.item];
    if (status == YOLK_ERR_STALE)
        sim_world_mark(&sim->world, SIM_MARK_DISK_STALE);
    /* Of what the processor never saw there is no checksum. */
    if (status != YOLK_OK || (t->action.medium == WIRE_MEDIUM_GDS && t->action.checksum == 0) ||
        base_crc32c(0, bytes, t->action.size) == t->action.checksum)
        return status;
    sim_world_mark(&sim->world, SIM_MARK_CORRUPT_FOUND);
    sim->peers[t->peer].slots[t->slot].met_rot = 1;
    if (t->leases == 1 && !node->disk.kept[t->action.offset / SIM_EXTENT_UNIT].rotten)
        sim_world_fail(&sim->world, "a value on the disk of node %d changed while it was leased",
                       t->node);
    return YOLK_ERR_CORRUPT;
}

static void finish(struct sim *sim, struct sim_transfer *t, enum yolk_status status)
{
    int peer = t->peer, slot = t->slot, abandoned = t->abandoned;
    if (is_from_disk(t))
        status = verify(sim, t, status);
    if (t->write && t->action.medium == WIRE_MEDIUM_GDS && !abandoned && status == YOLK_OK)
        sim_gds_written(sim, t);
    if (!t->write && sim_gds_is_own(sim, t))
        sim->peers[peer].slots[slot].own_file = 1;
    struct sim_transfer copy = *t;
    if (!abandoned)
        close_books(sim, t, status);
    if (!t->write && status == YOLK_OK &&
        sim->world.now_ns >
            sim->peers[peer].slots[slot].sent_at_ns + SIM_GUARD_MS * CLOCK_NS_PER_MS)
        sim_world_mark(&sim->world, SIM_MARK_READ_LATE);
    sim_transfer_free(sim, t);
    if (!abandoned) {
        tell(sim, &copy, status);
        sim_slot_drive(sim, peer, slot);
    }
    if (sim->peers[peer].alive)
        sim_memory_detach(sim, peer, sim->peers[peer].writes_as);
    for (int node = 0; node < SIM_PEERS; node++)
        sim_peer_try_fences(sim, node);
}

void sim_transfer_start(struct sim *sim, int peer, int slot, int write,
                        const struct store_action *action)
{
    size_t index = 0;
    while (index < sim->transfer_count && sim->transfers[index].live)
        index++;
    if (index == sim->transfer_count) {
        struct sim_transfer *grown =
            realloc(sim->transfers, (sim->transfer_count + 1) * sizeof *sim->transfers);
        assert(grown != NULL);
        sim->transfers = grown;
        sim->transfer_count++;
    }
    int disk = action->medium != WIRE_MEDIUM_MEMORY;
    int node = node_of(sim, action->segment, disk);
    assert(action->size > 0);
    sim->transfers[index] = (struct sim_transfer){.live = 1,
                                                  .peer = peer,
                                                  .slot = slot,
                                                  .node = node,
                                                  .write = write,
                                                  .shm = !disk && sim->shm[peer - SIM_NODES],
                                                  .action = *action};
    sim_fault_allocations(NULL); /* a request that gets no books never becomes one */
    keep_books(&sim->transfers[index]);
    sim_fault_allocations(sim);
    if (action->gds != NULL)
        sim->transfers[index].gds = *action->gds;
    if (node >= 0 && sim->peers[node].alive) {
        sim->transfers[index].memory = sim->peers[node].memory;
        if (sim->peers[node].memory != NULL)
            sim->peers[node].memory->references++;
        sim->transfers[index].node_incarnation = sim->peers[node].incarnation;
    }
    schedule(sim, index);
}

/* The provider's question, the real one. */
static enum yolk_status let_in(struct sim *sim, struct sim_transfer *t)
{
    struct yolk_ticket ticket = {
        .offset = t->action.offset, .size = t->action.size, .op = t->action.op};
    memcpy(ticket.mac, t->action.ticket, sizeof ticket.mac);
    struct yolk_access_request request = {.segment = t->action.segment,
                                          .session = t->action.session,
                                          .offset = t->action.offset,
                                          .size = t->action.size,
                                          .ticket = t->write ? &ticket : NULL,
                                          .opcode = t->write ? YOLK_WRITE : YOLK_READ};
    struct sim_peer *node = &sim->peers[t->node];
    int disk = is_from_disk(t);
    if (sim_gds_is_own(sim, t)) {
        enum yolk_status begun = sim_gds_begin(sim, t);
        t->checked = begun == YOLK_OK;
        return begun;
    }
    enum yolk_status status = access_check(disk ? &node->disk.grant : &node->grant, &request);
    if (status == YOLK_ERR_STALE)
        sim_world_mark(&sim->world, SIM_MARK_ACCESS_STALE);
    else if (status == YOLK_ERR_ACCESS)
        sim_world_mark(&sim->world, SIM_MARK_ACCESS_DENIED);
    if (status == YOLK_OK) {
        t->checked = 1;
        if (disk)
            status =
                sim_disk_lease(sim, t->node, t->action.offset, t->action.size, t->action.key_hash);
        t->leased = disk && status == YOLK_OK;
        t->leases += t->leased;
        if (t->shm && t->write)
            attach(t->memory, t->peer, t->action.session);
    }
    return status;
}

/* A value is read in slices, each under a lease of its own, at times by several requests. */
static enum yolk_status move_from_disk(struct sim *sim, struct sim_transfer *t)
{
    uint64_t size = t->action.size - t->moved < CHUNK ? t->action.size - t->moved : CHUNK;
    uint8_t *local = sim->peers[t->peer].slots[t->slot].buffers[t->action.item] + t->moved;
    if (sim_gds_is_own(sim, t))
        return sim_gds_move(sim, t, size);
    enum yolk_status status = sim_disk_read(sim, t->node, t->action.offset + t->moved, local, size);
    t->moved += size;
    if (sim_world_chance(&sim->world, 100) && t->moved < t->action.size) {
        end_lease(sim, t);
        t->checked = 0;
    }
    return status;
}

static void move(struct sim *sim, struct sim_transfer *t)
{
    uint64_t size = t->action.size - t->moved < CHUNK ? t->action.size - t->moved : CHUNK;
    uint8_t *local = sim->peers[t->peer].slots[t->slot].buffers[t->action.item] + t->moved;
    uint8_t *remote = t->memory->bytes + t->action.offset + t->moved;
    assert(t->action.offset + t->moved + size <= SIM_SEGMENT);
    if (t->write)
        memcpy(remote, local, size);
    else
        memcpy(local, remote, size);
    t->moved += size;
}

/* The stream is cut or its node dead. */
static int broken(const struct sim *sim, const struct sim_transfer *t)
{
    return !t->shm && t->node != t->peer &&
           (!sim->peers[t->node].alive || sim->peers[t->node].incarnation != t->node_incarnation ||
            sim->cut[t->peer][t->node]);
}

/* A write that may still be under way when its client is told: its last bytes land later, from a
 * copy. */
static void abandon(struct sim *sim, size_t index, enum yolk_status status)
{
    struct sim_transfer *t = &sim->transfers[index];
    struct sim_transfer copy = *t;
    int still_served =
        sim->peers[t->node].alive && sim->peers[t->node].incarnation == t->node_incarnation;
    if (!t->write || !t->checked || !still_served) {
        finish(sim, t, status);
        return;
    }
    t->abandoned = 1;
    close_books(sim, t, YOLK_ERR_STUCK);
    schedule(sim, index);
    tell(sim, &copy, YOLK_ERR_STUCK);
    sim_slot_drive(sim, copy.peer, copy.slot);
}

/* The last bytes of a write of which its client knows no more. */
static void land(struct sim *sim, struct sim_transfer *t)
{
    uint64_t garbage = UINT64_C(0x5a5a5a5a5a5a5a5a);
    uint64_t left = t->action.size - t->moved;
    if (t->action.medium == WIRE_MEDIUM_GDS) {
        if (sim->peers[t->node].alive && sim->peers[t->node].incarnation == t->node_incarnation)
            sim_gds_land(sim, t);
        finish(sim, t, YOLK_OK);
        return;
    }
    sim_world_mark(&sim->world, SIM_MARK_LATE_WRITE);
    memcpy(t->memory->bytes + t->action.offset + t->moved, &garbage, left < 8 ? left : 8);
    finish(sim, t, YOLK_OK);
}

static enum yolk_status admit(struct sim *sim, struct sim_transfer *t)
{
    if ((t->memory == NULL && t->action.medium == WIRE_MEDIUM_MEMORY) || t->node < 0 ||
        (!t->checked && !sim->peers[t->node].alive))
        return YOLK_ERR_PEER_DEAD;
    if (t->checked)
        return YOLK_OK;
    if (sim->peers[t->node].incarnation != t->node_incarnation) {
        /* The process of that address is another one by now; the connection is made to it. */
        if (t->memory != NULL)
            sim_memory_put(t->memory);
        t->memory = sim->peers[t->node].memory;
        if (t->memory != NULL)
            t->memory->references++;
        t->node_incarnation = sim->peers[t->node].incarnation;
    }
    return let_in(sim, t);
}

void sim_transfer_step(struct sim *sim, size_t index)
{
    struct sim_transfer *t = &sim->transfers[index];
    if (!t->live)
        return;
    if (t->abandoned) {
        land(sim, t);
        return;
    }
    enum yolk_status status = admit(sim, t);
    if (status != YOLK_OK) {
        finish(sim, t, status);
        return;
    }
    if (broken(sim, t)) {
        abandon(sim, index, YOLK_ERR_LINK);
        return;
    }
    if (sim->world.now_ns > t->action.deadline_ns) {
        if (t->shm || sim_gds_is_own(sim, t))
            finish(sim, t, YOLK_ERR_TIMEOUT);
        else
            abandon(sim, index, YOLK_ERR_TIMEOUT);
        return;
    }
    if (!t->shm && sim->peers[t->node].paused_until_ns > sim->world.now_ns) {
        schedule(sim, index); /* a stopped node neither reads nor writes its sockets */
        return;
    }
    if (t->action.medium != WIRE_MEDIUM_MEMORY)
        status = move_from_disk(sim, t);
    else
        move(sim, t);
    if (status == YOLK_ERR_STUCK) {
        abandon(sim, index, status);
        return;
    }
    if (status != YOLK_OK || t->moved == t->action.size)
        finish(sim, t, status);
    else
        schedule(sim, index);
}
