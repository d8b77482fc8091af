/* SPDX-License-Identifier: Apache-2.0 */
#include "gds_kit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/clock.h"

enum { WAIT_MS = 60000 };

bool gds_kit_real(void)
{
    const char *wish = getenv("YOLK_TEST_DEVICE");
    return wish != NULL && strcmp(wish, "real") == 0;
}

bool gds_kit_begin(char **argv)
{
    struct cli_gpu *gpu = NULL;
    const char *folder = getenv("YOLK_FAKES");
    if (!gds_kit_real() && getenv("GDS_KIT_BEGUN") == NULL) {
        setenv("GDS_KIT_BEGUN", "1", 1);
        setenv("LD_LIBRARY_PATH", folder != NULL ? folder : YOLK_FAKES_DIR, 1);
        execv("/proc/self/exe", argv);
        abort();
    }
    if (cli_gpu_open(0, 4096, &gpu) != YOLK_OK) {
        printf("SKIP: %s\n", yolk_last_error());
        return gds_kit_real();
    }
    cli_gpu_close(gpu);
    return false;
}

void gds_kit_fake_only(void)
{
    if (gds_kit_real())
        skip();
}

static long command(const char *name, const char *function, const char *commands)
{
    long (*control)(const char *);
    if (gds_kit_real())
        return 0;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    void *found = library != NULL ? dlsym(library, function) : NULL;
    if (found == NULL)
        fail_msg("%s", dlerror());
    memcpy(&control, &found, sizeof(control));
    return control(commands);
}

long gds_kit_fake(const char *commands)
{
    return command("libcufile.so.0", "fake_cufile_control", commands);
}

long gds_kit_fake_cuda(const char *commands)
{
    return command("libcuda.so.1", "fake_cuda_control", commands);
}

/* ---- worlds ---- */

void gds_master_start(struct gds_world *w)
{
    struct master_config config;
    master_config_default(&config);
    config.lease_ttl_ms = 50;
    config.heartbeat_ms = 50;
    config.session_ttl_ms = 2000;
    config.guard_ttl_ms = 1000;
    config.guard_margin_ms = 50;
    config.put_timeout_ms = 5000;
    master_start_with(&w->master, &config);
}

void gds_master_stop(struct gds_world *w)
{
    master_stop(&w->master);
}

void gds_world_open(struct gds_world *w, bool served)
{
    const char *folder = getenv("MOONCAKE_GDS_TEST_PATH");
    if (folder == NULL)
        folder = getenv("YOLK_TEST_PATH");
    memset(w, 0, sizeof(*w));
    snprintf(w->folder, sizeof(w->folder), "%s/yolk-gds-XXXXXX",
             folder != NULL ? folder : "/var/tmp");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof(w->path), "%s/values", w->folder);
    if (cli_gpu_open(0, GDS_BATCH * GDS_SIZE, &w->gpu) != YOLK_OK)
        fail_msg("%s", yolk_last_error());
    w->host = malloc(GDS_BATCH * GDS_SIZE);
    assert_non_null(w->host);
    gds_kit_fake("reset");
    w->served = served;
    if (served)
        gds_master_start(w);
}

void gds_world_close(struct gds_world *w)
{
    DIR *folder = opendir(w->folder);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(w->folder), 0);
    cli_gpu_close(w->gpu);
    free(w->host);
    if (w->served)
        gds_master_stop(w);
    gds_kit_fake("reset");
}

void gds_options(const struct gds_world *w, struct yolk_store_options *options, const char *name,
                 uint64_t memory, uint64_t capacity)
{
    yolk_store_options_init(options);
    options->master = w->served ? w->master.address : "embedded";
    options->name = name;
    options->segment_size_bytes = memory;
    options->lease_ttl_ms = w->served ? 0 : 50;
    options->put_wait_ms = 3000;
    options->timeout_ms = WAIT_MS;
    options->drain_grace_ms = 100;
    options->gds_enabled = capacity > 0;
    options->gds_path = w->path;
    options->gds_capacity_bytes = capacity;
}

struct yolk_store *gds_open_with(struct gds_world *w, const struct yolk_store_options *options)
{
    struct yolk_store *store = NULL;
    enum yolk_status status = yolk_store_open(options, &store);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
    status = yolk_store_register_buffer(store, cli_gpu_memory(w->gpu), GDS_BATCH * GDS_SIZE);
    if (status != YOLK_OK)
        fail_msg("register: %s: %s", yolk_strerror(status), yolk_last_error());
    return store;
}

struct yolk_store *gds_open(struct gds_world *w, const char *name, uint64_t memory,
                            uint64_t capacity)
{
    struct yolk_store_options options;
    gds_options(w, &options, name, memory, capacity);
    return gds_open_with(w, &options);
}

