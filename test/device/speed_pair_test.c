/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider with memory of a NUMA node, and another process whose GPUs read it: large pieces,
 * chosen ranges of 4 KiB, both GPUs at once; and what that takes from copies between its GPUs and
 * from a kernel that computes. On the fake it only shows that all of it runs together and the bytes
 * are right; on real GPUs it prints ratios of one run.
 */
#include "links.h"

#include <pthread.h>

#include "cli/busy_ptx.h"
#include "platform/clock.h"

enum { DEADLINE_MS = 60000, RANGE = 4096, RANGES_MAX = 4096, LARGE = 8 << 20, GPUS_MAX = 2 };

/* How long each rate is looked at; on the fake, one round. */
static uint64_t look_ns(void)
{
    return kit_real() ? 500 * NS_PER_MS : 1;
}

static void provide(const struct role *role, int line)
{
    struct memory m = {.device = open_device(), .kind = (enum kind)role->kind};
    uint64_t size = memory_size();
    uint8_t *model = malloc(size);
    struct yolk_served *served = NULL;
    char text[64];
    CHECK(model != NULL);
    make_memory(&m, size);
    kit_fill(model, size, role->seed);
    kit_put(m.device, 0, m.pointer, model, size);
    struct yolk_engine *engine = open_engine("127.0.0.1");
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = m.pointer, .size = size, .segment = SEGMENT};
    CHECK_OK(yolk_engine_serve(engine, &serve, &served));
    say(line, yolk_served_endpoints(served));
    read_line(line, text, sizeof(text));
    yolk_engine_unserve(engine, served);
    CHECK_OK(yolk_engine_destroy(engine));
    free_memory(&m);
    device_unshare(m.device);
    free(model);
}

/* ---- readers: one a GPU ---- */

struct reader {
    struct device *device;
    struct yolk_engine *engine;
    uint64_t segment, size, seed;
    int gpu;
    uint8_t *memory;
    uint64_t piece;    /* RANGE: in no order */
    _Atomic bool stop; /* of one that reads in a thread of its own */
    _Atomic uint64_t rounds;
};

static void open_reader(struct reader *r, struct device *device, const struct role *role, int gpu)
{
    *r = (struct reader){.device = device, .size = memory_size(), .seed = role->seed, .gpu = gpu};
    r->memory = kit_gpu_alloc(device, gpu, r->size);
    r->engine = open_engine("127.0.0.1");
    CHECK_OK(yolk_engine_register(r->engine, r->memory, r->size));
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 1, r->size, role->text};
    CHECK_OK(yolk_engine_segment_open(r->engine, &descriptor, 7, &r->segment));
}

static void close_reader(struct reader *r)
{
    uint8_t *model = malloc(r->size), *now = malloc(r->size);
    CHECK(model != NULL && now != NULL);
    kit_fill(model, r->size, r->seed);
    kit_get(r->device, r->gpu, now, r->memory, r->size);
    CHECK(memcmp(model, now, r->size) == 0);
    free(model);
    free(now);
    CHECK_OK(yolk_engine_segment_close(r->engine, r->segment));
    CHECK_OK(yolk_engine_unregister(r->engine, r->memory, r->size));
    CHECK_OK(yolk_engine_destroy(r->engine));
    kit_gpu_free(r->device, r->gpu, r->memory);
}

static uint64_t begin_part(struct reader *r, uint64_t first, uint32_t count)
{
    static _Thread_local struct yolk_request requests[RANGES_MAX];
    static _Thread_local enum yolk_status verdicts[RANGES_MAX];
    uint64_t pieces = r->size / r->piece, batch;
    for (uint32_t i = 0; i < count; i++) {
        /* An odd number and a power of two: each once. */
        uint64_t offset = (first + i) * (r->piece == RANGE ? 40503 : 1) % pieces * r->piece;
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = r->memory + offset,
                                            .segment = r->segment,
                                            .offset = offset,
                                            .size = r->piece};
    }
    CHECK_OK(yolk_engine_batch_create(r->engine, count, &batch));
    CHECK_OK(yolk_engine_batch_submit(r->engine, batch, requests, count, verdicts, NULL));
    return batch;
}

