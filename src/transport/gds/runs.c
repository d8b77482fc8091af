/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs of a worker are one I/O: small pieces side by side in a file. */
#define LOG_ROOM "gds"
#include "base/error.h"
#include "base/log.h"
#include "platform/clock.h"
#include "transport/gds/worker.h"

enum {
    HOLD_NS = 100000000, /* of small pieces whose submitter has not said that they are all */
    PASSED_PACKS = 16    /* that a job has waited for, when none is put before it any more */
};

/* It may be a piece of a larger I/O. */
static bool may_be_packed(const struct gds_worker *worker, const struct gds_job *job)
{
    uint64_t below =
        job->registered || job->file->mode != GDS_DIRECT ? GDS_PACK_BELOW - 1 : GDS_PACK_BYTES;
    return job->stage == GDS_JOB_HEAD && !job->host && !job->alone && job->status == YOLK_OK &&
           job->head == 0 && job->tail == 0 && job->body_size > 0 && job->body_size <= below &&
           gds_job_ending(worker, job) == YOLK_OK;
}

static uint64_t place_of(const struct gds_job *job)
{
    return job->served->base + job->access.offset;
}

/* Does b belong before a: what may be one I/O lies side by side, however it came. */
static bool before(const struct gds_job *b, const struct gds_job *a)
{
    if (a->file != b->file)
        return (uintptr_t)b->file < (uintptr_t)a->file;
    if (a->access.opcode != b->access.opcode)
        return b->access.opcode < a->access.opcode;
    return place_of(b) < place_of(a);
}

/* b goes on where a ends. */
static bool follows(const struct gds_job *a, const struct gds_job *b)
{
    return a->file == b->file && a->access.opcode == b->access.opcode &&
           place_of(a) + a->body_size == place_of(b);
}

void gds_runs_sort_in(struct gds_worker *worker)
{
    struct base_list *node;
    uint64_t now_ns = base_list_empty(&worker->taken) ? 0 : clock_real_now_ns();
    while ((node = base_list_pop_front(&worker->taken)) != NULL) {
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, node);
        struct base_list *at = worker->running.prev;
        job->since_ns = now_ns;
        job->since_pack = worker->packs;
        for (; at != &worker->running; at = at->prev) {
            const struct gds_job *other = BASE_CONTAINER(at, struct gds_job, node);
            if (!before(job, other) || worker->packs - other->since_pack > PASSED_PACKS)
                break;
        }
        base_list_insert_after(at, node);
    }
}

static bool have_slab(struct gds_worker *worker)
{
    struct gds_driver *driver = worker->endpoint->driver;
    if (worker->slab == NULL && !worker->slab_tried) {
        worker->slab_tried = true;
        if (gds_slab_open(driver->device, driver->cufile, worker->ordinal, &worker->slab) !=
            YOLK_OK)
            log_warn("GPU %d: small pieces are not packed: %s", worker->ordinal, yolk_last_error());
        else
            gds_driver_add_slab(driver, worker->slab);
        base_error_clear();
    }
    return worker->slab != NULL;
}

static struct gds_job *next_of(const struct gds_worker *worker, const struct gds_job *job)
{
    return job->node.next == &worker->running
               ? NULL
               : BASE_CONTAINER(job->node.next, struct gds_job, node);
}

/* Jobs that follow each other and fit one I/O. */
struct run {
    struct gds_job *first, *last;
    bool full;  /* no other one of its last one's size fits */
    bool whole; /* those who submitted them have said that this was all for now */
};

static void look_at_run(const struct gds_worker *worker, struct run *run)
{
    struct gds_job *next = run->first;
    uint64_t size = 0;
    unsigned count = 0;
    run->whole = true;
    do {
        run->last = next;
        run->whole = run->whole && atomic_load(next->turns) != next->turn;
        size += next->body_size;
        count++;
        next = next_of(worker, next);
    } while (next != NULL && may_be_packed(worker, next) && follows(run->last, next) &&
             count < GDS_PACK_PIECES_MAX && size + next->body_size <= GDS_PACK_BYTES);
    run->full = count == GDS_PACK_PIECES_MAX || size + run->last->body_size > GDS_PACK_BYTES;
}

/* More of it may come: it is not whole, for a while; or is, but what is under way may be what its
 * next part waits for, for a round. */
static bool may_grow(const struct gds_worker *worker, const struct run *run)
{
    if (run->full)
        return false;
    if (!run->whole)
        return clock_real_now_ns() - run->first->since_ns < HOLD_NS;
    bool seen = run->last->seen;
    run->last->seen = true;
    return !seen && gds_slices_under_way(worker) > 0;
}

/* The run of jobs that begins here, packed, or left to wait; the last of it is returned. */
static struct gds_job *pack_run(struct gds_worker *worker, struct gds_job *first, bool *waits)
{
    struct run run = {.first = first};
    struct gds_pack *pack = NULL;
    look_at_run(worker, &run);
    bool grows = may_grow(worker, &run);
    bool worth = run.last != first || (!first->registered && first->file->mode == GDS_DIRECT);
    if (!have_slab(worker) || !(worth || grows))
        return first;
    *waits = *waits || grows;
    if (!grows)
        pack = gds_pack_begin(worker->slab, first->file->handle, place_of(first),
                              first->access.opcode == YOLK_WRITE);
    worker->packs += pack != NULL;
    for (struct gds_job *job = first;; job = next_of(worker, job)) {
        job->held = pack == NULL;
        if (pack != NULL) {
            gds_pack_add(pack, job->local, job->body_size);
            job->pack = pack;
            job->stage = GDS_JOB_PACKED;
        }
        if (job == run.last)
            break;
    }
    if (pack != NULL)
        gds_pack_go(pack);
    return run.last;
}

bool gds_runs_pack(struct gds_worker *worker)
{
    bool waits = false;
    for (struct base_list *node = worker->running.next; node != &worker->running;
         node = node->next) {
        struct gds_job *job = BASE_CONTAINER(node, struct gds_job, node);
        job->held = false;
        if (may_be_packed(worker, job))
            node = &pack_run(worker, job, &waits)->node;
    }
    return waits;
}
