/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/upstream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/http.h"
#include "admin/metadata.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/address.h"
#include "cli/config_file.h"
#include "cli/gflags.h"
#include "cli/node_http.h"

enum { VALUE_MAX = 4096, ENVIRONMENT_MAX = 4096 };

static const char OFFLOAD_FOLDER[] = "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH";
static const char OFFLOAD_SIZE[] = "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES";

/* What was given for one row of the table. */
struct given {
    char *value; /* NULL: nothing */
    char *where;
    enum base_config_origin origin;
};

struct upstream {
    const struct cli_command *command;
    enum upstream_program program;
    struct base_config *config;
    struct given *given;
};

/* ---- reading ---- */

static int keep(struct upstream *up, const struct upstream_flag *flag, const char *value,
                const char *where, enum base_config_origin origin)
{
    char text[VALUE_MAX];
    struct given *given = &up->given[flag - upstream_flags];
    int status = upstream_flag_value(flag, where, value, text, sizeof(text));
    if (status != YOLK_OK || given->origin > origin)
        return status;
    char *kept = strdup(text), *place = strdup(where);
    if (!kept || !place) {
        free(kept);
        free(place);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %s", where);
    }
    free(given->value);
    free(given->where);
    *given = (struct given){kept, place, origin};
    return YOLK_OK;
}

static enum gflags_kind flag_kind(void *self, const char *name)
{
    const struct upstream *up = self;
    const struct upstream_flag *flag = upstream_flag_find(name, up->program);
    if (flag)
        return flag->type == UPSTREAM_BOOL ? GFLAGS_BOOL : GFLAGS_VALUE;
    const struct base_setting_info *own = base_config_find(name, up->command->commands);
    if (!own)
        return GFLAGS_UNKNOWN;
    return own->type == CONFIG_BOOL ? GFLAGS_BOOL : GFLAGS_VALUE;
}

static int flag_take(void *self, const char *name, const char *value, const char *where)
{
    struct upstream *up = self;
    const struct upstream_flag *flag = upstream_flag_find(name, up->program);
    if (flag)
        return keep(up, flag, value, where, ORIGIN_ARGUMENT);
    const struct base_setting_info *own = base_config_find(name, up->command->commands);
    return base_config_set(up->config, own->id, where, value, 0, ORIGIN_ARGUMENT);
}

static int flag_unknown(void *self, const char *name, const char *where)
{
    const struct upstream *up = self;
    char names[256];
    upstream_flag_suggest(name, up->program, up->command->commands, names, sizeof(names));
    return base_fail(YOLK_ERR_CONFIG, 0, "unknown flag %s%s%s", where,
                     names[0] ? "; did you mean " : "", names);
}

