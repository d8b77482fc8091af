/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine: moves bytes between registered memory of this process and segments.
 *
 * Requests are submitted in batches; each is one task. A task is *terminal* when its result is
 * known and its memory is quiet. If the memory is not quiet drain_limit_ms after the deadline or
 * the cancel, the result is YOLK_ERR_STUCK: final, but the engine keeps owning the range, and each
 * new request on it is refused YOLK_ERR_BUSY until it is quiet.
 *
 * All calls may be made by many threads at once. Progress is made by the threads that poll or wait
 * (and, for batches nobody looks at any more, by one low-rate thread). Handles carry a generation:
 * one that was closed or freed is never accepted again (YOLK_ERR_STALE). */
#ifndef YOLK_ENGINE_H
#define YOLK_ENGINE_H

#include <yolk/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

struct yolk_engine;
struct yolk_served;

/* A setting that is on or off and has a default of its own. */
enum yolk_switch { YOLK_SWITCH_DEFAULT = 0, YOLK_SWITCH_ON = 1, YOLK_SWITCH_OFF = 2 };

/* How soon a request is posted among those of its batch that wait (with the queue: of the engine):
 * all of a higher priority first, but one that waited 10 ms is taken as one step higher, so that
 * none starves. TENT's numbers. */
enum yolk_priority {
    YOLK_PRIORITY_HIGH = 0, /* what a request has that says nothing */
    YOLK_PRIORITY_MEDIUM = 1,
    YOLK_PRIORITY_LOW = 2
};

/* What a request is for: chooses policies and contracts, nothing by itself. TENT's numbers. */
enum yolk_intent {
    YOLK_INTENT_UNSPEC = 0,
    YOLK_INTENT_FOREGROUND_GET = 1,
    YOLK_INTENT_BACKGROUND_PREFETCH = 2,
    YOLK_INTENT_MIGRATION = 3,
    YOLK_INTENT_CHECKPOINT = 4,
    YOLK_INTENT_WEIGHT_LOADING = 5,
    YOLK_INTENT_STAGING_INTERNAL = 6
};

/* The admission queue: of all requests that the engine took and that are not over yet
 * (outstanding), only some are given to transports (dispatched); the others wait, by priority and
 * then by age or deadline. One segment has at most as many of them as are left for others, where 8
 * or more (and 8 MiB) may be dispatched: a peer that does not answer holds up no other. Each of a
 * submit's requests is admitted, or the submit is refused (YOLK_ERR_LIMIT) and no task made.
 * Waiting ones move on without anybody polling: every tick_ms the engine's own thread looks at
 * them. 0 in each field: the default. */
struct yolk_queue_options {
    enum yolk_switch enable;         /* OFF by default: everything is dispatched at once */
    uint32_t owners_max;             /* requests outstanding; 0: 1024 */
    uint64_t bytes_max;              /* bytes outstanding; 0: 1 GiB */
    uint32_t dispatch_owners_max;    /* requests dispatched; 0: 128 */
    uint64_t dispatch_bytes_max;     /* bytes dispatched, and of one request; 0: 128 MiB */
    uint32_t staging_owners;         /* of owners_max, kept for intent STAGING_INTERNAL; 0: none */
    uint64_t staging_bytes;          /* of bytes_max, the same; 0: none */
    enum yolk_switch deadline_first; /* within a priority the earliest deadline first, those without
                                      * one last; OFF by default: the oldest first */
    uint64_t promotion_slack_ns;     /* with deadline_first: a deadline this near goes before every
                                      * priority; 0: none does */
    uint64_t tick_ms;                /* 0: 50 */
};

