/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on values. */
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

static uint64_t deadline_of(const struct yolk_store *store)
{
    return clock_after_ms(clock_real_now_ns(), store->options.timeout_ms);
}

/* Sets every result, for failures of the call as a whole. */
static int fail_all(struct yolk_kv *kvs, size_t count, int status)
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
        return ": a value has at most 1 TiB and lies in one segment, as a whole";
    default:
        return "";
    }
}

/* The status a batch returns, with a text that says how many failed. */
static int batch_status(const struct yolk_kv *kvs, size_t count)
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
    if (count == 1)
        return base_fail(first, 0, "%s%s", yolk_strerror(first), hint(first));
    return base_fail(first, 0, "%zu of %zu keys failed, the first with %s%s", failed, count,
                     yolk_strerror(first), hint(first));
}

/* The machine's view of a batch. What is not valid gets an empty key, which the machine refuses. */
static struct store_item *items_of(const struct yolk_kv *kvs, size_t count)
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
            valid = (size == 0 || kv->slices[j].ptr != NULL) && size <= UINT64_MAX - items[i].size;
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
                                   const struct yolk_put_options *options, uint32_t flags)
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
static int put_status(const struct yolk_kv *kvs, size_t count)
{
    char said[MAX_LAST_ERROR];
    (void)snprintf(said, sizeof(said), "%s", yolk_last_error());
    int status = batch_status(kvs, count);
    return status == YOLK_ERR_INVALID && said[0] != '\0' ? base_fail(status, 0, "%s", said)
                                                         : status;
}

