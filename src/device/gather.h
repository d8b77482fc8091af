/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gather kernel: one launch moves a list of pieces between host memory that the GPU reaches and
 * its own, in any alignment. Each warp takes every n-th piece; a piece of 4 KiB is one round of
 * eight 16-byte loads a lane, so that many are under way at a time.
 */
#ifndef DEVICE_GATHER_H
#define DEVICE_GATHER_H

#include <stdint.h>

/* What the kernel reads; 32 bytes, so that one is one access of the bus. */
struct gather_piece {
    uint64_t to;
    uint64_t from;
    uint64_t size;
    uint64_t unused;
};

/* The kernel's text for the driver: PTX, written by hand. scripts/check-cuda-abi has it assembled.
 */
extern const char gather_ptx[];

#define GATHER_KERNEL "yolk_gather" /* (u64 list, u32 count) */

enum {
    GATHER_PIECE_BYTES = 16384, /* larger copies are cut, so that all warps have work */
    GATHER_THREADS = 512,
    GATHER_WARPS = GATHER_THREADS / 32,
};

#endif
