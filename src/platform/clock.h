/* SPDX-License-Identifier: Apache-2.0 */
/* Time as a service, so that every state machine can run under virtual time. */
#ifndef PLATFORM_CLOCK_H
#define PLATFORM_CLOCK_H

#include <stdint.h>

#define CLOCK_NS_PER_US UINT64_C(1000)
#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_S  UINT64_C(1000000000)
/* A deadline that never comes. */
#define CLOCK_NEVER UINT64_MAX

struct clock {
    uint64_t (*now_ns)(void *self);
    void *self;
};

static inline uint64_t clock_now(const struct clock *c)
{
    return c->now_ns(c->self);
}

/* CLOCK_BOOTTIME: it also runs while the machine sleeps, so a lease cannot outlive its owner's nap.
 */
struct clock clock_real(void);
uint64_t clock_real_now_ns(void);

/* Virtual time. It moves only by these calls; safe to read from other threads. */
struct clock_sim {
    _Atomic uint64_t now_ns;
};
void clock_sim_init(struct clock_sim *sim, uint64_t start_ns);
void clock_sim_advance(struct clock_sim *sim, uint64_t by_ns);
/* Moves to at_ns unless that is in the past. */
void clock_sim_set(struct clock_sim *sim, uint64_t at_ns);
struct clock clock_sim_clock(struct clock_sim *sim);

/* now + after, saturating at CLOCK_NEVER. */
uint64_t clock_after(uint64_t now_ns, uint64_t after_ns);
/* now + after_ms, saturating. */
uint64_t clock_after_ms(uint64_t now_ns, uint64_t after_ms);

#endif
