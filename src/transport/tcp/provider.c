/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider side: one thread accepts, a few workers serve. A connection belongs to one worker,
 * which alone changes it; the provider's mutex guards the lists, the descriptor against a
 * concurrent shutdown, and which segment a connection is at work on (`served`), so that fence and
 * unserve see each access that was allowed.
 *
 * A read of a file is made by a thread of disk.c; meanwhile its connection is in no epoll, and
 * comes back to its worker through the worker's list of the finished.
 */
#define LOG_ROOM "tcp"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "transport/tcp/disk.h"
#include "transport/tcp/frames.h"
#include "transport/tcp/internal.h"

enum {
    SERVED_MAX = 64,
    WORKERS_MAX = 64,
    INPUT_SIZE = 4096, /* frames are collected here; payloads go straight to their place */
    DISCARD_SIZE = 65536,
    RECEIVES_A_TURN = 64, /* then the worker's other connections get theirs */
    SWEEP_MS = 1000,
};

struct tcp_served {
    uint8_t *memory;
    struct file_served *file; /* instead of memory; else NULL */
    uint64_t size;
    uint64_t segment;
    struct yolk_access access;
    uint32_t users; /* connections whose `served` this is */
};

enum step { STEP_HELLO, STEP_FRAME, STEP_PAYLOAD, STEP_DISK, STEP_REPLY, STEP_CLOSE };

struct connection {
    struct base_list node;
    struct worker *worker;
    int fd;
    enum step step;
    bool want_output; /* what epoll is told */
    bool authenticated;
    uint64_t deadline_ns;
    uint64_t session;
    uint64_t id; /* of ATTACH; 0: none */
    struct wire_hello_machine hello;
    struct base_buf hello_out;
    /* the frame in work */
    struct tcp_served *served;
    bool writing;
    struct tcp_frame frame;
    int32_t status;
    struct tcp_disk_job job; /* its node is in the worker's list of the finished, guarded with it */
    uint8_t *payload;
    uint64_t payload_left;
    uint8_t reply[TCP_REPLY_SIZE];
    size_t reply_sent;
    size_t in_size, in_used;
    uint8_t in[INPUT_SIZE];
};

struct worker {
    struct tcp_provider *provider;
    struct thread thread;
    int epoll;
    int wake;                  /* eventfd: some of the finished are there */
    struct base_list finished; /* jobs; guarded by the provider's mutex */
    struct base_list connections;
    uint8_t *discard;
};

struct tcp_provider {
    struct tcp_settings settings;
    struct mutex mutex;
    struct condition quiet; /* a `users` or a connection count went down */
    bool stopped;
    bool running;
    int listener;
    int wake; /* eventfd, readable for ever once stopping */
    uint16_t port;
    struct tcp_disk *disk; /* from the first file served until the workers ended */
    struct thread accepter;
    uint32_t worker_count;
    uint32_t connection_count;
    struct tcp_served *served[SERVED_MAX];
    uint64_t logged_ns;
    uint32_t unlogged;
    struct worker workers[WORKERS_MAX];
};

/* A stranger must not be able to fill the log. Holds the mutex. */
static void log_refusal(struct tcp_provider *p, const char *text)
{
    uint64_t now = clock_real_now_ns();
    if (p->logged_ns != 0 && now - p->logged_ns < NS_PER_S) {
        p->unlogged++;
        return;
    }
    log_warn("connection refused: %s (%u more since the last such line)", text, p->unlogged);
    p->logged_ns = now;
    p->unlogged = 0;
}

static void connection_refuse(struct tcp_provider *p, struct connection *c, const char *text)
{
    mutex_lock(&p->mutex);
    log_refusal(p, text);
    mutex_unlock(&p->mutex);
    c->step = STEP_CLOSE;
}

static void connection_release_served(struct tcp_provider *p, struct connection *c)
{
    if (c->served == NULL)
        return;
    mutex_lock(&p->mutex);
    c->served->users--;
    c->served = NULL;
    c->writing = false;
    condition_broadcast(&p->quiet);
    mutex_unlock(&p->mutex);
}

static void connection_give_staging_back(struct tcp_provider *p, struct connection *c)
{
    if (c->job.staging != NULL)
        tcp_disk_give_back(p->disk, c->job.staging);
    c->job.staging = NULL;
}

