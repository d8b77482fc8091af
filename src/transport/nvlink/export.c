/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of memory of this process. What no other process could reach is refused, and why. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/nvlink/internal.h"

#define PAGE UINT64_C(4096) /* none of an allocation's ends lies within one */

struct nvlink_memory {
    struct device *device;
    struct vmm_part *parts; /* with handles: held while it is served */
    unsigned count;
    unsigned handles; /* enum nvlink_handle, of each */
    int fd;           /* of the only one */
};

static int look_at(struct device *device, const void *pointer, uint64_t size,
                   struct device_memory *out)
{
    int status = device_query(device, pointer, out);
    if (status != YOLK_OK)
        return status;
    if (out->kind != DEVICE_GPU && out->kind != DEVICE_HOST_NUMA)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "nvlink: %s has no handle that another process could import",
                         device_kind_name(out->kind));
    uint64_t offset = (uintptr_t)pointer - out->base;
    if (!out->vmm && (size > out->size || offset > out->size - size))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "nvlink: the range of %" PRIu64 " bytes goes over the end of the "
                         "allocation of %" PRIu64 " bytes that it begins in",
                         size, out->size);
    return YOLK_OK;
}

/* ---- which allocations a range is made of ---- */

/* No call of the driver tells where one begins or ends, and the range that it names may be all that
 * was reserved. But whose memory an address is it says, by the same number for all of one. */
static bool is_of(const struct cuda *cuda, cuda_allocation wanted, uint64_t address)
{
    cuda_allocation found;
    if (cuda->mem_retain_allocation_handle(&found, (void *)(uintptr_t)address) != CUDA_OK)
        return false;
    vmm_let_go(cuda, found);
    return found == wanted;
}

/* The last page on that side of `inside` which is the allocation's; limit: how many there may be.
 */
static uint64_t last_page(const struct cuda *cuda, cuda_allocation wanted, uint64_t inside,
                          uint64_t limit, bool upward)
{
    uint64_t low = 0, high = 1; /* pages: low is its, high is not */
    while (high <= limit &&
           is_of(cuda, wanted, upward ? inside + high * PAGE : inside - high * PAGE)) {
        low = high;
        high *= 2;
    }
    if (high > limit + 1)
        high = limit + 1;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (is_of(cuda, wanted, upward ? inside + middle * PAGE : inside - middle * PAGE))
            low = middle;
        else
            high = middle;
    }
    return upward ? inside + low * PAGE : inside - low * PAGE;
}

static int add_part(struct nvlink_memory *memory, cuda_allocation allocation)
{
    struct vmm_part *more = realloc(memory->parts, (memory->count + 1) * sizeof(*memory->parts));
    if (more == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: served memory");
    memory->parts = more;
    memory->parts[memory->count++] = (struct vmm_part){allocation, 0};
    return YOLK_OK;
}

/* Holds each allocation from that of the first byte on; in *base, where that one begins. */
static int hold_parts(const struct cuda *cuda, const void *pointer, uint64_t size,
                      struct nvlink_memory *memory, uint64_t *base)
{
    uint64_t start = (uintptr_t)pointer, end = start + size;
    for (uint64_t at = start; at < end;) {
        cuda_allocation allocation;
        cuda_result error = cuda->mem_retain_allocation_handle(&allocation, (void *)(uintptr_t)at);
        if (error != CUDA_OK)
            return cuda_fail(cuda, error,
                             "nvlink: %" PRIu64 " bytes behind its start there is no memory with "
                             "handles: cuMemRetainAllocationHandle",
                             at - start);
        int status = add_part(memory, allocation);
        if (status != YOLK_OK) {
            vmm_let_go(cuda, allocation);
            return status;
        }
        if (memory->count > NVLINK_PARTS_MAX)
            return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                             "nvlink: the range lies in more than %d allocations",
                             NVLINK_PARTS_MAX);
        uint64_t page = at & ~(PAGE - 1);
        uint64_t first =
            memory->count > 1 ? at : last_page(cuda, allocation, page, page / PAGE - 1, false);
        uint64_t last = last_page(cuda, allocation, page, (UINT64_MAX - page) / PAGE - 1, true);
        memory->parts[memory->count - 1].size = last + PAGE - first;
        if (memory->count == 1)
            *base = first;
        at = last + PAGE;
    }
    return YOLK_OK;
}

