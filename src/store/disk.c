/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "store"
#include "store/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "platform/random.h"
#include "store/disk_state.h"
#include "store/segments.h"
#include "wire/msg.h"

enum { LOCK_WAIT_MS = 2000, LOCK_LOOK_US = 5000, LOCK_FIND_MS = 100 };
#define DEPTH_BYTES (64ull << 20) /* of moves at a time */

/* ---- who may read and write ---- */

static enum yolk_status begin_access(void *self, const struct yolk_access_request *request)
{
    struct store_disk *disk = self;
    const struct yolk_ticket *ticket = request->ticket;
    if (ticket == NULL || request->offset < ticket->offset || request->size > ticket->size ||
        request->offset - ticket->offset > ticket->size - request->size)
        return YOLK_ERR_ACCESS;
    if (request->opcode == YOLK_WRITE)
        return memcmp(ticket->mac, disk->write_key, sizeof(disk->write_key)) == 0 ? YOLK_OK
                                                                                  : YOLK_ERR_ACCESS;
    mutex_lock(&disk->lock);
    int status = storage_lease(disk->storage, ticket->offset, ticket->size, ticket->op);
    mutex_unlock(&disk->lock);
    return status;
}

static void end_access(void *self, const struct yolk_access_request *request)
{
    struct store_disk *disk = self;
    struct store_tier_stats stats;
    if (request->opcode == YOLK_WRITE)
        return;
    mutex_lock(&disk->lock);
    storage_unlease(disk->storage, request->ticket->offset);
    store_tier_stats(disk->tier, &stats);
    if (stats.facts_waiting > 0) /* perhaps for this reader */
        store_disk_rouse(disk);
    mutex_unlock(&disk->lock);
}

/* ---- offers ---- */

static uint64_t offer_count(void *self)
{
    struct store_disk *disk = self;
    struct storage_stats stats;
    mutex_lock(&disk->lock);
    storage_let_go(disk->storage);
    storage_stats(disk->storage, &stats);
    mutex_unlock(&disk->lock);
    return stats.committed;
}

static int offer_next(void *self, uint64_t *cursor, struct store_disk_offer *offer)
{
    struct store_disk *disk = self;
    struct storage_extent extent;
    mutex_lock(&disk->lock);
    int found = storage_next(disk->storage, cursor, &extent);
    if (found) {
        offer->offset = extent.offset;
        offer->size = extent.size;
        offer->checksum = extent.checksum;
        offer->key_size = (uint32_t)extent.key_size;
        memcpy(offer->key, extent.key, extent.key_size);
    }
    mutex_unlock(&disk->lock);
    return found;
}

static int offer_reject(void *self, uint64_t offset)
{
    struct store_disk *disk = self;
    uint64_t seq;
    mutex_lock(&disk->lock);
    int status = storage_delete(disk->storage, offset, &seq);
    if (status == YOLK_OK)
        store_disk_rouse(disk);
    mutex_unlock(&disk->lock);
    return status == YOLK_ERR_NOT_FOUND ? YOLK_OK : status;
}

const struct store_disk_mount *store_disk_mount(struct store_disk *disk)
{
    return &disk->mount;
}

/* ---- from the control thread ---- */

void store_disk_mounted(struct store_disk *disk, uint64_t memory, uint64_t segment)
{
    static const uint8_t no_key[32] = {0};
    uint64_t handle = 0;
    struct yolk_segment_descriptor descriptor = {
        .id = segment,
        .size = disk->mount.size,
        .endpoints = disk->own,
    };
    yolk_served_set_segment(disk->served, segment, no_key);
    int status = yolk_engine_segment_open(disk->engine, &descriptor, 0, &handle);
    if (status != YOLK_OK)
        log_warn("the disk segment cannot be reached from here: %s", yolk_last_error());
    mutex_lock(&disk->lock);
    uint64_t old = disk->handle;
    disk->handle = handle;
    store_tier_mounted(disk->tier, memory, segment);
    mutex_unlock(&disk->lock);
    if (old != 0 && yolk_engine_segment_close(disk->engine, old) != YOLK_OK)
        base_error_clear();
}