static void end_part(struct reader *r, uint64_t batch)
{
    struct yolk_batch_status status;
    CHECK_OK(
        yolk_engine_batch_wait(r->engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    CHECK_OK(yolk_engine_batch_look(r->engine, batch, &status, NULL, 0));
    CHECK(status.worst == YOLK_OK);
    CHECK_OK(yolk_engine_batch_free(r->engine, batch));
}

/* One batch is made while the other one is moved. */
static void read_all(struct reader *r)
{
    uint64_t pieces = r->size / r->piece, before = 0;
    for (uint64_t first = 0; first < pieces; first += RANGES_MAX) {
        uint64_t left = pieces - first;
        uint64_t batch = begin_part(r, first, (uint32_t)(left < RANGES_MAX ? left : RANGES_MAX));
        if (first > 0)
            end_part(r, before);
        before = batch;
    }
    end_part(r, before);
    atomic_fetch_add(&r->rounds, 1);
}

static void *keep_reading(void *arg)
{
    struct reader *r = arg;
    while (!atomic_load(&r->stop))
        read_all(r);
    return NULL;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Bytes a second. */
static double read_rate(struct reader *r, uint64_t piece)
{
    uint64_t began = clock_real_now_ns(), rounds = 0, now;
    r->piece = piece;
    do {
        read_all(r);
        rounds++;
    } while ((now = clock_real_now_ns()) - began < look_ns());
    return (double)(rounds * r->size) * 1e9 / (double)(now - began);
}

/* All ranges of a batch but each 512th are moved as one with the one before, and a list of the
 * kernel has hundreds. */
static bool joined_ranges(struct reader *r)
{
    struct yolk_engine_stats before, after;
    struct device_figures lists_before, lists;
    yolk_engine_stats(r->engine, &before);
    device_figures(r->device, &lists_before);
    uint64_t began = cpu_ns();
    read_all(r);
    uint64_t took = cpu_ns() - began, ranges = r->size / RANGE;
    yolk_engine_stats(r->engine, &after);
    device_figures(r->device, &lists);
    uint64_t launches = lists.gather_launches - lists_before.gather_launches;
    if (kit_real())
        printf("FIGURE GPU %d reads of 4 KiB ranges: %.0f ns of a processor each, %.0f a launch\n",
               r->gpu, (double)took / (double)ranges, (double)ranges / (double)launches);
    return after.tasks_merged - before.tasks_merged >= ranges - ranges / 256 && launches > 0 &&
           launches <= ranges / 256;
}

/* ---- what they are beside ---- */

struct work {
    struct device *device;
    int gpu;
    cuda_stream stream;
    struct memory there; /* of the other GPU, where there is one */
    uint8_t *here;
    cuda_module module;
    cuda_function kernel;
};

static void open_work(struct work *w, struct device *device, int gpu)
{
    const struct cuda *cuda = device_cuda(device);
    struct device_scope scope;
    *w = (struct work){.device = device, .gpu = gpu};
    w->there = (struct memory){.device = device, .kind = BY_DESCRIPTOR};
    w->there.gpu = gpu_of(device, gpu == 0 ? 1 : 0);
    make_memory(&w->there, memory_size());
    w->here = kit_gpu_alloc(device, gpu, memory_size());
    CHECK_OK(device_enter(device, gpu, &scope));
    CHECK(cuda->stream_create(&w->stream, CUDA_STREAM_NON_BLOCKING) == CUDA_OK);
    CHECK(cuda->module_load_data_ex(&w->module, busy_ptx, 0, NULL, NULL) == CUDA_OK);
    CHECK(cuda->module_get_function(&w->kernel, w->module, "yolk_busy") == CUDA_OK);
    device_leave(device, &scope);
}

static void close_work(struct work *w)
{
    const struct cuda *cuda = device_cuda(w->device);
    struct device_scope scope;
    CHECK_OK(device_enter(w->device, w->gpu, &scope));
    CHECK(cuda->module_unload(w->module) == CUDA_OK);
    CHECK(cuda->stream_destroy(w->stream) == CUDA_OK);
    device_leave(w->device, &scope);
    kit_gpu_free(w->device, w->gpu, w->here);
    free_memory(&w->there);
}

static void copy_between(struct work *w)
{
    const struct cuda *cuda = device_cuda(w->device);
    uint64_t size = memory_size(), piece = size / 4;
    for (uint64_t at = 0; at < size; at += piece)
        CHECK(cuda->memcpy_async((uintptr_t)w->here + at, (uintptr_t)w->there.pointer + at, piece,
                                 w->stream) == CUDA_OK);
    CHECK(cuda->stream_synchronize(w->stream) == CUDA_OK);
}

static void compute(struct work *w)
{
    const struct cuda *cuda = device_cuda(w->device);
    cuda_pointer list = (uintptr_t)w->here;
    uint32_t count = kit_real() ? 20000 : 10;
    void *parameters[] = {&list, &count};
    unsigned grid = kit_real() ? 4096 : 2, block = kit_real() ? 256 : 32;
    CHECK(cuda->launch_kernel(w->kernel, grid, 1, 1, block, 1, 1, 0, w->stream, parameters, NULL) ==
          CUDA_OK);
    CHECK(cuda->stream_synchronize(w->stream) == CUDA_OK);
}

/* Rounds a second. */
static double work_rate(struct work *w, void (*once)(struct work *))
{
    struct device_scope scope;
    uint64_t began, now, rounds = 0;
    CHECK_OK(device_enter(w->device, w->gpu, &scope));
    once(w);
    began = clock_real_now_ns();
    do {
        once(w);
        rounds++;
    } while ((now = clock_real_now_ns()) - began < look_ns());
    device_leave(w->device, &scope);
    return (double)rounds * 1e9 / (double)(now - began);
}

/* Figures of the fake say nothing. */
static void tell_ratio(const char *what, int gpu, double ratio)
{
    if (kit_real())
        printf("FIGURE GPU %d %s: ratio %.3f\n", gpu, what, ratio);
}

static void beside(struct work *w, struct reader *r, uint64_t piece, void (*once)(struct work *),
                   const char *what)
{
    pthread_t thread;
    double alone = work_rate(w, once), reading = read_rate(r, piece), together;
    uint64_t before = atomic_load(&r->rounds);
    atomic_store(&r->stop, false);
    uint64_t began = clock_real_now_ns();
    CHECK(pthread_create(&thread, NULL, keep_reading, r) == 0);
    while (atomic_load(&r->rounds) == before) /* it does read by now */
        (void)work_rate(w, once);
    together = work_rate(w, once);
    atomic_store(&r->stop, true);
    pthread_join(thread, NULL);
    double seconds = (double)(clock_real_now_ns() - began) / 1e9;
    double rate = (double)((atomic_load(&r->rounds) - before) * r->size) / seconds;
    char text[128];
    snprintf(text, sizeof(text), "%s beside %s, to itself alone", what,
             piece == RANGE ? "reads of 4 KiB ranges" : "large reads");
    tell_ratio(text, w->gpu, together / alone);
    snprintf(text, sizeof(text), "%s beside %s, to themselves alone",
             piece == RANGE ? "reads of 4 KiB ranges" : "large reads", what);
    tell_ratio(text, r->gpu, rate / reading);
}

/* Of both at once, by a thread each. */
static double rate_of_two(struct reader *one, struct reader *other, uint64_t piece)
{
    pthread_t thread;
    uint64_t before = atomic_load(&other->rounds);
    other->piece = piece;
    atomic_store(&other->stop, false);
    uint64_t began = clock_real_now_ns();
    CHECK(pthread_create(&thread, NULL, keep_reading, other) == 0);
    double rate = read_rate(one, piece);
    atomic_store(&other->stop, true);
    pthread_join(thread, NULL);
    double seconds = (double)(clock_real_now_ns() - began) / 1e9;
    CHECK(atomic_load(&other->rounds) > before || !kit_real());
    return rate + (double)((atomic_load(&other->rounds) - before) * other->size) / seconds;
}

static void ranges_by_two_threads(struct reader *r, const struct role *role, double whole)
{
    struct reader second;
    open_reader(&second, r->device, role, r->gpu);
    second.piece = RANGE;
    read_all(&second);
    tell_ratio("reads of 4 KiB ranges by two threads, to large reads", r->gpu,
               rate_of_two(r, &second, RANGE) / whole);
    close_reader(&second);
}

static void consume(const struct role *role, int line)
{
    struct device *device = open_device();
    struct reader readers[GPUS_MAX];
    unsigned count = (unsigned)gpu_of(device, GPUS_MAX - 1) + 1;
    char text[64];
    for (unsigned i = 0; i < count; i++)
        open_reader(&readers[i], device, role, (int)i);
    const uint64_t large = LARGE > memory_size() ? memory_size() : LARGE;
    if (count > 1)
        tell_ratio("and the other one at once, to the sum of each alone", 0,
                   rate_of_two(&readers[0], &readers[1], large) /
                       (read_rate(&readers[0], large) + read_rate(&readers[1], large)));
    for (unsigned i = 0; i < count; i++) {
        struct work work;
        double whole = read_rate(&readers[i], large), ranges = read_rate(&readers[i], RANGE);
        tell_ratio("reads of 4 KiB ranges, to large reads", (int)i, ranges / whole);
        CHECK(joined_ranges(&readers[i]));
        ranges_by_two_threads(&readers[i], role, whole);
        open_work(&work, device, (int)i);
        beside(&work, &readers[i], large, copy_between, "copies between GPUs");
        beside(&work, &readers[i], RANGE, copy_between, "copies between GPUs");
        beside(&work, &readers[i], large, compute, "a kernel that computes");
        beside(&work, &readers[i], RANGE, compute, "a kernel that computes");
        close_work(&work);
    }
    for (unsigned i = 0; i < count; i++)
        close_reader(&readers[i]);
    device_unshare(device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count modules") == 0 &&
          kit_fake("count streams") == 0);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void a_pair(enum kind kind)
{
    struct role provider = {.run = provide, .kind = kind, .seed = 71};
    struct role consumer = {.run = consume, .kind = kind, .seed = 71};
    char text[TEXT];
    struct process p = begin(&provider);
    read_line(p.line, consumer.text, TEXT);
    if (consumer.text[0] == '\0' && kit_real()) {
        (void)end(&p);
        printf("SKIP: %s cannot be made here\n", kind_names[kind]);
        exit(77);
    }
    struct process c = begin(&consumer);
    read_line(c.line, text, sizeof(text));
    assert_string_equal(text, "done");
    assert_int_equal(end(&c), 0);
    assert_int_equal(end(&p), 0);
}

static void reads_of_a_tier_beside_other_work(void **state)
{
    (void)state;
    a_pair(NUMA_DESCRIPTOR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_of_a_tier_beside_other_work),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
