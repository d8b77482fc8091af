/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/journal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mutation.h"

#define WINDOW_MAX 1024u /* blocks: 4 MiB */
#define PLAN_MAX   256u  /* blocks: 1 MiB */
#define RECORDS_SHARE                                                                              \
    4u /* while there is a checkpoint to write, records get a quarter of a write */
#define ROOM_FOR_REPAIR 2u /* windows left in an area that is turned from: recovery writes too */

uint32_t journal_window(uint32_t blocks)
{
    return blocks / 16 < WINDOW_MAX ? blocks / 16 : WINDOW_MAX;
}

/* Of an area: 7/16 for the checkpoint, hardly more with the gaps at the ends of frames; a third of
 * that for records beside it; two windows while its syncs are awaited; two for recovery. */
uint64_t journal_index_max(uint64_t journal_bytes)
{
    return journal_bytes / 16 * 7;
}

void extent_push(struct extent_queue *q, struct extent *e)
{
    e->next = NULL;
    if (q->first == NULL)
        q->first = e;
    else
        q->last->next = e;
    q->last = e;
    q->pushed++;
}

struct extent *extent_pop(struct extent_queue *q)
{
    struct extent *e = q->first;
    if (e == NULL)
        return NULL;
    q->first = e->next;
    e->next = NULL;
    q->popped++;
    return e;
}

int journal_init(struct journal *j, const struct format_superblock *sb, struct map *map,
                 const struct journal_start *start)
{
    *j = (struct journal){
        .map = map,
        .salt = sb->salt,
        .areas_offset = format_area_offset(sb, 0),
        .area_bytes = sb->journal_bytes,
        .blocks = format_area_blocks(sb),
        .epoch = start->epoch,
        .head = start->head,
        .synced = start->head,
        .tail_start = start->head,
        .cursor = start->complete ? UINT64_MAX : start->cursor,
        .cursor_block = start->head,
        /* What recovery left is on stable media, so all entries written is a complete checkpoint.
         */
        .complete = start->complete || start->cursor == UINT64_MAX,
        .other_free = start->complete,
    };
    j->window = journal_window(j->blocks);
    j->plan_blocks = j->window / 2 < PLAN_MAX ? j->window / 2 : PLAN_MAX;
    j->tail = aligned_alloc(FORMAT_BLOCK, (size_t)j->window * FORMAT_BLOCK);
    return j->tail != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "journal buffer");
}

void journal_free(struct journal *j)
{
    free(j->tail);
    j->tail = NULL;
}

void journal_queue(struct journal *j, struct extent *e)
{
    extent_push(&j->queue, e);
}

/* ---- frames ---- */
struct builder {
    struct journal *j;
    uint8_t *start; /* of the open frame, which begins at block `at` of the write */
    uint32_t at;
    uint32_t bytes; /* of the open frame; 0: none is open */
    uint32_t records;
};

static void frame_close(struct builder *b)
{
    if (b->bytes == 0)
        return;
    struct journal *j = b->j;
    struct format_frame frame = {
        .epoch = j->epoch,
        .index = j->head + b->at,
        .bytes = b->bytes,
        .records = b->records,
        .synced = j->synced,
        .complete = j->complete,
        .cursor = j->cursor,
    };
    format_frame_seal(&frame, j->salt, b->start);
    b->at += frame.blocks;
    b->bytes = 0;
}

static bool frame_open(struct builder *b, uint32_t limit)
{
    if (b->at >= limit)
        return false;
    b->start = b->j->tail + (size_t)(b->j->head - b->j->tail_start + b->at) * FORMAT_BLOCK;
    b->bytes = FORMAT_FRAME_HEADER;
    b->records = 0;
    return true;
}

/* False: it does not fit into the first `limit` blocks of the write. */
static bool add(struct builder *b, const struct extent *e, enum format_record_type type,
                uint32_t limit)
{
    struct format_record record = {
        .type = (uint8_t)type,
        .checksum = e->checksum,
        .unchecked = e->unchecked,
        .offset = map_offset(b->j->map, e),
        .size = e->size,
        .allocated = map_allocated(b->j->map, e),
        .key = e->key,
        .key_size = type == FORMAT_DELETE ? 0 : e->key_size,
    };
    size_t size = format_record_size(record.key_size);
    for (int frames = 0; frames < 2; frames++) {
        if (b->bytes == 0 && !frame_open(b, limit))
            return false;
        uint32_t room = limit - b->at < FORMAT_FRAME_BLOCKS ? limit - b->at : FORMAT_FRAME_BLOCKS;
        if (b->bytes + size <= (size_t)room * FORMAT_BLOCK) {
            format_record_encode(&record, b->start + b->bytes);
            b->bytes += (uint32_t)size;
            b->records++;
            return true;
        }
        if (b->records == 0 || room < FORMAT_FRAME_BLOCKS)
            return false;
        frame_close(b);
    }
    return false;
}

/* Records of the queue, as many as fit. A DOOMED extent no record of which is on the disk needs
 * none; it passes to `writing` all the same, to become free with the others. */
