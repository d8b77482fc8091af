/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state behind core.h, shared by the files of this room only.
 *
 * An extent lives OPEN (being written) -> LIVE (committed, belongs to an object) -> DEAD (given up;
 * waits for its guards, its writer and the owner's acknowledgement of `freed`; then it is free
 * space).
 *
 * A segment is memory, where the master allocates and clients write, or a file, where its owner
 * allocates and only the owner reads and writes: a disk below a node's memory (tier.h), or the file
 * of a client's GPUs (gds.h). In names, "disk" is any file, but for master_object_disk.
 */
#ifndef YOLK_MASTER_STATE_H
#define YOLK_MASTER_STATE_H

#include "base/buf.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/extents.h"
#include "base/slab.h"
#include "master/core.h"
#include "master/index.h"
#include "master/extra.h"
#include "master/gds.h"
#include "master/policy.h"
#include "master/tier.h"
#include "wire/msg.h"

#define MASTER_GHOSTS 65536u /* at most: recent reasons of absence, direct mapped by hash */
#define MASTER_NEVER  UINT64_MAX

#define MASTER_OBJECT_SLABS 64 /* for objects of less than 8 times as many bytes */

#define MASTER_PUT_EXTENTS (MASTER_MAX_REPLICAS + 1) /* of one put: in memory, and on GDS */
#define MASTER_MAX_EXTENTS (MASTER_MAX_REPLICAS + 2) /* of one object: and on a disk */

struct master_put;
struct master_segment;
struct master_session;

enum master_extent_state { EXTENT_OPEN = 1, EXTENT_LIVE, EXTENT_DEAD };
enum master_extent_fact {
    FACT_NONE,
    FACT_PLACED_QUEUED,
    FACT_PLACED_SENT,
    FACT_FREED_QUEUED,
    FACT_FREED_SENT
};
/* CLEAN and DIRTY: the policy has named them to go next; they are on a disk too, or not. */
/* SOFT and HARD: the object is pinned. */
enum master_extent_list { IN_NO_LIST, IN_ORDER, IN_PROBED, IN_CLEAN, IN_DIRTY, IN_SOFT, IN_HARD };

struct master_object {
    struct master_index_entry entry; /* first: the index knows only this */
    uint64_t size : 48;
    uint64_t extent_count : 8;
    uint64_t memory_only : 1;      /* its disk cannot take it */
    uint64_t detached : 1;         /* not in the index: written to replace what is there */
    uint64_t has_extra : 1;        /* extra.h */
    uint64_t pin : 2;              /* enum master_pin */
    uint64_t upserted : 1;         /* here: what owners offer of before is not its value */
    uint64_t lease_until;          /* nominal lease */
    struct master_put *put;        /* NULL once committed */
    struct master_extent *extents; /* the first of a chain */
    struct master_note note;       /* the policy's */
    uint32_t era;                  /* the core's when it came */
    uint32_t disk_hit; /* second of the last get that only a disk could serve; 0: none */
    uint8_t key[];
};
_Static_assert(MAX_OBJECT_SIZE < 1ull << 48, "an object's size has 48 bits");
_Static_assert(sizeof(struct master_object) <= 64, "there are millions: a record is to stay small");

#define MASTER_EXTENTS_FOREACH(extent, object)                                                     \
    for (struct master_extent *extent = (object)->extents; extent != NULL; extent = extent->next)

struct master_extent {
    union {
        struct base_list order; /* in one of the lists: the policy's or the segment's others */
        struct master_put *put; /* in no list: its writer, until that is known to be quiet */
    };
    struct base_list fact; /* the segment's queue, or its freed ones without an answer */
    struct master_segment *segment;
    struct master_object *object; /* NULL: nobody can find it any more (DEAD) */
    struct master_extent *next;   /* of the object's */
    union {
        uint64_t probe_until; /* LIVE, in the probed list */
        uint64_t freed_seq;   /* DEAD, freed fact sent */
    };
    uint32_t handle;
    uint32_t refs;      /* guards and pins */
    uint32_t epoch;     /* the segment's when it was placed or confirmed */
    uint32_t checksum;  /* of the value, on a disk */
    uint16_t task_refs; /* of refs, those of tasks */
    uint8_t state, fact_state, list;
    bool inserted;   /* the policy has had it */
    bool awaits_ack; /* counted in the segment's ack_bytes */
    bool has_room;   /* pinned; its copy on the disk is counted in the tier's clean_room */
};
_Static_assert(sizeof(struct master_extent) <= 96, "as many as objects, and more");

