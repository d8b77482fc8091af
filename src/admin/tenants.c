/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of tenants. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "admin/pages.h"
#include "base/error.h"
#include "base/tenant.h"

static void add_tenant(struct base_json_writer *json, const struct master_tenant_info *info)
{
    bool limited = info->quota_bytes != UINT64_MAX && info->quota_bytes != 0;
    uint64_t quota = limited ? info->quota_bytes : 0;
    base_json_open(json, '{');
    base_json_text(json, "tenant_id", info->name);
    base_json_number(json, "requested_quota_bytes", quota);
    base_json_number(json, "effective_quota_bytes", quota);
    base_json_number(json, "charged_bytes", info->used_bytes);
    base_json_bool(json, "admission_closed", limited && info->used_bytes >= quota);
    base_json_bool(json, "over_quota", limited && info->used_bytes > quota);
    base_json_bool(json, "has_explicit_policy", limited && info->registered);
    base_json_number(json, "object_count", info->objects);
    base_json_number(json, "rejects", info->rejects);
    base_json_number(json, "evicted_bytes", info->evicted_bytes);
    base_json_close(json, '}');
}

static bool find(struct admin_http *http, const char *name, struct master_tenant_info *info)
{
    for (uint32_t i = 0; master_tenant_at(server_core(http->server), i, info); i++)
        if (strcmp(info->name, name) == 0 && (info->registered || info->objects > 0))
            return true;
    return false;
}

static void answer_one(struct admin_http *http, struct http_exchange *exchange, const char *name)
{
    struct master_tenant_info info;
    struct base_buf body;
    if (!find(http, name, &info)) {
        admin_fail(exchange, 404, UPSTREAM_TENANT_NOT_REGISTERED, "TENANT_NOT_REGISTERED");
        return;
    }
    struct base_json_writer json = admin_json_start(&body);
    base_json_open(&json, '{');
    base_json_bool(&json, "success", true);
    base_json_name(&json, "data");
    add_tenant(&json, &info);
    base_json_raw(&json, "}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
}

static void answer_all(struct admin_http *http, struct http_exchange *exchange)
{
    struct master_tenant_info info;
    struct base_buf body;
    struct base_json_writer json = admin_json_start(&body);
    bool first = true;
    base_json_open(&json, '{');
    base_json_bool(&json, "success", true);
    base_json_name(&json, "data");
    base_json_raw(&json, "[");
    for (uint32_t i = 0; master_tenant_at(server_core(http->server), i, &info); i++) {
        if (!info.registered && info.objects == 0)
            continue;
        base_json_raw(&json, first ? "" : ",");
        first = false;
        add_tenant(&json, &info);
    }
    base_json_raw(&json, "]}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
}

static void skip_space(struct http_text *text)
{
    while (text->size > 0 &&
           (text->data[0] == ' ' || (text->data[0] >= '\t' && text->data[0] <= '\r'))) {
        text->data++;
        text->size--;
    }
}

static bool skip_word(struct http_text *text, const char *word)
{
    size_t size = strlen(word);
    skip_space(text);
    if (text->size < size || memcmp(text->data, word, size) != 0)
        return false;
    text->data += size;
    text->size -= size;
    return true;
}

/* {"requested_quota_bytes":N}; 0: it is not that. */
static uint64_t read_quota(struct http_text body)
{
    uint64_t quota = 0;
    if (!skip_word(&body, "{") || !skip_word(&body, "\"requested_quota_bytes\"") ||
        !skip_word(&body, ":"))
        return 0;
    skip_space(&body);
    for (; body.size > 0 && body.data[0] >= '0' && body.data[0] <= '9'; body.data++, body.size--) {
        if (quota > UINT64_MAX / 16)
            return 0;
        quota = quota * 10 + (uint64_t)(body.data[0] - '0');
    }
    bool closed = skip_word(&body, "}");
    skip_space(&body);
    return closed && body.size == 0 ? quota : 0;
}

static void refuse(struct http_exchange *exchange, enum yolk_status status)
{
    bool missing = status == YOLK_ERR_NOT_FOUND, busy = status == YOLK_ERR_BUSY;
    admin_fail(exchange,
               missing ? 404
               : busy  ? 409
                       : 400,
               missing ? UPSTREAM_TENANT_NOT_REGISTERED
               : busy  ? UPSTREAM_TENANT_NOT_EMPTY
                       : UPSTREAM_INVALID_PARAMS,
               yolk_last_error());
}

static void answer_done(struct http_exchange *exchange)
{
    struct base_buf body;
    struct base_json_writer json = admin_json_start(&body);
    base_json_raw(&json, "{\"success\":true}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
}

void admin_page_tenant_quotas(void *self, struct http_exchange *exchange)
{
    struct admin_http *http = self;
    const struct http_request *request = http_exchange_request(exchange);
    char tenant[MAX_TENANT_SIZE + 1];
    bool named = http_query(request, "tenant_id") != NULL;
    if (admin_is_guarded(http, exchange) || !admin_read_tenant(exchange, tenant))
        return;
    if (request->method == HTTP_GET || request->method == HTTP_HEAD) {
        if (named)
            answer_one(http, exchange, tenant);
        else
            answer_all(http, exchange);
        return;
    }
    if (!named) {
        admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS, "give ?tenant_id=NAME");
        return;
    }
    uint64_t quota = request->method == HTTP_PUT ? read_quota(request->body) : 1;
    if (quota == 0) {
        admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS,
                   "the body must be {\"requested_quota_bytes\":N}, with N of at least 1");
        return;
    }
    enum yolk_status status = request->method == HTTP_PUT
                                  ? master_tenant_set(server_core(http->server), tenant, quota)
                                  : master_tenant_remove(server_core(http->server), tenant);
    if (status != YOLK_OK)
        refuse(exchange, status);
    else if (request->method == HTTP_PUT)
        answer_one(http, exchange, tenant);
    else
        answer_done(exchange);
}
