/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/bench_transfer.h"

/* The finisher of splitmix64: each word differs from its neighbours in half of its bits. */
static uint64_t word_at(uint64_t offset, uint64_t salt)
{
    uint64_t x = offset / 8 + salt * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* How many bytes from offset on lie in one word, and these. */
static size_t piece_at(uint64_t offset, uint64_t left, uint64_t salt, uint8_t piece[8])
{
    uint64_t word = word_at(offset, salt);
    size_t skip = offset % 8, size = 8 - skip;
    memcpy(piece, (const uint8_t *)&word + skip, size);
    return size < left ? size : (size_t)left;
}

void bench_pattern_fill(uint8_t *to, uint64_t offset, uint64_t size, uint64_t salt)
{
    for (uint64_t at = 0; at < size;) {
        uint8_t piece[8];
        size_t n = piece_at(offset + at, size - at, salt, piece);
        memcpy(to + at, piece, n);
        at += n;
    }
}

uint64_t bench_pattern_check(const uint8_t *data, uint64_t offset, uint64_t size, uint64_t salt)
{
    for (uint64_t at = 0; at < size;) {
        uint8_t piece[8];
        size_t n = piece_at(offset + at, size - at, salt, piece);
        for (size_t i = 0; i < n && memcmp(data + at, piece, n) != 0; i++)
            if (data[at + i] != piece[i])
                return at + i;
        at += n;
    }
    return size;
}
