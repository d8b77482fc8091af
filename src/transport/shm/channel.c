/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ios of the consumer side. A run of them, from the first submit to the flush behind it, counts
 * itself as a user of its link's mapping.
 *
 * A large io is copied when it is submitted. Small ones are gathered and copied one right behind
 * the other: so the processor fetches the first bytes of the next one before the last one is over,
 * which it does not across all that is done for a request.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/limits.h"
#include "transport/failed.h"
#include "transport/places.h"
#include "transport/shm/consumer.h"

enum {
    COPY_CHUNK = 1024 * 1024,
    /* Of a run; then it is looked whether the provider wants the mapping gone. */
    LOOK_IOS = 64,
    LOOK_BYTES = 1024 * 1024,
    /* Gathered ones. */
    SMALL_MAX = 8192,
    GATHER_IOS = 64,
    GATHER_BYTES = 65536,
};

/* A run under way on one of the links. */
struct run {
    bool entered;
    uint32_t ios; /* since it was looked */
    uint64_t bytes;
};

struct channel {
    struct shm_target *target;
    struct run runs[2];
    /* Borrowed; each is the next one's scratch[0]. */
    struct yolk_io *gathered, **gathered_end;
    uint32_t gathered_count;
    uint64_t gathered_bytes;
    struct yolk_io *done, **done_end; /* copied, and to be told by poll */
    uint32_t queued;                  /* of both */
    /* Copied by a GPU, which goes on after the run: so they have users of their own. */
    struct gpu_lane *lane; /* NULL: there was none yet */
    uint32_t gpu_ios[2];   /* under way on each link */
    struct device_range *ranges[2];
    uint32_t gpu_looks;
};

