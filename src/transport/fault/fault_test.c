/* SPDX-License-Identifier: Apache-2.0 */
/* Each fault does what it is named for, and nothing else; the same seed draws the same ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/fault/fault.h"
#include "transport/loop/loop.h"

enum { IOS = 64, BYTES = 64, SIZE = IOS * BYTES, SEGMENT = 7, SESSION = 9, POLLS = 200 };

struct setup {
    struct fault_options options;
    struct fault_control control;
    struct yolk_transport_ops ops;
    struct yolk_transport_options transport;
    void *endpoint, *served, *target, *channel;
    char text[128];
    uint8_t there[SIZE], here[SIZE];
    struct yolk_io ios[IOS];
    enum yolk_submit submitted[IOS];
    struct yolk_completion last[IOS];
    uint32_t reports[IOS]; /* of each */
    uint32_t order[2 * IOS];
    uint32_t reported; /* in all */
    uint32_t polls;
};

static enum yolk_status allow(void *self, const struct yolk_access_request *request)
{
    (void)self;
    return request->segment == SEGMENT ? YOLK_OK : YOLK_ERR_STALE;
}

static uint64_t now_42(void *self)
{
    (void)self;
    return 42;
}

static void open_channel(struct setup *s)
{
    assert_int_equal(s->ops.channel_open(s->endpoint, s->target, &s->channel), YOLK_OK);
}

static void open_all(struct setup *s, struct fault_options options)
{
    memset(s, 0, sizeof(*s));
    s->options = options;
    s->options.inner = transport_loop_ops();
    s->options.control = &s->control;
    transport_fault_make(&s->options, &s->ops);
    s->transport = (struct yolk_transport_options){
        .struct_size = sizeof(s->transport), .now_ns = now_42, .wrapped = &s->options};
    for (uint32_t i = 0; i < SIZE; i++)
        s->there[i] = (uint8_t)(i * 7 + i / 251 + 1);
    memset(s->here, 0xee, SIZE);
    const struct yolk_serve serve = {
        .memory = s->there, .size = SIZE, .segment = SEGMENT, .access = {.check = allow}};
    assert_int_equal(s->ops.init(&s->transport, &s->endpoint), YOLK_OK);
    assert_int_equal(s->ops.serve(s->endpoint, &serve, &s->served, s->text, sizeof(s->text)),
                     YOLK_OK);
    assert_int_equal(s->ops.open_target(s->endpoint, s->text, SEGMENT, SIZE, SESSION, &s->target),
                     YOLK_OK);
    open_channel(s);
}

static void close_all(struct setup *s)
{
    assert_int_equal(s->ops.channel_close(s->channel), YOLK_OK);
    s->ops.close_target(s->endpoint, s->target);
    s->ops.unserve(s->endpoint, s->served);
    assert_int_equal(s->ops.stop(s->endpoint), YOLK_OK);
    s->ops.fini(s->endpoint);
}

static void submit(struct setup *s, uint32_t i)
{
    s->ios[i] = (struct yolk_io){.opcode = YOLK_READ,
                                 .local = s->here + i * BYTES,
                                 .offset = i * BYTES,
                                 .size = BYTES,
                                 .deadline_ns = UINT64_MAX,
                                 .cookie = i};
    s->submitted[i] = s->ops.submit(s->channel, &s->ios[i]);
}

static void submit_all(struct setup *s)
{
    for (uint32_t i = 0; i < IOS; i++)
        submit(s, i);
}

static uint32_t poll_once(struct setup *s)
{
    struct yolk_completion completions[2 * IOS];
    uint32_t count = s->ops.poll(s->channel, completions, 2 * IOS);
    s->polls++;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t cookie = completions[i].cookie;
        assert_true(cookie < IOS);
        assert_true(s->reported < 2 * IOS);
        s->order[s->reported++] = (uint32_t)cookie;
        s->reports[cookie]++;
        s->last[cookie] = completions[i];
    }
    return count;
}

static void poll_often(struct setup *s)
{
    for (uint32_t i = 0; i < POLLS; i++)
        (void)poll_once(s);
}

static bool is_there(const struct setup *s, uint32_t i, uint64_t size)
{
    return memcmp(s->here + i * BYTES, s->there + i * BYTES, size) == 0;
}

static bool is_untouched(const struct setup *s, uint32_t i, uint64_t from)
{
    for (uint64_t k = from; k < BYTES; k++)
        if (s->here[i * BYTES + k] != 0xee)
            return false;
    return true;
}

static void assert_all_done(struct setup *s, uint32_t times)
{
    for (uint32_t i = 0; i < IOS; i++) {
        assert_int_equal(s->submitted[i], YOLK_SUBMIT_QUEUED);
        assert_int_equal(s->reports[i], times);
        assert_int_equal(s->last[i].status, YOLK_OK);
        assert_int_equal(s->last[i].transferred, BYTES);
        assert_true(is_there(s, i, BYTES));
    }
}

