/* SPDX-License-Identifier: Apache-2.0 */
/* The engine in the simulator: the real one, whole, over a transport whose ios move on virtual time
 * only. Nothing of it needs its own thread, so that is ended at once and what it does is done by
 * the run, at instants that are drawn: one thread, and the same seed gives the same run. */
#ifndef SIM_ENGINE_PEERS_H
#define SIM_ENGINE_PEERS_H

#include <stdbool.h>

#include <yolk/engine.h>

#include "base/list.h"
#include "platform/random.h"
#include "sim/sim.h"

enum {
    PEERS = 4,
    WAYS = 2, /* transports: each reaches each peer */
    SLOTS = 48,
    SLOT = 512,
    PEER_SIZE = 2 * SLOTS * SLOT, /* what is read; then what is written, a place for each slot */
    BATCHES = 10,
    TASKS = 8, /* of a batch */
    CHANNEL_DEPTH = 24,
    DRAIN_MS = 50,
};

/* What the runs must have met. */
#define PEER_MARKS(X)                                                                              \
    X(OK, "request done")                                                                          \
    X(FAILED, "request failed")                                                                    \
    X(CANCELED, "request canceled")                                                                \
    X(LATE_CANCEL, "cancel that came too late")                                                    \
    X(TIMEOUT, "deadline passed")                                                                  \
    X(STUCK, "memory not quiet after the drain limit")                                             \
    X(BUSY, "memory of a stuck request refused")                                                   \
    X(REUSED, "memory of a stuck request used again")                                              \
    X(UNQUIET, "end put off until the memory is quiet")                                            \
    X(FREED, "batch freed in flight")                                                              \
    X(MERGED, "neighbours moved as one")                                                           \
    X(QUEUED, "request waits in the queue")                                                        \
    X(LIMIT, "submit refused by the queue")                                                        \
    X(FAILED_OVER, "slice tried by another transport")                                             \
    X(BREAKER, "breaker opened")                                                                   \
    X(AGAIN, "transport full")                                                                     \
    X(SUBMIT_FAILED, "io failed in submit")                                                        \
    X(LATE_FAILED, "io failed after it was taken")                                                 \
    X(SHORT, "short io")                                                                           \
    X(DROPPED, "io never reported but by cancel")                                                  \
    X(DEAF, "io that cannot be canceled")                                                          \
    X(DOUBLED, "completion reported twice")                                                        \
    X(DIED, "peer died")                                                                           \
    X(DIED_BUSY, "peer died with ios under way")                                                   \
    X(RESTARTED, "peer restarted with other memory")                                               \
    X(OLD_LIFE, "request to a former life refused")

enum peer_mark {
#define X(name, text) PEER_MARK_##name,
    PEER_MARKS(X)
#undef X
        PEER_MARK_COUNT
};
extern const char *const peer_mark_text[PEER_MARK_COUNT];

struct peer {
    bool alive;
    uint64_t life;
    uint64_t ended_ns; /* its former life */
    uint64_t restart_ns;
    uint8_t memory[PEER_SIZE];
};

enum slot_state {
    SLOT_FREE,   /* ours: full of its guard */
    SLOT_BUSY,   /* a task that is not over */
    SLOT_STUCK,  /* a task that is over, its memory not quiet */
    SLOT_ORPHAN, /* its batch was freed */
};

struct peers {
    uint64_t now_ns;
    struct random_sim dice;
    uint64_t hash;
    uint64_t marks[PEER_MARK_COUNT];
    char failure[512];
    bool faults_on;
    uint32_t fault_permille; /* of this seed */
    struct peer peers[PEERS];
    uint8_t local[SLOTS * SLOT];
    enum slot_state slots[SLOTS];
    uint32_t unreported[SLOTS]; /* ios of each that the engine has not heard of */
    struct base_list ios;       /* that may still touch memory, in the order of their submits */
};

void peers_fail(struct peers *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void peers_mark(struct peers *p, enum peer_mark mark);
uint64_t peers_below(struct peers *p, uint64_t bound);
bool peers_chance(struct peers *p, uint32_t permille);

/* -- simulated.c: the transport -- */

/* One of WAYS tables; the engine's option `wrapped` of it is the struct peers. */
const struct yolk_transport_ops *simulated_ops(uint32_t way);
/* What a peer's life holds before anybody writes. */
uint8_t peers_byte(uint64_t peer, uint64_t life, uint64_t offset);
void peers_start(struct peers *p, uint32_t peer);
void peers_kill(struct peers *p, uint32_t peer);
/* Moves what is due until then, in order. */
void peers_advance(struct peers *p, uint64_t to_ns);
/* Lets go of everything that is held back. */
void peers_release(struct peers *p);
/* Is an io under way that may touch this slot's memory, or its place at a peer? */
bool peers_slot_is_touched(const struct peers *p, uint32_t slot);
/* Of those whose request is not over. */
uint32_t peers_busy_slots_touched(const struct peers *p);

#endif
