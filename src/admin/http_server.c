/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/http_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#define LOG_ROOM "admin"
#include "base/log.h"
#include "platform/clock.h"

#define CONNECTIONS_MAX 64u
#define REQUEST_MS      5000u   /* for a request to come, and for each piece of an answer to go */
#define ANSWER_MS       600000u /* for an answer in pieces */

struct http_exchange {
    struct http_server *server;
    struct loop_stream *stream;
    uint64_t number;
    struct http_request request;
    bool continued, asked, answered;
    unsigned allowed;     /* methods of the page that does not take the one it was asked by */
    http_produce produce; /* NULL: the answer does not come in pieces */
    uint64_t cursor, until_ns;
};

struct http_server {
    struct loop *loop;
    struct loop_listener *listener;
    struct net_address address;
    struct http_server_options options;
    struct http_exchange *open[CONNECTIONS_MAX]; /* the oldest first */
    unsigned open_count;
    uint64_t last_number;
};

static const char *reason_of(int code)
{
    static const struct {
        int code;
        const char *reason;
    } REASONS[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < sizeof(REASONS) / sizeof(REASONS[0]); i++)
        if (REASONS[i].code == code)
            return REASONS[i].reason;
    return "Error";
}

/* ---- answers ---- */

static void write_head(struct http_exchange *exchange, int code, const char *type,
                       const char *length)
{
    char header[512];
    int size = snprintf(header, sizeof(header),
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%sCache-Control: no-store\r\n"
                        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                        code, reason_of(code), type ? type : "text/plain; charset=utf-8", length);
    exchange->answered = true;
    /* A stream that takes no more is closing anyway. */
    (void)!loop_stream_write(exchange->stream, header, (size_t)size);
}

/* What a page takes that was asked by another method. */
static void write_allowed(unsigned methods, char *text, size_t room)
{
    static const struct {
        unsigned method;
        const char *names;
    } known[] = {
        {HTTP_GET, "GET, HEAD"}, {HTTP_PUT, "PUT"}, {HTTP_POST, "POST"}, {HTTP_DELETE, "DELETE"}};
    const char *before = "Allow: ";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!(methods & known[i].method))
            continue;
        int size = snprintf(text, room, "%s%s", before, known[i].names);
        text += size;
        room -= (size_t)size;
        before = ", ";
    }
    snprintf(text, room, "\r\n");
}

void http_answer(struct http_exchange *exchange, int code, const char *type,
                 const struct base_buf *body)
{
    char headers[256];
    int size = snprintf(headers, sizeof(headers), "Content-Length: %zu\r\n", body->size);
    if (exchange->allowed)
        write_allowed(exchange->allowed, headers + size, sizeof(headers) - (size_t)size);
    write_head(exchange, code, type, headers);
    if (exchange->request.method != HTTP_HEAD && body->size > 0)
        (void)!loop_stream_write(exchange->stream, body->data, body->size);
    loop_stream_close(exchange->stream, YOLK_ERR_CANCELED, true);
}

void http_answer_text(struct http_exchange *exchange, int code, const char *text)
{
    struct base_buf body;
    base_buf_init(&body, 4096);
    if (base_buf_printf(&body, "%s\n", text) != YOLK_OK)
        base_buf_clear(&body);
    http_answer(exchange, code, NULL, &body);
    base_buf_free(&body);
}

void http_answer_pieces(struct http_exchange *exchange, http_produce produce)
{
    /* Who speaks HTTP/1.0 sees the end of the connection; all others see a cut answer as cut. */
    write_head(exchange, 200, NULL,
               exchange->request.newer ? "Transfer-Encoding: chunked\r\n" : "");
    exchange->until_ns = clock_after_ms(clock_real_now_ns(), ANSWER_MS);
    if (exchange->request.method == HTTP_HEAD)
        loop_stream_close(exchange->stream, YOLK_ERR_CANCELED, true);
    else
        exchange->produce = produce;
}

