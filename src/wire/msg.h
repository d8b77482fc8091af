/* SPDX-License-Identifier: Apache-2.0 */
/* Every message as a struct. Tags and types are in the table of msg.c; both sides see only these
 * structs. */
#ifndef WIRE_MSG_H
#define WIRE_MSG_H

#include <stdint.h>

#include "wire/codec.h"
#include "wire/frame.h"
#include "wire/gds.h"

/* A reply's kind is its request's + 1. */
enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_HELLO_REPLY = 2,
    WIRE_AUTH = 3,
    WIRE_AUTH_REPLY = 4,
    WIRE_ERROR = 5,

    WIRE_SESSION_OPEN = 10,
    WIRE_SESSION_OPEN_REPLY = 11,
    WIRE_HEARTBEAT = 12,
    WIRE_HEARTBEAT_REPLY = 13,
    WIRE_SEGMENT_MOUNT = 14,
    WIRE_SEGMENT_MOUNT_REPLY = 15,
    WIRE_MIRROR_OFFER = 16,
    WIRE_MIRROR_OFFER_REPLY = 17,
    WIRE_SESSION_CLOSE = 18,
    WIRE_SESSION_CLOSE_REPLY = 19,
    WIRE_SEGMENT_UNMOUNT = 20,
    WIRE_SEGMENT_UNMOUNT_REPLY = 21,
    WIRE_SEGMENT_INFO = 22,
    WIRE_SEGMENT_INFO_REPLY = 23,

    WIRE_EXIST = 40,
    WIRE_EXIST_REPLY = 41,
    WIRE_GET_START = 42,
    WIRE_GET_START_REPLY = 43,
    WIRE_PUT_START = 44,
    WIRE_PUT_START_REPLY = 45,
    WIRE_PUT_END = 46,
    WIRE_PUT_END_REPLY = 47,
    WIRE_PUT_REVOKE = 48,
    WIRE_PUT_REVOKE_REPLY = 49,
    WIRE_REMOVE = 50,
    WIRE_REMOVE_REPLY = 51,
    WIRE_REMOVE_ALL = 52,
    WIRE_REMOVE_ALL_REPLY = 53,
    WIRE_LIST = 54,
    WIRE_LIST_REPLY = 55,
    WIRE_STAT = 56,
    WIRE_STAT_REPLY = 57,
    WIRE_RENEW = 58,
    WIRE_RENEW_REPLY = 59,
    WIRE_REPLICA_BAD = 60,
    WIRE_REPLICA_BAD_REPLY = 61,
    WIRE_REPLICA_CLEAR = 62,
    WIRE_REPLICA_CLEAR_REPLY = 63,
    WIRE_GDS_ROOM = 64,
    WIRE_GDS_ROOM_REPLY = 65,

    WIRE_FACTS = 80,
    WIRE_FACTS_ACK = 81,
    WIRE_FENCE = 82,
    WIRE_FENCED = 83,
    WIRE_PUT_EXPIRED = 84,
    WIRE_SESSION_LOST = 86,
    WIRE_TASKS = 88,
    WIRE_TASKS_DONE = 89,

    WIRE_CLIENT_SETUP = 90,
    WIRE_CLIENT_SETUP_REPLY = 91,

    WIRE_PEER_DESCRIBE = 120,
    WIRE_PEER_DESCRIBE_REPLY = 121,
    WIRE_PEER_NOTIFY = 122,
    WIRE_PEER_NOTIFY_REPLY = 123,
};

/* HELLO.features. A peer without the bit skips the fields it does not know, so who needs them
 * refuses first. */
#define WIRE_FEATURE_PUT_OPTIONS (1ull << 0) /* PUT_START tags 14 to 17 and flags */
#define WIRE_FEATURE_TENANTS     (1ull << 1) /* SESSION_OPEN tag 14 */
#define WIRE_FEATURE_GDS         (1ull << 2) /* medium 5 and what is said of it; REPLICA_CLEAR */
#define WIRE_FEATURES            (WIRE_FEATURE_PUT_OPTIONS | WIRE_FEATURE_TENANTS | WIRE_FEATURE_GDS)

/* What a segment is made of, and so what a replica in it is. Numbers of Mooncake's ReplicaType, and
 * of its proposal for GDS. */
