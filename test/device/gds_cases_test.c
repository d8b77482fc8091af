/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with files by cuFile: GPU memory to a file and back, exact whatever its size, its
 * place and the library's manners, and the cases that others met. */
#include "gds_kit.h"

#include <dirent.h>

#include "platform/thread.h"

enum { MIB_ = 1 << 20, GUARD = 0xa7 };

/* Writes [at, at + size) of the GPU's memory to the same place of the file, looks, reads it back to
 * cleared memory. Neighbours are as they were. */
static void there_and_back(struct gds_world *w, uint64_t at, uint64_t size, uint64_t seed)
{
    uint8_t *want = malloc(w->gpu_size);
    kit_fill(want, w->gpu_size, seed);
    kit_put(w->device, 0, w->gpu, want, w->gpu_size);
    gds_look(w, w->host, 0, w->file_size);
    assert_int_equal(gds_one(w, YOLK_WRITE, w->gpu + at, at, size), YOLK_OK);
    memcpy(w->host + at, want + at, size);
    uint8_t *file = malloc(w->file_size);
    gds_look(w, file, 0, w->file_size);
    assert_memory_equal(file, w->host, w->file_size);
    memset(want, GUARD, w->gpu_size);
    kit_put(w->device, 0, w->gpu, want, w->gpu_size);
    assert_int_equal(gds_one(w, YOLK_READ, w->gpu + at, at, size), YOLK_OK);
    memcpy(want + at, file + at, size);
    kit_get(w->device, 0, w->host, w->gpu, w->gpu_size);
    assert_memory_equal(w->host, want, w->gpu_size);
    free(file);
    free(want);
}

/* Interior pointers, blocks cut at either end, more than one slice. */
static void any_place_and_size_is_exact(void **state)
{
    static const uint64_t sizes[] = {1, 511, 4095, 4096, 4097, 8191, 65536, 65537, 200000, 300000};
    static const uint64_t places[] = {0, 1, 4095, 4096, 70001};
    static const char *const manners[] = {"", "set mode direct"};
    (void)state;
    for (size_t m = 0; m < (kit_real_cufile() ? 1 : 2); m++) {
        struct gds_world w = {.slice = 128 << 10}; /* one io of the engine each */
        uint64_t bounced = 0;
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(manners[m]);
        gds_open(&w);
        for (size_t p = 0; p < 5; p++) {
            for (size_t s = 0; s < 10; s++) {
                uint64_t from = places[p], to = from + sizes[s];
                there_and_back(&w, from, sizes[s], p * 100 + s);
                uint64_t first = (from + 4095) / 4096 * 4096, last = to / 4096 * 4096;
                bounced += 2 * (first < last ? sizes[s] - (last - first) : sizes[s]);
            }
        }
        struct yolk_file_figures figures = gds_figures(&w);
        assert_int_equal(figures.bytes_bounced, bounced);
        assert_int_equal(figures.reads, 50);
        assert_int_equal(figures.writes, 50);
        gds_close(&w);
    }
    (void)kit_fake_cufile("reset");
}

/* The GPU's memory at another place in its block than the file's bytes. */
static void places_that_do_not_match_are_exact(void **state)
{
    struct gds_world w = {0};
    uint8_t want[50000];
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    kit_fill(want, sizeof(want), 3);
    for (uint64_t shift = 1; shift < 9000; shift += 997) {
        kit_put(w.device, 0, w.gpu + shift, want, sizeof(want));
        assert_int_equal(gds_one(&w, YOLK_WRITE, w.gpu + shift, 8192 + 10, sizeof(want)), YOLK_OK);
        gds_look(&w, w.host, 8192 + 10, sizeof(want));
        assert_memory_equal(w.host, want, sizeof(want));
        assert_int_equal(gds_one(&w, YOLK_READ, w.gpu + 300000, 8192 + 10, sizeof(want)), YOLK_OK);
        kit_get(w.device, 0, w.host, w.gpu + 300000, sizeof(want));
        assert_memory_equal(w.host, want, sizeof(want));
    }
    gds_close(&w);
}

