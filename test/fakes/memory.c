/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fake GPU: what lies where, who may touch it; pointers' attributes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

enum { PAGE = 4096, GRANULE = 2 << 20 };

static size_t round_up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

struct fake_allocation *fake_find(uintptr_t address)
{
    for (unsigned i = 0; i < fake.allocation_count; i++) {
        struct fake_allocation *a = &fake.allocations[i];
        if (a->kind != FAKE_NONE && address - a->base < a->size)
            return a;
    }
    return NULL;
}

struct fake_allocation *fake_take(void)
{
    for (unsigned i = 0; i < fake.allocation_count; i++) {
        if (fake.allocations[i].kind == FAKE_NONE)
            return &fake.allocations[i];
    }
    return fake.allocation_count < FAKE_ALLOCATIONS ? &fake.allocations[fake.allocation_count++]
                                                    : NULL;
}

static bool may(const struct fake_allocation *a, int ordinal, bool write)
{
    if (a->kind == FAKE_VMM)
        return (a->access >> ordinal & 1) != 0;
    if (a->kind == FAKE_REGISTERED && write && (a->flags & CUDA_HOST_READ_ONLY))
        return false;
    /* Peers are not switched on, so a GPU reaches its own memory only, and what it has opened. */
    return (a->kind != FAKE_DEVICE && a->kind != FAKE_IPC) || a->ordinal == ordinal;
}

uint8_t *fake_reach(int ordinal, uintptr_t address, size_t size, bool write, bool *ordinary)
{
    struct fake_allocation *a = fake_find(address);
    *ordinary = a == NULL;
    if (a == NULL || size > a->size - (address - a->base) || !may(a, ordinal, write))
        return NULL;
    return a->shadow + (address - a->base);
}

FAKE_API void *fake_cuda_shadow(const void *pointer, size_t size)
{
    pthread_mutex_lock(&fake.lock);
    struct fake_allocation *a = fake_find((uintptr_t)pointer);
    void *found = NULL;
    if (a != NULL && size <= a->size - ((uintptr_t)pointer - a->base))
        found = a->shadow + ((uintptr_t)pointer - a->base);
    pthread_mutex_unlock(&fake.lock);
    return found;
}