static int file_pair(void *self, const char *key, const char *value, const char *where)
{
    struct upstream *up = self;
    char name[GFLAGS_NAME_MAX], place[VALUE_MAX];
    snprintf(name, sizeof(name), "%s", key);
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : *p;
    const struct upstream_flag *flag = upstream_flag_find(name, up->program);
    snprintf(place, sizeof(place), "%.1024s: %.64s", where, key);
    if (flag && strcmp(name, "config_path") == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: a configuration names no other one", place);
    if (flag)
        return keep(up, flag, value, place, ORIGIN_FILE);
    if (base_config_find(name, ~0u))
        return base_config_file_pair(up->config, key, value, where);
    char names[256];
    upstream_flag_suggest(name, up->program, up->command->commands, names, sizeof(names));
    return base_fail(YOLK_ERR_CONFIG, 0, "%s is unknown%s%s", place,
                     names[0] ? "; did you mean " : "", names);
}

static const struct given *given(const struct upstream *up, const char *name)
{
    static const struct given nothing = {NULL, NULL, ORIGIN_DEFAULT};
    const struct upstream_flag *flag = upstream_flag_find(name, up->program);
    return flag ? &up->given[flag - upstream_flags] : &nothing;
}

/* What is in force: as given, or upstream's default. */
static const char *value_of(const struct upstream *up, const char *name)
{
    const char *value = given(up, name)->value;
    return value ? value : upstream_flag_find(name, up->program)->fallback;
}

static bool is_on(const struct upstream *up, const char *name)
{
    return strcmp(value_of(up, name), "true") == 0;
}

/* Upstream's log library takes its flags from the environment too, as GLOG_v=1. */
static int read_glog(struct upstream *up)
{
    int status = YOLK_OK;
    for (size_t i = 0; i < upstream_flag_count && status == YOLK_OK; i++) {
        const struct upstream_flag *flag = &upstream_flags[i];
        char variable[GFLAGS_NAME_MAX + 8];
        snprintf(variable, sizeof(variable), "GLOG_%s", flag->name);
        const char *value = flag->programs == UPSTREAM_BOTH ? getenv(variable) : NULL;
        if (value)
            status = keep(up, flag, value, variable, ORIGIN_ENVIRONMENT);
    }
    return status;
}

/* Ours; without what this program itself looks at. */
static int read_environment(struct upstream *up)
{
    char *kept[ENVIRONMENT_MAX + 1];
    size_t count = 0;
    for (char **entry = environ; *entry && count < ENVIRONMENT_MAX; entry++)
        if (up->program != UPSTREAM_CLIENT ||
            (strncmp(*entry, OFFLOAD_FOLDER, sizeof(OFFLOAD_FOLDER) - 1) != 0 &&
             strncmp(*entry, OFFLOAD_SIZE, sizeof(OFFLOAD_SIZE) - 1) != 0))
            kept[count++] = *entry;
    kept[count] = NULL;
    int status = base_config_environment(up->config, kept);
    return status == YOLK_OK ? read_glog(up) : status;
}

/* ---- from their flags to our settings ---- */

static int set(struct upstream *up, enum base_setting setting, const char *name, const char *text,
               uint64_t scale)
{
    const struct given *from = given(up, name);
    return base_config_set(up->config, setting, from->where ? from->where : name, text, scale,
                           from->origin);
}

static void warn_idle(const struct upstream *up, const struct upstream_flag *flag,
                      const struct given *from)
{
    fprintf(stderr, "%s: warning: %s (%s) has no effect: %s\n", up->command->name, from->where,
            from->value, flag->text);
}

static int apply_rows(struct upstream *up)
{
    int status = YOLK_OK;
    for (size_t i = 0; i < upstream_flag_count && status == YOLK_OK; i++) {
        const struct upstream_flag *flag = &upstream_flags[i];
        const struct given *from = &up->given[i];
        if (!from->value || upstream_flag_is_harmless(flag, from->value))
            continue;
        if (flag->use == UPSTREAM_IDLE)
            warn_idle(up, flag, from);
        else if (flag->use == UPSTREAM_SETS)
            status = base_config_set(up->config, flag->setting, from->where, from->value,
                                     flag->scale, from->origin);
    }
    return status;
}

/* "HOST:PORT" of two flags, for one of our settings; the origin is the stronger one's. */
static int set_address(struct upstream *up, enum base_setting setting, const char *host,
                       const char *port_name, enum base_config_origin origin)
{
    char text[NET_ADDRESS_TEXT_MAX];
    uint64_t port;
    const struct given *from = given(up, port_name);
    const char *where = from->where ? from->where : port_name;
    int status = base_parse_u64(where, value_of(up, port_name), &port);
    if (status == YOLK_OK && port > 65535)
        status = base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%s\": must be from 0 to 65535", where,
                           value_of(up, port_name));
    if (status != YOLK_OK)
        return status;
    address_join(host, port, text, sizeof(text));
    return base_config_set(up->config, setting, where, text, 0, origin);
}

static enum base_config_origin stronger(const struct upstream *up, const char *a, const char *b)
{
    enum base_config_origin left = given(up, a)->origin, right = given(up, b)->origin;
    return left > right ? left : right;
}

static int set_log_level(struct upstream *up)
{
    double v = strtod(value_of(up, "v"), NULL), least = strtod(value_of(up, "minloglevel"), NULL);
    if (v >= 1)
        return set(up, SET_LOG_LEVEL, "v", v >= 2 ? "debug" : "info", 0);
    if (least >= 1)
        return set(up, SET_LOG_LEVEL, "minloglevel", least >= 2 ? "error" : "warn", 0);
    return YOLK_OK;
}

