/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the engine share. Locks, in the order they may be nested:
 *   batch slot mutex → segment table, registry (read) → route mutex → stuck list; batch slot mutex
 * → gate. */
#ifndef YOLK_ENGINE_INTERNAL_H
#define YOLK_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <yolk/engine.h>

#include "base/buf.h"
#include "base/imap.h"
#include "base/list.h"
#include "engine/batch_state.h"
#include "engine/breaker.h"
#include "engine/device.h"
#include "engine/faster.h"
#include "engine/slots.h"
#include "engine/gate.h"
#include "engine/metrics.h"
#include "engine/plugin.h"
#include "engine/policy.h"
#include "engine/stage.h"
#include "engine/telemetry.h"
#include "platform/process.h"
#include "platform/thread.h"

enum {
    ENGINE_TRANSPORTS_MAX = 16,
    ENGINE_NO_TRANSPORT = 255,
    ENGINE_NO_POLICY = UINT16_MAX,
    ENGINE_BATCH_CHUNK = 64,
    ENGINE_BATCH_CHUNKS_MAX = 1024,
    ENGINE_IO_CHUNK = 64,
    ENGINE_BATCH_TASKS_MAX = 1 << 20,
};

struct transport {
    struct yolk_transport_ops ops; /* no slot is NULL */
    void *endpoint;                /* NULL: not in use, see reason */
    struct yolk_limits limits;
    char reason[512];
    _Atomic bool told; /* that files do without it */
};

/* -- options.c -- */
YOLK_MUST_USE enum yolk_status engine_check_options(const struct yolk_engine_options *options);
YOLK_MUST_USE enum yolk_status engine_check_request(const struct yolk_request *request);
/* Nothing of it needs a closer look: so are most. */
static inline bool engine_request_is_plain(const struct yolk_request *request)
{
    return ((unsigned)request->priority | (unsigned)request->intent | request->flags) == 0 &&
           request->policy == NULL && request->tenant == NULL && request->hint == NULL;
}

/* -- transports.c -- */
/* Copies the table, checks what is required, fills in stubs. CONFIG names each missing hook. */
YOLK_MUST_USE enum yolk_status engine_transport_adopt(const struct yolk_transport_ops *given,
                                                      struct yolk_transport_ops *out);
YOLK_MUST_USE enum yolk_status engine_transports_start(struct yolk_engine *engine,
                                                       const struct yolk_engine_options *options);
YOLK_MUST_USE enum yolk_status engine_transports_stop(struct yolk_engine *engine);

/* -- registry.c -- */
struct registration {
    uint64_t start;
    uint64_t size;
    uint64_t references;        /* register calls not yet undone, those of ranges inside included */
    struct base_list aliases;   /* ranges inside, each registered at least once */
    _Atomic uint64_t in_flight; /* tasks that may touch it */
    uint32_t accepted;          /* bits of the transports that have a key */
    enum policy_memory memory;
    uint32_t gpu;        /* 1 + the number of the one whose memory it is; 0: none's */
    uint64_t allocation; /* as the driver names it; 0: it does not */
    void *keys[ENGINE_TRANSPORTS_MAX];
};
struct registry {
    pthread_rwlock_t lock;
    struct base_imap map;
};
/* Finds the registration around the range and counts a task in. NULL: not registered. */
struct registration *registry_acquire(struct yolk_engine *engine, const void *pointer,
                                      uint64_t size);
/* Another one of what the caller holds. */
struct registration *registry_take(struct registration *registration);
void registry_release(struct registration *registration);
void registry_release_many(struct registration *registration, uint64_t times);
void registry_clear(struct yolk_engine *engine);