/* A hidden mapping for the program and an open one for the fake, of the same bytes. */
bool fake_map_twice(struct fake_allocation *a, int fd, size_t size)
{
    void *hidden = mmap(NULL, size + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *shadow = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (hidden == MAP_FAILED || shadow == MAP_FAILED)
        return false;
    a->base = round_up((uintptr_t)hidden, GRANULE);
    munmap(hidden, a->base - (uintptr_t)hidden);
    munmap((void *)(a->base + size), (uintptr_t)hidden + GRANULE - a->base);
    a->mapped_size = size;
    a->shadow = shadow;
    return true;
}

FAKE_API cuda_result cuMemAlloc_v2(cuda_pointer *pointer, size_t size);
FAKE_API cuda_result cuMemAlloc_v2(cuda_pointer *pointer, size_t size)
{
    ENTER("cuMemAlloc", STARTED | CONTEXT | UNSAFE);
    struct fake_allocation *a = size > 0 ? fake_take() : NULL;
    if (a == NULL)
        LEAVE(size == 0 ? CUDA_ERR_INVALID_VALUE : CUDA_ERR_OUT_OF_MEMORY);
    int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    size_t whole = round_up(size, PAGE);
    struct fake_allocation made = {.ordinal = fake_current()->ordinal, .size = size};
    if (fd < 0 || ftruncate(fd, (off_t)whole) != 0 || !fake_map_twice(&made, fd, whole)) {
        close(fd);
        LEAVE(CUDA_ERR_OUT_OF_MEMORY);
    }
    made.fd = fd;
    made.kind = FAKE_DEVICE;
    made.id = fake_next_id();
    *a = made;
    *pointer = made.base;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemFree_v2(cuda_pointer pointer);
FAKE_API cuda_result cuMemFree_v2(cuda_pointer pointer)
{
    ENTER("cuMemFree", STARTED | UNSAFE);
    fake_drain_all(); /* it waits for what runs */
    struct fake_allocation *a = fake_find(pointer);
    if (a == NULL || a->base != pointer || (a->kind != FAKE_DEVICE && a->kind != FAKE_MANAGED))
        LEAVE(CUDA_ERR_INVALID_VALUE);
    if (a->kind == FAKE_DEVICE) {
        munmap((void *)a->base, a->mapped_size);
        close(a->fd);
    }
    munmap(a->shadow, a->mapped_size);
    a->kind = FAKE_NONE;
    LEAVE(CUDA_OK);
}

static cuda_result alloc_host(void **pointer, size_t size, enum fake_kind kind, unsigned flags)
{
    struct fake_allocation *a = fake_take();
    size_t whole = round_up(size, PAGE);
    if (size == 0)
        return CUDA_ERR_INVALID_VALUE;
    if (a == NULL || (kind == FAKE_PINNED && whole > fake.pinned_max - fake.pinned_bytes))
        return CUDA_ERR_OUT_OF_MEMORY;
    void *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERR_OUT_OF_MEMORY;
    if (kind == FAKE_PINNED)
        fake.pinned_bytes += whole;
    *a = (struct fake_allocation){.kind = kind,
                                  .ordinal = fake_current()->ordinal,
                                  .base = (uintptr_t)memory,
                                  .size = size,
                                  .mapped_size = whole,
                                  .shadow = memory,
                                  .flags = flags,
                                  .id = fake_next_id()};
    *pointer = memory;
    return CUDA_OK;
}

FAKE_API cuda_result cuMemHostAlloc(void **pointer, size_t size, unsigned flags);
FAKE_API cuda_result cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
    ENTER("cuMemHostAlloc", STARTED | CONTEXT | UNSAFE);
    LEAVE(alloc_host(pointer, size, FAKE_PINNED, flags));
}

FAKE_API cuda_result cuMemAllocManaged(cuda_pointer *pointer, size_t size, unsigned flags);
FAKE_API cuda_result cuMemAllocManaged(cuda_pointer *pointer, size_t size, unsigned flags)
{
    void *memory = NULL;
    ENTER("cuMemAllocManaged", STARTED | CONTEXT | UNSAFE);
    cuda_result result = alloc_host(&memory, size, FAKE_MANAGED, flags);
    *pointer = (uintptr_t)memory;
    LEAVE(result);
}

FAKE_API cuda_result cuMemFreeHost(void *pointer);
FAKE_API cuda_result cuMemFreeHost(void *pointer)
{
    ENTER("cuMemFreeHost", STARTED | UNSAFE);
    fake_drain_all();
    struct fake_allocation *a = fake_find((uintptr_t)pointer);
    if (a == NULL || a->kind != FAKE_PINNED || a->base != (uintptr_t)pointer)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    fake.pinned_bytes -= a->mapped_size;
    munmap(pointer, a->mapped_size);
    a->kind = FAKE_NONE;
    LEAVE(CUDA_OK);
}

/* Seen: memory that may only be read needs flag 8; flag 0 fails with error 1. */
static bool writable(uintptr_t base, size_t size)
{
    char line[512];
    bool good = true;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && start < base + size &&
            base < end)
            good = good && rights[1] == 'w';
    }
    if (file != NULL)
        fclose(file);
    return good;
}

