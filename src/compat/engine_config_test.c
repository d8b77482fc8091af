/* SPDX-License-Identifier: Apache-2.0 */
/* Where an engine's settings come from, which one holds, and what becomes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yolk/store.h>

#include "base/log.h"
#include "compat/engine_config.h"
#include "platform/temporary_kit.h"

static char *const nothing[] = {NULL};
static char logged[8192];
static int logged_count;

static void remember(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)level, (void)room;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof(logged) - used, "%s\n", text);
    logged_count++;
}

static void listen_to_log(void)
{
    logged[0] = '\0';
    logged_count = 0;
    base_log_set(remember, NULL);
}

static char *file_with(const char *text)
{
    char path[TEMPORARY_MAX] = "yolk-config-XXXXXX";
    int fd = mkstemp(temporary_path(path));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return strdup(path);
}

/* The options that the configuration makes; *config must be freed. */
static struct yolk_engine_options options_of(const struct compat_settings *own,
                                             char *const *environment, struct base_config *config)
{
    static char off[COMPAT_OFF_MAX];
    struct yolk_engine_options options;
    if (compat_engine_config(own, true, environment, config) != YOLK_OK)
        fail_msg("%s", yolk_last_error());
    compat_engine_options(config, off, &options);
    return options;
}

static void defaults(void **state)
{
    (void)state;
    struct base_config config;
    struct yolk_engine_options options = options_of(NULL, nothing, &config);
    assert_int_equal(options.attempts_max, 4); /* one, and three more */
    assert_int_equal(options.failover_on_poll, YOLK_SWITCH_DEFAULT);
    assert_int_equal(options.merge, YOLK_SWITCH_DEFAULT);
    assert_int_equal(options.queue.enable, YOLK_SWITCH_DEFAULT);
    assert_int_equal(options.queue.owners_max, 0);
    assert_int_equal(options.transport.workers_max, 16);
    assert_null(options.policy_json);
    assert_null(options.qos_json);
    assert_null(options.plugin_paths);
    assert_string_equal(options.transports_off, "");
    base_config_free(&config);
    char *queue[] = {"YOLK_ENABLE_RUNTIME_QUEUE=true", NULL};
    options = options_of(NULL, queue, &config);
    assert_int_equal(options.queue.enable, YOLK_SWITCH_ON);
    assert_int_equal(options.queue.owners_max, 1024);
    assert_true(options.queue.bytes_max == UINT64_C(1) << 30);
    assert_int_equal(options.queue.dispatch_owners_max, 64);
    assert_true(options.queue.dispatch_bytes_max == UINT64_C(64) << 20);
    assert_int_equal(options.queue.tick_ms, 50);
    base_config_free(&config);
}

