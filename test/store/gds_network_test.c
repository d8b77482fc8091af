/* SPDX-License-Identifier: Apache-2.0 */
/* GDS files of several clients and a master behind a socket, which is restarted. The files are
 * reached through host memory, which is what every machine can do. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

#include "base/limits.h"
#include "platform/clock.h"
#include "served_master.h"

enum { SIZE = 70001, ALLOCATED = 73728, FILE_BYTES = 8 << 20, WRONG = -99999 };
#define PATIENCE_NS (30 * NS_PER_S)

struct fixture {
    char folder[64];
    char path[80];
    struct master master;
};

static void master_start(struct master *master)
{
    struct master_config config;
    master_config_default(&config);
    config.lease_ttl_ms = 1;
    config.heartbeat_ms = 50;
    config.put_timeout_ms = 2000;
    master_start_with(master, &config);
}

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/var/tmp/yolk-gds-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/values", f->folder);
    master_start(&f->master);
}

static void finish(struct fixture *f, int slots)
{
    char file[96];
    master_stop(&f->master);
    for (int i = 0; i < slots; i++) {
        snprintf(file, sizeof(file), "%s.slot%d", f->path, i);
        assert_int_equal(unlink(file), 0);
    }
    assert_int_equal(rmdir(f->folder), 0);
}

/* path NULL: without a file. */
static struct yolk_store *open_store(const struct fixture *f, const char *name, const char *path,
                                     uint64_t memory)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = f->master.address;
    options.name = name;
    options.segment_size_bytes = memory;
    options.drain_grace_ms = 100;
    options.put_wait_ms = 20000;
    options.gds_enabled = path != NULL;
    options.gds_path = path;
    options.gds_capacity_bytes = FILE_BYTES;
    options.gds_allow_fallback = 1;
    options.gds_no_cufile = 1;
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

static void fill(uint8_t *to, uint64_t k)
{
    uint64_t x = k * 2654435761u + 12345;
    for (size_t i = 0; i < SIZE; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        to[i] = (uint8_t)(x >> 56);
    }
}

static int64_t put(struct yolk_store *store, uint64_t k)
{
    uint8_t *memory = malloc(SIZE);
    struct yolk_slice slice = {memory, SIZE};
    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k), .slices = &slice, .slice_count = 1};
    fill(memory, k);
    enum yolk_status status = yolk_store_put(store, &kv, 1);
    free(memory);
    return status == (kv.result < 0 ? kv.result : YOLK_OK) ? kv.result : WRONG;
}

/* The medium, or why not; WRONG: the bytes are not right. Asserts nothing, as for threads. */
static int64_t get(struct yolk_store *store, uint64_t k)
{
    uint8_t *memory = malloc(2 * SIZE);
    struct yolk_slice slice = {memory, SIZE};
    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k), .slices = &slice, .slice_count = 1};
    enum yolk_status status = yolk_store_get(store, &kv, 1);
    int64_t result = kv.result < 0 ? kv.result : kv.medium;
    fill(memory + SIZE, k);
    if (status != (kv.result < 0 ? kv.result : YOLK_OK) ||
        (kv.result >= 0 && (kv.result != SIZE || memcmp(memory, memory + SIZE, SIZE) != 0)))
        result = WRONG;
    free(memory);
    return result;
}

static uint64_t figure(struct yolk_store *store, const char *name)
{
    char *text = NULL, line[128];
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    snprintf(line, sizeof(line), "%s ", name);
    const char *at = strstr(text, line);
    if (at == NULL)
        fail_msg("no figure %s in\n%s", name, text);
    uint64_t value = strtoull(at + strlen(line), NULL, 10);
    free(text);
    return value;
}

static void await_figure(struct yolk_store *store, const char *name, uint64_t wanted)
{
    uint64_t deadline_ns = clock_real_now_ns() + PATIENCE_NS;
    while (figure(store, name) != wanted) {
        if (clock_real_now_ns() > deadline_ns)
            fail_msg("%s is %llu, not %llu", name, (unsigned long long)figure(store, name),
                     (unsigned long long)wanted);
        sched_yield();
    }
}

/* Nothing is taken in the file but by objects. */
static void no_extent_is_lost(struct yolk_store *store)
{
    await_figure(store, "client_gds_reserved", 0);
    await_figure(store, "client_gds_preserved", 0);
    await_figure(store, "client_gds_doomed", 0);
    assert_int_equal(figure(store, "client_gds_used_bytes"),
                     figure(store, "client_gds_objects") * ALLOCATED);
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
}

