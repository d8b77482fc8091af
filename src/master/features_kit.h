/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of pins, groups, tenants and upserts: puts with all that a put may ask for. */
#ifndef YOLK_MASTER_FEATURES_KIT_H
#define YOLK_MASTER_FEATURES_KIT_H

#include "master/test_kit.h"

#include "base/tenant.h"
#include "master/policy.h"

struct wish {
    uint32_t flags, soft_pin, replica_num;
    uint64_t ttl_ms;
    const char *preferred; /* words */
    const char *groups;    /* words, one a key; "-" is none */
};

/* PUT_START of some keys of one size; the reply's views borrow kit->reply. */
UNUSED static struct wire_put_start_reply kit_start_put(struct kit *kit, uint64_t connection,
                                                        uint64_t session, uint64_t op,
                                                        const char *key, uint64_t size,
                                                        const struct wish *wish)
{
    struct base_buf keys, names, groups;
    uint8_t packed[KIT_KEYS][8];
    uint32_t count = kit_keys(&keys, key);
    base_buf_init(&names, MAX_FRAME_BODY);
    base_buf_init(&groups, MAX_FRAME_BODY);
    for (uint32_t i = 0; i < count; i++)
        wire_set_u64(packed[i], size);
    struct wire_put_start msg = {.request = {.session = session, .op = op},
                                 .keys = wire_view_buf(&keys),
                                 .sizes = wire_view_of(packed, count * sizeof packed[0]),
                                 .replica_num = wish->replica_num == 0 ? 1 : wish->replica_num,
                                 .flags = wish->flags,
                                 .soft_pin = wish->soft_pin,
                                 .soft_pin_ttl_ms = wish->ttl_ms};
    if (wish->preferred != NULL) {
        base_buf_free(&names);
        (void)kit_keys(&names, wish->preferred);
        msg.preferred = wire_view_buf(&names);
    }
    if (wish->groups != NULL) {
        struct wire_view ids[KIT_KEYS];
        uint32_t n = 0;
        for (const char *at = wish->groups; *at != 0;
             at += strcspn(at, " ") + (at[strcspn(at, " ")] != 0)) {
            ids[n] = wire_view_of(at, strcspn(at, " "));
            if (ids[n].size == 1 && *at == '-')
                ids[n].size = 0;
            n++;
        }
        assert_int_equal(wire_keys_build(&groups, ids, n), YOLK_OK);
        msg.groups = wire_view_buf(&groups);
    }
    struct wire_put_start_reply reply;
    kit_call(kit, connection, WIRE_PUT_START, &msg, &reply);
    base_buf_free(&keys);
    base_buf_free(&names);
    base_buf_free(&groups);
    return reply;
}

/* The first key's status. */
UNUSED static int kit_wish(struct kit *kit, uint64_t connection, uint64_t session, uint64_t op,
                           const char *key, uint64_t size, const struct wish *wish)
{
    struct wire_put_start_reply reply =
        kit_start_put(kit, connection, session, op, key, size, wish);
    return reply.status != YOLK_OK ? reply.status : wire_result_at(reply.results, 0).status;
}

/* Put, committed, told to the owner. */
UNUSED static int kit_wished(struct kit *kit, uint64_t connection, uint64_t session,
                             const char *key, uint64_t size, const struct wish *wish)
{
    uint64_t op = ++kit->op;
    int status = kit_wish(kit, connection, session, op, key, size, wish);
    if (status == YOLK_OK)
        status = kit_keys_call(kit, connection, session, op, WIRE_PUT_END, key);
    kit_ack(kit);
    if (status == YOLK_ERR_AGAIN) /* until the owner has let go of the old value */
        status = kit_keys_call(kit, connection, session, op, WIRE_PUT_END, key);
    kit_ack(kit);
    return status;
}

/* As a put that waits for space does: asked again while the owner lets go of some. */
UNUSED static int kit_wait_put(struct kit *kit, uint64_t connection, uint64_t session,
                               const char *key, uint64_t size, const struct wish *wish)
{
    int status = YOLK_ERR_NO_SPACE;
    for (int i = 0; i < 8 && (status == YOLK_ERR_NO_SPACE || status == YOLK_ERR_QUOTA); i++)
        status = kit_wished(kit, connection, session, key, size, wish);
    return status;
}

UNUSED static int kit_has(struct kit *kit, uint64_t connection, uint64_t session, const char *key)
{
    int status = kit_keys_call(kit, connection, session, 0, WIRE_EXIST, key);
    if (status == YOLK_ERR_NOT_FOUND)
        return 0;
    assert_int_equal(status, YOLK_OK);
    return 1;
}

/* Whether a key is there, without leasing it: the listing. */
UNUSED static int kit_lists(struct kit *kit, uint64_t connection, uint64_t session, const char *key)
{
    struct wire_list msg = {.request = {.session = session}};
    struct wire_list_reply reply;
    do {
        struct wire_keys keys;
        struct wire_view one;
        kit_call(kit, connection, WIRE_LIST, &msg, &reply);
        assert_int_equal(reply.status, YOLK_OK);
        assert_int_equal(wire_keys_open(reply.keys, 4096, &keys), YOLK_OK);
        while (wire_keys_next(&keys, &one))
            if (one.size == strlen(key) && memcmp(one.data, key, one.size) == 0)
                return 1;
        msg.cursor = reply.cursor;
    } while (reply.cursor != 0);
    return 0;
}

UNUSED static struct wire_session_open_reply kit_open_tenant(struct kit *kit, uint64_t connection,
                                                             const char *tenant)
{
    struct wire_session_open msg = {.generation = 1, .tenant = wire_view_text(tenant)};
    struct wire_session_open_reply reply;
    msg.client_id[0] = (uint8_t)connection;
    kit_call(kit, connection, WIRE_SESSION_OPEN, &msg, &reply);
    kit_ack(kit);
    return reply;
}
#endif