static void every_key_acts(void **state)
{
    (void)state;
    char *path = file_with(
        "{\"merge_requests\": false, \"max_failover_attempts\": 0, \"strict\": true,\n"
        " \"enable_auto_failover_on_poll\": false, \"enable_runtime_queue\": true,\n"
        " \"policy\": [{\"name\": \"x\"}], \"qos\": {\"tenants\": {}}, \"drain_limit_ms\": 16, "
        "\"staging_bytes\": "
        "\"8MiB\",\n"
        " \"runtime_queue\": {\"max_outstanding_owners\": 5, \"max_outstanding_bytes\": 6,\n"
        "   \"staging_owner_reserve\": 7, \"staging_byte_reserve\": 8, \"deadline_aware\": true,\n"
        "   \"max_dispatch_owners\": 9, \"max_dispatch_bytes\": 10, \"promotion_slack_ns\": 11,\n"
        "   \"progress_fallback_interval_us\": 12000},\n"
        " \"transports\": {\"tcp\": {\"max_concurrent_tasks\": 13, \"retry_base_delay_ms\": 14,\n"
        "                         \"connections\": 15},\n"
        "                \"io_uring\": {\"enable\": false}, \"mine\": {\"enable\": false}},\n"
        " \"plugin_paths\": \"/a.so\", \"slice_bytes_max\": 65536}");
    struct compat_settings own = {.file = path};
    struct base_config config;
    struct yolk_engine_options options = options_of(&own, nothing, &config);
    assert_int_equal(options.merge, YOLK_SWITCH_OFF);
    assert_int_equal(options.attempts_max, 1);
    assert_int_equal(options.strict, YOLK_SWITCH_ON);
    assert_int_equal(options.failover_on_poll, YOLK_SWITCH_OFF);
    assert_int_equal(options.queue.enable, YOLK_SWITCH_ON);
    assert_string_equal(options.policy_json, "[{\"name\": \"x\"}]");
    assert_string_equal(options.qos_json, "{\"tenants\": {}}");
    assert_true(options.staging_bytes == UINT64_C(8) << 20);
    assert_int_equal(options.drain_limit_ms, 16);
    assert_int_equal(options.queue.owners_max, 5);
    assert_int_equal(options.queue.bytes_max, 6);
    assert_int_equal(options.queue.staging_owners, 7);
    assert_int_equal(options.queue.staging_bytes, 8);
    assert_int_equal(options.queue.deadline_first, YOLK_SWITCH_ON);
    assert_int_equal(options.queue.dispatch_owners_max, 9);
    assert_int_equal(options.queue.dispatch_bytes_max, 10);
    assert_int_equal(options.queue.promotion_slack_ns, 11);
    assert_int_equal(options.queue.tick_ms, 12);
    assert_int_equal(options.transport.workers_max, 13);
    assert_int_equal(options.breaker_cooldown_ms, 14);
    assert_int_equal(options.transport.connections_max, 15);
    assert_string_equal(options.transports_off, "io_uring,mine");
    assert_string_equal(options.plugin_paths, "/a.so");
    assert_int_equal(options.slice_bytes_max, 65536);
    base_config_free(&config);
    remove(path);
    free(path);
}

/* What holds, from the weakest on. */
static void precedence(void **state)
{
    (void)state;
    char *path = file_with("{\"max_failover_attempts\": 5, \"rpc_server_port\": 77,"
                           " \"rpc_server_hostname\": \"file\", \"merge_requests\": false}");
    char *conf = file_with("{\"max_failover_attempts\": 8, \"rpc_server_hostname\": \"conf\","
                           " \"local_segment_name\": \"conf\", \"rpc_server_port\": 99}");
    char variable[TEMPORARY_MAX + 32];
    snprintf(variable, sizeof(variable), "MC_TENT_CONF=%s", conf);
    char *with_conf[] = {variable, NULL};
    char *with_more[] = {variable, "MC_RETRY_CNT=9", "MOONCAKE_LOCAL_HOSTNAME=environment", NULL};
    struct compat_settings own = {.file = path};
    struct base_config config;
    assert_int_equal(compat_settings_set(&own, "max_failover_attempts", "6"), YOLK_OK);
    assert_int_equal(compat_settings_set(&own, "max_failover_attempts", "7"), YOLK_OK);
    assert_int_equal(compat_settings_set(&own, "rpc_server_hostname", "own"), YOLK_OK);
    assert_int_equal(own.count, 2);

    assert_int_equal(options_of(&own, nothing, &config).attempts_max, 8);
    assert_string_equal(base_config_string(&config, SET_RPC_HOST), "own");
    assert_false(base_config_bool(&config, SET_MERGE)); /* of the file */
    base_config_free(&config);

    /* In place of all of that, but for who this process is. */
    assert_int_equal(options_of(&own, with_conf, &config).attempts_max, 9);
    assert_true(base_config_bool(&config, SET_MERGE));
    assert_string_equal(base_config_string(&config, SET_RPC_HOST), "own");
    assert_int_equal(base_config_u64(&config, SET_RPC_PORT), 77);
    assert_string_equal(base_config_string(&config, SET_SEGMENT_NAME), "conf");
    base_config_free(&config);

    /* Older programs read it only if they are told to. */
    assert_int_equal(compat_engine_config(NULL, false, with_conf, &config), YOLK_OK);
    assert_int_equal(base_config_u64(&config, SET_MAX_FAILOVER), 3);
    base_config_free(&config);

    assert_int_equal(options_of(&own, with_more, &config).attempts_max, 10);
    assert_string_equal(base_config_string(&config, SET_RPC_HOST), "environment");
    base_config_free(&config);
    remove(path);
    remove(conf);
    free(conf);
    compat_settings_free(&own);
}