enum master_put_state { PUT_OPEN = 1, PUT_COMMITTED, PUT_REVOKED, PUT_EXPIRED };

/* Where the value lay that an upsert replaced. */
struct master_replaced {
    uint32_t count;
    struct {
        uint64_t segment, offset;
    } at[MASTER_MAX_EXTENTS];
};

/* One key of one PUT_START. Stays until its op does, so that a repeated message gets the same
 * answer. */
struct master_put {
    struct master_put *hash_next; /* in the op's table */
    struct base_list op_link;
    struct base_list time_link; /* core: open_puts or expired_puts */
    struct master_op *op;
    struct master_object *object;                      /* while OPEN */
    struct master_extent *extents[MASTER_PUT_EXTENTS]; /* while the writer may write */
    struct master_replaced *replaced;                  /* NULL: no upsert */
    uint64_t deadline;
    uint64_t size;
    uint64_t hash;
    uint32_t key_size;
    uint8_t extent_count;
    uint8_t state;
    uint8_t key[];
};

struct master_op {
    struct master_op *hash_next;
    struct base_list session_link; /* ascending by op */
    struct base_list ttl_link;     /* core: guards, by deadline */
    struct master_session *session;
    uint64_t op;
    uint64_t deadline;
    struct master_extent **items; /* one ref each */
    uint32_t item_count, item_room;
    bool pinned;
    struct base_list puts;
    struct base_list *put_cursor;  /* keys come in the same order again */
    struct master_put **put_table; /* by the key's hash; NULL: few, or no memory for it */
    uint32_t put_count, put_buckets;
};

/* A held record whose segment is not mounted yet. */
struct master_held {
    uint64_t segment, offset, size, op;
};

struct master_session {
    struct master_session *hash_next;
    struct base_list link; /* core: sessions or zombies */
    uint64_t id;
    uint8_t client_id[WIRE_ID_SIZE];
    uint64_t generation;
    uint64_t connection;
    bool connected;
    bool zombie;
    uint64_t last_seen;
    uint64_t floor;
    uint64_t next_fence;    /* a zombie looks again then what is to be fenced */
    uint64_t pending_bytes; /* of extents it may still write */
    struct master_tenant *tenant;
    struct base_list ops;
    uint32_t op_count;
    struct master_held *held;
    uint32_t held_count;
};

/* A gone session which a segment's owner is to refuse from now on. */
struct master_fence {
    struct base_list link;
    uint64_t session;
    uint64_t next_send;
};

/* A session of an earlier master. */
struct master_wait {
    uint64_t session;
    bool registered;
    bool fenced;
};

struct master_batch {
    struct base_list link;
    uint64_t seq;
    uint64_t sent_at;
    size_t size;
    uint8_t body[];
};

enum master_segment_state {
    SEGMENT_RECOVERING = 1, /* readable; not yet for allocation */
    SEGMENT_OPEN,
    SEGMENT_LOST, /* owner gone; its keys are remembered */
    SEGMENT_GONE, /* being forgotten */
};

