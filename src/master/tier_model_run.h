/* SPDX-License-Identifier: Apache-2.0 */
/* The client of tier_model.h's world, and a run in it. */
#ifndef YOLK_MASTER_TIER_MODEL_RUN_H
#define YOLK_MASTER_TIER_MODEL_RUN_H

#include "master/tier_model_gds.h"
#include "master/twin.h"

/* ---- the client ---- */

static void check_grant(const struct node *node, uint64_t offset, uint64_t size)
{
    uint64_t end = (offset + size + 63) / 64 * 64;
    for (uint32_t g = 0; g < w.get_count; g++)
        for (uint32_t i = 0; i < w.gets[g].count; i++)
            if (w.gets[g].until > w.kit.now && &w.nodes[w.gets[g].node[i]] == node &&
                w.gets[g].medium[i] == WIRE_MEDIUM_MEMORY && w.gets[g].offset[i] < end &&
                offset < w.gets[g].offset[i] + w.gets[g].size)
                fail_msg("memory given out under a reader");
    for (uint32_t t = 0; t < node->task_count; t++) {
        const struct task *task = &node->tasks[t];
        if (task->state < TASK_FINISHED && task->rec.offset < end &&
            offset < task->rec.offset + task->rec.size)
            fail_msg("memory given out under a task");
    }
    for (int n = 0; n < NODES; n++)
        for (uint32_t p = 0; p < w.nodes[n].put_count; p++) {
            const struct gds_put *put = &w.nodes[n].puts[p];
            if (put->in_memory && !put->over && node_by(put->at.segment) == node &&
                put->at.offset < end && offset < put->at.offset + put->size)
                fail_msg("memory given out under a writer");
        }
    for (uint32_t u = 0; u < UNITS; u++)
        if (node->mirror_key[u] != 0 && u * 64 < end && offset < u * 64 + node->mirror_size[u])
            fail_msg("memory given out that the mirror holds");
}

static void put(uint32_t key)
{
    struct wire_replica at;
    uint64_t op = ++w.op, size = rnd(3) ? 4096 - rnd(100) : 1 + rnd(1000);
    struct wire_result result = kit_put(&w.kit, 200, w.client, op, name_of(key), size, &at);
    if (result.status == YOLK_OK) {
        struct node *node = node_by(at.segment);
        assert_non_null(node);
        check_grant(node, at.offset, size);
        uint32_t content = ++w.contents % 65535 + 1;
        w.content_key[content] = key;
        for (uint64_t u = at.offset / 64; u < (at.offset + size + 63) / 64; u++)
            node->content[u] = content;
        if (kit_keys_call(&w.kit, 200, w.client, op, WIRE_PUT_END, name_of(key)) == YOLK_OK)
            w.value[key] = content;
    }
    pump(false);
}

static void get(uint32_t key)
{
    struct base_buf keys;
    struct wire_get_start_reply reply;
    if (w.get_count == GETS)
        return;
    (void)kit_keys(&keys, name_of(key));
    struct wire_get_start msg = {.request = {.session = w.client, .op = ++w.op},
                                 .keys = wire_view_buf(&keys)};
    kit_call(&w.kit, 200, WIRE_GET_START, &msg, &reply);
    base_buf_free(&keys);
    struct wire_result result = wire_result_at(reply.results, 0);
    if (result.status != YOLK_OK)
        return;
    struct get *get = &w.gets[w.get_count++];
    *get = (struct get){.op = w.op,
                        .until = w.kit.now + w.config.guard_ttl_ms * NS_PER_MS,
                        .count = result.replica_count,
                        .size = result.size};
    assert_in_range(get->count, 1, PLACES);
    struct wire_gdss list;
    struct wire_gds gds;
    bool given;
    assert_int_equal(wire_gdss_open(reply.gds, 1, &list), YOLK_OK);
    for (uint32_t i = 0; i < get->count; i++) {
        struct wire_replica at = wire_replica_at(reply.replicas, i);
        struct node *node = node_by(at.segment);
        if (node == NULL || (at.medium == WIRE_MEDIUM_MEMORY && node->memory != at.segment)) {
            get->count = i; /* of a killed node: the reader finds nobody */
            break;
        }
        get->node[i] = (uint32_t)(node - w.nodes);
        get->medium[i] = at.medium;
        get->offset[i] = at.offset;
        uint32_t content;
        if (at.medium == WIRE_MEDIUM_MEMORY) {
            /* Before the files. Two only after a restart, when each owner is believed. */
            assert_true(i == 0 || (w.old_values && get->medium[i - 1] == WIRE_MEDIUM_MEMORY));
            content = content_at(node, at.offset, result.size, key);
        } else if (at.medium == WIRE_MEDIUM_GDS) {
            const struct slot *slot = &node->gds_slots[at.offset / BLOCK];
            struct wire_gds own = gds_at(node, (uint32_t)(at.offset / BLOCK), result.size);
            assert_int_equal(i, get->count - 1); /* behind the others */
            assert_int_equal(slot->state, SLOT_COMMITTED);
            assert_int_equal(slot->size, result.size);
            assert_true(wire_gdss_next(&list, &gds, &given));
            assert_true(given && wire_gds_equal(&gds, &own));
            content = slot->content;
        } else {
            const struct slot *slot = &node->slots[at.offset / BLOCK];
            assert_int_equal(slot->state, SLOT_COMMITTED);
            assert_int_equal(slot->size, result.size);
            assert_int_equal(slot->content, at.checksum);
            content = slot->content;
        }
        assert_int_equal(w.content_key[content], key);
        if (!w.old_values)
            assert_int_equal(content, w.value[key]);
    }
    uint32_t first = get->count == 0 ? WIRE_MEDIUM_MEMORY : get->medium[0];
    w.hits[first == WIRE_MEDIUM_MEMORY ? 0 : first == WIRE_MEDIUM_LOCAL_DISK ? 1 : 2]++;
    pump(false);
}

