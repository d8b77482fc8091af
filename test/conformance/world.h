/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines joined by one transport: a provider with a served segment, a consumer with a
 * registered buffer. */
#ifndef CONFORMANCE_WORLD_H
#define CONFORMANCE_WORLD_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "suite.h"
#include "transport/fault/fault.h"

enum {
    WORLD_SIZE = 1 << 20,
    WORLD_SLICE = 64 << 10,
    WORLD_SEGMENT = 0x700000001,
    WORLD_SESSION = 77
};

struct world {
    const struct conformance_fixture *fixture;
    struct yolk_engine *provider;
    struct yolk_engine *consumer;
    struct yolk_memory memory;
    struct yolk_served *served;
    uint64_t segment;         /* the consumer's handle */
    uint8_t *local;           /* `size` bytes, registered */
    uint64_t size;            /* of the segment; WORLD_SIZE */
    uint64_t slice_bytes_max; /* of the engines; WORLD_SLICE */
    int file;                 /* what is served, where it is a file */
    uint8_t key[32];
    struct fault_options faults;
    struct fault_control control;
    struct yolk_transport_ops fault_ops;
    int merges;
    int staged; /* with wrapped: the transport does not take the consumer's memory */
    uint64_t staging_bytes;
    int wrapped;                /* by fault, also without faults: for its switches */
    _Atomic uint64_t jumped_ns; /* the consumer's clock is so far ahead */
    int require_tickets;
    uint64_t drain_limit_ms;
    uint32_t attempts_max;
    uint32_t breaker_failures;
};

/* Opens everything. The caller may set faults, require_tickets, … after world_init and before
 * world_open. */
void world_init(struct world *w, const struct conformance_fixture *fixture);
void world_open(struct world *w);
void world_open_provider(struct world *w);
void world_open_consumer(struct world *w, const char *endpoints);
void world_close_provider(struct world *w);
void world_close_consumer(struct world *w);
void world_close(struct world *w);

uint8_t world_byte(uint64_t seed, uint64_t offset);
void world_fill(uint8_t *memory, uint64_t size, uint64_t seed);
void world_assert_filled(const uint8_t *memory, uint64_t size, uint64_t seed, uint64_t offset);

struct yolk_request world_request(struct world *w, enum yolk_opcode opcode, void *local,
                                  uint64_t offset, uint64_t size);
/* One request in a batch of its own, to its end; out may be NULL. A refusal is returned like a
 * result. */
enum yolk_status world_run(struct world *w, const struct yolk_request *request,
                           struct yolk_task_status *out);
enum yolk_status world_transfer(struct world *w, enum yolk_opcode opcode, void *local,
                                uint64_t offset, uint64_t size);
/* now + ms on the consumer's clock */
uint64_t world_deadline(struct world *w, uint64_t ms);
/* The consumer's clock goes on by so much at once. */
void world_jump(struct world *w, uint64_t ms);
uint64_t world_open_fds(void);
uint64_t world_threads(void);
uint64_t world_shared_maps(void);

#endif
