/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/disk.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/thread.h"

enum { THREADS = 8, STAGINGS = 16, BLOCK = 4096 };

struct tcp_disk {
    struct mutex lock;
    struct condition work; /* a job came, a staging buffer came back, or it ends */
    struct base_list queue;
    uint8_t *free[STAGINGS];
    uint32_t free_count, made_count;
    bool stopped;
    struct thread threads[THREADS];
};

/* The lock is held. NULL: all are taken, or there is no memory for one more. */
static uint8_t *take_staging(struct tcp_disk *disk)
{
    if (disk->free_count > 0)
        return disk->free[--disk->free_count];
    void *made = NULL;
    if (disk->made_count == STAGINGS || posix_memalign(&made, BLOCK, FILE_IO_MAX) != 0)
        return NULL;
    disk->made_count++;
    return made;
}

void tcp_disk_give_back(struct tcp_disk *disk, uint8_t *staging)
{
    if (staging == NULL)
        return;
    mutex_lock(&disk->lock);
    disk->free[disk->free_count++] = staging;
    condition_signal(&disk->work);
    mutex_unlock(&disk->lock);
}

/* An aligned place in the staging buffer would be too much to ask of it: what the head is cut by
 * goes through the thread's own bounce buffer, as in any other io. */
static void run_job(struct tcp_disk_job *job, uint8_t *bounce)
{
    struct file_io io;
    uint64_t transferred = 0;
    job->io.local = job->staging;
    job->status = file_io_plan(&io, &job->target, &job->io);
    if (job->status == YOLK_OK)
        job->status = file_io_start(&io, bounce);
    if (job->status != YOLK_OK)
        return;
    file_io_run(&io);
    file_io_finish(&io, &transferred);
    job->status = io.status;
}

static void job_over(struct tcp_disk *disk, struct tcp_disk_job *job)
{
    if (job->status != YOLK_OK) {
        tcp_disk_give_back(disk, job->staging);
        job->staging = NULL;
    }
    job->done(job);
}

/* The lock is held. The next job, with its staging buffer; NULL: it ends. */
static struct tcp_disk_job *next_job(struct tcp_disk *disk)
{
    for (;;) {
        struct base_list *node = base_list_first(&disk->queue);
        struct tcp_disk_job *job =
            node != NULL ? BASE_CONTAINER(node, struct tcp_disk_job, node) : NULL;
        if (job != NULL) {
            job->staging = disk->stopped ? NULL : take_staging(disk);
            if (job->staging != NULL || disk->stopped) {
                base_list_remove(&job->node);
                return job;
            }
        } else if (disk->stopped) {
            return NULL;
        }
        condition_wait(&disk->work, &disk->lock);
    }
}

static void disk_main(void *arg)
{
    struct tcp_disk *disk = arg;
    void *bounce = NULL;
    if (posix_memalign(&bounce, BLOCK, FILE_IO_BOUNCE) != 0)
        bounce = NULL;
    mutex_lock(&disk->lock);
    for (struct tcp_disk_job *job; (job = next_job(disk)) != NULL;) {
        job->status = disk->stopped ? YOLK_ERR_CLOSED : YOLK_ERR_NO_MEMORY;
        mutex_unlock(&disk->lock);
        if (job->staging != NULL && bounce != NULL)
            run_job(job, bounce);
        job_over(disk, job);
        mutex_lock(&disk->lock);
    }
    mutex_unlock(&disk->lock);
    free(bounce);
}

enum yolk_status tcp_disk_create(struct tcp_disk **out)
{
    struct tcp_disk *disk = base_calloc(1, sizeof(*disk));
    if (disk == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: no memory to serve files");
    mutex_init(&disk->lock);
    condition_init(&disk->work);
    base_list_init(&disk->queue);
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; i < THREADS && status == YOLK_OK; i++)
        status =
            (enum yolk_status)thread_start(&disk->threads[i], "yolk-tcp-disk", disk_main, disk);
    if (status != YOLK_OK) {
        tcp_disk_stop(disk);
        tcp_disk_destroy(disk);
        return status;
    }
    *out = disk;
    return YOLK_OK;
}

enum yolk_status tcp_disk_submit(struct tcp_disk *disk, struct tcp_disk_job *job)
{
    mutex_lock(&disk->lock);
    enum yolk_status status = disk->stopped ? YOLK_ERR_CLOSED : YOLK_OK;
    if (status == YOLK_OK) {
        base_list_push_back(&disk->queue, &job->node);
        condition_signal(&disk->work);
    }
    mutex_unlock(&disk->lock);
    return status;
}

void tcp_disk_stop(struct tcp_disk *disk)
{
    mutex_lock(&disk->lock);
    disk->stopped = true;
    condition_broadcast(&disk->work);
    mutex_unlock(&disk->lock);
    for (uint32_t i = 0; i < THREADS; i++)
        thread_join(&disk->threads[i]);
}

void tcp_disk_destroy(struct tcp_disk *disk)
{
    for (uint32_t i = 0; i < disk->free_count; i++)
        free(disk->free[i]);
    condition_destroy(&disk->work);
    mutex_destroy(&disk->lock);
    free(disk);
}
