/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "wire/msg.h"

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

/*
 * Mooncake's names, for dashboards that were made for it, as far as the quantity exists here. Its
 * requests for one key and for many are two series each; Yolk's requests are all for many, so those
 * for one key stay 0.
 */
struct figure {
    const char *name;
    const char *help;
    bool counter;
    uint64_t value;
};

static int print_figures(struct base_buf *out, const struct figure *figures, size_t count)
{
    int status = YOLK_OK;
    for (size_t i = 0; i < count && status == YOLK_OK; i++)
        status = base_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n",
                                 figures[i].name, figures[i].help, figures[i].name,
                                 figures[i].counter ? "counter" : "gauge", figures[i].name,
                                 figures[i].value);
    return status;
}

static int upstream_figures(const struct admin_figures *all, struct base_buf *out)
{
    const struct master_stats *m = &all->master;
    uint64_t misses = m->miss_never_stored + m->miss_evicted + m->miss_expired + m->miss_error;
    const struct figure figures[] = {
        {"master_active_clients", "live client sessions", false, m->sessions},
        {"master_allocated_file_size_bytes", "bytes of readable replicas on disks", false,
         m->disk_live_bytes},
        {"master_total_file_capacity_bytes", "bytes of mounted disks", false,
         m->disk_capacity_bytes},
        {"mem_cache_hit_nums_", "keys found by get in memory", true, m->get_hits_memory},
        {"file_cache_hit_nums_", "keys found by get on a disk only", true, m->get_hits_disk},
        {"mem_cache_hit_bytes_total", "bytes of keys found in memory", true,
         m->get_hit_bytes_memory},
        {"file_cache_hit_bytes_total", "bytes of keys found on a disk only", true,
         m->get_hit_bytes_disk},
        {"valid_get_nums_", "keys found by get", true, m->get_hits},
        {"total_get_nums_", "keys asked for by get", true, m->get_hits + misses},
        {"master_put_start_alloc_failures_total", "keys refused for want of space", true,
         m->put_no_space},
        {"master_put_start_partial_allocations_total", "puts with fewer replicas than asked", true,
         m->put_short},
        {"master_put_start_discard_cnt", "keys whose put ran out of time", true, m->put_timeouts},
        {"master_promotion_admitted_total", "copies to memory asked for", true, m->promotes},
        {"master_promotion_completed_total", "copies to memory made", true, m->promotes_done},
        {"master_promotion_completed_bytes_total", "bytes of copies to memory made", true,
         m->promote_bytes},
        {"master_promotion_failed_total", "copies to memory that failed", true, m->promotes_failed},
    };
    return print_figures(out, figures, sizeof(figures) / sizeof(figures[0]));
}

/* Requests by kind: `one` of its names is for one key, `batch` for many. */
static int upstream_requests(const struct admin_figures *all, struct base_buf *out)
{
    const struct master_stats *m = &all->master;
    uint64_t misses = m->miss_never_stored + m->miss_evicted + m->miss_expired + m->miss_error;
    const struct {
        const char *op;
        unsigned kind;
        bool batch;
        uint64_t items, failed; /* keys of batches */
    } ROWS[] = {
        {"exist_key", WIRE_EXIST, true, m->exist_hits + m->exist_misses, 0},
        {"get_replica_list", WIRE_GET_START, true, m->get_hits + misses, misses},
        {"put_start", WIRE_PUT_START, true, m->put_starts + m->put_exists + m->put_no_space,
         m->put_exists + m->put_no_space},
        {"put_end", WIRE_PUT_END, true, m->put_ends, 0},
        {"put_revoke", WIRE_PUT_REVOKE, true, m->put_revokes, 0},
        {"replica_clear", WIRE_REPLICA_CLEAR, true, m->replica_clears + m->replica_clears_refused,
         m->replica_clears_refused},
        {"remove", WIRE_REMOVE, false, 0, 0},
        {"remove_all", WIRE_REMOVE_ALL, false, 0, 0},
        {"mount_segment", WIRE_SEGMENT_MOUNT, false, 0, 0},
        {"unmount_segment", WIRE_SEGMENT_UNMOUNT, false, 0, 0},
        {"ping", WIRE_HEARTBEAT, false, 0, 0},
    };
    int status = YOLK_OK;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]) && status == YOLK_OK; i++) {
        char names[4][96];
        uint64_t requests = all->server.kinds[ROWS[i].kind];
        snprintf(names[0], sizeof(names[0]), "master_%s_requests_total", ROWS[i].op);
        snprintf(names[1], sizeof(names[1]), "master_batch_%s_requests_total", ROWS[i].op);
        snprintf(names[2], sizeof(names[2]), "master_batch_%s_items_total", ROWS[i].op);
        snprintf(names[3], sizeof(names[3]), "master_batch_%s_failed_items_total", ROWS[i].op);
        const struct figure figures[] = {
            {names[0], "requests received, for one key if it has batches", true,
             ROWS[i].batch ? 0 : requests},
            {names[1], "requests received", true, requests},
            {names[2], "keys in them", true, ROWS[i].items},
            {names[3], "keys in them that were refused or not there", true, ROWS[i].failed},
        };
        status = print_figures(out, figures, ROWS[i].batch ? 4 : 1);
    }
    return status;
}

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
    if (status == YOLK_OK)
        status = upstream_figures(figures, out);
    return status == YOLK_OK ? upstream_requests(figures, out) : status;
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
    int status = base_buf_printf(out, "memory %s of %s (%.1f%%), not yet reusable %s", live,
                                 capacity, percent, limbo);
    if (status == YOLK_OK && m->gds_segments > 0) {
        approximate(m->gds_live_bytes, live, sizeof(live));
        approximate(m->gds_capacity_bytes, capacity, sizeof(capacity));
        approximate(m->gds_limbo_bytes, limbo, sizeof(limbo));
        status = base_buf_printf(out,
                                 " | gds %s of %s, not yet reusable %s, keys %" PRIu64
                                 ", hit %" PRIu64 ", evicted %" PRIu64,
                                 live, capacity, limbo, m->gds_objects, m->get_hits_gds,
                                 m->gds_evictions);
    }
    if (status != YOLK_OK)
        return status;
    return base_buf_printf(
        out,
        " | keys %" PRIu64 " (+%" PRIu64 " being written) | segments %" PRIu64 " | clients %" PRIu64
        " | requests %" PRIu64 " | gets %" PRIu64 " hit %" PRIu64 " missed | puts %" PRIu64
        " | evicted %" PRIu64 " | up %" PRIu64 " s\n",
        m->objects, m->objects_open, m->segments, m->sessions, m->requests, m->get_hits, misses,
        m->put_ends, m->evictions, figures->uptime_ms / 1000);
}

int admin_health_text(const struct admin_figures *figures, struct base_buf *out)
{
    const struct master_stats *m = &figures->master;
    return base_buf_printf(out,
                           "{\"status\":\"ok\",\"role\":\"leader\",\"ha_state\":\"serving\","
                           "\"service_ready\":true,\"version\":\"%s\",\"uptime_ms\":%" PRIu64
                           ",\"sessions\":%" PRIu64 ",\"segments\":%" PRIu64
                           ",\"segments_open\":%" PRIu64 ",\"keys\":%" PRIu64
                           ",\"capacity_bytes\":%" PRIu64 ",\"allocated_bytes\":%" PRIu64 "}\n",
                           YOLK_VERSION, figures->uptime_ms, m->sessions, m->segments,
                           m->segments_open, m->objects, m->capacity_bytes, m->live_bytes);
}
