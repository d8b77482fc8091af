/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are prepared once and posted again and again. */
#include <yolk/engine.h>

#include "engine/rig.h"
#include "platform/random.h"

enum { PIECE = 1024, MANY = 64 };

static uint64_t prepare(struct rig *r, const struct yolk_request *requests, uint32_t count)
{
    enum yolk_status verdicts[MANY];
    uint64_t prepared;
    assert_int_equal(yolk_engine_prepare(r->engine, requests, count, verdicts, &prepared), YOLK_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(verdicts[i], YOLK_OK);
    return prepared;
}

static void post(struct rig *r, uint64_t batch, uint64_t prepared, const uint32_t *indices,
                 uint32_t count)
{
    assert_int_equal(yolk_engine_batch_submit_prepared(r->engine, batch, prepared, indices, count,
                                                       0, NULL, NULL),
                     YOLK_OK);
}

static void release(struct rig *r, uint64_t prepared)
{
    assert_int_equal(yolk_engine_prepared_release(r->engine, prepared), YOLK_OK);
}

/* Pieces of the served memory, in an order of their own, to places of the local one. */
static void scattered(const struct rig *r, struct yolk_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        requests[i] = rig_request(r, YOLK_READ, (uint64_t)i * PIECE, PIECE);
        requests[i].offset = (uint64_t)(i * 7 % count) * 2 * PIECE;
        requests[i].cookie = 1000 + i;
    }
}

static void posted_as_often_as_wanted(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[MANY];
    rig_open(r);
    scattered(r, requests, MANY);
    char hint[] = "first";
    requests[3].hint = hint;
    uint64_t prepared = prepare(r, requests, MANY);
    memset(hint, 'x', sizeof(hint) - 1); /* nothing of the caller's is needed any more */
    memset(requests, 0xff, sizeof(requests));
    for (uint32_t round = 0; round < 5; round++) {
        uint64_t batch = rig_batch(r, MANY);
        for (uint32_t i = 0; i < RIG_SIZE; i++)
            r->memory[i] = rig_byte(i + round * RIG_SIZE);
        post(r, batch, prepared, NULL, 12345);
        for (uint32_t i = 0; i < MANY; i++) {
            rig_expect(r, batch, i, YOLK_OK, PIECE);
            assert_int_equal(rig_poll(r, batch, i).cookie, 1000 + i);
            assert_memory_equal(r->local + i * PIECE, r->memory + i * 7 % MANY * 2 * PIECE, PIECE);
        }
        rig_free(r, batch);
    }
    release(r, prepared);
    rig_close(r);
}

/* Any of them, in any order, against a copy of our own. */
static void some_of_them(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[MANY];
    struct random_sim sim;
    uint8_t *expected = calloc(1, RIG_SIZE);
    uint32_t first;
    random_sim_init(&sim, 3);
    struct random random = random_sim_random(&sim);
    rig_open(r);
    scattered(r, requests, MANY);
    uint64_t prepared = prepare(r, requests, MANY);
    uint64_t batch = rig_batch(r, 200 * MANY);
    for (uint32_t round = 0, task = 0; round < 200; round++) {
        uint32_t indices[MANY];
        uint32_t count = (uint32_t)random_below(&random, MANY + 1);
        for (uint32_t i = 0; i < count; i++) {
            indices[i] = i > 0 && random_below(&random, 2) == 0
                             ? (indices[i - 1] + 1) % MANY
                             : (uint32_t)random_below(&random, MANY);
            memcpy(expected + indices[i] * PIECE, r->memory + indices[i] * 7 % MANY * 2 * PIECE,
                   PIECE);
        }
        assert_int_equal(yolk_engine_batch_submit_prepared(r->engine, batch, prepared, indices,
                                                           count, 0, NULL, &first),
                         YOLK_OK);
        assert_int_equal(first, task);
        for (uint32_t i = 0; i < count; i++, task++)
            assert_int_equal(rig_poll(r, batch, task).cookie, 1000 + indices[i]);
        assert_memory_equal(r->local, expected, MANY * PIECE);
        memset(r->local, 0, MANY * PIECE);
        memset(expected, 0, MANY * PIECE);
    }
    uint32_t wrong[] = {0, MANY, 1};
    uint32_t count = r->scripts[0].count;
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, prepared, wrong, 3, 0, NULL, NULL),
        YOLK_ERR_INVALID);
    assert_int_equal(r->scripts[0].count, count);
    release(r, prepared);
    rig_free(r, batch);
    rig_close(r);
    free(expected);
}

