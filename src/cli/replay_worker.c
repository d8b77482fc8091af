/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/common.h"

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

/* Not for people: started by `yolk replay --processes`. */
static const struct cli_command command = {
    "replay-worker", "FD ROLE", "Does what a replay tells it over the socket FD.", COMMAND_REPLAY};

int cli_replay_worker(int argc, char **argv)
{
    struct base_config config;
    uint64_t fd = 0;
    int code;
    if (!cli_parse(&command, argc - 1, argv + 1, &config, &code))
        return code;
    const char *secret_file = base_config_string(&config, SET_SECRET_FILE);
    if (config.positional_count != 2 || base_parse_u64("FD", config.positional[0], &fd) ||
        fd > INT_MAX) {
        code = cli_usage_error(&command, "is started by yolk replay only");
        base_config_free(&config);
        return code;
    }
    struct replay_worker_options options = {
        .master = base_config_string(&config, SET_MASTER),
        .name = config.positional[1],
        .secret_file = secret_file[0] ? secret_file : NULL,
        .transport = base_config_string(&config, SET_TRANSPORT),
        .block_size = base_config_u64(&config, SET_BLOCK_SIZE),
        .seed = base_config_u64(&config, SET_SEED),
        .gds = base_config_u64(&config, SET_REPLAY_GDS),
        .gds_path = base_config_string(&config, SET_GDS_PATH),
        .gpu = base_config_given(&config, SET_GPU) ? (int)base_config_u64(&config, SET_GPU) : -1,
    };
    cli_waits(&config, &options.put_wait_ms, &options.timeout_ms);
    char error[512] = "";
    struct replay_store *store = replay_store_open(&options, error, sizeof error);
    if (store) {
        code = replay_worker_serve((int)fd, store) ? CLI_FAILED : CLI_OK;
        replay_store_close(store);
    } else {
        fprintf(stderr, "yolk replay: %s: %s\n", options.name, error);
        code = CLI_FAILED;
    }
    base_config_free(&config);
    return code;
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
