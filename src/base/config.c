/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#define LOG_ROOM "config"
#include "base/log.h"
#include "base/units.h"

#define MAX_NAME 128

static bool same_name(const char *a, const char *b, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char left = a[i] == '_' ? '-' : a[i];
        if (left != b[i] || left == '\0' || left == '|')
            return false;
    }
    return b[size] == '\0' || b[size] == '|';
}

static bool is_alias(const char *name, const char *aliases, size_t size)
{
    for (; aliases != NULL; aliases = strchr(aliases, '|')) {
        if (*aliases == '|')
            aliases++;
        if (same_name(name, aliases, size))
            return true;
    }
    return false;
}

/* ---- one value ---- */

static bool is_choice(const struct base_setting_info *info, const char *text)
{
    size_t size = strlen(text);
    for (const char *p = info->choices; p != NULL; p = strchr(p, '|')) {
        if (*p == '|')
            p++;
        int differs = info->any_case ? strncasecmp(p, text, size) : strncmp(p, text, size);
        if (differs == 0 && (p[size] == '|' || p[size] == '\0'))
            return true;
    }
    return false;
}

static int check_json(const char *name, const char *text)
{
    struct base_json *root;
    if (text[0] == '\0')
        return YOLK_OK;
    int status = base_json_parse(name, text, strlen(text), &root);
    if (status != YOLK_OK)
        return status;
    enum base_json_type type = root->type;
    base_json_free(root);
    return type == BASE_JSON_ARRAY || type == BASE_JSON_OBJECT
               ? YOLK_OK
               : base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": must be an array or an object", name,
                           text);
}

static void format_bound(const struct base_setting_info *info, uint64_t bound, char *text,
                         size_t size)
{
    if (info->type == CONFIG_SIZE)
        base_format_size(bound, text, size);
    else if (info->type == CONFIG_DURATION)
        base_format_duration_ms(bound, text, size);
    else
        snprintf(text, size, "%llu", (unsigned long long)bound);
}

/* kind: "" or what the value has to be besides, with a space behind it. */
static int out_of_bounds(const struct base_setting_info *info, const char *name, const char *text,
                         const char *kind)
{
    char low[32];
    char high[32];
    format_bound(info, info->minimum, low, sizeof(low));
    if (info->maximum == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": must be %sat least %s", name, text,
                         kind, low);
    format_bound(info, info->maximum, high, sizeof(high));
    return base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": must be %sfrom %s to %s", name, text, kind,
                     low, high);
}

static int check_bounds(const struct base_setting_info *info, const char *name, const char *text,
                        uint64_t number)
{
    return number >= info->minimum && (info->maximum == 0 || number <= info->maximum)
               ? YOLK_OK
               : out_of_bounds(info, name, text, "");
}

static int parse_value(const struct base_setting_info *info, const char *name, const char *text,
                       uint64_t scale, struct base_config_value *value)
{
    int status = YOLK_OK;
    switch (info->type) {
    case CONFIG_STRING:
        if (info->choices != NULL && !is_choice(info, text))
            status = base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": must be one of %s", name, text,
                               info->choices);
        else if (info->never_empty && text[0] == '\0')
            status = base_fail(YOLK_ERR_CONFIG, 0, "%s: \"\": must be %s", name, info->value_name);
        return status;
    case CONFIG_JSON:
        return check_json(name, text);
    case CONFIG_BOOL:
        return base_parse_bool(name, text, &value->boolean);
    case CONFIG_RATIO:
        return base_parse_ratio(name, text, &value->ratio);
    case CONFIG_U64:
        status = base_parse_u64(name, text, &value->number);
        if (status != YOLK_OK)
            status = out_of_bounds(info, name, text, "a whole number ");
        break;
    case CONFIG_SIZE:
        status = base_parse_size(name, text, &value->number);
        break;
    case CONFIG_DURATION:
        status = base_parse_duration_ms(name, text, scale, &value->number);
        break;
    }
    if (status != YOLK_OK)
        return status;
    return check_bounds(info, name, text, value->number);
}

/* Parses also what a stronger origin has set already: a wrong value is an error wherever it stands.
 */
