/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/net.h"
#include "transport/tcp/frames.h"
#include "wire/hello.h"
#include "transport/test_support.h"
#include "wire/ticket.h"

static struct pair pair;

static int setup(void **state)
{
    (void)state;
    pair_open(&pair, transport_tcp_ops(), "a secret");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static void test_round_trip(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT, SESSION), *channel;
    static uint8_t out[TCP_LENGTH_MAX], in[TCP_LENGTH_MAX];
    static const size_t sizes[] = {0, 1, 4095, 4096, 16384, 65537, TCP_LENGTH_MAX};
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(out, sizes[i], (unsigned)i);
        assert_int_equal(transfer(ops, channel, YOLK_WRITE, out, 13, sizes[i]), YOLK_OK);
        assert_memory_equal(pair.bytes + 13, out, sizes[i]);
        memset(in, 0, sizes[i]);
        assert_int_equal(transfer(ops, channel, YOLK_READ, in, 13, sizes[i]), YOLK_OK);
        assert_memory_equal(in, out, sizes[i]);
    }
    assert_int_equal(transfer(ops, channel, YOLK_READ, in, 0, TCP_LENGTH_MAX + 1),
                     YOLK_ERR_TOO_LARGE);
    assert_int_equal(transfer(ops, channel, YOLK_READ, in, SEGMENT_SIZE - 10, 11),
                     YOLK_ERR_INVALID);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, out, UINT64_MAX, 11), YOLK_ERR_INVALID);
    /* A refused write's bytes are skipped; the connection goes on. */
    assert_int_equal(transfer(ops, channel, YOLK_READ, in, SEGMENT_SIZE - 10, 10), YOLK_OK);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
}

static void test_pipelined(void **state)
{
    (void)state;
    enum { N = 200, SIZE = 16384 };
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT, SESSION), *channel;
    uint8_t *in = calloc(N, SIZE);
    static struct yolk_io ios[N];
    static int seen[N];
    fill(pair.bytes, SEGMENT_SIZE, 3);
    memset(seen, 0, sizeof seen);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    for (unsigned i = 0; i < N; i++) {
        ios[i] = (struct yolk_io){.opcode = YOLK_READ,
                                  .local = in + (size_t)i * SIZE,
                                  .offset = (uint64_t)i * SIZE,
                                  .size = SIZE,
                                  .cookie = i};
        assert_int_equal(ops->submit(channel, &ios[i]), YOLK_SUBMIT_QUEUED);
    }
    assert_int_equal(ops->channel_close(channel), YOLK_ERR_BUSY);
    for (unsigned i = 0; i < N; i++) {
        struct yolk_completion c = await(ops, channel);
        assert_int_equal(c.status, YOLK_OK);
        assert_int_equal(c.transferred, SIZE);
        assert_int_equal(seen[c.cookie]++, 0);
    }
    assert_memory_equal(in, pair.bytes, (size_t)N * SIZE);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    free(in);
}

static void test_access(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *stale = target_of(&pair, SEGMENT + 1, SESSION), *channel;
    uint8_t bytes[64] = {0};
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, stale, &channel), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_ERR_STALE);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, stale);

    /* Tickets. */
    void *target = target_of(&pair, SEGMENT, SESSION);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    pair.access.grant.require_tickets = 1;
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_ERR_ACCESS);
    struct yolk_io io = {.opcode = YOLK_WRITE, .local = bytes, .offset = 128, .size = 64};
    io.ticket = (struct yolk_ticket){.offset = 64, .size = 128, .op = 9};
    wire_ticket_mac(pair.access.grant.ticket_key, SEGMENT, 64, 128, SESSION, 9, io.ticket.mac);
    assert_int_equal(run_io(ops, channel, &io), YOLK_OK);
    io.offset = 129;
    assert_int_equal(run_io(ops, channel, &io), YOLK_ERR_ACCESS);
    /* A new id: the old one is stale for the connection that was there before, too. */
    ops->set_segment_id(pair.provider.endpoint, pair.served, SEGMENT + 2);
    access_grant_set_segment(&pair.access.grant, SEGMENT + 2, pair.access.grant.ticket_key);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_ERR_STALE);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
}