struct master_segment {
    struct base_list link;       /* core: segments */
    struct base_list dirty_link; /* core: dirty, has facts to push */
    struct base_list *dirty_head;
    uint64_t id;
    uint64_t prior_id; /* of the same memory at its last mount, 0 if it had none */
    uint64_t size;
    uint32_t slot;
    uint32_t epoch; /* grows with each mount */
    enum master_segment_state state;
    enum wire_medium medium;
    uint8_t storage_id[WIRE_ID_SIZE]; /* of a disk */
    uint64_t storage_generation;      /* of GDS */
    uint64_t offered_to;              /* of a disk: below this nothing new is believed */
    struct master_tier tier;
    struct master_session *owner; /* NULL when LOST or GONE */
    uint64_t mount_op, mount_prior;
    uint8_t prior_master[WIRE_ID_SIZE];
    uint8_t client_id[WIRE_ID_SIZE];
    uint8_t ticket_key[32];
    char *endpoints;
    char *name;
    struct wire_view controller;   /* in endpoints: the memory controller it is behind; or empty */
    uint64_t ahead;                /* bytes its controller was given more than the one with least */
    struct base_slab *extent_slab; /* the core's */
    struct base_extents *alloc;    /* of a disk that was larger before: still so large */
    const struct master_policy *policy;
    void *order;             /* the policy's, over the replicas that may go */
    struct base_list probed; /* front: lease ends first */
    uint64_t probed_bytes;
    struct base_list soft, hard; /* replicas of pinned objects */
    uint64_t hard_bytes;         /* of objects with a hard pin; not of a disk */
    uint64_t guarded;            /* extents with refs */
    uint64_t live_bytes, open_bytes, dead_bytes;
    uint64_t ack_bytes; /* dead ones that wait for nothing but the owner's answer */
    uint64_t live_count;
    uint64_t put_count;     /* replicas ever placed here */
    uint64_t failed_at;     /* a writer gave up a put here (REVOKE); 0: never */
    struct base_list queue; /* facts to send */
    struct base_list freed; /* freed facts sent, by seq */
    struct base_list batches;
    uint32_t batch_count;
    uint64_t seq; /* of the last batch */
    struct {
        uint8_t kind;
        uint64_t session;
    } * session_facts;
    uint32_t session_fact_count, session_fact_room;
    uint64_t session_seq; /* of the last batch that told of opened sessions */
    bool sessions_untold; /* memory ran out for one: all are told anew */
    struct base_list fences;
    struct master_wait *waits;
    uint32_t wait_count;
    bool offers_done;
    bool trusting; /* nothing was known of it: the owner's word alone is taken, until its last offer
                    */
    bool replayed;
    bool sweeping;
    uint64_t sweep_at; /* offset */
    uint64_t mounted_at, lost_at;
    bool evicting; /* between the watermarks, on the way down */
    /* an UNMOUNT that waits */
    bool unmount_pending;
    uint64_t unmount_connection, unmount_request, unmount_deadline;
};

struct master_job { /* remove_all */
    struct base_list link;
    uint64_t connection, request_id, session, op;
    uint64_t cursor, count;
    uint32_t last_era;   /* what is put from then on stays */
    uint8_t prefix_size; /* of its tenant's keys */
    uint8_t prefix[MAX_TENANT_SIZE + 2];
    bool everything; /* of all tenants */
    bool force;
};

#define MASTER_COLLECT_MAX 8192u
struct master_collected {
    struct master_object *objects[MASTER_COLLECT_MAX];
    uint32_t count;
};

struct master_core {
    struct master_config config;
    uint8_t instance[WIRE_ID_SIZE];
    uint64_t random; /* state */
    uint64_t id_tag;
    uint64_t now;
    uint64_t last_call;
    uint32_t era;                   /* ends with each remove_all */
    const struct master_sink *sink; /* of the running call */
    struct master_index *index;
    struct base_slab object_slabs[MASTER_OBJECT_SLABS]; /* by size, in steps of 8 bytes */
    struct base_slab extent_slab;
    uint64_t committed, processing;
    struct base_list segments, dirty;
    struct master_segment *by_slot[MAX_SEGMENTS];
    uint32_t segment_count;
    uint32_t gds_count; /* of segments, those of GDS */
    uint64_t open_capacity;
    struct base_list sessions, zombies;
    uint32_t session_count, zombie_count;
    struct master_session *session_table[4096];
    struct master_op **op_table;
    uint64_t op_buckets, op_count, guard_count;
    struct base_list guards;       /* ops with a TTL, by deadline */
    struct base_list open_puts;    /* by deadline */
    struct base_list expired_puts; /* by next push */
    struct base_list jobs;
    uint32_t job_count;
    uint64_t *dead_foreign; /* sessions of earlier masters that are not to come back */
    uint32_t dead_foreign_count;
    uint8_t (*storage_ids)[WIRE_ID_SIZE]; /* of every disk ever mounted here */
    uint32_t storage_id_count;
    uint64_t *ghosts, ghost_mask;
    struct master_collected *collected; /* one piece of a walk */
    struct master_object **looked_up;   /* by one request; NULL when the policy does not care */
    uint64_t *looked_up_hashes;
    uint32_t looked_up_count; /* of the request that is being performed */
    void *policy_state;       /* NULL when it needs none */
    struct master_extras extras;
    struct wire_view prefix; /* of the running request's tenant: all of its keys begin so */
    bool any_key;            /* but for those of an owner */
    struct base_buf out, list[3];
    struct master_stats stats; /* counters; the gauges are computed */
    uint64_t connection;       /* of the running request */
    uint64_t request_id;
};

/* core.c */
uint64_t master_random(struct master_core *core);
void master_send(struct master_core *core, uint64_t connection, uint64_t request_id, uint16_t kind,
                 const void *msg);
/* Answers the running request. */
void master_reply(struct master_core *core, uint16_t kind, const void *msg);
void master_reply_status(struct master_core *core, uint16_t kind, enum yolk_status status,
                         const char *text);

