/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an extent file's superblocks and journal; nothing here writes. For open and for fsck. */
#ifndef STORAGE_RECOVER_H
#define STORAGE_RECOVER_H

#include "platform/file.h"
#include "storage/journal.h"
#include "storage/map.h"

/* Blocks of the journal that hold no frame though there are frames behind them. */
struct recover_hole {
    uint32_t index;
    uint32_t blocks;
};

struct recovery {
    struct file *file;
    struct format_superblock sb;
    struct map *map;
    void (*say)(void *self, const char *line); /* of each thing that is wrong */
    void *self;

    bool in_newer; /* of the areas: the records that are being applied */
    struct journal_start start;
    struct recover_hole *holes; /* of the area that recording goes on in */
    size_t hole_count, hole_room;
    uint64_t frames, records; /* that count */
    uint64_t pending;         /* blocks lost after the last sync, as a crash may do */
    uint64_t damaged;         /* things that are wrong, as said */
};

/* The superblock that counts. The last error says what is wrong otherwise: EOF: the file is too
 * short for one; UNSUPPORTED: foreign, or of a newer format; CORRUPT: zeros, or damaged. */
YOLK_MUST_USE int recover_superblock(struct recovery *r);
/* Fills the map with the committed extents. CORRUPT: parts of the journal without which nothing can
 * be said are gone. */
YOLK_MUST_USE int recover_journal(struct recovery *r);
void recovery_free(struct recovery *r);

/* Reads the value and compares: *good. */
YOLK_MUST_USE int recover_verify(struct recovery *r, const struct extent *e, bool *good);

void recover_wrong(struct recovery *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
