/* SPDX-License-Identifier: Apache-2.0 */
/* The store: values by key, which stay as they are until removed or upserted, held in the memory of
 * several processes.
 *
 * Every call blocks at most for its deadline plus the time its memory needs to become quiet, and
 * may be made by many threads at once. A store handle carries the process id: in a forked child
 * every call answers YOLK_ERR_FORKED. After a failure yolk_last_error() says more, in this thread.
 */
#ifndef YOLK_STORE_H
#define YOLK_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct yolk_store;

struct yolk_store_options {
    size_t struct_size;      /* sizeof(struct yolk_store_options), set by the init function */
    const char *master;      /* "host:port", "[v6]:port", "unix:/path" or "embedded" */
    const char *name;        /* for people; NULL: "<host name>:<pid>" */
    const char *host;        /* address other machines reach this node at; NULL: derived */
    const char *secret_file; /* file holding the shared secret; NULL: none */
    /* "auto" (NULL), "shm", "tcp", "loop" or the name of a plug-in: the only one allowed */
    const char *transport;
    uint64_t segment_size_bytes; /* > 0: this process is a node and gives this much memory */
    uint64_t put_wait_ms;        /* how long a put waits for space before YOLK_ERR_NO_SPACE */
    uint64_t timeout_ms;         /* deadline of one call, put_wait_ms included */
    uint64_t drain_grace_ms;     /* close: how long readers of this node's segment may go on */
    uint64_t lease_ttl_ms;       /* embedded master only: nominal lease; 0: the master's default */
    uint64_t eviction_high_watermark_permille; /* embedded master only; 0: the default (950) */
    uint32_t replica_num; /* copies a put makes, each in another segment; at least 1 */
    /* A node's disk, which what must leave its memory goes to; kept over restarts. If the disk
     * fails, or is full, the node goes on without it, which is logged, and tries it again. */
    uint64_t ssd_size_bytes; /* > 0: of values; the file is little larger */
    const char *ssd_path;    /* the file is PATH.slot0, or the next free one; absolute */
    uint64_t ssd_sync_ms;    /* a power loss costs the values of so long at most */
    /* Whose keys this store sees; NULL: "default". Keys of two tenants never meet. 1 to 64 bytes,
     * no '_' first, no control characters; of a key's 4096 bytes it takes its own length and 2. A
     * tenant that the master does not know is refused when the store is opened
     * (YOLK_ERR_NO_TENANT). */
    const char *tenant_id;
    const char *tenants; /* embedded master only: the setting `tenants`; NULL: there is none */
    /* A dummy client: in place of `master`, the "host:port" at which a real client on this machine
     * answers (yolk_store_serve_clients); what else to open with is learned there. It gives no
     * segment. */
    const char *real_client;
    uint64_t pool_size_bytes; /* > 0: memory for yolk_store_pool_alloc, shared with its peers */
    /* How long opening goes on while every try to reach the master (or the real client) is refused:
     * nothing listens there (YOLK_ERR_REFUSED). timeout_ms ends it too. */
    uint64_t connect_wait_ms;
    /* Transports out of shared libraries (plugin.h): absolute paths, separated by ':' or a line's
     * end; NULL: none. One that cannot be loaded fails the opening. */
    const char *plugin_paths;
    int huge_pages; /* 1: the segment is of 2 MiB pages; without enough of them a warning says so */
    /* GPUDirect Storage: a file of this client that each put also goes to, at the same time as to
     * memory, and alone where memory has no room; kept over restarts (docs/gds.md). Opening fails
     * if the tier is on and cannot work, with the reason. */
    int gds_enabled;             /* 1: on */
    const char *gds_path;        /* the file is PATH.slot0, or the next free one; absolute */
    uint64_t gds_capacity_bytes; /* of values, of this client; the file is little larger */
    int gds_optional;    /* 1: a put for which the file has no room goes to memory only; 0: it fails
                          * (YOLK_ERR_NO_SPACE) */
    int gds_start_empty; /* 1: forget what the file holds */
    int gds_verify;      /* 1: check every value read; 0: only after an unclean stop */
    /* 1: where cuFile cannot be used on the file, or is slower, values go through host memory and
     * io_uring or plain file I/O, with a warning; 0: opening fails then. */
    int gds_allow_fallback;
    int gds_no_cufile;           /* 1: not by cuFile, which needs gds_allow_fallback */
    int gds_no_io_uring;         /* 1: not by io_uring, also with gds_allow_fallback */
    uint32_t gds_io_batch_depth; /* requests that cuFile is given at a time; 0: 32; at most 128 */
    /* A pool of host memory that GPUs reach over NVLink (EGM, docs/egm.md): segment_size_bytes of
     * it, on the NUMA nodes named, in segments of their own. Needs transport "nvlink" and a size.
     */
    int egm_enabled;            /* 1: on */
    const char *egm_numa_nodes; /* "auto" (NULL): those near GPUs; or numbers separated by commas */
    const char *egm_handle_type;  /* "fabric" (NULL), "posix_fd": this machine only, or "auto" */
    uint64_t egm_chunk_bytes_max; /* MC_MAX_MR_SIZE; 0: 1 TiB */
    const char *cuda_library;     /* CUDA's driver; NULL: libcuda.so.1, as the system finds it.
                                   * Borrowed until the store is closed. */
};

