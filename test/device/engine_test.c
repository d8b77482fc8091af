/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with memory of GPUs: what registering it says, and that each transport moves it
 * exactly, whichever way, and says which. */
#include "engine_kit.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yolk/peer.h>

#include "platform/thread.h"

static void move_exactly(const char *transport)
{
    static const uint64_t sizes[] = {1, 4095, 4096, 65537, MIB, MIB + 1, 3 * MIB + 4097};
    struct world w;
    open_world(&w, transport, NULL);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t size = sizes[i], from = 12345 * i + i % 3, at = 4096 * i + i, to = 4 * MIB + i;
        assert_ok(move(&w, YOLK_WRITE, w.gpu + from, at, size));
        look_there(&w, w.read, at, size);
        assert_memory_equal(w.read, w.model + from, size);
        assert_ok(move(&w, YOLK_READ, w.gpu + to, at, size));
        memmove(w.model + to, w.model + from, size);
        assert_gpu_is_model(&w);
    }
    /* In this process and on this machine nothing is copied on the way. */
    bool direct = strcmp(transport, "loop") == 0 || strcmp(transport, "shm") == 0;
    assert_int_equal(stats_of(&w).bytes_staged == 0, direct);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

static void c42_each_transport_moves_a_gpus_memory_exactly(void **state)
{
    (void)state;
    static const char *const names[] = {"loop", "shm", "tcp", "uring", "posix"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        move_exactly(names[i]);
}

static void c42_unregistered_memory_is_refused_before_a_byte_moves(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "tcp", NULL);
    assert_status(move(&w, YOLK_WRITE, w.gpu, 0, MIB), YOLK_ERR_NOT_REGISTERED);
    assert_error_text("is not inside a registered range");
    assert_status(move(&w, YOLK_READ, w.gpu, 0, MIB), YOLK_ERR_NOT_REGISTERED);
    assert_gpu_is_model(&w);
    close_world(&w);
}

