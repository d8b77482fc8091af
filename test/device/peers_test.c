/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that reach each other's GPUs: registered ranges go over NVLink where they have handles, and
 * by TCP where they have none, in one batch if need be. Each process opens the driver itself.
 */
#include "memory.h"

#include <dlfcn.h>

#include <yolk/peer.h>

#include "platform/clock.h"

enum { DEADLINE_MS = 60000, WAIT_MS = 20000 };

static struct yolk_peer *open_peer(const char *transports)
{
    static char cuda[512];
    struct yolk_engine_options engine;
    struct yolk_peer_options options;
    struct yolk_peer *peer = NULL;
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    yolk_engine_options_init(&engine);
    engine.transport.cuda_library = kit_real() ? NULL : cuda;
    yolk_peer_options_init(&options);
    options.engine = &engine;
    options.transports = transports;
    options.timeout_ms = WAIT_MS;
    options.port_min = options.port_max = 0;
    CHECK_OK(yolk_peer_create(&options, &peer));
    return peer;
}

/* ---- who owns memory ---- */

struct owner {
    struct memory m;
    struct yolk_peer *peer;
    uint64_t size;
    uint8_t *model, *now, *plain; /* plain: registered ordinary memory */
};

static void fill(struct owner *o, uint64_t seed)
{
    kit_fill(o->model, o->size, seed);
    kit_put(o->m.device, o->m.gpu, o->m.pointer, o->model, o->size);
    kit_fill(o->plain, o->size, seed + 1);
}

static bool is_filled(struct owner *o, uint64_t seed)
{
    kit_fill(o->model, o->size, seed);
    kit_get(o->m.device, o->m.gpu, o->now, o->m.pointer, o->size);
    return memcmp(o->model, o->now, o->size) == 0;
}

static bool has_copied(const struct owner *o)
{
    struct device_figures figures;
    device_figures(o->m.device, &figures);
    return figures.engine_bytes + figures.gather_bytes > 0;
}

/* Lines: "fill N", "check N", "copied", "drop" and "take" (unregister, register), "renew N" (free
 * the memory and register anew what is made in its place, filled from N). */
static void obey(struct owner *o, const char *text, int line)
{
    uint64_t seed = strtoull(strchr(text, ' ') != NULL ? strchr(text, ' ') : "0", NULL, 10);
    const char *answer = "ok";
    if (strncmp(text, "fill", 4) == 0)
        fill(o, seed);
    else if (strncmp(text, "check", 5) == 0)
        answer = is_filled(o, seed) ? "ok" : "different";
    else if (strcmp(text, "copied") == 0)
        answer = has_copied(o) ? "yes" : "no";
    if (strcmp(text, "drop") == 0 || strncmp(text, "renew", 5) == 0)
        CHECK_OK(yolk_peer_unregister(o->peer, o->m.pointer, o->size));
    if (strncmp(text, "renew", 5) == 0) {
        void *before = o->m.pointer;
        free_memory(&o->m);
        make_memory(&o->m, o->size);
        if (o->m.pointer != before)
            answer = "moved";
        fill(o, seed);
    }
    if (strcmp(text, "take") == 0 || strncmp(text, "renew", 5) == 0)
        CHECK_OK(yolk_peer_register(o->peer, o->m.pointer, o->size, "*", YOLK_REMOTE_WRITE));
    say(line, answer);
}

