/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"

#define ARGS(config, ...)                                                                          \
    base_config_args((config), (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)),            \
                     (char *[]){__VA_ARGS__})

static char logged[1024];
static int logged_count;

static void remember(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self;
    (void)level;
    (void)room;
    snprintf(logged, sizeof(logged), "%s", text);
    logged_count++;
}

static void defaults_are_valid(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_ALL), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 10000);
    assert_true(base_config_u64(&config, SET_SEGMENT_SIZE) == 1ull << 30);
    assert_string_equal(base_config_string(&config, SET_TRANSPORT), "auto");
    assert_string_equal(base_config_string(&config, SET_NAME), "");
    assert_true(base_config_bool(&config, SET_VERIFY));
    assert_false(base_config_given(&config, SET_VERIFY));
    base_config_free(&config);
}

static void flags_in_all_forms(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_REPLAY | COMMAND_RM | COMMAND_CLIENT),
                     YOLK_OK);
    assert_int_equal(ARGS(&config, "key1", "--dram", "4GiB", "--block_size=16KiB", "--no-verify",
                          "-f", "--respawn=false", "--timeout", "10s", "--", "--dram"),
                     YOLK_OK);
    assert_true(base_config_u64(&config, SET_DRAM) == 4ull << 30);
    assert_int_equal(base_config_u64(&config, SET_BLOCK_SIZE), 16384);
    assert_false(base_config_bool(&config, SET_VERIFY));
    assert_true(base_config_bool(&config, SET_FORCE));
    assert_false(base_config_bool(&config, SET_RESPAWN));
    assert_int_equal(base_config_u64(&config, SET_TIMEOUT), 10000);
    assert_int_equal(config.positional_count, 2);
    assert_string_equal(config.positional[0], "key1");
    assert_string_equal(config.positional[1], "--dram");
    base_config_free(&config);
}

static void wrong_flags_are_named(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_NODE), YOLK_OK);
    assert_int_equal(ARGS(&config, "--segmentsize", "1GiB"), YOLK_ERR_CONFIG);
    assert_string_equal(yolk_last_error(), "unknown flag --segmentsize");
    assert_int_equal(ARGS(&config, "--nodes", "3"), YOLK_ERR_CONFIG); /* of another command */
    assert_int_equal(ARGS(&config, "-q"), YOLK_ERR_CONFIG);
    assert_int_equal(ARGS(&config, "--no-segment-size"), YOLK_ERR_CONFIG);
    assert_int_equal(ARGS(&config, "--segment-size"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "needs a value"));
    assert_int_equal(ARGS(&config, "--segment-size", "lots"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "--segment-size: \"lots\""));
    assert_int_equal(ARGS(&config, "--segment-size=1KiB"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "from 1MiB to"));
    assert_int_equal(ARGS(&config, "--log-level", "pigeon"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "\"pigeon\": must be one of "));
    assert_int_equal(ARGS(&config, "--log-level", "war"), YOLK_ERR_CONFIG);
    assert_int_equal(ARGS(&config, "--transport", "pigeon"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "\"pigeon\": must be one of auto|shm|tcp"));
    assert_int_equal(ARGS(&config, "--transport", "aut"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_ERR_CONFIG);
    assert_int_equal(ARGS(&config, "--plugin-paths", "/x.so"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_OK);
    base_config_free(&config);
}

static void strongest_origin_wins_in_any_order(void **state)
{
    (void)state;
    char *environment[] = {"YOLK_SEGMENT_SIZE=2GiB", "MOONCAKE_GLOBAL_SEGMENT_SIZE=5", NULL};
    char *alias_only[] = {"MOONCAKE_GLOBAL_SEGMENT_SIZE=3355443200", NULL};
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_NODE), YOLK_OK);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "segment_size", "3GiB", "a.yaml:1"), YOLK_OK);
    assert_true(base_config_u64(&config, SET_SEGMENT_SIZE) == 2ull << 30);
    assert_int_equal(ARGS(&config, "--segment-size=4GiB"), YOLK_OK);
    assert_int_equal(base_config_environment(&config, alias_only), YOLK_OK);
    assert_true(base_config_u64(&config, SET_SEGMENT_SIZE) == 4ull << 30);
    base_config_free(&config);

    assert_int_equal(base_config_init(&config, COMMAND_NODE), YOLK_OK);
    assert_int_equal(base_config_environment(&config, alias_only), YOLK_OK);
    assert_true(base_config_u64(&config, SET_SEGMENT_SIZE) == 3355443200ull);
    char *wrong[] = {"YOLK_TIMEOUT=soon", NULL};
    assert_int_equal(base_config_environment(&config, wrong), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "YOLK_TIMEOUT: \"soon\""));
    base_config_free(&config);
}

