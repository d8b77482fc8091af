/* SPDX-License-Identifier: Apache-2.0 */
/* A master behind a socket, nodes and clients of several stores, every transport; the master is
 * restarted, sessions run out, nodes go. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yolk/store.h>

#include "base/limits.h"
#include "platform/clock.h"
#include "served_master.h"

static void master_start(struct master *master)
{
    struct master_config config;
    master_config_default(&config);
    config.lease_ttl_ms = 50;
    config.heartbeat_ms = 50;
    config.session_ttl_ms = 600;
    config.guard_ttl_ms = 500;
    config.guard_margin_ms = 50;
    config.put_timeout_ms = 2000;
    master_start_with(master, &config);
}

static struct yolk_store *open_store(const struct master *master, uint64_t segment_size,
                                     const char *transport, uint32_t replica_num)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = master->address;
    options.segment_size_bytes = segment_size;
    options.transport = transport;
    options.replica_num = replica_num;
    options.drain_grace_ms = 100;
    enum yolk_status status = yolk_store_open(&options, &store);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
    return store;
}

static void close_store(struct yolk_store *store)
{
    enum yolk_status status = yolk_store_close(store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
}

static void fill(uint8_t *to, size_t size, uint64_t k)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)((i * 2654435761u + k * 40503u) >> 7);
}

enum { COUNT = 200, SIZE = 9000 };

/* Puts (or gets and checks) keys first … first + COUNT - 1. Returns how many succeeded. */
static size_t run(struct yolk_store *store, int put, uint64_t first, enum yolk_status *worst)
{
    static __thread uint8_t memory[COUNT * SIZE];
    static __thread uint8_t expected[SIZE];
    struct yolk_kv kvs[COUNT];
    struct yolk_slice slices[COUNT];
    uint64_t keys[COUNT];
    size_t good = 0;
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = first + i;
        slices[i] = (struct yolk_slice){memory + i * SIZE, SIZE};
        kvs[i] = (struct yolk_kv){&keys[i], 8, &slices[i], 1, -1, 0};
        fill(memory + i * SIZE, SIZE, put ? keys[i] : 12345678);
    }
    *worst = put ? yolk_store_put(store, kvs, COUNT) : yolk_store_get(store, kvs, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        if (kvs[i].result < 0)
            continue;
        assert_int_equal(kvs[i].result, SIZE);
        fill(expected, SIZE, keys[i]);
        assert_memory_equal(memory + i * SIZE, expected, SIZE);
        good++;
    }
    return good;
}

static void must(struct yolk_store *store, int put, uint64_t first)
{
    enum yolk_status worst;
    if (run(store, put, first, &worst) != COUNT)
        fail_msg("%s: %s", put ? "put" : "get", yolk_last_error());
}

