/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this process by cuFile: the hooks. What is served is what the other file transports
 * serve, under a text of its own; the work is done by workers (worker.h). */
#include "transport/gds/gds.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOG_ROOM "gds"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/clock.h"
#include "transport/gds/worker.h"

enum {
    QUEUE_DEFAULT = 1024, /* small ones are packed: 512 of 32 KiB are one of cuFile's */
    QUEUE_MAX = 1024,
    STOP_TIMEOUT_DEFAULT_MS = 5000,
    GUESSED_LATENCY_NS = 200000,
    SLICES_OF_IO = 4 /* so that of a large request only so many ends are bounced */
};

/* What a registered range is: this transport's key. */
struct gds_range {
    void *pointer;
    int ordinal; /* of the GPU; -1: memory of the host */
    bool registered;
};

struct gds_target {
    struct file_target *inner;
    struct gds_file *file;
};

struct gds_channel {
    struct gds_endpoint *endpoint;
    struct gds_target *target;
    struct base_list free, over;
    uint32_t busy;
    _Atomic uint32_t turns; /* runs of submits, each ended by a flush */
    int wake;               /* an eventfd that is readable while something is over */
};

/* ---- the endpoint ---- */

static enum yolk_status gds_probe(const struct yolk_transport_options *options,
                                  struct yolk_probe *out)
{
    out->latency_ns = GUESSED_LATENCY_NS;
    out->bandwidth_bytes = UINT64_C(6) << 30;
    if (options->gds_enable)
        return YOLK_OK;
    out->off = 1;
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it is off; transports/gds/enable turns it on");
}

/* What the library takes at most; what was asked for beyond it is told once. */
static void set_depth(struct gds_endpoint *endpoint, uint32_t asked)
{
    unsigned most = endpoint->driver->properties.batch_max;
    if (most == 0 || most > GDS_SLOTS_MAX)
        most = GDS_SLOTS_MAX;
    endpoint->depth = asked != 0 ? asked : GDS_DEPTH_DEFAULT;
    if (endpoint->depth <= most)
        return;
    if (asked != 0)
        log_warn("io_batch_depth is %u: cuFile takes batches of at most %u here, so it is that",
                 asked, most);
    endpoint->depth = most;
}

static void set_slice(struct gds_endpoint *endpoint, uint64_t asked)
{
    uint64_t most = (uint64_t)endpoint->driver->properties.direct_io_kib_max << 10;
    endpoint->slice = asked != 0 ? asked : GDS_SLICE_DEFAULT;
    if (most >= GDS_BLOCK && endpoint->slice > most)
        endpoint->slice = most / GDS_BLOCK * GDS_BLOCK;
}

static enum yolk_status gds_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct gds_endpoint *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    int status = gds_driver_acquire(options, &made->driver);
    if (status != YOLK_OK) {
        free(made);
        return (enum yolk_status)status;
    }
    set_depth(made, options->gds_batch_depth);
    set_slice(made, options->gds_slice_bytes);
    made->stop_timeout_ms =
        options->stop_timeout_ms != 0 ? options->stop_timeout_ms : STOP_TIMEOUT_DEFAULT_MS;
    made->queue = options->queue_depth == 0          ? QUEUE_DEFAULT
                  : options->queue_depth > QUEUE_MAX ? QUEUE_MAX
                                                     : options->queue_depth;
    mutex_init(&made->lock);
    condition_init(&made->changed);
    base_list_init(&made->taken);
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status gds_stop(void *endpoint)
{
    return (enum yolk_status)gds_workers_stop(endpoint);
}

static void gds_fini(void *endpoint)
{
    struct gds_endpoint *mine = endpoint;
    gds_driver_release(mine->driver);
    condition_destroy(&mine->changed);
    mutex_destroy(&mine->lock);
    free(mine);
}

static void gds_limits(void *endpoint, struct yolk_limits *out)
{
    const struct gds_endpoint *mine = endpoint;
    out->slice_bytes_max = SLICES_OF_IO * mine->slice;
    out->depth_max = mine->queue;
    out->alignment = 1;
}

/* ---- memory ---- */

struct registering {
    struct gds_driver *driver;
    struct gds_range *range;
    uint64_t size;
};

static int register_in_thread(void *self)
{
    struct registering *r = self;
    return gds_buffers_add(&r->driver->buffers, r->range->pointer, r->size, &r->range->registered);
}

static int remove_in_thread(void *self)
{
    struct registering *r = self;
    gds_buffers_remove(&r->driver->buffers, r->range->pointer);
    return YOLK_OK;
}

