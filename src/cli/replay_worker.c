/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 0: all there; 1: the other end is gone; -1: error. */
static int receive_all(int fd, void *out, size_t size)
{
    char *at = out;
    while (size) {
        ssize_t got = recv(fd, at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 ? 1 : -1;
        at += got;
        size -= (size_t)got;
    }
    return 0;
}

/* Answers commands until the driver closes its end. */
int replay_worker_serve(int fd, struct replay_store *store)
{
    uint64_t *ids = calloc(TRACE_BLOCKS_MAX, sizeof *ids);
    int result = ids ? 0 : -1;
    while (!result) {
        struct replay_command command;
        struct replay_answer answer;
        result = receive_all(fd, &command, sizeof command);
        if (result)
            break;
        if (command.count > TRACE_BLOCKS_MAX)
            result = -1;
        else
            result = receive_all(fd, ids, command.count * sizeof *ids);
        if (result)
            break;
        replay_store_execute(store, &command, ids, &answer);
        if (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
            result = 1;
    }
    free(ids);
    return result < 0 ? -1 : 0;
}

static int parse_u64(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || end == text)
        return -1;
    *out = value;
    return 0;
}

/* replay-worker FD NAME MASTER TRANSPORT SECRET_FILE|- BLOCK_SIZE SEED PUT_WAIT_MS TIMEOUT_MS */
int cli_replay_worker(int argc, char **argv)
{
    struct replay_worker_options options;
    uint64_t fd;
    if (argc != 10 || parse_u64(argv[1], &fd) || parse_u64(argv[6], &options.block_size) ||
        parse_u64(argv[7], &options.seed) || parse_u64(argv[8], &options.put_wait_ms) ||
        parse_u64(argv[9], &options.timeout_ms)) {
        fprintf(stderr, "yolk replay-worker is started by `yolk replay` only\n");
        return 2;
    }
    options.name = argv[2];
    options.master = argv[3];
    options.transport = argv[4];
    options.secret_file = strcmp(argv[5], "-") == 0 ? NULL : argv[5];
    char error[512] = "";
    struct replay_store *store = replay_store_open(&options, error, sizeof error);
    if (!store) {
        fprintf(stderr, "yolk replay: %s: %s\n", options.name, error);
        return 1;
    }
    int result = replay_worker_serve((int)fd, store);
    replay_store_close(store);
    return result ? 1 : 0;
}

struct thread_start {
    int fd;
    struct replay_store *store;
};

static void *run_thread(void *argument)
{
    struct thread_start start = *(struct thread_start *)argument;
    free(argument);
    if (replay_worker_serve(start.fd, start.store))
        fprintf(stderr, "yolk replay: a worker thread failed\n");
    close(start.fd);
    return NULL;
}

int replay_worker_start_thread(struct replay_worker *worker, struct replay_store *store)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return -1;
    struct thread_start *start = malloc(sizeof *start);
    pthread_t *thread = malloc(sizeof *thread);
    if (start && thread) {
        *start = (struct thread_start){.fd = pair[1], .store = store};
        worker->fd = pair[0];
        worker->store = store;
        worker->thread = thread;
        if (!pthread_create(thread, NULL, run_thread, start))
            return 0;
    }
    worker->fd = -1;
    worker->thread = NULL;
    close(pair[0]);
    close(pair[1]);
    free(start);
    free(thread);
    return -1;
}

void replay_worker_join_thread(struct replay_worker *worker)
{
    if (!worker->thread)
        return;
    if (worker->fd >= 0)
        close(worker->fd);
    worker->fd = -1;
    pthread_join(*(pthread_t *)worker->thread, NULL);
    free(worker->thread);
    worker->thread = NULL;
}