/* -- segments.c -- */
struct route {
    pthread_mutex_t lock;  /* not held while the target is opened, which may block */
    pthread_cond_t opened; /* `opening` went down */
    bool opening;
    char *text;               /* endpoint text, NULL: the segment has none for this transport */
    _Atomic(void *) target;   /* see targets.c */
    _Atomic uint64_t users;   /* channels and mappings of the target */
    _Atomic uint64_t used_ns; /* when a channel of it was opened last */
    enum yolk_status unfit;   /* not OK: this target can never be reached by this transport */
    struct breaker breaker;
    _Atomic bool troubled; /* the breaker has counted failures: keeps success cheap */
    struct telemetry load;
    char reason[256];
};
struct segment {
    _Atomic uint64_t references;
    _Atomic bool crowded; /* a target of it waits for another one to be idle */
    struct yolk_engine *engine;
    uint64_t id;
    uint64_t size;
    uint64_t session;
    struct yolk_served *own; /* served for this segment alone, ended with it; else NULL */
    char *device;            /* of a file its path, for reports; else NULL */
    _Atomic bool stale;      /* its provider said so of an access */
    _Atomic bool closed;     /* it has no handle any more */
    _Atomic bool places[2];  /* what was chosen for it last takes ios in places; [1]: of GPUs */
    bool file;
    enum policy_memory memory;    /* POLICY_FILE of a file */
    _Atomic uint8_t machine;      /* enum engine_machine */
    struct staging_share staging; /* of the engine's memory; under its lock */
    struct faster faster[2][2]; /* of a file: writes, large ones; under the engine's faster_lock */
    struct route routes[ENGINE_TRANSPORTS_MAX];
};
struct segment_table {
    pthread_rwlock_t lock;
    struct slots slots; /* of struct segment */
};
/* NULL: stale handle. */
struct segment *segment_acquire(struct yolk_engine *engine, uint64_t handle);
/* Another reference; NULL if it was closed, or its provider is known to have another life. */
struct segment *segment_take(struct segment *segment);
void segment_release(struct segment *segment);
void segment_release_many(struct segment *segment, uint64_t times);
/* Serving ends with the last use of the segment. path: for reports. */
void engine_segment_own(struct yolk_engine *engine, uint64_t handle, struct yolk_served *served,
                        const char *path);
void segments_close_all(struct yolk_engine *engine);

/* -- plan.c: what a request wants of its route -- */
enum engine_machine { ENGINE_MACHINE_UNKNOWN, ENGINE_MACHINE_SAME, ENGINE_MACHINE_OTHER };
/* Equal wishes for equal ends are met by the same route. */
struct engine_wish {
    uint16_t policy; /* ENGINE_NO_POLICY: the default order */
    uint8_t hint;    /* ENGINE_NO_TRANSPORT: none */
    bool direct;     /* without a buffer in between */
    bool first_only; /* no other transport than the first that can do it at all */
};
static inline bool engine_wish_equal(struct engine_wish a, struct engine_wish b)
{
    return a.policy == b.policy && a.hint == b.hint && a.direct == b.direct &&
           a.first_only == b.first_only;
}
/* What the request says of policy, hint and flags. INVALID: names that are none; NO_ROUTE: no
 * policy fits, or the hint cannot work here. May wait as long as a target takes to open, if a
 * policy asks where the segment is. */
YOLK_MUST_USE enum yolk_status
engine_wish_read(struct yolk_engine *engine, const struct yolk_request *request,
                 enum yolk_priority priority, struct segment *segment,
                 const struct registration *registration, struct engine_wish *out);
/* The transports in the order of the wish; returns their number. */
uint32_t engine_wish_order(const struct yolk_engine *engine, struct engine_wish wish,
                           uint8_t order[ENGINE_TRANSPORTS_MAX]);
const char *engine_policy_name(const struct yolk_engine *engine, struct engine_wish wish);
/* Once the transports are known. */
YOLK_MUST_USE enum yolk_status engine_policies_read(struct yolk_engine *engine, const char *text);

/* -- targets.c -- */
/* A transport may have room for fewer targets than there are segments: one that nobody uses can be
 * closed at any time, so who uses one says so. NULL: there is none (any more), pick again. */