/* A raw connection that has said the hello. */
static int raw_connect(uint64_t session)
{
    char host[64];
    struct net_address address;
    int fd = -1;
    size_t size = (size_t)(strchr(pair.text, ',') - pair.text);
    assert_true(size < sizeof host);
    memcpy(host, pair.text, size);
    host[size] = '\0';
    assert_int_equal(net_address_parse(host, 0, &address), YOLK_OK);
    assert_int_equal(net_connect(&address, clock_real_now_ns() + CLOCK_NS_PER_S, &fd), YOLK_OK);
    if (session == 0)
        return fd;
    struct wire_hello_options options = {.secret = "a secret",
                                         .secret_size = 8,
                                         .role = WIRE_ROLE_CLIENT,
                                         .purpose = WIRE_PURPOSE_DATA,
                                         .session = session};
    struct wire_hello_machine m;
    struct base_buf out;
    base_buf_init(&out, 4096);
    assert_int_equal(wire_hello_init(&m, false, &options), YOLK_OK);
    assert_int_equal(wire_hello_start(&m, &out), YOLK_OK);
    while (m.state == WIRE_HELLO_RUNNING) {
        uint8_t frame[4096];
        struct wire_header header;
        uint64_t deadline = clock_real_now_ns() + CLOCK_NS_PER_S;
        assert_int_equal(net_send_all(fd, out.data, out.size, deadline), YOLK_OK);
        base_buf_clear(&out);
        assert_int_equal(net_recv_all(fd, frame, WIRE_HEADER_SIZE, deadline), YOLK_OK);
        assert_int_equal(wire_header_decode(frame, &header), YOLK_OK);
        assert_int_equal(net_recv_all(fd, frame + 16, header.body_size, deadline), YOLK_OK);
        assert_int_equal(wire_hello_input(&m, &header, frame + 16, &out), YOLK_OK);
    }
    if (out.size > 0)
        assert_int_equal(net_send_all(fd, out.data, out.size, clock_real_now_ns() + CLOCK_NS_PER_S),
                         YOLK_OK);
    base_buf_free(&out);
    wire_hello_wipe(&m);
    return fd;
}

static void assert_closed(int fd)
{
    uint8_t bytes[256];
    size_t got;
    uint64_t deadline = clock_real_now_ns() + 2 * CLOCK_NS_PER_S;
    int status;
    do {
        status = net_recv_some(fd, bytes, sizeof bytes, deadline, &got);
    } while (status == YOLK_OK);
    assert_true(status == YOLK_ERR_EOF || status == YOLK_ERR_LINK);
    net_close(fd);
}

static void test_garbage(void **state)
{
    (void)state;
    static const uint8_t garbage[64] = "GET / HTTP/1.1\r\n\r\n";
    uint64_t deadline = clock_real_now_ns() + CLOCK_NS_PER_S;
    int fd = raw_connect(0);
    assert_int_equal(net_send_all(fd, garbage, sizeof garbage, deadline), YOLK_OK);
    assert_closed(fd);
    /* Ours by the magic, but it claims 4 GiB. */
    uint8_t frame[TCP_FRAME_MAX] = {0x59, 0x4B, 1, 0, 0xff, 0xff, 0xff, 0xff};
    fd = raw_connect(0);
    assert_int_equal(net_send_all(fd, frame, sizeof frame, deadline), YOLK_OK);
    assert_closed(fd);
    /* The same after the hello: in the header, and as the length of a write. */
    fd = raw_connect(SESSION);
    frame[2] = TCP_WRITE;
    assert_int_equal(net_send_all(fd, frame, sizeof frame, deadline), YOLK_OK);
    assert_closed(fd);
    struct tcp_frame write_frame = {.kind = TCP_WRITE, .segment = SEGMENT, .length = 4ull << 30};
    size_t size = tcp_frame_encode(&write_frame, frame);
    fd = raw_connect(SESSION);
    assert_int_equal(net_send_all(fd, frame, size, deadline), YOLK_OK);
    assert_closed(fd);
    test_round_trip(state);
}

