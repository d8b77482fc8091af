/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/gpu.h"

#include <stdlib.h>

#include "base/error.h"
#include "device/cuda.h"
#include "device/device.h"
#include "platform/clock.h"

enum { COPY_MS = 60000 };

struct cli_gpu {
    struct device *device;
    int ordinal;
    cuda_pointer memory; /* 0: none */
};

static int allocate(struct cli_gpu *gpu, size_t size)
{
    struct device_scope scope;
    unsigned count = device_count(gpu->device);
    if (gpu->ordinal < 0 || (unsigned)gpu->ordinal >= count)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "GPU %d: there are %u here, the first is 0",
                         gpu->ordinal, count);
    int status = device_enter(gpu->device, gpu->ordinal, &scope);
    if (status != YOLK_OK)
        return status;
    const struct cuda *cuda = device_cuda(gpu->device);
    cuda_result result = cuda->mem_alloc(&gpu->memory, size);
    if (result != CUDA_OK)
        status = cuda_fail(cuda, result, "%zu bytes of memory of GPU %d", size, gpu->ordinal);
    device_leave(gpu->device, &scope);
    return status;
}

int cli_gpu_open(int ordinal, size_t size, struct cli_gpu **out)
{
    struct cli_gpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a buffer of a GPU");
    gpu->ordinal = ordinal;
    int status = device_share(NULL, NULL, &gpu->device);
    if (status == YOLK_OK)
        status = allocate(gpu, size);
    if (status == YOLK_OK)
        *out = gpu;
    else
        cli_gpu_close(gpu);
    return status;
}

void *cli_gpu_memory(const struct cli_gpu *gpu)
{
    return (void *)(uintptr_t)gpu->memory;
}

static int copy(struct cli_gpu *gpu, const struct device_copy *one, enum device_direction direction)
{
    struct device_copy_options options = {.direction = direction, .pageable = true};
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), COPY_MS);
    struct device_transfer *transfer = NULL;
    long taken = device_copy(gpu->device, gpu->ordinal, one, 1, &options, &transfer);
    if (taken < 0)
        return (int)taken;
    int status = device_transfer_wait(transfer, deadline_ns);
    int freed = device_transfer_free(transfer);
    return status != YOLK_OK ? status : freed;
}

int cli_gpu_write(struct cli_gpu *gpu, size_t offset, const void *from, size_t size)
{
    struct device_copy one = {(char *)cli_gpu_memory(gpu) + offset, from, size};
    return copy(gpu, &one, DEVICE_TO_GPU);
}

int cli_gpu_read(struct cli_gpu *gpu, size_t offset, void *to, size_t size)
{
    struct device_copy one = {to, (const char *)cli_gpu_memory(gpu) + offset, size};
    return copy(gpu, &one, DEVICE_FROM_GPU);
}

void cli_gpu_close(struct cli_gpu *gpu)
{
    struct device_scope scope;
    if (gpu == NULL)
        return;
    if (gpu->memory != 0 && device_enter(gpu->device, gpu->ordinal, &scope) == YOLK_OK) {
        (void)device_cuda(gpu->device)->mem_free(gpu->memory);
        device_leave(gpu->device, &scope);
    }
    device_unshare(gpu->device);
    free(gpu);
}
