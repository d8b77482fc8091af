/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master: which key is where, which space may be used, who is alive.
 *
 * Pure. It has no clock, socket, thread or file: time comes in as `now_ns`, frames come in and go
 * out as bytes, and for one seed and one sequence of calls the output is always the same. Not
 * thread-safe; one thread owns a core.
 *
 * Identities on the wire:
 *  - SEGMENT_MOUNT.generation is the segment id which this memory had under `prior_master` (0: it
 * is new memory). SESSION_OPEN.held[].seg_generation is likewise the segment id that the client was
 * given.
 *  - a SESSION_OPEN whose `session` names a live session of this master resumes it; one that names
 * a session of an earlier master is taken over with the same id; any other gets a new id.
 */
#ifndef YOLK_MASTER_CORE_H
#define YOLK_MASTER_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

struct wire_header;
struct master_core;
struct master_policy;

#define MASTER_MAX_REPLICAS 4

/* All of it is bounded by what stands here. Zero means the default (master_config_default). */
struct master_config {
    uint64_t guard_ttl_ms;    /* a read guard lives so long after the request came */
    uint64_t guard_margin_ms; /* and the master waits so much longer */
    uint64_t lease_ttl_ms;    /* nominal lease (what remove answers HAS_LEASE for) */
    uint64_t put_timeout_ms;
    uint64_t heartbeat_ms;
    uint64_t session_ttl_ms;
    uint64_t lost_keep_ms;      /* how long the keys of a lost segment are remembered */
    uint64_t disk_lost_keep_ms; /* and those of a lost disk, which outlive the owner's process */
    uint64_t stall_ms;          /* a gap between calls beyond this is the master's own stall */
    uint64_t resend_ms;         /* an unanswered push is sent again after this */
    double eviction_high_watermark_ratio;
    double eviction_ratio; /* background eviction goes this far below the watermark */
    double gds_eviction_high_watermark_ratio; /* the same two of GDS files */
    double gds_eviction_ratio;
    double offload_watermark_ratio; /* what is in use above this is copied to disk ahead */
    uint64_t offload_wait_ms;       /* without a copy for so long, what goes is dropped */
    bool keep_on_disk;              /* a hot object is not copied back to memory */
    uint64_t max_pending_bytes;     /* open puts + limbo, a session; 0 = half of what is open for
                                       allocation */
    uint32_t max_sessions;
    uint32_t max_segments;
    uint32_t max_ops;  /* live operations, a session */
    uint32_t max_held; /* held records, a session */
    uint32_t max_keys; /* keys in one message */
    uint32_t max_jobs; /* remove_all and unmount running at a time */
    uint64_t max_objects;
    uint64_t soft_pin_ttl_ms; /* of a put that names none */
    uint64_t soft_pin_ttl_max_ms;
    double hard_pin_ratio;    /* of a segment that may be hard-pinned */
    bool place_by_controller; /* evenly over memory controllers; else by capacity */
    const char *tenants; /* NAME=SIZE,…; NULL or "": only the default one. Borrowed by create */
    const struct master_policy *policy; /* policy.h; NULL: master_policy_prefix */
    uint32_t step;                      /* objects one turn of background work may touch */
    uint32_t fact_batch;                /* records in one FACTS push */
    uint32_t fact_window;               /* FACTS pushes without an answer, a segment */
};

void master_config_default(struct master_config *config);

enum master_fact_kind {
    MASTER_FACT_MOUNTED = 1,     /* segment, size, name in `key`, medium, storage */
    MASTER_FACT_UNMOUNTED,       /* segment */
    MASTER_FACT_COMMITTED,       /* key, size, places */
    MASTER_FACT_REMOVED,         /* key: removed, evicted, or expired with its last replica */
    MASTER_FACT_REPLICA_REMOVED, /* key, size, one place; the key stays where else it is */
};

struct master_place {
    uint64_t segment;
    uint64_t offset;
    uint64_t allocated; /* bytes taken there */
    uint32_t checksum;  /* of the value, on a disk */
};

/* What happened, without any decision: enough to rebuild the index in another core. Borrowed for
 * the call. */
struct master_fact {
    enum master_fact_kind kind;
    uint64_t segment;
    uint64_t size;
    const void *key; /* MOUNTED: the name */
    size_t key_size;
    uint32_t medium;             /* enum wire_medium */
    const uint8_t *storage_id;   /* of a disk */
    uint64_t storage_generation; /* of GDS */
    const struct master_place *places;
    uint32_t place_count;
};