static int set_client_ttl(struct upstream *up)
{
    static const char *const names[] = {"client_ttl", "client_live_ttl_sec",
                                        "client_active_ttl_sec"};
    const char *name = names[0];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !given(up, name)->value; i++)
        name = names[i];
    int status =
        given(up, name)->value ? set(up, SET_SESSION_TTL, name, value_of(up, name), 1000) : YOLK_OK;
    uint64_t ttl_ms = base_config_u64(up->config, SET_SESSION_TTL);
    if (status != YOLK_OK || base_config_given(up->config, SET_HEARTBEAT) ||
        base_config_u64(up->config, SET_HEARTBEAT) * 2 <= ttl_ms)
        return status;
    char text[32];
    snprintf(text, sizeof(text), "%llums", (unsigned long long)(ttl_ms / 5 ? ttl_ms / 5 : 1));
    return base_config_set(up->config, SET_HEARTBEAT, name, text, 0, ORIGIN_DEFAULT);
}

static int set_interface(struct upstream *up)
{
    char host[NET_ADDRESS_TEXT_MAX];
    const char *name = value_of(up, "rpc_interface");
    if (!name[0])
        return YOLK_OK;
    int status = address_of_interface(name, host, sizeof(host));
    if (status != YOLK_OK)
        return base_fail_context(YOLK_ERR_CONFIG, "%s", given(up, "rpc_interface")->where);
    return set(up, SET_LISTEN_HOST, "rpc_interface", host, 0);
}

static int apply_master(struct upstream *up)
{
    int status = set_interface(up);
    if (status == YOLK_OK)
        status = set_address(up, SET_METRICS_LISTEN, value_of(up, "metrics_host"), "metrics_port",
                             stronger(up, "metrics_host", "metrics_port"));
    if (status == YOLK_OK && is_on(up, "enable_http_metadata_server"))
        status = set_address(up, SET_METADATA_LISTEN, value_of(up, "http_metadata_server_host"),
                             "http_metadata_server_port",
                             given(up, "enable_http_metadata_server")->origin);
    return status == YOLK_OK ? set_client_ttl(up) : status;
}

static int set_protocol(struct upstream *up)
{
    const char *protocol = value_of(up, "protocol");
    if (strcmp(protocol, "rdma") == 0) {
        fprintf(stderr,
                "%s: warning: %s rdma: no RDMA device is used, Yolk has no RDMA transport yet: TCP "
                "between machines, shared memory on one\n",
                up->command->name, given(up, "protocol")->where);
        protocol = "auto";
    } else if (strcmp(protocol, "tcp") == 0) {
        protocol = "auto"; /* as upstream, which copies directly on one machine, too */
    } else if (strcmp(protocol, "auto") != 0 && strcmp(protocol, "shm") != 0) {
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: \"%.64s\": must be tcp, rdma, shm or auto",
                         given(up, "protocol")->where, protocol);
    }
    return given(up, "protocol")->value ? set(up, SET_TRANSPORT, "protocol", protocol, 0) : YOLK_OK;
}

static int set_offload(struct upstream *up)
{
    const char *folder = getenv(OFFLOAD_FOLDER), *size = getenv(OFFLOAD_SIZE);
    if (!is_on(up, "enable_offload") || base_config_u64(up->config, SET_SSD) > 0)
        return YOLK_OK; /* --ssd says all of it */
    if (!folder || !folder[0] || !size || !size[0])
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "%s needs %s, a folder on the disk, and %s, how much of it may be used "
                         "(or --ssd-path and --ssd)",
                         given(up, "enable_offload")->where, OFFLOAD_FOLDER, OFFLOAD_SIZE);
    int status = base_config_set(up->config, SET_SSD, OFFLOAD_SIZE, size, 0, ORIGIN_ENVIRONMENT);
    return status == YOLK_OK ? base_config_set(up->config, SET_SSD_PATH, OFFLOAD_FOLDER, folder, 0,
                                               ORIGIN_ENVIRONMENT)
                             : status;
}

static int apply_client(struct upstream *up)
{
    const char *host = value_of(up, "host");
    int status = set_protocol(up);
    if (status == YOLK_OK && host[0] && strcmp(host, "0.0.0.0") != 0 && strcmp(host, "::") != 0)
        status = set(up, SET_HOST, "host", host, 0);
    if (status == YOLK_OK)
        status = set_offload(up);
    if (status == YOLK_OK)
        status = set_address(up, SET_CLIENTS_LISTEN, host, "port", given(up, "port")->origin);
    if (status == YOLK_OK && is_on(up, "enable_http_server"))
        status = set_address(up, SET_HTTP_LISTEN, "0.0.0.0", "http_port",
                             given(up, "enable_http_server")->origin);
    return status;
}

