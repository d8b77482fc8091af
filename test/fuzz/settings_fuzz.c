/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings as arguments or as an environment, one a line behind a first byte that says for which
 * command; and the first line as a number with a unit. What is shown of a value means that value.
 */
#include <math.h>

#include "base/config.h"
#include "base/error.h"
#include "base/units.h"
#include "kit.h"

enum { LINES_MAX = 32 };

static void check_units(const char *text)
{
    char shown[64];
    uint64_t value, again;
    double ratio;
    bool boolean;
    if (base_parse_size("size", text, &value) == YOLK_OK)
        FUZZ_MUST(base_parse_size("size", base_format_size(value, shown, sizeof(shown)), &again) ==
                      YOLK_OK &&
                  again == value);
    if (base_parse_duration_ms("time", text, 1, &value) == YOLK_OK)
        FUZZ_MUST(base_parse_duration_ms("time",
                                         base_format_duration_ms(value, shown, sizeof(shown)), 1,
                                         &again) == YOLK_OK &&
                  again == value);
    if (base_parse_u64("count", text, &value) == YOLK_OK) {
        snprintf(shown, sizeof(shown), "%llu", (unsigned long long)value);
        FUZZ_MUST(base_parse_u64("count", shown, &again) == YOLK_OK && again == value);
    }
    if (base_parse_ratio("ratio", text, &ratio) == YOLK_OK)
        FUZZ_MUST(isfinite(ratio) && ratio >= 0 && ratio <= 1);
    if (base_parse_bool("switch", text, &boolean) == YOLK_OK)
        FUZZ_MUST(boolean == true || boolean == false);
}

/* Every number that was taken is within its bounds. */
static void check_bounds(const struct base_config *config)
{
    for (unsigned i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info(i);
        if (info->type != CONFIG_U64 && info->type != CONFIG_SIZE && info->type != CONFIG_DURATION)
            continue;
        if (!base_config_given(config, i))
            continue;
        FUZZ_MUST(base_config_u64(config, i) >= info->minimum);
        FUZZ_MUST(info->maximum == 0 || base_config_u64(config, i) <= info->maximum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = fuzz_text(data + 1, size - 1), *rest = text;
    char *lines[LINES_MAX + 1];
    int count = 0;
    while (count < LINES_MAX && rest != NULL)
        lines[count++] = strsep(&rest, "\n");
    lines[count] = NULL;
    check_units(lines[0]);
    struct base_config config;
    FUZZ_MUST(base_config_init(&config, 1u << (data[0] & 15)) == YOLK_OK);
    base_error_clear();
    int status = data[0] & 128 ? base_config_environment(&config, lines)
                               : base_config_args(&config, count, lines);
    if (status == YOLK_OK)
        status = base_config_check(&config);
    if (status == YOLK_OK)
        check_bounds(&config);
    else
        FUZZ_MUST(yolk_last_error()[0] != '\0');
    base_config_free(&config);
    free(text);
    return 0;
}
