/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "transport"
#include "transport/failed.h"
#include "transport/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/memory.h"

enum {
    GROUP_IOS = 512,
    GROUP_COPIES = 1024,    /* an io in pieces may make more */
    GROUP_BYTES = 16 << 20, /* then it goes, so that the GPU has something to do */
    CHUNKS_MAX = 8,         /* of registered memory that one group holds */
    WAIT_MS = 60000,
};

struct gpu_group {
    struct base_list node;
    struct device_transfer *transfer; /* NULL: not under way */
    enum device_direction direction;
    uint32_t gpu; /* 1 + its number */
    bool pageable;
    bool writes; /* the ios' opcode */
    struct device_range *range;
    uint64_t chunks[CHUNKS_MAX]; /* held, of `range` */
    unsigned chunk_count;
    uint64_t held_start, held_end; /* what the last hold is good for */
    struct yolk_io *first, **end;
    uint32_t ios;
    uint64_t bytes;
    uint32_t copies, begun; /* in `copy`, and of those given to the GPU */
    struct device_copy *copy;
    uint32_t room; /* in it */
};

/* -- the endpoint's part -- */

int gpu_side_init(struct gpu_side *side, const struct yolk_transport_options *options)
{
    memset(side, 0, sizeof(*side));
    mutex_init(&side->lock);
    side->cuda = options->cuda_library != NULL ? strdup(options->cuda_library) : NULL;
    side->cufile = options->cufile_library != NULL ? strdup(options->cufile_library) : NULL;
    if ((options->cuda_library != NULL && side->cuda == NULL) ||
        (options->cufile_library != NULL && side->cufile == NULL)) {
        gpu_side_fini(side);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a path");
    }
    return YOLK_OK;
}

void gpu_side_fini(struct gpu_side *side)
{
    device_unshare(atomic_load(&side->device));
    free(side->cuda);
    free(side->cufile);
    mutex_destroy(&side->lock);
}

int gpu_side_open(struct gpu_side *side, struct device **out)
{
    int status = YOLK_OK;
    *out = atomic_load_explicit(&side->device, memory_order_acquire);
    if (*out != NULL)
        return YOLK_OK;
    mutex_lock(&side->lock);
    *out = atomic_load(&side->device);
    if (*out == NULL) {
        status = device_share(side->cuda, side->cufile, out);
        if (status == YOLK_OK)
            atomic_store_explicit(&side->device, *out, memory_order_release);
    }
    mutex_unlock(&side->lock);
    return status;
}

struct device *gpu_side_device(struct gpu_side *side)
{
    struct device *device;
    return gpu_side_open(side, &device) == YOLK_OK ? device : NULL;
}

int gpu_side_look(struct gpu_side *side, const void *pointer, uint32_t *gpu)
{
    struct device_memory memory;
    struct device *device = atomic_load_explicit(&side->device, memory_order_acquire);
    *gpu = 0;
    if (device == NULL && side->cuda == NULL && !device_in_use())
        return YOLK_OK;
    device = gpu_side_device(side);
    if (device == NULL) { /* no driver: no memory of a GPU */
        base_error_clear();
        return YOLK_OK;
    }
    int status = device_query(device, pointer, &memory);
    if (status == YOLK_OK && memory.kind == DEVICE_GPU)
        *gpu = (uint32_t)memory.ordinal + 1;
    else if (status == YOLK_OK && memory.kind == DEVICE_MANAGED)
        *gpu = 1;
    return status;
}

int gpu_side_copy(struct gpu_side *side, uint32_t gpu, void *to, const void *from, uint64_t size,
                  bool to_gpu)
{
    struct device *device = gpu_side_device(side);
    const struct device_copy copy = {to, from, size};
    const struct device_copy_options options = {
        .direction = to_gpu ? DEVICE_TO_GPU : DEVICE_FROM_GPU, .pageable = true};
    struct device_transfer *transfer;
    uint64_t until = clock_after_ms(clock_real_now_ns(), WAIT_MS);
    long taken;
    if (device == NULL)
        return YOLK_ERR_UNSUPPORTED;
    do {
        taken = device_copy(device, (int)gpu - 1, &copy, 1, &options, &transfer);
        if (taken == YOLK_ERR_AGAIN)
            thread_relax();
    } while (taken == YOLK_ERR_AGAIN && clock_real_now_ns() < until);
    if (taken < 0)
        return (int)taken;
    int status = device_transfer_wait(transfer, until);
    if (status == YOLK_ERR_TIMEOUT || status == YOLK_ERR_CLOSED || status == YOLK_ERR_FORKED)
        return base_fail(YOLK_ERR_STUCK, 0, "GPU %u did not copy %llu bytes", gpu - 1,
                         (unsigned long long)size);
    (void)!device_transfer_free(transfer);
    return status;
}

