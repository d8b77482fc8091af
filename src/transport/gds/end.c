/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is in cuFile, and the process's end. The library has an end of its own, a function of atexit;
 * on a GPU a process was seen to die in it by SIGSEGV where its driver was still open, and with
 * others where a transfer was under way. So one of ours runs before it: nothing more goes in, what
 * is in comes out, and then batch handles, memory, files and the driver are given up, in this
 * order, by the thread that made them. All of it is bounded.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#define LOG_ROOM "gds"
#include "base/error.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "transport/gds/driver.h"

enum { COME_OUT_MS = 3000, CLOSE_MS = 3000 };

static _Atomic bool ending;
static _Atomic int inside;        /* scopes, of all threads */
static _Thread_local int entered; /* of this one */
static uint32_t forks;            /* when the end was first watched */

bool gds_process_ends(void)
{
    return atomic_load(&ending);
}

int gds_enter(struct gds_driver *driver, int ordinal, struct device_scope *scope)
{
    atomic_fetch_add(&inside, 1); /* before it looks, so that the end sees each one that goes on */
    int status = gds_process_ends()
                     ? base_fail(YOLK_ERR_CLOSED, 0, "the process exits: no call of cuFile")
                     : device_enter(driver->device, ordinal, scope);
    if (status == YOLK_OK)
        entered++;
    else
        atomic_fetch_sub(&inside, 1);
    return status;
}

void gds_leave(struct gds_driver *driver, struct device_scope *scope)
{
    gds_scope_end(driver, scope);
    entered--;
    atomic_fetch_sub(&inside, 1);
}

static bool wait_for_nobody(uint64_t deadline_ns)
{
    while (atomic_load(&inside) > 0 && clock_real_now_ns() < deadline_ns)
        (void)poll(NULL, 0, 1);
    return atomic_load(&inside) == 0;
}

/* What could not be given up in time; NULL: all was. */
static const char *end_in_time(void)
{
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), COME_OUT_MS);
    if (entered > 0)
        return "it is cuFile itself that ends it";
    if (!wait_for_nobody(deadline))
        return "a transfer is still under way";
    return gds_driver_end(clock_after_ms(clock_real_now_ns(), CLOSE_MS))
               ? NULL
               : "its driver is just being opened or closed";
}

static void at_exit(void)
{
    if (process_forks() != forks)
        return; /* a child's: it is the parent that has cuFile open */
    atomic_store(&ending, true);
    const char *left = end_in_time();
    if (left != NULL)
        log_error("the process ends with cuFile open: %s", left);
    device_end();
}

int gds_watch_end(void)
{
    forks = process_forks();
    return atexit(at_exit) == 0
               ? YOLK_OK
               : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to watch for the process's end");
}