/* Which way it goes, and how much of it that way, is told. */
static void staged_is_told_and_counted(void **state)
{
    (void)state;
    struct world w;
    char *text;
    open_world(&w, "tcp", NULL);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    const struct yolk_request request = {
        .opcode = YOLK_WRITE, .local = w.gpu, .segment = w.segment, .size = 3 * MIB};
    assert_ok(yolk_engine_describe_route(w.engine, &request, &text));
    if (strstr(text, "tcp: no: it does not move between these kinds of memory") == NULL ||
        strstr(text, "staged through the engine's memory:\ntcp: runs it") == NULL)
        fail_msg("%s", text);
    free(text);
    assert_ok(run(&w, &request, 1));
    assert_int_equal(stats_of(&w).bytes_staged, 3 * MIB);
    assert_int_equal(stats_of(&w).tasks_staged, 1);
    struct yolk_request direct = request;
    direct.flags = YOLK_REQUEST_DIRECT;
    assert_status(run(&w, &direct, 1), YOLK_ERR_UNSUPPORTED);
    assert_error_text("tcp: no: it does not move between these kinds of memory");
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

static void strict_refuses_at_registration(void **state)
{
    (void)state;
    struct world w;
    struct yolk_engine_options options;
    make_options(&options);
    options.strict = YOLK_SWITCH_ON;
    open_world(&w, "tcp", &options);
    assert_status(yolk_engine_register(w.engine, w.gpu, AREA), YOLK_ERR_UNSUPPORTED);
    assert_error_text("tcp: it does not move a GPU's memory");
    assert_error_text("nor can it be staged: the engine is strict");
    close_world(&w);
}

/* Far more at once than there are chunks, some of it from the processor's memory. */
static void many_at_once(void **state)
{
    (void)state;
    enum { COUNT = 128, PIECE = AREA / COUNT };
    struct world w;
    struct yolk_engine_options options;
    struct yolk_request requests[COUNT];
    make_options(&options);
    options.staging_bytes = 8 * 4096;
    open_world(&w, "tcp", &options);
    uint8_t *host = malloc(AREA);
    kit_fill(host, AREA, 77);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    assert_ok(yolk_engine_register(w.engine, host, AREA));
    for (uint32_t i = 0; i < COUNT; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_WRITE,
                                            .local = (i % 4 == 3 ? host : w.gpu) + i * PIECE,
                                            .segment = w.segment,
                                            .offset = (COUNT - 1 - i) * PIECE,
                                            .size = PIECE};
    assert_ok(run(&w, requests, COUNT));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_memory_equal(w.there + (COUNT - 1 - i) * PIECE,
                            (i % 4 == 3 ? host : w.model) + i * PIECE, PIECE);
    for (uint32_t i = 0; i < COUNT; i++)
        requests[i].opcode = YOLK_READ;
    kit_put(w.device, 0, w.gpu, w.there, AREA); /* other bytes */
    assert_ok(run(&w, requests, COUNT));
    kit_get(w.device, 0, w.read, w.gpu, AREA);
    for (uint32_t i = 0; i < COUNT; i++)
        if (i % 4 != 3)
            assert_memory_equal(w.read + i * PIECE, w.model + i * PIECE, PIECE);
    assert_ok(yolk_engine_unregister(w.engine, host, AREA));
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    free(host);
    close_world(&w);
}

/* Blocks as of a cache's pages, in drawn places, both ways at once. */
static void many_blocks(const char *transport)
{
    enum { COUNT = 2048, BLOCK = AREA / 2 / COUNT };
    struct world w;
    struct yolk_request *requests = calloc(COUNT, sizeof(*requests));
    enum yolk_status *verdicts = calloc(COUNT, sizeof(*verdicts));
    struct yolk_batch_status status;
    uint64_t batch, seed = 7;
    open_world(&w, transport, NULL);
    kit_fill(w.there, AREA, 99);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    for (uint32_t i = 0; i < COUNT; i++) { /* written from the lower half, read to the upper one */
        uint32_t other = i * 769u % COUNT;
        bool writes = kit_draw(&seed) % 2 == 0;
        requests[i] = (struct yolk_request){.opcode = writes ? YOLK_WRITE : YOLK_READ,
                                            .local = w.gpu + (writes ? 0 : AREA / 2) +
                                                     (uint64_t)other * BLOCK,
                                            .segment = w.segment,
                                            .offset = (writes ? 0 : AREA / 2) + (uint64_t)i * BLOCK,
                                            .size = BLOCK - i % 3};
    }
    memcpy(w.read, w.there, AREA);
    assert_ok(yolk_engine_batch_create(w.engine, COUNT, &batch));
    assert_ok(yolk_engine_batch_submit(w.engine, batch, requests, COUNT, verdicts, NULL));
    assert_ok(
        yolk_engine_batch_wait(w.engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    assert_ok(yolk_engine_batch_poll_all(w.engine, batch, &status, NULL, 0));
    assert_int_equal(status.worst, YOLK_OK);
    assert_ok(yolk_engine_batch_free(w.engine, batch));
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct yolk_request *r = &requests[i];
        uint64_t here = (uint64_t)((uint8_t *)r->local - w.gpu);
        if (r->opcode == YOLK_WRITE)
            memcpy(w.read + r->offset, w.model + here, r->size);
        else
            memcpy(w.model + here, w.read + r->offset, r->size);
    }
    assert_memory_equal(w.there, w.read, AREA);
    assert_gpu_is_model(&w);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    free(requests);
    free(verdicts);
    close_world(&w);
}

static void many_blocks_at_once(void **state)
{
    (void)state;
    many_blocks("loop");
    many_blocks("shm");
    many_blocks("tcp");
}

/* Many transfers of a few large and a few small pieces each, by many threads at once; the source is
 * looked at before and after, the destination after. */
enum { FLOWS = 16, FLOW_ROUNDS = 8, FLOW_LARGE = 48497, FLOW_SMALL = 1639 };
enum { FLOW_SIZE = 4 * (FLOW_LARGE + FLOW_SMALL) };

struct flow {
    struct world *w;
    uint32_t number;
    uint32_t wrong;
};

static uint32_t fill_requests(const struct flow *flow, enum yolk_opcode opcode, uint8_t *local,
                              struct yolk_request *requests)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t size = i % 2 == 0 ? FLOW_LARGE : FLOW_SMALL;
        requests[i] = (struct yolk_request){.opcode = opcode,
                                            .local = local + at,
                                            .segment = flow->w->segment,
                                            .offset = flow->number * FLOW_SIZE + at,
                                            .size = size};
        at += size;
    }
    return 8;
}

