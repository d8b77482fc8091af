/* SPDX-License-Identifier: Apache-2.0 */
/* The clients' load: gets, puts and removes of a few keys, run by the real machines, each judged
 * when it is over (promises R1 and R4). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster.h"
#include "wire/msg.h"

/* DRAIN: memory may become quiet so long after the deadline; the worker of a busy file library
 * alone takes up to 650 ms (transfer.c). */
enum { OPERATION_MS = 800, SPACE_MS = 300, DRAIN_MS = 1200 };

static struct sim_slot *slot_of(struct sim *sim, int peer, int slot)
{
    return &sim->peers[peer].slots[slot];
}

static void tick_at(struct sim *sim, int peer, int index, uint64_t at_ns)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    if (at_ns == CLOCK_NEVER || (slot->tick_at_ns > sim->world.now_ns && slot->tick_at_ns <= at_ns))
        return;
    slot->tick_at_ns = at_ns > sim->world.now_ns ? at_ns : sim->world.now_ns + CLOCK_NS_PER_US;
    sim_world_push(&sim->world, (struct sim_event){.at_ns = slot->tick_at_ns,
                                                   .kind = SIM_SLOT_TICK,
                                                   .actor = peer,
                                                   .incarnation = sim->peers[peer].incarnation,
                                                   .id = (uint64_t)index});
}

/* The master that knows what all nodes and GDS files have; 0: none does. */
static uint64_t known_to(const struct sim *sim)
{
    for (int peer = 1; peer < SIM_PEERS; peer++) {
        if ((peer < SIM_NODES || sim->peers[peer].disk.present) &&
            sim->peers[peer].known_to != sim->peers[0].known_to)
            return 0;
    }
    return sim->peers[0].known_to;
}

static void tuning_of(struct store_tuning *tuning)
{
    memset(tuning, 0, sizeof *tuning);
    store_tuning_init(tuning);
    tuning->window_bytes = 4000; /* several windows to an operation */
    tuning->reply_timeout_ns = 100 * CLOCK_NS_PER_MS;
    tuning->backoff_first_ns = CLOCK_NS_PER_MS;
    tuning->backoff_max_ns = 20 * CLOCK_NS_PER_MS;
}

static void set_item(struct sim_slot *slot, size_t i, int key)
{
    snprintf(slot->keys[i], sizeof slot->keys[i], "key-%d", key);
    slot->key_numbers[i] = key;
    slot->items[i] = (struct store_item){.key = slot->keys[i],
                                         .key_size = (uint32_t)strlen(slot->keys[i]),
                                         .size = SIM_VALUE_MAX,
                                         .result = INT64_MIN};
}

static void start_later(struct sim *sim, int peer, int index)
{
    sim_world_push(&sim->world,
                   (struct sim_event){.at_ns = sim->world.now_ns + 100 * CLOCK_NS_PER_US +
                                               sim_world_below(&sim->world, 10 * CLOCK_NS_PER_MS),
                                      .kind = SIM_SLOT_START,
                                      .actor = peer,
                                      .incarnation = sim->peers[peer].incarnation,
                                      .id = (uint64_t)index});
}

/* Pins, groups, and values put in the place of others. */
static void draw_how(struct sim *sim, struct sim_slot *slot, struct store_put_how *how)
{
    static const char *const groups[SIM_ITEMS] = {"a", "b", "", "a"};
    static const char *const preferred[] = {"node1"};
    uint64_t die = sim_world_below(&sim->world, 100);
    slot->upsert = die < 30;
    if (slot->upsert)
        how->flags |= WIRE_PUT_UPSERT;
    if (die % 10 == 0)
        how->flags |= WIRE_PUT_HARD_PIN;
    if (die % 10 < 3)
        how->soft_pin = 1;
    how->soft_pin_ttl_ms = 300;
    if (die % 4 == 0)
        how->groups = groups;
    if (die % 5 == 0) {
        how->preferred = preferred;
        how->preferred_count = 1;
    }
}

static uint64_t group_evictions(const struct sim *sim)
{
    struct master_stats stats = {0};
    if (sim->master_alive)
        master_core_stats(sim->master, &stats);
    return stats.group_evictions;
}

void sim_groups_look(struct sim *sim)
{
    sim->group_evictions = group_evictions(sim);
}

static bool groups_went(const struct sim *sim)
{
    return group_evictions(sim) != sim->group_evictions;
}

/* Where memory would always be first, no file would be read that is not alone. */
static uint32_t any_replica(void *self, const struct store_replica *replica)
{
    struct sim *sim = self;
    (void)replica;
    return (uint32_t)sim_world_below(&sim->world, 3);
}

