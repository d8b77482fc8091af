/* SPDX-License-Identifier: Apache-2.0 */
/* A master with one deliberate mistake is caught by the random world of its tiers; without one it
 * passes. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/mutation.h"
#include "master/tier_model_run.h"

enum { SEEDS = 6, STEPS = 4000 };

static uint64_t seed;

static void one_run(void **state)
{
    (void)state;
    run(seed, STEPS, seed % 2 == 0);
}

/* In a process of its own, whose failure is the answer. */
static bool fails(enum base_mutant mutant)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* Not by the macro: that names a test of this executable. */
        const struct CMUnitTest tests[] = {{.name = "one_run", .test_func = one_run}};
        base_mutant_active = mutant;
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        _exit(cmocka_run_group_tests(tests, NULL, NULL) != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

static void check_caught(enum base_mutant mutant)
{
    for (seed = 1; seed <= SEEDS; seed++)
        if (fails(mutant))
            return;
    fail_msg("%s: not caught by any seed", base_mutant_name(mutant));
}

static void the_right_one_passes(void **state)
{
    (void)state;
    for (seed = 1; seed <= SEEDS; seed++)
        assert_false(fails(MUT_NONE));
}

static void takes_any_generation(void **state)
{
    (void)state;
    check_caught(MUT_ANY_GENERATION);
}

static void has_deleted_what_is_read(void **state)
{
    (void)state;
    check_caught(MUT_FREED_UNDER_READER);
}

static void gives_space_under_a_writer(void **state)
{
    (void)state;
    check_caught(MUT_REUSE_UNDER_WRITER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_one_passes),
        cmocka_unit_test(takes_any_generation),
        cmocka_unit_test(has_deleted_what_is_read),
        cmocka_unit_test(gives_space_under_a_writer),
    };
    return cmocka_run_group_tests_name("mutants", tests, NULL, NULL);
}
