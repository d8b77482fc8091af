/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring for files that this process serves. A channel gets a ring that nobody uses, or a new
 * one; beyond so many, or when the kernel gives no more, it shares the one with the fewest users.
 * Rings are kept for later channels. All rings of the process stand in one list, because who ends
 * serving a file must quiet the rings of every endpoint. */
#include "transport/uring/uring.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "transport/uring/ring.h"

enum { RINGS_MAX = 32, DEPTH_DEFAULT = 64 };

struct uring_endpoint {
    uint32_t depth;
    uint32_t ring_count; /* guarded as the list is */
    _Atomic bool stopped;
};

struct uring_channel {
    struct uring_endpoint *endpoint;
    struct file_target *target;
    struct ring *ring;
    struct ring_user user;
};

static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct base_list rings = {&rings, &rings};

static uint32_t depth_of(const struct yolk_transport_options *options)
{
    uint32_t depth = options->queue_depth == 0 ? DEPTH_DEFAULT : options->queue_depth;
    return depth > RING_DEPTH_MAX ? RING_DEPTH_MAX : depth;
}

static enum yolk_status uring_probe(const struct yolk_transport_options *options,
                                    struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 50000;
    out->bandwidth_bytes = UINT64_C(3) << 30;
    struct ring *ring;
    enum yolk_status status = ring_create(8, &ring);
    if (status == YOLK_OK) {
        if (!ring_reads_and_writes(ring))
            status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "this kernel's rings are too simple");
        ring_destroy(ring);
    }
    if (status == YOLK_OK)
        return YOLK_OK;
    (void)snprintf(out->reason, sizeof(out->reason), "%s", yolk_last_error());
    return status;
}

static enum yolk_status uring_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct uring_endpoint *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    made->depth = depth_of(options);
    *endpoint = made;
    return YOLK_OK;
}

/* ---- rings ---- */
/* The one with the fewest users; NULL: there is none. */
static struct ring *find_ring(const struct uring_endpoint *endpoint)
{
    struct ring *best = NULL;
    BASE_LIST_FOREACH(node, &rings)
    {
        struct ring *ring = BASE_CONTAINER(node, struct ring, node);
        if (ring->endpoint == endpoint && (best == NULL || ring->users < best->users))
            best = ring;
    }
    return best;
}

static enum yolk_status take_ring(struct uring_endpoint *endpoint, struct ring **out)
{
    enum yolk_status status = YOLK_OK;
    struct ring *made = NULL;
    pthread_mutex_lock(&rings_lock);
    struct ring *ring = find_ring(endpoint);
    if (ring == NULL || (ring->users > 0 && endpoint->ring_count < RINGS_MAX))
        status = ring_create(endpoint->depth, &made);
    if (made != NULL) {
        ring = made;
        ring->endpoint = endpoint;
        endpoint->ring_count++;
        base_list_push_back(&rings, &ring->node);
    }
    if (ring != NULL)
        ring->users++;
    pthread_mutex_unlock(&rings_lock);
    *out = ring;
    return ring != NULL ? YOLK_OK : status;
}

static void drain_all(const struct uring_endpoint *endpoint, const struct file_served *served,
                      enum yolk_status ending)
{
    pthread_mutex_lock(&rings_lock);
    BASE_LIST_FOREACH(node, &rings)
    {
        struct ring *ring = BASE_CONTAINER(node, struct ring, node);
        if (endpoint != NULL && ring->endpoint != endpoint)
            continue;
        mutex_lock(&ring->lock);
        ring_drain(ring, served, ending);
        mutex_unlock(&ring->lock);
    }
    pthread_mutex_unlock(&rings_lock);
}

static enum yolk_status uring_stop(void *endpoint)
{
    struct uring_endpoint *mine = endpoint;
    atomic_store(&mine->stopped, true);
    drain_all(mine, NULL, YOLK_ERR_CLOSED);
    return YOLK_OK;
}

static void uring_fini(void *endpoint)
{
    struct uring_endpoint *mine = endpoint;
    pthread_mutex_lock(&rings_lock);
    for (struct ring *ring = find_ring(mine); ring != NULL; ring = find_ring(mine)) {
        base_list_remove(&ring->node);
        ring_destroy(ring);
    }
    pthread_mutex_unlock(&rings_lock);
    free(mine);
}

