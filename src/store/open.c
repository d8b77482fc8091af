/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a store: options, the parts in order, and the way back. */
#define LOG_ROOM "store"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/process.h"
#include "platform/random.h"
#include "store/internal.h"
#include "store/message.h"
#include "transport/gds/gds.h"
#include "transport/loop/loop.h"
#include "transport/nvlink/nvlink.h"
#include "transport/posix/posix.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/uring/uring.h"

enum { CLOSE_TIMEOUT_MS = 3000, CONNECT_TIMEOUT_MS = 3000, RETRY_MS = 50 };
enum { PREFAULT_RESERVE = 8 }; /* this part of the available memory is left to others */

/* The same text, for as long as the store lasts; NULL if there is none such. */
static const char *known_transport(const char *name, const struct engine_plugins *plugins)
{
    static const char *const names[] = {"auto", "shm", "tcp", "loop", "nvlink"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name == NULL ? "auto" : name, names[i]) == 0)
            return names[i];
    for (size_t i = 0; i < plugins->count; i++)
        if (strcmp(name, plugins->tables[i]->name) == 0)
            return plugins->tables[i]->name;
    return NULL;
}

static int take_transport(struct yolk_store *store, const struct yolk_store_options *options)
{
    char names[ENGINE_PLUGINS_MAX * 18] = "";
    size_t used = 0;
    int status = engine_plugins_load(options->plugin_paths, &store->plugins);
    if (status != YOLK_OK)
        return base_fail_context(status, "store option plugin_paths");
    store->options.transport = known_transport(options->transport, &store->plugins);
    if (store->options.transport != NULL)
        return YOLK_OK;
    for (size_t i = 0; i < store->plugins.count; i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, ", %s",
                                 store->plugins.tables[i]->name);
    return base_fail(
        YOLK_ERR_CONFIG, 0,
        "store option transport is \"%.64s\": must be one of auto, shm, tcp, loop, nvlink%s",
        options->transport, names);
}

static int copy_options(struct yolk_store *store, const struct yolk_store_options *options)
{
    store->options = *options;
    int status = take_transport(store, options);
    if (status != YOLK_OK)
        return status;
    if (options->egm_enabled) /* the pool gives it, in segments of its own */
        store->options.segment_size_bytes = 0;
    store->master = strdup(options->master == NULL ? "" : options->master);
    if (options->name != NULL) {
        store->name = strndup(options->name, MAX_NAME_SIZE);
    } else {
        char host[65] = "";
        char name[128];
        if (gethostname(host, sizeof(host) - 1) != 0)
            host[0] = '\0';
        snprintf(name, sizeof(name), "%s:%ld", host[0] != '\0' ? host : "localhost",
                 (long)getpid());
        store->name = strdup(name);
    }
    status = store_take_tenant(store, options->tenant_id);
    if (status != YOLK_OK)
        return status;
    if (options->host != NULL)
        store->host = strdup(options->host);
    if (options->ssd_path != NULL)
        store->ssd_path = strdup(options->ssd_path);
    if (options->gds_path != NULL)
        store->gds_path = strdup(options->gds_path);
    if (store->master == NULL || store->name == NULL ||
        (options->host != NULL && store->host == NULL) ||
        (options->ssd_path != NULL && store->ssd_path == NULL) ||
        (options->gds_path != NULL && store->gds_path == NULL))
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a store");
    if (options->secret_file != NULL)
        return process_read_secret(options->secret_file, store->secret, sizeof(store->secret),
                                   &store->secret_size);
    return YOLK_OK;
}

static int make_embedded(struct yolk_store *store)
{
    struct master_config config;
    struct random random = random_real();
    master_config_default(&config);
    if (store->options.lease_ttl_ms != 0)
        config.lease_ttl_ms = store->options.lease_ttl_ms;
    if (store->options.eviction_high_watermark_permille != 0)
        config.eviction_high_watermark_ratio =
            (double)store->options.eviction_high_watermark_permille / 1000.0;
    config.tenants = store->options.tenants;
    return store_embedded_create(&config, random_u64(&random), &store->embedded);
}

