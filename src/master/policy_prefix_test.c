/* SPDX-License-Identifier: Apache-2.0 */
/* The policy alone: objects that no master knows, and the calls one would make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "master/policy.h"
#include "master/state.h"
#include "wire/msg.h"

enum { KEYS = 40000, ASKED_MAX = 64 };

static const struct master_policy *const policy = &master_policy_prefix;
static struct master_object *objects; /* by key */
static struct master_extent *extents;
static bool *stored;
static void *state, *order;
static struct master_put being_put = {.state = PUT_OPEN};

static int start(void **unused)
{
    (void)unused;
    state = calloc(1, policy->state_size(UINT64_MAX));
    order = calloc(1, policy->order_size);
    objects = calloc(KEYS, sizeof *objects);
    extents = calloc(KEYS, sizeof *extents);
    stored = calloc(KEYS, sizeof *stored);
    if (!state || !order || !objects || !extents || !stored)
        return -1;
    for (uint32_t i = 0; i < KEYS; i++) {
        objects[i].entry.hash = base_mix64(i + 1);
        extents[i].object = &objects[i];
        base_list_init(&extents[i].order);
    }
    policy->state_init(state, UINT64_MAX);
    policy->order_init(order, state);
    return 0;
}

static int stop(void **unused)
{
    (void)unused;
    free(state);
    free(order);
    free(objects);
    free(extents);
    free(stored);
    return 0;
}

static void ask(uint16_t kind, const uint32_t *keys, uint32_t count)
{
    struct master_object *asked[ASKED_MAX];
    uint64_t hashes[ASKED_MAX];
    assert_true(count <= ASKED_MAX);
    for (uint32_t i = 0; i < count; i++) {
        asked[i] = stored[keys[i]] ? &objects[keys[i]] : NULL;
        hashes[i] = objects[keys[i]].entry.hash;
    }
    struct master_lookup lookup = {
        .kind = kind, .session = 1, .count = count, .objects = asked, .hashes = hashes};
    policy->looked_up(state, &lookup);
}

static void put(const uint32_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        stored[keys[i]] = true;
        objects[keys[i]].put = &being_put;
    }
    ask(WIRE_PUT_START, keys, count);
    for (uint32_t i = 0; i < count; i++) {
        objects[keys[i]].put = NULL;
        policy->inserted(order, &extents[keys[i]]);
    }
}

static void get(const uint32_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        policy->withdrawn(order, &extents[keys[i]]);
    ask(WIRE_GET_START, keys, count);
    for (uint32_t i = 0; i < count; i++)
        policy->touched(order, &extents[keys[i]]);
}

/* The number of the one that goes, KEYS when there is none. */
static uint32_t evict(void)
{
    struct master_extent *extent = policy->victim(order);
    if (extent == NULL)
        return KEYS;
    uint32_t key = (uint32_t)(extent - extents);
    policy->withdrawn(order, extent);
    stored[key] = false;
    policy->removed(state, &objects[key]);
    objects[key].note = (struct master_note){0};
    return key;
}

static void range(uint32_t *keys, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        keys[i] = first + i;
}

/* As long as nothing has been learned: the least recently used request, its last key first. */
static void starts_as_lru_by_chains(void **unused)
{
    (void)unused;
    assert_int_equal(evict(), KEYS);
    uint32_t keys[4];
    range(keys, 0, 4);
    put(keys, 4);
    range(keys, 10, 3);
    put(keys, 3);
    range(keys, 0, 2);
    get(keys, 2); /* of the first four, two are newer now */
    static const uint32_t expected[] = {3, 2, 12, 11, 10, 1, 0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(evict(), expected[i]);
    assert_int_equal(evict(), KEYS);
}

/* The order of the calls within a batch does not matter, and one that is withdrawn is not named. */
static void withdrawn_is_not_named(void **unused)
{
    (void)unused;
    uint32_t keys[3];
    range(keys, 0, 3);
    put(keys, 3);
    for (uint32_t i = 0; i < 3; i++)
        policy->withdrawn(order, &extents[i]);
    assert_int_equal(evict(), KEYS);
    for (uint32_t i = 3; i-- > 0;)
        policy->touched(order, &extents[i]);
    policy->withdrawn(order, &extents[2]);
    assert_int_equal(evict(), 1);
    policy->touched(order, &extents[2]);
    assert_int_equal(evict(), 2);
    assert_int_equal(evict(), 0);
}

enum { ROUNDS = 400, LATER = 50, CHATS_AT = 20000, CHAT = 4, DOCUMENT = 32 };

/* Documents that never come back, and chats that do, 50 rounds later; there is room for 10 rounds
 * of both. Returns how many of the chats that are to come back are stored in the end. */
static uint32_t run_mix(void)
{
    uint32_t keys[DOCUMENT];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        range(keys, i * DOCUMENT, DOCUMENT);
        put(keys, DOCUMENT);
        range(keys, CHATS_AT + i * CHAT, CHAT);
        put(keys, CHAT);
        uint32_t room = DOCUMENT + CHAT;
        range(keys, CHATS_AT + (i - LATER) * CHAT, CHAT);
        if (i >= LATER && stored[keys[CHAT - 1]]) {
            get(keys, CHAT);
        } else if (i >= LATER) {
            for (uint32_t k = 0; k < CHAT; k++) /* what is left of it makes room */
                if (stored[keys[k]]) {
                    policy->withdrawn(order, &extents[keys[k]]);
                    policy->removed(state, &objects[keys[k]]);
                    objects[keys[k]].note = (struct master_note){0};
                    stored[keys[k]] = false;
                    room--;
                }
            put(keys, CHAT);
            room += CHAT;
        }
        for (uint32_t n = 0; i >= 10 && n < room; n++)
            assert_int_not_equal(evict(), KEYS);
    }
    uint32_t waiting = 0;
    for (uint32_t i = ROUNDS - LATER; i < ROUNDS; i++)
        waiting += stored[CHATS_AT + i * CHAT + CHAT - 1];
    return waiting;
}

