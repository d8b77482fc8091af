/* SPDX-License-Identifier: Apache-2.0 */
/* A transport for tests of the engine: loop, but that a test says which memory it refuses, and when
 * and how its ios end. The engine's option `wrapped` of it points to a struct scripted. */
#ifndef YOLK_ENGINE_SCRIPTED_H
#define YOLK_ENGINE_SCRIPTED_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/thread.h"
#include "transport/loop/loop.h"

enum { SCRIPTED_MAX = 4096 };

struct scripted_io {
    struct yolk_io *io; /* NULL: ended in submit, or since */
    void *channel;
    enum yolk_opcode opcode;
    void *local;
    uint64_t offset, size;
    uint32_t places;
};

struct scripted {
    struct mutex lock;     /* held around each hook's own part */
    bool hold;             /* ios wait for scripted_end */
    bool deaf;             /* cancel does nothing */
    enum yolk_status fail; /* not OK: what ios end with in submit */
    uint64_t fail_below;   /* not 0: only those that begin below this offset */
    uint64_t slice_max;    /* 0: 16 MiB */
    /* Refuses each buffer that shares a byte with it. */
    const uint8_t *refused;
    uint64_t refused_size;
    uint32_t buffers;                     /* added and not removed */
    uint32_t canceled;                    /* by a hook's call */
    struct scripted_io log[SCRIPTED_MAX]; /* all ios in the order of their submit */
    uint32_t count;
    struct yolk_completion ended[SCRIPTED_MAX];
    void *ended_at[SCRIPTED_MAX]; /* channel */
    uint32_t ended_count;
};

struct scripted_endpoint {
    struct scripted *script;
    void *inner;
};
struct scripted_channel {
    struct scripted *script;
    void *inner;
    uint32_t open; /* ios not yet reported */
};

static inline enum yolk_status scripted_init(const struct yolk_transport_options *options,
                                             void **endpoint)
{
    struct scripted_endpoint *made = calloc(1, sizeof(*made));
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    if (made != NULL)
        status = transport_loop_ops()->init(options, &made->inner);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->script = (struct scripted *)(uintptr_t)options->wrapped;
    *endpoint = made;
    return YOLK_OK;
}

static inline enum yolk_status scripted_stop(void *endpoint)
{
    return transport_loop_ops()->stop(((struct scripted_endpoint *)endpoint)->inner);
}

static inline void scripted_fini(void *endpoint)
{
    transport_loop_ops()->fini(((struct scripted_endpoint *)endpoint)->inner);
    free(endpoint);
}

static inline void scripted_limits(void *endpoint, struct yolk_limits *out)
{
    struct scripted_endpoint *mine = endpoint;
    transport_loop_ops()->limits(mine->inner, out);
    if (mine->script->slice_max != 0)
        out->slice_bytes_max = mine->script->slice_max;
}

static inline enum yolk_status scripted_add_buffer(void *endpoint, void *pointer, uint64_t size,
                                                   void **key)
{
    struct scripted *s = ((struct scripted_endpoint *)endpoint)->script;
    const uint8_t *from = pointer;
    if (s->refused != NULL && from < s->refused + s->refused_size && s->refused < from + size)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it does not like this memory");
    *key = pointer;
    mutex_lock(&s->lock);
    s->buffers++;
    mutex_unlock(&s->lock);
    return YOLK_OK;
}

static inline void scripted_remove_buffer(void *endpoint, void *key)
{
    struct scripted *s = ((struct scripted_endpoint *)endpoint)->script;
    (void)key;
    mutex_lock(&s->lock);
    s->buffers--;
    mutex_unlock(&s->lock);
}

static inline enum yolk_status scripted_serve(void *endpoint, const struct yolk_serve *serve,
                                              void **served, char *text, size_t text_size)
{
    struct scripted_endpoint *mine = endpoint;
    return transport_loop_ops()->serve(mine->inner, serve, served, text, text_size);
}

static inline enum yolk_status scripted_open_target(void *endpoint, const char *text,
                                                    uint64_t segment, uint64_t size,
                                                    uint64_t session, void **target)
{
    struct scripted_endpoint *mine = endpoint;
    struct scripted_endpoint *made = malloc(sizeof(*made));
    if (made == NULL)
        return YOLK_ERR_NO_MEMORY;
    made->script = mine->script;
    enum yolk_status status =
        transport_loop_ops()->open_target(mine->inner, text, segment, size, session, &made->inner);
    if (status != YOLK_OK)
        free(made);
    else
        *target = made;
    return status;
}

static inline void scripted_close_target(void *endpoint, void *target)
{
    transport_loop_ops()->close_target(((struct scripted_endpoint *)endpoint)->inner,
                                       ((struct scripted_endpoint *)target)->inner);
    free(target);
}

static inline enum yolk_status scripted_channel_open(void *endpoint, void *target, void **channel)
{
    struct scripted_endpoint *to = target;
    struct scripted_channel *made = calloc(1, sizeof(*made));
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    if (made != NULL)
        status = transport_loop_ops()->channel_open(((struct scripted_endpoint *)endpoint)->inner,
                                                    to->inner, &made->inner);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->script = to->script;
    *channel = made;
    return YOLK_OK;
}

