/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending an engine. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "engine/internal.h"
#include "platform/clock.h"
#include "platform/random.h"

static uint64_t real_now(void *self)
{
    (void)self;
    return clock_real_now_ns();
}

void yolk_engine_options_init(struct yolk_engine_options *options)
{
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
    options->transport.struct_size = sizeof(options->transport);
}

static void apply_options(struct yolk_engine *engine, const struct yolk_engine_options *options)
{
    engine->now_ns = options->transport.now_ns != NULL ? options->transport.now_ns : real_now;
    engine->clock_self = options->transport.clock_self;
    engine->drain_limit_ns =
        (options->drain_limit_ms == 0 ? 5000 : options->drain_limit_ms) * CLOCK_NS_PER_MS;
    engine->attempts_max = options->attempts_max == 0 ? 3 : options->attempts_max;
    if (engine->attempts_max > 100)
        engine->attempts_max = 100;
    engine->window_slices = options->window_slices == 0 ? 64 : options->window_slices;
    engine->slice_bytes_max = options->slice_bytes_max == 0 ? UINT64_MAX : options->slice_bytes_max;
    engine->merge_bytes_max = options->merge == YOLK_SWITCH_OFF ? 0
                              : options->merge_bytes_max == 0   ? UINT64_C(16) << 20
                                                                : options->merge_bytes_max;
    engine->wish = (struct engine_wish){.policy = ENGINE_NO_POLICY,
                                        .hint = ENGINE_NO_TRANSPORT,
                                        .direct = options->strict == YOLK_SWITCH_ON};
    engine->failover_on_poll = options->failover_on_poll != YOLK_SWITCH_OFF;
    engine->breaker_rule.failures_max =
        options->breaker_failures == 0 ? 3 : options->breaker_failures;
    engine->breaker_rule.cooldown_ns =
        (options->breaker_cooldown_ms == 0 ? 1000 : options->breaker_cooldown_ms) * CLOCK_NS_PER_MS;
}

static void destroy_memory(struct yolk_engine *engine)
{
    batches_destroy_table(engine);
    registry_clear(engine);
    pthread_rwlock_destroy(&engine->registry.lock);
    pthread_rwlock_destroy(&engine->segments.lock);
    free(engine->segments.slots.slots);
    pthread_mutex_destroy(&engine->prepared.lock);
    pthread_mutex_destroy(&engine->stage.lock);
    free(engine->prepared.slots.slots);
    pthread_mutex_destroy(&engine->stuck_lock);
    pthread_mutex_destroy(&engine->faster_lock);
    engine_device_free(engine);
    policy_free(&engine->policies);
    gate_free(engine);
    free(engine->metrics);
    engine_plugins_unload(&engine->plugins);
    free(engine);
}

enum yolk_status yolk_engine_create(const struct yolk_engine_options *options,
                                    struct yolk_engine **out)
{
    if (options == NULL || out == NULL || options->struct_size < sizeof(*options))
        return base_fail(YOLK_ERR_INVALID, 0, "options need yolk_engine_options_init");
    enum yolk_status checked = engine_check_options(options);
    if (checked != YOLK_OK)
        return checked;
    struct yolk_engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an engine");
    engine->metrics = aligned_alloc(_Alignof(struct metrics), sizeof(*engine->metrics));
    if (engine->metrics == NULL) {
        free(engine);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an engine");
    }
    memset(engine->metrics, 0, sizeof(*engine->metrics));
    process_count_forks();
    engine->forks = process_forks();
    apply_options(engine, options);
    pthread_rwlock_init(&engine->registry.lock, NULL);
    base_imap_init(&engine->registry.map);
    pthread_rwlock_init(&engine->segments.lock, NULL);
    slots_init(&engine->segments.slots);
    pthread_mutex_init(&engine->prepared.lock, NULL);
    pthread_mutex_init(&engine->stage.lock, NULL);
    pthread_mutex_init(&engine->device.lock, NULL);
    slots_init(&engine->prepared.slots);
    pthread_mutex_init(&engine->batches.lock, NULL);
    engine->batches.free_head = BATCH_NONE;
    pthread_mutex_init(&engine->stuck_lock, NULL);
    pthread_mutex_init(&engine->faster_lock, NULL);
    base_list_init(&engine->stuck);
    struct yolk_engine_options mine = *options;
    const struct random random = random_real();
    random_bytes(&random, mine.transport.instance, sizeof(mine.transport.instance));
    enum yolk_status status = gate_start(engine, options);
    if (status == YOLK_OK)
        status = engine_device_init(engine, &mine.transport);
    if (status == YOLK_OK)
        status = stage_init(engine, options->staging_bytes);
    if (status == YOLK_OK)
        status = engine_transports_start(engine, &mine);
    if (status == YOLK_OK)
        status = quarantine_start(engine);
    if (status != YOLK_OK) {
        if (engine_transports_stop(engine) != YOLK_OK)
            engine->plugins.count = 0; /* their code may still run */
        destroy_memory(engine);
        return status;
    }
    *out = engine;
    return YOLK_OK;
}

