/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/recover.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"

#define CHUNK_FIRST  32u        /* blocks of the journal read at a time; then twice as many, */
#define CHUNK_BLOCKS 1024u      /* up to this */
#define VERIFY_BYTES (1u << 20) /* of a value */

void recover_wrong(struct recovery *r, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    r->damaged++;
    if (r->say != NULL)
        r->say(r->self, line);
}

void recovery_free(struct recovery *r)
{
    free(r->holes);
    r->holes = NULL;
}

/* ---- superblocks ---- */
static int refuse(const enum format_found found[FORMAT_SUPERBLOCKS],
                  const struct format_superblock copies[FORMAT_SUPERBLOCKS])
{
    for (unsigned i = 0; i < FORMAT_SUPERBLOCKS; i++)
        if (found[i] == FORMAT_NEWER)
            return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                             "it has format version %u with features %llx; this program reads "
                             "version %u without features",
                             copies[i].version, (unsigned long long)copies[i].incompatible,
                             FORMAT_VERSION);
    for (unsigned i = 0; i < FORMAT_SUPERBLOCKS; i++)
        if (found[i] == FORMAT_DAMAGED)
            return base_fail(YOLK_ERR_CORRUPT, 0, "both of its superblocks are damaged");
    if (found[0] == FORMAT_ZERO && found[1] == FORMAT_ZERO)
        return base_fail(YOLK_ERR_CORRUPT, 0,
                         "there are only zeros where its superblocks should be");
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it is not an extent file");
}

int recover_superblock(struct recovery *r)
{
    enum format_found found[FORMAT_SUPERBLOCKS];
    struct format_superblock copies[FORMAT_SUPERBLOCKS];
    uint8_t *block = aligned_alloc(FORMAT_BLOCK, FORMAT_BLOCK);
    if (block == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "a superblock");
    uint64_t size = 0;
    int status = file_size(r->file, &size);
    if (status == YOLK_OK && size < FORMAT_JOURNAL_OFFSET)
        status = base_fail(YOLK_ERR_EOF, 0, "it has %llu bytes, too few for an extent file",
                           (unsigned long long)size);
    for (unsigned i = 0; i < FORMAT_SUPERBLOCKS && status == YOLK_OK; i++) {
        size_t got;
        status =
            file_pread(r->file, block, FORMAT_BLOCK, (uint64_t)i * FORMAT_SUPERBLOCK_GAP, &got);
        if (status == YOLK_OK)
            found[i] = format_superblock_decode(block, &copies[i]);
    }
    free(block);
    if (status != YOLK_OK)
        return status;
    int best = -1;
    for (int i = 0; i < (int)FORMAT_SUPERBLOCKS; i++)
        if (found[i] == FORMAT_VALID && (best < 0 || copies[i].sequence > copies[best].sequence))
            best = i;
    if (best < 0 || found[1 - best] == FORMAT_NEWER)
        return refuse(found, copies);
    if (found[1 - best] != FORMAT_VALID)
        recover_wrong(r, "superblock %d is not valid; the other one is used", 1 - best);
    r->sb = copies[best];
    uint64_t whole = format_extent_offset(&r->sb) + r->sb.capacity;
    if (size < whole)
        return base_fail(YOLK_ERR_CORRUPT, 0, "it was cut off: %llu bytes of %llu",
                         (unsigned long long)size, (unsigned long long)whole);
    return YOLK_OK;
}

/* ---- walking over the frames of an area ---- */
struct walk {
    struct recovery *r;
    unsigned area;
    uint64_t epoch; /* 0: any epoch; then of the first window alone, all of it */
    int (*visit)(struct walk *w, const struct format_frame *frame, const uint8_t *bytes);
    uint8_t *chunk;

    /* what scanning finds */
    bool complete;
    uint64_t newest; /* epoch */
    uint32_t end;    /* behind the last frame */
    uint32_t synced;
    uint64_t cursor; /* of the last frame before the first hole */
};

