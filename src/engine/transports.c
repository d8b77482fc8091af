/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's instances of transports: checked tables, started endpoints, their order. */
#define LOG_ROOM "engine"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/internal.h"

static enum yolk_status no_memory_alloc(void *endpoint, uint64_t size, struct yolk_memory *out)
{
    (void)endpoint, (void)size, (void)out;
    return YOLK_ERR_UNSUPPORTED;
}

static void no_memory_free(void *endpoint, struct yolk_memory *memory)
{
    (void)endpoint, (void)memory;
}

static enum yolk_status no_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                 char *text, size_t text_size)
{
    (void)endpoint, (void)serve, (void)served, (void)text, (void)text_size;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it has no provider side");
}

static void no_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    (void)endpoint, (void)served, (void)segment;
}

static enum yolk_status no_fence_session(void *endpoint, void *served, uint64_t session)
{
    (void)endpoint, (void)served, (void)session;
    return YOLK_ERR_UNSUPPORTED;
}

static void no_unserve(void *endpoint, void *served)
{
    (void)endpoint, (void)served;
}

static enum yolk_status no_target_map(void *endpoint, void *target, const void **base,
                                      uint64_t *size)
{
    (void)endpoint, (void)target, (void)base, (void)size;
    return YOLK_ERR_UNSUPPORTED;
}

static enum yolk_status no_target_map_gpu(void *endpoint, void *target, const void **base,
                                          uint64_t *size)
{
    return no_target_map(endpoint, target, base, size);
}

static enum yolk_status no_check_reach(void *endpoint, void *target, uint64_t offset, uint64_t size)
{
    (void)endpoint, (void)target, (void)offset, (void)size;
    return YOLK_OK;
}

static void no_cancel(void *channel, uint64_t cookie)
{
    (void)channel, (void)cookie;
}

static uint32_t no_wait_fds(void *channel, struct pollfd *fds, uint32_t max)
{
    (void)channel, (void)fds, (void)max;
    return 0;
}

static enum yolk_status yes_check_direct(void *endpoint, void *target, const void *local,
                                         uint64_t offset, uint64_t size)
{
    (void)endpoint, (void)target, (void)local, (void)offset, (void)size;
    return YOLK_OK;
}

static void no_flush(void *channel)
{
    (void)channel;
}

static bool name_is_fit(const char *name)
{
    size_t length = name == NULL ? 0 : strnlen(name, 16);
    if (length == 0 || length > 15)
        return false;
    for (size_t i = 0; i < length; i++)
        if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) && name[i] != '_')
            return false;
    return true;
}

static enum yolk_status check_required(const struct yolk_transport_ops *ops)
{
    char missing[256] = "";
    size_t used = 0;
#define NEED(slot)                                                                                 \
    do {                                                                                           \
        if (ops->slot == NULL && used < sizeof(missing))                                           \
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, " %s", #slot);        \
    } while (0)
    NEED(probe);
    NEED(init);
    NEED(stop);
    NEED(fini);
    NEED(limits);
    NEED(add_buffer);
    NEED(remove_buffer);
    NEED(open_target);
    NEED(close_target);
    NEED(channel_open);
    NEED(submit);
    NEED(poll);
    NEED(channel_close);
    if ((ops->caps & YOLK_CAP_SERVE) != 0) {
        NEED(serve);
        NEED(set_segment_id);
        NEED(fence_session);
        NEED(unserve);
    }
    if ((ops->caps & YOLK_CAP_ALLOC) != 0) {
        NEED(memory_alloc);
        NEED(memory_free);
    }
    if ((ops->caps & YOLK_CAP_MAP) != 0)
        NEED(target_map);
    if ((ops->caps & YOLK_CAP_MAP_GPU) != 0)
        NEED(target_map_gpu);
#undef NEED
    if (used > 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "transport %s lacks required hooks:%s", ops->name,
                         missing);
    return YOLK_OK;
}

enum yolk_status engine_transport_adopt(const struct yolk_transport_ops *given,
                                        struct yolk_transport_ops *out)
{
    memset(out, 0, sizeof(*out));
    if (given == NULL || given->size < offsetof(struct yolk_transport_ops, probe))
        return base_fail(YOLK_ERR_CONFIG, 0, "a transport's table is too small to have a name");
    /* An older table is shorter: its missing slots stay NULL and become stubs. */
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    if (given->abi != YOLK_TRANSPORT_ABI)
        return base_fail(YOLK_ERR_VERSION, 0, "a transport of interface %u, not %d", given->abi,
                         YOLK_TRANSPORT_ABI);
    if (!name_is_fit(out->name))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "a transport's name is \"%.32s\": must be 1 to 15 of a-z, 0-9 and _",
                         out->name == NULL ? "" : out->name);
    if (strcmp(out->name, "io_uring") == 0)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "a transport's name is \"io_uring\": that is another name of uring");
    if ((out->caps & (YOLK_CAP_READ | YOLK_CAP_WRITE)) == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "transport %s neither reads nor writes (caps 0x%llx)",
                         out->name, (unsigned long long)out->caps);
    enum yolk_status status = check_required(out);
    if (status != YOLK_OK)
        return status;