/* Not while the disk is at work for it. */
static void connection_close(struct tcp_provider *p, struct connection *c)
{
    connection_release_served(p, c);
    connection_give_staging_back(p, c);
    mutex_lock(&p->mutex);
    base_list_remove(&c->node);
    base_list_remove(&c->job.node);
    net_close(c->fd);
    p->connection_count--;
    condition_broadcast(&p->quiet);
    mutex_unlock(&p->mutex);
    wire_hello_wipe(&c->hello);
    base_buf_free(&c->hello_out);
    free(c);
}

static void connection_deadline(struct connection *c, uint64_t after_ns)
{
    c->deadline_ns = clock_after(clock_real_now_ns(), after_ns);
}

/* Returns > 0: bytes; 0: try later; < 0: the connection is over (step is CLOSE). */
static ssize_t connection_receive(struct connection *c, void *to, size_t size)
{
    ssize_t n;
    do {
        n = recv(c->fd, to, size, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    c->step = STEP_CLOSE;
    return -1;
}

static ssize_t connection_send(struct connection *c, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    c->step = STEP_CLOSE;
    return -1;
}

/* ---- the hello ---- */

/* True when everything is out. */
static bool hello_flush(struct connection *c)
{
    while (c->hello_out.size > 0) {
        struct iovec iov = {c->hello_out.data, c->hello_out.size};
        ssize_t n = connection_send(c, &iov, 1);
        if (n <= 0)
            return false;
        base_buf_consume(&c->hello_out, (size_t)n);
    }
    return true;
}

/* One frame of the hello, if it is all there. True: look again. */
static bool hello_step(struct tcp_provider *p, struct connection *c)
{
    struct wire_header header;
    const uint8_t *in = c->in + c->in_used;
    size_t size = c->in_size - c->in_used;
    if (c->hello_out.size > 0 && !hello_flush(c))
        return false;
    if (c->hello.state == WIRE_HELLO_DONE) {
        c->session = c->hello.session;
        wire_hello_wipe(&c->hello);
        base_buf_free(&c->hello_out);
        mutex_lock(&p->mutex);
        c->authenticated = true;
        mutex_unlock(&p->mutex);
        c->step = STEP_FRAME;
        connection_deadline(c, p->settings.idle_timeout_ns);
        return true;
    }
    if (c->hello.state == WIRE_HELLO_FAILED) {
        connection_refuse(p, c, c->hello.text);
        return false;
    }
    if (size < WIRE_HEADER_SIZE)
        return false;
    if (wire_header_decode(in, &header) != YOLK_OK || header.kind > WIRE_ERROR ||
        header.body_size > INPUT_SIZE - WIRE_HEADER_SIZE) {
        connection_refuse(p, c, "no hello of ours");
        return false;
    }
    if (size < WIRE_HEADER_SIZE + header.body_size)
        return false;
    c->in_used += WIRE_HEADER_SIZE + header.body_size;
    /* Its answer shows in the machine's state, looked at when the output has gone. */
    int status = wire_hello_input(&c->hello, &header, in + WIRE_HEADER_SIZE, &c->hello_out);
    if (status != YOLK_OK && c->hello.state != WIRE_HELLO_FAILED) {
        connection_refuse(p, c, "broken hello");
        return false;
    }
    return true;
}

/* ---- frames ---- */

static void reply_begin(struct tcp_provider *p, struct connection *c, int status,
                        const uint8_t *payload, uint64_t size)
{
    struct tcp_frame reply = {
        .kind = TCP_REPLY, .request_id = c->frame.request_id, .status = status, .length = size};
    uint8_t bytes[TCP_FRAME_MAX];
    (void)tcp_frame_encode(&reply, bytes);
    memcpy(c->reply, bytes, TCP_REPLY_SIZE);
    c->reply_sent = 0;
    c->payload = (uint8_t *)(uintptr_t)payload;
    c->payload_left = size;
    c->step = STEP_REPLY;
    connection_deadline(c, p->settings.stall_timeout_ns);
}

/* The segment is counted as in use before the engine is asked, so that a fence sees this access. */
static int access_begin(struct tcp_provider *p, struct connection *c)
{
    const struct tcp_frame *f = &c->frame;
    mutex_lock(&p->mutex);
    for (size_t i = 0; i < SERVED_MAX && c->served == NULL; i++) {
        if (p->served[i] != NULL && p->served[i]->segment == f->segment)
            c->served = p->served[i];
    }
    if (c->served != NULL) {
        c->served->users++;
        c->writing = f->kind == TCP_WRITE;
    }
    mutex_unlock(&p->mutex);
    if (c->served == NULL)
        return YOLK_ERR_STALE;
    if (c->served->file != NULL) { /* of reads it is asked when the disk's turn comes */
        if (f->kind == TCP_READ)
            return YOLK_OK;
        connection_release_served(p, c);
        return YOLK_ERR_ACCESS;
    }
    struct yolk_access_request request = {
        .segment = f->segment,
        .session = c->session,
        .offset = f->offset,
        .size = f->length,
        .ticket = f->kind == TCP_WRITE ? &f->ticket : NULL,
        .opcode = f->kind == TCP_WRITE ? YOLK_WRITE : YOLK_READ,
    };
    int status = c->served->access.check(c->served->access.self, &request);
    /* The callback is the policy; this is the memory. */
    if (status == YOLK_OK &&
        (f->offset > c->served->size || f->length > c->served->size - f->offset))
        status = YOLK_ERR_INVALID;
    if (status != YOLK_OK)
        connection_release_served(p, c);
    return status;
}

/* On a thread of the disk's. */
static void disk_done(struct tcp_disk_job *job)
{
    static const uint64_t one = 1;
    struct worker *w = BASE_CONTAINER(job, struct connection, job)->worker;
    mutex_lock(&w->provider->mutex);
    base_list_push_back(&w->finished, &job->node);
    ssize_t n = write(w->wake, &one, sizeof one);
    (void)n; /* readable already then */
    mutex_unlock(&w->provider->mutex);
}

static void disk_begin(struct tcp_provider *p, struct connection *c)
{
    c->job.target = (struct file_target){c->served->file, c->frame.segment, c->session};
    c->job.io = (struct yolk_io){.opcode = YOLK_READ,
                                 .offset = c->frame.offset,
                                 .size = c->frame.length,
                                 .ticket = c->frame.ticket};
    c->job.done = disk_done;
    c->step = STEP_DISK;
    connection_deadline(c, CLOCK_NEVER);
    int status = tcp_disk_submit(p->disk, &c->job);
    if (status != YOLK_OK) {
        connection_release_served(p, c);
        reply_begin(p, c, status, NULL, 0);
    }
}

static void quiet_reply(struct tcp_provider *p, struct connection *c)
{
    int status = YOLK_OK;
    mutex_lock(&p->mutex);
    for (uint32_t w = 0; w < p->worker_count; w++) {
        BASE_LIST_FOREACH(node, &p->workers[w].connections)
        {
            struct connection *other = BASE_CONTAINER(node, struct connection, node);
            if (other != c && other->authenticated && other->id == c->frame.id &&
                other->session == c->session) {
                net_shutdown(other->fd);
                status = YOLK_ERR_AGAIN;
            }
        }
    }
    mutex_unlock(&p->mutex);
    reply_begin(p, c, status, NULL, 0);
}

static void frame_begin(struct tcp_provider *p, struct connection *c)
{
    connection_deadline(c, p->settings.stall_timeout_ns);
    switch (c->frame.kind) {
    case TCP_ATTACH:
        mutex_lock(&p->mutex);
        c->id = c->frame.id;
        mutex_unlock(&p->mutex);
        reply_begin(p, c, YOLK_OK, NULL, 0);
        return;
    case TCP_QUIET:
        quiet_reply(p, c);
        return;
    case TCP_READ:
        c->status = access_begin(p, c);
        if (c->status == YOLK_OK && c->served->file != NULL)
            disk_begin(p, c);
        else if (c->status == YOLK_OK)
            reply_begin(p, c, YOLK_OK, c->served->memory + c->frame.offset, c->frame.length);
        else
            reply_begin(p, c, c->status, NULL, 0);
        return;
    case TCP_WRITE:
        c->status = access_begin(p, c);
        c->payload = c->status == YOLK_OK ? c->served->memory + c->frame.offset : NULL;
        c->payload_left = c->frame.length;
        c->step = STEP_PAYLOAD;
        return;
    default:
        connection_refuse(p, c, "a reply instead of a request");
    }
}

/* True: look again. False: more bytes are needed (or the end). */
static bool frame_step(struct tcp_provider *p, struct connection *c)
{
    size_t used;
    if (tcp_frame_decode(c->in + c->in_used, c->in_size - c->in_used, &c->frame, &used) !=
        YOLK_OK) {
        connection_refuse(p, c, yolk_last_error());
        return false;
    }
    if (used == 0)
        return false;
    c->in_used += used;
    frame_begin(p, c);
    return c->step != STEP_CLOSE;
}

static bool payload_step(struct worker *w, struct connection *c, unsigned *receives)
{
    struct tcp_provider *p = w->provider;
    uint64_t here = c->in_size - c->in_used;
    if (here > c->payload_left)
        here = c->payload_left;
    if (here > 0) {
        if (c->payload != NULL) {
            memcpy(c->payload, c->in + c->in_used, here);
            c->payload += here;
        }
        c->in_used += here;
        c->payload_left -= here;
    }
    while (c->payload_left > 0) {
        if ((*receives)++ >= RECEIVES_A_TURN)
            return false;
        uint64_t size = c->payload_left;
        if (c->payload == NULL && size > DISCARD_SIZE)
            size = DISCARD_SIZE;
        ssize_t n = connection_receive(c, c->payload != NULL ? c->payload : w->discard, size);
        if (n <= 0)
            return false;
        if (c->payload != NULL)
            c->payload += n;
        c->payload_left -= (uint64_t)n;
        connection_deadline(c, p->settings.stall_timeout_ns);
    }
    connection_release_served(p, c);
    reply_begin(p, c, c->status, NULL, 0);
    return true;
}

static bool reply_step(struct tcp_provider *p, struct connection *c)
{
    while (c->reply_sent < TCP_REPLY_SIZE || c->payload_left > 0) {
        struct iovec iov[2] = {{c->reply + c->reply_sent, TCP_REPLY_SIZE - c->reply_sent},
                               {c->payload, c->payload_left}};
        ssize_t n = connection_send(c, iov, 2);
        if (n <= 0)
            return false;
        size_t head = (size_t)n < iov[0].iov_len ? (size_t)n : iov[0].iov_len;
        c->reply_sent += head;
        c->payload += (size_t)n - head;
        c->payload_left -= (size_t)n - head;
        connection_deadline(c, p->settings.stall_timeout_ns);
    }
    connection_release_served(p, c);
    connection_give_staging_back(p, c);
    c->step = STEP_FRAME;
    connection_deadline(c, p->settings.idle_timeout_ns);
    return true;
}

/* Goes on until the socket has nothing more to give or take. */
static void connection_run(struct worker *w, struct connection *c)
{
    struct tcp_provider *p = w->provider;
    unsigned receives = 0;
    for (;;) {
        bool again = false;
        switch (c->step) {
        case STEP_HELLO:
            again = hello_step(p, c);
            break;
        case STEP_FRAME:
            again = frame_step(p, c);
            break;
        case STEP_PAYLOAD:
            again = payload_step(w, c, &receives);
            break;
        case STEP_REPLY:
            again = reply_step(p, c);
            break;
        case STEP_DISK:
        case STEP_CLOSE:
            break;
        }
        if (again)
            continue;
        if ((c->step != STEP_HELLO && c->step != STEP_FRAME) || c->hello_out.size > 0)
            return;
        if (receives++ >= RECEIVES_A_TURN)
            return;
        memmove(c->in, c->in + c->in_used, c->in_size - c->in_used);
        c->in_size -= c->in_used;
        c->in_used = 0;
        ssize_t n = connection_receive(c, c->in + c->in_size, INPUT_SIZE - c->in_size);
        if (n <= 0)
            return;
        if (c->step == STEP_FRAME && c->in_size == 0)
            connection_deadline(c, p->settings.stall_timeout_ns);
        c->in_size += (size_t)n;
    }
}

/* ---- threads ---- */

static void worker_event(struct worker *w, struct connection *c)
{
    connection_run(w, c);
    if (c->step == STEP_CLOSE) {
        connection_close(w->provider, c);
        return;
    }
    if (c->step == STEP_DISK) { /* even a hang-up would wake the worker again and again */
        (void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->fd, NULL);
        return;
    }
    bool output = c->step == STEP_REPLY || c->hello_out.size > 0;
    if (output == c->want_output)
        return;
    c->want_output = output;
    struct epoll_event event = {.events = output ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (epoll_ctl(w->epoll, EPOLL_CTL_MOD, c->fd, &event) != 0)
        connection_close(w->provider, c);
}

/* The disk is done for this connection. */
static void worker_resume(struct worker *w, struct connection *c)
{
    struct tcp_provider *p = w->provider;
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = c};
    int status = c->job.status;
    connection_release_served(p, c);
    reply_begin(p, c, status, c->job.staging, status == YOLK_OK ? c->frame.length : 0);
    c->want_output = true;
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, c->fd, &event) != 0)
        connection_close(p, c);
    else
        worker_event(w, c);
}

