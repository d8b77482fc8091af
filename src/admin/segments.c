/* SPDX-License-Identifier: Apache-2.0 */
/* Pages about segments. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "admin/pages.h"
#include "base/limits.h"
#include "master/view.h"

/* Of Mooncake's SegmentStatus. */
enum { SEGMENT_UNDEFINED = 0, SEGMENT_OK = 1, SEGMENT_GRACEFULLY_UNMOUNTING = 4 };

static void add_segment_name(void *self, const struct master_segment_view *segment)
{
    struct base_json_writer *out = self;
    if (!segment->disk)
        base_json_raw(out, "%s\n", segment->name);
}

void admin_page_all_segments(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    struct base_buf body;
    struct base_json_writer out = admin_json_start(&body);
    master_view_segments(server_core(http->server), add_segment_name, &out);
    admin_finish(exchange, 200, NULL, out.status, &body);
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
    struct base_json_writer json;
    uint64_t count;
};

static void add_detail(void *self, const struct master_segment_view *segment)
{
    struct details *details = self;
    struct base_json_writer *json = &details->json;
    struct master_replica_view at = {.name = segment->name, .endpoints = segment->endpoints};
    char text[64];
    base_json_raw(json, details->count++ ? "," : "");
    base_json_open(json, '{');
    base_json_text(json, "segment_name", segment->name);
    snprintf(text, sizeof(text), "%" PRIu64 "-%" PRIu64, segment->id >> 32,
             segment->id & UINT32_MAX);
    base_json_text(json, "segment_id", text);
    snprintf(text, sizeof(text), "%" PRIu64 "-%" PRIu64, base_load_u64(segment->client_id),
             base_load_u64(segment->client_id + 8));
    base_json_text(json, "client_id", text);
    base_json_text(json, "base_address", "0x0");
    base_json_number(json, "size_bytes", segment->size);
    snprintf(text, sizeof(text), "%g GiB", (double)segment->size / (double)GIB);
    base_json_text(json, "size_human", text);
    const char *tcp = strstr(at.endpoints, "tcp=");
    size_t size = tcp ? strcspn(tcp + 4, ";, \n") : 0;
    base_json_name(json, "te_endpoint");
    base_json_string(json, tcp ? tcp + 4 : at.name, tcp ? size : strlen(at.name));
    base_json_text(json, "protocol", admin_protocol(segment->medium));
    base_json_text(json, "status", status_name(status_of(segment)));
    base_json_number(json, "allocator_used_bytes", segment->used_bytes);
    base_json_number(json, "allocator_capacity_bytes", segment->size);
    base_json_number(json, "keys", segment->live_count);
    base_json_number(json, "readable_bytes", segment->live_bytes);
    base_json_name(json, "allocator_usage_percent");
    base_json_raw(json, "%.4f",
                  segment->size ? 100.0 * (double)segment->used_bytes / (double)segment->size
                                : 0.0);
    base_json_close(json, '}');
}

static void count_segment(void *self, const struct master_segment_view *segment)
{
    (void)segment;
    ++*(uint64_t *)self;
}

void admin_page_segments_detail(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    struct base_buf body;
    struct details details = {.json = admin_json_start(&body)};
    uint64_t total = 0;
    master_view_segments(server_core(http->server), count_segment, &total);
    base_json_open(&details.json, '{');
    base_json_number(&details.json, "total_segments", total);
    base_json_name(&details.json, "segments");
    base_json_open(&details.json, '[');
    master_view_segments(server_core(http->server), add_detail, &details);
    base_json_raw(&details.json, "]}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, details.json.status, &body);
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
        admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS, "Missing segment query parameter");
        return false;
    }
    master_view_segments(server_core(http->server), add_named, named);
    if (named->found == 0)
        admin_fail(exchange, 404, UPSTREAM_SEGMENT_NOT_FOUND, "SEGMENT_NOT_FOUND");
    return named->found > 0;
}

void admin_page_query_segment(void *self, struct http_exchange *exchange)
{
    struct named named;
    struct base_buf body;
    if (!find_named(self, exchange, &named))
        return;
    base_buf_init(&body, 4096);
    int status =
        base_buf_printf(&body, "%s\nUsed(bytes): %" PRIu64 "\nCapacity(bytes) : %" PRIu64 "\n",
                        named.name, named.used, named.size);
    admin_finish(exchange, 200, NULL, status, &body);
}

void admin_page_segment_status(void *self, struct http_exchange *exchange)
{
    struct named named;
    struct base_buf body;
    if (!find_named(self, exchange, &named))
        return;
    struct base_json_writer json = admin_json_start(&body);
    base_json_open(&json, '{');
    base_json_bool(&json, "success", true);
    base_json_text(&json, "segment", named.name);
    base_json_number(&json, "status", (uint64_t)named.status);
    base_json_text(&json, "status_name", status_name(named.status));
    base_json_number(&json, "error_code", 0);
    base_json_text(&json, "error_message", "");
    base_json_raw(&json, "}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
}
