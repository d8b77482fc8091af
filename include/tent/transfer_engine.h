/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of TENT, Mooncake's newer transfer engine, on Yolk, in libtransfer_engine.so
 * (also found as libtent_shared.so): the same names, structures and numbers. New programs use
 * <yolk/peer.h>, which says more.
 *
 * Functions answer 0, or -1; tent_last_error() says what failed, and so does a line on standard
 * error. Texts that are given back always end with a NUL. What is pointed to is borrowed until the
 * call returns; registered memory, until it is unregistered. Any number of threads may use one
 * engine at once. What of it is ours is marked so. */
#ifndef TENT_TRANSFER_ENGINE_H
#define TENT_TRANSFER_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TENT_API __attribute__((visibility("default")))
#else
#define TENT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef void *tent_engine_t;
typedef uint64_t tent_batch_id_t;   /* 0: none */
typedef uint64_t tent_segment_id_t; /* never used for another segment again */

#define TENT_LOCAL_SEGMENT_ID 0ull /* this process */

#define OPCODE_READ  (0) /* from the target to source */
#define OPCODE_WRITE (1) /* from source to the target */

/* Of a request or a batch. STATUS_WAITING is never given: what is not over is PENDING. */
#define STATUS_WAITING   (0)
#define STATUS_PENDING   (1)
#define STATUS_INVALID   (2)
#define STATUS_CANCELED  (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT   (5)
#define STATUS_FAILED    (6)

#define TYPE_MEMORY (0)
#define TYPE_FILE   (1)

/* What others may do with registered memory. */
#define PERM_LOCAL_READ_WRITE  (0) /* nothing */
#define PERM_GLOBAL_READ_ONLY  (1)
#define PERM_GLOBAL_READ_WRITE (2)

/* Names of transports as numbers; which ones there are tells tent_has_transport. */
#define TRANSPORT_UNSPEC        (0)
#define TRANSPORT_RDMA          (1)
#define TRANSPORT_MNNVL         (2)
#define TRANSPORT_SHM           (3)
#define TRANSPORT_NVLINK        (4)
#define TRANSPORT_GDS           (5)
#define TRANSPORT_IOURING       (6)
#define TRANSPORT_TCP           (7)
#define TRANSPORT_ASCEND_DIRECT (8)
#define TRANSPORT_SUNRISE_LINK  (9)
#define TRANSPORT_TPU           (10)
#define TRANSPORT_UB            (11)
#define TRANSPORT_MPCOMM        (12)

/* Zeroed before its fields are set. */
struct tent_request {
    int opcode;
    void *source; /* inside registered memory of this process */
    tent_segment_id_t target_id;
    uint64_t target_offset; /* an address in the target's process; an offset in a file */
    uint64_t length;        /* bytes */
    int priority;           /* 0 high, 1 medium, 2 low */
    int transport_hint;     /* TRANSPORT_*, tried first; UNSPEC: as the policy has it */
};
typedef struct tent_request tent_request_t;

struct tent_status {
    int status;
    uint64_t transferred_bytes;
};
typedef struct tent_status tent_status_t;

struct tent_buffer_info {
    uint64_t base, length; /* of a file: 0 and its size */
    char location[64];
};
struct tent_segment_info {
    int type;
    int num_buffers;
    struct tent_buffer_info *buffers; /* for tent_free_segment_info */
};
typedef struct tent_segment_info tent_segment_info_t;

struct tent_notifi_record {
    tent_segment_id_t handle; /* 0: of whom it is stands in no record */
    char name[256];
    char msg[4096]; /* longer ones are cut, which is said in a line */
};
typedef struct tent_notifi_record tent_notifi_record_t;
struct tent_notifi_info {
    int num_records;
    struct tent_notifi_record *records; /* for tent_free_notifs */
};
typedef struct tent_notifi_info tent_notifi_info;

