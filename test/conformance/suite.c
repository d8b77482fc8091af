/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/access.h"
#include "wire/ticket.h"

/* -- plain transfers -- */

static void sizes(void **state)
{
    static const uint64_t list[] = {0,
                                    1,
                                    2,
                                    63,
                                    4096,
                                    WORLD_SLICE - 1,
                                    WORLD_SLICE,
                                    WORLD_SLICE + 1,
                                    10 * WORLD_SLICE + 3,
                                    WORLD_SIZE};
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        memset(w.local, 0xee, WORLD_SIZE);
        assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, list[i]), YOLK_OK);
        world_assert_filled(w.local, list[i], 1, 0);
        for (uint64_t k = list[i]; k < WORLD_SIZE; k++)
            assert_int_equal(w.local[k], 0xee);
    }
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        world_fill(w.local, WORLD_SIZE, 100 + i);
        world_fill(w.memory.pointer, WORLD_SIZE, 1);
        assert_int_equal(world_transfer(&w, YOLK_WRITE, w.local, 0, list[i]), YOLK_OK);
        world_assert_filled(w.memory.pointer, list[i], 100 + i, 0);
        world_assert_filled((uint8_t *)w.memory.pointer + list[i], WORLD_SIZE - list[i], 1,
                            list[i]);
    }
    /* No memory at all is fine for no bytes. */
    assert_int_equal(world_transfer(&w, YOLK_READ, NULL, WORLD_SIZE, 0), YOLK_OK);
    world_close(&w);
}

static void unaligned(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    for (uint64_t head = 0; head < 8; head++) {
        for (uint64_t tail = 0; tail < 8; tail += 3) {
            uint64_t offset = 4096 + head;
            uint64_t size = WORLD_SLICE + 64 - head - tail;
            uint8_t *local = w.local + 8192 + (head * 5 + tail) % 16;
            assert_int_equal(world_transfer(&w, YOLK_READ, local, offset, size), YOLK_OK);
            world_assert_filled(local, size, 1, offset);
        }
    }
    world_close(&w);
}

static void bounds(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    uint8_t *end = w.local + WORLD_SIZE;
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local + 4099, 0, 4096), YOLK_OK);
    world_assert_filled(w.local + 4099, 4096, 1, 0);
    assert_int_equal(world_transfer(&w, YOLK_READ, end - 1, 0, 1), YOLK_OK);
    assert_int_equal(world_transfer(&w, YOLK_READ, end - 1, 0, 2), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(world_transfer(&w, YOLK_READ, end, 0, 1), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local - 1, 0, 2), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(world_transfer(&w, YOLK_READ, NULL, 0, 1), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, WORLD_SIZE, 1), YOLK_ERR_INVALID);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, WORLD_SIZE - 1, 2), YOLK_ERR_INVALID);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, UINT64_MAX, 2), YOLK_ERR_INVALID);
    struct yolk_request request = world_request(&w, (enum yolk_opcode)9, w.local, 0, 1);
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_INVALID);
    world_close(&w);
}

/* The consumer believes the segment to be larger than it is: the provider must refuse. */
static void provider_checks_range(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    const struct yolk_segment_descriptor lie = {WORLD_SEGMENT, 1, WORLD_SIZE * 2,
                                                yolk_served_endpoints(w.served)};
    uint64_t handle;
    assert_int_equal(yolk_engine_segment_open(w.consumer, &lie, WORLD_SESSION, &handle), YOLK_OK);
    memset(w.local, 0xee, 16);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, WORLD_SIZE - 8, 16);
    request.segment = handle;
    assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
    request.opcode = YOLK_WRITE;
    assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
    world_assert_filled(w.memory.pointer, WORLD_SIZE, 1, 0);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_OK);
    world_close(&w);
}

