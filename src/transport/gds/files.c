/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/clock.h"
#include "platform/file.h"

enum { TRY_SIZE = 65536, TRIES = 3, COPY_TIMEOUT_MS = 10000 };

const char *gds_mode_name(enum gds_mode mode)
{
    return mode == GDS_DIRECT ? "direct" : "compatibility";
}

/* One try of a file, and what it needs. */
struct trial {
    struct gds_driver *driver;
    struct gds_file *file;
    uint64_t size;   /* of the file */
    void *gpu;       /* TRY_SIZE bytes, registered with cuFile if that can be */
    uint8_t *wanted; /* TRY_SIZE bytes each, of the host, aligned */
    uint8_t *got;
    bool registered;
};

/* ---- what both ways read ---- */

static int copy(struct trial *trial, enum device_direction direction, void *to, const void *from,
                size_t size)
{
    struct device_transfer *transfer;
    const struct device_copy one = {to, from, size};
    const struct device_copy_options options = {.direction = direction, .pageable = true};
    long taken = device_copy(trial->driver->device, 0, &one, 1, &options, &transfer);
    if (taken != 1)
        return taken < 0 ? (int)taken : base_fail(YOLK_ERR_AGAIN, 0, "the GPU took no copy");
    int status =
        device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), COPY_TIMEOUT_MS));
    int freed = device_transfer_free(transfer);
    return status != YOLK_OK ? status : freed;
}

/* What cuFile read of the block stands in memory `into`; moved: bytes, or its error. */
static int read_by_cufile(struct trial *trial, cufile_handle handle, void *into, size_t size,
                          off_t offset, ssize_t *moved)
{
    *moved = trial->driver->cufile->read(handle, into, size, offset, 0);
    if (*moved < -1)
        return cufile_fail((struct cufile_error){(int)-*moved, 0}, "cuFileRead of %zu bytes", size);
    if (*moved < 0)
        return base_fail(YOLK_ERR_IO, errno, "cuFileRead of %zu bytes", size);
    return YOLK_OK;
}

/* Others may be writing just there, so a difference counts when it is there each time. */
static int compare_read(struct trial *trial, int fd, cufile_handle handle, size_t size, bool host)
{
    for (int i = 0; i < TRIES; i++) {
        ssize_t moved, wanted = pread(fd, trial->wanted, size, 0);
        if (wanted < 0)
            return base_fail(YOLK_ERR_IO, errno, "reading %zu bytes", size);
        memset(trial->got, 0x5a, size);
        int status = host ? YOLK_OK : copy(trial, DEVICE_TO_GPU, trial->gpu, trial->got, size);
        if (status == YOLK_OK)
            status = read_by_cufile(trial, handle, host ? trial->got : trial->gpu, size, 0, &moved);
        if (status == YOLK_OK && !host)
            status = copy(trial, DEVICE_FROM_GPU, trial->got, trial->gpu, size);
        if (status != YOLK_OK)
            return status;
        if (moved == wanted && memcmp(trial->got, trial->wanted, (size_t)wanted) == 0)
            return YOLK_OK;
    }
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "cuFile reads other bytes than the system does");
}

/* ---- a file of ours, in the same folder ---- */

static int register_handle(const struct gds_driver *driver, int fd, cufile_handle *out)
{
    struct cufile_descriptor descriptor = {.type = CUFILE_HANDLE_FD, .handle.fd = fd};
    struct cufile_error error = driver->cufile->handle_register(out, &descriptor);
    if (error.error == CUFILE_OK)
        return YOLK_OK;
    base_ignore(cufile_fail(error, "cuFileHandleRegister"));
    if (error.error == CUFILE_ERR_HANDLE_NOT_REGISTERED)
        base_ignore(
            base_fail_context(YOLK_ERR_UNSUPPORTED, "udev may not know the disk, see docs/gpu.md"));
    return YOLK_ERR_UNSUPPORTED;
}

static int write_and_read(struct trial *trial, int fd, cufile_handle handle)
{
    for (size_t i = 0; i < TRY_SIZE; i++)
        trial->wanted[i] = (uint8_t)(i * 131 + (i >> 8) * 7 + 1);
    int status = copy(trial, DEVICE_TO_GPU, trial->gpu, trial->wanted, TRY_SIZE);
    if (status != YOLK_OK)
        return status;
    ssize_t moved = trial->driver->cufile->write(handle, trial->gpu, TRY_SIZE, 0, 0);
    if (moved != TRY_SIZE)
        return moved < -1 ? cufile_fail((struct cufile_error){(int)-moved, 0}, "cuFileWrite")
                          : base_fail(YOLK_ERR_UNSUPPORTED, moved < 0 ? errno : 0,
                                      "cuFileWrite of %d bytes wrote %zd", TRY_SIZE, moved);
    memset(trial->got, 0, TRY_SIZE);
    if (pread(fd, trial->got, TRY_SIZE, 0) != TRY_SIZE ||
        memcmp(trial->got, trial->wanted, TRY_SIZE) != 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "what cuFile wrote is not what is read");
    return compare_read(trial, fd, handle, TRY_SIZE, false);
}

