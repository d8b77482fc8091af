/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the consumer, and the few of a target together. Nothing here blocks but
 * tcp_target_connect. Order of locks: link, target, channel.
 */
#include "transport/tcp/link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/random.h"

enum {
    HELLO_MAX = 4096,
    SEND_VECTORS = 64,
    SEND_BYTES = 65536,  /* gathered by submits, then sent without a flush */
    STAGE_SIZE = 131072, /* received at once */
    SMALL_REPLY = 16384, /* up to here a second copy costs less than a call of its own */
    RECEIVES_A_TURN = 64,
    BACKOFF_MIN_MS = 10,
    BACKOFF_MAX_MS = 1000,
    QUIET_PERIOD_MS = 2,
    CONNECT_WAIT_MS = 20, /* of one call; then its caller may look at its deadlines */
};

/* ---- completions ---- */

static void entry_complete(struct tcp_entry *e, int status, uint64_t transferred)
{
    struct tcp_channel *ch = e->channel;
    e->channel = NULL;
    e->completion.status = (enum yolk_status)status;
    e->completion.transferred = transferred;
    mutex_lock(&ch->mutex);
    base_list_push_back(&ch->done, &e->node);
    if (ch->armed) {
        uint64_t one = 1;
        ssize_t n = write(ch->wake, &one, sizeof one);
        (void)n; /* it is set already then */
        ch->armed = false;
    }
    /* The channel may be closed by its owner from here on. */
    mutex_unlock(&ch->mutex);
}

static void link_detach(struct tcp_link *l, struct tcp_entry *e)
{
    base_list_remove(&e->node);
    l->entry_count--;
    (void)atomic_fetch_sub(&l->bytes, e->size + 1);
}

/* Completes or frees an entry that is in no list. */
static void entry_end(struct tcp_entry *e, int status, uint64_t transferred)
{
    if (e->channel == NULL)
        free(e);
    else
        entry_complete(e, status, transferred);
}

/* Holds the target's mutex. id 0: all. */
static void limbo_resolve(struct tcp_target *t, uint64_t id, int status)
{
    BASE_LIST_FOREACH_SAFE(node, &t->limbo)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        if (id != 0 && e->limbo_id != id)
            continue;
        base_list_remove(node);
        (void)atomic_fetch_sub(&t->limbo_count, 1);
        entry_complete(e, e->canceled && status == YOLK_ERR_LINK ? YOLK_ERR_CANCELED : status, 0);
    }
}

/* ---- the end of a connection ---- */

static void link_reset(struct tcp_link *l)
{
    net_close(l->fd);
    l->fd = -1;
    wire_hello_wipe(&l->hello);
    base_buf_free(&l->out);
    base_buf_free(&l->in);
    l->reply_size = 0;
    l->reply_known = false;
    l->reply_got = 0;
    l->next = NULL;
    l->unsent = 0;
    free(l->stage);
    l->stage = NULL;
    l->stage_size = 0;
    l->stage_used = 0;
    atomic_store(&l->state, LINK_CLOSED);
}

/* What a failed attempt to connect means for the target. Holds both mutexes. */
static int target_note_failure(struct tcp_target *t, int status)
{
    if (status == YOLK_ERR_REFUSED && t->was_connected)
        status = YOLK_ERR_PEER_DEAD;
    if (t->backoff_ns < BACKOFF_MIN_MS * NS_PER_MS)
        t->backoff_ns = BACKOFF_MIN_MS * NS_PER_MS;
    t->retry_ns = clock_after(clock_real_now_ns(), t->backoff_ns);
    t->backoff_ns *= 2;
    if (t->backoff_ns > BACKOFF_MAX_MS * NS_PER_MS)
        t->backoff_ns = BACKOFF_MAX_MS * NS_PER_MS;
    t->last_status = status;
    (void)snprintf(t->last_text, sizeof t->last_text, "%s", yolk_last_error());
    /* Nobody listens, or somebody else: the provider's process is gone, and its memory with it. */
    if (status == YOLK_ERR_PEER_DEAD || status == YOLK_ERR_STALE)
        limbo_resolve(t, 0, YOLK_ERR_PEER_DEAD);
    return status;
}