static int make_client(struct yolk_store *store)
{
    struct random random = random_real();
    struct store_client_options options = {
        .master = store->master,
        .embedded = store->embedded,
        .secret = store->secret,
        .secret_size = store->secret_size,
        .role = store_options_node(&store->options) ? WIRE_ROLE_NODE : WIRE_ROLE_CLIENT,
        .connect_timeout_ms = store->options.timeout_ms < CONNECT_TIMEOUT_MS
                                  ? store->options.timeout_ms
                                  : CONNECT_TIMEOUT_MS,
    };
    random_bytes(&random, options.instance, sizeof(options.instance));
    return store_client_create(&options, &store->client);
}

bool store_is_hopeless(const struct yolk_store *store, int status, uint64_t *since_ns)
{
    uint64_t now = clock_real_now_ns();
    if (status != YOLK_ERR_REFUSED) {
        *since_ns = 0;
        return false;
    }
    if (*since_ns == 0)
        *since_ns = now;
    return now >= clock_after_ms(*since_ns, store->options.connect_wait_ms);
}

/* A node that was not told its address takes the one it reaches the master from. */
static int derive_host(struct yolk_store *store, uint64_t deadline_ns)
{
    char text[300];
    uint8_t instance[16];
    uint64_t refused_ns = 0;
    if (store->host != NULL || store->embedded != NULL || !store_options_node(&store->options))
        return YOLK_OK;
    for (;;) {
        int status = store_client_control_open(store->client, 0, instance);
        if (status == YOLK_OK)
            break;
        uint64_t now = clock_real_now_ns();
        if (now >= deadline_ns || status == YOLK_ERR_AUTH || status == YOLK_ERR_VERSION ||
            status == YOLK_ERR_PROTOCOL || store_is_hopeless(store, status, &refused_ns))
            return status;
        usleep(RETRY_MS * 1000);
    }
    store_client_local_host(store->client, text, sizeof(text));
    store_client_control_close(store->client);
    size_t size = strlen(text);
    char *from = text;
    if (size > 2 && text[0] == '[' && text[size - 1] == ']') {
        text[size - 1] = '\0';
        from++;
    }
    if (from[0] == '\0')
        return YOLK_OK; /* a Unix socket: the engine's default, this machine only */
    store->host = strdup(from);
    return store->host != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory");
}

/* The transports for disks do not stand in for those that reach the memory of others: a store that
 * opened without them would fail at each put. */
static int check_transports(const struct yolk_store *store)
{
    const char *only = store->options.transport;
    char why[256], other[256];
    if (store_options_embedded(&store->options))
        return YOLK_OK;
    if (strcmp(only, "auto") != 0)
        return yolk_engine_has_transport(store->engine, only, why, sizeof(why))
                   ? YOLK_OK
                   : base_fail(YOLK_ERR_UNSUPPORTED, 0, "transport %s cannot be used: %s", only,
                               why);
    if (yolk_engine_has_transport(store->engine, "shm", why, sizeof(why)) ||
        yolk_engine_has_transport(store->engine, "tcp", other, sizeof(other)))
        return YOLK_OK;
    for (size_t i = 0; i < store->plugins.count; i++)
        if (yolk_engine_has_transport(store->engine, store->plugins.tables[i]->name, NULL, 0))
            return YOLK_OK;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "neither shm nor tcp can be used: %s; %s", why,
                     other);
}