enum yolk_status shm_channel_open(void *target, void **out)
{
    struct shm_target *t = target;
    if (atomic_load(&t->settings->stopped))
        return base_fail(YOLK_ERR_CLOSED, 0, "shm: stopped");
    int status = shm_link_connect(&t->links[0], 0); /* whoever waits also has others to look at */
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    struct channel *ch = calloc(1, sizeof *ch);
    if (ch == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: channel");
    ch->target = t;
    ch->gathered_end = &ch->gathered;
    ch->done_end = &ch->done;
    *out = ch;
    return YOLK_OK;
}

/* ---- copies ---- */

/* Mapping a step at once costs a tenth of taking a fault for each of its pages. */
static void map_ahead(struct shm_link *l, uint64_t offset, uint64_t size)
{
    if (l->ahead == NULL || size == 0)
        return;
    uint64_t last = (offset + size - 1) / SHM_AHEAD_STEP;
    for (uint64_t at = offset / SHM_AHEAD_STEP; at <= last; at++) {
        if (atomic_load_explicit(&l->ahead[at], memory_order_relaxed))
            continue;
        uint64_t start = at * SHM_AHEAD_STEP, left = l->data.size - start;
        memory_map_ahead((char *)l->data.address + start,
                         left < SHM_AHEAD_STEP ? left : SHM_AHEAD_STEP, l->writable);
        /* Two who come at once both map it, which does no harm. */
        atomic_store_explicit(&l->ahead[at], true, memory_order_relaxed);
    }
}

static void copy_chunks(uint8_t *to, const uint8_t *from, uint64_t size)
{
    while (size > 0) {
        size_t n = size < COPY_CHUNK ? (size_t)size : COPY_CHUNK;
        copy_stream(to, from, n);
        to += n;
        from += n;
        size -= n;
    }
}

static struct shm_link *link_of(struct channel *ch, const struct yolk_io *io)
{
    return &ch->target->links[io->opcode == YOLK_WRITE ? 1 : 0];
}

static void copy(struct channel *ch, const struct yolk_io *io)
{
    uint8_t *remote = (uint8_t *)link_of(ch, io)->data.address;
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place place;
    while (place_walk_on(&walk, io, &place)) {
        if (io->opcode == YOLK_WRITE)
            copy_chunks(remote + place.offset, place.local, place.size);
        else
            copy_chunks(place.local, remote + place.offset, place.size);
    }
}

/* Whether all of it lies in the segment; maps it ahead. */
static int prepare(struct shm_link *l, const struct yolk_io *io)
{
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place place = {.offset = io->offset};
    do {
        if (place.offset > l->size || place.size > l->size - place.offset)
            return base_fail(YOLK_ERR_INVALID, 0, "shm: outside the segment");
        map_ahead(l, place.offset, place.size);
    } while (place_walk_on(&walk, io, &place));
    return YOLK_OK;
}

/* After the copies: they were made from, or to, what the target means. */
static enum yolk_status look_at_id(struct channel *ch, bool wrote)
{
    const struct shm_target *t = ch->target;
    /* To order stores before a load the processor waits for all of them; a read needs it not. */
    atomic_thread_fence(wrote ? memory_order_seq_cst : memory_order_acquire);
    for (int which = 0; which < 2; which++)
        if (ch->runs[which].entered && shm_link_segment(&t->links[which]) != t->segment)
            return base_fail(YOLK_ERR_STALE, 0, "shm: the segment has another id now");
    return YOLK_OK;
}

static void copy_gathered(struct channel *ch)
{
    bool wrote = false;
    for (struct yolk_io *io = ch->gathered; io != NULL; io = io->scratch[0]) {
        copy(ch, io);
        wrote = wrote || io->opcode == YOLK_WRITE;
    }
    if (ch->gathered == NULL)
        return;
    enum yolk_status status = look_at_id(ch, wrote);
    for (struct yolk_io *io = ch->gathered; io != NULL; io = io->scratch[0])
        io->status = status;
    *ch->done_end = ch->gathered;
    ch->done_end = ch->gathered_end;
    ch->gathered = NULL;
    ch->gathered_end = &ch->gathered;
    ch->gathered_count = 0;
    ch->gathered_bytes = 0;
}

static void gather(struct channel *ch, struct yolk_io *io)
{
    io->scratch[0] = NULL;
    *ch->gathered_end = io;
    ch->gathered_end = (struct yolk_io **)&io->scratch[0];
    ch->gathered_bytes += io->size;
    ch->queued++;
    if (++ch->gathered_count == GATHER_IOS || ch->gathered_bytes >= GATHER_BYTES)
        copy_gathered(ch);
}

/* ---- runs ---- */

static void run_end(struct channel *ch, int which)
{
    copy_gathered(ch);
    if (ch->runs[which].entered)
        shm_link_leave(&ch->target->links[which]);
    ch->runs[which] = (struct run){0};
}

void shm_channel_flush(void *channel)
{
    const struct channel *ch = channel;
    run_end(channel, 0);
    run_end(channel, 1);
    if (ch->lane != NULL)
        gpu_lane_flush(ch->lane);
}

/* OK: the mapping stays until the run ends. */
static int run_go_on(struct channel *ch, int which, uint64_t size)
{
    struct run *run = &ch->runs[which];
    struct shm_link *l = &ch->target->links[which];
    run->bytes += size;
    if (run->entered && ++run->ios < LOOK_IOS && run->bytes < LOOK_BYTES &&
        atomic_load_explicit(&l->dead, memory_order_relaxed) == YOLK_OK &&
        shm_link_segment(l) == ch->target->segment)
        return YOLK_OK;
    run_end(ch, which);
    int status = shm_link_enter(l);
    run->entered = status == YOLK_OK;
    run->bytes = size;
    return status;
}

/* ---- a GPU's memory ---- */

static int make_lane(struct channel *ch)
{
    if (ch->lane != NULL)
        return YOLK_OK;
    ch->lane = malloc(sizeof *ch->lane);
    if (ch->lane == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "shm: channel");
    gpu_lane_init(ch->lane, ch->target->settings->gpu);
    return YOLK_OK;
}

/* The mapping stays while something is under way, but nothing new goes to one that is to go. */
static int gpu_enter(struct channel *ch, int which)
{
    struct shm_link *l = &ch->target->links[which];
    int dead = atomic_load_explicit(&l->dead, memory_order_relaxed);
    if (ch->gpu_ios[which] > 0 && ++ch->gpu_looks % LOOK_IOS != 0)
        return dead == YOLK_OK && shm_link_segment(l) == ch->target->segment
                   ? YOLK_OK
                   : base_fail(dead != YOLK_OK ? dead : YOLK_ERR_STALE, 0,
                               "shm: the provider ended the mapping");
    int status = shm_link_enter(l);
    if (status == YOLK_OK && ch->gpu_ios[which] > 0)
        shm_link_leave(l);
    return status;
}

static void gpu_leave(struct channel *ch, int which)
{
    if (ch->gpu_ios[which] == 0)
        shm_link_leave(&ch->target->links[which]);
}

static enum yolk_submit gpu_submit(struct channel *ch, int which, struct yolk_io *io)
{
    struct shm_link *l = &ch->target->links[which];
    int status = make_lane(ch);
    if (status == YOLK_OK)
        status = gpu_enter(ch, which);
    if (status != YOLK_OK)
        return status == YOLK_ERR_AGAIN ? YOLK_SUBMIT_AGAIN : submit_failed(io, status);
    if (io->offset > l->size || io->size > l->size - io->offset) {
        gpu_leave(ch, which);
        return submit_failed(io, base_fail(YOLK_ERR_INVALID, 0, "shm: outside the segment"));
    }
    if (ch->gpu_ios[which] == 0)
        ch->ranges[which] = shm_link_range(l);
    const struct gpu_there there = {.memory = (uint8_t *)l->data.address + io->offset,
                                    .range = ch->ranges[which],
                                    .offset = io->offset};
    enum yolk_submit answer = gpu_lane_add(ch->lane, io, &there);
    if (answer == YOLK_SUBMIT_QUEUED) {
        ch->gpu_ios[which]++;
        ch->queued++;
    } else {
        gpu_leave(ch, which);
    }
    return answer;
}

/* What a GPU has copied is told like the rest. */
static uint32_t gpu_tell(struct channel *ch, struct yolk_completion *completions, uint32_t max)
{
    const struct shm_target *t = ch->target;
    uint32_t n = 0;
    if (ch->lane == NULL || ch->lane->queued == 0)
        return 0;
    gpu_lane_poll(ch->lane);
    for (; n < max; n++) {
        struct yolk_io *io = gpu_lane_take(ch->lane);
        if (io == NULL)
            break;
        int which = io->opcode == YOLK_WRITE ? 1 : 0;
        if (io->status == YOLK_OK && shm_link_segment(&t->links[which]) != t->segment)
            io->status = base_fail(YOLK_ERR_STALE, 0, "shm: the segment has another id now");
        completions[n] =
            (struct yolk_completion){io->cookie, io->status == YOLK_OK ? io->size : 0, io->status};
        ch->gpu_ios[which]--;
        gpu_leave(ch, which);
    }
    return n;
}

/* ---- the interface ---- */

enum yolk_submit shm_channel_submit(void *channel, struct yolk_io *io)
{
    struct channel *ch = channel;
    int which = io->opcode == YOLK_WRITE ? 1 : 0;
    struct shm_link *l = &ch->target->links[which];
    if (io->size > SHM_SLICE_MAX)
        return submit_failed(io, base_fail(YOLK_ERR_TOO_LARGE, 0, "shm: an io of over 4 MiB"));
    if (atomic_load_explicit(&ch->target->settings->stopped, memory_order_relaxed))
        return submit_failed(io, base_fail(YOLK_ERR_CLOSED, 0, "shm: stopped"));
    if (ch->queued == SHM_DEPTH_MAX)
        return YOLK_SUBMIT_AGAIN;
    if (io->gpu != 0 && io->size > 0)
        return gpu_submit(ch, which, io);
    int status = run_go_on(ch, which, io->size);
    if (status == YOLK_ERR_AGAIN)
        return YOLK_SUBMIT_AGAIN; /* the first write: the provider has not answered yet */
    if (status == YOLK_OK)
        status = prepare(l, io);
    if (status != YOLK_OK)
        return submit_failed(io, status);
    if (io->size <= SMALL_MAX && io->size > 0) {
        gather(ch, io);
        return YOLK_SUBMIT_QUEUED;
    }
    copy(ch, io);
    status = look_at_id(ch, which == 1);
    if (status != YOLK_OK)
        return submit_failed(io, status);
    io->status = YOLK_OK;
    io->transferred = io->size;
    return YOLK_SUBMIT_DONE;
}

uint32_t shm_channel_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct channel *ch = channel;
    uint32_t n = 0;
    copy_gathered(ch);
    n = gpu_tell(ch, completions, max);
    for (; n < max && ch->done != NULL; n++) {
        const struct yolk_io *io = ch->done;
        completions[n] =
            (struct yolk_completion){io->cookie, io->status == YOLK_OK ? io->size : 0, io->status};
        ch->done = io->scratch[0];
    }
    if (ch->done == NULL)
        ch->done_end = &ch->done;
    ch->queued -= n;
    return n;
}

enum yolk_status shm_channel_close(void *channel)
{
    struct channel *ch = channel;
    shm_channel_flush(channel);
    if (ch->queued > 0)
        return base_fail(YOLK_ERR_BUSY, 0, "shm: %u ios were not told of", ch->queued);
    if (ch->lane != NULL)
        gpu_lane_fini(ch->lane);
    free(ch->lane);
    free(ch);
    return YOLK_OK;
}
