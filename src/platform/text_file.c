/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static int refuse(const char *what, const char *path, int error, const char *why)
{
    return base_fail(YOLK_ERR_CONFIG, error, "%s: cannot read the file %s%s%s", what, path,
                     why[0] != '\0' ? ": " : "", why);
}

/* 1: there is something, or the end; 0: nobody writes. */
static int wait_for_more(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&one, 1, TEXT_FILE_WAIT_MS);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static int read_all(const char *what, const char *path, int fd, bool pipe, struct base_buf *out)
{
    char piece[8192];
    for (;;) {
        if (pipe && !wait_for_more(fd))
            return refuse(what, path, 0, "nobody writes to this pipe");
        ssize_t got = read(fd, piece, sizeof(piece));
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return refuse(what, path, errno, "");
        if (got == 0)
            return YOLK_OK;
        if ((size_t)got > out->maximum - out->size)
            return base_fail(YOLK_ERR_CONFIG, 0, "%s: the file %s has more than %zu bytes", what,
                             path, out->maximum);
        int status = base_buf_append(out, piece, (size_t)got);
        if (status != YOLK_OK)
            return status;
    }
}

int text_file_read(const char *what, const char *path, struct base_buf *out)
{
    struct stat about;
    /* Not blocking: the opening of a pipe would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse(what, path, errno, "");
    int status;
    if (fstat(fd, &about) != 0)
        status = refuse(what, path, errno, "");
    else if (!S_ISREG(about.st_mode) && !S_ISFIFO(about.st_mode))
        status = refuse(what, path, 0, "it is neither a file nor a pipe");
    else
        status = read_all(what, path, fd, S_ISFIFO(about.st_mode), out);
    close(fd);
    return status;
}

int text_file_json(const char *what, const char *path, struct base_json **out)
{
    struct base_buf text;
    base_buf_init(&text, BASE_JSON_SIZE_MAX);
    int status = text_file_read(what, path, &text);
    if (status == YOLK_OK) {
        status = base_json_parse(what, (const char *)text.data, text.size, out);
        if (status != YOLK_OK)
            status = base_fail_context((enum yolk_status)status, "%s", path);
    }
    base_buf_free(&text);
    return status;
}

int text_json(const char *what, const char *path_or_text, struct base_json **out)
{
    if (access(path_or_text, F_OK) == 0)
        return text_file_json(what, path_or_text, out);
    if (path_or_text[strspn(path_or_text, " \t\r\n")] == '{')
        return base_json_parse(what, path_or_text, strlen(path_or_text), out);
    return base_fail(YOLK_ERR_CONFIG, 0, "%s is \"%.100s\": must be a file's path or a JSON object",
                     what, path_or_text);
}