void *engine_target_enter(struct route *route, uint64_t now_ns);
void engine_target_leave(struct route *route);
enum engine_room { ENGINE_ROOM_MADE, ENGINE_ROOM_IN_USE, ENGINE_ROOM_NONE };
/* Closes the target of the transport that was used longest ago and is not used now. IN_USE: all
 * are; NONE: there are no targets. No route's lock is held. */
enum engine_room engine_targets_make_room(struct yolk_engine *engine, uint8_t transport);

/* -- route.c -- */
struct route_query {
    struct segment *segment;
    enum yolk_opcode opcode;
    uint32_t accepted; /* transports that know the local memory */
    uint32_t tried;    /* not to be taken again */
    struct engine_wish wish;
    bool wait;                 /* for another thread that opens the target just now */
    enum policy_memory memory; /* the local one */
    /* Looked at for wish.direct only. */
    const void *local;
    uint64_t offset, size;
};
/* The first transport in order that can run it now, its target open. AGAIN: another thread is just
 * opening it. Otherwise the status that tells most. reasons may be NULL; else a line for each
 * transport. */
/* Whether a transport whose target is open copies these bytes of the local memory through a buffer,
 * as it would those of any other place of the segment. */
bool engine_route_copies(struct yolk_engine *engine, struct segment *segment, uint8_t index,
                         const void *local, uint64_t size);
YOLK_MUST_USE enum yolk_status engine_route_pick(struct yolk_engine *engine,
                                                 const struct route_query *query, uint64_t now_ns,
                                                 struct base_buf *reasons, uint8_t *transport);
void engine_route_result(struct yolk_engine *engine, struct segment *segment, uint8_t transport,
                         enum yolk_status status, uint64_t now_ns);
/* Whether this transport can never run it, and why; nothing is opened. */
YOLK_MUST_USE enum yolk_status engine_route_unfit(struct yolk_engine *engine,
                                                  const struct route_query *query, uint8_t index,
                                                  const char **why);
/* NULL: none. io_uring is another name of uring. */
uint8_t engine_transport_by_name(const struct yolk_engine *engine, const char *name);

/* -- counted.h -- */
/* Times of a task in ticks of 256 ns, which begin anew every 18 minutes: spans up to that are
 * right. Small, because there is one for each task of a batch. */
struct task_times {
    uint32_t submitted;
    uint32_t dispatched;  /* it was its turn; 0: not yet */
    uint32_t posted;      /* a transport took something of it; 0: not yet */
    uint32_t attempt;     /* the last one began */
    uint16_t attempting;  /* bits of the transports that have an attempt of it */
    uint16_t failed_from; /* the transport that the next attempt takes over from */
};
struct batch_pass {
    bool active;
    uint64_t now_ns; /* 0: not looked at yet; as late as is worth a call of the clock */
    uint64_t copied; /* bytes since then */
    /* Tasks that ended alike, one after the other: so many, like this one, at that time. */
    uint32_t alike;
    uint32_t alike_index;
    uint64_t alike_now_ns;
    struct metrics_run run;
    uint64_t ok, slices, bytes_read, bytes_written; /* for the counters of these names */
    /* What tasks that are over held last, and how often it is still to be released for them. */
    struct segment *segment;
    struct registration *registration;
    uint64_t segment_times, registration_times;
};

/* -- batch.c -- */
/* Of a group its head's says all: nothing is written to those of its members, which need not be
 * fetched for it, before one is stuck. */
