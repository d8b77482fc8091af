/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "platform/random.h"

#define BUCKETS 4096u

struct record {
    struct record *next;
    size_t key_size, value_size;
    uint8_t bytes[]; /* key, value */
};

struct admin_metadata {
    struct http_server *http;
    struct record *buckets[BUCKETS];
    uint64_t seed; /* strangers choose the keys */
    size_t count, total;
};

/* Where the pointer to the record is, or would be. */
static struct record **find(struct admin_metadata *metadata, const uint8_t *key, size_t size)
{
    uint64_t hash = base_hash64_seed(key, size, metadata->seed);
    struct record **at = &metadata->buckets[hash % BUCKETS];
    while (*at && ((*at)->key_size != size || memcmp((*at)->bytes, key, size) != 0))
        at = &(*at)->next;
    return at;
}

/* False after answering. */
static bool read_key(struct http_exchange *exchange, uint8_t *key, size_t *size)
{
    const struct http_text *text = http_query(http_exchange_request(exchange), "key");
    if (text && http_unescape(*text, key, METADATA_KEY_MAX, size) && *size > 0)
        return true;
    http_answer_text(exchange, 400,
                     "Give ?key=KEY of 1 to 4096 bytes, escaped as %XX where need "
                     "be.");
    return false;
}

static void forget(struct admin_metadata *metadata, struct record **at)
{
    struct record *gone = *at;
    metadata->count--;
    metadata->total -= gone->key_size + gone->value_size;
    *at = gone->next;
    free(gone);
}

static void get(struct http_exchange *exchange, const struct record *record)
{
    struct base_buf body;
    if (!record) {
        http_answer_text(exchange, 404, "metadata not found");
        return;
    }
    base_buf_init(&body, METADATA_VALUE_MAX);
    if (base_buf_append(&body, record->bytes + record->key_size, record->value_size) != YOLK_OK)
        http_answer_text(exchange, 500, "no memory");
    else
        http_answer(exchange, 200, "application/json", &body);
    base_buf_free(&body);
}

/* The address of a process ("rpc_meta") is not taken over by another one while it is there. */
static bool is_fixed(const uint8_t *key, size_t size)
{
    return memmem(key, size, "rpc_meta", 8) != NULL;
}

static void put(struct admin_metadata *metadata, struct http_exchange *exchange, const uint8_t *key,
                size_t size)
{
    const struct http_text body = http_exchange_request(exchange)->body;
    struct record **at = find(metadata, key, size), *old = *at;
    bool same = old && old->value_size == body.size &&
                (body.size == 0 || memcmp(old->bytes + size, body.data, body.size) == 0);
    if (old && is_fixed(key, size) && !same) {
        http_answer_text(exchange, 400, "Duplicate rpc_meta key not allowed");
        return;
    }
    size_t freed = old ? old->key_size + old->value_size : 0;
    if (metadata->total - freed + size + body.size > METADATA_TOTAL_MAX ||
        (!old && metadata->count == METADATA_COUNT_MAX)) {
        http_answer_text(exchange, 507, "There is no more room: 65536 keys and 64 MiB at most.");
        return;
    }
    struct record *record = base_malloc(sizeof(*record) + size + body.size);
    if (!record) {
        http_answer_text(exchange, 500, "no memory");
        return;
    }
    if (old)
        forget(metadata, at);
    *record = (struct record){.next = *at, .key_size = size, .value_size = body.size};
    memcpy(record->bytes, key, size);
    if (body.size > 0)
        memcpy(record->bytes + size, body.data, body.size);
    *at = record;
    metadata->count++;
    metadata->total += size + body.size;
    http_answer_text(exchange, 200, "metadata updated");
}

static void page_metadata(void *self, struct http_exchange *exchange)
{
    struct admin_metadata *metadata = self;
    uint8_t key[METADATA_KEY_MAX];
    size_t size = 0;
    if (!read_key(exchange, key, &size))
        return;
    struct record **at = find(metadata, key, size);
    switch (http_exchange_request(exchange)->method) {
    case HTTP_PUT:
        put(metadata, exchange, key, size);
        break;
    case HTTP_DELETE:
        if (!*at) {
            http_answer_text(exchange, 404, "metadata not found");
            break;
        }
        forget(metadata, at);
        http_answer_text(exchange, 200, "metadata deleted");
        break;
    default:
        get(exchange, *at);
    }
}

static void page_health(void *self, struct http_exchange *exchange)
{
    (void)self;
    http_answer_text(exchange, 200, "OK");
}

const struct http_page admin_metadata_pages[] = {
    {"/metadata", HTTP_GET | HTTP_PUT | HTTP_DELETE, page_metadata,
     "?key=KEY: 404 if there is none; another value for an rpc_meta key is 400"},
    {"/health", HTTP_GET, page_health, "OK"},
};
const size_t admin_metadata_page_count =
    sizeof(admin_metadata_pages) / sizeof(admin_metadata_pages[0]);

enum yolk_status admin_metadata_create(struct loop *loop, const struct net_address *address,
                                       struct admin_metadata **out)
{
    struct admin_metadata *metadata = base_calloc(1, sizeof(*metadata));
    if (!metadata)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the metadata server");
    struct random random = random_real();
    metadata->seed = random_u64(&random);
    const struct http_server_options options = {.address = *address,
                                                .pages = admin_metadata_pages,
                                                .page_count = admin_metadata_page_count,
                                                .self = metadata,
                                                .body_max = METADATA_VALUE_MAX};
    enum yolk_status status = http_server_create(loop, &options, &metadata->http);
    if (status != YOLK_OK) {
        free(metadata);
        return status;
    }
    *out = metadata;
    return YOLK_OK;
}

void admin_metadata_destroy(struct admin_metadata *metadata)
{
    if (!metadata)
        return;
    http_server_destroy(metadata->http);
    for (size_t i = 0; i < BUCKETS; i++)
        while (metadata->buckets[i])
            forget(metadata, &metadata->buckets[i]);
    free(metadata);
}

const struct net_address *admin_metadata_address(const struct admin_metadata *metadata)
{
    return http_server_address(metadata->http);
}
