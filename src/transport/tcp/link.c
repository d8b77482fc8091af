/* SPDX-License-Identifier: Apache-2.0 */
/* How one connection of the consumer comes to be, and how it ends. */
#include "transport/tcp/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/random.h"

enum { HELLO_MAX = 4096 };

/* ---- the end of a connection ---- */

static void link_reset(struct tcp_link *l)
{
    net_close(l->fd);
    l->fd = -1;
    wire_hello_wipe(&l->hello);
    base_buf_free(&l->out);
    base_buf_free(&l->in);
    l->reply_size = 0;
    l->reply_count = 0;
    l->reply_got = 0;
    l->next = NULL;
    l->unsent = 0;
    l->unsent_count = 0;
    free(l->stage);
    l->stage = NULL;
    l->stage_size = 0;
    l->stage_used = 0;
    atomic_store(&l->state, LINK_CLOSED);
}

void tcp_link_fail(struct tcp_link *l, int status)
{
    struct tcp_target *t = l->target;
    bool was_ready = atomic_load(&l->state) == LINK_READY;
    mutex_lock(&t->mutex);
    if (!was_ready && status != YOLK_ERR_CLOSED)
        status = tcp_target_note_failure(t, status);
    uint64_t lost = l->id;
    uint64_t now = clock_real_now_ns();
    link_reset(l);
    BASE_LIST_FOREACH_SAFE(node, &l->entries)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        tcp_link_detach(l, e);
        bool may_land = e->channel != NULL && e->opcode == YOLK_WRITE && e->sent > 0;
        if (may_land && status != YOLK_ERR_CLOSED)
            tcp_limbo_add(t, e, lost, now);
        else if (may_land)
            tcp_entry_end(e, YOLK_ERR_STUCK, 0);
        else
            tcp_entry_end(e, e->canceled ? YOLK_ERR_CANCELED : status, 0);
    }
    mutex_unlock(&t->mutex);
}

/* ---- connecting ---- */

int tcp_link_open(struct tcp_link *l)
{
    struct tcp_target *t = l->target;
    struct random random = random_real();
    uint64_t now = clock_real_now_ns();
    mutex_lock(&t->mutex);
    int status = YOLK_OK;
    if (t->stopped)
        status = base_fail(YOLK_ERR_CLOSED, 0, "tcp: stopped");
    else if (now < t->retry_ns)
        status = base_fail(t->last_status, 0, "%s (tried a moment ago)", t->last_text);
    mutex_unlock(&t->mutex);
    if (status != YOLK_OK)
        return status;
    l->stage = base_malloc(TCP_STAGE_SIZE);
    if (l->stage == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: %d bytes to receive into", TCP_STAGE_SIZE);
    int fd = socket(t->address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        status = base_fail(YOLK_ERR_SYSTEM, errno, "tcp: socket");
        link_reset(l);
        return status;
    }
    l->fd = fd;
    l->id = random_u64(&random) | 1;
    l->deadline_ns = clock_after(now, t->settings->connect_timeout_ns);
    base_buf_init(&l->out, HELLO_MAX);
    base_buf_init(&l->in, HELLO_MAX);
    atomic_store(&l->state, LINK_CONNECTING);
    if (connect(fd, (const struct sockaddr *)&t->address.storage, t->address.size) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        status = base_fail(errno == ECONNREFUSED ? YOLK_ERR_REFUSED : YOLK_ERR_LINK, errno,
                           "tcp: connect");
        tcp_link_fail(l, status);
        return status;
    }
    return YOLK_OK;
}

static int step_connecting(struct tcp_link *l)
{
    struct wire_hello_options options;
    struct pollfd p = {l->fd, POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0)
        return YOLK_ERR_AGAIN;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error != 0) {
        char text[NET_ADDRESS_TEXT_MAX];
        net_address_format(&l->target->address, text, sizeof text);
        return base_fail(error == ECONNREFUSED ? YOLK_ERR_REFUSED : YOLK_ERR_LINK, error,
                         "tcp: connect to %s", text);
    }
    tcp_tune(l->fd);
    tcp_wire_options(l->target->settings, l->target->session, &options);
    int status = wire_hello_init(&l->hello, false, &options);
    if (status == YOLK_OK)
        status = wire_hello_start(&l->hello, &l->out);
    if (status == YOLK_OK)
        atomic_store(&l->state, LINK_HELLO);
    return status;
}