/* ---- their handles ---- */

static void add_reason(char *reasons, size_t size, const char *what)
{
    size_t used = strlen(reasons);
    (void)snprintf(reasons + used, size - used, "%s%s: %s", used > 0 ? "; " : "", what,
                   yolk_last_error());
}

/* Those that each of them was made with. */
static int handle_types(const struct cuda *cuda, const struct nvlink_memory *memory, int *out)
{
    struct cuda_allocation_prop prop;
    *out = CUDA_HANDLE_FABRIC | CUDA_HANDLE_POSIX_FD;
    for (unsigned i = 0; i < memory->count; i++) {
        memset(&prop, 0, sizeof prop);
        cuda_result error = cuda->mem_get_allocation_properties(&prop, memory->parts[i].allocation);
        if (error != CUDA_OK)
            return cuda_fail(cuda, error, "nvlink: cuMemGetAllocationPropertiesFromHandle");
        *out &= prop.handle_types;
    }
    return YOLK_OK;
}

/* Of the first allocation: the others are asked for when they are needed. */
static void export_first(const struct cuda *cuda, int types, struct nvlink_export *out,
                         struct nvlink_memory *memory, char *reasons, size_t reasons_size)
{
    struct cuda_fabric_handle fabric;
    cuda_allocation first = memory->parts[0].allocation;
    cuda_result error;
    if (types & CUDA_HANDLE_FABRIC) {
        error = cuda->mem_export_to_shareable_handle(&fabric, first, CUDA_HANDLE_FABRIC, 0);
        if (error == CUDA_OK) {
            memcpy(out->fabric, fabric.bytes, sizeof out->fabric);
            out->handles |= NVLINK_FABRIC;
        } else {
            (void)cuda_fail(cuda, error, "cuMemExportToShareableHandle");
            add_reason(reasons, reasons_size, "fabric handle");
        }
    }
    if (!(types & CUDA_HANDLE_POSIX_FD))
        return;
    error = cuda->mem_export_to_shareable_handle(&memory->fd, first, CUDA_HANDLE_POSIX_FD, 0);
    if (error == CUDA_OK) {
        out->handles |= NVLINK_FD;
    } else {
        memory->fd = -1;
        (void)cuda_fail(cuda, error, "cuMemExportToShareableHandle");
        add_reason(reasons, reasons_size, "descriptor");
    }
}

static int export_vmm(struct device *device, const void *pointer, uint64_t size,
                      struct nvlink_export *out, struct nvlink_memory *memory)
{
    static _Atomic uint64_t exports;
    const struct cuda *cuda = device_cuda(device);
    char reasons[400] = "";
    int types;
    int status = hold_parts(cuda, pointer, size, memory, &out->base);
    if (status == YOLK_OK)
        status = handle_types(cuda, memory, &types);
    if (status != YOLK_OK)
        return status;
    out->parts = memory->count;
    out->offset = (uintptr_t)pointer - out->base;
    out->size = 0;
    for (unsigned i = 0; i < memory->count; i++)
        out->size += memory->parts[i].size;
    /* What is mapped at these addresses may change while the number of the range does not. */
    out->id = ++exports | UINT64_C(1) << 63;
    export_first(cuda, types, out, memory, reasons, sizeof reasons);
    memory->handles = out->handles;
    if (out->handles != 0)
        return YOLK_OK;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                     "nvlink: the memory was made with no handle that another process can "
                     "import%s%s",
                     reasons[0] != '\0' ? ": " : "", reasons);
}

void nvlink_memory_answer(void *self, const struct shm_ask *ask, struct shm_answer *out, int *fd)
{
    const struct nvlink_memory *memory = self;
    const struct cuda *cuda = device_cuda(memory->device);
    struct cuda_fabric_handle fabric;
    struct device_scope scope;
    if (ask->first >= memory->count) {
        out->status = YOLK_ERR_INVALID;
        return;
    }
    const struct vmm_part *part = &memory->parts[ask->first];
    out->numbers[0] = part->size;
    out->status = device_enter(memory->device, -1, &scope);
    if (out->status != YOLK_OK) {
        (void)snprintf(out->text, sizeof out->text, "%s", yolk_last_error());
        return;
    }
    if ((memory->handles & NVLINK_FABRIC) &&
        cuda->mem_export_to_shareable_handle(&fabric, part->allocation, CUDA_HANDLE_FABRIC, 0) ==
            CUDA_OK)
        nvlink_hex(fabric.bytes, sizeof fabric.bytes, out->text);
    if ((memory->handles & NVLINK_FD) &&
        cuda->mem_export_to_shareable_handle(fd, part->allocation, CUDA_HANDLE_POSIX_FD, 0) !=
            CUDA_OK)
        *fd = -1;
    device_leave(memory->device, &scope);
}

