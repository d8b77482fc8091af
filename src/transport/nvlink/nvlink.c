/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "nvlink"
#include "transport/nvlink/nvlink.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "transport/nvlink/internal.h"

enum {
    TIDY_MS = 500,
    MAP_WAIT_MS = 200, /* of one call */
    IDLE_MS = 30000,   /* a mapping that nobody used for so long goes */
};

/* ---- the device ---- */

int nvlink_device(struct nvlink_endpoint *e, struct device **out)
{
    int status = gpu_side_open(&e->gpu, out);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&e->mutex);
    if (e->imports.device == NULL) /* who has an import has seen it */
        e->imports.device = *out;
    mutex_unlock(&e->mutex);
    return device_check(*out);
}

/* Before anybody uses CUDA no address can be a GPU's; and that it is used nobody here decides. */
bool nvlink_device_if_used(struct nvlink_endpoint *e, struct device **out)
{
    return (e->gpu.cuda != NULL || device_in_use()) && nvlink_device(e, out) == YOLK_OK;
}

/* ---- the tidier ---- */

void nvlink_hurry(struct nvlink_endpoint *e)
{
    static const uint64_t one = 1;
    ssize_t n = write(e->wake, &one, sizeof one);
    (void)n; /* readable already then */
}

/* What providers end their connections by. */
struct watched {
    struct pollfd *fds;
    size_t count, room;
};

static void watch(struct watched *w, int fd, short events)
{
    if (w->count == w->room) {
        size_t room = w->room == 0 ? 16 : 2 * w->room;
        struct pollfd *fds = realloc(w->fds, room * sizeof *fds);
        if (fds == NULL)
            return; /* it is looked at in its time */
        w->fds = fds;
        w->room = room;
    }
    w->fds[w->count++] = (struct pollfd){.fd = fd, .events = events};
}

/* Holds the mutex, but not while it looks at a target. */
static void tidy_targets(struct nvlink_endpoint *e, struct watched *w)
{
    uint64_t now = clock_real_now_ns(), idle = IDLE_MS * NS_PER_MS;
    struct base_list seen;
    base_list_init(&seen);
    while (!base_list_empty(&e->targets)) {
        struct base_list *node = base_list_pop_front(&e->targets);
        struct nvlink_target *t = BASE_CONTAINER(node, struct nvlink_target, node);
        base_list_push_back(&seen, node);
        t->looked_at = true;
        mutex_unlock(&e->mutex);
        for (int i = 0; i < 2; i++) {
            shm_link_tidy(&t->links->links[i], now > idle ? now - idle : 0);
            watch(w, shm_link_watch(&t->links->links[i]), POLLRDHUP);
        }
        mutex_lock(&e->mutex);
        t->looked_at = false;
        condition_broadcast(&e->changed);
    }
    for (struct base_list *node; (node = base_list_pop_front(&seen)) != NULL;)
        base_list_push_back(&e->targets, node);
}

static void tidier_main(void *arg)
{
    struct nvlink_endpoint *e = arg;
    struct watched w = {0};
    uint64_t times;
    mutex_lock(&e->mutex);
    while (!e->stopped) {
        w.count = 0;
        watch(&w, e->wake, POLLIN);
        tidy_targets(e, &w);
        mutex_unlock(&e->mutex);
        nvlink_imports_tidy(&e->imports);
        /* A descriptor that is another one's by now only wakes it too early. */
        if (w.count > 0 && poll(w.fds, w.count, TIDY_MS) > 0 && (w.fds[0].revents & POLLIN))
            (void)!read(e->wake, &times, sizeof times);
        mutex_lock(&e->mutex);
    }
    e->tidier_over = true;
    condition_broadcast(&e->changed);
    mutex_unlock(&e->mutex);
    free(w.fds);
}

/* ---- the endpoint ---- */

static int copy_text(const char *what, const char *from, char *to, size_t size)
{
    if (strlen(from) >= size || strpbrk(from, ";=,+@") != NULL)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "nvlink: %s \"%.100s\" is too long or has one of ; = , + @", what, from);
    memcpy(to, from, strlen(from) + 1);
    return YOLK_OK;
}

