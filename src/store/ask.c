/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that move no data: questions to the master. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "store/internal.h"
#include "store/message.h"

/* One message, tried again on another connection (or session) until the deadline. `encode` builds
 * it anew for each try, because the session may be another one. */
struct question {
    uint16_t kind;
    uint64_t op;
    const struct store_item *items;
    size_t count;
    uint32_t force;
    const char *segment; /* REPLICA_CLEAR */
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
    int status = question->kind == WIRE_REPLICA_CLEAR
                     ? store_message_replica_clear(message, &stamp, question->items,
                                                   question->count, question->segment)
                     : store_message_keys(message, question->kind, &stamp, question->op,
                                          question->items, NULL, question->count, question->force);
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
                    uint32_t force, const char *segment, uint64_t deadline_ns, int urgent)
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
        struct question question = {kind, 0, items + from, to - from, force, segment};
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
        store_fail_all(kvs, count, status);
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
        return store_fail_all(kvs, count, status);
    status = ask_keys(store, WIRE_EXIST, kvs, count, 0, NULL,
                      clock_after_ms(clock_real_now_ns(), timeout_ms), urgent);
    for (size_t i = 0; i < count && status == YOLK_OK; i++) {
        if (kvs[i].result == YOLK_OK)
            kvs[i].result = 1;
        else if (kvs[i].result == YOLK_ERR_NOT_FOUND)
            kvs[i].result = 0;
    }
    if (status == YOLK_OK)
        status = store_batch_status(kvs, count, NULL);
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
        return store_fail_all(kvs, count, status);
    status = ask_keys(store, WIRE_REMOVE, kvs, count, force != 0, NULL, store_deadline(store), 0);
    if (status == YOLK_OK)
        status = store_batch_status(kvs, count, NULL);
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_clear_replicas(struct yolk_store *store, struct yolk_kv *kvs,
                                           size_t count, const char *segment_name)
{
    const char *segment = segment_name == NULL ? "" : segment_name;
    if (kvs == NULL && count > 0)
        return base_fail(YOLK_ERR_INVALID, 0, "clear_replicas without keys");
    if (strlen(segment) > MAX_NAME_SIZE)
        return store_fail_all(kvs, count,
                              base_fail(YOLK_ERR_INVALID, 0,
                                        "segment_name has %zu bytes: must be at most %u",
                                        strlen(segment), MAX_NAME_SIZE));
    int status = store_enter(store);
    if (status != YOLK_OK)
        return store_fail_all(kvs, count, status);
    if (!(store_client_features(store->client) & WIRE_FEATURE_GDS))
        status = store_fail_all(kvs, count,
                                base_fail(YOLK_ERR_UNSUPPORTED, 0,
                                          "the master at %s is too old to clear replicas",
                                          store->master));
    else
        status =
            ask_keys(store, WIRE_REPLICA_CLEAR, kvs, count, 0, segment, store_deadline(store), 0);
    if (status == YOLK_OK)
        status = store_batch_status(kvs, count, NULL);
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
    uint64_t deadline_ns = store_deadline(store);
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

int store_visit_page(const struct wire_list_reply *page, yolk_store_visit visit, void *context,
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
        uint64_t deadline_ns = store_deadline(store); /* of one page: the whole has no bound */
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
            status = store_visit_page(&page, visit, context, &stop);
    } while (status == YOLK_OK && !stop && page.cursor != 0);
    base_buf_free(&reply);
    store_leave(store);
    return status;
}

static int ask_stat(struct yolk_store *store, uint32_t recount, struct base_buf *reply,
                    struct wire_stat_reply *answer)
{
    struct store_stamp stamp;
    uint64_t deadline_ns = store_deadline(store);
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
        if (status == YOLK_OK)
            status = store_egm_stat(store, &lines);
        char *copy = status == YOLK_OK ? strndup((const char *)lines.data, lines.size) : NULL;
        base_buf_free(&lines);
        if (copy != NULL)
            *text = copy;
        else if (status == YOLK_OK)
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the figures");
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
