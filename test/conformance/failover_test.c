/* SPDX-License-Identifier: Apache-2.0 */
/* What fails on one transport is done by the next, wherever it failed and whatever was said: every
 * byte is in its place then, and none beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yolk/engine.h>

#include "transport/fault/fault.h"
#include "transport/loop/loop.h"

enum { REQUESTS = 24, BYTES = 3000, PLACE = 4096, SIZE = REQUESTS * PLACE, SEGMENT = 5 };

struct two {
    struct fault_options faults;
    struct fault_control control;
    struct yolk_transport_ops first, second;
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment;
    uint8_t there[SIZE], here[SIZE];
};

static uint8_t byte_of(uint64_t seed, uint64_t place)
{
    return (uint8_t)(((place + seed * 77777) * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static struct two *two_open(const struct fault_options *faults)
{
    struct two *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    t->faults = *faults;
    t->faults.inner = transport_loop_ops();
    t->faults.control = &t->control;
    transport_fault_make(&t->faults, &t->first);
    t->first.name = "first";
    t->second = *transport_loop_ops();
    t->second.name = "second";
    const struct yolk_transport_ops *const tables[] = {&t->first, &t->second};
    const void *const wrapped[] = {&t->faults, NULL};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = tables;
    options.transport_count = 2;
    options.wrapped = wrapped;
    options.slice_bytes_max = 1024;
    options.window_slices = 2;
    options.breaker_failures = 1000000; /* each is tried on the first */
    assert_int_equal(yolk_engine_create(&options, &t->engine), YOLK_OK);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = t->there, .size = SIZE, .segment = SEGMENT};
    assert_int_equal(yolk_engine_serve(t->engine, &serve, &t->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 1, SIZE,
                                                       yolk_served_endpoints(t->served)};
    assert_int_equal(yolk_engine_segment_open(t->engine, &descriptor, 1, &t->segment), YOLK_OK);
    assert_int_equal(yolk_engine_register(t->engine, t->here, SIZE), YOLK_OK);
    return t;
}

static void two_close(struct two *t)
{
    yolk_engine_unserve(t->engine, t->served);
    assert_int_equal(yolk_engine_destroy(t->engine), YOLK_OK);
    free(t);
}

/* All requests one way; whether the second transport ran one of them last. */
static bool move_all(struct two *t, enum yolk_opcode opcode, uint64_t seed)
{
    uint8_t *from = opcode == YOLK_READ ? t->there : t->here;
    uint8_t *to = opcode == YOLK_READ ? t->here : t->there;
    struct yolk_request requests[REQUESTS];
    enum yolk_status verdicts[REQUESTS];
    bool second = false;
    uint64_t batch;
    for (uint64_t i = 0; i < SIZE; i++)
        from[i] = byte_of(seed, i);
    memset(to, 0xee, SIZE);
    assert_int_equal(yolk_engine_batch_create(t->engine, REQUESTS, &batch), YOLK_OK);
    for (uint64_t i = 0; i < REQUESTS; i++)
        requests[i] = (struct yolk_request){.opcode = opcode,
                                            .local = t->here + i * PLACE,
                                            .segment = t->segment,
                                            .offset = i * PLACE,
                                            .size = BYTES};
    assert_int_equal(yolk_engine_batch_submit(t->engine, batch, requests, REQUESTS, verdicts, NULL),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(t->engine, batch,
                                            yolk_engine_now_ns(t->engine) + UINT64_C(30000000000)),
                     YOLK_OK);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct yolk_task_status status;
        assert_int_equal(yolk_engine_batch_poll(t->engine, batch, i, &status), YOLK_OK);
        assert_int_equal(status.status, YOLK_OK);
        assert_int_equal(status.transferred, BYTES);
        second = second || strcmp(status.transport, "second") == 0;
    }
    assert_int_equal(yolk_engine_batch_free(t->engine, batch), YOLK_OK);
    for (uint64_t i = 0; i < SIZE; i++)
        assert_int_equal(to[i], i % PLACE < BYTES ? byte_of(seed, i) : 0xee);
    return second;
}

static void check_failover(const struct fault_options *faults)
{
    struct two *t = two_open(faults);
    struct yolk_engine_stats stats;
    assert_true(move_all(t, YOLK_READ, 1));
    assert_true(move_all(t, YOLK_WRITE, 2));
    yolk_engine_stats(t->engine, &stats);
    assert_true(stats.slices_failed_over > 0);
    assert_int_equal(stats.tasks_ok, 2 * REQUESTS);
    two_close(t);
}

static const enum yolk_status failures[] = {YOLK_ERR_LINK, YOLK_ERR_TIMEOUT, YOLK_ERR_PEER_DEAD,
                                            YOLK_ERR_REFUSED};
enum { FAILURES = sizeof(failures) / sizeof(failures[0]) };

static void what_fails_in_submit_is_done_elsewhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < FAILURES; i++)
        check_failover(&(struct fault_options){.fail_permille = 1000, .failure = failures[i]});
}

/* All of it was moved, and its answer is a failure: it is moved once more. */
static void what_fails_in_poll_is_done_elsewhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < FAILURES; i++)
        check_failover(&(struct fault_options){.late_fail_permille = 1000, .failure = failures[i]});
}

static void what_fails_in_the_middle_goes_on_elsewhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < FAILURES; i++)
        check_failover(&(struct fault_options){.partial_permille = 1000, .failure = failures[i]});
}

static void a_peer_that_dies_on_one_way_is_reached_on_the_other(void **state)
{
    (void)state;
    check_failover(&(struct fault_options){.death_permille = 200, .delay_permille = 500});
}

static void whatever_fails_somewhere_ends_well(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++)
        check_failover(&(struct fault_options){.seed = seed,
                                               .again_permille = 100,
                                               .defer_permille = 200,
                                               .delay_permille = 200,
                                               .reorder_permille = 200,
                                               .duplicate_permille = 200,
                                               .short_permille = 200,
                                               .fail_permille = 150,
                                               .late_fail_permille = 150,
                                               .partial_permille = 150,
                                               .failure = failures[seed % FAILURES]});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fails_in_submit_is_done_elsewhere),
        cmocka_unit_test(what_fails_in_poll_is_done_elsewhere),
        cmocka_unit_test(what_fails_in_the_middle_goes_on_elsewhere),
        cmocka_unit_test(a_peer_that_dies_on_one_way_is_reached_on_the_other),
        cmocka_unit_test(whatever_fails_somewhere_ends_well),
    };
    return cmocka_run_group_tests_name("failover", tests, NULL, NULL);
}
