/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings of memory of peers over the lives of that memory: none is used for another one, none is
 * left, one is made however many ask at once, and none goes while a copy runs. */
#include "links.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>

#include "platform/clock.h"

enum { DEADLINE_MS = 60000, PIECE = 65536, THREADS = 8 };

static long files_open(void)
{
    long count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static enum yolk_status submit(struct yolk_engine *engine, uint64_t segment, void *local,
                               uint64_t *batch)
{
    const struct yolk_request request = {
        .opcode = YOLK_READ, .local = local, .segment = segment, .size = PIECE};
    enum yolk_status verdict;
    CHECK_OK(yolk_engine_batch_create(engine, 1, batch));
    return yolk_engine_batch_submit(engine, *batch, &request, 1, &verdict, NULL);
}

static enum yolk_status finish(struct yolk_engine *engine, uint64_t batch)
{
    struct yolk_batch_status status;
    CHECK_OK(
        yolk_engine_batch_wait(engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    CHECK_OK(yolk_engine_batch_look(engine, batch, &status, NULL, 0));
    CHECK_OK(yolk_engine_batch_free(engine, batch));
    return status.worst;
}

static enum yolk_status read_some(struct yolk_engine *engine, uint64_t segment, void *local)
{
    uint64_t batch;
    (void)!submit(engine, segment, local, &batch);
    return finish(engine, batch);
}

/* ---- the provider: the line "again" begins the memory's next life, under the next id ---- */

static void provide(const struct role *role, int line)
{
    struct memory m = {.device = open_device(), .kind = (enum kind)role->kind};
    uint64_t size = memory_size();
    uint8_t *model = malloc(PIECE);
    struct yolk_served *served = NULL;
    char text[64];
    CHECK(model != NULL);
    m.gpu = gpu_of(m.device, 0);
    make_memory(&m, size);
    struct yolk_engine *engine = open_engine("127.0.0.1");
    struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = m.pointer, .size = size};
    long files = 0, handles = 0;
    for (uint64_t life = 0;; life++) {
        kit_fill(model, PIECE, role->seed + life);
        kit_put(m.device, m.gpu, m.pointer, model, PIECE);
        serve.segment = SEGMENT + life;
        CHECK_OK(yolk_engine_serve(engine, &serve, &served));
        if (life == 1) { /* the first one opened the socket */
            files = files_open();
            handles = kit_fake("count handles");
        }
        say(line, yolk_served_endpoints(served));
        read_line(line, text, sizeof(text));
        if (text[0] == '\0')
            break;
        yolk_engine_unserve(engine, served);
    }
    /* Some connections of consumers may not have been noticed as closed yet. */
    CHECK(files == 0 || files_open() <= files + 4);
    CHECK(files == 0 || kit_fake("count handles") == handles);
    yolk_engine_unserve(engine, served);
    CHECK_OK(yolk_engine_destroy(engine));
    free_memory(&m);
    device_unshare(m.device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    free(model);
}

/* ---- consumers ---- */

struct consumer {
    struct device *device;
    struct yolk_engine *engine;
    uint8_t *memory, *model, *now;
};

static void open_consumer(struct consumer *c)
{
    *c = (struct consumer){.device = open_device()};
    c->model = malloc(PIECE);
    c->now = malloc(PIECE);
    CHECK(c->model != NULL && c->now != NULL);
    c->memory = kit_gpu_alloc(c->device, 0, THREADS * PIECE);
    c->engine = open_engine("127.0.0.1");
    CHECK_OK(yolk_engine_register(c->engine, c->memory, THREADS * PIECE));
}

static void close_consumer(struct consumer *c)
{
    CHECK_OK(yolk_engine_unregister(c->engine, c->memory, THREADS * PIECE));
    CHECK_OK(yolk_engine_destroy(c->engine));
    kit_gpu_free(c->device, 0, c->memory);
    device_unshare(c->device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count ipc") == 0 &&
          kit_fake("count handles") == 0 && kit_fake("count reserved") == 0);
    free(c->model);
    free(c->now);
}

static bool is_life(struct consumer *c, uint64_t seed)
{
    kit_fill(c->model, PIECE, seed);
    kit_get(c->device, 0, c->now, c->memory, PIECE);
    return memcmp(c->model, c->now, PIECE) == 0;
}

static void open_segment(struct consumer *c, const char *text, uint64_t life, uint64_t *segment)
{
    const struct yolk_segment_descriptor descriptor = {SEGMENT + life, 1, memory_size(), text};
    CHECK_OK(yolk_engine_segment_open(c->engine, &descriptor, 7, segment));
}

static void wait_for_unmaps(uint64_t wanted)
{
    struct nvlink_figures figures;
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    do {
        CHECK(clock_real_now_ns() < until);
        (void)sched_yield();
        nvlink_figures(&figures);
    } while (figures.unmaps < wanted);
}

static int lives(void)
{
    return kit_real() ? 50 : 1000;
}

/* The old segment stays open until the next life is there: what it reads is the old bytes in the
 * old life, and an error after it. */
static void read_each_life(const struct role *role, int line)
{
    struct consumer c;
    char text[TEXT];
    uint64_t segment;
    long files = 0;
    open_consumer(&c);
    snprintf(text, sizeof(text), "%s", role->text);
    for (int life = 0; life < lives(); life++) {
        open_segment(&c, text, (uint64_t)life, &segment);
        CHECK_OK(read_some(c.engine, segment, c.memory));
        CHECK(is_life(&c, role->seed + (uint64_t)life));
        say(line, "again");
        read_line(line, text, sizeof(text));
        CHECK(text[0] != '\0');
        CHECK(read_some(c.engine, segment, c.memory) != YOLK_OK);
        CHECK_OK(yolk_engine_segment_close(c.engine, segment));
        if (life == 10)
            files = files_open();
    }
    wait_for_unmaps((uint64_t)lives());
    CHECK(files_open() <= files);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count ipc") == 0 &&
          kit_fake("count reserved") == 0 && kit_fake("count handles") == 0);
    close_consumer(&c);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

/* ---- other memory under the same id ---- */

enum { TURNS = 3 };

/* One memory after the other under one id, all of them there all the time. */
static void provide_in_turn(const struct role *role, int line)
{
    struct memory m[TURNS];
    uint64_t size = memory_size();
    uint8_t *model = malloc(PIECE);
    struct yolk_served *served = NULL;
    char text[64];
    CHECK(model != NULL);
    for (int i = 0; i < TURNS; i++) {
        m[i] = (struct memory){.device = open_device(), .kind = (enum kind)role->kind};
        m[i].gpu = gpu_of(m[i].device, 0);
        make_memory(&m[i], size);
        kit_fill(model, PIECE, role->seed + (uint64_t)i);
        kit_put(m[i].device, m[i].gpu, m[i].pointer, model, PIECE);
    }
    struct yolk_engine *engine = open_engine("127.0.0.1");
    struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .size = size, .segment = SEGMENT};
    for (int turn = 0; turn < TURNS; turn++) {
        serve.memory = m[turn].pointer;
        CHECK_OK(yolk_engine_serve(engine, &serve, &served));
        say(line, yolk_served_endpoints(served));
        read_line(line, text, sizeof(text));
        yolk_engine_unserve(engine, served);
    }
    CHECK_OK(yolk_engine_destroy(engine));
    for (int i = 0; i < TURNS; i++) {
        free_memory(&m[i]);
        device_unshare(m[i].device);
    }
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    free(model);
}

/* Until the error is told for good: a link that just broke is tried again. */
static void expect_stale(struct consumer *c, uint64_t segment)
{
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    enum yolk_status status;
    do {
        status = read_some(c->engine, segment, c->memory);
        CHECK(status != YOLK_OK && clock_real_now_ns() < until);
    } while (status != YOLK_ERR_STALE);
}

/* Old segments stay open, and each is asked for again and again while newer ones work. */
static void read_in_turn(const struct role *role, int line)
{
    struct consumer c;
    char text[TEXT];
    uint64_t segments[TURNS];
    open_consumer(&c);
    snprintf(text, sizeof(text), "%s", role->text);
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn > 0)
            expect_stale(&c, segments[turn - 1]);
        open_segment(&c, text, 0, &segments[turn]);
        CHECK_OK(read_some(c.engine, segments[turn], c.memory));
        CHECK(is_life(&c, role->seed + (uint64_t)turn));
        for (int old = 0; old < turn; old++)
            expect_stale(&c, segments[old]);
        if (turn + 1 == TURNS)
            break;
        say(line, "again");
        read_line(line, text, sizeof(text));
        CHECK(text[0] != '\0');
    }
    for (int turn = 0; turn < TURNS; turn++)
        CHECK_OK(yolk_engine_segment_close(c.engine, segments[turn]));
    close_consumer(&c);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

/* What the consumer says goes to the provider, and back, until "done". */
static void run_both(struct role *provider, struct role *consumer)
{
    char text[TEXT];
    struct process p = begin(provider);
    read_line(p.line, consumer->text, TEXT);
    assert_string_not_equal(consumer->text, "");
    struct process c = begin(consumer);
    for (;;) {
        read_line(c.line, text, sizeof(text));
        if (strcmp(text, "again") != 0)
            break;
        say(p.line, text);
        read_line(p.line, text, sizeof(text));
        say(c.line, text);
    }
    assert_string_equal(text, "done");
    assert_int_equal(end(&c), 0);
    assert_int_equal(end(&p), 0);
}

static void c138_other_memory_under_the_same_id(void **state)
{
    static const enum kind kinds[] = {BY_DESCRIPTOR, BY_IPC, NUMA_DESCRIPTOR, SEVERAL_DESCRIPTOR,
                                      BY_FABRIC};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i] == BY_FABRIC && kit_real())
            continue;
        const char *fake = kinds[i] == BY_FABRIC ? "set gpus 2; set fabric 1" : NULL;
        struct role provider = {
            .run = provide_in_turn, .kind = kinds[i], .seed = 300, .fake = fake};
        struct role consumer = {.run = read_in_turn, .kind = kinds[i], .seed = 300, .fake = fake};
        run_both(&provider, &consumer);
    }
}