#define STUB(slot)                                                                                 \
    do {                                                                                           \
        if (out->slot == NULL)                                                                     \
            out->slot = no_##slot;                                                                 \
    } while (0)
    STUB(memory_alloc);
    STUB(memory_free);
    STUB(serve);
    STUB(set_segment_id);
    STUB(fence_session);
    STUB(unserve);
    STUB(target_map);
    STUB(target_map_gpu);
    STUB(check_reach);
    STUB(cancel);
    STUB(wait_fds);
    STUB(flush);
#undef STUB
    if (out->check_direct == NULL)
        out->check_direct = yes_check_direct;
    return YOLK_OK;
}

static void make_order(struct yolk_engine *engine)
{
    struct policy_transport transports[ENGINE_TRANSPORTS_MAX];
    for (uint32_t i = 0; i < engine->transport_count; i++)
        transports[i] = (struct policy_transport){engine->transports[i].ops.name,
                                                  engine->transports[i].ops.caps};
    policy_default_order(transports, engine->transport_count, engine->order);
}

/* In "a,b", where uring may stand under its public name. */
static bool is_listed(const char *list, const char *name)
{
    while (list != NULL && *list != '\0') {
        size_t size = strcspn(list, ",");
        bool uring = size == 8 && strncmp(list, "io_uring", 8) == 0;
        if (uring ? strcmp(name, "uring") == 0
                  : strlen(name) == size && strncmp(list, name, size) == 0)
            return true;
        list += size + (list[size] == ',');
    }
    return false;
}

/* Of all that there are here or at upstream; another name is a slip, or a plug-in's that is not
 * loaded. */
static bool is_known(const struct yolk_engine *engine, const char *name)
{
    static const char *const elsewhere[] = {"loop", "shm",    "tcp",   "uring", "posix",
                                            "gds",  "nvlink", "mnnvl", "ucx",   "rdma",
                                            "null", "trace",  "fault", "cxl",   "ascend"};
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if (is_listed(name, engine->transports[i].ops.name))
            return true;
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
        if (is_listed(name, elsewhere[i]))
            return true;
    return false;
}

static void tell_of_slips(const struct yolk_engine *engine, const char *list)
{
    char name[64];
    while (list != NULL && *list != '\0') {
        size_t size = strcspn(list, ",");
        snprintf(name, sizeof(name), "%.*s", (int)(size < 60 ? size : 60), list);
        if (size > 0 && !is_known(engine, name))
            log_warn("transports_off: \"%s\" is no transport, so nothing is turned off by it",
                     name);
        list += size + (list[size] == ',');
    }
}

/* False, with the reason: what the engine cuts by would never fit. */
static bool limits_are_fit(struct transport *transport)
{
    const struct yolk_limits *limits = &transport->limits;
    if (limits->depth_max > 0 && limits->alignment > 0 &&
        (limits->alignment & (limits->alignment - 1)) == 0)
        return true;
    snprintf(transport->reason, sizeof(transport->reason),
             "its limits are none: %u ios in one channel (must be 1 or more), an alignment of %u "
             "(must be a power of two)",
             limits->depth_max, limits->alignment);
    return false;
}

static void start_one(struct yolk_engine *engine, struct transport *transport,
                      const struct yolk_transport_options *options)
{
    struct yolk_probe probe;
    memset(&probe, 0, sizeof(probe));
    void *endpoint = NULL;
    base_error_clear(); /* one that says nothing is not to speak with another's words */
    enum yolk_status status = transport->ops.probe(options, &probe);
    if (status == YOLK_OK)
        status = transport->ops.init(options, &endpoint);
    if (probe.off)
        atomic_store(&transport->told, true);
    if (status != YOLK_OK) {
        const char *why = probe.reason[0] != '\0' ? probe.reason : yolk_last_error();
        snprintf(transport->reason, sizeof(transport->reason), "%s%s%.400s", yolk_strerror(status),
                 why[0] != '\0' ? ": " : "", why);
        return;
    }
    transport->ops.limits(endpoint, &transport->limits);
    if (!limits_are_fit(transport)) {
        if (transport->ops.stop(endpoint) == YOLK_OK)
            transport->ops.fini(endpoint);
        return;
    }
    transport->endpoint = endpoint;
    if (transport->limits.slice_bytes_max == 0 ||
        transport->limits.slice_bytes_max > engine->slice_bytes_max)
        transport->limits.slice_bytes_max = engine->slice_bytes_max;
}