static void unknown_upstream_variables_are_one_warning(void **state)
{
    (void)state;
    char *environment[] = {"MC_GID_INDEX=3",    "PATH=/bin",           "MOONCAKE_DEVICE=x",
                           "YOLK_TRACE_DIR=/x", "MOONCAKE_MASTER=h:1", NULL};
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_CLIENT), YOLK_OK);
    logged_count = 0;
    base_log_set(remember, NULL);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_int_equal(logged_count, 1);
    assert_non_null(strstr(logged, "MC_GID_INDEX, MOONCAKE_DEVICE"));
    assert_null(strstr(logged, "YOLK"));
    assert_string_equal(base_config_string(&config, SET_MASTER), "h:1");
    base_config_free(&config);
}

static void file_keys(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_MASTER), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "lease_ttl", "3s", "m.yaml:1"), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "client_ttl", "60", "m.yaml:2"), YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_SESSION_TTL), 60000);
    /* Of another command: not looked at, so that one file serves all. */
    assert_int_equal(base_config_file_pair(&config, "segment_size", "much", "m.yaml:3"), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "dram", "much", "m.yaml:3"), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "lease_tll", "3s", "m.yaml:4"),
                     YOLK_ERR_CONFIG);
    assert_string_equal(yolk_last_error(), "m.yaml:4: unknown setting \"lease_tll\"");
    assert_int_equal(base_config_file_pair(&config, "lease_ttl", "3x", "m.yaml:5"),
                     YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "m.yaml:5: lease_ttl: \"3x\""));
    /* What is sensible on the command line only. */
    const char *only_flags[] = {"config", "help", "port"};
    for (size_t i = 0; i < sizeof(only_flags) / sizeof(only_flags[0]); i++) {
        assert_int_equal(base_config_file_pair(&config, only_flags[i], "1", "m.yaml:6"),
                         YOLK_ERR_CONFIG);
        assert_non_null(strstr(yolk_last_error(), only_flags[i]));
        assert_non_null(strstr(yolk_last_error(), "flag only"));
    }
    base_config_free(&config);
}

/* The replay's settings have all three ways in, and what others' mean is not its matter. */
static void environment_and_file_of_a_replay(void **state)
{
    (void)state;
    char *environment[] = {"YOLK_DRAM=512MiB", "YOLK_SEGMENT_SIZE=nonsense",
                           "YOLK_LEASE_TTL=0", "YOLK_PROCESSES=true",
                           "YOLK_HELP=true",   NULL};
    char *wrong[] = {"YOLK_NODES=65", NULL};
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_REPLAY), YOLK_OK);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "block-size", "16KiB", "r.yaml:1"), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "dram", "1GiB", "r.yaml:2"), YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_DRAM), 512 << 20);
    assert_int_equal(base_config_u64(&config, SET_BLOCK_SIZE), 16 << 10);
    assert_true(base_config_bool(&config, SET_PROCESSES));
    assert_false(base_config_bool(&config, SET_HELP));
    assert_int_equal(base_config_origin(&config, SET_DRAM), ORIGIN_ENVIRONMENT);
    assert_int_equal(base_config_origin(&config, SET_BLOCK_SIZE), ORIGIN_FILE);
    assert_int_equal(base_config_environment(&config, wrong), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "YOLK_NODES: \"65\""));
    base_config_free(&config);
}

