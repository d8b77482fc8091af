/* SPDX-License-Identifier: Apache-2.0 */
/* The cases in which something ends badly or early: each request ends once, only its own is harmed,
 * and what has ended touches no memory any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bare.h"
#include "cases.h"

enum { MANY = 64, PIECE = 8192 };

struct many {
    uint64_t batch;
    struct yolk_request requests[MANY];
    enum yolk_status verdicts[MANY];
    enum yolk_status results[MANY];
};

static void submit_many(struct world *w, struct many *m, uint64_t segment, enum yolk_opcode opcode)
{
    assert_int_equal(yolk_engine_batch_create(w->consumer, MANY, &m->batch), YOLK_OK);
    for (uint64_t i = 0; i < MANY; i++) {
        m->requests[i] = world_request(w, opcode, w->local + i * PIECE, i * PIECE, PIECE);
        m->requests[i].segment = segment;
        m->requests[i].cookie = 1000 + i;
    }
}

/* Each is terminal, once: a later look tells the same. */
static void end_many(struct world *w, struct many *m)
{
    struct yolk_task_status first, second;
    assert_int_equal(yolk_engine_batch_wait(w->consumer, m->batch, world_deadline(w, 30000)),
                     YOLK_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(yolk_engine_batch_poll(w->consumer, m->batch, i, &first), YOLK_OK);
        assert_int_equal(yolk_engine_batch_poll(w->consumer, m->batch, i, &second), YOLK_OK);
        assert_true(first.terminal);
        assert_int_equal(first.cookie, 1000 + i);
        assert_int_equal(first.status, second.status);
        assert_int_equal(first.transferred, second.transferred);
        m->results[i] = first.status;
        if (first.status == YOLK_OK)
            assert_int_equal(first.transferred, m->requests[i].size);
    }
    assert_int_equal(yolk_engine_batch_free(w->consumer, m->batch), YOLK_OK);
}

static void start_many(struct world *w, struct many *m)
{
    (void)!yolk_engine_batch_submit(w->consumer, m->batch, m->requests, MANY, m->verdicts, NULL);
}

/* Overwrites all local memory but the last piece, has other work done through the same engine, and
 * looks whether anybody else wrote. */
static void assert_quiet(struct world *w, uint64_t segment)
{
    memset(w->local, 0x77, WORLD_SIZE - PIECE);
    for (uint32_t i = 0; i < 50; i++) {
        struct yolk_request request =
            world_request(w, YOLK_READ, w->local + WORLD_SIZE - PIECE, 0, PIECE);
        request.segment = segment;
        assert_int_equal(world_run(w, &request, NULL), YOLK_OK);
    }
    for (uint64_t i = 0; i < WORLD_SIZE - PIECE; i++)
        assert_int_equal(w->local[i], 0x77);
}

static uint64_t open_again(struct world *w, uint64_t id)
{
    const struct yolk_segment_descriptor descriptor = {id, 1, WORLD_SIZE,
                                                       yolk_served_endpoints(w->served)};
    uint64_t segment;
    assert_int_equal(
        yolk_engine_segment_open(w->consumer, &descriptor, WORLD_SESSION + 9, &segment), YOLK_OK);
    return segment;
}

/* Slices that fail by the wrapper's hand, and are not tried again: their requests fail, no other.
 */
void one_slice_of_many_fails(void **state)
{
    struct world w;
    struct many m;
    uint32_t failed = 0, ok = 0;
    world_init(&w, *state);
    w.faults.fail_permille = 60;
    w.faults.late_fail_permille = 60;
    w.attempts_max = 1;
    w.breaker_failures = 100000;
    w.slice_bytes_max = PIECE / 4;
    world_open(&w);
    for (uint32_t round = 0; round < 8; round++) {
        enum yolk_opcode opcode = round % 2 == 0 ? YOLK_READ : YOLK_WRITE;
        const uint8_t *to = opcode == YOLK_READ ? w.local : w.memory.pointer;
        uint64_t seed = 40 + round;
        world_fill(opcode == YOLK_READ ? w.memory.pointer : w.local, WORLD_SIZE, seed);
        if (opcode == YOLK_READ)
            memset(w.local, 0xee, WORLD_SIZE);
        submit_many(&w, &m, w.segment, opcode);
        start_many(&w, &m);
        end_many(&w, &m);
        for (uint64_t i = 0; i < MANY; i++) {
            if (m.results[i] == YOLK_OK) {
                ok++;
                world_assert_filled(to + i * PIECE, PIECE, seed, i * PIECE);
            } else {
                failed++;
                assert_int_equal(m.results[i], YOLK_ERR_LINK);
            }
        }
    }
    /* How many is luck: an io that the transport has no room for is drawn again at the next try. */
    assert_true(failed > 0 && ok > 0);
    world_close(&w);
}

