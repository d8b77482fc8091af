/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure cases of classes B and F: reading from the disk while it is in use. */
#include <dirent.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "disk.h"

/* A store of this process that gives memory and disk to the cluster. */
static struct yolk_store *open_owner(const struct cluster *cluster, const char *folder,
                                     uint64_t dram, uint64_t ssd)
{
    char path[DISK_PATH_MAX + 8];
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    snprintf(path, sizeof path, "%s/yolk", folder);
    yolk_store_options_init(&options);
    options.master = cluster->address;
    options.segment_size_bytes = dram;
    options.ssd_size_bytes = ssd;
    options.ssd_path = path;
    options.put_wait_ms = 10000;
    enum yolk_status status = yolk_store_open(&options, &store);
    if (status != YOLK_OK)
        fail_msg("%s: %s", yolk_strerror(status), yolk_last_error());
    disk_wait_mounted(store, 1);
    return store;
}

/* ---- C23 ---- */
enum { C23_THREADS = 16, C23_BATCH = 8, C23_SIZE = 2 << 20, C23_KEYS = 40 };

struct batch_reader {
    struct yolk_store *store;
    int number;
    int wrong;
    uint64_t took_ms;
};

static void *read_batch(void *argument)
{
    struct batch_reader *r = argument;
    struct yolk_kv kvs[C23_BATCH];
    struct yolk_slice slices[C23_BATCH];
    char keys[C23_BATCH][32];
    uint8_t *data = malloc((size_t)C23_BATCH * C23_SIZE);
    uint64_t begin = test_now_ms();
    for (int i = 0; i < C23_BATCH; i++) {
        snprintf(keys[i], sizeof keys[i], "set/%d", (r->number * 3 + i) % C23_KEYS);
        slices[i] = (struct yolk_slice){data + (size_t)i * C23_SIZE, C23_SIZE};
        kvs[i] = (struct yolk_kv){keys[i], strlen(keys[i]), &slices[i], 1, 0, -1};
    }
    enum yolk_status ignored = yolk_store_get(r->store, kvs, C23_BATCH); /* each key has its own */
    (void)ignored;
    r->took_ms = test_now_ms() - begin;
    for (int i = 0; i < C23_BATCH; i++) {
        int number = (r->number * 3 + i) % C23_KEYS;
        bool is_right =
            kvs[i].result == C23_SIZE && value_is(slices[i].ptr, C23_SIZE, (uint64_t)number);
        if (!is_right)
            print_error("%s: %lld after %llu ms\n", keys[i], (long long)kvs[i].result,
                        (unsigned long long)r->took_ms);
        r->wrong += !is_right;
    }
    free(data);
    return NULL;
}

/* More is asked for at once than is ever kept in between. */
static void c23_more_readers_than_staging(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    struct batch_reader readers[C23_THREADS];
    pthread_t threads[C23_THREADS];
    disk_cluster_start(&c, "8MiB", "256MiB", NULL);
    values_make(&values, "set", C23_KEYS, C23_SIZE);
    assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
    disk_wait_quiet(c.store);
    for (int i = 0; i < C23_THREADS; i++) {
        readers[i] = (struct batch_reader){c.store, i, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_batch, &readers[i]), 0);
    }
    for (int i = 0; i < C23_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
        assert_true(readers[i].took_ms < 30000);
    }
    /* 256 MiB were on their way; what was kept of them is bounded, and nobody goes on working. */
    assert_true(resident_bytes(c.cluster.nodes[0]) < (uint64_t)(8 + 160) << 20);
    disk_wait_quiet(c.store);
    uint64_t node = cpu_ms(c.cluster.nodes[0]), here = cpu_ms(getpid());
    poll(NULL, 0, 1000);
    assert_true(cpu_ms(c.cluster.nodes[0]) - node < 500);
    assert_true(cpu_ms(getpid()) - here < 500);
    values_free(&values);
    disk_cluster_end(&c);
}

/* ---- C24 ---- */
struct refusal {
    pthread_t thread;
    long countdown; /* of this thread's allocations; below 0: none is refused any more */
    int refused;
};

