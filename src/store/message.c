/* SPDX-License-Identifier: Apache-2.0 */
#include "store/message.h"

#include "base/error.h"

void store_message_init(struct store_message *message)
{
    base_buf_init(&message->body, MAX_FRAME_BODY);
    base_buf_init(&message->keys, MAX_FRAME_BODY);
    base_buf_init(&message->extra, MAX_FRAME_BODY);
    base_buf_init(&message->preferred, MAX_FRAME_BODY);
    base_buf_init(&message->groups, MAX_FRAME_BODY);
    base_buf_init(&message->gds, MAX_FRAME_BODY);
}

void store_message_free(struct store_message *message)
{
    base_buf_free(&message->body);
    base_buf_free(&message->keys);
    base_buf_free(&message->extra);
    base_buf_free(&message->preferred);
    base_buf_free(&message->groups);
    base_buf_free(&message->gds);
}

struct wire_request store_message_request(const struct store_stamp *stamp, uint64_t op)
{
    return (struct wire_request){
        .session = stamp->session,
        .op = op,
        .floor = stamp->floor,
        .done = wire_view_of(stamp->done_bin, (size_t)stamp->done_count * 8),
    };
}

struct chosen {
    const struct store_item *items;
    const uint32_t *indexes;
};

static const struct store_item *chosen_item(const struct chosen *chosen, uint32_t i)
{
    return &chosen->items[chosen->indexes == NULL ? i : chosen->indexes[i]];
}

static struct wire_view key_at(void *arg, uint32_t i)
{
    const struct store_item *item = chosen_item(arg, i);
    return wire_view_of(item->key, item->key_size);
}

static int build_keys(struct store_message *message, struct chosen *chosen, size_t count)
{
    base_buf_clear(&message->body);
    base_buf_clear(&message->keys);
    base_buf_clear(&message->extra);
    return wire_keys_build_by(&message->keys, (uint32_t)count, key_at, chosen);
}

static struct wire_view preferred_at(void *arg, uint32_t i)
{
    return wire_view_text(((const struct store_put_how *)arg)->preferred[i]);
}

struct grouped {
    const struct store_put_how *how;
    const uint32_t *indexes;
};

static struct wire_view group_at(void *arg, uint32_t i)
{
    const struct grouped *grouped = arg;
    return wire_view_text(grouped->how->groups[grouped->indexes == NULL ? i : grouped->indexes[i]]);
}

int store_message_put_start(struct store_message *message, const struct store_stamp *stamp,
                            uint64_t op, const struct store_item *items, const uint32_t *indexes,
                            size_t count, const struct store_put_how *how)
{
    struct chosen chosen = {items, indexes};
    int status = build_keys(message, &chosen, count);
    for (uint32_t i = 0; status == YOLK_OK && i < count; i++)
        status = wire_u64s_append(&message->extra, chosen_item(&chosen, i)->size);
    struct grouped grouped = {how, indexes};
    base_buf_clear(&message->preferred);
    base_buf_clear(&message->groups);
    if (status == YOLK_OK && how->preferred_count > 0)
        status = wire_keys_build_by(&message->preferred, (uint32_t)how->preferred_count,
                                    preferred_at, (void *)(uintptr_t)how);
    if (status == YOLK_OK && how->groups != NULL)
        status = wire_keys_build_by(&message->groups, (uint32_t)count, group_at, &grouped);
    base_buf_clear(&message->gds);
    for (uint32_t i = 0; status == YOLK_OK && how->gds != NULL && i < count; i++)
        status = wire_gds_append(&message->gds, chosen_item(&chosen, i)->gds);
    if (status != YOLK_OK)
        return status;
    struct wire_put_start start = {
        .request = store_message_request(stamp, op),
        .keys = wire_view_buf(&message->keys),
        .sizes = wire_view_buf(&message->extra),
        .replica_num = how->replica_num == 0 ? 1 : how->replica_num,
        .flags = how->flags,
        .soft_pin = how->soft_pin,
        .soft_pin_ttl_ms = how->soft_pin_ttl_ms,
        .preferred = wire_view_buf(&message->preferred),
        .groups = wire_view_buf(&message->groups),
        .gds = wire_view_buf(&message->gds),
    };
    return wire_encode(WIRE_PUT_START, &start, &message->body);
}

