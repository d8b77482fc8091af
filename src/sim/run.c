/* SPDX-License-Identifier: Apache-2.0 */
/* One seed: a safety phase with faults, then healing, then a phase in which everything must come
 * right. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster.h"
#include "wire/msg.h"

enum { SETTLE_MS = 8000, FINAL_MS = 3000, LOOKS_MAX = 4, EVENTS_MAX = 20000000 };

static uint64_t paused_until(const struct sim *sim, int actor)
{
    if (actor == SIM_MASTER)
        return sim->master_paused_until_ns;
    return actor < SIM_PEERS ? sim->peers[actor].paused_until_ns : 0;
}

static int is_for_an_earlier_life(const struct sim *sim, const struct sim_event *event)
{
    if (event->actor == SIM_PEERS || event->kind == SIM_RESTART)
        return 0;
    if (event->actor == SIM_MASTER)
        return !sim->master_alive || event->incarnation != sim->master_incarnation;
    return !sim->peers[event->actor].alive ||
           event->incarnation != sim->peers[event->actor].incarnation;
}

static void link_up(struct sim *sim, int index)
{
    struct sim_peer *peer = &sim->peers[index];
    peer->control = sim_connect(sim, index, -1);
    if (peer->control != 0)
        store_session_connected(peer->session, sim->world.now_ns,
                                master_core_instance(sim->master));
    else
        store_session_link_lost(peer->session, sim->world.now_ns);
    sim_peer_drive(sim, index);
}

static void link_down(struct sim *sim, const struct sim_event *event)
{
    struct sim_peer *peer = &sim->peers[event->actor];
    int slot = sim->connections[event->id - 1].slot;
    if (slot < 0 && peer->control == event->id) {
        peer->control = 0;
        store_session_link_lost(peer->session, sim->world.now_ns);
        sim_peer_drive(sim, event->actor);
    } else if (slot >= 0 && peer->slots[slot].connection == event->id) {
        sim_slot_link_lost(sim, event->actor, slot);
        sim_slot_drive(sim, event->actor, slot);
    }
}

static void frame_for_peer(struct sim *sim, const struct sim_event *event)
{
    struct sim_peer *peer = &sim->peers[event->actor];
    const struct sim_connection *c = &sim->connections[event->id - 1];
    if (!c->open)
        return;
    if (c->slot >= 0) {
        if (peer->slots[c->slot].connection == event->id)
            sim_slot_reply(sim, event->actor, c->slot, event);
        return;
    }
    if (peer->control != event->id)
        return;
    if (peer->gds != NULL)
        store_gds_input(&peer->gds->file, event->message, event->body, event->body_size);
    else if (peer->disk.present)
        store_tier_input(peer->disk.tier, event->message, event->body, event->body_size);
    store_session_input(peer->session, sim->world.now_ns, event->message, event->request_id,
                        event->body, event->body_size);
    if (peer->gds != NULL)
        sim_gds_look(sim, event->actor);
    sim_peer_drive(sim, event->actor);
    for (int node = 0; node < SIM_PEERS; node++) /* it may have let go of a mapping */
        sim_peer_try_fences(sim, node);
}

static void restart(struct sim *sim, int actor)
{
    if (actor == SIM_MASTER && !sim->master_alive)
        sim_master_start(sim);
    else if (actor != SIM_MASTER && !sim->peers[actor].alive && !sim_peer_start(sim, actor))
        sim_fault_restart_later(sim, actor);
}

/* Of several events for one alarm only that which was set last rings. */
static int rings(struct sim *sim, uint64_t *alarm_ns)
{
    if (*alarm_ns == 0 || *alarm_ns > sim->world.now_ns)
        return 0;
    *alarm_ns = 0;
    return 1;
}

