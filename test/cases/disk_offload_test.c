/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure cases of classes B and F: what goes to the disk, and that it can be read there. */
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

#include "disk.h"

enum { MIB = 1 << 20 };

static void c15_readable_is_what_put_said(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, rounds(0, 1) ? "1GiB" : "32MiB", rounds(0, 1) ? "8GiB" : "512MiB", NULL);
    values_make(&values, "flat-out", rounds(128, 4096), 1 << 20);
    uint64_t refused = values_put_parallel(c.store, &values, 8);
    assert_true(refused * 100 < values.count);
    disk_wait_quiet(c.store);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.exact, values.count - refused);
    assert_int_equal(found.missing, refused);
    assert_true(found.on_disk > values.count / 2);
    values_free(&values);
    disk_cluster_end(&c);
}

static void c20_no_key_goes_without_a_copy_on_an_idle_disk(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, "16MiB", "1GiB", NULL);
    values_make(&values, "small", rounds(8000, 100000), 4096);
    assert_int_equal(values_put_parallel(c.store, &values, 4), 0);
    disk_wait_quiet(c.store);
    assert_int_equal(cluster_figure(c.store, "offload_skipped"), 0);
    assert_true(cluster_figure(c.store, "memory_evictions") > values.count / 2);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.exact, values.count);
    values_free(&values);
    disk_cluster_end(&c);
}

/* What is asked for at a time, an eighth of the memory, takes longer than the time after which an
 * unanswered task is asked for again. */
static void c21_slow_copies_do_not_expire(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, "24MiB", "1GiB", "write:0+=2MiB");
    values_make(&values, "slow", rounds(28, 144), 1 << 20);
    assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
    disk_wait_quiet(c.store); /* no task, no reference is left */
    assert_int_equal(cluster_figure(c.store, "offloads_failed"), 0);
    assert_int_equal(cluster_figure(c.store, "offload_skipped"), 0);
    assert_int_equal(cluster_figure(c.store, "disk_conflicts"), 0);
    assert_int_equal(occurrences(c.log, "expire"), 0);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.exact, values.count);
    uint64_t removed = 0;
    assert_int_equal(yolk_store_remove_all(c.store, 1, &removed), YOLK_OK);
    assert_int_equal(removed, values.count);
    /* All memory can be had again: one value takes most of it. */
    uint8_t *large = malloc(20 << 20);
    fill_value(large, 20 << 20, 21);
    assert_int_equal(put_one(c.store, "large", large, 20 << 20), 20 << 20);
    free(large);
    values_free(&values);
    disk_cluster_end(&c);
}

static void c82_one_file_however_many_keys(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, "4MiB", "1GiB", NULL);
    values_make(&values, "many", rounds(4000, 100000), 1024);
    assert_int_equal(values_put_parallel(c.store, &values, 4), 0);
    disk_wait_quiet(c.store);
    assert_int_equal(scratch_files_beside(c.folder, "yolk.slot0"), 0);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.exact, values.count);
    assert_true(found.on_disk > 0);
    values_free(&values);
    disk_cluster_end(&c);
}

/* ---- C85 ---- */
struct odd_key {
    const char *bytes;
    size_t size;
};

static struct yolk_kv odd_kv(const struct odd_key *key, struct yolk_slice *slice)
{
    return (struct yolk_kv){key->bytes, key->size, slice, 1, 0, -1};
}

static void check_odd_keys(struct yolk_store *store, const struct odd_key *keys, size_t count,
                           int32_t medium)
{
    enum { SIZE = 3000 };
    uint8_t data[SIZE];
    for (size_t i = 0; i < count; i++) {
        struct yolk_slice slice = {data, SIZE};
        struct yolk_kv kv = odd_kv(&keys[i], &slice);
        memset(data, 0, sizeof data);
        assert_int_equal(yolk_store_get(store, &kv, 1), YOLK_OK);
        assert_int_equal(kv.result, SIZE);
        assert_int_equal(kv.medium, medium);
        assert_true(value_is(data, SIZE, i));
    }
}

