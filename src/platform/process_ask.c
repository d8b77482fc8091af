/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/clock.h"

enum { ANSWER_FD = 3, NAME_MAX_ = 64, PATH_ROOM = 4096 };

const char *process_asked(const char *variable)
{
    return secure_getenv(variable);
}

void process_answer(const char *answer)
{
    size_t size = strlen(answer);
    ssize_t n = write(ANSWER_FD, answer, size);
    _exit(n == (ssize_t)size ? 0 : 1);
}

/* The shared library that this code is in; "": the program itself. */
static int own_library(char out[PATH_ROOM])
{
    static const char here;
    Dl_info mine, program;
    const void *headers = (const void *)getauxval(AT_PHDR); // NOLINT(performance-no-int-to-ptr)
    out[0] = '\0';
    if (dladdr(&here, &mine) == 0 || dladdr(headers, &program) == 0)
        return base_fail(YOLK_ERR_SYSTEM, 0, "it is not known which file this code is in");
    if (mine.dli_fbase != program.dli_fbase && realpath(mine.dli_fname, out) == NULL)
        return base_fail(YOLK_ERR_SYSTEM, errno, "%s", mine.dli_fname);
    return YOLK_OK;
}

/* This process's environment with two variables set. The pointers alone are the caller's. */
static char **with_variables(char *first, char *second)
{
    static const char preload[] = "LD_PRELOAD=";
    size_t count = 0, n = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    char **out = base_calloc(count + 3, sizeof(*out));
    if (out == NULL)
        return NULL;
    out[n++] = first;
    if (second[0] != '\0')
        out[n++] = second;
    for (size_t i = 0; i < count; i++) {
        if (second[0] == '\0' || strncmp(environ[i], preload, sizeof(preload) - 1) != 0)
            out[n++] = environ[i];
    }
    return out;
}

static int start(const char *variable, const char *value, int write_fd, pid_t *child)
{
    char library[PATH_ROOM], *name = NULL, *preload = NULL;
    int status = own_library(library);
    if (status != YOLK_OK)
        return status;
    const char *before = getenv("LD_PRELOAD");
    bool joined = before != NULL && before[0] != '\0';
    int error = asprintf(&name, "%s=%s", variable, value) < 0 ? ENOMEM : 0;
    if (error == 0 && library[0] == '\0')
        error = (preload = strdup("")) == NULL ? ENOMEM : 0;
    else if (error == 0 && asprintf(&preload, "LD_PRELOAD=%s%s%s", joined ? before : "",
                                    joined ? ":" : "", library) < 0)
        error = ENOMEM;
    char **environment = error == 0 ? with_variables(name, preload) : NULL;
    posix_spawn_file_actions_t actions;
    if (environment == NULL)
        error = ENOMEM;
    else
        error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        char program[] = "/proc/self/exe", own[] = "yolk-probe";
        char *const arguments[] = {own, NULL};
        error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        if (error == 0)
            error = posix_spawn_file_actions_adddup2(&actions, write_fd, ANSWER_FD);
        if (error == 0)
            error = posix_spawn(child, program, &actions, NULL, arguments, environment);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    free(environment);
    free(preload);
    free(name);
    return error == 0 ? YOLK_OK
                      : base_fail(YOLK_ERR_SYSTEM, error, "a process of its own cannot be started");
}

/* Up to the end of what it says, or the deadline. */
static int listen_to(int fd, uint64_t timeout_ms, char *answer, size_t answer_size)
{
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), timeout_ms);
    size_t used = 0;
    for (;;) {
        uint64_t now = clock_real_now_ns();
        if (now >= deadline)
            return base_fail(YOLK_ERR_TIMEOUT, 0, "it has not ended after %llu ms",
                             (unsigned long long)timeout_ms);
        uint64_t left = (deadline - now) / CLOCK_NS_PER_MS + 1;
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (poll(&one, 1, left > 1000 ? 1000 : (int)left) <= 0)
            continue;
        char rest[64];
        bool room = used + 1 < answer_size;
        ssize_t n =
            read(fd, room ? answer + used : rest, room ? answer_size - 1 - used : sizeof(rest));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += room ? (size_t)n : 0;
    }
    answer[used] = '\0';
    return YOLK_OK;
}

/* The program around may have taken its end already. */
static void describe_end(pid_t child, char *out, size_t size)
{
    int how = 0;
    pid_t got;
    do {
        got = waitpid(child, &how, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        snprintf(out, size, "ended");
    else if (WIFSIGNALED(how))
        snprintf(out, size, "was ended by signal %d (%s)", WTERMSIG(how),
                 strsignal(WTERMSIG(how))); // NOLINT(concurrency-mt-unsafe)
    else
        snprintf(out, size, "ended with status %d", WEXITSTATUS(how));
}

int process_ask(const char *variable, const char *value, uint64_t timeout_ms, char *answer,
                size_t answer_size)
{
    int ends[2];
    pid_t child = 0;
    char how[128];
    answer[0] = '\0';
    if (getauxval(AT_SECURE) != 0) /* there the environment would be ignored, and main be run */
        return base_fail(YOLK_ERR_SYSTEM, 0, "a program with privileges is not started once more");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "pipe2");
    int status = start(variable, value, ends[1], &child);
    close(ends[1]);
    if (status != YOLK_OK) {
        close(ends[0]);
        return status;
    }
    status = listen_to(ends[0], timeout_ms, answer, answer_size);
    close(ends[0]);
    if (status != YOLK_OK)
        (void)kill(child, SIGKILL);
    describe_end(child, how, sizeof(how));
    if (status == YOLK_OK && answer[0] == '\0')
        status = base_fail(YOLK_ERR_SYSTEM, 0, "it %s without an answer", how);
    return status;
}
