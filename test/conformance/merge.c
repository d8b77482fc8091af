/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of requests that are moved as one: each keeps its own status, and only those that are
 * alike are joined. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "cases.h"

enum { MEMBERS = 8, BYTES = 4096, PLACE = 64 };

struct merged {
    struct world w;
    uint64_t batch;
    struct yolk_request requests[MEMBERS];
    struct yolk_task_status ended[MEMBERS];
};

static void merged_init(struct merged *m, const struct conformance_fixture *fixture)
{
    memset(m, 0, sizeof(*m));
    world_init(&m->w, fixture);
    m->w.wrapped = 1;
    m->w.merges = 1;
}

static void merged_open(struct merged *m)
{
    world_open(&m->w);
    memset(m->w.local, 0xee, WORLD_SIZE);
    assert_int_equal(yolk_engine_batch_create(m->w.consumer, MEMBERS, &m->batch), YOLK_OK);
    for (uint64_t i = 0; i < MEMBERS; i++) {
        m->requests[i] = world_request(&m->w, YOLK_READ, m->w.local + PLACE + i * BYTES,
                                       PLACE + i * BYTES, BYTES);
        m->requests[i].cookie = 100 + i;
    }
}

static void submit(struct merged *m)
{
    enum yolk_status verdicts[MEMBERS];
    assert_int_equal(
        yolk_engine_batch_submit(m->w.consumer, m->batch, m->requests, MEMBERS, verdicts, NULL),
        YOLK_OK);
}

static void run(struct merged *m)
{
    assert_int_equal(yolk_engine_batch_wait(m->w.consumer, m->batch, world_deadline(&m->w, 30000)),
                     YOLK_OK);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(yolk_engine_batch_poll(m->w.consumer, m->batch, i, &m->ended[i]), YOLK_OK);
        assert_true(m->ended[i].terminal);
        assert_int_equal(m->ended[i].cookie, 100 + i);
        if (m->ended[i].status != YOLK_OK)
            continue;
        assert_int_equal(m->ended[i].transferred, m->requests[i].size);
        world_assert_filled(m->requests[i].local, m->requests[i].size, 1, m->requests[i].offset);
    }
}

static uint64_t merged_count(struct merged *m)
{
    struct yolk_engine_stats stats;
    yolk_engine_stats(m->w.consumer, &stats);
    return stats.tasks_merged;
}

/* But not what goes to a file, whose device does several at once. */
static void assert_joined(struct merged *m)
{
    assert_int_equal(merged_count(m), m->w.fixture->serves_files ? 0 : MEMBERS - 1);
}

static void assert_all_ok(struct merged *m)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(m->ended[i].status, YOLK_OK);
}

static void merged_close(struct merged *m)
{
    atomic_store(&m->w.control.again, 0);
    atomic_store(&m->w.control.release, 1);
    world_close(&m->w);
}

void neighbours_are_moved_as_one(void **state)
{
    struct merged m;
    merged_init(&m, *state);
    merged_open(&m);
    submit(&m);
    run(&m);
    assert_all_ok(&m);
    assert_joined(&m);
    for (uint32_t i = 0; i < PLACE; i++) {
        assert_int_equal(m.w.local[i], 0xee);
        assert_int_equal(m.w.local[PLACE + MEMBERS * BYTES + i], 0xee);
    }
    merged_close(&m);
}

/* One of each two neighbours differs in something, or there is a gap. */
void only_what_is_alike_is_joined(void **state)
{
    for (uint32_t what = 0; what < 8; what++) {
        struct merged m;
        merged_init(&m, *state);
        merged_open(&m);
        for (uint64_t i = 1; i < MEMBERS; i += 2) {
            struct yolk_request *request = &m.requests[i];
            if (what == 0)
                request->deadline_ns = world_deadline(&m.w, 30000 + i);
            if (what == 1)
                request->hint = m.w.fixture->ops->name;
            if (what == 2)
                request->local = m.w.local + WORLD_SIZE / 2 + i * BYTES;
            if (what == 3)
                request->offset += WORLD_SIZE / 2;
            if (what == 4)
                request->priority = YOLK_PRIORITY_LOW;
            if (what == 5)
                request->intent = YOLK_INTENT_MIGRATION;
            if (what == 6)
                request->tenant = "another";
            if (what == 7)
                request->flags = YOLK_REQUEST_EXACT;
        }
        submit(&m);
        run(&m);
        assert_all_ok(&m);
        assert_int_equal(merged_count(&m), 0);
        merged_close(&m);
    }
}

