/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure cases, class B: capacity, eviction, fragmentation. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster.h"

struct pusher {
    struct yolk_store *store;
    int number;
    uint64_t count;
    size_t size;
    uint64_t failed;
    uint64_t wrong_code;
};

static void *push(void *argument)
{
    struct pusher *p = argument;
    uint8_t *data = malloc(p->size);
    char key[64];
    for (uint64_t i = 0; i < p->count; i++) {
        snprintf(key, sizeof key, "push/%d/%llu", p->number, (unsigned long long)i);
        fill_value(data, p->size, i);
        int64_t result = put_one(p->store, key, data, p->size);
        p->failed += result != (int64_t)p->size;
        p->wrong_code += result < 0 && result != YOLK_ERR_NO_SPACE;
    }
    free(data);
    return NULL;
}

static uint64_t lines_of(int fd)
{
    static char text[1 << 16];
    uint64_t lines = 0;
    off_t at = 0;
    for (ssize_t got; (got = pread(fd, text, sizeof text, at)) > 0; at += got)
        for (ssize_t i = 0; i < got; i++)
            lines += text[i] == '\n';
    return lines;
}

/* What the master, the nodes and this client say, in one file instead of standard error. */
static int said = -1, standard_error = -1;

static void catch_log(void)
{
    said = memfd_create("log", MFD_CLOEXEC);
    standard_error = dup(STDERR_FILENO);
    assert_true(said >= 0 && standard_error >= 0);
    assert_true(dup2(said, STDERR_FILENO) >= 0);
}

/* Also after a failure, whose reason stands in the file. */
static int show_log(void **state)
{
    char text[4096];
    off_t at = 0;
    (void)state;
    if (standard_error < 0)
        return 0;
    (void)dup2(standard_error, STDERR_FILENO);
    for (ssize_t got; (got = pread(said, text, sizeof text, at)) > 0; at += got)
        if (write(STDERR_FILENO, text, (size_t)got) < 0)
            break;
    close(said);
    close(standard_error);
    said = standard_error = -1;
    return 0;
}

static void c14_many_writers_into_a_full_pool(void **state)
{
    (void)state;
    enum { WRITERS = 32, SIZE = 1 << 20 };
    struct cluster cluster;
    catch_log();
    cluster_start(&cluster, &(struct cluster_options){1000, 30000, 60000, 0});
    cluster_add_node(&cluster, "256MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 2000);
    cluster_wait_segments(store, 1);
    uint64_t each = rounds(20, 320); /* MiB a writer: in full, 10 GiB together */
    struct pusher pushers[WRITERS];
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pushers[i] = (struct pusher){store, i, each, SIZE, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, push, &pushers[i]), 0);
    }
    uint64_t failed = 0, wrong_code = 0;
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        failed += pushers[i].failed;
        wrong_code += pushers[i].wrong_code;
    }
    assert_true(lines_of(said) <= 100);
    assert_int_equal(wrong_code, 0);
    assert_true(failed * 100 <= WRITERS * each);
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

/* Puts values of one size until one finds no room; answers the bytes that went in. */
static uint64_t fill_pool(struct yolk_store *store, const char *prefix, size_t size)
{
    uint8_t *data = malloc(size);
    uint64_t bytes = 0;
    char key[64];
    for (uint64_t i = 0;; i++) {
        snprintf(key, sizeof key, "%s/%llu", prefix, (unsigned long long)i);
        fill_value(data, size, i);
        uint64_t evicted = cluster_figure(store, "evictions");
        int64_t result = put_one(store, key, data, size);
        if (result != (int64_t)size || cluster_figure(store, "evictions") != evicted)
            break;
        bytes += size;
    }
    free(data);
    return bytes;
}

static int pool_is_empty(void *context)
{
    return cluster_bytes_in_use(context) == 0;
}

static void c16_freed_space_serves_any_size(void **state)
{
    (void)state;
    const uint64_t capacity = 256 << 20;
    const size_t sizes[] = {1 << 20, 3 << 20, 100 << 10};
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){500, 30000, 60000, 1000});
    cluster_add_node(&cluster, "256MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 50);
    cluster_wait_segments(store, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char prefix[32];
        uint64_t removed = 0;
        snprintf(prefix, sizeof prefix, "round%zu", i);
        assert_true(fill_pool(store, prefix, sizes[i]) * 100 >= capacity * 95);
        assert_int_equal(yolk_store_remove_all(store, 1, &removed), YOLK_OK);
        assert_true(removed > 0);
        assert_true(wait_until(pool_is_empty, store, 10000));
    }
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

static void c22_puts_leave_a_dead_node_and_do_not_flood_a_new_one(void **state)
{
    (void)state;
    enum { SIZE = 64 << 10, NODES = 3, PUTS = 1000 };
    struct cluster cluster;
    cluster_start(&cluster, &(struct cluster_options){500, 2000, 3000, 0});
    for (int i = 0; i < NODES; i++)
        cluster_add_node(&cluster, "64MiB");
    struct yolk_store *store = cluster_client(&cluster, 0, 8000);
    cluster_wait_segments(store, NODES);
    uint8_t data[SIZE];
    char key[64];
    for (int i = 0; i < 2765; i++) { /* 90 % of three times 64 MiB */
        snprintf(key, sizeof key, "first/%d", i);
        fill_value(data, SIZE, (uint64_t)i);
        assert_int_equal(put_one(store, key, data, SIZE), SIZE);
    }
    cluster_kill_node(&cluster, 0, SIGKILL);
    for (int i = 0; i < 20;
         i++) { /* go elsewhere at the first failed transfer, not after the TTL */
        uint64_t before = test_now_ms();
        snprintf(key, sizeof key, "second/%d", i);
        fill_value(data, SIZE, (uint64_t)i);
        assert_int_equal(put_one(store, key, data, SIZE), SIZE);
        assert_true(test_now_ms() - before < 3000);
    }
    cluster_wait_segments(store, NODES - 1);
    cluster_add_node(&cluster, "64MiB");
    cluster_wait_segments(store, NODES);
    struct segment_puts before[NODES], after[NODES];
    assert_int_equal(cluster_segment_puts(store, before, NODES), NODES);
    for (int i = 0; i < PUTS; i++) {
        snprintf(key, sizeof key, "third/%d", i);
        fill_value(data, SIZE, (uint64_t)i);
        assert_int_equal(put_one(store, key, data, SIZE), SIZE);
    }
    assert_int_equal(cluster_segment_puts(store, after, NODES), NODES);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(after[i].segment, before[i].segment);
        uint64_t drawn = after[i].puts - before[i].puts;
        assert_true(before[i].puts > 0 || drawn > 0); /* the new one takes part */
        assert_true(drawn * 100 <= PUTS * 60);
    }
    assert_int_equal(yolk_store_close(store), YOLK_OK);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(c14_many_writers_into_a_full_pool, show_log),
        cmocka_unit_test(c16_freed_space_serves_any_size),
        cmocka_unit_test(c22_puts_leave_a_dead_node_and_do_not_flood_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
