/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of TENT's interface share. */
#ifndef COMPAT_TENT_H
#define COMPAT_TENT_H

#include <yolk/peer.h>

#include "base/config.h"
#include "platform/memory.h"
#include "platform/thread.h"
#include "tent/transfer_engine.h"

/* Memory that was given out. */
struct tent_memory {
    void *pointer;
    size_t size;
};
struct tent_engine {
    struct yolk_peer *peer;
    struct base_config config;
    uint64_t own;      /* the handle of this process, TENT_LOCAL_SEGMENT_ID to callers */
    struct mutex lock; /* over what follows */
    struct tent_memory *memories;
    size_t memory_count, memory_room;
};

/* 0; else -1, with a line for people. */
int compat_tent_answer(enum yolk_status status, const char *what);
int compat_tent_invalid(const char *what, const char *rule);
/* A transport's name, of TRANSPORT_*; NULL: UNSPEC. INVALID: not in use here. */
YOLK_MUST_USE enum yolk_status compat_tent_transport(const struct tent_engine *engine, int number,
                                                     const char **name);
/* As the peer has it. */
uint64_t compat_tent_segment(const struct tent_engine *engine, tent_segment_id_t handle);
void compat_tent_memories_free(struct tent_engine *engine);

#endif
