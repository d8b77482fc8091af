/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that move values: put and get. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "store/internal.h"
#include "store/message.h"

int store_enter(struct yolk_store *store)
{
    if (store == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "no store");
    if (store->pid != getpid())
        return base_fail(YOLK_ERR_FORKED, 0,
                         "the store was opened by process %ld: open one in this process",
                         (long)store->pid);
    mutex_lock(&store->lock);
    int closing = store->closing;
    if (!closing)
        store->calls++;
    mutex_unlock(&store->lock);
    return closing ? base_fail(YOLK_ERR_CLOSED, 0, "the store is closed") : YOLK_OK;
}

void store_leave(struct yolk_store *store)
{
    mutex_lock(&store->lock);
    if (--store->calls == 0)
        condition_broadcast(&store->idle);
    mutex_unlock(&store->lock);
}

uint64_t store_deadline(const struct yolk_store *store)
{
    return clock_after_ms(clock_real_now_ns(), store->options.timeout_ms);
}

int store_fail_all(struct yolk_kv *kvs, size_t count, int status)
{
    for (size_t i = 0; kvs != NULL && i < count; i++)
        kvs[i].result = status;
    return status;
}

static const char *hint(int status)
{
    switch (status) {
    case YOLK_ERR_NO_SPACE:
        return ": no segment has room that could be made free in time; add nodes, or larger "
               "segments, or put less at once";
    case YOLK_ERR_BUFFER_SMALL:
        return ": the value is larger than the memory given";
    case YOLK_ERR_INVALID:
        return ": keys have 1 to 4096 bytes (with what names a tenant in them), slices are not "
               "NULL, and their sizes add up in 64 "
               "bits";
    case YOLK_ERR_QUOTA:
        return ", and nothing of it could be evicted in time: leased, pinned or being written";
    case YOLK_ERR_PIN_LIMIT:
        return ": the master's setting hard_pin_ratio limits them";
    case YOLK_ERR_TOO_LARGE:
        return ": a value has at most 1 TiB and lies in one segment, as a whole, and so in a GDS "
               "file that is not optional";
    default:
        return "";
    }
}

int store_batch_status(const struct yolk_kv *kvs, size_t count, const struct store_reason *reason)
{
    size_t failed = 0;
    int first = YOLK_OK;
    for (size_t i = 0; i < count; i++) {
        if (kvs[i].result >= 0)
            continue;
        if (failed++ == 0)
            first = (int)kvs[i].result;
    }
    if (failed == 0)
        return YOLK_OK;
    bool known = reason != NULL && reason->status == first && reason->text[0] != '\0';
    const char *why = known ? reason->text : "", *colon = known ? ": " : "";
    const char *help = known && first == YOLK_ERR_INVALID ? "" : hint(first);
    if (count == 1)
        return base_fail(first, 0, "%s%s%s%s", yolk_strerror(first), help, colon, why);
    return base_fail(first, 0, "%zu of %zu keys failed, the first with %s%s%s%s", failed, count,
                     yolk_strerror(first), help, colon, why);
}

/* The machine's view of a batch. What is not valid gets an empty key, which the machine refuses. */
static struct store_item *items_of(const struct yolk_kv *kvs, size_t count, bool get)
{
    struct store_item *items = calloc(count == 0 ? 1 : count, sizeof(*items));
    if (items == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const struct yolk_kv *kv = &kvs[i];
        int valid = kv->key != NULL && kv->key_size <= MAX_KEY_SIZE &&
                    (kv->slices != NULL || kv->slice_count == 0);
        items[i].result = YOLK_ERR_INVALID;
        for (size_t j = 0; valid && j < kv->slice_count; j++) {
            uint64_t size = kv->slices[j].size;
            valid = (size == 0 || kv->slices[j].ptr != NULL) &&
                    (get || kv->slices[j].ptr != YOLK_SKIP) && size <= UINT64_MAX - items[i].size;
            items[i].size += size;
        }
        items[i].key = valid ? kv->key : NULL;
        items[i].key_size = valid ? (uint32_t)kv->key_size : 0;
    }
    return items;
}

void yolk_put_options_init(struct yolk_put_options *options)
{
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
    options->soft_pin_ttl_ms = YOLK_SOFT_PIN_TTL_DEFAULT;
}

