/* SPDX-License-Identifier: Apache-2.0 */
/* Where a value lies in the extent file of a GPUDirect Storage tier: six fields, in a message an
 * array of exactly these, in this order. */
#ifndef WIRE_GDS_H
#define WIRE_GDS_H

#include "wire/codec.h"

#define WIRE_GDS_ID_SIZE  16u
#define WIRE_GDS_FIELDS   6u
#define WIRE_GDS_SIZE_MAX 73u /* bytes of one, packed */

struct wire_gds {
    uint8_t owner_client_id[WIRE_GDS_ID_SIZE]; /* as in SESSION_OPEN */
    uint8_t storage_id[WIRE_GDS_ID_SIZE];      /* as in SEGMENT_MOUNT */
    uint64_t storage_generation;
    uint64_t value_offset; /* from the start of the area of extents */
    uint64_t value_size;
    uint64_t allocated_size; /* of the extent: at least value_size, a multiple of 4096 */
};
_Static_assert(sizeof(struct wire_gds) == 64, "compared as bytes");

static inline bool wire_gds_equal(const struct wire_gds *a, const struct wire_gds *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* A list of them: packed items one behind the other, nil where there is none. */
struct wire_gdss {
    uint32_t count; /* of the whole list, nils included */
    const uint8_t *at, *end;
};
/* Checks the whole list; an empty view is an empty list. LIMIT: more than max_count; PROTOCOL: an
 * item that is neither nil nor exactly the six fields. */
YOLK_MUST_USE int wire_gdss_open(struct wire_view view, uint32_t max_count, struct wire_gdss *out);
/* False after the last. */
bool wire_gdss_next(struct wire_gdss *list, struct wire_gds *out, bool *given);
/* NULL: nil. */
YOLK_MUST_USE int wire_gds_append(struct base_buf *out, const struct wire_gds *gds);

#endif
