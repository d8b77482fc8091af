/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure cases, class A: leases, read safety, object state. Each test carries its case's
 * number. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster.h"

static const struct cluster_options quick = {
    .lease_ttl_ms = 400, .put_timeout_ms = 1000, .session_ttl_ms = 1500};

static void key_name(char *key, size_t size, const char *prefix, uint64_t number)
{
    snprintf(key, size, "%s/%llu", prefix, (unsigned long long)number);
}

/* Puts fresh values until `count` were accepted; each must be accepted. */
static void put_many(struct yolk_store *store, const char *prefix, uint64_t count, size_t size)
{
    char key[64];
    uint8_t *data = malloc(size);
    assert_non_null(data);
    for (uint64_t i = 0; i < count; i++) {
        key_name(key, sizeof key, prefix, i);
        fill_value(data, size, i);
        assert_int_equal(put_one(store, key, data, size), (int64_t)size);
    }
    free(data);
}

/* A child that gets one key over and over and answers by its exit status: 0 if each answer was
 * right. */
static pid_t spawn_reader(const struct cluster *cluster, const char *key, size_t size,
                          uint64_t seed, int ready)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    struct yolk_store *store = cluster_client(cluster, 0, 1000);
    uint8_t *data = malloc(size);
    if (data == NULL || write(ready, "r", 1) != 1)
        _exit(3);
    memset(data, 0xaa, size);
    int64_t got = get_one(store, key, data, size);
    _exit(got >= 0 && (got != (int64_t)size || !value_is(data, size, seed)) ? 1 : 0);
}

static void c01_slow_get_never_returns_other_bytes(void **state)
{
    (void)state;
    enum { BIG = 64 << 20, SMALL = 1 << 20 };
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){200, 1000, 60000, 0});
    cluster_add_node(&cluster, "128MiB");
    struct yolk_store *writer = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(writer, 1);
    uint8_t *big = malloc(BIG);
    assert_non_null(big);
    for (uint64_t round = 0; round < rounds(5, 200); round++) {
        char key[64], prefix[32];
        key_name(key, sizeof key, "big", round);
        key_name(prefix, sizeof prefix, "small", round);
        fill_value(big, BIG, round);
        assert_int_equal(put_one(writer, key, big, BIG), BIG);
        int pipes[2];
        char byte;
        assert_int_equal(pipe(pipes), 0);
        pid_t reader = spawn_reader(&cluster, key, BIG, round, pipes[1]);
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        poll(NULL, 0, (int)(round * 3 % 17)); /* stop it at another point of its read each round */
        assert_int_equal(kill(reader, SIGSTOP), 0);
        put_many(writer, prefix, 160,
                 SMALL); /* more than the pool: the big one's space is reused */
        assert_int_equal(exist_one(writer, key), 0);
        assert_int_equal(kill(reader, SIGCONT), 0);
        int status = -1;
        assert_int_equal(waitpid(reader, &status, 0), reader);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        close(pipes[0]);
        close(pipes[1]);
    }
    free(big);
    assert_int_equal(yolk_store_close(writer), YOLK_OK);
    cluster_stop(&cluster);
}

