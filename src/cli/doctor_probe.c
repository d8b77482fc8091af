/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/doctor.h"
#include "device/device.h"
#include "device/vmm.h"
#include "platform/memory.h"
#include "store/egm_pool.h"

#define FOUND(item, ...) snprintf((item)->found, sizeof((item)->found), __VA_ARGS__)
#define USE(item, ...)   snprintf((item)->use, sizeof((item)->use), __VA_ARGS__)

/* First line of a file without its newline; "" when it cannot be read. */
static void read_line(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(out, (int)size, file))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(file);
}

/* Entries whose name starts with the prefix; the first is copied to `first` when that is not NULL.
 */
static unsigned count_entries(const char *path, const char *prefix, char *first, size_t size)
{
    unsigned count = 0;
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        if (count++ == 0 && first)
            snprintf(first, size, "%s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    return count;
}

static void probe_kernel(const char *path, struct doctor_item *item)
{
    (void)path;
    struct utsname name;
    if (uname(&name) != 0)
        memset(&name, 0, sizeof(name));
    item->name = "kernel";
    FOUND(item, "%s %s %s, glibc %s", name.sysname, name.release, name.machine,
          gnu_get_libc_version());
    USE(item, "Linux with glibc 2.34 or newer is needed");
}

static void probe_copy(const char *path, struct doctor_item *item)
{
    (void)path;
    bool fast = copy_stream_accelerated();
    item->name = "streaming copy";
    item->grade = fast ? DOCTOR_USED : DOCTOR_LIMITED;
    FOUND(item, fast ? "available" : "not on this processor");
    USE(item, fast ? "copies of 256 KiB and more bypass the cache" : "plain memcpy is used");
}

static void probe_shm(const char *path, struct doctor_item *item)
{
    (void)path;
    item->name = "shared memory";
    int fd = memfd_create("yolk-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool good = fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (good) {
        FOUND(item, "memfd with seals");
        USE(item, "transport shm between processes of this machine; tcp to other machines");
    } else {
        item->grade = DOCTOR_LIMITED;
        FOUND(item, "no sealed memfd: %s", strerror(error));
        USE(item, "transport tcp is used on this machine too, which is slower");
    }
}

static void probe_io_uring(const char *path, struct doctor_item *item)
{
    (void)path;
    struct io_uring_params params;
    char disabled[16];
    memset(&params, 0, sizeof(params));
    item->name = "io_uring";
    item->grade = DOCTOR_UNUSED;
    long fd = syscall(SYS_io_uring_setup, 4, &params);
    if (fd >= 0) {
        close((int)fd);
        FOUND(item, "available, features 0x%x", params.features);
        USE(item, "by the SSD tier (--ssd)");
        item->grade = DOCTOR_USED;
        return;
    }
    int error = errno;
    read_line("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled));
    if (disabled[0] && strcmp(disabled, "0") != 0)
        FOUND(item, "switched off by sysctl kernel.io_uring_disabled=%s", disabled);
    else if (error == ENOSYS)
        FOUND(item, "not in this kernel, or hidden by a container");
    else
        FOUND(item, "refused: %s%s", strerror(error),
              error == EPERM ? " (a container's seccomp filter?)" : "");
    USE(item, "the SSD tier uses threads that read and write instead");
}

static void probe_direct(const char *path, struct doctor_item *item)
{
    item->name = "direct I/O";
    item->grade = DOCTOR_UNUSED;
    int fd = open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0) {
        FOUND(item, "%s: O_DIRECT is refused: %s", path, strerror(errno));
        USE(item, "an SSD tier (--ssd-path) there goes through the page cache");
        return;
    }
    void *block = NULL;
    bool good = posix_memalign(&block, 4096, 4096) == 0;
    if (good) {
        memset(block, 0, 4096);
        good = pwrite(fd, block, 4096, 0) == 4096;
    }
    if (good)
        FOUND(item, "%s: O_DIRECT works with blocks of 4096 bytes", path);
    else
        FOUND(item, "%s: O_DIRECT opens, but writing fails: %s", path, strerror(errno));
    USE(item, "by an SSD tier there (--ssd-path)");
    item->grade = good ? DOCTOR_USED : DOCTOR_UNUSED;
    free(block);
    close(fd);
}

static void probe_locked(const char *path, struct doctor_item *item)
{
    (void)path;
    struct rlimit limit = {0, 0};
    char text[32];
    item->name = "locked memory";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        FOUND(item, "no limit");
        USE(item, "no transport of this version locks memory; RDMA would");
        item->grade = DOCTOR_UNUSED;
        return;
    }
    item->grade = DOCTOR_LIMITED;
    FOUND(item, "limit %s (ulimit -l)", base_format_size(limit.rlim_cur, text, sizeof(text)));
    USE(item, "enough: io_uring goes on without registered buffers; RDMA would need "
              "\"unlimited\"");
}

