/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/json.h"
#include "admin/metrics.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/tenant.h"
#include "master/view.h"
#include "platform/clock.h"

#define BODY_MAX      65536u
#define KEYS_MAX      4096u  /* of one question */
#define REMOVE_ALL_MS 60000u /* how long a removal of everything is waited for */

/* Numbers of Mooncake's ErrorCode. */
enum {
    UPSTREAM_INTERNAL_ERROR = -1,
    UPSTREAM_SEGMENT_NOT_FOUND = -101,
    UPSTREAM_INVALID_PARAMS = -600,
    UPSTREAM_REPLICA_IS_NOT_READY = -703,
    UPSTREAM_OBJECT_NOT_FOUND = -704,
    UPSTREAM_NOT_SUPPORTED = -1012,
};

/* Of its SegmentStatus. */
enum { SEGMENT_UNDEFINED = 0, SEGMENT_OK = 1, SEGMENT_GRACEFULLY_UNMOUNTING = 4 };

struct admin_http {
    struct server *server;
    struct http_server *http;
    uint64_t started_ns;
    bool guarded;
};

static const char TYPE_JSON[] = "application/json; charset=utf-8";
static const char TYPE_METRICS[] = "text/plain; version=0.0.4; charset=utf-8";

static struct admin_json_writer writer(struct base_buf *body)
{
    base_buf_init(body, HTTP_ANSWER_MAX);
    return (struct admin_json_writer){.out = body};
}

static void finish(struct http_exchange *exchange, int code, const char *type, int status,
                   struct base_buf *body)
{
    if (status == YOLK_OK)
        http_answer(exchange, code, type, body);
    else
        http_answer_text(exchange, 500, "The answer is too large, or there is no memory for it.");
    base_buf_free(body);
}

static void fail_json(struct http_exchange *exchange, int code, int error, const char *text)
{
    struct base_buf body;
    struct admin_json_writer json = writer(&body);
    admin_json_open(&json, '{');
    admin_json_bool(&json, "success", false);
    admin_json_name(&json, "error_code");
    admin_json_raw(&json, "%d", error);
    admin_json_text(&json, "error_message", text);
    admin_json_raw(&json, "}\n");
    finish(exchange, code, TYPE_JSON, json.status, &body);
}

/* ---- figures ---- */

static void collect(const struct admin_http *http, struct admin_figures *figures)
{
    master_core_stats(server_core(http->server), &figures->master);
    figures->server = *server_get_stats(http->server);
    figures->uptime_ms = (clock_real_now_ns() - http->started_ns) / CLOCK_NS_PER_MS;
}

static void add_segment_metrics(void *self, const struct master_segment_view *segment)
{
    struct admin_json_writer *out = self;
    if (segment->disk)
        return;
    admin_json_raw(out, "segment_allocated_bytes{segment=");
    admin_json_string(out, segment->name, strlen(segment->name));
    admin_json_raw(out, ",id=\"%" PRIx64 "\"} %" PRIu64 "\n", segment->id, segment->used_bytes);
    admin_json_raw(out, "segment_total_capacity_bytes{segment=");
    admin_json_string(out, segment->name, strlen(segment->name));
    admin_json_raw(out, ",id=\"%" PRIx64 "\"} %" PRIu64 "\n", segment->id, segment->size);
}

static void page_metrics(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    struct admin_figures figures;
    struct base_buf body;
    struct admin_json_writer out = writer(&body);
    collect(http, &figures);
    out.status = admin_metrics_text(&figures, &body);
    master_view_segments(server_core(http->server), add_segment_metrics, &out);
    finish(exchange, 200, TYPE_METRICS, out.status, &body);
}

static void page_summary(void *self, struct http_exchange *exchange)
{
    struct admin_figures figures;
    struct base_buf body;
    base_buf_init(&body, HTTP_ANSWER_MAX);
    collect(self, &figures);
    finish(exchange, 200, NULL, admin_summary_text(&figures, &body), &body);
}

