/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver as a table of functions, found at run time. Only the loader names its symbols.
 *
 * libcuda has no symbol versions: the version is in the name, and the plain name is the oldest. So
 * each is asked for with the CUDA version whose signature stands here (cuGetProcAddress), and by
 * the suffix that this version has in the library where that is refused.
 */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include "device/cuda_abi.h"
#include "yolk/status.h"

/* What is lost where a function is missing. */
enum cuda_need {
    CUDA_CORE,   /* everything */
    CUDA_BATCH,  /* batched copies: a loop takes their place */
    CUDA_KERNEL, /* the gather kernel: copies take its place */
    CUDA_VMM,    /* memory with handles */
    CUDA_MANAGED_MEMORY,
    CUDA_IPC,               /* memory of cuMemAlloc in another process */
    CUDA_CAPTURE_OF_GRAPHS, /* used by tests only */
    CUDA_NEEDS
};

/* name in the table, name in the driver, version of the signature, its suffix, need, parameters */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(init, cuInit, 2000, "", CUDA_CORE, (unsigned flags))                                         \
    X(driver_get_version, cuDriverGetVersion, 2020, "", CUDA_CORE, (int *version))                 \
    X(get_error_name, cuGetErrorName, 6000, "", CUDA_CORE, (cuda_result error, const char **text)) \
    X(get_error_string, cuGetErrorString, 6000, "", CUDA_CORE,                                     \
      (cuda_result error, const char **text))                                                      \
    X(device_get_count, cuDeviceGetCount, 2000, "", CUDA_CORE, (int *count))                       \
    X(device_get, cuDeviceGet, 2000, "", CUDA_CORE, (cuda_ordinal * device, int ordinal))          \
    X(device_get_name, cuDeviceGetName, 2000, "", CUDA_CORE,                                       \
      (char *name, int size, cuda_ordinal device))                                                 \
    X(device_get_uuid, cuDeviceGetUuid, 11040, "_v2", CUDA_CORE,                                   \
      (struct cuda_uuid * uuid, cuda_ordinal device))                                              \
    X(device_get_attribute, cuDeviceGetAttribute, 2000, "", CUDA_CORE,                             \
      (int *value, int attribute, cuda_ordinal device))                                            \
    X(device_total_mem, cuDeviceTotalMem, 3020, "_v2", CUDA_CORE,                                  \
      (size_t * bytes, cuda_ordinal device))                                                       \
    X(device_get_pci_bus_id, cuDeviceGetPCIBusId, 4010, "", CUDA_CORE,                             \
      (char *text, int size, cuda_ordinal device))                                                 \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000, "", CUDA_CORE,                           \
      (cuda_context * context, cuda_ordinal device))                                               \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease, 11000, "_v2", CUDA_CORE,                     \
      (cuda_ordinal device))                                                                       \
    X(primary_ctx_get_state, cuDevicePrimaryCtxGetState, 7000, "", CUDA_CORE,                      \
      (cuda_ordinal device, unsigned *flags, int *active))                                         \
    X(ctx_push_current, cuCtxPushCurrent, 4000, "_v2", CUDA_CORE, (cuda_context context))          \
    X(ctx_pop_current, cuCtxPopCurrent, 4000, "_v2", CUDA_CORE, (cuda_context * context))          \
    X(ctx_get_current, cuCtxGetCurrent, 4000, "", CUDA_CORE, (cuda_context * context))             \
    X(ctx_set_current, cuCtxSetCurrent, 4000, "", CUDA_CORE, (cuda_context context))               \
    X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, 10010, "", CUDA_CORE,       \
      (int *mode))                                                                                 \
    X(pointer_get_attributes, cuPointerGetAttributes, 7000, "", CUDA_CORE,                         \
      (unsigned count, int *attributes, void **values, cuda_pointer pointer))                      \
    X(pointer_get_attribute, cuPointerGetAttribute, 4000, "", CUDA_CORE,                           \
      (void *value, int attribute, cuda_pointer pointer))                                          \
    X(mem_alloc, cuMemAlloc, 3020, "_v2", CUDA_CORE, (cuda_pointer * pointer, size_t size))        \
    X(mem_free, cuMemFree, 3020, "_v2", CUDA_CORE, (cuda_pointer pointer))                         \
    X(mem_host_alloc, cuMemHostAlloc, 2020, "", CUDA_CORE,                                         \
      (void **pointer, size_t size, unsigned flags))                                               \
    X(mem_free_host, cuMemFreeHost, 2000, "", CUDA_CORE, (void *pointer))                          \
    X(mem_host_register, cuMemHostRegister, 6050, "_v2", CUDA_CORE,                                \
      (void *pointer, size_t size, unsigned flags))                                                \
    X(mem_host_unregister, cuMemHostUnregister, 4000, "", CUDA_CORE, (void *pointer))              \
    X(mem_host_get_device_pointer, cuMemHostGetDevicePointer, 3020, "_v2", CUDA_CORE,              \
      (cuda_pointer * device, void *pointer, unsigned flags))                                      \
    X(memcpy_async, cuMemcpyAsync, 4000, "", CUDA_CORE,                                            \
      (cuda_pointer to, cuda_pointer from, size_t size, cuda_stream stream))                       \
    X(memcpy_batch_async, cuMemcpyBatchAsync, 12080, "", CUDA_BATCH,                               \
      (cuda_pointer * to, cuda_pointer * from, size_t * sizes, size_t count,                       \
       struct cuda_copy_attributes * attributes, size_t * attribute_first, size_t attribute_count, \
       size_t * failed, cuda_stream stream))                                                       \
    X(stream_create, cuStreamCreate, 2000, "", CUDA_CORE, (cuda_stream * stream, unsigned flags))  \
    X(stream_create_with_priority, cuStreamCreateWithPriority, 5050, "", CUDA_CORE,                \
      (cuda_stream * stream, unsigned flags, int priority))                                        \
    X(stream_destroy, cuStreamDestroy, 4000, "_v2", CUDA_CORE, (cuda_stream stream))               \
    X(stream_query, cuStreamQuery, 2000, "", CUDA_CORE, (cuda_stream stream))                      \
    X(stream_synchronize, cuStreamSynchronize, 2000, "", CUDA_CORE, (cuda_stream stream))          \
    X(stream_wait_event, cuStreamWaitEvent, 3020, "", CUDA_CORE,                                   \
      (cuda_stream stream, cuda_event event, unsigned flags))                                      \
    X(stream_is_capturing, cuStreamIsCapturing, 10000, "", CUDA_CORE,                              \
      (cuda_stream stream, int *status))                                                           \
    X(stream_get_ctx, cuStreamGetCtx, 9020, "", CUDA_CORE,                                         \
      (cuda_stream stream, cuda_context * context))                                                \
    X(event_create, cuEventCreate, 2000, "", CUDA_CORE, (cuda_event * event, unsigned flags))      \
    X(event_destroy, cuEventDestroy, 4000, "_v2", CUDA_CORE, (cuda_event event))                   \
    X(event_record, cuEventRecord, 2000, "", CUDA_CORE, (cuda_event event, cuda_stream stream))    \
    X(event_query, cuEventQuery, 2000, "", CUDA_CORE, (cuda_event event))                          \
    X(event_synchronize, cuEventSynchronize, 2000, "", CUDA_CORE, (cuda_event event))              \
    X(module_load_data_ex, cuModuleLoadDataEx, 2010, "", CUDA_KERNEL,                              \
      (cuda_module * module, const void *image, unsigned count, int *options, void **values))      \
    X(module_get_function, cuModuleGetFunction, 2000, "", CUDA_KERNEL,                             \
      (cuda_function * function, cuda_module module, const char *name))                            \
    X(module_unload, cuModuleUnload, 2000, "", CUDA_KERNEL, (cuda_module module))                  \
    X(launch_kernel, cuLaunchKernel, 4000, "", CUDA_KERNEL,                                        \
      (cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                  \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,                 \
       cuda_stream stream, void **parameters, void **extra))                                       \
    X(mem_create, cuMemCreate, 10020, "", CUDA_VMM,                                                \
      (cuda_allocation * allocation, size_t size, const struct cuda_allocation_prop *prop,         \
       unsigned long long flags))                                                                  \
    X(mem_release, cuMemRelease, 10020, "", CUDA_VMM, (cuda_allocation allocation))                \
    X(mem_address_reserve, cuMemAddressReserve, 10020, "", CUDA_VMM,                               \
      (cuda_pointer * pointer, size_t size, size_t alignment, cuda_pointer wish,                   \
       unsigned long long flags))                                                                  \
    X(mem_address_free, cuMemAddressFree, 10020, "", CUDA_VMM,                                     \
      (cuda_pointer pointer, size_t size))                                                         \
    X(mem_map, cuMemMap, 10020, "", CUDA_VMM,                                                      \
      (cuda_pointer pointer, size_t size, size_t offset, cuda_allocation allocation,               \
       unsigned long long flags))                                                                  \
    X(mem_unmap, cuMemUnmap, 10020, "", CUDA_VMM, (cuda_pointer pointer, size_t size))             \
    X(mem_set_access, cuMemSetAccess, 10020, "", CUDA_VMM,                                         \
      (cuda_pointer pointer, size_t size, const struct cuda_access *access, size_t count))         \
    X(mem_get_allocation_granularity, cuMemGetAllocationGranularity, 10020, "", CUDA_VMM,          \
      (size_t * granularity, const struct cuda_allocation_prop *prop, int option))                 \
    X(mem_export_to_shareable_handle, cuMemExportToShareableHandle, 10020, "", CUDA_VMM,           \
      (void *handle, cuda_allocation allocation, int type, unsigned long long flags))              \
    X(mem_import_from_shareable_handle, cuMemImportFromShareableHandle, 10020, "", CUDA_VMM,       \
      (cuda_allocation * allocation, void *handle, int type))                                      \
    X(mem_retain_allocation_handle, cuMemRetainAllocationHandle, 11000, "", CUDA_VMM,              \
      (cuda_allocation * allocation, void *pointer))                                               \
    X(mem_get_allocation_properties, cuMemGetAllocationPropertiesFromHandle, 10020, "", CUDA_VMM,  \
      (struct cuda_allocation_prop * prop, cuda_allocation allocation))                            \
    X(ipc_get_mem_handle, cuIpcGetMemHandle, 4010, "", CUDA_IPC,                                   \
      (struct cuda_ipc_handle * handle, cuda_pointer pointer))                                     \
    X(ipc_open_mem_handle, cuIpcOpenMemHandle, 11000, "_v2", CUDA_IPC,                             \
      (cuda_pointer * pointer, struct cuda_ipc_handle handle, unsigned flags))                     \
    X(ipc_close_mem_handle, cuIpcCloseMemHandle, 4010, "", CUDA_IPC, (cuda_pointer pointer))       \
    X(mem_alloc_managed, cuMemAllocManaged, 6000, "", CUDA_MANAGED_MEMORY,                         \
      (cuda_pointer * pointer, size_t size, unsigned flags))                                       \
    X(stream_begin_capture, cuStreamBeginCapture, 10010, "_v2", CUDA_CAPTURE_OF_GRAPHS,            \
      (cuda_stream stream, int mode))                                                              \
    X(stream_end_capture, cuStreamEndCapture, 10000, "", CUDA_CAPTURE_OF_GRAPHS,                   \
      (cuda_stream stream, cuda_graph * graph))                                                    \
    X(graph_destroy, cuGraphDestroy, 10000, "", CUDA_CAPTURE_OF_GRAPHS, (cuda_graph graph))

enum { CUDA_VERSION_MIN = 11040 }; /* cuDeviceGetUuid_v2, and drivers that still get fixes */

struct cuda {
#define CUDA_FIELD(field, name, version, suffix, need, parameters) cuda_result(*field) parameters;
    CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
    void *library;
    int version;                     /* of the driver: 13000 is 13.0 */
    const char *missing[CUDA_NEEDS]; /* the first function that is not there; NULL: all are */
};

/*
 * Fills the table from the library of this name; NULL: libcuda.so.1. It is never unloaded: the
 * driver has threads. UNSUPPORTED with the reason: it is not there, is a stub, too old, lacks a
 * function of CUDA_CORE, or answers an error when it begins.
 */
YOLK_MUST_USE int cuda_load(const char *library, struct cuda *out);

/* base_fail with "what: CUDA_ERROR_X (n): text" and the status that fits. */
int cuda_fail(const struct cuda *cuda, cuda_result error, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
int cuda_status(cuda_result error);

#endif
