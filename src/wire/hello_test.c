/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "wire/hello.h"

static struct wire_hello_options side(const char *secret, uint32_t min, uint32_t max)
{
    struct wire_hello_options o = {
        .secret = secret,
        .secret_size = secret ? strlen(secret) : 0,
        .version_min = min,
        .version_max = max,
        .features = 7,
        .role = WIRE_ROLE_NODE,
        .purpose = WIRE_PURPOSE_DATA,
        .session = 4711,
    };
    return o;
}

/* Gives the first frame of `from` to m and removes it; -1 when there is none. */
static int feed(struct wire_hello_machine *m, struct base_buf *from, struct base_buf *out)
{
    if (from->size < WIRE_HEADER_SIZE)
        return -1;
    struct wire_header header;
    assert_int_equal(wire_header_decode(from->data, &header), YOLK_OK);
    assert_true(from->size >= WIRE_HEADER_SIZE + header.body_size);
    int status = wire_hello_input(m, &header, from->data + WIRE_HEADER_SIZE, out);
    assert_int_equal(status, m->state == WIRE_HELLO_FAILED ? m->status : YOLK_OK);
    base_buf_consume(from, WIRE_HEADER_SIZE + header.body_size);
    return 0;
}

struct pair {
    struct wire_hello_machine client, server;
    struct base_buf to_client, to_server;
};

static void start(struct pair *p, const struct wire_hello_options *client,
                  const struct wire_hello_options *server)
{
    base_buf_init(&p->to_client, 8192);
    base_buf_init(&p->to_server, 8192);
    assert_int_equal(wire_hello_init(&p->client, false, client), YOLK_OK);
    assert_int_equal(wire_hello_init(&p->server, true, server), YOLK_OK);
    assert_int_equal(wire_hello_start(&p->server, &p->to_client), YOLK_OK);
    assert_int_equal(wire_hello_start(&p->client, &p->to_server), YOLK_OK);
}

static void finish(struct pair *p)
{
    bool moved = true;
    while (moved) {
        moved = p->server.state == WIRE_HELLO_RUNNING &&
                feed(&p->server, &p->to_server, &p->to_client) == 0;
        if (p->client.state == WIRE_HELLO_RUNNING)
            moved |= feed(&p->client, &p->to_client, &p->to_server) == 0;
    }
    base_buf_free(&p->to_client);
    base_buf_free(&p->to_server);
}

static void meet(struct pair *p, struct wire_hello_options client, struct wire_hello_options server)
{
    start(p, &client, &server);
    finish(p);
}

static void without_secret(void **state)
{
    (void)state;
    struct pair p;
    struct wire_hello_options c = side(NULL, 0, 0), s = side(NULL, 0, 0);
    memset(c.instance, 1, sizeof(c.instance));
    memset(s.instance, 2, sizeof(s.instance));
    s.features = 12;
    meet(&p, c, s);
    assert_int_equal(p.client.state, WIRE_HELLO_DONE);
    assert_int_equal(p.server.state, WIRE_HELLO_DONE);
    assert_false(p.client.authenticated || p.server.authenticated);
    assert_int_equal(p.server.session, 4711);
    assert_int_equal(p.server.role, WIRE_ROLE_NODE);
    assert_int_equal(p.server.purpose, WIRE_PURPOSE_DATA);
    assert_int_equal(p.server.features, 4);
    assert_int_equal(p.client.features, 4);
    assert_int_equal(p.client.version, WIRE_VERSION);
    assert_memory_equal(p.client.peer_instance, s.instance, WIRE_ID_SIZE);
    assert_memory_equal(p.server.peer_instance, c.instance, WIRE_ID_SIZE);
    assert_memory_not_equal(p.client.client_nonce, p.client.server_nonce, WIRE_NONCE_SIZE);
}

