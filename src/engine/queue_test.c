/* SPDX-License-Identifier: Apache-2.0 */
/* The admission queue and contracts as a caller sees them. */
#include <yolk/engine.h>

#include <sched.h>

#include "engine/rig.h"
#include "platform/random.h"

enum { PIECE = 1024 };
#define MS UINT64_C(1000000)

static struct yolk_request read_of(const struct rig *r, uint64_t n)
{
    return rig_request(r, YOLK_READ, n * 2 * PIECE, PIECE); /* no neighbours: nothing is merged */
}

static struct rig *queue_new(uint32_t transports, bool hold)
{
    struct rig *r = rig_new(transports);
    r->options.queue.enable = YOLK_SWITCH_ON;
    r->scripts[0].hold = hold;
    return r;
}

static enum yolk_status submit(struct rig *r, uint64_t batch, const struct yolk_request *requests,
                               uint32_t count)
{
    enum yolk_status verdicts[64];
    return yolk_engine_batch_submit(r->engine, batch, requests, count, verdicts, NULL);
}

static void several(const struct rig *r, struct yolk_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        requests[i] = read_of(r, i);
}

static struct yolk_engine_stats stats_of(struct rig *r)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(r->engine, &stats);
    return stats;
}

static void progress(struct rig *r, uint64_t batch)
{
    assert_int_equal(yolk_engine_batch_progress(r->engine, batch, NULL), YOLK_OK);
}

static void told(const char *part)
{
    if (strstr(yolk_last_error(), part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yolk_last_error(), part);
}

/* -- Admission -- */

static void all_of_a_submit_or_none(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[4];
    struct yolk_task_status status;
    r->options.queue.owners_max = 3;
    r->options.queue.bytes_max = 3 * PIECE;
    rig_open(r);
    several(r, requests, 4);
    uint64_t batch = rig_batch(r, 8);
    assert_int_equal(submit(r, batch, requests, 4), YOLK_ERR_LIMIT);
    told("queue.owners_max, 3");
    assert_int_equal(yolk_engine_batch_poll(r->engine, batch, 0, &status), YOLK_ERR_INVALID);
    assert_int_equal(r->scripts[0].count, 0);
    assert_int_equal(stats_of(r).queue_refused, 1);
    assert_int_equal(stats_of(r).tasks_submitted, 0);
    /* What was refused holds nothing: neither the memory nor the segment. */
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_OK);
    assert_int_equal(yolk_engine_register(r->engine, r->local, RIG_SIZE), YOLK_OK);
    /* By bytes. Requests that are refused by themselves do not count. */
    requests[1].size = 2 * PIECE;
    requests[2].size = PIECE + 1;
    assert_int_equal(submit(r, batch, requests, 3), YOLK_ERR_LIMIT);
    told("queue.bytes_max, 3072");
    requests[2].offset = RIG_SIZE;
    assert_int_equal(submit(r, batch, requests, 3), YOLK_ERR_INVALID);
    assert_int_equal(r->scripts[0].count, 2);
    rig_expect(r, batch, 2, YOLK_ERR_INVALID, 0);
    /* Full until one is over. */
    assert_int_equal(submit(r, batch, &requests[0], 1), YOLK_ERR_LIMIT);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    progress(r, batch);
    assert_int_equal(submit(r, batch, &requests[0], 1), YOLK_OK);
    rig_free(r, batch);
    rig_close(r);
}

static void larger_than_the_window(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, false);
    r->options.queue.dispatch_bytes_max = PIECE;
    rig_open(r);
    struct yolk_request requests[2] = {read_of(r, 0), read_of(r, 1)};
    uint64_t batch = rig_batch(r, 2);
    requests[1].size++;
    assert_int_equal(submit(r, batch, requests, 2), YOLK_ERR_LIMIT);
    told("dispatch_bytes_max, 1024");
    assert_int_equal(r->scripts[0].count, 0);
    assert_int_equal(submit(r, batch, requests, 1), YOLK_OK);
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* -- Dispatch -- */

