/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store whose memory is host memory of NUMA nodes (EGM): providers and consumers in processes of
 * their own. On the fake driver they are four machines of one NVLink domain with two GPUs each; on
 * a real machine, which makes no fabric handles, one machine with descriptors.
 */
#include "rack.h"

#include <dlfcn.h>

#include "base/limits.h"
#include "platform/clock.h"

enum { HOSTS = 4, KEYS = 4, VALUE = 256 << 10, DEADLINE_MS = 60000 };

static void provider_options(const struct role *role, struct yolk_store_options *options)
{
    options_of(role, options);
    options->segment_size_bytes = 64 * MIB + 5;
    options->egm_enabled = 1;
    options->egm_handle_type = role->kind == CUDA_HANDLE_FABRIC ? "fabric" : "posix_fd";
}

static long figure(struct yolk_store *store, const char *name)
{
    char *text = NULL, wanted[128];
    CHECK_OK(yolk_store_stat(store, &text));
    snprintf(wanted, sizeof(wanted), "%s ", name);
    const char *at = strncmp(text, wanted, strlen(wanted)) == 0 ? text : NULL;
    snprintf(wanted, sizeof(wanted), "\n%s ", name);
    if (at == NULL && (at = strstr(text, wanted)) != NULL)
        at++;
    long value = at != NULL ? strtol(at + strlen(wanted) - 1, NULL, 10) : -1;
    free(text);
    return value;
}

/* Gives its memory, and closes when it is told to. */
static void provide(const struct role *role, int line)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    struct device *device = open_device();
    struct device_figures figures;
    char text[TEXT];
    provider_options(role, &options);
    CHECK_OK(yolk_store_open(&options, &store));
    CHECK(yolk_store_health(store) == 0);
    CHECK(figure(store, "mooncake_egm_store_pool_capacity_bytes") == (long)(64 * MIB));
    if (!kit_real()) {
        CHECK(figure(store, "mooncake_egm_store_pool_node_bytes{node=\"0\"}") == (long)(32 * MIB));
        CHECK(figure(store, "mooncake_egm_store_pool_node_bytes{node=\"1\"}") == (long)(32 * MIB));
    }
    say(line, "ready");
    read_line(line, text, sizeof(text));
    /* All bytes went past this process. */
    device_figures(device, &figures);
    CHECK(figures.engine_bytes == 0 && figures.gather_bytes == 0);
    CHECK_OK(yolk_store_close(store));
    device_unshare(device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0 &&
          kit_fake("count reserved") == 0);
    say(line, "closed");
}

struct consumer {
    struct device *device;
    struct yolk_store *store;
    int gpu;
    uint8_t *memory, *model, *now;
};

static int64_t move(struct consumer *c, const char *key, bool put)
{
    const struct yolk_slice slice = {c->memory, VALUE};
    struct yolk_kv kv = {
        .key = key, .key_size = strlen(key), .slices = &slice, .slice_count = 1, .result = -99};
    (void)!(put ? yolk_store_put(c->store, &kv, 1) : yolk_store_get(c->store, &kv, 1));
    return kv.result;
}

static void put_all(struct consumer *c, int who, uint64_t round)
{
    char key[64];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "%llu/%d/%d", (unsigned long long)round, who, i);
        kit_fill(c->model, VALUE, round * 1000 + (uint64_t)(who * KEYS + i));
        kit_put(c->device, c->gpu, c->memory, c->model, VALUE);
        CHECK(move(c, key, true) >= 0);
    }
}

/* How many of them are there; those are exact. */
static int get_all(struct consumer *c, int who, uint64_t round)
{
    char key[64];
    int found = 0;
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "%llu/%d/%d", (unsigned long long)round, who, i);
        memset(c->now, 0xee, VALUE);
        kit_put(c->device, c->gpu, c->memory, c->now, VALUE);
        if (move(c, key, false) != VALUE)
            continue;
        kit_fill(c->model, VALUE, round * 1000 + (uint64_t)(who * KEYS + i));
        kit_get(c->device, c->gpu, c->now, c->memory, VALUE);
        CHECK(memcmp(c->model, c->now, VALUE) == 0);
        found++;
    }
    return found;
}