struct yolk_engine_options {
    size_t struct_size;
    /* The transports. In which order they are tried is said at yolk_engine_describe_route; among
     * those that it names in no order, the first here comes first. The tables are static, the array
     * is borrowed until return. One that cannot work here is left out with its reason
     * (yolk_engine_has_transport). */
    const struct yolk_transport_ops *const *transports;
    size_t transport_count;
    /* Options all transports get; now_ns NULL: the real clock; instance is filled in. */
    struct yolk_transport_options transport;
    /* Per transport, may be NULL: the `wrapped` option (see src/transport/fault/fault.h). */
    const void *const *wrapped;
    uint64_t drain_limit_ms;   /* 0: the default (5000) */
    uint32_t attempts_max;     /* tries of one slice on all routes together; 0: the default (3) */
    uint32_t breaker_failures; /* failures in a row that open a breaker; 0: the default (3) */
    uint64_t breaker_cooldown_ms; /* first pause of an open breaker, doubles to 32 times; 0: 1000 */
    uint32_t window_slices;       /* slices of one task in flight; 0: the default (64) */
    uint64_t slice_bytes_max;     /* 0: each transport's own */
    /* Which transports a request may take, in what order: TENT's list of policies, as JSON text, an
     * array or an object with the array in "policy". NULL: the default orders. Borrowed until
     * return. What is wrong in it is YOLK_ERR_CONFIG, the text naming the key, its value and the
     * rule. See docs/engine-policies.md. */
    const char *policy_json;
    /* What each tenant and intent may have in flight, as JSON text: TENT's contract. NULL: no
     * limits. Borrowed until return; errors as of policy_json, also for each key that is none. */
    const char *qos_json;
    struct yolk_queue_options queue;
    /* ON by default: requests that follow each other in one submit, go on where the one before
     * ends in the memory here (of one registration) and in the segment, and are equal in all but
     * size and cookie, are moved as one. Each has its own status, bytes and cancel all the same: a
     * cancel takes back what is under way and posts again what of it the others still miss; what
     * is refused of them together is tried of each. Requests to files are not merged. */
    enum yolk_switch merge;
    uint64_t merge_bytes_max; /* size of a merged request; 0: the default (16 MiB) */
    /* OFF: a failure seen by yolk_engine_batch_poll ends its task, without another try; progress
     * and wait try again all the same. ON by default. */
    enum yolk_switch failover_on_poll;
    enum yolk_switch strict; /* each request is YOLK_REQUEST_DIRECT; OFF by default */
    /* Host memory for staged transfers: where no transport that reaches a segment takes the
     * caller's memory, but one takes the engine's, the bytes go through this, in chunks of a 64th
     * of it (4 KiB to 1 MiB), one being copied while others are moved. Allocated at first need;
     * who finds none free waits in turn. 0: the default (64 MiB); at least 8 KiB. */
    uint64_t staging_bytes;
    /* Transports out of shared libraries (plugin.h), after those of `transports`: absolute paths,
     * separated by ':' or a line's end; NULL: none. One that cannot be loaded fails the creation.
     */
    const char *plugin_paths;
    /* Names of transports to leave out, separated by ','; NULL: none. A name that none has is none
     * to leave out. "io_uring" is uring here too. */
    const char *transports_off;
};

/* The defaults, and struct_size. */
void yolk_engine_options_init(struct yolk_engine_options *options);

/* YOLK_ERR_NO_ROUTE if no transport works, the text naming each and why. CONFIG, INVALID: what is
 * wrong with which option. */
YOLK_MUST_USE enum yolk_status yolk_engine_create(const struct yolk_engine_options *options,
                                                  struct yolk_engine **out);
/* Cancels all batches, drains, frees. YOLK_ERR_BUSY while segments are served, and while memory is
 * not quiet after the drain limit: nothing was freed then, and it may be called again. */
YOLK_MUST_USE enum yolk_status yolk_engine_destroy(struct yolk_engine *engine);

/* 1 if the transport is in use. With NULL or room for text the reason why not is left there. */
int yolk_engine_has_transport(const struct yolk_engine *engine, const char *name, char *reason,
                              size_t reason_size);

