/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "platform/random.h"
#include "store/mirror.h"

static void place_free_and_iterate(void **state)
{
    (void)state;
    struct store_mirror *mirror;
    struct store_mirror_entry entry;
    uint64_t cursor = 0;
    assert_int_equal(store_mirror_create(&mirror), YOLK_OK);
    assert_int_equal(store_mirror_next(mirror, &cursor, &entry), 0);
    assert_int_equal(store_mirror_place(mirror, 128, 64, "b", 1), YOLK_OK);
    assert_int_equal(store_mirror_place(mirror, 0, 128, "a\0c", 3), YOLK_OK);
    assert_int_equal(store_mirror_place(mirror, 0, 128, "a\0c", 3), YOLK_OK); /* said twice */
    assert_int_equal(store_mirror_count(mirror), 2);
    assert_int_equal(store_mirror_next(mirror, &cursor, &entry), 1);
    assert_int_equal(entry.offset, 0);
    assert_int_equal(entry.size, 128);
    assert_int_equal(entry.key_size, 3);
    assert_memory_equal(entry.key, "a\0c", 3);
    assert_int_equal(store_mirror_next(mirror, &cursor, &entry), 1);
    assert_int_equal(entry.offset, 128);
    assert_int_equal(store_mirror_next(mirror, &cursor, &entry), 0);
    store_mirror_pin(mirror, 64); /* begins nowhere: nothing happens */
    store_mirror_pin(mirror, 128);
    for (cursor = 0; store_mirror_next(mirror, &cursor, &entry);)
        assert_int_equal(entry.pinned, entry.offset == 128);
    assert_int_equal(store_mirror_place(mirror, 128, 64, "c", 1), YOLK_OK);
    for (cursor = 0; store_mirror_next(mirror, &cursor, &entry);)
        assert_int_equal(entry.pinned, 0); /* something else lies there now */
    store_mirror_free(mirror, 64);         /* begins nowhere: nothing happens */
    assert_int_equal(store_mirror_count(mirror), 2);
    store_mirror_free(mirror, 0);
    store_mirror_free(mirror, 0);
    assert_int_equal(store_mirror_count(mirror), 1);
    store_mirror_destroy(mirror);
}

/* What a new placement covers is gone: offered later it would be another key's bytes. */
static void overlapping_entries_go(void **state)
{
    (void)state;
    enum { UNITS = 200, ROUNDS = 20000 };
    struct store_mirror *mirror;
    struct random_sim sim;
    random_sim_init(&sim, 5);
    struct random random = random_sim_random(&sim);
    uint32_t owner[UNITS] = {0}; /* entry number covering each unit, 0: none */
    uint32_t start[UNITS] = {0}; /* entry number beginning at a unit */
    assert_int_equal(store_mirror_create(&mirror), YOLK_OK);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t at = random_below(&random, UNITS);
        if (random_below(&random, 4) == 0) {
            store_mirror_free(mirror, at * 64);
            for (uint32_t i = 0, gone = start[at]; gone != 0 && i < UNITS; i++)
                owner[i] = owner[i] == gone ? 0 : owner[i];
            start[at] = 0;
        } else {
            uint64_t size = 1 + random_below(&random, UNITS - at > 9 ? 9 : UNITS - at);
            assert_int_equal(store_mirror_place(mirror, at * 64, size * 64, &round, sizeof(round)),
                             YOLK_OK);
            for (uint64_t u = at; u < at + size; u++) {
                uint32_t gone = owner[u];
                for (uint32_t i = 0; gone != 0 && i < UNITS; i++) {
                    owner[i] = owner[i] == gone ? 0 : owner[i];
                    start[i] = start[i] == gone ? 0 : start[i];
                }
            }
            for (uint64_t u = at; u < at + size; u++)
                owner[u] = round;
            start[at] = round;
        }
        if (round % 50 != 0)
            continue;
        uint64_t cursor = 0;
        struct store_mirror_entry entry;
        size_t count = 0;
        while (store_mirror_next(mirror, &cursor, &entry)) {
            uint32_t number;
            memcpy(&number, entry.key, sizeof(number));
            assert_int_equal(start[entry.offset / 64], number);
            count++;
        }
        size_t expected = 0;
        for (uint32_t i = 0; i < UNITS; i++)
            expected += start[i] != 0;
        assert_int_equal(count, expected);
        assert_int_equal(store_mirror_count(mirror), expected);
    }
    store_mirror_clear(mirror);
    assert_int_equal(store_mirror_count(mirror), 0);
    store_mirror_destroy(mirror);
}

static void sequence_and_sessions(void **state)
{
    (void)state;
    struct store_mirror *mirror;
    assert_int_equal(store_mirror_create(&mirror), YOLK_OK);
    assert_true(store_mirror_accepts(mirror, 1));
    assert_false(store_mirror_accepts(mirror, 2));
    store_mirror_applied(mirror, 1);
    assert_false(store_mirror_accepts(mirror, 1));
    assert_true(store_mirror_accepts(mirror, 2));
    for (uint64_t id = 1; id <= 40; id++) {
        assert_int_equal(store_mirror_session_open(mirror, id), YOLK_OK);
        assert_int_equal(store_mirror_session_open(mirror, id), YOLK_OK);
    }
    assert_int_equal(store_mirror_session_count(mirror), 40);
    store_mirror_session_gone(mirror, 7);
    store_mirror_session_gone(mirror, 7);
    assert_int_equal(store_mirror_session_count(mirror), 39);
    for (size_t i = 0; i < 39; i++)
        assert_int_not_equal(store_mirror_session(mirror, i), 7);
    store_mirror_mounted(mirror); /* facts begin anew, what is known stays */
    assert_int_equal(store_mirror_seq(mirror), 0);
    assert_int_equal(store_mirror_session_count(mirror), 39);
    store_mirror_destroy(mirror);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_free_and_iterate),
        cmocka_unit_test(overlapping_entries_go),
        cmocka_unit_test(sequence_and_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
