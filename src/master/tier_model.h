/* SPDX-License-Identifier: Apache-2.0 */
/* The world of tier_model_test.c: its nodes with their memory, disks, GDS files and tasks, as their
 * owners have them. */
#ifndef YOLK_MASTER_TIER_MODEL_H
#define YOLK_MASTER_TIER_MODEL_H

#include <stdio.h>

#include "base/hash.h"
#include "master/test_kit.h"

enum {
    NODES = 2,
    KEYS = 90,
    BLOCK = 4096,
    UNITS = 16 * BLOCK / 64, /* of memory, a node */
    SLOTS = 20,              /* blocks of a disk */
    GDS_SLOTS = 24,          /* and of a GDS file */
    GDS_PUTS = 4,            /* under way, a node */
    TASKS = 300,
    GETS = 6,
    PLACES = NODES + 2, /* of a key: in each memory, on a disk, in a GDS file */
    LATE = 16,
};

enum slot_state { SLOT_FREE, SLOT_RESERVED, SLOT_COMMITTED, SLOT_DOOMED };
struct slot {
    enum slot_state state;
    uint32_t key, content;
    uint64_t size;
    uint64_t freed_seq; /* of the FACTS that freed what lay here before */
};

/* A put that a node has begun and not ended; its slot is RESERVED. */
struct gds_put {
    uint64_t op, size;
    uint32_t key, slot, content;
    bool in_memory;
    struct wire_replica at; /* in memory */
    bool over;              /* waits for FREED only */
};

enum task_state { TASK_QUEUED, TASK_MOVING, TASK_FINISHED, TASK_ANSWERED };
struct task {
    struct wire_task rec;
    enum task_state state;
    struct wire_task_done done;
    uint32_t key, slot;
};

struct node {
    uint8_t client;
    uint64_t generation, session, connection;
    uint64_t memory, disk; /* segments; 0: never mounted */
    uint8_t master[WIRE_ID_SIZE];
    uint32_t content[UNITS], mirror_key[UNITS]; /* key + 1 at its first unit */
    uint64_t mirror_size[UNITS];
    uint64_t memory_seq, disk_seq, acked_seq;
    struct slot slots[SLOTS], gds_slots[GDS_SLOTS];
    uint64_t gds; /* segment; 0: none */
    uint64_t gds_seq, gds_generation, op;
    struct gds_put puts[GDS_PUTS];
    uint32_t put_count;
    struct task tasks[TASKS];
    uint32_t task_count;
    uint64_t floor;
};

struct get {
    uint64_t op, until;
    uint32_t count, node[PLACES], medium[PLACES];
    uint64_t offset[PLACES], size;
};

/* A frame to the master that may come again. */
struct late {
    uint64_t connection;
    uint16_t kind;
    struct base_buf body;
};

static struct {
    struct kit kit;
    uint64_t random;
    struct master_config config;
    struct node nodes[NODES];
    uint64_t client, client_generation, op, next_connection;
    uint8_t next_client;
    struct get gets[GETS];
    uint32_t get_count;
    uint32_t contents, value[KEYS]; /* 0: none */
    uint32_t content_key[1 << 16];
    struct late late[LATE];
    bool old_values; /* the master has forgotten what was removed */
    uint64_t hits[3], offloads, promotes, kills, remounts;
    uint64_t gds_only, gds_both, gds_freed, gds_anew;
} w;

static uint64_t rnd(uint64_t below)
{
    w.random += 0x9e3779b97f4a7c15ull;
    return base_mix64(w.random) % below;
}

static const char *name_of(uint32_t key)
{
    static char name[8];
    snprintf(name, sizeof name, "k%02u", key);
    return name;
}

static uint32_t number_of(struct wire_view key)
{
    assert_int_equal(key.size, 3);
    return (uint32_t)(key.data[1] - '0') * 10 + (uint32_t)(key.data[2] - '0');
}

static struct node *node_by(uint64_t segment)
{
    for (int n = 0; n < NODES; n++)
        if (w.nodes[n].memory == segment || w.nodes[n].disk == segment || w.nodes[n].gds == segment)
            return &w.nodes[n];
    return NULL;
}

