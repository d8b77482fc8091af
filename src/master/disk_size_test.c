/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that comes back larger or smaller than it was. */
#include "master/tier_kit.h"
#include "master/twin.h"

enum { KEPT = 4, ALL = 5, APART = 8 * VALUE, SMALL = KEPT * APART };

static struct wire_offer at_of(uint64_t n)
{
    return (struct wire_offer){n * APART, VALUE, (uint32_t)(n * APART + 7)};
}

/* k0 to k4 are on the disk too; the last of them not below SMALL. */
static void fill_apart(void)
{
    fill(0, 16);
    kit_tick(&kit, 0);
    for (uint64_t n = 0; n < ALL; n++)
        copied(next_task(), n * APART);
    assert_true(no_task());
}

/* The owner ends as it should, with a word to the master. */
static void close_owner(void)
{
    struct wire_plain_request close = {.request = {.session = owner}};
    struct wire_status_reply reply;
    kit_call(&kit, 1, WIRE_SESSION_CLOSE, &close, &reply);
    assert_int_equal(kit_stats(&kit).disk_lost_bytes, ALL * VALUE);
}

static uint64_t come_back(uint64_t size)
{
    uint64_t session = kit_open(&kit, 3, 1);
    disk_seq = 0;
    disk = mount_disk(3, session, 1, size, ALL);
    owner_connection = 3;
    pump();
    assert_int_equal(kit_stats(&kit).disk_capacity_bytes, size);
    assert_int_equal(kit_stats(&kit).disk_segments, 1);
    assert_int_equal(kit_stats(&kit).disk_lost_bytes, 0);
    kit_check(kit.core);
    return session;
}

static void grows(bool lost)
{
    struct wire_replica at[4];
    fill_apart();
    if (lost)
        close_owner();
    uint64_t session = come_back(4 * DISK);
    for (uint64_t n = 0; n < ALL; n++)
        assert_true(offer(3, session, disk, name_of((int)n), at_of(n), 0));
    /* Only what is remembered comes back, however much there is now. */
    assert_false(
        offer(3, session, disk, "new", (struct wire_offer){4 * DISK - VALUE, VALUE, 7}, 1));
    kit_tick(&kit, 0);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, ALL * VALUE);
    assert_int_equal(get(ALL - 1, at), 1);
    assert_int_equal(at[0].offset, (ALL - 1) * APART);
    end_gets();
    /* The new space is used. */
    memory = kit_mount(&kit, 3, session, MEMORY);
    pump();
    fill(20, 36);
    kit_tick(&kit, 0);
    copied(next_task(), 4 * DISK - VALUE);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, (ALL + 1) * VALUE);
    assert_int_equal(kit_stats(&kit).disk_conflicts, 0);
}

static void grows_while_an_older_session_has_it(void **state)
{
    (void)state;
    grows(false);
}

static void grows_while_it_is_lost(void **state)
{
    (void)state;
    grows(true);
}

static void shrinks(bool lost)
{
    fill_apart();
    if (lost)
        close_owner();
    uint64_t session = come_back(SMALL);
    for (uint64_t n = 0; n < KEPT; n++)
        assert_true(offer(3, session, disk, name_of((int)n), at_of(n), n == KEPT - 1));
    kit_tick(&kit, 0);
    pump();
    assert_int_equal(kit_stats(&kit).disk_live_bytes, KEPT * VALUE);
    assert_int_equal(kit_stats(&kit).disk_extents, KEPT);
    assert_int_equal(freed_count, 0); /* the owner has dropped it already */
    assert_true(exists(KEPT - 1));
    assert_false(exists(KEPT));
    kit_check(kit.core);
}

static void shrinks_while_an_older_session_has_it(void **state)
{
    (void)state;
    shrinks(false);
}

static void shrinks_while_it_is_lost(void **state)
{
    (void)state;
    shrinks(true);
}

static void nothing_lies_beyond_the_end(void **state)
{
    (void)state;
    fill_apart();
    uint64_t session = come_back(SMALL);
    assert_true(offer(3, session, disk, "k0", at_of(0), 0));
    assert_false(offer(3, session, disk, "k4", at_of(KEPT), 1));
    memory = kit_mount(&kit, 3, session, MEMORY);
    pump();
    fill(20, 33);
    kit_tick(&kit, 0);
    struct task task = next_task();
    copied(task, SMALL);
    assert_int_equal(kit_stats(&kit).disk_conflicts, 1);
    assert_int_equal(kit_stats(&kit).offloads_failed, 1);
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
}

/* Its reader is refused by the owner; here the place is kept until the guard ends. */
static void what_does_not_fit_is_kept_for_its_reader(void **state)
{
    (void)state;
    struct wire_replica at[4];
    fill_apart();
    assert_int_equal(get(KEPT, at), 2);
    uint64_t session = come_back(SMALL);
    assert_true(offer(3, session, disk, "k0", at_of(0), 1));
    kit_tick(&kit, 0);
    assert_false(exists(KEPT));
    assert_int_equal(kit_stats(&kit).disk_extents, 2);
    assert_int_equal(kit_stats(&kit).disk_limbo_bytes, VALUE);
    kit_check(kit.core);
    end_gets();
    assert_int_equal(kit_stats(&kit).disk_extents, 1);
    assert_int_equal(freed_count, 0);
    /* And back to more than it ever was. */
    session = kit_open(&kit, 4, 1);
    disk = mount_disk(4, session, 1, 2 * DISK, 1);
    assert_true(offer(4, session, disk, "k0", at_of(0), 1));
    assert_int_equal(kit_stats(&kit).disk_live_bytes, VALUE);
    kit_check(kit.core);
}

static int start_twins(void **state)
{
    twin_start();
    return start(state);
}

/* Another master that has the facts knows the disk under its new size. */
static void facts_tell_of_the_size(void **state)
{
    (void)state;
    grows(false);
    twin_agrees(kit.core);
    twin_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(grows_while_an_older_session_has_it),
        KIT_TEST(grows_while_it_is_lost),
        KIT_TEST(shrinks_while_an_older_session_has_it),
        KIT_TEST(shrinks_while_it_is_lost),
        KIT_TEST(nothing_lies_beyond_the_end),
        KIT_TEST(what_does_not_fit_is_kept_for_its_reader),
        cmocka_unit_test_setup_teardown(facts_tell_of_the_size, start_twins, kit_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