static void registration(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    struct yolk_engine *e = w.consumer;
    uint8_t *more = malloc(8192);
    assert_int_equal(yolk_engine_register(e, NULL, 1), YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_register(e, more, 0), YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_register(e, more + 1024, 4096), YOLK_OK);
    assert_int_equal(yolk_engine_register(e, more + 1024, 4096), YOLK_OK);
    assert_int_equal(yolk_engine_register(e, more + 2048, 100), YOLK_OK);
    assert_int_equal(yolk_engine_register(e, more, 8192), YOLK_ERR_OVERLAP);
    assert_int_equal(yolk_engine_register(e, more, 1025), YOLK_ERR_OVERLAP);
    assert_int_equal(yolk_engine_register(e, more, 1024), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more + 2048, 99), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_engine_unregister(e, more + 1024, 4096), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more + 1024, 4096), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more + 1024, 4096), YOLK_ERR_NOT_REGISTERED);
    /* Still alive through the range inside it. */
    assert_int_equal(world_transfer(&w, YOLK_READ, more + 2048, 0, 100), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more + 2048, 100), YOLK_OK);
    assert_int_equal(world_transfer(&w, YOLK_READ, more + 2048, 0, 100), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_engine_register(e, more + 1000, 24), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more + 1000, 24), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more, 1024), YOLK_OK);
    assert_int_equal(yolk_engine_register(e, more, 8192), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(e, more, 8192), YOLK_OK);
    free(more);
    world_close(&w);
}

/* -- identity and permission -- */

static void tickets(void **state)
{
    const struct conformance_fixture *fixture = *state;
    struct world w;
    if (!fixture->checks_tickets) {
        print_message("SKIP: %s: %s\n", fixture->ops->name,
                      fixture->serves_files ? "the owner of a file asks for tickets of its own"
                                            : "consumers map the memory; tickets are not seen");
        skip();
    }
    world_init(&w, fixture);
    w.require_tickets = 1;
    world_open(&w);
    world_fill(w.local, WORLD_SIZE, 5);
    struct yolk_request request = world_request(&w, YOLK_WRITE, w.local, 4096, WORLD_SLICE + 512);
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_ACCESS);
    request.ticket = (struct yolk_ticket){.offset = 4096, .size = WORLD_SLICE + 512, .op = 9};
    wire_ticket_mac(w.key, WORLD_SEGMENT, 4096, WORLD_SLICE + 512, WORLD_SESSION, 9,
                    request.ticket.mac);
    assert_int_equal(world_run(&w, &request, NULL), YOLK_OK);
    world_assert_filled((uint8_t *)w.memory.pointer + 4096, WORLD_SLICE + 512, 5, 0);
    request.offset--;
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_ACCESS);
    request.offset++;
    request.ticket.mac[3] ^= 1;
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_ACCESS);
    world_assert_filled(w.memory.pointer, 4096, 1, 0);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, WORLD_SIZE), YOLK_OK);
    world_close(&w);
}

static void stale_segment(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_OK);
    yolk_served_set_segment(w.served, WORLD_SEGMENT + 1, w.key);
    memset(w.local, 0xee, 4096);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_ERR_STALE);
    assert_int_equal(world_transfer(&w, YOLK_WRITE, w.local, 0, 4096), YOLK_ERR_STALE);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(w.local[i], 0xee);
    world_assert_filled(w.memory.pointer, WORLD_SIZE, 1, 0);
    const struct yolk_segment_descriptor anew = {WORLD_SEGMENT + 1, 1, WORLD_SIZE,
                                                 yolk_served_endpoints(w.served)};
    uint64_t old = w.segment;
    assert_int_equal(yolk_engine_segment_open(w.consumer, &anew, WORLD_SESSION, &w.segment),
                     YOLK_OK);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_OK);
    world_assert_filled(w.local, 4096, 1, 0);
    assert_int_equal(yolk_engine_segment_close(w.consumer, old), YOLK_OK);
    assert_int_equal(yolk_engine_segment_close(w.consumer, old), YOLK_ERR_STALE);
    w.segment = old;
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_ERR_STALE);
    world_close(&w);
}

/* Another life of the provider at the same address must not be taken for the old one. */
static void provider_restarts(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, 4096), YOLK_OK);
    world_close_provider(&w);
    world_open_provider(&w);
    memset(w.local, 0xee, 4096);
    for (int i = 0; i < 3; i++) {
        struct yolk_request request = world_request(&w, YOLK_READ, w.local, 0, 4096);
        request.deadline_ns = world_deadline(&w, 10000);
        assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
        request.opcode = YOLK_WRITE;
        assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
    }
    for (int i = 0; i < 4096; i++)
        assert_int_equal(w.local[i], 0xee);
    world_assert_filled(w.memory.pointer, WORLD_SIZE, 1, 0);
    world_close(&w);
}

