/* SPDX-License-Identifier: Apache-2.0 */
/* The master's server over loopback: peers that misbehave do not disturb the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/loop.h"
#include "platform/net.h"
#include "server/server.h"
#include "wire/hello.h"
#include "wire/msg.h"

#define HANDSHAKE_MS 300u
#define WAIT_NS      (20 * NS_PER_S)

struct fixture {
    struct loop *loop;
    struct server *server;
    pthread_t thread;
    _Atomic unsigned log_lines;
};

static struct fixture fixture;

static void count_log(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)level, (void)room, (void)text;
    fixture.log_lines++;
}

static void *run_loop(void *arg)
{
    assert_int_equal(loop_run(arg), YOLK_OK);
    return NULL;
}

static uint64_t soon(void)
{
    return clock_real_now_ns() + WAIT_NS;
}

static void start(const char *secret, size_t max_connections)
{
    struct server_options options = {
        .secret = secret,
        .secret_size = secret ? strlen(secret) : 0,
        .max_connections = max_connections,
        .handshake_ms = HANDSHAKE_MS,
        .seed = 7,
    };
    master_config_default(&options.config);
    fixture.log_lines = 0;
    base_log_set(count_log, NULL);
    assert_int_equal(net_address_parse("127.0.0.1:0", 0, &options.address), YOLK_OK);
    assert_int_equal(loop_create(NULL, &fixture.loop), YOLK_OK);
    assert_int_equal(server_create(fixture.loop, &options, &fixture.server), YOLK_OK);
    assert_int_equal(pthread_create(&fixture.thread, NULL, run_loop, fixture.loop), 0);
}

static void stop(void)
{
    loop_stop(fixture.loop);
    pthread_join(fixture.thread, NULL);
    server_destroy(fixture.server);
    loop_destroy(fixture.loop);
    base_log_set(NULL, NULL);
}

static int dial(void)
{
    int fd = -1;
    assert_int_equal(net_connect(server_address(fixture.server), soon(), &fd), YOLK_OK);
    return fd;
}

static int io_send(void *self, const void *data, size_t size)
{
    return net_send_all(*(int *)self, data, size, soon());
}

static int io_recv(void *self, void *data, size_t size)
{
    return net_recv_all(*(int *)self, data, size, soon());
}

static int greet(int fd, const char *secret, uint32_t purpose)
{
    struct wire_hello_options options = {.secret = secret,
                                         .secret_size = secret ? strlen(secret) : 0,
                                         .role = WIRE_ROLE_CLIENT,
                                         .purpose = purpose};
    struct wire_hello_io io = {.self = &fd, .send = io_send, .recv = io_recv};
    struct wire_hello_machine machine;
    memset(options.instance, 9, sizeof(options.instance));
    assert_int_equal(wire_hello_init(&machine, false, &options), YOLK_OK);
    int status = wire_hello_run(&machine, &io);
    wire_hello_wipe(&machine);
    return status;
}

/* The next frame; returns its kind, or 0 when the connection ended. */
static uint16_t receive(int fd, uint8_t *body, size_t room, struct wire_header *header)
{
    uint8_t bytes[WIRE_HEADER_SIZE];
    if (net_recv_all(fd, bytes, sizeof(bytes), soon()) != YOLK_OK)
        return 0;
    assert_int_equal(wire_header_decode(bytes, header), YOLK_OK);
    assert_true(header->body_size <= room);
    assert_int_equal(net_recv_all(fd, body, header->body_size, soon()), YOLK_OK);
    return header->kind;
}

static void send_message(int fd, uint16_t kind, uint64_t request_id, const void *msg)
{
    struct base_buf out;
    base_buf_init(&out, MAX_FRAME_BODY);
    assert_int_equal(wire_frame_encode(kind, request_id, msg, &out), YOLK_OK);
    assert_int_equal(net_send_all(fd, out.data, out.size, soon()), YOLK_OK);
    base_buf_free(&out);
}

