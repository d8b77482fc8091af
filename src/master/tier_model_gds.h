/* SPDX-License-Identifier: Apache-2.0 */
/* The GDS files of tier_model.h's nodes: each node writes values of its own into its file. */
#ifndef YOLK_MASTER_TIER_MODEL_GDS_H
#define YOLK_MASTER_TIER_MODEL_GDS_H

#include "master/tier_model.h"

static uint8_t gds_storage(const struct node *node)
{
    return (uint8_t)(100 + (node - w.nodes));
}

/* As the owner has it. */
static struct wire_gds gds_at(const struct node *node, uint32_t slot, uint64_t size)
{
    struct wire_gds gds = {.storage_generation = node->gds_generation,
                           .value_offset = slot * (uint64_t)BLOCK,
                           .value_size = size,
                           .allocated_size = BLOCK};
    gds.owner_client_id[0] = node->client;
    gds.storage_id[0] = gds_storage(node);
    return gds;
}

/* ---- what the owner is told ---- */

static void forget_put(struct node *node, uint32_t at)
{
    node->puts[at] = node->puts[--node->put_count];
}

static void take_gds_facts(struct node *node, const struct wire_facts *facts)
{
    for (uint32_t i = 0; facts->seq == node->gds_seq + 1 && i < wire_fact_count(facts->recs); i++) {
        struct wire_fact rec = wire_fact_at(facts->recs, i);
        uint32_t s = (uint32_t)(rec.offset / BLOCK);
        struct slot *slot = &node->gds_slots[s];
        assert_int_equal(rec.kind, WIRE_FACT_FREED);
        assert_int_equal(rec.size, BLOCK);
        check_unread_by_gets(node, WIRE_MEDIUM_GDS, s);
        if (slot->state == SLOT_RESERVED) { /* only of a put that is over */
            uint32_t p = 0;
            while (p < node->put_count && (node->puts[p].slot != s || !node->puts[p].over))
                p++;
            if (p == node->put_count)
                fail_msg("freed under a writer");
            forget_put(node, p);
        } else {
            assert_int_equal(slot->state, SLOT_COMMITTED);
        }
        slot->state = SLOT_DOOMED;
        w.gds_freed++;
    }
    node->gds_seq += facts->seq == node->gds_seq + 1;
    struct wire_facts_ack ack = {facts->segment, node->gds_seq};
    if (rnd(3))
        say(node, WIRE_FACTS_ACK, &ack);
}

/* The deletes are on stable media: the space is used again, whether the master knows or not. */
static void sync_gds(struct node *node)
{
    for (uint32_t s = 0; s < GDS_SLOTS; s++)
        if (node->gds_slots[s].state == SLOT_DOOMED)
            node->gds_slots[s].state = SLOT_FREE;
}

/* ---- mounts ---- */

/* It is not the file any more that they were told of: its owner refuses them. */
static void end_reads_of_file(const struct node *node)
{
    for (uint32_t g = 0; g < w.get_count; g++)
        for (uint32_t i = 0; i < w.gets[g].count; i++)
            if (&w.nodes[w.gets[g].node[i]] == node && w.gets[g].medium[i] == WIRE_MEDIUM_GDS)
                w.gets[g].until = 0;
}

static void join_gds(struct node *node)
{
    /* Puts of the session before: nobody can end them any more. */
    while (node->put_count > 0) {
        node->gds_slots[node->puts[0].slot].state = SLOT_FREE;
        forget_put(node, 0);
    }
    if (node->gds_generation == 0 || rnd(30) == 0) { /* the file is made anew */
        node->gds_generation++;
        memset(node->gds_slots, 0, sizeof node->gds_slots);
        end_reads_of_file(node);
        w.gds_anew++;
    }
    node->gds_seq = 0;
    node->gds = mount(node, WIRE_MEDIUM_GDS);
}

static bool offer_gds(struct node *node)
{
    for (uint32_t s = 0; s < GDS_SLOTS; s++) {
        struct slot *slot = &node->gds_slots[s];
        if (rnd(60) == 0)
            return false;
        if (slot->state == SLOT_DOOMED)
            slot->state = SLOT_FREE;
        struct wire_offer at = {s * (uint64_t)BLOCK, slot->size, slot->content};
        if (slot->state == SLOT_COMMITTED && !offer(node, node->gds, slot->key, at, 1))
            slot->state = SLOT_DOOMED;
    }
    (void)offer(node, node->gds, 0, (struct wire_offer){0}, 0);
    return true;
}

static void kill_gds(struct node *node)
{
    while (node->put_count > 0) {
        node->gds_slots[node->puts[0].slot].state = SLOT_FREE;
        forget_put(node, 0);
    }
    for (uint32_t s = 0; s < GDS_SLOTS; s++)
        if (node->gds_slots[s].state == SLOT_DOOMED)
            node->gds_slots[s].state = rnd(2) ? SLOT_COMMITTED : SLOT_FREE;
}

/* ---- puts ---- */