static int take(struct base_config *config, const struct base_setting_info *info, const char *name,
                const char *text, uint64_t scale, enum base_config_origin origin)
{
    struct base_config_value *old = &config->values[info->id];
    struct base_config_value value = {.origin = origin};
    int status = parse_value(info, name, text, scale, &value);
    if (status != YOLK_OK)
        return status;
    if (old->origin > origin)
        return YOLK_OK;
    bool joined = info->repeats && old->origin == origin;
    size_t size = strlen(text) + 1 + (joined ? strlen(old->text) + 1 : 0);
    value.text = base_malloc(size);
    if (value.text == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the setting %s", name);
    snprintf(value.text, size, "%s%s%s", joined ? old->text : "", joined ? "\n" : "", text);
    free(old->text);
    *old = value;
    return YOLK_OK;
}

int base_config_init(struct base_config *config, unsigned commands)
{
    *config = (struct base_config){.commands = commands};
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        const char *text = base_setting_fallback(info);
        int status = parse_value(info, info->flag, text, 1, &config->values[i]);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

void base_config_free(struct base_config *config)
{
    for (int i = 0; i < SET_COUNT; i++)
        free(config->values[i].text);
    free(config->positional);
    *config = (struct base_config){0};
}

/* ---- by name ---- */

struct match {
    const struct base_setting_info *info;
    uint64_t scale;
};

static bool find_name(const char *name, size_t size, unsigned commands, struct match *match)
{
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        bool alias = is_alias(name, info->alias_flag, size);
        if ((info->commands & commands) == 0 || (!alias && !same_name(name, info->flag, size)))
            continue;
        match->info = info;
        match->scale = alias && info->alias_scale != 0 ? info->alias_scale : 1;
        return true;
    }
    return false;
}

static bool find_letter(char letter, unsigned commands, struct match *match)
{
    for (int i = 0; i < SET_COUNT; i++) {
        const struct base_setting_info *info = base_setting_info((enum base_setting)i);
        if (info->letter != letter || (info->commands & commands) == 0)
            continue;
        *match = (struct match){info, 1};
        return true;
    }
    return false;
}

int base_config_set(struct base_config *config, enum base_setting setting, const char *name,
                    const char *text, uint64_t scale, enum base_config_origin origin)
{
    return take(config, base_setting_info(setting), name, text, scale, origin);
}

const struct base_setting_info *base_config_find(const char *flag, unsigned commands)
{
    struct match match;
    return find_name(flag, strlen(flag), commands, &match) ? match.info : NULL;
}

int base_config_file_pair(struct base_config *config, const char *key, const char *value,
                          const char *where)
{
    struct match match;
    if (!find_name(key, strlen(key), config->commands, &match)) {
        if (find_name(key, strlen(key), ~0u, &match))
            return YOLK_OK;
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: unknown setting \"%.64s\"", where, key);
    }
    if (match.info->argument_only || match.info->id == SET_CONFIG)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\" is a flag only, not for a file", where,
                         key);
    char name[MAX_NAME];
    snprintf(name, sizeof(name), "%s: %.64s", where, key);
    return take(config, match.info, name, value, match.scale, ORIGIN_FILE);
}

static int add_positional(struct base_config *config, const char *text)
{
    if (config->positional_count >= CONFIG_MAX_POSITIONAL)
        return base_fail(YOLK_ERR_CONFIG, 0, "more than %d arguments", CONFIG_MAX_POSITIONAL);
    if (config->positional_count % 16 == 0) {
        const char **more = base_realloc(config->positional, (config->positional_count + 16) *
                                                                 sizeof(*config->positional));
        if (more == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the arguments");
        config->positional = more;
    }
    config->positional[config->positional_count++] = text;
    return YOLK_OK;
}

/* Takes argv[*at], a flag, and its value if that is the next argument; leaves *at on the last one
 * used. */
static int take_flag(struct base_config *config, int argc, char *const *argv, int *at)
{
    const char *argument = argv[*at];
    const char *equals = strchr(argument, '=');
    size_t size = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    struct match match;
    bool found;
    bool negated = false;
    if (argument[1] == '-') {
        found = find_name(argument + 2, size - 2, config->commands, &match);
        if (!found && size > 5 && strncmp(argument, "--no-", 5) == 0 && equals == NULL) {
            found = find_name(argument + 5, size - 5, config->commands, &match) &&
                    match.info->type == CONFIG_BOOL;
            negated = true;
        }
    } else {
        found = size == 2 && find_letter(argument[1], config->commands, &match);
    }
    if (!found)
        return base_fail(YOLK_ERR_CONFIG, 0, "unknown flag %.*s", size < 64 ? (int)size : 64,
                         argument);
    char name[MAX_NAME];
    snprintf(name, sizeof(name), "%.*s", (int)size, argument);
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (value == NULL && match.info->type == CONFIG_BOOL)
        value = negated ? "false" : "true";
    if (value == NULL) {
        if (*at + 1 >= argc)
            return base_fail(YOLK_ERR_CONFIG, 0, "%s needs a value: %s", name,
                             match.info->value_name);
        value = argv[++*at];
    }
    return take(config, match.info, name, value, match.scale, ORIGIN_ARGUMENT);
}

int base_config_args(struct base_config *config, int argc, char *const *argv)
{
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        int status;
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
            continue;
        }
        if (flags && argv[i][0] == '-' && argv[i][1] != '\0')
            status = take_flag(config, argc, argv, &i);
        else
            status = add_positional(config, argv[i]);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_OK;
}