static void learns_what_comes_back(void **unused)
{
    (void)unused;
    assert_in_range(run_mix(), 45, LATER); /* the least recently used first: 10 */
    /* A disk's order of its own: what waits to be read is worth a place of a document, not the
     * other way round. */
    void *disk = calloc(1, policy->order_size);
    assert_non_null(disk);
    policy->order_init(disk, state);
    const uint32_t chat = CHATS_AT + 380 * CHAT, document = 399 * DOCUMENT + 5;
    assert_true(policy->admits(disk, &objects[chat])); /* nothing has to go */
    struct master_extent copy = {.object = &objects[document]};
    policy->inserted(disk, &copy);
    assert_true(policy->admits(disk, &objects[chat]));
    policy->withdrawn(disk, &copy);
    copy.object = &objects[chat];
    policy->inserted(disk, &copy);
    assert_false(policy->admits(disk, &objects[document]));
    policy->withdrawn(disk, &copy);
    free(disk);
}

/* EXIST, GET_START and PUT_START of one request are one use, also when a put found no room and is
 * tried again; what comes after is another one. */
static void one_request_is_one_use(void **unused)
{
    (void)unused;
    uint32_t keys[4];
    range(keys, 0, 4);
    ask(WIRE_EXIST, keys, 4);
    ask(WIRE_PUT_START, keys, 4); /* no room */
    put(keys, 4);
    uint64_t once = objects[0].note.word;
    assert_int_equal(once >> 2 & 3, 1); /* uses */
    objects[0].put = &being_put;
    ask(WIRE_PUT_START, keys, 1); /* the message came twice */
    objects[0].put = NULL;
    ask(WIRE_PUT_START, keys, 4); /* all are there */
    assert_int_equal(objects[0].note.word, once);
    get(keys, 4);
    assert_int_equal(objects[0].note.word >> 2 & 3, 2);
}

/* What is known of a key outlives its object. */
static void an_evicted_key_is_remembered(void **unused)
{
    (void)unused;
    uint32_t keys[2] = {0, 1};
    put(keys, 2);
    ask(WIRE_EXIST, keys, 2);
    uint64_t before = objects[0].note.word;
    while (evict() != KEYS) {
    }
    assert_int_equal(objects[0].note.word, 0);
    put(keys, 2);
    assert_int_equal(objects[0].note.word >> 8, before >> 8); /* when, and in which class */
    assert_int_equal(objects[0].note.word >> 2 & 3, 2);       /* asked for twice */
}

/* An owner offers objects of a past life: they are stored, and nobody asked for them. */
static void unasked_objects_have_a_place(void **unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 3; i++)
        policy->inserted(order, &extents[i]);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t key = evict();
        assert_true(key < 3);
        seen |= 1u << key;
    }
    assert_int_equal(seen, 7);
    assert_int_equal(evict(), KEYS);
}

static void found_by_name(void **unused)
{
    (void)unused;
    assert_ptr_equal(master_policy_find("prefix"), &master_policy_prefix);
    assert_ptr_equal(master_policy_find("lru"), &master_policy_lru);
    assert_null(master_policy_find("LRU"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(starts_as_lru_by_chains, start, stop),
        cmocka_unit_test_setup_teardown(withdrawn_is_not_named, start, stop),
        cmocka_unit_test_setup_teardown(learns_what_comes_back, start, stop),
        cmocka_unit_test_setup_teardown(one_request_is_one_use, start, stop),
        cmocka_unit_test_setup_teardown(an_evicted_key_is_remembered, start, stop),
        cmocka_unit_test_setup_teardown(unasked_objects_have_a_place, start, stop),
        cmocka_unit_test(found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
