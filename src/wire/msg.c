/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of message kinds. Tags are for ever: a field that goes leaves its number unused. */
#include "wire/msg.h"

#include "base/limits.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define AT(s, m) ((uint16_t)offsetof(struct s, m))

#define U64(s, tag, m)                                                                             \
    {                                                                                              \
        tag, WIRE_U64, 0, AT(s, m)                                                                 \
    }
#define U32(s, tag, m)                                                                             \
    {                                                                                              \
        tag, WIRE_U32, 0, AT(s, m)                                                                 \
    }
#define I32(s, tag, m)                                                                             \
    {                                                                                              \
        tag, WIRE_I32, 0, AT(s, m)                                                                 \
    }
#define STR(s, tag, m)                                                                             \
    {                                                                                              \
        tag, WIRE_STR, 0, AT(s, m)                                                                 \
    }
#define BIN(s, tag, m, unit)                                                                       \
    {                                                                                              \
        tag, WIRE_BIN, unit, AT(s, m)                                                              \
    }
#define GDS(s, tag, m)                                                                             \
    {                                                                                              \
        tag, WIRE_GDSS, 0, AT(s, m)                                                                \
    }
#define FIX(s, tag, m)                                                                             \
    {                                                                                              \
        tag, WIRE_FIXED, sizeof(((struct s *)0)->m), AT(s, m)                                      \
    }

/* Tags 1 to 4 of every request; its own fields start at 10. */
#define REQUEST(s)                                                                                 \
    U64(s, 1, request.session), U64(s, 2, request.op), U64(s, 3, request.floor),                   \
        BIN(s, 4, request.done, 8)
/* Tags 1 and 2 of every reply. */
#define REPLY(s) I32(s, 1, status), STR(s, 2, text)

