/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer side. A target has a few connections (link.c), which no thread owns: whoever polls a
 * channel drives those that have something under way, if nobody else does just then. A completion
 * goes to the channel of its io, whoever found it.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "transport/tcp/link.h"

/* Bytes that came so long ago may have more behind them; so long at most they are waited for. */
enum { HOT_NS = 50000, HOT_MAX_NS = 2000000, RELAXES = 16 };

struct tcp_consumer {
    struct tcp_settings settings;
    struct mutex mutex;
    struct base_list targets;
    bool stopped;
};

/* Threads of this process that poll for what flows. As many of them as there are processors, and
 * whom they wait for does not run. */
static _Atomic uint32_t polling;

int tcp_consumer_create(const struct tcp_settings *settings, struct tcp_consumer **out)
{
    struct tcp_consumer *c = calloc(1, sizeof *c);
    if (c == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: consumer");
    c->settings = *settings;
    mutex_init(&c->mutex);
    base_list_init(&c->targets);
    *out = c;
    return YOLK_OK;
}

void tcp_consumer_stop(struct tcp_consumer *c)
{
    mutex_lock(&c->mutex);
    c->stopped = true;
    BASE_LIST_FOREACH(node, &c->targets)
    {
        struct tcp_target *t = BASE_CONTAINER(node, struct tcp_target, node);
        tcp_target_stop(t);
    }
    mutex_unlock(&c->mutex);
}

void tcp_consumer_destroy(struct tcp_consumer *c)
{
    mutex_destroy(&c->mutex);
    free(c);
}

/* "host:port,instance" */
static int target_parse(struct tcp_target *t, const char *text)
{
    char host[sizeof t->settings->host + 16];
    const char *comma = strrchr(text, ',');
    if (comma == NULL || strlen(comma + 1) != TCP_INSTANCE_TEXT - 1 ||
        (size_t)(comma - text) >= sizeof host)
        return base_fail(YOLK_ERR_INVALID, 0, "tcp: not an endpoint: %.200s", text);
    memcpy(host, text, (size_t)(comma - text));
    host[comma - text] = '\0';
    for (size_t i = 0; i < WIRE_ID_SIZE; i++) {
        unsigned value = 0;
        for (size_t k = 0; k < 2; k++) {
            static const char digits[] = "0123456789abcdef";
            const char *d = strchr(digits, comma[1 + 2 * i + k]);
            if (d == NULL)
                return base_fail(YOLK_ERR_INVALID, 0, "tcp: not an instance: %.200s", text);
            value = value * 16 + (unsigned)(d - digits);
        }
        t->instance[i] = (uint8_t)value;
    }
    return net_address_parse(host, 0, &t->address);
}

enum yolk_status tcp_target_open(struct tcp_consumer *c, const char *text, uint64_t segment,
                                 uint64_t size, uint64_t session, void **out)
{
    struct tcp_target *t = calloc(1, sizeof *t);
    if (t == NULL)
        return (enum yolk_status)base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: target");
    t->settings = &c->settings;
    t->segment = segment;
    t->size = size;
    t->session = session;
    int status = target_parse(t, text);
    if (status != YOLK_OK) {
        free(t);
        return (enum yolk_status)status;
    }
    status = tcp_target_init(t);
    if (status != YOLK_OK) {
        free(t);
        return (enum yolk_status)status;
    }
    mutex_lock(&c->mutex);
    if (c->stopped)
        status = base_fail(YOLK_ERR_CLOSED, 0, "tcp: stopped");
    else
        base_list_push_back(&c->targets, &t->node);
    mutex_unlock(&c->mutex);
    if (status != YOLK_OK) {
        tcp_target_fini(t);
        free(t);
        return (enum yolk_status)status;
    }
    *out = t;
    return YOLK_OK;
}

void tcp_target_close(struct tcp_consumer *c, void *target)
{
    struct tcp_target *t = target;
    mutex_lock(&c->mutex);
    base_list_remove(&t->node);
    mutex_unlock(&c->mutex);
    tcp_target_fini(t);
    free(t);
}

enum yolk_status tcp_channel_open(struct tcp_consumer *c, void *target, void **out)
{
    struct tcp_target *t = target;
    (void)c;
    int status = tcp_target_connect(t);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    struct tcp_channel *ch = calloc(1, sizeof *ch);
    if (ch == NULL)
        return (enum yolk_status)base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: channel");
    ch->target = t;
    ch->wake = -1;
    mutex_init(&ch->mutex);
    base_list_init(&ch->done);
    base_list_init(&ch->spare);
    *out = ch;
    return YOLK_OK;
}

static enum yolk_submit submit_failed(struct yolk_io *io, int status)
{
    io->status = (enum yolk_status)status;
    io->transferred = 0;
    return YOLK_SUBMIT_FAILED;
}

/* The link with least to do; another one is opened when that has much. */
static struct tcp_link *link_choose(struct tcp_target *t)
{
    struct tcp_link *best = NULL, *unused = NULL;
    uint64_t best_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        if (atomic_load_explicit(&l->state, memory_order_relaxed) == LINK_CLOSED) {
            if (unused == NULL)
                unused = l;
            continue;
        }
        uint64_t bytes = atomic_load_explicit(&l->bytes, memory_order_relaxed);
        if (bytes < best_bytes) {
            best = l;
            best_bytes = bytes;
        }
    }
    if (best == NULL || (best_bytes >= TCP_GATHER_BYTES && unused != NULL))
        return unused;
    return best;
}