static void with_secret(void **state)
{
    (void)state;
    struct pair p;
    meet(&p, side("open sesame", 0, 0), side("open sesame", 0, 0));
    assert_int_equal(p.client.state, WIRE_HELLO_DONE);
    assert_int_equal(p.server.state, WIRE_HELLO_DONE);
    assert_true(p.client.authenticated && p.server.authenticated);
    static const uint8_t zero[WIRE_SECRET_MAX];
    assert_memory_equal(p.client.secret, zero, sizeof(zero));
    assert_memory_equal(p.server.secret, zero, sizeof(zero));
}

static void wrong_secrets(void **state)
{
    (void)state;
    struct pair p;
    meet(&p, side("one", 0, 0), side("two", 0, 0));
    assert_int_equal(p.client.status, YOLK_ERR_AUTH);
    assert_int_equal(p.server.status, YOLK_ERR_AUTH);
    assert_non_null(strstr(p.client.text, "secrets of client and server differ"));
    assert_non_null(strstr(p.server.text, "secrets of client and server differ"));
    meet(&p, side(NULL, 0, 0), side("two", 0, 0));
    assert_int_equal(p.client.status, YOLK_ERR_AUTH);
    assert_int_equal(p.server.status, YOLK_ERR_AUTH);
    assert_non_null(strstr(p.client.text, "requires a shared secret"));
    meet(&p, side("one", 0, 0), side(NULL, 0, 0));
    assert_int_equal(p.client.status, YOLK_ERR_AUTH);
    assert_int_equal(p.client.state, WIRE_HELLO_FAILED);
    assert_non_null(strstr(p.client.text, "without one"));
    struct wire_hello_options o = side("x", 0, 0);
    o.secret_size = WIRE_SECRET_MAX + 1;
    assert_int_equal(wire_hello_init(&p.client, false, &o), YOLK_ERR_LIMIT);
}

static void versions(void **state)
{
    (void)state;
    static const struct {
        uint32_t cmin, cmax, smin, smax, agreed;
    } cases[] = {
        {4, 5, 5, 6, 5}, {5, 6, 4, 5, 5}, {4, 5, 4, 5, 5}, {5, 5, 5, 5, 5},
        {1, 4, 5, 6, 0}, {6, 7, 4, 5, 0}, {1, 9, 5, 5, 5},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair p;
        meet(&p, side("s", cases[i].cmin, cases[i].cmax), side("s", cases[i].smin, cases[i].smax));
        if (cases[i].agreed) {
            assert_int_equal(p.client.state, WIRE_HELLO_DONE);
            assert_int_equal(p.server.state, WIRE_HELLO_DONE);
            assert_int_equal(p.client.version, cases[i].agreed);
            assert_int_equal(p.server.version, cases[i].agreed);
        } else {
            assert_int_equal(p.client.status, YOLK_ERR_VERSION);
            assert_int_equal(p.server.status, YOLK_ERR_VERSION);
            assert_non_null(strstr(p.client.text, "no common protocol version"));
        }
    }
}

/* Lets `change` work on the client's HELLO or the server's HELLO_REPLY on its way. */
static void tampered(void (*change_hello)(struct wire_hello *),
                     void (*change_reply)(struct wire_hello_reply *))
{
    struct pair p;
    struct wire_hello_options c = side("s", 1, 3), s = side("s", 1, 3);
    start(&p, &c, &s);
    if (change_hello) {
        struct wire_hello hello;
        assert_int_equal(wire_decode(WIRE_HELLO, p.to_server.data + WIRE_HEADER_SIZE,
                                     p.to_server.size - WIRE_HEADER_SIZE, &hello),
                         YOLK_OK);
        change_hello(&hello);
        base_buf_clear(&p.to_server);
        assert_int_equal(wire_frame_encode(WIRE_HELLO, 0, &hello, &p.to_server), YOLK_OK);
    }
    assert_int_equal(feed(&p.server, &p.to_server, &p.to_client), 0);
    if (change_reply) {
        struct wire_hello_reply reply;
        assert_int_equal(wire_decode(WIRE_HELLO_REPLY, p.to_client.data + WIRE_HEADER_SIZE,
                                     p.to_client.size - WIRE_HEADER_SIZE, &reply),
                         YOLK_OK);
        change_reply(&reply);
        base_buf_clear(&p.to_client);
        assert_int_equal(wire_frame_encode(WIRE_HELLO_REPLY, 0, &reply, &p.to_client), YOLK_OK);
    }
    finish(&p);
    assert_int_equal(p.client.state, WIRE_HELLO_FAILED);
    assert_int_equal(p.server.state, WIRE_HELLO_FAILED);
    assert_int_equal(p.client.status, YOLK_ERR_AUTH);
}