static void a_window_at_a_time(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[6];
    r->options.queue.dispatch_owners_max = 2;
    rig_open(r);
    several(r, requests, 6);
    uint64_t batch = rig_batch(r, 6);
    assert_int_equal(submit(r, batch, requests, 6), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 2);
    assert_int_equal(stats_of(r).queued, 4);
    assert_int_equal(stats_of(r).dispatched, 2);
    for (int i = 0; i < 3; i++)
        progress(r, batch);
    assert_int_equal(r->scripts[0].count, 2); /* held until one is over */
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(r->scripts[0].log[i].offset, requests[i].offset);
        assert_true(scripted_end(&r->scripts[0], i, YOLK_OK, UINT64_MAX));
        progress(r, batch);
        assert_int_equal(r->scripts[0].count, i + 3 < 6 ? i + 3 : 6);
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    }
    assert_int_equal(stats_of(r).queued + stats_of(r).dispatched, 0);
    rig_free(r, batch);
    rig_close(r);
}

/* All of a queue longer than its window is over in one call where the transport does not wait. */
static void flows_through_at_once(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, false);
    struct yolk_request requests[40];
    r->options.queue.dispatch_owners_max = 2;
    rig_open(r);
    several(r, requests, 40);
    uint64_t batch = rig_batch(r, 40);
    uint32_t pending;
    assert_int_equal(submit(r, batch, requests, 40), YOLK_OK);
    assert_int_equal(yolk_engine_batch_progress(r->engine, batch, &pending), YOLK_OK);
    assert_int_equal(pending, 0);
    rig_free(r, batch);
    rig_close(r);
}

/* Requests to one that does not answer keep most of the window; those to others go at once. */
static void a_silent_peer_holds_no_other_up(void **state)
{
    (void)state;
    enum { SILENT = 60, WINDOW = 64, SHARE = 32 };
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[SILENT];
    r->options.queue.dispatch_owners_max = WINDOW;
    rig_open(r);
    several(r, requests, SILENT);
    uint64_t silent = rig_batch(r, SILENT), sound = rig_batch(r, 1);
    assert_int_equal(submit(r, silent, requests, SILENT), YOLK_OK);
    progress(r, silent);
    assert_int_equal(r->scripts[0].count, SHARE);
    uint64_t segment = r->segment;
    rig_open_segment(r);                /* another peer's */
    for (uint32_t n = 0; n < 70; n++) { /* more than the engine remembers of peers */
        struct yolk_request request = read_of(r, n % SILENT);
        assert_int_equal(submit(r, sound, &request, 1), YOLK_OK);
        progress(r, sound);
        assert_int_equal(r->scripts[0].count, SHARE + n + 1);
        assert_true(scripted_end(&r->scripts[0], SHARE + n, YOLK_OK, UINT64_MAX));
        progress(r, sound);
        rig_expect(r, sound, 0, YOLK_OK, PIECE);
        rig_free(r, sound);
        sound = rig_batch(r, 1);
        if (n < 68) {
            assert_int_equal(yolk_engine_segment_close(r->engine, r->segment), YOLK_OK);
            rig_open_segment(r);
        }
    }
    /* It goes on, and so do those that waited behind its share. */
    for (uint32_t n = 0; n < SILENT + 70; n++) {
        (void)scripted_end(&r->scripts[0], n, YOLK_OK, UINT64_MAX);
        progress(r, silent);
    }
    for (uint32_t n = 0; n < SILENT; n++)
        rig_expect(r, silent, n, YOLK_OK, PIECE);
    assert_int_equal(stats_of(r).queued + stats_of(r).dispatched, 0);
    rig_free(r, silent);
    rig_free(r, sound);
    assert_int_equal(yolk_engine_segment_close(r->engine, segment), YOLK_OK);
    rig_close(r);
}

