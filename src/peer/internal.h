/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the room share. Locks, none held while a peer is asked:
 *   directory lock → (nothing);  registry lock → (nothing);  inbox lock, notifier lock → (nothing).
 */
#ifndef PEER_INTERNAL_H
#define PEER_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include <yolk/peer.h>

#include "base/buf.h"
#include "base/imap.h"
#include "base/list.h"
#include "engine/plugin.h"
#include "peer/metadata.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "wire/hello.h"

enum {
    PEER_BUFFERS_MAX = 32768,
    PEER_LOCATION_MAX = 64, /* with its NUL */
    PEER_NAME_MAX = 256,    /* of a peer or a notification, with its NUL */
    PEER_KEY_MAX = PEER_NAME_MAX + 32,
    PEER_SEGMENTS_MAX = 65536, /* open at a time */
};

/* -- registry.c: which addresses others may touch -- */

/* A part of a range, registered on its own. */
struct peer_part {
    struct base_list node;
    uint64_t start, size;
};
struct peer_range {
    uint64_t start, size;
    enum yolk_permission permission;
    char location[PEER_LOCATION_MAX];
    uint64_t references;       /* registrations of it and of its parts */
    uint64_t whole;            /* those of all of it */
    struct base_list parts;    /* newest first */
    _Atomic uint64_t accesses; /* of others, under way */
    bool leaving;              /* no new access */
    bool gone;                 /* from the map; freed by the last who waits */
    uint32_t waiting;          /* removals that wait for accesses to end */
};
struct peer_registry {
    pthread_rwlock_t lock;
    struct base_imap map;
    struct mutex quiet_lock; /* with quiet: an access of a leaving range ended, or a removal */
    struct condition quiet;
    uint64_t removals;
};
void peer_registry_init(struct peer_registry *registry);
/* No access is under way. */
void peer_registry_free(struct peer_registry *registry);
/* OVERLAP, LIMIT, NO_MEMORY; ACCESS: it would widen the permission of the range around it. BUSY:
 * until deadline_ns (0: not at all) others were just unregistering it. */
YOLK_MUST_USE enum yolk_status peer_registry_add(struct peer_registry *registry, uint64_t start,
                                                 uint64_t size, const char *location,
                                                 enum yolk_permission permission,
                                                 uint64_t deadline_ns);
/* size: in, 0 for whatever was registered at start, the whole range before its parts; out, what it
 * is. leaving: an earlier removal gave up
 * waiting. */
YOLK_MUST_USE enum yolk_status peer_registry_find(struct peer_registry *registry, uint64_t start,
                                                  uint64_t *size, bool *leaving);
/* start and size as they were added. The last one waits for accesses of others until deadline_ns.
 * BUSY, NOT_REGISTERED. */
YOLK_MUST_USE enum yolk_status peer_registry_remove(struct peer_registry *registry, uint64_t start,
                                                    uint64_t size, uint64_t deadline_ns);
/* Records of WIRE_PEER_BUFFER_SIZE bytes. */
YOLK_MUST_USE enum yolk_status peer_registry_describe(struct peer_registry *registry,
                                                      struct base_buf *out);
/* The owner whom the engine asks. */
struct yolk_owner peer_registry_owner(struct peer_registry *registry);

/* -- inbox.c: notifications that came -- */

struct peer_inbox {
    struct mutex lock;
    struct base_list list;
    size_t count, count_max;
};
void peer_inbox_init(struct peer_inbox *inbox, size_t count_max);
void peer_inbox_free(struct peer_inbox *inbox);
/* LIMIT, NO_MEMORY. */
YOLK_MUST_USE enum yolk_status peer_inbox_put(struct peer_inbox *inbox, struct wire_view name,
                                              struct wire_view message);
YOLK_MUST_USE enum yolk_status peer_inbox_take(struct peer_inbox *inbox,
                                               struct yolk_notification **out, size_t *count);

/* -- server.c: the thread that answers other peers -- */

struct peer_server;
struct peer_server_options {
    const char *listen; /* host */
    uint16_t port, port_min, port_max;
    const uint8_t *secret;
    size_t secret_size;
    uint8_t instance[WIRE_ID_SIZE];
    struct peer_registry *registry;
    struct peer_inbox *inbox;
    uint64_t segment;      /* that the description names */
    const char *endpoints; /* borrowed until stopped */
};
/* *port: the one that it is. LINK: taken, named in the text. */
YOLK_MUST_USE enum yolk_status peer_server_start(const struct peer_server_options *options,
                                                 struct peer_server **out, uint16_t *port);
void peer_server_stop(struct peer_server *server);

/* -- call.c: one connection to one other peer -- */

