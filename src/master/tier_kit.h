/* SPDX-License-Identifier: Apache-2.0 */
/* A node with memory and a disk below it, and its owner played by hand. */
#ifndef YOLK_MASTER_TIER_KIT_H
#define YOLK_MASTER_TIER_KIT_H

#include <stdio.h>

#include "master/policy.h"
#include "master/test_kit.h"

enum {
    VALUE = 4096,
    MEMORY = 16 * VALUE,
    DISK = 64 * VALUE,
    TASKS = 64,
};

struct task {
    struct wire_task rec;
    uint64_t memory, disk, floor;
    char key[16];
};

static struct kit kit;
static uint64_t owner, reader, memory, disk;
static uint64_t owner_connection; /* by which tasks are answered */
static struct task tasks[TASKS];  /* pushed, the oldest first */
static uint32_t task_count;
static uint64_t freed[64]; /* offsets on the disk that the owner was told of */
static uint32_t freed_count;
static uint64_t disk_seq; /* of the last FACTS of the disk */
static bool acks_disk;    /* at once */

/* Takes what was pushed: answers FACTS, keeps TASKS. */
UNUSED static void pump(void)
{
    for (uint32_t i = 0; i < kit.push_count; i++) {
        struct kit_frame f = kit.pushes[i];
        struct wire_facts facts;
        struct wire_tasks msg;
        struct wire_keys keys;
        struct wire_view key;
        if (f.kind == WIRE_FACTS) {
            assert_int_equal(wire_decode(WIRE_FACTS, f.body, f.size, &facts), YOLK_OK);
            struct wire_facts_ack ack = {facts.segment, facts.seq};
            bool again = facts.segment == disk && facts.seq <= disk_seq;
            for (uint32_t r = 0; facts.segment == disk && !again && r < wire_fact_count(facts.recs);
                 r++) {
                struct wire_fact fact = wire_fact_at(facts.recs, r);
                assert_int_equal(fact.kind, WIRE_FACT_FREED);
                freed[freed_count++] = fact.offset;
            }
            disk_seq = facts.segment == disk ? facts.seq : disk_seq;
            if (facts.segment != disk || acks_disk)
                kit_raw(&kit, f.connection, WIRE_FACTS_ACK, 0, &ack);
        } else if (f.kind == WIRE_TASKS) {
            assert_int_equal(wire_decode(WIRE_TASKS, f.body, f.size, &msg), YOLK_OK);
            assert_int_equal(wire_keys_open(msg.keys, 4096, &keys), YOLK_OK);
            assert_int_equal(keys.count, wire_task_count(msg.recs));
            for (uint32_t r = 0; wire_keys_next(&keys, &key); r++) {
                struct task *task = &tasks[task_count++];
                *task =
                    (struct task){wire_task_at(msg.recs, r), msg.segment, msg.disk, msg.floor, ""};
                snprintf(task->key, sizeof task->key, "%.*s", (int)key.size,
                         (const char *)key.data);
            }
        }
    }
    kit.push_count = 0;
}

UNUSED static struct task next_task(void)
{
    pump();
    assert_true(task_count > 0);
    struct task task = tasks[0];
    memmove(tasks, tasks + 1, --task_count * sizeof tasks[0]);
    return task;
}

UNUSED static bool no_task(void)
{
    pump();
    return task_count == 0;
}

UNUSED static void answer(uint64_t id, int status, uint64_t offset, uint64_t size,
                          uint32_t checksum)
{
    struct base_buf recs;
    struct wire_task_done done = {id, status, offset, size, checksum};
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_task_done_append(&recs, &done), YOLK_OK);
    struct wire_tasks_done msg = {memory, wire_view_buf(&recs)};
    kit_raw(&kit, owner_connection, WIRE_TASKS_DONE, 0, &msg);
    base_buf_free(&recs);
    kit_check(kit.core);
    pump();
}

/* The owner has copied what was asked for to `offset`. */
UNUSED static void copied(struct task task, uint64_t offset)
{
    answer(task.rec.id, YOLK_OK, offset, (task.rec.size + 4095) / 4096 * 4096,
           (uint32_t)(offset + 7));
}