void store_disk_offered(struct store_disk *disk)
{
    mutex_lock(&disk->lock);
    store_tier_offered(disk->tier);
    mutex_unlock(&disk->lock);
}

void store_disk_unmount(struct store_disk *disk)
{
    mutex_lock(&disk->lock);
    store_tier_unmount(disk->tier);
    store_disk_rouse(disk);
    mutex_unlock(&disk->lock);
}

int store_disk_is_quiet(struct store_disk *disk)
{
    mutex_lock(&disk->lock);
    int quiet = store_tier_memory_writes(disk->tier) == 0;
    mutex_unlock(&disk->lock);
    return quiet;
}

void store_disk_input(struct store_disk *disk, uint16_t message, const uint8_t *body, size_t size)
{
    mutex_lock(&disk->lock);
    store_tier_input(disk->tier, message, body, size);
    store_disk_rouse(disk);
    mutex_unlock(&disk->lock);
}

int store_disk_take_frame(struct store_disk *disk, uint16_t *message, struct base_buf *body)
{
    mutex_lock(&disk->lock);
    struct disk_frame *frame = disk->first;
    if (frame != NULL) {
        disk->first = frame->next;
        if (disk->first == NULL)
            disk->last = NULL;
    }
    mutex_unlock(&disk->lock);
    if (frame == NULL)
        return 0;
    base_buf_clear(body);
    *message = frame->message;
    int taken = base_buf_append(body, frame->body, frame->size) == YOLK_OK;
    free(frame);
    return taken;
}

int store_disk_fence_session(struct store_disk *disk, uint64_t session)
{
    return yolk_served_fence_session(disk->served, session);
}

int store_disk_stat(struct store_disk *disk, struct base_buf *lines)
{
    struct storage_stats storage;
    struct store_tier_stats tier;
    mutex_lock(&disk->lock);
    storage_stats(disk->storage, &storage);
    store_tier_stats(disk->tier, &tier);
    int on = store_tier_off(disk->tier) == NULL;
    mutex_unlock(&disk->lock);
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"on", (uint64_t)on},
        {"capacity_bytes", storage.capacity},
        {"used_bytes", storage.capacity - storage.free_bytes},
        {"objects", storage.committed},
        {"index_memory_bytes", storage.memory_bytes},
        {"offloads_total", tier.offloads},
        {"offload_bytes_total", tier.offload_bytes},
        {"offloads_no_space_total", tier.offloads_no_space},
        {"offloads_failed_total", tier.offloads_failed},
        {"promotes_total", tier.promotes},
        {"promote_bytes_total", tier.promote_bytes},
        {"promotes_failed_total", tier.promotes_failed},
        {"corrupt_total", tier.corrupt},
        {"deletes_total", tier.deletes},
        {"errors_total", tier.disk_errors},
        {"journal_writes_total", storage.journal_writes},
        {"journal_bytes_total", storage.journal_written},
        {"syncs_total", storage.syncs},
        {"checkpoints_total", storage.checkpoints},
        {"tasks_queued", tier.queued},
        {"tasks_moving", tier.moving},
    };
    int status = YOLK_OK;
    const char *tier_name = disk->medium == WIRE_MEDIUM_GDS ? "gds" : "ssd";
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]) && status == YOLK_OK; i++)
        status = base_buf_printf(lines, "client_%s_%s %llu\n", tier_name, figures[i].name,
                                 (unsigned long long)figures[i].value);
    return status;
}

/* ---- opening and closing ---- */

