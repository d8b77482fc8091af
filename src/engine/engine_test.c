/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with several transports: order, hints, failover, breakers, refusals. What holds for
 * each single transport is in test/conformance. */
#include <yolk/engine.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/internal.h"
#include "platform/clock.h"
#include "platform/thread.h"
#include "transport/fault/fault.h"
#include "transport/loop/loop.h"

enum { SIZE = 1 << 16 };

/* A transport whose open_target takes as long as a test likes. */
static struct {
    struct mutex mutex;
    struct condition changed;
    bool entered, leave;
    enum yolk_status (*inner)(void *, const char *, uint64_t, uint64_t, uint64_t, void **);
} slow;

static enum yolk_status slow_open_target(void *endpoint, const char *text, uint64_t segment,
                                         uint64_t size, uint64_t session, void **target)
{
    mutex_lock(&slow.mutex);
    slow.entered = true;
    condition_broadcast(&slow.changed);
    while (!slow.leave)
        condition_wait(&slow.changed, &slow.mutex);
    mutex_unlock(&slow.mutex);
    return slow.inner(endpoint, text, segment, size, session, target);
}

/* One engine that serves to itself by two transports: `first` can be broken, `second` is sound. */
struct pair {
    struct fault_control control;
    struct fault_options faults;
    struct yolk_transport_ops first;
    bool slow; /* first takes as long to open a target as the test likes */
    struct yolk_transport_ops second;
    struct clock_sim clock;
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint8_t memory[SIZE];
    uint8_t local[SIZE];
    uint64_t segment;
};

