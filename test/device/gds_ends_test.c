/* SPDX-License-Identifier: Apache-2.0 */
/* How requests by cuFile end when something fails, is canceled or late, and how processes end that
 * use it. What is told to be over does not touch its memory any more. */
#include "gds_kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SLICE = 64 << 10, GUARD = 0x3c };

static uint64_t now_ms(void)
{
    return clock_real_now_ns() / CLOCK_NS_PER_MS;
}

/* The GPU's memory has the guard pattern, and keeps it while the library is asked on and on. */
static void memory_stays_quiet(const struct gds_world *w, uint8_t *memory, size_t size)
{
    uint8_t *bytes = malloc(size);
    memset(bytes, GUARD, size);
    kit_put(w->device, 0, memory, bytes, size);
    (void)kit_fake_cufile("set delay 0; hold 0; late"); /* what is held or late comes now */
    for (int i = 0; i < (kit_real_cufile() ? 20 : 3); i++)
        assert_int_equal(gds_one(w, YOLK_READ, w->gpu + w->gpu_size - SLICE, 0, SLICE), YOLK_OK);
    kit_get(w->device, 0, bytes, memory, size);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(bytes[i], GUARD);
    free(bytes);
}

/* One entry of many fails, early, in the middle, late, in both versions' way of telling it: that
 * request alone fails, and once it is over its memory is quiet. */
static void a_failed_request_is_quiet_and_alone(void **state)
{
    static const char *const versions[] = {"set version 1150", "set version 1200"};
    (void)state;
    if (kit_real_cufile())
        skip();
    for (int v = 0; v < 2; v++) {
        for (int n = 1; n <= 8; n += 3) {
            struct gds_world w = {.slice = SLICE};
            struct yolk_request requests[4];
            struct yolk_task_status tasks[4]; /* no two side by side, which would be packed */
            char command[64];
            unsigned failed = 0, which = 0;
            (void)kit_fake_cufile("reset");
            (void)kit_fake_cufile(versions[v]);
            gds_open(&w);
            snprintf(command, sizeof(command), "set delay 2; io %d error", n);
            (void)kit_fake_cufile(command);
            for (unsigned i = 0; i < 4; i++)
                requests[i] =
                    gds_request_of(&w, YOLK_READ, w.gpu + i * 3 * SLICE, i * 3 * SLICE, 2 * SLICE);
            uint64_t begun = now_ms();
            gds_run(&w, requests, 4, tasks);
            printf("%s, entry %d: quiet after %llu ms\n", versions[v], n,
                   (unsigned long long)(now_ms() - begun));
            for (unsigned i = 0; i < 4; i++) {
                failed += tasks[i].status == YOLK_ERR_IO;
                which = tasks[i].status == YOLK_ERR_IO ? i : which;
                assert_true(tasks[i].status == YOLK_ERR_IO || tasks[i].status == YOLK_OK);
            }
            assert_int_equal(failed, 1);
            memory_stays_quiet(&w, w.gpu + which * 3 * SLICE, 2 * SLICE);
            gds_close(&w);
        }
    }
    (void)kit_fake_cufile("set version 1150; reset");
}

/* With the one that failed the library forgets others: they are moved again, once the handle has
 * told nothing for a while. */
static void what_is_never_told_is_moved_again(void **state)
{
    struct gds_world w = {.slice = SLICE, .depth = 8, .file_size = 2 << 20};
    struct yolk_request requests[4];
    struct yolk_task_status tasks[4];
    unsigned failed = 0;
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset; set version 1200; set sparse 1");
    gds_open(&w);
    kit_fill(w.host, w.gpu_size, 21);
    kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
    (void)kit_fake_cufile("set delay 1; io 1 error 1");
    for (unsigned i = 0; i < 4; i++)
        requests[i] =
            gds_request_of(&w, YOLK_WRITE, w.gpu + i * 5 * SLICE, i * 5 * SLICE, 4 * SLICE);
    gds_run(&w, requests, 4, tasks);
    uint8_t *file = malloc(w.file_size);
    gds_look(&w, file, 0, w.file_size);
    for (unsigned i = 0; i < 4; i++) {
        failed += tasks[i].status == YOLK_ERR_IO;
        assert_true(tasks[i].status == YOLK_ERR_IO || tasks[i].status == YOLK_OK);
        if (tasks[i].status == YOLK_OK)
            assert_memory_equal(file + i * 5 * SLICE, w.host + i * 5 * SLICE, 4 * SLICE);
    }
    assert_int_equal(failed, 1);
    free(file);
    gds_close(&w);
    (void)kit_fake_cufile("set version 1150; reset");
}

