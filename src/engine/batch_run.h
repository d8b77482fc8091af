/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the moving on of a batch: batch_run.c has its passes and the ends of its tasks,
 * batch_route.c its channels, batch_post.c its ios. The batch's lock is held in every function. */
#ifndef ENGINE_BATCH_RUN_H
#define ENGINE_BATCH_RUN_H

#include "engine/internal.h"

/* ---- batch_run.c ---- */

/* Those with bytes of this task. Of what other tasks have in them the rest is posted again. */
void batch_cancel_slices(struct yolk_engine *engine, struct batch *batch, uint32_t index);

/* ---- batch_route.c ---- */

static inline bool batch_channel_serves(const struct engine_channel *channel,
                                        const struct segment *segment)
{
    return channel->channel != NULL && channel->segment == segment && !channel->broken;
}

static inline uint32_t batch_accepted_by(const struct engine_task *task)
{
    return task->registration != NULL ? task->registration->accepted : UINT32_MAX;
}

static inline bool batch_is_staged(const struct engine_task *task, uint8_t transport)
{
    return (batch_accepted_by(task) & UINT32_C(1) << transport) == 0;
}

bool batch_takes_places(const struct yolk_engine *engine, const struct engine_task *task,
                        uint8_t transport);
/* False: the transport still has something of it. */
bool batch_close_channel(struct yolk_engine *engine, struct batch *batch,
                         struct engine_channel *channel);
/* Chooses a channel for the task that avoids the routes in tried. AGAIN: none is free now. */
YOLK_MUST_USE enum yolk_status batch_choose_channel(struct yolk_engine *engine, struct batch *batch,
                                                    struct engine_task *task, uint32_t tried,
                                                    uint32_t *out);
/* Where the task has none yet, or it failed: another one, or the same once more where that makes
 * sense and there is no other. */
YOLK_MUST_USE enum yolk_status batch_new_route(struct yolk_engine *engine, struct batch *batch,
                                               uint32_t index, uint32_t tried, bool again_here,
                                               uint32_t *channel);

/* ---- batch_post.c ---- */

/* True: something was posted, or ended in it. */
bool batch_post_all(struct yolk_engine *engine, struct batch *batch);

#endif
