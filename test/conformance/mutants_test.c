/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with one deliberate mistake is caught by the cases named here; without one it passes.
 */
#include "base/mutation.h"
#include "caught.h"
#include "cases.h"
#include "transport/loop/loop.h"

enum { NAMED_MAX = 16 };

static struct conformance_fixture fixture = {.same_address = 1, .checks_tickets = 1};

#define CAUGHT_BY(mutant, ...)                                                                     \
    do {                                                                                           \
        static const char *const names[NAMED_MAX] = {__VA_ARGS__};                                 \
        fixture.ops = transport_loop_ops();                                                        \
        base_mutant_active = (mutant);                                                             \
        is_caught_by(&fixture, names);                                                             \
        base_mutant_active = MUT_NONE;                                                             \
    } while (0)

static void the_right_one_passes(void **state)
{
    (void)state;
    CAUGHT_BY(MUT_NONE, NULL);
}

static void frees_at_cancel(void **state)
{
    (void)state;
    CAUGHT_BY(MUT_FREE_AT_CANCEL, "stuck", "cancel_waits_for_quiet", "cancel_in_the_middle_waits",
              "deadline_waits_for_quiet", "a_stuck_range_is_refused_until_quiet");
}

static void ends_before_quiet(void **state)
{
    (void)state;
    CAUGHT_BY(MUT_END_BEFORE_QUIET, "failure_waits_for_quiet");
}

static void ignores_a_deadline(void **state)
{
    (void)state;
    CAUGHT_BY(MUT_IGNORE_DEADLINE, "dropped_ends_at_deadline", "deadline_while_queued",
              "deadline_while_posted", "deadline_waits_for_quiet",
              "a_stuck_range_is_refused_until_quiet");
}

static void merges_across_priorities(void **state)
{
    (void)state;
    CAUGHT_BY(MUT_MERGE_ACROSS_PRIORITIES, "only_what_is_alike_is_joined");
}

static void resubmits_an_alias(void **state)
{
    (void)state;
    CAUGHT_BY(MUT_RESUBMIT_ALIAS, "a_joined_one_is_canceled_while_queued",
              "a_joined_one_is_canceled_while_posted", "a_scattered_one_is_canceled");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_one_passes),     cmocka_unit_test(frees_at_cancel),
        cmocka_unit_test(ends_before_quiet),        cmocka_unit_test(ignores_a_deadline),
        cmocka_unit_test(merges_across_priorities), cmocka_unit_test(resubmits_an_alias),
    };
    return cmocka_run_group_tests_name("mutants", tests, NULL, NULL);
}