static void fence(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    world_fill(w.local, 4096, 3);
    assert_int_equal(world_transfer(&w, YOLK_WRITE, w.local, 0, 4096), YOLK_OK);
    enum yolk_status status;
    uint64_t until = world_deadline(&w, 20000);
    bool closed = false;
    while ((status = yolk_served_fence_session(w.served, WORLD_SESSION)) == YOLK_ERR_AGAIN) {
        /* A consumer that maps the memory may still write until it lets go, so it was right to say
         * AGAIN. Refused it is already, though, wherever the provider sees the access. */
        world_assert_filled(w.memory.pointer, 4096, 3, 0);
        if (!closed)
            assert_int_equal(yolk_engine_segment_close(w.consumer, w.segment), YOLK_OK);
        closed = true;
        if (yolk_engine_now_ns(w.consumer) > until)
            fail_msg("the session is never fenced");
    }
    assert_int_equal(status, YOLK_OK);
    const struct yolk_segment_descriptor same = {WORLD_SEGMENT, 1, WORLD_SIZE,
                                                 yolk_served_endpoints(w.served)};
    if (closed)
        assert_int_equal(yolk_engine_segment_open(w.consumer, &same, WORLD_SESSION, &w.segment),
                         YOLK_OK);
    world_fill(w.local, 4096, 4);
    assert_int_not_equal(world_transfer(&w, YOLK_WRITE, w.local, 0, 4096), YOLK_OK);
    world_assert_filled(w.memory.pointer, 4096, 3, 0);
    /* Others are not touched by it. */
    assert_int_equal(yolk_engine_segment_open(w.consumer, &same, WORLD_SESSION + 1, &w.segment),
                     YOLK_OK);
    assert_int_equal(world_transfer(&w, YOLK_WRITE, w.local, 0, 4096), YOLK_OK);
    world_assert_filled(w.memory.pointer, 4096, 4, 0);
    world_close(&w);
}

static void mapping(void **state)
{
    const struct conformance_fixture *fixture = *state;
    struct world w;
    world_init(&w, fixture);
    world_open(&w);
    const void *base = NULL;
    uint64_t size = 0;
    enum yolk_status status = yolk_engine_segment_map(w.consumer, w.segment, &base, &size);
    if ((fixture->ops->caps & YOLK_CAP_MAP) == 0) {
        assert_int_equal(status, YOLK_ERR_UNSUPPORTED);
    } else {
        assert_int_equal(status, YOLK_OK);
        assert_true(size >= WORLD_SIZE);
        world_assert_filled(base, WORLD_SIZE, 1, 0);
    }
    world_close(&w);
}

/* -- batches -- */

void run_many(struct world *w, uint32_t count, uint32_t size, enum yolk_opcode opcode)
{
    struct yolk_request *requests = calloc(count, sizeof(*requests));
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    uint64_t batch;
    uint32_t first;
    assert_int_equal(yolk_engine_batch_create(w->consumer, count, &batch), YOLK_OK);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t place = (uint64_t)i * size % (WORLD_SIZE - size + 1) / size * size;
        requests[i] = world_request(w, opcode, w->local + place, place, size);
        requests[i].cookie = i;
    }
    assert_int_equal(
        yolk_engine_batch_submit(w->consumer, batch, requests, count, verdicts, &first), YOLK_OK);
    assert_int_equal(first, 0);
    assert_int_equal(yolk_engine_batch_wait(w->consumer, batch, world_deadline(w, 60000)), YOLK_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct yolk_task_status status;
        assert_int_equal(yolk_engine_batch_poll(w->consumer, batch, i, &status), YOLK_OK);
        assert_true(status.terminal);
        assert_int_equal(status.status, YOLK_OK);
        assert_int_equal(status.transferred, size);
        assert_int_equal(status.cookie, i);
    }
    assert_int_equal(yolk_engine_batch_submit(w->consumer, batch, requests, 1, verdicts, NULL),
                     YOLK_ERR_LIMIT);
    assert_int_equal(yolk_engine_batch_free(w->consumer, batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(w->consumer, batch), YOLK_ERR_STALE);
    free(requests);
    free(verdicts);
}

static void ten_thousand(void **state)
{
    struct world w;
    world_init(&w, *state);
    world_open(&w);
    run_many(&w, 10000, 100, YOLK_READ); /* each to a place of its own */
    world_assert_filled(w.local, 10000 * 100, 1, 0);
    world_fill(w.local, WORLD_SIZE, 8);
    run_many(&w, 10000, 512, YOLK_WRITE);
    world_assert_filled(w.memory.pointer, WORLD_SIZE / 512 * 512, 8, 0);
    struct yolk_engine_stats stats;
    yolk_engine_stats(w.consumer, &stats);
    assert_int_equal(stats.tasks_submitted, 20000);
    assert_int_equal(stats.tasks_ok, 20000);
    world_close(&w);
}

