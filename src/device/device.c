/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing, the GPUs there are, contexts; what must hold after fork and at exit. */
#include "device/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "device/internal.h"
#include "platform/process.h"

static _Atomic bool exiting; /* exit has begun */
static _Atomic int inside;   /* threads between device_enter and device_leave */
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_status;

static void after_fork(void)
{
    atomic_store(&inside, 0); /* those threads are the parent's */
}

/* The driver's own end is a function of atexit too, registered when it began, so before this one,
 * which therefore runs first. Threads that are in the driver get a moment to come out of it. */
void device_end(void)
{
    enum { PAUSES = 1000, PAUSE_NS = 1000000 };
    atomic_store(&exiting, true);
    for (int i = 0; i < PAUSES && atomic_load(&inside) > 0; i++)
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static void watch(void)
{
    process_count_forks();
    if (pthread_atfork(NULL, NULL, after_fork) != 0 || atexit(device_end) != 0)
        watch_status = YOLK_ERR_NO_MEMORY;
}

int device_check(const struct device *device)
{
    if (device->generation != process_forks())
        return base_fail(YOLK_ERR_FORKED, 0,
                         "the CUDA driver was opened by another process, of which this is a child");
    if (atomic_load_explicit(&exiting, memory_order_relaxed))
        return base_fail(YOLK_ERR_CLOSED, 0, "the process exits: no call of the CUDA driver");
    return YOLK_OK;
}

bool cuda_is_sticky(cuda_result error)
{
    return error == CUDA_ERR_DEINITIALIZED || error == CUDA_ERR_ECC_UNCORRECTABLE ||
           (error >= CUDA_ERR_ILLEGAL_ADDRESS && error <= CUDA_ERR_LAUNCH_TIMEOUT) ||
           error == CUDA_ERR_CONTEXT_IS_DESTROYED ||
           (error >= 714 && error <= CUDA_ERR_LAUNCH_FAILED) || error == CUDA_ERR_UNKNOWN;
}

void gpu_lose(struct gpu *gpu)
{
    mutex_lock(&gpu->device->lost_lock);
    if (!atomic_load(&gpu->lost))
        snprintf(gpu->lost_reason, sizeof(gpu->lost_reason), "%s", yolk_last_error());
    atomic_store_explicit(&gpu->lost, true, memory_order_release);
    mutex_unlock(&gpu->device->lost_lock);
}

int gpu_fail(struct gpu *gpu, cuda_result error, const char *what)
{
    int status = cuda_fail(&gpu->device->cuda, error, "GPU %d: %s", gpu->ordinal, what);
    if (cuda_is_sticky(error))
        gpu_lose(gpu);
    return status;
}

static int attribute(const struct device *device, cuda_ordinal handle, int which, int missing)
{
    int value = missing;
    /* A driver that does not know an attribute has not what it is about. */
    return device->cuda.device_get_attribute(&value, which, handle) == CUDA_OK ? value : missing;
}

static int gpu_init(struct device *device, int ordinal)
{
    struct gpu *gpu = &device->gpus[ordinal];
    struct device_gpu *info = &gpu->info;
    const struct cuda *cuda = &device->cuda;
    struct cuda_uuid uuid;
    size_t bytes = 0;
    gpu->device = device;
    gpu->ordinal = ordinal;
    cuda_result error = cuda->device_get(&gpu->handle, ordinal);
    if (error == CUDA_OK)
        error = cuda->device_get_name(info->name, (int)sizeof(info->name), gpu->handle);
    if (error == CUDA_OK)
        error = cuda->device_get_uuid(&uuid, gpu->handle);
    if (error == CUDA_OK)
        error = cuda->device_get_pci_bus_id(info->bus, (int)sizeof(info->bus), gpu->handle);
    if (error == CUDA_OK)
        error = cuda->device_total_mem(&bytes, gpu->handle);
    if (error != CUDA_OK)
        return cuda_fail(cuda, error, "GPU %d cannot be looked at", ordinal);
    memcpy(info->uuid, uuid.bytes, sizeof(info->uuid));
    info->memory_bytes = bytes;
    info->compute_major = attribute(device, gpu->handle, CUDA_DEVICE_COMPUTE_MAJOR, 0);
    info->compute_minor = attribute(device, gpu->handle, CUDA_DEVICE_COMPUTE_MINOR, 0);
    info->numa_node = attribute(device, gpu->handle, CUDA_DEVICE_HOST_NUMA_ID, -1);
    info->vmm = attribute(device, gpu->handle, CUDA_DEVICE_VMM, 0) != 0;
    info->host_numa_vmm = attribute(device, gpu->handle, CUDA_DEVICE_HOST_NUMA_VMM, 0) != 0;
    info->fabric_claimed = attribute(device, gpu->handle, CUDA_DEVICE_FABRIC, 0) != 0;
    info->dma_buf = attribute(device, gpu->handle, CUDA_DEVICE_DMA_BUF, 0) != 0;
    gpu->same_host_pointer =
        attribute(device, gpu->handle, CUDA_DEVICE_HOST_POINTER_FOR_REGISTERED, 0) != 0;
    gpu->read_only_host =
        attribute(device, gpu->handle, CUDA_DEVICE_READ_ONLY_HOST_REGISTER, 0) != 0;
    if (attribute(device, gpu->handle, CUDA_DEVICE_UNIFIED_ADDRESSING, 0) == 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "GPU %d (%s) has no unified addressing", ordinal,
                         info->name);
    return YOLK_OK;
}

static int open_gpus(struct device *device)
{
    int count = 0;
    cuda_result error = device->cuda.device_get_count(&count);
    if (error != CUDA_OK)
        return cuda_fail(&device->cuda, error, "cuDeviceGetCount");
    if (count <= 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the CUDA driver shows no GPU");
    if (count > DEVICE_GPUS_MAX)
        count = DEVICE_GPUS_MAX;
    for (int i = 0; i < count; i++) {
        int status = gpu_init(device, i);
        if (status != YOLK_OK)
            return status;
    }
    for (int i = 0; i < count; i++) {
        mutex_init(&device->gpus[i].lock);
        base_list_init(&device->gpus[i].slots);
        base_list_init(&device->gpus[i].transfers);
        sums_init(&device->gpus[i]);
    }
    device->gpu_count = (unsigned)count;
    return YOLK_OK;
}

int device_open(const struct device_options *options, struct device **out)
{
    *out = NULL;
    struct device *device = base_calloc(1, sizeof(*device));
    if (device == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a device");
    if (options != NULL)
        device->options = *options;
    if (options != NULL && options->cufile_library != NULL)
        snprintf(device->cufile_path, sizeof(device->cufile_path), "%s", options->cufile_library);
    if (device->options.registered_bytes_max == 0)
        device->options.registered_bytes_max = 64 * GIB;
    if (device->options.pinned_bytes_max == 0)
        device->options.pinned_bytes_max = GIB;
    if (device->options.gather_blocks_max == 0)
        device->options.gather_blocks_max = 32;
    mutex_init(&device->query_lock);
    mutex_init(&device->host_lock);
    mutex_init(&device->cufile_lock);
    mutex_init(&device->lost_lock);
    condition_init(&device->host_changed);
    base_list_init(&device->idle);
    int status = cuda_load(device->options.cuda_library, &device->cuda);
    device->options.cuda_library = device->options.cufile_library = NULL; /* the caller's texts */
    /* After cuInit, so that device_end runs before the driver's own end. */
    pthread_once(&watch_once, watch);
    if (status == YOLK_OK && watch_status != YOLK_OK)
        status = base_fail(watch_status, 0, "no memory to watch for fork and exit");
    device->generation = process_forks();
    if (status == YOLK_OK)
        status = open_gpus(device);
    if (status != YOLK_OK) {
        device_close(device);
        return status;
    }
    *out = device;
    return YOLK_OK;
}

static void gpu_fini(struct gpu *gpu)
{
    struct device_scope scope;
    const struct cuda *cuda = &gpu->device->cuda;
    if (gpu->context != NULL && !atomic_load(&gpu->lost) && gpu_enter(gpu, &scope) == YOLK_OK) {
        for (int i = 0; i < DEVICE_DIRECTIONS * (LANES + PAIRS); i++) {
            if (gpu->streams[i / (LANES + PAIRS)][i % (LANES + PAIRS)] != NULL)
                (void)cuda->stream_destroy(gpu->streams[i / (LANES + PAIRS)][i % (LANES + PAIRS)]);
        }
        if (gpu->gather.module != NULL)
            (void)cuda->module_unload(gpu->gather.module);
        sums_fini(gpu, true);
        transfers_fini(gpu);
        cuda_context context;
        (void)cuda->ctx_pop_current(&context); /* before it may be destroyed */
        scope.pushed = false;
        (void)cuda->primary_ctx_release(gpu->handle);
        device_leave(gpu->device, &scope);
    } else {
        sums_fini(gpu, false);
        transfers_fini(gpu);
    }
    mutex_destroy(&gpu->lock);
}

void device_close(struct device *device)
{
    if (device == NULL)
        return;
    for (unsigned i = 0; i < device->gpu_count; i++)
        gpu_fini(&device->gpus[i]);
    mutex_destroy(&device->query_lock);
    mutex_destroy(&device->host_lock);
    mutex_destroy(&device->cufile_lock);
    mutex_destroy(&device->lost_lock);
    condition_destroy(&device->host_changed);
    free(device);
}

const struct cuda *device_cuda(const struct device *device)
{
    return &device->cuda;
}

int device_cufile(struct device *device, const struct cufile **out)
{
    *out = NULL;
    int status = device_check(device);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&device->cufile_lock);
    if (device->cufile_state == 0) {
        bool there = cufile_load(device->cufile_path[0] != '\0' ? device->cufile_path : NULL,
                                 &device->cufile) == YOLK_OK;
        device->cufile_state = there ? 1 : -1;
        snprintf(device->cufile_reason, sizeof(device->cufile_reason), "%s",
                 there ? "" : yolk_last_error());
    }
    mutex_unlock(&device->cufile_lock);
    if (device->cufile_state < 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", device->cufile_reason);
    *out = &device->cufile;
    return YOLK_OK;
}

unsigned device_count(const struct device *device)
{
    return device->gpu_count;
}

static int check_ordinal(const struct device *device, int ordinal)
{
    if (ordinal >= 0 && (unsigned)ordinal < device->gpu_count)
        return YOLK_OK;
    return base_fail(YOLK_ERR_INVALID, 0, "GPU %d: this process has GPUs 0 to %u", ordinal,
                     device->gpu_count - 1);
}

int device_gpu(const struct device *device, int ordinal, struct device_gpu *out)
{
    int status = check_ordinal(device, ordinal);
    if (status == YOLK_OK)
        *out = device->gpus[ordinal].info;
    return status;
}

int device_find(const struct device *device, const uint8_t uuid[16])
{
    char text[DEVICE_UUID_TEXT];
    for (unsigned i = 0; i < device->gpu_count; i++) {
        if (memcmp(device->gpus[i].info.uuid, uuid, 16) == 0)
            return (int)i;
    }
    device_uuid_text(uuid, text);
    return base_fail(YOLK_ERR_NOT_FOUND, 0, "%s: this process has no such GPU", text);
}

void device_uuid_text(const uint8_t uuid[16], char out[DEVICE_UUID_TEXT])
{
    char *at = out + snprintf(out, DEVICE_UUID_TEXT, "GPU");
    for (int i = 0; i < 16; i++)
        at += snprintf(at, (size_t)(out + DEVICE_UUID_TEXT - at), "%s%02x",
                       i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

struct gpu *device_gpu_of(struct device *device, int ordinal, int *status)
{
    *status = device_check(device);
    if (*status == YOLK_OK)
        *status = check_ordinal(device, ordinal);
    if (*status != YOLK_OK)
        return NULL;
    struct gpu *gpu = &device->gpus[ordinal];
    if (atomic_load_explicit(&gpu->lost, memory_order_acquire)) {
        *status = base_fail(YOLK_ERR_SYSTEM, 0, "GPU %d has failed before: %s", ordinal,
                            gpu->lost_reason);
        return NULL;
    }
    return gpu;
}

enum { NOT_EXCHANGED = -1 };

/* Counted first and checked then, so that device_end sees each one that goes on. */
static int begin_scope(struct device *device, struct device_scope *scope)
{
    scope->pushed = false;
    scope->capture_mode = NOT_EXCHANGED;
    atomic_fetch_add(&inside, 1);
    int status = device_check(device);
    if (status != YOLK_OK) {
        atomic_fetch_sub(&inside, 1);
        return status;
    }
    int mode = CUDA_CAPTURE_RELAXED;
    cuda_result error = device->cuda.thread_exchange_capture_mode(&mode);
    if (error == CUDA_OK)
        scope->capture_mode = mode;
    else
        scope->failed = cuda_fail(&device->cuda, error, "cuThreadExchangeStreamCaptureMode");
    return YOLK_OK;
}

/* The context is retained by whoever comes first and kept. */
static int retain(struct gpu *gpu)
{
    int status = YOLK_OK;
    mutex_lock(&gpu->lock);
    if (gpu->context == NULL) {
        cuda_context context = NULL;
        cuda_result error = gpu->device->cuda.primary_ctx_retain(&context, gpu->handle);
        if (error == CUDA_OK)
            gpu->context = context;
        else
            status = gpu_fail(gpu, error, "cuDevicePrimaryCtxRetain");
    }
    mutex_unlock(&gpu->lock);
    return status;
}

static int begin_relaxed(struct device *device, struct device_scope *scope)
{
    int status = begin_scope(device, scope);
    if (status == YOLK_OK && scope->capture_mode == NOT_EXCHANGED) {
        status = scope->failed;
        device_leave(device, scope);
    }
    return status;
}

int gpu_enter(struct gpu *gpu, struct device_scope *scope)
{
    int status = begin_relaxed(gpu->device, scope);
    if (status != YOLK_OK)
        return status;
    status = retain(gpu);
    if (status == YOLK_OK) {
        cuda_result error = gpu->device->cuda.ctx_push_current(gpu->context);
        scope->pushed = error == CUDA_OK;
        if (error != CUDA_OK)
            status = gpu_fail(gpu, error, "cuCtxPushCurrent");
    }
    if (status != YOLK_OK)
        device_leave(gpu->device, scope);
    return status;
}

int device_enter(struct device *device, int ordinal, struct device_scope *scope)
{
    int status;
    if (ordinal == -1)
        return begin_relaxed(device, scope);
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    return gpu != NULL ? gpu_enter(gpu, scope) : status;
}

bool scope_to_free(struct device *device, struct device_scope *scope)
{
    return begin_scope(device, scope) == YOLK_OK;
}

void device_leave(struct device *device, struct device_scope *scope)
{
    cuda_context context;
    if (scope->pushed)
        (void)device->cuda.ctx_pop_current(&context);
    scope->pushed = false;
    if (scope->capture_mode != NOT_EXCHANGED)
        (void)device->cuda.thread_exchange_capture_mode(&scope->capture_mode);
    atomic_fetch_sub(&inside, 1);
}

void device_figures(const struct device *device, struct device_figures *out)
{
    struct device *changed = (struct device *)device; /* only its lock */
    out->gather_launches = atomic_load(&device->gather_launches);
    out->gather_bytes = atomic_load(&device->gather_bytes);
    out->engine_copies = atomic_load(&device->engine_copies);
    out->engine_bytes = atomic_load(&device->engine_bytes);
    out->sum_launches = atomic_load(&device->sum_launches);
    out->sum_bytes = atomic_load(&device->sum_bytes);
    out->registrations = atomic_load(&device->registrations);
    out->deregistrations = atomic_load(&device->deregistrations);
    out->queries = atomic_load(&device->queries);
    out->query_hits = atomic_load(&device->query_hits);
    mutex_lock(&changed->host_lock);
    out->registered_bytes = device->registered_bytes;
    out->pinned_bytes = device->pinned_bytes;
    mutex_unlock(&changed->host_lock);
}

static void describe_cufile(const struct device_options *options, struct device_report *out)
{
    struct cufile cufile;
    if (cufile_load(options ? options->cufile_library : NULL, &cufile) != YOLK_OK) {
        snprintf(out->cufile_found, sizeof(out->cufile_found), "%s", yolk_last_error());
        return;
    }
    int used = snprintf(out->cufile_found, sizeof(out->cufile_found), "cuFile");
    if (cufile.version != 0)
        used += snprintf(out->cufile_found + used, sizeof(out->cufile_found) - (size_t)used,
                         " %d.%d", cufile.version / 1000, cufile.version % 1000 / 10);
    out->cufile = cufile.missing[CUFILE_BATCHES] == NULL;
    for (int i = 0; i < CUFILE_NEEDS && used < (int)sizeof(out->cufile_found); i++) {
        if (cufile.missing[i] != NULL)
            used += snprintf(out->cufile_found + used, sizeof(out->cufile_found) - (size_t)used,
                             ", without %s", cufile.missing[i]);
    }
}

void device_describe(const struct device_options *options, struct device_report *out)
{
    struct device *device;
    memset(out, 0, sizeof(*out));
    describe_cufile(options, out);
    if (device_open(options, &device) != YOLK_OK) {
        snprintf(out->cuda_found, sizeof(out->cuda_found), "%s", yolk_last_error());
        return;
    }
    out->cuda = true;
    int used = snprintf(out->cuda_found, sizeof(out->cuda_found), "driver for CUDA %d.%d",
                        device->cuda.version / 1000, device->cuda.version % 1000 / 10);
    for (unsigned i = 0; i < device->gpu_count && used < (int)sizeof(out->cuda_found); i++) {
        const struct device_gpu *gpu = &device->gpus[i].info;
        used += snprintf(out->cuda_found + used, sizeof(out->cuda_found) - (size_t)used,
                         "%s GPU %u: %s, %" PRIu64 " GiB, sm_%d%d, %s", i == 0 ? ";" : ",", i,
                         gpu->name, gpu->memory_bytes >> 30, gpu->compute_major, gpu->compute_minor,
                         gpu->bus);
    }
    for (int i = 0; i < CUDA_CAPTURE_OF_GRAPHS && used < (int)sizeof(out->cuda_found); i++) {
        if (device->cuda.missing[i] != NULL)
            used += snprintf(out->cuda_found + used, sizeof(out->cuda_found) - (size_t)used,
                             ", without %s", device->cuda.missing[i]);
    }
    device_close(device);
}