/* ---- to the master ---- */

static void say(struct node *node, uint16_t kind, const void *msg)
{
    struct late *late = &w.late[rnd(LATE)];
    base_buf_free(&late->body);
    *late = (struct late){node->connection, kind, kit_encode(kind, msg)};
    if (rnd(8) != 0)
        kit_raw(&w.kit, node->connection, kind, 0, msg);
}

static void say_late(void)
{
    struct late *late = &w.late[rnd(LATE)];
    struct master_sink sink = {.self = &w.kit, .send = kit_on_send, .fact = kit_on_fact};
    struct wire_header header = {late->kind, (uint32_t)late->body.size, 0};
    if (late->kind != 0)
        assert_int_equal(master_core_input(w.kit.core, w.kit.now, late->connection, &header,
                                           late->body.data, &sink),
                         YOLK_OK);
}

/* ---- the node's disk ---- */

static void check_unread_by_gets(const struct node *node, uint32_t medium, uint32_t slot)
{
    for (uint32_t g = 0; g < w.get_count; g++)
        for (uint32_t i = 0; i < w.gets[g].count; i++)
            if (w.gets[g].until > w.kit.now && &w.nodes[w.gets[g].node[i]] == node &&
                w.gets[g].medium[i] == medium && w.gets[g].offset[i] == slot * (uint64_t)BLOCK)
                fail_msg("freed under a reader");
}

/* Nobody may be reading what is freed: neither a get nor a promotion. */
static void check_unread(const struct node *node, uint32_t slot)
{
    check_unread_by_gets(node, WIRE_MEDIUM_LOCAL_DISK, slot);
    for (uint32_t t = 0; t < node->task_count; t++)
        if (node->tasks[t].rec.kind == WIRE_TASK_PROMOTE && node->tasks[t].state < TASK_FINISHED &&
            node->tasks[t].rec.disk_offset == slot * (uint64_t)BLOCK)
            fail_msg("freed on the disk under a promotion");
}

static void sync_disk(struct node *node)
{
    for (uint32_t s = 0; s < SLOTS; s++)
        if (node->slots[s].state == SLOT_DOOMED)
            node->slots[s].state = SLOT_FREE;
    node->acked_seq = node->disk_seq;
    struct wire_facts_ack ack = {node->disk, node->acked_seq};
    if (node->disk_seq > 0)
        say(node, WIRE_FACTS_ACK, &ack);
}

static void take_gds_facts(struct node *node, const struct wire_facts *facts);

static void take_facts(struct node *node, const struct wire_facts *facts)
{
    if (facts->segment == node->gds) {
        take_gds_facts(node, facts);
        return;
    }
    struct wire_keys keys;
    struct wire_view key = {0};
    bool disk = facts->segment == node->disk;
    uint64_t *seq = disk ? &node->disk_seq : &node->memory_seq;
    assert_int_equal(wire_keys_open(facts->keys, 4096, &keys), YOLK_OK);
    for (uint32_t i = 0; facts->seq == *seq + 1 && wire_keys_next(&keys, &key); i++) {
        struct wire_fact rec = wire_fact_at(facts->recs, i);
        if (disk) {
            struct slot *slot = &node->slots[rec.offset / BLOCK];
            assert_int_equal(rec.kind, WIRE_FACT_FREED);
            assert_int_equal(slot->state, SLOT_COMMITTED);
            check_unread(node, (uint32_t)(rec.offset / BLOCK));
            slot->state = SLOT_DOOMED;
            slot->freed_seq = facts->seq;
        } else if (rec.kind == WIRE_FACT_PLACED) {
            node->mirror_key[rec.offset / 64] = number_of(key) + 1;
            node->mirror_size[rec.offset / 64] = rec.size;
        } else if (rec.kind == WIRE_FACT_FREED) {
            node->mirror_key[rec.offset / 64] = 0;
        }
    }
    *seq += facts->seq == *seq + 1;
    struct wire_facts_ack ack = {facts->segment, *seq};
    if (!disk)
        say(node, WIRE_FACTS_ACK, &ack);
    else if (rnd(2))
        sync_disk(node);
}