/* Fills in the defaults (embedded is not one: `master` must be set). */
YOLK_API void yolk_store_options_init(struct yolk_store_options *options);

/* Takes what the environment says of the GDS tier, in the words of Mooncake's proposal:
 * MOONCAKE_GDS_OFFLOAD_ENABLED, _PATH, _CAPACITY_BYTES (or else
 * MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES), _OPTIONAL, _ALLOW_FALLBACK, _START_EMPTY and _VERIFY,
 * MC_USE_TENT, MC_STORE_MEMCPY and MC_TENT_CONF. Nothing is changed unless the first one is 1, nor
 * for a dummy client, which has no file.
 * YOLK_ERR_CONFIG names the setting, its value and the rule. The texts are those of the
 * environment. */
YOLK_API YOLK_MUST_USE enum yolk_status
yolk_store_options_environment(struct yolk_store_options *options);

/* Opens a store: reaches the master, opens a session and, with a segment, mounts it. Refuses bad
 * options with a sentence in yolk_last_error(). *out is written only on success, or where an EGM
 * pool could not be set up and a part of it not be given back: then it can be closed, and no more.
 * Borrows options and its strings until return. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_open(const struct yolk_store_options *options,
                                                        struct yolk_store **out);

/* Drains (see yolk_store_drain), waits for calls of other threads, ends the session and frees all.
 * Handles of yolk_store_get_buffer must have been released: otherwise YOLK_ERR_BUSY and nothing is
 * closed. Where a step of tearing an EGM pool down fails, the store stays, refuses all else, and
 * another close takes up what is left. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_close(struct yolk_store *store);

/* 0: all is well; 2: no session with the master now; 3: a close left something that another one
 * takes up; 4: the CUDA driver would not take back memory of the EGM pool: close again, or end the
 * process. */
YOLK_API int yolk_store_health(const struct yolk_store *store);

/* Takes this process's segments out of use: no new placements at once, readers get grace_ms to
 * finish, then its objects are gone; those on its disk until it is opened again. Ok at once without
 * a segment. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_drain(struct yolk_store *store,
                                                         uint64_t grace_ms);

/* Registers caller's memory so that transfers reach it without a bounce. Touches no page. The store
 * borrows it until unregistered. Unregistered buffers work too: they are registered for the call.
 */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_register_buffer(struct yolk_store *store,
                                                                   void *pointer, size_t size);
