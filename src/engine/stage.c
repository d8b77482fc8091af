/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/stage.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/internal.h"

enum { NOT_MADE, IN_USE, UNUSABLE, HELPED_MAX = 8 };

_Static_assert((int)STAGE_TRANSPORTS_MAX == (int)ENGINE_TRANSPORTS_MAX, "a key for each transport");

enum yolk_status stage_init(struct yolk_engine *engine, uint64_t bytes)
{
    struct stage *stage = &engine->stage;
    uint32_t count;
    uint64_t chunk_bytes;
    stage->bytes = bytes == 0 ? UINT64_C(64) << 20 : bytes;
    stage->copier = copier_cpu();
    engine_copier_gpu(engine, &stage->gpu_copier);
    if (!staging_cut(stage->bytes, &count, &chunk_bytes))
        return base_fail(YOLK_ERR_INVALID, 0, "staging_bytes is %llu: at least %d are needed",
                         (unsigned long long)bytes, 2 * STAGING_CHUNK_MIN);
    return YOLK_OK;
}

void stage_free(struct yolk_engine *engine)
{
    struct stage *stage = &engine->stage;
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if ((stage->accepted & UINT32_C(1) << i) != 0)
            engine->transports[i].ops.remove_buffer(engine->transports[i].endpoint, stage->keys[i]);
    stage->accepted = 0;
    engine_device_unpin(stage->range, stage->memory.size, stage->lost > 0);
    if (stage->lost == 0) /* else it stays, for what may still be moving */
        memory_segment_destroy(&stage->memory);
    stage->range = NULL;
    atomic_store(&stage->pinned, 0);
    stage->memory = (struct memory_segment){0};
    free(stage->parts);
    stage->parts = NULL;
    staging_free(&stage->staging);
    atomic_store(&stage->state, NOT_MADE);
}

static enum yolk_status add_keys(struct yolk_engine *engine)
{
    struct stage *stage = &engine->stage;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct transport *transport = &engine->transports[i];
        if (transport->endpoint != NULL &&
            transport->ops.add_buffer(transport->endpoint, stage->memory.address,
                                      stage->memory.size, &stage->keys[i]) == YOLK_OK)
            stage->accepted |= UINT32_C(1) << i;
    }
    return stage->accepted != 0 ? YOLK_OK
                                : base_fail(YOLK_ERR_UNSUPPORTED, 0,
                                            "no transport takes the engine's memory either");
}

/* The lock is held. */
static void make(struct yolk_engine *engine)
{
    struct stage *stage = &engine->stage;
    enum yolk_status status = staging_init(&stage->staging, stage->bytes);
    if (status == YOLK_OK)
        status = (enum yolk_status)memory_segment_create(stage->bytes, NULL, &stage->memory);
    if (status == YOLK_OK) {
        stage->parts = base_calloc(stage->staging.count, sizeof(*stage->parts));
        if (stage->parts == NULL)
            status =
                base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u chunks", stage->staging.count);
    }
    if (status == YOLK_OK)
        status = add_keys(engine);
    if (status == YOLK_OK) {
        atomic_store(&stage->state, IN_USE);
        return;
    }
    stage_free(engine);
    snprintf(stage->reason, sizeof(stage->reason), "%s", yolk_last_error());
    /* What lacks memory now may have it later. */
    atomic_store(&stage->state, status == YOLK_ERR_UNSUPPORTED ? UNUSABLE : NOT_MADE);
}

const struct copier *stage_copier(const struct stage *stage, uint32_t gpu)
{
    return gpu != 0 ? &stage->gpu_copier : stage->copier;
}

/* The engine's memory is there and stays where it is. */
static void pin(struct yolk_engine *engine, uint32_t gpu)
{
    struct stage *stage = &engine->stage;
    pthread_mutex_lock(&stage->lock);
    if (atomic_load(&stage->pinned) == 0) {
        engine_device_pin(engine, stage->memory.address, stage->memory.size, gpu, &stage->range);
        atomic_store(&stage->pinned, stage->range != NULL ? 1 : 2);
    }
    pthread_mutex_unlock(&stage->lock);
}

uint32_t stage_accepted(struct yolk_engine *engine, const struct registration *registration)
{
    struct stage *stage = &engine->stage;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if (engine->transports[i].endpoint != NULL)
            refused |= UINT32_C(1) << i;
    refused &= ~registration->accepted;
    if (refused == 0 || engine->wish.direct)
        return 0;
    const struct copier *copier = stage_copier(stage, registration->gpu);
    if ((copier->memories & UINT32_C(1) << registration->memory) == 0)
        return 0;
    if (atomic_load_explicit(&stage->state, memory_order_acquire) == NOT_MADE) {
        pthread_mutex_lock(&stage->lock);
        if (atomic_load(&stage->state) == NOT_MADE)
            make(engine);
        pthread_mutex_unlock(&stage->lock);
    }
    if (atomic_load_explicit(&stage->state, memory_order_acquire) != IN_USE)
        return 0;
    if (registration->gpu != 0 && atomic_load_explicit(&stage->pinned, memory_order_acquire) == 0)
        pin(engine, registration->gpu);
    return stage->accepted & refused;
}