static const struct wire_field hello[] = {
    U32(wire_hello, 1, min),      U32(wire_hello, 2, max),     U64(wire_hello, 3, features),
    U32(wire_hello, 4, role),     U32(wire_hello, 5, purpose), FIX(wire_hello, 6, nonce),
    FIX(wire_hello, 7, instance), U64(wire_hello, 8, session),
};
static const struct wire_field hello_reply[] = {
    REPLY(wire_hello_reply),
    U32(wire_hello_reply, 3, version),
    U64(wire_hello_reply, 4, features),
    FIX(wire_hello_reply, 5, nonce),
    FIX(wire_hello_reply, 6, instance),
    U32(wire_hello_reply, 7, auth_required),
    FIX(wire_hello_reply, 8, proof),
};
static const struct wire_field auth[] = {FIX(wire_auth, 1, proof)};
static const struct wire_field status_reply[] = {REPLY(wire_status_reply)};
static const struct wire_field session_open[] = {
    REQUEST(wire_session_open),
    FIX(wire_session_open, 10, client_id),
    U64(wire_session_open, 11, generation),
    STR(wire_session_open, 12, name),
    BIN(wire_session_open, 13, held, WIRE_HELD_SIZE),
    STR(wire_session_open, 14, tenant),
};
static const struct wire_field session_open_reply[] = {
    REPLY(wire_session_open_reply),
    U64(wire_session_open_reply, 10, session),
    U64(wire_session_open_reply, 11, lease_ttl_ms),
    U64(wire_session_open_reply, 12, put_timeout_ms),
    U64(wire_session_open_reply, 13, heartbeat_ms),
    U64(wire_session_open_reply, 14, session_ttl_ms),
    FIX(wire_session_open_reply, 15, master_instance),
};
static const struct wire_field plain_request[] = {REQUEST(wire_plain_request)};
static const struct wire_field segment_mount[] = {
    REQUEST(wire_segment_mount),
    STR(wire_segment_mount, 10, name),
    U64(wire_segment_mount, 11, size),
    U64(wire_segment_mount, 12, generation),
    STR(wire_segment_mount, 13, endpoints),
    FIX(wire_segment_mount, 14, ticket_key),
    FIX(wire_segment_mount, 15, prior_master),
    BIN(wire_segment_mount, 16, old_sessions, 8),
    U64(wire_segment_mount, 17, mirror_count),
    U32(wire_segment_mount, 18, medium),
    FIX(wire_segment_mount, 19, storage_id),
    U64(wire_segment_mount, 20, storage_generation),
};
static const struct wire_field segment_mount_reply[] = {
    REPLY(wire_segment_mount_reply),
    U64(wire_segment_mount_reply, 10, segment),
};
static const struct wire_field mirror_offer[] = {
    REQUEST(wire_mirror_offer),          U64(wire_mirror_offer, 10, segment),
    BIN(wire_mirror_offer, 11, keys, 0), BIN(wire_mirror_offer, 12, recs, WIRE_OFFER_SIZE),
    U32(wire_mirror_offer, 13, last),    BIN(wire_mirror_offer, 14, pinned, 4),
};
static const struct wire_field mirror_offer_reply[] = {
    REPLY(wire_mirror_offer_reply),
    U32(wire_mirror_offer_reply, 10, accepted),
    BIN(wire_mirror_offer_reply, 11, rejected, 4),
};
static const struct wire_field segment_unmount[] = {
    REQUEST(wire_segment_unmount),
    U64(wire_segment_unmount, 10, segment),
    U64(wire_segment_unmount, 11, grace_ms),
};
static const struct wire_field segment_info[] = {
    REQUEST(wire_segment_info),
    U64(wire_segment_info, 10, segment),
};
static const struct wire_field segment_info_reply[] = {
    REPLY(wire_segment_info_reply),
    U64(wire_segment_info_reply, 10, segment),
    U64(wire_segment_info_reply, 11, size),
    U64(wire_segment_info_reply, 12, generation),
    STR(wire_segment_info_reply, 13, endpoints),
    U64(wire_segment_info_reply, 14, owner_session),
    U32(wire_segment_info_reply, 15, medium),
};
static const struct wire_field keys_request[] = {
    REQUEST(wire_keys_request),
    BIN(wire_keys_request, 10, keys, 0),
};
static const struct wire_field results_reply[] = {
    REPLY(wire_results_reply),
    BIN(wire_results_reply, 10, results, 4),
};
static const struct wire_field get_start[] = {
    REQUEST(wire_get_start),
    BIN(wire_get_start, 10, keys, 0),
    U32(wire_get_start, 11, flags),
};
static const struct wire_field get_start_reply[] = {
    REPLY(wire_get_start_reply),
    U64(wire_get_start_reply, 10, guard_ttl_ms),
    BIN(wire_get_start_reply, 11, results, WIRE_RESULT_SIZE),
    BIN(wire_get_start_reply, 12, replicas, WIRE_REPLICA_SIZE),
    GDS(wire_get_start_reply, 13, gds),
};
static const struct wire_field put_start[] = {
    REQUEST(wire_put_start),
    BIN(wire_put_start, 10, keys, 0),
    BIN(wire_put_start, 11, sizes, 8),
    U32(wire_put_start, 12, replica_num),
    U32(wire_put_start, 13, flags),
    BIN(wire_put_start, 14, preferred, 0),
    BIN(wire_put_start, 15, groups, 0),
    U32(wire_put_start, 16, soft_pin),
    U64(wire_put_start, 17, soft_pin_ttl_ms),
    GDS(wire_put_start, 18, gds),
};
static const struct wire_field put_start_reply[] = {
    REPLY(wire_put_start_reply),
    BIN(wire_put_start_reply, 11, results, WIRE_RESULT_SIZE),
    BIN(wire_put_start_reply, 12, replicas, WIRE_REPLICA_SIZE),
    BIN(wire_put_start_reply, 13, tickets, WIRE_TICKET_SIZE),
    BIN(wire_put_start_reply, 14, why, 0),
};
static const struct wire_field remove_[] = {
    REQUEST(wire_remove),
    BIN(wire_remove, 10, keys, 0),
    U32(wire_remove, 11, force),
};
static const struct wire_field remove_all[] = {
    REQUEST(wire_remove_all),
    U32(wire_remove_all, 10, force),
};
static const struct wire_field remove_all_reply[] = {
    REPLY(wire_remove_all_reply),
    U64(wire_remove_all_reply, 10, count),
};
static const struct wire_field list[] = {
    REQUEST(wire_list),
    U64(wire_list, 10, cursor),
    U32(wire_list, 11, limit),
};
static const struct wire_field list_reply[] = {
    REPLY(wire_list_reply),
    BIN(wire_list_reply, 10, keys, 0),
    BIN(wire_list_reply, 11, sizes, 8),
    U64(wire_list_reply, 12, cursor),
};
static const struct wire_field stat_[] = {
    REQUEST(wire_stat),
    U32(wire_stat, 10, recount),
};
static const struct wire_field stat_reply[] = {
    REPLY(wire_stat_reply),
    U64(wire_stat_reply, 10, differences),
};
static const struct wire_field renew[] = {
    REQUEST(wire_renew),
    BIN(wire_renew, 10, ops, 8),
};
static const struct wire_field renew_reply[] = {
    REPLY(wire_renew_reply),
    U64(wire_renew_reply, 10, guard_ttl_ms),
};
static const struct wire_field replica_bad[] = {
    REQUEST(wire_replica_bad),
    BIN(wire_replica_bad, 10, keys, 0),
    BIN(wire_replica_bad, 11, replicas, WIRE_REPLICA_SIZE),
};
static const struct wire_field replica_clear[] = {
    REQUEST(wire_replica_clear),
    BIN(wire_replica_clear, 10, keys, 0),
    STR(wire_replica_clear, 11, segment),
};
static const struct wire_field gds_room[] = {
    REQUEST(wire_gds_room),
    U64(wire_gds_room, 10, segment),
    U64(wire_gds_room, 11, size),
};
static const struct wire_field gds_room_reply[] = {
    REPLY(wire_gds_room_reply),
    U64(wire_gds_room_reply, 10, pending),
};
static const struct wire_field facts[] = {
    U64(wire_facts, 1, segment),
    U64(wire_facts, 2, seq),
    BIN(wire_facts, 3, recs, WIRE_FACT_SIZE),
    BIN(wire_facts, 4, keys, 0),
};
static const struct wire_field facts_ack[] = {
    U64(wire_facts_ack, 1, segment),
    U64(wire_facts_ack, 2, seq),
};
static const struct wire_field fence[] = {
    U64(wire_fence, 1, segment),
    U64(wire_fence, 2, fenced_session),
};
static const struct wire_field put_expired[] = {
    U64(wire_put_expired, 1, op),
    BIN(wire_put_expired, 2, keys, 0),
};
static const struct wire_field session_lost[] = {U64(wire_session_lost, 1, session)};
static const struct wire_field tasks[] = {
    U64(wire_tasks, 1, segment), U64(wire_tasks, 2, disk),
    U64(wire_tasks, 3, floor),   BIN(wire_tasks, 4, recs, WIRE_TASK_SIZE),
    BIN(wire_tasks, 5, keys, 0),
};
static const struct wire_field tasks_done[] = {
    U64(wire_tasks_done, 1, segment),
    BIN(wire_tasks_done, 2, recs, WIRE_TASK_DONE_SIZE),
};
static const struct wire_field client_setup_reply[] = {
    REPLY(wire_client_setup_reply),
    STR(wire_client_setup_reply, 10, master),
    STR(wire_client_setup_reply, 11, tenant),
    STR(wire_client_setup_reply, 12, name),
};