/* Of each value every other 4 KiB, all in one call; what lies between is left as it was. */
static int get_some(struct consumer *c, int who, uint64_t round)
{
    enum { PIECE = 4096, PIECES = VALUE / PIECE };
    static struct yolk_slice slices[KEYS][PIECES];
    static char keys[KEYS][64];
    struct yolk_kv kvs[KEYS];
    uint8_t *memory = kit_gpu_alloc(c->device, c->gpu, KEYS * VALUE);
    uint8_t *now = malloc(KEYS * VALUE);
    int exact = 0;
    CHECK(now != NULL);
    memset(now, 0xee, KEYS * VALUE);
    kit_put(c->device, c->gpu, memory, now, KEYS * VALUE);
    CHECK_OK(yolk_store_register_buffer(c->store, memory, KEYS * VALUE));
    for (int i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[0]), "%llu/%d/%d", (unsigned long long)round, who, i);
        for (int j = 0; j < PIECES; j++)
            slices[i][j] = (struct yolk_slice){
                j % 2 == 0 ? memory + i * VALUE + j * PIECE : (uint8_t *)YOLK_SKIP, PIECE};
        kvs[i] = (struct yolk_kv){.key = keys[i],
                                  .key_size = strlen(keys[i]),
                                  .slices = slices[i],
                                  .slice_count = PIECES,
                                  .result = -99};
    }
    CHECK_OK(yolk_store_get(c->store, kvs, KEYS));
    CHECK_OK(yolk_store_unregister_buffer(c->store, memory));
    kit_get(c->device, c->gpu, now, memory, KEYS * VALUE);
    for (int i = 0; i < KEYS; i++) {
        kit_fill(c->model, VALUE, round * 1000 + (uint64_t)(who * KEYS + i));
        for (int j = 1; j < PIECES; j += 2)
            memset(c->model + j * PIECE, 0xee, PIECE);
        exact += kvs[i].result == VALUE && memcmp(c->model, now + i * VALUE, VALUE) == 0;
    }
    /* A put has no bytes to leave out. */
    CHECK(yolk_store_put(c->store, kvs, 1) == YOLK_ERR_INVALID);
    kit_gpu_free(c->device, c->gpu, memory);
    free(now);
    return exact;
}

/* A value where it lies, read by a GPU here through its address. */
static int map_one(struct consumer *c, int who, uint64_t round)
{
    char key[64];
    struct yolk_buffer buffer;
    snprintf(key, sizeof(key), "%llu/%d/0", (unsigned long long)round, who);
    CHECK_OK(yolk_store_get_device_buffer(c->store, key, strlen(key), &buffer));
    CHECK(buffer.size == VALUE && buffer.mapped);
    kit_fill(c->model, VALUE, round * 1000 + (uint64_t)(who * KEYS));
    kit_get(c->device, c->gpu, c->now, buffer.data, VALUE);
    int same = memcmp(c->model, c->now, VALUE) == 0;
    yolk_store_release_buffer(c->store, &buffer);
    /* The processor reads the same, by a copy where it does not reach it. */
    CHECK_OK(yolk_store_get_buffer(c->store, key, strlen(key), &buffer));
    same = same && memcmp(c->model, buffer.data, VALUE) == 0;
    yolk_store_release_buffer(c->store, &buffer);
    return same ? KEYS : 0;
}

/* Mappings made of memory of peers so far; none of one that was there. */
static int imports(void)
{
    struct nvlink_figures figures;
    nvlink_figures(&figures);
    return (int)figures.imports;
}

/* Those that the master gives out. */
static int segments(struct consumer *c)
{
    return (int)figure(c->store, "segments_open");
}

/* Does what the lines say: "put WHO ROUND", "get WHO ROUND", "some WHO ROUND", "map …"; "made 0 0"
 * asks for the mappings, "segs 0 0" for the segments. */
