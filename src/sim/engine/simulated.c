/* SPDX-License-Identifier: Apache-2.0 */
/* A transport on virtual time: an io moves all at once at its instant, or fails there, is never
 * reported, cannot be canceled, as the dice want it at its submit. Each touch of memory is checked
 * against who owns it at that instant. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/clock.h"
#include "sim/engine/peers.h"

struct target {
    uint32_t peer;
    uint64_t life;
};

struct channel {
    struct peers *world;
    struct target *target;
    struct base_list ended; /* ios to be reported */
    uint32_t open;          /* ios not yet reported */
};

struct entry {
    struct base_list node;
    struct channel *channel;
    struct yolk_io io;
    uint64_t due_ns;
    uint64_t moves; /* so many bytes of it */
    enum yolk_status status;
    uint64_t transferred;
    bool held; /* until cancel, or release */
    bool deaf;
    bool doubled;
    bool canceled;
};

uint8_t peers_byte(uint64_t peer, uint64_t life, uint64_t offset)
{
    uint64_t x = offset * UINT64_C(0x9e3779b97f4a7c15) + life * UINT64_C(0xc2b2ae3d27d4eb4f) +
                 peer * UINT64_C(0x165667b19e3779f9);
    return (uint8_t)((x ^ x >> 29) >> 32);
}

void peers_start(struct peers *p, uint32_t peer)
{
    struct peer *one = &p->peers[peer];
    one->alive = true;
    one->life++;
    for (uint64_t i = 0; i < PEER_SIZE; i++)
        one->memory[i] = peers_byte(peer, one->life, i);
}

static uint32_t slot_of(const struct peers *p, const struct yolk_io *io)
{
    return (uint32_t)(((const uint8_t *)io->local - p->local) / SLOT);
}

/* An io of no bytes is under way like any other. */
static bool touches(const struct peers *p, const struct entry *entry, uint32_t slot)
{
    uint32_t first = slot_of(p, &entry->io);
    uint64_t size = entry->io.size == 0 ? 1 : entry->io.size;
    uint64_t end = (uint64_t)((const uint8_t *)entry->io.local - p->local) + size;
    return slot >= first && (uint64_t)slot * SLOT < end;
}

bool peers_slot_is_touched(const struct peers *p, uint32_t slot)
{
    BASE_LIST_FOREACH(node, &p->ios)
    {
        if (touches(p, BASE_CONTAINER(node, struct entry, node), slot))
            return true;
    }
    return false;
}

uint32_t peers_busy_slots_touched(const struct peers *p)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        count += p->slots[slot] == SLOT_BUSY && peers_slot_is_touched(p, slot);
    return count;
}

static void count_unreported(struct peers *p, const struct entry *entry, uint32_t by)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if (touches(p, entry, slot))
            p->unreported[slot] += by;
}

/* Whose memory is it? A submit is for tasks that are not over; what is under way may go on for
 * those whose batch was freed, and for stuck ones. */
static void check_owner(struct peers *p, const struct entry *entry, bool submitted)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        enum slot_state state = p->slots[slot];
        if (touches(p, entry, slot) && (state == SLOT_FREE || (submitted && state != SLOT_BUSY)))
            peers_fail(p, "an io %s memory of slot %" PRIu32 ", whose request is over",
                       submitted ? "is posted for" : "touches", slot);
    }
}

static void end_io(struct entry *entry, enum yolk_status status, uint64_t transferred)
{
    entry->status = status;
    entry->transferred = transferred;
    base_list_remove(&entry->node);
    base_list_push_back(&entry->channel->ended, &entry->node);
}

static enum yolk_status reach(const struct peers *p, const struct target *target)
{
    const struct peer *peer = &p->peers[target->peer];
    if (!peer->alive)
        return YOLK_ERR_PEER_DEAD;
    return peer->life == target->life ? YOLK_OK : YOLK_ERR_STALE;
}

static void move(struct peers *p, struct entry *entry)
{
    const struct target *target = entry->channel->target;
    struct yolk_io *io = &entry->io;
    enum yolk_status status = reach(p, target);
    if (status != YOLK_OK || entry->canceled) {
        end_io(entry, entry->canceled ? YOLK_ERR_CANCELED : status, 0);
        return;
    }
    check_owner(p, entry, false);
    uint8_t *there = p->peers[target->peer].memory + io->offset;
    if (io->opcode == YOLK_READ)
        memcpy(io->local, there, entry->moves);
    else
        memcpy(there, io->local, entry->moves);
    end_io(entry, entry->status, entry->transferred);
}