struct engine_task {
    struct registration *registration;
    struct segment *segment; /* NULL: refused, or all given back */
    uint8_t *local;          /* NULL: it lies in pieces, which are the batch's */
    const struct yolk_piece *pieces;
    uint32_t piece_count;
    uint64_t offset;
    uint64_t size;
    struct base_list
        stuck; /* while STUCK and not quiet; a member's has local, size and no pieces */
    struct yolk_ticket ticket;
    struct engine_order *order; /* to happen first; NULL: nothing */
    struct task_times times;
    uint32_t channel; /* BATCH_NONE: no route chosen */
    enum yolk_opcode opcode;
    struct engine_wish wish;
    struct gate_task gate;
    enum yolk_priority priority;
    bool staging; /* its intent is that of the engine's own stages */
    uint8_t last_transport;
    bool two_ways; /* `way` is one of two, see way.h */
    struct faster_ticket way;
    bool staged;    /* some of its bytes went, or go, through the engine's memory */
    bool scattered; /* its group lies in the batch's places */
};
struct engine_channel {
    struct segment *segment; /* referenced */
    void *channel;           /* NULL: closed */
    uint32_t in_flight;
    uint8_t transport;
    bool full;   /* answered AGAIN in this pass */
    bool posted; /* queued something in this pass */
    bool broken; /* its link failed: takes nothing new, closed once nothing is in flight */
    uint64_t pass_begin_ns; /* when this pass first posted */
    struct telemetry_pass pass;
    uint64_t pass_staged_bytes;            /* of those done in this pass */
    uint64_t pass_bounced_bytes;           /* the same; none is counted in both */
    uint32_t attempts[METRICS_OPERATIONS]; /* begun in this pass */
};
/* Of one pass over a batch's tasks; segment NULL: none yet. */
struct engine_choice {
    struct segment *segment; /* referenced by the channel */
    uint32_t accepted;       /* as in struct route_query */
    enum policy_memory memory;
    uint32_t channel;
    enum yolk_opcode opcode;
    struct engine_wish wish;
    bool two_ways; /* each task chooses for itself */
};
/* Tasks that are alike in this go the same way, but for failures. */
struct engine_likeness {
    const struct registration *registration; /* an identity, not a reference; NULL: none yet */
    uint64_t segment;
    enum yolk_opcode opcode;
    struct engine_wish wish;
};
struct engine_io {
    struct yolk_io io;
    uint32_t channel;
    uint32_t posted; /* in ticks */
    uint32_t chunk;  /* of staging memory; STAGING_NONE: it is direct */
};
struct batch {
    pthread_mutex_t lock;
    uint32_t index;
    uint32_t generation;
    uint32_t next_free;
    bool live;        /* has a handle */
    bool quarantined; /* freed, not yet quiet */
    bool no_failover; /* in this pass: what a poll finds failed ends its task */
    struct base_list quarantine;
    struct gate_batch gate;
    struct stage_batch stage;
    uint64_t quarantined_ns;
    struct batch_state state;
    struct engine_task *tasks;
    struct engine_channel *channels;
    uint32_t channel_count;
    uint32_t channel_room;
    struct engine_choice choice;
    struct engine_likeness like; /* of its first task */
    bool mixed; /* its tasks may go different ways: who waits is passed by others */
    uint64_t passes;
    bool in_parts; /* a submit is posted part by part: what was chosen holds on */
    struct batch_pass pass;
    struct engine_io **ios; /* chunks: an io's address never changes */
    uint32_t io_chunks;
    uint32_t failed; /* the first task that did, and was not canceled; or BATCH_NONE */
    struct batch_reasons *reasons; /* NULL: nothing failed yet */
    struct piece_block *pieces;    /* of its tasks; NULL: none lies in pieces */
    struct yolk_place *places;     /* of each task of a scattered group; NULL: there was none yet */
};
struct batch_table {
    pthread_mutex_t lock; /* taking and giving back slots only */
    _Atomic(struct batch *) chunks[ENGINE_BATCH_CHUNKS_MAX];
    uint32_t count;
    uint32_t free_head;
    _Atomic uint64_t in_use; /* slots that were taken and not given back */
};
/* The batch, locked, or NULL with last_error set. */
struct batch *batch_lock(struct yolk_engine *engine, uint64_t handle);
/* Frees every batch that still has a handle. */
void batches_free_all(struct yolk_engine *engine);
void batches_destroy_table(struct yolk_engine *engine);

/* -- prepared.c -- */
/* What a request refers to, referenced, and how it is to be moved. */
struct prepared_entry {
    struct segment *segment;
    struct registration *registration; /* NULL: of a request without bytes */
    struct engine_wish wish;
};
struct prepared_table {
    pthread_mutex_t lock;
    struct slots slots; /* of struct prepared */
};
/* Gives back all that was not released. */
void prepared_release_all(struct yolk_engine *engine);

