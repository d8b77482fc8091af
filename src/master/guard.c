/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of sessions, and the read guards and pins they hold. */
#include "base/alloc.h"
#include "base/hash.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bucket(const struct master_core *core, uint64_t session, uint64_t op)
{
    return base_mix64(session ^ (op * 0x9e3779b97f4a7c15ull)) & (core->op_buckets - 1);
}

struct master_op *master_op_find(const struct master_core *core,
                                 const struct master_session *session, uint64_t number)
{
    struct master_op *op = core->op_table[bucket(core, session->id, number)];
    while (op != NULL && (op->op != number || op->session != session))
        op = op->hash_next;
    return op;
}

static void table_grow(struct master_core *core)
{
    struct master_op **table = base_calloc(core->op_buckets * 2, sizeof(struct master_op *));
    if (table == NULL)
        return; /* longer chains, nothing worse */
    struct master_op **old = core->op_table;
    uint64_t old_buckets = core->op_buckets;
    core->op_table = table;
    core->op_buckets *= 2;
    for (uint64_t i = 0; i < old_buckets; i++)
        for (struct master_op *op = old[i], *next; op != NULL; op = next) {
            next = op->hash_next;
            uint64_t b = bucket(core, op->session->id, op->op);
            op->hash_next = table[b];
            table[b] = op;
        }
    free(old);
}

struct master_op *master_op_get(struct master_core *core, struct master_session *session,
                                uint64_t number)
{
    struct master_op *op = master_op_find(core, session, number);
    if (op != NULL)
        return op;
    if (session->op_count >= core->config.max_ops)
        return NULL;
    op = base_calloc(1, sizeof *op);
    if (op == NULL)
        return NULL;
    if (core->op_count >= core->op_buckets)
        table_grow(core);
    op->session = session;
    op->op = number;
    base_list_init(&op->ttl_link);
    base_list_init(&op->puts);
    op->put_cursor = &op->puts;
    uint64_t b = bucket(core, session->id, number);
    op->hash_next = core->op_table[b];
    core->op_table[b] = op;
    /* Nearly always the newest: look from the end. */
    struct base_list *place = session->ops.prev;
    while (place != &session->ops &&
           BASE_CONTAINER(place, struct master_op, session_link)->op > number)
        place = place->prev;
    base_list_insert_after(place, &op->session_link);
    session->op_count++;
    core->op_count++;
    return op;
}

static void op_free(struct master_core *core, struct master_op *op)
{
    struct master_op **at = &core->op_table[bucket(core, op->session->id, op->op)];
    while (*at != op)
        at = &(*at)->hash_next;
    *at = op->hash_next;
    base_list_remove(&op->session_link);
    base_list_remove(&op->ttl_link);
    op->session->op_count--;
    core->op_count--;
    free(op->items);
    free(op->put_table);
    free(op);
}

void master_op_drop_guard(struct master_core *core, struct master_op *op)
{
    base_list_remove(&op->ttl_link);
    op->pinned = false;
    core->guard_count -= op->item_count;
    while (op->item_count > 0)
        master_extent_unref(core, op->items[--op->item_count]);
    free(op->items);
    op->items = NULL;
    op->item_room = 0;
}

void master_op_reap(struct master_core *core, struct master_op *op)
{
    if (op->session->zombie && op->item_count == 0) {
        BASE_LIST_FOREACH_SAFE(node, &op->puts)
        {
            struct master_put *put = BASE_CONTAINER(node, struct master_put, op_link);
            if (put->extent_count == 0 && put->state != PUT_OPEN)
                master_put_free(core, put);
        }
    }
    if (op->item_count == 0 && base_list_empty(&op->puts))
        op_free(core, op);
}

void master_op_end(struct master_core *core, struct master_op *op)
{
    master_op_drop_guard(core, op);
    while (!base_list_empty(&op->puts)) {
        struct master_put *put = BASE_CONTAINER(op->puts.next, struct master_put, op_link);
        master_put_cancel(core, put);
        master_put_free(core, put);
    }
    op_free(core, op);
}

enum yolk_status master_op_guard(struct master_core *core, struct master_op *op,
                                 struct master_extent *extent)
{
    if (op->item_count == op->item_room) {
        uint32_t room = op->item_room ? op->item_room * 2 : 4;
        if (op->item_count >= core->config.max_keys * MASTER_MAX_REPLICAS * 2)
            return YOLK_ERR_LIMIT;
        struct master_extent **items =
            base_realloc(op->items, room * sizeof(struct master_extent *));
        if (items == NULL)
            return YOLK_ERR_NO_MEMORY;
        op->items = items;
        op->item_room = room;
    }
    op->items[op->item_count++] = extent;
    core->guard_count++;
    master_extent_ref(extent);
    return YOLK_OK;
}

static void start_ttl(struct master_core *core, struct master_op *op)
{
    base_list_remove(&op->ttl_link);
    if (op->pinned || op->item_count == 0)
        return;
    op->deadline = core->now + master_ms(core->config.guard_ttl_ms + core->config.guard_margin_ms);
    base_list_push_back(&core->guards, &op->ttl_link);
}

