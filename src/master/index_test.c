/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "master/index.h"

struct item {
    struct master_index_entry entry;
    char key[16];
    int seen;
    bool in;
};

static void item_init(struct item *item, uint32_t i, uint64_t hash_mask)
{
    int n = snprintf(item->key, sizeof item->key, "key-%u", i);
    item->entry = (struct master_index_entry){base_hash64(item->key, (size_t)n) & hash_mask,
                                              (uint32_t)n, offsetof(struct item, key)};
}

static struct master_index_entry *find(const struct master_index *index, const struct item *item)
{
    return master_index_find(index, item->entry.hash, item->key, item->entry.key_size);
}

static void visit(void *self, struct master_index_entry *entry)
{
    (void)self;
    ((struct item *)entry)->seen++;
}

/* Random insertions and removals against flags; `mask` makes hashes collide. */
static void model_run(uint64_t mask, uint32_t count, uint32_t steps)
{
    struct item *items = calloc(count, sizeof *items);
    struct master_index *index = NULL;
    assert_int_equal(master_index_create(&index), YOLK_OK);
    for (uint32_t i = 0; i < count; i++)
        item_init(&items[i], i, mask);
    uint64_t live = 0;
    for (uint32_t n = 0; n < steps; n++) {
        uint64_t r = base_mix64(n + mask);
        struct item *item = &items[r % count];
        assert_ptr_equal(find(index, item), item->in ? &item->entry : NULL);
        bool insert = (r >> 40) % 3 != 0;
        if (insert && !item->in) {
            assert_int_equal(master_index_insert(index, &item->entry), YOLK_OK);
            item->in = true;
            live++;
        } else if (!insert && item->in) {
            master_index_remove(index, &item->entry);
            item->in = false;
            live--;
        }
        assert_int_equal(master_index_count(index), live);
    }
    uint64_t cursor = 0;
    while (master_index_walk(index, &cursor, visit, NULL)) {
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_ptr_equal(find(index, &items[i]), items[i].in ? &items[i].entry : NULL);
        assert_int_equal(items[i].seen, items[i].in);
    }
    master_index_destroy(index);
    free(items);
}

static void agrees_with_flags(void **state)
{
    (void)state;
    model_run(UINT64_MAX, 20000, 200000);
}

static void survives_colliding_hashes(void **state)
{
    (void)state;
    model_run(0x8000000000000003ull, 300,
              20000); /* eight hashes, half of them at the end of the table */
    model_run(0xfff0000000000000ull, 600, 30000);
}

/* What lives all the time is seen once by a walk, though the table grows several times under it. */
static void a_walk_survives_growth(void **state)
{
    (void)state;
    enum { OLD = 600, ALL = 60000 };
    struct item *items = calloc(ALL, sizeof *items);
    struct master_index *index = NULL;
    uint64_t cursor = 0;
    uint32_t next = OLD;
    assert_int_equal(master_index_create(&index), YOLK_OK);
    for (uint32_t i = 0; i < ALL; i++)
        item_init(&items[i], i, UINT64_MAX);
    for (uint32_t i = 0; i < OLD; i++)
        assert_int_equal(master_index_insert(index, &items[i].entry), YOLK_OK);
    while (master_index_walk(index, &cursor, visit, NULL))
        for (int k = 0; k < 40 && next < ALL; k++)
            assert_int_equal(master_index_insert(index, &items[next++].entry), YOLK_OK);
    for (uint32_t i = 0; i < ALL; i++) {
        assert_true(items[i].seen <= 1);
        if (i < OLD)
            assert_int_equal(items[i].seen, 1);
    }
    master_index_destroy(index);
    free(items);
}

static bool refuse(void *self)
{
    ++*(uint32_t *)self;
    return true;
}

/* The table that takes over is asked for early, and again until it is there; only without any room
 * an insertion fails, and changes nothing. */
static void grows_when_memory_comes_back(void **state)
{
    (void)state;
    enum { FULL = 768, ALL = 4000 }; /* of 1024 */
    struct item *items = calloc(ALL, sizeof *items);
    struct master_index *index = NULL;
    uint32_t refused = 0;
    assert_int_equal(master_index_create(&index), YOLK_OK);
    for (uint32_t i = 0; i < ALL; i++)
        item_init(&items[i], i, UINT64_MAX);
    base_alloc_set_hook(refuse, &refused);
    for (uint32_t i = 0; i < FULL; i++)
        assert_int_equal(master_index_insert(index, &items[i].entry), YOLK_OK);
    assert_int_equal(refused, FULL - 640);
    assert_int_equal(master_index_insert(index, &items[FULL].entry), YOLK_ERR_NO_MEMORY);
    assert_null(find(index, &items[FULL]));
    assert_int_equal(master_index_count(index), FULL);
    base_alloc_set_hook(NULL, NULL);
    for (uint32_t i = FULL; i < ALL; i++)
        assert_int_equal(master_index_insert(index, &items[i].entry), YOLK_OK);
    for (uint32_t i = 0; i < ALL; i++)
        assert_ptr_equal(find(index, &items[i]), &items[i].entry);
    master_index_destroy(index);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_flags),
        cmocka_unit_test(survives_colliding_hashes),
        cmocka_unit_test(a_walk_survives_growth),
        cmocka_unit_test(grows_when_memory_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