static struct pair *pair_open(struct pair *p)
{
    p->faults.inner = transport_loop_ops();
    p->faults.control = &p->control;
    transport_fault_make(&p->faults, &p->first);
    p->first.name = "first";
    if (p->slow) {
        slow.inner = p->first.open_target;
        p->first.open_target = slow_open_target;
    }
    p->second = *transport_loop_ops();
    p->second.name = "second";
    clock_sim_init(&p->clock, 1000);
    const struct yolk_transport_ops *transports[] = {&p->first, &p->second};
    const void *wrapped[] = {&p->faults, NULL};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 2;
    options.wrapped = wrapped;
    options.slice_bytes_max = 4096;
    options.transport.now_ns = clock_sim_clock(&p->clock).now_ns;
    options.transport.clock_self = clock_sim_clock(&p->clock).self;
    assert_int_equal(yolk_engine_create(&options, &p->engine), YOLK_OK);
    for (size_t i = 0; i < SIZE; i++)
        p->memory[i] = (uint8_t)(i * 31 >> 3);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = p->memory, .size = SIZE, .segment = 9};
    assert_int_equal(yolk_engine_serve(p->engine, &serve, &p->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {9, 1, SIZE,
                                                       yolk_served_endpoints(p->served)};
    assert_int_equal(yolk_engine_segment_open(p->engine, &descriptor, 5, &p->segment), YOLK_OK);
    assert_int_equal(yolk_engine_register(p->engine, p->local, SIZE), YOLK_OK);
    return p;
}

static void pair_close(struct pair *p)
{
    yolk_engine_unserve(p->engine, p->served);
    assert_int_equal(yolk_engine_destroy(p->engine), YOLK_OK);
    free(p);
}

static struct yolk_task_status read_all(struct pair *p, const char *hint)
{
    struct yolk_request request = {
        .opcode = YOLK_READ, .local = p->local, .segment = p->segment, .size = SIZE, .hint = hint};
    enum yolk_status verdict;
    uint64_t batch;
    struct yolk_task_status status;
    memset(p->local, 0, SIZE);
    assert_int_equal(yolk_engine_batch_create(p->engine, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(p->engine, batch, &request, 1, &verdict, NULL),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(p->engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(p->engine, batch, 0, &status), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(p->engine, batch), YOLK_OK);
    if (status.status == YOLK_OK)
        assert_memory_equal(p->local, p->memory, SIZE);
    return status;
}

static void order_and_hint(void **state)
{
    (void)state;
    struct pair *p = pair_open(calloc(1, sizeof(*p)));
    assert_string_equal(read_all(p, NULL).transport, "first");
    assert_string_equal(read_all(p, "second").transport, "second");
    struct yolk_request request = {.opcode = YOLK_READ,
                                   .local = p->local,
                                   .segment = p->segment,
                                   .size = SIZE,
                                   .hint = "second"};
    char *text;
    assert_int_equal(yolk_engine_describe_route(p->engine, &request, &text), YOLK_OK);
    assert_string_equal(text, "second: runs it\nfirst: would come next\n");
    free(text);
    pair_close(p);
}

static void fails_over_and_comes_back(void **state)
{
    (void)state;
    struct pair *p = pair_open(calloc(1, sizeof(*p)));
    struct yolk_engine_stats stats;
    atomic_store(&p->control.dead, 1);
    struct yolk_task_status status = read_all(p, NULL);
    assert_int_equal(status.status, YOLK_OK);
    assert_string_equal(status.transport, "second");
    yolk_engine_stats(p->engine, &stats);
    assert_true(stats.slices_failed_over >= 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(read_all(p, NULL).status, YOLK_OK);
    yolk_engine_stats(p->engine, &stats);
    assert_int_equal(stats.breakers_opened, 1);
    struct yolk_request request = {
        .opcode = YOLK_READ, .local = p->local, .segment = p->segment, .size = SIZE};
    char *text;
    assert_int_equal(yolk_engine_describe_route(p->engine, &request, &text), YOLK_OK);
    assert_non_null(strstr(text, "first: no: 3 failures in a row, skipped for 1000 ms more"));
    assert_non_null(strstr(text, "second: runs it"));
    free(text);
    atomic_store(&p->control.dead, 0);
    assert_string_equal(read_all(p, NULL).transport, "second"); /* not yet */
    clock_sim_advance(&p->clock, UINT64_C(1000000000));
    assert_string_equal(read_all(p, NULL).transport, "first");
    assert_string_equal(read_all(p, NULL).transport, "first");
    pair_close(p);
}

static void retries_where_it_helps(void **state)
{
    (void)state;
    /* The first route always says that its link broke, after all was moved. */
    struct pair *p = calloc(1, sizeof(*p));
    p->faults.late_fail_permille = 1000;
    pair_open(p);
    assert_int_equal(read_all(p, NULL).status, YOLK_OK);
    struct yolk_engine_stats stats;
    yolk_engine_stats(p->engine, &stats);
    assert_true(stats.slices_retried > 0);
    pair_close(p);
}

static enum yolk_status refuse_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size, (void)key;
    return YOLK_ERR_LIMIT;
}

static enum yolk_status no_probe(const struct yolk_transport_options *options,
                                 struct yolk_probe *out)
{
    (void)options;
    memcpy(out->reason, "no such device", sizeof("no such device"));
    return YOLK_ERR_UNSUPPORTED;
}

static void refusals_name_each_transport(void **state)
{
    (void)state;
    struct yolk_transport_ops absent = *transport_loop_ops();
    struct yolk_transport_ops picky = *transport_loop_ops();
    absent.name = "absent";
    absent.probe = no_probe;
    picky.name = "picky";
    picky.add_buffer = refuse_buffer;
    const struct yolk_transport_ops *transports[] = {&absent, &picky};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    struct yolk_engine *engine;
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_ERR_NO_ROUTE);
    assert_non_null(strstr(yolk_last_error(), "absent: "));
    assert_non_null(strstr(yolk_last_error(), "no such device"));
    options.transport_count = 2;
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_OK);
    char reason[128];
    assert_false(yolk_engine_has_transport(engine, "absent", reason, sizeof(reason)));
    assert_non_null(strstr(reason, "no such device"));
    assert_true(yolk_engine_has_transport(engine, "picky", reason, sizeof(reason)));
    static uint8_t memory[100];
    assert_int_equal(yolk_engine_register(engine, memory, sizeof(memory)), YOLK_ERR_UNSUPPORTED);
    assert_non_null(strstr(yolk_last_error(), "absent: "));
    assert_non_null(strstr(yolk_last_error(), "picky: "));
    /* Nothing half done is left. */
    assert_false(yolk_engine_is_registered(engine, memory, 1));
    assert_int_equal(yolk_engine_unregister(engine, memory, sizeof(memory)),
                     YOLK_ERR_NOT_REGISTERED);
    options.transport_count = 0;
    struct yolk_engine *other;
    assert_int_equal(yolk_engine_create(&options, &other), YOLK_ERR_CONFIG);
    transports[1] = &absent;
    options.transport_count = 2;
    assert_int_equal(yolk_engine_create(&options, &other), YOLK_ERR_CONFIG); /* two of one name */
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
}

static void tables_are_checked(void **state)
{
    (void)state;
    struct yolk_transport_ops given = *transport_loop_ops();
    struct yolk_transport_ops adopted;
    given.poll = NULL;
    given.fence_session = NULL;
    assert_int_equal(engine_transport_adopt(&given, &adopted), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), " poll"));
    assert_non_null(strstr(yolk_last_error(), " fence_session"));
    given = *transport_loop_ops();
    given.abi++;
    assert_int_equal(engine_transport_adopt(&given, &adopted), YOLK_ERR_VERSION);
    given = *transport_loop_ops();
    given.name = "Loop";
    assert_int_equal(engine_transport_adopt(&given, &adopted), YOLK_ERR_CONFIG);
    given.name = "a_name_too_long_";
    assert_int_equal(engine_transport_adopt(&given, &adopted), YOLK_ERR_CONFIG);
    /* A table of before the last slot was added works; what lies beyond its size is not read. */
    given = *transport_loop_ops();
    given.size = offsetof(struct yolk_transport_ops, wait_fds);
    memset(&given.wait_fds, 0xff, sizeof(given.wait_fds));
    assert_int_equal(engine_transport_adopt(&given, &adopted), YOLK_OK);
    assert_int_equal(adopted.wait_fds(NULL, NULL, 0), 0);
}

