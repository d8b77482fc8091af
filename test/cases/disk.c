/* SPDX-License-Identifier: Apache-2.0 */
#include "disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 60000, PUT_BATCH = 32, KEY_SIZE = 64 };

/* ---- values ---- */
void values_make(struct values *values, const char *prefix, uint64_t count, size_t size)
{
    *values = (struct values){prefix, count, size, calloc(count, 1)};
    assert_non_null(values->stored);
}

void values_free(struct values *values)
{
    free(values->stored);
    values->stored = NULL;
}

static void value_key(char key[KEY_SIZE], const struct values *values, uint64_t number)
{
    snprintf(key, KEY_SIZE, "%s/%" PRIu64, values->prefix, number);
}

/* As large a batch as small values want. */
static uint64_t batch_of(const struct values *values)
{
    return values->size >= (256 << 10) ? 4 : PUT_BATCH;
}

uint64_t values_put(struct yolk_store *store, struct values *values, uint64_t from, uint64_t to)
{
    struct yolk_kv kvs[PUT_BATCH];
    struct yolk_slice slices[PUT_BATCH];
    char keys[PUT_BATCH][KEY_SIZE];
    uint64_t refused = 0, batch = batch_of(values);
    uint8_t *data = malloc(batch * values->size);
    for (uint64_t at = from; at < to; at += batch) {
        uint64_t n = to - at < batch ? to - at : batch;
        for (uint64_t i = 0; i < n; i++) {
            value_key(keys[i], values, at + i);
            slices[i] = (struct yolk_slice){data + i * values->size, values->size};
            fill_value(slices[i].ptr, values->size, at + i);
            kvs[i] = (struct yolk_kv){keys[i], strlen(keys[i]), &slices[i], 1, 0, 0};
        }
        enum yolk_status ignored = yolk_store_put(store, kvs, n); /* each key has its own */
        (void)ignored;
        for (uint64_t i = 0; i < n; i++) {
            values->stored[at + i] |= kvs[i].result == (int64_t)values->size;
            refused += kvs[i].result != (int64_t)values->size;
        }
    }
    free(data);
    return refused;
}

struct part {
    struct yolk_store *store;
    struct values *values;
    uint64_t from, to, refused;
};

static void *put_part(void *argument)
{
    struct part *part = argument;
    part->refused = values_put(part->store, part->values, part->from, part->to);
    return NULL;
}

