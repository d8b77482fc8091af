/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of memory of peers, one for each allocation of each life of a peer, whatever uses it. A
 * provider that comes back has another instance, an allocation that is made anew another id: so no
 * mapping of an earlier one is ever found, though all be at the same address.
 */
#define LOG_ROOM "nvlink"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/nvlink/internal.h"

struct nvlink_counts nvlink_counts;

void nvlink_imports_init(struct nvlink_imports *imports)
{
    mutex_init(&imports->mutex);
    base_list_init(&imports->all);
    base_list_init(&imports->left);
}

/* ---- making one ---- */

/* bytes: of a fabric handle. Inside a scope. */
static int import_one(const struct cuda *cuda, enum nvlink_handle which, const uint8_t bytes[64],
                      int fd, cuda_allocation *out)
{
    struct cuda_fabric_handle fabric;
    memcpy(fabric.bytes, bytes, sizeof fabric.bytes);
    cuda_result error =
        which == NVLINK_FABRIC
            ? cuda->mem_import_from_shareable_handle(out, &fabric, CUDA_HANDLE_FABRIC)
            : cuda->mem_import_from_shareable_handle(out, (void *)(intptr_t)fd,
                                                     CUDA_HANDLE_POSIX_FD);
    return error == CUDA_OK ? YOLK_OK : cuda_fail(cuda, error, "cuMemImportFromShareableHandle");
}

static bool is_here(const struct nvlink_export *export)
{
    return strcmp(export->machine, nvlink_machine()) == 0;
}

static int by_handle(struct nvlink_import *import, const struct nvlink_export *export,
                     enum nvlink_handle which, int fd)
{
    struct device *device = import->imports->device;
    const struct cuda *cuda = device_cuda(device);
    struct device_scope scope;
    struct vmm_part part = {.size = export->size};
    int status = device_enter(device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    status = import_one(cuda, which, export->fabric, fd, &part.allocation);
    if (status == YOLK_OK)
        status = vmm_adopt(cuda, &part, 1, device_count(device), is_here(export), &import->vmm);
    device_leave(device, &scope);
    return status;
}

static int open_ipc(struct nvlink_import *import, int ordinal, uint64_t *out)
{
    struct device *device = import->imports->device;
    const struct cuda *cuda = device_cuda(device);
    struct device_scope scope;
    cuda_pointer pointer = 0;
    int status = device_enter(device, ordinal, &scope);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&import->opening);
    *out = atomic_load(&import->opened[ordinal]);
    if (*out == 0) {
        cuda_result error =
            cuda->ipc_open_mem_handle(&pointer, import->ipc, CUDA_IPC_LAZY_PEER_ACCESS);
        if (error != CUDA_OK)
            status = cuda_fail(cuda, error, "GPU %d: cuIpcOpenMemHandle", ordinal);
        *out = pointer;
        atomic_store(&import->opened[ordinal], pointer);
    }
    mutex_unlock(&import->opening);
    device_leave(device, &scope);
    return status;
}

static int by_ipc(struct nvlink_import *import, const struct nvlink_export *export)
{
    uint64_t ignored;
    if (device_cuda(import->imports->device)->missing[CUDA_IPC] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the CUDA driver has no %s",
                         device_cuda(import->imports->device)->missing[CUDA_IPC]);
    memcpy(import->ipc.bytes, export->ipc, sizeof import->ipc.bytes);
    /* The handle may be of no use here: better known now than at the first copy. */
    return open_ipc(import, import->owner >= 0 ? import->owner : 0, &ignored);
}

static const char *name_of(enum nvlink_handle handle)
{
    return handle == NVLINK_FABRIC ? "fabric handle"
           : handle == NVLINK_FD   ? "descriptor"
                                   : "CUDA IPC";
}

