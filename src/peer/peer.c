/* SPDX-License-Identifier: Apache-2.0 */
/* A peer's beginning and end, and its memory. */
#define LOG_ROOM "peer"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/bulk.h"
#include "peer/internal.h"
#include "peer/metrics_http.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "platform/sysfs.h"
#include "transport/gds/gds.h"
#include "transport/loop/loop.h"
#include "transport/nvlink/nvlink.h"
#include "transport/posix/posix.h"
#include "transport/tcp/tcp.h"
#include "transport/uring/uring.h"

enum {
    TIMEOUT_DEFAULT_MS = 3000,
    NOTIFICATIONS_DEFAULT = 4096,
    PORT_MIN_DEFAULT = 15000,
    PORT_MAX_DEFAULT = 17000,
    TRANSPORTS_MAX = 6 + ENGINE_PLUGINS_MAX,
};

void yolk_peer_options_init(struct yolk_peer_options *options)
{
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
    options->timeout_ms = TIMEOUT_DEFAULT_MS;
    options->notifications_max = NOTIFICATIONS_DEFAULT;
    options->port_min = PORT_MIN_DEFAULT;
    options->port_max = PORT_MAX_DEFAULT;
}

/* ---- options ---- */

static enum yolk_status check_options(const struct yolk_peer_options *options)
{
    if (options->struct_size != sizeof(*options))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "peer options are of %zu bytes, this library's are of %zu: call "
                         "yolk_peer_options_init, or rebuild",
                         options->struct_size, sizeof(*options));
    bool any_port = options->port_min == 0 && options->port_max == 0;
    if (!any_port && (options->port_min > options->port_max || options->port_min == 0))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "peer option port_min is %u, port_max %u: a range "
                         "begins at 1 or more and does not end before it",
                         options->port_min, options->port_max);
    if (options->engine != NULL && options->engine->struct_size != sizeof(*options->engine))
        return base_fail(YOLK_ERR_CONFIG, 0, "peer option engine needs yolk_engine_options_init");
    if (options->secret_size > WIRE_SECRET_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "peer option secret is of %zu bytes, at most %u",
                         options->secret_size, WIRE_SECRET_MAX);
    if (options->host != NULL && strlen(options->host) > NET_ADDRESS_TEXT_MAX / 2)
        return base_fail(YOLK_ERR_CONFIG, 0, "peer option host is of %zu bytes",
                         strlen(options->host));
    if (options->name != NULL && strlen(options->name) >= PEER_NAME_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "peer option name is of %zu bytes, at most %d",
                         strlen(options->name), PEER_NAME_MAX - 1);
    return YOLK_OK;
}

/* What is built in, in the order of preference, then the plug-ins. */
static size_t transports_there_are(const struct engine_plugins *plugins,
                                   const struct yolk_transport_ops *out[TRANSPORTS_MAX])
{
    const struct yolk_transport_ops *const own[] = {transport_loop_ops(),   transport_gds_ops(),
                                                    transport_uring_ops(),  transport_posix_ops(),
                                                    transport_nvlink_ops(), transport_tcp_ops()};
    size_t count = 0;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        out[count++] = own[i];
    for (size_t i = 0; i < plugins->count; i++)
        out[count++] = plugins->tables[i];
    return count;
}

static enum yolk_status unknown_transport(const struct yolk_transport_ops *const *all,
                                          size_t all_count, const char *name, size_t size)
{
    char names[TRANSPORTS_MAX * 18] = "";
    size_t used = 0;
    for (size_t i = 0; i < all_count; i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                                 all[i]->name);
    return base_fail(YOLK_ERR_CONFIG, 0, "peer option transports names \"%.*s\": there are %s",
                     (int)(size < 64 ? size : 64), name, names);
}

