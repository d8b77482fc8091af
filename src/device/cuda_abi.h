/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver's binary interface that Yolk uses, declared here so that nothing of
 * CUDA is needed to build. scripts/check-cuda-abi compares it with the headers where there are
 * some.
 */
#ifndef DEVICE_CUDA_ABI_H
#define DEVICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cuda_result;
typedef int cuda_ordinal; /* CUdevice */
typedef uint64_t cuda_pointer;
typedef uint64_t cuda_allocation; /* CUmemGenericAllocationHandle */
typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUgraph_st *cuda_graph;

enum {
    CUDA_OK = 0,
    CUDA_ERR_INVALID_VALUE = 1,
    CUDA_ERR_OUT_OF_MEMORY = 2,
    CUDA_ERR_NOT_INITIALIZED = 3,
    CUDA_ERR_DEINITIALIZED = 4,
    CUDA_ERR_STUB_LIBRARY = 34,
    CUDA_ERR_NO_DEVICE = 100,
    CUDA_ERR_INVALID_DEVICE = 101,
    CUDA_ERR_INVALID_CONTEXT = 201,
    CUDA_ERR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERR_ECC_UNCORRECTABLE = 214,
    CUDA_ERR_INVALID_PTX = 218,
    CUDA_ERR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERR_INVALID_HANDLE = 400,
    CUDA_ERR_NOT_FOUND = 500,
    CUDA_ERR_NOT_READY = 600,
    CUDA_ERR_ILLEGAL_ADDRESS = 700,
    CUDA_ERR_LAUNCH_TIMEOUT = 702,
    CUDA_ERR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERR_LAUNCH_FAILED = 719,
    CUDA_ERR_NOT_PERMITTED = 800,
    CUDA_ERR_NOT_SUPPORTED = 801,
    CUDA_ERR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERR_UNKNOWN = 999
};

enum {
    CUDA_MEMORY_HOST = 1,
    CUDA_MEMORY_DEVICE = 2,
};

enum {
    CUDA_POINTER_CONTEXT = 1,
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_DEVICE_POINTER = 3,
    CUDA_POINTER_BUFFER_ID = 7,
    CUDA_POINTER_IS_MANAGED = 8,
    CUDA_POINTER_ORDINAL = 9,
    CUDA_POINTER_RANGE_START = 11,
    CUDA_POINTER_RANGE_SIZE = 12,
};

enum {
    CUDA_DEVICE_MULTIPROCESSORS = 16,
    CUDA_DEVICE_UNIFIED_ADDRESSING = 41,
    CUDA_DEVICE_COMPUTE_MAJOR = 75,
    CUDA_DEVICE_COMPUTE_MINOR = 76,
    CUDA_DEVICE_HOST_POINTER_FOR_REGISTERED = 91,
    CUDA_DEVICE_VMM = 102,
    CUDA_DEVICE_READ_ONLY_HOST_REGISTER = 113,
    CUDA_DEVICE_DMA_BUF = 124,
    CUDA_DEVICE_FABRIC = 128,
    CUDA_DEVICE_HOST_NUMA_ID = 134,
    CUDA_DEVICE_HOST_NUMA_VMM = 141,
    CUDA_DEVICE_HOST_NUMA_MULTINODE_IPC = 143
};

enum {
    CUDA_HOST_PORTABLE = 1, /* of cuMemHostAlloc and cuMemHostRegister */
    CUDA_HOST_DEVICEMAP = 2,
    CUDA_HOST_READ_ONLY = 8 /* of cuMemHostRegister only */
};

enum { CUDA_STREAM_NON_BLOCKING = 1, CUDA_EVENT_DISABLE_TIMING = 2 };
/* The smallest number comes first, and one that is too small is taken for the smallest there is. */
enum { CUDA_STREAM_FIRST = -1000 };
enum { CUDA_CAPTURE_GLOBAL = 0, CUDA_CAPTURE_THREAD_LOCAL = 1, CUDA_CAPTURE_RELAXED = 2 };
enum { CUDA_CAPTURE_NONE = 0, CUDA_CAPTURE_ACTIVE = 1, CUDA_CAPTURE_INVALIDATED = 2 };
enum { CUDA_JIT_ERROR_LOG = 5, CUDA_JIT_ERROR_LOG_SIZE = 6 };
enum { CUDA_COPY_SOURCE_ORDER_STREAM = 1, CUDA_COPY_SOURCE_ORDER_ANY = 3 };
enum { CUDA_MANAGED_GLOBAL = 1 };
enum { CUDA_IPC_LAZY_PEER_ACCESS = 1 };

enum { CUDA_ALLOCATION_PINNED = 1 };
enum { CUDA_LOCATION_DEVICE = 1, CUDA_LOCATION_HOST = 2, CUDA_LOCATION_HOST_NUMA = 3 };
enum { CUDA_HANDLE_NONE = 0, CUDA_HANDLE_POSIX_FD = 1, CUDA_HANDLE_FABRIC = 8 };
enum { CUDA_GRANULARITY_MINIMUM = 0, CUDA_GRANULARITY_RECOMMENDED = 1 };
enum { CUDA_ACCESS_NONE = 0, CUDA_ACCESS_READ = 1, CUDA_ACCESS_READ_WRITE = 3 };

struct cuda_uuid {
    uint8_t bytes[16];
};

struct cuda_location {
    int type;
    int id;
};

struct cuda_allocation_prop {
    int type;
    int handle_types;
    struct cuda_location location;
    void *win32_attributes;
    struct {
        uint8_t compression;
        uint8_t gpu_direct_rdma;
        uint16_t usage;
        uint8_t reserved[4];
    } flags;
};

struct cuda_access {
    struct cuda_location location;
    int flags;
};

struct cuda_copy_attributes {
    int source_order;
    struct cuda_location source_hint;
    struct cuda_location target_hint;
    unsigned flags;
};

struct cuda_fabric_handle {
    uint8_t bytes[64];
};

struct cuda_ipc_handle {
    uint8_t bytes[64];
};

#endif
