/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuFile: driver, files, buffers, single reads and writes, commands. */
#include "cufile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake_cufile cufile = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .moved = PTHREAD_COND_INITIALIZER,
    .udev = true,
    .version = 1150,
    .batch_max = 128,
    .pool = 64,
    .sparse = (unsigned)-1,
    .buffers_max = (unsigned long)-1,
    .log_fd = -1,
};

int cufile_enter(const char *name)
{
    unsigned i = 0;
    if (cufile.ended) /* S16: nor may it be called any more */
        raise(SIGSEGV);
    pthread_mutex_lock(&cufile.lock);
    while (i < CALLS_MAX - 1 && cufile.calls[i].name[0] != '\0' &&
           strcmp(cufile.calls[i].name, name) != 0)
        i++;
    snprintf(cufile.calls[i].name, sizeof(cufile.calls[i].name), "%s", name);
    cufile.calls[i].calls++;
    if (cufile.log_fd >= 0)
        dprintf(cufile.log_fd, "%d %s\n", (int)getpid(), name);
    for (i = 0; i < cufile.rule_count; i++) {
        if (strcmp(cufile.rules[i].name, name) != 0)
            continue;
        unsigned long call = ++cufile.rules[i].seen;
        if (call < cufile.rules[i].first || call > cufile.rules[i].last)
            continue;
        if (cufile.rules[i].error == -SIGKILL)
            raise(SIGKILL);
        return cufile.rules[i].error;
    }
    return CUFILE_OK;
}

void cufile_unlock(void)
{
    pthread_mutex_unlock(&cufile.lock);
}

struct cufile_error cufile_leave(int error)
{
    cufile_unlock();
    return (struct cufile_error){error, 0};
}

/* ---- commands ---- */

__attribute__((noreturn)) static void wrong(const char *command)
{
    dprintf(STDERR_FILENO, "fake cuFile: wrong command \"%s\"\n", command);
    _exit(98);
}

static void reset(void)
{
    cufile.rule_count = cufile.fault_count = 0;
    cufile.direct = cufile.late = cufile.lifo = cufile.hold = false;
    cufile.udev = true;
    cufile.open_error = 0;
    cufile.open_abort = cufile.open_hang = false;
    cufile.batch_max = 128;
    cufile.pool = 64;
    cufile.sparse = (unsigned)-1;
    cufile.buffers_max = (unsigned long)-1;
    cufile.delay = 0;
    cufile.cancel = 0;
    cufile.registrations = cufile.submissions = cufile.largest = 0;
    memset(&cufile.statistics, 0, sizeof(cufile.statistics));
    memset(cufile.calls, 0, sizeof(cufile.calls));
}

static void set(const char *command, const char *what, const char *value)
{
    unsigned number = (unsigned)strtoul(value, NULL, 10);
    if (strcmp(what, "mode") == 0)
        cufile.direct = strcmp(value, "direct") == 0;
    else if (strcmp(what, "version") == 0)
        cufile.version = (int)number;
    else if (strcmp(what, "udev") == 0)
        cufile.udev = number != 0;
    else if (strcmp(what, "batchmax") == 0)
        cufile.batch_max = number;
    else if (strcmp(what, "buffers") == 0)
        cufile.buffers_max = number;
    else if (strcmp(what, "pool") == 0)
        cufile.pool = number;
    else if (strcmp(what, "open") == 0) {
        cufile.open_error = (int)number;
        cufile.open_abort = strcmp(value, "abort") == 0;
        cufile.open_hang = strcmp(value, "hang") == 0;
    } else if (strcmp(what, "late") == 0)
        cufile.late = number != 0;
    else if (strcmp(what, "order") == 0)
        cufile.lifo = strcmp(value, "lifo") == 0;
    else if (strcmp(what, "sparse") == 0)
        cufile.sparse = number;
    else if (strcmp(what, "delay") == 0)
        cufile.delay = number;
    else if (strcmp(what, "cancel") == 0)
        cufile.cancel = strcmp(value, "obey") == 0 ? 1 : strcmp(value, "error") == 0 ? 2 : 0;
    else
        wrong(command);
}

static void add_rule(const char *command, const char *name, const char *numbers)
{
    unsigned long nth, length = 1;
    int error;
    if (sscanf(numbers, "%lu %d %lu", &nth, &error, &length) < 2 || cufile.rule_count == RULES_MAX)
        wrong(command);
    unsigned i = cufile.rule_count++;
    memset(&cufile.rules[i], 0, sizeof(cufile.rules[i]));
    snprintf(cufile.rules[i].name, sizeof(cufile.rules[i].name), "%.47s", name);
    cufile.rules[i].first = nth;
    cufile.rules[i].last = length == 0 ? (unsigned long)-1 : nth + length - 1;
    cufile.rules[i].error = error;
}

