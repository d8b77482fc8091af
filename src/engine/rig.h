/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: one engine that serves memory to itself by up to two scripted transports. The memory
 * that is served and the local memory both end at a page that may not be touched, and begin behind
 * one. */
#ifndef YOLK_ENGINE_RIG_H
#define YOLK_ENGINE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <yolk/engine.h>

#include "engine/scripted.h"
#include "platform/clock.h"

enum { RIG_SIZE = 1 << 18, RIG_PAGE = 4096, RIG_SESSION = 5 };

struct rig {
    struct scripted scripts[2];
    struct yolk_transport_ops ops[2];
    const struct yolk_transport_ops *transports[2];
    const void *wrapped[2];
    struct clock_sim clock;
    struct yolk_engine_options options; /* a test may change them before rig_open */
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint8_t *memory; /* served */
    uint8_t *local;
    uint64_t segment;
};

static inline uint8_t *rig_guarded(void)
{
    uint8_t *all =
        mmap(NULL, RIG_SIZE + 2 * RIG_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    assert_int_equal(mprotect(all + RIG_PAGE, RIG_SIZE, PROT_READ | PROT_WRITE), 0);
    return all + RIG_PAGE;
}

static inline void rig_unguard(uint8_t *memory)
{
    (void)munmap(memory - RIG_PAGE, RIG_SIZE + 2 * RIG_PAGE);
}

static inline uint8_t rig_byte(uint64_t place)
{
    return (uint8_t)((place * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static inline struct rig *rig_new(uint32_t transports)
{
    static const char *const names[] = {"first", "second"};
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    for (uint32_t i = 0; i < transports; i++) {
        scripted_make(&r->scripts[i], names[i], &r->ops[i]);
        r->transports[i] = &r->ops[i];
        r->wrapped[i] = &r->scripts[i];
    }
    clock_sim_init(&r->clock, 1000);
    yolk_engine_options_init(&r->options);
    r->options.transports = r->transports;
    r->options.transport_count = transports;
    r->options.wrapped = r->wrapped;
    r->options.transport.now_ns = clock_sim_clock(&r->clock).now_ns;
    r->options.transport.clock_self = clock_sim_clock(&r->clock).self;
    r->memory = rig_guarded();
    r->local = rig_guarded();
    for (uint64_t i = 0; i < RIG_SIZE; i++)
        r->memory[i] = rig_byte(i);
    return r;
}

static inline void rig_open_segment(struct rig *r)
{
    const struct yolk_segment_descriptor descriptor = {9, 1, RIG_SIZE,
                                                       yolk_served_endpoints(r->served)};
    assert_int_equal(yolk_engine_segment_open(r->engine, &descriptor, RIG_SESSION, &r->segment),
                     YOLK_OK);
}

/* Without a registration of the local memory. */
static inline void rig_open_bare(struct rig *r)
{
    assert_int_equal(yolk_engine_create(&r->options, &r->engine), YOLK_OK);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = r->memory, .size = RIG_SIZE, .segment = 9};
    assert_int_equal(yolk_engine_serve(r->engine, &serve, &r->served), YOLK_OK);
    rig_open_segment(r);
}

static inline void rig_open(struct rig *r)
{
    rig_open_bare(r);
    assert_int_equal(yolk_engine_register(r->engine, r->local, RIG_SIZE), YOLK_OK);
}

static inline void rig_close(struct rig *r)
{
    yolk_engine_unserve(r->engine, r->served);
    assert_int_equal(yolk_engine_destroy(r->engine), YOLK_OK);
    for (uint32_t i = 0; i < r->options.transport_count; i++)
        assert_int_equal(r->scripts[i].buffers, 0);
    rig_unguard(r->memory);
    rig_unguard(r->local);
    free(r);
}

static inline struct yolk_request rig_request(const struct rig *r, enum yolk_opcode opcode,
                                              uint64_t offset, uint64_t size)
{
    return (struct yolk_request){.opcode = opcode,
                                 .local = r->local + offset,
                                 .segment = r->segment,
                                 .offset = offset,
                                 .size = size,
                                 .cookie = offset};
}

static inline uint64_t rig_batch(struct rig *r, uint32_t capacity)
{
    uint64_t batch;
    assert_int_equal(yolk_engine_batch_create(r->engine, capacity, &batch), YOLK_OK);
    return batch;
}

static inline void rig_submit(struct rig *r, uint64_t batch, const struct yolk_request *requests,
                              uint32_t count)
{
    enum yolk_status verdicts[1024];
    assert_true(count <= 1024);
    assert_int_equal(yolk_engine_batch_submit(r->engine, batch, requests, count, verdicts, NULL),
                     YOLK_OK);
}

static inline struct yolk_task_status rig_poll(struct rig *r, uint64_t batch, uint32_t task)
{
    struct yolk_task_status status;
    assert_int_equal(yolk_engine_batch_poll(r->engine, batch, task, &status), YOLK_OK);
    return status;
}

static inline void rig_expect(struct rig *r, uint64_t batch, uint32_t task, enum yolk_status status,
                              uint64_t transferred)
{
    struct yolk_task_status told = rig_poll(r, batch, task);
    assert_true(told.terminal);
    assert_int_equal(told.status, status);
    assert_int_equal(told.transferred, transferred);
}

static inline void rig_free(struct rig *r, uint64_t batch)
{
    assert_int_equal(yolk_engine_batch_free(r->engine, batch), YOLK_OK);
}

#endif