UNUSED static uint64_t mount_disk(uint64_t connection, uint64_t session, uint8_t id, uint64_t size,
                                  uint64_t count)
{
    struct wire_segment_mount msg = {.request = {.session = session},
                                     .name = wire_view_text("d"),
                                     .size = size,
                                     .mirror_count = count,
                                     .medium = WIRE_MEDIUM_LOCAL_DISK};
    struct wire_segment_mount_reply reply;
    msg.storage_id[3] = id;
    kit_call(&kit, connection, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.segment;
}

UNUSED static bool offer(uint64_t connection, uint64_t session, uint64_t segment, const char *key,
                         struct wire_offer at, uint32_t last)
{
    struct base_buf keys, recs;
    (void)kit_keys(&keys, key);
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_offer_append(&recs, &at), YOLK_OK);
    struct wire_mirror_offer msg = {.request = {.session = session},
                                    .segment = segment,
                                    .keys = wire_view_buf(&keys),
                                    .recs = wire_view_buf(&recs),
                                    .last = last};
    struct wire_mirror_offer_reply reply;
    kit_call(&kit, connection, WIRE_MIRROR_OFFER, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(reply.accepted + wire_u32s_count(reply.rejected), 1);
    base_buf_free(&keys);
    base_buf_free(&recs);
    return reply.accepted == 1;
}

UNUSED static const char *name_of(int n)
{
    static char names[8][8];
    static int at;
    char *name = names[at++ % 8];
    snprintf(name, 8, "k%d", n);
    return name;
}

UNUSED static int put(int n, uint64_t size)
{
    uint64_t op = ++kit.op;
    struct wire_result result = kit_put(&kit, 2, reader, op, name_of(n), size, NULL);
    if (result.status == YOLK_OK)
        assert_int_equal(kit_keys_call(&kit, 2, reader, op, WIRE_PUT_END, name_of(n)), YOLK_OK);
    pump();
    return result.status;
}

UNUSED static void fill(int from, int to)
{
    for (int n = from; n < to; n++)
        assert_int_equal(put(n, VALUE), YOLK_OK);
}

UNUSED static int exists(int n)
{
    return kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, name_of(n)) == YOLK_OK;
}

/* The readable replicas of a key, as a reader is told; -1: none. The get stays open. */
UNUSED static int get(int n, struct wire_replica *replicas)
{
    struct base_buf keys;
    (void)kit_keys(&keys, name_of(n));
    struct wire_get_start msg = {.request = {.session = reader, .op = ++kit.op},
                                 .keys = wire_view_buf(&keys)};
    struct wire_get_start_reply reply;
    kit_call(&kit, 2, WIRE_GET_START, &msg, &reply);
    base_buf_free(&keys);
    if (wire_result_at(reply.results, 0).status != YOLK_OK)
        return -1;
    uint32_t count = wire_replica_count(reply.replicas);
    for (uint32_t i = 0; i < count && i < 4; i++)
        replicas[i] = wire_replica_at(reply.replicas, i);
    return (int)count;
}

UNUSED static void end_gets(void)
{
    assert_int_equal(kit_beat(&kit, 2, reader, kit.op + 1), YOLK_OK);
    pump();
}

UNUSED static void set_up(void **state, const struct master_config *config)
{
    task_count = freed_count = 0;
    disk_seq = 0;
    owner_connection = 1;
    acks_disk = true;
    memory = kit_start(state, &kit, config, MEMORY, &owner, &reader);
    disk = mount_disk(1, owner, 1, DISK, 0);
    pump();
}

UNUSED static int start(void **state)
{
    set_up(state, NULL);
    return 0;
}

/* 16 keys in memory, of which the first are on the disk. */
UNUSED static void fill_all(void)
{
    fill(0, 16);
    kit_tick(&kit, 0);
    pump();
    for (uint64_t at = 0; !no_task(); at += VALUE)
        copied(next_task(), at);
}

/* Puts a key that has to wait for space, answering nothing, for so long; its last status. */
UNUSED static int put_within(int n, uint64_t ms)
{
    int status = put(n, VALUE);
    for (; status == YOLK_ERR_NO_SPACE && ms >= 100; ms -= 100) {
        kit_pass(&kit, 100, owner, reader);
        pump();
        status = put(n, VALUE);
    }
    return status;
}

#endif
