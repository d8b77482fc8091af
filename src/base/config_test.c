/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
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
                          "-f", "--respawn=false", "--put-wait", "10s", "--", "--dram"),
                     YOLK_OK);
    assert_true(base_config_u64(&config, SET_DRAM) == 4ull << 30);
    assert_int_equal(base_config_u64(&config, SET_BLOCK_SIZE), 16384);
    assert_false(base_config_bool(&config, SET_VERIFY));
    assert_true(base_config_bool(&config, SET_FORCE));
    assert_false(base_config_bool(&config, SET_RESPAWN));
    assert_int_equal(base_config_u64(&config, SET_PUT_WAIT), 10000);
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
    assert_int_equal(ARGS(&config, "--transport", "pigeon"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "auto|shm|tcp"));
    assert_int_equal(ARGS(&config, "--transport", "aut"), YOLK_ERR_CONFIG);
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
    char *environment[] = {"MC_GID_INDEX=3",    "PATH=/bin",           "MOONCAKE_TENANT_ID=x",
                           "YOLK_TRACE_DIR=/x", "MOONCAKE_MASTER=h:1", NULL};
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_CLIENT), YOLK_OK);
    logged_count = 0;
    base_log_set(remember, NULL);
    assert_int_equal(base_config_environment(&config, environment), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_int_equal(logged_count, 1);
    assert_non_null(strstr(logged, "MC_GID_INDEX, MOONCAKE_TENANT_ID"));
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
    /* Of another command: taken, so that one file serves all. */
    assert_int_equal(base_config_file_pair(&config, "segment_size", "2GiB", "m.yaml:3"), YOLK_OK);
    assert_int_equal(base_config_file_pair(&config, "lease_tll", "3s", "m.yaml:4"),
                     YOLK_ERR_CONFIG);
    assert_string_equal(yolk_last_error(), "m.yaml:4: unknown setting \"lease_tll\"");
    assert_int_equal(base_config_file_pair(&config, "lease_ttl", "3x", "m.yaml:5"),
                     YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "m.yaml:5: lease_ttl: \"3x\""));
    base_config_free(&config);
}

static void rules_between_settings(void **state)
{
    (void)state;
    struct base_config config;
    assert_int_equal(base_config_init(&config, COMMAND_ALL), YOLK_OK);
    assert_int_equal(base_config_set(&config, SET_HEARTBEAT, "9s"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "heartbeat"));
    assert_int_equal(base_config_set(&config, SET_HEARTBEAT, "1s"), YOLK_OK);
    assert_int_equal(base_config_set(&config, SET_RESPAWN, "true"), YOLK_OK);
    assert_int_equal(base_config_check(&config), YOLK_ERR_CONFIG);
    base_config_free(&config);
}

static void documents_come_from_the_table(void **state)
{
    (void)state;
    struct base_buf text;
    base_buf_init(&text, 1 << 20);
    assert_int_equal(base_config_help(COMMAND_NODE, &text), YOLK_OK);
    assert_int_equal(base_buf_append(&text, "", 1), YOLK_OK);
    assert_non_null(strstr((char *)text.data, "--segment-size SIZE"));
    assert_null(strstr((char *)text.data, "--trace"));
    base_buf_clear(&text);
    assert_int_equal(base_config_markdown(&text), YOLK_OK);
    assert_int_equal(base_buf_append(&text, "", 1), YOLK_OK);
    for (int i = 0; i < SET_COUNT; i++) {
        char cell[64];
        snprintf(cell, sizeof(cell), "| `--%s` |", base_setting_info((enum base_setting)i)->flag);
        assert_non_null(strstr((char *)text.data, cell));
    }
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
        cmocka_unit_test(rules_between_settings),
        cmocka_unit_test(documents_come_from_the_table),
        cmocka_unit_test(log_keeps_peers_from_forging_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
