/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor_gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_gds.h"
#include "cli/mount.h"
#include "device/device.h"
#include "platform/clock.h"

enum { LIMIT_MS = 60000, TEST_MS = 5000, TEST_DEPTH = 32 };

#define TEST_BYTES (128 * MIB)
#define TEST_SLICE (16 * MIB)

/* What the items are told to: the end of a pipe, each as it is found. */
struct examination {
    int ordinal;
    const char *path;
    int out;
    bool gpu, cufile, direct; /* there, loaded, and O_DIRECT works */
    struct cli_mount mount;
    struct yolk_file_figures figures;
    bool tried;
};

#define FOUND(item, ...) snprintf((item)->found, sizeof((item)->found), __VA_ARGS__)
#define USE(item, ...)   snprintf((item)->use, sizeof((item)->use), __VA_ARGS__)

static void tell(const struct examination *e, const struct doctor_item *item)
{
    if (write(e->out, item, sizeof(*item)) != (ssize_t)sizeof(*item))
        _exit(1);
}

static void look_at_driver(struct examination *e, struct doctor_item *item)
{
    struct device *device;
    struct device_gpu gpu;
    int status = device_open(NULL, &device);
    if (status != YOLK_OK) {
        FOUND(item, "%s", yolk_last_error());
        USE(item, "install the driver of the GPU, and in a container start it with the GPUs "
                  "(--gpus all); until then values are in the memory of the host");
        return;
    }
    status = device_gpu(device, e->ordinal, &gpu);
    if (status == YOLK_OK) {
        e->gpu = true;
        item->grade = DOCTOR_USED;
        FOUND(item, "GPU %d is %s (%s) with %" PRIu64 " MiB; driver %d.%d", e->ordinal, gpu.name,
              gpu.bus, (uint64_t)(gpu.memory_bytes / MIB), device_cuda(device)->version / 1000,
              device_cuda(device)->version % 1000 / 10);
        USE(item, "its memory is taken in all calls");
    } else {
        FOUND(item, "%s", yolk_last_error());
        USE(item, "name one of the %u GPUs that there are, with --gpu 0 to %u",
            device_count(device), device_count(device) - 1);
    }
    device_close(device);
}

static void look_at_library(struct examination *e, struct doctor_item *item)
{
    struct device_report report;
    device_describe(NULL, &report);
    FOUND(item, "%s", report.cufile_found);
    e->cufile = report.cufile;
    if (!report.cufile) {
        USE(item, "install libcufile (package libcufile or nvidia-cufile) and name its folder in "
                  "LD_LIBRARY_PATH; until then files are read through the memory of the host");
    } else if (access("/proc/modules", R_OK) != 0) {
        item->grade = DOCTOR_LIMITED;
        USE(item, "there is no /proc/modules here, without which its driver never opens: mount it "
                  "into the container");
    } else {
        item->grade = DOCTOR_USED;
        USE(item, "by the transport gds (transports/gds/enable)");
    }
}

static void look_at_modules(struct examination *e, struct doctor_item *item)
{
    char version[64] = "";
    FILE *file = fopen("/proc/driver/nvidia-fs/version", "re");
    (void)e;
    if (file != NULL && fgets(version, sizeof(version), file) == NULL)
        version[0] = '\0';
    version[strcspn(version, "\n")] = '\0';
    if (file != NULL) {
        fclose(file);
        item->grade = DOCTOR_USED;
        FOUND(item, "nvidia-fs is loaded: %s", version);
        USE(item, "direct transfers are possible; whether one was, the try below says");
        return;
    }
    item->grade = DOCTOR_LIMITED;
    FOUND(item, "nvidia-fs is not loaded; P2P DMA of the kernel, if cuFile has it, is tried below");
    USE(item, "for direct transfers: modprobe nvidia-fs (package nvidia-fs-dkms), or on Linux 6.2 "
              "and newer with NVMe set properties.use_pci_p2pdma to true in cufile.json");
}

