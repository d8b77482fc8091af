/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure cases of classes B and F: disks that are slow, full, or fail. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "disk.h"

enum { MIB = 1 << 20 };

/* ---- C25 ---- */
static void c25_memory_stays_bounded_above_a_slow_disk(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    uint64_t full = rounds(0, 1), segment = full ? 512 : 32;
    disk_cluster_start(&c, full ? "512MiB" : "32MiB", full ? "8GiB" : "1GiB",
                       full ? "write:0+=20MiB" : "write:0+=120MiB");
    values_make(&values, "slow", rounds(320, 4096), MIB);
    for (uint64_t at = 0; at < values.count; at += 16) {
        assert_int_equal(values_put(c.store, &values, at, at + 16), 0);
        assert_true(resident_bytes(c.cluster.nodes[0]) <= (segment + 256) * MIB);
    }
    disk_wait_quiet(c.store);
    assert_true(resident_bytes(c.cluster.nodes[0]) <= (segment + 256) * MIB);
    assert_true(cluster_figure(c.store, "offload_bytes") > (values.count - 2 * segment) * MIB / 2);
    values_free(&values);
    disk_cluster_end(&c);
}

/* ---- C93 ---- */
static void c93_a_slow_disk_does_not_delay_heartbeats(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    const struct cluster_options strict = {500, 30000, 2000, 0};
    scratch_make(c.folder);
    snprintf(c.log, sizeof c.log, "%s.log", c.folder);
    c.node = (struct cluster_node){"16MiB", "1GiB", c.folder, "write:0+=1MiB", c.log};
    cluster_start(&c.cluster, &strict);
    cluster_add_node_with(&c.cluster, &c.node);
    c.store = cluster_client(&c.cluster, 0, 3000);
    disk_wait_mounted(c.store, 1);
    uint64_t begin = test_now_ms(), at = 0;
    values_make(&values, "slow", 100000, MIB);
    while (test_now_ms() - begin < rounds(3500, 60000) && at < values.count) {
        (void)values_put(c.store, &values, at, at + 4); /* some find no room: the disk is slow */
        at += 4;
    }
    values.count = at;
    assert_true(at > 16);
    assert_int_equal(cluster_figure(c.store, "sessions_expired"), 0);
    assert_int_equal(cluster_figure(c.store, "sessions"), 2);
    assert_int_equal(cluster_figure(c.store, "disk_segments"), 1);
    assert_true(cluster_figure(c.store, "disk_live_bytes") > 0);
    assert_true(cluster_figure(c.store, "disk_capacity_bytes") == 1u << 30);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.wrong, 0);
    assert_int_equal(found.unexpected, 0);
    assert_int_equal(cluster_figure(c.store, "sessions_expired"), 0);
    values_free(&values);
    disk_cluster_end(&c);
}

/* ---- C95 ---- */
struct off_on {
    struct disk_cluster *c;
    const char *text;
};

static int is_logged(void *context)
{
    const struct off_on *wanted = context;
    return occurrences(wanted->c->log, wanted->text) > 0;
}

static void wait_logged(struct disk_cluster *c, const char *text)
{
    struct off_on wanted = {c, text};
    if (!wait_until(is_logged, &wanted, 20000))
        fail_msg("the node never said \"%s\"", text);
}

static const char OFF[] = "takes no more values for now";
static const char ON[] = "takes values again";

/* Puts values until so many copies were made; answers how many. The master tries a disk that
 * failed again after up to 5 s. */
static uint64_t put_until_offloaded(struct disk_cluster *c, struct values *values, uint64_t copies)
{
    uint64_t at = 0, begin = test_now_ms();
    while (cluster_figure(c->store, "offloads_done") < copies) {
        assert_true(at < values->count && test_now_ms() - begin < 15000);
        assert_int_equal(values_put(c->store, values, at, at + 4), 0);
        at += 4;
    }
    disk_wait_quiet(c->store);
    return at;
}

