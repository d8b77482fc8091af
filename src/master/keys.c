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
    return master_session_enter(core, request, kind + 1);
}

enum yolk_status master_keys_walk(struct master_core *core, struct wire_keys *keys,
                                  enum yolk_status (*one)(struct master_core *core, void *self,
                                                          const struct master_key *key),
                                  void *self)
{
    struct master_key key = {.index = 0};
    enum yolk_status status = YOLK_OK;
    for (; status == YOLK_OK && wire_keys_next(keys, &key.bytes); key.index++) {
        key.hash = base_hash64(key.bytes.data, key.bytes.size);
        status = one(core, self, &key);
    }
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

void master_keys_looked_up(struct master_core *core, const struct wire_request *request,
                           struct wire_view list, uint16_t kind)
{
    struct wire_keys keys;
    struct wire_view key;
    if (core->looked_up == NULL || wire_keys_open(list, core->config.max_keys, &keys) != YOLK_OK)
        return;
    /* Found anew: a put may have evicted what an earlier key of the same request found. */
    struct master_lookup lookup = {
        .kind = kind,
        .session = request->session,
        .objects = core->looked_up,
        .hashes = core->looked_up_hashes,
    };
    for (; wire_keys_next(&keys, &key); lookup.count++) {
        uint64_t hash = base_hash64(key.data, key.size);
        core->looked_up_hashes[lookup.count] = hash;
        core->looked_up[lookup.count] = master_object_find(core, key, hash);
    }
    core->config.policy->looked_up(core->policy_state, &lookup);
}
