/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/fault/fault.h"
#include "transport/failed.h"

#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "platform/random.h"
#include "transport/places.h"
#include "transport/wrap/wrap.h"

struct fault_endpoint {
    struct wrap_endpoint wrapped; /* first */
    const struct fault_options *options;
    _Atomic uint64_t channels; /* made so far: each draws from its own stream */
};

struct fault_channel {
    struct fault_endpoint *endpoint;
    void *inner;
    struct random_sim random;
    uint64_t polls;
    uint64_t taken;           /* ios so far: each one's name inside */
    uint32_t storm;           /* AGAINs still to come */
    uint32_t inside;          /* entries the inner one has */
    bool dead;                /* its peer, for good */
    struct base_list waiting; /* entries the inner one is given later */
    struct base_list open;    /* entries the inner one has */
    struct base_list held;    /* over inside, not yet reported */
};

/* One io under way. The inner transport gets a copy, so that it can be made shorter and renamed. */
struct fault_entry {
    struct base_list node;
    struct yolk_io io;
    struct yolk_completion result; /* under the caller's cookie */
    uint64_t due;                  /* poll number at which it is begun, then reported */
    bool dropped;
    bool stuck;
    bool again; /* to be reported once more */
    bool late_fail;
    bool partial;
    bool gated;  /* waits for release, not for a poll */
    bool passed; /* one of those that may go by */
    bool corrupt;
    bool canceled;
};

static bool draw(struct fault_channel *channel, uint32_t permille)
{
    if (permille == 0)
        return false;
    struct random random = random_sim_random(&channel->random);
    bool hit = random_below(&random, 1000) < permille;
    struct fault_control *control = channel->endpoint->options->control;
    if (hit && control != NULL)
        atomic_fetch_add(&control->injected, 1);
    return hit;
}

static uint64_t below(struct fault_channel *channel, uint64_t bound)
{
    struct random random = random_sim_random(&channel->random);
    return random_below(&random, bound);
}

static struct yolk_transport_options unwrap(const struct yolk_transport_options *options)
{
    struct yolk_transport_options inner = *options;
    inner.wrapped = ((const struct fault_options *)options->wrapped)->inner_wrapped;
    return inner;
}

static enum yolk_status fault_probe(const struct yolk_transport_options *options,
                                    struct yolk_probe *out)
{
    if (options->wrapped == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "the fault transport is not told what to wrap");
    const struct fault_options *mine = options->wrapped;
    struct yolk_transport_options inner = unwrap(options);
    return mine->inner->probe(&inner, out);
}

static enum yolk_status fault_init(const struct yolk_transport_options *options, void **endpoint)
{
    const struct fault_options *mine = options->wrapped;
    struct yolk_transport_options inner = unwrap(options);
    struct fault_endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    made->options = mine;
    made->wrapped.inner = transport_whole_table(mine->inner);
    enum yolk_status status = made->wrapped.inner.init(&inner, &made->wrapped.endpoint);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    *endpoint = made;
    return YOLK_OK;
}

static void fault_fini(void *endpoint)
{
    struct fault_endpoint *mine = endpoint;
    mine->wrapped.inner.fini(mine->wrapped.endpoint);
    free(mine);
}

static enum yolk_status fault_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    struct fault_endpoint *mine = endpoint;
    if (pointer == mine->options->refused)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the fault transport does not take this memory");
    return mine->wrapped.inner.add_buffer(mine->wrapped.endpoint, pointer, size, key);
}

static enum yolk_status fault_channel_open(void *endpoint, void *target, void **channel)
{
    struct fault_endpoint *mine = endpoint;
    struct fault_channel *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    enum yolk_status status =
        mine->wrapped.inner.channel_open(mine->wrapped.endpoint, target, &made->inner);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->endpoint = mine;
    base_list_init(&made->waiting);
    base_list_init(&made->open);
    base_list_init(&made->held);
    random_sim_init(&made->random, mine->options->seed + atomic_fetch_add(&mine->channels, 1));
    *channel = made;
    return YOLK_OK;
}

static enum yolk_status failure_of(const struct fault_options *options)
{
    return options->failure != YOLK_OK ? options->failure : YOLK_ERR_LINK;
}

