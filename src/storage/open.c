/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: adopt a slot's extents or make the file, repair what a crash left, begin to write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/units.h"
#include "storage/internal.h"

#define LOG_ROOM "storage"
#include "base/log.h"

#define DRAIN_TRIES 3u

int storage_drain(struct storage *s)
{
    for (unsigned failures = 0; journal_busy(&s->journal) || s->journal.mark;) {
        struct storage_io io;
        enum storage_step step = storage_journal_plan(s, &io);
        int status = YOLK_OK;
        if (step == STORAGE_WRITE) {
            status = file_pwrite(s->file, io.data, io.size, io.offset);
            storage_journal_done(s, status);
        } else if (storage_sync_plan(s)) {
            status = file_fdatasync(s->file);
            storage_sync_done(s, status);
        } else {
            return journal_busy(&s->journal)
                       ? base_fail(YOLK_ERR_IO, 0, "%s", storage_unwritable(s))
                       : YOLK_OK;
        }
        if (status != YOLK_OK && ++failures == DRAIN_TRIES)
            return status;
    }
    const char *reason = storage_unwritable(s);
    return reason == NULL ? YOLK_OK : base_fail(YOLK_ERR_IO, 0, "%s", reason);
}

/* ---- recovery ---- */
static void log_wrong(void *self, const char *line)
{
    const struct storage *s = self;
    log_warn("%s: %s", s->info.path, line);
}

/* Extents whose record may have reached the disk before their value did are read and compared. Of
 * those without a checksum that are there all the same, the superblock's sync having made it so, a
 * frame must say it: neither clean file nor boot id will prove it once more. */
static int drop_unproven(struct storage *s, struct recovery *r)
{
    struct extent *next;
    for (struct extent *e = map_from(&s->map, 0); e != NULL; e = next) {
        next = map_after(&s->map, e);
        if (!e->unproven)
            continue;
        e->unproven = false;
        bool good = r->sb.clean || (e->unchecked && s->same_boot);
        int status = good || e->unchecked ? YOLK_OK : recover_verify(r, e, &good);
        if (status != YOLK_OK)
            return status;
        s->journal.mark |= good && e->unchecked;
        if (!good) {
            s->info.dropped++;
            storage_doom(s, e);
        }
    }
    return YOLK_OK;
}

/* Empty frames where a crash left none, so that later such a place is a sign of damage. */
static int fill_holes(struct storage *s, const struct recovery *r)
{
    uint8_t *bytes = aligned_alloc(FORMAT_BLOCK, FORMAT_BLOCK);
    if (bytes == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "recovery");
    int status = YOLK_OK;
    uint64_t area = format_area_offset(&s->sb, r->start.epoch % 2);
    for (size_t i = 0; i < r->hole_count; i++)
        for (uint32_t n = 0; n < r->holes[i].blocks && status == YOLK_OK; n++) {
            struct format_frame frame = {.epoch = r->start.epoch,
                                         .index = r->holes[i].index + n,
                                         .bytes = FORMAT_FRAME_HEADER,
                                         .complete = r->start.complete,
                                         .cursor = r->start.cursor};
            format_frame_seal(&frame, s->sb.salt, bytes);
            status = file_pwrite(s->file, bytes, FORMAT_BLOCK,
                                 area + (uint64_t)frame.index * FORMAT_BLOCK);
        }
    free(bytes);
    return status == YOLK_OK ? file_fdatasync(s->file) : status;
}

/* Frames behind a hole say how far the checkpoint came, though parts of it are missing; so before
 * the hole is filled a last frame must say the truth. In a complete area that is no question. */
static int repair(struct storage *s, const struct recovery *r)
{
    int status = r->start.complete ? fill_holes(s, r) : YOLK_OK;
    s->journal.mark |= r->hole_count > 0;
    if (status == YOLK_OK)
        status = storage_drain(s);
    if (status == YOLK_OK && !r->start.complete)
        status = fill_holes(s, r);
    return status;
}

static int begin(struct storage *s, struct recovery *r)
{
    s->sb.clean = false;
    s->sb.epoch = r->start.head > 0 ? r->start.epoch : 0;
    s->sb.end_block = 0;
    /* This sync also covers what the process before us wrote and did not sync. */
    int status = superblock_write(s->file, &s->sb);
    if (status == YOLK_OK)
        status = journal_init(&s->journal, &s->sb, &s->map, &r->start);
    if (status == YOLK_OK)
        status = drop_unproven(s, r);
    if (status == YOLK_OK)
        status = repair(s, r);
    return status;
}

