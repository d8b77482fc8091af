/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine has to do with GPUs: whose memory an address is, and copies between their memory
 * and that of staged transfers. The driver is opened when a first address may be a GPU's. */
#ifndef YOLK_ENGINE_DEVICE_H
#define YOLK_ENGINE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/copy.h"
#include "engine/policy.h"

struct device;
struct device_range;
struct yolk_engine;

struct engine_device {
    pthread_mutex_t lock;
    _Atomic(struct device *) device; /* NULL: not opened */
    char *cuda, *cufile;             /* NULL: as the system finds them */
    _Atomic bool told;               /* that the named library is of no use */
};

struct engine_memory {
    enum policy_memory kind; /* POLICY_CPU or POLICY_CUDA */
    uint32_t gpu;            /* 1 + its number; 0: none */
    uint64_t allocation;     /* the driver's id of it; 0: none */
};

YOLK_MUST_USE enum yolk_status engine_device_init(struct yolk_engine *engine,
                                                  const struct yolk_transport_options *options);
void engine_device_free(struct yolk_engine *engine);

/* *out NULL: no address can be a GPU's. */
YOLK_MUST_USE enum yolk_status engine_device_of(struct yolk_engine *engine, struct device **out);

/* What requests wait for. BUSY: the stream captures a graph. With a batch's lock held. */
struct engine_order;
struct yolk_request;
YOLK_MUST_USE enum yolk_status engine_order_make(struct yolk_engine *engine,
                                                 const struct yolk_request *request, uint32_t gpu,
                                                 struct engine_order **out);
struct engine_order *engine_order_take(struct engine_order *order);
void engine_order_drop(struct engine_order *order);
/* AGAIN: not yet; asked once a pass. */
enum yolk_status engine_order_look(struct engine_order *order, uint64_t pass);

/* Whose memory the range is. INVALID: of several, or it leaves its allocation; FORKED: of a GPU, in
 * a child of fork. */
YOLK_MUST_USE enum yolk_status engine_memory_look(struct yolk_engine *engine, const void *pointer,
                                                  uint64_t size, struct engine_memory *out);

/* Makes host memory fit for the copier below: it is registered with the driver, or else
 * copied by the driver through memory of its own (*out NULL, the reason is logged). */
void engine_device_pin(struct yolk_engine *engine, void *memory, uint64_t size, uint32_t gpu,
                       struct device_range **out);
/* lost: a GPU that has failed may still touch it. */
void engine_device_unpin(struct device_range *range, uint64_t size, bool lost);

/* Between a GPU's memory and the processor's, by the GPU. */
void engine_copier_gpu(struct yolk_engine *engine, struct copier *out);

#endif
