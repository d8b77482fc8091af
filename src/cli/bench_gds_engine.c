/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between a GPU's memory and a file by the engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_gds.h"
#include "platform/clock.h"
#include "transport/uring/uring.h"

enum { SEGMENT = 1, SESSION = 1, WAIT_MS = 30000 };

uint64_t bench_gds_processor_ns(void)
{
    struct timespec now;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0
               ? (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec
               : 0;
}

enum yolk_status bench_gds_file(const char *folder, const char *name, const struct bench_gpu *gpu,
                                struct file **out, char path[512])
{
    const struct file_system fs = file_system_default();
    (void)snprintf(path, 512, "%s/yolk-bench-%ld-%s", folder, (long)getpid(), name);
    int status = file_open(
        &fs, path, FILE_READ | FILE_WRITE | FILE_CREATE | FILE_EXCLUSIVE | FILE_DIRECT, out);
    if (status != YOLK_OK) {
        path[0] = '\0';
        return (enum yolk_status)status;
    }
    status = file_fallocate(*out, 0, gpu->total);
    /* Else the first round would measure the making of blocks. */
    if (status == YOLK_OK)
        status = file_pwrite(*out, gpu->host, gpu->total, 0);
    return (enum yolk_status)(status == YOLK_OK ? file_fdatasync(*out) : status);
}

void bench_gds_file_remove(struct file *file, const char *path)
{
    if (path[0] != '\0')
        (void)unlink(path);
    if (file != NULL)
        file_close(file);
}

enum yolk_status bench_gds_engine_open(struct bench_gds_engine *e,
                                       const struct bench_gds_engine_options *o)
{
    const struct yolk_transport_ops *transports[2];
    size_t count = 0;
    struct yolk_engine_options options;
    *e = (struct bench_gds_engine){.memory = o->memory, .size = o->size};
    if (o->gds)
        transports[count++] = transport_gds_ops();
    if (o->uring)
        transports[count++] = transport_uring_ops();
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = count;
    options.transport.gds_enable = o->gds;
    options.transport.gds_batch_depth = o->depth;
    options.transport.gds_slice_bytes = o->slice;
    options.transport.queue_depth = o->gds ? 0 : o->depth;
    enum yolk_status status = yolk_engine_create(&options, &e->engine);
    if (status == YOLK_OK)
        status = yolk_engine_register(e->engine, e->memory, e->size);
    const struct yolk_serve_file_options serve = {.struct_size = sizeof(serve),
                                                  .internal = o->file,
                                                  .writable = 1,
                                                  .pad_writes = 1,
                                                  .size = o->size,
                                                  .segment = SEGMENT};
    if (status == YOLK_OK)
        status = yolk_engine_serve_file(e->engine, &serve, &e->served);
    if (status != YOLK_OK)
        return status;
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = o->size, .endpoints = yolk_served_endpoints(e->served)};
    return yolk_engine_segment_open(e->engine, &descriptor, SESSION, &e->segment);
}

void bench_gds_engine_close(struct bench_gds_engine *e)
{
    if (e->engine == NULL)
        return;
    if (e->segment != 0)
        base_ignore(yolk_engine_segment_close(e->engine, e->segment));
    if (e->served != NULL)
        yolk_engine_unserve(e->engine, e->served);
    base_ignore(yolk_engine_unregister(e->engine, e->memory, e->size));
    base_ignore(yolk_engine_destroy(e->engine)); /* nothing is in flight */
    *e = (struct bench_gds_engine){.engine = NULL};
}

static struct yolk_request request_of(const struct bench_gds_engine *e,
                                      const struct bench_gds_work *work, uint64_t number)
{
    uint64_t offset = number * work->slice % work->bytes;
    return (struct yolk_request){.opcode = work->write ? YOLK_WRITE : YOLK_READ,
                                 .local = e->memory + offset,
                                 .segment = e->segment,
                                 .offset = offset,
                                 .size = work->slice,
                                 .flags = YOLK_REQUEST_EXACT,
                                 .deadline_ns = clock_after_ms(clock_real_now_ns(), WAIT_MS)};
}

static enum yolk_status submit_and_wait(struct bench_gds_engine *e, uint64_t batch,
                                        const struct yolk_request *requests, uint32_t count,
                                        enum yolk_status *verdicts)
{
    enum yolk_status status =
        yolk_engine_batch_submit(e->engine, batch, requests, count, verdicts, NULL);
    if (status == YOLK_OK)
        status = yolk_engine_batch_wait(e->engine, batch,
                                        clock_after_ms(clock_real_now_ns(), 2 * WAIT_MS));
    struct yolk_batch_status all;
    if (status == YOLK_OK)
        status = yolk_engine_batch_look(e->engine, batch, &all, NULL, 0);
    struct yolk_task_status task;
    if (status == YOLK_OK)
        status = yolk_engine_batch_poll(e->engine, batch, count - 1, &task);
    if (status == YOLK_OK) {
        memcpy(e->transport, task.transport, sizeof(e->transport));
        status = all.worst;
    }
    return status;
}

