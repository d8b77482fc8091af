/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ios of the consumer side. They are gathered until the flush, or until there are many, and
 * then handed to the device in one piece for each GPU and direction: so small ones go by one
 * kernel. Each piece under way counts as a user of the link's mapping.
 *
 * Between host memory and a peer's host memory that the processor reaches it copies itself.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "transport/failed.h"
#include "transport/nvlink/internal.h"

enum {
    GROUP_IOS = NVLINK_DEPTH_MAX, /* of one piece */
    GATHER_IOS = 256,
};

/* What all ios of a piece have in common. */
struct route {
    bool writes; /* which of the links */
    bool pageable;
    int gpu;
    enum device_direction direction;
};

struct piece {
    struct base_list node;
    struct device_transfer *transfer;
    struct yolk_io *ios; /* chained by scratch[0] */
    bool writes;
};

struct channel {
    struct nvlink_walk *walk; /* of all addresses of a process: all else is there; else NULL */
    struct nvlink_target *target;
    struct shm_link *links;
    bool entered[2]; /* a run of submits keeps the mapping */
    struct yolk_io *pending, **pending_end;
    uint32_t pending_count;
    struct base_list pieces; /* under way, oldest first */
    struct yolk_io *done, **done_end;
    uint32_t queued; /* all of these */
    struct device_copy copies[GROUP_IOS];
};

/* scratch[1]: the address in the peer's memory; scratch[2]: the route; scratch[3]: whether local
 * memory is held. */
static void pack(struct yolk_io *io, const struct route *route)
{
    io->scratch[2] = (void *)(((uintptr_t)route->gpu << 8) | ((uintptr_t)route->direction << 2) |
                              (route->writes ? 2u : 0u) | (route->pageable ? 1u : 0u));
}

static struct route unpack(const struct yolk_io *io)
{
    uintptr_t bits = (uintptr_t)io->scratch[2];
    return (struct route){.writes = (bits & 2) != 0,
                          .pageable = (bits & 1) != 0,
                          .gpu = (int)(bits >> 8),
                          .direction = (enum device_direction)(bits >> 2 & 63)};
}

enum yolk_status nvlink_channel_open(void *endpoint, void *target, void **out)
{
    struct nvlink_endpoint *e = endpoint;
    struct nvlink_target *t = target;
    if (atomic_load(&e->settings.stopped))
        return base_fail(YOLK_ERR_CLOSED, 0, "nvlink: stopped");
    int status = t->places == NULL ? shm_link_connect(&t->links->links[0], 0) : YOLK_OK;
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    struct channel *ch =
        calloc(1, t->places == NULL ? sizeof *ch : offsetof(struct channel, copies));
    if (ch == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: channel");
    status = t->places == NULL ? YOLK_OK : nvlink_walk_open(t, &ch->walk);
    if (status != YOLK_OK) {
        free(ch);
        return (enum yolk_status)status;
    }
    ch->target = t;
    ch->links = t->links->links;
    ch->pending_end = &ch->pending;
    ch->done_end = &ch->done;
    base_list_init(&ch->pieces);
    *out = ch;
    return YOLK_OK;
}

/* ---- ends of ios ---- */

static void let_go(struct yolk_io *io)
{
    if (io->scratch[3] != NULL)
        nvlink_buffer_release(io->key, io->local, io->size);
    io->scratch[3] = NULL;
}

static void finish(struct channel *ch, struct yolk_io *io, int status)
{
    let_go(io);
    io->status = (enum yolk_status)status;
    io->scratch[0] = NULL;
    *ch->done_end = io;
    ch->done_end = (struct yolk_io **)&io->scratch[0];
}

/* After the copies: what they were made from or to must have been what the target means. */
static int look_at_id(const struct channel *ch, const struct shm_link *l)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (shm_link_segment(l) != ch->target->links->segment)
        return base_fail(YOLK_ERR_STALE, 0, "nvlink: the segment has another id now");
    /* Where no page tells it, the provider ends the connection. */
    if (l->remote && net_is_dead(l->fd))
        return base_fail(YOLK_ERR_PEER_DEAD, 0, "nvlink: the provider ended the connection");
    return YOLK_OK;
}

/* ---- pieces ---- */

/* Takes those like the first from what is pending, at most a piece; in *ios, their number. */
static size_t take_alike(struct channel *ch, struct yolk_io **ios)
{
    uintptr_t route = (uintptr_t)ch->pending->scratch[2];
    struct yolk_io **taken_end = ios, **place = &ch->pending;
    size_t count = 0;
    while (*place != NULL && count < GROUP_IOS) {
        struct yolk_io *io = *place;
        if ((uintptr_t)io->scratch[2] != route) {
            place = (struct yolk_io **)&io->scratch[0];
            continue;
        }
        *place = io->scratch[0];
        bool write = io->opcode == YOLK_WRITE;
        ch->copies[count++] = (struct device_copy){.to = write ? io->scratch[1] : io->local,
                                                   .from = write ? io->local : io->scratch[1],
                                                   .size = io->size};
        *taken_end = io;
        taken_end = (struct yolk_io **)&io->scratch[0];
    }
    *taken_end = NULL;
    while (*place != NULL)
        place = (struct yolk_io **)&(*place)->scratch[0];
    ch->pending_end = place;
    return count;
}