static void change_role(struct wire_hello *h)
{
    h->role = WIRE_ROLE_ADMIN;
}
static void change_purpose(struct wire_hello *h)
{
    h->purpose = WIRE_PURPOSE_CONTROL;
}
static void change_session(struct wire_hello *h)
{
    h->session++;
}
static void change_max(struct wire_hello *h)
{
    h->max = 2; /* a downgrade */
}
static void change_features(struct wire_hello *h)
{
    h->features = 0;
}
static void change_version(struct wire_hello_reply *r)
{
    r->version = 1;
}
static void drop_auth(struct wire_hello_reply *r)
{
    r->auth_required = 0;
}
static void change_nonce(struct wire_hello_reply *r)
{
    r->nonce[3] ^= 1;
}

static void everything_said_is_bound(void **state)
{
    (void)state;
    void (*hellos[])(struct wire_hello *) = {change_role, change_purpose, change_session,
                                             change_max, change_features};
    for (size_t i = 0; i < sizeof(hellos) / sizeof(hellos[0]); i++)
        tampered(hellos[i], NULL);
    tampered(NULL, change_version);
    tampered(NULL, drop_auth);
    tampered(NULL, change_nonce);
}

static void replayed_proof(void **state)
{
    (void)state;
    struct pair p;
    struct wire_hello_options o = side("s", 0, 0);
    struct base_buf hello, auth;
    base_buf_init(&hello, 4096);
    base_buf_init(&auth, 4096);
    /* record a good conversation */
    start(&p, &o, &o);
    assert_int_equal(base_buf_append(&hello, p.to_server.data, p.to_server.size), YOLK_OK);
    assert_int_equal(feed(&p.server, &p.to_server, &p.to_client), 0);
    assert_int_equal(feed(&p.client, &p.to_client, &p.to_server), 0);
    assert_int_equal(base_buf_append(&auth, p.to_server.data, p.to_server.size), YOLK_OK);
    finish(&p);
    assert_int_equal(p.server.state, WIRE_HELLO_DONE);
    /* and play it to the same server again */
    struct wire_hello_machine again;
    struct base_buf out;
    base_buf_init(&out, 4096);
    assert_int_equal(wire_hello_init(&again, true, &o), YOLK_OK);
    assert_int_equal(feed(&again, &hello, &out), 0);
    assert_int_equal(again.state, WIRE_HELLO_RUNNING);
    base_buf_clear(&out);
    assert_int_equal(feed(&again, &auth, &out), 0);
    assert_int_equal(again.state, WIRE_HELLO_FAILED);
    assert_int_equal(again.status, YOLK_ERR_AUTH);
    assert_true(out.size > 0); /* the client is told */
    assert_int_equal(out.data[2], WIRE_AUTH_REPLY);
    base_buf_free(&out);
    base_buf_free(&hello);
    base_buf_free(&auth);
}

/* The server's own proof, sent back as the client's. */
static void reflected_proof(void **state)
{
    (void)state;
    struct pair p;
    struct wire_hello_options o = side("s", 0, 0);
    start(&p, &o, &o);
    assert_int_equal(feed(&p.server, &p.to_server, &p.to_client), 0);
    struct wire_hello_reply reply;
    assert_int_equal(wire_decode(WIRE_HELLO_REPLY, p.to_client.data + WIRE_HEADER_SIZE,
                                 p.to_client.size - WIRE_HEADER_SIZE, &reply),
                     YOLK_OK);
    struct wire_auth auth;
    memcpy(auth.proof, reply.proof, sizeof(auth.proof));
    assert_int_equal(wire_frame_encode(WIRE_AUTH, 0, &auth, &p.to_server), YOLK_OK);
    base_buf_clear(&p.to_client);
    assert_int_equal(feed(&p.server, &p.to_server, &p.to_client), 0);
    assert_int_equal(p.server.status, YOLK_ERR_AUTH);
    base_buf_free(&p.to_client);
    base_buf_free(&p.to_server);
}

