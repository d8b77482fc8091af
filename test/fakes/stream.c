/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, copies, kernels and graph capture of the fake CUDA driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

/* ---- queues ---- */

struct CUstream_st *fake_stream(struct CUstream_st *stream)
{
    /* 0 and 1 are the legacy stream; 2, a thread's own, is taken for the same. */
    if ((uintptr_t)stream <= 2)
        return &fake.legacy[fake_current()->ordinal];
    return stream;
}

void fake_put(struct CUstream_st *stream, const struct fake_op *op)
{
    struct fake_op *copy = fake_new(sizeof(*copy));
    *copy = *op;
    copy->next = NULL;
    copy->delay = fake.delay;
    if (fake.async_error != 0 && op->kind != FAKE_WAIT && op->kind != FAKE_RECORD) {
        copy->error = fake.async_error;
        copy->late = fake.async_late;
        fake.async_error = 0;
    }
    if (op->event != NULL)
        op->event->references++;
    *stream->last = copy;
    stream->last = &copy->next;
}

static bool run_copy(int ordinal, const struct fake_op *op)
{
    bool ordinary_to, ordinary_from;
    uint8_t *to = fake_reach(ordinal, op->to, op->size, true, &ordinary_to);
    uint8_t *from =
        op->staged ? op->staged : fake_reach(ordinal, op->from, op->size, false, &ordinary_from);
    if (to == NULL && ordinary_to)
        to = (uint8_t *)(uintptr_t)op->to;
    if (to == NULL || from == NULL)
        return false;
    memmove(to, from, op->size);
    return true;
}

static bool run_op(int ordinal, const struct fake_op *op)
{
    bool ordinary;
    uint8_t *to;
    switch (op->kind) {
    case FAKE_COPY:
        return run_copy(ordinal, op);
    case FAKE_FILL:
        to = fake_reach(ordinal, op->to, op->size, true, &ordinary);
        if (to != NULL)
            memset(to, op->value, op->size);
        return to != NULL;
    case FAKE_KERNEL:
        return fake_run_kernel(ordinal, op);
    default:
        return true;
    }
}

static void drop_event(struct CUevent_st *event)
{
    if (event != NULL && --event->references == 0 && event->destroyed)
        fake_delete(event);
}

static void free_op(struct fake_op *op)
{
    drop_event(op->event);
    fake_delete(op->staged);
    fake_delete(op);
}

/* An operation that fails takes its context with it; its bytes move never, or late. */
static void fail_op(struct CUstream_st *stream, struct fake_op *op)
{
    fake.sticky[stream->ordinal] = op->error;
    if (op->late) {
        op->next = fake.late_ops;
        op->grid |= (unsigned)stream->ordinal << 16;
        fake.late_ops = op;
    } else {
        free_op(op);
    }
}

void fake_run_late(void)
{
    while (fake.late_ops != NULL) {
        struct fake_op *op = fake.late_ops;
        fake.late_ops = op->next;
        int ordinal = (int)(op->grid >> 16);
        op->grid &= 0xffff;
        (void)run_op(ordinal, op);
        free_op(op);
    }
}

/* The event is of another stream, which may move on too. */
static bool happened(const struct fake_op *op)
{
    for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
        (void)fake_progress(s);
    for (int i = 0; i < fake.gpus; i++)
        (void)fake_progress(&fake.legacy[i]);
    return op->event->happened >= op->number;
}

bool fake_progress(struct CUstream_st *stream)
{
    if (stream->busy)
        return false;
    stream->busy = true;
    while (stream->first != NULL && !fake.hold && fake.sticky[stream->ordinal] == 0) {
        struct fake_op *op = stream->first;
        if (op->delay > 0) {
            op->delay--;
            break;
        }
        if (op->kind == FAKE_WAIT && op->event->happened < op->number && !happened(op))
            break;
        stream->first = op->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        if (op->kind == FAKE_RECORD)
            op->event->happened = op->number;
        if (op->error != 0) {
            fail_op(stream, op);
            break;
        }
        bool good = run_op(stream->ordinal, op);
        if (!good)
            fake.sticky[stream->ordinal] = CUDA_ERR_ILLEGAL_ADDRESS;
        free_op(op);
    }
    stream->busy = false;
    pthread_cond_broadcast(&fake.moved);
    return stream->first == NULL;
}

