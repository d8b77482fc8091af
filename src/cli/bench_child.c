/* SPDX-License-Identifier: Apache-2.0 */
/* A process beside the one that measures. It ends when the pipe from that one does, also when that
 * one is killed. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/bench.h"

/* What a child says once, when it is ready or cannot be. */
struct word {
    enum yolk_status status;
    char text[BENCH_WORD_MAX];
};
_Static_assert(sizeof(struct word) <= 4096, "written to a pipe as one");

void bench_child_say(int word_fd, enum yolk_status status, const char *text)
{
    struct word word = {.status = status};
    snprintf(word.text, sizeof(word.text), "%s", status == YOLK_OK ? text : yolk_last_error());
    if (write(word_fd, &word, sizeof(word)) != (ssize_t)sizeof(word))
        _exit(1);
}

void bench_child_wait_for_end(int stop_fd)
{
    char byte;
    while (read(stop_fd, &byte, 1) > 0)
        ;
}

bool bench_child_is_wanted(int stop_fd)
{
    struct pollfd end = {.fd = stop_fd, .events = POLLIN};
    return poll(&end, 1, 0) == 0;
}

enum yolk_status bench_child_start(struct bench_child *child, const struct bench_child_run *run,
                                   char text[BENCH_WORD_MAX])
{
    int words[2], ends[2];
    struct word word;
    *child = (struct bench_child){.stop_fd = -1};
    if (pipe2(words, O_CLOEXEC) != 0)
        return base_fail(YOLK_ERR_SYSTEM, 0, "no pipe from a child");
    if (pipe2(ends, O_CLOEXEC) != 0) {
        close(words[0]);
        close(words[1]);
        return base_fail(YOLK_ERR_SYSTEM, 0, "no pipe to a child");
    }
    (void)fflush(NULL);
    child->pid = fork();
    if (child->pid == 0) {
        close(words[0]);
        close(ends[1]);
        _exit(run->run(run->self, ends[0], words[1]) == YOLK_OK ? 0 : 1);
    }
    close(words[1]);
    close(ends[0]);
    child->stop_fd = ends[1];
    ssize_t got = child->pid < 0 ? -1 : read(words[0], &word, sizeof(word));
    close(words[0]);
    if (got != (ssize_t)sizeof(word))
        return base_fail(YOLK_ERR_SYSTEM, 0, "a process beside this one did not start");
    memcpy(text, word.text, BENCH_WORD_MAX);
    return word.status == YOLK_OK ? YOLK_OK : base_fail(word.status, 0, "%.1000s", word.text);
}

void bench_child_end(struct bench_child *child)
{
    if (child->pid <= 0)
        return;
    close(child->stop_fd);
    (void)waitpid(child->pid, NULL, 0);
    *child = (struct bench_child){.stop_fd = -1};
}