static void by_priority_and_by_deadline(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    r->options.queue.dispatch_owners_max = 1;
    r->options.queue.deadline_first = YOLK_SWITCH_ON;
    rig_open(r);
    struct yolk_request requests[6];
    several(r, requests, 6);
    requests[1].priority = YOLK_PRIORITY_LOW;
    requests[2].priority = YOLK_PRIORITY_MEDIUM;
    requests[4].deadline_ns = 900 * MS;
    requests[5].deadline_ns = 800 * MS;
    static const int wanted[6] = {0, 5, 4, 3, 2, 1};
    uint64_t batches[6];
    for (int i = 0; i < 6; i++) { /* of different batches: the order is the engine's */
        batches[i] = rig_batch(r, 1);
        assert_int_equal(submit(r, batches[i], &requests[i], 1), YOLK_OK);
    }
    for (uint32_t n = 0; n < 6; n++) {
        for (int i = 0; i < 6; i++)
            progress(r, batches[i]);
        assert_int_equal(r->scripts[0].count, n + 1);
        assert_int_equal(r->scripts[0].log[n].offset, requests[wanted[n]].offset);
        assert_true(scripted_end(&r->scripts[0], n, YOLK_OK, UINT64_MAX));
        progress(r, batches[wanted[n]]);
    }
    for (int i = 0; i < 6; i++)
        rig_free(r, batches[i]);
    rig_close(r);
}

static void a_merged_one_is_one_owner(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[5];
    r->options.queue.owners_max = 2;
    r->options.queue.dispatch_owners_max = 1;
    r->options.queue.dispatch_bytes_max = 4 * PIECE;
    rig_open(r);
    for (uint32_t i = 0; i < 5; i++)
        requests[i] = rig_request(r, YOLK_READ, (uint64_t)i * PIECE, PIECE);
    uint64_t batch = rig_batch(r, 5);
    assert_int_equal(submit(r, batch, requests, 5), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 1);
    assert_int_equal(r->scripts[0].log[0].size, 4 * PIECE); /* no larger than the window */
    assert_int_equal(stats_of(r).queued, 1);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 3, YOLK_OK, PIECE); /* a poll of one completes all */
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    assert_int_equal(r->scripts[0].count, 2);
    assert_true(scripted_end(&r->scripts[0], 1, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 4, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* -- Ends -- */

static void canceled_while_it_waits(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[3];
    r->options.queue.dispatch_owners_max = 1;
    rig_open(r);
    several(r, requests, 3);
    uint64_t batch = rig_batch(r, 3);
    assert_int_equal(submit(r, batch, requests, 3), YOLK_OK);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 1), YOLK_OK);
    rig_expect(r, batch, 1, YOLK_ERR_CANCELED, 0); /* at once: nothing is to be waited for */
    assert_int_equal(r->scripts[0].canceled, 0);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    progress(r, batch);
    assert_int_equal(r->scripts[0].count, 2); /* its sibling, never itself */
    assert_int_equal(r->scripts[0].log[1].offset, requests[2].offset);
    /* Dispatched: asked of the transport once, however often it is asked for. */
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 2), YOLK_OK);
    assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 2), YOLK_OK);
    assert_int_equal(r->scripts[0].canceled, 1);
    rig_expect(r, batch, 2, YOLK_ERR_CANCELED, 0);
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    assert_int_equal(stats_of(r).queued + stats_of(r).dispatched, 0);
    rig_free(r, batch);
    rig_close(r);
}

static void freed_early(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[4];
    r->options.queue.owners_max = 4;
    r->options.queue.dispatch_owners_max = 2;
    rig_open(r);
    several(r, requests, 4);
    uint64_t batch = rig_batch(r, 4);
    assert_int_equal(submit(r, batch, requests, 4), YOLK_OK);
    rig_free(r, batch);
    assert_int_equal(stats_of(r).queued + stats_of(r).dispatched, 0);
    batch = rig_batch(r, 4);
    assert_int_equal(submit(r, batch, requests, 4), YOLK_OK);
    assert_int_equal(stats_of(r).dispatched, 2);
    rig_free(r, batch);
    rig_close(r);
}

static void a_deadline_passes_while_it_waits(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[2];
    r->options.queue.dispatch_owners_max = 1;
    rig_open(r);
    several(r, requests, 2);
    requests[1].deadline_ns = 10 * MS;
    uint64_t batch = rig_batch(r, 2);
    assert_int_equal(submit(r, batch, requests, 2), YOLK_OK);
    clock_sim_advance(&r->clock, 10 * MS);
    rig_expect(r, batch, 1, YOLK_ERR_TIMEOUT, 0);
    assert_false(rig_poll(r, batch, 0).terminal);
    assert_int_equal(r->scripts[0].count, 1);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 0, YOLK_OK, PIECE);
    assert_int_equal(r->scripts[0].count, 1);
    rig_free(r, batch);
    rig_close(r);
}