/* Zeroed before its fields are set; location "" is "*". */
struct tent_memory_options {
    char location[64];
    int permission;
    int transport_type; /* of memory to allocate: UNSPEC, or one that can (tent_has_transport) */
    char shm_path[256]; /* not supported: must be "" */
    size_t shm_offset;
    int internal; /* not 0: others do not see it in tent_get_segment_info, and cannot reach it */
};
typedef struct tent_memory_options tent_memory_options_t;

struct tent_nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps; /* bytes a second */
};
typedef struct tent_nic_load_stat tent_nic_load_stat_t;

/* -- Configuration: of the next engine that this thread makes, and of no other -- */

/* A JSON file with TENT's keys (docs/settings.md). Read when the engine is made. */
TENT_API void tent_load_config_from_file(const char *path);
/* One of them, "a/b/c"; goes before the file. */
TENT_API void tent_set_config(const char *key, const char *value);

/* -- The engine -- */

/* NULL: it failed; a wrong setting is a failure. The settings are used up in either case. */
TENT_API tent_engine_t tent_create_engine(void);
/* Waits until memory is quiet, with a limit of seconds. NULL is allowed. */
TENT_API void tent_destroy_engine(tent_engine_t engine);
/* 1; 0 for NULL. */
TENT_API int tent_available(tent_engine_t engine);
/* The name that others open. -1 if buf_len is too small: buf is "" then. */
TENT_API int tent_segment_name(tent_engine_t engine, char *buf, size_t buf_len);
/* The host and the port of the handshake. */
TENT_API int tent_rpc_server_addr_port(tent_engine_t engine, char *addr_buf, size_t buf_len,
                                       uint16_t *port);

/* -- Segments -- */

/* A peer's name, "" or the own name for this process, or file://PATH. The same name gives the same
 * handle, counted. */
TENT_API int tent_open_segment(tent_engine_t engine, tent_segment_id_t *handle,
                               const char *segment_name);
TENT_API int tent_close_segment(tent_engine_t engine, tent_segment_id_t handle);
/* Asks the peer anew. */
TENT_API int tent_get_segment_info(tent_engine_t engine, tent_segment_id_t handle,
                                   tent_segment_info_t *info);
TENT_API void tent_free_segment_info(tent_segment_info_t *info);

/* -- Memory -- */

/* Zeroed, not registered. location: "*" or "cpu:N". */
TENT_API int tent_allocate_memory(tent_engine_t engine, void **addr, size_t size,
                                  const char *location);
TENT_API int tent_allocate_memory_ex(tent_engine_t engine, void **addr, size_t size,
                                     tent_memory_options_t *opts);
/* The address that was given. -1 while it is registered. */
TENT_API int tent_free_memory(tent_engine_t engine, void *addr);
/* Others may read and write it. */
TENT_API int tent_register_memory(tent_engine_t engine, void *addr, size_t size);
TENT_API int tent_register_memory_with_perm(tent_engine_t engine, void *addr, size_t size,
                                            int permission);
TENT_API int tent_register_memory_ex(tent_engine_t engine, void *addr, size_t size,
                                     tent_memory_options_t *opts);
/* All or none. */
TENT_API int tent_register_memory_batch(tent_engine_t engine, void **addrs, size_t *sizes,
                                        size_t count, int permission);
TENT_API int tent_register_memory_batch_ex(tent_engine_t engine, void **addrs, size_t *sizes,
                                           size_t count, tent_memory_options_t *opts);
/* size 0: what was registered at addr. */
TENT_API int tent_unregister_memory(tent_engine_t engine, void *addr, size_t size);
/* As many as can be; sizes NULL: as 0 each. -1 if one could not. */
TENT_API int tent_unregister_memory_batch(tent_engine_t engine, void **addrs, size_t *sizes,
                                          size_t count);

/* -- Transfers -- */

/* Room for batch_size requests over its life; 0: it failed. */
TENT_API tent_batch_id_t tent_allocate_batch(tent_engine_t engine, size_t batch_size);
/* At any time: what is in flight is canceled, and its memory stays the engine's until it is quiet.
 */
