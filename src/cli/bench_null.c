/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench null`: requests over the null transport, which is done at once and moves nothing:
 * what is left is the engine. It never waits, so processor time is counted, in which others of the
 * machine do not show. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/bench.h"
#include "transport/null/null.h"
#include "yolk/engine.h"

enum { CALL = 64, CALLS = 64, BATCHES = 16, SEGMENT = 1, SIZE = 4096 };

struct setup {
    struct yolk_engine *engine;
    uint64_t segment;
    uint8_t *memory;
    struct yolk_request requests[CALL];
    enum yolk_status verdicts[CALL];
    uint64_t batch;
};

/* A batch with room for what comes; its making is not the requests'. */
static enum yolk_status begin(struct setup *s, uint32_t calls)
{
    return yolk_engine_batch_create(s->engine, calls * CALL, &s->batch);
}

static enum yolk_status end(struct setup *s)
{
    return yolk_engine_batch_free(s->engine, s->batch);
}

/* CALL requests, to their end. */
static enum yolk_status request_all(void *self)
{
    struct setup *s = self;
    enum yolk_status status =
        yolk_engine_batch_submit(s->engine, s->batch, s->requests, CALL, s->verdicts, NULL);
    return status == YOLK_OK ? yolk_engine_batch_wait(s->engine, s->batch, 0) : status;
}

static enum yolk_status run_calls(void *self, double *seconds)
{
    struct setup *s = self;
    enum yolk_status status = YOLK_OK;
    *seconds = 0;
    for (int i = 0; i < BATCHES && status == YOLK_OK; i++) {
        status = begin(s, CALLS);
        uint64_t start = bench_processor_ns();
        for (int k = 0; k < CALLS && status == YOLK_OK; k++)
            status = request_all(s);
        *seconds += (double)(bench_processor_ns() - start) / 1e9;
        if (status == YOLK_OK)
            status = end(s);
    }
    return status;
}

/* In falling order none is merged with its neighbour: what one request costs. In rising order all
 * are. */
static void order(struct setup *s, bool falling)
{
    for (uint32_t i = 0; i < CALL; i++) {
        uint64_t place = (uint64_t)(falling ? CALL - 1 - i : i) * SIZE;
        s->requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                               .local = s->memory + place,
                                               .segment = s->segment,
                                               .offset = place,
                                               .size = SIZE};
    }
}

/* What a user may turn on: the queue, contracts and policies, all of which look at each request. */
static void turn_all_on(struct yolk_engine_options *options)
{
    options->queue.enable = YOLK_SWITCH_ON;
    options->qos_json = "{\"version\": 1, \"defaults\": {\"max_inflight_bytes\": \"1GiB\"}}";
    options->policy_json = "[{\"segment_type\": \"file\"}, {\"segment_type\": \"memory\", "
                           "\"max_size\": 1024}, {\"segment_type\": \"memory\"}]";
}

static enum yolk_status set_up(struct setup *s, bool all_on)
{
    const struct yolk_transport_ops *transports[] = {transport_null_ops()};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    if (all_on)
        turn_all_on(&options);
    s->memory = calloc(CALL, SIZE);
    if (s->memory == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "memory to read into");
    enum yolk_status status = yolk_engine_create(&options, &s->engine);
    if (status == YOLK_OK)
        status = yolk_engine_register(s->engine, s->memory, (uint64_t)CALL * SIZE);
    const struct yolk_segment_descriptor descriptor = {
        .id = SEGMENT, .size = (uint64_t)CALL * SIZE, .endpoints = "null=0"};
    if (status == YOLK_OK)
        status = yolk_engine_segment_open(s->engine, &descriptor, 1, &s->segment);
    return status;
}

static enum yolk_status measure_cost(struct bench_report *bench, struct setup *s)
{
    struct bench_cost cost;
    enum yolk_status status = begin(s, CALLS + 1);
    if (status == YOLK_OK)
        status = bench_cost(request_all, s, CALLS, &cost);
    if (status == YOLK_OK)
        status = end(s);
    if (status != YOLK_OK)
        return status;
    bench_add(bench, &(struct bench_row){.name = "null request, allocations",
                                         .unit = "a request",
                                         .value = cost.allocations / CALL,
                                         .bound = BENCH_VALUE_AT_MOST,
                                         .limit = 0});
    bench_add(bench, &(struct bench_row){.name = "null request, system calls",
                                         .unit = "a request",
                                         .value = cost.system_calls / CALL,
                                         .bound = BENCH_VALUE_AT_MOST,
                                         .limit = 0});
    return YOLK_OK;
}

static enum yolk_status measure_time(struct bench_report *bench, struct setup *s, const char *name,
                                     bool falling)
{
    struct bench_contender ours = {"null", run_calls, s, 0};
    order(s, falling);
    enum yolk_status status = bench_in_turn(&ours, 1, bench->quick ? 5 : 21);
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = name,
                                             .unit = "ns",
                                             .value = ours.seconds * 1e9 / (CALL * CALLS * BATCHES),
                                             .bound = BENCH_VALUE_AT_MOST,
                                             .limit = 150});
    return status;
}

static void tear_down(struct setup *s)
{
    base_ignore(yolk_engine_destroy(s->engine)); /* nothing is in flight */
    free(s->memory);
    *s = (struct setup){0};
}

enum yolk_status bench_null(struct bench_report *bench)
{
    struct setup *s = calloc(1, sizeof(*s));
    enum yolk_status status =
        s == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "requests") : set_up(s, false);
    if (status == YOLK_OK)
        status = measure_time(bench, s, "null request, merged", false);
    if (status == YOLK_OK)
        status = measure_time(bench, s, "null request", true);
    if (status == YOLK_OK)
        status = measure_cost(bench, s);
    if (status == YOLK_OK) {
        tear_down(s);
        status = set_up(s, true);
    }
    if (status == YOLK_OK)
        status = measure_time(bench, s, "null request, all on, merged", false);
    if (status == YOLK_OK)
        status = measure_time(bench, s, "null request, all on", true);
    if (s != NULL)
        tear_down(s);
    free(s);
    return status;
}