static void json_in_the_environment(void **state)
{
    (void)state;
    char *inline_json[] = {"MC_TENT_CONF= {\"max_failover_attempts\": 1,"
                           "\"transports/posix/enable\": false, \"transports\": {\"posix\":"
                           "{\"enable\": true}}, \"transports/tcp/enable\": false,"
                           "\"log_level\": null}",
                           NULL};
    struct base_config config;
    struct yolk_engine_options options = options_of(NULL, inline_json, &config);
    assert_int_equal(options.attempts_max, 2);
    assert_string_equal(options.transports_off, "tcp"); /* the nested one holds */
    base_config_free(&config);
    char *force[] = {"MC_FORCE_TCP=1", "MC_SLICE_SIZE=1048576", "YOLK_TRANSPORTS_OFF=posix", NULL};
    options = options_of(NULL, force, &config);
    assert_int_equal(options.slice_bytes_max, 1 << 20);
    assert_non_null(strstr(options.transports_off, "posix,shm,"));
    assert_non_null(strstr(options.transports_off, "rdma"));
    assert_null(strstr(options.transports_off, "tcp"));
    base_config_free(&config);
    char *unset[] = {"MC_TENT_CONF=", "MC_FORCE_TCP=", NULL};
    assert_string_equal(options_of(NULL, unset, &config).transports_off, "");
    base_config_free(&config);
}

static void wrong_ones_are_named(void **state)
{
    (void)state;
    static const struct {
        char *conf;
        const char *says;
    } wrong[] = {
        {"MC_TENT_CONF=/no/such/file", "MC_TENT_CONF is \"/no/such/file\""},
        {"MC_TENT_CONF={\"a\": }", "line 1, column 7"},
        {"MC_TENT_CONF={\"max_failover_attempts\": \"many\"}", "max_failover_attempts: \"many\""},
        {"MC_TENT_CONF={\"max_failover_attempts\": -1}", "max_failover_attempts"},
        {"MC_TENT_CONF={\"max_failover_attempts\": [1]}", "must be one value"},
        {"MC_TENT_CONF={\"merge_requests\": {\"x\": 1}}", "must be one value"},
        {"MC_TENT_CONF={\"policy\": true}", "must be an array or an object"},
        {"MC_TENT_CONF={\"metadata_type\": \"zookeeper\"}", "p2p|http|etcd|redis"},
        {"MC_TENT_CONF={\"runtime_queue\": {\"max_dispatch_owners\": 0}}", "from 1 to"},
        {"MC_TENT_CONF={\"runtime_queue\": {\"max_dispatch_bytes\": 0}}", "at least 1"},
        {"MC_TENT_CONF={\"transports\": {\"tcp\": {\"enable\": 7}}}", "transports/tcp/enable"},
        {"MC_MIN_RPC_PORT=17001", "rpc_port_min is 17001"},
        {"MC_RETRY_CNT=x", "MC_RETRY_CNT: \"x\""},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *environment[] = {wrong[i].conf, NULL};
        struct base_config config;
        assert_int_equal(compat_engine_config(NULL, true, environment, &config), YOLK_ERR_CONFIG);
        if (strstr(yolk_last_error(), wrong[i].says) == NULL)
            fail_msg("\"%s\" of %s", yolk_last_error(), wrong[i].conf);
        base_config_free(&config);
    }
    struct compat_settings own = {.file = strdup("/no/such.json")};
    struct base_config config;
    assert_int_equal(compat_engine_config(&own, true, nothing, &config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "/no/such.json"));
    base_config_free(&config);
    assert_int_equal(compat_settings_set(&own, "", "1"), YOLK_ERR_INVALID);
    assert_int_equal(compat_settings_set(&own, NULL, "1"), YOLK_ERR_INVALID);
    for (int i = 0; i < COMPAT_SETTINGS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(compat_settings_set(&own, key, "1"), YOLK_OK);
    }
    assert_int_equal(compat_settings_set(&own, "k7", "2"), YOLK_OK);
    assert_int_equal(compat_settings_set(&own, "one more", "1"), YOLK_ERR_LIMIT);
    compat_settings_free(&own);
}

