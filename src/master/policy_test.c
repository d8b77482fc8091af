/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy is told, and that what it names goes: a policy that gives up the newest first and
 * chains the keys of each batch, as one that looks at prefixes would. */
#include "master/policy.h"
#include "master/state.h"
#include "master/test_kit.h"

enum { LOOKUPS = 32 };

static struct kit kit;
static uint64_t owner, reader;

static struct {
    uint32_t inserted, touched, withdrawn, removed;
    uint32_t lookups;
    struct {
        uint16_t kind;
        uint64_t session;
        char keys[16]; /* one letter a key, '-' where there is no object */
    } lookup[LOOKUPS];
    char gone[16];    /* the objects removed, in order */
    char parents[16]; /* and by their notes, what came before each in its first batch */
} seen;

static void order_init(void *order, void *state)
{
    assert_null(state);
    assert_int_equal(((const struct base_list *)order)->next, 0);
    base_list_init(order);
}

static void newest_last(void *order, struct master_extent *extent)
{
    base_list_push_back(order, &extent->order);
}

static void on_inserted(void *order, struct master_extent *extent)
{
    seen.inserted++;
    newest_last(order, extent);
}

static void on_touched(void *order, struct master_extent *extent)
{
    seen.touched++;
    newest_last(order, extent);
}

static void on_withdrawn(void *order, struct master_extent *extent)
{
    (void)order;
    seen.withdrawn++;
    base_list_remove(&extent->order);
}

static struct master_extent *newest(void *order)
{
    const struct base_list *list = order;
    return base_list_empty(list) ? NULL : BASE_CONTAINER(list->prev, struct master_extent, order);
}

static void on_looked_up(void *state, const struct master_lookup *lookup)
{
    assert_null(state);
    assert_true(seen.lookups < LOOKUPS && lookup->count < 16);
    uint64_t before = '.';
    seen.lookup[seen.lookups].kind = lookup->kind;
    seen.lookup[seen.lookups].session = lookup->session;
    for (uint32_t i = 0; i < lookup->count; i++) {
        struct master_object *object = lookup->objects[i];
        char letter = object == NULL ? '-' : (char)object->key[0];
        seen.lookup[seen.lookups].keys[i] = letter;
        if (object != NULL && object->note.word == 0)
            object->note.word = before;
        before = (uint64_t)letter;
    }
    seen.lookups++;
}

static void on_removed(void *state, struct master_object *object)
{
    assert_null(state);
    assert_int_equal(object->extent_count, 0);
    seen.gone[seen.removed] = (char)object->key[0];
    seen.parents[seen.removed++] = (char)object->note.word;
}

static const struct master_policy newest_first = {
    .name = "newest first",
    .order_size = sizeof(struct base_list),
    .order_init = order_init,
    .inserted = on_inserted,
    .touched = on_touched,
    .withdrawn = on_withdrawn,
    .victim = newest,
    .looked_up = on_looked_up,
    .removed = on_removed,
};

static int start(void **state)
{
    struct master_config config = {.policy = &newest_first, .max_pending_bytes = 4096};
    memset(&seen, 0, sizeof seen);
    (void)kit_start(state, &kit, &config, 4096, &owner, &reader);
    return 0;
}

static void store(const char *keys)
{
    uint64_t op = ++kit.op;
    assert_int_equal(kit_put(&kit, 1, owner, op, keys, 1024, NULL).status, YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 1, owner, op, WIRE_PUT_END, keys), YOLK_OK);
    kit_ack(&kit);
}

static void expect_lookup(uint32_t i, uint16_t kind, uint64_t session, const char *keys)
{
    assert_true(i < seen.lookups);
    assert_int_equal(seen.lookup[i].kind, kind);
    assert_int_equal(seen.lookup[i].session, session);
    assert_string_equal(seen.lookup[i].keys, keys);
}