static void own(const struct role *role, int line)
{
    struct owner o = {.size = memory_size()};
    char text[TEXT];
    o.m.device = open_device();
    o.m.kind = (enum kind)role->kind;
    o.m.gpu = gpu_of(o.m.device, role->gpu);
    o.model = malloc(o.size);
    o.now = malloc(o.size);
    o.plain = malloc(o.size);
    CHECK(o.model != NULL && o.now != NULL && o.plain != NULL);
    make_memory(&o.m, o.size);
    fill(&o, role->seed);
    o.peer = open_peer(NULL);
    CHECK_OK(yolk_peer_register(o.peer, o.m.pointer, o.size, "*", YOLK_REMOTE_WRITE));
    CHECK_OK(yolk_peer_register(o.peer, o.plain, o.size, "*", YOLK_REMOTE_WRITE));
    snprintf(text, sizeof(text), "%s %llu %llu", yolk_peer_name(o.peer),
             (unsigned long long)(uintptr_t)o.m.pointer, (unsigned long long)(uintptr_t)o.plain);
    say(line, text);
    for (read_line(line, text, sizeof(text)); text[0] != '\0'; read_line(line, text, sizeof(text)))
        obey(&o, text, line);
    CHECK_OK(yolk_peer_destroy(o.peer));
    free_memory(&o.m);
    device_unshare(o.m.device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    free(o.model);
    free(o.now);
    free(o.plain);
}

/* ---- who reads and writes it ---- */

struct user {
    struct device *device;
    struct yolk_peer *peer;
    uint64_t segment, there, plain_there; /* addresses in the owner */
    int gpu, line;
    uint8_t *memory; /* of a GPU here; two halves: for the owner's two */
    uint8_t *model, *now;
    uint64_t size;
};

static void open_user(struct user *u, const struct role *role, int line)
{
    char name[128];
    unsigned long long there, plain;
    *u = (struct user){.device = open_device(), .size = memory_size(), .line = line};
    u->gpu = gpu_of(u->device, role->gpu);
    u->model = malloc(2 * u->size);
    u->now = malloc(2 * u->size);
    CHECK(u->model != NULL && u->now != NULL);
    u->memory = kit_gpu_alloc(u->device, u->gpu, 2 * u->size);
    u->peer = open_peer(NULL);
    CHECK_OK(yolk_peer_register(u->peer, u->memory, 2 * u->size, "*", YOLK_LOCAL));
    CHECK(sscanf(role->text, "%127s %llu %llu", name, &there, &plain) == 3);
    u->there = there;
    u->plain_there = plain;
    CHECK_OK(yolk_peer_open(u->peer, name, &u->segment));
}

static void close_user(struct user *u)
{
    CHECK_OK(yolk_peer_close(u->peer, u->segment));
    CHECK_OK(yolk_peer_destroy(u->peer));
    kit_gpu_free(u->device, u->gpu, u->memory);
    device_unshare(u->device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count ipc") == 0 &&
          kit_fake("count handles") == 0 && kit_fake("count reserved") == 0);
    free(u->model);
    free(u->now);
}

/* which: 1: the owner's GPU memory, 2: its ordinary memory, 3: both, in one batch. */
static enum yolk_status move(struct user *u, enum yolk_opcode opcode, int which)
{
    enum { PIECES = 4 };
    struct yolk_request requests[2 * PIECES];
    uint32_t count = 0;
    uint64_t piece = u->size / PIECES;
    for (uint64_t i = 0; i < PIECES; i++)
        for (int side = 1; side <= 2; side++)
            if (which & side)
                requests[count++] = (struct yolk_request){
                    .opcode = opcode,
                    .local = u->memory + (side == 2 ? u->size : 0) + i * piece,
                    .segment = u->segment,
                    .offset = (side == 2 ? u->plain_there : u->there) + i * piece,
                    .size = piece};
    return yolk_peer_transfer(u->peer, requests, count,
                              clock_after_ms(clock_real_now_ns(), DEADLINE_MS));
}

/* Ranges of 4 KiB of both kinds, in no order; of `alternate` each is followed by one of the other.
 */
static enum yolk_status read_ranges(struct user *u, bool alternate)
{
    enum { RANGE = 4096, RANGES = 1024 };
    static struct yolk_request requests[RANGES];
    uint64_t places = u->size / RANGE;
    for (uint64_t i = 0; i < RANGES; i++) {
        bool plain = alternate ? i % 2 == 1 : i >= RANGES / 2;
        uint64_t offset = (alternate ? i / 2 : i % (RANGES / 2)) * 389 % places * RANGE;
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = u->memory + (plain ? u->size : 0) + offset,
                                            .segment = u->segment,
                                            .offset = (plain ? u->plain_there : u->there) + offset,
                                            .size = RANGE};
    }
    return yolk_peer_transfer(u->peer, requests, RANGES,
                              clock_after_ms(clock_real_now_ns(), DEADLINE_MS));
}

/* Those that read_ranges read are as the owner has them, the others as they were. */
static void expect_ranges(struct user *u, uint64_t seed)
{
    enum { RANGE = 4096, RANGES = 512 };
    uint64_t places = u->size / RANGE;
    bool *read = calloc(places, 1);
    CHECK(read != NULL);
    for (uint64_t i = 0; i < RANGES; i++)
        read[i * 389 % places] = true;
    kit_get(u->device, u->gpu, u->now, u->memory, 2 * u->size);
    kit_fill(u->model, u->size, seed);
    kit_fill(u->model + u->size, u->size, seed + 1);
    for (uint64_t i = 0; i < 2 * places; i++)
        if (!read[i % places])
            memset(u->model + i * RANGE, 0xee, RANGE);
    CHECK(memcmp(u->model, u->now, 2 * u->size) == 0);
    free(read);
}

