/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface that programs written for Mooncake's transfer engine link as
 * libtransfer_engine.so, on Yolk: the same names, structures and numbers. New programs use
 * <yolk/peer.h>, which says more.
 *
 * A function answers 0 or a handle, or a negative number of docs/c.md. What is pointed to is
 * borrowed until the call returns; registered memory, until it is unregistered. Any number of
 * threads may use one engine at once. The text of what failed is on standard error, and in
 * yolk_last_error(). */
#ifndef MOONCAKE_TRANSFER_ENGINE_C_H
#define MOONCAKE_TRANSFER_ENGINE_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MOONCAKE_ENGINE_API __attribute__((visibility("default")))
#else
#define MOONCAKE_ENGINE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t segment_handle_t;
typedef int32_t segment_id_t;
typedef uint64_t batch_id_t;
typedef void *transfer_engine_t;
typedef void *transport_t;

#define LOCAL_SEGMENT (0) /* this process */
#define INVALID_BATCH UINT64_MAX

#define OPCODE_READ  (0) /* from the target to source */
#define OPCODE_WRITE (1) /* from source to the target */

struct transfer_request {
    int opcode;
    void *source; /* inside registered memory of this process */
    segment_id_t target_id;
    uint64_t target_offset; /* an address in the target's process; an offset in a file */
    uint64_t length;        /* bytes */
};
typedef struct transfer_request transfer_request_t;

/* Of one request. WAITING and TIMEOUT are never given: what is not over is PENDING, and what ended
 * without all its bytes is FAILED, because callers look for that number alone. */
#define STATUS_WAITING   (0)
#define STATUS_PENDING   (1)
#define STATUS_INVALID   (2)
#define STATUS_CANCELED  (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT   (5)
#define STATUS_FAILED    (6)

struct transfer_status {
    int status;
    uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

struct notify_msg {
    char *name;
    char *msg;
};
typedef struct notify_msg notify_msg_t;

struct buffer_entry {
    void *addr;
    size_t length;
};
typedef struct buffer_entry buffer_entry_t;

/* metadata_conn_string: "P2PHANDSHAKE", "http://host:port/metadata", "etcd://…" or "redis://…".
 * local_server_name: "host" or "host:port" that others reach this process at; with a metadata
 * service also the name that they open. With P2PHANDSHAKE the port is a free one of MC_MIN_RPC_PORT
 * to MC_MAX_RPC_PORT (15000 to 17000): ask getLocalIpAndPort. ip_or_host_name: the host, if it is
 * not "". rpc_port: of the handshake where a metadata service is used; 0: a free one. auto_discover
 * has no effect: each transport that works here is in use. YOLK_SECRET_FILE names a file with the
 * secret shared by all. NULL: it failed.
 */
MOONCAKE_ENGINE_API transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                                           const char *local_server_name,
                                                           const char *ip_or_host_name,
                                                           uint64_t rpc_port, int auto_discover);
/* Waits until memory is quiet, with a limit of seconds. NULL is allowed. */
MOONCAKE_ENGINE_API void destroyTransferEngine(transfer_engine_t engine);
/* "host:port", NUL terminated: the name others open with P2PHANDSHAKE. -1: buf_len is too small. */
MOONCAKE_ENGINE_API int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);
/* 0 always: what there is was found at creation. */
MOONCAKE_ENGINE_API int discoverTopology(transfer_engine_t engine);
/* Not NULL if a transport of that name is in use; "rdma" is served by tcp, with a warning. */
MOONCAKE_ENGINE_API transport_t installTransport(transfer_engine_t engine, const char *proto,
                                                 void **args);
/* Ours. Whether the transport of that name works here, "rdma" not being tcp; else yolk_last_error()
 * says why not. */
MOONCAKE_ENGINE_API bool hasTransport(transfer_engine_t engine, const char *proto);
/* 0, and no effect. */
MOONCAKE_ENGINE_API int uninstallTransport(transfer_engine_t engine, const char *proto);

/* A peer's name, "" for this process, or file://PATH. The handle, >= 0, or -1. */
MOONCAKE_ENGINE_API segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);
/* The same; what is remembered of a peer is never older than its process. */
MOONCAKE_ENGINE_API segment_id_t openSegmentNoCache(transfer_engine_t engine,
                                                    const char *segment_name);
MOONCAKE_ENGINE_API int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
/* 0 if the peer answers: connections are made when they are first used. */
MOONCAKE_ENGINE_API int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);
/* 0, and no effect: the name goes with the engine. */
MOONCAKE_ENGINE_API int removeLocalSegment(transfer_engine_t engine, const char *segment_name);
MOONCAKE_ENGINE_API int syncSegmentCache(transfer_engine_t engine);

/* location: "*" (NULL) or "cpu:N". remote_accessible: 0: only for requests of this process. */
MOONCAKE_ENGINE_API int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length,
                                            const char *location, int remote_accessible);
MOONCAKE_ENGINE_API int unregisterLocalMemory(transfer_engine_t engine, void *addr);
/* All or none. */
MOONCAKE_ENGINE_API int registerLocalMemoryBatch(transfer_engine_t engine,
                                                 buffer_entry_t *buffer_list, size_t buffer_len,
                                                 const char *location);
/* As many as can be; the first error. */
MOONCAKE_ENGINE_API int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list,
                                                   size_t addr_len);

/* Room for batch_size requests over its life. INVALID_BATCH: it failed. */
MOONCAKE_ENGINE_API batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
/* Request i is task (requests submitted before) + i. Not 0: none was taken. One that cannot be done
 * is a task too, and FAILED. */
MOONCAKE_ENGINE_API int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
                                       struct transfer_request *entries, size_t count);
/* The message goes to each target once all of these are COMPLETED, and never if one is not. */
MOONCAKE_ENGINE_API int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                                                 struct transfer_request *entries, size_t count,
                                                 notify_msg_t notify_msg);
/* Makes progress too. */
MOONCAKE_ENGINE_API int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id,
                                          size_t task_id, struct transfer_status *status);
/* At any time: what is in flight is canceled, and its memory stays the engine's until it is quiet.
 */
MOONCAKE_ENGINE_API int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* All that came since the last call; NULL and *size 0: none. */
MOONCAKE_ENGINE_API notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);
MOONCAKE_ENGINE_API int freeNotifsMsgBuf(notify_msg_t *msg, int size);
/* Waits for the peer's answer, with a limit of seconds. */
MOONCAKE_ENGINE_API int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id,
                                          notify_msg_t notify_msg);

struct nic_load_stat {
    char device_name[64]; /* "transport:device", the peer's address or the file's path */
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps; /* bytes a second */
};
typedef struct nic_load_stat nic_load_stat_t;
/* *count: in, room in stats; out, how many there are. */
MOONCAKE_ENGINE_API int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats,
                                        size_t *count);

/* This machine's network devices and what memory they are near to, NUL terminated: lines for
 * people, or with json not 0 {"local_nics": [...], "topology": {...}}. -1: buf_len is too small;
 * what fits is there. */
MOONCAKE_ENGINE_API int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len,
                                  int json);
/* From now on SIGTERM and SIGINT end this process with status 128 + the signal's number, once its
 * engine's name is withdrawn from the metadata service (at most 3 s each); so is it at exit().
 * Handlers of these signals that were there before are replaced. */
MOONCAKE_ENGINE_API void enableGracefulShutdown(transfer_engine_t engine);

#ifdef __cplusplus
}
#endif
#endif
