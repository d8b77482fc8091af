/* SPDX-License-Identifier: Apache-2.0 */
/* Puts: space for a key, then END makes it visible or REVOKE gives it back. A put is named by
 * (session, op, key). */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/mutation.h"
#include "master/state.h"
#include "wire/ticket.h"

#include <stdlib.h>
#include <string.h>

enum { PUTS_LISTED = 8 }; /* so many of an op are found without a table */

static void table_add(struct master_op *op, struct master_put *put)
{
    struct master_put **at = &op->put_table[put->hash % op->put_buckets];
    put->hash_next = *at;
    *at = put;
}

/* Behind the others; without memory for a larger table they are only found more slowly. */
static void put_link(struct master_op *op, struct master_put *put)
{
    base_list_push_back(&op->puts, &put->op_link);
    op->put_count++;
    uint32_t buckets = op->put_count <= PUTS_LISTED       ? 0
                       : op->put_count <= op->put_buckets ? op->put_buckets
                                                          : op->put_count * 4;
    struct master_put **table =
        buckets > op->put_buckets ? base_calloc(buckets, sizeof(struct master_put *)) : NULL;
    if (table == NULL) {
        if (op->put_table != NULL)
            table_add(op, put);
        return;
    }
    free(op->put_table);
    op->put_table = table;
    op->put_buckets = buckets;
    BASE_LIST_FOREACH(node, &op->puts)
    table_add(op, BASE_CONTAINER(node, struct master_put, op_link));
}

static void put_unlink(struct master_put *put)
{
    struct master_op *op = put->op;
    if (op->put_cursor == &put->op_link)
        op->put_cursor = put->op_link.next;
    base_list_remove(&put->op_link);
    op->put_count--;
    if (op->put_table == NULL)
        return;
    struct master_put **at = &op->put_table[put->hash % op->put_buckets];
    while (*at != put)
        at = &(*at)->hash_next;
    *at = put->hash_next;
}

static bool put_is_of(const struct master_put *put, const struct master_key *key)
{
    return put->hash == key->hash && put->key_size == key->bytes.size &&
           memcmp(put->key, key->bytes.data, key->bytes.size) == 0;
}

static struct master_put *put_find(struct master_op *op, const struct master_key *key)
{
    /* Later messages name the keys in the order of the first one. */
    struct base_list *start = op->put_cursor == &op->puts ? op->puts.next : op->put_cursor;
    struct master_put *found = NULL;
    if (start == &op->puts)
        return NULL;
    struct master_put *likely = BASE_CONTAINER(start, struct master_put, op_link);
    if (put_is_of(likely, key)) {
        found = likely;
    } else if (op->put_table != NULL) {
        found = op->put_table[key->hash % op->put_buckets];
        while (found != NULL && !put_is_of(found, key))
            found = found->hash_next;
    } else {
        BASE_LIST_FOREACH(node, &op->puts)
        {
            struct master_put *put = BASE_CONTAINER(node, struct master_put, op_link);
            if (put_is_of(put, key))
                found = put;
        }
    }
    if (found != NULL)
        op->put_cursor = found->op_link.next;
    return found;
}

void master_put_free(struct master_core *core, struct master_put *put)
{
    (void)core;
    put_unlink(put);
    base_list_remove(&put->time_link);
    free(put->replaced);
    free(put);
}

static void writer_done(struct master_core *core, struct master_put *put)
{
    while (put->extent_count > 0)
        master_extent_writer_done(core, put->extents[put->extent_count - 1]);
}

void master_put_expire(struct master_core *core, struct master_put *put)
{
    if (put->state != PUT_OPEN)
        return;
    put->state = PUT_EXPIRED;
    if (put->object != NULL)
        master_object_drop(core, put->object, GHOST_EXPIRED);
    put->deadline = core->now;
    base_list_remove(&put->time_link);
    if (put->extent_count > 0)
        base_list_push_front(&core->expired_puts, &put->time_link);
}

void master_put_cancel(struct master_core *core, struct master_put *put)
{
    if (put->state == PUT_OPEN) {
        put->state = PUT_REVOKED;
        if (put->object != NULL)
            master_object_drop(core, put->object, GHOST_NONE);
    }
    base_list_remove(&put->time_link);
    writer_done(core, put);
}