void peers_advance(struct peers *p, uint64_t to_ns)
{
    for (;;) {
        struct entry *next = NULL;
        BASE_LIST_FOREACH(node, &p->ios)
        {
            struct entry *entry = BASE_CONTAINER(node, struct entry, node);
            if (!entry->held && entry->due_ns <= to_ns &&
                (next == NULL || entry->due_ns < next->due_ns))
                next = entry;
        }
        if (next == NULL)
            break;
        if (next->due_ns > p->now_ns)
            p->now_ns = next->due_ns;
        move(p, next);
    }
    p->now_ns = to_ns;
}

void peers_release(struct peers *p)
{
    BASE_LIST_FOREACH(node, &p->ios)
    {
        BASE_CONTAINER(node, struct entry, node)->held = false;
    }
}

/* Who had something under way hears of it a moment later. */
void peers_kill(struct peers *p, uint32_t peer)
{
    p->peers[peer].alive = false;
    p->peers[peer].ended_ns = p->now_ns;
    peers_mark(p, PEER_MARK_DIED);
    BASE_LIST_FOREACH(node, &p->ios)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        if (entry->channel->target->peer != peer)
            continue;
        peers_mark(p, PEER_MARK_DIED_BUSY);
        entry->held = false;
        entry->due_ns = p->now_ns + 1 + peers_below(p, 2 * CLOCK_NS_PER_MS);
    }
}

/* -- hooks -- */

static enum yolk_status sim_probe(const struct yolk_transport_options *options,
                                  struct yolk_probe *out)
{
    (void)options;
    *out = (struct yolk_probe){.latency_ns = 1};
    return YOLK_OK;
}

static enum yolk_status sim_init(const struct yolk_transport_options *options, void **endpoint)
{
    *endpoint = (void *)(uintptr_t)options->wrapped;
    return YOLK_OK;
}

static enum yolk_status sim_stop(void *endpoint)
{
    (void)endpoint;
    return YOLK_OK;
}

static void sim_fini(void *endpoint)
{
    (void)endpoint;
}

static void sim_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    *out = (struct yolk_limits){SLOT / 2 + 64, CHANNEL_DEPTH, 1};
}

static enum yolk_status sim_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void sim_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

static enum yolk_status sim_open_target(void *endpoint, const char *text, uint64_t segment,
                                        uint64_t size, uint64_t session, void **target)
{
    struct peers *p = endpoint;
    struct target found = {0};
    (void)segment, (void)size, (void)session;
    int read = sscanf(text, "%" SCNu32 ".%" SCNu64, &found.peer, &found.life);
    assert(read == 2 && found.peer < PEERS);
    enum yolk_status status = reach(p, &found);
    if (status == YOLK_OK && peers_chance(p, 50))
        status = YOLK_ERR_TIMEOUT;
    if (status != YOLK_OK)
        return base_fail(status, 0, "peer %" PRIu32 " cannot be reached", found.peer);
    struct target *made = malloc(sizeof(*made));
    assert(made != NULL);
    *made = found;
    *target = made;
    return YOLK_OK;
}

static void sim_close_target(void *endpoint, void *target)
{
    (void)endpoint;
    free(target);
}

static enum yolk_status sim_channel_open(void *endpoint, void *target, void **channel)
{
    struct peers *p = endpoint;
    if (peers_chance(p, 50))
        return peers_below(p, 2) == 0 ? YOLK_ERR_AGAIN : YOLK_ERR_LIMIT;
    struct channel *made = calloc(1, sizeof(*made));
    assert(made != NULL);
    made->world = p;
    made->target = target;
    base_list_init(&made->ended);
    *channel = made;
    return YOLK_OK;
}

static enum yolk_submit fail(struct peers *p, struct yolk_io *io, enum yolk_status status)
{
    peers_mark(p, PEER_MARK_SUBMIT_FAILED);
    io->status = status;
    io->transferred = 0;
    return YOLK_SUBMIT_FAILED;
}

static enum yolk_status some_failure(struct peers *p)
{
    static const enum yolk_status list[] = {YOLK_ERR_LINK, YOLK_ERR_TIMEOUT, YOLK_ERR_IO,
                                            YOLK_ERR_REFUSED};
    return list[peers_below(p, sizeof(list) / sizeof(list[0]))];
}