static void uring_limits(void *endpoint, struct yolk_limits *out)
{
    out->slice_bytes_max = FILE_IO_MAX;
    out->depth_max = ((struct uring_endpoint *)endpoint)->depth;
    out->alignment = 1;
}

/* ---- provider ---- */
static void uring_unserve(void *endpoint, void *served)
{
    (void)endpoint;
    struct file_served *mine = served;
    file_served_hide(mine);
    drain_all(NULL, mine, YOLK_ERR_PEER_DEAD);
    while (!local_is_idle(&mine->local)) /* asking just now, to be refused */
        (void)sched_yield();
    local_drop(&mine->local);
}

/* ---- consumer ---- */
static enum yolk_status uring_channel_open(void *endpoint, void *target, void **channel)
{
    struct uring_endpoint *mine = endpoint;
    if (atomic_load(&mine->stopped))
        return YOLK_ERR_CLOSED;
    struct uring_channel *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    made->endpoint = mine;
    made->target = target;
    enum yolk_status status = take_ring(mine, &made->ring);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    ring_user_init(&made->user);
    mutex_lock(&made->ring->lock);
    ring_use(made->ring, made->target->served);
    mutex_unlock(&made->ring->lock);
    *channel = made;
    return YOLK_OK;
}

static enum yolk_submit uring_submit(void *channel, struct yolk_io *io)
{
    struct uring_channel *mine = channel;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    if (atomic_load(&mine->endpoint->stopped))
        return YOLK_SUBMIT_FAILED;
    mutex_lock(&mine->ring->lock);
    enum yolk_submit result = ring_submit(mine->ring, &mine->user, mine->target, io);
    mutex_unlock(&mine->ring->lock);
    return result;
}

static void uring_flush(void *channel)
{
    struct ring *ring = ((struct uring_channel *)channel)->ring;
    mutex_lock(&ring->lock);
    ring_flush(ring);
    mutex_unlock(&ring->lock);
}

static uint32_t uring_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct uring_channel *mine = channel;
    mutex_lock(&mine->ring->lock);
    ring_reap(mine->ring);
    uint32_t n = ring_take_done(mine->ring, &mine->user, completions, max);
    mutex_unlock(&mine->ring->lock);
    return n;
}

static void uring_cancel(void *channel, uint64_t cookie)
{
    struct uring_channel *mine = channel;
    mutex_lock(&mine->ring->lock);
    ring_cancel(mine->ring, &mine->user, cookie);
    mutex_unlock(&mine->ring->lock);
}

static enum yolk_status uring_channel_close(void *channel)
{
    struct uring_channel *mine = channel;
    mutex_lock(&mine->ring->lock);
    bool busy = mine->user.busy > 0;
    mutex_unlock(&mine->ring->lock);
    if (busy)
        return YOLK_ERR_BUSY;
    pthread_mutex_lock(&rings_lock);
    mine->ring->users--;
    pthread_mutex_unlock(&rings_lock);
    free(mine);
    return YOLK_OK;
}

static uint32_t uring_wait_fds(void *channel, struct pollfd *fds, uint32_t max)
{
    struct uring_channel *mine = channel;
    pthread_mutex_lock(&rings_lock);
    bool shared = mine->ring->users > 1;
    pthread_mutex_unlock(&rings_lock);
    mutex_lock(&mine->ring->lock);
    bool posted = ring_is_posted(mine->ring, &mine->user);
    mutex_unlock(&mine->ring->lock);
    /* The descriptor announces only what the kernel has, and another user may take that in. */
    if (shared || !posted || max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = mine->ring->uring.ring_fd, .events = POLLIN};
    return 1;
}

const struct yolk_transport_ops *transport_uring_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "uring",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_PEER_DEATH | YOLK_CAP_DRAM_TO_FILE,
        .probe = uring_probe,
        .init = uring_init,
        .stop = uring_stop,
        .fini = uring_fini,
        .limits = uring_limits,
        .add_buffer = file_add_buffer,
        .remove_buffer = file_remove_buffer,
        .serve = file_serve,
        .set_segment_id = file_set_segment_id,
        .fence_session = file_fence_session,
        .unserve = uring_unserve,
        .open_target = file_open_target,
        .close_target = file_close_target,
        .channel_open = uring_channel_open,
        .submit = uring_submit,
        .poll = uring_poll,
        .cancel = uring_cancel,
        .channel_close = uring_channel_close,
        .wait_fds = uring_wait_fds,
        .check_direct = file_check_direct,
        .flush = uring_flush,
    };
    return &ops;
}
