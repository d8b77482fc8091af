/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "wire/http_request.h"

static enum http_state decode(const char *text, struct http_request *request,
                              struct http_refusal *refusal)
{
    *refusal = (struct http_refusal){0, NULL};
    return http_decode((const uint8_t *)text, strlen(text), 100, request, refusal);
}

static void test_whole_request(void **state)
{
    (void)state;
    static const char text[] = "PUT /met%61data?key=a%2Fb+c&x=1&&empty= HTTP/1.1\r\nHost: y\r\n"
                               "content-LENGTH:  5 \r\n\r\nhelloGET / HTTP/1.1\r\n\r\n";
    struct http_request request;
    struct http_refusal refusal;
    uint8_t key[16];
    size_t size = 0;
    assert_int_equal(decode(text, &request, &refusal), HTTP_READY);
    assert_int_equal(request.method, HTTP_PUT);
    assert_true(request.newer);
    assert_string_equal(request.path, "/metadata");
    assert_int_equal(request.query_count, 3);
    assert_non_null(http_query(&request, "empty"));
    assert_int_equal(http_query(&request, "empty")->size, 0);
    assert_null(http_query(&request, "ke"));
    assert_true(http_unescape(*http_query(&request, "key"), key, sizeof(key), &size));
    assert_int_equal(size, 5);
    assert_memory_equal(key, "a/b c", 5);
    assert_false(http_unescape(*http_query(&request, "key"), key, 4, &size));
    assert_int_equal(request.body.size, 5);
    assert_memory_equal(request.body.data, "hello", 5);
    /* The second request behind it is not this one's. */
    assert_string_equal(text + request.size, "GET / HTTP/1.1\r\n\r\n");
}

static void test_incomplete_at_each_byte(void **state)
{
    (void)state;
    static const char text[] = "POST /x?a=%00 HTTP/1.0\r\nExpect: 100-Continue\r\n"
                               "Content-Length: 3\r\n\r\nabc";
    const size_t whole = sizeof(text) - 1, head = whole - 3;
    struct http_request request;
    struct http_refusal refusal;
    for (size_t i = 0; i < whole; i++) {
        enum http_state got = http_decode((const uint8_t *)text, i, 100, &request, &refusal);
        assert_int_equal(got, i < head ? HTTP_INCOMPLETE : HTTP_HEAD_READY);
        assert_int_equal(request.wants_continue, i >= head);
    }
    assert_int_equal(decode(text, &request, &refusal), HTTP_READY);
    assert_false(request.newer);
}

static void test_zero_bytes(void **state)
{
    (void)state;
    struct http_request request;
    struct http_refusal refusal;
    uint8_t key[8];
    size_t size = 0;
    /* In a key any byte may be; in a path none is meant. */
    assert_int_equal(decode("GET /q?key=a%00b HTTP/1.1\r\n\r\n", &request, &refusal), HTTP_READY);
    assert_true(http_unescape(*http_query(&request, "key"), key, sizeof(key), &size));
    assert_int_equal(size, 3);
    assert_memory_equal(key, "a\0b", 3);
    assert_int_equal(decode("GET /q%00x HTTP/1.1\r\n\r\n", &request, &refusal), HTTP_BAD);
    assert_int_equal(refusal.code, 400);
    static const uint8_t raw[] = "GET /\0 HTTP/1.1\r\n\r\n";
    assert_int_equal(http_decode(raw, sizeof(raw) - 1, 100, &request, &refusal), HTTP_BAD);
}

