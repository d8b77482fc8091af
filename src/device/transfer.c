/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between host and GPU memory. A transfer is what one call put in one of the GPU's own
 * streams, with an event behind it. Small copies go in lists to the gather kernel, others to the
 * copy engine, by batches where the driver has them.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/internal.h"
#include "platform/clock.h"

enum { POLLS_MAX = 3 };

struct device_transfer {
    struct base_list node; /* among the free ones */
    struct gpu *gpu;
    cuda_event event;
    cuda_stream stream; /* asked in the event's place where that could not be recorded; else NULL */
    struct base_list slots; /* lists that the kernel reads */
    int result;             /* what it becomes once quiet */
    unsigned failed_polls;  /* that were not the end: the question failed, not what it is about */
    bool done;
    char reason[256];
};

/* The lists of one call while it is filled in. */
struct submission {
    struct gpu *gpu;
    struct device_transfer *transfer;
    cuda_stream stream;
    struct slot *slot;
    unsigned pieces; /* in the slot, not launched yet */
    bool kernel;
    bool pageable;
    uint64_t below;
    uint64_t kernel_bytes, engine_bytes;
    size_t count; /* of copies for the engine */
    cuda_pointer to[ENGINE_COPIES];
    cuda_pointer from[ENGINE_COPIES];
    size_t sizes[ENGINE_COPIES];
};

static struct slot *take_slot(struct gpu *gpu)
{
    struct base_list *node = base_list_pop_front(&gpu->slots);
    if (node != NULL)
        return BASE_CONTAINER(node, struct slot, node);
    if (gpu->slot_count == SLOTS_MAX)
        return NULL;
    struct slot *slot = base_calloc(1, sizeof(*slot));
    void *memory = NULL;
    if (slot == NULL)
        return NULL;
    base_list_init(&slot->node);
    if (gpu->device->cuda.mem_host_alloc(&memory, SLOT_PIECES * sizeof(struct gather_piece),
                                         CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP) != CUDA_OK) {
        free(slot);
        return NULL;
    }
    slot->pieces = memory;
    gpu->slot_count++;
    return slot;
}

struct device_transfer *transfer_take(struct gpu *gpu, int *status)
{
    struct base_list *node = base_list_pop_front(&gpu->transfers);
    struct device_transfer *transfer;
    cuda_event event = NULL;
    if (node != NULL) {
        transfer = BASE_CONTAINER(node, struct device_transfer, node);
        event = transfer->event;
    } else if (gpu->transfer_count == DEVICE_TRANSFERS_MAX) {
        *status = base_fail(YOLK_ERR_AGAIN, 0, "GPU %d has %u transfers under way", gpu->ordinal,
                            gpu->transfer_count);
        return NULL;
    } else {
        transfer = base_calloc(1, sizeof(*transfer));
        if (transfer == NULL) {
            *status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a transfer");
            return NULL;
        }
        cuda_result error = gpu->device->cuda.event_create(&event, CUDA_EVENT_DISABLE_TIMING);
        if (error != CUDA_OK) {
            free(transfer);
            *status = gpu_fail(gpu, error, "cuEventCreate");
            return NULL;
        }
        gpu->transfer_count++;
    }
    *transfer = (struct device_transfer){.gpu = gpu, .event = event};
    base_list_init(&transfer->node);
    base_list_init(&transfer->slots);
    return transfer;
}

void transfer_give(struct device_transfer *transfer)
{
    struct base_list *node;
    while ((node = base_list_pop_front(&transfer->slots)) != NULL)
        base_list_push_front(&transfer->gpu->slots, node);
    base_list_push_front(&transfer->gpu->transfers, &transfer->node);
}

void transfers_fini(struct gpu *gpu)
{
    struct base_list *node;
    const struct cuda *cuda = &gpu->device->cuda;
    bool driver = device_check(gpu->device) == YOLK_OK && !atomic_load(&gpu->lost);
    while ((node = base_list_pop_front(&gpu->transfers)) != NULL) {
        struct device_transfer *transfer = BASE_CONTAINER(node, struct device_transfer, node);
        if (driver)
            (void)cuda->event_destroy(transfer->event);
        free(transfer);
    }
    while ((node = base_list_pop_front(&gpu->slots)) != NULL) {
        struct slot *slot = BASE_CONTAINER(node, struct slot, node);
        if (driver)
            (void)cuda->mem_free_host(slot->pieces);
        free(slot);
    }
}

