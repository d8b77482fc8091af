/* SPDX-License-Identifier: Apache-2.0 */
/* cuFile as a table of functions, found at run time. Only the loader names its symbols. */
#ifndef DEVICE_CUFILE_H
#define DEVICE_CUFILE_H

#include <stdbool.h>
#include <time.h>

#include "device/cuda_abi.h"
#include "device/cufile_abi.h"
#include "yolk/status.h"

/* What is lost where a function is missing. */
enum cufile_need {
    CUFILE_CORE,       /* everything */
    CUFILE_BATCHES,    /* the batch calls, which came with CUDA 12 */
    CUFILE_STATISTICS, /* the proof that a path is direct */
    CUFILE_PARAMETERS, /* settings by call */
    CUFILE_VERSION,    /* its own number */
    CUFILE_STREAMS,    /* transfers in the order of a stream */
    CUFILE_NEEDS
};

/* name in the table, name in the library, another name (a newer one that is tried first), need,
 * result, parameters */
#define CUFILE_FUNCTIONS(X)                                                                        \
    X(driver_open, cuFileDriverOpen, "", CUFILE_CORE, struct cufile_error, (void))                 \
    X(driver_close, cuFileDriverClose, "_v2", CUFILE_CORE, struct cufile_error, (void))            \
    X(driver_get_properties, cuFileDriverGetProperties, "", CUFILE_CORE, struct cufile_error,      \
      (struct cufile_properties * properties))                                                     \
    X(handle_register, cuFileHandleRegister, "", CUFILE_CORE, struct cufile_error,                 \
      (cufile_handle * handle, struct cufile_descriptor * descriptor))                             \
    X(handle_deregister, cuFileHandleDeregister, "", CUFILE_CORE, void, (cufile_handle handle))    \
    X(buf_register, cuFileBufRegister, "", CUFILE_CORE, struct cufile_error,                       \
      (const void *base, size_t size, int flags))                                                  \
    X(buf_deregister, cuFileBufDeregister, "", CUFILE_CORE, struct cufile_error,                   \
      (const void *base))                                                                          \
    X(read, cuFileRead, "", CUFILE_CORE, ssize_t,                                                  \
      (cufile_handle file, void *base, size_t size, off_t file_offset, off_t base_offset))         \
    X(write, cuFileWrite, "", CUFILE_CORE, ssize_t,                                                \
      (cufile_handle file, const void *base, size_t size, off_t file_offset, off_t base_offset))   \
    X(batch_set_up, cuFileBatchIOSetUp, "", CUFILE_BATCHES, struct cufile_error,                   \
      (cufile_batch * batch, unsigned count))                                                      \
    X(batch_submit, cuFileBatchIOSubmit, "", CUFILE_BATCHES, struct cufile_error,                  \
      (cufile_batch batch, unsigned count, struct cufile_io *ios, unsigned flags))                 \
    X(batch_get_status, cuFileBatchIOGetStatus, "", CUFILE_BATCHES, struct cufile_error,           \
      (cufile_batch batch, unsigned min, unsigned *count, struct cufile_event *events,             \
       struct timespec *timeout))                                                                  \
    X(batch_cancel, cuFileBatchIOCancel, "", CUFILE_BATCHES, struct cufile_error,                  \
      (cufile_batch batch))                                                                        \
    X(batch_destroy, cuFileBatchIODestroy, "", CUFILE_BATCHES, void, (cufile_batch batch))         \
    X(set_stats_level, cuFileSetStatsLevel, "", CUFILE_STATISTICS, struct cufile_error,            \
      (int level))                                                                                 \
    X(stats_start, cuFileStatsStart, "", CUFILE_STATISTICS, struct cufile_error, (void))           \
    X(get_stats_l3, cuFileGetStatsL3, "", CUFILE_STATISTICS, struct cufile_error, (void *out))     \
    X(get_parameter_size, cuFileGetParameterSizeT, "", CUFILE_PARAMETERS, struct cufile_error,     \
      (int parameter, size_t *value))                                                              \
    X(get_parameter_bool, cuFileGetParameterBool, "", CUFILE_PARAMETERS, struct cufile_error,      \
      (int parameter, bool *value))                                                                \
    X(set_parameter_size, cuFileSetParameterSizeT, "", CUFILE_PARAMETERS, struct cufile_error,     \
      (int parameter, size_t value))                                                               \
    X(set_parameter_bool, cuFileSetParameterBool, "", CUFILE_PARAMETERS, struct cufile_error,      \
      (int parameter, bool value))                                                                 \
    X(get_version, cuFileGetVersion, "", CUFILE_VERSION, struct cufile_error, (int *version))      \
    X(read_async, cuFileReadAsync, "", CUFILE_STREAMS, struct cufile_error,                        \
      (cufile_handle file, void *base, size_t *size, off_t *file_offset, off_t *base_offset,       \
       ssize_t *done, cuda_stream stream))                                                         \
    X(write_async, cuFileWriteAsync, "", CUFILE_STREAMS, struct cufile_error,                      \
      (cufile_handle file, void *base, size_t *size, off_t *file_offset, off_t *base_offset,       \
       ssize_t *done, cuda_stream stream))

struct cufile {
#define CUFILE_FIELD(field, name, newer, need, result, parameters) result(*field) parameters;
    CUFILE_FUNCTIONS(CUFILE_FIELD)
#undef CUFILE_FIELD
    void *library;
    int version;                       /* 1150 is 1.15; 0: it does not say */
    const char *missing[CUFILE_NEEDS]; /* the first function that is not there; NULL: all are */
};

/*
 * Fills the table from the library of this name; NULL: libcufile.so.0, then other names it had. Its
 * driver is not opened. It is never unloaded. UNSUPPORTED with the reason: it is not there or lacks
 * a function of CUFILE_CORE.
 */
YOLK_MUST_USE int cufile_load(const char *library, struct cufile *out);

/* The name of an error, for example "CU_FILE_IO_NOT_SUPPORTED"; "unknown error". */
const char *cufile_error_name(int error);
/* base_fail with "what: NAME (n)" and the CUDA error, if there is one; and the status that fits. */
int cufile_fail(struct cufile_error error, const char *what, ...)
    __attribute__((format(printf, 2, 3)));
int cufile_status(int error);

/*
 * What each GPU read and wrote, and by which way. Their place in what cuFile fills differs between
 * versions (1.15: after 1032 bytes, 1.20: after 1144), and no more GPUs are filled than there are,
 * so it is found by how much that is. UNSUPPORTED: these functions are missing, statistics are off,
 * or the size fits no known layout.
 */
YOLK_MUST_USE int cufile_gpu_statistics(const struct cufile *cufile,
                                        struct cufile_gpu_statistics out[CUFILE_STATISTICS_GPUS],
                                        unsigned *count);

#endif
