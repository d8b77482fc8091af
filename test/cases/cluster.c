/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { START_TIMEOUT_MS = 20000 };

uint64_t test_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int wait_until(int (*check)(void *context), void *context, uint64_t timeout_ms)
{
    uint64_t end = test_now_ms() + timeout_ms;
    while (!check(context)) {
        if (test_now_ms() >= end)
            return 0;
        poll(NULL, 0, 5); /* the pace of asking, not a wait for an outcome */
    }
    return 1;
}

uint64_t rounds(uint64_t cut, uint64_t full)
{
    const char *value = getenv("YOLK_CASES_FULL");
    return value != NULL && strcmp(value, "1") == 0 ? full : cut;
}

/* Test programs stand in the build folder, beside `yolk` or one folder below it. */
void program_path(char *path, size_t size)
{
    char self[3000];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = 0;
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(self, '/');
        assert_non_null(slash);
        *slash = 0;
        snprintf(path, size, "%s/yolk", self);
        if (access(path, X_OK) == 0)
            return;
    }
    fail_msg("no program `yolk` beside this test");
}

static pid_t spawn(char *const argv[], int output)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (output >= 0)
            dup2(output, STDOUT_FILENO);
        execv(argv[0], argv);
        _exit(127);
    }
    return pid;
}

/* Reads the child's output until a line holds `needle`; the line is left in `line`. */
static void read_line_with(int fd, const char *needle, char *line, size_t size)
{
    uint64_t end = test_now_ms() + START_TIMEOUT_MS;
    size_t used = 0;
    while (test_now_ms() < end) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 100) <= 0)
            continue;
        ssize_t got = read(fd, line + used, 1);
        if (got <= 0)
            break;
        if (line[used] == '\n' || used + 2 == size) {
            line[used] = 0;
            if (strstr(line, needle) != NULL)
                return;
            used = 0;
        } else {
            used++;
        }
    }
    fail_msg("no line with \"%s\" from the process started", needle);
}

static void start_master(struct cluster *cluster, const char *port)
{
    static const char ready[] = "yolk master ready ";
    const struct cluster_options *options = &cluster->options;
    char path[4096], ttl[32], put[32], session[32], heartbeat[32], ratio[32], line[512];
    char at[16];
    program_path(path, sizeof path);
    snprintf(ttl, sizeof ttl, "%" PRIu64 "ms", options->lease_ttl_ms);
    snprintf(put, sizeof put, "%" PRIu64 "ms", options->put_timeout_ms);
    snprintf(session, sizeof session, "%" PRIu64 "ms", options->session_ttl_ms);
    uint64_t beat = options->session_ttl_ms / 5 < 1000 ? options->session_ttl_ms / 5 : 1000;
    snprintf(heartbeat, sizeof heartbeat, "%" PRIu64 "ms", beat);
    uint64_t permille = options->watermark_permille != 0 ? options->watermark_permille : 950;
    snprintf(ratio, sizeof ratio, "%" PRIu64 ".%03" PRIu64, permille / 1000, permille % 1000);
    snprintf(at, sizeof at, "%s", port);
    char *argv[] = {path,
                    "master",
                    "--port",
                    at,
                    "--admin-port",
                    "0",
                    "--lease-ttl",
                    ttl,
                    "--guard-ttl",
                    ttl,
                    "--heartbeat",
                    heartbeat,
                    "--put-timeout",
                    put,
                    "--session-ttl",
                    session,
                    "--eviction-high-watermark-ratio",
                    ratio,
                    NULL};
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    cluster->master = spawn(argv, pipes[1]);
    close(pipes[1]);
    read_line_with(pipes[0], ready, line, sizeof line);
    close(pipes[0]);
    const char *address = strstr(line, ready) + strlen(ready);
    snprintf(cluster->address, sizeof cluster->address, "%.*s", (int)strcspn(address, " \r\n"),
             address);
}

void cluster_start(struct cluster *cluster, const struct cluster_options *options)
{
    memset(cluster, 0, sizeof *cluster);
    cluster->options = *options;
    start_master(cluster, "0");
}

void cluster_kill_master(struct cluster *cluster)
{
    assert_int_equal(kill(cluster->master, SIGKILL), 0);
    assert_int_equal(waitpid(cluster->master, NULL, 0), cluster->master);
    cluster->master = 0;
}

void cluster_restart_master(struct cluster *cluster)
{
    char port[16];
    const char *colon = strrchr(cluster->address, ':');
    assert_non_null(colon);
    snprintf(port, sizeof port, "%s", colon + 1);
    start_master(cluster, port);
}