/* The system fails a write of cuFile's: the file may not grow. The real library's own failure. */
static void a_write_that_the_system_fails_ends_quiet(void **state)
{
    struct gds_world w = {.slice = SLICE};
    struct rlimit limit, before;
    struct yolk_request requests[3];
    struct yolk_task_status tasks[3];
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    assert_int_equal(ftruncate(w.fd, 8 * SLICE), 0); /* the segment is longer */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit = (struct rlimit){.rlim_cur = 13 * SLICE, .rlim_max = before.rlim_max};
    memset(w.host, 1, w.gpu_size);
    kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
    for (unsigned i = 0; i < 3; i++)
        requests[i] =
            gds_request_of(&w, YOLK_WRITE, w.gpu + i * 5 * SLICE, i * 5 * SLICE, 4 * SLICE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    uint64_t begun = now_ms();
    gds_run(&w, requests, 3, tasks);
    uint64_t quiet_ms = now_ms() - begun;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(tasks[0].status, YOLK_OK);
    assert_int_equal(tasks[1].status, YOLK_OK);
    assert_int_not_equal(tasks[2].status, YOLK_OK);
    assert_int_equal(tasks[2].transferred, 3 * SLICE);
    /* What the memory holds from now on does not reach the file. */
    memset(w.host, GUARD, w.gpu_size);
    kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
    for (int i = 0; i < 20; i++)
        assert_int_equal(gds_one(&w, YOLK_READ, w.gpu + 15 * SLICE, 0, SLICE), YOLK_OK);
    ssize_t size = pread(w.fd, w.host, w.file_size, 0);
    assert_true(size >= 8 * SLICE);
    for (ssize_t i = 0; i < size; i++)
        assert_int_not_equal(w.host[i], GUARD);
    /* And what the memory holds now does not change. */
    kit_get(w.device, 0, w.host, w.gpu, 15 * SLICE);
    for (size_t i = 0; i < 15 * SLICE; i++)
        assert_int_equal(w.host[i], GUARD);
    printf("FIGURE from a write that the system fails to quiet memory: %llu ms, guard intact, ok\n",
           (unsigned long long)quiet_ms);
    gds_close(&w);
}

/* Canceled while cuFile has it: over only when that is, whatever the library does meanwhile. */
static void a_canceled_request_is_over_when_it_is_quiet(void **state)
{
    struct gds_world w = {.slice = SLICE};
    struct yolk_task_status task;
    enum yolk_status verdict;
    uint64_t batch;
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    (void)kit_fake_cufile("hold 1");
    struct yolk_request request = gds_request_of(&w, YOLK_READ, w.gpu, 0, 8 * SLICE);
    assert_ok(yolk_engine_batch_create(w.engine, 1, &batch));
    assert_ok(yolk_engine_batch_submit(w.engine, batch, &request, 1, &verdict, NULL));
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), WAIT_MS);
    while (kit_fake_cufile("count inflight") == 0)
        assert_true(clock_real_now_ns() < deadline);
    assert_ok(yolk_engine_batch_cancel(w.engine, batch, 0));
    for (int i = 0; i < 50; i++) {
        assert_ok(yolk_engine_batch_poll(w.engine, batch, 0, &task));
        assert_false(task.terminal);
    }
    assert_int_equal(kit_fake_cufile("calls cuFileBatchIOCancel"), 0); /* it would stop nothing */
    (void)kit_fake_cufile("hold 0");
    assert_ok(yolk_engine_batch_wait(w.engine, batch, deadline));
    (void)!yolk_engine_batch_poll(w.engine, batch, 0, &task);
    assert_true(task.status == YOLK_ERR_CANCELED || task.status == YOLK_OK);
    assert_ok(yolk_engine_batch_free(w.engine, batch));
    memory_stays_quiet(&w, w.gpu, 8 * SLICE);
    gds_close(&w);
}

