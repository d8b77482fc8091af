/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/net.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "platform/clock.h"
#include "platform/thread.h"

#define IOV_AT_ONCE 1024

static int link_status(int errnum)
{
    switch (errnum) {
    case ECONNREFUSED:
    case ENOENT: /* no such Unix socket */
        return YOLK_ERR_REFUSED;
    case ETIMEDOUT:
        return YOLK_ERR_TIMEOUT;
    case ENOMEM:
    case ENOBUFS:
        return YOLK_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return YOLK_ERR_LIMIT;
    case EACCES:
    case EPERM:
        return YOLK_ERR_ACCESS;
    case EBADF:
    case EINVAL:
        return YOLK_ERR_INVALID;
    default:
        return YOLK_ERR_LINK;
    }
}

int net_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        struct timespec t, *timeout = NULL;
        if (deadline_ns != CLOCK_NEVER) {
            uint64_t now = clock_real_now_ns();
            uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
            t.tv_sec = (time_t)(left / CLOCK_NS_PER_S);
            t.tv_nsec = (long)(left % CLOCK_NS_PER_S);
            timeout = &t;
        }
        int n = ppoll(&p, 1, timeout, NULL);
        if (n > 0)
            return p.revents & POLLNVAL ? base_fail(YOLK_ERR_INVALID, EBADF, "wait for a socket")
                                        : YOLK_OK;
        if (n == 0 && clock_real_now_ns() >= deadline_ns)
            return YOLK_ERR_TIMEOUT;
        if (n < 0 && errno != EINTR)
            return base_fail(link_status(errno), errno, "wait for a socket");
    }
}

static int new_socket(int family, int extra, int *fd)
{
    *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | extra, 0);
    if (*fd < 0)
        return base_fail(link_status(errno), errno, "cannot make a socket");
    return YOLK_OK;
}

static void set_option(int fd, int level, int name, int value)
{
    /* Tuning: a system that refuses it still works. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void tune_stream(int fd, int family)
{
    if (family != AF_UNIX)
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

static int fail_address(int status, int errnum, const char *what, const struct net_address *address)
{
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_format(address, text, sizeof(text));
    return base_fail(status, errnum, "cannot %s %s", what, text);
}

/* A Unix socket file that nobody listens on any more is left behind by a killed process. Any other
 * kind of file refuses a connection too, and is somebody's data. */
static bool remove_stale_unix(const struct net_address *address)
{
    const char *path = ((const struct sockaddr_un *)&address->storage)->sun_path;
    struct stat st;
    int fd;
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        errno = EADDRINUSE;
        return false;
    }
    if (new_socket(AF_UNIX, SOCK_NONBLOCK, &fd) != YOLK_OK)
        return false;
    int rc = connect(fd, (const struct sockaddr *)&address->storage, address->size);
    bool stale = rc != 0 && errno == ECONNREFUSED;
    close(fd);
    if (stale && unlink(path) == 0)
        return true;
    errno = EADDRINUSE;
    return false;
}

int net_listen(const struct net_address *address, int backlog, int *out, struct net_address *bound)
{
    int fd;
    *out = -1;
    int family = address->storage.ss_family;
    int status = new_socket(family, SOCK_NONBLOCK, &fd);
    if (status != YOLK_OK)
        return status;
    if (family != AF_UNIX)
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0); /* "any" serves IPv4 too */
    const struct sockaddr *sa = (const struct sockaddr *)&address->storage;
    int rc = bind(fd, sa, address->size);
    if (rc != 0 && errno == EADDRINUSE && family == AF_UNIX && remove_stale_unix(address))
        rc = bind(fd, sa, address->size);
    if (rc == 0)
        rc = listen(fd, backlog);
    if (rc != 0) {
        status = fail_address(errno == EADDRINUSE ? YOLK_ERR_BUSY : link_status(errno), errno,
                              "listen at", address);
        close(fd);
        return status;
    }
    if (bound) {
        status = net_local_address(fd, bound);
        if (status != YOLK_OK) {
            close(fd);
            return status;
        }
    }
    *out = fd;
    return YOLK_OK;
}

void net_listener_close(int fd)
{
    struct net_address address;
    if (net_local_address(fd, &address) == YOLK_OK && net_address_is_unix(&address))
        (void)unlink(((const struct sockaddr_un *)&address.storage)->sun_path);
    net_close(fd);
}

/* A non-blocking connect of a Unix socket fails with EAGAIN when the backlog is full, and nothing
 * can be polled for. So it blocks, with the time limit of the socket. */