static void worker_finished(struct worker *w)
{
    uint64_t ignored;
    ssize_t got = read(w->wake, &ignored, sizeof ignored);
    (void)got; /* another call may have emptied it, and the list with it */
    for (;;) {
        mutex_lock(&w->provider->mutex);
        struct base_list *node = base_list_first(&w->finished);
        if (node != NULL)
            base_list_remove(node);
        mutex_unlock(&w->provider->mutex);
        if (node == NULL)
            return;
        struct tcp_disk_job *job = BASE_CONTAINER(node, struct tcp_disk_job, node);
        worker_resume(w, BASE_CONTAINER(job, struct connection, job));
    }
}

static void worker_sweep(struct worker *w, bool all)
{
    struct tcp_provider *p = w->provider;
    uint64_t now = clock_real_now_ns();
    for (;;) {
        struct connection *found = NULL;
        mutex_lock(&p->mutex);
        BASE_LIST_FOREACH(node, &w->connections)
        {
            struct connection *c = BASE_CONTAINER(node, struct connection, node);
            if (all || c->deadline_ns <= now) {
                found = c;
                break;
            }
        }
        mutex_unlock(&p->mutex);
        if (found == NULL)
            return;
        if (!all && found->step == STEP_HELLO)
            connection_refuse(p, found, "no hello in time");
        connection_close(p, found);
    }
}

