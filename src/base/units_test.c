/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/units.h"

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } GOOD[] = {
        {"0", 0},
        {"4096", 4096},
        {"64KiB", 65536},
        {"4GiB", 4ull << 30},
        {"4 GiB", 4ull << 30},
        {"2TiB", 2ull << 40},
        {"500KB", 500000},
        {"7MB", 7000000},
        {"4GB", 4000000000ull},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        uint64_t bytes = 1;
        assert_int_equal(base_parse_size("dram", GOOD[i].text, &bytes), YOLK_OK);
        assert_true(bytes == GOOD[i].bytes);
    }
    static const char *const BAD[] = {
        "",
        "-1",
        "-4GiB",
        "1e3",
        "4gb",
        "4Gib",
        "GiB",
        "4G",
        "0x10",
        "1.5GiB",
        " 4GiB",
        "4GiB ",
        "+4",
        "nan",
        "4GiBx",
        "16777216TiB",
        "18446744073709551616",
        "99999999999999999999999GiB",
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        uint64_t bytes = 77;
        assert_int_equal(base_parse_size("dram", BAD[i], &bytes), YOLK_ERR_CONFIG);
        assert_int_equal(bytes, 77);
    }
}

static void message_names_setting_value_and_rule(void **state)
{
    (void)state;
    uint64_t value;
    assert_int_equal(base_parse_size("--dram", "4gb", &value), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "--dram"));
    assert_non_null(strstr(yolk_last_error(), "\"4gb\""));
    assert_non_null(strstr(yolk_last_error(), "GiB"));
    assert_int_equal(base_parse_size("--dram", "16777216TiB", &value), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "too large"));
}

static void durations(void **state)
{
    (void)state;
    uint64_t ms;
    assert_int_equal(base_parse_duration_ms("t", "500ms", 1, &ms), YOLK_OK);
    assert_int_equal(ms, 500);
    assert_int_equal(base_parse_duration_ms("t", "30s", 1, &ms), YOLK_OK);
    assert_int_equal(ms, 30000);
    assert_int_equal(base_parse_duration_ms("t", "2h", 1, &ms), YOLK_OK);
    assert_int_equal(ms, 7200000);
    assert_int_equal(base_parse_duration_ms("t", "250", 1, &ms), YOLK_OK);
    assert_int_equal(ms, 250);
    assert_int_equal(base_parse_duration_ms("t", "5 parsecs", 1, &ms), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_duration_ms("t", "-5s", 1, &ms), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_duration_ms("t", "", 1, &ms), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_duration_ms("t", "18446744073709551615h", 1, &ms), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_duration_ms("t", "1.5", 1, &ms), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "\"1.5\": must be a whole number of milliseconds"));
    /* Where a number alone means seconds, the rule says so. */
    assert_int_equal(base_parse_duration_ms("t", "30", 1000, &ms), YOLK_OK);
    assert_int_equal(ms, 30000);
    assert_int_equal(base_parse_duration_ms("t", "30ms", 1000, &ms), YOLK_OK);
    assert_int_equal(ms, 30);
    assert_int_equal(base_parse_duration_ms("t", "1.5", 1000, &ms), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "\"1.5\": must be a whole number of seconds"));
    assert_int_equal(base_parse_duration_ms("t", "18446744073709552", 1000, &ms), YOLK_ERR_CONFIG);
}

static void other_types(void **state)
{
    (void)state;
    double ratio;
    bool flag;
    uint64_t number;
    assert_int_equal(base_parse_ratio("r", "0.95", &ratio), YOLK_OK);
    assert_true(ratio > 0.9499 && ratio < 0.9501);
    assert_int_equal(base_parse_ratio("r", "1", &ratio), YOLK_OK);
    assert_true(ratio >= 1.0);
    assert_int_equal(base_parse_ratio("r", "0.5000000000000000000000", &ratio), YOLK_ERR_CONFIG);
    static const char *const BAD[] = {"1.01", "2",  "-0.1", "nan", "inf",
                                      "1e-1", ".5", "0.",   "0,5", ""};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_int_equal(base_parse_ratio("r", BAD[i], &ratio), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_bool("b", "on", &flag), YOLK_OK);
    assert_true(flag);
    assert_int_equal(base_parse_bool("b", "0", &flag), YOLK_OK);
    assert_false(flag);
    assert_int_equal(base_parse_bool("b", "maybe", &flag), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_u64("n", "12", &number), YOLK_OK);
    assert_int_equal(base_parse_u64("n", "12KiB", &number), YOLK_ERR_CONFIG);
    assert_int_equal(base_parse_u64("n", "-1", &number), YOLK_ERR_CONFIG);
}

static void formats_and_reads_back(void **state)
{
    (void)state;
    static const uint64_t VALUES[] = {0,           1,          1023,       1024,
                                      1536 * 1024, 4ull << 30, 5ull << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof(VALUES) / sizeof(VALUES[0]); i++) {
        char text[32];
        uint64_t back;
        base_format_size(VALUES[i], text, sizeof(text));
        assert_int_equal(base_parse_size("x", text, &back), YOLK_OK);
        assert_true(back == VALUES[i]);
        base_format_duration_ms(VALUES[i], text, sizeof(text));
        assert_int_equal(base_parse_duration_ms("x", text, 1, &back), YOLK_OK);
        assert_true(back == VALUES[i]);
    }
    char text[32];
    assert_string_equal(base_format_size(4ull << 30, text, sizeof(text)), "4GiB");
    assert_string_equal(base_format_duration_ms(90000, text, sizeof(text)), "90s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(message_names_setting_value_and_rule),
        cmocka_unit_test(durations),
        cmocka_unit_test(other_types),
        cmocka_unit_test(formats_and_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