/* KiB of the mapping at this address that lie in 2 MiB pages. */
static uint64_t huge_kib(const void *address)
{
    char line[256];
    bool ours = false;
    uint64_t sum = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof(line), file)) {
        uint64_t start, end, kib;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
            ours = (uintptr_t)address >= start && (uintptr_t)address < end;
        else if (ours && (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 ||
                          sscanf(line, "FilePmdMapped: %" SCNu64, &kib) == 1))
            sum += kib;
    }
    if (file)
        fclose(file);
    return sum;
}

/* Makes a small segment as a node does and looks at its pages: the rules of kernels differ. */
static bool segment_is_huge(void)
{
    enum { SIZE = 8 << 20 };
    struct memory_segment segment;
    size_t done;
    if (memory_segment_create(SIZE, NULL, &segment) != YOLK_OK)
        return false;
    uint64_t kib = memory_prefault(segment.address, SIZE, 1, UINT64_MAX, &done) == YOLK_OK
                       ? huge_kib(segment.address)
                       : 0;
    memory_segment_destroy(&segment);
    return kib > 0;
}

static void probe_huge(const char *path, struct doctor_item *item)
{
    (void)path;
    char shmem[128], thp[128];
    read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof(shmem));
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", thp, sizeof(thp));
    item->name = "huge pages";
    FOUND(item, "shmem_enabled: %s; enabled: %s", shmem[0] ? shmem : "not in this kernel",
          thp[0] ? thp : "not in this kernel");
    if (segment_is_huge()) {
        USE(item, "segments lie in transparent huge pages (one was made to see)");
        return;
    }
    item->grade = DOCTOR_LIMITED;
    USE(item, "segments lie in 4 KiB pages (one was made to see); they ask for huge ones, which "
              "\"advise\" in /sys/kernel/mm/transparent_hugepage/shmem_enabled would give");
}

static void probe_numa(const char *path, struct doctor_item *item)
{
    (void)path;
    char online[64];
    unsigned nodes = count_entries("/sys/devices/system/node", "node", NULL, 0);
    read_line("/sys/devices/system/node/online", online, sizeof(online));
    item->name = "NUMA";
    item->grade = DOCTOR_UNUSED;
    FOUND(item, "%u node%s%s%s", nodes ? nodes : 1, nodes > 1 ? "s" : "",
          online[0] ? ", online " : "", online);
    USE(item, nodes > 1 ? "not used: start one node process a NUMA node under numactl"
                        : "one node: nothing to place");
}

static void probe_gpu(const char *path, struct doctor_item *item)
{
    (void)path;
    struct device_report report;
    device_describe(NULL, &report);
    item->name = "GPU";
    item->grade = report.cuda ? DOCTOR_USED : DOCTOR_UNUSED;
    FOUND(item, "%s", report.cuda_found);
    USE(item, report.cuda ? "its memory is taken in all calls" : "memory of the host only");
}

static void probe_cufile(const char *path, struct doctor_item *item)
{
    (void)path;
    struct device_report report;
    bool driver = access("/proc/driver/nvidia-fs/version", R_OK) == 0;
    device_describe(NULL, &report);
    item->name = "cuFile";
    item->grade = DOCTOR_UNUSED;
    FOUND(item, "%.400s; nvidia-fs is %s", report.cufile_found, driver ? "loaded" : "not loaded");
    USE(item, report.cufile ? "by the transport gds, where it is on; doctor --gpu N --path DIR "
                              "tries the way to a folder"
                            : "files go through the memory of the host");
}

