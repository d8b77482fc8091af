/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs: what kind of memory a pointer is, host memory that GPUs reach, copies between both.
 *
 * Nothing of CUDA is linked. The driver is looked for when a device is opened, and where there is
 * none everything else goes on without it. A call changes nothing that its thread can see: neither
 * the current context nor the current device; and a graph that somebody captures meanwhile is not
 * disturbed, for a thread of the library or a caller's is in relaxed capture mode during a call.
 *
 * A child of fork gets FORKED from each call (the driver cannot be used there) and may close the
 * device, which does nothing. Once the process exits each call answers CLOSED and the driver, which
 * may be gone, is not called any more. All calls may come from any thread, except where an object
 * says otherwise.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

struct cuda;
struct cufile;

struct device; /* the drivers, as one user of them has them open */

struct device_options {
    const char *cuda_library;   /* NULL: libcuda.so.1, as the system finds it */
    const char *cufile_library; /* NULL: libcufile.so.0 */
    uint64_t
        registered_bytes_max;  /* host memory of others that is registered at a time; 0: 64 GiB */
    uint64_t pinned_bytes_max; /* memory of device_pinned_alloc; 0: 1 GiB */
    uint64_t
        gather_below; /* copies smaller than this many bytes go by the kernel; 0: as measured */
    uint32_t gather_blocks_max; /* thread blocks of one launch; 0: 32 */
};

enum {
    DEVICE_GPUS_MAX = 64,
    DEVICE_TRANSFERS_MAX = 256, /* of one GPU at a time */
};

/* Loads the driver and looks at the GPUs, but makes no context. options may be NULL. UNSUPPORTED
 * with the reason: no driver, too old, no GPU. */
YOLK_MUST_USE int device_open(const struct device_options *options, struct device **out);
/* Each transfer is freed, each range removed, each pinned memory freed. NULL is allowed. */
void device_close(struct device *device);

/* The same, one for all who name the same libraries (NULL: as the system finds them); each gives it
 * back once. FORKED in a child of a process that has it open. */
YOLK_MUST_USE int device_share(const char *cuda_library, const char *cufile_library,
                               struct device **out);
void device_unshare(struct device *device);
/* Somebody in this process has begun to use CUDA as the system finds it: before, no address can be
 * a GPU's. Cheap; begins nothing. */
bool device_in_use(void);
/* In a child of fork, where the driver cannot be asked: the address was a GPU's in the parent, as
 * far as a shared device was asked about it there. */
bool device_was_gpu(const void *pointer);

/* YOLK_OK, FORKED or CLOSED. */
YOLK_MUST_USE int device_check(const struct device *device);
/* The process ends, for who has loaded a library whose own end must find nobody in the driver: from
 * now on all is refused, and threads between device_enter and _leave get a moment to come out. */
void device_end(void);

/* The tables, for transports that need more than stands here; between device_enter and _leave. */
const struct cuda *device_cuda(const struct device *device);
/* Loads cuFile when first asked; its answer stays. UNSUPPORTED with the reason. */
YOLK_MUST_USE int device_cufile(struct device *device, const struct cufile **out);

/* ---- GPUs: an ordinal is this process's number of one, a UUID is the same everywhere ---- */

struct device_gpu {
    char name[96];
    uint8_t uuid[16];
    char bus[24]; /* 0000:1b:00.0 */
    uint64_t memory_bytes;
    int compute_major, compute_minor;
    int numa_node;       /* of the host memory nearest to it; -1: the driver does not say */
    bool vmm;            /* memory with handles */
    bool host_numa_vmm;  /* the same in host memory */
    bool fabric_claimed; /* proves nothing: without an IMEX channel no handle is made */
    bool dma_buf;
};

unsigned device_count(const struct device *device);
YOLK_MUST_USE int device_gpu(const struct device *device, int ordinal, struct device_gpu *out);
/* Its ordinal, or NOT_FOUND. */
YOLK_MUST_USE int device_find(const struct device *device, const uint8_t uuid[16]);
enum { DEVICE_UUID_TEXT = 41 };
/* "GPU-6a2b…", as nvidia-smi shows it. */
void device_uuid_text(const uint8_t uuid[16], char out[DEVICE_UUID_TEXT]);