/* Neighbours that are posted one after the other are one io; with one left out they are two. */
static void neighbours_are_merged(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[8];
    static const uint32_t some[] = {0, 1, 2, 5, 6, 7};
    static const uint32_t back[] = {3, 2, 1};
    rig_open(r);
    for (uint32_t i = 0; i < 8; i++)
        requests[i] = rig_request(r, YOLK_READ, (uint64_t)i * PIECE, PIECE);
    uint64_t prepared = prepare(r, requests, 8);
    uint64_t batch = rig_batch(r, 32);
    post(r, batch, prepared, NULL, 0);
    assert_int_equal(r->scripts[0].count, 1);
    post(r, batch, prepared, some, 6);
    assert_int_equal(r->scripts[0].count, 3);
    post(r, batch, prepared, back, 3);
    assert_int_equal(r->scripts[0].count, 6);
    release(r, prepared);
    rig_free(r, batch);
    rig_close(r);
}

static void one_bad_prepares_none(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[5];
    enum yolk_status verdicts[5];
    uint64_t prepared = 77;
    rig_open(r);
    scattered(r, requests, 5);
    requests[1].local = r->local - 1;
    requests[3].offset = RIG_SIZE;
    requests[4].hint = "unheard_of";
    assert_int_equal(yolk_engine_prepare(r->engine, requests, 5, verdicts, &prepared),
                     YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(verdicts[0], YOLK_OK);
    assert_int_equal(verdicts[1], YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(verdicts[2], YOLK_OK);
    assert_int_equal(verdicts[3], YOLK_ERR_INVALID);
    assert_int_equal(verdicts[4], YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_prepare(r->engine, requests, 0, verdicts, &prepared),
                     YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_OK);
    rig_close(r);
}

/* What is prepared keeps its memory registered, though nothing of it is under way. */
static void it_holds_registrations(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[4];
    rig_open(r);
    scattered(r, requests, 4);
    uint64_t prepared = prepare(r, requests, 4);
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_ERR_BUSY);
    uint64_t batch = rig_batch(r, 4);
    r->scripts[0].hold = true;
    post(r, batch, prepared, NULL, 0);
    release(r, prepared); /* what is under way goes on */
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_ERR_BUSY);
    for (uint32_t i = 0; i < r->scripts[0].count; i++)
        assert_true(scripted_end(&r->scripts[0], i, YOLK_OK, UINT64_MAX));
    for (uint32_t i = 0; i < 4; i++)
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    assert_int_equal(yolk_engine_unregister(r->engine, r->local, RIG_SIZE), YOLK_OK);
    rig_free(r, batch);
    rig_close(r);
}

static void stale_after_close(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[4];
    enum yolk_status verdicts[4];
    rig_open(r);
    scattered(r, requests, 4);
    uint64_t old = r->segment;
    rig_open_segment(r);
    requests[2].segment = r->segment; /* another handle of the same */
    uint64_t prepared = prepare(r, requests, 4);
    assert_int_equal(yolk_engine_segment_close(r->engine, old), YOLK_OK);
    uint64_t batch = rig_batch(r, 8);
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, prepared, NULL, 0, 0, verdicts, NULL),
        YOLK_ERR_STALE);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(verdicts[i], i == 2 ? YOLK_OK : YOLK_ERR_STALE);
        rig_expect(r, batch, i, verdicts[i], i == 2 ? PIECE : 0);
    }
    assert_int_equal(r->scripts[0].count, 1);
    release(r, prepared);
    rig_free(r, batch);
    rig_close(r);
}

