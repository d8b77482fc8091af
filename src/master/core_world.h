/* SPDX-License-Identifier: Apache-2.0 */
/* The world of core_test.c: its clients and owners, and what they make of the master's answers and
 * pushes. */
#ifndef YOLK_MASTER_CORE_WORLD_H
#define YOLK_MASTER_CORE_WORLD_H

#include <stdio.h>

#include "base/hash.h"
#include "master/test_kit.h"

enum {
    CLIENTS = 5,
    OWNERS = 2, /* the first clients */
    UNITS = 256,
    KEYS = 24,
    OPS = 6,
    PLACES = 16,
    OLD = 64,
    FRAMES = 4096,
};

struct place {
    int owner; /* whose memory */
    uint32_t first, units;
    uint64_t size;
    uint64_t session; /* under which it was granted, or reported as held */
    uint32_t content; /* what it writes */
    uint32_t key;
};

struct live_op {
    uint64_t op;
    bool pin;
    bool granted[4];
    bool failed;          /* a place was lost: never committed */
    uint64_t valid_until; /* of a read guard */
    uint32_t count;
    struct place places[PLACES];
    uint32_t keys[4];
    uint64_t sizes[4];
    uint32_t key_count;
};

struct client {
    uint64_t session, last_session, connection, next_op, generation;
    bool opening;
    uint64_t paused_until;
    struct live_op ops[OPS];
    uint32_t op_count;
    /* an owner */
    uint64_t segment;
    uint8_t mounted_at[16];
    bool offering;
    uint32_t offer_at;
    uint64_t seq;
    uint32_t mirror_key[UNITS]; /* 0: none; key + 1 at the first unit */
    uint64_t mirror_size[UNITS];
    uint64_t sessions[64];
    uint32_t session_count;
    uint32_t content[UNITS];
};

struct message {
    uint16_t kind;
    uint64_t id, connection, sent_at, op;
    int client;
    uint8_t *body;
    size_t size;
};

struct frame {
    uint64_t connection, request_id;
    uint16_t kind;
    size_t size;
    uint8_t *body;
};

struct world {
    struct master_core *core;
    struct master_config config;
    uint64_t now, random, next_id, next_connection;
    struct client clients[CLIENTS];
    struct message old[OLD]; /* sent lately: may come again */
    uint32_t old_count;
    struct frame frames[FRAMES];
    uint32_t frame_count;
    uint32_t contents;
    uint32_t content_key[1 << 16];
    int step;
    uint64_t commits, gets, restarts, lost;
};

static struct world w;

static uint64_t rnd(uint64_t below)
{
    w.random += 0x9e3779b97f4a7c15ull;
    return base_mix64(w.random) % below;
}

static void on_send(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                    const uint8_t *body, size_t size)
{
    (void)self;
    assert_true(w.frame_count < FRAMES);
    struct frame *f = &w.frames[w.frame_count++];
    *f = (struct frame){connection, request_id, kind, size, malloc(size + 1)};
    if (size > 0)
        memcpy(f->body, body, size);
}

static const struct master_sink sink = {.send = on_send};

static bool overlaps(uint32_t a, uint32_t an, uint32_t b, uint32_t bn)
{
    return a < b + bn && b < a + an;
}

/* Space given to a writer: nobody else may read or write it, and no mirror may still hold it. */
static void check_grant(int who, uint64_t op, const struct place *p)
{
    for (int c = 0; c < CLIENTS; c++)
        for (uint32_t o = 0; o < w.clients[c].op_count; o++) {
            struct live_op *live = &w.clients[c].ops[o];
            if (c == who && live->op == op)
                continue;
            if (!live->pin && live->valid_until != 0 && live->valid_until <= w.now)
                continue; /* a reader that will throw away what it read */
            for (uint32_t i = 0; i < live->count; i++)
                if (live->places[i].owner == p->owner &&
                    overlaps(p->first, p->units, live->places[i].first, live->places[i].units))
                    fail_msg(
                        "step %d: space of client %d op %llu pin %d valid %llu session %llx/%llx "
                        "given to client %d op %llu",
                        w.step, c, (unsigned long long)live->op, live->pin,
                        (unsigned long long)live->valid_until,
                        (unsigned long long)live->places[i].session,
                        (unsigned long long)w.clients[c].session, who, (unsigned long long)op);
        }
    struct client *owner = &w.clients[p->owner];
    for (uint32_t u = 0; u < UNITS; u++)
        if (owner->mirror_key[u] != 0 &&
            overlaps(p->first, p->units, u, (uint32_t)((owner->mirror_size[u] + 63) / 64)))
            fail_msg("space given out that the owner's mirror holds");
}

