/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host and GPU memory: exact, ordered where asked, and unnoticed by the caller. */
#include "kit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"

enum { AREA = 8 << 20, DEADLINE_MS = 30000 };

struct world {
    struct device *device;
    uint8_t *host, *gpu, *model; /* model: what the GPU's memory holds */
};

static void open_world(struct world *w, const struct device_options *options)
{
    void *host;
    w->device = kit_open(options);
    w->gpu = kit_gpu_alloc(w->device, 0, AREA);
    w->model = malloc(AREA);
    assert_ok(device_pinned_alloc(w->device, 0, AREA, &host));
    w->host = host;
    kit_fill(w->host, AREA, 1);
    kit_fill(w->model, AREA, 2);
    kit_put(w->device, 0, w->gpu, w->model, AREA);
}

static void close_world(struct world *w)
{
    kit_gpu_free(w->device, 0, w->gpu);
    device_pinned_free(w->device, w->host, AREA);
    free(w->model);
    kit_close(w->device);
}

static int finish(struct device_transfer *transfer)
{
    int status = device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), DEADLINE_MS));
    if (status == YOLK_ERR_TIMEOUT)
        fail_msg("the transfer does not end");
    if (device_transfer_free(transfer) != YOLK_OK)
        fail_msg("an ended transfer is busy");
    return status;
}

static int run(struct world *w, const struct device_copy *copies, size_t count,
               const struct device_copy_options *options)
{
    int status = YOLK_OK;
    while (count > 0 && status == YOLK_OK) {
        struct device_transfer *transfer;
        long taken = device_copy(w->device, 0, copies, count, options, &transfer);
        if (taken <= 0)
            return taken == 0 ? YOLK_ERR_SYSTEM : (int)taken;
        status = finish(transfer);
        copies += taken;
        count -= (size_t)taken;
    }
    return status;
}

/* Blocks of many sizes and alignments that do not touch each other, in drawn order. */
static size_t draw_copies(struct world *w, uint64_t *seed, bool to_gpu, struct device_copy *out,
                          size_t max)
{
    static const uint64_t sizes[] = {1,     3,     4,      15,     16,     17,    100,   512,
                                     4095,  4096,  4097,   8192,   16384,  16388, 20000, 65536,
                                     65540, 99999, 262143, 262144, 300001, 0};
    size_t count = 0;
    uint64_t from = kit_draw(seed) % 64, to = kit_draw(seed) % 64;
    uint8_t *source = to_gpu ? w->host : w->gpu, *target = to_gpu ? w->gpu : w->host;
    while (count < max) {
        uint64_t size = sizes[kit_draw(seed) % (sizeof(sizes) / sizeof(sizes[0]))];
        uint64_t grain = kit_draw(seed) % 3 == 0 ? 1 : kit_draw(seed) % 2 == 0 ? 4 : 16;
        from = (from + grain - 1) / grain * grain;
        to = (to + grain - 1) / grain * grain;
        if (from + size > AREA || to + size > AREA)
            break;
        out[count++] = (struct device_copy){target + to, source + from, size};
        from += size + kit_draw(seed) % 40;
        to += size + kit_draw(seed) % 40;
    }
    for (size_t i = count; i > 1; i--) {
        size_t j = kit_draw(seed) % i;
        struct device_copy swap = out[i - 1];
        out[i - 1] = out[j];
        out[j] = swap;
    }
    return count;
}

static void check_both_ways(const struct device_options *options, unsigned rounds)
{
    enum { MAX = 3000 };
    struct world w;
    uint64_t seed = 42;
    struct device_copy *copies = malloc(MAX * sizeof(*copies));
    uint8_t *back = malloc(AREA);
    open_world(&w, options);
    for (unsigned round = 0; round < rounds; round++) {
        bool to_gpu = round % 2 == 0;
        struct device_copy_options how = {.direction = to_gpu ? DEVICE_TO_GPU : DEVICE_FROM_GPU};
        size_t count = draw_copies(&w, &seed, to_gpu, copies, MAX);
        assert_true(count > 100);
        uint8_t *expected = malloc(AREA);
        memcpy(expected, to_gpu ? w.model : w.host, AREA);
        for (size_t i = 0; i < count; i++) {
            if (to_gpu)
                memcpy(expected + ((uint8_t *)copies[i].to - w.gpu), copies[i].from,
                       copies[i].size);
            else
                memcpy(expected + ((uint8_t *)copies[i].to - w.host),
                       w.model + ((const uint8_t *)copies[i].from - w.gpu), copies[i].size);
        }
        assert_ok(run(&w, copies, count, &how));
        if (to_gpu) {
            kit_get(w.device, 0, back, w.gpu, AREA);
            assert_memory_equal(back, expected, AREA);
            memcpy(w.model, expected, AREA);
        } else {
            assert_memory_equal(w.host, expected, AREA);
        }
        free(expected);
    }
    free(back);
    free(copies);
    close_world(&w);
}

