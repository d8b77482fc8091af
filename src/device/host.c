/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that GPUs reach: pinned by the driver, or somebody else's and registered by pieces.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/internal.h"
#include "platform/memory.h"

int device_pinned_alloc(struct device *device, int ordinal, size_t size, void **out)
{
    int status;
    struct device_scope scope;
    *out = NULL;
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    if (gpu == NULL)
        return status;
    if (size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "pinned memory of 0 bytes");
    mutex_lock(&device->host_lock);
    bool room = size <= device->options.pinned_bytes_max &&
                device->pinned_bytes <= device->options.pinned_bytes_max - size;
    if (room)
        device->pinned_bytes += size;
    mutex_unlock(&device->host_lock);
    if (!room)
        return base_fail(YOLK_ERR_LIMIT, 0,
                         "pinned memory of %zu bytes: at most %llu are allowed in all", size,
                         (unsigned long long)device->options.pinned_bytes_max);
    status = gpu_enter(gpu, &scope);
    if (status == YOLK_OK) {
        cuda_result error =
            device->cuda.mem_host_alloc(out, size, CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP);
        if (error != CUDA_OK)
            status = gpu_fail(gpu, error, "cuMemHostAlloc");
        device_leave(device, &scope);
    }
    if (status != YOLK_OK) {
        mutex_lock(&device->host_lock);
        device->pinned_bytes -= size;
        mutex_unlock(&device->host_lock);
    }
    return status;
}

void device_pinned_free(struct device *device, void *memory, size_t size)
{
    if (memory == NULL)
        return;
    struct device_scope scope;
    if (scope_to_free(device, &scope)) {
        (void)device->cuda.mem_free_host(memory);
        device_leave(device, &scope);
    }
    mutex_lock(&device->host_lock);
    device->pinned_bytes -= size;
    mutex_unlock(&device->host_lock);
}

enum chunk_state { CHUNK_NONE, CHUNK_BUSY /* a thread registers or unregisters it */, CHUNK_READY };

struct chunk {
    struct base_list idle; /* among those that nobody holds */
    struct device_range *range;
    unsigned holds;
    enum chunk_state state;
};

struct device_range {
    struct device *device;
    char *base; /* of whole pages, as the driver counts them */
    size_t size;
    size_t skipped; /* from base to the caller's memory */
    size_t memory_size;
    bool read_only;
    size_t chunk_count;
    struct chunk chunks[];
};

static size_t chunk_size(const struct device_range *range, size_t index)
{
    size_t left = range->size - index * DEVICE_CHUNK;
    return left < DEVICE_CHUNK ? left : DEVICE_CHUNK;
}

static char *chunk_base(const struct device_range *range, size_t index)
{
    return range->base + index * DEVICE_CHUNK;
}

int device_range_add(struct device *device, void *memory, size_t size, bool read_only,
                     struct device_range **out)
{
    size_t page = memory_page_size();
    size_t skipped = (uintptr_t)memory % page;
    *out = NULL;
    int status = device_check(device);
    if (status != YOLK_OK)
        return status;
    if (memory == NULL || size == 0 || size > SIZE_MAX - 2 * page)
        return base_fail(YOLK_ERR_INVALID, 0, "host memory %p of %zu bytes cannot be registered",
                         memory, size);
    if (read_only && !device->gpus[0].read_only_host)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "GPU 0 cannot reach memory that this process may only read");
    size_t whole = (skipped + size + page - 1) / page * page;
    size_t count = (whole + DEVICE_CHUNK - 1) / DEVICE_CHUNK;
    struct device_range *range = base_calloc(1, sizeof(*range) + count * sizeof(range->chunks[0]));
    if (range == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a range of host memory");
    range->device = device;
    range->base = (char *)memory - skipped;
    range->size = whole;
    range->skipped = skipped;
    range->memory_size = size;
    range->read_only = read_only;
    range->chunk_count = count;
    for (size_t i = 0; i < count; i++) {
        base_list_init(&range->chunks[i].idle);
        range->chunks[i].range = range;
    }
    *out = range;
    return YOLK_OK;
}

/* Under the lock, which it lets go meanwhile. The chunk is idle and leaves that list. */
static void unregister(struct device *device, struct chunk *chunk)
{
    struct device_range *range = chunk->range;
    size_t index = (size_t)(chunk - range->chunks);
    base_list_remove(&chunk->idle);
    chunk->state = CHUNK_BUSY;
    device->unregistering++;
    mutex_unlock(&device->host_lock);
    struct device_scope scope;
    if (scope_to_free(device, &scope)) {
        (void)device->cuda.mem_host_unregister(chunk_base(range, index));
        device_leave(device, &scope);
    }
    atomic_fetch_add_explicit(&device->deregistrations, 1, memory_order_relaxed);
    mutex_lock(&device->host_lock);
    device->unregistering--;
    chunk->state = CHUNK_NONE;
    device->registered_bytes -= chunk_size(range, index);
    condition_broadcast(&device->host_changed);
}

