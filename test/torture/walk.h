/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over the calls of an action: the N-th fails, once and for ever after, for each N and each
 * kind of call. In a bounded time, unless YOLK_TORTURE_FULL is set: then every N, of all actions
 * (1) or of the one that it names. One step alone is repeated with
 * YOLK_TORTURE=ACTION:KIND:N:once|ever.
 */
#ifndef TEST_TORTURE_WALK_H
#define TEST_TORTURE_WALK_H

#include "faults.h"

struct walk {
    const char *name;
    void (*prepare)(void);
    /* With the faults armed; what it leaves is judged and ended by `finish`, without faults. */
    void (*act)(void);
    void (*finish)(void);
    unsigned kinds; /* bits 1 << enum fault_kind */
};

void walk_run(const struct walk *walk);
/* After all walks: what the environment named was one of them, or else the test fails. */
void walk_wish_was_met(void);

#endif
