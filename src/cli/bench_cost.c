/* SPDX-License-Identifier: Apache-2.0 */
/* What a call costs beside time: system calls, allocations and instructions of the thread that
 * makes it.
 *
 * System calls are counted by the kernel's own filter: the thread asks that each one be told to a
 * second thread, which counts it and lets it go on. It needs no privilege, and other threads do not
 * notice. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/bench.h"
#include "platform/thread.h"

static _Thread_local uint64_t allocations;

static bool count_allocation(void *self)
{
    (void)self;
    allocations++;
    return false;
}

void bench_cost_init(void)
{
    base_alloc_set_hook(count_allocation, NULL);
}

struct counted {
    enum yolk_status (*call)(void *self);
    void *self;
    uint32_t count;
    _Atomic int listener; /* -1: not yet, -2: none */
    _Atomic uint64_t system_calls;
    _Atomic bool over;
    enum yolk_status status;
    int cause;
    double calls_each, allocations_each, instructions_each; /* the last one NAN: see its cause */
    int instructions_cause;
};

static int install_filter(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};
    struct sock_fprog program = {.len = 1, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void run_calls(struct counted *counted)
{
    uint64_t before = atomic_load(&counted->system_calls), allocated = allocations;
    for (uint32_t i = 0; i < counted->count && counted->status == YOLK_OK; i++)
        counted->status = counted->call(counted->self);
    counted->calls_each =
        (double)(atomic_load(&counted->system_calls) - before) / (double)counted->count;
    counted->allocations_each = (double)(allocations - allocated) / (double)counted->count;
}

/* Apart from the rest, for under the filter each system call is another one's work too. */
static void count_instructions(struct counted *counted)
{
    struct perf_event_attr what = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof(what),
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    uint64_t before = 0, after = 0;
    int counter = (int)syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    bool well = counter >= 0 && read(counter, &before, sizeof(before)) == (ssize_t)sizeof(before);
    for (uint32_t i = 0; i < counted->count && well && counted->status == YOLK_OK; i++)
        counted->status = counted->call(counted->self);
    well = well && read(counter, &after, sizeof(after)) == (ssize_t)sizeof(after);
    counted->instructions_cause = well ? 0 : errno;
    counted->instructions_each = well ? (double)(after - before) / counted->count : NAN;
    if (counter >= 0)
        close(counter);
}

static void counted_thread(void *arg)
{
    struct counted *counted = arg;
    counted->status = counted->call(counted->self); /* what only a first call in a thread needs */
    count_instructions(counted);
    int listener = install_filter();
    counted->cause = listener < 0 ? errno : 0;
    /* From here on each system call waits for the other thread, so none may come before it knows.
     */
    atomic_store(&counted->listener, listener < 0 ? -2 : listener);
    run_calls(counted);
    atomic_store(&counted->over, true);
}

/* One system call of the watched thread; false at its end. */
static bool let_go_on(struct counted *counted, int listener)
{
    struct seccomp_notif told;
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    memset(&told, 0, sizeof(told));
    if (poll(&waiting, 1, -1) < 0)
        return errno == EINTR;
    if ((waiting.revents & POLLIN) == 0)
        return false;
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &told) != 0)
        return errno == EINTR || errno == ENOENT;
    struct seccomp_notif_resp answer = {.id = told.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (!atomic_load(&counted->over))
        atomic_fetch_add(&counted->system_calls, 1);
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer); /* fails if the thread is gone */
    return true;
}

enum yolk_status bench_cost(enum yolk_status (*call)(void *self), void *self, uint32_t count,
                            struct bench_cost *out)
{
    struct counted counted = {.call = call, .self = self, .count = count, .listener = -1};
    struct thread thread = {.running = false};
    memset(out, 0, sizeof(*out));
    int status = thread_start(&thread, "bench-cost", counted_thread, &counted);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    int listener;
    while ((listener = atomic_load(&counted.listener)) == -1)
        ;
    while (listener >= 0 && let_go_on(&counted, listener))
        ; /* until its thread, the last one under the filter, ends */
    thread_join(&thread);
    if (listener >= 0)
        close(listener);
    out->system_calls = listener >= 0 ? counted.calls_each : NAN;
    if (listener < 0)
        snprintf(out->reason, sizeof(out->reason), "system calls cannot be counted here: %s",
                 strerror(counted.cause));
    out->allocations = counted.allocations_each;
    out->instructions = counted.instructions_each;
    if (isnan(out->instructions))
        snprintf(out->instructions_reason, sizeof(out->instructions_reason),
                 "instructions cannot be counted here: %s", strerror(counted.instructions_cause));
    return counted.status;
}
