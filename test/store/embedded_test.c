/* SPDX-License-Identifier: Apache-2.0 */
/* The whole store in one process: master core, engine, segment and client, through the public
 * calls. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

enum { MIB_BYTES = 1 << 20 };

/* Byte i of the value of key number k: every value differs, and so do its parts. */
static void fill(uint8_t *to, size_t size, uint64_t k)
{
    uint64_t x = k * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < size; i++) {
        if (i % 8 == 0)
            x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u + i;
        to[i] = (uint8_t)(x >> (i % 8 * 8));
    }
}

static int is_filled(const uint8_t *from, size_t size, uint64_t k)
{
    uint8_t *expected = malloc(size + 1);
    fill(expected, size, k);
    int same = memcmp(from, expected, size) == 0;
    free(expected);
    return same;
}

static struct yolk_store *open_store(uint64_t segment_size)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = segment_size;
    options.lease_ttl_ms = 50;
    enum yolk_status status = yolk_store_open(&options, &store);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
    return store;
}

static void close_store(struct yolk_store *store)
{
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    enum yolk_status status = yolk_store_close(store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
}

static int64_t put_one(struct yolk_store *store, const char *key, const void *data, size_t size)
{
    struct yolk_slice slice = {(void *)(uintptr_t)data, size};
    struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
    enum yolk_status status = yolk_store_put(store, &kv, 1);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    return kv.result;
}

static int64_t get_one(struct yolk_store *store, const char *key, void *data, size_t size)
{
    struct yolk_slice slice = {data, size};
    struct yolk_kv kv = {key, strlen(key), &slice, 1, 77, 0};
    enum yolk_status status = yolk_store_get(store, &kv, 1);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    return kv.result;
}

static void single_values(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(16 * MIB_BYTES);
    static uint8_t in[100000];
    static uint8_t out[100000];
    fill(in, sizeof(in), 1);
    assert_int_equal(yolk_store_register_buffer(store, out, sizeof(out)), YOLK_OK);
    assert_int_equal(get_one(store, "a", out, sizeof(out)), YOLK_ERR_NOT_FOUND);
    assert_int_equal(put_one(store, "a", in, sizeof(in)), sizeof(in));
    assert_int_equal(put_one(store, "a", out, 5), 5); /* exists: nothing is written */
    assert_int_equal(get_one(store, "a", out, sizeof(out)), sizeof(in));
    assert_true(is_filled(out, sizeof(in), 1));
    assert_int_equal(get_one(store, "a", out, 10), YOLK_ERR_BUFFER_SMALL);

    uint64_t size = 0;
    assert_int_equal(yolk_store_size(store, "a", 1, &size), YOLK_OK);
    assert_int_equal(size, sizeof(in));
    assert_int_equal(yolk_store_size(store, "b", 1, &size), YOLK_ERR_NOT_FOUND);

    assert_int_equal(put_one(store, "empty", NULL, 0), 0);
    assert_int_equal(get_one(store, "empty", out, 10), 0);
    struct yolk_kv asked[3] = {{.key = "empty", .key_size = 5},
                               {.key = "nothing", .key_size = 7},
                               {.key = "a", .key_size = 1}};
    assert_int_equal(yolk_store_exist(store, asked, 3), YOLK_OK);
    assert_int_equal(asked[0].result, 1);
    assert_int_equal(asked[1].result, 0);
    assert_int_equal(asked[2].result, 1);
    assert_int_equal(yolk_store_remove(store, asked, 3, 0), YOLK_ERR_HAS_LEASE);
    assert_int_equal(yolk_store_remove(store, asked, 3, 1), YOLK_ERR_NOT_FOUND);
    assert_int_equal(asked[0].result, 0);
    assert_int_equal(asked[1].result, YOLK_ERR_NOT_FOUND);
    assert_int_equal(asked[2].result, 0);
    assert_int_equal(get_one(store, "a", out, sizeof(out)), YOLK_ERR_NOT_FOUND);
    assert_int_equal(yolk_store_unregister_buffer(store, out), YOLK_OK);
    assert_int_equal(yolk_store_unregister_buffer(store, out), YOLK_ERR_NOT_REGISTERED);
    close_store(store);
}

static void odd_keys_and_slices(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(16 * MIB_BYTES);
    static char key[4097];
    memset(key, 0, sizeof(key));
    static uint8_t in[3000];
    static uint8_t out[3000];
    fill(in, sizeof(in), 2);
    struct yolk_slice pieces[4] = {{in, 1}, {in + 1, 999}, {NULL, 0}, {in + 1000, 2000}};
    struct yolk_kv kvs[4] = {{key, 4096, pieces, 4, 0, 0},
                             {key, 4097, pieces, 4, 0, 0},
                             {key, 0, pieces, 4, 0, 0},
                             {key, 4096, pieces, 1, 0, 0}}; /* twice in a batch: the first wins */
    assert_int_equal(yolk_store_put(store, kvs, 4), YOLK_ERR_INVALID);
    assert_int_equal(kvs[0].result, 3000);
    assert_int_equal(kvs[1].result, YOLK_ERR_INVALID);
    assert_int_equal(kvs[2].result, YOLK_ERR_INVALID);
    assert_int_equal(kvs[3].result, 3000);
    struct yolk_slice parts[3] = {{out, 2500}, {out + 2500, 100}, {out + 2600, 400}};
    struct yolk_kv got = {key, 4096, parts, 3, 0, 0};
    assert_int_equal(yolk_store_get(store, &got, 1), YOLK_OK);
    assert_int_equal(got.result, 3000);
    assert_memory_equal(in, out, 3000);
    assert_int_equal(yolk_store_put(store, NULL, 0), YOLK_OK);
    assert_int_equal(yolk_store_put(store, NULL, 1), YOLK_ERR_INVALID);
    close_store(store);
}

static int count_key(void *context, const void *key, size_t key_size, uint64_t size)
{
    (void)key;
    assert_int_equal(key_size, 8);
    assert_int_equal(size, 4096);
    ++*(int *)context;
    return 0;
}

static void batches(void **state)
{
    (void)state;
    enum { COUNT = 1000, SIZE = 4096 };
    struct yolk_store *store = open_store(64 * MIB_BYTES);
    uint8_t *memory = malloc((size_t)COUNT * SIZE);
    struct yolk_kv *kvs = calloc(COUNT, sizeof(*kvs));
    struct yolk_slice *slices = calloc(COUNT, sizeof(*slices));
    uint64_t *keys = calloc(COUNT, sizeof(*keys));
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = i;
        slices[i] = (struct yolk_slice){memory + i * SIZE, SIZE};
        kvs[i] = (struct yolk_kv){&keys[i], 8, &slices[i], 1, -1, 0};
        fill(memory + i * SIZE, SIZE, i);
    }
    assert_int_equal(yolk_store_register_buffer(store, memory, (size_t)COUNT * SIZE), YOLK_OK);
    assert_int_equal(yolk_store_put(store, kvs, COUNT), YOLK_OK);
    memset(memory, 0, (size_t)COUNT * SIZE);
    assert_int_equal(yolk_store_get(store, kvs, COUNT), YOLK_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(kvs[i].result, SIZE);
        assert_true(is_filled(memory + i * SIZE, SIZE, i));
    }
    int listed = 0;
    assert_int_equal(yolk_store_list(store, count_key, &listed), YOLK_OK);
    assert_int_equal(listed, COUNT);
    assert_int_equal(yolk_store_exist(store, kvs, COUNT), YOLK_OK);
    uint64_t removed = 0;
    assert_int_equal(yolk_store_remove_all(store, 1, &removed), YOLK_OK);
    assert_int_equal(removed, COUNT);
    char *text = NULL;
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    assert_non_null(strstr(text, "objects 0\n"));
    free(text);
    close_store(store);
    free(memory);
    free(kvs);
    free(slices);
    free(keys);
}