static void begin(struct sim *sim, int peer, int index, enum sim_operation operation)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    struct store_tuning tuning;
    struct store_put_how how = {.replica_num = 1};
    enum yolk_status status = YOLK_OK;
    tuning_of(&tuning);
    slot->operation = operation;
    slot->done = 0;
    slot->request_id = 0;
    slot->begun_ns = sim->world.now_ns;
    slot->met_rot = 0;
    slot->upsert = 0;
    slot->commit_count = 0;
    slot->own_file = 0;
    slot->deadline_ns = sim->world.now_ns + OPERATION_MS * CLOCK_NS_PER_MS;
    slot->overdue_ns = slot->deadline_ns + DRAIN_MS * CLOCK_NS_PER_MS;
    if (operation == SIM_PUT) {
        slot->known_to = known_to(sim);
        for (size_t i = 0; i < slot->count; i++) {
            uint32_t size = SIM_VALUE_MIN +
                            (uint32_t)sim_world_below(&sim->world, SIM_VALUE_MAX - SIM_VALUE_MIN);
            slot->versions[i] = sim_version_new(sim, slot->key_numbers[i], size);
            slot->items[i].size = size;
            sim_version_fill(slot->versions[i], slot->buffers[i], size);
        }
        if (!slot->final)
            draw_how(sim, slot, &how);
        how.replica_num = 1 + (uint32_t)sim_world_below(&sim->world, 2);
        if (sim->peers[peer].gds != NULL) {
            how.gds = &sim->peers[peer].gds->reserver;
            how.gds_optional = slot->final || sim_world_below(&sim->world, 2) == 0;
        }
        status = store_put_create(sim->peers[peer].holds, &tuning, slot->items, slot->count, &how,
                                  sim->world.now_ns + SPACE_MS * CLOCK_NS_PER_MS, slot->deadline_ns,
                                  &slot->put);
    } else if (operation == SIM_GET) {
        for (size_t i = 0; i < slot->count; i++)
            memset(slot->buffers[i], 0xcc, SIM_VALUE_MAX);
        sim->any = (struct store_replica_choice){sim, any_replica};
        status = store_get_create(sim->peers[peer].holds, &tuning, sim->has_gds ? &sim->any : NULL,
                                  slot->items, slot->count, slot->deadline_ns, &slot->get);
    }
    if (status != YOLK_OK) { /* memory was refused: the caller is told at once */
        slot->operation = SIM_IDLE;
        start_later(sim, peer, index);
        return;
    }
    sim_slot_drive(sim, peer, index);
}

void sim_slot_start(struct sim *sim, int peer, int index)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    if (slot->operation != SIM_IDLE || !sim->load_on)
        return;
    uint64_t die = sim_world_below(&sim->world, 100);
    slot->final = 0;
    slot->count = die >= 95 ? 1 : 1 + sim_world_below(&sim->world, SIM_ITEMS);
    for (size_t i = 0; i < slot->count; i++)
        set_item(slot, i, (int)sim_world_below(&sim->world, SIM_KEYS));
    begin(sim, peer, index, die < 50 ? SIM_GET : die < 95 ? SIM_PUT : SIM_REMOVE);
}

void sim_slot_begin_final(struct sim *sim, int peer, int index, enum sim_operation operation,
                          int key)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    assert(slot->operation == SIM_IDLE);
    slot->final = 1;
    slot->count = 1;
    set_item(slot, 0, key);
    begin(sim, peer, index, operation);
}

static void judge_get(struct sim *sim, struct sim_slot *slot, size_t i)
{
    int64_t result = slot->items[i].result;
    if (result >= 0) {
        sim_world_mark(&sim->world, SIM_MARK_GET_HIT);
        const char *wrong =
            sim_version_check(sim, slot->key_numbers[i], slot->buffers[i], (uint64_t)result);
        if (slot->items[i].medium == WIRE_MEDIUM_LOCAL_DISK)
            sim_world_mark(&sim->world, SIM_MARK_DISK_HIT);
        if (slot->items[i].medium == WIRE_MEDIUM_GDS)
            sim_world_mark(&sim->world, slot->own_file ? SIM_MARK_GDS_HIT : SIM_MARK_GDS_HIT_OTHER);
        if (wrong != NULL)
            sim_world_fail(&sim->world, "R1: get of %s reported %s", slot->keys[i], wrong);
        uint64_t version;
        memcpy(&version, slot->buffers[i], sizeof version);
        if (wrong == NULL && sim_version_is_removed(sim, version, slot->begun_ns))
            sim_world_fail(&sim->world, "a value of %s that was removed came back", slot->keys[i]);
        if (wrong == NULL && sim_version_is_replaced(sim, version, slot->begun_ns))
            sim_world_fail(&sim->world, "a value of %s that was replaced came back", slot->keys[i]);
    } else if (result == YOLK_ERR_NOT_FOUND) {
        sim_world_mark(&sim->world, SIM_MARK_GET_MISS);
    } else {
        sim_world_mark(&sim->world, SIM_MARK_GET_FAILED);
    }
    /* Copies go on being made after the load, and what goes for one may take its group along. */
    bool may_miss = slot->met_rot || (result == YOLK_ERR_NOT_FOUND && groups_went(sim));
    if (slot->final && result < 0 && !may_miss)
        sim_world_fail(&sim->world, "R6: after healing, get of %s: %s", slot->keys[i],
                       yolk_strerror((enum yolk_status)result));
}

