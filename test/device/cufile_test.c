/* SPDX-License-Identifier: Apache-2.0 */
/* The table of cuFile, and what its calls do, on the fake as on the real library. */
#include "kit.h"

#include <fcntl.h>
#include <unistd.h>

#include "device/cufile.h"

enum { SLICE = 65536 };

struct world {
    struct device *device;
    const struct cufile *cufile;
    int fd;
    cufile_handle file;
    uint8_t *gpu;
    size_t size;
    struct device_scope scope;
};

static void open_world(struct world *w, size_t size)
{
    struct cufile_descriptor descriptor = {.type = CUFILE_HANDLE_FD};
    (void)kit_fake("reset");
    (void)kit_fake_cufile("reset");
    w->device = kit_open(NULL);
    w->size = size;
    int status = device_cufile(w->device, &w->cufile);
    if (status != YOLK_OK && kit_real_cufile()) {
        printf("SKIP: %s\n", yolk_last_error());
        exit(77);
    }
    assert_ok(status);
    w->gpu = kit_gpu_alloc(w->device, 0, size);
    assert_ok(device_enter(w->device, 0, &w->scope));
    assert_int_equal(w->cufile->driver_open().error, CUFILE_OK);
    char path[512];
    w->fd = kit_file(path);
    descriptor.handle.fd = w->fd;
    struct cufile_error error = w->cufile->handle_register(&w->file, &descriptor);
    unlink(path);
    if (error.error != CUFILE_OK && kit_real_cufile()) {
        (void)cufile_fail(error, "cuFileHandleRegister");
        printf("SKIP: %s\n", yolk_last_error());
        exit(77);
    }
    assert_int_equal(error.error, CUFILE_OK);
    assert_int_equal(w->cufile->buf_register(w->gpu, size, 0).error, CUFILE_OK);
}

static void close_world(struct world *w)
{
    assert_int_equal(w->cufile->buf_deregister(w->gpu).error, CUFILE_OK);
    w->cufile->handle_deregister(w->file);
    close(w->fd);
    assert_int_equal(w->cufile->driver_close().error, CUFILE_OK);
    device_leave(w->device, &w->scope);
    kit_gpu_free(w->device, 0, w->gpu);
    kit_close(w->device);
    assert_int_equal(kit_fake_cufile("count handles") + kit_fake_cufile("count buffers") +
                         kit_fake_cufile("count batches"),
                     0);
}

/* C55: no library; one with another name; one without the newer functions. */
static void c55_a_missing_library_or_function_is_named(void **state)
{
    struct cufile cufile;
    struct device_report report;
    (void)state;
    assert_status(cufile_load("/nowhere/libcufile.so.0", &cufile), YOLK_ERR_UNSUPPORTED);
    assert_error_text("no cuFile: /nowhere/libcufile.so.0: cannot open shared object file");
    if (kit_real_cufile())
        return;
    assert_status(cufile_load(kit_fake_path("libcuda.so.1"), &cufile), YOLK_ERR_UNSUPPORTED);
    assert_error_text("has no function cuFileDriverOpen");
    assert_ok(cufile_load(kit_fake_path("libcufile-old.so.0"), &cufile));
    assert_string_equal(cufile.missing[CUFILE_BATCHES], "cuFileBatchIOSetUp");
    assert_string_equal(cufile.missing[CUFILE_STATISTICS], "cuFileSetStatsLevel");
    assert_null(cufile.missing[CUFILE_CORE]);
    assert_non_null(cufile.driver_close); /* exported as _v2 */
    struct cufile_gpu_statistics none[CUFILE_STATISTICS_GPUS];
    unsigned count;
    assert_status(cufile_gpu_statistics(&cufile, none, &count), YOLK_ERR_UNSUPPORTED);
    assert_error_text("has no function cuFileSetStatsLevel");
    char path[512];
    snprintf(path, sizeof(path), "%s", kit_fake_path("libcufile-old.so.0"));
    device_describe(&(struct device_options){.cuda_library = "/nowhere", .cufile_library = path},
                    &report);
    assert_false(report.cufile);
    assert_non_null(strstr(report.cufile_found, "without cuFileBatchIOSetUp"));
}