/* -- Memory --
 *
 * The same range registered again counts up. A range inside a registered one is another reference
 * to that one (its own unregister gives it back). One that contains or cuts a registered range is
 * refused (YOLK_ERR_OVERLAP). If no transport accepts the
 * memory, its transfers are staged (see staging_bytes); if that cannot be either, or the engine is
 * strict: YOLK_ERR_UNSUPPORTED, and yolk_last_error() names each one and why. */
YOLK_MUST_USE enum yolk_status yolk_engine_register(struct yolk_engine *engine, void *pointer,
                                                    uint64_t size);
/* pointer and size as registered. NOT_REGISTERED; BUSY while a request on it is in flight or
 * prepared and it is the last reference (nothing happened then). */
YOLK_MUST_USE enum yolk_status yolk_engine_unregister(struct yolk_engine *engine, void *pointer,
                                                      uint64_t size);
/* 1 if [pointer, pointer + size) lies inside one registration. */
int yolk_engine_is_registered(struct yolk_engine *engine, const void *pointer, uint64_t size);

/* Memory fit to be served by as many transports as possible (shm's, where it works). Not
 * registered. size in bytes, rounded up to pages in *out, which yolk_engine_memory_free ends.
 * NO_MEMORY; INVALID: a size of 0. */
YOLK_MUST_USE enum yolk_status yolk_engine_memory_alloc(struct yolk_engine *engine, uint64_t size,
                                                        struct yolk_memory *out);
/* Served and registered no more by now. Clears *memory; NULL, or cleared already: nothing. */
void yolk_engine_memory_free(struct yolk_engine *engine, struct yolk_memory *memory);

/* -- Serving -- */

struct yolk_serve_options {
    size_t struct_size;
    void *memory; /* borrowed until unserved */
    uint64_t size;
    const struct yolk_memory *allocation; /* if it came from yolk_engine_memory_alloc, else NULL */
    uint64_t segment;                     /* 0: refuse every access until set_segment_id */
    uint8_t ticket_key[32];
    int require_tickets; /* 0: writes need no ticket (tests, bare engine use) */
};
/* Serves by each transport that can; fails if none can, naming each and why. */
YOLK_MUST_USE enum yolk_status yolk_engine_serve(struct yolk_engine *engine,
                                                 const struct yolk_serve_options *options,
                                                 struct yolk_served **out);

/* The owner's say in each access that the engine allows: a lease, or why not. Called by many
 * threads; request->ticket is as the consumer gave it. begin NULL: always. */
struct yolk_owner {
    void *self;
    enum yolk_status (*begin)(void *self, const struct yolk_access_request *request);
    void (*end)(void *self, const struct yolk_access_request *request);
};

/* The addresses of this process as a segment: an offset is an address, and the owner says which of
 * them may be touched and until when. For transports that can. *owner is copied, what its self
 * points to must outlive *out, which yolk_engine_unserve ends. INVALID, NO_MEMORY, CLOSED, and why
 * no transport serves it. */
#define YOLK_ADDRESSES_SIZE (UINT64_C(1) << 56)
YOLK_MUST_USE enum yolk_status yolk_engine_serve_addresses(struct yolk_engine *engine,
                                                           uint64_t segment,
                                                           const struct yolk_owner *owner,
                                                           struct yolk_served **out);

struct yolk_serve_file_options {
    size_t struct_size;
    const char *path; /* opened for direct I/O, until unserved; NULL: the library's own handle */
    void *internal;
    int writable;
    int pad_writes;   /* see struct yolk_file */
    uint64_t offset;  /* of the segment's first byte */
    uint64_t size;    /* 0: up to the file's end */
    uint64_t segment; /* 0: refuse every access until set_segment_id */
    struct yolk_owner owner;
};
/* Serves a part of a file as a segment: to this process by uring and posix, to others (reads only)
 * by what serves files. The text of an error names the path. */
YOLK_MUST_USE enum yolk_status yolk_engine_serve_file(struct yolk_engine *engine,
                                                      const struct yolk_serve_file_options *options,
                                                      struct yolk_served **out);
