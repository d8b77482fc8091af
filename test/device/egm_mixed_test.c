/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of NUMA nodes' memory beside ordinary memory, in one cluster: each is taken as what it is,
 * and who can touch which. */
#include "rack.h"

#include <dlfcn.h>
#include <inttypes.h>

#include "base/limits.h"

static void plain_options(const struct role *role, struct yolk_store_options *options)
{
    options_of(role, options);
    options->transport = "auto";
    options->name = "plain";
    options->segment_size_bytes = 16 * MIB;
    CHECK(!options->egm_enabled);
}

static void pool_options(const struct role *role, struct yolk_store_options *options)
{
    options_of(role, options);
    options->name = "pool";
    options->segment_size_bytes = 64 * MIB;
    options->egm_enabled = 1;
    options->egm_handle_type = "posix_fd";
}

/* A machine that has no memory for a pool: it is refused, and ordinary memory is given as ever. */
static void provide_none(const struct role *role, int line)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    pool_options(role, &options);
    CHECK(yolk_store_open(&options, &store) == YOLK_ERR_UNSUPPORTED);
    CHECK(strstr(yolk_last_error(), "of NUMA nodes") != NULL && store == NULL);
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    plain_options(role, &options);
    CHECK_OK(yolk_store_open(&options, &store));
    CHECK(kit_fake("count vmm") == 0);
    CHECK_OK(yolk_store_close(store));
    say(line, "done");
}

/* Both in one process. */
static void provide_both(const struct role *role, int line)
{
    struct yolk_store_options options;
    struct yolk_store *pool = NULL, *plain = NULL;
    char text[TEXT];
    plain_options(role, &options);
    CHECK_OK(yolk_store_open(&options, &plain));
    CHECK(kit_fake("count vmm") == 0); /* off unless it is asked for */
    pool_options(role, &options);
    CHECK_OK(yolk_store_open(&options, &pool));
    CHECK(kit_fake("count vmm") == 2);
    say(line, "ready");
    read_line(line, text, sizeof(text));
    CHECK_OK(yolk_store_close(pool));
    CHECK_OK(yolk_store_close(plain));
    CHECK(kit_fake("count vmm") == 0 && kit_fake("count handles") == 0);
    say(line, "closed");
}

enum { MIXED = 8, VALUE = 256 << 10 };

struct consumer {
    struct device *device;
    struct yolk_store *store;
    int gpu;
    uint8_t *memory, *model, *now;
};

/* Even values in the pool, odd ones in ordinary memory; each from and to both kinds of memory here,
 * in one call. */
static void move_mixed(struct consumer *c, uint8_t *host, uint64_t round, bool put)
{
    static const char *const names[] = {"pool#egm1", "plain"};
    static char keys[MIXED][32];
    static struct yolk_slice slices[MIXED][2];
    struct yolk_kv kvs[MIXED];
    struct yolk_put_options options;
    yolk_put_options_init(&options);
    for (int i = 0; i < MIXED; i++) {
        const size_t half = VALUE / 2;
        uint8_t *gpu = c->memory + (size_t)i * half, *here = host + (size_t)i * half;
        snprintf(keys[i], sizeof(keys[0]), "mixed%d", i);
        slices[i][0] = (struct yolk_slice){put ? gpu : here, half};
        slices[i][1] = (struct yolk_slice){put ? here : gpu, half};
        kvs[i] = (struct yolk_kv){.key = keys[i],
                                  .key_size = strlen(keys[i]),
                                  .slices = slices[i],
                                  .slice_count = 2,
                                  .result = -99};
        if (put) {
            kit_fill(c->model, VALUE, round + (uint64_t)i);
            kit_put(c->device, c->gpu, gpu, c->model, half);
            memcpy(here, c->model + half, half);
        }
    }
    for (int part = 0; part < 2 && put; part++) {
        struct yolk_kv some[MIXED / 2];
        for (int i = 0; i < MIXED / 2; i++)
            some[i] = kvs[2 * i + part];
        options.preferred_segments = &names[part];
        options.preferred_segment_count = 1;
        CHECK_OK(yolk_store_put_with(c->store, some, MIXED / 2, &options));
    }
    if (put)
        return;
    CHECK_OK(yolk_store_get(c->store, kvs, MIXED));
    for (int i = 0; i < MIXED; i++) {
        const size_t half = VALUE / 2;
        kit_fill(c->model, VALUE, round + (uint64_t)i);
        kit_get(c->device, c->gpu, c->now, c->memory + (size_t)i * half, half);
        CHECK(memcmp(host + (size_t)i * half, c->model, half) == 0);
        CHECK(memcmp(c->now, c->model + half, half) == 0);
    }
}

