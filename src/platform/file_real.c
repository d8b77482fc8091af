/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the operating system. */
#include "platform/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#define LOG_ROOM "file"
#include "base/log.h"

#define ALIGNMENT_UNKNOWN 4096u

struct real_file {
    struct file base;
    char *path;
    int fd;
    _Atomic bool direct;
    _Atomic bool refused; /* direct I/O, once */
};

static _Atomic uint64_t refusals;

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
    case EOPNOTSUPP:
    case ENOSYS:
        return YOLK_ERR_UNSUPPORTED;
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

/* ---- direct or not ---- */
static bool real_direct(struct file *file)
{
    return atomic_load(&((struct real_file *)file)->direct);
}

/* Its name now: it may have another one than when it was opened. */
static void present_name(const struct real_file *f, char *out, size_t size)
{
    char link[32];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", f->fd);
    ssize_t n = readlink(link, out, size - 1);
    if (n > 0)
        out[n] = '\0';
    else
        (void)snprintf(out, size, "%s", f->path);
}

static void real_direct_refuse(struct file *file, int errnum)
{
    struct real_file *f = (struct real_file *)file;
    int flags = fcntl(f->fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT))
        (void)fcntl(f->fd, F_SETFL, flags & ~O_DIRECT);
    atomic_store(&f->direct, false);
    if (atomic_exchange(&f->refused, true))
        return;
    atomic_fetch_add(&refusals, 1);
    char name[512];
    present_name(f, name, sizeof(name));
    log_warn("%s: direct I/O was refused (%s); it is used through the page cache", name,
             strerrordesc_np(errnum));
}

uint64_t file_direct_refusals(void)
{
    return atomic_load(&refusals);
}

/* Is EINVAL the refusal of direct I/O? Then it no longer is, and the operation is to be repeated.
 */
static bool refused(struct real_file *f, int errnum)
{
    if (errnum != EINVAL || !atomic_load(&f->direct))
        return false;
    real_direct_refuse(&f->base, errnum);
    return true;
}

static int real_pread(struct file *file, void *to, size_t size, uint64_t offset, size_t *got)
{
    struct real_file *f = (struct real_file *)file;
    *got = 0;
    while (*got < size) {
        ssize_t n = pread(f->fd, (char *)to + *got, size - *got, (off_t)(offset + *got));
        if (n == 0)
            break;
        if (n < 0 && (errno == EINTR || refused(f, errno)))
            continue;
        if (n < 0)
            return base_fail(file_status(errno), errno, "read %zu bytes at %llu of %s", size,
                             (unsigned long long)offset, f->path);
        *got += (size_t)n;
        if (n % 512 != 0 && atomic_load(&f->direct))
            break; /* less than a sector comes only from the end of the file */
    }
    return YOLK_OK;
}

