/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/worker.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define LOG_ROOM "gds"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/clock.h"

enum {
    RUNNING_MAX = 2048, /* jobs of one worker at a time: small ones are packed */
    /* Between two looks at cuFile, which tells nothing by itself. */
    PAUSE_MIN_NS = 20000,
    PAUSE_MAX_NS = 500000,          /* while I/O is under way */
    PAUSE_QUARANTINE_NS = 20000000, /* while nothing is but what does not end */
    SLACK_NS = 1000,                /* of a pause's end: the system's usual 50 us are as long */
    /* While so little is under way that the end of each is waited for by itself. */
    FEW_SLICES = 2,
    FEW_LOOKS = 100, /* before there are pauses: counted, for who is kept from it looks no less */
    FEW_LOOK_NS = 2000,   /* between two of them */
    FEW_PAUSE_SHARE = 64, /* then: a pause's part of the time since something moved */
    PAUSE_SHARE = 8,      /* else */
    IDLE_SPIN_NS = 50000  /* for the next job, before it sleeps */
};

/* ---- handles ---- */

/* The library may have something of it: it goes when that is over. */
static void put_away(struct gds_worker *worker, struct gds_batch *batch)
{
    assert(worker->leaving_count < GDS_LEAVING_MAX);
    worker->leaving[worker->leaving_count++] = batch;
    worker->current = NULL;
}

static int want_batch(struct gds_worker *worker)
{
    struct gds_endpoint *endpoint = worker->endpoint;
    bool fit = worker->current != NULL && !worker->current->window.tainted;
    if (fit)
        return YOLK_OK;
    if (worker->leaving_count == GDS_LEAVING_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0,
                         "GPU %d: %d batch handles have failed, and cuFile may still use them",
                         worker->ordinal, GDS_LEAVING_MAX);
    if (worker->current != NULL)
        put_away(worker, worker->current);
    return gds_batch_take(endpoint->driver, endpoint->depth, endpoint->slice, &worker->current);
}

static void reap(struct gds_worker *worker)
{
    unsigned kept = 0, slices = 0;
    for (unsigned i = 0; i < worker->leaving_count; i++) {
        struct gds_batch *batch = worker->leaving[i];
        if (batch->users == 0 && gds_window_quiet(&batch->window)) {
            gds_batch_give(worker->endpoint->driver, batch);
            continue;
        }
        slices += batch->window.submitted;
        worker->leaving[kept++] = batch;
    }
    worker->leaving_count = kept;
    atomic_store(&worker->stuck_handles, kept);
    atomic_store(&worker->stuck_slices, slices);
}

/* ---- jobs ---- */

enum yolk_status gds_job_ending(const struct gds_worker *worker, const struct gds_job *job)
{
    if (gds_process_ends() || device_check(worker->endpoint->driver->device) != YOLK_OK)
        return YOLK_ERR_CLOSED;
    return atomic_load(&job->canceled)               ? YOLK_ERR_CANCELED
           : atomic_load(&worker->endpoint->stopped) ? YOLK_ERR_CLOSED
                                                     : YOLK_OK;
}

static void fail_job(struct gds_job *job, int status)
{
    if (job->status != YOLK_OK)
        return;
    job->status = (enum yolk_status)status;
    snprintf(job->reason, sizeof(job->reason), "%s", yolk_last_error());
}

static void count_job(struct gds_job *job)
{
    struct gds_file *file = job->file;
    bool write = job->access.opcode == YOLK_WRITE;
    uint64_t body = job->transferred < job->head + job->body_size
                        ? (job->transferred < job->head ? 0 : job->transferred - job->head)
                        : job->body_size;
    /* Memory that is not aligned goes through a buffer of cuFile's, wherever the file is. */
    if (!job->host && (uintptr_t)(job->local + job->head) % GDS_BLOCK != 0)
        *job->bounced += body;
    if (!job->host && !job->registered)
        atomic_fetch_add(&file->bytes_unregistered, body);
    atomic_fetch_add(write ? &file->bytes_written : &file->bytes_read, job->transferred);
    atomic_fetch_add(&file->bytes_bounced, *job->bounced);
    if (job->status == YOLK_OK)
        atomic_fetch_add(write ? &file->writes : &file->reads, 1);
}