/* What lies in the pool is loaded by each GPU and by the processor; what does not is not said to.
 */
static void touch_mixed(struct consumer *c, uint64_t round)
{
    for (int i = 0; i < MIXED; i++) {
        char key[32];
        struct yolk_buffer buffer;
        struct device_memory memory;
        snprintf(key, sizeof(key), "mixed%d", i);
        kit_fill(c->model, VALUE, round + (uint64_t)i);
        CHECK_OK(yolk_store_get_buffer(c->store, key, strlen(key), &buffer));
        CHECK(buffer.mapped && memcmp(buffer.data, c->model, VALUE) == 0);
        CHECK_OK(device_query(c->device, buffer.data, &memory));
        CHECK((memory.kind == DEVICE_HOST_NUMA) == (i % 2 == 0));
        yolk_store_release_buffer(c->store, &buffer);
        int status = yolk_store_get_device_buffer(c->store, key, strlen(key), &buffer);
        CHECK(status == (i % 2 == 0 ? YOLK_OK : YOLK_ERR_UNSUPPORTED));
        if (status != YOLK_OK)
            continue;
        CHECK_OK(yolk_store_check_buffer(c->store, &buffer));
        for (int gpu = 0; gpu < (int)device_count(c->device); gpu++) {
            memset(c->now, 0xee, VALUE);
            kit_get(c->device, gpu, c->now, buffer.data, VALUE);
            CHECK(memcmp(c->now, c->model, VALUE) == 0);
        }
        yolk_store_release_buffer(c->store, &buffer);
    }
}

