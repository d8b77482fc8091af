/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one process that the GPUs of another copy from and to. Each process is forked before
 * anybody uses CUDA, and opens the driver itself; this one never does.
 *
 * On the fake driver there are two GPUs. On real ones the figures are ratios to plain copies of the
 * same run.
 */
#include "links.h"

#include <sched.h>

#include "platform/clock.h"

enum { DEADLINE_MS = 60000, REQUESTS = 16, GPU_0 = 0 };

/* ---- what all of them do ---- */

static struct process begin_provider(struct role *role, char text[TEXT])
{
    struct process p = begin(role);
    read_line(p.line, text, TEXT);
    return p;
}

static void put(struct device *device, int gpu, void *to, const void *from, uint64_t size)
{
    kit_put(device, gpu, to, from, size);
}

/* ---- the provider ---- */

/* Serves memory filled from `seed`; at the line "check N" the memory must be as filled from N. */
static void provide(const struct role *role, int line)
{
    struct memory m = {.device = open_device(), .kind = (enum kind)role->kind};
    uint64_t size = memory_size();
    uint8_t *model = malloc(size), *now = malloc(size);
    struct yolk_served *served;
    struct device_figures before, after;
    char text[64];
    CHECK(model != NULL && now != NULL);
    m.gpu = gpu_of(m.device, role->gpu);
    make_memory(&m, size);
    kit_fill(model, size, role->seed);
    put(m.device, m.gpu, m.pointer, model, size);
    struct yolk_engine *engine = open_engine("127.0.0.1");
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = m.pointer, .size = size, .segment = SEGMENT};
    device_figures(m.device, &before);
    CHECK_OK(yolk_engine_serve(engine, &serve, &served));
    say(line, yolk_served_endpoints(served));
    for (read_line(line, text, sizeof(text)); text[0] != '\0';
         read_line(line, text, sizeof(text))) {
        uint64_t seed = strtoull(text + strlen("check "), NULL, 10);
        kit_fill(model, size, seed);
        kit_get(m.device, m.gpu, now, m.pointer, size);
        say(line, memcmp(model, now, size) == 0 ? "same" : "different");
    }
    device_figures(m.device, &after);
    /* The bytes went past this process. */
    CHECK(after.engine_bytes == before.engine_bytes && after.gather_bytes == before.gather_bytes);
    yolk_engine_unserve(engine, served);
    CHECK_OK(yolk_engine_destroy(engine));
    free_memory(&m);
    device_unshare(m.device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    free(model);
    free(now);
}

/* ---- the consumer ---- */

struct consumer {
    struct device *device;
    struct yolk_engine *engine;
    uint64_t segment;
    int gpu;
    uint8_t *memory; /* of the GPU, registered */
    uint8_t *model, *now;
    uint64_t size;
};

static void open_consumer(struct consumer *c, const struct role *role)
{
    *c = (struct consumer){.device = open_device(), .size = memory_size()};
    c->gpu = gpu_of(c->device, role->gpu);
    c->model = malloc(c->size);
    c->now = malloc(c->size);
    CHECK(c->model != NULL && c->now != NULL);
    c->memory = kit_gpu_alloc(c->device, c->gpu, c->size);
    memset(c->now, 0xee, c->size);
    put(c->device, c->gpu, c->memory, c->now, c->size);
    c->engine = open_engine("127.0.0.1");
    CHECK_OK(yolk_engine_register(c->engine, c->memory, c->size));
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 1, c->size, role->text};
    CHECK_OK(yolk_engine_segment_open(c->engine, &descriptor, 7, &c->segment));
}

static void close_consumer(struct consumer *c)
{
    CHECK_OK(yolk_engine_segment_close(c->engine, c->segment));
    CHECK_OK(yolk_engine_unregister(c->engine, c->memory, c->size));
    CHECK_OK(yolk_engine_destroy(c->engine));
    kit_gpu_free(c->device, c->gpu, c->memory);
    device_unshare(c->device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count ipc") == 0 &&
          kit_fake("count handles") == 0 && kit_fake("count reserved") == 0);
    free(c->model);
    free(c->now);
}

