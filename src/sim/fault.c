/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong, drawn from the seed; and the healing of all of it. */
#include "base/alloc.h"
#include "sim/cluster.h"

/* Faults that wait for their moment: this and whom they hit name the event. */
enum { SOON_STOP = 1, SOON_END = 100, SOON_AT_DISK = 200, SOON_LEFT = 300 };

enum { DISK_FAULTS_FROM = 10, FAULTS = 17, LEAVE_MS = 400, GRACE_MS = 200 };

static uint64_t some_time(struct sim *sim, uint64_t below_ms)
{
    return sim->world.now_ns + CLOCK_NS_PER_MS +
           sim_world_below(&sim->world, below_ms * CLOCK_NS_PER_MS);
}

void sim_fault_restart_later(struct sim *sim, int actor)
{
    sim_world_push(&sim->world, (struct sim_event){.at_ns = some_time(sim, 600),
                                                   .kind = SIM_RESTART,
                                                   .actor = actor,
                                                   .incarnation = 0});
}

static void stop_peer(struct sim *sim, int peer, uint64_t longest_ms)
{
    sim->peers[peer].paused_until_ns = some_time(sim, longest_ms);
    sim_kept_stopped(&sim->peers[peer].disk, sim->world.now_ns, sim->peers[peer].paused_until_ns);
}

void sim_fault_end_peer(struct sim *sim, int peer)
{
    if (!sim->peers[peer].alive)
        return;
    enum sim_end end = SIM_KILLED;
    sim_world_mark(&sim->world, peer < SIM_NODES ? SIM_MARK_NODE_CRASHED : SIM_MARK_CLIENT_CRASHED);
    if (sim->peers[peer].leaving) {
        end = SIM_CLOSED;
    } else if (sim->peers[peer].disk.present) {
        static const enum sim_end ends[] = {SIM_KILLED, SIM_POWER_LOST, SIM_POWER_LOST, SIM_CLOSED};
        end = ends[sim_world_below(&sim->world, 4)];
        if (end == SIM_CLOSED && peer >= SIM_NODES) /* its calls would be over before */
            end = SIM_KILLED;
        sim_world_mark(&sim->world, end == SIM_KILLED       ? SIM_MARK_FILE_KEPT
                                    : end == SIM_POWER_LOST ? SIM_MARK_POWER_LOST
                                                            : SIM_MARK_FILE_CLOSED);
    }
    sim_peer_crash(sim, peer, end);
    sim_fault_restart_later(sim, peer);
    for (int node = 0; node < SIM_NODES; node++)
        sim_peer_try_fences(sim, node);
}

void sim_fault_end_master(struct sim *sim)
{
    if (!sim->master_alive)
        return;
    sim_world_mark(&sim->world, SIM_MARK_MASTER_CRASHED);
    sim_master_stop(sim);
    sim_fault_restart_later(sim, SIM_MASTER);
}

