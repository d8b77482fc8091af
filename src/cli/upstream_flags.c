/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/upstream_flags.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

enum { SUGGEST_MAX = 3, NAME_MAX_SIZE = 64 };

const struct upstream_flag *upstream_flag_find(const char *name, unsigned program)
{
    for (size_t i = 0; i < upstream_flag_count; i++)
        if ((upstream_flags[i].programs & program) != 0 &&
            strcmp(upstream_flags[i].name, name) == 0)
            return &upstream_flags[i];
    return NULL;
}

bool upstream_flag_is_harmless(const struct upstream_flag *flag, const char *value)
{
    size_t size = strlen(value);
    if (flag->harmless && strcmp(flag->harmless, "*") == 0)
        return true;
    for (const char *at = flag->harmless; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == size && strncmp(at, value, size) == 0)
            return true;
    }
    return false;
}

/* ---- names like it ---- */

/* How many letters to change, '-' and '_' being the same. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_SIZE], width = strlen(b);
    if (width >= NAME_MAX_SIZE)
        return SIZE_MAX;
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            char x = a[i] == '-' ? '_' : a[i], y = b[j] == '-' ? '_' : b[j];
            size_t best = corner + (x != y);
            corner = row[j + 1];
            best = best < row[j] + 1 ? best : row[j] + 1;
            row[j + 1] = best < corner + 1 ? best : corner + 1;
        }
    }
    return row[width];
}

struct suggestion {
    const char *name;
    size_t distance;
};

static void keep_best(struct suggestion *best, const char *name, const char *given)
{
    size_t allowed = strlen(given) / 3 > 2 ? strlen(given) / 3 : 2;
    struct suggestion new = {name, distance(given, name)};
    if (strlen(given) >= 4 && strstr(name, given))
        new.distance = 1; /* a part of it */
    if (new.distance > allowed)
        return;
    for (int i = 0; i < SUGGEST_MAX && best[i].name; i++)
        if (strcmp(best[i].name, name) == 0)
            return; /* a name of both programs' */
    for (int i = 0; i < SUGGEST_MAX; i++) {
        if (best[i].name && best[i].distance <= new.distance)
            continue;
        struct suggestion old = best[i];
        best[i] = new;
        new = old;
    }
}

void upstream_flag_suggest(const char *name, unsigned program, unsigned commands, char *out,
                           size_t size)
{
    struct suggestion best[SUGGEST_MAX] = {{NULL, 0}};
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < upstream_flag_count; i++)
        if ((upstream_flags[i].programs & program) != 0)
            keep_best(best, upstream_flags[i].name, name);
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        if ((info->commands & commands) != 0)
            keep_best(best, info->flag, name);
    }
    for (int i = 0; i < SUGGEST_MAX && best[i].name; i++) {
        int n = snprintf(out + used, size - used, "%s--%s", used ? ", " : "", best[i].name);
        if (n < 0 || (size_t)n >= size - used)
            break;
        used += (size_t)n;
    }
}

/* ---- values ---- */

static int refuse(const char *where, const char *value, const char *rule)
{
    return base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": %s", where, value, rule);
}

/* "4 GB", "1.5gb", "4GiB" or bytes, as a number of bytes. */
static int size_value(const char *where, const char *value, char *out, size_t size)
{
    static const char letters[] = "KMGT";
    static const char rule[] = "must be a size, such as 4294967296, \"4 GB\" or 4GiB";
    const char *at = value + strspn(value, " \t");
    if (!isdigit((unsigned char)*at))
        return refuse(where, value, rule);
    char *end;
    double number = strtod(at, &end), unit = 1;
    end += strspn(end, " \t");
    const char *letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    if (letter) {
        unit = ldexp(1, 10 * (int)(letter - letters + 1));
        end += toupper((unsigned char)end[1]) == 'I' ? 2 : 1;
    }
    end += toupper((unsigned char)*end) == 'B';
    if (*end || !(number * unit < 0x1p63))
        return refuse(where, value, rule);
    snprintf(out, size, "%llu", (unsigned long long)(number * unit));
    return YOLK_OK;
}

int upstream_flag_value(const struct upstream_flag *flag, const char *where, const char *value,
                        char *out, size_t size)
{
    bool yes = false;
    uint64_t ms;
    char *end;
    int status = YOLK_OK;
    if (strlen(value) >= size)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: a value of %zu bytes, at most %zu are allowed",
                         where, strlen(value), size - 1);
    snprintf(out, size, "%s", value);
    switch (flag->type) {
    case UPSTREAM_BOOL:
        if (strcmp(value, "t") == 0 || strcmp(value, "y") == 0)
            yes = true;
        else if (strcmp(value, "f") != 0 && strcmp(value, "n") != 0)
            status = base_parse_bool(where, value, &yes);
        snprintf(out, size, "%s", yes ? "true" : "false");
        return status;
    case UPSTREAM_NUMBER:
        (void)strtod(value, &end);
        return value[0] && !*end && !isspace((unsigned char)value[0])
                   ? YOLK_OK
                   : refuse(where, value, "must be a number");
    case UPSTREAM_RATIO: { /* also ".1" and "1e-1"; the setting itself refuses what is no ratio */
        double number = strtod(value, &end);
        if (value[0] && !*end && number >= 0 && number <= 1)
            snprintf(out, size, "%.9f", number);
        return YOLK_OK;
    }
    case UPSTREAM_TIME:
        return base_parse_duration_ms(where, value, 1, &ms);
    case UPSTREAM_SIZE:
        return size_value(where, value, out, size);
    default:
        return YOLK_OK;
    }
}

/* ---- texts ---- */

static const char *effect_of(const struct upstream_flag *flag)
{
    return flag->use == UPSTREAM_IDLE ? "no effect: " : "";
}

int upstream_flags_help(unsigned program, struct base_buf *text)
{
    int status = YOLK_OK;
    for (size_t i = 0; i < upstream_flag_count && status == YOLK_OK; i++) {
        const struct upstream_flag *flag = &upstream_flags[i];
        if ((flag->programs & program) != 0)
            status = base_buf_printf(text, "  --%-40s %s%s [%s]\n", flag->name, effect_of(flag),
                                     flag->text, flag->fallback);
    }
    return status;
}

static int markdown_row(const struct upstream_flag *flag, struct base_buf *text)
{
    static const char *const TYPES[] = {"bool", "number", "ratio", "text", "time", "size"};
    static const char *const PROGRAMS[] = {"", "master", "client", "both"};
    int status = base_buf_printf(
        text, flag->fallback[0] ? "| `--%s` | %s | %s | `%s` | " : "| `--%s` | %s | %s | %s| ",
        flag->name, PROGRAMS[flag->programs], TYPES[flag->type], flag->fallback);
    if (status == YOLK_OK && flag->use == UPSTREAM_SETS)
        status = base_buf_printf(text, "`--%s`: ", base_setting_info(flag->setting)->flag);
    if (status == YOLK_OK && flag->use == UPSTREAM_IDLE)
        status = base_buf_printf(text, "none: ");
    return status == YOLK_OK ? base_buf_printf(text, "%s |\n", flag->text) : status;
}

int upstream_flags_markdown(struct base_buf *text)
{
    int status =
        base_buf_printf(text, "| flag | program | type | upstream's default | what comes of it |\n"
                              "|---|---|---|---|---|\n");
    for (size_t i = 0; i < upstream_flag_count && status == YOLK_OK; i++)
        status = markdown_row(&upstream_flags[i], text);
    return status;
}
