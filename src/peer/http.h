/* SPDX-License-Identifier: Apache-2.0 */
/* As much of HTTP/1.1 as a metadata service needs of a client: one request on one connection. */
#ifndef PEER_HTTP_H
#define PEER_HTTP_H

#include <stdbool.h>

#include "base/buf.h"
#include "platform/net.h"

struct http_request {
    const char *method;
    const char *host; /* of the Host header */
    const char *path; /* with its query */
    const char *type; /* of the body */
    const void *body;
    size_t body_size;
};
/* *code: the answer's; its body in out, whose maximum is the limit. PROTOCOL, TOO_LARGE, and what
 * the connection said. */
YOLK_MUST_USE enum yolk_status http_call(const struct net_address *address,
                                         const struct http_request *request, uint64_t deadline_ns,
                                         int *code, struct base_buf *out);
/* The answer that has come so far; ended: and no more will. AGAIN: it is not whole. PROTOCOL,
 * TOO_LARGE (for out's maximum). */
YOLK_MUST_USE enum yolk_status http_parse_answer(const struct base_buf *in, bool ended, int *code,
                                                 struct base_buf *out);
/* What is not a letter, digit or one of -._~ as %XX. */
YOLK_MUST_USE enum yolk_status http_escape(const char *text, struct base_buf *out);

#endif
