/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the admin pages share. */
#ifndef ADMIN_PAGES_H
#define ADMIN_PAGES_H

#include "admin/http.h"
#include "base/json_write.h"
#include "base/limits.h"
#include "wire/msg.h"

#define ADMIN_TYPE_JSON "application/json; charset=utf-8"

/* Numbers of Mooncake's ErrorCode. */
enum {
    UPSTREAM_INTERNAL_ERROR = -1,
    UPSTREAM_SEGMENT_NOT_FOUND = -101,
    UPSTREAM_INVALID_PARAMS = -600,
    UPSTREAM_REPLICA_IS_NOT_READY = -703,
    UPSTREAM_OBJECT_NOT_FOUND = -704,
    UPSTREAM_NOT_SUPPORTED = -1012,
    UPSTREAM_TENANT_NOT_REGISTERED = -1701,
    UPSTREAM_TENANT_NOT_EMPTY = -1702,
};

struct admin_http {
    struct server *server;
    struct http_server *http;
    const struct base_config *settings;
    uint64_t started_ns;
    bool guarded;
};

/* Begins an answer in JSON; admin_finish frees the body. */
struct base_json_writer admin_json_start(struct base_buf *body);
/* `status`: of making the body. */
void admin_finish(struct http_exchange *exchange, int code, const char *type, int status,
                  struct base_buf *body);
void admin_fail(struct http_exchange *exchange, int code, int error, const char *text);
/* How what is of this medium is reached, in Mooncake's pages. */
static inline const char *admin_protocol(uint32_t medium)
{
    return medium == WIRE_MEDIUM_MEMORY ? "tcp" : medium == WIRE_MEDIUM_GDS ? "gds" : "file";
}
/* True after answering, when pages must not show or change objects. */
bool admin_is_guarded(const struct admin_http *http, struct http_exchange *exchange);
/* ?tenant_id=, default without it; false after answering. */
bool admin_read_tenant(struct http_exchange *exchange, char out[MAX_TENANT_SIZE + 1]);

/* objects.c */
void admin_page_query_key(void *self, struct http_exchange *exchange);
void admin_page_batch_query_keys(void *self, struct http_exchange *exchange);
void admin_page_all_keys(void *self, struct http_exchange *exchange);
void admin_page_remove_all(void *self, struct http_exchange *exchange);
/* Of server_set_removed. */
void admin_removed(void *self, uint64_t request, enum yolk_status status, uint64_t count);
/* segments.c */
void admin_page_all_segments(void *self, struct http_exchange *exchange);
void admin_page_segments_detail(void *self, struct http_exchange *exchange);
void admin_page_query_segment(void *self, struct http_exchange *exchange);
void admin_page_segment_status(void *self, struct http_exchange *exchange);
/* tenants.c */
void admin_page_tenant_quotas(void *self, struct http_exchange *exchange);

#endif
