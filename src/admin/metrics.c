/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *help;
    size_t offset;
    int counter;
} SERVER_ROWS[] = {
#define ROW(member, metric, text, counter)                                                         \
    {                                                                                              \
        metric, text, offsetof(struct server_stats, member), counter                               \
    }
    ROW(connections, "master_connections", "open connections", 0),
    ROW(accepted, "master_connections_accepted_total", "connections accepted", 1),
    ROW(refused_limit, "master_connections_refused_total", "connections over the limit", 1),
    ROW(refused_handshake, "master_handshakes_failed_total",
        "connections with a wrong secret or version, or no complete hello in time", 1),
    ROW(closed_protocol, "master_connections_malformed_total",
        "connections closed for what is no frame", 1),
    ROW(closed_slow, "master_connections_slow_total",
        "connections closed for not reading their answers", 1),
    ROW(frames_in, "master_frames_received_total", "frames received", 1),
    ROW(frames_out, "master_frames_sent_total", "frames sent", 1),
    ROW(bytes_in, "master_bytes_received_total", "bytes of frames received", 1),
    ROW(bytes_out, "master_bytes_sent_total", "bytes of frames sent", 1),
#undef ROW
};

static uint64_t value_at(const void *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const uint8_t *)base + offset, sizeof(value));
    return value;
}

static int print_row(struct base_buf *out, const char *name, const char *help, int counter,
                     uint64_t value)
{
    return base_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name,
                           counter ? "counter" : "gauge", name, value);
}

int admin_metrics_text(const struct admin_figures *figures, struct base_buf *out)
{
    int status = YOLK_OK;
    for (size_t i = 0; status == YOLK_OK && i < master_stat_row_count; i++) {
        const struct master_stat_row *row = &master_stat_rows[i];
        status = print_row(out, row->metric, row->help, row->counter,
                           value_at(&figures->master, row->offset));
    }
    for (size_t i = 0; status == YOLK_OK && i < sizeof(SERVER_ROWS) / sizeof(SERVER_ROWS[0]); i++)
        status = print_row(out, SERVER_ROWS[i].name, SERVER_ROWS[i].help, SERVER_ROWS[i].counter,
                           value_at(&figures->server, SERVER_ROWS[i].offset));
    if (status == YOLK_OK)
        status = print_row(out, "master_uptime_seconds", "seconds since the start", 0,
                           figures->uptime_ms / 1000);
    return status;
}

static void approximate(uint64_t bytes, char *text, size_t size)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(UNITS) / sizeof(UNITS[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text, size, unit == 0 ? "%.0f %s" : "%.2f %s", value, UNITS[unit]);
}

int admin_summary_text(const struct admin_figures *figures, struct base_buf *out)
{
    const struct master_stats *m = &figures->master;
    char live[32], capacity[32], limbo[32];
    approximate(m->live_bytes, live, sizeof(live));
    approximate(m->capacity_bytes, capacity, sizeof(capacity));
    approximate(m->limbo_bytes, limbo, sizeof(limbo));
    double percent =
        m->capacity_bytes ? 100.0 * (double)m->live_bytes / (double)m->capacity_bytes : 0;
    uint64_t misses = m->miss_never_stored + m->miss_evicted + m->miss_expired + m->miss_error;
    return base_buf_printf(out,
                           "memory %s of %s (%.1f%%), not yet reusable %s | keys %" PRIu64
                           " (+%" PRIu64 " being written) | segments %" PRIu64 " | clients %" PRIu64
                           " | requests %" PRIu64 " | gets %" PRIu64 " hit %" PRIu64
                           " missed | puts %" PRIu64 " | evicted %" PRIu64 " | up %" PRIu64 " s\n",
                           live, capacity, percent, limbo, m->objects, m->objects_open, m->segments,
                           m->sessions, m->requests, m->get_hits, misses, m->put_ends, m->evictions,
                           figures->uptime_ms / 1000);
}

int admin_health_text(const struct admin_figures *figures, struct base_buf *out)
{
    const struct master_stats *m = &figures->master;
    return base_buf_printf(out,
                           "{\"status\":\"ok\",\"version\":\"%s\",\"uptime_ms\":%" PRIu64
                           ",\"sessions\":%" PRIu64 ",\"segments\":%" PRIu64
                           ",\"segments_open\":%" PRIu64 ",\"keys\":%" PRIu64
                           ",\"capacity_bytes\":%" PRIu64 ",\"allocated_bytes\":%" PRIu64 "}\n",
                           YOLK_VERSION, figures->uptime_ms, m->sessions, m->segments,
                           m->segments_open, m->objects, m->capacity_bytes, m->live_bytes);
}
