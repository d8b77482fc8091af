/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "base/json_write.h"

static void check_string(const char *bytes, size_t size, const char *wanted)
{
    struct base_buf text;
    base_buf_init(&text, 4096);
    struct base_json_writer json = {.out = &text};
    base_json_string(&json, bytes, size);
    assert_int_equal(json.status, YOLK_OK);
    assert_int_equal(text.size, strlen(wanted));
    assert_memory_equal(text.data, wanted, text.size);
    json_t *value =
        json_loadb((const char *)text.data, text.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(value);
    json_decref(value);
    base_buf_free(&text);
}

/* Another program's reader has to take whatever a key is made of. */
static void test_strings(void **state)
{
    (void)state;
    check_string("", 0, "\"\"");
    check_string("a\"b\\", 4, "\"a\\\"b\\\\\"");
    check_string("\0\n\x7f", 3, "\"\\u0000\\u000a\\u007f\"");
    check_string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9,
                 "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    check_string("\xff\xc3", 2, "\"\\u00ff\\u00c3\"");
    check_string("\xc0\x80", 2, "\"\\u00c0\\u0080\"");            /* not the shortest form */
    check_string("\xed\xa0\x80", 3, "\"\\u00ed\\u00a0\\u0080\""); /* a surrogate */
    check_string("\xf4\x90\x80\x80", 4, "\"\\u00f4\\u0090\\u0080\\u0080\""); /* beyond the last */
}

static void test_object(void **state)
{
    (void)state;
    struct base_buf text;
    base_buf_init(&text, 4096);
    struct base_json_writer json = {.out = &text};
    base_json_open(&json, '{');
    base_json_number(&json, "n", UINT64_MAX);
    base_json_name(&json, "o");
    base_json_open(&json, '{');
    base_json_bool(&json, "b", true);
    base_json_close(&json, '}');
    base_json_text(&json, "t", "x");
    base_json_close(&json, '}');
    static const char wanted[] = "{\"n\":18446744073709551615,\"o\":{\"b\":true},\"t\":\"x\"}";
    assert_int_equal(text.size, sizeof(wanted) - 1);
    assert_memory_equal(text.data, wanted, text.size);
    base_buf_free(&text);
    /* No room: said, and nothing more is written. */
    base_buf_init(&text, 4);
    json = (struct base_json_writer){.out = &text};
    base_json_text(&json, "name", "value");
    assert_int_not_equal(json.status, YOLK_OK);
    base_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
