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
 * Measured on one H200 with PCIe 5, GB/s to the GPU and from it: the kernel has 50 and 52 at each
 * size; a loop of copies 17 and 18 at 64 KiB, 35 and 34 at 256 KiB, 48 and 47 at 1 MiB; a batch of
 * them 29 and 39 at 16 KiB, 52 and 52 from 64 KiB on. So the kernel, which takes multiprocessors
 * from whoever computes, ends where the batch does as well, later where there is none.
 */
uint64_t gather_below(const struct gpu *gpu)
{
    uint64_t wish = gpu->device->options.gather_below;
    if (wish != 0)
        return wish;
    bool batch = gpu->device->cuda.missing[CUDA_BATCH] == NULL && !gpu->batch_refused;
    return batch ? 64 * KIB : 2 * MIB;
}

static void refuse(struct gpu *gpu, struct kernel *kernel, cuda_result error, const char *call,
                   const char *name, const char *log)
{
    (void)cuda_fail(&gpu->device->cuda, error, "%s of the %s kernel", call, name);
    snprintf(kernel->reason, sizeof(kernel->reason), "%s%s%.200s", yolk_last_error(),
             log[0] != '\0' ? ": " : "", log);
    kernel->reason[strcspn(kernel->reason, "\n")] = '\0';
}

static void load(struct gpu *gpu, struct kernel *kernel, const char *name, const char *text,
                 const char *entry)
{
    const struct cuda *cuda = &gpu->device->cuda;
    char log[512] = "";
    int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
    if (cuda->missing[CUDA_KERNEL] != NULL) {
        snprintf(kernel->reason, sizeof(kernel->reason), "the driver has no function %s",
                 cuda->missing[CUDA_KERNEL]);
        return;
    }
    if (!gpu->same_host_pointer) {
        snprintf(kernel->reason, sizeof(kernel->reason),
                 "registered host memory has another address on this GPU");
        return;
    }
    cuda_result error = cuda->module_load_data_ex(&kernel->module, text, 2, options, values);
    log[sizeof(log) - 1] = '\0';
    if (error != CUDA_OK) {
        kernel->module = NULL;
        refuse(gpu, kernel, error, "cuModuleLoadDataEx", name, log);
        return;
    }
    error = cuda->module_get_function(&kernel->function, kernel->module, entry);
    if (error != CUDA_OK) {
        kernel->function = NULL;
        refuse(gpu, kernel, error, "cuModuleGetFunction", name, "");
    }
}

bool kernel_load(struct gpu *gpu, struct kernel *kernel, const char *name, const char *text,
                 const char *entry)
{
    if (!kernel->tried) {
        kernel->tried = true;
        load(gpu, kernel, name, text, entry);
    }
    return kernel->function != NULL;
}

int kernel_launch(struct gpu *gpu, const struct kernel *kernel, const char *name,
                  const struct gather_piece *pieces, uint32_t count, cuda_stream stream)
{
    uint64_t list = (uintptr_t)pieces;
    void *parameters[] = {&list, &count};
    char what[64];
    uint32_t blocks = (count + GATHER_WARPS - 1) / GATHER_WARPS;
    if (blocks > gpu->device->options.gather_blocks_max)
        blocks = gpu->device->options.gather_blocks_max;
    cuda_result error = gpu->device->cuda.launch_kernel(
        kernel->function, blocks, 1, 1, GATHER_THREADS, 1, 1, 0, stream, parameters, NULL);
    if (error == CUDA_OK)
        return YOLK_OK;
    snprintf(what, sizeof(what), "cuLaunchKernel of the %s kernel", name);
    return gpu_fail(gpu, error, what);
}

bool gather_ready(struct gpu *gpu)
{
    return kernel_load(gpu, &gpu->gather, "gather", gather_ptx, GATHER_KERNEL);
}

int gather_launch(struct gpu *gpu, const struct gather_piece *pieces, uint32_t count,
                  cuda_stream stream)
{
    int status = kernel_launch(gpu, &gpu->gather, "gather", pieces, count, stream);
    if (status == YOLK_OK)
        atomic_fetch_add_explicit(&gpu->device->gather_launches, 1, memory_order_relaxed);
    return status;
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
    snprintf(out, size, "%s", gpu->gather.reason);
    mutex_unlock(&gpu->lock);
    device_leave(device, &scope);
    return YOLK_OK;
}
