/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/shutdown.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/thread.h"

static struct {
    struct mutex lock;
    struct yolk_peer **peers;
    size_t count;
    bool exit_hooked;
    pid_t pid; /* whose pipe it is: a child of fork must not end its parent */
    int pipe[2];
} watch = {.lock = {PTHREAD_MUTEX_INITIALIZER}, .pipe = {-1, -1}};

static void withdraw_all(void)
{
    for (size_t i = 0; i < watch.count; i++)
        base_ignore(yolk_peer_withdraw(watch.peers[i])); /* it says itself what stays behind */
    watch.count = 0;
}

static void at_exit(void)
{
    mutex_lock(&watch.lock);
    withdraw_all();
    mutex_unlock(&watch.lock);
}

/* In whichever thread: it may hold any lock, so all else is for another one. */
static void on_signal(int number)
{
    uint8_t byte = (uint8_t)number;
    int before = errno;
    if (getpid() != watch.pid || write(watch.pipe[1], &byte, 1) != 1)
        _exit(128 + number);
    errno = before;
}

static void wait_for_signal(void *arg)
{
    uint8_t number = 0;
    ssize_t got;
    (void)arg;
    do
        got = read(watch.pipe[0], &number, 1);
    while (got < 0 && errno == EINTR);
    mutex_lock(&watch.lock); /* for good: a peer that is being destroyed waits for the end */
    withdraw_all();
    _exit(128 + number);
}

/* With the lock. The pipe that a fork's child has from its parent is the parent's. */
static enum yolk_status install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct thread thread;
    int made[2];
    if (watch.pid == getpid())
        return YOLK_OK;
    if (pipe2(made, O_CLOEXEC) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "no pipe for signals");
    watch.pipe[0] = made[0];
    watch.pipe[1] = made[1];
    enum yolk_status status = thread_start(&thread, "signals", wait_for_signal, NULL);
    if (status != YOLK_OK) {
        close(made[0]);
        close(made[1]);
        return status;
    }
    pthread_detach(thread.id);
    if (!watch.exit_hooked)
        watch.exit_hooked = atexit(at_exit) == 0;
    watch.pid = getpid();
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    return YOLK_OK;
}

enum yolk_status compat_shutdown_watch(struct yolk_peer *peer)
{
    mutex_lock(&watch.lock);
    size_t at = 0;
    while (at < watch.count && watch.peers[at] != peer)
        at++;
    struct yolk_peer **peers = watch.peers;
    if (at == watch.count)
        peers = base_realloc(peers, (at + 1) * sizeof(struct yolk_peer *));
    enum yolk_status status =
        peers != NULL ? install() : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a peer");
    if (peers != NULL)
        watch.peers = peers;
    if (status == YOLK_OK && at == watch.count)
        watch.peers[watch.count++] = peer;
    mutex_unlock(&watch.lock);
    return status;
}

void compat_shutdown_forget(const struct yolk_peer *peer)
{
    mutex_lock(&watch.lock);
    for (size_t i = 0; i < watch.count; i++)
        if (watch.peers[i] == peer)
            watch.peers[i] = watch.peers[--watch.count];
    mutex_unlock(&watch.lock);
}