static void test_wrong_secret(void **state)
{
    (void)state;
    struct side stranger;
    void *target = NULL, *channel = NULL;
    side_open(&stranger, transport_tcp_ops(), 3, "another secret");
    assert_int_equal(stranger.ops->open_target(stranger.endpoint, pair.text, SEGMENT, SEGMENT_SIZE,
                                               SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(stranger.ops, stranger.endpoint, target, &channel),
                     YOLK_ERR_AUTH);
    stranger.ops->close_target(stranger.endpoint, target);
    side_close(&stranger);
    test_round_trip(state);
}

/* The writer stops in the middle: the fence cuts it off, and only then answers OK. */
static void test_fence(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.provider.ops;
    struct tcp_frame frame = {.kind = TCP_WRITE, .segment = SEGMENT, .length = 65536};
    uint8_t bytes[TCP_FRAME_MAX + 100] = {0};
    size_t size = tcp_frame_encode(&frame, bytes);
    memset(bytes + size, 0xab, 100);
    int fd = raw_connect(SESSION);
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    assert_int_equal(net_send_all(fd, bytes, size + 100, deadline), YOLK_OK);
    while (racy_byte(pair.bytes + 99) != 0xab)
        assert_true(clock_real_now_ns() < deadline);
    guarded_fence(&pair.access, SESSION);
    assert_int_equal(ops->fence_session(pair.provider.endpoint, pair.served, SESSION),
                     YOLK_ERR_AGAIN);
    while (ops->fence_session(pair.provider.endpoint, pair.served, SESSION) == YOLK_ERR_AGAIN)
        assert_true(clock_real_now_ns() < deadline);
    assert_closed(fd);
    void *target = target_of(&pair, SEGMENT, SESSION), *channel;
    assert_int_equal(open_channel(pair.consumer.ops, pair.consumer.endpoint, target, &channel),
                     YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 10), YOLK_ERR_ACCESS);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
}

/* ---- a provider in a process of its own ---- */

struct child {
    pid_t pid;
    char text[512];
    int hold; /* closing it ends the child */
};

static void child_start(struct child *c, uint16_t port)
{
    int text[2], hold[2];
    assert_int_equal(pipe(text), 0);
    assert_int_equal(pipe(hold), 0);
    c->pid = fork_quietly();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        static struct pair own;
        struct yolk_transport_options options = {.struct_size = sizeof options, .port = port};
        options.secret = (const uint8_t *)"a secret";
        options.secret_size = 8;
        memset(options.instance, (int)getpid() & 0xff, sizeof options.instance);
        close(hold[1]);
        own.provider.ops = transport_tcp_ops();
        if (own.provider.ops->init(&options, &own.provider.endpoint) != YOLK_OK)
            _exit(1);
        pair_serve(&own, 0);
        fill(own.bytes, SEGMENT_SIZE, 9);
        if (write(text[1], own.text, sizeof own.text) != (ssize_t)sizeof own.text)
            _exit(1);
        char byte;
        while (read(hold[0], &byte, 1) > 0)
            ;
        _exit(0);
    }
    close(text[1]);
    close(hold[0]);
    c->hold = hold[1];
    assert_int_equal(read(text[0], c->text, sizeof c->text), sizeof c->text);
    close(text[0]);
}

static void child_kill(struct child *c)
{
    assert_int_equal(kill(c->pid, SIGKILL), 0);
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
    close(c->hold);
}

