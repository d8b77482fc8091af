/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_gpu.h"
#include "platform/clock.h"
#include "platform/random.h"

enum { TRANSFERS = 16, WAIT_MS = 30000 };

#define ALL_BYTES   (512 * MIB)
#define CHECK_BYTES (8 * MIB)

int bench_gpu_call(const struct bench_gpu *b, cuda_result result, const char *what)
{
    return result == CUDA_OK ? YOLK_OK : cuda_fail(device_cuda(b->device), result, "%s", what);
}

static int allocate(struct bench_gpu *b)
{
    const struct cuda *cuda = device_cuda(b->device);
    struct device_scope scope;
    cuda_pointer pointer = 0;
    cuda_stream stream = NULL;
    void *memory = NULL;
    int status = device_pinned_alloc(b->device, b->ordinal, b->total, &memory);
    b->host = memory;
    if (status == YOLK_OK)
        status = device_pinned_alloc(b->device, b->ordinal, b->total, &memory);
    if (status != YOLK_OK)
        return status;
    b->back = memory;
    status = device_enter(b->device, b->ordinal, &scope);
    if (status != YOLK_OK)
        return status;
    status = bench_gpu_call(b, cuda->mem_alloc(&pointer, b->total), "cuMemAlloc");
    b->gpu = (uint8_t *)(uintptr_t)pointer;
    if (status == YOLK_OK)
        status = bench_gpu_call(b, cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING),
                                "cuStreamCreate");
    b->stream = stream;
    device_leave(b->device, &scope);
    return status;
}

enum yolk_status bench_gpu_open_sized(struct bench_gpu *b, int ordinal, uint64_t size)
{
    const struct device_options options = {.pinned_bytes_max = 4 * GIB};
    struct device_gpu gpu;
    *b = (struct bench_gpu){.ordinal = ordinal, .total = size, .runs = 1};
    int status = device_open(&options, &b->device);
    if (status == YOLK_OK)
        status = device_gpu(b->device, ordinal, &gpu);
    return (enum yolk_status)(status == YOLK_OK ? allocate(b) : status);
}

enum yolk_status bench_gpu_open(struct bench_gpu *b, int ordinal, bool check)
{
    struct device_options options = {.pinned_bytes_max = 4 * GIB, .gather_below = 64 * MIB};
    int status = (int)bench_gpu_open_sized(b, ordinal, check ? CHECK_BYTES : ALL_BYTES);
    b->check = check;
    b->runs = check ? 1 : 15;
    if (status == YOLK_OK)
        status = device_open(&options, &b->kernel);
    options.gather_below = 1;
    if (status == YOLK_OK)
        status = device_open(&options, &b->engine);
    return (enum yolk_status)status;
}

void bench_gpu_close(struct bench_gpu *b)
{
    struct device_scope scope;
    if (b->gpu != NULL && device_enter(b->device, b->ordinal, &scope) == YOLK_OK) {
        (void)device_cuda(b->device)->mem_free((uintptr_t)b->gpu);
        if (b->stream != NULL)
            (void)device_cuda(b->device)->stream_destroy(b->stream);
        device_leave(b->device, &scope);
    }
    if (b->host != NULL)
        device_pinned_free(b->device, b->host, b->total);
    if (b->back != NULL)
        device_pinned_free(b->device, b->back, b->total);
    device_close(b->kernel);
    device_close(b->engine);
    device_close(b->device);
}

enum yolk_status bench_gpu_bare(const struct bench_gpu *b, void *to, const void *from, size_t size)
{
    const struct cuda *cuda = device_cuda(b->device);
    struct device_scope scope;
    int status = device_enter(b->device, b->ordinal, &scope);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    status = bench_gpu_call(b, cuda->memcpy_async((uintptr_t)to, (uintptr_t)from, size, b->stream),
                            "cuMemcpyAsync");
    if (status == YOLK_OK)
        status = bench_gpu_call(b, cuda->stream_synchronize(b->stream), "cuStreamSynchronize");
    device_leave(b->device, &scope);
    return (enum yolk_status)status;
}

void bench_gpu_fill(struct bench_gpu *b, uint8_t *memory, size_t size)
{
    uint64_t state = ++b->pattern * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i + sizeof(state) <= size; i += sizeof(state)) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(memory + i, &state, sizeof(state));
    }
}

/* Which block of the host's lies at block i of the GPU: a drawn order, the same each time. */
static uint32_t *places_of(const struct bench_gpu_run *run, size_t count)
{
    uint32_t *places = calloc(count, sizeof(*places));
    struct random_sim seeded;
    random_sim_init(&seeded, run->block);
    const struct random random = random_sim_random(&seeded);
    for (size_t i = 0; places != NULL && i < count; i++)
        places[i] = (uint32_t)i;
    for (size_t i = count; places != NULL && run->scattered && i > 1; i--) {
        size_t k = random_below(&random, i);
        uint32_t swap = places[i - 1];
        places[i - 1] = places[k];
        places[k] = swap;
    }
    return places;
}

