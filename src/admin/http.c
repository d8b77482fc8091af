/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/metrics.h"
#include "admin/pages.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/tenant.h"
#include "master/view.h"
#include "platform/clock.h"

#define BODY_MAX 65536u

static const char *const TENANT_ROWS[] = {
    "mooncake_tenant_quota_requested_bytes", "mooncake_tenant_quota_effective_bytes",
    "mooncake_tenant_quota_charged_bytes",   "mooncake_tenant_quota_over_quota",
    "mooncake_tenant_quota_reject_total",    "mooncake_tenant_evict_bytes_total",
};
static const char TYPE_METRICS[] = "text/plain; version=0.0.4; charset=utf-8";

struct base_json_writer admin_json_start(struct base_buf *body)
{
    base_buf_init(body, HTTP_ANSWER_MAX);
    return (struct base_json_writer){.out = body};
}

void admin_finish(struct http_exchange *exchange, int code, const char *type, int status,
                  struct base_buf *body)
{
    if (status == YOLK_OK)
        http_answer(exchange, code, type, body);
    else
        http_answer_text(exchange, 500, "The answer is too large, or there is no memory for it.");
    base_buf_free(body);
}

void admin_fail(struct http_exchange *exchange, int code, int error, const char *text)
{
    struct base_buf body;
    struct base_json_writer json = admin_json_start(&body);
    base_json_open(&json, '{');
    base_json_bool(&json, "success", false);
    base_json_name(&json, "error_code");
    base_json_raw(&json, "%d", error);
    base_json_text(&json, "error_message", text);
    base_json_raw(&json, "}\n");
    admin_finish(exchange, code, ADMIN_TYPE_JSON, json.status, &body);
}

bool admin_is_guarded(const struct admin_http *http, struct http_exchange *exchange)
{
    if (http->guarded)
        admin_fail(
            exchange, 403, UPSTREAM_NOT_SUPPORTED,
            "this master has a secret, which this page does not ask for: use yolk ls, get, rm "
            "or stat with --secret-file");
    return http->guarded;
}

bool admin_read_tenant(struct http_exchange *exchange, char out[MAX_TENANT_SIZE + 1])
{
    const struct http_text *text = http_query(http_exchange_request(exchange), "tenant_id");
    size_t size = 0;
    snprintf(out, MAX_TENANT_SIZE + 1, "%s", TENANT_DEFAULT);
    if (!text || text->size == 0)
        return true;
    if (http_unescape(*text, (uint8_t *)out, MAX_TENANT_SIZE, &size) &&
        base_tenant_check(out, size) == YOLK_OK) {
        out[size] = '\0';
        return true;
    }
    admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS, "tenant_id: no name of a tenant");
    return false;
}

/* ---- figures ---- */

static void collect(const struct admin_http *http, struct admin_figures *figures)
{
    master_core_stats(server_core(http->server), &figures->master);
    figures->server = *server_get_stats(http->server);
    figures->uptime_ms = (clock_real_now_ns() - http->started_ns) / CLOCK_NS_PER_MS;
}

/* One series a segment; lines of one name have to stand together. */
struct segment_series {
    struct base_json_writer *out;
    const char *name;
    bool used;
};

static void add_segment_line(void *self, const struct master_segment_view *segment)
{
    const struct segment_series *series = self;
    if (segment->disk)
        return;
    base_json_raw(series->out, "%s{segment=", series->name);
    base_json_string(series->out, segment->name, strlen(segment->name));
    base_json_raw(series->out, ",id=\"%" PRIx64 "\"} %" PRIu64 "\n", segment->id,
                  series->used ? segment->used_bytes : segment->size);
}

static void add_segments(const struct admin_http *http, struct base_json_writer *out)
{
    struct segment_series series[] = {{out, "segment_allocated_bytes", true},
                                      {out, "segment_total_capacity_bytes", false}};
    for (size_t i = 0; i < 2; i++) {
        base_json_raw(out, "# TYPE %s gauge\n", series[i].name);
        master_view_segments(server_core(http->server), add_segment_line, &series[i]);
    }
}

static void add_tenant_line(struct base_json_writer *out, size_t row,
                            const struct master_tenant_info *info)
{
    const uint64_t values[] = {info->quota_bytes, info->quota_bytes,
                               info->used_bytes,  info->used_bytes > info->quota_bytes,
                               info->rejects,     info->evicted_bytes};
    if (!info->registered || info->quota_bytes == 0 || info->quota_bytes == UINT64_MAX)
        return; /* without a quota */
    base_json_raw(out, "%s{tenant_id=", TENANT_ROWS[row]);
    base_json_string(out, info->name, strlen(info->name));
    base_json_raw(out, "} %" PRIu64 "\n", values[row]);
}

static void add_tenants(const struct admin_http *http, struct base_json_writer *out)
{
    struct master_tenant_info info;
    for (size_t row = 0; row < sizeof(TENANT_ROWS) / sizeof(TENANT_ROWS[0]); row++)
        for (uint32_t i = 0; master_tenant_at(server_core(http->server), i, &info); i++)
            add_tenant_line(out, row, &info);
}

static void page_metrics(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    struct admin_figures figures;
    struct base_buf body;
    struct base_json_writer out = admin_json_start(&body);
    collect(http, &figures);
    out.status = admin_metrics_text(&figures, &body);
    add_segments(http, &out);
    add_tenants(http, &out);
    if (out.status == YOLK_OK && http->settings)
        out.status = base_config_metrics(http->settings, &body);
    admin_finish(exchange, 200, TYPE_METRICS, out.status, &body);
}

