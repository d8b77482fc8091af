/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#define LOG_ROOM "process"
#include "base/log.h"
#include "platform/clock.h"

uint32_t process_fork_count; /* written by a child while it has one thread */

static void count_fork(void)
{
    process_fork_count++;
}

static void count_from_now_on(void)
{
    if (pthread_atfork(NULL, NULL, count_fork) != 0)
        log_warn("no memory to notice forks: children must not use what is their parent's");
}

void process_count_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, count_from_now_on);
}

/* One that is asked to end by SIGKILL has it pending until it does. */
static bool is_killed(int process)
{
    char text[2048];
    int fd = openat(process, "status", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (size < 0)
        return true;
    text[size] = '\0';
    const char *pending = strstr(text, "\nShdPnd:\t");
    return pending != NULL &&
           (strtoull(pending + strlen("\nShdPnd:\t"), NULL, 16) & 1ull << (SIGKILL - 1)) != 0;
}

/* Each of its descriptors; `process` is its folder of /proc. */
static bool has_open(int process, const struct stat *wanted)
{
    bool found = false;
    int folder = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = folder < 0 ? NULL : fdopendir(folder);
    if (all == NULL) {
        if (folder >= 0)
            close(folder);
        return false;
    }
    for (struct dirent *one = readdir(all); one != NULL && !found; one = readdir(all)) {
        struct stat info;
        found = fstatat(folder, one->d_name, &info, 0) == 0 && info.st_ino == wanted->st_ino &&
                info.st_dev == wanted->st_dev;
    }
    closedir(all);
    return found;
}

bool process_uses_file(const char *path, uint64_t deadline_ns)
{
    struct stat wanted;
    bool found = false;
    DIR *all = opendir("/proc");
    if (all == NULL)
        return false;
    bool known = stat(path, &wanted) == 0;
    for (struct dirent *one = readdir(all);
         known && one != NULL && !found && clock_real_now_ns() < deadline_ns; one = readdir(all)) {
        if (one->d_name[0] < '1' || one->d_name[0] > '9')
            continue;
        int process = openat(dirfd(all), one->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        found = process >= 0 && has_open(process, &wanted) && !is_killed(process);
        if (process >= 0)
            close(process);
    }
    closedir(all);
    return found;
}

void process_boot_id(uint8_t out[16])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char text[64] = "";
    size_t count = 0;
    memset(out, 0, 16);
    if (file == NULL)
        return;
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    for (size_t i = 0; i + 1 < got && count < 16; i++) {
        unsigned byte;
        if (text[i] == '-' || sscanf(text + i, "%2x", &byte) != 1)
            continue;
        out[count++] = (uint8_t)byte;
        i++;
    }
}

void process_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        log_info("the limit of open files is unknown: %s", strerror(errno));
        return;
    }
    unsigned long long soft = limit.rlim_cur;
    if (limit.rlim_cur == limit.rlim_max) {
        log_debug("at most %llu open files", soft);
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_info("at most %llu open files; raising the limit to %llu: %s", soft,
                 (unsigned long long)limit.rlim_max, strerror(errno));
    else
        log_info("at most %llu open files, raised from %llu", (unsigned long long)limit.rlim_max,
                 soft);
}

static int read_all(int fd, const char *path, uint8_t *secret, size_t secret_max, size_t *size)
{
    char extra[3]; /* behind the longest secret a line end may stand */
    ssize_t more = 0;
    *size = 0;
    while (*size < secret_max) {
        ssize_t n = read(fd, secret + *size, secret_max - *size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return base_fail(YOLK_ERR_CONFIG, errno, "cannot read the secret file %s", path);
        if (n == 0)
            break;
        *size += (size_t)n;
    }
    if (*size == secret_max)
        more = read(fd, extra, sizeof(extra));
    if (more > 2 || (more > 0 && (extra[more - 1] != '\n' || (more == 2 && extra[0] != '\r'))))
        return base_fail(YOLK_ERR_CONFIG, 0, "the secret file %s is larger than %zu bytes", path,
                         secret_max);
    while (*size > 0 && (secret[*size - 1] == '\n' || secret[*size - 1] == '\r'))
        --*size;
    if (*size == 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "the secret file %s is empty", path);
    return YOLK_OK;
}

int process_read_secret(const char *path, uint8_t *secret, size_t secret_max, size_t *size)
{
    struct stat info;
    *size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return base_fail(YOLK_ERR_CONFIG, errno, "cannot read the secret file %s", path);
    int status;
    if (fstat(fd, &info) != 0)
        status = base_fail(YOLK_ERR_CONFIG, errno, "cannot examine the secret file %s", path);
    else if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        status = base_fail(YOLK_ERR_CONFIG, 0,
                           "the secret file %s may be used by others (mode %03o): chmod 600 it",
                           path, (unsigned)(info.st_mode & 0777));
    else
        status = read_all(fd, path, secret, secret_max, size);
    close(fd);
    return status;
}

/* A name in the abstract space of Unix sockets: no file that a killed process would leave. */
static int bind_number(int fd, const char *name, unsigned number)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s-%u", name, number);
    return bind(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size));
}

int process_keep_number(const char *name, unsigned first, unsigned count, unsigned start,
                        unsigned *number, int *fd)
{
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "no socket to keep a number with");
    for (unsigned i = 0; i < count; i++) {
        *number = first + (start - first + i) % count;
        if (bind_number(*fd, name, *number) == 0)
            return YOLK_OK;
    }
    int error = errno;
    close(*fd);
    *fd = -1;
    return base_fail(error == EADDRINUSE ? YOLK_ERR_LIMIT : YOLK_ERR_SYSTEM, error,
                     "each number of %s from %u to %u is kept", name, first, first + count - 1);
}
