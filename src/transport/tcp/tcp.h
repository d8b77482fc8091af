/* SPDX-License-Identifier: Apache-2.0 */
/* Any machine to any machine, over TCP. */
#ifndef YOLK_TRANSPORT_TCP_H
#define YOLK_TRANSPORT_TCP_H

#include <yolk/transport.h>

/* Static table. Endpoint text: "host:port,instance". */
const struct yolk_transport_ops *transport_tcp_ops(void);

/* Bytes that this process's consumers copied from where they were received to their places: what
 * small replies cost. */
uint64_t transport_tcp_staged_bytes(void);

#endif