static void over(const char *transport)
{
    struct master master = {.address = ""};
    master_start(&master);
    struct yolk_store *node = open_store(&master, 32 * MIB, NULL, 1);
    struct yolk_store *client = open_store(&master, 0, transport, 1);
    must(client, 1, 0);
    must(client, 0, 0);
    must(node, 0, 0);
    must(node, 1, 1000);
    must(client, 0, 1000);
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(client, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    close_store(client);
    close_store(node);
    master_stop(&master);
}

static void over_shm(void **state)
{
    (void)state;
    over("shm");
}

static void over_tcp(void **state)
{
    (void)state;
    over("tcp");
}

static void two_nodes_two_replicas(void **state)
{
    (void)state;
    struct master master = {.address = ""};
    master_start(&master);
    struct yolk_store *a = open_store(&master, 32 * MIB, NULL, 2);
    struct yolk_store *b = open_store(&master, 32 * MIB, NULL, 2);
    struct yolk_store *client = open_store(&master, 0, NULL, 2);
    must(client, 1, 0);
    close_store(a); /* the other replica is left */
    must(client, 0, 0);
    close_store(b);
    enum yolk_status worst;
    assert_int_equal(run(client, 0, 0, &worst), 0);
    assert_int_equal(worst, YOLK_ERR_NOT_FOUND);
    close_store(client);
    master_stop(&master);
}

/* A call waits for the session by itself. */
static void wait_connected(struct yolk_store *store)
{
    struct yolk_kv kv = {.key = "any", .key_size = 3};
    assert_int_equal(yolk_store_exist(store, &kv, 1), YOLK_OK);
    assert_true(yolk_store_is_connected(store));
}

/* The values outlive the master: its successor learns of them from the nodes. */
static void master_restart(void **state)
{
    (void)state;
    struct master master = {.address = ""};
    master_start(&master);
    struct yolk_store *node = open_store(&master, 32 * MIB, NULL, 1);
    struct yolk_store *client = open_store(&master, 0, NULL, 1);
    struct yolk_buffer pinned;
    must(client, 1, 0);
    uint64_t key = 7;
    assert_int_equal(yolk_store_get_buffer(client, &key, 8, &pinned), YOLK_OK);
    for (int round = 0; round < 3; round++) {
        master_stop(&master);
        master_start(&master);
        /* The first key after a restart may come before the node has offered it: ask until then. */
        uint64_t until = clock_real_now_ns() + 10 * NS_PER_S;
        enum yolk_status worst;
        size_t good = 0;
        while (good != COUNT && clock_real_now_ns() < until)
            good = run(client, 0, 0, &worst);
        assert_int_equal(good, COUNT);
        wait_connected(node);
        must(client, 1, 1000 * (uint64_t)(round + 1));
        must(node, 0, 1000 * (uint64_t)(round + 1));
    }
    uint8_t expected[SIZE];
    fill(expected, SIZE, 7);
    assert_int_equal(pinned.size, SIZE);
    assert_memory_equal(pinned.data, expected, SIZE);
    yolk_store_release_buffer(client, &pinned);
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(client, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    close_store(client);
    close_store(node);
    master_stop(&master);
}

enum { UPSERTED = 20, UPSERT_SIZE = 3000 };

/* All of them in one call, each with the number of the round all over. */
static void upsert_round(struct yolk_store *store, uint8_t round)
{
    static uint8_t value[UPSERT_SIZE];
    struct yolk_slice slice = {value, sizeof(value)};
    struct yolk_kv kvs[UPSERTED];
    uint32_t keys[UPSERTED];
    memset(value, round, sizeof(value));
    for (uint32_t i = 0; i < UPSERTED; i++) {
        keys[i] = i;
        kvs[i] = (struct yolk_kv){&keys[i], sizeof(keys[i]), &slice, 1, -1, 0};
    }
    if (yolk_store_upsert(store, kvs, UPSERTED, NULL) != YOLK_OK)
        fail_msg("upsert: %s", yolk_last_error());
}

/* How many are there, each with nothing but this round's value. */
static uint32_t count_round(struct yolk_store *store, uint8_t round)
{
    uint8_t value[UPSERT_SIZE], expected[UPSERT_SIZE];
    uint32_t found = 0;
    memset(expected, round, sizeof(expected));
    for (uint32_t key = 0; key < UPSERTED; key++) {
        struct yolk_slice slice = {value, sizeof(value)};
        struct yolk_kv kv = {&key, sizeof(key), &slice, 1, -1, 0};
        enum yolk_status status = yolk_store_get(store, &kv, 1);
        if (status == YOLK_ERR_NOT_FOUND)
            continue;
        assert_int_equal(status, YOLK_OK);
        assert_memory_equal(value, expected, sizeof(value));
        found++;
    }
    return found;
}

/* What an acknowledged upsert replaced is never offered to the next master. */
static void upserts_before_a_restart(void **state)
{
    (void)state;
    struct master master = {.address = ""};
    master_start(&master);
    struct yolk_store *a = open_store(&master, 32 * MIB, NULL, 1);
    struct yolk_store *b = open_store(&master, 32 * MIB, NULL, 1);
    struct yolk_store *client = open_store(&master, 0, NULL, 1);
    for (uint8_t round = 1; round <= 6; round++) {
        upsert_round(client, round);
        assert_int_equal(count_round(client, round), UPSERTED);
        master_stop(&master);
        master_start(&master);
        uint64_t until = clock_real_now_ns() + 10 * NS_PER_S;
        uint32_t found = 0;
        while (found != UPSERTED && clock_real_now_ns() < until)
            found = count_round(client, round);
        assert_int_equal(found, UPSERTED);
    }
    close_store(client);
    close_store(a);
    close_store(b);
    master_stop(&master);
}

/* While no master answers, calls end at their deadline with an error, and close still works. */
static void master_gone(void **state)
{
    (void)state;
    struct master master = {.address = ""};
    master_start(&master);
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = master.address;
    options.segment_size_bytes = 8 * MIB;
    options.timeout_ms = 400;
    options.put_wait_ms = 100;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_OK);
    must(store, 1, 0);
    master_stop(&master);
    uint64_t began = clock_real_now_ns();
    enum yolk_status worst;
    assert_int_equal(run(store, 0, 0, &worst), 0);
    assert_true(worst < 0);
    assert_int_equal(run(store, 1, 500, &worst), 0);
    assert_true(clock_real_now_ns() - began < 3 * NS_PER_S);
    close_store(store);
}

struct churn {
    pthread_t thread;
    struct yolk_store *store;
    uint64_t first;
    size_t puts;
    size_t gets;
    atomic_size_t rounds;
    atomic_int stop;
};

static void *churn(void *arg)
{
    struct churn *churn = arg;
    enum yolk_status worst;
    for (uint64_t round = 0; !churn->stop; round++) {
        uint64_t first = churn->first + round % 20 * COUNT;
        churn->puts += run(churn->store, 1, first, &worst);
        churn->gets += run(churn->store, 0, first, &worst);
        atomic_fetch_add(&churn->rounds, 1);
    }
    return NULL;
}

static void wait_rounds(struct churn *churns, int count, size_t more)
{
    for (int i = 0; i < count; i++) {
        size_t until = atomic_load(&churns[i].rounds) + more;
        while (atomic_load(&churns[i].rounds) < until)
            sched_yield();
    }
}

/* Three clients write more than fits and read back while the master dies and comes back: no wrong
 * byte. */
static void restart_under_load(void **state)
{
    (void)state;
    struct master master = {.address = ""};
    /* Not on the stack: the threads outlive a check that fails. */
    static struct churn churns[3] = {{.first = 0}, {.first = 2000}, {.first = 100000}};
    master_start(&master);
    struct yolk_store *node = open_store(&master, 16 * MIB, NULL, 1);
    const char *transports[3] = {"shm", "tcp", NULL};
    for (int i = 0; i < 3; i++) {
        churns[i].store = open_store(&master, 0, transports[i], 1);
        assert_int_equal(pthread_create(&churns[i].thread, NULL, churn, &churns[i]), 0);
    }
    for (int round = 0; round < 3; round++) {
        wait_rounds(churns, 3, 5);
        master_stop(&master);
        master_start(&master);
    }
    wait_rounds(churns, 3, 8);
    for (int i = 0; i < 3; i++)
        churns[i].stop = 1;
    for (int i = 0; i < 3; i++) {
        pthread_join(churns[i].thread, NULL);
        assert_true(churns[i].puts > 0);
        assert_true(churns[i].gets > 0);
    }
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(node, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    for (int i = 0; i < 3; i++)
        close_store(churns[i].store);
    close_store(node);
    master_stop(&master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shm),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(two_nodes_two_replicas),
        cmocka_unit_test(master_gone),
        cmocka_unit_test(master_restart),
        cmocka_unit_test(upserts_before_a_restart),
        cmocka_unit_test(restart_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