static int recover(struct storage *s, uint64_t seed)
{
    struct recovery r = {.file = s->file, .sb = s->sb, .map = &s->map, .say = log_wrong, .self = s};
    s->index_bytes_max = journal_index_max(s->sb.journal_bytes);
    int status = map_init(&s->map, s->sb.capacity, seed);
    if (status == YOLK_OK)
        status = recover_journal(&r);
    if (status == YOLK_OK)
        status = begin(s, &r);
    s->info.damaged += r.damaged;
    s->info.extents = s->map.counts[EXTENT_COMMITTED];
    recovery_free(&r);
    return status;
}

/* After a power loss the superblock names this life of the machine only when what that took is
 * deleted on the disk: a process that died in between would have left it to one that trusts it. */
static int recover_in(struct storage *s, const uint8_t boot[STORAGE_ID_SIZE], uint64_t seed)
{
    bool loses = !s->same_boot && !s->sb.clean;
    if (!loses)
        memcpy(s->sb.boot, boot, FORMAT_ID_SIZE);
    int status = recover(s, seed);
    if (status != YOLK_OK || !loses)
        return status;
    memcpy(s->sb.boot, boot, FORMAT_ID_SIZE);
    s->sb.epoch = s->journal.head > 0 ? s->journal.epoch : s->sb.epoch;
    return superblock_write(s->file, &s->sb);
}

/* What lies beyond the new end is deleted, as any extent is, before the superblock says so; then
 * the file is recovered as one that always was so small. */
static int shrink(struct storage *s, uint64_t capacity, uint64_t seed)
{
    uint64_t damaged = s->info.damaged;
    struct extent *next;
    for (struct extent *e = map_from(&s->map, 0); e != NULL; e = next) {
        next = map_after(&s->map, e);
        if (map_offset(&s->map, e) + map_allocated(&s->map, e) > capacity)
            storage_doom(s, e);
    }
    int status = storage_drain(s);
    if (status == YOLK_OK) {
        s->sb.capacity = capacity;
        s->sb.epoch = s->journal.head > 0 ? s->journal.epoch : s->sb.epoch;
        status = superblock_write(s->file, &s->sb);
    }
    if (status != YOLK_OK)
        return status;
    map_free(&s->map);
    journal_free(&s->journal);
    status = recover(s, seed);
    s->info.damaged = damaged;
    s->info.capacity = capacity;
    return status;
}

/* ---- open ---- */
/* The superblock, of the file as it is or made anew. */
static int prepare(const struct file_system *fs, struct slot *slot,
                   const struct storage_options *options, struct storage *s)
{
    struct recovery r = {.file = slot->file, .say = log_wrong, .self = s};
    int status = slot->fresh ? YOLK_ERR_NOT_FOUND : recover_superblock(&r);
    s->info.damaged = r.damaged;
    bool ours = status == YOLK_OK;
    s->info.created = !ours || options->start_empty;
    if (status != YOLK_OK && !slot->fresh && !options->replace)
        return base_fail_context(status, "%s is refused, and not touched", slot->path);
    if (!s->info.created) {
        s->sb = r.sb;
        return options->capacity_bytes / FORMAT_BLOCK > s->sb.capacity / FORMAT_BLOCK
                   ? slot_grow(slot, options, &s->sb, &s->info)
                   : YOLK_OK;
    }
    status = slot_format(slot, options, ours ? &r.sb : NULL, &s->sb, &s->info);
    if (status == YOLK_OK)
        status = slot_keep(fs, slot);
    return status == YOLK_OK ? status : base_fail_context(status, "make %s", slot->path);
}

void storage_inform(struct storage_info *info, const struct format_superblock *sb)
{
    memcpy(info->storage_id, sb->storage_id, sizeof info->storage_id);
    info->generation = sb->generation;
    info->capacity = sb->capacity;
    info->extent_offset = format_extent_offset(sb);
    info->journal_bytes = sb->journal_bytes;
    info->overhead_bytes = info->extent_offset;
    info->clean = sb->clean;
    info->preallocated = sb->preallocated;
}