enum wire_medium { WIRE_MEDIUM_MEMORY = 0, WIRE_MEDIUM_LOCAL_DISK = 2, WIRE_MEDIUM_GDS = 5 };
static inline bool wire_medium_known(uint32_t medium)
{
    return medium == WIRE_MEDIUM_MEMORY || medium == WIRE_MEDIUM_LOCAL_DISK ||
           medium == WIRE_MEDIUM_GDS;
}

/* GET_START.flags. A pin is mapped: what only a disk has is read by another get, and is not used by
 * this one. A peek asks where values are, without guards, and leaves no trace. */
#define WIRE_GET_PIN  1u /* the guard has no TTL */
#define WIRE_GET_PEEK 2u
/* PUT_START.flags */
#define WIRE_PUT_UPSERT       1u /* in place of what the key has */
#define WIRE_PUT_HARD_PIN     2u
#define WIRE_PUT_SAME_SEGMENT 4u /* all of the message where the first of it goes */
#define WIRE_PUT_ALL_COPIES   8u /* rather AGAIN than fewer, while more may be had in a moment */
#define WIRE_FACT_HARD_PIN    1u /* PLACED: fact.session */
/* Keys of one message, as far as the wire is concerned; the master's own limit a turn may be lower.
 */
#define WIRE_KEYS_MAX    MAX_BATCH_KEYS
#define WIRE_ID_SIZE     16u
#define WIRE_TICKET_SIZE 16u
#define WIRE_NONCE_SIZE  32u
#define WIRE_PROOF_SIZE  32u

/* ---- hello ---- */
struct wire_hello {
    uint32_t min, max; /* protocol versions */
    uint64_t features;
    uint32_t role;    /* enum wire_role */
    uint32_t purpose; /* enum wire_purpose */
    uint8_t nonce[WIRE_NONCE_SIZE];
    uint8_t instance[WIRE_ID_SIZE];
    uint64_t session;
};
struct wire_hello_reply {
    int32_t status;
    uint32_t version;
    uint64_t features;
    uint8_t nonce[WIRE_NONCE_SIZE];
    uint8_t instance[WIRE_ID_SIZE];
    uint32_t auth_required;
    uint8_t proof[WIRE_PROOF_SIZE];
    struct wire_view text;
};
struct wire_auth {
    uint8_t proof[WIRE_PROOF_SIZE];
};
/* AUTH_REPLY, ERROR, and every reply that carries nothing else: HEARTBEAT, SESSION_CLOSE,
 * SEGMENT_UNMOUNT. */
struct wire_status_reply {
    int32_t status;
    struct wire_view text;
};

/* ---- control: each request begins with this ---- */
struct wire_request {
    uint64_t session;
    uint64_t op;           /* names the batch: its puts, its read guard, its pin */
    uint64_t floor;        /* lowest op still live in this client */
    struct wire_view done; /* u64 list: ops whose guards end early */
};

struct wire_session_open {
    struct wire_request request; /* session: the one to resume, or 0 */
    uint8_t client_id[WIRE_ID_SIZE];
    uint64_t generation; /* of the client id: a later life has a greater one */
    struct wire_view name;
    struct wire_view held;   /* struct wire_held list */
    struct wire_view tenant; /* empty: the default one */
};
struct wire_session_open_reply {
    int32_t status;
    uint64_t session;
    uint64_t lease_ttl_ms;
    uint64_t put_timeout_ms;
    uint64_t heartbeat_ms;
    uint64_t session_ttl_ms;
    uint8_t master_instance[WIRE_ID_SIZE];
    struct wire_view text;
};
/* HEARTBEAT, SESSION_CLOSE */
struct wire_plain_request {
    struct wire_request request;
};