/* Opens a session and returns its id. */
static uint64_t open_session(int fd)
{
    struct wire_session_open open = {.name = wire_view_text("test")};
    struct wire_session_open_reply reply;
    struct wire_header header;
    static uint8_t body[65536];
    memset(open.client_id, 5, sizeof(open.client_id));
    send_message(fd, WIRE_SESSION_OPEN, 1, &open);
    assert_int_equal(receive(fd, body, sizeof(body), &header), WIRE_SESSION_OPEN_REPLY);
    assert_int_equal(header.request_id, 1);
    assert_int_equal(wire_decode(header.kind, body, header.body_size, &reply), YOLK_OK);
    assert_int_equal(reply.status, YOLK_OK);
    assert_true(reply.session != 0);
    return reply.session;
}

/* An ERROR whose text has `part` in it. */
static void expect_error(int fd, uint64_t request_id, int status, const char *part)
{
    struct wire_header header;
    struct wire_status_reply reply;
    uint8_t body[65536];
    char text[MAX_TEXT_SIZE + 1] = {0};
    uint16_t kind = receive(fd, body, sizeof(body), &header);
    assert_int_equal(kind, WIRE_ERROR);
    assert_int_equal(header.request_id, request_id);
    assert_int_equal(wire_decode(kind, body, header.body_size, &reply), YOLK_OK);
    assert_int_equal(reply.status, status);
    assert_in_range(reply.text.size, 1, MAX_TEXT_SIZE);
    memcpy(text, reply.text.data, reply.text.size);
    assert_non_null(strstr(text, part));
}

static void expect_end(int fd)
{
    struct wire_header header;
    uint8_t body[16];
    assert_int_equal(receive(fd, body, sizeof(body), &header), 0);
    net_close(fd);
}