static void log_opened(const struct storage_info *info)
{
    char size[32];
    (void)base_format_size(info->capacity, size, sizeof(size));
    log_info("%s: %s for values%s, %llu values found%s%s", info->path, size,
             info->direct ? "" : ", through the page cache", (unsigned long long)info->extents,
             info->created ? ", made anew"
             : info->clean ? ""
                           : ", recovered after a crash",
             info->preallocated ? "" : ", not preallocated");
}

enum locked { NOT_ALL_LOCKED, LOCKED_BY_SOMEBODY, LOCKED_BY_LIVING };

/* Whether all files that there are are locked, and there is one; and if `look`, whether each is by
 * a process that is seen to live. */
static enum locked all_locked(const struct file_system *fs, const char *path, int look)
{
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), LOCK_FIND_MS);
    char slot[STORAGE_PATH_SIZE];
    int living = look;
    for (unsigned i = 0; i < STORAGE_SLOTS; i++) {
        struct file *file;
        snprintf(slot, sizeof(slot), "%s.slot%u", path, i);
        int status = file_open(fs, slot, FILE_READ | FILE_WRITE, &file);
        if (status != YOLK_OK && (i == 0 || status != YOLK_ERR_NOT_FOUND))
            return NOT_ALL_LOCKED;
        if (status != YOLK_OK)
            break;
        status = file_lock(file);
        file_close(file);
        if (status != YOLK_ERR_BUSY)
            return NOT_ALL_LOCKED;
        living = living && process_uses_file(slot, deadline_ns);
    }
    return living ? LOCKED_BY_LIVING : LOCKED_BY_SOMEBODY;
}

/* A process that was killed keeps its lock until the kernel has ended its I/O: some 20 ms, or as
 * long as a busy disk takes for a sync. Its successor would make another file, and what lies in the
 * old one would be of no use until somebody takes that: so it waits a moment first, unless all who
 * have one are seen to live. */
static void await_lock(const struct store_disk_options *options)
{
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), LOCK_WAIT_MS);
    enum locked locked = all_locked(options->fs, options->path, 1);
    while (locked == LOCKED_BY_SOMEBODY && clock_real_now_ns() < deadline_ns) {
        usleep(LOCK_LOOK_US);
        locked = all_locked(options->fs, options->path, 0);
    }
    base_error_clear();
}

static int open_storage(struct store_disk *disk, const struct store_disk_options *options)
{
    struct storage_options storage = {
        .path = options->path,
        .capacity_bytes = options->size_bytes,
        .start_empty = options->start_empty,
        .unchecked = options->medium == WIRE_MEDIUM_GDS,
        .random = random_real(),
    };
    process_boot_id(storage.boot);
    await_lock(options);
    int status = storage_open(options->fs, &storage, &disk->storage);
    if (status != YOLK_OK)
        return status;
    log_opened(storage_info(disk->storage));
    struct store_tier_options tier = {
        .storage = disk->storage,
        .memory_size = options->memory_size,
        .depth = DISK_DEPTH,
        .depth_bytes = DEPTH_BYTES,
        /* What has no checksum is safe when a second sync has proven the first. */
        .sync_ns = options->sync_ms * NS_PER_MS / (storage.unchecked ? 2 : 1),
        .retry_first_ns = 200 * NS_PER_MS,
        .retry_max_ns = 30 * NS_PER_S,
    };
    return store_tier_create(&tier, &disk->tier);
}

/* Without tcp, the way of others: it would hide what is wrong with the disk behind a refusal. */
static void own_endpoints(struct store_disk *disk, const char *const *ways)
{
    static const char *const usual[] = {"uring", "posix", NULL};
    char text[MAX_ENDPOINTS + 1];
    size_t used = 0;
    ways = ways != NULL ? ways : usual;
    for (size_t i = 0; ways[i] != NULL; i++) {
        snprintf(text, sizeof(text), "%s", disk->mount.endpoints);
        store_endpoints_allowed(text, ways[i]);
        if (text[0] != '\0' && used + strlen(text) + 2 <= sizeof(disk->own))
            used += (size_t)snprintf(disk->own + used, sizeof(disk->own) - used, "%s%s",
                                     used > 0 ? ";" : "", text);
    }
}

