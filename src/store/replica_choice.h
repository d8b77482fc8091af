/* SPDX-License-Identifier: Apache-2.0 */
/* Which replica of a value to read: one order for every kind of get. */
#ifndef YOLK_STORE_REPLICA_CHOICE_H
#define YOLK_STORE_REPLICA_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "wire/msg.h"

struct store_replica {
    uint64_t segment;
    uint64_t offset;
    uint32_t medium;   /* enum wire_medium */
    uint32_t checksum; /* crc32c of the value; LOCAL_DISK only */
};

static inline struct store_replica store_replica_of(struct wire_view list, uint32_t index)
{
    struct wire_replica replica = wire_replica_at(list, index);
    return (struct store_replica){replica.segment, replica.offset, replica.medium,
                                  replica.checksum};
}

struct store_replica_choice {
    void *self;
    /* Cost of reading it: 0 own memory, 1 memory of the same machine, 2 unknown or of another
     * machine, 3 own disk, 4 another node's disk, larger: sick, to be tried last. */
    uint32_t (*cost)(void *self, const struct store_replica *replica);
};

enum { STORE_REPLICAS_MAX = 64 }; /* one bit each in the mask of those tried */

/* The index of the cheapest replica whose bit in `tried` is not set (ties: spread by salt so that
 * readers of a hot key do not all ask the same node), or -1. choice may be NULL: as given. */
int store_replica_choose(const struct store_replica_choice *choice,
                         const struct store_replica *replicas, uint32_t count, uint64_t tried,
                         uint64_t salt);
#endif