void gds_close(struct gds_world *w, struct yolk_store *store)
{
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    assert_int_equal(yolk_store_unregister_buffer(store, cli_gpu_memory(w->gpu)), YOLK_OK);
    enum yolk_status status = yolk_store_close(store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
}

/* ---- values ---- */

void gds_fill(uint8_t *to, size_t size, uint64_t key)
{
    uint64_t x = key * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < size; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        to[i] = (uint8_t)(x >> 56);
    }
}

int64_t gds_put_with(struct gds_world *w, struct yolk_store *store, uint64_t key,
                     const struct yolk_put_options *options)
{
    uint8_t *memory = cli_gpu_memory(w->gpu);
    struct yolk_slice slices[] = {{memory, 4096 * 3}, {memory + 4096 * 3, GDS_SIZE - 4096 * 3}};
    struct yolk_kv kv = {
        .key = &key, .key_size = sizeof(key), .slices = slices, .slice_count = 2, .result = -1};
    gds_fill(w->host, GDS_SIZE, key);
    assert_int_equal(cli_gpu_write(w->gpu, 0, w->host, GDS_SIZE), YOLK_OK);
    enum yolk_status status = yolk_store_put_with(store, &kv, 1, options);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    return kv.result;
}

int64_t gds_put(struct gds_world *w, struct yolk_store *store, uint64_t key)
{
    return gds_put_with(w, store, key, NULL);
}

int64_t gds_get(struct gds_world *w, struct yolk_store *store, uint64_t key)
{
    /* In two pieces, neither of them aligned; what lies around them stays as it is. */
    enum { FIRST = 70001 };
    uint8_t *memory = cli_gpu_memory(w->gpu), *got = w->host + GDS_SIZE + 64;
    struct yolk_slice slices[] = {{memory + 5, FIRST}, {memory + 5 + FIRST, GDS_SIZE - FIRST}};
    struct yolk_kv kv = {
        .key = &key, .key_size = sizeof(key), .slices = slices, .slice_count = 2, .medium = 77};
    memset(got, 0xa5, GDS_SIZE + 4096);
    assert_int_equal(cli_gpu_write(w->gpu, 0, got, GDS_SIZE + 4096), YOLK_OK);
    enum yolk_status status = yolk_store_get(store, &kv, 1);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    if (kv.result < 0)
        return kv.result;
    assert_int_equal(kv.result, GDS_SIZE);
    assert_int_equal(cli_gpu_read(w->gpu, 0, got, GDS_SIZE + 4096), YOLK_OK);
    gds_fill(w->host, GDS_SIZE, key);
    assert_memory_equal(got + 5, w->host, GDS_SIZE);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(got[i], 0xa5);
    for (size_t i = 5 + GDS_SIZE; i < GDS_SIZE + 4096; i++)
        assert_int_equal(got[i], 0xa5);
    return kv.medium;
}

unsigned gds_where(struct yolk_store *store, uint64_t key, struct yolk_gds_descriptor *gds)
{
    struct yolk_replica replicas[8];
    size_t count = 0;
    unsigned where = 0;
    enum yolk_status status = yolk_store_locate(store, &key, sizeof(key), replicas,
                                                sizeof(replicas) / sizeof(*replicas), &count);
    if (status == YOLK_ERR_NOT_FOUND)
        return 0;
    if (status != YOLK_OK)
        fail_msg("locate: %s: %s", yolk_strerror(status), yolk_last_error());
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(where & 1u << replicas[i].medium, 0);
        where |= 1u << replicas[i].medium;
        if (replicas[i].medium == YOLK_MEDIUM_GDS && gds != NULL)
            *gds = replicas[i].gds;
    }
    return where;
}

int64_t gds_clear(struct yolk_store *store, uint64_t key, const char *segment)
{
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), WAIT_MS);
    struct yolk_kv kv = {.key = &key, .key_size = sizeof(key)};
    do {
        enum yolk_status status = yolk_store_clear_replicas(store, &kv, 1, segment);
        assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    } while (kv.result == YOLK_ERR_HAS_LEASE && clock_real_now_ns() < deadline);
    return kv.result;
}

double gds_figure(struct yolk_store *store, const char *name)
{
    char *text = NULL;
    double value = -1;
    size_t size = strlen(name);
    assert_int_equal(yolk_store_stat(store, &text), YOLK_OK);
    for (const char *line = text; line != NULL && *line != 0;) {
        if (strncmp(line, name, size) == 0 && line[size] == ' ')
            value = strtod(line + size, NULL);
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    free(text);
    return value;
}

void gds_await_none(struct yolk_store *store, const char *name)
{
    uint64_t deadline = clock_after_ms(clock_real_now_ns(), WAIT_MS);
    while (gds_figure(store, name) != 0 && clock_real_now_ns() < deadline)
        continue;
    assert_true(gds_figure(store, name) == 0);
}