static int try_one(struct nvlink_import *import, const struct nvlink_export *export,
                   enum nvlink_handle which, int fd)
{
    bool here = is_here(export);
    if (!(export->handles & which))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the memory was made without");
    if (which != NVLINK_FABRIC && !here)
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "the memory is another machine's");
    if (which == NVLINK_FD && fd < 0)
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "none came");
    return which == NVLINK_IPC ? by_ipc(import, export) : by_handle(import, export, which, fd);
}

/* The ladder: fabric, descriptor, IPC. */
static int make(struct nvlink_import *import, const struct nvlink_export *export, int fd)
{
    static const enum nvlink_handle ladder[] = {NVLINK_FABRIC, NVLINK_FD, NVLINK_IPC};
    char reasons[700] = "";
    for (size_t i = 0; i < sizeof ladder / sizeof ladder[0]; i++) {
        int status = try_one(import, export, ladder[i], fd);
        import->handle = ladder[i];
        if (status == YOLK_OK) {
            if (reasons[0] != '\0')
                log_info("memory of a peer is reached by %s; %s", name_of(ladder[i]), reasons);
            return YOLK_OK;
        }
        if (status == YOLK_ERR_FORKED || status == YOLK_ERR_CLOSED ||
            import->vmm.stage != VMM_NOTHING)
            return status;
        size_t used = strlen(reasons);
        (void)snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used > 0 ? "; " : "",
                       name_of(ladder[i]), yolk_last_error());
    }
    return base_fail(YOLK_ERR_NO_ROUTE, 0, "nvlink: the memory cannot be imported: %s", reasons);
}

/* ---- giving it back ---- */

static bool unmap(struct nvlink_import *import)
{
    struct device *device = import->imports->device;
    const struct cuda *cuda = device_cuda(device);
    struct device_scope scope;
    bool gone = true;
    if (device_check(device) != YOLK_OK)
        return true; /* the driver is another process's, or at its end */
    if (import->handle != NVLINK_IPC) {
        if (device_enter(device, -1, &scope) != YOLK_OK)
            return false;
        while (import->part_count > 0 &&
               cuda->mem_release(import->parts[import->part_count - 1].allocation) == CUDA_OK)
            import->part_count--;
        gone = import->part_count == 0 &&
               (import->vmm.stage == VMM_NOTHING || vmm_release(&import->vmm) == YOLK_OK);
        device_leave(device, &scope);
        return gone;
    }
    for (unsigned i = 0; i < device_count(device); i++) {
        uint64_t pointer = atomic_load(&import->opened[i]);
        if (pointer == 0)
            continue;
        if (device_enter(device, (int)i, &scope) != YOLK_OK) {
            gone = false;
            continue;
        }
        if (cuda->ipc_close_mem_handle(pointer) == CUDA_OK)
            atomic_store(&import->opened[i], 0);
        else
            gone = false;
        device_leave(device, &scope);
    }
    return gone;
}

static void destroy(struct nvlink_import *import)
{
    free(import->parts);
    mutex_destroy(&import->opening);
    free(import);
}

size_t nvlink_imports_tidy(struct nvlink_imports *imports)
{
    size_t left = 0;
    struct base_list again;
    base_list_init(&again);
    for (;;) {
        mutex_lock(&imports->mutex);
        struct base_list *node = base_list_pop_front(&imports->left);
        mutex_unlock(&imports->mutex);
        if (node == NULL)
            break;
        struct nvlink_import *import = BASE_CONTAINER(node, struct nvlink_import, node);
        if (unmap(import)) {
            if (import->whole)
                NVLINK_COUNT(unmaps, 1);
            destroy(import);
        } else {
            NVLINK_COUNT(unmaps_failed, 1);
            base_list_push_back(&again, node);
        }
    }
    mutex_lock(&imports->mutex);
    for (struct base_list *node; (node = base_list_pop_front(&again)) != NULL; left++)
        base_list_push_back(&imports->left, node);
    mutex_unlock(&imports->mutex);
    return left;
}

void nvlink_imports_fini(struct nvlink_imports *imports)
{
    mutex_destroy(&imports->mutex);
}