static void blocks_of_all_sizes_arrive(void **state)
{
    struct device_options never = {.gather_below = 1}, always = {.gather_below = 1 << 30};
    (void)state;
    check_both_ways(NULL, 2);
    check_both_ways(&never, 2);
    check_both_ways(&always, 2);
}

/* The text of the kernel, instruction by instruction: blocks of each alignment, each tail, and list
 * lengths around the number of warps. */
static void the_kernels_text_moves_the_bytes(void **state)
{
    static const unsigned counts[] = {2, 3, 15, 16, 17, 33, 70};
    struct world w;
    struct device_copy copies[70];
    uint64_t seed = 5;
    (void)state;
    if (kit_real())
        skip();
    (void)kit_fake("reset; set text 1");
    open_world(&w, &(struct device_options){.gather_below = 1 << 30, .gather_blocks_max = 3});
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        size_t from = 0, to = 0;
        uint8_t *shadow = kit_shadow(w.gpu, AREA), *expected = malloc(AREA);
        memset(shadow, 0xee, AREA);
        memset(expected, 0xee, AREA);
        for (unsigned i = 0; i < counts[c]; i++) {
            size_t grain = (size_t)1 << kit_draw(&seed) % 5;
            size_t size = 1 + kit_draw(&seed) % (i % 7 == 0 ? 20000 : 700);
            if (kit_draw(&seed) % 2 == 0)
                size = (size + grain - 1) / grain * grain;
            if (i % 3 == 0) { /* about the end of eight rounds */
                grain = 16;
                size = 3072 + kit_draw(&seed) % 96 * 16;
            }
            from = (from + grain) / grain * grain;
            to = (to + grain) / grain * grain;
            copies[i] = (struct device_copy){w.gpu + to, w.host + from, size};
            memcpy(expected + to, w.host + from, size);
            from += size;
            to += size;
        }
        assert_ok(run(&w, copies, counts[c], NULL));
        assert_memory_equal(shadow, expected, AREA);
        free(expected);
    }
    close_world(&w);
    (void)kit_fake("reset");
}

static void the_kernel_has_small_blocks_and_the_engine_large_ones(void **state)
{
    enum { COUNT = 24 };
    struct world w;
    struct device_copy copies[2 * COUNT];
    struct device_figures f;
    char reason[512];
    (void)state;
    (void)kit_fake("reset");
    open_world(&w, NULL);
    assert_ok(device_gather_reason(w.device, 0, reason, sizeof(reason)));
    assert_string_equal(reason, "");
    for (int i = 0; i < COUNT; i++) {
        copies[2 * i] = (struct device_copy){w.gpu + i * 4096, w.host + (COUNT - i) * 4096, 4096};
        copies[2 * i + 1] = (struct device_copy){w.gpu + (1 << 20) + i * 262144,
                                                 w.host + (1 << 20) + i * 262144, 262144};
    }
    assert_ok(run(&w, copies, 2 * COUNT, NULL));
    device_figures(w.device, &f);
    assert_int_equal(f.gather_launches, 1);
    assert_int_equal(f.gather_bytes, COUNT * 4096);
    assert_int_equal(f.engine_copies, COUNT);
    assert_int_equal(f.engine_bytes, COUNT * 262144);
    if (!kit_real())
        assert_int_equal(kit_fake("count batches"), 1);
    close_world(&w);
}

