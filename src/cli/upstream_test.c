/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/upstream.h"
#include "platform/temporary_kit.h"

static const struct cli_command master = {"mooncake_master", "", "", COMMAND_MASTER};
static const struct cli_command client = {"mooncake_client", "", "", COMMAND_NODE};

/* Space-separated arguments ('~' stands for a space in one); what was said is in `said`. */
static char said[16384];

static bool parse(const struct cli_command *command, const char *text, struct base_config *config,
                  int *code)
{
    char copy[1024], *arguments[32], *rest = copy, *word;
    int count = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    while ((word = strsep(&rest, " ")))
        if (word[0]) {
            for (char *p = word; *p; p++)
                *p = *p == '~' ? ' ' : *p;
            arguments[count++] = word;
        }
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    fflush(stderr);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    bool go = upstream_parse(command, command == &master ? UPSTREAM_MASTER : UPSTREAM_CLIENT, count,
                             arguments, config, code);
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    return go;
}

static void check_good(const struct cli_command *command, const char *text,
                       struct base_config *config)
{
    int code;
    if (!parse(command, text, config, &code))
        fail_msg("refused: %s: %s", text, said);
}

static void check_refused(const struct cli_command *command, const char *text, const char *part)
{
    struct base_config config;
    int code = -1;
    if (parse(command, text, &config, &code))
        fail_msg("not refused: %s", text);
    assert_int_equal(code, CLI_USAGE);
    if (!strstr(said, part))
        fail_msg("%s: \"%s\" is not in: %s", text, part, said);
}

static void test_master_defaults(void **state)
{
    (void)state;
    struct base_config config;
    check_good(&master, "", &config);
    assert_string_equal(said, "");
    assert_string_equal(base_config_string(&config, SET_LISTEN), "0.0.0.0:50051");
    assert_string_equal(base_config_string(&config, SET_METRICS_LISTEN), "0.0.0.0:9003");
    assert_string_equal(base_config_string(&config, SET_METADATA_LISTEN), "");
    assert_true(base_config_ratio(&config, SET_EVICTION_HIGH) > 0.899 &&
                base_config_ratio(&config, SET_EVICTION_HIGH) < 0.901);
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 10000);
    assert_int_equal(base_config_u64(&config, SET_SESSION_TTL), 10000);
    base_config_free(&config);
}

static void test_master_flags(void **state)
{
    (void)state;
    struct base_config config;
    check_good(
        &master,
        "-port 1 --rpc_port=2 --rpc_address 127.0.0.1 --metrics_port 3 -default_kv_lease_ttl 5s "
        "--client_ttl=1 --put_start_discard_timeout_sec 7 --eviction_ratio=.1 "
        "--enable_http_metadata_server --http_metadata_server_port=4 -v=0 --lease-ttl=6s "
        "--max-objects 8",
        &config);
    assert_string_equal(said, "");
    assert_int_equal(base_config_u64(&config, SET_LISTEN_PORT), 2);
    assert_string_equal(base_config_string(&config, SET_LISTEN_HOST), "127.0.0.1");
    assert_string_equal(base_config_string(&config, SET_METRICS_LISTEN), "0.0.0.0:3");
    assert_string_equal(base_config_string(&config, SET_METADATA_LISTEN), "0.0.0.0:4");
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 5000);
    assert_int_equal(base_config_u64(&config, SET_SESSION_TTL), 1000);
    assert_int_equal(base_config_u64(&config, SET_HEARTBEAT), 200);
    assert_int_equal(base_config_u64(&config, SET_PUT_TIMEOUT), 7000);
    assert_int_equal(base_config_u64(&config, SET_MAX_OBJECTS), 8);
    base_config_free(&config);
    check_good(&master, "-v=1", &config);
    assert_string_equal(base_config_string(&config, SET_LOG_LEVEL), "info");
    base_config_free(&config);
    check_good(&master, "--port=5 --rpc_port=0 --default_kv_lease_ttl=5000", &config);
    assert_int_equal(base_config_u64(&config, SET_LISTEN_PORT), 5);
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 5000);
    base_config_free(&config);
}