/* Stops a client for longer than every timeout, often; 0 if it moves no bytes just now. */
static int stop_client(struct sim *sim, int peer, int at_disk)
{
    int writing = 0, reading = 0;
    for (int other = SIM_NODES; other < SIM_PEERS; other++) {
        if (sim->peers[other].paused_until_ns != 0)
            return 0; /* somebody must go on, so that space is wanted */
    }
    for (size_t i = 0; i < sim->transfer_count; i++) {
        const struct sim_transfer *t = &sim->transfers[i];
        if (!t->live || t->abandoned || t->peer != peer || (at_disk && !t->leased))
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
    stop_peer(sim, peer, 1500);
    return 1;
}

/* Tries again in a moment: a stop is worth most in the middle of a transfer. */
static void stop_client_soon(struct sim *sim, int peer, int at_disk)
{
    if (stop_client(sim, peer, at_disk))
        return;
    sim_world_push(&sim->world, (struct sim_event){.at_ns = some_time(sim, 1),
                                                   .kind = SIM_FAULT,
                                                   .actor = SIM_PEERS,
                                                   .id = (uint64_t)(at_disk ? SOON_AT_DISK + peer
                                                                            : SOON_STOP + peer)});
}

static void trouble_disk(struct sim *sim, int node)
{
    if (sim->has_gds && sim_world_below(&sim->world, 2) == 0)
        node = SIM_NODES + (int)sim_world_below(&sim->world, SIM_CLIENTS);
    enum sim_disk_fault fault = (enum sim_disk_fault)sim_world_below(&sim->world, SIM_DISK_FAULTS);
    if (fault == SIM_DISK_SLOW && sim->peers[node].disk.present)
        sim_world_mark(&sim->world, SIM_MARK_DISK_SLOW);
    sim->peers[node].disk.until_ns[fault] = some_time(sim, 800);
}

/* An end is worth most with the disk at work. */
static void end_node_soon(struct sim *sim, int node)
{
    const struct sim_peer *peer = &sim->peers[node];
    int busy = 0;
    for (int i = 0; i < SIM_IOS; i++)
        busy |= peer->disk.ios[i].kind != SIM_IO_NONE;
    if (!peer->disk.present || !peer->alive || busy) {
        sim_fault_end_peer(sim, node);
        return;
    }
    sim_world_push(&sim->world, (struct sim_event){.at_ns = some_time(sim, 1),
                                                   .kind = SIM_FAULT,
                                                   .actor = SIM_PEERS,
                                                   .id = (uint64_t)(SOON_END + node)});
}

/* Gives its segments back, then its session, and ends; at the latest after a while. */
static void leave(struct sim *sim, int node)
{
    struct sim_peer *peer = &sim->peers[node];
    if (!peer->alive || peer->leaving)
        return;
    sim_world_mark(&sim->world, SIM_MARK_NODE_LEFT);
    peer->leaving = 1;
    store_session_unmount(peer->session, sim->world.now_ns, GRACE_MS);
    sim_fault_left(sim, node, LEAVE_MS * CLOCK_NS_PER_MS);
    sim_peer_drive(sim, node);
}

void sim_fault_left(struct sim *sim, int node, uint64_t after_ns)
{
    sim_world_push(&sim->world, (struct sim_event){.at_ns = sim->world.now_ns + after_ns,
                                                   .kind = SIM_FAULT,
                                                   .actor = SIM_PEERS,
                                                   .id = (uint64_t)(SOON_LEFT + node)});
}

void sim_fault_draw(struct sim *sim)
{
    sim->fault_gap_ms = 100 + sim_world_below(&sim->world, 400);
    for (int i = 0; i < FAULTS; i++)
        sim->faults_drawn |= (unsigned)(sim_world_below(&sim->world, 4) > 0) << i;
}

static void draw(struct sim *sim)
{
    int node = (int)sim_world_below(&sim->world, SIM_NODES);
    int client = SIM_NODES + (int)sim_world_below(&sim->world, SIM_CLIENTS);
    int peer = (int)sim_world_below(&sim->world, SIM_PEERS);
    uint64_t fault =
        sim_world_below(&sim->world, sim->has_disks || sim->has_gds ? FAULTS : DISK_FAULTS_FROM);
    switch (sim->faults_drawn & 1u << fault ? fault : FAULTS) {
    case 0:
    case 13:
        end_node_soon(sim, node);
        break;
    case 1:
        sim_fault_end_peer(sim, client);
        break;
    case 2:
        sim_fault_end_master(sim);
        break;
    case 3:
        sim_world_mark(&sim->world, SIM_MARK_MASTER_STALLED);
        sim->master_paused_until_ns = some_time(sim, 800);
        break;
    case 4:
        sim_world_mark(&sim->world, SIM_MARK_NODE_STOPPED);
        stop_peer(sim, node, 1000);
        break;
    case 5:
    case 6:
        stop_client_soon(sim, client, 0);
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
    case 9:
        leave(sim, node);
        break;
    case 10:
        sim_disk_rot(sim, node);
        break;
    case 11:
    case 12:
        trouble_disk(sim, node);
        break;
    case 14:
    case 15:
    case 16:
        stop_client_soon(sim, client, 1);
        break;
    }
}

void sim_fault_next(struct sim *sim, int soon)
{
    if (soon >= SOON_LEFT) {
        if (sim->peers[soon - SOON_LEFT].leaving)
            sim_fault_end_peer(sim, soon - SOON_LEFT);
    } else if (!sim->faults_on) {
        return;
    } else if (soon >= SOON_AT_DISK) {
        stop_client_soon(sim, soon - SOON_AT_DISK, 1);
    } else if (soon >= SOON_END) {
        end_node_soon(sim, soon - SOON_END);
    } else if (soon >= SOON_STOP) {
        stop_client_soon(sim, soon - SOON_STOP, 0);
    } else {
        draw(sim);
        sim_world_push(&sim->world, (struct sim_event){.at_ns = some_time(sim, sim->fault_gap_ms),
                                                       .kind = SIM_FAULT,
                                                       .actor = SIM_PEERS});
    }
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
        for (int fault = 0; fault < SIM_DISK_FAULTS; fault++)
            sim->peers[peer].disk.until_ns[fault] = 0;
    }
    sim->master_paused_until_ns = 0;
}
