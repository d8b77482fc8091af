/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random clients against the whole core: messages are lost, repeated and late, clients stop and
 * come back, owners lose their segments and mount them again, the master restarts. A model beside
 * it knows what each client may still read or write and what the owners' mirrors hold. Nothing may
 * be given out twice.
 */
#include "master/core_world.h"

/* ---- what goes out ---- */

static void deliver(const struct message *m)
{
    input(m->connection, m->kind, m->id, m->body, m->size);
    drain(m);
}

static void send_message(int client, uint16_t kind, const void *msg, uint64_t op)
{
    struct base_buf out = kit_encode(kind, msg);
    struct message *m = &w.old[w.old_count++ % OLD];
    free(m->body);
    *m = (struct message){.kind = kind,
                          .id = ++w.next_id,
                          .connection = w.clients[client].connection,
                          .sent_at = w.now,
                          .op = op,
                          .client = client,
                          .body = out.data,
                          .size = out.size};
    if (rnd(12) != 0)
        deliver(m);
}

static struct wire_request stamp(struct client *c, uint64_t op)
{
    struct wire_request r = {.session = c->session, .op = op, .floor = c->next_op};
    for (uint32_t i = 0; i < c->op_count; i++)
        r.floor = c->ops[i].op < r.floor ? c->ops[i].op : r.floor;
    return r;
}

static void open_session(int n)
{
    struct client *c = &w.clients[n];
    struct base_buf held;
    struct wire_session_open msg = {.generation = ++c->generation};
    base_buf_init(&held, 1 << 20);
    c->connection = ++w.next_connection;
    c->opening = true;
    msg.request = stamp(c, 0);
    msg.request.session = rnd(2) ? c->last_session : 0;
    msg.client_id[0] = (uint8_t)(n + 1);
    for (uint32_t o = 0; o < c->op_count; o++)
        for (uint32_t i = 0; i < c->ops[o].count; i++) {
            struct place *p = &c->ops[o].places[i];
            struct wire_held rec = {w.clients[p->owner].segment & ~(1ull << 63), p->first * 64ull,
                                    p->size, c->ops[o].op};
            assert_int_equal(wire_held_append(&held, &rec), YOLK_OK);
        }
    msg.held = wire_view_buf(&held);
    send_message(n, WIRE_SESSION_OPEN, &msg, msg.generation);
    base_buf_free(&held);
}

static void mount(int n)
{
    struct client *c = &w.clients[n];
    struct base_buf sessions;
    base_buf_init(&sessions, 1 << 20);
    for (uint32_t i = 0; i < c->session_count; i++)
        assert_int_equal(wire_u64s_append(&sessions, c->sessions[i]), YOLK_OK);
    /* Those that have something of it mapped are known by their sockets. */
    for (int k = 0; k < CLIENTS; k++)
        for (uint32_t o = 0; o < w.clients[k].op_count; o++)
            for (uint32_t i = 0; i < w.clients[k].ops[o].count; i++)
                if (w.clients[k].ops[o].places[i].owner == n)
                    assert_int_equal(
                        wire_u64s_append(&sessions, w.clients[k].ops[o].places[i].session),
                        YOLK_OK);
    struct wire_segment_mount msg = {.request = stamp(c, 0),
                                     .name = wire_view_text("segment"),
                                     .size = UNITS * 64,
                                     .generation = c->segment & ~(1ull << 63),
                                     .old_sessions = wire_view_buf(&sessions)};
    memcpy(msg.prior_master, c->mounted_at, 16);
    for (uint32_t u = 0; u < UNITS; u++)
        msg.mirror_count += c->mirror_key[u] != 0;
    send_message(n, WIRE_SEGMENT_MOUNT, &msg, c->session);
    base_buf_free(&sessions);
}

static void offer(int n)
{
    struct client *c = &w.clients[n];
    struct base_buf keys, recs;
    uint32_t list[3], count = 0, u = c->offer_at;
    base_buf_init(&keys, 1 << 20);
    base_buf_init(&recs, 1 << 20);
    for (; u < UNITS && count < 3; u++)
        if (c->mirror_key[u] != 0) {
            struct wire_offer rec = {.offset = u * 64ull, .size = c->mirror_size[u]};
            assert_int_equal(wire_offer_append(&recs, &rec), YOLK_OK);
            list[count++] = c->mirror_key[u] - 1;
        }
    keys_bin(&keys, list, count);
    struct wire_mirror_offer msg = {.request = stamp(c, 0),
                                    .segment = c->segment,
                                    .keys = wire_view_buf(&keys),
                                    .recs = wire_view_buf(&recs),
                                    .last = count < 3};
    send_message(n, WIRE_MIRROR_OFFER, &msg, 0);
    base_buf_free(&keys);
    base_buf_free(&recs);
}

