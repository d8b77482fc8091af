/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that were freed before their memory was quiet. Polls of others look at one of them each
 * time, and one thread looks at all of them, ever more rarely while nothing changes, and at the
 * requests that wait in the gate. It sleeps while there are neither. */
#include "base/error.h"
#include "engine/internal.h"
#include "platform/clock.h"

enum { REAP_PAUSE_MIN_MS = 1, REAP_PAUSE_MAX_MS = 64, REAP_IDLE_TICKS = 20 };

/* The list's lock is held, and is again afterwards. A batch taken off the list is this thread's
 * alone; its lock is taken without the list's. True: it became quiet, and is gone. */
static bool look_at_first(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    struct base_list *node = base_list_pop_front(&quarantine->batches);
    if (node == NULL)
        return false;
    mutex_unlock(&quarantine->lock);
    struct batch *batch = BASE_CONTAINER(node, struct batch, quarantine);
    pthread_mutex_lock(&batch->lock);
    (void)batch_progress(engine, batch);
    bool quiet = batch_reclaim(engine, batch);
    batch->quarantined = !quiet;
    pthread_mutex_unlock(&batch->lock);
    if (quiet)
        batch_give_slot_back(engine, batch);
    mutex_lock(&quarantine->lock);
    if (quiet) {
        quarantine->reaped++;
        atomic_fetch_sub(&quarantine->count, 1);
    } else {
        base_list_push_back(&quarantine->batches, node);
    }
    return quiet;
}

uint64_t quarantine_reap(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    mutex_lock(&quarantine->lock);
    for (uint64_t rounds = quarantine->count; rounds > 0; rounds--)
        (void)look_at_first(engine);
    uint64_t left = quarantine->count;
    mutex_unlock(&quarantine->lock);
    return left;
}

void quarantine_step(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    if (atomic_load_explicit(&quarantine->count, memory_order_relaxed) == 0 ||
        !mutex_trylock(&quarantine->lock))
        return;
    (void)look_at_first(engine);
    mutex_unlock(&quarantine->lock);
}

void quarantine_look(struct yolk_engine *engine, struct quarantine_look *out)
{
    struct quarantine *quarantine = &engine->quarantine;
    uint64_t now_ns = engine_now(engine), oldest_ns = now_ns;
    mutex_lock(&quarantine->lock);
    BASE_LIST_FOREACH(node, &quarantine->batches)
    {
        const struct batch *batch = BASE_CONTAINER(node, struct batch, quarantine);
        if (batch->quarantined_ns < oldest_ns)
            oldest_ns = batch->quarantined_ns;
    }
    *out = (struct quarantine_look){.count = quarantine->count,
                                    .entered = quarantine->entered,
                                    .reaped = quarantine->reaped,
                                    .oldest_ns = now_ns - oldest_ns};
    mutex_unlock(&quarantine->lock);
}

/* The lock is held. */
static void reaper_sleep(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    atomic_store(&quarantine->asleep, true);
    /* Who came in before it was set has woken nobody. */
    if (atomic_load(&engine->gate.batch_count) == 0)
        condition_wait(&quarantine->wake, &quarantine->lock);
    atomic_store(&quarantine->asleep, false);
}

static void reaper_pause(struct yolk_engine *engine, uint64_t pause_ms)
{
    struct quarantine *quarantine = &engine->quarantine;
    (void)condition_wait_until(&quarantine->wake, &quarantine->lock,
                               clock_after_ms(clock_real_now_ns(), pause_ms));
}

static void reaper_main(void *arg)
{
    struct yolk_engine *engine = arg;
    struct quarantine *quarantine = &engine->quarantine;
    uint64_t pause_ms = REAP_PAUSE_MIN_MS, seen = 0;
    uint32_t idle = 0;
    mutex_lock(&quarantine->lock);
    while (!quarantine->ending) {
        bool gate = atomic_load(&engine->gate.batch_count) > 0;
        if (quarantine->count > 0 || gate) {
            uint64_t changes = quarantine->entered + quarantine->reaped;
            pause_ms = changes != seen                    ? REAP_PAUSE_MIN_MS
                       : pause_ms * 2 < REAP_PAUSE_MAX_MS ? pause_ms * 2
                                                          : REAP_PAUSE_MAX_MS;
            seen = changes;
            idle = 0;
            bool tick_first = gate && (quarantine->count == 0 || engine->gate.tick_ms < pause_ms);
            reaper_pause(engine, tick_first ? engine->gate.tick_ms : pause_ms);
        } else if (engine->gate.on && idle++ < REAP_IDLE_TICKS) {
            reaper_pause(engine, engine->gate.tick_ms); /* nobody need wake it meanwhile */
        } else {
            reaper_sleep(engine);
            idle = 0;
            continue;
        }
        if (quarantine->ending)
            break;
        mutex_unlock(&quarantine->lock);
        (void)quarantine_reap(engine);
        gate_tick(engine);
        mutex_lock(&quarantine->lock);
    }
    mutex_unlock(&quarantine->lock);
}

enum yolk_status quarantine_start(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    mutex_init(&quarantine->lock);
    condition_init(&quarantine->wake);
    base_list_init(&quarantine->batches);
    return thread_start(&quarantine->thread, "yolk-reaper", reaper_main, engine);
}

void quarantine_stop(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    if (!quarantine->thread.running)
        return;
    mutex_lock(&quarantine->lock);
    quarantine->ending = true;
    condition_broadcast(&quarantine->wake);
    mutex_unlock(&quarantine->lock);
    thread_join(&quarantine->thread);
    quarantine->thread.running = false;
}

void quarantine_wake(struct yolk_engine *engine)
{
    if (!atomic_load(&engine->quarantine.asleep))
        return;
    mutex_lock(&engine->quarantine.lock);
    condition_signal(&engine->quarantine.wake);
    mutex_unlock(&engine->quarantine.lock);
}

void quarantine_add(struct yolk_engine *engine, struct batch *batch)
{
    struct quarantine *quarantine = &engine->quarantine;
    batch->quarantined = true;
    batch->quarantined_ns = engine_now(engine);
    mutex_lock(&quarantine->lock);
    base_list_push_back(&quarantine->batches, &batch->quarantine);
    quarantine->entered++;
    atomic_fetch_add(&quarantine->count, 1);
    condition_signal(&quarantine->wake);
    mutex_unlock(&quarantine->lock);
}