/* ---- environment ---- */

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_variable(const char *name, const char *entry, size_t size)
{
    return strlen(name) == size && strncmp(name, entry, size) == 0;
}

/* One of "A|B". */
static bool is_upstream_variable(const char *names, const char *entry, size_t size)
{
    while (names != NULL && *names != '\0') {
        size_t length = strcspn(names, "|");
        if (length == size && strncmp(names, entry, size) == 0)
            return true;
        names += length + (names[length] == '|');
    }
    return false;
}

static bool is_set(const char *variable, char *const *environment)
{
    size_t size = strlen(variable);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, variable, size) == 0 && (*environment)[size] == '=')
            return true;
    }
    return false;
}

/* Takes the variable if it is this row's; the own name wins over upstream's. */
static int take_variable(struct base_config *config, const struct base_setting_info *info,
                         const char *entry, size_t size, char *const *environment, bool *known)
{
    char variable[SETTING_VARIABLE_MAX];
    bool own = is_variable(base_setting_variable(info, variable), entry, size);
    if (!own && !is_upstream_variable(info->alias_environment, entry, size))
        return YOLK_OK;
    *known = true;
    if ((info->commands & config->commands) == 0 || (!own && is_set(variable, environment)))
        return YOLK_OK;
    /* Upstream's, set to nothing, is not set, unless a text may be empty. */
    if (!own && info->type != CONFIG_STRING && entry[size + 1] == '\0')
        return YOLK_OK;
    char name[MAX_NAME];
    snprintf(name, sizeof(name), "%.*s", (int)size, entry);
    return take(config, info, name, entry + size + 1, own ? 1 : info->alias_scale,
                ORIGIN_ENVIRONMENT);
}

/* Adds a name to those that mean nothing. */
static void add_unknown(char *unknown, size_t room, const char *name, size_t size)
{
    size_t used = strlen(unknown);
    (void)snprintf(unknown + used, room - used, "%s%.*s", used != 0 ? ", " : "", (int)size, name);
}

/* A variable of upstream's that is no setting's. */
static void tell_of(const struct base_config *config, const char *entry, size_t size, char *unknown,
                    size_t room)
{
    const struct base_setting_ignored *row =
        (config->commands & COMMAND_LIBRARY) != 0 ? base_setting_ignored(entry, size, true) : NULL;
    if (row == NULL)
        add_unknown(unknown, room, entry, size);
    else if (!row->acts && !config->quiet)
        log_warn("%.*s has no effect: %s", (int)size, entry, row->why);
}

/* By how many letters left out, added or changed the names differ; more than two: 3. */
static unsigned letters_apart(const char *a, size_t a_size, const char *b, size_t b_size)
{
    enum { MOST = 3 };
    unsigned row[SETTING_VARIABLE_MAX + 1];
    if (a_size > b_size + 2 || b_size > a_size + 2 || b_size > SETTING_VARIABLE_MAX)
        return MOST;
    for (size_t k = 0; k <= b_size; k++)
        row[k] = (unsigned)k;
    for (size_t i = 1; i <= a_size; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t k = 1; k <= b_size; k++) {
            unsigned above = row[k], best = diagonal + (a[i - 1] != b[k - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[k - 1] + 1 < best)
                best = row[k - 1] + 1;
            diagonal = above;
            row[k] = best;
        }
    }
    return row[b_size] < MOST ? row[b_size] : MOST;
}

/* YOLK_* that mean nothing here may belong to scripts and tests; but what is almost the name of a
 * setting was meant to be it. */
