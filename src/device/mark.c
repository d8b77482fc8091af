/* SPDX-License-Identifier: Apache-2.0 */
/* Points of a caller's streams that the processor waits for. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/internal.h"

struct device_mark {
    struct gpu *gpu;
    cuda_event event;  /* ours, recorded in the caller's stream; NULL: none */
    cuda_event theirs; /* NULL: none */
};

int device_mark_make(struct device *device, int ordinal, const struct device_order *after,
                     struct device_mark **out)
{
    int status;
    struct device_scope scope;
    *out = NULL;
    struct gpu *gpu = device_gpu_of(device, ordinal, &status);
    if (gpu == NULL)
        return status;
    struct device_mark *mark = base_calloc(1, sizeof(*mark));
    if (mark == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a point of a stream");
    mark->gpu = gpu;
    mark->theirs = after->event;
    status = gpu_enter(gpu, &scope);
    if (status == YOLK_OK) {
        if (after->stream != NULL)
            status = stream_mark(gpu, after->stream, &mark->event);
        device_leave(device, &scope);
    }
    if (status == YOLK_OK)
        *out = mark;
    else
        free(mark);
    return status;
}

static int ask(struct gpu *gpu, cuda_event *event, bool own)
{
    const struct cuda *cuda = &gpu->device->cuda;
    if (*event == NULL)
        return YOLK_OK;
    cuda_result error = cuda->event_query(*event);
    if (error == CUDA_ERR_NOT_READY)
        return YOLK_ERR_AGAIN;
    if (error != CUDA_OK)
        return gpu_fail(gpu, error, "what a request waits for");
    if (own)
        (void)cuda->event_destroy(*event);
    *event = NULL;
    return YOLK_OK;
}

int device_mark_poll(struct device_mark *mark)
{
    struct device_scope scope;
    int status = gpu_enter(mark->gpu, &scope);
    if (status != YOLK_OK)
        return status;
    status = ask(mark->gpu, &mark->event, true);
    if (status == YOLK_OK)
        status = ask(mark->gpu, &mark->theirs, false);
    device_leave(mark->gpu->device, &scope);
    return status;
}

void device_mark_free(struct device_mark *mark)
{
    struct device_scope scope;
    if (mark == NULL)
        return;
    if (mark->event != NULL && scope_to_free(mark->gpu->device, &scope)) {
        (void)mark->gpu->device->cuda.event_destroy(mark->event); /* goes when it has happened */
        device_leave(mark->gpu->device, &scope);
    }
    free(mark);
}