/* A window of which the memory never gets quiet is given up with its result. */
static void stuck_ones_hold_no_window(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[2];
    r->options.queue.dispatch_owners_max = 1;
    r->options.drain_limit_ms = 1;
    r->scripts[0].deaf = true;
    rig_open(r);
    several(r, requests, 2);
    requests[0].deadline_ns = 10 * MS;
    uint64_t batch = rig_batch(r, 2);
    assert_int_equal(submit(r, batch, requests, 2), YOLK_OK);
    clock_sim_advance(&r->clock, 10 * MS);
    assert_false(rig_poll(r, batch, 0).terminal);
    clock_sim_advance(&r->clock, 1 * MS);
    rig_expect(r, batch, 0, YOLK_ERR_STUCK, 0);
    progress(r, batch);
    assert_int_equal(r->scripts[0].count, 2);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, 0));
    assert_true(scripted_end(&r->scripts[0], 1, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    rig_free(r, batch);
    rig_close(r);
}

/* -- Without anybody's poll -- */

static uint64_t soon(void)
{
    return clock_real_now_ns() + 30000 * MS;
}

static void await(struct rig *r, bool (*done)(struct rig *r))
{
    uint64_t until = soon();
    while (!done(r)) {
        if (clock_real_now_ns() > until)
            fail_msg("nothing moved on by itself");
        (void)sched_yield();
    }
}

static bool two_held(struct rig *r)
{
    return scripted_held(&r->scripts[0]) == 2;
}
static bool none_left(struct rig *r)
{
    return stats_of(r).queued + stats_of(r).dispatched == 0;
}
static bool one_timeout(struct rig *r)
{
    return stats_of(r).tasks_timeout == 1;
}

static void moves_on_by_itself(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, true);
    struct yolk_request requests[6];
    r->options.queue.dispatch_owners_max = 2;
    r->options.queue.tick_ms = 1;
    rig_open(r);
    several(r, requests, 6);
    requests[5].deadline_ns = 10 * MS;
    uint64_t one = rig_batch(r, 3), other = rig_batch(r, 3);
    assert_int_equal(submit(r, one, requests, 3), YOLK_OK);
    assert_int_equal(submit(r, other, requests + 3, 3), YOLK_OK);
    clock_sim_advance(&r->clock, 10 * MS);
    await(r, one_timeout);
    for (uint32_t i = 0; i < 5; i++) {
        if (i < 4)
            await(r, two_held);
        assert_true(scripted_end(&r->scripts[0], i, YOLK_OK, UINT64_MAX));
    }
    await(r, none_left);
    for (uint32_t i = 0; i < 5; i++)
        rig_expect(r, i < 3 ? one : other, i % 3, YOLK_OK, PIECE);
    rig_expect(r, other, 2, YOLK_ERR_TIMEOUT, 0);
    rig_free(r, one);
    rig_free(r, other);
    rig_close(r);
}

/* Many threads, little room: all of it is given back. */
enum { THREADS = 4, TURNS = 150, TASKS = 12, PLACES = RIG_SIZE / (2 * PIECE) / THREADS };
struct worker {
    struct rig *r;
    uint64_t place;
    uint64_t seed;
    uint32_t wrong;
};

static void work(void *arg)
{
    struct worker *w = arg;
    struct random_sim sim;
    random_sim_init(&sim, w->seed);
    const struct random random = random_sim_random(&sim);
    for (int turn = 0; turn < TURNS; turn++) {
        struct yolk_request requests[TASKS];
        enum yolk_status verdicts[TASKS];
        uint64_t batch = 0;
        uint32_t count = 1 + (uint32_t)random_below(&random, TASKS);
        for (uint32_t i = 0; i < count; i++) {
            requests[i] = read_of(w->r, w->place + random_below(&random, PLACES)); /* its own */
            requests[i].priority = (enum yolk_priority)random_below(&random, 3);
            requests[i].tenant = random_below(&random, 2) == 0 ? "a" : NULL;
        }
        if (yolk_engine_batch_create(w->r->engine, TASKS, &batch) != YOLK_OK) {
            w->wrong++;
            return;
        }
        enum yolk_status status =
            yolk_engine_batch_submit(w->r->engine, batch, requests, count, verdicts, NULL);
        if (status == YOLK_OK && random_below(&random, 3) == 0)
            status = yolk_engine_batch_cancel(w->r->engine, batch,
                                              (uint32_t)random_below(&random, count));
        if (status == YOLK_OK && random_below(&random, 3) != 0)
            status = yolk_engine_batch_wait(w->r->engine, batch, 0);
        w->wrong += status != YOLK_OK && status != YOLK_ERR_LIMIT;
        w->wrong += yolk_engine_batch_free(w->r->engine, batch) != YOLK_OK;
    }
}