static void errors_have_their_names(void **state)
{
    (void)state;
    assert_string_equal(cufile_error_name(5027), "CU_FILE_HANDLE_NOT_REGISTERED");
    assert_string_equal(cufile_error_name(-5036), "CU_FILE_GPU_MEMORY_PINNING_FAILED");
    assert_string_equal(cufile_error_name(5021), "unknown error");
    assert_status(cufile_fail((struct cufile_error){5011, 201}, "cuFileBufRegister of %d", 7),
                  YOLK_ERR_IO);
    assert_string_equal(yolk_last_error(), "cuFileBufRegister of 7: CU_FILE_CUDA_DRIVER_ERROR "
                                           "(5011), error 201 of the CUDA driver");
    assert_status(cufile_fail((struct cufile_error){5007, 0}, "x"), YOLK_ERR_UNSUPPORTED);
}

/* Seen: a file without a name cannot be registered, for the library opens it again by its name. */
static void a_file_without_a_name_is_refused(void **state)
{
    struct world w;
    cufile_handle handle;
    char path[512];
    (void)state;
    open_world(&w, 65536);
    struct cufile_descriptor descriptor = {.type = CUFILE_HANDLE_FD, .handle.fd = kit_file(path)};
    unlink(path);
    assert_int_equal(w.cufile->handle_register(&handle, &descriptor).error, CUFILE_ERR_NO_NEW_FD);
    close(descriptor.handle.fd);
    close_world(&w);
}

static void single_transfers_are_exact(void **state)
{
    enum { SIZE = 1 << 20 };
    static uint8_t out[SIZE], back[SIZE];
    struct world w;
    struct cufile_properties properties;
    (void)state;
    open_world(&w, SIZE);
    memset(&properties, 0, sizeof(properties));
    assert_int_equal(w.cufile->driver_get_properties(&properties).error, CUFILE_OK);
    printf("cuFile %d: nvidia-fs %u.%u, flags 0x%x 0x%x 0x%x, direct I/O up to %zu KiB, batches of "
           "%u\n",
           w.cufile->version, properties.nvfs_major, properties.nvfs_minor, properties.status_flags,
           properties.control_flags, properties.features, properties.direct_io_kib_max,
           properties.batch_max);
    assert_true(properties.batch_max > 0);
    kit_fill(out, SIZE, 1);
    kit_put(w.device, 0, w.gpu, out, SIZE);
    assert_int_equal(w.cufile->write(w.file, w.gpu, SIZE, 0, 0), SIZE);
    memset(back, 0, SIZE);
    kit_put(w.device, 0, w.gpu, back, SIZE);
    /* The second half to the first place, by the base and an offset. */
    assert_int_equal(w.cufile->read(w.file, w.gpu, SIZE / 2, SIZE / 2, 0), SIZE / 2);
    assert_int_equal(w.cufile->read(w.file, w.gpu, SIZE / 2, 0, SIZE / 2), SIZE / 2);
    kit_get(w.device, 0, back, w.gpu, SIZE);
    assert_memory_equal(back, out + SIZE / 2, SIZE / 2);
    assert_memory_equal(back + SIZE / 2, out, SIZE / 2);
    /* At the end of the file: short, then nothing. */
    ssize_t at_end = w.cufile->read(w.file, w.gpu, 8192, SIZE - 4096, 0);
    ssize_t behind = w.cufile->read(w.file, w.gpu, 4096, SIZE + 4096, 0);
    printf("a read over the end of the file answers %zd, one behind it %zd\n", at_end, behind);
    assert_int_equal(at_end, 4096);
    assert_true(behind <= 0);
    close_world(&w);
}

static void prepare(struct world *w, struct cufile_io *ios, unsigned count, int opcode)
{
    memset(ios, 0, count * sizeof(*ios));
    for (unsigned i = 0; i < count; i++)
        ios[i] = (struct cufile_io){.mode = CUFILE_BATCH,
                                    .buffer = w->gpu,
                                    .file_offset = (off_t)i * SLICE,
                                    .buffer_offset = (off_t)(count - 1 - i) * SLICE,
                                    .size = SLICE,
                                    .file = w->file,
                                    .opcode = opcode,
                                    .cookie = (void *)(uintptr_t)(i + 1)};
}

