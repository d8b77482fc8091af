/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#define LOG_ROOM "process"
#include "base/log.h"

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