static int settings_from(const struct yolk_transport_options *o, struct nvlink_endpoint *e)
{
    struct shm_settings *s = &e->settings;
    int status = YOLK_OK;
    if (o->secret_size > WIRE_SECRET_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "nvlink: the secret has more than %u bytes",
                         WIRE_SECRET_MAX);
    if (o->socket_dir != NULL)
        status = copy_text("the socket folder", o->socket_dir, s->socket_dir, sizeof s->socket_dir);
    if (status == YOLK_OK && o->host != NULL)
        status = copy_text("the host", o->host, e->host, sizeof e->host);
    if (status != YOLK_OK)
        return status;
    if (o->secret != NULL) {
        memcpy(s->secret, o->secret, o->secret_size);
        s->secret_size = o->secret_size;
    }
    memcpy(s->instance, o->instance, WIRE_ID_SIZE);
    s->connect_timeout_ns = (o->connect_timeout_ms != 0 ? o->connect_timeout_ms : 3000) * NS_PER_MS;
    s->hello_timeout_ns = 5 * NS_PER_S;
    e->stop_timeout_ms = o->stop_timeout_ms != 0 ? o->stop_timeout_ms : 5000;
    /* Other machines are told apart from this one by their host, so without one there are none. */
    const char *listen = o->listen != NULL ? o->listen : o->host;
    if (listen != NULL) {
        char text[200];
        (void)snprintf(text, sizeof text, strchr(listen, ':') != NULL ? "[%s]:0" : "%s:0", listen);
        status = net_address_parse(text, 0, &s->listen);
        s->tcp = status == YOLK_OK;
    }
    return status;
}

static int map_import(void *self, const void *what, struct shm_link *l, int fd, void **mapping)
{
    struct nvlink_endpoint *e = self;
    const struct nvlink_target *t = what;
    struct nvlink_import *import = *mapping;
    if (t->export.parts == 0)
        return YOLK_OK;
    int status =
        t->export.parts == 1
            ? nvlink_import_get(&e->imports, &t->export, t->links->instance, fd, &import)
            : nvlink_import_get_parts(&e->imports, &t->export, t->links->instance, l, &import);
    *mapping = import;
    if (status == YOLK_OK)
        nvlink_hurry(e); /* the link's end is to be noticed from now on */
    return status;
}

static void unmap_import(void *self, void *mapping)
{
    nvlink_import_put(mapping);
    (void)self; /* its lock may be held: the tidier comes by in its time */
}

/* Found or not: what stands behind it is asked when it is needed. */
static enum yolk_status nvlink_probe(const struct yolk_transport_options *options,
                                     struct yolk_probe *out)
{
    const char *name = options->cuda_library != NULL ? options->cuda_library : "libcuda.so.1";
    *out = (struct yolk_probe){.latency_ns = 10 * NS_PER_US, .bandwidth_bytes = 200 * GIB};
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library != NULL) {
        (void)dlclose(library);
        return YOLK_OK;
    }
    out->off = 1; /* where there is no GPU, nobody misses it */
    const char *why = dlerror();
    (void)snprintf(out->reason, sizeof out->reason, "no CUDA driver: %.200s",
                   why != NULL ? why : name);
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", out->reason);
}

static enum yolk_status nvlink_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct nvlink_endpoint *e = calloc(1, sizeof *e);
    if (e == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: endpoint");
    int status = settings_from(options, e);
    if (status == YOLK_OK)
        status = gpu_side_init(&e->gpu, options);
    if (status != YOLK_OK) {
        free(e);
        return (enum yolk_status)status;
    }
    e->settings.mapper = (struct shm_mapper){e, map_import, unmap_import};
    e->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = e->wake >= 0 ? shm_provider_create(&e->settings, &e->provider)
                          : base_fail(YOLK_ERR_SYSTEM, errno, "nvlink: eventfd");
    if (status != YOLK_OK) {
        gpu_side_fini(&e->gpu);
        net_close(e->wake);
        free(e);
        return (enum yolk_status)status;
    }
    mutex_init(&e->mutex);
    condition_init(&e->changed);
    base_list_init(&e->targets);
    base_list_init(&e->left);
    mutex_init(&e->sharing);
    condition_init(&e->shared);
    base_list_init(&e->buffers);
    nvlink_imports_init(&e->imports);
    *endpoint = e;
    return YOLK_OK;
}

