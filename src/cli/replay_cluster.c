/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CHILDREN_MAX = 1 + REPLAY_NODES_MAX,
    ARGUMENTS_MAX = 30 + REPLAY_FLAGS_MAX,
    READY_TIMEOUT_MS = 30000,
    END_TIMEOUT_MS = 15000,
    RESTARTS_MAX = 1000,
};

/* The master or a node: restarted with the same arguments, so at the same address. */
struct child {
    char role[32];
    pid_t pid;
    int output_fd;      /* its standard output; what it says after its first line is dropped */
    uint16_t ports[2];  /* of the master: clients, admin */
    char ready[256];    /* of a node: what it says it serves */
    uint64_t rss_bytes; /* the largest seen, over its restarts */
};

struct replay_cluster {
    const struct replay_options *options;
    struct child children[CHILDREN_MAX];
    size_t child_count;
    char master_address[32];
    uint64_t rss_bytes;
    uint64_t worker_rss_bytes[REPLAY_WORKERS_MAX];
    uint64_t restarts;
    uint64_t sampled_ms;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

uint64_t replay_rss_of(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    uint64_t kib = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

static void keep_max(uint64_t *value, uint64_t other)
{
    if (other > *value)
        *value = other;
}

static int free_port(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int result = -1;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, size) &&
        !getsockname(fd, (struct sockaddr *)&address, &size)) {
        *port = ntohs(address.sin_port);
        result = 0;
    }
    if (fd >= 0)
        close(fd);
    return result;
}

/* Starts this program anew with `arguments`; `keep_fd` (or -1) stays open in it. */
static pid_t spawn(char *const *arguments, int keep_fd, int output_fd)
{
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0); /* a terminal's Ctrl-C is the replay's: it ends the others in order */
    if (keep_fd >= 0)
        fcntl(keep_fd, F_SETFD, 0);
    if (output_fd >= 0)
        dup2(output_fd, STDOUT_FILENO);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd >= 0)
        dup2(null_fd, STDIN_FILENO);
    execv("/proc/self/exe", arguments);
    _exit(127);
}

static void print_child(const struct child *child, bool again)
{
    printf("process %s pid %d ports ", child->role, (int)child->pid);
    if (child->ports[0])
        printf("%u,%u", child->ports[0], child->ports[1]);
    else
        printf("%s", child->ready[0] ? child->ready : "-");
    printf("%s\n", again ? " restarted" : "");
    fflush(stdout);
}

/* Waits for the line "... ready WHERE" of a child: it is printed once the child serves. */
static int wait_ready(struct child *child)
{
    uint64_t end_ms = now_ms() + READY_TIMEOUT_MS;
    char line[sizeof child->ready];
    size_t length = 0;
    for (;;) {
        uint64_t now = now_ms();
        char byte;
        struct pollfd wait = {.fd = child->output_fd, .events = POLLIN};
        if (replay_stopped())
            return -1;
        if (now >= end_ms || poll(&wait, 1, (int)(end_ms - now)) == 0) {
            fprintf(stderr, "yolk replay: %s was not ready after %d s\n", child->role,
                    READY_TIMEOUT_MS / 1000);
            return -1;
        }
        ssize_t got = read(child->output_fd, &byte, 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0) {
            fprintf(stderr, "yolk replay: %s ended at its start\n", child->role);
            return -1;
        }
        if (byte != '\n') {
            if (length + 1 < sizeof line)
                line[length++] = byte;
            continue;
        }
        line[length] = 0;
        length = 0;
        const char *ready = strstr(line, " ready");
        if (ready) {
            ready += strlen(" ready");
            snprintf(child->ready, sizeof child->ready, "%s", ready + strspn(ready, " "));
            return 0;
        }
    }
}

static void drain_output(const struct child *child)
{
    char text[512];
    while (read(child->output_fd, text, sizeof text) > 0)
        continue;
}

/* Both write the command line of the child into `arguments` and return its length. */
static size_t master_arguments(const struct replay_cluster *cluster, const struct child *child,
                               const char **arguments, char (*texts)[64])
{
    const struct replay_options *options = cluster->options;
    size_t count = 0;
    snprintf(texts[0], sizeof texts[0], "127.0.0.1:%u", child->ports[0]);
    snprintf(texts[1], sizeof texts[1], "127.0.0.1:%u", child->ports[1]);
    const char *first[] = {"yolk",
                           "master",
                           "--listen",
                           texts[0],
                           "--metrics-listen",
                           texts[1],
                           "--eviction-policy",
                           options->eviction_policy};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        arguments[count++] = first[i];
    for (size_t i = 0; i < options->master_flag_count; i++)
        arguments[count++] = options->master_flags[i];
    return count;
}