static enum yolk_status run_all(struct bench_gds_engine *e, const struct bench_gds_work *work,
                                struct yolk_request (*make)(const struct bench_gds_engine *e,
                                                            const struct bench_gds_work *work,
                                                            uint64_t number),
                                struct bench_gds_took *took)
{
    uint32_t count = (uint32_t)(work->bytes / work->slice);
    struct yolk_request *requests = calloc(count, sizeof(*requests));
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    uint64_t batch = 0;
    enum yolk_status status = requests != NULL && verdicts != NULL
                                  ? yolk_engine_batch_create(e->engine, count, &batch)
                                  : base_fail(YOLK_ERR_NO_MEMORY, 0, "requests");
    for (uint32_t i = 0; i < count && status == YOLK_OK; i++)
        requests[i] = make(e, work, i);
    uint64_t start = bench_now_ns(), processor = bench_gds_processor_ns();
    if (status == YOLK_OK)
        status = submit_and_wait(e, batch, requests, count, verdicts);
    took->seconds = bench_seconds_since(start);
    took->processor = (double)(bench_gds_processor_ns() - processor) / 1e9;
    if (batch != 0)
        base_ignore(yolk_engine_batch_free(e->engine, batch));
    free(requests);
    free(verdicts);
    return status;
}

enum yolk_status bench_gds_engine_run(struct bench_gds_engine *e, const struct bench_gds_work *work,
                                      struct bench_gds_took *took)
{
    return run_all(e, work, request_of, took);
}

static struct yolk_request piece_of(const struct bench_gds_engine *e,
                                    const struct bench_gds_work *work, uint64_t number)
{
    struct yolk_request request = request_of(e, work, number);
    uint64_t objects = work->bytes / (work->pieces * work->slice);
    uint64_t object = number / work->pieces, piece = number % work->pieces;
    request.local = e->memory + (piece * objects + object) * work->slice;
    return request;
}

enum yolk_status bench_gds_engine_pieces(struct bench_gds_engine *e,
                                         const struct bench_gds_work *work,
                                         struct bench_gds_took *took)
{
    return run_all(e, work, piece_of, took);
}

/* ---- how long one takes ---- */
struct window {
    struct bench_gds_engine *e;
    const struct bench_gds_work *work;
    uint64_t batch;
    uint32_t tasks[BENCH_GDS_DEPTH_MAX]; /* under way */
    uint64_t began[BENCH_GDS_DEPTH_MAX];
    uint32_t count, submitted, total, over;
    double *taken; /* microseconds */
};

static enum yolk_status fill_window(struct window *w)
{
    while (w->count < w->work->depth && w->submitted < w->total) {
        const struct yolk_request request = request_of(w->e, w->work, w->submitted);
        enum yolk_status verdict;
        w->began[w->count] = bench_now_ns();
        enum yolk_status status = yolk_engine_batch_submit(w->e->engine, w->batch, &request, 1,
                                                           &verdict, &w->tasks[w->count]);
        if (status != YOLK_OK)
            return status;
        w->submitted++;
        w->count++;
    }
    return YOLK_OK;
}

static enum yolk_status look_at_window(struct window *w)
{
    for (uint32_t i = 0; i < w->count;) {
        struct yolk_task_status task;
        enum yolk_status status =
            yolk_engine_batch_poll(w->e->engine, w->batch, w->tasks[i], &task);
        if (status == YOLK_OK && task.terminal)
            status = task.status;
        if (status != YOLK_OK)
            return status;
        if (!task.terminal) {
            i++;
            continue;
        }
        w->taken[w->over++] = bench_seconds_since(w->began[i]) * 1e6;
        w->count--;
        w->tasks[i] = w->tasks[w->count];
        w->began[i] = w->began[w->count];
    }
    return YOLK_OK;
}

enum yolk_status bench_gds_engine_latency(struct bench_gds_engine *e,
                                          const struct bench_gds_work *work, double *p50,
                                          double *p99)
{
    struct window w = {.e = e, .work = work, .total = (uint32_t)(work->bytes / work->slice)};
    w.taken = calloc(w.total, sizeof(*w.taken));
    if (w.taken == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of times");
    enum yolk_status status = yolk_engine_batch_create(e->engine, w.total, &w.batch);
    while (status == YOLK_OK && w.over < w.total) {
        status = fill_window(&w);
        if (status == YOLK_OK)
            status = look_at_window(&w);
    }
    if (status == YOLK_OK) {
        *p50 = bench_median(w.taken, w.over); /* and sorted */
        *p99 = w.taken[(size_t)w.over * 99 / 100];
    }
    if (w.batch != 0)
        base_ignore(yolk_engine_batch_free(e->engine, w.batch));
    free(w.taken);
    return status;
}
