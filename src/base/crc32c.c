/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crc32 instruction has a latency of three cycles and a throughput of one, so three independent
 * lanes run at three times the speed of one; their checksums are joined by shifting them over the
 * length of the following lanes with tables of that linear operator.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u
#define LONG_LANE  8192u
#define SHORT_LANE 256u

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static uint32_t byte_table[8][256];  /* slicing by 8 */
static uint32_t long_shift[4][256];  /* advances a checksum over LONG_LANE zero bytes */
static uint32_t short_shift[4][256]; /* ... over SHORT_LANE */
static bool accelerated;

/* The product of two remainders, modulo the polynomial; bit 31 is x to the power of 0. */
static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (; a != 0; a <<= 1) {
        if (a >> 31)
            sum ^= b;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return sum;
}

uint32_t base_crc32c_factor(uint64_t size)
{
    uint32_t factor = 1u << 31, square = 1u << 23; /* 1; x to the power of 8, for one byte */
    for (; size != 0; size >>= 1) {
        if (size & 1)
            factor = times(factor, square);
        square = times(square, square);
    }
    return factor;
}

uint32_t base_crc32c_append(uint32_t crc, uint32_t plain, uint32_t factor)
{
    return ~(times(~crc, factor) ^ plain);
}

static void fill_shift(uint32_t table[4][256], size_t length)
{
    uint32_t factor = base_crc32c_factor(length);
    for (unsigned lane = 0; lane < 4; lane++) {
        for (uint32_t n = 0; n < 256; n++)
            table[lane][n] = times(n << (8 * lane), factor);
    }
}

static void fill_tables(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        byte_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++) {
        for (unsigned k = 1; k < 8; k++) {
            uint32_t before = byte_table[k - 1][n];
            byte_table[k][n] = byte_table[0][before & 0xff] ^ before >> 8;
        }
    }
    fill_shift(long_shift, LONG_LANE);
    fill_shift(short_shift, SHORT_LANE);
#if defined(__x86_64__)
    accelerated = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t run_table(uint32_t crc, const uint8_t *p, size_t size)
{
    while (size >= 8) {
        uint64_t x = 0;
        for (unsigned i = 0; i < 8; i++)
            x |= (uint64_t)p[i] << (8 * i);
        x ^= crc;
        crc = 0;
        for (unsigned i = 0; i < 8; i++)
            crc ^= byte_table[7 - i][x >> (8 * i) & 0xff];
        p += 8;
        size -= 8;
    }
    for (; size != 0; size--)
        crc = byte_table[0][(crc ^ *p++) & 0xff] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

static uint32_t shift(const uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
           table[3][crc >> 24];
}

static inline uint64_t load_word(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

__attribute__((target("sse4.2"))) static uint32_t run_lanes(uint32_t crc, const uint8_t **place,
                                                            size_t *size, size_t lane,
                                                            const uint32_t table[4][256])
{
    const uint8_t *p = *place;
    while (*size >= 3 * lane) {
        uint64_t a = crc;
        uint64_t b = 0;
        uint64_t c = 0;
        for (const uint8_t *end = p + lane; p < end; p += 8) {
            a = _mm_crc32_u64(a, load_word(p));
            b = _mm_crc32_u64(b, load_word(p + lane));
            c = _mm_crc32_u64(c, load_word(p + 2 * lane));
        }
        crc = shift(table, (uint32_t)a) ^ (uint32_t)b;
        crc = shift(table, crc) ^ (uint32_t)c;
        p += 2 * lane;
        *size -= 3 * lane;
    }
    *place = p;
    return crc;
}

__attribute__((target("sse4.2"))) static uint32_t run_sse42(uint32_t crc, const uint8_t *p,
                                                            size_t size)
{
    crc = run_lanes(crc, &p, &size, LONG_LANE, long_shift);
    crc = run_lanes(crc, &p, &size, SHORT_LANE, short_shift);
    uint64_t wide = crc;
    for (; size >= 8; p += 8, size -= 8)
        wide = _mm_crc32_u64(wide, load_word(p));
    crc = (uint32_t)wide;
    for (; size != 0; size--)
        crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
#else
static uint32_t run_sse42(uint32_t crc, const uint8_t *p, size_t size)
{
    return run_table(crc, p, size);
}
#endif

uint32_t base_crc32c(uint32_t crc, const void *bytes, size_t size)
{
    pthread_once(&tables_once, fill_tables);
    return ~(accelerated ? run_sse42(~crc, bytes, size) : run_table(~crc, bytes, size));
}

uint32_t base_crc32c_table(uint32_t crc, const void *bytes, size_t size)
{
    pthread_once(&tables_once, fill_tables);
    return ~run_table(~crc, bytes, size);
}