static int make_engine(struct yolk_store *store)
{
    /* Disks of this process are reached by gds, uring or posix, those of others by tcp: these are
     * there whichever transport memory may use (see store_endpoints_allowed). */
    const struct yolk_transport_ops *all[] = {
        transport_loop_ops(), transport_shm_ops(),   transport_nvlink_ops(), transport_tcp_ops(),
        transport_gds_ops(),  transport_uring_ops(), transport_posix_ops()};
    enum { BUILT_IN = sizeof(all) / sizeof(all[0]), FIRST_FOR_DISKS = 3 };
    const struct yolk_transport_ops *used[BUILT_IN + ENGINE_PLUGINS_MAX];
    struct yolk_engine_options options;
    const char *only = store->options.transport;

    yolk_engine_options_init(&options);
    for (size_t i = 0; i < BUILT_IN + store->plugins.count; i++) {
        const struct yolk_transport_ops *ops =
            i < BUILT_IN ? all[i] : store->plugins.tables[i - BUILT_IN];
        bool for_disks = i >= FIRST_FOR_DISKS && i < BUILT_IN;
        if (for_disks || strcmp(only, "auto") == 0 || strcmp(only, ops->name) == 0)
            used[options.transport_count++] = ops;
    }
    options.transports = used;
    options.transport.gds_enable = store->options.gds_enabled && !store->options.gds_no_cufile;
    options.transport.gds_batch_depth = store->options.gds_io_batch_depth;
    options.transport.cuda_library = store->options.cuda_library;
    options.transport.host = store->host;
    options.transport.huge_pages = store->options.huge_pages;
    options.transport.secret = store->secret_size > 0 ? store->secret : NULL;
    options.transport.secret_size = store->secret_size;
    int status = yolk_engine_create(&options, &store->engine);
    return status != YOLK_OK ? status : check_transports(store);
}

/* A segment that only this process reaches would be given space of others, whose puts then fail. */
static int check_reachable(const struct yolk_store *store)
{
    const char *endpoints = store->endpoints;
    if (store_options_embedded(&store->options) || strncmp(endpoints, "loop=", 5) != 0 ||
        strchr(endpoints, ';') != NULL)
        return YOLK_OK;
    char why[512];
    (void)snprintf(why, sizeof(why), "%s", yolk_last_error());
    return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                     "no transport serves the segment to other processes, only loop does%s%s",
                     why[0] != '\0' ? ": " : "", why);
}

/* Pages that are not there yet would be paid for by the first puts, and by those of the peers. A
 * store works without, so nothing here fails; but the machine may be short of memory, and what asks
 * for more than there is gets processes killed. */
static void prefault(const struct yolk_store *store, uint64_t deadline_ns)
{
    char all[32], part[32];
    size_t done;
    uint64_t size = store->memory.size, available = memory_available();
    uint64_t start_ns = clock_real_now_ns();
    (void)base_format_size(size, all, sizeof(all));
    if (available != UINT64_MAX && size > available - available / PREFAULT_RESERVE) {
        log_warn("the segment's %s are not made present in advance, first puts are slow: only %s "
                 "of memory are available",
                 all, base_format_size(available, part, sizeof(part)));
        return;
    }
    if (deadline_ns > start_ns) /* the opening needs some of the time */
        deadline_ns = start_ns + (deadline_ns - start_ns) / 2;
    int status = memory_prefault(store->memory.pointer, size, 0, deadline_ns, &done);
    uint64_t took_ms = (clock_real_now_ns() - start_ns) / NS_PER_MS;
    if (status == YOLK_OK)
        log_info("the segment's %s were made present in %llu ms", all, (unsigned long long)took_ms);
    else
        log_warn("only %s of the segment's %s were made present in %llu ms, first puts are slow: "
                 "%s",
                 base_format_size(done, part, sizeof(part)), all, (unsigned long long)took_ms,
                 yolk_last_error());
}

