/* SPDX-License-Identifier: Apache-2.0 */
/* Memory with handles. A handle is a memfd; what is exported can be imported, but not mapped by
 * mmap, as was seen of real ones. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"

enum { GRANULARITY = 2 << 20 };
#define HOST_ACCESS (1u << 31)

static bool is_host(const struct cuda_location *location)
{
    return location->type == CUDA_LOCATION_HOST || location->type == CUDA_LOCATION_HOST_NUMA;
}

static cuda_result check(const struct cuda_allocation_prop *prop)
{
    if (prop->type != CUDA_ALLOCATION_PINNED)
        return CUDA_ERR_INVALID_VALUE;
    if (prop->location.type == CUDA_LOCATION_DEVICE && prop->location.id >= fake.gpus)
        return CUDA_ERR_INVALID_DEVICE;
    if (prop->location.type == CUDA_LOCATION_HOST_NUMA && !fake.host_numa)
        return CUDA_ERR_NOT_SUPPORTED;
    if (prop->location.type == CUDA_LOCATION_HOST_NUMA &&
        (prop->location.id < 0 || prop->location.id >= fake.node_count))
        return CUDA_ERR_INVALID_DEVICE;
    /* Seen: of location HOST nothing can be shared. */
    if (prop->location.type == CUDA_LOCATION_HOST && prop->handle_types != CUDA_HANDLE_NONE)
        return CUDA_ERR_INVALID_VALUE;
    /* Seen: without an IMEX channel, whatever attribute 128 says. */
    if ((prop->handle_types & CUDA_HANDLE_FABRIC) && !fake.fabric)
        return CUDA_ERR_NOT_PERMITTED;
    return CUDA_OK;
}

static size_t granularity_of(const struct cuda_location *location)
{
    size_t own = location->type == CUDA_LOCATION_HOST_NUMA ? fake.granularity[location->id] : 0;
    return own > 0 ? own : GRANULARITY;
}

static struct fake_handle *make(int fd, size_t size, const struct cuda_location *location,
                                int handle_types)
{
    struct fake_handle *handle = fake_new(sizeof(*handle));
    *handle = (struct fake_handle){.fd = fd,
                                   .size = size,
                                   .location = *location,
                                   .handle_types = handle_types,
                                   .host = fake.host,
                                   .domain = fake.domain,
                                   .references = 1};
    fake.handles_open++;
    return handle;
}

static void drop(struct fake_handle *handle)
{
    if (--handle->references > 0)
        return;
    close(handle->fd);
    fake_delete(handle);
    fake.handles_open--;
}

FAKE_API cuda_result cuMemCreate(cuda_allocation *allocation, size_t size,
                                 const struct cuda_allocation_prop *prop, unsigned long long flags);