static void push_expired(struct master_core *core, struct master_put *put)
{
    struct wire_view key = wire_view_of(put->key, put->key_size);
    struct wire_put_expired msg = {.op = put->op->op};
    base_buf_clear(&core->list[2]);
    if (wire_keys_build(&core->list[2], &key, 1) != YOLK_OK)
        return;
    msg.keys = wire_view_buf(&core->list[2]);
    master_send(core, put->op->session->connection, 0, WIRE_PUT_EXPIRED, &msg);
}

void master_puts_tick(struct master_core *core)
{
    struct base_list *node;
    while ((node = base_list_first(&core->open_puts)) != NULL) {
        struct master_put *put = BASE_CONTAINER(node, struct master_put, time_link);
        if (put->deadline > core->now)
            break;
        core->stats.put_timeouts++;
        master_put_expire(core, put);
    }
    for (uint32_t n = 0; n < core->config.step; n++) {
        node = base_list_first(&core->expired_puts);
        if (node == NULL)
            break;
        struct master_put *put = BASE_CONTAINER(node, struct master_put, time_link);
        if (put->deadline > core->now)
            break;
        /* Asked again until the client answers; a zombie's space waits for the fence instead. */
        put->deadline = core->now + master_ms(core->config.resend_ms);
        base_list_remove(node);
        if (put->extent_count == 0)
            continue;
        base_list_push_back(&core->expired_puts, node);
        if (put->op->session->connected && !put->op->session->zombie)
            push_expired(core, put);
    }
}

static struct wire_result answer_again(struct master_core *core, struct master_put *put)
{
    struct wire_result result = {.first = wire_replica_count(wire_view_buf(&core->list[1])),
                                 .size = put->size};
    if (put->state != PUT_OPEN) {
        result.status = put->state == PUT_COMMITTED ? YOLK_ERR_EXISTS
                        : put->state == PUT_REVOKED ? YOLK_ERR_CANCELED
                                                    : YOLK_ERR_TIMEOUT;
        return result;
    }
    for (uint32_t i = 0; i < put->extent_count; i++) {
        struct master_extent *extent = put->extents[i];
        struct master_segment *segment = extent->segment;
        struct wire_replica replica = {.segment = segment->id,
                                       .offset = master_extent_offset(extent),
                                       .medium = segment->medium};
        uint8_t ticket[WIRE_TICKET_SIZE] = {0};
        if (!master_segment_is_disk(segment))
            wire_ticket_mac(segment->ticket_key, segment->id, replica.offset, put->size,
                            put->op->session->id, put->op->op, ticket);
        result.status = wire_replica_append(&core->list[1], &replica);
        if (result.status == YOLK_OK)
            result.status = wire_ticket_append(&core->list[2], ticket);
        if (result.status != YOLK_OK)
            return result;
        result.replica_count++;
    }
    return result;
}

static bool may_pend(const struct master_core *core, const struct master_session *session,
                     uint64_t size)
{
    uint64_t limit =
        core->config.max_pending_bytes ? core->config.max_pending_bytes : core->open_capacity / 2;
    return session->pending_bytes == 0 || session->pending_bytes + size <= limit;
}

/* Space on `want` segments, or on as many as there are; none leaves the put without extents. */
static void take_space(struct master_core *core, struct master_put *put, uint32_t want,
                       struct master_wish *wish)
{
    while (put->extent_count < want && may_pend(core, put->op->session, put->size)) {
        wish->over_quota = !master_tenant_room(core, put->object, put->size, wish->credit);
        if (wish->over_quota)
            return;
        struct master_extent *extent =
            master_place(core, put->size, put->extents, put->extent_count, wish);
        if (extent == NULL)
            return;
        extent->put = put;
        master_extent_attach(core, extent, put->object);
        put->extents[put->extent_count++] = extent;
        put->op->session->pending_bytes += master_extent_size(extent);
    }
}

/* One PUT_START, and what it asks for. */
struct starting {
    const struct wire_put_start *msg;
    struct master_op *op;
    struct wire_keys groups;
    struct wire_view group; /* of the key at hand */
    uint32_t want;          /* replicas */
    struct master_gdss gds;
    bool upsert;
    uint64_t first_segment; /* where the first key went, when all are to go there */
};