void fake_drain(struct CUstream_st *stream)
{
    while (!fake_progress(stream) && fake.sticky[stream->ordinal] == 0) {
        if (fake.hold)
            pthread_cond_wait(&fake.moved, &fake.lock);
    }
}

void fake_drain_all(void)
{
    for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
        fake_drain(s);
    for (int i = 0; i < fake.gpus; i++)
        fake_drain(&fake.legacy[i]);
}

/* ---- streams ---- */

FAKE_API cuda_result cuStreamCreate(cuda_stream *stream, unsigned flags);
FAKE_API cuda_result cuStreamCreate(cuda_stream *stream, unsigned flags)
{
    ENTER("cuStreamCreate", STARTED | CONTEXT);
    struct CUstream_st *made = fake_new(sizeof(*made));
    made->ordinal = fake_current()->ordinal;
    made->flags = flags;
    made->last = &made->first;
    made->next = fake.streams;
    fake.streams = made;
    fake.streams_open++;
    *stream = made;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuStreamDestroy_v2(cuda_stream stream);
FAKE_API cuda_result cuStreamDestroy_v2(cuda_stream stream)
{
    ENTER("cuStreamDestroy", STARTED | CONTEXT);
    fake_drain(stream);
    for (struct CUstream_st **s = &fake.streams; *s != NULL; s = &(*s)->next) {
        if (*s == stream) {
            *s = stream->next;
            break;
        }
    }
    fake.streams_open--;
    fake_delete(stream);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuStreamQuery(cuda_stream stream);
FAKE_API cuda_result cuStreamQuery(cuda_stream stream)
{
    ENTER("cuStreamQuery", STARTED | CONTEXT | UNSAFE);
    stream = fake_stream(stream);
    bool empty = fake_progress(stream);
    int sticky = fake.sticky[stream->ordinal];
    LEAVE(sticky != 0 ? sticky : empty ? CUDA_OK : CUDA_ERR_NOT_READY);
}

FAKE_API cuda_result cuStreamSynchronize(cuda_stream stream);
FAKE_API cuda_result cuStreamSynchronize(cuda_stream stream)
{
    ENTER("cuStreamSynchronize", STARTED | CONTEXT | UNSAFE);
    stream = fake_stream(stream);
    fake_drain(stream);
    LEAVE(fake.sticky[stream->ordinal]);
}

FAKE_API cuda_result cuStreamGetCtx(cuda_stream stream, cuda_context *context);
FAKE_API cuda_result cuStreamGetCtx(cuda_stream stream, cuda_context *context)
{
    ENTER("cuStreamGetCtx", STARTED | CONTEXT);
    *context = &fake.contexts[fake_stream(stream)->ordinal];
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned flags);
FAKE_API cuda_result cuStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned flags)
{
    (void)flags;
    ENTER("cuStreamWaitEvent", STARTED | CONTEXT);
    fake_put(fake_stream(stream),
             &(struct fake_op){.kind = FAKE_WAIT, .event = event, .number = event->recorded});
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuStreamIsCapturing(cuda_stream stream, int *status);
FAKE_API cuda_result cuStreamIsCapturing(cuda_stream stream, int *status)
{
    ENTER("cuStreamIsCapturing", STARTED | CONTEXT);
    *status =
        fake_stream(stream)->capturing ? fake_stream(stream)->capture_status : CUDA_CAPTURE_NONE;
    if ((uintptr_t)stream <= 1) {
        for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next) {
            if (s->capturing && !(s->flags & CUDA_STREAM_NON_BLOCKING))
                LEAVE(CUDA_ERR_STREAM_CAPTURE_IMPLICIT);
        }
    }
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuStreamBeginCapture_v2(cuda_stream stream, int mode);
FAKE_API cuda_result cuStreamBeginCapture_v2(cuda_stream stream, int mode)
{
    ENTER("cuStreamBeginCapture", STARTED | CONTEXT);
    stream = fake_stream(stream);
    stream->capturing = true;
    stream->capture_mode = mode;
    stream->capture_status = CUDA_CAPTURE_ACTIVE;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuStreamEndCapture(cuda_stream stream, cuda_graph *graph);
FAKE_API cuda_result cuStreamEndCapture(cuda_stream stream, cuda_graph *graph)
{
    ENTER("cuStreamEndCapture", STARTED | CONTEXT);
    stream = fake_stream(stream);
    bool spoilt = stream->capture_status == CUDA_CAPTURE_INVALIDATED;
    stream->capturing = false;
    *graph = spoilt ? NULL : fake_new(1);
    LEAVE(spoilt ? 901 /* STREAM_CAPTURE_INVALIDATED */ : CUDA_OK);
}

FAKE_API cuda_result cuGraphDestroy(cuda_graph graph);
FAKE_API cuda_result cuGraphDestroy(cuda_graph graph)
{
    ENTER("cuGraphDestroy", STARTED);
    fake_delete(graph);
    LEAVE(CUDA_OK);
}

/* ---- events ---- */

FAKE_API cuda_result cuEventCreate(cuda_event *event, unsigned flags);
FAKE_API cuda_result cuEventCreate(cuda_event *event, unsigned flags)
{
    (void)flags;
    ENTER("cuEventCreate", STARTED | CONTEXT);
    struct CUevent_st *made = fake_new(sizeof(*made));
    made->ordinal = fake_current()->ordinal;
    made->references = 1;
    fake.events_open++;
    *event = made;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuEventDestroy_v2(cuda_event event);
FAKE_API cuda_result cuEventDestroy_v2(cuda_event event)
{
    ENTER("cuEventDestroy", STARTED);
    event->destroyed = true;
    fake.events_open--;
    drop_event(event);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuEventRecord(cuda_event event, cuda_stream stream);
FAKE_API cuda_result cuEventRecord(cuda_event event, cuda_stream stream)
{
    ENTER("cuEventRecord", STARTED | CONTEXT);
    stream = fake_stream(stream);
    if (event->ordinal != stream->ordinal)
        LEAVE(CUDA_ERR_INVALID_HANDLE);
    if (stream->capturing)
        LEAVE(CUDA_OK); /* U9 */
    event->recorded++;
    fake_put(stream,
             &(struct fake_op){.kind = FAKE_RECORD, .event = event, .number = event->recorded});
    LEAVE(CUDA_OK);
}

static void progress_all(void)
{
    for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
        (void)fake_progress(s);
    for (int i = 0; i < fake.gpus; i++)
        (void)fake_progress(&fake.legacy[i]);
}

FAKE_API cuda_result cuEventQuery(cuda_event event);
FAKE_API cuda_result cuEventQuery(cuda_event event)
{
    ENTER("cuEventQuery", STARTED | UNSAFE);
    progress_all();
    int sticky = fake.sticky[event->ordinal];
    bool done = event->happened >= event->recorded;
    LEAVE(sticky != 0 ? sticky : done ? CUDA_OK : CUDA_ERR_NOT_READY);
}

FAKE_API cuda_result cuEventSynchronize(cuda_event event);
FAKE_API cuda_result cuEventSynchronize(cuda_event event)
{
    ENTER("cuEventSynchronize", STARTED | UNSAFE);
    while (event->happened < event->recorded && fake.sticky[event->ordinal] == 0) {
        progress_all();
        if (fake.hold)
            pthread_cond_wait(&fake.moved, &fake.lock);
    }
    LEAVE(fake.sticky[event->ordinal]);
}

/* ---- copies ---- */

/* U6 */
static bool is_one_piece(uintptr_t address, size_t size)
{
    const struct fake_allocation *a = fake_find(address);
    if (a != NULL)
        return size <= a->size - (address - a->base);
    for (unsigned i = 0; i < fake.allocation_count; i++) {
        a = &fake.allocations[i];
        if (a->kind != FAKE_NONE && a->base < address + size && address < a->base + a->size)
            return false;
    }
    return true;
}

/* U20: what of it lies in the first of several allocations that are mapped side by side. */
static size_t first_piece(uintptr_t address, size_t size)
{
    const struct fake_allocation *a = fake_find(address);
    size_t left = a != NULL ? a->size - (address - a->base) : size;
    const struct fake_allocation *next = left < size ? fake_find(address + left) : NULL;
    return next != NULL && a->kind == FAKE_VMM && next->kind == FAKE_VMM ? left : size;
}

static cuda_result put_copy(cuda_pointer to, cuda_pointer from, size_t size,
                            struct CUstream_st *stream)
{
    size_t piece = first_piece(to, first_piece(from, size));
    if (piece < size) {
        cuda_result error = put_copy(to, from, piece, stream);
        return error != CUDA_OK ? error : put_copy(to + piece, from + piece, size - piece, stream);
    }
    bool ordinary_to, ordinary_from;
    int ordinal = stream->ordinal;
    struct fake_op op = {.kind = FAKE_COPY, .to = to, .from = from, .size = size};
    if (size == 0)
        return CUDA_OK;
    if (!is_one_piece(to, size) || !is_one_piece(from, size))
        return CUDA_ERR_INVALID_VALUE;
    if ((fake_reach(ordinal, to, size, true, &ordinary_to) == NULL && !ordinary_to) ||
        (fake_reach(ordinal, from, size, false, &ordinary_from) == NULL && !ordinary_from))
        return CUDA_ERR_INVALID_VALUE;
    if (ordinary_from) { /* staged before the call returns */
        op.staged = fake_new(size);
        memcpy(op.staged, (void *)(uintptr_t)from, size);
    }
    fake_put(stream, &op);
    if (ordinary_to)
        fake_drain(stream); /* such a copy is over when the call is */
    return CUDA_OK;
}

FAKE_API cuda_result cuMemcpyAsync(cuda_pointer to, cuda_pointer from, size_t size,
                                   cuda_stream stream);
FAKE_API cuda_result cuMemcpyAsync(cuda_pointer to, cuda_pointer from, size_t size,
                                   cuda_stream stream)
{
    ENTER("cuMemcpyAsync", STARTED | CONTEXT);
    LEAVE(put_copy(to, from, size, fake_stream(stream)));
}

FAKE_API cuda_result cuMemcpyBatchAsync(cuda_pointer *to, cuda_pointer *from, size_t *sizes,
                                        size_t count, struct cuda_copy_attributes *attributes,
                                        size_t *attribute_first, size_t attribute_count,
                                        size_t *failed, cuda_stream stream);
FAKE_API cuda_result cuMemcpyBatchAsync(cuda_pointer *to, cuda_pointer *from, size_t *sizes,
                                        size_t count, struct cuda_copy_attributes *attributes,
                                        size_t *attribute_first, size_t attribute_count,
                                        size_t *failed, cuda_stream stream)
{
    ENTER("cuMemcpyBatchAsync", STARTED | CONTEXT);
    *failed = SIZE_MAX;
    if ((uintptr_t)stream <= 1 || count == 0 || attribute_count == 0 || attribute_first[0] != 0 ||
        attributes[0].source_order < 1 || attributes[0].source_order > 3)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    fake.batches++;
    for (size_t i = 0; i < count; i++) {
        cuda_result error =
            sizes[i] == 0 ? CUDA_ERR_INVALID_VALUE : put_copy(to[i], from[i], sizes[i], stream);
        if (error != CUDA_OK) {
            *failed = i;
            LEAVE(error);
        }
    }
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemsetD8Async(cuda_pointer to, unsigned char value, size_t size,
                                     cuda_stream stream);
FAKE_API cuda_result cuMemsetD8Async(cuda_pointer to, unsigned char value, size_t size,
                                     cuda_stream stream)
{
    ENTER("cuMemsetD8Async", STARTED | CONTEXT);
    fake_put(fake_stream(stream),
             &(struct fake_op){.kind = FAKE_FILL, .to = to, .size = size, .value = value});
    LEAVE(CUDA_OK);
}

/* ---- kernels ---- */

FAKE_API cuda_result cuModuleLoadDataEx(cuda_module *module, const void *image, unsigned count,
                                        int *options, void **values);
FAKE_API cuda_result cuModuleLoadDataEx(cuda_module *module, const void *image, unsigned count,
                                        int *options, void **values)
{
    int major = 0, minor = 0;
    char *log = NULL;
    size_t log_size = 0;
    ENTER("cuModuleLoadDataEx", STARTED | CONTEXT | UNSAFE);
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CUDA_JIT_ERROR_LOG)
            log = values[i];
        if (options[i] == CUDA_JIT_ERROR_LOG_SIZE)
            log_size = (size_t)(uintptr_t)values[i];
    }
    bool read = sscanf(image, ".version %d.%d", &major, &minor) == 2;
    if (!read || 10 * major + minor > fake.ptx || strstr(image, ".entry ") == NULL) {
        if (log != NULL && log_size > 0)
            snprintf(log, log_size, "ptxas fatal: Unsupported .version %d.%d; current is %d.%d",
                     major, minor, fake.ptx / 10, fake.ptx % 10);
        LEAVE(read ? CUDA_ERR_UNSUPPORTED_PTX_VERSION : CUDA_ERR_INVALID_PTX);
    }
    size_t size = strlen(image) + 1;
    struct CUmod_st *made = fake_new(sizeof(*made) + size);
    made->ordinal = fake_current()->ordinal;
    memcpy(made->text, image, size);
    fake.modules_open++;
    *module = made;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuModuleUnload(cuda_module module);
FAKE_API cuda_result cuModuleUnload(cuda_module module)
{
    ENTER("cuModuleUnload", STARTED | CONTEXT | UNSAFE);
    fake.modules_open--;
    fake_delete(module);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuModuleGetFunction(cuda_function *function, cuda_module module,
                                         const char *name);
FAKE_API cuda_result cuModuleGetFunction(cuda_function *function, cuda_module module,
                                         const char *name)
{
    ENTER("cuModuleGetFunction", STARTED | CONTEXT);
    char entry[64];
    snprintf(entry, sizeof(entry), ".entry %.40s(", name);
    if (strstr(module->text, entry) == NULL)
        LEAVE(CUDA_ERR_NOT_FOUND);
    *function = (cuda_function)module;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_size, cuda_stream stream,
                                    void **parameters, void **extra);
FAKE_API cuda_result cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_size, cuda_stream stream,
                                    void **parameters, void **extra)
{
    uint64_t list;
    uint32_t count;
    (void)shared_size;
    (void)extra;
    ENTER("cuLaunchKernel", STARTED | CONTEXT);
    if (function == NULL || grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 ||
        block_x > 1024 || block_y != 1 || block_z != 1)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    memcpy(&list, parameters[0], sizeof(list));
    memcpy(&count, parameters[1], sizeof(count));
    fake.launches++;
    fake_put(fake_stream(stream), &(struct fake_op){.kind = FAKE_KERNEL,
                                                    .text = ((struct CUmod_st *)function)->text,
                                                    .from = list,
                                                    .count = count,
                                                    .grid = grid_x,
                                                    .block = block_x});
    LEAVE(CUDA_OK);
}

static bool run_piece_of_gather(int ordinal, uint64_t to, uint64_t from, uint64_t size)
{
    bool ordinary;
    uint8_t *target = fake_reach(ordinal, to, size, true, &ordinary);
    const uint8_t *source = fake_reach(ordinal, from, size, false, &ordinary);
    if (target != NULL && source != NULL)
        memcpy(target, source, size);
    return target != NULL && source != NULL;
}

/* The list is read when the kernel runs, as a GPU does it. */
bool fake_run_kernel(int ordinal, const struct fake_op *op)
{
    struct piece {
        uint64_t to, from, size, unused;
    } piece;
    bool ordinary, gather = strstr(op->text, ".entry yolk_gather(") != NULL;
    if (fake.run_text || (!gather && strstr(op->text, ".entry yolk_checksum(") == NULL))
        return fake_run_text(ordinal, op->text, op);
    for (uint64_t i = 0; i < op->count; i++) {
        const uint8_t *entry =
            fake_reach(ordinal, op->from + i * sizeof(piece), sizeof(piece), false, &ordinary);
        if (entry == NULL)
            return false;
        memcpy(&piece, entry, sizeof(piece));
        if (!(gather ? run_piece_of_gather : fake_run_checksum)(ordinal, piece.to, piece.from,
                                                                piece.size))
            return false;
    }
    return true;
}