static void add_fault(const char *command, const char *verb, const char *nth, const char *rest)
{
    static const char *const names[] = {"",     "short", "status",  "error",
                                        "late", "twice", "stranger"};
    char kind[16] = "";
    struct fault fault = {.at = strtoul(nth, NULL, 10)};
    if (cufile.fault_count == RULES_MAX)
        wrong(command);
    if (strcmp(verb, "refuse") == 0) {
        fault.kind = FAULT_REFUSE;
        fault.value = strtol(rest, NULL, 10);
    } else {
        (void)sscanf(rest, "%15s %ld %ld", kind, &fault.value, &fault.result);
        for (int i = 1; i <= FAULT_STRANGER; i++)
            fault.kind = strcmp(kind, names[i]) == 0 ? (enum fault_kind)i : fault.kind;
    }
    if (fault.kind == FAULT_NONE)
        wrong(command);
    cufile.faults[cufile.fault_count++] = fault;
}

static long count(const char *command, const char *what)
{
    long found = 0;
    if (strcmp(what, "handles") == 0) {
        for (int i = 0; i < FILES_MAX; i++)
            found += cufile.files[i].used;
    } else if (strcmp(what, "buffers") == 0) {
        for (int i = 0; i < BUFFERS_MAX; i++)
            found += cufile.buffers[i].size != 0;
    } else if (strcmp(what, "batches") == 0 || strcmp(what, "inflight") == 0) {
        for (struct batch *b = cufile.batches; b != NULL; b = b->next)
            found += what[0] == 'b' ? 1 : (long)b->count;
    } else if (strcmp(what, "registrations") == 0) {
        found = (long)cufile.registrations;
    } else if (strcmp(what, "submissions") == 0) {
        found = (long)cufile.submissions;
    } else if (strcmp(what, "largest") == 0) {
        found = (long)cufile.largest;
    } else {
        wrong(command);
    }
    return found;
}

static long calls(const char *name)
{
    for (unsigned i = 0; i < CALLS_MAX && cufile.calls[i].name[0] != '\0'; i++) {
        if (strcmp(cufile.calls[i].name, name) == 0)
            return (long)cufile.calls[i].calls;
    }
    return 0;
}

static long run(const char *command)
{
    char verb[16] = "", word[64] = "", rest[128] = "";
    if (sscanf(command, " %15s %63s %127[^\n]", verb, word, rest) < 1)
        return 0;
    if (strcmp(verb, "reset") == 0)
        reset();
    else if (strcmp(verb, "set") == 0)
        set(command, word, rest);
    else if (strcmp(verb, "fail") == 0)
        add_rule(command, word, rest);
    else if (strcmp(verb, "io") == 0 || strcmp(verb, "refuse") == 0)
        add_fault(command, verb, word, rest);
    else if (strcmp(verb, "hold") == 0)
        cufile.hold = word[0] == '1';
    else if (strcmp(verb, "late") == 0)
        cufile_run_late();
    else if (strcmp(verb, "release") == 0)
        cufile.pool = (unsigned)-1;
    else if (strcmp(verb, "calls") == 0)
        return calls(word);
    else if (strcmp(verb, "count") == 0)
        return count(command, word);
    else
        wrong(command);
    pthread_cond_broadcast(&cufile.moved);
    return 0;
}

static long run_all(const char *commands)
{
    char *copy = strdup(commands), *save = NULL;
    long result = 0;
    for (char *one = strtok_r(copy, ";", &save); one != NULL; one = strtok_r(NULL, ";", &save))
        result = run(one);
    free(copy);
    return result;
}

FAKE_API long fake_cufile_control(const char *commands)
{
    pthread_mutex_lock(&cufile.lock);
    long result = run_all(commands);
    pthread_mutex_unlock(&cufile.lock);
    return result;
}

__attribute__((constructor)) static void begin(void)
{
    const char *commands = getenv("FAKE_CUFILE");
    const char *log = getenv("FAKE_CUFILE_LOG");
    if (log != NULL)
        cufile.log_fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (commands != NULL)
        (void)run_all(commands);
}

struct fault cufile_draw_fault(void)
{
    struct fault drawn = {0};
    for (unsigned i = 0; i < cufile.fault_count; i++) {
        if (++cufile.faults[i].seen == cufile.faults[i].at)
            drawn = cufile.faults[i];
    }
    return drawn;
}

/* ---- the driver ---- */

#define ENTER(name)                                                                                \
    do {                                                                                           \
        int entered_ = cufile_enter(name);                                                         \
        if (entered_ != CUFILE_OK)                                                                 \
            return cufile_leave(entered_);                                                         \
    } while (0)