static void link_fail(struct tcp_link *l, int status)
{
    struct tcp_target *t = l->target;
    bool was_ready = atomic_load(&l->state) == LINK_READY;
    mutex_lock(&t->mutex);
    if (!was_ready && status != YOLK_ERR_CLOSED)
        status = target_note_failure(t, status);
    uint64_t lost = l->id;
    uint64_t now = clock_real_now_ns();
    link_reset(l);
    BASE_LIST_FOREACH_SAFE(node, &l->entries)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        link_detach(l, e);
        if (e->channel != NULL && e->opcode == YOLK_WRITE && e->sent > 0) {
            if (status == YOLK_ERR_CLOSED) {
                entry_complete(e, YOLK_ERR_STUCK, 0);
                continue;
            }
            e->limbo_id = lost;
            e->lost_ns = now;
            base_list_push_back(&t->limbo, &e->node);
            (void)atomic_fetch_add(&t->limbo_count, 1);
            t->limbo_asked_ns = 0;
            continue;
        }
        entry_end(e, e->canceled ? YOLK_ERR_CANCELED : status, 0);
    }
    mutex_unlock(&t->mutex);
}

/* ---- connecting ---- */

static int link_open(struct tcp_link *l)
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
    l->stage = base_malloc(STAGE_SIZE);
    if (l->stage == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: %d bytes to receive into", STAGE_SIZE);
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
        link_fail(l, status);
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

/* > 0 bytes, 0: later, < 0: a status. */
static ssize_t link_send_bytes(struct tcp_link *l, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = sendmsg(l->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
        return 0;
    return base_fail(YOLK_ERR_LINK, errno, "tcp: send");
}

static ssize_t link_receive_bytes(struct tcp_link *l, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = recvmsg(l->fd, &message, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    if (n == 0)
        return base_fail(YOLK_ERR_LINK, 0, "tcp: the provider closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    return base_fail(YOLK_ERR_LINK, errno, "tcp: receive");
}

static int hello_finished(struct tcp_link *l)
{
    if (memcmp(l->hello.peer_instance, l->target->instance, WIRE_ID_SIZE) != 0)
        return base_fail(YOLK_ERR_STALE, 0, "tcp: another process answers at that address now");
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
        ssize_t n = link_receive_bytes(l, &iov, 1);
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
        ssize_t n = link_send_bytes(l, &iov, 1);
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
        ssize_t n = link_send_bytes(l, &iov, 1);
        if (n <= 0)
            return n == 0 ? YOLK_ERR_AGAIN : (int)n;
        l->attach_sent += (size_t)n;
    }
    struct iovec iov = {l->reply + l->reply_size, TCP_REPLY_SIZE - l->reply_size};
    ssize_t n = link_receive_bytes(l, &iov, 1);
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

/* ---- requests and replies ---- */

static size_t entry_wire_size(const struct tcp_entry *e)
{
    return e->frame_size + (e->kind == ENTRY_IO && e->opcode == YOLK_WRITE ? (size_t)e->size : 0);
}

static struct tcp_entry *entry_after(struct tcp_link *l, struct tcp_entry *e)
{
    return e->node.next == &l->entries ? NULL
                                       : BASE_CONTAINER(e->node.next, struct tcp_entry, node);
}

static int link_send(struct tcp_link *l)
{
    l->unsent = 0;
    while (l->next != NULL) {
        struct iovec iov[SEND_VECTORS];
        size_t count = 0;
        for (struct tcp_entry *e = l->next; e != NULL && count + 2 <= SEND_VECTORS;
             e = entry_after(l, e)) {
            if (e->sent < e->frame_size)
                iov[count++] = (struct iovec){e->frame + e->sent, e->frame_size - e->sent};
            uint64_t done = e->sent > e->frame_size ? e->sent - e->frame_size : 0;
            if (entry_wire_size(e) > e->frame_size)
                iov[count++] = (struct iovec){e->local + done, e->size - done};
        }
        ssize_t n = link_send_bytes(l, iov, count);
        if (n <= 0)
            return (int)n;
        size_t left = (size_t)n;
        while (l->next != NULL) {
            size_t rest = entry_wire_size(l->next) - l->next->sent;
            if (left < rest) {
                l->next->sent += left;
                break;
            }
            l->next->sent += rest;
            left -= rest;
            l->next = entry_after(l, l->next);
        }
    }
    return YOLK_OK;
}

static void quiet_answered(struct tcp_link *l, struct tcp_entry *e, int status)
{
    struct tcp_target *t = l->target;
    if (status != YOLK_OK)
        return; /* it is asked again */
    mutex_lock(&t->mutex);
    limbo_resolve(t, e->limbo_id, YOLK_ERR_LINK);
    mutex_unlock(&t->mutex);
}

static void reply_finish(struct tcp_link *l, struct tcp_entry *e)
{
    link_detach(l, e);
    if (e->kind == ENTRY_QUIET)
        quiet_answered(l, e, l->reply_status);
    entry_end(e, l->reply_status, l->reply_status == YOLK_OK ? e->size : 0);
    l->reply_known = false;
    l->reply_got = 0;
}

static int reply_parse(struct tcp_link *l)
{
    struct tcp_frame frame;
    size_t used;
    struct base_list *node = base_list_first(&l->entries);
    int status = tcp_frame_decode(l->reply, l->reply_size, &frame, &used);
    if (status != YOLK_OK)
        return status;
    struct tcp_entry *e = node == NULL ? NULL : BASE_CONTAINER(node, struct tcp_entry, node);
    if (e == NULL || e == l->next || frame.kind != TCP_REPLY || frame.request_id != e->request_id ||
        frame.status > YOLK_OK)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: a reply to no request");
    bool data = e->kind == ENTRY_IO && e->opcode == YOLK_READ && frame.status == YOLK_OK;
    if (frame.length != (data ? e->size : 0))
        return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: a reply of the wrong size");
    l->reply_known = true;
    l->reply_size = 0;
    l->reply_status = frame.status;
    l->reply_left = frame.length;
    l->reply_got = 0;
    return YOLK_OK;
}

/* The request that the next bytes answer; NULL: none. */
static struct tcp_entry *entry_first(struct tcp_link *l)
{
    struct base_list *node = base_list_first(&l->entries);
    return node == NULL ? NULL : BASE_CONTAINER(node, struct tcp_entry, node);
}

/* `size` bytes of the reply's payload are in place. */
static void payload_took(struct tcp_link *l, uint64_t size)
{
    l->reply_left -= size;
    l->reply_got += size;
    if (l->reply_left == 0)
        reply_finish(l, entry_first(l));
}

/* Takes apart what the stage holds. */
static int stage_parse(struct tcp_link *l)
{
    while (l->stage_used < l->stage_size) {
        const uint8_t *from = l->stage + l->stage_used;
        size_t here = l->stage_size - l->stage_used;
        if (l->reply_known) {
            struct tcp_entry *e = entry_first(l);
            size_t size = here < l->reply_left ? here : (size_t)l->reply_left;
            if (e->channel != NULL) /* nobody has it any more otherwise */
                memcpy(e->local + l->reply_got, from, size);
            l->stage_used += size;
            payload_took(l, size);
            continue;
        }
        size_t size = TCP_REPLY_SIZE - l->reply_size;
        if (size > here)
            size = here;
        memcpy(l->reply + l->reply_size, from, size);
        l->reply_size += size;
        l->stage_used += size;
        if (l->reply_size < TCP_REPLY_SIZE)
            break;
        int status = reply_parse(l);
        if (status != YOLK_OK)
            return status;
        if (l->reply_left == 0)
            payload_took(l, 0);
    }
    l->stage_size = 0;
    l->stage_used = 0;
    return YOLK_OK;
}

/* How much is wanted behind a payload that goes straight to its place: much where small replies
 * follow, else the next one's head, so that its payload does so too. */
static size_t stage_room(struct tcp_link *l, bool direct)
{
    const struct tcp_entry *e = entry_first(l);
    if (direct)
        e = entry_after(l, entry_first(l));
    else if (l->reply_known)
        return STAGE_SIZE;
    bool large =
        e != NULL && e->kind == ENTRY_IO && e->opcode == YOLK_READ && e->size > SMALL_REPLY;
    return large ? TCP_REPLY_SIZE - l->reply_size : STAGE_SIZE;
}

/* One receive. AGAIN: nothing more is there. */
static int link_receive(struct tcp_link *l)
{
    struct iovec iov[2];
    size_t count = 0;
    uint64_t payload = 0;
    struct tcp_entry *e = entry_first(l);
    bool direct = l->reply_known && l->reply_left > SMALL_REPLY && e->channel != NULL;
    if (direct) {
        payload = l->reply_left;
        iov[count++] = (struct iovec){e->local + l->reply_got, payload};
    }
    iov[count++] = (struct iovec){l->stage, stage_room(l, direct)};
    ssize_t n = link_receive_bytes(l, iov, count);
    if (n <= 0)
        return n == 0 ? YOLK_ERR_AGAIN : (int)n;
    uint64_t took = (uint64_t)n < payload ? (uint64_t)n : payload;
    l->stage_size = (size_t)((uint64_t)n - took);
    l->stage_used = 0;
    if (took > 0)
        payload_took(l, took);
    return stage_parse(l);
}

static int step_ready(struct tcp_link *l)
{
    int status = link_send(l);
    if (status != YOLK_OK)
        return status;
    for (int i = 0; i < RECEIVES_A_TURN && l->entry_count > 0; i++) {
        status = link_receive(l);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_ERR_AGAIN;
}

/* Does what can be done now; a failure ends the link. */
static void link_drive(struct tcp_link *l)
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
            status = step_ready(l);
            break;
        default:
            return;
        }
    }
    if (status == YOLK_ERR_AGAIN && atomic_load(&l->state) != LINK_READY &&
        clock_real_now_ns() >= l->deadline_ns)
        status = base_fail(YOLK_ERR_TIMEOUT, 0, "tcp: the provider does not answer");
    if (status != YOLK_ERR_AGAIN)
        link_fail(l, status);
}

static void link_append(struct tcp_link *l, struct tcp_entry *e)
{
    base_list_push_back(&l->entries, &e->node);
    l->entry_count++;
    (void)atomic_fetch_add(&l->bytes, e->size + 1);
    if (l->next == NULL)
        l->next = e;
}

int tcp_link_add(struct tcp_link *l, struct tcp_channel *ch, const struct yolk_io *io)
{
    if (l->entry_count >= TCP_LINK_DEPTH)
        return YOLK_ERR_AGAIN;
    /* Closed while it was idle (the provider limits that): found out before anything depends on it.
     */
    if (atomic_load(&l->state) == LINK_READY && l->entry_count == 0 && net_is_dead(l->fd))
        link_reset(l);
    if (atomic_load(&l->state) == LINK_CLOSED) {
        int status = link_open(l);
        if (status != YOLK_OK)
            return status;
    }
    struct tcp_entry *e = calloc(1, sizeof *e);
    if (e == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: request");
    struct tcp_frame frame = {
        .kind = io->opcode == YOLK_WRITE ? TCP_WRITE : TCP_READ,
        .request_id = ++l->next_request,
        .segment = l->target->segment,
        .offset = io->offset,
        .length = io->size,
        .ticket = io->ticket,
    };
    e->channel = ch;
    e->opcode = io->opcode;
    e->local = io->local;
    e->size = io->size;
    e->request_id = frame.request_id;
    e->frame_size = tcp_frame_encode(&frame, e->frame);
    e->completion.cookie = io->cookie;
    link_append(l, e);
    l->unsent += entry_wire_size(e);
    if (l->unsent >= SEND_BYTES)
        tcp_link_flush(l);
    return YOLK_OK;
}

void tcp_link_flush(struct tcp_link *l)
{
    if (atomic_load(&l->state) != LINK_READY)
        return;
    int status = link_send(l);
    if (status != YOLK_OK)
        link_fail(l, status);
}

bool tcp_link_cancel(struct tcp_link *l, struct tcp_channel *ch, uint64_t cookie)
{
    BASE_LIST_FOREACH(node, &l->entries)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        if (e->channel != ch || e->completion.cookie != cookie)
            continue;
        if (e->sent == 0) {
            if (l->next == e)
                l->next = entry_after(l, e);
            link_detach(l, e);
            entry_complete(e, YOLK_ERR_CANCELED, 0);
        } else if (e->opcode == YOLK_READ) {
            /* Only this code writes to the memory, under this lock: what still comes is thrown
             * away. The entry stays for the stream; a copy of it completes. */
            struct tcp_entry *done = calloc(1, sizeof *done);
            if (done == NULL) {
                e->canceled = true;
                return true;
            }
            done->channel = e->channel;
            done->completion = e->completion;
            base_list_init(&done->node);
            e->channel = NULL;
            entry_complete(done, YOLK_ERR_CANCELED, 0);
        } else {
            e->canceled = true; /* it ends with its reply, or with the link */
        }
        return true;
    }
    return false;
}

/* ---- the target ---- */

int tcp_target_init(struct tcp_target *t)
{
    base_list_init(&t->node);
    base_list_init(&t->limbo);
    mutex_init(&t->mutex);
    mutex_init(&t->connecting);
    t->link_count = t->settings->connections_max;
    if (t->link_count > TCP_LINKS_MAX)
        t->link_count = TCP_LINKS_MAX;
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        l->target = t;
        l->fd = -1;
        mutex_init(&l->mutex);
        base_list_init(&l->entries);
    }
    return YOLK_OK;
}

void tcp_target_stop(struct tcp_target *t)
{
    mutex_lock(&t->mutex);
    t->stopped = true;
    mutex_unlock(&t->mutex);
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        mutex_lock(&l->mutex);
        if (atomic_load(&l->state) != LINK_CLOSED)
            link_fail(l, YOLK_ERR_CLOSED);
        mutex_unlock(&l->mutex);
    }
    mutex_lock(&t->mutex);
    limbo_resolve(t, 0, YOLK_ERR_STUCK);
    mutex_unlock(&t->mutex);
}

