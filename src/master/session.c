/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: who is alive, what is held across a change of master, and what a session that is gone
 * leaves behind. */
#include "base/alloc.h"
#include "base/hash.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

#define DEAD_FOREIGN_MAX 65536u

static struct master_session **slot_of(struct master_core *core, uint64_t id)
{
    struct master_session **at = &core->session_table[base_mix64(id) % 4096];
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->hash_next;
    return at;
}

struct master_session *master_session_find(const struct master_core *core, uint64_t id)
{
    struct master_session *session = core->session_table[base_mix64(id) % 4096];
    while (session != NULL && session->id != id)
        session = session->hash_next;
    return session;
}

static void heard(struct master_core *core, struct master_session *session, bool control)
{
    session->last_seen = core->now;
    if (!control)
        return;
    bool fresh = !session->connected || session->connection != core->connection;
    session->connection = core->connection;
    session->connected = true;
    if (!fresh)
        return;
    /* What the old connection may have lost is said again. */
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->owner != session)
            continue;
        master_facts_resend(core, segment, true);
        master_tier_resend(core, segment, true);
        master_fence_push(core, segment, true);
        master_facts_dirty(segment);
    }
}

static void apply_floor(struct master_core *core, struct master_session *session,
                        const struct wire_request *request)
{
    if (request->floor > session->floor) {
        session->floor = request->floor;
        BASE_LIST_FOREACH_SAFE(node, &session->ops)
        {
            struct master_op *op = BASE_CONTAINER(node, struct master_op, session_link);
            if (op->op >= session->floor)
                break;
            master_op_end(core, op);
        }
    }
    for (uint32_t i = 0; i < wire_u64s_count(request->done); i++) {
        uint64_t number = wire_u64s_at(request->done, i);
        struct master_op *op = number == request->op ? NULL : master_op_find(core, session, number);
        if (op != NULL)
            master_op_end(core, op);
    }
}

struct master_session *master_session_enter(struct master_core *core,
                                            const struct wire_request *request, uint16_t reply_kind)
{
    struct master_session *session = master_session_find(core, request->session);
    if (session == NULL || session->zombie) {
        core->stats.requests_stale++;
        master_reply_status(core, reply_kind, YOLK_ERR_STALE, "no such session");
        return NULL;
    }
    session->last_seen = core->now;
    apply_floor(core, session, request);
    if (request->op != 0 && request->op < session->floor) {
        core->stats.requests_stale++;
        master_reply_status(core, reply_kind, YOLK_ERR_STALE, "operation below the floor");
        return NULL;
    }
    return session;
}

static bool foreign_dead(const struct master_core *core, uint64_t id)
{
    for (uint32_t i = 0; i < core->dead_foreign_count; i++)
        if (core->dead_foreign[i] == id)
            return true;
    return core->dead_foreign_count == DEAD_FOREIGN_MAX;
}

static bool is_foreign(const struct master_core *core, uint64_t id)
{
    return id != 0 && (id >> 40) != core->id_tag;
}

/* Some owner refuses this session from now on, or will. */
static bool fence_asked(const struct master_core *core, uint64_t id)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        BASE_LIST_FOREACH(link, &segment->fences)
        if (BASE_CONTAINER(link, struct master_fence, link)->session == id)
            return true;
        for (uint32_t i = 0; i < segment->wait_count; i++)
            if (segment->waits[i].session == id && segment->waits[i].fenced)
                return true;
    }
    return false;
}

void master_session_bury(struct master_core *core, uint64_t id)
{
    if (!is_foreign(core, id) || foreign_dead(core, id))
        return;
    if ((core->dead_foreign_count & (core->dead_foreign_count - 1)) == 0) {
        uint32_t room = core->dead_foreign_count ? core->dead_foreign_count * 2 : 1;
        uint64_t *grown = base_realloc(core->dead_foreign, room * sizeof(uint64_t));
        if (grown == NULL)
            return;
        core->dead_foreign = grown;
    }
    core->dead_foreign[core->dead_foreign_count++] = id;
}

