/* SPDX-License-Identifier: Apache-2.0 */
/* What the session machine mounts of a disk: its segment, and the extents that it offers. */
#ifndef STORE_DISK_MOUNT_H
#define STORE_DISK_MOUNT_H

#include <stdint.h>

#include "base/limits.h"

struct store_disk_offer {
    uint64_t offset;
    uint64_t size;
    uint32_t checksum;
    uint32_t key_size;
    int pinned; /* hard; of memory only */
    uint8_t key[MAX_KEY_SIZE];
};

struct store_disk_mount {
    uint64_t size;
    const char *endpoints;
    uint8_t storage_id[16];      /* lasts as long as the extents do */
    uint64_t storage_generation; /* of a GDS file: grows when it is made anew */
    void *self;
    /* Committed extents now; a hint. The master hears of all anew. */
    uint64_t (*count)(void *self);
    /* The extent with the lowest offset >= *cursor; moves the cursor past it. 0: there is none. */
    int (*next)(void *self, uint64_t *cursor, struct store_disk_offer *offer);
    /* The master does not want the extent at `offset`: it is deleted. */
    int (*reject)(void *self, uint64_t offset); /* OK also when there is none; NO_MEMORY */
};
#endif