static void handle(struct sim *sim, const struct sim_event *event)
{
    struct sim_peer *peer =
        event->actor >= 0 && event->actor < SIM_PEERS ? &sim->peers[event->actor] : NULL;
    switch (event->kind) {
    case SIM_TO_MASTER:
        sim_master_input(sim, event);
        break;
    case SIM_MASTER_TICK:
        if (rings(sim, &sim->master_tick_at_ns))
            sim_master_tick(sim);
        break;
    case SIM_TO_PEER:
        frame_for_peer(sim, event);
        break;
    case SIM_LINK_UP:
        link_up(sim, event->actor);
        break;
    case SIM_LINK_DOWN:
        if (event->actor == SIM_MASTER)
            sim_master_link_down(sim, event->id);
        else
            link_down(sim, event);
        break;
    case SIM_PEER_TICK:
        if (rings(sim, &peer->tick_at_ns))
            sim_peer_drive(sim, event->actor);
        break;
    case SIM_SLOT_TICK:
        if (rings(sim, &peer->slots[event->id].tick_at_ns))
            sim_slot_drive(sim, event->actor, (int)event->id);
        break;
    case SIM_SLOT_START:
        sim_slot_start(sim, event->actor, (int)event->id);
        break;
    case SIM_CHUNK:
        sim_transfer_step(sim, event->id);
        break;
    case SIM_FAULT:
        sim_fault_next(sim, (int)event->id);
        break;
    case SIM_DISK_IO:
        sim_disk_step(sim, event->actor, event->id);
        break;
    case SIM_DISK_TICK:
        if (rings(sim, &peer->disk.tick_at_ns))
            sim_peer_drive(sim, event->actor);
        break;
    case SIM_DISK_FRAME:
        sim_send_to_master(sim, peer->control, event->message, 0, event->body, event->body_size);
        break;
    case SIM_RESTART:
        restart(sim, event->actor);
        break;
    }
}

static void check_overdue(struct sim *sim)
{
    for (int peer = SIM_NODES; peer < SIM_PEERS; peer++) {
        for (int i = 0; i < SIM_SLOTS; i++) {
            struct sim_slot *slot = &sim->peers[peer].slots[i];
            if (sim->peers[peer].paused_until_ns != 0) /* its clock of patience stands still */
                slot->overdue_ns = sim->peers[peer].paused_until_ns + 3 * CLOCK_NS_PER_S;
            if (slot->operation != SIM_IDLE && sim->world.now_ns > slot->overdue_ns)
                sim_world_fail(&sim->world,
                               "R4: an operation of peer %d is not over after its deadline", peer);
        }
    }
}

static void mix_event(struct sim *sim, const struct sim_event *event)
{
    uint64_t words[5] = {event->at_ns, (uint64_t)event->kind << 32 | (uint32_t)event->actor,
                         event->id, event->message, event->body_size};
    sim_world_mix(&sim->world, words, sizeof words);
    if (event->body_size > 0)
        sim_world_mix(&sim->world, event->body, event->body_size);
}

/* Runs until the given time, or until the first failure. */
static void run_until(struct sim *sim, uint64_t end_ns)
{
    uint64_t events = 0;
    struct sim_event event;
    while (sim->world.failure[0] == 0 && sim->world.count > 0 &&
           sim->world.heap[0].at_ns <= end_ns) {
        if (!sim_world_pop(&sim->world, &event))
            break;
        for (int i = 0; i < SIM_PEERS; i++) {
            if (sim->peers[i].cut_from_master && sim->peers[i].cut_until_ns <= sim->world.now_ns)
                sim->peers[i].cut_from_master = 0;
            if (sim->peers[i].paused_until_ns <= sim->world.now_ns)
                sim->peers[i].paused_until_ns = 0;
        }
        if (is_for_an_earlier_life(sim, &event)) {
            free(event.body);
            continue;
        }
        uint64_t paused = paused_until(sim, event.actor);
        if (paused > sim->world.now_ns && event.kind != SIM_RESTART) {
            event.at_ns = paused;
            sim_world_push(&sim->world, event);
            continue;
        }
        mix_event(sim, &event);
        if (event.kind !=
            SIM_RESTART) /* a process that cannot start is one that did not restart yet */
            sim_fault_allocations(sim);
        handle(sim, &event);
        sim_fault_allocations(NULL);
        check_overdue(sim);
        if (sim->master_paused_until_ns <= sim->world.now_ns)
            sim->master_paused_until_ns = 0;
        free(event.body);
        if (++events == EVENTS_MAX)
            sim_world_fail(&sim->world, "events without end");
    }
    if (sim->world.failure[0] == 0)
        sim->world.now_ns = end_ns;
}

