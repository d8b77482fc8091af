/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong, drawn from the seed; and the healing of all of it. */
#include "base/alloc.h"
#include "sim/cluster.h"

static uint64_t some_time(struct sim *sim, uint64_t below_ms)
{
    return sim->world.now_ns + CLOCK_NS_PER_MS +
           sim_world_below(&sim->world, below_ms * CLOCK_NS_PER_MS);
}

static void restart_later(struct sim *sim, int actor)
{
    sim_world_push(&sim->world, (struct sim_event){.at_ns = some_time(sim, 600),
                                                   .kind = SIM_RESTART,
                                                   .actor = actor,
                                                   .incarnation = 0});
}

static void crash_peer(struct sim *sim, int peer, enum sim_mark mark)
{
    if (!sim->peers[peer].alive)
        return;
    sim_world_mark(&sim->world, mark);
    sim_peer_crash(sim, peer);
    restart_later(sim, peer);
    for (int node = 0; node < SIM_NODES; node++)
        sim_peer_try_fences(sim, node);
}

static void crash_master(struct sim *sim)
{
    if (!sim->master_alive)
        return;
    sim_world_mark(&sim->world, SIM_MARK_MASTER_CRASHED);
    sim_master_stop(sim);
    restart_later(sim, SIM_MASTER);
}

/* Stops a client for longer than every timeout, often; 0 if it moves no bytes just now. */
static int stop_client(struct sim *sim, int peer)
{
    int writing = 0, reading = 0;
    for (size_t i = 0; i < sim->transfer_count; i++) {
        const struct sim_transfer *t = &sim->transfers[i];
        if (!t->live || t->abandoned || t->peer != peer)
            continue;
        writing |= t->write;
        reading |= !t->write;
    }
    if (!writing && !reading)
        return 0;
    if (writing)
        sim_world_mark(&sim->world, SIM_MARK_WRITER_STOPPED);
    if (reading)
        sim_world_mark(&sim->world, SIM_MARK_READER_STOPPED);
    sim->peers[peer].paused_until_ns = some_time(sim, 1500);
    return 1;
}

/* Tries again in a moment: a stop is worth most in the middle of a transfer. */
static void stop_client_soon(struct sim *sim, int peer)
{
    if (stop_client(sim, peer))
        return;
    sim_world_push(&sim->world, (struct sim_event){.at_ns = some_time(sim, 1),
                                                   .kind = SIM_FAULT,
                                                   .actor = SIM_PEERS,
                                                   .id = (uint64_t)peer});
}

void sim_fault_next(struct sim *sim, int stop_peer)
{
    if (!sim->faults_on)
        return;
    if (stop_peer != 0) {
        stop_client_soon(sim, stop_peer);
        return;
    }
    int node = (int)sim_world_below(&sim->world, SIM_NODES);
    int client = SIM_NODES + (int)sim_world_below(&sim->world, SIM_CLIENTS);
    int peer = (int)sim_world_below(&sim->world, SIM_PEERS);
    switch (sim_world_below(&sim->world, 9)) {
    case 0:
        crash_peer(sim, node, SIM_MARK_NODE_CRASHED);
        break;
    case 1:
        crash_peer(sim, client, SIM_MARK_CLIENT_CRASHED);
        break;
    case 2:
        crash_master(sim);
        break;
    case 3:
        sim_world_mark(&sim->world, SIM_MARK_MASTER_STALLED);
        sim->master_paused_until_ns = some_time(sim, 800);
        break;
    case 4:
        sim_world_mark(&sim->world, SIM_MARK_NODE_STOPPED);
        sim->peers[node].paused_until_ns = some_time(sim, 1000);
        break;
    case 5:
    case 6:
        stop_client_soon(sim, client);
        break;
    case 7:
        sim_world_mark(&sim->world, SIM_MARK_PARTITION_MASTER);
        sim->peers[peer].cut_from_master = 1;
        sim->peers[peer].cut_until_ns = some_time(sim, 1000);
        sim_break_connections(sim, peer);
        break;
    case 8:
        sim_world_mark(&sim->world, SIM_MARK_PARTITION_PEERS);
        sim->cut[client][node] ^= 1;
        break;
    }
    sim_world_push(
        &sim->world,
        (struct sim_event){.at_ns = some_time(sim, 400), .kind = SIM_FAULT, .actor = SIM_PEERS});
}

static bool refuse_memory(void *self)
{
    struct sim *sim = self;
    if (!sim->faults_on || sim_world_below(&sim->world, 4000) != 0)
        return false;
    sim_world_mark(&sim->world, SIM_MARK_ALLOCATION_REFUSED);
    return true;
}

void sim_fault_allocations(struct sim *sim)
{
    base_alloc_set_hook(sim != NULL ? refuse_memory : NULL, sim);
}

void sim_fault_heal(struct sim *sim)
{
    sim->faults_on = 0;
    for (int peer = 0; peer < SIM_PEERS; peer++) {
        sim->peers[peer].cut_from_master = 0;
        sim->peers[peer].paused_until_ns = 0;
        for (int other = 0; other < SIM_PEERS; other++)
            sim->cut[peer][other] = 0;
    }
    sim->master_paused_until_ns = 0;
}
