/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/trace.h"
#include "platform/temporary_kit.h"

static int load_text(struct trace *trace, const char *text, size_t max, char *error, size_t size)
{
    char path[TEMPORARY_MAX] = "yolk-trace-XXXXXX";
    int fd = mkstemp(temporary_path(path));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int result = trace_load(trace, path, max, error, size);
    unlink(path);
    return result;
}

static void test_reads_requests(void **state)
{
    (void)state;
    struct trace trace = {0};
    char error[256] = "";
    assert_int_equal(load_text(&trace,
                               "{\"timestamp\": 1, \"hash_ids\": [0, 7]}\n\n"
                               "{\"hash_ids\": []}\n{\"hash_ids\": [9223372036854775807]}",
                               0, error, sizeof error),
                     0);
    assert_int_equal(trace.count, 3);
    assert_int_equal(trace.requests[0].count, 2);
    assert_int_equal(trace_ids(&trace, 0)[1], 7);
    assert_int_equal(trace.requests[1].count, 0);
    assert_true(trace_ids(&trace, 2)[0] == INT64_MAX);
    trace_free(&trace);
}

static void test_stops_at_the_wanted_count(void **state)
{
    (void)state;
    struct trace trace = {0};
    char error[256] = "";
    assert_int_equal(load_text(&trace, "{\"hash_ids\":[1]}\n{\"hash_ids\":[2]}\nnonsense\n", 2,
                               error, sizeof error),
                     0);
    assert_int_equal(trace.count, 2);
    trace_free(&trace);
}

static void test_names_the_bad_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"hash_ids\":[1]}\nnonsense\n",
        "{\"hash_ids\":[1]}\n[1]\n",
        "{\"hash_ids\":[1]}\n{\"timestamp\":2}\n",
        "{\"hash_ids\":[1]}\n{\"hash_ids\":[1.5]}\n",
        "{\"hash_ids\":[1]}\n{\"hash_ids\":[-1]}\n",
        "{\"hash_ids\":[1]}\n{\"hash_ids\":[99999999999999999999]}\n",
        "{\"hash_ids\":[1]}\n{\"hash_ids\":[1]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct trace trace = {0};
        char error[256] = "";
        assert_int_equal(load_text(&trace, bad[i], 0, error, sizeof error), -1);
        assert_non_null(strstr(error, ":2: "));
        assert_int_equal(trace.count, 0);
    }
}

static void test_refuses_an_endless_line(void **state)
{
    (void)state;
    struct trace trace = {0};
    char error[256] = "";
    assert_int_equal(trace_load(&trace, "/dev/zero", 0, error, sizeof error), -1);
    assert_non_null(strstr(error, "/dev/zero:1: line is longer than 4 MiB"));
}

static void test_refuses_an_absent_or_empty_file(void **state)
{
    (void)state;
    struct trace trace = {0};
    char error[256] = "";
    assert_int_equal(trace_load(&trace, "/nonexistent/trace", 0, error, sizeof error), -1);
    assert_non_null(strstr(error, "/nonexistent/trace"));
    assert_int_equal(load_text(&trace, "\n", 0, error, sizeof error), -1);
    assert_non_null(strstr(error, "no request"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_requests),
        cmocka_unit_test(test_stops_at_the_wanted_count),
        cmocka_unit_test(test_names_the_bad_line),
        cmocka_unit_test(test_refuses_an_endless_line),
        cmocka_unit_test(test_refuses_an_absent_or_empty_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
