/* SPDX-License-Identifier: Apache-2.0 */
/* Loading and launching the gather kernel, and when it is used. */
#include "device/gather.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "device/internal.h"

unsigned gather_cut(const struct device_copy *copy, struct gather_piece *out, unsigned room)
{
    uint64_t count = (copy->size + GATHER_PIECE_BYTES - 1) / GATHER_PIECE_BYTES;
    if (count > room)
        return 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t done = i * GATHER_PIECE_BYTES;
        uint64_t left = copy->size - done;
        out[i] = (struct gather_piece){(uintptr_t)copy->to + done, (uintptr_t)copy->from + done,
                                       left < GATHER_PIECE_BYTES ? left : GATHER_PIECE_BYTES, 0};
    }
    return (unsigned)count;
}

/*
 * Measured on one H200 with PCIe 5, GB/s to the GPU and from it: the kernel has 51 and 52 at each
 * size; a loop of copies 35 and 34 at 256 KiB, 48 and 47 at 1 MiB; a batch of them 51 and 51, 54
 * and
 * 54. So the kernel ends where the batch begins to be better, later where there is none.
 */
uint64_t gather_below(const struct gpu *gpu)
{
    uint64_t wish = gpu->device->options.gather_below;
    if (wish != 0)
        return wish;
    bool batch = gpu->device->cuda.missing[CUDA_BATCH] == NULL && !gpu->batch_refused;
    return batch ? 256 * KIB : 2 * MIB;
}

static void refuse(struct gpu *gpu, cuda_result error, const char *what, const char *log)
{
    (void)cuda_fail(&gpu->device->cuda, error, "%s", what);
    snprintf(gpu->kernel_reason, sizeof(gpu->kernel_reason), "%s%s%.200s", yolk_last_error(),
             log[0] != '\0' ? ": " : "", log);
    gpu->kernel_reason[strcspn(gpu->kernel_reason, "\n")] = '\0';
}

static void load(struct gpu *gpu)
{
    const struct cuda *cuda = &gpu->device->cuda;
    char log[512] = "";
    int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
    if (cuda->missing[CUDA_KERNEL] != NULL) {
        snprintf(gpu->kernel_reason, sizeof(gpu->kernel_reason), "the driver has no function %s",
                 cuda->missing[CUDA_KERNEL]);
        return;
    }
    if (!gpu->same_host_pointer) {
        snprintf(gpu->kernel_reason, sizeof(gpu->kernel_reason),
                 "registered host memory has another address on this GPU");
        return;
    }
    cuda_result error = cuda->module_load_data_ex(&gpu->module, gather_ptx, 2, options, values);
    log[sizeof(log) - 1] = '\0';
    if (error != CUDA_OK) {
        gpu->module = NULL;
        refuse(gpu, error, "cuModuleLoadDataEx of the gather kernel", log);
        return;
    }
    error = cuda->module_get_function(&gpu->kernel, gpu->module, GATHER_KERNEL);
    if (error != CUDA_OK) {
        gpu->kernel = NULL;
        refuse(gpu, error, "cuModuleGetFunction of the gather kernel", "");
    }
}

bool gather_ready(struct gpu *gpu)
{
    if (!gpu->kernel_tried) {
        gpu->kernel_tried = true;
        load(gpu);
    }
    return gpu->kernel != NULL;
}

int gather_launch(struct gpu *gpu, const struct gather_piece *pieces, uint32_t count,
                  cuda_stream stream)
{
    uint64_t list = (uintptr_t)pieces;
    void *parameters[] = {&list, &count};
    uint32_t blocks = (count + GATHER_WARPS - 1) / GATHER_WARPS;
    if (blocks > gpu->device->options.gather_blocks_max)
        blocks = gpu->device->options.gather_blocks_max;
    cuda_result error = gpu->device->cuda.launch_kernel(gpu->kernel, blocks, 1, 1, GATHER_THREADS,
                                                        1, 1, 0, stream, parameters, NULL);
    if (error != CUDA_OK)
        return gpu_fail(gpu, error, "cuLaunchKernel of the gather kernel");
    atomic_fetch_add_explicit(&gpu->device->gather_launches, 1, memory_order_relaxed);
    return YOLK_OK;
}

int device_gather_reason(struct device *device, int ordinal, char *out, size_t size)
{
    int status;
    struct device_scope scope;
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    if (gpu != NULL)
        status = gpu_enter(gpu, &scope);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&gpu->lock);
    (void)gather_ready(gpu);
    snprintf(out, size, "%s", gpu->kernel_reason);
    mutex_unlock(&gpu->lock);
    device_leave(device, &scope);
    return YOLK_OK;
}
