/* SPDX-License-Identifier: Apache-2.0 */
/* The way into a request that names a list of keys, and over the list. */
#include "base/hash.h"
#include "master/state.h"

struct master_session *master_keys_enter(struct master_core *core,
                                         const struct wire_request *request, struct wire_view list,
                                         uint16_t kind, struct wire_keys *keys)
{
    if (wire_keys_open(list, core->config.max_keys, keys) != YOLK_OK) {
        master_reply_status(core, kind + 1, YOLK_ERR_INVALID, "bad key list");
        return NULL;
    }
    struct master_session *session = master_session_enter(core, request, kind + 1);
    core->any_key = kind == WIRE_MIRROR_OFFER;
    if (session != NULL)
        core->prefix = wire_view_of(session->tenant->prefix, session->tenant->prefix_size);
    return session;
}

/* Keys of a list that are worked on while the memory of the next ones is under way. */
enum { KEYS_AHEAD = 16 };

struct ahead {
    struct wire_keys *keys;
    struct master_key window[KEYS_AHEAD];
    uint32_t next, count; /* the next one to work on, and how many were read */
};

/* Reads one more key and has the table looked at; the entry of one half a window before it too. */
static void read_ahead(struct master_core *core, struct ahead *ahead)
{
    struct master_key *key = &ahead->window[ahead->count % KEYS_AHEAD];
    if (wire_keys_next(ahead->keys, &key->bytes)) {
        /* Keys of other tenants are not there; none that is there is empty. */
        if (!core->any_key &&
            !master_tenant_owns(core->prefix.data, (uint32_t)core->prefix.size, key->bytes))
            key->bytes.size = 0;
        key->hash = base_hash64(key->bytes.data, key->bytes.size);
        key->index = ahead->count++;
        master_index_fetch_slot(core->index, key->hash);
    }
    uint32_t half = ahead->next + KEYS_AHEAD / 2;
    if (half < ahead->count)
        master_index_fetch_entry(core->index, ahead->window[half % KEYS_AHEAD].hash);
}

static void ahead_begin(struct master_core *core, struct wire_keys *keys, struct ahead *ahead)
{
    *ahead = (struct ahead){.keys = keys};
    for (uint32_t i = 0; i < KEYS_AHEAD; i++)
        read_ahead(core, ahead);
}

/* NULL: that was the last. Stays until the next call. */
static const struct master_key *ahead_next(struct master_core *core, struct ahead *ahead,
                                           struct master_key *key)
{
    if (ahead->next == ahead->count)
        return NULL;
    *key = ahead->window[ahead->next++ % KEYS_AHEAD];
    read_ahead(core, ahead);
    return key;
}

enum yolk_status master_keys_walk(struct master_core *core, struct wire_keys *keys,
                                  enum yolk_status (*one)(struct master_core *core, void *self,
                                                          const struct master_key *key),
                                  void *self)
{
    struct ahead ahead;
    struct master_key key;
    enum yolk_status status = YOLK_OK;
    ahead_begin(core, keys, &ahead);
    while (status == YOLK_OK && ahead_next(core, &ahead, &key) != NULL)
        status = one(core, self, &key);
    return status;
}

struct results {
    enum yolk_status (*one)(struct master_core *core, void *self, const struct master_key *key);
    void *self;
};

static enum yolk_status append_result(struct master_core *core, void *self,
                                      const struct master_key *key)
{
    const struct results *results = self;
    return wire_i32s_append(&core->list[0], results->one(core, results->self, key));
}

void master_keys_answer(struct master_core *core, uint16_t kind, struct wire_keys *keys,
                        enum yolk_status (*one)(struct master_core *core, void *self,
                                                const struct master_key *key),
                        void *self)
{
    struct results results = {one, self};
    base_buf_clear(&core->list[0]);
    struct wire_results_reply reply = {.status =
                                           master_keys_walk(core, keys, append_result, &results)};
    reply.results = wire_view_buf(&core->list[0]);
    master_reply(core, kind + 1, &reply);
}

void master_keys_saw(struct master_core *core, const struct master_key *key,
                     struct master_object *object)
{
    if (core->looked_up == NULL)
        return;
    core->looked_up_hashes[key->index] = key->hash;
    core->looked_up[key->index] = object;
    core->looked_up_count = key->index + 1;
}

void master_keys_seen(struct master_core *core, const struct wire_request *request, uint16_t kind)
{
    if (core->looked_up == NULL)
        return;
    struct master_lookup lookup = {
        .kind = kind,
        .session = request->session,
        .count = core->looked_up_count,
        .objects = core->looked_up,
        .hashes = core->looked_up_hashes,
    };
    core->looked_up_count = 0;
    core->config.policy->looked_up(core->policy_state, &lookup);
}

void master_keys_looked_up(struct master_core *core, const struct wire_request *request,
                           struct wire_view list, uint16_t kind)
{
    struct wire_keys keys;
    struct ahead ahead;
    struct master_key key;
    if (core->looked_up == NULL || wire_keys_open(list, core->config.max_keys, &keys) != YOLK_OK)
        return;
    /* Found anew: a put may have evicted what an earlier key of the same request found. */
    for (ahead_begin(core, &keys, &ahead); ahead_next(core, &ahead, &key) != NULL;)
        master_keys_saw(core, &key, master_object_find(core, key.bytes, key.hash));
    master_keys_seen(core, request, kind);
}
