/* SPDX-License-Identifier: Apache-2.0 */
/* Another core, which is told nothing but the facts of the first. */
#ifndef YOLK_MASTER_TWIN_H
#define YOLK_MASTER_TWIN_H

#include "master/state.h"
#include "master/test_kit.h"

static struct master_core *twin;

static void twin_replay(void *self, const struct master_fact *fact)
{
    (void)self;
    assert_int_equal(master_core_replay(twin, 1, fact), YOLK_OK);
}

UNUSED static void twin_start(void)
{
    assert_int_equal(master_core_create(NULL, 1, 9, &twin), YOLK_OK);
    kit_on_fact = twin_replay;
}

static bool twin_has(const struct master_object *object, const struct master_extent *extent)
{
    MASTER_EXTENTS_FOREACH(other, object)
    {
        if (other->segment->id == extent->segment->id &&
            master_extent_offset(other) == master_extent_offset(extent) &&
            master_extent_size(other) == master_extent_size(extent) &&
            other->checksum == extent->checksum)
            return true;
    }
    return false;
}

static void twin_compare(void *self, struct master_index_entry *entry)
{
    const struct master_object *object = (const struct master_object *)entry;
    struct wire_view key = wire_view_of(object->key, object->entry.key_size);
    if (object->put != NULL)
        return;
    const struct master_object *other = master_object_find(twin, key, object->entry.hash);
    assert_non_null(other);
    assert_int_equal(other->size, object->size);
    assert_int_equal(other->extent_count, object->extent_count);
    MASTER_EXTENTS_FOREACH(extent, object)
    assert_true(twin_has(other, extent));
    ++*(uint64_t *)self;
}

/* Every key lies where it lies in the other. */
UNUSED static void twin_agrees(const struct master_core *core)
{
    uint64_t cursor = 0, count = 0;
    while (master_index_walk(core->index, &cursor, twin_compare, &count)) {
    }
    assert_int_equal(master_index_count(twin->index), count);
    kit_check(twin);
}

UNUSED static void twin_stop(void)
{
    kit_on_fact = NULL;
    master_core_destroy(twin);
}

#endif
