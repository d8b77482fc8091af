/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nvlink makes of a driver that fails: an error of each call of exporting, importing, mapping,
 * copying and unmapping, at each time it is made, once and for ever after. Nothing wrong is read,
 * nothing is left, nothing that succeeded is done again; what the driver does not give back is
 * asked for until it does, and the second end of an engine that failed the first time is one.
 */
#include "links.h"

#include <sched.h>

#include "platform/clock.h"

enum { DEADLINE_MS = 60000, TIMES_MAX = 6 };

/* Each way a call can go wrong, and what undoes what. */
static const char *const pairs[][2] = {{"cuMemImportFromShareableHandle", "cuMemRelease"},
                                       {"cuMemAddressReserve", "cuMemAddressFree"},
                                       {"cuMemMap", "cuMemUnmap"},
                                       {"cuIpcOpenMemHandle", "cuIpcCloseMemHandle"}};

static long calls(const char *name)
{
    char command[80];
    snprintf(command, sizeof(command), "calls %s", name);
    return kit_fake(command);
}

static void arm(const char *name, int nth, bool for_ever)
{
    char command[96];
    snprintf(command, sizeof(command), "fail %s %d 1 %d", name, nth, for_ever ? 0 : 1);
    (void)kit_fake(command);
}

static bool nothing_is_left(void)
{
    return kit_fake("count vmm") == 0 && kit_fake("count ipc") == 0 &&
           kit_fake("count handles") == 0 && kit_fake("count reserved") == 0;
}

/* ---- importing, mapping, copying, unmapping ---- */

struct scene {
    struct device *device;
    uint8_t *memory, *model, *now;
    uint64_t size;
    const char *text;
};

static enum yolk_status read_all(struct scene *s, struct yolk_engine *engine, uint64_t segment)
{
    const struct yolk_request request = {
        .opcode = YOLK_READ, .local = s->memory, .segment = segment, .size = s->size};
    enum yolk_status verdict;
    struct yolk_batch_status status;
    uint64_t batch;
    CHECK_OK(yolk_engine_batch_create(engine, 1, &batch));
    (void)!yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL);
    CHECK_OK(
        yolk_engine_batch_wait(engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    CHECK_OK(yolk_engine_batch_look(engine, batch, &status, NULL, 0));
    CHECK_OK(yolk_engine_batch_free(engine, batch));
    return status.worst;
}

/* An engine's whole life; in the middle of it a rule may begin. True: its end failed at first. */
static bool live(struct scene *s, const char *name, int nth, bool for_ever)
{
    struct yolk_engine *engine = open_engine("127.0.0.1");
    const struct yolk_segment_descriptor descriptor = {SEGMENT, 1, s->size, s->text};
    uint64_t segment;
    bool failed = false;
    struct device_scope scope;
    CHECK_OK(yolk_engine_register(engine, s->memory, s->size));
    memset(s->now, 0xee, s->size);
    kit_put(s->device, 0, s->memory, s->now, s->size);
    if (name != NULL)
        arm(name, nth, for_ever);
    enum yolk_status status = yolk_engine_segment_open(engine, &descriptor, 7, &segment);
    if (status == YOLK_OK) {
        status = read_all(s, engine, segment);
        if (status == YOLK_OK)
            status = read_all(s, engine, segment);
        CHECK_OK(yolk_engine_segment_close(engine, segment));
    }
    enum yolk_status first = yolk_engine_destroy(engine);
    (void)kit_fake("disarm");
    if (first != YOLK_OK) {
        failed = true;
        CHECK(strstr(yolk_last_error(), "did not stop") != NULL);
        CHECK_OK(yolk_engine_destroy(engine));
    }
    CHECK(nothing_is_left());
    if (device_enter(s->device, 0, &scope) != YOLK_OK) {
        CHECK(status != YOLK_OK); /* a copy failed, and the GPU takes no work any more */
        return failed;
    }
    device_leave(s->device, &scope);
    kit_get(s->device, 0, s->now, s->memory, s->size);
    if (status == YOLK_OK)
        CHECK(memcmp(s->now, s->model, s->size) == 0);
    return failed;
}

/* With a rule that hit once: what was made was undone as often, but for the one try that failed. */
static void check_pairs(const long before[][2], const char *name, bool hit)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        long made = calls(pairs[i][0]) - before[i][0], undone = calls(pairs[i][1]) - before[i][1];
        if (hit && strcmp(pairs[i][0], name) == 0)
            made--;
        if (hit && strcmp(pairs[i][1], name) == 0)
            undone--;
        if (strcmp(pairs[i][1], "cuMemRelease") != 0) /* which others take too */
            CHECK(made == undone);
    }
}

