/* SPDX-License-Identifier: Apache-2.0 */
/* What of an engine's options and of a request can be judged by itself. */
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "engine/internal.h"

/* What cuFile's interface has room for, and what direct I/O is a multiple of. */
enum { GDS_DEPTH_MAX = 128, GDS_SLICE_UNIT = 4096, GDS_SLICE_MAX = 64 << 20 };

#define FLAGS_KNOWN (YOLK_REQUEST_EXACT | YOLK_REQUEST_DIRECT)

static enum yolk_status check_switch(const char *name, enum yolk_switch value)
{
    if ((unsigned)value > YOLK_SWITCH_OFF)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "option %s is %d: a switch is 0 (default), 1 (on) "
                         "or 2 (off)",
                         name, (int)value);
    return YOLK_OK;
}

static bool queue_is_set(const struct yolk_queue_options *queue)
{
    return queue->owners_max != 0 || queue->bytes_max != 0 || queue->dispatch_owners_max != 0 ||
           queue->dispatch_bytes_max != 0 || queue->staging_owners != 0 ||
           queue->staging_bytes != 0 || queue->deadline_first == YOLK_SWITCH_ON ||
           queue->promotion_slack_ns != 0;
}

enum yolk_status engine_check_options(const struct yolk_engine_options *options)
{
    const struct {
        const char *name;
        enum yolk_switch value;
    } switches[] = {
        {"queue.enable", options->queue.enable},
        {"queue.deadline_first", options->queue.deadline_first},
        {"merge", options->merge},
        {"failover_on_poll", options->failover_on_poll},
        {"strict", options->strict},
    };
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        enum yolk_status status = check_switch(switches[i].name, switches[i].value);
        if (status != YOLK_OK)
            return status;
    }
    if (options->queue.enable != YOLK_SWITCH_ON && queue_is_set(&options->queue))
        return base_fail(YOLK_ERR_INVALID, 0,
                         "option queue: a field is set, but queue.enable is not on");
    if (options->merge == YOLK_SWITCH_OFF && options->merge_bytes_max != 0)
        return base_fail(YOLK_ERR_INVALID, 0, "option merge_bytes_max is %llu, but merge is off",
                         (unsigned long long)options->merge_bytes_max);
    if (options->transport.gds_batch_depth > GDS_DEPTH_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "option gds_batch_depth is %u: must be 1 to %d",
                         options->transport.gds_batch_depth, GDS_DEPTH_MAX);
    uint64_t slice = options->transport.gds_slice_bytes;
    if (slice % GDS_SLICE_UNIT != 0 || slice > GDS_SLICE_MAX)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "option gds_slice_bytes is %llu: must be a multiple of %d, at most %d",
                         (unsigned long long)slice, GDS_SLICE_UNIT, GDS_SLICE_MAX);
    return YOLK_OK;
}

enum yolk_status engine_check_request(const struct yolk_request *request)
{
    if ((unsigned)request->priority > YOLK_PRIORITY_LOW)
        return base_fail(YOLK_ERR_INVALID, 0, "priority %d is none of 0 (high), 1 and 2 (low)",
                         (int)request->priority);
    if ((unsigned)request->intent > YOLK_INTENT_STAGING_INTERNAL)
        return base_fail(YOLK_ERR_INVALID, 0, "intent %d is none of 0 to %d", (int)request->intent,
                         YOLK_INTENT_STAGING_INTERNAL);
    if ((request->flags & ~FLAGS_KNOWN) != 0)
        return base_fail(YOLK_ERR_INVALID, 0, "flags 0x%x: those that are known are 0x%x",
                         request->flags, FLAGS_KNOWN);
    if (request->tenant != NULL && strnlen(request->tenant, MAX_TENANT_SIZE) == MAX_TENANT_SIZE)
        return base_fail(YOLK_ERR_INVALID, 0, "tenant \"%.20s...\" has more than %u bytes",
                         request->tenant, MAX_TENANT_SIZE - 1);
    return YOLK_OK;
}