FAKE_API cuda_result cuMemCreate(cuda_allocation *allocation, size_t size,
                                 const struct cuda_allocation_prop *prop, unsigned long long flags)
{
    char name[64];
    (void)flags;
    ENTER("cuMemCreate", STARTED | UNSAFE);
    cuda_result error = check(prop);
    if (error == CUDA_OK && (size == 0 || size % granularity_of(&prop->location) != 0))
        error = CUDA_ERR_INVALID_VALUE;
    if (error != CUDA_OK)
        LEAVE(error);
    snprintf(name, sizeof(name), "fake-vmm %d %d %d %d %d", prop->location.type, prop->location.id,
             prop->handle_types, fake.host, fake.domain);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        LEAVE(CUDA_ERR_OUT_OF_MEMORY);
    *allocation = (uintptr_t)make(fd, size, &prop->location, prop->handle_types);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemRelease(cuda_allocation allocation);
FAKE_API cuda_result cuMemRelease(cuda_allocation allocation)
{
    ENTER("cuMemRelease", STARTED);
    drop((struct fake_handle *)(uintptr_t)allocation);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemGetAllocationGranularity(size_t *granularity,
                                                   const struct cuda_allocation_prop *prop,
                                                   int option);
FAKE_API cuda_result cuMemGetAllocationGranularity(size_t *granularity,
                                                   const struct cuda_allocation_prop *prop,
                                                   int option)
{
    (void)option;
    ENTER("cuMemGetAllocationGranularity", STARTED);
    cuda_result error = check(prop);
    /* Seen: it is told of memory that could not be made. */
    if (error == CUDA_OK || error == CUDA_ERR_NOT_PERMITTED) {
        *granularity = granularity_of(&prop->location);
        error = CUDA_OK;
    }
    LEAVE(error);
}

FAKE_API cuda_result cuMemAddressReserve(cuda_pointer *pointer, size_t size, size_t alignment,
                                         cuda_pointer wish, unsigned long long flags);
FAKE_API cuda_result cuMemAddressReserve(cuda_pointer *pointer, size_t size, size_t alignment,
                                         cuda_pointer wish, unsigned long long flags)
{
    (void)wish;
    (void)flags;
    ENTER("cuMemAddressReserve", STARTED);
    if (alignment < GRANULARITY)
        alignment = GRANULARITY;
    void *all = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (size == 0 || size % GRANULARITY != 0 || all == MAP_FAILED)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    uintptr_t base = ((uintptr_t)all + alignment - 1) / alignment * alignment;
    if (base > (uintptr_t)all)
        munmap(all, base - (uintptr_t)all);
    munmap((void *)(base + size), (uintptr_t)all + alignment - base);
    for (unsigned i = 0; i < FAKE_ALLOCATIONS; i++) {
        if (fake.addresses[i].size == 0) {
            fake.addresses[i] = (struct fake_addresses){base, size};
            break;
        }
    }
    fake.reserved++;
    *pointer = base;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemAddressFree(cuda_pointer pointer, size_t size);
FAKE_API cuda_result cuMemAddressFree(cuda_pointer pointer, size_t size)
{
    ENTER("cuMemAddressFree", STARTED);
    if (fake_find(pointer) != NULL)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    munmap((void *)(uintptr_t)pointer, size);
    for (unsigned i = 0; i < FAKE_ALLOCATIONS; i++) {
        if (fake.addresses[i].size > 0 && fake.addresses[i].base == pointer)
            fake.addresses[i].size = 0;
    }
    fake.reserved--;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemMap(cuda_pointer pointer, size_t size, size_t offset,
                              cuda_allocation allocation, unsigned long long flags);
FAKE_API cuda_result cuMemMap(cuda_pointer pointer, size_t size, size_t offset,
                              cuda_allocation allocation, unsigned long long flags)
{
    struct fake_handle *handle = (struct fake_handle *)(uintptr_t)allocation;
    (void)flags;
    ENTER("cuMemMap", STARTED);
    struct fake_allocation *place = fake_take();
    if (offset != 0 || size != handle->size || fake_find(pointer) != NULL || place == NULL)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    void *shadow = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, handle->fd, 0);
    if (shadow == MAP_FAILED)
        LEAVE(CUDA_ERR_OUT_OF_MEMORY);
    handle->references++;
    *place = (struct fake_allocation){
        .kind = FAKE_VMM,
        .ordinal = handle->location.type == CUDA_LOCATION_DEVICE ? handle->location.id : 0,
        .base = pointer,
        .size = size,
        .mapped_size = size,
        .shadow = shadow,
        .id = fake_next_id(),
        .handle = handle};
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemUnmap(cuda_pointer pointer, size_t size);
FAKE_API cuda_result cuMemUnmap(cuda_pointer pointer, size_t size)
{
    ENTER("cuMemUnmap", STARTED | UNSAFE);
    fake_drain_all();
    for (uintptr_t at = pointer; at < pointer + size;) {
        struct fake_allocation *a = fake_find(at);
        if (a == NULL || a->kind != FAKE_VMM || a->base != at)
            LEAVE(CUDA_ERR_INVALID_VALUE);
        at += a->size;
        munmap(a->shadow, a->size);
        (void)mmap((void *)a->base, a->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0);
        drop(a->handle);
        a->kind = FAKE_NONE;
    }
    LEAVE(CUDA_OK);
}

/* Seen: memory of HOST_NUMA is the processor's only after its node has been given access. */
static cuda_result set_one(struct fake_allocation *a, const struct cuda_access *access)
{
    bool host = is_host(&access->location);
    unsigned bit = host ? HOST_ACCESS : 1u << access->location.id;
    if (host && (!is_host(&a->handle->location) || a->handle->host != fake.host))
        return CUDA_ERR_INVALID_VALUE;
    if (!host && (access->location.id < 0 || access->location.id >= fake.gpus))
        return CUDA_ERR_INVALID_DEVICE;
    a->access = access->flags != CUDA_ACCESS_NONE ? a->access | bit : a->access & ~bit;
    if (!host)
        return CUDA_OK;
    int rights = access->flags == CUDA_ACCESS_READ_WRITE ? PROT_READ | PROT_WRITE
                 : access->flags == CUDA_ACCESS_READ     ? PROT_READ
                                                         : PROT_NONE;
    void *mapped = mmap((void *)a->base, a->size, rights, MAP_SHARED | MAP_FIXED, a->handle->fd, 0);
    return mapped == MAP_FAILED ? CUDA_ERR_OUT_OF_MEMORY : CUDA_OK;
}

FAKE_API cuda_result cuMemSetAccess(cuda_pointer pointer, size_t size,
                                    const struct cuda_access *access, size_t count);
FAKE_API cuda_result cuMemSetAccess(cuda_pointer pointer, size_t size,
                                    const struct cuda_access *access, size_t count)
{
    ENTER("cuMemSetAccess", STARTED);
    cuda_result error = CUDA_OK;
    for (uintptr_t at = pointer; at < pointer + size && error == CUDA_OK;) {
        struct fake_allocation *a = fake_find(at);
        if (a == NULL || a->kind != FAKE_VMM)
            LEAVE(CUDA_ERR_INVALID_VALUE);
        for (size_t i = 0; i < count && error == CUDA_OK; i++)
            error = set_one(a, &access[i]);
        at = a->base + a->size;
    }
    LEAVE(error);
}

FAKE_API cuda_result cuMemExportToShareableHandle(void *out, cuda_allocation allocation, int type,
                                                  unsigned long long flags);
FAKE_API cuda_result cuMemExportToShareableHandle(void *out, cuda_allocation allocation, int type,
                                                  unsigned long long flags)
{
    struct fake_handle *handle = (struct fake_handle *)(uintptr_t)allocation;
    char path[64];
    (void)flags;
    ENTER("cuMemExportToShareableHandle", STARTED);
    if (!(handle->handle_types & type))
        LEAVE(CUDA_ERR_INVALID_VALUE);
    struct stat info;
    if (type == CUDA_HANDLE_FABRIC) { /* a name that each process of the machine can open */
        memset(out, 0, sizeof(struct cuda_fabric_handle));
        if (fstat(handle->fd, &info) != 0)
            LEAVE(CUDA_ERR_UNKNOWN);
        snprintf(out, sizeof(struct cuda_fabric_handle), "fabric %d %d %llu", (int)getpid(),
                 handle->fd, (unsigned long long)info.st_ino);
        LEAVE(CUDA_OK);
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", handle->fd);
    int fd = open(path, O_PATH | O_CLOEXEC); /* mmap refuses it */
    memcpy(out, &fd, sizeof(fd));
    LEAVE(fd >= 0 ? CUDA_OK : CUDA_ERR_UNKNOWN);
}

int fake_open_of(int process, int fd, uint64_t inode)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", process, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened >= 0 && (fstat(opened, &info) != 0 || (inode != 0 && info.st_ino != inode))) {
        close(opened);
        opened = -1;
    }
    return opened;
}

/* What a name of a memfd of ours tells of it. */
static bool describe(int fd, struct fake_handle *out)
{
    char path[64], name[128] = "";
    struct stat info;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof(name) - 1) < 0 || fstat(fd, &info) != 0 ||
        sscanf(name, "/memfd:fake-vmm %d %d %d %d %d", &out->location.type, &out->location.id,
               &out->handle_types, &out->host, &out->domain) != 5)
        return false;
    out->size = (size_t)info.st_size;
    return true;
}

FAKE_API cuda_result cuMemImportFromShareableHandle(cuda_allocation *allocation, void *in,
                                                    int type);
FAKE_API cuda_result cuMemImportFromShareableHandle(cuda_allocation *allocation, void *in, int type)
{
    struct fake_handle found;
    int process = 0, number = -1, fd = -1;
    unsigned long long inode = 0;
    ENTER("cuMemImportFromShareableHandle", STARTED | UNSAFE);
    if (type == CUDA_HANDLE_FABRIC && !fake.fabric)
        LEAVE(CUDA_ERR_NOT_PERMITTED);
    if (type != CUDA_HANDLE_FABRIC)
        fd = fake_open_of((int)getpid(), (int)(intptr_t)in, 0);
    else if (sscanf(in, "fabric %d %d %llu", &process, &number, &inode) == 3)
        fd = fake_open_of(process, number, inode);
    if (fd < 0 || !describe(fd, &found)) {
        if (fd >= 0)
            close(fd);
        LEAVE(CUDA_ERR_INVALID_VALUE);
    }
    if (type == CUDA_HANDLE_FABRIC ? found.domain != fake.domain : found.host != fake.host) {
        close(fd);
        LEAVE(CUDA_ERR_INVALID_HANDLE);
    }
    struct fake_handle *made = make(fd, found.size, &found.location, found.handle_types);
    made->host = found.host;
    made->domain = found.domain;
    *allocation = (uintptr_t)made;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemRetainAllocationHandle(cuda_allocation *allocation, void *pointer);
FAKE_API cuda_result cuMemRetainAllocationHandle(cuda_allocation *allocation, void *pointer)
{
    ENTER("cuMemRetainAllocationHandle", STARTED);
    struct fake_allocation *a = fake_find((uintptr_t)pointer);
    if (a == NULL || a->kind != FAKE_VMM)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    a->handle->references++;
    *allocation = (uintptr_t)a->handle;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuMemGetAllocationPropertiesFromHandle(struct cuda_allocation_prop *prop,
                                                            cuda_allocation allocation);
FAKE_API cuda_result cuMemGetAllocationPropertiesFromHandle(struct cuda_allocation_prop *prop,
                                                            cuda_allocation allocation)
{
    const struct fake_handle *handle = (const struct fake_handle *)(uintptr_t)allocation;
    ENTER("cuMemGetAllocationPropertiesFromHandle", STARTED);
    memset(prop, 0, sizeof(*prop));
    prop->type = CUDA_ALLOCATION_PINNED;
    prop->handle_types = handle->handle_types;
    prop->location = handle->location;
    LEAVE(CUDA_OK);
}
