/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of the disk tier, shared by its files: tier.c (life, mounts, failures), tier_task.c
 * (tasks and their moves), tier_facts.c (facts, and what is sent), tier_journal.c (journal writes,
 * syncs). */
#ifndef STORE_TIER_STATE_H
#define STORE_TIER_STATE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/list.h"
#include "storage/storage.h"
#include "store/tier.h"
#include "wire/msg.h"

enum tier_task_state {
    TASK_QUEUED = 0, /* → MOVING, FINISHED */
    TASK_MOVING,     /* → COMMITTING, FINISHED */
    TASK_COMMITTING, /* its journal record is not written yet → FINISHED */
    TASK_FINISHED,   /* the answer is to be sent → ANSWERED */
    TASK_ANSWERED,   /* kept until the floor passes it → FINISHED, when asked again */
    TASK_STATES,
};

struct tier_task {
    struct base_list link; /* in tier->tasks[state] (queued: in tier->queued[kind]) */
    enum tier_task_state state;
    struct wire_task asked;
    uint64_t extent; /* OFFLOAD, MOVING and COMMITTING: the storage's id of it */
    uint64_t disk_offset;
    uint64_t disk_size;
    uint32_t checksum;
    int32_t status;
    uint8_t waits;       /* NO_SPACE met, and deletes waited for, so often */
    uint64_t wait_syncs; /* tier->syncs to wait for */
    bool given_up;       /* MOVING: its mount is over */
    uint64_t key_hash;
    uint32_t key_size;
    uint8_t key[];
};

/* A batch of facts that was applied but not acknowledged. */
struct tier_batch {
    uint64_t seq;
    uint64_t delete_seq; /* of the storage: its last one */
};

/* Space that a batch freed. */
struct tier_freed {
    uint64_t seq; /* of the batch */
    uint64_t offset;
    uint64_t size;
};

struct store_tier {
    struct store_tier_options options;
    uint64_t memory; /* segment ids; 0: not mounted */
    uint64_t disk;
    bool offered;

    uint64_t floor;
    struct tier_task *known[STORE_TIER_WINDOW]; /* by id */
    struct base_list queued[3];                 /* by kind */
    struct base_list tasks[TASK_STATES];
    struct tier_task **moves; /* options.depth of them */
    uint32_t moving;
    uint32_t stuck; /* of those moving */
    uint32_t memory_writes;
    uint64_t moving_bytes;
    uint32_t queued_count;
    uint32_t committing_count;

    uint64_t fact_seq;  /* applied */
    uint64_t acked_seq; /* acknowledged */
    bool ack_again;
    uint64_t delete_seq; /* of the storage: the last one issued */
    struct tier_batch *batches;
    size_t batch_count, batch_room;
    struct tier_freed *freed;
    size_t freed_count, freed_room;

    bool journaling, syncing;
    bool unplanned;       /* a delete has no journal write yet */
    bool sync_wanted;     /* somebody waits for it */
    uint64_t syncs;       /* ended */
    bool dirty;           /* something was journaled since the last sync began */
    uint64_t sync_due_ns; /* while dirty */
    uint64_t retry_ns;    /* no journal write, sync or OFFLOAD before it */
    uint64_t pause_ns;
    uint32_t write_failures; /* in a row */
    bool failing;            /* the journal or a sync failed, and none succeeded since */
    uint64_t now_ns;         /* of the latest call that told it */
    char why[256];           /* the disk failed */
    struct base_buf recs, body;
    struct store_tier_stats stats;
};

/* Writes of values that fail in a row before OFFLOADs pause. */
enum { WRITE_FAILURES_MAX = 3 };
enum { DONE_RECORDS_MAX = 256, BATCHES_MAX = 4096, WAITS_MAX = 2 };

/* ---- tier.c ---- */

/* Nothing of the kind is tried again for a while. */
void store_tier_disk_failed(struct store_tier *tier, uint64_t now_ns, const char *what, int status);
void store_tier_disk_works(struct store_tier *tier);
/* As told to the master: what is the disk's own fault is no matter of space that it could make. */
int store_tier_disk_status(int status);

/* ---- tier_task.c ---- */

void store_tier_input_tasks(struct store_tier *tier, const uint8_t *body, size_t size);
void store_tier_enter(struct store_tier *tier, struct tier_task *task, enum tier_task_state state);
/* The answer is ready. */
void store_tier_finish(struct store_tier *tier, struct tier_task *task, int status);
/* Nobody will ask for it again. One that is moving lives on until its move is over. */
void store_tier_forget(struct store_tier *tier, struct tier_task *task);
/* 1 if *output is a move. */
int store_tier_next_move(struct store_tier *tier, struct store_tier_output *output);

/* ---- tier_facts.c ---- */

void store_tier_input_facts(struct store_tier *tier, const uint8_t *body, size_t size);
/* 1 if *output is a message. */
int store_tier_next_message(struct store_tier *tier, struct store_tier_output *output);

/* ---- tier_journal.c ---- */

/* 1 if *output is a journal write or a sync. */
int store_tier_next_durable(struct store_tier *tier, uint64_t now_ns,
                            struct store_tier_output *output);

#endif
