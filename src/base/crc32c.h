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
bool base_crc32c_is_accelerated(void);

#endif