static uint64_t some_polls(struct fault_channel *channel)
{
    uint32_t max = channel->endpoint->options->delay_polls_max;
    return 1 + below(channel, max != 0 ? max : 16);
}

static bool is_dead(const struct fault_channel *channel)
{
    struct fault_control *control = channel->endpoint->options->control;
    return channel->dead || (control != NULL && atomic_load(&control->dead));
}

static void flip(const struct yolk_io *io, uint64_t byte)
{
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place place;
    while (place_walk_on(&walk, io, &place)) {
        if (byte < place.size) {
            ((uint8_t *)place.local)[byte] ^= 0x40;
            return;
        }
        byte -= place.size;
    }
}

/* The inner one is done with it: decides when and how it is reported. */
static void hold(struct fault_channel *channel, struct fault_entry *entry, enum yolk_status status,
                 uint64_t transferred)
{
    const struct fault_options *options = channel->endpoint->options;
    entry->result.status = status;
    entry->result.transferred = transferred;
    if ((entry->late_fail || entry->partial) && status == YOLK_OK)
        entry->result.status = failure_of(options);
    if (entry->late_fail)
        entry->result.transferred = 0;
    if (entry->corrupt && status == YOLK_OK && transferred > 0 && entry->io.gpu == 0)
        flip(&entry->io, below(channel, transferred));
    entry->due = channel->polls;
    if (draw(channel, options->delay_permille))
        entry->due += some_polls(channel);
    if (entry->canceled)
        entry->dropped = false;
    if (draw(channel, options->reorder_permille))
        base_list_push_front(&channel->held, &entry->node);
    else
        base_list_push_back(&channel->held, &entry->node);
}

/* Takes one from a count that is not 0; was it one of those counted, or with `last` the last? */
static bool counts_down(_Atomic uint32_t *count, uint32_t last)
{
    uint32_t left = atomic_load(count);
    while (left > 0 && !atomic_compare_exchange_weak(count, &left, left - 1)) {
    }
    return last == 0 ? left > 0 : left == last;
}

static void draw_faults(struct fault_channel *channel, struct fault_entry *entry)
{
    const struct fault_options *options = channel->endpoint->options;
    entry->stuck = draw(channel, options->stuck_permille);
    entry->dropped = !entry->stuck && draw(channel, options->drop_permille);
    entry->again = draw(channel, options->duplicate_permille);
    entry->late_fail = draw(channel, options->late_fail_permille);
    entry->corrupt = entry->io.opcode == YOLK_READ && draw(channel, options->corrupt_permille);
    entry->partial = entry->io.size > 1 && draw(channel, options->partial_permille);
    if (entry->partial || (entry->io.size > 1 && draw(channel, options->short_permille)))
        entry->io.size = 1 + below(channel, entry->io.size - 1);
    struct fault_control *control = options->control;
    bool held = control != NULL && atomic_load(&control->hold);
    entry->passed = held && counts_down(&control->pass, 0);
    entry->gated = held && !entry->passed;
    if (draw(channel, options->defer_permille))
        entry->due = channel->polls + some_polls(channel);
    if ((entry->stuck || entry->gated) && control != NULL)
        atomic_fetch_add(&control->stuck, 1);
}

/* It is held back no more. */
static void let_go(struct fault_channel *channel, const struct fault_entry *entry)
{
    struct fault_control *control = channel->endpoint->options->control;
    if ((entry->stuck || entry->gated) && control != NULL)
        atomic_fetch_sub(&control->stuck, 1);
}

/* Gives it to the inner one. AGAIN, FAILED: it is still on no list. */
static enum yolk_submit begin(struct fault_channel *channel, struct fault_entry *entry)
{
    enum yolk_submit submitted =
        channel->endpoint->wrapped.inner.submit(channel->inner, &entry->io);
    if (submitted == YOLK_SUBMIT_QUEUED) {
        base_list_push_back(&channel->open, &entry->node);
        channel->inside++;
    } else if (submitted == YOLK_SUBMIT_DONE) {
        hold(channel, entry, YOLK_OK, entry->io.transferred);
    }
    return submitted;
}

