/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a loop: what comes in is served in turns, what goes out leaves at the end of a
 * turn. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/error.h"
#define LOG_ROOM "loop"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/loop_internal.h"

#define READ_STEP       (64u * 1024u)
#define READ_TURN_MAX   (512u * 1024u)  /* of one stream in one turn */
#define OUTPUT_PAUSE    (1024u * 1024u) /* with more unsent, a stream's requests wait */
#define KEEP_CAPACITY   (256u * 1024u)  /* an idle stream's buffers above this are given back */
#define FLUSH_NS        CLOCK_NS_PER_S
#define ACCEPT_TURN_MAX 64
#define ACCEPT_PAUSE_NS (100 * CLOCK_NS_PER_MS)

struct loop_stream {
    struct loop *loop;
    struct loop_listener *listener;
    struct loop_stream *previous, *next; /* of all streams */
    struct loop_stream *next_ready, *next_dirty;
    int fd;
    struct event *read, *write, *deadline;
    struct loop_stream_options options;
    struct base_buf in, out;
    size_t out_done; /* bytes of out that are sent */
    enum yolk_status reason;
    bool urgent, ready, dirty;
    bool closing; /* no more input; closes as soon as the output is gone */
    bool dead;    /* to be freed at the end of the turn */
    bool end;     /* the peer sent its last byte */
};

struct loop_listener {
    struct loop *loop;
    int fd;
    struct event *event;
    struct loop_timer *resume;
    loop_accept accept;
    void *self;
};

/* ---- streams ---- */

static void push_ready(struct loop_stream *stream)
{
    if (stream->ready || stream->dead)
        return;
    stream->ready = true;
    stream->next_ready = NULL;
    struct loop_ready *queue = stream->urgent ? &stream->loop->urgent : &stream->loop->normal;
    if (queue->last)
        queue->last->next_ready = stream;
    else
        queue->first = stream;
    queue->last = stream;
}

static void kill_stream(struct loop_stream *stream, enum yolk_status reason)
{
    if (stream->dead)
        return;
    if (!stream->closing)
        stream->reason = reason;
    stream->dead = stream->closing = true;
    stream->loop->any_dead = true;
    event_del(stream->read);
    event_del(stream->write);
    event_del(stream->deadline);
}

static void mark_dirty(struct loop_stream *stream)
{
    if (stream->dirty)
        return;
    stream->dirty = true;
    stream->next_dirty = stream->loop->dirty;
    stream->loop->dirty = stream;
}

static size_t unsent(const struct loop_stream *stream)
{
    return stream->out.size - stream->out_done;
}

/* The stream has nothing that waits to be served, so more may come in. */
static void resume_reading(struct loop_stream *stream)
{
    if (stream->dead || stream->closing || stream->ready)
        return;
    if (stream->end) {
        loop_stream_close(stream, YOLK_ERR_EOF, true);
        return;
    }
    event_add(stream->read, NULL);
}

static void readable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct loop_stream *stream = arg;
    size_t total = 0;
    if (stream->ready)
        return; /* it is served in this turn yet; what has come meanwhile is told again */
    stream->loop->activity++;
    while (total < READ_TURN_MAX) {
        if (stream->in.size >= stream->options.input_max)
            break;
        size_t room = stream->options.input_max - stream->in.size;
        size_t want = room < READ_STEP ? room : READ_STEP;
        if (base_buf_reserve(&stream->in, want) != YOLK_OK) {
            kill_stream(stream, YOLK_ERR_NO_MEMORY);
            return;
        }
        ssize_t got = recv((int)fd, stream->in.data + stream->in.size, want, MSG_DONTWAIT);
        if (got > 0) {
            stream->in.size += (size_t)got;
            total += (size_t)got;
            if ((size_t)got < want)
                break;
            continue;
        }
        if (got == 0) {
            stream->end = true;
            break;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN) {
            kill_stream(stream, YOLK_ERR_LINK);
            return;
        }
        break;
    }
    if (total == 0 && stream->end) {
        loop_stream_close(stream, YOLK_ERR_EOF, true);
        return;
    }
    if (total == 0 && stream->in.size >= stream->options.input_max) {
        /* The callback was shown a full buffer and could not use it. */
        kill_stream(stream, YOLK_ERR_LIMIT);
        return;
    }
    if (total > 0)
        push_ready(stream);
}