static void without_faults_nothing_is_disturbed(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 1});
    submit_all(&s);
    assert_int_equal(poll_once(&s), IOS);
    assert_all_done(&s, 1);
    for (uint32_t i = 0; i < IOS; i++)
        assert_int_equal(s.order[i], i);
    assert_int_equal(atomic_load(&s.control.injected), 0);
    close_all(&s);
}

static void delayed_ones_are_there_and_reported_later(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 2, .delay_permille = 1000, .delay_polls_max = 5});
    submit_all(&s);
    assert_true(is_there(&s, 0, SIZE));
    assert_in_range(poll_once(&s), 1, IOS - 1);
    while (s.reported < IOS)
        (void)poll_once(&s);
    assert_int_equal(s.polls, 5);
    poll_often(&s);
    assert_all_done(&s, 1);
    close_all(&s);
}

static void deferred_ones_move_later(void **state)
{
    (void)state;
    struct setup s;
    uint32_t moved = 0;
    open_all(&s, (struct fault_options){.seed = 3, .defer_permille = 1000, .delay_polls_max = 5});
    submit_all(&s);
    assert_true(is_untouched(&s, 0, 0));
    assert_int_equal(s.ops.channel_close(s.channel), YOLK_ERR_BUSY);
    (void)poll_once(&s);
    (void)poll_once(&s);
    for (uint32_t i = 0; i < IOS; i++) {
        assert_true(s.reports[i] == 1 ? is_there(&s, i, BYTES) : is_untouched(&s, i, 0));
        moved += s.reports[i];
    }
    assert_in_range(moved, 1, IOS - 1);
    poll_often(&s);
    assert_all_done(&s, 1);
    close_all(&s);
}

static void dropped_ones_come_back_by_cancel_or_release(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 4, .drop_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    assert_int_equal(s.reported, 0);
    s.ops.cancel(s.channel, 5);
    assert_int_equal(poll_once(&s), 1);
    assert_int_equal(s.reports[5], 1);
    atomic_store(&s.control.release, 1);
    assert_int_equal(poll_once(&s), IOS - 1);
    assert_all_done(&s, 1);
    close_all(&s);
}

static void stuck_ones_come_back_by_release_alone(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 5, .stuck_permille = 1000});
    submit_all(&s);
    for (uint32_t i = 0; i < IOS; i++)
        s.ops.cancel(s.channel, i);
    poll_often(&s);
    assert_int_equal(s.reported, 0);
    assert_int_equal(atomic_load(&s.control.stuck), IOS);
    atomic_store(&s.control.release, 1);
    assert_int_equal(poll_once(&s), IOS);
    assert_int_equal(atomic_load(&s.control.stuck), 0);
    assert_all_done(&s, 1);
    close_all(&s);
}

static void reordered_ones_overtake(void **state)
{
    (void)state;
    struct setup s;
    uint32_t earlier = 0;
    open_all(&s, (struct fault_options){.seed = 6, .reorder_permille = 300});
    submit_all(&s);
    poll_often(&s);
    assert_all_done(&s, 1);
    for (uint32_t i = 1; i < IOS; i++)
        earlier += s.order[i] < s.order[i - 1];
    assert_in_range(earlier, 5, IOS - 1);
    close_all(&s);
}

static void doubled_ones_are_reported_twice(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 7, .duplicate_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    assert_all_done(&s, 2);
    close_all(&s);
}

static void short_ones_say_how_much(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 8, .short_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    for (uint32_t i = 0; i < IOS; i++) {
        assert_int_equal(s.reports[i], 1);
        assert_int_equal(s.last[i].status, YOLK_OK);
        assert_in_range(s.last[i].transferred, 1, BYTES - 1);
        assert_true(is_there(&s, i, s.last[i].transferred));
        assert_true(is_untouched(&s, i, s.last[i].transferred));
    }
    close_all(&s);
}

static void parts_that_went_are_counted_in_the_failure(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 9, .partial_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    for (uint32_t i = 0; i < IOS; i++) {
        assert_int_equal(s.reports[i], 1);
        assert_int_equal(s.last[i].status, YOLK_ERR_LINK);
        assert_in_range(s.last[i].transferred, 1, BYTES - 1);
        assert_true(is_there(&s, i, s.last[i].transferred));
        assert_true(is_untouched(&s, i, s.last[i].transferred));
    }
    close_all(&s);
}

