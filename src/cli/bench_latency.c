/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_transfer.h"

/* Powers of two, each in LATENCY_PARTS parts; the first ones hold one value each. */
static uint32_t class_of(uint64_t ns)
{
    if (ns < LATENCY_PARTS)
        return (uint32_t)ns;
    uint32_t bits = 63 - (uint32_t)__builtin_clzll(ns), shift = bits - 5;
    return (shift + 1) * LATENCY_PARTS + (uint32_t)(ns >> shift) % LATENCY_PARTS;
}

/* The middle of a class. */
static double value_of(uint32_t class)
{
    uint32_t shift = class / LATENCY_PARTS;
    if (shift == 0)
        return class;
    uint64_t low = (uint64_t)(LATENCY_PARTS + class % LATENCY_PARTS) << (shift - 1);
    return (double)low + (double)(UINT64_C(1) << (shift - 1)) / 2;
}

void bench_latency_add(struct bench_latency *l, uint64_t ns)
{
    l->counts[class_of(ns)]++;
    l->count++;
    l->sum_ns += ns;
}

void bench_latency_merge(struct bench_latency *l, const struct bench_latency *more)
{
    for (uint32_t i = 0; i < LATENCY_CLASSES * LATENCY_PARTS; i++)
        l->counts[i] += more->counts[i];
    l->count += more->count;
    l->sum_ns += more->sum_ns;
}

double bench_latency_quantile(const struct bench_latency *l, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)l->count), seen = 0;
    for (uint32_t i = 0; i < LATENCY_CLASSES * LATENCY_PARTS; i++) {
        seen += l->counts[i];
        if (seen > wanted || (seen == l->count && seen > 0))
            return value_of(i);
    }
    return 0;
}