/* The host's memory goes to the same file, and sees what the GPU's wrote. */
static void host_memory_is_moved_too(void **state)
{
    struct gds_world w = {0};
    uint8_t *host = NULL;
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    assert_int_equal(posix_memalign((void **)&host, 4096, 300000), 0);
    assert_ok(yolk_engine_register(w.engine, host, 300000));
    kit_fill(host, 300000, 8);
    assert_int_equal(gds_one(&w, YOLK_WRITE, host + 5, 4000, 250001), YOLK_OK);
    assert_int_equal(gds_one(&w, YOLK_READ, w.gpu + 4000, 4000, 250001), YOLK_OK);
    kit_get(w.device, 0, w.host, w.gpu + 4000, 250001);
    assert_memory_equal(w.host, host + 5, 250001);
    memset(host, 0, 300000);
    assert_int_equal(gds_one(&w, YOLK_READ, host, 4096, 200000), YOLK_OK);
    assert_memory_equal(host, w.host + 96, 200000);
    assert_ok(yolk_engine_unregister(w.engine, host, 300000));
    free(host);
    gds_close(&w);
}

/* What the library counts, of all GPUs. */
static uint64_t requests_to_cufile(const struct gds_world *w)
{
    const struct cufile *cufile;
    struct cufile_gpu_statistics gpus[CUFILE_STATISTICS_GPUS];
    unsigned count;
    uint64_t all = 0;
    assert_ok(device_cufile(w->device, &cufile));
    if (cufile_gpu_statistics(cufile, gpus, &count) != YOLK_OK)
        return UINT64_MAX;
    for (unsigned i = 0; i < count; i++)
        all += gpus[i].reads + gpus[i].writes;
    return all;
}

/* C52: one request of any size is cut as computed: so many slices, no more. */
static void c52_one_large_request_is_cut_in_slices(void **state)
{
    static const struct {
        uint64_t size, real_only;
    } rows[] = {{16 * MIB_, 0},
                {16 * MIB_ + 4096, 0},
                {100 * MIB_ + 1, 1},
                {UINT64_C(1) * 1024 * MIB_ + 1, 1}};
    (void)state;
    for (size_t r = 0; r < 4; r++) {
        if (rows[r].real_only && !kit_real_cufile())
            continue;
        struct gds_world w = {.file_size = rows[r].size + 4096, .slice = 16 * MIB_};
        (void)kit_fake_cufile("reset");
        gds_open(&w);
        uint64_t blocks = rows[r].size / 4096 * 4096;
        uint64_t before = requests_to_cufile(&w);
        there_and_back(&w, 0, rows[r].size, r);
        uint64_t after = requests_to_cufile(&w);
        /* Each direction; the end of 1 byte is not cuFile's. A real one counts none of a batch. */
        if (!kit_real_cufile())
            assert_int_equal(after - before, 2 * ((blocks + 16 * MIB_ - 1) / (16 * MIB_)));
        printf("FIGURE one request of %llu bytes to the file and back: exact, ok\n",
               (unsigned long long)rows[r].size);
        gds_close(&w);
    }
}

/* C50: as many entries as anybody likes, whatever the library takes at a time. */
static void c50_any_number_of_entries(void **state)
{
    static const uint32_t counts[] = {1, 127, 128, 129, 256, 1000};
    static const struct {
        uint32_t depth;
        const char *manner;
    } rows[] = {{0, ""}, {128, ""}, {128, "set mode direct"}, {128, "set batchmax 32"}, {1, ""}};
    static struct yolk_request requests[1000];
    static struct yolk_task_status tasks[1000];
    (void)state;
    for (size_t r = 0; r < (kit_real_cufile() ? 2 : 5); r++) {
        struct gds_world w = {.file_size = 1000 * 4096, .depth = rows[r].depth};
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(rows[r].manner);
        gds_open(&w);
        kit_fill(w.host, w.gpu_size, r);
        kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
        for (size_t c = 0; c < 6; c++) {
            for (int pass = 0; pass < 2; pass++) {
                for (uint32_t i = 0; i < counts[c]; i++)
                    requests[i] =
                        gds_request_of(&w, pass == 0 ? YOLK_WRITE : YOLK_READ,
                                       w.gpu + (uint64_t)i * 4096, (uint64_t)i * 4096, 4096);
                gds_run(&w, requests, counts[c], tasks);
                for (uint32_t i = 0; i < counts[c]; i++)
                    assert_int_equal(tasks[i].status, YOLK_OK);
                if (pass == 0) {
                    uint8_t *file = malloc(counts[c] * 4096);
                    gds_look(&w, file, 0, counts[c] * 4096);
                    assert_memory_equal(file, w.host, counts[c] * 4096);
                    free(file);
                }
            }
        }
        uint8_t *back = malloc(w.gpu_size);
        kit_get(w.device, 0, back, w.gpu, w.gpu_size);
        assert_memory_equal(back, w.host, w.gpu_size);
        free(back);
        if (!kit_real_cufile())
            assert_true(kit_fake_cufile("count largest") <= (r == 3 ? 32 : r == 2 ? 128 : 64));
        gds_close(&w);
    }
    (void)kit_fake_cufile("reset");
}

