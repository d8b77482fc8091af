/* SPDX-License-Identifier: Apache-2.0 */
/* A handle finds what it was given for, and nothing once that is gone, whoever has the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/slots.h"

static void a_place_given_out_again(void **state)
{
    (void)state;
    struct slots slots;
    uint64_t old, now;
    int first, second;
    slots_init(&slots);
    assert_int_equal(slots_take(&slots, &first, &old), YOLK_OK);
    assert_ptr_equal(slots_find(&slots, old), &first);
    assert_ptr_equal(slots_drop(&slots, (uint32_t)old), &first);
    assert_null(slots_find(&slots, old));
    assert_null(slots_drop(&slots, (uint32_t)old));
    assert_int_equal(slots_take(&slots, &second, &now), YOLK_OK);
    assert_int_equal((uint32_t)now, (uint32_t)old); /* the same place */
    assert_ptr_equal(slots_find(&slots, now), &second);
    assert_null(slots_find(&slots, old));
    assert_null(slots_find(&slots, now + 1)); /* a place that never was */
    assert_null(slots_find(&slots, 0));
    free(slots.slots);
}

static void more_than_there_was_room_for(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct slots slots;
    uint64_t handles[COUNT];
    int things[COUNT];
    slots_init(&slots);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(slots_take(&slots, &things[i], &handles[i]), YOLK_OK);
    for (int i = 0; i < COUNT; i += 2)
        assert_ptr_equal(slots_drop(&slots, (uint32_t)handles[i]), &things[i]);
    for (int i = 0; i < COUNT; i++)
        assert_ptr_equal(slots_find(&slots, handles[i]), i % 2 == 0 ? NULL : &things[i]);
    free(slots.slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_given_out_again),
        cmocka_unit_test(more_than_there_was_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