/* While the disk fails, puts and reads of memory go on; what is on the disk is exact, or lost with
 * its being counted; afterwards the disk is used again by itself. */
static void fails_for_a_while(const char *faults)
{
    struct disk_cluster c;
    struct values before, during, after;
    uint8_t data[5000];
    print_message("%s\n", faults);
    disk_cluster_start(&c, "16MiB", "512MiB", faults);
    values_make(&before, "before", 20, MIB);
    values_make(&during, "during", 400, MIB);
    values_make(&after, "after", 1000, MIB);
    assert_int_equal(values_put(c.store, &before, 0, before.count), 0);
    uint64_t at = 0;
    while (occurrences(c.log, OFF) == 0 && at < during.count) {
        assert_int_equal(values_put(c.store, &during, at, at + 2), 0);
        at += 2;
    }
    during.count = at;
    wait_logged(&c, OFF);
    /* Memory is as quick as ever. */
    uint64_t begin = test_now_ms();
    fill_value(data, sizeof data, 95);
    assert_int_equal(put_one(c.store, "in memory", data, sizeof data), sizeof data);
    memset(data, 0, sizeof data);
    assert_int_equal(get_one(c.store, "in memory", data, sizeof data), sizeof data);
    assert_true(value_is(data, sizeof data, 95));
    assert_true(test_now_ms() - begin < 4000);
    wait_logged(&c, ON);
    assert_true(cluster_figure(c.store, "offloads_failed") > 0); /* seen from outside, too */
    uint64_t done = cluster_figure(c.store, "offloads_done");
    after.count = put_until_offloaded(&c, &after, done + 20);
    const struct values *all[] = {&before, &during, &after};
    uint64_t lost = 0, counted = cluster_figure(c.store, "evictions");
    for (int i = 0; i < 3; i++) {
        struct found found = values_get(c.store, all[i]);
        assert_int_equal(found.wrong, 0);
        assert_int_equal(found.unexpected, 0);
        lost += found.lost;
    }
    assert_true(lost <= counted);
    assert_true(cluster_figure(c.store, "offload_skipped") >= counted);
    values_free(&before);
    values_free(&during);
    values_free(&after);
    disk_cluster_end(&c);
}

static void c95_writes_fail_for_a_while(void **state)
{
    (void)state;
    fails_for_a_while("write:30+1s=eio");
}

static void c95_writes_find_no_space_for_a_while(void **state)
{
    (void)state;
    fails_for_a_while("write:30+1s=enospc");
}

static void c95_syncs_fail_for_a_while(void **state)
{
    (void)state;
    fails_for_a_while("sync:8+1s=eio,write:0+=100MiB");
}

/* What cannot be read goes, with its being counted, so that the key can be put again. */
static void c95_reads_fail_for_a_while(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, "16MiB", "128MiB", "read:20+1s=eio");
    values_make(&values, "key", 40, MIB);
    assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
    disk_wait_quiet(c.store);
    struct found found = values_get(c.store, &values);
    uint64_t gone = found.lost;
    assert_int_equal(found.wrong, 0);
    assert_int_equal(found.exact + gone + found.unexpected, values.count);
    assert_true(gone > 0 && gone < values.count);
    assert_int_equal(cluster_figure(c.store, "replica_bad"), gone);
    uint64_t begin = test_now_ms();
    do { /* by and by the disk is read again */
        assert_true(test_now_ms() - begin < 10000);
        assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
        disk_wait_quiet(c.store);
        found = values_get(c.store, &values);
        assert_int_equal(found.wrong, 0);
    } while (found.exact < values.count);
    assert_true(found.on_disk > 0);
    values_free(&values);
    disk_cluster_end(&c);
}

/* ---- C79, C80: a disk of its own ---- */
static uint64_t used_bytes(const char *at)
{
    struct statvfs info;
    assert_int_equal(statvfs(at, &info), 0);
    return (uint64_t)(info.f_blocks - info.f_bfree) * info.f_frsize;
}