/* Bytes in memory that come free when an upsert is done. */
static uint64_t memory_bytes(const struct master_object *object)
{
    uint64_t bytes = 0;
    MASTER_EXTENTS_FOREACH(extent, object)
    bytes += master_segment_is_disk(extent->segment) ? 0 : master_extent_size(extent);
    return bytes;
}

/* The record of the value that is to be written; NULL with *status. */
static struct master_object *make_object(struct master_core *core, const struct master_key *key,
                                         uint64_t size, bool upsert, enum yolk_status *status)
{
    struct master_object *object = NULL;
    bool full = master_index_count(core->index) >= core->config.max_objects;
    *status = YOLK_ERR_LIMIT;
    if (!upsert) {
        object = master_object_create(core, key->bytes, key->hash, size);
        if (object == NULL && master_evict_keys(core))
            object = master_object_create(core, key->bytes, key->hash, size);
    } else if (!full || master_object_find(core, key->bytes, key->hash) != NULL ||
               master_evict_keys(core)) {
        object = master_object_make(core, key->bytes, key->hash, size);
    }
    core->processing += object != NULL && !upsert;
    return object;
}

static struct master_put *make_put(struct master_op *op, const struct master_key *key,
                                   uint64_t size, bool upsert)
{
    struct master_put *put = base_calloc(1, sizeof *put + key->bytes.size);
    if (put == NULL)
        return NULL;
    put->replaced = upsert ? base_calloc(1, sizeof *put->replaced) : NULL;
    if (upsert && put->replaced == NULL) {
        free(put);
        return NULL;
    }
    memcpy(put->key, key->bytes.data, key->bytes.size);
    put->key_size = (uint32_t)key->bytes.size;
    put->hash = key->hash;
    put->size = size;
    put->op = op;
    put->state = PUT_OPEN;
    base_list_init(&put->time_link);
    base_list_init(&put->op_link);
    return put;
}

/* Why the put got no place at all. */
static enum yolk_status no_place(struct master_core *core, const struct master_wish *wish,
                                 uint64_t size)
{
    if (wish->over_quota) {
        core->stats.put_quota++;
        return YOLK_ERR_QUOTA;
    }
    if (wish->limited && !wish->open) {
        core->stats.put_pin_limit++;
        return YOLK_ERR_PIN_LIMIT;
    }
    return master_may_fit(core, size) ? YOLK_ERR_NO_SPACE : YOLK_ERR_TOO_LARGE;
}

/* Space for the put: in memory, in the client's own file, or in both. */
static enum yolk_status find_places(struct master_core *core, struct starting *starting,
                                    const struct master_key *key, struct master_put *put,
                                    struct master_wish *wish)
{
    take_space(core, put, starting->want, wish);
    bool limited = wish->limited && !wish->open && !wish->over_quota;
    uint32_t in_memory = put->extent_count;
    bool fewer = in_memory < starting->want;
    bool gds_only = in_memory == 0 && starting->gds.given && !limited;
    if (in_memory == 0 && !gds_only)
        return no_place(core, wish, put->size);
    /* With a file to go to only what comes at once is waited for. */
    bool more = gds_only ? wish->unopened : wish->soon;
    if (fewer && more && (starting->msg->flags & WIRE_PUT_ALL_COPIES))
        return YOLK_ERR_AGAIN;
    enum yolk_status status = master_gds_take(core, &starting->gds, key, put, wish->replaced);
    if (status != YOLK_OK)
        return status;
    core->stats.gds_only += gds_only;
    core->stats.put_short += fewer && !gds_only;
    if ((starting->msg->flags & WIRE_PUT_SAME_SEGMENT) && starting->first_segment == 0 &&
        in_memory > 0)
        starting->first_segment = put->extents[0]->segment->id;
    return YOLK_OK;
}

/* Space for the put, and what else it asked for. */
static enum yolk_status equip(struct master_core *core, struct starting *starting,
                              const struct master_key *key, struct master_put *put,
                              const struct master_object *old)
{
    struct master_wish wish = {.preferred = starting->msg->preferred,
                               .segment = starting->first_segment,
                               .replaced = old != NULL && old->pin == PIN_HARD ? old : NULL,
                               .credit = old == NULL ? 0 : memory_bytes(old)};
    enum yolk_status status = master_pin_ask(core, put->object, starting->msg, starting->group);
    if (status != YOLK_OK)
        return status;
    if (old != NULL && old->pin == PIN_HARD)
        master_pin_hard(core, put->object);
    wish.hard = put->object->pin == PIN_HARD;
    return put->size == 0 ? YOLK_OK : find_places(core, starting, key, put, &wish);
}