static int make_segment(struct yolk_store *store, uint64_t deadline_ns)
{
    struct random random = random_real();
    uint64_t wanted = store->options.segment_size_bytes;
    if (wanted == 0)
        return YOLK_OK;
    int status = YOLK_OK;
    if (!store->memory_given)
        status = yolk_engine_memory_alloc(store->engine, wanted, &store->memory);
    if (status != YOLK_OK)
        return base_fail_context(status, "no segment of %llu bytes", (unsigned long long)wanted);
    if (store->options.huge_pages && store->memory.internal == NULL)
        log_warn("the segment is not of reserved 2 MiB pages: only shm makes memory of these");
    store->options.segment_size_bytes = store->memory.size;
    if (!store->memory_given)
        prefault(store, deadline_ns);
    random_bytes(&random, store->ticket_key, sizeof(store->ticket_key));
    struct yolk_serve_options serve = {
        .struct_size = sizeof(serve),
        .memory = store->memory.pointer,
        .size = store->memory.size,
        .allocation = store->memory_given ? NULL : &store->memory,
        .require_tickets = 1,
    };
    memcpy(serve.ticket_key, store->ticket_key, sizeof(serve.ticket_key));
    status = yolk_engine_serve(store->engine, &serve, &store->served);
    if (status != YOLK_OK)
        return status;
    store->endpoints = strdup(yolk_served_endpoints(store->served));
    if (store->endpoints == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a store");
    store_endpoints_allowed(store->endpoints, store->options.transport);
    if (store->endpoints[0] == '\0')
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "transport %s does not serve the segment: %s",
                         store->options.transport, yolk_last_error());
    return check_reachable(store);
}

static void wake_control(void *self)
{
    struct yolk_store *store = self;
    store_client_wake(store->client);
}

static void look_at_gds(const char *path, bool why, struct yolk_file_figures *out)
{
    struct yolk_file_figures *files = NULL;
    size_t count = gds_files(NULL, 0);
    *out = (struct yolk_file_figures){.mode = "host"};
    if (why) {
        const struct yolk_transport_options options = {.struct_size = sizeof(options),
                                                       .gds_enable = 1};
        struct yolk_file_figures tried;
        if (gds_try(&options, path, 1, &tried) != YOLK_OK)
            (void)snprintf(out->reason, sizeof(out->reason), "%s", yolk_last_error());
        base_error_clear();
        return;
    }
    if (count > 0)
        files = calloc(count, sizeof(*files));
    if (files == NULL)
        return;
    size_t told = gds_files(files, count);
    for (size_t i = 0; i < count && i < told; i++) {
        if (strcmp(files[i].path, path) == 0)
            *out = files[i];
    }
    free(files);
}

static int make_gds(struct yolk_store *store)
{
    const struct file_system fs = file_system_default();
    const struct store_gds_options options = {
        .fs = &fs,
        .path = store->gds_path,
        .size_bytes = store->options.gds_capacity_bytes,
        .start_empty = store->options.gds_start_empty,
        .allow_fallback = store->options.gds_allow_fallback,
        .no_cufile = store->options.gds_no_cufile,
        .no_uring = store->options.gds_no_io_uring,
        .verify = store->options.gds_verify,
        .engine = store->engine,
        .client_id = store->client_id,
        .look = look_at_gds,
        .wake = wake_control,
        .wake_self = store,
    };
    return store_gds_open(&options, &store->gds);
}

static int make_parts(struct yolk_store *store, uint64_t deadline_ns)
{
    const struct random random = random_real();
    int status = YOLK_OK;
    random_bytes(&random, store->client_id, sizeof(store->client_id));
    store_tuning_init(&store->tuning);
    if (store_options_dummy(&store->options))
        status = store_ask_real_client(store, deadline_ns);
    if (status == YOLK_OK && store_options_embedded(&store->options))
        status = make_embedded(store);
    if (status == YOLK_OK)
        status = make_client(store);
    if (status == YOLK_OK)
        status = store_holds_create(&store->holds);
    if (status == YOLK_OK)
        status = store_mirror_create(&store->mirror);
    if (status == YOLK_OK)
        status = derive_host(store, deadline_ns);
    if (status == YOLK_OK)
        status = make_engine(store);
    if (status == YOLK_OK)
        status = store_segments_create(store->engine, store->client, store->holds,
                                       store->options.transport, &store->segments);
    if (status == YOLK_OK)
        status = make_segment(store, deadline_ns);
    if (status == YOLK_OK)
        status = store_make_pool(store);
    if (status == YOLK_OK && store->options.ssd_size_bytes > 0)
        status = store_open_disk(store);
    if (status == YOLK_OK && store->options.gds_enabled)
        status = make_gds(store);
    return status;
}

