/* SPDX-License-Identifier: Apache-2.0 */
/* A core with a hand to feed it, for the tests of single rules: one answer at a time, pushes kept
 * apart. What does without a kit is for tests that have a world of their own. */
#ifndef YOLK_MASTER_TEST_KIT_H
#define YOLK_MASTER_TEST_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "master/core.h"
#include "wire/msg.h"

#define UNUSED __attribute__((unused))

enum { KIT_KEYS = 8 /* in one message */ };

struct kit_frame {
    uint64_t connection, request_id;
    uint16_t kind;
    size_t size;
    uint8_t body[65536];
};

struct kit {
    struct master_core *core;
    uint64_t now;
    uint64_t request_id;
    struct kit_frame reply; /* the last answer */
    uint32_t replies;
    struct kit_frame pushes[64];
    uint32_t push_count;
    uint64_t segment[4]; /* by connection */
    uint64_t op;
};

/* Facts of all kits go here, if it is set. */
static void (*kit_on_fact)(void *self, const struct master_fact *fact);

static void kit_on_send(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                        const uint8_t *body, size_t size)
{
    struct kit *kit = self;
    assert_true(size <= sizeof kit->reply.body);
    struct kit_frame *f = &kit->reply;
    if (request_id == 0) {
        assert_true(kit->push_count < 64);
        f = &kit->pushes[kit->push_count++];
    } else {
        kit->replies++;
    }
    f->connection = connection;
    f->request_id = request_id;
    f->kind = kind;
    f->size = size;
    if (size > 0)
        memcpy(f->body, body, size);
}

UNUSED static void kit_init(struct kit *kit, const struct master_config *config)
{
    memset(kit, 0, sizeof *kit);
    kit->now = NS_PER_S;
    assert_int_equal(master_core_create(config, kit->now, 42, &kit->core), YOLK_OK);
}

/* Another life of the master, which knows nothing. */
UNUSED static void kit_new_core(struct kit *kit, const struct master_config *config, uint64_t seed)
{
    master_core_destroy(kit->core);
    kit->core = NULL;
    assert_int_equal(master_core_create(config, kit->now, seed, &kit->core), YOLK_OK);
}

UNUSED static void kit_check(const struct master_core *core)
{
    struct master_stats counted;
    const char *broken = master_core_check(core);
    if (broken != NULL)
        fail_msg("%s", broken);
    assert_int_equal(master_core_recount(core, &counted), 0);
}

/* The teardown of each test whose setup ended with kit_start. */
UNUSED static int kit_stop(void **state)
{
    struct kit *kit = *state;
    if (kit->core == NULL)
        return 0; /* kit_new_core failed */
    kit_check(kit->core);
    master_core_destroy(kit->core);
    return 0;
}

#define KIT_TEST(name) cmocka_unit_test_setup_teardown(name, start, kit_stop)

UNUSED static struct master_stats kit_stats(const struct kit *kit)
{
    struct master_stats stats;
    master_core_stats(kit->core, &stats);
    return stats;
}

/* The frame of a message; to be freed. */
UNUSED static struct base_buf kit_encode(uint16_t kind, const void *msg)
{
    struct base_buf out;
    base_buf_init(&out, MAX_FRAME_BODY);
    assert_int_equal(wire_encode(kind, msg, &out), YOLK_OK);
    return out;
}

static void kit_raw(struct kit *kit, uint64_t connection, uint16_t kind, uint64_t id,
                    const void *msg)
{
    struct master_sink sink = {.self = kit, .send = kit_on_send, .fact = kit_on_fact};
    struct base_buf out = kit_encode(kind, msg);
    struct wire_header header = {kind, (uint32_t)out.size, id};
    assert_int_equal(master_core_input(kit->core, kit->now, connection, &header, out.data, &sink),
                     YOLK_OK);
    base_buf_free(&out);
}

/* Sends a request and decodes its answer into `reply`. */
UNUSED static void kit_call(struct kit *kit, uint64_t connection, uint16_t kind, const void *msg,
                            void *reply)
{
    uint32_t replies = kit->replies;
    kit_raw(kit, connection, kind, ++kit->request_id, msg);
    assert_int_equal(kit->replies, replies + 1);
    assert_int_equal(kit->reply.request_id, kit->request_id);
    assert_int_equal(kit->reply.connection, connection);
    assert_int_equal(kit->reply.kind, kind + 1);
    assert_int_equal(wire_decode(kit->reply.kind, kit->reply.body, kit->reply.size, reply),
                     YOLK_OK);
}