/* Each entry is told once as complete. */
static void drive(struct world *w, cufile_batch batch, struct cufile_io *ios, unsigned count)
{
    struct cufile_event events[256];
    unsigned left = count;
    bool told[256] = {false};
    struct cufile_error error = w->cufile->batch_submit(batch, count, ios, 0);
    assert_int_equal(error.error, CUFILE_OK);
    while (left > 0) {
        unsigned found = count;
        memset(events, 0, sizeof(events));
        assert_int_equal(w->cufile->batch_get_status(batch, 0, &found, events, NULL).error,
                         CUFILE_OK);
        assert_true(found <= count);
        for (unsigned i = 0; i < found; i++) {
            uintptr_t cookie = (uintptr_t)events[i].cookie;
            if (events[i].status == CUFILE_WAITING || events[i].status == CUFILE_PENDING)
                continue;
            assert_int_equal(events[i].status, CUFILE_COMPLETE);
            assert_int_equal(events[i].result, SLICE);
            assert_true(cookie >= 1 && cookie <= count);
            if (told[cookie - 1]) {
                printf("entry %zu is told again\n", (size_t)cookie);
                continue;
            }
            told[cookie - 1] = true;
            left--;
        }
    }
}

/* C50, of the library: as many entries as it says, and one more is an error. Seen of 1.15.1: in
 * compatibility mode a submission of more than 64 entries never returns, so those go in direct
 * mode. */
static void c50_batches_up_to_the_limit_are_exact(void **state)
{
    enum { MAX = 128 };
    static const unsigned counts[] = {1, 2, 64, 127, 128};
    static uint8_t out[MAX * SLICE], back[MAX * SLICE];
    static struct cufile_io ios[MAX + 1];
    struct world w;
    cufile_batch batch, wrong;
    (void)state;
    open_world(&w, sizeof(out));
    assert_int_equal(w.cufile->batch_set_up(&batch, MAX).error, CUFILE_OK);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        unsigned count = counts[c];
        if (count > 64 && kit_real_cufile())
            break;
        (void)kit_fake_cufile("reset; set order lifo; set sparse 7; set delay 2; io 1 twice; "
                              "set late 1");
        if (count > 64)
            (void)kit_fake_cufile("set mode direct");
        kit_fill(out, sizeof(out), count);
        kit_put(w.device, 0, w.gpu, out, sizeof(out));
        prepare(&w, ios, count, CUFILE_WRITE);
        drive(&w, batch, ios, count);
        memset(back, 0, sizeof(back));
        kit_put(w.device, 0, w.gpu, back, sizeof(back));
        prepare(&w, ios, count, CUFILE_READ);
        drive(&w, batch, ios, count);
        kit_get(w.device, 0, back, w.gpu, count * (size_t)SLICE);
        assert_memory_equal(back, out, count * (size_t)SLICE);
    }
    struct cufile_error set_up = w.cufile->batch_set_up(&wrong, MAX + 1);
    printf("a set-up of %d answers %d\n", MAX + 1, set_up.error);
    if (set_up.error == CUFILE_OK)
        w.cufile->batch_destroy(wrong);
    prepare(&w, ios, MAX + 1, CUFILE_READ);
    for (unsigned i = 0; i <= MAX; i++) /* within the buffer, if it were taken */
        ios[i].buffer_offset = 0;
    struct cufile_error submit = w.cufile->batch_submit(batch, MAX + 1, ios, 0);
    printf("a submission of %d in a batch of %d answers %d\n", MAX + 1, MAX, submit.error);
    assert_int_not_equal(submit.error, CUFILE_OK);
    w.cufile->batch_destroy(batch);
    (void)kit_fake_cufile("reset");
    close_world(&w);
}

