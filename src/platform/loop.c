/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#define LOG_ROOM "loop"
#include "base/log.h"
#include "platform/clock.h"

#define READ_STEP       (64u * 1024u)
#define READ_TURN_MAX   (512u * 1024u)  /* of one stream in one turn */
#define OUTPUT_PAUSE    (1024u * 1024u) /* with more unsent, a stream's requests wait */
#define KEEP_CAPACITY   (256u * 1024u)  /* an idle stream's buffers above this are given back */
#define FLUSH_NS        CLOCK_NS_PER_S
#define ACCEPT_TURN_MAX 64
#define ACCEPT_PAUSE_NS (100 * CLOCK_NS_PER_MS)
#define PRIORITY_URGENT 0
#define PRIORITY_NORMAL 1
#define PRIORITY_COUNT  2
#define SIGNALS_MAX     8
/* What is there now, once: a stream that has not been served yet is readable again at once. */
#define LOOK (EVLOOP_NONBLOCK | EVLOOP_ONCE)

enum queue { QUEUE_URGENT, QUEUE_NORMAL, QUEUE_COUNT };

struct loop_timer {
    struct loop *loop;
    struct event *event;
    void (*fire)(void *self);
    void *self;
};

struct loop_signal {
    struct loop *loop;
    struct event *event;
    void (*fire)(void *self, int number);
    void *self;
};

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

struct ready_queue {
    struct loop_stream *first, *last;
};

struct loop {
    struct event_base *base;
    uint64_t spin_ns;
    uint64_t activity; /* counts events, so that a spinning loop sees that nothing came */
    int wake_fd;
    struct event *wake;
    struct ready_queue ready[QUEUE_COUNT];
    struct loop_stream *dirty;
    struct loop_stream *streams;
    struct loop_signal signals[SIGNALS_MAX];
    size_t signal_count;
    void (*turn)(void *self);
    void *turn_self;
    bool any_dead;
    _Atomic bool stop;
};

static struct timeval delay_until(uint64_t deadline_ns)
{
    uint64_t now = clock_real_now_ns();
    uint64_t ns = deadline_ns > now ? deadline_ns - now : 0;
    /* Rounded up: waking a microsecond early would only mean waking twice. */
    uint64_t us = ns / 1000 + (ns % 1000 ? 1 : 0);
    return (struct timeval){.tv_sec = (time_t)(us / 1000000),
                            .tv_usec = (suseconds_t)(us % 1000000)};
}

/* ---- timers and signals ---- */

static void timer_fired(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop_timer *timer = arg;
    timer->loop->activity++;
    timer->fire(timer->self);
}

enum yolk_status loop_timer_create(struct loop *loop, void (*fire)(void *self), void *self,
                                   struct loop_timer **out)
{
    struct loop_timer *timer = calloc(1, sizeof(*timer));
    if (!timer)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a timer");
    *timer = (struct loop_timer){.loop = loop, .fire = fire, .self = self};
    timer->event = evtimer_new(loop->base, timer_fired, timer);
    if (!timer->event) {
        free(timer);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a timer");
    }
    event_priority_set(timer->event, PRIORITY_URGENT);
    *out = timer;
    return YOLK_OK;
}

void loop_timer_set(struct loop_timer *timer, uint64_t deadline_ns)
{
    if (deadline_ns == CLOCK_NEVER) {
        evtimer_del(timer->event);
        return;
    }
    struct timeval delay = delay_until(deadline_ns);
    evtimer_add(timer->event, &delay);
}

void loop_timer_destroy(struct loop_timer *timer)
{
    if (!timer)
        return;
    event_free(timer->event);
    free(timer);
}

static void signal_fired(evutil_socket_t number, short what, void *arg)
{
    (void)what;
    struct loop_signal *handler = arg;
    handler->loop->activity++;
    handler->fire(handler->self, (int)number);
}

enum yolk_status loop_on_signal(struct loop *loop, int number, void (*fire)(void *self, int number),
                                void *self)
{
    if (loop->signal_count == SIGNALS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "more than %d signals", SIGNALS_MAX);
    struct loop_signal *handler = &loop->signals[loop->signal_count];
    *handler = (struct loop_signal){.loop = loop, .fire = fire, .self = self};
    handler->event = evsignal_new(loop->base, number, signal_fired, handler);
    if (!handler->event || evsignal_add(handler->event, NULL) != 0) {
        if (handler->event)
            event_free(handler->event);
        return base_fail(YOLK_ERR_SYSTEM, 0, "signal %d cannot be handled", number);
    }
    loop->signal_count++;
    return YOLK_OK;
}