/* The provider mounts its memory anew: noticed at the first access, refused without one after it.
 */
static void stale_after_another_life(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[4];
    static const uint8_t key[32] = {0};
    rig_open(r);
    scattered(r, requests, 4);
    uint64_t prepared = prepare(r, requests, 4);
    uint64_t batch = rig_batch(r, 12);
    post(r, batch, prepared, NULL, 0);
    yolk_served_set_segment(r->served, 10, key);
    memset(r->local, 0xee, RIG_SIZE);
    (void)!yolk_engine_batch_submit_prepared(r->engine, batch, prepared, NULL, 0, 0, NULL, NULL);
    for (uint32_t i = 4; i < 8; i++)
        rig_expect(r, batch, i, YOLK_ERR_STALE, 0);
    uint32_t count = r->scripts[0].count;
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, prepared, NULL, 0, 0, NULL, NULL),
        YOLK_ERR_STALE);
    for (uint32_t i = 8; i < 12; i++)
        rig_expect(r, batch, i, YOLK_ERR_STALE, 0);
    assert_int_equal(r->scripts[0].count, count);
    for (uint32_t i = 0; i < RIG_SIZE; i++)
        assert_int_equal(r->local[i], 0xee);
    release(r, prepared);
    rig_free(r, batch);
    rig_close(r);
}

static void a_deadline_for_each_post(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[2];
    rig_open(r);
    scattered(r, requests, 2);
    requests[1].deadline_ns = 3000;
    uint64_t prepared = prepare(r, requests, 2);
    uint64_t batch = rig_batch(r, 6);
    s->hold = true;
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, prepared, NULL, 0, 5000, NULL, NULL),
        YOLK_OK);
    clock_sim_set(&r->clock, 4000);
    assert_false(rig_poll(r, batch, 1).terminal);
    clock_sim_set(&r->clock, 5000);
    assert_int_equal(yolk_engine_batch_wait(r->engine, batch, 0), YOLK_OK);
    rig_expect(r, batch, 0, YOLK_ERR_TIMEOUT, 0);
    rig_expect(r, batch, 1, YOLK_ERR_TIMEOUT, 0);
    enum yolk_status verdicts[2];
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, prepared, NULL, 0, 0, verdicts, NULL),
        YOLK_ERR_TIMEOUT); /* its own is over */
    assert_int_equal(verdicts[0], YOLK_OK);
    assert_int_equal(verdicts[1], YOLK_ERR_TIMEOUT);
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, prepared, NULL, 0, 4999, NULL, NULL),
        YOLK_ERR_TIMEOUT);
    release(r, prepared);
    rig_free(r, batch);
    rig_close(r);
}

static void handles(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct yolk_request requests[2];
    rig_open(r);
    scattered(r, requests, 2);
    uint64_t batch = rig_batch(r, 2);
    uint64_t first = prepare(r, requests, 2);
    release(r, first);
    uint64_t second = prepare(r, requests, 2); /* in the same place */
    assert_int_not_equal(first, second);
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, first, NULL, 0, 0, NULL, NULL),
        YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_prepared_release(r->engine, first), YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_prepared_release(r->engine, UINT64_MAX), YOLK_ERR_STALE);
    uint32_t three[] = {0, 1, 0};
    assert_int_equal(
        yolk_engine_batch_submit_prepared(r->engine, batch, second, three, 3, 0, NULL, NULL),
        YOLK_ERR_LIMIT);
    rig_free(r, batch);
    rig_close(r); /* which gives back what was not released */
}