static void each_batch_is_told_in_order(void **state)
{
    (void)state;
    store("c a");
    (void)kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "c a b a");
    assert_int_equal(kit_get(&kit, 2, reader, 1, "a c x", 0, NULL), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_REMOVE, "x"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(seen.lookups, 3);
    expect_lookup(0, WIRE_PUT_START, owner, "ca");
    expect_lookup(1, WIRE_EXIST, reader, "ca-a");
    expect_lookup(2, WIRE_GET_START, reader, "ac-");
    /* Refused before it was performed: nothing to tell. */
    assert_int_equal(kit_keys_call(&kit, 2, 999, 0, WIRE_EXIST, "a"), YOLK_ERR_STALE);
    assert_int_equal(seen.lookups, 3);
}

static void what_it_names_goes(void **state)
{
    (void)state;
    store("a b c");
    store("d"); /* full: over the watermark */
    assert_int_equal(seen.inserted, 4);
    kit_tick(&kit, 0);
    assert_string_equal(seen.gone, "d");
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "a b c"), YOLK_OK);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "d"), YOLK_ERR_NOT_FOUND);
}

static void what_may_not_go_is_withdrawn(void **state)
{
    (void)state;
    store("a b c");
    assert_int_equal(kit_get(&kit, 2, reader, 1, "c", 0, NULL), YOLK_OK);
    assert_int_equal(kit_get(&kit, 2, reader, 2, "c", 0, NULL), YOLK_OK); /* guarded already */
    assert_int_equal(kit_keys_call(&kit, 2, reader, 0, WIRE_EXIST, "b"), YOLK_OK);
    assert_int_equal(seen.withdrawn, 2);
    store("d");
    kit_tick(&kit, 0);
    kit_ack(&kit);
    store("e"); /* neither c nor b is met */
    kit_tick(&kit, 0);
    assert_string_equal(seen.gone, "de");
    assert_int_equal(seen.touched, 0);
    /* Read to the end: it was used, and may go. */
    assert_int_equal(kit_beat(&kit, 2, reader, 2), YOLK_OK);
    assert_int_equal(seen.touched, 0);
    assert_int_equal(kit_beat(&kit, 2, reader, 3), YOLK_OK);
    assert_int_equal(seen.touched, 1);
    assert_int_equal(seen.inserted, 5);
    assert_int_equal(kit_force_remove(&kit, 2, reader, "c"), YOLK_OK);
    assert_string_equal(seen.gone, "dec");
    /* One that was leased by a probe has been withdrawn before. */
    uint32_t withdrawn = seen.withdrawn;
    assert_int_equal(kit_force_remove(&kit, 2, reader, "b"), YOLK_OK);
    assert_int_equal(seen.withdrawn, withdrawn);
    assert_string_equal(seen.gone, "decb");
}

static void notes_stay_with_the_object(void **state)
{
    (void)state;
    store("a b c");
    assert_int_equal(kit_get(&kit, 2, reader, 1, "c a", 0, NULL), YOLK_OK);
    assert_int_equal(kit_beat(&kit, 2, reader, 2), YOLK_OK);
    (void)kit_force_remove(&kit, 2, reader, "b a c");
    kit_ack(&kit);
    store("b");
    (void)kit_force_remove(&kit, 2, reader, "b");
    assert_string_equal(seen.gone, "bacb");
    assert_string_equal(seen.parents, "a.b."); /* and a new object begins with an empty one */
}

/* A key found early in a batch may be what a later one of it takes the space of. */
static void evicted_by_its_own_batch(void **state)
{
    (void)state;
    store("a");
    uint64_t op = ++kit.op;
    assert_int_equal(kit_put(&kit, 1, owner, op, "z", 2048, NULL).status, YOLK_OK);
    assert_int_equal(kit_put(&kit, 2, reader, 1, "a b c", 1024, NULL).status, YOLK_ERR_EXISTS);
    expect_lookup(seen.lookups - 1, WIRE_PUT_START, reader, "-b-");
    assert_string_equal(seen.gone, "ac"); /* and c, for which there is none yet */
    assert_int_equal(kit_keys_call(&kit, 1, owner, op, WIRE_PUT_REVOKE, "z"), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(each_batch_is_told_in_order),  KIT_TEST(what_it_names_goes),
        KIT_TEST(what_may_not_go_is_withdrawn), KIT_TEST(notes_stay_with_the_object),
        KIT_TEST(evicted_by_its_own_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