/* ---- streams ---- */

static void push_ready(struct loop_stream *stream)
{
    if (stream->ready || stream->dead)
        return;
    stream->ready = true;
    stream->next_ready = NULL;
    struct ready_queue *queue = &stream->loop->ready[stream->urgent ? QUEUE_URGENT : QUEUE_NORMAL];
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
    event_priority_set(stream->read, PRIORITY_NORMAL);
    event_priority_set(stream->write, PRIORITY_NORMAL);
    event_priority_set(stream->deadline, PRIORITY_URGENT);
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
    struct timeval delay = delay_until(deadline_ns);
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

static void serve_queue(struct ready_queue *queue)
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

static bool anything_ready(const struct loop *loop)
{
    return loop->ready[QUEUE_URGENT].first || loop->ready[QUEUE_NORMAL].first;
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

static void remove_ready(struct loop *loop, struct loop_stream *gone)
{
    for (int i = 0; i < QUEUE_COUNT; i++) {
        struct loop_stream **at = &loop->ready[i].first, *last = NULL;
        while (*at) {
            if (*at == gone) {
                *at = gone->next_ready;
                continue;
            }
            last = *at;
            at = &(*at)->next_ready;
        }
        loop->ready[i].last = last;
    }
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
                if (stream->ready)
                    remove_ready(loop, stream);
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

static void end_of_turn(struct loop *loop)
{
    if (loop->turn)
        loop->turn(loop->turn_self);
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
    event_priority_set(listener->event, PRIORITY_NORMAL);
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

/* ---- the loop ---- */

static void woken(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct loop *loop = arg;
    uint64_t count;
    loop->activity++;
    if (read((int)fd, &count, sizeof(count)) < 0)
        return;
}

enum yolk_status loop_create(const struct loop_options *options, struct loop **out)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an event loop");
    loop->spin_ns = options ? options->spin_ns : 0;
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct event_config *config = event_config_new();
    if (config) {
        /* Timers are good to some milliseconds. Precise ones would cost a system call in each look
         * for events, also while it spins. */
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        loop->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (loop->wake_fd >= 0 && loop->base &&
        event_base_priority_init(loop->base, PRIORITY_COUNT) == 0) {
        loop->wake = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, woken, loop);
    }
    if (!loop->wake) {
        int error = errno;
        loop_destroy(loop);
        return base_fail(YOLK_ERR_SYSTEM, error, "no event loop");
    }
    event_priority_set(loop->wake, PRIORITY_URGENT);
    event_add(loop->wake, NULL);
    *out = loop;
    return YOLK_OK;
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    for (size_t i = 0; i < loop->signal_count; i++)
        event_free(loop->signals[i].event);
    if (loop->wake)
        event_free(loop->wake);
    if (loop->base)
        event_base_free(loop->base);
    net_close(loop->wake_fd);
    free(loop);
}

static int wait_for_events(struct loop *loop)
{
    int answer = 0;
    uint64_t before = loop->activity;
    if (loop->spin_ns > 0) {
        uint64_t until = clock_after(clock_real_now_ns(), loop->spin_ns);
        do
            answer = event_base_loop(loop->base, LOOK);
        while (answer >= 0 && loop->activity == before && clock_real_now_ns() < until);
    }
    if (answer >= 0 && loop->activity == before)
        answer = event_base_loop(loop->base, EVLOOP_ONCE);
    return answer;
}

enum yolk_status loop_turn(struct loop *loop)
{
    int answer = anything_ready(loop) ? event_base_loop(loop->base, LOOK) : wait_for_events(loop);
    if (answer < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "waiting for events");
    /* One piece each; then the answers leave before what is still queued is served. */
    serve_queue(&loop->ready[QUEUE_URGENT]);
    serve_queue(&loop->ready[QUEUE_NORMAL]);
    end_of_turn(loop);
    return YOLK_OK;
}

enum yolk_status loop_run(struct loop *loop)
{
    while (!loop->stop) {
        enum yolk_status status = loop_turn(loop);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

void loop_stop(struct loop *loop)
{
    uint64_t one = 1;
    loop->stop = true;
    if (write(loop->wake_fd, &one, sizeof(one)) < 0)
        return; /* the counter is full: it is awake */
}

void loop_set_turn(struct loop *loop, void (*turn)(void *self), void *self)
{
    loop->turn = turn;
    loop->turn_self = self;
}
