/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/holds.h"
#include "store/replica_choice.h"
#include "wire/msg.h"

static void floor_and_done(void **state)
{
    (void)state;
    struct store_holds *holds;
    struct store_stamp stamp;
    struct store_stamp later;
    assert_int_equal(store_holds_create(&holds), YOLK_OK);
    store_holds_stamp(holds, &stamp);
    assert_int_equal(stamp.session, 0);
    assert_int_equal(stamp.floor, 1);
    store_holds_set_session(holds, 5);
    uint64_t a = store_holds_begin(holds);
    uint64_t b = store_holds_begin(holds);
    uint64_t c = store_holds_begin(holds);
    assert_true(a < b && b < c);
    store_holds_finish(holds, b);
    store_holds_finish(holds, b);
    store_holds_stamp(holds, &stamp);
    assert_int_equal(stamp.session, 5);
    assert_int_equal(stamp.floor, a);
    assert_int_equal(stamp.done_count, 1);
    assert_int_equal(stamp.done[0], b);
    store_holds_stamp(holds, &later); /* the first may be lost: said again until one is answered */
    assert_int_equal(later.done_count, 1);
    store_holds_acknowledge(holds, &stamp);
    store_holds_stamp(holds, &stamp);
    assert_int_equal(stamp.done_count, 0);
    assert_false(store_holds_is_live(holds, b));
    assert_true(store_holds_is_live(holds, a));
    store_holds_finish(holds, a);
    store_holds_stamp(holds, &stamp);
    assert_int_equal(stamp.floor, c);
    store_holds_acknowledge(holds, &stamp); /* a lies below the floor that was told */
    store_holds_finish(holds, c);
    store_holds_stamp(holds, &stamp);
    assert_int_equal(stamp.floor, c + 1);
    assert_int_equal(store_holds_live_count(holds), 0);
    store_holds_destroy(holds);
}

static void many_ends(void **state)
{
    (void)state;
    struct store_holds *holds;
    struct store_stamp stamp;
    assert_int_equal(store_holds_create(&holds), YOLK_OK);
    store_holds_set_session(holds, 5);
    uint64_t pin = store_holds_begin(holds);
    for (int i = 0; i < 1000; i++)
        store_holds_finish(holds, store_holds_begin(holds));
    uint64_t told = 0;
    for (;;) {
        store_holds_stamp(holds, &stamp);
        assert_int_equal(stamp.floor, pin);
        if (stamp.done_count == 0)
            break;
        told += stamp.done_count;
        store_holds_acknowledge(holds, &stamp);
    }
    assert_int_equal(told, 1000);
    store_holds_destroy(holds);
}

static void held(void **state)
{
    (void)state;
    struct store_holds *holds;
    struct store_stamp stamp;
    struct base_buf out;
    base_buf_init(&out, 4096);
    assert_int_equal(store_holds_create(&holds), YOLK_OK);
    store_holds_stamp(holds, &stamp);
    uint64_t op = store_holds_begin(holds);
    assert_int_equal(store_holds_extent(holds, op, stamp.epoch, 9, 64, 128), YOLK_OK);
    assert_int_equal(store_holds_extent(holds, op + 1, stamp.epoch, 9, 64, 128), YOLK_ERR_INVALID);
    assert_int_equal(store_holds_report(holds, &out), YOLK_OK);
    struct wire_view list = wire_view_buf(&out);
    assert_int_equal(wire_held_count(list), 1);
    struct wire_held record = wire_held_at(list, 0);
    assert_int_equal(record.seg_generation, 9);
    assert_int_equal(record.offset, 64);
    assert_int_equal(record.size, 128);
    assert_int_equal(record.op, op);
    assert_int_equal(store_holds_extent(holds, op, stamp.epoch, 9, 256, 128), YOLK_ERR_STALE);
    store_holds_stamp(holds, &stamp);
    assert_int_equal(store_holds_extent(holds, op, stamp.epoch, 9, 256, 128), YOLK_OK);
    store_holds_finish(holds, op);
    base_buf_clear(&out);
    assert_int_equal(store_holds_report(holds, &out), YOLK_OK);
    assert_int_equal(out.size, 0);
    base_buf_free(&out);
    store_holds_destroy(holds);
}

static uint32_t cost(void *self, const struct store_replica *replica)
{
    (void)self;
    return (uint32_t)replica->segment;
}

static void replica_order(void **state)
{
    (void)state;
    struct store_replica replicas[3] = {{.segment = 2}, {.segment = 0}, {.segment = 1}};
    struct store_replica_choice choice = {NULL, cost};
    assert_int_equal(store_replica_choose(&choice, replicas, 3, 0, 5), 1);
    assert_int_equal(store_replica_choose(&choice, replicas, 3, 2, 5), 2);
    assert_int_equal(store_replica_choose(&choice, replicas, 3, 6, 5), 0);
    assert_int_equal(store_replica_choose(&choice, replicas, 3, 7, 5), -1);
    assert_int_equal(store_replica_choose(NULL, replicas, 3, 1, 5), 1);
    assert_int_equal(store_replica_choose(NULL, replicas, 0, 0, 5), -1);
    struct store_replica same[2] = {{.segment = 4}, {.segment = 4}};
    assert_int_equal(store_replica_choose(&choice, same, 2, 0, 0), 0);
    assert_int_equal(store_replica_choose(&choice, same, 2, 0, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floor_and_done),
        cmocka_unit_test(many_ends),
        cmocka_unit_test(held),
        cmocka_unit_test(replica_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