struct wire_segment_mount {
    struct wire_request request;
    struct wire_view name;
    uint64_t size;
    uint64_t generation;
    struct wire_view endpoints;
    uint8_t ticket_key[32];
    uint8_t prior_master[WIRE_ID_SIZE];
    struct wire_view old_sessions; /* u64 list */
    uint64_t mirror_count;
    uint32_t medium;                  /* enum wire_medium */
    uint8_t storage_id[WIRE_ID_SIZE]; /* LOCAL_DISK, GDS: of the extent file; lasts over restarts */
    uint64_t storage_generation;      /* GDS: of the extent file; grows each time it is made anew */
};
struct wire_segment_mount_reply {
    int32_t status;
    uint64_t segment;
    struct wire_view text;
};
struct wire_mirror_offer {
    struct wire_request request;
    uint64_t segment;
    struct wire_view keys;
    struct wire_view recs; /* struct wire_offer list, one a key */
    uint32_t last;
    struct wire_view pinned; /* u32 list: indexes into keys, ascending: hard-pinned ones */
};
struct wire_mirror_offer_reply {
    int32_t status;
    uint32_t accepted;
    struct wire_view rejected; /* u32 list: indexes into keys */
    struct wire_view text;
};
struct wire_segment_unmount {
    struct wire_request request;
    uint64_t segment;
    uint64_t grace_ms;
};
struct wire_segment_info {
    struct wire_request request;
    uint64_t segment;
};
struct wire_segment_info_reply {
    int32_t status;
    uint64_t segment;
    uint64_t size;
    uint64_t generation;
    struct wire_view endpoints;
    uint64_t owner_session;
    uint32_t medium;
    struct wire_view text;
};

/* EXIST, PUT_END, PUT_REVOKE */
struct wire_keys_request {
    struct wire_request request;
    struct wire_view keys;
};
/* EXIST, PUT_END, PUT_REVOKE, REMOVE, REPLICA_CLEAR */
struct wire_results_reply {
    int32_t status;
    struct wire_view results; /* i32 list, one a key */
    struct wire_view text;
};
struct wire_get_start {
    struct wire_request request;
    struct wire_view keys;
    uint32_t flags;
};
struct wire_get_start_reply {
    int32_t status;
    uint64_t guard_ttl_ms;
    struct wire_view results;  /* struct wire_result list, one a key */
    struct wire_view replicas; /* struct wire_replica list, results index it */
    struct wire_view gds;      /* gds.h: one a replica of medium GDS, in their order, none nil */
    struct wire_view text;
};
struct wire_put_start {
    struct wire_request request;
    struct wire_view keys;
    struct wire_view sizes; /* u64 list, one a key */
    uint32_t replica_num;
    uint32_t flags;
    struct wire_view preferred; /* KEYS: names of segments, the best first */
    struct wire_view groups;    /* KEYS: one a key, empty: none; or an empty list */
    uint32_t soft_pin;          /* 0 as the old value, 1 set, 2 clear */
    uint64_t soft_pin_ttl_ms;   /* UINT64_MAX: the master's default */
    struct wire_view gds;       /* gds.h: what the client reserved for each key, nil: nothing; or an
                                   empty list */
};
/* The replica of medium GDS is the last one of its key, with a ticket of zeros. A key for which
 * there is no other memory or no quota has that one alone. */
struct wire_put_start_reply {
    int32_t status;
    struct wire_view results;
    struct wire_view replicas;
    struct wire_view tickets; /* WIRE_TICKET_SIZE bytes a replica */
    struct wire_view why;     /* KEYS: one a key, what is wrong with its descriptor, empty: nothing;
                                 or an empty list */
    struct wire_view text;
};
struct wire_remove {
    struct wire_request request;
    struct wire_view keys;
    uint32_t force;
};
struct wire_remove_all {
    struct wire_request request;
    uint32_t force;
};
struct wire_remove_all_reply {
    int32_t status;
    uint64_t count;
    struct wire_view text;
};
struct wire_list {
    struct wire_request request;
    uint64_t cursor;
    uint32_t limit;
};
struct wire_list_reply {
    int32_t status;
    struct wire_view keys;
    struct wire_view sizes; /* u64 list */
    uint64_t cursor;        /* 0: the end */
    struct wire_view text;
};
struct wire_stat {
    struct wire_request request;
    uint32_t recount;
};
struct wire_stat_reply {
    int32_t status;
    struct wire_view text; /* lines "name value" */
    uint64_t differences;  /* what the recount found wrong */
};
struct wire_renew {
    struct wire_request request;
    struct wire_view ops; /* u64 list */
};
struct wire_renew_reply {
    int32_t status;
    uint64_t guard_ttl_ms;
    struct wire_view text;
};