static void look_at_file_system(struct examination *e, struct doctor_item *item)
{
    static const char *const fit[] = {"ext4", "xfs",  "lustre", "beegfs", "gpfs",
                                      "nfs",  "nfs4", "wekafs", "vastnfs"};
    bool fits = false;
    if (cli_mount_of(e->path, &e->mount) != YOLK_OK) {
        FOUND(item, "%s", yolk_last_error());
        USE(item, "cuFile looks it up in the same place: use a folder of an ordinary mount");
        return;
    }
    for (size_t i = 0; i < sizeof(fit) / sizeof(fit[0]); i++)
        fits = fits || strcmp(e->mount.type, fit[i]) == 0;
    item->grade = fits ? DOCTOR_USED : DOCTOR_UNUSED;
    FOUND(item, "%.160s: %s on %.100s, mounted at %.160s", e->path, e->mount.type, e->mount.source,
          e->mount.point);
    if (fits)
        USE(item, "cuFile takes files of it");
    else
        USE(item, "cuFile takes files of ext4, xfs and some of the network only: put "
                  "the path on one of these");
}

static void look_at_options(struct examination *e, struct doctor_item *item)
{
    bool journal = strstr(e->mount.options, "data=journal") != NULL ||
                   strstr(e->mount.options, "data=writeback") != NULL;
    item->grade = journal ? DOCTOR_LIMITED : DOCTOR_USED;
    FOUND(item, "%s", e->mount.options[0] != '\0' ? e->mount.options : "not known");
    if (strcmp(e->mount.type, "ext4") != 0)
        USE(item, "nothing of them matters to cuFile on this file system");
    else if (journal)
        USE(item, "mount it with data=ordered: without that cuFile does not go directly on ext4");
    else
        USE(item, "data=ordered, ext4's default, as cuFile wants it");
}

static void look_at_udev(struct examination *e, struct doctor_item *item)
{
    char path[64], line[256];
    bool told = false;
    snprintf(path, sizeof(path), "/run/udev/data/b%u:%u", e->mount.major, e->mount.minor);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        told = told || strncmp(line, "E:ID_FS_USAGE=", 14) == 0;
    if (file != NULL)
        fclose(file);
    item->grade = told ? DOCTOR_USED : DOCTOR_UNUSED;
    FOUND(item, "%s %s", path,
          told           ? "names the disk's ID_FS_USAGE"
          : file != NULL ? "has no ID_FS_USAGE"
                         : "is not there");
    if (told)
        USE(item, "cuFile finds there what the disk is");
    else
        USE(item,
            "mount the host's /run/udev into the container, or: mkdir -p /run/udev/data; "
            "printf 'I:1\\nE:ID_FS_TYPE=%s\\nE:ID_FS_USAGE=filesystem\\nG:systemd\\nV:1\\n' "
            ">%s; without it each file is refused (5027)",
            e->mount.type[0] != '\0' ? e->mount.type : "ext4", path);
}

