/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the owners of segments are told: placements, sessions, fences. Facts go in numbered batches,
 * at most `fact_window` of them without an answer; a batch is kept and repeated byte for byte until
 * it is answered. An owner that does not answer costs nothing but the space that stays unclean.
 */
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Pushed at the end of the running call, so that one batch carries all of it. */
void master_facts_dirty(struct master_segment *segment)
{
    if (base_list_empty(&segment->dirty_link))
        base_list_push_back(segment->dirty_head, &segment->dirty_link);
}

void master_facts_flush(struct master_core *core)
{
    struct base_list *node, now;
    base_list_init(&now);
    while ((node = base_list_pop_front(&core->dirty)) != NULL)
        base_list_push_back(&now, node);
    /* What finds no memory is dirty again: in the next turn, or this one might never end. */
    while ((node = base_list_pop_front(&now)) != NULL) {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, dirty_link);
        if (!master_facts_push(core, segment))
            master_facts_dirty(segment);
        master_tier_push(core, segment);
    }
}

void master_fact_placed(struct master_extent *extent)
{
    base_list_push_back(&extent->segment->queue, &extent->fact);
    extent->fact_state = FACT_PLACED_QUEUED;
    master_facts_dirty(extent->segment);
}

static void fact_session_to(struct master_segment *segment, uint64_t session, uint8_t kind)
{
    master_facts_dirty(segment);
    /* What was not sent yet is overtaken: the owner needs only the last word on a session. */
    for (uint32_t i = 0; i < segment->session_fact_count; i++)
        if (segment->session_facts[i].session == session) {
            segment->session_facts[i].kind = kind;
            return;
        }
    if (segment->session_fact_count == segment->session_fact_room) {
        uint32_t room = segment->session_fact_room ? segment->session_fact_room * 2 : 16;
        void *grown = base_realloc(segment->session_facts, room * sizeof *segment->session_facts);
        if (grown == NULL) {
            segment->sessions_untold = true;
            return;
        }
        segment->session_facts = grown;
        segment->session_fact_room = room;
    }
    segment->session_facts[segment->session_fact_count].kind = kind;
    segment->session_facts[segment->session_fact_count++].session = session;
}

void master_fact_session(struct master_core *core, uint64_t session, uint8_t kind)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->owner != NULL && !master_segment_is_disk(segment))
            fact_session_to(segment, session, kind);
    }
}

static bool opens_untold(const struct master_segment *segment)
{
    for (uint32_t i = 0; i < segment->session_fact_count; i++)
        if (segment->session_facts[i].kind == WIRE_FACT_SESSION_OPEN)
            return true;
    return segment->sessions_untold;
}

/* A later master waits for the sessions the owner names. So the owner must know of a session before
 * that is given space: or a stopped writer would be forgotten, and its extent reused under it. */
bool master_segment_knows_sessions(const struct master_segment *segment)
{
    struct base_list *first = base_list_first(&segment->batches);
    return !opens_untold(segment) &&
           (first == NULL ||
            BASE_CONTAINER(first, struct master_batch, link)->seq > segment->session_seq);
}

void master_facts_sessions(struct master_core *core, struct master_segment *segment)
{
    segment->sessions_untold = false;
    BASE_LIST_FOREACH(node, &core->sessions)
    {
        const struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        fact_session_to(segment, session->id, WIRE_FACT_SESSION_OPEN);
    }
}

static struct wire_view fact_key(void *arg, uint32_t i)
{
    return ((const struct wire_view *)arg)[i];
}

/* Fills recs (list[0]) and the keys; moves the records on to "sent", but for the first *sessions,
 * which are facts of sessions. */
static uint32_t collect(struct master_core *core, struct master_segment *segment,
                        struct wire_view *keys, uint32_t *sessions)
{
    struct base_buf *recs = &core->list[0];
    base_buf_clear(recs);
    uint32_t count = 0, max = core->config.fact_batch, taken = 0;
    while (taken < segment->session_fact_count && count < max) {
        struct wire_fact rec = {.kind = segment->session_facts[taken].kind,
                                .session = segment->session_facts[taken].session};
        if (wire_fact_append(recs, &rec) != YOLK_OK)
            break;
        keys[count++] = (struct wire_view){0};
        taken++;
    }
    *sessions = taken;
    size_t bytes = 0;
    while (count < max && bytes < MAX_KEYS_BYTES / 8) {
        struct base_list *node = base_list_first(&segment->queue);
        if (node == NULL)
            break;
        struct master_extent *extent = BASE_CONTAINER(node, struct master_extent, fact);
        bool placed = extent->fact_state == FACT_PLACED_QUEUED;
        struct wire_fact rec = {.kind = placed ? WIRE_FACT_PLACED : WIRE_FACT_FREED,
                                .offset = master_extent_offset(extent),
                                .size = placed ? extent->object->size : master_extent_size(extent)};
        if (placed && extent->object->pin == PIN_HARD)
            rec.session = WIRE_FACT_HARD_PIN;
        if (wire_fact_append(recs, &rec) != YOLK_OK)
            break;
        base_list_remove(node);
        if (placed) {
            keys[count] = wire_view_of(extent->object->key, extent->object->entry.key_size);
            bytes += keys[count].size;
            extent->fact_state = FACT_PLACED_SENT;
        } else {
            keys[count] = (struct wire_view){0};
            extent->fact_state = FACT_FREED_SENT;
            extent->freed_seq = segment->seq + 1;
            base_list_push_back(&segment->freed, &extent->fact);
        }
        count++;
    }
    return count;
}