static void c03_long_batch_outlives_its_lease(void **state)
{
    (void)state;
    enum { KEYS = 7000, SIZE = 64 << 10 };
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){1000, 5000, 60000, 0});
    cluster_add_node(&cluster, "512MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(store, 1);
    put_many(store, "k", KEYS, SIZE);
    pid_t reader = fork();
    assert_true(reader >= 0);
    if (reader == 0) {
        struct yolk_store *mine = cluster_client(&cluster, 0, 1000);
        static struct yolk_kv kvs[KEYS];
        static struct yolk_slice slices[KEYS];
        static char keys[KEYS][64];
        uint8_t *data = malloc((size_t)KEYS * SIZE);
        for (int i = 0; i < KEYS; i++) {
            key_name(keys[i], sizeof keys[i], "k", (uint64_t)i);
            slices[i] = (struct yolk_slice){data + (size_t)i * SIZE, SIZE};
            kvs[i] = (struct yolk_kv){keys[i], strlen(keys[i]), &slices[i], 1, 0, 0};
        }
        enum yolk_status status = yolk_store_get(mine, kvs, KEYS);
        (void)status; /* each key says for itself */
        for (int i = 0; i < KEYS; i++) {
            if (kvs[i].result >= 0 &&
                (kvs[i].result != SIZE || !value_is(slices[i].ptr, SIZE, (uint64_t)i)))
                _exit(1);
            if (kvs[i].result < 0 && kvs[i].result != YOLK_ERR_LEASE_EXPIRED &&
                kvs[i].result != YOLK_ERR_TIMEOUT)
                _exit(2);
        }
        _exit(0);
    }
    int status = -1;
    for (int stop = 0; stop < 5 && waitpid(reader, &status, WNOHANG) == 0; stop++) {
        poll(NULL, 0, 30);
        kill(reader, SIGSTOP); /* five pauses, each longer than the lease */
        poll(NULL, 0, 1100);
        kill(reader, SIGCONT);
    }
    if (!WIFEXITED(status) || status == -1)
        assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

struct pressure {
    struct cluster *cluster;
    int number;
    atomic_int *stop;
    atomic_ullong *tried;
    atomic_ullong *failed;
    size_t size;
};

static void *press(void *argument)
{
    struct pressure *p = argument;
    struct yolk_store *store = cluster_client(p->cluster, 0, 5000);
    uint8_t *data = calloc(1, p->size);
    char key[64];
    for (uint64_t i = 0; !atomic_load(p->stop); i++) {
        snprintf(key, sizeof key, "press/%d/%llu", p->number, (unsigned long long)i);
        fill_value(data, p->size, i);
        atomic_fetch_add(p->tried, 1);
        if (put_one(store, key, data, p->size) != (int64_t)p->size)
            atomic_fetch_add(p->failed, 1);
    }
    free(data);
    enum yolk_status status = yolk_store_close(store);
    return status == YOLK_OK ? NULL : argument;
}

/* C04 and C05 are one test: what a probe found is there for half a lease, and probing alone never
 * pins the pool. */
static void c04_c05_probed_keys_stay_and_probes_cannot_pin(void **state)
{
    (void)state;
    enum { WRITERS = 8, SIZE = 16 << 10, AGES = 2000 };
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){2000, 5000, 60000, 0});
    cluster_add_node(&cluster, "64MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(store, 1);
    atomic_int stop = 0;
    atomic_ullong tried = 0, failed = 0;
    pthread_t threads[WRITERS];
    struct pressure pressure[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pressure[i] = (struct pressure){&cluster, i, &stop, &tried, &failed, SIZE};
        assert_int_equal(pthread_create(&threads[i], NULL, press, &pressure[i]), 0);
    }
    uint8_t data[SIZE];
    uint64_t violations = 0, found = 0, gone = 0, put_failed = 0;
    for (uint64_t i = 0; i < rounds(3000, 100000); i++) {
        char key[64];
        key_name(key, sizeof key, "probe", i);
        fill_value(data, SIZE, i);
        put_failed += put_one(store, key, data, SIZE) != SIZE;
        uint64_t age = i * 37 % AGES; /* from just put to evicted long ago */
        uint64_t old = age <= i ? i - age : i;
        key_name(key, sizeof key, "probe", old);
        uint64_t before = test_now_ms();
        int64_t there = exist_one(store, key);
        int64_t got = get_one(store, key, data, SIZE);
        int within = test_now_ms() - before < 1000;
        found += there == 1;
        gone += there == 0;
        if (got >= 0)
            assert_true(there == 1 && got == SIZE && value_is(data, SIZE, old));
        else if (there == 1)
            violations += within || got != YOLK_ERR_NOT_FOUND;
        else
            assert_int_equal(got, YOLK_ERR_NOT_FOUND);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < WRITERS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(violations, 0);
    assert_true(found > 0 && gone > 0);
    assert_int_equal(put_failed, 0);
    assert_true(atomic_load(&failed) * 100 <= atomic_load(&tried));
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

struct prober {
    struct cluster *cluster;
    uint64_t keys;
    atomic_int *stop;
    atomic_ullong *probes;
};

static void *probe_all(void *argument)
{
    struct prober *p = argument;
    struct yolk_store *store = cluster_client(p->cluster, 0, 1000);
    struct yolk_kv *kvs = calloc(p->keys, sizeof *kvs);
    char(*keys)[64] = calloc(p->keys, sizeof *keys);
    for (uint64_t i = 0; i < p->keys; i++) {
        key_name(keys[i], sizeof keys[i], "base", i);
        kvs[i] = (struct yolk_kv){keys[i], strlen(keys[i]), NULL, 0, 0, 0};
    }
    while (!atomic_load(p->stop)) {
        if (yolk_store_exist(store, kvs, p->keys) == YOLK_OK)
            atomic_fetch_add(p->probes, p->keys);
    }
    free(kvs);
    free(keys);
    enum yolk_status status = yolk_store_close(store);
    return status == YOLK_OK ? NULL : argument;
}

static void c05_constant_probing_does_not_stop_eviction(void **state)
{
    (void)state;
    enum { SIZE = 64 << 10, BASE = 819 }; /* 80 % of 64 MiB */
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){10000, 30000, 60000, 0});
    cluster_add_node(&cluster, "64MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(store, 1);
    put_many(store, "base", BASE, SIZE);
    atomic_int stop = 0;
    atomic_ullong probes = 0;
    struct prober prober = {&cluster, BASE, &stop, &probes};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, probe_all, &prober), 0);
    uint8_t *data = malloc(SIZE);
    uint64_t tried = 0, failed = 0, begin = test_now_ms(), length = rounds(5000, 60000);
    while (test_now_ms() - begin < length) {
        char key[64];
        key_name(key, sizeof key, "fresh", tried++);
        fill_value(data, SIZE, tried);
        failed += put_one(store, key, data, SIZE) != SIZE;
    }
    atomic_store(&stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&probes) * 1000 / length > 2000); /* a second, as in the report */
    assert_true(tried > BASE);
    assert_true(failed * 100 <= tried);
    free(data);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