static void flush_stream(struct loop_stream *stream)
{
    while (!stream->dead && unsent(stream) > 0) {
        ssize_t sent = send(stream->fd, stream->out.data + stream->out_done, unsent(stream),
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            stream->out_done += (size_t)sent;
            continue;
        }
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN) {
            kill_stream(stream, YOLK_ERR_LINK);
            return;
        }
        break;
    }
    if (stream->dead)
        return;
    if (unsent(stream) == 0) {
        stream->out_done = 0;
        if (stream->out.capacity > KEEP_CAPACITY)
            base_buf_free(&stream->out);
        else
            base_buf_clear(&stream->out);
        event_del(stream->write);
        if (stream->closing)
            kill_stream(stream, stream->reason);
        return;
    }
    if (stream->out_done > stream->out.size / 2) {
        base_buf_consume(&stream->out, stream->out_done);
        stream->out_done = 0;
    }
    event_add(stream->write, NULL);
}

static void writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop_stream *stream = arg;
    stream->loop->activity++;
    bool paused = unsent(stream) > OUTPUT_PAUSE;
    flush_stream(stream);
    /* It was left out of serving while its output was stuck. */
    if (paused && !stream->dead && !stream->closing && unsent(stream) <= OUTPUT_PAUSE)
        push_ready(stream);
}

static void deadline_passed(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop_stream *stream = arg;
    stream->loop->activity++;
    bool (*late)(void *, struct loop_stream *) = stream->options.callbacks.late;
    if (stream->closing || late == NULL || !late(stream->options.self, stream))
        kill_stream(stream, YOLK_ERR_TIMEOUT);
}

static void free_stream(struct loop_stream *stream)
{
    if (stream->read)
        event_free(stream->read);
    if (stream->write)
        event_free(stream->write);
    if (stream->deadline)
        event_free(stream->deadline);
    net_close(stream->fd);
    base_buf_free(&stream->in);
    base_buf_free(&stream->out);
    free(stream);
}

static void unlink_stream(struct loop_stream *stream)
{
    if (stream->previous)
        stream->previous->next = stream->next;
    else
        stream->loop->streams = stream->next;
    if (stream->next)
        stream->next->previous = stream->previous;
}

static struct loop_stream *new_stream(struct loop *loop, int fd)
{
    struct loop_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        net_close(fd);
        return NULL;
    }
    stream->loop = loop;
    stream->fd = fd;
    stream->read = event_new(loop->base, fd, EV_READ | EV_PERSIST, readable, stream);
    stream->write = event_new(loop->base, fd, EV_WRITE | EV_PERSIST, writable, stream);
    stream->deadline = evtimer_new(loop->base, deadline_passed, stream);
    if (!stream->read || !stream->write || !stream->deadline) {
        free_stream(stream);
        return NULL;
    }
    event_priority_set(stream->read, LOOP_PRIORITY_NORMAL);
    event_priority_set(stream->write, LOOP_PRIORITY_NORMAL);
    event_priority_set(stream->deadline, LOOP_PRIORITY_URGENT);
    return stream;
}

enum yolk_status loop_stream_write(struct loop_stream *stream, const void *data, size_t size)
{
    if (stream->closing)
        return YOLK_ERR_CLOSED;
    if (size > stream->options.output_max - unsent(stream) ||
        base_buf_append(&stream->out, data, size) != YOLK_OK) {
        kill_stream(stream, YOLK_ERR_LIMIT);
        return YOLK_ERR_LIMIT;
    }
    mark_dirty(stream);
    return YOLK_OK;
}