static void wrong_order(void **state)
{
    (void)state;
    struct wire_hello_machine m;
    struct wire_hello_options o = side(NULL, 0, 0);
    struct base_buf out;
    base_buf_init(&out, 4096);
    static const uint8_t empty[] = {0x80};
    static const uint16_t kinds[] = {WIRE_AUTH, WIRE_HELLO_REPLY, WIRE_PUT_START, WIRE_HELLO, 999};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct wire_header header = {kinds[i], sizeof(empty), 0};
        assert_int_equal(wire_hello_init(&m, true, &o), YOLK_OK);
        assert_int_equal(wire_hello_input(&m, &header, empty, &out), YOLK_ERR_PROTOCOL);
        assert_int_equal(m.state, WIRE_HELLO_FAILED);
        assert_int_equal(wire_hello_input(&m, &header, empty, &out), YOLK_ERR_INVALID);
    }
    struct wire_header big = {WIRE_PUT_START, 1 << 20, 0};
    assert_int_equal(wire_hello_check_header(&big), YOLK_ERR_PROTOCOL);
    struct pair p;
    struct wire_hello_options s = side(NULL, 0, 0);
    s.purposes = 1u << WIRE_PURPOSE_CONTROL;
    meet(&p, o, s);
    assert_int_equal(p.client.status, YOLK_ERR_UNSUPPORTED);
    base_buf_free(&out);
}

/* A peer that talks to itself through a script: enough for the blocking runner. */
struct script {
    struct wire_hello_machine server;
    struct base_buf answer;
    struct base_buf from_client;
};

static int script_send(void *self, const void *data, size_t size)
{
    struct script *s = self;
    assert_int_equal(base_buf_append(&s->from_client, data, size), YOLK_OK);
    while (s->server.state == WIRE_HELLO_RUNNING &&
           feed(&s->server, &s->from_client, &s->answer) == 0)
        ;
    return YOLK_OK;
}

static int script_recv(void *self, void *data, size_t size)
{
    struct script *s = self;
    if (s->answer.size < size)
        return YOLK_ERR_EOF;
    memcpy(data, s->answer.data, size);
    base_buf_consume(&s->answer, size);
    return YOLK_OK;
}

static void runner(void **state)
{
    (void)state;
    static const char *const secrets[] = {"s", "t"};
    for (int i = 0; i < 2; i++) {
        struct script s;
        struct wire_hello_options c = side("s", 0, 0), o = side(secrets[i], 0, 0);
        base_buf_init(&s.answer, 8192);
        base_buf_init(&s.from_client, 8192);
        assert_int_equal(wire_hello_init(&s.server, true, &o), YOLK_OK);
        struct wire_hello_machine client;
        assert_int_equal(wire_hello_init(&client, false, &c), YOLK_OK);
        struct wire_hello_io io = {&s, script_send, script_recv};
        assert_int_equal(wire_hello_run(&client, &io), i == 0 ? YOLK_OK : YOLK_ERR_AUTH);
        assert_int_equal(client.authenticated, i == 0);
        assert_int_equal(s.server.status, i == 0 ? YOLK_OK : YOLK_ERR_AUTH); /* told by ERROR */
        assert_int_equal(wire_hello_init(&client, true, &c), YOLK_OK);
        assert_int_equal(wire_hello_run(&client, &io), YOLK_ERR_EOF); /* nobody speaks */
        base_buf_free(&s.answer);
        base_buf_free(&s.from_client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_secret),
        cmocka_unit_test(with_secret),
        cmocka_unit_test(wrong_secrets),
        cmocka_unit_test(versions),
        cmocka_unit_test(everything_said_is_bound),
        cmocka_unit_test(replayed_proof),
        cmocka_unit_test(reflected_proof),
        cmocka_unit_test(wrong_order),
        cmocka_unit_test(runner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
