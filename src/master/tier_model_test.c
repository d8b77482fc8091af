/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random nodes with memory and a disk, against the master: pushes and answers are lost, late and
 * repeated, copies fail, nodes are killed and come back with their disks, sessions and connections
 * are made anew, the master restarts. The model knows the bytes everywhere. What a get is told of
 * holds the key's last value; nothing that is read, copied or filled is given to others; in the end
 * both sides know of the same extents.
 */
#include <stdio.h>

#include "base/hash.h"
#include "master/test_kit.h"

enum {
    NODES = 2,
    KEYS = 90,
    BLOCK = 4096,
    UNITS = 16 * BLOCK / 64, /* of memory, a node */
    SLOTS = 20,              /* blocks of a disk */
    TASKS = 300,
    GETS = 6,
    LATE = 16,
};

enum slot_state { SLOT_FREE, SLOT_RESERVED, SLOT_COMMITTED, SLOT_DOOMED };
struct slot {
    enum slot_state state;
    uint32_t key, content;
    uint64_t size;
    uint64_t freed_seq; /* of the FACTS that freed what lay here before */
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
    struct slot slots[SLOTS];
    struct task tasks[TASKS];
    uint32_t task_count;
    uint64_t floor;
};

struct get {
    uint64_t op, until;
    uint32_t count, node[2], medium[2];
    uint64_t offset[2], size;
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
    uint64_t hits[2], offloads, promotes, kills, remounts;
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
        if (w.nodes[n].memory == segment || w.nodes[n].disk == segment)
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
    struct master_sink sink = {.self = &w.kit, .send = kit_on_send};
    struct wire_header header = {late->kind, (uint32_t)late->body.size, 0};
    if (late->kind != 0)
        assert_int_equal(master_core_input(w.kit.core, w.kit.now, late->connection, &header,
                                           late->body.data, &sink),
                         YOLK_OK);
}

/* ---- the node's disk ---- */

/* Nobody may be reading what is freed: neither a get nor a promotion. */
static void check_unread(const struct node *node, uint32_t slot)
{
    for (uint32_t g = 0; g < w.get_count; g++)
        for (uint32_t i = 0; i < w.gets[g].count; i++)
            if (w.gets[g].until > w.kit.now && &w.nodes[w.gets[g].node[i]] == node &&
                w.gets[g].medium[i] == WIRE_MEDIUM_LOCAL_DISK &&
                w.gets[g].offset[i] == slot * (uint64_t)BLOCK)
                fail_msg("freed on the disk under a reader");
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

static void take_facts(struct node *node, const struct wire_facts *facts)
{
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
            kit_raw(&w.kit, f.connection, WIRE_FENCED, 0, &(struct wire_fence){0});
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

static uint64_t mount(struct node *node, bool disk)
{
    struct wire_segment_mount msg = {.request = {.session = node->session},
                                     .name = wire_view_text(disk ? "d" : "m"),
                                     .size = disk ? SLOTS * BLOCK : UNITS * 64,
                                     .generation = disk ? node->disk : node->memory,
                                     .mirror_count = 1,
                                     .medium = disk ? WIRE_MEDIUM_LOCAL_DISK : WIRE_MEDIUM_MEMORY};
    struct wire_segment_mount_reply reply;
    memcpy(msg.prior_master, node->master, WIRE_ID_SIZE);
    msg.storage_id[0] = (uint8_t)(node - w.nodes + 1);
    kit_call(&w.kit, node->connection, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.segment;
}

/* A session, both mounts, and all offers; now and then it breaks off in the middle. */
static bool join(struct node *node)
{
    node->connection = ++w.next_connection;
    node->session = open_session(node->client, node->connection, ++node->generation);
    while (node->task_count > 0)
        forget_task(node, 0);
    node->floor = node->memory_seq = node->disk_seq = node->acked_seq = 0;
    node->memory = mount(node, false);
    node->disk = mount(node, true);
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
    pump(false);
    return true;
}

static void join_again(struct node *node)
{
    while (!join(node))
        pump(false);
    w.remounts++;
}

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
    node->memory = node->disk = 0;
    node->client = ++w.next_client;
    for (uint32_t g = w.get_count; g-- > 0;)
        for (uint32_t i = 0; i < w.gets[g].count; i++)
            if (w.gets[g].node[i] == at)
                w.gets[g].until = 0;
    w.kills++;
}

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
    assert_true(get->count == 1 || get->count == 2);
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
            assert_int_equal(i, 0); /* before the disk */
            content = content_at(node, at.offset, result.size, key);
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
    w.hits[get->count > 0 && get->medium[0] == WIRE_MEDIUM_LOCAL_DISK]++;
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
    struct master_sink sink = {.self = &w.kit, .send = kit_on_send};
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
    case 14:
        put(key);
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
        }
        pass(30);
        beat_all();
    }
    master_core_stats(w.kit.core, &stats);
    uint64_t committed = 0;
    for (int n = 0; n < NODES; n++)
        for (uint32_t s = 0; s < SLOTS; s++)
            committed += w.nodes[n].slots[s].state == SLOT_COMMITTED;
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
                                      .session_ttl_ms = 1000,
                                      .lost_keep_ms = 2000,
                                      .resend_ms = 50,
                                      .offload_wait_ms = 200,
                                      .eviction_high_watermark_ratio = 0.9,
                                      .eviction_ratio = 0.2,
                                      .offload_watermark_ratio = 0.5};
    kit_init(&w.kit, &w.config);
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
    }
    settle();
    assert_true(w.hits[0] > 0 && w.hits[1] > 0 && w.offloads > 0 && w.promotes > 0);
    for (uint32_t i = 0; i < LATE; i++)
        base_buf_free(&w.late[i].body);
    master_core_destroy(w.kit.core);
}

static void what_is_told_is_there(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run(seed, 10000, false);
}

static void also_when_the_master_restarts(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 115; seed++)
        run(seed, 10000, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_is_there),
        cmocka_unit_test(also_when_the_master_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
