/* SPDX-License-Identifier: Apache-2.0 */
/* A process with a session: what its session machine asks for, performed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster.h"
#include "wire/msg.h"

static void start_node(struct sim_peer *peer, struct store_session_options *options)
{
    enum yolk_status status = store_mirror_create(&peer->mirror);
    assert(status == YOLK_OK);
    peer->memory = calloc(1, sizeof *peer->memory);
    assert(peer->memory != NULL);
    peer->memory->references = 1;
    memset(peer->memory->bytes, 0xee, SIM_SEGMENT);
    access_grant_init(&peer->grant, 0, SIM_SEGMENT, options->ticket_key, 1);
    options->segment_size = SIM_SEGMENT;
    options->endpoints = "sim=1";
    options->mirror = peer->mirror;
}

int sim_peer_start(struct sim *sim, int index)
{
    struct sim_peer *peer = &sim->peers[index];
    struct store_session_options options = {0};
    struct random dice = random_sim_random(&sim->world.dice);
    if (peer->disk.present && !sim_disk_open(sim, index))
        return 0;
    peer->index = index;
    peer->alive = 1;
    peer->paused_until_ns = 0;
    peer->incarnation++;
    peer->fence_count = 0;
    peer->leaving = 0;
    peer->writes_as = 0;
    peer->tick_at_ns = 0;
    peer->control = 0;
    snprintf(peer->name, sizeof peer->name, "%s%d", index < SIM_NODES ? "node" : "client", index);
    random_bytes(&dice, options.client_id, sizeof options.client_id);
    random_bytes(&dice, options.ticket_key, sizeof options.ticket_key);
    options.name = peer->name;
    options.backoff_first_ns = 5 * CLOCK_NS_PER_MS;
    options.backoff_max_ns = 50 * CLOCK_NS_PER_MS;
    options.reply_timeout_ns = 100 * CLOCK_NS_PER_MS;
    options.seed = random_u64(&dice);
    enum yolk_status status = store_holds_create(&peer->holds);
    assert(status == YOLK_OK);
    options.holds = peer->holds;
    if (index < SIM_NODES)
        start_node(peer, &options);
    if (peer->gds != NULL) {
        memcpy(peer->gds->file.client_id, options.client_id, sizeof options.client_id);
        options.gds = &peer->disk.mount;
    } else if (peer->disk.present) {
        options.disk = &peer->disk.mount;
    }
    status = store_session_create(&options, &peer->session);
    assert(status == YOLK_OK);
    sim_peer_drive(sim, index);
    if (index >= SIM_NODES) {
        for (int slot = 0; slot < SIM_SLOTS; slot++) {
            memset(&peer->slots[slot], 0, sizeof peer->slots[slot]);
            sim_world_push(&sim->world,
                           (struct sim_event){.at_ns = sim->world.now_ns + CLOCK_NS_PER_MS,
                                              .kind = SIM_SLOT_START,
                                              .actor = index,
                                              .incarnation = peer->incarnation,
                                              .id = (uint64_t)slot});
        }
    }
    return 1;
}

static void end_slots(struct sim_peer *peer)
{
    for (int slot = 0; slot < SIM_SLOTS; slot++) {
        store_get_destroy(peer->slots[slot].get);
        store_put_destroy(peer->slots[slot].put);
        memset(&peer->slots[slot], 0, sizeof peer->slots[slot]);
    }
}

void sim_peer_crash(struct sim *sim, int index, enum sim_end end)
{
    struct sim_peer *peer = &sim->peers[index];
    if (peer->gds == NULL && peer->disk.present)
        sim_disk_end(sim, index, end);
    peer->alive = 0;
    peer->incarnation++;
    sim_break_connections(sim, index);
    for (size_t i = 0; i < sim->transfer_count; i++) {
        struct sim_transfer *t = &sim->transfers[i];
        if (t->live && t->peer == index && !t->abandoned)
            sim_transfer_free(sim, t); /* its kernel closed all it had */
    }
    sim_memory_detach(sim, index, 0);
    end_slots(peer); /* what a dead process had reserved is nobody's; nothing of it is written */
    if (peer->gds != NULL)
        sim_disk_end(sim, index, end);
    store_session_destroy(peer->session);
    store_holds_destroy(peer->holds);
    peer->session = NULL;
    peer->holds = NULL;
    if (index < SIM_NODES) {
        store_mirror_destroy(peer->mirror);
        access_grant_free(&peer->grant);
        sim_memory_put(peer->memory);
        peer->mirror = NULL;
        peer->memory = NULL;
    }
}

static void note_segment(struct sim *sim, const struct sim_peer *peer, uint64_t segment, int disk)
{
    void *grown = realloc(sim->segments, (sim->segment_count + 1) * sizeof *sim->segments);
    assert(grown != NULL);
    sim->segments = grown;
    sim->segments[sim->segment_count].id = segment;
    sim->segments[sim->segment_count].disk = disk;
    sim->segments[sim->segment_count++].node = peer->index;
}

static void connect_later(struct sim *sim, struct sim_peer *peer)
{
    sim_world_push(&sim->world,
                   (struct sim_event){.at_ns = sim->world.now_ns + 100 * CLOCK_NS_PER_US +
                                               sim_world_below(&sim->world, CLOCK_NS_PER_MS),
                                      .kind = SIM_LINK_UP,
                                      .actor = peer->index,
                                      .incarnation = peer->incarnation});
}