/* The segment becomes another one under requests in flight. */
void what_has_failed_is_quiet(void **state)
{
    struct world w;
    struct many m;
    world_init(&w, *state);
    world_open(&w);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, PIECE), YOLK_OK);
    submit_many(&w, &m, w.segment, YOLK_READ);
    start_many(&w, &m);
    yolk_served_set_segment(w.served, WORLD_SEGMENT + 1, w.key);
    end_many(&w, &m);
    for (uint64_t i = 0; i < MANY; i++) {
        if (m.results[i] == YOLK_OK)
            world_assert_filled(w.local + i * PIECE, PIECE, 1, i * PIECE);
        else
            assert_int_equal(m.results[i], YOLK_ERR_STALE);
    }
    submit_many(&w, &m, w.segment, YOLK_READ);
    start_many(&w, &m);
    end_many(&w, &m);
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(m.results[i], YOLK_ERR_STALE);
    assert_quiet(&w, open_again(&w, WORLD_SEGMENT + 1));
    world_close(&w);
}

void what_was_canceled_is_quiet(void **state)
{
    struct world w;
    struct many m;
    world_init(&w, *state);
    world_open(&w);
    for (uint32_t round = 0; round < 8; round++) {
        submit_many(&w, &m, w.segment, YOLK_READ);
        start_many(&w, &m);
        for (uint32_t i = round % 3; i < MANY; i += 3)
            assert_int_equal(yolk_engine_batch_cancel(w.consumer, m.batch, i), YOLK_OK);
        end_many(&w, &m);
        for (uint32_t i = 0; i < MANY; i++) {
            if (m.results[i] == YOLK_OK)
                world_assert_filled(w.local + i * PIECE, PIECE, 1, i * PIECE);
            else
                assert_true(m.results[i] == YOLK_ERR_CANCELED && i % 3 == round % 3);
        }
        assert_quiet(&w, w.segment);
    }
    world_close(&w);
}

/* Freed in flight, the memory is the engine's until unregister gives it back. */
void what_was_freed_is_quiet(void **state)
{
    struct world w;
    struct many m;
    world_init(&w, *state);
    world_open(&w);
    uint64_t until = world_deadline(&w, 30000);
    for (uint32_t round = 0; round < 8; round++) {
        enum yolk_status status;
        submit_many(&w, &m, w.segment, YOLK_READ);
        start_many(&w, &m);
        assert_int_equal(yolk_engine_batch_free(w.consumer, m.batch), YOLK_OK);
        while ((status = yolk_engine_unregister(w.consumer, w.local, WORLD_SIZE)) == YOLK_ERR_BUSY)
            assert_true(yolk_engine_now_ns(w.consumer) < until);
        assert_int_equal(status, YOLK_OK);
        assert_int_equal(yolk_engine_register(w.consumer, w.local, WORLD_SIZE), YOLK_OK);
        assert_quiet(&w, w.segment);
    }
    world_close(&w);
}

/* The provider ends under writes in flight: each of them ends once, and none comes after it. */
void unserved_in_flight(void **state)
{
    const struct conformance_fixture *fixture = *state;
    struct world w;
    struct many m;
    world_init(&w, fixture);
    w.drain_limit_ms = 3000;
    world_open(&w);
    world_fill(w.local, WORLD_SIZE, 60);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local + WORLD_SIZE - 8, 0, 8), YOLK_OK);
    submit_many(&w, &m, w.segment, YOLK_WRITE);
    start_many(&w, &m);
    yolk_engine_unserve(w.provider, w.served);
    if (!fixture->serves_files && (fixture->ops->caps & YOLK_CAP_MAP) == 0)
        memset(w.memory.pointer, 0x33, WORLD_SIZE); /* a mapping may outlive it */
    end_many(&w, &m);
    struct yolk_request request = world_request(&w, YOLK_WRITE, w.local, 0, PIECE);
    assert_int_not_equal(world_run(&w, &request, NULL), YOLK_OK);
    world_close_consumer(&w);
    if (!fixture->serves_files && (fixture->ops->caps & YOLK_CAP_MAP) == 0)
        for (uint64_t i = 0; i < WORLD_SIZE; i++)
            assert_int_equal(((uint8_t *)w.memory.pointer)[i], 0x33);
    w.served = NULL;
    world_close_provider(&w);
}

