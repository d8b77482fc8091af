/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/clock.h"

#include <time.h>

uint64_t clock_real_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t real_now(void *self)
{
    (void)self;
    return clock_real_now_ns();
}

struct clock clock_real(void)
{
    return (struct clock){real_now, NULL};
}

static uint64_t sim_now(void *self)
{
    return ((struct clock_sim *)self)->now_ns;
}

void clock_sim_init(struct clock_sim *sim, uint64_t start_ns)
{
    sim->now_ns = start_ns;
}

void clock_sim_advance(struct clock_sim *sim, uint64_t by_ns)
{
    sim->now_ns += by_ns;
}

void clock_sim_set(struct clock_sim *sim, uint64_t at_ns)
{
    if (at_ns > sim->now_ns)
        sim->now_ns = at_ns;
}

struct clock clock_sim_clock(struct clock_sim *sim)
{
    return (struct clock){sim_now, sim};
}

uint64_t clock_after(uint64_t now_ns, uint64_t after_ns)
{
    return after_ns > CLOCK_NEVER - now_ns ? CLOCK_NEVER : now_ns + after_ns;
}

uint64_t clock_after_ms(uint64_t now_ns, uint64_t after_ms)
{
    if (after_ms > CLOCK_NEVER / CLOCK_NS_PER_MS)
        return CLOCK_NEVER;
    return clock_after(now_ns, after_ms * CLOCK_NS_PER_MS);
}
