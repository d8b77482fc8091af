/* SPDX-License-Identifier: Apache-2.0 */
/* A client with memory and a GDS file, and another one; what it reserves is chosen by hand. */
#ifndef YOLK_MASTER_GDS_KIT_H
#define YOLK_MASTER_GDS_KIT_H

#include "master/features_kit.h"

enum { VALUE = 4096, MEMORY = 16 * VALUE, FILE_SIZE = 64 * VALUE, FREED_MAX = 256 };

static struct kit kit;
static uint64_t writer, reader, memory, file;
static uint64_t freed[FREED_MAX]; /* offsets in the file that its owner was told of */
static uint32_t freed_count;
static uint64_t file_seq; /* of the last FACTS of the file */
static bool acks_file;    /* at once */

static const uint8_t storage[WIRE_ID_SIZE] = {5, 5, 5};
enum { GENERATION = 7 };

/* What the client on this connection would say of its file, for a value of this size. */
UNUSED static struct wire_gds place_at(uint64_t connection, uint64_t offset, uint64_t size)
{
    struct wire_gds gds = {.storage_generation = GENERATION,
                           .value_offset = offset,
                           .value_size = size,
                           .allocated_size = (size + 4095) / 4096 * 4096};
    gds.owner_client_id[0] = (uint8_t)connection;
    memcpy(gds.storage_id, storage, sizeof storage);
    return gds;
}

UNUSED static struct wire_segment_mount_reply mount_gds(uint64_t connection, uint64_t session,
                                                        uint64_t generation, uint64_t offers)
{
    struct wire_segment_mount msg = {.request = {.session = session},
                                     .name = wire_view_text("g"),
                                     .size = FILE_SIZE,
                                     .mirror_count = offers,
                                     .medium = WIRE_MEDIUM_GDS,
                                     .storage_generation = generation};
    struct wire_segment_mount_reply reply;
    memcpy(msg.storage_id, storage, sizeof storage);
    kit_call(&kit, connection, WIRE_SEGMENT_MOUNT, &msg, &reply);
    return reply;
}

/* Takes what was pushed, and answers it. */
UNUSED static void pump(void)
{
    for (uint32_t i = 0; i < kit.push_count; i++) {
        struct kit_frame f = kit.pushes[i];
        struct wire_facts facts;
        if (f.kind != WIRE_FACTS)
            continue;
        kit.pushes[i].kind = 0;
        assert_int_equal(wire_decode(WIRE_FACTS, f.body, f.size, &facts), YOLK_OK);
        bool of_file = facts.segment == file;
        for (uint32_t r = 0; of_file && facts.seq > file_seq && r < wire_fact_count(facts.recs);
             r++) {
            struct wire_fact fact = wire_fact_at(facts.recs, r);
            assert_int_equal(fact.kind, WIRE_FACT_FREED);
            assert_true(freed_count < FREED_MAX);
            freed[freed_count++] = fact.offset;
        }
        if (of_file)
            file_seq = facts.seq;
        struct wire_facts_ack ack = {facts.segment, facts.seq};
        if (!of_file || acks_file)
            kit_raw(&kit, f.connection, WIRE_FACTS_ACK, 0, &ack);
    }
    kit.push_count = 0;
}

/* PUT_START on `connection`; `gds` is one a key, with allocated_size 0 for nil. */
UNUSED static struct wire_put_start_reply start_put(uint64_t connection, uint64_t session,
                                                    uint64_t op, const char *key, uint64_t size,
                                                    const struct wire_gds *gds,
                                                    const struct wish *wish)
{
    struct base_buf keys, list, groups;
    uint8_t packed[KIT_KEYS][8];
    static const struct wish none;
    wish = wish != NULL ? wish : &none;
    uint32_t count = kit_keys(&keys, key);
    base_buf_init(&list, MAX_FRAME_BODY);
    base_buf_init(&groups, MAX_FRAME_BODY);
    for (uint32_t i = 0; i < count; i++) {
        wire_set_u64(packed[i], size);
        if (gds != NULL)
            assert_int_equal(wire_gds_append(&list, gds[i].allocated_size == 0 ? NULL : &gds[i]),
                             YOLK_OK);
    }
    struct wire_put_start msg = {.request = {.session = session, .op = op},
                                 .keys = wire_view_buf(&keys),
                                 .sizes = wire_view_of(packed, count * sizeof packed[0]),
                                 .replica_num = 1,
                                 .flags = wish->flags,
                                 .soft_pin = wish->soft_pin,
                                 .soft_pin_ttl_ms = wish->ttl_ms,
                                 .gds = wire_view_buf(&list)};
    if (wish->groups != NULL) {
        struct wire_view id = wire_view_text(wish->groups);
        assert_int_equal(wire_keys_build(&groups, &id, 1), YOLK_OK);
        msg.groups = wire_view_buf(&groups);
    }
    struct wire_put_start_reply reply;
    kit_call(&kit, connection, WIRE_PUT_START, &msg, &reply);
    base_buf_free(&keys);
    base_buf_free(&list);
    base_buf_free(&groups);
    assert_int_equal(wire_ticket_count(reply.tickets), wire_replica_count(reply.replicas));
    return reply;
}