/* The transport's own largest io, one byte more, and neighbours that stay. */
void largest_io_and_one_more(void **state)
{
    struct world w;
    struct bare b;
    struct yolk_limits limits;
    world_init(&w, *state);
    world_open_provider(&w);
    bare_endpoint_open(&b, &w);
    b.ops->limits(b.endpoint, &limits);
    bare_endpoint_close(&b);
    world_close_provider(&w);
    uint64_t max = limits.slice_bytes_max;
    assert_in_range(max, 4096, 64 << 20);
    assert_true(limits.depth_max > 0);
    assert_true(limits.alignment > 0 && (limits.alignment & (limits.alignment - 1)) == 0);
    w.size = max + 8192;
    w.slice_bytes_max = 0;
    world_open(&w);
    for (uint64_t size = max - 1; size <= max + 1; size++) {
        memset(w.local, 0xee, w.size);
        assert_int_equal(world_transfer(&w, YOLK_READ, w.local + 3, 5, size), YOLK_OK);
        world_assert_filled(w.local + 3, size, 1, 5);
        assert_int_equal(w.local[2], 0xee);
        assert_int_equal(w.local[3 + size], 0xee);
    }
    for (uint64_t size = max - 1; size <= max + 1; size++) {
        world_fill(w.local, w.size, 70 + size);
        world_fill(w.memory.pointer, w.size, 1);
        assert_int_equal(world_transfer(&w, YOLK_WRITE, w.local + 5, 3, size), YOLK_OK);
        world_assert_filled((uint8_t *)w.memory.pointer + 3, size, 70 + size, 5);
        world_assert_filled(w.memory.pointer, 3, 1, 0);
        world_assert_filled((uint8_t *)w.memory.pointer + 3 + size, 64, 1, 3 + size);
    }
    world_close(&w);
}

/* A file that ends early: what is there arrives, and the status says that it was not all. */
void a_short_read_says_so(void **state)
{
    const struct conformance_fixture *fixture = *state;
    struct world w;
    if (!fixture->serves_files) {
        print_message("SKIP: %s serves memory, which does not end early\n", fixture->ops->name);
        skip();
    }
    world_init(&w, fixture);
    world_open(&w);
    uint64_t end = WORLD_SIZE / 2 + 100;
    assert_int_equal(ftruncate(w.file, (off_t)end), 0);
    struct yolk_task_status status;
    struct yolk_request request = world_request(&w, YOLK_READ, w.local, end - 1000, 4000);
    memset(w.local, 0xee, WORLD_SIZE);
    assert_int_equal(world_run(&w, &request, &status), YOLK_ERR_EOF);
    assert_int_equal(status.transferred, 1000);
    world_assert_filled(w.local, 1000, 1, end - 1000);
    request = world_request(&w, YOLK_READ, w.local, 0, WORLD_SIZE);
    assert_int_equal(world_run(&w, &request, &status), YOLK_ERR_EOF);
    assert_int_equal(status.transferred, end);
    world_assert_filled(w.local, end, 1, 0);
    assert_int_equal(world_transfer(&w, YOLK_READ, w.local, 0, end), YOLK_OK);
    assert_int_equal(ftruncate(w.file, WORLD_SIZE), 0);
    world_close(&w);
}

/* As leaves_nothing, but each round ends with a peer that went away under requests. */
void leaves_nothing_after_failures(void **state)
{
    uint64_t fds = 0, threads = 0, maps = 0;
    uint64_t before = world_threads();
    for (int round = 0; round < 4; round++) {
        struct world w;
        struct many m;
        world_init(&w, *state);
        world_open(&w);
        submit_many(&w, &m, w.segment, YOLK_READ);
        start_many(&w, &m);
        world_close_provider(&w);
        end_many(&w, &m);
        submit_many(&w, &m, w.segment, YOLK_READ);
        start_many(&w, &m);
        end_many(&w, &m);
        for (uint32_t i = 0; i < MANY; i++)
            assert_int_not_equal(m.results[i], YOLK_OK);
        world_close_consumer(&w);
        if (round > 0) {
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