/* Some requests for a batch. */
struct submission {
    const struct yolk_request *requests;
    const struct prepared_entry *given;    /* for each of them; NULL: all is looked up */
    const uint32_t *indices;               /* of those that are meant; NULL: the first count */
    const struct engine_scatter *scatters; /* for each of them; NULL: none lies in pieces */
    uint32_t count;
    uint64_t deadline_ns; /* in place of their own; 0: not */
};
/* verdicts and first may be NULL. */
YOLK_MUST_USE enum yolk_status engine_submit(struct yolk_engine *engine, uint64_t batch,
                                             const struct submission *from,
                                             enum yolk_status *verdicts, uint32_t *first);
/* With the batch's lock held; none of its tasks is asked for its pieces any more. */
void batch_pieces_free(struct batch *batch);
/* All that is looked up for a request, and its references. */
YOLK_MUST_USE enum yolk_status engine_find(struct yolk_engine *engine,
                                           const struct yolk_request *request,
                                           struct prepared_entry *out);
void engine_forget(struct prepared_entry *entry);
/* What the submit of this request alone would say, but for the room of the queue. task: what it
 * would hold and want; given back with engine_unadmit. */
YOLK_MUST_USE enum yolk_status engine_would_admit(struct yolk_engine *engine,
                                                  const struct yolk_request *request,
                                                  struct engine_task *task);
void engine_unadmit(struct yolk_engine *engine, struct engine_task *task);

/* -- batch_run.c: progress of one batch; its lock is held -- */
/* Polls, expires, posts. True if anything moved. */
bool batch_pass(struct yolk_engine *engine, struct batch *batch);
/* The same, and for others where this one waits for what they have. */
bool batch_progress(struct yolk_engine *engine, struct batch *batch);
void batch_end_task(struct yolk_engine *engine, struct batch *batch, uint32_t task,
                    enum yolk_status status);
/* All tasks that are cut into slices together. */
void batch_end_group(struct yolk_engine *engine, struct batch *batch, uint32_t head,
                     enum yolk_status status);
/* A taken slice is over, its memory quiet. */
void batch_slice_over(struct yolk_engine *engine, struct batch *batch, uint64_t cookie,
                      enum yolk_status status, uint64_t transferred, uint64_t now_ns);
static inline struct engine_io *batch_io_at(const struct batch *batch, uint32_t slice)
{
    return &batch->ios[slice / ENGINE_IO_CHUNK][slice % ENGINE_IO_CHUNK];
}
/* Where a task's bytes lie; local NULL: in pieces. */
struct yolk_place batch_place(const struct batch *batch, uint32_t task);
/* The same of the byte at this position of a group. */
uint8_t *batch_local_at(const struct batch *batch, uint32_t head, uint64_t position);
/* Closes channels and gives all memory back; false if something is still in flight. */
bool batch_reclaim(struct yolk_engine *engine, struct batch *batch);

/* -- reason.c: the batch's lock is held -- */
/* Something of this group failed: takes this thread's last error for why, and clears it. channel:
 * what failed it; NULL: nothing had it yet. Costs memory with the first one only. */
void reason_keep(struct yolk_engine *engine, struct batch *batch, uint32_t head,
                 enum yolk_status status, const struct engine_channel *channel);
/* The same, of a transport that no channel of could be had. */
void reason_no_channel(struct yolk_engine *engine, struct batch *batch,
                       const struct engine_task *head, uint8_t transport, enum yolk_status status);
/* The submit did not take this one: what of it is worth telling, and this thread's last error,
 * which stays as it is. */
void reason_refused(struct yolk_engine *engine, struct batch *batch, uint32_t index,
                    const struct yolk_request *request, enum yolk_status status);