static inline uint64_t master_ms(uint64_t ms)
{
    return ms * NS_PER_MS;
}

/* object.c: objects, extents and the rule for reuse */
struct master_object *master_object_find(struct master_core *core, struct wire_view key,
                                         uint64_t hash);
struct master_object *master_object_create(struct master_core *core, struct wire_view key,
                                           uint64_t hash, uint64_t size);
/* The same, to be found by nobody before it is inserted. */
struct master_object *master_object_make(struct master_core *core, struct wire_view key,
                                         uint64_t hash, uint64_t size);
YOLK_MUST_USE enum yolk_status master_object_insert(struct master_core *core,
                                                    struct master_object *object);
/* Hides it at once; its extents become DEAD. The object is gone afterwards. */
void master_object_drop(struct master_core *core, struct master_object *object, int ghost);
/* A reader is told of it. */
bool master_object_readable(const struct master_object *object);
bool master_object_guarded(const struct master_object *object);
/* There is something in it; and whoever serves it can be asked, too. */
bool master_extent_readable(const struct master_extent *extent);
bool master_extent_reachable(const struct master_extent *extent);
bool master_segment_is_named(const struct master_segment *segment, struct wire_view name);
static inline bool master_segment_is_disk(const struct master_segment *segment)
{
    return segment->medium != WIRE_MEDIUM_MEMORY;
}
/* The first replica of a medium, readable or not; NULL: none. And that on a LOCAL_DISK. */
struct master_extent *master_object_on(const struct master_object *object, enum wire_medium medium);
struct master_extent *master_object_disk(const struct master_object *object);
/* It has a replica that is not in memory, readable or not. */
bool master_object_on_file(const struct master_object *object);
/* It may have another replica, in this memory. */
bool master_object_takes(const struct master_object *object, const struct master_segment *memory);
/* Somebody could still read the object if this replica went. */
bool master_extent_spare(const struct master_extent *extent);
/* New extents, in free space or at a given place; NULL when there is none. */
struct master_extent *master_extent_take(struct master_segment *segment, uint64_t size,
                                         enum master_extent_state state);
struct master_extent *master_extent_reserve(struct master_segment *segment, uint64_t offset,
                                            uint64_t size, enum master_extent_state state);
void master_extent_probed(struct master_extent *extent, uint64_t until);
/* To go next, in this list of its segment. */
void master_extent_named(struct master_extent *extent, enum master_extent_list list, bool first);
uint64_t master_extent_size(const struct master_extent *extent);
uint64_t master_extent_offset(const struct master_extent *extent);
void master_extent_attach(struct master_core *core, struct master_extent *extent,
                          struct master_object *object);
void master_extent_set_state(struct master_extent *extent, enum master_extent_state state);
/* Gives it up: out of its object and lists, DEAD. It may be free memory afterwards. */
void master_extent_drop(struct master_core *core, struct master_extent *extent);
/* The same of an object's extent; with the last one the object goes, if it is not being written. */
void master_replica_drop(struct master_core *core, struct master_extent *extent, int ghost);
void master_extent_ref(struct master_extent *extent);
void master_extent_unref(struct master_core *core, struct master_extent *extent);
/* The same, but it does not count as used. */
void master_extent_unref_named(struct master_core *core, struct master_extent *extent,
                               enum master_extent_list list);
void master_extent_writer_done(struct master_core *core, struct master_extent *extent);
/* DEAD and nothing holds it: free space now. */
void master_extent_settle(struct master_core *core, struct master_extent *extent);
/* From now on it may go, unless somebody reads it; it counts as just used. */
void master_extent_use(struct master_extent *extent);
enum { GHOST_NONE, GHOST_EVICTED, GHOST_EXPIRED };
void master_ghost_set(struct master_core *core, uint64_t hash, int reason);
int master_ghost_get(const struct master_core *core, uint64_t hash);
void master_emit_committed(struct master_core *core, const struct master_object *object);
void master_emit_replica_removed(struct master_core *core, const struct master_extent *extent);