static void test_peer_killed(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    struct child child;
    void *target = NULL, *channel, *other, *other_target = target_of(&pair, SEGMENT, SESSION);
    static uint8_t bytes[2][TCP_LENGTH_MAX];
    child_start(&child, 0);
    assert_int_equal(ops->open_target(pair.consumer.endpoint, child.text, SEGMENT, SEGMENT_SIZE,
                                      SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, other_target, &other), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes[0], 0, 4096), YOLK_OK);
    stop_child(child.pid);
    struct yolk_io ios[2] = {
        {.opcode = YOLK_READ, .local = bytes[0], .size = TCP_LENGTH_MAX, .cookie = 0},
        {.opcode = YOLK_WRITE, .local = bytes[1], .size = TCP_LENGTH_MAX, .cookie = 1}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops->submit(channel, &ios[i]), YOLK_SUBMIT_QUEUED);
    struct yolk_completion c;
    assert_int_equal(ops->poll(channel, &c, 1), 0);
    /* The stopped peer disturbs nobody else. */
    assert_int_equal(transfer(ops, other, YOLK_READ, bytes[0], 0, 4096), YOLK_OK);
    child_kill(&child);
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        c = await(ops, channel);
        assert_true(c.status == YOLK_ERR_LINK || c.status == YOLK_ERR_PEER_DEAD);
        seen |= 1 << c.cookie;
    }
    assert_int_equal(seen, 3);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    /* A link that was just connecting may have been the first to notice. */
    enum yolk_status status;
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    do {
        status = open_channel(ops, pair.consumer.endpoint, target, &channel);
        assert_true(clock_real_now_ns() < deadline);
    } while (status == YOLK_ERR_LINK);
    assert_int_equal(status, YOLK_ERR_PEER_DEAD);
    assert_int_equal(ops->channel_close(other), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    ops->close_target(pair.consumer.endpoint, other_target);
}

/* Another life of the provider on the same address is not taken for the old one. */
static void test_restarted_peer(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    struct child child, next;
    void *target = NULL, *channel;
    uint8_t bytes[64];
    child_start(&child, 0);
    assert_int_equal(ops->open_target(pair.consumer.endpoint, child.text, SEGMENT, SEGMENT_SIZE,
                                      SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_OK);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    child_kill(&child);
    child_start(&next, (uint16_t)strtoul(strchr(child.text, ':') + 1, NULL, 10));
    enum yolk_status status = open_channel(ops, pair.consumer.endpoint, target, &channel);
    if (status == YOLK_OK) { /* the old connection's end was not yet seen */
        status = transfer(ops, channel, YOLK_READ, bytes, 0, 64);
        assert_int_equal(ops->channel_close(channel), YOLK_OK);
    }
    assert_int_equal(status, YOLK_ERR_STALE);
    child_kill(&next);
    ops->close_target(pair.consumer.endpoint, target);
}

/* The stopped provider has the whole write in its socket: canceled or not, it is not over. */
static void test_cancel(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    struct child child;
    void *target = NULL, *channel;
    static uint8_t bytes[4][TCP_LENGTH_MAX];
    struct yolk_completion c;
    child_start(&child, 0);
    assert_int_equal(ops->open_target(pair.consumer.endpoint, child.text, SEGMENT, SEGMENT_SIZE,
                                      SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    stop_child(child.pid);
    struct yolk_io read_io = {.opcode = YOLK_READ, .local = bytes[0], .size = 65536, .cookie = 1};
    struct yolk_io write_io = {.opcode = YOLK_WRITE, .local = bytes[1], .size = 4096, .cookie = 2};
    assert_int_equal(ops->submit(channel, &read_io), YOLK_SUBMIT_QUEUED);
    assert_int_equal(ops->submit(channel, &write_io), YOLK_SUBMIT_QUEUED);
    ops->flush(channel);
    ops->cancel(channel, 1);
    ops->cancel(channel, 2);
    c = await(ops, channel);
    assert_int_equal(c.cookie, 1);
    assert_int_equal(c.status, YOLK_ERR_CANCELED);
    memset(bytes[0], 0x5a, 65536);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ops->poll(channel, &c, 1), 0);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    c = await(ops, channel);
    assert_int_equal(c.cookie, 2);
    assert_int_equal(c.status, YOLK_OK);
    for (size_t i = 0; i < 65536; i++)
        assert_int_equal(bytes[0][i], 0x5a);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes[0], 0, 65536), YOLK_OK);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    child_kill(&child);
}

/* The connection breaks under a write whose bytes wait in the stopped provider's socket: it is not
 * over, whatever the connection's state, until the provider says that nothing of it can land. */