static char logged[4096];
static int warnings;

static void listen(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)room;
    if (level > LOG_LEVEL_WARN)
        return;
    warnings++;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof(logged) - used, "%s\n", text);
}

/* C50: a setting that is none is told at the start, once; what the library has not room for too. */
static void c50_a_bad_depth_is_told_at_the_start(void **state)
{
    struct gds_world w = {.depth = 129};
    struct yolk_engine *engine = NULL;
    (void)state;
    (void)kit_fake_cufile("reset");
    assert_status(gds_engine(&w, &engine), YOLK_ERR_INVALID);
    assert_error_text("gds_batch_depth is 129: must be 1 to 128");
    w.depth = 0;
    w.slice = 5000;
    assert_status(gds_engine(&w, &engine), YOLK_ERR_INVALID);
    assert_error_text("gds_slice_bytes is 5000: must be a multiple of 4096");
    if (kit_real_cufile())
        return;
    (void)kit_fake_cufile("set batchmax 32");
    w.slice = 0;
    w.depth = 100;
    logged[0] = '\0';
    warnings = 0;
    base_log_set(listen, NULL);
    gds_open(&w);
    base_log_set(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(logged, "io_batch_depth is 100: cuFile takes batches of at most 32"));
    there_and_back(&w, 0, MIB_, 4);
    gds_close(&w);
    (void)kit_fake_cufile("reset");
}

/* A file that cuFile refuses: once said, then read and written all the same, where that is allowed.
 */
