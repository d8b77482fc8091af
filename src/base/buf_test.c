/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/list.h"

static void grows_to_its_maximum_and_not_over(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 1000);
    for (unsigned i = 0; i < 250; i++)
        assert_int_equal(base_buf_put_u32(&buf, i), YOLK_OK);
    assert_int_equal(buf.size, 1000);
    assert_true(buf.capacity <= 1000);
    assert_int_equal(base_buf_append(&buf, "x", 1), YOLK_ERR_TOO_LARGE);
    assert_int_equal(base_buf_append(&buf, "", SIZE_MAX), YOLK_ERR_TOO_LARGE);
    assert_null(base_buf_extend(&buf, 1));
    assert_int_equal(buf.size, 1000);
    for (unsigned i = 0; i < 250; i++)
        assert_int_equal(base_load_u32(buf.data + 4 * i), i);
    base_buf_consume(&buf, 4);
    assert_int_equal(base_load_u32(buf.data), 1);
    assert_int_equal(buf.size, 996);
    base_buf_clear(&buf);
    assert_int_equal(buf.size, 0);
    base_buf_free(&buf);
    base_buf_free(&buf);
}

static void empty_operations(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 0);
    assert_int_equal(base_buf_append(&buf, NULL, 0), YOLK_OK);
    assert_non_null(base_buf_extend(&buf, 0));
    assert_int_equal(base_buf_append(&buf, "a", 1), YOLK_ERR_TOO_LARGE);
    base_buf_consume(&buf, 0);
    base_buf_free(&buf);
}

static void formats(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 64);
    assert_int_equal(base_buf_printf(&buf, "%s-%d", "ab", 7), YOLK_OK);
    assert_int_equal(base_buf_printf(&buf, "/%u", 12u), YOLK_OK);
    assert_int_equal(buf.size, 7);
    assert_memory_equal(buf.data, "ab-7/12", 7);
    assert_int_equal(base_buf_printf(&buf, "%100s", ""), YOLK_ERR_TOO_LARGE);
    assert_int_equal(buf.size, 7);
    base_buf_free(&buf);
}

static void loads_what_it_stored(void **state)
{
    (void)state;
    uint8_t bytes[9] = {0};
    base_store_u64(bytes + 1, 0x0102030405060708ull);
    assert_int_equal(bytes[1], 8);
    assert_int_equal(bytes[8], 1);
    assert_true(base_load_u64(bytes + 1) == 0x0102030405060708ull);
    base_store_u16(bytes, 0xfffe);
    assert_int_equal(base_load_u16(bytes), 0xfffe);
    base_store_u32(bytes + 3, 0xdeadbeefu);
    assert_true(base_load_u32(bytes + 3) == 0xdeadbeefu);
}

struct item {
    int number;
    struct base_list link;
};

static void list_keeps_order(void **state)
{
    (void)state;
    struct base_list head;
    struct item items[4];
    int expected = 0;
    base_list_init(&head);
    assert_true(base_list_empty(&head));
    assert_null(base_list_pop_front(&head));
    for (int i = 1; i < 4; i++) {
        items[i].number = i;
        base_list_push_back(&head, &items[i].link);
    }
    items[0].number = 0;
    base_list_push_front(&head, &items[0].link);
    BASE_LIST_FOREACH(node, &head)
    {
        assert_int_equal(BASE_CONTAINER(node, struct item, link)->number, expected);
        expected++;
    }
    assert_int_equal(expected, 4);
    base_list_remove(&items[2].link);
    base_list_remove(&items[2].link);
    assert_true(base_list_empty(&items[2].link));
    BASE_LIST_FOREACH_SAFE(node, &head)
    {
        base_list_remove(node);
    }
    assert_true(base_list_empty(&head));
}

static void hash_is_xxh3(void **state)
{
    (void)state;
    assert_true(base_hash64("", 0) == 0x2d06800538d394c2ull);
    assert_true(base_hash64("abc", 3) != base_hash64("abd", 3));
    assert_true(base_hash64_seed("abc", 3, 1) != base_hash64_seed("abc", 3, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_to_its_maximum_and_not_over),
        cmocka_unit_test(empty_operations),
        cmocka_unit_test(formats),
        cmocka_unit_test(loads_what_it_stored),
        cmocka_unit_test(list_keeps_order),
        cmocka_unit_test(hash_is_xxh3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