/* TENT: names of devices may have spaces around them, in variables as in lists. */
static void devices_of_the_topology(void **state)
{
    (void)state;
    static const struct {
        char *conf, *variable;
        const char *setting;
    } rows[] = {
        {"MC_TENT_CONF={}", "MC_TE_FILTERS= mlx5_0 , mlx5_1,", " mlx5_0 , mlx5_1,"},
        {"MC_TENT_CONF={\"topology\": {\"rdma_whitelist\": [\"a\", \"b\"]}}", "X=", "a,b"},
        {"MC_TENT_CONF={\"topology/rdma_whitelist\": \"a, b\"}", "X=", "a, b"},
        {"MC_TENT_CONF={\"topology\": {\"rdma_whitelist\": [\"a\"]}}", "MC_TE_FILTERS=c", "c"},
    };
    struct base_config config;
    char *text;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *environment[] = {rows[i].conf, rows[i].variable, NULL};
        (void)options_of(NULL, environment, &config);
        assert_string_equal(base_config_string(&config, SET_RDMA_WHITELIST), rows[i].setting);
        assert_int_equal(compat_engine_topology(&config, NULL, true, &text), YOLK_OK);
        free(text);
        base_config_free(&config);
    }
    char *wrong[] = {"MC_TENT_CONF={\"topology\": {\"rdma_blacklist\": [7]}}", NULL};
    assert_int_equal(compat_engine_config(NULL, true, wrong, &config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "topology/rdma_blacklist must be an array of names"));
    base_config_free(&config);

    char *path = file_with("{\"cpu:0\": [[\"mlx5_0\", \"mlx5_1\"], [\"mlx5_2\"]]}");
    char variable[TEMPORARY_MAX + 32];
    snprintf(variable, sizeof(variable), "MC_CUSTOM_TOPO_JSON=%s", path);
    char *custom[] = {variable, "MC_TE_FILTERS_EXCLUDE= mlx5_1", NULL};
    (void)options_of(NULL, custom, &config);
    assert_int_equal(compat_engine_topology(&config, NULL, true, &text), YOLK_OK);
    assert_non_null(strstr(text, "mlx5_0"));
    assert_non_null(strstr(text, "mlx5_2"));
    free(text);
    assert_int_equal(compat_engine_topology(&config, NULL, false, &text), YOLK_OK);
    assert_non_null(strstr(text, "\"nics\":["));
    free(text);
    base_config_free(&config);
    remove(path);
    (void)options_of(NULL, custom, &config);
    assert_int_equal(compat_engine_topology(&config, NULL, true, &text), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), path));
    base_config_free(&config);
    char *matrix[] = {
        "MC_TENT_CONF={\"topology\": {\"priority_matrix\": {\"cpu:0\": [[\"x\"], []]}}}", variable,
        NULL};
    (void)options_of(NULL, matrix, &config);
    assert_int_equal(compat_engine_topology(&config, NULL, true, &text), YOLK_OK);
    assert_string_equal(text, "{\"cpu:0\":[[\"x\"],[]]}"); /* goes before the file */
    free(text);
    base_config_free(&config);
    free(path);
}

static void without_effect_is_said_once(void **state)
{
    (void)state;
    char *environment[] = {
        "MC_TENT_CONF={\"transports\": {\"rdma\": {\"enable\": false, \"num_lanes\": 6, \"device\":"
        "{\"port\": 1}, \"max_timeout_ns\": 1e10}, \"shm\": {\"enable\": false}},"
        "\"transports/nvlink/num_lanes\": 32, \"verbose\": true, \"nonsense\": 1}",
        NULL};
    struct base_config config;
    listen_to_log();
    assert_int_equal(compat_engine_config(NULL, true, environment, &config), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_non_null(strstr(logged, "transports/rdma/num_lanes (as all else beside it) has no "
                                   "effect: there is no RDMA transport"));
    assert_null(strstr(logged, "max_timeout_ns"));
    assert_null(strstr(logged, "enable")); /* what is off here anyway is no news */
    assert_non_null(strstr(logged, "transports/nvlink/num_lanes"));
    assert_non_null(strstr(logged, "verbose has no effect"));
    assert_non_null(strstr(logged, "there is no setting \"nonsense\""));
    assert_int_equal(logged_count, 4);
    assert_string_equal(base_config_string(&config, SET_TRANSPORTS_OFF), "rdma,shm");
    base_config_free(&config);
}

static void gds_is_set_by_its_keys(void **state)
{
    (void)state;
    char *environment[] = {"MC_TENT_CONF={\"transports\": {\"gds\": {\"enable\": true, "
                           "\"io_batch_depth\": 16, \"slice_bytes\": \"1MiB\"}, \"io_uring\": "
                           "{\"enable\": false}}}",
                           NULL};
    char *wrong[] = {"MC_TENT_CONF={\"transports/gds/io_batch_depth\": 129}", NULL};
    char off[COMPAT_OFF_MAX];
    struct base_config config;
    struct yolk_engine_options options;
    assert_int_equal(compat_engine_config(NULL, true, environment, &config), YOLK_OK);
    compat_engine_options(&config, off, &options);
    assert_int_equal(options.transport.gds_enable, 1);
    assert_int_equal(options.transport.gds_batch_depth, 16);
    assert_int_equal(options.transport.gds_slice_bytes, 1 << 20);
    assert_string_equal(off, "io_uring");
    base_config_free(&config);
    assert_int_equal(compat_engine_config(NULL, true, wrong, &config), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "transports/gds/io_batch_depth"));
    base_config_free(&config);
}

