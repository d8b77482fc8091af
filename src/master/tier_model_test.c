/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random nodes with memory, a disk and a GDS file, against the master: pushes and answers are lost,
 * late and repeated, copies fail, nodes are killed and come back with their files, sessions and
 * connections are made anew, the master restarts. The model knows the bytes everywhere. What a get
 * is told of holds the key's last value; nothing that is read, copied or filled is given to others;
 * in the end both sides know of the same extents.
 */
#include "master/tier_model_run.h"

static void what_is_told_is_there(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run(seed, 10000, false);
}

static void also_when_the_master_restarts(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 115; seed++)
        run(seed, 10000, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_is_there),
        cmocka_unit_test(also_when_the_master_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