static void test_session_over_the_wire(void **state)
{
    (void)state;
    start(NULL, 0);
    int fd = dial();
    assert_int_equal(greet(fd, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    open_session(fd);
    net_close(fd);
    stop();
}

static void test_garbage_gets_an_error_and_disturbs_nobody(void **state)
{
    (void)state;
    start(NULL, 0);
    int good = dial();
    assert_int_equal(greet(good, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    for (int i = 0; i < 20; i++) {
        int fd = dial();
        assert_int_equal(net_send_all(fd, "GET / HTTP/1.1\r\n\r\n", 18, soon()), YOLK_OK);
        expect_error(fd, 0, YOLK_ERR_PROTOCOL, "no Yolk frame");
        expect_end(fd);
    }
    open_session(good);
    net_close(good);
    stop();
    /* Twenty of them within a second or so must not fill the log. */
    assert_in_range(fixture.log_lines, 1, 5);
}

static void test_frame_of_four_gib_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_HEADER_SIZE];
    struct wire_header header = {.kind = WIRE_HELLO, .body_size = UINT32_MAX, .request_id = 1};
    start(NULL, 0);
    wire_header_encode(&header, bytes);
    int fd = dial();
    assert_int_equal(net_send_all(fd, bytes, sizeof(bytes), soon()), YOLK_OK);
    expect_error(fd, 0, YOLK_ERR_TOO_LARGE, "larger than its kind allows");
    expect_end(fd);
    /* The same from one that has said hello. */
    fd = dial();
    assert_int_equal(greet(fd, NULL, WIRE_PURPOSE_DATA), YOLK_OK);
    header.kind = WIRE_EXIST;
    wire_header_encode(&header, bytes);
    assert_int_equal(net_send_all(fd, bytes, sizeof(bytes), soon()), YOLK_OK);
    expect_error(fd, 0, YOLK_ERR_TOO_LARGE, "larger than its kind allows");
    expect_end(fd);
    stop();
}

static void test_bad_requests_are_told_why(void **state)
{
    (void)state;
    start(NULL, 0);
    int fd = dial();
    assert_int_equal(greet(fd, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    /* What only a master sends: refused, and the connection goes on. */
    struct wire_status_reply reply = {.status = YOLK_OK};
    send_message(fd, WIRE_HEARTBEAT_REPLY, 7, &reply);
    expect_error(fd, 7, YOLK_ERR_UNSUPPORTED, "HEARTBEAT_REPLY");
    open_session(fd);
    /* Not a body at all: the request is answered, then the connection ends, with the same reason.
     */
    uint8_t bytes[WIRE_HEADER_SIZE + 1];
    struct wire_header header = {.kind = WIRE_EXIST, .body_size = 1, .request_id = 8};
    wire_header_encode(&header, bytes);
    bytes[WIRE_HEADER_SIZE] = 0xc1;
    assert_int_equal(net_send_all(fd, bytes, sizeof(bytes), soon()), YOLK_OK);
    expect_error(fd, 8, YOLK_ERR_PROTOCOL, "EXIST");
    expect_error(fd, 0, YOLK_ERR_PROTOCOL, "EXIST");
    expect_end(fd);
    stop();
}

static void test_secret(void **state)
{
    (void)state;
    start("sesame", 0);
    int fd = dial();
    assert_int_equal(greet(fd, "sesame", WIRE_PURPOSE_CONTROL), YOLK_OK);
    open_session(fd);
    net_close(fd);
    fd = dial();
    assert_int_equal(greet(fd, "simsim", WIRE_PURPOSE_CONTROL), YOLK_ERR_AUTH);
    net_close(fd);
    fd = dial();
    assert_int_equal(greet(fd, NULL, WIRE_PURPOSE_CONTROL), YOLK_ERR_AUTH);
    net_close(fd);
    /* Requests before the hello is complete are none. */
    fd = dial();
    struct wire_session_open open = {.name = wire_view_text("thief")};
    send_message(fd, WIRE_SESSION_OPEN, 1, &open);
    struct wire_header header;
    uint8_t body[65536];
    uint16_t kind = receive(fd, body, sizeof(body), &header);
    assert_true(kind != WIRE_SESSION_OPEN_REPLY);
    net_close(fd);
    stop();
}

static void test_slow_hello_is_closed(void **state)
{
    (void)state;
    uint8_t body[16];
    struct wire_header header;
    start(NULL, 0);
    int silent = dial(), half = dial();
    assert_int_equal(net_send_all(half, "YK", 2, soon()), YOLK_OK);
    uint64_t before = clock_real_now_ns();
    assert_int_equal(receive(silent, body, sizeof(body), &header), 0);
    assert_int_equal(receive(half, body, sizeof(body), &header), 0);
    assert_true(clock_real_now_ns() - before < WAIT_NS / 2);
    net_close(silent);
    net_close(half);
    /* A connection that has said hello may be silent for longer. */
    int good = dial();
    assert_int_equal(greet(good, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    assert_int_equal(net_wait(good, POLLIN, clock_real_now_ns() + 2 * HANDSHAKE_MS * NS_PER_MS),
                     YOLK_ERR_TIMEOUT);
    open_session(good);
    net_close(good);
    stop();
}

static void test_connection_limit(void **state)
{
    (void)state;
    uint8_t body[16];
    struct wire_header header;
    start(NULL, 2);
    int first = dial(), second = dial();
    assert_int_equal(greet(first, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    assert_int_equal(greet(second, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    int third = dial();
    assert_int_equal(receive(third, body, sizeof(body), &header), 0);
    net_close(third);
    open_session(first);
    net_close(second);
    /* Its place is free as soon as the server has seen the end. */
    int fd = -1;
    for (int i = 0; i < 1000; i++) {
        fd = dial();
        if (greet(fd, NULL, WIRE_PURPOSE_CONTROL) == YOLK_OK)
            break;
        net_close(fd);
        fd = -1;
    }
    assert_true(fd >= 0);
    net_close(fd);
    net_close(first);
    stop();
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    struct base_buf out;
    static uint8_t body[65536];
    start(NULL, 0);
    int fd = dial();
    assert_int_equal(greet(fd, NULL, WIRE_PURPOSE_DATA), YOLK_OK);
    uint64_t session = open_session(fd);
    base_buf_init(&out, 16u << 20);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct wire_plain_request beat = {.request = {.session = session, .op = 100 + i}};
        assert_int_equal(wire_frame_encode(WIRE_HEARTBEAT, 100 + i, &beat, &out), YOLK_OK);
    }
    /* Odd pieces, so that frames arrive cut. */
    for (size_t at = 0; at < out.size; at += 777) {
        size_t piece = out.size - at < 777 ? out.size - at : 777;
        assert_int_equal(net_send_all(fd, out.data + at, piece, soon()), YOLK_OK);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        struct wire_header header;
        assert_int_equal(receive(fd, body, sizeof(body), &header), WIRE_HEARTBEAT_REPLY);
        assert_int_equal(header.request_id, 100 + i);
    }
    base_buf_free(&out);
    net_close(fd);
    stop();
}

/* Each of them is most of what is performed in a turn. */
static void test_large_requests_are_answered_in_order(void **state)
{
    (void)state;
    enum { COUNT = 12, KEYS = 2000 };
    struct base_buf out, keys;
    static uint8_t body[65536];
    static char names[KEYS][40];
    struct wire_view views[KEYS];
    start(NULL, 0);
    int fd = dial();
    assert_int_equal(greet(fd, NULL, WIRE_PURPOSE_CONTROL), YOLK_OK);
    uint64_t session = open_session(fd);
    base_buf_init(&keys, 1u << 20);
    base_buf_init(&out, 16u << 20);
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof(names[i]), "%039d", i);
        views[i] = wire_view_text(names[i]);
    }
    assert_int_equal(wire_keys_build(&keys, views, KEYS), YOLK_OK);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct wire_keys_request exist = {.request = {.session = session},
                                          .keys = wire_view_buf(&keys)};
        assert_int_equal(wire_frame_encode(WIRE_EXIST, 100 + i, &exist, &out), YOLK_OK);
    }
    assert_int_equal(net_send_all(fd, out.data, out.size, soon()), YOLK_OK);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct wire_header header;
        struct wire_results_reply reply;
        assert_int_equal(receive(fd, body, sizeof(body), &header), WIRE_EXIST_REPLY);
        assert_int_equal(header.request_id, 100 + i);
        assert_int_equal(wire_decode(header.kind, body, header.body_size, &reply), YOLK_OK);
        assert_int_equal(reply.status, YOLK_OK);
        assert_int_equal(reply.results.size, KEYS * 4u);
    }
    base_buf_free(&keys);
    base_buf_free(&out);
    net_close(fd);
    stop();
}

static void test_port_in_use(void **state)
{
    (void)state;
    start(NULL, 0);
    struct loop *loop;
    struct server *server = NULL;
    struct server_options options = {.address = *server_address(fixture.server)};
    char port[16];
    master_config_default(&options.config);
    assert_int_equal(loop_create(NULL, &loop), YOLK_OK);
    assert_int_not_equal(server_create(loop, &options, &server), YOLK_OK);
    snprintf(port, sizeof(port), "%u", net_address_port(server_address(fixture.server)));
    assert_non_null(strstr(yolk_last_error(), port));
    loop_destroy(loop);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session_over_the_wire),
        cmocka_unit_test(test_garbage_gets_an_error_and_disturbs_nobody),
        cmocka_unit_test(test_frame_of_four_gib_is_refused),
        cmocka_unit_test(test_bad_requests_are_told_why),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_slow_hello_is_closed),
        cmocka_unit_test(test_connection_limit),
        cmocka_unit_test(test_pipelined_requests_are_answered_in_order),
        cmocka_unit_test(test_large_requests_are_answered_in_order),
        cmocka_unit_test(test_port_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