static pid_t spawn_node(const struct cluster *cluster, const struct cluster_node *node)
{
    char path[4096];
    program_path(path, sizeof path);
    const char *argv[16] = {path, "node", "--master", cluster->address, "--dram", node->dram};
    int count = 6;
    if (node->ssd != NULL) {
        argv[count++] = "--ssd";
        argv[count++] = node->ssd;
        argv[count++] = "--ssd-path";
        argv[count++] = node->ssd_folder;
    }
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int log =
        node->log == NULL ? -1 : open(node->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(quiet >= 0 && (node->log == NULL || log >= 0));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(log >= 0 ? log : quiet, STDOUT_FILENO);
        if (log >= 0)
            dup2(log, STDERR_FILENO);
        if (node->faults != NULL)
            setenv("YOLK_TEST_FILE_FAULTS", node->faults, 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(quiet);
    if (log >= 0)
        close(log);
    return pid;
}

int cluster_add_node_with(struct cluster *cluster, const struct cluster_node *node)
{
    assert_true(cluster->node_count < CLUSTER_NODES_MAX);
    int number = cluster->node_count++;
    cluster->nodes[number] = spawn_node(cluster, node);
    return number;
}

int cluster_add_node(struct cluster *cluster, const char *dram)
{
    return cluster_add_node_with(cluster, &(struct cluster_node){.dram = dram});
}

void cluster_restart_node(struct cluster *cluster, int number, const struct cluster_node *node)
{
    assert_int_equal(cluster->nodes[number], 0);
    cluster->nodes[number] = spawn_node(cluster, node);
}

int cluster_node_ended(struct cluster *cluster, int node)
{
    if (cluster->nodes[node] == 0)
        return 1;
    pid_t ended = waitpid(cluster->nodes[node], NULL, WNOHANG);
    assert_true(ended >= 0);
    if (ended > 0)
        cluster->nodes[node] = 0;
    return ended > 0;
}

void cluster_kill_node(struct cluster *cluster, int node, int signal)
{
    assert_int_equal(kill(cluster->nodes[node], signal), 0);
    assert_int_equal(waitpid(cluster->nodes[node], NULL, 0), cluster->nodes[node]);
    cluster->nodes[node] = 0;
}

void cluster_stop(struct cluster *cluster)
{
    for (int i = 0; i < cluster->node_count; i++) {
        if (cluster->nodes[i] > 0)
            cluster_kill_node(cluster, i, SIGKILL);
    }
    if (cluster->master > 0) {
        kill(cluster->master, SIGKILL);
        waitpid(cluster->master, NULL, 0);
    }
}

struct yolk_store *cluster_client(const struct cluster *cluster, uint64_t segment_size_bytes,
                                  uint64_t put_wait_ms)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = cluster->address;
    options.segment_size_bytes = segment_size_bytes;
    options.put_wait_ms = put_wait_ms;
    enum yolk_status status = yolk_store_open(&options, &store);
    if (status != YOLK_OK)
        fail_msg("open of %s: %s: %s", cluster->address, yolk_strerror(status), yolk_last_error());
    return store;
}

uint64_t cluster_figure(struct yolk_store *store, const char *name)
{
    char *text = NULL;
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    size_t length = strlen(name);
    for (const char *line = text; line != NULL && *line != 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            uint64_t value = strtoull(line + length + 1, NULL, 10);
            free(text);
            return value;
        }
    }
    fail_msg("the master reports no figure %s in:\n%s", name, text);
    return 0;
}

uint64_t cluster_bytes_in_use(struct yolk_store *store)
{
    return cluster_figure(store, "live_bytes") + cluster_figure(store, "open_bytes") +
           cluster_figure(store, "limbo_bytes");
}

int cluster_segment_puts(struct yolk_store *store, struct segment_puts *puts, int max)
{
    char *text = NULL;
    int count = 0;
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    for (const char *line = text; line != NULL && *line != 0; line = strchr(line, '\n')) {
        struct segment_puts one;
        line += *line == '\n';
        if (sscanf(line, "segment_puts{segment=\"%" SCNx64 "\"} %" SCNu64, &one.segment,
                   &one.puts) != 2)
            continue;
        assert_true(count < max);
        puts[count++] = one;
    }
    free(text);
    return count;
}

struct wait_segments {
    struct yolk_store *store;
    uint64_t count;
};

static int segments_are(void *context)
{
    struct wait_segments *wait = context;
    return cluster_figure(wait->store, "segments_open") == wait->count;
}

void cluster_wait_segments(struct yolk_store *store, uint64_t count)
{
    struct wait_segments wait = {store, count};
    assert_true(wait_until(segments_are, &wait, START_TIMEOUT_MS));
}

static struct yolk_kv one(const char *key, struct yolk_slice *slice)
{
    return (struct yolk_kv){.key = key,
                            .key_size = strlen(key),
                            .slices = slice,
                            .slice_count = slice != NULL && slice->size > 0 ? 1 : 0};
}

int64_t put_one(struct yolk_store *store, const char *key, const void *data, size_t size)
{
    struct yolk_slice slice = {(void *)(uintptr_t)data, size};
    struct yolk_kv kv = one(key, &slice);
    enum yolk_status status = yolk_store_put(store, &kv, 1);
    return status != YOLK_OK ? status : kv.result;
}

int64_t get_one(struct yolk_store *store, const char *key, void *data, size_t size)
{
    struct yolk_slice slice = {data, size};
    struct yolk_kv kv = one(key, &slice);
    enum yolk_status status = yolk_store_get(store, &kv, 1);
    return status != YOLK_OK ? status : kv.result;
}

int64_t exist_one(struct yolk_store *store, const char *key)
{
    struct yolk_kv kv = one(key, NULL);
    enum yolk_status status = yolk_store_exist(store, &kv, 1);
    return status != YOLK_OK ? status : kv.result;
}

int64_t remove_one(struct yolk_store *store, const char *key, int force)
{
    struct yolk_kv kv = one(key, NULL);
    enum yolk_status status = yolk_store_remove(store, &kv, 1, force);
    return status != YOLK_OK ? status : kv.result;
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void fill_value(void *data, size_t size, uint64_t seed)
{
    uint8_t *out = data;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = mix(seed * 0x100000001b3u + at);
        memcpy(out + at, &word, size - at < 8 ? size - at : 8);
    }
}

int value_is(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *in = data;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = mix(seed * 0x100000001b3u + at);
        if (memcmp(in + at, &word, size - at < 8 ? size - at : 8) != 0)
            return 0;
    }
    return 1;
}