static void test_lost_write(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    struct child child;
    void *target = NULL, *channel;
    static uint8_t bytes[4096];
    struct yolk_completion c;
    struct pollfd fds[16];
    child_start(&child, 0);
    assert_int_equal(ops->open_target(pair.consumer.endpoint, child.text, SEGMENT, SEGMENT_SIZE,
                                      SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_OK);
    stop_child(child.pid);
    struct yolk_io io = {.opcode = YOLK_WRITE, .local = bytes, .size = sizeof bytes, .cookie = 2};
    assert_int_equal(ops->submit(channel, &io), YOLK_SUBMIT_QUEUED);
    ops->flush(channel);
    assert_int_equal(ops->wait_fds(channel, fds, 16), 2);
    assert_int_equal(shutdown(fds[1].fd, SHUT_RDWR), 0);
    uint64_t until = clock_real_now_ns() + 100 * CLOCK_NS_PER_MS;
    while (clock_real_now_ns() < until)
        assert_int_equal(ops->poll(channel, &c, 1), 0);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    c = await(ops, channel);
    assert_int_equal(c.status, YOLK_ERR_LINK);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_OK);
    /* The provider never says so: not retried, and for the caller to fence. */
    stop_child(child.pid);
    assert_int_equal(ops->submit(channel, &io), YOLK_SUBMIT_QUEUED);
    ops->flush(channel);
    assert_int_equal(ops->wait_fds(channel, fds, 16), 2);
    assert_int_equal(shutdown(fds[1].fd, SHUT_RDWR), 0);
    c = await(ops, channel);
    assert_int_equal(c.status, YOLK_ERR_STUCK);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    enum yolk_status status;
    until = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    while ((status = transfer(ops, channel, YOLK_READ, bytes, 0, 64)) != YOLK_OK)
        assert_true(clock_real_now_ns() < until);
    /* Killed instead: its memory is gone, so that the write is over. */
    stop_child(child.pid);
    assert_int_equal(ops->submit(channel, &io), YOLK_SUBMIT_QUEUED);
    ops->flush(channel);
    child_kill(&child);
    c = await(ops, channel);
    assert_int_equal(c.status, YOLK_ERR_PEER_DEAD);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
}

static void test_stop_in_flight(void **state)
{
    (void)state;
    struct side own;
    struct child child;
    void *target = NULL, *channel;
    static uint8_t bytes[8][65536];
    child_start(&child, 0);
    side_open(&own, transport_tcp_ops(), 4, "a secret");
    assert_int_equal(
        own.ops->open_target(own.endpoint, child.text, SEGMENT, SEGMENT_SIZE, SESSION, &target),
        YOLK_OK);
    assert_int_equal(open_channel(own.ops, own.endpoint, target, &channel), YOLK_OK);
    stop_child(child.pid);
    struct yolk_io ios[8];
    for (unsigned i = 0; i < 8; i++) {
        ios[i] = (struct yolk_io){.opcode = i % 2 == 0 ? YOLK_READ : YOLK_WRITE,
                                  .local = bytes[i],
                                  .size = 65536,
                                  .cookie = i};
        assert_int_equal(own.ops->submit(channel, &ios[i]), YOLK_SUBMIT_QUEUED);
    }
    assert_int_equal(own.ops->stop(own.endpoint), YOLK_OK);
    unsigned seen = 0;
    for (int i = 0; i < 8; i++) {
        struct yolk_completion c = await(own.ops, channel);
        assert_int_not_equal(c.status, YOLK_OK);
        seen |= 1u << c.cookie;
    }
    assert_int_equal(seen, 0xff);
    assert_int_equal(own.ops->submit(channel, &ios[0]), YOLK_SUBMIT_FAILED);
    assert_int_equal(own.ops->channel_close(channel), YOLK_OK);
    own.ops->close_target(own.endpoint, target);
    own.ops->fini(own.endpoint);
    child_kill(&child);
}

