/* SPDX-License-Identifier: Apache-2.0 */
/* A node with memory and a disk below it, and its owner played by hand. */
#include <stdio.h>

#include "base/hash.h"
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
static struct task tasks[TASKS]; /* pushed, the oldest first */
static uint32_t task_count;
static uint64_t freed[64]; /* offsets on the disk that the owner was told of */
static uint32_t freed_count;
static uint64_t disk_seq; /* of the last FACTS of the disk */
static bool acks_disk;    /* at once */

/* Takes what was pushed: answers FACTS, keeps TASKS. */
static void pump(void)
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

static struct task next_task(void)
{
    pump();
    assert_true(task_count > 0);
    struct task task = tasks[0];
    memmove(tasks, tasks + 1, --task_count * sizeof tasks[0]);
    return task;
}

static bool no_task(void)
{
    pump();
    return task_count == 0;
}

static void answer(uint64_t id, int status, uint64_t offset, uint64_t size, uint32_t checksum)
{
    struct base_buf recs;
    struct wire_task_done done = {id, status, offset, size, checksum};
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_task_done_append(&recs, &done), YOLK_OK);
    struct wire_tasks_done msg = {memory, wire_view_buf(&recs)};
    kit_raw(&kit, 1, WIRE_TASKS_DONE, 0, &msg);
    base_buf_free(&recs);
    kit_check(kit.core);
    pump();
}

/* The owner has copied what was asked for to `offset`. */
static void copied(struct task task, uint64_t offset)
{
    answer(task.rec.id, YOLK_OK, offset, (task.rec.size + 4095) / 4096 * 4096,
           (uint32_t)(offset + 7));
}

static uint64_t mount_disk(uint64_t connection, uint64_t session, uint8_t id, uint64_t size,
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

static bool offer(uint64_t connection, uint64_t session, uint64_t segment, const char *key,
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

static const char *name_of(int n)
{
    static char names[8][8];
    static int at;
    char *name = names[at++ % 8];
    snprintf(name, 8, "k%d", n);
    return name;
}

static int put(int n, uint64_t size)
{
    uint64_t op = ++kit.op;
    struct wire_result result = kit_put(&kit, 2, reader, op, name_of(n), size, NULL);
    if (result.status == YOLK_OK)
        assert_int_equal(kit_keys_call(&kit, 2, reader, op, WIRE_PUT_END, name_of(n)), YOLK_OK);
    pump();
    return result.status;
}

static void fill(int from, int to)
{
    for (int n = from; n < to; n++)
        assert_int_equal(put(n, VALUE), YOLK_OK);
}

static int exists(int n)
{
    return kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, name_of(n)) == YOLK_OK;
}

/* The readable replicas of a key, as a reader is told; -1: none. The get stays open. */
static int get(int n, struct wire_replica *replicas)
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

static void end_gets(void)
{
    assert_int_equal(kit_beat(&kit, 2, reader, kit.op + 1), YOLK_OK);
    pump();
}

static void set_up(void **state, const struct master_config *config)
{
    task_count = freed_count = 0;
    disk_seq = 0;
    acks_disk = true;
    memory = kit_start(state, &kit, config, MEMORY, &owner, &reader);
    disk = mount_disk(1, owner, 1, DISK, 0);
    pump();
}

static int start(void **state)
{
    set_up(state, NULL);
    return 0;
}

/* 16 keys in memory, of which the first are on the disk. */
static void fill_all(void)
{
    fill(0, 16);
    kit_tick(&kit, 0);
    pump();
    for (uint64_t at = 0; !no_task(); at += VALUE)
        copied(next_task(), at);
}

static void what_is_above_the_watermark_is_copied_ahead(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill(0, 11);
    kit_tick(&kit, 0);
    assert_true(no_task()); /* 11 of 16 */
    fill(11, 13);
    kit_tick(&kit, 0);
    struct task task = next_task();
    assert_string_equal(task.key, "k0"); /* the least recently used */
    assert_int_equal(task.rec.kind, WIRE_TASK_OFFLOAD);
    assert_int_equal(task.rec.size, VALUE);
    assert_int_equal(task.memory, memory);
    assert_int_equal(task.disk, disk);
    assert_int_equal(task.floor, task.rec.id);
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].offset, task.rec.offset);
    end_gets();
    assert_int_equal(kit_stats(&kit).tasks, 2);
    copied(task, 8192);
    assert_int_equal(kit_stats(&kit).tasks, 2); /* it was read: another is to go before it */
    assert_int_equal(kit_stats(&kit).offloads_done, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_MEMORY);
    assert_int_equal(at[0].segment, memory);
    assert_int_equal(at[1].medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(at[1].segment, disk);
    assert_int_equal(at[1].offset, 8192);
    assert_int_equal(at[1].checksum, 8199);
    end_gets();
    copied(next_task(), 0);
    copied(next_task(), 4096);
    assert_int_equal(kit_stats(&kit).tasks, 0);
}

