/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of memory a pointer is. */
#include <string.h>

#include "base/error.h"
#include "device/internal.h"
#include "device/vmm.h"

const char *device_kind_name(enum device_kind kind)
{
    static const char *const names[] = {"host memory", "pinned host memory", "managed memory",
                                        "memory of a GPU", "host memory of the driver"};
    return names[kind];
}

struct attributes {
    unsigned type;
    int ordinal;
    uint64_t id;
    unsigned managed;
    cuda_pointer start;
    size_t size;
};

static cuda_result ask(const struct cuda *cuda, const void *pointer, struct attributes *out)
{
    int which[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_ORDINAL,     CUDA_POINTER_BUFFER_ID,
                   CUDA_POINTER_IS_MANAGED,  CUDA_POINTER_RANGE_START, CUDA_POINTER_RANGE_SIZE};
    void *values[] = {&out->type, &out->ordinal, &out->id, &out->managed, &out->start, &out->size};
    memset(out, 0, sizeof(*out));
    return cuda->pointer_get_attributes(sizeof(which) / sizeof(which[0]), which, values,
                                        (uintptr_t)pointer);
}

/* Memory that some context knows is known to each; where no GPU has one, there is none. */
static cuda_result ask_in_context(struct device *device, const void *pointer,
                                  struct attributes *out)
{
    for (unsigned i = 0; i < device->gpu_count; i++) {
        struct gpu *gpu = &device->gpus[i];
        unsigned flags;
        int active = 0;
        struct device_scope scope;
        if (device->cuda.primary_ctx_get_state(gpu->handle, &flags, &active) != CUDA_OK ||
            !active || gpu_enter(gpu, &scope) != YOLK_OK)
            continue;
        cuda_result error = ask(&device->cuda, pointer, out);
        device_leave(device, &scope);
        return error;
    }
    memset(out, 0, sizeof(*out));
    return CUDA_OK;
}

/* What was made with a handle tells more: where it lies. */
static void ask_handle(const struct cuda *cuda, const void *pointer, struct device_memory *out)
{
    cuda_allocation allocation;
    struct cuda_allocation_prop prop;
    memset(&prop, 0, sizeof(prop));
    if (cuda->missing[CUDA_VMM] != NULL ||
        cuda->mem_retain_allocation_handle(&allocation, (void *)(uintptr_t)pointer) != CUDA_OK)
        return;
    out->vmm = true;
    if (cuda->mem_get_allocation_properties(&prop, allocation) == CUDA_OK) {
        if (prop.location.type == CUDA_LOCATION_HOST_NUMA ||
            prop.location.type == CUDA_LOCATION_HOST) {
            out->kind = DEVICE_HOST_NUMA;
            out->numa_node = prop.location.type == CUDA_LOCATION_HOST_NUMA ? prop.location.id : -1;
        } else if (prop.location.type == CUDA_LOCATION_DEVICE) {
            out->kind = DEVICE_GPU;
            out->ordinal = prop.location.id;
        }
    }
    vmm_let_go(cuda, allocation);
}

static void classify(struct device *device, const void *pointer, const struct attributes *found,
                     struct device_memory *out)
{
    out->base = found->start;
    out->size = found->size;
    out->id = found->id;
    if (found->managed) {
        out->kind = DEVICE_MANAGED;
        return;
    }
    if (found->type == CUDA_MEMORY_DEVICE) {
        out->kind = DEVICE_GPU;
        out->ordinal = found->ordinal;
    } else {
        out->kind = DEVICE_HOST_PINNED;
    }
    ask_handle(&device->cuda, pointer, out);
    if (out->kind != DEVICE_GPU)
        out->ordinal = -1;
    else if ((unsigned)out->ordinal < device->gpu_count)
        memcpy(out->uuid, device->gpus[out->ordinal].info.uuid, sizeof(out->uuid));
}

/* The place of the entry that covers the address, or cache_count. */
static unsigned cached_at(const struct device *device, uint64_t address)
{
    unsigned i = 0;
    while (i < device->cache_count &&
           address - device->cache[i].memory.base >= device->cache[i].memory.size)
        i++;
    return i;
}

static bool look_up(struct device *device, const void *pointer, struct device_memory *out)
{
    uint64_t id = 0;
    bool found;
    mutex_lock(&device->query_lock);
    unsigned i = cached_at(device, (uintptr_t)pointer);
    found = i < device->cache_count;
    if (found) {
        device->cache[i].used = ++device->cache_clock;
        *out = device->cache[i].memory;
    }
    mutex_unlock(&device->query_lock);
    /* Memory at one address may have been freed and be another allocation's by now. */
    return found &&
           device->cuda.pointer_get_attribute(&id, CUDA_POINTER_BUFFER_ID, (uintptr_t)pointer) ==
               CUDA_OK &&
           id == out->id;
}

static void remember(struct device *device, const struct device_memory *memory)
{
    if (memory->id == 0 || memory->size == 0)
        return;
    mutex_lock(&device->query_lock);
    /* Whatever overlaps it is of the past. */
    for (unsigned i = 0; i < device->cache_count;) {
        const struct device_memory *old = &device->cache[i].memory;
        if (old->base < memory->base + memory->size && memory->base < old->base + old->size)
            device->cache[i] = device->cache[--device->cache_count];
        else
            i++;
    }
    unsigned at = device->cache_count;
    if (at < QUERY_CACHE) {
        device->cache_count++;
    } else {
        at = 0;
        for (unsigned i = 1; i < QUERY_CACHE; i++) {
            if (device->cache[i].used < device->cache[at].used)
                at = i;
        }
    }
    device->cache[at] = (struct cached){*memory, ++device->cache_clock};
    mutex_unlock(&device->query_lock);
}

int device_query(struct device *device, const void *pointer, struct device_memory *out)
{
    struct device_scope scope;
    struct attributes found;
    int status = device_enter(device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    atomic_fetch_add_explicit(&device->queries, 1, memory_order_relaxed);
    if (look_up(device, pointer, out)) {
        atomic_fetch_add_explicit(&device->query_hits, 1, memory_order_relaxed);
        device_leave(device, &scope);
        return YOLK_OK;
    }
    *out = (struct device_memory){.ordinal = -1, .numa_node = -1};
    cuda_result error = ask(&device->cuda, pointer, &found);
    if (error == CUDA_ERR_INVALID_CONTEXT || error == CUDA_ERR_NOT_INITIALIZED)
        error = ask_in_context(device, pointer, &found);
    if (error == CUDA_OK && (found.type != 0 || found.managed)) {
        classify(device, pointer, &found, out);
        remember(device, out);
    }
    /* Ordinary memory: the driver calls it invalid, or of no type. */
    if (error != CUDA_OK && error != CUDA_ERR_INVALID_VALUE)
        status = cuda_fail(&device->cuda, error, "cuPointerGetAttributes of %p", pointer);
    device_leave(device, &scope);
    return status;
}