static struct live_op *find_op(struct client *c, uint64_t op)
{
    for (uint32_t i = 0; i < c->op_count; i++)
        if (c->ops[i].op == op)
            return &c->ops[i];
    return NULL;
}

static void finish_op(struct client *c, struct live_op *op)
{
    *op = c->ops[--c->op_count];
}

static int owner_of(uint64_t segment)
{
    for (int i = 0; i < OWNERS; i++)
        if (w.clients[i].segment == segment)
            return i;
    return -1;
}

static uint32_t key_number(struct wire_view key)
{
    assert_int_equal(key.size, 3);
    return (uint32_t)(key.data[1] - 'a') + 26u * (uint32_t)(key.data[2] - 'a');
}

static void keys_bin(struct base_buf *out, const uint32_t *keys, uint32_t count)
{
    uint8_t text[64][3];
    struct wire_view views[64];
    for (uint32_t i = 0; i < count; i++) {
        text[i][0] = 'k';
        text[i][1] = (uint8_t)('a' + keys[i] % 26);
        text[i][2] = (uint8_t)('a' + keys[i] / 26);
        views[i] = wire_view_of(text[i], 3);
    }
    assert_int_equal(wire_keys_build(out, views, count), YOLK_OK);
}

/* ---- what comes back ---- */

static void write_place(const struct place *p)
{
    for (uint32_t u = 0; u < p->units; u++)
        w.clients[p->owner].content[p->first + u] = p->content;
}

static struct wire_replica replica_of(const struct wire_view list, const struct wire_result *result,
                                      uint32_t i)
{
    return wire_replica_at(list, result->first + i);
}

static void put_reply(struct client *c, const struct message *m,
                      const struct wire_put_start_reply *reply)
{
    struct live_op *op = find_op(c, m->op);
    if (op == NULL || reply->status != YOLK_OK || op->count > 0)
        return;
    for (uint32_t i = 0; i < wire_result_count(reply->results) && i < op->key_count; i++) {
        struct wire_result result = wire_result_at(reply->results, i);
        if (result.status != YOLK_OK)
            continue;
        op->granted[i] = true;
        uint32_t content = ++w.contents % 65535 + 1;
        w.content_key[content] = op->keys[i];
        for (uint32_t r = 0; r < result.replica_count; r++) {
            struct wire_replica at = replica_of(reply->replicas, &result, r);
            int owner = owner_of(at.segment);
            if (owner < 0) { /* mounted anew meanwhile: the provider refuses it */
                op->failed = true;
                continue;
            }
            struct place p = {.owner = owner,
                              .first = (uint32_t)(at.offset / 64),
                              .units = (uint32_t)((op->sizes[i] + 63) / 64),
                              .size = op->sizes[i],
                              .session = c->session,
                              .content = content,
                              .key = op->keys[i]};
            assert_true(p.first + p.units <= UNITS);
            check_grant((int)(c - w.clients), op->op, &p);
            write_place(&p);
            if (op->count < PLACES)
                op->places[op->count++] = p;
        }
    }
}

static void get_reply(struct client *c, const struct message *m,
                      const struct wire_get_start_reply *reply)
{
    struct live_op *op = find_op(c, m->op);
    if (op == NULL || reply->status != YOLK_OK || op->count > 0)
        return;
    op->valid_until = m->sent_at + w.config.guard_ttl_ms * 990000;
    if (!op->pin && op->valid_until <= w.now)
        return;
    for (uint32_t i = 0; i < wire_result_count(reply->results); i++) {
        struct wire_result result = wire_result_at(reply->results, i);
        if (result.status != YOLK_OK)
            continue;
        w.gets++;
        for (uint32_t r = 0; r < result.replica_count; r++) {
            struct wire_replica at = replica_of(reply->replicas, &result, r);
            int owner = owner_of(at.segment);
            if (owner < 0)
                continue;
            struct place p = {.owner = owner,
                              .first = (uint32_t)(at.offset / 64),
                              .units = (uint32_t)((result.size + 63) / 64),
                              .session = c->session,
                              .size = result.size};
            uint32_t content = w.clients[owner].content[p.first];
            if (w.content_key[content] != op->keys[i])
                fail_msg("step %d: client %d op %llu reads key %u, finds %u in segment %d unit %u",
                         w.step, (int)(c - w.clients), (unsigned long long)op->op, op->keys[i],
                         w.content_key[content], p.owner, p.first);
            for (uint32_t u = 1; u < p.units; u++)
                assert_int_equal(w.clients[owner].content[p.first + u], content);
            if (op->count < PLACES)
                op->places[op->count++] = p;
        }
    }
}