const char *stage_reason(struct yolk_engine *engine)
{
    return engine->wish.direct ? "the engine is strict" : engine->stage.reason;
}

/* Guarded by the stage's lock. */
static struct staging_share *share_of(const struct batch *batch, const struct engine_io *io)
{
    return &batch->channels[io->channel].segment->staging;
}

bool stage_take(struct yolk_engine *engine, struct batch *batch, struct engine_io *io)
{
    struct stage *stage = &engine->stage;
    struct staging_share *share = share_of(batch, io);
    io->chunk = STAGING_NONE;
    pthread_mutex_lock(&stage->lock);
    bool waits = !staging_has_share(&stage->staging, share);
    if (waits) {
        io->chunk = staging_take(&stage->staging, &batch->stage.user, share, engine_now(engine));
        waits = io->chunk == STAGING_NONE;
        batch->stage.waits = waits;
    }
    pthread_mutex_unlock(&stage->lock);
    batch->stage.wants = batch->stage.wants || waits;
    return io->chunk != STAGING_NONE;
}

void stage_give(struct yolk_engine *engine, struct batch *batch, struct engine_io *io)
{
    struct stage *stage = &engine->stage;
    pthread_mutex_lock(&stage->lock);
    staging_give(&stage->staging, &batch->stage.user, share_of(batch, io), io->chunk,
                 engine_now(engine));
    pthread_mutex_unlock(&stage->lock);
    io->chunk = STAGING_NONE;
}

void stage_lose(struct yolk_engine *engine, struct batch *batch, struct engine_io *io)
{
    struct stage *stage = &engine->stage;
    pthread_mutex_lock(&stage->lock);
    staging_lose(&stage->staging, &batch->stage.user, share_of(batch, io), io->chunk);
    stage->lost++;
    pthread_mutex_unlock(&stage->lock);
    io->chunk = STAGING_NONE;
}

bool stage_is_starved(struct yolk_engine *engine, struct batch *batch)
{
    struct stage *stage = &engine->stage;
    pthread_mutex_lock(&stage->lock);
    bool starved = staging_is_starved(&stage->staging, &batch->stage.user, engine_now(engine),
                                      engine->drain_limit_ns);
    pthread_mutex_unlock(&stage->lock);
    return starved;
}

void stage_pass_end(struct yolk_engine *engine, struct batch *batch)
{
    if (batch->stage.waits && !batch->stage.wants) {
        pthread_mutex_lock(&engine->stage.lock);
        staging_leave(&batch->stage.user);
        pthread_mutex_unlock(&engine->stage.lock);
        batch->stage.waits = false;
    }
    batch->stage.wants = false;
}

/* The n-th of those that stand before this batch or have chunks, locked; NULL if there is none, or
 * its thread is at work. The stage's lock is held. */
static struct batch *lock_other(struct stage *stage, const struct batch *batch, uint32_t n,
                                bool *more)
{
    const struct base_list *node = base_list_first(&stage->staging.queue);
    struct batch *other = NULL;
    if (n == 0) {
        if (node != NULL)
            other = BASE_CONTAINER(node, struct batch, stage.user.waiting);
        *more = true;
    } else {
        node = base_list_first(&stage->staging.holders);
        for (; node != NULL && n > 1; n--)
            node = node->next == &stage->staging.holders ? NULL : node->next;
        if (node != NULL)
            other = BASE_CONTAINER(node, struct batch, stage.user.holding);
        *more = node != NULL;
    }
    return other != NULL && other != batch && pthread_mutex_trylock(&other->lock) == 0 ? other
                                                                                       : NULL;
}

bool stage_help(struct yolk_engine *engine, struct batch *batch)
{
    bool moved = false;
    bool more = true;
    for (uint32_t n = 0; n <= HELPED_MAX && more && !moved; n++) {
        pthread_mutex_lock(&engine->stage.lock);
        struct batch *other = lock_other(&engine->stage, batch, n, &more);
        pthread_mutex_unlock(&engine->stage.lock);
        if (other == NULL)
            continue;
        moved = batch_pass(engine, other);
        pthread_mutex_unlock(&other->lock);
    }
    return moved;
}