static void forget_task(struct node *node, uint32_t at)
{
    struct task *task = &node->tasks[at];
    if (task->state == TASK_MOVING && task->rec.kind == WIRE_TASK_OFFLOAD)
        node->slots[task->slot].state = SLOT_FREE;
    *task = node->tasks[--node->task_count];
}

static void take_tasks(struct node *node, const struct wire_tasks *msg)
{
    struct wire_keys keys;
    struct wire_view key;
    if (msg->segment != node->memory || msg->disk != node->disk)
        return;
    if (msg->floor > node->floor)
        node->floor = msg->floor;
    for (uint32_t t = node->task_count; t-- > 0;)
        if (node->tasks[t].rec.id < node->floor) {
            assert_true(node->tasks[t].state >= TASK_FINISHED); /* it was answered */
            forget_task(node, t);
        }
    assert_int_equal(wire_keys_open(msg->keys, 4096, &keys), YOLK_OK);
    for (uint32_t i = 0; wire_keys_next(&keys, &key); i++) {
        struct wire_task rec = wire_task_at(msg->recs, i);
        uint32_t t = 0;
        while (t < node->task_count && node->tasks[t].rec.id != rec.id)
            t++;
        if (t < node->task_count) {
            if (node->tasks[t].state == TASK_ANSWERED)
                node->tasks[t].state = TASK_FINISHED;
            continue;
        }
        assert_true(rec.id < node->floor + 1024);
        if (rec.id < node->floor)
            continue;
        assert_true(node->task_count < TASKS);
        node->tasks[node->task_count++] = (struct task){.rec = rec, .key = number_of(key)};
    }
}

/* What lies in memory at a place: one content all over, of this key. */
static uint32_t content_at(const struct node *node, uint64_t offset, uint64_t size, uint32_t key)
{
    uint32_t content = node->content[offset / 64];
    for (uint64_t u = offset / 64; u < (offset + size + 63) / 64; u++)
        assert_int_equal(node->content[u], content);
    assert_int_equal(w.content_key[content], key);
    return content;
}

static void begin_task(struct node *node, struct task *task)
{
    task->state = TASK_MOVING;
    task->done = (struct wire_task_done){.id = task->rec.id};
    if (task->rec.kind == WIRE_TASK_PROMOTE)
        return;
    for (uint32_t s = 0; s < SLOTS; s++)
        if (node->slots[s].state == SLOT_FREE) {
            node->slots[s].state = SLOT_RESERVED;
            task->slot = s;
            return;
        }
    task->state = TASK_FINISHED;
    task->done.status = YOLK_ERR_NO_SPACE;
}

static void end_task(struct node *node, struct task *task)
{
    bool fails = rnd(10) == 0;
    task->state = TASK_FINISHED;
    if (task->rec.kind == WIRE_TASK_OFFLOAD) {
        struct slot *slot = &node->slots[task->slot];
        uint32_t content = content_at(node, task->rec.offset, task->rec.size, task->key);
        task->done.status = fails ? YOLK_ERR_IO : YOLK_OK;
        slot->state = fails ? SLOT_FREE : SLOT_COMMITTED;
        if (fails)
            return;
        slot->key = task->key;
        slot->content = content;
        slot->size = task->rec.size;
        task->done.disk_offset = task->slot * (uint64_t)BLOCK;
        task->done.disk_size = BLOCK;
        task->done.checksum = content;
        w.offloads++;
        return;
    }
    const struct slot *slot = &node->slots[task->rec.disk_offset / BLOCK];
    assert_int_equal(slot->state, SLOT_COMMITTED);
    assert_int_equal(slot->key, task->key);
    assert_int_equal(slot->content, task->rec.checksum);
    for (uint64_t u = task->rec.offset / 64; u < (task->rec.offset + task->rec.size + 63) / 64; u++)
        node->content[u] = slot->content;
    task->done.status = fails ? rnd(2) ? YOLK_ERR_IO : YOLK_ERR_CORRUPT : YOLK_OK;
    w.promotes += !fails;
}