/* Copies that wait for somebody's stream must not hold up those that do not, and few each other. */
static int stream_of(struct gpu *gpu, const struct device_copy_options *options, cuda_stream *out)
{
    unsigned lane = 0;
    if (options->after.stream != NULL || options->after.event != NULL)
        lane = 1 + gpu->next_lane++ % (LANES - 1);
    else if (options->pair != 0)
        lane = LANES + options->pair % PAIRS;
    cuda_stream *place = &gpu->streams[options->direction][lane];
    if (*place == NULL) {
        cuda_stream stream = NULL;
        /* A kernel that computes fills the GPU with more than it has room for, and what it computes
         * may wait for these bytes: the few blocks of ours come next where others end. */
        cuda_result error = gpu->device->cuda.stream_create_with_priority(
            &stream, CUDA_STREAM_NON_BLOCKING, CUDA_STREAM_FIRST);
        if (error != CUDA_OK)
            return gpu_fail(gpu, error, "cuStreamCreateWithPriority");
        *place = stream;
    }
    *out = *place;
    return YOLK_OK;
}

/* The caller's stream may be another context's, in which alone an event can be recorded in it. */
int stream_mark(struct gpu *gpu, cuda_stream stream, cuda_event *out)
{
    const struct cuda *cuda = &gpu->device->cuda;
    int capturing = CUDA_CAPTURE_NONE;
    cuda_context context = NULL, ignored;
    cuda_event event = NULL;
    cuda_result error = cuda->stream_is_capturing(stream, &capturing);
    if (capturing != CUDA_CAPTURE_NONE || error == CUDA_ERR_STREAM_CAPTURE_IMPLICIT)
        return base_fail(YOLK_ERR_BUSY, 0,
                         "the stream to wait for captures a graph: what is put in it does not run");
    if (error == CUDA_OK)
        error = cuda->stream_get_ctx(stream, &context);
    if (error != CUDA_OK)
        return gpu_fail(gpu, error, "the stream to wait for");
    error = cuda->ctx_push_current(context);
    if (error != CUDA_OK)
        return gpu_fail(gpu, error, "cuCtxPushCurrent of the stream to wait for");
    error = cuda->event_create(&event, CUDA_EVENT_DISABLE_TIMING);
    if (error == CUDA_OK)
        error = cuda->event_record(event, stream);
    if (error != CUDA_OK && event != NULL)
        (void)cuda->event_destroy(event);
    (void)cuda->ctx_pop_current(&ignored);
    if (error != CUDA_OK)
        return gpu_fail(gpu, error, "an event in the stream to wait for");
    *out = event;
    return YOLK_OK;
}

static int wait_for_stream(struct gpu *gpu, cuda_stream stream, cuda_stream ours)
{
    cuda_event event;
    int status = stream_mark(gpu, stream, &event);
    if (status != YOLK_OK)
        return status;
    cuda_result error = gpu->device->cuda.stream_wait_event(ours, event, 0);
    (void)gpu->device->cuda.event_destroy(event); /* goes when it has happened */
    return error == CUDA_OK ? YOLK_OK : gpu_fail(gpu, error, "an event in the stream to wait for");
}

static int wait_for(struct gpu *gpu, const struct device_order *after, cuda_stream ours)
{
    int status = YOLK_OK;
    if (after->stream != NULL)
        status = wait_for_stream(gpu, after->stream, ours);
    if (status == YOLK_OK && after->event != NULL) {
        cuda_result error = gpu->device->cuda.stream_wait_event(ours, after->event, 0);
        if (error != CUDA_OK)
            status = gpu_fail(gpu, error, "cuStreamWaitEvent of the event to wait for");
    }
    return status;
}

static int flush_pieces(struct submission *s)
{
    if (s->pieces == 0)
        return YOLK_OK;
    uint32_t count = s->pieces;
    s->pieces = 0;
    return gather_launch(s->gpu, s->slot->pieces, count, s->stream);
}

static int copy_loop(struct submission *s)
{
    for (size_t i = 0; i < s->count; i++) {
        cuda_result error =
            s->gpu->device->cuda.memcpy_async(s->to[i], s->from[i], s->sizes[i], s->stream);
        if (error != CUDA_OK)
            return gpu_fail(s->gpu, error, "cuMemcpyAsync");
    }
    return YOLK_OK;
}