struct served {
    struct base_list node; /* of those whose memory could not be given back */
    struct shm_served *links;
    struct nvlink_memory *memory;
    struct nvlink_space *space; /* all addresses, in place of the two */
};

/* Tries again; how many are left. Nothing is served any more. */
static size_t free_left(struct nvlink_endpoint *e)
{
    size_t left = 0;
    mutex_lock(&e->mutex);
    BASE_LIST_FOREACH_SAFE(node, &e->left)
    {
        struct served *served = BASE_CONTAINER(node, struct served, node);
        if (!nvlink_memory_free(served->memory)) {
            left++;
            continue;
        }
        base_list_remove(node);
        free(served);
    }
    mutex_unlock(&e->mutex);
    return left;
}

/* A driver that hangs in a call of the tidier does not hang whoever closes the engine. */
static enum yolk_status nvlink_stop(void *endpoint)
{
    struct nvlink_endpoint *e = endpoint;
    uint64_t until = clock_after_ms(clock_real_now_ns(), e->stop_timeout_ms);
    atomic_store(&e->settings.stopped, true);
    shm_provider_stop(e->provider);
    mutex_lock(&e->mutex);
    e->stopped = true;
    nvlink_hurry(e);
    while (e->tidier.running && !e->tidier_over &&
           condition_wait_until(&e->changed, &e->mutex, until))
        ;
    bool over = !e->tidier.running || e->tidier_over;
    mutex_unlock(&e->mutex);
    if (!over)
        return base_fail(YOLK_ERR_TIMEOUT, 0,
                         "nvlink: the CUDA driver does not come back from "
                         "unmapping a peer's memory");
    thread_join(&e->tidier);
    size_t imports = nvlink_imports_tidy(&e->imports), exports = free_left(e);
    if (imports + exports == 0)
        return YOLK_OK;
    return base_fail(YOLK_ERR_BUSY, 0,
                     "nvlink: the CUDA driver does not give back %zu mappings of peers' memory and "
                     "the handles of %zu served ranges; stop again",
                     imports, exports);
}

static void nvlink_fini(void *endpoint)
{
    struct nvlink_endpoint *e = endpoint;
    shm_provider_destroy(e->provider);
    nvlink_imports_fini(&e->imports);
    gpu_side_fini(&e->gpu);
    net_close(e->wake);
    mutex_destroy(&e->sharing);
    condition_destroy(&e->shared);
    mutex_destroy(&e->mutex);
    condition_destroy(&e->changed);
    explicit_bzero(&e->settings, sizeof e->settings);
    free(e);
}

static void nvlink_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    *out = (struct yolk_limits){
        .slice_bytes_max = NVLINK_SLICE_MAX, .depth_max = NVLINK_DEPTH_MAX, .alignment = 1};
}

/* ---- memory here ---- */

static enum yolk_status nvlink_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    struct nvlink_endpoint *e = endpoint;
    struct device *device;
    struct device_memory memory = {.kind = DEVICE_HOST};
    if (nvlink_device_if_used(e, &device)) {
        int status = device_query(device, pointer, &memory);
        if (status != YOLK_OK)
            return (enum yolk_status)status;
    }
    struct nvlink_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: buffer");
    bool whole = memory.kind != DEVICE_HOST && (uintptr_t)pointer - memory.base <= memory.size &&
                 size <= memory.size - ((uintptr_t)pointer - memory.base);
    buffer->start = pointer;
    buffer->size = size;
    buffer->gpu = memory.kind == DEVICE_GPU ? memory.ordinal : -1;
    buffer->reached = memory.kind != DEVICE_HOST && whole;
    /* Somebody else's registration of a part of it stands in the way of ours. */
    buffer->plain = memory.kind != DEVICE_HOST && !whole;
    nvlink_space_add_buffer(e, buffer);
    *key = buffer;
    return YOLK_OK;
}

static void nvlink_remove_buffer(void *endpoint, void *key)
{
    struct nvlink_buffer *buffer = key;
    nvlink_space_remove_buffer(endpoint, buffer);
    if (buffer->range != NULL)
        (void)!device_range_remove(buffer->range);
    free(buffer);
}

