/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that move bytes: requests of the engine, and whole puts and gets of a store. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yolk/engine.h>
#include <yolk/store.h>

#include "base/limits.h"
#include "device/cuda.h"
#include "device/device.h"
#include "paths.h"
#include "transport/null/null.h"
#include "transport/shm/shm.h"

enum { REQUESTS = 64, SIZE = 4096, SEGMENT = 0x700000001, SESSION = 77, KEYS = 256, BATCH = 32 };

/* ---- the engine ---- */
static struct {
    struct yolk_engine *provider, *engine;
    struct yolk_memory served_memory;
    struct yolk_served *served;
    uint8_t *memory;
    struct yolk_request requests[REQUESTS];
    enum yolk_status verdicts[REQUESTS];
    uint64_t prepared, batch;
} e;

static struct yolk_engine *make_engine(const struct yolk_transport_ops *transport,
                                       enum yolk_switch merge)
{
    struct yolk_engine_options options;
    struct yolk_engine *engine;
    yolk_engine_options_init(&options);
    options.transports = &transport;
    options.transport_count = 1;
    options.merge = merge;
    gate_must(yolk_engine_create(&options, &engine), "an engine");
    return engine;
}

static void open_segment(const char *endpoints)
{
    uint64_t segment;
    e.memory = calloc(REQUESTS, SIZE);
    gate_must(e.memory ? YOLK_OK : YOLK_ERR_NO_MEMORY, "memory");
    gate_must(yolk_engine_register(e.engine, e.memory, REQUESTS * SIZE), "registering");
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = REQUESTS * SIZE, .endpoints = endpoints};
    gate_must(yolk_engine_segment_open(e.engine, &descriptor, SESSION, &segment), "a segment");
    for (uint32_t i = 0; i < REQUESTS; i++)
        e.requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                              .local = e.memory + (size_t)i * SIZE,
                                              .segment = segment,
                                              .offset = (uint64_t)i * SIZE,
                                              .size = SIZE};
}

static void set_up_null(void)
{
    e.engine = make_engine(transport_null_ops(), YOLK_SWITCH_OFF);
    open_segment("null=0");
}

static void set_up_merged(void)
{
    e.engine = make_engine(transport_null_ops(), YOLK_SWITCH_ON);
    open_segment("null=0");
}

/* What a user may turn on: the queue, contracts and policies, all of which look at each request. */
static void set_up_all_on(void)
{
    const struct yolk_transport_ops *transport = transport_null_ops();
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = &transport;
    options.transport_count = 1;
    options.merge = YOLK_SWITCH_OFF;
    options.queue.enable = YOLK_SWITCH_ON;
    options.qos_json = "{\"version\": 1, \"defaults\": {\"max_inflight_bytes\": \"1GiB\"}}";
    options.policy_json = "[{\"segment_type\": \"file\"}, {\"segment_type\": \"memory\", "
                          "\"max_size\": 1024}, {\"segment_type\": \"memory\"}]";
    gate_must(yolk_engine_create(&options, &e.engine), "an engine");
    open_segment("null=0");
}

static void set_up_shm(void)
{
    e.provider = make_engine(transport_shm_ops(), YOLK_SWITCH_OFF);
    e.engine = make_engine(transport_shm_ops(), YOLK_SWITCH_OFF);
    gate_must(yolk_engine_memory_alloc(e.provider, REQUESTS * SIZE, &e.served_memory), "memory");
    struct yolk_serve_options serve = {.struct_size = sizeof(serve),
                                       .memory = e.served_memory.pointer,
                                       .size = REQUESTS * SIZE,
                                       .allocation = &e.served_memory,
                                       .segment = SEGMENT};
    gate_must(yolk_engine_serve(e.provider, &serve, &e.served), "serving");
    open_segment(yolk_served_endpoints(e.served));
}

/* A batch of requests from its making to its end. */
static enum yolk_status call_engine(void *self)
{
    uint64_t batch;
    (void)self;
    enum yolk_status status = yolk_engine_batch_create(e.engine, REQUESTS, &batch);
    if (status == YOLK_OK)
        status = yolk_engine_batch_submit(e.engine, batch, e.requests, REQUESTS, e.verdicts, NULL);
    if (status == YOLK_OK)
        status = yolk_engine_batch_wait(e.engine, batch, 0);
    return status == YOLK_OK ? yolk_engine_batch_free(e.engine, batch) : status;
}