static void page_health(void *self, struct http_exchange *exchange)
{
    struct admin_figures figures;
    struct base_buf body;
    base_buf_init(&body, HTTP_ANSWER_MAX);
    collect(self, &figures);
    finish(exchange, 200, TYPE_JSON, admin_health_text(&figures, &body), &body);
}

static void answer_words(struct http_exchange *exchange, const char *type, const char *text)
{
    struct base_buf body;
    base_buf_init(&body, 4096);
    finish(exchange, 200, type, base_buf_printf(&body, "%s", text), &body);
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
    answer_words(exchange, TYPE_JSON, "{\"present\":false}\n");
}

static void page_kv_events(void *self, struct http_exchange *exchange)
{
    (void)self;
    answer_words(exchange, TYPE_JSON,
                 "{\"enabled\":false,\"published_batches\":0,\"published_events\":0,"
                 "\"dropped_events\":0,\"skipped_unparsed_keys\":0}\n");
}

/* ---- objects ---- */

/* True after answering, when pages must not show or change objects. */
static bool is_guarded(const struct admin_http *http, struct http_exchange *exchange)
{
    if (http->guarded)
        fail_json(
            exchange, 403, UPSTREAM_NOT_SUPPORTED,
            "this master has a secret, which this page does not ask for: use yolk ls, get, rm "
            "or stat with --secret-file");
    return http->guarded;
}

/* "host:port" of the endpoints text "shm=...;tcp=host:port;...", else the segment's name. */
static void add_endpoint(struct admin_json_writer *json, const struct master_replica_view *replica)
{
    const char *at = strstr(replica->endpoints, "tcp=");
    size_t size = at ? strcspn(at + 4, ";, \n") : 0;
    admin_json_name(json, "transport_endpoint_");
    if (size > 0)
        admin_json_string(json, at + 4, size);
    else
        admin_json_string(json, replica->name, strlen(replica->name));
}

static void add_replicas(struct admin_json_writer *json, const struct master_key_view *view,
                         bool disk)
{
    bool first = true;
    admin_json_raw(json, "[");
    for (uint32_t i = 0; i < view->count; i++) {
        const struct master_replica_view *replica = &view->replicas[i];
        if (replica->disk != disk)
            continue;
        admin_json_raw(json, first ? "" : ",");
        first = false;
        admin_json_open(json, '{');
        admin_json_number(json, "size_", view->size);
        admin_json_number(json, "buffer_address_", replica->offset);
        admin_json_text(json, "protocol_", disk ? "file" : "tcp");
        add_endpoint(json, replica);
        admin_json_close(json, '}');
    }
    admin_json_raw(json, "]");
    json->comma = true;
}

static int error_of(enum yolk_status status)
{
    return status == YOLK_ERR_NOT_READY ? UPSTREAM_REPLICA_IS_NOT_READY : UPSTREAM_OBJECT_NOT_FOUND;
}

static const char *error_name(enum yolk_status status)
{
    return status == YOLK_ERR_NOT_READY ? "REPLICA_IS_NOT_READY" : "OBJECT_NOT_FOUND";
}

/* The key as the index has it: behind its tenant's bytes. */
struct index_key {
    uint8_t bytes[TENANT_PREFIX_MAX + MAX_KEY_SIZE];
    size_t size;
};

static bool qualify(const char *tenant, struct http_text text, struct index_key *out)
{
    uint8_t prefix[TENANT_PREFIX_MAX], key[MAX_KEY_SIZE];
    size_t size = 0, prefix_size = base_tenant_prefix(tenant, strlen(tenant), prefix);
    if (!http_unescape(text, key, sizeof(key), &size) || size == 0)
        return false;
    out->size = base_tenant_qualifier(prefix, prefix_size, key, size, out->bytes);
    memcpy(out->bytes + out->size, key, size);
    out->size += size;
    return true;
}

/* ?tenant_id=, default without it; false after answering. */
static bool read_tenant(struct http_exchange *exchange, char out[MAX_TENANT_SIZE + 1])
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
    fail_json(exchange, 400, UPSTREAM_INVALID_PARAMS, "tenant_id: no name of a tenant");
    return false;
}