static void values_that_add_up(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_REPLAY), YOLK_OK);
    assert_string_equal(base_config_string(&config, SET_NODE_FLAG), "");
    assert_int_equal(base_config_file_pair(&config, "node_flag", "--a", "r.yaml:1"), YOLK_OK);
    assert_int_equal(ARGS(&config, "--node-flag", "--b=1", "--node-flag=--c"), YOLK_OK);
    assert_string_equal(base_config_string(&config, SET_NODE_FLAG), "--b=1\n--c");
    base_config_free(&config);
}

static bool share_a_name(const struct base_setting_info *a, const struct base_setting_info *b)
{
    char names[256];
    snprintf(names, sizeof(names), "|%s|%s|", a->flag, a->alias_flag ? a->alias_flag : "");
    char other[128];
    snprintf(other, sizeof(other), "%s|%s", b->flag, b->alias_flag ? b->alias_flag : "");
    char *rest = other;
    for (char *name; (name = strsep(&rest, "|")) != NULL;) {
        char piece[130];
        snprintf(piece, sizeof(piece), "|%s|", name);
        if (name[0] != '\0' && strstr(names, piece) != NULL)
            return true;
    }
    return a->letter != 0 && a->letter == b->letter;
}

static void no_command_has_two_settings_of_one_name(void **state)
{
    (void)state;
    for (int i = 0; i < SET_COUNT; i++) {
        for (int j = i + 1; j < SET_COUNT; j++) {
            const struct base_setting_info *a = base_setting_info((enum base_setting)i);
            const struct base_setting_info *b = base_setting_info((enum base_setting)j);
            if (share_a_name(a, b) && (a->commands & b->commands) != 0)
                fail_msg("--%s and --%s", a->flag, b->flag);
        }
    }
}

static void rules_between_settings(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_ALL), YOLK_OK);
    assert_int_equal(ARGS(&config, "--heartbeat", "9s"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "heartbeat"));
    assert_int_equal(ARGS(&config, "--heartbeat", "1s", "--eviction-ratio", "0.96"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "eviction-ratio"));
    base_config_free(&config);
}

/* A name with all that would end a label, or the line. */
static void figures_of_settings_are_escaped(void **state)
{
    (void)state;
    struct base_config config;
    struct base_buf text;
    base_buf_init(&text, 1 << 20);
    assert_int_equal(base_config_init(&config, COMMAND_NODE), YOLK_OK);
    assert_int_equal(
        base_config_set(&config, SET_NAME, "--name", "a\"} 1\n\\b", 0, ORIGIN_ARGUMENT), YOLK_OK);
    assert_int_equal(base_config_metrics(&config, &text), YOLK_OK);
    assert_int_equal(base_buf_append(&text, "", 1), YOLK_OK);
    assert_non_null(strstr((char *)text.data, "\nyolk_setting_info{setting=\"name\",value=\"a\\\"} "
                                              "1\\n\\\\b\",origin=\"argument\"} 1\n"));
    assert_null(strstr((char *)text.data, "setting=\"trace\""));
    base_buf_free(&text);
    base_config_free(&config);
}

/* What is almost a setting's name was meant to be it; other YOLK_* are somebody else's. */
static void slips_of_names(void **state)
{
    (void)state;
    char *environment[] = {"YOLK_TIMEUOT=5s",   "YOLK_BUILD=x",         "YOLK_CASES_FULL=1",
                           "YOLK_LOG_LEVELS=x", "YOLK_TEST_REFUSE=x",   "YOLK_BIN=x",
                           "YOLK_TRACE_DIR=x",  "YOLK_KILL_REQUESTS=1", NULL};
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_CLIENT), YOLK_OK);
    logged_count = 0;
    base_log_set(remember, NULL);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_int_equal(logged_count, 2);
    assert_non_null(
        strstr(logged, "YOLK_LOG_LEVELS is no setting and is ignored: is YOLK_LOG_LEVEL meant?"));
    environment[3] = NULL;
    logged_count = 0;
    base_log_set(remember, NULL);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_int_equal(logged_count, 1);
    assert_non_null(strstr(logged, "is YOLK_TIMEOUT meant?"));
    base_config_free(&config);
}

