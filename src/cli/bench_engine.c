/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench engine`: requests over the null transport, which is done at once and moves nothing:
 * what is left is the engine. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/bench.h"
#include "transport/null/null.h"
#include "yolk/engine.h"

enum { BATCH = 1024, BATCHES = 64, SMALL_BATCH = 32, SEGMENT = 1, SIZE = 4096 };

struct setup {
    struct yolk_engine *engine;
    uint64_t segment;
    uint8_t *memory;
    struct yolk_request requests[BATCH];
    enum yolk_status verdicts[BATCH];
    uint32_t size; /* of the batches of run_batch */
};

/* The requests of a batch come in two halves, so that the batch's own room is made outside of what
 * is timed: the request is what is measured. */
static enum yolk_status run_batch(void *self)
{
    struct setup *s = self;
    uint64_t batch = 0;
    enum yolk_status status = yolk_engine_batch_create(s->engine, s->size, &batch);
    if (status == YOLK_OK)
        status =
            yolk_engine_batch_submit(s->engine, batch, s->requests, s->size, s->verdicts, NULL);
    if (status == YOLK_OK)
        status = yolk_engine_batch_wait(s->engine, batch, 0);
    if (batch != 0 && status == YOLK_OK)
        status = yolk_engine_batch_free(s->engine, batch);
    return status;
}

static enum yolk_status run_batches(void *self, double *seconds)
{
    uint64_t start = bench_now_ns();
    enum yolk_status status = YOLK_OK;
    for (int i = 0; i < BATCHES && status == YOLK_OK; i++)
        status = run_batch(self);
    *seconds = bench_seconds_since(start);
    return status;
}

static enum yolk_status set_up(struct setup *s)
{
    const struct yolk_transport_ops *transports[] = {transport_null_ops()};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    s->memory = calloc(BATCH, SIZE);
    if (s->memory == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "memory to read into");
    enum yolk_status status = yolk_engine_create(&options, &s->engine);
    if (status == YOLK_OK)
        status = yolk_engine_register(s->engine, s->memory, (uint64_t)BATCH * SIZE);
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = (uint64_t)BATCH * SIZE, .endpoints = "null=0"};
    if (status == YOLK_OK)
        status = yolk_engine_segment_open(s->engine, &descriptor, 1, &s->segment);
    for (uint32_t i = 0; i < BATCH; i++)
        s->requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                               .local = s->memory + (size_t)i * SIZE,
                                               .segment = s->segment,
                                               .offset = (uint64_t)i * SIZE,
                                               .size = SIZE};
    s->size = BATCH;
    return status;
}

/* What each further request of a batch adds; what a batch costs once is not its requests'. */
static double per_request(double large, double small)
{
    return (large - small) / (BATCH - SMALL_BATCH);
}

static enum yolk_status measure_cost(struct bench_report *bench, struct setup *s)
{
    struct bench_cost large, small;
    s->size = SMALL_BATCH;
    enum yolk_status status = bench_cost(run_batch, s, BATCHES, &small);
    s->size = BATCH;
    if (status == YOLK_OK)
        status = bench_cost(run_batch, s, BATCHES, &large);
    if (status != YOLK_OK)
        return status;
    bench_add(bench, &(struct bench_row){.name = "null request, allocations",
                                         .unit = "a request",
                                         .value = per_request(large.allocations, small.allocations),
                                         .bound = BENCH_VALUE_AT_MOST,
                                         .limit = 0});
    bench_add(bench,
              &(struct bench_row){.name = "null request, system calls",
                                  .unit = "a request",
                                  .value = per_request(large.system_calls, small.system_calls),
                                  .bound = BENCH_VALUE_AT_MOST,
                                  .limit = 0});
    return YOLK_OK;
}

enum yolk_status bench_engine(struct bench_report *bench)
{
    struct setup *s = calloc(1, sizeof(*s));
    enum yolk_status status = s == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "requests") : set_up(s);
    struct bench_contender ours = {"null", run_batches, s, 0};
    if (status == YOLK_OK)
        status = bench_in_turn(&ours, 1, bench->quick ? 5 : 21);
    if (status == YOLK_OK) {
        bench_add(bench, &(struct bench_row){.name = "null request",
                                             .unit = "ns",
                                             .value = ours.seconds * 1e9 / (BATCH * BATCHES),
                                             .bound = BENCH_VALUE_AT_MOST,
                                             .limit = 200});
        status = measure_cost(bench, s);
    }
    if (s != NULL) {
        base_ignore(yolk_engine_destroy(s->engine)); /* nothing is in flight */
        free(s->memory);
        free(s);
    }
    return status;
}
