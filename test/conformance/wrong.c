/* SPDX-License-Identifier: Apache-2.0 */
#include "wrong.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "transport/loop/loop.h"
#include "transport/wrap/wrap.h"

enum { DEPTH = 48, LOST = 40, BELATED_POLLS = 60, WHOLE_SLICE = 64 << 10, TEXT_SIZE = 256 };

struct endpoint {
    struct wrap_endpoint wrapped; /* first */
    enum wrong_mistake mistake;
    pthread_mutex_t lock;
    struct base_list late; /* entries that are over, and still write */
    _Atomic bool stopped;
};

struct served {
    struct yolk_access access; /* the engine's */
    enum wrong_mistake mistake;
    _Atomic uint64_t segment;
    void *inner;
};

struct channel {
    struct endpoint *endpoint;
    void *inner;
    struct base_list open;  /* to be moved */
    struct base_list moves; /* reported, and not moved yet */
    struct base_list again; /* reported once */
    uint32_t count;
    uint64_t taken;
    uint32_t polls;
    int wake; /* readable while there is something open */
    bool slept;
};

struct entry {
    struct base_list node;
    struct yolk_io io;
    struct yolk_completion result;
    bool canceled;
    uint32_t waited; /* polls since it is over */
};

/* The text of the newest segment, of whatever engine. */
static char newest[TEXT_SIZE];

/* -- the provider -- */

static enum yolk_status check(void *self, const struct yolk_access_request *request)
{
    struct served *mine = self;
    struct yolk_access_request changed = *request;
    if (mine->mistake == WRONG_IGNORES_GENERATION)
        changed.segment = atomic_load(&mine->segment);
    if (mine->mistake == WRONG_IGNORES_TICKETS)
        changed.opcode = YOLK_READ;
    return mine->access.check(mine->access.self, &changed);
}

static enum yolk_status wrong_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                    char *text, size_t text_size)
{
    struct endpoint *mine = endpoint;
    struct served *made = calloc(1, sizeof(*made));
    struct yolk_serve changed = *serve;
    if (made == NULL)
        return YOLK_ERR_NO_MEMORY;
    made->access = serve->access;
    made->mistake = mine->mistake;
    atomic_store(&made->segment, serve->segment);
    changed.access = (struct yolk_access){.self = made, .check = check};
    enum yolk_status status =
        mine->wrapped.inner.serve(mine->wrapped.endpoint, &changed, &made->inner, text, text_size);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    if (strlen(text) < sizeof(newest))
        memcpy(newest, text, strlen(text) + 1);
    *served = made;
    return YOLK_OK;
}

static void wrong_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    struct endpoint *mine = endpoint;
    struct served *s = served;
    atomic_store(&s->segment, segment);
    mine->wrapped.inner.set_segment_id(mine->wrapped.endpoint, s->inner, segment);
}

static enum yolk_status wrong_fence_session(void *endpoint, void *served, uint64_t session)
{
    struct endpoint *mine = endpoint;
    return mine->wrapped.inner.fence_session(mine->wrapped.endpoint,
                                             ((struct served *)served)->inner, session);
}

static void wrong_unserve(void *endpoint, void *served)
{
    struct endpoint *mine = endpoint;
    mine->wrapped.inner.unserve(mine->wrapped.endpoint, ((struct served *)served)->inner);
    free(served);
}

/* -- the endpoint -- */

static enum yolk_status wrong_probe(const struct yolk_transport_options *options,
                                    struct yolk_probe *out)
{
    return transport_loop_ops()->probe(options, out);
}