int store_begin(struct yolk_store *store, uint64_t deadline_ns)
{
    int status = store_control_start(store);
    if (status == YOLK_OK)
        status = store_open_disk_later(store);
    return status == YOLK_OK ? store_control_wait_open(store, deadline_ns) : status;
}

int store_end_parts(struct yolk_store *store)
{
    store_host_stop(store);
    store_open_disk_stop(store);
    store_control_stop(store, clock_after_ms(clock_real_now_ns(), CLOSE_TIMEOUT_MS));
    store_segments_destroy(store->segments);
    store->segments = NULL;
    store_disk_close(store->disk);
    store->disk = NULL;
    store_gds_close(store->gds);
    store->gds = NULL;
    if (store->served != NULL)
        yolk_engine_unserve(store->engine, store->served);
    store->served = NULL;
    if (!store->memory_given)
        yolk_engine_memory_free(store->engine, &store->memory);
    while (store->registrations != NULL) {
        struct store_registration *registration = store->registrations;
        int status =
            yolk_engine_unregister(store->engine, registration->pointer, registration->size);
        if (status == YOLK_ERR_BUSY)
            return status;
        store->registrations = registration->next;
        free(registration);
    }
    if (store_end_pool(store) != YOLK_OK)
        return YOLK_ERR_BUSY;
    if (store->engine != NULL) {
        int status = yolk_engine_destroy(store->engine);
        if (status != YOLK_OK)
            return status;
        store->engine = NULL;
    }
    engine_plugins_unload(&store->plugins);
    store_client_destroy(store->client);
    store_embedded_destroy(store->embedded);
    store_mirror_destroy(store->mirror);
    store_holds_destroy(store->holds);
    explicit_bzero(store->secret, sizeof(store->secret));
    explicit_bzero(store->ticket_key, sizeof(store->ticket_key));
    condition_destroy(&store->idle);
    store_leftovers_destroy(&store->leftovers);
    mutex_destroy(&store->lock);
    free(store->endpoints);
    free(store->ssd_path);
    free(store->gds_path);
    free(store->name);
    free(store->host);
    free(store->master);
    free(store->tenant);
    free(store);
    return YOLK_OK;
}

int store_make(const struct yolk_store_options *options, const struct yolk_memory *memory,
               uint64_t deadline_ns, struct yolk_store **out)
{
    struct yolk_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a store");
    store->pid = getpid();
    store_leftovers_init(&store->leftovers);
    mutex_init(&store->lock);
    condition_init(&store->idle);
    if (memory != NULL) {
        store->memory = *memory;
        store->memory_given = true;
    }
    int status = copy_options(store, options);
    if (status == YOLK_OK)
        status = make_parts(store, deadline_ns);
    if (status != YOLK_OK) {
        char text[MAX_LAST_ERROR];
        snprintf(text, sizeof(text), "%s", yolk_last_error());
        /* Nothing was ever transferred, so nothing can be busy. */
        (void)!store_end_parts(store);
        return base_fail(status, 0, "%s", text);
    }
    *out = store;
    return YOLK_OK;
}

enum yolk_status yolk_store_open(const struct yolk_store_options *options, struct yolk_store **out)
{
    if (options == NULL || out == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "yolk_store_open without options or result");
    int status = store_check_options(options);
    if (status != YOLK_OK)
        return status;
    struct yolk_store *store;
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), options->timeout_ms);
    status = store_make(options, NULL, deadline_ns, &store);
    if (status != YOLK_OK)
        return status;
    status = store_begin(store, deadline_ns);
    if (status == YOLK_OK && store->tenant != NULL &&
        !(store_client_features(store->client) & WIRE_FEATURE_TENANTS))
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "the master at %s is too old for tenants",
                           store->master);
    if (status == YOLK_OK && options->egm_enabled)
        status = store_egm_open(store, options);
    if (status != YOLK_OK) {
        char text[MAX_LAST_ERROR];
        snprintf(text, sizeof(text), "%s", yolk_last_error());
        if (store->egm != NULL) { /* a part of the pool is left: the caller's to close */
            store->closing = store->half_closed = 1;
            *out = store;
        } else {
            (void)!store_end_parts(store);
        }
        return base_fail(status, 0, "%s", text);
    }
    *out = store;
    return YOLK_OK;
}