static enum yolk_status gds_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    struct gds_endpoint *mine = endpoint;
    struct device_memory memory;
    int status = device_query(mine->driver->device, pointer, &memory);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    struct gds_range *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a range");
    made->pointer = pointer;
    made->ordinal = memory.kind == DEVICE_GPU ? memory.ordinal : -1;
    if (made->ordinal >= 0) {
        struct registering call = {mine->driver, made, size};
        status = gds_driver_call(mine->driver, register_in_thread, &call);
        if (status == YOLK_OK && !made->registered)
            log_info("GPU memory goes through cuFile's own buffers: %s", yolk_last_error());
    }
    if (status != YOLK_OK) {
        free(made);
        return (enum yolk_status)status;
    }
    *key = made;
    return YOLK_OK;
}

static void gds_remove_buffer(void *endpoint, void *key)
{
    struct gds_endpoint *mine = endpoint;
    struct gds_range *range = key;
    struct registering call = {mine->driver, range, 0};
    if (range->ordinal >= 0)
        base_ignore(gds_driver_call(mine->driver, remove_in_thread, &call));
    free(range);
}

/* ---- provider ---- */

static enum yolk_status gds_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                  char *text, size_t text_size)
{
    struct gds_endpoint *mine = endpoint;
    struct gds_file *file;
    struct file_served *made;
    enum yolk_status status = file_served_make(serve, &made, text, text_size);
    if (status != YOLK_OK)
        return status;
    status = (enum yolk_status)gds_file_open(mine->driver, serve->file, made, &file);
    if (status != YOLK_OK) {
        log_warn("a file is served without gds: %s", yolk_last_error());
        file_served_hide(made);
        local_drop(&made->local);
        return status;
    }
    log_info("%s: %s: %s", file->path, gds_mode_name(file->mode), file->reason);
    *served = made;
    return YOLK_OK;
}

/* What is under way ends by itself, whichever endpoint it is of. What does not within the limit
 * keeps the file, and so a lock on it. */
static void gds_unserve(void *endpoint, void *served)
{
    struct gds_endpoint *mine = endpoint;
    struct file_served *file_served = served;
    struct gds_file *file = gds_file_find(mine->driver, served);
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), mine->stop_timeout_ms);
    file_served_hide(file_served);
    while (!local_is_idle(&file_served->local) && clock_real_now_ns() < deadline)
        (void)poll(NULL, 0, 1);
    if (!local_is_idle(&file_served->local)) {
        log_error("%s: cuFile may still write to it: it is not closed before that is over",
                  file->path);
        gds_file_release(file);
        return;
    }
    gds_file_release(file); /* found just now, and made by serve */
    gds_file_release(file);
    local_drop(&file_served->local);
}

/* ---- consumer ---- */

static enum yolk_status gds_open_target(void *endpoint, const char *text, uint64_t segment,
                                        uint64_t size, uint64_t session, void **target)
{
    struct gds_endpoint *mine = endpoint;
    void *inner;
    enum yolk_status status = file_open_target(NULL, text, segment, size, session, &inner);
    if (status != YOLK_OK)
        return status;
    struct gds_target *made = base_calloc(1, sizeof(*made));
    struct gds_file *file = gds_file_find(mine->driver, ((struct file_target *)inner)->served);
    if (made == NULL || file == NULL) {
        if (file != NULL)
            gds_file_release(file);
        file_close_target(NULL, inner);
        free(made);
        return file == NULL ? base_fail(YOLK_ERR_STALE, 0, "it is served no more")
                            : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    }
    made->inner = inner;
    made->file = file;
    *target = made;
    return YOLK_OK;
}

static void gds_close_target(void *endpoint, void *target)
{
    struct gds_target *mine = target;
    (void)endpoint;
    gds_file_release(mine->file);
    file_close_target(NULL, mine->inner);
    free(mine);
}

static enum yolk_status gds_check_direct(void *endpoint, void *target, const void *local,
                                         uint64_t offset, uint64_t size)
{
    struct gds_endpoint *mine = endpoint;
    const struct gds_target *t = target;
    const struct gds_file *file = t->file;
    uint64_t from = t->inner->served->base + offset;
    if (file->mode != GDS_DIRECT)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "cuFile is in compatibility mode for %s: %s",
                         file->path, file->reason);
    if (!gds_buffers_are_registered(&mine->driver->buffers, local))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "%p is not memory that cuFile has registered: its bytes go through a "
                         "buffer",
                         local);
    if (from % GDS_BLOCK != 0 || size % GDS_BLOCK != 0 || (uintptr_t)local % GDS_BLOCK != 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "%p, %llu at %llu of the file: its bytes go through a bounce buffer, "
                         "since not all are multiples of %d",
                         local, (unsigned long long)size, (unsigned long long)from, GDS_BLOCK);
    return YOLK_OK;
}