/* One piece; the loop calls again when the peer has taken most of what it was sent. */
static enum loop_input go_on(struct http_exchange *exchange)
{
    struct base_buf piece;
    bool more = false, chunked = exchange->request.newer;
    char frame[32];
    uint64_t now = clock_real_now_ns();
    base_buf_init(&piece, 4 * HTTP_PIECE);
    enum yolk_status status =
        exchange->produce(exchange->server->options.self, &exchange->cursor, &piece, &more);
    if (status != YOLK_OK || now > exchange->until_ns) {
        base_buf_free(&piece);
        loop_stream_close(exchange->stream, YOLK_ERR_LIMIT, false);
        return LOOP_WAIT;
    }
    int size = snprintf(frame, sizeof(frame), "%zx\r\n", piece.size);
    if (chunked && piece.size > 0)
        (void)!loop_stream_write(exchange->stream, frame, (size_t)size);
    if (piece.size > 0)
        (void)!loop_stream_write(exchange->stream, piece.data, piece.size);
    if (chunked && piece.size > 0)
        (void)!loop_stream_write(exchange->stream, "\r\n", 2);
    if (!more && chunked)
        (void)!loop_stream_write(exchange->stream, "0\r\n\r\n", 5);
    base_buf_free(&piece);
    if (more)
        loop_stream_set_deadline(exchange->stream, clock_after_ms(now, REQUEST_MS));
    else
        loop_stream_close(exchange->stream, YOLK_ERR_CANCELED, true);
    return LOOP_MORE;
}

uint64_t http_exchange_defer(struct http_exchange *exchange, uint64_t timeout_ms)
{
    loop_stream_set_deadline(exchange->stream, clock_after_ms(clock_real_now_ns(), timeout_ms));
    return exchange->number;
}

struct http_exchange *http_exchange_find(struct http_server *server, uint64_t number)
{
    for (unsigned i = 0; i < server->open_count; i++)
        if (server->open[i]->number == number && !loop_stream_is_closing(server->open[i]->stream))
            return server->open[i];
    return NULL;
}

const struct http_request *http_exchange_request(const struct http_exchange *exchange)
{
    return &exchange->request;
}

/* ---- requests ---- */

static void list_pages(const struct http_server *server, struct base_buf *body)
{
    int status = base_buf_printf(body, "There is no such page here. There are:\n");
    for (size_t i = 0; i < server->options.page_count && status == YOLK_OK; i++)
        status = base_buf_printf(body, "%s\n", server->options.pages[i].path);
}

/* The page that is to perform the request; NULL after refusing it, for which no body is needed. */
static const struct http_page *find_page(struct http_exchange *exchange)
{
    const struct http_server *server = exchange->server;
    const struct http_request *request = &exchange->request;
    unsigned method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    struct base_buf body;
    for (size_t i = 0; i < server->options.page_count; i++) {
        const struct http_page *page = &server->options.pages[i];
        if (strcmp(page->path, request->path) != 0)
            continue;
        if ((page->methods & method) != 0 && (method == HTTP_GET || !request->from_page))
            return page;
        if ((page->methods & method) == 0) {
            exchange->allowed = page->methods;
            http_answer_text(exchange, 405, "This page does not take this method.");
        } else
            http_answer_text(exchange, 403, "Pages of browsers change nothing here.");
        return NULL;
    }
    base_buf_init(&body, 65536);
    list_pages(server, &body);
    http_answer(exchange, 404, NULL, &body);
    base_buf_free(&body);
    return NULL;
}