static void flow_main(void *arg)
{
    struct flow *flow = arg;
    struct world *w = flow->w;
    uint8_t *source = w->gpu + flow->number * FLOW_SIZE;
    uint8_t *target = w->gpu + AREA / 2 + flow->number * FLOW_SIZE;
    for (uint32_t round = 0; round < FLOW_ROUNDS; round++) {
        for (int way = 0; way < 2; way++) {
            struct yolk_request requests[8];
            enum yolk_status verdicts[8];
            struct yolk_batch_status status = {.worst = YOLK_ERR_IO};
            uint64_t batch;
            uint32_t count = way == 0 ? fill_requests(flow, YOLK_WRITE, source, requests)
                                      : fill_requests(flow, YOLK_READ, target, requests);
            bool good = yolk_engine_batch_create(w->engine, count, &batch) == YOLK_OK &&
                        yolk_engine_batch_submit(w->engine, batch, requests, count, verdicts,
                                                 NULL) == YOLK_OK &&
                        yolk_engine_batch_wait(w->engine, batch,
                                               clock_after_ms(clock_real_now_ns(), DEADLINE_MS)) ==
                            YOLK_OK &&
                        yolk_engine_batch_poll_all(w->engine, batch, &status, NULL, 0) == YOLK_OK &&
                        status.worst == YOLK_OK &&
                        yolk_engine_batch_free(w->engine, batch) == YOLK_OK;
            flow->wrong += !good;
        }
    }
}