static struct device_copy *copies_of(const struct bench_gpu_run *run, size_t *count)
{
    const struct bench_gpu *b = run->b;
    *count = b->total / run->block;
    uint32_t *places = places_of(run, *count);
    struct device_copy *copies = calloc(*count, sizeof(*copies));
    for (size_t i = 0; places != NULL && copies != NULL && i < *count; i++) {
        uint8_t *gpu = b->gpu + i * run->block, *host = b->host + places[i] * run->block;
        copies[i] = run->direction == DEVICE_TO_GPU ? (struct device_copy){gpu, host, run->block}
                                                    : (struct device_copy){host, gpu, run->block};
    }
    if (places == NULL && copies != NULL) {
        free(copies);
        copies = NULL;
    }
    free(places);
    if (copies == NULL)
        base_ignore(base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of %zu copies", *count));
    return copies;
}

static int move_bare(const struct bench_gpu_run *run, const struct device_copy *copies,
                     size_t count)
{
    const struct bench_gpu *b = run->b;
    const struct cuda *cuda = device_cuda(b->device);
    struct device_scope scope;
    int status = device_enter(b->device, b->ordinal, &scope);
    if (status != YOLK_OK)
        return status;
    cuda_result result = CUDA_OK;
    for (size_t i = 0; i < count && result == CUDA_OK; i++)
        result = cuda->memcpy_async((uintptr_t)copies[i].to, (uintptr_t)copies[i].from,
                                    copies[i].size, b->stream);
    status = bench_gpu_call(b, result, "cuMemcpyAsync");
    result = cuda->stream_synchronize(b->stream);
    device_leave(b->device, &scope);
    return status == YOLK_OK ? bench_gpu_call(b, result, "cuStreamSynchronize") : status;
}

/* Transfers under way, the oldest first. */
struct under_way {
    struct device_transfer *transfers[TRANSFERS];
    unsigned count;
};

static int end_oldest(struct under_way *way)
{
    int status =
        device_transfer_wait(way->transfers[0], clock_after_ms(clock_real_now_ns(), WAIT_MS));
    if (status == YOLK_OK)
        status = device_transfer_free(way->transfers[0]);
    memmove(way->transfers, way->transfers + 1, --way->count * sizeof(way->transfers[0]));
    return status;
}

static int begin(const struct bench_gpu_run *run, const struct device_copy *copies, size_t count,
                 struct under_way *way, size_t *taken)
{
    const struct device_copy_options how = {.direction = run->direction};
    if (way->count == TRANSFERS)
        return YOLK_ERR_AGAIN;
    long n =
        device_copy(run->device, run->b->ordinal, copies, count, &how, &way->transfers[way->count]);
    if (n < 0)
        return (int)n;
    way->count++;
    *taken = (size_t)n;
    return YOLK_OK;
}

static int move_ours(const struct bench_gpu_run *run, const struct device_copy *copies,
                     size_t count, struct under_way *way)
{
    int status = YOLK_OK;
    for (size_t done = 0, taken; done < count && status == YOLK_OK; done += taken) {
        taken = 0;
        status = begin(run, copies + done, count - done, way, &taken);
        if (status == YOLK_ERR_AGAIN && way->count > 0)
            status = end_oldest(way);
    }
    return status;
}

static int end_all(struct under_way *way, int status)
{
    while (way->count > 0) {
        int end = end_oldest(way);
        status = status == YOLK_OK ? end : status;
    }
    return status;
}

enum yolk_status bench_gpu_move(void *self, double *seconds)
{
    const struct bench_gpu_run *run = self;
    struct under_way way = {.count = 0};
    size_t count;
    struct device_copy *copies = copies_of(run, &count);
    if (copies == NULL)
        return YOLK_ERR_NO_MEMORY;
    uint64_t start = bench_now_ns();
    int status = run->device == NULL ? move_bare(run, copies, count)
                                     : end_all(&way, move_ours(run, copies, count, &way));
    *seconds = bench_seconds_since(start);
    free(copies);
    return (enum yolk_status)status;
}

enum yolk_status bench_gpu_move_until(const struct bench_gpu_run *run, bool (*over)(void *self),
                                      void *self, uint64_t *bytes)
{
    struct under_way way = {.count = 0};
    size_t count, done = 0;
    struct device_copy *copies = copies_of(run, &count);
    int status = copies != NULL ? YOLK_OK : YOLK_ERR_NO_MEMORY;
    *bytes = 0;
    while (status == YOLK_OK && !over(self)) {
        size_t taken = 0;
        /* A part at a time, so that the end is seen soon. */
        size_t part = 16 * MIB / run->block > 0 ? 16 * MIB / run->block : 1;
        if (way.count < 4)
            status =
                begin(run, copies + done, part < count - done ? part : count - done, &way, &taken);
        else
            status = end_oldest(&way);
        *bytes += taken * run->block;
        done = (done + taken) % count;
        if (status == YOLK_ERR_AGAIN && way.count > 0)
            status = end_oldest(&way);
    }
    status = end_all(&way, status);
    free(copies);
    return (enum yolk_status)status;
}

enum yolk_status bench_gpu_verify(const struct bench_gpu_run *run)
{
    struct bench_gpu *b = run->b;
    double seconds;
    bool up = run->direction == DEVICE_TO_GPU;
    size_t count = b->total / run->block;
    struct bench_gpu_run again = *run;
    bench_gpu_fill(b, up ? b->host : b->back, b->total);
    memset(up ? b->back : b->host, 0, b->total);
    enum yolk_status status = up ? YOLK_OK : bench_gpu_bare(b, b->gpu, b->back, b->total);
    if (status == YOLK_OK)
        status = bench_gpu_move(&again, &seconds);
    if (status == YOLK_OK && up)
        status = bench_gpu_bare(b, b->back, b->gpu, b->total);
    uint32_t *places = places_of(run, count);
    if (status == YOLK_OK && places == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "a list of %zu blocks", count);
    for (size_t i = 0; i < count && status == YOLK_OK; i++)
        if (memcmp(b->back + i * run->block, b->host + places[i] * run->block, run->block) != 0)
            status = base_fail(YOLK_ERR_CORRUPT, 0, "block %zu of %zu bytes came out different", i,
                               run->block);
    free(places);
    return status;
}