struct caller {
    struct world *world;
    uint32_t number;
    uint32_t wrong;
};

enum { CALLERS = 8, CALLER_ROUNDS = 50, CALLER_BYTES = WORLD_SIZE / CALLERS };

/* cmocka's asserts are for the main thread only, so mistakes are counted. */
static void *caller_main(void *arg)
{
    struct caller *caller = arg;
    struct world *w = caller->world;
    uint64_t place = (uint64_t)caller->number * CALLER_BYTES;
    for (uint32_t round = 0; round < CALLER_ROUNDS; round++) {
        struct yolk_request requests[4];
        enum yolk_status verdicts[4];
        uint64_t batch;
        uint64_t piece = CALLER_BYTES / 4;
        world_fill(w->local + place, CALLER_BYTES, round);
        for (uint32_t pass = 0; pass < 2; pass++) {
            for (uint32_t i = 0; i < 4; i++)
                requests[i] = world_request(w, pass == 0 ? YOLK_WRITE : YOLK_READ,
                                            w->local + place + i * piece, place + i * piece, piece);
            if (pass == 1)
                memset(w->local + place, 0, CALLER_BYTES);
            if (yolk_engine_batch_create(w->consumer, 4, &batch) != YOLK_OK ||
                yolk_engine_batch_submit(w->consumer, batch, requests, 4, verdicts, NULL) !=
                    YOLK_OK ||
                yolk_engine_batch_wait(w->consumer, batch, world_deadline(w, 60000)) != YOLK_OK)
                caller->wrong++;
            for (uint32_t i = 0; i < 4; i++) {
                struct yolk_task_status status;
                if (yolk_engine_batch_poll(w->consumer, batch, i, &status) != YOLK_OK ||
                    status.status != YOLK_OK)
                    caller->wrong++;
            }
            if (yolk_engine_batch_free(w->consumer, batch) != YOLK_OK)
                caller->wrong++;
        }
        for (uint64_t i = 0; i < CALLER_BYTES; i++)
            caller->wrong += w->local[place + i] != world_byte(round, i);
    }
    return NULL;
}

static void parallel_callers(void **state)
{
    struct world w;
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    world_init(&w, *state);
    world_open(&w);
    for (uint32_t i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){&w, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
    world_close(&w);
}

static void cancel_and_free(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.delay_permille = 1000;
    world_open(&w);
    uint64_t batch;
    struct yolk_request requests[8];
    enum yolk_status verdicts[8];
    struct yolk_task_status status;
    assert_int_equal(yolk_engine_batch_create(w.consumer, 8, &batch), YOLK_OK);
    for (uint32_t i = 0; i < 8; i++)
        requests[i] = world_request(&w, YOLK_READ, w.local + i * 131072, i * 131072, 131072);
    assert_int_equal(yolk_engine_batch_submit(w.consumer, batch, requests, 8, verdicts, NULL),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_cancel(w.consumer, batch, 3), YOLK_OK);
    assert_int_equal(yolk_engine_batch_cancel(w.consumer, batch, 8), YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_batch_wait(w.consumer, batch, world_deadline(&w, 30000)), YOLK_OK);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, i, &status), YOLK_OK);
        assert_true(status.terminal);
        if (i != 3)
            assert_int_equal(status.status, YOLK_OK); /* siblings are not harmed */
        else if (status.status != YOLK_OK)
            assert_int_equal(status.status, YOLK_ERR_CANCELED);
        if (status.status == YOLK_OK)
            world_assert_filled(w.local + i * 131072, 131072, 1, i * 131072);
    }
    /* Cancel after the end changes nothing. */
    assert_int_equal(yolk_engine_batch_cancel(w.consumer, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, 0, &status), YOLK_OK);
    assert_int_equal(status.status, YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(w.consumer, batch), YOLK_OK);
    /* Freed in flight, and the segment closed under it: reclaimed when quiet. Each has memory of
     * its own, because an earlier one may still be on its way. */
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 8; i++) {
            requests[i].local = w.local + (round * 8 + i) * 6144;
            requests[i].size = 6144;
        }
        assert_int_equal(yolk_engine_batch_create(w.consumer, 8, &batch), YOLK_OK);
        assert_int_equal(yolk_engine_batch_submit(w.consumer, batch, requests, 8, verdicts, NULL),
                         YOLK_OK);
        if (round == 19)
            assert_int_equal(yolk_engine_segment_close(w.consumer, w.segment), YOLK_OK);
        assert_int_equal(yolk_engine_batch_free(w.consumer, batch), YOLK_OK);
        assert_int_equal(yolk_engine_batch_poll(w.consumer, batch, 0, &status), YOLK_ERR_STALE);
    }
    world_close(&w);
}