/* What becomes of it, at its instant. */
static void draw_fate(struct peers *p, struct entry *entry)
{
    entry->moves = entry->io.size;
    entry->transferred = entry->io.size;
    entry->due_ns = p->now_ns + 1 + peers_below(p, 300000);
    entry->doubled = peers_chance(p, 200);
    if (peers_chance(p, 100)) {
        peers_mark(p, PEER_MARK_LATE_FAILED);
        entry->status = some_failure(p);
        entry->moves = peers_below(p, entry->io.size + 1);
        entry->transferred = peers_below(p, entry->moves + 1);
    } else if (entry->io.size > 1 && peers_chance(p, 100)) {
        peers_mark(p, PEER_MARK_SHORT);
        entry->moves = entry->transferred = 1 + peers_below(p, entry->io.size - 1);
    }
    if (peers_chance(p, 60)) {
        peers_mark(p, PEER_MARK_DROPPED);
        entry->held = true;
    }
    if (peers_chance(p, 60)) {
        peers_mark(p, PEER_MARK_DEAF);
        entry->deaf = true;
        entry->due_ns += peers_below(p, 3 * DRAIN_MS * CLOCK_NS_PER_MS);
    }
}

static enum yolk_submit sim_submit(void *handle, struct yolk_io *io)
{
    struct channel *channel = handle;
    struct peers *p = channel->world;
    enum yolk_status status = reach(p, channel->target);
    if (channel->open == CHANNEL_DEPTH || peers_chance(p, 150)) {
        peers_mark(p, PEER_MARK_AGAIN);
        return YOLK_SUBMIT_AGAIN;
    }
    if (status != YOLK_OK && peers_below(p, 2) == 0)
        return fail(p, io, status);
    if (peers_chance(p, 100))
        return fail(p, io, some_failure(p));
    struct entry *entry = calloc(1, sizeof(*entry));
    assert(entry != NULL);
    base_list_init(&entry->node);
    entry->channel = channel;
    entry->io = *io;
    check_owner(p, entry, true);
    count_unreported(p, entry, 1);
    draw_fate(p, entry);
    base_list_push_back(&p->ios, &entry->node);
    channel->open++;
    return YOLK_SUBMIT_QUEUED;
}

static uint32_t sim_poll(void *handle, struct yolk_completion *out, uint32_t max)
{
    struct channel *channel = handle;
    struct peers *p = channel->world;
    uint32_t count = 0;
    BASE_LIST_FOREACH_SAFE(node, &channel->ended)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        if (count + 2 > max)
            break;
        out[count++] =
            (struct yolk_completion){entry->io.cookie, entry->transferred, entry->status};
        if (entry->doubled) {
            peers_mark(p, PEER_MARK_DOUBLED);
            out[count] = out[count - 1];
            count++;
        }
        base_list_remove(&entry->node);
        channel->open--;
        count_unreported(p, entry, UINT32_MAX);
        free(entry);
    }
    return count;
}

static void sim_cancel(void *handle, uint64_t cookie)
{
    struct channel *channel = handle;
    struct peers *p = channel->world;
    BASE_LIST_FOREACH(node, &p->ios)
    {
        struct entry *entry = BASE_CONTAINER(node, struct entry, node);
        if (entry->channel != channel || entry->io.cookie != cookie || entry->deaf ||
            entry->canceled)
            continue;
        entry->canceled = true;
        entry->held = false;
        entry->due_ns = p->now_ns + peers_below(p, 100000);
        if (peers_below(p, 2) == 0)
            move(p, entry); /* it ends at once */
        return;
    }
}

static enum yolk_status sim_channel_close(void *handle)
{
    struct channel *channel = handle;
    if (channel->open > 0)
        return YOLK_ERR_BUSY;
    free(channel);
    return YOLK_OK;
}

const struct yolk_transport_ops *simulated_ops(uint32_t way)
{
    static struct yolk_transport_ops tables[WAYS];
    static const char *const names[WAYS] = {"simulated", "simulated2"};
    tables[way] = (struct yolk_transport_ops){
        .size = sizeof(tables[way]),
        .abi = YOLK_TRANSPORT_ABI,
        .name = names[way],
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_PEER_DEATH,
        .probe = sim_probe,
        .init = sim_init,
        .stop = sim_stop,
        .fini = sim_fini,
        .limits = sim_limits,
        .add_buffer = sim_add_buffer,
        .remove_buffer = sim_remove_buffer,
        .open_target = sim_open_target,
        .close_target = sim_close_target,
        .channel_open = sim_channel_open,
        .submit = sim_submit,
        .poll = sim_poll,
        .cancel = sim_cancel,
        .channel_close = sim_channel_close,
    };
    return &tables[way];
}