struct device_scope {
    int capture_mode; /* before */
    int failed;       /* why that could not be changed */
    bool pushed;
};

/* Makes the GPU's primary context this thread's and its capture mode relaxed, until device_leave in
 * the same thread. ordinal -1: the mode only. */
YOLK_MUST_USE int device_enter(struct device *device, int ordinal, struct device_scope *scope);
void device_leave(struct device *device, struct device_scope *scope);

/* ---- what a pointer is ---- */

enum device_kind {
    DEVICE_HOST = 0,    /* ordinary memory, unknown to the driver */
    DEVICE_HOST_PINNED, /* made by the driver, or registered with it: it does not tell them apart */
    DEVICE_MANAGED,     /* moves between both by itself */
    DEVICE_GPU,
    DEVICE_HOST_NUMA, /* host memory with a handle */
};

struct device_memory {
    enum device_kind kind;
    int ordinal; /* the GPU's, of DEVICE_GPU; else -1 */
    uint8_t uuid[16];
    int numa_node; /* of DEVICE_HOST_NUMA; else -1 */
    bool vmm;      /* made with a handle */
    uint64_t base; /* the allocation; 0 and 0 of DEVICE_HOST */
    uint64_t size;
    uint64_t id; /* of the allocation, never used again in this process; 0: none */
};

const char *device_kind_name(enum device_kind kind);
/* Answers are kept by allocation, and one is used again only while the driver gives the allocation
 * the same id. Without a context anywhere nothing is made: such memory is DEVICE_HOST. */
YOLK_MUST_USE int device_query(struct device *device, const void *pointer,
                               struct device_memory *out);

/* ---- host memory that GPUs reach ---- */

/* Pinned memory at a page of the machine; LIMIT when pinned_bytes_max would be exceeded. */
YOLK_MUST_USE int device_pinned_alloc(struct device *device, int ordinal, size_t size, void **out);
void device_pinned_free(struct device *device, void *memory, size_t size);

/* A range of somebody's host memory, for example the mapping of a node's segment, which is
 * registered by pieces of DEVICE_CHUNK bytes when they are used and until others need the room. */
struct device_range;
enum { DEVICE_CHUNK = 256 << 20 };

/* read_only: the mapping cannot be written. Registers nothing yet. */
YOLK_MUST_USE int device_range_add(struct device *device, void *memory, size_t size, bool read_only,
                                   struct device_range **out);
/* Registers what of [offset, offset + size) is not, and keeps it so until released. LIMIT: all that
 * may be registered is in use. EXISTS: somebody else has registered a part of it. Copies from and
 * to memory that could not be held go as `pageable`. */
YOLK_MUST_USE int device_range_hold(struct device_range *range, int ordinal, size_t offset,
                                    size_t size);
void device_range_release(struct device_range *range, size_t offset, size_t size);
/* BUSY while something of it is held. Does not call the driver where the process exits. */
YOLK_MUST_USE int device_range_remove(struct device_range *range);
/* The same where what is held may be touched by a GPU that has failed: it stays registered, and the
 * memory must stay mapped. */
void device_range_abandon(struct device_range *range);

/* ---- copies ---- */

enum device_direction { DEVICE_TO_GPU, DEVICE_FROM_GPU, DEVICE_WITHIN, DEVICE_DIRECTIONS };

struct device_copy {
    void *to;
    const void *from;
    uint64_t size;
};

/* What must have happened before the first byte is read or written. Zeroed: nothing. */
struct device_order {
    void *stream; /* CUstream: all work put in it so far; 1: the legacy stream, 2: this thread's own
                   */
    void *event;  /* CUevent: what it was recorded after */
};