static enum yolk_submit fault_submit(void *handle, struct yolk_io *io)
{
    struct fault_channel *channel = handle;
    const struct fault_options *options = channel->endpoint->options;
    struct fault_control *control = options->control;
    if (is_dead(channel))
        return submit_failed(io, YOLK_ERR_PEER_DEAD);
    if (control != NULL && atomic_load(&control->again))
        return YOLK_SUBMIT_AGAIN;
    if (channel->storm > 0) {
        channel->storm--;
        return YOLK_SUBMIT_AGAIN;
    }
    if (draw(channel, options->again_permille)) {
        channel->storm = (uint32_t)below(channel, 8);
        return YOLK_SUBMIT_AGAIN;
    }
    if (draw(channel, options->fail_permille) ||
        (control != NULL && counts_down(&control->fail, 1)))
        return submit_failed(io, failure_of(options));
    if (draw(channel, options->death_permille)) {
        channel->dead = true;
        return submit_failed(io, YOLK_ERR_PEER_DEAD);
    }
    struct fault_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return submit_failed(io, YOLK_ERR_NO_MEMORY);
    base_list_init(&entry->node);
    entry->io = *io;
    entry->result.cookie = io->cookie;
    entry->io.cookie = ++channel->taken;
    draw_faults(channel, entry);
    if (entry->gated || entry->due > channel->polls) {
        base_list_push_back(&channel->waiting, &entry->node);
        return YOLK_SUBMIT_QUEUED;
    }
    enum yolk_submit submitted = begin(channel, entry);
    if (submitted == YOLK_SUBMIT_QUEUED || submitted == YOLK_SUBMIT_DONE)
        return YOLK_SUBMIT_QUEUED;
    let_go(channel, entry);
    if (entry->passed && submitted == YOLK_SUBMIT_AGAIN) /* it will come again */
        atomic_fetch_add(&control->pass, 1);
    io->status = entry->io.status;
    io->transferred = entry->io.transferred;
    free(entry);
    return submitted;
}

/* Those that waited long enough, in order. */
static void begin_waiting(struct fault_channel *channel, bool release)
{
    bool begun = false;
    BASE_LIST_FOREACH_SAFE(node, &channel->waiting)
    {
        struct fault_entry *entry = BASE_CONTAINER(node, struct fault_entry, node);
        bool dead = is_dead(channel);
        if (!dead && ((entry->gated && !release) || entry->due > channel->polls))
            continue;
        base_list_remove(&entry->node);
        enum yolk_submit submitted = YOLK_SUBMIT_FAILED;
        entry->io.status = YOLK_ERR_PEER_DEAD;
        entry->io.transferred = 0;
        if (!dead)
            submitted = begin(channel, entry);
        if (submitted == YOLK_SUBMIT_AGAIN) {
            base_list_push_front(&channel->waiting, &entry->node);
            break;
        }
        if (submitted == YOLK_SUBMIT_FAILED)
            hold(channel, entry, entry->io.status, entry->io.transferred);
        begun = true;
    }
    if (begun && channel->endpoint->wrapped.inner.flush != NULL)
        channel->endpoint->wrapped.inner.flush(channel->inner);
}

/* One reported twice is not there the second time. */
static struct fault_entry *find_open(struct fault_channel *channel, uint64_t cookie)
{
    BASE_LIST_FOREACH(node, &channel->open)
    {
        struct fault_entry *entry = BASE_CONTAINER(node, struct fault_entry, node);
        if (entry->io.cookie == cookie)
            return entry;
    }
    return NULL;
}

static void poll_inner(struct fault_channel *channel)
{
    struct yolk_completion completions[32];
    uint32_t count;
    do {
        count = channel->endpoint->wrapped.inner.poll(channel->inner, completions, 32);
        for (uint32_t i = 0; i < count; i++) {
            struct fault_entry *entry = find_open(channel, completions[i].cookie);
            if (entry == NULL)
                continue;
            base_list_remove(&entry->node);
            channel->inside--;
            hold(channel, entry, completions[i].status, completions[i].transferred);
        }
    } while (count == 32);
}