static void use_both(const struct role *role, int line)
{
    struct consumer c = {.device = open_device(), .gpu = 1};
    struct yolk_store_options options;
    struct device_memory memory;
    uint8_t *host = malloc(MIXED * VALUE);
    char text[TEXT];
    uint64_t round;
    CHECK(host != NULL && dlopen(kit_fake_path("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) != NULL);
    c.model = malloc(VALUE);
    c.now = malloc(VALUE);
    c.memory = kit_gpu_alloc(c.device, c.gpu, MIXED * VALUE);
    options_of(role, &options);
    options.transport = "auto";
    CHECK_OK(yolk_store_open(&options, &c.store));
    CHECK_OK(device_query(c.device, host, &memory));
    CHECK(memory.kind == DEVICE_HOST);
    CHECK_OK(device_query(c.device, c.memory, &memory));
    CHECK(memory.kind == DEVICE_GPU && memory.ordinal == 1);
    read_line(line, text, sizeof(text));
    CHECK(sscanf(text, "all 0 %" SCNu64, &round) == 1);
    move_mixed(&c, host, round, true);
    move_mixed(&c, host, round, false);
    touch_mixed(&c, round);
    CHECK_OK(yolk_store_close(c.store));
    snprintf(text, sizeof(text), "%d", MIXED);
    say(line, text);
    free(host);
    free(c.model);
    free(c.now);
}

static void c142_each_memory_is_taken_as_what_it_is(void **state)
{
    char address[TEXT] = "";
    (void)state;
    if (kit_real())
        return;
    struct process master = begin_master(address);
    struct role role = {.run = provide_none, .fake = "set gpus 2; set nodes 2; set hostnuma 0"};
    snprintf(role.text, sizeof(role.text), "%s", address);
    struct process none = begin(&role);
    expect(&none, "done");
    assert_int_equal(end(&none), 0);
    role.run = provide_both;
    role.fake = "set gpus 2; set nodes 2";
    struct process provider = begin(&role);
    expect(&provider, "ready");
    role.run = use_both;
    struct process user = begin(&role);
    assert_int_equal(ask(&user, "all", 0, 70), MIXED);
    assert_int_equal(end(&user), 0);
    say(provider.line, "close");
    expect(&provider, "closed");
    assert_int_equal(end(&provider), 0);
    assert_int_equal(end(&master), 0);
}

/* ---- every call of the driver that a pool makes ---- */

static const char *const driver_calls[] = {
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuMemRetainAllocationHandle",
    "cuPointerGetAttributes",
};
enum { CALLS = sizeof(driver_calls) / sizeof(driver_calls[0]), NTH_MAX = 40 };

static bool is_empty(void)
{
    return kit_fake("count vmm") == 0 && kit_fake("count handles") == 0 &&
           kit_fake("count reserved") == 0;
}

/* Opens a pool and closes it while call number nth of this name fails, once or for ever after; at
 * last nothing is left. False: there is no such call. */
static bool fail_one(const struct role *role, const char *call, unsigned nth, bool for_ever)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    char command[128];
    pool_options(role, &options);
    options.drain_grace_ms = 100;
    options.segment_size_bytes = 32 * MIB;
    snprintf(command, sizeof(command), "fail %s %u 999 %d", call, nth, for_ever ? 0 : 1);
    (void)kit_fake(command);
    snprintf(command, sizeof(command), "calls %s", call);
    long before = kit_fake(command);
    int opened = yolk_store_open(&options, &store);
    CHECK(opened == YOLK_OK || strstr(yolk_last_error(), "999") != NULL || store == NULL);
    CHECK(opened == YOLK_OK || store != NULL || is_empty());
    int closed = store == NULL ? YOLK_OK : yolk_store_close(store);
    bool reached = kit_fake(command) - before >= (long)nth;
    (void)kit_fake("disarm");
    if (closed != YOLK_OK) {
        CHECK(yolk_store_health(store) == 3 || yolk_store_health(store) == 4);
        CHECK(!is_empty()); /* what is left is owned */
        CHECK_OK(yolk_store_close(store));
    }
    if (!is_empty()) {
        fprintf(stderr, "%s %u %s: %ld vmm, %ld handles, %ld reserved are left (%d, %d)\n", call,
                nth, for_ever ? "for ever" : "once", kit_fake("count vmm"),
                kit_fake("count handles"), kit_fake("count reserved"), opened, closed);
        _exit(1);
    }
    return reached;
}

static void fail_each(const struct role *role, int line)
{
    char text[TEXT];
    unsigned tried = 0;
    for (unsigned i = 0; i < CALLS; i++)
        for (int for_ever = 0; for_ever < 2; for_ever++) {
            unsigned nth = 1;
            while (nth < NTH_MAX && fail_one(role, driver_calls[i], nth, for_ever != 0))
                nth++;
            tried += nth - 1;
        }
    snprintf(text, sizeof(text), "%u", tried);
    say(line, text);
}

static void c143_each_driver_call_fails_once_and_for_ever(void **state)
{
    char address[TEXT] = "", text[TEXT];
    (void)state;
    if (kit_real())
        return;
    struct process master = begin_master(address);
    struct role role = {.run = fail_each, .fake = "set gpus 2; set nodes 2"};
    snprintf(role.text, sizeof(role.text), "%s", address);
    struct process p = begin(&role);
    read_line(p.line, text, sizeof(text));
    assert_int_equal(end(&p), 0);
    printf("%s calls failed\n", text);
    assert_true(strtol(text, NULL, 10) > 40);
    assert_int_equal(end(&master), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c142_each_memory_is_taken_as_what_it_is),
        cmocka_unit_test(c143_each_driver_call_fails_once_and_for_ever),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
