/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the machine of a put: put.c has the window in work, put_start.c its places, put_gds.c what
 * of it goes to the GDS file. */
#ifndef YOLK_STORE_PUT_STATE_H
#define YOLK_STORE_PUT_STATE_H

#include "store/message.h"
#include "store/put.h"

enum item_state {
    ITEM_PENDING = 0, /* → GRANTED, DONE; stays PENDING to be tried again */
    ITEM_GRANTED = 1, /* → LANDED, FAILED */
    ITEM_LANDED = 2,  /* every replica is in place → DONE, FAILED */
    ITEM_FAILED = 3,  /* to be revoked → PENDING, DONE */
    ITEM_DONE = 4,    /* result is written */
};

struct item {
    enum item_state state;
    int failure;           /* enum yolk_status of the first transfer that failed */
    uint32_t flying;       /* transfers handed out or to be */
    uint32_t tries;        /* failures that were not for want of space */
    uint32_t duplicate_of; /* index of the first item with this key, own index otherwise */
    uint8_t stuck;         /* a transfer never became quiet */
    uint8_t file_stuck;    /* that to the GDS file */
    uint8_t memory_only;   /* the GDS file has no room, and it may go without */
    uint8_t outcome;       /* enum store_outcome of the reservation, once revoked */
    struct store_reservation *reservation; /* not closed yet */
};

struct transfer {
    uint32_t item;
    uint32_t medium;
    uint64_t segment;
    uint64_t offset;
    uint8_t ticket[16];
    uint8_t over;
};

enum phase {
    PHASE_PICK = 0, /* → ROOM, START, DONE */
    PHASE_ROOM,     /* → PICK */
    PHASE_START,    /* → MOVE, REVOKE, PICK */
    PHASE_MOVE,     /* → COMMIT, END */
    PHASE_COMMIT,   /* → END */
    PHASE_END,      /* → REVOKE */
    PHASE_REVOKE,   /* → PICK */
    PHASE_DONE,
};

/* A key whose transfer fails this often is given up; each try has new space and maybe another node.
 */
enum { TRIES_MAX = 3 };
enum { LAST_TRIES = 4 }; /* so many of the longest waits before the end nothing is waited for */

struct store_put {
    struct store_holds *holds;
    struct store_tuning tuning;
    struct store_item *items;
    struct item *states;
    size_t count;
    struct store_put_how how;
    uint64_t space_deadline_ns;
    uint64_t deadline_ns;

    enum phase phase;
    int in_flight;       /* a SEND is unanswered */
    uint64_t resend_ns;  /* the next SEND waits until then */
    uint64_t pick_ns;    /* the next window waits until then */
    uint64_t backoff_ns; /* the next wait's length */
    uint32_t sends;      /* of this phase's message */
    int unsure;          /* the phase's message may have been performed: an answer is missing */
    size_t cursor;       /* no PENDING item before it */
    uint64_t op;
    uint64_t epoch;
    uint64_t session;
    struct store_stamp stamp;
    struct store_message message;

    uint32_t *window; /* items of the window, then of the message in flight */
    size_t window_count;
    uint32_t *listed; /* items of the END or REVOKE in flight */
    size_t listed_count;
    struct transfer *transfers;
    size_t transfer_count;
    size_t transfer_room;
    size_t transfer_next; /* to hand out */
    size_t flying;
    int unknown; /* of the window: nobody says what became of a reservation */

    uint64_t room_wanted;  /* bytes of the largest value that found none in the GDS file */
    uint64_t room_segment; /* that the master is asked about */
    int room_refused;      /* the master can make none now */
    int committing;        /* STORE_COMMIT was handed out */
    struct store_reservation **commits; /* of it */
};

/* ---- put.c ---- */

void store_put_finish_item(struct store_put *put, uint32_t index, int64_t result);
/* Puts an item back for another try, or ends it with `failure`. */
void store_put_retry_item(struct store_put *put, uint32_t index, uint64_t now_ns, int failure,
                          int counts);

void store_put_enter(struct store_put *put, enum phase phase);
/* The whole window failed before anything was granted, or as if nothing was. */
void store_put_fail_window(struct store_put *put, uint64_t now_ns, int status, int again);
/* After all transfers, the commits, or an END: what is next for the window? */
void store_put_settle(struct store_put *put, uint64_t now_ns);
/* Waiting may help: space, room in the session's quota, or another put of the same key that ends.
 */
int store_put_is_for_space(int status);

/* ---- put_start.c ---- */

/* The answer to the START. */
void store_put_started(struct store_put *put, uint64_t now_ns, const uint8_t *body, size_t size);

/* ---- put_gds.c ---- */

/* Reserves for the items of the window; those for which there is no room leave it. */
void store_put_reserve(struct store_put *put, uint64_t now_ns);
/* 1: what was reserved may be named in a message. */
int store_put_is_current(const struct store_put *put);
/* 1: the master is to be asked for room, and the message is encoded. */
int store_put_ask_room(struct store_put *put);
void store_put_room_reply(struct store_put *put, const uint8_t *body, size_t size);
/* 1: *action says which of those that landed are to be committed; 0: none. */
int store_put_commit(struct store_put *put, uint64_t now_ns, struct store_action *action);
/* Closes each that is committed; the others have failed. */
void store_put_judge_commits(struct store_put *put);
/* No message that named it was taken. */
void store_put_abort(struct store_put *put, uint32_t index);
/* Closes what the item still has, after its REVOKE. */
void store_put_preserve(struct store_put *put, uint32_t index);
/* 1: an item of the window has a reservation. */
int store_put_has_reservations(const struct store_put *put);

#endif