static void wipe(struct user *u)
{
    memset(u->now, 0xee, 2 * u->size);
    kit_put(u->device, u->gpu, u->memory, u->now, 2 * u->size);
}

/* As the owner was filled from `seed`. */
static void expect(struct user *u, uint64_t seed, int which)
{
    kit_get(u->device, u->gpu, u->now, u->memory, 2 * u->size);
    kit_fill(u->model, u->size, seed);
    kit_fill(u->model + u->size, u->size, seed + 1);
    for (int side = 1; side <= 2; side++)
        if (which & side)
            CHECK(memcmp(u->model + (side == 2 ? u->size : 0), u->now + (side == 2 ? u->size : 0),
                         u->size) == 0);
}

static uint64_t by_nvlink(void)
{
    struct nvlink_figures figures;
    nvlink_figures(&figures);
    return figures.bytes_by_gpu + figures.bytes_by_processor;
}

/* Why not, as it is told to who asks; "" if nvlink runs it. */
static void why_not(struct user *u, uint64_t offset, char *out, size_t size)
{
    const struct yolk_request request = {.opcode = YOLK_READ,
                                         .local = u->memory,
                                         .segment = u->segment,
                                         .offset = offset,
                                         .size = 4096};
    char *text = NULL;
    CHECK_OK(yolk_peer_describe_route(u->peer, &request, &text));
    char *at = strstr(text, "nvlink: ");
    CHECK(at != NULL);
    at[strcspn(at, "\n")] = '\0';
    snprintf(out, size, "%s", strcmp(at, "nvlink: runs it") == 0 ? "" : at);
    free(text);
}

static void tell(struct user *u, const char *text, char *answer)
{
    say(u->line, text);
    read_line(u->line, answer, TEXT);
}

/* ---- the tests ---- */

/* What the owner is asked to do goes through the test's process. */
static void run_both(struct role *owner, struct role *user)
{
    char text[TEXT];
    struct process o = begin(owner);
    read_line(o.line, user->text, TEXT);
    assert_string_not_equal(user->text, "");
    struct process u = begin(user);
    for (;;) {
        read_line(u.line, text, sizeof(text));
        if (strcmp(text, "done") == 0 || text[0] == '\0')
            break;
        say(o.line, text);
        read_line(o.line, text, sizeof(text));
        say(u.line, text);
    }
    assert_string_equal(text, "done");
    assert_int_equal(end(&u), 0);
    assert_int_equal(end(&o), 0);
}

