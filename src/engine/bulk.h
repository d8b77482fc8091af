/* SPDX-License-Identifier: Apache-2.0 */
/* For callers that move many small pieces of one buffer: what a piece need not pay for by itself.
 */
#ifndef YOLK_ENGINE_BULK_H
#define YOLK_ENGINE_BULK_H

#include <yolk/engine.h>

struct registration;

/* The registration around the range is held as it is (unregistering it is BUSY) until given back.
 * NULL: it is not inside one. *start, *end: what the hold is good for. */
struct registration *engine_hold(struct yolk_engine *engine, const void *pointer, uint64_t size,
                                 uint64_t *start, uint64_t *end);
void engine_give_back(struct registration *held);

/* The statuses of tasks [first, first + count) as they stand; makes no progress. STALE, INVALID. */
YOLK_MUST_USE enum yolk_status engine_batch_look(struct yolk_engine *engine, uint64_t batch,
                                                 uint32_t first, uint32_t count,
                                                 struct yolk_task_status *out);

#endif