static void memory_goes_when_the_disk_has_it(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_all();
    assert_true(kit_stats(&kit).offloads_done >= 4);
    for (int n = 16; n < 40; n++) {
        int status = put(n, VALUE);
        for (int tries = 0; status == YOLK_ERR_NO_SPACE && tries < 10; tries++) {
            while (!no_task()) {
                struct task task = next_task();
                copied(task, task.rec.id * VALUE);
            }
            status = put(n, VALUE);
        }
        assert_int_equal(status, YOLK_OK);
        kit_tick(&kit, 0);
        pump();
    }
    for (int n = 0; n < 40; n++)
        assert_true(exists(n));
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(get(39, at), 1);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_MEMORY);
    end_gets();
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.evictions, 0);
    assert_true(stats.memory_evictions >= 24);
    assert_int_equal(stats.offload_skipped, 0);
    assert_int_equal(stats.get_hits_disk, 1);
    assert_int_equal(stats.get_hits_memory, 1);
}

static void a_removed_key_is_freed_on_the_disk_too(void **state)
{
    (void)state;
    fill(0, 13);
    kit_tick(&kit, 0);
    struct task first = next_task(), second = next_task();
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "k0"), YOLK_OK);
    copied(first, 4096); /* nobody wants it any more */
    assert_int_equal(freed_count, 1);
    assert_int_equal(freed[0], 4096);
    copied(second, 0);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k1"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 2);
    assert_int_equal(freed[1], 0);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 0);
    assert_false(exists(0));
    assert_false(exists(1));
}

static void space_that_is_read_is_not_told_free(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k0"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 0);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, VALUE);
    end_gets();
    assert_int_equal(freed_count, 1);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
}

/* The owner was killed and its disk has another one. */
static uint64_t take_over(uint64_t *session, uint64_t count)
{
    *session = kit_open(&kit, 3, 1);
    disk_seq = 0;
    disk = mount_disk(3, *session, 1, DISK, count);
    pump();
    return disk;
}

static void a_disk_comes_back_with_another_owner(void **state)
{
    (void)state;
    struct wire_replica at[4];
    uint64_t session;
    fill_all(); /* k0 to k4 at least */
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k1"), YOLK_OK);
    uint64_t before = disk;
    (void)take_over(&session, 5);
    assert_int_not_equal(disk, before);
    assert_false(exists(0)); /* the old owner is dead, and of the disk nothing is said yet */
    assert_true(offer(3, session, disk, "k0", (struct wire_offer){0, VALUE, 7}, 0));
    assert_false(offer(3, session, disk, "k1", (struct wire_offer){VALUE, VALUE, 4096 + 7}, 0));
    assert_false(offer(3, session, disk, "k2", (struct wire_offer){2 * VALUE, VALUE, 1}, 0));
    assert_true(
        offer(3, session, disk, "k3", (struct wire_offer){3 * VALUE, VALUE, 3 * VALUE + 7}, 0));
    assert_false(offer(3, session, disk, "new", (struct wire_offer){60 * VALUE, VALUE, 1}, 1));
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(freed_count, 0); /* what is refused its owner deletes */
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].segment, disk);
    assert_int_equal(at[0].checksum, 7);
    end_gets();
    assert_false(exists(1));
    assert_false(exists(2));
    assert_true(exists(3));
    assert_false(exists(4)); /* not offered */
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 2 * VALUE);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
    assert_int_equal(kit_beat(&kit, 1, owner, 0), YOLK_ERR_STALE);
}

