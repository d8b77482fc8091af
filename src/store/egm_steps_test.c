/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up and tear-down of an EGM pool with each step failing, once and for ever after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/limits.h"
#include "store/egm_steps.h"

enum { CHUNKS = 3, LOG_MAX = 256 };

/* What a driver, an engine and a master would have of each chunk, kept apart from the machine. */
static struct {
    bool memory, registered, mounted;
} world[CHUNKS];

static struct {
    enum egm_step step;
    uint32_t chunk;
    bool done;
} calls[LOG_MAX];
static uint32_t call_count;

/* The call of that number fails, and those after it when `for_ever`; unknown: with what it is about
 * being there all the same. */
static struct {
    uint32_t call;
    bool for_ever, unknown;
} fault;

static void reset(void)
{
    for (int i = 0; i < CHUNKS; i++)
        world[i].memory = world[i].registered = world[i].mounted = false;
    call_count = 0;
    fault.call = UINT32_MAX;
}

/* Does the step to the world; false: it is one that may not be done now. */
static bool apply(enum egm_step step, uint32_t i)
{
    bool memory = world[i].memory, registered = world[i].registered, mounted = world[i].mounted;
    switch (step) {
    case EGM_STEP_ALLOCATE:
        world[i].memory = true;
        return !memory;
    case EGM_STEP_REGISTER:
        world[i].registered = true;
        return memory && !registered;
    case EGM_STEP_MOUNT:
        world[i].mounted = true;
        return registered && !mounted;
    case EGM_STEP_UNMOUNT:
        world[i].mounted = false;
        return registered && memory; /* perhaps it never was: the outcome was unknown */
    case EGM_STEP_UNREGISTER:
        world[i].registered = false;
        return !mounted && memory;
    case EGM_STEP_RELEASE:
        world[i].memory = false;
        return !mounted && !registered;
    default:
        return false;
    }
}

static void pass(struct egm_steps *steps)
{
    uint32_t chunk = 0;
    enum egm_step step;
    while ((step = egm_steps_next(steps, &chunk)) != EGM_STEP_NONE) {
        bool sets_up = step <= EGM_STEP_MOUNT;
        bool fails = call_count == fault.call || (fault.for_ever && call_count > fault.call);
        assert_true(call_count < LOG_MAX && chunk < CHUNKS);
        calls[call_count].step = step;
        calls[call_count].chunk = chunk;
        calls[call_count++].done = !fails;
        /* A tear-down that fails is taken as not done, whether it is or not. */
        if (!fails || (sets_up && fault.unknown))
            assert_true(apply(step, chunk));
        enum egm_outcome outcome = !fails                     ? EGM_DONE
                                   : sets_up && fault.unknown ? EGM_UNKNOWN
                                                              : EGM_NOT_DONE;
        egm_steps_done(steps, chunk, outcome, fails ? YOLK_ERR_IO : YOLK_OK);
    }
}

static bool world_is_empty(void)
{
    for (int i = 0; i < CHUNKS; i++)
        if (world[i].memory || world[i].registered || world[i].mounted)
            return false;
    return true;
}