static enum yolk_status wrong_init(const struct yolk_transport_options *options, void **endpoint)
{
    struct endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return YOLK_ERR_NO_MEMORY;
    made->mistake = ((const struct wrong_options *)options->wrapped)->mistake;
    made->wrapped.inner = transport_whole_table(transport_loop_ops());
    base_list_init(&made->late);
    pthread_mutex_init(&made->lock, NULL);
    enum yolk_status status = made->wrapped.inner.init(options, &made->wrapped.endpoint);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status wrong_stop(void *endpoint)
{
    struct endpoint *mine = endpoint;
    atomic_store(&mine->stopped, true);
    if (mine->mistake == WRONG_WORKS_AFTER_STOP)
        return YOLK_OK;
    return mine->wrapped.inner.stop(mine->wrapped.endpoint);
}

static void *idle_main(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void leak(enum wrong_mistake mistake)
{
    pthread_t thread;
    if (mistake == WRONG_LEAKS_A_DESCRIPTOR)
        (void)!eventfd(0, EFD_CLOEXEC);
    if (mistake == WRONG_LEAKS_A_THREAD && pthread_create(&thread, NULL, idle_main, NULL) == 0)
        pthread_detach(thread);
    if (mistake == WRONG_LEAKS_A_MAPPING) {
        int fd = memfd_create("left-over", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, 4096) == 0)
            (void)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
}

static void wrong_fini(void *endpoint)
{
    struct endpoint *mine = endpoint;
    leak(mine->mistake);
    BASE_LIST_FOREACH_SAFE(node, &mine->late)
    {
        free(BASE_CONTAINER(node, struct entry, node));
    }
    pthread_mutex_destroy(&mine->lock);
    mine->wrapped.inner.fini(mine->wrapped.endpoint);
    free(mine);
}

static void wrong_limits(void *endpoint, struct yolk_limits *out)
{
    struct endpoint *mine = endpoint;
    mine->wrapped.inner.limits(mine->wrapped.endpoint, out);
    out->slice_bytes_max = WHOLE_SLICE;
    out->depth_max = DEPTH;
}

static enum yolk_status wrong_open_target(void *endpoint, const char *text, uint64_t segment,
                                          uint64_t size, uint64_t session, void **target)
{
    struct endpoint *mine = endpoint;
    if (mine->mistake == WRONG_IGNORES_LIVES)
        text = newest;
    return mine->wrapped.inner.open_target(mine->wrapped.endpoint, text, segment, size, session,
                                           target);
}

/* -- channels -- */

static enum yolk_status wrong_channel_open(void *endpoint, void *target, void **channel)
{
    struct endpoint *mine = endpoint;
    struct channel *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return YOLK_ERR_NO_MEMORY;
    enum yolk_status status =
        mine->wrapped.inner.channel_open(mine->wrapped.endpoint, target, &made->inner);
    if (status == YOLK_OK && (made->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        (void)!mine->wrapped.inner.channel_close(made->inner);
        status = YOLK_ERR_SYSTEM;
    }
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->endpoint = mine;
    base_list_init(&made->open);
    base_list_init(&made->moves);
    base_list_init(&made->again);
    *channel = made;
    return YOLK_OK;
}

static enum wrong_mistake mistake_of(const struct channel *c)
{
    return c->endpoint->mistake;
}

static bool push(struct channel *c, const struct yolk_io *io)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return false;
    entry->io = *io;
    entry->result.cookie = io->cookie;
    base_list_init(&entry->node);
    base_list_push_back(&c->open, &entry->node);
    c->count++;
    c->taken++;
    if (!c->slept)
        (void)!eventfd_write(c->wake, 1);
    return true;
}

static enum yolk_submit wrong_submit(void *channel, struct yolk_io *io)
{
    struct channel *c = channel;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    if (atomic_load(&c->endpoint->stopped) && mistake_of(c) != WRONG_WORKS_AFTER_STOP)
        return YOLK_SUBMIT_FAILED;
    if (c->count < DEPTH) {
        io->status = YOLK_ERR_NO_MEMORY;
        return push(c, io) ? YOLK_SUBMIT_QUEUED : YOLK_SUBMIT_FAILED;
    }
    if (mistake_of(c) == WRONG_TAKES_ON_AGAIN && c->count == DEPTH)
        (void)push(c, io);
    if (mistake_of(c) == WRONG_SLEEPS_TOO_LONG) {
        eventfd_t ignored;
        c->slept = true;
        (void)!eventfd_read(c->wake, &ignored);
    }
    return YOLK_SUBMIT_AGAIN;
}

static void do_late(struct endpoint *e)
{
    pthread_mutex_lock(&e->lock);
    BASE_LIST_FOREACH_SAFE(node, &e->late)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        if (entry->waited++ < BELATED_POLLS)
            continue;
        if (entry->io.opcode == YOLK_READ)
            memset(entry->io.local, 0x5a, entry->io.size);
        base_list_remove(&entry->node);
        free(entry);
    }
    pthread_mutex_unlock(&e->lock);
}

static void be_late(struct endpoint *e, struct entry *entry)
{
    pthread_mutex_lock(&e->lock);
    base_list_push_back(&e->late, &entry->node);
    pthread_mutex_unlock(&e->lock);
}

static void move(struct channel *c, struct entry *entry)
{
    struct yolk_io *io = &entry->io;
    enum wrong_mistake mistake = mistake_of(c);
    uint64_t size = io->size;
    bool whole = size == WHOLE_SLICE;
    if (mistake == WRONG_ROUNDS_OFFSETS)
        io->offset -= io->offset % 64;
    if (mistake == WRONG_SHORT_AS_FULL && whole)
        io->size--;
    if (mistake == WRONG_GOES_ON_FROM_THE_FIRST_PLACE)
        io->place_count = 0;
    if (mistake == WRONG_FORGETS_TO_SKIP)
        io->skip = 0;
    enum yolk_submit submit = c->endpoint->wrapped.inner.submit(c->inner, io);
    entry->result.status = submit == YOLK_SUBMIT_DONE ? YOLK_OK : io->status;
    entry->result.transferred = submit == YOLK_SUBMIT_DONE ? size : 0;
    if (mistake == WRONG_IGNORES_RANGES && entry->result.status == YOLK_ERR_INVALID) {
        entry->result.status = YOLK_OK;
        entry->result.transferred = size;
    }
    if (io->opcode == YOLK_READ && whole && submit == YOLK_SUBMIT_DONE) {
        uint8_t *local = io->local;
        if (mistake == WRONG_WRITES_PAST_THE_END && io->offset == 0)
            local[size] = 0x5a;
        if (mistake == WRONG_CORRUPTS_A_BYTE)
            local[size / 3] ^= 8;
    }
}

/* What was reported goes where the mistake wants it. */
static void over(struct channel *c, struct entry *entry)
{
    enum wrong_mistake mistake = mistake_of(c);
    if (mistake == WRONG_REPORTS_TWICE)
        base_list_push_back(&c->again, &entry->node);
    else if (mistake == WRONG_ACKNOWLEDGES_EARLY && entry->result.status == YOLK_OK)
        base_list_push_back(&c->moves, &entry->node); /* what was canceled stays canceled */
    else if (mistake == WRONG_CANCELS_LOUDLY && entry->result.status == YOLK_ERR_CANCELED)
        be_late(c->endpoint, entry);
    else if (mistake == WRONG_FAILS_LOUDLY && entry->result.status != YOLK_OK)
        be_late(c->endpoint, entry);
    else
        free(entry);
}

static void move_belated(struct channel *c)
{
    BASE_LIST_FOREACH_SAFE(node, &c->moves)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        base_list_remove(&entry->node);
        move(c, entry);
        free(entry);
    }
}