/* Done by one master, which knew all nodes from the beginning. */
static void note_upsert(struct sim *sim, const struct sim_slot *slot, size_t i)
{
    sim_world_mark(&sim->world, SIM_MARK_UPSERT_DONE);
    if (sim->master_alive && slot->known_to == sim->master_incarnation)
        sim->upserts[slot->key_numbers[i]] =
            (struct sim_removal){slot->begun_ns, sim->world.now_ns, sim->master_incarnation};
}

static void judge_put(struct sim *sim, struct sim_slot *slot, size_t i)
{
    int64_t result = slot->items[i].result;
    if (result >= 0) {
        sim_world_mark(&sim->world, SIM_MARK_PUT_DONE);
        sim->versions[slot->versions[i]].acked_ns = sim->world.now_ns;
        if (slot->upsert)
            note_upsert(sim, slot, i);
    } else if (result == YOLK_ERR_NO_SPACE) {
        sim_world_mark(&sim->world, SIM_MARK_PUT_NO_SPACE);
    } else {
        sim_world_mark(&sim->world, SIM_MARK_PUT_FAILED);
    }
    if (slot->final && result < 0)
        sim_world_fail(&sim->world, "R5: after healing, put of %s: %s", slot->keys[i],
                       yolk_strerror((enum yolk_status)result));
}

static void end(struct sim *sim, int peer, int index)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    for (size_t i = 0; i < slot->count && slot->operation != SIM_REMOVE; i++) {
        if (slot->items[i].result == INT64_MIN)
            sim_world_fail(&sim->world, "R4: %s ended without a result", slot->keys[i]);
        else if (slot->operation == SIM_GET)
            judge_get(sim, slot, i);
        else
            judge_put(sim, slot, i);
        sim_world_mix(&sim->world, &slot->items[i].result, sizeof slot->items[i].result);
    }
    store_get_destroy(slot->get);
    store_put_destroy(slot->put);
    slot->get = NULL;
    slot->put = NULL;
    slot->operation = SIM_IDLE;
    sim->peers[peer].operations++;
    start_later(sim, peer, index);
}

/* Also what a file has committed: who finds it after a crash offers it, as of a put whose end
 * nobody heard. */
static void may_be_read(struct sim *sim, const struct sim_slot *slot)
{
    for (size_t i = 0; i < slot->count; i++)
        sim->versions[slot->versions[i]].ended = 1;
}

static void send(struct sim *sim, int peer, int index, uint16_t message, const uint8_t *body,
                 size_t size, uint64_t reply_by_ns)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    if (slot->connection == 0)
        slot->connection = sim_connect(sim, peer, index);
    slot->request_id = ++sim->request_id;
    slot->reply_by_ns = reply_by_ns;
    slot->sent_at_ns = sim->world.now_ns;
    if (slot->connection == 0) {
        slot->reply_by_ns = sim->world.now_ns + CLOCK_NS_PER_MS; /* refused; known soon */
        return;
    }
    if (message == WIRE_PUT_END && slot->operation == SIM_PUT)
        may_be_read(sim, slot);
    sim_send_to_master(sim, slot->connection, message, slot->request_id, body, size);
}

static void drive_remove(struct sim *sim, int peer, int index)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    struct sim_peer *p = &sim->peers[peer];
    if (slot->done || sim->world.now_ns >= slot->deadline_ns) {
        end(sim, peer, index);
        return;
    }
    if (slot->request_id != 0) {
        tick_at(sim, peer, index, slot->reply_by_ns);
        return;
    }
    struct store_stamp stamp;
    struct base_buf keys, body;
    base_buf_init(&keys, 4096);
    base_buf_init(&body, 8192);
    store_holds_stamp(p->holds, &stamp);
    struct wire_view key = wire_view_of(slot->items[0].key, slot->items[0].key_size);
    int failed = wire_keys_build(&keys, &key, 1);
    struct wire_remove message = {
        .request = {.session = stamp.session,
                    .op = UINT64_C(1) << 62, /* names nothing that is held */
                    .floor = stamp.floor},
        .keys = wire_view_buf(&keys),
        .force = (uint32_t)sim_world_below(&sim->world, 2)};
    failed |= wire_encode(WIRE_REMOVE, &message, &body);
    slot->known_to = known_to(sim);
    if (failed != 0)
        slot->done = 1; /* memory was refused: the call fails */
    else
        send(sim, peer, index, WIRE_REMOVE, body.data, body.size, slot->deadline_ns);
    base_buf_free(&keys);
    base_buf_free(&body);
    tick_at(sim, peer, index, failed != 0 ? sim->world.now_ns : slot->reply_by_ns);
}