/* Frames may be missing behind the last sync, never more than a window of blocks; so a window of
 * blocks without one is the end. Which epochs there are is asked of the first window as a whole:
 * were it to end earlier, frames written later could join what is found to what was not. */
static bool walk_ended(const struct walk *w, uint32_t window, uint32_t at, uint32_t misses)
{
    return w->epoch == 0 ? at > window : misses > window;
}

static int walk(struct walk *w)
{
    const struct format_superblock *sb = &w->r->sb;
    uint32_t blocks = format_area_blocks(sb), window = journal_window(blocks), at = 0, misses = 0;
    uint32_t chunk = CHUNK_FIRST;
    if (w->epoch == 0)
        blocks = window + FORMAT_FRAME_BLOCKS;
    while (at < blocks && !walk_ended(w, window, at, misses)) {
        uint32_t count = chunk + FORMAT_FRAME_BLOCKS;
        if (count > blocks - at)
            count = blocks - at;
        size_t got;
        int status =
            file_pread(w->r->file, w->chunk, (size_t)count * FORMAT_BLOCK,
                       format_area_offset(sb, w->area) + (uint64_t)at * FORMAT_BLOCK, &got);
        if (status != YOLK_OK)
            return base_fail_context(status, "its journal");
        uint32_t stop = at + (count < chunk ? count : chunk), first = at;
        chunk = 2 * chunk < CHUNK_BLOCKS ? 2 * chunk : CHUNK_BLOCKS;
        while (at < stop && !walk_ended(w, window, at, misses)) {
            const uint8_t *bytes = w->chunk + (size_t)(at - first) * FORMAT_BLOCK;
            size_t left = (size_t)(first + count - at) * FORMAT_BLOCK;
            struct format_frame frame;
            if (!format_frame_decode(bytes, left, sb->salt, &frame) || frame.index != at ||
                frame.epoch % 2 != w->area || (w->epoch != 0 && frame.epoch != w->epoch)) {
                at++;
                misses++;
                continue;
            }
            status = w->visit(w, &frame, bytes);
            if (status != YOLK_OK)
                return status;
            at += frame.blocks;
            misses = 0;
        }
    }
    return YOLK_OK;
}

static int note_epoch(struct walk *w, const struct format_frame *frame, const uint8_t *bytes)
{
    (void)bytes;
    if (frame->epoch > w->newest)
        w->newest = frame->epoch;
    return YOLK_OK;
}

static int add_hole(struct recovery *r, uint32_t index, uint32_t blocks)
{
    if (r->hole_count == r->hole_room) {
        size_t room = r->hole_room ? 2 * r->hole_room : 16;
        struct recover_hole *holes = base_realloc(r->holes, room * sizeof *holes);
        if (holes == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "recovery");
        r->holes = holes;
        r->hole_room = room;
    }
    r->holes[r->hole_count++] = (struct recover_hole){index, blocks};
    return YOLK_OK;
}

static int scan_frame(struct walk *w, const struct format_frame *frame, const uint8_t *bytes)
{
    (void)bytes;
    int status = YOLK_OK;
    if (frame->index > w->end)
        status = add_hole(w->r, w->end, frame->index - w->end);
    if (w->r->hole_count == 0)
        w->cursor = frame->cursor;
    w->complete |= frame->complete;
    w->end = frame->index + frame->blocks;
    if (frame->synced > w->synced)
        w->synced = frame->synced;
    return status;
}

/* ---- applying records ---- */
/* Later records win: what lies where a new extent is must be gone, and its delete record lost. */
static void clear_place(struct recovery *r, const struct format_record *record)
{
    struct extent *e = map_from(r->map, record->offset), *next;
    for (; e != NULL && map_offset(r->map, e) < record->offset + record->allocated; e = next) {
        next = map_after(r->map, e);
        recover_wrong(r, "extents overlap: %llu bytes at %llu, and later %llu at %llu",
                      (unsigned long long)map_allocated(r->map, e),
                      (unsigned long long)map_offset(r->map, e),
                      (unsigned long long)record->allocated, (unsigned long long)record->offset);
        map_release(r->map, e);
    }
}

