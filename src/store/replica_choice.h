/* SPDX-License-Identifier: Apache-2.0 */
/* Which replica of a value to read: one order for every kind of get. */
#ifndef YOLK_STORE_REPLICA_CHOICE_H
#define YOLK_STORE_REPLICA_CHOICE_H

#include <stddef.h>
#include <stdint.h>

struct store_replica {
    uint64_t segment;
    uint64_t offset;
};

struct store_replica_choice {
    void *self;
    /* Cost of reading from a segment: 0 own memory, 1 same machine, 2 unknown or other machine,
     * larger: sick, to be tried last. */
    uint32_t (*cost)(void *self, uint64_t segment);
};

enum { STORE_REPLICAS_MAX = 64 }; /* one bit each in the mask of those tried */

/* The index of the cheapest replica whose bit in `tried` is not set (ties: spread by salt so that
 * readers of a hot key do not all ask the same node), or -1. choice may be NULL: as given. */
int store_replica_choose(const struct store_replica_choice *choice,
                         const struct store_replica *replicas, uint32_t count, uint64_t tried,
                         uint64_t salt);
#endif