static int check_preferred(const struct yolk_put_options *options)
{
    if (options->preferred_segment_count > YOLK_PREFERRED_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "a put prefers at most %d segments, not %zu",
                         YOLK_PREFERRED_MAX, options->preferred_segment_count);
    if (options->preferred_segment_count > 0 && options->preferred_segments == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "preferred_segments is NULL");
    for (size_t i = 0; i < options->preferred_segment_count; i++) {
        const char *name = options->preferred_segments[i];
        size_t size = name == NULL ? 0 : strlen(name);
        if (size == 0 || size > MAX_NAME_SIZE)
            return base_fail(YOLK_ERR_INVALID, 0,
                             "the name of preferred segment %zu has %zu bytes: must be 1 to %u", i,
                             size, MAX_NAME_SIZE);
    }
    return YOLK_OK;
}

static int check_put(const struct yolk_put_options *options, size_t count)
{
    if (options->struct_size != sizeof(*options))
        return base_fail(YOLK_ERR_INVALID, 0,
                         "put options are of %zu bytes, this library's are of %zu: call "
                         "yolk_put_options_init, or rebuild",
                         options->struct_size, sizeof(*options));
    if (options->replica_num > STORE_PUT_REPLICAS_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "a put makes 1 to %d copies, not %u",
                         STORE_PUT_REPLICAS_MAX, options->replica_num);
    if (options->soft_pin < YOLK_SOFT_PIN_PRESERVE || options->soft_pin > YOLK_SOFT_PIN_CLEAR)
        return base_fail(YOLK_ERR_INVALID, 0, "soft_pin is %d: must be 0, 1 or 2",
                         (int)options->soft_pin);
    for (size_t i = 0; options->group_ids != NULL && i < count; i++)
        if (options->group_ids[i] != NULL && strlen(options->group_ids[i]) > YOLK_GROUP_ID_MAX)
            return base_fail(YOLK_ERR_INVALID, 0, "the group id of key %zu has more than %d bytes",
                             i, YOLK_GROUP_ID_MAX);
    return check_preferred(options);
}

static struct store_put_how how_of(const struct yolk_store *store,
                                   const struct yolk_put_options *options, uint32_t flags,
                                   const struct store_reserver *gds)
{
    if (options->hard_pin)
        flags |= WIRE_PUT_HARD_PIN;
    if (options->same_segment)
        flags |= WIRE_PUT_SAME_SEGMENT;
    return (struct store_put_how){
        .replica_num =
            options->replica_num == 0 ? store->options.replica_num : options->replica_num,
        .flags = flags,
        .soft_pin = (uint32_t)options->soft_pin,
        .soft_pin_ttl_ms = options->soft_pin_ttl_ms,
        .preferred = options->preferred_segments,
        .preferred_count = options->preferred_segment_count,
        .groups = options->group_ids,
        .gds = store->gds == NULL ? NULL : gds,
        .gds_optional = store->options.gds_optional,
    };
}

/* An older master would skip what it does not know, and say that all is well. */
static int check_features(struct yolk_store *store, const struct store_put_how *how)
{
    int needed =
        how->flags != 0 || how->soft_pin != 0 || how->preferred_count > 0 || how->groups != NULL;
    return !needed || (store_client_features(store->client) & WIRE_FEATURE_PUT_OPTIONS)
               ? YOLK_OK
               : base_fail(YOLK_ERR_UNSUPPORTED, 0,
                           "the master at %s is too old for upserts, pins, groups and preferred "
                           "segments",
                           store->master);
}

/* What the master refused a whole message for, it has said. */
static int put_status(const struct yolk_kv *kvs, size_t count, const struct store_reason *reason)
{
    char said[MAX_LAST_ERROR];
    (void)snprintf(said, sizeof(said), "%s", yolk_last_error());
    int status = store_batch_status(kvs, count, reason);
    return status == YOLK_ERR_INVALID && said[0] != '\0' ? base_fail(status, 0, "%s", said)
                                                         : status;
}

static int run_put(struct yolk_store *store, struct yolk_kv *kvs, struct store_item *items,
                   size_t count, const struct store_put_how *how, struct store_reason *reason)
{
    base_error_clear();
    struct store_put *put = NULL;
    uint64_t deadline_ns = store_deadline(store);
    uint64_t space_ns = clock_after_ms(clock_real_now_ns(), store->options.put_wait_ms);
    int status = store_put_create(store->holds, &store->tuning, items, count, how, space_ns,
                                  deadline_ns, &put);
    if (status != YOLK_OK)
        return status;
    struct store_mover_context context = {store->engine, store->client,     store->segments,
                                          store->gds,    &store->leftovers, reason};
    store_mover_put(&context, put, kvs);
    store_put_destroy(put);
    return YOLK_OK;
}

