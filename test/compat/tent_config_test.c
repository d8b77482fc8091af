/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's configuration as programs see it. What each key becomes and which source holds is tested
 * beside src/compat/engine_config.c. */
#include "platform/temporary_kit.h"
#include "tent/transfer_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[TEMPORARY_MAX] = "yolk-tent-config-XXXXXX";

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* Whether the next engine of this thread has posix. */
static int next_has_posix(void)
{
    tent_engine_t engine = tent_create_engine();
    assert_non_null(engine);
    int has = tent_has_transport(engine, "posix");
    assert_true(has || strstr(tent_last_error(), "turned off") != NULL);
    tent_destroy_engine(engine);
    return has;
}

static void a_file_is_read(void **state)
{
    (void)state;
    write_file("{\"transports\": {\"posix\": {\"enable\": false}}}");
    tent_load_config_from_file(path);
    assert_int_equal(next_has_posix(), 0);
    write_file("{\"transports/posix/enable\": false}");
    tent_load_config_from_file(path);
    tent_set_config("transports/posix/enable", "true"); /* goes before the file */
    assert_int_equal(next_has_posix(), 1);
}

static void settings_are_of_one_engine(void **state)
{
    (void)state;
    tent_set_config("transports/posix/enable", "false");
    assert_int_equal(next_has_posix(), 0);
    assert_int_equal(next_has_posix(), 1);
    write_file("{\"transports/posix/enable\": false}");
    tent_load_config_from_file(path);
    assert_int_equal(next_has_posix(), 0);
    assert_int_equal(next_has_posix(), 1);
    /* Also if none came of them. */
    tent_set_config("transports/posix/enable", "false");
    tent_set_config("max_failover_attempts", "often");
    assert_null(tent_create_engine());
    assert_int_equal(next_has_posix(), 1);
}

static void *another_thread(void *has)
{
    *(int *)has = next_has_posix();
    tent_set_config("transports/posix/enable", "true"); /* goes with the thread */
    return NULL;
}

static void settings_are_of_one_thread(void **state)
{
    (void)state;
    pthread_t thread;
    int has = 0;
    tent_set_config("transports/posix/enable", "false");
    assert_int_equal(pthread_create(&thread, NULL, another_thread, &has), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(has, 1);
    assert_int_equal(next_has_posix(), 0);
}

static void wrong_ones_make_no_engine(void **state)
{
    (void)state;
    write_file("{\"merge_requests\": maybe}");
    tent_load_config_from_file(path);
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), path));
    assert_non_null(strstr(tent_last_error(), "line 1, column 20"));
    tent_load_config_from_file("/no/such/file");
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), "/no/such/file"));
    FILE *large = fopen(path, "we");
    for (size_t i = 0; i < (1 << 20) + 1; i++)
        assert_int_equal(fputc(' ', large), ' ');
    assert_int_equal(fclose(large), 0);
    const char *const refused[][2] = {{path, "has more than 1048576 bytes"},
                                      {"/dev/zero", "neither a file nor a pipe"}};
    for (size_t i = 0; i < 2; i++) {
        tent_load_config_from_file(refused[i][0]);
        assert_null(tent_create_engine());
        assert_non_null(strstr(tent_last_error(), refused[i][0]));
        assert_non_null(strstr(tent_last_error(), refused[i][1]));
    }
    /* TENT: an engine whose queue lets nothing through is none. */
    tent_set_config("runtime_queue/max_dispatch_owners", "0");
    assert_null(tent_create_engine());
    tent_set_config("metadata_type", "http");
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), "metadata_servers is empty"));
    tent_set_config("metadata_type", "etcd");
    tent_set_config("metadata_servers", "redis://127.0.0.1");
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), "etcd://"));
    tent_set_config("rpc_server_hostname", "no such host at all");
    assert_null(tent_create_engine());
    tent_set_config("transports/loop/enable", "false");
    tent_set_config("transports/io_uring/enable", "false");
    tent_set_config("transports/posix/enable", "false");
    tent_set_config("transports/tcp/enable", "false");
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), "tcp: it is turned off"));
}

static void who_it_is(void **state)
{
    (void)state;
    char name[64], address[64], port_text[16];
    uint16_t port = 0, same = 0;
    tent_set_config("rpc_server_hostname", "127.0.0.2");
    tent_engine_t engine = tent_create_engine();
    assert_non_null(engine);
    assert_int_equal(tent_rpc_server_addr_port(engine, address, sizeof(address), &port), 0);
    assert_string_equal(address, "127.0.0.2");
    tent_destroy_engine(engine);
    snprintf(port_text, sizeof(port_text), "%u", port); /* given back a moment ago */
    tent_set_config("rpc_server_hostname", "127.0.0.2");
    tent_set_config("rpc_server_port", port_text);
    engine = tent_create_engine();
    assert_non_null(engine);
    assert_int_equal(tent_rpc_server_addr_port(engine, address, sizeof(address), &same), 0);
    assert_int_equal(same, port);
    /* Taken: the text names it. */
    tent_set_config("rpc_server_hostname", "127.0.0.2");
    tent_set_config("rpc_server_port", port_text);
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), port_text));
    assert_int_equal(tent_segment_name(engine, name, sizeof(name)), 0);
    assert_memory_equal(name, "127.0.0.2:", 10);
    tent_destroy_engine(engine);
}

static void the_environment(void **state)
{
    (void)state;
    char address[64];
    uint16_t port;
    write_file("{\"transports/posix/enable\": false, \"rpc_server_hostname\": \"127.0.0.3\"}");
    assert_int_equal(setenv("MC_TENT_CONF", path, 1), 0);
    assert_int_equal(next_has_posix(), 0);
    tent_set_config("transports/posix/enable", "true"); /* its place is taken */
    assert_int_equal(next_has_posix(), 0);
    tent_set_config("rpc_server_hostname", "127.0.0.4"); /* but for who it is */
    tent_engine_t engine = tent_create_engine();
    assert_int_equal(tent_rpc_server_addr_port(engine, address, sizeof(address), &port), 0);
    assert_string_equal(address, "127.0.0.4");
    tent_destroy_engine(engine);
    assert_int_equal(setenv("MOONCAKE_LOCAL_HOSTNAME", "127.0.0.5", 1), 0);
    engine = tent_create_engine();
    assert_int_equal(tent_rpc_server_addr_port(engine, address, sizeof(address), &port), 0);
    assert_string_equal(address, "127.0.0.5");
    tent_destroy_engine(engine);
    assert_int_equal(setenv("MC_TENT_CONF", "{\"transports\": 5}", 1), 0);
    engine = tent_create_engine(); /* an unknown key is a warning */
    assert_non_null(engine);
    tent_destroy_engine(engine);
    assert_int_equal(setenv("MC_TENT_CONF", "no file, no JSON", 1), 0);
    assert_null(tent_create_engine());
    assert_int_equal(unsetenv("MC_TENT_CONF"), 0);
    assert_int_equal(unsetenv("MOONCAKE_LOCAL_HOSTNAME"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(settings_are_of_one_engine),
        cmocka_unit_test(settings_are_of_one_thread),
        cmocka_unit_test(wrong_ones_make_no_engine),
        cmocka_unit_test(who_it_is),
        cmocka_unit_test(the_environment),
    };
    int fd = mkstemp(temporary_path(path));
    if (fd < 0)
        return 1;
    close(fd);
    int failures = cmocka_run_group_tests_name("compat.tent_config", tests, NULL, NULL);
    remove(path);
    return failures;
}