static void test_no_leaks(void **state)
{
    (void)state;
    int descriptors = open_descriptors(), threads = running_threads();
    for (int i = 0; i < 3; i++) {
        static struct pair own;
        pair_open(&own, transport_tcp_ops(), NULL);
        void *target = target_of(&own, SEGMENT, SESSION), *channel;
        uint8_t byte = 1;
        assert_int_equal(open_channel(own.consumer.ops, own.consumer.endpoint, target, &channel),
                         YOLK_OK);
        assert_int_equal(transfer(own.consumer.ops, channel, YOLK_WRITE, &byte, 0, 1), YOLK_OK);
        struct pollfd fds[16];
        (void)own.consumer.ops->wait_fds(channel, fds, 16);
        assert_int_equal(own.consumer.ops->channel_close(channel), YOLK_OK);
        own.consumer.ops->close_target(own.consumer.endpoint, target);
        pair_close(&own);
    }
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(running_threads(), threads);
}

static void test_ipv6(void **state)
{
    (void)state;
    static struct pair own;
    struct yolk_transport_options options = {.struct_size = sizeof options, .host = "::1"};
    memset(options.instance, 6, sizeof options.instance);
    memset(&own, 0, sizeof own);
    own.provider.ops = transport_tcp_ops();
    assert_int_equal(own.provider.ops->init(&options, &own.provider.endpoint), YOLK_OK);
    struct net_address address;
    int fd = -1;
    if (net_address_parse("[::1]:0", 0, &address) != YOLK_OK ||
        net_listen(&address, 1, &fd, NULL) != YOLK_OK) {
        side_close(&own.provider);
        print_message("SKIP: no IPv6 here\n");
        skip();
    }
    net_close(fd);
    side_open(&own.consumer, transport_tcp_ops(), 5, NULL);
    pair_serve(&own, 0);
    void *target = target_of(&own, SEGMENT, SESSION), *channel;
    uint8_t byte = 7;
    assert_int_equal(open_channel(own.consumer.ops, own.consumer.endpoint, target, &channel),
                     YOLK_OK);
    assert_int_equal(transfer(own.consumer.ops, channel, YOLK_WRITE, &byte, 0, 1), YOLK_OK);
    assert_int_equal(own.bytes[0], 7);
    assert_int_equal(own.consumer.ops->channel_close(channel), YOLK_OK);
    own.consumer.ops->close_target(own.consumer.endpoint, target);
    pair_close(&own);
}

static long waits(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

/* A peer that takes the connection and says nothing: whoever asks for it goes on with others at
 * once. */
static void test_a_silent_peer_is_not_waited_for(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    struct net_address address, bound;
    char text[NET_ADDRESS_TEXT_MAX + 64], at[NET_ADDRESS_TEXT_MAX];
    void *target, *channel;
    int fd = -1;
    assert_int_equal(net_address_parse("127.0.0.1:0", 0, &address), YOLK_OK);
    assert_int_equal(net_listen(&address, 4, &fd, &bound), YOLK_OK);
    net_address_format(&bound, at, sizeof at);
    (void)snprintf(text, sizeof text, "%s,%032x", at, 7);
    assert_int_equal(
        ops->open_target(pair.consumer.endpoint, text, SEGMENT, 4096, SESSION, &target), YOLK_OK);
    long before = waits();
    for (int i = 0; i < 100; i++)
        assert_int_equal(ops->channel_open(pair.consumer.endpoint, target, &channel),
                         YOLK_ERR_AGAIN);
    assert_int_equal(waits(), before);
    ops->close_target(pair.consumer.endpoint, target);
    net_close(fd);
}

/* ---- many reads in one frame ---- */

/* Reads of several sizes, in and out of the segment, next to each other and apart: each gets its
 * own bytes or its own status, and nothing beside its memory changes. */
static void test_gathered_reads(void **state)
{
    (void)state;
    enum { N = 700, ROOM = 4096 + 64 };
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT, SESSION), *channel;
    uint8_t *in = malloc((size_t)N * ROOM);
    static struct yolk_io ios[N];
    static int seen[N];
    assert_non_null(in);
    memset(in, 0x5a, (size_t)N * ROOM);
    memset(seen, 0, sizeof seen);
    fill(pair.bytes, SEGMENT_SIZE, 11);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    for (unsigned i = 0; i < N; i++) {
        static const uint32_t sizes[] = {4096, 0, 512, 1, 4096, 4095, 2048};
        ios[i] = (struct yolk_io){.opcode = YOLK_READ,
                                  .local = in + (size_t)i * ROOM,
                                  .offset = (uint64_t)(i * 7919u % 900u) * 4096,
                                  .size = sizes[i % 7],
                                  .cookie = i};
        if (i % 50 == 49)
            ios[i].offset = SEGMENT_SIZE - ios[i].size + 1;
        assert_int_equal(ops->submit(channel, &ios[i]), YOLK_SUBMIT_QUEUED);
    }
    ops->flush(channel);
    for (unsigned i = 0; i < N; i++) {
        struct yolk_completion c = await(ops, channel);
        bool outside = c.cookie % 50 == 49;
        assert_true(c.cookie < N);
        assert_int_equal(c.status, outside ? YOLK_ERR_INVALID : YOLK_OK);
        assert_int_equal(c.transferred, outside ? 0 : ios[c.cookie].size);
        assert_int_equal(seen[c.cookie]++, 0);
    }
    for (unsigned i = 0; i < N; i++) {
        uint64_t got = i % 50 == 49 ? 0 : ios[i].size;
        assert_memory_equal(ios[i].local, pair.bytes + (got > 0 ? ios[i].offset : 0), got);
        for (uint64_t k = got; k < ROOM; k++)
            assert_int_equal(in[(size_t)i * ROOM + k], 0x5a);
    }
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    free(in);
}