static void page_query_key(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    const struct http_text *text = http_query(http_exchange_request(exchange), "key");
    struct index_key key;
    char tenant[MAX_TENANT_SIZE + 1];
    struct master_key_view view;
    struct base_buf body;
    if (is_guarded(http, exchange) || !read_tenant(exchange, tenant))
        return;
    if (!text || !qualify(tenant, *text, &key)) {
        fail_json(exchange, 400, UPSTREAM_INVALID_PARAMS,
                  "give ?key=KEY of 1 to 4096 bytes, escaped as %XX where need be");
        return;
    }
    master_view_key(server_core(http->server), clock_real_now_ns(), key.bytes, key.size, true,
                    &view);
    if (view.status != YOLK_OK) {
        fail_json(exchange, 404, error_of(view.status), error_name(view.status));
        return;
    }
    struct admin_json_writer json = writer(&body);
    admin_json_open(&json, '{');
    admin_json_bool(&json, "success", true);
    admin_json_name(&json, "data");
    add_replicas(&json, &view, false);
    admin_json_raw(&json, "}\n");
    finish(exchange, 200, TYPE_JSON, json.status, &body);
}

static void add_key(const struct admin_http *http, struct admin_json_writer *json,
                    const struct index_key *key)
{
    struct master_key_view view;
    size_t skip = base_tenant_skip(key->bytes, key->size);
    master_view_key(server_core(http->server), clock_real_now_ns(), key->bytes, key->size, false,
                    &view);
    admin_json_raw(json, json->comma ? "," : "");
    admin_json_string(json, key->bytes + skip, key->size - skip);
    admin_json_raw(json, ":");
    admin_json_open(json, '{');
    admin_json_bool(json, "ok", view.status == YOLK_OK);
    if (view.status != YOLK_OK) {
        admin_json_text(json, "error", error_name(view.status));
    } else {
        admin_json_name(json, "values");
        add_replicas(json, &view, false);
        admin_json_name(json, "local_disk_values");
        add_replicas(json, &view, true);
    }
    admin_json_close(json, '}');
}

/* Each key once. False: one is no key, or there are too many. */
static bool add_keys(const struct admin_http *http, struct admin_json_writer *json,
                     const char *tenant, struct http_text list)
{
    struct index_key key;
    for (unsigned n = 0; n < KEYS_MAX; n++) {
        const char *comma = list.size > 0 ? memchr(list.data, ',', list.size) : NULL;
        struct http_text one = {list.data, comma ? (size_t)(comma - list.data) : list.size};
        if (!qualify(tenant, one, &key))
            return false;
        add_key(http, json, &key);
        if (!comma)
            return true;
        list = (struct http_text){comma + 1, list.size - one.size - 1};
    }
    return false;
}

static void page_batch_query_keys(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    const struct http_text *text = http_query(http_exchange_request(exchange), "keys");
    char tenant[MAX_TENANT_SIZE + 1];
    struct base_buf body;
    if (is_guarded(http, exchange) || !read_tenant(exchange, tenant))
        return;
    if (!text || text->size == 0) {
        base_buf_init(&body, 4096);
        int status = base_buf_printf(&body, "{\"success\":false,\"error\":\"No keys provided. Use "
                                            "?keys=key1,key2,...\"}\n");
        finish(exchange, 400, TYPE_JSON, status, &body);
        return;
    }
    struct admin_json_writer json = writer(&body);
    admin_json_open(&json, '{');
    admin_json_bool(&json, "success", true);
    admin_json_name(&json, "data");
    admin_json_open(&json, '{');
    bool good = add_keys(http, &json, tenant, *text);
    admin_json_raw(&json, "}}\n");
    if (good) {
        finish(exchange, 200, TYPE_JSON, json.status, &body);
        return;
    }
    base_buf_free(&body);
    fail_json(exchange, 400, UPSTREAM_INVALID_PARAMS,
              "keys: at most 4096, of 1 to 4096 bytes, with commas between them, escaped as %XX "
              "where need be");
}