static size_t node_arguments(const struct replay_cluster *cluster, const struct child *child,
                             const char **arguments, char (*texts)[64])
{
    const struct replay_options *options = cluster->options;
    size_t count = 0;
    snprintf(texts[0], sizeof texts[0], "%" PRIu64, options->dram / options->nodes);
    const char *first[] = {
        "yolk",      "node",   "--master", cluster->master_address, "--name",
        child->role, "--dram", texts[0],   "--transport",           options->transport};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        arguments[count++] = first[i];
    if (options->ssd > 0) {
        snprintf(texts[1], sizeof texts[1], "%" PRIu64, options->ssd / options->nodes);
        const char *disk[] = {"--ssd", texts[1], "--ssd-path", options->ssd_path};
        for (size_t i = 0; i < sizeof disk / sizeof *disk; i++)
            arguments[count++] = disk[i];
    }
    for (size_t i = 0; i < options->node_flag_count; i++)
        arguments[count++] = options->node_flags[i];
    return count;
}

static int start_child(struct replay_cluster *cluster, struct child *child, bool again)
{
    const char *arguments[ARGUMENTS_MAX];
    char texts[4][64];
    size_t count = strcmp(child->role, "master") == 0
                       ? master_arguments(cluster, child, arguments, texts)
                       : node_arguments(cluster, child, arguments, texts);
    if (cluster->options->secret_file) {
        arguments[count++] = "--secret-file";
        arguments[count++] = cluster->options->secret_file;
    }
    arguments[count] = NULL;
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK))
        return -1;
    child->pid = spawn((char *const *)arguments, -1, pipe_fds[1]);
    close(pipe_fds[1]);
    child->output_fd = pipe_fds[0];
    if (child->pid < 0) {
        child->pid = 0;
        close(pipe_fds[0]);
        child->output_fd = -1;
        perror("yolk replay: fork");
        return -1;
    }
    if (again)
        print_child(child, true);
    return 0;
}

static int await_child(struct child *child)
{
    if (wait_ready(child))
        return -1;
    print_child(child, false);
    return 0;
}

struct replay_cluster *replay_cluster_create(const struct replay_options *options)
{
    struct replay_cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster)
        cluster->options = options;
    return cluster;
}

int replay_cluster_start(struct replay_cluster *cluster)
{
    cluster->child_count = 1 + cluster->options->nodes;
    for (size_t i = 0; i < cluster->child_count; i++)
        cluster->children[i].output_fd = -1;
    struct child *master = &cluster->children[0];
    snprintf(master->role, sizeof master->role, "master");
    if (free_port(&master->ports[0]) || free_port(&master->ports[1])) {
        perror("yolk replay: cannot find a free port");
        return -1;
    }
    snprintf(cluster->master_address, sizeof cluster->master_address, "127.0.0.1:%u",
             master->ports[0]);
    if (start_child(cluster, master, false) || await_child(master))
        return -1;
    for (size_t i = 1; i < cluster->child_count; i++) {
        struct child *node = &cluster->children[i];
        snprintf(node->role, sizeof node->role, "node-%zu", i - 1);
        if (start_child(cluster, node, false))
            return -1;
    }
    for (size_t i = 1; i < cluster->child_count; i++)
        if (await_child(&cluster->children[i]))
            return -1;
    return 0;
}