static void what_is_corrupt_differs_in_one_bit(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 10, .corrupt_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    for (uint32_t i = 0; i < IOS; i++) {
        uint32_t bits = 0;
        for (uint32_t k = 0; k < BYTES; k++)
            bits += (uint32_t)__builtin_popcount(s.here[i * BYTES + k] ^ s.there[i * BYTES + k]);
        assert_int_equal(bits, 1);
        assert_int_equal(s.last[i].status, YOLK_OK);
        assert_int_equal(s.last[i].transferred, BYTES);
    }
    close_all(&s);
}

static void failures_come_at_once_or_late(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 11, .fail_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    assert_int_equal(s.reported, 0);
    for (uint32_t i = 0; i < IOS; i++) {
        assert_int_equal(s.submitted[i], YOLK_SUBMIT_FAILED);
        assert_int_equal(s.ios[i].status, YOLK_ERR_LINK);
        assert_int_equal(s.ios[i].transferred, 0);
        assert_true(is_untouched(&s, i, 0));
    }
    close_all(&s);
    open_all(&s, (struct fault_options){.seed = 11, .late_fail_permille = 1000});
    submit_all(&s);
    poll_often(&s);
    for (uint32_t i = 0; i < IOS; i++) {
        assert_int_equal(s.submitted[i], YOLK_SUBMIT_QUEUED);
        assert_int_equal(s.reports[i], 1);
        assert_int_equal(s.last[i].status, YOLK_ERR_LINK);
        assert_int_equal(s.last[i].transferred, 0);
        assert_true(is_there(&s, i, BYTES));
    }
    close_all(&s);
}

static void storms_take_nothing_and_pass(void **state)
{
    (void)state;
    struct setup s;
    uint32_t storms = 0, longest = 0;
    open_all(&s, (struct fault_options){.seed = 12, .again_permille = 300});
    for (uint32_t i = 0; i < IOS; i++) {
        uint32_t refused = 0;
        for (submit(&s, i); s.submitted[i] == YOLK_SUBMIT_AGAIN; submit(&s, i), refused++)
            assert_true(is_untouched(&s, i, 0));
        storms += refused > 0;
        longest = refused > longest ? refused : longest;
    }
    poll_often(&s);
    assert_all_done(&s, 1);
    assert_in_range(storms, 5, IOS / 2);
    assert_in_range(longest, 4, 40);
    close_all(&s);
}

static void a_peer_dies_under_its_channel_and_comes_back(void **state)
{
    (void)state;
    struct setup s;
    uint32_t dead = IOS, answered = 0;
    open_all(&s,
             (struct fault_options){
                 .seed = 13, .death_permille = 40, .delay_permille = 500, .delay_polls_max = 3});
    submit_all(&s);
    for (uint32_t i = 0; i < IOS; i++) {
        if (s.submitted[i] == YOLK_SUBMIT_FAILED && dead == IOS)
            dead = i;
        assert_int_equal(s.submitted[i], i < dead ? YOLK_SUBMIT_QUEUED : YOLK_SUBMIT_FAILED);
        if (i >= dead)
            assert_int_equal(s.ios[i].status, YOLK_ERR_PEER_DEAD);
    }
    assert_in_range(dead, 2, IOS - 1);
    poll_often(&s);
    for (uint32_t i = 0; i < dead; i++) {
        answered++;
        assert_int_equal(s.reports[i], 1);
        assert_int_equal(s.last[i].status, YOLK_ERR_PEER_DEAD);
        assert_int_equal(s.last[i].transferred, 0);
    }
    assert_int_equal(answered, dead);
    assert_int_equal(s.ops.channel_close(s.channel), YOLK_OK);
    s.options.death_permille = 0;
    open_channel(&s);
    submit(&s, 3);
    poll_often(&s);
    assert_int_equal(s.reports[3], 2);
    assert_int_equal(s.last[3].status, YOLK_OK);
    close_all(&s);
}

/* -- the switches -- */

static void what_is_held_moves_by_release(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 14});
    atomic_store(&s.control.hold, 1);
    for (uint32_t i = 0; i < 4; i++)
        submit(&s, i);
    atomic_store(&s.control.hold, 0);
    submit(&s, 4);
    poll_often(&s);
    assert_int_equal(s.reported, 1); /* the others wait */
    assert_int_equal(s.reports[4], 1);
    assert_int_equal(atomic_load(&s.control.stuck), 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(is_untouched(&s, i, 0));
    atomic_store(&s.control.deaf, 1);
    s.ops.cancel(s.channel, 0);
    poll_often(&s);
    assert_int_equal(s.reports[0], 0);
    atomic_store(&s.control.deaf, 0);
    s.ops.cancel(s.channel, 1);
    poll_often(&s);
    assert_int_equal(s.reports[1], 1);
    assert_int_equal(s.last[1].status, YOLK_ERR_CANCELED);
    assert_true(is_untouched(&s, 1, 0));
    atomic_store(&s.control.release, 1);
    poll_often(&s);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(s.reports[i], 1);
        assert_true(i == 1 || (s.last[i].status == YOLK_OK && is_there(&s, i, BYTES)));
    }
    assert_int_equal(atomic_load(&s.control.stuck), 0);
    close_all(&s);
}

