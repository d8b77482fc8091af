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
    uint32_t medium;     /* enum wire_medium */
    uint32_t checksum;   /* crc32c of the value; LOCAL_DISK, and GDS if it is known */
    struct wire_gds gds; /* GDS only */
};

/* In the order in which replicas are read. */
enum store_cost {
    STORE_COST_OWN_MEMORY = 0,
    STORE_COST_NEAR_MEMORY, /* of this machine */
    STORE_COST_MEMORY,      /* unknown, or of another machine */
    STORE_COST_OWN_GDS,
    STORE_COST_OWN_DISK,
    STORE_COST_DISK,        /* of another node */
    STORE_COST_GDS,         /* of another client, through it */
    STORE_COST_SICK_MEMORY, /* it failed a moment ago */
    STORE_COST_SICK_DISK,
};

static inline struct store_replica store_replica_of(struct wire_view list, uint32_t index)
{
    struct wire_replica replica = wire_replica_at(list, index);
    return (struct store_replica){.segment = replica.segment,
                                  .offset = replica.offset,
                                  .medium = replica.medium,
                                  .checksum = replica.checksum};
}

struct store_replica_choice {
    void *self;
    /* Cost of reading it: enum store_cost, or any other order. */
    uint32_t (*cost)(void *self, const struct store_replica *replica);
};

enum { STORE_REPLICAS_MAX = 64 }; /* one bit each in the mask of those tried */

/* The index of the cheapest replica whose bit in `tried` is not set (ties: spread by salt so that
 * readers of a hot key do not all ask the same node), or -1. choice may be NULL: as given. */
int store_replica_choose(const struct store_replica_choice *choice,
                         const struct store_replica *replicas, uint32_t count, uint64_t tried,
                         uint64_t salt);
#endif
