/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

void address_join(const char *host, uint64_t port, char *out, size_t size)
{
    bool v6 = strchr(host, ':') && host[0] != '[';
    snprintf(out, size, v6 ? "[%s]:%llu" : "%s:%llu", host, (unsigned long long)port);
}

bool address_is_loopback(const struct net_address *address)
{
    const struct sockaddr *any = (const struct sockaddr *)&address->storage;
    if (any->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)any)->sin_addr.s_addr) >> 24 == 127;
    if (any->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)any)->sin6_addr);
    return true; /* a Unix socket */
}

static bool is_wildcard(const struct net_address *address)
{
    const struct sockaddr *any = (const struct sockaddr *)&address->storage;
    if (any->sa_family == AF_INET)
        return ((const struct sockaddr_in *)any)->sin_addr.s_addr == htonl(INADDR_ANY);
    return any->sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)any)->sin6_addr);
}

static bool host_text(const struct sockaddr *address, char *out, size_t size)
{
    const void *bytes = address->sa_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
    return inet_ntop(address->sa_family, bytes, out, (socklen_t)size) != NULL;
}

/* The local address of the route to a place far away; nothing is sent. */
static bool facing(int family, const char *far, char *out, size_t size)
{
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    void *bytes = family == AF_INET ? (void *)&((struct sockaddr_in *)&address)->sin_addr
                                    : (void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ((struct sockaddr_in *)&address)->sin_port = htons(9); /* at the same place in both */
    bool found = fd >= 0 && inet_pton(family, far, bytes) == 1 &&
                 connect(fd, (struct sockaddr *)&address, length) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
                 host_text((struct sockaddr *)&address, out, size);
    if (fd >= 0)
        close(fd);
    return found;
}

/* The first address of the device `name`, or of any that is up and no loopback. */
static bool first_of(const char *name, int family, char *out, size_t size)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
        bool wanted = name ? strcmp(one->ifa_name, name) == 0
                           : (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
        if (wanted && one->ifa_addr && one->ifa_addr->sa_family == family)
            found = host_text(one->ifa_addr, out, size);
    }
    freeifaddrs(all);
    return found;
}

void address_reachable(const struct net_address *bound, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    if (!is_wildcard(bound)) {
        net_address_format(bound, out, size);
        return;
    }
    /* Addresses that are kept for documents: every default route leads there. */
    if (!facing(AF_INET, "192.0.2.1", host, sizeof(host)) &&
        !first_of(NULL, AF_INET, host, sizeof(host)) &&
        !facing(AF_INET6, "2001:db8::1", host, sizeof(host)))
        snprintf(host, sizeof(host), "127.0.0.1");
    address_join(host, net_address_port(bound), out, size);
}

int address_of_interface(const char *name, char *out, size_t size)
{
    if (first_of(name, AF_INET, out, size) || first_of(name, AF_INET6, out, size))
        return YOLK_OK;
    return base_fail(YOLK_ERR_CONFIG, if_nametoindex(name) == 0 ? errno : 0,
                     "network device %.32s: no address of it", name);
}
