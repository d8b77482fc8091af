/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/batch.h"

#include <string.h>

#include "base/error.h"

int gds_batch_open(struct gds_batch *batch, const struct cufile *cufile, unsigned depth,
                   uint64_t slice, bool direct)
{
    memset(batch, 0, sizeof(*batch));
    if (depth == 0 || depth > GDS_SLOTS_MAX || slice == 0)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "a batch of %u slices of %llu bytes: 1 to %d of at least 1", depth,
                         (unsigned long long)slice, GDS_SLOTS_MAX);
    if (cufile->missing[CUFILE_BATCHES] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "this cuFile has no function %s",
                         cufile->missing[CUFILE_BATCHES]);
    struct cufile_error error = cufile->batch_set_up(&batch->handle, depth);
    if (error.error != CUFILE_OK)
        return cufile_fail(error, "cuFileBatchIOSetUp of %u entries", depth);
    batch->cufile = cufile;
    batch->submit_max = direct ? depth : GDS_SUBMIT_COMPAT_MAX;
    gds_window_init(&batch->window, depth, slice);
    return YOLK_OK;
}

void gds_batch_add(struct gds_batch *batch, struct gds_request *request)
{
    gds_task_begin(&batch->window, &request->task);
}

static void prepare(struct gds_batch *batch, unsigned slot, struct cufile_io *io)
{
    const struct gds_slot *s = &batch->window.slots[slot];
    const struct gds_request *request = (const struct gds_request *)(const void *)s->task;
    *io = (struct cufile_io){.mode = CUFILE_BATCH,
                             .buffer = request->buffer,
                             .file_offset = (off_t)(request->file_offset + s->offset),
                             .buffer_offset = (off_t)(request->buffer_offset + s->offset),
                             .size = s->size,
                             .file = request->file,
                             .opcode = request->write ? CUFILE_WRITE : CUFILE_READ,
                             .cookie = (void *)(uintptr_t)gds_window_cookie(&batch->window, slot)};
}

/* Errors after which nothing of the submission was ever found in the library (S2, S8). */
static bool takes_nothing(int error)
{
    return error == CUFILE_ERR_INVALID_VALUE || error == CUFILE_ERR_OPEN_FLAG ||
           error == CUFILE_ERR_HANDLE_NOT_REGISTERED || error == CUFILE_ERR_BATCH_FULL ||
           error == CUFILE_ERR_BATCH_SUBMIT;
}

/* Entries of one submission stand side by side, so a run of neighbouring slots is one. */
static void submit_run(struct gds_batch *batch, const unsigned *slots, unsigned count,
                       uint64_t now_ns)
{
    for (unsigned i = 0; i < count; i++)
        prepare(batch, slots[i], &batch->ios[slots[i]]);
    struct cufile_error error =
        batch->cufile->batch_submit(batch->handle, count, &batch->ios[slots[0]], 0);
    if (error.error != CUFILE_OK && takes_nothing(error.error)) {
        gds_window_refused(&batch->window, slots, count, cufile_status(error.error));
        return;
    }
    gds_window_submitted(&batch->window, slots, count, now_ns);
    if (error.error != CUFILE_OK) /* some of it may be under way */
        gds_window_events(&batch->window, NULL, 0, error.error, now_ns);
}

static void submit(struct gds_batch *batch, uint64_t now_ns)
{
    unsigned slots[GDS_SLOTS_MAX];
    unsigned count = gds_window_fill(&batch->window, slots, GDS_SLOTS_MAX);
    for (unsigned first = 0, run; first < count; first += run) {
        unsigned room = batch->submit_max - batch->window.submitted;
        run = 1;
        while (first + run < count && run < room && slots[first + run] == slots[first] + run)
            run++;
        if (room == 0 || batch->window.submitted >= batch->submit_max)
            return;
        /* What a failure before it took back is not there any more. */
        for (unsigned i = 0; i < run; i++) {
            if (batch->window.slots[slots[first + i]].state != GDS_SLOT_READY)
                run = i > 0 ? i : 1;
        }
        if (batch->window.slots[slots[first]].state == GDS_SLOT_READY)
            submit_run(batch, slots + first, run, now_ns);
    }
}

static void poll_once(struct gds_batch *batch, uint64_t now_ns)
{
    unsigned count = batch->window.depth;
    /* A failing call sets no count: what it filled in is told from the rest by the zeroes. */
    memset(batch->events, 0, count * sizeof(batch->events[0]));
    struct cufile_error error =
        batch->cufile->batch_get_status(batch->handle, 0, &count, batch->events, NULL);
    if (error.error != CUFILE_OK || count > batch->window.depth)
        count = batch->window.depth;
    gds_window_events(&batch->window, batch->events, count, error.error, now_ns);
}

void gds_batch_pump(struct gds_batch *batch, uint64_t now_ns)
{
    submit(batch, now_ns);
    if (batch->window.submitted > 0)
        poll_once(batch, now_ns);
    gds_window_settle(&batch->window, now_ns);
}

int gds_batch_close(struct gds_batch *batch)
{
    if (!gds_window_quiet(&batch->window))
        return base_fail(YOLK_ERR_BUSY, 0, "cuFile has %u slices of the batch",
                         batch->window.submitted);
    if (batch->handle != NULL)
        batch->cufile->batch_destroy(batch->handle);
    batch->handle = NULL;
    return YOLK_OK;
}
