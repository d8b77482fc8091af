/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "engine"
#include "engine/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "device/device.h"
#include "engine/bulk.h"
#include "engine/internal.h"
#include "platform/clock.h"

enum { COPY_TIMEOUT_MS = 30000, CHECKSUM_BYTES = 4 << 20, COPIES_AT_ONCE = 512 };

enum yolk_status engine_device_init(struct yolk_engine *engine,
                                    const struct yolk_transport_options *options)
{
    struct engine_device *mine = &engine->device;
    mine->cuda = options->cuda_library != NULL ? strdup(options->cuda_library) : NULL;
    mine->cufile = options->cufile_library != NULL ? strdup(options->cufile_library) : NULL;
    if ((options->cuda_library != NULL && mine->cuda == NULL) ||
        (options->cufile_library != NULL && mine->cufile == NULL))
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an engine");
    return YOLK_OK;
}

void engine_device_free(struct yolk_engine *engine)
{
    struct engine_device *mine = &engine->device;
    device_unshare(atomic_load(&mine->device));
    free(mine->cuda);
    free(mine->cufile);
    pthread_mutex_destroy(&mine->lock);
}

enum yolk_status engine_device_of(struct yolk_engine *engine, struct device **out)
{
    struct engine_device *mine = &engine->device;
    *out = atomic_load_explicit(&mine->device, memory_order_acquire);
    if (*out != NULL)
        return (enum yolk_status)device_check(*out);
    if (mine->cuda == NULL && !device_in_use())
        return YOLK_OK;
    int status = YOLK_OK;
    pthread_mutex_lock(&mine->lock);
    *out = atomic_load(&mine->device);
    if (*out == NULL) {
        status = device_share(mine->cuda, mine->cufile, out);
        if (status == YOLK_OK)
            atomic_store_explicit(&mine->device, *out, memory_order_release);
    }
    pthread_mutex_unlock(&mine->lock);
    if (status == YOLK_ERR_UNSUPPORTED) {
        if (!atomic_exchange(&mine->told, true))
            log_warn("no GPU's memory can be used: %s", yolk_last_error());
        base_error_clear();
        return YOLK_OK;
    }
    return (enum yolk_status)status;
}

/* The driver cannot be asked in a child of fork, but what it said in the parent is known. */
static enum yolk_status look_in_child(const void *pointer, uint64_t size)
{
    const char *first = pointer;
    if (device_was_gpu(first) || device_was_gpu(first + size - 1))
        return base_fail(YOLK_ERR_FORKED, 0,
                         "%p is memory of a GPU of the parent process: CUDA cannot be used in a "
                         "child of fork, start it by spawn or exec",
                         pointer);
    base_error_clear();
    return YOLK_OK;
}

static bool is_plain_host(enum device_kind kind)
{
    return kind != DEVICE_GPU && kind != DEVICE_MANAGED;
}

static enum yolk_status no_range(const void *pointer, uint64_t size, const char *begins,
                                 uint64_t offset, const char *there)
{
    return base_fail(YOLK_ERR_INVALID, 0,
                     "%p + %llu begins in %s, but %llu bytes behind its start is %s: register each "
                     "by itself",
                     pointer, (unsigned long long)size, begins, (unsigned long long)offset, there);
}

/* Of memory with handles the driver may call all the addresses that are reserved its range. */
static enum yolk_status look_at_last(struct device *device, const void *pointer, uint64_t size,
                                     const struct device_memory *first)
{
    struct device_memory last;
    enum yolk_status status =
        (enum yolk_status)device_query(device, (const char *)pointer + size - 1, &last);
    if (status == YOLK_OK && last.kind != first->kind)
        status = no_range(pointer, size, device_kind_name(first->kind), size - 1,
                          device_kind_name(last.kind));
    return status;
}

/* Several allocations may be one range only where the driver mapped them side by side on purpose.
 */
static enum yolk_status look_behind(struct device *device, const void *pointer, uint64_t size,
                                    const struct device_memory *first)
{
    uint64_t start = (uintptr_t)pointer;
    struct device_memory memory = *first;
    while (memory.base + memory.size - start < size) {
        uint64_t offset = memory.base + memory.size - start;
        if (!first->vmm)
            return base_fail(YOLK_ERR_INVALID, 0,
                             "%p + %llu leaves its allocation in %s, which ends after %llu bytes",
                             pointer, (unsigned long long)size, device_kind_name(first->kind),
                             (unsigned long long)offset);
        enum yolk_status status =
            (enum yolk_status)device_query(device, (const char *)pointer + offset, &memory);
        if (status != YOLK_OK)
            return status;
        if (memory.kind != first->kind || memory.ordinal != first->ordinal || memory.size == 0)
            return no_range(pointer, size, device_kind_name(first->kind), offset,
                            memory.kind == first->kind ? "that of another GPU"
                                                       : device_kind_name(memory.kind));
    }
    return first->vmm ? look_at_last(device, pointer, size, first) : YOLK_OK;
}

