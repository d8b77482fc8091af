/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of each kind that nvlink serves. */
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include "roles.h"

#include <yolk/engine.h>

#include "device/vmm.h"

enum kind {
    BY_DESCRIPTOR,
    BY_IPC,
    BY_FABRIC,
    NUMA_DESCRIPTOR,
    NUMA_FABRIC,
    SEVERAL_DESCRIPTOR, /* several allocations mapped side by side */
    SEVERAL_FABRIC
};

static const char *const kind_names[] = {"a GPU's memory by descriptor",
                                         "a GPU's memory by CUDA IPC",
                                         "a GPU's memory by fabric handle",
                                         "a NUMA node's memory by descriptor",
                                         "a NUMA node's memory by fabric handle",
                                         "a GPU's memory by several descriptors",
                                         "a GPU's memory by several fabric handles"};

static uint64_t memory_size(void)
{
    return (uint64_t)(kit_real() ? 256 : 4) << 20;
}

static bool is_numa(enum kind kind)
{
    return kind == NUMA_DESCRIPTOR || kind == NUMA_FABRIC;
}

static int handle_of(enum kind kind)
{
    bool fabric = kind == BY_FABRIC || kind == NUMA_FABRIC || kind == SEVERAL_FABRIC;
    return fabric ? CUDA_HANDLE_FABRIC : CUDA_HANDLE_POSIX_FD;
}

static int gpu_of(struct device *device, int wished)
{
    int last = (int)device_count(device) - 1;
    return wished < last ? wished : last;
}

struct memory {
    struct device *device;
    enum kind kind;
    int gpu;
    struct vmm vmm; /* of one allocation or of several */
    void *pointer;
};

/* Allocations of 2, 4, 6, 8, 2, … MiB; the memory begins and ends in the middle of one. */
static void make_several(struct memory *m, struct vmm_place place, uint64_t size)
{
    enum { PARTS_MAX = 128 };
    struct vmm_part parts[PARTS_MAX];
    const struct cuda *cuda = device_cuda(m->device);
    const struct cuda_allocation_prop prop = {.type = CUDA_ALLOCATION_PINNED,
                                              .handle_types = handle_of(m->kind),
                                              .location = {place.location, place.id}};
    unsigned count = 0;
    for (uint64_t made = 0; made < size + ((uint64_t)1 << 20); count++) {
        CHECK(count < PARTS_MAX);
        parts[count].size = (uint64_t)(2 + count % 4 * 2) << 20;
        CHECK(cuda->mem_create(&parts[count].allocation, parts[count].size, &prop, 0) == CUDA_OK);
        made += parts[count].size;
    }
    CHECK(count > 1);
    CHECK_OK(vmm_adopt(cuda, parts, count, device_count(m->device), false, &m->vmm));
    m->pointer = (char *)(uintptr_t)m->vmm.address + ((uint64_t)1 << 20);
}

static void make_memory(struct memory *m, uint64_t size)
{
    struct device_scope scope;
    struct vmm_place place = {is_numa(m->kind) ? CUDA_LOCATION_HOST_NUMA : CUDA_LOCATION_DEVICE,
                              is_numa(m->kind) ? 0 : m->gpu};
    if (m->kind == BY_IPC) {
        m->pointer = kit_gpu_alloc(m->device, m->gpu, size);
        return;
    }
    CHECK_OK(device_enter(m->device, m->gpu, &scope));
    if (m->kind == SEVERAL_DESCRIPTOR || m->kind == SEVERAL_FABRIC) {
        make_several(m, place, size);
    } else {
        CHECK_OK(vmm_create(device_cuda(m->device), place, handle_of(m->kind),
                            device_count(m->device), size, 0, &m->vmm));
        m->pointer = (void *)(uintptr_t)m->vmm.address;
    }
    device_leave(m->device, &scope);
}

static void free_memory(struct memory *m)
{
    struct device_scope scope;
    if (m->kind == BY_IPC) {
        kit_gpu_free(m->device, m->gpu, m->pointer);
        return;
    }
    CHECK_OK(device_enter(m->device, m->gpu, &scope));
    CHECK_OK(vmm_release(&m->vmm));
    device_leave(m->device, &scope);
}

#endif