/* A cluster without nodes whose disks are to lie in c->folder/disk. */
static int start_on_loop_disk(struct disk_cluster *c, uint64_t bytes, char at[DISK_PATH_MAX + 8])
{
    scratch_make(c->folder);
    snprintf(at, DISK_PATH_MAX + 8, "%s/disk", c->folder);
    if (!loop_disk_mount(c->folder, bytes)) {
        scratch_remove(c->folder);
        return 0;
    }
    snprintf(c->log, sizeof c->log, "%s.log", c->folder);
    cluster_start(&c->cluster, &disk_cluster_options);
    c->store = cluster_client(&c->cluster, 0, 10000);
    return 1;
}

static void end_on_loop_disk(struct disk_cluster *c)
{
    disk_check_books(c->store);
    assert_int_equal(yolk_store_close(c->store), YOLK_OK);
    cluster_stop(&c->cluster);
    loop_disk_unmount(c->folder);
    scratch_remove(c->folder);
    unlink(c->log);
}

/* Takes space of the disk until only `left` bytes are free. */
static void fill_disk(const char *at, const char *name, uint64_t left)
{
    char path[DISK_PATH_MAX + 64];
    struct statvfs info;
    snprintf(path, sizeof path, "%s/%s", at, name);
    assert_int_equal(statvfs(at, &info), 0);
    uint64_t free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (free_bytes > left)
        assert_int_equal(posix_fallocate(fd, 0, (off_t)(free_bytes - left)), 0);
    close(fd);
}

static void c79_the_limit_holds(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values values;
    char at[DISK_PATH_MAX + 8];
    uint64_t full = rounds(0, 1), limit = full ? 256 * MIB : 48 * MIB;
    if (!start_on_loop_disk(&c, full ? 1024 * MIB : 256 * MIB, at))
        skip();
    uint64_t empty = used_bytes(at);
    c.node = (struct cluster_node){"16MiB", full ? "256MiB" : "48MiB", at, NULL, c.log};
    cluster_add_node_with(&c.cluster, &c.node);
    disk_wait_mounted(c.store, 1);
    values_make(&values, "key", full ? 2048 : 320, MIB);
    assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
    disk_wait_quiet(c.store);
    /* The limit is of values; journal and superblocks are a sixteenth at most, or 4 MiB. */
    assert_true(used_bytes(at) - empty <= limit + limit / 16 + 4 * MIB);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.wrong, 0);
    assert_true(found.exact * MIB <= limit + 16 * MIB);
    assert_true(found.exact * MIB >= limit * 3 / 4);
    /* The last are there, the first are gone. */
    uint8_t *data = malloc(MIB);
    for (uint64_t i = 0; i < 8; i++) {
        char key[32];
        snprintf(key, sizeof key, "key/%d", (int)(values.count - 1 - i));
        assert_int_equal(get_one(c.store, key, data, MIB), MIB);
        snprintf(key, sizeof key, "key/%d", (int)i);
        assert_int_equal(get_one(c.store, key, data, MIB), YOLK_ERR_NOT_FOUND);
    }
    free(data);
    values_free(&values);
    end_on_loop_disk(&c);
}

