/* SPDX-License-Identifier: Apache-2.0 */
/* How staged transfers get bytes from a caller's memory into the engine's and back. */
#ifndef YOLK_ENGINE_COPY_H
#define YOLK_ENGINE_COPY_H

#include <stdint.h>

#include <yolk/status.h>

enum copy_state {
    COPY_DONE, /* all bytes are there; neither side is touched any more */
    COPY_UNDER_WAY,
    COPY_FAILED, /* job->status says why; neither side is touched any more */
};

/* One copy, at the same address from its start to its end. */
struct copy_job {
    void *scratch[2]; /* the copier's */
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