static void statistics_prove_the_way(void **state)
{
    static uint8_t out[4 * SLICE];
    static const char *const versions[] = {"set version 1150", "set version 1200"};
    struct cufile_gpu_statistics before[CUFILE_STATISTICS_GPUS], after[CUFILE_STATISTICS_GPUS];
    unsigned count;
    struct world w;
    (void)state;
    for (int i = 0; i < (kit_real_cufile() ? 1 : 4); i++) {
        bool direct = i % 2 == 1;
        (void)kit_fake_cufile(versions[i / 2]);
        open_world(&w, sizeof(out));
        if (direct)
            (void)kit_fake_cufile("set mode direct");
        struct cufile_error error = w.cufile->set_stats_level(3);
        printf("statistics: level %d", error.error);
        printf(", start %d\n", w.cufile->stats_start().error);
        assert_ok(cufile_gpu_statistics(w.cufile, before, &count));
        printf("statistics of %u GPUs\n", count);
        assert_int_equal(w.cufile->write(w.file, w.gpu, sizeof(out), 0, 0), sizeof(out));
        assert_ok(cufile_gpu_statistics(w.cufile, after, &count));
        uint64_t by_nvfs = after[0].nvfs_writes - before[0].nvfs_writes;
        uint64_t by_posix = after[0].posix_writes - before[0].posix_writes;
        uint64_t by_p2p = after[0].p2p_writes - before[0].p2p_writes;
        printf("one write of %zu: nvfs %d, p2p %d, posix %d\n", sizeof(out), (int)by_nvfs,
               (int)by_p2p, (int)by_posix);
        if (!kit_real_cufile()) {
            assert_int_equal(by_nvfs, direct);
            assert_int_equal(by_posix, !direct);
        }
        close_world(&w);
    }
    (void)kit_fake_cufile("set version 1150");
}

/* What the fake takes for true of odd requests; the real library's answers are printed. */
static void odd_requests(void **state)
{
    static uint8_t host[2 * SLICE];
    struct world w;
    (void)state;
    open_world(&w, 4 * SLICE);
    printf("registering a buffer again answers %d\n",
           w.cufile->buf_register(w.gpu, w.size, 0).error);
    kit_fill(host, sizeof(host), 3);
    kit_put(w.device, 0, w.gpu, host, sizeof(host));
    /* Seen: an interior pointer as the base, an unaligned place, host memory: all taken. */
    ssize_t interior = w.cufile->write(w.file, w.gpu + 4096, SLICE, 0, 0);
    ssize_t unaligned = w.cufile->write(w.file, w.gpu, 1000, SLICE + 77, 13);
    ssize_t from_host = w.cufile->write(w.file, host, SLICE, 2 * SLICE, 0);
    printf("an interior pointer answers %zd, an unaligned place %zd, host memory %zd\n", interior,
           unaligned, from_host);
    assert_int_equal(interior, SLICE);
    assert_int_equal(unaligned, 1000);
    assert_int_equal(from_host, SLICE);
    static uint8_t back[3 * SLICE];
    assert_int_equal(w.cufile->read(w.file, w.gpu, sizeof(back), 0, 0), sizeof(back));
    kit_get(w.device, 0, back, w.gpu, sizeof(back));
    assert_memory_equal(back, host + 4096, SLICE);
    assert_memory_equal(back + SLICE + 77, host + 13, 1000);
    assert_memory_equal(back + 2 * SLICE, host, SLICE);
    close_world(&w);
}

/* Polls until `count` entries are told, or nothing comes for a while. */
static unsigned collect(struct world *w, cufile_batch batch, unsigned count,
                        struct cufile_event *out, int *error)
{
    unsigned told = 0;
    *error = CUFILE_OK;
    for (int quiet = 0; told < count && quiet < 20; quiet++) {
        struct cufile_event events[16];
        unsigned found = 16;
        memset(events, 0, sizeof(events));
        struct cufile_error answer = w->cufile->batch_get_status(batch, 0, &found, events, NULL);
        if (answer.error != CUFILE_OK)
            *error = answer.error;
        for (unsigned i = 0; i < found && told < count; i++) {
            if (events[i].cookie != NULL && events[i].status != CUFILE_PENDING &&
                events[i].status != CUFILE_WAITING) {
                out[told++] = events[i];
                quiet = 0;
            }
        }
    }
    return told;
}

/* S4: cancel is not what it says: nothing is told of what it cancels, and the bytes move. On the
 * fake only, for the next status call of 1.15.1 may end the process by an assertion. */
