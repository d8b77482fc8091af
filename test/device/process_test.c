/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, forks and ends of processes. Each process here opens the driver itself. */
#include "kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"

enum { SIZE = 1 << 20 };

static int copy_once(struct device *device, int ordinal, void *gpu, const void *host, size_t size)
{
    struct device_transfer *transfer;
    struct device_copy copies[] = {
        {gpu, host, size / 2}, {(char *)gpu + size / 2, (const char *)host + size / 2, size / 2}};
    long taken = device_copy(device, ordinal, copies, 2, NULL, &transfer);
    if (taken != 2)
        return taken < 0 ? (int)taken : YOLK_ERR_SYSTEM;
    int status = device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 20000));
    return device_transfer_free(transfer) == YOLK_OK ? status : YOLK_ERR_BUSY;
}

/* What a short process does with a GPU before it ends, one way or another. */
static struct device *work(void **pinned, void **gpu)
{
    struct device *device = kit_open(NULL);
    *gpu = kit_gpu_alloc(device, 0, SIZE);
    assert_ok(device_pinned_alloc(device, 0, SIZE, pinned));
    kit_fill(*pinned, SIZE, 4);
    assert_ok(copy_once(device, 0, *gpu, *pinned, 8192));
    return device;
}

static struct device *left;
static void *left_pinned;
static int late_status;

/* Registered before the driver is opened, so it runs after the driver's end. */
static void close_too_late(void)
{
    void *none = NULL;
    late_status = device_pinned_alloc(left, 0, 4096, &none);
    device_pinned_free(left, left_pinned, SIZE);
    device_close(left);
    if (late_status != YOLK_ERR_CLOSED)
        _exit(96);
}

static void *work_for_ever(void *arg)
{
    void *pinned, *gpu;
    struct device *device = work(&pinned, &gpu);
    atomic_bool *begun = arg;
    atomic_store(begun, true);
    while (copy_once(device, 0, gpu, pinned, 8192) == YOLK_OK)
        ;
    for (;;)
        pause();
    return NULL;
}

enum ending {
    RETURN,
    EXIT,
    EXIT_CLOSED,
    LATE_CLOSE,
    UNDERSCORE,
    QUICK,
    TERMINATED,
    WITH_THREAD,
    ENDINGS
};

__attribute__((noreturn)) static void live(enum ending ending)
{
    void *pinned, *gpu;
    (void)kit_fake("set strictexit 1");
    signal(SIGTERM, SIG_DFL);
    if (ending == LATE_CLOSE)
        atexit(close_too_late);
    if (ending == WITH_THREAD) {
        static atomic_bool begun;
        pthread_t thread;
        if (pthread_create(&thread, NULL, work_for_ever, &begun) != 0)
            exit(95);
        while (!atomic_load(&begun))
            ;
        exit(3);
    }
    struct device *device = work(&pinned, &gpu);
    left = device;
    left_pinned = pinned;
    switch (ending) {
    case EXIT_CLOSED:
        kit_gpu_free(device, 0, gpu);
        device_pinned_free(device, pinned, SIZE);
        device_close(device);
        exit(3);
    case UNDERSCORE:
        _exit(3);
    case QUICK:
        quick_exit(3);
    case TERMINATED:
        raise(SIGTERM);
        _exit(94);
    default: /* returning from main is exit */
        exit(3);
    }
}

/* C60, of this layer: however a process ends, it ends as asked, without a call of a driver that is
 * gone, and soon. */
static void c60_short_processes_end_as_asked(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        enum ending ending = (enum ending)(i % ENDINGS);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            live(ending);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        bool right = ending == TERMINATED ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM
                                          : WIFEXITED(status) && WEXITSTATUS(status) == 3;
        if (!right)
            fail_msg("ending %d: status 0x%x", (int)ending, (unsigned)status);
    }
}

struct caller {
    struct device *device;
    int ordinal, status;
};

