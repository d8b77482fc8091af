/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/posix/posix.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/thread.h"
#include "transport/file/io.h"

enum { DEPTH_DEFAULT = 64, DEPTH_MAX = 256, WORKERS_DEFAULT = 16, WORKERS_MAX = 64 };

enum job_state { JOB_FREE, JOB_QUEUED, JOB_RUNS, JOB_OVER };

struct job {
    struct base_list node; /* in the endpoint's queue, else in the channel's free or finished */
    struct posix_channel *channel;
    struct file_io io;
    uint64_t transferred;
    enum job_state state;
};

struct posix_endpoint {
    struct mutex lock; /* over all below and the channels */
    struct condition work;
    struct base_list queue;
    uint32_t queued;
    uint32_t idle; /* workers that wait */
    uint32_t worker_count, worker_max;
    struct thread workers[WORKERS_MAX];
    uint32_t depth;
    bool stopped;
};

struct posix_channel {
    struct posix_endpoint *endpoint;
    struct file_target *target;
    struct base_list free, over;
    uint32_t busy;
    int wake; /* an eventfd that is readable while something is over */
    struct job jobs[];
};

static enum yolk_status posix_probe(const struct yolk_transport_options *options,
                                    struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 100000;
    out->bandwidth_bytes = UINT64_C(2) << 30;
    return YOLK_OK;
}

static uint32_t bounded(uint32_t asked, uint32_t fallback, uint32_t most)
{
    uint32_t n = asked == 0 ? fallback : asked;
    return n > most ? most : n;
}

static enum yolk_status posix_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct posix_endpoint *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    made->depth = bounded(options->queue_depth, DEPTH_DEFAULT, DEPTH_MAX);
    made->worker_max = bounded(options->workers_max, WORKERS_DEFAULT, WORKERS_MAX);
    mutex_init(&made->lock);
    condition_init(&made->work);
    base_list_init(&made->queue);
    *endpoint = made;
    return YOLK_OK;
}

/* ---- workers ---- */
/* The lock is held. */
static void job_over(struct job *job)
{
    static const uint64_t one = 1;
    job->state = JOB_OVER;
    bool first = base_list_empty(&job->channel->over); /* poll reads it with the last one */
    base_list_push_back(&job->channel->over, &job->node);
    if (first) {
        ssize_t n = write(job->channel->wake, &one, sizeof(one));
        (void)n; /* it fails only when it is readable beyond counting */
    }
}

/* One that no worker began. */
static void take_back(struct job *job, enum yolk_status ending)
{
    base_list_remove(&job->node);
    job->channel->endpoint->queued--;
    job->io.status = ending;
    file_io_finish(&job->io, &job->transferred);
    job_over(job);
}

/* The lock is held; it is given up over the work. */
static void run_job(struct posix_endpoint *endpoint, struct job *job, uint8_t *bounce)
{
    job->state = JOB_RUNS;
    base_list_remove(&job->node);
    endpoint->queued--;
    mutex_unlock(&endpoint->lock);
    job->io.bounce = bounce;
    file_io_run(&job->io);
    file_io_finish(&job->io, &job->transferred);
    mutex_lock(&endpoint->lock);
    job_over(job);
}

static void work(void *arg)
{
    struct posix_endpoint *endpoint = arg;
    void *bounce = NULL;
    if (posix_memalign(&bounce, 4096, FILE_IO_BOUNCE) != 0)
        bounce = NULL;
    mutex_lock(&endpoint->lock);
    for (;;) {
        struct base_list *node = base_list_first(&endpoint->queue);
        if (node != NULL) {
            struct job *job = BASE_CONTAINER(node, struct job, node);
            if (bounce == NULL && job->io.status == YOLK_OK)
                job->io.status = YOLK_ERR_NO_MEMORY;
            run_job(endpoint, job, bounce);
            continue;
        }
        if (endpoint->stopped)
            break;
        endpoint->idle++;
        condition_wait(&endpoint->work, &endpoint->lock);
        endpoint->idle--;
    }
    mutex_unlock(&endpoint->lock);
    free(bounce);
}

