/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of cuMemAlloc that other processes open by a handle. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"

FAKE_API cuda_result cuIpcGetMemHandle(struct cuda_ipc_handle *handle, cuda_pointer pointer);
FAKE_API cuda_result cuIpcGetMemHandle(struct cuda_ipc_handle *handle, cuda_pointer pointer)
{
    struct stat info;
    ENTER("cuIpcGetMemHandle", STARTED | CONTEXT);
    const struct fake_allocation *a = fake_find(pointer);
    if (a == NULL || a->kind != FAKE_DEVICE || fstat(a->fd, &info) != 0)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    memset(handle, 0, sizeof(*handle));
    snprintf((char *)handle->bytes, sizeof(handle->bytes), "ipc %d %d %llu %d %d %zx",
             (int)getpid(), a->fd, (unsigned long long)info.st_ino, fake.host,
             fake.first_gpu + a->ordinal, a->size);
    LEAVE(CUDA_OK);
}

static struct fake_allocation *find_opened(uint64_t inode, int ordinal)
{
    for (unsigned i = 0; i < fake.allocation_count; i++) {
        struct fake_allocation *a = &fake.allocations[i];
        if (a->kind == FAKE_IPC && a->inode == inode && a->ordinal == ordinal)
            return a;
    }
    return NULL;
}

/* One mapping for each context that opens it. Not in the process that made it. */
static cuda_result open_handle(cuda_pointer *pointer, const struct cuda_ipc_handle *handle)
{
    int process, number, host, gpu;
    unsigned long long inode;
    size_t size;
    struct stat info;
    if (sscanf((const char *)handle->bytes, "ipc %d %d %llu %d %d %zx", &process, &number, &inode,
               &host, &gpu, &size) != 6)
        return CUDA_ERR_INVALID_VALUE;
    if (process == (int)getpid())
        return CUDA_ERR_INVALID_CONTEXT;
    struct fake_allocation *a = find_opened(inode, fake_current()->ordinal);
    if (a != NULL) {
        a->opened++;
        *pointer = a->base;
        return CUDA_OK;
    }
    int fd = host == fake.host ? fake_open_of(process, number, inode) : -1;
    struct fake_allocation made = {.kind = FAKE_IPC,
                                   .ordinal = fake_current()->ordinal,
                                   .size = size,
                                   .inode = inode,
                                   .opened = 1};
    a = fake_take();
    bool mapped = a != NULL && fd >= 0 && fstat(fd, &info) == 0 &&
                  fake_map_twice(&made, fd, (size_t)info.st_size);
    if (fd >= 0)
        close(fd);
    if (!mapped)
        return CUDA_ERR_INVALID_HANDLE;
    made.id = fake_next_id();
    *a = made;
    *pointer = made.base;
    return CUDA_OK;
}

FAKE_API cuda_result cuIpcOpenMemHandle_v2(cuda_pointer *pointer, struct cuda_ipc_handle handle,
                                           unsigned flags);
FAKE_API cuda_result cuIpcOpenMemHandle_v2(cuda_pointer *pointer, struct cuda_ipc_handle handle,
                                           unsigned flags)
{
    ENTER("cuIpcOpenMemHandle", STARTED | CONTEXT | UNSAFE);
    LEAVE(flags == CUDA_IPC_LAZY_PEER_ACCESS ? open_handle(pointer, &handle)
                                             : CUDA_ERR_INVALID_VALUE);
}

FAKE_API cuda_result cuIpcCloseMemHandle(cuda_pointer pointer);
FAKE_API cuda_result cuIpcCloseMemHandle(cuda_pointer pointer)
{
    ENTER("cuIpcCloseMemHandle", STARTED | CONTEXT | UNSAFE);
    fake_drain_all();
    struct fake_allocation *a = fake_find(pointer);
    if (a == NULL || a->kind != FAKE_IPC || a->base != pointer)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    if (--a->opened == 0) {
        munmap((void *)a->base, a->mapped_size);
        munmap(a->shadow, a->mapped_size);
        a->kind = FAKE_NONE;
    }
    LEAVE(CUDA_OK);
}
