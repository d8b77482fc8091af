/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that fills the GPU with arithmetic, so that it can be seen what copies take from it. */
#include <string.h>

#include "base/error.h"
#include "cli/bench_gpu.h"
#include "cli/busy_ptx.h"

enum { THREADS = 256, WAVES = 32, LAUNCHES = 40, LAUNCH_NS = 2000000, FIRST_ROUNDS = 20000 };

/* What the thread of this index stores. */
static uint32_t expected(uint32_t index, uint32_t rounds)
{
    uint32_t a = index, b = index + 1, c = index + 2, d = index + 3;
    for (uint32_t i = 0; i < rounds; i++) {
        a = a * b + c;
        b = b * c + d;
        c = c * d + a;
        d = d * a + b;
    }
    return d;
}

static cuda_result launch(struct bench_busy *busy)
{
    uint64_t list = busy->out;
    uint32_t count = busy->rounds;
    void *parameters[] = {&list, &count};
    return device_cuda(busy->b->device)
        ->launch_kernel(busy->function, busy->blocks, 1, 1, THREADS, 1, 1, 0, busy->stream,
                        parameters, NULL);
}

static bool is_over(void *self)
{
    const struct bench_busy *busy = self;
    struct device_scope scope;
    if (device_enter(busy->b->device, busy->b->ordinal, &scope) != YOLK_OK)
        return true;
    bool over = device_cuda(busy->b->device)->stream_query(busy->stream) != CUDA_ERR_NOT_READY;
    device_leave(busy->b->device, &scope);
    return over;
}

/* In the scope: all launches go into the stream. */
static int launch_all(struct bench_busy *busy)
{
    cuda_result result = CUDA_OK;
    for (uint32_t i = 0; i < busy->launches && result == CUDA_OK; i++)
        result = launch(busy);
    return bench_gpu_call(busy->b, result, "cuLaunchKernel of the busy kernel");
}

enum yolk_status bench_busy_run(struct bench_busy *busy, const struct bench_gpu_run *beside,
                                double *seconds, uint64_t *bytes)
{
    struct device_scope scope;
    int status = device_enter(busy->b->device, busy->b->ordinal, &scope);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    uint64_t start = bench_now_ns();
    status = launch_all(busy);
    device_leave(busy->b->device, &scope);
    *bytes = 0;
    if (status == YOLK_OK && beside != NULL)
        status = bench_gpu_move_until(beside, is_over, busy, bytes);
    int entered = device_enter(busy->b->device, busy->b->ordinal, &scope);
    if (entered != YOLK_OK)
        return (enum yolk_status)entered;
    cuda_result result = device_cuda(busy->b->device)->stream_synchronize(busy->stream);
    *seconds = bench_seconds_since(start);
    device_leave(busy->b->device, &scope);
    return (enum yolk_status)(status == YOLK_OK ? bench_gpu_call(busy->b, result, "the busy kernel")
                                                : status);
}

static int load(struct bench_busy *busy)
{
    const struct cuda *cuda = device_cuda(busy->b->device);
    int multiprocessors = 1;
    if (cuda->missing[CUDA_KERNEL] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the driver has no function %s",
                         cuda->missing[CUDA_KERNEL]);
    int status =
        bench_gpu_call(busy->b, cuda->module_load_data_ex(&busy->module, busy_ptx, 0, NULL, NULL),
                       "cuModuleLoadDataEx of the busy kernel");
    if (status == YOLK_OK)
        status = bench_gpu_call(
            busy->b, cuda->module_get_function(&busy->function, busy->module, "yolk_busy"),
            "cuModuleGetFunction of the busy kernel");
    if (status == YOLK_OK)
        status =
            bench_gpu_call(busy->b, cuda->stream_create(&busy->stream, CUDA_STREAM_NON_BLOCKING),
                           "cuStreamCreate");
    if (status == YOLK_OK)
        status =
            bench_gpu_call(busy->b,
                           cuda->device_get_attribute(&multiprocessors, CUDA_DEVICE_MULTIPROCESSORS,
                                                      busy->b->ordinal),
                           "cuDeviceGetAttribute of the multiprocessors");
    busy->blocks = busy->b->check ? 2 : (uint32_t)multiprocessors * WAVES;
    busy->launches = busy->b->check ? 1 : LAUNCHES;
    busy->rounds = busy->b->check ? 10 : FIRST_ROUNDS;
    if (status == YOLK_OK)
        status = bench_gpu_call(
            busy->b, cuda->mem_alloc(&busy->out, (size_t)busy->blocks * THREADS * sizeof(uint32_t)),
            "cuMemAlloc");
    return status;
}

/* As many rounds as make a launch last about two milliseconds. */
static enum yolk_status calibrate(struct bench_busy *busy)
{
    double seconds;
    uint64_t bytes;
    enum yolk_status status = bench_busy_run(busy, NULL, &seconds, &bytes); /* to warm up */
    if (status == YOLK_OK && !busy->b->check)
        status = bench_busy_run(busy, NULL, &seconds, &bytes);
    if (status != YOLK_OK || busy->b->check)
        return status;
    double wanted = busy->rounds * (LAUNCH_NS / 1e9) / (seconds / busy->launches);
    busy->rounds = wanted < 1 ? 1 : wanted > 1e8 ? 100000000 : (uint32_t)wanted;
    return YOLK_OK;
}

static enum yolk_status verify(struct bench_busy *busy)
{
    uint32_t *out = (uint32_t *)(void *)busy->b->back;
    const uint32_t places[] = {0, 1, THREADS + 7, busy->blocks * THREADS - 1};
    double seconds;
    uint64_t bytes;
    enum yolk_status status = bench_busy_run(busy, NULL, &seconds, &bytes);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && status == YOLK_OK; i++) {
        const void *from = (const void *)(uintptr_t)(busy->out + places[i] * sizeof(uint32_t));
        status = bench_gpu_bare(busy->b, out, from, sizeof(*out));
        if (status == YOLK_OK && *out != expected(places[i], busy->rounds))
            status = base_fail(YOLK_ERR_CORRUPT, 0, "the busy kernel computed %u where %u is right",
                               *out, expected(places[i], busy->rounds));
    }
    return status;
}

enum yolk_status bench_busy_open(struct bench_busy *busy, struct bench_gpu *b)
{
    struct device_scope scope;
    memset(busy, 0, sizeof(*busy));
    busy->b = b;
    int status = device_enter(b->device, b->ordinal, &scope);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    status = load(busy);
    device_leave(b->device, &scope);
    if (status == YOLK_OK)
        status = calibrate(busy);
    return (enum yolk_status)(status == YOLK_OK ? verify(busy) : status);
}

void bench_busy_close(struct bench_busy *busy)
{
    const struct cuda *cuda = device_cuda(busy->b->device);
    struct device_scope scope;
    if (device_enter(busy->b->device, busy->b->ordinal, &scope) != YOLK_OK)
        return;
    if (busy->stream != NULL)
        (void)cuda->stream_destroy(busy->stream);
    if (busy->out != 0)
        (void)cuda->mem_free(busy->out);
    if (busy->module != NULL)
        (void)cuda->module_unload(busy->module);
    device_leave(busy->b->device, &scope);
}