static uint32_t fault_poll(void *handle, struct yolk_completion *completions, uint32_t max)
{
    struct fault_channel *channel = handle;
    struct fault_control *control = channel->endpoint->options->control;
    bool release = control != NULL && atomic_load(&control->release);
    bool dead = is_dead(channel);
    begin_waiting(channel, release);
    if (channel->inside > 0)
        poll_inner(channel);
    channel->polls++;
    uint32_t count = 0;
    BASE_LIST_FOREACH_SAFE(node, &channel->held)
    {
        struct fault_entry *entry = BASE_CONTAINER(node, struct fault_entry, node);
        if (count == max)
            break;
        if (dead && !entry->stuck && entry->result.status == YOLK_OK) {
            /* Its answer is lost. */
            entry->result.status = YOLK_ERR_PEER_DEAD;
            entry->result.transferred = 0;
        }
        if (((entry->stuck || (entry->dropped && !dead)) && !release) ||
            entry->due > channel->polls)
            continue;
        completions[count++] = entry->result;
        if (entry->again && count < max)
            completions[count++] = entry->result;
        let_go(channel, entry);
        base_list_remove(&entry->node);
        free(entry);
    }
    return count;
}

static void fault_cancel(void *handle, uint64_t cookie)
{
    struct fault_channel *channel = handle;
    struct fault_control *control = channel->endpoint->options->control;
    BASE_LIST_FOREACH_SAFE(node, &channel->waiting)
    {
        struct fault_entry *entry = BASE_CONTAINER(node, struct fault_entry, node);
        if (entry->result.cookie != cookie ||
            (entry->gated && control != NULL && atomic_load(&control->deaf)))
            continue;
        base_list_remove(&entry->node);
        hold(channel, entry, YOLK_ERR_CANCELED, 0);
        entry->dropped = false;
        return;
    }
    BASE_LIST_FOREACH(node, &channel->held)
    {
        struct fault_entry *entry = BASE_CONTAINER(node, struct fault_entry, node);
        if (entry->result.cookie == cookie)
            entry->dropped = false;
    }
    BASE_LIST_FOREACH(node, &channel->open)
    {
        struct fault_entry *entry = BASE_CONTAINER(node, struct fault_entry, node);
        if (entry->result.cookie != cookie)
            continue;
        entry->canceled = true;
        if (channel->endpoint->wrapped.inner.cancel != NULL)
            channel->endpoint->wrapped.inner.cancel(channel->inner, entry->io.cookie);
        return;
    }
}

static enum yolk_status fault_channel_close(void *handle)
{
    struct fault_channel *channel = handle;
    if (channel->inside > 0 || !base_list_empty(&channel->held) ||
        !base_list_empty(&channel->waiting))
        return YOLK_ERR_BUSY;
    enum yolk_status status = channel->endpoint->wrapped.inner.channel_close(channel->inner);
    if (status == YOLK_OK)
        free(channel);
    return status;
}

static uint32_t fault_wait_fds(void *handle, struct pollfd *fds, uint32_t max)
{
    struct fault_channel *channel = handle;
    /* Waiting and held ones become due by polls: no descriptor announces them. */
    if (!base_list_empty(&channel->held) || !base_list_empty(&channel->waiting) ||
        channel->endpoint->wrapped.inner.wait_fds == NULL)
        return 0;
    return channel->endpoint->wrapped.inner.wait_fds(channel->inner, fds, max);
}

static void fault_flush(void *handle)
{
    struct fault_channel *channel = handle;
    channel->endpoint->wrapped.inner.flush(channel->inner);
}

void transport_fault_make(const struct fault_options *options, struct yolk_transport_ops *out)
{
    wrap_make(options->inner, out);
    out->caps |= YOLK_CAP_FAULTY;
    /* It looks at the bytes where they lie. */
    out->caps &= ~(YOLK_CAP_PIECES | YOLK_CAP_GPU_PLACES);
    out->probe = fault_probe;
    out->init = fault_init;
    out->fini = fault_fini;
    out->add_buffer = fault_add_buffer;
    out->channel_open = fault_channel_open;
    out->submit = fault_submit;
    out->poll = fault_poll;
    out->cancel = fault_cancel;
    out->channel_close = fault_channel_close;
    out->wait_fds = fault_wait_fds;
    if (out->flush != NULL)
        out->flush = fault_flush;
}