/* ---- the cache ---- */

static struct nvlink_import *find(struct nvlink_imports *imports,
                                  const struct nvlink_export *export, const char *instance)
{
    BASE_LIST_FOREACH(node, &imports->all)
    {
        struct nvlink_import *import = BASE_CONTAINER(node, struct nvlink_import, node);
        if (import->id == export->id && import->base == export->base &&
            strcmp(import->instance, instance) == 0)
            return import;
    }
    return NULL;
}

static struct nvlink_import *begin(struct nvlink_imports *imports,
                                   const struct nvlink_export *export, const char *instance)
{
    struct nvlink_import *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    base_list_init(&made->node);
    mutex_init(&made->opening);
    made->imports = imports;
    made->id = export->id;
    made->base = export->base;
    made->host = export->host;
    made->owner = export->host ? -1 : device_find(imports->device, export->uuid);
    if (made->owner < 0)
        made->owner = -1;
    (void)snprintf(made->instance, sizeof made->instance, "%s", instance);
    return made;
}

/* Holds the mutex. */
static void add(struct nvlink_imports *imports, struct nvlink_import *made)
{
    made->whole = true;
    NVLINK_COUNT(imports, 1);
    if (made->handle == NVLINK_FABRIC)
        NVLINK_COUNT(by_fabric, 1);
    else if (made->handle == NVLINK_FD)
        NVLINK_COUNT(by_fd, 1);
    else
        NVLINK_COUNT(by_ipc, 1);
    base_list_push_back(&imports->all, &made->node);
}

/* Why it could not be made is told; what could not be taken back is left to the tidier. Holds the
 * mutex. */
static int give_up(struct nvlink_imports *imports, struct nvlink_import *made, int status)
{
    char why[800];
    (void)snprintf(why, sizeof why, "%s", yolk_last_error());
    if (unmap(made))
        destroy(made);
    else
        base_list_push_back(&imports->left, &made->node);
    return base_fail(status, 0, "%s", why);
}

int nvlink_import_get(struct nvlink_imports *imports, const struct nvlink_export *export,
                      const char *instance, int fd, struct nvlink_import **out)
{
    int status = YOLK_OK;
    mutex_lock(&imports->mutex); /* so that two who come at once make one mapping */
    *out = find(imports, export, instance);
    if (*out != NULL) {
        NVLINK_COUNT(import_reuses, 1);
    } else if ((*out = begin(imports, export, instance)) == NULL) {
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: mapping");
    } else {
        struct nvlink_import *made = *out;
        status = make(made, export, fd);
        if (status == YOLK_OK)
            add(imports, made);
        else
            status = give_up(imports, made, status);
    }
    if (status == YOLK_OK)
        (*out)->users++;
    else
        *out = NULL;
    mutex_unlock(&imports->mutex);
    return status;
}

/* ---- of several allocations ---- */

