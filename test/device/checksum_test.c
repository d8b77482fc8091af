/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of a GPU's memory by its kernel: right ones, or none and the reason. */
#include "kit.h"

#include "base/crc32c.h"
#include "platform/clock.h"

enum { AREA = 4 << 20, SPANS = 200, DEADLINE_MS = 30000 };

struct world {
    struct device *device;
    uint8_t *gpu, *model; /* model: what the GPU's memory holds */
};

static void open_world(struct world *w, const struct device_options *options)
{
    w->device = kit_open(options);
    w->gpu = kit_gpu_alloc(w->device, 0, AREA);
    w->model = malloc(AREA);
    assert_non_null(w->model);
    kit_fill(w->model, AREA, 7);
    kit_put(w->device, 0, w->gpu, w->model, AREA);
}

static void close_world(struct world *w)
{
    kit_gpu_free(w->device, 0, w->gpu);
    free(w->model);
    kit_close(w->device);
}

static int wait_for(struct device_sum *sum)
{
    return device_sum_wait(sum, clock_after_ms(clock_real_now_ns(), DEADLINE_MS));
}

/* By the definition, bit by bit. */
static uint32_t divide(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = ~crc;
    for (size_t i = 0; i < size * 8; i++) {
        uint32_t out = (crc ^ (uint32_t)(bytes[i / 8] >> (i % 8))) & 1;
        crc = crc >> 1 ^ (out ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* All of them by as many launches as it takes; what each is, going on from 0x1234567. */
static void sum_all(const struct world *w, const struct device_span *spans, size_t count,
                    uint32_t *out)
{
    for (size_t done = 0; done < count;) {
        struct device_sum *sum;
        long taken = device_sum_begin(w->device, 0, spans + done, count - done, &sum);
        if (taken <= 0)
            fail_msg("%ld: %s", taken, yolk_last_error());
        assert_ok(wait_for(sum));
        for (long i = 0; i < taken; i++)
            out[done + (size_t)i] = device_sum_of(sum, (size_t)i, 0x1234567);
        device_sum_end(sum);
        done += (size_t)taken;
    }
}

static void check_all(const struct world *w, const struct device_span *spans, size_t count)
{
    uint32_t *got = calloc(count, sizeof(*got));
    assert_non_null(got);
    sum_all(w, spans, count, got);
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)((const uint8_t *)spans[i].memory - w->gpu);
        uint32_t wanted = divide(0x1234567, w->model + at, spans[i].size);
        if (got[i] != wanted)
            fail_msg("%llu bytes at %zu: %08x, not %08x", (unsigned long long)spans[i].size, at,
                     got[i], wanted);
    }
    free(got);
}

/* Sizes around rows, pieces and words at drawn and at aligned addresses. */
static void draw(const struct world *w, struct device_span *spans, size_t count, uint64_t most)
{
    static const uint32_t SIZES[] = {1, 15, 16, 17, 496, 511, 512, 513, 528, 1024, 16383, 16384};
    uint64_t seed = 99;
    for (size_t i = 0; i < count; i++) {
        uint64_t size = i % 3 == 0 ? SIZES[i / 3 % 12] : 1 + kit_draw(&seed) % most;
        uint64_t at = kit_draw(&seed) % (AREA - size);
        if (i % 2 == 0)
            at = at / 16 * 16;
        spans[i] = (struct device_span){w->gpu + at, size};
    }
}

static void the_kernel_and_the_definition_agree(void **state)
{
    struct world w;
    struct device_span spans[SPANS];
    struct device_figures f;
    char reason[512];
    (void)state;
    (void)kit_fake("reset");
    open_world(&w, NULL);
    assert_ok(device_sum_reason(w.device, 0, reason, sizeof(reason)));
    assert_string_equal(reason, "");
    draw(&w, spans, SPANS, 40000);
    spans[0] = (struct device_span){w.gpu + 3, AREA - 3}; /* more than pieces of the usual size */
    check_all(&w, spans, SPANS);
    device_figures(w.device, &f);
    assert_int_equal(f.sum_launches, 1);
    close_world(&w);
}

static void a_list_that_is_full_is_gone_on_with(void **state)
{
    enum { MANY = 3000 };
    struct world w;
    struct device_span *spans = calloc(MANY, sizeof(*spans));
    (void)state;
    assert_non_null(spans);
    open_world(&w, NULL);
    draw(&w, spans, MANY, 60);
    for (size_t i = 0; i < MANY; i++)
        if (spans[i].size > 1000)
            spans[i].size = 0;
    spans[0].size = 40;
    check_all(&w, spans, MANY);
    close_world(&w);
    free(spans);
}

/* The text, instruction by instruction; also the check of the kernel runs by it. */
static void the_kernels_text_is_the_arithmetic(void **state)
{
    struct world w;
    struct device_span spans[40];
    char reason[512];
    (void)state;
    kit_fake_only_test();
    (void)kit_fake("reset; set text 1");
    open_world(&w, &(struct device_options){.gather_blocks_max = 3});
    assert_ok(device_sum_reason(w.device, 0, reason, sizeof(reason)));
    assert_string_equal(reason, "");
    draw(&w, spans, 40, 3000);
    check_all(&w, spans, 40);
    close_world(&w);
    (void)kit_fake("reset");
}

static void what_cannot_be_trusted_is_not_used(void **state)
{
    static const struct {
        const char *commands, *reason;
    } refusals[] = {
        {"set ptx 60", "Unsupported .version 6.4"},
        {"fail cuModuleLoadDataEx 1 218", "CUDA_ERROR_INVALID_PTX"},
        {"fail cuModuleGetFunction 1 500", "cuModuleGetFunction of the checksum kernel"},
        {"fail cuLaunchKernel 1 1", "cuLaunchKernel of the checksum kernel"},
        {"set missing cuLaunchKernel", "the driver has no function cuLaunchKernel"},
        {"set samepointer 0", "another address"},
        {"set wrongsums 16384", "the kernel's checksum of 16384 bytes is "},
        {"set wrongsums 16", "the kernel's checksum of 16 bytes is "},
    };
    (void)state;
    kit_fake_only_test();
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct world w;
        struct device_sum *sum;
        char reason[512];
        (void)kit_fake("reset; set samepointer 1");
        (void)kit_fake(refusals[i].commands);
        open_world(&w, NULL);
        struct device_span span = {w.gpu, 5000};
        assert_status(device_sum_begin(w.device, 0, &span, 1, &sum), YOLK_ERR_UNSUPPORTED);
        assert_error_text(refusals[i].reason);
        assert_null(sum);
        assert_ok(device_sum_reason(w.device, 0, reason, sizeof(reason)));
        if (strstr(reason, refusals[i].reason) == NULL)
            fail_msg("%s: %s", refusals[i].commands, reason);
        close_world(&w);
    }
    (void)kit_fake("reset; set samepointer 1");
}