static void end_gets(uint32_t keep)
{
    while (w.get_count > keep) {
        struct get *get = &w.gets[rnd(w.get_count)];
        uint8_t done[8];
        wire_set_u64(done, get->op);
        struct wire_plain_request beat = {
            .request = {.session = w.client, .done = wire_view_of(done, sizeof done)}};
        struct wire_status_reply reply;
        *get = w.gets[--w.get_count];
        kit_call(&w.kit, 200, WIRE_HEARTBEAT, &beat, &reply);
        assert_int_equal(reply.status, YOLK_OK);
    }
    pump(false);
}

static void remove_key(uint32_t key)
{
    int status = kit_force_remove(&w.kit, 200, w.client, name_of(key));
    assert_true(status == YOLK_OK || status == YOLK_ERR_NOT_FOUND);
    w.value[key] = 0;
    pump(false);
}

static void replica_bad(uint32_t key)
{
    struct base_buf keys, recs;
    struct node *node = &w.nodes[rnd(NODES)];
    uint32_t s = 0;
    while (s < SLOTS && (node->slots[s].state != SLOT_COMMITTED || node->slots[s].key != key))
        s++;
    if (s == SLOTS)
        return;
    struct wire_replica at = {.segment = node->disk, .offset = s * (uint64_t)BLOCK};
    (void)kit_keys(&keys, name_of(key));
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_replica_append(&recs, &at), YOLK_OK);
    struct wire_replica_bad msg = {.request = {.session = w.client},
                                   .keys = wire_view_buf(&keys),
                                   .replicas = wire_view_buf(&recs)};
    struct wire_results_reply reply;
    kit_call(&w.kit, 200, WIRE_REPLICA_BAD, &msg, &reply);
    base_buf_free(&keys);
    base_buf_free(&recs);
    pump(false);
}

/* ---- a run ---- */

static void pass(uint64_t ms)
{
    struct master_sink sink = {.self = &w.kit, .send = kit_on_send, .fact = kit_on_fact};
    w.kit.now += ms * NS_PER_MS;
    for (int i = 0; i < 4; i++) {
        (void)master_core_tick(w.kit.core, w.kit.now, &sink);
        pump(false);
    }
}

static void beat_all(void)
{
    for (int n = 0; n < NODES; n++) {
        struct node *node = &w.nodes[n];
        if (kit_beat(&w.kit, node->connection, node->session, 0) != YOLK_OK)
            join_again(node);
        pump(false);
    }
    if (kit_beat(&w.kit, 200, w.client, 0) != YOLK_OK)
        fail_msg("the client's session was lost");
}

static void restart_master(uint64_t seed)
{
    master_core_destroy(w.kit.core);
    w.kit.push_count = 0;
    assert_int_equal(master_core_create(&w.config, w.kit.now, seed, &w.kit.core), YOLK_OK);
    w.get_count = 0;
    w.old_values = true;
    for (uint32_t i = 0; i < LATE; i++)
        w.late[i].kind = 0;
    for (int n = 0; n < NODES; n++)
        join_again(&w.nodes[n]);
    w.client = open_session(255, 200, ++w.client_generation);
    pump(true);
}