static void read_and_write(const struct role *role, int line)
{
    struct user u;
    struct nvlink_figures figures;
    char text[TEXT];
    open_user(&u, role, line);
    why_not(&u, u.there, text, sizeof(text));
    CHECK(text[0] == '\0');
    why_not(&u, u.plain_there, text, sizeof(text));
    CHECK(strstr(text, "has no handle") != NULL);
    /* Both kinds in one batch: each goes its way. */
    wipe(&u);
    CHECK_OK(move(&u, YOLK_READ, 3));
    expect(&u, role->seed, 3);
    CHECK(by_nvlink() == u.size);
    for (int alternate = 0; alternate <= 1; alternate++) {
        uint64_t before = by_nvlink();
        wipe(&u);
        CHECK_OK(read_ranges(&u, alternate != 0));
        expect_ranges(&u, role->seed);
        CHECK(by_nvlink() - before == 512 * 4096);
    }
    uint64_t before = by_nvlink();
    kit_fill(u.model, u.size, role->seed + 5);
    kit_put(u.device, u.gpu, u.memory, u.model, u.size);
    CHECK_OK(move(&u, YOLK_WRITE, 1));
    CHECK(by_nvlink() - before == u.size);
    nvlink_figures(&figures);
    CHECK(figures.imports == 1);
    snprintf(text, sizeof(text), "check %llu", (unsigned long long)role->seed + 5);
    tell(&u, text, text);
    CHECK(strcmp(text, "ok") == 0);
    tell(&u, "copied", text); /* the bytes went past its process */
    CHECK(strcmp(text, "no") == 0);
    close_user(&u);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void two_peers(enum kind kind, const char *fake, const char *machine)
{
    struct role owner = {.run = own, .kind = kind, .seed = 21, .fake = fake};
    struct role user = {.run = read_and_write,
                        .kind = kind,
                        .gpu = 1,
                        .seed = 21,
                        .fake = fake,
                        .machine = machine};
    run_both(&owner, &user);
}

static void c135_each_range_goes_its_own_way(void **state)
{
    (void)state;
    two_peers(BY_IPC, NULL, NULL);
    two_peers(BY_DESCRIPTOR, NULL, NULL);
    two_peers(SEVERAL_DESCRIPTOR, NULL, NULL);
    two_peers(NUMA_DESCRIPTOR, NULL, NULL);
}

static void from_machine_to_machine(void **state)
{
    (void)state;
    if (kit_real())
        return;
    two_peers(BY_FABRIC, "set gpus 2; set fabric 1", "another");
    two_peers(SEVERAL_FABRIC, "set gpus 2; set fabric 1", "another");
}

/* Unregistered memory is not reached any more; what is registered in its place is, and nothing of
 * before is read. */
static void read_over_lives(const struct role *role, int line)
{
    struct user u;
    char text[TEXT];
    open_user(&u, role, line);
    CHECK_OK(move(&u, YOLK_READ, 1));
    kit_fill(u.model, u.size, role->seed);
    kit_put(u.device, u.gpu, u.memory, u.model, u.size);
    CHECK_OK(move(&u, YOLK_WRITE, 1)); /* so that a link for writing is there too */
    tell(&u, "drop", text);
    CHECK(strcmp(text, "ok") == 0);
    CHECK(move(&u, YOLK_READ, 1) == YOLK_ERR_NOT_REGISTERED);
    tell(&u, "take", text);
    wipe(&u);
    CHECK_OK(move(&u, YOLK_READ, 1));
    expect(&u, role->seed, 1);
    for (uint64_t life = 1; life <= 5; life++) {
        char command[64];
        snprintf(command, sizeof(command), "renew %llu", (unsigned long long)(role->seed + life));
        tell(&u, command, text);
        wipe(&u);
        if (strcmp(text, "moved") == 0)
            break; /* another address: nothing to be confused */
        CHECK_OK(move(&u, YOLK_READ, 1));
        expect(&u, role->seed + life, 1);
    }
    close_user(&u);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void c138_memory_that_is_unregistered_and_registered_anew(void **state)
{
    static const enum kind kinds[] = {BY_IPC, BY_DESCRIPTOR, NUMA_DESCRIPTOR};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role owner = {.run = own, .kind = kinds[i], .seed = 31};
        struct role user = {.run = read_over_lives, .kind = kinds[i], .gpu = 1, .seed = 31};
        run_both(&owner, &user);
    }
}

/* Memory of a pool of the driver's (cudaMallocAsync) has no handle: by TCP then, and it is said. */
static void read_by_tcp(const struct role *role, int line)
{
    struct user u;
    char text[TEXT];
    open_user(&u, role, line);
    why_not(&u, u.there, text, sizeof(text));
    CHECK(strstr(text, role->kind == BY_IPC ? "cuIpcGetMemHandle" : "another machine's memory") !=
          NULL);
    wipe(&u);
    CHECK_OK(move(&u, YOLK_READ, 3));
    expect(&u, role->seed, 3);
    CHECK(by_nvlink() == 0);
    close_user(&u);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void c134_what_has_no_handle_goes_by_tcp(void **state)
{
    struct role owner = {
        .run = own, .kind = BY_IPC, .seed = 41, .fake = "set gpus 2; fail cuIpcGetMemHandle 1 1 0"};
    struct role user = {.run = read_by_tcp, .kind = BY_IPC, .gpu = 1, .seed = 41};
    (void)state;
    if (kit_real())
        return;
    run_both(&owner, &user);
    /* Another machine without fabric handles. */
    owner = (struct role){.run = own, .kind = BY_DESCRIPTOR, .seed = 41, .machine = "one"};
    user = (struct role){
        .run = read_by_tcp, .kind = BY_DESCRIPTOR, .gpu = 1, .seed = 41, .machine = "two"};
    run_both(&owner, &user);
}

/* ---- what was set up before, and what comes after ---- */

typedef cuda_result enable_call(cuda_context peer, unsigned flags);

struct bystander { /* the application's own use of CUDA */
    const struct cuda *cuda;
    enable_call *enable;
    int (*last_error)(void); /* of the runtime, where there is one: what it has pending */
    cuda_context contexts[2];
    uint8_t *memory;
    bool enabled; /* these GPUs can reach each other */
};

static void *symbol_of(void *library, const char *name)
{
    return library != NULL ? dlsym(library, name) : NULL;
}

/* GPU 1 stays current. */
static void open_bystander(struct bystander *b, struct device *device)
{
    *b = (struct bystander){.cuda = device_cuda(device)};
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | (kit_real() ? 0 : RTLD_NOLOAD));
    if (runtime == NULL)
        runtime = dlopen("libcudart.so.12", RTLD_NOW | (kit_real() ? 0 : RTLD_NOLOAD));
    void *found = symbol_of(b->cuda->library, "cuCtxEnablePeerAccess");
    CHECK(found != NULL);
    memcpy(&b->enable, &found, sizeof(b->enable));
    found = symbol_of(runtime, "cudaGetLastError");
    memcpy(&b->last_error, &found, sizeof(b->last_error));
    for (int i = 0; i < 2; i++)
        CHECK(b->cuda->primary_ctx_retain(&b->contexts[i], i) == CUDA_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(b->cuda->ctx_set_current(b->contexts[i]) == CUDA_OK);
        b->enabled = b->enable(b->contexts[1 - i], 0) == CUDA_OK;
        CHECK(b->enabled || kit_real());
    }
    b->memory = kit_gpu_alloc(device, 1, 8192);
}

static void close_bystander(struct bystander *b, struct device *device)
{
    kit_gpu_free(device, 1, b->memory);
    CHECK(b->cuda->ctx_set_current(NULL) == CUDA_OK);
    for (int i = 0; i < 2; i++)
        CHECK(b->cuda->primary_ctx_release(i) == CUDA_OK);
}

/* No error waits for whoever asks next, and what was current and enabled still is. */
static void expect_clean(const struct bystander *b)
{
    cuda_context current = NULL;
    CHECK(b->last_error == NULL || b->last_error() == 0);
    CHECK(b->cuda->ctx_get_current(&current) == CUDA_OK && current == b->contexts[1]);
    for (int i = 0; i < 2; i++) {
        CHECK(b->cuda->ctx_set_current(b->contexts[i]) == CUDA_OK);
        CHECK(b->cuda->stream_synchronize(NULL) == CUDA_OK);
        CHECK(!b->enabled ||
              b->enable(b->contexts[1 - i], 0) == CUDA_ERR_PEER_ACCESS_ALREADY_ENABLED);
    }
}

/* In global mode; `during` may use the library. */
static void expect_capture(const struct bystander *b, struct user *during)
{
    cuda_stream stream;
    cuda_graph graph = NULL;
    cuda_pointer at = (uintptr_t)b->memory;
    CHECK(b->cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_OK);
    CHECK(b->cuda->stream_begin_capture(stream, CUDA_CAPTURE_GLOBAL) == CUDA_OK);
    CHECK(b->cuda->memcpy_async(at, at + 4096, 4096, stream) == CUDA_OK);
    if (during != NULL)
        CHECK_OK(move(during, YOLK_READ, 1));
    CHECK(b->cuda->stream_end_capture(stream, &graph) == CUDA_OK && graph != NULL);
    CHECK(b->cuda->graph_destroy(graph) == CUDA_OK);
    CHECK(b->cuda->stream_destroy(stream) == CUDA_OK);
}

static void set_up_and_close_twice(const struct role *role, int line)
{
    struct bystander b;
    struct device *device = open_device();
    char text[TEXT];
    if (device_count(device) < 2) {
        printf("one GPU: none that it could reach before\n");
        say(line, "done");
        return;
    }
    open_bystander(&b, device);
    for (int i = 0; i < 2; i++) {
        struct user u;
        open_user(&u, role, line);
        expect_clean(&b);
        CHECK_OK(move(&u, YOLK_READ, 1));
        expect_clean(&b);
        expect(&u, role->seed, 1);
        CHECK_OK(move(&u, YOLK_WRITE, 1));
        expect_clean(&b);
        CHECK(by_nvlink() == (uint64_t)(3 * i + 2) * u.size);
        expect_capture(&b, &u);
        CHECK(by_nvlink() == (uint64_t)(3 * i + 3) * u.size);
        expect_clean(&b);
        close_user(&u);
        expect_clean(&b);
        expect_capture(&b, NULL);
    }
    close_bystander(&b, device);
    device_unshare(device);
    say(line, "done");
    read_line(line, text, sizeof(text));
}

static void c141_peer_access_from_before_leaves_no_error(void **state)
{
    static const enum kind kinds[] = {BY_IPC, BY_DESCRIPTOR};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct role owner = {.run = own, .kind = kinds[i], .seed = 51};
        struct role user = {.run = set_up_and_close_twice, .kind = kinds[i], .gpu = 1, .seed = 51};
        run_both(&owner, &user);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c135_each_range_goes_its_own_way),
        cmocka_unit_test(from_machine_to_machine),
        cmocka_unit_test(c138_memory_that_is_unregistered_and_registered_anew),
        cmocka_unit_test(c134_what_has_no_handle_goes_by_tcp),
        cmocka_unit_test(c141_peer_access_from_before_leaves_no_error),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
