/* SPDX-License-Identifier: Apache-2.0 */
/* Names in etcd, through the JSON gateway of its version 3: put, range and deleterange of one key.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/http.h"
#include "peer/metadata_kinds.h"

enum { PORT_DEFAULT = 2379, MEMBERS_MAX = 8, KEY_MAX = 512, BODY_MAX = 16 * 1024 };

struct member {
    struct net_address address;
    char host[NET_ADDRESS_TEXT_MAX];
};
struct etcd_metadata {
    struct metadata metadata;
    size_t count;
    struct member members[MEMBERS_MAX];
};

static enum yolk_status add_member(struct etcd_metadata *made, const char *text, size_t size)
{
    if (made->count == MEMBERS_MAX || size == 0 || size >= sizeof(made->members[0].host))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "metadata service etcd: must be etcd://host:port[,host:port…], at most %d",
                         MEMBERS_MAX);
    struct member *member = &made->members[made->count++];
    snprintf(member->host, sizeof(member->host), "%.*s", (int)size, text);
    return net_address_parse(member->host, PORT_DEFAULT, &member->address);
}

static enum yolk_status etcd_open(const char *address, struct metadata **out)
{
    struct etcd_metadata *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a metadata service");
    enum yolk_status status = YOLK_OK;
    const char *at = address;
    do {
        size_t size = strcspn(at, ",");
        status = add_member(made, at, size);
        at += size + (at[size] == ',');
    } while (status == YOLK_OK && *at != '\0');
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->metadata.ops = &metadata_etcd_ops;
    *out = &made->metadata;
    return YOLK_OK;
}

static void etcd_close(struct metadata *metadata)
{
    free(metadata);
}

/* "name":"base64", appended. */
static enum yolk_status append_field(struct base_buf *out, const char *name, const char *value)
{
    size_t size = strlen(value);
    size_t room = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);
    char *text = malloc(room);
    if (text == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a metadata call");
    sodium_bin2base64(text, room, (const unsigned char *)value, size,
                      sodium_base64_VARIANT_ORIGINAL);
    enum yolk_status status = base_buf_printf(out, "\"%s\":\"%s\"", name, text);
    free(text);
    return status;
}

/* Asks one member after the other until one answers. */
static enum yolk_status ask(struct metadata *metadata, const char *what,
                            const struct base_buf *body, uint64_t deadline_ns,
                            struct base_buf *answer)
{
    struct etcd_metadata *mine = (struct etcd_metadata *)metadata;
    enum yolk_status status = YOLK_OK;
    int code = 0;
    for (size_t i = 0; i < mine->count; i++) {
        const struct http_request request = {
            .method = "POST",
            .host = mine->members[i].host,
            .path = what,
            .type = "application/json",
            .body = body->data,
            .body_size = body->size,
        };
        status = http_call(&mine->members[i].address, &request, deadline_ns, &code, answer);
        if (status == YOLK_OK && code / 100 == 2)
            return YOLK_OK;
        if (status == YOLK_OK)
            status = base_fail(YOLK_ERR_REFUSED, 0, "it answered %d", code);
    }
    return base_fail_context(metadata_blame(status), "metadata service etcd://%s",
                             mine->members[mine->count - 1].host);
}

static enum yolk_status call(struct metadata *metadata, const char *what, const char *key,
                             const char *value, uint64_t deadline_ns, struct base_buf *answer)
{
    struct base_buf body;
    base_buf_init(&body, BODY_MAX);
    enum yolk_status status = base_buf_append(&body, "{", 1);
    if (status == YOLK_OK)
        status = append_field(&body, "key", key);
    if (status == YOLK_OK && value != NULL)
        status = base_buf_append(&body, ",", 1);
    if (status == YOLK_OK && value != NULL)
        status = append_field(&body, "value", value);
    if (status == YOLK_OK)
        status = base_buf_append(&body, "}", 1);
    if (status == YOLK_OK)
        status = ask(metadata, what, &body, deadline_ns, answer);
    base_buf_free(&body);
    return status;
}

static enum yolk_status etcd_put(struct metadata *metadata, const char *key, const char *value,
                                 uint64_t deadline_ns)
{
    struct base_buf answer;
    base_buf_init(&answer, BODY_MAX);
    enum yolk_status status = call(metadata, "/v3/kv/put", key, value, deadline_ns, &answer);
    base_buf_free(&answer);
    return status;
}

/* The text of the first "value" of an answer; NULL: none. Base64 holds no quote, and a range of one
 * key has one value. */
static const char *value_of(const struct base_buf *answer, size_t *size)
{
    static const char name[] = "\"value\":";
    const char *at = memmem(answer->data, answer->size, name, sizeof(name) - 1);
    const char *end = (const char *)answer->data + answer->size;
    if (at == NULL)
        return NULL;
    at += sizeof(name) - 1;
    while (at < end && *at == ' ')
        at++;
    if (at == end || *at++ != '"')
        return NULL;
    const char *quote = memchr(at, '"', (size_t)(end - at));
    *size = quote == NULL ? 0 : (size_t)(quote - at);
    return quote == NULL ? NULL : at;
}

static enum yolk_status etcd_get(struct metadata *metadata, const char *key, char *value,
                                 size_t size, uint64_t deadline_ns)
{
    struct base_buf answer;
    base_buf_init(&answer, BODY_MAX);
    enum yolk_status status = call(metadata, "/v3/kv/range", key, NULL, deadline_ns, &answer);
    size_t text_size = 0, value_size = 0;
    const char *text = status == YOLK_OK ? value_of(&answer, &text_size) : NULL;
    if (status == YOLK_OK && text == NULL)
        status = base_fail(YOLK_ERR_NOT_FOUND, 0, "%s is not there", key);
    else if (status == YOLK_OK &&
             sodium_base642bin((unsigned char *)value, size - 1, text, text_size, NULL, &value_size,
                               NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
        status =
            base_fail(YOLK_ERR_PROTOCOL, 0, "%s has no value of at most %zu bytes", key, size - 1);
    if (status == YOLK_OK)
        value[value_size] = '\0';
    base_buf_free(&answer);
    return status;
}

static enum yolk_status etcd_remove(struct metadata *metadata, const char *key,
                                    uint64_t deadline_ns)
{
    struct base_buf answer;
    base_buf_init(&answer, BODY_MAX);
    enum yolk_status status = call(metadata, "/v3/kv/deleterange", key, NULL, deadline_ns, &answer);
    base_buf_free(&answer);
    return status;
}

const struct metadata_ops metadata_etcd_ops = {
    .scheme = "etcd",
    .open = etcd_open,
    .close = etcd_close,
    .put = etcd_put,
    .get = etcd_get,
    .remove = etcd_remove,
};