static void session_dead(struct client *c)
{
    c->last_session = c->session ? c->session : c->last_session;
    c->session = 0;
    for (uint32_t i = c->op_count; i-- > 0;)
        if (c->ops[i].valid_until == 0)
            finish_op(c, &c->ops[i]); /* its writers are dropped */
}

static void offer_reply(struct client *c, const struct message *m,
                        const struct wire_mirror_offer_reply *reply)
{
    struct wire_mirror_offer sent;
    assert_int_equal(wire_decode(WIRE_MIRROR_OFFER, m->body, m->size, &sent), YOLK_OK);
    if (sent.segment != c->segment)
        return;
    if (reply->status != YOLK_OK) {
        session_dead(c);
        return;
    }
    for (uint32_t i = 0; i < wire_u32s_count(reply->rejected); i++)
        c->mirror_key[wire_offer_at(sent.recs, wire_u32s_at(reply->rejected, i)).offset / 64] = 0;
    if (!c->offering)
        return;
    if (sent.last)
        c->offering = false;
    else
        c->offer_at =
            (uint32_t)(wire_offer_at(sent.recs, wire_offer_count(sent.recs) - 1).offset / 64) + 1;
}

static void take_reply(const struct frame *f, const struct message *m)
{
    struct client *c = &w.clients[m->client];
    union wire_any any;
    if (f->connection != c->connection)
        return;
    assert_int_equal(wire_decode(f->kind, f->body, f->size, &any), YOLK_OK);
    struct wire_segment_mount_reply mount;
    struct wire_get_start_reply get;
    struct wire_mirror_offer_reply offer;
    switch (f->kind) {
    case WIRE_SESSION_OPEN_REPLY:
        if (c->opening && m->op == c->generation && any.session_open_reply.status == YOLK_OK) {
            c->opening = false;
            c->session = any.session_open_reply.session;
            for (uint32_t o = 0; o < c->op_count; o++)
                for (uint32_t i = 0; i < c->ops[o].count; i++)
                    c->ops[o].places[i].session = c->session;
            if (m->client < OWNERS)
                c->segment |= 1ull << 63; /* to be mounted again */
        }
        break;
    case WIRE_SEGMENT_MOUNT_REPLY:
        assert_int_equal(wire_decode(f->kind, f->body, f->size, &mount), YOLK_OK);
        if (mount.status == YOLK_ERR_STALE && m->op == c->session)
            session_dead(c);
        if ((c->segment >> 63) && mount.status == YOLK_OK && m->op == c->session) {
            c->segment = mount.segment;
            memcpy(c->mounted_at, master_core_instance(w.core), 16);
            c->seq = 0;
            c->offer_at = 0;
            c->offering = false;
            for (uint32_t u = 0; u < UNITS; u++)
                c->offering |= c->mirror_key[u] != 0;
        }
        break;
    case WIRE_MIRROR_OFFER_REPLY:
        assert_int_equal(wire_decode(f->kind, f->body, f->size, &offer), YOLK_OK);
        offer_reply(c, m, &offer);
        break;
    case WIRE_PUT_START_REPLY:
        put_reply(c, m, &any.put_start_reply);
        break;
    case WIRE_GET_START_REPLY:
        assert_int_equal(wire_decode(f->kind, f->body, f->size, &get), YOLK_OK);
        get_reply(c, m, &get);
        break;
    case WIRE_HEARTBEAT_REPLY:
        if (any.status_reply.status == YOLK_ERR_STALE && m->op == c->session)
            session_dead(c);
        break;
    default:
        break;
    }
}

