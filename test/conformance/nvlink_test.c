/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory with handles, on the fake driver: the suite looks at the memory by the processor. */
#include <stdlib.h>

#include "device/device.h"
#include "device/vmm.h"
#include "suite.h"
#include "transport/nvlink/nvlink.h"

static const char library[] = YOLK_FAKES_DIR "/libcuda.so.1";
static struct device *device;

static void prepare(struct yolk_transport_options *options, int is_provider)
{
    (void)is_provider;
    options->cuda_library = library;
}

static enum yolk_status memory_alloc(void *endpoint, uint64_t size, struct yolk_memory *out)
{
    const struct vmm_place node = {CUDA_LOCATION_HOST_NUMA, 0};
    struct device_scope scope;
    uint64_t granularity;
    struct vmm *vmm = calloc(1, sizeof(*vmm));
    (void)endpoint;
    if (vmm == NULL)
        return YOLK_ERR_NO_MEMORY;
    /* Not before: a case makes a child process first, in which nobody may have begun with CUDA. */
    int status = device != NULL ? YOLK_OK : device_share(library, NULL, &device);
    if (status == YOLK_OK)
        status = device_enter(device, -1, &scope);
    if (status == YOLK_OK) {
        status = vmm_granularity(device_cuda(device), node, CUDA_HANDLE_POSIX_FD, &granularity);
        if (status == YOLK_OK)
            status = vmm_create(device_cuda(device), node, CUDA_HANDLE_POSIX_FD, 1,
                                (size + granularity - 1) / granularity * granularity, 0, vmm);
        device_leave(device, &scope);
    }
    *out = (struct yolk_memory){(void *)(uintptr_t)vmm->address, size, vmm};
    return (enum yolk_status)status;
}

static void memory_free(void *endpoint, struct yolk_memory *memory)
{
    struct device_scope scope;
    (void)endpoint;
    if (device_enter(device, -1, &scope) != YOLK_OK)
        abort();
    if (vmm_release(memory->internal) != YOLK_OK)
        abort();
    device_leave(device, &scope);
    free(memory->internal);
}

int main(void)
{
    struct yolk_transport_ops ops = *transport_nvlink_ops();
    ops.caps |= YOLK_CAP_ALLOC;
    ops.memory_alloc = memory_alloc;
    ops.memory_free = memory_free;
    const struct conformance_fixture fixture = {.ops = &ops, .prepare = prepare};
    int result = conformance_run(&fixture);
    device_unshare(device);
    return result;
}