static enum yolk_status look(struct device *device, const void *pointer, uint64_t size,
                             struct engine_memory *out)
{
    struct device_memory first, last;
    enum yolk_status status = (enum yolk_status)device_query(device, pointer, &first);
    if (status == YOLK_OK && is_plain_host(first.kind)) {
        status = (enum yolk_status)device_query(device, (const char *)pointer + size - 1, &last);
        if (status == YOLK_OK && !is_plain_host(last.kind))
            status = no_range(pointer, size, device_kind_name(first.kind), size - 1,
                              device_kind_name(last.kind));
        return status;
    }
    if (status == YOLK_OK)
        status = look_behind(device, pointer, size, &first);
    if (status != YOLK_OK)
        return status;
    out->kind = POLICY_CUDA;
    out->gpu = first.ordinal < 0 ? 1 : (uint32_t)first.ordinal + 1;
    out->allocation = first.id;
    return YOLK_OK;
}

enum yolk_status engine_memory_look(struct yolk_engine *engine, const void *pointer, uint64_t size,
                                    struct engine_memory *out)
{
    struct device *device;
    *out = (struct engine_memory){.kind = POLICY_CPU};
    enum yolk_status status = engine_device_of(engine, &device);
    if (status == YOLK_OK && device != NULL)
        status = look(device, pointer, size, out);
    if (status == YOLK_ERR_FORKED || (status == YOLK_OK && device == NULL))
        return look_in_child(pointer, size);
    return status;
}

void engine_device_pin(struct yolk_engine *engine, void *memory, uint64_t size, uint32_t gpu,
                       struct device_range **out)
{
    struct device *device = atomic_load(&engine->device.device);
    int status = device_range_add(device, memory, size, false, out);
    if (status == YOLK_OK) {
        status = device_range_hold(*out, (int)gpu - 1, 0, size);
        if (status != YOLK_OK)
            (void)!device_range_remove(*out);
    }
    if (status == YOLK_OK)
        return;
    *out = NULL;
    log_warn("memory for staged transfers is not pinned, so they are slower: %s",
             yolk_last_error());
    base_error_clear();
}

void engine_device_unpin(struct device_range *range, uint64_t size, bool lost)
{
    if (range == NULL)
        return;
    if (lost) {
        device_range_abandon(range);
        return;
    }
    device_range_release(range, 0, size);
    (void)!device_range_remove(range);
}

/* -- copies -- */

static enum copy_state failed(struct copy_job *job, int status)
{
    job->status = (enum yolk_status)status;
    return status == YOLK_ERR_STUCK ? COPY_STUCK : COPY_FAILED;
}

/* The next copies of the job, up to `most`; each is of one piece. */
static size_t next_copies(const struct copy_job *job, struct device_copy *copies, size_t most)
{
    uint64_t at = job->begun, before = 0;
    size_t count = 0;
    if (job->piece_count == 0) {
        copies[0] = (struct device_copy){(uint8_t *)job->to + at, (const uint8_t *)job->from + at,
                                         job->size - at};
        return 1;
    }
    for (uint32_t i = 0; i < job->piece_count && count < most && at < job->size; i++) {
        uint64_t end = before + job->pieces[i].size;
        if (job->skip + at < end) {
            uint64_t inside = job->skip + at - before, size = end - (job->skip + at);
            uint8_t *piece = (uint8_t *)job->pieces[i].pointer + inside;
            if (size > job->size - at)
                size = job->size - at;
            copies[count++] =
                job->to_gpu ? (struct device_copy){piece, (const uint8_t *)job->from + at, size}
                            : (struct device_copy){(uint8_t *)job->to + at, piece, size};
            at += size;
        }
        before = end;
    }
    return count;
}

/* Too many transfers at once: again at the next poll. */
static enum copy_state gpu_begin(struct yolk_engine *engine, struct copy_job *job)
{
    struct device *device = atomic_load_explicit(&engine->device.device, memory_order_acquire);
    struct device_copy copies[COPIES_AT_ONCE];
    size_t count = next_copies(job, copies, COPIES_AT_ONCE);
    const struct device_copy_options options = {
        .direction = job->to_gpu ? DEVICE_TO_GPU : DEVICE_FROM_GPU,
        .pageable = job->pageable,
    };
    struct device_transfer *transfer;
    long taken = device_copy(device, (int)job->gpu - 1, copies, count, &options, &transfer);
    if (taken == YOLK_ERR_AGAIN) {
        base_error_clear();
        return COPY_UNDER_WAY;
    }
    if (taken < 0)
        return failed(job, (int)taken);
    for (long i = 0; i < taken; i++)
        job->begun += copies[i].size;
    job->scratch[0] = transfer;
    return COPY_UNDER_WAY;
}

