/* SPDX-License-Identifier: Apache-2.0 */
/* Randomness as a service: the kernel's, or a seeded stream for the simulator. */
#ifndef PLATFORM_RANDOM_H
#define PLATFORM_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
    uint64_t (*next_u64)(void *self);
    void *self;
};

/* getrandom(2); aborts the process if the kernel refuses, for every caller makes identities or
 * nonces of it. */
struct random random_real(void);

/* xoshiro256**, seeded through splitmix64. Not for secrets. Not safe to share between threads. */
struct random_sim {
    uint64_t s[4];
};
void random_sim_init(struct random_sim *sim, uint64_t seed);
struct random random_sim_random(struct random_sim *sim);

static inline uint64_t random_u64(const struct random *r)
{
    return r->next_u64(r->self);
}
/* Uniform in [0, bound); bound 0 answers 0. */
uint64_t random_below(const struct random *r, uint64_t bound);
void random_bytes(const struct random *r, void *out, size_t size);

#endif
