/* SPDX-License-Identifier: Apache-2.0 */
/* --help and the Markdown page, both from the table of settings. */
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/error.h"

static const struct {
    enum base_command command;
    const char *name;
} COMMANDS[] = {
    {COMMAND_MASTER, "master"},
    {COMMAND_NODE, "node"},
    {COMMAND_CLIENT, "put, get, exist, ls, rm, stat"},
    {COMMAND_REPLAY, "replay"},
    {COMMAND_DEMO, "demo"},
    {COMMAND_SIM, "sim"},
    {COMMAND_DOCTOR, "doctor"},
    {COMMAND_STAT, "stat"},
    {COMMAND_LS, "ls"},
    {COMMAND_RM, "rm"},
};

static const char *default_text(const struct base_setting_info *info)
{
    return info->fallback != NULL ? info->fallback : "";
}

int base_config_help(unsigned commands, struct base_buf *text)
{
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        if ((info->commands & commands) == 0)
            continue;
        char flag[96];
        char letter[8] = "";
        if (info->letter != 0)
            snprintf(letter, sizeof(letter), "-%c, ", info->letter);
        snprintf(flag, sizeof(flag), "%s--%s%s%s", letter, info->flag,
                 info->value_name != NULL ? " " : "",
                 info->value_name != NULL ? info->value_name : "");
        int status = base_buf_printf(text, "  %-40s %s", flag, info->doc);
        if (status == YOLK_OK && info->choices != NULL)
            status = base_buf_printf(text, " One of %s.", info->choices);
        if (status == YOLK_OK && info->type != CONFIG_BOOL && default_text(info)[0] != '\0')
            status = base_buf_printf(text, " [%s]", default_text(info));
        if (status == YOLK_OK && info->type == CONFIG_BOOL &&
            strcmp(default_text(info), "true") == 0)
            status = base_buf_printf(text, " [on; --no-%s]", info->flag);
        if (status == YOLK_OK)
            status = base_buf_append(text, "\n", 1);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

static int markdown_row(const struct base_setting_info *info, struct base_buf *text)
{
    static const char *const TYPES[] = {"text", "bool", "number", "size", "time", "ratio"};
    char commands[128] = "every command";
    if (info->commands != COMMAND_ALL) {
        size_t used = 0;
        for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++) {
            if ((info->commands & COMMANDS[i].command) != 0)
                used += (size_t)snprintf(commands + used, sizeof(commands) - used, "%s%s",
                                         used != 0 ? ", " : "", COMMANDS[i].name);
        }
    }
    /* The bars of a choice would end the cell. */
    char choices[128] = "";
    if (info->choices != NULL) {
        snprintf(choices, sizeof(choices), " One of: %s.", info->choices);
        for (char *p = choices; *p != '\0'; p++) {
            if (*p == '|')
                *p = '/';
        }
    }
    const char *fallback = default_text(info);
    return base_buf_printf(
        text, "| `--%s` | %s | %s%s%s | %s%s%s | %s%s%s%s%s%s | %s | %s%s |\n", info->flag,
        TYPES[info->type], fallback[0] != '\0' ? "`" : "", fallback, fallback[0] != '\0' ? "`" : "",
        info->environment != NULL ? "`" : "", info->environment != NULL ? info->environment : "",
        info->environment != NULL ? "`" : "", info->alias_environment != NULL ? "`" : "",
        info->alias_environment != NULL ? info->alias_environment : "",
        info->alias_environment != NULL ? "` " : "", info->alias_flag != NULL ? "`--" : "",
        info->alias_flag != NULL ? info->alias_flag : "", info->alias_flag != NULL ? "`" : "",
        commands, info->doc, choices);
}

int base_config_markdown(struct base_buf *text)
{
    int status = base_buf_printf(
        text, "# Settings\n\n"
              "Precedence: argument, environment, file, default. In a file the key is the flag "
              "without its\n"
              "dashes and with `_` for `-`. Sizes take KiB, MiB, GiB, TiB (and decimal KB, MB, GB, "
              "TB), times\n"
              "ms, s, m, h; a plain number is bytes or milliseconds. An unknown flag or key, or a "
              "value that\n"
              "does not parse, is an error. This page is made from the table in "
              "`src/base/settings.c`.\n\n"
              "| flag | type | default | environment | upstream's names | commands | meaning |\n"
              "|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < SET_COUNT && status == YOLK_OK; i++)
        status = markdown_row(base_setting_info((enum base_setting)i), text);
    return status;
}