/* One failure is one sum's. */
static void a_launch_that_fails_is_told(void **state)
{
    struct world w;
    struct device_sum *sum;
    (void)state;
    kit_fake_only_test();
    (void)kit_fake("reset");
    open_world(&w, NULL);
    struct device_span span = {w.gpu + 1, 50000};
    check_all(&w, &span, 1);
    (void)kit_fake("fail cuLaunchKernel 1 1");
    assert_true(device_sum_begin(w.device, 0, &span, 1, &sum) < 0);
    assert_null(sum);
    assert_error_text("cuLaunchKernel of the checksum kernel");
    check_all(&w, &span, 1);
    assert_status(device_sum_begin(w.device, 0, &span, 0, &sum), YOLK_ERR_INVALID);
    span.size = 0;
    assert_status(device_sum_begin(w.device, 0, &span, 1, &sum), YOLK_ERR_INVALID);
    close_world(&w);
}

/* Those that still run when nobody wants them are used again once they are over. */
static void too_many_at_once_are_refused(void **state)
{
    enum { MOST = 64 };
    struct world w;
    struct device_sum *sums[MOST], *more;
    (void)state;
    kit_fake_only_test();
    (void)kit_fake("reset");
    open_world(&w, NULL);
    struct device_span span = {w.gpu + 16, 3000};
    check_all(&w, &span, 1);
    (void)kit_fake("hold 1");
    for (int i = 0; i < MOST; i++)
        assert_status(device_sum_begin(w.device, 0, &span, 1, &sums[i]), 1);
    assert_status(device_sum_begin(w.device, 0, &span, 1, &more), YOLK_ERR_AGAIN);
    assert_error_text("64 lists of checksums");
    assert_status(device_sum_wait(sums[0], 1), YOLK_ERR_TIMEOUT);
    for (int i = 0; i < MOST; i++)
        device_sum_end(sums[i]);
    assert_status(device_sum_begin(w.device, 0, &span, 1, &more), YOLK_ERR_AGAIN);
    (void)kit_fake("hold 0");
    check_all(&w, &span, 1);
    /* What gives something back does not change what the thread's last error was. */
    assert_status(device_sum_begin(w.device, 0, &span, 0, &more), YOLK_ERR_INVALID);
    close_world(&w);
    assert_error_text("the checksum of nothing");
}

/* A GPU that is busy when the kernel is to be checked: no checksum before that is over. */
static void a_check_that_takes_long_is_waited_for_by_nobody(void **state)
{
    struct world w;
    struct device_sum *sum;
    char reason[512];
    (void)state;
    kit_fake_only_test();
    (void)kit_fake("reset");
    open_world(&w, NULL);
    struct device_span span = {w.gpu, 3000};
    (void)kit_fake("hold 1");
    for (int i = 0; i < 3; i++) {
        assert_status(device_sum_begin(w.device, 0, &span, 1, &sum), YOLK_ERR_AGAIN);
        assert_error_text("has not done the check");
    }
    assert_ok(device_sum_reason(w.device, 0, reason, sizeof(reason)));
    assert_non_null(strstr(reason, "has not done the check"));
    (void)kit_fake("hold 0");
    check_all(&w, &span, 1);
    close_world(&w);
}

/* The last one: the fake has the rest of it for good. */
static void a_gpu_that_fails_gives_no_checksum(void **state)
{
    struct world w;
    struct device_sum *sum;
    (void)state;
    kit_fake_only_test();
    (void)kit_fake("reset");
    open_world(&w, NULL);
    struct device_span span = {w.gpu, 3000};
    check_all(&w, &span, 1);
    (void)kit_fake("async 719 late");
    assert_status(device_sum_begin(w.device, 0, &span, 1, &sum), 1);
    assert_status(wait_for(sum), YOLK_ERR_STUCK);
    device_sum_end(sum);
    assert_status(device_sum_begin(w.device, 0, &span, 1, &sum), YOLK_ERR_SYSTEM);
    device_close(w.device);
    (void)kit_fake("late"); /* reads the list and writes there */
    (void)kit_fake("reset");
    free(w.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_and_the_definition_agree),
        cmocka_unit_test(a_list_that_is_full_is_gone_on_with),
        cmocka_unit_test(the_kernels_text_is_the_arithmetic),
        cmocka_unit_test(what_cannot_be_trusted_is_not_used),
        cmocka_unit_test(a_launch_that_fails_is_told),
        cmocka_unit_test(too_many_at_once_are_refused),
        cmocka_unit_test(a_check_that_takes_long_is_waited_for_by_nobody),
        cmocka_unit_test(a_gpu_that_fails_gives_no_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