/* Some of the reads of one frame are canceled before the answer: their memory stays as it was left,
 * and the others get their bytes. */
static void test_gathered_cancel(void **state)
{
    (void)state;
    enum { N = 100, SIZE = 2048 };
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    struct child child;
    void *target = NULL, *channel;
    static uint8_t bytes[N][SIZE], expected[SEGMENT_SIZE];
    child_start(&child, 0);
    fill(expected, SEGMENT_SIZE, 9);
    assert_int_equal(ops->open_target(pair.consumer.endpoint, child.text, SEGMENT, SEGMENT_SIZE,
                                      SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(ops, pair.consumer.endpoint, target, &channel), YOLK_OK);
    stop_child(child.pid);
    for (unsigned i = 0; i < N; i++) {
        struct yolk_io io = {.opcode = YOLK_READ,
                             .local = bytes[i],
                             .offset = (uint64_t)i * SIZE * 3,
                             .size = SIZE,
                             .cookie = i};
        assert_int_equal(ops->submit(channel, &io), YOLK_SUBMIT_QUEUED);
    }
    ops->flush(channel);
    for (unsigned i = 0; i < N; i += 3) {
        ops->cancel(channel, i);
        struct yolk_completion c = await(ops, channel);
        assert_int_equal(c.cookie, i);
        assert_int_equal(c.status, YOLK_ERR_CANCELED);
        memset(bytes[i], 0x5a, SIZE);
    }
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    for (unsigned i = 0; i < N; i++) {
        if (i % 3 == 0)
            continue;
        struct yolk_completion c = await(ops, channel);
        assert_int_equal(c.status, YOLK_OK);
        assert_memory_equal(bytes[c.cookie], expected + c.cookie * SIZE * 3, SIZE);
    }
    for (unsigned i = 0; i < N; i += 3) {
        for (size_t k = 0; k < SIZE; k++)
            assert_int_equal(bytes[i][k], 0x5a);
    }
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    child_kill(&child);
}

/* A consumer of before, which did not offer the feature: it is answered one by one, and may not ask
 * for many at once. */
static void test_older_consumer(void **state)
{
    (void)state;
    enum { N = 3, SIZE = 100 };
    uint8_t frames[N * TCP_FRAME_MAX], answer[TCP_REPLY_SIZE + SIZE];
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    size_t size = 0, used;
    fill(pair.bytes, SEGMENT_SIZE, 5);
    for (unsigned i = 0; i < N; i++) {
        struct tcp_frame frame = {.kind = TCP_READ,
                                  .request_id = i + 1,
                                  .segment = SEGMENT,
                                  .offset = (uint64_t)i * SIZE,
                                  .length = SIZE};
        size += tcp_frame_encode(&frame, frames + size);
    }
    int fd = raw_connect(SESSION);
    assert_int_equal(net_send_all(fd, frames, size, deadline), YOLK_OK);
    for (unsigned i = 0; i < N; i++) {
        struct tcp_frame reply;
        assert_int_equal(net_recv_all(fd, answer, sizeof answer, deadline), YOLK_OK);
        assert_int_equal(tcp_frame_decode(answer, sizeof answer, &reply, &used), YOLK_OK);
        assert_int_equal(reply.request_id, i + 1);
        assert_int_equal(reply.length, SIZE);
        assert_memory_equal(answer + TCP_REPLY_SIZE, pair.bytes + (size_t)i * SIZE, SIZE);
    }
    struct tcp_frame reads = {.kind = TCP_READS, .request_id = 9, .segment = SEGMENT, .count = 1};
    uint8_t many[TCP_FRAME_MAX + TCP_PLACE_SIZE];
    size = tcp_frame_encode(&reads, many);
    tcp_place_encode(&(struct tcp_place){0, SIZE}, many + size);
    assert_int_equal(net_send_all(fd, many, size + TCP_PLACE_SIZE, deadline), YOLK_OK);
    assert_closed(fd);
}

/* The bytes of the frames, from their description. */
static void test_frame_bytes(void **state)
{
    (void)state;
    static const uint8_t reads[] = {
        0x59, 0x4b, 125,  0,    48,   0,    0,    0,    7, 0, 0, 0, 0, 0, 0, 0,
        0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 2, 0, 0, 0, 0, 0, 0, 0,
        0,    0x10, 0,    0,    0,    0,    0,    0,    0, 2, 0, 0, 0, 0, 0, 0,
        0,    0,    1,    0,    0,    0,    0,    0,    1, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t reply[] = {0x59, 0x4b, 124, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
                                    0,    0,    0,   0, 2,  0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0};
    uint8_t bytes[sizeof reads + TCP_FRAME_MAX];
    struct tcp_frame frame = {
        .kind = TCP_READS, .request_id = 7, .segment = 0x0123456789abcdef, .count = 2};
    size_t size = tcp_frame_encode(&frame, bytes), used;
    tcp_place_encode(&(struct tcp_place){0x1000, 0x200}, bytes + size);
    tcp_place_encode(&(struct tcp_place){0x10000, 1}, bytes + size + TCP_PLACE_SIZE);
    assert_int_equal(size + 2 * (size_t)TCP_PLACE_SIZE, sizeof reads);
    assert_memory_equal(bytes, reads, sizeof reads);
    assert_int_equal(tcp_frame_decode(reads, sizeof reads - 1, &frame, &used), YOLK_OK);
    assert_int_equal(used, 0);
    assert_int_equal(tcp_frame_decode(reads, sizeof reads, &frame, &used), YOLK_OK);
    assert_int_equal(used, sizeof reads);
    assert_int_equal(frame.count, 2);
    memcpy(bytes, reads, sizeof reads);
    bytes[24] = 3; /* more than the frame has room for */
    assert_int_equal(tcp_frame_decode(bytes, sizeof reads, &frame, &used), YOLK_ERR_PROTOCOL);
    frame = (struct tcp_frame){.kind = TCP_REPLY, .request_id = 7, .count = 2, .length = 0x201};
    assert_int_equal(tcp_frame_encode(&frame, bytes), sizeof reply);
    assert_memory_equal(bytes, reply, sizeof reply);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_round_trip),
        T(test_pipelined),
        T(test_access),
        T(test_garbage),
        T(test_wrong_secret),
        T(test_fence),
        T(test_peer_killed),
        T(test_restarted_peer),
        T(test_cancel),
        T(test_lost_write),
        T(test_stop_in_flight),
        T(test_gathered_reads),
        T(test_gathered_cancel),
        T(test_older_consumer),
        T(test_a_silent_peer_is_not_waited_for),
        cmocka_unit_test(test_frame_bytes),
        cmocka_unit_test(test_no_leaks),
        cmocka_unit_test(test_ipv6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