static void probe_imex(const char *path, struct doctor_item *item)
{
    (void)path;
    unsigned channels = count_entries("/dev/nvidia-caps-imex-channels", "channel", NULL, 0);
    item->name = "IMEX";
    item->grade = DOCTOR_UNUSED;
    if (channels)
        FOUND(item, "%u channel%s", channels, channels > 1 ? "s" : "");
    else
        FOUND(item, "no channel in /dev/nvidia-caps-imex-channels");
    USE(item, channels
                  ? "fabric handles: memory of GPUs and NUMA nodes for other machines of the "
                    "NVLink domain"
                  : "without one no fabric handle is made, whatever the driver says it can; on "
                    "one machine descriptors do (the row below)");
}

/* "yes", or the driver's reason why not. */
static const char *can_make(struct device *device, struct vmm_place place, int handle)
{
    return vmm_probe(device_cuda(device), place, handle) == YOLK_OK ? "yes" : yolk_last_error();
}

static void probe_handles(struct device *device, struct doctor_item *item)
{
    struct device_gpu gpu = {.numa_node = 0};
    char texts[3][128];
    uint64_t granularity = 0;
    if (device_gpu(device, 0, &gpu) != YOLK_OK)
        return;
    const struct vmm_place node = {CUDA_LOCATION_HOST_NUMA, gpu.numa_node < 0 ? 0 : gpu.numa_node};
    const struct vmm_place here = {CUDA_LOCATION_DEVICE, 0};
    if (vmm_granularity(device_cuda(device), node, CUDA_HANDLE_POSIX_FD, &granularity) != YOLK_OK)
        granularity = 0;
    (void)snprintf(texts[0], sizeof(texts[0]), "%s", can_make(device, node, CUDA_HANDLE_POSIX_FD));
    (void)snprintf(texts[1], sizeof(texts[1]), "%s", can_make(device, node, CUDA_HANDLE_FABRIC));
    (void)snprintf(texts[2], sizeof(texts[2]), "%s", can_make(device, here, CUDA_HANDLE_POSIX_FD));
    FOUND(item,
          "NUMA node %d by descriptor: %s, by fabric handle: %s; GPU 0 by descriptor: %s; in units "
          "of %" PRIu64 " bytes",
          node.id, texts[0], texts[1], texts[2], granularity);
    item->grade = strcmp(texts[0], "yes") == 0 ? DOCTOR_USED : DOCTOR_LIMITED;
    USE(item, strcmp(texts[1], "yes") == 0
                  ? "by the transport nvlink, and for EGM pools (enable_egm_store_pool)"
                  : "by the transport nvlink on this machine, and for EGM pools with "
                    "egm_handle_type posix_fd");
}

/* Begins a row that CUDA is asked for. NULL: there is none, which the row says. */
static struct device *begin_cuda(const char *name, struct doctor_item *item)
{
    struct device *device;
    item->name = name;
    item->grade = DOCTOR_UNUSED;
    if (device_open(NULL, &device) == YOLK_OK)
        return device;
    FOUND(item, "%s", yolk_last_error());
    USE(item, "memory of the host only");
    return NULL;
}

static void probe_nvlink(const char *path, struct doctor_item *item)
{
    (void)path;
    struct device *device = begin_cuda("NVLink memory", item);
    struct device_scope scope;
    if (device == NULL)
        return;
    if (device_enter(device, -1, &scope) == YOLK_OK) {
        probe_handles(device, item);
        device_leave(device, &scope);
    }
    device_close(device);
}

