/* SPDX-License-Identifier: Apache-2.0 */
/* TCP and Unix sockets with a deadline on every wait. All descriptors are CLOEXEC and non-blocking.
 * Deadlines are clock_real() nanoseconds; CLOCK_NEVER waits for ever. No call raises SIGPIPE. */
#ifndef PLATFORM_NET_H
#define PLATFORM_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "yolk/status.h"

#define NET_ADDRESS_TEXT_MAX 300

struct net_address {
    struct sockaddr_storage storage;
    socklen_t size;
    /* Of a name with addresses of both families the IPv6 one, which net_connect tries where the
     * other does not answer; size 0: there is none. */
    struct sockaddr_storage second;
    socklen_t second_size;
};

/* "host:port", "[v6]:port", ":port" (any), "unix:/path". Host names are resolved (this may block
 * for the resolver's own time). default_port is used when none is given; 0 makes the port required.
 */
YOLK_MUST_USE int net_address_parse(const char *text, uint16_t default_port,
                                    struct net_address *out);
/* The inverse; always NUL-terminated. */
void net_address_format(const struct net_address *address, char *out, size_t size);
uint16_t net_address_port(const struct net_address *address);
/* Of a local one: nothing. */
void net_address_set_port(struct net_address *address, uint16_t port);
bool net_address_is_unix(const struct net_address *address);
/* One of this machine's, whatever its port. */
bool net_address_is_own(const struct net_address *address);
/* Unix socket at a path. The path must fit sun_path. */
YOLK_MUST_USE int net_address_unix(const char *path, struct net_address *out);

/* bound (may be NULL) receives the address actually bound, e.g. the port chosen for 0. */
YOLK_MUST_USE int net_listen(const struct net_address *address, int backlog, int *fd,
                             struct net_address *bound);
/* The next connection of a listener that poll reported; -1: none. Without a descriptor for it waits
 * a moment, because the backlog keeps it and poll would report it at once again. */
int net_accept_ready(int listener);
YOLK_MUST_USE int net_connect(const struct net_address *address, uint64_t deadline_ns, int *fd);
/* peer may be NULL. */
YOLK_MUST_USE int net_accept(int listener, uint64_t deadline_ns, int *fd, struct net_address *peer);
YOLK_MUST_USE int net_local_address(int fd, struct net_address *out);
void net_close(int fd); /* negative is ignored */
/* The same for a listening socket; the file of a Unix socket goes too. */
void net_listener_close(int fd);
/* Wakes every thread that waits on it; they get YOLK_ERR_EOF or YOLK_ERR_LINK. */
void net_shutdown(int fd);

/* Errors: TIMEOUT; EOF: orderly end before the first byte; LINK: reset, or the end in the middle.
 */
YOLK_MUST_USE int net_send_all(int fd, const void *data, size_t size, uint64_t deadline_ns);
/* Consumes iov (it is changed). */
YOLK_MUST_USE int net_sendv_all(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns);
YOLK_MUST_USE int net_recv_all(int fd, void *data, size_t size, uint64_t deadline_ns);
YOLK_MUST_USE int net_recvv_all(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns);
/* As net_recv_all, but polls the socket for up to spin_ns before it sleeps, each time it would
 * sleep: a wake-up costs 30 microseconds and more on virtual machines. */
YOLK_MUST_USE int net_recv_all_spin(int fd, void *data, size_t size, uint64_t deadline_ns,
                                    uint64_t spin_ns);
YOLK_MUST_USE int net_recvv_all_spin(int fd, struct iovec *iov, size_t count, uint64_t deadline_ns,
                                     uint64_t spin_ns);
/* Whatever is there, at least one byte unless the status says otherwise. */
YOLK_MUST_USE int net_recv_some(int fd, void *data, size_t size, uint64_t deadline_ns, size_t *got);
/* The same, and polls before it sleeps, as net_recv_all_spin. */
YOLK_MUST_USE int net_recv_some_spin(int fd, void *data, size_t size, uint64_t deadline_ns,
                                     uint64_t spin_ns, size_t *got);
/* OK, or TIMEOUT. events as for poll(2). */
YOLK_MUST_USE int net_wait(int fd, short events, uint64_t deadline_ns);
/* True when the peer has closed or reset it (nothing is consumed). */
bool net_is_dead(int fd);

/* Unix sockets: one descriptor with a message of at least one byte. */
YOLK_MUST_USE int net_send_fd(int fd, const void *data, size_t size, int pass_fd,
                              uint64_t deadline_ns);
/* *passed is -1 when none came; the caller closes it. More than one is refused (and all are
 * closed). */
YOLK_MUST_USE int net_recv_fd(int fd, void *data, size_t size, int *passed, uint64_t deadline_ns);
struct net_credentials {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};
YOLK_MUST_USE int net_peer_credentials(int fd, struct net_credentials *out);
YOLK_MUST_USE int net_socketpair(int fds[2]);

#endif