static enum yolk_status start_one(struct master_core *core, struct starting *starting,
                                  const struct master_key *key, uint64_t size,
                                  struct master_put **out)
{
    enum yolk_status status;
    if (key->bytes.size == 0 || key->bytes.size > MAX_KEY_SIZE)
        return YOLK_ERR_INVALID;
    if (size > MAX_OBJECT_SIZE)
        return YOLK_ERR_TOO_LARGE;
    struct master_object *old = master_object_find(core, key->bytes, key->hash);
    if (!starting->upsert && old != NULL && (old->put != NULL || master_object_readable(old)))
        return YOLK_ERR_EXISTS;
    status = master_gds_check(core, &starting->gds, key, size);
    if (status != YOLK_OK)
        return status;
    struct master_put *put = make_put(starting->op, key, size, starting->upsert);
    if (put == NULL)
        return YOLK_ERR_NO_MEMORY;
    if (old != NULL && !starting->upsert) {
        /* only of a lost segment, or one whose owner cannot be asked: overtaken now */
        master_object_drop(core, old, GHOST_NONE);
        old = NULL;
    }
    put->object = make_object(core, key, size, starting->upsert, &status);
    if (put->object == NULL) {
        free(put->replaced);
        free(put);
        return status;
    }
    put->object->put = put;
    put->deadline = core->now + master_ms(core->config.put_timeout_ms);
    put_link(starting->op, put);
    /* Making an object may have evicted the old one. */
    status = equip(core, starting, key, put,
                   old == NULL ? NULL : master_object_find(core, key->bytes, key->hash));
    if (status != YOLK_OK) {
        master_put_cancel(core, put);
        master_put_free(core, put);
        return status;
    }
    base_list_push_back(&core->open_puts, &put->time_link);
    *out = put;
    return YOLK_OK;
}

static struct wire_result place_one(struct master_core *core, struct starting *starting,
                                    const struct master_key *key, uint64_t size)
{
    struct master_put *put = put_find(starting->op, key);
    if (put == NULL) {
        struct wire_result result = {.first = wire_replica_count(wire_view_buf(&core->list[1])),
                                     .size = size};
        result.status = start_one(core, starting, key, size, &put);
        core->stats.put_exists += result.status == YOLK_ERR_EXISTS;
        core->stats.put_no_space += result.status == YOLK_ERR_NO_SPACE;
        if (result.status != YOLK_OK)
            return result;
        core->stats.put_starts++;
    }
    struct wire_result result = {.status = master_gds_same(core, &starting->gds, key, put)};
    if (put->size != size)
        result.status = YOLK_ERR_INVALID;
    /* else another message under the same name, or the key twice in one */
    return result.status == YOLK_OK ? answer_again(core, put) : result;
}

static enum yolk_status put_one(struct master_core *core, void *self, const struct master_key *key)
{
    struct starting *starting = self;
    uint64_t size = wire_u64s_at(starting->msg->sizes, key->index);
    if (starting->msg->groups.size > 0 && !wire_keys_next(&starting->groups, &starting->group))
        return YOLK_ERR_INVALID;
    master_gds_next(&starting->gds);
    struct wire_result result = place_one(core, starting, key, size);
    return wire_result_append(&core->list[0], &result);
}

/* NULL, or what is wrong with a request whose keys are in order. */
static const char *check_start(struct master_core *core, const struct wire_put_start *msg,
                               uint32_t count, struct starting *starting)
{
    struct wire_keys names;
    struct wire_view one;
    if (msg->request.op == 0 || wire_u64s_count(msg->sizes) != count)
        return "bad sizes or operation";
    if (msg->soft_pin > SOFT_PIN_CLEAR)
        return "a soft pin is 0, 1 or 2";
    if (msg->soft_pin_ttl_ms != UINT64_MAX &&
        msg->soft_pin_ttl_ms > core->config.soft_pin_ttl_max_ms)
        return "a soft pin for longer than the master's setting soft-pin-ttl-max";
    if (msg->preferred.size > 0 && wire_keys_open(msg->preferred, MAX_PREFERRED, &names) != YOLK_OK)
        return "a bad list of preferred segments";
    if (msg->groups.size == 0)
        return master_gds_begin(core, &starting->gds, msg, count);
    if (wire_keys_open(msg->groups, core->config.max_keys, &names) != YOLK_OK ||
        names.count != count)
        return "not one group a key";
    starting->groups = names;
    while (wire_keys_next(&names, &one))
        if (one.size > MAX_GROUP_SIZE)
            return "a group's id of more than 255 bytes";
    return master_gds_begin(core, &starting->gds, msg, count);
}

