/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/faster.h"

#include "engine/telemetry.h"

static bool is_alone(const struct faster *faster, unsigned way)
{
    return faster->ways[way].mixed == 0 && faster->ways[way ^ 1].under_way == 0;
}

/* Time counts for the way that alone has something under way. */
static void go_on(struct faster *faster, uint64_t now_ns)
{
    uint64_t ns = now_ns > faster->since_ns ? now_ns - faster->since_ns : 0;
    for (unsigned i = 0; i < FASTER_WAYS; i++)
        if (faster->ways[i].under_way > 0 && is_alone(faster, i))
            faster->ways[i].ns += ns;
    if (now_ns > faster->since_ns)
        faster->since_ns = now_ns;
}

static void forget_round(struct faster_way *way)
{
    way->bytes = way->ns = 0;
}

static void end_trial(struct faster *faster, bool changes)
{
    uint32_t pause = faster->pause != 0 ? faster->pause : FASTER_PAUSE_FIRST;
    faster->trying = false;
    faster->rounds = 0;
    forget_round(&faster->ways[0]);
    forget_round(&faster->ways[1]);
    if (changes) {
        faster->now ^= 1;
        faster->changes++;
        faster->pause = FASTER_PAUSE_FIRST;
    } else {
        faster->pause = pause * 2 < FASTER_PAUSE_MAX ? pause * 2 : FASTER_PAUSE_MAX;
    }
}

static bool is_faster(uint64_t a, uint64_t b)
{
    return a / (100 + FASTER_MARGIN_PERCENT) * 100 > b;
}

static void begin_trial_if_due(struct faster *faster)
{
    const struct faster_way *used = &faster->ways[faster->now],
                            *other = &faster->ways[faster->now ^ 1];
    bool first = faster->trials == 0; /* nothing is known of it */
    if (!first && faster->rounds < faster->pause && !is_faster(other->speed, used->speed))
        return;
    faster->trying = true;
    faster->trials++;
    forget_round(&faster->ways[faster->now ^ 1]);
}

static void end_round(struct faster *faster, unsigned number)
{
    struct faster_way *way = &faster->ways[number];
    uint64_t speed = telemetry_rate(way->bytes, way->ns);
    bool tried = faster->trying && number != faster->now;
    forget_round(way);
    if (speed == 0)
        return;
    way->speed = tried || way->speed == 0 ? speed : way->speed / 4 * 3 + speed / 4;
    if (tried) {
        end_trial(faster, is_faster(speed, faster->ways[faster->now].speed));
    } else if (!faster->trying && number == faster->now) {
        faster->rounds++;
        begin_trial_if_due(faster);
    }
}

struct faster_ticket faster_begin(struct faster *faster, uint64_t now_ns)
{
    go_on(faster, now_ns);
    unsigned number = faster->now ^ (unsigned)faster->trying;
    struct faster_ticket ticket = {.way = (uint8_t)number,
                                   .mixed = faster->ways[number ^ 1].under_way > 0};
    faster->ways[number].under_way++;
    faster->ways[number].mixed += ticket.mixed;
    return ticket;
}

void faster_end(struct faster *faster, struct faster_ticket ticket, uint64_t bytes, bool failed,
                uint64_t now_ns)
{
    struct faster_way *way = &faster->ways[ticket.way];
    go_on(faster, now_ns);
    if (is_alone(faster, ticket.way))
        way->bytes += bytes;
    way->under_way--;
    way->mixed -= ticket.mixed;
    way->requests++;
    way->moved += bytes;
    if (failed && faster->trying && ticket.way != faster->now) {
        way->speed = 0;
        end_trial(faster, false);
    } else if (way->bytes > 0 && (way->bytes >= FASTER_ROUND_BYTES || way->ns >= FASTER_ROUND_NS)) {
        end_round(faster, ticket.way);
    }
}