static uint32_t report_again(struct channel *c, struct yolk_completion *out, uint32_t max)
{
    uint32_t count = 0;
    BASE_LIST_FOREACH_SAFE(node, &c->again)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        if (count == max)
            break;
        out[count++] = entry->result;
        base_list_remove(&entry->node);
        free(entry);
    }
    return count;
}

static bool is_lost(struct channel *c, struct entry *entry)
{
    bool forgets = mistake_of(c) == WRONG_FORGETS_AT_STOP && atomic_load(&c->endpoint->stopped);
    bool loses = mistake_of(c) == WRONG_LOSES_ONE && entry->io.cookie != 0 && c->taken >= LOST &&
                 c->taken - c->count == LOST;
    return forgets || loses;
}

static void finish(struct channel *c, struct entry *entry)
{
    if (entry->canceled) {
        entry->result.status = YOLK_ERR_CANCELED;
    } else if (mistake_of(c) == WRONG_ACKNOWLEDGES_EARLY) {
        entry->result.status = YOLK_OK;
        entry->result.transferred = entry->io.size;
    } else {
        move(c, entry);
    }
}

static uint32_t wrong_poll(void *channel, struct yolk_completion *out, uint32_t max)
{
    struct channel *c = channel;
    do_late(c->endpoint);
    move_belated(c);
    if (c->polls++ % 2 == 0) /* there is not always something */
        return 0;
    uint32_t first = report_again(c, out, max), count = first;
    while (count < max && c->count > 0) {
        /* Now from one end, now from the other: no order is promised. */
        struct base_list *node = c->count % 3 == 0 ? c->open.prev : c->open.next;
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        base_list_remove(&entry->node);
        bool lost = is_lost(c, entry);
        c->count--;
        if (lost) {
            free(entry);
            continue;
        }
        finish(c, entry);
        out[count++] = entry->result;
        over(c, entry);
    }
    if (mistake_of(c) == WRONG_SWAPS_COOKIES && count - first >= 2) {
        uint64_t cookie = out[first].cookie;
        out[first].cookie = out[count - 1].cookie;
        out[count - 1].cookie = cookie;
    }
    eventfd_t ignored;
    if (c->count == 0 && base_list_empty(&c->again))
        (void)!eventfd_read(c->wake, &ignored);
    return count;
}