static bool is_in_use(void)
{
    bool any = cufile.open || cufile.batches != NULL;
    for (int i = 0; i < FILES_MAX; i++)
        any = any || cufile.files[i].used;
    for (int i = 0; i < BUFFERS_MAX; i++)
        any = any || cufile.buffers[i].size != 0;
    return any;
}

/* S16. The lock is whoever's. */
static void at_exit(void)
{
    if (getpid() == cufile.opener && is_in_use()) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    cufile.ended = true;
}

FAKE_API struct cufile_error cuFileDriverOpen(void);
FAKE_API struct cufile_error cuFileDriverOpen(void)
{
    ENTER("cuFileDriverOpen");
    if (cufile.open_abort)
        abort();
    while (cufile.open_hang)
        pthread_cond_wait(&cufile.moved, &cufile.lock);
    if (cufile.open_error != 0)
        return cufile_leave(cufile.open_error);
    if (cufile.opener == 0 && atexit(at_exit) != 0)
        abort();
    cufile.opener = getpid();
    cufile.open = true;
    return cufile_leave(CUFILE_OK);
}

/* Seen: the library exports it as _v2 too. */
FAKE_API struct cufile_error cuFileDriverClose_v2(void);
FAKE_API struct cufile_error cuFileDriverClose_v2(void)
{
    ENTER("cuFileDriverClose");
    cufile.open = false;
    return cufile_leave(CUFILE_OK);
}

FAKE_API struct cufile_error cuFileDriverGetProperties(struct cufile_properties *properties);
FAKE_API struct cufile_error cuFileDriverGetProperties(struct cufile_properties *properties)
{
    ENTER("cuFileDriverGetProperties");
    memset(properties, 0, offsetof(struct cufile_properties, reserved));
    properties->nvfs_major = cufile.direct ? 2 : 0;
    properties->direct_io_kib_max = 16384;
    properties->status_flags = cufile.direct ? 1u << CUFILE_STATUS_NVME : 0;
    properties->control_flags = 1u << CUFILE_CONTROL_COMPAT;
    properties->features = 1u << CUFILE_FEATURE_BATCH;
    properties->batch_max = cufile.batch_max;
    return cufile_leave(CUFILE_OK);
}

/* ---- files and buffers ---- */

FAKE_API struct cufile_error cuFileHandleRegister(cufile_handle *handle,
                                                  struct cufile_descriptor *descriptor);
FAKE_API struct cufile_error cuFileHandleRegister(cufile_handle *handle,
                                                  struct cufile_descriptor *descriptor)
{
    char path[48];
    ENTER("cuFileHandleRegister");
    if (descriptor->type != CUFILE_HANDLE_FD)
        return cufile_leave(CUFILE_ERR_INVALID_VALUE);
    if (!cufile.udev) /* seen: «udev property not found: ID_FS_USAGE» */
        return cufile_leave(CUFILE_ERR_HANDLE_NOT_REGISTERED);
    struct stat info;
    if (fstat(descriptor->handle.fd, &info) == 0 && info.st_nlink == 0) /* S10 */
        return cufile_leave(CUFILE_ERR_NO_NEW_FD);
    int flags = fcntl(descriptor->handle.fd, F_GETFL);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor->handle.fd);
    int fd = flags < 0 ? -1 : open(path, (flags & O_ACCMODE) | O_CLOEXEC);
    for (int i = 0; i < FILES_MAX && fd >= 0; i++) {
        if (cufile.files[i].used)
            continue;
        cufile.files[i] = (struct file){true, fd};
        *handle = &cufile.files[i];
        return cufile_leave(CUFILE_OK);
    }
    if (fd >= 0)
        close(fd);
    return cufile_leave(CUFILE_ERR_FILE_TYPE);
}

struct file *cufile_file(cufile_handle handle)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (handle == &cufile.files[i] && cufile.files[i].used)
            return &cufile.files[i];
    }
    return NULL;
}

