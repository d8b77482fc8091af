/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/breaker.h"

enum { BREAKER_DOUBLINGS_MAX = 5 };

static uint64_t cooldown_end(const struct breaker *b, const struct breaker_rule *rule,
                             uint64_t now_ns)
{
    return now_ns + (rule->cooldown_ns << b->doublings);
}

bool breaker_is_open(const struct breaker *b, uint64_t now_ns)
{
    return b->open_until_ns != 0 && now_ns < b->open_until_ns;
}

bool breaker_allows(struct breaker *b, const struct breaker_rule *rule, uint64_t now_ns)
{
    if (b->open_until_ns == 0)
        return true;
    if (now_ns < b->open_until_ns)
        return false;
    b->open_until_ns = cooldown_end(b, rule, now_ns);
    b->probing = true;
    return true;
}

void breaker_success(struct breaker *b)
{
    b->failures = 0;
    b->doublings = 0;
    b->open_until_ns = 0;
    b->probing = false;
}

bool breaker_failure(struct breaker *b, const struct breaker_rule *rule, uint64_t now_ns,
                     enum yolk_status status)
{
    b->last = status;
    if (b->failures < UINT32_MAX)
        b->failures++;
    if (b->open_until_ns != 0) {
        /* Stragglers of before say nothing new; many of them would close the route for long. */
        if (!b->probing)
            return false;
        b->probing = false;
        if (b->doublings < BREAKER_DOUBLINGS_MAX)
            b->doublings++;
        b->open_until_ns = cooldown_end(b, rule, now_ns);
        return false;
    }
    if (b->failures < rule->failures_max)
        return false;
    b->open_until_ns = cooldown_end(b, rule, now_ns);
    return true;
}
