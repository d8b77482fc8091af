/* SPDX-License-Identifier: Apache-2.0 */
/* Pages about objects. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "admin/pages.h"
#include "base/error.h"
#include "base/tenant.h"
#include "master/view.h"
#include "platform/clock.h"

#define KEYS_MAX      4096u  /* of one question */
#define REMOVE_ALL_MS 60000u /* how long a removal of everything is waited for */

/* "host:port" of the endpoints text "shm=...;tcp=host:port;...", else the segment's name. */
static void add_endpoint(struct base_json_writer *json, const struct master_replica_view *replica)
{
    const char *at = strstr(replica->endpoints, "tcp=");
    size_t size = at ? strcspn(at + 4, ";, \n") : 0;
    base_json_name(json, "transport_endpoint_");
    if (size > 0)
        base_json_string(json, at + 4, size);
    else
        base_json_string(json, replica->name, strlen(replica->name));
}

static void add_id(struct base_json_writer *json, const char *name, const uint8_t id[16])
{
    char text[33];
    for (size_t i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
    base_json_text(json, name, text);
}

/* The six fields of the descriptor. */
static void add_gds(struct base_json_writer *json, const struct master_key_view *view,
                    const struct master_replica_view *replica)
{
    add_id(json, "owner_client_id", replica->client_id);
    add_id(json, "storage_id", replica->storage_id);
    base_json_number(json, "storage_generation", replica->storage_generation);
    base_json_number(json, "value_offset", replica->offset);
    base_json_number(json, "value_size", view->size);
    base_json_number(json, "allocated_size", replica->allocated);
}

static void add_replicas(struct base_json_writer *json, const struct master_key_view *view,
                         enum wire_medium medium)
{
    bool first = true;
    base_json_raw(json, "[");
    for (uint32_t i = 0; i < view->count; i++) {
        const struct master_replica_view *replica = &view->replicas[i];
        if (replica->medium != medium)
            continue;
        base_json_raw(json, first ? "" : ",");
        first = false;
        base_json_open(json, '{');
        if (medium == WIRE_MEDIUM_GDS)
            add_gds(json, view, replica);
        base_json_number(json, "size_", view->size);
        base_json_number(json, "buffer_address_", replica->offset);
        base_json_text(json, "protocol_", admin_protocol(medium));
        add_endpoint(json, replica);
        base_json_close(json, '}');
    }
    base_json_raw(json, "]");
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

void admin_page_query_key(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    const struct http_text *text = http_query(http_exchange_request(exchange), "key");
    struct index_key key;
    char tenant[MAX_TENANT_SIZE + 1];
    struct master_key_view view;
    struct base_buf body;
    if (admin_is_guarded(http, exchange) || !admin_read_tenant(exchange, tenant))
        return;
    if (!text || !qualify(tenant, *text, &key)) {
        admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS,
                   "give ?key=KEY of 1 to 4096 bytes, escaped as %XX where need be");
        return;
    }
    master_view_key(server_core(http->server), clock_real_now_ns(), key.bytes, key.size, true,
                    &view);
    if (view.status != YOLK_OK) {
        admin_fail(exchange, 404, error_of(view.status), error_name(view.status));
        return;
    }
    struct base_json_writer json = admin_json_start(&body);
    base_json_open(&json, '{');
    base_json_bool(&json, "success", true);
    base_json_name(&json, "data");
    add_replicas(&json, &view, WIRE_MEDIUM_MEMORY);
    base_json_raw(&json, "}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
}

static void add_key(const struct admin_http *http, struct base_json_writer *json,
                    const struct index_key *key)
{
    struct master_key_view view;
    size_t skip = base_tenant_skip(key->bytes, key->size);
    master_view_key(server_core(http->server), clock_real_now_ns(), key->bytes, key->size, false,
                    &view);
    base_json_raw(json, json->comma ? "," : "");
    base_json_string(json, key->bytes + skip, key->size - skip);
    base_json_raw(json, ":");
    base_json_open(json, '{');
    base_json_bool(json, "ok", view.status == YOLK_OK);
    if (view.status != YOLK_OK) {
        base_json_text(json, "error", error_name(view.status));
    } else {
        base_json_name(json, "values");
        add_replicas(json, &view, WIRE_MEDIUM_MEMORY);
        base_json_name(json, "local_disk_values");
        add_replicas(json, &view, WIRE_MEDIUM_LOCAL_DISK);
        base_json_name(json, "gds_values");
        add_replicas(json, &view, WIRE_MEDIUM_GDS);
    }
    base_json_close(json, '}');
}

/* Each key once. False: one is no key, or there are too many. */
static bool add_keys(const struct admin_http *http, struct base_json_writer *json,
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

void admin_page_batch_query_keys(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    const struct http_text *text = http_query(http_exchange_request(exchange), "keys");
    char tenant[MAX_TENANT_SIZE + 1];
    struct base_buf body;
    if (admin_is_guarded(http, exchange) || !admin_read_tenant(exchange, tenant))
        return;
    if (!text || text->size == 0) {
        base_buf_init(&body, 4096);
        int status = base_buf_printf(&body, "{\"success\":false,\"error\":\"No keys provided. Use "
                                            "?keys=key1,key2,...\"}\n");
        admin_finish(exchange, 400, ADMIN_TYPE_JSON, status, &body);
        return;
    }
    struct base_json_writer json = admin_json_start(&body);
    base_json_open(&json, '{');
    base_json_bool(&json, "success", true);
    base_json_name(&json, "data");
    base_json_open(&json, '{');
    bool good = add_keys(http, &json, tenant, *text);
    base_json_raw(&json, "}}\n");
    if (good) {
        admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
        return;
    }
    base_buf_free(&body);
    admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS,
               "keys: at most 4096, of 1 to 4096 bytes, with commas between them, escaped as %XX "
               "where need be");
}

/* As yolk ls: what is not printable as \xNN, so that a line is a key. */
static void add_line(void *self, const void *key, size_t size)
{
    struct base_json_writer *out = self;
    const uint8_t *bytes = key;
    size_t skip = base_tenant_skip(key, size);
    for (size_t i = skip == SIZE_MAX ? 0 : skip; i < size; i++) {
        if (bytes[i] < ' ' || bytes[i] == 0x7f || bytes[i] == '\\')
            base_json_raw(out, "\\x%02x", bytes[i]);
        else if (out->status == YOLK_OK)
            out->status = base_buf_append(out->out, bytes + i, 1);
    }
    base_json_raw(out, "\n");
}

static enum yolk_status produce_keys(void *self, uint64_t *cursor, struct base_buf *piece,
                                     bool *more)
{
    const struct admin_http *http = self;
    struct base_json_writer out = {.out = piece};
    *more = true;
    /* A turn of the loop is for the others too. */
    for (int i = 0; i < 4 && *more && piece->size < HTTP_PIECE && out.status == YOLK_OK; i++)
        *more = master_view_keys(server_core(http->server), cursor, add_line, &out);
    return out.status;
}

void admin_page_all_keys(void *self, struct http_exchange *exchange)
{
    if (!admin_is_guarded(self, exchange))
        http_answer_pieces(exchange, produce_keys);
}

/* ---- what changes something ---- */

/* false after answering what is neither. */
static bool read_flag(struct http_exchange *exchange, const char *name, bool *value)
{
    static const char *const words[] = {"false", "0", "true", "1"};
    const struct http_text *text = http_query(http_exchange_request(exchange), name);
    char said[64];
    *value = false;
    for (size_t i = 0; text && i < sizeof(words) / sizeof(words[0]); i++) {
        *value = i >= 2;
        if (text->size == strlen(words[i]) && memcmp(text->data, words[i], text->size) == 0)
            return true;
    }
    if (!text)
        return true;
    snprintf(said, sizeof(said), "%s must be true or false", name);
    admin_fail(exchange, 400, UPSTREAM_INVALID_PARAMS, said);
    return false;
}

void admin_page_remove_all(void *self, struct http_exchange *exchange)
{
    const struct admin_http *http = self;
    const struct http_request *request = http_exchange_request(exchange);
    const struct http_text *text = http_query(request, "tenant_id");
    char tenant[MAX_TENANT_SIZE + 1];
    bool force;
    if (admin_is_guarded(http, exchange) || !admin_read_tenant(exchange, tenant) ||
        !read_flag(exchange, "force", &force))
        return;
    uint64_t number = http_exchange_defer(exchange, REMOVE_ALL_MS);
    /* "tenant_id=" is the default tenant, as on the other pages, and not all of them. */
    if (server_remove_all(http->server, text ? tenant : NULL, force, number) != YOLK_OK)
        admin_fail(exchange, 503, UPSTREAM_INTERNAL_ERROR, yolk_last_error());
}

void admin_removed(void *self, uint64_t request, enum yolk_status status, uint64_t count)
{
    struct admin_http *http = self;
    struct http_exchange *exchange = http_exchange_find(http->http, request);
    struct base_buf body;
    if (!exchange)
        return; /* it did not wait */
    if (status != YOLK_OK) {
        admin_fail(exchange, 500, UPSTREAM_INTERNAL_ERROR, yolk_strerror(status));
        return;
    }
    struct base_json_writer json = admin_json_start(&body);
    base_json_open(&json, '{');
    base_json_bool(&json, "success", true);
    base_json_number(&json, "removed_count", count);
    base_json_raw(&json, "}\n");
    admin_finish(exchange, 200, ADMIN_TYPE_JSON, json.status, &body);
}
