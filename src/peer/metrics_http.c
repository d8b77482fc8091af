/* SPDX-License-Identifier: Apache-2.0 */
#include "peer/metrics_http.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "wire/http_request.h"

enum {
    CONNECTIONS_MAX = 16,
    BACKLOG = 128,
    REQUEST_MAX = 16384,
    ANSWER_MAX = 9 << 20,
    EXCHANGE_MS = 5000
};

struct connection {
    int fd; /* -1: free */
    uint64_t deadline_ns;
    struct base_buf in, out;
    size_t sent;
};

struct metrics_http {
    struct yolk_engine *engine;
    int listener, wake;
    struct net_address bound;
    struct thread thread;
    struct connection connections[CONNECTIONS_MAX];
};

static void close_connection(struct connection *c)
{
    net_close(c->fd);
    c->fd = -1;
    base_buf_free(&c->in);
    base_buf_free(&c->out);
    c->sent = 0;
}

/* ---- answers ---- */

static enum yolk_status answer(struct connection *c, int code, const char *reason, const char *type,
                               const char *body, bool head_only)
{
    enum yolk_status status = base_buf_printf(
        &c->out,
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
        code, reason, type, strlen(body));
    if (status == YOLK_OK && !head_only)
        status = base_buf_append(&c->out, body, strlen(body));
    return status;
}

static enum yolk_status health(struct yolk_engine *engine, char **text)
{
    (void)engine;
    *text = strdup("OK");
    return *text != NULL ? YOLK_OK : YOLK_ERR_NO_MEMORY;
}

static const struct page {
    const char *path, *type;
    enum yolk_status (*write)(struct yolk_engine *engine, char **text);
} PAGES[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", yolk_engine_metrics},
    {"/metrics/summary", "text/plain; charset=utf-8", yolk_engine_metrics_summary},
    {"/metrics/json", "application/json", yolk_engine_metrics_json},
    {"/health", "text/plain", health},
};

static enum yolk_status answer_request(struct metrics_http *http, struct connection *c,
                                       const struct http_request *request)
{
    bool head = request->method == HTTP_HEAD;
    if (request->method != HTTP_GET && !head)
        return answer(c, 405, "Method Not Allowed", "text/plain", "Only GET and HEAD.\n", false);
    for (size_t i = 0; i < sizeof(PAGES) / sizeof(PAGES[0]); i++) {
        if (strcmp(PAGES[i].path, request->path) != 0)
            continue;
        char *text;
        if (PAGES[i].write(http->engine, &text) != YOLK_OK)
            return answer(c, 500, "Internal Server Error", "text/plain", "No memory.\n", head);
        enum yolk_status status = answer(c, 200, "OK", PAGES[i].type, text, head);
        free(text);
        return status;
    }
    return answer(c, 404, "Not Found", "text/plain",
                  "There are /metrics, /metrics/summary, /metrics/json and /health.\n", head);
}

/* False: the connection is of no more use. */
static bool decode(struct metrics_http *http, struct connection *c)
{
    struct http_request request;
    struct http_refusal refusal;
    switch (http_decode(c->in.data, c->in.size, 0, &request, &refusal)) {
    case HTTP_READY:
        return answer_request(http, c, &request) == YOLK_OK;
    case HTTP_BAD:
        return answer(c, refusal.code, "Refused", "text/plain", refusal.text, false) == YOLK_OK;
    default:
        return c->in.size < REQUEST_MAX;
    }
}

/* ---- one turn of a connection; false: it is over ---- */