static void goes_without_cufile(const char *fault, const char *reason)
{
    struct gds_world w = {.with_posix = 1};
    char *text = NULL;
    (void)kit_fake_cufile("reset");
    (void)kit_fake_cufile(fault);
    logged[0] = '\0';
    warnings = 0;
    base_log_set(listen, NULL);
    gds_open(&w);
    there_and_back(&w, 4096, 300001, 5);
    there_and_back(&w, 77, 5000, 6);
    base_log_set(NULL, NULL);
    assert_int_equal(warnings, 1);
    if (strstr(logged, reason) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", reason, logged);
    struct yolk_task_status task;
    const struct yolk_request request = gds_request_of(&w, YOLK_READ, w.gpu, 0, 4096);
    gds_run(&w, &request, 1, &task);
    assert_string_equal(task.transport, "posix");
    assert_ok(yolk_engine_describe_route(w.engine, &request, &text));
    assert_non_null(strstr(text, "gds: no: the segment is not served by it"));
    free(text);
    gds_close(&w);
    (void)kit_fake_cufile("reset");
}

/* C53: as on an overlay mount, and as on tmpfs. */
static void c53_a_file_that_cufile_refuses_goes_another_way(void **state)
{
    (void)state;
    if (kit_real_cufile())
        skip();
    goes_without_cufile("fail cuFileHandleRegister 1 5030 0", "CU_FILE_INTERNAL_ERROR (5030)");
    goes_without_cufile("set udev 0", "CU_FILE_HANDLE_NOT_REGISTERED (5027)");
    /* It registers, but moves nothing, or not the right bytes. */
    goes_without_cufile("fail cuFileRead 1 5008 0", "CU_FILE_IO_NOT_SUPPORTED (5008)");
    goes_without_cufile("io 1 short 100; io 2 short 100; io 3 short 100",
                        "cuFile reads other bytes than the system does");
}

/* C54: cuFile whose driver cannot be opened, as in a container without its files. */
static void c54_without_a_driver_it_starts_and_says_why(void **state)
{
    struct gds_world w = {.with_posix = 1};
    char reason[512] = "";
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset; set open 5030");
    gds_open(&w);
    (void)kit_fake_cufile("reset");
    assert_false(yolk_engine_has_transport(w.engine, "gds", reason, sizeof(reason)));
    assert_non_null(strstr(reason, "cuFileDriverOpen: CU_FILE_INTERNAL_ERROR (5030)"));
    there_and_back(&w, 4096, 100000, 5);
    gds_close(&w);
}

static void without(const char *cuda, const char *cufile, const char *reason)
{
    const struct yolk_transport_ops *const all[] = {transport_gds_ops(), transport_posix_ops()};
    struct yolk_engine_options options;
    struct yolk_engine *engine;
    char why[512] = "";
    yolk_engine_options_init(&options);
    options.transports = all;
    options.transport_count = 2;
    gds_libraries(&options.transport);
    if (cuda != NULL)
        options.transport.cuda_library = cuda;
    if (cufile != NULL)
        options.transport.cufile_library = cufile;
    assert_ok(yolk_engine_create(&options, &engine));
    assert_false(yolk_engine_has_transport(engine, "gds", why, sizeof(why)));
    if (strstr(why, reason) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", reason, why);
    assert_ok(yolk_engine_destroy(engine));
}

/* C55: no library; one without batches; no driver. */
static void c55_a_library_that_is_missing_or_old_is_said(void **state)
{
    char old[512];
    (void)state;
    if (kit_real_cufile())
        skip();
    snprintf(old, sizeof(old), "%s", kit_fake_path("libcufile-old.so.0"));
    without(NULL, "/nowhere/libcufile.so.0", "no cuFile: /nowhere/libcufile.so.0");
    without(NULL, old, "this cuFile has no function cuFileBatchIOSetUp");
    without("/nowhere/libcuda.so.1", NULL, "/nowhere/libcuda.so.1");
}

/* C61: 10 allocations, ever other ranges of them: registered once each, and nothing bounced. */
static void c61_sub_slices_register_nothing_more(void **state)
{
    enum { ALLOCATIONS = 10, BYTES = 1 << 20, AT_A_TIME = 500 };
    const unsigned rounds = 200;
    static struct yolk_request requests[AT_A_TIME];
    static struct yolk_task_status tasks[AT_A_TIME];
    struct gds_world w = {.file_size = BYTES};
    uint8_t *memory[ALLOCATIONS];
    struct gds_totals before, after;
    uint64_t seed = 3;
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    gds_totals(&before);
    for (int i = 0; i < ALLOCATIONS; i++) {
        memory[i] = kit_gpu_alloc(w.device, 0, BYTES);
        assert_ok(yolk_engine_register(w.engine, memory[i], BYTES));
        assert_ok(yolk_engine_register(w.engine, memory[i] + 4096, 8192)); /* inside */
    }
    for (unsigned round = 0; round < rounds; round++) { /* 100,000 of them */
        for (uint32_t i = 0; i < AT_A_TIME; i++) {
            uint64_t at = kit_draw(&seed) % (BYTES / 4096) * 4096;
            uint64_t size = 4096 * (1 + kit_draw(&seed) % 2);
            size = size > BYTES - at ? BYTES - at : size;
            requests[i] =
                gds_request_of(&w, kit_draw(&seed) % 2 ? YOLK_WRITE : YOLK_READ,
                               memory[kit_draw(&seed) % ALLOCATIONS] + at,
                               kit_draw(&seed) % ((BYTES - size) / 4096 + 1) * 4096, size);
        }
        gds_run(&w, requests, AT_A_TIME, tasks);
        for (uint32_t i = 0; i < AT_A_TIME; i++)
            assert_int_equal(tasks[i].status, YOLK_OK);
    }
    gds_totals(&after);
    assert_int_equal(after.registrations - before.registrations, ALLOCATIONS);
    assert_int_equal(after.allocations - before.allocations, ALLOCATIONS);
    struct yolk_file_figures figures = gds_figures(&w);
    assert_int_equal(figures.bytes_bounced, 0);
    assert_int_equal(figures.bytes_unregistered, 0);
    printf("FIGURE registrations for %d allocations in %u operations: %d, ok\n", ALLOCATIONS,
           rounds * AT_A_TIME, ALLOCATIONS);
    for (int i = 0; i < ALLOCATIONS; i++) {
        assert_ok(yolk_engine_unregister(w.engine, memory[i] + 4096, 8192));
        assert_ok(yolk_engine_unregister(w.engine, memory[i], BYTES));
        kit_gpu_free(w.device, 0, memory[i]);
    }
    gds_close(&w);
}

/* C64: the mode is what a transfer got, and is said with its reason. */
static void c64_the_mode_is_what_was_seen(void **state)
{
    struct gds_world w = {0};
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    struct yolk_file_figures figures = gds_figures(&w);
    if (kit_real_cufile())
        printf("%s: %s: %s\n", figures.path, figures.mode, figures.reason);
    if (!kit_real_cufile()) {
        assert_string_equal(figures.mode, "compatibility");
        assert_non_null(strstr(figures.reason, "nvidia-fs is not loaded; cuFile counted"));
    }
    there_and_back(&w, 0, 100000, 1);
    figures = gds_figures(&w);
    assert_int_equal(figures.bytes_written, 100000);
    assert_int_equal(figures.bytes_read, 100000);
    gds_close(&w);
    if (kit_real_cufile())
        return;
    (void)kit_fake_cufile("set mode direct");
    gds_open(&w);
    figures = gds_figures(&w);
    assert_string_equal(figures.mode, "direct");
    assert_non_null(strstr(figures.reason, "by nvidia-fs, 0 by P2P DMA and none by posix"));
    gds_close(&w);
    /* nvidia-fs is there, but the library counts nothing: nothing is claimed. */
    (void)kit_fake_cufile("set mode direct; fail cuFileStatsStart 1 5011 0");
    gds_open(&w);
    figures = gds_figures(&w);
    assert_string_equal(figures.mode, "compatibility");
    assert_non_null(strstr(figures.reason, "cannot be proved"));
    gds_close(&w);
    (void)kit_fake_cufile("reset");
}

/* Only what the disk and the GPU move between each other is taken where no buffer may be between.
 */
static void strict_requests_are_refused_with_the_reason(void **state)
{
    struct gds_world w = {0};
    struct yolk_task_status task;
    (void)state;
    if (kit_real_cufile())
        skip();
    for (int direct = 0; direct < 2; direct++) {
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(direct ? "set mode direct" : "");
        gds_open(&w);
        struct yolk_request request = gds_request_of(&w, YOLK_WRITE, w.gpu + 8192, 4096, 200704);
        request.flags = YOLK_REQUEST_DIRECT;
        gds_run(&w, &request, 1, &task);
        assert_int_equal(task.status, direct ? YOLK_OK : YOLK_ERR_UNSUPPORTED);
        for (int what = 0; what < 3; what++) {
            char *text = NULL;
            struct yolk_request cut = request;
            cut.offset += what == 0;
            cut.size -= what == 1;
            cut.local = w.gpu + 8192 + (what == 2);
            gds_run(&w, &cut, 1, &task);
            assert_int_equal(task.status, YOLK_ERR_UNSUPPORTED);
            assert_ok(yolk_engine_describe_route(w.engine, &cut, &text));
            const char *reason = direct ? "since not all are multiples of 4096"
                                        : "cuFile is in compatibility mode for ";
            if (strstr(text, reason) == NULL)
                fail_msg("\"%s\" is not in \"%s\"", reason, text);
            free(text);
        }
        gds_close(&w);
    }
    (void)kit_fake_cufile("reset");
}

/* C65: what was written through the page cache is read by cuFile, and the other way round. */
static void c65_the_newest_bytes_are_read(void **state)
{
    struct gds_world w = {0};
    static uint8_t bytes[65536];
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    for (int i = 0; i < 20; i++) {
        kit_fill(bytes, sizeof(bytes), 1000 + i);
        assert_int_equal(pwrite(w.fd, bytes, sizeof(bytes), 4096), sizeof(bytes));
        assert_int_equal(gds_one(&w, YOLK_READ, w.gpu, 4096, sizeof(bytes)), YOLK_OK);
        kit_get(w.device, 0, w.host, w.gpu, sizeof(bytes));
        assert_memory_equal(w.host, bytes, sizeof(bytes));
        kit_fill(bytes, sizeof(bytes), 2000 + i);
        kit_put(w.device, 0, w.gpu, bytes, sizeof(bytes));
        assert_int_equal(gds_one(&w, YOLK_WRITE, w.gpu, 4096, sizeof(bytes)), YOLK_OK);
        gds_look(&w, w.host, 4096, sizeof(bytes));
        assert_memory_equal(w.host, bytes, sizeof(bytes));
    }
    gds_close(&w);
}

/* Read only: by one read it is tried, nothing is written, and writes are refused. */
static void a_file_open_for_reading_is_not_written(void **state)
{
    struct gds_world w = {.read_only = 1};
    struct stat before, after;
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    assert_int_equal(fstat(w.fd, &before), 0);
    assert_int_equal(gds_one(&w, YOLK_READ, w.gpu, 0, 100000), YOLK_OK);
    assert_int_equal(gds_one(&w, YOLK_WRITE, w.gpu, 0, 4096), YOLK_ERR_ACCESS);
    assert_int_equal(fstat(w.fd, &after), 0);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    gds_close(&w);
}

/* ---- one at a time ---- */

/* How often the thread that calls cuFile has gone to sleep; -1: there is none of that name. */
static long sleeps_of_the_worker(void)
{
    char path[300], line[128];
    long sleeps = -1;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task = readdir(tasks); task != NULL && sleeps < 0; task = readdir(tasks)) {
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "re");
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            ours = ours || strcmp(line, "Name:\tyolk-gds-0\n") == 0;
            if (ours)
                (void)sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
        }
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
    return sleeps;
}

