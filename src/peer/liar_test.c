/* SPDX-License-Identifier: Apache-2.0 */
/* A peer whose handshake lies: it is found out, or what it names is refused, in time. */
#include <yolk/peer.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/limits.h"
#include "peer/internal.h"
#include "platform/clock.h"
#include "platform/thread.h"
#include "wire/frame.h"
#include "wire/msg.h"

static uint8_t memory[64];

struct lie {
    const char *endpoints;
    uint64_t segment;
    uint16_t kind;           /* of the answer */
    uint32_t size_more;      /* that its header promises, and that never come */
    enum yolk_status opened; /* what opening it says */
};
struct liar {
    int listener, fd;
    const struct lie *lie;
};

static int liar_send(void *self, const void *data, size_t size)
{
    return net_send_all(((struct liar *)self)->fd, data, size, clock_real_now_ns() + 5 * NS_PER_S);
}

static int liar_recv(void *self, void *data, size_t size)
{
    return net_recv_all(((struct liar *)self)->fd, data, size, clock_real_now_ns() + 5 * NS_PER_S);
}

static void tell_the_lie(struct liar *liar)
{
    struct wire_header header;
    struct base_buf out;
    uint8_t in[WIRE_HEADER_SIZE + 4096];
    base_buf_init(&out, 1 << 20);
    const struct wire_peer_describe_reply reply = {
        .segment = liar->lie->segment, .endpoints = wire_view_text(liar->lie->endpoints)};
    if (liar_recv(liar, in, WIRE_HEADER_SIZE) == YOLK_OK &&
        wire_header_decode(in, &header) == YOLK_OK && header.body_size <= 4096 &&
        liar_recv(liar, in, header.body_size) == YOLK_OK &&
        wire_frame_encode(WIRE_PEER_DESCRIBE_REPLY, header.request_id, &reply, &out) == YOLK_OK) {
        header.kind = liar->lie->kind;
        header.body_size = (uint32_t)out.size - WIRE_HEADER_SIZE + liar->lie->size_more;
        wire_header_encode(&header, out.data);
        (void)liar_send(liar, out.data, out.size);
        (void)liar_recv(liar, in, 1); /* until the other one is gone */
    }
    base_buf_free(&out);
}

/* Every connection: a hello in order, then an answer that is not. */
static void liar_main(void *arg)
{
    struct liar *liar = arg;
    const struct wire_hello_options options = {.purposes = 1u << WIRE_PURPOSE_PEER};
    const struct wire_hello_io io = {liar, liar_send, liar_recv};
    struct wire_hello_machine hello;
    liar->fd = net_accept_ready(liar->listener);
    if (liar->fd < 0)
        return;
    if (wire_hello_init(&hello, true, &options) == YOLK_OK) {
        if (wire_hello_run(&hello, &io) == YOLK_OK)
            tell_the_lie(liar);
        wire_hello_wipe(&hello);
    }
    net_close(liar->fd);
}

static void opens_a_liar(struct yolk_peer *a, const struct lie *lie)
{
    struct liar liar = {.lie = lie};
    struct net_address address;
    struct thread thread;
    char name[32];
    uint64_t segment;
    assert_int_equal(net_address_parse("127.0.0.1:0", 0, &address), YOLK_OK);
    assert_int_equal(net_listen(&address, 4, &liar.listener, &address), YOLK_OK);
    snprintf(name, sizeof(name), "127.0.0.1:%u", net_address_port(&address));
    int flags = fcntl(liar.listener, F_GETFL);
    assert_int_equal(fcntl(liar.listener, F_SETFL, flags & ~O_NONBLOCK), 0);
    assert_int_equal(thread_start(&thread, "liar", liar_main, &liar), YOLK_OK);
    assert_int_equal(yolk_peer_open(a, name, &segment), lie->opened);
    if (lie->opened == YOLK_OK) {
        const struct yolk_request one = {.opcode = YOLK_WRITE,
                                         .local = memory,
                                         .segment = segment,
                                         .offset = (uint64_t)(uintptr_t)memory,
                                         .size = sizeof(memory)};
        assert_int_not_equal(yolk_peer_transfer(a, &one, 1, clock_real_now_ns() + 5 * NS_PER_S),
                             YOLK_OK);
        assert_int_equal(yolk_peer_close(a, segment), YOLK_OK);
    }
    thread_join(&thread);
    net_close(liar.listener);
}

static void what_a_liar_says_harms_nobody(void **state)
{
    (void)state;
    struct yolk_peer_options options;
    struct yolk_peer *a, *b;
    yolk_peer_options_init(&options);
    options.transports = "tcp";
    options.timeout_ms = 1000;
    assert_int_equal(yolk_peer_create(&options, &a), YOLK_OK);
    assert_int_equal(yolk_peer_create(&options, &b), YOLK_OK);
    assert_int_equal(yolk_peer_register(a, memory, sizeof(memory), "*", YOLK_LOCAL), YOLK_OK);
    const char *of_b = yolk_served_endpoints(b->served);
    const struct lie lies[] = {
        {of_b, 0, WIRE_PEER_DESCRIBE_REPLY, 0, YOLK_ERR_PROTOCOL},
        {of_b, 5, WIRE_PEER_NOTIFY_REPLY, 0, YOLK_ERR_PROTOCOL},
        {of_b, 5, WIRE_PEER_DESCRIBE_REPLY, 64, YOLK_ERR_TIMEOUT},
        {of_b, b->segment ^ 2, WIRE_PEER_DESCRIBE_REPLY, 0, YOLK_OK},
        {"tcp=", 5, WIRE_PEER_DESCRIBE_REPLY, 0, YOLK_OK},
        {"tcp=unix:/nowhere", 5, WIRE_PEER_DESCRIBE_REPLY, 0, YOLK_OK},
        {"tcp=127.0.0.1:1", 5, WIRE_PEER_DESCRIBE_REPLY, 0, YOLK_OK},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
        opens_a_liar(a, &lies[i]);
    uint64_t segment;
    assert_int_equal(yolk_peer_open(a, yolk_peer_name(b), &segment), YOLK_OK);
    assert_int_equal(yolk_peer_probe(a, segment, 3000), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(a), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(b), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_liar_says_harms_nobody)};
    return cmocka_run_group_tests_name("peer.liar", tests, NULL, NULL);
}