/* YOLK_ERR_BUSY while a transfer may still touch it. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_unregister_buffer(struct yolk_store *store,
                                                                     void *pointer);

/* A piece of the pool (yolk_store_options.pool_size_bytes): page-aligned, zeroed, registered, in
 * shared memory, the store's until it is closed. YOLK_ERR_NO_SPACE when the pool is used up. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_pool_alloc(struct yolk_store *store, size_t size,
                                                              void **out);

/* Makes this store a real client: answers dummy clients of this machine at "host:port" (port 0: any
 * free one) until it is closed. *port_out, which may be NULL, is the port. A second call is
 * YOLK_ERR_EXISTS. */
YOLK_API YOLK_MUST_USE enum yolk_status
yolk_store_serve_clients(struct yolk_store *store, const char *address, uint16_t *port_out);

/* Where a value lies. */
enum yolk_medium { YOLK_MEDIUM_MEMORY = 0, YOLK_MEDIUM_LOCAL_DISK = 2, YOLK_MEDIUM_GDS = 5 };

struct yolk_slice {
    void *ptr;
    size_t size;
};
/* As the ptr of a get's slice: these bytes of the value are not wanted. So one call takes chosen
 * ranges of many values: nothing else is moved, where the value lies in memory; from a disk or a
 * file, whose values are checked as a whole, the rest comes to memory of the library. */
#define YOLK_SKIP ((void *)UINTPTR_MAX)

/* One key of a batch with the pieces of memory its value is gathered from (put) or scattered to
 * (get), in order. All borrowed until return. */
struct yolk_kv {
    const void *key; /* 1 to 4096 bytes of any value */
    size_t key_size;
    const struct yolk_slice *slices; /* may be NULL with slice_count 0: a value of no bytes */
    size_t slice_count;
    int64_t
        result; /* out: put and get: bytes of the value (>= 0), or a negative enum yolk_status */
    int32_t medium; /* out of a get with result >= 0: enum yolk_medium it was read from */
};

/* Puts n values. Result: the value's size once every replica is in place, also when the key existed
 * before (which writes nothing: values are immutable) or another client is just writing it. A key
 * given twice in a batch is put once, the first wins. Negative: YOLK_ERR_NO_SPACE (no room within
 * put_wait_ms), _TOO_LARGE (no segment could ever hold it), _TIMEOUT, … Returns YOLK_OK when each
 * result is >= 0, else the first failing result's status; results are always written. What is
 * wrong with the call (no kvs apart), YOLK_ERR_FORKED and _CLOSED are each key's result.
 */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_put(struct yolk_store *store,
                                                       struct yolk_kv *kvs, size_t count);

/* As yolk_store_put, with so many copies of each value in place of the store's own replica_num. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_put_replicas(struct yolk_store *store,
                                                                struct yolk_kv *kvs, size_t count,
                                                                uint32_t replica_num);

/* Soft pin: while it lasts, an object leaves memory only when nothing else can. */
enum yolk_soft_pin {
    YOLK_SOFT_PIN_PRESERVE = 0, /* upsert: as the old value had it; put: none */
    YOLK_SOFT_PIN_SET = 1,      /* for soft_pin_ttl_ms from the moment the value can be read */
    YOLK_SOFT_PIN_CLEAR = 2,
};
#define YOLK_SOFT_PIN_TTL_DEFAULT UINT64_MAX

enum { YOLK_PREFERRED_MAX = 16, YOLK_GROUP_ID_MAX = 255 };