static void an_offer_that_comes_again_revives_nothing(void **state)
{
    (void)state;
    uint64_t other = kit_open(&kit, 3, 1);
    uint64_t second = mount_disk(3, other, 2, DISK, 2);
    struct wire_offer at = {0, 100, 5};
    assert_true(offer(3, other, second, "a", at, 0)); /* never seen: believed */
    assert_true(offer(3, other, second, "a", at, 0));
    assert_int_equal(kit_force_remove(&kit, 2, reader, "a"), YOLK_OK);
    kit_ack(&kit);
    assert_false(offer(3, other, second, "a", at, 0));
    assert_true(offer(3, other, second, "b", (struct wire_offer){4096, 5000, 5}, 1));
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 8192);
}

static void a_disk_that_was_forgotten_is_not_believed(void **state)
{
    (void)state;
    uint64_t session;
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    struct wire_plain_request close = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_call(&kit, 1, WIRE_SESSION_CLOSE, &close, &reply);
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).disk_lost_bytes, VALUE); /* remembered */
    kit_pass(&kit, 3000, 0, reader);
    assert_int_equal(kit_stats(&kit).disk_lost_bytes, 0); /* and forgotten */
    disk = take_over(&session, 1);
    assert_false(offer(3, session, disk, "k0", (struct wire_offer){0, VALUE, 7}, 1));
}

static void a_disk_is_remembered_after_its_owner_closed(void **state)
{
    (void)state;
    uint64_t session;
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    struct wire_segment_unmount unmount = {.request = {.session = owner}, .segment = disk};
    struct wire_plain_request close = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &unmount);
    kit_tick(&kit, 0);
    assert_int_equal(kit.reply.kind, WIRE_SEGMENT_UNMOUNT_REPLY);
    kit_call(&kit, 1, WIRE_SESSION_CLOSE, &close, &reply);
    assert_false(exists(0));
    disk = take_over(&session, 1);
    assert_true(offer(3, session, disk, "k0", (struct wire_offer){0, VALUE, 7}, 1));
    assert_true(exists(0));
    assert_false(exists(1));
}

/* Puts a key that has to wait for space, answering nothing, for so long; its last status. */
static int put_within(int n, uint64_t ms)
{
    int status = put(n, VALUE);
    for (; status == YOLK_ERR_NO_SPACE && ms >= 100; ms -= 100) {
        kit_pass(&kit, 100, owner, reader);
        pump();
        status = put(n, VALUE);
    }
    return status;
}

/* Memory is full of 16 keys and nothing is on the disk; two copies were asked for. */
static void fill_unanswered(void)
{
    fill(0, 16);
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(task_count, 2); /* an eighth of the memory at a time */
    assert_int_equal(kit_stats(&kit).tasks, 2);
}