/* "a,b,c" as tables. */
static enum yolk_status choose_transports(const char *list, const struct engine_plugins *plugins,
                                          const struct yolk_transport_ops *out[TRANSPORTS_MAX],
                                          size_t *count)
{
    const struct yolk_transport_ops *all[TRANSPORTS_MAX];
    size_t all_count = transports_there_are(plugins, all);
    *count = 0;
    if (list == NULL) {
        memcpy(out, all, all_count * sizeof(all[0]));
        *count = all_count;
        return YOLK_OK;
    }
    while (*list != '\0') {
        size_t size = strcspn(list, ",");
        size_t at = 0;
        while (at < all_count &&
               (strlen(all[at]->name) != size || strncmp(all[at]->name, list, size) != 0))
            at++;
        if (at == all_count)
            return unknown_transport(all, all_count, list, size);
        if (*count == TRANSPORTS_MAX)
            return base_fail(YOLK_ERR_CONFIG, 0, "peer option transports names more than %d",
                             TRANSPORTS_MAX);
        out[(*count)++] = all[at];
        list += size + (list[size] == ',');
    }
    return YOLK_OK;
}

/* ---- beginning ---- */

static enum yolk_status make_engine(struct yolk_peer *peer, const struct yolk_peer_options *options)
{
    const struct yolk_transport_ops *transports[TRANSPORTS_MAX];
    struct yolk_engine_options engine_options;
    yolk_engine_options_init(&engine_options);
    if (options->engine != NULL)
        engine_options = *options->engine;
    enum yolk_status status = engine_plugins_load(engine_options.plugin_paths, &peer->plugins);
    engine_options.plugin_paths = NULL; /* their tables stand in the list */
    if (status == YOLK_OK)
        status = choose_transports(options->transports, &peer->plugins, transports,
                                   &engine_options.transport_count);
    if (status != YOLK_OK)
        return status;
    engine_options.transports = transports;
    engine_options.transport.host = peer->host;
    engine_options.transport.listen = options->listen;
    engine_options.transport.secret = peer->call.secret;
    engine_options.transport.secret_size = peer->call.secret_size;
    engine_options.transport.connect_timeout_ms = peer->timeout_ms;
    return yolk_engine_create(&engine_options, &peer->engine);
}

static enum yolk_status serve(struct yolk_peer *peer, const struct yolk_peer_options *options)
{
    const struct random random = random_real();
    const struct yolk_owner owner = peer_registry_owner(&peer->registry);
    peer->segment = random_u64(&random) | 1;
    enum yolk_status status =
        yolk_engine_serve_addresses(peer->engine, peer->segment, &owner, &peer->served);
    if (status != YOLK_OK)
        return status;
    struct peer_server_options server = {
        .listen = options->listen != NULL ? options->listen : peer->host,
        .port = options->port,
        .port_min = options->port_max != 0 ? options->port_min : PORT_MIN_DEFAULT,
        .port_max = options->port_max != 0 ? options->port_max : PORT_MAX_DEFAULT,
        .secret = peer->call.secret,
        .secret_size = peer->call.secret_size,
        .registry = &peer->registry,
        .inbox = &peer->inbox,
        .segment = peer->segment,
        .endpoints = yolk_served_endpoints(peer->served),
    };
    memcpy(server.instance, peer->call.instance, WIRE_ID_SIZE);
    return peer_server_start(&server, &peer->server, &peer->port);
}

static enum yolk_status publish(struct yolk_peer *peer, const struct yolk_peer_options *options)
{
    bool v6 = strchr(peer->host, ':') != NULL;
    snprintf(peer->address, sizeof(peer->address), v6 ? "[%.*s]:%u" : "%.*s:%u",
             NET_ADDRESS_TEXT_MAX / 2, peer->host, peer->port);
    bool named = peer->metadata != NULL && options->name != NULL && options->name[0] != '\0';
    snprintf(peer->name, sizeof(peer->name), "%.*s", PEER_NAME_MAX - 1,
             named ? options->name : peer->address);
    if (peer->metadata == NULL)
        return YOLK_OK;
    char key[PEER_KEY_MAX];
    peer_metadata_key(peer->name, key);
    return peer->metadata->ops->put(peer->metadata, key, peer->address,
                                    clock_after_ms(clock_real_now_ns(), peer->timeout_ms));
}

