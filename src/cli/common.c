/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/config_file.h"
#include "cli/ssd.h"
#include "platform/clock.h"
#include "platform/thread.h"

/* A program of upstream's name is called by that alone. */
static bool has_own_name(const struct cli_command *command)
{
    return strncmp(command->name, "mooncake_", 9) == 0;
}

static void print_name(const struct cli_command *command)
{
    fprintf(stderr, "%s%s: ", has_own_name(command) ? "" : "yolk ", command->name);
}

int cli_usage_error(const struct cli_command *command, const char *format, ...)
{
    va_list arguments;
    print_name(command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr,
            has_own_name(command) ? "\n(%s --help lists what it takes)\n"
                                  : "\n(yolk help %s lists what it takes)\n",
            command->name);
    return CLI_USAGE;
}

int cli_failure(const struct cli_command *command, enum yolk_status status, const char *format, ...)
{
    va_list arguments;
    print_name(command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", cli_reason(status));
    return CLI_FAILED;
}

const char *cli_reason(int status)
{
    return yolk_last_error()[0] ? yolk_last_error() : yolk_strerror(status);
}

static void print_help(const struct cli_command *command)
{
    struct base_buf text;
    printf("yolk %s%s%s\n\n%s\n\n", command->name, command->arguments[0] ? " " : "",
           command->arguments, command->summary);
    base_buf_init(&text, 256 * 1024);
    if (base_config_help(command->commands, &text) == YOLK_OK)
        fwrite(text.data, 1, text.size, stdout);
    base_buf_free(&text);
    printf("\nThe environment (YOLK_NAME_OF_FLAG) and a file (--config) set the same; "
           "docs/settings.md has all of it.\n");
}

static int read_settings(struct base_config *config, int argc, char **argv)
{
    int status = base_config_args(config, argc, argv);
    if (status != YOLK_OK || base_config_bool(config, SET_HELP))
        return status;
    status = base_config_environment(config, environ);
    if (status == YOLK_OK && base_config_string(config, SET_CONFIG)[0])
        status = config_file_load(config, base_config_string(config, SET_CONFIG));
    return status == YOLK_OK ? base_config_check(config) : status;
}

bool cli_parse(const struct cli_command *command, int argc, char **argv, struct base_config *config,
               int *code)
{
    *code = CLI_OK;
    int status = base_config_init(config, command->commands);
    if (status == YOLK_OK)
        status = read_settings(config, argc, argv);
    if (status != YOLK_OK) {
        *code = cli_usage_error(command, "%s", yolk_last_error());
        base_config_free(config);
        return false;
    }
    if (base_config_bool(config, SET_HELP)) {
        print_help(command);
        base_config_free(config);
        return false;
    }
    if (!command->arguments[0] && config->positional_count > 0) {
        *code = cli_usage_error(command, "\"%s\": no argument is expected", config->positional[0]);
        base_config_free(config);
        return false;
    }
    cli_apply_log(config);
    base_error_clear();
    return true;
}

void cli_apply_log(const struct base_config *config)
{
    enum base_log_level level;
    if (base_log_parse_level(base_config_string(config, SET_LOG_LEVEL), &level))
        base_log_set_level(level);
    base_log_set_json(base_config_bool(config, SET_LOG_JSON));
    if (config->commands & (COMMAND_MASTER | COMMAND_NODE))
        base_config_log(config);
}

static const char *text_or_null(const struct base_config *config, enum base_setting setting)
{
    const char *text = base_config_string(config, setting);
    return text[0] ? text : NULL;
}

void cli_waits(const struct base_config *config, uint64_t *put_wait_ms, uint64_t *timeout_ms)
{
    *put_wait_ms = base_config_u64(config, SET_PUT_WAIT);
    *timeout_ms = base_config_u64(config, SET_TIMEOUT);
    if (*put_wait_ms <= *timeout_ms)
        return;
    if (!base_config_given(config, SET_PUT_WAIT))
        *put_wait_ms = *timeout_ms;
    else if (!base_config_given(config, SET_TIMEOUT))
        *timeout_ms = *put_wait_ms;
}

/* ---- a store, and somebody who says what it waits for ---- */

enum { QUIET_MS = 700 };

struct waiting {
    const struct cli_command *command;
    const char *master;
    uint64_t timeout_ms;
    struct mutex lock;
    struct condition changed;
    bool over;
};

static void tell_waiting(void *self)
{
    struct waiting *waiting = self;
    uint64_t until = clock_after_ms(clock_real_now_ns(), QUIET_MS);
    char text[32];
    mutex_lock(&waiting->lock);
    while (!waiting->over && condition_wait_until(&waiting->changed, &waiting->lock, until))
        continue;
    if (!waiting->over) {
        print_name(waiting->command);
        fprintf(stderr, "waiting for the master at %s, for at most %s\n", waiting->master,
                base_format_duration_ms(waiting->timeout_ms, text, sizeof(text)));
    }
    mutex_unlock(&waiting->lock);
}

enum yolk_status cli_store_open_with(const struct cli_command *command,
                                     const struct yolk_store_options *options,
                                     struct yolk_store **out)
{
    /* A program says what it waits for, and its master may be started after it. */
    struct yolk_store_options patient = *options;
    patient.connect_wait_ms = options->timeout_ms;
    struct waiting waiting = {
        .command = command, .master = options->master, .timeout_ms = options->timeout_ms};
    struct thread thread = {.running = false};
    mutex_init(&waiting.lock);
    condition_init(&waiting.changed);
    if (strcmp(options->master, "embedded") != 0 &&
        thread_start(&thread, "waiting", tell_waiting, &waiting) != YOLK_OK)
        base_error_clear(); /* then nobody says so */
    enum yolk_status status = yolk_store_open(&patient, out);
    mutex_lock(&waiting.lock);
    waiting.over = true;
    condition_signal(&waiting.changed);
    mutex_unlock(&waiting.lock);
    thread_join(&thread);
    condition_destroy(&waiting.changed);
    mutex_destroy(&waiting.lock);
    return status;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strncmp(host, "::1", 3) == 0 ||
           strncmp(host, "[::1]", 5) == 0 || strncmp(host, "localhost", 9) == 0;
}

/* What others are told. NULL: the address that faces the master; also when what was given cannot be
 * meant, since the master is elsewhere. */
static const char *useful_host(const struct cli_command *command, const struct base_config *config)
{
    const char *host = text_or_null(config, SET_HOST);
    const char *master = base_config_string(config, SET_MASTER);
    if (!host || !is_loopback(host) || is_loopback(master) || strncmp(master, "unix:", 5) == 0)
        return host;
    print_name(command);
    fprintf(
        stderr,
        "warning: --host %s is of no use to other machines, and the master is at %s: taking the "
        "address that faces the master\n",
        host, master);
    return NULL;
}

enum yolk_status cli_store_open(const struct cli_command *command, const struct base_config *config,
                                uint64_t segment_size, struct yolk_store **out)
{
    struct yolk_store_options options;
    char ssd_path[CLI_SSD_PATH_MAX];
    yolk_store_options_init(&options);
    options.master = base_config_string(config, SET_MASTER);
    options.name = text_or_null(config, SET_NAME);
    options.host = useful_host(command, config);
    options.secret_file = text_or_null(config, SET_SECRET_FILE);
    options.tenant_id = text_or_null(config, SET_TENANT);
    options.transport = text_or_null(config, SET_TRANSPORT);
    options.plugin_paths = text_or_null(config, SET_PLUGIN_PATHS);
    options.segment_size_bytes = segment_size;
    options.huge_pages = base_config_bool(config, SET_HUGE_PAGES);
    cli_waits(config, &options.put_wait_ms, &options.timeout_ms);
    options.drain_grace_ms = base_config_u64(config, SET_DRAIN_GRACE);
    if (segment_size > 0 && base_config_bool(config, SET_EGM)) {
        options.egm_enabled = 1;
        options.egm_numa_nodes = base_config_string(config, SET_EGM_NODES);
        options.egm_handle_type = base_config_string(config, SET_EGM_HANDLES);
        options.egm_chunk_bytes_max = base_config_u64(config, SET_EGM_CHUNK);
    }
    options.replica_num = (uint32_t)base_config_u64(config, SET_REPLICA_NUM);
    if (segment_size > 0 && base_config_u64(config, SET_SSD) > 0) {
        int status =
            cli_ssd_file(base_config_string(config, SET_SSD_PATH), ssd_path, sizeof ssd_path);
        if (status != YOLK_OK)
            return status;
        options.ssd_path = ssd_path;
        options.ssd_size_bytes = base_config_u64(config, SET_SSD);
        options.ssd_sync_ms = base_config_u64(config, SET_SSD_SYNC);
    }
    /* Of programs that come and go none takes a file. */
    if (segment_size > 0) {
        int status = yolk_store_options_environment(&options);
        if (status != YOLK_OK)
            return status;
    }
    return cli_store_open_with(command, &options, out);
}

uint64_t cli_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
}

void cli_print_key(const void *key, size_t size)
{
    const unsigned char *bytes = key;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] >= 0x80 || (isprint(bytes[i]) && bytes[i] != '\\'))
            putchar(bytes[i]);
        else
            printf("\\x%02x", bytes[i]);
    }
}