/* All of it, in pieces of these bytes; its status and, if asked for, bytes a second. */
static int move(struct consumer *c, enum yolk_opcode opcode, uint64_t piece, double *rate)
{
    uint32_t count = (uint32_t)((c->size + piece - 1) / piece);
    struct yolk_request *requests = calloc(count, sizeof(*requests));
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    struct yolk_batch_status status;
    uint64_t batch;
    CHECK(requests != NULL && verdicts != NULL);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = i * piece, left = c->size - offset;
        requests[i] = (struct yolk_request){.opcode = opcode,
                                            .local = c->memory + offset,
                                            .segment = c->segment,
                                            .offset = offset,
                                            .size = left < piece ? left : piece};
    }
    CHECK_OK(yolk_engine_batch_create(c->engine, count, &batch));
    uint64_t began = clock_real_now_ns();
    (void)!yolk_engine_batch_submit(c->engine, batch, requests, count, verdicts, NULL);
    CHECK_OK(
        yolk_engine_batch_wait(c->engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    uint64_t took = clock_real_now_ns() - began;
    CHECK_OK(yolk_engine_batch_look(c->engine, batch, &status, NULL, 0));
    CHECK_OK(yolk_engine_batch_free(c->engine, batch));
    if (rate != NULL)
        *rate = (double)c->size * 1e9 / (double)(took > 0 ? took : 1);
    free(requests);
    free(verdicts);
    return status.worst;
}

static void expect(struct consumer *c, uint64_t seed)
{
    kit_fill(c->model, c->size, seed);
    kit_get(c->device, c->gpu, c->now, c->memory, c->size);
    CHECK(memcmp(c->model, c->now, c->size) == 0);
}

static void fill(struct consumer *c, uint64_t seed)
{
    kit_fill(c->model, c->size, seed);
    put(c->device, c->gpu, c->memory, c->model, c->size);
}

/* A loop of plain asynchronous copies between memory of this process, as fast as they can be. */
static double plain_rate(struct consumer *c, enum kind kind, enum yolk_opcode opcode)
{
    struct memory m = {.device = c->device, .kind = kind, .gpu = GPU_0};
    struct device_scope scope;
    const struct cuda *cuda = device_cuda(c->device);
    cuda_stream stream;
    uint64_t piece = c->size / REQUESTS, best = UINT64_MAX;
    if (!is_numa(kind))
        m.kind = BY_DESCRIPTOR; /* reached by the other GPU without switching peers on */
    make_memory(&m, c->size);
    CHECK_OK(device_enter(c->device, c->gpu, &scope));
    CHECK(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_OK);
    for (int round = 0; round < 4; round++) {
        uint64_t began = clock_real_now_ns();
        for (uint64_t i = 0; i < REQUESTS; i++) {
            uint64_t here = (uintptr_t)c->memory + i * piece;
            uint64_t there = (uintptr_t)m.pointer + i * piece;
            bool read = opcode == YOLK_READ;
            CHECK(cuda->memcpy_async(read ? here : there, read ? there : here, piece, stream) ==
                  CUDA_OK);
        }
        CHECK(cuda->stream_synchronize(stream) == CUDA_OK);
        uint64_t took = clock_real_now_ns() - began;
        best = took < best ? took : best;
    }
    CHECK(cuda->stream_destroy(stream) == CUDA_OK);
    device_leave(c->device, &scope);
    free_memory(&m);
    return (double)c->size * 1e9 / (double)(best > 0 ? best : 1);
}

static void report(struct consumer *c, enum kind kind, enum yolk_opcode opcode)
{
    double best = 0, rate;
    for (int round = 0; round < 4; round++) {
        CHECK_OK(move(c, opcode, c->size / REQUESTS, &rate));
        best = rate > best ? rate : best;
    }
    double plain = plain_rate(c, kind, opcode);
    printf("FIGURE GPU %d %s %s: %.1f GB/s, plain copies %.1f GB/s, ratio %.3f\n", c->gpu,
           opcode == YOLK_READ ? "reads" : "writes", kind_names[kind], best / 1e9, plain / 1e9,
           best / plain);
}

static void consume(const struct role *role, int line)
{
    struct consumer c;
    struct nvlink_figures figures;
    char text[64];
    open_consumer(&c, role);
    uint64_t began = clock_real_now_ns();
    CHECK_OK(move(&c, YOLK_READ, c.size / REQUESTS, NULL));
    uint64_t first = clock_real_now_ns() - began;
    expect(&c, role->seed);
    nvlink_figures(&figures);
    CHECK(figures.imports == 1);
    /* Again, by what is there; in small pieces, by the kernel. */
    began = clock_real_now_ns();
    CHECK_OK(move(&c, YOLK_READ, c.size / REQUESTS, NULL));
    printf("FIGURE GPU %d reads %s: first %.2f ms, then %.2f ms\n", c.gpu, kind_names[role->kind],
           (double)first / 1e6, (double)(clock_real_now_ns() - began) / 1e6);
    fill(&c, role->seed + 1);
    CHECK_OK(move(&c, YOLK_WRITE, c.size / REQUESTS, NULL));
    fill(&c, 99);
    CHECK_OK(move(&c, YOLK_READ, 65536 + 4096, NULL));
    expect(&c, role->seed + 1);
    nvlink_figures(&figures);
    /* The reading and the writing link share it. */
    CHECK(figures.imports == 1 && figures.import_reuses == 1 && figures.bytes_by_processor == 0);
    say(line, "done");
    read_line(line, text, sizeof(text));
    if (kit_real()) {
        report(&c, (enum kind)role->kind, YOLK_READ);
        report(&c, (enum kind)role->kind, YOLK_WRITE);
    }
    close_consumer(&c);
}

/* ---- the tests ---- */

/* What the driver lets nobody make here; "" if it does. */
static void ask_probe(const struct role *role, int line)
{
    struct device *device = open_device();
    struct device_scope scope;
    enum kind kind = (enum kind)role->kind;
    const struct vmm_place place = {is_numa(kind) ? CUDA_LOCATION_HOST_NUMA : CUDA_LOCATION_DEVICE,
                                    0};
    char text[600] = "yes";
    CHECK_OK(device_enter(device, 0, &scope));
    if (role->kind != BY_IPC && vmm_probe(device_cuda(device), place, handle_of(kind)) != YOLK_OK)
        snprintf(text, sizeof(text), "%s", yolk_last_error());
    device_leave(device, &scope);
    CHECK(kit_fake("count handles") == 0);
    device_unshare(device);
    say(line, text);
}

static bool can(enum kind kind, const char *fake)
{
    char text[600];
    struct role role = {.run = ask_probe, .kind = kind, .fake = fake};
    struct process p = begin(&role);
    read_line(p.line, text, sizeof(text));
    int status = end(&p);
    if (status == 77) {
        printf("SKIP: no GPU\n");
        exit(77);
    }
    assert_int_equal(status, 0);
    if (strcmp(text, "yes") != 0)
        printf("%s cannot be made here: %s\n", kind_names[kind], text);
    return strcmp(text, "yes") == 0;
}

static void move_between_two(enum kind kind, const char *fake, const char *machine)
{
    struct role provider = {.run = provide, .kind = kind, .gpu = GPU_0, .seed = 11, .fake = fake};
    struct role consumer = {
        .run = consume, .kind = kind, .gpu = 1, .seed = 11, .fake = fake, .machine = machine};
    char answer[64];
    if (!can(kind, fake))
        return;
    struct process p = begin_provider(&provider, consumer.text);
    assert_string_not_equal(consumer.text, "");
    struct process c = begin(&consumer);
    read_line(c.line, answer, sizeof(answer));
    assert_string_equal(answer, "done");
    say(p.line, "check 12");
    read_line(p.line, answer, sizeof(answer));
    assert_string_equal(answer, "same");
    assert_int_equal(end(&c), 0);
    assert_int_equal(end(&p), 0);
}

static void a_gpu_by_descriptor(void **state)
{
    (void)state;
    move_between_two(BY_DESCRIPTOR, NULL, NULL);
}

static void a_gpu_by_ipc(void **state)
{
    (void)state;
    move_between_two(BY_IPC, NULL, NULL);
}

/* As PyTorch makes it where segments may grow: a range begins and ends within allocations. */
static void a_gpu_by_several_descriptors(void **state)
{
    (void)state;
    move_between_two(SEVERAL_DESCRIPTOR, NULL, NULL);
}

static void a_node_by_descriptor(void **state)
{
    (void)state;
    move_between_two(NUMA_DESCRIPTOR, NULL, NULL);
}

/* From one machine to another: no descriptor goes there, no socket of one folder is seen. */
static void by_fabric_handle(void **state)
{
    (void)state;
    if (!kit_real()) {
        move_between_two(BY_FABRIC, "set gpus 2; set fabric 1", "another");
        move_between_two(NUMA_FABRIC, "set gpus 2; set fabric 1", "another");
        move_between_two(SEVERAL_FABRIC, "set gpus 2; set fabric 1", "another");
        return;
    }
    move_between_two(BY_FABRIC, NULL, NULL);
    move_between_two(NUMA_FABRIC, NULL, NULL);
}

/* The answer of attribute 128 is yes, and no handle is made. */
static void c132_fabric_is_believed_only_when_it_works(void **state)
{
    (void)state;
    if (kit_real())
        return;
    assert_false(can(BY_FABRIC, "set fabric 0"));
    assert_false(can(NUMA_FABRIC, "set fabric 0"));
    assert_true(can(NUMA_FABRIC, "set fabric 1"));
}

static void several_consumers(void **state)
{
    (void)state;
    struct role provider = {.run = provide, .kind = NUMA_DESCRIPTOR, .gpu = GPU_0, .seed = 31};
    struct role consumer = {.run = consume, .kind = NUMA_DESCRIPTOR, .seed = 31};
    struct process p, c[2];
    char answer[64];
    if (!can(NUMA_DESCRIPTOR, NULL))
        return;
    p = begin_provider(&provider, consumer.text);
    /* Both write the same, and read while the other one does. */
    for (int i = 0; i < 2; i++) {
        consumer.gpu = i;
        c[i] = begin(&consumer);
        read_line(c[i].line, answer, sizeof(answer));
        assert_string_equal(answer, "done");
        consumer.seed++;
    }
    say(p.line, "check 33");
    read_line(p.line, answer, sizeof(answer));
    assert_string_equal(answer, "same");
    for (int i = 0; i < 2; i++)
        assert_int_equal(end(&c[i]), 0);
    assert_int_equal(end(&p), 0);
}

/* Reads until told otherwise; what it reads is of the first life, or an error. */
static void read_across_lives(const struct role *role, int line)
{
    struct consumer c;
    struct nvlink_figures figures;
    char text[TEXT];
    open_consumer(&c, role);
    CHECK_OK(move(&c, YOLK_READ, c.size, NULL));
    expect(&c, role->seed);
    say(line, "read");
    read_line(line, text, sizeof(text)); /* the first provider is dead now */
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    do { /* its connection ends, and with it the mapping */
        CHECK(clock_real_now_ns() < until);
        nvlink_figures(&figures);
        (void)sched_yield();
    } while (figures.unmaps == 0);
    CHECK(move(&c, YOLK_READ, c.size, NULL) != YOLK_OK);
    CHECK(kit_fake("count vmm") == 0);
    /* The next life, with the same segment id, at the same address perhaps. */
    CHECK_OK(yolk_engine_segment_close(c.engine, c.segment));
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 2, c.size, text};
    CHECK_OK(yolk_engine_segment_open(c.engine, &descriptor, 7, &c.segment));
    CHECK_OK(move(&c, YOLK_READ, c.size, NULL));
    expect(&c, role->seed + 1);
    nvlink_figures(&figures);
    CHECK(figures.imports == 2);
    close_consumer(&c);
}

