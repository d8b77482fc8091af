/* SPDX-License-Identifier: Apache-2.0 */
/* The loop as its files know it: loop.c turns it and has its timers and signals, loop_stream.c its
 * connections. */
#ifndef PLATFORM_LOOP_INTERNAL_H
#define PLATFORM_LOOP_INTERNAL_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

#include "platform/loop.h"

enum { LOOP_PRIORITY_URGENT, LOOP_PRIORITY_NORMAL, LOOP_PRIORITY_COUNT };
enum { LOOP_SIGNALS_MAX = 8 };

struct loop_signal {
    struct loop *loop;
    struct event *event;
    void (*fire)(void *self, int number);
    void *self;
};

/* Streams with input that was not served yet. */
struct loop_ready {
    struct loop_stream *first, *last;
};

struct loop {
    struct event_base *base;
    uint64_t spin_ns;
    uint64_t activity; /* counts events, so that a spinning loop sees that nothing came */
    int wake_fd;
    struct event *wake;
    struct loop_ready urgent, normal;
    struct loop_stream *dirty;
    struct loop_stream *streams;
    struct loop_signal signals[LOOP_SIGNALS_MAX];
    size_t signal_count;
    void (*turn)(void *self);
    void *turn_self;
    bool any_dead;
    _Atomic bool stop;
};

/* How long it is until then, for libevent. */
struct timeval loop_delay(uint64_t deadline_ns);

/* loop_stream.c */
/* Some stream has input that was not served yet. */
bool loop_streams_ready(const struct loop *loop);
/* One piece of each that is ready. */
void loop_streams_serve(struct loop *loop);
/* Sends what was written meanwhile, and ends those that are over. */
void loop_streams_end_turn(struct loop *loop);

#endif
