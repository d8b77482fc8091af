/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of an EGM pool on a real machine: memory of NUMA nodes from the CUDA driver, each chunk
 * served by an engine and mounted by a session of its own, so that what a segment is to the master,
 * to peers and to fences is the same as of any other node.
 */
#define LOG_ROOM "egm"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "device/device.h"
#include "device/vmm.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "store/egm_pool.h"
#include "store/internal.h"

enum { UNMOUNT_TIMEOUT_MS = 3000 };

struct chunk {
    struct vmm vmm;
    struct yolk_store *store; /* its node, while it is registered */
};

struct store_egm {
    const struct yolk_store *parent;
    struct yolk_store_options options; /* of each chunk's node; texts are the parent's */
    struct device *device;
    int handle_types;
    struct egm_driver driver;
    struct egm_pool *pool;
    const struct egm_plan *plan;
    struct chunk *chunks;
};

/* ---- settings ---- */

static int handle_types_of(const char *text)
{
    if (text == NULL || text[0] == '\0' || strcmp(text, "fabric") == 0)
        return CUDA_HANDLE_FABRIC;
    if (strcmp(text, "posix_fd") == 0)
        return CUDA_HANDLE_POSIX_FD;
    return strcmp(text, "auto") == 0 ? CUDA_HANDLE_FABRIC | CUDA_HANDLE_POSIX_FD : CUDA_HANDLE_NONE;
}

int store_egm_check(const struct yolk_store_options *options)
{
    uint32_t ids[EGM_NODES_MAX], count;
    bool automatic;
    const char *transport = options->transport == NULL ? "auto" : options->transport;
    if (!options->egm_enabled)
        return YOLK_OK;
    if (strcmp(transport, "nvlink") != 0)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "enable_egm_store_pool needs the protocol nvlink (the transport): it is "
                         "\"%.64s\"",
                         transport);
    if (options->segment_size_bytes == 0)
        return base_fail(
            YOLK_ERR_CONFIG, 0,
            "enable_egm_store_pool needs a global_segment_size of more than 0: it is 0");
    if (options->ssd_size_bytes > 0 || options->gds_enabled)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "enable_egm_store_pool: an EGM pool has no file behind it, but an SSD or "
                         "GDS file is configured");
    if (store_options_embedded(options))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "enable_egm_store_pool needs a master of its own, not the embedded one");
    if (handle_types_of(options->egm_handle_type) == CUDA_HANDLE_NONE)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "egm_handle_type is \"%.64s\": must be fabric, posix_fd or auto",
                         options->egm_handle_type);
    if (options->egm_numa_nodes == NULL)
        return YOLK_OK;
    return egm_nodes_parse(options->egm_numa_nodes, &automatic, ids, &count);
}

/* ---- the driver of the pool ---- */

static struct vmm_place place_of(uint32_t node)
{
    return (struct vmm_place){CUDA_LOCATION_HOST_NUMA, (int)node};
}

int egm_discover(struct device *device, uint32_t ids[EGM_NODES_MAX], uint32_t *count)
{
    struct device_gpu gpu;
    *count = 0;
    for (unsigned i = 0; i < device_count(device) && *count < EGM_NODES_MAX; i++) {
        int status = device_gpu(device, (int)i, &gpu);
        if (status != YOLK_OK)
            return status;
        if (!gpu.vmm || !gpu.host_numa_vmm)
            return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                             "GPU %u (%s) cannot use memory with handles of NUMA nodes", i,
                             gpu.name);
        if (gpu.numa_node < 0 || gpu.numa_node > EGM_NODE_ID_MAX)
            return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                             "GPU %u (%s): the driver names NUMA node %d as the one near it: name "
                             "them in egm_numa_nodes",
                             i, gpu.name, gpu.numa_node);
        ids[(*count)++] = (uint32_t)gpu.numa_node;
    }
    *count = egm_nodes_sort(ids, *count);
    return YOLK_OK;
}

static int discover(void *self, uint32_t ids[EGM_NODES_MAX], uint32_t *count)
{
    const struct store_egm *egm = self;
    return egm_discover(egm->device, ids, count);
}

