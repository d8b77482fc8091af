/* SPDX-License-Identifier: Apache-2.0 */
/* Finding, locking and making the file of a slot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "storage/internal.h"

#define OPEN_FLAGS (FILE_READ | FILE_WRITE | FILE_DIRECT)
#define TRIES      4u /* when others change the slot or the free space at the same time */
#define KEPT_FREE                                                                                  \
    (1ull << 30) /* of the file system, but never more than a 20th of what is free                 \
                  */
#define USEFUL        (16ull << 20) /* a smaller capacity is not worth a shrunk tier */
#define JOURNAL_SHARE 32u           /* of the capacity, for each area, unless told otherwise */
#define ZERO_BYTES    (1u << 20)

int superblock_write(struct file *file, struct format_superblock *sb)
{
    uint8_t *block = aligned_alloc(FORMAT_BLOCK, FORMAT_BLOCK);
    if (block == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a superblock");
    sb->sequence++;
    format_superblock_encode(sb, block);
    int status = file_pwrite(file, block, FORMAT_BLOCK,
                             sb->sequence % FORMAT_SUPERBLOCKS * FORMAT_SUPERBLOCK_GAP);
    free(block);
    return status == YOLK_OK ? file_fdatasync(file) : status;
}

/* ---- taking ---- */
static int open_locked(const struct file_system *fs, const char *path, unsigned flags,
                       struct file **out)
{
    int status = file_open(fs, path, flags, out);
    if (status != YOLK_OK)
        return status;
    status = file_lock(*out);
    if (status != YOLK_OK) {
        file_close(*out);
        *out = NULL;
    }
    return status == YOLK_OK || status == YOLK_ERR_BUSY ? status
                                                        : base_fail_context(status, "%s", path);
}

/* What lies under the name in the making, and was not begun by us, is somebody's. */
static int refuse_foreign(struct file *file, const char *path)
{
    size_t got = 0;
    uint8_t *block = aligned_alloc(FORMAT_BLOCK, FORMAT_BLOCK);
    if (block == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a superblock");
    int status = file_pread(file, block, FORMAT_BLOCK, 0, &got);
    if (status == YOLK_OK && !format_superblock_begun(block, got))
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0,
                           "%s is refused, and not touched: it is not an extent file", path);
    free(block);
    return status;
}

/* Files are made under another name, so that the slot's name is only ever that of a whole one. Who
 * holds the lock of the other name makes the file, if the slot's name is still free then: since we
 * looked it may have been made and renamed, so that ours is another file of the other name, which
 * would replace it, or the very one, left by now. AGAIN is the answer to both. */
static int open_fresh(const struct file_system *fs, const char *path, struct file **out)
{
    char fresh[STORAGE_PATH_SIZE + sizeof SLOT_FRESH];
    snprintf(fresh, sizeof fresh, "%s" SLOT_FRESH, path);
    int status = open_locked(fs, fresh, OPEN_FLAGS | FILE_CREATE, out);
    if (status != YOLK_OK)
        return status;
    struct file *made;
    uint64_t size;
    struct recovery r = {.file = *out};
    bool whole = recover_superblock(&r) == YOLK_OK;
    status = file_open(fs, path, FILE_READ, &made);
    if (status == YOLK_OK) {
        file_close(made);
        status = YOLK_ERR_AGAIN;
        if (!whole && file_size(*out, &size) == YOLK_OK && size == 0)
            base_ignore(file_unlink(fs, fresh)); /* it was our open that made it */
    } else if (status == YOLK_ERR_NOT_FOUND) {
        status = whole ? YOLK_OK : refuse_foreign(*out, fresh);
        if (status == YOLK_OK && !whole)
            return YOLK_OK;
    }
    file_close(*out);
    *out = NULL;
    /* Whole, but whoever made it came no further. */
    return status == YOLK_OK ? open_locked(fs, fresh, OPEN_FLAGS, out) : status;
}

static int take(const struct file_system *fs, struct slot *slot)
{
    for (unsigned i = 0; i < TRIES; i++) {
        slot->fresh = false;
        int status = open_locked(fs, slot->path, OPEN_FLAGS, &slot->file);
        if (status != YOLK_ERR_NOT_FOUND)
            return status;
        slot->fresh = true;
        status = open_fresh(fs, slot->path, &slot->file);
        if (status != YOLK_ERR_AGAIN)
            return status;
    }
    return YOLK_ERR_BUSY;
}

int slot_take(const struct file_system *fs, const char *path, struct slot *slot)
{
    *slot = (struct slot){0};
    for (unsigned i = 0; i < STORAGE_SLOTS; i++) {
        slot->index = i;
        int n = snprintf(slot->path, sizeof slot->path, "%s.slot%u", path, i);
        if (path[0] == 0 || n < 0 || (size_t)n + sizeof SLOT_FRESH > sizeof slot->path)
            return base_fail(YOLK_ERR_CONFIG, 0,
                             "the path of the extent file has %zu bytes, not 1 to %u", strlen(path),
                             STORAGE_PATH_SIZE - 32);
        int status = take(fs, slot);
        if (status != YOLK_ERR_BUSY)
            return status;
    }
    return base_fail(YOLK_ERR_BUSY, 0, "all of %s.slot0 to .slot%u are in use", path,
                     STORAGE_SLOTS - 1);
}

int slot_keep(const struct file_system *fs, struct slot *slot)
{
    if (!slot->fresh)
        return YOLK_OK;
    char fresh[STORAGE_PATH_SIZE + sizeof SLOT_FRESH];
    snprintf(fresh, sizeof fresh, "%s" SLOT_FRESH, slot->path);
    int status = file_rename(fs, fresh, slot->path);
    slot->fresh = status != YOLK_OK;
    return status;
}

/* ---- making ---- */
static uint64_t round_down(uint64_t bytes)
{
    return bytes / FORMAT_BLOCK * FORMAT_BLOCK;
}

static uint64_t journal_for(const struct storage_options *options, uint64_t capacity)
{
    uint64_t bytes = options->journal_bytes;
    if (bytes == 0)
        bytes = capacity / JOURNAL_SHARE;
    if (bytes < FORMAT_JOURNAL_MIN)
        bytes = FORMAT_JOURNAL_MIN;
    return (bytes + FORMAT_BLOCK - 1) / FORMAT_BLOCK * FORMAT_BLOCK;
}

static uint64_t usable(uint64_t free_bytes)
{
    uint64_t kept = free_bytes / 20 < KEPT_FREE ? free_bytes / 20 : KEPT_FREE;
    return free_bytes - kept;
}

/* Sizes for a file system that has `free_bytes` for us beyond the `has` bytes of the file. */
static int fit(const struct storage_options *options, uint64_t free_bytes, uint64_t has,
               struct format_superblock *sb, struct storage_info *info)
{
    char asked[32], got[32];
    uint64_t room = has + usable(free_bytes);
    sb->capacity = round_down(options->capacity_bytes);
    sb->journal_bytes = journal_for(options, sb->capacity);
    if (format_extent_offset(sb) + sb->capacity <= room)
        return YOLK_OK;
    uint64_t fixed = FORMAT_JOURNAL_OFFSET + 2 * journal_for(options, 0);
    if (room > fixed && options->journal_bytes != 0)
        sb->capacity = round_down(room - fixed);
    else if (room > fixed)
        sb->capacity = round_down((room - fixed) / (JOURNAL_SHARE + 2) * JOURNAL_SHARE);
    sb->journal_bytes = journal_for(options, sb->capacity);
    base_format_size(options->capacity_bytes, asked, sizeof asked);
    base_format_size(free_bytes, got, sizeof got);
    if (room <= fixed || sb->capacity < USEFUL)
        return base_fail(YOLK_ERR_NO_SPACE, 0,
                         "a capacity of %s was asked for, and of the file system only %s is free",
                         asked, got);
    char now[32];
    snprintf(info->note, sizeof info->note,
             "the capacity is %s instead of %s: of the file system only %s is free, of which a "
             "twentieth (at most 1GiB) is left",
             base_format_size(sb->capacity, now, sizeof now), asked, got);
    return YOLK_OK;
}

/* Where blocks cannot be reserved, those of superblocks and journal are, by zeros: they must never
 * meet a full disk. */
static int write_zeros(struct file *file, uint64_t size)
{
    uint8_t *zeros = aligned_alloc(FORMAT_BLOCK, ZERO_BYTES);
    if (zeros == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "making an extent file");
    memset(zeros, 0, ZERO_BYTES);
    int status = YOLK_OK;
    for (uint64_t at = 0; at < size && status == YOLK_OK; at += ZERO_BYTES)
        status =
            file_pwrite(file, zeros, size - at < ZERO_BYTES ? (size_t)(size - at) : ZERO_BYTES, at);
    free(zeros);
    return status;
}

static int allocate(struct slot *slot, const struct storage_options *options,
                    struct format_superblock *sb, struct storage_info *info)
{
    uint64_t has, free_bytes;
    int status = YOLK_ERR_NO_SPACE;
    for (unsigned i = 0; i < TRIES && status == YOLK_ERR_NO_SPACE; i++) {
        status = slot->fresh ? file_resize(slot->file, 0) : YOLK_OK;
        if (status == YOLK_OK)
            status = file_size(slot->file, &has);
        if (status == YOLK_OK)
            status = file_space(slot->file, &free_bytes);
        if (status != YOLK_OK)
            return status;
        status = fit(options, free_bytes, has, sb, info);
        if (status != YOLK_OK)
            return status;
        status = file_fallocate(slot->file, 0, format_extent_offset(sb) + sb->capacity);
    }
    sb->preallocated = status == YOLK_OK;
    if (status != YOLK_ERR_UNSUPPORTED)
        return status;
    size_t used = strlen(info->note);
    snprintf(info->note + used, sizeof info->note - used,
             "%sthe file system cannot reserve blocks: the file is sparse, and writes may find the "
             "disk full",
             used > 0 ? "; " : "");
    uint64_t whole = format_extent_offset(sb) + sb->capacity;
    status = has < whole ? file_resize(slot->file, whole) : YOLK_OK;
    return status == YOLK_OK && slot->fresh ? write_zeros(slot->file, format_extent_offset(sb))
                                            : status;
}

int slot_format(struct slot *slot, const struct storage_options *options,
                const struct format_superblock *before, struct format_superblock *sb,
                struct storage_info *info)
{
    *sb = (struct format_superblock){
        .version = FORMAT_VERSION,
        .generation = before != NULL ? before->generation + 1 : 1,
        .sequence = before != NULL ? before->sequence : 0,
        .salt = random_u64(&options->random),
        .clean = true,
    };
    random_bytes(&options->random, sb->storage_id, sizeof sb->storage_id);
    int status = allocate(slot, options, sb, info);
    /* The other copy too, for it is of an earlier life, or nothing. */
    for (unsigned i = 0; i < FORMAT_SUPERBLOCKS && status == YOLK_OK; i++)
        status = superblock_write(slot->file, sb);
    return status == YOLK_OK ? slot_trim(slot->file, sb) : status;
}

int slot_trim(struct file *file, const struct format_superblock *sb)
{
    uint64_t size, whole = format_extent_offset(sb) + sb->capacity;
    int status = file_size(file, &size);
    return status == YOLK_OK && size > whole ? file_resize(file, whole) : status;
}

int slot_grow(struct slot *slot, const struct storage_options *options,
              struct format_superblock *sb, struct storage_info *info)
{
    uint64_t free_bytes, whole = format_extent_offset(sb) + sb->capacity;
    uint64_t more = round_down(options->capacity_bytes) - sb->capacity;
    int status = file_space(slot->file, &free_bytes);
    if (status != YOLK_OK)
        return status;
    if (more > usable(free_bytes))
        more = round_down(usable(free_bytes));
    status = sb->preallocated ? file_fallocate(slot->file, whole, more)
                              : file_resize(slot->file, whole + more);
    if (status == YOLK_OK)
        sb->capacity += more;
    if (sb->span < sb->capacity)
        sb->span = sb->capacity;
    char asked[32], now[32], left[32];
    if (sb->capacity < round_down(options->capacity_bytes))
        snprintf(info->note, sizeof info->note,
                 "the capacity is %s instead of %s: of the file system only %s is free",
                 base_format_size(sb->capacity, now, sizeof now),
                 base_format_size(options->capacity_bytes, asked, sizeof asked),
                 base_format_size(free_bytes, left, sizeof left));
    return status == YOLK_ERR_NO_SPACE ? YOLK_OK : status;
}