void reads_and_writes_are_not_joined(void **state)
{
    struct merged m;
    merged_init(&m, *state);
    merged_open(&m);
    world_fill(m.w.local, WORLD_SIZE, 21);
    for (uint32_t i = 1; i < MEMBERS; i += 2)
        m.requests[i].opcode = YOLK_WRITE;
    submit(&m);
    assert_int_equal(yolk_engine_batch_wait(m.w.consumer, m.batch, world_deadline(&m.w, 30000)),
                     YOLK_OK);
    assert_int_equal(merged_count(&m), 0);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        bool written = i % 2 == 1;
        const uint8_t *there = (const uint8_t *)m.w.memory.pointer + m.requests[i].offset;
        const uint8_t *place = written ? there : m.requests[i].local;
        world_assert_filled(place, BYTES, written ? 21 : 1, m.requests[i].offset);
    }
    merged_close(&m);
}

/* A member is taken back while the transport has them all; the others are not harmed. */
static void cancel_member(const struct conformance_fixture *fixture, bool held)
{
    struct merged m;
    merged_init(&m, fixture);
    merged_open(&m);
    assert_int_equal(world_transfer(&m.w, YOLK_READ, m.w.local + WORLD_SIZE - 64, 0, 64), YOLK_OK);
    atomic_store(held ? &m.w.control.hold : &m.w.control.again, 1);
    submit(&m);
    uint64_t until = world_deadline(&m.w, 30000);
    while (held && atomic_load(&m.w.control.stuck) == 0) {
        assert_int_equal(yolk_engine_batch_progress(m.w.consumer, m.batch, NULL), YOLK_OK);
        assert_true(yolk_engine_now_ns(m.w.consumer) < until);
    }
    assert_int_equal(yolk_engine_batch_cancel(m.w.consumer, m.batch, 3), YOLK_OK);
    atomic_store(&m.w.control.hold, 0);
    atomic_store(&m.w.control.again, 0);
    atomic_store(&m.w.control.release, 1);
    run(&m);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(m.ended[i].status, i == 3 ? YOLK_ERR_CANCELED : YOLK_OK);
    for (uint32_t i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)m.requests[3].local)[i], 0xee);
    assert_joined(&m);
    merged_close(&m);
}

void a_joined_one_is_canceled_while_queued(void **state)
{
    cancel_member(*state, false);
}

void a_joined_one_is_canceled_while_posted(void **state)
{
    cancel_member(*state, true);
}

/* As many as may be under way at once are taken back: the others have their turn. */
void joined_ones_go_on_without_the_canceled(void **state)
{
    enum { WINDOW = 4 };
    struct merged m;
    merged_init(&m, *state);
    m.w.slice_bytes_max = BYTES;
    merged_open(&m);
    assert_int_equal(world_transfer(&m.w, YOLK_READ, m.w.local + WORLD_SIZE - 64, 0, 64), YOLK_OK);
    atomic_store(&m.w.control.hold, 1);
    submit(&m);
    uint64_t until = world_deadline(&m.w, 30000);
    while (atomic_load(&m.w.control.stuck) < WINDOW) {
        assert_int_equal(yolk_engine_batch_progress(m.w.consumer, m.batch, NULL), YOLK_OK);
        assert_true(yolk_engine_now_ns(m.w.consumer) < until);
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        assert_int_equal(yolk_engine_batch_cancel(m.w.consumer, m.batch, i), YOLK_OK);
    atomic_store(&m.w.control.hold, 0);
    atomic_store(&m.w.control.release, 1);
    run(&m);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(m.ended[i].status, i < WINDOW ? YOLK_ERR_CANCELED : YOLK_OK);
    merged_close(&m);
}

/* What fails of them together is tried again as often as it takes, and moved once for each. */
void joined_ones_survive_faults(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct merged m;
        memset(&m, 0, sizeof(m));
        world_init(&m.w, *state);
        m.w.wrapped = 1;
        m.w.merges = 1;
        m.w.faults.seed = seed;
        m.w.faults.short_permille = 300;
        m.w.faults.partial_permille = 200;
        m.w.faults.late_fail_permille = 200;
        m.w.faults.duplicate_permille = 200;
        m.w.attempts_max = 60;
        m.w.breaker_failures = 1000;
        m.w.slice_bytes_max = 3 * BYTES / 2;
        world_open(&m.w);
        assert_int_equal(yolk_engine_batch_create(m.w.consumer, MEMBERS, &m.batch), YOLK_OK);
        for (uint64_t i = 0; i < MEMBERS; i++) {
            m.requests[i] = world_request(&m.w, YOLK_READ, m.w.local + i * BYTES, i * BYTES, BYTES);
            m.requests[i].cookie = 100 + i;
        }
        submit(&m);
        run(&m);
        assert_all_ok(&m);
        assert_joined(&m);
        world_close(&m.w);
    }
}

