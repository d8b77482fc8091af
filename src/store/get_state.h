/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the machine of a get: get.c has the window in work, get_ahead.c the one after it. */
#ifndef YOLK_STORE_GET_STATE_H
#define YOLK_STORE_GET_STATE_H

#include "store/get.h"
#include "store/message.h"

enum item_state {
    ITEM_PENDING = 0, /* → MOVING, DONE; again PENDING for another query */
    ITEM_MOVING = 1,  /* one replica is being read */
    ITEM_DONE = 2,
};

struct item {
    enum item_state state;
    uint8_t queries;   /* queries after failed reads */
    uint8_t refetched; /* its guard ran out once */
    uint8_t unknown;   /* the owner of a disk did not know it there */
    int failure;       /* of the last replica read */
    uint64_t tried;    /* replicas, by bit */
    uint64_t size;     /* of the value */
    uint32_t first;    /* its replicas in the window's list */
    uint32_t replica_count;
};

struct transfer {
    uint32_t item;
    uint32_t replica; /* in the window's list */
    uint8_t over;
};

/* The window after the one in work. */
enum ahead_state {
    AHEAD_NONE = 0, /* → ASKED */
    AHEAD_ASKED,    /* its START is in flight → ANSWERED, GIVEN_UP */
    AHEAD_ANSWERED, /* → NONE */
    AHEAD_GIVEN_UP, /* its turn comes without → NONE */
};

struct ahead {
    enum ahead_state state;
    uint64_t op;
    uint64_t epoch;
    uint64_t session;
    uint64_t sent_ns;
    uint32_t *window;
    size_t count;
    struct base_buf reply;
};

enum phase {
    PHASE_PICK = 0, /* → START, DONE */
    PHASE_START,    /* → MOVE, PICK */
    PHASE_MOVE,     /* → PICK, REPORT */
    PHASE_REPORT,   /* → PICK */
    PHASE_DONE,
};

struct store_get {
    struct store_holds *holds;
    struct store_tuning tuning;
    const struct store_replica_choice *choice;
    struct store_item *items;
    struct item *states;
    size_t count;
    uint64_t deadline_ns;

    enum phase phase;
    uint16_t in_flight; /* the kind of message that is unanswered, 0: none */
    uint64_t resend_ns; /* the next START waits until then */
    uint64_t backoff_ns;
    size_t cursor;
    uint64_t op;
    struct store_stamp stamp;
    uint64_t epoch;
    uint64_t session;
    uint64_t sent_ns;    /* when the message in flight left */
    uint64_t expires_ns; /* the guard surely holds before this */
    uint64_t renew_ns;   /* when to renew it */
    struct store_message message;

    uint32_t *window;
    size_t window_count;
    struct store_replica *replicas;
    size_t replica_room;
    struct transfer *transfers;
    size_t transfer_count;
    size_t transfer_room;
    size_t transfer_next;
    size_t flying; /* transfers not over, handed out or not */

    struct ahead ahead;

    uint32_t *bad_items; /* whose disk replicas are of no use */
    struct store_replica *bad_replicas;
    size_t bad_count;
    size_t bad_room;
};

/* ---- get.c ---- */

size_t store_get_window_room(const struct store_get *get);
/* The cursor goes to the first one that is pending. 0: none is. */
int store_get_find_pending(struct store_get *get);
/* The pending ones from the cursor on, as many as a window takes. */
size_t store_get_pick(const struct store_get *get, uint32_t *window);
void store_get_send(struct store_get *get, uint64_t now_ns, uint16_t kind,
                    struct store_action *action);
/* The window in work was asked about, and this is the answer. */
void store_get_started(struct store_get *get, uint64_t now_ns, const uint8_t *body, size_t size);

/* ---- get_ahead.c ---- */

/* Asks about the window after the one in work. 1 if *action is set. Whatever is wrong shows again
 * when its turn comes. */
int store_get_ahead_ask(struct store_get *get, uint64_t now_ns, struct store_action *action);
void store_get_ahead_answered(struct store_get *get, const uint8_t *body, size_t size);
/* The window asked about ahead becomes the one in work, unless its time is over already. */
void store_get_ahead_take(struct store_get *get, uint64_t now_ns);
void store_get_ahead_drop(struct store_get *get);

#endif
