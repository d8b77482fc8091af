/* SPDX-License-Identifier: Apache-2.0 */
/* What the layer makes of a driver that fails: an error of each call, failures while bytes move,
 * death. */
#include "kit.h"

#include <sys/mman.h>
#include <unistd.h>

#include "platform/clock.h"

enum { SIZE = 1 << 20, COUNT = 6 };

struct scene {
    struct device *device;
    uint8_t *gpu, *shared;
    void *pinned;
    struct device_range *range;
    bool held;
    int status; /* the first failure */
    struct device_transfer *transfer;
};

static bool went(struct scene *s, long status)
{
    if (s->status == YOLK_OK && status < 0)
        s->status = (int)status;
    return status >= 0;
}

static int wait_and_free(struct device_transfer *transfer)
{
    int status = device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 20000));
    if (status == YOLK_ERR_TIMEOUT || status == YOLK_ERR_AGAIN)
        fail_msg("a transfer has no end");
    assert_ok(device_transfer_free(transfer));
    return status;
}

static void copy_some(struct scene *s, enum device_direction direction, void *stream)
{
    struct device_copy copies[COUNT];
    struct device_copy_options how = {.direction = direction, .after.stream = stream};
    uint8_t *host = direction == DEVICE_TO_GPU ? s->pinned : s->shared;
    for (size_t i = 0; i < COUNT; i++) {
        size_t offset = i < 3 ? i * 4096 : i * 65536, size = i < 3 ? 4096 : 65536;
        copies[i] = direction == DEVICE_TO_GPU
                        ? (struct device_copy){s->gpu + offset, host + offset, size}
                        : (struct device_copy){host + offset, s->gpu + offset, size};
    }
    struct device_transfer *transfer;
    long taken = device_copy(s->device, 0, copies, COUNT, &how, &transfer);
    if (went(s, taken)) {
        went(s, wait_and_free(transfer));
    } else {
        assert_null(transfer);
    }
}

/* All that a user does, once; what fails ends it, and what was made is given back. */
static int play(void)
{
    struct scene s = {0};
    struct device_memory memory;
    struct device_options options = {.gather_below = 32768};
    s.shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!went(&s, kit_open_status(&options, &s.device)))
        goto end;
    s.gpu = NULL;
    struct device_scope scope;
    cuda_pointer pointer = 0;
    cuda_stream stream = NULL;
    if (!went(&s, device_enter(s.device, 0, &scope)))
        goto end;
    /* The caller's own calls are not what is tested. */
    bool own = device_cuda(s.device)->mem_alloc(&pointer, SIZE) == CUDA_OK &&
               device_cuda(s.device)->stream_create(&stream, 1) == CUDA_OK;
    device_leave(s.device, &scope);
    s.gpu = (uint8_t *)(uintptr_t)pointer;
    if (own && went(&s, device_query(s.device, s.gpu, &memory)) &&
        went(&s, device_pinned_alloc(s.device, 0, SIZE, &s.pinned)) &&
        went(&s, device_range_add(s.device, s.shared, SIZE, false, &s.range)) &&
        went(&s, device_range_hold(s.range, 0, 0, SIZE))) {
        s.held = true;
        kit_fill(s.pinned, SIZE, 9);
        copy_some(&s, DEVICE_TO_GPU, NULL);
        if (s.status == YOLK_OK)
            copy_some(&s, DEVICE_FROM_GPU, stream);
        for (size_t i = 0; i < COUNT && s.status == YOLK_OK; i++)
            assert_memory_equal(s.shared + (i < 3 ? i * 4096 : i * 65536),
                                (uint8_t *)s.pinned + (i < 3 ? i * 4096 : i * 65536), 4096);
    }
    if (s.held)
        device_range_release(s.range, 0, SIZE);
    if (s.range != NULL)
        assert_ok(device_range_remove(s.range));
    device_pinned_free(s.device, s.pinned, SIZE);
    /* The caller's things again: the call that fails may be one of these, but only once. */
    bool entered = device_enter(s.device, 0, &scope) == YOLK_OK ||
                   device_enter(s.device, 0, &scope) == YOLK_OK;
    if (entered && stream != NULL)
        (void)device_cuda(s.device)->stream_destroy(stream);
    if (entered && s.gpu != NULL)
        (void)device_cuda(s.device)->mem_free(pointer);
    if (entered)
        device_leave(s.device, &scope);
end:
    (void)kit_fake("disarm"); /* what fails at the close stays with the driver */
    device_close(s.device);
    munmap(s.shared, SIZE);
    return s.status;
}

