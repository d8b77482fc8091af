/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of one process with memory and disk, and a client over TCP of a master and a node in
 * another process, in which calls of the C library and the kernel fail. Each call of the store
 * ends, rightly or with a reason; afterwards the store works again, its books are right, and
 * nothing was lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include <yolk/store.h>

#include "platform/loop.h"
#include "platform/temporary_kit.h"
#include "server/server.h"
#include "walk.h"

enum {
    SIZE = 40000,
    BATCH = 8,
    MEMORY = 1 << 20,
    DISK = 8 << 20,
    MANY = 40, /* values of SIZE: more than MEMORY */
    PATIENCE_MS = 20000,
};
enum { ALL_KINDS = (1 << FAULT_KINDS) - 1 };

static struct {
    char folder[TEMPORARY_MAX], path[2 * TEMPORARY_MAX];
    bool with_disk, remote;
    char master[64]; /* of the other process */
    int other_stops; /* closing it ends that process */
    pid_t other;
    struct yolk_store *store;
    enum yolk_status status;
    uint8_t *memory; /* BATCH values and one more */
    struct yolk_slice slices[BATCH];
    struct yolk_kv kvs[BATCH];
    char keys[BATCH][16];
    uint64_t number;
    struct yolk_buffer buffer;
} world;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void fill(uint8_t *to, unsigned k)
{
    for (size_t i = 0; i < SIZE; i++)
        to[i] = (uint8_t)(i * 7 + i / 251 + k * 13);
}

static bool is_filled(const uint8_t *from, unsigned k)
{
    for (size_t i = 0; i < SIZE; i++)
        if (from[i] != (uint8_t)(i * 7 + i / 251 + k * 13))
            return false;
    return true;
}

/* The keys from..from+BATCH, each with its own part of the memory. */
static void set_batch(unsigned from)
{
    for (unsigned i = 0; i < BATCH; i++) {
        snprintf(world.keys[i], sizeof(world.keys[i]), "key%u", from + i);
        world.slices[i] = (struct yolk_slice){world.memory + (size_t)i * SIZE, SIZE};
        world.kvs[i] =
            (struct yolk_kv){world.keys[i], strlen(world.keys[i]), &world.slices[i], 1, 77, 0};
    }
}

/* Memory that no transfer of before can still own. */
static void set_single(unsigned k)
{
    set_batch(k);
    world.slices[0].ptr = world.memory + (size_t)BATCH * SIZE;
    fill(world.slices[0].ptr, k);
}

static void set_values(unsigned from)
{
    set_batch(from);
    for (unsigned i = 0; i < BATCH; i++)
        fill(world.memory + (size_t)i * SIZE, from + i);
}

static void open_store(void)
{
    struct yolk_store_options options;
    yolk_store_options_init(&options);
    options.master = world.remote ? world.master : "embedded";
    options.transport = world.remote ? "tcp" : NULL;
    options.segment_size_bytes = world.remote ? 0 : MEMORY;
    options.lease_ttl_ms = world.remote ? 0 : 20;
    options.put_wait_ms = 300;
    options.timeout_ms = 1000;
    if (world.with_disk) {
        options.ssd_path = world.path;
        options.ssd_size_bytes = DISK;
        options.ssd_sync_ms = 5;
    }
    world.status = yolk_store_open(&options, &world.store);
}