static struct master_session *session_create(struct master_core *core, uint64_t id,
                                             const struct wire_session_open *msg,
                                             struct master_tenant *tenant)
{
    struct master_session *session = base_calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->id = id;
    memcpy(session->client_id, msg->client_id, WIRE_ID_SIZE);
    session->generation = msg->generation;
    session->floor = msg->request.floor;
    session->tenant = tenant;
    base_list_init(&session->ops);
    base_list_push_back(&core->sessions, &session->link);
    *slot_of(core, id) = session;
    core->session_count++;
    core->stats.sessions_opened++;
    return session;
}

static void session_free(struct master_core *core, struct master_session *session)
{
    struct master_session **at = slot_of(core, session->id);
    *at = session->hash_next;
    base_list_remove(&session->link);
    if (session->zombie)
        core->zombie_count--;
    else
        core->session_count--;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        BASE_LIST_FOREACH_SAFE(link, &segment->fences)
        {
            struct master_fence *fence = BASE_CONTAINER(link, struct master_fence, link);
            if (fence->session != session->id)
                continue;
            bool waited = false; /* an opening segment may need the answer all the same */
            for (uint32_t i = 0; i < segment->wait_count; i++)
                waited |= segment->waits[i].session == session->id && !segment->waits[i].fenced;
            if (waited)
                continue;
            base_list_remove(link);
            free(fence);
        }
    }
    master_session_bury(core, session->id);
    free(session->held);
    free(session);
}

static enum yolk_status hold(struct master_core *core, struct master_op *op,
                             struct master_extent *extent)
{
    enum yolk_status status = master_op_guard(core, op, extent);
    if (status != YOLK_OK)
        master_extent_settle(core, extent);
    return status;
}

/* All that lies in the range is guarded, and where nothing is known to lie, a recovering segment
 * keeps the range free: whatever the client may touch there is not given to others. */
static enum yolk_status held_one(struct master_core *core, struct master_session *session,
                                 struct master_segment *segment, const struct master_held *held)
{
    uint64_t at = held->offset / BASE_EXTENTS_UNIT * BASE_EXTENTS_UNIT;
    if (held->op < session->floor || held->size == 0 || at >= segment->size)
        return YOLK_OK;
    uint64_t end = held->size > segment->size - at ? segment->size : held->offset + held->size;
    struct master_op *op = master_op_get(core, session, held->op);
    enum yolk_status status = op == NULL ? YOLK_ERR_LIMIT : YOLK_OK;
    while (status == YOLK_OK && at < end) {
        uint32_t handle = base_extents_seek(segment->alloc, at);
        struct master_extent *extent =
            handle == BASE_EXTENTS_NONE ? NULL : base_extents_owner(segment->alloc, handle);
        uint64_t start = extent == NULL ? end : master_extent_offset(extent);
        start = start < end ? start : end;
        if (start > at && segment->state == SEGMENT_RECOVERING) {
            struct master_extent *gap = master_extent_reserve(segment, at, start - at, EXTENT_DEAD);
            status = gap == NULL ? YOLK_ERR_NO_MEMORY : hold(core, op, gap);
        }
        if (start == end)
            break;
        at = start + master_extent_size(extent);
        if (status == YOLK_OK)
            status = hold(core, op, extent);
    }
    if (op != NULL && op->item_count > 0) {
        op->pinned = true; /* whether it reads, writes or pins is not known: only its end by message
                              counts */
        base_list_remove(&op->ttl_link);
    }
    if (op != NULL)
        master_op_reap(core, op);
    return status;
}

/* A record names the segment as it was when the space was granted. Its slot alone tells that it is
 * an older id of the same memory, or perhaps of other memory: such records count here and are kept
 * for a mount yet to come. */