static void a_disk_that_does_not_answer_is_waited_for_so_long(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    assert_int_equal(put_within(16, 1800), YOLK_ERR_NO_SPACE);
    assert_int_equal(kit_stats(&kit).evictions, 0);
    assert_int_equal(put_within(16, 400), YOLK_OK);
    assert_int_equal(kit_stats(&kit).offload_skipped, kit_stats(&kit).evictions);
    assert_true(kit_stats(&kit).evictions > 0);
    assert_true(exists(0)); /* what is being copied stays */
    assert_true(exists(1));
    assert_false(exists(2));
    assert_int_equal(put_within(17, 100), YOLK_OK); /* and is not waited for again */
    uint64_t skipped = kit_stats(&kit).offload_skipped;
    task_count = 0;
    copied(first, 0); /* until it answers */
    copied(second, VALUE);
    assert_int_equal(put_within(18, 1800), YOLK_ERR_NO_SPACE);
    copied(next_task(), 2 * VALUE);
    assert_int_equal(put_within(18, 100), YOLK_OK);
    assert_int_equal(kit_stats(&kit).offload_skipped, skipped);
    assert_int_equal(kit_stats(&kit).memory_evictions, 1);
}

static void a_failing_disk_is_tried_again_after_a_pause(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    answer(first.rec.id, YOLK_ERR_IO, 0, 0, 0);
    answer(second.rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).offloads_failed, 2);
    assert_int_equal(kit_stats(&kit).tasks, 0);
    assert_true(no_task());
    assert_int_equal(put(16, VALUE), YOLK_ERR_NO_SPACE); /* nothing is dropped yet */
    assert_true(no_task());
    kit_pass(&kit, 300, owner, reader);
    struct task again = next_task();
    assert_true(again.rec.id > second.rec.id);
    assert_true(strcmp(again.key, "k0") == 0 || strcmp(again.key, "k1") == 0);
    copied(again, 0);
    assert_int_equal(kit_stats(&kit).evictions, 0);
    assert_int_equal(put_within(16, 100), YOLK_OK);
    assert_int_equal(kit_stats(&kit).evictions, 0);
}

static void a_disk_that_keeps_failing_costs_memory_nothing(void **state)
{
    (void)state;
    fill_unanswered();
    uint32_t done = 0;
    for (int n = 16; n < 60; n++) {
        int status = put(n, VALUE);
        for (int i = 0; i < 40 && status == YOLK_ERR_NO_SPACE; i++) {
            while (!no_task()) {
                answer(next_task().rec.id, YOLK_ERR_IO, 0, 0, 0);
                done++;
            }
            kit_pass(&kit, 100, owner, reader);
            status = put(n, VALUE);
        }
        assert_int_equal(status, YOLK_OK);
    }
    assert_true(done > 2 && done < 40);
    assert_int_equal(kit_stats(&kit).evictions, kit_stats(&kit).offload_skipped);
}

static void a_full_disk_makes_room_and_is_asked_again(void **state)
{
    (void)state;
    fill_all();
    uint64_t on_disk = kit_stats(&kit).offloads_done;
    assert_int_equal(kit_stats(&kit).disk_extents, on_disk);
    for (int n = 16; task_count == 0; n++) { /* until what is clean is used up */
        (void)put(n, VALUE);
        pump();
    }
    struct task task = next_task();
    acks_disk = false;
    answer(task.rec.id, YOLK_ERR_NO_SPACE, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).offloads_no_space, 1);
    assert_true(kit_stats(&kit).disk_evictions >= 2);
    assert_int_equal(freed_count, kit_stats(&kit).disk_evictions);
    assert_int_equal(freed[0], 0); /* k0 lay there, longest unused */
    assert_false(exists(0));
    assert_true(exists(4));
    uint32_t others = task_count;
    assert_int_equal(put(60, VALUE), YOLK_ERR_NO_SPACE);
    assert_int_equal(task_count, others); /* not before some is free */
    struct wire_facts_ack ack = {disk, disk_seq};
    kit_raw(&kit, 1, WIRE_FACTS_ACK, 0, &ack);
    pump();
    assert_true(task_count > others);
    assert_string_equal(tasks[others].key, task.key);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, 0);
}

