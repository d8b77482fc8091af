/* SPDX-License-Identifier: Apache-2.0 */
/* What is not aligned of a job, through a buffer of its thread and the system's own calls. */
#include <assert.h>

#include "platform/clock.h"
#include "transport/gds/worker.h"

static int copy_piece(struct gds_worker *worker, void *to, const void *from, size_t size,
                      enum device_direction direction)
{
    struct device *device = worker->endpoint->driver->device;
    struct device_transfer *transfer;
    const struct device_copy one = {to, from, size};
    const struct device_copy_options options = {.direction = direction};
    long taken;
    while ((taken = device_copy(device, worker->ordinal, &one, 1, &options, &transfer)) ==
           YOLK_ERR_AGAIN)
        thread_relax();
    if (taken != 1)
        return taken < 0 ? (int)taken : YOLK_ERR_SYSTEM;
    int status;
    do { /* its memory is not quiet before */
        status = device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 1000));
    } while (status == YOLK_ERR_TIMEOUT);
    int freed = device_transfer_free(transfer);
    return status != YOLK_OK ? status : freed;
}

int gds_move_piece(struct gds_worker *worker, struct gds_job *job, uint64_t at, uint64_t size,
                   uint64_t *moved)
{
    struct file_io io;
    struct yolk_io asked = {.opcode = job->access.opcode,
                            .local = job->host ? job->local + at : worker->piece,
                            .offset = job->access.offset + at,
                            .size = size};
    bool write = job->access.opcode == YOLK_WRITE;
    assert(job->host || size <= GDS_PIECE);
    *moved = 0;
    int status = YOLK_OK;
    if (write && !job->host)
        status = copy_piece(worker, worker->piece, job->local + at, size, DEVICE_FROM_GPU);
    if (status == YOLK_OK)
        status = file_io_plan(&io, job->target, &asked);
    if (status != YOLK_OK)
        return status;
    io.allowed = true;
    status = file_io_start(&io, worker->bounce);
    if (status != YOLK_OK)
        return status;
    file_io_run(&io);
    file_io_finish(&io, moved);
    status = io.status;
    if (!write && !job->host && *moved > 0) {
        int copied = copy_piece(worker, job->local + at, worker->piece, *moved, DEVICE_TO_GPU);
        if (copied != YOLK_OK) {
            *moved = 0;
            status = copied;
        }
    }
    *job->bounced += *moved;
    return status;
}