static bool figure_is(struct yolk_store *store, const char *line)
{
    char *text = NULL;
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    bool found = strstr(text, line) != NULL;
    free(text);
    return found;
}

/* Who asks how large a value is or where it lies has not read it. */
static void questions_are_no_hits(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(16 * MIB_BYTES);
    uint8_t out[8];
    uint64_t size = 0;
    size_t count = 0;
    struct yolk_replica replica;
    assert_int_equal(put_one(store, "a", "12345", 5), 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yolk_store_size(store, "a", 1, &size), YOLK_OK);
        assert_int_equal(yolk_store_locate(store, "a", 1, &replica, 1, &count), YOLK_OK);
        assert_int_equal(yolk_store_size(store, "b", 1, &size), YOLK_ERR_NOT_FOUND);
    }
    assert_true(figure_is(store, "get_hits 0\n"));
    assert_true(figure_is(store, "guards 0\n"));
    assert_int_equal(get_one(store, "a", out, sizeof(out)), 5);
    assert_true(figure_is(store, "get_hits 1\n"));
    close_store(store);
}

/* Four times what fits: old values go, what is still there is right in every byte. */
static void eviction(void **state)
{
    (void)state;
    enum { SIZE = 100000, COUNT = 640, BATCH = 16 };
    struct yolk_store *store = open_store(16 * MIB_BYTES);
    uint8_t *memory = malloc((size_t)BATCH * SIZE);
    for (uint64_t from = 0; from < COUNT; from += BATCH) {
        struct yolk_kv kvs[BATCH];
        struct yolk_slice slices[BATCH];
        uint64_t keys[BATCH];
        for (size_t i = 0; i < BATCH; i++) {
            keys[i] = from + i;
            slices[i] = (struct yolk_slice){memory + i * SIZE, SIZE};
            kvs[i] = (struct yolk_kv){&keys[i], 8, &slices[i], 1, -1, 0};
            fill(memory + i * SIZE, SIZE, keys[i]);
        }
        enum yolk_status status = yolk_store_put(store, kvs, BATCH);
        if (status != YOLK_OK)
            fail_msg("put at %d: %s", (int)from, yolk_last_error());
    }
    size_t found = 0;
    for (uint64_t k = 0; k < COUNT; k++) {
        struct yolk_slice slice = {memory, SIZE};
        struct yolk_kv kv = {&k, 8, &slice, 1, -1, 0};
        memset(memory, 0xee, SIZE);
        enum yolk_status status = yolk_store_get(store, &kv, 1);
        if (status == YOLK_ERR_NOT_FOUND)
            continue;
        assert_int_equal(status, YOLK_OK);
        assert_true(is_filled(memory, SIZE, k));
        found++;
    }
    assert_true(found >= 100); /* of the 167 that could fit */
    close_store(store);
    free(memory);
}