enum yolk_status master_held_apply(struct master_core *core, struct master_session *session,
                                   struct master_segment *segment, uint64_t old_id)
{
    enum yolk_status status = YOLK_OK;
    uint32_t kept = 0;
    if (master_segment_is_disk(segment)) /* there the owner refuses a reader that comes too late */
        return YOLK_OK;
    for (uint32_t i = 0; i < session->held_count; i++) {
        struct master_held held = session->held[i];
        if (held.segment >> 32 == old_id >> 32) {
            enum yolk_status one = held_one(core, session, segment, &held);
            status = one != YOLK_OK ? one : status;
        }
        if (held.segment != old_id)
            session->held[kept++] = held;
    }
    session->held_count = kept;
    return status;
}

static enum yolk_status take_held(struct master_core *core, struct master_session *session,
                                  const struct wire_session_open *msg)
{
    uint32_t count = wire_held_count(msg->held);
    if (count == 0)
        return YOLK_OK;
    session->held = base_malloc(count * sizeof *session->held);
    if (session->held == NULL)
        return YOLK_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        struct wire_held rec = wire_held_at(msg->held, i);
        session->held[i] = (struct master_held){rec.seg_generation, rec.offset, rec.size, rec.op};
    }
    session->held_count = count;
    enum yolk_status status = YOLK_OK;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->state == SEGMENT_GONE)
            continue;
        enum yolk_status one = master_held_apply(core, session, segment, segment->id);
        if (one == YOLK_OK && segment->prior_id != 0)
            one = master_held_apply(core, session, segment, segment->prior_id);
        status = one != YOLK_OK ? one : status;
    }
    return status;
}

static void answer_open(struct master_core *core, const struct master_session *session)
{
    struct wire_session_open_reply reply = {.session = session->id,
                                            .lease_ttl_ms = core->config.lease_ttl_ms,
                                            .put_timeout_ms = core->config.put_timeout_ms,
                                            .heartbeat_ms = core->config.heartbeat_ms,
                                            .session_ttl_ms = core->config.session_ttl_ms};
    memcpy(reply.master_instance, core->instance, WIRE_ID_SIZE);
    master_reply(core, WIRE_SESSION_OPEN_REPLY, &reply);
}

static void registered(struct master_core *core, uint64_t old_id)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        for (uint32_t i = 0; i < segment->wait_count; i++)
            if (segment->waits[i].session == old_id)
                segment->waits[i].registered = true;
        master_segment_try_open(core, segment);
    }
}

/* The live session of the same client, if any: the message repeats its opening, or ends it. */
static struct master_session *same_client(struct master_core *core,
                                          const struct wire_session_open *msg)
{
    BASE_LIST_FOREACH(node, &core->sessions)
    {
        struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        if (memcmp(session->client_id, msg->client_id, WIRE_ID_SIZE) == 0)
            return session;
    }
    return NULL;
}