static void copy_options(struct yolk_peer *peer, const struct yolk_peer_options *options)
{
    const struct random random = random_real();
    const char *host = options->host != NULL ? options->host : "127.0.0.1";
    size_t size = strlen(host);
    bool bracketed = size > 1 && host[0] == '[' && host[size - 1] == ']';
    snprintf(peer->host, sizeof(peer->host), "%.*s", (int)(bracketed ? size - 2 : size),
             bracketed ? host + 1 : host);
    peer->timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_DEFAULT_MS;
    if (options->secret_size > 0)
        memcpy(peer->secret, options->secret, options->secret_size);
    peer->call.secret = options->secret_size > 0 ? peer->secret : NULL;
    peer->call.secret_size = options->secret_size;
    random_bytes(&random, peer->call.instance, WIRE_ID_SIZE);
}

/* Without figures it works as well, so only what cannot be meant is an error. */
static enum yolk_status serve_metrics(struct yolk_peer *peer, const char *listen)
{
    if (listen == NULL || listen[0] == '\0')
        return YOLK_OK;
    enum yolk_status status = metrics_http_start(peer->engine, listen, &peer->metrics);
    if (status == YOLK_ERR_CONFIG || status == YOLK_ERR_INVALID) {
        char why[256];
        snprintf(why, sizeof(why), "%s", yolk_last_error());
        return base_fail(YOLK_ERR_CONFIG, 0, "peer option metrics_listen is \"%.60s\": %s", listen,
                         why);
    }
    if (status != YOLK_OK)
        log_warn("figures are not served over HTTP at %s: %s", listen, yolk_last_error());
    else
        log_info("figures are served over HTTP at port %u", metrics_http_port(peer->metrics));
    return YOLK_OK;
}

static enum yolk_status begin(struct yolk_peer *peer, const struct yolk_peer_options *options)
{
    enum yolk_status status = YOLK_OK;
    copy_options(peer, options);
    if (options->metadata != NULL && strcmp(options->metadata, YOLK_PEER_P2P) != 0)
        status = metadata_open(options->metadata, &peer->metadata);
    if (status == YOLK_OK)
        status = make_engine(peer, options);
    if (status == YOLK_OK)
        status = serve(peer, options);
    if (status == YOLK_OK)
        status = serve_metrics(peer, options->metrics_listen);
    if (status == YOLK_OK)
        status = publish(peer, options);
    return status;
}

/* ---- the end ---- */

/* In the reverse order, whatever of it exists. BUSY: the engine's memory is not quiet. */
static enum yolk_status end_parts(struct yolk_peer *peer)
{
    if (peer->engine != NULL) {
        if (peer->served != NULL)
            yolk_engine_unserve(peer->engine, peer->served);
        peer->served = NULL;
        enum yolk_status status = yolk_engine_destroy(peer->engine);
        if (status != YOLK_OK)
            return status;
        peer->engine = NULL;
    }
    engine_plugins_unload(&peer->plugins);
    if (peer->metadata != NULL)
        peer->metadata->ops->close(peer->metadata);
    peer_registry_free(&peer->registry);
    peer_inbox_free(&peer->inbox);
    explicit_bzero(peer->secret, sizeof(peer->secret));
    free(peer);
    return YOLK_OK;
}

enum yolk_status yolk_peer_withdraw(struct yolk_peer *peer)
{
    char key[PEER_KEY_MAX];
    enum yolk_status status = peer_check(peer);
    if (status != YOLK_OK || peer->metadata == NULL || peer->name[0] == '\0' ||
        atomic_exchange(&peer->withdrawn, true))
        return status;
    peer_metadata_key(peer->name, key);
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), peer->timeout_ms);
    status = peer->metadata->ops->remove(peer->metadata, key, deadline_ns);
    if (status != YOLK_OK)
        log_warn("the name %s stays in the metadata service: %s", peer->name, yolk_last_error());
    return status;
}