/* All but the body is there. */
static void receive_body(struct http_exchange *exchange)
{
    static const char proceed[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (exchange->continued || !find_page(exchange))
        return;
    if (exchange->request.wants_continue)
        (void)!loop_stream_write(exchange->stream, proceed, sizeof(proceed) - 1);
    exchange->continued = true;
}

static void perform(struct http_exchange *exchange)
{
    const struct http_page *page = find_page(exchange);
    exchange->asked = true;
    if (page)
        page->perform(exchange->server->options.self, exchange);
}

static enum loop_input on_input(void *self, struct loop_stream *stream, const uint8_t *data,
                                size_t size, size_t *consumed)
{
    (void)stream;
    struct http_exchange *exchange = self;
    struct http_refusal refusal;
    if (exchange->produce)
        return go_on(exchange);
    if (exchange->asked) {
        *consumed = size; /* a second request; the first is still being answered */
        return LOOP_WAIT;
    }
    switch (
        http_decode(data, size, exchange->server->options.body_max, &exchange->request, &refusal)) {
    case HTTP_INCOMPLETE:
        return LOOP_WAIT;
    case HTTP_HEAD_READY:
        receive_body(exchange);
        return LOOP_WAIT;
    case HTTP_BAD:
        http_answer_text(exchange, refusal.code, refusal.text);
        break;
    case HTTP_READY:
        perform(exchange);
        break;
    }
    *consumed = size;
    /* What it borrowed is gone. */
    exchange->request.body = (struct http_text){NULL, 0};
    exchange->request.query_count = 0;
    return exchange->produce ? LOOP_MORE : LOOP_WAIT;
}

static void forget(struct http_exchange *exchange)
{
    struct http_server *server = exchange->server;
    unsigned i = 0;
    while (i < server->open_count && server->open[i] != exchange)
        i++;
    if (i == server->open_count)
        return;
    server->open_count--;
    for (; i < server->open_count; i++)
        server->open[i] = server->open[i + 1];
}

static bool on_late(void *self, struct loop_stream *stream)
{
    (void)stream;
    struct http_exchange *exchange = self;
    if (exchange->answered)
        return false; /* it is the peer who does not take it */
    if (exchange->asked)
        http_answer_text(exchange, 503, "There is no answer in time.");
    else
        http_answer_text(exchange, 408, "The request did not come whole in time.");
    return true;
}

static void on_closed(void *self, struct loop_stream *stream, enum yolk_status reason)
{
    (void)stream, (void)reason;
    forget(self);
    free(self);
}

/* Whoever holds connections and asks nothing must not lock out a health check. */
static bool make_room(struct http_server *server)
{
    for (unsigned i = 0; i < server->open_count; i++) {
        struct http_exchange *exchange = server->open[i];
        if (loop_stream_is_closing(exchange->stream))
            continue;
        forget(exchange);
        loop_stream_close(exchange->stream, YOLK_ERR_AGAIN, false);
        return true;
    }
    return false;
}

static bool on_accept(void *self, struct loop_stream *stream, const struct net_address *peer,
                      struct loop_stream_options *options)
{
    (void)peer;
    struct http_server *server = self;
    if (server->open_count == CONNECTIONS_MAX && !make_room(server))
        return false;
    struct http_exchange *exchange = base_calloc(1, sizeof(*exchange));
    if (!exchange)
        return false;
    exchange->server = server;
    exchange->stream = stream;
    exchange->number = ++server->last_number;
    server->open[server->open_count++] = exchange;
    *options = (struct loop_stream_options){
        .callbacks = {.input = on_input, .late = on_late, .closed = on_closed},
        .self = exchange,
        .input_max = HTTP_HEAD_MAX + server->options.body_max,
        .output_max = HTTP_ANSWER_MAX + 1024,
        .deadline_ns = clock_after_ms(clock_real_now_ns(), REQUEST_MS),
    };
    return true;
}

enum yolk_status http_server_create(struct loop *loop, const struct http_server_options *options,
                                    struct http_server **out)
{
    struct http_server *server = base_calloc(1, sizeof(*server));
    if (!server)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for HTTP pages");
    server->loop = loop;
    server->options = *options;
    enum yolk_status status = loop_listen(loop, &options->address, on_accept, server,
                                          &server->address, &server->listener);
    if (status != YOLK_OK) {
        free(server);
        return status;
    }
    *out = server;
    return YOLK_OK;
}

void http_server_destroy(struct http_server *server)
{
    if (!server)
        return;
    loop_listener_destroy(server->listener);
    free(server);
}

const struct net_address *http_server_address(const struct http_server *server)
{
    return &server->address;
}
