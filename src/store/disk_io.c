/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a disk: moves and journal writes, and syncs. */
#define LOG_ROOM "store"
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "store/disk_state.h"

enum { MOVE_TIMEOUT_MS = 30000 };
/* With several batches under way the oldest is waited for, the others are looked at this often. */
#define LOOK_NS (200 * NS_PER_US)

/* Moves handed to the engine as one batch. */
struct disk_flight {
    struct disk_flight *next;
    uint64_t batch;
    uint32_t count;
    uint32_t pending;
    uint32_t moves[DISK_DEPTH];
    uint64_t offsets[DISK_DEPTH]; /* in memory */
    uint64_t sizes[DISK_DEPTH];
    uint32_t checksums[DISK_DEPTH];
    uint8_t reads[DISK_DEPTH];
    uint8_t over[DISK_DEPTH];
};

/* With the lock held. */
static void push_frame(struct store_disk *disk, const struct store_tier_output *output)
{
    struct disk_frame *frame = malloc(sizeof(*frame) + output->body_size);
    if (frame == NULL)
        return; /* as lost on the way: the master asks again */
    frame->next = NULL;
    frame->message = output->message;
    frame->size = output->body_size;
    memcpy(frame->body, output->body, output->body_size);
    if (disk->last == NULL)
        disk->first = frame;
    else
        disk->last->next = frame;
    disk->last = frame;
}

static struct disk_flight *add_move(struct store_disk *disk, struct disk_flight *flight,
                                    const struct store_tier_output *output)
{
    if (flight == NULL)
        flight = calloc(1, sizeof(*flight));
    if (flight == NULL) {
        store_tier_moved(disk->tier, clock_real_now_ns(), output->move, YOLK_ERR_NO_MEMORY, 0);
        return NULL;
    }
    uint32_t i = flight->count++;
    int read = output->kind == STORE_TIER_READ;
    flight->moves[i] = output->move;
    flight->offsets[i] = output->memory_offset;
    flight->sizes[i] = output->size;
    flight->reads[i] = (uint8_t)read;
    struct yolk_request *request = &disk->requests[i];
    *request = (struct yolk_request){
        .opcode = read ? YOLK_READ : YOLK_WRITE,
        .local = disk->memory + output->memory_offset,
        .segment = disk->handle,
        .offset = output->disk_offset,
        .size = output->size,
        .deadline_ns = clock_after_ms(clock_real_now_ns(), MOVE_TIMEOUT_MS),
        .ticket = {.offset = output->disk_offset,
                   .size = output->size,
                   .op = read ? output->key_hash : 0},
    };
    if (!read)
        memcpy(request->ticket.mac, disk->write_key, sizeof(disk->write_key));
    return flight;
}

/* Without the lock: nobody else looks at flights. Those that could not start are told at once. */
static void submit(struct store_disk *disk, struct disk_flight *flight)
{
    enum yolk_status verdicts[DISK_DEPTH];
    uint32_t first = 0;
    int status = yolk_engine_batch_create(disk->engine, flight->count, &flight->batch);
    /* Each request's verdict is in its task too. */
    if (status == YOLK_OK && yolk_engine_batch_submit(disk->engine, flight->batch, disk->requests,
                                                      flight->count, verdicts, &first) != YOLK_OK)
        base_error_clear();
    if (status != YOLK_OK)
        flight->batch = 0;
    flight->pending = flight->count;
    flight->next = disk->flights;
    disk->flights = flight;
    /* The bytes are read for their checksum while the disk writes them. */
    for (uint32_t i = 0; i < flight->count; i++)
        if (!flight->reads[i])
            flight->checksums[i] =
                base_crc32c(0, disk->memory + flight->offsets[i], flight->sizes[i]);
}

static void tell_moved(struct store_disk *disk, struct disk_flight *flight, uint32_t i, int status)
{
    flight->over[i] = 1;
    flight->pending--;
    if (status == YOLK_ERR_STUCK) {
        log_error("a move between memory and disk never ended; its space is not used again");
        mutex_lock(&disk->lock);
        disk->stuck = 1;
        store_tier_stuck(disk->tier, flight->moves[i]);
        mutex_unlock(&disk->lock);
        return;
    }
    if (status == YOLK_OK && flight->reads[i])
        flight->checksums[i] = base_crc32c(0, disk->memory + flight->offsets[i], flight->sizes[i]);
    mutex_lock(&disk->lock);
    store_tier_moved(disk->tier, clock_real_now_ns(), flight->moves[i], (enum yolk_status)status,
                     flight->checksums[i]);
    mutex_unlock(&disk->lock);
    if (flight->reads[i])
        disk->wake(disk->wake_self); /* a mount may wait for the memory to be quiet */
}

/* 1 if all of the flight is over. */
static int collect(struct store_disk *disk, struct disk_flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        struct yolk_task_status task;
        if (flight->over[i])
            continue;
        int status = flight->batch == 0
                         ? (int)YOLK_ERR_NO_MEMORY
                         : (int)yolk_engine_batch_poll(disk->engine, flight->batch, i, &task);
        if (status == YOLK_OK && !task.terminal)
            continue;
        tell_moved(disk, flight, i, status == YOLK_OK ? (int)task.status : status);
    }
    return flight->pending == 0;
}

