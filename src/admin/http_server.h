/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1 on the event loop: a table of pages, one request a connection, and everything bounded:
 * the bytes of a request, the time it may take to come, the connections, and what waits to be sent.
 * A page answers at once, in pieces, or later.
 */
#ifndef ADMIN_HTTP_SERVER_H
#define ADMIN_HTTP_SERVER_H

#include "wire/http_request.h"
#include "base/buf.h"
#include "platform/loop.h"
#include "platform/net.h"
#include "yolk/status.h"

struct http_server;
/* A request that waits for its answer. */
struct http_exchange;

#define HTTP_ANSWER_MAX (8u << 20)

struct http_page {
    const char *path;
    unsigned methods; /* bits of enum http_method; HTTP_GET stands for HEAD too */
    void (*perform)(void *self, struct http_exchange *exchange);
    const char *doc; /* one clause, for docs/programs.md */
};

struct http_server_options {
    struct net_address address;
    const struct http_page *pages;
    size_t page_count;
    void *self; /* of the pages */
    size_t body_max;
};

YOLK_MUST_USE enum yolk_status http_server_create(struct loop *loop,
                                                  const struct http_server_options *options,
                                                  struct http_server **out);
void http_server_destroy(struct http_server *server);
const struct net_address *http_server_address(const struct http_server *server);

const struct http_request *http_exchange_request(const struct http_exchange *exchange);

/* The answer; the exchange is over. `type`: NULL is plain text. */
void http_answer(struct http_exchange *exchange, int code, const char *type,
                 const struct base_buf *body);
/* The same with a sentence as its body. */
void http_answer_text(struct http_exchange *exchange, int code, const char *text);

/* A long answer of plain text: `produce` appends the next piece, 256 KiB or so, and says in *more
 * whether there is another one; it is called as fast as the peer reads. */
#define HTTP_PIECE (256u * 1024u)
typedef enum yolk_status (*http_produce)(void *self, uint64_t *cursor, struct base_buf *piece,
                                         bool *more);
void http_answer_pieces(struct http_exchange *exchange, http_produce produce);

/* For an answer later: a number that http_exchange_find knows as long as the peer waits. The
 * request is not there any more then. */
uint64_t http_exchange_defer(struct http_exchange *exchange, uint64_t timeout_ms);
/* NULL: the peer is gone. */
struct http_exchange *http_exchange_find(struct http_server *server, uint64_t number);

#endif
