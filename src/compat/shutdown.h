/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is asked to end (SIGTERM, SIGINT), or that exits: the names of its peers are
 * withdrawn from the metadata service first, so that nobody looks for them there. */
#ifndef COMPAT_SHUTDOWN_H
#define COMPAT_SHUTDOWN_H

#include <yolk/peer.h>

/* Once asked for, a signal ends the process with status 128 + its number, also when the peer is
 * gone by then. Twice for one peer is once. SYSTEM, NO_MEMORY. */
YOLK_MUST_USE enum yolk_status compat_shutdown_watch(struct yolk_peer *peer);
/* Before a peer is destroyed. Never returns while the process ends. */
void compat_shutdown_forget(const struct yolk_peer *peer);

#endif
