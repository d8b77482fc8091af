/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time, the queue of events, the seeded dice, the hash of everything that happened and the
 * counts of how often. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "platform/clock.h"
#include "platform/random.h"

enum sim_event_kind {
    SIM_TO_MASTER, /* a frame arrives at the master */
    SIM_TO_PEER,   /* a frame arrives at a peer */
    SIM_LINK_UP,   /* a peer's control connection stands (or could not be made) */
    SIM_LINK_DOWN, /* a peer notices that a connection is gone */
    SIM_MASTER_TICK,
    SIM_PEER_TICK,  /* the session machine's deadline */
    SIM_SLOT_TICK,  /* an operation's deadline */
    SIM_SLOT_START, /* a client begins its next operation */
    SIM_CHUNK,      /* some bytes of a transfer move */
    SIM_FAULT,      /* the next fault is drawn */
    SIM_RESTART,    /* a crashed process comes back */
    SIM_DISK_IO,    /* some bytes move between a node's memory and its disk */
    SIM_DISK_TICK,  /* the tier machine's deadline */
    SIM_DISK_FRAME, /* what it has to say leaves */
};

enum { SIM_MASTER = -1 };

struct sim_event {
    uint64_t at_ns;
    uint64_t order; /* among events of one instant */
    enum sim_event_kind kind;
    int actor; /* whose event it is: SIM_MASTER or a peer's index; a paused actor gets it later */
    uint64_t incarnation; /* of the actor; an event for an earlier life is dropped */
    uint64_t id;          /* connection, slot or transfer */
    uint16_t message;
    uint64_t request_id;
    uint8_t *body;
    size_t body_size;
};