/* A whole file of this machine as a segment of this process, until segment_close. url is a path,
 * with or without file:// before it. */
YOLK_MUST_USE enum yolk_status yolk_engine_file_open(struct yolk_engine *engine, const char *url,
                                                     int writable, uint64_t *segment,
                                                     uint64_t *size);
/* "tcp=…;shm=…;loop=…": goes into the descriptor. Borrowed, constant until unserve. */
const char *yolk_served_endpoints(const struct yolk_served *served);
/* From now on only this id and tickets of this key are accepted (the memory was mounted anew). */
void yolk_served_set_segment(struct yolk_served *served, uint64_t segment,
                             const uint8_t ticket_key[32]);
/* Refuses the session for good; YOLK_OK once nothing of it can write any more, else YOLK_ERR_AGAIN:
 * ask again. Does not block. NO_MEMORY. */
YOLK_MUST_USE enum yolk_status yolk_served_fence_session(struct yolk_served *served,
                                                         uint64_t session);
/* Ends serving and frees served; afterwards no transport touches the memory for a peer. */
void yolk_engine_unserve(struct yolk_engine *engine, struct yolk_served *served);

/* -- Segments of others -- */

struct yolk_segment_descriptor {
    uint64_t id;         /* named in every access; another one is STALE */
    uint64_t generation; /* of the memory: lasts over mounts; kept for the caller */
    uint64_t size;
    const char *endpoints; /* borrowed until return */
};
/* No I/O: transports are tried at first use. session is told to the provider with each connection.
 */
YOLK_MUST_USE enum yolk_status
yolk_engine_segment_open(struct yolk_engine *engine,
                         const struct yolk_segment_descriptor *descriptor, uint64_t session,
                         uint64_t *out);
/* Requests in flight go on; new ones are refused. Targets are closed when the last is over. */
YOLK_MUST_USE enum yolk_status yolk_engine_segment_close(struct yolk_engine *engine,
                                                         uint64_t segment);
/* In bytes, as its descriptor said. STALE: the handle was closed. */
YOLK_MUST_USE enum yolk_status yolk_engine_segment_size(struct yolk_engine *engine,
                                                        uint64_t segment, uint64_t *size);
/* What is known of the way to it, without asking: YOLK_OK; STALE: its provider knows no such
 * segment any more; else why the last use of each route failed. */
YOLK_MUST_USE enum yolk_status yolk_engine_segment_health(struct yolk_engine *engine,
                                                          uint64_t segment);
/* Read-only view of the whole segment, valid until segment_close. UNSUPPORTED: none on this route.
 */
YOLK_MUST_USE enum yolk_status yolk_engine_segment_map(struct yolk_engine *engine, uint64_t segment,
                                                       const void **base, uint64_t *size);

/* The same, at an address that GPUs of this process may load from, the same for all of them; the
 * processor perhaps not. */
YOLK_MUST_USE enum yolk_status yolk_engine_segment_map_gpu(struct yolk_engine *engine,
                                                           uint64_t segment, const void **base,
                                                           uint64_t *size);

/* -- Batches -- */

/* Fewer bytes than asked for are a failure, YOLK_ERR_IO. Without it the end of a file is
 * YOLK_ERR_EOF, and the count of bytes tells how many there are: an answer, not a failure. */
#define YOLK_REQUEST_EXACT (UINT32_C(1) << 0)
/* Only by transports that move these very bytes between the two memories or the device and the
 * memory: none that copies them through a buffer of its own on the way (for addresses and sizes
 * that are not aligned, say), and not in stages. YOLK_ERR_UNSUPPORTED if there is none, the text
 * naming each and why. */
#define YOLK_REQUEST_DIRECT (UINT32_C(1) << 1)

