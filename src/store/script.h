/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted answers of a master, for the tests of the pure machines. */
#ifndef YOLK_STORE_SCRIPT_H
#define YOLK_STORE_SCRIPT_H

#include <string.h>

#include "store/message.h"

/* An answer under construction, ready for a machine's reply(). */
struct script {
    struct base_buf results;
    struct base_buf replicas;
    struct base_buf tickets;
    struct base_buf body;
};

static inline void script_init(struct script *script)
{
    base_buf_init(&script->results, 1 << 20);
    base_buf_init(&script->replicas, 1 << 20);
    base_buf_init(&script->tickets, 1 << 20);
    base_buf_init(&script->body, 1 << 20);
}

/* A client with a session and items "k0", "k1", … of this size, for a machine to work on. */
static inline void script_client(struct script *script, struct store_holds **holds,
                                 struct store_tuning *tuning, struct store_item *items,
                                 char (*keys)[32], size_t count, uint64_t size)
{
    assert_int_equal(store_holds_create(holds), YOLK_OK);
    store_holds_set_session(*holds, 7);
    store_tuning_init(tuning);
    script_init(script);
    for (size_t i = 0; i < count; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
        items[i] = (struct store_item){keys[i], 2, size, 99, 99, NULL};
    }
}

static inline void script_free(struct script *script)
{
    base_buf_free(&script->results);
    base_buf_free(&script->replicas);
    base_buf_free(&script->tickets);
    base_buf_free(&script->body);
}

static inline void script_clear(struct script *script)
{
    base_buf_clear(&script->results);
    base_buf_clear(&script->replicas);
    base_buf_clear(&script->tickets);
    base_buf_clear(&script->body);
}

/* One key's places: count replicas at segment, segment + 1, … */
static inline int script_place(struct script *script, int32_t status, uint64_t size, uint32_t count,
                               uint64_t segment, uint64_t offset)
{
    struct wire_result result = {
        .status = status,
        .replica_count = count,
        .size = size,
        .first = (uint32_t)(script->replicas.size / WIRE_REPLICA_SIZE),
    };
    int failed = wire_result_append(&script->results, &result);
    for (uint32_t i = 0; i < count; i++) {
        struct wire_replica replica = {.segment = segment + i, .offset = offset};
        uint8_t ticket[WIRE_TICKET_SIZE] = {(uint8_t)(segment + i)};
        failed |= wire_replica_append(&script->replicas, &replica);
        failed |= wire_ticket_append(&script->tickets, ticket);
    }
    return failed;
}

static inline int script_get_reply(struct script *script, int32_t status, uint64_t ttl_ms)
{
    struct wire_get_start_reply reply = {
        .status = status,
        .guard_ttl_ms = ttl_ms,
        .results = wire_view_buf(&script->results),
        .replicas = wire_view_buf(&script->replicas),
    };
    base_buf_clear(&script->body);
    return wire_encode(WIRE_GET_START_REPLY, &reply, &script->body);
}

static inline int script_put_reply(struct script *script, int32_t status)
{
    struct wire_put_start_reply reply = {
        .status = status,
        .results = wire_view_buf(&script->results),
        .replicas = wire_view_buf(&script->replicas),
        .tickets = wire_view_buf(&script->tickets),
    };
    base_buf_clear(&script->body);
    return wire_encode(WIRE_PUT_START_REPLY, &reply, &script->body);
}

/* count results, all the same. */
static inline int script_results_reply(struct script *script, uint16_t kind, int32_t status,
                                       uint32_t count, int32_t result)
{
    base_buf_clear(&script->results);
    int failed = 0;
    for (uint32_t i = 0; i < count; i++)
        failed |= wire_i32s_append(&script->results, result);
    struct wire_results_reply reply = {
        .status = status,
        .results = wire_view_buf(&script->results),
    };
    base_buf_clear(&script->body);
    return failed | wire_encode(kind, &reply, &script->body);
}
#endif