/* The reader found bytes on a disk that do not match their checksum: the master drops the replica
 * of each key that still lies at that place. */
struct wire_replica_bad {
    struct wire_request request;
    struct wire_view keys;
    struct wire_view replicas; /* struct wire_replica list, one a key */
};

/* Memory replicas of the keys in the segments of that name go; with an empty name the keys as a
 * whole do. A key with a lease is refused. Answered as REMOVE is. */
struct wire_replica_clear {
    struct wire_request request;
    struct wire_view keys;
    struct wire_view segment;
};
/* The owner of a GDS segment finds no extent of `size` bytes. */
struct wire_gds_room {
    struct wire_request request;
    uint64_t segment;
    uint64_t size;
};
struct wire_gds_room_reply {
    int32_t status;   /* NO_SPACE: nothing more can go there now */
    uint64_t pending; /* bytes given up there: FREED facts told, or to be told when their readers
                         end */
    struct wire_view text;
};

/* ---- pushes of the master, and their answers (which are no requests: no session prefix) ---- */
enum wire_fact_kind {
    WIRE_FACT_PLACED = 1,
    WIRE_FACT_FREED = 2,
    WIRE_FACT_SESSION_OPEN = 3,
    WIRE_FACT_SESSION_GONE = 4,
};
struct wire_facts {
    uint64_t segment;
    uint64_t seq;
    struct wire_view recs; /* struct wire_fact list */
    struct wire_view keys; /* one a record; empty for the session facts */
};
struct wire_facts_ack {
    uint64_t segment;
    uint64_t seq;
};
/* FENCE, FENCED */
struct wire_fence {
    uint64_t segment;
    uint64_t fenced_session;
};
struct wire_put_expired {
    uint64_t op;
    struct wire_view keys;
};
struct wire_session_lost {
    uint64_t session;
};
enum wire_task_kind {
    WIRE_TASK_OFFLOAD = 1, /* copy the object at `offset` of the memory segment to the disk */
    WIRE_TASK_PROMOTE = 2, /* copy the object at `disk_offset` of the disk to `offset` in memory */
};
/* Work for the owner of a memory segment and a disk segment. Ids only grow. The owner refuses what
 * names another mount of its segments, and any id below the highest floor it has seen; an id it has
 * finished is answered again, not done again. */
struct wire_tasks {
    uint64_t segment;      /* memory */
    uint64_t disk;         /* segment */
    uint64_t floor;        /* lowest id that is not answered yet */
    struct wire_view recs; /* struct wire_task list */
    struct wire_view keys; /* one a record */
};
struct wire_tasks_done {
    uint64_t segment;
    struct wire_view recs; /* struct wire_task_done list */
};

/* A dummy client to its real client: how do you reach the master? */
struct wire_client_setup_reply {
    int32_t status;
    struct wire_view master;
    struct wire_view tenant;
    struct wire_view name;
    struct wire_view text;
};

/* Large enough for any message. */
union wire_any {
    struct wire_hello hello;
    struct wire_hello_reply hello_reply;
    struct wire_session_open session_open;
    struct wire_session_open_reply session_open_reply;
    struct wire_segment_mount segment_mount;
    struct wire_segment_info_reply segment_info_reply;
    struct wire_tasks tasks;
    struct wire_replica_bad replica_bad;
    struct wire_replica_clear replica_clear;
    struct wire_gds_room gds_room;
    struct wire_mirror_offer mirror_offer;
    struct wire_put_start put_start;
    struct wire_put_start_reply put_start_reply;
    struct wire_list_reply list_reply;
    struct wire_facts facts;
    struct wire_request request;
    struct wire_status_reply status_reply;
    uint8_t bytes[256];
};

