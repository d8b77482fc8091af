/* SPDX-License-Identifier: Apache-2.0 */
/* A circuit breaker of one (transport, segment): skips a route that fails, tries it again later
 * with one probe, each time twice as late. Pure; the caller locks. */
#ifndef YOLK_ENGINE_BREAKER_H
#define YOLK_ENGINE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/status.h>

struct breaker {
    uint32_t failures; /* in a row */
    uint32_t doublings;
    uint64_t open_until_ns; /* 0: closed */
    bool probing;           /* a probe is under way */
    enum yolk_status last;
};

struct breaker_rule {
    uint32_t failures_max;
    uint64_t cooldown_ns;
};

/* May the route be used now? After the cooldown one caller gets true and becomes the probe; the
 * others wait another cooldown or until the probe succeeds. */
bool breaker_allows(struct breaker *b, const struct breaker_rule *rule, uint64_t now_ns);
/* The same question without becoming the probe. */
bool breaker_is_open(const struct breaker *b, uint64_t now_ns);
void breaker_success(struct breaker *b);
/* True if this one opened it. */
bool breaker_failure(struct breaker *b, const struct breaker_rule *rule, uint64_t now_ns,
                     enum yolk_status status);

#endif