void loop_stream_close(struct loop_stream *stream, enum yolk_status reason, bool flush)
{
    if (stream->closing)
        return;
    if (!flush || unsent(stream) == 0) {
        kill_stream(stream, reason);
        return;
    }
    stream->closing = true;
    stream->reason = reason;
    event_del(stream->read);
    loop_stream_set_deadline(stream, clock_real_now_ns() + FLUSH_NS);
    mark_dirty(stream);
}

bool loop_stream_is_closing(const struct loop_stream *stream)
{
    return stream->closing;
}

void loop_stream_set_deadline(struct loop_stream *stream, uint64_t deadline_ns)
{
    if (stream->dead)
        return;
    if (deadline_ns == CLOCK_NEVER) {
        event_del(stream->deadline);
        return;
    }
    struct timeval delay = loop_delay(deadline_ns);
    evtimer_add(stream->deadline, &delay);
}

void loop_stream_set_input_max(struct loop_stream *stream, size_t bytes)
{
    stream->options.input_max = bytes;
    stream->in.maximum = bytes;
}

void loop_stream_set_urgent(struct loop_stream *stream, bool urgent)
{
    stream->urgent = urgent;
}

void *loop_stream_self(const struct loop_stream *stream)
{
    return stream->options.self;
}

/* ---- serving ---- */

static void serve_stream(struct loop_stream *stream)
{
    if (stream->dead || stream->closing)
        return;
    if (unsent(stream) > OUTPUT_PAUSE) {
        event_del(stream->read);
        return; /* writable() puts it back */
    }
    size_t consumed = 0;
    enum loop_input answer = stream->options.callbacks.input(
        stream->options.self, stream, stream->in.data, stream->in.size, &consumed);
    if (consumed > 0)
        base_buf_consume(&stream->in, consumed);
    if (stream->in.size == 0 && stream->in.capacity > KEEP_CAPACITY)
        base_buf_free(&stream->in);
    if (stream->dead || stream->closing)
        return;
    if (answer == LOOP_MORE)
        push_ready(stream);
    else
        resume_reading(stream);
}

static void serve_queue(struct loop_ready *queue)
{
    struct loop_stream *stream = queue->first;
    queue->first = queue->last = NULL;
    while (stream) {
        struct loop_stream *next = stream->next_ready;
        stream->ready = false;
        stream->next_ready = NULL;
        serve_stream(stream);
        stream = next;
    }
}

bool loop_streams_ready(const struct loop *loop)
{
    return loop->urgent.first || loop->normal.first;
}

void loop_streams_serve(struct loop *loop)
{
    serve_queue(&loop->urgent);
    serve_queue(&loop->normal);
}

static void flush_dirty(struct loop *loop)
{
    while (loop->dirty) {
        struct loop_stream *stream = loop->dirty;
        loop->dirty = stream->next_dirty;
        stream->dirty = false;
        bool paused = unsent(stream) > OUTPUT_PAUSE;
        flush_stream(stream);
        if (paused && !stream->closing && unsent(stream) <= OUTPUT_PAUSE)
            push_ready(stream);
    }
}

static void remove_ready(struct loop_ready *queue, struct loop_stream *gone)
{
    struct loop_stream **at = &queue->first, *last = NULL;
    while (*at) {
        if (*at == gone) {
            *at = gone->next_ready;
            continue;
        }
        last = *at;
        at = &(*at)->next_ready;
    }
    queue->last = last;
}

static void remove_dirty(struct loop *loop, struct loop_stream *gone)
{
    struct loop_stream **at = &loop->dirty;
    while (*at && *at != gone)
        at = &(*at)->next_dirty;
    if (*at)
        *at = gone->next_dirty;
}