/* Engine closed with everything still in flight: world_close must succeed all the same. */
static void close_in_flight(void **state)
{
    struct world w;
    world_init(&w, *state);
    w.faults.drop_permille = 300;
    w.faults.delay_permille = 500;
    world_open(&w);
    uint64_t batches[16];
    enum yolk_status verdict;
    for (uint32_t i = 0; i < 16; i++) {
        struct yolk_request request = world_request(&w, i % 2 == 0 ? YOLK_READ : YOLK_WRITE,
                                                    w.local + i * 65536, i * 65536, 65536);
        assert_int_equal(yolk_engine_batch_create(w.consumer, 1, &batches[i]), YOLK_OK);
        assert_int_equal(
            yolk_engine_batch_submit(w.consumer, batches[i], &request, 1, &verdict, NULL), YOLK_OK);
    }
    world_close_consumer(&w);
    world_close_provider(&w);
}

/* -- a real peer, killed -- */

static void provider_process(const struct conformance_fixture *fixture, int out)
{
    struct world w;
    world_init(&w, fixture);
    world_open_provider(&w);
    const char *text = yolk_served_endpoints(w.served);
    if (write(out, text, strlen(text) + 1) < 0)
        _exit(1);
    for (;;)
        pause();
}

static void killed_peer(void **state)
{
    const struct conformance_fixture *fixture = *state;
    if ((fixture->ops->caps & YOLK_CAP_SAME_PROCESS) != 0) {
        print_message("SKIP: %s has no peer process\n", fixture->ops->name);
        skip();
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        provider_process(fixture, ends[1]);
    close(ends[1]);
    char text[4096] = "";
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    close(ends[0]);
    struct world w;
    world_init(&w, fixture);
    world_open_consumer(&w, text);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, WORLD_SIZE), YOLK_OK);
    world_assert_filled(w.local, WORLD_SIZE, 1, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, 0, WORLD_SIZE);
    uint64_t start = yolk_engine_now_ns(w.consumer);
    if ((fixture->ops->caps & YOLK_CAP_PEER_DEATH) == 0)
        request.deadline_ns = world_deadline(&w, 5000);
    assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
    request.opcode = YOLK_WRITE;
    assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
    assert_true(yolk_engine_now_ns(w.consumer) - start < UINT64_C(15000000000));
    world_close(&w);
}

static void leaves_nothing(void **state)
{
    uint64_t fds = 0;
    uint64_t threads = 0;
    uint64_t maps = 0;
    uint64_t before = world_threads();
    for (int round = 0; round < 4; round++) {
        struct world w;
        world_init(&w, *state);
        w.faults.delay_permille = 300;
        world_open(&w);
        assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, WORLD_SIZE), YOLK_OK);
        world_close(&w);
        if (round > 0) { /* the first may open what the C library keeps */
            assert_int_equal(world_open_fds(), fds);
            assert_int_equal(world_threads(), threads);
            assert_int_equal(world_shared_maps(), maps);
        }
        fds = world_open_fds();
        threads = world_threads();
        maps = world_shared_maps();
    }
    assert_int_equal(threads, before);
    assert_int_equal(maps, 0);
}

static void describes_routes(void **state)
{
    const struct conformance_fixture *fixture = *state;
    struct world w;
    world_init(&w, fixture);
    world_open(&w);
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, 0, 4096);
    char *text = NULL;
    char expected[64];
    snprintf(expected, sizeof(expected), "%s: runs it\n", fixture->ops->name);
    assert_int_equal(yolk_engine_describe_route(w.consumer, &request, &text), YOLK_OK);
    assert_string_equal(text, expected);
    free(text);
    assert_true(yolk_engine_has_transport(w.consumer, fixture->ops->name, NULL, 0));
    char reason[128];
    assert_false(yolk_engine_has_transport(w.consumer, "nope", reason, sizeof(reason)));
    assert_true(reason[0] != '\0');
    const struct yolk_segment_descriptor nowhere = {5, 1, 4096, "carrier=pigeon"};
    assert_int_equal(yolk_engine_segment_open(w.consumer, &nowhere, 1, &request.segment), YOLK_OK);
    assert_int_equal(world_run(&w, &request, NULL), YOLK_ERR_NO_ROUTE);
    world_close(&w);
}

