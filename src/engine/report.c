/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine tells of itself: the load of its routes and its metrics as texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/internal.h"
#include "engine/way.h"

enum {
    TEXT_MAX = 8 << 20,
    ROUTES_SHOWN_MAX = 256, /* in the metrics, where each is some series for ever */
    ROUTE_SERIES = 6,
    FILES_SHOWN_MAX = 16,
    FILE_SERIES = 6,
    WAYS_SHOWN_MAX = 4 * FILES_SHOWN_MAX,
    WAY_SERIES = 7,
    GAUGES_MAX = 64 + ENGINE_TRANSPORTS_MAX + ROUTES_SHOWN_MAX * ROUTE_SERIES +
                 FILES_SHOWN_MAX * FILE_SERIES + WAYS_SHOWN_MAX * WAY_SERIES,
};

/* ---- load ---- */

/* The route's lock is held. */
static int breaker_state(const struct breaker *breaker, uint64_t now_ns)
{
    if (breaker->open_until_ns == 0)
        return YOLK_BREAKER_CLOSED;
    return breaker_is_open(breaker, now_ns) && !breaker->probing ? YOLK_BREAKER_OPEN
                                                                 : YOLK_BREAKER_PROBING;
}

void engine_route_device(const struct segment *segment, uint32_t transport, char *out, size_t size)
{
    const char *name = segment->device != NULL ? segment->device : segment->routes[transport].text;
    size_t length = segment->device != NULL ? strlen(name) : strcspn(name, ",");
    snprintf(out, size, "%.*s", (int)(length < size ? length : size - 1), name);
}

/* False: nothing was ever asked of it. */
static bool look_at(struct yolk_engine *engine, uint64_t handle, struct segment *segment,
                    uint32_t index, uint64_t now_ns, struct yolk_engine_load *out)
{
    struct route *route = &segment->routes[index];
    struct telemetry_look look;
    if (route->text == NULL)
        return false;
    telemetry_read(&route->load, &look);
    memset(out, 0, sizeof(*out));
    pthread_mutex_lock(&route->lock);
    bool used = look.ios > 0 || look.inflight_ios > 0 || route->breaker.failures > 0;
    out->breaker = breaker_state(&route->breaker, now_ns);
    pthread_mutex_unlock(&route->lock);
    if (!used)
        return false;
    snprintf(out->transport, sizeof(out->transport), "%s", engine->transports[index].ops.name);
    engine_route_device(segment, index, out->device, sizeof(out->device));
    out->segment = handle;
    out->inflight_bytes = look.inflight_bytes;
    out->inflight_ios = look.inflight_ios;
    out->bandwidth_bytes = look.bandwidth_bytes;
    out->latency_ns = look.latency_ns;
    out->bytes = look.bytes;
    out->ios = look.ios;
    out->errors = look.errors;
    return true;
}

enum yolk_status yolk_engine_load_stats(struct yolk_engine *engine, struct yolk_engine_load *loads,
                                        size_t *count)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || count == NULL || (loads == NULL && *count > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "load stats need room and its size");
    size_t room = *count, found = 0;
    uint64_t now_ns = engine_now(engine);
    struct segment_table *table = &engine->segments;
    pthread_rwlock_rdlock(&table->lock);
    for (uint32_t s = 0; s < table->slots.count; s++) {
        struct segment *segment = table->slots.slots[s].thing;
        for (uint32_t i = 0; segment != NULL && i < engine->transport_count; i++) {
            struct yolk_engine_load load;
            uint64_t handle = slots_handle(&table->slots, s);
            if (!look_at(engine, handle, segment, i, now_ns, &load))
                continue;
            if (found < room)
                loads[found] = load;
            found++;
        }
    }
    pthread_rwlock_unlock(&table->lock);
    *count = found;
    return found > room && room > 0
               ? base_fail(YOLK_ERR_LIMIT, 0, "there are %zu routes in use, room for %zu", found,
                           room)
               : YOLK_OK;
}

/* ---- metrics ---- */

struct gauges {
    struct metrics_gauge *rows;
    size_t count;
};

