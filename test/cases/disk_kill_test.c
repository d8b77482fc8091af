/* SPDX-License-Identifier: Apache-2.0 */
/* Public failure cases of class F: nodes with a disk that are killed and started again. After each
 * death the file is as it should be, what the master knew to be on the disk is served again, no
 * byte is wrong, and in the end no space is lost. */
#include <fcntl.h>
#include <inttypes.h>
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "disk.h"

/* Keys long enough that some hundred records fill a journal area, so that checkpoints come. */
enum { KEY_SIZE = 3000, KEYS = 400, VALUE_MAX = 96 << 10, FSCK_TEXT = 4096 };

struct mill {
    struct disk_cluster c;
    uint64_t turns; /* of the workload, over all lives of the node */
    uint8_t *data;
    uint64_t wrong;
    uint64_t epoch; /* of the journal at the last death: how many checkpoints there were */
};

static void long_key(char key[KEY_SIZE + 1], uint64_t number)
{
    memset(key, 'k', KEY_SIZE);
    int n = snprintf(key, KEY_SIZE, "key/%" PRIu64 "/", number);
    key[n] = 'k';
    key[KEY_SIZE] = 0;
}

static size_t value_size(uint64_t number)
{
    return (size_t)(number * 7919 % VALUE_MAX) + 1;
}

/* Puts, removes and gets, until the node dies or so many turns are over. */
static void work(struct mill *m, uint64_t turns)
{
    char key[KEY_SIZE + 1];
    for (uint64_t i = 0; i < turns && !cluster_node_ended(&m->c.cluster, 0); i++) {
        uint64_t turn = m->turns++, number = turn * 13 % KEYS;
        size_t size = value_size(number);
        long_key(key, number);
        fill_value(m->data, size, number);
        put_one(m->c.store, key, m->data, size);
        if (turn % 5 == 0) {
            long_key(key, turn * 31 % KEYS);
            remove_one(m->c.store, key, 1);
        }
        if (turn % 4 == 0) {
            number = turn * 17 % KEYS;
            long_key(key, number);
            int64_t got = get_one(m->c.store, key, m->data, VALUE_MAX);
            m->wrong += got >= 0 && (got != (int64_t)value_size(number) ||
                                     !value_is(m->data, (size_t)got, number));
        }
    }
}

/* What was only in memory died with it; that its owner is gone may not be known yet. */
static int is_lost(int64_t result)
{
    return result == YOLK_ERR_NOT_FOUND || result == YOLK_ERR_REFUSED ||
           result == YOLK_ERR_PEER_DEAD || result == YOLK_ERR_LINK || result == YOLK_ERR_STALE;
}

/* Answers how much disk space what was found takes. */
static uint64_t read_all(struct mill *m)
{
    char key[KEY_SIZE + 1];
    uint64_t bytes = 0;
    for (uint64_t number = 0; number < KEYS; number++) {
        long_key(key, number);
        int64_t got = get_one(m->c.store, key, m->data, VALUE_MAX);
        if (got >= 0)
            m->wrong +=
                got != (int64_t)value_size(number) || !value_is(m->data, (size_t)got, number);
        else if (!is_lost(got))
            fail_msg("get of key %" PRIu64 ": %s", number, yolk_strerror((int)got));
        bytes += got >= 0 ? ((uint64_t)got + 4095) / 4096 * 4096 : 0;
    }
    return bytes;
}

static void mill_start(struct mill *m, const char *faults)
{
    memset(m, 0, sizeof *m);
    m->data = malloc(VALUE_MAX);
    scratch_make(m->c.folder);
    snprintf(m->c.log, sizeof m->c.log, "%s.log", m->c.folder);
    snprintf(m->c.file, sizeof m->c.file, "%s/yolk.slot0", m->c.folder);
    m->c.node = (struct cluster_node){"2MiB", "16MiB", m->c.folder, faults, m->c.log};
    cluster_start(&m->c.cluster, &(struct cluster_options){200, 2000, 1000, 0});
    m->c.store = cluster_client(&m->c.cluster, 0, 50);
}

/* What the master believes to be on disks. When it hears of a death between two questions, all that
 * was live is lost. */
static uint64_t disk_bytes_known(struct yolk_store *store)
{
    for (;;) {
        uint64_t lost = cluster_figure(store, "disk_lost_bytes");
        uint64_t live = cluster_figure(store, "disk_live_bytes");
        if (cluster_figure(store, "disk_lost_bytes") == lost)
            return live + lost;
    }
}