bool cufile_writable(const struct file *file)
{
    return (fcntl(file->fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

FAKE_API void cuFileHandleDeregister(cufile_handle handle);
FAKE_API void cuFileHandleDeregister(cufile_handle handle)
{
    (void)cufile_enter("cuFileHandleDeregister");
    struct file *file = cufile_file(handle);
    if (file != NULL) {
        close(file->fd);
        file->used = false;
    }
    cufile_unlock();
}

FAKE_API struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags);
FAKE_API struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags)
{
    int place = -1;
    unsigned long used = 0;
    (void)flags;
    ENTER("cuFileBufRegister");
    if (size == 0)
        return cufile_leave(CUFILE_ERR_INVALID_VALUE);
    for (int i = 0; i < BUFFERS_MAX; i++) {
        if (cufile.buffers[i].size == 0)
            place = i;
        else if (cufile.buffers[i].base == (uintptr_t)base)
            return cufile_leave(CUFILE_ERR_MEMORY_ALREADY_REGISTERED); /* S6 */
        used += cufile.buffers[i].size != 0;
    }
    if (place < 0 || used >= cufile.buffers_max)
        return cufile_leave(CUFILE_ERR_PINNING_FAILED);
    cufile.buffers[place].base = (uintptr_t)base;
    cufile.buffers[place].size = size;
    cufile.registrations++;
    return cufile_leave(CUFILE_OK);
}

FAKE_API struct cufile_error cuFileBufDeregister(const void *base);
FAKE_API struct cufile_error cuFileBufDeregister(const void *base)
{
    ENTER("cuFileBufDeregister");
    for (int i = 0; i < BUFFERS_MAX; i++) {
        if (cufile.buffers[i].size == 0 || cufile.buffers[i].base != (uintptr_t)base)
            continue;
        cufile.buffers[i].size = 0;
        return cufile_leave(CUFILE_OK);
    }
    return cufile_leave(CUFILE_ERR_MEMORY_NOT_REGISTERED);
}

/* ---- the bytes ---- */

static bool registered(uintptr_t base, size_t end)
{
    for (int i = 0; i < BUFFERS_MAX; i++) {
        if (cufile.buffers[i].size != 0 && cufile.buffers[i].base == base)
            return end <= cufile.buffers[i].size;
    }
    return false;
}

/* Direct needs a registered base, whole blocks, and the mode; else the bytes go by bounce buffers.
 */
static void account(uintptr_t base, size_t size, off_t file_offset, off_t base_offset, bool write)
{
    struct cufile_gpu_statistics *s = &cufile.statistics;
    bool aligned = size % 4096 == 0 && file_offset % 4096 == 0 && base_offset % 4096 == 0;
    bool direct = cufile.direct && aligned && registered(base, (size_t)base_offset + size);
    *(write ? &s->writes : &s->reads) += 1;
    *(write ? &s->write_bytes : &s->read_bytes) += size;
    if (direct)
        *(write ? &s->nvfs_writes : &s->nvfs_reads) += 1;
    else
        *(write ? &s->posix_writes : &s->posix_reads) += 1;
    if (!aligned)
        *(write ? &s->unaligned_writes : &s->unaligned_reads) += 1;
}

ssize_t cufile_move(struct file *file, uintptr_t base, size_t size, off_t file_offset,
                    off_t base_offset, bool write)
{
    size_t done = 0;
    uint8_t *memory = fake_cuda_shadow((void *)(base + (uintptr_t)base_offset), size);
    if (memory == NULL) /* seen: host memory is taken, pinned or not */
        memory = (uint8_t *)(base + (uintptr_t)base_offset);
    if (file == NULL)
        return -CUFILE_ERR_HANDLE_NOT_REGISTERED;
    account(base, size, file_offset, base_offset, write);
    while (done < size) {
        ssize_t moved =
            write ? pwrite(file->fd, memory + done, size - done, file_offset + (off_t)done)
                  : pread(file->fd, memory + done, size - done, file_offset + (off_t)done);
        if (moved < 0)
            return -errno;
        if (moved == 0)
            break; /* S5 */
        done += (size_t)moved;
    }
    return (ssize_t)done;
}

static ssize_t move_once(const char *name, cufile_handle handle, const void *base, size_t size,
                         off_t file_offset, off_t base_offset, bool write)
{
    ssize_t result = -cufile_enter(name);
    struct fault fault = cufile_draw_fault();
    if (result == 0 && fault.kind == FAULT_STATUS)
        result = fault.result != 0 ? fault.result : -CUFILE_ERR_IO;
    else if (result == 0)
        result = cufile_move(cufile_file(handle), (uintptr_t)base,
                             fault.kind == FAULT_SHORT ? (size_t)fault.value : size, file_offset,
                             base_offset, write);
    cufile_unlock();
    return result;
}

FAKE_API ssize_t cuFileRead(cufile_handle file, void *base, size_t size, off_t file_offset,
                            off_t base_offset);
FAKE_API ssize_t cuFileRead(cufile_handle file, void *base, size_t size, off_t file_offset,
                            off_t base_offset)
{
    return move_once("cuFileRead", file, base, size, file_offset, base_offset, false);
}

FAKE_API ssize_t cuFileWrite(cufile_handle file, const void *base, size_t size, off_t file_offset,
                             off_t base_offset);
FAKE_API ssize_t cuFileWrite(cufile_handle file, const void *base, size_t size, off_t file_offset,
                             off_t base_offset)
{
    return move_once("cuFileWrite", file, base, size, file_offset, base_offset, true);
}
