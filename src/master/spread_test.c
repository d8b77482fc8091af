/* SPDX-License-Identifier: Apache-2.0 */
/* Where values go among memory controllers: evenly, whatever lies behind each, and only if that is
 * wanted. */
#include "master/test_kit.h"

#include <stdio.h>

#include "master/state.h"

enum { SEGMENTS_MAX = 7, CONTROLLERS_MAX = 4 };

/* A segment on a connection of its own, so by its own session, behind a controller. */
struct world {
    struct kit kit;
    uint64_t ids[SEGMENTS_MAX];
    uint32_t controllers[SEGMENTS_MAX], count, next_key;
    uint64_t sessions[SEGMENTS_MAX];
    uint64_t given[CONTROLLERS_MAX], largest; /* bytes, by our own books */
};

static uint64_t random_state = 11;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static struct world *begin(bool spread)
{
    static struct world w;
    struct master_config config;
    memset(&w, 0, sizeof w);
    master_config_default(&config);
    config.place_by_controller = spread;
    kit_init(&w.kit, &config);
    return &w;
}

static void add(struct world *w, uint32_t controller, const char *label, uint64_t size)
{
    uint32_t i = w->count++;
    char endpoints[128];
    struct wire_segment_mount_reply reply;
    snprintf(endpoints, sizeof endpoints, "tcp=127.0.0.1:1;%s;shm=x", label);
    w->sessions[i] = kit_open(&w->kit, i + 1, 1);
    struct wire_segment_mount msg = {.request = {.session = w->sessions[i]},
                                     .name = wire_view_text("s"),
                                     .size = size,
                                     .endpoints = wire_view_text(endpoints)};
    kit_call(&w->kit, i + 1, WIRE_SEGMENT_MOUNT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    w->ids[i] = reply.segment;
    w->controllers[i] = controller;
    kit_ack(&w->kit);
}

/* Puts a value; which controller it went to. */
static uint32_t put(struct world *w, uint64_t size)
{
    char key[32];
    struct wire_replica at = {0};
    uint64_t op = ++w->kit.op;
    snprintf(key, sizeof key, "k%u", w->next_key++);
    assert_int_equal(kit_put(&w->kit, 1, w->sessions[0], op, key, size, &at).status, YOLK_OK);
    assert_int_equal(kit_keys_call(&w->kit, 1, w->sessions[0], op, WIRE_PUT_END, key), YOLK_OK);
    kit_ack(&w->kit);
    for (uint32_t i = 0; i < w->count; i++) {
        if (w->ids[i] != at.segment)
            continue;
        w->given[w->controllers[i]] += size;
        w->largest = size > w->largest ? size : w->largest;
        return w->controllers[i];
    }
    fail_msg("the place is in no segment");
    return 0;
}

static uint64_t apart(const struct world *w, uint32_t controllers)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < controllers; i++) {
        least = w->given[i] < least ? w->given[i] : least;
        most = w->given[i] > most ? w->given[i] : most;
    }
    return most - least;
}

static void end(struct world *w)
{
    kit_check(w->kit.core);
    master_core_destroy(w->kit.core);
}

/* At each moment no controller was given more than one value over another; drawn worlds. */
static void each_controller_is_given_the_same(void **state)
{
    static const char *const labels[] = {"numa=a0.0", "numa=a0.1", "numa=b7.0", "other=1"};
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct world *w = begin(true);
        uint32_t controllers = 2 + (uint32_t)draw(CONTROLLERS_MAX - 1);
        for (uint32_t i = 0; i < controllers; i++) /* the last has no name: it is one by itself */
            for (uint64_t n = i == 3 ? 1 : 1 + draw(2); n > 0 && w->count < SEGMENTS_MAX; n--)
                add(w, i, labels[i], (64 + draw(200)) * MIB);
        controllers = w->controllers[w->count - 1] + 1;
        for (int i = 0; i < 60; i++) {
            (void)put(w, 64 + draw(200000));
            if (apart(w, controllers) > w->largest)
                fail_msg("round %d: %llu bytes apart, the largest value has %llu", round,
                         (unsigned long long)apart(w, controllers), (unsigned long long)w->largest);
        }
        end(w);
    }
}

/* By capacity, as ever, unless it is asked for. */
static void it_is_off_by_default(void **state)
{
    struct master_config config;
    struct world *w = begin(false);
    (void)state;
    master_config_default(&config);
    assert_false(config.place_by_controller);
    add(w, 0, "numa=a.0", 16 * MIB);
    add(w, 1, "numa=a.1", 112 * MIB);
    for (int i = 0; i < 400; i++)
        (void)put(w, 1000);
    assert_true(w->given[1] > 5 * w->given[0]); /* 7 times, by chance */
    end(w);
}

/* A new controller gets its share from now on, not what the others have already. */
static void a_new_controller_is_not_flooded(void **state)
{
    struct world *w = begin(true);
    (void)state;
    add(w, 0, "numa=a.0", 64 * MIB);
    add(w, 1, "numa=a.1", 64 * MIB);
    for (int i = 0; i < 100; i++)
        (void)put(w, 5000);
    add(w, 2, "numa=c.0", 64 * MIB);
    memset(w->given, 0, sizeof w->given);
    for (int i = 0; i < 90; i++) {
        (void)put(w, 5000);
        assert_true(apart(w, 3) <= 2 * 5000);
    }
    /* Another segment behind a known one does not make that one's share larger. */
    add(w, 2, "numa=c.0", 128 * MIB);
    memset(w->given, 0, sizeof w->given);
    for (int i = 0; i < 90; i++)
        (void)put(w, 5000);
    assert_true(apart(w, 3) <= 2 * 5000);
    end(w);
}

/* Values that find no room in one go to the other, and the turn goes on. */
static void a_full_controller_spills(void **state)
{
    struct world *w = begin(true);
    (void)state;
    add(w, 0, "numa=a.0", 2 * MIB);
    add(w, 1, "numa=a.1", 64 * MIB);
    for (int i = 0; i < 20; i++)
        assert_int_equal(put(w, 3 * MIB), 1); /* larger than all of the first */
    /* It had its turns: it is behind by one value at most, and then both are given their share. */
    assert_int_equal(put(w, 65536) + put(w, 65536), 0);
    memset(w->given, 0, sizeof w->given);
    for (int i = 0; i < 60; i++)
        (void)put(w, 65536);
    assert_true(w->given[0] > 0 && w->given[1] > 0);
    end(w);
}

static void what_a_label_may_be(void **state)
{
    (void)state;
    assert_true(master_spread_is_label(wire_view_text("00ff.12")));
    const char *const wrong[] = {"", "A.1", "a 1", "a\"1", "a;1", "g"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(master_spread_is_label(wire_view_text(wrong[i])));
    char longest[MASTER_LABEL_MAX + 2];
    memset(longest, 'a', sizeof longest);
    assert_true(master_spread_is_label(wire_view_of(longest, MASTER_LABEL_MAX)));
    assert_false(master_spread_is_label(wire_view_of(longest, MASTER_LABEL_MAX + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_controller_is_given_the_same),
        cmocka_unit_test(it_is_off_by_default),
        cmocka_unit_test(a_new_controller_is_not_flooded),
        cmocka_unit_test(a_full_controller_spills),
        cmocka_unit_test(what_a_label_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