static void what_an_empty_disk_cannot_take_stays_in_memory_only(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    answer(first.rec.id, YOLK_ERR_NO_SPACE, 0, 0, 0);
    answer(second.rec.id, YOLK_ERR_TOO_LARGE, 0, 0, 0);
    struct task third = next_task();
    assert_string_equal(third.key, "k2"); /* nothing has to pause */
    assert_int_equal(put_within(16, 100), YOLK_OK);
    assert_int_equal(kit_stats(&kit).offload_skipped, 1);
    assert_int_equal(exists(0) + exists(1), 1);
}

static void an_answer_that_overtook_an_acknowledgement_counts_later(void **state)
{
    (void)state;
    acks_disk = false;
    fill(0, 13);
    kit_tick(&kit, 0);
    copied(next_task(), 0);
    struct task second = next_task();
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k0"), YOLK_OK);
    pump();
    assert_int_equal(freed[0], 0);
    copied(second, 0); /* where k0 lay */
    assert_int_equal(kit_stats(&kit).tasks, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, 0);
    struct wire_facts_ack ack = {disk, disk_seq};
    kit_raw(&kit, 1, WIRE_FACTS_ACK, 0, &ack);
    kit_pass(&kit, 1500, owner, reader);
    struct task again = next_task();
    assert_int_equal(again.rec.id, second.rec.id);
    copied(again, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
    assert_int_equal(kit_stats(&kit).tasks, 0);
    assert_int_equal(freed_count, 1);
}

static void an_answer_counts_once_and_only_if_it_can_be_true(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_unanswered();
    struct task first = next_task(), second = next_task();
    answer(first.rec.id + 100, YOLK_OK, 0, VALUE, 1);
    copied(first, 0);
    copied(first, VALUE);
    answer(first.rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).offloads_done, 1);
    assert_int_equal(kit_stats(&kit).offloads_failed, 0);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[1].offset, 0);
    end_gets();
    struct {
        uint64_t offset, size;
    } wrong[] = {
        {0, VALUE},
        {VALUE + 64, VALUE},
        {VALUE, 2 * VALUE},
        {VALUE, 64},
        {DISK, VALUE},
        {DISK - VALUE, 2 * VALUE},
        {UINT64_MAX - VALUE + 1, VALUE},
        {VALUE, 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        answer(second.rec.id, YOLK_OK, wrong[i].offset, wrong[i].size, 9);
        assert_int_equal(kit_stats(&kit).disk_conflicts, i + 1);
        assert_int_equal(kit_stats(&kit).disk_extents, 1);
        task_count = 0;
        kit_pass(&kit, 6000, owner, reader); /* it is a failure like others */
        pump();
        assert_true(task_count > 0);
        second = tasks[task_count - 1];
    }
}

static void an_unanswered_task_is_said_again(void **state)
{
    (void)state;
    fill_unanswered();
    struct task first = next_task();
    task_count = 0;
    kit_pass(&kit, 900, owner, reader);
    assert_true(no_task());
    kit_pass(&kit, 200, owner, reader);
    struct task again = next_task();
    assert_int_equal(again.rec.id, first.rec.id);
    assert_int_equal(again.rec.offset, first.rec.offset);
    assert_string_equal(again.key, first.key);
    task_count = 0;
    /* The owner comes by another connection: at once. */
    struct wire_plain_request beat = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_call(&kit, 9, WIRE_HEARTBEAT, &beat, &reply);
    again = next_task();
    assert_int_equal(again.rec.id, first.rec.id);
    copied(again, 0); /* by the old one: nobody's word */
    assert_int_equal(kit_stats(&kit).offloads_done, 0);
}

static void what_is_being_copied_is_not_leased(void **state)
{
    (void)state;
    fill_unanswered();
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "k0"), YOLK_OK);
    assert_int_equal(kit_stats(&kit).limbo_bytes, VALUE); /* the owner still reads it */
    answer(tasks[0].rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
}

