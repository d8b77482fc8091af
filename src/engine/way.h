/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU and a file: by the transport that takes the memory, or through the engine's
 * pinned memory and another one. Where the first copies through the host's memory too (cuFile in
 * compatibility mode), both are allowed, and neither hint, policy nor contract says which, the one
 * that is measured faster is taken; see faster.h.
 */
#ifndef YOLK_ENGINE_WAY_H
#define YOLK_ENGINE_WAY_H

#include "engine/internal.h"

enum { WAY_OWN, WAY_STAGED }; /* in struct faster */

/* transport: the first that takes the task's memory; it may become the one of the other way. */
void way_choose(struct yolk_engine *engine, struct engine_task *task, uint64_t now_ns,
                uint8_t *transport);
/* The group of this head is over and quiet. */
void way_end(struct yolk_engine *engine, struct batch *batch, uint32_t head);
/* For people: a line on the way of requests like this, if there are two. transport: as above. */
void way_tell(struct yolk_engine *engine, const struct engine_task *task, uint8_t transport,
              struct base_buf *out);

struct way_look {
    char device[256];
    bool write, large;
    struct faster faster;
};
/* Of the files that had a choice; how many are in `out`. */
size_t way_looks(struct yolk_engine *engine, struct way_look *out, size_t room);

#endif