void master_guards_tick(struct master_core *core)
{
    struct base_list *node;
    while ((node = base_list_first(&core->guards)) != NULL) {
        struct master_op *op = BASE_CONTAINER(node, struct master_op, ttl_link);
        if (op->deadline > core->now)
            return;
        struct master_session *session = op->session;
        core->stats.guards_expired++;
        master_op_drop_guard(core, op);
        master_op_reap(core, op);
        if (session->zombie)
            master_session_reap(core, session);
    }
}

static enum yolk_status exist_one(struct master_core *core, void *self,
                                  const struct master_key *key)
{
    (void)self;
    struct master_object *object = master_object_find(core, key->bytes, key->hash);
    master_keys_saw(core, key, object);
    if (object == NULL || !master_object_readable(object)) {
        core->stats.exist_misses++;
        return YOLK_ERR_NOT_FOUND;
    }
    core->stats.exist_hits++;
    if (object->lease_until <= core->now)
        object->lease_until = core->now + master_ms(core->config.lease_ttl_ms);
    if (object->has_extra)
        master_group_leased(core, object);
    MASTER_EXTENTS_FOREACH(extent, object)
    master_probe(core, extent);
    return YOLK_OK;
}

void master_exist(struct master_core *core, const struct wire_keys_request *msg)
{
    struct wire_keys keys;
    if (master_keys_enter(core, &msg->request, msg->keys, WIRE_EXIST, &keys) == NULL)
        return;
    master_keys_answer(core, WIRE_EXIST, &keys, exist_one, NULL);
    master_keys_seen(core, &msg->request, WIRE_EXIST);
}

static void count_miss(struct master_core *core, const struct master_object *object, uint64_t hash)
{
    int ghost = object == NULL        ? master_ghost_get(core, hash)
                : object->put != NULL ? GHOST_NONE
                                      : GHOST_EXPIRED;
    if (ghost == GHOST_EVICTED)
        core->stats.miss_evicted++;
    else if (ghost == GHOST_EXPIRED)
        core->stats.miss_expired++;
    else
        core->stats.miss_never_stored++;
}

static void count_hit(struct master_core *core, const struct master_object *object,
                      enum wire_medium tier)
{
    struct master_stats *stats = &core->stats;
    stats->get_hits++;
    stats->get_hit_bytes += object->size;
    if (tier == WIRE_MEDIUM_MEMORY) {
        stats->get_hits_memory++;
        stats->get_hit_bytes_memory += object->size;
    } else if (tier == WIRE_MEDIUM_LOCAL_DISK) {
        stats->get_hits_disk++;
        stats->get_hit_bytes_disk += object->size;
    } else {
        stats->get_hits_gds++;
        stats->get_hit_bytes_gds += object->size;
    }
}

/* The object's readable replicas of one medium; without an operation they are only told. */
static enum yolk_status guard_medium(struct master_core *core, struct master_op *op,
                                     struct master_object *object, enum wire_medium medium,
                                     uint32_t *count)
{
    MASTER_EXTENTS_FOREACH(extent, object)
    {
        if (extent->segment->medium != medium || !master_extent_reachable(extent))
            continue;
        struct wire_replica replica = {.segment = extent->segment->id,
                                       .offset = master_extent_offset(extent),
                                       .medium = medium,
                                       .checksum = extent->checksum};
        enum yolk_status status = op == NULL ? YOLK_OK : master_op_guard(core, op, extent);
        if (status == YOLK_OK)
            status = wire_replica_append(&core->list[1], &replica);
        if (status == YOLK_OK && medium == WIRE_MEDIUM_GDS) {
            struct wire_gds gds = master_gds_of(extent);
            status = wire_gds_append(&core->list[2], &gds);
        }
        if (status != YOLK_OK)
            return status;
        (*count)++;
    }
    return YOLK_OK;
}

struct getting {
    const struct master_session *session;
    struct master_op *op; /* NULL: a peek */
    bool pin;
    bool unused; /* nothing in it counts as used */
};

/* Found, and used by this get. */
static void use(struct master_core *core, struct master_object *object, enum wire_medium tier)
{
    count_hit(core, object, tier);
    object->lease_until = core->now + master_ms(core->config.lease_ttl_ms);
    if (object->has_extra)
        master_group_leased(core, object);
    if (tier == WIRE_MEDIUM_LOCAL_DISK)
        master_tier_hit(core, master_object_disk(object));
}

/* All replicas of the object, those in memory first; and where the asker will read: in memory, else
 * in its own GDS file, on a disk, in another's GDS file. */