static void step(bool restarts)
{
    uint32_t key = (uint32_t)rnd(KEYS);
    struct node *node = &w.nodes[rnd(NODES)];
    switch (rnd(24)) {
    case 0:
        remove_key(key);
        break;
    case 1:
        say_late();
        break;
    case 2:
        pass(rnd(40) == 0 ? rnd(300) : rnd(20));
        beat_all();
        break;
    case 3:
        if (rnd(20) == 0)
            replica_bad(key);
        break;
    case 4:
        if (rnd(30) == 0) { /* another connection */
            node->connection = ++w.next_connection;
            (void)kit_beat(&w.kit, node->connection, node->session, 0);
            pump(false);
        } else if (rnd(30) == 0) {
            join_again(node);
        } else if (rnd(40) == 0) {
            kill_node(node);
            join_again(node);
        } else if (restarts && rnd(150) == 0) {
            restart_master(rnd(1 << 30));
        }
        break;
    case 5:
    case 6:
        end_gets((uint32_t)rnd(GETS));
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        get(key);
        break;
    case 11:
    case 12:
    case 13:
        put(key);
        break;
    case 14:
    case 15:
        gds_step(node, key, check_grant);
        break;
    default:
        work(node);
    }
}

/* All is answered and acknowledged: nothing is in limbo, and no extent is known to one side only.
 */
static void settle(void)
{
    struct master_stats stats;
    end_gets(0);
    for (int i = 0; i < 400; i++) {
        for (int n = 0; n < NODES; n++) {
            work(&w.nodes[n]);
            sync_disk(&w.nodes[n]);
            gds_settle(&w.nodes[n]);
        }
        pass(30);
        beat_all();
    }
    master_core_stats(w.kit.core, &stats);
    uint64_t committed = 0, gds = 0;
    for (int n = 0; n < NODES; n++) {
        for (uint32_t s = 0; s < SLOTS; s++)
            committed += w.nodes[n].slots[s].state == SLOT_COMMITTED;
        for (uint32_t s = 0; s < GDS_SLOTS; s++) {
            gds += w.nodes[n].gds_slots[s].state == SLOT_COMMITTED;
            assert_true(w.nodes[n].gds_slots[s].state == SLOT_COMMITTED ||
                        w.nodes[n].gds_slots[s].state == SLOT_FREE);
        }
        assert_int_equal(w.nodes[n].put_count, 0);
    }
    assert_int_equal(stats.gds_live_bytes, gds * BLOCK);
    assert_int_equal(stats.gds_objects, gds);
    assert_int_equal(stats.gds_limbo_bytes, 0);
    assert_int_equal(stats.gds_open_bytes, 0);
    assert_int_equal(stats.disk_live_bytes, committed * BLOCK);
    assert_int_equal(stats.disk_limbo_bytes, 0);
    assert_int_equal(stats.limbo_bytes, 0);
    assert_int_equal(stats.open_bytes, 0);
    assert_int_equal(stats.tasks, 0);
    assert_int_equal(stats.disk_conflicts, 0);
    kit_check(w.kit.core);
}

static void run(uint64_t seed, int steps, bool restarts)
{
    memset(&w, 0, sizeof w);
    w.random = seed;
    w.config = (struct master_config){.guard_ttl_ms = 300,
                                      .guard_margin_ms = 20,
                                      .lease_ttl_ms = 50,
                                      .put_timeout_ms = 150,
                                      .session_ttl_ms = 1000,
                                      .lost_keep_ms = 2000,
                                      .resend_ms = 50,
                                      .offload_wait_ms = 200,
                                      .eviction_high_watermark_ratio = 0.9,
                                      .eviction_ratio = 0.2,
                                      .offload_watermark_ratio = 0.5};
    kit_init(&w.kit, &w.config);
    if (!restarts)
        twin_start();
    assert_int_equal(w.kit.push_count, 0);
    w.next_connection = 1000;
    w.client = open_session(255, 200, ++w.client_generation);
    for (int n = 0; n < NODES; n++) {
        w.nodes[n].client = ++w.next_client;
        join_again(&w.nodes[n]);
    }
    for (int i = 0; i < steps; i++) {
        step(restarts);
        if (i % 16 == 0)
            kit_check(w.kit.core);
        if (i % 16 == 0 && !restarts)
            twin_agrees(w.kit.core);
    }
    settle();
    if (!restarts) {
        twin_agrees(w.kit.core);
        twin_stop();
    }
    assert_true(w.hits[0] > 0 && w.hits[1] > 0 && w.hits[2] > 0 && w.offloads > 0 &&
                w.promotes > 0 && w.gds_only > 0 && w.gds_both > 0 && w.gds_freed > 0);
    for (uint32_t i = 0; i < LATE; i++)
        base_buf_free(&w.late[i].body);
    master_core_destroy(w.kit.core);
}

#endif