static void names_of_the_engine(void **state)
{
    (void)state;
    char *environment[] = {"MC_SLICE_SIZE=65536",
                           "MC_RETRY_CNT=7",
                           "MC_FORCE_TCP=1",
                           "MC_REDIS_USERNAME=me",
                           "YOLK_STRICT=on",
                           "YOLK_TRANSPORTS_OFF=tcp",
                           "MC_LOG_LEVEL=WARNING",
                           "MC_MIN_RPC_PORT=",
                           "MC_TENT_CONF=/x",
                           "MC_GID_INDEX=3",
                           "TENT_METRICS_REPORT_INTERVAL=9",
                           "MC_WHAT=1",
                           "MOONCAKE_MASTER=h:1",
                           NULL};
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_LIBRARY), YOLK_OK);
    logged_count = 0;
    base_log_set(remember, NULL);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    assert_int_equal(logged_count, 3); /* two say why, one names what nobody knows */
    assert_non_null(strstr(logged, "MC_WHAT"));
    assert_null(strstr(logged, "MC_TENT_CONF"));
    config.quiet = true;
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    assert_int_equal(logged_count, 3);
    base_log_set(NULL, NULL);
    assert_int_equal(base_config_u64(&config, SET_SLICE_BYTES), 65536);
    assert_int_equal(base_config_u64(&config, SET_MAX_FAILOVER), 7);
    assert_true(base_config_bool(&config, SET_FORCE_TCP));
    assert_true(base_config_bool(&config, SET_STRICT));
    assert_string_equal(base_config_string(&config, SET_REDIS_USERNAME), "me");
    assert_string_equal(base_config_string(&config, SET_TRANSPORTS_OFF), "tcp");
    assert_string_equal(base_config_string(&config, SET_LOG_LEVEL), "WARNING");
    assert_int_equal(base_config_u64(&config, SET_RPC_PORT_MIN), 15000); /* empty is not set */
    const char *key = "runtime_queue/max_dispatch_owners";
    assert_int_equal(base_config_file_pair(&config, key, "0", "f"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "must be from 1 to"));
    assert_int_equal(base_config_file_pair(&config, key, "3", "f"), YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_QUEUE_DISPATCH_OWNERS), 3);
    assert_int_equal(base_config_file_pair(&config, "policy", "7", "f"), YOLK_ERR_CONFIG);
    assert_int_equal(base_config_file_pair(&config, "policy", "[{]", "f"), YOLK_ERR_CONFIG);
    assert_int_equal(base_config_file_pair(&config, "policy", "[{}]", "f"), YOLK_OK);
    assert_string_equal(base_config_string(&config, SET_POLICY), "[{}]");
    base_config_free(&config);
    /* No command takes them. */
    assert_int_equal(base_config_init(&config, COMMAND_ALL), YOLK_OK);
    assert_int_equal(ARGS(&config, "--merge-requests", "false"), YOLK_ERR_CONFIG);
    base_config_free(&config);
}

