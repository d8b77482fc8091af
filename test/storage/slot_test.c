/* SPDX-License-Identifier: Apache-2.0 */
/* Several that take a slot of one path at the same time. */
#include "kit.h"

enum { CAPACITY = 4 << 20 };

/* Another process that makes the slot between our look for it and our own making of it. */
static struct kit *other_kit;
static struct storage *other;

static int open_after_another(void *self, const char *path, unsigned flags, struct file **out)
{
    int status = other_kit->fs.ops->open(self, path, flags, out);
    if (status == YOLK_ERR_NOT_FOUND && other == NULL)
        assert_int_equal(storage_open(&other_kit->fs, &other_kit->options, &other), YOLK_OK);
    return status;
}

static char unlinked[sizeof(KIT_SLOT0 ".new")];

static int note_unlink(void *self, const char *path)
{
    (void)self;
    assert_true(strlen(path) < sizeof(unlinked));
    memcpy(unlinked, path, strlen(path) + 1);
    return YOLK_OK;
}

static void a_slot_made_meanwhile_is_not_replaced(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit, 9, CAPACITY);
    struct file_ops ops = *kit.fs.ops;
    ops.open = open_after_another;
    ops.unlink = note_unlink;
    unlinked[0] = '\0';
    struct file_system late = {&ops, kit.fs.self};
    other_kit = &kit;
    other = NULL;
    struct storage *s, *again;
    uint8_t id[STORAGE_ID_SIZE];
    assert_int_equal(storage_open(&late, &kit.options, &s), YOLK_OK);
    assert_non_null(other);
    assert_string_equal(storage_info(other)->path, KIT_SLOT0);
    assert_string_equal(storage_info(s)->path, KIT_PATH ".slot1");
    assert_string_equal(unlinked, KIT_SLOT0 ".new");
    memcpy(id, storage_info(other)->storage_id, sizeof(id));
    assert_int_equal(storage_close(other), YOLK_OK);
    assert_int_equal(storage_open(&kit.fs, &kit.options, &again), YOLK_OK);
    assert_string_equal(storage_info(again)->path, KIT_SLOT0);
    assert_memory_equal(storage_info(again)->storage_id, id, sizeof(id));
    assert_int_equal(storage_close(again), YOLK_OK);
    assert_int_equal(storage_close(s), YOLK_OK);
    kit_free(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_made_meanwhile_is_not_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