static void bury_dead(struct loop *loop)
{
    /* A closed callback may close further streams. */
    while (loop->any_dead) {
        loop->any_dead = false;
        struct loop_stream *stream = loop->streams;
        while (stream) {
            struct loop_stream *next = stream->next;
            if (stream->dead) {
                if (stream->ready) {
                    /* It may have been made urgent since it was queued. */
                    remove_ready(&loop->urgent, stream);
                    remove_ready(&loop->normal, stream);
                }
                if (stream->dirty)
                    remove_dirty(loop, stream);
                unlink_stream(stream);
                stream->options.callbacks.closed(stream->options.self, stream, stream->reason);
                free_stream(stream);
            }
            stream = next;
        }
    }
}

void loop_streams_end_turn(struct loop *loop)
{
    do {
        flush_dirty(loop);
        bury_dead(loop);
    } while (loop->dirty);
}

/* ---- listeners ---- */

static void listener_resume(void *self)
{
    struct loop_listener *listener = self;
    event_add(listener->event, NULL);
}

static void accept_one(struct loop_listener *listener, int fd, const struct net_address *peer)
{
    struct loop *loop = listener->loop;
    struct loop_stream *stream = new_stream(loop, fd);
    if (!stream)
        return;
    struct loop_stream_options options = {.deadline_ns = CLOCK_NEVER};
    if (!listener->accept(listener->self, stream, peer, &options)) {
        free_stream(stream);
        return;
    }
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* fails on a unix socket */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    stream->listener = listener;
    stream->options = options;
    base_buf_init(&stream->in, options.input_max);
    /* Sent bytes stay in front until half of the buffer is sent. */
    base_buf_init(&stream->out, 2 * options.output_max);
    stream->next = loop->streams;
    if (loop->streams)
        loop->streams->previous = stream;
    loop->streams = stream;
    loop_stream_set_deadline(stream, options.deadline_ns);
    event_add(stream->read, NULL);
}

static void acceptable(evutil_socket_t listening, short what, void *arg)
{
    (void)what;
    struct loop_listener *listener = arg;
    listener->loop->activity++;
    for (int i = 0; i < ACCEPT_TURN_MAX; i++) {
        struct net_address peer = {.size = sizeof(peer.storage)};
        int fd = accept4((int)listening, (struct sockaddr *)&peer.storage, &peer.size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            accept_one(listener, fd, &peer);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* It stays readable: without a pause the loop would spin on it. */
            log_warn("cannot accept connections: %s", strerror(errno));
            event_del(listener->event);
            loop_timer_set(listener->resume, clock_real_now_ns() + ACCEPT_PAUSE_NS);
        }
        return;
    }
}

enum yolk_status loop_listen(struct loop *loop, const struct net_address *address,
                             loop_accept accept, void *self, struct net_address *bound,
                             struct loop_listener **out)
{
    struct loop_listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a listener");
    *listener = (struct loop_listener){.loop = loop, .fd = -1, .accept = accept, .self = self};
    enum yolk_status status = net_listen(address, 1024, &listener->fd, bound);
    if (status == YOLK_OK)
        status = loop_timer_create(loop, listener_resume, listener, &listener->resume);
    if (status == YOLK_OK) {
        listener->event =
            event_new(loop->base, listener->fd, EV_READ | EV_PERSIST, acceptable, listener);
        if (!listener->event)
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a listener");
    }
    if (status != YOLK_OK) {
        loop_timer_destroy(listener->resume);
        net_close(listener->fd);
        free(listener);
        return status;
    }
    event_priority_set(listener->event, LOOP_PRIORITY_NORMAL);
    event_add(listener->event, NULL);
    *out = listener;
    return YOLK_OK;
}

void loop_listener_destroy(struct loop_listener *listener)
{
    if (!listener)
        return;
    for (struct loop_stream *stream = listener->loop->streams; stream; stream = stream->next)
        if (stream->listener == listener)
            kill_stream(stream, YOLK_ERR_CANCELED);
    bury_dead(listener->loop);
    event_free(listener->event);
    loop_timer_destroy(listener->resume);
    net_listener_close(listener->fd);
    free(listener);
}
