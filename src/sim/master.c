/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>

#include "sim/cluster.h"
#include "wire/msg.h"

static void send_out(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                     const uint8_t *body, size_t size)
{
    sim_send_to_peer(self, connection, kind, request_id, body, size);
}

static struct master_sink sink_of(struct sim *sim)
{
    return (struct master_sink){sim, send_out, NULL};
}

void sim_master_start(struct sim *sim)
{
    struct master_config config;
    master_config_default(&config);
    /* Short times, so that a few virtual seconds hold many lives of everything. */
    config.guard_ttl_ms = SIM_GUARD_MS;
    config.guard_margin_ms = 20;
    config.lease_ttl_ms = 200;
    config.put_timeout_ms = 400;
    config.heartbeat_ms = 50;
    config.session_ttl_ms = 400;
    config.lost_keep_ms = 5000;
    config.stall_ms = 100;
    config.resend_ms = 100;
    config.fact_batch = 4;
    config.fact_window = 2;
    config.step = 16;
    config.disk_lost_keep_ms = 3000;
    config.offload_wait_ms = 60;
    config.offload_watermark_ratio = 0.5;
    sim->master_incarnation++;
    enum yolk_status status =
        master_core_create(&config, sim->world.now_ns,
                           sim->world.seed ^ (sim->master_incarnation << 32), &sim->master);
    assert(status == YOLK_OK);
    sim->master_alive = 1;
    sim->master_tick_at_ns = 0;
    sim_master_tick(sim);
}

void sim_master_stop(struct sim *sim)
{
    struct master_stats stats;
    master_core_stats(sim->master, &stats);
    sim->world.marks[SIM_MARK_EVICTED] += stats.evictions;
    sim->world.marks[SIM_MARK_REVIVED] += stats.revived;
    sim->world.marks[SIM_MARK_OFFLOADED] += stats.offloads_done;
    sim->world.marks[SIM_MARK_OFFLOAD_SKIPPED] += stats.offload_skipped;
    sim->world.marks[SIM_MARK_MEMORY_EVICTED] += stats.memory_evictions;
    sim->world.marks[SIM_MARK_DISK_EVICTED] += stats.disk_evictions;
    sim->world.marks[SIM_MARK_PROMOTED] += stats.promotes_done;
    sim->world.marks[SIM_MARK_REPLICA_BAD] += stats.replica_bad;
    sim->world.marks[SIM_MARK_GDS_ONLY] += stats.gds_only;
    sim->world.marks[SIM_MARK_GDS_EVICTED] += stats.gds_evictions;
    sim->world.marks[SIM_MARK_GDS_ROOM] += stats.gds_rooms;
    if (stats.disk_conflicts > 0)
        sim_world_fail(&sim->world, "an owner reported a copy where it had reported another");
    const char *broken = master_core_check(sim->master);
    if (broken != NULL)
        sim_world_fail(&sim->world, "the master's books are wrong: %s", broken);
    master_core_destroy(sim->master);
    sim->master = NULL;
    sim->master_alive = 0;
    sim_break_connections(sim, SIM_MASTER);
}

void sim_master_tick(struct sim *sim)
{
    struct master_sink sink = sink_of(sim);
    uint64_t next = master_core_tick(sim->master, sim->world.now_ns, &sink);
    if (next == CLOCK_NEVER)
        return;
    if (next <= sim->world.now_ns)
        next = sim->world.now_ns + CLOCK_NS_PER_US;
    if (sim->master_tick_at_ns > sim->world.now_ns && sim->master_tick_at_ns <= next)
        return; /* an earlier one is under way */
    sim->master_tick_at_ns = next;
    sim_world_push(&sim->world, (struct sim_event){.at_ns = next,
                                                   .kind = SIM_MASTER_TICK,
                                                   .actor = SIM_MASTER,
                                                   .incarnation = sim->master_incarnation});
}

void sim_master_input(struct sim *sim, const struct sim_event *event)
{
    struct master_sink sink = sink_of(sim);
    struct wire_header header = {event->message, (uint32_t)event->body_size, event->request_id};
    enum yolk_status status =
        master_core_input(sim->master, sim->world.now_ns, event->id, &header, event->body, &sink);
    if (status == YOLK_ERR_PROTOCOL)
        sim_world_fail(&sim->world, "the master could not read a %s of a real client",
                       wire_kind_name(event->message));
    sim_master_tick(sim);
}

void sim_master_link_down(struct sim *sim, uint64_t connection)
{
    struct master_sink sink = sink_of(sim);
    master_core_disconnect(sim->master, sim->world.now_ns, connection, &sink);
}