bool nvlink_buffer_hold(struct nvlink_endpoint *e, struct nvlink_buffer *buffer, int ordinal,
                        const void *pointer, uint64_t size)
{
    mutex_lock(&e->mutex);
    if (buffer->range == NULL && !buffer->plain &&
        device_range_add(e->imports.device, buffer->start, buffer->size, false, &buffer->range) !=
            YOLK_OK)
        buffer->plain = true;
    struct device_range *range = buffer->plain ? NULL : buffer->range;
    mutex_unlock(&e->mutex);
    uint64_t offset = (uint64_t)((const char *)pointer - buffer->start);
    return range != NULL && device_range_hold(range, ordinal, offset, size) == YOLK_OK;
}

void nvlink_buffer_release(struct nvlink_buffer *buffer, const void *pointer, uint64_t size)
{
    device_range_release(buffer->range, (uint64_t)((const char *)pointer - buffer->start), size);
}

/* ---- the provider ---- */

void nvlink_where(struct nvlink_endpoint *e, struct nvlink_export *out)
{
    struct net_address address;
    (void)snprintf(out->machine, sizeof out->machine, "%s", nvlink_machine());
    if (shm_provider_address(e->provider, &address))
        (void)snprintf(out->tcp, sizeof out->tcp,
                       strchr(e->host, ':') != NULL ? "[%s]:%u" : "%s:%u", e->host,
                       net_address_port(&address));
}

/* Of the allocation or of this export of it: no other one of the process has had it. */
static uint32_t generation_of(const struct nvlink_export *export)
{
    return export->parts > 0 ? (uint32_t) export->id : 0;
}

static int serve_memory(struct nvlink_endpoint *e, const struct yolk_serve *serve,
                        struct served *served, char *text, size_t text_size)
{
    char rest[256];
    struct nvlink_export export;
    struct device *device;
    if (!nvlink_device_if_used(e, &device))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "nvlink: nobody in this process uses CUDA: it is ordinary memory");
    int status = nvlink_memory_export(device, serve->memory, serve->size, &export, &served->memory);
    if (status != YOLK_OK)
        return status;
    int fd = nvlink_memory_fd(served->memory);
    const struct shm_handout handout = {.fds = {fd, fd},
                                        .size = serve->size,
                                        .map_size = export.size,
                                        .segment = serve->segment,
                                        .generation = generation_of(&export),
                                        .access = serve->access,
                                        .answer = nvlink_memory_answer,
                                        .self = served->memory};
    status = shm_provider_hand_out(e->provider, &handout, &served->links, rest, sizeof rest);
    if (status != YOLK_OK)
        return status;
    nvlink_where(e, &export);
    status = nvlink_text_format(&export, rest, text, text_size);
    if (status != YOLK_OK)
        shm_provider_unserve(e->provider, served->links);
    return status;
}

/* Nobody is served by it any more. What the driver would not take back is tried again. */
static void served_free(struct nvlink_endpoint *e, struct served *served)
{
    if (served->memory != NULL && !nvlink_memory_free(served->memory)) {
        mutex_lock(&e->mutex);
        base_list_push_back(&e->left, &served->node);
        mutex_unlock(&e->mutex);
        return;
    }
    free(served);
}

