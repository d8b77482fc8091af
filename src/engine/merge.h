/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are joined, and where the bytes of a joined group belong. Pure. */
#ifndef YOLK_ENGINE_MERGE_H
#define YOLK_ENGINE_MERGE_H

#include <stdbool.h>
#include <string.h>

#include <yolk/engine.h>

#include "engine/batch_state.h"

static inline bool merge_same_ticket(const struct yolk_ticket *a, const struct yolk_ticket *b)
{
    uint64_t x[2], y[2]; /* the code, as two numbers: no call */
    _Static_assert(sizeof(x) == sizeof(a->mac), "all of it");
    memcpy(x, a->mac, sizeof(x));
    memcpy(y, b->mac, sizeof(y));
    return a->offset == b->offset && a->size == b->size && a->op == b->op && x[0] == y[0] &&
           x[1] == y[1];
}

/* Whether the bytes of `request` follow those of `before`, here and there. */
bool merge_goes_on(const struct yolk_request *before, const struct yolk_request *request);
/* Whether `request` may be joined to a group of group_bytes whose last request is `before`, as far
 * as what it is tells: everything that says how and when it is to run is the same, and both
 * together are no longer than bytes_max. The caller knows that both lie in one registration, and
 * that the bytes follow each other or are moved by one that takes places. */
bool merge_is_alike(const struct yolk_request *before, const struct yolk_request *request,
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
