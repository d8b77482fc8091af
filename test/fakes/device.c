/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake CUDA driver says of GPUs and errors. */
#include <stdio.h>
#include <string.h>

#include "cuda.h"

FAKE_API cuda_result cuDeviceGetCount(int *count);
FAKE_API cuda_result cuDeviceGetCount(int *count)
{
    ENTER("cuDeviceGetCount", STARTED);
    *count = fake.gpus;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDeviceGet(cuda_ordinal *device, int ordinal);
FAKE_API cuda_result cuDeviceGet(cuda_ordinal *device, int ordinal)
{
    ENTER("cuDeviceGet", STARTED);
    if (ordinal < 0 || ordinal >= fake.gpus)
        LEAVE(CUDA_ERR_INVALID_DEVICE);
    *device = ordinal;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDeviceGetName(char *name, int size, cuda_ordinal device);
FAKE_API cuda_result cuDeviceGetName(char *name, int size, cuda_ordinal device)
{
    (void)device;
    ENTER("cuDeviceGetName", STARTED);
    snprintf(name, (size_t)size, "Fake H200");
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDeviceGetUuid_v2(struct cuda_uuid *uuid, cuda_ordinal device);
FAKE_API cuda_result cuDeviceGetUuid_v2(struct cuda_uuid *uuid, cuda_ordinal device)
{
    ENTER("cuDeviceGetUuid", STARTED);
    memset(uuid, 0xfa, sizeof(*uuid));
    uuid->bytes[14] = (uint8_t)(0xfa - fake.host);
    uuid->bytes[15] = (uint8_t)(fake.first_gpu + device);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDeviceTotalMem_v2(size_t *bytes, cuda_ordinal device);
FAKE_API cuda_result cuDeviceTotalMem_v2(size_t *bytes, cuda_ordinal device)
{
    (void)device;
    ENTER("cuDeviceTotalMem", STARTED);
    *bytes = (size_t)139 << 30;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDeviceGetPCIBusId(char *text, int size, cuda_ordinal device);
FAKE_API cuda_result cuDeviceGetPCIBusId(char *text, int size, cuda_ordinal device)
{
    ENTER("cuDeviceGetPCIBusId", STARTED);
    snprintf(text, (size_t)size, "0000:%02X:%02X.0", fake.bus > 0 ? fake.bus + device : 0,
             fake.bus > 0 ? 0 : 3 + device);
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_ordinal device);
FAKE_API cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_ordinal device)
{
    ENTER("cuDeviceGetAttribute", STARTED);
    if (device < 0 || device >= fake.gpus)
        LEAVE(CUDA_ERR_INVALID_DEVICE);
    switch (attribute) { /* as seen on an H200 */
    case CUDA_DEVICE_MULTIPROCESSORS:
        *value = 132;
        break;
    case CUDA_DEVICE_COMPUTE_MAJOR:
        *value = 9;
        break;
    case CUDA_DEVICE_HOST_NUMA_ID:
        *value = fake.numa_of[device];
        break;
    case CUDA_DEVICE_HOST_NUMA_VMM:
        *value = fake.host_numa;
        break;
    case CUDA_DEVICE_COMPUTE_MINOR:
    case CUDA_DEVICE_HOST_NUMA_MULTINODE_IPC:
        *value = 0;
        break;
    case CUDA_DEVICE_HOST_POINTER_FOR_REGISTERED:
        *value = fake.same_pointer;
        break;
    case CUDA_DEVICE_UNIFIED_ADDRESSING:
    case CUDA_DEVICE_VMM:
    case CUDA_DEVICE_READ_ONLY_HOST_REGISTER:
    case CUDA_DEVICE_DMA_BUF:
    case CUDA_DEVICE_FABRIC: /* though no handle can be made */
        *value = 1;
        break;
    default:
        if (attribute <= 0 || attribute > CUDA_DEVICE_HOST_NUMA_MULTINODE_IPC)
            LEAVE(CUDA_ERR_INVALID_VALUE);
        *value = 0; /* what nobody of ours asks for */
    }
    LEAVE(CUDA_OK);
}

/* ---- errors ---- */

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {CUDA_ERR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static cuda_result error_text(const char *call, cuda_result error, const char **out, bool name)
{
    /* Counted like any other, but neither refused nor locked out by what it explains. */
    if (fake_enter(call, FREE) == CUDA_OK)
        (void)fake_leave(CUDA_OK);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error) {
            *out = name ? errors[i].name : errors[i].text;
            return CUDA_OK;
        }
    }
    *out = NULL;
    return CUDA_ERR_INVALID_VALUE;
}

FAKE_API cuda_result cuGetErrorName(cuda_result error, const char **text);
FAKE_API cuda_result cuGetErrorName(cuda_result error, const char **text)
{
    return error_text("cuGetErrorName", error, text, true);
}

FAKE_API cuda_result cuGetErrorString(cuda_result error, const char **text);
FAKE_API cuda_result cuGetErrorString(cuda_result error, const char **text)
{
    return error_text("cuGetErrorString", error, text, false);
}