static int set_defaults(struct upstream *up)
{
    static const struct {
        enum upstream_program program;
        enum base_setting setting;
        const char *text;
    } DEFAULTS[] = {
        {UPSTREAM_MASTER, SET_LISTEN, "0.0.0.0:50051"},
        {UPSTREAM_MASTER, SET_EVICTION_HIGH, "0.90"},
        {UPSTREAM_CLIENT, SET_SEGMENT_SIZE, "4GiB"},
    };
    int status = YOLK_OK;
    for (size_t i = 0; i < sizeof(DEFAULTS) / sizeof(DEFAULTS[0]) && status == YOLK_OK; i++)
        if (DEFAULTS[i].program == up->program)
            status = base_config_set(up->config, DEFAULTS[i].setting, "default", DEFAULTS[i].text,
                                     0, ORIGIN_DEFAULT);
    return status;
}

static bool wants_help(const struct upstream *up)
{
    static const char *const names[] = {"help",   "helpfull",  "helpshort",  "helpxml",
                                        "helpon", "helpmatch", "helppackage"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (given(up, names[i])->value && strcmp(value_of(up, names[i]), "false") != 0)
            return true;
    return false;
}

static int read_all(struct upstream *up, int argc, char **argv)
{
    const struct gflags_reader reader = {up->command->name, up, flag_kind, flag_take, flag_unknown};
    int status = set_defaults(up);
    if (status == YOLK_OK)
        status = gflags_read(&reader, argc, argv);
    if (status != YOLK_OK || wants_help(up) || is_on(up, "version"))
        return status;
    if (up->program == UPSTREAM_MASTER && value_of(up, "config_path")[0])
        status = config_file_read(value_of(up, "config_path"), file_pair, up);
    if (status == YOLK_OK)
        status = read_environment(up);
    if (status == YOLK_OK && base_config_string(up->config, SET_CONFIG)[0])
        status = config_file_load(up->config, base_config_string(up->config, SET_CONFIG));
    if (status == YOLK_OK)
        status = set_log_level(up);
    if (status == YOLK_OK)
        status = apply_rows(up);
    if (status == YOLK_OK)
        status = up->program == UPSTREAM_MASTER ? apply_master(up) : apply_client(up);
    return status == YOLK_OK ? base_config_check(up->config) : status;
}

static void print_help(const struct upstream *up)
{
    struct base_buf text;
    base_buf_init(&text, 256 * 1024);
    int status = base_buf_printf(&text,
                                 "%s [FLAGS]\n\n%s\n\nFlags of Mooncake's program of this name, "
                                 "and what comes of them here [upstream's default]:\n\n",
                                 up->command->name, up->command->summary);
    if (status == YOLK_OK)
        status = upstream_flags_help(up->program, &text);
    if (status == YOLK_OK)
        status = base_buf_printf(&text, "\nThose of \"yolk %s\" work too:\n\n",
                                 up->program == UPSTREAM_MASTER ? "master" : "node");
    if (status == YOLK_OK)
        status = base_config_help(up->command->commands, &text);
    if (status == YOLK_OK)
        fwrite(text.data, 1, text.size, stdout);
    base_buf_free(&text);
}

static void forget(struct upstream *up)
{
    for (size_t i = 0; i < upstream_flag_count; i++) {
        free(up->given[i].value);
        free(up->given[i].where);
    }
    free(up->given);
}

bool upstream_parse(const struct cli_command *command, enum upstream_program program, int argc,
                    char **argv, struct base_config *config, int *code)
{
    struct upstream up = {.command = command, .program = program, .config = config};
    up.given = base_calloc(upstream_flag_count, sizeof(*up.given));
    int status = base_config_init(config, command->commands);
    bool go = false;
    if (status == YOLK_OK && !up.given)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the flags");
    if (status == YOLK_OK)
        status = read_all(&up, argc, argv);
    *code = CLI_OK;
    if (status != YOLK_OK)
        *code = cli_usage_error(command, "%s", yolk_last_error());
    else if (wants_help(&up))
        print_help(&up);
    else if (is_on(&up, "version"))
        printf("%s: Yolk %s\n", command->name, YOLK_VERSION);
    else
        go = true;
    if (up.given)
        forget(&up);
    if (go)
        cli_apply_log(config);
    else
        base_config_free(config);
    return go;
}

int cli_mooncake_master(int argc, char **argv)
{
    static const struct cli_command command = {
        "mooncake_master", "", "Runs Yolk's master with the flags of Mooncake's.", COMMAND_MASTER};
    struct base_config config;
    int code;
    return upstream_parse(&command, UPSTREAM_MASTER, argc - 1, argv + 1, &config, &code)
               ? cli_master_run(&command, &config)
               : code;
}

int cli_mooncake_client(int argc, char **argv)
{
    static const struct cli_command command = {
        "mooncake_client", "", "Runs a node of Yolk with the flags of Mooncake's client.",
        COMMAND_NODE};
    struct base_config config;
    int code;
    return upstream_parse(&command, UPSTREAM_CLIENT, argc - 1, argv + 1, &config, &code)
               ? cli_node_run(&command, &config)
               : code;
}

/* ---- docs/programs.md ---- */

static int pages_table(struct base_buf *text, const struct http_page *pages, size_t count)
{
    static const char *const METHODS[] = {"GET", "HEAD", "POST", "PUT", "DELETE"};
    int status = base_buf_printf(text, "| path | methods | answer |\n|---|---|---|\n");
    for (size_t i = 0; i < count && status == YOLK_OK; i++) {
        status = base_buf_printf(text, "| `%s` |", pages[i].path);
        for (unsigned m = 0; m < sizeof(METHODS) / sizeof(METHODS[0]) && status == YOLK_OK; m++)
            if ((pages[i].methods & (1u << m)) != 0)
                status = base_buf_printf(text, " %s", METHODS[m]);
        if (status == YOLK_OK)
            status = base_buf_printf(text, " | %s |\n", pages[i].doc);
    }
    return status;
}

static const char INTRODUCTION[] =
    "# Programs under Mooncake's names\n\n"
    "`mooncake_master` and `mooncake_client` are other names of the program `yolk`: its `master` "
    "and "
    "its `node`, with the\n"
    "flags and defaults of Mooncake's programs. Flags are read as gflags does: `-x` and `--x`, "
    "`--x=VALUE`, `--x VALUE`, a\n"
    "bool as `--x`, `--nox` or `--x=false`, `--flagfile=FILE`, `--fromenv`, `--undefok`; "
    "`--config_path=FILE` (YAML or JSON)\n"
    "has the same names as keys, and the command line wins. The flags of `yolk master` and `yolk "
    "node`\n"
    "([settings](settings.md)) work too. A flag without an effect gets one warning with the "
    "reason, "
    "unless it is given the\n"
    "value that is so anyway; an unknown one is refused, with the names most like it.\n\n"
    "`mooncake_master` listens on 0.0.0.0, ports 50051 and 9003; `yolk master` only on this "
    "machine "
    "unless it has a secret.\n"
    "This page is made from the tables in `src/cli/upstream_table.c`, `src/admin/http.c` and "
    "`src/admin/metadata.c`.\n\n"
    "## Flags\n\n";

int upstream_markdown(struct base_buf *text)
{
    int status = base_buf_append(text, INTRODUCTION, sizeof(INTRODUCTION) - 1);
    if (status == YOLK_OK)
        status = upstream_flags_markdown(text);
    if (status == YOLK_OK)
        status = base_buf_printf(
            text,
            "\n## HTTP pages of the master\n\n"
            "`--metrics-listen`, port 9003. One request a connection; a request has 64 KiB at most "
            "and 5 seconds to come (408). With\n"
            "`--secret-file` the pages that show or change objects answer 403. `%%XX` in a query "
            "is "
            "decoded; what is not printable\n"
            "in a list is `\\xNN`, as in `yolk ls`; `tenant_id=` names a tenant.\n\n");
    if (status == YOLK_OK)
        status = pages_table(text, admin_http_pages, admin_http_page_count);
    if (status == YOLK_OK)
        status = base_buf_printf(
            text, "\n## HTTP pages of a node\n\n"
                  "`--http-listen`, `mooncake_client --enable_http_server`, port 9300.\n\n");
    if (status == YOLK_OK)
        status = pages_table(text, node_http_pages, node_http_page_count);
    if (status == YOLK_OK)
        status = base_buf_printf(
            text,
            "\n## Metadata server\n\n"
            "`--metadata-listen`, `mooncake_master --enable_http_metadata_server`, port 8080. "
            "For transfer engines, Yolk's too\n"
            "([transfer.md](transfer.md)). At most 65536 keys and 64 MiB, 1 MiB a value, in memory "
            "only.\n\n");
    return status == YOLK_OK ? pages_table(text, admin_metadata_pages, admin_metadata_page_count)
                             : status;
}
