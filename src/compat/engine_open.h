/* SPDX-License-Identifier: Apache-2.0 */
/* What Mooncake's engine is begun with, as a peer: for the C interface and the Python module. */
#ifndef COMPAT_ENGINE_OPEN_H
#define COMPAT_ENGINE_OPEN_H

#include <stdint.h>

#include <yolk/peer.h>

#include "compat/engine_config.h"

struct compat_engine_setup {
    const char *metadata; /* NULL or "": P2PHANDSHAKE; without a scheme: etcd */
    const char *name;     /* "host" or "host:port", of IPv6 "[host]" or "[host]:port" */
    const char *host;     /* in place of the name's, if not empty; may be NULL */
    uint64_t port;        /* of the handshake, with a metadata service; 0: the name's, or any */
};
/* With the environment's settings (engine_config.h). An address that this machine does not have (of
 * a container's host) is told to others while it listens on all. */
YOLK_MUST_USE enum yolk_status compat_engine_open(const struct compat_engine_setup *setup,
                                                  struct yolk_peer **out);
/* The same for a program that configures it as TENT is; own NULL: by the environment alone.
 * config: what is in force, freed by the caller in either case. */
YOLK_MUST_USE enum yolk_status compat_engine_open_tent(const struct compat_settings *own,
                                                       struct base_config *config,
                                                       struct yolk_peer **out);
/* Until memory is quiet, at most three drain limits; a peer that is still not is left as it is,
 * with a line. NULL is allowed. */
YOLK_MUST_USE enum yolk_status compat_engine_close(struct yolk_peer *peer);
/* The transport that serves a protocol of Mooncake's: tcp for rdma, which is said once. */
const char *compat_engine_transport(const char *protocol);

#endif