static const struct wire_field peer_describe[] = {U32(wire_peer_describe, 1, buffers)};
static const struct wire_field peer_describe_reply[] = {
    REPLY(wire_peer_describe_reply),
    U64(wire_peer_describe_reply, 10, segment),
    STR(wire_peer_describe_reply, 11, endpoints),
    BIN(wire_peer_describe_reply, 12, buffers, WIRE_PEER_BUFFER_SIZE),
};
static const struct wire_field peer_notify[] = {
    STR(wire_peer_notify, 1, name),
    BIN(wire_peer_notify, 2, message, 0),
};

/* Maxima of bodies, each with room for the fields around what it is named after. */
enum {
    MAX_HELLO = 1024,
    MAX_STATUS = MAX_TEXT_SIZE + 1024,
    MAX_PLAIN = 64 * 1024, /* a request without lists of its own, but with `done` */
    MAX_MOUNT = MAX_ENDPOINTS + MAX_NAME_SIZE + MAX_SESSIONS * 8 + 1024,
    MAX_HELD = MAX_FRAME_BODY,
    MAX_KEYS = MAX_FRAME_BODY,
    MAX_RESULTS = 256 * 1024,
    MAX_PLACES = 3 << 20, /* results, replicas, tickets, descriptors of MAX_BATCH_KEYS keys */
    MAX_OPS = 1 << 20,
    MAX_STAT = 256 * 1024,
    MAX_UNKNOWN = 64 * 1024,
};