/* ---- channels ---- */

static enum yolk_status gds_channel_open(void *endpoint, void *target, void **channel)
{
    struct gds_endpoint *mine = endpoint;
    if (atomic_load(&mine->stopped))
        return base_fail(YOLK_ERR_CLOSED, 0, "gds: stopped");
    struct gds_channel *made = base_calloc(1, sizeof(*made));
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
    *channel = made;
    return YOLK_OK;
}

static enum yolk_status gds_channel_close(void *channel)
{
    struct gds_channel *mine = channel;
    struct base_list *node;
    mutex_lock(&mine->endpoint->lock);
    bool busy = mine->busy > 0;
    mutex_unlock(&mine->endpoint->lock);
    if (busy)
        return YOLK_ERR_BUSY;
    while ((node = base_list_pop_front(&mine->free)) != NULL)
        free(BASE_CONTAINER(node, struct gds_job, node));
    close(mine->wake);
    free(mine);
    return YOLK_OK;
}

/* The two ends that are no whole blocks; what has no whole block is head as a whole. */
static void cut_ends(struct gds_job *job, uint64_t from, uint64_t size)
{
    const struct file_alignment *a = &job->served->alignment;
    uint64_t unit = a->offset > a->memory ? a->offset : a->memory;
    if (unit < GDS_BLOCK)
        unit = GDS_BLOCK;
    uint64_t first = (from + unit - 1) / unit * unit, last = (from + size) / unit * unit;
    job->head = first >= last ? size : first - from;
    job->tail = first >= last ? 0 : from + size - last;
    job->body_size = size - job->head - job->tail;
}

static void fill_in(struct gds_job *job, struct gds_channel *channel, struct yolk_io *io)
{
    const struct file_target *target = channel->target->inner;
    const struct gds_range *range = io->key;
    *job = (struct gds_job){
        .channel = channel,
        .served = target->served,
        .file = channel->target->file,
        .target = target,
        .body = {.file = channel->target->file->handle, .write = io->opcode == YOLK_WRITE},
        .access = {.segment = target->segment,
                   .session = target->session,
                   .offset = io->offset,
                   .size = io->size,
                   .opcode = io->opcode},
        .ticket = io->ticket,
        .local = io->local,
        .cookie = io->cookie,
        .host = range == NULL || range->ordinal < 0,
        .registered = range != NULL && range->registered,
        .bounced = &io->bounced,
        .turn = atomic_load(&channel->turns),
        .turns = &channel->turns,
    };
    base_list_init(&job->node);
    base_list_init(&job->taken);
    job->access.ticket = &job->ticket;
    cut_ends(job, target->served->base + io->offset, io->size);
}

static enum yolk_status refuse(const struct gds_job *job, uint64_t size)
{
    const struct gds_file *file = job->file;
    if (size > SLICES_OF_IO * job->channel->endpoint->slice)
        return YOLK_ERR_TOO_LARGE;
    if (job->body.write && !file->writable)
        return base_fail(YOLK_ERR_ACCESS, 0, "%s is open for reading", file->path);
    if (job->host && job->body_size > 0 && file->host_reason[0] != '\0')
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "cuFile does not move memory of the host here: %s", file->host_reason);
    return YOLK_OK;
}

static enum yolk_status begin_access(struct gds_job *job)
{
    enum yolk_status status = local_enter(&job->served->local);
    if (status != YOLK_OK)
        return status;
    status = file_served_begin(job->served, &job->access);
    if (status != YOLK_OK)
        local_leave(&job->served->local);
    return status == YOLK_ERR_AGAIN ? YOLK_ERR_BUSY : status;
}

static void end_access(struct gds_job *job)
{
    file_served_end(job->served, &job->access);
    local_leave(&job->served->local);
}

/* The lock is held. A job that is free; NULL: no memory. */
static struct gds_job *take_job(struct gds_channel *channel)
{
    struct base_list *node = base_list_pop_front(&channel->free);
    if (node != NULL)
        return BASE_CONTAINER(node, struct gds_job, node);
    struct gds_job *made = base_calloc(1, sizeof(*made));
    if (made != NULL)
        base_list_init(&made->node);
    return made;
}