/* What a refused kernel or batch costs is the speed, not the copy. */
static void what_the_driver_refuses_is_done_otherwise(void **state)
{
    static const struct {
        const char *commands, *reason;
    } refusals[] = {
        {"set ptx 60", "UNSUPPORTED_PTX_VERSION (222): the provided PTX was compiled with an "
                       "unsupported toolchain.: ptxas fatal: Unsupported .version 6.4"},
        {"fail cuModuleLoadDataEx 1 218", "CUDA_ERROR_INVALID_PTX"},
        {"fail cuModuleGetFunction 1 500", "cuModuleGetFunction of the gather kernel"},
        {"set samepointer 0", "another address"},
        {"set missing cuLaunchKernel", "the driver has no function cuLaunchKernel"},
        {"set missing cuMemcpyBatchAsync", ""},
        {"fail cuMemcpyBatchAsync 1 801 0", ""},
    };
    struct world w;
    char reason[512];
    (void)state;
    if (kit_real())
        skip();
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct device_copy copies[] = {{NULL, NULL, 4096},
                                       {NULL, NULL, 100},
                                       {NULL, NULL, 300000},
                                       {NULL, NULL, 300000},
                                       {NULL, NULL, 3 << 20}};
        (void)kit_fake("reset; set samepointer 1");
        (void)kit_fake(refusals[i].commands);
        open_world(&w, NULL);
        for (size_t k = 0; k < 5; k++) {
            copies[k].to = w.gpu + k * (1 << 20);
            copies[k].from = w.host + k * (1 << 20) + 1;
        }
        assert_ok(run(&w, copies, 5, NULL));
        for (size_t k = 0; k < 5; k++)
            assert_memory_equal(kit_shadow(copies[k].to, copies[k].size), copies[k].from,
                                copies[k].size);
        assert_ok(device_gather_reason(w.device, 0, reason, sizeof(reason)));
        if (strstr(reason, refusals[i].reason) == NULL)
            fail_msg("%s: %s", refusals[i].commands, reason);
        if (refusals[i].reason[0] == '\0')
            assert_string_equal(reason, "");
        close_world(&w);
    }
    (void)kit_fake("reset; set samepointer 1");
}

/* A copy that waits for a stream or an event sees what was put there before, and others go past. */
static void copies_wait_for_a_stream_or_an_event(void **state)
{
    enum { BIG = 4 << 20 };
    struct world w;
    struct device_scope scope;
    cuda_stream stream;
    cuda_event event;
    (void)state;
    open_world(&w, NULL);
    const struct cuda *cuda = device_cuda(w.device);
    uint8_t *answer = w.host + BIG;
    for (int by_event = 0; by_event < 2; by_event++) {
        kit_fill(w.host, BIG, 7 + (uint64_t)by_event);
        (void)kit_fake("delay 5");
        assert_ok(device_enter(w.device, 0, &scope));
        assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
        assert_int_equal(cuda->event_create(&event, CUDA_EVENT_DISABLE_TIMING), CUDA_OK);
        for (int i = 0; i < 8; i++)
            assert_int_equal(cuda->memcpy_async((uintptr_t)w.gpu, (uintptr_t)w.host, BIG, stream),
                             CUDA_OK);
        assert_int_equal(cuda->event_record(event, stream), CUDA_OK);
        device_leave(w.device, &scope);
        struct device_copy copy = {answer, w.gpu + BIG - 4096, 4096};
        struct device_copy_options how = {.direction = DEVICE_FROM_GPU};
        if (by_event)
            how.after.event = event;
        else
            how.after.stream = stream;
        struct device_transfer *waits, *does_not;
        assert_status(device_copy(w.device, 0, &copy, 1, &how, &waits), 1);
        if (!kit_real()) {
            /* The stream is held up; what does not wait for it is over at once. */
            (void)kit_fake("delay 0");
            struct device_copy other = {answer + 8192, w.gpu + BIG, 4096};
            how.after = (struct device_order){0};
            assert_status(device_copy(w.device, 0, &other, 1, &how, &does_not), 1);
            assert_ok(device_transfer_poll(does_not));
            assert_status(device_transfer_poll(waits), YOLK_ERR_AGAIN);
            assert_status(device_transfer_free(waits), YOLK_ERR_BUSY);
            assert_ok(device_transfer_free(does_not));
        }
        assert_ok(finish(waits));
        assert_memory_equal(answer, w.host + BIG - 4096, 4096);
        assert_ok(device_enter(w.device, 0, &scope));
        assert_int_equal(cuda->stream_synchronize(stream), CUDA_OK);
        assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
        assert_int_equal(cuda->event_destroy(event), CUDA_OK);
        device_leave(w.device, &scope);
    }
    close_world(&w);
}