static int granularity(void *self, uint32_t node, uint64_t *out)
{
    struct store_egm *egm = self;
    struct device_scope scope;
    int status = device_enter(egm->device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    status = vmm_granularity(device_cuda(egm->device), place_of(node), egm->handle_types, out);
    device_leave(egm->device, &scope);
    return status;
}

static int prepare(void *self, const struct egm_plan *plan)
{
    struct store_egm *egm = self;
    egm->plan = plan;
    egm->chunks = base_calloc(plan->chunk_count, sizeof(egm->chunks[0]));
    return egm->chunks != NULL ? YOLK_OK
                               : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an EGM pool");
}

static int allocate(struct store_egm *egm, uint32_t i, bool *left)
{
    struct device_scope scope;
    struct chunk *chunk = &egm->chunks[i];
    int status = device_enter(egm->device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    status =
        vmm_create(device_cuda(egm->device), place_of(egm->plan->chunks[i].node), egm->handle_types,
                   device_count(egm->device), egm->plan->chunks[i].size, 0, &chunk->vmm);
    device_leave(egm->device, &scope);
    *left = chunk->vmm.stage != VMM_NOTHING;
    return status;
}

static int release(struct store_egm *egm, uint32_t i)
{
    struct device_scope scope;
    int status = device_enter(egm->device, -1, &scope);
    if (status != YOLK_OK)
        return status;
    status = vmm_release(&egm->chunks[i].vmm);
    device_leave(egm->device, &scope);
    return status;
}

/* Which memory controller it is behind, beside the ways to it: the master may spread values over
 * these (its setting placement). */
static int name_controller(struct yolk_store *node, uint32_t numa_node)
{
    uint8_t boot[16];
    uint64_t machine;
    size_t size = strlen(node->endpoints) + 48;
    char *text = base_malloc(size);
    if (text == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an EGM pool");
    process_boot_id(boot);
    memcpy(&machine, boot, sizeof(machine));
    (void)snprintf(text, size, "%s;numa=%016" PRIx64 ".%" PRIu32, node->endpoints, machine,
                   numa_node);
    free(node->endpoints);
    node->endpoints = text;
    return YOLK_OK;
}

static int serve(struct store_egm *egm, uint32_t i, bool *left)
{
    struct chunk *chunk = &egm->chunks[i];
    char name[MAX_NAME_SIZE + 1];
    struct yolk_store_options options = egm->options;
    const struct yolk_memory memory = {.pointer = (void *)(uintptr_t)chunk->vmm.address,
                                       .size = chunk->vmm.size};
    (void)snprintf(name, sizeof(name), "%.200s#egm%u", egm->parent->name, i);
    options.name = name;
    options.segment_size_bytes = chunk->vmm.size;
    int status = store_make(&options, &memory,
                            clock_after_ms(clock_real_now_ns(), options.timeout_ms), &chunk->store);
    if (status == YOLK_OK && strstr(chunk->store->endpoints, "nvlink=") == NULL)
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink does not serve the memory");
    else if (status == YOLK_OK)
        status = name_controller(chunk->store, egm->plan->chunks[i].node);
    *left = status != YOLK_OK && chunk->store != NULL;
    return status;
}

static int mount(struct store_egm *egm, uint32_t i, bool *left)
{
    int status = store_begin(egm->chunks[i].store,
                             clock_after_ms(clock_real_now_ns(), egm->options.timeout_ms));
    *left = status != YOLK_OK;
    return status;
}

/* Only a master that has confirmed it has forgotten the segment: until then the memory stays. */
static int unmount(struct store_egm *egm, uint32_t i)
{
    struct yolk_store *node = egm->chunks[i].store;
    uint64_t grace_ms = egm->options.drain_grace_ms;
    if (store_holds_session(node->holds) == 0)
        return YOLK_OK; /* it never was */
    mutex_lock(&node->control.lock);
    if (node->control.unmount_status != YOLK_OK)
        node->control.unmounted = 0; /* that try failed: ask again */
    mutex_unlock(&node->control.lock);
    base_error_clear();
    int status = store_control_unmount(
        node, grace_ms, clock_after_ms(clock_real_now_ns(), grace_ms + UNMOUNT_TIMEOUT_MS));
    if (status == YOLK_OK || yolk_last_error()[0] != '\0')
        return status;
    return base_fail(status, 0, "the master did not unmount the segment: %s",
                     yolk_strerror((enum yolk_status)status));
}

static int unserve(struct store_egm *egm, uint32_t i)
{
    int status = store_end_parts(egm->chunks[i].store);
    if (status == YOLK_OK)
        egm->chunks[i].store = NULL;
    return status;
}

static int step(void *self, enum egm_step which, uint32_t i, bool *left)
{
    struct store_egm *egm = self;
    switch (which) {
    case EGM_STEP_ALLOCATE:
        return allocate(egm, i, left);
    case EGM_STEP_REGISTER:
        return serve(egm, i, left);
    case EGM_STEP_MOUNT:
        return mount(egm, i, left);
    case EGM_STEP_UNMOUNT:
        return unmount(egm, i);
    case EGM_STEP_UNREGISTER:
        return unserve(egm, i);
    default:
        return release(egm, i);
    }
}

/* ---- the pool ---- */

/* auto: fabric handles if one really can be made, exported and imported, else descriptors. */
static void choose_handles(struct store_egm *egm)
{
    struct device_scope scope;
    struct device_gpu gpu = {.numa_node = 0};
    if (egm->handle_types != (CUDA_HANDLE_FABRIC | CUDA_HANDLE_POSIX_FD))
        return;
    egm->handle_types = CUDA_HANDLE_POSIX_FD;
    if (device_gpu(egm->device, 0, &gpu) != YOLK_OK ||
        device_enter(egm->device, -1, &scope) != YOLK_OK)
        return;
    uint32_t node = gpu.numa_node < 0 ? 0 : (uint32_t)gpu.numa_node;
    if (vmm_probe(device_cuda(egm->device), place_of(node), CUDA_HANDLE_FABRIC) == YOLK_OK)
        egm->handle_types = CUDA_HANDLE_FABRIC;
    else
        log_warn("the EGM pool is for this machine only: no fabric handles (an IMEX channel is "
                 "needed for them): %s",
                 yolk_last_error());
    device_leave(egm->device, &scope);
}

static void destroy(struct yolk_store *store)
{
    struct store_egm *egm = store->egm;
    store->egm = NULL;
    device_unshare(egm->device);
    free(egm->chunks);
    free(egm);
}

int store_egm_open(struct yolk_store *store, const struct yolk_store_options *options)
{
    struct store_egm *egm = base_calloc(1, sizeof(*egm));
    if (egm == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an EGM pool");
    const struct egm_settings settings = {options->egm_numa_nodes, options->segment_size_bytes,
                                          options->egm_chunk_bytes_max};
    store->egm = egm;
    egm->parent = store;
    egm->options = *options;
    egm->options.egm_enabled = 0;
    egm->options.transport = "auto"; /* nvlink, and TCP for who is outside the domain */
    egm->options.pool_size_bytes = 0;
    egm->handle_types = handle_types_of(options->egm_handle_type);
    egm->driver = (struct egm_driver){egm, discover, granularity, prepare, step};
    int status = device_share(options->cuda_library, NULL, &egm->device);
    if (status != YOLK_OK) {
        status = base_fail_context(status, "enable_egm_store_pool");
    } else {
        choose_handles(egm);
        status = egm_pool_open(&settings, &egm->driver, &egm->pool);
    }
    if (egm->pool == NULL) {
        char why[MAX_LAST_ERROR];
        (void)snprintf(why, sizeof(why), "%s", yolk_last_error());
        destroy(store);
        return status == YOLK_OK ? YOLK_OK : base_fail(status, 0, "%s", why);
    }
    return status;
}

int store_egm_close(struct yolk_store *store)
{
    if (store->egm == NULL)
        return YOLK_OK;
    int status = egm_pool_close(store->egm->pool);
    if (status == YOLK_OK)
        destroy(store);
    return status;
}

int store_egm_health(const struct yolk_store *store)
{
    return store->egm == NULL ? EGM_HEALTHY : (int)egm_pool_health(store->egm->pool);
}

int store_egm_stat(struct yolk_store *store, struct base_buf *lines)
{
    const struct store_egm *egm = store->egm;
    if (egm == NULL)
        return YOLK_OK;
    int status = egm_pool_stat(egm->pool, lines);
    if (status == YOLK_OK)
        status = base_buf_printf(lines, "mooncake_egm_store_pool_fabric %d\n",
                                 egm->handle_types == CUDA_HANDLE_FABRIC);
    return status;
}