static int connect_unix(int fd, const struct net_address *address, uint64_t deadline_ns)
{
    if (deadline_ns != CLOCK_NEVER) {
        uint64_t now = clock_real_now_ns();
        uint64_t left = deadline_ns > now ? deadline_ns - now : 1000;
        if (left < 1000)
            left = 1000; /* zero would mean: for ever */
        struct timeval t = {(time_t)(left / CLOCK_NS_PER_S),
                            (suseconds_t)(left % CLOCK_NS_PER_S / 1000)};
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)) != 0)
            return errno;
    }
    int rc;
    do {
        rc = connect(fd, (const struct sockaddr *)&address->storage, address->size);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return errno == EAGAIN ? ETIMEDOUT : errno;
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

static int connect_tcp(int fd, const struct net_address *address, uint64_t deadline_ns)
{
    if (connect(fd, (const struct sockaddr *)&address->storage, address->size) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return errno;
    if (net_wait(fd, POLLOUT, deadline_ns) != YOLK_OK)
        return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return errno;
    return error;
}

int net_accept_ready(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
        (void)poll(NULL, 0, 20);
    return fd;
}

static int connect_one(const struct net_address *address, uint64_t deadline_ns, int *out)
{
    int fd;
    *out = -1;
    int family = address->storage.ss_family;
    bool local = family == AF_UNIX;
    int status = new_socket(family, local ? 0 : SOCK_NONBLOCK, &fd);
    if (status != YOLK_OK)
        return status;
    int error =
        local ? connect_unix(fd, address, deadline_ns) : connect_tcp(fd, address, deadline_ns);
    if (error != 0) {
        close(fd);
        return fail_address(link_status(error), error, "connect to", address);
    }
    tune_stream(fd, family);
    *out = fd;
    return YOLK_OK;
}

int net_connect(const struct net_address *address, uint64_t deadline_ns, int *out)
{
    int status = connect_one(address, deadline_ns, out);
    if (status == YOLK_OK || address->second_size == 0)
        return status;
    const struct net_address second = {.storage = address->second, .size = address->second_size};
    return connect_one(&second, deadline_ns, out) == YOLK_OK
               ? YOLK_OK
               : fail_address(status, 0, "connect to either address of the name, as", address);
}

int net_accept(int listener, uint64_t deadline_ns, int *out, struct net_address *peer)
{
    struct net_address from = {0};
    *out = -1;
    for (;;) {
        from.size = sizeof(from.storage);
        int fd = accept4(listener, (struct sockaddr *)&from.storage, &from.size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            tune_stream(fd, from.storage.ss_family);
            if (peer)
                *peer = from;
            *out = fd;
            return YOLK_OK;
        }
        switch (errno) {
        case EINTR:
        case ECONNABORTED: /* gone before we came: the next one */
        case EPROTO:
            continue;
        case EAGAIN: {
            int status = net_wait(listener, POLLIN, deadline_ns);
            if (status != YOLK_OK)
                return status;
            continue;
        }
        default:
            return base_fail(link_status(errno), errno, "cannot accept a connection");
        }
    }
}

int net_local_address(int fd, struct net_address *out)
{
    out->second_size = 0;
    out->size = sizeof(out->storage);
    if (getsockname(fd, (struct sockaddr *)&out->storage, &out->size) != 0)
        return base_fail(link_status(errno), errno, "own address of a socket");
    return YOLK_OK;
}

void net_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void net_shutdown(int fd)
{
    if (fd >= 0)
        (void)shutdown(fd, SHUT_RDWR);
}

/* Moves past n bytes; leaves iov at the first buffer with something left (empty ones are dropped).
 */
static void advance(struct iovec **iov, size_t *count, size_t n)
{
    while (*count > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*count)--;
    }
    if (*count > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

int net_sendv_all(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns)
{
    advance(&iov, &count, 0);
    while (count > 0) {
        struct msghdr msg = {.msg_iov = iov,
                             .msg_iovlen = count < IOV_AT_ONCE ? count : IOV_AT_ONCE};
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            advance(&iov, &count, (size_t)n);
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return base_fail(link_status(errno), errno, "cannot send");
        int status = net_wait(fd, POLLOUT, deadline_ns);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

int net_send_all(int fd, const void *data, size_t size, uint64_t deadline_ns)
{
    struct iovec iov = {(void *)(uintptr_t)data, size};
    return net_sendv_all(fd, &iov, 1, deadline_ns);
}

/* Spins until spin_end, then sleeps until the deadline. OK: try again. */
static int wait_to_receive(int fd, uint64_t deadline_ns, uint64_t spin_end)
{
    if (spin_end > 0 && clock_real_now_ns() < spin_end) {
        for (int i = 0; i < 16; i++)
            thread_relax();
        return YOLK_OK;
    }
    return net_wait(fd, POLLIN, deadline_ns);
}

static uint64_t spin_until(uint64_t spin_ns, uint64_t deadline_ns)
{
    uint64_t end = clock_after(clock_real_now_ns(), spin_ns);
    return end < deadline_ns ? end : deadline_ns;
}

/* On one processor the peer cannot run while we spin. */
static uint64_t useful_spin(uint64_t spin_ns)
{
    static _Atomic unsigned processors;
    if (spin_ns == 0)
        return 0;
    if (processors == 0)
        processors = thread_cpu_count();
    return processors > 1 ? spin_ns : 0;
}

/* Some bytes, at least one, as soon as there are any. */
static int receive(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns, uint64_t spin_ns,
                   size_t *got)
{
    uint64_t spin_end = 0;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count < IOV_AT_ONCE ? count : IOV_AT_ONCE};
    for (;;) {
        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);
        if (n > 0) {
            *got = (size_t)n;
            return YOLK_OK;
        }
        if (n == 0)
            return YOLK_ERR_EOF;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return base_fail(link_status(errno), errno, "cannot receive");
        if (spin_end == 0 && spin_ns > 0)
            spin_end = spin_until(spin_ns, deadline_ns);
        int status = wait_to_receive(fd, deadline_ns, spin_end);
        if (status != YOLK_OK)
            return status;
    }
}

int net_recvv_all_spin(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns,
                       uint64_t spin_ns)
{
    bool any = false;
    spin_ns = useful_spin(spin_ns);
    advance(&iov, &count, 0);
    while (count > 0) {
        size_t got = 0;
        int status = receive(fd, iov, count, deadline_ns, spin_ns, &got);
        if (status == YOLK_ERR_EOF && any)
            return base_fail(YOLK_ERR_LINK, 0, "the peer closed in the middle");
        if (status != YOLK_OK)
            return status;
        any = true;
        advance(&iov, &count, got);
    }
    return YOLK_OK;
}

int net_recvv_all(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns)
{
    return net_recvv_all_spin(fd, iov, count, deadline_ns, 0);
}

int net_recv_all_spin(int fd, void *data, size_t size, uint64_t deadline_ns, uint64_t spin_ns)
{
    struct iovec iov = {data, size};
    return net_recvv_all_spin(fd, &iov, 1, deadline_ns, spin_ns);
}

int net_recv_all(int fd, void *data, size_t size, uint64_t deadline_ns)
{
    return net_recv_all_spin(fd, data, size, deadline_ns, 0);
}

int net_recv_some_spin(int fd, void *data, size_t size, uint64_t deadline_ns, uint64_t spin_ns,
                       size_t *got)
{
    struct iovec iov = {data, size};
    *got = 0;
    return receive(fd, &iov, 1, deadline_ns, useful_spin(spin_ns), got);
}

int net_recv_some(int fd, void *data, size_t size, uint64_t deadline_ns, size_t *got)
{
    return net_recv_some_spin(fd, data, size, deadline_ns, 0, got);
}

bool net_is_dead(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) != 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

int net_peer_credentials(int fd, struct net_credentials *out)
{
    struct ucred c;
    socklen_t size = sizeof(c);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) != 0)
        return base_fail(link_status(errno), errno, "who is at the other end of a socket");
    *out = (struct net_credentials){c.pid, c.uid, c.gid};
    return YOLK_OK;
}

int net_socketpair(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
        fds[0] = fds[1] = -1;
        return base_fail(link_status(errno), errno, "cannot make a pair of sockets");
    }
    return YOLK_OK;
}