/* Where no file can be made beside it, the one read of it must do. */
static int try_beside(struct trial *trial)
{
    char path[300];
    const char *end = strrchr(trial->file->path, '/');
    cufile_handle handle;
    if (end == NULL)
        return YOLK_OK;
    snprintf(path, sizeof(path), "%.*s/.yolk-gds-XXXXXX", (int)(end - trial->file->path),
             trial->file->path);
    int fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
    if (fd < 0)
        return errno == EINVAL ? base_fail(YOLK_ERR_UNSUPPORTED, errno, "%s", path) : YOLK_OK;
    int status = register_handle(trial->driver, fd, &handle);
    if (status == YOLK_OK) {
        status = write_and_read(trial, fd, handle);
        trial->driver->cufile->handle_deregister(handle);
    }
    unlink(path); /* not before: cuFile wants a name */
    close(fd);
    return status;
}

/* ---- the mode ---- */

struct counts {
    uint64_t nvfs, p2p, posix;
};

static bool count(const struct trial *trial, struct counts *out)
{
    struct cufile_gpu_statistics gpus[CUFILE_STATISTICS_GPUS];
    unsigned n;
    memset(out, 0, sizeof(*out));
    if (!trial->driver->counts || cufile_gpu_statistics(trial->driver->cufile, gpus, &n) != YOLK_OK)
        return false;
    for (unsigned i = 0; i < n; i++) {
        out->nvfs += gpus[i].nvfs_reads + gpus[i].nvfs_writes;
        out->p2p += gpus[i].p2p_reads + gpus[i].p2p_writes;
        out->posix += gpus[i].posix_reads + gpus[i].posix_writes;
    }
    return true;
}

/* Direct only if the direct counters moved and the other did not. */
static void judge(struct trial *trial, bool counted, const struct counts *before)
{
    struct gds_file *file = trial->file;
    const struct cufile_properties *p = &trial->driver->properties;
    struct counts after;
    char loaded[96] = "nvidia-fs is not loaded";
    if (p->nvfs_major != 0)
        snprintf(loaded, sizeof(loaded), "nvidia-fs %u.%u is loaded", p->nvfs_major, p->nvfs_minor);
    file->mode = GDS_COMPATIBILITY;
    if (!counted || !count(trial, &after)) {
        snprintf(file->reason, sizeof(file->reason),
                 "%s; cuFile counts nothing here, so that it is direct cannot be proved", loaded);
        return;
    }
    uint64_t nvfs = after.nvfs - before->nvfs, p2p = after.p2p - before->p2p,
             posix = after.posix - before->posix;
    if (nvfs + p2p > 0 && posix == 0 && trial->registered) {
        file->mode = GDS_DIRECT;
        snprintf(file->reason, sizeof(file->reason),
                 "cuFile counted %llu transfers by nvidia-fs, %llu by P2P DMA and none by posix",
                 (unsigned long long)nvfs, (unsigned long long)p2p);
        return;
    }
    snprintf(file->reason, sizeof(file->reason),
             "%s; cuFile counted %llu transfers by posix, through host memory, and %llu direct",
             loaded, (unsigned long long)posix, (unsigned long long)(nvfs + p2p));
}

static int try_all(struct trial *trial)
{
    struct gds_file *file = trial->file;
    size_t size = GDS_BLOCK;
    struct counts before;
    int status = YOLK_OK;
    for (int i = 0; i < TRIES && status == YOLK_OK && file->mode != GDS_DIRECT; i++) {
        bool counted = count(trial, &before); /* others' transfers may come in between */
        status = compare_read(trial, file->descriptor, file->handle, size, false);
        if (status == YOLK_OK && file->writable)
            status = try_beside(trial);
        if (status == YOLK_OK)
            judge(trial, counted, &before);
        if (trial->driver->properties.nvfs_major == 0 && !counted)
            break;
    }
    if (status != YOLK_OK)
        return status;
    base_error_clear();
    if (compare_read(trial, file->descriptor, file->handle, size, true) != YOLK_OK)
        snprintf(file->host_reason, sizeof(file->host_reason), "%.150s", yolk_last_error());
    base_error_clear();
    return YOLK_OK;
}