/* The store and the engine read the same text, and the same of two values for one key holds. */
static void the_store_reads_it_alike(void **state)
{
    (void)state;
    static const struct {
        const char *conf;
        unsigned depth;
        int no_uring, status;
    } rows[] = {
        {"{\"transports/gds\": {\"enable\": true, \"io_batch_depth\": 3}}", 3, 0, YOLK_OK},
        {"{\"transports\": {\"gds\": {\"enable\": true, \"io_batch_depth\": 4}},"
         " \"transports/gds/io_batch_depth\": 5, \"transports/gds/enable\": false}",
         4, 0, YOLK_OK},
        {"{\"transports/gds/io_batch_depth\": 6, \"transports/gds/enable\": false,"
         " \"transports\": {\"gds\": {\"enable\": true, \"io_batch_depth\": 7}}}",
         7, 0, YOLK_OK},
        {"{\"transports\": {\"gds/io_batch_depth\": 8, \"gds/enable\": true,"
         " \"io_uring/enable\": true, \"io_uring\": {\"enable\": false}}}",
         8, 1, YOLK_OK},
        {"{\"transports/gds/io_batch_depth\": 9, \"transports/gds/enable\": true,"
         " \"transports\": {\"gds\": {\"io_batch_depth\": null}}}",
         9, 0, YOLK_OK},
        {"{\"transports/gds/io_batch_depth\": 0, \"transports\": {\"gds\": {\"enable\": true,"
         " \"io_batch_depth\": 2}}}",
         0, 0, YOLK_ERR_CONFIG},
    };
    assert_int_equal(setenv("MOONCAKE_GDS_OFFLOAD_ENABLED", "1", 1), 0);
    assert_int_equal(setenv("MOONCAKE_GDS_OFFLOAD_PATH", "/file", 1), 0);
    assert_int_equal(setenv("MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES", "1GiB", 1), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char variable[512], off[COMPAT_OFF_MAX];
        char *environment[] = {variable, NULL};
        struct base_config config;
        struct yolk_engine_options engine;
        struct yolk_store_options store;
        snprintf(variable, sizeof(variable), "MC_TENT_CONF=%s", rows[i].conf);
        assert_int_equal(setenv("MC_TENT_CONF", rows[i].conf, 1), 0);
        yolk_store_options_init(&store);
        assert_int_equal(yolk_store_options_environment(&store), rows[i].status);
        assert_int_equal(compat_engine_config(NULL, true, environment, &config), rows[i].status);
        if (rows[i].status == YOLK_OK) {
            compat_engine_options(&config, off, &engine);
            assert_int_equal(store.gds_io_batch_depth, rows[i].depth);
            assert_int_equal(engine.transport.gds_batch_depth, rows[i].depth);
            assert_int_equal(engine.transport.gds_enable, 1);
            assert_int_equal(store.gds_no_io_uring, rows[i].no_uring);
            assert_string_equal(off, rows[i].no_uring ? "io_uring" : "");
        }
        base_config_free(&config);
    }
}