static void c138_a_thousand_lives_leave_nothing(void **state)
{
    static const enum kind kinds[] = {BY_DESCRIPTOR, BY_IPC};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role provider = {.run = provide, .kind = kinds[i], .seed = 100};
        struct role consumer = {.run = read_each_life, .kind = kinds[i], .seed = 100};
        run_both(&provider, &consumer);
    }
}

/* ---- at once ---- */

struct reader {
    struct consumer *c;
    const char *text;
    pthread_barrier_t *start;
    uint8_t *memory;
    enum yolk_status status;
};

static void *read_at_once(void *arg)
{
    struct reader *r = arg;
    uint64_t segment;
    open_segment(r->c, r->text, 0, &segment);
    pthread_barrier_wait(r->start);
    r->status = read_some(r->c->engine, segment, r->memory);
    pthread_barrier_wait(r->start);
    CHECK_OK(yolk_engine_segment_close(r->c->engine, segment));
    return NULL;
}

static void import_at_once(const struct role *role, int line)
{
    struct consumer c;
    struct nvlink_figures figures;
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    char text[64];
    open_consumer(&c);
    CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){&c, role->text, &start, c.memory + i * PIECE, YOLK_OK};
        CHECK(pthread_create(&threads[i], NULL, read_at_once, &readers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(readers[i].status == YOLK_OK);
    }
    pthread_barrier_destroy(&start);
    CHECK(is_life(&c, role->seed));
    nvlink_figures(&figures);
    CHECK(figures.imports == 1 && figures.import_reuses == THREADS - 1);
    close_consumer(&c);
    nvlink_figures(&figures);
    CHECK(figures.unmaps == 1);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void who_asks_at_once_has_one_mapping(void **state)
{
    static const enum kind kinds[] = {BY_DESCRIPTOR, BY_IPC, SEVERAL_DESCRIPTOR};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role provider = {.run = provide, .kind = kinds[i], .seed = 7};
        struct role consumer = {.run = import_at_once, .kind = kinds[i], .seed = 7};
        run_both(&provider, &consumer);
    }
}