/* A status call fails so that nothing is known: what was not handed over goes on with another
 * handle, what was stays, the engine does not end and says what is left, and does when it can. */
static void what_is_not_quiet_keeps_the_engine(void **state)
{
    struct gds_world w = {.slice = SLICE};
    struct yolk_task_status task;
    enum yolk_status verdict;
    uint64_t batch;
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    (void)kit_fake_cufile("hold 1; fail cuFileBatchIOGetStatus 1 5041");
    struct yolk_request request = gds_request_of(&w, YOLK_READ, w.gpu, 0, SLICE);
    request.deadline_ns = yolk_engine_now_ns(w.engine) + 20 * UINT64_C(1000000);
    assert_ok(yolk_engine_batch_create(w.engine, 1, &batch));
    assert_ok(yolk_engine_batch_submit(w.engine, batch, &request, 1, &verdict, NULL));
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), WAIT_MS);
    while (kit_fake_cufile("calls cuFileBatchIOGetStatus") < 3)
        assert_true(clock_real_now_ns() < deadline);
    assert_ok(yolk_engine_batch_poll(w.engine, batch, 0, &task));
    assert_false(task.terminal);
    assert_ok(yolk_engine_batch_free(w.engine, batch));
    assert_int_equal(yolk_engine_unregister(w.engine, w.gpu, w.gpu_size), YOLK_ERR_BUSY);
    (void)kit_fake_cufile("hold 0");
    while (yolk_engine_unregister(w.engine, w.gpu, w.gpu_size) != YOLK_OK)
        assert_true(clock_real_now_ns() < deadline);
    gds_close(&w);
}

static void a_broken_handle_harms_no_sibling(void **state)
{
    struct gds_world w = {.slice = SLICE, .depth = 2};
    struct yolk_request requests[8];
    struct yolk_task_status tasks[8];
    (void)state;
    if (kit_real_cufile())
        skip();
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    kit_fill(w.host, w.gpu_size, 9);
    kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
    (void)kit_fake_cufile("fail cuFileBatchIOGetStatus 2 5041");
    for (unsigned i = 0; i < 8; i++)
        requests[i] =
            gds_request_of(&w, YOLK_WRITE, w.gpu + i * 2 * SLICE, i * 2 * SLICE, 2 * SLICE);
    gds_run(&w, requests, 8, tasks);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(tasks[i].status, YOLK_OK);
    uint8_t *file = malloc(w.file_size);
    gds_look(&w, file, 0, w.file_size);
    assert_memory_equal(file, w.host, w.file_size);
    free(file);
    gds_close(&w);
}

/* C59: parameters that the library reads only when the transfer runs. */
static void c59_parameters_live_until_the_end(void **state)
{
    static struct yolk_request requests[1000];
    static struct yolk_task_status tasks[1000];
    struct gds_world w = {.file_size = 1000 * 4096};
    (void)state;
    (void)kit_fake_cufile("reset; set late 1; set delay 3; set order lifo");
    gds_open(&w);
    kit_fill(w.host, w.gpu_size, 12);
    kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
    for (uint32_t i = 0; i < 1000; i++) /* each another size, so that one's is no other's */
        requests[i] = gds_request_of(&w, YOLK_WRITE, w.gpu + i * 4096, (999 - i) * 4096,
                                     i % 7 == 0 ? 4096 : i * 4);
    gds_run(&w, requests, 1000, tasks);
    uint8_t *file = malloc(w.file_size);
    gds_look(&w, file, 0, w.file_size);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(tasks[i].status, YOLK_OK);
        assert_memory_equal(file + requests[i].offset, w.host + i * 4096, requests[i].size);
    }
    free(file);
    gds_close(&w);
    (void)kit_fake_cufile("reset");
}

