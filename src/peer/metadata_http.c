/* SPDX-License-Identifier: Apache-2.0 */
/* Names at an HTTP service: GET, PUT and DELETE of PATH?key=KEY, as Mooncake's has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/http.h"
#include "peer/metadata_kinds.h"

enum { PORT_DEFAULT = 8080 };

struct http_metadata {
    struct metadata metadata;
    struct net_address address;
    char host[NET_ADDRESS_TEXT_MAX];
    char path[256];
};

static enum yolk_status http_open(const char *address, struct metadata **out)
{
    struct http_metadata *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a metadata service");
    size_t size = strcspn(address, "/");
    enum yolk_status status = YOLK_OK;
    if (size == 0 || size >= sizeof(made->host) || strlen(address + size) >= sizeof(made->path) ||
        strpbrk(address, " ?#\r\n") != NULL)
        status = base_fail(YOLK_ERR_CONFIG, 0,
                           "metadata service http://%s: must be http://host:port/path", address);
    if (status == YOLK_OK) {
        snprintf(made->host, sizeof(made->host), "%.*s", (int)size, address);
        snprintf(made->path, sizeof(made->path), "%s",
                 address[size] != '\0' ? address + size : "/metadata");
        status = net_address_parse(made->host, PORT_DEFAULT, &made->address);
    }
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->metadata.ops = &metadata_http_ops;
    *out = &made->metadata;
    return YOLK_OK;
}

static void http_close(struct metadata *metadata)
{
    free(metadata);
}

static enum yolk_status call(struct metadata *metadata, const char *method, const char *key,
                             const char *value, uint64_t deadline_ns, int *code,
                             struct base_buf *body)
{
    const struct http_metadata *mine = (const struct http_metadata *)metadata;
    struct base_buf path;
    base_buf_init(&path, 8192);
    enum yolk_status status = base_buf_printf(&path, "%s?key=", mine->path);
    if (status == YOLK_OK)
        status = http_escape(key, &path);
    if (status == YOLK_OK) {
        const struct http_request request = {
            .method = method,
            .host = mine->host,
            .path = (const char *)path.data,
            .type = "application/json",
            .body = value,
            .body_size = value != NULL ? strlen(value) : 0,
        };
        status = http_call(&mine->address, &request, deadline_ns, code, body);
    }
    base_buf_free(&path);
    if (status != YOLK_OK)
        return base_fail_context(metadata_blame(status), "metadata service http://%s%s", mine->host,
                                 mine->path);
    return YOLK_OK;
}

static enum yolk_status refused(const struct metadata *metadata, const char *method, int code)
{
    const struct http_metadata *mine = (const struct http_metadata *)metadata;
    return base_fail(YOLK_ERR_REFUSED, 0, "metadata service http://%s%s answered %d to %s",
                     mine->host, mine->path, code, method);
}

static enum yolk_status http_put(struct metadata *metadata, const char *key, const char *value,
                                 uint64_t deadline_ns)
{
    struct base_buf body;
    int code = 0;
    base_buf_init(&body, METADATA_VALUE_MAX);
    enum yolk_status status = call(metadata, "PUT", key, value, deadline_ns, &code, &body);
    base_buf_free(&body);
    return status == YOLK_OK && code / 100 != 2 ? refused(metadata, "PUT", code) : status;
}

static enum yolk_status http_get(struct metadata *metadata, const char *key, char *value,
                                 size_t size, uint64_t deadline_ns)
{
    struct base_buf body;
    int code = 0;
    base_buf_init(&body, METADATA_VALUE_MAX);
    enum yolk_status status = call(metadata, "GET", key, NULL, deadline_ns, &code, &body);
    if (status == YOLK_OK && code == 404)
        status = base_fail(YOLK_ERR_NOT_FOUND, 0, "%s is not there", key);
    else if (status == YOLK_OK && code / 100 != 2)
        status = refused(metadata, "GET", code);
    else if (status == YOLK_OK && body.size >= size)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "%s is of %zu bytes", key, body.size);
    if (status == YOLK_OK) {
        if (body.size > 0)
            memcpy(value, body.data, body.size);
        value[body.size] = '\0';
    }
    base_buf_free(&body);
    return status;
}

static enum yolk_status http_remove(struct metadata *metadata, const char *key,
                                    uint64_t deadline_ns)
{
    struct base_buf body;
    int code = 0;
    base_buf_init(&body, METADATA_VALUE_MAX);
    enum yolk_status status = call(metadata, "DELETE", key, NULL, deadline_ns, &code, &body);
    base_buf_free(&body);
    return status == YOLK_OK && code / 100 != 2 && code != 404 ? refused(metadata, "DELETE", code)
                                                               : status;
}

const struct metadata_ops metadata_http_ops = {
    .scheme = "http",
    .open = http_open,
    .close = http_close,
    .put = http_put,
    .get = http_get,
    .remove = http_remove,
};