/* Where output goes. Must not call back into the core. `fact` may be NULL. */
struct master_sink {
    void *self;
    void (*send)(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                 const uint8_t *body, size_t size);
    void (*fact)(void *self, const struct master_fact *fact);
};

/* name, Prometheus name, help: one table for the struct, the text of STAT and the metrics page. */
#define MASTER_GAUGES(X)                                                                           \
    X(sessions, "master_sessions", "live client sessions")                                         \
    X(zombies, "master_unfenced_sessions",                                                         \
      "gone sessions whose writers are not known to be quiet")                                     \
    X(segments, "master_segments", "mounted segments")                                             \
    X(segments_open, "master_segments_open", "segments that take new objects")                     \
    X(segments_lost, "master_segments_lost", "segments whose owner went away, still remembered")   \
    X(objects, "master_key_count", "committed keys, those of lost segments included")              \
    X(objects_open, "master_processing_key_count", "keys being written")                           \
    X(objects_lost, "master_lost_key_count", "keys remembered of lost segments")                   \
    X(capacity_bytes, "master_total_capacity_bytes", "bytes of mounted segments")                  \
    X(live_bytes, "master_allocated_bytes", "bytes of readable replicas")                          \
    X(open_bytes, "master_processing_bytes", "bytes of replicas being written")                    \
    X(limbo_bytes, "master_limbo_bytes", "bytes given up but not yet reusable")                    \
    X(lost_bytes, "master_lost_bytes", "bytes in use in lost segments")                            \
    X(extents, "master_extents", "extents in use, limbo included")                                 \
    X(disk_segments, "master_disk_segments", "mounted disks")                                      \
    X(disk_capacity_bytes, "master_disk_total_capacity_bytes", "bytes of mounted disks")           \
    X(disk_live_bytes, "master_disk_allocated_bytes", "bytes of readable replicas on disks")       \
    X(disk_limbo_bytes, "master_disk_limbo_bytes", "bytes on disks given up but not yet reusable") \
    X(disk_lost_bytes, "master_disk_lost_bytes", "bytes in use on lost disks")                     \
    X(disk_extents, "master_disk_extents", "extents in use on disks, limbo included")              \
    X(gds_segments, "master_gds_segments", "mounted GDS files")                                    \
    X(gds_capacity_bytes, "master_gds_total_capacity_bytes", "bytes of mounted GDS files")         \
    X(gds_live_bytes, "master_gds_allocated_bytes", "bytes of readable replicas in GDS files")     \
    X(gds_open_bytes, "master_gds_processing_bytes", "bytes being written in GDS files")           \
    X(gds_limbo_bytes, "master_gds_limbo_bytes", "bytes in GDS files given up and not yet freed")  \
    X(gds_lost_bytes, "master_gds_lost_bytes", "bytes in use in GDS files whose owner is away")    \
    X(gds_extents, "master_gds_extents", "extents in use in GDS files, limbo included")            \
    X(gds_objects, "master_gds_key_count", "keys with a readable replica in a GDS file")           \
    X(disks_failing, "master_disk_failing", "mounted disks that failed the last copy to them")     \
    X(disks_full, "master_disk_full", "mounted disks that had no room for the last copy to them")  \
    X(tasks, "master_tasks", "copies between memory and disk asked for and not answered")          \
    X(soft_pins, "master_soft_pin_key_count", "keys with a soft pin")                              \
    X(hard_bytes, "master_hard_pinned_bytes", "bytes in memory of keys with a hard pin")           \
    X(guards, "master_read_guards", "live read guards and pins, by extent")                        \
    X(ops, "master_operations", "operations remembered")