/* A thread without a context; its GPU's memory comes from another one. */
static void *first_call(void *arg)
{
    struct caller *c = arg;
    cuda_context current = NULL;
    void *pinned, *gpu = kit_gpu_alloc(c->device, c->ordinal, SIZE);
    uint8_t back[8192];
    c->status = device_pinned_alloc(c->device, c->ordinal, SIZE, &pinned);
    for (int i = 0; i < 20 && c->status == YOLK_OK; i++) {
        kit_fill(pinned, SIZE, (uint64_t)(c->ordinal * 100 + i));
        c->status = copy_once(c->device, c->ordinal, gpu, pinned, 8192);
        kit_get(c->device, c->ordinal, back, gpu, sizeof(back));
        if (c->status == YOLK_OK && memcmp(back, pinned, sizeof(back)) != 0)
            c->status = YOLK_ERR_CORRUPT;
    }
    if (c->status == YOLK_OK &&
        (device_cuda(c->device)->ctx_get_current(&current) != CUDA_OK || current != NULL))
        c->status = YOLK_ERR_BUSY;
    device_pinned_free(c->device, pinned, SIZE);
    kit_gpu_free(c->device, c->ordinal, gpu);
    return NULL;
}

static void c57_threads_without_a_context_copy_on_all_gpus(void **state)
{
    enum { THREADS = 8 };
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    (void)state;
    struct device *device = kit_open(NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){device, (int)(i % device_count(device)), -1};
        assert_int_equal(pthread_create(&threads[i], NULL, first_call, &callers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].status, YOLK_OK);
    }
    kit_close(device);
}

static bool child_is_refused(struct device *device, void *pinned, void *gpu,
                             struct device_transfer *transfer, struct device_range *range)
{
    struct device_memory memory;
    struct device_scope scope;
    const struct cufile *cufile;
    struct device_transfer *next;
    void *more;
    struct device_copy copy = {gpu, pinned, 1};
    return device_check(device) == YOLK_ERR_FORKED &&
           device_query(device, gpu, &memory) == YOLK_ERR_FORKED &&
           device_enter(device, 0, &scope) == YOLK_ERR_FORKED &&
           device_cufile(device, &cufile) == YOLK_ERR_FORKED &&
           device_copy(device, 0, &copy, 1, NULL, &next) == YOLK_ERR_FORKED &&
           device_pinned_alloc(device, 0, 1, &more) == YOLK_ERR_FORKED &&
           device_transfer_poll(transfer) == YOLK_ERR_FORKED &&
           device_range_hold(range, 0, 0, 1) == YOLK_ERR_FORKED &&
           device_range_remove(range) == YOLK_OK;
}

/* C150, of this layer. */
static void c150_a_child_is_refused_and_the_parent_goes_on(void **state)
{
    void *pinned, *gpu;
    struct device_range *range;
    struct device_transfer *transfer;
    static char host[SIZE];
    (void)state;
    struct device *device = work(&pinned, &gpu);
    assert_ok(device_range_add(device, host, SIZE, false, &range));
    (void)kit_fake("hold 1");
    struct device_copy copy = {gpu, pinned, 4096};
    assert_status(device_copy(device, 0, &copy, 1, NULL, &transfer), 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)kit_fake("reset");
        bool right = child_is_refused(device, pinned, gpu, transfer, range);
        device_pinned_free(device, pinned, SIZE);
        device_close(device);
        /* None of it was a call of the driver. */
        static const char *const calls[] = {"calls cuMemFreeHost", "calls cuCtxPushCurrent",
                                            "calls cuDevicePrimaryCtxRelease",
                                            "calls cuThreadExchangeStreamCaptureMode"};
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
            right = right && kit_fake(calls[i]) == 0;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)kit_fake("hold 0");
    assert_ok(device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 20000)));
    assert_ok(device_transfer_free(transfer));
    assert_ok(copy_once(device, 0, gpu, pinned, SIZE));
    assert_ok(device_range_remove(range));
    kit_gpu_free(device, 0, gpu);
    device_pinned_free(device, pinned, SIZE);
    kit_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c60_short_processes_end_as_asked), /* before this process has the driver */
        cmocka_unit_test(c57_threads_without_a_context_copy_on_all_gpus),
        cmocka_unit_test(c150_a_child_is_refused_and_the_parent_goes_on),
    };
    (void)kit_fake("set gpus 4");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