enum yolk_status yolk_store_drain(struct yolk_store *store, uint64_t grace_ms)
{
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    if (store->served != NULL || store->gds != NULL) {
        uint64_t now = clock_real_now_ns();
        status = store_control_unmount(store, grace_ms,
                                       clock_after_ms(now, grace_ms + CLOSE_TIMEOUT_MS));
    }
    store_leave(store);
    return status;
}

/* Refuses new calls and waits for those in progress. */
static int shut_the_door(struct yolk_store *store)
{
    int status = YOLK_OK;
    mutex_lock(&store->lock);
    if (store->half_closed)
        ; /* a second try, after memory was not quiet at the first */
    else if (store->closing)
        status = base_fail(YOLK_ERR_CLOSED, 0, "the store is being closed already");
    else if (store->pins > 0)
        status = base_fail(YOLK_ERR_BUSY, 0, "%u buffers of yolk_store_get_buffer are not released",
                           store->pins);
    if (status == YOLK_OK) {
        store->closing = 1;
        while (store->calls > 0)
            condition_wait(&store->idle, &store->lock);
        /* A get_buffer that was in progress may have given out a handle meanwhile. */
        if (store->pins > 0) {
            store->closing = 0;
            status = base_fail(YOLK_ERR_BUSY, 0,
                               "%u buffers of yolk_store_get_buffer are not released", store->pins);
        }
    }
    mutex_unlock(&store->lock);
    return status;
}

static int has_session(const struct yolk_store *store)
{
    return store->pid == getpid() && store->holds != NULL && store_holds_session(store->holds) != 0;
}

enum yolk_status yolk_store_close(struct yolk_store *store)
{
    if (store == NULL)
        return YOLK_OK;
    if (store->pid != getpid())
        return base_fail(YOLK_ERR_FORKED, 0, "the store was opened by another process");
    int status = shut_the_door(store);
    if (status != YOLK_OK)
        return status;
    if ((store->served != NULL || store->gds != NULL) && store->embedded == NULL &&
        !store->half_closed) {
        /* A master that is gone cannot confirm: the segment goes all the same. */
        uint64_t now = clock_real_now_ns();
        uint64_t grace_ms = store->options.drain_grace_ms;
        if (has_session(store) &&
            store_control_unmount(store, grace_ms,
                                  clock_after_ms(now, grace_ms + CLOSE_TIMEOUT_MS)) != YOLK_OK)
            base_error_clear();
    }
    status = store_egm_close(store);
    if (status == YOLK_OK)
        status = store_end_parts(store);
    /* Calls stay refused; only close may be tried again. */
    if (status != YOLK_OK)
        store->half_closed = 1;
    return status;
}

int yolk_store_health(const struct yolk_store *store)
{
    enum { NO_SESSION = 2, CLEANUP_PENDING = 3 };
    int health = store_egm_health(store);
    if (health != 0)
        return health;
    if (store->half_closed)
        return CLEANUP_PENDING;
    return yolk_store_is_connected(store) ? 0 : NO_SESSION;
}

int yolk_store_is_connected(const struct yolk_store *store)
{
    if (store == NULL || store->pid != getpid() || store->holds == NULL)
        return 0;
    /* The session outlives its connection. Only its lock is written to. */
    return has_session(store) &&
           store_control_connect_status((struct yolk_store *)(uintptr_t)store) == YOLK_OK;
}
