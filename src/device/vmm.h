/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory with handles, of a GPU or of a NUMA node's host memory: made, mapped for all who may touch
 * it, and given back in stages that can be gone on with.
 *
 * A release that fails part of the way keeps what is left; the next call goes on there and does
 * nothing twice. The driver is a table of functions, so each call can be made to fail.
 */
#ifndef DEVICE_VMM_H
#define DEVICE_VMM_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda.h"
#include "device/device.h"

struct vmm_place {
    int location; /* CUDA_LOCATION_DEVICE or CUDA_LOCATION_HOST_NUMA */
    int id;       /* of the GPU or the node */
};

enum vmm_stage { VMM_NOTHING, VMM_CREATED, VMM_RESERVED, VMM_MAPPED };

struct vmm_part {
    cuda_allocation allocation;
    uint64_t size;
};

struct vmm {
    const struct cuda *cuda;
    struct vmm_place place;
    struct vmm_part one;    /* the allocation, from VMM_CREATED on */
    struct vmm_part *parts; /* those of memory that several make, mapped side by side; else NULL */
    unsigned held, mapped;  /* of them */
    cuda_pointer address;   /* from VMM_RESERVED on */
    uint64_t size;
    enum vmm_stage stage; /* what is to be given back */
    uint64_t gpus;        /* bit i: GPU i reaches it */
    bool host;            /* the processor does */
};

/* What sizes of memory there must be multiples of: a power of two. UNSUPPORTED with the driver's
 * error: such memory cannot be made there. */
YOLK_MUST_USE int vmm_granularity(const struct cuda *cuda, struct vmm_place place, int handle_types,
                                  uint64_t *out);

/* Makes `size` bytes, a multiple of the granularity, which all GPUs from 0 to gpu_count - 1 reach,
 * and the processor too where they are host memory. alignment: of the address, a power of two; 0:
 * any. On failure vmm->stage says what could not be taken back, which vmm_release goes on with; the
 * first error is told. Inside a scope of device_enter. */
YOLK_MUST_USE int vmm_create(const struct cuda *cuda, struct vmm_place place, int handle_types,
                             unsigned gpu_count, uint64_t size, uint64_t alignment,
                             struct vmm *vmm);
/* Maps allocations of somebody else's that were imported or retained, one behind the other, and
 * owns them from here on, also when it fails. host: the processor shall reach them too, and it is
 * no failure if it may not. At least one GPU must reach them. */
YOLK_MUST_USE int vmm_adopt(const struct cuda *cuda, const struct vmm_part *parts, unsigned count,
                            unsigned gpu_count, bool host, struct vmm *vmm);
/* YOLK_OK: nothing is left, of what vmm_let_go was given either. May be called again whatever it
 * answered. */
YOLK_MUST_USE int vmm_release(struct vmm *vmm);
/* Gives a reference to an allocation back; where the driver would not, with the next one. */
void vmm_let_go(const struct cuda *cuda, cuda_allocation allocation);

/* Whether memory of this place can be made, exported by this handle and imported again: the only
 * proof, for attribute 128 says yes where no handle is made. UNSUPPORTED, the text naming the call
 * and the driver's error. */
YOLK_MUST_USE int vmm_probe(const struct cuda *cuda, struct vmm_place place, int handle_type);

#endif