/* And no more calls than a bare loop has: one submission and one look, where all is over by then;
 * nothing for the GPU. */
static void calls_for_one_at_a_time(struct gds_world *w, int requests)
{
    static const char *const names[] = {"cuFileBatchIOSubmit", "cuFileBatchIOGetStatus"};
    static const char *const none[] = {"cuLaunchKernel", "cuEventRecord", "cuMemcpyBatchAsync_v2",
                                       "cuMemcpyAsync", "cuStreamSynchronize"};
    long calls[2] = {0, 0}, others = 0;
    char text[64];
    if (kit_real_cufile())
        return;
    (void)kit_fake_cufile("reset");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof(text), "calls %s", names[i]);
            calls[i] += (round == 0 ? -1 : 1) * kit_fake_cufile(text);
        }
        for (int i = 0; i < 5; i++) {
            snprintf(text, sizeof(text), "calls %s", none[i]);
            others += (round == 0 ? -1 : 1) * kit_fake(text);
        }
        for (int i = 0; i < requests && round == 0; i++)
            assert_int_equal(gds_one(w, YOLK_READ, w->gpu, 0, 64 << 10), YOLK_OK);
    }
    printf("FIGURE of one request at a time: %.2f submissions, %.2f looks\n",
           (double)calls[0] / requests, (double)calls[1] / requests);
    assert_int_equal(calls[0], requests);
    assert_int_equal(calls[1], requests);
    assert_int_equal(others, 0);
}