static void many_threads(void **state)
{
    (void)state;
    struct rig *r = queue_new(1, false);
    struct thread threads[THREADS];
    struct worker workers[THREADS];
    memset(threads, 0, sizeof(threads));
    r->options.queue.owners_max = 20;
    r->options.queue.dispatch_owners_max = 3;
    r->options.queue.tick_ms = 1;
    r->options.qos_json = "{\"version\": 1, \"tenants\": [{\"name\": \"a\", \"defaults\": "
                          "{\"max_inflight_requests\": 2}}]}";
    rig_open(r);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.r = r, .place = i * PLACES, .seed = i + 1};
        assert_int_equal(thread_start(&threads[i], "worker", work, &workers[i]), YOLK_OK);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_true(none_left(r));
    rig_close(r);
}

/* -- Contracts -- */

static struct rig *contract_new(uint32_t transports, const char *qos_json)
{
    struct rig *r = rig_new(transports);
    r->options.qos_json = qos_json;
    return r;
}

static void a_contract_delays_its_own(void **state)
{
    (void)state;
    struct rig *r = contract_new(1, "{\"qos\": {\"version\": 1, \"tenants\": ["
                                    "{\"name\": \"a\", \"defaults\": {\"max_inflight_requests\": 1,"
                                    " \"max_inflight_bytes\": 2000}}]}}");
    struct yolk_request requests[4];
    r->scripts[0].hold = true;
    rig_open(r);
    several(r, requests, 4);
    for (int i = 0; i < 3; i++)
        requests[i].tenant = "a";
    uint64_t batch = rig_batch(r, 8);
    assert_int_equal(submit(r, batch, requests, 4), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 2);
    assert_int_equal(r->scripts[0].log[1].offset, requests[3].offset); /* of nobody */
    assert_int_equal(stats_of(r).queued, 2);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    progress(r, batch);
    assert_int_equal(r->scripts[0].count, 3);
    assert_int_equal(r->scripts[0].log[2].offset, requests[1].offset);
    /* Larger than the contract ever allows. */
    requests[0].size = 2001;
    assert_int_equal(submit(r, batch, requests, 1), YOLK_ERR_LIMIT);
    told("tenant \"a\", intent unspec");
    told("max_inflight_bytes");
    requests[0].tenant = "b";
    assert_int_equal(submit(r, batch, requests, 1), YOLK_OK);
    rig_free(r, batch);
    rig_close(r);
}