static void expect_zero(struct sim *sim, uint64_t value, const char *what)
{
    if (value != 0)
        sim_world_fail(&sim->world, "R6: after healing, %s: %llu", what, (unsigned long long)value);
}

static void check_settled(struct sim *sim)
{
    struct master_stats stats, counted;
    const char *broken = master_core_check(sim->master);
    if (broken != NULL)
        sim_world_fail(&sim->world, "the master's books are wrong: %s", broken);
    expect_zero(sim, master_core_recount(sim->master, &counted),
                "gauges that differ from a recount");
    master_core_stats(sim->master, &stats);
    uint64_t segments = SIM_NODES;
    for (int node = 0; node < SIM_PEERS; node++)
        segments += (uint64_t)sim->peers[node].disk.present;
    if (stats.segments_open != segments)
        sim_world_fail(&sim->world, "R6: after healing, %llu of %llu segments are open",
                       (unsigned long long)stats.segments_open, (unsigned long long)segments);
    expect_zero(sim, stats.zombies, "sessions not fenced");
    expect_zero(sim, stats.limbo_bytes, "bytes in limbo");
    expect_zero(sim, stats.open_bytes, "bytes of puts that are over");
    expect_zero(sim, stats.guards, "guards");
    expect_zero(sim, stats.disk_limbo_bytes, "bytes of disks in limbo");
    expect_zero(sim, stats.disk_lost_bytes, "bytes of lost disks");
    expect_zero(sim, stats.gds_limbo_bytes, "bytes of GDS files in limbo");
    expect_zero(sim, stats.gds_lost_bytes, "bytes of lost GDS files");
    expect_zero(sim, stats.gds_open_bytes, "bytes of puts in GDS files that are over");
    expect_zero(sim, stats.tasks, "tasks not answered");
    for (int peer = 0; peer < SIM_PEERS; peer++) {
        if (!store_session_is_open(sim->peers[peer].session))
            sim_world_fail(&sim->world, "R6: after healing, the session of peer %d is not open",
                           peer);
        else if (sim->peers[peer].disk.present)
            sim_disk_check_settled(sim, peer);
    }
}

/* What was given up only just now, for a copy that goes on being made, has its owner's answer to
 * come. */
static void settle(struct sim *sim)
{
    for (int look = 0; look < LOOKS_MAX && sim->world.failure[0] == 0; look++) {
        struct master_stats stats;
        master_core_stats(sim->master, &stats);
        if (stats.limbo_bytes + stats.disk_limbo_bytes + stats.gds_limbo_bytes + stats.tasks == 0)
            break;
        run_until(sim, sim->world.now_ns + SETTLE_MS / 32 * CLOCK_NS_PER_MS);
    }
    if (sim->world.failure[0] == 0)
        check_settled(sim);
}

/* What is on the disk of a node is served again after the node ended in whatever way, and the
 * master with it or not. Nothing evicts or removes meanwhile, and what was read wrong before was
 * dropped then; only what rotted unread may be missing. */
static void check_restart(struct sim *sim)
{
    int node = sim->has_gds ? SIM_NODES + (int)sim_world_below(&sim->world, SIM_CLIENTS)
                            : (int)sim_world_below(&sim->world, SIM_NODES);
    const struct sim_disk *disk = &sim->peers[node].disk;
    int keys[SIM_EXTENTS_MAX];
    int count = sim_disk_sound_keys(sim, node, keys);
    if (!disk->present)
        return;
    sim_groups_look(sim);
    sim_fault_end_peer(sim, node);
    if (sim_world_below(&sim->world, 3) == 0) {
        sim_fault_end_master(sim);
        sim->group_evictions = 0; /* another one counts anew */
    }
    run_until(sim, sim->world.now_ns + SETTLE_MS / 2 * CLOCK_NS_PER_MS);
    settle(sim);
    for (int i = 0; i < count && sim->world.failure[0] == 0; i++) {
        sim_slot_begin_final(sim, SIM_NODES + 1, 0, SIM_GET, keys[i]);
        run_until(sim, sim->world.now_ns + FINAL_MS * CLOCK_NS_PER_MS / 2);
    }
}

