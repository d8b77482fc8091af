/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t real_next(void *self)
{
    (void)self;
    uint64_t value;
    ssize_t n;
    do {
        n = getrandom(&value, sizeof(value), 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(value))
        abort();
    return value;
}

struct random random_real(void)
{
    return (struct random){real_next, NULL};
}

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t sim_next(void *self)
{
    uint64_t *s = ((struct random_sim *)self)->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

void random_sim_init(struct random_sim *sim, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        sim->s[i] = splitmix64(&seed);
}

struct random random_sim_random(struct random_sim *sim)
{
    return (struct random){sim_next, sim};
}

uint64_t random_below(const struct random *r, uint64_t bound)
{
    if (bound == 0)
        return 0;
    /* Values below 2^64 mod bound would make the low results likelier. */
    uint64_t reject = (0 - bound) % bound;
    uint64_t v;
    do {
        v = random_u64(r);
    } while (v < reject);
    return v % bound;
}

void random_bytes(const struct random *r, void *out, size_t size)
{
    uint8_t *p = out;
    while (size > 0) {
        uint64_t v = random_u64(r);
        size_t n = size < sizeof(v) ? size : sizeof(v);
        memcpy(p, &v, n);
        p += n;
        size -= n;
    }
}