struct device_copy_options {
    enum device_direction direction;
    bool pageable; /* the host's side is not reachable for GPUs: the driver copies it by pieces */
    struct device_order after;
    unsigned pair; /* which other end, where that has lines of its own: copies of two of them do not
                    * wait for each other. 0: any */
};

struct device_transfer; /* used by one thread at a time */

/*
 * Begins copies that have no order among each other and answers how many of them it took, from the
 * first on; the others are for the next call. options may be NULL where host memory is pinned or
 * registered and the direction is to the GPU. AGAIN: too many transfers at once. BUSY: the stream
 * of `after` captures a graph. Small copies go by the gather kernel, others by the copy engine.
 */
YOLK_MUST_USE long device_copy(struct device *device, int ordinal, const struct device_copy *copies,
                               size_t count, const struct device_copy_options *options,
                               struct device_transfer **out);
/* AGAIN while it runs. A failure is told when no byte moves any more; where the GPU has failed so
 * that this cannot be known it is STUCK, the reason being the last error's. */
YOLK_MUST_USE int device_transfer_poll(struct device_transfer *transfer);
/* The same, waiting; TIMEOUT at the deadline (clock_real). */
YOLK_MUST_USE int device_transfer_wait(struct device_transfer *transfer, uint64_t deadline_ns);
/* BUSY while it runs; else it is gone. */
YOLK_MUST_USE int device_transfer_free(struct device_transfer *transfer);

/* What must have happened, for those who wait for it before they touch the memory themselves. The
 * event is borrowed until it is freed. BUSY: the stream captures a graph. */
struct device_mark;
YOLK_MUST_USE int device_mark_make(struct device *device, int ordinal,
                                   const struct device_order *after, struct device_mark **out);
/* AGAIN: not yet. */
YOLK_MUST_USE int device_mark_poll(struct device_mark *mark);
void device_mark_free(struct device_mark *mark);

/* "" while the kernel is used; else why it is not. Loads it if nobody did. */
YOLK_MUST_USE int device_gather_reason(struct device *device, int ordinal, char *out, size_t size);

/* ---- checksums of a GPU's memory, by the GPU ---- */

struct device_span {
    const void *memory; /* the GPU's */
    uint64_t size;
};

struct device_sum; /* used by one thread at a time */

/*
 * Begins the checksums (crc32c) of spans and answers how many of them it took, from the first on;
 * the others are for the next call. UNSUPPORTED: device_sum_reason. AGAIN: too many at once, or the
 * kernel is not checked yet. What is in the memory while it runs is what it is about.
 */
YOLK_MUST_USE long device_sum_begin(struct device *device, int ordinal,
                                    const struct device_span *spans, size_t count,
                                    struct device_sum **out);
/* As of a transfer. */
YOLK_MUST_USE int device_sum_wait(struct device_sum *sum, uint64_t deadline_ns);
/* The checksum of what `crc` is of, and span `index` behind it. After a wait that ended well. */
uint32_t device_sum_of(const struct device_sum *sum, size_t index, uint32_t crc);
/* One that still runs is kept until it is over. */
void device_sum_end(struct device_sum *sum);
/* "" while the kernel is used; else why it is not. Loads and checks it if nobody did. */
YOLK_MUST_USE int device_sum_reason(struct device *device, int ordinal, char *out, size_t size);

/* ---- for people ---- */

struct device_figures {
    uint64_t gather_launches, gather_bytes;
    uint64_t engine_copies, engine_bytes;
    uint64_t sum_launches, sum_bytes;
    uint64_t registrations, deregistrations, registered_bytes, pinned_bytes;
    uint64_t queries, query_hits;
};
void device_figures(const struct device *device, struct device_figures *out);

struct device_report {
    bool cuda, cufile;      /* could be used */
    char cuda_found[512];   /* the driver and GPUs, or "no CUDA driver: ..." */
    char cufile_found[512]; /* the library, or "no cuFile: ..." */
};
/* What `yolk doctor` shows. Opens neither a context nor cuFile's driver. options may be NULL. */
void device_describe(const struct device_options *options, struct device_report *out);

#endif