static void handles_and_limits(void **state)
{
    (void)state;
    struct pair *p = pair_open(calloc(1, sizeof(*p)));
    uint64_t batch;
    uint32_t pending;
    assert_int_equal(yolk_engine_batch_create(p->engine, 0, &batch), YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_batch_progress(p->engine, 12345, &pending), YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_batch_progress(p->engine, UINT64_MAX, &pending), YOLK_ERR_STALE);
    uint64_t seen[200];
    for (int i = 0; i < 200; i++)
        assert_int_equal(yolk_engine_batch_create(p->engine, 1, &seen[i]), YOLK_OK);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < i; k++)
            assert_true(seen[k] != seen[i]);
        assert_int_equal(yolk_engine_batch_free(p->engine, seen[i]), YOLK_OK);
    }
    assert_int_equal(yolk_engine_batch_create(p->engine, 1, &batch), YOLK_OK);
    for (int i = 0; i < 200; i++) {
        assert_true(seen[i] != batch);
        assert_int_equal(yolk_engine_batch_free(p->engine, seen[i]), YOLK_ERR_STALE);
    }
    assert_int_equal(yolk_engine_batch_wait(p->engine, batch, 0), YOLK_OK); /* nothing in it */
    const struct yolk_segment_descriptor odd = {9, 1, SIZE, "no equals sign"};
    uint64_t handle;
    assert_int_equal(yolk_engine_segment_open(p->engine, &odd, 5, &handle), YOLK_ERR_INVALID);
    /* Destroying while serving is refused and harms nothing; a live batch does not hinder the real
     * end. */
    assert_int_equal(yolk_engine_destroy(p->engine), YOLK_ERR_BUSY);
    assert_int_equal(read_all(p, NULL).status, YOLK_OK);
    pair_close(p);
}