void tcp_target_fini(struct tcp_target *t)
{
    tcp_target_stop(t);
    for (uint32_t i = 0; i < t->link_count; i++)
        mutex_destroy(&t->links[i].mutex);
    mutex_destroy(&t->connecting);
    mutex_destroy(&t->mutex);
}

static bool target_has_ready(struct tcp_target *t)
{
    for (uint32_t i = 0; i < t->link_count; i++) {
        if (atomic_load(&t->links[i].state) == LINK_READY)
            return true;
    }
    return false;
}

static short link_events(struct tcp_link *l)
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

int tcp_target_connect(struct tcp_target *t)
{
    int status = YOLK_OK;
    if (target_has_ready(t))
        return YOLK_OK;
    mutex_lock(&t->connecting);
    struct tcp_link *l = &t->links[0];
    uint64_t until_ns = clock_after_ms(clock_real_now_ns(), CONNECT_WAIT_MS);
    while (!target_has_ready(t)) {
        mutex_lock(&l->mutex);
        if (atomic_load(&l->state) == LINK_CLOSED)
            status = link_open(l);
        if (status == YOLK_OK) {
            link_drive(l);
            if (atomic_load(&l->state) == LINK_CLOSED) {
                mutex_lock(&t->mutex);
                status = base_fail(t->last_status, 0, "%s", t->last_text);
                mutex_unlock(&t->mutex);
            }
        }
        struct pollfd p = {l->fd, link_events(l), 0};
        bool ready = atomic_load(&l->state) == LINK_READY;
        mutex_unlock(&l->mutex);
        if (status != YOLK_OK || ready)
            break;
        if (clock_real_now_ns() >= until_ns) {
            status = base_fail(YOLK_ERR_AGAIN, 0, "tcp: still connecting");
            break;
        }
        /* Short, for another thread may drive the link meanwhile. */
        (void)poll(&p, 1, 10);
    }
    mutex_unlock(&t->connecting);
    return status;
}