static void c80_several_nodes_and_others_on_one_disk(void **state)
{
    (void)state;
    enum { NODES = 4 };
    struct disk_cluster c;
    struct values values;
    char at[DISK_PATH_MAX + 8];
    uint64_t full = rounds(0, 1), disk = full ? 1024 * MIB : 256 * MIB;
    if (!start_on_loop_disk(&c, disk, at))
        skip();
    fill_disk(at, "there-before", disk * 3 / 4);
    c.node = (struct cluster_node){"16MiB", full ? "800MiB" : "120MiB", at, NULL, c.log};
    for (uint64_t i = 0; i < NODES; i++) { /* each finds what the others left */
        cluster_add_node_with(&c.cluster, &c.node);
        disk_wait_figure_at_least(c.store, "capacity_bytes", (i + 1) * 16 * MIB);
        if (i == 1)
            fill_disk(at, "another", 8 * MIB);
    }
    assert_true(cluster_figure(c.store, "disk_segments") >= 1);
    assert_true(cluster_figure(c.store, "disk_capacity_bytes") <= disk * 3 / 4);
    assert_true(occurrences(c.log, "the capacity is") > 0);
    assert_true(occurrences(c.log, "this node has no disk") > 0);
    fill_disk(at, "the-rest", 0);
    values_make(&values, "key", full ? 2048 : 400, MIB);
    assert_int_equal(values_put_parallel(c.store, &values, 4), 0);
    disk_wait_quiet(c.store);
    assert_int_equal(cluster_figure(c.store, "offloads_failed"), 0);
    assert_int_equal(occurrences(c.log, OFF), 0);
    struct found found = values_get(c.store, &values);
    assert_int_equal(found.wrong, 0);
    assert_int_equal(found.unexpected, 0);
    assert_true(found.on_disk > 0);
    for (int i = 0; i < NODES; i++)
        assert_false(cluster_node_ended(&c.cluster, i));
    values_free(&values);
    end_on_loop_disk(&c);
}

/* Blocks cannot be reserved, and somebody else fills the disk meanwhile. */
static void c80_a_sparse_file_on_a_disk_that_others_fill(void **state)
{
    (void)state;
    struct disk_cluster c;
    struct values first, second, third;
    char at[DISK_PATH_MAX + 8], other[DISK_PATH_MAX + 32];
    if (!start_on_loop_disk(&c, 256 * MIB, at))
        skip();
    c.node = (struct cluster_node){"16MiB", "160MiB", at, "allocate:0+=eopnotsupp", c.log};
    cluster_add_node_with(&c.cluster, &c.node);
    disk_wait_mounted(c.store, 1);
    assert_true(occurrences(c.log, "the file is sparse") > 0);
    values_make(&first, "first", 40, MIB);
    values_make(&second, "second", 60, MIB);
    values_make(&third, "third", 1000, MIB);
    assert_int_equal(values_put(c.store, &first, 0, first.count), 0);
    disk_wait_quiet(c.store);
    fill_disk(at, "other", 4 * MIB);
    assert_int_equal(values_put(c.store, &second, 0, second.count), 0);
    wait_logged(&c, OFF);
    assert_true(occurrences(c.log, "no space") > 0);
    snprintf(other, sizeof other, "%s/other", at);
    assert_int_equal(unlink(other), 0);
    wait_logged(&c, ON);
    uint64_t done = cluster_figure(c.store, "offloads_done");
    third.count = put_until_offloaded(&c, &third, done + 20);
    const struct values *all[] = {&first, &second, &third};
    for (int i = 0; i < 3; i++) {
        struct found found = values_get(c.store, all[i]);
        assert_int_equal(found.wrong, 0);
        assert_int_equal(found.unexpected, 0);
        /* What was on the disk stays; what was only in memory then had to go. */
        assert_true(i > 0 || found.lost <= 16);
    }
    values_free(&first);
    values_free(&second);
    values_free(&third);
    end_on_loop_disk(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c25_memory_stays_bounded_above_a_slow_disk),
        cmocka_unit_test(c93_a_slow_disk_does_not_delay_heartbeats),
        cmocka_unit_test(c95_writes_fail_for_a_while),
        cmocka_unit_test(c95_writes_find_no_space_for_a_while),
        cmocka_unit_test(c95_syncs_fail_for_a_while),
        cmocka_unit_test(c95_reads_fail_for_a_while),
        cmocka_unit_test_teardown(c79_the_limit_holds, loop_disk_teardown),
        cmocka_unit_test_teardown(c80_several_nodes_and_others_on_one_disk, loop_disk_teardown),
        cmocka_unit_test_teardown(c80_a_sparse_file_on_a_disk_that_others_fill, loop_disk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