static struct metrics_gauge *add(struct gauges *g, const char *name, const char *help, bool counter,
                                 double value)
{
    struct metrics_gauge *row = &g->rows[g->count++];
    *row = (struct metrics_gauge){.name = name, .help = help, .counter = counter, .value = value};
    return row;
}

static void add_memory(struct yolk_engine *engine, struct gauges *g)
{
    uint64_t bytes = 0;
    struct base_range range = {0};
    pthread_rwlock_rdlock(&engine->registry.lock);
    size_t count = base_imap_count(&engine->registry.map);
    for (uint64_t from = 0; base_imap_next(&engine->registry.map, from, &range);
         from = range.start + 1)
        bytes += range.size;
    pthread_rwlock_unlock(&engine->registry.lock);
    add(g, "yolk_engine_registrations", "registered ranges of memory", false, (double)count);
    add(g, "yolk_engine_registered_bytes", "bytes in them", false, (double)bytes);
}

static void add_quarantine(struct yolk_engine *engine, struct gauges *g)
{
    struct quarantine_look look;
    quarantine_look(engine, &look);
    add(g, "yolk_engine_quarantined_batches", "batches freed before their memory was quiet", false,
        (double)look.count);
    add(g, "yolk_engine_quarantine_oldest_seconds", "how long the oldest of them is there", false,
        (double)look.oldest_ns / 1e9);
    add(g, "yolk_engine_quarantined_batches_total", "batches that came there", true,
        (double)look.entered);
    add(g, "yolk_engine_quarantine_reaped_total", "batches that became quiet there", true,
        (double)look.reaped);
}

static void add_stats(struct yolk_engine *engine, struct gauges *g)
{
    struct yolk_engine_stats s;
    yolk_engine_stats(engine, &s);
    uint64_t ended =
        s.tasks_ok + s.tasks_failed + s.tasks_canceled + s.tasks_timeout + s.tasks_stuck;
    add(g, "yolk_engine_queue_depth", "requests that wait for dispatch", false, (double)s.queued);
    add(g, "yolk_engine_dispatched", "requests that hold a place of the dispatch window", false,
        (double)s.dispatched);
    add(g, "yolk_engine_queue_refused_total", "submits refused by the queue or by a contract", true,
        (double)s.queue_refused);
    add(g, "yolk_engine_requests_in_flight", "requests submitted that are not over", false,
        s.tasks_submitted > ended ? (double)(s.tasks_submitted - ended) : 0);
    add(g, "yolk_engine_batches", "batches that are not reclaimed", false, (double)s.batches);
    add(g, "yolk_engine_stuck_requests",
        "requests that ended STUCK and whose memory is not quiet yet", false,
        (double)atomic_load(&engine->stuck_count));
    add(g, "yolk_engine_slices_total", "ios given to transports", true, (double)s.slices_submitted);
    add(g, "yolk_engine_slices_retried_total", "ios that failed and were tried again", true,
        (double)s.slices_retried);
    add(g, "yolk_engine_slices_failed_over_total", "of those, the ones on another transport", true,
        (double)s.slices_failed_over);
    add(g, "yolk_engine_completions_unknown_total", "completions late or doubled, ignored", true,
        (double)s.completions_unknown);
    add(g, "yolk_engine_breakers_opened_total", "times that a route's breaker opened", true,
        (double)s.breakers_opened);
}

static void add_transports(struct yolk_engine *engine, struct gauges *g)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct metrics_gauge *row = add(g, "yolk_engine_transport_up", "1: the transport is in use",
                                        false, engine->transports[i].endpoint != NULL);
        snprintf(row->labels, sizeof(row->labels), "transport=\"%s\"",
                 engine->transports[i].ops.name);
    }
}

static const struct {
    const char *name, *help;
    bool counter;
} ROUTE_ROWS[ROUTE_SERIES] = {
    {"yolk_engine_route_inflight_bytes", "bytes in flight to a peer, device or file", false},
    {"yolk_engine_route_inflight_ios", "ios in flight to it", false},
    {"yolk_engine_route_bandwidth_bytes_per_second",
     "bytes per second of busy time, a mean that forgets", false},
    {"yolk_engine_route_latency_seconds", "time of one io, a mean that forgets", false},
    {"yolk_engine_route_errors_total", "ios that failed", true},
    {"yolk_engine_route_breaker", "0: closed, 1: open, 2: being tried again", false},
};