static void c85_keys_of_any_bytes(void **state)
{
    (void)state;
    enum { SIZE = 3000 };
    static char long_key[300], longest[4096], other[4096];
    memset(long_key, 'k', sizeof long_key);
    memset(longest, 'x', sizeof longest);
    memset(other, 'x', sizeof other);
    other[sizeof other - 1] = 'y';
    const struct odd_key keys[] = {{"a/b", 3},
                                   {"a:b", 3},
                                   {"a_b", 3},
                                   {".", 1},
                                   {"..", 2},
                                   {"../../outside", 13},
                                   {"/tmp/absolute", 13},
                                   {long_key, sizeof long_key},
                                   {longest, sizeof longest},
                                   {other, sizeof other},
                                   {"\xc3\xa4\xe2\x82\xac", 5},
                                   {"new\nline", 8},
                                   {"nul\0a", 5},
                                   {"nul\0b", 5},
                                   {"nul", 3},
                                   {"\0", 1}};
    const size_t count = sizeof keys / sizeof *keys;
    struct disk_cluster c;
    struct values filler;
    uint8_t data[SIZE];
    disk_cluster_start(&c, "4MiB", "64MiB", NULL);
    for (size_t i = 0; i < count; i++) {
        struct yolk_slice slice = {data, SIZE};
        struct yolk_kv kv = odd_kv(&keys[i], &slice);
        fill_value(data, SIZE, i);
        assert_int_equal(yolk_store_put(c.store, &kv, 1), YOLK_OK);
        assert_int_equal(kv.result, SIZE);
    }
    values_make(&filler, "filler", 16, 1 << 20);
    assert_int_equal(values_put(c.store, &filler, 0, filler.count), 0);
    disk_wait_quiet(c.store);
    check_odd_keys(c.store, keys, count, YOLK_MEDIUM_LOCAL_DISK);
    assert_int_equal(scratch_files_beside(c.folder, "yolk.slot0"), 0);
    /* The file's own record of the keys, not the master's. */
    cluster_kill_node(&c.cluster, 0, SIGKILL);
    cluster_kill_master(&c.cluster);
    cluster_restart_master(&c.cluster);
    cluster_restart_node(&c.cluster, 0, &c.node);
    disk_wait_mounted(c.store, 1);
    disk_wait_figure_at_least(c.store, "objects", count);
    check_odd_keys(c.store, keys, count, YOLK_MEDIUM_LOCAL_DISK);
    values_free(&filler);
    disk_cluster_end(&c);
}

/* ---- C96 ---- */
static void c96_sizes_are_any_number_of_bytes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,     7,     511,   512,     513, 4095,    4096,    4097,
                                   12345, 65535, 65537, MIB - 1, MIB, MIB + 1, MIB + 13};
    const size_t count = sizeof sizes / sizeof *sizes;
    struct disk_cluster c;
    struct values filler;
    uint8_t *data = malloc(2 * MIB);
    char key[32];
    disk_cluster_start(&c, "16MiB", "128MiB", NULL);
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "size/%zu", sizes[i]);
        fill_value(data, sizes[i], i);
        assert_int_equal(put_one(c.store, key, data, sizes[i]), sizes[i]);
    }
    values_make(&filler, "filler", 32, MIB);
    assert_int_equal(values_put(c.store, &filler, 0, filler.count), 0);
    disk_wait_quiet(c.store);
    for (size_t i = 0; i < count; i++) {
        int32_t medium = -1;
        snprintf(key, sizeof key, "size/%zu", sizes[i]);
        memset(data, 0xa5, 2 * MIB);
        assert_int_equal(get_from(c.store, key, data, sizes[i], &medium), sizes[i]);
        assert_int_equal(medium, YOLK_MEDIUM_LOCAL_DISK);
        assert_true(value_is(data, sizes[i], i));
        assert_int_equal(data[sizes[i]], 0xa5); /* not a byte more */
    }
    free(data);
    values_free(&filler);
    disk_cluster_end(&c);
}

/* ---- C86 ---- */
static void c86_same_keys_again_and_again(void **state)
{
    (void)state;
    enum { AGAIN = 100, SIZE = 4096 };
    struct disk_cluster c;
    struct values others, again;
    disk_cluster_start(&c, "8MiB", "256MiB", NULL);
    values_make(&others, "other", rounds(5000, 10000), SIZE);
    values_make(&again, "again", AGAIN, SIZE);
    uint64_t turns = 0, step = others.count / 50, begin = test_now_ms();
    uint64_t length = rounds(0, 120000);
    for (uint64_t at = 0; at < others.count || test_now_ms() - begin < length; turns++) {
        assert_int_equal(values_put(c.store, &again, 0, AGAIN), 0);
        uint64_t from = at % others.count;
        uint64_t to = from + step < others.count ? from + step : others.count;
        assert_int_equal(values_put(c.store, &others, from, to), 0);
        at += to - from;
        for (int i = 0; i < AGAIN && turns % 2 == 0; i++) {
            char key[64];
            snprintf(key, sizeof key, "again/%d", i);
            assert_int_equal(remove_one(c.store, key, 1), YOLK_OK);
            again.stored[i] = 0;
        }
    }
    assert_int_equal(values_put(c.store, &again, 0, AGAIN), 0);
    disk_wait_quiet(c.store);
    assert_int_equal(cluster_figure(c.store, "offload_refused"), 0);
    assert_int_equal(cluster_figure(c.store, "offload_skipped"), 0);
    assert_int_equal(values_get(c.store, &others).exact, others.count);
    assert_int_equal(values_get(c.store, &again).exact, AGAIN);
    values_free(&others);
    values_free(&again);
    disk_cluster_end(&c);
}

/* ---- C90 ---- */
enum { C90_COUNT = 24, C90_SIZE = (256 << 10) + 77 };