/* Neighbours go to the same link, where they can travel together. */
static struct tcp_link *link_for(struct tcp_channel *ch, uint64_t size)
{
    if (ch->link == NULL || ch->link_bytes + size > TCP_GATHER_BYTES ||
        atomic_load_explicit(&ch->link->state, memory_order_relaxed) == LINK_CLOSED) {
        ch->link = link_choose(ch->target);
        ch->link_bytes = 0;
    }
    ch->link_bytes += size;
    return ch->link;
}

enum yolk_submit tcp_channel_submit(void *channel, struct yolk_io *io)
{
    struct tcp_channel *ch = channel;
    if (io->size > TCP_LENGTH_MAX)
        return submit_failed(io, base_fail(YOLK_ERR_TOO_LARGE, 0, "tcp: an io of more than 1 MiB"));
    if (ch->queued >= TCP_DEPTH)
        return YOLK_SUBMIT_AGAIN;
    struct tcp_entry *e = tcp_entry_take(ch);
    if (e == NULL)
        return submit_failed(io, base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: request"));
    struct tcp_link *l = link_for(ch, io->size);
    e->channel = ch;
    mutex_lock(&l->mutex);
    int status = tcp_link_add(l, e, io);
    mutex_unlock(&l->mutex);
    if (status != YOLK_OK) {
        ch->link = NULL;
        tcp_entry_give_back(ch, e);
    }
    if (status == YOLK_ERR_AGAIN)
        return YOLK_SUBMIT_AGAIN;
    if (status != YOLK_OK)
        return submit_failed(io, status);
    ch->queued++;
    ch->links_used |= 1u << (l - ch->target->links);
    return YOLK_SUBMIT_QUEUED;
}

void tcp_channel_flush(void *channel)
{
    struct tcp_target *t = ((struct tcp_channel *)channel)->target;
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        if (atomic_load_explicit(&l->bytes, memory_order_relaxed) == 0)
            continue;
        mutex_lock(&l->mutex);
        tcp_link_flush(l);
        mutex_unlock(&l->mutex);
    }
}

uint32_t tcp_channel_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct tcp_channel *ch = channel;
    /* Also for a channel that has nothing: a link may be full of canceled reads nobody else sees
     * off. */
    tcp_target_drive(ch->target);
    if (ch->queued == 0)
        return 0;
    uint32_t n = 0;
    mutex_lock(&ch->mutex);
    ch->armed = false;
    while (n < max) {
        struct base_list *node = base_list_pop_front(&ch->done);
        if (node == NULL)
            break;
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        completions[n++] = e->completion;
        tcp_entry_give_back(ch, e);
    }
    mutex_unlock(&ch->mutex);
    ch->queued -= n;
    if (ch->queued == 0) {
        ch->link = NULL; /* the least busy one next time */
        ch->links_used = 0;
    }
    return n;
}

void tcp_channel_cancel(void *channel, uint64_t cookie)
{
    struct tcp_channel *ch = channel;
    struct tcp_target *t = ch->target;
    for (uint32_t i = 0; i < t->link_count; i++) {
        mutex_lock(&t->links[i].mutex);
        bool found = tcp_stream_cancel(&t->links[i], ch, cookie);
        mutex_unlock(&t->links[i].mutex);
        if (found)
            return;
    }
}

enum yolk_status tcp_channel_close(void *channel)
{
    struct tcp_channel *ch = channel;
    if (ch->queued > 0)
        return (enum yolk_status)base_fail(YOLK_ERR_BUSY, 0, "tcp: %u ios are under way",
                                           ch->queued);
    if (ch->wake >= 0)
        (void)close(ch->wake);
    mutex_destroy(&ch->mutex);
    tcp_entries_free(ch);
    free(ch);
    return YOLK_OK;
}

static bool channel_has_done(struct tcp_channel *ch)
{
    mutex_lock(&ch->mutex);
    bool done = base_list_first(&ch->done) != NULL;
    mutex_unlock(&ch->mutex);
    return done;
}

/* What flows goes on sooner than a sleeper wakes: true if something of the channel was over before
 * nothing flowed any more. */
static bool poll_while_hot(struct tcp_channel *ch)
{
    struct tcp_target *t = ch->target;
    uint64_t now = clock_real_now_ns();
    uint64_t until = clock_after(now, HOT_MAX_NS);
    while (now < until && now - tcp_target_moved_ns(t) < HOT_NS) {
        tcp_target_drive(t);
        if (channel_has_done(ch))
            return true;
        for (int i = 0; i < RELAXES; i++)
            thread_relax();
        now = clock_real_now_ns();
    }
    return false;
}

static bool channel_poll_hot(struct tcp_channel *ch)
{
    bool done = false;
    if (atomic_fetch_add(&polling, 1) < ch->target->settings->pollers_max)
        done = poll_while_hot(ch);
    (void)atomic_fetch_sub(&polling, 1);
    return done;
}

uint32_t tcp_channel_wait_fds(void *channel, struct pollfd *fds, uint32_t max)
{
    struct tcp_channel *ch = channel;
    if (max < ch->target->link_count + 2 || ch->queued == 0)
        return 0;
    if (channel_poll_hot(ch))
        return 0;
    if (ch->wake < 0)
        ch->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ch->wake < 0)
        return 0;
    uint64_t value;
    ssize_t got = read(ch->wake, &value, sizeof value);
    (void)got; /* it was not set then */
    mutex_lock(&ch->mutex);
    ch->armed = true;
    bool done = base_list_first(&ch->done) != NULL;
    mutex_unlock(&ch->mutex);
    if (done)
        return 0;
    fds[0] = (struct pollfd){ch->wake, POLLIN, 0};
    uint32_t n = tcp_target_wait_fds(ch->target, ch->links_used, fds + 1, max - 1);
    return n == 0 ? 0 : n + 1;
}
