/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of each unit test. With YOLK_TEST_REFUSE=N the N-th allocation of the pure parts fails, with
 * N+ all from there on; with YOLK_TEST_REFUSE=KIND:N the N-th call of that kind (faults.h) does,
 * whoever makes it. At the end a line says how many there were, so that whoever walks over N knows
 * when to stop. The test may fail then, but only as a test does.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../faults.h"
#include "base/alloc.h"

static _Atomic unsigned long count;
static unsigned long first, last;
static bool counts_calls; /* of the system, not allocations of the pure parts */
static pid_t process;

static bool refuse(void *self)
{
    (void)self;
    unsigned long n = ++count;
    return n >= first && n <= last;
}

static void tell(void)
{
    if (getpid() != process)
        return;
    if (counts_calls)
        count = (unsigned long)faults_disarm();
    fprintf(stderr, "YOLK_TEST_REFUSE: %lu calls\n", (unsigned long)count);
}

static bool arm_calls(const char *wish, size_t kind_size)
{
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
        if (strlen(fault_kind_names[kind]) != kind_size ||
            strncmp(fault_kind_names[kind], wish, kind_size) != 0)
            continue;
        faults_arm(kind, first, last > first);
        return true;
    }
    return false;
}

__attribute__((constructor)) static void begin(void)
{
    const char *wish = getenv("YOLK_TEST_REFUSE");
    char *end;
    if (wish == NULL)
        return;
    size_t kind_size = strcspn(wish, ":");
    counts_calls = wish[kind_size] == ':';
    first = strtoul(counts_calls ? wish + kind_size + 1 : wish, &end, 10);
    last = *end == '+' ? (unsigned long)-1 : first;
    process = getpid();
    if (!counts_calls) {
        base_alloc_set_hook(refuse, NULL);
    } else if (!arm_calls(wish, kind_size)) {
        fprintf(stderr, "YOLK_TEST_REFUSE=%s: not [KIND:]N[+]\n", wish);
        abort();
    }
    atexit(tell);
}
