/* SPDX-License-Identifier: Apache-2.0 */
#include "store/egm_steps.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum stage { STAGE_NOTHING, STAGE_ALLOCATED, STAGE_REGISTERED, STAGE_MOUNTED };

enum yolk_status egm_steps_init(struct egm_steps *steps, uint32_t chunk_count)
{
    memset(steps, 0, sizeof(*steps));
    steps->stages = base_calloc(chunk_count, sizeof(*steps->stages));
    steps->skipped = base_calloc(chunk_count, sizeof(*steps->skipped));
    if (steps->stages == NULL || steps->skipped == NULL) {
        egm_steps_free(steps);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the steps of %u chunks",
                         chunk_count);
    }
    steps->count = chunk_count;
    steps->round = EGM_STEP_ALLOCATE;
    return YOLK_OK;
}

void egm_steps_free(struct egm_steps *steps)
{
    free(steps->stages);
    free(steps->skipped);
    steps->stages = NULL;
    steps->skipped = NULL;
}

static void tear_down(struct egm_steps *steps)
{
    memset(steps->skipped, 0, steps->count * sizeof(*steps->skipped));
    steps->state = EGM_TEARING_DOWN;
    steps->round = EGM_STEP_UNMOUNT;
    steps->at = 0;
}

void egm_steps_close(struct egm_steps *steps)
{
    if (steps->state == EGM_CLOSED || steps->state == EGM_TEARING_DOWN)
        return;
    steps->failure = YOLK_OK;
    tear_down(steps);
}

/* Chunks are registered and mounted one after the other, so that round has two steps a chunk. */
static enum egm_step next_of_setup(struct egm_steps *steps, uint32_t *chunk)
{
    if (steps->round == EGM_STEP_ALLOCATE && steps->at == steps->count) {
        steps->round = EGM_STEP_REGISTER;
        steps->at = 0;
    }
    if (steps->at == steps->count) {
        steps->state = EGM_READY;
        return EGM_STEP_NONE;
    }
    *chunk = steps->at;
    return steps->round == EGM_STEP_REGISTER && steps->stages[*chunk] == STAGE_REGISTERED
               ? EGM_STEP_MOUNT
               : steps->round;
}

static enum stage stage_before(enum egm_step reverse)
{
    return reverse == EGM_STEP_UNMOUNT      ? STAGE_MOUNTED
           : reverse == EGM_STEP_UNREGISTER ? STAGE_REGISTERED
                                            : STAGE_ALLOCATED;
}

static bool anything_left(const struct egm_steps *steps)
{
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->stages[i] != STAGE_NOTHING)
            return true;
    return false;
}

static enum egm_step next_of_tear_down(struct egm_steps *steps, uint32_t *chunk)
{
    for (; steps->round <= EGM_STEP_RELEASE; steps->round++, steps->at = 0)
        for (; steps->at < steps->count; steps->at++) {
            *chunk = steps->count - 1 - steps->at;
            if (!steps->skipped[*chunk] && steps->stages[*chunk] == stage_before(steps->round))
                return steps->round;
        }
    steps->state = anything_left(steps) ? EGM_LEFT : EGM_CLOSED;
    return EGM_STEP_NONE;
}

enum egm_step egm_steps_next(struct egm_steps *steps, uint32_t *chunk)
{
    switch (steps->state) {
    case EGM_SETTING_UP:
        return next_of_setup(steps, chunk);
    case EGM_TEARING_DOWN:
        return next_of_tear_down(steps, chunk);
    default:
        return EGM_STEP_NONE;
    }
}

static void setup_done(struct egm_steps *steps, uint32_t chunk, enum egm_outcome outcome,
                       enum yolk_status status)
{
    if (outcome != EGM_NOT_DONE)
        steps->stages[chunk]++;
    if (outcome != EGM_DONE) {
        steps->failure = status;
        tear_down(steps);
        return;
    }
    if (steps->round == EGM_STEP_ALLOCATE || steps->stages[chunk] == STAGE_MOUNTED)
        steps->at++;
}

void egm_steps_done(struct egm_steps *steps, uint32_t chunk, enum egm_outcome outcome,
                    enum yolk_status status)
{
    if (steps->state == EGM_SETTING_UP) {
        setup_done(steps, chunk, outcome, status);
        return;
    }
    if (outcome == EGM_DONE) {
        steps->stages[chunk]--;
        return;
    }
    steps->skipped[chunk] = true;
    if (steps->failure == YOLK_OK)
        steps->failure = status;
}
