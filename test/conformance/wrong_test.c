/* SPDX-License-Identifier: Apache-2.0 */
/* Each wrong transport is caught by the cases named here; the same without a mistake passes. */
#include "caught.h"
#include "cases.h"
#include "wrong.h"

enum { NAMED_MAX = 48 };

static struct wrong_options wrong;

static void prepare(struct yolk_transport_options *options, int is_provider)
{
    (void)is_provider;
    if (options->wrapped == NULL)
        options->wrapped = &wrong;
    else /* the suite's own faults, which are no constant */
        ((struct fault_options *)(uintptr_t)options->wrapped)->inner_wrapped = &wrong;
}

static struct conformance_fixture fixture = {
    .prepare = prepare, .same_address = 1, .checks_tickets = 1};

#define CAUGHT_BY(which, ...)                                                                      \
    do {                                                                                           \
        static const char *const names[NAMED_MAX] = {__VA_ARGS__};                                 \
        fixture.ops = wrong_ops();                                                                 \
        wrong.mistake = (which);                                                                   \
        is_caught_by(&fixture, names);                                                             \
    } while (0)

static void the_right_one_passes(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_NONE, NULL);
}

static void acknowledges_early(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_ACKNOWLEDGES_EARLY, "tickets", "stale_segment", "provider_restarts", "fence",
              "cancel_and_free", "each_read_is_there_when_reported_once",
              "each_write_is_there_when_reported_once", "what_the_provider_refuses_harms_no_other",
              "again_takes_nothing", "a_busy_channel_does_not_close", "stop_ends_each_io_once",
              "what_has_failed_is_quiet", "unserved_in_flight", "leaves_nothing_after_failures",
              "cancel_before_submit", "cancel_while_queued", "cancel_while_posted",
              "cancel_waits_for_quiet", "cancel_after_the_end", "cancel_in_the_middle",
              "cancel_in_the_middle_waits", "deadline_while_queued", "deadline_while_posted",
              "deadline_waits_for_quiet", "neighbours_are_moved_as_one",
              "only_what_is_alike_is_joined", "reads_and_writes_are_not_joined",
              "a_joined_one_is_canceled_while_queued", "a_joined_one_is_canceled_while_posted",
              "joined_ones_go_on_without_the_canceled", "joined_ones_survive_faults",
              "scattered_places", "a_scattered_one_is_canceled", "scattered_ones_survive_faults",
              "staged_sizes", "staged_ones_take_turns", "staged_ones_survive_faults");
}

static void reports_twice(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_REPORTS_TWICE, "each_read_is_there_when_reported_once",
              "each_write_is_there_when_reported_once", "what_the_provider_refuses_harms_no_other",
              "again_takes_nothing", "a_busy_channel_does_not_close", "stop_ends_each_io_once",
              "waiting_ends_when_there_is_something");
}

static void loses_one(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_LOSES_ONE, "ten_thousand", "each_read_is_there_when_reported_once",
              "each_write_is_there_when_reported_once", "what_the_provider_refuses_harms_no_other",
              "again_takes_nothing", "a_busy_channel_does_not_close", "stop_ends_each_io_once",
              "waiting_ends_when_there_is_something", "one_slice_of_many_fails",
              "what_has_failed_is_quiet", "what_was_canceled_is_quiet", "what_was_freed_is_quiet",
              "unserved_in_flight", "leaves_nothing_after_failures", "staged_ones_take_turns");
}

static void cancels_loudly(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_CANCELS_LOUDLY, "one_slice_of_many_fails", "what_was_canceled_is_quiet",
              "what_was_freed_is_quiet");
}

static void fails_loudly(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_FAILS_LOUDLY, "one_slice_of_many_fails", "what_has_failed_is_quiet",
              "what_was_canceled_is_quiet", "what_was_freed_is_quiet");
}

static void writes_past_the_end(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_WRITES_PAST_THE_END, "sizes");
}

static void rounds_offsets(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_ROUNDS_OFFSETS, "unaligned", "ten_thousand",
              "what_the_provider_refuses_harms_no_other", "largest_io_and_one_more",
              "joined_ones_survive_faults", "scattered_ones_survive_faults", "staged_sizes",
              "staged_ones_take_turns", "staged_ones_survive_faults");
}

static void ignores_generation(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_IGNORES_GENERATION, "stale_segment", "what_has_failed_is_quiet");
}

