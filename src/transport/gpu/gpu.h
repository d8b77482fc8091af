/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ios of which one side is a GPU's memory and the other lies in this process too, for transports
 * that would let the processor copy them otherwise. They are gathered to groups, each of which is
 * one transfer of the GPU, straight between the two memories: the processor's is registered with
 * the driver when it is used. Several groups are under way at a time.
 */
#ifndef TRANSPORT_GPU_GPU_H
#define TRANSPORT_GPU_GPU_H

#include <stdatomic.h>
#include <stdbool.h>

#include <yolk/transport.h>

#include "base/list.h"
#include "device/device.h"
#include "platform/thread.h"

/* An endpoint's part: the driver, opened when the first such io comes. */
struct gpu_side {
    struct mutex lock;
    _Atomic(struct device *) device;
    char *cuda, *cufile; /* NULL: as the system finds them */
    _Atomic bool told;   /* that memory could not be registered */
};

YOLK_MUST_USE int gpu_side_init(struct gpu_side *side,
                                const struct yolk_transport_options *options);
void gpu_side_fini(struct gpu_side *side);
/* The driver, from its first use on. */
YOLK_MUST_USE int gpu_side_open(struct gpu_side *side, struct device **out);
/* NULL, with the reason in yolk_last_error(). */
struct device *gpu_side_device(struct gpu_side *side);
/* 1 + the number of the GPU whose memory it is; 0: none's, or CUDA is not in use. */
YOLK_MUST_USE int gpu_side_look(struct gpu_side *side, const void *pointer, uint32_t *gpu);

/* Copies between memory of a GPU (1 + its number) and the processor's, and waits for it. */
YOLK_MUST_USE int gpu_side_copy(struct gpu_side *side, uint32_t gpu, void *to, const void *from,
                                uint64_t size, bool to_gpu);

struct gpu_group;

/* A channel's part; one thread at a time. */
struct gpu_lane {
    struct gpu_side *side;
    struct gpu_group *open;  /* being filled; NULL: none */
    struct base_list groups; /* full or flushed, the oldest first */
    struct base_list unused;
    struct yolk_io *done, **done_end; /* linked by scratch[0] */
    uint32_t queued;                  /* ios, with those done */
};

void gpu_lane_init(struct gpu_lane *lane, struct gpu_side *side);
/* Nothing is queued. */
void gpu_lane_fini(struct gpu_lane *lane);

/* The side of an io that is not io->local. */
struct gpu_there {
    void *memory;
    uint32_t gpu;               /* 1 + the number of the GPU whose memory it is; 0: none's */
    struct device_range *range; /* memory lies in, `offset` bytes behind its start; NULL: it is not
                                 * to be registered, and the driver copies it by pieces */
    uint64_t offset;
};
/* Borrows the io, of at least one byte, until gpu_lane_take gives it back; scratch[0] is the lane's
 * meanwhile. FAILED: io->status says why. */
enum yolk_submit gpu_lane_add(struct gpu_lane *lane, struct yolk_io *io,
                              const struct gpu_there *there);
/* What was added goes on its way. */
void gpu_lane_flush(struct gpu_lane *lane);
/* Looks whether something has ended. */
void gpu_lane_poll(struct gpu_lane *lane);
/* The same, waiting until all has. */
void gpu_lane_wait(struct gpu_lane *lane);
/* One that has ended, status and transferred set; NULL: none. */
struct yolk_io *gpu_lane_take(struct gpu_lane *lane);

#endif
