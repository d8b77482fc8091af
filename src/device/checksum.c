/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of a GPU's memory by its kernel. A sum is one launch: a list of pieces in pinned
 * memory, each with room for its remainder, which the processor joins. Before the first one counts
 * the kernel has to give what the processor knows of a pattern in the GPU's memory.
 */
#define LOG_ROOM "device"
#include "device/checksum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "device/internal.h"
#include "platform/clock.h"

enum {
    SUM_PIECES = 2048,        /* of one launch: 64 KiB of list */
    SUMS_MAX = 64,            /* under way on one GPU */
    PIECE_BYTES = 16384,      /* so much for a warp, or more of a span that would fill the list */
    SPAN_PIECES = 512,        /* about */
    ALIGNMENT = 16,           /* else one lane has all of a piece */
    PATTERN_BYTES = 40 << 10, /* for the check */
    CHECK_MS = 1000,          /* the first caller waits, the next ones look whether it is over */
};

struct device_sum {
    struct base_list node; /* among the idle ones, or those that are left */
    struct gpu *gpu;
    struct device_transfer *transfer;
    struct gather_piece *pieces; /* `unused` is where the remainder goes */
    uint32_t piece_count, span_count;
    uint16_t ends[SUM_PIECES]; /* of each span's pieces */
};

static const char NAME[] = "checksum";

/* ---- lists ---- */

static void add_piece(struct device_sum *sum, uint64_t from, uint64_t size)
{
    struct gather_piece *piece = &sum->pieces[sum->piece_count++];
    *piece = (struct gather_piece){(uintptr_t)&piece->unused, from, size, 0};
}

/* Aligned pieces, and what lies before and behind them. False: there is no room. */
static bool add_span(struct device_sum *sum, const struct device_span *span)
{
    uint64_t from = (uintptr_t)span->memory, left = span->size;
    uint64_t step = span->size / SPAN_PIECES / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    if (step < PIECE_BYTES)
        step = PIECE_BYTES;
    if (sum->span_count == SUM_PIECES ||
        span->size / step + 3 > (uint64_t)(SUM_PIECES - sum->piece_count))
        return false;
    while (left > 0) {
        uint64_t size = ALIGNMENT - from % ALIGNMENT;
        if (size == ALIGNMENT && left >= ALIGNMENT)
            size = left < step ? left / ALIGNMENT * ALIGNMENT : step;
        if (size > left)
            size = left;
        add_piece(sum, from, size);
        from += size;
        left -= size;
    }
    sum->ends[sum->span_count++] = (uint16_t)sum->piece_count;
    return true;
}

static struct device_sum *make_sum(struct gpu *gpu)
{
    struct device_sum *sum = base_calloc(1, sizeof(*sum));
    void *memory = NULL;
    if (sum == NULL)
        return NULL;
    cuda_result error =
        gpu->device->cuda.mem_host_alloc(&memory, SUM_PIECES * sizeof(struct gather_piece),
                                         CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP);
    if (error != CUDA_OK) {
        free(sum);
        return NULL;
    }
    base_list_init(&sum->node);
    sum->gpu = gpu;
    sum->pieces = memory;
    gpu->sums.count++;
    return sum;
}

/* Gives back those of `left` that are over; the thread's last error stays. */
static void look_at_left(struct sums *sums)
{
    struct base_list still;
    struct base_list *node;
    base_list_init(&still);
    while ((node = base_list_pop_front(&sums->left)) != NULL) {
        struct device_sum *sum = BASE_CONTAINER(node, struct device_sum, node);
        /* Where nothing can be asked any more it is busy for good. */
        bool over = device_transfer_poll(sum->transfer) != YOLK_ERR_AGAIN &&
                    device_transfer_free(sum->transfer) == YOLK_OK;
        base_list_push_back(over ? &sums->idle : &still, node);
    }
    while ((node = base_list_pop_front(&still)) != NULL)
        base_list_push_back(&sums->left, node);
}

