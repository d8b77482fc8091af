/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that queues, over loop, and that can be told to make one mistake. Without one it is
 * right. The suite has to catch each of them. */
#ifndef CONFORMANCE_WRONG_H
#define CONFORMANCE_WRONG_H

#include <yolk/transport.h>

enum wrong_mistake {
    WRONG_NONE,
    WRONG_ACKNOWLEDGES_EARLY,  /* reported before the bytes move */
    WRONG_REPORTS_TWICE,       /* each completion comes once more */
    WRONG_LOSES_ONE,           /* the 40th io of a channel is never reported */
    WRONG_CANCELS_LOUDLY,      /* canceled, reported, and then the memory is written */
    WRONG_FAILS_LOUDLY,        /* failed, reported, and then the memory is written */
    WRONG_WRITES_PAST_THE_END, /* a read of the first slice touches the next byte */
    WRONG_ROUNDS_OFFSETS,      /* down to 64 bytes */
    WRONG_IGNORES_GENERATION,  /* the provider takes any segment id for its own */
    WRONG_IGNORES_LIVES,       /* a text of a former life reaches the present one */
    WRONG_IGNORES_TICKETS,     /* the provider does not look at them */
    WRONG_IGNORES_RANGES,      /* what the provider refuses as out of range is reported as done */
    WRONG_TAKES_ON_AGAIN,      /* says AGAIN, and does it all the same */
    WRONG_SHORT_AS_FULL,       /* the last byte of a whole slice does not move */
    WRONG_SWAPS_COOKIES,       /* two completions that come together carry each other's names */
    WRONG_CORRUPTS_A_BYTE,     /* one bit of a whole slice */
    WRONG_CLOSES_BUSY,         /* a channel with ios under way closes */
    WRONG_FORGETS_AT_STOP,     /* what was queued is not reported */
    WRONG_WORKS_AFTER_STOP,    /* as if nothing had been */
    WRONG_SLEEPS_TOO_LONG,     /* full once, its descriptor never becomes readable */
    WRONG_LEAKS_A_DESCRIPTOR,  /* at the end of an endpoint */
    WRONG_LEAKS_A_THREAD,
    WRONG_LEAKS_A_MAPPING,
    WRONG_GOES_ON_FROM_THE_FIRST_PLACE, /* as if the others were not there */
    WRONG_FORGETS_TO_SKIP,              /* what is in place of the first one already */
    WRONG_MISTAKES,
};

/* The engine's option `wrapped` points to it. */
struct wrong_options {
    enum wrong_mistake mistake;
};

const struct yolk_transport_ops *wrong_ops(void);

#endif