int replay_cluster_start_worker(struct replay_cluster *cluster, struct replay_worker *worker)
{
    const struct replay_options *options = cluster->options;
    char numbers[7][24];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return -1;
    snprintf(numbers[0], sizeof numbers[0], "%d", pair[1]);
    snprintf(numbers[1], sizeof numbers[1], "%" PRIu64, options->block_size);
    snprintf(numbers[2], sizeof numbers[2], "%" PRIu64, options->seed);
    snprintf(numbers[3], sizeof numbers[3], "%" PRIu64, options->put_wait_ms);
    snprintf(numbers[4], sizeof numbers[4], "%" PRIu64, options->timeout_ms);
    /* clang-format off */
    const char *arguments[] = {
        "yolk", "replay-worker", numbers[0], worker->role,
        "--master", cluster->master_address,
        "--transport", options->transport,
        "--secret-file", options->secret_file ? options->secret_file : "",
        "--block-size", numbers[1], "--seed", numbers[2],
        "--put-wait", numbers[3], "--timeout", numbers[4],
        NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    /* clang-format on */
    size_t count = 0;
    while (arguments[count])
        count++;
    if (options->gpu >= 0) {
        snprintf(numbers[5], sizeof numbers[5], "%d", options->gpu);
        arguments[count++] = "--gpu";
        arguments[count++] = numbers[5];
    }
    if (options->gds > 0 && strncmp(worker->role, "writer", 6) == 0) {
        snprintf(numbers[6], sizeof numbers[6], "%" PRIu64, options->gds / options->clients);
        arguments[count++] = "--gds";
        arguments[count++] = numbers[6];
        arguments[count++] = "--gds-path";
        arguments[count++] = options->gds_path;
    }
    bool again = worker->pid != 0;
    worker->pid = spawn((char *const *)arguments, pair[1], STDERR_FILENO);
    close(pair[1]);
    if (worker->pid < 0) {
        worker->pid = 0;
        close(pair[0]);
        perror("yolk replay: fork");
        return -1;
    }
    worker->fd = pair[0];
    printf("process %s pid %d ports -%s\n", worker->role, (int)worker->pid,
           again ? " restarted" : "");
    fflush(stdout);
    return 0;
}

static void sample(struct replay_cluster *cluster, const struct replay_worker *workers,
                   size_t worker_count)
{
    keep_max(&cluster->rss_bytes, replay_rss_of(getpid()));
    for (size_t i = 0; i < cluster->child_count; i++)
        if (cluster->children[i].pid) {
            keep_max(&cluster->children[i].rss_bytes, replay_rss_of(cluster->children[i].pid));
            keep_max(&cluster->rss_bytes, cluster->children[i].rss_bytes);
        }
    for (size_t i = 0; i < worker_count; i++)
        if (workers[i].pid) {
            keep_max(&cluster->worker_rss_bytes[i], replay_rss_of(workers[i].pid));
            keep_max(&cluster->rss_bytes, cluster->worker_rss_bytes[i]);
        }
}

static int allow_restart(struct replay_cluster *cluster, const char *role, pid_t pid, int status)
{
    bool by_signal = WIFSIGNALED(status);
    fprintf(stderr, "yolk replay: %s (pid %d) ended %s %d\n", role, (int)pid,
            by_signal ? "by signal" : "with status",
            by_signal ? WTERMSIG(status) : WEXITSTATUS(status));
    if (!cluster->options->respawn)
        return -1;
    if (++cluster->restarts > RESTARTS_MAX) {
        fprintf(stderr, "yolk replay: too many restarts\n");
        return -1;
    }
    return 0;
}

int replay_cluster_watch(struct replay_cluster *cluster, struct replay_worker *workers,
                         size_t worker_count)
{
    int status;
    uint64_t now = now_ms();
    if (now - cluster->sampled_ms >= 1000) {
        cluster->sampled_ms = now;
        sample(cluster, workers, worker_count);
    }
    for (size_t i = 0; i < cluster->child_count; i++) {
        struct child *child = &cluster->children[i];
        drain_output(child);
        if (waitpid(child->pid, &status, WNOHANG) != child->pid)
            continue;
        close(child->output_fd);
        child->output_fd = -1;
        pid_t dead = child->pid;
        child->pid = 0;
        if (allow_restart(cluster, child->role, dead, status) || start_child(cluster, child, true))
            return -1;
    }
    for (size_t i = 0; i < worker_count; i++) {
        struct replay_worker *worker = &workers[i];
        if (worker->pid && waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
            if (worker->fd >= 0)
                close(worker->fd);
            worker->fd = -1;
            if (allow_restart(cluster, worker->role, worker->pid, status))
                return -1;
        } else if (worker->pid && worker->fd < 0) {
            kill(worker->pid, SIGKILL); /* its socket is gone: of no more use */
            waitpid(worker->pid, &status, 0);
            if (allow_restart(cluster, worker->role, worker->pid, status))
                return -1;
        }
    }
    return 0;
}

uint64_t replay_cluster_rss(struct replay_cluster *cluster, const struct replay_worker *workers,
                            size_t worker_count)
{
    sample(cluster, workers, worker_count);
    return cluster->rss_bytes;
}

void replay_cluster_print_rss(const struct replay_cluster *cluster)
{
    for (size_t i = 0; i < cluster->child_count; i++)
        printf("  resident, %-12s %" PRIu64 " MiB\n", cluster->children[i].role,
               cluster->children[i].rss_bytes >> 20);
    fflush(stdout);
}

uint64_t replay_cluster_restarts(const struct replay_cluster *cluster)
{
    return cluster->restarts;
}

/* Asks, waits, and at last forces. */
static void end_process(pid_t pid, int ask_signal)
{
    if (!pid)
        return;
    if (ask_signal)
        kill(pid, ask_signal);
    kill(pid, SIGCONT);
    uint64_t end_ms = now_ms() + END_TIMEOUT_MS;
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        struct timespec pause = {.tv_nsec = 2000000};
        if (now_ms() > end_ms) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            return;
        }
        nanosleep(&pause, NULL);
    }
}

void replay_cluster_destroy(struct replay_cluster *cluster, struct replay_worker *workers,
                            size_t worker_count)
{
    if (!cluster)
        return;
    for (size_t i = 0; i < worker_count; i++)
        if (workers[i].fd >= 0)
            close(workers[i].fd);
    for (size_t i = 0; i < worker_count; i++)
        end_process(workers[i].pid, 0);
    for (size_t i = 1; i < cluster->child_count; i++)
        if (cluster->children[i].pid)
            kill(cluster->children[i].pid, SIGTERM); /* all nodes drain side by side */
    for (size_t i = cluster->child_count; i-- > 0;) {
        end_process(cluster->children[i].pid, i == 0 ? SIGTERM : 0);
        if (cluster->children[i].output_fd >= 0)
            close(cluster->children[i].output_fd);
    }
    free(cluster);
}
