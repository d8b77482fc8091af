/* SPDX-License-Identifier: Apache-2.0 */
/* Remove by key, and the two that go over the whole index: list and remove_all, a bounded piece a
 * turn. */
#include "base/alloc.h"
#include "base/hash.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

#define LIST_BYTES (512u << 10) /* keys in one answer, about */

static bool is_of(const struct master_object *object, const uint8_t *prefix, uint32_t prefix_size)
{
    return master_tenant_owns(prefix, prefix_size,
                              wire_view_of(object->key, object->entry.key_size));
}

static enum yolk_status remove_object(struct master_core *core, struct master_object *object,
                                      bool force)
{
    if (!force && object->put != NULL)
        return YOLK_ERR_NOT_READY;
    if (!force && (master_lease_until(core, object) > core->now || master_object_guarded(object)))
        return YOLK_ERR_HAS_LEASE;
    bool readable = master_object_readable(object);
    if (object->put != NULL) {
        master_put_expire(core, object->put);
    } else {
        core->stats.removes++;
        master_object_drop(core, object, GHOST_NONE);
    }
    return readable ? YOLK_OK : YOLK_ERR_NOT_FOUND;
}

static enum yolk_status remove_one(struct master_core *core, void *self,
                                   const struct master_key *key)
{
    const bool *force = self;
    struct master_object *object = master_object_find(core, key->bytes, key->hash);
    return object == NULL ? YOLK_ERR_NOT_FOUND : remove_object(core, object, *force);
}

void master_remove(struct master_core *core, const struct wire_remove *msg)
{
    struct wire_keys keys;
    bool force = msg->force != 0;
    if (master_keys_enter(core, &msg->request, msg->keys, WIRE_REMOVE, &keys) != NULL)
        master_keys_answer(core, WIRE_REMOVE, &keys, remove_one, &force);
}

void master_remove_all(struct master_core *core, const struct wire_remove_all *msg)
{
    struct master_session *session =
        master_session_enter(core, &msg->request, WIRE_REMOVE_ALL_REPLY);
    if (session == NULL)
        return;
    BASE_LIST_FOREACH(node, &core->jobs)
    {
        struct master_job *job = BASE_CONTAINER(node, struct master_job, link);
        if (job->session != session->id || job->op != msg->request.op || job->op == 0)
            continue;
        job->connection = core->connection; /* asked again: one answer, there */
        job->request_id = core->request_id;
        return;
    }
    struct wire_remove_all_reply reply = {.status = YOLK_ERR_BUSY};
    struct master_job *job =
        core->job_count < core->config.max_jobs ? base_calloc(1, sizeof *job) : NULL;
    if (job == NULL) {
        master_reply(core, WIRE_REMOVE_ALL_REPLY, &reply);
        return;
    }
    job->connection = core->connection;
    job->request_id = core->request_id;
    job->session = session->id;
    job->op = msg->request.op;
    job->force = msg->force != 0;
    job->prefix_size = session->tenant->prefix_size;
    memcpy(job->prefix, session->tenant->prefix, job->prefix_size);
    job->last_era = core->era++;
    base_list_push_back(&core->jobs, &job->link);
    core->job_count++;
    (void)master_jobs_tick(core);
}

static void collect(void *self, struct master_index_entry *entry)
{
    struct master_collected *all = self;
    if (all->count < MASTER_COLLECT_MAX)
        all->objects[all->count++] = (struct master_object *)entry;
}

static enum yolk_status clear_object(struct master_core *core, struct master_object *object,
                                     struct wire_view name)
{
    if (name.size == 0)
        return remove_object(core, object, false);
    if (object->put != NULL)
        return YOLK_ERR_NOT_READY;
    if (master_lease_until(core, object) > core->now || master_object_guarded(object))
        return YOLK_ERR_HAS_LEASE;
    uint32_t found = 0, count = object->extent_count;
    for (struct master_extent *extent = object->extents, *next; count > 0; extent = next, count--) {
        next = extent->next;
        if (master_segment_is_disk(extent->segment) ||
            !master_segment_is_named(extent->segment, name))
            continue;
        found++;
        master_replica_drop(core, extent, GHOST_NONE); /* the last one takes the key along */
    }
    return found > 0 ? YOLK_OK : YOLK_ERR_NOT_FOUND;
}