void master_session_open(struct master_core *core, const struct wire_session_open *msg)
{
    if (wire_held_count(msg->held) > core->config.max_held) {
        master_reply_status(core, WIRE_SESSION_OPEN_REPLY, YOLK_ERR_LIMIT, "too many held extents");
        return;
    }
    const char *why;
    struct master_tenant *tenant = master_tenant_admit(core, msg->tenant, &why);
    if (tenant == NULL) {
        master_reply_status(core, WIRE_SESSION_OPEN_REPLY, YOLK_ERR_NO_TENANT, why);
        return;
    }
    struct master_session *session = same_client(core, msg);
    if (session != NULL) {
        /* A client counts its openings: the same number is the same message again. */
        if (msg->generation == session->generation) {
            heard(core, session, true);
            apply_floor(core, session, &msg->request);
            answer_open(core, session);
            return;
        }
        if (msg->generation < session->generation) {
            master_reply_status(core, WIRE_SESSION_OPEN_REPLY, YOLK_ERR_STALE,
                                "an earlier life of this client");
            return;
        }
        master_session_expire(core, session);
    }
    if (core->session_count + core->zombie_count >= core->config.max_sessions) {
        master_reply_status(core, WIRE_SESSION_OPEN_REPLY, YOLK_ERR_LIMIT, "too many sessions");
        return;
    }
    uint64_t id = msg->request.session;
    if (!is_foreign(core, id) || foreign_dead(core, id) || fence_asked(core, id) ||
        master_session_find(core, id) != NULL)
        do
            id = core->id_tag << 40 | (master_random(core) >> 24);
        while ((id & 0xffffffffffull) == 0 || master_session_find(core, id) != NULL);
    session = session_create(core, id, msg, tenant);
    if (session == NULL) {
        master_reply_status(core, WIRE_SESSION_OPEN_REPLY, YOLK_ERR_NO_MEMORY, "");
        return;
    }
    enum yolk_status status = take_held(core, session, msg);
    heard(core, session, true);
    if (status != YOLK_OK) {
        /* What could not be taken over must not be touched by it: its end comes by time and fence.
         */
        master_session_expire(core, session);
        master_reply_status(core, WIRE_SESSION_OPEN_REPLY, status,
                            "held extents cannot be taken over");
        return;
    }
    answer_open(core, session);
    master_fact_session(core, id, WIRE_FACT_SESSION_OPEN);
    if (msg->request.session != 0)
        registered(core, msg->request.session);
}

void master_session_heartbeat(struct master_core *core, const struct wire_plain_request *msg)
{
    struct master_session *session =
        master_session_enter(core, &msg->request, WIRE_HEARTBEAT_REPLY);
    if (session == NULL)
        return;
    heard(core, session, true);
    master_reply_status(core, WIRE_HEARTBEAT_REPLY, YOLK_OK, "");
}

/* Fences of what a gone session may still write or keeps mapped. Without an owner to ask, the
 * memory is not used again by us, so there is nothing to wait for. */
static void ask_fences(struct master_core *core, struct master_session *session)
{
    BASE_LIST_FOREACH_SAFE(node, &session->ops)
    {
        struct master_op *op = BASE_CONTAINER(node, struct master_op, session_link);
        for (uint32_t i = 0; op->pinned && i < op->item_count; i++)
            if (op->items[i]->segment->state != SEGMENT_GONE)
                master_fence_add(core, op->items[i]->segment, session->id);
        BASE_LIST_FOREACH(link, &op->puts)
        {
            struct master_put *put = BASE_CONTAINER(link, struct master_put, op_link);
            for (uint32_t i = 0; i < put->extent_count; i++)
                if (put->extents[i]->segment->state != SEGMENT_GONE)
                    master_fence_add(core, put->extents[i]->segment, session->id);
        }
    }
    session->next_fence = core->now + master_ms(core->config.resend_ms);
}

void master_session_fenced(struct master_core *core, struct master_session *session,
                           struct master_segment *segment)
{
    BASE_LIST_FOREACH_SAFE(node, &session->ops)
    {
        struct master_op *op = BASE_CONTAINER(node, struct master_op, session_link);
        uint32_t kept = 0, count = op->pinned ? op->item_count : 0;
        for (uint32_t i = 0; i < count; i++) {
            struct master_extent *extent = op->items[i];
            if (extent->segment == segment) {
                core->guard_count--;
                master_extent_unref(core, extent);
            } else {
                op->items[kept++] = extent;
            }
        }
        if (op->pinned)
            op->item_count = kept;
        BASE_LIST_FOREACH(link, &op->puts)
        {
            struct master_put *put = BASE_CONTAINER(link, struct master_put, op_link);
            for (uint32_t i = put->extent_count; i-- > 0;)
                if (put->extents[i]->segment == segment)
                    master_extent_writer_done(core, put->extents[i]);
        }
        master_op_reap(core, op);
    }
}

