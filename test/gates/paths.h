/* SPDX-License-Identifier: Apache-2.0 */
/* The paths whose costs are counted: each can be set up and then called again and again, and each
 * call does the same work. */
#ifndef TEST_GATES_PATHS_H
#define TEST_GATES_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include <yolk/status.h>

enum { GATE_CALLS = 64, GATE_WARM_UP = 8, GATE_CALLS_MAX = 256 };

struct gate_path {
    const char *name;
    const char *unit;     /* what one call has `requests` of */
    uint32_t requests;    /* in one call */
    uint32_t calls;       /* counted; 0: GATE_CALLS */
    void (*set_up)(void); /* ends the process with a reason when it fails */
    enum yolk_status (*call)(void *self);
    void (*tear_down)(void);
    /* Another thread is told of it, unless it has been told already: a bound of system calls. */
    bool wakes;
};

extern const struct gate_path gate_pure_paths[], gate_transfer_paths[];
extern const uint32_t gate_pure_path_count, gate_transfer_path_count;

/* Ends the process unless it is OK. */
void gate_must(int status, const char *what);

#endif