/* The lock is held. */
static enum yolk_submit submit(struct gds_channel *channel, struct yolk_io *io)
{
    struct gds_worker *worker;
    struct gds_job *job = take_job(channel);
    const struct gds_range *range = io->key;
    int ordinal = range != NULL && range->ordinal >= 0 ? range->ordinal : 0;
    if (job == NULL) {
        io->status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a request");
        return YOLK_SUBMIT_FAILED;
    }
    fill_in(job, channel, io);
    io->status = refuse(job, io->size);
    if (io->status == YOLK_OK)
        io->status = (enum yolk_status)gds_worker_of(channel->endpoint, ordinal, &worker);
    if (io->status == YOLK_OK)
        io->status = begin_access(job);
    if (io->status != YOLK_OK || io->size == 0) {
        base_list_push_back(&channel->free, &job->node);
        if (io->status != YOLK_OK)
            return YOLK_SUBMIT_FAILED;
        end_access(job);
        return YOLK_SUBMIT_DONE;
    }
    gds_worker_add(worker, job);
    channel->busy++;
    file_io_count_depth(channel->busy);
    return YOLK_SUBMIT_QUEUED;
}

static enum yolk_submit gds_submit(void *channel, struct yolk_io *io)
{
    struct gds_channel *mine = channel;
    struct gds_endpoint *endpoint = mine->endpoint;
    enum yolk_submit result = YOLK_SUBMIT_FAILED;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    mutex_lock(&endpoint->lock);
    if (!atomic_load(&endpoint->stopped))
        result = mine->busy < endpoint->queue ? submit(mine, io) : YOLK_SUBMIT_AGAIN;
    mutex_unlock(&endpoint->lock);
    return result;
}

/* Nothing more follows for now: what is held to be packed goes on, for its worker looks. */
static void gds_flush(void *channel)
{
    atomic_fetch_add(&((struct gds_channel *)channel)->turns, 1);
}

void gds_job_over(struct gds_job *job)
{
    static const uint64_t one = 1;
    end_access(job);
    job->state = GDS_JOB_OVER;
    base_list_remove(&job->taken);
    bool first = base_list_empty(&job->channel->over); /* poll reads it with the last one */
    base_list_push_back(&job->channel->over, &job->node);
    if (first) {
        ssize_t n = write(job->channel->wake, &one, sizeof(one));
        (void)n; /* it fails only when it is readable beyond counting */
    }
}

static uint32_t gds_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct gds_channel *mine = channel;
    uint32_t n = 0;
    mutex_lock(&mine->endpoint->lock);
    for (; n < max && !base_list_empty(&mine->over); n++) {
        struct base_list *node = base_list_pop_front(&mine->over);
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, node);
        completions[n] = (struct yolk_completion){job->cookie, job->transferred, job->status};
        if (job->reason[0] != '\0')
            base_ignore(base_fail(job->status, 0, "%s", job->reason));
        base_list_push_back(&mine->free, node);
        job->state = GDS_JOB_FREE;
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

/* What cuFile has of it ends by itself, for its own cancel stops nothing. */
static void gds_cancel(void *channel, uint64_t cookie)
{
    struct gds_channel *mine = channel;
    mutex_lock(&mine->endpoint->lock);
    struct gds_job *job = gds_worker_find(mine->endpoint, mine, cookie);
    if (job != NULL && job->state == GDS_JOB_QUEUED)
        gds_worker_take_back(job, YOLK_ERR_CANCELED);
    else if (job != NULL)
        atomic_store(&job->canceled, true);
    mutex_unlock(&mine->endpoint->lock);
}

static uint32_t gds_wait_fds(void *channel, struct pollfd *fds, uint32_t max)
{
    if (max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = ((struct gds_channel *)channel)->wake, .events = POLLIN};
    return 1;
}

static size_t gds_files_of(void *endpoint, struct yolk_file_figures *out, size_t room)
{
    (void)endpoint; /* what is registered is the process's */
    return gds_files(out, room);
}

const struct yolk_transport_ops *transport_gds_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "gds",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_PEER_DEATH | YOLK_CAP_DRAM_TO_FILE | YOLK_CAP_GPU_TO_FILE,
        .probe = gds_probe,
        .init = gds_init,
        .stop = gds_stop,
        .fini = gds_fini,
        .limits = gds_limits,
        .add_buffer = gds_add_buffer,
        .remove_buffer = gds_remove_buffer,
        .serve = gds_serve,
        .set_segment_id = file_set_segment_id,
        .fence_session = file_fence_session,
        .unserve = gds_unserve,
        .open_target = gds_open_target,
        .close_target = gds_close_target,
        .channel_open = gds_channel_open,
        .submit = gds_submit,
        .poll = gds_poll,
        .cancel = gds_cancel,
        .flush = gds_flush,
        .channel_close = gds_channel_close,
        .wait_fds = gds_wait_fds,
        .check_direct = gds_check_direct,
        .files = gds_files_of,
    };
    return &ops;
}
