/* SPDX-License-Identifier: Apache-2.0 */
/* For callers that move many small pieces of one buffer: what a piece need not pay for by itself.
 */
#ifndef YOLK_ENGINE_BULK_H
#define YOLK_ENGINE_BULK_H

#include <yolk/engine.h>
#include <yolk/transport.h>

struct registration;

/* The registration around the range is held as it is (unregistering it is BUSY) until given back.
 * NULL: it is not inside one. *start, *end: what the hold is good for. */
struct registration *engine_hold(struct yolk_engine *engine, const void *pointer, uint64_t size,
                                 uint64_t *start, uint64_t *end);
void engine_give_back(struct registration *held);
/* 1 + the number of the GPU whose memory it is; 0: none's. */
uint32_t engine_held_gpu(const struct registration *held);

/* Where the local side of a request lies that is not in one range: its `local` is NULL then, its
 * size that of all pieces. They lie in one registration, a GPU's, and are copied. */
struct engine_scatter {
    const struct yolk_piece *pieces;
    uint32_t count; /* 0: the request says it */
    struct registration *held;
};
/* As yolk_engine_batch_submit, with a scatter for each request. One that ends with UNSUPPORTED has
 * a way that takes no pieces: each is to be a request of its own. */
YOLK_MUST_USE enum yolk_status
engine_batch_submit_scattered(struct yolk_engine *engine, uint64_t batch,
                              const struct yolk_request *requests,
                              const struct engine_scatter *scatters, uint32_t count,
                              enum yolk_status *verdicts, uint32_t *first);

/* 1 + the number of the GPU whose memory the range is; 0: none's. Statuses as of registering. */
YOLK_MUST_USE enum yolk_status engine_memory_gpu(struct yolk_engine *engine, const void *memory,
                                                 uint64_t size, uint32_t *gpu);
/* Bytes of a caller's memory into the processor's and back, whosever the former is, and waits for
 * it. */
YOLK_MUST_USE enum yolk_status engine_memory_read(struct yolk_engine *engine, void *to,
                                                  const void *memory, uint64_t size);
YOLK_MUST_USE enum yolk_status engine_memory_write(struct yolk_engine *engine, void *memory,
                                                   const void *from, uint64_t size);
/* The checksum of a caller's memory, going on from *crc. */
YOLK_MUST_USE enum yolk_status engine_memory_checksum(struct yolk_engine *engine,
                                                      const void *memory, uint64_t size,
                                                      uint32_t *crc);

/* The statuses of tasks [first, first + count) as they stand; makes no progress. STALE, INVALID. */
YOLK_MUST_USE enum yolk_status engine_batch_look(struct yolk_engine *engine, uint64_t batch,
                                                 uint32_t first, uint32_t count,
                                                 struct yolk_task_status *out);

#endif