/* Room for the whole capacity again, and only once all is over. */
static void a_batch_is_reset(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct scripted *s = &r->scripts[0];
    struct yolk_request requests[4];
    struct yolk_task_status status;
    rig_open(r);
    scattered(r, requests, 4);
    uint64_t batch = rig_batch(r, 4);
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_OK); /* of none */
    s->hold = true;
    rig_submit(r, batch, requests, 4);
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_ERR_BUSY);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(scripted_end(s, i, YOLK_OK, UINT64_MAX));
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_ERR_BUSY);
    assert_true(scripted_end(s, 3, YOLK_OK, UINT64_MAX));
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(r->engine, batch, 0, &status), YOLK_ERR_INVALID);
    s->hold = false;
    rig_submit(r, batch, requests, 4);
    for (uint32_t i = 0; i < 4; i++)
        rig_expect(r, batch, i, YOLK_OK, PIECE);
    /* One that is stuck keeps it. */
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_OK);
    s->hold = true;
    s->deaf = true;
    requests[0].deadline_ns = 2000;
    rig_submit(r, batch, requests, 1);
    clock_sim_set(&r->clock, 2000);
    assert_false(rig_poll(r, batch, 0).terminal);
    clock_sim_set(&r->clock, UINT64_C(5001) * 1000000);
    rig_expect(r, batch, 0, YOLK_ERR_STUCK, 0);
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_ERR_BUSY);
    assert_true(scripted_end(s, s->count - 1, YOLK_OK, UINT64_MAX));
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_OK);
    rig_free(r, batch);
    assert_int_equal(yolk_engine_batch_reset(r->engine, batch), YOLK_ERR_STALE);
    rig_close(r);
}

/* One thread posts, another releases and prepares anew under it. */
struct race {
    struct rig *r;
    uint64_t batch;
    _Atomic uint64_t prepared;
    _Atomic int over;
    enum yolk_status wrong; /* what the thread did not expect */
};

static void post_again_and_again(void *arg)
{
    struct race *race = arg;
    struct yolk_engine *engine = race->r->engine;
    while (!race->over && race->wrong == YOLK_OK) {
        enum yolk_status status = yolk_engine_batch_submit_prepared(
            engine, race->batch, race->prepared, NULL, 0, 0, NULL, NULL);
        if (status != YOLK_ERR_STALE)
            race->wrong = status;
        (void)!yolk_engine_batch_wait(engine, race->batch, 0);
        if (race->wrong == YOLK_OK)
            race->wrong = yolk_engine_batch_reset(engine, race->batch);
    }
}

static void released_while_posted(void **state)
{
    (void)state;
    struct race race = {.r = rig_new(1)};
    struct yolk_request requests[4];
    enum yolk_status verdicts[4];
    struct thread thread = {0};
    enum yolk_status status = YOLK_OK;
    rig_open(race.r);
    scattered(race.r, requests, 4);
    race.prepared = prepare(race.r, requests, 4);
    race.batch = rig_batch(race.r, 4);
    assert_int_equal(thread_start(&thread, "poster", post_again_and_again, &race), YOLK_OK);
    for (uint32_t i = 0; i < 2000 && status == YOLK_OK; i++) {
        uint64_t fresh, old = race.prepared;
        status = yolk_engine_prepare(race.r->engine, requests, 4, verdicts, &fresh);
        if (status != YOLK_OK)
            break;
        race.prepared = fresh;
        status = yolk_engine_prepared_release(race.r->engine, old);
    }
    race.over = 1;
    thread_join(&thread); /* before anything is asserted: it looks at what lies here */
    assert_int_equal(status, YOLK_OK);
    assert_int_equal(race.wrong, YOLK_OK);
    release(race.r, race.prepared);
    rig_free(race.r, race.batch);
    assert_int_equal(yolk_engine_unregister(race.r->engine, race.r->local, RIG_SIZE), YOLK_OK);
    rig_close(race.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posted_as_often_as_wanted),
        cmocka_unit_test(some_of_them),
        cmocka_unit_test(neighbours_are_merged),
        cmocka_unit_test(one_bad_prepares_none),
        cmocka_unit_test(it_holds_registrations),
        cmocka_unit_test(stale_after_close),
        cmocka_unit_test(stale_after_another_life),
        cmocka_unit_test(a_deadline_for_each_post),
        cmocka_unit_test(handles),
        cmocka_unit_test(a_batch_is_reset),

        cmocka_unit_test(released_while_posted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
