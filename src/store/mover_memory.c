/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a call: registered for it or held, and bounced where it overlaps another's. */
#include <stdlib.h>

#include "base/error.h"
#include "engine/device.h"
#include "store/mover_state.h"

int mover_grow(void *array, uint32_t count, uint32_t *room, size_t element)
{
    if (count < *room)
        return 1;
    uint32_t wanted = *room == 0 ? 64 : *room * 2;
    void **at = array;
    void *grown = realloc(*at, wanted * element);
    if (grown == NULL)
        return 0;
    *at = grown;
    *room = wanted;
    return 1;
}

struct registration *mover_hold(struct mover *mover, void *pointer, uint64_t size)
{
    uint64_t start = (uint64_t)(uintptr_t)pointer, held_start, held_end;
    if (start >= mover->held_start && start < mover->held_end && size <= mover->held_end - start)
        return mover->held;
    if (!mover_grow(&mover->borrowed, mover->borrowed_count, &mover->borrowed_room,
                    sizeof(*mover->borrowed)))
        return NULL;
    struct registration *held =
        engine_hold(mover->context->engine, pointer, size, &held_start, &held_end);
    if (held == NULL)
        return NULL;
    mover->borrowed[mover->borrowed_count++] = (struct borrowed){pointer, size, held};
    mover->held = held;
    mover->held_start = held_start;
    mover->held_end = held_end;
    return held;
}

int mover_borrow(struct mover *mover, void *pointer, uint64_t size, uint32_t move, void **local)
{
    struct yolk_engine *engine = mover->context->engine;
    *local = pointer;
    if (mover_hold(mover, pointer, size) != NULL)
        return YOLK_OK;
    if (!mover_grow(&mover->borrowed, mover->borrowed_count, &mover->borrowed_room,
                    sizeof(*mover->borrowed)) ||
        !mover_grow(&mover->bounces, mover->bounce_count, &mover->bounce_room,
                    sizeof(*mover->bounces)))
        return YOLK_ERR_NO_MEMORY;
    int status = yolk_engine_register(engine, pointer, size);
    if (status == YOLK_ERR_OVERLAP) {
        /* Another call has a part of it registered: neither may see the other's registration end.
         */
        void *memory = malloc(size);
        if (memory == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a bounce buffer");
        status = yolk_engine_register(engine, memory, size);
        if (status != YOLK_OK) {
            free(memory);
            return status;
        }
        if (mover->put != NULL)
            status = engine_memory_read(engine, memory, pointer, size);
        if (status != YOLK_OK) {
            (void)!yolk_engine_unregister(engine, memory, size);
            if (status != YOLK_ERR_STUCK) /* else it may still be written */
                free(memory);
            return status;
        }
        mover->bounces[mover->bounce_count++] = (struct bounce){memory, pointer, size, move, NULL};
        *local = memory;
    }
    if (status == YOLK_OK)
        mover->borrowed[mover->borrowed_count++] = (struct borrowed){*local, size, NULL};
    return status;
}

int mover_take_skipped(struct mover *mover, uint32_t move, const struct yolk_slice *slice,
                       uint64_t size, void **out)
{
    if (!mover_grow(&mover->bounces, mover->bounce_count, &mover->bounce_room,
                    sizeof(*mover->bounces)))
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a bounce buffer");
    *out = malloc(size);
    if (*out == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a bounce buffer");
    mover->bounces[mover->bounce_count++] = (struct bounce){*out, NULL, size, move, slice};
    return YOLK_OK;
}

int mover_copy_back(struct mover *mover, uint32_t move)
{
    int status = YOLK_OK;
    for (uint32_t i = 0; mover->get != NULL && i < mover->bounce_count && status == YOLK_OK; i++)
        if (mover->bounces[i].move == move && mover->bounces[i].caller != NULL)
            status = engine_memory_write(mover->context->engine, mover->bounces[i].caller,
                                         mover->bounces[i].memory, mover->bounces[i].size);
    return status;
}

void *mover_arrived_at(const struct mover *mover, uint32_t move, const struct yolk_slice *slice)
{
    for (uint32_t i = 0; slice->ptr == YOLK_SKIP && i < mover->bounce_count; i++)
        if (mover->bounces[i].move == move && mover->bounces[i].slice == slice)
            return mover->bounces[i].memory;
    return slice->ptr;
}

void mover_give_back(struct mover *mover)
{
    struct yolk_engine *engine = mover->context->engine;
    struct store_leftovers *leftovers = mover->context->leftovers;
    /* First what is held: a piece may be held in what was registered for another one. */
    for (uint32_t i = 0; i < mover->borrowed_count; i++)
        if (mover->borrowed[i].held != NULL)
            engine_give_back(mover->borrowed[i].held);
    for (uint32_t i = 0; i < mover->borrowed_count; i++) {
        struct borrowed *borrowed = &mover->borrowed[i];
        if (borrowed->held != NULL)
            continue;
        /* BUSY: another call holds it, or a stuck request may still touch it. */
        int status = store_leftovers_end(leftovers, engine, borrowed->pointer, borrowed->size);
        for (uint32_t j = 0; j < mover->bounce_count && status != YOLK_OK; j++)
            if (mover->bounces[j].memory == borrowed->pointer)
                mover->bounces[j].memory = NULL; /* not ours to free any more */
    }
    store_leftovers_look(leftovers, engine);
    for (uint32_t i = 0; i < mover->bounce_count; i++)
        free(mover->bounces[i].memory);
    free(mover->borrowed);
    free(mover->bounces);
}
