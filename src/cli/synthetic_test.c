/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/replay_model.h"
#include "cli/synthetic.h"

enum { REQUESTS = 12000 };

static void test_statistics(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct trace trace = {0};
        assert_int_equal(synthetic_generate(&trace, seed, REQUESTS), 0);
        assert_int_equal(trace.count, REQUESTS);
        uint64_t highest = 0;
        for (size_t i = 0; i < trace.id_count; i++)
            highest = trace.ids[i] > highest ? trace.ids[i] : highest;
        uint32_t *seen = calloc(highest + 1, sizeof *seen);
        assert_non_null(seen);
        for (size_t i = 0; i < trace.id_count; i++)
            seen[trace.ids[i]]++;
        uint64_t once = 0, unique = 0;
        for (uint64_t id = 0; id <= highest; id++) {
            unique += seen[id] > 0;
            once += seen[id] == 1;
        }
        free(seen);
        for (size_t i = 0; i < trace.count; i++)
            assert_int_equal(trace_ids(&trace, i)[0], 0);
        uint64_t hits = 0;
        assert_int_equal(replay_model_lru(&trace, 0, &hits), 0);
        double length = (double)trace.id_count / REQUESTS;
        double reusable = (double)hits / (double)trace.id_count;
        double once_share = (double)once / (double)unique;
        print_message("seed %d: %.1f blocks a request, %.3f reusable, %.3f seen once\n", (int)seed,
                      length, reusable, once_share);
        assert_true(length > 22.5 && length < 25.5);
        assert_true(reusable > 0.346 && reusable < 0.386);
        assert_true(once_share > 0.73 && once_share < 0.79);
        trace_free(&trace);
    }
}

static void test_seed_decides(void **state)
{
    (void)state;
    struct trace a = {0}, b = {0}, c = {0};
    assert_int_equal(synthetic_generate(&a, 5, 500), 0);
    assert_int_equal(synthetic_generate(&b, 5, 500), 0);
    assert_int_equal(synthetic_generate(&c, 6, 500), 0);
    assert_int_equal(a.id_count, b.id_count);
    assert_memory_equal(a.ids, b.ids, a.id_count * sizeof *a.ids);
    assert_true(a.id_count != c.id_count || memcmp(a.ids, c.ids, a.id_count * sizeof *a.ids) != 0);
    trace_free(&a);
    trace_free(&b);
    trace_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_seed_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