/* -- groups -- */

void gpu_lane_init(struct gpu_lane *lane, struct gpu_side *side)
{
    *lane = (struct gpu_lane){.side = side};
    base_list_init(&lane->groups);
    base_list_init(&lane->unused);
    lane->done_end = &lane->done;
}

static void free_group(struct gpu_group *group)
{
    if (group != NULL)
        free(group->copy);
    free(group);
}

void gpu_lane_fini(struct gpu_lane *lane)
{
    struct base_list *node;
    free_group(lane->open);
    while ((node = base_list_pop_front(&lane->unused)) != NULL)
        free_group(BASE_CONTAINER(node, struct gpu_group, node));
}

static struct gpu_group *take_group(struct gpu_lane *lane)
{
    struct base_list *node = base_list_pop_front(&lane->unused);
    struct gpu_group *group = node != NULL ? BASE_CONTAINER(node, struct gpu_group, node)
                                           : base_calloc(1, sizeof(*group));
    if (group == NULL)
        return NULL;
    memset(group, 0, offsetof(struct gpu_group, copy));
    base_list_init(&group->node);
    group->end = &group->first;
    return group;
}

/* All of the group is over, one way or another. */
static void end_group(struct gpu_lane *lane, struct gpu_group *group, int status)
{
    for (struct yolk_io *io = group->first; io != NULL; io = io->scratch[0]) {
        io->status = (enum yolk_status)status;
        io->transferred = status == YOLK_OK ? io->size : 0;
    }
    if (group->first != NULL) {
        *lane->done_end = group->first;
        lane->done_end = group->end;
    }
    for (unsigned i = 0; i < group->chunk_count && status != YOLK_ERR_STUCK; i++)
        device_range_release(group->range, group->chunks[i], 1);
    base_list_remove(&group->node);
    base_list_push_front(&lane->unused, &group->node);
}

/* Gives the GPU what it has room for. False: the group is over. */
static bool begin_group(struct gpu_lane *lane, struct gpu_group *group)
{
    struct device *device = gpu_side_device(lane->side);
    const struct device_copy_options options = {.direction = group->direction,
                                                .pageable = group->pageable};
    long taken = device == NULL
                     ? YOLK_ERR_UNSUPPORTED
                     : device_copy(device, (int)group->gpu - 1, group->copy + group->begun,
                                   group->copies - group->begun, &options, &group->transfer);
    if (taken == YOLK_ERR_AGAIN) {
        base_error_clear();
        return true; /* at the next look */
    }
    if (taken < 0) {
        end_group(lane, group, (int)taken);
        return false;
    }
    group->begun += (uint32_t)taken;
    return true;
}

/* False: it is over. */
static bool look_at_group(struct gpu_lane *lane, struct gpu_group *group)
{
    while (group->transfer != NULL || group->begun < group->copies) {
        if (group->transfer == NULL) {
            if (!begin_group(lane, group))
                return false;
            if (group->transfer == NULL)
                return true;
        }
        int status = device_transfer_poll(group->transfer);
        if (status == YOLK_ERR_AGAIN)
            return true;
        if (status == YOLK_ERR_CLOSED || status == YOLK_ERR_FORKED)
            status = YOLK_ERR_STUCK; /* nobody can be asked any more */
        else
            (void)!device_transfer_free(group->transfer);
        group->transfer = NULL;
        if (status != YOLK_OK) {
            end_group(lane, group, status);
            return false;
        }
    }
    end_group(lane, group, YOLK_OK);
    return false;
}

void gpu_lane_flush(struct gpu_lane *lane)
{
    struct gpu_group *group = lane->open;
    lane->open = NULL;
    if (group == NULL)
        return;
    base_list_push_back(&lane->groups, &group->node);
    if (group->copies == 0) /* its first found no room in it */
        end_group(lane, group, YOLK_OK);
    else
        (void)begin_group(lane, group);
}

