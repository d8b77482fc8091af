/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's behaviours of the runtime queue, by the public interface: what is admitted, what of it is
 * given out, who moves it on. More of it is in src/engine/queue_test.c and admission_test.c. */
#include <yolk/engine.h>

#include <pthread.h>

#include "engine/rig.h"

enum { PIECE = 1024, GAP = 2 * PIECE, MANY = 6 };

static void pieces(const struct rig *r, struct yolk_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        requests[i] = rig_request(r, YOLK_READ, (uint64_t)i * GAP, PIECE);
}

/* Two at a time, ios held. */
static struct rig *windowed(void)
{
    struct rig *r = rig_new(1);
    r->options.queue.enable = YOLK_SWITCH_ON;
    r->options.queue.dispatch_owners_max = 2;
    r->scripts[0].hold = true;
    return r;
}

static uint64_t submitted(struct rig *r, uint32_t count)
{
    struct yolk_request requests[16];
    rig_open(r);
    uint64_t batch = rig_batch(r, count);
    pieces(r, requests, count);
    rig_submit(r, batch, requests, count);
    return batch;
}

static void assert_queue(struct rig *r, uint64_t queued, uint64_t dispatched)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(r->engine, &stats);
    assert_int_equal(stats.queued, queued);
    assert_int_equal(stats.dispatched, dispatched);
}

/* A submit that does not fit makes no task, and no transport hears of it. */
static void all_or_nothing(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[8];
    enum yolk_status verdicts[8];
    struct yolk_task_status status;
    uint32_t first = 77;
    r->options.queue.enable = YOLK_SWITCH_ON;
    r->options.queue.owners_max = 4;
    r->options.queue.dispatch_bytes_max = 4 * PIECE;
    rig_open(r);
    uint64_t small = rig_batch(r, 3), batch = rig_batch(r, 8);
    pieces(r, requests, 8);
    assert_int_equal(yolk_engine_batch_submit(r->engine, small, requests, 4, verdicts, &first),
                     YOLK_ERR_LIMIT); /* of the batch */
    assert_int_equal(yolk_engine_batch_submit(r->engine, batch, requests, 5, verdicts, &first),
                     YOLK_ERR_LIMIT); /* of the queue */
    assert_int_equal(first, 77);
    assert_int_equal(yolk_engine_batch_poll(r->engine, batch, 0, &status), YOLK_ERR_INVALID);
    requests[0].size = 4 * PIECE + 1; /* more than the window ever has */
    assert_int_equal(yolk_engine_batch_submit(r->engine, batch, requests, 1, verdicts, &first),
                     YOLK_ERR_LIMIT);
    assert_int_equal(r->scripts[0].count, 0);
    requests[0].size = PIECE;
    rig_submit(r, batch, requests, 4);
    for (uint32_t i = 0; i < 4; i++)
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    rig_submit(r, batch, requests, 4); /* their places are free again */
    rig_free(r, small);
    rig_free(r, batch);
    rig_close(r);
}

/* The window is of the engine, not of a batch: another batch's poll moves it on. */
static void any_batch_moves_the_queue_on(void **state)
{
    (void)state;
    struct rig *r = windowed();
    uint64_t first = submitted(r, 2), second = rig_batch(r, 1);
    struct yolk_request request = rig_request(r, YOLK_READ, 8 * GAP, PIECE);
    rig_submit(r, second, &request, 1);
    assert_int_equal(r->scripts[0].count, 2);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    rig_expect(r, first, 0, YOLK_OK, PIECE);
    (void)rig_poll(r, second, 0);
    assert_int_equal(r->scripts[0].count, 3);
    assert_true(scripted_end(&r->scripts[0], 1, YOLK_OK, UINT64_MAX));
    assert_true(scripted_end(&r->scripts[0], 2, YOLK_OK, UINT64_MAX));
    rig_expect(r, second, 0, YOLK_OK, PIECE);
    rig_expect(r, first, 1, YOLK_OK, PIECE);
    rig_free(r, first);
    rig_free(r, second);
    rig_close(r);
}

/* Twice asked, once told to the transport; one that hears nothing finishes what it has. */
static void what_is_given_out_is_canceled_once(void **state)
{
    (void)state;
    for (int deaf = 0; deaf < 2; deaf++) {
        struct rig *r = windowed();
        uint64_t batch = submitted(r, 2);
        r->scripts[0].deaf = deaf;
        assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 0), YOLK_OK);
        assert_int_equal(yolk_engine_batch_cancel(r->engine, batch, 0), YOLK_OK);
        assert_int_equal(r->scripts[0].canceled, 1);
        if (deaf) {
            assert_false(rig_poll(r, batch, 0).terminal);
            assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
            rig_expect(r, batch, 0, YOLK_OK, PIECE); /* all of it was done */
        } else {
            rig_expect(r, batch, 0, YOLK_ERR_CANCELED, 0);
        }
        assert_true(scripted_end(&r->scripts[0], 1, YOLK_OK, UINT64_MAX));
        rig_expect(r, batch, 1, YOLK_OK, PIECE);
        rig_free(r, batch);
        rig_close(r);
    }
}

/* Any of those that were joined: its poll moves all of them. */
static void polling_one_of_many_that_are_merged(void **state)
{
    (void)state;
    struct rig *r = windowed();
    struct yolk_request requests[4];
    rig_open(r);
    uint64_t batch = rig_batch(r, 4);
    for (uint32_t i = 0; i < 4; i++)
        requests[i] = rig_request(r, YOLK_READ, (uint64_t)i * PIECE, PIECE);
    rig_submit(r, batch, requests, 4);
    assert_int_equal(r->scripts[0].count, 1);
    assert_true(scripted_end(&r->scripts[0], 0, YOLK_OK, UINT64_MAX));
    rig_expect(r, batch, 3, YOLK_OK, PIECE);
    for (uint32_t i = 0; i < 3; i++)
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    assert_queue(r, 0, 0);
    rig_free(r, batch);
    rig_close(r);
}

struct freer {
    struct rig *rig;
    uint64_t batch;
};

static void *free_it(void *arg)
{
    struct freer *freer = arg;
    rig_free(freer->rig, freer->batch);
    return NULL;
}

/* From another thread, while this one asks: an answer or the news that it is gone. */
static void a_free_races_with_polls(void **state)
{
    (void)state;
    struct rig *r = windowed();
    r->options.transport.now_ns = NULL;
    r->options.queue.tick_ms = 1;
    rig_open(r);
    for (int round = 0; round < 20; round++) {
        struct yolk_request requests[4];
        struct yolk_task_status status;
        pthread_t thread;
        pieces(r, requests, 4);
        struct freer freer = {r, rig_batch(r, 4)};
        rig_submit(r, freer.batch, requests, 4);
        assert_int_equal(pthread_create(&thread, NULL, free_it, &freer), 0);
        while (yolk_engine_batch_poll(r->engine, freer.batch, 3, &status) == YOLK_OK)
            assert_true(!status.terminal || status.status == YOLK_ERR_CANCELED);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(yolk_engine_batch_poll(r->engine, freer.batch, 3, &status),
                         YOLK_ERR_STALE);
    }
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(any_batch_moves_the_queue_on),
        cmocka_unit_test(what_is_given_out_is_canceled_once),
        cmocka_unit_test(polling_one_of_many_that_are_merged),
        cmocka_unit_test(a_free_races_with_polls),
    };
    return cmocka_run_group_tests_name("behaviour.queue", tests, NULL, NULL);
}