TENT_API int tent_free_batch(tent_engine_t engine, tent_batch_id_t batch_id);
/* Request i is task (requests submitted before) + i. -1: none was taken, for want of room or
 * because a hint names a transport that there is not. One that cannot be done is a task, and
 * FAILED. */
TENT_API int tent_submit(tent_engine_t engine, tent_batch_id_t batch_id, tent_request_t *entries,
                         size_t count);
/* The message goes to each target once all of these are COMPLETED, and never if one is not. */
TENT_API int tent_submit_notif(tent_engine_t engine, tent_batch_id_t batch_id,
                               tent_request_t *entries, size_t count, const char *name,
                               const char *message);
/* These make progress too. A request whose memory could not be made quiet stays PENDING. */
TENT_API int tent_task_status(tent_engine_t engine, tent_batch_id_t batch_id, size_t task_id,
                              tent_status_t *status);
/* *count: in, room in statuses; out, how many tasks there are. */
TENT_API int tent_task_status_list(tent_engine_t engine, tent_batch_id_t batch_id,
                                   tent_status_t *statuses, size_t *count);
/* COMPLETED if all are; PENDING while one is; else the worst: FAILED before TIMEOUT before CANCELED
 * before INVALID. The bytes of all. */
TENT_API int tent_overall_status(tent_engine_t engine, tent_batch_id_t batch_id,
                                 tent_status_t *status);
/* It ends CANCELED once its memory is quiet, or COMPLETED if all was done. 0 also if it is over. */
TENT_API int tent_cancel_task(tent_engine_t engine, tent_batch_id_t batch_id, size_t task_id);

/* -- Notifications -- */

/* Waits for the peer's answer, with a limit of seconds. name NULL: "". */
TENT_API int tent_send_notifs(tent_engine_t engine, tent_segment_id_t handle, const char *name,
                              const char *message);
/* All that came since the last call. */
TENT_API int tent_recv_notifs(tent_engine_t engine, tent_notifi_info *info);
TENT_API void tent_free_notifs(tent_notifi_info *info);

/* -- Looking at it -- */

/* *count: in, room in stats; out, how many there are. A row for each way that is in use, called
 * "transport:device", where the device is the peer's address or the file's path. */
TENT_API int tent_get_nic_load_stats(tent_engine_t engine, tent_nic_load_stat_t *stats,
                                     size_t *count);
/* Ours. What failed last on this thread, in a sentence; "" if nothing did. */
TENT_API const char *tent_last_error(void);
/* Ours. 1 if the transport of that name works here ("io_uring", "tcp", a plug-in's); else 0, and
 * tent_last_error() says why. */
TENT_API int tent_has_transport(tent_engine_t engine, const char *name);
/* Ours. Which transport would run the request and, for each other one, why not: a text that is
 * freed by the caller; NULL: it failed. */
TENT_API char *tent_describe_route(tent_engine_t engine, const tent_request_t *request);
/* Ours. As tent_overall_status, but what failed is tried elsewhere also where
 * enable_auto_failover_on_poll is off. */
TENT_API int tent_progress_batch(tent_engine_t engine, tent_batch_id_t batch_id,
                                 tent_status_t *status);
/* Ours. 0 if the peer answers within timeout_ms. */
TENT_API int tent_probe_peer(tent_engine_t engine, tent_segment_id_t handle, uint64_t timeout_ms);
/* Ours. This machine in TENT's JSON ("nics", "mems"), under the settings of topology/; freed by the
 * caller; NULL: it failed. */
TENT_API char *tent_topology(tent_engine_t engine);
/* Ours. tent_*'s figures in Prometheus' text; freed by the caller; NULL: it failed. */
TENT_API char *tent_metrics(tent_engine_t engine);

#ifdef __cplusplus
}
#endif
#endif
