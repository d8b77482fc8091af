/* SPDX-License-Identifier: Apache-2.0 */
/* In what order the chunks of an EGM pool are set up and torn down, and what is still owned when a
 * step fails. Pure: it names the next step, the caller does it and tells the outcome.
 *
 * Set-up allocates every chunk, then registers and mounts each in turn; the pool is ready only when
 * the last is mounted. Any failure turns it round. Tear-down goes in reverse: unmount all,
 * unregister all, release all. A step of tear-down that fails is not tried again in the same pass,
 * and what builds on it is left (memory that a peer may still reach is not released); all else goes
 * on. What is left then stays owned, and another pass takes up exactly that: nothing that was done
 * is done again. */
#ifndef YOLK_STORE_EGM_STEPS_H
#define YOLK_STORE_EGM_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/status.h>

enum egm_step {
    EGM_STEP_NONE, /* the pass is over: see state */
    EGM_STEP_ALLOCATE,
    EGM_STEP_REGISTER,
    EGM_STEP_MOUNT,
    EGM_STEP_UNMOUNT,
    EGM_STEP_UNREGISTER,
    EGM_STEP_RELEASE,
};

enum egm_outcome {
    EGM_DONE,
    EGM_NOT_DONE, /* and nothing of it is left: set-up steps leave no more than before */
    EGM_UNKNOWN,  /* it may be there in part or as a whole: the reverse step is due */
};

enum egm_state {
    EGM_SETTING_UP,
    EGM_READY,
    EGM_TEARING_DOWN,
    EGM_LEFT,   /* a pass of tear-down left something: egm_steps_close begins another */
    EGM_CLOSED, /* nothing is owned */
};

struct egm_steps {
    uint8_t *stages; /* of each chunk: what is owned */
    bool *skipped;   /* a step of this pass failed */
    uint32_t count;
    uint32_t at; /* chunks of the present round that were looked at */
    enum egm_step round;
    enum egm_state state;
    enum yolk_status failure; /* the first of set-up, else the first of the last pass */
};

YOLK_MUST_USE enum yolk_status egm_steps_init(struct egm_steps *steps, uint32_t chunk_count);
void egm_steps_free(struct egm_steps *steps);

/* What to do next and to which chunk; the outcome is told before it is asked again. */
enum egm_step egm_steps_next(struct egm_steps *steps, uint32_t *chunk);
/* status: why not, if it is not done. */
void egm_steps_done(struct egm_steps *steps, uint32_t chunk, enum egm_outcome outcome,
                    enum yolk_status status);
/* Begins to tear down, or another pass of it. */
void egm_steps_close(struct egm_steps *steps);

#endif