void master_put_start(struct master_core *core, const struct wire_put_start *msg)
{
    struct wire_keys keys;
    struct master_session *session =
        master_keys_enter(core, &msg->request, msg->keys, WIRE_PUT_START, &keys);
    if (session == NULL)
        return;
    struct starting starting = {.msg = msg,
                                .want = msg->replica_num == 0 ? 1 : msg->replica_num,
                                .gds.session = session,
                                .upsert = (msg->flags & WIRE_PUT_UPSERT) != 0};
    const char *wrong = check_start(core, msg, keys.count, &starting);
    if (wrong != NULL) {
        struct wire_put_start_reply refusal = {.status = YOLK_ERR_INVALID,
                                               .text = wire_view_text(wrong)};
        master_reply(core, WIRE_PUT_START_REPLY, &refusal);
        return;
    }
    struct master_op *op = master_op_get(core, session, msg->request.op);
    if (op == NULL) {
        master_reply_status(core, WIRE_PUT_START_REPLY, YOLK_ERR_LIMIT, "too many operations");
        return;
    }
    starting.op = op;
    if (starting.want > MASTER_MAX_REPLICAS)
        starting.want = MASTER_MAX_REPLICAS;
    for (int i = 0; i < 3; i++)
        base_buf_clear(&core->list[i]);
    op->put_cursor = &op->puts;
    enum yolk_status status = master_keys_walk(core, &keys, put_one, &starting);
    op->put_cursor = &op->puts;
    master_op_reap(core, op);
    struct base_buf why;
    base_buf_init(&why, MAX_FRAME_BODY);
    enum yolk_status told = master_gds_end(&starting.gds, keys.count, &why);
    struct wire_put_start_reply reply = {.status = status != YOLK_OK ? status : told,
                                         .why = wire_view_buf(&why),
                                         .results = wire_view_buf(&core->list[0]),
                                         .replicas = wire_view_buf(&core->list[1]),
                                         .tickets = wire_view_buf(&core->list[2])};
    master_reply(core, WIRE_PUT_START_REPLY, &reply);
    base_buf_free(&why);
    master_keys_looked_up(core, &msg->request, msg->keys, WIRE_PUT_START);
}

/* The put's value takes the place of the one its key has. */
static enum yolk_status take_over(struct master_core *core, struct master_put *put)
{
    struct master_object *object = put->object;
    struct master_object *old = master_object_find(
        core, wire_view_of(object->key, object->entry.key_size), object->entry.hash);
    if (old != NULL && old->put != NULL) {
        master_put_expire(core, old->put); /* it was begun before, so this one is the later */
        old = NULL;
    }
    if (old != NULL && mutated(MUT_KEEP_REPLACED))
        return YOLK_ERR_EXISTS;
    if (master_object_insert(core, object) != YOLK_OK)
        return YOLK_ERR_NO_MEMORY;
    core->processing++;
    object->upserted = 1;
    master_pin_commit(core, object, old);
    if (old == NULL)
        return YOLK_OK;
    core->stats.upserts++;
    MASTER_EXTENTS_FOREACH(extent, old)
    {
        put->replaced->at[put->replaced->count].segment = extent->segment->id;
        put->replaced->at[put->replaced->count++].offset = master_extent_offset(extent);
    }
    master_object_drop(core, old, GHOST_NONE);
    return YOLK_OK;
}

/* An owner has not confirmed yet that the replaced value is gone there: if it offered that to a
 * later master, the old value could be read again. */