static bool refuse(void *self)
{
    struct refusal *refusal = self;
    if (!pthread_equal(refusal->thread, pthread_self()) || refusal->countdown < 0 ||
        refusal->countdown-- > 0)
        return false;
    refusal->refused++;
    return true;
}

static int read_ten(struct yolk_store *store, uint8_t *data, size_t size)
{
    enum { KEYS = 10 };
    struct yolk_kv kvs[KEYS];
    struct yolk_slice slices[KEYS];
    char keys[KEYS][32];
    int exact = 0;
    for (int i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof keys[i], "ten/%d", i);
        slices[i] = (struct yolk_slice){data + (size_t)i * size, size};
        kvs[i] = (struct yolk_kv){keys[i], strlen(keys[i]), &slices[i], 1, YOLK_ERR_NO_MEMORY, -1};
    }
    memset(data, 0, KEYS * size);
    enum yolk_status ignored = yolk_store_get(store, kvs, KEYS); /* each key has its own */
    (void)ignored;
    for (int i = 0; i < KEYS; i++) {
        int good = kvs[i].result == (int64_t)size;
        assert_true(!good || value_is(slices[i].ptr, size, (uint64_t)i));
        exact += good;
    }
    return exact;
}

static void c24_memory_refused_in_the_middle_of_a_read(void **state)
{
    (void)state;
    enum { SIZE = 300 << 10 };
    struct cluster cluster;
    char folder[DISK_PATH_MAX];
    struct values ten, filler;
    struct refusal refusal = {.thread = pthread_self(), .countdown = -1};
    base_alloc_set_hook(refuse, &refusal);
    scratch_make(folder);
    cluster_start(&cluster, &disk_cluster_options);
    struct yolk_store *store = open_owner(&cluster, folder, 4 << 20, 64 << 20);
    values_make(&ten, "ten", 10, SIZE);
    values_make(&filler, "filler", 12, 1 << 20);
    uint8_t *data = malloc((size_t)10 * SIZE);
    assert_int_equal(values_put(store, &ten, 0, ten.count), 0);
    assert_int_equal(values_put(store, &filler, 0, filler.count), 0);
    long highest = 0;
    uint64_t turns = rounds(80, 1000);
    for (uint64_t i = 0; i < turns; i++) {
        refusal.countdown = (long)(i % (uint64_t)(highest + 3));
        int before = refusal.refused;
        read_ten(store, data, SIZE);
        if (refusal.refused > before && (long)(i % (uint64_t)(highest + 3)) >= highest)
            highest++; /* there are more allocations than thought */
        refusal.countdown = -1;
        if (i % 10 == 0)
            assert_int_equal(read_ten(store, data, SIZE), 10);
    }
    assert_true(refusal.refused > 0);
    disk_wait_quiet(store); /* no reader and no task holds anything */
    assert_int_equal(read_ten(store, data, SIZE), 10);
    /* All memory can be evicted. */
    struct values all;
    values_make(&all, "all", 3, 1 << 20);
    assert_int_equal(values_put(store, &all, 0, all.count), 0);
    disk_check_books(store);
    values_free(&all);
    values_free(&ten);
    values_free(&filler);
    free(data);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    base_alloc_set_hook(NULL, NULL);
    cluster_stop(&cluster);
    scratch_remove(folder);
}

/* ---- C87 ---- */
enum { C87_KEYS = 160, C87_SIZE = 256 << 10 };

struct racer {
    struct yolk_store *store;
    unsigned number;
    atomic_int *stop;
    uint64_t exact, on_disk, missing, unexpected, wrong;
};

/* The first word names key and version, the rest follows from it. */
static void *rewrite_keys(void *argument)
{
    struct racer *r = argument;
    uint8_t *data = malloc(C87_SIZE);
    for (uint64_t turn = 0; !atomic_load(r->stop); turn++) {
        uint64_t key = (turn * 37 + r->number * 11) % C87_KEYS;
        uint64_t seed = key << 32 | r->number << 24 | (turn & 0xffffff);
        char name[32];
        snprintf(name, sizeof name, "race/%u", (unsigned)key);
        if (turn % 3 == 0)
            remove_one(r->store, name, 1);
        fill_value(data, C87_SIZE, seed);
        memcpy(data, &seed, sizeof seed);
        int64_t result = put_one(r->store, name, data, C87_SIZE);
        r->unexpected += result < 0 && result != YOLK_ERR_NO_SPACE;
    }
    free(data);
    return NULL;
}

