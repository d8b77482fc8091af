/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t base_hash64(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

uint64_t base_hash64_seed(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}
