/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people and monitors ask a master over HTTP: /metrics (Prometheus text), /metrics/summary
 * (one line), /health (JSON). Only GET and HEAD, one request a connection; requests, connections
 * and time are bounded.
 */
#ifndef ADMIN_HTTP_H
#define ADMIN_HTTP_H

#include "base/buf.h"
#include "platform/loop.h"
#include "platform/net.h"
#include "server/server.h"
#include "yolk/status.h"

struct admin_http;

/* Both must outlive it. */
YOLK_MUST_USE enum yolk_status admin_http_create(struct loop *loop, struct server *server,
                                                 const struct net_address *address,
                                                 struct admin_http **out);
void admin_http_destroy(struct admin_http *http);
const struct net_address *admin_http_address(const struct admin_http *http);

#endif