static void concurrent(const char *transport)
{
    struct world w;
    struct flow flows[FLOWS];
    struct thread threads[FLOWS];
    open_world(&w, transport, NULL);
    assert_true(FLOWS * FLOW_SIZE <= AREA / 2);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    for (uint32_t i = 0; i < FLOWS; i++) {
        flows[i] = (struct flow){&w, i, 0};
        assert_ok(thread_start(&threads[i], "flow", flow_main, &flows[i]));
    }
    for (uint32_t i = 0; i < FLOWS; i++)
        thread_join(&threads[i]);
    for (uint32_t i = 0; i < FLOWS; i++)
        assert_int_equal(flows[i].wrong, 0);
    memcpy(w.model + AREA / 2, w.model, FLOWS * FLOW_SIZE);
    assert_gpu_is_model(&w);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

static void c13_concurrent_transfers(void **state)
{
    (void)state;
    concurrent("loop");
    concurrent("shm");
    concurrent("tcp");
}

/* The provider takes its memory back while a GPU reads it: the mapping stays until it has. */
static void a_mapping_stays_while_a_gpu_reads_it(void **state)
{
    (void)state;
    if (kit_real())
        skip();
    struct world w;
    struct yolk_task_status task;
    enum yolk_status verdict;
    uint64_t batch;
    static const uint8_t key[32];
    open_world(&w, "shm", NULL);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    const struct yolk_request request = {
        .opcode = YOLK_WRITE, .local = w.gpu, .segment = w.segment, .size = MIB};
    assert_ok(run(&w, &request, 1));
    kit_fake("hold 1");
    assert_ok(yolk_engine_batch_create(w.engine, 1, &batch));
    assert_ok(yolk_engine_batch_submit(w.engine, batch, &request, 1, &verdict, NULL));
    yolk_served_set_segment(w.served, 10, key);
    assert_ok(yolk_engine_batch_poll(w.engine, batch, 0, &task));
    assert_false(task.terminal);
    assert_int_equal(yolk_served_fence_session(w.served, 5), YOLK_ERR_AGAIN);
    kit_fake("hold 0");
    assert_ok(
        yolk_engine_batch_wait(w.engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    assert_ok(yolk_engine_batch_poll(w.engine, batch, 0, &task));
    assert_int_equal(task.status, YOLK_ERR_STALE);
    assert_ok(yolk_engine_batch_free(w.engine, batch));
    assert_status(run(&w, &request, 1), YOLK_ERR_STALE); /* looks, and so lets go */
    uint64_t until = clock_after_ms(clock_real_now_ns(), DEADLINE_MS);
    while (yolk_served_fence_session(w.served, 5) != YOLK_OK)
        assert_true(clock_real_now_ns() < until);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

/* -- a GPU's memory at the other end -- */

static void served_by(const char *transport)
{
    struct world w;
    struct yolk_served *served;
    uint64_t segment;
    uint8_t *host = malloc(AREA), *other, *there = malloc(AREA);
    open_world(&w, transport, NULL);
    other = kit_gpu_alloc(w.device, 0, AREA);
    kit_fill(host, AREA, 21);
    kit_fill(there, AREA, 22);
    kit_put(w.device, 0, other, there, AREA);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = other, .size = AREA, .segment = 12};
    assert_ok(yolk_engine_serve(w.engine, &serve, &served));
    const struct yolk_segment_descriptor descriptor = {12, 1, AREA, yolk_served_endpoints(served)};
    assert_ok(yolk_engine_segment_open(w.engine, &descriptor, 5, &segment));
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    assert_ok(yolk_engine_register(w.engine, host, AREA));
    uint64_t own = w.segment;
    w.segment = segment;
    assert_ok(move(&w, YOLK_WRITE, w.gpu + 100, 5, 3 * MIB + 1)); /* GPU to GPU */
    memcpy(there + 5, w.model + 100, 3 * MIB + 1);
    assert_ok(move(&w, YOLK_WRITE, host + 7, 5 * MIB, 77777)); /* to it from the processor */
    memcpy(there + 5 * MIB, host + 7, 77777);
    kit_get(w.device, 0, w.read, other, AREA);
    assert_memory_equal(w.read, there, AREA);
    assert_ok(move(&w, YOLK_READ, w.gpu + 1000, 4 * MIB, 2 * MIB));
    memcpy(w.model + 1000, there + 4 * MIB, 2 * MIB);
    assert_gpu_is_model(&w);
    assert_ok(move(&w, YOLK_READ, host, 3, AREA - 3));
    assert_memory_equal(host, there + 3, AREA - 3);
    w.segment = own;
    assert_ok(yolk_engine_unregister(w.engine, host, AREA));
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    assert_ok(yolk_engine_segment_close(w.engine, segment));
    yolk_engine_unserve(w.engine, served);
    kit_gpu_free(w.device, 0, other);
    free(host);
    free(there);
    close_world(&w);
}

static void a_gpus_memory_is_served(void **state)
{
    (void)state;
    served_by("loop");
    served_by("tcp");
}

static struct yolk_peer *open_peer(const char *transports)
{
    struct yolk_engine_options engine;
    struct yolk_peer_options options;
    struct yolk_peer *peer;
    make_options(&engine);
    yolk_peer_options_init(&options);
    options.engine = &engine;
    options.transports = transports;
    assert_ok(yolk_peer_create(&options, &peer));
    return peer;
}

static void between_peers(const char *transports)
{
    struct device *device = kit_open(NULL);
    struct yolk_peer *a = open_peer(transports), *b = open_peer(transports);
    struct yolk_peer_buffer *buffers;
    size_t count;
    uint64_t segment;
    uint8_t *here = kit_gpu_alloc(device, 0, MIB), *there = kit_gpu_alloc(device, 0, MIB);
    uint8_t *model = malloc(MIB), *back = malloc(MIB);
    kit_fill(model, MIB, 6);
    kit_put(device, 0, here, model, MIB);
    assert_status(yolk_peer_register(b, model, MIB, "cuda:0", YOLK_REMOTE_WRITE),
                  YOLK_ERR_UNSUPPORTED);
    assert_error_text("it is no memory of a GPU");
    assert_status(yolk_peer_register(b, there, MIB, "cuda:1", YOLK_REMOTE_WRITE), YOLK_ERR_INVALID);
    assert_error_text("it is memory of GPU 0");
    assert_ok(yolk_peer_register(b, there, MIB, "*", YOLK_REMOTE_WRITE));
    assert_ok(yolk_peer_register(a, here, MIB, "cuda:0", YOLK_LOCAL));
    assert_ok(yolk_peer_open(a, yolk_peer_name(b), &segment));
    assert_ok(yolk_peer_buffers(a, segment, &buffers, &count));
    assert_int_equal(count, 1);
    assert_string_equal(buffers[0].location, "cuda:0");
    free(buffers);
    struct yolk_request request = {.opcode = YOLK_WRITE,
                                   .local = here,
                                   .segment = segment,
                                   .offset = (uintptr_t)there,
                                   .size = MIB};
    assert_ok(yolk_peer_transfer(a, &request, 1, 0));
    kit_get(device, 0, back, there, MIB);
    assert_memory_equal(back, model, MIB);
    memset(back, 0, MIB);
    kit_put(device, 0, here, back, MIB);
    request.opcode = YOLK_READ;
    assert_ok(yolk_peer_transfer(a, &request, 1, 0));
    kit_get(device, 0, back, here, MIB);
    assert_memory_equal(back, model, MIB);
    assert_ok(yolk_peer_close(a, segment));
    assert_ok(yolk_peer_unregister(a, here, MIB));
    assert_ok(yolk_peer_unregister(b, there, MIB));
    assert_ok(yolk_peer_destroy(a));
    assert_ok(yolk_peer_destroy(b));
    kit_gpu_free(device, 0, here);
    kit_gpu_free(device, 0, there);
    free(model);
    free(back);
    kit_close(device);
}

static void peers_reach_a_gpus_memory(void **state)
{
    (void)state;
    between_peers("loop");
    between_peers("tcp");
}

/* -- after a stream or an event -- */

/* New bytes for the GPU's memory are put in a stream, then it is written from: the new ones arrive.
 */
static void ordered(const char *transport, bool by_event)
{
    struct world w;
    struct device_scope scope;
    struct yolk_task_status task;
    enum yolk_status verdicts[2];
    cuda_stream stream;
    cuda_event event = NULL;
    uint64_t batch;
    void *pinned;
    open_world(&w, transport, NULL);
    const struct cuda *cuda = device_cuda(w.device);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    assert_ok(device_pinned_alloc(w.device, 0, AREA, &pinned));
    kit_fill(pinned, AREA, 55);
    assert_ok(device_enter(w.device, 0, &scope));
    assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    kit_fake("hold 1");
    assert_int_equal(cuda->memcpy_async((uintptr_t)w.gpu, (uintptr_t)pinned, AREA, stream),
                     CUDA_OK);
    if (by_event) {
        assert_int_equal(cuda->event_create(&event, CUDA_EVENT_DISABLE_TIMING), CUDA_OK);
        assert_int_equal(cuda->event_record(event, stream), CUDA_OK);
    }
    struct yolk_request requests[2];
    for (uint64_t i = 0; i < 2; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_WRITE,
                                            .local = w.gpu + i * 2 * MIB,
                                            .segment = w.segment,
                                            .offset = i * 2 * MIB,
                                            .size = MIB,
                                            .after_stream = by_event ? NULL : stream,
                                            .after_event = event};
    assert_ok(yolk_engine_batch_create(w.engine, 2, &batch));
    assert_ok(yolk_engine_batch_submit(w.engine, batch, requests, 2, verdicts, NULL));
    for (int i = 0; i < 3 && !kit_real(); i++) {
        assert_ok(yolk_engine_batch_poll(w.engine, batch, 0, &task));
        assert_false(task.terminal);
        assert_int_equal(task.transferred, 0);
    }
    kit_fake("hold 0");
    assert_ok(
        yolk_engine_batch_wait(w.engine, batch, clock_after_ms(clock_real_now_ns(), DEADLINE_MS)));
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(yolk_engine_batch_poll(w.engine, batch, i, &task));
        assert_int_equal(task.status, YOLK_OK);
        look_there(&w, w.read, requests[i].offset, MIB);
        assert_memory_equal(w.read, (uint8_t *)pinned + requests[i].offset, MIB);
    }
    assert_ok(yolk_engine_batch_free(w.engine, batch));
    if (event != NULL)
        assert_int_equal(cuda->event_destroy(event), CUDA_OK);
    assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
    device_leave(w.device, &scope);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    device_pinned_free(w.device, pinned, AREA);
    close_world(&w);
}

static void after_a_stream(void **state)
{
    (void)state;
    ordered("loop", false);
    ordered("shm", true);
    ordered("tcp", false);
    ordered("posix", true);
}

/* What never happens ends with the deadline; what cannot happen is refused. */
static void what_it_waits_for_does_not_come(void **state)
{
    (void)state;
    struct world w;
    struct device_scope scope;
    cuda_stream stream;
    cuda_graph graph;
    struct yolk_request request;
    open_world(&w, "loop", NULL);
    const struct cuda *cuda = device_cuda(w.device);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    assert_ok(device_enter(w.device, 0, &scope));
    assert_int_equal(cuda->stream_create(&stream, CUDA_STREAM_NON_BLOCKING), CUDA_OK);
    request = (struct yolk_request){.opcode = YOLK_WRITE,
                                    .local = w.gpu,
                                    .segment = w.segment,
                                    .size = MIB,
                                    .after_stream = stream};
    assert_int_equal(cuda->stream_begin_capture(stream, CUDA_CAPTURE_RELAXED), CUDA_OK);
    assert_status(run(&w, &request, 1), YOLK_ERR_BUSY);
    assert_error_text("captures a graph");
    assert_int_equal(cuda->stream_end_capture(stream, &graph), CUDA_OK);
    if (!kit_real()) {
        kit_fake("hold 1");
        assert_int_equal(
            cuda->memcpy_async((uintptr_t)w.gpu, (uintptr_t)(w.gpu + MIB), 100, stream), CUDA_OK);
        request.deadline_ns = clock_after_ms(clock_real_now_ns(), 20);
        assert_status(run(&w, &request, 1), YOLK_ERR_TIMEOUT);
        kit_fake("hold 0");
        memcpy(w.model, w.model + MIB, 100);
    }
    assert_int_equal(cuda->stream_synchronize(stream), CUDA_OK);
    assert_int_equal(cuda->stream_destroy(stream), CUDA_OK);
    device_leave(w.device, &scope);
    for (uint32_t i = 0; i < MIB; i++)
        assert_int_equal(w.there[i], 0);
    assert_gpu_is_model(&w);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    close_world(&w);
}

/* -- registration -- */

/* Two physical pieces mapped side by side, as frameworks grow a range: one registration. */
static void c45_a_range_of_two_pieces(const char *transport)
{
    struct world w;
    struct device_scope scope;
    cuda_pointer range;
    size_t piece;
    open_world(&w, transport, NULL);
    const struct cuda *cuda = device_cuda(w.device);
    const struct cuda_allocation_prop prop = {.type = CUDA_ALLOCATION_PINNED,
                                              .handle_types = CUDA_HANDLE_POSIX_FD,
                                              .location = {CUDA_LOCATION_DEVICE, 0}};
    const struct cuda_access access = {{CUDA_LOCATION_DEVICE, 0}, CUDA_ACCESS_READ_WRITE};
    assert_ok(device_enter(w.device, 0, &scope));
    assert_int_equal(cuda->mem_get_allocation_granularity(&piece, &prop, CUDA_GRANULARITY_MINIMUM),
                     CUDA_OK);
    assert_int_equal(cuda->mem_address_reserve(&range, 3 * piece, 0, 0, 0), CUDA_OK);
    for (size_t i = 0; i < 2; i++) {
        cuda_allocation allocation;
        assert_int_equal(cuda->mem_create(&allocation, piece, &prop, 0), CUDA_OK);
        assert_int_equal(cuda->mem_map(range + i * piece, piece, 0, allocation, 0), CUDA_OK);
        assert_int_equal(cuda->mem_release(allocation), CUDA_OK);
    }
    assert_int_equal(cuda->mem_set_access(range, 2 * piece, &access, 1), CUDA_OK);
    uint8_t *memory = (uint8_t *)(uintptr_t)range;
    kit_put(w.device, 0, memory, w.model, 2 * piece);
    assert_status(yolk_engine_register(w.engine, memory, 3 * piece), YOLK_ERR_INVALID);
    assert_ok(yolk_engine_register(w.engine, memory, 2 * piece));
    assert_ok(move(&w, YOLK_WRITE, memory + piece - 70001, 5, 140003)); /* across the seam */
    look_there(&w, w.read, 5, 140003);
    assert_memory_equal(w.read, w.model + piece - 70001, 140003);
    assert_ok(move(&w, YOLK_READ, memory + piece - 100, 5, 140003));
    kit_get(w.device, 0, w.read, memory, 2 * piece);
    memmove(w.model + piece - 100, w.model + piece - 70001, 140003);
    assert_memory_equal(w.read, w.model, 2 * piece);
    assert_ok(yolk_engine_unregister(w.engine, memory, 2 * piece));
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(cuda->mem_unmap(range + i * piece, piece), CUDA_OK);
    assert_int_equal(cuda->mem_address_free(range, 3 * piece), CUDA_OK);
    device_leave(w.device, &scope);
    close_world(&w);
}

static void c45_memory_of_two_pieces(void **state)
{
    (void)state;
    c45_a_range_of_two_pieces("loop");
    c45_a_range_of_two_pieces("shm");
    c45_a_range_of_two_pieces("tcp");
}

/* Host memory of each kind is the processor's; what moves by itself is the GPU's to copy. */
static void moves_kind(struct world *w, uint8_t *memory)
{
    enum { SIZE = 300001 };
    kit_put(w->device, 0, memory, w->model, SIZE);
    assert_ok(yolk_engine_register(w->engine, memory, SIZE));
    assert_ok(move(w, YOLK_WRITE, memory, 11, SIZE));
    look_there(w, w->read, 11, SIZE);
    assert_memory_equal(w->read, w->model, SIZE);
    assert_ok(move(w, YOLK_READ, memory + 1, 11, SIZE - 1));
    kit_get(w->device, 0, w->read, memory, SIZE);
    assert_memory_equal(w->read + 1, w->model, SIZE - 1);
    assert_ok(yolk_engine_unregister(w->engine, memory, SIZE));
}

static void each_kind(const char *transport)
{
    struct world w;
    struct device_scope scope;
    cuda_pointer managed = 0;
    void *pinned;
    open_world(&w, transport, NULL);
    const struct cuda *cuda = device_cuda(w.device);
    uint8_t *mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    moves_kind(&w, mapped);
    assert_int_equal(munmap(mapped, MIB), 0);
    int fd = memfd_create("kind", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)MIB), 0);
    mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    moves_kind(&w, mapped);
    assert_ok(device_enter(w.device, 0, &scope));
    assert_int_equal(cuda->mem_host_register(mapped, MIB, 0), CUDA_OK);
    moves_kind(&w, mapped);
    assert_int_equal(cuda->mem_host_unregister(mapped), CUDA_OK);
    assert_int_equal(munmap(mapped, MIB), 0);
    close(fd);
    assert_ok(device_pinned_alloc(w.device, 0, MIB, &pinned));
    moves_kind(&w, pinned);
    device_pinned_free(w.device, pinned, MIB);
    assert_int_equal(cuda->mem_alloc_managed(&managed, MIB, CUDA_MANAGED_GLOBAL), CUDA_OK);
    moves_kind(&w, (uint8_t *)(uintptr_t)managed);
    assert_int_equal(cuda->mem_free(managed), CUDA_OK);
    moves_kind(&w, w.gpu + MIB);
    device_leave(w.device, &scope);
    close_world(&w);
}