static void worker_main(void *arg)
{
    struct worker *w = arg;
    uint64_t swept_ns = clock_real_now_ns();
    for (;;) {
        struct epoll_event events[32];
        int n = epoll_wait(w->epoll, events, 32, SWEEP_MS);
        bool stopping = false;
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                stopping = true;
            else if (events[i].data.ptr == w)
                worker_finished(w);
            else
                worker_event(w, events[i].data.ptr);
        }
        if (stopping)
            break;
        uint64_t now = clock_real_now_ns();
        if (now - swept_ns >= SWEEP_MS * NS_PER_MS) {
            worker_sweep(w, false);
            swept_ns = now;
        }
    }
    worker_sweep(w, true);
}

static void provider_adopt(struct tcp_provider *p, struct worker *w, int fd)
{
    struct wire_hello_options options;
    struct connection *c = calloc(1, sizeof *c);
    if (c == NULL) {
        net_close(fd);
        return;
    }
    c->fd = fd;
    c->worker = w;
    base_list_init(&c->node);
    base_list_init(&c->job.node);
    base_buf_init(&c->hello_out, 2 * INPUT_SIZE);
    tcp_wire_options(&p->settings, 0, &options);
    options.purposes = 1u << WIRE_PURPOSE_DATA;
    int status = wire_hello_init(&c->hello, true, &options);
    if (status == YOLK_OK)
        status = wire_hello_start(&c->hello, &c->hello_out);
    connection_deadline(c, p->settings.hello_timeout_ns);
    mutex_lock(&p->mutex);
    if (status == YOLK_OK && p->connection_count >= MAX_CONNECTIONS) {
        log_refusal(p, "too many connections");
        status = YOLK_ERR_LIMIT;
    }
    p->connection_count++;
    base_list_push_back(&w->connections, &c->node);
    /* Under the mutex: the worker may close it as soon as epoll has it. */
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (status == YOLK_OK && epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        status = YOLK_ERR_SYSTEM;
    mutex_unlock(&p->mutex);
    if (status != YOLK_OK)
        connection_close(p, c);
}

static void accepter_main(void *arg)
{
    struct tcp_provider *p = arg;
    uint32_t next = 0;
    for (;;) {
        struct pollfd fds[2] = {{p->wake, POLLIN, 0}, {p->listener, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            return;
        int fd = net_accept_ready(p->listener);
        if (fd < 0)
            continue;
        tcp_tune(fd);
        provider_adopt(p, &p->workers[next++ % p->worker_count], fd);
    }
}

static int worker_start(struct tcp_provider *p, struct worker *w)
{
    w->provider = p;
    base_list_init(&w->connections);
    base_list_init(&w->finished);
    w->discard = malloc(DISCARD_SIZE);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->wake < 0 || w->discard == NULL)
        return base_fail(YOLK_ERR_SYSTEM, errno, "tcp: worker");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event finished = {.events = EPOLLIN, .data.ptr = w};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, p->wake, &event) != 0 ||
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &finished) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "tcp: epoll_ctl");
    return thread_start(&w->thread, "yolk-tcp", worker_main, w);
}

