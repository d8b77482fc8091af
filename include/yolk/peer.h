/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between named processes, by virtual address: what prefill and decode use without a
 * store.
 *
 * A *peer* is this process under a name. It owns an engine, serves the memory that is registered
 * with it, and opens other peers by their names. A request names an address of the other process,
 * as that process sees it. The peer that owns the memory checks every access against its
 * registrations and their permissions; it is the only authority, so nothing that others remember of
 * it can be out of date in a way that matters: what a restarted process at the same address does
 * not have is refused.
 *
 * Names. With metadata "P2PHANDSHAKE" a peer's name is "host:port" (IPv6: "[host]:port") of its
 * handshake port, and opening it asks that address. With http://, etcd:// or redis:// the name is
 * `name`, and its address is looked up there under the key of docs/transfer.md.
 *
 * All calls may be made by many threads at once. */
#ifndef YOLK_PEER_H
#define YOLK_PEER_H

#include <yolk/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

struct yolk_peer;

#define YOLK_PEER_P2P "P2PHANDSHAKE"

struct yolk_peer_options {
    size_t struct_size;
    /* "P2PHANDSHAKE", "http://host:port/metadata", "etcd://host:port[,host:port]" or
     * "redis://[user:password@]host:port[/database]". NULL: P2PHANDSHAKE. */
    const char *metadata;
    const char
        *name; /* under which others open it; NULL: "host:port". With P2PHANDSHAKE always that */
    const char
        *host; /* that others reach this process at; NULL: 127.0.0.1. A name is resolved once */
    const char *listen;          /* address to listen on; NULL: the same as host */
    uint16_t port;               /* of the handshake; 0: a free one of [port_min, port_max] */
    uint16_t port_min, port_max; /* both 0: 15000 to 17000 */
    /* Comma list, most preferred first: loop, gds, uring, posix, nvlink, tcp, and what plug-ins are
     * called.
     * NULL: all, and those of plug-ins after them. */
    const char *transports;
    const uint8_t *secret; /* shared with all peers; NULL: none */
    size_t secret_size;
    uint64_t timeout_ms;        /* of one handshake or metadata call; 0: 3000 */
    uint32_t notifications_max; /* kept until received; beyond it senders get LIMIT; 0: 4096 */
    /* The engine's own, as far as they are not the peer's: its transports, the address and the
     * secret are. NULL: the defaults. Borrowed until return. */
    const struct yolk_engine_options *engine;
    /* "host:port" to serve the engine's figures at over HTTP (/metrics, /metrics/summary,
     * /metrics/json, /health); port 0: a free one. NULL or "": they are not served. A port that is
     * taken is said in the log, and the peer does without. */
    const char *metrics_listen;
};
/* The defaults, and struct_size. */
void yolk_peer_options_init(struct yolk_peer_options *options);

/* CONFIG (which option, its value, the rule), LINK (the port is taken: names it), NO_ROUTE (no
 * transport works), TIMEOUT and REFUSED of the metadata service. Nothing is left behind. */
YOLK_MUST_USE enum yolk_status yolk_peer_create(const struct yolk_peer_options *options,
                                                struct yolk_peer **out);
/* Withdraws its name, ends serving, cancels what is in flight. BUSY while memory is not quiet after
 * the drain limit: may be called again. */
YOLK_MUST_USE enum yolk_status yolk_peer_destroy(struct yolk_peer *peer);
/* Only takes its name out of the metadata service, for a process that is about to end: nobody finds
 * it there any more, and what was opened goes on. Beside any other call but yolk_peer_destroy; at
 * most timeout_ms; no effect the second time and with P2PHANDSHAKE. The service's errors, with a
 * line in the log: the name stays there. */
YOLK_MUST_USE enum yolk_status yolk_peer_withdraw(struct yolk_peer *peer);

/* The name that others open. This text and the next one are the peer's, until it is destroyed. */
const char *yolk_peer_name(const struct yolk_peer *peer);
/* "host:port" of the handshake. */
const char *yolk_peer_address(const struct yolk_peer *peer);
/* That port alone. */
uint16_t yolk_peer_port(const struct yolk_peer *peer);
/* What does the transfers, until the peer is destroyed. */
struct yolk_engine *yolk_peer_engine(struct yolk_peer *peer);
/* Where the figures are served; 0: nowhere. */
uint16_t yolk_peer_metrics_port(const struct yolk_peer *peer);

/* -- Memory -- */

enum yolk_permission { YOLK_LOCAL = 0, YOLK_REMOTE_READ = 1, YOLK_REMOTE_WRITE = 2 /* and read */ };

/* The rules of yolk_engine_register; on top of it others may reach the range as `permission` says.
 * location: "*" (found out), "cpu:N", "cuda:N"; kept for others to see. A location that this
 * process cannot use, as a NUMA node that this machine has not got, is refused (UNSUPPORTED, with
 * the reason). */
YOLK_MUST_USE enum yolk_status yolk_peer_register(struct yolk_peer *peer, void *pointer,
                                                  uint64_t size, const char *location,
                                                  enum yolk_permission permission);