static enum yolk_status guard_all(struct master_core *core, const struct getting *getting,
                                  struct master_object *object, uint32_t *count,
                                  enum wire_medium *tier)
{
    struct master_op *op = getting->op;
    uint32_t in_memory, with_disk;
    enum yolk_status status = guard_medium(core, op, object, WIRE_MEDIUM_MEMORY, count);
    in_memory = *count;
    if (status == YOLK_OK)
        status = guard_medium(core, op, object, WIRE_MEDIUM_LOCAL_DISK, count);
    with_disk = *count;
    if (status == YOLK_OK && core->gds_count > 0)
        status = guard_medium(core, op, object, WIRE_MEDIUM_GDS, count);
    *tier = WIRE_MEDIUM_MEMORY;
    if (in_memory > 0 || object->size == 0)
        return status;
    bool own = false;
    if (*count > with_disk)
        own = master_object_on(object, WIRE_MEDIUM_GDS)->segment->owner == getting->session;
    *tier = with_disk > 0 && !own ? WIRE_MEDIUM_LOCAL_DISK : WIRE_MEDIUM_GDS;
    return status;
}

/* One key of a get: its result, its replicas appended to list[1], each guarded by the operation. */
static struct wire_result guard_one(struct master_core *core, struct getting *getting,
                                    const struct master_key *key)
{
    struct master_op *op = getting->op;
    struct wire_result result = {.status = YOLK_ERR_NOT_FOUND,
                                 .first = wire_replica_count(wire_view_buf(&core->list[1]))};
    struct master_object *object = master_object_find(core, key->bytes, key->hash);
    if (object == NULL || !master_object_readable(object)) {
        if (object != NULL && object->put != NULL)
            result.status = YOLK_ERR_NOT_READY;
        if (op != NULL)
            count_miss(core, object, key->hash);
        return result;
    }
    size_t gds_before = core->list[2].size;
    enum wire_medium tier;
    result.status = guard_all(core, getting, object, &result.replica_count, &tier);
    if (result.status != YOLK_OK) {
        /* Guards taken meanwhile stay until the op ends: harmless. */
        core->stats.miss_error += op != NULL;
        core->list[1].size = (size_t)result.first * WIRE_REPLICA_SIZE;
        core->list[2].size = gds_before;
        result.replica_count = 0;
        return result;
    }
    if (getting->pin && tier != WIRE_MEDIUM_MEMORY)
        getting->unused = true;
    if (!getting->unused)
        use(core, object, tier);
    result.size = object->size;
    return result;
}

static enum yolk_status get_one(struct master_core *core, void *self, const struct master_key *key)
{
    struct wire_result result = guard_one(core, self, key);
    return wire_result_append(&core->list[0], &result);
}

void master_get_start(struct master_core *core, const struct wire_get_start *msg)
{
    struct wire_keys keys;
    struct master_session *session =
        master_keys_enter(core, &msg->request, msg->keys, WIRE_GET_START, &keys);
    if (session == NULL)
        return;
    if (msg->request.op == 0) {
        master_reply_status(core, WIRE_GET_START_REPLY, YOLK_ERR_INVALID, "no operation");
        return;
    }
    bool peek = (msg->flags & WIRE_GET_PEEK) != 0;
    struct getting getting = {.session = session, .pin = msg->flags & WIRE_GET_PIN, .unused = peek};
    if (!peek)
        getting.op = master_op_get(core, session, msg->request.op);
    if (!peek && getting.op == NULL) {
        core->stats.miss_error += keys.count;
        master_reply_status(core, WIRE_GET_START_REPLY, YOLK_ERR_LIMIT, "too many operations");
        return;
    }
    base_buf_clear(&core->list[0]);
    base_buf_clear(&core->list[1]);
    base_buf_clear(&core->list[2]);
    enum yolk_status status = master_keys_walk(core, &keys, get_one, &getting);
    if (!peek) {
        getting.op->pinned |= getting.pin;
        start_ttl(core, getting.op);
        master_op_reap(core, getting.op); /* nothing was found */
    }
    struct wire_get_start_reply reply = {.status = status,
                                         .guard_ttl_ms = core->config.guard_ttl_ms,
                                         .results = wire_view_buf(&core->list[0]),
                                         .replicas = wire_view_buf(&core->list[1]),
                                         .gds = wire_view_buf(&core->list[2])};
    master_reply(core, WIRE_GET_START_REPLY, &reply);
    if (!getting.unused)
        master_keys_looked_up(core, &msg->request, msg->keys, WIRE_GET_START);
}

void master_renew(struct master_core *core, const struct wire_renew *msg)
{
    struct master_session *session = master_session_enter(core, &msg->request, WIRE_RENEW_REPLY);
    if (session == NULL)
        return;
    struct wire_renew_reply reply = {.guard_ttl_ms = core->config.guard_ttl_ms};
    for (uint32_t i = 0; i < wire_u64s_count(msg->ops); i++) {
        struct master_op *op = master_op_find(core, session, wire_u64s_at(msg->ops, i));
        if (op == NULL || op->item_count == 0)
            reply.status =
                YOLK_ERR_LEASE_EXPIRED; /* of one of them; the others are renewed all the same */
        else
            start_ttl(core, op);
    }
    master_reply(core, WIRE_RENEW_REPLY, &reply);
}