static void memory_is_refused(void **state)
{
    (void)state;
    struct setup s;
    void *key = NULL;
    open_all(&s, (struct fault_options){.seed = 19});
    s.options.refused = s.here;
    assert_int_equal(s.ops.add_buffer(s.endpoint, s.here, SIZE, &key), YOLK_ERR_UNSUPPORTED);
    assert_int_equal(s.ops.add_buffer(s.endpoint, s.here + 1, SIZE - 1, &key), YOLK_OK);
    s.ops.remove_buffer(s.endpoint, key);
    close_all(&s);
}

static void some_go_by_and_one_fails(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 18, .failure = YOLK_ERR_IO});
    atomic_store(&s.control.hold, 1);
    atomic_store(&s.control.pass, 3);
    atomic_store(&s.control.fail, 6);
    for (uint32_t i = 0; i < 8; i++)
        submit(&s, i);
    assert_int_equal(s.submitted[5], YOLK_SUBMIT_FAILED);
    assert_int_equal(s.ios[5].status, YOLK_ERR_IO);
    poll_often(&s);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(s.reports[i], i < 3);
    assert_int_equal(atomic_load(&s.control.stuck), 4);
    atomic_store(&s.control.release, 1);
    poll_often(&s);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(s.reports[i], i != 5);
    close_all(&s);
}

static void the_switches_of_death_and_again(void **state)
{
    (void)state;
    struct setup s;
    open_all(&s, (struct fault_options){.seed = 15, .drop_permille = 1000});
    submit(&s, 0);
    poll_often(&s);
    assert_int_equal(s.reported, 0);
    atomic_store(&s.control.again, 1);
    submit(&s, 1);
    assert_int_equal(s.submitted[1], YOLK_SUBMIT_AGAIN);
    assert_true(is_untouched(&s, 1, 0));
    atomic_store(&s.control.again, 0);
    atomic_store(&s.control.dead, 1);
    submit(&s, 2);
    assert_int_equal(s.submitted[2], YOLK_SUBMIT_FAILED);
    assert_int_equal(s.ios[2].status, YOLK_ERR_PEER_DEAD);
    poll_often(&s);
    assert_int_equal(s.reports[0], 1);
    assert_int_equal(s.last[0].status, YOLK_ERR_PEER_DEAD);
    close_all(&s);
}

static void run_all(struct setup *s, uint64_t seed)
{
    open_all(s, (struct fault_options){.seed = seed,
                                       .delay_permille = 300,
                                       .defer_permille = 200,
                                       .reorder_permille = 300,
                                       .duplicate_permille = 200,
                                       .short_permille = 200,
                                       .fail_permille = 100,
                                       .late_fail_permille = 100,
                                       .partial_permille = 100});
    submit_all(s);
    poll_often(s);
    close_all(s);
}

static void the_same_seed_draws_the_same(void **state)
{
    (void)state;
    struct setup a, b, c;
    run_all(&a, 16);
    run_all(&b, 16);
    run_all(&c, 17);
    assert_true(a.reported > IOS / 2);
    assert_int_equal(a.reported, b.reported);
    assert_memory_equal(a.order, b.order, sizeof(a.order));
    assert_memory_equal(a.here, b.here, SIZE);
    assert_memory_equal(a.submitted, b.submitted, sizeof(a.submitted));
    assert_memory_not_equal(a.order, c.order, sizeof(a.order));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_faults_nothing_is_disturbed),
        cmocka_unit_test(delayed_ones_are_there_and_reported_later),
        cmocka_unit_test(deferred_ones_move_later),
        cmocka_unit_test(dropped_ones_come_back_by_cancel_or_release),
        cmocka_unit_test(stuck_ones_come_back_by_release_alone),
        cmocka_unit_test(reordered_ones_overtake),
        cmocka_unit_test(doubled_ones_are_reported_twice),
        cmocka_unit_test(short_ones_say_how_much),
        cmocka_unit_test(parts_that_went_are_counted_in_the_failure),
        cmocka_unit_test(what_is_corrupt_differs_in_one_bit),
        cmocka_unit_test(failures_come_at_once_or_late),
        cmocka_unit_test(storms_take_nothing_and_pass),
        cmocka_unit_test(a_peer_dies_under_its_channel_and_comes_back),
        cmocka_unit_test(what_is_held_moves_by_release),
        cmocka_unit_test(memory_is_refused),
        cmocka_unit_test(some_go_by_and_one_fails),
        cmocka_unit_test(the_switches_of_death_and_again),
        cmocka_unit_test(the_same_seed_draws_the_same),
    };
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