/* Fields not used must be zero. */
struct yolk_request {
    enum yolk_opcode opcode;
    void *local;      /* inside one registration; may be NULL if size is 0 */
    uint64_t segment; /* handle of yolk_engine_segment_open */
    uint64_t offset;
    uint64_t size;
    uint64_t deadline_ns; /* on the engine's clock; 0: none */
    /* Transport to try first, then the others in order; NULL: none. INVALID if the engine has not
     * this one in use, NO_ROUTE if it never reaches this segment or the policy has not got it: a
     * hint is never passed over in silence. Borrowed until return. */
    const char *hint;
    struct yolk_ticket ticket; /* writes where the provider asks for one */
    uint64_t cookie;           /* given back in the status */
    enum yolk_priority priority;
    enum yolk_intent intent;
    /* The policy to use, whatever its conditions but that of the segment's type; NULL: the first
     * one that fits. INVALID if there is none of this name. Borrowed until return. */
    const char *policy;
    /* Whose contract of qos_json holds; NULL, or one that it does not name: its defaults. Without
     * qos_json it is only a name. At most 63 bytes. Borrowed until return. */
    const char *tenant;
    uint32_t flags; /* YOLK_REQUEST_*; INVALID for bits that are none */
    /* What must have happened before a byte of it is read or written, by whichever transport: all
     * work that was in this CUstream at the submit (1: the legacy stream, 2: this thread's own),
     * and what this CUevent was recorded after. NULL: nothing. The engine waits, not the GPU; the
     * deadline goes on meanwhile. The event is borrowed until the task is terminal, the stream
     * until return. BUSY if the stream captures a graph. */
    void *after_stream;
    void *after_event;
};

struct yolk_task_status {
    int terminal;            /* 0: pending */
    enum yolk_status status; /* YOLK_OK while pending */
    uint64_t transferred;    /* never goes down */
    uint64_t cookie;
    char transport[16]; /* that ran last; "" before */
    int staged;         /* 1: some of its bytes went, or go, through the engine's own memory */
};

/* Room for capacity tasks over its life; *batch until yolk_engine_batch_free. INVALID: a capacity
 * of 0 or beyond what a batch takes (the text says how many); LIMIT: too many batches; NO_MEMORY;
 * CLOSED. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_create(struct yolk_engine *engine,
                                                        uint32_t capacity, uint64_t *batch);
/* Each request gets a verdict (verdicts[i], required): YOLK_OK, it is task *first + i (rejected
 * ones take a task number too and are terminal with that verdict), or why it was rejected: no
 * memory was touched. Returns YOLK_OK if all were accepted, else the first verdict that is not;
 * LIMIT if the batch or the queue has no room for all (nothing was taken then), STALE, CLOSED.
 * Starts as much as has room. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_submit(struct yolk_engine *engine, uint64_t batch,
                                                        const struct yolk_request *requests,
                                                        uint32_t count, enum yolk_status *verdicts,
                                                        uint32_t *first);
/* Makes progress, then tells about one task. Where it fails (STALE, INVALID), *out is of a task
 * that ended so. If the task has ended with a failure, yolk_last_error() of this thread says why,
 * whichever thread found out: what was to be moved, by which transport to where, on which side it
 * failed, and what the transport said of it. The last is kept of the first 8 failures of a batch;
 * of the others what the status says, and the sentence of one that failed alike. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_poll(struct yolk_engine *engine, uint64_t batch,
                                                      uint32_t task, struct yolk_task_status *out);
struct yolk_batch_status {
    uint32_t tasks;         /* submitted so far */
    uint32_t pending;       /* of these not yet terminal */
    enum yolk_status worst; /* of those that are: STUCK, then any failure, then TIMEOUT, CANCELED,
                             * INVALID; YOLK_OK: all went well */
    uint64_t transferred;   /* bytes of all */
};
/* As poll, of all tasks at once; the first `room` are told each. tasks may be NULL if room is 0.
 * yolk_last_error() says why one of the worst failed, if any has. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_poll_all(struct yolk_engine *engine,
                                                          uint64_t batch,
                                                          struct yolk_batch_status *out,
                                                          struct yolk_task_status *tasks,
                                                          uint32_t room);
/* The same as it stands, without making progress. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_look(struct yolk_engine *engine, uint64_t batch,
                                                      struct yolk_batch_status *out,
                                                      struct yolk_task_status *tasks,
                                                      uint32_t room);
/* Makes progress; *pending: tasks not yet terminal. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_progress(struct yolk_engine *engine,
                                                          uint64_t batch, uint32_t *pending);
/* Until all tasks are terminal (YOLK_OK, whatever their results) or deadline_ns (TIMEOUT; 0: none).
 * yolk_last_error() says why the first that failed did, cancels aside; poll tells of each. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_wait(struct yolk_engine *engine, uint64_t batch,
                                                      uint64_t deadline_ns);
/* Stops posting, drains what is posted; the task ends CANCELED, or YOLK_OK if all was done. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_cancel(struct yolk_engine *engine, uint64_t batch,
                                                        uint32_t task);
/* The handle is dead at once. What is in flight is canceled and reclaimed when quiet. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_free(struct yolk_engine *engine, uint64_t batch);

/* Forgets the tasks of the batch, which then has room for its whole capacity again, from task 0 on,
 * and keeps its memory and its channels. BUSY while a task is not terminal, or is STUCK and not
 * quiet. */
