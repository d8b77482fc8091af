/* SPDX-License-Identifier: Apache-2.0 */
/* For transports that wrap another one. */
#ifndef TRANSPORT_WRAP_H
#define TRANSPORT_WRAP_H

#include <string.h>

#include <yolk/transport.h>

/* The table of a transport that may be older than this program: the slots it lacks are NULL. */
static inline struct yolk_transport_ops
transport_whole_table(const struct yolk_transport_ops *given)
{
    struct yolk_transport_ops ops;
    memset(&ops, 0, sizeof(ops));
    memcpy(&ops, given, given->size < sizeof(ops) ? given->size : sizeof(ops));
    return ops;
}

#endif