static void names_without_effect(void **state)
{
    (void)state;
    static const char *const keys[] = {"transports/rdma/device/port", "transports/ub/x",
                                       "rpc_server_threads", "metrics/http_server_threads"};
    static const char *const variables[] = {"MC_IB_PORT", "MC_IB_TC", "MC_WORKERS_PER_CTX",
                                            "MC_GID_INDEX", "MC_STORE_MEMCPY"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_non_null(base_setting_ignored(keys[i], strlen(keys[i]), false));
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const struct base_setting_ignored *row =
            base_setting_ignored(variables[i], strlen(variables[i]), true);
        assert_non_null(row);
        assert_false(row->acts);
        assert_true(row->why[0] != '\0');
    }
    assert_true(base_setting_ignored("MC_TENT_CONF", 12, true)->acts);
    assert_null(base_setting_ignored("MC_TE", 5, true));
    assert_null(base_setting_ignored("transports/tcp/enable", 21, false));
    assert_null(base_setting_ignored("MC_IB_PORT", 10, false));
    /* Nothing stands in both tables. */
    for (int i = SET_ENGINE_FIRST; i < SET_COUNT; i++) {
        const char *flag = base_setting_info((enum base_setting)i)->flag;
        assert_null(base_setting_ignored(flag, strlen(flag), false));
    }
}

static void documents_come_from_the_table(void **state)
{
    (void)state;
    struct base_buf text;
    base_buf_init(&text, 1 << 20);
    assert_int_equal(base_config_help(COMMAND_NODE, &text), YOLK_OK);
    assert_int_equal(base_buf_append(&text, "", 1), YOLK_OK);
    assert_non_null(strstr((char *)text.data, "--segment-size SIZE"));
    assert_non_null(strstr((char *)text.data, " Also --dram, --global-segment-size."));
    assert_null(strstr((char *)text.data, "--trace"));
    base_buf_clear(&text);
    assert_int_equal(base_config_markdown(&text), YOLK_OK);
    assert_int_equal(base_buf_append(&text, "", 1), YOLK_OK);
    for (int i = 0; i < SET_COUNT; i++) {
        char cell[64];
        const char *flag = base_setting_info((enum base_setting)i)->flag;
        snprintf(cell, sizeof(cell), i < SET_ENGINE_FIRST ? "| `--%s` |" : "| `%s` |", flag);
        for (char *p = cell; i >= SET_ENGINE_FIRST && *p != '\0'; p++)
            *p = *p == '-' ? '_' : *p;
        assert_non_null(strstr((char *)text.data, cell));
    }
    char *page = calloc(1, 1 << 20);
    FILE *file = fopen(YOLK_SOURCE_DIR "/docs/settings.md", "re");
    assert_non_null(page);
    assert_non_null(file);
    assert_true(fread(page, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    /* Else: build/yolk config >docs/settings.md */
    assert_string_equal(page, (char *)text.data);
    free(page);
    base_buf_free(&text);
}

static void log_keeps_peers_from_forging_lines(void **state)
{
    (void)state;
    base_log_set(remember, NULL);
    logged_count = 0;
    log_warn("key %s", "a\nfake\x1b[2J");
    log_debug("below the level");
    base_log_set(NULL, NULL);
    assert_int_equal(logged_count, 1);
    assert_string_equal(logged, "key a fake [2J");
    enum base_log_level level = LOG_LEVEL_ERROR;
    assert_true(base_log_parse_level("debug", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_false(base_log_parse_level("loud", &level));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_valid),
        cmocka_unit_test(flags_in_all_forms),
        cmocka_unit_test(wrong_flags_are_named),
        cmocka_unit_test(strongest_origin_wins_in_any_order),
        cmocka_unit_test(unknown_upstream_variables_are_one_warning),
        cmocka_unit_test(file_keys),
        cmocka_unit_test(environment_and_file_of_a_replay),
        cmocka_unit_test(values_that_add_up),
        cmocka_unit_test(no_command_has_two_settings_of_one_name),
        cmocka_unit_test(rules_between_settings),
        cmocka_unit_test(figures_of_settings_are_escaped),
        cmocka_unit_test(slips_of_names),
        cmocka_unit_test(names_of_the_engine),
        cmocka_unit_test(names_without_effect),
        cmocka_unit_test(documents_come_from_the_table),
        cmocka_unit_test(log_keeps_peers_from_forging_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
