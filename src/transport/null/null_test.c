/* SPDX-License-Identifier: Apache-2.0 */
/* What of the contract applies to a transport that moves nothing, and what a request over it takes:
 * no lock and no allocation. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/null/null.h"
#include "yolk/engine.h"

enum { SIZE = 1 << 20, SEGMENT = 3, MANY = 4096 };

/* The locks this thread took: the program's own functions come before the C library's. */
static _Thread_local uint64_t locks;

static void *next_symbol(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static void *_Atomic found; /* by whichever threads come first, and always the same */
    int (*real)(pthread_mutex_t *);
    if (found == NULL)
        found = next_symbol("pthread_mutex_lock");
    locks++;
    *(void **)&real = found;
    return real(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    static void *_Atomic found; /* by whichever threads come first, and always the same */
    int (*real)(pthread_rwlock_t *);
    if (found == NULL)
        found = next_symbol("pthread_rwlock_rdlock");
    locks++;
    *(void **)&real = found;
    return real(lock);
}

struct world {
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment;
    uint8_t *here, *there;
};

static void open_world(struct world *w)
{
    const struct yolk_transport_ops *transports[] = {transport_null_ops()};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    w->here = calloc(1, SIZE);
    w->there = malloc(SIZE);
    assert_non_null(w->here);
    assert_non_null(w->there);
    memset(w->there, 1, SIZE);
    assert_int_equal(yolk_engine_create(&options, &w->engine), YOLK_OK);
    assert_int_equal(yolk_engine_register(w->engine, w->here, SIZE), YOLK_OK);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = w->there, .size = SIZE, .segment = SEGMENT};
    assert_int_equal(yolk_engine_serve(w->engine, &serve, &w->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = SIZE, .endpoints = yolk_served_endpoints(w->served)};
    assert_int_equal(yolk_engine_segment_open(w->engine, &descriptor, 1, &w->segment), YOLK_OK);
}

static void close_world(struct world *w)
{
    yolk_engine_unserve(w->engine, w->served);
    assert_int_equal(yolk_engine_destroy(w->engine), YOLK_OK);
    free(w->here);
    free(w->there);
}

static enum yolk_status transfer(struct world *w, enum yolk_opcode opcode, uint64_t offset,
                                 uint64_t size, struct yolk_task_status *out)
{
    const struct yolk_request request = {.opcode = opcode,
                                         .local = w->here,
                                         .segment = w->segment,
                                         .offset = offset,
                                         .size = size,
                                         .cookie = 11};
    enum yolk_status verdict;
    uint64_t batch;
    assert_int_equal(yolk_engine_batch_create(w->engine, 1, &batch), YOLK_OK);
    (void)!yolk_engine_batch_submit(w->engine, batch, &request, 1, &verdict, NULL);
    assert_int_equal(yolk_engine_batch_wait(w->engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(w->engine, batch, 0, out), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(w->engine, batch), YOLK_OK);
    return verdict;
}

static void all_is_done_and_nothing_moved(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 4096, SIZE};
    struct world w;
    open_world(&w);
    for (int i = 0; i < 8; i++) {
        struct yolk_task_status status;
        enum yolk_opcode opcode = i % 2 == 0 ? YOLK_READ : YOLK_WRITE;
        assert_int_equal(transfer(&w, opcode, 0, sizes[i / 2], &status), YOLK_OK);
        assert_true(status.terminal);
        assert_int_equal(status.status, YOLK_OK);
        assert_int_equal(status.transferred, sizes[i / 2]);
        assert_int_equal(status.cookie, 11);
        assert_string_equal(status.transport, "null");
    }
    for (int i = 0; i < SIZE; i++) {
        assert_int_equal(w.here[i], 0);
        assert_int_equal(w.there[i], 1);
    }
    close_world(&w);
}

static void what_the_engine_refuses_stays_refused(void **state)
{
    (void)state;
    struct world w;
    struct yolk_task_status status;
    open_world(&w);
    assert_int_equal(transfer(&w, YOLK_READ, 1, SIZE, &status), YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_unregister(w.engine, w.here, SIZE), YOLK_OK);
    assert_int_equal(transfer(&w, YOLK_READ, 0, 1, &status), YOLK_ERR_NOT_REGISTERED);
    close_world(&w);
}

static void a_stopped_endpoint_takes_nothing(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = transport_null_ops();
    const struct yolk_transport_options options = {.struct_size = sizeof(options)};
    void *endpoint, *target, *channel;
    assert_int_equal(ops->init(&options, &endpoint), YOLK_OK);
    assert_int_equal(ops->open_target(endpoint, "1", SEGMENT, 1, 1, &target), YOLK_OK);
    assert_int_equal(ops->channel_open(endpoint, target, &channel), YOLK_OK);
    assert_int_equal(ops->stop(endpoint), YOLK_OK);
    struct yolk_io io = {.opcode = YOLK_READ, .size = 1};
    assert_int_equal(ops->submit(channel, &io), YOLK_SUBMIT_FAILED);
    assert_int_equal(io.status, YOLK_ERR_CLOSED);
    void *another;
    assert_int_equal(ops->channel_open(endpoint, target, &another), YOLK_ERR_CLOSED);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(endpoint, target);
    ops->fini(endpoint);
}

/* The locks of one call with so many requests. */
static uint64_t locks_of(struct world *w, uint32_t count)
{
    static struct yolk_request requests[MANY];
    static enum yolk_status verdicts[MANY];
    uint64_t batch;
    for (uint32_t i = 0; i < count; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = w->here + i,
                                            .segment = w->segment,
                                            .offset = i,
                                            .size = 1};
    assert_int_equal(yolk_engine_batch_create(w->engine, count, &batch), YOLK_OK);
    uint64_t before = locks;
    assert_int_equal(yolk_engine_batch_submit(w->engine, batch, requests, count, verdicts, NULL),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(w->engine, batch, 0), YOLK_OK);
    uint64_t taken = locks - before;
    assert_int_equal(yolk_engine_batch_free(w->engine, batch), YOLK_OK);
    return taken;
}

static void no_request_takes_a_lock(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    uint64_t few = locks_of(&w, 2); /* the first time it also reaches the target */
    assert_true(few > 0);           /* they are counted at all: a call takes some */
    few = locks_of(&w, 2);
    assert_int_equal(locks_of(&w, MANY), few);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_done_and_nothing_moved),
        cmocka_unit_test(what_the_engine_refuses_stays_refused),
        cmocka_unit_test(a_stopped_endpoint_takes_nothing),
        cmocka_unit_test(no_request_takes_a_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