/* A caller that waits for each request waits for cuFile, not for the sleep of the thread that asks
 * it: that looks again at once, where there is another processor. */
static void one_at_a_time_is_waited_for_awake(void **state)
{
    enum { REQUESTS = 200, LOOKS = 20 };
    struct gds_world w = {.slice = 64 << 10};
    char command[32];
    (void)state;
    if (thread_cpu_count() < 2)
        skip();
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    assert_int_equal(gds_one(&w, YOLK_READ, w.gpu, 0, 64 << 10), YOLK_OK);
    snprintf(command, sizeof(command), "set delay %d", LOOKS);
    (void)kit_fake_cufile(command);
    long before = sleeps_of_the_worker();
    assert_true(before >= 0);
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(gds_one(&w, YOLK_READ, w.gpu, 0, 64 << 10), YOLK_OK);
    double each = (double)(sleeps_of_the_worker() - before) / REQUESTS;
    printf("FIGURE sleeps of cuFile's thread for one request at a time: %.2f\n", each);
    calls_for_one_at_a_time(&w, REQUESTS);
    assert_true(kit_real_cufile() || each < LOOKS / 2);
    (void)kit_fake_cufile("reset");
    gds_close(&w);
}

/* ---- two ways ---- */

static bool tells(struct gds_world *w, enum yolk_opcode opcode, const char *what)
{
    char *text;
    const struct yolk_request request = gds_request_of(w, opcode, w->gpu, 0, w->gpu_size);
    assert_ok(yolk_engine_describe_route(w->engine, &request, &text));
    bool found = strstr(text, what) != NULL;
    free(text);
    return found;
}

static bool counts(struct gds_world *w, const char *line)
{
    char *text;
    assert_ok(yolk_engine_metrics(w->engine, &text));
    bool found = strstr(text, line) != NULL;
    free(text);
    return found;
}

/* In compatibility mode cuFile copies through the host's memory as the engine does, so the faster
 * of the two has the bytes, as measured, and each byte is right whichever it is. */
