/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum kernel by its arithmetic as the processor compiles it, warp by warp. */
#include <string.h>

#include "cuda.h"
#include "device/checksum_kernel.h"

static uint32_t run_warp(uint64_t from, uint64_t size)
{
    uint32_t crc[CHECKSUM_LANES], before[CHECKSUM_LANES], power = CHECKSUM_LANE_POWER;
    if ((from | size) % CHECKSUM_LANE_BYTES != 0)
        return checksum_bytes(from, size);
    for (uint32_t lane = 0; lane < CHECKSUM_LANES; lane++)
        crc[lane] = checksum_lane(from, size, lane);
    for (uint32_t step = 1; step < CHECKSUM_LANES; step *= 2) {
        memcpy(before, crc, sizeof(before));
        for (uint32_t lane = 0; lane < CHECKSUM_LANES; lane++)
            crc[lane] = checksum_join(lane, step, before[lane], before[lane ^ step], power);
        power = checksum_times(power, power);
    }
    return crc[0];
}

bool fake_run_checksum(int ordinal, uint64_t to, uint64_t from, uint64_t size)
{
    bool ordinary;
    const uint8_t *bytes = fake_reach(ordinal, from, size, false, &ordinary);
    uint8_t *out = fake_reach(ordinal, to, sizeof(uint32_t), true, &ordinary);
    if (bytes == NULL || out == NULL)
        return false;
    uint32_t crc = run_warp((uintptr_t)bytes, size) ^ (size >= fake.wrong_sums ? 1 : 0);
    memcpy(out, &crc, sizeof(crc));
    return true;
}