uint64_t values_put_parallel(struct yolk_store *store, struct values *values, int threads)
{
    enum { THREADS_MAX = 32 };
    struct part parts[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    uint64_t refused = 0;
    assert_true(threads <= THREADS_MAX);
    for (int i = 0; i < threads; i++) {
        parts[i] = (struct part){store, values, values->count * (uint64_t)i / (uint64_t)threads,
                                 values->count * ((uint64_t)i + 1) / (uint64_t)threads, 0};
        assert_int_equal(pthread_create(&ids[i], NULL, put_part, &parts[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        assert_int_equal(pthread_join(ids[i], NULL), 0);
        refused += parts[i].refused;
    }
    return refused;
}

int64_t get_from(struct yolk_store *store, const char *key, void *data, size_t size,
                 int32_t *medium)
{
    struct yolk_slice slice = {data, size};
    struct yolk_kv kv = {key, strlen(key), &slice, 1, 0, -1};
    enum yolk_status status = yolk_store_get(store, &kv, 1);
    if (medium != NULL)
        *medium = kv.medium;
    return status != YOLK_OK ? status : kv.result;
}

struct found values_get(struct yolk_store *store, const struct values *values)
{
    struct found found = {0};
    uint8_t *data = malloc(values->size);
    for (uint64_t i = 0; i < values->count; i++) {
        char key[KEY_SIZE];
        int32_t medium = -1;
        value_key(key, values, i);
        memset(data, 0, values->size);
        int64_t result = get_from(store, key, data, values->size, &medium);
        if (result >= 0 && (result != (int64_t)values->size || !value_is(data, values->size, i)))
            found.wrong++;
        else if (result >= 0)
            found.exact++;
        else if (result == YOLK_ERR_NOT_FOUND)
            *(values->stored[i] ? &found.lost : &found.missing) += 1;
        else
            found.unexpected++;
        found.on_disk += result >= 0 && medium == YOLK_MEDIUM_LOCAL_DISK;
        if (result < 0 && result != YOLK_ERR_NOT_FOUND)
            print_message("%s: %s\n", key, yolk_strerror((int)result));
    }
    free(data);
    return found;
}

/* ---- what the master says ---- */
static int is_quiet(void *context)
{
    return cluster_figure(context, "tasks") == 0 && cluster_figure(context, "guards") == 0;
}

void disk_wait_quiet(struct yolk_store *store)
{
    assert_true(wait_until(is_quiet, store, WAIT_MS));
}

struct least {
    struct yolk_store *store;
    const char *name;
    uint64_t least;
    int exactly;
};

static int figure_is(void *context)
{
    const struct least *least = context;
    uint64_t figure = cluster_figure(least->store, least->name);
    return least->exactly ? figure == least->least : figure >= least->least;
}

void disk_wait_mounted(struct yolk_store *store, uint64_t count)
{
    struct least least = {store, "disk_segments", count, 1};
    assert_true(wait_until(figure_is, &least, WAIT_MS));
}

void disk_wait_figure_at_least(struct yolk_store *store, const char *name, uint64_t least)
{
    struct least wait = {store, name, least, 0};
    if (!wait_until(figure_is, &wait, WAIT_MS))
        fail_msg("%s is %" PRIu64 ", not %" PRIu64 " or more", name, cluster_figure(store, name),
                 least);
}

void disk_check_books(struct yolk_store *store)
{
    uint64_t differences = UINT64_MAX;
    assert_int_equal(yolk_store_recount(store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
}

/* ---- files ---- */
void scratch_make(char folder[DISK_PATH_MAX])
{
    /* Not in memory, as /tmp may be: direct I/O is to be used. */
    const char *parent = getenv("TMPDIR");
    snprintf(folder, DISK_PATH_MAX, "%s/yolk-cases-XXXXXX",
             parent != NULL && parent[0] == '/' ? parent : "/var/tmp");
    assert_non_null(mkdtemp(folder));
}

/* Runs a program to its end; its output is added to `log`. Answers its exit code. */
static int program_run(const char *const argv[], const char *log)
{
    pid_t pid = fork();
    int code;
    assert_true(pid >= 0);
    if (pid == 0) {
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &code, 0), pid);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

void scratch_remove(const char *folder)
{
    const char *const argv[] = {"rm", "-rf", "--one-file-system", folder, NULL};
    assert_int_equal(program_run(argv, "/dev/null"), 0);
}

int scratch_files_beside(const char *folder, const char *name)
{
    DIR *dir = opendir(folder);
    int count = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strcmp(entry->d_name, name) != 0;
    closedir(dir);
    return count;
}

static void read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t got = read(fd, text, size - 1);
    assert_true(got >= 0);
    text[got] = 0;
    close(fd);
}

int fsck_is_clean(const char *path, char *text, size_t size)
{
    char program[4096], log[DISK_PATH_MAX + 32];
    program_path(program, sizeof program);
    snprintf(log, sizeof log, "%s.fsck", path);
    const char *const argv[] = {program, "fsck", "--data", path, NULL};
    uint64_t begin = test_now_ms();
    int code;
    do { /* the kernel ends the I/O of who was killed, and only then lets go of the file */
        unlink(log);
        code = program_run(argv, log);
        read_text(log, text, size);
    } while (strstr(text, "has it open") != NULL && test_now_ms() - begin < 2000);
    unlink(log);
    if (code != 0)
        print_message("%s", text);
    return code == 0;
}

uint64_t fsck_figure(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (at == NULL)
        fail_msg("fsck says no \"%s\":\n%s", name, text);
    return strtoull(at + strlen(name), NULL, 10);
}

uint64_t occurrences(const char *path, const char *text)
{
    struct stat info;
    uint64_t count = 0;
    assert_int_equal(stat(path, &info), 0);
    char *all = malloc((size_t)info.st_size + 1);
    read_text(path, all, (size_t)info.st_size + 1);
    for (const char *at = all; (at = strstr(at, text)) != NULL; at += strlen(text))
        count++;
    free(all);
    return count;
}

/* ---- a disk of its own ---- */
static char loop_folder[DISK_PATH_MAX]; /* "": none is mounted */

int loop_disk_mount(const char *folder, uint64_t bytes)
{
    char image[DISK_PATH_MAX + 16], at[DISK_PATH_MAX + 16], log[DISK_PATH_MAX + 16], text[512];
    snprintf(image, sizeof image, "%s/image", folder);
    snprintf(at, sizeof at, "%s/disk", folder);
    snprintf(log, sizeof log, "%s/mount.log", folder);
    int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
    assert_int_equal(mkdir(at, 0700), 0);
    const char *const format[] = {"mkfs.ext4", "-q", "-F", "-m", "0", image, NULL};
    const char *const mount[] = {"mount", "-o", "loop", image, at, NULL};
    if (geteuid() == 0 && program_run(format, log) == 0 && program_run(mount, log) == 0) {
        snprintf(loop_folder, sizeof loop_folder, "%s", folder);
        return 1;
    }
    if (geteuid() == 0)
        read_text(log, text, sizeof text);
    else
        snprintf(text, sizeof text, "only root can");
    print_message("SKIP: no file system in a file can be mounted here: %.*s\n",
                  (int)strcspn(text, "\n"), text);
    return 0;
}

void loop_disk_unmount(const char *folder)
{
    char at[DISK_PATH_MAX + 16];
    snprintf(at, sizeof at, "%s/disk", folder);
    /* Its files are let go of a moment after the processes that had them open have ended. */
    const char *const argv[] = {"umount", "-l", at, NULL};
    loop_folder[0] = 0;
    assert_int_equal(program_run(argv, "/dev/null"), 0);
}

int loop_disk_teardown(void **state)
{
    (void)state;
    if (loop_folder[0] != 0)
        loop_disk_unmount(loop_folder);
    return 0;
}

/* ---- a cluster ---- */
const struct cluster_options disk_cluster_options = {500, 30000, 60000, 0};

void disk_cluster_start(struct disk_cluster *c, const char *dram, const char *ssd,
                        const char *faults)
{
    scratch_make(c->folder);
    snprintf(c->log, sizeof c->log, "%s.log", c->folder);
    snprintf(c->file, sizeof c->file, "%s/yolk.slot0", c->folder);
    c->node = (struct cluster_node){dram, ssd, c->folder, faults, c->log};
    cluster_start(&c->cluster, &disk_cluster_options);
    cluster_add_node_with(&c->cluster, &c->node);
    c->store = cluster_client(&c->cluster, 0, 10000);
    disk_wait_mounted(c->store, 1);
}

struct ready {
    struct disk_cluster *c;
    uint64_t count; /* of its lives so far */
};

static int is_ready(void *context)
{
    const struct ready *r = context;
    return occurrences(r->c->log, "yolk node ready") > r->count &&
           cluster_figure(r->c->store, "disk_segments") == 1 &&
           cluster_figure(r->c->store, "disk_lost_bytes") == 0;
}

void disk_cluster_restart_node(struct disk_cluster *c, const char *what)
{
    struct ready ready = {c, 0};
    struct cluster_node again = c->node;
    if (access(c->log, F_OK) == 0)
        ready.count = occurrences(c->log, "yolk node ready");
    again.faults = NULL;
    cluster_restart_node(&c->cluster, 0, &again);
    if (!wait_until(is_ready, &ready, 20000))
        fail_msg("%s: the node is not back, or not all of its disk: %" PRIu64
                 " bytes of it are still lost",
                 what, cluster_figure(c->store, "disk_lost_bytes"));
}

void disk_cluster_end(struct disk_cluster *c)
{
    disk_check_books(c->store);
    assert_int_equal(yolk_store_close(c->store), YOLK_OK);
    cluster_stop(&c->cluster);
    scratch_remove(c->folder);
    unlink(c->log);
}

/* ---- processes ---- */
uint64_t resident_bytes(pid_t pid)
{
    char path[64], text[256];
    uint64_t pages;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    read_text(path, text, sizeof text);
    assert_int_equal(sscanf(text, "%*u %" SCNu64, &pages), 1);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t cpu_ms(pid_t pid)
{
    char path[64], text[1024];
    uint64_t user, system;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    read_text(path, text, sizeof text);
    const char *after = strrchr(text, ')');
    assert_non_null(after);
    assert_int_equal(sscanf(after + 2,
                            "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
                            &user, &system),
                     2);
    return (user + system) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}
