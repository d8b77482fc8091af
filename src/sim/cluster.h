/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cluster. The cores are the real ones; what stands here are their edges:
 * connections, memory, the movement of bytes, and the processes that die, stop and come back. */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "engine/access.h"
#include "engine/batch_state.h"
#include "master/core.h"
#include "sim/disk.h"
#include "sim/gds.h"
#include "sim/world.h"
#include "store/get.h"
#include "store/put.h"
#include "store/replica_choice.h"
#include "store/session.h"

enum {
    SIM_NODES = 3,
    SIM_CLIENTS = 2,
    SIM_PEERS = SIM_NODES + SIM_CLIENTS,
    SIM_SLOTS = 2, /* operations a client runs side by side */
    SIM_ITEMS = 4, /* keys of one operation */
    SIM_KEYS = 24,
    SIM_VALUE_MIN = 32,
    SIM_VALUE_MAX = 3000,
    SIM_SEGMENT = 16384, /* bytes; all keys together do not fit in three of them */
    SIM_ATTACHED_MAX = 64,
    SIM_GUARD_MS = 200,
};

/* Memory of one life of a node. Mappings of clients keep it after the node is gone. */
struct sim_memory {
    uint8_t bytes[SIM_SEGMENT];
    int references;
    uint64_t attached[SIM_ATTACHED_MAX]; /* sessions with a writable mapping (shm) */
    int attached_peer[SIM_ATTACHED_MAX];
    int attached_count;
};

struct sim_connection {
    int peer;
    uint64_t incarnation; /* of the peer */
    uint64_t master;      /* incarnation of the master it leads to */
    int slot;             /* -1: the control connection */
    int open;
};

struct sim_transfer {
    int live;
    int peer;
    int slot;
    int node;
    int write;
    int shm;
    int checked;   /* the provider let it in */
    int abandoned; /* the client has been told; what is under way may still land */
    uint64_t node_incarnation;
    struct sim_memory *memory;
    struct store_action action;
    struct batch_state batch; /* the engine's books of this one request */
    uint64_t cookie;          /* of its slice */
    uint64_t moved;
    struct wire_gds gds; /* of a GDS file: what is read */
    int leased;          /* from a disk: its owner keeps the extent */
    int leases;          /* taken for it */
};

enum sim_operation { SIM_IDLE, SIM_GET, SIM_PUT, SIM_REMOVE };

struct sim_slot {
    enum sim_operation operation;
    struct store_get *get;
    struct store_put *put;
    struct store_item items[SIM_ITEMS];
    char keys[SIM_ITEMS][16];
    int key_numbers[SIM_ITEMS];
    uint64_t versions[SIM_ITEMS];
    uint8_t buffers[SIM_ITEMS][SIM_VALUE_MAX];
    size_t count;
    uint64_t deadline_ns;
    uint64_t overdue_ns; /* later than this it must be over */
    uint64_t tick_at_ns;
    uint64_t connection; /* 0: none */
    uint64_t request_id; /* of the message that waits for its answer, 0: none */
    uint64_t reply_by_ns;
    uint64_t begun_ns;
    int own_file;        /* it read the client's own GDS file */
    int met_rot;         /* it read wrong bytes, and had them dropped */
    uint64_t known_to;   /* a remove, when it was sent: the master that knew all nodes */
    uint64_t sent_at_ns; /* the last message: a guard it asked for is at most so old */
    /* STORE_COMMIT: not yet over */
    struct store_reservation *commits[SIM_ITEMS];
    size_t commit_count;
    uint64_t commit_by_ns;
    int done;
    int final;  /* part of the last check: must succeed */
    int upsert; /* the put replaces what there is */
};

/* A node (it has a segment) or a client (it has operations). */
struct sim_peer {
    int index;
    char name[16];
    int alive;
    uint64_t incarnation;
    uint64_t paused_until_ns;
    int cut_from_master;
    uint64_t cut_until_ns;
    struct store_session *session;
    struct store_holds *holds;
    uint64_t control; /* connection, 0: none */
    uint64_t tick_at_ns;
    uint64_t writes_as; /* the session its mappings are made under; older ones go when their writes
                           end */
    /* node */
    struct store_mirror *mirror;
    struct sim_memory *memory;
    struct access_grant grant;
    uint64_t fences[SIM_ATTACHED_MAX]; /* asked for, not yet answered */
    uint64_t fence_segments[SIM_ATTACHED_MAX];
    int fence_count;
    int leaving;          /* ends when its session does */
    uint64_t known_to;    /* incarnation of the last master that knows all it has */
    struct sim_disk disk; /* of a client: its GDS file */
    /* client */
    struct sim_gds *gds; /* NULL: none */
    struct sim_slot slots[SIM_SLOTS];
    uint64_t operations;
};

struct sim_version {
    int key;
    uint32_t size;
    int ended;         /* its PUT_END was sent: it may be read */
    uint64_t acked_ns; /* its put was answered, 0: not yet */
};

/* The last removal of a key that a master confirmed, once every node had told it what it has. */
struct sim_removal {
    uint64_t sent_ns, confirmed_ns;
    uint64_t master; /* incarnation */
};