static void open_scene(struct scene *s, const struct role *role)
{
    *s = (struct scene){.device = open_device(), .size = memory_size(), .text = role->text};
    s->model = malloc(s->size);
    s->now = malloc(s->size);
    CHECK(s->model != NULL && s->now != NULL);
    s->memory = kit_gpu_alloc(s->device, 0, s->size);
    kit_fill(s->model, s->size, role->seed);
}

static void close_scene(struct scene *s)
{
    struct device_scope scope;
    if (device_enter(s->device, 0, &scope) == YOLK_OK) {
        CHECK(device_cuda(s->device)->mem_free((uintptr_t)s->memory) == CUDA_OK);
        device_leave(s->device, &scope);
    }
    device_unshare(s->device);
    free(s->model);
    free(s->now);
}

static void import_with_faults(const struct role *role, int line)
{
    static const char *const names[] = {"cuMemImportFromShareableHandle",
                                        "cuMemGetAllocationPropertiesFromHandle",
                                        "cuMemAddressReserve",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemUnmap",
                                        "cuMemAddressFree",
                                        "cuMemRelease",
                                        "cuIpcOpenMemHandle",
                                        "cuIpcCloseMemHandle"};
    struct scene s;
    unsigned failed_ends = 0, tried = 0;
    open_scene(&s, role);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        long was = calls(names[i]);
        CHECK(!live(&s, NULL, 0, false));
        int times = (int)(calls(names[i]) - was);
        for (int nth = 1; nth <= times && nth <= TIMES_MAX; nth++) {
            long before[sizeof(pairs) / sizeof(pairs[0])][2];
            for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++)
                for (int side = 0; side < 2; side++)
                    before[p][side] = calls(pairs[p][side]);
            was = calls(names[i]);
            failed_ends += live(&s, names[i], nth, false);
            check_pairs(before, names[i], calls(names[i]) - was >= nth);
            failed_ends += live(&s, names[i], nth, true);
            tried += 2;
        }
    }
    CHECK(tried > 2 && failed_ends > 0);
    close_scene(&s);
    say(line, "done");
}

/* One process each: a GPU that failed to copy is not used again. */
static const char *copy_name;
static int copy_nth;

static void copy_with_a_fault(const struct role *role, int line)
{
    struct scene s;
    open_scene(&s, role);
    (void)live(&s, copy_name, copy_nth, role->kind == 1);
    close_scene(&s);
    say(line, "done");
}

/* Serves until it is told to end. */
static void provide(const struct role *role, int line)
{
    struct memory m = {.device = open_device(), .kind = (enum kind)role->kind};
    uint64_t size = memory_size();
    uint8_t *model = malloc(size);
    struct yolk_served *served;
    char text[64];
    CHECK(model != NULL);
    m.gpu = gpu_of(m.device, 0);
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

static void at_each_call_of_importing(void **state)
{
    static const enum kind kinds[] = {BY_DESCRIPTOR, SEVERAL_DESCRIPTOR, BY_IPC};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role provider = {.run = provide, .kind = kinds[i], .seed = 71};
        struct role consumer = {.run = import_with_faults, .kind = kinds[i], .seed = 71};
        char answer[64];
        struct process p = begin(&provider);
        read_line(p.line, consumer.text, TEXT);
        struct process c = begin(&consumer);
        read_line(c.line, answer, sizeof(answer));
        assert_string_equal(answer, "done");
        assert_int_equal(end(&c), 0);
        assert_int_equal(end(&p), 0);
    }
}

