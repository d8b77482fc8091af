/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to the master, and frames on them: lost, late, doubled, overtaken. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster.h"

static struct sim_connection *connection_of(struct sim *sim, uint64_t id)
{
    return id != 0 && id <= sim->connection_count ? &sim->connections[id - 1] : NULL;
}

uint64_t sim_connect(struct sim *sim, int peer, int slot)
{
    if (!sim->master_alive || sim->peers[peer].cut_from_master)
        return 0;
    struct sim_connection *grown =
        realloc(sim->connections, (sim->connection_count + 1) * sizeof *sim->connections);
    assert(grown != NULL);
    sim->connections = grown;
    sim->connections[sim->connection_count++] = (struct sim_connection){
        peer, sim->peers[peer].incarnation, sim->master_incarnation, slot, 1};
    return sim->connection_count;
}

static void tell_master(struct sim *sim, uint64_t id)
{
    sim_world_push(&sim->world, (struct sim_event){.at_ns = sim->world.now_ns + 1 +
                                                            sim_world_below(&sim->world, 1000000),
                                                   .kind = SIM_LINK_DOWN,
                                                   .actor = SIM_MASTER,
                                                   .incarnation = connection_of(sim, id)->master,
                                                   .id = id});
}

static void notice_down(struct sim *sim, uint64_t id)
{
    const struct sim_connection *c = connection_of(sim, id);
    tell_master(sim, id);
    sim_world_push(&sim->world, (struct sim_event){.at_ns = sim->world.now_ns + 1 +
                                                            sim_world_below(&sim->world, 1000000),
                                                   .kind = SIM_LINK_DOWN,
                                                   .actor = c->peer,
                                                   .incarnation = c->incarnation,
                                                   .id = id});
}

void sim_disconnect(struct sim *sim, uint64_t id)
{
    struct sim_connection *c = connection_of(sim, id);
    if (c == NULL || !c->open)
        return;
    c->open = 0;
    tell_master(sim, id);
}

void sim_break_connections(struct sim *sim, int actor)
{
    for (uint64_t id = 1; id <= sim->connection_count; id++) {
        struct sim_connection *c = connection_of(sim, id);
        if (!c->open || (actor != SIM_MASTER && c->peer != actor))
            continue;
        c->open = 0;
        notice_down(sim, id);
    }
}

static uint64_t delay_of(struct sim *sim)
{
    uint64_t delay = 20 * CLOCK_NS_PER_US + sim_world_below(&sim->world, 100 * CLOCK_NS_PER_US);
    if (sim->faults_on && sim_world_chance(&sim->world, sim->late_permille)) {
        sim_world_mark(&sim->world, SIM_MARK_FRAME_LATE);
        delay += sim_world_below(&sim->world, 300 * CLOCK_NS_PER_MS);
    }
    return delay;
}

static void deliver(struct sim *sim, struct sim_event event, const uint8_t *body, size_t size)
{
    int copies = 1;
    if (sim->faults_on && sim_world_chance(&sim->world, sim->double_permille)) {
        sim_world_mark(&sim->world, SIM_MARK_FRAME_DOUBLED);
        copies = 2;
    }
    for (int i = 0; i < copies; i++) {
        event.at_ns = sim->world.now_ns + delay_of(sim);
        event.body = malloc(size + 1);
        assert(event.body != NULL);
        if (size > 0)
            memcpy(event.body, body, size);
        event.body_size = size;
        sim_world_push(&sim->world, event);
    }
}

/* A frame that is lost on a stream takes the stream with it. */
static int lost(struct sim *sim, uint64_t id)
{
    struct sim_connection *c = connection_of(sim, id);
    if (sim->peers[c->peer].cut_from_master ||
        (sim->faults_on && sim_world_chance(&sim->world, sim->drop_permille))) {
        sim_world_mark(&sim->world, SIM_MARK_FRAME_DROPPED);
        c->open = 0;
        notice_down(sim, id);
        return 1;
    }
    return 0;
}

void sim_send_to_master(struct sim *sim, uint64_t id, uint16_t message, uint64_t request_id,
                        const uint8_t *body, size_t size)
{
    const struct sim_connection *c = connection_of(sim, id);
    if (c == NULL || !c->open || c->master != sim->master_incarnation || lost(sim, id))
        return;
    deliver(sim,
            (struct sim_event){.kind = SIM_TO_MASTER,
                               .actor = SIM_MASTER,
                               .incarnation = sim->master_incarnation,
                               .id = id,
                               .message = message,
                               .request_id = request_id},
            body, size);
}

void sim_send_to_peer(struct sim *sim, uint64_t id, uint16_t message, uint64_t request_id,
                      const uint8_t *body, size_t size)
{
    const struct sim_connection *c = connection_of(sim, id);
    if (c == NULL || !c->open || lost(sim, id))
        return;
    deliver(sim,
            (struct sim_event){.kind = SIM_TO_PEER,
                               .actor = c->peer,
                               .incarnation = c->incarnation,
                               .id = id,
                               .message = message,
                               .request_id = request_id},
            body, size);
}
