/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest whole transport: one memcpy in the caller's thread. Nothing is ever queued, so there
 * is nothing to poll, cancel or wait for; a transport that queues keeps its ios in the channel. */
#include "transport/loop/loop.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/memory.h"
#include "transport/local/local.h"

#define LOOP_SLICE_MAX (UINT64_C(16) << 20) /* so that a cancel is noticed between two */

struct loop_served {
    struct local_served local; /* first */
    uintptr_t address;         /* of offset 0 */
    struct yolk_access access;
};

struct loop_endpoint {
    _Atomic bool stopped;
};

struct loop_target {
    struct loop_endpoint *endpoint;
    struct loop_served *served;
    uint64_t segment;
    uint64_t session;
};

struct loop_channel {
    struct loop_target *target;
};

static struct local_table table = LOCAL_TABLE(table, "it is in another process");

static enum yolk_status loop_probe(const struct yolk_transport_options *options,
                                   struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 100;
    out->bandwidth_bytes = UINT64_C(10) << 30;
    return YOLK_OK;
}

static enum yolk_status loop_init(const struct yolk_transport_options *options, void **endpoint)
{
    (void)options;
    struct loop_endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status loop_stop(void *endpoint)
{
    struct loop_endpoint *mine = endpoint;
    atomic_store(&mine->stopped, true);
    return YOLK_OK;
}

static void loop_fini(void *endpoint)
{
    free(endpoint);
}

static void loop_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    out->slice_bytes_max = LOOP_SLICE_MAX;
    out->depth_max = UINT32_MAX;
    out->alignment = 1;
}

static enum yolk_status loop_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void loop_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

/* -- provider -- */

static enum yolk_status loop_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                   char *text, size_t text_size)
{
    (void)endpoint;
    if (serve->file != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it serves memory only");
    struct loop_served *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a segment");
    made->address = (uintptr_t)serve->memory;
    made->access = serve->access;
    enum yolk_status status = local_serve(&table, &made->local, serve->size, text, text_size);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    *served = made;
    return YOLK_OK;
}

static void loop_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    /* Each access asks; there is nothing lasting to end. */
    (void)endpoint, (void)served, (void)segment;
}

static enum yolk_status loop_fence_session(void *endpoint, void *served, uint64_t session)
{
    (void)endpoint;
    return local_fence(served, session);
}

static void loop_unserve(void *endpoint, void *served)
{
    (void)endpoint;
    local_hide(&table, served);
    while (!local_is_idle(served)) /* at most one memcpy a thread */
        (void)sched_yield();
    local_drop(served);
}

/* -- consumer -- */

static enum yolk_status loop_open_target(void *endpoint, const char *text, uint64_t segment,
                                         uint64_t size, uint64_t session, void **target)
{
    struct local_served *served;
    enum yolk_status status = local_find(&table, text, size, &served);
    if (status != YOLK_OK)
        return status;
    struct loop_target *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        local_drop(served);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    }
    made->served = (struct loop_served *)served;
    made->endpoint = endpoint;
    made->segment = segment;
    made->session = session;
    *target = made;
    return YOLK_OK;
}

static void loop_close_target(void *endpoint, void *target)
{
    (void)endpoint;
    struct loop_target *mine = target;
    local_drop(&mine->served->local);
    free(mine);
}

static enum yolk_status loop_target_map(void *endpoint, void *target, const void **base,
                                        uint64_t *size)
{
    (void)endpoint;
    struct loop_target *mine = target;
    struct yolk_access_request request = {
        .segment = mine->segment, .session = mine->session, .opcode = YOLK_READ, .whole_map = 1};
    if (atomic_load(&mine->served->local.gone))
        return YOLK_ERR_PEER_DEAD;
    if (mine->served->access.check == NULL)
        return YOLK_ERR_UNSUPPORTED; /* its owner allows one access at a time */
    enum yolk_status status = mine->served->access.check(mine->served->access.self, &request);
    if (status != YOLK_OK)
        return status;
    *base = (const void *)mine->served->address;
    *size = mine->served->local.size;
    return YOLK_OK;
}

static enum yolk_status loop_channel_open(void *endpoint, void *target, void **channel)
{
    struct loop_endpoint *mine = endpoint;
    if (atomic_load(&mine->stopped))
        return YOLK_ERR_CLOSED;
    struct loop_channel *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    made->target = target;
    *channel = made;
    return YOLK_OK;
}

static void move(uintptr_t address, const struct yolk_io *io)
{
    uintptr_t local = (uintptr_t)io->local;
    void *there = (void *)address;
    void *to = io->opcode == YOLK_WRITE ? there : io->local;
    const void *from = io->opcode == YOLK_WRITE ? io->local : there;
    if (io->size == 0)
        return;
    if (local < address + io->size && address < local + io->size)
        memmove(to, from, io->size); /* the owner reads its own segment onto itself */
    else
        copy_stream(to, from, io->size);
}

static enum yolk_status copy(struct loop_target *target, const struct yolk_io *io)
{
    struct loop_served *served = target->served;
    const struct yolk_access_request request = {.segment = target->segment,
                                                .session = target->session,
                                                .offset = io->offset,
                                                .size = io->size,
                                                .ticket = &io->ticket,
                                                .opcode = io->opcode};
    bool owned = served->access.begin != NULL;
    enum yolk_status status = owned ? served->access.begin(served->access.self, &request)
                                    : served->access.check(served->access.self, &request);
    if (status != YOLK_OK)
        return status;
    move(served->address + io->offset, io);
    if (owned)
        served->access.end(served->access.self, &request);
    return YOLK_OK;
}

static enum yolk_submit loop_submit(void *channel, struct yolk_io *io)
{
    struct loop_target *target = ((struct loop_channel *)channel)->target;
    struct loop_served *served = target->served;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    if (atomic_load(&target->endpoint->stopped))
        return YOLK_SUBMIT_FAILED;
    io->status = local_enter(&served->local);
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    if (io->opcode == YOLK_WRITE)
        local_write_begins(&served->local, target->session);
    io->status = io->size > LOOP_SLICE_MAX ? YOLK_ERR_TOO_LARGE : copy(target, io);
    if (io->opcode == YOLK_WRITE)
        local_write_ends(&served->local, target->session);
    local_leave(&served->local);
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    io->transferred = io->size;
    return YOLK_SUBMIT_DONE;
}

static uint32_t loop_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    (void)channel, (void)completions, (void)max;
    return 0;
}

static enum yolk_status loop_channel_close(void *channel)
{
    free(channel);
    return YOLK_OK;
}

const struct yolk_transport_ops *transport_loop_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "loop",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_MAP | YOLK_CAP_PEER_DEATH,
        .probe = loop_probe,
        .init = loop_init,
        .stop = loop_stop,
        .fini = loop_fini,
        .limits = loop_limits,
        .add_buffer = loop_add_buffer,
        .remove_buffer = loop_remove_buffer,
        .serve = loop_serve,
        .set_segment_id = loop_set_segment_id,
        .fence_session = loop_fence_session,
        .unserve = loop_unserve,
        .open_target = loop_open_target,
        .close_target = loop_close_target,
        .target_map = loop_target_map,
        .channel_open = loop_channel_open,
        .submit = loop_submit,
        .poll = loop_poll,
        .channel_close = loop_channel_close,
    };
    return &ops;
}