/* Under the lock. Sends away what was not used for longest until `size` more bytes may come. */
static int make_room(struct device *device, size_t size)
{
    uint64_t max = device->options.registered_bytes_max;
    while (size > max || device->registered_bytes > max - size) {
        struct base_list *oldest = base_list_first(&device->idle);
        if (oldest == NULL && device->unregistering > 0) {
            condition_wait(&device->host_changed, &device->host_lock);
            continue;
        }
        if (oldest == NULL)
            return base_fail(YOLK_ERR_LIMIT, 0,
                             "%llu bytes of host memory are registered and in use; %zu more would "
                             "exceed the limit of %llu",
                             (unsigned long long)device->registered_bytes, size,
                             (unsigned long long)max);
        unregister(device, BASE_CONTAINER(oldest, struct chunk, idle));
    }
    return YOLK_OK;
}

/* Under the lock, which it lets go meanwhile: registering takes 11 ms and more. */
static int register_chunk(struct gpu *gpu, struct chunk *chunk)
{
    struct device *device = gpu->device;
    struct device_range *range = chunk->range;
    size_t index = (size_t)(chunk - range->chunks);
    size_t size = chunk_size(range, index);
    unsigned flags = CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP;
    struct device_scope scope;
    chunk->state = CHUNK_BUSY;
    int status = make_room(device, size);
    if (status == YOLK_OK) {
        device->registered_bytes += size;
        mutex_unlock(&device->host_lock);
        status = gpu_enter(gpu, &scope);
        if (status == YOLK_OK) {
            cuda_result error = device->cuda.mem_host_register(
                chunk_base(range, index), size,
                range->read_only ? flags | CUDA_HOST_READ_ONLY : flags);
            if (error != CUDA_OK)
                status = gpu_fail(gpu, error, "cuMemHostRegister");
            if (error == CUDA_ERR_HOST_MEMORY_ALREADY_REGISTERED)
                status = YOLK_ERR_EXISTS;
            device_leave(device, &scope);
        }
        mutex_lock(&device->host_lock);
        if (status != YOLK_OK)
            device->registered_bytes -= size;
        else
            atomic_fetch_add_explicit(&device->registrations, 1, memory_order_relaxed);
    }
    chunk->state = status == YOLK_OK ? CHUNK_READY : CHUNK_NONE;
    condition_broadcast(&device->host_changed);
    return status;
}

static int hold_chunk(struct gpu *gpu, struct chunk *chunk)
{
    struct device *device = gpu->device;
    while (chunk->state != CHUNK_READY) {
        if (chunk->state == CHUNK_BUSY) {
            condition_wait(&device->host_changed, &device->host_lock);
            continue;
        }
        int status = register_chunk(gpu, chunk);
        if (status != YOLK_OK)
            return status;
    }
    if (chunk->holds++ == 0)
        base_list_remove(&chunk->idle);
    return YOLK_OK;
}

static void release_chunk(struct device *device, struct chunk *chunk)
{
    if (--chunk->holds == 0)
        base_list_push_back(&device->idle, &chunk->idle);
}

int device_range_hold(struct device_range *range, int ordinal, size_t offset, size_t size)
{
    int status;
    struct gpu *gpu = device_gpu_of(range->device, ordinal, &status);
    if (gpu == NULL)
        return status;
    if (size == 0 || offset > range->memory_size || size > range->memory_size - offset)
        return base_fail(YOLK_ERR_INVALID, 0, "%zu bytes at %zu: the range has %zu", size, offset,
                         range->memory_size);
    size_t first = (range->skipped + offset) / DEVICE_CHUNK;
    size_t last = (range->skipped + offset + size - 1) / DEVICE_CHUNK;
    mutex_lock(&range->device->host_lock);
    for (size_t i = first; i <= last && status == YOLK_OK; i++) {
        status = hold_chunk(gpu, &range->chunks[i]);
        while (status != YOLK_OK && i-- > first)
            release_chunk(range->device, &range->chunks[i]);
        if (status != YOLK_OK)
            break;
    }
    mutex_unlock(&range->device->host_lock);
    return status;
}

void device_range_release(struct device_range *range, size_t offset, size_t size)
{
    mutex_lock(&range->device->host_lock);
    for (size_t i = (range->skipped + offset) / DEVICE_CHUNK;
         i <= (range->skipped + offset + size - 1) / DEVICE_CHUNK; i++)
        release_chunk(range->device, &range->chunks[i]);
    mutex_unlock(&range->device->host_lock);
}

int device_range_remove(struct device_range *range)
{
    struct device *device = range->device;
    int status = YOLK_OK;
    mutex_lock(&device->host_lock);
    for (size_t i = 0; i < range->chunk_count; i++) {
        if (range->chunks[i].holds > 0 || range->chunks[i].state == CHUNK_BUSY)
            status = base_fail(YOLK_ERR_BUSY, 0, "a part of the range at offset %zu is in use",
                               i * DEVICE_CHUNK);
    }
    for (size_t i = 0; i < range->chunk_count && status == YOLK_OK; i++) {
        if (range->chunks[i].state == CHUNK_READY)
            unregister(device, &range->chunks[i]);
    }
    mutex_unlock(&device->host_lock);
    if (status == YOLK_OK)
        free(range);
    return status;
}

void device_range_abandon(struct device_range *range)
{
    struct device *device = range->device;
    mutex_lock(&device->host_lock);
    for (size_t i = 0; i < range->chunk_count; i++) {
        if (range->chunks[i].state == CHUNK_READY && range->chunks[i].holds == 0)
            unregister(device, &range->chunks[i]);
    }
    mutex_unlock(&device->host_lock);
    free(range);
}