void master_session_reap(struct master_core *core, struct master_session *session)
{
    if (!session->zombie || session->op_count > 0)
        return;
    /* Only now: until its writers are fenced, a later master has to hear of it from the owners. */
    master_fact_session(core, session->id, WIRE_FACT_SESSION_GONE);
    session_free(core, session);
}

/* Its segments have no owner any more. */
static void leave_segments(struct master_core *core, struct master_session *session, bool for_good)
{
    BASE_LIST_FOREACH_SAFE(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->owner != session)
            continue;
        if (for_good && !master_segment_is_disk(segment))
            master_segment_go(core, segment);
        else
            master_segment_lose(core, segment);
    }
}

/* Into a file only its owner writes, who is told when to stop by the end of its mount. */
static void quit_files(struct master_core *core, struct master_put *put)
{
    for (uint32_t i = put->extent_count; i-- > 0;)
        if (master_segment_is_disk(put->extents[i]->segment))
            master_extent_writer_done(core, put->extents[i]);
}

/* A pin is for memory that is mapped; of a disk nothing is. */
static void unpin_disks(struct master_core *core, struct master_op *op)
{
    uint32_t kept = 0, count = op->item_count;
    for (uint32_t i = 0; i < count; i++) {
        struct master_extent *extent = op->items[i];
        if (master_segment_is_disk(extent->segment)) {
            core->guard_count--;
            master_extent_unref(core, extent);
        } else {
            op->items[kept++] = extent;
        }
    }
    op->item_count = kept;
}

static void make_zombie(struct master_core *core, struct master_session *session)
{
    session->zombie = true;
    session->connected = false;
    base_list_remove(&session->link);
    base_list_push_back(&core->zombies, &session->link);
    core->session_count--;
    core->zombie_count++;
    BASE_LIST_FOREACH_SAFE(node, &session->ops)
    {
        struct master_op *op = BASE_CONTAINER(node, struct master_op, session_link);
        BASE_LIST_FOREACH(link, &op->puts)
        {
            struct master_put *put = BASE_CONTAINER(link, struct master_put, op_link);
            master_put_expire(core, put);
            quit_files(core, put);
        }
        if (op->pinned)
            unpin_disks(core, op);
        master_op_reap(core, op);
    }
}

void master_session_expire(struct master_core *core, struct master_session *session)
{
    core->stats.sessions_expired++;
    if (session->connected) {
        struct wire_session_lost msg = {.session = session->id};
        master_send(core, session->connection, 0, WIRE_SESSION_LOST, &msg);
    }
    make_zombie(core, session);
    leave_segments(core, session, false);
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->state == SEGMENT_GONE)
            master_session_fenced(core, session, segment);
    }
    ask_fences(core, session);
    master_session_reap(core, session);
}

void master_session_close(struct master_core *core, const struct wire_plain_request *msg)
{
    struct master_session *session = master_session_find(core, msg->request.session);
    if (session == NULL || session->zombie) {
        master_reply_status(core, WIRE_SESSION_CLOSE_REPLY, YOLK_OK, "closed before");
        return;
    }
    /* A client closes only when its memory is quiet: the same word as that of REVOKE. */
    while (!base_list_empty(&session->ops))
        master_op_end(core, BASE_CONTAINER(session->ops.next, struct master_op, session_link));
    master_reply_status(core, WIRE_SESSION_CLOSE_REPLY, YOLK_OK, "");
    make_zombie(core, session);
    leave_segments(core, session, true);
    master_session_reap(core, session);
}

void master_sessions_tick(struct master_core *core)
{
    uint64_t ttl = master_ms(core->config.session_ttl_ms);
    BASE_LIST_FOREACH_SAFE(node, &core->sessions)
    {
        struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        if (core->now - session->last_seen >= ttl)
            master_session_expire(core, session);
    }
    BASE_LIST_FOREACH_SAFE(node, &core->zombies)
    {
        struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        if (session->next_fence <= core->now)
            ask_fences(core, session);
        master_session_reap(core, session);
    }
}