enum yolk_status nvlink_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                              char *text, size_t text_size)
{
    struct nvlink_endpoint *e = endpoint;
    if (serve->file != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: serves memory, no files");
    struct served *s = calloc(1, sizeof *s);
    if (s == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: served segment");
    base_list_init(&s->node);
    int status = serve->memory == NULL ? nvlink_space_serve(e, serve, &s->space, text, text_size)
                                       : serve_memory(e, serve, s, text, text_size);
    if (status != YOLK_OK) {
        char why[700];
        (void)snprintf(why, sizeof why, "%s", yolk_last_error());
        served_free(e, s);
        return base_fail(status, 0, "%s", why);
    }
    *served = s;
    return YOLK_OK;
}

static void nvlink_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    struct nvlink_endpoint *e = endpoint;
    struct served *s = served;
    if (s->space != NULL)
        nvlink_space_set_segment(s->space, segment);
    else
        shm_provider_set_segment(e->provider, s->links, segment);
}

static enum yolk_status nvlink_fence_session(void *endpoint, void *served, uint64_t session)
{
    struct nvlink_endpoint *e = endpoint;
    struct served *s = served;
    return (enum yolk_status)(s->space != NULL
                                  ? nvlink_space_fence(s->space, session)
                                  : shm_provider_fence(e->provider, s->links, session));
}

void nvlink_unserve(void *endpoint, void *served)
{
    struct nvlink_endpoint *e = endpoint;
    struct served *s = served;
    if (s->space != NULL)
        nvlink_space_unserve(s->space);
    else
        shm_provider_unserve(e->provider, s->links);
    served_free(e, s);
}

/* ---- the consumer ---- */

static int start_tidier(struct nvlink_endpoint *e, struct nvlink_target *t)
{
    int status = YOLK_OK;
    mutex_lock(&e->mutex);
    if (!e->tidier.running)
        status = thread_start(&e->tidier, "yolk-nvlink", tidier_main, e);
    if (status == YOLK_OK)
        base_list_push_back(&e->targets, &t->node);
    t->pair = ++e->pairs;
    mutex_unlock(&e->mutex);
    return status;
}

/* What can be told without asking the provider. */
static int check_reach(const struct nvlink_export *export)
{
    if (strcmp(export->machine, nvlink_machine()) == 0)
        return YOLK_OK;
    if (export->parts > 0 && !(export->handles & NVLINK_FABRIC))
        return base_fail(YOLK_ERR_NO_ROUTE, 0,
                         "nvlink: it is another machine's memory and has no fabric handle");
    if (export->tcp[0] == '\0')
        return base_fail(YOLK_ERR_NO_ROUTE, 0,
                         "nvlink: it is another machine's memory, and its owner has no `host` that "
                         "it could be asked at");
    return YOLK_OK;
}

enum yolk_status nvlink_open_target(void *endpoint, const char *text, uint64_t segment,
                                    uint64_t size, uint64_t session, void **target)
{
    struct nvlink_endpoint *e = endpoint;
    struct device *device;
    const char *rest;
    void *links = NULL;
    struct nvlink_target *t = calloc(1, sizeof *t);
    if (t == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: target");
    t->endpoint = e;
    base_list_init(&t->node);
    int status = nvlink_text_parse(text, &t->export, &rest);
    if (status == YOLK_OK)
        status = check_reach(&t->export);
    if (status == YOLK_OK)
        status = t->export.parts > 0 ? nvlink_device(e, &device) : nvlink_places_open(t);
    if (status == YOLK_OK)
        status = shm_target_open(&e->settings, rest, segment, size, session, &links);
    if (status == YOLK_OK) {
        t->links = links;
        t->links->what = t;
        t->links->generation = generation_of(&t->export);
        t->links->only_tcp = strcmp(t->export.machine, nvlink_machine()) != 0;
        bool fabric = (t->export.handles & NVLINK_FABRIC) != 0;
        t->links->tcp = t->export.tcp[0] != '\0' && (fabric || t->export.parts == 0);
        if (t->links->tcp)
            status = net_address_parse(t->export.tcp, 0, &t->links->tcp_address);
    }
    if (status == YOLK_OK)
        status = start_tidier(e, t);
    if (status != YOLK_OK) {
        if (links != NULL)
            shm_target_close(links);
        if (t->places != NULL)
            nvlink_places_close(t);
        free(t);
        return (enum yolk_status)status;
    }
    *target = t;
    return YOLK_OK;
}

void nvlink_close_target(void *endpoint, void *target)
{
    struct nvlink_endpoint *e = endpoint;
    struct nvlink_target *t = target;
    if (t->places != NULL)
        nvlink_places_close(t);
    mutex_lock(&e->mutex);
    while (t->looked_at)
        condition_wait(&e->changed, &e->mutex);
    base_list_remove(&t->node);
    mutex_unlock(&e->mutex);
    shm_target_close(t->links);
    free(t);
    nvlink_hurry(e);
}

/* Lasts until the target is closed. Only of memory with handles, which has one address for all. */
static enum yolk_status map_target(struct nvlink_target *t, bool gpu, const void **base,
                                   uint64_t *size)
{
    struct shm_link *l = &t->links->links[0];
    int status = shm_link_connect(l, clock_after_ms(clock_real_now_ns(), MAP_WAIT_MS));
    if (status == YOLK_OK)
        status = shm_link_enter(l);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    const struct nvlink_import *import = l->mapping;
    if (import == NULL || import->vmm.address == 0 || (!gpu && !import->vmm.host)) {
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: %s",
                           import == NULL ? "not all of the addresses of a process are mapped"
                           : gpu          ? "CUDA IPC has no one address for all GPUs"
                                          : "the processor does not reach the peer's memory");
    } else {
        mutex_lock(&l->mutex);
        l->pinned = true;
        *base = (const char *)(uintptr_t)import->vmm.address + t->export.offset;
        *size = l->size;
        mutex_unlock(&l->mutex);
    }
    shm_link_leave(l);
    return (enum yolk_status)status;
}

static enum yolk_status nvlink_target_map(void *endpoint, void *target, const void **base,
                                          uint64_t *size)
{
    (void)endpoint;
    return map_target(target, false, base, size);
}

static enum yolk_status nvlink_target_map_gpu(void *endpoint, void *target, const void **base,
                                              uint64_t *size)
{
    (void)endpoint;
    return map_target(target, true, base, size);
}

static enum yolk_status nvlink_check_reach(void *endpoint, void *target, uint64_t offset,
                                           uint64_t size)
{
    struct nvlink_target *t = target;
    (void)endpoint;
    if (t->places != NULL)
        return (enum yolk_status)nvlink_places_check(t, offset, size);
    return (enum yolk_status)shm_link_connect(&t->links->links[0],
                                              clock_after_ms(clock_real_now_ns(), MAP_WAIT_MS));
}

static const struct yolk_transport_ops nvlink_ops = {
    .size = sizeof(struct yolk_transport_ops),
    .abi = YOLK_TRANSPORT_ABI,
    .name = "nvlink",
    .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_PEER_DEATH | YOLK_CAP_MAP |
            YOLK_CAP_MAP_GPU | YOLK_CAP_DRAM_TO_DRAM | YOLK_CAP_DRAM_TO_GPU | YOLK_CAP_GPU_TO_DRAM |
            YOLK_CAP_GPU_TO_GPU | YOLK_CAP_GPU_PLACES,
    .probe = nvlink_probe,
    .init = nvlink_init,
    .stop = nvlink_stop,
    .fini = nvlink_fini,
    .limits = nvlink_limits,
    .add_buffer = nvlink_add_buffer,
    .remove_buffer = nvlink_remove_buffer,
    .serve = nvlink_serve,
    .set_segment_id = nvlink_set_segment_id,
    .fence_session = nvlink_fence_session,
    .unserve = nvlink_unserve,
    .open_target = nvlink_open_target,
    .close_target = nvlink_close_target,
    .target_map = nvlink_target_map,
    .target_map_gpu = nvlink_target_map_gpu,
    .channel_open = nvlink_channel_open,
    .submit = nvlink_channel_submit,
    .poll = nvlink_channel_poll,
    .channel_close = nvlink_channel_close,
    .flush = nvlink_channel_flush,
    .check_reach = nvlink_check_reach,
};

const struct yolk_transport_ops *transport_nvlink_ops(void)
{
    return &nvlink_ops;
}

void nvlink_figures(struct nvlink_figures *out)
{
    const struct nvlink_counts *c = &nvlink_counts;
    *out = (struct nvlink_figures){.imports = atomic_load(&c->imports),
                                   .import_reuses = atomic_load(&c->import_reuses),
                                   .unmaps = atomic_load(&c->unmaps),
                                   .unmaps_failed = atomic_load(&c->unmaps_failed),
                                   .by_fabric = atomic_load(&c->by_fabric),
                                   .by_fd = atomic_load(&c->by_fd),
                                   .by_ipc = atomic_load(&c->by_ipc),
                                   .bytes_by_gpu = atomic_load(&c->bytes_by_gpu),
                                   .bytes_by_processor = atomic_load(&c->bytes_by_processor)};
}
