/* SPDX-License-Identifier: Apache-2.0 */
/* Staged transfers: through memory of the engine, where a transport takes that and not the
 * caller's. Each slice has a chunk of it from before its io to after the last copy; several are
 * under way, so that one is copied while others are moved. A slice that finds no chunk waits in the
 * queue of staging.h. What is dispatched there is not lost to batches that nobody polls: who waits
 * looks after those that have chunks, and after who is first. */
#ifndef YOLK_ENGINE_STAGE_H
#define YOLK_ENGINE_STAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/copy.h"
#include "engine/staging.h"
#include "platform/memory.h"

struct batch;
struct device_range;
struct engine_io;
struct registration;
struct yolk_engine;

enum { STAGE_TRANSPORTS_MAX = 16 };

enum stage_phase {
    STAGE_COPIED_IN, /* being copied into the chunk */
    STAGE_LOADED,    /* waits for room in the channel */
    STAGE_POSTED,    /* the transport has it */
    STAGE_COPIED_OUT /* being copied out of the chunk */
};

/* What is known of a chunk in use. Guarded by the lock of the batch that has it. */
struct stage_part {
    struct copy_job job;
    uint32_t slice;
    uint32_t next; /* in the batch's list of those not with a transport */
    enum stage_phase phase;
    enum yolk_status status; /* of the io, while it is copied out */
    uint64_t transferred;
};

struct stage {
    pthread_mutex_t lock; /* after a batch's; of another batch only tried under it */
    _Atomic int state;    /* 0: not made; 1: in use; 2: it cannot be used, see reason */
    uint64_t bytes;       /* as asked for */
    struct staging staging;
    struct memory_segment memory;
    struct stage_part *parts; /* one a chunk */
    uint32_t accepted;        /* bits of the transports that take it */
    void *keys[STAGE_TRANSPORTS_MAX];
    const struct copier *copier; /* of the processor's memory */
    struct copier gpu_copier;
    _Atomic int pinned;         /* 0: not tried; 1: yes; 2: it cannot be */
    struct device_range *range; /* of the driver, while pinned */
    uint32_t lost;              /* chunks that may still be touched, for good */
    char reason[512];
};

/* A batch's part. */
struct stage_batch {
    struct staging_user user;
    uint32_t head; /* parts not with a transport; STAGING_NONE: none */
    bool waits;    /* it stands in the queue */
    bool wants;    /* it found no chunk in this pass */
};

/* INVALID: too few bytes. */
YOLK_MUST_USE enum yolk_status stage_init(struct yolk_engine *engine, uint64_t bytes);
/* Every batch is quiet. */
void stage_free(struct yolk_engine *engine);

/* The transports that take the engine's memory in place of this one, which they refused; makes that
 * memory at first use. 0: none, or the copier does not reach it. */
uint32_t stage_accepted(struct yolk_engine *engine, const struct registration *registration);
const struct copier *stage_copier(const struct stage *stage, uint32_t gpu);
const char *stage_reason(struct yolk_engine *engine);

/* With the batch's lock held. */

static inline bool stage_is_busy(const struct stage_batch *stage)
{
    return stage->waits || stage->head != STAGING_NONE;
}
/* A chunk for the io, which is for that segment, or false: it waits. */
bool stage_take(struct yolk_engine *engine, struct batch *batch, struct engine_io *io);
void stage_give(struct yolk_engine *engine, struct batch *batch, struct engine_io *io);
/* Nobody knows whether the chunk is touched yet: it is never used again. */
void stage_lose(struct yolk_engine *engine, struct batch *batch, struct engine_io *io);
/* It waits, and nothing was given back to anybody for the drain limit. */
bool stage_is_starved(struct yolk_engine *engine, struct batch *batch);
/* At the end of a pass: leaves the queue if it wants nothing. */
void stage_pass_end(struct yolk_engine *engine, struct batch *batch);
/* Makes progress for others that have chunks or come first; true if anything moved. */
bool stage_help(struct yolk_engine *engine, struct batch *batch);

/* -- stage_run.c -- */
enum batch_post { BATCH_POST_WENT, BATCH_POST_FULL, BATCH_POST_WAITS, BATCH_POST_ENDED };
/* Begins a taken slice whose io is filled in for its channel. */
enum batch_post stage_post(struct yolk_engine *engine, struct batch *batch, uint32_t slice);
/* The transport gave the slice's io back. */
void stage_io_over(struct yolk_engine *engine, struct batch *batch, uint32_t slice,
                   enum yolk_status status, uint64_t transferred, uint64_t now_ns);
/* Does the transport have it? */
bool stage_is_posted(struct yolk_engine *engine, const struct engine_io *io);
/* Looks after what is being copied and what waits for its channel; true if anything moved. */
bool stage_work(struct yolk_engine *engine, struct batch *batch);

static inline uint8_t *stage_chunk(const struct stage *stage, uint32_t chunk)
{
    return (uint8_t *)stage->memory.address + chunk * stage->staging.chunk_bytes;
}

#endif