static void set_up_prepared(void)
{
    set_up_null();
    gate_must(yolk_engine_prepare(e.engine, e.requests, REQUESTS, e.verdicts, &e.prepared),
              "preparing");
    gate_must(yolk_engine_batch_create(e.engine, REQUESTS, &e.batch), "a batch");
}

/* The same requests posted again in the same batch. */
static enum yolk_status call_prepared(void *self)
{
    (void)self;
    enum yolk_status status =
        yolk_engine_batch_submit_prepared(e.engine, e.batch, e.prepared, NULL, 0, 0, NULL, NULL);
    if (status == YOLK_OK)
        status = yolk_engine_batch_wait(e.engine, e.batch, 0);
    return status == YOLK_OK ? yolk_engine_batch_reset(e.engine, e.batch) : status;
}

static void tear_down_engine(void)
{
    gate_must(yolk_engine_destroy(e.engine), "ending the engine");
    if (e.provider != NULL) {
        yolk_engine_unserve(e.provider, e.served);
        yolk_engine_memory_free(e.provider, &e.served_memory);
        gate_must(yolk_engine_destroy(e.provider), "ending the provider");
    }
    free(e.memory);
}

/* ---- the store ---- */
static struct {
    struct yolk_store *store;
    uint8_t *memory;
    char keys[BATCH][24];
    struct yolk_slice slices[BATCH];
    struct yolk_kv kvs[BATCH];
    uint32_t next;
} s;

static void name_keys(uint32_t first)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        snprintf(s.keys[i], sizeof(s.keys[i]), "key-%07u", first + i);
        s.slices[i] = (struct yolk_slice){s.memory + (size_t)i * SIZE, SIZE};
        s.kvs[i] = (struct yolk_kv){s.keys[i], strlen(s.keys[i]), &s.slices[i], 1, 0, 0};
    }
}

static enum yolk_status call_put(void *self)
{
    (void)self;
    name_keys(s.next);
    s.next += BATCH;
    return yolk_store_put(s.store, s.kvs, BATCH);
}

static void set_up_put(void)
{
    struct yolk_store_options options;
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = 256 * MIB;
    gate_must(yolk_store_open(&options, &s.store), "a store");
    s.memory = calloc(BATCH, SIZE);
    gate_must(s.memory ? YOLK_OK : YOLK_ERR_NO_MEMORY, "memory");
    gate_must(yolk_store_register_buffer(s.store, s.memory, BATCH * SIZE), "registering");
}

static void set_up_get(void)
{
    set_up_put();
    while (s.next < KEYS)
        gate_must(call_put(NULL), "putting");
}

static enum yolk_status call_get(void *self)
{
    (void)self;
    s.next = (s.next + BATCH) % KEYS;
    name_keys(s.next);
    return yolk_store_get(s.store, s.kvs, BATCH);
}

static enum yolk_status call_get_one(void *self)
{
    (void)self;
    s.next = (s.next + BATCH) % KEYS;
    name_keys(s.next);
    return yolk_store_get(s.store, s.kvs, 1);
}

static enum yolk_status call_exist(void *self)
{
    (void)self;
    s.next = (s.next + BATCH) % KEYS;
    name_keys(s.next);
    return yolk_store_exist(s.store, s.kvs, BATCH);
}

static void tear_down_store(void)
{
    gate_must(yolk_store_close(s.store), "closing");
    free(s.memory);
}

/* ---- the store and a GPU's memory ---- */

/* Blocks of a cache, layer by layer: each value's slices lie apart. */
enum { BLOCKS = 8, LAYERS = 64, LAYER = 1024 };

static struct {
    struct device *device;
    struct yolk_store *store;
    uint8_t *memory;
    char keys[BLOCKS][24];
    struct yolk_slice slices[BLOCKS][LAYERS];
    struct yolk_kv kvs[BLOCKS];
    uint32_t next;
} g;