/* facts.c: pushes to the owners */
void master_fact_placed(struct master_extent *extent);
bool master_segment_knows_sessions(const struct master_segment *segment);
void master_facts_dirty(struct master_segment *segment);
void master_facts_flush(struct master_core *core);
/* To all owners, of one session; and to one owner, of all that live. */
void master_fact_session(struct master_core *core, uint64_t session, uint8_t kind);
void master_facts_sessions(struct master_core *core, struct master_segment *segment);
/* False: memory ran out before all was said; to be called again. */
bool master_facts_push(struct master_core *core, struct master_segment *segment);
void master_facts_restart(struct master_segment *segment); /* a new mount: all anew */
/* None of them is to be told any more; only after master_facts_restart. */
void master_facts_void(struct master_core *core, struct master_segment *segment);
/* The segment of an answer, if it came from its owner. */
struct master_segment *master_segment_owned(const struct master_core *core, uint64_t id);
void master_facts_resend(struct master_core *core, struct master_segment *segment, bool at_once);
void master_facts_ack(struct master_core *core, const struct wire_facts_ack *msg);
void master_fence_add(struct master_core *core, struct master_segment *segment, uint64_t session);
void master_fence_push(struct master_core *core, struct master_segment *segment, bool at_once);
void master_fenced(struct master_core *core, const struct wire_fence *msg);

/* keys.c: requests that name a list of keys */
struct master_key {
    struct wire_view bytes;
    uint64_t hash;
    uint32_t index; /* in the list */
};
/* Opens the list and enters the session; NULL after refusing the request of this kind. */
struct master_session *master_keys_enter(struct master_core *core,
                                         const struct wire_request *request, struct wire_view list,
                                         uint16_t kind, struct wire_keys *keys);
/* Calls `one` for each key in order, until it fails. */
YOLK_MUST_USE enum yolk_status master_keys_walk(
    struct master_core *core, struct wire_keys *keys,
    enum yolk_status (*one)(struct master_core *core, void *self, const struct master_key *key),
    void *self);
/* The same for a request that is answered with one status a key: what `one` returns. */
void master_keys_answer(struct master_core *core, uint16_t kind, struct wire_keys *keys,
                        enum yolk_status (*one)(struct master_core *core, void *self,
                                                const struct master_key *key),
                        void *self);
/* What the policy is to be told of a key that was looked up, in order. */
void master_keys_saw(struct master_core *core, const struct master_key *key,
                     struct master_object *object);
/* Tells it, once the request has been performed, which must not have taken any of them away. */
void master_keys_seen(struct master_core *core, const struct wire_request *request, uint16_t kind);
/* The same of what is there now, for a request that may have. */
void master_keys_looked_up(struct master_core *core, const struct wire_request *request,
                           struct wire_view list, uint16_t kind);

/* session.c */
struct master_session *master_session_find(const struct master_core *core, uint64_t id);
/* The live session of a request, with floor and done applied; or NULL after refusing it with
 * `reply_kind`. */
struct master_session *master_session_enter(struct master_core *core,
                                            const struct wire_request *request,
                                            uint16_t reply_kind);
void master_session_open(struct master_core *core, const struct wire_session_open *msg);
void master_session_heartbeat(struct master_core *core, const struct wire_plain_request *msg);
void master_session_close(struct master_core *core, const struct wire_plain_request *msg);
void master_session_expire(struct master_core *core, struct master_session *session);
/* The owner says that `session` can no longer write to `segment` (or the segment is gone). */
void master_session_fenced(struct master_core *core, struct master_session *session,
                           struct master_segment *segment);
/* Its id is not to be taken up again by anybody. */
void master_session_bury(struct master_core *core, uint64_t id);
void master_session_reap(struct master_core *core, struct master_session *session);
void master_sessions_tick(struct master_core *core);
/* Puts the session's held records for a segment that is being mounted in place. */
YOLK_MUST_USE enum yolk_status master_held_apply(struct master_core *core,
                                                 struct master_session *session,
                                                 struct master_segment *segment, uint64_t old_id);

/* guard.c: operations, guards, get, exist, renew */
struct master_op *master_op_find(const struct master_core *core,
                                 const struct master_session *session, uint64_t op);
struct master_op *master_op_get(struct master_core *core, struct master_session *session,
                                uint64_t op);
/* The client is done with it: guards end, unfinished puts are revoked. */
void master_op_end(struct master_core *core, struct master_op *op);
void master_op_drop_guard(struct master_core *core, struct master_op *op);
/* Frees it when it holds nothing and its session cannot come back to it. */
void master_op_reap(struct master_core *core, struct master_op *op);
YOLK_MUST_USE enum yolk_status master_op_guard(struct master_core *core, struct master_op *op,
                                               struct master_extent *extent);
void master_guards_tick(struct master_core *core);
void master_exist(struct master_core *core, const struct wire_keys_request *msg);
void master_get_start(struct master_core *core, const struct wire_get_start *msg);
void master_renew(struct master_core *core, const struct wire_renew *msg);

