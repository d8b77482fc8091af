/* SPDX-License-Identifier: Apache-2.0 */
/* Dummy clients in processes of their own, beside a real client with the memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

#include "base/limits.h"
#include "platform/clock.h"
#include "served_master.h"

enum { SIZE = 256 * 1024, TIMEOUT_S = 120 };

static void fill(uint8_t *to, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 7);
}

static int is_filled(const uint8_t *from, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        if (from[i] != (uint8_t)((i * 2654435761u + seed * 40503u) >> 7))
            return 0;
    return 1;
}

/* ---- the other process: it says what was wrong by its exit code ---- */

static int dummy_opens(const char *address, struct yolk_store **store)
{
    struct yolk_store_options options;
    yolk_store_options_init(&options);
    options.real_client = address;
    options.pool_size_bytes = 4 * SIZE;
    if (yolk_store_open(&options, store) == YOLK_OK)
        return 1;
    fprintf(stderr, "dummy: %s\n", yolk_last_error());
    return 0;
}

static int dummy_works(const char *address)
{
    struct yolk_store *store = NULL;
    void *in = NULL, *out = NULL;
    char *route = NULL;
    if (!dummy_opens(address, &store))
        return 10;
    if (yolk_store_pool_alloc(store, SIZE, &in) != YOLK_OK ||
        yolk_store_pool_alloc(store, SIZE, &out) != YOLK_OK)
        return 11;
    fill(in, SIZE, 1);
    struct yolk_slice slice = {in, SIZE};
    struct yolk_kv kv = {"from the dummy", 14, &slice, 1, 0, 0};
    if (yolk_store_put(store, &kv, 1) != YOLK_OK)
        return 12;
    slice.ptr = out;
    kv = (struct yolk_kv){"from the real one", 17, &slice, 1, 0, 0};
    if (yolk_store_get(store, &kv, 1) != YOLK_OK || kv.result != SIZE || !is_filled(out, SIZE, 2))
        return 13;
    if (yolk_store_describe_route(store, "from the real one", 17, &route) != YOLK_OK ||
        strstr(route, "shm") == NULL)
        return 14; /* not by shared memory */
    struct yolk_buffer buffer;
    if (yolk_store_get_buffer(store, "from the real one", 17, &buffer) != YOLK_OK ||
        !buffer.mapped || !is_filled(buffer.data, SIZE, 2))
        return 15;
    yolk_store_release_buffer(store, &buffer);
    free(route);
    return yolk_store_close(store) == YOLK_OK ? 0 : 16;
}

static int dummy_of_a_tenant(const char *address)
{
    struct yolk_store *store = NULL;
    char byte = 0;
    if (!dummy_opens(address, &store))
        return 20;
    struct yolk_slice slice = {&byte, 1};
    struct yolk_kv kv = {"own", 3, &slice, 1, 0, 0};
    if (yolk_store_get(store, &kv, 1) != YOLK_OK || byte != 'x')
        return 21;
    return yolk_store_close(store) == YOLK_OK ? 0 : 22;
}

/* Memory of its own, which is in no segment that was mapped beforehand: malloc'd, mapped, and on
 * the stack, each registered, the last one not. */
static int dummy_registers_its_own_memory(const char *address)
{
    struct yolk_store *store = NULL;
    uint8_t on_stack[1000];
    uint8_t *first = malloc(SIZE), *second = malloc(SIZE + 13);
    if (!dummy_opens(address, &store) || first == NULL || second == NULL)
        return 30;
    if (yolk_store_register_buffer(store, first, SIZE) != YOLK_OK ||
        yolk_store_register_buffer(store, second, SIZE + 13) != YOLK_OK)
        return 31;
    fill(first, SIZE, 41);
    struct yolk_slice slice = {first, SIZE};
    struct yolk_kv kv = {"c41", 3, &slice, 1, 0, 0};
    if (yolk_store_put(store, &kv, 1) != YOLK_OK)
        return 32;
    slice.ptr = second + 13;
    if (yolk_store_get(store, &kv, 1) != YOLK_OK || kv.result != SIZE ||
        !is_filled(second + 13, SIZE, 41))
        return 33;
    fill(on_stack, sizeof(on_stack), 42);
    slice = (struct yolk_slice){on_stack, sizeof(on_stack)};
    kv = (struct yolk_kv){"c41 too", 7, &slice, 1, 0, 0};
    if (yolk_store_put(store, &kv, 1) != YOLK_OK)
        return 34;
    memset(on_stack, 0, sizeof(on_stack));
    if (yolk_store_get(store, &kv, 1) != YOLK_OK || !is_filled(on_stack, sizeof(on_stack), 42))
        return 35;
    if (yolk_store_unregister_buffer(store, first) != YOLK_OK ||
        yolk_store_unregister_buffer(store, second) != YOLK_OK)
        return 36;
    free(first);
    free(second);
    return yolk_store_close(store) == YOLK_OK ? 0 : 37;
}