#define KIND(k, maximum, type, table)                                                              \
    [WIRE_##k] = {WIRE_##k, #k, maximum, sizeof(struct type), COUNT(table), table}

static const struct wire_kind_info kinds[] = {
    KIND(HELLO, MAX_HELLO, wire_hello, hello),
    KIND(HELLO_REPLY, MAX_HELLO, wire_hello_reply, hello_reply),
    KIND(AUTH, MAX_HELLO, wire_auth, auth),
    KIND(AUTH_REPLY, MAX_HELLO, wire_status_reply, status_reply),
    KIND(ERROR, MAX_STATUS, wire_status_reply, status_reply),
    KIND(SESSION_OPEN, MAX_HELD, wire_session_open, session_open),
    KIND(SESSION_OPEN_REPLY, MAX_STATUS, wire_session_open_reply, session_open_reply),
    KIND(HEARTBEAT, MAX_PLAIN, wire_plain_request, plain_request),
    KIND(HEARTBEAT_REPLY, MAX_STATUS, wire_status_reply, status_reply),
    KIND(SEGMENT_MOUNT, MAX_MOUNT, wire_segment_mount, segment_mount),
    KIND(SEGMENT_MOUNT_REPLY, MAX_STATUS, wire_segment_mount_reply, segment_mount_reply),
    KIND(MIRROR_OFFER, MAX_KEYS, wire_mirror_offer, mirror_offer),
    KIND(MIRROR_OFFER_REPLY, MAX_RESULTS, wire_mirror_offer_reply, mirror_offer_reply),
    KIND(SESSION_CLOSE, MAX_PLAIN, wire_plain_request, plain_request),
    KIND(SESSION_CLOSE_REPLY, MAX_STATUS, wire_status_reply, status_reply),
    KIND(SEGMENT_UNMOUNT, MAX_PLAIN, wire_segment_unmount, segment_unmount),
    KIND(SEGMENT_UNMOUNT_REPLY, MAX_STATUS, wire_status_reply, status_reply),
    KIND(SEGMENT_INFO, MAX_PLAIN, wire_segment_info, segment_info),
    KIND(SEGMENT_INFO_REPLY, MAX_STATUS + MAX_ENDPOINTS, wire_segment_info_reply,
         segment_info_reply),
    KIND(EXIST, MAX_KEYS, wire_keys_request, keys_request),
    KIND(EXIST_REPLY, MAX_RESULTS, wire_results_reply, results_reply),
    KIND(GET_START, MAX_KEYS, wire_get_start, get_start),
    KIND(GET_START_REPLY, MAX_PLACES, wire_get_start_reply, get_start_reply),
    KIND(PUT_START, MAX_KEYS, wire_put_start, put_start),
    KIND(PUT_START_REPLY, MAX_PLACES, wire_put_start_reply, put_start_reply),
    KIND(PUT_END, MAX_KEYS, wire_keys_request, keys_request),
    KIND(PUT_END_REPLY, MAX_RESULTS, wire_results_reply, results_reply),
    KIND(PUT_REVOKE, MAX_KEYS, wire_keys_request, keys_request),
    KIND(PUT_REVOKE_REPLY, MAX_RESULTS, wire_results_reply, results_reply),
    KIND(REMOVE, MAX_KEYS, wire_remove, remove_),
    KIND(REMOVE_REPLY, MAX_RESULTS, wire_results_reply, results_reply),
    KIND(REMOVE_ALL, MAX_PLAIN, wire_remove_all, remove_all),
    KIND(REMOVE_ALL_REPLY, MAX_STATUS, wire_remove_all_reply, remove_all_reply),
    KIND(LIST, MAX_PLAIN, wire_list, list),
    KIND(LIST_REPLY, MAX_KEYS, wire_list_reply, list_reply),
    KIND(STAT, MAX_PLAIN, wire_stat, stat_),
    KIND(STAT_REPLY, MAX_STAT, wire_stat_reply, stat_reply),
    KIND(RENEW, MAX_OPS, wire_renew, renew),
    KIND(RENEW_REPLY, MAX_STATUS, wire_renew_reply, renew_reply),
    KIND(REPLICA_BAD, MAX_KEYS, wire_replica_bad, replica_bad),
    KIND(REPLICA_BAD_REPLY, MAX_RESULTS, wire_results_reply, results_reply),
    KIND(REPLICA_CLEAR, MAX_KEYS, wire_replica_clear, replica_clear),
    KIND(REPLICA_CLEAR_REPLY, MAX_RESULTS, wire_results_reply, results_reply),
    KIND(GDS_ROOM, MAX_PLAIN, wire_gds_room, gds_room),
    KIND(GDS_ROOM_REPLY, MAX_STATUS, wire_gds_room_reply, gds_room_reply),
    KIND(FACTS, MAX_KEYS, wire_facts, facts),
    KIND(FACTS_ACK, MAX_HELLO, wire_facts_ack, facts_ack),
    KIND(FENCE, MAX_HELLO, wire_fence, fence),
    KIND(FENCED, MAX_HELLO, wire_fence, fence),
    KIND(PUT_EXPIRED, MAX_KEYS, wire_put_expired, put_expired),
    KIND(SESSION_LOST, MAX_HELLO, wire_session_lost, session_lost),
    KIND(TASKS, MAX_KEYS, wire_tasks, tasks),
    KIND(TASKS_DONE, MAX_RESULTS, wire_tasks_done, tasks_done),
    KIND(CLIENT_SETUP, MAX_PLAIN, wire_plain_request, plain_request),
    KIND(CLIENT_SETUP_REPLY, MAX_STATUS, wire_client_setup_reply, client_setup_reply),
    KIND(PEER_DESCRIBE, MAX_HELLO, wire_peer_describe, peer_describe),
    KIND(PEER_DESCRIBE_REPLY, MAX_FRAME_BODY, wire_peer_describe_reply, peer_describe_reply),
    KIND(PEER_NOTIFY, MAX_PEER_MESSAGE + 1024, wire_peer_notify, peer_notify),
    KIND(PEER_NOTIFY_REPLY, MAX_STATUS, wire_status_reply, status_reply),
};

const struct wire_kind_info *wire_kind_info(uint16_t kind)
{
    if (kind >= COUNT(kinds) || !kinds[kind].name)
        return NULL;
    return &kinds[kind];
}

const char *wire_kind_name(uint16_t kind)
{
    const struct wire_kind_info *info = wire_kind_info(kind);
    return info ? info->name : "UNKNOWN";
}

uint32_t wire_kind_body_max(uint16_t kind)
{
    const struct wire_kind_info *info = wire_kind_info(kind);
    return info ? info->body_max : MAX_UNKNOWN;
}

size_t wire_kind_count(void)
{
    size_t n = 0;
    for (size_t i = 0; i < COUNT(kinds); i++)
        n += kinds[i].name != NULL;
    return n;
}

const struct wire_kind_info *wire_kind_at(size_t index)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (kinds[i].name && index-- == 0)
            return &kinds[i];
    }
    return NULL;
}