/* The batch that was being made is not sent: its freed records wait again, or an answer to the next
 * batch would pass for theirs. Its placed ones are missing from the owner's mirror then: cached
 * data, no promise. */
static void take_back(struct master_segment *segment)
{
    for (;;) {
        struct base_list *node = segment->freed.prev;
        if (node == &segment->freed)
            return;
        struct master_extent *extent = BASE_CONTAINER(node, struct master_extent, fact);
        if (extent->freed_seq != segment->seq + 1)
            return;
        base_list_remove(node);
        base_list_push_front(&segment->queue, node);
        extent->fact_state = FACT_FREED_QUEUED;
    }
}

static bool push_one(struct master_core *core, struct master_segment *segment)
{
    struct wire_view *keys = base_malloc(core->config.fact_batch * sizeof *keys);
    if (keys == NULL)
        return false;
    base_buf_clear(&core->list[1]);
    base_buf_clear(&core->out);
    bool tells_opens = opens_untold(segment);
    uint32_t sessions, count = collect(core, segment, keys, &sessions);
    struct wire_facts msg = {.segment = segment->id, .seq = segment->seq + 1};
    bool ok = wire_keys_build_by(&core->list[1], count, fact_key, keys) == YOLK_OK;
    free(keys);
    msg.recs = wire_view_buf(&core->list[0]);
    msg.keys = wire_view_buf(&core->list[1]);
    ok = ok && wire_encode(WIRE_FACTS, &msg, &core->out) == YOLK_OK;
    struct master_batch *batch = ok ? base_malloc(sizeof *batch + core->out.size) : NULL;
    if (batch == NULL) {
        take_back(segment);
        return false;
    }
    if (sessions > 0) {
        segment->session_fact_count -= sessions;
        memmove(segment->session_facts, segment->session_facts + sessions,
                segment->session_fact_count * sizeof *segment->session_facts);
    }
    segment->seq++;
    if (tells_opens)
        segment->session_seq = segment->seq;
    batch->seq = segment->seq;
    batch->sent_at = core->now;
    batch->size = core->out.size;
    memcpy(batch->body, core->out.data, core->out.size);
    base_list_push_back(&segment->batches, &batch->link);
    segment->batch_count++;
    core->stats.facts_sent += count;
    core->sink->send(core->sink->self, segment->owner->connection, WIRE_FACTS, 0, batch->body,
                     batch->size);
    return true;
}

bool master_facts_push(struct master_core *core, struct master_segment *segment)
{
    if (segment->sessions_untold)
        master_facts_sessions(core, segment);
    while (core->sink != NULL && segment->owner != NULL && segment->owner->connected &&
           segment->batch_count < core->config.fact_window &&
           (segment->session_fact_count > 0 || !base_list_empty(&segment->queue)))
        if (!push_one(core, segment))
            return false;
    return !segment->sessions_untold;
}

static void drop_batches(struct master_segment *segment, uint64_t up_to)
{
    BASE_LIST_FOREACH_SAFE(node, &segment->batches)
    {
        struct master_batch *batch = BASE_CONTAINER(node, struct master_batch, link);
        if (batch->seq > up_to)
            return;
        base_list_remove(node);
        segment->batch_count--;
        free(batch);
    }
}

void master_facts_restart(struct master_segment *segment)
{
    drop_batches(segment, UINT64_MAX);
    segment->seq = 0;
    segment->session_fact_count = 0;
    segment->session_seq = 0;
    segment->sessions_untold = false;
    /* Freed ones without an answer are told again, before anything newer. */
    while (!base_list_empty(&segment->freed)) {
        struct base_list *node = segment->freed.prev;
        BASE_CONTAINER(node, struct master_extent, fact)->fact_state = FACT_FREED_QUEUED;
        base_list_remove(node);
        base_list_push_front(&segment->queue, node);
    }
}