static void c138_c139_a_killed_provider_and_its_next_life(void **state)
{
    (void)state;
    struct role provider = {.run = provide, .kind = BY_DESCRIPTOR, .gpu = GPU_0, .seed = 41};
    struct role consumer = {.run = read_across_lives, .gpu = 1, .seed = 41};
    char answer[64], second[TEXT];
    if (!can(BY_DESCRIPTOR, NULL))
        return;
    struct process p = begin_provider(&provider, consumer.text);
    struct process c = begin(&consumer);
    read_line(c.line, answer, sizeof(answer));
    assert_string_equal(answer, "read");
    assert_int_equal(kill(p.pid, SIGKILL), 0);
    assert_int_equal(end(&p), 128 + SIGKILL);
    provider.seed = 42;
    p = begin_provider(&provider, second);
    say(c.line, second);
    assert_int_equal(end(&c), 0);
    assert_int_equal(end(&p), 0);
}

/* What no other process could reach is refused when it is registered to be served. */
static void refuse(const struct role *role, int line)
{
    struct device *device = open_device();
    struct yolk_engine *engine = open_engine(NULL);
    struct yolk_served *served;
    struct device_scope scope;
    struct vmm vmm;
    void *heap = calloc(1, 4096);
    struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = heap, .size = 4096, .segment = SEGMENT};
    (void)role;
    CHECK(yolk_engine_serve(engine, &serve, &served) == YOLK_ERR_UNSUPPORTED);
    CHECK(strstr(yolk_last_error(), "host memory has no handle") != NULL);
    CHECK_OK(device_enter(device, 0, &scope));
    CHECK_OK(vmm_create(device_cuda(device), (struct vmm_place){CUDA_LOCATION_DEVICE, 0},
                        CUDA_HANDLE_NONE, 1, 2 << 20, 0, &vmm));
    device_leave(device, &scope);
    serve.memory = (void *)(uintptr_t)vmm.address;
    CHECK(yolk_engine_serve(engine, &serve, &served) == YOLK_ERR_UNSUPPORTED);
    CHECK(strstr(yolk_last_error(), "made with no handle") != NULL);
    serve.size = (2 << 20) + 1;
    CHECK(yolk_engine_serve(engine, &serve, &served) == YOLK_ERR_UNSUPPORTED);
    CHECK(strstr(yolk_last_error(), "2097152 bytes behind its start there is no memory") != NULL);
    CHECK_OK(yolk_engine_destroy(engine));
    CHECK_OK(device_enter(device, 0, &scope));
    CHECK_OK(vmm_release(&vmm));
    device_leave(device, &scope);
    device_unshare(device);
    CHECK(kit_fake("count handles") == 0);
    free(heap);
    say(line, "refused");
}