int store_message_get_start(struct store_message *message, const struct store_stamp *stamp,
                            uint64_t op, const struct store_item *items, const uint32_t *indexes,
                            size_t count, uint32_t flags)
{
    struct chosen chosen = {items, indexes};
    int status = build_keys(message, &chosen, count);
    if (status != YOLK_OK)
        return status;
    struct wire_get_start start = {
        .request = store_message_request(stamp, op),
        .keys = wire_view_buf(&message->keys),
        .flags = flags,
    };
    return wire_encode(WIRE_GET_START, &start, &message->body);
}

int store_message_keys(struct store_message *message, uint16_t kind,
                       const struct store_stamp *stamp, uint64_t op, const struct store_item *items,
                       const uint32_t *indexes, size_t count, uint32_t force)
{
    struct chosen chosen = {items, indexes};
    int status = build_keys(message, &chosen, count);
    if (status != YOLK_OK)
        return status;
    if (kind == WIRE_REMOVE) {
        struct wire_remove removal = {
            .request = store_message_request(stamp, op),
            .keys = wire_view_buf(&message->keys),
            .force = force,
        };
        return wire_encode(kind, &removal, &message->body);
    }
    struct wire_keys_request request = {
        .request = store_message_request(stamp, op),
        .keys = wire_view_buf(&message->keys),
    };
    return wire_encode(kind, &request, &message->body);
}

int store_message_replica_bad(struct store_message *message, const struct store_stamp *stamp,
                              const struct store_item *items, const uint32_t *indexes,
                              const struct store_replica *replicas, size_t count)
{
    struct chosen chosen = {items, indexes};
    int status = build_keys(message, &chosen, count);
    for (size_t i = 0; status == YOLK_OK && i < count; i++) {
        struct wire_replica replica = {replicas[i].segment, replicas[i].offset, replicas[i].medium,
                                       replicas[i].checksum};
        status = wire_replica_append(&message->extra, &replica);
    }
    if (status != YOLK_OK)
        return status;
    struct wire_replica_bad bad = {
        .request = store_message_request(stamp, 0),
        .keys = wire_view_buf(&message->keys),
        .replicas = wire_view_buf(&message->extra),
    };
    return wire_encode(WIRE_REPLICA_BAD, &bad, &message->body);
}

int store_message_replica_clear(struct store_message *message, const struct store_stamp *stamp,
                                const struct store_item *items, size_t count, const char *segment)
{
    struct chosen chosen = {items, NULL};
    int status = build_keys(message, &chosen, count);
    if (status != YOLK_OK)
        return status;
    struct wire_replica_clear clear = {
        .request = store_message_request(stamp, 0),
        .keys = wire_view_buf(&message->keys),
        .segment = wire_view_text(segment),
    };
    return wire_encode(WIRE_REPLICA_CLEAR, &clear, &message->body);
}

int store_message_renew(struct store_message *message, const struct store_stamp *stamp, uint64_t op)
{
    uint8_t packed[8];
    base_store_u64(packed, op);
    base_buf_clear(&message->body);
    struct wire_renew renew = {
        .request = store_message_request(stamp, op),
        .ops = wire_view_of(packed, sizeof(packed)),
    };
    return wire_encode(WIRE_RENEW, &renew, &message->body);
}

/* The answer's own status, with its text as this thread's last error. */
static int own_status(int32_t status, struct wire_view text)
{
    if (status == YOLK_OK)
        return YOLK_OK;
    if (status > 0)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "the master answered status %d", (int)status);
    char copy[256];
    wire_view_copy_text(text, copy, sizeof(copy));
    return base_fail(status, 0, "%s", copy[0] != '\0' ? copy : yolk_strerror(status));
}

