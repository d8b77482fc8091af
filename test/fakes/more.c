/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Yolk does not call but NVIDIA's own libcufile does: it runs on the fake driver, in its
 * compatibility mode, on machines that have no GPU. That is how the fake cuFile was compared with
 * the real one.
 */
#include <stdlib.h>

#include "cuda.h"

/* The calls below have no declaration of ours, for nothing of ours calls them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

FAKE_API cuda_result cuMemcpyAsync(cuda_pointer to, cuda_pointer from, size_t size,
                                   cuda_stream stream);
FAKE_API cuda_result cuStreamSynchronize(cuda_stream stream);
FAKE_API cuda_result cuStreamCreate(cuda_stream *stream, unsigned flags);
FAKE_API cuda_result cuMemHostAlloc(void **pointer, size_t size, unsigned flags);
FAKE_API cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_ordinal device);
FAKE_API cuda_result cuDevicePrimaryCtxRelease_v2(cuda_ordinal device);
FAKE_API cuda_result cuCtxPushCurrent_v2(cuda_context context);

static cuda_result copy_now(cuda_pointer to, cuda_pointer from, size_t size)
{
    cuda_result error = cuMemcpyAsync(to, from, size, NULL);
    return error == CUDA_OK ? cuStreamSynchronize(NULL) : error;
}

FAKE_API cuda_result cuMemcpy(cuda_pointer to, cuda_pointer from, size_t size)
{
    return copy_now(to, from, size);
}

FAKE_API cuda_result cuMemcpyHtoD_v2(cuda_pointer to, const void *from, size_t size)
{
    return copy_now(to, (uintptr_t)from, size);
}

FAKE_API cuda_result cuMemcpyDtoH_v2(void *to, cuda_pointer from, size_t size)
{
    return copy_now((uintptr_t)to, from, size);
}

FAKE_API cuda_result cuMemcpyHtoDAsync_v2(cuda_pointer to, const void *from, size_t size,
                                          cuda_stream stream)
{
    return cuMemcpyAsync(to, (uintptr_t)from, size, stream);
}

FAKE_API cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_pointer from, size_t size,
                                          cuda_stream stream)
{
    return cuMemcpyAsync((uintptr_t)to, from, size, stream);
}

FAKE_API cuda_result cuStreamCreateWithPriority(cuda_stream *stream, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(stream, flags);
}

FAKE_API cuda_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return CUDA_OK;
}

FAKE_API cuda_result cuMemAllocHost_v2(void **pointer, size_t size)
{
    return cuMemHostAlloc(pointer, size, CUDA_HOST_PORTABLE);
}

FAKE_API cuda_result cuMemGetAddressRange_v2(cuda_pointer *base, size_t *size, cuda_pointer pointer)
{
    ENTER("cuMemGetAddressRange", STARTED);
    struct fake_allocation *a = fake_find(pointer);
    if (a == NULL)
        LEAVE(CUDA_ERR_NOT_FOUND);
    if (base != NULL)
        *base = a->base;
    if (size != NULL)
        *size = a->size;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuCtxGetDevice(cuda_ordinal *device)
{
    ENTER("cuCtxGetDevice", STARTED | CONTEXT);
    *device = fake_current()->ordinal;
    LEAVE(CUDA_OK);
}

/* A context of its own is the primary one here. */
FAKE_API cuda_result cuCtxCreate_v2(cuda_context *context, unsigned flags, cuda_ordinal device)
{
    (void)flags;
    cuda_result error = cuDevicePrimaryCtxRetain(context, device);
    return error == CUDA_OK ? cuCtxPushCurrent_v2(*context) : error;
}

FAKE_API cuda_result cuCtxDestroy_v2(cuda_context context)
{
    return cuDevicePrimaryCtxRelease_v2(context->ordinal);
}

FAKE_API cuda_result cuDeviceCanAccessPeer(int *can, cuda_ordinal device, cuda_ordinal peer)
{
    (void)device;
    (void)peer;
    *can = 0;
    return CUDA_OK;
}

FAKE_API cuda_result cuPointerSetAttribute(const void *value, int attribute, cuda_pointer pointer)
{
    (void)value;
    (void)attribute;
    (void)pointer;
    return CUDA_OK;
}

/* For tests of those who had it before; nothing of ours asks for it. */
FAKE_API cuda_result cuCtxEnablePeerAccess(cuda_context peer, unsigned flags)
{
    static unsigned reached[FAKE_GPUS]; /* bit i: of GPU i */
    ENTER("cuCtxEnablePeerAccess", STARTED | CONTEXT | UNSAFE);
    if (peer == NULL || flags != 0)
        LEAVE(CUDA_ERR_INVALID_VALUE);
    unsigned *here = &reached[fake_current()->ordinal], bit = 1u << peer->ordinal;
    if (*here & bit)
        LEAVE(CUDA_ERR_PEER_ACCESS_ALREADY_ENABLED);
    *here |= bit;
    LEAVE(CUDA_OK);
}

/* Looked for, but not called on the paths of compatibility mode. */
#define NOT_HERE(name)                                                                             \
    FAKE_API cuda_result name(void)                                                                \
    {                                                                                              \
        return CUDA_ERR_NOT_SUPPORTED;                                                             \
    }
NOT_HERE(cuIpcGetEventHandle)
NOT_HERE(cuIpcOpenEventHandle)
NOT_HERE(cuLaunchHostFunc)
NOT_HERE(cuStreamWaitValue32)
NOT_HERE(cuStreamWriteValue32)
NOT_HERE(cuStreamWaitValue32_v2)
NOT_HERE(cuStreamWriteValue32_v2)
NOT_HERE(cuMemcpyPeer)
NOT_HERE(cuMemcpyPeerAsync)
NOT_HERE(cuMemsetD8_v2)
NOT_HERE(cuEventElapsedTime)
NOT_HERE(cuGetExportTable)