static void look_at_direct(struct examination *e, struct doctor_item *item)
{
    struct statx info = {0};
    int fd = open(e->path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0) {
        FOUND(item, "O_DIRECT is refused: %s", strerror(errno));
        USE(item, "a GDS file cannot be there: put the path on a file system that takes O_DIRECT");
        return;
    }
    e->direct = true;
    item->grade = DOCTOR_USED;
    bool told = statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
                (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_offset_align != 0;
    close(fd);
    if (!told) {
        FOUND(item, "O_DIRECT works; the kernel does not say to what multiples");
        USE(item, "4 KiB is kept to; other heads and tails of a request go through a buffer");
        return;
    }
    FOUND(item, "O_DIRECT works: memory to multiples of %u bytes, offsets to %u",
          info.stx_dio_mem_align, info.stx_dio_offset_align);
    if (info.stx_dio_offset_align <= 4096)
        USE(item, "multiples of 4 KiB go directly, other heads and tails through a buffer");
    else {
        item->grade = DOCTOR_LIMITED;
        USE(item, "make the file system with blocks of 4 KiB: what Yolk takes for aligned "
                  "is not to this one");
    }
}

/* ---- the try ---- */
static void try_it(struct examination *e, struct doctor_item *item)
{
    struct bench_gpu none = {.total = 1 * MIB};
    static uint8_t block[1 << 20];
    struct file *file = NULL;
    char path[512];
    struct yolk_transport_options options = {.struct_size = sizeof(options), .gds_enable = 1};
    none.host = block;
    enum yolk_status status = bench_gds_file(e->path, "doctor", &none, &file, path);
    if (status == YOLK_OK)
        status = gds_try(&options, path, 1, &e->figures);
    bench_gds_file_remove(file, path);
    if (status != YOLK_OK) {
        FOUND(item, "unavailable: %s", yolk_last_error());
        USE(item, "see to what the items before this one say, or set "
                  "MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK=1 to go through the memory of the host");
        return;
    }
    e->tried = true;
    FOUND(item, "%s: %s", e->figures.mode, e->figures.reason);
    item->grade = e->figures.direct ? DOCTOR_USED : DOCTOR_LIMITED;
    if (e->figures.direct)
        USE(item, "the disk and the GPU move the bytes between each other");
    else
        USE(item, "cuFile copies through its own host memory; for the direct way load nvidia-fs or "
                  "turn P2P DMA on, as said above");
}

/* ---- the test of five seconds ---- */
struct speeds {
    double write, read; /* GB/s */
};

static enum yolk_status run_for(struct bench_gds_engine *engine, bool write, uint64_t ms,
                                double *speed)
{
    const struct bench_gds_work work = {
        .write = write, .slice = TEST_SLICE, .bytes = TEST_BYTES, .depth = TEST_DEPTH};
    struct bench_gds_took took;
    uint64_t start = bench_now_ns(), bytes = 0;
    enum yolk_status status = YOLK_OK;
    while (status == YOLK_OK && bench_now_ns() < clock_after_ms(start, ms)) {
        status = bench_gds_engine_run(engine, &work, &took);
        bytes += work.bytes;
    }
    *speed = (double)bytes / bench_seconds_since(start) / 1e9;
    return status;
}

static enum yolk_status test_by(struct bench_gpu *gpu, struct file *file, bool gds, uint64_t ms,
                                struct speeds *out)
{
    struct bench_gds_engine engine;
    const struct bench_gds_engine_options options = {.gds = gds,
                                                     .uring = !gds,
                                                     .depth = TEST_DEPTH,
                                                     .file = file,
                                                     .size = gpu->total,
                                                     .memory = gpu->gpu};
    enum yolk_status status = bench_gds_engine_open(&engine, &options);
    if (status == YOLK_OK)
        status = run_for(&engine, true, ms / 2, &out->write);
    if (status == YOLK_OK)
        status = run_for(&engine, false, ms / 2, &out->read);
    bench_gds_engine_close(&engine);
    return status;
}

static void test_speed(struct examination *e, struct doctor_item *item)
{
    struct bench_gpu gpu;
    struct file *file = NULL;
    struct speeds gds = {0, 0}, host = {0, 0};
    char path[512] = "", other[160] = "", ours[96] = "";
    enum yolk_status status = bench_gpu_open_sized(&gpu, e->ordinal, TEST_BYTES);
    if (status == YOLK_OK)
        status = bench_gds_file(e->path, "doctor", &gpu, &file, path);
    if (status == YOLK_OK && e->tried)
        status = test_by(&gpu, file, true, TEST_MS * 3 / 5, &gds);
    if (status == YOLK_OK && e->tried)
        snprintf(ours, sizeof(ours), "gds wrote %.2f and read %.2f GB/s; ", gds.write, gds.read);
    if (status == YOLK_OK &&
        test_by(&gpu, file, false, e->tried ? TEST_MS * 2 / 5 : TEST_MS, &host) == YOLK_OK)
        snprintf(other, sizeof(other),
                 "pinned memory of the host and io_uring wrote %.2f and read %.2f GB/s", host.write,
                 host.read);
    else if (status == YOLK_OK)
        snprintf(other, sizeof(other), "pinned memory and io_uring: %.120s", yolk_last_error());
    bench_gds_file_remove(file, path);
    bench_gpu_close(&gpu);
    if (status != YOLK_OK) {
        FOUND(item, "%s", yolk_last_error());
        USE(item, "see to what this says and try again: 128 MiB in the folder, on the GPU and "
                  "pinned in the host are needed");
        return;
    }
    item->grade = e->tried ? DOCTOR_USED : DOCTOR_LIMITED;
    FOUND(item, "five seconds with slices of 16 MiB: %s%s", ours, other);
    if (!e->tried)
        USE(item, "this is what MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK=1 would give");
    else
        USE(item, "%s",
            host.write + host.read > 1.1 * (gds.write + gds.read)
                ? "through the host it is faster here: "
                  "MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK=1 lets that be chosen"
                : "gds is used");
}

/* ---- the process ---- */
static void examine(struct examination *e)
{
    static const struct {
        const char *name;
        void (*look)(struct examination *, struct doctor_item *);
    } looks[] = {{"GPU driver", look_at_driver},     {"cuFile library", look_at_library},
                 {"nvidia-fs", look_at_modules},     {"file system", look_at_file_system},
                 {"mount options", look_at_options}, {"udev entry", look_at_udev},
                 {"alignment", look_at_direct},      {"GPU file try", try_it},
                 {"GPU file speed", test_speed}};
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
        struct doctor_item item = {.name = NULL, .grade = DOCTOR_UNUSED};
        base_error_clear();
        if ((looks[i].look == try_it && !(e->gpu && e->cufile && e->direct)) ||
            (looks[i].look == test_speed && !(e->gpu && e->direct))) {
            FOUND(&item, "not tried: an item before this one is in the way");
            USE(&item, "see to that first");
        } else {
            looks[i].look(e, &item);
        }
        snprintf(item.label, sizeof(item.label), "%s", looks[i].name);
        tell(e, &item);
    }
}