int net_send_fd(int fd, const void *data, size_t size, int pass_fd, uint64_t deadline_ns)
{
    if (size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "a descriptor needs a byte to travel with");
    struct iovec iov = {(void *)(uintptr_t)data, size};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof(control));
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &pass_fd, sizeof(int));
    for (;;) {
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) /* the descriptor went with the first byte */
            return net_send_all(fd, (const char *)data + n, size - (size_t)n, deadline_ns);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return base_fail(link_status(errno), errno, "cannot send a descriptor");
        int status = net_wait(fd, POLLOUT, deadline_ns);
        if (status != YOLK_OK)
            return status;
    }
}

/* Takes every descriptor that came; all but the case of exactly one are closed. Answers how many
 * came. */
static size_t collect_fds(struct msghdr *msg, int *passed)
{
    size_t found = 0;
    *passed = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (found++ == 0)
                *passed = fd;
            else
                close(fd);
        }
    }
    return found;
}

int net_recv_fd(int fd, void *data, size_t size, int *passed, uint64_t deadline_ns)
{
    *passed = -1;
    if (size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "a descriptor needs a byte to travel with");
    for (;;) {
        struct iovec iov = {data, size};
        union {
            struct cmsghdr head;
            char space[CMSG_SPACE(8 * sizeof(int))];
        } control;
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n == 0)
            return YOLK_ERR_EOF;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return base_fail(link_status(errno), errno, "cannot receive a descriptor");
        if (n < 0) {
            int status = net_wait(fd, POLLIN, deadline_ns);
            if (status != YOLK_OK)
                return status;
            continue;
        }
        size_t found = collect_fds(&msg, passed);
        int status = YOLK_OK;
        if (found > 1 || (msg.msg_flags & MSG_CTRUNC))
            status = base_fail(YOLK_ERR_PROTOCOL, 0, "a message with several descriptors");
        else if ((size_t)n < size)
            status = net_recv_all(fd, (char *)data + n, size - (size_t)n, deadline_ns);
        if (status != YOLK_OK) {
            net_close(*passed);
            *passed = -1;
        }
        return status == YOLK_ERR_EOF ? YOLK_ERR_LINK : status;
    }
}
