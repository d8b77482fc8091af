/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
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

struct seen {
    char text[256];
    const char *whole; /* a path */
};

static bool is_whole(void *self, const char *path)
{
    const struct seen *seen = self;
    return seen->whole != NULL && strcmp(seen->whole, path) == 0;
}

static int remember(void *self, const char *path, const struct base_json *value)
{
    struct seen *seen = self;
    size_t used = strlen(seen->text);
    if (value->text != NULL)
        snprintf(seen->text + used, sizeof(seen->text) - used, "%s=%s ", path, value->text);
    else
        snprintf(seen->text + used, sizeof(seen->text) - used, "%s=%.*s ", path,
                 (int)value->source_size, value->source);
    return strcmp(path, "stop") == 0 ? YOLK_ERR_CONFIG : YOLK_OK;
}

/* In the order in which they hold: the last one does. */
static void settings_by_their_paths(void **state)
{
    (void)state;
    static const struct {
        const char *json, *whole, *order;
        int status;
    } rows[] = {
        {"{\"a\": 1, \"b\": \"x\"}", NULL, "a=1 b=x ", YOLK_OK},
        {"{\"a\": {\"b\": 1}, \"a/b\": 2}", NULL, "a/b=2 a/b=1 ", YOLK_OK},
        {"{\"a/b\": 2, \"a\": {\"b\": 1}}", NULL, "a/b=2 a/b=1 ", YOLK_OK},
        {"{\"a\": {\"b/c\": 1, \"b\": {\"c\": 2}}, \"a/b\": {\"c\": 3}, \"a/b/c\": 4}", NULL,
         "a/b/c=3 a/b/c=4 a/b/c=1 a/b/c=2 ", YOLK_OK},
        {"{\"a/b\": 2, \"a\": {\"b\": null}}", NULL, "a/b=2 ", YOLK_OK},
        {"{\"a\": {\"b\": 1}}", "a", "a={\"b\": 1} ", YOLK_OK},
        {"{\"a\": [1, {\"b\": 2}], \"c\": {}}", NULL, "a=[1, {\"b\": 2}] ", YOLK_OK},
        {"{\"stop\": 1, \"a\": 2}", NULL, "stop=1 ", YOLK_ERR_CONFIG},
        {"[1]", NULL, "", YOLK_ERR_CONFIG},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct seen seen = {.whole = rows[i].whole};
        const struct base_json_settings settings = {"x", is_whole, remember, &seen};
        struct base_json *root;
        assert_int_equal(base_json_parse("x", rows[i].json, strlen(rows[i].json), &root), YOLK_OK);
        assert_int_equal(base_json_settings(root, &settings), rows[i].status);
        assert_string_equal(seen.text, rows[i].order);
        base_json_free(root);
    }
    char json[2 * BASE_JSON_PATH_MAX];
    struct seen seen = {0};
    const struct base_json_settings settings = {"x", is_whole, remember, &seen};
    struct base_json *root;
    snprintf(json, sizeof(json), "{\"%0*d\": {\"b\": 1}}", BASE_JSON_PATH_MAX - 2, 0);
    assert_int_equal(base_json_parse("x", json, strlen(json), &root), YOLK_OK);
    assert_int_equal(base_json_settings(root, &settings), YOLK_ERR_CONFIG);
    assert_string_equal(yolk_last_error(), "x: a key of 256 bytes, at most 255");
    base_json_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree),
        cmocka_unit_test(wrong_texts_are_named),
        cmocka_unit_test(bounds),
        cmocka_unit_test(settings_by_their_paths),
    };
    return cmocka_run_group_tests_name("base.json", tests, NULL, NULL);
}