void gpu_lane_poll(struct gpu_lane *lane)
{
    gpu_lane_flush(lane);
    bool busy[DEVICE_DIRECTIONS] = {false};
    struct base_list *next;
    for (struct base_list *node = lane->groups.next; node != &lane->groups; node = next) {
        struct gpu_group *group = BASE_CONTAINER(node, struct gpu_group, node);
        next = node->next;
        /* Of one direction they end in order, and a question costs as much as some copies. */
        if (!busy[group->direction])
            busy[group->direction] = look_at_group(lane, group);
    }
}

void gpu_lane_wait(struct gpu_lane *lane)
{
    uint64_t until = clock_after_ms(clock_real_now_ns(), WAIT_MS);
    for (;;) {
        gpu_lane_poll(lane);
        struct base_list *node = base_list_first(&lane->groups);
        if (node == NULL)
            return;
        struct gpu_group *group = BASE_CONTAINER(node, struct gpu_group, node);
        if (clock_real_now_ns() >= until) {
            group->transfer = NULL; /* it is never asked again, nor what it holds released */
            end_group(lane, group,
                      base_fail(YOLK_ERR_STUCK, 0, "GPU %u did not copy %u blocks in %d s",
                                group->gpu - 1, group->copies, WAIT_MS / 1000));
        } else if (group->transfer != NULL) {
            (void)!device_transfer_wait(group->transfer, until);
        } else {
            thread_relax();
        }
    }
}

struct yolk_io *gpu_lane_take(struct gpu_lane *lane)
{
    struct yolk_io *io = lane->done;
    if (io == NULL)
        return NULL;
    lane->done = io->scratch[0];
    if (lane->done == NULL)
        lane->done_end = &lane->done;
    lane->queued--;
    return io;
}

/* -- adding -- */

/* What kind of transfer an io is part of. */
struct kind {
    enum device_direction direction;
    uint32_t gpu;
    bool pageable;
};

static enum device_direction direction_of(const struct yolk_io *io, const struct gpu_there *there)
{
    if (io->gpu != 0 && there->gpu != 0)
        return DEVICE_WITHIN;
    bool to_there = io->opcode == YOLK_WRITE;
    return to_there == (there->gpu != 0) ? DEVICE_TO_GPU : DEVICE_FROM_GPU;
}

/* Holds the chunk of registered memory that has this byte of the range. LIMIT: the group holds too
 * many others. */
static int hold(struct gpu_group *group, const struct gpu_there *there, uint64_t offset)
{
    if (offset >= group->held_start && offset < group->held_end)
        return YOLK_OK;
    uint64_t skipped = ((uintptr_t)there->memory - there->offset) % memory_page_size();
    uint64_t start = (skipped + offset) / DEVICE_CHUNK * DEVICE_CHUNK;
    uint64_t end = start + DEVICE_CHUNK - skipped;
    start = start < skipped ? 0 : start - skipped;
    unsigned i = 0;
    while (i < group->chunk_count && group->chunks[i] != start)
        i++;
    if (i == CHUNKS_MAX)
        return YOLK_ERR_LIMIT;
    if (i == group->chunk_count) {
        int status = device_range_hold(there->range, (int)group->gpu - 1, start, 1);
        if (status != YOLK_OK)
            return status;
        group->chunks[group->chunk_count++] = start;
    }
    group->held_start = start;
    group->held_end = end;
    return YOLK_OK;
}

static void tell_pageable(struct gpu_lane *lane)
{
    if (!atomic_exchange(&lane->side->told, true))
        log_warn("memory is not registered with the GPU's driver, which copies it by pieces "
                 "(slower): %s",
                 yolk_last_error());
    base_error_clear();
}

static bool put_copy(struct gpu_group *group, uint8_t *here, uint8_t *there, uint64_t size)
{
    if (group->copies == group->room) {
        uint32_t room = group->room == 0 ? GROUP_IOS : 2 * group->room;
        struct device_copy *copy = base_realloc(group->copy, room * sizeof(*copy));
        if (copy == NULL)
            return false;
        group->copy = copy;
        group->room = room;
    }
    group->copy[group->copies++] =
        (struct device_copy){group->writes ? there : here, group->writes ? here : there, size};
    return true;
}

