/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "shm"
#include "transport/shm/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/limits.h"
#include "platform/memory.h"
#include "transport/shm/internal.h"

struct endpoint {
    struct shm_settings settings;
    struct shm_provider *provider;
    struct gpu_side gpu;
    bool huge_pages;
};

static int settings_from(const struct yolk_transport_options *o, struct shm_settings *s)
{
    *s = (struct shm_settings){0};
    if (o->socket_dir != NULL) {
        if (strlen(o->socket_dir) >= sizeof s->socket_dir)
            return base_fail(YOLK_ERR_CONFIG, 0, "shm: the socket folder's name is too long");
        if (strpbrk(o->socket_dir, ";=,") != NULL)
            return base_fail(YOLK_ERR_CONFIG, 0, "shm: no ';', '=' or ',' in the socket folder");
        memcpy(s->socket_dir, o->socket_dir, strlen(o->socket_dir) + 1);
    }
    if (o->secret_size > WIRE_SECRET_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "shm: the secret has more than %u bytes",
                         WIRE_SECRET_MAX);
    if (o->secret != NULL) {
        memcpy(s->secret, o->secret, o->secret_size);
        s->secret_size = o->secret_size;
    }
    memcpy(s->instance, o->instance, WIRE_ID_SIZE);
    s->connect_timeout_ns = (o->connect_timeout_ms != 0 ? o->connect_timeout_ms : 3000) * NS_PER_MS;
    s->hello_timeout_ns = 5 * NS_PER_S;
    return YOLK_OK;
}

static enum yolk_status shm_probe(const struct yolk_transport_options *options,
                                  struct yolk_probe *out)
{
    struct shm_settings settings;
    struct memory_segment segment = {0};
    *out = (struct yolk_probe){.latency_ns = 2 * NS_PER_US, .bandwidth_bytes = 8 * GIB};
    int status = settings_from(options, &settings);
    if (status == YOLK_OK)
        status = memory_segment_create(memory_page_size(), NULL, &segment);
    if (status == YOLK_OK)
        memory_segment_destroy(&segment);
    else
        (void)snprintf(out->reason, sizeof out->reason, "%.255s", yolk_last_error());
    return (enum yolk_status)status;
}

static enum yolk_status shm_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct endpoint *e = calloc(1, sizeof *e);
    if (e == NULL)
        return (enum yolk_status)base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: endpoint");
    e->huge_pages = options->huge_pages != 0;
    int status = gpu_side_init(&e->gpu, options);
    if (status != YOLK_OK) {
        free(e);
        return (enum yolk_status)status;
    }
    status = settings_from(options, &e->settings);
    e->settings.gpu = &e->gpu;
    if (status == YOLK_OK)
        status = shm_provider_create(&e->settings, &e->provider);
    if (status != YOLK_OK) {
        gpu_side_fini(&e->gpu);
        free(e);
        return (enum yolk_status)status;
    }
    *endpoint = e;
    return YOLK_OK;
}

static enum yolk_status shm_stop(void *endpoint)
{
    struct endpoint *e = endpoint;
    atomic_store(&e->settings.stopped, true);
    shm_provider_stop(e->provider);
    return YOLK_OK;
}

static void shm_fini(void *endpoint)
{
    struct endpoint *e = endpoint;
    shm_provider_destroy(e->provider);
    gpu_side_fini(&e->gpu);
    explicit_bzero(&e->settings, sizeof e->settings);
    free(e);
}

static void shm_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    *out = (struct yolk_limits){
        .slice_bytes_max = SHM_SLICE_MAX, .depth_max = SHM_DEPTH_MAX, .alignment = 1};
}

static enum yolk_status shm_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint;
    (void)pointer;
    (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void shm_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint;
    (void)key;
}

static enum yolk_status shm_memory_alloc(void *endpoint, uint64_t size, struct yolk_memory *out)
{
    struct memory_segment_options options = {
        .name = "yolk-segment", .huge_pages = ((struct endpoint *)endpoint)->huge_pages};
    struct memory_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL)
        return (enum yolk_status)base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: memory");
    int status = memory_segment_create(size, &options, segment);
    if (status != YOLK_OK) {
        free(segment);
        return (enum yolk_status)status;
    }
    if (segment->huge_reason != NULL)
        log_warn("%zu bytes of memory are not of 2 MiB pages: %s", segment->size,
                 segment->huge_reason);
    *out = (struct yolk_memory){
        .pointer = segment->address, .size = segment->size, .internal = segment};
    return YOLK_OK;
}

static void shm_memory_free(void *endpoint, struct yolk_memory *memory)
{
    (void)endpoint;
    if (memory->internal != NULL) {
        memory_segment_destroy(memory->internal);
        free(memory->internal);
    }
    *memory = (struct yolk_memory){0};
}

static enum yolk_status shm_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                  char *text, size_t text_size)
{
    struct endpoint *e = endpoint;
    struct shm_served *s = NULL;
    int status = shm_provider_serve(e->provider, serve, &s, text, text_size);
    *served = s;
    return (enum yolk_status)status;
}

static void shm_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    shm_provider_set_segment(((struct endpoint *)endpoint)->provider, served, segment);
}

static enum yolk_status shm_fence_session(void *endpoint, void *served, uint64_t session)
{
    struct endpoint *e = endpoint;
    return (enum yolk_status)shm_provider_fence(e->provider, served, session);
}

static void shm_unserve(void *endpoint, void *served)
{
    shm_provider_unserve(((struct endpoint *)endpoint)->provider, served);
}

static enum yolk_status shm_open_target(void *endpoint, const char *text, uint64_t segment,
                                        uint64_t size, uint64_t session, void **target)
{
    struct endpoint *e = endpoint;
    return shm_target_open(&e->settings, text, segment, size, session, target);
}

static void shm_close_target(void *endpoint, void *target)
{
    (void)endpoint;
    shm_target_close(target);
}

static enum yolk_status shm_map(void *endpoint, void *target, const void **base, uint64_t *size)
{
    (void)endpoint;
    return shm_target_map(target, base, size);
}

static enum yolk_status shm_open_channel(void *endpoint, void *target, void **channel)
{
    (void)endpoint;
    return shm_channel_open(target, channel);
}

static const struct yolk_transport_ops shm_ops = {
    .size = sizeof(struct yolk_transport_ops),
    .abi = YOLK_TRANSPORT_ABI,
    .name = "shm",
    .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_MACHINE | YOLK_CAP_MAP |
            YOLK_CAP_ALLOC | YOLK_CAP_SERVE_ALLOC | YOLK_CAP_PEER_DEATH | YOLK_CAP_DRAM_TO_DRAM |
            YOLK_CAP_GPU_TO_DRAM | YOLK_CAP_PIECES | YOLK_CAP_PLACES,
    .probe = shm_probe,
    .init = shm_init,
    .stop = shm_stop,
    .fini = shm_fini,
    .limits = shm_limits,
    .add_buffer = shm_add_buffer,
    .remove_buffer = shm_remove_buffer,
    .memory_alloc = shm_memory_alloc,
    .memory_free = shm_memory_free,
    .serve = shm_serve,
    .set_segment_id = shm_set_segment_id,
    .fence_session = shm_fence_session,
    .unserve = shm_unserve,
    .open_target = shm_open_target,
    .close_target = shm_close_target,
    .target_map = shm_map,
    .channel_open = shm_open_channel,
    .submit = shm_channel_submit,
    .poll = shm_channel_poll,
    .channel_close = shm_channel_close,
    .flush = shm_channel_flush,
};

const struct yolk_transport_ops *transport_shm_ops(void)
{
    return &shm_ops;
}
