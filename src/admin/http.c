/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/metrics.h"
#include "base/error.h"
#define LOG_ROOM "admin"
#include "base/log.h"
#include "platform/clock.h"

#define REQUEST_MAX     8192u
#define ANSWER_MAX      (1u << 20)
#define CONNECTIONS_MAX 64u
#define REQUEST_MS      5000u

struct admin_http {
    struct loop *loop;
    struct server *server;
    struct loop_listener *listener;
    struct net_address address;
    uint64_t started_ns;
    struct loop_stream *open[CONNECTIONS_MAX]; /* the oldest first */
    unsigned open_count;
};

struct answer {
    int code;
    const char *reason;
    const char *type;
};

static const struct {
    const char *path;
    const char *type;
    int (*text)(const struct admin_figures *figures, struct base_buf *out);
} PAGES[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", admin_metrics_text},
    {"/metrics/summary", "text/plain; charset=utf-8", admin_summary_text},
    {"/health", "application/json", admin_health_text},
};

static void collect(struct admin_http *http, struct admin_figures *figures)
{
    master_core_stats(server_core(http->server), &figures->master);
    figures->server = *server_get_stats(http->server);
    figures->uptime_ms = (clock_real_now_ns() - http->started_ns) / CLOCK_NS_PER_MS;
}

static struct answer refuse(struct base_buf *body, int code, const char *reason, const char *text)
{
    base_buf_clear(body);
    if (base_buf_printf(body, "%s\n", text) != YOLK_OK)
        base_buf_clear(body);
    return (struct answer){code, reason, "text/plain; charset=utf-8"};
}

/* `line` is the request line, NUL-terminated; it is cut up. */
static struct answer perform(struct admin_http *http, char *line, struct base_buf *body, bool *head)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || strncmp(version + 1, "HTTP/1.", 7) != 0)
        return refuse(body, 400, "Bad Request",
                      "This is the admin port of a Yolk master: HTTP only.");
    *target++ = '\0';
    *version = '\0';
    *head = strcmp(line, "HEAD") == 0;
    if (strcmp(line, "GET") != 0 && !*head)
        return refuse(body, 405, "Method Not Allowed", "Only GET and HEAD are served here.");
    target[strcspn(target, "?#")] = '\0';
    for (size_t i = 0; i < sizeof(PAGES) / sizeof(PAGES[0]); i++) {
        if (strcmp(target, PAGES[i].path) != 0)
            continue;
        struct admin_figures figures;
        collect(http, &figures);
        if (PAGES[i].text(&figures, body) != YOLK_OK)
            return refuse(body, 500, "Internal Server Error", "no memory");
        return (struct answer){200, "OK", PAGES[i].type};
    }
    return refuse(body, 404, "Not Found", "There are /metrics, /metrics/summary and /health.");
}

static void send_answer(struct loop_stream *stream, const struct answer *answer,
                        const struct base_buf *body, bool head)
{
    char header[512];
    int size = snprintf(header, sizeof(header),
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                        "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
                        answer->code, answer->reason, answer->type, body->size);
    enum yolk_status status = loop_stream_write(stream, header, (size_t)size);
    if (status == YOLK_OK && !head && body->size > 0)
        status = loop_stream_write(stream, body->data, body->size);
    (void)status; /* a stream that takes no more is closing anyway */
    loop_stream_close(stream, YOLK_ERR_CANCELED, true);
}

static enum loop_input on_input(void *self, struct loop_stream *stream, const uint8_t *data,
                                size_t size, size_t *consumed)
{
    struct admin_http *http = self;
    const uint8_t *end = size ? memmem(data, size, "\r\n\r\n", 4) : NULL;
    struct base_buf body;
    struct answer answer;
    bool head = false;
    base_buf_init(&body, ANSWER_MAX);
    if (!end && size < REQUEST_MAX &&
        !(size > 0 && (data[0] < 'A' || data[0] > 'Z'))) /* no method starts so: answer at once */
        return LOOP_WAIT;
    if (!end && size >= REQUEST_MAX) {
        answer = refuse(&body, 431, "Request Header Fields Too Large",
                        "A request here has at most 8192 bytes.");
    } else {
        char line[512];
        const uint8_t *line_end = end ? memmem(data, size, "\r\n", 2) : NULL;
        size_t line_size = line_end ? (size_t)(line_end - data) : 0;
        if (line_size >= sizeof(line))
            line_size = 0;
        memcpy(line, data, line_size);
        line[line_size] = '\0';
        answer = perform(http, line, &body, &head);
    }
    *consumed = size;
    send_answer(stream, &answer, &body, head);
    base_buf_free(&body);
    return LOOP_WAIT;
}

static void forget(struct admin_http *http, const struct loop_stream *stream)
{
    unsigned i = 0;
    while (i < http->open_count && http->open[i] != stream)
        i++;
    if (i == http->open_count)
        return;
    http->open_count--;
    for (; i < http->open_count; i++)
        http->open[i] = http->open[i + 1];
}

static void on_closed(void *self, struct loop_stream *stream, enum yolk_status reason)
{
    (void)reason;
    forget(self, stream);
}

/* Whoever holds connections and asks nothing must not lock out a health check. */
static bool make_room(struct admin_http *http)
{
    for (unsigned i = 0; i < http->open_count; i++) {
        struct loop_stream *stream = http->open[i];
        if (loop_stream_is_closing(stream))
            continue;
        forget(http, stream);
        loop_stream_close(stream, YOLK_ERR_AGAIN, false);
        return true;
    }
    return false;
}

static bool on_accept(void *self, struct loop_stream *stream, const struct net_address *peer,
                      struct loop_stream_options *options)
{
    (void)peer;
    struct admin_http *http = self;
    if (http->open_count == CONNECTIONS_MAX && !make_room(http))
        return false;
    http->open[http->open_count++] = stream;
    *options = (struct loop_stream_options){
        .callbacks = {.input = on_input, .closed = on_closed},
        .self = http,
        .input_max = REQUEST_MAX,
        .output_max = ANSWER_MAX + 1024,
        .deadline_ns = clock_after_ms(clock_real_now_ns(), REQUEST_MS),
    };
    return true;
}

enum yolk_status admin_http_create(struct loop *loop, struct server *server,
                                   const struct net_address *address, struct admin_http **out)
{
    struct admin_http *http = calloc(1, sizeof(*http));
    if (!http)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the admin endpoints");
    http->loop = loop;
    http->server = server;
    http->started_ns = clock_real_now_ns();
    enum yolk_status status =
        loop_listen(loop, address, on_accept, http, &http->address, &http->listener);
    if (status != YOLK_OK) {
        free(http);
        return status;
    }
    *out = http;
    return YOLK_OK;
}

void admin_http_destroy(struct admin_http *http)
{
    if (!http)
        return;
    loop_listener_destroy(http->listener);
    free(http);
}

const struct net_address *admin_http_address(const struct admin_http *http)
{
    return &http->address;
}
