/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

int file_open(const struct file_system *fs, const char *path, unsigned flags, struct file **out)
{
    return fs->ops->open(fs->self, path, flags, out);
}

int file_pread(struct file *f, void *to, size_t size, uint64_t offset, size_t *got)
{
    return f->ops->pread(f, to, size, offset, got);
}

int file_pwrite(struct file *f, const void *from, size_t size, uint64_t offset)
{
    return f->ops->pwrite(f, from, size, offset);
}

int file_fdatasync(struct file *f)
{
    return f->ops->fdatasync(f);
}

int file_fallocate(struct file *f, uint64_t offset, uint64_t size)
{
    return f->ops->fallocate(f, offset, size);
}

int file_size(struct file *f, uint64_t *out)
{
    return f->ops->size(f, out);
}

void file_close(struct file *f)
{
    if (f)
        f->ops->close(f);
}

int file_unlink(const struct file_system *fs, const char *path)
{
    return fs->ops->unlink(fs->self, path);
}

/* ---- the real one ---- */
struct real_file {
    struct file base;
    int fd;
};

static int file_status(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return YOLK_ERR_NOT_FOUND;
    case EEXIST:
        return YOLK_ERR_EXISTS;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return YOLK_ERR_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return YOLK_ERR_ACCESS;
    case ENOMEM:
        return YOLK_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return YOLK_ERR_LIMIT;
    default:
        return YOLK_ERR_IO;
    }
}

/* A name is durable only once its folder is. */
static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    char *folder = slash ? strndup(path, n > 0 ? n : 1) : strdup(".");
    if (!folder)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "sync the folder of %s", path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 ? fsync(fd) : -1;
    int error = errno;
    if (fd >= 0)
        close(fd);
    free(folder);
    /* EINVAL: a file system without the notion */
    return rc == 0 || error == EINVAL
               ? YOLK_OK
               : base_fail(file_status(error), error, "sync the folder of %s", path);
}

static int real_pread(struct file *file, void *to, size_t size, uint64_t offset, size_t *got)
{
    int fd = ((struct real_file *)file)->fd;
    *got = 0;
    while (*got < size) {
        ssize_t n = pread(fd, (char *)to + *got, size - *got, (off_t)(offset + *got));
        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return base_fail(file_status(errno), errno, "read %zu bytes at %llu", size,
                             (unsigned long long)offset);
        *got += (size_t)n;
    }
    return YOLK_OK;
}

static int real_pwrite(struct file *file, const void *from, size_t size, uint64_t offset)
{
    int fd = ((struct real_file *)file)->fd;
    size_t done = 0;
    while (done < size) {
        ssize_t n = pwrite(fd, (const char *)from + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return base_fail(n == 0 ? YOLK_ERR_IO : file_status(errno), n == 0 ? 0 : errno,
                             "write %zu bytes at %llu", size, (unsigned long long)offset);
        done += (size_t)n;
    }
    return YOLK_OK;
}

static int real_fdatasync(struct file *file)
{
    /* Not repeated: after a failure the kernel may have dropped the pages and would answer success.
     */
    if (fdatasync(((struct real_file *)file)->fd) != 0)
        return base_fail(file_status(errno), errno, "sync a file");
    return YOLK_OK;
}

static int real_size(struct file *file, uint64_t *out)
{
    struct stat st;
    if (fstat(((struct real_file *)file)->fd, &st) != 0)
        return base_fail(file_status(errno), errno, "size of a file");
    *out = (uint64_t)st.st_size;
    return YOLK_OK;
}

static int real_fallocate(struct file *file, uint64_t offset, uint64_t size)
{
    int fd = ((struct real_file *)file)->fd;
    int rc;
    if (size == 0)
        return YOLK_OK;
    do {
        rc = fallocate(fd, 0, (off_t)offset, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return YOLK_OK;
    if (errno != EOPNOTSUPP)
        return base_fail(file_status(errno), errno, "reserve %llu bytes", (unsigned long long)size);
    uint64_t now;
    int status = real_size(file, &now);
    if (status != YOLK_OK || now >= offset + size)
        return status;
    if (ftruncate(fd, (off_t)(offset + size)) != 0)
        return base_fail(file_status(errno), errno, "grow a file");
    return YOLK_OK;
}

static void real_close(struct file *file)
{
    struct real_file *f = (struct real_file *)file;
    close(f->fd);
    free(f);
}

static int real_unlink(void *self, const char *path)
{
    (void)self;
    if (unlink(path) != 0)
        return base_fail(file_status(errno), errno, "remove %s", path);
    return sync_folder(path);
}

static int real_open(void *self, const char *path, unsigned flags, struct file **out);

static const struct file_ops real_ops = {
    .open = real_open,
    .pread = real_pread,
    .pwrite = real_pwrite,
    .fdatasync = real_fdatasync,
    .fallocate = real_fallocate,
    .size = real_size,
    .close = real_close,
    .unlink = real_unlink,
};

static int real_open(void *self, const char *path, unsigned flags, struct file **out)
{
    (void)self;
    *out = NULL;
    int how = O_CLOEXEC;
    how |= flags & FILE_WRITE ? (flags & FILE_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
    how |= flags & FILE_CREATE ? O_CREAT : 0;
    how |= flags & FILE_EXCLUSIVE ? O_EXCL : 0;
    how |= flags & FILE_TRUNCATE ? O_TRUNC : 0;
    struct real_file *f = calloc(1, sizeof(*f));
    if (!f)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "open %s", path);
    f->base.ops = &real_ops;
    f->fd = open(path, how, 0600);
    if (f->fd < 0) {
        int error = errno;
        free(f);
        return base_fail(file_status(error), error, "open %s", path);
    }
    int status = flags & FILE_CREATE ? sync_folder(path) : YOLK_OK;
    if (status != YOLK_OK) {
        real_close(&f->base);
        return status;
    }
    *out = &f->base;
    return YOLK_OK;
}

struct file_system file_system_real(void)
{
    return (struct file_system){&real_ops, NULL};
}