/* What the run must have met, counted. A zero over many seeds is a hole in the simulator. */
#define SIM_MARKS(X)                                                                               \
    X(FRAME_DROPPED, "frame dropped")                                                              \
    X(FRAME_DOUBLED, "frame doubled")                                                              \
    X(FRAME_LATE, "frame late (overtaken by others)")                                              \
    X(PARTITION_MASTER, "peer cut off from the master")                                            \
    X(PARTITION_PEERS, "two peers cut off from each other")                                        \
    X(NODE_CRASHED, "node crashed, restarts at the same address")                                  \
    X(CLIENT_CRASHED, "client crashed")                                                            \
    X(MASTER_CRASHED, "master crashed")                                                            \
    X(MASTER_STALLED, "master stalled")                                                            \
    X(NODE_STOPPED, "node stopped")                                                                \
    X(WRITER_STOPPED, "client stopped with a write under way")                                     \
    X(READER_STOPPED, "client stopped with a read under way")                                      \
    X(ALLOCATION_REFUSED, "memory refused")                                                        \
    X(SESSION_OPENED, "session opened")                                                            \
    X(SESSION_EXPIRED, "session lost")                                                             \
    X(SESSION_RESTARTED, "session taken to a new master")                                          \
    X(SEGMENT_MOUNTED, "segment mounted")                                                          \
    X(SESSION_FENCED, "session fenced by an owner")                                                \
    X(FENCE_WAITED, "fence waited for a writer")                                                   \
    X(PUT_EXPIRED, "put expired in a live session")                                                \
    X(ACCESS_STALE, "access refused: stale segment")                                               \
    X(ACCESS_DENIED, "access refused: fenced or no ticket")                                        \
    X(LATE_WRITE, "bytes landed after their writer gave up")                                       \
    X(COMPLETION_DOUBLED, "completion reported twice")                                             \
    X(GET_HIT, "get answered with bytes")                                                          \
    X(GET_MISS, "get answered not found")                                                          \
    X(READ_LATE, "bytes arrived after their guard ran out")                                        \
    X(GET_FAILED, "get failed otherwise")                                                          \
    X(PUT_DONE, "put done")                                                                        \
    X(PUT_NO_SPACE, "put refused: no space")                                                       \
    X(PUT_FAILED, "put failed otherwise")                                                          \
    X(UPSERT_DONE, "value replaced")                                                               \
    X(REMOVED, "key removed")                                                                      \
    X(EVICTED, "key evicted")                                                                      \
    X(REVIVED, "placement revived from a mirror")                                                  \
    X(NODE_LEFT, "node leaves in good order")                                                      \
    X(UNMOUNTED, "segments given back")                                                            \
    X(DISK_MOUNTED, "disk mounted")                                                                \
    X(OFFLOADED, "copied to a disk")                                                               \
    X(OFFLOAD_NO_SPACE, "copy to a disk put off for its space")                                    \
    X(OFFLOAD_SKIPPED, "evicted without the copy to disk")                                         \
    X(MEMORY_EVICTED, "evicted from memory, still on a disk")                                      \
    X(DISK_EVICTED, "evicted from a disk")                                                         \
    X(FREED_ACKNOWLEDGED, "freed space of a disk acknowledged")                                    \
    X(FREED_WAITED, "deleted extent waited for its reader")                                        \
    X(PROMOTED, "copied back to memory")                                                           \
    X(DISK_HIT, "get answered from a disk")                                                        \
    X(DISK_STALE, "read of a disk refused: not there any more")                                    \
    X(CORRUPT_FOUND, "wrong bytes of a disk found by a get")                                       \
    X(PROMOTE_CORRUPT, "wrong bytes of a disk found by a copy to memory")                          \
    X(REPLICA_BAD, "disk replica dropped as bad")                                                  \
    X(CHECKPOINT, "checkpoint completed")                                                          \
    X(RECOVERED, "extent recovered at a start")                                                    \
    X(OFFER_ACCEPTED, "recovered extent accepted by a master")                                     \
    X(OFFER_REJECTED, "extent offered and rejected")                                               \
    X(POWER_LOST, "power lost")                                                                    \
    X(FILE_KEPT, "node killed, its file kept")                                                     \
    X(FILE_CLOSED, "node ended in good order")                                                     \
    X(RECORD_LOST, "unsynced extent lost with the power")                                          \
    X(VALUE_TORN, "record kept, value lost or torn: found at the start")                           \
    X(BIT_ROT, "bit of a value turned")                                                            \
    X(DISK_WRITE_FAILED, "write to a disk failed: EIO")                                            \
    X(DISK_SYNC_FAILED, "sync of a disk failed: EIO")                                              \
    X(DISK_READ_FAILED, "read of a disk failed: EIO")                                              \
    X(DISK_FULL, "write to a disk failed: ENOSPC")                                                 \
    X(DISK_SLOW, "disk slow")                                                                      \
    X(DISK_OPEN_FAILED, "extent file could not be opened")                                         \
    X(TIER_OFF, "tier off for a while")                                                            \
    X(GDS_MOUNTED, "GDS file mounted")                                                             \
    X(GDS_WRITTEN, "value written to a GDS file beside memory")                                    \
    X(GDS_COMMIT, "commits in a GDS file asked for")                                               \
    X(GDS_ONLY, "value in a GDS file alone, for want of memory")                                   \
    X(GDS_HIT, "get answered from the own GDS file")                                               \
    X(GDS_HIT_OTHER, "get answered from the GDS file of another client")                           \
    X(GDS_STALE, "read of a GDS file refused: another extent by now")                              \
    X(GDS_UNKNOWN, "write to a GDS file of which nobody knows whether it ended")                   \
    X(GDS_EVICTED, "evicted from a GDS file")                                                      \
    X(GDS_ROOM, "room in a GDS file asked for")

enum sim_mark {
#define X(name, text) SIM_MARK_##name,
    SIM_MARKS(X)
#undef X
        SIM_MARK_COUNT
};
extern const char *const sim_mark_text[SIM_MARK_COUNT];

struct sim_world {
    uint64_t now_ns;
    uint64_t seed;
    uint64_t order;
    struct random_sim dice;
    struct sim_event *heap;
    size_t count;
    size_t room;
    uint64_t hash;
    uint64_t marks[SIM_MARK_COUNT];
    int verbose;
    char failure[512]; /* the first thing that went wrong, else "" */
};

void sim_world_init(struct sim_world *world, uint64_t seed);
void sim_world_free(struct sim_world *world);
/* Takes event.body. at_ns must not be in the past. */
void sim_world_push(struct sim_world *world, struct sim_event event);
/* The next event; its body is the caller's. 0 when there is none. */
int sim_world_pop(struct sim_world *world, struct sim_event *event);
void sim_world_mix(struct sim_world *world, const void *bytes, size_t size);
void sim_world_mark(struct sim_world *world, enum sim_mark mark);
void sim_world_fail(struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Uniform in [0, bound). */
uint64_t sim_world_below(struct sim_world *world, uint64_t bound);
/* True in `permille` of a thousand cases. */
int sim_world_chance(struct sim_world *world, uint64_t permille);

#endif