struct sim {
    struct sim_world world;
    struct master_core *master;
    uint64_t master_incarnation;
    uint64_t master_paused_until_ns;
    uint64_t master_tick_at_ns;
    int master_alive;
    struct sim_peer peers[SIM_PEERS];
    int cut[SIM_PEERS][SIM_PEERS]; /* data paths that are cut */
    struct sim_connection *connections;
    size_t connection_count;
    struct sim_transfer *transfers;
    size_t transfer_count;
    struct {
        uint64_t id;
        int node;
        int disk;
    } * segments; /* every id ever mounted, and whose address it has */
    size_t segment_count;
    struct sim_version *versions;
    size_t version_count;
    struct sim_removal removals[SIM_KEYS];
    struct sim_removal upserts[SIM_KEYS]; /* the last one that was answered, whose older values
                                             are gone then */
    uint64_t request_id;
    uint64_t safety_end_ns;
    uint64_t group_evictions; /* of this master, when the last check began */
    int faults_on;
    int load_on;
    int has_disks, has_gds;
    struct store_replica_choice any; /* where there are GDS files: copies are read in no order */
    int shm[SIM_CLIENTS];            /* this client reaches nodes by shared memory */
    unsigned faults_drawn;           /* a bit each: not every seed has all of them */
    uint64_t fault_gap_ms;
    uint64_t drop_permille, double_permille, late_permille;
};

/* run.c */
struct sim_options {
    uint64_t steps; /* virtual milliseconds of the safety phase */
    int verbose;
};
/* Runs one seed. Answers the hash of all that happened; marks are added up; failure is "" or what
 * went wrong. */
uint64_t sim_run(uint64_t seed, const struct sim_options *options, uint64_t marks[SIM_MARK_COUNT],
                 char *failure, size_t failure_size);

/* master.c */
void sim_master_start(struct sim *sim);
void sim_master_stop(struct sim *sim);
void sim_master_input(struct sim *sim, const struct sim_event *event);
void sim_master_link_down(struct sim *sim, uint64_t connection);
void sim_master_tick(struct sim *sim);

/* network.c */
uint64_t sim_connect(struct sim *sim, int peer, int slot); /* 0: the master cannot be reached */
void sim_disconnect(struct sim *sim, uint64_t connection);
void sim_send_to_master(struct sim *sim, uint64_t connection, uint16_t message, uint64_t request_id,
                        const uint8_t *body, size_t size);
void sim_send_to_peer(struct sim *sim, uint64_t connection, uint16_t message, uint64_t request_id,
                      const uint8_t *body, size_t size);
void sim_break_connections(struct sim *sim, int peer); /* all of a peer, or of SIM_MASTER */

/* peer.c */
/* 0: it ended at once. */
int sim_peer_start(struct sim *sim, int peer);
void sim_peer_crash(struct sim *sim, int peer, enum sim_end end);
void sim_peer_drive(struct sim *sim, int peer);
void sim_peer_try_fences(struct sim *sim, int peer);

/* operation.c */
void sim_slot_start(struct sim *sim, int peer, int slot);
void sim_slot_drive(struct sim *sim, int peer, int slot);
void sim_slot_reply(struct sim *sim, int peer, int slot, const struct sim_event *event);
void sim_slot_link_lost(struct sim *sim, int peer, int slot);
/* Remembers how many keys went with others of their group: if more go, a final get may find
 * nothing. */
void sim_groups_look(struct sim *sim);
void sim_slot_begin_final(struct sim *sim, int peer, int slot, enum sim_operation operation,
                          int key);

/* transfer.c */
void sim_transfer_start(struct sim *sim, int peer, int slot, int write,
                        const struct store_action *action);
void sim_transfer_step(struct sim *sim, size_t index);
int sim_memory_has_writer(const struct sim *sim, const struct sim_memory *memory, uint64_t session);
/* Lets go of the peer's mappings, but those of `session` and those a write still goes through. */
void sim_memory_detach(struct sim *sim, int peer, uint64_t session);
void sim_memory_put(struct sim_memory *memory);
void sim_transfer_free(struct sim *sim, struct sim_transfer *transfer);
/* The node reads its disk for nobody any more. */
void sim_transfer_end_leases(struct sim *sim, int node);

/* fault.c */
/* Which faults this seed has, and how often. */
void sim_fault_draw(struct sim *sim);
/* Draws the next fault; or looks whether the moment has come for one that waits for it. */
void sim_fault_next(struct sim *sim, int soon);
void sim_fault_heal(struct sim *sim);
/* Now, in a way that is drawn; they come back a little later. */
void sim_fault_end_peer(struct sim *sim, int peer);
void sim_fault_end_master(struct sim *sim);
/* A node that is leaving has nothing left to do, or will have waited long enough then. */
void sim_fault_left(struct sim *sim, int node, uint64_t after_ns);
void sim_fault_restart_later(struct sim *sim, int actor);
/* From now on the cores are refused memory now and then; NULL: no more. */
void sim_fault_allocations(struct sim *sim);

/* history.c */
uint64_t sim_version_new(struct sim *sim, int key, uint32_t size);
void sim_version_fill(uint64_t version, uint8_t *bytes, uint32_t size);
/* NULL, or what is wrong with these bytes as a value of this key. */
const char *sim_version_check(const struct sim *sim, int key, const uint8_t *bytes, uint64_t size);
/* Was it replaced before a get began? Values that were put after the upsert was sent may live. */
int sim_version_is_replaced(const struct sim *sim, uint64_t version, uint64_t get_begun_ns);
/* Was it removed for good before a get began? A master that restarted meanwhile may have been
 * offered it again by an owner that had not heard of it. */
int sim_version_is_removed(const struct sim *sim, uint64_t version, uint64_t get_begun_ns);

#endif