static int put_values(struct yolk_store *store, struct yolk_kv *kvs, size_t count,
                      const struct yolk_put_options *options, uint32_t flags)
{
    struct yolk_put_options usual;
    if (options == NULL) {
        yolk_put_options_init(&usual);
        options = &usual;
    }
    if (kvs == NULL && count > 0)
        return base_fail(YOLK_ERR_INVALID, 0, "put without keys");
    int status = check_put(options, count);
    if (status == YOLK_OK)
        status = store_enter(store);
    if (status != YOLK_OK)
        return store_fail_all(kvs, count, status);
    struct store_reserver gds = {.self = NULL};
    if (store->gds != NULL)
        gds = store_gds_reserver(store->gds);
    struct store_put_how how = how_of(store, options, flags, &gds);
    struct store_reason reason = {.status = YOLK_OK};
    struct store_item *items = items_of(kvs, count, false);
    uint8_t *arena = NULL;
    status = items == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu keys", count)
                           : store_qualify(store, items, count, &arena);
    if (status == YOLK_OK)
        status = check_features(store, &how);
    if (status == YOLK_OK)
        status = run_put(store, kvs, items, count, &how, &reason);
    if (status == YOLK_OK) {
        for (size_t i = 0; i < count; i++)
            kvs[i].result = items[i].result;
        status = put_status(kvs, count, &reason);
    } else {
        store_fail_all(kvs, count, status);
    }
    free(arena);
    free(items);
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_put_replicas(struct yolk_store *store, struct yolk_kv *kvs,
                                         size_t count, uint32_t replica_num)
{
    struct yolk_put_options options;
    yolk_put_options_init(&options);
    options.replica_num = replica_num;
    if (replica_num == 0)
        return store_fail_all(kvs, count,
                              base_fail(YOLK_ERR_INVALID, 0, "a put makes 1 to %d copies, not 0",
                                        STORE_PUT_REPLICAS_MAX));
    return put_values(store, kvs, count, &options, 0);
}

enum yolk_status yolk_store_put(struct yolk_store *store, struct yolk_kv *kvs, size_t count)
{
    return put_values(store, kvs, count, NULL, 0);
}

enum yolk_status yolk_store_put_with(struct yolk_store *store, struct yolk_kv *kvs, size_t count,
                                     const struct yolk_put_options *options)
{
    return put_values(store, kvs, count, options, 0);
}

enum yolk_status yolk_store_upsert(struct yolk_store *store, struct yolk_kv *kvs, size_t count,
                                   const struct yolk_put_options *options)
{
    return put_values(store, kvs, count, options, WIRE_PUT_UPSERT);
}

enum yolk_status yolk_store_get(struct yolk_store *store, struct yolk_kv *kvs, size_t count)
{
    if (kvs == NULL && count > 0)
        return base_fail(YOLK_ERR_INVALID, 0, "get without keys");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return store_fail_all(kvs, count, status);
    struct store_item *items = items_of(kvs, count, true);
    struct store_get *get = NULL;
    struct store_reason reason = {.status = YOLK_OK};
    struct store_replica_choice choice = store_segments_choice(store->segments);
    uint8_t *arena = NULL;
    status = items == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu keys", count)
                           : store_qualify(store, items, count, &arena);
    if (status == YOLK_OK)
        status = store_get_create(store->holds, &store->tuning, &choice, items, count,
                                  store_deadline(store), &get);
    if (status == YOLK_OK) {
        struct store_mover_context context = {store->engine, store->client,     store->segments,
                                              store->gds,    &store->leftovers, &reason};
        store_mover_get(&context, get, kvs);
        store_get_destroy(get);
        for (size_t i = 0; i < count; i++) {
            kvs[i].result = items[i].result;
            kvs[i].medium = (int32_t)items[i].medium;
        }
        status = store_batch_status(kvs, count, &reason);
    } else {
        store_fail_all(kvs, count, status);
    }
    free(arena);
    free(items);
    store_leave(store);
    return status;
}
