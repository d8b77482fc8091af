/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of cuFile's binary interface that Yolk uses, declared here so that nothing of it is
 * needed to build. scripts/check-cuda-abi compares it with the header where there is one.
 * Structures that cuFile fills are longer here than there: a newer one may have more members.
 */
#ifndef DEVICE_CUFILE_ABI_H
#define DEVICE_CUFILE_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef void *cufile_handle;
typedef void *cufile_batch;

enum {
    CUFILE_OK = 0,
    CUFILE_ERR_BASE = 5000,
    CUFILE_ERR_DRIVER_NOT_INITIALIZED = 5001,
    CUFILE_ERR_PLATFORM_NOT_SUPPORTED = 5007,
    CUFILE_ERR_IO_NOT_SUPPORTED = 5008,
    CUFILE_ERR_DEVICE_NOT_SUPPORTED = 5009,
    CUFILE_ERR_CUDA_DRIVER = 5011,
    CUFILE_ERR_POINTER_INVALID = 5012,
    CUFILE_ERR_POINTER_RANGE = 5014,
    CUFILE_ERR_INVALID_MAPPING_RANGE = 5017,
    CUFILE_ERR_FILE_TYPE = 5018,
    CUFILE_ERR_OPEN_FLAG = 5019,
    CUFILE_ERR_DIO_NOT_SET = 5020,
    CUFILE_ERR_INVALID_VALUE = 5022,
    CUFILE_ERR_MEMORY_ALREADY_REGISTERED = 5023,
    CUFILE_ERR_MEMORY_NOT_REGISTERED = 5024,
    CUFILE_ERR_PERMISSION = 5025,
    CUFILE_ERR_DRIVER_ALREADY_OPEN = 5026,
    CUFILE_ERR_HANDLE_NOT_REGISTERED = 5027,
    CUFILE_ERR_HANDLE_ALREADY_REGISTERED = 5028,
    CUFILE_ERR_INTERNAL = 5030,
    CUFILE_ERR_NO_NEW_FD = 5031,
    CUFILE_ERR_BATCH_SUBMIT_FAILED = 5035,
    CUFILE_ERR_PINNING_FAILED = 5036,
    CUFILE_ERR_BATCH_FULL = 5037,
    CUFILE_ERR_BATCH_SETUP = 5039,
    CUFILE_ERR_BATCH_SUBMIT = 5040,
    CUFILE_ERR_BATCH_STATUS = 5041,
    CUFILE_ERR_BATCH_CANCEL = 5042,
    CUFILE_ERR_NO_MEMORY = 5043,
    CUFILE_ERR_IO = 5044,
    CUFILE_ERR_BATCH_NOCOMPAT = 5049
};

/* Returned in registers: both members must stand as they do. */
struct cufile_error {
    int error;
    int cuda_error;
};

enum { CUFILE_HANDLE_FD = 1 };

struct cufile_descriptor {
    int type;
    union {
        int fd;
        void *pointer;
    } handle;
    const void *file_system;
};

enum { CUFILE_BATCH = 1 };
enum { CUFILE_READ = 0, CUFILE_WRITE = 1 };

enum {
    CUFILE_WAITING = 1,
    CUFILE_PENDING = 2,
    CUFILE_INVALID = 4,
    CUFILE_CANCELED = 8,
    CUFILE_COMPLETE = 16,
    CUFILE_TIMEOUT = 32,
    CUFILE_FAILED = 64
};

struct cufile_io {
    int mode;
    void *buffer; /* the registered base */
    off_t file_offset;
    off_t buffer_offset;
    size_t size;
    cufile_handle file;
    int opcode;
    void *cookie;
};

struct cufile_event {
    void *cookie;
    int status;
    size_t result; /* bytes, or a negative error */
};

enum { CUFILE_STATUS_NVME = 4, CUFILE_STATUS_NVME_P2P = 11 }; /* bits of status_flags */
enum { CUFILE_CONTROL_COMPAT = 1 };                           /* bits of control_flags */
enum { CUFILE_FEATURE_BATCH = 1, CUFILE_FEATURE_P2P = 4 };    /* bits of features */

struct cufile_properties {
    unsigned nvfs_major;
    unsigned nvfs_minor;
    size_t poll_threshold;
    size_t direct_io_kib_max;
    unsigned status_flags;
    unsigned control_flags;
    unsigned features;
    unsigned device_cache_kib_max;
    unsigned buffer_cache_kib;
    unsigned pinned_kib_max;
    unsigned batch_max;
    unsigned batch_timeout_ms;
    uint8_t reserved[200];
};

enum { CUFILE_PARAMETER_BATCH_MAX = 9 };                                       /* of a size */
enum { CUFILE_PARAMETER_ALLOW_COMPAT = 1, CUFILE_PARAMETER_FORCE_COMPAT = 2 }; /* of a truth */

/* One of the 16 at the end of the statistics of level 3. */
struct cufile_gpu_statistics {
    char uuid[16];
    uint64_t read_bytes, read_bandwidth, read_utilization, read_duration_us;
    uint64_t reads, p2p_reads, nvfs_reads, posix_reads, unaligned_reads, routed_reads;
    uint64_t sparse_regions, inline_regions, read_errors;
    uint64_t write_bytes, write_bandwidth, write_utilization, write_duration_us;
    uint64_t writes, p2p_writes, nvfs_writes, posix_writes, unaligned_writes, routed_writes;
    uint64_t write_errors;
    uint64_t registrations, registrations_ok, registrations_failed, deregistrations;
    uint64_t registered_bytes;
};
enum { CUFILE_STATISTICS_GPUS = 16 };

#endif