static enum yolk_status clear_one(struct master_core *core, void *self,
                                  const struct master_key *key)
{
    const struct wire_replica_clear *msg = self;
    struct master_object *object = master_object_find(core, key->bytes, key->hash);
    enum yolk_status status =
        object == NULL ? YOLK_ERR_NOT_FOUND : clear_object(core, object, msg->segment);
    ++*(status == YOLK_OK ? &core->stats.replica_clears : &core->stats.replica_clears_refused);
    return status;
}

void master_replica_clear(struct master_core *core, const struct wire_replica_clear *msg)
{
    struct wire_keys keys;
    struct wire_replica_clear copy = *msg;
    if (master_keys_enter(core, &msg->request, msg->keys, WIRE_REPLICA_CLEAR, &keys) != NULL)
        master_keys_answer(core, WIRE_REPLICA_CLEAR, &keys, clear_one, &copy);
}

/* One piece of the first job; true when there is more. */
bool master_jobs_tick(struct master_core *core)
{
    struct base_list *node = base_list_first(&core->jobs);
    if (node == NULL)
        return false;
    struct master_job *job = BASE_CONTAINER(node, struct master_job, link);
    struct master_collected *all = core->collected;
    uint32_t seen = 0;
    bool more = true;
    for (uint32_t ranges = 0; more && seen < core->config.step && ranges < core->config.step;
         ranges++) {
        all->count = 0;
        more = master_index_walk(core->index, &job->cursor, collect, all);
        seen += all->count;
        for (uint32_t i = 0; i < all->count; i++)
            if (all->objects[i]->era <= job->last_era &&
                (job->everything || is_of(all->objects[i], job->prefix, job->prefix_size)))
                job->count += remove_object(core, all->objects[i], job->force) == YOLK_OK;
    }
    if (!more) {
        struct wire_remove_all_reply reply = {.status = YOLK_OK, .count = job->count};
        master_send(core, job->connection, job->request_id, WIRE_REMOVE_ALL_REPLY, &reply);
        base_list_remove(node);
        core->job_count--;
        free(job);
    }
    return !base_list_empty(&core->jobs);
}

struct list_keys {
    const struct master_collected *all;
};

static struct wire_view listed_key(void *arg, uint32_t i)
{
    const struct master_object *object = ((const struct list_keys *)arg)->all->objects[i];
    return wire_view_of(object->key, object->entry.key_size);
}

void master_list(struct master_core *core, const struct wire_list *msg)
{
    const struct master_session *session =
        master_session_enter(core, &msg->request, WIRE_LIST_REPLY);
    if (session == NULL)
        return;
    const struct master_tenant *tenant = session->tenant;
    uint32_t limit = msg->limit == 0 || msg->limit > 1024 ? 1024 : msg->limit;
    struct master_collected *all = core->collected;
    struct wire_list_reply reply = {.cursor = msg->cursor};
    bool more = true;
    uint32_t kept = 0;
    size_t bytes = 0;
    all->count = 0;
    /* Whole ranges of the hash, so the limit is passed by a few; an empty answer with a cursor is
     * no end. */
    for (uint32_t n = 0; more && kept < limit && bytes < LIST_BYTES && n < 4096; n++) {
        more = master_index_walk(core->index, &reply.cursor, collect, all);
        for (uint32_t i = kept; i < all->count; i++) {
            if (!master_object_readable(all->objects[i]) ||
                !is_of(all->objects[i], tenant->prefix, tenant->prefix_size))
                continue;
            all->objects[kept] = all->objects[i];
            bytes += all->objects[kept++]->entry.key_size;
        }
        all->count = kept;
    }
    base_buf_clear(&core->list[0]);
    base_buf_clear(&core->list[1]);
    struct list_keys keys = {all};
    reply.status = wire_keys_build_by(&core->list[0], kept, listed_key, &keys);
    for (uint32_t i = 0; i < kept && reply.status == YOLK_OK; i++)
        reply.status = wire_u64s_append(&core->list[1], all->objects[i]->size);
    reply.keys = wire_view_buf(&core->list[0]);
    reply.sizes = wire_view_buf(&core->list[1]);
    if (!more)
        reply.cursor = 0;
    master_reply(core, WIRE_LIST_REPLY, &reply);
}