static void a_cancel_silences_and_stops_nothing(void **state)
{
    static _Alignas(4096) uint8_t out[8 * SLICE], back[8 * SLICE];
    static struct cufile_io ios[8];
    struct cufile_event events[16];
    struct world w;
    cufile_batch batch;
    int error;
    (void)state;
    if (kit_real_cufile())
        skip();
    open_world(&w, sizeof(out));
    kit_fill(out, sizeof(out), 8);
    kit_put(w.device, 0, w.gpu, out, sizeof(out));
    assert_int_equal(w.cufile->batch_set_up(&batch, 8).error, CUFILE_OK);
    prepare(&w, ios, 8, CUFILE_WRITE);
    assert_int_equal(w.cufile->batch_submit(batch, 8, ios, 0).error, CUFILE_OK);
    assert_int_equal(w.cufile->batch_cancel(batch).error, CUFILE_OK);
    assert_int_equal(collect(&w, batch, 8, events, &error), 0);
    for (int i = 0; i < 8; i++) /* the file's slices are in the buffer's reverse order */
        assert_int_equal(pread(w.fd, back + (7 - i) * SLICE, SLICE, (off_t)i * SLICE), SLICE);
    assert_memory_equal(back, out, sizeof(out));
    prepare(&w, ios, 2, CUFILE_WRITE); /* it goes on */
    assert_int_equal(w.cufile->batch_submit(batch, 2, ios, 0).error, CUFILE_OK);
    assert_int_equal(collect(&w, batch, 2, events, &error), 2);
    w.cufile->batch_destroy(batch);
    close_world(&w);
}

/* S7, S8 and S9; on the fake only, for the same reason. */
static void failures_look_as_they_do(void **state)
{
    static struct cufile_io ios[8];
    struct cufile_event events[16];
    struct world w;
    char path[512];
    cufile_batch batch;
    cufile_handle readable;
    int error;
    (void)state;
    if (kit_real_cufile())
        skip();
    open_world(&w, 8 * SLICE);
    assert_int_equal(w.cufile->batch_set_up(&batch, 8).error, CUFILE_OK);
    prepare(&w, ios, 3, CUFILE_WRITE);
    ios[1].size = 0;
    assert_int_equal(w.cufile->batch_submit(batch, 3, ios, 0).error, CUFILE_OK);
    assert_int_equal(collect(&w, batch, 3, events, &error), 2);
    assert_int_equal(error, CUFILE_OK);

    int writer = kit_file(path);
    struct cufile_descriptor descriptor = {.type = CUFILE_HANDLE_FD};
    descriptor.handle.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (descriptor.handle.fd < 0)
        descriptor.handle.fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(w.cufile->handle_register(&readable, &descriptor).error, CUFILE_OK);
    unlink(path);
    prepare(&w, ios, 3, CUFILE_WRITE);
    ios[1].file = readable;
    struct cufile_error submit = w.cufile->batch_submit(batch, 3, ios, 0);
    assert_int_equal(submit.error,
                     w.cufile->version < 1200 ? CUFILE_ERR_BATCH_SUBMIT : CUFILE_ERR_OPEN_FLAG);
    assert_int_equal(collect(&w, batch, 3, events, &error), 0);
    w.cufile->handle_deregister(readable);
    close(descriptor.handle.fd);
    close(writer);

    /* Memory that is none: the call that asks fails, what is well is told, and the batch goes on.
     */
    prepare(&w, ios, 2, CUFILE_WRITE);
    ios[1].buffer = (void *)(uintptr_t)4096;
    ios[1].buffer_offset = 0;
    assert_int_equal(w.cufile->batch_submit(batch, 2, ios, 0).error, CUFILE_OK);
    unsigned told = collect(&w, batch, 2, events, &error);
    assert_int_equal(error, CUFILE_ERR_IO);
    assert_int_equal(told, w.cufile->version < 1200 ? 1 : 2);
    for (unsigned i = 0; i < told; i++)
        assert_int_equal(events[i].status,
                         (uintptr_t)events[i].cookie == 1 ? CUFILE_COMPLETE : CUFILE_FAILED);
    prepare(&w, ios, 2, CUFILE_WRITE);
    assert_int_equal(w.cufile->batch_submit(batch, 2, ios, 0).error, CUFILE_OK);
    assert_int_equal(collect(&w, batch, 2, events, &error), 2);
    w.cufile->batch_destroy(batch);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c55_a_missing_library_or_function_is_named),
        cmocka_unit_test(errors_have_their_names),
        cmocka_unit_test(a_file_without_a_name_is_refused),
        cmocka_unit_test(single_transfers_are_exact),
        cmocka_unit_test(c50_batches_up_to_the_limit_are_exact),
        cmocka_unit_test(statistics_prove_the_way),
        cmocka_unit_test(odd_requests),
        cmocka_unit_test(a_cancel_silences_and_stops_nothing),
        cmocka_unit_test(failures_look_as_they_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
