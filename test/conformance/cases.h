/* SPDX-License-Identifier: Apache-2.0 */
/* The cases by file; suite.c has their table. */
#ifndef CONFORMANCE_CASES_H
#define CONFORMANCE_CASES_H

#include "world.h"

/* All cases; each is given a struct conformance_fixture as its state. */
const struct CMUnitTest *conformance_cases(size_t *count);

/* One batch of so many requests, each of so many bytes, to their end. */
void run_many(struct world *w, uint32_t count, uint32_t size, enum yolk_opcode opcode);

/* faults.c */
void fault_again(void **state);
void fault_late(void **state);
void fault_doubled(void **state);
void fault_short(void **state);
void fault_links(void **state);
void fault_everything(void **state);
void dropped_ends_at_deadline(void **state);
void stuck(void **state);
void dead_peer_by_fault(void **state);

/* hooks.c */
void each_read_is_there_when_reported_once(void **state);
void each_write_is_there_when_reported_once(void **state);
void what_the_provider_refuses_harms_no_other(void **state);
void again_takes_nothing(void **state);
void a_busy_channel_does_not_close(void **state);
void stop_ends_each_io_once(void **state);
void waiting_ends_when_there_is_something(void **state);
void cut_texts_reach_nothing(void **state);
void a_text_of_a_former_life_is_refused(void **state);

/* quiet.c */
void one_slice_of_many_fails(void **state);
void what_has_failed_is_quiet(void **state);
void what_was_canceled_is_quiet(void **state);
void what_was_freed_is_quiet(void **state);
void unserved_in_flight(void **state);
void largest_io_and_one_more(void **state);
void a_short_read_says_so(void **state);
void leaves_nothing_after_failures(void **state);

/* ends.c */
void cancel_before_submit(void **state);
void cancel_while_queued(void **state);
void cancel_while_posted(void **state);
void cancel_waits_for_quiet(void **state);
void cancel_after_the_end(void **state);
void cancel_in_the_middle(void **state);
void cancel_in_the_middle_waits(void **state);
void deadline_while_queued(void **state);
void deadline_while_posted(void **state);
void deadline_waits_for_quiet(void **state);
void failure_waits_for_quiet(void **state);
void freed_in_flight_is_in_quarantine(void **state);
void a_stuck_range_is_refused_until_quiet(void **state);

/* merge.c */
void neighbours_are_moved_as_one(void **state);
void only_what_is_alike_is_joined(void **state);
void reads_and_writes_are_not_joined(void **state);
void a_joined_one_is_canceled_while_queued(void **state);
void a_joined_one_is_canceled_while_posted(void **state);
void joined_ones_go_on_without_the_canceled(void **state);
void joined_ones_survive_faults(void **state);
void scattered_places(void **state);
void a_scattered_one_is_canceled(void **state);
void scattered_ones_survive_faults(void **state);

/* staged.c */
void staged_sizes(void **state);
void staged_ones_take_turns(void **state);
void staged_ones_survive_faults(void **state);
void staged_ones_end_early(void **state);
void staged_ones_are_not_direct(void **state);

#endif
