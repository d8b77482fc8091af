/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the checksum kernel, which a GPU and the processor compile alike: the former
 * for scripts/make-checksum-ptx, the latter for the fake driver and the tests.
 *
 * A warp makes the CRC-32C of one piece, as a plain remainder: it begins with 0 and is not
 * inverted, so that leading zeros change nothing and those of neighbours can be joined. The piece
 * is read by rows of 512 bytes that end where it ends, each lane having 16 bytes of each row, in
 * four words with a remainder each. From row to row a remainder moves on by 512 bytes, which is 32
 * words to be added or not; that takes the same instructions in all lanes, and neither tables nor
 * shared memory nor a barrier.
 */
#ifndef DEVICE_CHECKSUM_KERNEL_H
#define DEVICE_CHECKSUM_KERNEL_H

#ifdef __CUDA__
typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#define CHECKSUM_CODE static inline __attribute__((device, always_inline))
#define CHECKSUM_LOOP _Pragma("nounroll")
#else
#include <stdint.h>
#define CHECKSUM_CODE static inline
#define CHECKSUM_LOOP
#endif

#define CHECKSUM_POLYNOMIAL 0x82f63b78u

enum { CHECKSUM_LANES = 32, CHECKSUM_LANE_BYTES = 16, CHECKSUM_ROW_BYTES = 512 };

/* 16 bytes that a lane reads at once. */
typedef uint32_t checksum_words __attribute__((vector_size(16), may_alias));

/* What each bit of a remainder becomes 512 bytes on. */
/* clang-format off */
#define CHECKSUM_ROW_ON(ADD) \
    ADD(0, 0xbd6f81f8u) ADD(1, 0x7f337501u) ADD(2, 0xfe66ea02u) ADD(3, 0xf921a2f5u) \
    ADD(4, 0xf7af331bu) ADD(5, 0xeab210c7u) ADD(6, 0xd088577fu) ADD(7, 0xa4fcd80fu) \
    ADD(8, 0x4c15c6efu) ADD(9, 0x982b8ddeu) ADD(10, 0x35bb6d4du) ADD(11, 0x6b76da9au) \
    ADD(12, 0xd6edb534u) ADD(13, 0xa8371c99u) ADD(14, 0x55824fc3u) ADD(15, 0xab049f86u) \
    ADD(16, 0x53e549fdu) ADD(17, 0xa7ca93fau) ADD(18, 0x4a795105u) ADD(19, 0x94f2a20au) \
    ADD(20, 0x2c0932e5u) ADD(21, 0x581265cau) ADD(22, 0xb024cb94u) ADD(23, 0x65a5e1d9u) \
    ADD(24, 0xcb4bc3b2u) ADD(25, 0x937bf195u) ADD(26, 0x231b95dbu) ADD(27, 0x46372bb6u) \
    ADD(28, 0x8c6e576cu) ADD(29, 0x1d30d829u) ADD(30, 0x3a61b052u) ADD(31, 0x74c360a4u)
/* clang-format on */

/* The remainder as it is 512 bytes on. */
CHECKSUM_CODE uint32_t checksum_row_on(uint32_t crc)
{
    uint32_t sum = 0;
#define CHECKSUM_ADD(bit, word) sum ^= (uint32_t)((int)(crc << (31 - (bit))) >> 31) & (word);
    CHECKSUM_ROW_ON(CHECKSUM_ADD)
#undef CHECKSUM_ADD
    return sum;
}

/* The remainder with 4 more bytes behind it, added to it before. */
CHECKSUM_CODE uint32_t checksum_word_on(uint32_t crc)
{
    for (int bit = 0; bit < 32; bit++)
        crc = crc >> 1 ^ (CHECKSUM_POLYNOMIAL & (0u - (crc & 1)));
    return crc;
}

/* The product of two remainders: bit 31 is x to the power of 0. */
CHECKSUM_CODE uint32_t checksum_times(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (int bit = 0; bit < 32; bit++) {
        sum ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (CHECKSUM_POLYNOMIAL & (0u - (b & 1)));
    }
    return sum;
}

/* A lane's part of a piece whose address and size are multiples of 16: the remainder of its bytes
 * at the end of the last row's part. */
CHECKSUM_CODE uint32_t checksum_lane(uint64_t from, uint64_t size, uint32_t lane)
{
    uint64_t rows = (size + CHECKSUM_ROW_BYTES - 1) / CHECKSUM_ROW_BYTES;
    /* Before the piece, in the first row, nothing is read. */
    uint64_t before = rows * CHECKSUM_ROW_BYTES - size, skipped = lane * CHECKSUM_LANE_BYTES;
    uint64_t at = from - before + skipped, end = from + size;
    uint32_t a = 0, b = 0, c = 0, d = 0;
    checksum_words next = {0, 0, 0, 0};
    if (size == 0)
        return 0;
    if (skipped >= before)
        next = *(const checksum_words *)at;
    for (at += CHECKSUM_ROW_BYTES; rows != 0; rows--, at += CHECKSUM_ROW_BYTES) {
        checksum_words words = next;
        if (at < end) /* while this row is added up the next one comes */
            next = *(const checksum_words *)at;
        CHECKSUM_LOOP
        for (int i = 0; i < 4; i++) {
            uint32_t done = checksum_row_on(a) ^ words[0];
            a = b;
            b = c;
            c = d;
            d = done;
            words = (checksum_words){words[1], words[2], words[3], 0};
        }
    }
    uint32_t crc = 0;
    CHECKSUM_LOOP
    for (int i = 0; i < 4; i++) {
        crc = checksum_word_on(crc ^ a);
        a = b;
        b = c;
        c = d;
    }
    return crc;
}

/* Neighbours in groups of `step` lanes become one: `power` is x to the power of the group's bits.
 */
CHECKSUM_CODE uint32_t checksum_join(uint32_t lane, uint32_t step, uint32_t mine, uint32_t other,
                                     uint32_t power)
{
    uint32_t first = lane & step ? other : mine, second = lane & step ? mine : other;
    return checksum_times(first, power) ^ second;
}

/* A piece as it comes, by one lane: right for each, quick for none. */
CHECKSUM_CODE uint32_t checksum_bytes(uint64_t from, uint64_t size)
{
    uint32_t crc = 0;
    for (uint64_t i = 0; i < size; i++) {
        crc ^= ((const uint8_t *)from)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (CHECKSUM_POLYNOMIAL & (0u - (crc & 1)));
    }
    return crc;
}

/* Of one lane: x to the power of 128. */
#define CHECKSUM_LANE_POWER 0x18b8ea18u

#endif