enum yolk_status engine_refuse_forked(void)
{
    return base_fail(
        YOLK_ERR_FORKED, 0,
        "the engine was made by the process that this one was forked from: make one in "
        "this process");
}

enum yolk_status yolk_engine_destroy(struct yolk_engine *engine)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL)
        return YOLK_OK;
    if (atomic_load(&engine->served_count) > 0)
        return base_fail(YOLK_ERR_BUSY, 0, "segments are still served");
    atomic_store(&engine->closing, true);
    batches_free_all(engine);
    /* Real time also under a virtual clock: nothing would move the virtual one in here. */
    uint64_t limit = clock_after(clock_real_now_ns(), engine->drain_limit_ns);
    while (quarantine_reap(engine) > 0) {
        if (clock_real_now_ns() >= limit)
            return base_fail(YOLK_ERR_BUSY, 0, "memory is not quiet yet");
        const struct timespec pause = {0, 200000};
        (void)nanosleep(&pause, NULL);
    }
    quarantine_stop(engine);
    prepared_release_all(engine);
    stage_free(engine);
    segments_close_all(engine);
    registry_clear(engine);
    enum yolk_status status = engine_transports_stop(engine);
    if (status != YOLK_OK)
        return base_fail(YOLK_ERR_BUSY, 0, "a transport did not stop: %s", yolk_strerror(status));
    destroy_memory(engine);
    return YOLK_OK;
}

uint64_t yolk_engine_now_ns(const struct yolk_engine *engine)
{
    return engine_now(engine);
}

void yolk_engine_stats(struct yolk_engine *engine, struct yolk_engine_stats *out)
{
    struct engine_counters *c = &engine->counters;
    out->tasks_submitted = atomic_load(&c->submitted);
    out->tasks_merged = atomic_load(&c->merged);
    out->tasks_staged = atomic_load(&c->staged);
    out->bytes_staged = atomic_load(&c->bytes_staged);
    out->tasks_ok = atomic_load(&c->ok);
    out->tasks_failed = atomic_load(&c->failed);
    out->tasks_canceled = atomic_load(&c->canceled);
    out->tasks_timeout = atomic_load(&c->timeout);
    out->tasks_stuck = atomic_load(&c->stuck);
    out->slices_submitted = atomic_load(&c->slices);
    out->slices_retried = atomic_load(&c->retried);
    out->slices_failed_over = atomic_load(&c->failed_over);
    out->completions_unknown = atomic_load(&c->unknown);
    out->bytes_read = atomic_load(&c->bytes_read);
    out->bytes_written = atomic_load(&c->bytes_written);
    out->breakers_opened = atomic_load(&c->breakers);
    out->attempts_exhausted = atomic_load(&c->exhausted);
    gate_stats(engine, out);
    out->quarantined = atomic_load(&engine->quarantine.count);
    out->batches = atomic_load(&engine->batches.in_use);
}