/* Each step to a chunk succeeds at most once. */
static void check_nothing_repeated(void)
{
    for (uint32_t i = 0; i < call_count; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_false(calls[i].done && calls[j].done && calls[i].step == calls[j].step &&
                         calls[i].chunk == calls[j].chunk);
}

static void the_order_of_a_whole_life(void **state)
{
    (void)state;
    static const struct {
        enum egm_step step;
        uint32_t chunk;
    } wanted[] = {
        {EGM_STEP_ALLOCATE, 0},   {EGM_STEP_ALLOCATE, 1},   {EGM_STEP_ALLOCATE, 2},
        {EGM_STEP_REGISTER, 0},   {EGM_STEP_MOUNT, 0},      {EGM_STEP_REGISTER, 1},
        {EGM_STEP_MOUNT, 1},      {EGM_STEP_REGISTER, 2},   {EGM_STEP_MOUNT, 2},
        {EGM_STEP_UNMOUNT, 2},    {EGM_STEP_UNMOUNT, 1},    {EGM_STEP_UNMOUNT, 0},
        {EGM_STEP_UNREGISTER, 2}, {EGM_STEP_UNREGISTER, 1}, {EGM_STEP_UNREGISTER, 0},
        {EGM_STEP_RELEASE, 2},    {EGM_STEP_RELEASE, 1},    {EGM_STEP_RELEASE, 0},
    };
    struct egm_steps steps;
    reset();
    assert_int_equal(egm_steps_init(&steps, CHUNKS), YOLK_OK);
    pass(&steps);
    assert_int_equal(steps.state, EGM_READY);
    assert_int_equal(call_count, 9);
    egm_steps_close(&steps);
    pass(&steps);
    assert_int_equal(steps.state, EGM_CLOSED);
    assert_int_equal(call_count, 18);
    for (uint32_t i = 0; i < call_count; i++) {
        assert_int_equal(calls[i].step, wanted[i].step);
        assert_int_equal(calls[i].chunk, wanted[i].chunk);
    }
    egm_steps_close(&steps); /* closed twice */
    pass(&steps);
    assert_int_equal(call_count, 18);
    assert_true(world_is_empty());
    egm_steps_free(&steps);
}

static void fail_at(uint32_t call, bool for_ever, bool unknown)
{
    struct egm_steps steps;
    reset();
    fault.call = call;
    fault.for_ever = for_ever;
    fault.unknown = unknown;
    assert_int_equal(egm_steps_init(&steps, CHUNKS), YOLK_OK);
    pass(&steps);
    assert_int_equal(steps.state == EGM_READY, call >= 9);
    assert_int_equal(steps.failure, call >= 9 ? YOLK_OK : YOLK_ERR_IO);
    if (steps.state == EGM_READY) {
        egm_steps_close(&steps);
        pass(&steps);
    }
    /* It says that all is gone exactly when all is. */
    assert_int_equal(steps.state, world_is_empty() ? EGM_CLOSED : EGM_LEFT);
    assert_int_equal(steps.failure, YOLK_ERR_IO);
    check_nothing_repeated();
    if (steps.state == EGM_LEFT && for_ever) {
        uint32_t before = call_count;
        egm_steps_close(&steps);
        pass(&steps);
        assert_int_equal(steps.state, EGM_LEFT); /* it ends, and still owns what is there */
        assert_int_equal(steps.failure, YOLK_ERR_IO);
        assert_true(call_count > before);
    }
    fault.call = UINT32_MAX; /* all is well again: one more close finishes */
    egm_steps_close(&steps);
    pass(&steps);
    assert_int_equal(steps.state, EGM_CLOSED);
    assert_true(world_is_empty());
    check_nothing_repeated();
    egm_steps_free(&steps);
}

static void each_step_fails_once(void **state)
{
    (void)state;
    for (uint32_t call = 0; call < 18; call++)
        for (int unknown = 0; unknown < 2; unknown++)
            fail_at(call, false, unknown != 0);
}

static void each_step_fails_and_all_after_it(void **state)
{
    (void)state;
    for (uint32_t call = 0; call < 18; call++)
        for (int unknown = 0; unknown < 2; unknown++)
            fail_at(call, true, unknown != 0);
}

/* One chunk that does not come loose keeps no other. */
static void what_does_not_depend_on_a_failure_goes_on(void **state)
{
    (void)state;
    struct egm_steps steps;
    reset();
    assert_int_equal(egm_steps_init(&steps, CHUNKS), YOLK_OK);
    pass(&steps);
    fault.call = 10; /* unmount of chunk 1 */
    fault.for_ever = fault.unknown = false;
    egm_steps_close(&steps);
    pass(&steps);
    assert_int_equal(steps.state, EGM_LEFT);
    assert_true(world[1].memory && world[1].registered && world[1].mounted);
    assert_false(world[0].memory || world[2].memory);
    uint32_t before = call_count;
    egm_steps_close(&steps);
    pass(&steps);
    assert_int_equal(call_count, before + 3);
    assert_int_equal(steps.state, EGM_CLOSED);
    assert_int_equal(steps.failure, YOLK_OK);
    egm_steps_free(&steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_a_whole_life),
        cmocka_unit_test(each_step_fails_once),
        cmocka_unit_test(each_step_fails_and_all_after_it),
        cmocka_unit_test(what_does_not_depend_on_a_failure_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
