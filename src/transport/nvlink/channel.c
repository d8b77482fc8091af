/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ios of the consumer side. They are gathered until the flush, or until there are many, and
 * then handed to the device in one piece for each GPU and direction: so small ones go by one
 * kernel. Of a piece that the device takes in parts one is under way at a time. Each piece counts
 * as a user of the link's mapping.
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
#include "transport/places.h"

enum {
    PIECE_COPIES = NVLINK_DEPTH_MAX,
    GATHER_COPIES = 256, /* then they go, so that the GPU has something to do */
};
_Static_assert((int)PIECE_COPIES >= (int)YOLK_PLACES_MAX, "an io fits a piece");

/* What all ios of a piece have in common. */
struct route {
    bool writes; /* which of the links */
    bool pageable;
    int gpu;
    enum device_direction direction;
};

struct piece {
    struct base_list node;
    struct route route;
    struct device_transfer *transfer; /* NULL: the rest waits for the device */
    struct yolk_io *ios, **end;       /* chained by scratch[0] */
    uint32_t count, begun;            /* copies, and of those given to the device */
    struct device_copy copies[PIECE_COPIES];
};

struct channel {
    struct nvlink_walk *walk; /* of all addresses of a process: all else is there; else NULL */
    struct nvlink_target *target;
    struct shm_link *links;
    bool entered[2]; /* a run of submits keeps the mapping */
    struct yolk_io *pending, **pending_end;
    uint32_t pending_copies;
    struct base_list pieces; /* under way, oldest first */
    struct base_list unused;
    struct yolk_io *done, **done_end;
    uint32_t queued; /* all of these */
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
    struct channel *ch = calloc(1, sizeof *ch);
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
    base_list_init(&ch->unused);
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

static uint32_t copies_of(const struct yolk_io *io)
{
    return io->place_count == 0 ? 1 : io->place_count;
}

static void add_copies(struct piece *piece, const struct yolk_io *io)
{
    bool write = io->opcode == YOLK_WRITE;
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place part;
    while (place_walk_on(&walk, io, &part)) {
        char *there = (char *)io->scratch[1] + (part.offset - io->offset);
        piece->copies[piece->count++] = (struct device_copy){.to = write ? there : part.local,
                                                             .from = write ? part.local : there,
                                                             .size = part.size};
    }
}

/* Takes those like the first from what is pending, as many as fit. */
static void take_alike(struct channel *ch, struct piece *piece)
{
    uintptr_t route = (uintptr_t)ch->pending->scratch[2];
    struct yolk_io **place = &ch->pending;
    while (*place != NULL && piece->count < PIECE_COPIES) {
        struct yolk_io *io = *place;
        if ((uintptr_t)io->scratch[2] != route || piece->count + copies_of(io) > PIECE_COPIES) {
            place = (struct yolk_io **)&io->scratch[0];
            continue;
        }
        *place = io->scratch[0];
        add_copies(piece, io);
        ch->pending_copies -= copies_of(io);
        *piece->end = io;
        piece->end = (struct yolk_io **)&io->scratch[0];
    }
    *piece->end = NULL;
    while (*place != NULL)
        place = (struct yolk_io **)&(*place)->scratch[0];
    ch->pending_end = place;
}

/* Puts the chain back in front. */
static void put_back(struct channel *ch, const struct piece *piece)
{
    for (struct yolk_io *io = piece->ios; io != NULL; io = io->scratch[0])
        ch->pending_copies += copies_of(io);
    *piece->end = ch->pending;
    if (ch->pending == NULL)
        ch->pending_end = piece->end;
    ch->pending = piece->ios;
}

static struct piece *make_piece(struct channel *ch)
{
    struct base_list *node = base_list_pop_front(&ch->unused);
    struct piece *piece =
        node != NULL ? BASE_CONTAINER(node, struct piece, node) : malloc(sizeof *piece);
    if (piece == NULL)
        return NULL;
    memset(piece, 0, offsetof(struct piece, copies));
    base_list_init(&piece->node);
    piece->end = &piece->ios;
    return piece;
}

/* Gives the device what it takes of the rest. */
static int begin(struct channel *ch, struct piece *piece)
{
    const struct device_copy_options options = {.direction = piece->route.direction,
                                                .pageable = piece->route.pageable,
                                                .pair = ch->target->pair};
    long taken = device_copy(ch->target->endpoint->imports.device, piece->route.gpu,
                             piece->copies + piece->begun, piece->count - piece->begun, &options,
                             &piece->transfer);
    if (taken < 0)
        return (int)taken;
    piece->begun += (uint32_t)taken;
    return YOLK_OK;
}

static void finish_all(struct channel *ch, struct yolk_io *ios, int status)
{
    for (struct yolk_io *io = ios, *next; io != NULL; io = next) {
        next = io->scratch[0];
        finish(ch, io, status);
    }
}

/* False: nothing more can be begun now. */
static bool launch_one(struct channel *ch)
{
    struct piece *piece = make_piece(ch);
    if (piece == NULL) {
        finish_all(ch, ch->pending, base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: a piece of work"));
        ch->pending = NULL;
        ch->pending_end = &ch->pending;
        ch->pending_copies = 0;
        return false;
    }
    piece->route = unpack(ch->pending);
    take_alike(ch, piece);
    int status = begin(ch, piece);
    if (status == YOLK_OK) {
        base_list_push_back(&ch->pieces, &piece->node);
        shm_link_hold(&ch->links[piece->route.writes ? 1 : 0]); /* the run has it: it is there */
        return true;
    }
    if (status == YOLK_ERR_AGAIN)
        put_back(ch, piece);
    else
        finish_all(ch, piece->ios, status);
    base_list_push_front(&ch->unused, &piece->node);
    return status != YOLK_ERR_AGAIN;
}

static void launch(struct channel *ch)
{
    if (atomic_load(&ch->target->endpoint->settings.stopped) && ch->pending != NULL) {
        finish_all(ch, ch->pending, base_fail(YOLK_ERR_CLOSED, 0, "nvlink: stopped"));
        ch->pending = NULL;
        ch->pending_copies = 0;
    }
    if (ch->pending == NULL)
        ch->pending_end = &ch->pending;
    while (ch->pending != NULL && launch_one(ch))
        ;
}

static void end_piece(struct channel *ch, struct piece *piece, int status)
{
    struct shm_link *l = &ch->links[piece->route.writes ? 1 : 0];
    uint64_t bytes = 0;
    if (status == YOLK_OK)
        status = look_at_id(ch, l);
    for (const struct yolk_io *io = piece->ios; io != NULL; io = io->scratch[0])
        bytes += io->size;
    finish_all(ch, piece->ios, status);
    if (status == YOLK_OK)
        NVLINK_COUNT(bytes_by_gpu, bytes);
    base_list_remove(&piece->node);
    base_list_push_front(&ch->unused, &piece->node);
    shm_link_leave(l);
}

/* AGAIN: it is not over. */
static int look_at(struct channel *ch, struct piece *piece)
{
    for (;;) {
        int status = piece->transfer == NULL ? YOLK_OK : device_transfer_poll(piece->transfer);
        if (status == YOLK_ERR_AGAIN)
            return status;
        if (piece->transfer != NULL)
            (void)!device_transfer_free(piece->transfer);
        piece->transfer = NULL;
        if (status != YOLK_OK || piece->begun == piece->count)
            return status;
        status = begin(ch, piece);
        if (status != YOLK_OK)
            return status;
    }
}

static void poll_pieces(struct channel *ch)
{
    BASE_LIST_FOREACH_SAFE(node, &ch->pieces)
    {
        struct piece *piece = BASE_CONTAINER(node, struct piece, node);
        int status = look_at(ch, piece);
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

static bool is_inside(const struct channel *ch, const struct shm_link *l, const struct yolk_io *io)
{
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place part = {.offset = io->offset};
    do {
        uint64_t offset = part.offset - ch->target->start;
        if (offset > l->size || part.size > l->size - offset)
            return false;
    } while (place_walk_on(&walk, io, &part));
    return true;
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
    if (status == YOLK_OK && !is_inside(ch, l, io))
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
    ch->pending_copies += copies_of(io);
    if (ch->pending_copies >= GATHER_COPIES)
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
    struct base_list *node;
    while ((node = base_list_pop_front(&ch->unused)) != NULL)
        free(BASE_CONTAINER(node, struct piece, node));
    free(ch);
    return YOLK_OK;
}