/* As yolk ls: what is not printable as \xNN, so that a line is a key. */
static void add_line(void *self, const void *key, size_t size)
{
    struct admin_json_writer *out = self;
    const uint8_t *bytes = key;
    size_t skip = base_tenant_skip(key, size);
    for (size_t i = skip == SIZE_MAX ? 0 : skip; i < size; i++) {
        if (bytes[i] < ' ' || bytes[i] == 0x7f || bytes[i] == '\\')
            admin_json_raw(out, "\\x%02x", bytes[i]);
        else if (out->status == YOLK_OK)
            out->status = base_buf_append(out->out, bytes + i, 1);
    }
    admin_json_raw(out, "\n");
}

static enum yolk_status produce_keys(void *self, uint64_t *cursor, struct base_buf *piece,
                                     bool *more)
{
    const struct admin_http *http = self;
    struct admin_json_writer out = {.out = piece};
    *more = true;
    /* A turn of the loop is for the others too. */
    for (int i = 0; i < 4 && *more && piece->size < HTTP_PIECE && out.status == YOLK_OK; i++)
        *more = master_view_keys(server_core(http->server), cursor, add_line, &out);
    return out.status;
}

static void page_all_keys(void *self, struct http_exchange *exchange)
{
    if (!is_guarded(self, exchange))
        http_answer_pieces(exchange, produce_keys);
}

/* ---- segments ---- */

static void add_segment_name(void *self, const struct master_segment_view *segment)
{
    struct admin_json_writer *out = self;
    if (!segment->disk)
        admin_json_raw(out, "%s\n", segment->name);
}

static void page_all_segments(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    struct base_buf body;
    struct admin_json_writer out = writer(&body);
    master_view_segments(server_core(http->server), add_segment_name, &out);
    finish(exchange, 200, NULL, out.status, &body);
}

static int status_of(const struct master_segment_view *segment)
{
    if (segment->draining)
        return SEGMENT_GRACEFULLY_UNMOUNTING;
    return segment->open ? SEGMENT_OK : SEGMENT_UNDEFINED;
}

static const char *status_name(int status)
{
    return status == SEGMENT_OK                      ? "OK"
           : status == SEGMENT_GRACEFULLY_UNMOUNTING ? "GRACEFULLY_UNMOUNTING"
                                                     : "UNDEFINED";
}

struct details {
    struct admin_json_writer json;
    uint64_t count;
};

static void add_detail(void *self, const struct master_segment_view *segment)
{
    struct details *details = self;
    struct admin_json_writer *json = &details->json;
    struct master_replica_view at = {.name = segment->name, .endpoints = segment->endpoints};
    char text[64];
    admin_json_raw(json, details->count++ ? "," : "");
    admin_json_open(json, '{');
    admin_json_text(json, "segment_name", segment->name);
    snprintf(text, sizeof(text), "%" PRIu64 "-%" PRIu64, segment->id >> 32,
             segment->id & UINT32_MAX);
    admin_json_text(json, "segment_id", text);
    snprintf(text, sizeof(text), "%" PRIu64 "-%" PRIu64, base_load_u64(segment->client_id),
             base_load_u64(segment->client_id + 8));
    admin_json_text(json, "client_id", text);
    admin_json_text(json, "base_address", "0x0");
    admin_json_number(json, "size_bytes", segment->size);
    snprintf(text, sizeof(text), "%g GiB", (double)segment->size / (double)GIB);
    admin_json_text(json, "size_human", text);
    const char *tcp = strstr(at.endpoints, "tcp=");
    size_t size = tcp ? strcspn(tcp + 4, ";, \n") : 0;
    admin_json_name(json, "te_endpoint");
    admin_json_string(json, tcp ? tcp + 4 : at.name, tcp ? size : strlen(at.name));
    admin_json_text(json, "protocol", segment->disk ? "file" : "tcp");
    admin_json_text(json, "status", status_name(status_of(segment)));
    admin_json_number(json, "allocator_used_bytes", segment->used_bytes);
    admin_json_number(json, "allocator_capacity_bytes", segment->size);
    admin_json_name(json, "allocator_usage_percent");
    admin_json_raw(json, "%.4f",
                   segment->size ? 100.0 * (double)segment->used_bytes / (double)segment->size
                                 : 0.0);
    admin_json_close(json, '}');
}

