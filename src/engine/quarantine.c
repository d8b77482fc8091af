/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that were freed before their memory was quiet, and the one thread that looks after them.
 * It sleeps while there are none. */
#include "base/error.h"
#include "engine/internal.h"
#include "platform/clock.h"

enum { REAP_PAUSE_MS = 10 };

uint64_t quarantine_reap(struct yolk_engine *engine)
{
    struct quarantine *quarantine = &engine->quarantine;
    mutex_lock(&quarantine->lock);
    uint64_t rounds = quarantine->count;
    mutex_unlock(&quarantine->lock);
    for (; rounds > 0; rounds--) {
        /* A batch taken off the list is this thread's alone. Its lock is taken without the list's.
         */
        mutex_lock(&quarantine->lock);
        struct base_list *node = base_list_pop_front(&quarantine->batches);
        mutex_unlock(&quarantine->lock);
        if (node == NULL)
            break;
        struct batch *batch = BASE_CONTAINER(node, struct batch, quarantine);
        pthread_mutex_lock(&batch->lock);
        (void)batch_progress(engine, batch);
        bool quiet = batch_reclaim(engine, batch);
        batch->quarantined = !quiet;
        pthread_mutex_unlock(&batch->lock);
        mutex_lock(&quarantine->lock);
        if (quiet)
            quarantine->count--;
        else
            base_list_push_back(&quarantine->batches, node);
        mutex_unlock(&quarantine->lock);
        if (quiet)
            batch_give_slot_back(engine, batch);
    }
    mutex_lock(&quarantine->lock);
    uint64_t left = quarantine->count;
    mutex_unlock(&quarantine->lock);
    return left;
}

static void reaper_main(void *arg)
{
    struct yolk_engine *engine = arg;
    struct quarantine *quarantine = &engine->quarantine;
    mutex_lock(&quarantine->lock);
    while (!quarantine->ending) {
        if (quarantine->count == 0) {
            condition_wait(&quarantine->wake, &quarantine->lock);
            continue;
        }
        mutex_unlock(&quarantine->lock);
        (void)quarantine_reap(engine);
        mutex_lock(&quarantine->lock);
        if (!quarantine->ending)
            (void)condition_wait_until(&quarantine->wake, &quarantine->lock,
                                       clock_after_ms(clock_real_now_ns(), REAP_PAUSE_MS));
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

void quarantine_add(struct yolk_engine *engine, struct batch *batch)
{
    struct quarantine *quarantine = &engine->quarantine;
    batch->quarantined = true;
    mutex_lock(&quarantine->lock);
    base_list_push_back(&quarantine->batches, &batch->quarantine);
    quarantine->count++;
    condition_signal(&quarantine->wake);
    mutex_unlock(&quarantine->lock);
}