/* Before there are threads here: the child gets the address by a pipe and goes its way. */
static pid_t start_child(int (*run)(const char *address), int *to)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char address[64] = "";
        close(fds[1]);
        (void)alarm(TIMEOUT_S);
        if (read(fds[0], address, sizeof(address) - 1) <= 0)
            _exit(99);
        _exit(run(address));
    }
    close(fds[0]);
    *to = fds[1];
    return child;
}

static void let_child_run(pid_t child, int to, uint16_t port)
{
    char address[64];
    int status = 0;
    int size = snprintf(address, sizeof address, "127.0.0.1:%u", port);
    assert_int_equal(write(to, address, (size_t)size), size);
    close(to);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- this process: a master, and the real client ---- */

static void master_start(struct master *master)
{
    struct master_config config;
    master_config_default(&config);
    config.tenants = "team=64MiB";
    master_start_with(master, &config);
}

static struct yolk_store *open_real(const struct master *master, const char *tenant, uint16_t *port)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = master->address;
    options.segment_size_bytes = 16 * MIB;
    options.tenant_id = tenant;
    if (yolk_store_open(&options, &store) != YOLK_OK)
        fail_msg("open: %s", yolk_last_error());
    assert_int_equal(yolk_store_serve_clients(store, "127.0.0.1:0", port), YOLK_OK);
    assert_true(*port != 0);
    assert_int_equal(yolk_store_serve_clients(store, "127.0.0.1:0", port), YOLK_ERR_EXISTS);
    return store;
}

static void bytes_go_through_shared_memory(void **state)
{
    (void)state;
    int to;
    pid_t child = start_child(dummy_works, &to);
    struct master master = {.address = ""};
    uint16_t port = 0;
    master_start(&master);
    struct yolk_store *store = open_real(&master, NULL, &port);
    uint8_t *value = malloc(SIZE);
    fill(value, SIZE, 2);
    struct yolk_slice slice = {value, SIZE};
    struct yolk_kv kv = {"from the real one", 17, &slice, 1, 0, 0};
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    let_child_run(child, to, port);
    memset(value, 0, SIZE);
    kv = (struct yolk_kv){"from the dummy", 14, &slice, 1, 0, 0};
    assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
    assert_true(is_filled(value, SIZE, 1));
    free(value);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    master_stop(&master);
}

static void c41_a_dummy_registers_its_own_memory(void **state)
{
    (void)state;
    int to;
    pid_t child = start_child(dummy_registers_its_own_memory, &to);
    struct master master = {.address = ""};
    uint16_t port = 0;
    master_start(&master);
    struct yolk_store *store = open_real(&master, NULL, &port);
    let_child_run(child, to, port);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    master_stop(&master);
}

/* It is of its real client's tenant, if it names none. */
static void a_dummy_is_of_its_real_clients_tenant(void **state)
{
    (void)state;
    int to;
    pid_t child = start_child(dummy_of_a_tenant, &to);
    struct master master = {.address = ""};
    uint16_t port = 0;
    master_start(&master);
    struct yolk_store *store = open_real(&master, "team", &port);
    struct yolk_slice slice = {"x", 1};
    struct yolk_kv kv = {"own", 3, &slice, 1, 0, 0};
    assert_int_equal(yolk_store_put(store, &kv, 1), YOLK_OK);
    let_child_run(child, to, port);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    master_stop(&master);
}

/* Says who does not answer, within the time that was given. */
static void without_a_real_client(void **state)
{
    (void)state;
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.real_client = "127.0.0.1:1"; /* nobody listens there */
    options.timeout_ms = options.put_wait_ms = 300;
    uint64_t begun = clock_real_now_ns();
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_REFUSED);
    assert_true(clock_real_now_ns() - begun < 20 * NS_PER_S);
    assert_non_null(strstr(yolk_last_error(), "the real client at 127.0.0.1:1"));
    options.segment_size_bytes = MIB;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "real_client"));
    options.segment_size_bytes = 0;
    options.master = "127.0.0.1:2";
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_through_shared_memory),
        cmocka_unit_test(c41_a_dummy_registers_its_own_memory),
        cmocka_unit_test(a_dummy_is_of_its_real_clients_tenant),
        cmocka_unit_test(without_a_real_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
