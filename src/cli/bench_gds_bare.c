/* SPDX-License-Identifier: Apache-2.0 */
/* cuFile alone: a batch handle kept full, and nothing else. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_gds.h"
#include "platform/clock.h"
#include "platform/thread.h"
#include "transport/gds/batch.h"

enum { STALL_MS = 20000 };

/* cuFile leaves contexts on the stack of the threads that call it, so each call has its own. */
struct call {
    struct bench_cufile *bare;
    int (*function)(struct call *call);
    const struct bench_gds_work *work;
    struct bench_gds_took *took;
    struct file *file;
    bool registered;
    int status;
    char reason[512];
};

static void run_call(void *self)
{
    struct call *call = self;
    struct device_scope scope;
    call->status = device_enter(call->bare->gpu->device, call->bare->gpu->ordinal, &scope);
    if (call->status == YOLK_OK)
        call->status = call->function(call);
    if (call->status != YOLK_OK)
        snprintf(call->reason, sizeof(call->reason), "%s", yolk_last_error());
}

static enum yolk_status in_thread(struct call *call)
{
    struct thread thread = {.running = false};
    int status = thread_start(&thread, "bench-cufile", run_call, call);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    thread_join(&thread);
    return call->status == YOLK_OK
               ? YOLK_OK
               : (enum yolk_status)base_fail(call->status, 0, "%s", call->reason);
}

/* ---- opening ---- */
static int open_all(struct call *call)
{
    struct bench_cufile *bare = call->bare;
    struct cufile_descriptor descriptor = {.type = CUFILE_HANDLE_FD,
                                           .handle.fd = file_descriptor(call->file)};
    struct cufile_error error = bare->cufile->driver_open();
    if (error.error != CUFILE_OK && error.error != CUFILE_ERR_DRIVER_ALREADY_OPEN)
        return cufile_fail(error, "cuFileDriverOpen");
    bare->opened = error.error == CUFILE_OK;
    error = bare->cufile->driver_get_properties(&bare->properties);
    if (error.error != CUFILE_OK)
        return cufile_fail(error, "cuFileDriverGetProperties");
    error = bare->cufile->handle_register(&bare->file, &descriptor);
    if (error.error != CUFILE_OK) {
        bare->file = NULL;
        return cufile_fail(error, "cuFileHandleRegister");
    }
    cuda_pointer pointer = 0;
    int status = bench_gpu_call(
        bare->gpu, device_cuda(bare->gpu->device)->mem_alloc(&pointer, bare->size), "cuMemAlloc");
    bare->memory = (uint8_t *)(uintptr_t)pointer;
    return status;
}

static int close_all(struct call *call)
{
    struct bench_cufile *bare = call->bare;
    if (bare->registered)
        (void)bare->cufile->buf_deregister(bare->memory);
    if (bare->file != NULL)
        bare->cufile->handle_deregister(bare->file);
    if (bare->memory != NULL)
        (void)device_cuda(bare->gpu->device)->mem_free((uintptr_t)bare->memory);
    if (bare->opened)
        (void)bare->cufile->driver_close();
    return YOLK_OK;
}

static int change_registration(struct call *call)
{
    struct bench_cufile *bare = call->bare;
    if (bare->registered == call->registered)
        return YOLK_OK;
    struct cufile_error error = call->registered
                                    ? bare->cufile->buf_register(bare->memory, bare->size, 0)
                                    : bare->cufile->buf_deregister(bare->memory);
    if (error.error != CUFILE_OK)
        return cufile_fail(error, call->registered ? "cuFileBufRegister" : "cuFileBufDeregister");
    bare->registered = call->registered;
    return YOLK_OK;
}

enum yolk_status bench_cufile_open(struct bench_cufile *bare, struct bench_gpu *gpu,
                                   struct file *file)
{
    *bare = (struct bench_cufile){.gpu = gpu, .size = gpu->total};
    int status = device_cufile(gpu->device, &bare->cufile);
    if (status == YOLK_OK && bare->cufile->missing[CUFILE_BATCHES] != NULL)
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "this cuFile has no function %s",
                           bare->cufile->missing[CUFILE_BATCHES]);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    enum yolk_status opened =
        in_thread(&(struct call){.bare = bare, .function = open_all, .file = file});
    return opened == YOLK_OK ? bench_cufile_register(bare, true) : opened;
}

void bench_cufile_close(struct bench_cufile *bare)
{
    if (bare->cufile != NULL)
        base_ignore(in_thread(&(struct call){.bare = bare, .function = close_all}));
}

enum yolk_status bench_cufile_register(struct bench_cufile *bare, bool registered)
{
    return in_thread(
        &(struct call){.bare = bare, .function = change_registration, .registered = registered});
}

/* ---- the loop ---- */

/* As the transport does it: handles that are filled only when they are empty (gds/batch.h). */
struct part {
    cufile_batch handle;
    unsigned first, count, under_way;
};