static struct device_sum *take_sum(struct gpu *gpu, int *status)
{
    struct sums *sums = &gpu->sums;
    look_at_left(sums);
    struct base_list *node = base_list_pop_front(&sums->idle);
    struct device_sum *sum = NULL;
    if (node != NULL)
        sum = BASE_CONTAINER(node, struct device_sum, node);
    else if (sums->count < SUMS_MAX)
        sum = make_sum(gpu);
    if (sum == NULL) {
        *status = base_fail(YOLK_ERR_AGAIN, 0,
                            "GPU %d: %u lists of checksums are in use, and there "
                            "is no room for more",
                            gpu->ordinal, sums->count);
        return NULL;
    }
    sum->piece_count = sum->span_count = 0;
    sum->transfer = NULL;
    return sum;
}

static int make_stream(struct gpu *gpu)
{
    cuda_stream stream = NULL;
    if (gpu->sums.stream != NULL)
        return YOLK_OK;
    cuda_result error = gpu->device->cuda.stream_create(&stream, CUDA_STREAM_NON_BLOCKING);
    if (error != CUDA_OK)
        return gpu_fail(gpu, error, "cuStreamCreate");
    gpu->sums.stream = stream;
    return YOLK_OK;
}

/* In the GPU's context and under the lock of its sums. */
static int launch(struct gpu *gpu, struct device_sum *sum)
{
    int status = YOLK_OK;
    mutex_lock(&gpu->lock);
    sum->transfer = transfer_take(gpu, &status);
    if (status == YOLK_OK)
        status = kernel_launch(gpu, &gpu->sums.kernel, NAME, sum->pieces, sum->piece_count,
                               gpu->sums.stream);
    if (status == YOLK_OK)
        transfer_mark(sum->transfer, gpu->sums.stream);
    else if (sum->transfer != NULL)
        transfer_give(sum->transfer);
    mutex_unlock(&gpu->lock);
    return status;
}

/* ---- the check ---- */

/* Around each length at which the kernel does something else. */
static const struct {
    uint32_t offset, size;
} CHECKS[] = {
    {0, 16},        {16, 32},    {32, 496},        {48, 512},       {0, 528},
    {0, 1024},      {112, 1040}, {0, PIECE_BYTES}, {16, 4096 - 16}, {0, PATTERN_BYTES},
    {8, 32768 + 5}, {5, 1},      {3, 15},          {9, 700},        {4095, PIECE_BYTES + 1},
};
enum { CHECK_COUNT = sizeof(CHECKS) / sizeof(CHECKS[0]) };

static void fill_pattern(uint8_t *pattern)
{
    for (uint32_t i = 0; i < PATTERN_BYTES; i++)
        pattern[i] = (uint8_t)(base_mix64(i) >> 13);
}

static int begin_check(struct gpu *gpu, const uint8_t *pattern)
{
    struct sums *sums = &gpu->sums;
    const struct cuda *cuda = &gpu->device->cuda;
    int status = make_stream(gpu);
    struct device_sum *sum = status == YOLK_OK ? take_sum(gpu, &status) : NULL;
    if (sum == NULL)
        return status;
    cuda_result error = CUDA_OK;
    if (sums->pattern == 0)
        error = cuda->mem_alloc(&sums->pattern, PATTERN_BYTES);
    if (error != CUDA_OK) {
        sums->pattern = 0;
        status = gpu_fail(gpu, error, "cuMemAlloc for the check of the checksum kernel");
    } else {
        error = cuda->memcpy_async(sums->pattern, (uintptr_t)pattern, PATTERN_BYTES, sums->stream);
        if (error != CUDA_OK)
            status = gpu_fail(gpu, error, "cuMemcpyAsync for the check of the checksum kernel");
    }
    for (unsigned i = 0; i < CHECK_COUNT && status == YOLK_OK; i++) {
        struct device_span span = {(const void *)(uintptr_t)(sums->pattern + CHECKS[i].offset),
                                   CHECKS[i].size};
        (void)add_span(sum, &span);
    }
    if (status == YOLK_OK)
        status = launch(gpu, sum);
    if (status == YOLK_OK)
        sums->check = sum;
    else
        base_list_push_back(&sums->idle, &sum->node);
    return status;
}