static int real_pwrite(struct file *file, const void *from, size_t size, uint64_t offset)
{
    struct real_file *f = (struct real_file *)file;
    size_t done = 0;
    while (done < size) {
        ssize_t n = pwrite(f->fd, (const char *)from + done, size - done, (off_t)(offset + done));
        if (n < 0 && (errno == EINTR || refused(f, errno)))
            continue;
        if (n <= 0)
            return base_fail(n == 0 ? YOLK_ERR_IO : file_status(errno), n == 0 ? 0 : errno,
                             "write %zu bytes at %llu of %s", size, (unsigned long long)offset,
                             f->path);
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
    struct real_file *f = (struct real_file *)file;
    int rc;
    if (size == 0)
        return YOLK_OK;
    do {
        rc = fallocate(f->fd, 0, (off_t)offset, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return base_fail(file_status(errno), errno, "reserve %llu bytes of %s",
                         (unsigned long long)size, f->path);
    return YOLK_OK;
}

static int real_resize(struct file *file, uint64_t size)
{
    struct real_file *f = (struct real_file *)file;
    int rc;
    do {
        rc = ftruncate(f->fd, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return base_fail(file_status(errno), errno, "resize %s to %llu bytes", f->path,
                         (unsigned long long)size);
    return YOLK_OK;
}

static int real_lock(struct file *file)
{
    struct real_file *f = (struct real_file *)file;
    /* Of the open file, not of the process: it also holds against other opens of this process, and
     * closing another descriptor of the file does not drop it. */
    int mode = fcntl(f->fd, F_GETFL);
    bool reads_only = mode >= 0 && (mode & O_ACCMODE) == O_RDONLY;
    struct flock whole = {.l_type = reads_only ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(f->fd, F_OFD_SETLK, &whole) == 0)
        return YOLK_OK;
    if (errno == EAGAIN || errno == EACCES)
        return base_fail(YOLK_ERR_BUSY, 0, "%s is in use", f->path);
    return base_fail(file_status(errno), errno, "lock %s", f->path);
}

/* ---- what the file lies on ---- */
static uint32_t sysfs_number(const char *path)
{
    char text[32];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return (uint32_t)strtoul(text, NULL, 10);
}

/* The device's logical sector; 0 where the file lies on none. */
static uint32_t sector_size(dev_t device)
{
    static const char *const places[] = {"queue", "../queue"}; /* of a disk, of a partition */
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[96];
        int n = snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/logical_block_size",
                         major(device), minor(device), places[i]);
        uint32_t size = n > 0 && (size_t)n < sizeof(path) ? sysfs_number(path) : 0;
        if (size > 0)
            return size;
    }
    return 0;
}

static bool power_of_two(uint32_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static int real_alignment(struct file *file, struct file_alignment *out)
{
    struct real_file *f = (struct real_file *)file;
    struct statx st = {0};
    *out = (struct file_alignment){ALIGNMENT_UNKNOWN, ALIGNMENT_UNKNOWN};
    if (statx(f->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_DIOALIGN, &st) != 0)
        return base_fail(file_status(errno), errno, "the alignment of %s", f->path);
    uint32_t sector = sector_size(makedev(st.stx_dev_major, st.stx_dev_minor));
    bool told = (st.stx_mask & STATX_DIOALIGN) && power_of_two(st.stx_dio_mem_align) &&
                power_of_two(st.stx_dio_offset_align);
    if (told) {
        out->memory = st.stx_dio_mem_align;
        out->offset = st.stx_dio_offset_align;
    } else if (power_of_two(sector)) {
        out->memory = sector;
        out->offset = sector;
    }
    if (power_of_two(sector) && sector > out->offset)
        out->offset = sector;
    return YOLK_OK;
}

static int real_space(struct file *file, uint64_t *free_bytes)
{
    struct real_file *f = (struct real_file *)file;
    struct statvfs st;
    if (fstatvfs(f->fd, &st) != 0)
        return base_fail(file_status(errno), errno, "the free space under %s", f->path);
    /* ramfs and its like have no size. */
    *free_bytes = st.f_blocks > 0 ? (uint64_t)st.f_bavail * st.f_frsize : UINT64_MAX / 4;
    return YOLK_OK;
}

static int real_descriptor(struct file *file)
{
    return ((struct real_file *)file)->fd;
}

static void real_close(struct file *file)
{
    struct real_file *f = (struct real_file *)file;
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f);
}

static int real_unlink(void *self, const char *path)
{
    (void)self;
    if (unlink(path) != 0)
        return base_fail(file_status(errno), errno, "remove %s", path);
    return sync_folder(path);
}

static int real_rename(void *self, const char *from, const char *to)
{
    (void)self;
    if (rename(from, to) != 0)
        return base_fail(file_status(errno), errno, "rename %s to %s", from, to);
    return sync_folder(to);
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
    .rename = real_rename,
    .resize = real_resize,
    .lock = real_lock,
    .alignment = real_alignment,
    .space = real_space,
    .descriptor = real_descriptor,
    .direct = real_direct,
    .direct_refuse = real_direct_refuse,
};

static int open_flags(unsigned flags)
{
    int how = O_CLOEXEC;
    how |= flags & FILE_WRITE ? (flags & FILE_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
    how |= flags & FILE_CREATE ? O_CREAT : 0;
    how |= flags & FILE_EXCLUSIVE ? O_EXCL : 0;
    how |= flags & FILE_TRUNCATE ? O_TRUNC : 0;
    return how;
}

/* Without waiting, as the open of a pipe would, for somebody at its other end; but only the open:
 * an operation that says AGAIN instead of waiting for the disk is of no use. */
static int open_at_once(struct real_file *f, unsigned flags, int *mode)
{
    struct stat info;
    f->fd = open(f->path, open_flags(flags) | O_NONBLOCK, 0600);
    int error = errno;
    if (f->fd < 0 && error == ENOENT && lstat(f->path, &info) == 0 && S_ISLNK(info.st_mode))
        /* Who makes what is not there would put it in the place of the link. */
        return base_fail(YOLK_ERR_INVALID, 0,
                         "%s is a symbolic link, and what it names is not there", f->path);
    if (f->fd < 0)
        return base_fail(file_status(error), error, "open %s", f->path);
    if (fstat(f->fd, &info) != 0)
        return base_fail(file_status(errno), errno, "look at %s", f->path);
    if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s is neither a regular file nor a block device",
                         f->path);
    *mode = fcntl(f->fd, F_GETFL);
    if (*mode >= 0)
        *mode &= ~O_NONBLOCK;
    return *mode >= 0 && fcntl(f->fd, F_SETFL, *mode) == 0
               ? YOLK_OK
               : base_fail(file_status(errno), errno, "the flags of %s", f->path);
}

/* Opens it as it is meant, then asks for direct I/O: a refusal of that is none of the file, and
 * some file systems refuse only after they created it. */
static int open_descriptor(struct real_file *f, unsigned flags)
{
    int mode = 0, status = open_at_once(f, flags, &mode);
    if (status != YOLK_OK || !(flags & FILE_DIRECT))
        return status;
    if (fcntl(f->fd, F_SETFL, mode | O_DIRECT) == 0)
        atomic_store(&f->direct, true);
    else
        real_direct_refuse(&f->base, errno);
    return YOLK_OK;
}

static int real_open(void *self, const char *path, unsigned flags, struct file **out)
{
    (void)self;
    *out = NULL;
    struct real_file *f = base_calloc(1, sizeof(*f));
    if (!f)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "open %s", path);
    f->base.ops = &real_ops;
    f->fd = -1;
    f->path = strdup(path);
    int status =
        f->path ? open_descriptor(f, flags) : base_fail(YOLK_ERR_NO_MEMORY, 0, "open %s", path);
    if (status == YOLK_OK && (flags & FILE_CREATE))
        status = sync_folder(path);
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

/* ---- the page cache ---- */
static int count_resident(int fd, const char *path, uint64_t size, double *out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t step = page * 65536;
    unsigned char *marks = base_malloc(65536);
    uint64_t resident = 0, pages = 0;
    int status = marks ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "residency of %s", path);
    for (uint64_t at = 0; at < size && status == YOLK_OK; at += step) {
        size_t length = size - at < step ? (size_t)(size - at) : step;
        void *map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)at);
        if (map == MAP_FAILED || mincore(map, length, marks) != 0)
            status = base_fail(file_status(errno), errno, "residency of %s", path);
        size_t count = (length + page - 1) / page;
        for (size_t i = 0; status == YOLK_OK && i < count; i++)
            resident += marks[i] & 1;
        pages += count;
        if (map != MAP_FAILED)
            munmap(map, length);
    }
    free(marks);
    *out = pages > 0 ? (double)resident / (double)pages : 0;
    return status;
}

int file_residency(const char *path, double *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return base_fail(file_status(error), error, "residency of %s", path);
    }
    int status = count_resident(fd, path, (uint64_t)st.st_size, out);
    close(fd);
    return status;
}
