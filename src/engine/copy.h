/* SPDX-License-Identifier: Apache-2.0 */
/* How staged transfers get bytes from a caller's memory into the engine's and back. */
#ifndef YOLK_ENGINE_COPY_H
#define YOLK_ENGINE_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/status.h>
#include <yolk/transport.h>

enum copy_state {
    COPY_DONE, /* all bytes are there; neither side is touched any more */
    COPY_UNDER_WAY,
    COPY_FAILED, /* job->status says why; neither side is touched any more */
    COPY_STUCK,  /* the same, but nobody knows whether both sides are touched yet */
};

/* One copy, at the same address from its start to its end. In pieces is a GPU's memory only; the
 * side of the caller is NULL at the start then. */
struct copy_job {
    /* Set before the start. */
    uint32_t gpu; /* 1 + the number of the GPU whose memory the caller's is; 0: none's */
    bool to_gpu;
    bool pageable;                   /* the engine's side is not pinned */
    const struct yolk_piece *pieces; /* the caller's memory, from `skip` bytes of them on; */
    uint32_t piece_count;            /* 0: it is one range */
    uint64_t skip;
    /* The copier's. */
    void *to;
    const void *from;
    uint64_t size;
    uint64_t begun; /* bytes whose copies are under way, or done */
    void *scratch[2];
    enum yolk_status status;
};

/* Called by many threads at once, for one job by one at a time. Neither call waits for a copy that
 * is under way. No more are so at once than the engine has chunks of staging memory. */
struct copier {
    void *self;
    uint32_t memories; /* bits of enum policy_memory: the kinds of a caller's memory it reaches */
    enum copy_state (*start)(void *self, void *to, const void *from, uint64_t size,
                             struct copy_job *job);
    /* Of a job that is under way. */
    enum copy_state (*poll)(void *self, struct copy_job *job);
};

/* Between memories of the processor, in the caller's thread. */
const struct copier *copier_cpu(void);

#endif
