/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of the server programs: timers, signals, listeners and byte streams. One thread
 * runs a loop and makes all calls on it, except loop_stop. It is fair and bounded: a stream is read
 * only while nothing of it waits to be served, urgent streams are served first, each stream a
 * bounded piece a turn, and one that does not take what is sent to it is closed instead of growing.
 *
 * No callback ever runs inside a call of this interface, except those of loop_listener_destroy:
 * closing is carried out at the end of the turn.
 */
#ifndef PLATFORM_LOOP_H
#define PLATFORM_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/net.h"
#include "yolk/status.h"

struct loop;
struct loop_timer;
struct loop_listener;
struct loop_stream;

struct loop_options {
    /* How long a turn without events keeps polling before it sleeps; 0: sleep at once (polite). */
    uint64_t spin_ns;
};

YOLK_MUST_USE enum yolk_status loop_create(const struct loop_options *options, struct loop **out);
/* Listeners and timers must have been destroyed. */
void loop_destroy(struct loop *loop);
/* Until loop_stop. */
YOLK_MUST_USE enum yolk_status loop_run(struct loop *loop);
/* One turn: waits at most until something happens. For tests. */
YOLK_MUST_USE enum yolk_status loop_turn(struct loop *loop);
/* From any thread. */
void loop_stop(struct loop *loop);
/* Called at the end of every turn, before output is sent. */
void loop_set_turn(struct loop *loop, void (*turn)(void *self), void *self);

YOLK_MUST_USE enum yolk_status loop_timer_create(struct loop *loop, void (*fire)(void *self),
                                                 void *self, struct loop_timer **out);
/* At deadline_ns of clock_real, once; CLOCK_NEVER stops it. */
void loop_timer_set(struct loop_timer *timer, uint64_t deadline_ns);
void loop_timer_destroy(struct loop_timer *timer);

/* The loop owns the handler until loop_destroy. */
YOLK_MUST_USE enum yolk_status loop_on_signal(struct loop *loop, int number,
                                              void (*fire)(void *self, int number), void *self);

/* Answers what to do with a part of the input. */
enum loop_input {
    LOOP_WAIT, /* the rest is not complete: call again when more has come */
    LOOP_MORE  /* there is more to do: call again in the next turn, after the others' turns */
};

struct loop_stream_callbacks {
    /* *consumed: how much of data is done with. */
    enum loop_input (*input)(void *self, struct loop_stream *stream, const uint8_t *data,
                             size_t size, size_t *consumed);
    /* The last call for this stream, which is freed afterwards. EOF: the peer closed; LINK: it
     * broke; TIMEOUT: the deadline passed; LIMIT: it did not take its output or sent too much;
     * CANCELED: closed by us. */
    void (*closed)(void *self, struct loop_stream *stream, enum yolk_status reason);
    /* May be NULL. The deadline passed, and nobody closes the stream yet. False: it is closed; else
     * it was closed with a last word, or has another deadline. */
    bool (*late)(void *self, struct loop_stream *stream);
};

struct loop_stream_options {
    struct loop_stream_callbacks callbacks;
    void *self;
    size_t input_max;     /* unserved bytes of one stream */
    size_t output_max;    /* unsent bytes of one stream; beyond it is closed */
    uint64_t deadline_ns; /* CLOCK_NEVER: none; see loop_stream_set_deadline */
};

/*
 * A connection was accepted. Returns whether it is wanted, after filling in *options. If not, it is
 * closed at once.
 */
typedef bool (*loop_accept)(void *self, struct loop_stream *stream, const struct net_address *peer,
                            struct loop_stream_options *options);

/* *bound (may be NULL) receives the address actually bound. */
YOLK_MUST_USE enum yolk_status loop_listen(struct loop *loop, const struct net_address *address,
                                           loop_accept accept, void *self,
                                           struct net_address *bound, struct loop_listener **out);
/* Closes it and every stream it accepted: their closed callbacks run now. Not from a callback. */
void loop_listener_destroy(struct loop_listener *listener);

/* Queues bytes. LIMIT: over the maximum, the stream is being closed; CLOSED: it already is. */
YOLK_MUST_USE enum yolk_status loop_stream_write(struct loop_stream *stream, const void *data,
                                                 size_t size);
/* With flush: what is queued is sent first, for at most a second. */
void loop_stream_close(struct loop_stream *stream, enum yolk_status reason, bool flush);
bool loop_stream_is_closing(const struct loop_stream *stream);
void loop_stream_set_deadline(struct loop_stream *stream, uint64_t deadline_ns);
void loop_stream_set_input_max(struct loop_stream *stream, size_t bytes);
/* Served before the others. */
void loop_stream_set_urgent(struct loop_stream *stream, bool urgent);
void *loop_stream_self(const struct loop_stream *stream);

#endif