/* The node is dead. What the master believes to be on its disk must be there. */
static void check_after_death(struct mill *m, const char *what)
{
    char text[FSCK_TEXT];
    if (access(m->c.file, F_OK) == 0 && !fsck_is_clean(m->c.file, text, sizeof text))
        fail_msg("%s: fsck finds:\n%s", what, text);
    if (access(m->c.file, F_OK) == 0)
        m->epoch = fsck_figure(text, "journal:    epoch");
    uint64_t bytes = disk_bytes_known(m->c.store);
    disk_cluster_restart_node(&m->c, what);
    if (scratch_files_beside(m->c.folder, "yolk.slot0") > 0)
        fail_msg("%s: another file was made", what);
    uint64_t now = cluster_figure(m->c.store, "disk_live_bytes"), found = read_all(m);
    if (now < bytes || found < bytes)
        fail_msg("%s: %" PRIu64 " bytes were on the disk, the master knows %" PRIu64
                 " now, and %" PRIu64 " can be read",
                 what, bytes, now, found);
    assert_int_equal(m->wrong, 0);
}

struct extents {
    struct yolk_store *store;
    uint64_t count;
};

static int extents_are(void *context)
{
    const struct extents *wanted = context;
    return cluster_figure(wanted->store, "disk_segments") == 1 &&
           cluster_figure(wanted->store, "disk_extents") == wanted->count &&
           cluster_figure(wanted->store, "tasks") == 0;
}

/* Memory of nodes that are dead, which this process keeps by mapping it. */
static uint64_t mapped_segments(void)
{
    char line[512];
    uint64_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "yolk-segment") != NULL;
    fclose(maps);
    return count;
}

/* The file holds what the master says; and nothing, when all was removed. */
static void mill_end(struct mill *m)
{
    char text[FSCK_TEXT];
    struct extents extents = {m->c.store, 0};
    disk_wait_quiet(m->c.store);
    cluster_kill_node(&m->c.cluster, 0, SIGTERM); /* what is in memory goes to the disk now */
    assert_true(fsck_is_clean(m->c.file, text, sizeof text));
    extents.count = fsck_figure(text, "extents:");
    assert_true(extents.count > 0);
    disk_cluster_restart_node(&m->c, "at the end");
    if (!wait_until(extents_are, &extents, 20000))
        fail_msg("the master knows %" PRIu64 " extents, and fsck said:\n%s",
                 cluster_figure(m->c.store, "disk_extents"), text);
    extents.count = 0;
    assert_int_equal(yolk_store_remove_all(m->c.store, 1, NULL), YOLK_OK);
    assert_true(wait_until(extents_are, &extents, 20000));
    cluster_kill_node(&m->c.cluster, 0, SIGTERM);
    assert_true(fsck_is_clean(m->c.file, text, sizeof text));
    assert_int_equal(fsck_figure(text, "extents:"), 0);
    assert_int_equal(scratch_files_beside(m->c.folder, "yolk.slot0"), 0);
    free(m->data);
    disk_cluster_end(&m->c);
}

/* The node dies at one step after the other of what `kind` counts; each time the next life is
 * examined and goes on from what the last has left. */
static void killed_at_steps(const char *kind, const char *how, uint64_t first, uint64_t step,
                            uint64_t count)
{
    struct mill m;
    char faults[64];
    uint64_t deaths = 0;
    mill_start(&m, NULL);
    cluster_add_node_with(&m.c.cluster, &m.c.node);
    disk_wait_mounted(m.c.store, 1);
    work(&m, KEYS / 2);
    for (uint64_t i = 0; i < count; i++) {
        cluster_kill_node(&m.c.cluster, 0, i % 2 ? SIGKILL : SIGTERM);
        snprintf(faults, sizeof faults, "%s:%" PRIu64 "=%s", kind, first + i * step, how);
        m.c.node.faults = faults;
        cluster_restart_node(&m.c.cluster, 0, &m.c.node);
        work(&m, KEYS);
        if (m.c.cluster.nodes[0] != 0)
            cluster_kill_node(&m.c.cluster, 0, SIGKILL);
        else
            deaths++;
        check_after_death(&m, faults);
    }
    assert_true(deaths * 2 > count); /* most steps were reached */
    assert_true(m.epoch >= 2);       /* so a checkpoint was */
    mill_end(&m);
}

static void c83_killed_at_each_write_of_value_record_and_checkpoint(void **state)
{
    (void)state;
    killed_at_steps("write", "kill", 0, rounds(11, 1), rounds(8, 200));
}

