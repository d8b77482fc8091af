/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps any transport and breaks it on purpose, from a seed: for tests and the fault column of the
 * conformance suite.
 *
 * Only the consumer side is disturbed; the wrapper keeps the wrapped one's name and capabilities,
 * so that both understand each other's endpoint text. Probabilities are in thousandths, drawn once
 * an io. */
#ifndef YOLK_TRANSPORT_FAULT_H
#define YOLK_TRANSPORT_FAULT_H

#include <stdatomic.h>

#include <yolk/transport.h>

/* Switches that a test moves while the engine runs; NULL: none. */
struct fault_control {
    _Atomic int dead;          /* 1: each submit and all that is under way fails PEER_DEAD */
    _Atomic int again;         /* 1: each submit answers AGAIN */
    _Atomic int hold;          /* 1: ios given meanwhile are taken, and moved only by release */
    _Atomic uint32_t pass;     /* so many ios go by before hold takes the next */
    _Atomic uint32_t fail;     /* the how manieth io from now fails in submit; 0: none */
    _Atomic int deaf;          /* 1: cancel brings back nothing of what is held */
    _Atomic int release;       /* 1: stuck, dropped and held ios go on after all */
    _Atomic uint64_t injected; /* faults so far */
    _Atomic uint64_t stuck;    /* ios held back now, by stuck or hold */
};

struct fault_options {
    const struct yolk_transport_ops *inner;
    const void *inner_wrapped; /* the inner one's own `wrapped` option */
    struct fault_control *control;
    uint64_t seed;
    uint32_t delay_permille;     /* reported up to delay_polls_max polls late */
    uint32_t delay_polls_max;    /* 0: 16 */
    uint32_t defer_permille;     /* begun up to delay_polls_max polls late */
    uint32_t drop_permille;      /* reported only after cancel, or release */
    uint32_t reorder_permille;   /* reported before an earlier one */
    uint32_t duplicate_permille; /* reported twice */
    uint32_t short_permille;     /* only a part is moved */
    uint32_t again_permille;     /* begins a storm of up to 8 AGAINs */
    uint32_t stuck_permille;     /* not even cancel brings it back; only release */
    enum yolk_status failure;    /* what fail, late_fail and partial say; YOLK_OK: LINK */
    uint32_t fail_permille;      /* submit fails with LINK, nothing moved (a partly taken window) */
    uint32_t partial_permille;   /* submit takes a part: it moves, then LINK says how much did */
    uint32_t death_permille;     /* the peer dies: this and all else of the channel is PEER_DEAD, a
                                  * channel opened later reaches its next life */
    uint32_t late_fail_permille; /* all is moved, but reported as LINK with nothing transferred */
    const void *refused; /* memory that add_buffer refuses, so that it is staged; NULL: none */
    uint32_t corrupt_permille; /* a read's byte is flipped, reported as OK */
};

/* Makes the table of a wrapper around options->inner in *out, which must outlive the engine. The
 * engine's option `wrapped` of this transport must point to `options`, which must too. */
void transport_fault_make(const struct fault_options *options, struct yolk_transport_ops *out);

#endif
