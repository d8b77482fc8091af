/* SPDX-License-Identifier: Apache-2.0 */
/* What requests wait for before a transport hears of them. Those of one submit that wait for the
 * same share it; the batch's lock is held. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/device.h"
#include "engine/internal.h"

struct engine_order {
    uint64_t references;
    struct device_mark *mark; /* NULL: it has happened */
    uint64_t looked;          /* in which pass */
    enum yolk_status status;  /* AGAIN: not yet; else a failure or YOLK_OK */
};

enum yolk_status engine_order_make(struct yolk_engine *engine, const struct yolk_request *request,
                                   uint32_t gpu, struct engine_order **out)
{
    struct device *device;
    enum yolk_status status = engine_device_of(engine, &device);
    *out = NULL;
    if (status == YOLK_OK && device == NULL)
        status =
            base_fail(YOLK_ERR_INVALID, 0,
                      "the request waits for a stream or an event, but CUDA is not in use here");
    if (status != YOLK_OK)
        return status;
    struct engine_order *order = base_calloc(1, sizeof(*order));
    if (order == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a request");
    const struct device_order after = {request->after_stream, request->after_event};
    status = (enum yolk_status)device_mark_make(device, gpu == 0 ? 0 : (int)gpu - 1, &after,
                                                &order->mark);
    if (status != YOLK_OK) {
        free(order);
        return status;
    }
    order->references = 1;
    order->status = YOLK_ERR_AGAIN;
    *out = order;
    return YOLK_OK;
}

struct engine_order *engine_order_take(struct engine_order *order)
{
    order->references++;
    return order;
}

void engine_order_drop(struct engine_order *order)
{
    if (--order->references > 0)
        return;
    device_mark_free(order->mark);
    free(order);
}

enum yolk_status engine_order_look(struct engine_order *order, uint64_t pass)
{
    if (order->status != YOLK_ERR_AGAIN || order->looked == pass)
        return order->status;
    order->looked = pass;
    order->status = (enum yolk_status)device_mark_poll(order->mark);
    if (order->status != YOLK_ERR_AGAIN) {
        device_mark_free(order->mark);
        order->mark = NULL;
    }
    return order->status;
}