/* pointer and size as registered; size 0: whatever was registered at pointer, a range before its
 * parts. Waits for accesses of others that are under way, at
 * most timeout_ms; BUSY then, and no new ones are let in: call again. BUSY at once for own requests
 * in flight (nothing happened then). */
YOLK_MUST_USE enum yolk_status yolk_peer_unregister(struct yolk_peer *peer, void *pointer,
                                                    uint64_t size);

/* -- Others -- */

/* name of a peer, "" or the own name for this process, or file://PATH. The same name gives the same
 * handle, counted. Asks the peer (P2PHANDSHAKE) or the metadata service, at most timeout_ms.
 * NOT_FOUND, REFUSED, TIMEOUT, PEER_DEAD, AUTH, VERSION. Handles are 31 bits and never reused. */
YOLK_MUST_USE enum yolk_status yolk_peer_open(struct yolk_peer *peer, const char *name,
                                              uint64_t *segment);
/* Once for each open. Requests in flight go on. STALE: it is not open. */
YOLK_MUST_USE enum yolk_status yolk_peer_close(struct yolk_peer *peer, uint64_t segment);

struct yolk_peer_buffer {
    uint64_t address; /* of a file: its offset */
    uint64_t size;
    char location[64];
    enum yolk_permission permission;
};
/* Asked anew. *buffers is freed by the caller. */
YOLK_MUST_USE enum yolk_status yolk_peer_buffers(struct yolk_peer *peer, uint64_t segment,
                                                 struct yolk_peer_buffer **buffers, size_t *count);
/* YOLK_OK if it answers within timeout_ms; PEER_DEAD, TIMEOUT, REFUSED, STALE (another process is
 * there now; the next request goes to that one). */
YOLK_MUST_USE enum yolk_status yolk_peer_probe(struct yolk_peer *peer, uint64_t segment,
                                               uint64_t timeout_ms);

/* -- Transfers --
 *
 * request->segment is a handle of yolk_peer_open and request->offset an address in that process (an
 * offset in a file); all else is as in yolk_engine_batch_submit, and so are poll, wait, cancel and
 * free of the batch. When a peer was found dead or STALE, it is asked again at its next submit, at
 * most once a second. */
YOLK_MUST_USE enum yolk_status yolk_peer_submit(struct yolk_peer *peer, uint64_t batch,
                                                const struct yolk_request *requests, uint32_t count,
                                                enum yolk_status *verdicts, uint32_t *first);
/* As yolk_engine_prepare; posted by yolk_engine_batch_submit_prepared and given back by
 * yolk_engine_prepared_release, on yolk_peer_engine(peer). Of a peer that was started again since,
 * they are STALE: prepare them anew. */
YOLK_MUST_USE enum yolk_status yolk_peer_prepare(struct yolk_peer *peer,
                                                 const struct yolk_request *requests,
                                                 uint32_t count, enum yolk_status *verdicts,
                                                 uint64_t *prepared);
/* Which way request would go; as yolk_engine_describe_route. */
YOLK_MUST_USE enum yolk_status
yolk_peer_describe_route(struct yolk_peer *peer, const struct yolk_request *request, char **text);
/* In place of yolk_engine_batch_free where yolk_peer_submit_notify was used: what is complete is
 * notified. */
YOLK_MUST_USE enum yolk_status yolk_peer_batch_free(struct yolk_peer *peer, uint64_t batch);
/* All of them, until done or deadline_ns (0: none): the worst status. When it returns all memory is
 * quiet (or the status is STUCK). What failed because the peer was started again (STALE, PEER_DEAD,
 * LINK, REFUSED), and answers now, is tried once more. */
YOLK_MUST_USE enum yolk_status yolk_peer_transfer(struct yolk_peer *peer,
                                                  const struct yolk_request *requests,
                                                  uint32_t count, uint64_t deadline_ns);

/* -- Notifications --
 *
 * In order for one sender. Kept in memory only. */
struct yolk_notification {
    char *name; /* of the sender's choice; NUL terminated */
    char *message;
    size_t message_size;
};
/* YOLK_OK: it is in the peer's queue. LIMIT: that is full. TOO_LARGE: name over 255 or message over
 * 65536 bytes. */
YOLK_MUST_USE enum yolk_status yolk_peer_notify(struct yolk_peer *peer, uint64_t segment,
                                                const char *name, const void *message,
                                                size_t message_size);
/* Sent to each target of the tasks [first, first + count) of the batch once all of these are
 * terminal and YOLK_OK, by whoever makes progress; never if one failed. */
YOLK_MUST_USE enum yolk_status yolk_peer_submit_notify(struct yolk_peer *peer, uint64_t batch,
                                                       const struct yolk_request *requests,
                                                       uint32_t count, enum yolk_status *verdicts,
                                                       uint32_t *first, const char *name,
                                                       const void *message, size_t message_size);
/* Takes all that is there. *out and what it holds is freed by yolk_notifications_free. */
YOLK_MUST_USE enum yolk_status
yolk_peer_notifications(struct yolk_peer *peer, struct yolk_notification **out, size_t *count);
/* NULL is allowed. */
void yolk_notifications_free(struct yolk_notification *notifications, size_t count);

#ifdef __cplusplus
}
#endif
#endif