static void too_large(void **state)
{
    (void)state;
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = 4 * MIB_BYTES;
    options.put_wait_ms = 20;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_OK);
    uint8_t *memory = calloc(1, 8 * MIB_BYTES);
    int64_t result = put_one(store, "large", memory, 8 * MIB_BYTES);
    assert_true(result == YOLK_ERR_NO_SPACE || result == YOLK_ERR_TOO_LARGE);
    assert_non_null(strstr(yolk_last_error(), yolk_strerror((int)result)));
    assert_int_equal(put_one(store, "small", memory, 1000), 1000);
    free(memory);
    close_store(store);
}

static void buffers(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(16 * MIB_BYTES);
    static uint8_t in[50000];
    fill(in, sizeof(in), 3);
    assert_int_equal(put_one(store, "v", in, sizeof(in)), sizeof(in));
    struct yolk_buffer buffer;
    assert_int_equal(yolk_store_get_buffer(store, "w", 1, &buffer), YOLK_ERR_NOT_FOUND);
    assert_int_equal(yolk_store_get_buffer(store, "v", 1, &buffer), YOLK_OK);
    assert_int_equal(buffer.size, sizeof(in));
    assert_memory_equal(buffer.data, in, sizeof(in));
    assert_int_equal(buffer.mapped, 1);
    assert_int_equal(yolk_store_close(store), YOLK_ERR_BUSY);
    /* Pinned bytes stay although the key is removed and much is put after it. */
    struct yolk_kv kv = {.key = "v", .key_size = 1};
    assert_int_equal(yolk_store_remove(store, &kv, 1, 1), YOLK_OK);
    uint8_t *memory = calloc(1, MIB_BYTES);
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof(key), "x%d", i);
        assert_int_equal(put_one(store, key, memory, MIB_BYTES), MIB_BYTES);
    }
    free(memory);
    assert_memory_equal(buffer.data, in, sizeof(in));
    yolk_store_release_buffer(store, &buffer);
    yolk_store_release_buffer(store, &buffer); /* harmless */
    char *text = NULL;
    assert_int_equal(yolk_store_describe_route(store, "x39", 3, &text), YOLK_OK);
    assert_non_null(text);
    free(text);
    close_store(store);
}

struct worker {
    pthread_t thread;
    struct yolk_store *store;
    unsigned number;
    const char *failure;
};