static void test_wrong_escapes(void **state)
{
    (void)state;
    static const char *const wrong[] = {"%", "%4", "%4g", "%g4", "a%", "a%2", "% 1"};
    uint8_t out[8];
    size_t size = 0;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(http_unescape((struct http_text){wrong[i], strlen(wrong[i])}, out, 8, &size));
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *text;
    } CASES[] = {
        {400, "garbage"},
        {400, "GET\r\n\r\n"},
        {400, "GET / HTTP/2.0\r\n\r\n"},
        {400, "GET / HTTP/1.1 x\r\n\r\n"},
        {400, "GET x HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\nA: b\n\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n folded: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nno colon\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nspace : x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"},
        {411, "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {411, "PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {413, "PUT / HTTP/1.1\r\nContent-Length: 101\r\n\r\n"},
        {400, "GET /?1&2&3&4&5&6&7&8&9&a&b&c&d&e&f&g&h HTTP/1.1\r\n\r\n"},
    };
    struct http_request request;
    struct http_refusal refusal;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        if (decode(i == 0 ? "garbage" : CASES[i].text, &request, &refusal) != HTTP_BAD)
            fail_msg("not refused: %s", CASES[i].text);
        assert_int_equal(refusal.code, CASES[i].code);
        assert_non_null(refusal.text);
    }
    /* The first bytes of a client of the store, given the wrong port: it is not kept waiting. */
    static const uint8_t hello[] = {'Y', 'K', 1, 0, 32, 0, 0, 0};
    assert_int_equal(http_decode(hello, 2, 100, &request, &refusal), HTTP_INCOMPLETE);
    assert_int_equal(http_decode(hello, sizeof(hello), 100, &request, &refusal), HTTP_BAD);
    assert_int_equal(refusal.code, 400);
    assert_int_equal(http_decode((const uint8_t *)"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 33, 100,
                                 &request, &refusal),
                     HTTP_BAD);
}

static void test_bounds_of_the_head(void **state)
{
    (void)state;
    static char text[HTTP_HEAD_MAX + 64];
    struct http_request request;
    struct http_refusal refusal;
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /", 5);
    assert_int_equal(http_decode((uint8_t *)text, HTTP_HEAD_MAX - 1, 100, &request, &refusal),
                     HTTP_INCOMPLETE);
    assert_int_equal(http_decode((uint8_t *)text, HTTP_HEAD_MAX, 100, &request, &refusal),
                     HTTP_BAD);
    assert_int_equal(refusal.code, 431);
    /* A path of 255 bytes is the longest. */
    memcpy(text + 5 + 254, " HTTP/1.1\r\n\r\n", 14);
    assert_int_equal(decode(text, &request, &refusal), HTTP_READY);
    assert_int_equal(strlen(request.path), 255);
    memset(text + 5, 'a', 300);
    memcpy(text + 5 + 255, " HTTP/1.1\r\n\r\n", 14);
    assert_int_equal(decode(text, &request, &refusal), HTTP_BAD);
    assert_int_equal(refusal.code, 400);
    /* A hundred headers are the most. */
    size_t at = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n");
    for (unsigned i = 0; i < HTTP_FIELDS_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "a: b\r\n");
    snprintf(text + at, sizeof(text) - at, "\r\n");
    assert_int_equal(decode(text, &request, &refusal), HTTP_READY);
    snprintf(text + at, sizeof(text) - at, "a: b\r\n\r\n");
    assert_int_equal(decode(text, &request, &refusal), HTTP_BAD);
    assert_int_equal(refusal.code, 431);
}

static void test_absolute_target(void **state)
{
    (void)state;
    struct http_request request;
    struct http_refusal refusal;
    assert_int_equal(decode("GET http://host:9003/role?a=b#c HTTP/1.1\r\nOrigin: http://z\r\n\r\n",
                            &request, &refusal),
                     HTTP_READY);
    assert_string_equal(request.path, "/role");
    assert_int_equal(http_query(&request, "a")->size, 1);
    assert_true(request.from_page);
    assert_int_equal(decode("BREW / HTTP/1.1\r\n\r\n", &request, &refusal), HTTP_READY);
    assert_int_equal(request.method, HTTP_OTHER);
    assert_false(request.from_page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_request),   cmocka_unit_test(test_incomplete_at_each_byte),
        cmocka_unit_test(test_zero_bytes),      cmocka_unit_test(test_wrong_escapes),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_bounds_of_the_head),
        cmocka_unit_test(test_absolute_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