static bool begin_body(struct gds_worker *worker, struct gds_job *job)
{
    int status = want_batch(worker);
    if (status != YOLK_OK) {
        fail_job(job, status);
        return false;
    }
    job->batch = worker->current;
    job->batch->users++;
    job->body.task.size = job->body_size - job->body_done;
    uint64_t skip = job->head + job->body_done;
    job->body.file_offset = job->served->base + job->access.offset + skip;
    job->body.buffer = job->host ? job->local + skip
                                 : gds_buffers_find(&worker->endpoint->driver->buffers,
                                                    job->local + skip, &job->body.buffer_offset);
    if (job->host)
        job->body.buffer_offset = 0;
    job->body.unregistered = job->host || !job->registered;
    gds_batch_add(job->batch, &job->body);
    job->stage = GDS_JOB_BODY;
    return true;
}

/* True: the job is over. */
static bool end_body(struct gds_worker *worker, struct gds_job *job)
{
    const struct gds_window *window = &job->batch->window;
    int status = gds_task_status(&job->body.task);
    bool failed_with_others = (window->broken || job->body.task.lost) && status == YOLK_ERR_IO;
    job->body_done += gds_task_transferred(window, &job->body.task);
    job->batch->users--;
    job->batch = NULL;
    if (failed_with_others && job->restarts < GDS_RESTARTS_MAX &&
        gds_job_ending(worker, job) == YOLK_OK) {
        job->restarts++;
        return !begin_body(worker, job);
    }
    if (status != YOLK_OK && status != YOLK_ERR_CANCELED)
        base_ignore(base_fail(status, 0, "cuFile: %s of %llu bytes at %llu of %s, %s",
                              job->access.opcode == YOLK_WRITE ? "a write" : "a read",
                              (unsigned long long)job->access.size,
                              (unsigned long long)job->access.offset, job->file->path,
                              yolk_strerror(status)));
    if (status == YOLK_ERR_CANCELED && !atomic_load(&job->canceled))
        status = YOLK_ERR_CLOSED;
    if (status != YOLK_OK)
        fail_job(job, status);
    return true;
}

/* ---- packing ---- */

static bool step_pack(struct gds_worker *worker, struct gds_pack *pack)
{
    enum gds_pack_stage before = pack->stage;
    gds_pack_step(pack);
    if (pack->stage == GDS_PACK_READY) {
        int status = gds_process_ends() ? YOLK_ERR_CLOSED : want_batch(worker);
        if (status != YOLK_OK) {
            gds_pack_fail(pack, status);
        } else {
            pack->batch = worker->current;
            pack->batch->users++;
            gds_batch_add(pack->batch, &pack->body);
            gds_pack_started(pack);
        }
    } else if (pack->stage == GDS_PACK_RUNS && gds_process_ends() &&
               !gds_task_over(&pack->body.task)) {
        gds_task_cancel(&pack->batch->window, &pack->body.task);
    } else if (pack->stage == GDS_PACK_RUNS && gds_task_over(&pack->body.task)) {
        pack->batch->users--;
        pack->batch = NULL;
        gds_pack_ended(pack, gds_task_status(&pack->body.task));
    }
    return pack->stage != before;
}

/* True: the job is over. One that failed with others is tried alone, so that what is wrong with one
 * is that one's. */
static bool end_packed(struct gds_job *job)
{
    int status = job->pack->status;
    gds_pack_leave(job->pack);
    job->pack = NULL;
    if (status != YOLK_OK) {
        job->alone = true;
        job->stage = GDS_JOB_HEAD;
        return false;
    }
    job->transferred = job->body_size;
    return true;
}

static bool move_tail(struct gds_worker *worker, struct gds_job *job, uint64_t *moved)
{
    int status = gds_move_piece(worker, job, job->head + job->body_size, job->tail, moved);
    if (status == YOLK_ERR_AGAIN)
        return false;
    if (status != YOLK_OK)
        fail_job(job, status);
    return true;
}

