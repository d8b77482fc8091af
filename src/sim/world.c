/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/world.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

const char *const sim_mark_text[SIM_MARK_COUNT] = {
#define X(name, text) [SIM_MARK_##name] = text,
    SIM_MARKS(X)
#undef X
};

void sim_world_init(struct sim_world *world, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->seed = seed;
    world->now_ns = CLOCK_NS_PER_S; /* zero is never a time */
    random_sim_init(&world->dice, seed);
}

void sim_world_free(struct sim_world *world)
{
    for (size_t i = 0; i < world->count; i++)
        free(world->heap[i].body);
    free(world->heap);
}

static int before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
    struct sim_event third = *a;
    *a = *b;
    *b = third;
}

void sim_world_push(struct sim_world *world, struct sim_event event)
{
    assert(event.at_ns >= world->now_ns);
    event.order = world->order++;
    if (world->count == world->room) {
        world->room = world->room != 0 ? world->room * 2 : 256;
        world->heap = realloc(world->heap, world->room * sizeof *world->heap);
        assert(world->heap != NULL);
    }
    size_t at = world->count++;
    world->heap[at] = event;
    while (at > 0 && before(&world->heap[at], &world->heap[(at - 1) / 2])) {
        swap(&world->heap[at], &world->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

int sim_world_pop(struct sim_world *world, struct sim_event *event)
{
    if (world->count == 0)
        return 0;
    *event = world->heap[0];
    world->heap[0] = world->heap[--world->count];
    for (size_t at = 0;;) {
        size_t child = at * 2 + 1;
        if (child >= world->count)
            break;
        if (child + 1 < world->count && before(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!before(&world->heap[child], &world->heap[at]))
            break;
        swap(&world->heap[at], &world->heap[child]);
        at = child;
    }
    world->now_ns = event->at_ns;
    return 1;
}

void sim_world_mix(struct sim_world *world, const void *bytes, size_t size)
{
    world->hash = base_hash64_seed(bytes, size, world->hash);
}

void sim_world_mark(struct sim_world *world, enum sim_mark mark)
{
    world->marks[mark]++;
}

void sim_world_fail(struct sim_world *world, const char *format, ...)
{
    if (world->failure[0] != 0)
        return;
    va_list arguments;
    int used = snprintf(world->failure, sizeof world->failure,
                        "at %llu us: ", (unsigned long long)(world->now_ns / CLOCK_NS_PER_US));
    va_start(arguments, format);
    vsnprintf(world->failure + used, sizeof world->failure - (size_t)used, format, arguments);
    va_end(arguments);
}

uint64_t sim_world_below(struct sim_world *world, uint64_t bound)
{
    struct random dice = random_sim_random(&world->dice);
    return random_below(&dice, bound);
}

int sim_world_chance(struct sim_world *world, uint64_t permille)
{
    return sim_world_below(world, 1000) < permille;
}