static bool same(const struct extent *e, const struct format_record *record)
{
    return e != NULL && e->size == record->size && e->checksum == record->checksum &&
           e->unchecked == record->unchecked;
}

static int apply_record(struct recovery *r, const struct format_record *record, bool unproven)
{
    struct extent *e;
    if (record->offset + record->allocated > r->sb.capacity)
        return YOLK_OK; /* from before the file was made smaller */
    if (record->type == FORMAT_DELETE) {
        /* None there: the checkpoint had not come to it, or the commit record was not synced. */
        e = map_at(r->map, record->offset);
        if (same(e, record))
            map_release(r->map, e);
        return YOLK_OK;
    }
    int status = map_place_committed(r->map, record, &e);
    if (status == YOLK_ERR_NO_SPACE) { /* known already, or in the way of one that is */
        e = map_at(r->map, record->offset);
        if (same(e, record) && e->key_size == record->key_size &&
            memcmp(e->key, record->key, record->key_size) == 0) {
            e->current = r->in_newer;
            return YOLK_OK;
        }
        clear_place(r, record);
        status = map_place_committed(r->map, record, &e);
    }
    if (status != YOLK_OK)
        return status;
    e->journaled = true;
    e->unproven = unproven;
    e->current = r->in_newer;
    return YOLK_OK;
}

static int apply_frame(struct walk *w, const struct format_frame *frame, const uint8_t *bytes)
{
    struct recovery *r = w->r;
    const uint8_t *at = bytes + FORMAT_FRAME_HEADER, *end = bytes + frame->bytes;
    bool unproven = frame->index >= w->synced;
    uint32_t records = 0;
    r->frames++;
    for (;;) {
        struct format_record record;
        int more = format_record_decode(&at, end, r->sb.span, &record);
        if (more == 0 && records == frame->records)
            return YOLK_OK;
        if (more <= 0) {
            recover_wrong(r, "journal area %u, block %u: record %u cannot be", w->area,
                          frame->index, records);
            return YOLK_OK;
        }
        records++;
        r->records++;
        int status = apply_record(r, &record, unproven);
        if (status != YOLK_OK)
            return status;
    }
}

/* ---- the whole ---- */
static int scan(struct walk *w, uint64_t epoch)
{
    w->area = epoch % 2;
    w->epoch = epoch;
    w->visit = scan_frame;
    w->r->hole_count = 0;
    return walk(w);
}

static int apply(struct walk *w)
{
    w->visit = apply_frame;
    return walk(w);
}

/* Holes below `synced` are damage, those above what a crash leaves. */
static void judge_holes(struct walk *w, uint32_t synced)
{
    struct recovery *r = w->r;
    for (size_t i = 0; i < r->hole_count; i++) {
        const struct recover_hole *hole = &r->holes[i];
        if (hole->index < synced)
            recover_wrong(r, "journal area %u: no record at blocks %u to %u, which were synced",
                          w->area, hole->index, hole->index + hole->blocks - 1);
        else
            r->pending += hole->blocks;
    }
}

static int find_epochs(struct recovery *r, uint8_t *chunk, uint64_t newest[2])
{
    for (unsigned area = 0; area < 2; area++) {
        struct walk w = {.r = r, .area = area, .visit = note_epoch, .chunk = chunk};
        int status = walk(&w);
        if (status != YOLK_OK)
            return status;
        newest[area] = w.newest;
    }
    return YOLK_OK;
}

/* The area before an incomplete one: all of it was synced before the turn. */
static int recover_old(struct recovery *r, uint8_t *chunk, uint64_t epoch, uint64_t found)
{
    struct walk old = {.r = r, .chunk = chunk};
    if (found != epoch)
        return base_fail(YOLK_ERR_CORRUPT, 0,
                         "its journal of epoch %llu is gone, without which the later one says too "
                         "little",
                         (unsigned long long)epoch);
    int status = scan(&old, epoch);
    if (status != YOLK_OK)
        return status;
    judge_holes(&old, old.end);
    old.synced = old.end;
    return apply(&old);
}