static void c49_each_kind_of_memory_is_moved(void **state)
{
    (void)state;
    each_kind("loop");
    each_kind("shm");
    each_kind("tcp");
    each_kind("uring");
}

static void several_owners_in_one_range(void **state)
{
    (void)state;
    struct world w;
    if (kit_real()) /* there something else may lie before it */
        skip();
    open_world(&w, "tcp", NULL);
    /* Host memory that ends where a GPU's begins. */
    assert_status(yolk_engine_register(w.engine, w.gpu - 4096, 8192), YOLK_ERR_INVALID);
    assert_error_text("register each by itself");
    close_world(&w);
}

static void c39_overlapping_ranges(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "tcp", NULL);
    assert_ok(yolk_engine_register(w.engine, w.gpu + MIB, 2 * MIB));
    assert_ok(yolk_engine_register(w.engine, w.gpu + MIB, 2 * MIB));
    assert_ok(yolk_engine_register(w.engine, w.gpu + MIB + 5, MIB)); /* inside */
    assert_status(yolk_engine_register(w.engine, w.gpu + 2 * MIB, 2 * MIB), YOLK_ERR_OVERLAP);
    assert_error_text("cuts or contains the registered range");
    assert_status(yolk_engine_register(w.engine, w.gpu, AREA), YOLK_ERR_OVERLAP);
    assert_ok(move(&w, YOLK_WRITE, w.gpu + 3 * MIB - 7, 0, 7));
    assert_memory_equal(w.there, w.model + 3 * MIB - 7, 7);
    assert_status(move(&w, YOLK_WRITE, w.gpu + 3 * MIB - 7, 0, 8), YOLK_ERR_NOT_REGISTERED);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu + MIB, 2 * MIB));
    assert_ok(yolk_engine_unregister(w.engine, w.gpu + MIB, 2 * MIB));
    assert_ok(move(&w, YOLK_WRITE, w.gpu + MIB + 5, 100, MIB));
    assert_ok(yolk_engine_unregister(w.engine, w.gpu + MIB + 5, MIB));
    assert_status(move(&w, YOLK_WRITE, w.gpu + MIB + 5, 0, MIB), YOLK_ERR_NOT_REGISTERED);
    close_world(&w);
}

