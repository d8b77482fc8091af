/* SPDX-License-Identifier: Apache-2.0 */
/* Texts to socket addresses and back. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "platform/net.h"

int net_address_unix(const char *path, struct net_address *out)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&out->storage;
    size_t size = strlen(path);
    memset(out, 0, sizeof(*out));
    if (size == 0 || size >= sizeof(un->sun_path))
        return base_fail(YOLK_ERR_INVALID, 0,
                         "the path of a Unix socket has 1 to %zu bytes: \"%s\"",
                         sizeof(un->sun_path) - 1, path);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, size);
    out->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + 1);
    return YOLK_OK;
}

bool net_address_is_unix(const struct net_address *address)
{
    return address->storage.ss_family == AF_UNIX;
}

bool net_address_is_own(const struct net_address *address)
{
    struct net_address any_port = *address;
    if (net_address_is_unix(address))
        return true;
    /* At the same place in both families. The kernel binds to nobody else's address. */
    ((struct sockaddr_in *)&any_port.storage)->sin_port = 0;
    int fd = socket(address->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool own = fd >= 0 && bind(fd, (struct sockaddr *)&any_port.storage, any_port.size) == 0;
    if (fd >= 0)
        close(fd);
    return own;
}

static int parse_port(const char *text, const char *digits, uint16_t *port)
{
    unsigned value = 0;
    size_t n = strlen(digits);
    for (size_t i = 0; i < n && value <= UINT16_MAX; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return base_fail(YOLK_ERR_INVALID, 0, "no port number in \"%s\"", text);
        value = value * 10 + (unsigned)(digits[i] - '0');
    }
    if (n == 0 || value > UINT16_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "no port number up to 65535 in \"%s\"", text);
    *port = (uint16_t)value;
    return YOLK_OK;
}

/* Cuts "host:port" into its parts; host becomes "" for "any". */
static int split(const char *text, uint16_t default_port, char *host, size_t host_size,
                 uint16_t *port)
{
    const char *start = text, *end, *colon = strrchr(text, ':');
    if (text[0] == '[') {
        start = text + 1;
        end = strchr(text, ']');
        if (!end || (end[1] != '\0' && end[1] != ':'))
            return base_fail(YOLK_ERR_INVALID, 0, "no \"[address]:port\": \"%s\"", text);
        colon = end[1] == ':' ? end + 1 : NULL;
    } else if (colon && strchr(text, ':') != colon) {
        colon = NULL; /* several colons: an IPv6 address without a port */
        end = text + strlen(text);
    } else {
        end = colon ? colon : text + strlen(text);
    }
    size_t n = (size_t)(end - start);
    if (n >= host_size || (n == 0 && !colon))
        return base_fail(YOLK_ERR_INVALID, 0, "no host in \"%s\"", text);
    memcpy(host, start, n);
    host[n] = '\0';
    if (colon)
        return parse_port(text, colon + 1, port);
    if (default_port == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "\"%s\" lacks the port", text);
    *port = default_port;
    return YOLK_OK;
}

static void set_port(struct sockaddr_storage *out, uint16_t port)
{
    if (out->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)out)->sin6_port = htons(port);
    else if (out->ss_family == AF_INET)
        ((struct sockaddr_in *)out)->sin_port = htons(port);
}

/* Both families where the system has IPv6, else IPv4 alone. */
static void any_address(struct net_address *out)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        close(fd);
        out->storage.ss_family = AF_INET6;
        ((struct sockaddr_in6 *)&out->storage)->sin6_addr = in6addr_any;
        out->size = sizeof(struct sockaddr_in6);
    } else {
        out->storage.ss_family = AF_INET;
        ((struct sockaddr_in *)&out->storage)->sin_addr.s_addr = htonl(INADDR_ANY);
        out->size = sizeof(struct sockaddr_in);
    }
}

static const struct addrinfo *first_of(const struct addrinfo *found, int family)
{
    while (found != NULL && found->ai_family != family)
        found = found->ai_next;
    return found;
}

/* What is an address already is not asked for: a resolver may answer by the families it thinks that
 * this host has. */
static int resolve(const char *text, const char *host, struct net_address *out)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    hints.ai_flags = AI_NUMERICHOST;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    hints.ai_flags = 0;
    if (rc == EAI_NONAME)
        rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc == EAI_MEMORY)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "resolve \"%s\"", text);
    if (rc != 0)
        return base_fail(YOLK_ERR_NOT_FOUND, rc == EAI_SYSTEM ? errno : 0,
                         "no such host in \"%s\" (%s)", text, gai_strerror(rc));
    /* A name with both kinds means IPv4 first: servers often listen on that alone. */
    const struct addrinfo *v4 = first_of(found, AF_INET), *v6 = first_of(found, AF_INET6);
    const struct addrinfo *best = v4 != NULL ? v4 : found;
    memcpy(&out->storage, best->ai_addr, best->ai_addrlen);
    out->size = best->ai_addrlen;
    if (v4 != NULL && v6 != NULL) {
        memcpy(&out->second, v6->ai_addr, v6->ai_addrlen);
        out->second_size = v6->ai_addrlen;
    }
    freeaddrinfo(found);
    return YOLK_OK;
}

int net_address_parse(const char *text, uint16_t default_port, struct net_address *out)
{
    char host[256];
    uint16_t port = 0;
    memset(out, 0, sizeof(*out));
    if (strncmp(text, "unix:", 5) == 0)
        return net_address_unix(text + 5, out);
    int status = split(text, default_port, host, sizeof(host), &port);
    if (status != YOLK_OK)
        return status;
    if (host[0] == '\0' || strcmp(host, "*") == 0)
        any_address(out);
    else
        status = resolve(text, host, out);
    if (status == YOLK_OK)
        net_address_set_port(out, port);
    return status;
}

uint16_t net_address_port(const struct net_address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
    if (address->storage.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&address->storage)->sin_port);
    return 0;
}

void net_address_set_port(struct net_address *address, uint16_t port)
{
    set_port(&address->storage, port);
    set_port(&address->second, port);
}

void net_address_format(const struct net_address *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN + 32] = "?";
    int rc;
    switch (address->storage.ss_family) {
    case AF_UNIX: {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&address->storage;
        size_t n = address->size > offsetof(struct sockaddr_un, sun_path)
                       ? address->size - offsetof(struct sockaddr_un, sun_path)
                       : 0;
        rc = snprintf(out, size, "unix:%.*s", (int)strnlen(un->sun_path, n), un->sun_path);
        break;
    }
    case AF_INET6:
        rc = getnameinfo((const struct sockaddr *)&address->storage, address->size, host,
                         sizeof(host), NULL, 0, NI_NUMERICHOST);
        rc = snprintf(out, size, "[%s]:%u", rc == 0 ? host : "?", net_address_port(address));
        break;
    case AF_INET:
        inet_ntop(AF_INET, &((const struct sockaddr_in *)&address->storage)->sin_addr, host,
                  sizeof(host));
        rc = snprintf(out, size, "%s:%u", host, net_address_port(address));
        break;
    default:
        rc = snprintf(out, size, "?");
    }
    (void)rc; /* a cut text is only shown */
}