static void a_contract_without_delay_rejects(void **state)
{
    (void)state;
    struct rig *r = contract_new(1, "{\"version\": 1, \"tenants\": [{\"name\": \"a\","
                                    " \"defaults\": {\"max_inflight_requests\": 2},"
                                    " \"intents\": {\"checkpoint\": {\"max_inflight_bytes\": 1024,"
                                    " \"allowed_degraded_actions\": [\"reject\"]}}}]}");
    struct yolk_request requests[3];
    enum yolk_status verdicts[3];
    r->scripts[0].hold = true;
    rig_open(r);
    several(r, requests, 3);
    for (int i = 0; i < 3; i++) {
        requests[i].tenant = "a";
        requests[i].intent = YOLK_INTENT_CHECKPOINT;
    }
    uint64_t batch = rig_batch(r, 8);
    assert_int_equal(yolk_engine_batch_submit(r->engine, batch, requests, 2, verdicts, NULL),
                     YOLK_ERR_LIMIT);
    told("intent checkpoint");
    told("allowed_degraded_actions");
    assert_int_equal(verdicts[0], YOLK_OK);
    assert_int_equal(verdicts[1], YOLK_ERR_LIMIT);
    rig_expect(r, batch, 1, YOLK_ERR_LIMIT, 0);
    /* Another intent of the tenant shares its number of requests, not the bytes. */
    requests[2].intent = YOLK_INTENT_UNSPEC;
    assert_int_equal(submit(r, batch, &requests[2], 1), YOLK_OK);
    assert_int_equal(submit(r, batch, &requests[2], 1), YOLK_OK);
    assert_int_equal(r->scripts[0].count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(scripted_end(&r->scripts[0], i, YOLK_OK, UINT64_MAX));
    progress(r, batch);
    assert_int_equal(r->scripts[0].count, 3);
    assert_int_equal(submit(r, batch, requests, 1), YOLK_OK); /* there is room again */
    assert_int_equal(r->scripts[0].count, 4);
    rig_free(r, batch);
    assert_int_equal(stats_of(r).queued + stats_of(r).dispatched, 0);
    rig_close(r);
}

static void a_contract_sets_the_priority(void **state)
{
    (void)state;
    struct rig *r = contract_new(
        1, "{\"version\": 1, \"tenants\": [{\"name\": \"low\", \"defaults\": {\"priority\": "
           "\"low\"}}, {\"name\": \"high\", \"defaults\": {\"priority\": \"high\"}}]}");
    rig_open(r);
    struct yolk_request requests[3];
    several(r, requests, 3);
    requests[0].tenant = "low";
    requests[1].priority = YOLK_PRIORITY_MEDIUM;
    requests[2].tenant = "high";
    requests[2].priority = YOLK_PRIORITY_LOW;
    static const int wanted[3] = {2, 1, 0};
    uint64_t batch = rig_batch(r, 3);
    assert_int_equal(submit(r, batch, requests, 3), YOLK_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r->scripts[0].log[i].offset, requests[wanted[i]].offset);
    rig_free(r, batch);
    rig_close(r);
}

static void a_contract_without_fallback_stays(void **state)
{
    (void)state;
    struct rig *r = contract_new(2, "{\"version\": 1, \"defaults\": {"
                                    "\"allowed_degraded_actions\": [\"delay\", \"reject\"]},"
                                    "\"tenants\": [{\"name\": \"free\", \"defaults\": {"
                                    "\"allowed_degraded_actions\": [\"fallback_transport\"]}}]}");
    rig_open(r);
    r->scripts[0].fail = YOLK_ERR_TIMEOUT;
    struct yolk_request request = read_of(r, 0);
    uint64_t batch = rig_batch(r, 4);
    assert_int_equal(submit(r, batch, &request, 1), YOLK_OK);
    rig_expect(r, batch, 0, YOLK_ERR_TIMEOUT, 0);
    assert_int_equal(r->scripts[1].count, 0);
    request.tenant = "free";
    assert_int_equal(submit(r, batch, &request, 1), YOLK_OK);
    rig_expect(r, batch, 1, YOLK_OK, PIECE);
    assert_int_equal(r->scripts[1].count, 1);
    char *text;
    request.tenant = NULL;
    assert_int_equal(yolk_engine_describe_route(r->engine, &request, &text), YOLK_OK);
    assert_non_null(strstr(text, "first: runs it"));
    assert_non_null(strstr(text, "second: no: the tenant's contract allows no fallback_transport"));
    free(text);
    rig_free(r, batch);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_submit_or_none),
        cmocka_unit_test(larger_than_the_window),
        cmocka_unit_test(a_window_at_a_time),
        cmocka_unit_test(flows_through_at_once),
        cmocka_unit_test(a_silent_peer_holds_no_other_up),
        cmocka_unit_test(by_priority_and_by_deadline),
        cmocka_unit_test(a_merged_one_is_one_owner),
        cmocka_unit_test(canceled_while_it_waits),
        cmocka_unit_test(freed_early),
        cmocka_unit_test(a_deadline_passes_while_it_waits),
        cmocka_unit_test(stuck_ones_hold_no_window),
        cmocka_unit_test(moves_on_by_itself),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(a_contract_delays_its_own),
        cmocka_unit_test(a_contract_without_delay_rejects),
        cmocka_unit_test(a_contract_sets_the_priority),
        cmocka_unit_test(a_contract_without_fallback_stays),
    };
    return cmocka_run_group_tests_name("engine.queue", tests, NULL, NULL);
}