FAKE_API cuda_result cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags);
FAKE_API cuda_result cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
    uintptr_t base = (uintptr_t)pointer;
    ENTER("cuMemHostRegister", STARTED | CONTEXT | UNSAFE);
    struct fake_allocation *a = fake_take();
    if (pointer == NULL || size == 0)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    for (unsigned i = 0; i < fake.allocation_count; i++) { /* U5 */
        const struct fake_allocation *old = &fake.allocations[i];
        if (old->kind == FAKE_REGISTERED && old->base < base + size && base < old->base + old->size)
            LEAVE(CUDA_ERR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    if (!(flags & CUDA_HOST_READ_ONLY) && !writable(base, size))
        LEAVE(CUDA_ERR_INVALID_VALUE);
    if (a == NULL || size > fake.pinned_max - fake.pinned_bytes)
        LEAVE(CUDA_ERR_OUT_OF_MEMORY);
    fake.pinned_bytes += size;
    *a = (struct fake_allocation){.kind = FAKE_REGISTERED,
                                  .ordinal = fake_current()->ordinal,
                                  .base = base,
                                  .size = size,
                                  .shadow = pointer,
                                  .flags = flags,
                                  .id = fake_next_id()};
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemHostUnregister(void *pointer);
FAKE_API cuda_result cuMemHostUnregister(void *pointer)
{
    ENTER("cuMemHostUnregister", STARTED | UNSAFE);
    struct fake_allocation *a = fake_find((uintptr_t)pointer);
    if (a == NULL || a->kind != FAKE_REGISTERED || a->base != (uintptr_t)pointer)
        LEAVE(CUDA_ERR_HOST_MEMORY_NOT_REGISTERED);
    fake.pinned_bytes -= a->size;
    a->kind = FAKE_NONE;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemHostGetDevicePointer_v2(cuda_pointer *device, void *pointer,
                                                  unsigned flags);
FAKE_API cuda_result cuMemHostGetDevicePointer_v2(cuda_pointer *device, void *pointer,
                                                  unsigned flags)
{
    (void)flags;
    ENTER("cuMemHostGetDevicePointer", STARTED | CONTEXT);
    struct fake_allocation *a = fake_find((uintptr_t)pointer);
    if (a == NULL || (a->kind != FAKE_PINNED && a->kind != FAKE_REGISTERED))
        LEAVE(CUDA_ERR_INVALID_VALUE);
    *device = (uintptr_t)pointer;
    LEAVE(CUDA_OK);
}

/* ---- attributes of pointers ---- */

/* What the driver calls the range of an address. */
static struct fake_addresses range_of(const struct fake_allocation *a)
{
    if (a == NULL)
        return (struct fake_addresses){0, 0};
    for (unsigned i = 0; i < FAKE_ALLOCATIONS && a->kind == FAKE_VMM; i++) { /* U2 */
        if (a->base - fake.addresses[i].base < fake.addresses[i].size)
            return fake.addresses[i];
    }
    return (struct fake_addresses){a->base, a->size};
}

static bool value_of(const struct fake_allocation *a, int attribute, cuda_pointer pointer,
                     void *value)
{
    bool device = a != NULL && (a->kind == FAKE_DEVICE || a->kind == FAKE_IPC);
    if (a != NULL && a->kind == FAKE_VMM)
        device = a->handle->location.type == CUDA_LOCATION_DEVICE;
    switch (attribute) {
    case CUDA_POINTER_CONTEXT:
        *(cuda_context *)value = a != NULL ? &fake.contexts[a->ordinal] : NULL;
        return a != NULL;
    case CUDA_POINTER_MEMORY_TYPE: /* U4 */
        *(unsigned *)value = a == NULL ? 0 : device ? CUDA_MEMORY_DEVICE : CUDA_MEMORY_HOST;
        if (a != NULL && a->kind == FAKE_MANAGED)
            *(unsigned *)value = CUDA_MEMORY_DEVICE;
        return a != NULL;
    case CUDA_POINTER_DEVICE_POINTER:
        *(cuda_pointer *)value = a != NULL ? pointer : 0;
        return a != NULL;
    case CUDA_POINTER_BUFFER_ID:
        *(uint64_t *)value = a != NULL ? a->id : 0;
        return a != NULL;
    case CUDA_POINTER_IS_MANAGED:
        *(unsigned *)value = a != NULL && a->kind == FAKE_MANAGED;
        return a != NULL;
    case CUDA_POINTER_ORDINAL:
        *(int *)value = a != NULL ? a->ordinal : -2;
        return a != NULL;
    case CUDA_POINTER_RANGE_START:
        *(cuda_pointer *)value = range_of(a).base;
        return a != NULL;
    case CUDA_POINTER_RANGE_SIZE:
        *(size_t *)value = range_of(a).size;
        return a != NULL;
    default:
        return false;
    }
}

FAKE_API cuda_result cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                            cuda_pointer pointer);
FAKE_API cuda_result cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                            cuda_pointer pointer)
{
    ENTER("cuPointerGetAttributes", STARTED);
    for (unsigned i = 0; i < count; i++) /* U1 */
        (void)value_of(fake_find(pointer), attributes[i], pointer, values[i]);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuPointerGetAttribute(void *value, int attribute, cuda_pointer pointer);
FAKE_API cuda_result cuPointerGetAttribute(void *value, int attribute, cuda_pointer pointer)
{
    ENTER("cuPointerGetAttribute", STARTED);
    LEAVE(value_of(fake_find(pointer), attribute, pointer, value) ? CUDA_OK
                                                                  : CUDA_ERR_INVALID_VALUE);
}