/* ---- records ---- */
struct wire_held wire_held_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_HELD_SIZE;
    return (struct wire_held){wire_get_u64(p), wire_get_u64(p + 8), wire_get_u64(p + 16),
                              wire_get_u64(p + 24)};
}

struct wire_offer wire_offer_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_OFFER_SIZE;
    return (struct wire_offer){wire_get_u64(p), wire_get_u64(p + 8), wire_get_u32(p + 16)};
}

struct wire_result wire_result_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_RESULT_SIZE;
    return (struct wire_result){(int32_t)wire_get_u32(p), wire_get_u32(p + 4), wire_get_u64(p + 8),
                                wire_get_u32(p + 16)};
}

struct wire_replica wire_replica_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_REPLICA_SIZE;
    return (struct wire_replica){wire_get_u64(p), wire_get_u64(p + 8), wire_get_u32(p + 16),
                                 wire_get_u32(p + 20)};
}

struct wire_fact wire_fact_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_FACT_SIZE;
    return (struct wire_fact){p[0], wire_get_u64(p + 1), wire_get_u64(p + 9), wire_get_u64(p + 17)};
}

struct wire_task wire_task_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_TASK_SIZE;
    return (struct wire_task){
        .kind = p[0],
        .id = wire_get_u64(p + 1),
        .offset = wire_get_u64(p + 9),
        .size = wire_get_u64(p + 17),
        .disk_offset = wire_get_u64(p + 25),
        .checksum = wire_get_u32(p + 33),
    };
}