static void input(uint64_t connection, uint16_t kind, uint64_t id, const uint8_t *body, size_t size)
{
    struct wire_header header = {kind, (uint32_t)size, id};
    assert_int_equal(master_core_input(w.core, w.now, connection, &header, body, &sink), YOLK_OK);
}

static void answer(uint64_t connection, uint16_t kind, const void *msg)
{
    struct base_buf out = kit_encode(kind, msg);
    input(connection, kind, 0, out.data, out.size);
    base_buf_free(&out);
}

static void take_facts(struct client *c, const struct wire_facts *facts)
{
    struct wire_keys keys;
    struct wire_view key = {0};
    if (facts->segment != c->segment)
        return;
    if (facts->seq == c->seq + 1) {
        assert_int_equal(wire_keys_open(facts->keys, 4096, &keys), YOLK_OK);
        assert_int_equal(keys.count, wire_fact_count(facts->recs));
        for (uint32_t i = 0; wire_keys_next(&keys, &key); i++) {
            struct wire_fact rec = wire_fact_at(facts->recs, i);
            uint32_t known = 0;
            while (known < c->session_count && c->sessions[known] != rec.session)
                known++;
            if (rec.kind == WIRE_FACT_PLACED) {
                c->mirror_key[rec.offset / 64] = key_number(key) + 1;
                c->mirror_size[rec.offset / 64] = rec.size;
            } else if (rec.kind == WIRE_FACT_FREED) {
                c->mirror_key[rec.offset / 64] = 0;
            } else if (rec.kind == WIRE_FACT_SESSION_OPEN && known == c->session_count &&
                       known < 64) {
                c->sessions[c->session_count++] = rec.session;
            } else if (rec.kind == WIRE_FACT_SESSION_GONE && known < c->session_count) {
                c->sessions[known] = c->sessions[--c->session_count];
            }
        }
        c->seq++;
    }
    struct wire_facts_ack ack = {facts->segment, c->seq};
    if (rnd(8) != 0)
        answer(c->connection, WIRE_FACTS_ACK, &ack);
}

/* The owner refuses the session and has closed what it had mapped. */
static void take_fence(int owner, const struct wire_fence *fence)
{
    if (fence->segment != w.clients[owner].segment || rnd(4) == 0)
        return;
    for (int c = 0; c < CLIENTS; c++)
        for (uint32_t o = 0; o < w.clients[c].op_count; o++) {
            struct live_op *op = &w.clients[c].ops[o];
            for (uint32_t i = op->count; i-- > 0;)
                if (op->places[i].owner == owner &&
                    op->places[i].session == fence->fenced_session) {
                    op->places[i] = op->places[--op->count];
                    op->failed = true;
                }
        }
    answer(w.clients[owner].connection, WIRE_FENCED, fence);
}

static void take_push(const struct frame *f)
{
    union wire_any any;
    struct wire_fence fence;
    struct wire_put_expired expired;
    int who = -1;
    for (int i = 0; i < CLIENTS; i++)
        if (w.clients[i].connection == f->connection)
            who = i;
    if (who < 0 || w.clients[who].paused_until > w.now || rnd(10) == 0)
        return;
    if (f->kind == WIRE_FACTS) {
        assert_int_equal(wire_decode(f->kind, f->body, f->size, &any), YOLK_OK);
        take_facts(&w.clients[who], &any.facts);
    } else if (f->kind == WIRE_FENCE) {
        assert_int_equal(wire_decode(f->kind, f->body, f->size, &fence), YOLK_OK);
        take_fence(who, &fence);
    } else if (f->kind == WIRE_SESSION_LOST) {
        session_dead(&w.clients[who]);
    } else if (f->kind == WIRE_PUT_EXPIRED) {
        assert_int_equal(wire_decode(f->kind, f->body, f->size, &expired), YOLK_OK);
    }
}

static void drain(const struct message *m)
{
    for (uint32_t i = 0; i < w.frame_count; i++) {
        struct frame f = w.frames[i];
        if (f.request_id == 0)
            take_push(&f);
        else if (m != NULL && f.request_id == m->id && w.clients[m->client].paused_until <= w.now &&
                 rnd(12) != 0)
            take_reply(&f, m);
        free(f.body);
    }
    w.frame_count = 0;
}

#endif
