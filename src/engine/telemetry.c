/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/telemetry.h"

#define ADD(counter, by) ((void)atomic_fetch_add_explicit(&(counter), (by), memory_order_relaxed))
#define GET(counter)     atomic_load_explicit(&(counter), memory_order_relaxed)
#define SET(counter, to) atomic_store_explicit(&(counter), (to), memory_order_relaxed)

#define NS_PER_S UINT64_C(1000000000)

uint64_t telemetry_rate(uint64_t bytes, uint64_t ns)
{
    if (ns == 0)
        return 0;
    double rate = (double)bytes * (double)NS_PER_S / (double)ns;
    return rate >= 1.8e19 ? UINT64_MAX : (uint64_t)rate;
}

uint64_t telemetry_mean(uint64_t mean, uint64_t sample, uint64_t ns)
{
    if (mean == 0)
        return sample;
    double weight = (double)ns / ((double)ns + (double)TELEMETRY_MEMORY_NS);
    return (uint64_t)((double)mean + weight * ((double)sample - (double)mean));
}

/* Takes the open window's time up to now, and closes it if it is long enough. */
static void measure(struct telemetry *load, uint64_t now_ns)
{
    bool free_now = false;
    if (!atomic_compare_exchange_strong_explicit(&load->measuring, &free_now, true,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    uint64_t since_ns = GET(load->busy_since_ns);
    uint64_t window_ns = GET(load->window_ns) + (now_ns > since_ns ? now_ns - since_ns : 0);
    SET(load->busy_since_ns, now_ns);
    if (window_ns >= TELEMETRY_WINDOW_NS) {
        uint64_t bytes = atomic_exchange_explicit(&load->window_bytes, 0, memory_order_relaxed);
        uint64_t ios = atomic_exchange_explicit(&load->window_ios, 0, memory_order_relaxed);
        uint64_t sum = atomic_exchange_explicit(&load->window_latency_ns, 0, memory_order_relaxed);
        SET(load->bandwidth_bytes, telemetry_mean(GET(load->bandwidth_bytes),
                                                  telemetry_rate(bytes, window_ns), window_ns));
        if (ios > 0)
            SET(load->latency_ns, telemetry_mean(GET(load->latency_ns), sum / ios, window_ns));
        window_ns = 0;
    }
    SET(load->window_ns, window_ns);
    atomic_store_explicit(&load->measuring, false, memory_order_release);
}

void telemetry_count(struct telemetry *load, const struct telemetry_pass *pass, uint64_t begin_ns,
                     uint64_t end_ns)
{
    if (pass->posted_ios > 0) {
        uint64_t before =
            atomic_fetch_add_explicit(&load->inflight_ios, pass->posted_ios, memory_order_relaxed);
        if (before == 0)
            SET(load->busy_since_ns, begin_ns);
        ADD(load->inflight_bytes, pass->posted_bytes);
    }
    if (pass->over_ios == 0)
        return;
    ADD(load->bytes, pass->done_bytes);
    ADD(load->ios, pass->over_ios);
    if (pass->errors > 0)
        ADD(load->errors, pass->errors);
    ADD(load->window_bytes, pass->done_bytes);
    ADD(load->window_ios, pass->over_ios);
    ADD(load->window_latency_ns, pass->latency_ns);
    atomic_fetch_sub_explicit(&load->inflight_bytes, pass->over_bytes, memory_order_relaxed);
    uint64_t before =
        atomic_fetch_sub_explicit(&load->inflight_ios, pass->over_ios, memory_order_relaxed);
    if (before == pass->over_ios || end_ns >= GET(load->busy_since_ns) + TELEMETRY_WINDOW_NS)
        measure(load, end_ns);
}

void telemetry_read(const struct telemetry *load, struct telemetry_look *out)
{
    *out = (struct telemetry_look){.inflight_bytes = GET(load->inflight_bytes),
                                   .inflight_ios = GET(load->inflight_ios),
                                   .bytes = GET(load->bytes),
                                   .ios = GET(load->ios),
                                   .errors = GET(load->errors),
                                   .bandwidth_bytes = GET(load->bandwidth_bytes),
                                   .latency_ns = GET(load->latency_ns)};
    uint64_t ios = GET(load->window_ios);
    if (out->bandwidth_bytes == 0)
        out->bandwidth_bytes = telemetry_rate(GET(load->window_bytes), GET(load->window_ns));
    if (out->latency_ns == 0 && ios > 0)
        out->latency_ns = GET(load->window_latency_ns) / ios;
}