YOLK_MUST_USE enum yolk_status yolk_engine_batch_reset(struct yolk_engine *engine, uint64_t batch);

/* -- Prepared requests --
 *
 * Requests that are submitted again and again, checked and looked up once. While they are prepared
 * they hold the registrations and the segments they name: unregistering the last reference is BUSY;
 * closing a segment works at once, and makes its requests STALE, as does another life of its
 * provider once it was noticed. Handles carry a generation. */

/* Each request gets a verdict (required). All or nothing: with one that is not YOLK_OK, nothing is
 * held and the first such verdict is returned. Nothing that requests points to is needed after
 * return. Their deadlines are those of every submit that names none. count: at least 1. */
YOLK_MUST_USE enum yolk_status yolk_engine_prepare(struct yolk_engine *engine,
                                                   const struct yolk_request *requests,
                                                   uint32_t count, enum yolk_status *verdicts,
                                                   uint64_t *prepared);
/* As yolk_engine_batch_submit: task *first + i is the request number indices[i], in that order, any
 * of them as often as wanted; with indices NULL all of them, and count is not looked at.
 * deadline_ns is that of all; 0: what each was prepared with. verdicts and first may be NULL.
 * INVALID for an index that is none (nothing was taken then). In a batch that had as much to do
 * before (and was reset) nothing is allocated. */
YOLK_MUST_USE enum yolk_status
yolk_engine_batch_submit_prepared(struct yolk_engine *engine, uint64_t batch, uint64_t prepared,
                                  const uint32_t *indices, uint32_t count, uint64_t deadline_ns,
                                  enum yolk_status *verdicts, uint32_t *first);
/* What was submitted goes on. STALE: it was released before. */
YOLK_MUST_USE enum yolk_status yolk_engine_prepared_release(struct yolk_engine *engine,
                                                            uint64_t prepared);

/* -- Looking at it -- */

/* Which policy the request falls under, which transport would run it and, for each other one, why
 * not: a line "policy: NAME" if the engine has policies, then a line for each transport, in the
 * order in which they are tried; or one line "refused: ..." with what the submit would say. *text
 * is freed by the caller.
 *
 * Without a policy the order is: loop; gds, uring, posix (files); nvlink, shm, ucx, rdma, tcp. A
 * transport of another name stands where its reach puts it: one of the same process after loop, of
 * the same machine after shm, else before tcp. "io_uring" is another name of uring in hints and
 * policies. */
YOLK_MUST_USE enum yolk_status yolk_engine_describe_route(struct yolk_engine *engine,
                                                          const struct yolk_request *request,
                                                          char **text);

