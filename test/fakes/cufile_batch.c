/* SPDX-License-Identifier: Apache-2.0 */
/* Batches, statistics and parameters of the fake cuFile: what came with CUDA 12 and later. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cufile.h"

#define ENTER(name)                                                                                \
    do {                                                                                           \
        int entered_ = cufile_enter(name);                                                         \
        if (entered_ != CUFILE_OK)                                                                 \
            return cufile_leave(entered_);                                                         \
    } while (0)

FAKE_API struct cufile_error cuFileBatchIOSetUp(cufile_batch *batch, unsigned count);
FAKE_API struct cufile_error cuFileBatchIOSetUp(cufile_batch *batch, unsigned count)
{
    ENTER("cuFileBatchIOSetUp");
    if (count == 0 || count > cufile.batch_max)
        return cufile_leave(CUFILE_ERR_INVALID_VALUE); /* S3 */
    struct batch *made = calloc(1, sizeof(*made));
    made->size = count;
    made->last = &made->first;
    made->next = cufile.batches;
    cufile.batches = made;
    *batch = made;
    return cufile_leave(CUFILE_OK);
}

FAKE_API void cuFileBatchIODestroy(cufile_batch batch);
FAKE_API void cuFileBatchIODestroy(cufile_batch handle)
{
    struct batch *batch = handle;
    (void)cufile_enter("cuFileBatchIODestroy");
    for (struct batch **b = &cufile.batches; *b != NULL; b = &(*b)->next) {
        if (*b != batch)
            continue;
        *b = batch->next;
        break;
    }
    while (batch->first != NULL) {
        struct entry *entry = batch->first;
        batch->first = entry->next;
        free(entry);
    }
    free(batch);
    cufile_unlock();
}

static void put(struct batch *batch, struct cufile_io *io, struct fault fault)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    entry->copy = *io;
    entry->given = io;
    entry->delay = cufile.delay;
    entry->fault = fault;
    *batch->last = entry;
    batch->last = &entry->next;
    batch->count++;
}

FAKE_API struct cufile_error cuFileBatchIOSubmit(cufile_batch handle, unsigned count,
                                                 struct cufile_io *ios, unsigned flags);
FAKE_API struct cufile_error cuFileBatchIOSubmit(cufile_batch handle, unsigned count,
                                                 struct cufile_io *ios, unsigned flags)
{
    struct batch *batch = handle;
    (void)flags;
    ENTER("cuFileBatchIOSubmit");
    if (count > batch->size - batch->count)
        return cufile_leave(CUFILE_ERR_BATCH_SUBMIT); /* S2 */
    for (unsigned i = 0; i < count; i++) {
        if (ios[i].mode != CUFILE_BATCH || cufile_file(ios[i].file) == NULL)
            return cufile_leave(CUFILE_ERR_INVALID_VALUE);
        if (ios[i].opcode == CUFILE_WRITE && !cufile_writable(cufile_file(ios[i].file))) /* S8 */
            return cufile_leave(cufile.version < 1200 ? CUFILE_ERR_BATCH_SUBMIT
                                                      : CUFILE_ERR_OPEN_FLAG);
    }
    cufile.submissions++;
    if (count > cufile.largest)
        cufile.largest = count;
    for (unsigned i = 0; i < count; i++) {
        /* Reported: the bounce pool has fewer buffers than the batch entries, and nobody frees one.
         */
        while (!cufile.direct && i >= cufile.pool)
            pthread_cond_wait(&cufile.moved, &cufile.lock);
        struct fault fault = cufile_draw_fault();
        if (fault.kind == FAULT_REFUSE)
            return cufile_leave((int)fault.value); /* F2 */
        if (ios[i].size > 0)                       /* S9 */
            put(batch, &ios[i], fault);
    }
    return cufile_leave(CUFILE_OK);
}

static ssize_t move(const struct entry *entry, size_t size)
{
    const struct cufile_io *io = cufile.late ? entry->given : &entry->copy;
    return cufile_move(cufile_file(io->file), (uintptr_t)io->buffer, size, io->file_offset,
                       io->buffer_offset, io->opcode == CUFILE_WRITE);
}

