/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static struct base_json *good(const char *text)
{
    struct base_json *root;
    assert_int_equal(base_json_parse("t", text, strlen(text), &root), YOLK_OK);
    return root;
}

static void a_tree(void **state)
{
    (void)state;
    const char *text =
        " {\"a\": [1, -2.5e+3, \"x\\n\\u00e9\\ud83d\\ude00/\\/\"], \"b\":{\"c\" :true,"
        "\"d\":false},\"e\":null,\"\":[]}\n";
    struct base_json *root = good(text);
    assert_int_equal(root->type, BASE_JSON_OBJECT);
    assert_int_equal(root->source_size, strlen(text) - 2);
    const struct base_json *a = base_json_member(root, "a");
    assert_int_equal(a->type, BASE_JSON_ARRAY);
    assert_memory_equal(a->source, "[1, -2.5e+3, ", 13);
    assert_string_equal(a->first->text, "1");
    assert_null(a->first->name);
    assert_string_equal(a->first->next->text, "-2.5e+3");
    assert_string_equal(a->first->next->next->text, "x\n\xc3\xa9\xf0\x9f\x98\x80//");
    assert_null(a->first->next->next->next);
    const struct base_json *b = base_json_member(root, "b");
    assert_true(base_json_member(b, "c")->boolean);
    assert_false(base_json_member(b, "d")->boolean);
    assert_string_equal(base_json_member(b, "d")->text, "false");
    assert_int_equal(base_json_member(root, "e")->type, BASE_JSON_NULL);
    assert_null(base_json_member(root, "")->first);
    assert_null(base_json_member(root, "z"));
    assert_null(base_json_member(a, "a"));
    base_json_free(root);
    root = good("7");
    assert_string_equal(root->text, "7");
    base_json_free(root);
    base_json_free(NULL);
}

static void wrong_texts_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "{\"a\"}",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "[1 2]",
                                      "01",
                                      "1.",
                                      "-",
                                      "1e",
                                      "tru",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\u0000\"",
                                      "\"\t\"",
                                      "1 1",
                                      "nul",
                                      "+1",
                                      ".5",
                                      "[1}",
                                      "{\"a\":1 \"b\"",
                                      "\"\\udc00\"",
                                      "{\"a\" 1}",
                                      "NaN",
                                      "{\"a\":1,\"a\":2}"};
    struct base_json *root;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(base_json_parse("t", bad[i], strlen(bad[i]), &root), YOLK_ERR_CONFIG);
        assert_null(root);
        assert_memory_equal(yolk_last_error(), "t: line 1, column ", 18);
    }
    const char *second = "{\n  \"a\": x}";
    assert_int_equal(base_json_parse("f.json", second, strlen(second), &root), YOLK_ERR_CONFIG);
    assert_string_equal(yolk_last_error(), "f.json: line 2, column 8: a value must stand here");
}

static void bounds(void **state)
{
    (void)state;
    size_t size = BASE_JSON_SIZE_MAX + 1;
    char *text = malloc(size);
    struct base_json *root;
    memset(text, ' ', size);
    assert_int_equal(base_json_parse("t", text, size, &root), YOLK_ERR_TOO_LARGE);
    memset(text, '[', 100);
    assert_int_equal(base_json_parse("t", text, 100, &root), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "32 levels"));
    for (size_t i = 0; i < BASE_JSON_NODES_MAX; i++)
        memcpy(text + 2 * i, i == 0 ? "[1" : ",1", 2);
    text[2 * BASE_JSON_NODES_MAX] = ']';
    assert_int_equal(base_json_parse("t", text, 2 * BASE_JSON_NODES_MAX + 1, &root),
                     YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "16384 values"));
    text[2 * BASE_JSON_NODES_MAX - 2] = ']';
    assert_int_equal(base_json_parse("t", text, 2 * BASE_JSON_NODES_MAX - 1, &root), YOLK_OK);
    base_json_free(root);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree),
        cmocka_unit_test(wrong_texts_are_named),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests_name("base.json", tests, NULL, NULL);
}