static void ordinary_memory_is_copied_too(void **state)
{
    struct world w;
    struct device_copy_options how = {.direction = DEVICE_TO_GPU, .pageable = true};
    (void)state;
    open_world(&w, NULL);
    uint8_t *heap = malloc(1 << 20), *back = malloc(1 << 20);
    kit_fill(heap, 1 << 20, 5);
    struct device_copy copies[] = {{w.gpu, heap, 4096}, {w.gpu + 4096, heap + 4096, 1044480}};
    assert_ok(run(&w, copies, 2, &how));
    how.direction = DEVICE_FROM_GPU;
    struct device_copy down = {back, w.gpu, 1 << 20};
    assert_ok(run(&w, &down, 1, &how));
    assert_memory_equal(back, heap, 1 << 20);
    how = (struct device_copy_options){.direction = DEVICE_WITHIN};
    struct device_copy within[] = {{w.gpu + (4 << 20), w.gpu, 1 << 20}, {w.gpu + 5, w.gpu + 9, 1}};
    assert_ok(run(&w, within, 1, &how));
    down.from = w.gpu + (4 << 20);
    memset(back, 0, 1 << 20);
    how = (struct device_copy_options){.direction = DEVICE_FROM_GPU, .pageable = true};
    assert_ok(run(&w, &down, 1, &how));
    assert_memory_equal(back, heap, 1 << 20);
    free(heap);
    free(back);
    close_world(&w);
}

/* More than the lists have room for: a part is taken, and nothing is lost. */
static void a_call_takes_what_it_has_room_for(void **state)
{
    enum { COUNT = 400000, SIZE = 16 };
    struct world w;
    struct device_transfer *transfers[2];
    (void)state;
    open_world(&w, NULL);
    struct device_copy *copies = malloc(COUNT * sizeof(*copies));
    for (size_t i = 0; i < COUNT; i++)
        copies[i] = (struct device_copy){w.gpu + i * SIZE, w.host + (COUNT - 1 - i) * SIZE, SIZE};
    long taken = device_copy(w.device, 0, copies, COUNT, NULL, &transfers[0]);
    assert_int_equal(taken, 32 * 8192);
    assert_status(
        device_copy(w.device, 0, copies + taken, COUNT - (size_t)taken, NULL, &transfers[1]),
        YOLK_ERR_AGAIN);
    assert_null(transfers[1]);
    assert_ok(finish(transfers[0]));
    assert_ok(run(&w, copies + taken, COUNT - (size_t)taken, NULL));
    kit_get(w.device, 0, w.model, w.gpu, AREA);
    for (size_t i = 0; i < COUNT; i++) {
        if (memcmp(w.model + i * SIZE, copies[i].from, SIZE) != 0)
            fail_msg("copy %zu", i);
    }
    assert_status(device_copy(w.device, 0, copies, 0, NULL, &transfers[0]), YOLK_ERR_INVALID);
    assert_status(device_copy(w.device, 9, copies, 1, NULL, &transfers[0]), YOLK_ERR_INVALID);
    struct device_copy_options wrong = {.direction = DEVICE_DIRECTIONS};
    assert_status(device_copy(w.device, 0, copies, 1, &wrong, &transfers[0]), YOLK_ERR_INVALID);
    free(copies);
    close_world(&w);
}

static void transfers_are_bounded(void **state)
{
    struct world w;
    struct device_transfer *transfers[DEVICE_TRANSFERS_MAX + 1];
    (void)state;
    open_world(&w, NULL);
    struct device_copy copy = {w.gpu, w.host, 4096};
    for (int i = 0; i < DEVICE_TRANSFERS_MAX; i++)
        assert_status(device_copy(w.device, 0, &copy, 1, NULL, &transfers[i]), 1);
    assert_status(device_copy(w.device, 0, &copy, 1, NULL, &transfers[DEVICE_TRANSFERS_MAX]),
                  YOLK_ERR_AGAIN);
    assert_error_text("256 transfers under way");
    for (int i = 0; i < DEVICE_TRANSFERS_MAX; i++)
        assert_ok(finish(transfers[i]));
    assert_ok(run(&w, &copy, 1, NULL));
    close_world(&w);
}

