/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum kernel: one launch makes the plain CRC-32C of each piece of a list, where the pieces
 * are those of the gather kernel and `to` says where the four bytes go. checksum_kernel.h has the
 * arithmetic, checksum_kernel.cu the kernel, checksum_ptx.c its text for the driver.
 */
#ifndef DEVICE_CHECKSUM_H
#define DEVICE_CHECKSUM_H

#define CHECKSUM_KERNEL "yolk_checksum" /* (u64 list, u32 count) */

extern const char checksum_ptx[];

#endif