static inline enum yolk_submit scripted_submit(void *channel, struct yolk_io *io)
{
    struct scripted_channel *mine = channel;
    struct scripted *s = mine->script;
    mutex_lock(&s->lock);
    struct scripted_io *logged = &s->log[s->count++ % SCRIPTED_MAX];
    *logged = (struct scripted_io){.channel = channel,
                                   .opcode = io->opcode,
                                   .local = io->local,
                                   .offset = io->offset,
                                   .size = io->size,
                                   .places = io->place_count};
    bool hold = s->hold;
    enum yolk_status fail = s->fail_below == 0 || io->offset < s->fail_below ? s->fail : YOLK_OK;
    if (hold) {
        logged->io = io;
        mine->open++;
    }
    mutex_unlock(&s->lock);
    if (hold)
        return YOLK_SUBMIT_QUEUED;
    if (fail == YOLK_OK)
        return transport_loop_ops()->submit(mine->inner, io);
    io->status = fail;
    io->transferred = 0;
    return YOLK_SUBMIT_FAILED;
}

/* The lock is held. */
static inline void scripted_report(struct scripted *s, struct scripted_io *logged,
                                   enum yolk_status status, uint64_t transferred)
{
    s->ended[s->ended_count] = (struct yolk_completion){logged->io->cookie, transferred, status};
    s->ended_at[s->ended_count++] = logged->channel;
    logged->io = NULL;
}

static inline uint32_t scripted_poll(void *channel, struct yolk_completion *completions,
                                     uint32_t max)
{
    struct scripted_channel *mine = channel;
    struct scripted *s = mine->script;
    uint32_t count = 0;
    mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->ended_count && count < max;) {
        if (s->ended_at[i] != channel) {
            i++;
            continue;
        }
        completions[count++] = s->ended[i];
        s->ended_count--;
        memmove(&s->ended[i], &s->ended[i + 1], (s->ended_count - i) * sizeof(s->ended[0]));
        memmove(&s->ended_at[i], &s->ended_at[i + 1], (s->ended_count - i) * sizeof(void *));
    }
    mine->open -= count;
    mutex_unlock(&s->lock);
    return count;
}

static inline void scripted_cancel(void *channel, uint64_t cookie)
{
    struct scripted *s = ((struct scripted_channel *)channel)->script;
    mutex_lock(&s->lock);
    s->canceled++;
    for (uint32_t i = 0; i < s->count && i < SCRIPTED_MAX && !s->deaf; i++)
        if (s->log[i].io != NULL && s->log[i].channel == channel && s->log[i].io->cookie == cookie)
            scripted_report(s, &s->log[i], YOLK_ERR_CANCELED, 0);
    mutex_unlock(&s->lock);
}

static inline enum yolk_status scripted_channel_close(void *channel)
{
    struct scripted_channel *mine = channel;
    if (mine->open > 0)
        return YOLK_ERR_BUSY;
    (void)transport_loop_ops()->channel_close(mine->inner);
    free(mine);
    return YOLK_OK;
}

/* Ends the io of this number, if it is still held: moves `moved` bytes (all: UINT64_MAX) and
 * reports the status. */
static inline bool scripted_end(struct scripted *s, uint32_t number, enum yolk_status status,
                                uint64_t moved)
{
    mutex_lock(&s->lock);
    struct scripted_io *logged = &s->log[number];
    bool held = logged->io != NULL;
    if (held) {
        struct yolk_io part = *logged->io;
        part.size = moved < part.size ? moved : part.size;
        if (part.size > 0 &&
            transport_loop_ops()->submit(((struct scripted_channel *)logged->channel)->inner,
                                         &part) != YOLK_SUBMIT_DONE)
            status = part.status;
        scripted_report(s, logged, status, part.size);
    }
    mutex_unlock(&s->lock);
    return held;
}

static inline uint32_t scripted_held(struct scripted *s)
{
    uint32_t held = 0;
    mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->count && i < SCRIPTED_MAX; i++)
        held += s->log[i].io != NULL;
    mutex_unlock(&s->lock);
    return held;
}

/* name: static. The script outlives the engine. */
static inline void scripted_make(struct scripted *s, const char *name,
                                 struct yolk_transport_ops *out)
{
    mutex_init(&s->lock);
    *out = *transport_loop_ops();
    out->caps &= ~YOLK_CAPS_MEMORY; /* it copies at once, by the processor */
    out->caps &= ~YOLK_CAP_PLACES;  /* which a test may put back */
    out->flush = NULL;
    out->name = name;
    out->init = scripted_init;
    out->stop = scripted_stop;
    out->fini = scripted_fini;
    out->limits = scripted_limits;
    out->add_buffer = scripted_add_buffer;
    out->remove_buffer = scripted_remove_buffer;
    out->serve = scripted_serve;
    out->open_target = scripted_open_target;
    out->close_target = scripted_close_target;
    out->target_map = NULL;
    out->caps &= ~YOLK_CAP_MAP;
    out->channel_open = scripted_channel_open;
    out->submit = scripted_submit;
    out->poll = scripted_poll;
    out->cancel = scripted_cancel;
    out->channel_close = scripted_channel_close;
}

#endif
