/* SPDX-License-Identifier: Apache-2.0 */
/* An engine of one transport, with memory of a GPU and a segment or a file at the other side. */
#ifndef DEVICE_ENGINE_KIT_H
#define DEVICE_ENGINE_KIT_H

#include "kit.h"

#include <fcntl.h>
#include <unistd.h>

#include <yolk/engine.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "transport/loop/loop.h"
#include "transport/posix/posix.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/uring/uring.h"

enum { AREA = 8 << 20, DEADLINE_MS = 30000 };

struct world {
    struct device *device;
    struct yolk_engine *engine;
    struct yolk_memory memory; /* served */
    struct yolk_served *served;
    uint64_t segment;
    uint8_t *there; /* memory's address; NULL: a file */
    uint8_t *gpu;   /* registered, unless a test does that itself */
    uint8_t *model; /* what the GPU's memory should hold */
    uint8_t *read;  /* room for it */
    char path[512];
    int fd;
};

static inline const struct yolk_transport_ops *ops_of(const char *name)
{
    const struct yolk_transport_ops *all[] = {transport_loop_ops(), transport_shm_ops(),
                                              transport_tcp_ops(), transport_uring_ops(),
                                              transport_posix_ops()};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    fail_msg("no transport %s", name);
    return NULL;
}

static inline void make_options(struct yolk_engine_options *options)
{
    static char cuda[512];
    yolk_engine_options_init(options);
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    options->transport.cuda_library = kit_real() ? NULL : cuda;
}

static inline bool is_file(const char *transport)
{
    return strcmp(transport, "uring") == 0 || strcmp(transport, "posix") == 0;
}

static inline void serve_memory(struct world *w)
{
    assert_ok(yolk_engine_memory_alloc(w->engine, AREA, &w->memory));
    w->there = w->memory.pointer;
    const struct yolk_serve_options serve = {.struct_size = sizeof(serve),
                                             .memory = w->there,
                                             .size = AREA,
                                             .allocation = &w->memory,
                                             .segment = 9};
    assert_ok(yolk_engine_serve(w->engine, &serve, &w->served));
    const struct yolk_segment_descriptor descriptor = {9, 1, AREA,
                                                       yolk_served_endpoints(w->served)};
    assert_ok(yolk_engine_segment_open(w->engine, &descriptor, 5, &w->segment));
}

static inline void open_file(struct world *w)
{
    uint64_t size;
    w->fd = kit_file(w->path);
    assert_int_equal(ftruncate(w->fd, AREA), 0);
    assert_ok(yolk_engine_file_open(w->engine, w->path, 1, &w->segment, &size));
    assert_int_equal(size, AREA);
}

/* options NULL: the usual ones. */
static inline void open_world_of(struct world *w, const struct yolk_transport_ops *ops,
                                 struct yolk_engine_options *options)
{
    struct yolk_engine_options usual;
    *w = (struct world){.fd = -1};
    make_options(&usual);
    if (options == NULL)
        options = &usual;
    options->transports = &ops;
    options->transport_count = 1;
    w->device = kit_open(NULL);
    w->gpu = kit_gpu_alloc(w->device, 0, AREA);
    w->model = malloc(AREA);
    w->read = malloc(AREA);
    kit_fill(w->model, AREA, 2);
    kit_put(w->device, 0, w->gpu, w->model, AREA);
    assert_ok(yolk_engine_create(options, &w->engine));
    if (is_file(ops->name))
        open_file(w);
    else
        serve_memory(w);
}

static inline void open_world(struct world *w, const char *transport,
                              struct yolk_engine_options *options)
{
    open_world_of(w, ops_of(transport), options);
}

static inline void close_world(struct world *w)
{
    if (w->served != NULL)
        yolk_engine_unserve(w->engine, w->served);
    assert_ok(yolk_engine_segment_close(w->engine, w->segment));
    yolk_engine_memory_free(w->engine, &w->memory);
    assert_ok(yolk_engine_destroy(w->engine));
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->path);
    }
    kit_gpu_free(w->device, 0, w->gpu);
    free(w->model);
    free(w->read);
    kit_close(w->device);
}

static inline struct yolk_engine_stats stats_of(const struct world *w)
{
    struct yolk_engine_stats stats = {0};
    yolk_engine_stats(w->engine, &stats);
    return stats;
}

/* What lies in the segment, as the processor or the kernel sees it. */
static inline void look_there(const struct world *w, void *to, uint64_t offset, uint64_t size)
{
    if (w->there != NULL) {
        memcpy(to, w->there + offset, size);
        return;
    }
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, to, size, (off_t)offset), (ssize_t)size);
    close(fd);
}

static inline enum yolk_status run(struct world *w, const struct yolk_request *requests,
                                   uint32_t count)
{
    enum yolk_status verdicts[256];
    uint64_t batch;
    struct yolk_batch_status status;
    assert_ok(yolk_engine_batch_create(w->engine, count, &batch));
    enum yolk_status result =
        yolk_engine_batch_submit(w->engine, batch, requests, count, verdicts, NULL);
    if (result == YOLK_OK) {
        assert_ok(yolk_engine_batch_wait(w->engine, batch,
                                         clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
        assert_ok(yolk_engine_batch_poll_all(w->engine, batch, &status, NULL, 0));
        result = status.worst;
    }
    char said[MAX_LAST_ERROR];
    snprintf(said, sizeof(said), "%s", yolk_last_error());
    assert_ok(yolk_engine_batch_free(w->engine, batch));
    return base_fail(result, 0, "%s", said);
}

static inline enum yolk_status move(struct world *w, enum yolk_opcode opcode, void *local,
                                    uint64_t offset, uint64_t size)
{
    const struct yolk_request request = {
        .opcode = opcode, .local = local, .segment = w->segment, .offset = offset, .size = size};
    return run(w, &request, 1);
}

static inline void assert_gpu_is_model(struct world *w)
{
    kit_get(w->device, 0, w->read, w->gpu, AREA);
    assert_memory_equal(w->read, w->model, AREA);
}

#endif