#define MASTER_COUNTERS(X)                                                                         \
    X(requests, "master_requests_total", "requests performed")                                     \
    X(requests_bad, "master_requests_malformed_total", "requests refused as malformed")            \
    X(requests_stale, "master_requests_stale_total", "requests below the floor or of no session")  \
    X(exist_hits, "master_exist_hits_total", "keys found by exist")                                \
    X(exist_misses, "master_exist_misses_total", "keys not found by exist")                        \
    X(get_hits, "master_get_hits_total", "keys found by get")                                      \
    X(get_hit_bytes, "master_get_hit_bytes_total", "bytes of keys found by get")                   \
    X(get_hits_memory, "master_get_memory_hits_total", "keys found by get in memory")              \
    X(get_hit_bytes_memory, "master_get_memory_hit_bytes_total", "bytes of keys found in memory")  \
    X(get_hits_disk, "master_get_disk_hits_total", "keys found by get on a disk only")             \
    X(get_hit_bytes_disk, "master_get_disk_hit_bytes_total", "bytes of keys found on a disk only") \
    X(get_hits_gds, "master_get_gds_hits_total",                                                   \
      "keys found by get in a GDS file, the asker's own or as the only place")                     \
    X(get_hit_bytes_gds, "master_get_gds_hit_bytes_total", "bytes of keys found in a GDS file")    \
    X(miss_never_stored, "master_get_miss_never_stored_total", "get of a key not known of")        \
    X(miss_evicted, "master_get_miss_evicted_total", "get of a key evicted not long ago")          \
    X(miss_expired, "master_get_miss_expired_total",                                               \
      "get of a key whose segment was lost or cut off, or whose put ran out")                      \
    X(miss_error, "master_get_miss_error_total", "get refused by a limit")                         \
    X(put_starts, "master_put_start_total", "keys granted space")                                  \
    X(put_exists, "master_put_exists_total", "puts of keys that exist")                            \
    X(put_no_space, "master_put_no_space_total", "puts answered NO_SPACE")                         \
    X(put_short, "master_put_fewer_replicas_total", "puts with fewer replicas than asked")         \
    X(put_quota, "master_put_quota_total", "puts refused for the tenant's quota")                  \
    X(put_pin_limit, "master_put_pin_limit_total", "puts refused for want of room for hard pins")  \
    X(put_not_preferred, "master_put_not_preferred_total",                                         \
      "replicas placed elsewhere than in a preferred segment")                                     \
    X(upserts, "master_upsert_total", "keys whose value was replaced")                             \
    X(put_ends, "master_put_end_total", "keys committed")                                          \
    X(put_revokes, "master_put_revoke_total", "keys revoked")                                      \
    X(put_timeouts, "master_put_timeout_total", "keys whose put ran out of time")                  \
    X(removes, "master_remove_total", "keys removed")                                              \
    X(evictions, "master_evicted_key_count", "keys evicted")                                       \
    X(evicted_bytes, "master_evicted_size_bytes", "bytes evicted")                                 \
    X(doomed, "master_doomed_total", "keys evicted although a probe had leased them")              \
    X(soft_evictions, "master_soft_pin_evicted_total",                                             \
      "replicas of soft-pinned keys evicted, with nothing else to go")                             \
    X(group_evictions, "master_group_evicted_total", "keys evicted with another of their group")   \
    X(group_withheld, "master_group_withheld_total",                                               \
      "evictions withheld because another of the group is leased or read")                         \
    X(group_overflows, "master_group_overflow_total", "keys that their group had no place for")    \
    X(memory_evictions, "master_memory_evicted_key_count",                                         \
      "keys evicted from memory that stay on a disk or in a GDS file")                             \
    X(disk_evictions, "master_disk_evicted_key_count", "replicas evicted from disks")              \
    X(disk_evicted_bytes, "master_disk_evicted_size_bytes", "bytes evicted from disks")            \
    X(gds_starts, "master_gds_put_start_total", "replicas in GDS files begun")                     \
    X(gds_only, "master_gds_only_total", "of those, of keys for which there was no memory")        \
    X(gds_ends, "master_gds_put_end_total", "replicas in GDS files committed")                     \
    X(gds_refused, "master_gds_refused_total", "keys refused for their GDS descriptor")            \
    X(gds_evictions, "master_gds_evicted_key_count", "replicas evicted from GDS files")            \
    X(gds_evicted_bytes, "master_gds_evicted_size_bytes", "bytes evicted from GDS files")          \
    X(gds_rooms, "master_gds_room_total", "requests for room in a GDS file")                       \
    X(gds_no_room, "master_gds_room_failed_total", "of those, with nothing to evict")              \
    X(replica_clears, "master_replica_clear_total", "keys that lost replicas by replica clear")    \
    X(replica_clears_refused, "master_replica_clear_refused_total",                                \
      "keys that replica clear left as they were: unknown, leased, being written, not there")      \
    X(offloads, "master_offload_asked_total", "copies to disk asked for")                          \
    X(offloads_done, "master_offload_done_total", "copies to disk made")                           \
    X(offload_bytes, "master_offload_bytes_total", "bytes of copies to disk made")                 \
    X(offloads_failed, "master_offload_failed_total", "copies to disk that failed")                \
    X(offloads_no_space, "master_offload_no_space_total", "copies to disk put off for its space")  \
    X(offload_skipped, "master_offload_skipped_total",                                             \
      "keys evicted without the copy to disk that they should have had")                           \
    X(offload_refused, "master_offload_refused_total",                                             \
      "keys evicted that the policy did not want on a full disk")                                  \
    X(promotes, "master_promote_asked_total", "copies to memory asked for")                        \
    X(promotes_done, "master_promote_done_total", "copies to memory made")                         \
    X(promote_bytes, "master_promote_bytes_total", "bytes of copies to memory made")               \
    X(promotes_failed, "master_promote_failed_total", "copies to memory that failed")              \
    X(replica_bad, "master_replica_bad_total", "replicas on disk dropped for wrong bytes")         \
    X(disk_conflicts, "master_disk_conflicts_total",                                               \
      "copies reported where the owner had reported another")                                      \
    X(guards_expired, "master_guards_expired_total", "read guards that ended by time")             \
    X(sessions_opened, "master_sessions_opened_total", "sessions opened")                          \
    X(sessions_expired, "master_sessions_expired_total", "sessions that fell silent")              \
    X(fences, "master_fences_total", "sessions fenced by an owner")                                \
    X(facts_sent, "master_facts_sent_total", "records sent to segment owners")                     \
    X(revived, "master_revived_total", "placements accepted from a mirror")                        \
    X(mirror_rejected, "master_mirror_rejected_total", "placements refused from a mirror")         \
    X(stalls, "master_stalls_total", "own stalls noticed")                                         \
    X(stall_ns, "master_stall_nanoseconds_total", "time lost to own stalls")

