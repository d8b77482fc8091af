/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "base/imap.h"

enum { SPACE = 512 };

static void edges(void **state)
{
    (void)state;
    struct base_imap map;
    struct base_range found;
    int a;
    int b;
    base_imap_init(&map);
    assert_false(base_imap_get(&map, 0, NULL));
    assert_false(base_imap_remove(&map, 0, NULL));
    assert_int_equal(base_imap_insert(&map, 100, 0, &a), YOLK_ERR_INVALID);
    assert_int_equal(base_imap_insert(&map, UINT64_MAX, 2, &a), YOLK_ERR_INVALID);
    assert_int_equal(base_imap_insert(&map, 100, 10, &a), YOLK_OK);
    assert_int_equal(base_imap_insert(&map, 110, 10, &b), YOLK_OK);
    assert_int_equal(base_imap_insert(&map, 119, 1, &b), YOLK_ERR_OVERLAP);
    assert_int_equal(base_imap_insert(&map, 90, 11, &b), YOLK_ERR_OVERLAP);
    assert_int_equal(base_imap_insert(&map, 0, UINT64_MAX, &b), YOLK_ERR_OVERLAP);
    assert_true(base_imap_contains(&map, 100, 10, &found));
    assert_ptr_equal(found.value, &a);
    /* Two neighbours are not one range. */
    assert_false(base_imap_contains(&map, 105, 10, NULL));
    assert_true(base_imap_contains(&map, 109, 1, NULL));
    assert_true(base_imap_contains(&map, 109, 0, NULL));
    assert_false(base_imap_contains(&map, 120, 0, NULL));
    assert_false(base_imap_contains(&map, 105, UINT64_MAX, NULL));
    assert_false(base_imap_overlap(&map, 105, 0, NULL));
    assert_true(base_imap_overlap(&map, 0, 101, &found));
    assert_int_equal(found.start, 100);
    assert_false(base_imap_overlap(&map, 0, 100, NULL));
    assert_false(base_imap_overlap(&map, 120, UINT64_MAX, NULL));
    /* The last byte of the address space. */
    assert_int_equal(base_imap_insert(&map, UINT64_MAX - 3, 4, &b), YOLK_OK);
    assert_true(base_imap_contains(&map, UINT64_MAX, 1, &found));
    assert_true(base_imap_overlap(&map, UINT64_MAX, 1, NULL));
    assert_true(base_imap_overlap(&map, 200, UINT64_MAX, NULL));
    assert_true(base_imap_remove(&map, 100, &found));
    assert_ptr_equal(found.value, &a);
    assert_int_equal(base_imap_count(&map), 2);
    assert_int_equal(base_imap_insert(&map, 90, 20, &b), YOLK_OK);
    base_imap_free(&map);
    assert_int_equal(base_imap_count(&map), 0);
}

/* The model: owner[i] is the start of the range that byte i is in, or -1. */
static bool model_overlaps(const int *owner, unsigned start, unsigned size)
{
    for (unsigned i = start; i < start + size; i++) {
        if (owner[i] >= 0)
            return true;
    }
    return false;
}

static void check(const struct base_imap *map, const int *owner, unsigned start, unsigned size)
{
    struct base_range found;
    bool inside = owner[start] >= 0;
    int first = -1;
    for (unsigned i = start; i < start + size; i++) {
        inside = inside && owner[i] == owner[start];
        if (first < 0)
            first = owner[i];
    }
    assert_int_equal(base_imap_contains(map, start, size, NULL), inside);
    assert_int_equal(base_imap_overlap(map, start, size, &found), first >= 0);
    if (first >= 0)
        assert_int_equal(found.start, first);
    unsigned next = start;
    while (next < SPACE && owner[next] != (int)next)
        next++;
    assert_int_equal(base_imap_next(map, start, &found), next < SPACE);
    if (next < SPACE)
        assert_int_equal(found.start, next);
    assert_int_equal(base_imap_get(map, start, NULL), owner[start] == (int)start);
}

static void agrees_with_a_model(void **state)
{
    (void)state;
    struct base_imap map;
    int owner[SPACE];
    size_t count = 0;
    memset(owner, -1, sizeof(owner));
    base_imap_init(&map);
    for (uint64_t step = 0; step < 20000; step++) {
        uint64_t random = base_mix64(step + 1);
        unsigned start = (unsigned)(random % SPACE);
        unsigned size = 1 + (unsigned)(random >> 20) % 24;
        if (size > SPACE - start)
            size = SPACE - start;
        if ((random >> 40) % 2 == 0) {
            bool taken = model_overlaps(owner, start, size);
            assert_int_equal(base_imap_insert(&map, start, size, NULL),
                             taken ? YOLK_ERR_OVERLAP : YOLK_OK);
            for (unsigned i = start; !taken && i < start + size; i++)
                owner[i] = (int)start;
            count += !taken;
        } else {
            bool there = owner[start] == (int)start;
            assert_int_equal(base_imap_remove(&map, start, NULL), there);
            for (unsigned i = start; there && i < SPACE && owner[i] == (int)start; i++)
                owner[i] = -1;
            count -= there;
        }
        assert_int_equal(base_imap_count(&map), count);
        check(&map, owner, (unsigned)(random >> 50) % (SPACE - 24), 1 + (unsigned)step % 24);
    }
    base_imap_free(&map);
}

static void sorted_input_stays_shallow(void **state)
{
    (void)state;
    struct base_imap map;
    struct base_range found;
    base_imap_init(&map);
    for (uint64_t i = 0; i < 200000; i++)
        assert_int_equal(base_imap_insert(&map, i * 16, 16, NULL), YOLK_OK);
    uint64_t seen = 0;
    for (uint64_t from = 0; base_imap_next(&map, from, &found); from = found.start + found.size)
        seen++;
    assert_int_equal(seen, 200000);
    base_imap_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges),
        cmocka_unit_test(agrees_with_a_model),
        cmocka_unit_test(sorted_input_stays_shallow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
