/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's writing half. Records go to the active area, frame by frame, in order. When it is
 * full, and its own checkpoint long complete, the other area becomes active with the next epoch;
 * from then on each write carries, behind its records, a piece of a checkpoint: CHECKPOINT records
 * of the COMMITTED extents in the order of their places. The old area stays until the new one is
 * complete and that is on stable media. So nothing ever stalls for a checkpoint.
 *
 * Replaying one complete area, or an old complete and then a new incomplete one, in order, gives
 * the committed extents.
 *
 * That a value without a checksum was synced nothing proves but a later frame that says so. Where
 * no record follows, an empty one is written after the sync; the sync of that proves nothing new,
 * and so is followed by none.
 *
 * The blocks since the last sync are kept in memory (`tail`, at most `window` of them), for after a
 * failed sync nothing is known of them: they are then written once more, byte for byte.
 */
#ifndef STORAGE_JOURNAL_H
#define STORAGE_JOURNAL_H

#include "storage/map.h"
#include "storage/storage.h"

/* Extents in order of arrival, linked by `next`. */
struct extent_queue {
    struct extent *first, *last;
    uint64_t pushed, popped;
};

struct journal {
    struct map *map;
    uint64_t salt;
    uint64_t areas_offset, area_bytes; /* in the file */
    uint32_t blocks;                   /* of an area */
    uint32_t window;                   /* blocks that may be unsynced */
    uint32_t plan_blocks;              /* of one write */

    uint64_t epoch;
    uint32_t head;   /* the next frame's block */
    uint32_t synced; /* blocks below are on stable media */
    uint8_t *tail;   /* window blocks: [tail_start, head) of the area and the write under way */
    uint32_t tail_start;

    uint64_t cursor;         /* of the checkpoint; UINT64_MAX: all entries are in frames */
    uint32_t cursor_block;   /* then: the head after the last of them */
    bool complete;           /* the checkpoint was on stable media: frames say so */
    uint32_t complete_block; /* the head after the first frame that says so; 0: none yet */
    bool other_free;         /* that frame is on stable media, so the other area may be used */

    struct extent_queue queue;   /* a record is to be written */
    struct extent_queue writing; /* it is being written */
    struct extent_queue waiting; /* DOOMED: the record was written, and not yet synced */

    bool mark;              /* a frame is due even without records */
    bool planned_unchecked; /* the write under way commits values without a checksum */
    bool unchecked;         /* so does what was written since the last sync began */
    bool sync_unchecked;    /* so does what the sync under way covers, or one that failed did */
    uint32_t planned;       /* blocks of the write under way */
    bool rewriting;         /* it is the tail once more */
    bool rewrite;           /* the tail must be written once more */
    uint32_t sync_block;    /* the sync under way covers blocks below this */
    uint64_t sync_waiting;  /* and this many of all that ever waited */
    bool syncing;
    bool full; /* not even a record fits; cannot be, but for crash upon crash */
};

/* Where recovery leaves off; `head` 0 and epoch 1 for an empty file. */
struct journal_start {
    uint64_t epoch;
    uint32_t head;
    uint64_t cursor;
    bool complete;
};

YOLK_MUST_USE int journal_init(struct journal *j, const struct format_superblock *sb,
                               struct map *map, const struct journal_start *start);
void journal_free(struct journal *j);
/* The most that records of all live extents may take, so that a checkpoint always fits. */
uint64_t journal_index_max(uint64_t journal_bytes);
/* Blocks of an area that may be unsynced at a time, and so missing after a crash. */
uint32_t journal_window(uint32_t blocks);

/* A record of it is due: of a WRITTEN extent COMMIT, of a DOOMED one DELETE. */
void journal_queue(struct journal *j, struct extent *e);

enum storage_step journal_plan(struct journal *j, struct storage_io *io);
/* After a good write: takes the extents it held from `writing`. */
void journal_written(struct journal *j);
bool journal_sync_plan(struct journal *j);
/* After a good sync: extents whose delete is durable now can be popped from `waiting` while
 * waiting.popped < sync_waiting. */
void journal_synced(struct journal *j);
void journal_sync_failed(struct journal *j);
/* Something is queued, or written and not synced. */
bool journal_busy(const struct journal *j);

void extent_push(struct extent_queue *q, struct extent *e);
struct extent *extent_pop(struct extent_queue *q);

#endif