#define CASE(f) cmocka_unit_test(f)
static const struct CMUnitTest cases[] = {
    CASE(killed_peer), /* forks, so before any thread */
    CASE(sizes),
    CASE(unaligned),
    CASE(bounds),
    CASE(provider_checks_range),
    CASE(registration),
    CASE(tickets),
    CASE(stale_segment),
    CASE(provider_restarts),
    CASE(fence),
    CASE(mapping),
    CASE(describes_routes),
    CASE(ten_thousand),
    CASE(parallel_callers),
    CASE(cancel_and_free),
    CASE(close_in_flight),
    CASE(fault_again),
    CASE(fault_late),
    CASE(fault_doubled),
    CASE(fault_short),
    CASE(fault_links),
    CASE(fault_everything),
    CASE(dropped_ends_at_deadline),
    CASE(stuck),
    CASE(dead_peer_by_fault),
    CASE(leaves_nothing),
    CASE(each_read_is_there_when_reported_once),
    CASE(each_write_is_there_when_reported_once),
    CASE(what_the_provider_refuses_harms_no_other),
    CASE(again_takes_nothing),
    CASE(a_busy_channel_does_not_close),
    CASE(stop_ends_each_io_once),
    CASE(waiting_ends_when_there_is_something),
    CASE(cut_texts_reach_nothing),
    CASE(a_text_of_a_former_life_is_refused),
    CASE(one_slice_of_many_fails),
    CASE(what_has_failed_is_quiet),
    CASE(what_was_canceled_is_quiet),
    CASE(what_was_freed_is_quiet),
    CASE(unserved_in_flight),
    CASE(largest_io_and_one_more),
    CASE(a_short_read_says_so),
    CASE(leaves_nothing_after_failures),
    CASE(cancel_before_submit),
    CASE(cancel_while_queued),
    CASE(cancel_while_posted),
    CASE(cancel_waits_for_quiet),
    CASE(cancel_after_the_end),
    CASE(cancel_in_the_middle),
    CASE(cancel_in_the_middle_waits),
    CASE(deadline_while_queued),
    CASE(deadline_while_posted),
    CASE(deadline_waits_for_quiet),
    CASE(failure_waits_for_quiet),
    CASE(freed_in_flight_is_in_quarantine),
    CASE(a_stuck_range_is_refused_until_quiet),
    CASE(neighbours_are_moved_as_one),
    CASE(only_what_is_alike_is_joined),
    CASE(reads_and_writes_are_not_joined),
    CASE(a_joined_one_is_canceled_while_queued),
    CASE(a_joined_one_is_canceled_while_posted),
    CASE(joined_ones_go_on_without_the_canceled),
    CASE(joined_ones_survive_faults),
    CASE(scattered_places),
    CASE(a_scattered_one_is_canceled),
    CASE(scattered_ones_survive_faults),
    CASE(staged_sizes),
    CASE(staged_ones_take_turns),
    CASE(staged_ones_survive_faults),
    CASE(staged_ones_end_early),
    CASE(staged_ones_are_not_direct),
};
#undef CASE

enum { CASE_COUNT = sizeof(cases) / sizeof(cases[0]) };

const struct CMUnitTest *conformance_cases(size_t *count)
{
    *count = CASE_COUNT;
    return cases;
}

int conformance_run(const struct conformance_fixture *fixture)
{
    struct yolk_transport_options options = {.struct_size = sizeof(options)};
    struct yolk_probe probe = {.reason = ""};
    if (fixture->prepare != NULL)
        fixture->prepare(&options, 0);
    if (fixture->ops->probe(&options, &probe) != YOLK_OK) {
        printf("SKIP: %s: %s\n", fixture->ops->name, probe.reason);
        return 77;
    }
    struct CMUnitTest group[CASE_COUNT];
    for (size_t i = 0; i < CASE_COUNT; i++) {
        group[i] = cases[i];
        group[i].initial_state = (void *)(uintptr_t)fixture;
    }
    return cmocka_run_group_tests_name(fixture->ops->name, group, NULL, NULL);
}