static void ranges_that_leave_their_allocation(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "tcp", NULL);
    assert_status(yolk_engine_register(w.engine, w.gpu + MIB, AREA), YOLK_ERR_INVALID);
    assert_error_text("leaves its allocation in memory of a GPU, which ends after");
    assert_ok(yolk_engine_register(w.engine, w.gpu + AREA - 1, 1));
    assert_ok(yolk_engine_unregister(w.engine, w.gpu + AREA - 1, 1));
    close_world(&w);
}

/* The addresses were freed and given to another allocation while registered. */
static void another_life_of_the_addresses(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "tcp", NULL);
    uint8_t *first = kit_gpu_alloc(w.device, 0, MIB);
    assert_ok(yolk_engine_register(w.engine, first, MIB));
    kit_gpu_free(w.device, 0, first);
    uint8_t *second = kit_gpu_alloc(w.device, 0, MIB);
    if (second == first) {
        assert_status(yolk_engine_register(w.engine, second, MIB), YOLK_ERR_STALE);
        assert_error_text("is another allocation now");
        assert_ok(yolk_engine_unregister(w.engine, second, MIB));
        assert_ok(yolk_engine_register(w.engine, second, MIB));
    }
    kit_put(w.device, 0, second, w.model, MIB);
    if (second != first)
        assert_ok(yolk_engine_register(w.engine, second, MIB));
    assert_ok(move(&w, YOLK_WRITE, second, 0, MIB));
    assert_memory_equal(w.there, w.model, MIB);
    assert_ok(yolk_engine_unregister(w.engine, second, MIB));
    if (second != first)
        assert_ok(yolk_engine_unregister(w.engine, first, MIB));
    kit_gpu_free(w.device, 0, second);
    close_world(&w);
}