static void page_summary(void *self, struct http_exchange *exchange)
{
    struct admin_figures figures;
    struct base_buf body;
    base_buf_init(&body, HTTP_ANSWER_MAX);
    collect(self, &figures);
    admin_finish(exchange, 200, NULL, admin_summary_text(&figures, &body), &body);
}

static void page_health(void *self, struct http_exchange *exchange)
{
    struct admin_figures figures;
    struct base_buf body;
    base_buf_init(&body, HTTP_ANSWER_MAX);
    collect(self, &figures);
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, admin_health_text(&figures, &body), &body);
}

static void answer_words(struct http_exchange *exchange, const char *type, const char *text)
{
    struct base_buf body;
    base_buf_init(&body, 4096);
    admin_finish(exchange, 200, type, base_buf_printf(&body, "%s", text), &body);
}

/* There is one master, and it serves. */
static void page_role(void *self, struct http_exchange *exchange)
{
    (void)self;
    answer_words(exchange, NULL, "leader");
}

static void page_ha_status(void *self, struct http_exchange *exchange)
{
    (void)self;
    answer_words(exchange, NULL, "serving");
}

static void page_leader(void *self, struct http_exchange *exchange)
{
    (void)self;
    answer_words(exchange, ADMIN_TYPE_JSON, "{\"present\":false}\n");
}

static void page_kv_events(void *self, struct http_exchange *exchange)
{
    (void)self;
    answer_words(exchange, ADMIN_TYPE_JSON,
                 "{\"enabled\":false,\"published_batches\":0,\"published_events\":0,"
                 "\"dropped_events\":0,\"skipped_unparsed_keys\":0}\n");
}

/* ---- what there is not ---- */

static void page_drain_jobs(void *self, struct http_exchange *exchange)
{
    (void)self;
    admin_fail(exchange, 501, UPSTREAM_NOT_SUPPORTED,
               "there are no drain jobs: end the node with SIGTERM, it drains (--drain-grace)");
}

const struct http_page admin_http_pages[] = {
    {"/metrics", HTTP_GET, page_metrics,
     "Prometheus text; Mooncake's names beside ours; each setting in force as yolk_setting_info"},
    {"/metrics/summary", HTTP_GET, page_summary, "one line for people"},
    {"/health", HTTP_GET, page_health, "JSON: status, role, ha_state, service_ready, figures"},
    {"/role", HTTP_GET, page_role, "leader"},
    {"/ha_status", HTTP_GET, page_ha_status, "serving"},
    {"/leader", HTTP_GET, page_leader, "JSON: present is false, there is no election"},
    {"/kv_events/status", HTTP_GET, page_kv_events, "JSON: enabled is false"},
    {"/get_all_segments", HTTP_GET, admin_page_all_segments,
     "names of memory segments, one a line"},
    {"/get_segments_detail", HTTP_GET, admin_page_segments_detail,
     "JSON of each segment, disks too"},
    {"/query_segment", HTTP_GET, admin_page_query_segment, "?segment=NAME: bytes used and in all"},
    {"/query_key", HTTP_GET, admin_page_query_key,
     "?key=KEY: where its copies in memory lie; grants a lease as exist does"},
    {"/batch_query_keys", HTTP_GET, admin_page_batch_query_keys,
     "?keys=A,B: the same of up to 4096 keys, without leases"},
    {"/get_all_keys", HTTP_GET, admin_page_all_keys, "every key, one a line, in no order"},
    {"/api/v1/segments/status", HTTP_GET, admin_page_segment_status,
     "?segment=NAME: OK or draining"},
    {"/api/v1/remove_all", HTTP_POST, admin_page_remove_all,
     "?force=true: removes every object, or with ?tenant_id=NAME its own"},
    {"/api/v1/tenant_quotas", HTTP_GET | HTTP_PUT | HTTP_DELETE, admin_page_tenant_quotas,
     "?tenant_id=NAME: its quota (without it all); PUT takes {\"requested_quota_bytes\":N}"},
    {"/api/v1/drain_jobs", HTTP_POST, page_drain_jobs, "501 with the reason"},
    {"/api/v1/drain_jobs/query", HTTP_GET, page_drain_jobs, "501 with the reason"},
    {"/api/v1/drain_jobs/cancel", HTTP_POST, page_drain_jobs, "501 with the reason"},
};
const size_t admin_http_page_count = sizeof(admin_http_pages) / sizeof(admin_http_pages[0]);

enum yolk_status admin_http_create(struct loop *loop, struct server *server,
                                   const struct admin_http_options *options,
                                   struct admin_http **out)
{
    struct admin_http *http = base_calloc(1, sizeof(*http));
    if (!http)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the admin pages");
    const struct http_server_options pages = {.address = options->address,
                                              .pages = admin_http_pages,
                                              .page_count = admin_http_page_count,
                                              .self = http,
                                              .body_max = BODY_MAX};
    http->server = server;
    http->started_ns = clock_real_now_ns();
    http->guarded = options->guarded;
    http->settings = options->settings;
    enum yolk_status status = http_server_create(loop, &pages, &http->http);
    if (status != YOLK_OK) {
        free(http);
        return status;
    }
    server_set_removed(server, admin_removed, http);
    *out = http;
    return YOLK_OK;
}

void admin_http_destroy(struct admin_http *http)
{
    if (!http)
        return;
    server_set_removed(http->server, NULL, NULL);
    http_server_destroy(http->http);
    free(http);
}

const struct net_address *admin_http_address(const struct admin_http *http)
{
    return http_server_address(http->http);
}