/* One step further. True: it is over, its memory quiet. */
static bool step(struct gds_worker *worker, struct gds_job *job)
{
    uint64_t moved = 0;
    enum yolk_status ending = gds_job_ending(worker, job);
    if (job->held && ending == YOLK_OK)
        return false;
    if (job->stage == GDS_JOB_PACKED)
        return job->pack->stage == GDS_PACK_OVER && end_packed(job);
    if (job->stage == GDS_JOB_HEAD) {
        if (ending != YOLK_OK)
            job->status = ending;
        if (job->status == YOLK_OK && job->head > 0) {
            int status = gds_move_piece(worker, job, 0, job->head, &job->transferred);
            if (status == YOLK_ERR_AGAIN)
                return false;
            if (status != YOLK_OK)
                fail_job(job, status);
        }
        if (job->status != YOLK_OK)
            return true;
        job->stage = GDS_JOB_END;
        if (job->body_size > 0 && !begin_body(worker, job))
            return true;
    }
    if (job->stage == GDS_JOB_BODY) {
        if (ending != YOLK_OK)
            gds_task_cancel(&job->batch->window, &job->body.task);
        if (!gds_task_over(&job->body.task) || !end_body(worker, job))
            return false;
        job->transferred = job->head + job->body_done;
        job->stage = GDS_JOB_END;
        if (job->status != YOLK_OK)
            return true;
    }
    if (job->tail == 0)
        return true;
    if (ending != YOLK_OK) {
        job->status = ending;
        return true;
    }
    if (!move_tail(worker, job, &moved))
        return false;
    job->transferred += moved;
    return true;
}

/* ---- the thread ---- */

static int get_memory(struct gds_worker *worker)
{
    void *bounce = NULL, *piece = NULL;
    if (worker->bounce != NULL)
        return YOLK_OK;
    int status =
        device_pinned_alloc(worker->endpoint->driver->device, worker->ordinal, GDS_PIECE, &piece);
    if (status != YOLK_OK)
        return status;
    if (posix_memalign(&bounce, 4096, FILE_IO_BOUNCE) != 0) {
        device_pinned_free(worker->endpoint->driver->device, piece, GDS_PIECE);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for what is not aligned");
    }
    worker->piece = piece;
    worker->bounce = bounce;
    return YOLK_OK;
}

static void give_memory(struct gds_worker *worker)
{
    struct gds_driver *driver = worker->endpoint->driver;
    struct device_scope scope;
    if (worker->slab != NULL && gds_enter(driver, worker->ordinal, &scope) == YOLK_OK) {
        gds_driver_remove_slab(driver, worker->slab);
        gds_slab_close(worker->slab);
        gds_leave(driver, &scope);
    }
    if (worker->piece != NULL)
        device_pinned_free(worker->endpoint->driver->device, worker->piece, GDS_PIECE);
    free(worker->bounce);
}

/* All jobs once, without the lock. Those that are over go to `over`. True: something moved on. */
static bool go_round(struct gds_worker *worker, struct base_list *over)
{
    struct gds_driver *driver = worker->endpoint->driver;
    bool moved = false;
    struct base_list *next;
    int status = get_memory(worker);
    worker->waits = gds_runs_pack(worker);
    for (unsigned i = 0; worker->slab != NULL && i < GDS_PACK_OPS; i++)
        moved = step_pack(worker, &worker->slab->ops[i]) || moved;
    for (struct base_list *node = worker->running.next; node != &worker->running; node = next) {
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, node);
        next = node->next;
        bool lost = status != YOLK_OK && job->batch == NULL && job->pack == NULL;
        if (lost)
            fail_job(job, status);
        if (!lost && !step(worker, job))
            continue;
        count_job(job);
        base_list_remove(node);
        base_list_push_back(over, node);
        moved = true;
    }
    unsigned most = driver->compatible > 0 ? GDS_SUBMIT_COMPAT_MAX : worker->endpoint->depth;
    if (gds_process_ends() || device_check(driver->device) != YOLK_OK)
        most = 0; /* nothing more goes in */
    for (unsigned i = 0; i <= worker->leaving_count; i++) {
        struct gds_batch *batch = i < worker->leaving_count ? worker->leaving[i] : worker->current;
        if (batch == NULL)
            continue;
        batch->submit_max = most;
        moved = gds_batch_pump(batch, clock_real_now_ns()) || moved;
    }
    reap(worker);
    return moved;
}

/* That a job uses, or with something under way: no other is kept outside the pool. */
static bool has_handle(const struct gds_worker *worker)
{
    bool any = worker->current != NULL;
    for (unsigned i = 0; i < worker->leaving_count; i++)
        any = any || worker->leaving[i]->users > 0 || worker->leaving[i]->window.submitted > 0;
    return any;
}

