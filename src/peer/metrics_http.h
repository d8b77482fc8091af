/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's figures over HTTP: /metrics, /metrics/summary, /metrics/json and /health, by one
 * thread, with bounds on connections, on the bytes of a request and on the time of one. */
#ifndef PEER_METRICS_HTTP_H
#define PEER_METRICS_HTTP_H

#include <yolk/engine.h>

struct metrics_http;

/* listen: "host:port", port 0: a free one. The engine must outlive it. CONFIG, LINK (the port is
 * taken), NO_MEMORY. */
YOLK_MUST_USE enum yolk_status metrics_http_start(struct yolk_engine *engine, const char *listen,
                                                  struct metrics_http **out);
/* NULL is allowed. */
void metrics_http_stop(struct metrics_http *http);
uint16_t metrics_http_port(const struct metrics_http *http);

#endif