/* -- faults -- */

static void a_lost_gpu(void **state)
{
    (void)state;
    if (kit_real())
        skip();
    struct world w;
    open_world(&w, "tcp", NULL);
    uint8_t *host = malloc(MIB);
    kit_fill(host, MIB, 4);
    assert_ok(yolk_engine_register(w.engine, w.gpu, AREA));
    assert_ok(yolk_engine_register(w.engine, host, MIB));
    assert_ok(move(&w, YOLK_WRITE, w.gpu, 0, MIB));
    kit_fake("async 719");
    enum yolk_status status = move(&w, YOLK_WRITE, w.gpu, 0, 2 * MIB);
    assert_true(status == YOLK_ERR_STUCK || status == YOLK_ERR_SYSTEM);
    status = move(&w, YOLK_READ, w.gpu, 0, MIB);
    assert_int_equal(status, YOLK_ERR_SYSTEM);
    assert_error_text("has failed before");
    assert_ok(move(&w, YOLK_WRITE, host, 0, MIB)); /* others go on */
    assert_memory_equal(w.there, host, MIB);
    assert_ok(yolk_engine_unregister(w.engine, w.gpu, AREA));
    assert_ok(yolk_engine_unregister(w.engine, host, MIB));
    kit_fake("reset");
    free(host);
    yolk_engine_unserve(w.engine, w.served);
    assert_ok(yolk_engine_segment_close(w.engine, w.segment));
    yolk_engine_memory_free(w.engine, &w.memory);
    assert_ok(yolk_engine_destroy(w.engine));
    free(w.model);
    free(w.read);
    device_close(w.device); /* what the GPU had is lost with it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c42_each_transport_moves_a_gpus_memory_exactly),
        cmocka_unit_test(c42_unregistered_memory_is_refused_before_a_byte_moves),
        cmocka_unit_test(staged_is_told_and_counted),
        cmocka_unit_test(strict_refuses_at_registration),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(many_blocks_at_once),
        cmocka_unit_test(c13_concurrent_transfers),
        cmocka_unit_test(a_mapping_stays_while_a_gpu_reads_it),
        cmocka_unit_test(a_gpus_memory_is_served),
        cmocka_unit_test(peers_reach_a_gpus_memory),
        cmocka_unit_test(after_a_stream),
        cmocka_unit_test(what_it_waits_for_does_not_come),
        cmocka_unit_test(c39_overlapping_ranges),
        cmocka_unit_test(c45_memory_of_two_pieces),
        cmocka_unit_test(c49_each_kind_of_memory_is_moved),
        cmocka_unit_test(several_owners_in_one_range),
        cmocka_unit_test(ranges_that_leave_their_allocation),
        cmocka_unit_test(another_life_of_the_addresses),
        cmocka_unit_test(a_lost_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