static void add_records(struct builder *b, uint32_t limit)
{
    struct journal *j = b->j;
    for (struct extent *e; (e = j->queue.first) != NULL; extent_push(&j->writing, e)) {
        bool dead = e->state == EXTENT_DOOMED && !e->journaled;
        bool lost = mutated(MUT_LOSE_JOURNAL_RECORD) && e->serial % 4 == 3;
        enum format_record_type type = e->state == EXTENT_DOOMED ? FORMAT_DELETE : FORMAT_COMMIT;
        if (!dead && !lost && !add(b, e, type, limit))
            return;
        j->planned_unchecked |= type == FORMAT_COMMIT && e->unchecked;
        extent_pop(&j->queue);
        e->journaled = !dead;
        e->erased = type == FORMAT_DELETE && !dead;
    }
}

static void add_checkpoint(struct builder *b, uint32_t limit)
{
    struct journal *j = b->j;
    struct extent *e = map_from(j->map, j->cursor);
    for (; e != NULL; e = map_after(j->map, e)) {
        /* The cursor may lie within an extent that began below it and is in a frame already. */
        if (e->state != EXTENT_COMMITTED || map_offset(j->map, e) < j->cursor)
            continue;
        if (!add(b, e, FORMAT_CHECKPOINT, limit))
            return;
        j->cursor = map_offset(j->map, e) + FORMAT_BLOCK;
    }
    j->cursor = UINT64_MAX;
}

/* ---- plans ---- */
static void turn(struct journal *j)
{
    assert(!j->syncing);
    j->epoch++;
    j->head = j->synced = j->tail_start = 0;
    j->cursor = 0;
    j->complete = false;
    j->complete_block = 0;
    j->other_free = false;
    j->mark = true; /* the new epoch must leave a trace */
}

/* The first frame that says `complete` is worth a write of its own: it frees the other area. */
static bool news(const struct journal *j)
{
    return j->mark || (j->complete && !j->other_free && j->complete_block == 0);
}

static enum storage_step give(struct journal *j, uint32_t block, uint32_t count,
                              struct storage_io *io)
{
    io->data = j->tail + (size_t)(block - j->tail_start) * FORMAT_BLOCK;
    io->size = (size_t)count * FORMAT_BLOCK;
    io->offset = j->areas_offset + (j->epoch % 2) * j->area_bytes + (uint64_t)block * FORMAT_BLOCK;
    return STORAGE_WRITE;
}

static enum storage_step build(struct journal *j, struct storage_io *io)
{
    uint32_t limit = j->blocks - j->head < j->plan_blocks ? j->blocks - j->head : j->plan_blocks;
    struct builder b = {.j = j};
    bool behind = j->cursor != UINT64_MAX;
    add_records(&b, behind ? limit / RECORDS_SHARE : limit);
    if (behind)
        add_checkpoint(&b, limit);
    if (b.at == 0 && b.bytes == 0 && news(j) && !frame_open(&b, limit))
        j->full = true;
    frame_close(&b);
    if (b.at == 0) {
        j->full |= j->queue.first != NULL;
        return STORAGE_NOTHING;
    }
    if (behind && j->cursor == UINT64_MAX)
        j->cursor_block = j->head + b.at;
    if (j->complete && j->complete_block == 0)
        j->complete_block = j->head + b.at;
    j->mark = false;
    j->planned = b.at;
    return give(j, j->head, b.at, io);
}

enum storage_step journal_plan(struct journal *j, struct storage_io *io)
{
    *io = (struct storage_io){0};
    if (j->rewriting)
        return give(j, j->synced, j->head - j->synced, io);
    if (j->planned > 0)
        return give(j, j->head, j->planned, io);
    if (j->rewrite) {
        j->rewriting = true;
        return give(j, j->synced, j->head - j->synced, io);
    }
    if (j->queue.first == NULL && !news(j))
        return STORAGE_NOTHING;
    if (j->other_free && j->blocks - j->head < j->plan_blocks + ROOM_FOR_REPAIR * j->window) {
        if (j->synced < j->head)
            return STORAGE_SYNC_FIRST;
        turn(j);
    }
    if (j->tail_start < j->synced) {
        memmove(j->tail, j->tail + (size_t)(j->synced - j->tail_start) * FORMAT_BLOCK,
                (size_t)(j->head - j->synced) * FORMAT_BLOCK);
        j->tail_start = j->synced;
    }
    if (j->head - j->tail_start + j->plan_blocks > j->window)
        return STORAGE_SYNC_FIRST;
    return build(j, io);
}

void journal_written(struct journal *j)
{
    if (j->rewriting) {
        j->rewriting = j->rewrite = false;
        return;
    }
    j->head += j->planned;
    j->planned = 0;
    j->unchecked |= j->planned_unchecked;
    j->planned_unchecked = false;
    j->full = false;
}

bool journal_sync_plan(struct journal *j)
{
    assert(!j->syncing);
    if (j->rewrite || j->head == j->synced)
        return false;
    j->syncing = true;
    j->sync_unchecked |= j->unchecked;
    j->unchecked = false;
    j->sync_block = j->head;
    j->sync_waiting = j->waiting.pushed;
    return true;
}

void journal_synced(struct journal *j)
{
    j->syncing = false;
    j->synced = j->sync_block;
    j->mark |= j->sync_unchecked;
    j->sync_unchecked = false;
    if (j->cursor == UINT64_MAX && j->synced >= j->cursor_block)
        j->complete = true;
    if (j->complete_block > 0 && j->synced >= j->complete_block)
        j->other_free = true;
}

void journal_sync_failed(struct journal *j)
{
    j->syncing = false;
    j->rewrite = true;
}

bool journal_busy(const struct journal *j)
{
    return j->queue.first != NULL || j->planned > 0 || j->rewrite || j->synced < j->head;
}
