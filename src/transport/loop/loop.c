/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest whole transport: one memcpy in the caller's thread. Where a GPU's memory is on
 * either side that GPU copies, while further ios are submitted; the flush waits for it, so that
 * nothing is ever under way between two calls of the engine. */
#include "transport/loop/loop.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/memory.h"
#include "transport/gpu/gpu.h"
#include "transport/local/local.h"
#include "transport/places.h"

#define LOOP_SLICE_MAX (UINT64_C(16) << 20) /* so that a cancel is noticed between two */

struct loop_served {
    struct local_served local; /* first */
    uintptr_t address;         /* of offset 0 */
    struct yolk_access access;
    uint32_t gpu;               /* 1 + the number of the one whose memory it is; 0: none's */
    bool addresses;             /* an offset is an address, of whatever memory */
    struct mutex lock;          /* of what follows */
    struct device_range *range; /* the memory, for a GPU's driver */
    bool registered;            /* it was tried */
};

struct loop_endpoint {
    _Atomic bool stopped;
    struct gpu_side gpu;
};

struct loop_target {
    struct loop_endpoint *endpoint;
    struct loop_served *served;
    uint64_t segment;
    uint64_t session;
};

struct loop_channel {
    struct loop_target *target;
    struct gpu_lane lane;
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
    struct loop_endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    int status = gpu_side_init(&made->gpu, options);
    if (status != YOLK_OK) {
        free(made);
        return (enum yolk_status)status;
    }
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
    struct loop_endpoint *mine = endpoint;
    gpu_side_fini(&mine->gpu);
    free(mine);
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
    struct loop_endpoint *mine = endpoint;
    if (serve->file != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it serves memory only");
    struct loop_served *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a segment");
    made->address = (uintptr_t)serve->memory;
    made->access = serve->access;
    made->addresses = serve->memory == NULL;
    mutex_init(&made->lock);
    enum yolk_status status = YOLK_OK;
    if (!made->addresses)
        status = (enum yolk_status)gpu_side_look(&mine->gpu, serve->memory, &made->gpu);
    if (status == YOLK_OK)
        status = local_serve(&table, &made->local, serve->size, text, text_size);
    if (status != YOLK_OK) {
        mutex_destroy(&made->lock);
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
    struct loop_served *mine = served;
    if (mine->range != NULL && device_range_remove(mine->range) != YOLK_OK)
        device_range_abandon(mine->range);
    mutex_destroy(&mine->lock);
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
    if (mine->served->gpu != 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it is memory of a GPU");
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
    gpu_lane_init(&made->lane, &mine->gpu);
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

static struct yolk_access_request request_of(const struct loop_target *target,
                                             const struct yolk_io *io)
{
    return (struct yolk_access_request){.segment = target->segment,
                                        .session = target->session,
                                        .offset = io->offset,
                                        .size = io->size,
                                        .ticket = &io->ticket,
                                        .opcode = io->opcode};
}

static enum yolk_status begin(struct loop_target *target, const struct yolk_io *io)
{
    const struct yolk_access *access = &target->served->access;
    const struct yolk_access_request request = request_of(target, io);
    enum yolk_status status = local_enter(&target->served->local);
    if (status != YOLK_OK)
        return status;
    if (io->opcode == YOLK_WRITE)
        local_write_begins(&target->served->local, target->session);
    status = access->begin != NULL ? access->begin(access->self, &request)
                                   : access->check(access->self, &request);
    if (status == YOLK_OK)
        return YOLK_OK;
    if (io->opcode == YOLK_WRITE)
        local_write_ends(&target->served->local, target->session);
    local_leave(&target->served->local);
    return status;
}

static void end(struct loop_target *target, const struct yolk_io *io)
{
    const struct yolk_access *access = &target->served->access;
    if (access->begin != NULL) {
        const struct yolk_access_request request = request_of(target, io);
        access->end(access->self, &request);
    }
    if (io->opcode == YOLK_WRITE)
        local_write_ends(&target->served->local, target->session);
    local_leave(&target->served->local);
}

/* NULL: it cannot be registered, or is too vague for that. */
static struct device_range *range_of(struct loop_endpoint *endpoint, struct loop_served *served)
{
    if (served->gpu != 0 || served->addresses)
        return NULL;
    struct device *device = gpu_side_device(&endpoint->gpu);
    mutex_lock(&served->lock);
    if (!served->registered && device != NULL &&
        device_range_add(device, (void *)served->address, served->local.size, false,
                         &served->range) != YOLK_OK)
        base_error_clear(); /* the driver copies by pieces then */
    served->registered = true;
    struct device_range *range = served->range;
    mutex_unlock(&served->lock);
    return range;
}

/* 1 + the number of the GPU whose memory is at the other side of the io; 0: none's. */
static enum yolk_status gpu_there(struct loop_target *target, const struct yolk_io *io,
                                  uint32_t *gpu)
{
    *gpu = target->served->gpu;
    if (!target->served->addresses || io->size == 0)
        return YOLK_OK;
    return (enum yolk_status)gpu_side_look(&target->endpoint->gpu,
                                           (const void *)(uintptr_t)io->offset, gpu);
}

/* One side is a GPU's memory. The access has begun; it ends here unless the io is QUEUED. */
static enum yolk_submit let_gpu_copy(struct loop_channel *channel, struct yolk_io *io, uint32_t gpu)
{
    struct loop_target *target = channel->target;
    const struct gpu_there there = {.memory = (void *)(target->served->address + io->offset),
                                    .gpu = gpu,
                                    .range = range_of(target->endpoint, target->served),
                                    .offset = io->offset};
    io->scratch[1] = NULL;
    enum yolk_submit answer = gpu_lane_add(&channel->lane, io, &there);
    if (answer != YOLK_SUBMIT_QUEUED)
        end(target, io);
    return answer;
}

/* The same of any memory. */
static enum yolk_submit carry_out(struct loop_channel *channel, struct yolk_io *io)
{
    struct loop_target *target = channel->target;
    uint32_t gpu;
    io->status = gpu_there(target, io, &gpu);
    if (io->status == YOLK_OK && io->size > 0 && (io->gpu != 0 || gpu != 0))
        return let_gpu_copy(channel, io, gpu);
    if (io->status == YOLK_OK) {
        move(target->served->address + io->offset, io);
        io->transferred = io->size;
    }
    end(target, io);
    return io->status == YOLK_OK ? YOLK_SUBMIT_DONE : YOLK_SUBMIT_FAILED;
}

/* One access after the other, up to the first that is refused. */
static enum yolk_submit carry_out_places(struct loop_target *target, struct yolk_io *io)
{
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place place;
    while (place_walk_on(&walk, io, &place)) {
        uint32_t gpu;
        struct yolk_io one = *io;
        one.local = place.local;
        one.offset = place.offset;
        one.size = place.size;
        io->status = begin(target, &one);
        if (io->status != YOLK_OK)
            return YOLK_SUBMIT_FAILED;
        io->status = gpu_there(target, &one, &gpu);
        if (io->status == YOLK_OK && gpu != 0)
            io->status = base_fail(YOLK_ERR_INVALID, 0, "loop: a GPU's memory in several places");
        if (io->status == YOLK_OK)
            move(target->served->address + place.offset, &one);
        end(target, &one);
        if (io->status != YOLK_OK)
            return YOLK_SUBMIT_FAILED;
        io->transferred += place.size;
    }
    return YOLK_SUBMIT_DONE;
}

static enum yolk_submit loop_submit(void *channel, struct yolk_io *io)
{
    struct loop_channel *mine = channel;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    if (atomic_load(&mine->target->endpoint->stopped))
        return YOLK_SUBMIT_FAILED;
    io->status = io->size > LOOP_SLICE_MAX ? YOLK_ERR_TOO_LARGE : YOLK_OK;
    if (io->status == YOLK_OK && io->place_count > 0)
        return carry_out_places(mine->target, io);
    if (io->status == YOLK_OK)
        io->status = begin(mine->target, io);
    return io->status == YOLK_OK ? carry_out(mine, io) : YOLK_SUBMIT_FAILED;
}

static void loop_flush(void *channel)
{
    struct loop_channel *mine = channel;
    if (mine->lane.queued == 0)
        return;
    gpu_lane_wait(&mine->lane);
    for (struct yolk_io *io = mine->lane.done; io != NULL; io = io->scratch[0]) {
        if (io->scratch[1] == NULL)
            end(mine->target, io);
        io->scratch[1] = io; /* once */
    }
}

static uint32_t loop_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct loop_channel *mine = channel;
    uint32_t count = 0;
    loop_flush(channel);
    while (count < max) {
        struct yolk_io *io = gpu_lane_take(&mine->lane);
        if (io == NULL)
            break;
        completions[count++] = (struct yolk_completion){io->cookie, io->transferred, io->status};
    }
    return count;
}

static enum yolk_status loop_channel_close(void *channel)
{
    struct loop_channel *mine = channel;
    if (mine->lane.queued > 0)
        return base_fail(YOLK_ERR_BUSY, 0, "loop: %u ios were not told of", mine->lane.queued);
    gpu_lane_fini(&mine->lane);
    free(mine);
    return YOLK_OK;
}

const struct yolk_transport_ops *transport_loop_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "loop",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_MAP | YOLK_CAP_PEER_DEATH | YOLK_CAP_DRAM_TO_DRAM | YOLK_CAP_DRAM_TO_GPU |
                YOLK_CAP_GPU_TO_DRAM | YOLK_CAP_GPU_TO_GPU | YOLK_CAP_PIECES | YOLK_CAP_PLACES,
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
        .flush = loop_flush,
    };
    return &ops;
}
