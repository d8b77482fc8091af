/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/net.h"
#include "platform/temporary_kit.h"
#include "platform/thread.h"

static uint64_t in_ms(uint64_t ms)
{
    return clock_after_ms(clock_real_now_ns(), ms);
}

static uint64_t soon(void)
{
    return in_ms(30000);
}

static bool is_cloexec(int fd)
{
    return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

static void parse(const char *text, uint16_t port, const char *expected)
{
    struct net_address a;
    char out[NET_ADDRESS_TEXT_MAX];
    int status = net_address_parse(text, port, &a);
    if (!expected) {
        assert_int_equal(status, YOLK_ERR_INVALID);
        return;
    }
    assert_int_equal(status, YOLK_OK);
    net_address_format(&a, out, sizeof(out));
    assert_string_equal(out, expected);
}

static void addresses(void **state)
{
    (void)state;
    parse("127.0.0.1:80", 0, "127.0.0.1:80");
    parse("127.0.0.1", 99, "127.0.0.1:99");
    parse("127.0.0.1:0", 99, "127.0.0.1:0");
    parse("[::1]:443", 0, "[::1]:443");
    parse("[::1]", 7, "[::1]:7");
    parse("::1", 7, "[::1]:7");
    parse("fd00::12", 7, "[fd00::12]:7");
    parse("unix:/tmp/x y", 0, "unix:/tmp/x y");
    parse("127.0.0.1", 0, NULL);
    parse("127.0.0.1:", 5, NULL);
    parse("127.0.0.1:65536", 5, NULL);
    parse("127.0.0.1:99999999999999", 5, NULL);
    parse("127.0.0.1:8x", 5, NULL);
    parse("127.0.0.1:-1", 5, NULL);
    parse("[::1", 5, NULL);
    parse("[::1]x", 5, NULL);
    parse("", 5, NULL);
    parse("unix:", 5, NULL);
    char longer[200];
    memset(longer, 'a', sizeof(longer));
    longer[199] = '\0';
    struct net_address a;
    assert_int_equal(net_address_unix(longer, &a), YOLK_ERR_INVALID);
    assert_int_equal(net_address_parse(":12", 0, &a), YOLK_OK);
    assert_int_equal(net_address_port(&a), 12);
    assert_int_equal(net_address_parse("no.such.host.invalid:1", 0, &a), YOLK_ERR_NOT_FOUND);
}

/* Listens at `text`, connects, accepts. */
static void pair(const char *text, int *client, int *server)
{
    struct net_address a, bound;
    int listener;
    assert_int_equal(net_address_parse(text, 0, &a), YOLK_OK);
    assert_int_equal(net_listen(&a, 8, &listener, &bound), YOLK_OK);
    assert_true(is_cloexec(listener));
    assert_int_equal(net_connect(&bound, soon(), client), YOLK_OK);
    struct net_address peer;
    assert_int_equal(net_accept(listener, soon(), server, &peer), YOLK_OK);
    assert_true(is_cloexec(*client) && is_cloexec(*server));
    net_close(listener);
}

struct sender {
    int fd;
    const char *data;
    size_t size;
    int status;
};

static void send_thread(void *arg)
{
    struct sender *s = arg;
    s->status = net_send_all(s->fd, s->data, s->size, soon());
}

static void transfer(int from, int to, uint64_t spin_ns)
{
    size_t size = 8u << 20;
    char *out = malloc(size), *in = calloc(1, size);
    for (size_t i = 0; i < size; i++)
        out[i] = (char)(i * 7 + i / 4096);
    struct sender s = {from, out, size, 0};
    struct thread t;
    assert_int_equal(thread_start(&t, "sender", send_thread, &s), YOLK_OK);
    /* in pieces, one of them empty */
    struct iovec iov[4] = {{in, 1}, {in + 1, 0}, {in + 1, 5000}, {in + 5001, size - 5001}};
    int received = net_recvv_all_spin(to, iov, 4, soon(), spin_ns);
    if (received != YOLK_OK)
        net_shutdown(from); /* the sender works on this function's stack: it ends before it */
    thread_join(&t);
    assert_int_equal(received, YOLK_OK);
    assert_int_equal(s.status, YOLK_OK);
    assert_memory_equal(out, in, size);
    free(out);
    free(in);
}

static void streams(void **state)
{
    (void)state;
    char path[2 * TEMPORARY_MAX];
    snprintf(path, sizeof(path), "unix:/tmp/yolk-net-test-%d", (int)getpid());
    const char *const texts[] = {"127.0.0.1:0", path, "[::1]:0"};
    for (int i = 0; i < 3; i++) {
        int c, s;
        struct net_address probe;
        int fd;
        assert_int_equal(net_address_parse(texts[i], 0, &probe), YOLK_OK);
        if (i == 2) { /* a machine without IPv6 has nothing to test here */
            if (net_listen(&probe, 1, &fd, NULL) != YOLK_OK) {
                print_message("no IPv6 here: %s\n", yolk_last_error());
                continue;
            }
            net_close(fd);
        }
        pair(texts[i], &c, &s);
        transfer(c, s, 0);
        transfer(s, c, 100000);
        struct net_credentials who;
        if (net_address_is_unix(&probe)) {
            assert_int_equal(net_peer_credentials(s, &who), YOLK_OK);
            assert_int_equal(who.pid, getpid());
            assert_int_equal(who.uid, getuid());
        }
        net_close(c);
        net_close(s);
    }
    /* the socket file is left behind: listening there again works, but not while someone does */
    struct net_address a;
    int one, two;
    assert_int_equal(net_address_parse(path, 0, &a), YOLK_OK);
    assert_int_equal(net_listen(&a, 1, &one, NULL), YOLK_OK);
    assert_int_equal(net_listen(&a, 1, &two, NULL), YOLK_ERR_BUSY);
    net_close(one);
    unlink(path + 5);
}

static void waits_end(void **state)
{
    (void)state;
    int c, s, fd;
    char byte;
    size_t got;
    pair("127.0.0.1:0", &c, &s);
    uint64_t deadline = in_ms(3);
    assert_int_equal(net_recv_all(c, &byte, 1, deadline), YOLK_ERR_TIMEOUT);
    assert_true(clock_real_now_ns() >= deadline);
    deadline = in_ms(3);
    assert_int_equal(net_recv_all_spin(c, &byte, 1, deadline, 1000000), YOLK_ERR_TIMEOUT);
    assert_true(clock_real_now_ns() >= deadline);
    assert_int_equal(net_recv_some(c, &byte, 1, in_ms(1), &got), YOLK_ERR_TIMEOUT);
    assert_int_equal(net_wait(c, POLLIN, 0), YOLK_ERR_TIMEOUT);
    /* nobody reads: sending stops at the deadline */
    size_t size = 64u << 20;
    char *big = calloc(1, size);
    assert_int_equal(net_send_all(c, big, size, in_ms(5)), YOLK_ERR_TIMEOUT);
    free(big);
    net_close(c);
    net_close(s);
    struct net_address a;
    int listener;
    assert_int_equal(net_address_parse("127.0.0.1:0", 0, &a), YOLK_OK);
    assert_int_equal(net_listen(&a, 1, &listener, &a), YOLK_OK);
    assert_int_equal(net_accept(listener, in_ms(2), &fd, NULL), YOLK_ERR_TIMEOUT);
    assert_int_equal(fd, -1);
    net_close(listener);
    assert_int_equal(net_connect(&a, soon(), &fd), YOLK_ERR_REFUSED);
    assert_int_equal(net_address_parse("unix:/tmp/yolk-nobody-here", 0, &a), YOLK_OK);
    assert_int_equal(net_connect(&a, soon(), &fd), YOLK_ERR_REFUSED);
    assert_non_null(strstr(yolk_last_error(), "unix:/tmp/yolk-nobody-here"));
}

/* A Unix listener that does not accept, with a full backlog. */
static void full_backlog(void **state)
{
    (void)state;
    char path[2 * TEMPORARY_MAX];
    int listener, fds[8];
    struct net_address a;
    snprintf(path, sizeof(path), "yolk-backlog-test-%d", (int)getpid());
    temporary_path(path);
    assert_int_equal(net_address_unix(path, &a), YOLK_OK);
    assert_int_equal(net_listen(&a, 1, &listener, NULL), YOLK_OK);
    int status = YOLK_OK, n = 0;
    while (n < 8 && status == YOLK_OK)
        status = net_connect(&a, in_ms(10), &fds[n++]);
    assert_int_equal(status, YOLK_ERR_TIMEOUT);
    for (int i = 0; i < n; i++)
        net_close(fds[i]);
    net_close(listener);
    unlink(path);
}

static void accepts_what_is_ready(void **state)
{
    (void)state;
    struct net_address any, bound;
    int listener, client;
    assert_int_equal(net_address_parse("127.0.0.1:0", 0, &any), YOLK_OK);
    assert_int_equal(net_listen(&any, 8, &listener, &bound), YOLK_OK);
    assert_int_equal(net_accept_ready(listener), -1);
    assert_int_equal(net_connect(&bound, clock_real_now_ns() + 5 * CLOCK_NS_PER_S, &client),
                     YOLK_OK);
    struct pollfd p = {listener, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 5000), 1);
    int fd = net_accept_ready(listener);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(net_accept_ready(listener), -1);
    net_close(fd);
    net_close(client);
    net_close(listener);
}