/* ---- while a copy runs ---- */

/* The provider has ended the segment, and the copy has not come to its end: it has its mapping. */
static void hold_a_copy(const struct role *role, int line)
{
    struct consumer c;
    struct nvlink_figures figures;
    char text[TEXT];
    uint64_t segment, batch;
    open_consumer(&c);
    open_segment(&c, role->text, 0, &segment);
    CHECK_OK(read_some(c.engine, segment, c.memory));
    (void)kit_fake("hold 1");
    (void)!submit(c.engine, segment, c.memory, &batch);
    say(line, "again");
    read_line(line, text, sizeof(text));                       /* the next life is served */
    uint64_t until = clock_after_ms(clock_real_now_ns(), 150); /* the tidier hears it at once */
    while (clock_real_now_ns() < until) {
        nvlink_figures(&figures);
        CHECK(figures.unmaps == 0);
        CHECK(kit_fake("count vmm") + kit_fake("count ipc") == 1);
        (void)sched_yield();
    }
    (void)kit_fake("hold 0");
    CHECK(finish(c.engine, batch) == YOLK_ERR_STALE);
    wait_for_unmaps(1);
    CHECK_OK(yolk_engine_segment_close(c.engine, segment));
    close_consumer(&c);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void c139_no_mapping_goes_while_a_copy_runs(void **state)
{
    static const enum kind kinds[] = {BY_DESCRIPTOR, BY_IPC};
    (void)state;
    if (kit_real())
        return;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role provider = {.run = provide, .kind = kinds[i], .seed = 9};
        struct role consumer = {.run = hold_a_copy, .kind = kinds[i], .seed = 9};
        run_both(&provider, &consumer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c138_a_thousand_lives_leave_nothing),
        cmocka_unit_test(c138_other_memory_under_the_same_id),
        cmocka_unit_test(who_asks_at_once_has_one_mapping),
        cmocka_unit_test(c139_no_mapping_goes_while_a_copy_runs),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