static const char *const made[] = {"cuInit",
                                   "cuDriverGetVersion",
                                   "cuDeviceGetCount",
                                   "cuDeviceGet",
                                   "cuDeviceGetName",
                                   "cuDeviceGetAttribute",
                                   "cuDevicePrimaryCtxRetain",
                                   "cuCtxPushCurrent",
                                   "cuThreadExchangeStreamCaptureMode",
                                   "cuPointerGetAttributes",
                                   "cuMemHostAlloc",
                                   "cuMemHostRegister",
                                   "cuStreamCreate",
                                   "cuEventCreate",
                                   "cuEventRecord",
                                   "cuStreamWaitEvent",
                                   "cuStreamIsCapturing",
                                   "cuStreamGetCtx",
                                   "cuModuleLoadDataEx",
                                   "cuModuleGetFunction",
                                   "cuLaunchKernel",
                                   "cuMemcpyBatchAsync",
                                   "cuMemRetainAllocationHandle"};

static const char *const left[] = {"registered", "pinned",  "gpu",     "streams",
                                   "events",     "modules", "contexts"};

/* The n-th call of each kind fails once, for each n: nothing hangs, nothing is left, and the bytes
 * are right where success is told. The thread's capture mode may be what a failing exchange leaves.
 */
static void each_call_may_fail(void **state)
{
    char command[160];
    unsigned failures = 0;
    (void)state;
    (void)kit_fake("reset");
    assert_ok(play());
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        for (long n = 1;; n++) {
            snprintf(command, sizeof(command), "reset; fail %s %ld 1", made[i], n);
            (void)kit_fake(command);
            int status = play();
            snprintf(command, sizeof(command), "calls %s", made[i]);
            if (kit_fake(command) < n)
                break;
            failures += status != YOLK_OK;
            assert_int_equal(kit_fake("context"), 0);
            for (size_t k = 0; k < sizeof(left) / sizeof(left[0]); k++) {
                snprintf(command, sizeof(command), "count %s", left[k]);
                if (kit_fake(command) != 0)
                    fail_msg("call %ld of %s fails: %s is %ld (%s)", n, made[i], left[k],
                             kit_fake(command), yolk_last_error());
            }
        }
    }
    assert_true(failures > 30);
    (void)kit_fake("reset");
}

/* Opens, with a GPU allocation and pinned memory that live on whatever the driver says. */
static void set_scene(struct scene *s)
{
    *s = (struct scene){0};
    (void)kit_fake("reset");
    s->device = kit_open(NULL);
    s->gpu = kit_gpu_alloc(s->device, 0, SIZE);
    assert_ok(device_pinned_alloc(s->device, 0, SIZE, &s->pinned));
    kit_fill(s->pinned, SIZE, 11);
    memset(kit_shadow(s->gpu, SIZE), 0, SIZE);
}

/* Back to a driver that works, so that the next test begins from nothing. */
static void strike(struct scene *s)
{
    (void)kit_fake("reset");
    device_close(s->device);
    s->device = kit_open(NULL);
    kit_gpu_free(s->device, 0, s->gpu);
    device_close(s->device);
}

static void begin(struct scene *s, struct device_transfer **transfer, unsigned first)
{
    struct device_copy copies[2] = {
        {s->gpu + first, (uint8_t *)s->pinned + first, 4096},
        {s->gpu + first + 8192, (uint8_t *)s->pinned + first + 8192, 4096}};
    assert_status(device_copy(s->device, 0, copies, 2, NULL, transfer), 2);
}

/* The kernel fails while it runs: nobody can say whether its bytes come, so the transfer is stuck,
 * no list of it is used again, and nothing is freed under it, not even at the end. */
static void a_late_write_meets_the_memory_that_was_there(void **state)
{
    struct scene s;
    struct device_transfer *transfer, *next;
    struct device_copy copy[2];
    (void)state;
    set_scene(&s);
    (void)kit_fake("async 719 late");
    begin(&s, &transfer, 0);
    assert_status(device_transfer_poll(transfer), YOLK_ERR_STUCK);
    assert_error_text("CUDA_ERROR_LAUNCH_FAILED (719)");
    assert_status(device_transfer_poll(transfer), YOLK_ERR_STUCK); /* and stays so */
    copy[0] = (struct device_copy){s.gpu, s.pinned, 10};
    assert_status(device_copy(s.device, 0, copy, 1, NULL, &next), YOLK_ERR_SYSTEM);
    assert_error_text("GPU 0 has failed before: GPU 0: a transfer: CUDA_ERROR_LAUNCH_FAILED");
    assert_null(next);
    assert_ok(device_transfer_free(transfer));
    assert_status(device_pinned_alloc(s.device, 0, 4096, &(void *){NULL}), YOLK_ERR_SYSTEM);
    device_close(s.device);
    (void)kit_fake("late"); /* reads the list and moves the bytes */
    uint8_t *shadow = kit_shadow(s.gpu, SIZE);
    assert_memory_equal(shadow, s.pinned, 4096);
    assert_memory_equal(shadow + 8192, (uint8_t *)s.pinned + 8192, 4096);
    s.device = NULL;
    strike(&s);
}

