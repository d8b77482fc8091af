/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are joined, and where the bytes of a joined group belong. Pure. */
#ifndef YOLK_ENGINE_MERGE_H
#define YOLK_ENGINE_MERGE_H

#include <stdbool.h>

#include <yolk/engine.h>

#include "engine/batch_state.h"

/* Whether `request` may be joined to a group of group_bytes whose last request is `before`: it goes
 * on where that ends, here and there, everything that says how and when it is to run is the same,
 * and both together are no longer than bytes_max. The caller knows that both lie in one
 * registration. */
bool merge_joins(const struct yolk_request *before, const struct yolk_request *request,
                 uint64_t group_bytes, uint64_t bytes_max);

/* The member of the group that holds the byte at this position. */
uint32_t merge_member_at(const struct batch_state *state, uint32_t head, uint64_t position);

/* Is it over for this task: nothing of it is to be moved any more? */
static inline bool merge_is_over(const struct batch_task *task)
{
    return task->terminal || task->failure != YOLK_OK;
}

/* Of the size bytes of the group from *offset on: moves *offset past the members that are over and
 * returns how many bytes follow without one (0: none); with alone, of one member only. */
uint64_t merge_run(const struct batch_state *state, uint32_t head, uint64_t *offset, uint64_t size,
                   bool alone);
/* Counts the bytes as in place for the members that they belong to; with open_only not for those
 * that are over. */
void merge_credit(struct batch_state *state, uint32_t head, uint64_t offset, uint64_t size,
                  bool open_only);

#endif