static enum copy_state gpu_start(void *self, void *to, const void *from, uint64_t size,
                                 struct copy_job *job)
{
    job->to = to;
    job->from = from;
    job->size = size;
    job->begun = 0;
    job->status = YOLK_OK;
    job->scratch[0] = NULL;
    return gpu_begin(self, job);
}

static enum copy_state gpu_poll(void *self, struct copy_job *job)
{
    if (job->scratch[0] == NULL)
        return gpu_begin(self, job);
    int status = device_transfer_poll(job->scratch[0]);
    if (status == YOLK_ERR_AGAIN)
        return COPY_UNDER_WAY;
    /* Where the driver must not be called any more nobody knows whether bytes still move. */
    if (status == YOLK_ERR_CLOSED || status == YOLK_ERR_FORKED)
        return failed(job, YOLK_ERR_STUCK);
    (void)!device_transfer_free(job->scratch[0]);
    job->scratch[0] = NULL;
    if (status == YOLK_OK && job->begun < job->size)
        return gpu_begin(self, job);
    return status == YOLK_OK ? COPY_DONE : failed(job, status);
}

void engine_copier_gpu(struct yolk_engine *engine, struct copier *out)
{
    *out = (struct copier){engine, UINT32_C(1) << POLICY_CUDA, gpu_start, gpu_poll};
}

/* Waits for it. */
static enum yolk_status copy_now(struct yolk_engine *engine, void *to, const void *from,
                                 uint64_t size, uint32_t gpu, bool to_gpu)
{
    struct copy_job job = {.gpu = gpu, .to_gpu = to_gpu, .pageable = true};
    enum copy_state state = gpu_start(engine, to, from, size, &job);
    uint64_t until = clock_after_ms(clock_real_now_ns(), COPY_TIMEOUT_MS);
    while (state == COPY_UNDER_WAY && clock_real_now_ns() < until) {
        if (job.scratch[0] == NULL)
            thread_relax();
        else if (device_transfer_wait(job.scratch[0], until) == YOLK_ERR_TIMEOUT)
            break;
        state = gpu_poll(engine, &job);
    }
    if (state == COPY_UNDER_WAY)
        return base_fail(YOLK_ERR_STUCK, 0, "GPU %u did not copy %llu bytes in %d s", gpu - 1,
                         (unsigned long long)size, COPY_TIMEOUT_MS / 1000);
    return state == COPY_DONE ? YOLK_OK : job.status;
}

enum yolk_status engine_memory_gpu(struct yolk_engine *engine, const void *memory, uint64_t size,
                                   uint32_t *gpu)
{
    struct engine_memory kind;
    enum yolk_status status = engine_memory_look(engine, memory, size, &kind);
    *gpu = kind.gpu;
    return status;
}

/* `memory` is the one of both that may be a GPU's. */
static enum yolk_status move(struct yolk_engine *engine, void *to, const void *from, uint64_t size,
                             const void *memory, bool to_gpu)
{
    struct engine_memory kind;
    enum yolk_status status = engine_memory_look(engine, memory, size, &kind);
    if (status != YOLK_OK)
        return status;
    if (kind.gpu != 0)
        return copy_now(engine, to, from, size, kind.gpu, to_gpu);
    memcpy(to, from, size);
    return YOLK_OK;
}

enum yolk_status engine_memory_read(struct yolk_engine *engine, void *to, const void *memory,
                                    uint64_t size)
{
    return move(engine, to, memory, size, memory, false);
}

enum yolk_status engine_memory_write(struct yolk_engine *engine, void *memory, const void *from,
                                     uint64_t size)
{
    return move(engine, memory, from, size, memory, true);
}

enum yolk_status engine_memory_checksum(struct yolk_engine *engine, const void *memory,
                                        uint64_t size, uint32_t *crc)
{
    struct engine_memory kind;
    enum yolk_status status = engine_memory_look(engine, memory, size, &kind);
    if (status != YOLK_OK)
        return status;
    if (kind.gpu == 0) {
        *crc = base_crc32c(*crc, memory, size);
        return YOLK_OK;
    }
    uint64_t room = size < CHECKSUM_BYTES ? size : CHECKSUM_BYTES;
    uint8_t *buffer = base_malloc(room);
    if (buffer == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the checksum of a GPU's memory");
    for (uint64_t done = 0; done < size && status == YOLK_OK; done += room) {
        uint64_t piece = size - done < room ? size - done : room;
        status = copy_now(engine, buffer, (const uint8_t *)memory + done, piece, kind.gpu, false);
        if (status == YOLK_OK)
            *crc = base_crc32c(*crc, buffer, piece);
    }
    if (status != YOLK_ERR_STUCK) /* else it may still be written */
        free(buffer);
    return status;
}