void sim_peer_try_fences(struct sim *sim, int index)
{
    struct sim_peer *peer = &sim->peers[index];
    for (int i = 0; peer->alive && i < peer->fence_count; i++) {
        if (peer->memory != NULL && sim_memory_has_writer(sim, peer->memory, peer->fences[i]))
            continue;
        uint64_t session = peer->fences[i], segment = peer->fence_segments[i];
        peer->fence_count--;
        peer->fences[i] = peer->fences[peer->fence_count];
        peer->fence_segments[i] = peer->fence_segments[peer->fence_count];
        i = -1; /* from the start: the answer may have changed the list */
        sim_world_mark(&sim->world, SIM_MARK_SESSION_FENCED);
        store_session_fenced(peer->session, sim->world.now_ns, segment, session);
        sim_peer_drive(sim, index);
    }
}

static void fence(struct sim *sim, struct sim_peer *peer, uint64_t segment, uint64_t session)
{
    if ((peer->memory != NULL && access_grant_fence(&peer->grant, session) != YOLK_OK) ||
        (peer->disk.present && access_grant_fence(&peer->disk.grant, session) != YOLK_OK))
        return; /* no memory: the master asks again */
    for (int i = 0; i < peer->fence_count; i++) {
        if (peer->fences[i] == session && peer->fence_segments[i] == segment)
            return;
    }
    assert(peer->fence_count < SIM_ATTACHED_MAX);
    if (peer->memory != NULL && sim_memory_has_writer(sim, peer->memory, session))
        sim_world_mark(&sim->world, SIM_MARK_FENCE_WAITED);
    peer->fences[peer->fence_count] = session;
    peer->fence_segments[peer->fence_count++] = segment;
}

static void perform(struct sim *sim, struct sim_peer *peer, const struct store_session_output *o)
{
    switch (o->kind) {
    case STORE_SESSION_CONNECT:
        connect_later(sim, peer);
        break;
    case STORE_SESSION_DISCONNECT:
        sim_disconnect(sim, peer->control);
        peer->control = 0;
        break;
    case STORE_SESSION_SEND:
        sim_send_to_master(sim, peer->control, o->message, o->request_id, o->body, o->body_size);
        break;
    case STORE_SESSION_OPENED:
        sim_world_mark(&sim->world,
                       o->restarted ? SIM_MARK_SESSION_RESTARTED : SIM_MARK_SESSION_OPENED);
        peer->writes_as = o->session;
        if (!peer->leaving) /* then it may not have mounted anything */
            peer->known_to = sim->connections[peer->control - 1].master;
        sim_memory_detach(sim, peer->index, o->session);
        if (peer->disk.present)
            sim_disk_opened(sim, peer->index);
        break;
    case STORE_SESSION_EXPIRED:
        sim_world_mark(&sim->world, SIM_MARK_SESSION_EXPIRED);
        peer->writes_as = 0;
        sim_memory_detach(sim, peer->index, 0);
        store_session_quiet(peer->session, sim->world.now_ns);
        break;
    case STORE_SESSION_MOUNTED:
        access_grant_set_segment(&peer->grant, o->segment, peer->grant.ticket_key);
        note_segment(sim, peer, o->segment, 0);
        sim_world_mark(&sim->world, SIM_MARK_SEGMENT_MOUNTED);
        break;
    case STORE_SESSION_QUIET:
        store_tier_unmount(peer->disk.tier);
        peer->disk.quieting = 1;
        break;
    case STORE_SESSION_DISK_MOUNTED:
        sim_disk_mounted(sim, peer->index, o->segment);
        note_segment(sim, peer, o->segment, 1);
        break;
    case STORE_SESSION_GDS_MOUNTED:
        sim_gds_mounted(sim, peer->index, o->segment);
        note_segment(sim, peer, o->segment, 1);
        break;
    case STORE_SESSION_FENCE:
        fence(sim, peer, o->segment, o->session);
        break;
    case STORE_SESSION_PUT_EXPIRED:
        sim_world_mark(&sim->world, SIM_MARK_PUT_EXPIRED);
        break;
    case STORE_SESSION_UNMOUNTED:
        sim_world_mark(&sim->world, SIM_MARK_UNMOUNTED);
        store_session_close(peer->session, sim->world.now_ns);
        break;
    case STORE_SESSION_CLOSED:
        sim_fault_left(sim, peer->index, CLOCK_NS_PER_US);
        break;
    case STORE_SESSION_WAIT:
        break;
    }
}

void sim_peer_drive(struct sim *sim, int index)
{
    struct sim_peer *peer = &sim->peers[index];
    for (int turn = 0; peer->alive; turn++) {
        struct store_session_output output = {0};
        if (turn == 1000) {
            sim_world_fail(&sim->world, "the session of peer %d never waits", index);
            return;
        }
        store_session_next(peer->session, sim->world.now_ns, &output);
        perform(sim, peer, &output);
        if (output.kind != STORE_SESSION_WAIT || (peer->disk.present && sim_disk_drive(sim, index)))
            continue;
        if (output.deadline_ns == CLOCK_NEVER || output.deadline_ns == peer->tick_at_ns)
            break;
        peer->tick_at_ns =
            output.deadline_ns > sim->world.now_ns ? output.deadline_ns : sim->world.now_ns + 1000;
        sim_world_push(&sim->world, (struct sim_event){.at_ns = peer->tick_at_ns,
                                                       .kind = SIM_PEER_TICK,
                                                       .actor = index,
                                                       .incarnation = peer->incarnation});
        break;
    }
}