/* What the answer brought, as the next part. */
static int take_part(struct nvlink_import *import, const struct shm_answer *answer, int fd)
{
    struct device *device = import->imports->device;
    struct vmm_part *part = &import->parts[import->part_count];
    struct device_scope scope;
    uint8_t fabric[64];
    int status = device_enter(device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    status = base_fail(YOLK_ERR_NO_ROUTE, 0, "nvlink: no handle came with a part of the memory");
    if (nvlink_unhex(answer->text, fabric, sizeof fabric)) {
        import->handle = NVLINK_FABRIC;
        status = import_one(device_cuda(device), NVLINK_FABRIC, fabric, -1, &part->allocation);
    }
    if (status != YOLK_OK && fd >= 0) {
        import->handle = NVLINK_FD;
        status = import_one(device_cuda(device), NVLINK_FD, fabric, fd, &part->allocation);
    }
    part->size = answer->numbers[0];
    if (status == YOLK_OK)
        import->part_count++;
    device_leave(device, &scope);
    return status;
}

static int take_parts(struct nvlink_import *import, const struct nvlink_export *export,
                      struct shm_link *l)
{
    uint64_t size = 0;
    while (import->part_count < export->parts) {
        const struct shm_ask ask = {.first = import->part_count};
        struct shm_answer answer;
        int fd;
        int status = shm_link_ask(l, &ask, &answer, &fd);
        if (status == YOLK_OK)
            status = take_part(import, &answer, fd);
        if (fd >= 0)
            (void)close(fd);
        if (status != YOLK_OK)
            return status;
    }
    for (unsigned i = 0; i < export->parts; i++)
        size += import->parts[i].size;
    return size == export->size ? YOLK_OK
                                : base_fail(YOLK_ERR_PROTOCOL, 0,
                                            "nvlink: the parts are not as large as the memory");
}

/* All are there: mapped, unless another link was faster. */
static int join(struct nvlink_imports *imports, const struct nvlink_export *export,
                struct nvlink_import **out)
{
    struct nvlink_import *made = *out, *other;
    struct device_scope scope;
    int status = YOLK_OK;
    mutex_lock(&imports->mutex);
    other = find(imports, export, made->instance);
    if (other != NULL) {
        NVLINK_COUNT(import_reuses, 1);
        base_list_push_back(&imports->left, &made->node);
        *out = other;
    } else if ((status = device_enter(imports->device, -1, &scope)) == YOLK_OK) {
        status = vmm_adopt(device_cuda(imports->device), made->parts, made->part_count,
                           device_count(imports->device), is_here(export), &made->vmm);
        device_leave(imports->device, &scope);
        free(made->parts);
        made->parts = NULL;
        made->part_count = 0;
        if (status == YOLK_OK)
            add(imports, made);
    }
    if (status == YOLK_OK)
        (*out)->users++;
    mutex_unlock(&imports->mutex);
    return status;
}

int nvlink_import_get_parts(struct nvlink_imports *imports, const struct nvlink_export *export,
                            const char *instance, struct shm_link *l, struct nvlink_import **out)
{
    if (*out == NULL) {
        mutex_lock(&imports->mutex);
        *out = find(imports, export, instance);
        if (*out != NULL) {
            (*out)->users++;
            NVLINK_COUNT(import_reuses, 1);
        }
        mutex_unlock(&imports->mutex);
        if (*out != NULL)
            return YOLK_OK;
        *out = begin(imports, export, instance);
        if (*out == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: mapping");
        (*out)->parts = calloc(export->parts, sizeof *(*out)->parts);
        if ((*out)->parts == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: mapping");
    }
    int status = take_parts(*out, export, l);
    return status == YOLK_OK ? join(imports, export, out) : status;
}

/* A driver that hangs while it unmaps must not hold up whoever only closes a segment: the tidier
 * does it. Nothing can be copied any more by what no link has. */
void nvlink_import_put(struct nvlink_import *import)
{
    struct nvlink_imports *imports = import->imports;
    mutex_lock(&imports->mutex);
    if (import->users == 0 || --import->users == 0) { /* 0: it was never whole */
        base_list_remove(&import->node);
        base_list_push_back(&imports->left, &import->node);
    }
    mutex_unlock(&imports->mutex);
}

int nvlink_import_address(struct nvlink_import *import, int ordinal, uint64_t *out)
{
    if (import->handle == NVLINK_IPC) {
        *out = atomic_load_explicit(&import->opened[ordinal], memory_order_acquire);
        return *out != 0 ? YOLK_OK : open_ipc(import, ordinal, out);
    }
    *out = import->vmm.address;
    if (import->vmm.gpus >> ordinal & 1)
        return YOLK_OK;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: GPU %d does not reach the peer's memory",
                     ordinal);
}

int nvlink_import_gpu(const struct nvlink_import *import)
{
    if (import->owner >= 0)
        return import->owner;
    return import->handle == NVLINK_IPC ? 0 : __builtin_ctzll(import->vmm.gpus);
}