static void *race_read(void *argument)
{
    struct racer *r = argument;
    uint8_t *data = malloc(C87_SIZE);
    for (uint64_t turn = 0; !atomic_load(r->stop); turn++) {
        uint64_t key = (turn * 29 + r->number * 53) % C87_KEYS, seed;
        char name[32];
        int32_t medium = -1;
        snprintf(name, sizeof name, "race/%u", (unsigned)key);
        int64_t result = get_from(r->store, name, data, C87_SIZE, &medium);
        if (result < 0) {
            int gone = result == YOLK_ERR_NOT_FOUND || result == YOLK_ERR_NOT_READY;
            r->missing += (uint64_t)gone;
            r->unexpected += (uint64_t)!gone;
            if (!gone)
                print_message("%s: %s: %s\n", name, yolk_strerror((int)result), yolk_last_error());
            continue;
        }
        uint8_t first[8];
        memcpy(&seed, data, sizeof seed);
        fill_value(first, sizeof first, seed);
        memcpy(data, first, sizeof first);
        int good = result == C87_SIZE && seed >> 32 == key && value_is(data, C87_SIZE, seed);
        r->exact += (uint64_t)good;
        r->wrong += !good;
        r->on_disk += good && medium == YOLK_MEDIUM_LOCAL_DISK;
    }
    free(data);
    return NULL;
}

static void c87_reads_while_the_disk_evicts_and_rewrites(void **state)
{
    (void)state;
    enum { RACERS = 6 };
    struct cluster cluster;
    char folder[DISK_PATH_MAX];
    struct racer racers[RACERS];
    pthread_t threads[RACERS];
    atomic_int stop = 0;
    scratch_make(folder);
    cluster_start(&cluster, &disk_cluster_options);
    struct yolk_store *owner = open_owner(&cluster, folder, 4 << 20, 24 << 20);
    struct yolk_store *remote = cluster_client(&cluster, 0, 5000);
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){i % 2 ? owner : remote, i, &stop, 0, 0, 0, 0, 0};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < 2 ? rewrite_keys : race_read, &racers[i]), 0);
    }
    poll(NULL, 0, (int)rounds(4000, 600000)); /* the length of the race */
    atomic_store(&stop, 1);
    uint64_t on_disk[2] = {0, 0};
    for (unsigned i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(racers[i].wrong, 0);
        assert_int_equal(racers[i].unexpected, 0);
        on_disk[i % 2] += racers[i].on_disk;
    }
    assert_true(on_disk[0] > 0 && on_disk[1] > 0); /* from elsewhere and from here */
    assert_true(cluster_figure(owner, "disk_evictions") > 0);
    disk_wait_quiet(remote);
    disk_check_books(remote);
    assert_int_equal(cluster_figure(remote, "replica_bad"), 0);
    assert_int_equal(cluster_figure(remote, "disk_conflicts"), 0);
    assert_int_equal(yolk_store_close(remote), YOLK_OK);
    assert_int_equal(yolk_store_close(owner), YOLK_OK);
    cluster_stop(&cluster);
    scratch_remove(folder);
}

/* ---- C89 ---- */
static void c89_no_belief_in_a_copy_that_is_gone(void **state)
{
    (void)state;
    enum { SIZE = 256 << 10, HOT = 12 };
    struct disk_cluster c;
    struct values values, hot;
    uint8_t *data = malloc(SIZE);
    char key[64];
    disk_cluster_start(&c, "8MiB", "16MiB", NULL);
    values_make(&values, "key", rounds(200, 4000), SIZE);
    hot = values;
    hot.count = HOT;
    for (uint64_t at = 0; at < values.count; at += 10) { /* the disk turns over many times */
        assert_int_equal(values_put(c.store, &values, at, at + 10), 0);
        (void)values_get(c.store, &hot);
    }
    assert_true(cluster_figure(c.store, "disk_evictions") > 0);
    disk_wait_quiet(c.store);
    uint64_t there, evicted;
    do { /* until nothing goes while they are counted */
        evicted = cluster_figure(c.store, "evictions");
        there = 0;
        for (uint64_t i = 0; i < values.count; i++) {
            snprintf(key, sizeof key, "key/%d", (int)i);
            there += exist_one(c.store, key) == 1;
        }
    } while (evicted != cluster_figure(c.store, "evictions"));
    assert_int_equal(there + evicted, values.count); /* whatever went, was counted */
    for (uint64_t i = 0; i < values.count; i++) {
        snprintf(key, sizeof key, "key/%d", (int)i);
        if (exist_one(c.store, key) != 1)
            continue;
        assert_int_equal(get_one(c.store, key, data, SIZE), SIZE);
        assert_true(value_is(data, SIZE, i));
    }
    free(data);
    values_free(&values);
    disk_cluster_end(&c);
}