static void ignores_lives(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_IGNORES_LIVES, "cut_texts_reach_nothing", "a_text_of_a_former_life_is_refused");
}

static void ignores_tickets(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_IGNORES_TICKETS, "tickets");
}

static void ignores_ranges(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_IGNORES_RANGES, "what_the_provider_refuses_harms_no_other");
}

static void goes_on_from_the_first_place(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_GOES_ON_FROM_THE_FIRST_PLACE, "scattered_places", "a_scattered_one_is_canceled",
              "scattered_ones_survive_faults");
}

static void forgets_to_skip(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_FORGETS_TO_SKIP, "scattered_ones_survive_faults");
}

static void takes_on_again(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_TAKES_ON_AGAIN, "each_read_is_there_when_reported_once",
              "each_write_is_there_when_reported_once", "what_the_provider_refuses_harms_no_other",
              "again_takes_nothing", "a_busy_channel_does_not_close", "stop_ends_each_io_once",
              "waiting_ends_when_there_is_something");
}

static void short_as_full(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_SHORT_AS_FULL, "sizes", "unaligned", "tickets", "cancel_and_free",
              "largest_io_and_one_more", "cancel_in_the_middle", "cancel_in_the_middle_waits",
              "deadline_waits_for_quiet", "failure_waits_for_quiet", "staged_sizes");
}

static void swaps_cookies(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_SWAPS_COOKIES, "each_read_is_there_when_reported_once",
              "each_write_is_there_when_reported_once", "what_the_provider_refuses_harms_no_other",
              "one_slice_of_many_fails", "joined_ones_survive_faults",
              "scattered_ones_survive_faults", "staged_ones_survive_faults");
}

static void corrupts_a_byte(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_CORRUPTS_A_BYTE, "sizes", "unaligned", "cancel_and_free",
              "largest_io_and_one_more", "cancel_in_the_middle", "cancel_in_the_middle_waits",
              "deadline_waits_for_quiet", "failure_waits_for_quiet", "staged_sizes");
}

static void closes_busy(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_CLOSES_BUSY, "a_busy_channel_does_not_close");
}

static void forgets_at_stop(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_FORGETS_AT_STOP, "stop_ends_each_io_once");
}

static void works_after_stop(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_WORKS_AFTER_STOP, "stop_ends_each_io_once");
}

static void sleeps_too_long(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_SLEEPS_TOO_LONG, "waiting_ends_when_there_is_something");
}

static void leaks_a_descriptor(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_LEAKS_A_DESCRIPTOR, "leaves_nothing", "stop_ends_each_io_once",
              "cut_texts_reach_nothing", "leaves_nothing_after_failures");
}

static void leaks_a_thread(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_LEAKS_A_THREAD, "leaves_nothing", "stop_ends_each_io_once",
              "leaves_nothing_after_failures");
}

static void leaks_a_mapping(void **state)
{
    (void)state;
    CAUGHT_BY(WRONG_LEAKS_A_MAPPING, "leaves_nothing", "leaves_nothing_after_failures");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_one_passes), cmocka_unit_test(acknowledges_early),
        cmocka_unit_test(reports_twice),        cmocka_unit_test(loses_one),
        cmocka_unit_test(cancels_loudly),       cmocka_unit_test(fails_loudly),
        cmocka_unit_test(writes_past_the_end),  cmocka_unit_test(rounds_offsets),
        cmocka_unit_test(ignores_generation),   cmocka_unit_test(ignores_lives),
        cmocka_unit_test(ignores_tickets),      cmocka_unit_test(ignores_ranges),
        cmocka_unit_test(takes_on_again),       cmocka_unit_test(short_as_full),
        cmocka_unit_test(swaps_cookies),        cmocka_unit_test(corrupts_a_byte),
        cmocka_unit_test(closes_busy),          cmocka_unit_test(forgets_at_stop),
        cmocka_unit_test(works_after_stop),     cmocka_unit_test(sleeps_too_long),
        cmocka_unit_test(leaks_a_descriptor),   cmocka_unit_test(leaks_a_thread),
        cmocka_unit_test(leaks_a_mapping),      cmocka_unit_test(goes_on_from_the_first_place),
        cmocka_unit_test(forgets_to_skip),
    };
    return cmocka_run_group_tests_name("wrong", tests, NULL, NULL);
}