/* Holds the mutex (no thread of ours is there yet). On failure stop and destroy clean up. */
static int provider_start(struct tcp_provider *p)
{
    struct net_address address, bound;
    char text[300];
    const char *host = p->settings.listen;
    (void)snprintf(text, sizeof text,
                   strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%u" : "%s:%u", host,
                   p->settings.port);
    /* Port 0 is "any" for listen, but the parser wants a number there that it takes as given. */
    int status = net_address_parse(text, 0, &address);
    if (status != YOLK_OK)
        return status;
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "tcp: eventfd");
    status = net_listen(&address, 512, &p->listener, &bound);
    if (status != YOLK_OK)
        return status;
    p->port = net_address_port(&bound);
    for (uint32_t i = 0; i < p->settings.workers; i++) {
        p->worker_count = i + 1;
        status = worker_start(p, &p->workers[i]);
        if (status != YOLK_OK)
            return status;
    }
    p->running = true;
    return thread_start(&p->accepter, "yolk-tcp-accept", accepter_main, p);
}

/* ---- the interface ---- */

int tcp_provider_create(const struct tcp_settings *settings, struct tcp_provider **out)
{
    struct tcp_provider *p = calloc(1, sizeof *p);
    if (p == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: provider");
    p->settings = *settings;
    if (p->settings.workers > WORKERS_MAX)
        p->settings.workers = WORKERS_MAX;
    p->listener = -1;
    p->wake = -1;
    for (size_t i = 0; i < WORKERS_MAX; i++) {
        p->workers[i].epoll = -1;
        p->workers[i].wake = -1;
    }
    mutex_init(&p->mutex);
    condition_init(&p->quiet);
    *out = p;
    return YOLK_OK;
}

static void provider_halt(struct tcp_provider *p)
{
    if (p->disk != NULL) /* before the workers: none may close what the disk is at work for */
        tcp_disk_stop(p->disk);
    if (p->wake >= 0) {
        uint64_t one = 1;
        ssize_t n = write(p->wake, &one, sizeof one);
        (void)n; /* readable already then */
    }
    thread_join(&p->accepter);
    for (uint32_t i = 0; i < p->worker_count; i++) {
        struct worker *w = &p->workers[i];
        thread_join(&w->thread);
        if (w->connections.next != NULL)
            worker_sweep(w, true); /* what came between its end and the accepter's */
        if (w->epoll >= 0)
            (void)close(w->epoll);
        if (w->wake >= 0)
            (void)close(w->wake);
        w->epoll = -1;
        w->wake = -1;
        free(w->discard);
        w->discard = NULL;
    }
    if (p->disk != NULL)
        tcp_disk_destroy(p->disk);
    p->disk = NULL;
    p->worker_count = 0;
    net_close(p->listener);
    p->listener = -1;
    if (p->wake >= 0)
        (void)close(p->wake);
    p->wake = -1;
    p->running = false;
}

void tcp_provider_stop(struct tcp_provider *p)
{
    mutex_lock(&p->mutex);
    bool first = !p->stopped;
    p->stopped = true;
    mutex_unlock(&p->mutex);
    if (first)
        provider_halt(p);
}

void tcp_provider_destroy(struct tcp_provider *p)
{
    tcp_provider_stop(p);
    condition_destroy(&p->quiet);
    mutex_destroy(&p->mutex);
    free(p);
}

static void served_free(struct tcp_served *served)
{
    if (served->file != NULL) {
        file_served_hide(served->file);
        file_served_drop(served->file);
    }
    free(served);
}

static int served_make(const struct yolk_serve *serve, struct tcp_served **out)
{
    char token[64]; /* for consumers of this process; ours do not see it */
    struct tcp_served *served = calloc(1, sizeof *served);
    if (served == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: served segment");
    served->memory = serve->memory;
    served->size = serve->size;
    served->segment = serve->segment;
    served->access = serve->access;
    int status = YOLK_OK;
    if (serve->file != NULL)
        status = file_served_make(serve, &served->file, token, sizeof token);
    if (status != YOLK_OK) {
        free(served);
        return status;
    }
    *out = served;
    return YOLK_OK;
}

/* Holds the mutex. */
static int provider_ready(struct tcp_provider *p, bool for_file)
{
    int status = p->stopped ? base_fail(YOLK_ERR_CLOSED, 0, "tcp: stopped") : YOLK_OK;
    if (status == YOLK_OK && !p->running) {
        status = provider_start(p);
        if (status != YOLK_OK) {
            mutex_unlock(&p->mutex);
            provider_halt(p);
            mutex_lock(&p->mutex);
        }
    }
    if (status == YOLK_OK && for_file && p->disk == NULL)
        status = tcp_disk_create(&p->disk);
    return status;
}

int tcp_provider_serve(struct tcp_provider *p, const struct yolk_serve *serve,
                       struct tcp_served **out, char *text, size_t text_size)
{
    char instance[TCP_INSTANCE_TEXT];
    struct tcp_served *served = NULL;
    int status = served_make(serve, &served);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&p->mutex);
    status = provider_ready(p, serve->file != NULL);
    size_t slot = 0;
    while (slot < SERVED_MAX && p->served[slot] != NULL)
        slot++;
    if (status == YOLK_OK && slot == SERVED_MAX)
        status = base_fail(YOLK_ERR_LIMIT, 0, "tcp: %d segments are served already", SERVED_MAX);
    if (status == YOLK_OK)
        p->served[slot] = served;
    mutex_unlock(&p->mutex);
    if (status != YOLK_OK) {
        served_free(served);
        return status;
    }
    for (size_t i = 0; i < WIRE_ID_SIZE; i++)
        (void)snprintf(instance + 2 * i, 3, "%02x", p->settings.instance[i]);
    const char *host = p->settings.host;
    int n = snprintf(text, text_size,
                     strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%u,%s" : "%s:%u,%s", host,
                     p->port, instance);
    if (n < 0 || (size_t)n >= text_size) {
        tcp_provider_unserve(p, served);
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "tcp: endpoint text");
    }
    *out = served;
    return YOLK_OK;
}