static void ends_of_connections(void **state)
{
    (void)state;
    int c, s;
    char bytes[8];
    pair("127.0.0.1:0", &c, &s);
    assert_false(net_is_dead(c));
    assert_int_equal(net_send_all(s, "abc", 3, soon()), YOLK_OK);
    net_close(s);
    assert_int_equal(net_recv_all(c, bytes, 8, soon()), YOLK_ERR_LINK); /* in the middle */
    assert_int_equal(net_recv_all(c, bytes, 8, soon()), YOLK_ERR_EOF);
    assert_true(net_is_dead(c));
    int status = YOLK_OK;
    for (int i = 0; i < 100000 && status == YOLK_OK; i++) /* and no SIGPIPE */
        status = net_send_all(c, "abc", 3, soon());
    assert_int_equal(status, YOLK_ERR_LINK);
    net_close(c);
    net_close(-1);
    pair("127.0.0.1:0", &c, &s);
    net_shutdown(s);
    assert_int_equal(net_recv_all(s, bytes, 1, soon()), YOLK_ERR_EOF);
    net_close(c);
    net_close(s);
}

static void many_pieces(void **state)
{
    (void)state;
    enum { N = 3000 };
    int fds[2];
    static char out[N], in[N];
    static struct iovec iov[N];
    assert_int_equal(net_socketpair(fds), YOLK_OK);
    for (int i = 0; i < N; i++) {
        out[i] = (char)i;
        iov[i] = (struct iovec){out + i, 1};
    }
    assert_int_equal(net_sendv_all(fds[0], iov, N, soon()), YOLK_OK);
    for (int i = 0; i < N; i++)
        iov[i] = (struct iovec){in + i, 1};
    assert_int_equal(net_recvv_all(fds[1], iov, N, soon()), YOLK_OK);
    assert_memory_equal(in, out, N);
    net_close(fds[0]);
    net_close(fds[1]);
}