struct peer_call {
    struct mutex lock; /* one exchange at a time, so that notifications keep their order */
    int fd;            /* -1: none */
    uint64_t next_request;
};
struct peer_call_options {
    const uint8_t *secret;
    size_t secret_size;
    uint8_t instance[WIRE_ID_SIZE];
};
void peer_call_init(struct peer_call *call);
void peer_call_free(struct peer_call *call);
/* Sends one request and receives its answer of kind + 1 into reply (the body). One that the peer
 * closed meanwhile is made anew before anything is sent. Of an ERROR frame its status and text. */
YOLK_MUST_USE enum yolk_status peer_call(struct peer_call *call,
                                         const struct peer_call_options *options,
                                         const char *address, uint16_t kind, const void *message,
                                         uint64_t deadline_ns, struct base_buf *reply);

/* -- directory.c: other peers and files, by handle -- */

struct peer_entry {
    uint32_t number;
    uint32_t opened; /* calls of open not yet undone */
    _Atomic uint32_t users;
    char name[PEER_NAME_MAX];
    bool is_file;
    struct mutex lock;       /* over what follows; held while it is asked */
    uint64_t engine_segment; /* 0: none yet, or closed as stale */
    uint64_t remote_segment;
    uint64_t asked_ns;
    enum yolk_status last; /* of the last time it was asked */
    struct peer_call call;
};
struct peer_directory {
    struct mutex lock;
    struct peer_entry **entries; /* sorted by number */
    size_t count, room;
    uint32_t last_number;
};
/* Where a name's address stands in the metadata service. */
void peer_metadata_key(const char *name, char key[PEER_KEY_MAX]);
void peer_directory_init(struct peer_directory *directory);
void peer_directory_free(struct yolk_peer *peer);
/* NULL: no such handle (STALE), or FORKED. Given back by peer_entry_release. */
struct peer_entry *peer_directory_find(struct yolk_peer *peer, uint64_t segment,
                                       enum yolk_status *status);
void peer_entry_release(struct yolk_peer *peer, struct peer_entry *entry);
/* The engine's segment for it, asking the peer where nothing usable is known: at most once a
 * second, unless `now` is set. */
YOLK_MUST_USE enum yolk_status peer_entry_segment(struct yolk_peer *peer, struct peer_entry *entry,
                                                  bool now, uint64_t *engine_segment);

/* Waits for the peer's answer. */
YOLK_MUST_USE enum yolk_status peer_entry_notify(struct yolk_peer *peer, struct peer_entry *entry,
                                                 const char *name, const void *message,
                                                 size_t message_size);

/* -- notifier.c: sends what is bound to transfers -- */

struct peer_notifier {
    struct mutex lock;
    struct condition wake;
    struct base_list pending;
    size_t count; /* those that are only prepared too */
    bool ending, started;
    struct thread thread;
};
/* TOO_LARGE. */
YOLK_MUST_USE enum yolk_status peer_notification_check(const char *name, size_t message_size);
void peer_notifier_init(struct peer_notifier *notifier);
void peer_notifier_stop(struct yolk_peer *peer);
/* Takes its place in the queue before the transfers are submitted, so that none is moved whose
 * notification then finds no room: LIMIT, NO_MEMORY. Ends with bind or drop. */
struct peer_pending;
YOLK_MUST_USE enum yolk_status peer_notifier_prepare(struct yolk_peer *peer,
                                                     const struct yolk_request *requests,
                                                     uint32_t count, const char *name,
                                                     const void *message, size_t message_size,
                                                     struct peer_pending **out);
void peer_notifier_bind(struct yolk_peer *peer, struct peer_pending *pending, uint64_t batch,
                        uint32_t first);
void peer_notifier_drop(struct yolk_peer *peer, struct peer_pending *pending);
/* The batch is about to be freed: what is complete is sent, the rest is dropped. */
void peer_notifier_settle(struct yolk_peer *peer, uint64_t batch);

struct yolk_peer {
    struct engine_plugins plugins; /* unloaded after the engine's end */
    struct yolk_engine *engine;
    struct yolk_served *served;
    struct peer_registry registry;
    struct peer_inbox inbox;
    struct peer_server *server;
    struct peer_directory directory;
    struct peer_notifier notifier;
    struct metrics_http *metrics; /* NULL: not served */
    struct metadata *metadata;    /* NULL: P2PHANDSHAKE */
    struct peer_call_options call;
    uint8_t secret[WIRE_SECRET_MAX];
    char name[PEER_NAME_MAX];
    char address[NET_ADDRESS_TEXT_MAX]; /* host:port that the metadata service is told */
    char host[NET_ADDRESS_TEXT_MAX];
    uint16_t port;
    uint64_t segment;
    uint64_t timeout_ms;
    int pid;
    bool half_closed;       /* only the engine is left */
    _Atomic bool withdrawn; /* its name, or it never was published */
};
/* INVALID for NULL; FORKED in a child of the process that made it: its sockets are the parent's. */
YOLK_MUST_USE enum yolk_status peer_check(const struct yolk_peer *peer);

#endif