struct loop {
    const struct bench_cufile *bare;
    const struct bench_gds_work *work;
    struct part parts[GDS_PARTS_MAX];
    unsigned part_count;
    uint64_t next, over, count; /* slices */
    struct cufile_io ios[BENCH_GDS_DEPTH_MAX];
    struct cufile_event events[BENCH_GDS_DEPTH_MAX];
};

static int fill(struct loop *loop, struct part *part)
{
    struct cufile_io *ios = &loop->ios[part->first];
    const struct bench_gds_work *work = loop->work;
    while (part->under_way < part->count && loop->next < loop->count) {
        uint64_t offset = loop->next++ * work->slice;
        ios[part->under_way++] =
            (struct cufile_io){.mode = CUFILE_BATCH,
                               .buffer = loop->bare->memory,
                               .file_offset = (off_t)offset,
                               .buffer_offset = (off_t)offset,
                               .size = work->slice,
                               .file = loop->bare->file,
                               .opcode = work->write ? CUFILE_WRITE : CUFILE_READ,
                               .cookie = loop};
    }
    if (part->under_way == 0)
        return YOLK_OK;
    struct cufile_error error =
        loop->bare->cufile->batch_submit(part->handle, part->under_way, ios, 0);
    return error.error == CUFILE_OK
               ? YOLK_OK
               : cufile_fail(error, "cuFileBatchIOSubmit of %u entries", part->under_way);
}

static int take_events(struct loop *loop, struct part *part)
{
    unsigned n = part->count;
    struct cufile_error error =
        loop->bare->cufile->batch_get_status(part->handle, 0, &n, loop->events, NULL);
    if (error.error != CUFILE_OK)
        return cufile_fail(error, "cuFileBatchIOGetStatus");
    for (unsigned i = 0; i < n; i++) {
        if (loop->events[i].status != CUFILE_COMPLETE ||
            loop->events[i].result != loop->work->slice)
            return base_fail(YOLK_ERR_IO, 0, "a slice ended with status %d and %zu bytes",
                             loop->events[i].status, loop->events[i].result);
    }
    part->under_way -= n;
    loop->over += n;
    return YOLK_OK;
}

static int go_round(struct loop *loop)
{
    int status = YOLK_OK;
    for (unsigned i = 0; i < loop->part_count && status == YOLK_OK; i++) {
        struct part *part = &loop->parts[i];
        status = part->under_way == 0 ? fill(loop, part) : take_events(loop, part);
    }
    return status;
}

static int set_up_parts(struct loop *loop, unsigned depth)
{
    unsigned first = 0, wanted = gds_parts_for(depth);
    for (unsigned i = 0; i < wanted; i++) {
        struct part *part = &loop->parts[i];
        *part = (struct part){.first = first, .count = (depth - i + wanted - 1) / wanted};
        struct cufile_error error = loop->bare->cufile->batch_set_up(&part->handle, part->count);
        if (error.error != CUFILE_OK)
            return cufile_fail(error, "cuFileBatchIOSetUp of %u entries", part->count);
        first += part->count;
        loop->part_count++;
    }
    return YOLK_OK;
}

/* What the library may still use stays for good. */
static void end_loop(struct loop *loop)
{
    bool quiet = loop->over == loop->next;
    for (unsigned i = 0; i < loop->part_count && quiet; i++)
        loop->bare->cufile->batch_destroy(loop->parts[i].handle);
    if (quiet)
        free(loop);
}

static int run_loop(struct call *call)
{
    struct bench_cufile *bare = call->bare;
    unsigned depth = call->work->depth;
    struct loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a loop");
    if (bare->properties.nvfs_major == 0 && depth > GDS_SUBMIT_COMPAT_MAX)
        depth = GDS_SUBMIT_COMPAT_MAX; /* more hang */
    loop->bare = bare;
    loop->work = call->work;
    loop->count = call->work->bytes / call->work->slice;
    int status = set_up_parts(loop, depth);
    uint64_t start = bench_now_ns(), processor = bench_gds_processor_ns();
    uint64_t deadline = clock_after_ms(start, STALL_MS);
    while (status == YOLK_OK && loop->over < loop->count) {
        status = go_round(loop);
        if (status == YOLK_OK && bench_now_ns() > deadline)
            status = base_fail(YOLK_ERR_TIMEOUT, 0, "%llu of %llu slices ended in %d s",
                               (unsigned long long)loop->over, (unsigned long long)loop->count,
                               STALL_MS / 1000);
    }
    call->took->seconds = bench_seconds_since(start);
    call->took->processor = (double)(bench_gds_processor_ns() - processor) / 1e9;
    end_loop(loop);
    return status;
}

enum yolk_status bench_cufile_run(struct bench_cufile *bare, const struct bench_gds_work *work,
                                  struct bench_gds_took *took)
{
    return in_thread(
        &(struct call){.bare = bare, .function = run_loop, .work = work, .took = took});
}