/* The checkpoint goes on at the first extent that only the older area knows: whatever the newer one
 * says of how far it came. One below that was deleted, but for its record: it is back, and stays.
 */
static uint64_t checkpoint_cursor(const struct recovery *r, uint64_t said)
{
    const struct extent *e = map_from(r->map, 0);
    while (e != NULL && e->current)
        e = map_after(r->map, e);
    return e != NULL && map_offset(r->map, e) < said ? map_offset(r->map, e) : said;
}

static int recover_areas(struct recovery *r, uint8_t *chunk)
{
    uint64_t newest[2];
    int status = find_epochs(r, chunk, newest);
    if (status != YOLK_OK)
        return status;
    uint64_t epoch = newest[0] > newest[1] ? newest[0] : newest[1];
    if (epoch < r->sb.epoch)
        return base_fail(YOLK_ERR_CORRUPT, 0, "its journal is gone: epoch %llu of %llu",
                         (unsigned long long)epoch, (unsigned long long)r->sb.epoch);
    if (epoch == 0) {
        r->start = (struct journal_start){.epoch = 1, .complete = true, .cursor = UINT64_MAX};
        return YOLK_OK;
    }
    struct walk w = {.r = r, .chunk = chunk};
    status = scan(&w, epoch);
    /* Epoch 1 has nothing before it that a checkpoint could repeat. */
    if (status == YOLK_OK && !w.complete && epoch > 1) {
        status = recover_old(r, chunk, epoch - 1, newest[(epoch - 1) % 2]);
        w = (struct walk){.r = r, .chunk = chunk};
        if (status == YOLK_OK)
            status = scan(&w, epoch);
    }
    if (status != YOLK_OK)
        return status;
    if (r->sb.clean && (epoch != r->sb.epoch || w.end != r->sb.end_block))
        recover_wrong(r, "the journal ends at epoch %llu, block %u; it was closed at %llu, %u",
                      (unsigned long long)epoch, w.end, (unsigned long long)r->sb.epoch,
                      r->sb.end_block);
    judge_holes(&w, r->sb.clean ? w.end : w.synced);
    r->in_newer = true;
    status = apply(&w);
    r->start = (struct journal_start){.epoch = epoch,
                                      .head = w.end,
                                      .cursor = checkpoint_cursor(r, w.cursor),
                                      .complete = w.complete || epoch == 1};
    return status;
}

int recover_journal(struct recovery *r)
{
    size_t blocks = format_area_blocks(&r->sb), most = CHUNK_BLOCKS + FORMAT_FRAME_BLOCKS;
    uint8_t *chunk =
        aligned_alloc(FORMAT_BLOCK, (blocks < most ? blocks : most) * (size_t)FORMAT_BLOCK);
    if (chunk == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "recovery");
    int status = recover_areas(r, chunk);
    free(chunk);
    return status == YOLK_OK ? map_hash_all(r->map) : status;
}

int recover_verify(struct recovery *r, const struct extent *e, bool *good)
{
    uint64_t room = map_allocated(r->map, e);
    uint8_t *bytes = aligned_alloc(FORMAT_BLOCK, room < VERIFY_BYTES ? room : VERIFY_BYTES);
    if (bytes == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "recovery");
    uint64_t offset = format_extent_offset(&r->sb) + map_offset(r->map, e);
    uint32_t crc = 0;
    int status = YOLK_OK;
    for (uint64_t at = 0; at < e->size && status == YOLK_OK; at += VERIFY_BYTES) {
        size_t size = e->size - at < VERIFY_BYTES ? (size_t)(e->size - at) : VERIFY_BYTES, got;
        size_t padded = (size + FORMAT_BLOCK - 1) / FORMAT_BLOCK * FORMAT_BLOCK;
        status = file_pread(r->file, bytes, padded, offset + at, &got);
        crc = base_crc32c(crc, bytes, size);
    }
    free(bytes);
    *good = crc == e->checksum;
    return status;
}
