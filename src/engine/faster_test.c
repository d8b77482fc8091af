/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways, modelled as pipes of a given rate that share what is under way: the choice against what
 * is known of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/faster.h"

enum { DEPTH = 16 };
#define MIB        (UINT64_C(1) << 20)
#define GIB        (UINT64_C(1) << 30)
#define PER_SECOND UINT64_C(1000000000)

/* A pipe of this rate in which requests end one after the other. */
struct pipe {
    uint64_t rate, free_ns;
};

struct request {
    struct faster_ticket ticket;
    uint64_t end_ns;
    bool open;
};

struct model {
    struct faster faster;
    struct pipe pipes[FASTER_WAYS];
    struct request requests[DEPTH];
    uint64_t now_ns, moved[FASTER_WAYS], size;
    unsigned failing; /* this way does nothing; FASTER_WAYS: none */
    unsigned depth;
};

static struct model model(uint64_t first, uint64_t second)
{
    return (struct model){.pipes = {{.rate = first}, {.rate = second}},
                          .now_ns = 1,
                          .size = 4 * MIB,
                          .failing = FASTER_WAYS,
                          .depth = DEPTH};
}

static void begin(struct model *m, struct request *r)
{
    r->ticket = faster_begin(&m->faster, m->now_ns);
    struct pipe *pipe = &m->pipes[r->ticket.way];
    uint64_t from = pipe->free_ns > m->now_ns ? pipe->free_ns : m->now_ns;
    r->end_ns = pipe->free_ns = from + m->size * PER_SECOND / pipe->rate;
    r->open = true;
}

/* The one that ends first. */
static void end(struct model *m)
{
    struct request *first = NULL;
    for (unsigned i = 0; i < m->depth; i++)
        if (m->requests[i].open && (first == NULL || m->requests[i].end_ns < first->end_ns))
            first = &m->requests[i];
    m->now_ns = first->end_ns;
    bool failed = first->ticket.way == m->failing;
    faster_end(&m->faster, first->ticket, failed ? 0 : m->size, failed, m->now_ns);
    m->moved[first->ticket.way] += failed ? 0 : m->size;
    first->open = false;
}

/* Moves so much, always `depth` at a time. */
static void run(struct model *m, uint64_t bytes)
{
    for (uint64_t begun = 0; begun < bytes; begun += m->size) {
        struct request *free = NULL;
        for (unsigned i = 0; i < m->depth; i++)
            if (!m->requests[i].open)
                free = &m->requests[i];
        if (free == NULL) {
            end(m);
            begun -= m->size;
            continue;
        }
        begin(m, free);
    }
    for (unsigned i = 0; i < m->depth; i++)
        while (m->requests[i].open)
            end(m);
}

static void about(uint64_t value, uint64_t wanted)
{
    if (value < wanted / 100 * 90 || value > wanted / 100 * 112)
        fail_msg("%llu is not about %llu", (unsigned long long)value, (unsigned long long)wanted);
}

static void the_faster_one_is_taken_and_both_are_known(void **state)
{
    static const uint64_t rates[][2] = {{2 * GIB, 3 * GIB}, {3 * GIB, 2 * GIB}, {GIB, 5 * GIB}};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct model m = model(rates[i][0], rates[i][1]);
        unsigned best = rates[i][1] > rates[i][0];
        run(&m, 64 * GIB);
        assert_int_equal(m.faster.now, best);
        assert_int_equal(m.faster.changes, best);
        about(m.faster.ways[0].speed, rates[i][0]);
        about(m.faster.ways[1].speed, rates[i][1]);
        assert_true(m.moved[best] > 64 * GIB / 100 * 97);
        assert_true(m.moved[best ^ 1] > 0);
        assert_int_equal(m.faster.ways[0].under_way + m.faster.ways[1].under_way, 0);
        assert_int_equal(m.faster.ways[0].moved, m.moved[0]);
        assert_int_equal(m.faster.ways[1].moved, m.moved[1]);
    }
}

static void what_is_hardly_faster_changes_nothing(void **state)
{
    struct model m = model(20 * GIB / 10, 22 * GIB / 10);
    (void)state;
    run(&m, 64 * GIB);
    assert_int_equal(m.faster.changes, 0);
    assert_true(m.faster.trials >= 2);
    assert_true(m.moved[1] < 2 * GIB);
}

static void trials_become_rare(void **state)
{
    struct model m = model(2 * GIB, GIB);
    (void)state;
    run(&m, 8 * GIB);
    uint32_t early = m.faster.trials;
    run(&m, 64 * GIB);
    assert_true(early >= 3);
    assert_true(m.faster.trials - early <= 6);
    assert_true(m.faster.pause <= FASTER_PAUSE_MAX);
}

static void c63_a_change_of_speeds_is_noticed(void **state)
{
    struct model m = model(3 * GIB, 2 * GIB);
    (void)state;
    run(&m, 16 * GIB);
    assert_int_equal(m.faster.now, 0);
    m.pipes[0].rate = GIB; /* below what is known of the other one: no need to wait for a trial */
    run(&m, 2 * GIB);
    assert_int_equal(m.faster.now, 1);
    m.pipes[0].rate = 8 * GIB; /* told by the next trial only */
    run(&m, 32 * GIB);
    assert_int_equal(m.faster.now, 0);
    assert_int_equal(m.faster.changes, 2);
}

static void a_way_that_fails_is_left_at_once(void **state)
{
    struct model m = model(GIB, 4 * GIB);
    (void)state;
    m.failing = 1;
    run(&m, 8 * GIB);
    assert_int_equal(m.faster.now, 0);
    assert_int_equal(m.faster.ways[1].speed, 0);
    assert_true(m.faster.trials >= 2 && m.faster.trials <= 8);
    assert_true(m.faster.ways[1].requests <= m.faster.trials * DEPTH);
    m.failing = FASTER_WAYS;
    run(&m, 64 * GIB);
    assert_int_equal(m.faster.now, 1);
}

/* One at a time, and so slow that a round is over by its time. */
static void slow_ways_are_known_after_a_while(void **state)
{
    struct model m = model(10 * MIB, 40 * MIB);
    (void)state;
    m.depth = 1;
    m.size = 64 << 10;
    run(&m, 32 * MIB);
    assert_int_equal(m.faster.now, 1);
    about(m.faster.ways[1].speed, 40 * MIB);
}

/* Idle time between requests is nobody's. */
static void pauses_do_not_count(void **state)
{
    struct model m = model(2 * GIB, GIB);
    (void)state;
    for (int i = 0; i < 64; i++) {
        run(&m, 32 * MIB);
        m.now_ns += 10 * PER_SECOND;
    }
    about(m.faster.ways[0].speed, 2 * GIB);
    about(m.faster.ways[1].speed, GIB);
    assert_int_equal(m.faster.now, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_one_is_taken_and_both_are_known),
        cmocka_unit_test(what_is_hardly_faster_changes_nothing),
        cmocka_unit_test(trials_become_rare),
        cmocka_unit_test(c63_a_change_of_speeds_is_noticed),
        cmocka_unit_test(a_way_that_fails_is_left_at_once),
        cmocka_unit_test(slow_ways_are_known_after_a_while),
        cmocka_unit_test(pauses_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