static int try_file(struct gds_file *file)
{
    struct trial trial = {.driver = file->driver, .file = file};
    const struct cuda *cuda = device_cuda(file->driver->device);
    void *wanted = NULL, *got = NULL;
    cuda_pointer gpu = 0;
    int status = YOLK_OK;
    if (posix_memalign(&wanted, GDS_BLOCK, TRY_SIZE) != 0 ||
        posix_memalign(&got, GDS_BLOCK, TRY_SIZE) != 0)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to try a file");
    cuda_result error = status == YOLK_OK ? cuda->mem_alloc(&gpu, TRY_SIZE) : CUDA_OK;
    if (error != CUDA_OK)
        status = cuda_fail(cuda, error, "no GPU memory to try a file");
    if (status == YOLK_OK) {
        trial.gpu = (void *)(uintptr_t)gpu;
        trial.wanted = wanted;
        trial.got = got;
        trial.registered =
            file->driver->cufile->buf_register(trial.gpu, TRY_SIZE, 0).error == CUFILE_OK;
        status = try_all(&trial);
        if (trial.registered)
            (void)file->driver->cufile->buf_deregister(trial.gpu);
    }
    if (gpu != 0)
        (void)cuda->mem_free(gpu);
    free(wanted);
    free(got);
    return status;
}

/* ---- opening ---- */

static int open_in_thread(void *self)
{
    struct gds_file *file = self;
    int status = register_handle(file->driver, file->descriptor, &file->handle);
    if (status != YOLK_OK)
        return status;
    status = try_file(file);
    if (status == YOLK_OK)
        return YOLK_OK;
    file->driver->cufile->handle_deregister(file->handle);
    return base_fail_context(status, "trying it");
}

static void destroy(struct gds_file *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    free(file);
}

/* A second descriptor, and what its path is. */
static int describe(struct gds_file *file, const struct yolk_file *given)
{
    char link[64];
    int flags = fcntl(given->descriptor, F_GETFL);
    file->descriptor = fcntl(given->descriptor, F_DUPFD_CLOEXEC, 0);
    if (flags < 0 || file->descriptor < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "a second descriptor of the file");
    file->writable = (flags & O_ACCMODE) != O_RDONLY;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", file->descriptor);
    ssize_t size = readlink(link, file->path, sizeof(file->path) - 1);
    file->path[size > 0 ? size : 0] = '\0';
    struct stat info;
    if (fstat(file->descriptor, &info) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "fstat");
    if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it is neither a file nor a disk");
    if (!file_direct(given->internal))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "its file system refuses direct I/O");
    return YOLK_OK;
}

int gds_file_open(struct gds_driver *driver, const struct yolk_file *given, const void *key,
                  struct gds_file **out)
{
    struct gds_file *file = base_calloc(1, sizeof(*file));
    if (file == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a file");
    base_list_init(&file->node);
    file->driver = driver;
    file->key = key;
    file->references = 1;
    file->descriptor = -1;
    int status = describe(file, given);
    if (status == YOLK_OK)
        status = gds_driver_call(driver, open_in_thread, file);
    if (status != YOLK_OK) {
        destroy(file);
        return status;
    }
    mutex_lock(&driver->lock);
    base_list_push_back(&driver->files, &file->node);
    driver->compatible += file->mode != GDS_DIRECT;
    mutex_unlock(&driver->lock);
    *out = file;
    return YOLK_OK;
}

struct gds_file *gds_file_find(struct gds_driver *driver, const void *key)
{
    struct gds_file *found = NULL;
    mutex_lock(&driver->lock);
    BASE_LIST_FOREACH(node, &driver->files)
    {
        struct gds_file *file = BASE_CONTAINER(node, struct gds_file, node);
        if (file->key == key)
            found = file;
    }
    if (found != NULL)
        found->references++;
    mutex_unlock(&driver->lock);
    return found;
}

static int close_in_thread(void *self)
{
    struct gds_file *file = self;
    if (!file->given_up)
        file->driver->cufile->handle_deregister(file->handle);
    file->given_up = true;
    return YOLK_OK;
}

void gds_files_deregister(struct gds_driver *driver)
{
    mutex_lock(&driver->lock);
    BASE_LIST_FOREACH(node, &driver->files)
    {
        (void)close_in_thread(BASE_CONTAINER(node, struct gds_file, node));
    }
    mutex_unlock(&driver->lock);
}

void gds_file_release(struct gds_file *file)
{
    struct gds_driver *driver = file->driver;
    mutex_lock(&driver->lock);
    bool last = --file->references == 0;
    if (last) {
        base_list_remove(&file->node);
        driver->compatible -= file->mode != GDS_DIRECT;
    }
    mutex_unlock(&driver->lock);
    if (!last)
        return;
    base_ignore(gds_driver_call(driver, close_in_thread, file));
    destroy(file);
}
