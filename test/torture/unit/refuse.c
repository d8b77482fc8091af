/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of each unit test: with YOLK_TEST_REFUSE=N the N-th allocation of the pure parts fails, with
 * N+ all from there on. At the end a line says how many there were, so that whoever walks over N
 * knows when to stop. The test may fail then, but only as a test does.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"

static _Atomic unsigned long count;
static unsigned long first, last;
static pid_t process;

static bool refuse(void *self)
{
    (void)self;
    unsigned long n = ++count;
    return n >= first && n <= last;
}

static void tell(void)
{
    if (getpid() == process)
        fprintf(stderr, "YOLK_TEST_REFUSE: %lu allocations\n", (unsigned long)count);
}

__attribute__((constructor)) static void begin(void)
{
    const char *wish = getenv("YOLK_TEST_REFUSE");
    char *end;
    if (wish == NULL)
        return;
    first = strtoul(wish, &end, 10);
    last = *end == '+' ? (unsigned long)-1 : first;
    process = getpid();
    base_alloc_set_hook(refuse, NULL);
    atexit(tell);
}
