/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICE_INTERNAL_H
#define DEVICE_INTERNAL_H

#include <stdatomic.h>

#include "base/list.h"
#include "device/cuda.h"
#include "device/cufile.h"
#include "device/device.h"
#include "device/gather.h"
#include "platform/thread.h"

enum {
    QUERY_CACHE = 256,
    SLOT_PIECES = 8192, /* of one launch: 32 MiB in blocks of 4 KiB */
    SLOTS_MAX = 32,     /* lists of launches under way on one GPU: 8 MiB */
    LANES = 5, /* streams of one direction: one for what waits for nothing, four for the rest */
    PAIRS = 8, /* streams of one direction for those that name a pair */
    ENGINE_COPIES = 1024, /* handed to the driver in one batch */
};

/* A kernel on one GPU, loaded when it is first asked for. */
struct kernel {
    cuda_module module;
    cuda_function function; /* NULL: not used, the reason says why */
    bool tried;
    char reason[512];
};

struct slot {
    struct base_list node; /* among the free ones, or of a transfer */
    struct gather_piece *pieces;
};

/* The checksums of one GPU. Its lock is taken before that of the GPU. */
struct sums {
    struct mutex lock;
    struct kernel kernel;
    cuda_stream stream;
    struct base_list idle;
    struct base_list left; /* that still ran when their owner had no use for them any more */
    unsigned count;
    struct device_sum *check; /* while it is under way */
    cuda_pointer pattern;     /* memory of the GPU; given back at the end: that may wait for it */
};

struct gpu {
    struct device *device;
    int ordinal;
    cuda_ordinal handle;
    struct device_gpu info;
    bool same_host_pointer; /* registered memory has the host's address on the GPU */
    bool read_only_host;

    struct mutex lock; /* of all below; held for submitting, never for waiting */
    cuda_context context;
    cuda_stream streams[DEVICE_DIRECTIONS][LANES + PAIRS];
    unsigned next_lane;
    struct kernel gather;
    bool batch_refused;
    struct base_list slots;
    unsigned slot_count;
    struct base_list transfers; /* that are free */
    unsigned transfer_count;
    struct sums sums;
    _Atomic bool lost; /* the context is of no use any more */
    char lost_reason[256];
};

struct cached {
    struct device_memory memory;
    uint64_t used; /* when, by a counter */
};

struct device {
    struct cuda cuda;
    struct cufile cufile;
    struct device_options options;
    unsigned generation; /* of forks, when it was opened */
    unsigned gpu_count;
    struct gpu gpus[DEVICE_GPUS_MAX];

    struct mutex lost_lock; /* of the GPUs' lost_reason */

    struct mutex query_lock;
    struct cached cache[QUERY_CACHE];
    unsigned cache_count;
    uint64_t cache_clock;

    struct mutex host_lock;
    struct condition host_changed;
    struct base_list idle;     /* registered chunks that nobody holds, least recently used first */
    uint64_t registered_bytes; /* with those being registered and unregistered */
    unsigned unregistering;    /* chunks that go now */
    uint64_t pinned_bytes;

    struct mutex cufile_lock;
    char cufile_path[4096];
    int cufile_state; /* 0: not tried, 1: loaded, -1: not there */
    char cufile_reason[512];

    _Atomic uint64_t gather_launches, gather_bytes, engine_copies, engine_bytes;
    _Atomic uint64_t sum_launches, sum_bytes;
    _Atomic uint64_t registrations, deregistrations, queries, query_hits;
};

/* The GPU, or NULL with INVALID, FORKED or CLOSED in *status. */
struct gpu *device_gpu_of(struct device *device, int ordinal, int *status);
/* The failure of a call on this GPU, after which it may be lost. */
int gpu_fail(struct gpu *gpu, cuda_result error, const char *what);
/* It takes no work any more, for the reason that is this thread's last error. */
void gpu_lose(struct gpu *gpu);
/* The error says that the context, and what runs in it, has failed for good. */
bool cuda_is_sticky(cuda_result error);
/* A scope whose context is made where it is missing. */
int gpu_enter(struct gpu *gpu, struct device_scope *scope);
/* A scope without a context for what gives something back: false only where the driver must not be
 * called at all. */
bool scope_to_free(struct device *device, struct device_scope *scope);

/* Inside a scope, each kernel by one thread at a time. True: it can be launched. `name` is for
 * people. */
bool kernel_load(struct gpu *gpu, struct kernel *kernel, const char *name, const char *text,
                 const char *entry);
/* A warp takes every n-th piece. */
YOLK_MUST_USE int kernel_launch(struct gpu *gpu, const struct kernel *kernel, const char *name,
                                const struct gather_piece *pieces, uint32_t count,
                                cuda_stream stream);

/* Under gpu->lock and inside a scope. True: the kernel can be launched. */
bool gather_ready(struct gpu *gpu);
int gather_launch(struct gpu *gpu, const struct gather_piece *pieces, uint32_t count,
                  cuda_stream stream);
/* Cuts one copy in pieces; 0: `room` is too small for all of them. Pure. */
unsigned gather_cut(const struct device_copy *copy, struct gather_piece *out, unsigned room);
uint64_t gather_below(const struct gpu *gpu);

void sums_init(struct gpu *gpu);
/* `usable`: the driver may be called, in a scope of the GPU. */
void sums_fini(struct gpu *gpu, bool usable);

void transfers_fini(struct gpu *gpu);
/* Under gpu->lock and inside a scope: one without copies, for other work in the stream, which is
 * over when what it is marked behind is. */
struct device_transfer *transfer_take(struct gpu *gpu, int *status);
void transfer_mark(struct device_transfer *transfer, cuda_stream stream);
void transfer_give(struct device_transfer *transfer);
/* An event behind all that is in somebody's stream, inside a scope. BUSY: it captures a graph. */
YOLK_MUST_USE int stream_mark(struct gpu *gpu, cuda_stream stream, cuda_event *out);

#endif