static void wrong_cancel(void *channel, uint64_t cookie)
{
    struct channel *c = channel;
    BASE_LIST_FOREACH(node, &c->open)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        if (entry->io.cookie == cookie)
            entry->canceled = true;
    }
}

static enum yolk_status wrong_channel_close(void *channel)
{
    struct channel *c = channel;
    if (c->count > 0 && mistake_of(c) != WRONG_CLOSES_BUSY)
        return YOLK_ERR_BUSY;
    if (c->count > 0)
        return YOLK_OK; /* and hopes for the best */
    move_belated(c);
    struct yolk_completion ignored;
    while (report_again(c, &ignored, 1) > 0) {
    }
    enum yolk_status status = c->endpoint->wrapped.inner.channel_close(c->inner);
    close(c->wake);
    free(c);
    return status;
}

static uint32_t wrong_wait_fds(void *channel, struct pollfd *fds, uint32_t max)
{
    if (max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = ((struct channel *)channel)->wake, .events = POLLIN};
    return 1;
}

const struct yolk_transport_ops *wrong_ops(void)
{
    static struct yolk_transport_ops ops;
    wrap_make(transport_loop_ops(), &ops);
    ops.name = "wrong";
    ops.probe = wrong_probe;
    ops.init = wrong_init;
    ops.stop = wrong_stop;
    ops.fini = wrong_fini;
    ops.limits = wrong_limits;
    ops.serve = wrong_serve;
    ops.set_segment_id = wrong_set_segment_id;
    ops.fence_session = wrong_fence_session;
    ops.unserve = wrong_unserve;
    ops.open_target = wrong_open_target;
    ops.channel_open = wrong_channel_open;
    ops.submit = wrong_submit;
    ops.poll = wrong_poll;
    ops.cancel = wrong_cancel;
    ops.channel_close = wrong_channel_close;
    ops.wait_fds = wrong_wait_fds;
    ops.flush = NULL; /* its own are over when they were submitted: none has a GPU's memory */
    ops.caps &= ~YOLK_CAPS_MEMORY;
    return &ops;
}