static void answer_tasks(struct node *node)
{
    struct base_buf recs;
    base_buf_init(&recs, 1 << 20);
    for (uint32_t t = 0; t < node->task_count; t++) {
        struct task *task = &node->tasks[t];
        /* The answer comes after that to the FACTS which made the space free. */
        bool waits = task->rec.kind == WIRE_TASK_OFFLOAD && task->done.status == YOLK_OK &&
                     node->slots[task->slot].freed_seq > node->acked_seq;
        if (task->state != TASK_FINISHED || waits)
            continue;
        assert_int_equal(wire_task_done_append(&recs, &task->done), YOLK_OK);
        task->state = TASK_ANSWERED;
    }
    struct wire_tasks_done msg = {node->memory, wire_view_buf(&recs)};
    if (recs.size > 0)
        say(node, WIRE_TASKS_DONE, &msg);
    base_buf_free(&recs);
}

static void pump(bool all)
{
    for (uint32_t i = 0; i < w.kit.push_count; i++) {
        struct kit_frame f = w.kit.pushes[i];
        struct wire_facts facts;
        struct wire_tasks tasks;
        if (!all && rnd(10) == 0)
            continue;
        if (f.kind == WIRE_FACTS) {
            assert_int_equal(wire_decode(f.kind, f.body, f.size, &facts), YOLK_OK);
            struct node *node = node_by(facts.segment);
            if (node != NULL && node->connection == f.connection)
                take_facts(node, &facts);
        } else if (f.kind == WIRE_TASKS) {
            assert_int_equal(wire_decode(f.kind, f.body, f.size, &tasks), YOLK_OK);
            struct node *node = node_by(tasks.segment);
            if (node != NULL && node->connection == f.connection)
                take_tasks(node, &tasks);
        } else if (f.kind == WIRE_FENCE) {
            struct wire_fence fence;
            assert_int_equal(wire_decode(f.kind, f.body, f.size, &fence), YOLK_OK);
            kit_raw(&w.kit, f.connection, WIRE_FENCED, 0, &fence);
        }
    }
    w.kit.push_count = 0;
}

static void work(struct node *node)
{
    for (uint32_t t = 0; t < node->task_count; t++) {
        struct task *task = &node->tasks[t];
        if (task->state == TASK_QUEUED && rnd(2))
            begin_task(node, task);
        else if (task->state == TASK_MOVING && rnd(2))
            end_task(node, task);
    }
    if (rnd(4) == 0)
        sync_disk(node);
    if (rnd(2))
        answer_tasks(node);
    pump(false);
}

/* ---- mounts ---- */