static unsigned lines(const char *text)
{
    unsigned count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* One warning a flag, with a reason; none for the value that is so anyway. */
static void test_warnings(void **state)
{
    (void)state;
    struct base_config config;
    check_good(&master, "--enable_ha --enable_ha=1 --rpc_thread_num=16", &config);
    base_config_free(&config);
    assert_int_equal(lines(said), 2);
    assert_non_null(strstr(said, "mooncake_master: warning: --enable_ha (true) has no effect: "));
    assert_non_null(strstr(said, "--rpc_thread_num (16) has no effect: "));
    check_good(&master,
               "--noenable_ha --rpc_enable_tcp_no_delay --memory_allocator=offset --logtostderr",
               &config);
    base_config_free(&config);
    assert_string_equal(said, "");
    /* As its log library does, from the environment too; the command line is stronger. */
    setenv("GLOG_v", "2", 1);
    setenv("GLOG_logtostderr", "1", 1);
    check_good(&master, "", &config);
    assert_null(strstr(said, "warning:"));
    assert_string_equal(base_config_string(&config, SET_LOG_LEVEL), "debug");
    base_config_free(&config);
    check_good(&master, "-v=0 --minloglevel=2", &config);
    assert_string_equal(base_config_string(&config, SET_LOG_LEVEL), "error");
    base_config_free(&config);
    unsetenv("GLOG_v");
    unsetenv("GLOG_logtostderr");
    check_good(&client, "--protocol=rdma --device_names=mlx5_0", &config);
    assert_string_equal(base_config_string(&config, SET_TRANSPORT), "auto");
    base_config_free(&config);
    assert_int_equal(lines(said), 2);
    assert_non_null(strstr(said, "no RDMA device"));
}

/* Each row can be given, and says something about itself when nothing comes of it. */
static void test_every_flag(void **state)
{
    (void)state;
    for (size_t i = 0; i < upstream_flag_count; i++) {
        const struct upstream_flag *flag = &upstream_flags[i];
        const struct cli_command *command = flag->programs & UPSTREAM_MASTER ? &master : &client;
        char text[256];
        struct base_config config;
        int code = -1;
        assert_ptr_equal(upstream_flag_find(flag->name, flag->programs & 1 ? 1 : 2), flag);
        assert_true(strlen(flag->text) > 5);
        assert_int_equal(flag->use == UPSTREAM_SETS, flag->setting != SET_COUNT);
        if (flag->use != UPSTREAM_IDLE)
            continue;
        static const char *const odd[] = {"true", "12345", "0.5", "odd", "77s", "77MiB"};
        snprintf(text, sizeof(text), "--%s=%s", flag->name, odd[flag->type]);
        bool harmless = upstream_flag_is_harmless(flag, odd[flag->type]);
        if (!parse(command, text, &config, &code))
            fail_msg("%s: %s", text, said);
        base_config_free(&config);
        assert_int_equal(lines(said), harmless ? 0 : 1);
    }
}

static void test_client(void **state)
{
    (void)state;
    struct base_config config;
    check_good(&client, "", &config);
    assert_int_equal(base_config_u64(&config, SET_SEGMENT_SIZE), 4ull << 30);
    assert_string_equal(base_config_string(&config, SET_HOST), "");
    assert_string_equal(base_config_string(&config, SET_MASTER), "127.0.0.1:50051");
    base_config_free(&config);
    check_good(&client,
               "--host 10.0.0.1 --global_segment_size 1.5~gb --master_server_address=m:1 "
               "--protocol tcp --enable_http_server --http_port=9 --metadata_server=P2PHANDSHAKE",
               &config);
    assert_string_equal(said, "");
    assert_int_equal(base_config_u64(&config, SET_SEGMENT_SIZE), 3ull << 29);
    assert_string_equal(base_config_string(&config, SET_HOST), "10.0.0.1");
    assert_string_equal(base_config_string(&config, SET_MASTER), "m:1");
    assert_string_equal(base_config_string(&config, SET_TRANSPORT), "auto");
    assert_string_equal(base_config_string(&config, SET_HTTP_LISTEN), "0.0.0.0:9");
    base_config_free(&config);
}

static void test_offload(void **state)
{
    (void)state;
    struct base_config config;
    check_refused(&client, "--enable_offload", "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH");
    setenv("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "/x/y", 1);
    check_refused(&client, "--enable_offload", "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES");
    setenv("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", "1048576", 1);
    check_good(&client, "--enable_offload", &config);
    assert_string_equal(said, "");
    assert_int_equal(base_config_u64(&config, SET_SSD), 1048576);
    assert_string_equal(base_config_string(&config, SET_SSD_PATH), "/x/y");
    base_config_free(&config);
    check_good(&client, "", &config);
    assert_int_equal(base_config_u64(&config, SET_SSD), 0);
    base_config_free(&config);
    unsetenv("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH");
    unsetenv("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES");
}

static void test_refusals(void **state)
{
    (void)state;
    check_refused(&master, "--rcp_port=1", "did you mean --rpc_port");
    check_refused(&master, "--prot=1", "unknown flag --prot; did you mean --port\n");
    check_refused(&master, "--lease_tll=1", "--lease-ttl");
    check_refused(&master, "--qqqqqqqqqqqq", "unknown flag --qqqqqqqqqqqq\n");
    check_refused(&master, "--rpc_port=x", "--rpc_port: \"x\": must be a number");
    check_refused(&master, "--metrics_port=70000", "must be from 0 to 65535");
    check_refused(&master, "--client_ttl=1.5", "must be a whole number of seconds");
    check_refused(&master, "--default_kv_lease_ttl=1.5", "must be a whole number of milliseconds");
    check_refused(&master, "--eviction_high_watermark_ratio=0", "eviction-ratio is 0.05: must not");
    check_refused(&master, "--eviction_ratio=2", "--eviction_ratio");
    check_refused(&master, "--enable_ha=maybe", "--enable_ha");
    check_refused(&master, "--global_segment_size=1", "unknown flag");
    check_refused(&master, "--rpc_interface=nosuch0", "nosuch0");
    check_refused(&client, "--global_segment_size=4~XB", "must be a size");
    check_refused(&client, "--global_segment_size=1e400", "must be a size");
    check_refused(&client, "--global_segment_size=-1", "must be a size");
    check_refused(&client, "--protocol=ascend", "must be tcp, rdma, shm or auto");
    check_refused(&master, "word", "\"word\": no argument is expected");
}

static void test_files(void **state)
{
    (void)state;
    char yaml[TEMPORARY_MAX] = "yolk-upstream-XXXXXX.yaml",
         json[TEMPORARY_MAX] = "yolk-upstream-XXXXXX.json";
    char text[128];
    struct base_config config;
    int fd = mkstemps(temporary_path(yaml), 5);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "rpc_port: 7\nrpc-address: 127.0.0.2\nclient_live_ttl_sec: 30\n"
                            "enable_ha: true\nlease-ttl: 3s\nspin: 9\n") > 0);
    close(fd);
    snprintf(text, sizeof(text), "--config_path=%s --rpc_port=8", yaml);
    check_good(&master, text, &config);
    assert_int_equal(lines(said), 1);
    assert_non_null(strstr(said, "enable_ha (true) has no effect"));
    assert_int_equal(base_config_u64(&config, SET_LISTEN_PORT), 8);
    assert_string_equal(base_config_string(&config, SET_LISTEN_HOST), "127.0.0.2");
    assert_int_equal(base_config_u64(&config, SET_SESSION_TTL), 30000);
    assert_int_equal(base_config_u64(&config, SET_LEASE_TTL), 3000);
    assert_int_equal(base_config_u64(&config, SET_SPIN), 9);
    base_config_free(&config);
    assert_int_equal(unlink(yaml), 0);
    fd = mkstemps(temporary_path(json), 5);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "{\"default_kv_lease_ttl\": 5000, \"rcp_port\": 1}") > 0);
    close(fd);
    snprintf(text, sizeof(text), "--config_path %s", json);
    check_refused(&master, text, "rcp_port is unknown; did you mean --rpc_port");
    fd = open(json, O_WRONLY | O_TRUNC);
    assert_true(dprintf(fd, "{\"config_path\": \"/another\"}") > 0);
    close(fd);
    check_refused(&master, text, "config_path: a configuration names no other one");
    assert_int_equal(unlink(json), 0);
    check_refused(&master, text, json);
}