void cufile_run_late(void)
{
    while (cufile.late_entries != NULL) {
        struct entry *entry = cufile.late_entries;
        cufile.late_entries = entry->next;
        (void)move(entry, entry->copy.size);
        free(entry);
    }
}

static void add_extra(struct batch *batch, uintptr_t cookie, int status)
{
    if (batch->extra_count < sizeof(batch->extra) / sizeof(batch->extra[0]))
        batch->extra[batch->extra_count++] = (struct cufile_event){(void *)cookie, status, 4096};
}

/* Runs it. True: *event tells its end. */
static bool finish(struct batch *batch, struct entry *entry, struct cufile_event *event, int *error)
{
    const struct cufile_io *io = cufile.late ? entry->given : &entry->copy;
    const struct fault *fault = &entry->fault;
    ssize_t moved = 0;
    bool told = true;
    *event = (struct cufile_event){io->cookie, CUFILE_COMPLETE, 0};
    if (entry->canceled && cufile.cancel == 1) {
        event->status = CUFILE_CANCELED;
    } else if (fault->kind == FAULT_STATUS || fault->kind == FAULT_LATE) {
        event->status = (int)fault->value;
        moved = fault->result;
    } else if (fault->kind == FAULT_ERROR) {
        moved = -1;
    } else {
        moved = move(entry, fault->kind == FAULT_SHORT ? (size_t)fault->value : io->size);
        told = !entry->canceled; /* S4 */
    }
    event->result = (size_t)moved;
    if (moved < 0 && fault->kind != FAULT_STATUS && fault->kind != FAULT_LATE) { /* S7 */
        *error = CUFILE_ERR_IO;
        event->status = CUFILE_FAILED;
        told = told && cufile.version >= 1200;
    }
    if (fault->kind == FAULT_TWICE)
        add_extra(batch, (uintptr_t)io->cookie, CUFILE_PENDING);
    if (fault->kind == FAULT_STRANGER)
        add_extra(batch, 987654, CUFILE_COMPLETE);
    if (fault->kind == FAULT_LATE) {
        entry->next = cufile.late_entries;
        cufile.late_entries = entry;
    } else {
        free(entry);
    }
    return told;
}

/* The entry to be told next, taken out; NULL: none yet. */
static struct entry *take(struct batch *batch)
{
    struct entry **chosen = NULL;
    for (struct entry **e = &batch->first; *e != NULL; e = &(*e)->next) {
        if ((*e)->delay > 0 && !(*e)->canceled)
            continue;
        chosen = e;
        if (!cufile.lifo)
            break;
    }
    if (chosen == NULL || (cufile.hold && !(*chosen)->canceled))
        return NULL;
    struct entry *entry = *chosen;
    *chosen = entry->next;
    if (batch->last == &entry->next)
        batch->last = chosen;
    batch->count--;
    return entry;
}

FAKE_API struct cufile_error cuFileBatchIOGetStatus(cufile_batch handle, unsigned min,
                                                    unsigned *count, struct cufile_event *events,
                                                    struct timespec *timeout);
FAKE_API struct cufile_error cuFileBatchIOGetStatus(cufile_batch handle, unsigned min,
                                                    unsigned *count, struct cufile_event *events,
                                                    struct timespec *timeout)
{
    struct batch *batch = handle;
    unsigned max = *count, found = 0;
    int error = CUFILE_OK;
    struct entry *entry;
    (void)min;
    (void)timeout;
    ENTER("cuFileBatchIOGetStatus");
    if (max > cufile.sparse)
        max = cufile.sparse;
    while (batch->extra_count > 0 && found < max)
        events[found++] = batch->extra[--batch->extra_count];
    while (found < max && error == CUFILE_OK && (entry = take(batch)) != NULL) {
        struct cufile_event event;
        bool loses = entry->fault.kind == FAULT_ERROR && entry->fault.value == 1;
        if (finish(batch, entry, &event, &error))
            events[found++] = event;
        while (loses && (entry = take(batch)) != NULL) { /* S15 */
            int ignored;
            (void)finish(batch, entry, &event, &ignored);
        }
    }
    for (struct entry *e = batch->first; e != NULL; e = e->next)
        e->delay -= e->delay > 0;
    if (error == CUFILE_OK)
        *count = found;
    return cufile_leave(error);
}

