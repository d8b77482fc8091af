/* SPDX-License-Identifier: Apache-2.0 */
/* For transports that wrap another one: the hooks that only hand on what they are given. */
#ifndef TRANSPORT_WRAP_WRAP_H
#define TRANSPORT_WRAP_WRAP_H

#include <yolk/transport.h>

/* The head of a wrapper's endpoint: its first member. */
struct wrap_endpoint {
    struct yolk_transport_ops inner; /* slots it lacks are NULL */
    void *endpoint;
};

/* The table of a transport that may be older than this program: the slots it lacks are NULL. */
struct yolk_transport_ops transport_whole_table(const struct yolk_transport_ops *given);

/* A table under the name and with the capabilities of `inner`, whose hooks on the endpoint hand on
 * to it, absent where it has none. probe, init and fini, and those on channels, are the wrapper's
 * to fill in. */
void wrap_make(const struct yolk_transport_ops *inner, struct yolk_transport_ops *out);

#endif