static struct live_op *begin(struct client *c)
{
    struct live_op *op = &c->ops[c->op_count++];
    memset(op, 0, sizeof *op);
    op->op = c->next_op++;
    op->key_count = 1 + (uint32_t)rnd(3);
    for (uint32_t i = 0; i < op->key_count; i++) {
        op->keys[i] = (uint32_t)(rnd(KEYS / 3) * 3 + i);
        op->sizes[i] = 1 + rnd(rnd(4) ? 640 : 4000);
    }
    return op;
}

static void start(int n, bool put)
{
    struct client *c = &w.clients[n];
    struct base_buf keys, sizes;
    if (c->op_count == OPS)
        return;
    struct live_op *op = begin(c);
    base_buf_init(&keys, 1 << 20);
    base_buf_init(&sizes, 1 << 20);
    keys_bin(&keys, op->keys, op->key_count);
    for (uint32_t i = 0; i < op->key_count; i++)
        assert_int_equal(wire_u64s_append(&sizes, op->sizes[i]), YOLK_OK);
    if (put) {
        struct wire_put_start msg = {.request = stamp(c, op->op),
                                     .keys = wire_view_buf(&keys),
                                     .sizes = wire_view_buf(&sizes),
                                     .replica_num = 1 + (uint32_t)rnd(2)};
        send_message(n, WIRE_PUT_START, &msg, op->op);
    } else {
        op->pin = rnd(4) == 0;
        op->valid_until = 1; /* a reader; nothing granted yet */
        struct wire_get_start msg = {.request = stamp(c, op->op),
                                     .keys = wire_view_buf(&keys),
                                     .flags = op->pin ? WIRE_GET_PIN : 0};
        send_message(n, WIRE_GET_START, &msg, op->op);
    }
    base_buf_free(&keys);
    base_buf_free(&sizes);
}

static void keys_message(int n, struct live_op *op, uint16_t kind, uint64_t number)
{
    struct base_buf keys;
    base_buf_init(&keys, 1 << 20);
    keys_bin(&keys, op->keys, op->key_count);
    struct wire_remove msg = {.request = stamp(&w.clients[n], number),
                              .keys = wire_view_buf(&keys),
                              .force = (uint32_t)rnd(2)};
    struct wire_keys_request plain = {.request = msg.request, .keys = msg.keys};
    send_message(n, kind, kind == WIRE_REMOVE ? (const void *)&msg : (const void *)&plain, number);
    base_buf_free(&keys);
}

static void end_something(int n)
{
    struct client *c = &w.clients[n];
    if (c->op_count == 0)
        return;
    struct live_op op = c->ops[rnd(c->op_count)];
    if (op.valid_until != 0) {
        if (rnd(2))
            finish_op(c, find_op(c, op.op));
        return;
    }
    for (uint32_t i = 0; i < op.count; i++)
        write_place(&op.places[i]);
    bool end = rnd(4) != 0 && op.count > 0 && !op.failed;
    /* From here on it does not write. END may be lost; then it says it again, or the floor says so.
     */
    find_op(c, op.op)->count = 0;
    for (uint32_t i = op.key_count; end && i-- > 0;)
        if (!op.granted[i])
            op.keys[i] = op.keys[--op.key_count];
    keys_message(n, &op, end ? WIRE_PUT_END : WIRE_PUT_REVOKE, op.op);
    w.commits += end;
    struct live_op *live = find_op(c, op.op);
    if (live != NULL)
        finish_op(c, live);
}

static void various(int n)
{
    struct client *c = &w.clients[n];
    struct live_op any = {.key_count = 2, .keys = {(uint32_t)rnd(KEYS), (uint32_t)rnd(KEYS)}};
    struct wire_plain_request beat = {.request = stamp(c, 0)};
    struct wire_remove_all all = {.request = stamp(c, c->next_op++), .force = (uint32_t)rnd(2)};
    struct wire_list list = {.request = stamp(c, 0), .limit = 10};
    switch (rnd(12)) {
    case 0:
    case 1:
        keys_message(n, &any, WIRE_REMOVE, 0);
        break;
    case 2:
    case 3:
        keys_message(n, &any, WIRE_EXIST, 0);
        break;
    case 4:
        if (rnd(20) == 0)
            send_message(n, WIRE_REMOVE_ALL, &all, all.request.op);
        break;
    case 5:
        send_message(n, WIRE_LIST, &list, 0);
        break;
    default:
        send_message(n, WIRE_HEARTBEAT, &beat, c->session);
    }
}