/* Of one key by the writer, at this offset of its file: its result. */
UNUSED static struct wire_result put_at(uint64_t op, const char *key, uint64_t size,
                                        uint64_t offset, const struct wish *wish)
{
    struct wire_gds gds = place_at(1, offset, size);
    struct wire_put_start_reply reply = start_put(1, writer, op, key, size, &gds, wish);
    assert_int_equal(reply.status, YOLK_OK);
    return wire_result_at(reply.results, 0);
}

UNUSED static int end_put(uint64_t op, const char *key)
{
    int status = kit_keys_call(&kit, 1, writer, op, WIRE_PUT_END, key);
    pump();
    return status;
}

/* Stored there, and in memory if there is room; how many replicas. */
UNUSED static uint32_t stored(const char *key, uint64_t size, uint64_t offset,
                              const struct wish *wish)
{
    uint64_t op = ++kit.op;
    struct wire_result result = put_at(op, key, size, offset, wish);
    assert_int_equal(result.status, YOLK_OK);
    assert_int_equal(end_put(op, key), YOLK_OK);
    return result.replica_count;
}

struct found {
    int status;
    uint32_t in_memory, on_disk, gds_count;
    struct wire_gds gds[2];
    uint64_t op;
};

/* What a reader is told; its guards stay, unless it peeks. */
UNUSED static struct found look(uint64_t connection, uint64_t session, const char *key,
                                uint32_t flags)
{
    struct base_buf keys;
    struct found found = {.op = ++kit.op};
    (void)kit_keys(&keys, key);
    struct wire_get_start msg = {.request = {.session = session, .op = found.op},
                                 .keys = wire_view_buf(&keys),
                                 .flags = flags};
    struct wire_get_start_reply reply;
    kit_call(&kit, connection, WIRE_GET_START, &msg, &reply);
    base_buf_free(&keys);
    assert_int_equal(reply.status, YOLK_OK);
    struct wire_result result = wire_result_at(reply.results, 0);
    struct wire_gdss list;
    bool given;
    found.status = result.status;
    assert_int_equal(wire_gdss_open(reply.gds, 2, &list), YOLK_OK);
    for (uint32_t i = 0; i < result.replica_count; i++) {
        struct wire_replica at = wire_replica_at(reply.replicas, result.first + i);
        found.in_memory += at.medium == WIRE_MEDIUM_MEMORY;
        found.on_disk += at.medium == WIRE_MEDIUM_LOCAL_DISK;
        if (at.medium != WIRE_MEDIUM_GDS)
            continue;
        assert_true(wire_gdss_next(&list, &found.gds[found.gds_count], &given));
        assert_true(given);
        assert_int_equal(found.gds[found.gds_count].value_offset, at.offset);
        assert_int_equal(found.gds[found.gds_count++].value_size, result.size);
    }
    assert_int_equal(found.gds_count, list.count);
    return found;
}

UNUSED static struct found peek(const char *key)
{
    return look(2, reader, key, WIRE_GET_PEEK);
}

UNUSED static int clear(uint64_t connection, uint64_t session, const char *key, const char *segment)
{
    struct base_buf keys;
    (void)kit_keys(&keys, key);
    struct wire_replica_clear msg = {.request = {.session = session},
                                     .keys = wire_view_buf(&keys),
                                     .segment = wire_view_text(segment)};
    struct wire_results_reply reply;
    kit_call(&kit, connection, WIRE_REPLICA_CLEAR, &msg, &reply);
    base_buf_free(&keys);
    pump();
    return reply.status != YOLK_OK ? reply.status : wire_i32s_at(reply.results, 0);
}

UNUSED static struct wire_gds_room_reply room(uint64_t connection, uint64_t session,
                                              uint64_t segment, uint64_t size)
{
    struct wire_gds_room msg = {.request = {.session = session}, .segment = segment, .size = size};
    struct wire_gds_room_reply reply;
    kit_call(&kit, connection, WIRE_GDS_ROOM, &msg, &reply);
    return reply;
}

UNUSED static bool offer(uint64_t session, const char *key, struct wire_offer at, uint32_t last)
{
    struct base_buf keys, recs;
    (void)kit_keys(&keys, key);
    base_buf_init(&recs, 4096);
    assert_int_equal(wire_offer_append(&recs, &at), YOLK_OK);
    struct wire_mirror_offer msg = {.request = {.session = session},
                                    .segment = file,
                                    .keys = wire_view_buf(&keys),
                                    .recs = wire_view_buf(&recs),
                                    .last = last};
    struct wire_mirror_offer_reply reply;
    kit_call(&kit, 1, WIRE_MIRROR_OFFER, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    base_buf_free(&keys);
    base_buf_free(&recs);
    return reply.accepted == 1;
}

/* `memory_size` 0: nobody has memory. */
UNUSED static void set_up(void **state, const struct master_config *config, uint64_t memory_size)
{
    *state = &kit;
    kit_init(&kit, config);
    freed_count = 0;
    file_seq = 0;
    acks_file = true;
    writer = kit_open(&kit, 1, 1);
    reader = kit_open(&kit, 2, 1);
    memory = memory_size == 0 ? 0 : kit_mount(&kit, 1, writer, memory_size);
    struct wire_segment_mount_reply reply = mount_gds(1, writer, GENERATION, 0);
    assert_int_equal(reply.status, YOLK_OK);
    file = reply.segment;
    pump();
}

UNUSED static int start(void **state)
{
    set_up(state, NULL, MEMORY);
    return 0;
}

#endif