static int run_put(struct yolk_store *store, struct yolk_kv *kvs, struct store_item *items,
                   size_t count, const struct store_put_how *how)
{
    base_error_clear();
    struct store_put *put = NULL;
    uint64_t deadline_ns = deadline_of(store);
    uint64_t space_ns = clock_after_ms(clock_real_now_ns(), store->options.put_wait_ms);
    int status = store_put_create(store->holds, &store->tuning, items, count, how, space_ns,
                                  deadline_ns, &put);
    if (status != YOLK_OK)
        return status;
    struct store_mover_context context = {store->engine, store->client, store->segments};
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
        return fail_all(kvs, count, status);
    struct store_put_how how = how_of(store, options, flags);
    struct store_item *items = items_of(kvs, count);
    uint8_t *arena = NULL;
    status = items == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu keys", count)
                           : store_qualify(store, items, count, &arena);
    if (status == YOLK_OK)
        status = check_features(store, &how);
    if (status == YOLK_OK)
        status = run_put(store, kvs, items, count, &how);
    if (status == YOLK_OK) {
        for (size_t i = 0; i < count; i++)
            kvs[i].result = items[i].result;
        status = put_status(kvs, count);
    } else {
        fail_all(kvs, count, status);
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
        return fail_all(kvs, count,
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
        return fail_all(kvs, count, status);
    struct store_item *items = items_of(kvs, count);
    struct store_get *get = NULL;
    struct store_replica_choice choice = store_segments_choice(store->segments);
    uint8_t *arena = NULL;
    status = items == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu keys", count)
                           : store_qualify(store, items, count, &arena);
    if (status == YOLK_OK)
        status = store_get_create(store->holds, &store->tuning, &choice, items, count,
                                  deadline_of(store), &get);
    if (status == YOLK_OK) {
        struct store_mover_context context = {store->engine, store->client, store->segments};
        store_mover_get(&context, get, kvs);
        store_get_destroy(get);
        for (size_t i = 0; i < count; i++) {
            kvs[i].result = items[i].result;
            kvs[i].medium = (int32_t)items[i].medium;
        }
        status = batch_status(kvs, count);
    } else {
        fail_all(kvs, count, status);
    }
    free(arena);
    free(items);
    store_leave(store);
    return status;
}

/* ---- calls that move no data ---- */

/* One message, tried again on another connection (or session) until the deadline. `encode` builds
 * it anew for each try, because the session may be another one. */
struct question {
    uint16_t kind;
    uint64_t op;
    const struct store_item *items;
    size_t count;
    uint32_t force;
};

static int try_question(struct yolk_store *store, const struct question *question,
                        struct store_message *message, struct base_buf *reply, uint64_t deadline_ns,
                        struct wire_view *results)
{
    struct store_stamp stamp;
    uint16_t kind = 0;
    store_holds_stamp(store->holds, &stamp);
    if (stamp.session == 0)
        return base_fail(YOLK_ERR_LINK, 0, "no session with the master at %s", store->master);
    int status = store_message_keys(message, question->kind, &stamp, question->op, question->items,
                                    NULL, question->count, question->force);
    if (status == YOLK_OK)
        status = store_client_call(store->client, question->kind, message->body.data,
                                   message->body.size, deadline_ns, &kind, reply);
    uint16_t wanted = (uint16_t)(question->kind + 1);
    if (status == YOLK_OK)
        status = store_message_refused(wanted, kind, reply->data, reply->size);
    if (status != YOLK_OK)
        return status;
    store_holds_acknowledge(store->holds, &stamp);
    return store_message_results(wanted, reply->data, reply->size, (uint32_t)question->count,
                                 results);
}

/* 1: worth another try before the deadline. */
static int may_retry(int status, uint64_t deadline_ns)
{
    enum yolk_scope scope = yolk_status_scope(status);
    int transient = store_status_is_session(status) || scope == YOLK_SCOPE_LINK ||
                    status == YOLK_ERR_TIMEOUT || status == YOLK_ERR_PEER_DEAD;
    if (!transient || clock_real_now_ns() >= deadline_ns)
        return 0;
    usleep(2000); /* the control thread is getting a session */
    return 1;
}

/* 1: at the last try nobody listened there. */
static int master_is_gone(struct yolk_store *store, int status)
{
    return status == YOLK_ERR_REFUSED ||
           (status == YOLK_ERR_LINK && store_control_connect_status(store) == YOLK_ERR_REFUSED);
}

static uint64_t try_deadline(const struct yolk_store *store, uint64_t deadline_ns)
{
    uint64_t latest = clock_real_now_ns() + store->tuning.reply_timeout_ns;
    return latest < deadline_ns ? latest : deadline_ns;
}

/* Asks about all keys in messages of bounded size; result(i) = what the master said. Of an `urgent`
 * question a refused connection is the answer: nobody is there to wait for. */
static int ask_keys(struct yolk_store *store, uint16_t kind, struct yolk_kv *kvs, size_t count,
                    uint32_t force, uint64_t deadline_ns, int urgent)
{
    struct store_message message;
    struct base_buf reply;
    struct store_item *items = calloc(count == 0 ? 1 : count, sizeof(*items));
    uint32_t *places = calloc(count == 0 ? 1 : count, sizeof(*places));
    int status = YOLK_OK;
    size_t valid = 0;
    uint8_t *arena = NULL;

    store_message_init(&message);
    base_buf_init(&reply, MAX_FRAME_BODY);
    if (items == NULL || places == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu keys", count);
    for (size_t i = 0; i < count && status == YOLK_OK; i++) {
        kvs[i].result = YOLK_ERR_INVALID;
        if (kvs[i].key == NULL || kvs[i].key_size == 0 || kvs[i].key_size > MAX_KEY_SIZE)
            continue;
        items[valid].key = kvs[i].key;
        items[valid].key_size = (uint32_t)kvs[i].key_size;
        places[valid++] = (uint32_t)i;
    }
    if (status == YOLK_OK)
        status = store_qualify(store, items, valid, &arena);
    for (size_t from = 0; from < valid && status == YOLK_OK;) {
        size_t to = from;
        uint64_t bytes = 0;
        while (to < valid && to - from < MAX_BATCH_KEYS &&
               (to == from || bytes + items[to].key_size <= store->tuning.window_key_bytes))
            bytes += items[to++].key_size;
        struct question question = {kind, 0, items + from, to - from, force};
        struct wire_view results;
        do {
            status = try_question(store, &question, &message, &reply,
                                  try_deadline(store, deadline_ns), &results);
        } while (status != YOLK_OK && !(urgent && master_is_gone(store, status)) &&
                 may_retry(status, deadline_ns));
        for (size_t i = from; i < to && status == YOLK_OK; i++)
            kvs[places[i]].result = wire_i32s_at(results, (uint32_t)(i - from));
        from = to;
    }
    if (status != YOLK_OK)
        fail_all(kvs, count, status);
    base_buf_free(&reply);
    store_message_free(&message);
    free(arena);
    free(items);
    free(places);
    return status;
}

static int exist(struct yolk_store *store, struct yolk_kv *kvs, size_t count, uint64_t timeout_ms,
                 int urgent)
{
    if (kvs == NULL && count > 0)
        return base_fail(YOLK_ERR_INVALID, 0, "exist without keys");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return fail_all(kvs, count, status);
    status = ask_keys(store, WIRE_EXIST, kvs, count, 0,
                      clock_after_ms(clock_real_now_ns(), timeout_ms), urgent);
    for (size_t i = 0; i < count && status == YOLK_OK; i++) {
        if (kvs[i].result == YOLK_OK)
            kvs[i].result = 1;
        else if (kvs[i].result == YOLK_ERR_NOT_FOUND)
            kvs[i].result = 0;
    }
    if (status == YOLK_OK)
        status = batch_status(kvs, count);
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_exist(struct yolk_store *store, struct yolk_kv *kvs, size_t count)
{
    return exist(store, kvs, count, store == NULL ? 0 : store->options.timeout_ms, 0);
}

enum yolk_status yolk_store_exist_within(struct yolk_store *store, struct yolk_kv *kvs,
                                         size_t count, uint64_t timeout_ms)
{
    return exist(store, kvs, count, timeout_ms, 1);
}

enum yolk_status yolk_store_remove(struct yolk_store *store, struct yolk_kv *kvs, size_t count,
                                   int force)
{
    if (kvs == NULL && count > 0)
        return base_fail(YOLK_ERR_INVALID, 0, "remove without keys");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return fail_all(kvs, count, status);
    status = ask_keys(store, WIRE_REMOVE, kvs, count, force != 0, deadline_of(store), 0);
    if (status == YOLK_OK)
        status = batch_status(kvs, count);
    store_leave(store);
    return status;
}

int store_ask(struct yolk_store *store, uint16_t kind, const void *message,
              const struct store_stamp *stamp, uint64_t deadline_ns, struct base_buf *reply,
              void *decoded)
{
    struct base_buf body;
    uint16_t answered = 0;
    if (stamp->session == 0)
        return base_fail(YOLK_ERR_LINK, 0, "no session with the master at %s", store->master);
    base_buf_init(&body, MAX_FRAME_BODY);
    int status = wire_encode(kind, message, &body);
    if (status == YOLK_OK)
        status = store_client_call(store->client, kind, body.data, body.size, deadline_ns,
                                   &answered, reply);
    base_buf_free(&body);
    uint16_t wanted = (uint16_t)(kind + 1);
    if (status == YOLK_OK)
        status = store_message_refused(wanted, answered, reply->data, reply->size);
    if (status == YOLK_OK)
        status = wire_decode(wanted, reply->data, reply->size, decoded);
    if (status != YOLK_OK)
        return status;
    store_holds_acknowledge(store->holds, stamp);
    /* Every answer begins with its status. */
    int32_t own = 0;
    memcpy(&own, decoded, sizeof(own));
    return own == YOLK_OK ? YOLK_OK
                          : base_fail(own, 0, "the master answered %s: %s", wire_kind_name(wanted),
                                      yolk_strerror(own));
}

enum yolk_status yolk_store_remove_all(struct yolk_store *store, int force, uint64_t *removed)
{
    struct base_buf reply;
    struct store_stamp stamp;
    struct wire_remove_all_reply answer;
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    uint64_t deadline_ns = deadline_of(store);
    uint64_t op =
        store_holds_begin(store->holds); /* a repeated message joins the first one's work */
    base_buf_init(&reply, MAX_FRAME_BODY);
    do {
        store_holds_stamp(store->holds, &stamp);
        struct wire_remove_all message = {
            .request = store_message_request(&stamp, op),
            .force = force != 0,
        };
        status = store_ask(store, WIRE_REMOVE_ALL, &message, &stamp, deadline_ns, &reply, &answer);
    } while (status != YOLK_OK && may_retry(status, deadline_ns));
    store_holds_finish(store->holds, op);
    if (status == YOLK_OK && removed != NULL)
        *removed = answer.count;
    base_buf_free(&reply);
    store_leave(store);
    return status;
}

static int visit_page(const struct wire_list_reply *page, yolk_store_visit visit, void *context,
                      int *stop)
{
    struct wire_keys keys;
    struct wire_view key;
    int status = wire_keys_open(page->keys, WIRE_KEYS_MAX, &keys);
    if (status == YOLK_OK && wire_u64s_count(page->sizes) != keys.count)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "the master's list has not one size a key");
    for (uint32_t i = 0; status == YOLK_OK && !*stop && wire_keys_next(&keys, &key); i++) {
        const void *own = key.data;
        size_t own_size = key.size;
        store_unqualify(&own, &own_size);
        *stop = visit(context, own, own_size, wire_u64s_at(page->sizes, i));
    }
    return status;
}

enum yolk_status yolk_store_list(struct yolk_store *store, yolk_store_visit visit, void *context)
{
    struct base_buf reply;
    struct store_stamp stamp;
    struct wire_list_reply page = {.cursor = 0};
    int stop = 0;
    if (visit == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "list without a function to call");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    base_buf_init(&reply, MAX_FRAME_BODY);
    do {
        uint64_t deadline_ns = deadline_of(store); /* of one page: the whole has no bound */
        uint64_t cursor = page.cursor;
        do {
            store_holds_stamp(store->holds, &stamp);
            struct wire_list message = {
                .request = store_message_request(&stamp, 0),
                .cursor = cursor,
                .limit = store->tuning.window_keys,
            };
            status = store_ask(store, WIRE_LIST, &message, &stamp, try_deadline(store, deadline_ns),
                               &reply, &page);
        } while (status != YOLK_OK && may_retry(status, deadline_ns));
        if (status == YOLK_OK)
            status = visit_page(&page, visit, context, &stop);
    } while (status == YOLK_OK && !stop && page.cursor != 0);
    base_buf_free(&reply);
    store_leave(store);
    return status;
}

static int ask_stat(struct yolk_store *store, uint32_t recount, struct base_buf *reply,
                    struct wire_stat_reply *answer)
{
    struct store_stamp stamp;
    uint64_t deadline_ns = deadline_of(store);
    int status;
    do {
        store_holds_stamp(store->holds, &stamp);
        struct wire_stat message = {
            .request = store_message_request(&stamp, 0),
            .recount = recount,
        };
        status = store_ask(store, WIRE_STAT, &message, &stamp, deadline_ns, reply, answer);
    } while (status != YOLK_OK && may_retry(status, deadline_ns));
    return status;
}

enum yolk_status yolk_store_stat(struct yolk_store *store, char **text)
{
    struct base_buf reply;
    struct wire_stat_reply answer;
    if (text == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "stat without a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    base_buf_init(&reply, MAX_FRAME_BODY);
    status = ask_stat(store, 0, &reply, &answer);
    if (status == YOLK_OK) {
        struct yolk_engine_stats engine = {0};
        struct base_buf lines;
        yolk_engine_stats(store->engine, &engine);
        base_buf_init(&lines, MAX_FRAME_BODY);
        status = base_buf_append(&lines, answer.text.data, answer.text.size);
        if (status == YOLK_OK)
            status = base_buf_printf(
                &lines,
                "client_live_operations %zu\nclient_bytes_read %llu\nclient_bytes_written %llu\n"
                "client_tasks_failed %llu\nclient_tasks_stuck %llu\n",
                store_holds_live_count(store->holds), (unsigned long long)engine.bytes_read,
                (unsigned long long)engine.bytes_written, (unsigned long long)engine.tasks_failed,
                (unsigned long long)engine.tasks_stuck);
        if (status == YOLK_OK)
            status = store_control_stat(store, &lines);
        char *copy = status == YOLK_OK ? strndup((const char *)lines.data, lines.size) : NULL;
        base_buf_free(&lines);
        if (copy == NULL)
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the figures");
        else
            *text = copy;
    }
    base_buf_free(&reply);
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_transfer_metrics(struct yolk_store *store, char **text)
{
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    status = yolk_engine_metrics(store->engine, text);
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_recount(struct yolk_store *store, uint64_t *differences)
{
    struct base_buf reply;
    struct wire_stat_reply answer;
    if (differences == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "recount without a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    base_buf_init(&reply, MAX_FRAME_BODY);
    status = ask_stat(store, 1, &reply, &answer);
    if (status == YOLK_OK)
        *differences = answer.differences;
    base_buf_free(&reply);
    store_leave(store);
    return status;
}