static int bytes_are_zero(void *context)
{
    return cluster_bytes_in_use(context) == 0;
}

enum { VICTIM_SIZE = 96 << 20 };

/* Answers whether the kill came between start and end of the put. */
static int kill_writer_inside_put(const struct cluster *cluster, struct yolk_store *store)
{
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        struct yolk_store *mine = cluster_client(cluster, 0, 1000);
        /* Untouched: its pages fault in while it is copied, slowly. */
        uint8_t *data = malloc(VICTIM_SIZE);
        put_one(mine, "victim", data, VICTIM_SIZE);
        _exit(0);
    }
    uint64_t end = test_now_ms() + 10000;
    while (cluster_figure(store, "open_bytes") == 0 && exist_one(store, "victim") == 0 &&
           test_now_ms() < end)
        ;
    assert_int_equal(kill(writer, SIGKILL), 0);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    return exist_one(store, "victim") == 0;
}

static void c06_writer_killed_between_start_and_end(void **state)
{
    (void)state;
    enum { SIZE = VICTIM_SIZE };
    struct cluster cluster;
    cluster_start(&cluster, &quick);
    cluster_add_node(&cluster, "128MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 8000);
    cluster_wait_segments(store, 1);
    int inside = 0;
    for (int i = 0; i < 10 && !inside; i++) {
        inside = kill_writer_inside_put(&cluster, store);
        if (!inside) /* the put was done before the kill came */
            assert_int_equal(remove_one(store, "victim", 1), YOLK_OK);
        assert_true(wait_until(bytes_are_zero, store, 20000));
    }
    assert_true(inside);
    assert_int_equal(remove_one(store, "victim", 0), YOLK_ERR_NOT_FOUND);
    uint8_t *data = malloc(SIZE);
    fill_value(data, SIZE, 6);
    assert_int_equal(put_one(store, "victim", data, SIZE), SIZE);
    memset(data, 0, SIZE);
    assert_int_equal(get_one(store, "victim", data, SIZE), SIZE);
    assert_true(value_is(data, SIZE, 6));
    free(data);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

struct same_keys {
    struct yolk_store *store;
    uint64_t seed;
};

enum { SAME_KEYS = 1000, SAME_SIZE = 4096 };

static void *put_same_keys(void *argument)
{
    struct same_keys *same = argument;
    uint8_t *data = malloc((size_t)SAME_KEYS * SAME_SIZE);
    struct yolk_kv *kvs = calloc(SAME_KEYS, sizeof *kvs);
    struct yolk_slice *slices = calloc(SAME_KEYS, sizeof *slices);
    char(*keys)[64] = calloc(SAME_KEYS, sizeof *keys);
    for (uint64_t i = 0; i < SAME_KEYS; i++) {
        key_name(keys[i], sizeof keys[i], "same", i);
        slices[i] = (struct yolk_slice){data + i * SAME_SIZE, SAME_SIZE};
        fill_value(slices[i].ptr, SAME_SIZE, same->seed);
        kvs[i] = (struct yolk_kv){keys[i], strlen(keys[i]), &slices[i], 1, 0, 0};
    }
    enum yolk_status status = yolk_store_put(same->store, kvs, SAME_KEYS);
    int bad = status != YOLK_OK;
    for (uint64_t i = 0; i < SAME_KEYS; i++)
        bad |= kvs[i].result != SAME_SIZE;
    free(data);
    free(kvs);
    free(slices);
    free(keys);
    return bad ? argument : NULL;
}

static void c07_same_keys_from_many_writers(void **state)
{
    (void)state;
    enum { CLIENTS = 4, THREADS = 8 };
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){5000, 30000, 60000, 0});
    cluster_add_node(&cluster, "64MiB");
    struct yolk_store *stores[CLIENTS];
    struct same_keys same[CLIENTS * THREADS];
    pthread_t threads[CLIENTS * THREADS];
    for (int i = 0; i < CLIENTS; i++)
        stores[i] = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(stores[0], 1);
    for (int i = 0; i < CLIENTS * THREADS; i++) {
        same[i] = (struct same_keys){stores[i % CLIENTS], (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, put_same_keys, &same[i]), 0);
    }
    for (int i = 0; i < CLIENTS * THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    for (uint64_t i = 0; i < SAME_KEYS; i++) {
        uint8_t data[SAME_SIZE];
        char key[64];
        int from_one_writer = 0;
        key_name(key, sizeof key, "same", i);
        assert_int_equal(get_one(stores[0], key, data, SAME_SIZE), SAME_SIZE);
        for (uint64_t writer = 0; writer < CLIENTS * THREADS; writer++)
            from_one_writer |= value_is(data, SAME_SIZE, writer);
        assert_true(from_one_writer);
    }
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(yolk_store_close(stores[i]), YOLK_OK);
    cluster_stop(&cluster);
}

static void c08_codes_of_remove(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){30000, 30000, 60000, 0});
    cluster_add_node(&cluster, "16MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(store, 1);
    char data[8] = "1234567";
    assert_int_equal(put_one(store, "k", data, 8), 8);
    assert_int_equal(get_one(store, "k", data, 8), 8);
    assert_int_equal(remove_one(store, "k", 0), YOLK_ERR_HAS_LEASE);
    assert_int_equal(remove_one(store, "k", 1), YOLK_OK);
    assert_int_equal(remove_one(store, "k", 0), YOLK_ERR_NOT_FOUND);
    assert_int_equal(remove_one(store, "k", 1), YOLK_ERR_NOT_FOUND);
    assert_int_equal(put_one(store, "k", data, 8), 8);
    assert_int_equal(exist_one(store, "k"), 1);
    assert_int_equal(remove_one(store, "k", 0), YOLK_ERR_HAS_LEASE);
    assert_int_equal(put_one(store, "free", data, 8), 8);
    assert_int_equal(remove_one(store, "free", 0), YOLK_OK);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

static void c09_reads_do_not_end_an_object(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_start(&cluster, &quick);
    cluster_add_node(&cluster, "16MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(store, 1);
    uint8_t data[1000];
    fill_value(data, sizeof data, 9);
    assert_int_equal(put_one(store, "k", data, sizeof data), sizeof data);
    for (int i = 0; i < 15; i++) { /* every third of a lease, for five leases */
        uint64_t size = 0;
        memset(data, 0, sizeof data);
        assert_int_equal(get_one(store, "k", data, sizeof data), sizeof data);
        assert_true(value_is(data, sizeof data, 9));
        assert_int_equal(yolk_store_size(store, "k", 1, &size), YOLK_OK);
        assert_int_equal(size, sizeof data);
        poll(NULL, 0, (int)quick.lease_ttl_ms / 3);
    }
    poll(NULL, 0, (int)quick.lease_ttl_ms * 2);
    assert_int_equal(get_one(store, "k", data, sizeof data), sizeof data);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

static void c11_writer_closes(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_start(&cluster, &quick);
    uint8_t data[5000];
    fill_value(data, sizeof data, 11);
    struct yolk_store *writer = cluster_client(&cluster, 16 << 20, 5000);
    struct yolk_store *reader = cluster_client(&cluster, 0, 5000);
    cluster_wait_segments(reader, 1);
    assert_int_equal(put_one(writer, "one", data, sizeof data), sizeof data);
    assert_int_equal(yolk_store_close(writer), YOLK_OK);
    uint64_t before = test_now_ms();
    assert_int_equal(get_one(reader, "one", data, sizeof data), YOLK_ERR_NOT_FOUND);
    assert_true(test_now_ms() - before < 2000);

    struct yolk_store_options options;
    yolk_store_options_init(&options);
    options.master = cluster.address;
    options.segment_size_bytes = 16 << 20;
    options.replica_num = 2;
    options.put_wait_ms = 5000;
    assert_int_equal(yolk_store_open(&options, &writer), YOLK_OK);
    struct yolk_store *other = cluster_client(&cluster, 16 << 20, 5000);
    cluster_wait_segments(reader, 2);
    assert_int_equal(put_one(writer, "two", data, sizeof data), sizeof data);
    assert_int_equal(yolk_store_close(writer), YOLK_OK);
    memset(data, 0, sizeof data);
    assert_int_equal(get_one(reader, "two", data, sizeof data), sizeof data);
    assert_true(value_is(data, sizeof data, 11));
    assert_int_equal(yolk_store_close(other), YOLK_OK);
    assert_int_equal(yolk_store_close(reader), YOLK_OK);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c01_slow_get_never_returns_other_bytes),
        cmocka_unit_test(c03_long_batch_outlives_its_lease),
        cmocka_unit_test(c04_c05_probed_keys_stay_and_probes_cannot_pin),
        cmocka_unit_test(c05_constant_probing_does_not_stop_eviction),
        cmocka_unit_test(c06_writer_killed_between_start_and_end),
        cmocka_unit_test(c07_same_keys_from_many_writers),
        cmocka_unit_test(c08_codes_of_remove),
        cmocka_unit_test(c09_reads_do_not_end_an_object),
        cmocka_unit_test(c11_writer_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