static void count_segment(void *self, const struct master_segment_view *segment)
{
    (void)segment;
    ++*(uint64_t *)self;
}

static void page_segments_detail(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    struct base_buf body;
    struct details details = {.json = writer(&body)};
    uint64_t total = 0;
    master_view_segments(server_core(http->server), count_segment, &total);
    admin_json_open(&details.json, '{');
    admin_json_number(&details.json, "total_segments", total);
    admin_json_name(&details.json, "segments");
    admin_json_open(&details.json, '[');
    master_view_segments(server_core(http->server), add_detail, &details);
    admin_json_raw(&details.json, "]}\n");
    finish(exchange, 200, TYPE_JSON, details.json.status, &body);
}

/* All memory that one process mounted under its name. */
struct named {
    char name[MAX_NAME_SIZE + 1];
    size_t found;
    uint64_t used, size;
    int status;
};

static void add_named(void *self, const struct master_segment_view *segment)
{
    struct named *named = self;
    if (segment->disk || strcmp(segment->name, named->name) != 0)
        return;
    named->found++;
    named->used += segment->used_bytes;
    named->size += segment->size;
    named->status = status_of(segment);
}

/* False after answering. */
static bool find_named(const struct admin_http *http, struct http_exchange *exchange,
                       struct named *named)
{
    const struct http_text *text = http_query(http_exchange_request(exchange), "segment");
    size_t size = 0;
    *named = (struct named){.found = 0};
    if (!text || !http_unescape(*text, (uint8_t *)named->name, sizeof(named->name) - 1, &size) ||
        size == 0 || strlen(named->name) != size) {
        fail_json(exchange, 400, UPSTREAM_INVALID_PARAMS, "Missing segment query parameter");
        return false;
    }
    master_view_segments(server_core(http->server), add_named, named);
    if (named->found == 0)
        fail_json(exchange, 404, UPSTREAM_SEGMENT_NOT_FOUND, "SEGMENT_NOT_FOUND");
    return named->found > 0;
}

static void page_query_segment(void *self, struct http_exchange *exchange)
{
    struct named named;
    struct base_buf body;
    if (!find_named(self, exchange, &named))
        return;
    base_buf_init(&body, 4096);
    int status =
        base_buf_printf(&body, "%s\nUsed(bytes): %" PRIu64 "\nCapacity(bytes) : %" PRIu64 "\n",
                        named.name, named.used, named.size);
    finish(exchange, 200, NULL, status, &body);
}

static void page_segment_status(void *self, struct http_exchange *exchange)
{
    struct named named;
    struct base_buf body;
    if (!find_named(self, exchange, &named))
        return;
    struct admin_json_writer json = writer(&body);
    admin_json_open(&json, '{');
    admin_json_bool(&json, "success", true);
    admin_json_text(&json, "segment", named.name);
    admin_json_number(&json, "status", (uint64_t)named.status);
    admin_json_text(&json, "status_name", status_name(named.status));
    admin_json_number(&json, "error_code", 0);
    admin_json_text(&json, "error_message", "");
    admin_json_raw(&json, "}\n");
    finish(exchange, 200, TYPE_JSON, json.status, &body);
}

/* ---- what changes something ---- */

static bool is_true(const struct http_text *text)
{
    return text && ((text->size == 4 && memcmp(text->data, "true", 4) == 0) ||
                    (text->size == 1 && text->data[0] == '1'));
}