struct master_stats {
#define X(name, metric, help) uint64_t name;
    MASTER_GAUGES(X)
    MASTER_COUNTERS(X)
#undef X
};

/* One row per member of struct master_stats. */
struct master_stat_row {
    const char *name;
    const char *metric;
    const char *help;
    size_t offset;
    bool counter;
};
extern const struct master_stat_row master_stat_rows[];
extern const size_t master_stat_row_count;

YOLK_MUST_USE enum yolk_status master_core_create(const struct master_config *config,
                                                  uint64_t now_ns, uint64_t seed,
                                                  struct master_core **out);
void master_core_destroy(struct master_core *core);

/* The 16 bytes that name this life of the master. */
const uint8_t *master_core_instance(const struct master_core *core);

/*
 * Performs one frame. A malformed body or an unknown kind is answered (ERROR kind with the status
 * and the reason) and changes nothing; the returned status and yolk_last_error() are for the
 * caller's log and, when it is YOLK_ERR_PROTOCOL, a reason to close the connection.
 */
enum yolk_status master_core_input(struct master_core *core, uint64_t now_ns, uint64_t connection,
                                   const struct wire_header *header, const uint8_t *body,
                                   const struct master_sink *sink);

/* Time passes: expiry, eviction, pushes, running jobs, each in small steps. Returns when to call
 * again. */
uint64_t master_core_tick(struct master_core *core, uint64_t now_ns,
                          const struct master_sink *sink);

/* The connection is gone. The sessions on it live on until their TTL, but readers are not told of
 * what is theirs, nor are new values put there if there is another place, until they are heard on
 * another connection. */
void master_core_disconnect(struct master_core *core, uint64_t now_ns, uint64_t connection,
                            const struct master_sink *sink);

/* Applies a fact of another core. Its segments are lost ones here until their owners mount them
 * again. */
YOLK_MUST_USE enum yolk_status master_core_replay(struct master_core *core, uint64_t now_ns,
                                                  const struct master_fact *fact);

void master_core_stats(const struct master_core *core, struct master_stats *stats);

/* Counts everything anew (gauges only). Returns how many gauges differ from the running ones: 0, or
 * a bug. */
uint32_t master_core_recount(const struct master_core *core, struct master_stats *counted);

/* Registers a tenant, or changes its quota; other tenants are admitted from then on. INVALID: a bad
 * name, or a quota of 0. */
YOLK_MUST_USE enum yolk_status master_tenant_set(struct master_core *core, const char *name,
                                                 uint64_t quota_bytes);
/* Opens no more sessions; with objects left it is BUSY and nothing changes. */
YOLK_MUST_USE enum yolk_status master_tenant_remove(struct master_core *core, const char *name);
struct master_tenant_info {
    const char *name;     /* borrowed until the next call into the core */
    uint64_t quota_bytes; /* UINT64_MAX: none */
    uint64_t used_bytes, objects, rejects, evicted_bytes;
    bool registered;
};
/* By place, from 0; false after the last one. The bytes of a tenant without a quota are not
 * counted. */
bool master_tenant_at(const struct master_core *core, uint32_t index,
                      struct master_tenant_info *out);

/* Checks every structural rule (tests and `stat --recount`): NULL, or what is broken. */
const char *master_core_check(const struct master_core *core);

#endif