/* The keys and values of the file that comes with Mooncake: it starts, and only what is not as it
 * says is warned of. */
static void test_shipped_file(void **state)
{
    (void)state;
    static const char content[] =
        "enable_metric_reporting: true\nmetrics_port: 9003\nrpc_port: 50051\nrpc_thread_num: 16\n"
        "rpc_address: \"0.0.0.0\"\nrpc_interface: \"\"\nrpc_conn_timeout_seconds: 0\n"
        "rpc_enable_tcp_no_delay: true\ndefault_kv_lease_ttl: 10000\n"
        "default_kv_soft_pin_ttl: 1800000\nmax_kv_soft_pin_ttl: 86400000\n"
        "allow_evict_soft_pinned_objects: true\neviction_ratio: 0.1\n"
        "eviction_high_watermark_ratio: 1.0\ntenant_eviction_high_watermark_ratio: 0.9\n"
        "dynamic_replication_mode: \"off\"\ndynamic_replication_heat_window_seconds: 10\n"
        "enable_multi_tenants: false\ntenant_quota_connector_type: \"file\"\n"
        "tenant_quota_connector_uri: \"\"\nenable_ha: false\n"
        "etcd_endpoints: \"http://localhost:2379\"\nroot_fs_dir: \"\"\n"
        "cluster_id: \"mooncake_cluster\"\nmemory_allocator: \"offset\"\n"
        "client_active_ttl_sec: 60\nclient_suspicion_ttl_sec: 60\nenable_oplog: false\n"
        "weight_management_oplog_capability_confirmed: false\nenable_oplog_snapshot: false\n"
        "snapshot_chunk_object_count: 1000000\noplog_poll_interval_ms: 1000\n"
        "batch_oplog_retry_timeout_sec: 180\nenable_http_metadata_server: false\n"
        "http_metadata_server_host: \"0.0.0.0\"\nhttp_metadata_server_port: 8080\n";
    char path[TEMPORARY_MAX] = "yolk-upstream-XXXXXX.yaml", text[128];
    struct base_config config;
    int fd = mkstemps(temporary_path(path), 5);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, sizeof(content) - 1), sizeof(content) - 1);
    close(fd);
    snprintf(text, sizeof(text), "--config_path=%s", path);
    check_good(&master, text, &config);
    assert_int_equal(lines(said), 1);
    assert_non_null(strstr(said, "rpc_thread_num (16)"));
    assert_int_equal(base_config_u64(&config, SET_SESSION_TTL), 60000);
    assert_string_equal(base_config_string(&config, SET_LISTEN_HOST), "0.0.0.0");
    assert_string_equal(base_config_string(&config, SET_METADATA_LISTEN), "");
    base_config_free(&config);
    assert_int_equal(unlink(path), 0);
}

static void test_page_is_current(void **state)
{
    (void)state;
    struct base_buf text, page;
    char piece[4096];
    size_t got;
    base_buf_init(&text, 1 << 20);
    base_buf_init(&page, 1 << 20);
    assert_int_equal(upstream_markdown(&text), YOLK_OK);
    FILE *file = fopen(YOLK_SOURCE_DIR "/docs/programs.md", "re");
    assert_non_null(file);
    while ((got = fread(piece, 1, sizeof(piece), file)) > 0)
        assert_int_equal(base_buf_append(&page, piece, got), YOLK_OK);
    fclose(file);
    /* Else: build/yolk config programs >docs/programs.md */
    assert_int_equal(page.size, text.size);
    assert_memory_equal(page.data, text.data, text.size);
    base_buf_free(&text);
    base_buf_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_master_defaults), cmocka_unit_test(test_master_flags),
        cmocka_unit_test(test_warnings),        cmocka_unit_test(test_every_flag),
        cmocka_unit_test(test_client),          cmocka_unit_test(test_offload),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_files),
        cmocka_unit_test(test_page_is_current), cmocka_unit_test(test_shipped_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