/* -- at places that do not follow each other -- */

/* Every second one from behind, here another one than there. */
static void scatter(struct merged *m, enum yolk_opcode opcode)
{
    for (uint64_t i = 0; i < MEMBERS; i++) {
        m->requests[i].opcode = opcode;
        m->requests[i].local = m->w.local + PLACE + (i * 3 % MEMBERS) * 2 * BYTES;
        m->requests[i].offset = (MEMBERS - 1 - i) * 2 * BYTES + 2 * PLACE;
    }
}

/* Joined where the transport takes places: what was used last for the segment tells. */
static void scattered_open(struct merged *m)
{
    merged_open(m);
    assert_int_equal(world_transfer(&m->w, YOLK_READ, m->w.local + WORLD_SIZE - 64, 0, 64),
                     YOLK_OK);
    memset(m->w.local, 0xee, WORLD_SIZE);
    scatter(m, YOLK_READ);
}

static void assert_scattered(struct merged *m)
{
    bool joined = (m->w.fixture->ops->caps & YOLK_CAP_PLACES) != 0 && !m->w.fixture->serves_files;
    assert_int_equal(merged_count(m), joined ? MEMBERS - 1 : 0);
}

void scattered_places(void **state)
{
    struct merged m;
    merged_init(&m, *state);
    scattered_open(&m);
    submit(&m);
    run(&m);
    assert_all_ok(&m);
    assert_scattered(&m);
    for (uint32_t i = 0; i < MEMBERS * 2 * BYTES; i++)
        if ((i - PLACE) / BYTES % 2 == 1)
            assert_int_equal(m.w.local[i], 0xee);
    assert_int_equal(yolk_engine_batch_reset(m.w.consumer, m.batch), YOLK_OK);
    world_fill(m.w.local, WORLD_SIZE, 21);
    scatter(&m, YOLK_WRITE);
    submit(&m);
    assert_int_equal(yolk_engine_batch_wait(m.w.consumer, m.batch, world_deadline(&m.w, 30000)),
                     YOLK_OK);
    const uint8_t *memory = m.w.memory.pointer;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const uint8_t *local = m.requests[i].local;
        assert_memory_equal(memory + m.requests[i].offset, local, BYTES);
        world_assert_filled(memory + m.requests[i].offset + BYTES, BYTES, 1,
                            m.requests[i].offset + BYTES);
    }
    merged_close(&m);
}

/* It is taken back while the transport has them all; the others are not harmed. */
void a_scattered_one_is_canceled(void **state)
{
    struct merged m;
    merged_init(&m, *state);
    scattered_open(&m);
    atomic_store(&m.w.control.hold, 1);
    submit(&m);
    uint64_t until = world_deadline(&m.w, 30000);
    while (atomic_load(&m.w.control.stuck) == 0) {
        assert_int_equal(yolk_engine_batch_progress(m.w.consumer, m.batch, NULL), YOLK_OK);
        assert_true(yolk_engine_now_ns(m.w.consumer) < until);
    }
    assert_int_equal(yolk_engine_batch_cancel(m.w.consumer, m.batch, 3), YOLK_OK);
    atomic_store(&m.w.control.hold, 0);
    atomic_store(&m.w.control.release, 1);
    run(&m);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(m.ended[i].status, i == 3 ? YOLK_ERR_CANCELED : YOLK_OK);
    for (uint32_t i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)m.requests[3].local)[i], 0xee);
    assert_scattered(&m);
    merged_close(&m);
}

void scattered_ones_survive_faults(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct merged m;
        merged_init(&m, *state);
        m.w.faults.seed = seed;
        m.w.attempts_max = 60;
        m.w.breaker_failures = 1000;
        m.w.slice_bytes_max = 3 * BYTES / 2;
        m.w.faults.short_permille = 300;
        m.w.faults.partial_permille = 200;
        m.w.faults.late_fail_permille = 200;
        m.w.faults.duplicate_permille = 200;
        scattered_open(&m);
        submit(&m);
        run(&m);
        assert_all_ok(&m);
        assert_scattered(&m);
        merged_close(&m);
    }
}