/* The lock is held. Wakes a worker, or makes one more if all have something to do. */
static enum yolk_status want_worker(struct posix_endpoint *endpoint)
{
    condition_signal(&endpoint->work);
    if (endpoint->queued < endpoint->idle || endpoint->worker_count == endpoint->worker_max)
        return YOLK_OK;
    struct thread *worker = &endpoint->workers[endpoint->worker_count];
    enum yolk_status status = (enum yolk_status)thread_start(worker, "yolk-posix", work, endpoint);
    if (status == YOLK_OK)
        endpoint->worker_count++;
    return endpoint->worker_count > 0 ? YOLK_OK : status;
}

/* Takes back what no worker began; what one works on ends by itself. */
static void end_jobs(struct posix_endpoint *endpoint)
{
    while (!base_list_empty(&endpoint->queue)) {
        struct job *job = BASE_CONTAINER(endpoint->queue.next, struct job, node);
        take_back(job, YOLK_ERR_CLOSED);
    }
}

static enum yolk_status posix_stop(void *endpoint)
{
    struct posix_endpoint *mine = endpoint;
    mutex_lock(&mine->lock);
    mine->stopped = true;
    end_jobs(mine);
    condition_broadcast(&mine->work);
    uint32_t count = mine->worker_count;
    mutex_unlock(&mine->lock);
    for (uint32_t i = 0; i < count; i++)
        thread_join(&mine->workers[i]);
    return YOLK_OK;
}

static void posix_fini(void *endpoint)
{
    struct posix_endpoint *mine = endpoint;
    condition_destroy(&mine->work);
    mutex_destroy(&mine->lock);
    free(mine);
}

static void posix_limits(void *endpoint, struct yolk_limits *out)
{
    out->slice_bytes_max = FILE_IO_MAX;
    out->depth_max = ((struct posix_endpoint *)endpoint)->depth;
    out->alignment = 1;
}

/* ---- provider ---- */
/* Workers end what they began, whichever endpoint they are of. */
static void posix_unserve(void *endpoint, void *served)
{
    (void)endpoint;
    struct file_served *mine = served;
    file_served_hide(mine);
    while (!local_is_idle(&mine->local))
        (void)poll(NULL, 0, 1);
    local_drop(&mine->local);
}

/* ---- consumer ---- */
static enum yolk_status posix_channel_open(void *endpoint, void *target, void **channel)
{
    struct posix_endpoint *mine = endpoint;
    mutex_lock(&mine->lock);
    bool stopped = mine->stopped;
    mutex_unlock(&mine->lock);
    if (stopped)
        return base_fail(YOLK_ERR_CLOSED, 0, "posix: stopped");
    struct posix_channel *made =
        base_calloc(1, sizeof(*made) + mine->depth * sizeof(made->jobs[0]));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    made->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->wake < 0) {
        free(made);
        return base_fail(YOLK_ERR_LIMIT, errno, "eventfd");
    }
    made->endpoint = mine;
    made->target = target;
    base_list_init(&made->free);
    base_list_init(&made->over);
    for (uint32_t i = 0; i < mine->depth; i++) {
        made->jobs[i].channel = made;
        base_list_push_back(&made->free, &made->jobs[i].node);
    }
    *channel = made;
    return YOLK_OK;
}

