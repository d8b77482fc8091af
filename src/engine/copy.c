/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/copy.h"

#include "engine/policy.h"
#include "platform/memory.h"

static enum copy_state cpu_start(void *self, void *to, const void *from, uint64_t size,
                                 struct copy_job *job)
{
    (void)self;
    copy_stream(to, from, size);
    job->status = YOLK_OK;
    return COPY_DONE;
}

static enum copy_state cpu_poll(void *self, struct copy_job *job)
{
    (void)self, (void)job;
    return COPY_DONE; /* none is ever under way */
}

const struct copier *copier_cpu(void)
{
    static const struct copier cpu = {NULL, UINT32_C(1) << POLICY_CPU, cpu_start, cpu_poll};
    return &cpu;
}
