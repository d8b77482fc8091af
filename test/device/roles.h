/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of several processes. Each is forked before anybody uses CUDA, and opens the driver itself;
 * the one that begins them never does. They talk to it by lines. */
#ifndef DEVICE_ROLES_H
#define DEVICE_ROLES_H

#include "kit.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/nvlink/internal.h"

enum { TEXT = 1200 };

/* In a child there is no cmocka to come back to. */
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, yolk_last_error());      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call) CHECK((call) == YOLK_OK)

/* ---- processes ---- */

struct process {
    pid_t pid;
    int line; /* to it and back */
};

struct role {
    void (*run)(const struct role *role, int line);
    int kind;
    int gpu; /* this process's memory is there; a number that is too high means the last one */
    const char *machine; /* NULL: as it is */
    const char *fake;    /* commands for the fake driver */
    char text[TEXT];     /* what it must know */
    uint64_t seed;
};

static struct process begin(const struct role *role)
{
    int line[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line), 0);
    fflush(NULL);
    struct process made = {fork(), line[0]};
    assert_true(made.pid >= 0);
    if (made.pid == 0) {
        close(line[0]);
        setenv("FAKE_CUDA", role->fake != NULL ? role->fake : "set gpus 2", 1);
        if (role->machine != NULL)
            nvlink_machine_set(role->machine);
        role->run(role, line[1]);
        fflush(NULL);
        _exit(0);
    }
    close(line[1]);
    return made;
}

static void read_line(int line, char *out, size_t size)
{
    size_t used = 0;
    while (used + 1 < size && read(line, out + used, 1) == 1 && out[used] != '\n')
        used++;
    out[used] = '\0';
}

static void say(int line, const char *text)
{
    if (write(line, text, strlen(text)) != (ssize_t)strlen(text) || write(line, "\n", 1) != 1)
        _exit(2);
}

/* Its exit status; 77: what it was to show does not exist here. */
static int end(struct process *p)
{
    int status;
    /* An empty line, for processes that were begun later have this end of it too. */
    (void)!send(p->line, "\n", 1, MSG_NOSIGNAL);
    close(p->line);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct device *open_device(void)
{
    static char cuda[512];
    struct device *device = NULL;
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    if (device_share(kit_real() ? NULL : cuda, NULL, &device) != YOLK_OK) {
        printf("SKIP: %s\n", yolk_last_error());
        _exit(77);
    }
    return device;
}

#endif