enum yolk_status yolk_peer_create(const struct yolk_peer_options *options, struct yolk_peer **out)
{
    if (options == NULL || out == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "yolk_peer_create without options or result");
    enum yolk_status status = check_options(options);
    if (status != YOLK_OK)
        return status;
    struct yolk_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a peer");
    peer->pid = getpid();
    peer_registry_init(&peer->registry);
    peer_inbox_init(&peer->inbox, options->notifications_max != 0 ? options->notifications_max
                                                                  : NOTIFICATIONS_DEFAULT);
    peer_directory_init(&peer->directory);
    peer_notifier_init(&peer->notifier);
    status = begin(peer, options);
    if (status == YOLK_OK) {
        *out = peer;
        return YOLK_OK;
    }
    char text[MAX_LAST_ERROR];
    snprintf(text, sizeof(text), "%s", yolk_last_error());
    atomic_store(&peer->withdrawn, true); /* nothing was published */
    /* Nothing was ever transferred, so nothing can be busy. */
    base_ignore(yolk_peer_destroy(peer));
    return base_fail(status, 0, "%s", text);
}

enum yolk_status yolk_peer_destroy(struct yolk_peer *peer)
{
    if (peer == NULL)
        return YOLK_OK;
    if (peer->pid != getpid())
        return base_fail(YOLK_ERR_FORKED, 0, "the peer was made by another process");
    if (!peer->half_closed) {
        metrics_http_stop(peer->metrics);
        peer->metrics = NULL;
        base_ignore(yolk_peer_withdraw(peer)); /* said already */
        peer_server_stop(peer->server);
        peer_notifier_stop(peer);
        peer_directory_free(peer);
        peer->half_closed = true;
    }
    return end_parts(peer);
}

const char *yolk_peer_name(const struct yolk_peer *peer)
{
    return peer->name;
}

const char *yolk_peer_address(const struct yolk_peer *peer)
{
    return peer->address;
}

uint16_t yolk_peer_port(const struct yolk_peer *peer)
{
    return peer->port;
}

struct yolk_engine *yolk_peer_engine(struct yolk_peer *peer)
{
    return peer->engine;
}

uint16_t yolk_peer_metrics_port(const struct yolk_peer *peer)
{
    return metrics_http_port(peer->metrics);
}

enum yolk_status yolk_peer_notifications(struct yolk_peer *peer, struct yolk_notification **out,
                                         size_t *count)
{
    if (peer == NULL || out == NULL || count == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "notifications need room for the answer");
    return peer_inbox_take(&peer->inbox, out, count);
}

/* ---- memory ---- */

enum yolk_status peer_check(const struct yolk_peer *peer)
{
    if (peer == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "the peer is NULL");
    if (peer->pid != getpid())
        return base_fail(YOLK_ERR_FORKED, 0, "the peer was made by another process");
    return YOLK_OK;
}

/* N of "nodeN" in /sys and of "cpu:N". */
static bool node_number(const char *digits, uint64_t *node)
{
    return digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits) &&
           base_parse_u64("NUMA node", digits, node) == YOLK_OK;
}

/* Where the system tells of no nodes there is the one that everything is on. */
static enum yolk_status check_node(const char *location)
{
    enum { ROOM = 128 };
    char known[256] = "";
    uint64_t wanted, node;
    bool there = false;
    if (!node_number(location + 4, &wanted))
        return base_fail(YOLK_ERR_INVALID, 0, "location \"%s\": must be *, cpu:N or cuda:N",
                         location);
    char(*names)[SYSFS_NAME_MAX] = base_calloc(ROOM, sizeof(*names));
    if (names == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to look at the NUMA nodes");
    size_t count = sysfs_names("", "sys/devices/system/node", names, ROOM);
    for (size_t i = 0; i < count && i < ROOM; i++) {
        if (strncmp(names[i], "node", 4) != 0 || !node_number(names[i] + 4, &node))
            continue;
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%scpu:%s", used > 0 ? ", " : "",
                 names[i] + 4);
        there = there || node == wanted;
    }
    free(names);
    if (there || (known[0] == '\0' && wanted == 0))
        return YOLK_OK;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                     "location \"%s\": the NUMA nodes of this machine are %s", location,
                     known[0] != '\0' ? known : "cpu:0");
}

