/* SPDX-License-Identifier: Apache-2.0 */
/* What the pure put and get machines ask their driver to do.
 *
 * A driver loops: next() → perform. SEND and TRANSFER are each returned once and go on while the
 * machine is asked further (transfers of one window run together); WAIT means there is nothing to
 * do until an answer, a completion or deadline_ns; DONE means all results are written and nothing
 * is in flight. At most one SEND is unanswered at a time. */
#ifndef YOLK_STORE_ACTION_H
#define YOLK_STORE_ACTION_H

#include <stddef.h>
#include <stdint.h>

#include "wire/gds.h"

enum store_action_kind {
    STORE_SEND = 1,     /* send a control message, feed its answer or the loss of the link */
    STORE_TRANSFER = 2, /* move one replica of one item, feed its completion */
    STORE_WAIT = 3,     /* until deadline_ns at most */
    STORE_DONE = 4,
    STORE_COMMIT = 5, /* have the journal take these reservations, feed store_put_committed */
};

struct store_reservation;
struct store_reserver;

struct store_action {
    enum store_action_kind kind;
    uint64_t deadline_ns; /* SEND: for its answer; TRANSFER: for its completion; WAIT: next look */
    /* SEND: borrowed from the machine until the next call into it */
    uint16_t message;
    const uint8_t *body;
    size_t body_size;
    /* TRANSFER: bytes [0, size) of item's slices ↔ [offset, offset + size) of the segment */
    size_t item;
    uint64_t segment;
    uint64_t offset;
    uint64_t size;
    uint64_t session; /* that the ticket and the guard were given to */
    uint64_t op;
    uint8_t ticket[16]; /* put only */
    uint32_t medium;    /* of the replica, enum wire_medium */
    uint32_t checksum;  /* get from a disk: crc32c of the value, to be checked on arrival (GDS: 0 if
                           it is not known) */
    uint64_t key_hash;  /* get from a disk: what its owner compares with its own map */
    uint64_t cookie;    /* names this transfer in transferred() */
    /* put to the GDS file: gets the checksum */
    struct store_reservation *reservation;
    const void *key; /* get from a GDS file: as the master has it */
    uint32_t key_size;
    const struct wire_gds *gds; /* the same; until the next call into the machine */
    /* COMMIT: in the machine until the next call into it */
    struct store_reservation **commits;
    size_t commit_count;
};

/* One item of a batch as the machines see it: no memory, only sizes. */
struct store_item {
    const void *key;
    uint32_t key_size;
    uint64_t size;   /* put: bytes of the value; get: bytes of room */
    int64_t result;  /* out */
    uint32_t medium; /* out, of a get that has a value: where it was read, enum wire_medium */
    const struct wire_gds *gds; /* put: what is reserved for it; set by the machine */
};

/* How a put is made; names and groups are borrowed until it is destroyed. */
struct store_put_how {
    uint32_t replica_num; /* 0: 1 */
    uint32_t flags;       /* WIRE_PUT_… */
    uint32_t soft_pin;
    uint64_t soft_pin_ttl_ms;
    const char *const *preferred;
    size_t preferred_count;
    const char *const *groups; /* NULL, or one an item; NULL or "" in it: none */
    /* Each value also goes to the GDS file. NULL: there is none. Borrowed. */
    const struct store_reserver *gds;
    int gds_optional; /* 1: only to memory where the file has no room */
};

/* Limits both machines work by; zero fields are set to the defaults by store_tuning_init. */
struct store_tuning {
    uint64_t window_bytes;     /* transfers of one window; fits a guard's time comfortably */
    uint32_t window_keys;      /* keys of one message */
    uint64_t window_key_bytes; /* key bytes of one message */
    uint64_t reply_timeout_ns; /* one try of one message; then it is sent again */
    uint64_t backoff_first_ns; /* first wait after NO_SPACE or a lost link; doubles … */
    uint64_t backoff_max_ns;   /* … up to this */
};
void store_tuning_init(struct store_tuning *tuning);

#endif
