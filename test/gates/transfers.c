/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that move bytes: requests of the engine, and whole puts and gets of a store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yolk/engine.h>
#include <yolk/store.h>

#include "base/limits.h"
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

const struct gate_path gate_transfer_paths[] = {
    {"engine.null_64", "request", REQUESTS, 0, set_up_null, call_engine, tear_down_engine, false},
    {"engine.null_merged_64", "request", REQUESTS, 0, set_up_merged, call_engine, tear_down_engine,
     false},
    {"engine.prepared_64", "request", REQUESTS, 0, set_up_prepared, call_prepared, tear_down_engine,
     false},
    {"engine.shm_get_64", "request", REQUESTS, 0, set_up_shm, call_engine, tear_down_engine, false},
    {"store.loop_put_32", "batch", 1, 0, set_up_put, call_put, tear_down_store, true},
    {"store.loop_get_32", "batch", 1, 0, set_up_get, call_get, tear_down_store, false},
    {"store.loop_get_1", "get", 1, 0, set_up_get, call_get_one, tear_down_store, false},
    {"store.exist_32", "batch", 1, 0, set_up_get, call_exist, tear_down_store, false},
};
const uint32_t gate_transfer_path_count =
    sizeof(gate_transfer_paths) / sizeof(gate_transfer_paths[0]);