static int serve(struct store_disk *disk, const struct store_disk_options *from)
{
    const struct storage_info *info = storage_info(disk->storage);
    struct random random = random_real();
    struct yolk_serve_file_options options = {
        .struct_size = sizeof(options),
        .path = info->path,
        .internal = storage_file(disk->storage),
        .writable = 1,
        /* A value of several pieces is written by several requests, each of which must leave the
         * bytes beside it alone; one from the memory segment by one. */
        .pad_writes = from->medium != WIRE_MEDIUM_GDS,
        .offset = info->extent_offset,
        .size = info->capacity,
        .owner = {.self = disk, .begin = begin_access, .end = end_access},
    };
    random_bytes(&random, disk->write_key, sizeof(disk->write_key));
    int status = yolk_engine_serve_file(disk->engine, &options, &disk->served);
    if (status != YOLK_OK)
        return status;
    disk->mount = (struct store_disk_mount){
        .storage_generation = info->generation,
        .size = info->capacity,
        .endpoints = yolk_served_endpoints(disk->served),
        .self = disk,
        .count = offer_count,
        .next = offer_next,
        .reject = offer_reject,
    };
    memcpy(disk->mount.storage_id, info->storage_id, sizeof(disk->mount.storage_id));
    own_endpoints(disk, from->ways);
    return YOLK_OK;
}

/* In the reverse order of open; each part may be missing. The threads have ended. */
static void end_parts(struct store_disk *disk)
{
    if (disk->handle != 0 && yolk_engine_segment_close(disk->engine, disk->handle) != YOLK_OK)
        base_error_clear();
    if (disk->served != NULL)
        yolk_engine_unserve(disk->engine, disk->served);
    if (disk->memory != NULL &&
        yolk_engine_unregister(disk->engine, disk->memory, disk->memory_size) != YOLK_OK)
        log_warn("the segment's memory is not quiet: %s", yolk_last_error());
    store_tier_destroy(disk->tier);
    /* What it could not do is in the log. */
    if (disk->stuck)
        storage_abandon(disk->storage);
    else if (disk->storage != NULL && storage_close(disk->storage) != YOLK_OK)
        base_error_clear();
    while (disk->first != NULL) {
        struct disk_frame *frame = disk->first;
        disk->first = frame->next;
        free(frame);
    }
    condition_destroy(&disk->journaled);
    condition_destroy(&disk->sync_changed);
    condition_destroy(&disk->changed);
    mutex_destroy(&disk->lock);
    free(disk);
}

int store_disk_open(const struct store_disk_options *options, struct store_disk **out)
{
    struct store_disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a disk");
    disk->engine = options->engine;
    disk->medium = options->medium;
    disk->wake = options->wake;
    disk->wake_self = options->wake_self;
    mutex_init(&disk->lock);
    condition_init(&disk->changed);
    condition_init(&disk->sync_changed);
    condition_init(&disk->journaled);
    int status = open_storage(disk, options);
    if (status == YOLK_OK && options->memory != NULL)
        status = yolk_engine_register(options->engine, options->memory, options->memory_size);
    if (status == YOLK_OK) {
        disk->memory = options->memory;
        disk->memory_size = options->memory_size;
        status = serve(disk, options);
    }
    if (status == YOLK_OK)
        status = store_disk_start_threads(disk);
    if (status != YOLK_OK) {
        char text[MAX_LAST_ERROR];
        snprintf(text, sizeof(text), "%s", yolk_last_error());
        store_disk_stop_threads(disk);
        end_parts(disk);
        return base_fail(status, 0, "%s", text);
    }
    *out = disk;
    return YOLK_OK;
}

void store_disk_close(struct store_disk *disk)
{
    if (disk == NULL)
        return;
    store_disk_stop_threads(disk);
    end_parts(disk);
}
