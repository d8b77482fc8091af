/* SPDX-License-Identifier: Apache-2.0 */
/* The master's core on sockets: connections, handshakes, frames, time. One thread. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/core.h"
#include "platform/loop.h"
#include "platform/net.h"
#include "yolk/status.h"

struct server;

struct server_options {
    struct net_address address;
    struct master_config config;
    const void *secret; /* NULL: none. Copied. */
    size_t secret_size;
    size_t max_connections; /* 0: MAX_CONNECTIONS */
    uint64_t handshake_ms;  /* from accept to a complete hello; 0: 5000 */
    size_t output_max;      /* unsent bytes of one connection; 0: 64 MiB */
    uint64_t seed;
};

#define SERVER_KINDS 128 /* of messages; enum wire_kind */

struct server_stats {
    uint64_t connections; /* now */
    uint64_t accepted;
    uint64_t refused_limit;     /* over max_connections */
    uint64_t refused_handshake; /* wrong secret, version, or too slow */
    uint64_t closed_protocol;   /* garbage and oversize frames */
    uint64_t closed_slow;       /* did not take their output */
    uint64_t frames_in, frames_out;
    uint64_t bytes_in, bytes_out;
    uint64_t kinds[SERVER_KINDS]; /* frames received of each kind */
};

/* Listens; serves when the loop runs. The loop must outlive the server. REFUSED or SYSTEM with a
 * sentence that names the address when it cannot listen. */
YOLK_MUST_USE enum yolk_status
server_create(struct loop *loop, const struct server_options *options, struct server **out);
/* Closes the listener and every connection. Before loop_destroy. */
void server_destroy(struct server *server);

/* The address actually bound. */
const struct net_address *server_address(const struct server *server);
struct master_core *server_core(struct server *server);

/* Removes all objects of a tenant (NULL: of all); who was set is told the count once, when the loop
 * has come to it. BUSY: as many removals run as may. */
typedef void (*server_removed)(void *self, uint64_t request, enum yolk_status status,
                               uint64_t count);
YOLK_MUST_USE enum yolk_status server_remove_all(struct server *server, const char *tenant,
                                                 bool force, uint64_t request);
/* Who is told; NULL: nobody any more. */
void server_set_removed(struct server *server, server_removed removed, void *self);
const struct server_stats *server_get_stats(const struct server *server);

#endif
