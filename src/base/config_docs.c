/* SPDX-License-Identifier: Apache-2.0 */
/* --help, the Markdown page and what a program says at its start, from the table of settings. */
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/error.h"
#define LOG_ROOM "config"
#include "base/log.h"

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
    {COMMAND_CONFIG, "config"},
    {COMMAND_BENCH, "bench ssd, bench policy"},
    {COMMAND_ROWS, "bench"},
    {COMMAND_FSCK, "fsck"},
    {COMMAND_TRANSFERS, "bench engine"},
    {COMMAND_GPU, "bench gpu, bench gds"},
    {COMMAND_MUTANTS, "yolk-sim"},
    {COMMAND_LIBRARY, "engine"},
};
#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

/* The flag's other names; what is a path in a configuration is no flag. */
static int also_called(struct base_buf *text, const char *names)
{
    if (names == NULL || strchr(names, '/') != NULL)
        return YOLK_OK;
    int status = base_buf_printf(text, " Also");
    while (*names != '\0' && status == YOLK_OK) {
        size_t size = strcspn(names, "|");
        bool last = names[size] == '\0';
        status = base_buf_printf(text, " --%.*s%s", (int)size, names, last ? "." : ",");
        names += size + !last;
    }
    return status;
}

int base_config_help(unsigned commands, struct base_buf *text)
{
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        if ((info->commands & commands) == 0)
            continue;
        const char *fallback = base_setting_fallback(info);
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
        if (status == YOLK_OK)
            status = also_called(text, info->alias_flag);
        if (status == YOLK_OK && info->type != CONFIG_BOOL && fallback[0] != '\0')
            status = base_buf_printf(text, " [%s]", fallback);
        if (status == YOLK_OK && info->type == CONFIG_BOOL && strcmp(fallback, "true") == 0)
            status = base_buf_printf(text, " [on]");
        if (status == YOLK_OK)
            status = base_buf_append(text, "\n", 1);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

/* The names of these commands, or those of all. */
static void list_commands(unsigned commands, char *out, size_t size)
{
    size_t used = 0;
    bool all = (commands & COMMAND_ALL) == COMMAND_ALL;
    if (all)
        used = (size_t)snprintf(out, size, "every command");
    for (size_t i = 0; i < COMMAND_COUNT && used < size; i++) {
        unsigned bit = COMMANDS[i].command;
        if ((commands & bit) != 0 && !(all && (bit & COMMAND_ALL) != 0))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used != 0 ? ", " : "",
                                     COMMANDS[i].name);
    }
}

/* "a|b" as "`PREFIXa` `PREFIXb`"; empty for NULL. */
static int quote_each(struct base_buf *text, const char *prefix, const char *names)
{
    int status = YOLK_OK;
    while (names != NULL && *names != '\0' && status == YOLK_OK) {
        size_t size = strcspn(names, "|");
        status = base_buf_printf(text, "`%s%.*s` ", prefix, (int)size, names);
        names += size + (names[size] == '|');
    }
    return status;
}

static const char *const TYPES[] = {"text", "bool", "number", "size", "time", "ratio", "JSON"};

static int markdown_row(const struct base_setting_info *info, struct base_buf *text)
{
    char commands[128], variable[SETTING_VARIABLE_MAX];
    list_commands(info->commands, commands, sizeof(commands));
    int status = base_buf_printf(text, "| `--%s` | %s | ", info->flag, TYPES[info->type]);
    if (status == YOLK_OK)
        status = quote_each(text, "", base_setting_fallback(info));
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| ");
    if (status == YOLK_OK)
        status = quote_each(text, "", base_setting_variable(info, variable));
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| ");
    if (status == YOLK_OK)
        status = quote_each(text, "", info->alias_environment);
    if (status == YOLK_OK)
        status = quote_each(text, "--", info->alias_flag);
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| %s | %s ", commands, info->doc);
    if (status == YOLK_OK && info->choices != NULL)
        status = base_buf_printf(text, "One of: ");
    if (status == YOLK_OK)
        status = quote_each(text, "", info->choices);
    return status == YOLK_OK ? base_buf_printf(text, "|\n") : status;
}