struct opener {
    struct pair *p;
    uint64_t batch;
};

static void open_and_read(void *arg)
{
    struct opener *o = arg;
    struct yolk_request request = {
        .opcode = YOLK_READ, .local = o->p->local, .segment = o->p->segment, .size = SIZE};
    enum yolk_status verdict;
    (void)!yolk_engine_batch_submit(o->p->engine, o->batch, &request, 1, &verdict, NULL);
}

/* While one thread reaches a target for the first time, another one's request keeps its deadline,
 * and neither is sent over a worse route. */
static void opening_blocks_nobody_else(void **state)
{
    (void)state;
    struct pair *p = calloc(1, sizeof(*p));
    struct thread thread = {0};
    struct opener opener = {p, 0};
    struct yolk_task_status status;
    uint64_t batch;
    enum yolk_status verdict;
    mutex_init(&slow.mutex);
    condition_init(&slow.changed);
    p->slow = true;
    pair_open(p);
    assert_int_equal(yolk_engine_batch_create(p->engine, 1, &opener.batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_create(p->engine, 2, &batch), YOLK_OK);
    assert_int_equal(thread_start(&thread, "opener", open_and_read, &opener), YOLK_OK);
    mutex_lock(&slow.mutex);
    while (!slow.entered)
        condition_wait(&slow.changed, &slow.mutex);
    mutex_unlock(&slow.mutex);

    struct yolk_request requests[] = {
        {.opcode = YOLK_READ, .local = p->local, .segment = p->segment, .size = SIZE},
        {.opcode = YOLK_READ, .local = p->local, .segment = p->segment, .size = SIZE}};
    requests[0].deadline_ns = clock_sim_clock(&p->clock).now_ns(&p->clock) + 1000;
    assert_int_equal(yolk_engine_batch_submit(p->engine, batch, requests, 1, &verdict, NULL),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(p->engine, batch, 0, &status), YOLK_OK);
    assert_false(status.terminal);
    clock_sim_advance(&p->clock, 1000);
    assert_int_equal(yolk_engine_batch_poll(p->engine, batch, 0, &status), YOLK_OK);
    assert_true(status.terminal);
    assert_int_equal(status.status, YOLK_ERR_TIMEOUT);
    assert_int_equal(yolk_engine_batch_submit(p->engine, batch, requests + 1, 1, &verdict, NULL),
                     YOLK_OK);
    char *text;
    assert_int_equal(yolk_engine_describe_route(p->engine, requests + 1, &text), YOLK_OK);
    assert_non_null(strstr(text, "first: no: it is just being reached for the first time"));
    free(text);

    mutex_lock(&slow.mutex);
    slow.leave = true;
    condition_broadcast(&slow.changed);
    mutex_unlock(&slow.mutex);
    thread_join(&thread);
    assert_int_equal(yolk_engine_batch_wait(p->engine, opener.batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(p->engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(p->engine, batch, 1, &status), YOLK_OK);
    assert_int_equal(status.status, YOLK_OK);
    assert_string_equal(status.transport, "first");
    assert_int_equal(yolk_engine_batch_free(p->engine, opener.batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(p->engine, batch), YOLK_OK);
    pair_close(p);
    condition_destroy(&slow.changed);
    mutex_destroy(&slow.mutex);
}

/* Lets half of a buffer be touched, and counts. */
struct address_owner {
    const uint8_t *allowed;
    uint64_t size;
    int under_way, most, refused;
};

static enum yolk_status address_begin(void *self, const struct yolk_access_request *request)
{
    struct address_owner *owner = self;
    uint64_t start = (uint64_t)(uintptr_t)owner->allowed;
    if (request->offset < start || request->offset + request->size > start + owner->size) {
        owner->refused++;
        return YOLK_ERR_NOT_REGISTERED;
    }
    owner->under_way++;
    if (owner->under_way > owner->most)
        owner->most = owner->under_way;
    return YOLK_OK;
}

static void address_end(void *self, const struct yolk_access_request *request)
{
    (void)request;
    ((struct address_owner *)self)->under_way--;
}

static void addresses_of_this_process(void **state)
{
    (void)state;
    struct pair *p = pair_open(calloc(1, sizeof(struct pair)));
    struct address_owner owner = {.allowed = p->memory, .size = SIZE / 2};
    const struct yolk_owner given = {&owner, address_begin, address_end};
    struct yolk_served *served;
    uint64_t segment, batch;
    const void *base;
    uint64_t size;
    assert_int_equal(yolk_engine_serve_addresses(p->engine, 11, &given, &served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {11, 1, YOLK_ADDRESSES_SIZE,
                                                       yolk_served_endpoints(served)};
    assert_int_equal(yolk_engine_segment_open(p->engine, &descriptor, 5, &segment), YOLK_OK);
    assert_int_equal(yolk_engine_segment_map(p->engine, segment, &base, &size),
                     YOLK_ERR_UNSUPPORTED);
    struct yolk_request requests[3] = {
        {.opcode = YOLK_READ,
         .local = p->local,
         .segment = segment,
         .offset = (uint64_t)(uintptr_t)p->memory,
         .size = SIZE / 2},
        {.opcode = YOLK_WRITE,
         .local = p->local,
         .segment = segment,
         .offset = (uint64_t)(uintptr_t)p->memory + SIZE / 2 - 10,
         .size = 10},
        {.opcode = YOLK_READ,
         .local = p->local,
         .segment = segment,
         .offset = (uint64_t)(uintptr_t)p->memory + SIZE / 2,
         .size = 1},
    };
    const enum yolk_status wanted[3] = {YOLK_OK, YOLK_OK, YOLK_ERR_NOT_REGISTERED};
    memset(p->local, 0, SIZE);
    for (int i = 0; i < 3; i++) {
        enum yolk_status verdict;
        struct yolk_task_status status;
        assert_int_equal(yolk_engine_batch_create(p->engine, 1, &batch), YOLK_OK);
        assert_int_equal(
            yolk_engine_batch_submit(p->engine, batch, &requests[i], 1, &verdict, NULL), YOLK_OK);
        assert_int_equal(yolk_engine_batch_wait(p->engine, batch, 0), YOLK_OK);
        assert_int_equal(yolk_engine_batch_poll(p->engine, batch, 0, &status), YOLK_OK);
        assert_int_equal(status.status, wanted[i]);
        assert_int_equal(yolk_engine_batch_free(p->engine, batch), YOLK_OK);
        if (i == 0)
            assert_memory_equal(p->local, p->memory, SIZE / 2);
    }
    assert_memory_equal(p->memory + SIZE / 2 - 10, p->local, 10);
    assert_int_equal(owner.under_way, 0);
    assert_int_equal(owner.most, 1);
    assert_true(owner.refused > 0);
    assert_int_equal(yolk_engine_segment_close(p->engine, segment), YOLK_OK);
    yolk_engine_unserve(p->engine, served);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_of_this_process),
        cmocka_unit_test(order_and_hint),
        cmocka_unit_test(fails_over_and_comes_back),
        cmocka_unit_test(retries_where_it_helps),
        cmocka_unit_test(refusals_name_each_transport),
        cmocka_unit_test(tables_are_checked),
        cmocka_unit_test(handles_and_limits),
        cmocka_unit_test(opening_blocks_nobody_else),
    };
    return cmocka_run_group_tests_name("engine.engine", tests, NULL, NULL);
}
