/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people are told them. */
#ifndef CLI_ADDRESS_H
#define CLI_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/net.h"

/* "host:port", "[v6]:port". */
void address_join(const char *host, uint64_t port, char *out, size_t size);
/* Under which "host:port" others reach what is bound to `bound`: of a wildcard, the address of this
 * machine that faces the network. Always a number, which nobody needs to resolve. */
void address_reachable(const struct net_address *bound, char *out, size_t size);
bool address_is_loopback(const struct net_address *address);
/* The first address of a network device. */
YOLK_MUST_USE int address_of_interface(const char *name, char *out, size_t size);

#endif