struct wire_task_done wire_task_done_at(struct wire_view v, uint32_t i)
{
    const uint8_t *p = v.data + (size_t)i * WIRE_TASK_DONE_SIZE;
    return (struct wire_task_done){
        .id = wire_get_u64(p),
        .status = (int32_t)wire_get_u32(p + 8),
        .disk_offset = wire_get_u64(p + 12),
        .disk_size = wire_get_u64(p + 20),
        .checksum = wire_get_u32(p + 28),
    };
}

int wire_held_append(struct base_buf *out, const struct wire_held *rec)
{
    uint8_t p[WIRE_HELD_SIZE];
    wire_set_u64(p, rec->seg_generation);
    wire_set_u64(p + 8, rec->offset);
    wire_set_u64(p + 16, rec->size);
    wire_set_u64(p + 24, rec->op);
    return base_buf_append(out, p, sizeof(p));
}

int wire_offer_append(struct base_buf *out, const struct wire_offer *rec)
{
    uint8_t p[WIRE_OFFER_SIZE];
    wire_set_u64(p, rec->offset);
    wire_set_u64(p + 8, rec->size);
    wire_set_u32(p + 16, rec->checksum);
    return base_buf_append(out, p, sizeof(p));
}

int wire_result_append(struct base_buf *out, const struct wire_result *rec)
{
    uint8_t p[WIRE_RESULT_SIZE];
    wire_set_u32(p, (uint32_t)rec->status);
    wire_set_u32(p + 4, rec->replica_count);
    wire_set_u64(p + 8, rec->size);
    wire_set_u32(p + 16, rec->first);
    return base_buf_append(out, p, sizeof(p));
}

int wire_replica_append(struct base_buf *out, const struct wire_replica *rec)
{
    uint8_t p[WIRE_REPLICA_SIZE];
    wire_set_u64(p, rec->segment);
    wire_set_u64(p + 8, rec->offset);
    wire_set_u32(p + 16, rec->medium);
    wire_set_u32(p + 20, rec->checksum);
    return base_buf_append(out, p, sizeof(p));
}

int wire_fact_append(struct base_buf *out, const struct wire_fact *rec)
{
    uint8_t p[WIRE_FACT_SIZE];
    p[0] = rec->kind;
    wire_set_u64(p + 1, rec->offset);
    wire_set_u64(p + 9, rec->size);
    wire_set_u64(p + 17, rec->session);
    return base_buf_append(out, p, sizeof(p));
}

int wire_task_append(struct base_buf *out, const struct wire_task *rec)
{
    uint8_t p[WIRE_TASK_SIZE];
    p[0] = rec->kind;
    wire_set_u64(p + 1, rec->id);
    wire_set_u64(p + 9, rec->offset);
    wire_set_u64(p + 17, rec->size);
    wire_set_u64(p + 25, rec->disk_offset);
    wire_set_u32(p + 33, rec->checksum);
    return base_buf_append(out, p, sizeof(p));
}

int wire_task_done_append(struct base_buf *out, const struct wire_task_done *rec)
{
    uint8_t p[WIRE_TASK_DONE_SIZE];
    wire_set_u64(p, rec->id);
    wire_set_u32(p + 8, (uint32_t)rec->status);
    wire_set_u64(p + 12, rec->disk_offset);
    wire_set_u64(p + 20, rec->disk_size);
    wire_set_u32(p + 28, rec->checksum);
    return base_buf_append(out, p, sizeof(p));
}

int wire_ticket_append(struct base_buf *out, const uint8_t ticket[WIRE_TICKET_SIZE])
{
    return base_buf_append(out, ticket, WIRE_TICKET_SIZE);
}