static double route_value(const struct yolk_engine_load *load, size_t row)
{
    const double values[ROUTE_SERIES] = {
        (double)load->inflight_bytes,   (double)load->inflight_ios, (double)load->bandwidth_bytes,
        (double)load->latency_ns / 1e9, (double)load->errors,       load->breaker};
    return values[row];
}

static enum yolk_status add_routes(struct yolk_engine *engine, struct gauges *g)
{
    struct yolk_engine_load *loads = base_calloc(ROUTES_SHOWN_MAX, sizeof(*loads));
    if (loads == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for metrics");
    size_t count = ROUTES_SHOWN_MAX;
    enum yolk_status status = yolk_engine_load_stats(engine, loads, &count);
    size_t shown = count < ROUTES_SHOWN_MAX ? count : ROUTES_SHOWN_MAX;
    add(g, "yolk_engine_routes", "routes in use; of more than 256 the first are shown", false,
        (double)count);
    double open = 0;
    for (size_t i = 0; i < shown; i++)
        open += loads[i].breaker != YOLK_BREAKER_CLOSED;
    add(g, "yolk_engine_breakers_open", "of the routes shown, those whose breaker is not closed",
        false, open);
    for (size_t r = 0; r < ROUTE_SERIES; r++) {
        for (size_t i = 0; i < shown; i++) {
            char device[2 * sizeof(loads[i].device)];
            struct metrics_gauge *row = add(g, ROUTE_ROWS[r].name, ROUTE_ROWS[r].help,
                                            ROUTE_ROWS[r].counter, route_value(&loads[i], r));
            metrics_escape(loads[i].device, device, 128);
            snprintf(row->labels, sizeof(row->labels),
                     "transport=\"%s\",device=\"%.128s\",segment=\"%llx\"", loads[i].transport,
                     device, (unsigned long long)loads[i].segment);
        }
    }
    free(loads);
    return status == YOLK_ERR_LIMIT ? YOLK_OK : status;
}

/* ---- files ---- */

static void file_row(struct gauges *g, const char *name, const char *help, const char *path,
                     const char *label, const char *value, uint64_t bytes)
{
    char device[256];
    struct metrics_gauge *row = add(g, name, help, true, (double)bytes);
    metrics_escape(path, device, 128);
    snprintf(row->labels, sizeof(row->labels), "device=\"%.128s\",%s=\"%s\"", device, label, value);
}

static void add_files(struct yolk_engine *engine, struct gauges *g)
{
    struct yolk_file_figures files[FILES_SHOWN_MAX];
    size_t count = 0;
    for (uint32_t t = 0; t < engine->transport_count && count == 0; t++) {
        const struct transport *transport = &engine->transports[t];
        if (transport->endpoint != NULL && transport->ops.files != NULL)
            count = transport->ops.files(transport->endpoint, files, FILES_SHOWN_MAX);
    }
    count = count < FILES_SHOWN_MAX ? count : FILES_SHOWN_MAX;
    for (size_t i = 0; i < count; i++) {
        char device[256], reason[400];
        struct metrics_gauge *row =
            add(g, "yolk_engine_file_mode", "1: the file's bytes go so, and why", false, 1);
        metrics_escape(files[i].path, device, 128);
        metrics_escape(files[i].reason, reason, 200);
        snprintf(row->labels, sizeof(row->labels),
                 "device=\"%.128s\",mode=\"%s\",reason=\"%.180s\"", device, files[i].mode, reason);
    }
    for (size_t i = 0; i < count; i++) {
        static const char name[] = "yolk_engine_file_bytes_total", help[] = "bytes to and from it";
        file_row(g, name, help, files[i].path, "operation", "read", files[i].bytes_read);
        file_row(g, name, help, files[i].path, "operation", "write", files[i].bytes_written);
    }
    for (size_t i = 0; i < count; i++) {
        static const char name[] = "yolk_engine_file_bounce_bytes_total",
                          help[] = "of them, through a buffer, and for want of what";
        const struct yolk_file_figures *f = &files[i];
        file_row(g, name, help, f->path, "want", "direct", f->bytes_compatible);
        file_row(g, name, help, f->path, "want", "alignment", f->bytes_bounced);
        file_row(g, name, help, f->path, "want", "registration", f->bytes_unregistered);
    }
}

static void way_row(struct gauges *g, const struct way_look *look, const char *name,
                    const char *help, bool counter, double value, const char *way)
{
    char device[256];
    struct metrics_gauge *row = add(g, name, help, counter, value);
    metrics_escape(look->device, device, 128);
    snprintf(row->labels, sizeof(row->labels),
             "device=\"%.128s\",operation=\"%s\",size=\"%s\"%s%s%s", device,
             look->write ? "write" : "read", look->large ? "large" : "small",
             way != NULL ? ",way=\"" : "", way != NULL ? way : "", way != NULL ? "\"" : "");
}

static void add_ways(struct yolk_engine *engine, struct gauges *g)
{
    static const char *const names[] = {[WAY_OWN] = "own", [WAY_STAGED] = "staged"};
    struct way_look looks[WAYS_SHOWN_MAX];
    size_t count = way_looks(engine, looks, WAYS_SHOWN_MAX);
    for (size_t i = 0; i < 2 * count; i++)
        way_row(g, &looks[i / 2], "yolk_engine_way_bandwidth_bytes_per_second",
                "of two ways that both copy through host memory: as measured last, 0 not yet",
                false, (double)looks[i / 2].faster.ways[i % 2].speed, names[i % 2]);
    for (size_t i = 0; i < 2 * count; i++)
        way_row(g, &looks[i / 2], "yolk_engine_way_bytes_total", "bytes that went so", true,
                (double)looks[i / 2].faster.ways[i % 2].moved, names[i % 2]);
    for (size_t i = 0; i < 2 * count; i++)
        way_row(g, &looks[i / 2], "yolk_engine_way_in_use", "1: the faster one, which is taken",
                false, looks[i / 2].faster.now == i % 2, names[i % 2]);
    for (size_t i = 0; i < count; i++)
        way_row(g, &looks[i], "yolk_engine_way_changes_total",
                "times that the other one was faster by 15 %", true, looks[i].faster.changes, NULL);
}

static enum yolk_status write_text(struct yolk_engine *engine,
                                   int (*write)(const struct metrics_view *, struct base_buf *),
                                   char **text)
{
    if (engine == NULL || text == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "metrics of an engine need room for the text");
    struct gauges g = {.rows = base_calloc(GAUGES_MAX, sizeof(*g.rows))};
    if (g.rows == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for metrics");
    struct metrics_view view = {.metrics = engine->metrics, .gauges = g.rows};
    for (uint32_t i = 0; i < engine->transport_count; i++)
        view.names[i] = engine->transports[i].ops.name;
    view.names[METRICS_NO_TRANSPORT] = "none";
    add_stats(engine, &g);
    add_quarantine(engine, &g);
    add_memory(engine, &g);
    add_transports(engine, &g);
    enum yolk_status status = add_routes(engine, &g);
    add_files(engine, &g);
    add_ways(engine, &g);
    view.gauge_count = g.count;
    struct base_buf out;
    base_buf_init(&out, TEXT_MAX);
    if (status == YOLK_OK)
        status = write(&view, &out);
    if (status == YOLK_OK)
        status = base_buf_append(&out, "", 1);
    free(g.rows);
    if (status != YOLK_OK) {
        base_buf_free(&out);
        return status;
    }
    *text = (char *)out.data;
    return YOLK_OK;
}

enum yolk_status yolk_engine_metrics(struct yolk_engine *engine, char **text)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    return write_text(engine, metrics_prometheus, text);
}

enum yolk_status yolk_engine_metrics_json(struct yolk_engine *engine, char **text)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    return write_text(engine, metrics_json, text);
}

enum yolk_status yolk_engine_metrics_summary(struct yolk_engine *engine, char **text)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    return write_text(engine, metrics_summary, text);
}
