/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/way.h"

#include <stdio.h>

#include "base/error.h"
#include "engine/stage.h"

/* Small ones are another matter than large ones: they are packed. */
enum { LARGE = 1 << 20, BLOCK = 4096 };

static struct faster *faster_of(const struct engine_task *task)
{
    return &task->segment->faster[task->opcode == YOLK_WRITE][task->size >= LARGE];
}

static bool is_open(const struct yolk_engine *engine, const struct engine_task *task)
{
    struct engine_wish wish = task->wish;
    return task->segment->file && task->registration != NULL &&
           task->registration->memory == POLICY_CUDA && task->local != NULL && !wish.direct &&
           !wish.first_only && wish.hint == ENGINE_NO_TRANSPORT &&
           (wish.policy == ENGINE_NO_POLICY || !engine->policies.policies[wish.policy].orders);
}

/* The transport of the other way; false: there are not two. */
static bool find_other(struct yolk_engine *engine, const struct engine_task *task, uint64_t now_ns,
                       uint8_t own, uint8_t *other)
{
    const void *block = task->local - (uintptr_t)task->local % BLOCK;
    if (!is_open(engine, task) || !engine_route_copies(engine, task->segment, own, block, BLOCK))
        return false;
    const struct route_query query = {.segment = task->segment,
                                      .opcode = task->opcode,
                                      .accepted = stage_accepted(engine, task->registration),
                                      .wish = task->wish,
                                      .memory = POLICY_CPU,
                                      .local = task->local,
                                      .offset = task->offset,
                                      .size = task->size};
    bool found =
        query.accepted != 0 && engine_route_pick(engine, &query, now_ns, NULL, other) == YOLK_OK;
    base_error_clear();
    return found;
}

void way_choose(struct yolk_engine *engine, struct engine_task *task, uint64_t now_ns,
                uint8_t *transport)
{
    uint8_t other;
    if (!find_other(engine, task, now_ns, *transport, &other))
        return;
    if (!task->two_ways) {
        pthread_mutex_lock(&engine->faster_lock);
        task->way = faster_begin(faster_of(task), now_ns);
        pthread_mutex_unlock(&engine->faster_lock);
        task->two_ways = true;
    }
    if (task->way.way == WAY_STAGED)
        *transport = other;
}

void way_end(struct yolk_engine *engine, struct batch *batch, uint32_t head)
{
    struct engine_task *task = &batch->tasks[head];
    uint64_t moved = 0;
    bool own = (task->registration->accepted & UINT32_C(1) << task->last_transport) != 0;
    bool as_chosen = own == (task->way.way == WAY_OWN), failed = !as_chosen;
    for (uint32_t i = head; i < head + batch->state.tasks[head].members; i++) {
        enum yolk_status failure = batch->state.tasks[i].failure;
        failed = failed || failure == YOLK_ERR_IO || failover_blames_route(failure);
        moved += failure == YOLK_OK ? batch->state.tasks[i].size : 0;
    }
    pthread_mutex_lock(&engine->faster_lock);
    faster_end(faster_of(task), task->way, as_chosen ? moved : 0, failed, engine_now(engine));
    pthread_mutex_unlock(&engine->faster_lock);
    task->two_ways = false;
}

static void tell_speed(struct base_buf *out, const char *name, uint64_t speed)
{
    if (speed == 0)
        (void)!base_buf_printf(out, "%s not measured yet", name);
    else
        (void)!base_buf_printf(out, "%s %.3f GB/s", name, (double)speed / 1e9);
}

void way_tell(struct yolk_engine *engine, const struct engine_task *task, uint8_t transport,
              struct base_buf *out)
{
    uint8_t other;
    if (!find_other(engine, task, engine_now(engine), transport, &other))
        return;
    pthread_mutex_lock(&engine->faster_lock);
    const struct faster f = *faster_of(task);
    pthread_mutex_unlock(&engine->faster_lock);
    const char *names[] = {engine->transports[transport].ops.name,
                           engine->transports[other].ops.name};
    (void)!base_buf_printf(out, "both copy through the host's memory; the faster one is taken: ");
    tell_speed(out, names[WAY_OWN], f.ways[WAY_OWN].speed);
    (void)!base_buf_append(out, ", ", 2);
    tell_speed(out, names[WAY_STAGED], f.ways[WAY_STAGED].speed);
    (void)!base_buf_printf(out, ": %s%s\n", names[f.now],
                           f.trying ? ", the other one is being tried" : "");
}

size_t way_looks(struct yolk_engine *engine, struct way_look *out, size_t room)
{
    struct segment_table *table = &engine->segments;
    size_t count = 0;
    pthread_rwlock_rdlock(&table->lock);
    pthread_mutex_lock(&engine->faster_lock);
    for (uint32_t s = 0; s < table->slots.count; s++) {
        const struct segment *segment = table->slots.slots[s].thing;
        for (unsigned i = 0; segment != NULL && i < 4 && count < room; i++) {
            const struct faster *faster = &segment->faster[i / 2][i % 2];
            if (faster->since_ns == 0)
                continue;
            out[count] = (struct way_look){.write = i / 2, .large = i % 2, .faster = *faster};
            snprintf(out[count++].device, sizeof(out->device), "%s",
                     segment->device != NULL ? segment->device : "");
        }
    }
    pthread_mutex_unlock(&engine->faster_lock);
    pthread_rwlock_unlock(&table->lock);
    return count;
}
