/* SPDX-License-Identifier: Apache-2.0 */
/* The way in and out: a frame is decoded completely, then performed; time moves in small steps. */
#include "master/state.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define TICK_MS 100u /* the longest a caller may stay away without it being a stall */

void master_config_default(struct master_config *config)
{
    *config = (struct master_config){
        .guard_ttl_ms = 10000,
        .guard_margin_ms = 200,
        .lease_ttl_ms = 10000,
        .put_timeout_ms = 30000,
        .heartbeat_ms = 1000,
        .session_ttl_ms = 10000,
        .lost_keep_ms = 600000,
        .disk_lost_keep_ms = 86400000,
        .stall_ms = 1000,
        .resend_ms = 1000,
        .eviction_high_watermark_ratio = 0.95,
        .eviction_ratio = 0.05,
        .gds_eviction_high_watermark_ratio = 0.95,
        .gds_eviction_ratio = 0.05,
        .offload_watermark_ratio = 0.7,
        .offload_wait_ms = 2000,
        .max_sessions = MAX_SESSIONS,
        .max_segments = MAX_SEGMENTS,
        .max_ops = MAX_LIVE_OPS,
        .max_held = 65536,
        .max_keys = MAX_BATCH_KEYS,
        .max_jobs = 16,
        .max_objects = 1ull << 32,
        .soft_pin_ttl_ms = 1800000,
        .soft_pin_ttl_max_ms = 86400000,
        .hard_pin_ratio = 0.5,
        .policy = &master_policy_prefix,
        .step = 256,
        .fact_batch = 512,
        .fact_window = 8,
    };
}

static void fill_defaults(struct master_config *config)
{
    struct master_config normal;
    master_config_default(&normal);
#define DEFAULT(member)                                                                            \
    if (config->member == 0)                                                                       \
    config->member = normal.member
    DEFAULT(guard_ttl_ms);
    DEFAULT(guard_margin_ms);
    DEFAULT(lease_ttl_ms);
    DEFAULT(put_timeout_ms);
    DEFAULT(heartbeat_ms);
    DEFAULT(session_ttl_ms);
    DEFAULT(lost_keep_ms);
    DEFAULT(disk_lost_keep_ms);
    DEFAULT(offload_wait_ms);
    DEFAULT(stall_ms);
    DEFAULT(resend_ms);
    DEFAULT(max_sessions);
    DEFAULT(max_segments);
    DEFAULT(max_ops);
    DEFAULT(max_held);
    DEFAULT(max_keys);
    DEFAULT(max_jobs);
    DEFAULT(max_objects);
    DEFAULT(soft_pin_ttl_ms);
    DEFAULT(soft_pin_ttl_max_ms);
    DEFAULT(policy);
    DEFAULT(step);
    DEFAULT(fact_batch);
    DEFAULT(fact_window);
#undef DEFAULT
    /* Not `== 0` of a double: zero is the smallest there is. */
    if (config->eviction_high_watermark_ratio <= 0)
        config->eviction_high_watermark_ratio = normal.eviction_high_watermark_ratio;
    if (config->eviction_ratio <= 0)
        config->eviction_ratio = normal.eviction_ratio;
    if (config->gds_eviction_high_watermark_ratio <= 0)
        config->gds_eviction_high_watermark_ratio = normal.gds_eviction_high_watermark_ratio;
    if (config->gds_eviction_ratio <= 0)
        config->gds_eviction_ratio = normal.gds_eviction_ratio;
    if (config->hard_pin_ratio <= 0)
        config->hard_pin_ratio = normal.hard_pin_ratio;
    if (config->offload_watermark_ratio <= 0)
        config->offload_watermark_ratio = normal.offload_watermark_ratio;
    if (config->max_segments > MAX_SEGMENTS)
        config->max_segments = MAX_SEGMENTS;
}

/* splitmix64: only to spread placements and to make identities differ. */
uint64_t master_random(struct master_core *core)
{
    core->random += 0x9e3779b97f4a7c15ull;
    return base_mix64(core->random);
}

