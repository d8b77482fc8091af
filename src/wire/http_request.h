/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP/1 request, decoded from what has come of it so far. Pure and bounded: nothing is copied,
 * and what it does not understand completely it refuses.
 */
#ifndef WIRE_HTTP_REQUEST_H
#define WIRE_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

#define HTTP_HEAD_MAX   65536u /* request line and headers */
#define HTTP_PATH_MAX   256u   /* with its end */
#define HTTP_FIELDS_MAX 100u
#define HTTP_METHOD_MAX 32u
#define HTTP_QUERY_MAX  16u

/* Bits, so that a route can say which it takes. */
enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_PUT = 8,
    HTTP_DELETE = 16,
    HTTP_OTHER = 32,
};

/* Borrowed from the bytes of the request. */
struct http_text {
    const char *data;
    size_t size;
};

struct http_request {
    enum http_method method;
    bool newer;               /* HTTP/1.1: a body may come in chunks */
    char path[HTTP_PATH_MAX]; /* decoded */
    struct {
        struct http_text name, value; /* as they came, not decoded */
    } query[HTTP_QUERY_MAX];
    size_t query_count;
    struct http_text body;
    bool wants_continue; /* it waits for "100 Continue" before it sends the body */
    bool from_page;      /* a browser's page of another site made it */
    size_t size;         /* bytes of all of it, once READY */
};

enum http_state {
    HTTP_INCOMPLETE, /* more is to come */
    HTTP_HEAD_READY, /* all but the body is there: `wants_continue` */
    HTTP_READY,
    HTTP_BAD, /* `code` and `text` say why */
};

struct http_refusal {
    int code;
    const char *text;
};

enum http_state http_decode(const uint8_t *data, size_t size, size_t body_max,
                            struct http_request *request, struct http_refusal *refusal);

/* The value of a name in the query; NULL: it is not there. */
const struct http_text *http_query(const struct http_request *request, const char *name);
/* %XX and '+' into bytes (any, zero included). *size: bytes written. False: no valid escape, or
 * more than `room`. */
bool http_unescape(struct http_text text, uint8_t *out, size_t room, size_t *size);

#endif
