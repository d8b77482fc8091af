/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a peer's engine as a monitor sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yolk/peer.h>

#include "base/json.h"
#include "platform/clock.h"
#include "platform/net.h"

enum { ANSWER_MAX = 1 << 20, SIZE = 8192 };

static struct yolk_peer *open_peer(const char *metrics_listen)
{
    struct yolk_peer_options options;
    struct yolk_peer *peer;
    yolk_peer_options_init(&options);
    options.port_min = options.port_max = 0;
    options.transports = "loop,tcp";
    options.metrics_listen = metrics_listen;
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_OK);
    return peer;
}

static int connect_to(uint16_t port)
{
    char text[32];
    struct net_address address;
    int fd;
    snprintf(text, sizeof(text), "127.0.0.1:%u", port);
    assert_int_equal(net_address_parse(text, 0, &address), YOLK_OK);
    assert_int_equal(net_connect(&address, clock_after_ms(clock_real_now_ns(), 30000), &fd),
                     YOLK_OK);
    return fd;
}

/* The whole answer to these bytes. */
static char *ask(uint16_t port, const char *request)
{
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), 30000);
    char *answer = calloc(1, ANSWER_MAX);
    size_t used = 0, got;
    int fd = connect_to(port);
    assert_non_null(answer);
    assert_int_equal(net_send_all(fd, request, strlen(request), deadline_ns), YOLK_OK);
    int status;
    while ((status = net_recv_some(fd, answer + used, ANSWER_MAX - 1 - used, deadline_ns, &got)) ==
           YOLK_OK)
        used += got;
    assert_int_equal(status, YOLK_ERR_EOF);
    net_close(fd);
    return answer;
}

static char *get(uint16_t port, const char *path)
{
    char request[128];
    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    return ask(port, request);
}

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

static void check_begins(char *answer, const char *begin)
{
    if (strncmp(answer, begin, strlen(begin)) != 0)
        fail_msg("\"%.100s\" does not begin with \"%s\"", answer, begin);
    free(answer);
}

