/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver's own table of functions. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

/* What has another name in the library than it is asked by. */
static const struct {
    const char *name;
    int from; /* the version of the signature */
    const char *symbol;
} versions[] = {
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
    {"cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
};

/* The newest signature up to the version asked for; none of a later one than the driver's. */
static const char *symbol_of(const char *name, int version)
{
    if (strcmp(name, "cuMemcpyBatchAsync") == 0 && (version < 12080 || fake.version < 12080))
        return NULL;
    if (strcmp(name, "cuMemcpyBatchAsync") == 0 && version >= 13000)
        return NULL; /* the fake has not the signature of 13.0, which nobody asks for */
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        if (strcmp(versions[i].name, name) == 0)
            return version >= versions[i].from ? versions[i].symbol : NULL;
    }
    return name;
}

static void *lookup(const char *name, int version)
{
    Dl_info self;
    for (unsigned i = 0; i < fake.missing_count; i++) {
        if (strcmp(fake.missing[i], name) == 0)
            return NULL;
    }
    const char *symbol = symbol_of(name, version);
    if (symbol == NULL || version > fake.version || dladdr((void *)&fake, &self) == 0)
        return NULL;
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *found = library != NULL ? dlsym(library, symbol) : NULL;
    if (library != NULL)
        dlclose(library);
    return found;
}

FAKE_API cuda_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                         int *found);
FAKE_API cuda_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                         int *found)
{
    *out = flags == 0 ? lookup(name, version) : NULL;
    if (found != NULL)
        *found = *out == NULL;
    return *out != NULL ? CUDA_OK : CUDA_ERR_NOT_FOUND;
}
