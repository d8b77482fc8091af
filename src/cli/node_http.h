/* SPDX-License-Identifier: Apache-2.0 */
/* A node's own HTTP pages, /health and /metrics, served by a thread of theirs. */
#ifndef CLI_NODE_HTTP_H
#define CLI_NODE_HTTP_H

#include "admin/http_server.h"
#include "base/config.h"
#include "yolk/store.h"

struct node_http;

extern const struct http_page node_http_pages[];
extern const size_t node_http_page_count;

/* The store and the settings, which /metrics shows, must outlive it. */
YOLK_MUST_USE enum yolk_status node_http_start(const struct net_address *address,
                                               struct yolk_store *store,
                                               const struct base_config *settings,
                                               struct node_http **out);
void node_http_stop(struct node_http *http);
const struct net_address *node_http_address(const struct node_http *http);

#endif