static void descriptors_travel(void **state)
{
    (void)state;
    int fds[2], passed;
    char bytes[16];
    struct stat a, b;
    assert_int_equal(net_socketpair(fds), YOLK_OK);
    assert_int_equal(net_send_fd(fds[0], "hello", 5, STDIN_FILENO, soon()), YOLK_OK);
    assert_int_equal(net_recv_fd(fds[1], bytes, 5, &passed, soon()), YOLK_OK);
    assert_memory_equal(bytes, "hello", 5);
    assert_true(passed >= 0 && is_cloexec(passed));
    fstat(STDIN_FILENO, &a);
    fstat(passed, &b);
    assert_true(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    net_close(passed);
    assert_int_equal(net_send_all(fds[0], "plain", 5, soon()), YOLK_OK);
    assert_int_equal(net_recv_fd(fds[1], bytes, 5, &passed, soon()), YOLK_OK);
    assert_int_equal(passed, -1);
    assert_int_equal(net_recv_fd(fds[1], bytes, 5, &passed, in_ms(1)), YOLK_ERR_TIMEOUT);
    /* two at once are refused, and none stays open */
    int two[2] = {STDIN_FILENO, STDOUT_FILENO};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(two))];
    } control = {0};
    struct iovec iov = {bytes, 5};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    control.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(two)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), two, sizeof(two));
    int next = dup(STDIN_FILENO);
    close(next);
    assert_int_equal(sendmsg(fds[0], &msg, 0), 5);
    assert_int_equal(net_recv_fd(fds[1], bytes, 5, &passed, soon()), YOLK_ERR_PROTOCOL);
    assert_int_equal(passed, -1);
    int after = dup(STDIN_FILENO);
    assert_int_equal(after, next);
    close(after);
    net_close(fds[0]);
    assert_int_equal(net_recv_fd(fds[1], bytes, 5, &passed, soon()), YOLK_ERR_EOF);
    net_close(fds[1]);
}

static void test_own_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool own;
    } CASES[] = {{"127.0.0.1:1", true},     {"127.9.9.9:65535", true}, {"unix:/x", true},
                 {"192.0.2.254:80", false}, {"8.8.8.8:80", false},     {"[2001:db8::9]:80", false}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct net_address address;
        assert_int_equal(net_address_parse(CASES[i].text, 0, &address), YOLK_OK);
        assert_int_equal(net_address_is_own(&address), CASES[i].own);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_addresses),
        cmocka_unit_test(addresses),
        cmocka_unit_test(streams),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(full_backlog),
        cmocka_unit_test(accepts_what_is_ready),
        cmocka_unit_test(ends_of_connections),
        cmocka_unit_test(many_pieces),
        cmocka_unit_test(descriptors_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