void master_facts_void(struct master_core *core, struct master_segment *segment)
{
    struct base_list *node;
    while ((node = base_list_pop_front(&segment->queue)) != NULL) {
        struct master_extent *extent = BASE_CONTAINER(node, struct master_extent, fact);
        extent->fact_state = FACT_NONE;
        master_extent_settle(core, extent);
    }
}

void master_facts_resend(struct master_core *core, struct master_segment *segment, bool at_once)
{
    if (segment->owner == NULL || !segment->owner->connected)
        return;
    struct base_list *first = base_list_first(&segment->batches);
    if (first == NULL)
        return;
    uint64_t age = core->now - BASE_CONTAINER(first, struct master_batch, link)->sent_at;
    if (!at_once && age < master_ms(core->config.resend_ms))
        return;
    BASE_LIST_FOREACH(node, &segment->batches)
    {
        struct master_batch *batch = BASE_CONTAINER(node, struct master_batch, link);
        batch->sent_at = core->now;
        core->sink->send(core->sink->self, segment->owner->connection, WIRE_FACTS, 0, batch->body,
                         batch->size);
    }
}

struct master_segment *master_segment_owned(const struct master_core *core, uint64_t id)
{
    struct master_segment *segment = master_segment_find(core, id);
    if (segment == NULL || segment->owner == NULL || !segment->owner->connected ||
        segment->owner->connection != core->connection)
        return NULL;
    return segment;
}

void master_facts_ack(struct master_core *core, const struct wire_facts_ack *msg)
{
    struct master_segment *segment = master_segment_owned(core, msg->segment);
    if (segment == NULL || msg->seq > segment->seq)
        return;
    bool freed = false;
    drop_batches(segment, msg->seq);
    BASE_LIST_FOREACH_SAFE(node, &segment->freed)
    {
        struct master_extent *extent = BASE_CONTAINER(node, struct master_extent, fact);
        if (extent->freed_seq > msg->seq)
            break;
        base_list_remove(node);
        extent->fact_state = FACT_NONE;
        master_extent_settle(core, extent);
        freed = true;
    }
    if (freed && master_segment_is_disk(segment))
        master_tier_room(core, segment);
    master_facts_dirty(segment);
}

void master_fence_add(struct master_core *core, struct master_segment *segment, uint64_t session)
{
    BASE_LIST_FOREACH(node, &segment->fences)
    if (BASE_CONTAINER(node, struct master_fence, link)->session == session)
        return;
    struct master_fence *fence = base_calloc(1, sizeof *fence);
    if (fence == NULL)
        return; /* asked for again by the next tick of its session */
    fence->session = session;
    base_list_push_back(&segment->fences, &fence->link);
    master_fence_push(core, segment, false);
}

void master_fence_push(struct master_core *core, struct master_segment *segment, bool at_once)
{
    if (segment->owner == NULL || !segment->owner->connected || core->sink == NULL)
        return;
    BASE_LIST_FOREACH(node, &segment->fences)
    {
        struct master_fence *fence = BASE_CONTAINER(node, struct master_fence, link);
        if (!at_once && fence->next_send > core->now)
            continue;
        struct wire_fence msg = {.segment = segment->id, .fenced_session = fence->session};
        fence->next_send = core->now + master_ms(core->config.resend_ms);
        master_send(core, segment->owner->connection, 0, WIRE_FENCE, &msg);
    }
}

void master_fenced(struct master_core *core, const struct wire_fence *msg)
{
    struct master_segment *segment = master_segment_owned(core, msg->segment);
    if (segment == NULL)
        return;
    struct master_fence *found = NULL;
    BASE_LIST_FOREACH(node, &segment->fences)
    {
        struct master_fence *fence = BASE_CONTAINER(node, struct master_fence, link);
        if (fence->session == msg->fenced_session)
            found = fence;
    }
    if (found == NULL)
        return; /* nobody asked, or answered before */
    base_list_remove(&found->link);
    free(found);
    core->stats.fences++;
    master_session_bury(core, msg->fenced_session);
    for (uint32_t i = 0; i < segment->wait_count; i++)
        if (segment->waits[i].session == msg->fenced_session)
            segment->waits[i].fenced = true;
    struct master_session *session = master_session_find(core, msg->fenced_session);
    if (session != NULL && session->zombie) {
        master_session_fenced(core, session, segment);
        master_session_reap(core, session);
    }
    master_segment_try_open(core, segment);
}