static void report(const struct storage *s)
{
    const struct storage_info *info = &s->info;
    char capacity[32], overhead[32];
    log_info("%s: %s, capacity %s and %s beside it, %llu extents%s, %llu bytes of index",
             info->path, info->created ? "made" : "adopted",
             base_format_size(info->capacity, capacity, sizeof capacity),
             base_format_size(info->overhead_bytes, overhead, sizeof overhead),
             (unsigned long long)info->extents, info->clean ? "" : ", after a kill or power loss",
             (unsigned long long)map_memory(&s->map));
    if (info->dropped > 0)
        log_info("%s: %llu extents of the last moments had not reached the disk", info->path,
                 (unsigned long long)info->dropped);
    if (info->note[0] != 0)
        log_warn("%s: %s", info->path, info->note);
}

static int check_options(const struct storage_options *options)
{
    if (options->path == NULL || options->random.next_u64 == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "an extent file needs a path and randomness");
    if (options->capacity_bytes < FORMAT_BLOCK || options->capacity_bytes > MAX_SEGMENT_SIZE)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "the capacity of an extent file is %llu, not 4096 to %llu",
                         (unsigned long long)options->capacity_bytes, MAX_SEGMENT_SIZE);
    if (options->journal_bytes > MAX_SEGMENT_SIZE / 4)
        return base_fail(YOLK_ERR_CONFIG, 0, "a journal area of %llu bytes, not 0 to %llu",
                         (unsigned long long)options->journal_bytes, MAX_SEGMENT_SIZE / 4);
    return YOLK_OK;
}

int storage_open(const struct file_system *fs, const struct storage_options *options,
                 struct storage **out)
{
    *out = NULL;
    int status = check_options(options);
    if (status != YOLK_OK)
        return status;
    struct storage *s = base_calloc(1, sizeof *s);
    if (s == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "an extent file");
    struct slot slot;
    status = slot_take(fs, options->path, &slot);
    s->file = slot.file;
    memcpy(s->info.path, slot.path, sizeof s->info.path);
    if (status == YOLK_OK)
        status = prepare(fs, &slot, options, s);
    if (status == YOLK_OK) {
        s->info.slot = slot.index;
        s->info.direct = file_direct(s->file);
        storage_inform(&s->info, &s->sb);
        if (options->unchecked) /* written before any record is */
            s->sb.incompatible |= FORMAT_UNCHECKED_RECORDS;
        static const uint8_t unknown[FORMAT_ID_SIZE];
        s->same_boot = memcmp(options->boot, unknown, FORMAT_ID_SIZE) != 0 &&
                       memcmp(options->boot, s->sb.boot, FORMAT_ID_SIZE) == 0;
        status = recover_in(s, options->boot, random_u64(&options->random));
    }
    uint64_t capacity = options->capacity_bytes / FORMAT_BLOCK * FORMAT_BLOCK;
    if (status == YOLK_OK && capacity < s->sb.capacity)
        status = shrink(s, capacity, random_u64(&options->random));
    if (status == YOLK_OK)
        status = slot_trim(s->file, &s->sb);
    if (status != YOLK_OK) {
        storage_abandon(s);
        return base_fail_context(status, "the extent file %s", slot.path);
    }
    report(s);
    *out = s;
    return YOLK_OK;
}

/* ---- close ---- */
void storage_abandon(struct storage *s)
{
    if (s == NULL)
        return;
    map_free(&s->map);
    journal_free(&s->journal);
    free(s->committed);
    free(s->unproven);
    free(s->deletes_over);
    file_close(s->file);
    free(s);
}

int storage_close(struct storage *s)
{
    if (s->handles > 0)
        log_error("%s: %llu extents were reserved and never committed, aborted or preserved",
                  s->info.path, (unsigned long long)s->handles);
    int status = storage_drain(s);
    if (status == YOLK_OK) {
        s->sb.clean = true;
        s->sb.epoch = s->journal.head > 0 ? s->journal.epoch : s->sb.epoch;
        s->sb.end_block = s->journal.head;
        status = superblock_write(s->file, &s->sb);
    }
    if (status != YOLK_OK)
        log_warn("%s: not closed cleanly: %s", s->info.path, yolk_last_error());
    storage_abandon(s);
    return status;
}