static void c134_what_peers_could_not_reach_is_refused(void **state)
{
    (void)state;
    struct role role = {.run = refuse};
    char answer[64];
    struct process p = begin(&role);
    read_line(p.line, answer, sizeof(answer));
    assert_string_equal(answer, "refused");
    assert_int_equal(end(&p), 0);
}

/* The provider sees GPU 0 of the machine, the consumer its GPUs 2 and 3, which it calls 0 and 1. */
static void c136_each_process_counts_gpus_in_its_own_way(void **state)
{
    (void)state;
    struct role provider = {.run = provide, .kind = BY_IPC, .seed = 51, .fake = "set gpus 1"};
    struct role consumer = {
        .run = consume, .kind = BY_IPC, .gpu = 1, .seed = 51, .fake = "set gpus 2; set first 2"};
    char answer[64];
    if (kit_real())
        return; /* what CUDA_VISIBLE_DEVICES says is read once, by a driver that is loaded */
    struct process p = begin_provider(&provider, consumer.text);
    struct process c = begin(&consumer);
    read_line(c.line, answer, sizeof(answer));
    assert_string_equal(answer, "done");
    say(p.line, "check 52");
    read_line(p.line, answer, sizeof(answer));
    assert_string_equal(answer, "same");
    assert_int_equal(end(&c), 0);
    assert_int_equal(end(&p), 0);
}

