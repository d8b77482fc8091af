/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways for the same bytes, of which the faster one is taken. Pure: the caller says what begins,
 * what ends and what time it is. Each way is measured while it alone is in use, in rounds: bytes
 * over the time in which something was under way. Most go the way that is in use; after so many
 * rounds of it one round goes the other way, and that is in use from then on if it was faster by a
 * margin. The more often a trial changed nothing, the later comes the next one.
 */
#ifndef YOLK_ENGINE_FASTER_H
#define YOLK_ENGINE_FASTER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FASTER_WAYS = 2,
    FASTER_MARGIN_PERCENT = 15, /* by so much the other one must be faster */
    FASTER_PAUSE_FIRST = 8,     /* rounds between two trials */
    FASTER_PAUSE_MAX = 256
};
#define FASTER_ROUND_BYTES (UINT64_C(64) << 20)
#define FASTER_ROUND_NS    UINT64_C(250000000) /* where so many bytes take longer */

struct faster_way {
    uint64_t under_way;       /* requests */
    uint64_t mixed;           /* of them, begun while the other way had some, too */
    uint64_t bytes, ns;       /* of the round */
    uint64_t speed;           /* bytes a second; 0: not measured */
    uint64_t requests, moved; /* ever: that ended, and their bytes */
};

/* All zeroes to begin with. */
struct faster {
    struct faster_way ways[FASTER_WAYS];
    uint64_t since_ns; /* the last call */
    uint32_t rounds;   /* of the way in use since the last trial */
    uint32_t pause;    /* 0: the first */
    uint32_t trials, changes;
    uint8_t now; /* the way in use */
    bool trying; /* the other one */
};

/* What faster_begin answers and faster_end wants back. */
struct faster_ticket {
    uint8_t way;
    bool mixed;
};

struct faster_ticket faster_begin(struct faster *faster, uint64_t now_ns);
/* bytes: that it moved; failed: the way did not do it, and a trial is over. */
void faster_end(struct faster *faster, struct faster_ticket ticket, uint64_t bytes, bool failed,
                uint64_t now_ns);

#endif