/* New keys each time: what is put in place of another value waits for the owner of that. */
static enum yolk_status call_gpu_put(void *self)
{
    (void)self;
    for (uint32_t i = 0; i < BLOCKS; i++)
        snprintf(g.keys[i], sizeof(g.keys[i]), "block-%07u", g.next++);
    return yolk_store_put(g.store, g.kvs, BLOCKS);
}

static enum yolk_status call_gpu_get(void *self)
{
    (void)self;
    return yolk_store_get(g.store, g.kvs, BLOCKS);
}

/* Of the fake GPU, whose driver is found by its name from here on, as a real one is. */
static void take_gpu_memory(void)
{
    struct device_scope scope;
    cuda_pointer memory = 0;
    gate_must(dlopen(YOLK_FAKES_DIR "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL
                  ? YOLK_OK
                  : YOLK_ERR_NOT_FOUND,
              "the fake driver");
    gate_must(device_share(NULL, NULL, &g.device), "the GPU");
    gate_must(device_enter(g.device, 0, &scope), "the GPU");
    if (device_cuda(g.device)->mem_alloc(&memory, (size_t)BLOCKS * LAYERS * LAYER) != CUDA_OK)
        gate_must(YOLK_ERR_NO_MEMORY, "a GPU's memory");
    device_leave(g.device, &scope);
    g.memory = (uint8_t *)(uintptr_t)memory;
}

static void set_up_gpu(void)
{
    struct yolk_store_options options;
    take_gpu_memory();
    yolk_store_options_init(&options);
    options.master = "embedded";
    options.segment_size_bytes = 64 * MIB;
    options.transport = "shm";
    gate_must(yolk_store_open(&options, &g.store), "a store");
    gate_must(yolk_store_register_buffer(g.store, g.memory, (size_t)BLOCKS * LAYERS * LAYER),
              "registering");
    for (uint32_t i = 0; i < BLOCKS; i++) {
        for (uint32_t k = 0; k < LAYERS; k++)
            g.slices[i][k] = (struct yolk_slice){g.memory + (k * BLOCKS + i) * LAYER, LAYER};
        g.kvs[i] = (struct yolk_kv){g.keys[i], strlen("block-0000000"), g.slices[i], LAYERS, 0, 0};
    }
    gate_must(call_gpu_put(NULL), "putting");
}

static void tear_down_gpu(void)
{
    struct device_scope scope;
    gate_must(yolk_store_close(g.store), "closing");
    gate_must(device_enter(g.device, 0, &scope), "the GPU");
    (void)device_cuda(g.device)->mem_free((uintptr_t)g.memory);
    device_leave(g.device, &scope);
    device_unshare(g.device);
}

const struct gate_path gate_transfer_paths[] = {
    {"engine.null_64", "request", REQUESTS, 0, set_up_null, call_engine, tear_down_engine, false},
    {"engine.null_merged_64", "request", REQUESTS, 0, set_up_merged, call_engine, tear_down_engine,
     false},
    {"engine.all_on_64", "request", REQUESTS, 0, set_up_all_on, call_engine, tear_down_engine,
     false},
    {"engine.prepared_64", "request", REQUESTS, 0, set_up_prepared, call_prepared, tear_down_engine,
     false},
    {"engine.shm_get_64", "request", REQUESTS, 0, set_up_shm, call_engine, tear_down_engine, false},
    {"store.loop_put_32", "batch", 1, 0, set_up_put, call_put, tear_down_store, true},
    {"store.loop_get_32", "batch", 1, 0, set_up_get, call_get, tear_down_store, true},
    {"store.loop_get_1", "get", 1, 0, set_up_get, call_get_one, tear_down_store, true},
    {"store.gpu_get_512", "slice", BLOCKS *LAYERS, 0, set_up_gpu, call_gpu_get, tear_down_gpu,
     true},
    {"store.gpu_put_512", "slice", BLOCKS *LAYERS, 0, set_up_gpu, call_gpu_put, tear_down_gpu,
     true},
    {"store.exist_32", "batch", 1, 0, set_up_get, call_exist, tear_down_store, false},
};
const uint32_t gate_transfer_path_count =
    sizeof(gate_transfer_paths) / sizeof(gate_transfer_paths[0]);
