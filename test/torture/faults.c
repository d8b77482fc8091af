/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

const char *const fault_kind_names[FAULT_KINDS] = {
    [FAULT_MEMORY] = "memory", [FAULT_FILE] = "file",     [FAULT_SOCKET] = "socket",
    [FAULT_MAP] = "map",       [FAULT_THREAD] = "thread",
};

static _Atomic int armed = -1;
static _Atomic uint64_t calls;
static _Atomic uint64_t target;
static _Atomic bool lasts, kills;

void faults_arm(enum fault_kind kind, uint64_t nth, bool for_ever)
{
    calls = 0;
    target = nth;
    lasts = for_ever;
    armed = (int)kind;
}

void faults_kill(enum fault_kind kind, uint64_t nth)
{
    kills = true;
    faults_arm(kind, nth, false);
}

uint64_t faults_disarm(void)
{
    armed = -1;
    kills = false;
    return calls;
}

static bool fails(enum fault_kind kind, int errnum)
{
    if (armed != (int)kind)
        return false;
    uint64_t n = ++calls, nth = target;
    if (nth == 0 || n < nth || (n > nth && !lasts))
        return false;
    if (kills)
        (void)raise(SIGKILL);
    errno = errnum;
    return true;
}

/* One function: what it answers when it fails, with which errno, and its prototype. */
#define WRAP(kind, errnum, failed, type, name, parameters, arguments)                              \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails(kind, errnum) ? (failed) : __real_##name arguments;                           \
    }

WRAP(FAULT_MEMORY, ENOMEM, NULL, void *, malloc, (size_t size), (size))
WRAP(FAULT_MEMORY, ENOMEM, NULL, void *, calloc, (size_t count, size_t size), (count, size))
WRAP(FAULT_MEMORY, ENOMEM, NULL, void *, realloc, (void *at, size_t size), (at, size))
WRAP(FAULT_MEMORY, ENOMEM, NULL, char *, strdup, (const char *text), (text))
WRAP(FAULT_MEMORY, ENOMEM, NULL, char *, strndup, (const char *text, size_t size), (text, size))
WRAP(FAULT_MEMORY, ENOMEM, NULL, void *, aligned_alloc, (size_t unit, size_t size), (unit, size))
WRAP(FAULT_MEMORY, ENOMEM, ENOMEM, int, posix_memalign, (void **at, size_t unit, size_t size),
     (at, unit, size))

WRAP(FAULT_FILE, EIO, -1, ssize_t, pread, (int fd, void *to, size_t size, off_t at),
     (fd, to, size, at))
WRAP(FAULT_FILE, EIO, -1, ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at),
     (fd, from, size, at))
WRAP(FAULT_FILE, EIO, -1, ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t at),
     (fd, v, n, at))
WRAP(FAULT_FILE, EIO, -1, ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t at),
     (fd, v, n, at))
WRAP(FAULT_FILE, EIO, -1, int, fdatasync, (int fd), (fd))
WRAP(FAULT_FILE, EIO, -1, int, fsync, (int fd), (fd))
WRAP(FAULT_FILE, ENOSPC, -1, int, fallocate, (int fd, int mode, off_t at, off_t size),
     (fd, mode, at, size))
WRAP(FAULT_FILE, EIO, -1, int, ftruncate, (int fd, off_t size), (fd, size))
WRAP(FAULT_FILE, EIO, -1, int, fstat, (int fd, struct stat *out), (fd, out))
WRAP(FAULT_FILE, ENOSPC, -1, int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(FAULT_FILE, ENOSPC, NULL, char *, mkdtemp, (char *path), (path))
WRAP(FAULT_FILE, EIO, -1, int, rename, (const char *from, const char *to), (from, to))
WRAP(FAULT_FILE, EIO, -1, int, unlink, (const char *path), (path))
WRAP(FAULT_FILE, -ENOMEM, -ENOMEM, int, io_uring_queue_init,
     (unsigned entries, struct io_uring *ring, unsigned flags), (entries, ring, flags))
WRAP(FAULT_FILE, EAGAIN, -EAGAIN, int, io_uring_submit, (struct io_uring * ring), (ring))

WRAP(FAULT_SOCKET, EMFILE, -1, int, socket, (int family, int type, int protocol),
     (family, type, protocol))
WRAP(FAULT_SOCKET, EMFILE, -1, int, socketpair, (int family, int type, int protocol, int *fds),
     (family, type, protocol, fds))
WRAP(FAULT_SOCKET, EADDRINUSE, -1, int, bind, (int fd, const struct sockaddr *at, socklen_t size),
     (fd, at, size))
WRAP(FAULT_SOCKET, EADDRINUSE, -1, int, listen, (int fd, int backlog), (fd, backlog))
WRAP(FAULT_SOCKET, EMFILE, -1, int, accept4,
     (int fd, struct sockaddr *peer, socklen_t *size, int flags), (fd, peer, size, flags))
WRAP(FAULT_SOCKET, ECONNREFUSED, -1, int, connect,
     (int fd, const struct sockaddr *at, socklen_t size), (fd, at, size))
WRAP(FAULT_SOCKET, ENOBUFS, -1, int, setsockopt,
     (int fd, int level, int name, const void *value, socklen_t size),
     (fd, level, name, value, size))
WRAP(FAULT_SOCKET, ENOBUFS, -1, int, getsockname, (int fd, struct sockaddr *out, socklen_t *size),
     (fd, out, size))
WRAP(FAULT_SOCKET, ECONNRESET, -1, ssize_t, send,
     (int fd, const void *from, size_t size, int flags), (fd, from, size, flags))
WRAP(FAULT_SOCKET, ECONNRESET, -1, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags),
     (fd, m, flags))
WRAP(FAULT_SOCKET, ECONNRESET, -1, ssize_t, recv, (int fd, void *to, size_t size, int flags),
     (fd, to, size, flags))
WRAP(FAULT_SOCKET, ECONNRESET, -1, ssize_t, recvmsg, (int fd, struct msghdr *m, int flags),
     (fd, m, flags))
WRAP(FAULT_SOCKET, EMFILE, -1, int, eventfd, (unsigned start, int flags), (start, flags))
WRAP(FAULT_SOCKET, EMFILE, -1, int, epoll_create1, (int flags), (flags))
WRAP(FAULT_SOCKET, ENOMEM, -1, int, epoll_ctl, (int fd, int op, int of, struct epoll_event *event),
     (fd, op, of, event))

WRAP(FAULT_MAP, ENOMEM, MAP_FAILED, void *, mmap,
     (void *at, size_t size, int protection, int flags, int fd, off_t offset),
     (at, size, protection, flags, fd, offset))
WRAP(FAULT_MAP, EMFILE, -1, int, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(FAULT_MAP, ENOMEM, -1, int, madvise, (void *at, size_t size, int advice), (at, size, advice))

WRAP(FAULT_THREAD, EAGAIN, EAGAIN, int, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*run)(void *), void *self),
     (out, attributes, run, self))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails(FAULT_FILE, EMFILE) ? -1 : __real_open(path, flags, mode);
}