struct captured {
    struct world *w;
    int status;
};

static void *copy_meanwhile(void *arg)
{
    struct captured *c = arg;
    struct world *w = c->w;
    struct device_memory memory;
    void *pinned = NULL;
    struct device_copy copies[] = {{w->gpu, w->host, 4096}, {w->gpu + 8192, w->host + 8192, 4096}};
    c->status = run(w, copies, 2, NULL);
    if (c->status == YOLK_OK)
        c->status = device_query(w->device, w->gpu, &memory);
    if (c->status == YOLK_OK)
        c->status = device_pinned_alloc(w->device, 0, 1 << 20, &pinned);
    device_pinned_free(w->device, pinned, 1 << 20);
    return NULL;
}

/* A graph that the caller captures in global mode survives what the library does meanwhile, in its
 * thread and in others. */
static void a_global_capture_survives(void **state)
{
    struct world w;
    cuda_stream stream;
    cuda_graph graph = NULL;
    cuda_context context, current;
    pthread_t thread;
    int capturing = -1;
    (void)state;
    open_world(&w, NULL);
    const struct cuda *cuda = device_cuda(w.device);
    assert_int_equal(cuda->primary_ctx_retain(&context, 0), CUDA_OK);
    assert_int_equal(cuda->ctx_push_current(context), CUDA_OK);
    assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    assert_int_equal(cuda->stream_begin_capture(stream, CUDA_CAPTURE_GLOBAL), CUDA_OK);
    assert_int_equal(cuda->memcpy_async((uintptr_t)w.gpu, (uintptr_t)w.host, 4096, stream),
                     CUDA_OK);

    struct captured c = {&w, -1};
    (void)copy_meanwhile(&c);
    assert_ok(c.status);
    c.status = -1;
    assert_int_equal(pthread_create(&thread, NULL, copy_meanwhile, &c), 0);
    pthread_join(thread, NULL);
    assert_ok(c.status);
    /* To wait for a stream that captures would wait for nothing. */
    struct device_transfer *transfer;
    struct device_copy copy = {w.gpu, w.host, 4096};
    struct device_copy_options how = {.after.stream = stream};
    assert_status(device_copy(w.device, 0, &copy, 1, &how, &transfer), YOLK_ERR_BUSY);
    assert_error_text("captures a graph");

    assert_int_equal(cuda->ctx_get_current(&current), CUDA_OK);
    assert_ptr_equal(current, context);
    assert_int_equal(cuda->stream_is_capturing(stream, &capturing), CUDA_OK);
    assert_int_equal(capturing, CUDA_CAPTURE_ACTIVE);
    assert_int_equal(cuda->stream_end_capture(stream, &graph), CUDA_OK);
    assert_non_null(graph);
    assert_int_equal(cuda->graph_destroy(graph), CUDA_OK);
    assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
    assert_int_equal(cuda->ctx_pop_current(&current), CUDA_OK);
    assert_int_equal(cuda->primary_ctx_release(0), CUDA_OK);
    close_world(&w);
}

/* That the fake's memory faults is what makes its other tests worth something. */
static void the_processor_cannot_touch_the_fake_memory(void **state)
{
    (void)state;
    if (kit_real())
        skip();
    struct device *device = kit_open(NULL);
    volatile uint8_t *gpu = kit_gpu_alloc(device, 0, 4096);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's would answer otherwise */
        gpu[100] = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    kit_gpu_free(device, 0, (void *)(uintptr_t)gpu);
    kit_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_all_sizes_arrive),
        cmocka_unit_test(the_kernels_text_moves_the_bytes),
        cmocka_unit_test(the_kernel_has_small_blocks_and_the_engine_large_ones),
        cmocka_unit_test(what_the_driver_refuses_is_done_otherwise),
        cmocka_unit_test(copies_wait_for_a_stream_or_an_event),
        cmocka_unit_test(ordinary_memory_is_copied_too),
        cmocka_unit_test(a_call_takes_what_it_has_room_for),
        cmocka_unit_test(transfers_are_bounded),
        cmocka_unit_test(a_global_capture_survives),
        cmocka_unit_test(the_processor_cannot_touch_the_fake_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