/* The lock is held. */
static enum yolk_submit submit(struct posix_channel *channel, struct yolk_io *io)
{
    struct base_list *node = base_list_first(&channel->free);
    if (node == NULL)
        return YOLK_SUBMIT_AGAIN;
    struct job *job = BASE_CONTAINER(node, struct job, node);
    io->status = want_worker(channel->endpoint);
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    io->status = file_io_plan(&job->io, channel->target, io);
    if (io->status == YOLK_OK)
        io->status = file_io_start(&job->io, NULL);
    if (io->status == YOLK_ERR_AGAIN)
        return YOLK_SUBMIT_AGAIN;
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    if (io->size == 0) {
        file_io_finish(&job->io, &io->transferred);
        return YOLK_SUBMIT_DONE;
    }
    job->state = JOB_QUEUED;
    base_list_remove(&job->node);
    base_list_push_back(&channel->endpoint->queue, &job->node);
    channel->endpoint->queued++;
    channel->busy++;
    file_io_count_depth(channel->busy);
    return YOLK_SUBMIT_QUEUED;
}

static enum yolk_submit posix_submit(void *channel, struct yolk_io *io)
{
    struct posix_channel *mine = channel;
    enum yolk_submit result = YOLK_SUBMIT_FAILED;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    mutex_lock(&mine->endpoint->lock);
    if (!mine->endpoint->stopped)
        result = submit(mine, io);
    mutex_unlock(&mine->endpoint->lock);
    return result;
}

static uint32_t posix_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct posix_channel *mine = channel;
    uint32_t n = 0;
    mutex_lock(&mine->endpoint->lock);
    for (; n < max && !base_list_empty(&mine->over); n++) {
        struct job *job = BASE_CONTAINER(mine->over.next, struct job, node);
        completions[n] = (struct yolk_completion){job->io.cookie, job->transferred, job->io.status};
        base_list_remove(&job->node);
        base_list_push_back(&mine->free, &job->node);
        job->state = JOB_FREE;
        mine->busy--;
    }
    if (n > 0 && base_list_empty(&mine->over)) {
        uint64_t ignored;
        ssize_t got = read(mine->wake, &ignored, sizeof(ignored));
        (void)got; /* was readable, and is not now */
    }
    mutex_unlock(&mine->endpoint->lock);
    return n;
}

static void posix_cancel(void *channel, uint64_t cookie)
{
    struct posix_channel *mine = channel;
    struct posix_endpoint *endpoint = mine->endpoint;
    mutex_lock(&endpoint->lock);
    for (uint32_t i = 0; i < endpoint->depth; i++) {
        struct job *job = &mine->jobs[i];
        if (job->state == JOB_QUEUED && job->io.cookie == cookie)
            take_back(job, YOLK_ERR_CANCELED);
    }
    mutex_unlock(&endpoint->lock);
}

static enum yolk_status posix_channel_close(void *channel)
{
    struct posix_channel *mine = channel;
    mutex_lock(&mine->endpoint->lock);
    bool busy = mine->busy > 0;
    mutex_unlock(&mine->endpoint->lock);
    if (busy)
        return YOLK_ERR_BUSY;
    close(mine->wake);
    free(mine);
    return YOLK_OK;
}

static uint32_t posix_wait_fds(void *channel, struct pollfd *fds, uint32_t max)
{
    if (max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = ((struct posix_channel *)channel)->wake, .events = POLLIN};
    return 1;
}

const struct yolk_transport_ops *transport_posix_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "posix",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_PEER_DEATH | YOLK_CAP_DRAM_TO_FILE,
        .probe = posix_probe,
        .init = posix_init,
        .stop = posix_stop,
        .fini = posix_fini,
        .limits = posix_limits,
        .add_buffer = file_add_buffer,
        .remove_buffer = file_remove_buffer,
        .serve = file_serve,
        .set_segment_id = file_set_segment_id,
        .fence_session = file_fence_session,
        .unserve = posix_unserve,
        .open_target = file_open_target,
        .close_target = file_close_target,
        .channel_open = posix_channel_open,
        .submit = posix_submit,
        .poll = posix_poll,
        .cancel = posix_cancel,
        .channel_close = posix_channel_close,
        .wait_fds = posix_wait_fds,
        .check_direct = file_check_direct,
    };
    return &ops;
}