static bool is_untold(const struct master_core *core, const struct master_put *put)
{
    for (uint32_t i = 0; put->replaced != NULL && i < put->replaced->count; i++) {
        const struct master_segment *segment =
            master_segment_find(core, put->replaced->at[i].segment);
        if (segment == NULL || segment->owner == NULL)
            continue; /* what it offers when it comes back is compared with what is there */
        uint32_t handle = base_extents_find(segment->alloc, put->replaced->at[i].offset);
        const struct master_extent *extent =
            handle == BASE_EXTENTS_NONE ? NULL : base_extents_owner(segment->alloc, handle);
        if (extent != NULL && extent->state == EXTENT_DEAD &&
            (extent->fact_state != FACT_NONE || extent->task_refs > 0))
            return true;
    }
    return false;
}

static enum yolk_status commit(struct master_core *core, struct master_put *put)
{
    struct master_object *object = put->object;
    /* A segment that was lost meanwhile has not got the bytes for certain. */
    for (struct master_extent *extent = object->extents, *next; extent != NULL; extent = next) {
        next = extent->next;
        if (extent->epoch != extent->segment->epoch || extent->segment->owner == NULL)
            master_extent_drop(core, extent);
    }
    if (object->size > 0 && object->extent_count == 0) {
        put->state = PUT_EXPIRED;
        master_object_drop(core, object, GHOST_EXPIRED);
        writer_done(core, put);
        return YOLK_ERR_STALE;
    }
    enum yolk_status status = YOLK_OK;
    if (object->detached)
        status = take_over(core, put);
    else
        master_pin_commit(core, object, NULL);
    if (status != YOLK_OK) {
        put->state = PUT_EXPIRED;
        master_object_drop(core, object, GHOST_NONE);
        writer_done(core, put);
        return status;
    }
    put->state = PUT_COMMITTED;
    put->object = NULL;
    object->put = NULL;
    core->processing--;
    core->committed++;
    core->stats.put_ends++;
    writer_done(core, put);
    MASTER_EXTENTS_FOREACH(extent, object)
    {
        master_extent_set_state(extent, EXTENT_LIVE);
        master_extent_use(extent);
        if (extent->fact_state == FACT_NONE)
            master_fact_placed(extent);
        else
            core->stats.gds_ends++; /* its owner knows */
    }
    master_emit_committed(core, object);
    return is_untold(core, put) ? YOLK_ERR_AGAIN : YOLK_OK;
}

/* One key of an END or a REVOKE; `self` is the operation, NULL when it is not known (any more). */
static enum yolk_status end_one(struct master_core *core, void *self, const struct master_key *key)
{
    struct master_put *put = self == NULL ? NULL : put_find(self, key);
    if (put == NULL || put->state == PUT_REVOKED)
        return YOLK_ERR_NOT_FOUND;
    if (put->state == PUT_COMMITTED)
        return is_untold(core, put) ? YOLK_ERR_AGAIN : YOLK_OK;
    base_list_remove(&put->time_link);
    if (put->state == PUT_OPEN)
        return commit(core, put);
    writer_done(core, put); /* too late, but quiet */
    return YOLK_ERR_TIMEOUT;
}

static enum yolk_status revoke_one(struct master_core *core, void *self,
                                   const struct master_key *key)
{
    struct master_put *put = self == NULL ? NULL : put_find(self, key);
    if (put == NULL)
        return YOLK_ERR_NOT_FOUND;
    if (put->state == PUT_COMMITTED)
        return YOLK_ERR_EXISTS;
    core->stats.put_revokes += put->state != PUT_REVOKED;
    for (uint32_t i = 0; i < put->extent_count; i++)
        put->extents[i]->segment->failed_at = core->now;
    master_put_cancel(core, put);
    put->state = PUT_REVOKED;
    return YOLK_OK;
}

static void finish(struct master_core *core, const struct wire_keys_request *msg, uint16_t kind,
                   enum yolk_status (*one)(struct master_core *core, void *self,
                                           const struct master_key *key))
{
    struct wire_keys keys;
    struct master_session *session = master_keys_enter(core, &msg->request, msg->keys, kind, &keys);
    if (session == NULL)
        return;
    struct master_op *op = master_op_find(core, session, msg->request.op);
    if (op != NULL)
        op->put_cursor = &op->puts;
    master_keys_answer(core, kind, &keys, one, op);
}

void master_put_end(struct master_core *core, const struct wire_keys_request *msg)
{
    finish(core, msg, WIRE_PUT_END, end_one);
}

void master_put_revoke(struct master_core *core, const struct wire_keys_request *msg)
{
    finish(core, msg, WIRE_PUT_REVOKE, revoke_one);
}