/* The disk goes and the memory stays: its owner may go on with what it has begun. */
static void memory_is_not_reused_under_a_task_whose_disk_went(void **state)
{
    (void)state;
    fill_unanswered();
    struct wire_segment_unmount unmount = {.request = {.session = owner}, .segment = disk};
    kit_raw(&kit, 1, WIRE_SEGMENT_UNMOUNT, ++kit.request_id, &unmount);
    assert_int_equal(kit_stats(&kit).tasks, 0);
    for (int n = 0; n < 16; n++)
        (void)kit_force_remove(&kit, 2, reader, name_of(n));
    pump();
    assert_int_equal(kit_stats(&kit).limbo_bytes, 2 * VALUE);
    copied(tasks[0], 0);
    assert_int_equal(kit_stats(&kit).limbo_bytes, 2 * VALUE);
    assert_int_equal(kit_stats(&kit).disk_extents, 0);
    struct wire_segment_mount msg = {.request = {.session = owner, .op = 77},
                                     .name = wire_view_text("s"),
                                     .size = MEMORY,
                                     .generation = memory};
    memcpy(msg.prior_master, master_core_instance(kit.core), WIRE_ID_SIZE);
    struct wire_segment_mount_reply reply;
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(kit_stats(&kit).limbo_bytes, 0);
}

/* k0 is on the disk only, and memory has room. */
static void only_on_disk(void)
{
    fill_all();
    for (int n = 16; kit_stats(&kit).memory_evictions == 0; n++)
        (void)put(n, VALUE);
    for (int n = 5; n < 12; n++)
        assert_int_equal(kit_force_remove(&kit, 2, reader, name_of(n)), YOLK_OK);
    pump();
    while (!no_task())
        answer(next_task().rec.id, YOLK_ERR_CANCELED, 0, 0, 0);
}

static void a_hot_key_comes_back_to_memory(void **state)
{
    (void)state;
    struct wire_replica at[4];
    only_on_disk();
    assert_int_equal(get(0, at), 1);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_true(no_task());
    kit_pass(&kit, 3000, owner, reader);
    assert_int_equal(get(0, at), 1);
    struct task task = next_task();
    assert_int_equal(task.rec.kind, WIRE_TASK_PROMOTE);
    assert_string_equal(task.key, "k0");
    assert_int_equal(task.rec.disk_offset, at[0].offset);
    assert_int_equal(task.rec.checksum, at[0].checksum);
    assert_int_equal(task.rec.size, VALUE);
    assert_int_equal(get(0, at), 1); /* and only once at a time */
    assert_true(no_task());
    end_gets();
    uint64_t open = kit_stats(&kit).open_bytes;
    assert_int_equal(open, VALUE);
    answer(task.rec.id, YOLK_OK, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).promotes_done, 1);
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[0].medium, WIRE_MEDIUM_MEMORY);
    assert_int_equal(at[0].offset, task.rec.offset);
    end_gets();
}

static struct task promote_k0(void)
{
    struct wire_replica at[4];
    only_on_disk();
    assert_int_equal(get(0, at), 1);
    assert_int_equal(get(0, at), 1);
    struct task task = next_task();
    assert_int_equal(task.rec.kind, WIRE_TASK_PROMOTE);
    end_gets();
    return task;
}

static void a_failed_promotion_leaves_nothing_behind(void **state)
{
    (void)state;
    struct task task = promote_k0();
    answer(task.rec.id, YOLK_ERR_IO, 0, 0, 0);
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
    assert_int_equal(kit_stats(&kit).promotes_failed, 1);
    assert_true(exists(0));
}

static void a_promotion_that_finds_wrong_bytes_drops_them(void **state)
{
    (void)state;
    struct task task = promote_k0();
    uint64_t live = kit_stats(&kit).disk_live_bytes;
    answer(task.rec.id, YOLK_ERR_CORRUPT, 0, 0, 0);
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).replica_bad, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, live - VALUE);
    assert_int_equal(freed[freed_count - 1], task.rec.disk_offset);
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
}