/* gpu: 1 + the number of the one whose memory it is; 0: none's. */
static enum yolk_status check_location(const char *location, uint32_t gpu)
{
    uint64_t wanted;
    if (strcmp(location, "*") == 0)
        return YOLK_OK;
    if (strncmp(location, "cpu:", 4) == 0)
        return check_node(location);
    if (strncmp(location, "cuda:", 5) == 0 && node_number(location + 5, &wanted)) {
        if (gpu != 0 && wanted == gpu - 1)
            return YOLK_OK;
        if (gpu != 0)
            return base_fail(YOLK_ERR_INVALID, 0, "location \"%s\": it is memory of GPU %u",
                             location, gpu - 1);
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "location \"%s\": it is no memory of a GPU, or CUDA is not in use here",
                         location);
    }
    return base_fail(YOLK_ERR_INVALID, 0, "location \"%s\": must be *, cpu:N or cuda:N", location);
}

/* "*" is found out, as far as pages are there already. */
static const char *locate(const void *pointer, uint64_t size, uint32_t gpu, const char *location,
                          char found[PEER_LOCATION_MAX])
{
    int node;
    if (gpu != 0) {
        snprintf(found, PEER_LOCATION_MAX, "cuda:%u", gpu - 1);
        return found;
    }
    if (strcmp(location, "*") != 0 || memory_node(pointer, size, &node) != YOLK_OK)
        return location;
    snprintf(found, PEER_LOCATION_MAX, "cpu:%d", node);
    return found;
}

enum yolk_status yolk_peer_register(struct yolk_peer *peer, void *pointer, uint64_t size,
                                    const char *location, enum yolk_permission permission)
{
    if (peer == NULL || location == NULL || strlen(location) >= PEER_LOCATION_MAX)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "a registered range has a location of at most %d "
                         "bytes",
                         PEER_LOCATION_MAX - 1);
    if (permission < YOLK_LOCAL || permission > YOLK_REMOTE_WRITE)
        return base_fail(YOLK_ERR_INVALID, 0, "permission %d: must be 0, 1 or 2", (int)permission);
    uint32_t gpu = 0;
    enum yolk_status status = peer_check(peer);
    if (status == YOLK_OK && pointer != NULL && size > 0)
        status = engine_memory_gpu(peer->engine, pointer, size, &gpu);
    if (status == YOLK_OK)
        status = check_location(location, gpu);
    if (status == YOLK_OK)
        status = yolk_engine_register(peer->engine, pointer, size);
    if (status != YOLK_OK)
        return status;
    char found[PEER_LOCATION_MAX];
    status = peer_registry_add(&peer->registry, (uint64_t)(uintptr_t)pointer, size,
                               locate(pointer, size, gpu, location, found), permission,
                               clock_after_ms(clock_real_now_ns(), peer->timeout_ms));
    if (status != YOLK_OK)
        base_ignore(yolk_engine_unregister(peer->engine, pointer, size));
    return status;
}

enum yolk_status yolk_peer_unregister(struct yolk_peer *peer, void *pointer, uint64_t size)
{
    uint64_t start = (uint64_t)(uintptr_t)pointer;
    uint64_t found = size;
    bool leaving;
    enum yolk_status status = peer_check(peer);
    if (status == YOLK_OK)
        status = peer_registry_find(&peer->registry, start, &found, &leaving);
    if (status != YOLK_OK)
        return status;
    /* A range that is leaving is the engine's no more: only others still held it up. */
    status = leaving ? YOLK_OK : yolk_engine_unregister(peer->engine, pointer, found);
    if (status != YOLK_OK)
        return status;
    return peer_registry_remove(&peer->registry, start, found,
                                clock_after_ms(clock_real_now_ns(), peer->timeout_ms));
}