/* Every key can be put by one client and read by the other. */
static void check_final(struct sim *sim)
{
    for (int key = 0; key < SIM_KEYS && sim->world.failure[0] == 0; key++) {
        sim_groups_look(sim);
        sim_slot_begin_final(sim, SIM_NODES, 0, SIM_PUT, key);
        run_until(sim, sim->world.now_ns + FINAL_MS * CLOCK_NS_PER_MS / 2);
        if (sim->world.failure[0] != 0)
            return;
        sim_slot_begin_final(sim, SIM_NODES + 1, 0, SIM_GET, key);
        run_until(sim, sim->world.now_ns + FINAL_MS * CLOCK_NS_PER_MS / 2);
    }
}

static void start(struct sim *sim, uint64_t seed)
{
    sim_world_init(&sim->world, seed);
    sim->faults_on = 1;
    sim->load_on = 1;
    sim->drop_permille = sim_world_below(&sim->world, 6);
    sim->double_permille = sim_world_below(&sim->world, 20);
    sim->late_permille = sim_world_below(&sim->world, 20);
    for (int i = 0; i < SIM_CLIENTS; i++)
        sim->shm[i] = (int)sim_world_below(&sim->world, 2);
    sim->has_disks = sim_world_below(&sim->world, 3) > 0;
    for (int peer = SIM_NODES; peer < SIM_PEERS; peer++) {
        if (sim_gds_is_drawn(seed, peer)) {
            sim->has_gds = 1;
            sim_disk_create(sim, peer);
        }
    }
    for (int node = 0; sim->has_disks && node < SIM_NODES; node++) {
        if (node == 0 || sim_world_below(&sim->world, 4) > 0)
            sim_disk_create(sim, node);
    }
    sim_fault_draw(sim);
    sim_master_start(sim);
    for (int peer = 0; peer < SIM_PEERS; peer++)
        restart(sim, peer);
    sim_world_push(&sim->world,
                   (struct sim_event){.at_ns = sim->world.now_ns + 200 * CLOCK_NS_PER_MS,
                                      .kind = SIM_FAULT,
                                      .actor = SIM_PEERS});
}

static void finish(struct sim *sim)
{
    for (int peer = 0; peer < SIM_PEERS; peer++) {
        if (sim->peers[peer].alive)
            sim_peer_crash(sim, peer, SIM_KILLED);
    }
    if (sim->master_alive)
        sim_master_stop(sim);
    for (size_t i = 0; i < sim->transfer_count; i++) {
        if (sim->transfers[i].live)
            sim_transfer_free(sim, &sim->transfers[i]);
    }
    for (int node = 0; node < SIM_PEERS; node++)
        sim_disk_destroy(sim, node);
    sim_world_free(&sim->world);
    free(sim->connections);
    free(sim->transfers);
    free(sim->segments);
    free(sim->versions);
}

uint64_t sim_run(uint64_t seed, const struct sim_options *options, uint64_t marks[SIM_MARK_COUNT],
                 char *failure, size_t failure_size)
{
    struct sim *sim = calloc(1, sizeof *sim);
    assert(sim != NULL);
    start(sim, seed);
    run_until(sim, sim->world.now_ns + options->steps * CLOCK_NS_PER_MS);
    if (sim->world.failure[0] == 0) {
        sim_fault_heal(sim);
        run_until(sim, sim->world.now_ns + SETTLE_MS / 2 * CLOCK_NS_PER_MS);
        sim->load_on = 0;
        run_until(sim, sim->world.now_ns + SETTLE_MS / 2 * CLOCK_NS_PER_MS);
    }
    settle(sim);
    if (sim->world.failure[0] == 0)
        check_restart(sim);
    if (sim->world.failure[0] == 0)
        check_final(sim);
    uint64_t hash = sim->world.hash;
    finish(sim); /* may still find broken books, and counts the last master's figures */
    for (int i = 0; i < SIM_MARK_COUNT; i++)
        marks[i] += sim->world.marks[i];
    snprintf(failure, failure_size, "%s", sim->world.failure);
    free(sim);
    return hash;
}