static void read_in_every_way(struct yolk_store *store)
{
    uint64_t before = cluster_figure(store, "get_hits_disk");
    /* One by one. Whoever is read twice may come back to memory, so each way has keys of its own.
     */
    uint8_t *data = malloc((size_t)C90_SIZE * C90_COUNT);
    char keys[C90_COUNT][64];
    for (int i = 0; i < C90_COUNT; i++)
        snprintf(keys[i], sizeof keys[i], "only-on-disk/%d", i);
    for (int i = 0; i < 8; i++) {
        int32_t medium = -1;
        assert_int_equal(get_from(store, keys[i], data, C90_SIZE, &medium), C90_SIZE);
        assert_int_equal(medium, YOLK_MEDIUM_LOCAL_DISK);
        assert_true(value_is(data, C90_SIZE, (uint64_t)i));
    }
    struct yolk_kv kvs[8];
    struct yolk_slice slices[8][3];
    for (int i = 0; i < 8; i++) { /* a batch, each scattered over three pieces */
        uint8_t *to = data + (size_t)i * C90_SIZE;
        slices[i][0] = (struct yolk_slice){to, 1};
        slices[i][1] = (struct yolk_slice){to + 1, 100000};
        slices[i][2] = (struct yolk_slice){to + 100001, C90_SIZE - 100001};
        kvs[i] = (struct yolk_kv){keys[8 + i], strlen(keys[8 + i]), slices[i], 3, 0, -1};
    }
    memset(data, 0, (size_t)C90_SIZE * C90_COUNT);
    assert_int_equal(yolk_store_get(store, kvs, 8), YOLK_OK);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(kvs[i].result, C90_SIZE);
        assert_int_equal(kvs[i].medium, YOLK_MEDIUM_LOCAL_DISK);
        assert_true(value_is(data + (size_t)i * C90_SIZE, C90_SIZE, 8 + (uint64_t)i));
    }
    for (int i = 16; i < C90_COUNT; i++) {
        struct yolk_buffer buffer;
        uint64_t size = 0;
        assert_int_equal(yolk_store_size(store, keys[i], strlen(keys[i]), &size), YOLK_OK);
        assert_int_equal(size, C90_SIZE);
        assert_int_equal(exist_one(store, keys[i]), 1);
        assert_int_equal(yolk_store_get_buffer(store, keys[i], strlen(keys[i]), &buffer), YOLK_OK);
        assert_int_equal(buffer.size, C90_SIZE);
        assert_int_equal(buffer.mapped, 0);
        assert_true(value_is(buffer.data, C90_SIZE, (uint64_t)i));
        yolk_store_release_buffer(store, &buffer);
    }
    free(data);
    assert_true(cluster_figure(store, "get_hits_disk") - before >= C90_COUNT);
}

static void put_and_push_out(struct yolk_store *store)
{
    struct values values, filler;
    values_make(&values, "only-on-disk", C90_COUNT, C90_SIZE);
    values_make(&filler, "filler", 40, 1 << 20);
    assert_int_equal(values_put(store, &values, 0, values.count), 0);
    assert_int_equal(values_put(store, &filler, 0, filler.count), 0);
    disk_wait_quiet(store);
    values_free(&values);
    values_free(&filler);
}

static void c90_remote_client_reads_the_disk(void **state)
{
    (void)state;
    struct disk_cluster c;
    disk_cluster_start(&c, "16MiB", "128MiB", NULL);
    put_and_push_out(c.store);
    read_in_every_way(c.store);
    disk_cluster_end(&c);
}

static void c90_in_process_client_reads_the_disk(void **state)
{
    (void)state;
    struct cluster cluster;
    char folder[DISK_PATH_MAX], path[DISK_PATH_MAX + 8];
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/yolk", folder);
    cluster_start(&cluster, &disk_cluster_options);
    yolk_store_options_init(&options);
    options.master = cluster.address;
    options.segment_size_bytes = 16 << 20;
    options.ssd_size_bytes = 128 << 20;
    options.ssd_path = path;
    options.put_wait_ms = 10000;
    assert_int_equal(yolk_store_open(&options, &store), YOLK_OK);
    disk_wait_mounted(store, 1);
    put_and_push_out(store);
    read_in_every_way(store);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
    scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c15_readable_is_what_put_said),
        cmocka_unit_test(c20_no_key_goes_without_a_copy_on_an_idle_disk),
        cmocka_unit_test(c21_slow_copies_do_not_expire),
        cmocka_unit_test(c82_one_file_however_many_keys),
        cmocka_unit_test(c85_keys_of_any_bytes),
        cmocka_unit_test(c96_sizes_are_any_number_of_bytes),
        cmocka_unit_test(c86_same_keys_again_and_again),
        cmocka_unit_test(c90_remote_client_reads_the_disk),
        cmocka_unit_test(c90_in_process_client_reads_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