int store_message_grants(uint16_t reply_kind, const uint8_t *body, size_t size,
                         struct store_grants *grants)
{
    union {
        struct wire_get_start_reply get;
        struct wire_put_start_reply put;
    } reply;
    int status = wire_decode(reply_kind, body, size, &reply);
    if (status != YOLK_OK)
        return status;
    int is_put = reply_kind == WIRE_PUT_START_REPLY;
    status = is_put ? own_status(reply.put.status, reply.put.text)
                    : own_status(reply.get.status, reply.get.text);
    if (status != YOLK_OK)
        return status;
    grants->guard_ttl_ms = is_put ? 0 : reply.get.guard_ttl_ms;
    grants->results = is_put ? reply.put.results : reply.get.results;
    grants->replicas = is_put ? reply.put.replicas : reply.get.replicas;
    grants->tickets = is_put ? reply.put.tickets : wire_view_of(NULL, 0);
    grants->gds = is_put ? wire_view_of(NULL, 0) : reply.get.gds;
    grants->why = is_put ? reply.put.why : wire_view_of(NULL, 0);
    grants->count = wire_result_count(grants->results);

    uint32_t replicas = wire_replica_count(grants->replicas);
    if (is_put && wire_ticket_count(grants->tickets) != replicas)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "the master sent %u tickets for %u replicas",
                         wire_ticket_count(grants->tickets), replicas);
    for (uint32_t i = 0; i < grants->count; i++) {
        struct wire_result result = wire_result_at(grants->results, i);
        if (result.replica_count > replicas || result.first > replicas - result.replica_count)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "the master's answer names replicas it lacks");
    }
    return YOLK_OK;
}

int store_message_replicas(const struct store_grants *grants, struct store_replica *out,
                           uint32_t room)
{
    struct wire_gdss list;
    uint32_t count = wire_replica_count(grants->replicas);
    int status = wire_gdss_open(grants->gds, count, &list);
    for (uint32_t i = 0; status == YOLK_OK && i < count && i < room; i++) {
        bool given = false;
        out[i] = store_replica_of(grants->replicas, i);
        if (!wire_medium_known(out[i].medium))
            status = base_fail(YOLK_ERR_PROTOCOL, 0,
                               "the master's answer has a replica of the unknown type %u",
                               out[i].medium);
        if (out[i].medium == WIRE_MEDIUM_GDS &&
            (!wire_gdss_next(&list, &out[i].gds, &given) || !given))
            status = base_fail(YOLK_ERR_PROTOCOL, 0,
                               "the master's answer lacks the descriptor of a GDS replica");
    }
    return status;
}

int store_message_results(uint16_t reply_kind, const uint8_t *body, size_t size, uint32_t expected,
                          struct wire_view *results)
{
    struct wire_results_reply reply;
    int status = wire_decode(reply_kind, body, size, &reply);
    if (status == YOLK_OK)
        status = own_status(reply.status, reply.text);
    if (status != YOLK_OK)
        return status;
    if (wire_u32s_count(reply.results) != expected)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "the master answered %u results for %u keys",
                         wire_u32s_count(reply.results), expected);
    *results = reply.results;
    return YOLK_OK;
}

int store_message_refused(uint16_t wanted, uint16_t kind, const uint8_t *body, size_t size)
{
    if (kind == wanted)
        return YOLK_OK;
    if (kind == WIRE_ERROR) {
        struct wire_status_reply reply;
        if (wire_decode(kind, body, size, &reply) == YOLK_OK && reply.status < 0)
            return own_status(reply.status, reply.text);
    }
    return base_fail(YOLK_ERR_PROTOCOL, 0, "the master answered %s where %s was expected",
                     wire_kind_name(kind), wire_kind_name(wanted));
}

int store_status_is_outdated(int status)
{
    return status == YOLK_ERR_STALE || status == YOLK_ERR_ACCESS;
}

int store_status_is_session(int status)
{
    return status == YOLK_ERR_STALE || status == YOLK_ERR_PEER_DEAD || status == YOLK_ERR_CLOSED ||
           status == YOLK_ERR_NOT_FOUND || status == YOLK_ERR_AGAIN || status == YOLK_ERR_NOT_READY;
}
