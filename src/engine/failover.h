/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a slice that failed: a table of error classes and kinds of transports. Pure. */
#ifndef YOLK_ENGINE_FAILOVER_H
#define YOLK_ENGINE_FAILOVER_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/transport.h>

enum failover_kind { FAILOVER_NETWORK, FAILOVER_MACHINE, FAILOVER_FILE, FAILOVER_KINDS };

enum failover_action {
    FAILOVER_FAIL,  /* no transport would say otherwise, or it must not be tried twice */
    FAILOVER_NEXT,  /* another transport; this one would say the same again */
    FAILOVER_RETRY, /* another transport; if there is none, this one again */
};

enum failover_kind failover_kind_of(uint64_t caps);
enum failover_action failover_decide(enum failover_kind kind, enum yolk_status status);
/* Does it say something of the route, beyond this one io? IO is of the medium behind it. */
bool failover_blames_route(enum yolk_status status);

#endif
