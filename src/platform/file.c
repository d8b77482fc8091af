/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/file.h"

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

int file_rename(const struct file_system *fs, const char *from, const char *to)
{
    return fs->ops->rename(fs->self, from, to);
}

int file_resize(struct file *f, uint64_t size)
{
    return f->ops->resize(f, size);
}

int file_lock(struct file *f)
{
    return f->ops->lock(f);
}

int file_alignment(struct file *f, struct file_alignment *out)
{
    return f->ops->alignment(f, out);
}

int file_space(struct file *f, uint64_t *free_bytes)
{
    return f->ops->space(f, free_bytes);
}

int file_descriptor(struct file *f)
{
    return f->ops->descriptor(f);
}

ssize_t file_completed(struct file *f, enum file_operation operation, size_t size, ssize_t result)
{
    return f->ops->completed ? f->ops->completed(f, operation, size, result) : result;
}

bool file_direct(struct file *f)
{
    return f->ops->direct(f);
}

void file_direct_refuse(struct file *f, int errnum)
{
    f->ops->direct_refuse(f, errnum);
}
