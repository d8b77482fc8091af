/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct breaker_rule rule = {.failures_max = 3, .cooldown_ns = 100};

static void opens_probes_and_closes(void **state)
{
    (void)state;
    struct breaker b = {0};
    assert_true(breaker_allows(&b, &rule, 1));
    assert_false(breaker_failure(&b, &rule, 1, YOLK_ERR_LINK));
    assert_false(breaker_failure(&b, &rule, 2, YOLK_ERR_LINK));
    breaker_success(&b); /* only failures in a row count */
    assert_false(breaker_failure(&b, &rule, 3, YOLK_ERR_LINK));
    assert_false(breaker_failure(&b, &rule, 4, YOLK_ERR_LINK));
    assert_true(breaker_failure(&b, &rule, 5, YOLK_ERR_PEER_DEAD));
    assert_int_equal(b.last, YOLK_ERR_PEER_DEAD);
    assert_false(breaker_allows(&b, &rule, 104));
    assert_true(breaker_is_open(&b, 104));
    assert_true(breaker_allows(&b, &rule, 105));  /* the probe */
    assert_false(breaker_allows(&b, &rule, 106)); /* one only */
    assert_false(breaker_failure(&b, &rule, 110, YOLK_ERR_LINK));
    assert_false(breaker_allows(&b, &rule, 309)); /* twice as long */
    assert_true(breaker_allows(&b, &rule, 310));
    breaker_success(&b);
    assert_true(breaker_allows(&b, &rule, 311));
    assert_true(breaker_allows(&b, &rule, 311));
}

static void pause_is_bounded(void **state)
{
    (void)state;
    struct breaker b = {0};
    uint64_t now_ns = 0;
    for (int i = 0; i < 3; i++)
        (void)breaker_failure(&b, &rule, now_ns, YOLK_ERR_LINK);
    for (int i = 0; i < 50; i++) {
        now_ns = b.open_until_ns;
        assert_true(breaker_allows(&b, &rule, now_ns));
        assert_false(breaker_failure(&b, &rule, now_ns + 1, YOLK_ERR_LINK));
    }
    assert_int_equal(b.open_until_ns - now_ns - 1, 3200);
}

/* What was in flight when it opened fails too, and that is the same outage. */
static void stragglers_do_not_prolong_it(void **state)
{
    (void)state;
    const struct breaker_rule one = {.failures_max = 1, .cooldown_ns = 1000};
    struct breaker b = {0};
    assert_true(breaker_failure(&b, &one, 100, YOLK_ERR_LINK));
    for (uint64_t now = 101; now < 120; now++)
        assert_false(breaker_failure(&b, &one, now, YOLK_ERR_LINK));
    assert_false(breaker_allows(&b, &one, 1099));
    assert_true(breaker_allows(&b, &one, 1100));
    assert_false(breaker_failure(&b, &one, 1200, YOLK_ERR_LINK)); /* the probe */
    assert_false(breaker_failure(&b, &one, 1201, YOLK_ERR_LINK));
    assert_false(breaker_allows(&b, &one, 3199));
    assert_true(breaker_allows(&b, &one, 3200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stragglers_do_not_prolong_it),
        cmocka_unit_test(opens_probes_and_closes),
        cmocka_unit_test(pause_is_bounded),
    };
    return cmocka_run_group_tests_name("engine.breaker", tests, NULL, NULL);
}
