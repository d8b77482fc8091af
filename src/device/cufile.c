/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cufile.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct entry {
    const char *name, *newer;
    enum cufile_need need;
    size_t offset; /* of the function's pointer in the table */
};

static const struct entry entries[] = {
#define CUFILE_ENTRY(field, name, newer, need, result, parameters)                                 \
    {#name, newer, need, offsetof(struct cufile, field)},
    CUFILE_FUNCTIONS(CUFILE_ENTRY)
#undef CUFILE_ENTRY
};

static const char *const names[] = {"libcufile.so.0", "libcufile.so.1", "libcufile.so"};

static int open_library(const char *library, void **out)
{
    char first[256] = "";
    if (library != NULL && (*out = dlopen(library, RTLD_NOW | RTLD_LOCAL)) != NULL)
        return YOLK_OK;
    for (size_t i = 0; library == NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if ((*out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)) != NULL)
            return YOLK_OK;
        const char *why = dlerror();
        if (first[0] == '\0')
            snprintf(first, sizeof(first), "%s", why ? why : "dlopen fails");
    }
    if (library != NULL) {
        const char *why = dlerror();
        snprintf(first, sizeof(first), "%s", why ? why : "dlopen fails");
    }
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "no cuFile: %s", first);
}

int cufile_load(const char *library, struct cufile *out)
{
    char name[96];
    memset(out, 0, sizeof(*out));
    int status = open_library(library, &out->library);
    if (status != YOLK_OK)
        return status;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const struct entry *entry = &entries[i];
        snprintf(name, sizeof(name), "%s%s", entry->name, entry->newer);
        void *symbol = dlsym(out->library, name);
        if (symbol == NULL && entry->newer[0] != '\0')
            symbol = dlsym(out->library, entry->name);
        memcpy((char *)out + entry->offset, &symbol, sizeof(symbol));
        if (symbol == NULL && out->missing[entry->need] == NULL)
            out->missing[entry->need] = entry->name;
    }
    if (out->missing[CUFILE_CORE] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "this cuFile has no function %s",
                         out->missing[CUFILE_CORE]);
    if (out->get_version != NULL && out->get_version(&out->version).error != CUFILE_OK)
        out->version = 0;
    return YOLK_OK;
}

#define CUFILE_NAME(number, name)                                                                  \
    {                                                                                              \
        CUFILE_ERR_BASE + (number), "CU_FILE_" name                                                \
    }
static const struct {
    int error;
    const char *name;
} error_names[] = {
    {0, "CU_FILE_SUCCESS"},
    CUFILE_NAME(1, "DRIVER_NOT_INITIALIZED"),
    CUFILE_NAME(2, "DRIVER_INVALID_PROPS"),
    CUFILE_NAME(3, "DRIVER_UNSUPPORTED_LIMIT"),
    CUFILE_NAME(4, "DRIVER_VERSION_MISMATCH"),
    CUFILE_NAME(5, "DRIVER_VERSION_READ_ERROR"),
    CUFILE_NAME(6, "DRIVER_CLOSING"),
    CUFILE_NAME(7, "PLATFORM_NOT_SUPPORTED"),
    CUFILE_NAME(8, "IO_NOT_SUPPORTED"),
    CUFILE_NAME(9, "DEVICE_NOT_SUPPORTED"),
    CUFILE_NAME(10, "NVFS_DRIVER_ERROR"),
    CUFILE_NAME(11, "CUDA_DRIVER_ERROR"),
    CUFILE_NAME(12, "CUDA_POINTER_INVALID"),
    CUFILE_NAME(13, "CUDA_MEMORY_TYPE_INVALID"),
    CUFILE_NAME(14, "CUDA_POINTER_RANGE_ERROR"),
    CUFILE_NAME(15, "CUDA_CONTEXT_MISMATCH"),
    CUFILE_NAME(16, "INVALID_MAPPING_SIZE"),
    CUFILE_NAME(17, "INVALID_MAPPING_RANGE"),
    CUFILE_NAME(18, "INVALID_FILE_TYPE"),
    CUFILE_NAME(19, "INVALID_FILE_OPEN_FLAG"),
    CUFILE_NAME(20, "DIO_NOT_SET"),
    CUFILE_NAME(22, "INVALID_VALUE"),
    CUFILE_NAME(23, "MEMORY_ALREADY_REGISTERED"),
    CUFILE_NAME(24, "MEMORY_NOT_REGISTERED"),
    CUFILE_NAME(25, "PERMISSION_DENIED"),
    CUFILE_NAME(26, "DRIVER_ALREADY_OPEN"),
    CUFILE_NAME(27, "HANDLE_NOT_REGISTERED"),
    CUFILE_NAME(28, "HANDLE_ALREADY_REGISTERED"),
    CUFILE_NAME(29, "DEVICE_NOT_FOUND"),
    CUFILE_NAME(30, "INTERNAL_ERROR"),
    CUFILE_NAME(31, "GETNEWFD_FAILED"),
    CUFILE_NAME(33, "NVFS_SETUP_ERROR"),
    CUFILE_NAME(34, "IO_DISABLED"),
    CUFILE_NAME(35, "BATCH_SUBMIT_FAILED"),
    CUFILE_NAME(36, "GPU_MEMORY_PINNING_FAILED"),
    CUFILE_NAME(37, "BATCH_FULL"),
    CUFILE_NAME(38, "ASYNC_NOT_SUPPORTED"),
    CUFILE_NAME(39, "INTERNAL_BATCH_SETUP_ERROR"),
    CUFILE_NAME(40, "INTERNAL_BATCH_SUBMIT_ERROR"),
    CUFILE_NAME(41, "INTERNAL_BATCH_GETSTATUS_ERROR"),
    CUFILE_NAME(42, "INTERNAL_BATCH_CANCEL_ERROR"),
    CUFILE_NAME(43, "NOMEM_ERROR"),
    CUFILE_NAME(44, "IO_ERROR"),
    CUFILE_NAME(45, "INTERNAL_BUF_REGISTER_ERROR"),
    CUFILE_NAME(46, "HASH_OPR_ERROR"),
    CUFILE_NAME(47, "INVALID_CONTEXT_ERROR"),
    CUFILE_NAME(48, "NVFS_INTERNAL_DRIVER_ERROR"),
    CUFILE_NAME(49, "BATCH_NOCOMPAT_ERROR"),
    CUFILE_NAME(50, "IO_MAX_ERROR"),
};