static int hello_finished(struct tcp_link *l)
{
    if (memcmp(l->hello.peer_instance, l->target->instance, WIRE_ID_SIZE) != 0)
        return base_fail(YOLK_ERR_STALE, 0, "tcp: another process answers at that address now");
    l->gathers = (l->hello.features & TCP_FEATURE_READS) != 0;
    struct tcp_frame attach = {.kind = TCP_ATTACH, .id = l->id};
    l->attach_size = tcp_frame_encode(&attach, l->attach);
    l->attach_sent = 0;
    wire_hello_wipe(&l->hello);
    base_buf_free(&l->out);
    base_buf_free(&l->in);
    atomic_store(&l->state, LINK_ATTACH);
    return YOLK_OK;
}

/* Exactly one frame is read, so that nothing behind the hello is lost. */
static int hello_receive(struct tcp_link *l)
{
    struct wire_header header;
    size_t want = WIRE_HEADER_SIZE;
    if (l->in.size >= WIRE_HEADER_SIZE) {
        int status = wire_header_decode(l->in.data, &header);
        if (status != YOLK_OK)
            return status;
        if (header.kind > WIRE_ERROR || header.body_size > HELLO_MAX - WIRE_HEADER_SIZE)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: not a hello");
        want += header.body_size;
    }
    if (l->in.size < want) {
        size_t more = want - l->in.size;
        int status = base_buf_reserve(&l->in, more);
        if (status != YOLK_OK)
            return status;
        struct iovec iov = {l->in.data + l->in.size, more};
        ssize_t n = tcp_stream_receive_bytes(l, &iov, 1);
        if (n <= 0)
            return n == 0 ? YOLK_ERR_AGAIN : (int)n;
        l->in.size += (size_t)n;
        return YOLK_OK;
    }
    int status = wire_hello_input(&l->hello, &header, l->in.data + WIRE_HEADER_SIZE, &l->out);
    base_buf_clear(&l->in);
    return status;
}

static int step_hello(struct tcp_link *l)
{
    while (l->out.size > 0) {
        struct iovec iov = {l->out.data, l->out.size};
        ssize_t n = tcp_stream_send_bytes(l, &iov, 1);
        if (n <= 0)
            return n == 0 ? YOLK_ERR_AGAIN : (int)n;
        base_buf_consume(&l->out, (size_t)n);
    }
    if (l->hello.state == WIRE_HELLO_DONE)
        return hello_finished(l);
    return hello_receive(l);
}

static int step_attach(struct tcp_link *l)
{
    struct tcp_target *t = l->target;
    struct tcp_frame frame;
    size_t used = 0;
    while (l->attach_sent < l->attach_size) {
        struct iovec iov = {l->attach + l->attach_sent, l->attach_size - l->attach_sent};
        ssize_t n = tcp_stream_send_bytes(l, &iov, 1);
        if (n <= 0)
            return n == 0 ? YOLK_ERR_AGAIN : (int)n;
        l->attach_sent += (size_t)n;
    }
    struct iovec iov = {l->reply + l->reply_size, TCP_REPLY_SIZE - l->reply_size};
    ssize_t n = tcp_stream_receive_bytes(l, &iov, 1);
    if (n <= 0)
        return n == 0 ? YOLK_ERR_AGAIN : (int)n;
    l->reply_size += (size_t)n;
    int status = tcp_frame_decode(l->reply, l->reply_size, &frame, &used);
    if (status != YOLK_OK || used == 0)
        return status;
    if (frame.kind != TCP_REPLY || frame.status != YOLK_OK || frame.length != 0)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: the provider did not attach");
    l->reply_size = 0;
    mutex_lock(&t->mutex);
    t->was_connected = true;
    t->backoff_ns = 0;
    mutex_unlock(&t->mutex);
    atomic_store(&l->state, LINK_READY);
    return YOLK_OK;
}