static void *work(void *arg)
{
    enum { SIZE = 20000, BATCH = 8, ROUNDS = 60 };
    struct worker *worker = arg;
    uint8_t *memory = malloc((size_t)BATCH * SIZE);
    for (unsigned round = 0; round < ROUNDS && worker->failure == NULL; round++) {
        struct yolk_kv kvs[BATCH];
        struct yolk_slice slices[BATCH];
        uint64_t keys[BATCH];
        for (size_t i = 0; i < BATCH; i++) {
            /* Half of the keys are shared between the threads. */
            keys[i] = i % 2 == 0 ? round * BATCH + i
                                 : ((uint64_t)worker->number << 32) + round * BATCH + i;
            slices[i] = (struct yolk_slice){memory + i * SIZE, SIZE};
            kvs[i] = (struct yolk_kv){&keys[i], 8, &slices[i], 1, -1, 0};
            fill(memory + i * SIZE, SIZE, keys[i]);
        }
        if (yolk_store_put(worker->store, kvs, BATCH) != YOLK_OK)
            worker->failure = strdup(yolk_last_error());
        memset(memory, 0xdd, (size_t)BATCH * SIZE);
        if (yolk_store_get(worker->store, kvs, BATCH) == YOLK_OK)
            worker->failure = worker->failure;
        for (size_t i = 0; i < BATCH && worker->failure == NULL; i++) {
            if (kvs[i].result == SIZE && !is_filled(memory + i * SIZE, SIZE, keys[i]))
                worker->failure = "wrong bytes";
            else if (kvs[i].result < 0 && kvs[i].result != YOLK_ERR_NOT_FOUND &&
                     kvs[i].result != YOLK_ERR_NOT_READY)
                worker->failure = yolk_strerror((int)kvs[i].result);
        }
    }
    free(memory);
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(16 * MIB_BYTES);
    struct worker workers[8] = {{0}};
    for (unsigned i = 0; i < 8; i++) {
        workers[i].store = store;
        workers[i].number = i + 1;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failure != NULL)
            fail_msg("worker %u: %s", i, workers[i].failure);
    }
    close_store(store);
}

static void bad_options(void **state)
{
    (void)state;
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    memset(&options, 0, sizeof(options));
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
    yolk_store_options_init(&options);
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "master"));
    options.master = "embedded";
    options.transport = "pigeon";
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "pigeon"));
    options.transport = NULL;
    options.secret_file = "/nonexistent/secret";
    assert_int_equal(yolk_store_open(&options, &store), YOLK_ERR_CONFIG);
    options.secret_file = NULL;
    options.master = "127.0.0.1:1"; /* nobody listens */
    options.timeout_ms = 300;
    options.put_wait_ms = 100;
    enum yolk_status status = yolk_store_open(&options, &store);
    assert_true(status == YOLK_ERR_REFUSED || status == YOLK_ERR_TIMEOUT);
    assert_non_null(strstr(yolk_last_error(), "127.0.0.1:1"));
    assert_null(store);
}

static void copies_of_a_put(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(4 * MIB_BYTES);
    uint8_t bytes[100];
    struct yolk_slice slice = {bytes, sizeof(bytes)};
    struct yolk_kv kv = {.key = "k", .key_size = 1, .slices = &slice, .slice_count = 1};
    struct yolk_replica replicas[2] = {{.size = 1}, {.size = 1}};
    size_t count = 9;
    fill(bytes, sizeof(bytes), 1);
    assert_int_equal(yolk_store_put_replicas(store, &kv, 1, 0), YOLK_ERR_INVALID);
    assert_int_equal(yolk_store_put_replicas(store, &kv, 1, 5), YOLK_ERR_INVALID);
    assert_int_equal(kv.result, YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), "1 to 4 copies, not 5"));
    assert_int_equal(yolk_store_locate(store, "k", 1, replicas, 2, &count), YOLK_ERR_NOT_FOUND);
    assert_int_equal(yolk_store_put_replicas(store, &kv, 1, 1), YOLK_OK);
    assert_int_equal(kv.result, sizeof(bytes));
    assert_int_equal(yolk_store_locate(store, "k", 1, replicas, 2, &count), YOLK_OK);
    assert_int_equal(count, 1);
    assert_int_equal(replicas[0].size, sizeof(bytes));
    assert_int_equal(replicas[0].medium, YOLK_MEDIUM_MEMORY);
    assert_true(replicas[0].segment != 0 && replicas[0].offset < 4 * MIB_BYTES);
    assert_int_equal(replicas[1].size, 1);
    count = 9;
    assert_int_equal(yolk_store_locate(store, "k", 1, NULL, 0, &count), YOLK_OK);
    assert_int_equal(count, 1);
    close_store(store);
}

static void forked_child(void **state)
{
    (void)state;
    struct yolk_store *store = open_store(4 * MIB_BYTES);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct yolk_kv kv = {.key = "k", .key_size = 1};
        int ok = yolk_store_exist(store, &kv, 1) == YOLK_ERR_FORKED &&
                 yolk_store_close(store) == YOLK_ERR_FORKED;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_store(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options),
        cmocka_unit_test(single_values),
        cmocka_unit_test(questions_are_no_hits),
        cmocka_unit_test(odd_keys_and_slices),
        cmocka_unit_test(batches),
        cmocka_unit_test(too_large),
        cmocka_unit_test(eviction),
        cmocka_unit_test(buffers),
        cmocka_unit_test(threads),
        cmocka_unit_test(copies_of_a_put),
        cmocka_unit_test(forked_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