static void compare(struct gpu *gpu, const struct device_sum *sum, const uint8_t *pattern)
{
    struct kernel *kernel = &gpu->sums.kernel;
    for (unsigned i = 0; i < CHECK_COUNT; i++) {
        uint32_t wanted = base_crc32c(0, pattern + CHECKS[i].offset, CHECKS[i].size);
        uint32_t given = device_sum_of(sum, i, 0);
        if (given == wanted)
            continue;
        kernel->function = NULL;
        snprintf(kernel->reason, sizeof(kernel->reason),
                 "the kernel's checksum of %u bytes is %08x, but %08x is right", CHECKS[i].size,
                 given, wanted);
        return;
    }
}

static void turn_off(struct gpu *gpu)
{
    struct kernel *kernel = &gpu->sums.kernel;
    kernel->function = NULL;
    snprintf(kernel->reason, sizeof(kernel->reason), "%s", yolk_last_error());
}

static void tell(const struct gpu *gpu)
{
    if (gpu->sums.kernel.function == NULL)
        log_warn("GPU %d makes no checksums: %s", gpu->ordinal, gpu->sums.kernel.reason);
}

/* AGAIN: it is under way. */
static int end_check(struct gpu *gpu, uint64_t deadline_ns, const uint8_t *pattern)
{
    struct device_sum *sum = gpu->sums.check;
    int status = device_transfer_wait(sum->transfer, deadline_ns);
    if (status == YOLK_ERR_TIMEOUT)
        return base_fail(YOLK_ERR_AGAIN, 0, "GPU %d has not done the check of the checksum kernel",
                         gpu->ordinal);
    if (status == YOLK_OK)
        compare(gpu, sum, pattern);
    else
        turn_off(gpu);
    gpu->sums.check = NULL;
    base_list_push_back(&gpu->sums.left, &sum->node);
    look_at_left(&gpu->sums);
    tell(gpu);
    return YOLK_OK;
}

static int check(struct gpu *gpu, bool first)
{
    int status = YOLK_OK;
    uint8_t *pattern = base_malloc(PATTERN_BYTES);
    if (pattern == NULL)
        return base_fail(YOLK_ERR_AGAIN, 0, "no memory to check the checksum kernel");
    fill_pattern(pattern);
    if (first)
        status = begin_check(gpu, pattern);
    if (status != YOLK_OK) {
        turn_off(gpu);
        tell(gpu);
    } else {
        status = end_check(gpu, clock_after_ms(clock_real_now_ns(), first ? CHECK_MS : 0), pattern);
    }
    free(pattern);
    return status;
}

/* In the GPU's context and under the lock of its sums. */
static int be_ready(struct gpu *gpu)
{
    struct sums *sums = &gpu->sums;
    bool first = !sums->kernel.tried;
    if (first && !kernel_load(gpu, &sums->kernel, NAME, checksum_ptx, CHECKSUM_KERNEL))
        tell(gpu);
    if (sums->kernel.function != NULL && (first || sums->check != NULL)) {
        int status = check(gpu, first);
        if (status == YOLK_ERR_AGAIN)
            return status;
    }
    return sums->kernel.function != NULL
               ? YOLK_OK
               : base_fail(YOLK_ERR_UNSUPPORTED, 0, "GPU %d makes no checksums: %s", gpu->ordinal,
                           sums->kernel.reason);
}

/* ---- for callers ---- */