/* put.c */
void master_put_start(struct master_core *core, const struct wire_put_start *msg);
void master_put_end(struct master_core *core, const struct wire_keys_request *msg);
void master_put_revoke(struct master_core *core, const struct wire_keys_request *msg);
/* Frees the key, not the space. */
void master_put_expire(struct master_core *core, struct master_put *put);
/* The client says that it does not write any more. */
void master_put_cancel(struct master_core *core, struct master_put *put);
void master_put_free(struct master_core *core, struct master_put *put);
void master_puts_tick(struct master_core *core);

/* place.c */
/* What a put asks of its places. */
struct master_wish {
    struct wire_view preferred; /* KEYS: names, the best first */
    uint64_t segment;           /* to be tried before those; 0: none */
    uint64_t credit;            /* bytes of its tenant that an upsert gives back */
    /* Hard-pinned, so it stays until the end; an upsert is to take its place. NULL: none. */
    const struct master_object *replaced;
    bool hard;
    bool limited, open; /* out: hard pins left no room in one; they did in another */
    bool over_quota;    /* out */
    bool soon;          /* out: there is none just now, but some is on its way */
    bool unopened;      /* out: because an owner does not know of all sessions yet */
};
/* An OPEN extent in some segment that none of `taken` is in; NULL when there is no room. */
struct master_extent *master_place(struct master_core *core, uint64_t size,
                                   struct master_extent *const *taken, uint32_t taken_count,
                                   struct master_wish *wish);
/* False when waiting for space is in vain: no segment is so large, not even a lost one that may
 * come back. While none is mounted at all, any may come. */
bool master_may_fit(const struct master_core *core, uint64_t size);
/* spread.c */
enum { MASTER_LABEL_MAX = 64 };
/* What may name a memory controller: hexadecimal digits and dots. */
bool master_spread_is_label(struct wire_view label);
/* Behind one memory controller. */
bool master_spread_together(const struct master_segment *a, const struct master_segment *b);
/* Its endpoints are new. */
void master_spread_mounted(struct master_core *core, struct master_segment *segment);
/* So many bytes were given out there, or it was its turn. */
void master_spread_placed(struct master_core *core, const struct master_segment *segment,
                          uint64_t size);
/* evict.c */
uint64_t master_evict(struct master_core *core, struct master_segment *segment, uint64_t bytes,
                      uint32_t budget);
/* There are as many objects as may be: those of disks make room. False: there are none. */
bool master_evict_keys(struct master_core *core);
/* In small steps down from the watermark; true when there is more to do. */
bool master_evict_background(struct master_core *core, struct master_segment *segment,
                             uint32_t budget);
void master_probe(struct master_core *core, struct master_extent *extent);
/* The first that may go as it is; those before it that may not any more become dirty. */
struct master_extent *master_evict_clean(struct master_core *core, struct master_segment *segment);
/* What is to go next; it stays where it is. NULL: nothing may go. */
struct master_extent *master_evict_next(struct master_core *core, struct master_segment *segment);

/* segment.c */
struct master_segment *master_segment_find(const struct master_core *core, uint64_t id);
void master_segment_mount(struct master_core *core, const struct wire_segment_mount *msg);
void master_segment_unmount(struct master_core *core, const struct wire_segment_unmount *msg);
void master_segment_info(struct master_core *core, const struct wire_segment_info *msg);
void master_segment_lose(struct master_core *core, struct master_segment *segment);
void master_segment_go(struct master_core *core, struct master_segment *segment);
void master_segment_try_open(struct master_core *core, struct master_segment *segment);
/* True when it has more to do at once. May free the segment. */
bool master_segment_tick(struct master_core *core, struct master_segment *segment);
struct master_segment *master_segment_create(struct master_core *core, uint64_t size,
                                             uint64_t prior_id);
void master_segment_destroy(struct master_core *core, struct master_segment *segment);

/* mirror.c: what owners offer */
void master_mirror_offer(struct master_core *core, const struct wire_mirror_offer *msg);

/* list.c */
void master_replica_clear(struct master_core *core, const struct wire_replica_clear *msg);
void master_remove(struct master_core *core, const struct wire_remove *msg);
void master_remove_all(struct master_core *core, const struct wire_remove_all *msg);
void master_list(struct master_core *core, const struct wire_list *msg);
bool master_jobs_tick(struct master_core *core);
/* stat.c */
void master_stat(struct master_core *core, const struct wire_stat *msg);

#endif