/* ---- C91 ---- */
static int opens_a_file_of(const char *name)
{
    DIR *dir = opendir("/proc/self/fd");
    int found = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char link[320], target[1024];
        snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = 0;
        found |= strstr(target, name) != NULL;
    }
    closedir(dir);
    return found;
}

struct same_reader {
    struct yolk_store *store;
    const char *key;
    uint64_t seed;
    atomic_int *go;
    int wrong;
};

enum { C91_SIZE = 1 << 20 };

static void *read_same(void *argument)
{
    struct same_reader *r = argument;
    uint8_t *data = malloc(C91_SIZE);
    while (!atomic_load(r->go))
        sched_yield();
    for (int i = 0; i < 3; i++) {
        memset(data, 0, C91_SIZE);
        int64_t result = get_one(r->store, r->key, data, C91_SIZE);
        r->wrong += result != C91_SIZE || !value_is(data, C91_SIZE, r->seed);
    }
    free(data);
    return NULL;
}

static void c91_another_node_reads_and_one_promotion_follows(void **state)
{
    (void)state;
    enum { READERS = 16 };
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, "16MiB", "128MiB", NULL);
    values_make(&values, "key", 40, C91_SIZE);
    assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
    disk_wait_quiet(c.store);
    struct yolk_store *other = cluster_client(&c.cluster, 4 << 20, 5000); /* a node too */
    uint8_t *data = malloc(C91_SIZE);
    for (uint64_t i = 0; i < 8; i++) { /* once each, which promotes nothing: exact at first */
        char key[32];
        int32_t medium = -1;
        snprintf(key, sizeof key, "key/%d", (int)i);
        assert_int_equal(get_from(other, key, data, C91_SIZE, &medium), C91_SIZE);
        assert_int_equal(medium, YOLK_MEDIUM_LOCAL_DISK);
        assert_true(value_is(data, C91_SIZE, i));
    }
    assert_int_equal(cluster_figure(other, "promotes"), 0);
    for (uint64_t i = values.count - 8; i < values.count; i++) { /* room for it in memory */
        char key[32];
        snprintf(key, sizeof key, "key/%d", (int)i);
        assert_int_equal(remove_one(other, key, 1), YOLK_OK);
    }
    atomic_int go = 0;
    struct same_reader readers[READERS];
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct same_reader){i % 2 ? other : c.store, "key/9", 9, &go, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_same, &readers[i]), 0);
    }
    atomic_store(&go, 1);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    disk_wait_quiet(other);
    assert_int_equal(cluster_figure(other, "promotes"), 1);
    assert_int_equal(cluster_figure(other, "promotes_done"), 1);
    int32_t medium = -1;
    assert_int_equal(get_from(other, "key/9", data, C91_SIZE, &medium), C91_SIZE);
    assert_int_equal(medium, YOLK_MEDIUM_MEMORY);
    assert_true(value_is(data, C91_SIZE, 9));
    assert_false(opens_a_file_of("yolk.slot"));
    free(data);
    values_free(&values);
    assert_int_equal(yolk_store_close(other), YOLK_OK);
    disk_cluster_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c23_more_readers_than_staging),
        cmocka_unit_test(c24_memory_refused_in_the_middle_of_a_read),
        cmocka_unit_test(c87_reads_while_the_disk_evicts_and_rewrites),
        cmocka_unit_test(c89_no_belief_in_a_copy_that_is_gone),
        cmocka_unit_test(c91_another_node_reads_and_one_promotion_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