struct yolk_engine_stats {
    uint64_t tasks_merged;               /* joined to the one before them, of those submitted */
    uint64_t tasks_staged, bytes_staged; /* through the engine's own memory; of those below too */
    uint64_t tasks_submitted, tasks_ok, tasks_failed, tasks_canceled, tasks_timeout, tasks_stuck;
    uint64_t slices_submitted, slices_retried, slices_failed_over;
    uint64_t completions_unknown; /* late or doubled ones, ignored */
    uint64_t bytes_read, bytes_written;
    uint64_t quarantined; /* batches freed before they were quiet */
    uint64_t breakers_opened;
    uint64_t attempts_exhausted; /* slices given up because attempts_max was reached */
    uint64_t queued;             /* requests that wait for dispatch now */
    uint64_t dispatched;         /* requests that hold a place of the dispatch window now */
    uint64_t queue_refused;      /* submits refused by the queue or by a contract */
    uint64_t batches;            /* that are not reclaimed, the quarantined among them */
};
/* Each figure is right; all of them are of one moment only when nothing is in flight. */
void yolk_engine_stats(struct yolk_engine *engine, struct yolk_engine_stats *out);

enum yolk_breaker {
    YOLK_BREAKER_CLOSED = 0,
    YOLK_BREAKER_OPEN = 1,    /* the route is passed over for a while */
    YOLK_BREAKER_PROBING = 2, /* it is being tried again, or will be by the next request */
};

/* One route in use: a transport to one peer, device or file. Bandwidth and latency are means of the
 * recent past, 0 before anything was measured; idle time does not count. */
struct yolk_engine_load {
    char transport[16];
    char device[128];        /* the peer's address, the file's path; cut if it is longer */
    uint64_t segment;        /* handle it is of */
    uint64_t inflight_bytes; /* given to the transport and not over */
    uint64_t inflight_ios;
    uint64_t bandwidth_bytes; /* per second */
    uint64_t latency_ns;      /* of one io */
    uint64_t bytes;           /* moved since the segment was opened */
    uint64_t ios;             /* over since then, failed ones too */
    uint64_t errors;
    enum yolk_breaker breaker;
};
/* *count: room in loads (may be 0, loads NULL then), afterwards how many there are. LIMIT: more
 * than fitted; the first ones are there. Does not wait for anything under way. */
YOLK_MUST_USE enum yolk_status
yolk_engine_load_stats(struct yolk_engine *engine, struct yolk_engine_load *loads, size_t *count);

/* All figures, as docs/engine-metrics.md says: as Prometheus text (format 0.0.4), as a JSON object,
 * as one line for people. *text is freed by the caller. */
YOLK_MUST_USE enum yolk_status yolk_engine_metrics(struct yolk_engine *engine, char **text);
YOLK_MUST_USE enum yolk_status yolk_engine_metrics_json(struct yolk_engine *engine, char **text);
YOLK_MUST_USE enum yolk_status yolk_engine_metrics_summary(struct yolk_engine *engine, char **text);

struct yolk_topology_options {
    size_t struct_size;
    /* Comma lists of RDMA devices: only these; all but these. NULL or "": all. */
    const char *rdma_whitelist, *rdma_blacklist;
    /* In place of what is found: TENT's JSON, or a priority matrix. NULL: none. */
    const char *json;
    /* 1: the older engine's form, {"cpu:0": [[preferred], [others]]}, of RDMA devices alone. */
    int matrix;
};
/* This machine as JSON: network devices and what memory they are near to as TENT names it ("nics",
 * "mems"), NUMA nodes, GPUs and disks beside that; from sysfs, without any driver's library.
 * options NULL: the defaults. *text is freed by the caller. CONFIG: json is none. */
YOLK_MUST_USE enum yolk_status yolk_topology(const struct yolk_topology_options *options,
                                             char **text);

/* Now, on the engine's clock. */
uint64_t yolk_engine_now_ns(const struct yolk_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
