/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the mover: mover.c has the requests and what becomes of them, mover_memory.c the memory
 * that they are about. */
#ifndef YOLK_STORE_MOVER_STATE_H
#define YOLK_STORE_MOVER_STATE_H

#include <stdbool.h>

#include "engine/bulk.h"
#include "store/mover.h"

struct device_sum;

/* One transfer of the machine: a request to the engine for each piece of the gather list. */
struct move {
    uint64_t cookie;
    uint64_t segment; /* the master's id */
    size_t item;
    uint64_t size;
    uint32_t checksum;
    uint32_t pending; /* requests not over */
    int status;       /* first failure */
    char transport[16];
    uint8_t reported;
    uint8_t verify;    /* get: it is believed only with this checksum */
    uint8_t own;       /* in this client's GDS file */
    uint8_t leased;    /* get from there: until it is over */
    uint8_t summed;    /* put there: the checksum is being made, was made or cannot be */
    uint8_t gpu_parts; /* some of its parts are in a GPU's memory */
    uint32_t first_part, part_count; /* of the checksum that is being made */
    struct wire_gds gds;
    uint8_t whole;                         /* its request lies in pieces */
    struct store_reservation *reservation; /* put there: gets the checksum */
    uint64_t began_ns;
    struct yolk_request request; /* of the whole value */
};

/* Memory registered for the call, or found in a registration and held; given back at its end. */
struct borrowed {
    void *pointer;
    uint64_t size;
    struct registration *held; /* else NULL */
};

/* A piece that could not be registered as it lies goes through memory of ours. */
struct bounce {
    void *memory;
    void *caller; /* NULL: nobody wants it, but it counts for the checksum */
    size_t size;
    uint32_t move;
    const struct yolk_slice *slice; /* that it stands for then */
};

/* A range of a value that is summed. */
struct sum_part {
    const void *memory;
    uint64_t size;
    uint32_t gpu;   /* 1 + the number of the GPU whose memory it is; 0: none's */
    uint32_t sum;   /* which of the mover's, in mover_sum.c's counting */
    uint32_t index; /* in that */
};

/* A GPU's checksums of some parts. */
struct mover_sum {
    struct device_sum *sum; /* NULL: given back */
    uint32_t users;         /* parts that still want it */
    uint8_t over;           /* it was waited for: */
    int status;
};

/* Requests of one submission. */
struct flight {
    struct flight *next;
    uint64_t batch;
    uint32_t count;
    uint32_t pending;
    uint32_t ended;  /* the first so many are over */
    uint32_t *moves; /* of each request */
    uint8_t *over;
};

struct mover {
    const struct store_mover_context *context;
    struct store_put *put; /* one of both */
    struct store_get *get;
    const struct yolk_kv *kvs;
    struct move *moves;
    uint32_t move_count, move_room;
    struct yolk_request *requests;
    uint32_t *request_moves;
    struct engine_scatter *scatters;
    uint32_t request_count, request_room;
    struct yolk_piece *pieces; /* of the requests in their order */
    uint32_t piece_count, piece_room;
    bool no_pieces; /* the way that they take has no use for them */
    uint64_t request_bytes;
    uint32_t submits; /* while something is in flight */
    uint64_t now_ns;  /* not long ago */
    uint32_t now_left;
    struct borrowed *borrowed;
    uint32_t borrowed_count, borrowed_room;
    struct registration *held;
    uint64_t held_start, held_end; /* of the last hold */
    /* The last segment looked up: keys of a call mostly lie in few. handle 0: none. */
    uint64_t segment, session, handle;
    struct bounce *bounces;
    uint32_t bounce_count, bounce_room;
    struct sum_part *parts;
    uint32_t part_count, part_room;
    struct mover_sum *sums;
    uint32_t sum_count, sum_room;
    struct flight *flights;
    struct base_buf reply;
};

/* ---- mover_memory.c ---- */

/* Doubles *array; 0 without memory (and nothing changed). */
int mover_grow(void *array, uint32_t count, uint32_t *room, size_t element);
/* Makes [pointer, pointer + size) usable by the engine; *local is where it is to read or write. */
int mover_borrow(struct mover *mover, void *pointer, uint64_t size, uint32_t move, void **local);
/* Holds the registration around the range, which is mover->held then; NULL: there is none. */
struct registration *mover_hold(struct mover *mover, void *pointer, uint64_t size);
/* Memory of ours for bytes that the caller does not want, where the checksum wants them. */
int mover_take_skipped(struct mover *mover, uint32_t move, const struct yolk_slice *slice,
                       uint64_t size, void **out);
/* Values that were read into memory of ours go to the caller's before the machine hears of them. */
int mover_copy_back(struct mover *mover, uint32_t move);
/* Where the bytes of a slice of this move lie. */
void *mover_arrived_at(const struct mover *mover, uint32_t move, const struct yolk_slice *slice);
void mover_give_back(struct mover *mover);

/* ---- mover_sum.c ---- */

/* Begins the checksums of what is put in this client's GDS file by these moves. */
void mover_begin_sums(struct mover *mover, const uint32_t *moves, uint32_t count);
/* The writes of the move are over: its reservation gets the checksum, if there is one. */
void mover_end_sum(struct mover *mover, struct move *move);
/* What a disk gave is believed only with its checksum: the whole value has arrived. */
int mover_verify(struct mover *mover, struct move *move);
/* No move has a use for them any more. */
void mover_clear_sums(struct mover *mover);

#endif