/* Puts the chain back in front. */
static void put_back(struct channel *ch, struct yolk_io *ios)
{
    struct yolk_io **last = &ios;
    if (ios == NULL)
        return;
    while (*last != NULL)
        last = (struct yolk_io **)&(*last)->scratch[0];
    *last = ch->pending;
    if (ch->pending == NULL)
        ch->pending_end = last;
    ch->pending = ios;
}

/* False: nothing more can be begun now. */
static bool launch_one(struct channel *ch)
{
    struct yolk_io *ios = NULL;
    struct device_transfer *transfer = NULL;
    struct route route = unpack(ch->pending);
    struct shm_link *l = &ch->links[route.writes ? 1 : 0];
    const struct device_copy_options options = {
        .direction = route.direction, .pageable = route.pageable, .pair = ch->target->pair};
    struct piece *piece = calloc(1, sizeof *piece);
    size_t count = take_alike(ch, &ios);
    int status = YOLK_OK;
    long taken = 0;
    if (piece == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: a piece of work");
    else
        taken = device_copy(ch->target->endpoint->imports.device, route.gpu, ch->copies, count,
                            &options, &transfer);
    if (taken == YOLK_ERR_AGAIN) {
        put_back(ch, ios);
        free(piece);
        return false;
    }
    if (taken < 0)
        status = (int)taken;
    if (status != YOLK_OK) {
        free(piece);
        for (struct yolk_io *io = ios, *next; io != NULL; io = next) {
            next = io->scratch[0];
            finish(ch, io, status);
        }
        ch->pending_count -= (uint32_t)count;
        return true;
    }
    struct yolk_io **end = &ios;
    for (long i = 0; i < taken; i++)
        end = (struct yolk_io **)&(*end)->scratch[0];
    put_back(ch, *end);
    *end = NULL;
    ch->pending_count -= (uint32_t)taken;
    *piece = (struct piece){.transfer = transfer, .ios = ios, .writes = route.writes};
    base_list_init(&piece->node);
    base_list_push_back(&ch->pieces, &piece->node);
    shm_link_hold(l); /* the run has it: it cannot be gone */
    return true;
}

static void launch(struct channel *ch)
{
    bool stopped = atomic_load(&ch->target->endpoint->settings.stopped);
    while (stopped && ch->pending != NULL) {
        struct yolk_io *io = ch->pending;
        ch->pending = io->scratch[0];
        finish(ch, io, base_fail(YOLK_ERR_CLOSED, 0, "nvlink: stopped"));
        ch->pending_count--;
    }
    if (ch->pending == NULL)
        ch->pending_end = &ch->pending;
    while (ch->pending != NULL && launch_one(ch))
        ;
}

static void end_piece(struct channel *ch, struct piece *piece, int status)
{
    struct shm_link *l = &ch->links[piece->writes ? 1 : 0];
    uint64_t bytes = 0;
    if (status == YOLK_OK)
        status = look_at_id(ch, l);
    for (struct yolk_io *io = piece->ios, *next; io != NULL; io = next) {
        next = io->scratch[0];
        bytes += io->size;
        finish(ch, io, status);
    }
    if (status == YOLK_OK)
        NVLINK_COUNT(bytes_by_gpu, bytes);
    (void)!device_transfer_free(piece->transfer);
    base_list_remove(&piece->node);
    free(piece);
    shm_link_leave(l);
}

static void poll_pieces(struct channel *ch)
{
    BASE_LIST_FOREACH_SAFE(node, &ch->pieces)
    {
        struct piece *piece = BASE_CONTAINER(node, struct piece, node);
        int status = device_transfer_poll(piece->transfer);
        if (status != YOLK_ERR_AGAIN)
            end_piece(ch, piece, status);
    }
}

/* ---- runs ---- */

static void leave(struct channel *ch, int which)
{
    if (ch->entered[which])
        shm_link_leave(&ch->links[which]);
    ch->entered[which] = false;
}

static void end_runs(struct channel *ch)
{
    launch(ch);
    if (ch->pending != NULL)
        return; /* they still need their mapping */
    leave(ch, 0);
    leave(ch, 1);
}

void nvlink_channel_flush(void *channel)
{
    struct channel *ch = channel;
    if (ch->walk != NULL)
        nvlink_walk_flush(ch->walk);
    else
        end_runs(ch);
}

static int enter(struct channel *ch, int which)
{
    struct shm_link *l = &ch->links[which];
    if (ch->entered[which] && atomic_load_explicit(&l->dead, memory_order_relaxed) == YOLK_OK &&
        shm_link_segment(l) == ch->target->links->segment)
        return YOLK_OK;
    if (ch->entered[which] && ch->pending == NULL)
        leave(ch, which);
    else if (ch->entered[which])
        return YOLK_ERR_AGAIN; /* what is pending is to end first */
    int status = shm_link_enter(l);
    ch->entered[which] = status == YOLK_OK;
    return status;
}

/* ---- the interface ---- */

static enum yolk_submit submit_done(struct yolk_io *io)
{
    io->status = YOLK_OK;
    io->transferred = io->size;
    return YOLK_SUBMIT_DONE;
}

static uint64_t offset_of(const struct channel *ch, const struct yolk_io *io)
{
    return io->offset - ch->target->start;
}

static enum yolk_submit copy_here(struct channel *ch, const struct shm_link *l,
                                  const struct nvlink_import *import, struct yolk_io *io)
{
    char *remote =
        (char *)(uintptr_t)import->vmm.address + ch->target->export.offset + offset_of(ch, io);
    if (io->opcode == YOLK_WRITE)
        copy_stream(remote, io->local, io->size);
    else
        copy_stream(io->local, remote, io->size);
    int status = look_at_id(ch, l);
    if (status != YOLK_OK)
        return submit_failed(io, status);
    NVLINK_COUNT(bytes_by_processor, io->size);
    return submit_done(io);
}

/* Which GPU copies, in which direction, and from where. */
static int find_route(struct channel *ch, struct nvlink_import *import, struct yolk_io *io)
{
    struct nvlink_buffer *buffer = io->key;
    bool write = io->opcode == YOLK_WRITE;
    bool here = buffer->gpu >= 0; /* memory of a GPU on this side */
    struct route route = {.writes = write, .gpu = here ? buffer->gpu : nvlink_import_gpu(import)};
    uint64_t address;
    int status = nvlink_import_address(import, route.gpu, &address);
    if (status != YOLK_OK)
        return status;
    if (here && !import->host)
        route.direction = DEVICE_WITHIN;
    else if (here)
        route.direction = write ? DEVICE_FROM_GPU : DEVICE_TO_GPU;
    else
        route.direction = write ? DEVICE_TO_GPU : DEVICE_FROM_GPU;
    io->scratch[1] = (void *)(uintptr_t)(address + ch->target->export.offset + offset_of(ch, io));
    io->scratch[3] = NULL;
    if (!here && !buffer->reached) {
        bool held =
            nvlink_buffer_hold(ch->target->endpoint, buffer, route.gpu, io->local, io->size);
        io->scratch[3] = held ? io->key : NULL;
        route.pageable = !held;
    }
    pack(io, &route);
    return YOLK_OK;
}

enum yolk_submit nvlink_channel_submit(void *channel, struct yolk_io *io)
{
    struct channel *ch = channel;
    int which = io->opcode == YOLK_WRITE ? 1 : 0;
    if (ch->walk != NULL)
        return nvlink_walk_submit(ch->walk, io);
    const struct shm_link *l = &ch->links[which];
    if (io->size > NVLINK_SLICE_MAX)
        return submit_failed(io, base_fail(YOLK_ERR_TOO_LARGE, 0, "nvlink: an io of over 16 MiB"));
    if (atomic_load_explicit(&ch->target->endpoint->settings.stopped, memory_order_relaxed))
        return submit_failed(io, base_fail(YOLK_ERR_CLOSED, 0, "nvlink: stopped"));
    if (ch->queued == NVLINK_DEPTH_MAX)
        return YOLK_SUBMIT_AGAIN;
    int status = enter(ch, which);
    if (status == YOLK_ERR_AGAIN)
        return YOLK_SUBMIT_AGAIN;
    if (status == YOLK_OK &&
        (offset_of(ch, io) > l->size || io->size > l->size - offset_of(ch, io)))
        status = base_fail(YOLK_ERR_INVALID, 0, "nvlink: outside the segment");
    if (status != YOLK_OK)
        return submit_failed(io, status);
    if (io->size == 0)
        return submit_done(io);
    struct nvlink_import *import = l->mapping;
    if (import->vmm.host && ((const struct nvlink_buffer *)io->key)->gpu < 0)
        return copy_here(ch, l, import, io);
    status = find_route(ch, import, io);
    if (status != YOLK_OK)
        return submit_failed(io, status);
    io->scratch[0] = NULL;
    *ch->pending_end = io;
    ch->pending_end = (struct yolk_io **)&io->scratch[0];
    ch->queued++;
    if (++ch->pending_count >= GATHER_IOS)
        launch(ch);
    return YOLK_SUBMIT_QUEUED;
}

uint32_t nvlink_channel_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    struct channel *ch = channel;
    uint32_t n = 0;
    if (ch->walk != NULL)
        return nvlink_walk_poll(ch->walk, completions, max);
    end_runs(ch);
    poll_pieces(ch);
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

enum yolk_status nvlink_channel_close(void *channel)
{
    struct channel *ch = channel;
    if (ch->walk == NULL)
        end_runs(ch);
    if (ch->walk == NULL ? ch->queued > 0 : nvlink_walk_close(ch->walk) != YOLK_OK)
        return base_fail(YOLK_ERR_BUSY, 0, "nvlink: %u ios were not told of", ch->queued);
    free(ch);
    return YOLK_OK;
}