static int flush_engine(struct submission *s)
{
    struct gpu *gpu = s->gpu;
    struct cuda_copy_attributes attributes = {.source_order = CUDA_COPY_SOURCE_ORDER_STREAM};
    size_t first = 0, failed = 0;
    int status = YOLK_OK;
    bool batch = s->count > 1 && gpu->device->cuda.missing[CUDA_BATCH] == NULL &&
                 !gpu->batch_refused && !s->pageable;
    if (batch) {
        cuda_result error = gpu->device->cuda.memcpy_batch_async(
            s->to, s->from, s->sizes, s->count, &attributes, &first, 1, &failed, s->stream);
        if (error == CUDA_ERR_NOT_SUPPORTED) {
            gpu->batch_refused = true;
            batch = false;
        } else if (error != CUDA_OK) {
            status = gpu_fail(gpu, error, "cuMemcpyBatchAsync");
        }
    }
    if (!batch)
        status = copy_loop(s);
    if (status == YOLK_OK)
        atomic_fetch_add_explicit(&gpu->device->engine_copies, s->count, memory_order_relaxed);
    s->count = 0;
    return status;
}

/* Takes one copy; LIMIT: there is no room for it in this call. */
static int take_copy(struct submission *s, const struct device_copy *copy)
{
    int status;
    if (copy->size == 0)
        return YOLK_OK;
    if (s->kernel && copy->size < s->below) {
        unsigned taken = 0;
        if (s->slot != NULL)
            taken = gather_cut(copy, s->slot->pieces + s->pieces, SLOT_PIECES - s->pieces);
        if (taken == 0) {
            status = flush_pieces(s);
            if (status != YOLK_OK)
                return status;
            s->slot = take_slot(s->gpu);
            if (s->slot == NULL)
                return YOLK_ERR_LIMIT;
            base_list_push_back(&s->transfer->slots, &s->slot->node);
            taken = gather_cut(copy, s->slot->pieces, SLOT_PIECES);
        }
        if (taken > 0) {
            s->pieces += taken;
            s->kernel_bytes += copy->size;
            return YOLK_OK;
        } /* gather_below is set so high that it fits no list: the engine has it */
    }
    s->to[s->count] = (uintptr_t)copy->to;
    s->from[s->count] = (uintptr_t)copy->from;
    s->sizes[s->count++] = copy->size;
    s->engine_bytes += copy->size;
    return s->count == ENGINE_COPIES ? flush_engine(s) : YOLK_OK;
}

static void fail_transfer(struct device_transfer *transfer, int status)
{
    transfer->result = status;
    snprintf(transfer->reason, sizeof(transfer->reason), "%s", yolk_last_error());
}

/* Fills the stream. What was put there before a failure still runs: the transfer tells it then. */
static size_t fill(struct submission *s, const struct device_copy *copies, size_t count)
{
    size_t taken = 0;
    int status = YOLK_OK;
    while (taken < count && status == YOLK_OK) {
        status = take_copy(s, &copies[taken]);
        if (status != YOLK_ERR_LIMIT)
            taken++;
    }
    if (status == YOLK_OK || status == YOLK_ERR_LIMIT) {
        status = flush_pieces(s);
        if (status == YOLK_OK)
            status = flush_engine(s);
    }
    if (status != YOLK_OK)
        fail_transfer(s->transfer, status);
    struct device *device = s->gpu->device;
    atomic_fetch_add_explicit(&device->gather_bytes, s->kernel_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->engine_bytes, s->engine_bytes, memory_order_relaxed);
    return taken;
}

/* Where no event can be recorded the stream itself tells when all in it is over. */
void transfer_mark(struct device_transfer *transfer, cuda_stream stream)
{
    struct gpu *gpu = transfer->gpu;
    cuda_result error = gpu->device->cuda.event_record(transfer->event, stream);
    if (error == CUDA_OK)
        return;
    transfer->stream = stream;
    if (transfer->result == YOLK_OK)
        fail_transfer(transfer, gpu_fail(gpu, error, "cuEventRecord"));
}

