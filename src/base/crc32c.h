/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * CRC-32C (Castagnoli). Pass 0 to start, the former answer to go on:
 * base_crc32c(base_crc32c(0, a, m), b, n) is the checksum of a followed by b.
 */
uint32_t base_crc32c(uint32_t crc, const void *bytes, size_t size);
/* The portable one, for comparison. */
uint32_t base_crc32c_table(uint32_t crc, const void *bytes, size_t size);
/*
 * The checksum of what `crc` is of and of bytes behind it, without these: `plain` is their plain
 * remainder (it begins with 0 and is not inverted), `factor` is base_crc32c_factor of how many they
 * are.
 */
uint32_t base_crc32c_append(uint32_t crc, uint32_t plain, uint32_t factor);
uint32_t base_crc32c_factor(uint64_t size);

#endif