static void c63_the_faster_way_is_taken_where_both_copy(void **state)
{
    static const char chosen[] =
        "both copy through the host's memory; the faster one is taken: gds ";
    struct gds_world w = {.file_size = 8 << 20, .slice = 1 << 20, .with_posix = 1};
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    assert_true(tells(&w, YOLK_WRITE, chosen) && tells(&w, YOLK_WRITE, "not measured yet: gds\n"));
    (void)kit_fake_cufile("set delay 300"); /* a cuFile that is slow */
    uint8_t *file = malloc(w.file_size);
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), 4 * WAIT_MS), rounds = 0;
    bool staged = false;
    while (!staged && (kit_real_cufile() ? rounds < 64 : clock_real_now_ns() < deadline)) {
        kit_fill(w.host, w.gpu_size, rounds);
        kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
        assert_int_equal(gds_one(&w, YOLK_WRITE, w.gpu, 0, w.gpu_size), YOLK_OK);
        gds_look(&w, file, 0, w.file_size);
        assert_memory_equal(file, w.host, w.file_size);
        staged = tells(&w, YOLK_WRITE, "GB/s: posix\n");
        rounds++;
    }
    free(file);
    if (!kit_real_cufile()) {
        assert_true(staged);
        assert_true(counts(&w, "yolk_engine_way_changes_total{"));
    } else {
        printf("cuFile or host memory: %s after %llu rounds\n", staged ? "host memory" : "cuFile",
               (unsigned long long)rounds);
    }
    assert_true(counts(&w, "way=\"staged\"} "));
    assert_true(tells(&w, YOLK_READ, "not measured yet: gds\n")); /* reads are by themselves */
    /* What asks for one way gets it. */
    struct yolk_request request = gds_request_of(&w, YOLK_WRITE, w.gpu, 0, w.gpu_size);
    uint64_t before = gds_figures(&w).bytes_written;
    struct yolk_task_status task;
    request.hint = "gds";
    gds_run(&w, &request, 1, &task);
    assert_int_equal(task.status, YOLK_OK);
    assert_int_equal(gds_figures(&w).bytes_written - before, w.gpu_size);
    (void)kit_fake_cufile("reset");
    gds_close(&w);
}

/* Bytes that go directly never leave that way, and without another one there is no choice. */
static void where_one_way_is_direct_or_the_only_one_it_is_taken(void **state)
{
    static const char two[] = "both copy through the host's memory";
    (void)state;
    if (kit_real_cufile())
        skip();
    for (int direct = 0; direct < 2; direct++) {
        struct gds_world w = {.file_size = 8 << 20, .slice = 1 << 20, .with_posix = direct};
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(direct ? "set mode direct; set delay 40" : "set delay 40");
        gds_open(&w);
        for (int i = 0; i < 12; i++)
            assert_int_equal(gds_one(&w, YOLK_WRITE, w.gpu, 0, w.gpu_size), YOLK_OK);
        assert_int_equal(gds_figures(&w).bytes_written, 12 * w.gpu_size);
        assert_false(tells(&w, YOLK_WRITE, two) || counts(&w, "yolk_engine_way_"));
        (void)kit_fake_cufile("reset");
        gds_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_place_and_size_is_exact),
        cmocka_unit_test(places_that_do_not_match_are_exact),
        cmocka_unit_test(host_memory_is_moved_too),
        cmocka_unit_test(c50_any_number_of_entries),
        cmocka_unit_test(c50_a_bad_depth_is_told_at_the_start),
        cmocka_unit_test(c52_one_large_request_is_cut_in_slices),
        cmocka_unit_test(c53_a_file_that_cufile_refuses_goes_another_way),
        cmocka_unit_test(c54_without_a_driver_it_starts_and_says_why),
        cmocka_unit_test(c55_a_library_that_is_missing_or_old_is_said),
        cmocka_unit_test(c61_sub_slices_register_nothing_more),
        cmocka_unit_test(c64_the_mode_is_what_was_seen),
        cmocka_unit_test(c65_the_newest_bytes_are_read),
        cmocka_unit_test(strict_requests_are_refused_with_the_reason),
        cmocka_unit_test(a_file_open_for_reading_is_not_written),
        cmocka_unit_test(one_at_a_time_is_waited_for_awake),
        cmocka_unit_test(c63_the_faster_way_is_taken_where_both_copy),
        cmocka_unit_test(where_one_way_is_direct_or_the_only_one_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