static void act(int n)
{
    struct client *c = &w.clients[n];
    if (c->paused_until > w.now)
        return;
    if (c->session == 0) {
        open_session(n);
    } else if (n < OWNERS && (c->segment >> 63 || c->segment == 0)) {
        mount(n);
    } else if (n < OWNERS && c->offering) {
        offer(n);
    } else {
        uint64_t what = rnd(10);
        if (what < 2)
            start(n, true);
        else if (what < 4)
            start(n, false);
        else if (what < 7)
            end_something(n);
        else
            various(n);
    }
    if (rnd(400) == 0)
        c->paused_until = w.now + rnd(n < OWNERS ? 2500 : 4000) * 1000000;
    if (rnd(100) == 0) { /* its connection breaks */
        master_core_disconnect(w.core, w.now, c->connection, &sink);
        c->connection = ++w.next_connection;
        drain(NULL);
    }
}

static void restart(uint64_t seed)
{
    master_core_destroy(w.core);
    assert_int_equal(master_core_create(&w.config, w.now, seed, &w.core), YOLK_OK);
    w.restarts++;
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &w.clients[i];
        c->connection = ++w.next_connection;
        if (c->session == 0 || c->paused_until > w.now || rnd(4) == 0)
            continue;
        c->last_session =
            c->session; /* it sees that this is another master: what it holds goes on */
        c->session = 0;
    }
    for (uint32_t i = 0; i < OLD;
         i++) { /* connections of the old one carry nothing to the new one */
        free(w.old[i].body);
        w.old[i].body = NULL;
    }
}

static void tick(void)
{
    w.now += rnd(30) == 0 ? rnd(300000000) : rnd(3000000);
    (void)master_core_tick(w.core, w.now, &sink);
    drain(NULL);
}

/* Everybody finishes and is quiet: all that was given up must come back as free space. */
static void settle(void)
{
    struct master_stats stats;
    for (int i = 0; i < CLIENTS; i++) {
        w.clients[i].paused_until = 0;
        w.clients[i].op_count = 0;
    }
    for (int round = 0; round < 400; round++)
        for (int i = 0; i < CLIENTS; i++) {
            struct client *c = &w.clients[i];
            struct wire_plain_request beat = {.request = stamp(c, 0)};
            if (c->session == 0)
                open_session(i);
            else if (i < OWNERS && (c->segment >> 63 || c->segment == 0))
                mount(i);
            else if (i < OWNERS && c->offering)
                offer(i);
            else
                send_message(i, WIRE_HEARTBEAT, &beat, c->session);
            w.now += 10000000;
            (void)master_core_tick(w.core, w.now, &sink);
            drain(NULL);
        }
    master_core_stats(w.core, &stats);
    assert_int_equal(stats.objects_open, 0);
    assert_int_equal(stats.limbo_bytes, 0);
    assert_int_equal(stats.zombies, 0);
    assert_int_equal(stats.guards, 0);
    assert_int_equal(stats.segments_open, OWNERS);
    kit_check(w.core);
}

static void run(uint64_t seed, int steps, bool restarts)
{
    memset(&w, 0, sizeof w);
    w.random = seed;
    w.config = (struct master_config){.guard_ttl_ms = 300,
                                      .guard_margin_ms = 20,
                                      .lease_ttl_ms = 200,
                                      .put_timeout_ms = 400,
                                      .session_ttl_ms = 1000,
                                      .lost_keep_ms = 8000,
                                      .stall_ms = 400,
                                      .resend_ms = 50,
                                      .step = 8,
                                      .fact_batch = 5,
                                      .fact_window = 3,
                                      .eviction_high_watermark_ratio = 0.8,
                                      .eviction_ratio = 0.1};
    w.now = 1000000000;
    assert_int_equal(master_core_create(&w.config, w.now, seed, &w.core), YOLK_OK);
    for (int i = 0; i < CLIENTS; i++) {
        w.clients[i].next_op = 1;
        w.clients[i].connection = ++w.next_connection;
    }
    for (int i = 0; i < steps; i++) {
        w.step = i;
        act((int)rnd(CLIENTS));
        if (rnd(3) == 0)
            tick();
        if (rnd(8) == 0) { /* an old message again */
            struct message *m = &w.old[rnd(OLD)];
            if (m->body != NULL && m->connection == w.clients[m->client].connection)
                deliver(m);
        }
        if (restarts && rnd(4000) == 0)
            restart(seed * 1000 + (uint64_t)i);
        if (i % 16 == 0)
            kit_check(w.core);
    }
    settle();
    assert_true(w.commits > 0 && w.gets > 0);
    master_core_destroy(w.core);
    for (uint32_t i = 0; i < OLD; i++)
        free(w.old[i].body);
}

static void nothing_is_given_out_twice(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++)
        run(seed, 6000, false);
}

static void nor_across_restarts_of_the_master(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 130; seed++)
        run(seed, 8000, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_given_out_twice),
        cmocka_unit_test(nor_across_restarts_of_the_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