/* The names of '|' "names" with the '_' that stand in a configuration. */
static int quote_keys(struct base_buf *text, const char *names)
{
    char keys[512];
    snprintf(keys, sizeof(keys), "%s", names != NULL ? names : "");
    for (char *p = keys; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p;
    return quote_each(text, "", keys);
}

static int markdown_engine_row(const struct base_setting_info *info, struct base_buf *text)
{
    char variable[SETTING_VARIABLE_MAX];
    int status = base_buf_printf(text, "| ");
    if (status == YOLK_OK)
        status = quote_keys(text, info->flag);
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| %s | ", TYPES[info->type]);
    if (status == YOLK_OK)
        status = quote_each(text, "", base_setting_fallback(info));
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| ");
    if (status == YOLK_OK)
        status = quote_each(text, "", base_setting_variable(info, variable));
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| ");
    if (status == YOLK_OK)
        status = quote_each(text, "", info->alias_environment);
    if (status == YOLK_OK)
        status = quote_keys(text, info->alias_flag);
    if (status == YOLK_OK)
        status = base_buf_printf(text, "| %s ", info->doc);
    if (status == YOLK_OK && info->choices != NULL)
        status = base_buf_printf(text, "One of: ");
    if (status == YOLK_OK)
        status = quote_each(text, "", info->choices);
    return status == YOLK_OK ? base_buf_printf(text, "|\n") : status;
}

static int markdown_engine(struct base_buf *text)
{
    int status = base_buf_printf(
        text,
        "\n## The transfer engine's\n\n"
        "For `tent_*` ([transfer.md](transfer.md)), and by the environment for "
        "`libtransfer_engine.so` and `mooncake.engine` too: the keys of\n"
        "TENT's configuration, a JSON object, nested or with whole paths as names. Precedence: "
        "environment, `MC_TENT_CONF`,\n"
        "`tent_set_config`, the file of `tent_load_config_from_file`, default. `--log-level` "
        "and `--secret-file` hold too, as `log_level` and\n"
        "`secret_file`. A key that is unknown is a warning; a value that does not parse is an "
        "error, and no engine is made.\n\n"
        "| key | type | default | environment | other names | meaning |\n"
        "|---|---|---|---|---|---|\n");
    for (int i = SET_ENGINE_FIRST; i < SET_COUNT && status == YOLK_OK; i++)
        status = markdown_engine_row(base_setting_info((enum base_setting)i), text);
    return status;
}

static int markdown_ignored(struct base_buf *text)
{
    int status = base_buf_printf(text, "\nWhat else of TENT's and the older engine's is known:\n\n"
                                       "| key | environment | effect |\n|---|---|---|\n");
    const struct base_setting_ignored *row;
    for (size_t i = 0; status == YOLK_OK && (row = base_setting_ignored_at(i)) != NULL; i++) {
        status = base_buf_printf(text, "| ");
        if (status == YOLK_OK)
            status = quote_keys(text, row->key);
        if (status == YOLK_OK)
            status = base_buf_printf(text, "| ");
        if (status == YOLK_OK)
            status = quote_each(text, "", row->environment);
        if (status == YOLK_OK)
            status = base_buf_printf(text, "| %s%s |\n", row->acts ? "" : "None: ", row->why);
    }
    return status;
}

int base_config_markdown(struct base_buf *text)
{
    int status = base_buf_printf(
        text,
        "# Settings\n\n"
        "Precedence: argument, environment, file (`--config`), default. In a file the key is the "
        "flag without its\n"
        "dashes; `_` and `-` are the same there. What has no environment variable is a flag only. "
        "Sizes take KiB, MiB,\n"
        "GiB, TiB (and decimal KB, MB, GB, TB), times ms, s, m, h; a plain number is bytes or "
        "milliseconds. An unknown\n"
        "flag or key, or a value that does not parse, is an error; what the environment or a file "
        "says of settings that\n"
        "a command does not take is not looked at. This page is made from the tables in "
        "`src/base/settings*.c`.\n\n"
        "| flag | type | default | environment | other names | commands | meaning |\n"
        "|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < SET_ENGINE_FIRST && status == YOLK_OK; i++)
        status = markdown_row(base_setting_info((enum base_setting)i), text);
    if (status == YOLK_OK)
        status = markdown_engine(text);
    return status == YOLK_OK ? markdown_ignored(text) : status;
}

static const char *const ORIGINS[] = {"default", "file", "environment", "argument"};

static bool is_said(const struct base_config *config, const struct base_setting_info *info)
{
    return (info->commands & config->commands) != 0 && info->id != SET_HELP;
}

static const char *shown(const struct base_config *config, const struct base_setting_info *info)
{
    return info->hidden && base_config_given(config, info->id)
               ? "(hidden)"
               : base_config_string(config, info->id);
}

/* A label's value, escaped as Prometheus has it. */
static int append_label(struct base_buf *text, const char *value)
{
    int status = YOLK_OK;
    for (; *value != '\0' && status == YOLK_OK; value++) {
        if (*value == '\n')
            status = base_buf_append(text, "\\n", 2);
        else if (*value == '"' || *value == '\\')
            status = base_buf_printf(text, "\\%c", *value);
        else
            status = base_buf_append(text, value, 1);
    }
    return status;
}

int base_config_metrics(const struct base_config *config, struct base_buf *text)
{
    int status = base_buf_printf(text, "# HELP yolk_setting_info a setting's value in force, and "
                                       "where it came from\n# TYPE yolk_setting_info gauge\n");
    for (int i = 0; i < SET_COUNT && status == YOLK_OK; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        if (!is_said(config, info))
            continue;
        status = base_buf_printf(text, "yolk_setting_info{setting=\"%s\",value=\"", info->flag);
        if (status == YOLK_OK)
            status = append_label(text, shown(config, info));
        if (status == YOLK_OK)
            status = base_buf_printf(text, "\",origin=\"%s\"} 1\n",
                                     ORIGINS[base_config_origin(config, info->id)]);
    }
    return status;
}

void base_config_log(const struct base_config *config)
{
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        if (!is_said(config, info))
            continue;
        log_info("setting %s = %s (%s)", info->flag, shown(config, info),
                 ORIGINS[base_config_origin(config, info->id)]);
    }
}