static void a_key_removed_while_it_is_promoted_stays_removed(void **state)
{
    (void)state;
    struct task task = promote_k0();
    assert_int_equal(kit_force_remove(&kit, 2, reader, "k0"), YOLK_OK);
    pump();
    uint32_t told = freed_count;
    answer(task.rec.id, YOLK_OK, 0, 0, 0);
    assert_int_equal(freed_count, told + 1); /* only now: it was being read */
    assert_false(exists(0));
    assert_int_equal(kit_stats(&kit).open_bytes, 0);
}

static int replica_bad(const char *key, struct wire_replica at)
{
    struct base_buf keys, recs;
    (void)kit_keys(&keys, key);
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_replica_append(&recs, &at), YOLK_OK);
    struct wire_replica_bad msg = {.request = {.session = reader},
                                   .keys = wire_view_buf(&keys),
                                   .replicas = wire_view_buf(&recs)};
    struct wire_results_reply reply;
    kit_call(&kit, 2, WIRE_REPLICA_BAD, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    base_buf_free(&keys);
    base_buf_free(&recs);
    pump();
    return wire_i32s_at(reply.results, 0);
}

static void wrong_bytes_cost_that_replica_only(void **state)
{
    (void)state;
    struct wire_replica at[4], other;
    fill_all();
    assert_int_equal(get(0, at), 2);
    end_gets();
    other = at[1];
    other.offset += VALUE;
    assert_int_equal(replica_bad("k0", other), YOLK_ERR_NOT_FOUND);
    other = at[1];
    other.segment++;
    assert_int_equal(replica_bad("k0", other), YOLK_ERR_NOT_FOUND);
    assert_int_equal(replica_bad("k0", at[0]), YOLK_ERR_NOT_FOUND); /* of memory nobody says so */
    assert_int_equal(replica_bad("none", at[1]), YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).replica_bad, 0);
    assert_int_equal(replica_bad("k0", at[1]), YOLK_OK);
    assert_int_equal(replica_bad("k0", at[1]), YOLK_ERR_NOT_FOUND);
    assert_int_equal(freed[0], at[1].offset);
    assert_int_equal(get(0, at), 1);
    end_gets();
}

static void wrong_bytes_of_the_last_replica_cost_the_key(void **state)
{
    (void)state;
    struct wire_replica at[4];
    only_on_disk();
    assert_int_equal(get(0, at), 1);
    end_gets();
    assert_int_equal(replica_bad("k0", at[0]), YOLK_OK);
    assert_false(exists(0));
    assert_int_equal(put(0, VALUE), YOLK_OK); /* it can be stored again */
    assert_int_equal(kit_stats(&kit).replica_bad, 1);
}

static void eviction_of_the_disk_leaves_memory_alone(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_all();
    uint64_t count = kit_stats(&kit).offloads_done;
    assert_int_equal(get(1, at), 2); /* is being read */
    /* A value in memory is copied again and again, as far as the owner says there is room. */
    acks_disk = true;
    for (int n = 16; kit_stats(&kit).disk_evictions == 0; n++) {
        (void)put(n, VALUE);
        while (!no_task()) {
            struct task task = next_task();
            if (task.rec.kind != WIRE_TASK_OFFLOAD)
                continue;
            copied(task, count++ * VALUE);
        }
        kit_tick(&kit, 0);
        assert_true(count <= DISK / VALUE);
    }
    struct master_stats stats = kit_stats(&kit);
    assert_true(stats.disk_live_bytes <= DISK * 95 / 100);
    assert_true(stats.disk_live_bytes >= DISK * 85 / 100);
    assert_true(exists(1)); /* guarded */
    assert_false(exists(0));
    assert_int_equal(stats.offload_skipped, 0);
    end_gets();
}

