/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of one GPU that alone calls cuFile for its I/O, since a submission may block. Jobs go
 * in from any thread; what is not aligned of them goes through a buffer of the thread, the rest
 * through the window of a batch handle. A handle whose status call failed gets no new job; it is
 * kept until it is quiet and then destroyed, and so is all that its jobs refer to.
 */
#ifndef GDS_WORKER_H
#define GDS_WORKER_H

#include "transport/file/io.h"
#include "transport/gds/files.h"
#include "transport/gds/pack.h"

enum {
    GDS_WORKERS_MAX = DEVICE_GPUS_MAX,
    GDS_PIECE = 2 * FILE_SERVED_UNIT_MAX, /* of what is not aligned, at a time */
    GDS_LEAVING_MAX = 8, /* handles of one worker that are not pooled any more, but not quiet yet */
    GDS_RESTARTS_MAX = 2 /* of a job whose handle failed for another's sake */
};

struct gds_channel;
struct gds_worker;

enum gds_job_state { GDS_JOB_FREE, GDS_JOB_QUEUED, GDS_JOB_RUNS, GDS_JOB_OVER };
enum gds_job_stage { GDS_JOB_HEAD, GDS_JOB_BODY, GDS_JOB_PACKED, GDS_JOB_END };

struct gds_job {
    struct gds_request body; /* first; the aligned part, in the file */
    struct base_list node;   /* in its worker's queue or among those that run, else its channel's */
    struct base_list taken;  /* among its endpoint's jobs that are not over */
    struct gds_channel *channel;
    struct file_served *served;
    struct gds_file *file;
    const struct file_target *target;
    struct gds_batch *batch; /* that has the body */
    struct gds_pack *pack;   /* or it is a piece of this */
    bool alone;              /* it was, and that failed */
    bool held;               /* until there is room to pack it, or nothing more follows */
    bool seen;               /* as the last of a run that was whole */
    uint32_t turn;           /* of its channel's submits; over when *turns is another one */
    const _Atomic uint32_t *turns;
    uint64_t since_ns;   /* the worker has it, */
    uint32_t since_pack; /* and had begun so many packs */
    struct yolk_access_request access;
    struct yolk_ticket ticket;
    uint8_t *local;
    uint64_t cookie;
    uint64_t head, tail;      /* bytes at both ends that are not aligned */
    uint64_t body_size;       /* between them */
    uint64_t body_done;       /* before the last restart */
    bool registered;          /* cuFile has the memory registered */
    bool host;                /* it is memory of the host */
    enum gds_job_state state; /* under the endpoint's lock */
    enum gds_job_stage stage; /* the worker's */
    unsigned restarts;
    _Atomic bool canceled;
    uint64_t transferred, *bounced;
    enum yolk_status status;
    char reason[200];
};

struct gds_endpoint {
    struct gds_driver *driver;
    unsigned depth; /* of a batch handle */
    uint32_t queue; /* requests of a channel */
    uint64_t slice;
    uint64_t stop_timeout_ms;
    struct mutex lock; /* over what the workers and the channels share */
    struct condition changed;
    struct base_list taken;                      /* jobs that are not over, by `taken` */
    struct gds_worker *workers[GDS_WORKERS_MAX]; /* by GPU; made when first needed */
    _Atomic bool stopped;
};

struct gds_worker {
    struct gds_endpoint *endpoint;
    int ordinal;
    struct thread thread;
    struct condition work;
    _Atomic uint32_t given;   /* counts what it is told, for who spins instead of sleeping */
    struct base_list queue;   /* jobs that it has not begun */
    struct base_list taken;   /* the worker's alone: from there, */
    struct base_list running; /* and those that it works on, neighbours in a file side by side */
    unsigned running_count;
    /* The worker's own. */
    struct device_scope scope; /* kept open while cuFile has something: the process's end waits */
    bool inside, spins;        /* spins: there is more than one processor */
    struct gds_batch *current;
    struct gds_batch *leaving[GDS_LEAVING_MAX];
    unsigned leaving_count;
    struct gds_slab *slab;  /* made when first needed */
    bool slab_tried, waits; /* waits: small pieces, for others to follow */
    uint32_t packs;         /* that were begun */
    uint64_t moved_ns;      /* when something moved on, for the last time */
    unsigned looks;         /* at cuFile since then */
    uint8_t *piece;         /* two blocks of pinned memory for what is not aligned */
    uint8_t *bounce;        /* as file_io wants one */
    _Atomic unsigned stuck_handles, stuck_slices; /* of those that leave, for whoever stops it */
};

/* Under the endpoint's lock. The one of this GPU, made if needed. */
YOLK_MUST_USE int gds_worker_of(struct gds_endpoint *endpoint, int ordinal,
                                struct gds_worker **out);
/* Under the lock: gives it a job, or takes one back that it has not begun. */
void gds_worker_add(struct gds_worker *worker, struct gds_job *job);
void gds_worker_take_back(struct gds_job *job, enum yolk_status ending);
/* Under the lock: the job of this channel and cookie that is not over. */
struct gds_job *gds_worker_find(struct gds_endpoint *endpoint, const struct gds_channel *channel,
                                uint64_t cookie);
/* Asks all to end and waits; TIMEOUT, the text saying what is left. */
YOLK_MUST_USE int gds_workers_stop(struct gds_endpoint *endpoint);

/* In piece.c. `size` bytes at `at` of the job. AGAIN: another one works on the same block. */
YOLK_MUST_USE int gds_move_piece(struct gds_worker *worker, struct gds_job *job, uint64_t at,
                                 uint64_t size, uint64_t *moved);

/* In worker.c. Why nothing more of it is to be begun; YOLK_OK: it goes on. */
YOLK_MUST_USE enum yolk_status gds_job_ending(const struct gds_worker *worker,
                                              const struct gds_job *job);
static inline unsigned gds_slices_under_way(const struct gds_worker *worker)
{
    return worker->current != NULL ? worker->current->window.submitted : 0;
}

/* In runs.c. Those that were taken, by place; but none passes one that has waited for some packs
 * already. */
void gds_runs_sort_in(struct gds_worker *worker);
/* Begins packs of what may be packed. True: a run waits for the next round, which is to come soon.
 */
bool gds_runs_pack(struct gds_worker *worker);

/* In gds.c. Under the lock: it is over, and has ended its access. */
void gds_job_over(struct gds_job *job);

#endif
