/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "peer/http.h"

enum { BODY_MAX = 64 };

static enum yolk_status parse(const char *text, bool ended, int *code, struct base_buf *out)
{
    struct base_buf in = {.data = (uint8_t *)(uintptr_t)text, .size = strlen(text)};
    return http_parse_answer(&in, ended, code, out);
}

/* The same by every first part of it: never anything but AGAIN before the whole. */
static void expect(const char *text, int wanted_code, const char *wanted)
{
    struct base_buf out;
    int code = 0;
    base_buf_init(&out, BODY_MAX);
    assert_int_equal(parse(text, false, &code, &out), YOLK_OK);
    assert_int_equal(code, wanted_code);
    assert_int_equal(out.size, strlen(wanted));
    if (out.size > 0)
        assert_memory_equal(out.data, wanted, out.size);
    for (size_t size = 0; size < strlen(text); size++) {
        struct base_buf in = {.data = (uint8_t *)(uintptr_t)text, .size = size};
        assert_int_equal(http_parse_answer(&in, false, &code, &out), YOLK_ERR_AGAIN);
    }
    base_buf_free(&out);
}

static void bodies(void **state)
{
    (void)state;
    expect("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    expect("HTTP/1.0 404 Not Found\r\ncontent-length:0\r\n\r\n", 404, "");
    expect("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n",
           200, "abcde");
    struct base_buf out;
    int code = 0;
    base_buf_init(&out, BODY_MAX);
    const char *open = "HTTP/1.1 200 OK\r\n\r\nto the end";
    assert_int_equal(parse(open, false, &code, &out), YOLK_ERR_AGAIN);
    assert_int_equal(parse(open, true, &code, &out), YOLK_OK);
    assert_int_equal(out.size, 10);
    base_buf_free(&out);
}

static void broken_ones(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 999 Odd\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
    };
    struct base_buf out;
    int code;
    base_buf_init(&out, BODY_MAX);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(parse(texts[i], false, &code, &out), YOLK_ERR_PROTOCOL);
    base_buf_free(&out);
}

static void escapes(void **state)
{
    (void)state;
    struct base_buf out;
    base_buf_init(&out, 256);
    assert_int_equal(http_escape("mooncake/yolk/[::1]:1 &a=\xc3\xa4~", &out), YOLK_OK);
    const char *wanted = "mooncake%2Fyolk%2F%5B%3A%3A1%5D%3A1%20%26a%3D%C3%A4~";
    assert_int_equal(out.size, strlen(wanted));
    assert_memory_equal(out.data, wanted, out.size);
    base_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),
        cmocka_unit_test(broken_ones),
        cmocka_unit_test(escapes),
    };
    return cmocka_run_group_tests_name("peer.http", tests, NULL, NULL);
}