/* An open group of this kind; NULL: no memory. */
static struct gpu_group *open_group(struct gpu_lane *lane, const struct yolk_io *io,
                                    const struct gpu_there *there, const struct kind *kind)
{
    struct gpu_group *group = lane->open;
    if (group != NULL &&
        (group->direction != kind->direction || group->gpu != kind->gpu ||
         group->pageable != kind->pageable || group->writes != (io->opcode == YOLK_WRITE) ||
         group->range != there->range || group->ios == GROUP_IOS || group->copies >= GROUP_COPIES ||
         group->bytes >= GROUP_BYTES))
        gpu_lane_flush(lane);
    if (lane->open != NULL)
        return lane->open;
    group = take_group(lane);
    if (group == NULL)
        return NULL;
    group->direction = kind->direction;
    group->gpu = kind->gpu;
    group->pageable = kind->pageable;
    group->writes = io->opcode == YOLK_WRITE;
    group->range = there->range;
    lane->open = group;
    return group;
}

/* A range of the side that is not the io's: cut where pieces of registered memory meet, which the
 * driver takes for different ones. */
static int fill_range(struct gpu_group *group, const struct gpu_there *there, uint8_t *here,
                      uint64_t at, uint64_t size)
{
    uint64_t end = at + size;
    bool cut = !group->pageable && there->gpu == 0;
    while (at < end) {
        uint64_t part = end - at;
        if (cut) {
            int status = hold(group, there, there->offset + at);
            if (status != YOLK_OK)
                return status;
            if (part > group->held_end - (there->offset + at))
                part = group->held_end - (there->offset + at);
        }
        if (!put_copy(group, here, (uint8_t *)there->memory + at, part))
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for copies");
        here += part;
        at += part;
    }
    return YOLK_OK;
}

static int fill_pieces(struct gpu_group *group, const struct yolk_io *io,
                       const struct gpu_there *there)
{
    uint64_t skip = io->skip, at = 0;
    int status = YOLK_OK;
    for (uint32_t i = 0; i < io->piece_count && at < io->size && status == YOLK_OK; i++) {
        const struct yolk_piece *piece = &io->pieces[i];
        if (skip >= piece->size) {
            skip -= piece->size;
            continue;
        }
        uint64_t size = piece->size - skip;
        if (size > io->size - at)
            size = io->size - at;
        status = fill_range(group, there, (uint8_t *)piece->pointer + skip, at, size);
        at += size;
        skip = 0;
    }
    return status;
}

static int fill(struct gpu_group *group, const struct yolk_io *io, const struct gpu_there *there)
{
    uint32_t copies = group->copies;
    int status = io->piece_count > 0 ? fill_pieces(group, io, there)
                                     : fill_range(group, there, io->local, 0, io->size);
    if (status != YOLK_OK)
        group->copies = copies;
    return status;
}

/* Into an open group of the kind; *group NULL: there is no memory for one. */
static int put(struct gpu_lane *lane, const struct yolk_io *io, const struct gpu_there *there,
               const struct kind *kind, struct gpu_group **group)
{
    *group = open_group(lane, io, there, kind);
    return *group != NULL ? fill(*group, io, there)
                          : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for copies");
}

enum yolk_submit gpu_lane_add(struct gpu_lane *lane, struct yolk_io *io,
                              const struct gpu_there *there)
{
    struct kind kind = {.direction = direction_of(io, there),
                        .gpu = io->gpu != 0 ? io->gpu : there->gpu,
                        /* The kernel runs on one GPU and reaches no other's memory. */
                        .pageable = (there->gpu == 0 && there->range == NULL) || io->gpu == 0 ||
                                    (there->gpu != 0 && there->gpu != io->gpu)};
    struct gpu_group *group;
    int status = put(lane, io, there, &kind, &group);
    if (group != NULL && status == YOLK_ERR_LIMIT && group->copies > 0) {
        gpu_lane_flush(lane); /* the next group holds others */
        status = put(lane, io, there, &kind, &group);
    }
    if (group != NULL &&
        (status == YOLK_ERR_LIMIT || status == YOLK_ERR_EXISTS || status == YOLK_ERR_NO_MEMORY ||
         status == YOLK_ERR_UNSUPPORTED || status == YOLK_ERR_INVALID)) {
        tell_pageable(lane);
        kind.pageable = true;
        status = put(lane, io, there, &kind, &group);
    }
    if (status != YOLK_OK)
        return submit_failed(io, status);
    if (kind.pageable && (io->gpu == 0 || there->gpu == 0))
        io->bounced = io->size;
    io->scratch[0] = NULL;
    *group->end = io;
    group->end = (struct yolk_io **)&io->scratch[0];
    group->ios++;
    group->bytes += io->size;
    lane->queued++;
    return YOLK_SUBMIT_QUEUED;
}