static void close_store(void)
{
    enum yolk_status status = yolk_store_close(world.store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
    world.store = NULL;
}

static void prepare_closed(void)
{
    snprintf(world.folder, sizeof(world.folder), "yolk-torture-XXXXXX");
    temporary_path(world.folder);
    assert_non_null(mkdtemp(world.folder));
    snprintf(world.path, sizeof(world.path), "%s/disk", world.folder);
    world.store = NULL;
}

static void prepare_open(void)
{
    uint64_t end = now_ms() + PATIENCE_MS;
    prepare_closed();
    do /* nothing fails yet, but on a busy machine its short time can pass */
        open_store();
    while (world.status == YOLK_ERR_TIMEOUT && now_ms() < end);
    if (world.status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(world.status), yolk_last_error());
}

static void prepare_filled(void)
{
    prepare_open();
    set_values(0);
    assert_int_equal(yolk_store_put(world.store, world.kvs, BATCH), YOLK_OK);
    memset(world.memory, 0, (size_t)BATCH * SIZE);
}

/* What went wrong is over: a value can be put and read within a time. */
static void works_again(void)
{
    uint64_t end = now_ms() + PATIENCE_MS;
    enum yolk_status put, get;
    set_single(1000);
    do
        put = yolk_store_put(world.store, world.kvs, 1);
    while (put != YOLK_OK && now_ms() < end);
    if (put != YOLK_OK)
        fail_msg("put afterwards: %s: %s", yolk_strerror(put), yolk_last_error());
    memset(world.slices[0].ptr, 0, SIZE);
    do
        get = yolk_store_get(world.store, world.kvs, 1);
    while (get != YOLK_OK && now_ms() < end);
    if (get != YOLK_OK)
        fail_msg("get afterwards: %s: %s", yolk_strerror(get), yolk_last_error());
    assert_int_equal(world.kvs[0].result, SIZE);
    assert_true(is_filled(world.slices[0].ptr, 1000));
}

static void remove_files(void)
{
    /* A file whose making failed stays beside it, and is the next one. */
    static const char *const names[] = {".slot0", ".slot0.new"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char slot[3 * TEMPORARY_MAX];
        snprintf(slot, sizeof(slot), "%s%s", world.path, names[i]);
        (void)unlink(slot);
    }
    assert_int_equal(rmdir(world.folder), 0);
}

static void finish(void)
{
    uint64_t differences = 99;
    if (world.store != NULL) {
        works_again();
        if (world.remote)
            assert_int_equal(yolk_store_remove_all(world.store, 1, NULL), YOLK_OK);
        assert_int_equal(yolk_store_recount(world.store, &differences), YOLK_OK);
        assert_int_equal(differences, 0);
        close_store();
    }
    remove_files();
}

/* Each result is right or a reason. */
static void judge(int64_t right)
{
    bool all = true;
    for (unsigned i = 0; i < BATCH; i++) {
        assert_true(world.kvs[i].result == right ||
                    (world.kvs[i].result < 0 && world.kvs[i].result >= YOLK_ERR_CONFIG));
        all = all && world.kvs[i].result == right;
    }
    assert_int_equal(world.status == YOLK_OK, all);
}

/* ---- opening ---- */
static void finish_opening(void)
{
    if (world.status != YOLK_OK) {
        assert_null(world.store);
        assert_true(yolk_last_error()[0] != '\0');
    }
    finish();
}

static void test_open(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(&(struct walk){"open", prepare_closed, open_store, finish_opening, ALL_KINDS});
}

static void test_open_with_disk(void **state)
{
    (void)state;
    world.with_disk = true;
    walk_run(
        &(struct walk){"open_with_disk", prepare_closed, open_store, finish_opening, ALL_KINDS});
}

/* ---- putting and getting ---- */
static void prepare_put(void)
{
    prepare_open();
    set_values(0);
}

static void act_put(void)
{
    world.status = yolk_store_put(world.store, world.kvs, BATCH);
}

static void finish_put(void)
{
    judge(SIZE);
    finish();
}

static void test_put(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(&(struct walk){"put", prepare_put, act_put, finish_put, ALL_KINDS});
}

static void act_get(void)
{
    world.status = yolk_store_get(world.store, world.kvs, BATCH);
}

static void finish_get(void)
{
    judge(SIZE);
    for (unsigned i = 0; i < BATCH; i++)
        if (world.kvs[i].result == SIZE)
            assert_true(is_filled(world.memory + (size_t)i * SIZE, i));
    finish();
}

static void test_get(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(&(struct walk){"get", prepare_filled, act_get, finish_get, ALL_KINDS});
}

static void act_exist(void)
{
    world.status = yolk_store_exist(world.store, world.kvs, BATCH);
}

static void finish_exist(void)
{
    judge(1);
    finish();
}

static void test_exist(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(&(struct walk){"exist", prepare_filled, act_exist, finish_exist, 1 << FAULT_MEMORY});
}

static void act_remove(void)
{
    world.status = yolk_store_remove(world.store, world.kvs, BATCH, 1);
}

static void finish_remove(void)
{
    judge(0);
    finish();
}

static void test_remove(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(
        &(struct walk){"remove", prepare_filled, act_remove, finish_remove, 1 << FAULT_MEMORY});
}

/* ---- the rest of the calls ---- */
static int visit(void *context, const void *key, size_t key_size, uint64_t size)
{
    (void)context, (void)key, (void)key_size, (void)size;
    return 0;
}

static void act_ask(void)
{
    char *stat = NULL, *route = NULL;
    uint64_t size;
    enum yolk_status answers[] = {
        yolk_store_stat(world.store, &stat),
        yolk_store_list(world.store, visit, NULL),
        yolk_store_size(world.store, "key1", 4, &size),
        yolk_store_describe_route(world.store, "key1", 4, &route),
        yolk_store_remove_all(world.store, 1, &world.number),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
        assert_true(answers[i] <= YOLK_OK && answers[i] >= YOLK_ERR_CONFIG);
    assert_true(answers[0] != YOLK_OK || stat != NULL);
    assert_true(answers[2] != YOLK_OK || size == SIZE);
    free(stat);
    free(route);
}

static void test_ask(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(&(struct walk){"ask", prepare_filled, act_ask, finish, ALL_KINDS});
}

static void act_buffer(void)
{
    world.status = yolk_store_get_buffer(world.store, "key1", 4, &world.buffer);
    if (world.status == YOLK_OK) {
        assert_int_equal(world.buffer.size, SIZE);
        assert_true(is_filled(world.buffer.data, 1));
        yolk_store_release_buffer(world.store, &world.buffer);
    }
    world.status = yolk_store_register_buffer(world.store, world.memory, SIZE);
    if (world.status == YOLK_OK)
        assert_int_equal(yolk_store_unregister_buffer(world.store, world.memory), YOLK_OK);
}

static void test_buffer(void **state)
{
    (void)state;
    world.with_disk = false;
    walk_run(&(struct walk){"buffer", prepare_filled, act_buffer, finish, ALL_KINDS});
}

/* ---- more than the memory holds ---- */
static void act_offload(void)
{
    for (unsigned k = 0; k < MANY; k += BATCH) {
        set_values(k);
        world.status = yolk_store_put(world.store, world.kvs, BATCH);
        judge(SIZE);
    }
    for (unsigned k = 0; k < MANY; k += BATCH) {
        set_batch(k);
        world.status = yolk_store_get(world.store, world.kvs, BATCH);
        judge(SIZE);
        for (unsigned i = 0; i < BATCH; i++)
            if (world.kvs[i].result == SIZE)
                assert_true(is_filled(world.memory + (size_t)i * SIZE, k + i));
    }
}

static void test_offload(void **state)
{
    (void)state;
    world.with_disk = true;
    walk_run(&(struct walk){"offload", prepare_open, act_offload, finish, ALL_KINDS});
}

/* ---- closing ---- */
static void act_close(void)
{
    world.status = yolk_store_close(world.store);
}

static void finish_closing(void)
{
    /* A refusal closed nothing, so it can be said again. */
    if (world.status != YOLK_OK)
        close_store();
    world.store = NULL;
    remove_files();
}

static void test_close(void **state)
{
    (void)state;
    world.with_disk = true;
    walk_run(&(struct walk){"close", prepare_filled, act_close, finish_closing, ALL_KINDS});
}

/* ---- over TCP ---- */
static void remote(const struct walk *walk)
{
    world.with_disk = false;
    world.remote = true;
    walk_run(walk);
    world.remote = false;
}

static void test_tcp_open(void **state)
{
    (void)state;
    remote(&(struct walk){"tcp_open", prepare_closed, open_store, finish_opening, ALL_KINDS});
}

static void test_tcp_put(void **state)
{
    (void)state;
    remote(&(struct walk){"tcp_put", prepare_put, act_put, finish_put, ALL_KINDS});
}

static void test_tcp_get(void **state)
{
    (void)state;
    remote(&(struct walk){"tcp_get", prepare_filled, act_get, finish_get, ALL_KINDS});
}

static void *run_loop(void *loop)
{
    if (loop_run(loop) != YOLK_OK)
        abort();
    return NULL;
}

/* Master and node, until the other side of `stop` is closed. Nothing of it is cleaned up: its end
 * is that of a killed process. */
static void be_the_other(int say, int stop)
{
    struct server_options options = {.seed = 1};
    struct yolk_store_options node;
    struct yolk_store *store;
    struct server *server;
    struct loop *loop;
    pthread_t thread;
    char address[sizeof(world.master)] = "", byte;
    master_config_default(&options.config);
    if (net_address_parse("127.0.0.1:0", 0, &options.address) != YOLK_OK ||
        loop_create(NULL, &loop) != YOLK_OK || server_create(loop, &options, &server) != YOLK_OK ||
        pthread_create(&thread, NULL, run_loop, loop) != 0)
        abort();
    net_address_format(server_address(server), address, sizeof(address));
    yolk_store_options_init(&node);
    node.master = address;
    node.segment_size_bytes = MEMORY;
    if (yolk_store_open(&node, &store) != YOLK_OK)
        abort();
    if (write(say, address, sizeof(address)) != (ssize_t)sizeof(address) ||
        read(stop, &byte, 1) != 0)
        abort();
    _exit(0);
}

static int start_other(void)
{
    int say[2], stop[2];
    if (pipe(say) != 0 || pipe(stop) != 0)
        return -1;
    world.other = fork();
    if (world.other == 0) {
        close(stop[1]);
        be_the_other(say[1], stop[0]);
    }
    close(say[1]);
    close(stop[0]);
    world.other_stops = stop[1];
    ssize_t got = read(say[0], world.master, sizeof(world.master));
    close(say[0]);
    return got == (ssize_t)sizeof(world.master) ? 0 : -1;
}

static int start(void **state)
{
    (void)state;
    world.memory = malloc((size_t)(BATCH + 1) * SIZE);
    return world.memory == NULL ? -1 : start_other();
}

static int stop(void **state)
{
    (void)state;
    int ended;
    free(world.memory);
    close(world.other_stops);
    return waitpid(world.other, &ended, 0) == world.other && ended == 0 ? 0 : -1;
}

static void test_what_was_named(void **state)
{
    (void)state;
    walk_wish_was_met();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),     cmocka_unit_test(test_open_with_disk),
        cmocka_unit_test(test_put),      cmocka_unit_test(test_get),
        cmocka_unit_test(test_exist),    cmocka_unit_test(test_remove),
        cmocka_unit_test(test_ask),      cmocka_unit_test(test_buffer),
        cmocka_unit_test(test_offload),  cmocka_unit_test(test_close),
        cmocka_unit_test(test_tcp_open), cmocka_unit_test(test_tcp_put),
        cmocka_unit_test(test_tcp_get),  cmocka_unit_test(test_what_was_named),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
