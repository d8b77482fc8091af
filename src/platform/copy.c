/* SPDX-License-Identifier: Apache-2.0 */
/* The copy around the cache. A large block is not read again soon by this processor, and storing it
 * past the cache spares reading the destination's lines first: half the time of memcpy for data
 * that is not in the cache. */
#include <stdint.h>
#include <string.h>

#include "platform/memory.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static void copy_avx2(char *to, const char *from, size_t size)
{
    size_t lead = -(uintptr_t)to & 31;
    memcpy(to, from, lead);
    to += lead;
    from += lead;
    size -= lead;
    size_t blocks = size / 128;
    for (size_t i = 0; i < blocks; i++) {
        const __m256i *in = (const __m256i *)(const void *)(from + i * 128);
        __m256i *out = (__m256i *)(void *)(to + i * 128);
        _mm_prefetch(from + i * 128 + 1024, _MM_HINT_NTA); /* may be behind the end: no fault */
        __m256i a = _mm256_loadu_si256(in);
        __m256i b = _mm256_loadu_si256(in + 1);
        __m256i c = _mm256_loadu_si256(in + 2);
        __m256i d = _mm256_loadu_si256(in + 3);
        _mm256_stream_si256(out, a);
        _mm256_stream_si256(out + 1, b);
        _mm256_stream_si256(out + 2, c);
        _mm256_stream_si256(out + 3, d);
    }
    /* Streaming stores are not ordered with the flag that says "done". */
    _mm_sfence();
    memcpy(to + blocks * 128, from + blocks * 128, size - blocks * 128);
}

bool copy_stream_accelerated(void)
{
    return __builtin_cpu_supports("avx2");
}

void copy_stream(void *restrict to, const void *restrict from, size_t size)
{
    if (size >= COPY_STREAM_MIN && copy_stream_accelerated())
        copy_avx2(to, from, size);
    else if (size > 0)
        memcpy(to, from, size);
}
#else
bool copy_stream_accelerated(void)
{
    return false;
}

void copy_stream(void *restrict to, const void *restrict from, size_t size)
{
    if (size > 0)
        memcpy(to, from, size);
}
#endif