static void consume(const struct role *role, int line)
{
    struct consumer c = {.device = open_device()};
    struct yolk_store_options options;
    char text[TEXT], verb[8];
    int who;
    unsigned long long round;
    if (!kit_real()) /* GPU memory is found by the name that CUDA has */
        CHECK(dlopen(kit_fake_path("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) != NULL);
    c.gpu = role->gpu < (int)device_count(c.device) ? role->gpu : 0;
    c.model = malloc(VALUE);
    c.now = malloc(VALUE);
    c.memory = kit_gpu_alloc(c.device, c.gpu, VALUE);
    options_of(role, &options);
    CHECK_OK(yolk_store_open(&options, &c.store));
    say(line, "ready");
    for (;;) {
        read_line(line, text, sizeof(text));
        if (sscanf(text, "%7s %d %llu", verb, &who, &round) != 3)
            break;
        if (strcmp(verb, "put") == 0)
            put_all(&c, who, round);
        snprintf(text, sizeof(text), "%d",
                 strcmp(verb, "get") == 0    ? get_all(&c, who, round)
                 : strcmp(verb, "some") == 0 ? get_some(&c, who, round)
                 : strcmp(verb, "map") == 0  ? map_one(&c, who, round)
                 : strcmp(verb, "made") == 0 ? imports()
                 : strcmp(verb, "segs") == 0 ? segments(&c)
                                             : KEYS);
        say(line, text);
    }
    CHECK_OK(yolk_store_close(c.store));
    kit_gpu_free(c.device, c.gpu, c.memory);
    device_unshare(c.device);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    free(c.model);
    free(c.now);
}

/* All of them at once. */
static void each_puts(struct process *consumers, int hosts, int round)
{
    for (int i = 0; i < hosts; i++)
        begin_to(&consumers[i], "put", i, round);
    for (int i = 0; i < hosts; i++)
        assert_int_equal(answer(&consumers[i]), KEYS);
}

/* What each has put, all of them at once. */
static void each_gets_all(struct process *consumers, int hosts, int round)
{
    for (int who = 0; who < hosts; who++) {
        for (int i = 0; i < hosts; i++)
            begin_to(&consumers[i], "get", who, round);
        for (int i = 0; i < hosts; i++)
            assert_int_equal(answer(&consumers[i]), KEYS);
    }
}

static struct role role_of(void (*run)(const struct role *, int), int host, const char *address)
{
    static char fake[HOSTS][128], machine[HOSTS][32];
    snprintf(fake[host], sizeof(fake[0]), "set gpus 2; set host %d; set nodes 2; set fabric 1",
             host);
    snprintf(machine[host], sizeof(machine[0]), "host-%d", host);
    struct role role = {.run = run, .gpu = 1, .fake = fake[host]};
    role.kind = kit_real() ? CUDA_HANDLE_POSIX_FD : CUDA_HANDLE_FABRIC;
    role.machine = kit_real() ? NULL : machine[host];
    snprintf(role.text, sizeof(role.text), "%s", address);
    return role;
}

/* ---- the tests ---- */

static void a_rack(void **state)
{
    struct process master, providers[HOSTS], consumers[HOSTS];
    char address[TEXT] = "";
    int found = 0, hosts = kit_real() ? 2 : HOSTS, mapped[HOSTS];
    (void)state;
    master = begin_master(address);
    for (int i = 0; i < hosts; i++) {
        struct role role = role_of(provide, i, address);
        providers[i] = begin(&role);
        expect(&providers[i], "ready");
        role = role_of(consume, i, address);
        consumers[i] = begin(&role);
        expect(&consumers[i], "ready");
    }
    int chunks = ask(&consumers[0], "segs", 0, 0);
    assert_int_equal(chunks, hosts * (kit_real() ? 1 : 2));
    each_puts(consumers, hosts, 1);
    each_gets_all(consumers, hosts, 1);
    /* Each chunk was mapped once at most, and from now on what is mapped is used. */
    for (int i = 0; i < hosts; i++) {
        mapped[i] = ask(&consumers[i], "made", 0, 0);
        assert_in_range(mapped[i], 1, chunks);
    }
    each_gets_all(consumers, hosts, 1);
    for (int i = 0; i < hosts; i++)
        assert_int_equal(ask(&consumers[i], "made", 0, 0), mapped[i]);
    assert_int_equal(ask(&consumers[0], "some", hosts - 1, 1), KEYS);
    for (int who = 0; who < hosts; who++)
        assert_int_equal(ask(&consumers[0], "map", who, 1), KEYS);
    /* A provider dies: what it had is not found, and soon; the rest is, and there is room. */
    assert_int_equal(kill(providers[0].pid, SIGKILL), 0);
    assert_int_equal(end(&providers[0]), 128 + SIGKILL);
    uint64_t began = clock_real_now_ns();
    for (int who = 0; who < hosts; who++)
        found += ask(&consumers[1], "get", who, 1);
    assert_true(found < hosts * KEYS);
    assert_true(clock_real_now_ns() - began < (uint64_t)TIMEOUT_MS * 1000000); /* of one call */
    assert_int_equal(ask(&consumers[1], "put", 1, 2), KEYS);
    assert_int_equal(ask(&consumers[0], "get", 1, 2), KEYS);
    /* It comes back, and is used again: no byte of its former life is seen. */
    struct role role = role_of(provide, 0, address);
    providers[0] = begin(&role);
    expect(&providers[0], "ready");
    each_puts(consumers, hosts, 3);
    each_gets_all(consumers, hosts, 3);
    for (int i = 0; i < hosts; i++) {
        say(providers[i].line, "close");
        expect(&providers[i], "closed");
        assert_int_equal(end(&providers[i]), 0);
    }
    /* Nothing of it is left at the master, which is where its segments are published: of those who
     * closed at once, of the killed one's first life when its session is over. */
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    int left;
    while ((left = ask(&consumers[0], "segs", 0, 0)) > 0 && clock_real_now_ns() < until)
        assert_in_range(left, 1, chunks / hosts);
    assert_int_equal(left, 0);
    for (int who = 0; who < hosts; who++)
        assert_int_equal(ask(&consumers[0], "get", who, 3), 0);
    for (int i = 0; i < hosts; i++)
        assert_int_equal(end(&consumers[i]), 0);
    assert_int_equal(end(&master), 0);
}

/* What setup answers to settings that cannot be. */
static void break_rules(const struct role *role, int line)
{
    static const struct {
        const char *transport, *nodes, *handles;
        uint64_t size, chunk;
        const char *text;
    } rows[] = {
        {"tcp", NULL, NULL, 64 * MIB, 0, "needs the protocol nvlink"},
        {"auto", NULL, NULL, 64 * MIB, 0, "needs the protocol nvlink"},
        {"nvlink", NULL, NULL, 0, 0, "global_segment_size"},
        {"nvlink", "", NULL, 64 * MIB, 0, "egm_numa_nodes"},
        {"nvlink", "0,-1", NULL, 64 * MIB, 0, "\"-1\" is no NUMA node"},
        {"nvlink", "9", NULL, 64 * MIB, 0, "NUMA node 9"},
        {"nvlink", NULL, "efa", 64 * MIB, 0, "egm_handle_type"},
        {"nvlink", NULL, NULL, 16 * MIB, 0, "no unit"},
        {"nvlink", NULL, NULL, 64 * MIB, MIB, "max_mr_size"},
        /* No fabric handle can be made here, and the one asked for is not replaced by another. */
        {"nvlink", NULL, NULL, 64 * MIB, 0, "CUDA_ERROR_NOT_PERMITTED (800)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct yolk_store_options options;
        struct yolk_store *store = NULL;
        provider_options(role, &options);
        options.transport = rows[i].transport;
        options.egm_numa_nodes = rows[i].nodes;
        options.egm_handle_type = rows[i].handles;
        options.segment_size_bytes = rows[i].size;
        options.egm_chunk_bytes_max = rows[i].chunk;
        CHECK(yolk_store_open(&options, &store) != YOLK_OK);
        if (strstr(yolk_last_error(), rows[i].text) == NULL) {
            fprintf(stderr, "\"%s\" is not in \"%s\"\n", rows[i].text, yolk_last_error());
            _exit(1);
        }
        CHECK(store == NULL && kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    }
    say(line, "done");
}

static void c133_c142_what_cannot_be_is_refused(void **state)
{
    char address[TEXT] = "";
    (void)state;
    if (kit_real())
        return;
    struct process master = begin_master(address);
    struct role role = {.run = break_rules, .fake = "set gpus 2; set nodes 2"};
    snprintf(role.text, sizeof(role.text), "%s", address);
    struct process p = begin(&role);
    expect(&p, "done");
    assert_int_equal(end(&p), 0);
    assert_int_equal(end(&master), 0);
}

/* auto: without fabric handles by descriptors. Closing fails at the driver, then not. */
static void close_twice(const struct role *role, int line)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    char text[TEXT];
    provider_options(role, &options);
    options.drain_grace_ms = 100;
    options.egm_handle_type = "auto";
    CHECK_OK(yolk_store_open(&options, &store));
    CHECK(figure(store, "mooncake_egm_store_pool_fabric") == 0);
    CHECK(figure(store, "mooncake_egm_store_pool_chunks") == 2);
    (void)kit_fake("fail cuMemUnmap 1 999 1");
    CHECK(yolk_store_close(store) != YOLK_OK);
    CHECK(strstr(yolk_last_error(), "close again") != NULL);
    CHECK(yolk_store_health(store) == 4);
    CHECK(kit_fake("count vmm") == 1);
    long unmaps = kit_fake("calls cuMemUnmap");
    CHECK_OK(yolk_store_close(store));
    CHECK(kit_fake("calls cuMemUnmap") == unmaps + 1); /* what was done is not done again */
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    /* The third allocation of four fails: none is left. */
    provider_options(role, &options);
    options.egm_chunk_bytes_max = 16 * MIB;
    (void)kit_fake("disarm; fail cuMemCreate 3 2");
    CHECK(yolk_store_open(&options, &store) == YOLK_ERR_NO_MEMORY);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    /* The master is gone when it closes: the memory stays until one confirms. */
    (void)kit_fake("disarm");
    provider_options(role, &options);
    options.drain_grace_ms = 100;
    CHECK_OK(yolk_store_open(&options, &store));
    say(line, "open");
    read_line(line, text, sizeof(text));
    CHECK(yolk_store_close(store) != YOLK_OK);
    CHECK(yolk_store_health(store) == 3);
    CHECK(kit_fake("count vmm") == 2);
    say(line, "kept");
    read_line(line, text, sizeof(text));
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    while (yolk_store_close(store) != YOLK_OK)
        CHECK(clock_real_now_ns() < until);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    say(line, "gone");
}

static void c143_a_close_that_failed_is_finished_by_the_next(void **state)
{
    char address[TEXT] = "";
    (void)state;
    if (kit_real())
        return;
    struct process master = begin_master(address);
    struct role role = {.run = close_twice, .fake = "set gpus 2; set nodes 2"};
    snprintf(role.text, sizeof(role.text), "%s", address);
    struct process p = begin(&role);
    expect(&p, "open");
    assert_int_equal(end(&master), 0);
    say(p.line, "close");
    expect(&p, "kept");
    master = begin_master(address);
    say(p.line, "close");
    expect(&p, "gone");
    assert_int_equal(end(&p), 0);
    assert_int_equal(end(&master), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rack),
        cmocka_unit_test(c133_c142_what_cannot_be_is_refused),
        cmocka_unit_test(c143_a_close_that_failed_is_finished_by_the_next),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
