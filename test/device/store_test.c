/* SPDX-License-Identifier: Apache-2.0 */
/* The store with memory of GPUs: the same calls as with the processor's, over shared memory, over
 * sockets, from disks; and how fast, beside the copy engine. */
#include "kit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yolk/store.h>

#include "base/limits.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "../store/served_master.h"

enum { AREA = 8 << 20 };

struct world {
    struct device *device;
    struct master master;
    struct yolk_store *node, *client;
    uint8_t *gpu, *model; /* the latter: what the former should hold */
};

static void master_start(struct master *master)
{
    struct master_config config;
    master_config_default(&config);
    config.lease_ttl_ms = 50;
    master_start_with(master, &config);
}

static struct yolk_store *open_store(const char *master, uint64_t segment, const char *transport)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = master;
    options.segment_size_bytes = segment;
    options.transport = transport;
    options.drain_grace_ms = 100;
    assert_ok(yolk_store_open(&options, &store));
    return store;
}

/* The fake is found by its name from here on, as CUDA is where there is a GPU. */
static struct device *open_device(void)
{
    if (!kit_real())
        assert_non_null(dlopen(kit_fake_path("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL));
    return kit_open(NULL);
}

static void open_world(struct world *w, const char *transport)
{
    memset(w, 0, sizeof(*w));
    w->device = open_device();
    w->gpu = kit_gpu_alloc(w->device, 0, AREA);
    w->model = malloc(AREA);
    kit_fill(w->model, AREA, 3);
    kit_put(w->device, 0, w->gpu, w->model, AREA);
    master_start(&w->master);
    w->node = open_store(w->master.address, 64 * MIB, NULL);
    w->client = open_store(w->master.address, 0, transport);
}

static void close_world(struct world *w)
{
    assert_ok(yolk_store_close(w->client));
    assert_ok(yolk_store_close(w->node));
    master_stop(&w->master);
    kit_gpu_free(w->device, 0, w->gpu);
    free(w->model);
    kit_close(w->device);
}

static void assert_gpu_is_model(const struct world *w)
{
    uint8_t *there = malloc(AREA);
    kit_get(w->device, 0, there, w->gpu, AREA);
    assert_memory_equal(there, w->model, AREA);
    free(there);
}

static int64_t put(struct yolk_store *store, const char *key, const struct yolk_slice *slices,
                   size_t count)
{
    struct yolk_kv kv = {
        .key = key, .key_size = strlen(key), .slices = slices, .slice_count = count, .result = -99};
    (void)!yolk_store_put(store, &kv, 1);
    return kv.result;
}

static int64_t get(struct yolk_store *store, const char *key, const struct yolk_slice *slices,
                   size_t count)
{
    struct yolk_kv kv = {
        .key = key, .key_size = strlen(key), .slices = slices, .slice_count = count, .result = -99};
    (void)!yolk_store_get(store, &kv, 1);
    return kv.result;
}

#define assert_size(call, wanted)                                                                  \
    do {                                                                                           \
        int64_t result_ = (call);                                                                  \
        if (result_ != (int64_t)(wanted))                                                          \
            fail_msg("%s: %lld: %s", #call, (long long)result_, yolk_last_error());                \
    } while (0)

/* Pieces of the lower half, whose bytes are the value; and the places for it in the upper half. */
enum { PIECES = 5 };
static const size_t sizes[PIECES] = {1, 4097, 100000, 3, 65536};

static uint64_t cut(uint8_t *from, struct yolk_slice *slices, uint8_t *model, uint8_t *value)
{
    uint64_t total = 0, at = 77;
    for (int i = 0; i < PIECES; i++) {
        slices[i] = (struct yolk_slice){from + at, sizes[i]};
        if (value != NULL)
            memcpy(value + total, model + at, sizes[i]);
        total += sizes[i];
        at += sizes[i] + 1000 + (uint64_t)i;
    }
    return total;
}

/* What the pieces in the upper half should hold after a get of `value`. */
static void scatter(struct world *w, const struct yolk_slice *slices, const uint8_t *value)
{
    for (int i = 0; i < PIECES; i++) {
        memcpy(w->model + ((uint8_t *)slices[i].ptr - w->gpu), value, slices[i].size);
        value += slices[i].size;
    }
}

static void every_way(struct world *w, const char *suffix)
{
    struct yolk_slice from[PIECES], to[PIECES], host;
    uint8_t *value = malloc(AREA), *back = malloc(AREA);
    char a[32], b[32], empty[32];
    snprintf(a, sizeof(a), "a %s", suffix);
    snprintf(b, sizeof(b), "b %s", suffix);
    snprintf(empty, sizeof(empty), "empty %s", suffix);
    uint64_t size = cut(w->gpu, from, w->model, value);
    (void)cut(w->gpu + AREA / 2, to, NULL, NULL);
    host = (struct yolk_slice){back, size};
    /* From a GPU, to the processor and to the GPU. */
    assert_size(put(w->client, a, from, PIECES), size);
    assert_size(get(w->client, a, &host, 1), size);
    assert_memory_equal(back, value, size);
    assert_size(get(w->client, a, to, PIECES), size);
    scatter(w, to, value);
    assert_gpu_is_model(w);
    assert_size(get(w->node, a, to, PIECES), size);
    assert_gpu_is_model(w);
    /* From the processor to the GPU. */
    kit_fill(value, size, 1234);
    host.ptr = value;
    assert_size(put(w->client, b, &host, 1), size);
    assert_size(get(w->client, b, to, PIECES), size);
    scatter(w, to, value);
    assert_gpu_is_model(w);
    /* A value that is shorter than the room, and one of no bytes. */
    struct yolk_slice more[2] = {{w->gpu + AREA / 2, size - 10}, {w->gpu + AREA / 2 + size, 1000}};
    assert_size(get(w->client, b, more, 2), size);
    memcpy(w->model + AREA / 2, value, size - 10);
    memcpy(w->model + AREA / 2 + size, value + size - 10, 10);
    assert_gpu_is_model(w);
    assert_size(get(w->client, b, more, 1), YOLK_ERR_BUFFER_SMALL);
    struct yolk_slice nothing = {w->gpu, 0};
    assert_size(put(w->client, empty, &nothing, 1), 0);
    assert_size(get(w->client, empty, more, 2), 0);
    assert_gpu_is_model(w);
    free(value);
    free(back);
}

static void over(const char *transport)
{
    struct world w;
    open_world(&w, transport);
    every_way(&w, "unregistered");
    assert_ok(yolk_store_register_buffer(w.client, w.gpu, AREA));
    every_way(&w, "registered");
    assert_ok(yolk_store_unregister_buffer(w.client, w.gpu));
    assert_ok(yolk_store_register_buffer(w.client, w.gpu + 50, AREA / 4)); /* a part of it */
    struct yolk_slice inside = {w.gpu + 100, 5000}, out = {w.gpu + 3 * MIB, 5000};
    assert_size(put(w.client, "inside", &inside, 1), 5000);
    assert_size(get(w.client, "inside", &out, 1), 5000);
    memcpy(w.model + 3 * MIB, w.model + 100, 5000);
    assert_gpu_is_model(&w);
    assert_ok(yolk_store_unregister_buffer(w.client, w.gpu + 50));
    close_world(&w);
}

static void c42_over_shared_memory(void **state)
{
    (void)state;
    over("shm");
}

static void c42_over_sockets(void **state)
{
    (void)state;
    over("tcp");
}

/* Ranges that overlap, each registered for one call only, at the same time. */
struct overlapping {
    struct world *w;
    int number;
    int wrong;
};

static void *put_overlapping(void *arg)
{
    struct overlapping *mine = arg;
    struct world *w = mine->w;
    uint8_t *back = malloc(MIB);
    for (int round = 0; round < 6; round++) {
        char key[32];
        uint64_t at = (uint64_t)(mine->number * 3 + round) * 50000;
        struct yolk_slice slice = {w->gpu + at, MIB}, host = {back, MIB};
        snprintf(key, sizeof(key), "o %d %d", mine->number, round);
        if (put(w->client, key, &slice, 1) != (int64_t)MIB ||
            get(w->client, key, &host, 1) != (int64_t)MIB || memcmp(back, w->model + at, MIB) != 0)
            mine->wrong++;
    }
    free(back);
    return NULL;
}

static void c39_overlapping_calls(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct world w;
    struct overlapping calls[THREADS];
    pthread_t threads[THREADS];
    open_world(&w, "shm");
    for (int i = 0; i < THREADS; i++) {
        calls[i] = (struct overlapping){&w, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, put_overlapping, &calls[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(calls[i].wrong, 0);
    assert_gpu_is_model(&w);
    close_world(&w);
}

/* -- many callers -- */

struct caller {
    struct world *w;
    int number;
    int wrong;
};

static void *mix(void *arg)
{
    enum { SIZE = 6000 };
    struct caller *c = arg;
    char key[32];
    uint8_t *host = malloc(SIZE);
    uint64_t at = (uint64_t)(c->number % 256) * 12000;
    struct yolk_slice from[2] = {{c->w->gpu + at, 2000}, {c->w->gpu + at + 2000, 4000}};
    struct yolk_slice to = {host, SIZE};
    snprintf(key, sizeof(key), "k%d", c->number);
    struct yolk_kv kv = {.key = key, .key_size = strlen(key)};
    c->wrong += put(c->w->client, key, from, 2) != SIZE;
    c->wrong += yolk_store_exist(c->w->client, &kv, 1) != YOLK_OK || kv.result != 1;
    c->wrong += get(c->w->client, key, &to, 1) != SIZE;
    c->wrong += memcmp(host, c->w->model + at, SIZE) != 0;
    c->wrong += get(c->w->client, key, from, 2) != SIZE; /* the same bytes onto themselves */
    free(host);
    return NULL;
}

static void mixing(const char *transport, int count)
{
    struct world w;
    struct caller *callers = calloc((size_t)count, sizeof(*callers));
    pthread_t *threads = calloc((size_t)count, sizeof(*threads));
    pthread_attr_t small;
    int wrong = 0;
    open_world(&w, transport);
    assert_ok(yolk_store_register_buffer(w.client, w.gpu, AREA));
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 512 * KIB), 0);
    for (int i = 0; i < count; i++) {
        callers[i] = (struct caller){&w, i, 0};
        assert_int_equal(pthread_create(&threads[i], &small, mix, &callers[i]), 0);
    }
    for (int i = 0; i < count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        wrong += callers[i].wrong;
    }
    assert_int_equal(pthread_attr_destroy(&small), 0);
    assert_int_equal(wrong, 0);
    assert_gpu_is_model(&w);
    assert_ok(yolk_store_unregister_buffer(w.client, w.gpu));
    free(callers);
    free(threads);
    close_world(&w);
}

static void c30_many_threads_mix_calls(void **state)
{
    (void)state;
    mixing("shm", 512);
    mixing("tcp", 128);
}

/* -- disks -- */

enum { VALUES = 64, SIZE = 300000 };

static void name(char key[16], int i)
{
    snprintf(key, 16, "v%d", i);
}

static void from_a_disk(void **state)
{
    (void)state;
    char folder[64] = "/var/tmp/yolk-gpu-XXXXXX", path[96], file[128];
    struct yolk_store_options options;
    struct yolk_store *store;
    struct device *device = open_device();
    uint8_t *gpu = kit_gpu_alloc(device, 0, 2 * SIZE + 1), *value = malloc(SIZE),
            *back = malloc(SIZE);
    int from_disk = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/values", folder);
    snprintf(file, sizeof(file), "%s.slot0", path);
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = 8 * MIB;
    options.lease_ttl_ms = 50;
    options.put_wait_ms = 20000;
    options.ssd_path = path;
    options.ssd_size_bytes = 64 * MIB;
    options.ssd_sync_ms = 10;
    assert_ok(yolk_store_open(&options, &store));
    for (int i = 0; i < VALUES; i++) {
        char key[16];
        struct yolk_slice slices[2] = {{gpu, 1000}, {gpu + 1000, SIZE - 1000}};
        name(key, i);
        kit_fill(value, SIZE, (uint64_t)i);
        kit_put(device, 0, gpu, value, SIZE);
        assert_size(put(store, key, slices, 2), SIZE);
    }
    for (int i = 0; i < VALUES; i++) {
        char key[16];
        struct yolk_slice slices[2] = {{gpu + SIZE + 1, 1001}, {gpu, SIZE - 1001}};
        struct yolk_kv kv = {.key = key, .slices = slices, .slice_count = 2, .medium = 77};
        name(key, i);
        kv.key_size = strlen(key);
        assert_ok(yolk_store_get(store, &kv, 1));
        assert_int_equal(kv.result, SIZE);
        from_disk += kv.medium == YOLK_MEDIUM_LOCAL_DISK;
        kit_get(device, 0, back, gpu + SIZE + 1, 1001);
        kit_get(device, 0, back + 1001, gpu, SIZE - 1001);
        kit_fill(value, SIZE, (uint64_t)i);
        assert_memory_equal(back, value, SIZE);
    }
    assert_true(from_disk > 0);
    assert_ok(yolk_store_close(store));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
    kit_gpu_free(device, 0, gpu);
    free(value);
    free(back);
    kit_close(device);
}

/* -- what the caller's CUDA must not notice -- */

static void context_device_and_capture_stay(void **state)
{
    (void)state;
    struct world w;
    struct device_scope scope;
    cuda_stream stream;
    cuda_graph graph = NULL;
    cuda_context before = NULL, after = NULL;
    open_world(&w, "shm");
    const struct cuda *cuda = device_cuda(w.device);
    assert_ok(device_enter(w.device, 0, &scope));
    assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    int mode = CUDA_CAPTURE_GLOBAL;
    assert_int_equal(cuda->thread_exchange_capture_mode(&mode), CUDA_OK);
    assert_int_equal(cuda->ctx_get_current(&before), CUDA_OK);
    assert_int_equal(cuda->stream_begin_capture(stream, CUDA_CAPTURE_GLOBAL), CUDA_OK);
    struct yolk_slice slice = {w.gpu, MIB}, to = {w.gpu + 4 * MIB, MIB};
    assert_ok(yolk_store_register_buffer(w.client, w.gpu, AREA));
    assert_size(put(w.client, "k", &slice, 1), MIB);
    assert_size(get(w.client, "k", &to, 1), MIB);
    assert_ok(yolk_store_unregister_buffer(w.client, w.gpu));
    assert_int_equal(cuda->stream_end_capture(stream, &graph), CUDA_OK);
    assert_non_null(graph);
    assert_int_equal(cuda->ctx_get_current(&after), CUDA_OK);
    assert_ptr_equal(before, after);
    assert_int_equal(cuda->thread_exchange_capture_mode(&mode), CUDA_OK);
    assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
    device_leave(w.device, &scope);
    memcpy(w.model + 4 * MIB, w.model, MIB);
    assert_gpu_is_model(&w);
    close_world(&w);
}

/* In a child of a process with threads TSan cannot bear new ones. */
#if defined(__SANITIZE_THREAD__)
enum { CHILD_MAY_HAVE_THREADS = 0 };
#else
enum { CHILD_MAY_HAVE_THREADS = 1 };
#endif

/* A child of fork hears why, and the parent's store goes on. */
static int in_child(const struct world *w)
{
    struct yolk_slice slice = {w->gpu, 1000};
    struct yolk_store *own = NULL;
    struct yolk_store_options options;
    if (put(w->client, "child", &slice, 1) != YOLK_ERR_FORKED ||
        strstr(yolk_last_error(), "open one in this process") == NULL)
        return 1;
    if (yolk_store_close(w->client) != YOLK_ERR_FORKED)
        return 2;
    if (!CHILD_MAY_HAVE_THREADS)
        return 0;
    yolk_store_options_init(&options);
    options.master = w->master.address;
    if (yolk_store_open(&options, &own) != YOLK_OK)
        return 3;
    if (put(own, "child", &slice, 1) != YOLK_ERR_FORKED)
        return 4;
    uint8_t host[1000] = {1};
    slice.ptr = host; /* the processor's memory is as good as ever */
    if (put(own, "child", &slice, 1) != 1000)
        return 5;
    return yolk_store_close(own) == YOLK_OK ? 0 : 6;
}

static void c150_a_child_of_fork_is_told(void **state)
{
    (void)state;
    struct world w;
    int status = -1;
    open_world(&w, "shm");
    struct yolk_slice slice = {w.gpu, 1000}, to = {w.gpu + 2000, 1000};
    assert_size(put(w.client, "before", &slice, 1), 1000);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(in_child(&w));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_size(get(w.client, "before", &to, 1), 1000);
    memcpy(w.model + 2000, w.model, 1000);
    assert_gpu_is_model(&w);
    close_world(&w);
}

/* Without memory of its own, of a real client that has some. */
static void c41_a_dummy_client(void **state)
{
    (void)state;
    struct world w;
    struct yolk_store_options options;
    struct yolk_store *dummy = NULL;
    uint16_t port = 0;
    char address[32];
    open_world(&w, "shm");
    assert_ok(yolk_store_serve_clients(w.node, "127.0.0.1:0", &port));
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    yolk_store_options_init(&options);
    options.real_client = address;
    assert_ok(yolk_store_open(&options, &dummy));
    struct yolk_store *client = w.client;
    w.client = dummy;
    assert_ok(yolk_store_register_buffer(dummy, w.gpu, AREA));
    every_way(&w, "by a dummy");
    assert_ok(yolk_store_unregister_buffer(dummy, w.gpu));
    w.client = client;
    assert_ok(yolk_store_close(dummy));
    close_world(&w);
}

/* -- speed -- */

enum { BLOCK = 32 << 10, LAYERS = 64 };

static double now_s(void)
{
    return (double)clock_real_now_ns() / 1e9;
}

/* GB/s of the copy engine with one large copy of pinned memory. */
static double copy_engine(struct device *device, uint8_t *gpu, void *pinned, size_t size,
                          enum device_direction direction)
{
    double best = 0;
    const struct device_copy copy = {direction == DEVICE_TO_GPU ? gpu : pinned,
                                     direction == DEVICE_TO_GPU ? pinned : (void *)gpu, size};
    const struct device_copy_options how = {.direction = direction};
    for (int round = 0; round < 5; round++) {
        struct device_transfer *transfer;
        double start = now_s();
        assert_int_equal(device_copy(device, 0, &copy, 1, &how, &transfer), 1);
        assert_ok(device_transfer_wait(transfer, clock_after_ms(clock_real_now_ns(), 20000)));
        double speed = (double)size / (now_s() - start) / 1e9;
        assert_ok(device_transfer_free(transfer));
        best = speed > best ? speed : best;
    }
    return best;
}

struct blocks {
    uint32_t count;
    struct yolk_kv *kvs;
    struct yolk_slice *slices;
    char (*keys)[24];
};

/* Each value of LAYERS pieces that lie far from each other, as a cache has them layer by layer. */
static void make_blocks(struct blocks *b, uint8_t *gpu, uint32_t count, size_t block)
{
    b->count = count;
    b->kvs = calloc(count, sizeof(*b->kvs));
    b->slices = calloc((size_t)count * LAYERS, sizeof(*b->slices));
    b->keys = calloc(count, sizeof(*b->keys));
    for (uint32_t i = 0; i < count; i++) {
        struct yolk_slice *slices = &b->slices[(size_t)i * LAYERS];
        for (uint32_t k = 0; k < LAYERS; k++)
            slices[k] = (struct yolk_slice){
                gpu + ((size_t)k * count + (i * 37u + k) % count) * block, block};
        snprintf(b->keys[i], sizeof(b->keys[i]), "block %u", i);
        b->kvs[i] = (struct yolk_kv){.key = b->keys[i],
                                     .key_size = strlen(b->keys[i]),
                                     .slices = slices,
                                     .slice_count = LAYERS};
    }
}

static void free_blocks(struct blocks *b)
{
    free(b->kvs);
    free(b->slices);
    free(b->keys);
}

/* GB/s of the best of some rounds, after one that registers what is used first. What is put is new
 * each time. */
static double measure_store(struct yolk_store *store, struct blocks *b, int rounds, bool puts)
{
    double best = 0;
    for (int round = 0; round <= rounds; round++) {
        if (puts)
            assert_ok(yolk_store_remove_all(store, true, NULL));
        double start = now_s();
        if (puts)
            assert_ok(yolk_store_put(store, b->kvs, b->count));
        else
            assert_ok(yolk_store_get(store, b->kvs, b->count));
        double speed = (double)b->count * LAYERS * BLOCK / (now_s() - start) / 1e9;
        best = round > 0 && speed > best ? speed : best;
    }
    return best;
}

static void speed_over(struct device *device, struct master *master, const char *transport,
                       uint32_t count, const double engine[2])
{
    size_t size = (size_t)count * LAYERS * BLOCK;
    struct blocks b;
    struct yolk_store *client = open_store(master->address, 0, transport);
    uint8_t *gpu = kit_gpu_alloc(device, 0, size), *model = malloc(size), *back = malloc(size);
    kit_fill(model, size, 8);
    kit_put(device, 0, gpu, model, size);
    make_blocks(&b, gpu, count, BLOCK);
    assert_ok(yolk_store_register_buffer(client, gpu, size));
    double puts = measure_store(client, &b, kit_real() ? 5 : 1, true);
    memset(back, 0, size);
    kit_put(device, 0, gpu, back, size);
    double gets = measure_store(client, &b, kit_real() ? 10 : 1, false);
    kit_get(device, 0, back, gpu, size);
    assert_memory_equal(back, model, size);
    printf("FIGURE store over %s, %u values of %d x %d KiB: get %.1f GB/s = %.2f of the copy "
           "engine, put "
           "%.1f = %.2f\n",
           transport, count, LAYERS, BLOCK >> 10, gets, gets / engine[0], puts, puts / engine[1]);
    if (kit_real() && strcmp(transport, "shm") == 0)
        assert_true(gets >= 0.85 * engine[0]);
    assert_ok(yolk_store_unregister_buffer(client, gpu));
    assert_ok(yolk_store_close(client));
    kit_gpu_free(device, 0, gpu);
    free_blocks(&b);
    free(model);
    free(back);
}

static void as_fast_as_the_copy_engine(void **state)
{
    (void)state;
    struct device *device = open_device();
    uint32_t count = kit_real() ? 128 : 4;
    size_t size = (size_t)count * LAYERS * BLOCK;
    struct master master = {.address = ""};
    void *pinned;
    double engine[2];
    uint8_t *gpu = kit_gpu_alloc(device, 0, size);
    assert_ok(device_pinned_alloc(device, 0, size, &pinned));
    engine[0] = copy_engine(device, gpu, pinned, size, DEVICE_TO_GPU);
    engine[1] = copy_engine(device, gpu, pinned, size, DEVICE_FROM_GPU);
    device_pinned_free(device, pinned, size);
    kit_gpu_free(device, 0, gpu);
    printf("copy engine: to the GPU %.1f GB/s, from it %.1f\n", engine[0], engine[1]);
    master_start(&master);
    struct yolk_store *node = open_store(master.address, 4 * size, NULL);
    speed_over(device, &master, "shm", count, engine);
    speed_over(device, &master, "tcp", count, engine);
    assert_ok(yolk_store_close(node));
    master_stop(&master);
    kit_close(device);
}

/* -- how often the driver is called -- */

static const char *const driver_calls[] = {"cuLaunchKernel", "cuEventRecord", "cuMemcpyAsync",
                                           "cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync"};
enum { DRIVER_CALLS = 5 };

static void count_calls(long counts[DRIVER_CALLS], long sign)
{
    char text[64];
    for (int i = 0; i < DRIVER_CALLS; i++) {
        snprintf(text, sizeof(text), "calls %s", driver_calls[i]);
        counts[i] += sign * kit_fake(text);
    }
}

/* A value of many slices is one launch at most, with one event behind it, and staged it is one for
 * each chunk: no copy by itself, nor an event, for each slice. */
static void calls_over(const char *transport)
{
    enum { COUNT = 8, SLICE = 4096 };
    struct world w;
    struct blocks b;
    open_world(&w, transport);
    make_blocks(&b, w.gpu, COUNT, SLICE);
    assert_ok(yolk_store_register_buffer(w.client, w.gpu, AREA));
    assert_ok(yolk_store_put(w.client, b.kvs, COUNT)); /* what is made at first use */
    for (int puts = 0; puts < 2; puts++) {
        long counts[DRIVER_CALLS] = {0};
        count_calls(counts, -1);
        assert_ok(puts ? yolk_store_upsert(w.client, b.kvs, COUNT, NULL)
                       : yolk_store_get(w.client, b.kvs, COUNT));
        count_calls(counts, 1);
        printf("%s of %d x %d slices over %s: %ld launches, %ld events\n", puts ? "put" : "get",
               COUNT, LAYERS, transport, counts[0], counts[1]);
        assert_in_range(counts[0], 1, COUNT);
        assert_in_range(counts[1], 1, COUNT);
        assert_int_equal(counts[2] + counts[3] + counts[4], 0);
    }
    assert_gpu_is_model(&w);
    assert_ok(yolk_store_unregister_buffer(w.client, w.gpu));
    free_blocks(&b);
    close_world(&w);
}

static void slices_share_calls_of_the_driver(void **state)
{
    (void)state;
    if (kit_real())
        skip();
    calls_over("shm");
    calls_over("tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c42_over_shared_memory),
        cmocka_unit_test(c42_over_sockets),
        cmocka_unit_test(from_a_disk),
        cmocka_unit_test(c39_overlapping_calls),
        cmocka_unit_test(c30_many_threads_mix_calls),
        cmocka_unit_test(context_device_and_capture_stay),
        cmocka_unit_test(c150_a_child_of_fork_is_told),
        cmocka_unit_test(c41_a_dummy_client),
        cmocka_unit_test(slices_share_calls_of_the_driver),
        cmocka_unit_test(as_fast_as_the_copy_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