static void at_each_call_of_copying(void **state)
{
    static const char *const names[] = {"cuMemcpyAsync",   "cuMemcpyBatchAsync", "cuStreamCreate",
                                        "cuEventCreate",   "cuEventRecord",      "cuEventQuery",
                                        "cuCtxPushCurrent"};
    struct role provider = {.run = provide, .kind = BY_DESCRIPTOR, .seed = 72};
    struct role consumer = {.run = copy_with_a_fault, .seed = 72};
    char answer[64];
    (void)state;
    struct process p = begin(&provider);
    read_line(p.line, consumer.text, TEXT);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (copy_nth = 1; copy_nth <= 3; copy_nth++) {
            for (consumer.kind = 0; consumer.kind < 2; consumer.kind++) {
                copy_name = names[i];
                struct process c = begin(&consumer);
                read_line(c.line, answer, sizeof(answer));
                assert_string_equal(answer, "done");
                assert_int_equal(end(&c), 0);
            }
        }
    }
    assert_int_equal(end(&p), 0);
}

/* ---- exporting ---- */

static void export_with_faults(const struct role *role, int line)
{
    static const char *const names[] = {"cuPointerGetAttributes",
                                        "cuMemRetainAllocationHandle",
                                        "cuMemGetAllocationPropertiesFromHandle",
                                        "cuMemExportToShareableHandle",
                                        "cuMemRelease",
                                        "cuIpcGetMemHandle"};
    struct memory m = {.device = open_device(), .kind = (enum kind)role->kind};
    uint64_t size = memory_size();
    unsigned refused = 0, failed_ends = 0;
    make_memory(&m, size);
    long vmm = kit_fake("count vmm"), handles = kit_fake("count handles");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (int nth = 1; nth <= 2 * TIMES_MAX; nth++) {
            struct yolk_engine *engine = open_engine("127.0.0.1");
            const struct yolk_serve_options serve = {.struct_size = sizeof(serve),
                                                     .memory = m.pointer,
                                                     .size = size,
                                                     .segment = SEGMENT};
            struct yolk_served *served;
            arm(names[i], (nth + 1) / 2, nth % 2 == 0);
            enum yolk_status status = yolk_engine_serve(engine, &serve, &served);
            if (status == YOLK_OK)
                yolk_engine_unserve(engine, served);
            else
                CHECK(strstr(yolk_last_error(), "nvlink") != NULL);
            refused += status != YOLK_OK;
            enum yolk_status ended = yolk_engine_destroy(engine);
            (void)kit_fake("disarm");
            if (ended != YOLK_OK) {
                failed_ends++;
                CHECK_OK(yolk_engine_destroy(engine));
            }
            CHECK(kit_fake("count vmm") == vmm);
        }
    }
    CHECK(refused > 0 && (m.kind == BY_IPC || failed_ends > 0));
    free_memory(&m);
    /* A query that could not release what it had looked at keeps it. */
    CHECK(kit_fake("count handles") <= handles);
    device_unshare(m.device);
    say(line, "done");
}

static void at_each_call_of_exporting(void **state)
{
    static const enum kind kinds[] = {BY_DESCRIPTOR, SEVERAL_DESCRIPTOR, BY_IPC};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role role = {.run = export_with_faults, .kind = kinds[i]};
        char answer[64];
        struct process p = begin(&role);
        read_line(p.line, answer, sizeof(answer));
        assert_string_equal(answer, "done");
        assert_int_equal(end(&p), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_each_call_of_importing),
        cmocka_unit_test(at_each_call_of_copying),
        cmocka_unit_test(at_each_call_of_exporting),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    kit_fake_only();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