static void tell_of_slip(const char *entry, size_t size)
{
    char variable[SETTING_VARIABLE_MAX];
    for (int i = 0; i < SET_COUNT; i++) {
        const char *name = base_setting_variable(base_setting_info((enum base_setting)i), variable);
        size_t length = strlen(name);
        /* Of short names two letters are too many. */
        if (letters_apart(entry, size, name, length) > (length >= 12 ? 2u : 1u))
            continue;
        log_warn("%.*s is no setting and is ignored: is %s meant?", (int)size, entry, name);
        return;
    }
}

int base_config_environment(struct base_config *config, char *const *environment)
{
    char unknown[512] = "";
    for (char *const *entry = environment; *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        bool upstream = has_prefix(*entry, "MOONCAKE_") || has_prefix(*entry, "MC_") ||
                        has_prefix(*entry, "TENT_");
        if (equals == NULL || (!upstream && !has_prefix(*entry, "YOLK_")))
            continue;
        bool known = false;
        for (int i = 0; i < SET_COUNT; i++) {
            int status = take_variable(config, base_setting_info((enum base_setting)i), *entry,
                                       (size_t)(equals - *entry), environment, &known);
            if (status != YOLK_OK)
                return status;
        }
        if (!known && upstream)
            tell_of(config, *entry, (size_t)(equals - *entry), unknown, sizeof(unknown));
        else if (!known && !config->quiet)
            tell_of_slip(*entry, (size_t)(equals - *entry));
    }
    if (unknown[0] != '\0' && !config->quiet)
        log_warn("these environment variables mean nothing here and are ignored: %s", unknown);
    return YOLK_OK;
}

/* ---- rules between settings ---- */

/* What a plug-in calls its transport is known when it is loaded. */
static bool is_transport(const struct base_config *config)
{
    static const char *const built_in[] = {"auto", "shm", "tcp", "loop", "nvlink"};
    const char *name = base_config_string(config, SET_TRANSPORT);
    for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
        if (strcmp(name, built_in[i]) == 0)
            return true;
    return base_config_string(config, SET_PLUGIN_PATHS)[0] != '\0';
}

static int check_eviction(const struct base_config *config, enum base_setting ratio,
                          enum base_setting high)
{
    if (base_config_ratio(config, high) >= base_config_ratio(config, ratio))
        return YOLK_OK;
    return base_fail(YOLK_ERR_CONFIG, 0, "%s is %g: must not exceed %s, which is %g",
                     base_setting_info(ratio)->flag, base_config_ratio(config, ratio),
                     base_setting_info(high)->flag, base_config_ratio(config, high));
}

int base_config_check(const struct base_config *config)
{
    if (!is_transport(config))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "--transport: \"%.64s\": must be one of auto|shm|tcp|loop|nvlink, "
                         "without --plugin-paths",
                         base_config_string(config, SET_TRANSPORT));
    if (base_config_u64(config, SET_HEARTBEAT) * 2 > base_config_u64(config, SET_SESSION_TTL))
        return base_fail(
            YOLK_ERR_CONFIG, 0,
            "session-ttl is %llu ms: must be at least twice the heartbeat, %llu ms, or "
            "one lost message ends a session",
            (unsigned long long)base_config_u64(config, SET_SESSION_TTL),
            (unsigned long long)base_config_u64(config, SET_HEARTBEAT));
    int status = check_eviction(config, SET_EVICTION_RATIO, SET_EVICTION_HIGH);
    return status == YOLK_OK ? check_eviction(config, SET_GDS_EVICTION_RATIO, SET_GDS_EVICTION_HIGH)
                             : status;
}

/* ---- reading ---- */

const char *base_config_string(const struct base_config *config, enum base_setting setting)
{
    const char *text = config->values[setting].text;
    return text != NULL ? text : base_setting_fallback(base_setting_info(setting));
}

uint64_t base_config_u64(const struct base_config *config, enum base_setting setting)
{
    return config->values[setting].number;
}

bool base_config_bool(const struct base_config *config, enum base_setting setting)
{
    return config->values[setting].boolean;
}

double base_config_ratio(const struct base_config *config, enum base_setting setting)
{
    return config->values[setting].ratio;
}

bool base_config_given(const struct base_config *config, enum base_setting setting)
{
    return config->values[setting].origin != ORIGIN_DEFAULT;
}

enum base_config_origin base_config_origin(const struct base_config *config,
                                           enum base_setting setting)
{
    return config->values[setting].origin;
}