/* ---- records in lists: NAMEs_count, NAME_at (index < count), NAME_append ---- */
struct wire_held {
    uint64_t seg_generation, offset, size, op;
};
struct wire_offer {
    uint64_t offset, size;
    uint32_t checksum; /* crc32c of the value; LOCAL_DISK only */
};
struct wire_result {
    int32_t status;
    uint32_t replica_count;
    uint64_t size;
    uint32_t first; /* index of its first replica */
};
struct wire_replica {
    uint64_t segment, offset;
    uint32_t medium;   /* enum wire_medium */
    uint32_t checksum; /* crc32c of the value; LOCAL_DISK, and GDS if it is known (else 0) */
};
struct wire_fact {
    uint8_t kind; /* enum wire_fact_kind */
    uint64_t offset, size, session;
};
struct wire_task {
    uint8_t kind; /* enum wire_task_kind */
    uint64_t id;
    uint64_t offset, size;
    uint64_t disk_offset; /* PROMOTE */
    uint32_t checksum;    /* PROMOTE: of what is read */
};
struct wire_task_done {
    uint64_t id;
    int32_t status;       /* NO_SPACE: the disk has no room; CORRUPT: the checksum was wrong */
    uint64_t disk_offset; /* OFFLOAD: where it lies, and the bytes that are taken there */
    uint64_t disk_size;
    uint32_t checksum; /* OFFLOAD */
};
/* ---- between peers, on connections of WIRE_PURPOSE_PEER ---- */
struct wire_peer_describe {
    uint32_t buffers; /* 1: list the buffers too */
};
struct wire_peer_describe_reply {
    int32_t status;
    struct wire_view text;
    uint64_t segment; /* the addresses of the process */
    struct wire_view endpoints;
    struct wire_view
        buffers; /* records: u64 address, u64 size, u32 permission, char location[64] */
};
struct wire_peer_notify {
    struct wire_view name;
    struct wire_view message;
};

enum {
    WIRE_PEER_BUFFER_SIZE = 84,
    WIRE_HELD_SIZE = 32,
    WIRE_OFFER_SIZE = 20,
    WIRE_RESULT_SIZE = 20,
    WIRE_REPLICA_SIZE = 24,
    WIRE_FACT_SIZE = 25,
    WIRE_TASK_SIZE = 37,
    WIRE_TASK_DONE_SIZE = 32,
};
static inline uint32_t wire_held_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_HELD_SIZE);
}
static inline uint32_t wire_offer_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_OFFER_SIZE);
}
static inline uint32_t wire_result_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_RESULT_SIZE);
}
static inline uint32_t wire_replica_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_REPLICA_SIZE);
}
static inline uint32_t wire_fact_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_FACT_SIZE);
}
static inline uint32_t wire_task_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_TASK_SIZE);
}
static inline uint32_t wire_task_done_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_TASK_DONE_SIZE);
}
static inline uint32_t wire_ticket_count(struct wire_view list)
{
    return (uint32_t)(list.size / WIRE_TICKET_SIZE);
}
static inline const uint8_t *wire_ticket_at(struct wire_view list, uint32_t i)
{
    return list.data + (size_t)i * WIRE_TICKET_SIZE;
}
struct wire_held wire_held_at(struct wire_view list, uint32_t i);
struct wire_offer wire_offer_at(struct wire_view list, uint32_t i);
struct wire_result wire_result_at(struct wire_view list, uint32_t i);
struct wire_replica wire_replica_at(struct wire_view list, uint32_t i);
struct wire_fact wire_fact_at(struct wire_view list, uint32_t i);
struct wire_task wire_task_at(struct wire_view list, uint32_t i);
struct wire_task_done wire_task_done_at(struct wire_view list, uint32_t i);
YOLK_MUST_USE int wire_held_append(struct base_buf *out, const struct wire_held *rec);
YOLK_MUST_USE int wire_offer_append(struct base_buf *out, const struct wire_offer *rec);
YOLK_MUST_USE int wire_result_append(struct base_buf *out, const struct wire_result *rec);
YOLK_MUST_USE int wire_replica_append(struct base_buf *out, const struct wire_replica *rec);
YOLK_MUST_USE int wire_fact_append(struct base_buf *out, const struct wire_fact *rec);
YOLK_MUST_USE int wire_task_append(struct base_buf *out, const struct wire_task *rec);
YOLK_MUST_USE int wire_task_done_append(struct base_buf *out, const struct wire_task_done *rec);
YOLK_MUST_USE int wire_ticket_append(struct base_buf *out, const uint8_t ticket[WIRE_TICKET_SIZE]);

#endif