/* How the process ended before it had told all. */
static void end_of(pid_t pid, bool late, struct doctor_item *item)
{
    int how = 0;
    if (late)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        ;
    snprintf(item->label, sizeof(item->label), "GPU file end");
    item->grade = DOCTOR_UNUSED;
    if (late)
        FOUND(item, "what comes behind the item before this one took over %d s and was ended",
              LIMIT_MS / 1000);
    else if (WIFSIGNALED(how))
        FOUND(item, "what comes behind the item before this one was ended by signal %d (%s)",
              WTERMSIG(how), strsignal(WTERMSIG(how)));
    else
        FOUND(item, "what comes behind the item before this one ended its process with status %d",
              WEXITSTATUS(how));
    USE(item, "the driver or cuFile did it: look into cufile.log and dmesg; leave "
              "transports/gds/enable off until it works");
}

size_t doctor_gpu_examine(int ordinal, const char *path, struct doctor_item *items)
{
    struct examination e = {.ordinal = ordinal, .path = path};
    int ends[2];
    size_t count = 0;
    memset(items, 0, DOCTOR_GPU_ITEMS_MAX * sizeof(*items));
    (void)fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        e.out = ends[1];
        examine(&e);
        _exit(0);
    }
    close(ends[1]);
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), LIMIT_MS);
    bool late = false, open = pid > 0;
    while (open && count + 1 < DOCTOR_GPU_ITEMS_MAX) {
        struct pollfd more = {.fd = ends[0], .events = POLLIN};
        uint64_t now = clock_real_now_ns();
        late = now >= deadline || poll(&more, 1, (int)((deadline - now) / 1000000) + 1) == 0;
        open = !late && read(ends[0], &items[count], sizeof(*items)) == (ssize_t)sizeof(*items);
        count += open;
    }
    close(ends[0]);
    struct doctor_item end = {.name = NULL};
    if (pid > 0)
        end_of(pid, late, &end);
    if (count == 0 || strcmp(items[count - 1].label, "GPU file speed") != 0)
        items[count++] = end;
    for (size_t i = 0; i < count; i++)
        items[i].name = items[i].label;
    return count;
}