/* A round inside a scope, which stays open while there is a batch handle in use: the process's end
 * waits for those inside, and takes what is in the pool. Where the GPU has failed, no call is made
 * for it any more: what cuFile has not got fails, what it has stays. */
static bool go_round_in_scope(struct gds_worker *worker, struct base_list *over)
{
    struct gds_driver *driver = worker->endpoint->driver;
    int status = YOLK_OK;
    if (!worker->inside)
        status = gds_enter(driver, worker->ordinal, &worker->scope);
    if (status == YOLK_OK) {
        bool moved = go_round(worker, over);
        if (worker->current != NULL && worker->current->users == 0 &&
            gds_window_quiet(&worker->current->window)) {
            gds_batch_give(driver, worker->current);
            worker->current = NULL;
        }
        worker->inside = has_handle(worker);
        if (worker->inside)
            gds_tidy(driver);
        else
            gds_leave(driver, &worker->scope);
        return moved;
    }
    struct base_list *next;
    for (struct base_list *node = worker->running.next; node != &worker->running; node = next) {
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, node);
        next = node->next;
        if (job->batch != NULL || job->pack != NULL)
            continue;
        fail_job(job, status);
        base_list_remove(node);
        base_list_push_back(over, node);
    }
    return false;
}

/* Under the lock. */
static void take_jobs(struct gds_worker *worker)
{
    while (worker->running_count < RUNNING_MAX && !base_list_empty(&worker->queue)) {
        struct base_list *node = base_list_pop_front(&worker->queue);
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, node);
        job->state = GDS_JOB_RUNS;
        base_list_push_back(&worker->taken, node);
        worker->running_count++;
    }
}

/* The lock is held, but not meanwhile. Until it is told something, or the time is over. */
static void spin(struct gds_worker *worker, uint64_t ns)
{
    uint32_t given = atomic_load(&worker->given);
    uint64_t until = clock_real_now_ns() + ns;
    mutex_unlock(&worker->endpoint->lock);
    while (atomic_load(&worker->given) == given && clock_real_now_ns() < until)
        thread_relax();
    mutex_lock(&worker->endpoint->lock);
}

/* The lock is held. */
static void pause_a_moment(struct gds_worker *worker)
{
    uint64_t now = clock_real_now_ns(), since = now - worker->moved_ns, pause = since / PAUSE_SHARE;
    uint64_t most = worker->running_count > 0 ? PAUSE_MAX_NS : PAUSE_QUARANTINE_NS;
    if (worker->spins && gds_slices_under_way(worker) <= FEW_SLICES) {
        if (worker->looks++ < FEW_LOOKS) {
            spin(worker, FEW_LOOK_NS);
            return;
        }
        pause = since / FEW_PAUSE_SHARE;
    } else if (pause < PAUSE_MIN_NS) {
        pause = PAUSE_MIN_NS;
    }
    (void)condition_wait_until(&worker->work, &worker->endpoint->lock,
                               clock_after(now, pause < most ? pause : most));
}

/* The lock is held. True: there is work, or it is to end. */
static bool await_job(struct gds_worker *worker)
{
    if (worker->endpoint->stopped)
        return false;
    if (worker->spins && clock_real_now_ns() - worker->moved_ns < IDLE_SPIN_NS)
        spin(worker, IDLE_SPIN_NS);
    else
        condition_wait(&worker->work, &worker->endpoint->lock);
    return true;
}

static void work(void *self)
{
    struct gds_worker *worker = self;
    struct gds_endpoint *endpoint = worker->endpoint;
    worker->spins = thread_cpu_count() > 1;
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    mutex_lock(&endpoint->lock);
    for (;;) {
        take_jobs(worker);
        if (worker->running_count == 0 && worker->leaving_count == 0) {
            if (!await_job(worker))
                break;
            continue;
        }
        struct base_list over, *node;
        base_list_init(&over);
        mutex_unlock(&endpoint->lock);
        gds_runs_sort_in(worker);
        bool moved = go_round_in_scope(worker, &over);
        mutex_lock(&endpoint->lock);
        while ((node = base_list_pop_front(&over)) != NULL) {
            worker->running_count--;
            gds_job_over(BASE_CONTAINER(node, struct gds_job, node));
        }
        condition_broadcast(&endpoint->changed);
        if (moved || worker->waits) {
            worker->moved_ns = clock_real_now_ns();
            worker->looks = 0;
        }
        if (!moved && base_list_empty(&worker->queue))
            pause_a_moment(worker);
    }
    mutex_unlock(&endpoint->lock);
    give_memory(worker);
}