/* ---- for others ---- */

void tcp_link_drive(struct tcp_link *l)
{
    int status = YOLK_OK;
    while (status == YOLK_OK) {
        switch (atomic_load(&l->state)) {
        case LINK_CONNECTING:
            status = step_connecting(l);
            break;
        case LINK_HELLO:
            status = step_hello(l);
            break;
        case LINK_ATTACH:
            status = step_attach(l);
            break;
        case LINK_READY:
            status = tcp_stream_step(l);
            break;
        default:
            return;
        }
    }
    if (status == YOLK_ERR_AGAIN && atomic_load(&l->state) != LINK_READY &&
        clock_real_now_ns() >= l->deadline_ns)
        status = base_fail(YOLK_ERR_TIMEOUT, 0, "tcp: the provider does not answer");
    if (status != YOLK_ERR_AGAIN)
        tcp_link_fail(l, status);
}

short tcp_link_events(struct tcp_link *l)
{
    switch (atomic_load(&l->state)) {
    case LINK_CONNECTING:
        return POLLOUT;
    case LINK_HELLO:
        return l->out.size > 0 ? POLLIN | POLLOUT : POLLIN;
    case LINK_ATTACH:
        return l->attach_sent < l->attach_size ? POLLIN | POLLOUT : POLLIN;
    case LINK_READY:
        return l->next != NULL ? POLLIN | POLLOUT : POLLIN;
    default:
        return 0;
    }
}

static int link_usable(struct tcp_link *l)
{
    if (l->entry_count >= TCP_LINK_DEPTH)
        return YOLK_ERR_AGAIN;
    /* Closed while it was idle (the provider limits that): found out before anything depends on it.
     */
    if (atomic_load(&l->state) == LINK_READY && l->entry_count == 0 && net_is_dead(l->fd))
        link_reset(l);
    return atomic_load(&l->state) == LINK_CLOSED ? tcp_link_open(l) : YOLK_OK;
}

int tcp_link_add(struct tcp_link *l, struct tcp_entry *e, const struct yolk_io *io)
{
    static const struct yolk_ticket none;
    int status = link_usable(l);
    if (status != YOLK_OK)
        return status;
    e->opcode = io->opcode;
    e->local = io->local;
    e->offset = io->offset;
    e->size = io->size;
    e->request_id = ++l->next_request;
    e->completion.cookie = io->cookie;
    e->plain = io->opcode == YOLK_READ && memcmp(&io->ticket, &none, sizeof none) == 0;
    if (!e->plain) {
        const struct tcp_frame frame = {
            .kind = io->opcode == YOLK_WRITE ? TCP_WRITE : TCP_READ,
            .request_id = e->request_id,
            .segment = l->target->segment,
            .offset = io->offset,
            .length = io->size,
            .ticket = io->ticket,
        };
        e->frame_size = tcp_frame_encode(&frame, e->frame);
    }
    tcp_link_append(l, e);
    l->unsent += e->size;
    if (l->unsent >= TCP_GATHER_BYTES || ++l->unsent_count >= TCP_READS_MAX)
        tcp_link_flush(l);
    return YOLK_OK;
}

void tcp_link_flush(struct tcp_link *l)
{
    if (atomic_load(&l->state) != LINK_READY)
        return;
    int status = tcp_stream_send(l);
    if (status != YOLK_OK)
        tcp_link_fail(l, status);
}