static void read_own_memory(struct yolk_peer *peer)
{
    static uint8_t from[SIZE], to[SIZE];
    uint64_t segment;
    assert_int_equal(yolk_peer_register(peer, from, SIZE, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_register(peer, to, SIZE, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_open(peer, "", &segment), YOLK_OK);
    const struct yolk_request request = {.opcode = YOLK_READ,
                                         .local = to,
                                         .segment = segment,
                                         .offset = (uint64_t)(uintptr_t)from,
                                         .size = SIZE};
    assert_int_equal(yolk_peer_transfer(peer, &request, 1, 0), YOLK_OK);
    assert_int_equal(yolk_peer_close(peer, segment), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(peer, from, SIZE), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(peer, to, SIZE), YOLK_OK);
}

static void pages_show_what_was_moved(void **state)
{
    (void)state;
    struct yolk_peer *peer = open_peer("127.0.0.1:0");
    uint16_t port = yolk_peer_metrics_port(peer);
    assert_true(port > 0);
    read_own_memory(peer);

    char *answer = get(port, "/metrics");
    assert_non_null(strstr(answer, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4"));
    assert_non_null(strstr(answer, "\ntent_read_bytes_total{transport=\"loop\"} 8192\n"));
    assert_non_null(strstr(answer, "\ntent_read_requests_total{transport=\"loop\"} 1\n"));
    assert_non_null(strstr(answer, "\ntent_write_bytes_total{transport=\"tcp\"} 0\n"));
    free(answer);

    answer = get(port, "/metrics/json");
    assert_non_null(strstr(answer, "Content-Type: application/json\r\n"));
    struct base_json *json;
    assert_int_equal(base_json_parse("it", body_of(answer), strlen(body_of(answer)), &json),
                     YOLK_OK);
    assert_string_equal(base_json_member(json, "tent_read_bytes_total")->text, "8192");
    base_json_free(json);
    free(answer);

    answer = get(port, "/metrics/summary");
    assert_string_equal(body_of(answer),
                        "Read: 8.19 KB (1 reqs, 0 fails) | Write: 0 B (0 reqs, 0 fails)\n");
    free(answer);

    answer = get(port, "/health");
    assert_string_equal(body_of(answer), "OK");
    free(answer);
    assert_int_equal(yolk_peer_destroy(peer), YOLK_OK);
}

static void what_is_no_such_request_is_refused(void **state)
{
    (void)state;
    struct yolk_peer *peer = open_peer("127.0.0.1:0");
    uint16_t port = yolk_peer_metrics_port(peer);
    check_begins(get(port, "/"), "HTTP/1.1 404 ");
    check_begins(get(port, "/metrics/"), "HTTP/1.1 404 ");
    check_begins(ask(port, "DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 405 ");
    check_begins(ask(port, "nonsense\r\n\r\n"), "HTTP/1.1 400 ");
    check_begins(ask(port, "GET /metrics?x=y HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 ");
    char *head = ask(port, "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(head, "Content-Length: 2\r\n"));
    assert_string_equal(body_of(head), "");
    free(head);
    assert_int_equal(yolk_peer_destroy(peer), YOLK_OK);
}

/* A head without end, and some who say nothing: others are answered, and nobody waits for them at
 * the end. */
static void silent_ones_keep_nobody_waiting(void **state)
{
    (void)state;
    struct yolk_peer *peer = open_peer("127.0.0.1:0");
    uint16_t port = yolk_peer_metrics_port(peer);
    enum { SILENT = 60 }; /* more than it keeps, and more than wait to be taken */
    int silent[SILENT];
    for (int i = 0; i < SILENT; i++)
        silent[i] = connect_to(port);
    uint64_t begun_ns = clock_real_now_ns();
    check_begins(get(port, "/health"), "HTTP/1.1 200 ");
    /* An exchange has 5 s: nobody waited for the end of a silent one's. */
    assert_true(clock_real_now_ns() - begun_ns < 4 * CLOCK_NS_PER_S);
    for (int i = 0; i < SILENT; i++)
        net_close(silent[i]);
    for (int i = 0; i < 8; i++)
        silent[i] = connect_to(port);
    assert_int_equal(net_send_all(silent[0], "GET /met", 8, CLOCK_NEVER), YOLK_OK);
    char long_head[4096];
    memset(long_head, 'a', sizeof(long_head));
    /* It may be cut off before all of it went. */
    for (int i = 0; i < 64; i++)
        if (net_send_all(silent[1], long_head, sizeof(long_head),
                         clock_after_ms(clock_real_now_ns(), 30000)) != YOLK_OK)
            break;
    check_begins(get(port, "/health"), "HTTP/1.1 200 ");
    assert_int_equal(yolk_peer_destroy(peer), YOLK_OK);
    for (int i = 0; i < 8; i++)
        net_close(silent[i]);
}

static void a_port_that_is_taken_is_only_logged(void **state)
{
    (void)state;
    char address[32];
    struct yolk_peer *first = open_peer("127.0.0.1:0");
    snprintf(address, sizeof(address), "127.0.0.1:%u", yolk_peer_metrics_port(first));
    struct yolk_peer *second = open_peer(address);
    assert_int_equal(yolk_peer_metrics_port(second), 0);
    check_begins(get(yolk_peer_metrics_port(first), "/health"), "HTTP/1.1 200 ");
    read_own_memory(second);
    assert_int_equal(yolk_peer_destroy(second), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(first), YOLK_OK);
}

static void an_address_that_is_none_is_an_error(void **state)
{
    (void)state;
    struct yolk_peer_options options;
    struct yolk_peer *peer;
    yolk_peer_options_init(&options);
    options.transports = "loop,tcp";
    options.metrics_listen = "127.0.0.1:99999";
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_ERR_CONFIG);
    peer = open_peer(NULL);
    assert_int_equal(yolk_peer_metrics_port(peer), 0);
    assert_int_equal(yolk_peer_destroy(peer), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_show_what_was_moved),
        cmocka_unit_test(what_is_no_such_request_is_refused),
        cmocka_unit_test(silent_ones_keep_nobody_waiting),
        cmocka_unit_test(a_port_that_is_taken_is_only_logged),
        cmocka_unit_test(an_address_that_is_none_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