static void c83_killed_with_each_write_torn(void **state)
{
    (void)state;
    killed_at_steps("write", "tear", 3, rounds(17, 1), rounds(5, 200));
}

static void c83_killed_at_each_sync(void **state)
{
    (void)state;
    killed_at_steps("sync", "kill", 0, rounds(3, 1), rounds(4, 60));
}

static void c83_killed_at_each_read(void **state)
{
    (void)state;
    killed_at_steps("read", "kill", 0, rounds(13, 1), rounds(4, 40));
}

/* Opening, reserving blocks and the first writes of a file that is not there yet. */
static void c83_killed_while_the_file_is_made(void **state)
{
    (void)state;
    static const char *const faults[] = {"open:0=kill",  "open:1=kill",  "allocate:0=kill",
                                         "write:0=kill", "write:0=tear", "write:1=kill",
                                         "sync:0=kill",  "sync:1=kill",  "open:2=kill"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct mill m;
        mill_start(&m, faults[i]);
        cluster_add_node_with(&m.c.cluster, &m.c.node);
        work(&m, 40);
        if (m.c.cluster.nodes[0] != 0)
            cluster_kill_node(&m.c.cluster, 0, SIGKILL);
        check_after_death(&m, faults[i]);
        work(&m, 20);
        mill_end(&m);
    }
}

struct killer {
    pid_t victim;
    int after_ms;
};

static void *kill_later(void *argument)
{
    const struct killer *k = argument;
    poll(NULL, 0, k->after_ms); /* the moment is what is drawn */
    kill(k->victim, SIGKILL);
    return NULL;
}

static void c83_killed_at_random(void **state)
{
    (void)state;
    struct mill m;
    uint64_t seed = 83;
    mill_start(&m, NULL);
    cluster_add_node_with(&m.c.cluster, &m.c.node);
    disk_wait_mounted(m.c.store, 1);
    for (uint64_t i = 0, count = rounds(20, 100); i < count; i++) {
        pthread_t thread;
        char what[32];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct killer killer = {m.c.cluster.nodes[0], (int)((seed >> 40) % 250)};
        assert_int_equal(pthread_create(&thread, NULL, kill_later, &killer), 0);
        work(&m, 1000000); /* until it dies */
        assert_int_equal(pthread_join(thread, NULL), 0);
        snprintf(what, sizeof what, "death %" PRIu64, i);
        check_after_death(&m, what);
    }
    assert_true(mapped_segments() <= 12);
    mill_end(&m);
}

/* ---- C92 ---- */
static void c92_after_a_restart_the_disk_serves_again(void **state)
{
    (void)state;
    enum { SIZE = 256 << 10 };
    struct disk_cluster c;
    struct values values;
    disk_cluster_start(&c, "4MiB", "64MiB", NULL);
    values_make(&values, "key", 80, SIZE);
    for (int i = 0; i < 4;
         i++) { /* clean and killed in turn; the master restarts in the last two */
        assert_int_equal(values_put(c.store, &values, 0, values.count), 0);
        disk_wait_quiet(c.store);
        /* Ending in order it writes what is only in memory, too. */
        uint64_t on_disk =
            i % 2 == 0 ? values.count : cluster_figure(c.store, "disk_live_bytes") / SIZE;
        assert_true(on_disk >= values.count - 16);
        cluster_kill_node(&c.cluster, 0, i % 2 ? SIGKILL : SIGTERM);
        if (i >= 2) {
            cluster_kill_master(&c.cluster);
            cluster_restart_master(&c.cluster);
        }
        disk_cluster_restart_node(&c, "restart");
        disk_wait_figure_at_least(c.store, "disk_live_bytes", on_disk * SIZE);
        struct found found = values_get(c.store, &values);
        assert_int_equal(found.exact, on_disk);
        assert_int_equal(found.wrong + found.unexpected, 0);
    }
    values_free(&values);
    disk_cluster_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c83_killed_at_each_write_of_value_record_and_checkpoint),
        cmocka_unit_test(c83_killed_with_each_write_torn),
        cmocka_unit_test(c83_killed_at_each_sync),
        cmocka_unit_test(c83_killed_at_each_read),
        cmocka_unit_test(c83_killed_while_the_file_is_made),
        cmocka_unit_test(c83_killed_at_random),
        cmocka_unit_test(c92_after_a_restart_the_disk_serves_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
