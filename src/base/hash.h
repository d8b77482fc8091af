/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3. Not for secrets; a table that strangers fill passes a random seed. */
uint64_t base_hash64(const void *bytes, size_t size);
uint64_t base_hash64_seed(const void *bytes, size_t size, uint64_t seed);

/* Mixes an integer well enough to be a table index. */
static inline uint64_t base_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

#endif