static int gds_start(struct node *node, struct gds_put *put, struct wire_gds gds,
                     struct wire_result *result)
{
    struct base_buf keys, list;
    uint8_t size[8];
    wire_set_u64(size, put->size);
    (void)kit_keys(&keys, name_of(put->key));
    base_buf_init(&list, 4096);
    assert_int_equal(wire_gds_append(&list, &gds), YOLK_OK);
    struct wire_put_start msg = {.request = {.session = node->session, .op = put->op},
                                 .keys = wire_view_buf(&keys),
                                 .sizes = wire_view_of(size, sizeof size),
                                 .replica_num = 1,
                                 .gds = wire_view_buf(&list)};
    struct wire_put_start_reply reply;
    for (uint64_t times = rnd(4) == 0 ? 2 : 1; times > 0; times--)
        kit_call(&w.kit, node->connection, WIRE_PUT_START, &msg, &reply);
    base_buf_free(&keys);
    base_buf_free(&list);
    if (reply.status != YOLK_OK)
        return reply.status;
    *result = wire_result_at(reply.results, 0);
    put->in_memory = result->replica_count == 2;
    if (put->in_memory)
        put->at = wire_replica_at(reply.replicas, 0);
    if (result->status == YOLK_OK) {
        struct wire_replica last = wire_replica_at(reply.replicas, result->replica_count - 1);
        assert_true(last.segment == node->gds && last.medium == WIRE_MEDIUM_GDS &&
                    last.offset == gds.value_offset);
    }
    return result->status;
}

/* What nobody has: refused, with nothing left behind. */
static void gds_wrong(struct node *node, uint32_t key)
{
    struct gds_put put = {.op = ++node->op, .key = key, .size = 1 + rnd(BLOCK)};
    struct wire_gds gds = gds_at(node, (uint32_t)rnd(GDS_SLOTS), put.size);
    struct wire_result result;
    if (rnd(2))
        gds.storage_generation -= 1;
    else
        gds.owner_client_id[0]++;
    int status = gds_start(node, &put, gds, &result);
    if (status != YOLK_ERR_STALE && status != YOLK_ERR_ACCESS && status != YOLK_ERR_EXISTS)
        fail_msg("a descriptor of another file or owner is answered %d", status);
}

/* In free space of the file; NULL when there is none, or no put may begin. */
static struct gds_put *gds_begin(struct node *node, uint32_t key,
                                 void (*granted)(const struct node *owner, uint64_t offset,
                                                 uint64_t size))
{
    uint32_t slot = 0;
    while (slot < GDS_SLOTS && node->gds_slots[slot].state != SLOT_FREE)
        slot++;
    if (slot == GDS_SLOTS || node->put_count == GDS_PUTS)
        return NULL;
    struct gds_put *put = &node->puts[node->put_count];
    struct wire_result result;
    *put = (struct gds_put){.op = ++node->op,
                            .key = key,
                            .slot = slot,
                            .size = rnd(3) ? 4096 - rnd(100) : 1 + rnd(1000)};
    int status = gds_start(node, put, gds_at(node, slot, put->size), &result);
    if (status == YOLK_ERR_INVALID || status == YOLK_ERR_NOT_FOUND)
        fail_msg("a free extent of a registered file was refused");
    if (status != YOLK_OK)
        return NULL;
    node->gds_slots[slot].state = SLOT_RESERVED;
    put->content = ++w.contents % 65535 + 1;
    w.content_key[put->content] = key;
    if (!put->in_memory) {
        w.gds_only++;
        node->put_count++;
        return put;
    }
    w.gds_both++;
    struct node *owner = node_by(put->at.segment);
    assert_non_null(owner);
    granted(owner, put->at.offset, put->size);
    node->put_count++;
    for (uint64_t u = put->at.offset / 64; u < (put->at.offset + put->size + 63) / 64; u++)
        owner->content[u] = put->content;
    return put;
}

/* END or REVOKE. What the master accepted ends with FREED, unless the mount ends before. */
static void gds_finish(struct node *node, struct gds_put *put, bool fails)
{
    struct slot *slot = &node->gds_slots[put->slot];
    uint16_t kind = fails ? WIRE_PUT_REVOKE : WIRE_PUT_END;
    put->over = true;
    int status =
        kit_keys_call(&w.kit, node->connection, node->session, put->op, kind, name_of(put->key));
    if (fails || status != YOLK_OK) {
        assert_true(status == YOLK_OK || status == YOLK_ERR_TIMEOUT || status == YOLK_ERR_STALE);
        return;
    }
    slot->state = SLOT_COMMITTED;
    slot->key = put->key;
    slot->size = put->size;
    slot->content = put->content;
    w.value[put->key] = put->content;
    forget_put(node, (uint32_t)(put - node->puts));
}

static void gds_room(struct node *node)
{
    struct wire_gds_room msg = {
        .request = {.session = node->session}, .segment = node->gds, .size = BLOCK};
    struct wire_gds_room_reply reply;
    kit_call(&w.kit, node->connection, WIRE_GDS_ROOM, &msg, &reply);
}

/* A little of what a node does with its file. */
static void gds_step(struct node *node, uint32_t key,
                     void (*granted)(const struct node *owner, uint64_t offset, uint64_t size))
{
    struct gds_put *put;
    switch (rnd(8)) {
    case 0:
        if (rnd(8) == 0)
            gds_wrong(node, key);
        break;
    case 1:
        gds_room(node);
        break;
    case 2:
        sync_gds(node);
        break;
    case 3:
        put = gds_begin(node, key, granted); /* ended by a later step, or never */
        break;
    case 4:
        for (uint32_t p = node->put_count; p-- > 0;)
            if (!node->puts[p].over) {
                gds_finish(node, &node->puts[p], rnd(4) == 0);
                break;
            }
        break;
    default:
        put = gds_begin(node, key, granted);
        if (put != NULL)
            gds_finish(node, put, rnd(8) == 0);
    }
    pump(false);
}

/* All puts are ended, and what they leave is freed. */
static void gds_settle(struct node *node)
{
    for (uint32_t p = node->put_count; p-- > 0;)
        if (!node->puts[p].over)
            gds_finish(node, &node->puts[p], true);
    sync_gds(node);
    struct wire_facts_ack ack = {node->gds, node->gds_seq};
    if (node->gds_seq > 0)
        say(node, WIRE_FACTS_ACK, &ack);
}

#endif