/* A power of two: enough for the objects there may be. */
static uint64_t ghost_count(uint64_t objects)
{
    uint64_t count = 1024;
    while (count < MASTER_GHOSTS && count < objects)
        count *= 2;
    return count;
}

enum yolk_status master_core_create(const struct master_config *config, uint64_t now_ns,
                                    uint64_t seed, struct master_core **out)
{
    struct master_core *core = base_calloc(1, sizeof *core);
    if (core == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a master");
    if (config != NULL)
        core->config = *config;
    fill_defaults(&core->config);
    struct base_list *lists[] = {&core->segments,     &core->dirty,  &core->sessions,
                                 &core->zombies,      &core->guards, &core->open_puts,
                                 &core->expired_puts, &core->jobs};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        base_list_init(lists[i]);
    base_buf_init(&core->out, MAX_FRAME_BODY);
    for (int i = 0; i < 3; i++)
        base_buf_init(&core->list[i], MAX_FRAME_BODY);
    core->random = seed;
    for (uint32_t i = 0; i < WIRE_ID_SIZE; i += 8)
        base_store_u64(core->instance + i, master_random(core));
    core->id_tag = (master_random(core) >> 40) | 1;
    core->now = core->last_call = now_ns;
    for (size_t i = 1; i < MASTER_OBJECT_SLABS; i++)
        base_slab_init(&core->object_slabs[i], i * 8);
    base_slab_init(&core->extent_slab, sizeof(struct master_extent));
    core->op_buckets = 1024;
    core->op_table = base_calloc(core->op_buckets, sizeof(struct master_op *));
    core->ghost_mask = ghost_count(core->config.max_objects) - 1;
    core->ghosts = base_calloc(core->ghost_mask + 1, sizeof(uint64_t));
    core->collected = base_malloc(sizeof *core->collected);
    bool listens = core->config.policy->looked_up != NULL;
    if (listens) {
        core->looked_up = base_calloc(core->config.max_keys, sizeof(struct master_object *));
        core->looked_up_hashes = base_calloc(core->config.max_keys, sizeof(uint64_t));
    }
    bool remembers = core->config.policy->state_size != NULL;
    if (remembers)
        core->policy_state =
            base_calloc(1, core->config.policy->state_size(core->config.max_objects));
    if (core->policy_state != NULL)
        core->config.policy->state_init(core->policy_state, core->config.max_objects);
    enum yolk_status status = master_extras_init(core);
    if (status == YOLK_ERR_CONFIG) {
        master_core_destroy(core);
        return status;
    }
    if (status == YOLK_OK)
        status = master_index_create(&core->index);
    if (status != YOLK_OK || core->op_table == NULL || core->ghosts == NULL ||
        core->collected == NULL ||
        (listens && (core->looked_up == NULL || core->looked_up_hashes == NULL)) ||
        (remembers && core->policy_state == NULL)) {
        master_core_destroy(core);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a master");
    }
    *out = core;
    return YOLK_OK;
}

static void collect(void *self, struct master_index_entry *entry)
{
    struct master_collected *all = self;
    if (all->count < MASTER_COLLECT_MAX)
        all->objects[all->count++] = (struct master_object *)entry;
}

static void destroy_sessions(struct master_core *core, struct base_list *list)
{
    struct base_list *node;
    while ((node = base_list_first(list)) != NULL) {
        struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        while (!base_list_empty(&session->ops))
            master_op_end(core, BASE_CONTAINER(session->ops.next, struct master_op, session_link));
        base_list_remove(node);
        free(session->held);
        free(session);
    }
}

void master_core_destroy(struct master_core *core)
{
    if (core == NULL)
        return;
    core->sink = NULL;
    destroy_sessions(core, &core->sessions);
    destroy_sessions(core, &core->zombies);
    /* With nobody left, each segment empties by itself once it is given up. */
    BASE_LIST_FOREACH(node, &core->segments)
    BASE_CONTAINER(node, struct master_segment, link)->owner = NULL;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        segment->unmount_pending = false;
        master_segment_go(core, segment);
    }
    while (core->segment_count > 0)
        BASE_LIST_FOREACH_SAFE(node, &core->segments)
    (void)master_segment_tick(core, BASE_CONTAINER(node, struct master_segment, link));
    uint64_t cursor = 0;
    for (bool more = core->index != NULL && core->collected != NULL; more;) {
        core->collected->count = 0;
        more = master_index_walk(core->index, &cursor, collect, core->collected);
        for (uint32_t i = 0; i < core->collected->count; i++)
            master_object_drop(core, core->collected->objects[i], GHOST_NONE);
    }
    struct base_list *node;
    while ((node = base_list_pop_front(&core->jobs)) != NULL)
        free(BASE_CONTAINER(node, struct master_job, link));
    master_index_destroy(core->index);
    for (size_t i = 1; i < MASTER_OBJECT_SLABS; i++)
        base_slab_destroy(&core->object_slabs[i]);
    base_slab_destroy(&core->extent_slab);
    base_buf_free(&core->out);
    for (int i = 0; i < 3; i++)
        base_buf_free(&core->list[i]);
    master_extras_free(core);
    free(core->dead_foreign);
    free(core->storage_ids);
    free(core->op_table);
    free(core->ghosts);
    free(core->collected);
    free(core->looked_up);
    free(core->looked_up_hashes);
    free(core->policy_state);
    free(core);
}