/* How values are put. All borrowed until return. */
struct yolk_put_options {
    size_t struct_size;   /* sizeof(struct yolk_put_options), set by the init function */
    uint32_t replica_num; /* copies, each in another segment; 0: the store's own replica_num */
    int32_t soft_pin;     /* enum yolk_soft_pin */
    /* Of YOLK_SOFT_PIN_SET: 0 pins nothing, YOLK_SOFT_PIN_TTL_DEFAULT is the master's default (30
     * minutes); at most 24 hours, more is YOLK_ERR_INVALID. Reads do not extend it. */
    uint64_t soft_pin_ttl_ms;
    /* 1: never evicted, only removed; lasts over an upsert. A master lets at most its setting
     * hard_pin_ratio of each segment be pinned so; beyond: YOLK_ERR_PIN_LIMIT. Does not change what
     * exists already. */
    int32_t hard_pin;
    int32_t same_segment; /* 1: keys of one call go to the segment of the first, if it has room */
    /* Names of segments (yolk_store_options.name of their nodes, as "host:port") to be tried first,
     * in this order; without room there, elsewhere, which the master counts
     * (master_put_not_preferred_total). At most YOLK_PREFERRED_MAX. */
    const char *const *preferred_segments;
    size_t preferred_segment_count;
    /* NULL, or one of at most YOLK_GROUP_ID_MAX bytes for each key; NULL or "" in it: none. Objects
     * of a group are evicted together, and not while one of them is leased or read; an object's
     * group is the one it was first put with. */
    const char *const *group_ids;
};
/* Fills in the defaults. */
YOLK_API void yolk_put_options_init(struct yolk_put_options *options);

/* As yolk_store_put, in the way of `options` (NULL: the defaults). Results also:
 * YOLK_ERR_QUOTA (the tenant's quota is used up and nothing of it can be evicted within
 * put_wait_ms), YOLK_ERR_PIN_LIMIT. YOLK_ERR_INVALID for wrong options, with the reason in
 * yolk_last_error(). */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_put_with(struct yolk_store *store,
                                                            struct yolk_kv *kvs, size_t count,
                                                            const struct yolk_put_options *options);

/* Puts n values in place of those that the keys have, if any. A reader gets the old value or the
 * new one, never a mix, and a reader of the old one finishes; once a result is >= 0 no get that is
 * started later finds the old one. A key given twice in a batch gets the last value. Results as
 * yolk_store_put_with; after YOLK_ERR_TIMEOUT the key may have either value. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_upsert(struct yolk_store *store,
                                                          struct yolk_kv *kvs, size_t count,
                                                          const struct yolk_put_options *options);

/* Gets n values. Result: the value's size, its bytes in the slices; YOLK_ERR_NOT_FOUND;
 * YOLK_ERR_BUFFER_SMALL (nothing written); YOLK_ERR_LEASE_EXPIRED (the bytes arrived too late to be
 * trusted, twice). With a negative result the slices' contents are undefined. Returns as put. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_get(struct yolk_store *store,
                                                       struct yolk_kv *kvs, size_t count);

/* result 1: there, 0: not. Only key, key_size are read. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_exist(struct yolk_store *store,
                                                         struct yolk_kv *kvs, size_t count);

/* As yolk_store_exist with a deadline of its own, and it does not wait for a master whose host
 * refuses the connection (YOLK_ERR_REFUSED): for callers that would rather not know than wait. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_exist_within(struct yolk_store *store,
                                                                struct yolk_kv *kvs, size_t count,
                                                                uint64_t timeout_ms);

/* result: 0 removed, YOLK_ERR_NOT_FOUND, or YOLK_ERR_HAS_LEASE without force. */
YOLK_API YOLK_MUST_USE enum yolk_status
yolk_store_remove(struct yolk_store *store, struct yolk_kv *kvs, size_t count, int force);

/* Removes every object of this store's tenant (those leased only with force); *removed may be NULL.
 */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_remove_all(struct yolk_store *store, int force,
                                                              uint64_t *removed);

/* Drops the copies of n values that lie in segments of this name (yolk_store_options.name of their
 * node), in the memory of it, and leaves those elsewhere and in GDS files; with a name of NULL or
 * "", every copy. result: 0 dropped; YOLK_ERR_NOT_FOUND (no such key, or no copy there);
 * YOLK_ERR_HAS_LEASE: it is being read, or was within its lease. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_clear_replicas(struct yolk_store *store,
                                                                  struct yolk_kv *kvs, size_t count,
                                                                  const char *segment_name);

/* The size of one value, no data moved. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_size(struct yolk_store *store, const void *key,
                                                        size_t key_size, uint64_t *size);

/* A copy in the GDS file of a client, as the master knows it. */
struct yolk_gds_descriptor {
    uint8_t owner_client_id[16];
    uint8_t storage_id[16];
    uint64_t storage_generation;
    uint64_t value_offset; /* bytes, from the start of the file's extents */
    uint64_t value_size;
    uint64_t allocated_size; /* value_size rounded up to 4 KiB */
};