/* All tables into the engine's own, checked. */
static enum yolk_status adopt_all(struct yolk_engine *engine,
                                  const struct yolk_engine_options *options)
{
    size_t count = options->transport_count + engine->plugins.count;
    if (count == 0 || count > ENGINE_TRANSPORTS_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "an engine takes 1 to %d transports, not %zu",
                         ENGINE_TRANSPORTS_MAX, count);
    for (size_t i = 0; i < count; i++) {
        const struct yolk_transport_ops *given =
            i < options->transport_count ? options->transports[i]
                                         : engine->plugins.tables[i - options->transport_count];
        enum yolk_status status = engine_transport_adopt(given, &engine->transports[i].ops);
        if (status != YOLK_OK)
            return status;
        for (size_t k = 0; k < i; k++)
            if (strcmp(engine->transports[k].ops.name, engine->transports[i].ops.name) == 0)
                return base_fail(YOLK_ERR_CONFIG, 0, "there are two transports called %s%s",
                                 engine->transports[i].ops.name,
                                 i < options->transport_count ? "" : ", one of them a plug-in");
    }
    engine->transport_count = (uint32_t)count;
    return YOLK_OK;
}

enum yolk_status engine_transports_start(struct yolk_engine *engine,
                                         const struct yolk_engine_options *options)
{
    enum yolk_status status = engine_plugins_load(options->plugin_paths, &engine->plugins);
    if (status == YOLK_OK)
        status = adopt_all(engine, options);
    if (status != YOLK_OK)
        return status;
    struct yolk_transport_options each = options->transport;
    each.now_ns = engine->now_ns;
    each.clock_self = engine->clock_self;
    each.yolk = engine_plugin_host();
    tell_of_slips(engine, options->transports_off);
    uint32_t usable = 0;
    char reasons[900] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct transport *transport = &engine->transports[i];
        each.wrapped = options->wrapped != NULL && i < options->transport_count
                           ? options->wrapped[i]
                           : options->transport.wrapped;
        if (is_listed(options->transports_off, transport->ops.name))
            snprintf(transport->reason, sizeof(transport->reason), "it is turned off");
        else
            start_one(engine, transport, &each);
        usable += transport->endpoint != NULL;
        if (transport->endpoint == NULL && used < sizeof(reasons))
            used += (size_t)snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s",
                                     used > 0 ? "; " : "", transport->ops.name, transport->reason);
    }
    make_order(engine);
    for (uint32_t i = 0; i < engine->transport_count; i++)
        engine->kinds[i] = (uint8_t)failover_kind_of(engine->transports[i].ops.caps);
    status =
        options->policy_json == NULL ? YOLK_OK : engine_policies_read(engine, options->policy_json);
    if (status != YOLK_OK)
        return status;
    if (usable == 0)
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "no transport works: %s", reasons);
    return YOLK_OK;
}

enum yolk_status engine_transports_stop(struct yolk_engine *engine)
{
    enum yolk_status first = YOLK_OK;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct transport *transport = &engine->transports[i];
        if (transport->endpoint == NULL)
            continue;
        enum yolk_status status = transport->ops.stop(transport->endpoint);
        if (status != YOLK_OK) {
            first = first == YOLK_OK ? status : first;
            continue;
        }
        transport->ops.fini(transport->endpoint);
        transport->endpoint = NULL;
        snprintf(transport->reason, sizeof(transport->reason), "the engine was closed");
    }
    return first;
}

uint8_t engine_transport_by_name(const struct yolk_engine *engine, const char *name)
{
    if (name == NULL)
        return ENGINE_NO_TRANSPORT;
    name = policy_plain_name(name);
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if (strcmp(engine->transports[i].ops.name, name) == 0)
            return (uint8_t)i;
    return ENGINE_NO_TRANSPORT;
}

int yolk_engine_has_transport(const struct yolk_engine *engine, const char *name, char *reason,
                              size_t reason_size)
{
    uint8_t index = engine_transport_by_name(engine, name);
    const char *why = "it is not part of this engine";
    bool usable = false;
    if (index != ENGINE_NO_TRANSPORT) {
        usable = engine->transports[index].endpoint != NULL;
        why = engine->transports[index].reason;
    }
    if (reason != NULL && reason_size > 0)
        snprintf(reason, reason_size, "%s", usable ? "" : why);
    return usable;
}
