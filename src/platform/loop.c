/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "platform/clock.h"
#include "platform/loop_internal.h"

/* What is there now, once: a stream that has not been served yet is readable again at once. */
#define LOOK (EVLOOP_NONBLOCK | EVLOOP_ONCE)

struct loop_timer {
    struct loop *loop;
    struct event *event;
    void (*fire)(void *self);
    void *self;
};

struct timeval loop_delay(uint64_t deadline_ns)
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
    event_priority_set(timer->event, LOOP_PRIORITY_URGENT);
    *out = timer;
    return YOLK_OK;
}

void loop_timer_set(struct loop_timer *timer, uint64_t deadline_ns)
{
    if (deadline_ns == CLOCK_NEVER) {
        evtimer_del(timer->event);
        return;
    }
    struct timeval delay = loop_delay(deadline_ns);
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
    if (loop->signal_count == LOOP_SIGNALS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "more than %d signals", LOOP_SIGNALS_MAX);
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
        event_base_priority_init(loop->base, LOOP_PRIORITY_COUNT) == 0) {
        loop->wake = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, woken, loop);
    }
    if (!loop->wake) {
        int error = errno;
        loop_destroy(loop);
        return base_fail(YOLK_ERR_SYSTEM, error, "no event loop");
    }
    event_priority_set(loop->wake, LOOP_PRIORITY_URGENT);
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
    int answer =
        loop_streams_ready(loop) ? event_base_loop(loop->base, LOOK) : wait_for_events(loop);
    if (answer < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "waiting for events");
    /* One piece each; then the answers leave before what is still queued is served. */
    loop_streams_serve(loop);
    if (loop->turn)
        loop->turn(loop->turn_self);
    loop_streams_end_turn(loop);
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