static void a_transfer_held_up_ends_at_the_deadline_and_later(void **state)
{
    struct scene s;
    struct device_transfer *transfer;
    (void)state;
    set_scene(&s);
    (void)kit_fake("hold 1");
    begin(&s, &transfer, 0);
    assert_status(device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 20)),
                  YOLK_ERR_TIMEOUT);
    assert_status(device_transfer_free(transfer), YOLK_ERR_BUSY);
    (void)kit_fake("hold 0; delay 3");
    assert_ok(wait_and_free(transfer));
    assert_memory_equal(kit_shadow(s.gpu, 4096), s.pinned, 4096);
    device_pinned_free(s.device, s.pinned, SIZE);
    strike(&s);
}

/* A failure half-way through a submission is told when what went before is over. */
static void a_failed_submission_is_told_when_the_memory_is_quiet(void **state)
{
    struct scene s;
    struct device_transfer *transfer;
    (void)state;
    set_scene(&s);
    struct device_copy copies[] = {{s.gpu, s.pinned, 4096},
                                   {s.gpu + 4096, (uint8_t *)s.pinned + 4096, 4096},
                                   {s.gpu + 8192, (uint8_t *)s.pinned + 8192, 300000},
                                   {s.gpu + 400000, (uint8_t *)s.pinned + 400000, 300000}};
    (void)kit_fake("fail cuMemcpyBatchAsync 1 1; delay 4");
    long taken = device_copy(s.device, 0, copies, 4, NULL, &transfer);
    assert_true(taken > 0);
    assert_status(device_transfer_poll(transfer), YOLK_ERR_AGAIN); /* the kernel still runs */
    assert_status(wait_and_free(transfer), YOLK_ERR_INVALID);
    assert_error_text("cuMemcpyBatchAsync: CUDA_ERROR_INVALID_VALUE (1)");
    assert_memory_equal(kit_shadow(s.gpu, 8192), s.pinned, 8192);
    /* The GPU goes on. */
    (void)kit_fake("reset");
    begin(&s, &transfer, 16384);
    assert_ok(wait_and_free(transfer));
    device_pinned_free(s.device, s.pinned, SIZE);
    strike(&s);
}

static void where_no_event_can_be_recorded_the_stream_tells(void **state)
{
    struct scene s;
    struct device_transfer *transfer;
    (void)state;
    set_scene(&s);
    (void)kit_fake("fail cuEventRecord 1 2; delay 3");
    begin(&s, &transfer, 0);
    assert_status(device_transfer_poll(transfer), YOLK_ERR_AGAIN);
    assert_status(wait_and_free(transfer), YOLK_ERR_NO_MEMORY);
    assert_error_text("cuEventRecord");
    assert_memory_equal(kit_shadow(s.gpu, 4096), s.pinned, 4096);
    device_pinned_free(s.device, s.pinned, SIZE);
    strike(&s);
}

static void a_dead_driver_ends_all_with_its_error(void **state)
{
    static const int deaths[] = {CUDA_ERR_DEINITIALIZED, CUDA_ERR_ILLEGAL_ADDRESS,
                                 CUDA_ERR_UNKNOWN};
    struct scene s;
    struct device_transfer *transfer, *next;
    struct device_memory memory;
    char command[32];
    (void)state;
    for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
        set_scene(&s);
        (void)kit_fake("hold 1");
        begin(&s, &transfer, 0);
        snprintf(command, sizeof(command), "die %d", deaths[i]);
        (void)kit_fake(command);
        int status = device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 5000));
        assert_int_equal(status, YOLK_ERR_STUCK);
        assert_ok(device_transfer_free(transfer));
        assert_true(device_query(s.device, s.gpu, &memory) < 0);
        assert_true(device_copy(s.device, 0, &(struct device_copy){s.gpu, s.pinned, 1}, 1, NULL,
                                &next) < 0);
        device_close(s.device);
        s.device = NULL;
        (void)kit_fake("hold 0");
        strike(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_may_fail),
        cmocka_unit_test(a_late_write_meets_the_memory_that_was_there),
        cmocka_unit_test(a_transfer_held_up_ends_at_the_deadline_and_later),
        cmocka_unit_test(a_failed_submission_is_told_when_the_memory_is_quiet),
        cmocka_unit_test(where_no_event_can_be_recorded_the_stream_tells),
        cmocka_unit_test(a_dead_driver_ends_all_with_its_error),
    };
    kit_fake_only();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