static long begin(struct gpu *gpu, const struct device_span *spans, size_t count,
                  struct device_sum **out)
{
    uint64_t bytes = 0;
    size_t taken = 0;
    int status = be_ready(gpu);
    struct device_sum *sum = status == YOLK_OK ? take_sum(gpu, &status) : NULL;
    if (sum == NULL)
        return status;
    for (; taken < count && add_span(sum, &spans[taken]); taken++)
        bytes += spans[taken].size;
    status = launch(gpu, sum);
    if (status != YOLK_OK) {
        base_list_push_back(&gpu->sums.idle, &sum->node);
        return status;
    }
    atomic_fetch_add_explicit(&gpu->device->sum_launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->device->sum_bytes, bytes, memory_order_relaxed);
    *out = sum;
    return (long)taken;
}

long device_sum_begin(struct device *device, int ordinal, const struct device_span *spans,
                      size_t count, struct device_sum **out)
{
    int status;
    struct device_scope scope;
    *out = NULL;
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    if (gpu == NULL)
        return status;
    if (count == 0 || spans[0].size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "the checksum of nothing is no GPU's to make");
    status = gpu_enter(gpu, &scope);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&gpu->sums.lock);
    long taken = begin(gpu, spans, count, out);
    mutex_unlock(&gpu->sums.lock);
    device_leave(device, &scope);
    return taken;
}

int device_sum_wait(struct device_sum *sum, uint64_t deadline_ns)
{
    return device_transfer_wait(sum->transfer, deadline_ns);
}

uint32_t device_sum_of(const struct device_sum *sum, size_t index, uint32_t crc)
{
    uint64_t size = 0;
    uint32_t factor = base_crc32c_factor(0);
    for (uint32_t i = index > 0 ? sum->ends[index - 1] : 0; i < sum->ends[index]; i++) {
        const struct gather_piece *piece = &sum->pieces[i];
        if (piece->size != size) /* most are alike */
            factor = base_crc32c_factor(piece->size);
        size = piece->size;
        crc = base_crc32c_append(crc, (uint32_t)piece->unused, factor);
    }
    return crc;
}

void device_sum_end(struct device_sum *sum)
{
    struct sums *sums = &sum->gpu->sums;
    mutex_lock(&sums->lock);
    base_list_push_back(&sums->left, &sum->node);
    look_at_left(sums);
    mutex_unlock(&sums->lock);
}

int device_sum_reason(struct device *device, int ordinal, char *out, size_t size)
{
    int status;
    struct device_scope scope;
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    if (gpu != NULL)
        status = gpu_enter(gpu, &scope);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&gpu->sums.lock);
    status = be_ready(gpu);
    snprintf(out, size, "%s",
             status == YOLK_ERR_AGAIN ? yolk_last_error() : gpu->sums.kernel.reason);
    mutex_unlock(&gpu->sums.lock);
    device_leave(device, &scope);
    base_error_clear();
    return YOLK_OK;
}

/* ---- life ---- */

void sums_init(struct gpu *gpu)
{
    mutex_init(&gpu->sums.lock);
    base_list_init(&gpu->sums.idle);
    base_list_init(&gpu->sums.left);
}

void sums_fini(struct gpu *gpu, bool usable)
{
    struct sums *sums = &gpu->sums;
    const struct cuda *cuda = &gpu->device->cuda;
    struct base_list *node;
    if (sums->check != NULL)
        base_list_push_back(&sums->left, &sums->check->node);
    if (usable)
        look_at_left(sums);
    /* What still runs stays as it is, for the GPU reads and writes it. */
    while ((node = base_list_pop_front(&sums->idle)) != NULL) {
        struct device_sum *sum = BASE_CONTAINER(node, struct device_sum, node);
        if (usable)
            (void)cuda->mem_free_host(sum->pieces);
        free(sum);
    }
    if (usable && sums->stream != NULL)
        (void)cuda->stream_destroy(sums->stream);
    if (usable && sums->kernel.module != NULL)
        (void)cuda->module_unload(sums->kernel.module);
    if (usable && sums->pattern != 0)
        (void)cuda->mem_free(sums->pattern);
    mutex_destroy(&sums->lock);
}