/* A driver that does not come back from unmapping holds up nobody else. */
static void hang(const struct role *role, int line)
{
    struct consumer c;
    struct nvlink_figures figures;
    open_consumer(&c, role);
    CHECK_OK(move(&c, YOLK_READ, c.size, NULL));
    (void)kit_fake("fail cuMemUnmap 1 999");
    CHECK_OK(yolk_engine_segment_close(c.engine, c.segment));
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    do { /* it fails at first, and is tried again in the background */
        CHECK(clock_real_now_ns() < until);
        nvlink_figures(&figures);
        (void)sched_yield();
    } while (figures.unmaps == 0);
    CHECK(figures.unmaps_failed >= 1);
    /* It hangs: the segment is closed, another is opened and read all the same. */
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 1, c.size, role->text};
    CHECK_OK(yolk_engine_segment_open(c.engine, &descriptor, 7, &c.segment));
    CHECK_OK(move(&c, YOLK_READ, c.size, NULL));
    (void)kit_fake("stall cuMemUnmap");
    CHECK_OK(yolk_engine_segment_close(c.engine, c.segment));
    CHECK_OK(yolk_engine_segment_open(c.engine, &descriptor, 7, &c.segment));
    CHECK_OK(move(&c, YOLK_READ, c.size, NULL));
    expect(&c, role->seed);
    (void)kit_fake("stall none");
    close_consumer(&c);
    say(line, "done");
}

static void c140_a_release_that_hangs_holds_up_nobody(void **state)
{
    (void)state;
    struct role provider = {.run = provide, .kind = BY_DESCRIPTOR, .gpu = GPU_0, .seed = 61};
    struct role consumer = {.run = hang, .gpu = 1, .seed = 61};
    char answer[64];
    if (kit_real())
        return;
    struct process p = begin_provider(&provider, consumer.text);
    struct process c = begin(&consumer);
    read_line(c.line, answer, sizeof(answer));
    assert_string_equal(answer, "done");
    assert_int_equal(end(&c), 0);
    assert_int_equal(end(&p), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_by_descriptor),
        cmocka_unit_test(a_gpu_by_ipc),
        cmocka_unit_test(a_gpu_by_several_descriptors),
        cmocka_unit_test(a_node_by_descriptor),
        cmocka_unit_test(by_fabric_handle),
        cmocka_unit_test(c132_fabric_is_believed_only_when_it_works),
        cmocka_unit_test(several_consumers),
        cmocka_unit_test(c138_c139_a_killed_provider_and_its_next_life),
        cmocka_unit_test(c134_what_peers_could_not_reach_is_refused),
        cmocka_unit_test(c136_each_process_counts_gpus_in_its_own_way),
        cmocka_unit_test(c140_a_release_that_hangs_holds_up_nobody),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