const uint8_t *master_core_instance(const struct master_core *core)
{
    return core->instance;
}

void master_send(struct master_core *core, uint64_t connection, uint64_t request_id, uint16_t kind,
                 const void *msg)
{
    if (core->sink == NULL)
        return;
    base_buf_clear(&core->out);
    if (wire_encode(kind, msg, &core->out) != YOLK_OK) {
        struct wire_status_reply error = {.status = YOLK_ERR_TOO_LARGE,
                                          .text = wire_view_text(yolk_last_error())};
        if (request_id == 0 || wire_encode(WIRE_ERROR, &error, &core->out) != YOLK_OK)
            return;
        kind = WIRE_ERROR;
    }
    core->sink->send(core->sink->self, connection, kind, request_id, core->out.data,
                     core->out.size);
}

void master_reply(struct master_core *core, uint16_t kind, const void *msg)
{
    master_send(core, core->connection, core->request_id, kind, msg);
}

/* Each reply's struct begins with its status; the rest is left empty. */
void master_reply_status(struct master_core *core, uint16_t kind, enum yolk_status status,
                         const char *text)
{
    union wire_any reply;
    int32_t code = status;
    memset(&reply, 0, sizeof reply);
    memcpy(&reply, &code, sizeof code);
    if (kind == WIRE_HEARTBEAT_REPLY || kind == WIRE_SESSION_CLOSE_REPLY ||
        kind == WIRE_SEGMENT_UNMOUNT_REPLY)
        reply.status_reply.text = wire_view_text(text);
    else if (kind == WIRE_SESSION_OPEN_REPLY)
        reply.session_open_reply.text = wire_view_text(text);
    master_reply(core, kind, &reply);
}

/* Time seen by the core never goes back. When nobody called for long, the master stood still, and
 * what clients sent meanwhile may still wait in a socket: their silence is not counted. */
static void advance(struct master_core *core, uint64_t now_ns)
{
    if (now_ns < core->now)
        now_ns = core->now;
    uint64_t gap = now_ns - core->last_call;
    if (gap > master_ms(core->config.stall_ms)) {
        gap -= master_ms(TICK_MS < core->config.stall_ms ? TICK_MS : core->config.stall_ms);
        core->stats.stalls++;
        core->stats.stall_ns += gap;
        BASE_LIST_FOREACH(node, &core->sessions)
        {
            struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
            session->last_seen += gap;
            if (session->last_seen > now_ns)
                session->last_seen = now_ns;
        }
    }
    core->now = core->last_call = now_ns;
}