static bool receive(struct metrics_http *http, struct connection *c)
{
    if (base_buf_reserve(&c->in, 2048) != YOLK_OK)
        return false;
    ssize_t got = recv(c->fd, c->in.data + c->in.size, 2048, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    c->in.size += (size_t)got;
    return got > 0 && decode(http, c);
}

static bool send_some(struct connection *c)
{
    ssize_t sent =
        send(c->fd, c->out.data + c->sent, c->out.size - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)sent;
    return c->sent < c->out.size;
}

static void serve(struct metrics_http *http, struct connection *c, short events, uint64_t now_ns)
{
    bool on = now_ns < c->deadline_ns && (events & (POLLERR | POLLNVAL)) == 0;
    if (on && c->out.size == 0 && (events & (POLLIN | POLLHUP)) != 0)
        on = receive(http, c);
    if (on && c->out.size > 0)
        on = send_some(c);
    if (!on)
        close_connection(c);
}

/* A place for one more: a free one, else that of the oldest that has asked nothing yet, else that
 * of the oldest. Whoever holds connections and says nothing must not lock out a health check. */
static struct connection *make_place(struct metrics_http *http)
{
    struct connection *silent = NULL, *oldest = NULL;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &http->connections[i];
        if (c->fd < 0)
            return c;
        if (c->out.size == 0 && (silent == NULL || c->deadline_ns < silent->deadline_ns))
            silent = c;
        if (oldest == NULL || c->deadline_ns < oldest->deadline_ns)
            oldest = c;
    }
    struct connection *victim = silent != NULL ? silent : oldest;
    close_connection(victim);
    return victim;
}

static void take(struct metrics_http *http, uint64_t now_ns)
{
    struct connection *free_one = make_place(http);
    free_one->fd = net_accept_ready(http->listener);
    free_one->deadline_ns = clock_after_ms(now_ns, EXCHANGE_MS);
    base_buf_init(&free_one->in, REQUEST_MAX + 4096);
    base_buf_init(&free_one->out, ANSWER_MAX);
}

static void run(void *self)
{
    struct metrics_http *http = self;
    for (;;) {
        struct pollfd fds[CONNECTIONS_MAX + 2] = {{.fd = http->wake, .events = POLLIN},
                                                  {.fd = http->listener, .events = POLLIN}};
        size_t open = 0;
        for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
            const struct connection *c = &http->connections[i];
            fds[i + 2].fd = c->fd;
            fds[i + 2].events = c->out.size > 0 ? POLLOUT : POLLIN;
            open += c->fd >= 0;
        }
        int ready = poll(fds, CONNECTIONS_MAX + 2, open > 0 ? 200 : -1);
        if (ready < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            return;
        uint64_t now_ns = clock_real_now_ns();
        for (size_t i = 0; i < CONNECTIONS_MAX; i++)
            if (http->connections[i].fd >= 0)
                serve(http, &http->connections[i], ready > 0 ? fds[i + 2].revents : 0, now_ns);
        if (ready > 0 && fds[1].revents != 0)
            take(http, now_ns);
    }
}

/* ---- its life ---- */

static enum yolk_status begin(struct metrics_http *http, const char *listen)
{
    struct net_address address;
    enum yolk_status status = net_address_parse(listen, 0, &address);
    if (status != YOLK_OK)
        return status;
    http->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->wake < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "no descriptor for metrics over HTTP");
    status = net_listen(&address, BACKLOG, &http->listener, &http->bound);
    if (status != YOLK_OK)
        return status;
    return thread_start(&http->thread, "yolk-metrics", run, http);
}

enum yolk_status metrics_http_start(struct yolk_engine *engine, const char *listen,
                                    struct metrics_http **out)
{
    struct metrics_http *http = base_calloc(1, sizeof(*http));
    if (http == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for metrics over HTTP");
    http->engine = engine;
    http->listener = http->wake = -1;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        http->connections[i].fd = -1;
    enum yolk_status status = begin(http, listen);
    if (status != YOLK_OK) {
        metrics_http_stop(http);
        return status;
    }
    *out = http;
    return YOLK_OK;
}

void metrics_http_stop(struct metrics_http *http)
{
    if (http == NULL)
        return;
    if (http->wake >= 0) {
        static const uint64_t one = 1;
        ssize_t n = write(http->wake, &one, sizeof(one));
        (void)n; /* readable already then */
    }
    thread_join(&http->thread);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        if (http->connections[i].fd >= 0)
            close_connection(&http->connections[i]);
    net_close(http->listener);
    net_close(http->wake);
    free(http);
}

uint16_t metrics_http_port(const struct metrics_http *http)
{
    return http == NULL ? 0 : net_address_port(&http->bound);
}