/* Two of one host share the path; each has a file of its own, and reads the other's through it. */
static void files_of_others_are_read_through_them(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct yolk_store *one = open_store(&f, "one", f.path, 0);
    struct yolk_store *two = open_store(&f, "two", f.path, 0);
    struct yolk_store *none = open_store(&f, "none", NULL, 0);
    assert_int_equal(put(one, 1), SIZE);
    assert_int_equal(put(two, 2), SIZE);
    struct yolk_store *const stores[] = {one, two, none};
    for (int i = 0; i < 3; i++)
        for (uint64_t k = 1; k <= 2; k++)
            assert_int_equal(get(stores[i], k), YOLK_MEDIUM_GDS);
    assert_int_equal(figure(one, "client_gds_hits_total"),
                     1); /* its own read, not those of others */
    assert_int_equal(figure(two, "client_gds_hits_total"), 1);
    close_store(two); /* and what it alone had is gone with it */
    assert_int_equal(get(none, 1), YOLK_MEDIUM_GDS);
    assert_int_equal(get(none, 2), YOLK_ERR_NOT_FOUND);
    two = open_store(&f, "two", f.path, 0);
    assert_int_equal(get(none, 2), YOLK_MEDIUM_GDS);
    no_extent_is_lost(one);
    no_extent_is_lost(two);
    close_store(none);
    close_store(two);
    close_store(one);
    finish(&f, 2);
}

/* ---- the master is restarted while values are put ---- */

enum { WRITERS = 3, VALUES = 30 };

struct writer {
    struct yolk_store *store;
    uint64_t first;
    _Atomic uint64_t *done;
    int64_t results[VALUES];
};

static void *write_values(void *arg)
{
    struct writer *writer = arg;
    for (uint64_t i = 0; i < VALUES; i++) {
        writer->results[i] = put(writer->store, writer->first + i);
        atomic_fetch_add(writer->done, 1);
    }
    return NULL;
}

static void nothing_is_lost_with_the_master(void **state)
{
    (void)state;
    struct fixture f;
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    _Atomic uint64_t done = 0;
    begin(&f);
    struct yolk_store *store = open_store(&f, "one", f.path, 2 << 20);
    for (uint64_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.store = store, .first = 1000 * i, .done = &done};
        assert_int_equal(pthread_create(&threads[i], NULL, write_values, &writers[i]), 0);
    }
    for (uint64_t round = 1; round <= 3; round++) {
        while (atomic_load(&done) < round * WRITERS * VALUES / 4)
            sched_yield();
        master_stop(&f.master);
        master_start(&f.master);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < WRITERS; i++)
        for (uint64_t k = 0; k < VALUES; k++) {
            assert_int_equal(writers[i].results[k], SIZE);
            assert_true(get(store, writers[i].first + k) >= 0);
        }
    no_extent_is_lost(store);
    close_store(store);
    finish(&f, 1);
}

/* ---- readers while the file makes room ---- */

struct reader {
    struct yolk_store *store;
    _Atomic int *stop;
    uint64_t hits;
    int64_t wrong; /* neither found nor missed */
};

static void *read_values(void *arg)
{
    struct reader *reader = arg;
    for (uint64_t k = 0; !atomic_load(reader->stop); k = (k + 7) % 300) {
        int64_t medium = get(reader->store, k); /* the bytes are compared */
        reader->hits += medium == YOLK_MEDIUM_GDS;
        /* NOT_READY: it is just being put. */
        int missed = medium == YOLK_ERR_NOT_FOUND || medium == YOLK_ERR_NOT_READY;
        if (medium != YOLK_MEDIUM_GDS && !missed)
            reader->wrong = medium;
    }
    return NULL;
}

static void readers_beside_eviction(void **state)
{
    (void)state;
    struct fixture f;
    _Atomic int stop = 0;
    pthread_t threads[2];
    begin(&f);
    struct yolk_store *owner = open_store(&f, "one", f.path, 0);
    struct yolk_store *other = open_store(&f, "none", NULL, 0);
    struct reader readers[2] = {{.store = owner, .stop = &stop}, {.store = other, .stop = &stop}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_values, &readers[i]), 0);
    for (uint64_t k = 0; k < 300; k++) /* the file holds 113 */
        assert_int_equal(put(owner, k), SIZE);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(readers[i].wrong, 0);
        assert_true(readers[i].hits > 0);
    }
    no_extent_is_lost(owner);
    close_store(other);
    close_store(owner);
    finish(&f, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_others_are_read_through_them),
        cmocka_unit_test(nothing_is_lost_with_the_master),
        cmocka_unit_test(readers_beside_eviction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