static uint64_t open_session(uint8_t client, uint64_t connection, uint64_t generation)
{
    struct wire_session_open msg = {.generation = generation};
    struct wire_session_open_reply reply;
    msg.client_id[0] = client;
    kit_call(&w.kit, connection, WIRE_SESSION_OPEN, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.session;
}

static bool offer(struct node *node, uint64_t segment, uint32_t key, struct wire_offer at,
                  uint32_t count)
{
    struct base_buf keys, recs;
    struct wire_view view = wire_view_text(name_of(key));
    base_buf_init(&keys, 4096);
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_keys_build(&keys, &view, count), YOLK_OK);
    if (count > 0)
        assert_int_equal(wire_offer_append(&recs, &at), YOLK_OK);
    struct wire_mirror_offer msg = {.request = {.session = node->session},
                                    .segment = segment,
                                    .keys = wire_view_buf(&keys),
                                    .recs = wire_view_buf(&recs),
                                    .last = count == 0};
    struct wire_mirror_offer_reply reply;
    for (uint64_t times = rnd(3) == 0 ? 2 : 1; times > 0; times--)
        kit_call(&w.kit, node->connection, WIRE_MIRROR_OFFER, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    base_buf_free(&keys);
    base_buf_free(&recs);
    return reply.accepted == count;
}

static uint64_t mount(struct node *node, enum wire_medium medium)
{
    bool disk = medium == WIRE_MEDIUM_LOCAL_DISK, gds = medium == WIRE_MEDIUM_GDS;
    struct wire_segment_mount msg = {.request = {.session = node->session},
                                     .name = wire_view_text(disk  ? "d"
                                                            : gds ? "g"
                                                                  : "m"),
                                     .size = disk  ? SLOTS * BLOCK
                                             : gds ? GDS_SLOTS * BLOCK
                                                   : UNITS * 64,
                                     .generation = disk  ? node->disk
                                                   : gds ? node->gds
                                                         : node->memory,
                                     .mirror_count = 1,
                                     .medium = medium,
                                     .storage_generation = gds ? node->gds_generation : 0};
    struct wire_segment_mount_reply reply;
    memcpy(msg.prior_master, node->master, WIRE_ID_SIZE);
    msg.storage_id[0] = (uint8_t)(node - w.nodes + (gds ? 100 : 1));
    kit_call(&w.kit, node->connection, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.segment;
}

static void join_gds(struct node *node);
static bool offer_gds(struct node *node);

/* A session, the mounts, and all offers; now and then it breaks off in the middle. */
static bool join(struct node *node)
{
    node->connection = ++w.next_connection;
    node->session = open_session(node->client, node->connection, ++node->generation);
    while (node->task_count > 0)
        forget_task(node, 0);
    node->floor = node->memory_seq = node->disk_seq = node->acked_seq = 0;
    node->memory = mount(node, WIRE_MEDIUM_MEMORY);
    node->disk = mount(node, WIRE_MEDIUM_LOCAL_DISK);
    join_gds(node);
    memcpy(node->master, master_core_instance(w.kit.core), WIRE_ID_SIZE);
    for (uint32_t s = 0; s < SLOTS; s++)
        node->slots[s].freed_seq = 0;
    for (uint32_t u = 0; u < UNITS; u++) {
        struct wire_offer at = {u * 64ull, node->mirror_size[u], 0};
        if (node->mirror_key[u] != 0 && !offer(node, node->memory, node->mirror_key[u] - 1, at, 1))
            node->mirror_key[u] = 0;
    }
    (void)offer(node, node->memory, 0, (struct wire_offer){0}, 0);
    for (uint32_t s = 0; s < SLOTS; s++) {
        struct slot *slot = &node->slots[s];
        if (rnd(60) == 0)
            return false;
        if (slot->state == SLOT_COMMITTED &&
            !offer(node, node->disk, slot->key,
                   (struct wire_offer){s * (uint64_t)BLOCK, slot->size, slot->content}, 1))
            slot->state = SLOT_DOOMED;
    }
    (void)offer(node, node->disk, 0, (struct wire_offer){0}, 0);
    if (!offer_gds(node))
        return false;
    pump(false);
    return true;
}

static void join_again(struct node *node)
{
    while (!join(node))
        pump(false);
    w.remounts++;
}

static void kill_gds(struct node *node);

/* Its memory is lost, and deletes that were not on stable media are undone. */
static void kill_node(struct node *node)
{
    uint32_t at = (uint32_t)(node - w.nodes);
    while (node->task_count > 0)
        forget_task(node, 0);
    for (uint32_t s = 0; s < SLOTS; s++)
        if (node->slots[s].state == SLOT_DOOMED)
            node->slots[s].state = rnd(2) ? SLOT_COMMITTED : SLOT_FREE;
    memset(node->mirror_key, 0, sizeof node->mirror_key);
    memset(node->content, 0, sizeof node->content);
    kill_gds(node);
    node->memory = node->disk = node->gds = 0;
    node->client = ++w.next_client;
    for (uint32_t g = w.get_count; g-- > 0;)
        for (uint32_t i = 0; i < w.gets[g].count; i++)
            if (w.gets[g].node[i] == at)
                w.gets[g].until = 0;
    w.kills++;
}

#endif