/* ---- drawn ---- */

/* Requests of any size and place, with the library short, late, sparse, failing: what ended well is
 * exact, what failed has harmed nobody else. */
static void drawn_histories_are_exact(void **state)
{
    enum { SIZE = 1 << 20, REQUESTS = 24 };
    static uint8_t model[SIZE], gpu[SIZE], file[SIZE];
    (void)state;
    for (uint64_t seed = 1; seed <= (kit_real_cufile() ? 4u : 40u); seed++) {
        struct gds_world w = {
            .file_size = SIZE, .slice = 4096u << seed % 5, .depth = 1 + seed % 40};
        struct yolk_request requests[REQUESTS];
        struct yolk_task_status tasks[REQUESTS];
        uint64_t draw = seed;
        char command[200];
        (void)kit_fake_cufile("reset");
        (void)kit_fake_cufile(seed % 4 == 0 ? "set mode direct" : "");
        (void)kit_fake_cufile(seed % 3 == 0 ? "set version 1200" : "set version 1150");
        gds_open(&w);
        kit_fill(gpu, SIZE, seed);
        kit_put(w.device, 0, w.gpu, gpu, SIZE);
        memset(model, 0, SIZE);
        snprintf(command, sizeof(command),
                 "set delay %d; set sparse %d; set order %s; io %d short %d; io %d twice; io %d "
                 "short 4096; io %d stranger; io %d status 32 -5",
                 (int)(kit_draw(&draw) % 4), (int)(1 + kit_draw(&draw) % 9),
                 kit_draw(&draw) % 2 ? "lifo" : "fifo", (int)(1 + kit_draw(&draw) % 30),
                 (int)(kit_draw(&draw) % 4096), (int)(1 + kit_draw(&draw) % 30),
                 (int)(1 + kit_draw(&draw) % 30), (int)(1 + kit_draw(&draw) % 30),
                 (int)(seed % 2 ? 1 + kit_draw(&draw) % 30 : 100000));
        (void)kit_fake_cufile(command);
        uint64_t at = 0; /* no two at the same place */
        for (unsigned i = 0; i < REQUESTS; i++) {
            uint64_t size = 1 + kit_draw(&draw) % (SIZE / REQUESTS - 4096);
            uint64_t shift = kit_draw(&draw) % 4096;
            requests[i] = gds_request_of(&w, YOLK_WRITE, w.gpu + (SIZE - at - size - shift) % SIZE,
                                         at + shift, size);
            at += size + shift;
        }
        gds_run(&w, requests, REQUESTS, tasks);
        gds_look(&w, file, 0, SIZE);
        unsigned failed = 0;
        for (unsigned i = 0; i < REQUESTS; i++) {
            const uint8_t *from = gpu + ((uint8_t *)requests[i].local - w.gpu);
            bool well = tasks[i].status == YOLK_OK;
            failed += !well;
            for (uint64_t b = 0; b < requests[i].size; b++) {
                uint8_t got = file[requests[i].offset + b];
                if (got != from[b] && (well || got != 0))
                    fail_msg("byte %llu of request %u is %d", (unsigned long long)b, i, got);
            }
            assert_true(!well || tasks[i].transferred == requests[i].size);
            memcpy(model + requests[i].offset, file + requests[i].offset, requests[i].size);
        }
        assert_memory_equal(file, model, SIZE); /* nothing beside them */
        assert_true(failed <= 1);
        (void)kit_fake_cufile("reset");
        gds_close(&w);
    }
    (void)kit_fake_cufile("set version 1150");
}

/* ---- processes of their own ---- */

