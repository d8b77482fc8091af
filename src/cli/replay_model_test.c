/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/replay_content.h"
#include "cli/replay_model.h"
#include "cli/trace_kit.h"

static void test_small_lru_by_hand(void **state)
{
    (void)state;
    struct trace trace = {0};
    const uint64_t first[] = {1, 2}, second[] = {1, 3}, third[] = {2}, fourth[] = {3, 1};
    assert_int_equal(trace_add(&trace, first, 2), 0);
    assert_int_equal(trace_add(&trace, second, 2), 0);
    assert_int_equal(trace_add(&trace, third, 1), 0);
    assert_int_equal(trace_add(&trace, fourth, 2), 0);
    uint64_t hits = 0;
    /* Two blocks: {1,2}; 1 hit, 3 drives out 2; 2 drives out 1; 3 hit, 1 missing. */
    assert_int_equal(replay_model_lru(&trace, 2, &hits), 0);
    assert_int_equal(hits, 2);
    assert_int_equal(replay_model_lru(&trace, 0, &hits), 0);
    assert_int_equal(hits, 4);
    trace_free(&trace);
}

static void test_published_trace(void **state)
{
    (void)state;
    struct trace trace = {0};
    trace_load_published(&trace);
    assert_int_equal(trace.id_count, 288500);
    static const struct {
        size_t capacity;
        double rate;
    } published[] = {{3656, 0.079},  {9140, 0.195},  {18279, 0.278}, {36558, 0.345},
                     {91395, 0.363}, {32768, 0.335}, {29491, 0.325}};
    uint64_t hits = 0;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        assert_int_equal(replay_model_lru(&trace, published[i].capacity, &hits), 0);
        double rate = (double)hits / 288500;
        print_message("%zu blocks: %.4f (published %.3f)\n", published[i].capacity, rate,
                      published[i].rate);
        assert_true(rate > published[i].rate - 0.002 && rate < published[i].rate + 0.002);
    }
    assert_int_equal(replay_model_lru(&trace, 0, &hits), 0);
    assert_int_equal(hits, 105710);
    trace_free(&trace);
}

static void test_content_is_told_apart(void **state)
{
    (void)state;
    unsigned char data[1003], other[1003];
    replay_content_fill(17, data, sizeof data);
    assert_int_equal(replay_content_check(17, data, sizeof data), 0);
    data[1000] ^= 1;
    data[5] ^= 0x80;
    assert_int_equal(replay_content_check(17, data, sizeof data), 2);
    replay_content_fill(18, other, sizeof other);
    assert_true(replay_content_check(17, other, sizeof other) > 950);
    memset(other, 0, sizeof other);
    assert_true(replay_content_check(17, other, sizeof other) > 950);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_lru_by_hand),
        cmocka_unit_test(test_published_trace),
        cmocka_unit_test(test_content_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