int gds_worker_of(struct gds_endpoint *endpoint, int ordinal, struct gds_worker **out)
{
    char name[16];
    *out = endpoint->workers[ordinal];
    if (*out != NULL)
        return YOLK_OK;
    struct gds_worker *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a worker");
    made->endpoint = endpoint;
    made->ordinal = ordinal;
    condition_init(&made->work);
    base_list_init(&made->queue);
    base_list_init(&made->taken);
    base_list_init(&made->running);
    snprintf(name, sizeof(name), "yolk-gds-%d", ordinal);
    int status = thread_start(&made->thread, name, work, made);
    if (status != YOLK_OK) {
        condition_destroy(&made->work);
        free(made);
        return status;
    }
    endpoint->workers[ordinal] = *out = made;
    return YOLK_OK;
}

/* Under the lock. */
static void tell(struct gds_worker *worker)
{
    atomic_fetch_add(&worker->given, 1);
    condition_signal(&worker->work);
}

void gds_worker_add(struct gds_worker *worker, struct gds_job *job)
{
    job->state = GDS_JOB_QUEUED;
    base_list_push_back(&worker->queue, &job->node);
    base_list_push_back(&worker->endpoint->taken, &job->taken);
    tell(worker);
}

struct gds_job *gds_worker_find(struct gds_endpoint *endpoint, const struct gds_channel *channel,
                                uint64_t cookie)
{
    BASE_LIST_FOREACH(node, &endpoint->taken)
    {
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, taken);
        if (job->channel == channel && job->cookie == cookie)
            return job;
    }
    return NULL;
}

void gds_worker_take_back(struct gds_job *job, enum yolk_status ending)
{
    base_list_remove(&job->node);
    job->status = ending;
    gds_job_over(job);
}

/* Under the lock. What it has not begun is over; of what it has nothing more is submitted. */
static bool ask_to_end(struct gds_worker *worker)
{
    struct base_list *node;
    while ((node = base_list_first(&worker->queue)) != NULL)
        gds_worker_take_back(BASE_CONTAINER(node, struct gds_job, node), YOLK_ERR_CLOSED);
    tell(worker);
    return worker->running_count == 0 && atomic_load(&worker->stuck_handles) == 0;
}

static void tell_left(const struct gds_worker *worker, char *text, size_t size)
{
    size_t used = strlen(text);
    if (used < size)
        snprintf(text + used, size - used,
                 "%sGPU %d: %u requests; %u slices in %u handles whose status call failed",
                 used > 0 ? "; " : "", worker->ordinal, worker->running_count,
                 atomic_load(&worker->stuck_slices), atomic_load(&worker->stuck_handles));
}

int gds_workers_stop(struct gds_endpoint *endpoint)
{
    char left[400] = "";
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), endpoint->stop_timeout_ms);
    bool over, waits = true;
    mutex_lock(&endpoint->lock);
    endpoint->stopped = true;
    do {
        over = true;
        left[0] = '\0';
        for (int i = 0; i < GDS_WORKERS_MAX; i++) {
            if (endpoint->workers[i] == NULL || ask_to_end(endpoint->workers[i]))
                continue;
            over = false;
            tell_left(endpoint->workers[i], left, sizeof(left));
        }
        if (!over)
            waits = condition_wait_until(&endpoint->changed, &endpoint->lock, deadline);
    } while (!over && waits);
    mutex_unlock(&endpoint->lock);
    if (!over)
        return base_fail(YOLK_ERR_TIMEOUT, 0, "cuFile has not ended within %llu ms: %s",
                         (unsigned long long)endpoint->stop_timeout_ms, left);
    for (int i = 0; i < GDS_WORKERS_MAX; i++) {
        struct gds_worker *worker = endpoint->workers[i];
        if (worker == NULL)
            continue;
        thread_join(&worker->thread);
        condition_destroy(&worker->work);
        free(worker);
        endpoint->workers[i] = NULL;
    }
    return YOLK_OK;
}
