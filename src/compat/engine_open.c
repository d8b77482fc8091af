/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/engine_open.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ROOM "engine"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/net.h"
#include "platform/process.h"

enum { HOST_MAX = 256, URL_MAX = 512, SECRET_MAX = 256, CLOSE_TRIES = 3 };

static bool is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static enum yolk_status port_setting(const char *name, uint16_t *out)
{
    const char *text = getenv(name);
    uint64_t value;
    if (is_empty(text))
        return YOLK_OK;
    if (base_parse_u64(name, text, &value) != YOLK_OK || value == 0 || value > UINT16_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s is \"%s\": must be a port, 1 to 65535", name,
                         text);
    *out = (uint16_t)value;
    return YOLK_OK;
}

/* "host:port" apart; the port stays if there is none. */
static enum yolk_status split(const char *text, char host[HOST_MAX], uint64_t *port)
{
    const char *end = text + strlen(text);
    const char *colon = strrchr(text, ':');
    bool bracketed = text[0] == '[';
    bool bare_v6 = !bracketed && colon != NULL && strchr(text, ':') != colon;
    if (bracketed && (end == text + 1 || strchr(text, ']') == NULL))
        return base_fail(YOLK_ERR_CONFIG, 0, "\"%s\" is no [host]:port", text);
    if (bracketed && colon < strchr(text, ']'))
        colon = NULL;
    if (colon != NULL && !bare_v6) {
        if (base_parse_u64("port", colon + 1, port) != YOLK_OK || *port > UINT16_MAX)
            return base_fail(YOLK_ERR_CONFIG, 0, "\"%s\" names no port after its colon", text);
        end = colon;
    }
    if (bracketed) {
        text++;
        end--;
    }
    if (end <= text || (size_t)(end - text) >= HOST_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "\"%s\" names no host", text);
    snprintf(host, HOST_MAX, "%.*s", (int)(end - text), text);
    return YOLK_OK;
}

static enum yolk_status metadata_url(const char *given, char url[URL_MAX])
{
    bool whole =
        is_empty(given) || strcmp(given, YOLK_PEER_P2P) == 0 || strstr(given, "://") != NULL;
    int size = snprintf(url, URL_MAX, "%s%s", whole ? "" : "etcd://",
                        is_empty(given) ? YOLK_PEER_P2P : given);
    return size < URL_MAX ? YOLK_OK
                          : base_fail(YOLK_ERR_CONFIG, 0, "the metadata address is too long");
}

/* Of a container the address that others use may be its host's. Where it is this machine's own,
 * something else was wrong, and nothing may be opened to all networks for that. */
static enum yolk_status create(struct yolk_peer_options *options, bool is_own,
                               struct yolk_peer **out)
{
    enum yolk_status status = yolk_peer_create(options, out);
    if (status == YOLK_OK || options->listen != NULL || status == YOLK_ERR_CONFIG || is_own)
        return status;
    char why[512];
    snprintf(why, sizeof(why), "%s", yolk_last_error());
    options->listen = strchr(options->host, ':') != NULL ? "::" : "0.0.0.0";
    if (yolk_peer_create(options, out) != YOLK_OK)
        return base_fail(status, 0, "%s", why);
    log_warn("listening on %s, because on %s it cannot: %s", options->listen, options->host, why);
    return YOLK_OK;
}

static enum yolk_status open_with(const struct compat_engine_setup *setup, const uint8_t *secret,
                                  size_t secret_size, struct yolk_peer **out)
{
    struct yolk_peer_options options;
    char host[HOST_MAX] = "127.0.0.1", url[URL_MAX];
    uint64_t port = 0;
    yolk_peer_options_init(&options);
    enum yolk_status status = metadata_url(setup->metadata, url);
    if (status == YOLK_OK && !is_empty(setup->name))
        status = split(setup->name, host, &port);
    if (status == YOLK_OK && !is_empty(setup->host)) {
        uint64_t ignored = 0;
        status = split(setup->host, host, &ignored);
    }
    if (status == YOLK_OK)
        status = port_setting("MC_MIN_RPC_PORT", &options.port_min);
    if (status == YOLK_OK)
        status = port_setting("MC_MAX_RPC_PORT", &options.port_max);
    if (status != YOLK_OK)
        return status;
    struct net_address address;
    char text[HOST_MAX + 8];
    snprintf(text, sizeof(text), strchr(host, ':') != NULL ? "[%s]:1" : "%s:1", host);
    status = net_address_parse(text, 0, &address);
    if (status != YOLK_OK)
        return base_fail(YOLK_ERR_CONFIG, 0, "the own address \"%s\" cannot be resolved", host);
    bool p2p = strcmp(url, YOLK_PEER_P2P) == 0;
    options.metadata = url;
    options.host = host;
    options.name = setup->name;
    if (!p2p) /* else the name is the address, so any free port will do */
        options.port = (uint16_t)(setup->port != 0 ? setup->port : port);
    options.listen = is_empty(getenv("MC_TCP_BIND_ADDRESS")) ? NULL : getenv("MC_TCP_BIND_ADDRESS");
    options.secret = secret;
    options.secret_size = secret_size;
    return create(&options, net_address_is_own(&address), out);
}

enum yolk_status compat_engine_open(const struct compat_engine_setup *setup, struct yolk_peer **out)
{
    uint8_t secret[SECRET_MAX];
    size_t secret_size = 0;
    const char *file = getenv("YOLK_SECRET_FILE");
    enum yolk_status status = YOLK_OK;
    *out = NULL;
    if (setup->port > UINT16_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "port %llu is not one",
                         (unsigned long long)setup->port);
    if (!is_empty(file))
        status = process_read_secret(file, secret, sizeof(secret), &secret_size);
    if (status == YOLK_OK)
        status = open_with(setup, secret_size > 0 ? secret : NULL, secret_size, out);
    explicit_bzero(secret, sizeof(secret));
    return status;
}

enum yolk_status compat_engine_close(struct yolk_peer *peer)
{
    enum yolk_status status = YOLK_OK;
    for (int i = 0; i < CLOSE_TRIES; i++) {
        status = yolk_peer_destroy(peer);
        if (status != YOLK_ERR_BUSY)
            break;
    }
    if (status != YOLK_OK)
        log_error("an engine was left as it is: %s", yolk_last_error());
    return status;
}

const char *compat_engine_transport(const char *protocol)
{
    static _Atomic bool told;
    if (strcmp(protocol, "rdma") != 0)
        return protocol;
    if (!atomic_exchange(&told, true))
        log_warn("protocol rdma: no RDMA transport is built in; tcp is used");
    return "tcp";
}