/* The nodes that "auto" means, their unit and the handles that others could import. */
static void probe_pool(struct device *device, struct doctor_item *item)
{
    uint32_t ids[EGM_NODES_MAX], count;
    uint64_t unit = EGM_SLAB;
    char nodes[128] = "", why[160], text[32];
    int handles = CUDA_HANDLE_FABRIC;
    size_t used = 0;
    int status = egm_discover(device, ids, &count);
    if (status == YOLK_OK && count == 0)
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "no GPU is visible");
    struct vmm_place place = {CUDA_LOCATION_HOST_NUMA, status == YOLK_OK ? (int)ids[0] : 0};
    (void)snprintf(why, sizeof(why), "%s",
                   status == YOLK_OK ? can_make(device, place, handles) : yolk_last_error());
    bool fabric = strcmp(why, "yes") == 0;
    if (status == YOLK_OK && !fabric)
        handles = CUDA_HANDLE_POSIX_FD;
    for (uint32_t i = 0; i < count && status == YOLK_OK; i++) {
        uint64_t granularity = 0;
        place.id = (int)ids[i];
        status = vmm_granularity(device_cuda(device), place, handles, &granularity);
        if (status == YOLK_OK)
            status = vmm_probe(device_cuda(device), place, handles);
        unit = granularity > unit ? granularity : unit;
        if (used < sizeof(nodes))
            used += (size_t)snprintf(nodes + used, sizeof(nodes) - used, "%s%u", i > 0 ? "," : "",
                                     ids[i]);
    }
    if (status != YOLK_OK) {
        FOUND(item, "%.400s", yolk_last_error());
        USE(item, "no EGM pool with egm_numa_nodes auto");
        return;
    }
    item->grade = fabric ? DOCTOR_USED : DOCTOR_LIMITED;
    FOUND(item, "egm_numa_nodes auto: %s; in units of %s; by fabric handle: %s", nodes,
          base_format_size(unit, text, sizeof(text)), why);
    USE(item,
        fabric ? "where enable_egm_store_pool is on, with egm_handle_type fabric: for all of the "
                 "NVLink domain"
               : "where enable_egm_store_pool is on, with egm_handle_type posix_fd or auto: for "
                 "this machine; with fabric setup fails");
}

static void probe_egm(const char *path, struct doctor_item *item)
{
    (void)path;
    struct device *device = begin_cuda("EGM pool", item);
    struct device_scope scope;
    if (device == NULL)
        return;
    if (device_enter(device, -1, &scope) == YOLK_OK) {
        probe_pool(device, item);
        device_leave(device, &scope);
    }
    device_close(device);
}

static void probe_rdma(const char *path, struct doctor_item *item)
{
    (void)path;
    char first[256] = "";
    unsigned devices = count_entries("/sys/class/infiniband", "", first, sizeof(first));
    item->name = "RDMA";
    item->grade = DOCTOR_UNUSED;
    if (devices)
        FOUND(item, "%u device%s, first %s", devices, devices > 1 ? "s" : "", first);
    else
        FOUND(item, "no device in /sys/class/infiniband");
    USE(item,
        "not used: this version has no RDMA transport, and exports no DMA-buf of a GPU's memory; "
        "tcp reaches other machines");
}

static void probe_files(const char *path, struct doctor_item *item)
{
    (void)path;
    struct rlimit limit = {0, 0};
    item->name = "open files";
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    bool few = limit.rlim_cur < 8192;
    item->grade = few ? DOCTOR_LIMITED : DOCTOR_USED;
    FOUND(item, "limit %" PRIu64 " (ulimit -n)", (uint64_t)limit.rlim_cur);
    USE(item, few ? "a master takes fewer connections than its 4096" : "enough for a master");
}

static void probe_secret(const char *path, struct doctor_item *item)
{
    (void)path;
    item->name = "security";
    const char *file = getenv("YOLK_SECRET_FILE");
    FOUND(item, file && file[0] ? "YOLK_SECRET_FILE is %.180s" : "no YOLK_SECRET_FILE%.0s",
          file ? file : "");
    item->grade = DOCTOR_LIMITED;
    USE(item, "a secret proves who connects; without TLS nothing protects the bytes after that, "
              "so use a trusted network");
}

size_t doctor_examine(const char *path, struct doctor_item *items)
{
    static void (*const PROBES[])(const char *, struct doctor_item *) = {
        probe_kernel, probe_copy, probe_shm,   probe_io_uring, probe_direct, probe_locked,
        probe_huge,   probe_numa, probe_gpu,   probe_cufile,   probe_imex,   probe_nvlink,
        probe_egm,    probe_rdma, probe_files, probe_secret,
    };
    size_t count = sizeof(PROBES) / sizeof(PROBES[0]);
    for (size_t i = 0; i < count; i++) {
        memset(&items[i], 0, sizeof(items[i]));
        PROBES[i](path, &items[i]);
    }
    return count;
}
