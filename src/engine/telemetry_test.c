/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/telemetry.h"
#include "platform/thread.h"

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

static void post(struct telemetry *t, uint64_t ios, uint64_t each, uint64_t at_ns)
{
    telemetry_count(t, &(struct telemetry_pass){.posted_ios = ios, .posted_bytes = ios * each},
                    at_ns, at_ns);
}

static void over(struct telemetry *t, uint64_t ios, uint64_t each, uint64_t latency_ns,
                 uint64_t at_ns)
{
    telemetry_count(t,
                    &(struct telemetry_pass){.over_ios = ios,
                                             .over_bytes = ios * each,
                                             .done_bytes = ios * each,
                                             .latency_ns = ios * latency_ns},
                    at_ns, at_ns);
}

static void near_to(uint64_t got, double want, double share)
{
    double off = ((double)got - want) / want;
    if (off < -share || off > share)
        fail_msg("%.0f is not within %.1f %% of %.0f", (double)got, share * 100, want);
}

static void what_is_in_flight_is_told_and_ends_at_none(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    post(&t, 3, 4096, 100);
    post(&t, 1, 1000, 200);
    telemetry_read(&t, &look);
    assert_int_equal(look.inflight_ios, 4);
    assert_int_equal(look.inflight_bytes, 3 * 4096 + 1000);
    assert_int_equal(look.bytes, 0);
    /* One of them is short, one fails. */
    telemetry_count(&t,
                    &(struct telemetry_pass){.over_ios = 4,
                                             .over_bytes = 3 * 4096 + 1000,
                                             .done_bytes = 2 * 4096 + 500,
                                             .errors = 1,
                                             .latency_ns = 4 * 50},
                    300, 300);
    telemetry_read(&t, &look);
    assert_int_equal(look.inflight_ios, 0);
    assert_int_equal(look.inflight_bytes, 0);
    assert_int_equal(look.bytes, 2 * 4096 + 500);
    assert_int_equal(look.ios, 4);
    assert_int_equal(look.errors, 1);
    assert_int_equal(look.latency_ns, 50);
}

static void bandwidth_is_of_busy_time_only(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    uint64_t now = S;
    /* 10 MB in 2 ms, then a second of rest, again and again: 5 GB/s and not 10 MB/s. */
    for (int i = 0; i < 50; i++) {
        post(&t, 10, 1000000, now);
        over(&t, 10, 1000000, 2 * MS, now + 2 * MS);
        now += S;
    }
    telemetry_read(&t, &look);
    near_to(look.bandwidth_bytes, 5e9, 0.001);
    near_to(look.latency_ns, 2e6, 0.001);
}

static void a_first_short_transfer_gives_a_figure_at_once(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    post(&t, 1, 1000, 0);
    over(&t, 1, 1000, 1000, 1000);
    telemetry_read(&t, &look);
    near_to(look.bandwidth_bytes, 1e9, 0.001);
    assert_int_equal(look.latency_ns, 1000);
}

static void the_mean_follows_a_change_after_its_memory(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    uint64_t now = 0;
    /* 1 GB/s for three seconds, then 100 MB/s. */
    for (int i = 0; i < 300; i++, now += 10 * MS) {
        post(&t, 1, 10000000, now);
        over(&t, 1, 10000000, 10 * MS, now + 10 * MS);
    }
    telemetry_read(&t, &look);
    near_to(look.bandwidth_bytes, 1e9, 0.001);
    for (int i = 0; i < 100; i++, now += 10 * MS) {
        post(&t, 1, 1000000, now);
        over(&t, 1, 1000000, 10 * MS, now + 10 * MS);
    }
    telemetry_read(&t, &look);
    /* One memory later 1/e of the difference is left. */
    near_to(look.bandwidth_bytes, 1e8 + 9e8 / 2.71828, 0.02);
    for (int i = 0; i < 900; i++, now += 10 * MS) {
        post(&t, 1, 1000000, now);
        over(&t, 1, 1000000, 10 * MS, now + 10 * MS);
    }
    telemetry_read(&t, &look);
    near_to(look.bandwidth_bytes, 1e8, 0.01);
}

static void a_route_that_never_rests_is_measured_too(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    uint64_t now = 0;
    post(&t, 2, 500000, now);
    for (int i = 0; i < 2000; i++) {
        now += MS / 4;
        post(&t, 1, 500000, now);
        over(&t, 1, 500000, MS / 2, now);
    }
    telemetry_read(&t, &look);
    assert_int_equal(look.inflight_ios, 2);
    near_to(look.bandwidth_bytes, 2e9, 0.01);
    near_to(look.latency_ns, 0.5e6, 0.01);
}

static void a_pass_that_copies_by_itself_counts_from_its_beginning(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    const struct telemetry_pass pass = {.posted_ios = 8,
                                        .posted_bytes = 8000000,
                                        .over_ios = 8,
                                        .over_bytes = 8000000,
                                        .done_bytes = 8000000,
                                        .latency_ns = 4 * MS};
    telemetry_count(&t, &pass, 10 * S, 10 * S + 4 * MS);
    telemetry_read(&t, &look);
    assert_int_equal(look.inflight_ios, 0);
    near_to(look.bandwidth_bytes, 2e9, 0.001);
}

static void rates_do_not_overflow(void **state)
{
    (void)state;
    assert_int_equal(telemetry_rate(1, 0), 0);
    assert_int_equal(telemetry_rate(5, 1000000000), 5);
    assert_true(telemetry_rate(UINT64_MAX, 1) == UINT64_MAX);
    near_to(telemetry_rate(UINT64_C(1) << 40, 10 * S), (double)(UINT64_C(1) << 40) / 10, 1e-6);
    assert_int_equal(telemetry_mean(0, 7, 1), 7);
}

enum { THREADS = 4, ROUNDS = 5000 };

static void count_much(void *arg)
{
    struct telemetry *t = arg;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        post(t, 2, 64, i * MS);
        over(t, 2, 64, 100, i * MS + MS / 2);
    }
}

static void many_threads_lose_nothing(void **state)
{
    (void)state;
    struct telemetry t = {0};
    struct telemetry_look look;
    struct thread threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], "count", count_much, &t), YOLK_OK);
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    telemetry_read(&t, &look);
    assert_int_equal(look.inflight_ios, 0);
    assert_int_equal(look.inflight_bytes, 0);
    assert_int_equal(look.ios, THREADS * ROUNDS * 2);
    assert_int_equal(look.bytes, THREADS * ROUNDS * 2 * 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_flight_is_told_and_ends_at_none),
        cmocka_unit_test(bandwidth_is_of_busy_time_only),
        cmocka_unit_test(a_first_short_transfer_gives_a_figure_at_once),
        cmocka_unit_test(the_mean_follows_a_change_after_its_memory),
        cmocka_unit_test(a_route_that_never_rests_is_measured_too),
        cmocka_unit_test(a_pass_that_copies_by_itself_counts_from_its_beginning),
        cmocka_unit_test(rates_do_not_overflow),
        cmocka_unit_test(many_threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
