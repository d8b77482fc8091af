/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/batch.h"

#include <string.h>

#include "base/error.h"

unsigned gds_parts_for(unsigned depth)
{
    return depth >= 4 * GDS_PARTS_MAX ? GDS_PARTS_MAX : depth >= 2 ? 2 : 1;
}

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
    batch->cufile = cufile;
    unsigned wanted = gds_parts_for(depth), first = 0;
    for (unsigned i = 0; i < wanted; i++) {
        struct gds_part *part = &batch->parts[i];
        *part = (struct gds_part){.first = first, .count = (depth - i + wanted - 1) / wanted};
        struct cufile_error error = cufile->batch_set_up(&part->handle, part->count);
        if (error.error != CUFILE_OK) {
            while (batch->part_count > 0)
                cufile->batch_destroy(batch->parts[--batch->part_count].handle);
            return cufile_fail(error, "cuFileBatchIOSetUp of %u entries", part->count);
        }
        first += part->count;
        batch->part_count++;
    }
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
    uint64_t at = request->buffer_offset + s->offset;
    *io = (struct cufile_io){.mode = CUFILE_BATCH,
                             .buffer = request->buffer + (request->unregistered ? at : 0),
                             .file_offset = (off_t)(request->file_offset + s->offset),
                             .buffer_offset = request->unregistered ? 0 : (off_t)at,
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

/* Slots go round the parts, so that few slices at a time need not wait for each other. */
static bool is_empty(const struct gds_batch *batch, unsigned number)
{
    for (unsigned i = number; i < batch->window.depth; i += batch->part_count) {
        if (batch->window.slots[i].state == GDS_SLOT_SUBMITTED)
            return false;
    }
    return true;
}

/* All of a part's that is ready, as one submission. */
static void submit_part(struct gds_batch *batch, unsigned number, uint64_t now_ns)
{
    const struct gds_part *part = &batch->parts[number];
    unsigned slots[GDS_SLOTS_MAX], count = 0;
    unsigned room = batch->window.submitted < batch->submit_max
                        ? batch->submit_max - batch->window.submitted
                        : 0;
    struct cufile_io *ios = &batch->ios[part->first];
    for (unsigned i = number; i < batch->window.depth && count < room; i += batch->part_count) {
        if (batch->window.slots[i].state != GDS_SLOT_READY)
            continue;
        prepare(batch, i, &ios[count]);
        slots[count++] = i;
    }
    if (count == 0)
        return;
    struct cufile_error error = batch->cufile->batch_submit(part->handle, count, ios, 0);
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
    if (gds_window_fill(&batch->window, slots, GDS_SLOTS_MAX) == 0)
        return;
    for (unsigned i = 0; i < batch->part_count; i++) {
        if (is_empty(batch, i))
            submit_part(batch, i, now_ns);
    }
}

static void poll_part(struct gds_batch *batch, struct gds_part *part, uint64_t now_ns)
{
    unsigned count = part->count;
    /* A failing call sets no count: what it filled in is told from the rest by the zeroes. */
    memset(batch->events, 0, count * sizeof(batch->events[0]));
    struct cufile_error error =
        batch->cufile->batch_get_status(part->handle, 0, &count, batch->events, NULL);
    if (error.error != CUFILE_OK || count > part->count)
        count = part->count;
    if (error.error == CUFILE_ERR_IO)
        part->failed = true;
    if (error.error != CUFILE_OK || count > 0)
        part->last_ns = now_ns;
    gds_window_events(&batch->window, batch->events, count, error.error, now_ns);
}

/* Of a handle whose status call failed, entries were seen that ended with the one that failed and
 * were never told. Once it has told nothing for a while it is destroyed, which waits for what the
 * system has of it, another takes its place, and what it did not tell has failed. */
static void renew_part(struct gds_batch *batch, unsigned number)
{
    struct gds_part *part = &batch->parts[number];
    unsigned slots[GDS_SLOTS_MAX], count = 0;
    batch->cufile->batch_destroy(part->handle);
    part->handle = NULL;
    part->failed = false;
    for (unsigned i = number; i < batch->window.depth; i += batch->part_count) {
        if (batch->window.slots[i].state == GDS_SLOT_SUBMITTED)
            slots[count++] = i;
    }
    struct cufile_error error = batch->cufile->batch_set_up(&part->handle, part->count);
    gds_window_lost(&batch->window, slots, count, error.error != CUFILE_OK);
}

static void settle_parts(struct gds_batch *batch, uint64_t now_ns)
{
    for (unsigned i = 0; i < batch->part_count; i++) {
        struct gds_part *part = &batch->parts[i];
        if (part->failed && is_empty(batch, i))
            part->failed = false;
        else if (part->failed && !batch->window.unknown && now_ns - part->last_ns >= GDS_QUIET_NS)
            renew_part(batch, i);
    }
}

bool gds_batch_pump(struct gds_batch *batch, uint64_t now_ns)
{
    unsigned used = batch->window.used;
    submit(batch, now_ns);
    bool moved = batch->window.used != used;
    used = batch->window.used;
    for (unsigned i = 0; i < batch->part_count; i++) {
        if (!is_empty(batch, i))
            poll_part(batch, &batch->parts[i], now_ns);
    }
    gds_window_settle(&batch->window, now_ns);
    settle_parts(batch, now_ns);
    moved = moved || batch->window.used != used;
    submit(batch, now_ns); /* what ended makes room: the disk does not wait for it to be told */
    return moved;
}

int gds_batch_close(struct gds_batch *batch)
{
    if (!gds_window_quiet(&batch->window))
        return base_fail(YOLK_ERR_BUSY, 0, "cuFile has %u slices of the batch",
                         batch->window.submitted);
    while (batch->part_count > 0) {
        struct gds_part *part = &batch->parts[--batch->part_count];
        if (part->handle != NULL)
            batch->cufile->batch_destroy(part->handle);
    }
    return YOLK_OK;
}