static void perform(struct master_core *core, uint16_t kind, const union wire_any *msg)
{
#define CASE(KIND, function)                                                                       \
    case KIND:                                                                                     \
        function(core, (const void *)msg);                                                         \
        break
    switch (kind) {
        CASE(WIRE_SESSION_OPEN, master_session_open);
        CASE(WIRE_HEARTBEAT, master_session_heartbeat);
        CASE(WIRE_SESSION_CLOSE, master_session_close);
        CASE(WIRE_SEGMENT_MOUNT, master_segment_mount);
        CASE(WIRE_SEGMENT_UNMOUNT, master_segment_unmount);
        CASE(WIRE_SEGMENT_INFO, master_segment_info);
        CASE(WIRE_MIRROR_OFFER, master_mirror_offer);
        CASE(WIRE_EXIST, master_exist);
        CASE(WIRE_GET_START, master_get_start);
        CASE(WIRE_PUT_START, master_put_start);
        CASE(WIRE_PUT_END, master_put_end);
        CASE(WIRE_PUT_REVOKE, master_put_revoke);
        CASE(WIRE_REMOVE, master_remove);
        CASE(WIRE_REMOVE_ALL, master_remove_all);
        CASE(WIRE_LIST, master_list);
        CASE(WIRE_STAT, master_stat);
        CASE(WIRE_RENEW, master_renew);
        CASE(WIRE_REPLICA_BAD, master_replica_bad);
        CASE(WIRE_REPLICA_CLEAR, master_replica_clear);
        CASE(WIRE_GDS_ROOM, master_gds_room);
        CASE(WIRE_FACTS_ACK, master_facts_ack);
        CASE(WIRE_TASKS_DONE, master_tasks_done);
        CASE(WIRE_FENCED, master_fenced);
    default:
        break;
    }
#undef CASE
}

static bool is_ours(uint16_t kind)
{
    return (kind >= WIRE_SESSION_OPEN && kind <= WIRE_GDS_ROOM && kind % 2 == 0 &&
            wire_kind_info(kind) != NULL) ||
           kind == WIRE_FACTS_ACK || kind == WIRE_FENCED || kind == WIRE_TASKS_DONE;
}

enum yolk_status master_core_input(struct master_core *core, uint64_t now_ns, uint64_t connection,
                                   const struct wire_header *header, const uint8_t *body,
                                   const struct master_sink *sink)
{
    union wire_any msg;
    enum yolk_status status = YOLK_OK;
    advance(core, now_ns);
    core->sink = sink;
    core->connection = connection;
    core->request_id = header->request_id;
    if (is_ours(header->kind))
        status = wire_decode(header->kind, body, header->body_size, &msg);
    else
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0,
                           "a master performs no message of kind %u (%s): only requests of clients",
                           header->kind, wire_kind_name(header->kind));
    if (status != YOLK_OK) {
        struct wire_status_reply error = {.status = status,
                                          .text = wire_view_text(yolk_last_error())};
        core->stats.requests_bad++;
        master_reply(core, WIRE_ERROR, &error);
        core->sink = NULL;
        return status;
    }
    core->stats.requests++;
    perform(core, header->kind, &msg);
    master_facts_flush(core);
    core->sink = NULL;
    return YOLK_OK;
}

uint64_t master_core_tick(struct master_core *core, uint64_t now_ns, const struct master_sink *sink)
{
    advance(core, now_ns);
    core->sink = sink;
    master_guards_tick(core);
    master_puts_tick(core);
    master_pins_tick(core);
    master_sessions_tick(core);
    bool more = master_jobs_tick(core);
    BASE_LIST_FOREACH_SAFE(node, &core->segments)
    more |= master_segment_tick(core, BASE_CONTAINER(node, struct master_segment, link));
    master_facts_flush(core);
    core->sink = NULL;
    return more ? core->now : core->now + master_ms(TICK_MS);
}

void master_core_disconnect(struct master_core *core, uint64_t now_ns, uint64_t connection,
                            const struct master_sink *sink)
{
    (void)sink;
    advance(core, now_ns);
    BASE_LIST_FOREACH(node, &core->sessions)
    {
        struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        if (session->connected && session->connection == connection)
            session->connected = false;
    }
}