/* Where one copy of a value lies. */
struct yolk_replica {
    uint64_t segment; /* as in the names of yolk_store_stat */
    uint64_t offset;  /* in it */
    uint64_t size;
    int32_t medium;                 /* enum yolk_medium */
    struct yolk_gds_descriptor gds; /* of YOLK_MEDIUM_GDS */
};

/* Where the copies of one value are just now (they may move); no data moved. Writes `room` of them
 * at most; *count says how many there are. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_locate(struct yolk_store *store, const void *key,
                                                          size_t key_size,
                                                          struct yolk_replica *replicas,
                                                          size_t room, size_t *count);

/* Calls visit for each key, in no order; keys put or removed meanwhile may be missed. visit borrows
 * the key out; a non-zero return ends the listing (YOLK_OK). */
typedef int (*yolk_store_visit)(void *context, const void *key, size_t key_size, uint64_t size);
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_list(struct yolk_store *store,
                                                        yolk_store_visit visit, void *context);

/* A value without a copy where it lies in memory of this machine (mapped, read only), else (in
 * memory of another machine, on a disk) a copy in memory of the store. Pinned until released: it is
 * not evicted, its space is not reused. */
struct yolk_buffer {
    const void *data;
    uint64_t size;
    int mapped;     /* 1: the segment's own memory, 0: a copy */
    void *internal; /* the store's */
};
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_get_buffer(struct yolk_store *store,
                                                              const void *key, size_t key_size,
                                                              struct yolk_buffer *out);
/* A value where it lies, at an address that kernels on any GPU of this process may load from, the
 * processor perhaps not; pinned until released. UNSUPPORTED: no GPU reaches it there (it is in
 * ordinary memory, on a disk, outside the NVLink domain). */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_get_device_buffer(struct yolk_store *store,
                                                                     const void *key,
                                                                     size_t key_size,
                                                                     struct yolk_buffer *out);
/* Whether the value is still what was pinned; a copy always is. What was read from it before this
 * call is the value if it answers YOLK_OK. LEASE_EXPIRED: the session that pinned it is over, or
 * the master was restarted; PEER_DEAD: its provider ended, or took its memory back. The address can
 * be read until the buffer is released all the same. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_check_buffer(struct yolk_store *store,
                                                                const struct yolk_buffer *buffer);
YOLK_API void yolk_store_release_buffer(struct yolk_store *store, struct yolk_buffer *buffer);
/* Copies `size` bytes of it, from `offset` on, to the caller's memory, which may be a GPU's.
 * INVALID: they are not in it. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_copy_out(struct yolk_store *store,
                                                            const struct yolk_buffer *buffer,
                                                            uint64_t offset, void *to, size_t size);

/* The master's figures and this client's, as "name value" lines; what there is of each segment is
 * named like segment_puts{segment="ID"}. *text is the caller's: free(). */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_stat(struct yolk_store *store, char **text);

/* The figures of this process's transfers as Prometheus text (docs/engine-metrics.md); nobody is
 * asked. *text is the caller's: free(). */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_transfer_metrics(struct yolk_store *store,
                                                                    char **text);

/* Has the master count everything anew and compare: *differences is 0 if its books are right. */
YOLK_API YOLK_MUST_USE enum yolk_status yolk_store_recount(struct yolk_store *store,
                                                           uint64_t *differences);

/* Which route data of `key` takes to this process, for people. *text is the caller's: free(). */
YOLK_API YOLK_MUST_USE enum yolk_status
yolk_store_describe_route(struct yolk_store *store, const void *key, size_t key_size, char **text);

/* 1 while the session with the master is open (a reconnect in progress: 0). */
YOLK_API int yolk_store_is_connected(const struct yolk_store *store);

#ifdef __cplusplus
}
#endif
#endif