/* Under the GPU's lock and in its context. */
static long submit(struct gpu *gpu, struct submission *s, const struct device_copy *copies,
                   size_t count, const struct device_copy_options *options,
                   struct device_transfer **out)
{
    int status = stream_of(gpu, options, &s->stream);
    if (status == YOLK_OK)
        status = wait_for(gpu, &options->after, s->stream);
    if (status == YOLK_OK)
        s->transfer = transfer_take(gpu, &status);
    if (status != YOLK_OK)
        return status;
    s->gpu = gpu;
    s->pageable = options->pageable;
    s->below = gather_below(gpu);
    /* One copy of a size that a launch would take as long for is the engine's. */
    s->kernel =
        !s->pageable && count > 1 && copies[0].size + copies[1].size > 0 && gather_ready(gpu);
    long taken = (long)fill(s, copies, count);
    if (taken == 0 && s->transfer->result == YOLK_OK) {
        transfer_give(s->transfer);
        return base_fail(YOLK_ERR_AGAIN, 0, "GPU %d: all lists of copies are in use", gpu->ordinal);
    }
    transfer_mark(s->transfer, s->stream);
    *out = s->transfer;
    return taken;
}

long device_copy(struct device *device, int ordinal, const struct device_copy *copies, size_t count,
                 const struct device_copy_options *options, struct device_transfer **out)
{
    static const struct device_copy_options plain = {.direction = DEVICE_TO_GPU};
    int status;
    struct device_scope scope;
    *out = NULL;
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    if (gpu == NULL)
        return status;
    if (options == NULL)
        options = &plain;
    if (count == 0 || options->direction >= DEVICE_DIRECTIONS)
        return base_fail(YOLK_ERR_INVALID, 0, "%zu copies in direction %d", count,
                         (int)options->direction);
    struct submission *s = base_malloc(sizeof(*s));
    if (s == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu copies", count);
    memset(s, 0, offsetof(struct submission, to));
    status = gpu_enter(gpu, &scope);
    long taken = status;
    if (status == YOLK_OK) {
        mutex_lock(&gpu->lock);
        taken = submit(gpu, s, copies, count, options, out);
        mutex_unlock(&gpu->lock);
        device_leave(device, &scope);
    }
    free(s);
    return taken;
}

static int told(const struct device_transfer *transfer)
{
    if (transfer->result == YOLK_OK)
        return YOLK_OK;
    return base_fail(transfer->result, 0, "%s", transfer->reason);
}

static cuda_result ask(struct device_transfer *transfer)
{
    const struct cuda *cuda = &transfer->gpu->device->cuda;
    if (transfer->stream != NULL)
        return cuda->stream_query(transfer->stream);
    return cuda->event_query(transfer->event);
}

int device_transfer_poll(struct device_transfer *transfer)
{
    struct gpu *gpu = transfer->gpu;
    struct device_scope scope;
    if (transfer->done)
        return told(transfer);
    int status = device_check(gpu->device);
    if (status != YOLK_OK)
        return status;
    status = gpu_enter(gpu, &scope);
    if (status == YOLK_OK) {
        cuda_result error = ask(transfer);
        if (error != CUDA_OK && error != CUDA_ERR_NOT_READY)
            status = gpu_fail(gpu, error, "a transfer");
        device_leave(gpu->device, &scope);
        if (error == CUDA_ERR_NOT_READY)
            return YOLK_ERR_AGAIN;
    }
    if (status != YOLK_OK && ++transfer->failed_polls < POLLS_MAX && !atomic_load(&gpu->lost))
        return YOLK_ERR_AGAIN;
    transfer->done = true;
    if (status != YOLK_OK) {
        /* Nothing can tell any more whether bytes still move, so nothing of this GPU is used again:
         * lists that the kernel may still read least of all. */
        fail_transfer(transfer, YOLK_ERR_STUCK);
        gpu_lose(gpu);
    }
    return told(transfer);
}

int device_transfer_wait(struct device_transfer *transfer, uint64_t deadline_ns)
{
    enum { SPINS = 200, PAUSE_NS = 20000 };
    for (unsigned round = 0;; round++) {
        int status = device_transfer_poll(transfer);
        if (status != YOLK_ERR_AGAIN || transfer->done)
            return status;
        if (clock_real_now_ns() >= deadline_ns)
            return base_fail(YOLK_ERR_TIMEOUT, 0, "the transfer still runs at the deadline");
        if (round < SPINS)
            thread_relax();
        else
            (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = PAUSE_NS},
                                  NULL);
    }
}

int device_transfer_free(struct device_transfer *transfer)
{
    struct gpu *gpu = transfer->gpu;
    if (!transfer->done)
        return base_fail(YOLK_ERR_BUSY, 0, "the transfer still runs");
    mutex_lock(&gpu->lock);
    transfer_give(transfer);
    mutex_unlock(&gpu->lock);
    return YOLK_OK;
}