static int export_ipc(struct device *device, const struct device_memory *found,
                      struct nvlink_export *out)
{
    const struct cuda *cuda = device_cuda(device);
    struct cuda_ipc_handle handle;
    struct device_scope scope;
    if (cuda->missing[CUDA_IPC] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: the CUDA driver has no %s",
                         cuda->missing[CUDA_IPC]);
    int status = device_enter(device, found->ordinal, &scope);
    if (status != YOLK_OK)
        return status;
    cuda_result error = cuda->ipc_get_mem_handle(&handle, found->base);
    device_leave(device, &scope);
    if (error != CUDA_OK) {
        (void)cuda_fail(cuda, error, "cuIpcGetMemHandle");
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "nvlink: the memory has no handle that another process can import: %s",
                         yolk_last_error());
    }
    memcpy(out->ipc, handle.bytes, sizeof out->ipc);
    out->handles |= NVLINK_IPC;
    return YOLK_OK;
}

static int export_it(struct device *device, const void *pointer, uint64_t size,
                     const struct device_memory *found, struct nvlink_export *out,
                     struct nvlink_memory *memory)
{
    struct device_scope scope;
    if (!found->vmm)
        return export_ipc(device, found, out);
    int status = device_enter(device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    status = export_vmm(device, pointer, size, out, memory);
    device_leave(device, &scope);
    return status;
}

int nvlink_memory_export(struct device *device, const void *pointer, uint64_t size,
                         struct nvlink_export *out, struct nvlink_memory **memory)
{
    struct device_memory found;
    int status = look_at(device, pointer, size, &found);
    if (status != YOLK_OK)
        return status;
    struct nvlink_memory *made = calloc(1, sizeof *made);
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: served memory");
    made->device = device;
    made->fd = -1;
    *out = (struct nvlink_export){.host = found.kind == DEVICE_HOST_NUMA,
                                  .node = found.numa_node,
                                  .parts = 1,
                                  .base = found.base,
                                  .size = found.size,
                                  .id = found.id,
                                  .offset = (uintptr_t)pointer - found.base};
    memcpy(out->uuid, found.uuid, sizeof out->uuid);
    (void)snprintf(out->machine, sizeof out->machine, "%s", nvlink_machine());
    status = export_it(device, pointer, size, &found, out, made);
    if (status != YOLK_OK) {
        char why[512];
        (void)snprintf(why, sizeof why, "%s", yolk_last_error());
        if (nvlink_memory_free(made))
            return base_fail(status, 0, "%s", why);
        /* The handle stays with the process: nothing of ours uses it. */
        free(made->parts);
        free(made);
        return base_fail(status, 0, "%s; its handle could not be given back", why);
    }
    *memory = made;
    return YOLK_OK;
}

int nvlink_memory_fd(const struct nvlink_memory *memory)
{
    return memory->fd;
}

bool nvlink_memory_free(struct nvlink_memory *memory)
{
    struct device_scope scope;
    if (memory->fd >= 0)
        (void)close(memory->fd);
    memory->fd = -1;
    /* Where the driver must not be called any more, nothing is left to be given back. */
    if (memory->count > 0 && device_check(memory->device) == YOLK_OK) {
        const struct cuda *cuda = device_cuda(memory->device);
        if (device_enter(memory->device, -1, &scope) != YOLK_OK)
            return false;
        while (memory->count > 0 &&
               cuda->mem_release(memory->parts[memory->count - 1].allocation) == CUDA_OK)
            memory->count--;
        device_leave(memory->device, &scope);
        if (memory->count > 0)
            return false;
    }
    free(memory->parts);
    free(memory);
    return true;
}
