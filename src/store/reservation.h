/* SPDX-License-Identifier: Apache-2.0 */
/* Space in this client's GDS file that a put has for a value, as the machine of the put sees it.
 *
 * A reservation has one owner from reserve on, who closes it by exactly one of commit, abort and
 * preserve; whoever forgets is found when the file is closed. */
#ifndef STORE_RESERVATION_H
#define STORE_RESERVATION_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#include "wire/gds.h"

struct store_reservation {
    struct wire_gds gds; /* what the master is told */
    uint32_t checksum;   /* crc32c of the value, if it could be had */
    uint8_t checked;     /* 1: it could */
    uint8_t by_gpu;      /* 1: with the help of a GPU */
    uint8_t committed;   /* 1: its record is in the journal; set by what STORE_COMMIT asks for */
};

/* What became of one that the master was asked to take. */
enum store_outcome {
    STORE_OUTCOME_TOLD,    /* the master knows it and has dropped it: it says when it is free */
    STORE_OUTCOME_ABSENT,  /* the master did not know it: free once no late message can name it */
    STORE_OUTCOME_UNKNOWN, /* nobody said: until the master does, or the file is mounted anew */
    STORE_OUTCOME_STUCK,   /* bytes may still be on their way there: never */
};

/* Where reservations come from. No call blocks. */
struct store_reserver {
    void *self;
    /* The id of the file as a segment; 0: it is not mounted now. */
    uint64_t (*segment)(void *self);
    /* NO_SPACE, TOO_LARGE, IO, NO_MEMORY: yolk_last_error() says more. */
    int (*reserve)(void *self, const void *key, size_t key_size, uint64_t size,
                   struct store_reservation **out);
    /* 0: it is of an earlier mount, and no message may name it any more. */
    int (*is_current)(void *self, const struct store_reservation *reservation);
    /* It is committed; from now on the master says how long it stays. */
    void (*commit)(void *self, struct store_reservation *reservation);
    /* No message ever named it, or each was refused: free at once. */
    void (*abort)(void *self, struct store_reservation *reservation);
    /* All else. op: of the messages that named it. Nothing is written there any more, but of STUCK.
     */
    void (*preserve)(void *self, struct store_reservation *reservation, uint64_t op,
                     enum store_outcome outcome);
};

#endif
