/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people, monitors and engines ask a master over HTTP: the pages of upstream's admin port with
 * the same formats, /metrics and /health among them. docs/programs.md lists them.
 */
#ifndef ADMIN_HTTP_H
#define ADMIN_HTTP_H

#include "admin/http_server.h"
#include "base/config.h"
#include "platform/loop.h"
#include "platform/net.h"
#include "server/server.h"
#include "yolk/status.h"

struct admin_http;

struct admin_http_options {
    struct net_address address;
    const struct base_config *settings; /* shown in /metrics; NULL: none; outlives it */
    bool guarded; /* clients need a secret: pages do not show or change objects */
};

/* The table of pages, for documents. */
extern const struct http_page admin_http_pages[];
extern const size_t admin_http_page_count;

/* Both must outlive it. */
YOLK_MUST_USE enum yolk_status admin_http_create(struct loop *loop, struct server *server,
                                                 const struct admin_http_options *options,
                                                 struct admin_http **out);
void admin_http_destroy(struct admin_http *http);
const struct net_address *admin_http_address(const struct admin_http *http);

#endif