/* All restart; memory and disk are offered, each with its own. */
static void both_mirrors_meet_after_a_restart_of_the_master(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_all();
    master_core_destroy(kit.core);
    assert_int_equal(master_core_create(NULL, kit.now, 43, &kit.core), YOLK_OK);
    owner = kit_open(&kit, 1, 1);
    reader = kit_open(&kit, 2, 1);
    struct wire_segment_mount msg = {.request = {.session = owner},
                                     .name = wire_view_text("s"),
                                     .size = MEMORY,
                                     .generation = memory,
                                     .mirror_count = 2};
    struct wire_segment_mount_reply reply;
    kit_call(&kit, 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    memory = reply.segment;
    disk = mount_disk(1, owner, 1, DISK, 3);
    disk_seq = 0;
    pump();
    assert_true(offer(1, owner, memory, "k0", (struct wire_offer){0, VALUE, 0}, 0));
    assert_true(offer(1, owner, disk, "k0", (struct wire_offer){0, VALUE, 7}, 0));
    assert_true(offer(1, owner, disk, "k1", (struct wire_offer){VALUE, VALUE, 8}, 0));
    assert_false(offer(1, owner, disk, "k0", (struct wire_offer){2 * VALUE, VALUE, 7}, 0));
    assert_false(offer(1, owner, disk, "k1", (struct wire_offer){3 * VALUE, 100, 7}, 1));
    assert_true(offer(1, owner, memory, "k1", (struct wire_offer){VALUE, VALUE, 0}, 1));
    assert_int_equal(get(0, at), 2);
    assert_int_equal(at[0].segment, memory);
    assert_int_equal(at[1].segment, disk);
    assert_int_equal(at[1].checksum, 7);
    assert_int_equal(get(1, at), 2);
    end_gets();
}

static int start_forgetful(void **state)
{
    struct master_config config = {.disk_lost_keep_ms = 2000};
    set_up(state, &config);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(what_is_above_the_watermark_is_copied_ahead),
        KIT_TEST(memory_goes_when_the_disk_has_it),
        KIT_TEST(a_removed_key_is_freed_on_the_disk_too),
        KIT_TEST(space_that_is_read_is_not_told_free),
        KIT_TEST(a_disk_comes_back_with_another_owner),
        KIT_TEST(an_offer_that_comes_again_revives_nothing),
        KIT_TEST(a_disk_is_remembered_after_its_owner_closed),
        KIT_TEST(a_disk_that_does_not_answer_is_waited_for_so_long),
        KIT_TEST(a_failing_disk_is_tried_again_after_a_pause),
        KIT_TEST(a_disk_that_keeps_failing_costs_memory_nothing),
        KIT_TEST(a_full_disk_makes_room_and_is_asked_again),
        KIT_TEST(what_an_empty_disk_cannot_take_stays_in_memory_only),
        KIT_TEST(an_answer_that_overtook_an_acknowledgement_counts_later),
        KIT_TEST(an_answer_counts_once_and_only_if_it_can_be_true),
        KIT_TEST(an_unanswered_task_is_said_again),
        KIT_TEST(what_is_being_copied_is_not_leased),
        KIT_TEST(memory_is_not_reused_under_a_task_whose_disk_went),
        KIT_TEST(a_hot_key_comes_back_to_memory),
        KIT_TEST(a_failed_promotion_leaves_nothing_behind),
        KIT_TEST(a_promotion_that_finds_wrong_bytes_drops_them),
        KIT_TEST(a_key_removed_while_it_is_promoted_stays_removed),
        KIT_TEST(wrong_bytes_cost_that_replica_only),
        KIT_TEST(wrong_bytes_of_the_last_replica_cost_the_key),
        KIT_TEST(eviction_of_the_disk_leaves_memory_alone),
        KIT_TEST(both_mirrors_meet_after_a_restart_of_the_master),
        cmocka_unit_test_setup_teardown(a_disk_that_was_forgotten_is_not_believed, start_forgetful,
                                        kit_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