void tcp_provider_set_segment(struct tcp_provider *p, struct tcp_served *served, uint64_t segment)
{
    mutex_lock(&p->mutex);
    served->segment = segment;
    mutex_unlock(&p->mutex);
}

/* Shuts down the connections at work on `served` (for a fence: writing for that session). Holds the
 * mutex. */
static uint32_t provider_cut(struct tcp_provider *p, const struct tcp_served *served, bool fence,
                             uint64_t session)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < p->worker_count; w++) {
        BASE_LIST_FOREACH(node, &p->workers[w].connections)
        {
            struct connection *c = BASE_CONTAINER(node, struct connection, node);
            if (c->served != served || (fence && (!c->writing || c->session != session)))
                continue;
            net_shutdown(c->fd);
            count++;
        }
    }
    return count;
}

int tcp_provider_fence(struct tcp_provider *p, struct tcp_served *served, uint64_t session)
{
    mutex_lock(&p->mutex);
    uint32_t left = provider_cut(p, served, true, session);
    mutex_unlock(&p->mutex);
    if (left > 0)
        return base_fail(YOLK_ERR_AGAIN, 0, "tcp: %u connections of the session still write", left);
    return YOLK_OK;
}

void tcp_provider_unserve(struct tcp_provider *p, struct tcp_served *served)
{
    mutex_lock(&p->mutex);
    for (size_t i = 0; i < SERVED_MAX; i++) {
        if (p->served[i] == served)
            p->served[i] = NULL;
    }
    while (served->users > 0) {
        (void)provider_cut(p, served, false, 0);
        condition_wait(&p->quiet, &p->mutex);
    }
    mutex_unlock(&p->mutex);
    served_free(served);
}

uint32_t tcp_provider_connections(struct tcp_provider *p)
{
    mutex_lock(&p->mutex);
    uint32_t count = p->connection_count;
    mutex_unlock(&p->mutex);
    return count;
}
