/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the gds transport: an engine, a file of it, GPU memory. */
#ifndef DEVICE_GDS_KIT_H
#define DEVICE_GDS_KIT_H

#include "kit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yolk/engine.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "device/cufile.h"
#include "device/cuda.h"
#include "platform/clock.h"
#include "transport/gds/gds.h"
#include "transport/posix/posix.h"

#define WAIT_MS (kit_real_cufile() ? 120000u : 30000u)

struct gds_world {
    /* To be set before it is opened; 0: the usual. */
    uint64_t file_size, gpu_size, slice;
    uint32_t depth;
    int with_posix, read_only, staging_off;
    /* Made by it. */
    struct device *device;
    struct yolk_engine *engine;
    uint64_t segment;
    uint8_t *gpu; /* registered */
    uint8_t *host;
    char path[512];
    int fd; /* not for direct I/O */
};

static inline void gds_libraries(struct yolk_transport_options *options)
{
    static char cuda[512], cufile[512];
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    snprintf(cufile, sizeof(cufile), "%s", kit_fake_path("libcufile.so.0"));
    options->cuda_library = kit_real() ? NULL : cuda;
    options->cufile_library = kit_real_cufile() ? getenv("YOLK_TEST_CUFILE") : cufile;
    options->gds_enable = 1;
}

static inline enum yolk_status gds_engine(const struct gds_world *w, struct yolk_engine **out)
{
    const struct yolk_transport_ops *const all[] = {transport_gds_ops(), transport_posix_ops()};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = all;
    options.transport_count = w->with_posix ? 2 : 1;
    options.transport.gds_slice_bytes = w->slice;
    options.transport.gds_batch_depth = w->depth;
    options.transport.stop_timeout_ms = kit_real_cufile() ? 0 : 300;
    options.merge = YOLK_SWITCH_OFF;
    gds_libraries(&options.transport);
    return yolk_engine_create(&options, out);
}

/* The process ends as skipped where cuFile cannot be used on this machine's files. */
static inline void gds_skip_if_real(void)
{
    if (!kit_real_cufile())
        return;
    printf("SKIP: %s\n", yolk_last_error());
    exit(77);
}

static inline void gds_open_file(struct gds_world *w)
{
    uint64_t size;
    int fd = kit_file(w->path);
    assert_int_equal(ftruncate(fd, (off_t)w->file_size), 0);
    close(fd);
    w->fd = open(w->path, O_RDWR | O_CLOEXEC);
    assert_true(w->fd >= 0);
    enum yolk_status status =
        yolk_engine_file_open(w->engine, w->path, !w->read_only, &w->segment, &size);
    if (status != YOLK_OK)
        gds_skip_if_real();
    assert_ok(status);
    assert_int_equal(size, w->file_size);
}

static inline void gds_open(struct gds_world *w)
{
    w->file_size = w->file_size != 0 ? w->file_size : 1 << 20;
    w->gpu_size = w->gpu_size != 0 ? w->gpu_size : w->file_size;
    w->slice = w->slice != 0 ? w->slice : 64 << 10;
    w->device = kit_open(NULL);
    enum yolk_status status = gds_engine(w, &w->engine);
    if (status != YOLK_OK)
        gds_skip_if_real();
    assert_ok(status);
    gds_open_file(w);
    w->gpu = kit_gpu_alloc(w->device, 0, w->gpu_size);
    w->host = malloc(w->gpu_size);
    assert_ok(yolk_engine_register(w->engine, w->gpu, w->gpu_size));
}

/* And nothing is left, neither of CUDA nor of cuFile. */
static inline void gds_close(struct gds_world *w)
{
    assert_ok(yolk_engine_segment_close(w->engine, w->segment));
    assert_ok(yolk_engine_destroy(w->engine));
    close(w->fd);
    unlink(w->path);
    free(w->host);
    kit_gpu_free(w->device, 0, w->gpu);
    kit_close(w->device);
    if (kit_real_cufile())
        return;
    assert_int_equal(kit_fake_cufile("count handles"), 0);
    assert_int_equal(kit_fake_cufile("count buffers"), 0);
    assert_int_equal(kit_fake_cufile("count batches"), 0);
}

static inline struct yolk_request gds_request_of(const struct gds_world *w, enum yolk_opcode opcode,
                                                 void *local, uint64_t offset, uint64_t size)
{
    return (struct yolk_request){
        .opcode = opcode, .local = local, .segment = w->segment, .offset = offset, .size = size};
}

/* All in one batch to their ends; each one's end in tasks. */
static inline void gds_run(const struct gds_world *w, const struct yolk_request *requests,
                           uint32_t count, struct yolk_task_status *tasks)
{
    uint64_t batch;
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    uint64_t deadline = yolk_engine_now_ns(w->engine) + WAIT_MS * UINT64_C(1000000);
    assert_ok(yolk_engine_batch_create(w->engine, count, &batch));
    (void)!yolk_engine_batch_submit(w->engine, batch, requests, count, verdicts, NULL);
    assert_ok(yolk_engine_batch_wait(w->engine, batch, deadline));
    for (uint32_t i = 0; i < count; i++) {
        (void)!yolk_engine_batch_poll(w->engine, batch, i, &tasks[i]);
        assert_true(tasks[i].terminal);
    }
    assert_ok(yolk_engine_batch_free(w->engine, batch));
    free(verdicts);
}

static inline enum yolk_status gds_one(const struct gds_world *w, enum yolk_opcode opcode,
                                       void *local, uint64_t offset, uint64_t size)
{
    struct yolk_task_status task;
    const struct yolk_request request = gds_request_of(w, opcode, local, offset, size);
    gds_run(w, &request, 1, &task);
    if (task.status == YOLK_OK)
        assert_int_equal(task.transferred, size);
    return task.status;
}

/* The file's bytes, as the system has them. */
static inline void gds_look(const struct gds_world *w, void *to, uint64_t offset, size_t size)
{
    assert_int_equal(pread(w->fd, to, size, (off_t)offset), size);
}

static inline struct yolk_file_figures gds_figures(const struct gds_world *w)
{
    struct yolk_file_figures all[4];
    char *name = realpath(w->path, NULL);
    size_t count = gds_files(all, 4);
    assert_non_null(name);
    for (size_t i = 0; i < count && i < 4; i++) {
        if (strcmp(all[i].path, name) == 0) {
            free(name);
            return all[i];
        }
    }
    fail_msg("cuFile has no file %s", name);
    return all[0];
}

#endif
