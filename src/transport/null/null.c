/* SPDX-License-Identifier: Apache-2.0 */
/* The transport to copy for a new one: every required hook in its place and as short as the
 * contract allows. It reports each io done without a look at memory, so what is measured over it is
 * the engine alone; data read over it is whatever was there. Nobody gets it without asking.
 *
 * What a real one adds, in the order of the table: probe says why not; serve keeps the memory and
 * the access callback; open_target reaches what its text names; submit moves the bytes, or queues
 * the io and lets poll report it. loop.c is the smallest that does so. */
#include "transport/null/null.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

#define NULL_SLICE_MAX (UINT64_C(1) << 40)

struct null_endpoint {
    _Atomic int stopped;
};

/* A target and its channels are one thing: there is no link. */
struct null_target {
    struct null_endpoint *endpoint;
};

static enum yolk_status null_probe(const struct yolk_transport_options *options,
                                   struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 0;
    out->bandwidth_bytes = UINT64_MAX;
    return YOLK_OK;
}

static enum yolk_status null_init(const struct yolk_transport_options *options, void **endpoint)
{
    (void)options;
    struct null_endpoint *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status null_stop(void *endpoint)
{
    ((struct null_endpoint *)endpoint)->stopped = 1;
    return YOLK_OK;
}

static void null_fini(void *endpoint)
{
    free(endpoint);
}

static void null_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    out->slice_bytes_max = NULL_SLICE_MAX;
    out->depth_max = UINT32_MAX;
    out->alignment = 1;
}

static enum yolk_status null_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void null_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

/* -- provider -- */

static enum yolk_status null_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                   char *text, size_t text_size)
{
    int length = snprintf(text, text_size, "%llu", (unsigned long long)serve->size);
    if (length < 0 || (size_t)length >= text_size)
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "no room for the endpoint's text");
    *served = endpoint;
    return YOLK_OK;
}

static void null_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    (void)endpoint, (void)served, (void)segment;
}

static enum yolk_status null_fence_session(void *endpoint, void *served, uint64_t session)
{
    (void)endpoint, (void)served, (void)session;
    return YOLK_OK; /* no write ever reaches the memory */
}

static void null_unserve(void *endpoint, void *served)
{
    (void)endpoint, (void)served;
}

/* -- consumer -- */

static enum yolk_status null_open_target(void *endpoint, const char *text, uint64_t segment,
                                         uint64_t size, uint64_t session, void **target)
{
    (void)text, (void)segment, (void)size, (void)session;
    struct null_target *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    made->endpoint = endpoint;
    *target = made;
    return YOLK_OK;
}

static void null_close_target(void *endpoint, void *target)
{
    (void)endpoint;
    free(target);
}

static enum yolk_status null_channel_open(void *endpoint, void *target, void **channel)
{
    if (((struct null_endpoint *)endpoint)->stopped)
        return YOLK_ERR_CLOSED;
    *channel = target;
    return YOLK_OK;
}

static enum yolk_submit null_submit(void *channel, struct yolk_io *io)
{
    if (((struct null_target *)channel)->endpoint->stopped) {
        io->status = YOLK_ERR_CLOSED;
        io->transferred = 0;
        return YOLK_SUBMIT_FAILED;
    }
    io->transferred = io->size;
    return YOLK_SUBMIT_DONE;
}

static uint32_t null_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    (void)channel, (void)completions, (void)max;
    return 0; /* nothing is ever queued */
}

static enum yolk_status null_channel_close(void *channel)
{
    (void)channel;
    return YOLK_OK;
}

const struct yolk_transport_ops *transport_null_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "null",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_PEER_DEATH | YOLK_CAP_PLACES,
        .probe = null_probe,
        .init = null_init,
        .stop = null_stop,
        .fini = null_fini,
        .limits = null_limits,
        .add_buffer = null_add_buffer,
        .remove_buffer = null_remove_buffer,
        .serve = null_serve,
        .set_segment_id = null_set_segment_id,
        .fence_session = null_fence_session,
        .unserve = null_unserve,
        .open_target = null_open_target,
        .close_target = null_close_target,
        .channel_open = null_channel_open,
        .submit = null_submit,
        .poll = null_poll,
        .channel_close = null_channel_close,
    };
    return &ops;
}