/* This task ended so. */
void reason_failed(struct batch *batch, uint32_t index, enum yolk_status status);
/* Of the tasks from first on. */
void reason_forget(struct batch *batch, uint32_t first);
void reason_free(struct batch *batch);
/* Makes why this task failed this thread's last error; why the first did, if any. */
void reason_tell(const struct yolk_engine *engine, const struct batch *batch, uint32_t index);
void reason_tell_first(const struct yolk_engine *engine, const struct batch *batch);

/* -- report.c -- */
/* What a route leads to: the part of its text that says where, or the file. */
void engine_route_device(const struct segment *segment, uint32_t transport, char *out, size_t size);

/* -- quarantine.c -- */
struct quarantine {
    struct mutex lock;
    struct condition wake;
    struct base_list batches;
    _Atomic uint64_t count;
    uint64_t entered, reaped;
    bool ending;
    _Atomic bool asleep; /* its thread, until somebody wakes it; else it looks by itself */
    struct thread thread;
};
YOLK_MUST_USE enum yolk_status quarantine_start(struct yolk_engine *engine);
void quarantine_stop(struct yolk_engine *engine);
/* The batch's lock is held; it has no handle any more. */
void quarantine_add(struct yolk_engine *engine, struct batch *batch);
/* A look at one of them, if there is any: what polls do. */
void quarantine_step(struct yolk_engine *engine);
struct quarantine_look {
    uint64_t count, entered, reaped;
    uint64_t oldest_ns; /* how long the oldest is there */
};
void quarantine_look(struct yolk_engine *engine, struct quarantine_look *out);
/* One look at each; returns how many are left. */
uint64_t quarantine_reap(struct yolk_engine *engine);
void batch_give_slot_back(struct yolk_engine *engine, struct batch *batch);
/* There is something to look after. */
void quarantine_wake(struct yolk_engine *engine);

struct engine_counters {
    _Atomic uint64_t submitted, merged, staged, ok, failed, canceled, timeout, stuck;
    _Atomic uint64_t slices, retried, exhausted, failed_over, unknown, bytes_read, bytes_written,
        breakers, bytes_staged;
};

struct yolk_engine {
    uint32_t forks;                /* of the process that made it; see process_forks */
    struct engine_plugins plugins; /* unloaded last of all */
    uint64_t (*now_ns)(void *self);
    void *clock_self;
    struct transport transports[ENGINE_TRANSPORTS_MAX];
    uint32_t transport_count;
    uint8_t order[ENGINE_TRANSPORTS_MAX]; /* the default one */
    struct policy_set policies;
    bool has_policies;
    struct engine_wish wish; /* of a request that says nothing */
    bool failover_on_poll;
    uint8_t kinds[ENGINE_TRANSPORTS_MAX]; /* enum failover_kind */
    struct registry registry;
    struct segment_table segments;
    struct prepared_table prepared;
    struct batch_table batches;
    struct quarantine quarantine;
    struct gate gate;
    struct stage stage;
    struct engine_device device;
    pthread_mutex_t stuck_lock;
    pthread_mutex_t faster_lock; /* see way.h */
    struct base_list stuck;
    _Atomic uint64_t stuck_count;
    _Atomic uint64_t served_count;
    _Atomic bool closing;
    struct breaker_rule breaker_rule;
    uint64_t drain_limit_ns;
    uint64_t slice_bytes_max;
    uint64_t merge_bytes_max; /* 0: nothing is merged */
    uint32_t attempts_max;
    uint32_t window_slices;
    struct engine_counters counters;
    struct metrics *metrics;
};

static inline uint64_t engine_now(const struct yolk_engine *engine)
{
    return engine->now_ns(engine->clock_self);
}

#define ENGINE_COUNT(engine, what, by)                                                             \
    ((void)atomic_fetch_add_explicit(&(engine)->counters.what, (by), memory_order_relaxed))

/* In a child of the process that made it: its threads are not there, its locks may be held by them
 * for ever, its sockets and files are the parent's. */
static inline bool engine_is_forked(const struct yolk_engine *engine)
{
    return engine != NULL && engine->forks != process_forks();
}
enum yolk_status engine_refuse_forked(void);

#endif