/* Asks the provider whether a lost connection is closed there too. */
static void limbo_drive(struct tcp_target *t)
{
    uint64_t id = 0, now = clock_real_now_ns();
    mutex_lock(&t->mutex);
    BASE_LIST_FOREACH_SAFE(node, &t->limbo)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        if (now - e->lost_ns > t->settings->stop_timeout_ns) {
            base_list_remove(node);
            (void)atomic_fetch_sub(&t->limbo_count, 1);
            entry_complete(e, YOLK_ERR_STUCK, 0);
        } else if (id == 0) {
            id = e->limbo_id;
        }
    }
    if (id != 0 && now - t->limbo_asked_ns < QUIET_PERIOD_MS * NS_PER_MS)
        id = 0;
    if (id != 0)
        t->limbo_asked_ns = now;
    mutex_unlock(&t->mutex);
    if (id == 0)
        return;
    struct tcp_link *l = &t->links[0];
    for (uint32_t i = 0; i < t->link_count; i++) {
        if (atomic_load(&t->links[i].state) == LINK_READY)
            l = &t->links[i];
    }
    mutex_lock(&l->mutex);
    if (atomic_load(&l->state) == LINK_CLOSED)
        (void)link_open(l); /* a failure resolves the limbo, or is tried again */
    struct tcp_entry *e = NULL;
    if (atomic_load(&l->state) == LINK_READY)
        e = calloc(1, sizeof *e);
    if (e != NULL) {
        struct tcp_frame frame = {.kind = TCP_QUIET, .request_id = ++l->next_request, .id = id};
        e->kind = ENTRY_QUIET;
        e->limbo_id = id;
        e->request_id = frame.request_id;
        e->frame_size = tcp_frame_encode(&frame, e->frame);
        link_append(l, e);
    }
    link_drive(l);
    mutex_unlock(&l->mutex);
}

void tcp_target_drive(struct tcp_target *t)
{
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        int state = atomic_load_explicit(&l->state, memory_order_relaxed);
        if (state == LINK_CLOSED || (state == LINK_READY && atomic_load(&l->bytes) == 0))
            continue;
        if (!mutex_trylock(&l->mutex))
            continue; /* somebody drives it */
        link_drive(l);
        mutex_unlock(&l->mutex);
    }
    if (atomic_load(&t->limbo_count) > 0)
        limbo_drive(t);
}

uint32_t tcp_target_wait_fds(struct tcp_target *t, struct pollfd *fds, uint32_t max)
{
    uint32_t n = 0;
    if (atomic_load(&t->limbo_count) > 0)
        return 0;
    for (uint32_t i = 0; i < t->link_count && n < max; i++) {
        struct tcp_link *l = &t->links[i];
        int state = atomic_load(&l->state);
        if (state == LINK_CLOSED || (state == LINK_READY && atomic_load(&l->bytes) == 0))
            continue;
        mutex_lock(&l->mutex);
        short events = link_events(l);
        if (events != 0)
            fds[n++] = (struct pollfd){l->fd, events, 0};
        mutex_unlock(&l->mutex);
    }
    return n;
}
