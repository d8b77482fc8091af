/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum kernel; scripts/make-checksum-ptx makes src/device/checksum_ptx.c of it. */
#include "checksum_kernel.h"

/* As struct gather_piece. */
struct piece {
    uint64_t to; /* where the checksum goes, 4 bytes */
    uint64_t from;
    uint64_t size;
    uint64_t unused;
};

static __attribute__((device, always_inline)) void add_up(const struct piece *piece, uint32_t lane)
{
    uint64_t from = piece->from, size = piece->size;
    uint32_t crc = 0;
    if ((from | size) % CHECKSUM_LANE_BYTES != 0) {
        if (lane == 0)
            crc = checksum_bytes(from, size);
    } else {
        uint32_t power = CHECKSUM_LANE_POWER;
        crc = checksum_lane(from, size, lane);
#pragma nounroll
        for (uint32_t step = 1; step < CHECKSUM_LANES; step *= 2) {
            uint32_t other = __nvvm_shfl_sync_bfly_i32(~0u, crc, step, 31);
            crc = checksum_join(lane, step, crc, other, power);
            power = checksum_times(power, power);
        }
    }
    if (lane == 0)
        *(uint32_t *)piece->to = crc;
}

/* Each warp takes every n-th piece. */
extern "C" __attribute__((global)) void yolk_checksum(uint64_t list, uint32_t count)
{
    uint32_t thread = __nvvm_read_ptx_sreg_tid_x(), warps = __nvvm_read_ptx_sreg_ntid_x() / 32;
    uint32_t index = __nvvm_read_ptx_sreg_ctaid_x() * warps + thread / 32;
    uint32_t stride = __nvvm_read_ptx_sreg_nctaid_x() * warps;
    for (; index < count; index += stride)
        add_up((const struct piece *)list + index, thread % 32);
}