static void collect_all(struct store_disk *disk)
{
    struct disk_flight **at = &disk->flights;
    while (*at != NULL) {
        struct disk_flight *flight = *at;
        if (!collect(disk, flight)) {
            at = &flight->next;
            continue;
        }
        *at = flight->next;
        if (flight->batch != 0 && yolk_engine_batch_free(disk->engine, flight->batch) != YOLK_OK)
            base_error_clear();
        free(flight);
    }
}

/* The oldest batch for a moment. */
static void wait_flights(struct store_disk *disk)
{
    struct disk_flight *oldest = disk->flights;
    while (oldest->next != NULL)
        oldest = oldest->next;
    /* TIMEOUT is an answer like any other here. */
    if (oldest->batch != 0 && yolk_engine_batch_wait(disk->engine, oldest->batch,
                                                     clock_real_now_ns() + LOOK_NS) != YOLK_OK)
        base_error_clear();
}

/* With the lock held: tells people when the tier goes off and on. */
static void note_state(struct store_disk *disk)
{
    const char *why = store_tier_off(disk->tier);
    if ((why != NULL) == disk->off)
        return;
    disk->off = why != NULL;
    if (why != NULL)
        log_warn("%s takes no more values for now, what is there is still read: %s",
                 storage_info(disk->storage)->path, why);
    else
        log_warn("%s takes values again", storage_info(disk->storage)->path);
}

/* Without the lock. */
static void write_journal(struct store_disk *disk, const struct store_tier_output *output)
{
    int status = file_pwrite(storage_file(disk->storage), output->data, output->data_size,
                             output->file_offset);
    mutex_lock(&disk->lock);
    store_tier_journaled(disk->tier, clock_real_now_ns(), (enum yolk_status)status);
    condition_broadcast(&disk->journaled);
    mutex_unlock(&disk->lock);
}

/* A sync may take long, and the disk can do other things meanwhile: it has a thread of its own. */
static void sync_main(void *arg)
{
    struct store_disk *disk = arg;
    mutex_lock(&disk->lock);
    for (;;) {
        while (!disk->sync_wanted && !disk->sync_stop)
            condition_wait(&disk->sync_changed, &disk->lock);
        if (!disk->sync_wanted)
            break;
        disk->sync_wanted = 0;
        mutex_unlock(&disk->lock);
        int status = file_fdatasync(storage_file(disk->storage));
        mutex_lock(&disk->lock);
        store_tier_synced(disk->tier, clock_real_now_ns(), (enum yolk_status)status);
        store_disk_rouse(disk);
    }
    mutex_unlock(&disk->lock);
}

/* What the machine wants: messages are queued, moves gathered and started, syncs begun, one journal
 * write done. 0: nothing before *wait_ns. */
static int turn(struct store_disk *disk, uint64_t *wait_ns)
{
    struct store_tier_output output;
    struct disk_flight *flight = NULL;
    int frames = 0;
    int journal = 0;
    mutex_lock(&disk->lock);
    disk->news = false;
    for (;;) {
        store_tier_next(disk->tier, clock_real_now_ns(), &output);
        if (output.kind == STORE_TIER_SEND) {
            push_frame(disk, &output);
            frames = 1;
        } else if (output.kind == STORE_TIER_WRITE || output.kind == STORE_TIER_READ) {
            flight = add_move(disk, flight, &output);
        } else if (output.kind == STORE_TIER_SYNC) {
            disk->sync_wanted = 1;
            condition_signal(&disk->sync_changed);
        } else {
            break;
        }
    }
    journal = output.kind == STORE_TIER_JOURNAL;
    *wait_ns = output.deadline_ns;
    note_state(disk);
    mutex_unlock(&disk->lock);
    if (frames)
        disk->wake(disk->wake_self);
    if (flight != NULL)
        submit(disk, flight);
    if (journal)
        write_journal(disk, &output);
    return flight != NULL || journal || frames;
}

void store_disk_rouse(struct store_disk *disk)
{
    disk->news = true;
    condition_signal(&disk->changed);
}

static void disk_main(void *arg)
{
    struct store_disk *disk = arg;
    for (;;) {
        uint64_t wait_ns = UINT64_MAX;
        int busy = turn(disk, &wait_ns);
        if (disk->flights != NULL) {
            if (!busy)
                wait_flights(disk);
            collect_all(disk);
            continue;
        }
        if (busy)
            continue;
        mutex_lock(&disk->lock);
        int stop = disk->stop && store_tier_is_quiet(disk->tier);
        if (!stop && !disk->news)
            (void)condition_wait_until(&disk->changed, &disk->lock, wait_ns);
        mutex_unlock(&disk->lock);
        if (stop)
            return;
    }
}

int store_disk_start_threads(struct store_disk *disk)
{
    int status = thread_start(&disk->syncer, "yolk-sync", sync_main, disk);
    return status == YOLK_OK ? thread_start(&disk->thread, "yolk-disk", disk_main, disk) : status;
}

void store_disk_stop_threads(struct store_disk *disk)
{
    mutex_lock(&disk->lock);
    disk->stop = 1;
    if (disk->tier != NULL)
        store_tier_unmount(disk->tier);
    store_disk_rouse(disk);
    mutex_unlock(&disk->lock);
    thread_join(&disk->thread);
    mutex_lock(&disk->lock);
    disk->sync_stop = 1;
    condition_signal(&disk->sync_changed);
    mutex_unlock(&disk->lock);
    thread_join(&disk->syncer);
}