static void figures_are_served_where_asked(void **state)
{
    (void)state;
    static const struct {
        const char *conf, *variable;
        const char *wanted; /* NULL: not served */
    } ROWS[] = {
        {"{}", NULL, NULL},
        {"{\"metrics\": {\"enabled\": true}}", NULL, "127.0.0.1:9100"},
        {"{\"metrics\": {\"http_port\": 9200}}", NULL, "127.0.0.1:9200"},
        {"{\"metrics\": {\"enabled\": false, \"http_port\": 9200}}", NULL, NULL},
        {"{\"metrics\": {\"enabled\": true, \"http_host\": \"0.0.0.0\"}}", NULL, "0.0.0.0:9100"},
        {"{\"metrics\": {\"enabled\": true, \"http_host\": \"::1\"}}", NULL, "[::1]:9100"},
        {"{\"metrics/http_port\": 9200}", NULL, "127.0.0.1:9200"},
        {"{}", "TENT_METRICS_ENABLED=1", "127.0.0.1:9100"},
        {"{}", "TENT_METRICS_HTTP_PORT=9300", "127.0.0.1:9300"},
        {"{\"metrics\": {\"enabled\": true}}", "TENT_METRICS_ENABLED=false", NULL},
        {"{\"metrics\": {\"http_port\": 9200}}", "TENT_METRICS_HTTP_HOST=h", "h:9200"},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        char conf[256], variable[64], out[128];
        struct base_config config;
        snprintf(conf, sizeof(conf), "MC_TENT_CONF=%s", ROWS[i].conf);
        snprintf(variable, sizeof(variable), "%s", ROWS[i].variable ? ROWS[i].variable : "X=");
        char *environment[] = {conf, variable, NULL};
        listen_to_log();
        (void)options_of(NULL, environment, &config);
        base_log_set(NULL, NULL);
        bool served = compat_engine_figures(&config, out, sizeof(out));
        if (served != (ROWS[i].wanted != NULL) || (served && strcmp(out, ROWS[i].wanted) != 0))
            fail_msg("%s and %s: %s", ROWS[i].conf, variable, served ? out : "not served");
        assert_string_equal(logged, "");
        base_config_free(&config);
    }
}

static void c157_what_is_in_force_is_said(void **state)
{
    (void)state;
    enum base_log_level before = base_log_level();
    char *environment[] = {"MC_LOG_LEVEL=ERROR", NULL};
    char *conf[] = {"MC_TENT_CONF={\"log_level\": \"warning\"}", NULL};
    struct base_config config;
    (void)options_of(NULL, environment, &config);
    assert_int_equal(base_log_level(), LOG_LEVEL_ERROR);
    base_config_free(&config);
    (void)options_of(NULL, conf, &config);
    assert_int_equal(base_log_level(), LOG_LEVEL_WARN);
    base_config_free(&config);
    /* What is in force, and where it came from, is said; a secret is not. */
    char *all[] = {"MC_LOG_LEVEL=info", "MC_REDIS_PASSWORD=geheim", "MC_RETRY_CNT=7",
                   "MC_TENT_CONF={\"redis_db_index\": 5, \"max_failover_attempts\": 6}", NULL};
    listen_to_log();
    (void)options_of(NULL, all, &config);
    base_log_set(NULL, NULL);
    assert_non_null(strstr(logged, "setting redis-db-index = 5 (file)"));
    assert_non_null(strstr(logged, "setting max-failover-attempts = 7 (environment)"));
    assert_non_null(strstr(logged, "setting merge-requests = true (default)"));
    assert_non_null(strstr(logged, "setting redis-password = (hidden) (environment)"));
    assert_null(strstr(logged, "geheim"));
    base_config_free(&config);
    base_log_set_level(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_key_acts),
        cmocka_unit_test(precedence),
        cmocka_unit_test(json_in_the_environment),
        cmocka_unit_test(wrong_ones_are_named),
        cmocka_unit_test(devices_of_the_topology),
        cmocka_unit_test(without_effect_is_said_once),
        cmocka_unit_test(gds_is_set_by_its_keys),
        cmocka_unit_test(the_store_reads_it_alike),
        cmocka_unit_test(figures_are_served_where_asked),
        cmocka_unit_test(c157_what_is_in_force_is_said),
    };
    return cmocka_run_group_tests_name("compat.engine_config", tests, NULL, NULL);
}
