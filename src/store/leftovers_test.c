/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <yolk/engine.h>

#include "engine/bulk.h"
#include "store/leftovers.h"
#include "transport/loop/loop.h"

static uint8_t memory[8192];

static int registered(struct yolk_engine *engine)
{
    return yolk_engine_is_registered(engine, memory, sizeof(memory));
}

static void the_last_hold_ends_it(void **state)
{
    struct yolk_engine_options options;
    struct yolk_engine *engine;
    struct store_leftovers leftovers;
    uint64_t start, end;
    (void)state;
    const struct yolk_transport_ops *loop = transport_loop_ops();
    yolk_engine_options_init(&options);
    options.transports = &loop;
    options.transport_count = 1;
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_OK);
    store_leftovers_init(&leftovers);
    assert_int_equal(yolk_engine_register(engine, memory, sizeof(memory)), YOLK_OK);
    struct registration *one = engine_hold(engine, memory + 1, 10, &start, &end);
    struct registration *two = engine_hold(engine, memory + 99, 10, &start, &end);
    assert_non_null(one);
    assert_non_null(two);
    assert_int_equal(store_leftovers_end(&leftovers, engine, memory, sizeof(memory)),
                     YOLK_ERR_BUSY);
    engine_give_back(one);
    store_leftovers_look(&leftovers, engine);
    assert_int_equal(registered(engine), 1);
    engine_give_back(two);
    store_leftovers_look(&leftovers, engine);
    assert_int_equal(registered(engine), 0);
    store_leftovers_look(&leftovers, engine); /* and once only */

    assert_int_equal(yolk_engine_register(engine, memory, sizeof(memory)), YOLK_OK);
    assert_int_equal(store_leftovers_end(&leftovers, engine, memory, sizeof(memory)), YOLK_OK);
    assert_int_equal(registered(engine), 0);
    store_leftovers_destroy(&leftovers);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_hold_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
