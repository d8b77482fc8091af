/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/engine_open.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Who logs in at a Redis, where its address does not say. */
static enum yolk_status redis_login(const struct base_config *config, char url[URL_MAX])
{
    static const char scheme[] = "redis://";
    const char *user = base_config_string(config, SET_REDIS_USERNAME);
    const char *password = base_config_string(config, SET_REDIS_PASSWORD);
    uint64_t database = base_config_u64(config, SET_REDIS_DATABASE);
    if (strncmp(url, scheme, sizeof(scheme) - 1) != 0)
        return YOLK_OK;
    const char *rest = url + sizeof(scheme) - 1;
    bool login = strchr(rest, '@') == NULL && (user[0] != '\0' || password[0] != '\0');
    bool chosen = database != 0 && strchr(rest, '/') == NULL;
    char whole[URL_MAX], number[32] = "";
    if (chosen)
        snprintf(number, sizeof(number), "/%llu", (unsigned long long)database);
    int size = snprintf(whole, sizeof(whole), "%s%s%s%s%s%s%s", scheme, login ? user : "",
                        login ? ":" : "", login ? password : "", login ? "@" : "", rest, number);
    if (size >= URL_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "the metadata address is too long");
    memcpy(url, whole, (size_t)size + 1);
    return YOLK_OK;
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

/* Who this process is. */
struct identity {
    char url[URL_MAX];
    char host[HOST_MAX];
    const char *name;
    uint64_t port;
};

static enum yolk_status open_with(const struct base_config *config, const struct identity *who,
                                  const uint8_t *secret, size_t secret_size, struct yolk_peer **out)
{
    struct yolk_peer_options options;
    struct yolk_engine_options engine;
    char off[COMPAT_OFF_MAX], text[HOST_MAX + 8];
    struct net_address address;
    snprintf(text, sizeof(text), strchr(who->host, ':') != NULL ? "[%s]:1" : "%s:1", who->host);
    if (net_address_parse(text, 0, &address) != YOLK_OK)
        return base_fail(YOLK_ERR_CONFIG, 0, "the own address \"%s\" cannot be resolved",
                         who->host);
    compat_engine_options(config, off, &engine);
    yolk_peer_options_init(&options);
    const char *listen = base_config_string(config, SET_RPC_LISTEN);
    options.engine = &engine;
    options.metadata = who->url;
    options.host = who->host;
    options.name = who->name;
    options.port = (uint16_t)who->port;
    options.port_min = (uint16_t)base_config_u64(config, SET_RPC_PORT_MIN);
    options.port_max = (uint16_t)base_config_u64(config, SET_RPC_PORT_MAX);
    char figures[HOST_MAX + 16];
    if (compat_engine_figures(config, figures, sizeof(figures)))
        options.metrics_listen = figures;
    options.listen = listen[0] != '\0' ? listen : NULL;
    options.secret = secret;
    options.secret_size = secret_size;
    return create(&options, net_address_is_own(&address), out);
}

static enum yolk_status open_as(const struct base_config *config, const struct identity *who,
                                struct yolk_peer **out)
{
    uint8_t secret[SECRET_MAX];
    size_t secret_size = 0;
    const char *file = base_config_string(config, SET_SECRET_FILE);
    enum yolk_status status = YOLK_OK;
    if (file[0] != '\0')
        status = process_read_secret(file, secret, sizeof(secret), &secret_size);
    if (status == YOLK_OK)
        status = open_with(config, who, secret_size > 0 ? secret : NULL, secret_size, out);
    explicit_bzero(secret, sizeof(secret));
    return status;
}

/* What upstream's older interfaces are begun with. */
static enum yolk_status identity_of_setup(const struct compat_engine_setup *setup,
                                          const struct base_config *config, struct identity *who)
{
    uint64_t port = 0, ignored = 0;
    *who = (struct identity){.host = "127.0.0.1", .name = setup->name};
    enum yolk_status status = metadata_url(setup->metadata, who->url);
    if (status == YOLK_OK)
        status = redis_login(config, who->url);
    if (status == YOLK_OK && !is_empty(setup->name))
        status = split(setup->name, who->host, &port);
    if (status == YOLK_OK && !is_empty(setup->host))
        status = split(setup->host, who->host, &ignored);
    /* With P2PHANDSHAKE the name is the address, so any free port will do. */
    if (strcmp(who->url, YOLK_PEER_P2P) != 0)
        who->port = setup->port != 0 ? setup->port : port;
    return status;
}

enum yolk_status compat_engine_open(const struct compat_engine_setup *setup, struct yolk_peer **out)
{
    struct base_config config;
    struct identity who;
    *out = NULL;
    if (setup->port > UINT16_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "port %llu is not one",
                         (unsigned long long)setup->port);
    enum yolk_status status =
        compat_engine_config(NULL, compat_engine_uses_tent(), environ, &config);
    if (status == YOLK_OK)
        status = identity_of_setup(setup, &config, &who);
    if (status == YOLK_OK)
        status = open_as(&config, &who, out);
    base_config_free(&config);
    return status;
}

/* "p2p" and its addresses, as a metadata service's address. */
static enum yolk_status url_of_config(const struct base_config *config, char url[URL_MAX])
{
    const char *type = base_config_string(config, SET_METADATA_TYPE);
    const char *servers = base_config_string(config, SET_METADATA_SERVERS);
    const char *scheme = strstr(servers, "://");
    if (strcmp(type, "p2p") == 0)
        return metadata_url(NULL, url);
    if (servers[0] == '\0')
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "metadata_servers is empty: with metadata_type %s it is an address", type);
    if (scheme != NULL &&
        (strlen(type) != (size_t)(scheme - servers) || strncmp(type, servers, strlen(type)) != 0))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "metadata_servers is \"%.100s\": with metadata_type %s it is %s://...",
                         servers, type, type);
    if (snprintf(url, URL_MAX, "%s://%s", type, scheme != NULL ? scheme + 3 : servers) >= URL_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "the metadata address is too long");
    for (char *p = url; *p != '\0'; p++)
        *p = *p == ';' ? ',' : *p;
    return redis_login(config, url);
}

enum yolk_status compat_engine_open_tent(const struct compat_settings *own,
                                         struct base_config *config, struct yolk_peer **out)
{
    struct identity who = {.host = "127.0.0.1"};
    *out = NULL;
    enum yolk_status status = compat_engine_config(own, true, environ, config);
    const char *host = status == YOLK_OK ? base_config_string(config, SET_RPC_HOST) : "";
    if (status == YOLK_OK)
        status = url_of_config(config, who.url);
    if (status == YOLK_OK && host[0] != '\0')
        status = split(host, who.host, &who.port);
    if (status != YOLK_OK)
        return status;
    const char *name = base_config_string(config, SET_SEGMENT_NAME);
    who.name = name[0] != '\0' ? name : NULL;
    if (base_config_u64(config, SET_RPC_PORT) != 0)
        who.port = base_config_u64(config, SET_RPC_PORT);
    return open_as(config, &who, out);
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
        log_warn(
            "protocol rdma: no RDMA transport is built in, nor is a GPU's memory exported as a "
            "DMA-buf; tcp is used");
    return "tcp";
}
