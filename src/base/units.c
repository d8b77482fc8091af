/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit SIZE_UNITS[] = {
    {"", 1},
    {"B", 1},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
    {"KB", 1000ull},
    {"MB", 1000000ull},
    {"GB", 1000000000ull},
    {"TB", 1000000000000ull},
};

static const struct unit DURATION_UNITS[] = {
    {"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000},
};

static int refuse(const char *name, const char *text, const char *rule)
{
    return base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": %s", name, text, rule);
}

/* Reads decimal digits; false when there are none or they overflow. */
static bool read_digits(const char **text, uint64_t *value)
{
    const char *p = *text;
    uint64_t v = 0;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *text = p;
    *value = v;
    return true;
}

static int parse_units(const char *name, const char *text, const struct unit *units, size_t count,
                       const char *rule, uint64_t *result)
{
    const char *p = text;
    uint64_t number;
    if (*p == '\0')
        return refuse(name, text, rule);
    if (*p >= '0' && *p <= '9' && !read_digits(&p, &number))
        return refuse(name, text, "the number is too large");
    if (p == text)
        return refuse(name, text, rule);
    while (*p == ' ')
        p++;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(p, units[i].name) != 0)
            continue;
        if (number > UINT64_MAX / units[i].factor)
            return refuse(name, text, "the number is too large");
        *result = number * units[i].factor;
        return YOLK_OK;
    }
    return refuse(name, text, rule);
}

int base_parse_size(const char *name, const char *text, uint64_t *bytes)
{
    return parse_units(
        name, text, SIZE_UNITS, sizeof(SIZE_UNITS) / sizeof(SIZE_UNITS[0]),
        "must be a whole number of bytes with a unit of KiB, MiB, GiB, TiB, KB, MB, GB, TB "
        "or none, for example 4GiB",
        bytes);
}

int base_parse_duration_ms(const char *name, const char *text, uint64_t scale, uint64_t *ms)
{
    /* What a number alone means, in the words of the rule. */
    const char *rule =
        scale == 1000
            ? "must be a whole number of seconds, or with a unit of ms, s, m, h, for example 1500ms"
            : "must be a whole number of milliseconds, or with a unit of ms, s, m, h, for example "
              "500ms";
    size_t digits = strspn(text, "0123456789");
    bool plain = digits > 0 && text[digits] == '\0';
    int status = parse_units(name, text, DURATION_UNITS,
                             sizeof(DURATION_UNITS) / sizeof(DURATION_UNITS[0]), rule, ms);
    if (status != YOLK_OK || !plain || scale <= 1)
        return status;
    if (*ms > UINT64_MAX / scale)
        return refuse(name, text, "the number is too large");
    *ms *= scale;
    return YOLK_OK;
}

int base_parse_u64(const char *name, const char *text, uint64_t *value)
{
    const char *p = text;
    uint64_t v;
    if (!read_digits(&p, &v) || *p != '\0')
        return refuse(name, text, "must be a whole number from 0 to 18446744073709551615");
    *value = v;
    return YOLK_OK;
}

int base_parse_ratio(const char *name, const char *text, double *value)
{
    static const char RULE[] = "must be a decimal fraction from 0 to 1, for example 0.95";
    /* By hand: strtod follows the locale and takes hexadecimal, infinity and exponents. */
    const char *p = text;
    uint64_t whole;
    double fraction = 0;
    double scale = 1;
    if (!read_digits(&p, &whole))
        return refuse(name, text, RULE);
    if (*p == '.') {
        p++;
        if (*p == '\0')
            return refuse(name, text, RULE);
        for (; *p >= '0' && *p <= '9' && scale < 1e15; p++) {
            scale *= 10;
            fraction = fraction * 10 + (*p - '0');
        }
    }
    double result = (double)whole + fraction / scale;
    if (*p != '\0' || result > 1)
        return refuse(name, text, RULE);
    *value = result;
    return YOLK_OK;
}

int base_parse_bool(const char *name, const char *text, bool *value)
{
    static const char *const YES[] = {"true", "yes", "on", "1"};
    static const char *const NO[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < sizeof(YES) / sizeof(YES[0]); i++) {
        if (strcmp(text, YES[i]) == 0 || strcmp(text, NO[i]) == 0) {
            *value = strcmp(text, YES[i]) == 0;
            return YOLK_OK;
        }
    }
    return refuse(name, text, "must be true or false");
}

const char *base_format_size(uint64_t bytes, char *text, size_t size)
{
    size_t unit = 1;
    for (size_t i = 2; i <= 5; i++) {
        if (bytes != 0 && bytes % SIZE_UNITS[i].factor == 0)
            unit = i;
    }
    snprintf(text, size, "%llu%s", (unsigned long long)(bytes / SIZE_UNITS[unit].factor),
             unit == 1 ? "" : SIZE_UNITS[unit].name);
    return text;
}

const char *base_format_duration_ms(uint64_t ms, char *text, size_t size)
{
    size_t unit = 1;
    for (size_t i = 2; i <= 4; i++) {
        if (ms != 0 && ms % DURATION_UNITS[i].factor == 0)
            unit = i;
    }
    snprintf(text, size, "%llu%s", (unsigned long long)(ms / DURATION_UNITS[unit].factor),
             DURATION_UNITS[unit].name);
    return text;
}