const char *cufile_error_name(int error)
{
    for (size_t i = 0; i < sizeof(error_names) / sizeof(error_names[0]); i++) {
        if (error_names[i].error == abs(error))
            return error_names[i].name;
    }
    return "unknown error";
}

int cufile_status(int error)
{
    switch (abs(error)) {
    case CUFILE_OK:
        return YOLK_OK;
    case CUFILE_ERR_PLATFORM_NOT_SUPPORTED:
    case CUFILE_ERR_IO_NOT_SUPPORTED:
    case CUFILE_ERR_DEVICE_NOT_SUPPORTED:
    case CUFILE_ERR_FILE_TYPE:
    case CUFILE_ERR_HANDLE_NOT_REGISTERED:
    case CUFILE_ERR_DRIVER_NOT_INITIALIZED:
    case CUFILE_ERR_BATCH_NOCOMPAT:
        return YOLK_ERR_UNSUPPORTED;
    case CUFILE_ERR_INVALID_VALUE:
    case CUFILE_ERR_POINTER_INVALID:
    case CUFILE_ERR_POINTER_RANGE:
    case CUFILE_ERR_INVALID_MAPPING_RANGE:
        return YOLK_ERR_INVALID;
    case CUFILE_ERR_MEMORY_ALREADY_REGISTERED:
    case CUFILE_ERR_HANDLE_ALREADY_REGISTERED:
        return YOLK_ERR_EXISTS;
    case CUFILE_ERR_PINNING_FAILED:
    case CUFILE_ERR_NO_MEMORY:
        return YOLK_ERR_NO_MEMORY;
    case CUFILE_ERR_PERMISSION:
        return YOLK_ERR_ACCESS;
    default:
        return YOLK_ERR_IO;
    }
}

int cufile_fail(struct cufile_error error, const char *what, ...)
{
    char call[256];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(call, sizeof(call), what, arguments);
    va_end(arguments);
    if (error.cuda_error != CUDA_OK)
        return base_fail(cufile_status(error.error), 0, "%s: %s (%d), error %d of the CUDA driver",
                         call, cufile_error_name(error.error), error.error, error.cuda_error);
    return base_fail(cufile_status(error.error), 0, "%s: %s (%d)", call,
                     cufile_error_name(error.error), error.error);
}

enum {
    STATISTICS_ROOM = 16384 /* what the largest known layout needs three times */,
    POISON = 0xa5
};

/* Bytes of levels 1 and 2, by version: 1.15, 1.20. */
static const size_t layouts[] = {1024, 1136};

/* Where the count of GPUs is, for it and the GPUs themselves end what is filled; 0: no layout
 * known. */
static size_t find_gpus(const uint8_t *room, size_t size)
{
    uint32_t gpus;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        memcpy(&gpus, room + layouts[i], sizeof(gpus));
        if (gpus <= CUFILE_STATISTICS_GPUS &&
            (size == layouts[i] + 8 + gpus * sizeof(struct cufile_gpu_statistics) ||
             size ==
                 layouts[i] + 8 + CUFILE_STATISTICS_GPUS * sizeof(struct cufile_gpu_statistics)))
            return layouts[i];
    }
    return 0;
}

int cufile_gpu_statistics(const struct cufile *cufile,
                          struct cufile_gpu_statistics out[CUFILE_STATISTICS_GPUS], unsigned *count)
{
    _Alignas(8) uint8_t room[STATISTICS_ROOM];
    uint32_t gpus;
    *count = 0;
    if (cufile->missing[CUFILE_STATISTICS] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "this cuFile has no function %s",
                         cufile->missing[CUFILE_STATISTICS]);
    memset(room, POISON, sizeof(room));
    struct cufile_error error = cufile->get_stats_l3(room);
    if (error.error != CUFILE_OK)
        return cufile_fail(error, "cuFileGetStatsL3");
    size_t size = sizeof(room);
    while (size > 0 && room[size - 1] == POISON)
        size--;
    size = (size + 7) & ~(size_t)7;
    size_t at = find_gpus(room, size);
    if (at == 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "cuFileGetStatsL3 fills %zu bytes, which is no layout known", size);
    memcpy(&gpus, room + at, sizeof(gpus));
    memcpy(out, room + at + 8, gpus * sizeof(out[0]));
    *count = gpus;
    return YOLK_OK;
}