/* Runs it in a child, which has opened nothing yet. */
static int in_child(void (*function)(int what), int what)
{
    int how;
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        function(what);
        _exit(97);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s: %s\n", #condition, yolk_last_error());                            \
            _exit(90);                                                                             \
        }                                                                                          \
    } while (0)

static const char *const failing[] = {"set open abort", "set open hang", "set open 5007", NULL};
/* A sanitizer makes an exit of the signal. */
static const char *const reasons[] = {
    "in a process of its own first: it ", "it has not ended after 300 ms",
    "cuFileDriverOpen: CU_FILE_PLATFORM_NOT_SUPPORTED (5007)", "signal 11"};

static void open_what_fails(int what)
{
    const struct yolk_transport_ops *const all[] = {transport_gds_ops(), transport_posix_ops()};
    struct yolk_engine_options options;
    struct yolk_engine *engine;
    char why[512] = "";
    CHECK(setenv("FAKE_CUFILE", failing[what], 1) == 0);
    yolk_engine_options_init(&options);
    options.transports = all;
    options.transport_count = 2;
    gds_libraries(&options.transport);
    options.transport.connect_timeout_ms = what == 1 ? 300 : 0;
    CHECK(yolk_engine_create(&options, &engine) == YOLK_OK);
    CHECK(!yolk_engine_has_transport(engine, "gds", why, sizeof(why)));
    if (strstr(why, reasons[what]) == NULL) {
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", reasons[what], why);
        _exit(91);
    }
    CHECK(yolk_engine_destroy(engine) == YOLK_OK);
    _exit(0);
}

/* A library that ends its process or never comes back does so to another one. */
static void a_library_that_aborts_or_hangs_harms_nobody(void **state)
{
    (void)state;
    if (kit_real_cufile())
        skip();
    for (int i = 0; failing[i] != NULL; i++)
        assert_int_equal(in_child(open_what_fails, i), 0);
}

static void *read_in_thread(void *self)
{
    struct gds_world *w = ((struct gds_world **)self)[0];
    uint8_t *memory = ((uint8_t **)self)[1];
    struct yolk_request request = gds_request_of(w, YOLK_READ, memory, 0, SLICE);
    struct yolk_task_status task;
    gds_run(w, &request, 1, &task);
    return (void *)(intptr_t)task.status;
}

/* A process whose first use of the GPU is this, and eight threads without a context. */
static void first_of_all(int what)
{
    struct gds_world w = {.slice = SLICE, .gpu_size = SLICE, .file_size = 1 << 20};
    void *arguments[8][2], *results[8];
    pthread_t threads[8];
    (void)what;
    (void)kit_fake("set gpus 8");
    CHECK(gds_engine(&w, &w.engine) == YOLK_OK);
    CHECK(kit_real() || kit_fake("context") == 0);
    gds_open_file(&w);
    memset(w.path + 511, 0, 1);
    w.device = kit_open(NULL);
    kit_fill(w.host = malloc(SLICE), SLICE, 7);
    CHECK(pwrite(w.fd, w.host, SLICE, 0) == SLICE);
    for (int i = 0; i < 8; i++) {
        int ordinal = i % (int)device_count(w.device);
        uint8_t *memory = kit_gpu_alloc(w.device, ordinal, SLICE);
        CHECK(yolk_engine_register(w.engine, memory, SLICE) == YOLK_OK);
        arguments[i][0] = &w;
        arguments[i][1] = memory;
        CHECK(pthread_create(&threads[i], NULL, read_in_thread, arguments[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        uint8_t back[SLICE];
        CHECK(pthread_join(threads[i], &results[i]) == 0);
        CHECK(results[i] == NULL);
        kit_get(w.device, i % (int)device_count(w.device), back, arguments[i][1], SLICE);
        CHECK(memcmp(back, w.host, SLICE) == 0);
    }
    CHECK(kit_real() || kit_fake("context") == 0); /* this thread's is as it was */
    unlink(w.path);
    CHECK(yolk_engine_segment_close(w.engine, w.segment) == YOLK_OK);
    CHECK(yolk_engine_destroy(w.engine) == YOLK_OK);
    _exit(0);
}

static void c57_the_first_use_of_cuda_may_be_a_read(void **state)
{
    (void)state;
    int how = in_child(first_of_all, 0);
    if (kit_real_cufile() && WIFEXITED(how) && WEXITSTATUS(how) == 77)
        skip();
    assert_int_equal(how, 0);
}

enum ending {
    EXIT, /* and so returning from main */
    ABORT,
    UNDERSCORE,
    QUICK,
    TERMINATED,
    DESTROYED,
    IN_THREAD, /* exit in another thread */
    HANDLED,   /* exit in a signal's handler */
    LATE,      /* what is closed at exit, after cuFile was */
    CHILD,     /* a child of fork that exits */
    ENDINGS
};

static struct gds_world used;

static void *use_on_and_on(void *arg)
{
    atomic_bool *begun = arg;
    for (;;) {
        if (gds_one(&used, YOLK_WRITE, used.gpu, 0, 8 * SLICE) == YOLK_OK)
            atomic_store(begun, true);
    }
    return NULL;
}

static void *exit_here(void *arg)
{
    (void)arg;
    exit(3);
}

static void exit_handling(int number)
{
    exit(number == SIGTERM ? 3 : 95);
}

static void close_late(void)
{
    (void)!yolk_engine_segment_close(used.engine, used.segment);
    (void)!yolk_engine_destroy(used.engine);
}

/* Its end is not its parent's. */
static void end_of_a_child(void)
{
    int how;
    pid_t child = fork();
    if (child == 0)
        exit(4);
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 4);
    CHECK(gds_one(&used, YOLK_READ, used.gpu, 0, SLICE) == YOLK_OK);
    exit(3);
}

static void end_somehow(int what)
{
    static atomic_bool begun;
    pthread_t thread;
    struct rlimit no_core = {0, 0};
    (void)kit_fake("set strictexit 1"); /* no call of a driver that is gone */
    CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
    signal(SIGTERM, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    used = (struct gds_world){.slice = SLICE};
    CHECK(what % ENDINGS != LATE || atexit(close_late) == 0);
    gds_open(&used);
    unlink(used.path);
    CHECK(gds_one(&used, YOLK_WRITE, used.gpu, 0, 8 * SLICE) == YOLK_OK);
    if (what / ENDINGS % 2 == 1 && what % ENDINGS != DESTROYED && what % ENDINGS != LATE &&
        what % ENDINGS != CHILD) { /* while cuFile works */
        CHECK(pthread_create(&thread, NULL, use_on_and_on, &begun) == 0);
        while (!atomic_load(&begun))
            ;
    }
    switch (what % ENDINGS) {
    case ABORT:
        abort();
    case UNDERSCORE:
        _exit(3);
    case QUICK:
        quick_exit(3);
    case TERMINATED:
        raise(SIGTERM);
        _exit(94);
    case DESTROYED:
        gds_close(&used);
        exit(3);
    case IN_THREAD:
        CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
        for (;;)
            pause();
    case HANDLED:
        signal(SIGTERM, exit_handling);
        raise(SIGTERM);
        _exit(94);
    case CHILD:
        end_of_a_child();
        break;
    default:
        exit(3);
    }
}

/* C60: idle or in the middle of transfers, however a process ends, it ends as asked, and soon. */
static void c60_short_processes_end_as_asked(void **state)
{
    uint64_t longest = 0;
    (void)state;
    for (int i = 0; i < 2 * ENDINGS; i++) {
        uint64_t begun = now_ms();
        int how = in_child(end_somehow, i), ending = i % ENDINGS;
        if (kit_real_cufile() && WIFEXITED(how) && WEXITSTATUS(how) == 77)
            skip();
        if (kit_real_cufile())
            printf("ending %d: %x after %llu ms\n", ending, how,
                   (unsigned long long)(now_ms() - begun));
        longest = now_ms() - begun > longest ? now_ms() - begun : longest;
        if (ending == ABORT || ending == TERMINATED) {
            assert_true(WIFSIGNALED(how));
            assert_int_equal(WTERMSIG(how), ending == ABORT ? SIGABRT : SIGTERM);
        } else {
            if (!WIFEXITED(how) || WEXITSTATUS(how) != 3)
                fail_msg("ending %d of %d: 0x%x", i, ENDINGS, (unsigned)how);
        }
    }
    printf("FIGURE endings of %d processes as asked, the longest after %llu ms, ok\n", 2 * ENDINGS,
           (unsigned long long)longest);
}

/* C58: what a stream still has to do to the memory is waited for. */
static void c58_a_write_waits_for_the_stream_that_it_names(void **state)
{
    struct gds_world w = {.slice = SLICE};
    struct device_scope scope;
    cuda_stream stream;
    struct yolk_task_status task;
    enum yolk_status verdict;
    uint64_t batch;
    (void)state;
    (void)kit_fake_cufile("reset");
    gds_open(&w);
    const struct cuda *cuda = device_cuda(w.device);
    uint8_t *newer = kit_gpu_alloc(w.device, 0, w.gpu_size);
    memset(w.host, 1, w.gpu_size);
    kit_put(w.device, 0, w.gpu, w.host, w.gpu_size);
    kit_fill(w.host, w.gpu_size, 77);
    kit_put(w.device, 0, newer, w.host, w.gpu_size);
    assert_ok(device_enter(w.device, 0, &scope));
    assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    (void)kit_fake("hold 1");
    for (int i = 0; i < (kit_real() ? 200 : 1); i++) /* long work on a side stream */
        assert_int_equal(cuda->memcpy_async((uintptr_t)w.gpu, (uintptr_t)newer, w.gpu_size, stream),
                         CUDA_OK);
    struct yolk_request request = gds_request_of(&w, YOLK_WRITE, w.gpu, 0, w.gpu_size);
    request.after_stream = stream;
    assert_ok(yolk_engine_batch_create(w.engine, 1, &batch));
    assert_ok(yolk_engine_batch_submit(w.engine, batch, &request, 1, &verdict, NULL));
    for (int i = 0; i < 50 && !kit_real(); i++) {
        assert_ok(yolk_engine_batch_poll(w.engine, batch, 0, &task));
        assert_false(task.terminal);
    }
    (void)kit_fake("hold 0");
    assert_ok(yolk_engine_batch_wait(w.engine, batch,
                                     yolk_engine_now_ns(w.engine) + WAIT_MS * CLOCK_NS_PER_MS));
    (void)!yolk_engine_batch_poll(w.engine, batch, 0, &task);
    assert_int_equal(task.status, YOLK_OK);
    assert_ok(yolk_engine_batch_free(w.engine, batch));
    uint8_t *file = malloc(w.file_size);
    gds_look(&w, file, 0, w.file_size);
    assert_memory_equal(file, w.host, w.file_size);
    free(file);
    assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
    device_leave(w.device, &scope);
    kit_gpu_free(w.device, 0, newer);
    gds_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First those whose processes have opened nothing yet. */
        cmocka_unit_test(a_library_that_aborts_or_hangs_harms_nobody),
        cmocka_unit_test(c57_the_first_use_of_cuda_may_be_a_read),
        cmocka_unit_test(c60_short_processes_end_as_asked),
        cmocka_unit_test(c58_a_write_waits_for_the_stream_that_it_names),
        cmocka_unit_test(c59_parameters_live_until_the_end),
        cmocka_unit_test(a_failed_request_is_quiet_and_alone),
        cmocka_unit_test(what_is_never_told_is_moved_again),
        cmocka_unit_test(a_write_that_the_system_fails_ends_quiet),
        cmocka_unit_test(a_canceled_request_is_over_when_it_is_quiet),
        cmocka_unit_test(what_is_not_quiet_keeps_the_engine),
        cmocka_unit_test(a_broken_handle_harms_no_sibling),
        cmocka_unit_test(drawn_histories_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