UNUSED static void kit_tick(struct kit *kit, uint64_t ms)
{
    struct master_sink sink = {.self = kit, .send = kit_on_send, .fact = kit_on_fact};
    for (uint64_t done = 0; done <= ms; done += 50) {
        (void)master_core_tick(kit->core, kit->now, &sink);
        if (done < ms)
            kit->now += (ms - done < 50 ? ms - done : 50) * NS_PER_MS;
    }
}

UNUSED static uint64_t kit_open(struct kit *kit, uint64_t connection, uint64_t generation)
{
    struct wire_session_open msg = {.generation = generation};
    struct wire_session_open_reply reply;
    msg.client_id[0] = (uint8_t)connection;
    kit_call(kit, connection, WIRE_SESSION_OPEN, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.session;
}

UNUSED static uint64_t kit_mount(struct kit *kit, uint64_t connection, uint64_t session,
                                 uint64_t size)
{
    struct wire_segment_mount msg = {
        .request = {.session = session}, .name = wire_view_text("s"), .size = size};
    struct wire_segment_mount_reply reply;
    kit_call(kit, connection, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    return reply.segment;
}

/* The owner on `connection` answers all FACTS that were pushed to it. */
UNUSED static void kit_ack(struct kit *kit)
{
    for (uint32_t i = 0; i < kit->push_count; i++) {
        struct kit_frame f = kit->pushes[i];
        struct wire_facts facts;
        if (f.kind != WIRE_FACTS)
            continue;
        kit->pushes[i].kind = 0;
        assert_int_equal(wire_decode(WIRE_FACTS, f.body, f.size, &facts), YOLK_OK);
        struct wire_facts_ack ack = {facts.segment, facts.seq};
        kit_raw(kit, f.connection, WIRE_FACTS_ACK, 0, &ack);
    }
    kit->push_count = 0;
}

/* The keys of a message, in order: words with a space between. */
UNUSED static uint32_t kit_keys(struct base_buf *out, const char *keys)
{
    struct wire_view views[KIT_KEYS];
    uint32_t count = 0;
    for (size_t at = 0;; at++) {
        size_t size = strcspn(keys + at, " ");
        assert_true(count < KIT_KEYS);
        views[count++] = wire_view_of(keys + at, size);
        at += size;
        if (keys[at] == 0)
            break;
    }
    base_buf_init(out, MAX_FRAME_BODY);
    assert_int_equal(wire_keys_build(out, views, count), YOLK_OK);
    return count;
}

/* Messages of a key, or of some; each returns the first key's own status. */
UNUSED static struct wire_result kit_put(struct kit *kit, uint64_t connection, uint64_t session,
                                         uint64_t op, const char *key, uint64_t size,
                                         struct wire_replica *at)
{
    struct base_buf keys;
    uint8_t packed[KIT_KEYS][8];
    uint32_t count = kit_keys(&keys, key);
    for (uint32_t i = 0; i < count; i++)
        wire_set_u64(packed[i], size);
    struct wire_put_start msg = {.request = {.session = session, .op = op},
                                 .keys = wire_view_buf(&keys),
                                 .sizes = wire_view_of(packed, count * sizeof packed[0]),
                                 .replica_num = 1};
    struct wire_put_start_reply reply;
    kit_call(kit, connection, WIRE_PUT_START, &msg, &reply);
    base_buf_free(&keys);
    assert_int_equal(reply.status, YOLK_OK);
    struct wire_result result = wire_result_at(reply.results, 0);
    assert_int_equal(wire_ticket_count(reply.tickets), wire_replica_count(reply.replicas));
    if (at != NULL && result.replica_count > 0)
        *at = wire_replica_at(reply.replicas, 0);
    return result;
}

UNUSED static int kit_keys_call(struct kit *kit, uint64_t connection, uint64_t session, uint64_t op,
                                uint16_t kind, const char *key)
{
    struct base_buf keys;
    (void)kit_keys(&keys, key);
    struct wire_keys_request msg = {.request = {.session = session, .op = op},
                                    .keys = wire_view_buf(&keys)};
    struct wire_remove remove = {.request = msg.request, .keys = msg.keys};
    struct wire_results_reply reply;
    kit_call(kit, connection, kind,
             kind == WIRE_REMOVE ? (const void *)&remove : (const void *)&msg, &reply);
    base_buf_free(&keys);
    return reply.status != YOLK_OK ? reply.status : wire_i32s_at(reply.results, 0);
}

UNUSED static int kit_force_remove(struct kit *kit, uint64_t connection, uint64_t session,
                                   const char *key)
{
    struct base_buf keys;
    (void)kit_keys(&keys, key);
    struct wire_remove msg = {
        .request = {.session = session}, .keys = wire_view_buf(&keys), .force = 1};
    struct wire_results_reply reply;
    kit_call(kit, connection, WIRE_REMOVE, &msg, &reply);
    base_buf_free(&keys);
    return wire_i32s_at(reply.results, 0);
}

UNUSED static int kit_get(struct kit *kit, uint64_t connection, uint64_t session, uint64_t op,
                          const char *key, uint32_t flags, struct wire_replica *at)
{
    struct base_buf keys;
    (void)kit_keys(&keys, key);
    struct wire_get_start msg = {
        .request = {.session = session, .op = op}, .keys = wire_view_buf(&keys), .flags = flags};
    struct wire_get_start_reply reply;
    kit_call(kit, connection, WIRE_GET_START, &msg, &reply);
    base_buf_free(&keys);
    if (reply.status != YOLK_OK)
        return reply.status;
    if (at != NULL && wire_replica_count(reply.replicas) > 0)
        *at = wire_replica_at(reply.replicas, 0);
    return wire_result_at(reply.results, 0).status;
}

UNUSED static int kit_beat(struct kit *kit, uint64_t connection, uint64_t session, uint64_t floor)
{
    struct wire_plain_request msg = {.request = {.session = session, .floor = floor}};
    struct wire_status_reply reply;
    kit_call(kit, connection, WIRE_HEARTBEAT, &msg, &reply);
    return reply.status;
}

/* A core with a session on connection 1 that has mounted a segment, and one on connection 2 if
 * there is a place for it. Gives the segment. */
UNUSED static uint64_t kit_start(void **state, struct kit *kit, const struct master_config *config,
                                 uint64_t size, uint64_t *owner, uint64_t *other)
{
    *state = kit;
    kit_init(kit, config);
    *owner = kit_open(kit, 1, 1);
    if (other != NULL)
        *other = kit_open(kit, 2, 1);
    uint64_t segment = kit_mount(kit, 1, *owner, size);
    kit_ack(kit);
    return segment;
}

/* Time in which only the sessions named are heard of; 0 is a silent one. */
UNUSED static void kit_pass(struct kit *kit, uint64_t ms, uint64_t owner, uint64_t other)
{
    for (uint64_t step; ms > 0; ms -= step) {
        step = ms < 500 ? ms : 500;
        kit_tick(kit, step);
        if (owner != 0)
            assert_int_equal(kit_beat(kit, 1, owner, 0), YOLK_OK);
        if (other != 0)
            assert_int_equal(kit_beat(kit, 2, other, 0), YOLK_OK);
    }
}

/* Stored, committed, and the owner knows. */
UNUSED static void kit_store(struct kit *kit, uint64_t connection, uint64_t session,
                             const char *key, uint64_t size)
{
    uint64_t op = ++kit->op;
    assert_int_equal(kit_put(kit, connection, session, op, key, size, NULL).status, YOLK_OK);
    assert_int_equal(kit_keys_call(kit, connection, session, op, WIRE_PUT_END, key), YOLK_OK);
    kit_ack(kit);
}

UNUSED static const struct kit_frame *kit_pushed(const struct kit *kit, uint16_t kind)
{
    for (uint32_t i = kit->push_count; i-- > 0;)
        if (kit->pushes[i].kind == kind)
            return &kit->pushes[i];
    return NULL;
}

#endif