FAKE_API struct cufile_error cuFileBatchIOCancel(cufile_batch handle);
FAKE_API struct cufile_error cuFileBatchIOCancel(cufile_batch handle)
{
    struct batch *batch = handle;
    ENTER("cuFileBatchIOCancel");
    if (cufile.cancel == 2)
        return cufile_leave(CUFILE_ERR_BATCH_CANCEL);
    for (struct entry *e = batch->first; e != NULL; e = e->next)
        e->canceled = true;
    return cufile_leave(CUFILE_OK);
}

/* ---- statistics, parameters, version ---- */

FAKE_API struct cufile_error cuFileSetStatsLevel(int level);
FAKE_API struct cufile_error cuFileSetStatsLevel(int level)
{
    ENTER("cuFileSetStatsLevel");
    return cufile_leave(level >= 0 && level <= 3 ? CUFILE_OK : CUFILE_ERR_INVALID_VALUE);
}

FAKE_API struct cufile_error cuFileStatsStart(void);
FAKE_API struct cufile_error cuFileStatsStart(void)
{
    ENTER("cuFileStatsStart");
    return cufile_leave(CUFILE_OK);
}

/* As the headers of 1.15 and 1.20 have it: 512 or 624 bytes of level 1, 512 of level 2. */
FAKE_API struct cufile_error cuFileGetStatsL3(void *out);
FAKE_API struct cufile_error cuFileGetStatsL3(void *out)
{
    size_t before = cufile.version >= 1200 ? 1136 : 1024;
    uint32_t gpus = 1;
    ENTER("cuFileGetStatsL3");
    memset(out, 0, before + 8); /* seen: and of the GPUs no more than there are */
    memcpy((char *)out + before, &gpus, sizeof(gpus));
    memcpy((char *)out + before + 8, &cufile.statistics, sizeof(cufile.statistics));
    return cufile_leave(CUFILE_OK);
}

FAKE_API struct cufile_error cuFileGetParameterSizeT(int parameter, size_t *value);
FAKE_API struct cufile_error cuFileGetParameterSizeT(int parameter, size_t *value)
{
    ENTER("cuFileGetParameterSizeT");
    *value = parameter == CUFILE_PARAMETER_BATCH_MAX ? cufile.batch_max : 0;
    return cufile_leave(CUFILE_OK);
}

FAKE_API struct cufile_error cuFileSetParameterSizeT(int parameter, size_t value);
FAKE_API struct cufile_error cuFileSetParameterSizeT(int parameter, size_t value)
{
    (void)parameter;
    (void)value;
    ENTER("cuFileSetParameterSizeT");
    return cufile_leave(cufile.open ? CUFILE_ERR_DRIVER_ALREADY_OPEN : CUFILE_OK);
}

FAKE_API struct cufile_error cuFileGetParameterBool(int parameter, bool *value);
FAKE_API struct cufile_error cuFileGetParameterBool(int parameter, bool *value)
{
    ENTER("cuFileGetParameterBool");
    *value = parameter == CUFILE_PARAMETER_ALLOW_COMPAT;
    return cufile_leave(CUFILE_OK);
}

FAKE_API struct cufile_error cuFileSetParameterBool(int parameter, bool value);
FAKE_API struct cufile_error cuFileSetParameterBool(int parameter, bool value)
{
    (void)parameter;
    (void)value;
    ENTER("cuFileSetParameterBool");
    return cufile_leave(cufile.open ? CUFILE_ERR_DRIVER_ALREADY_OPEN : CUFILE_OK);
}

FAKE_API struct cufile_error cuFileGetVersion(int *version);
FAKE_API struct cufile_error cuFileGetVersion(int *version)
{
    ENTER("cuFileGetVersion");
    *version = cufile.version;
    return cufile_leave(CUFILE_OK);
}