void sim_slot_drive(struct sim *sim, int peer, int index)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    if (slot->operation == SIM_IDLE)
        return;
    if (slot->request_id != 0 && sim->world.now_ns >= slot->reply_by_ns)
        sim_slot_link_lost(sim, peer, index);
    if (slot->operation == SIM_REMOVE) {
        drive_remove(sim, peer, index);
        return;
    }
    if (slot->commit_count > 0 && sim->world.now_ns >= slot->commit_by_ns) {
        sim_gds_look(sim, peer);
        return;
    }
    for (int turn = 0; slot->operation == SIM_GET || slot->operation == SIM_PUT; turn++) {
        struct store_action action = {0};
        if (turn == 1000) {
            sim_world_fail(&sim->world, "R4: an operation of peer %d never waits", peer);
            return;
        }
        if (slot->operation == SIM_GET)
            store_get_next(slot->get, sim->world.now_ns, &action);
        else
            store_put_next(slot->put, sim->world.now_ns, &action);
        if (action.kind == STORE_SEND) {
            send(sim, peer, index, action.message, action.body, action.body_size,
                 action.deadline_ns);
        } else if (action.kind == STORE_TRANSFER) {
            sim_transfer_start(sim, peer, index, slot->operation == SIM_PUT, &action);
        } else if (action.kind == STORE_COMMIT) {
            may_be_read(sim, slot);
            sim_gds_commit(sim, peer, index, &action);
        } else if (action.kind == STORE_DONE) {
            end(sim, peer, index);
            return;
        } else {
            uint64_t at = action.deadline_ns;
            if (slot->request_id != 0 && slot->reply_by_ns < at)
                at = slot->reply_by_ns;
            if (slot->commit_count > 0 && slot->commit_by_ns < at)
                at = slot->commit_by_ns;
            tick_at(sim, peer, index, at);
            return;
        }
    }
}

static void note_removal(struct sim *sim, const struct sim_slot *slot,
                         const struct sim_event *event)
{
    struct wire_results_reply reply;
    if (wire_decode(WIRE_REMOVE_REPLY, event->body, event->body_size, &reply) != YOLK_OK ||
        reply.status != YOLK_OK || reply.results.size != sizeof(int32_t) ||
        wire_i32s_at(reply.results, 0) != YOLK_OK)
        return;
    sim_world_mark(&sim->world, SIM_MARK_REMOVED);
    uint64_t master = sim->connections[slot->connection - 1].master;
    if (slot->known_to == master) /* else who comes later may bring the key again */
        sim->removals[slot->key_numbers[0]] =
            (struct sim_removal){slot->sent_at_ns, sim->world.now_ns, master};
}

void sim_slot_reply(struct sim *sim, int peer, int index, const struct sim_event *event)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    if (slot->request_id == 0 || event->request_id != slot->request_id)
        return; /* an answer to a message given up */
    slot->request_id = 0;
    if (slot->operation == SIM_GET) {
        store_get_reply(slot->get, sim->world.now_ns, event->message, event->body,
                        event->body_size);
    } else if (slot->operation == SIM_PUT) {
        store_put_reply(slot->put, sim->world.now_ns, event->message, event->body,
                        event->body_size);
    } else if (event->message == WIRE_REMOVE_REPLY) {
        slot->done = 1;
        note_removal(sim, slot, event);
    }
    sim_slot_drive(sim, peer, index);
}

void sim_slot_link_lost(struct sim *sim, int peer, int index)
{
    struct sim_slot *slot = slot_of(sim, peer, index);
    sim_disconnect(sim, slot->connection);
    slot->connection = 0;
    if (slot->request_id == 0)
        return;
    slot->request_id = 0;
    if (slot->operation == SIM_GET)
        store_get_link_lost(slot->get, sim->world.now_ns);
    else if (slot->operation == SIM_PUT)
        store_put_link_lost(slot->put, sim->world.now_ns);
    else
        slot->done = 1;
}