static void page_remove_all(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    const struct http_request *request = http_exchange_request(exchange);
    const struct http_text *tenant = http_query(request, "tenant_id");
    if (is_guarded(http, exchange))
        return;
    if (tenant && tenant->size > 0 &&
        !(tenant->size == 7 && memcmp(tenant->data, "default", 7) == 0)) {
        fail_json(exchange, 501, UPSTREAM_NOT_SUPPORTED,
                  "tenant_id: only that of all, or default, can be emptied here");
        return;
    }
    bool force = is_true(http_query(request, "force"));
    uint64_t number = http_exchange_defer(exchange, REMOVE_ALL_MS);
    if (server_remove_all(http->server, force, number) != YOLK_OK)
        fail_json(exchange, 503, UPSTREAM_INTERNAL_ERROR, yolk_last_error());
}

static void removed(void *self, uint64_t request, enum yolk_status status, uint64_t count)
{
    struct admin_http *http = self;
    struct http_exchange *exchange = http_exchange_find(http->http, request);
    struct base_buf body;
    if (!exchange)
        return; /* it did not wait */
    if (status != YOLK_OK) {
        fail_json(exchange, 500, UPSTREAM_INTERNAL_ERROR, yolk_strerror(status));
        return;
    }
    struct admin_json_writer json = writer(&body);
    admin_json_open(&json, '{');
    admin_json_bool(&json, "success", true);
    admin_json_number(&json, "removed_count", count);
    admin_json_raw(&json, "}\n");
    finish(exchange, 200, TYPE_JSON, json.status, &body);
}

static void page_drain_jobs(void *self, struct http_exchange *exchange)
{
    (void)self;
    fail_json(exchange, 501, UPSTREAM_NOT_SUPPORTED,
              "there are no drain jobs: end the node with SIGTERM, it drains (--drain-grace)");
}

static void page_tenant_quotas(void *self, struct http_exchange *exchange)
{
    (void)self;
    fail_json(exchange, 501, UPSTREAM_NOT_SUPPORTED,
              "quotas cannot be looked at or changed here: they are the master's setting tenants");
}

const struct http_page admin_http_pages[] = {
    {"/metrics", HTTP_GET, page_metrics, "Prometheus text; Mooncake's names beside ours"},
    {"/metrics/summary", HTTP_GET, page_summary, "one line for people"},
    {"/health", HTTP_GET, page_health, "JSON: status, role, ha_state, service_ready, figures"},
    {"/role", HTTP_GET, page_role, "leader"},
    {"/ha_status", HTTP_GET, page_ha_status, "serving"},
    {"/leader", HTTP_GET, page_leader, "JSON: present is false, there is no election"},
    {"/kv_events/status", HTTP_GET, page_kv_events, "JSON: enabled is false"},
    {"/get_all_segments", HTTP_GET, page_all_segments, "names of memory segments, one a line"},
    {"/get_segments_detail", HTTP_GET, page_segments_detail, "JSON of each segment, disks too"},
    {"/query_segment", HTTP_GET, page_query_segment, "?segment=NAME: bytes used and in all"},
    {"/query_key", HTTP_GET, page_query_key,
     "?key=KEY: where its copies in memory lie; grants a lease as exist does"},
    {"/batch_query_keys", HTTP_GET, page_batch_query_keys,
     "?keys=A,B: the same of up to 4096 keys, without leases"},
    {"/get_all_keys", HTTP_GET, page_all_keys, "every key, one a line, in no order"},
    {"/api/v1/segments/status", HTTP_GET, page_segment_status, "?segment=NAME: OK or draining"},
    {"/api/v1/remove_all", HTTP_POST, page_remove_all, "?force=true: removes every object"},
    {"/api/v1/tenant_quotas", HTTP_GET | HTTP_PUT | HTTP_DELETE, page_tenant_quotas,
     "501 with the reason"},
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
    enum yolk_status status = http_server_create(loop, &pages, &http->http);
    if (status != YOLK_OK) {
        free(http);
        return status;
    }
    server_set_removed(server, removed, http);
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
