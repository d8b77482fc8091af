/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers whose peer says nothing, whose link never works, that are looked at under wrong
 * numbers, or that are more than anybody expects in one call. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/transfer_engine_c.h>
#include <tent/transfer_engine.h>
#include <yolk/peer.h>

#include "base/error.h"
#include "base/limits.h"
#include "cluster.h"
#include "platform/clock.h"
#include "transport/loop/loop.h"

static void fill(uint8_t *memory, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        memory[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 7);
}

static struct yolk_peer *peer_open(uint64_t timeout_ms)
{
    struct yolk_peer_options options;
    struct yolk_peer *peer = NULL;
    yolk_peer_options_init(&options);
    options.transports = "tcp";
    options.timeout_ms = timeout_ms;
    if (yolk_peer_create(&options, &peer) != YOLK_OK)
        fail_msg("peer: %s", yolk_last_error());
    return peer;
}

/* -- C121 -- */

static struct {
    uint64_t connected, posted;
    enum yolk_status (*channel_open)(void *endpoint, void *target, void **channel);
} storm;

static enum yolk_status count_channel(void *endpoint, void *target, void **channel)
{
    storm.connected++;
    return storm.channel_open(endpoint, target, channel);
}

static enum yolk_submit never_works(void *channel, struct yolk_io *io)
{
    (void)channel;
    storm.posted++;
    io->transferred = 0;
    io->status = (enum yolk_status)base_fail(YOLK_ERR_LINK, 0, "local length error");
    return YOLK_SUBMIT_FAILED;
}

struct storm_world {
    struct clock_sim clock;
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment;
    uint8_t memory[4096], local[4096];
};

static void storm_open(struct storm_world *w, size_t transports)
{
    static struct yolk_transport_ops broken;
    const struct yolk_transport_ops *const all[] = {&broken, transport_loop_ops()};
    struct yolk_engine_options options;
    memset(w, 0, sizeof(*w));
    memset(&storm, 0, sizeof(storm));
    broken = *transport_loop_ops();
    broken.name = "broken";
    storm.channel_open = broken.channel_open;
    broken.channel_open = count_channel;
    broken.submit = never_works;
    clock_sim_init(&w->clock, 1000);
    yolk_engine_options_init(&options);
    options.transports = all;
    options.transport_count = transports;
    options.transport.now_ns = clock_sim_clock(&w->clock).now_ns;
    options.transport.clock_self = clock_sim_clock(&w->clock).self;
    assert_int_equal(yolk_engine_create(&options, &w->engine), YOLK_OK);
    fill(w->memory, sizeof(w->memory), 1);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = w->memory, .size = sizeof(w->memory), .segment = 9};
    assert_int_equal(yolk_engine_serve(w->engine, &serve, &w->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {9, 1, sizeof(w->memory),
                                                       yolk_served_endpoints(w->served)};
    assert_int_equal(yolk_engine_segment_open(w->engine, &descriptor, 1, &w->segment), YOLK_OK);
    assert_int_equal(yolk_engine_register(w->engine, w->local, sizeof(w->local)), YOLK_OK);
}

static void storm_close(struct storm_world *w)
{
    yolk_engine_unserve(w->engine, w->served);
    assert_int_equal(yolk_engine_destroy(w->engine), YOLK_OK);
}

static struct yolk_task_status storm_read(struct storm_world *w)
{
    const struct yolk_request request = {.opcode = YOLK_READ,
                                         .local = w->local,
                                         .segment = w->segment,
                                         .size = sizeof(w->local),
                                         .hint = "broken"};
    uint64_t batch;
    enum yolk_status verdict;
    struct yolk_task_status task;
    memset(w->local, 0, sizeof(w->local));
    assert_int_equal(yolk_engine_batch_create(w->engine, 1, &batch), YOLK_OK);
    (void)!yolk_engine_batch_submit(w->engine, batch, &request, 1, &verdict, NULL);
    assert_int_equal(yolk_engine_batch_wait(w->engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(w->engine, batch, 0, &task), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(w->engine, batch), YOLK_OK);
    return task;
}

/* Asked ten times a second for ten minutes. */
static void c121_no_storm_of_connections(void **state)
{
    (void)state;
    static struct storm_world w;
    storm_open(&w, 1);
    for (int minute = 0; minute < 10; minute++) {
        uint64_t before = storm.connected;
        for (int i = 0; i < 600; i++) {
            assert_int_equal(storm_read(&w).status, YOLK_ERR_LINK);
            clock_sim_advance(&w.clock, 100 * NS_PER_MS);
        }
        assert_true(storm.connected - before <= 10);
        assert_true(storm.connected > before); /* it is still tried now and then */
    }
    storm_close(&w);
}

static void c121_another_transport_takes_over(void **state)
{
    (void)state;
    static struct storm_world w;
    storm_open(&w, 2);
    for (int i = 0; i < 600; i++) {
        struct yolk_task_status task = storm_read(&w);
        assert_int_equal(task.status, YOLK_OK);
        assert_string_equal(task.transport, "loop");
        assert_memory_equal(w.local, w.memory, sizeof(w.memory));
        clock_sim_advance(&w.clock, 100 * NS_PER_MS);
    }
    assert_in_range(storm.connected, 1, 10);
    storm_close(&w);
}

/* -- C122 -- */

enum { BLOCK = 64 << 10, BLOCKS = 100 };

/* A peer in a process of its own, which is stopped once it is connected to: it accepts, and says
 * nothing more. */
struct silent {
    pid_t pid;
    char name[200];
    uint64_t address;
};

static void silent_main(int out)
{
    struct yolk_peer_options options;
    struct yolk_peer *peer = NULL;
    uint8_t *memory = calloc(BLOCKS, BLOCK);
    yolk_peer_options_init(&options);
    options.transports = "tcp";
    if (memory == NULL || yolk_peer_create(&options, &peer) != YOLK_OK ||
        yolk_peer_register(peer, memory, (uint64_t)BLOCKS * BLOCK, "*", YOLK_REMOTE_READ) !=
            YOLK_OK)
        _exit(1);
    dprintf(out, "%s %" PRIu64 "\n", yolk_peer_name(peer), (uint64_t)(uintptr_t)memory);
    for (;;)
        pause();
}

/* Before this process has threads. */
static struct silent silent_start(void)
{
    struct silent s = {0};
    char line[300] = "";
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    s.pid = fork();
    assert_true(s.pid >= 0);
    if (s.pid == 0) {
        alarm(120);
        silent_main(pipes[1]);
    }
    close(pipes[1]);
    FILE *from = fdopen(pipes[0], "r");
    assert_non_null(from);
    assert_non_null(fgets(line, sizeof(line), from));
    assert_int_equal(sscanf(line, "%199s %" SCNu64, s.name, &s.address), 2);
    fclose(from);
    return s;
}

static void silent_end(struct silent *s)
{
    kill(s->pid, SIGKILL);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
}

static uint64_t ms_since(uint64_t start_ns)
{
    return (clock_real_now_ns() - start_ns) / NS_PER_MS;
}

/* The timeout is 1 s; what is beyond 3 s would be a timeout for each, or one that is built in. */
enum { TIMEOUT_MS = 1000, LATE_MS = 3500 };

static void c122_a_silent_peer_costs_one_timeout(void **state)
{
    (void)state;
    struct silent silent = silent_start();
    struct yolk_peer *here = peer_open(0), *healthy = peer_open(0);
    uint64_t to_silent, to_healthy, batch;
    uint32_t first;
    uint8_t *local = calloc(2 * BLOCKS, BLOCK), *remote = calloc(BLOCKS, BLOCK);
    struct yolk_request requests[2 * BLOCKS];
    enum yolk_status verdicts[2 * BLOCKS];
    assert_non_null(local);
    assert_non_null(remote);
    fill(remote, (uint64_t)BLOCKS * BLOCK, 5);
    assert_int_equal(yolk_peer_register(here, local, 2ull * BLOCKS * BLOCK, "*", YOLK_LOCAL),
                     YOLK_OK);
    assert_int_equal(
        yolk_peer_register(healthy, remote, (uint64_t)BLOCKS * BLOCK, "*", YOLK_REMOTE_READ),
        YOLK_OK);
    assert_int_equal(yolk_peer_open(here, silent.name, &to_silent), YOLK_OK);
    assert_int_equal(yolk_peer_open(here, yolk_peer_name(healthy), &to_healthy), YOLK_OK);
    struct yolk_engine *engine = yolk_peer_engine(here);
    for (int i = 0; i < 2 * BLOCKS; i++)
        requests[i] = (struct yolk_request){
            .opcode = YOLK_READ,
            .local = local + (size_t)i * BLOCK,
            .segment = i % 2 == 0 ? to_silent : to_healthy,
            .offset = (i % 2 == 0 ? silent.address : (uint64_t)(uintptr_t)remote) +
                      (uint64_t)(i / 2) * BLOCK,
            .size = BLOCK};
    /* It works, so it is connected to; then it says nothing any more. */
    assert_int_equal(yolk_peer_transfer(here, requests, 1, 0), YOLK_OK);
    assert_int_equal(kill(silent.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(silent.pid, NULL, WUNTRACED), silent.pid);
    uint64_t start = clock_real_now_ns();
    enum yolk_status status = yolk_peer_transfer(here, requests, 1, start + TIMEOUT_MS * NS_PER_MS);
    uint64_t took = ms_since(start);
    assert_int_equal(status, YOLK_ERR_TIMEOUT);
    assert_in_range(took, TIMEOUT_MS, LATE_MS);
    /* A hundred of them with a hundred of a healthy one. */
    start = clock_real_now_ns();
    for (int i = 0; i < 2 * BLOCKS; i++)
        requests[i].deadline_ns = start + TIMEOUT_MS * NS_PER_MS;
    assert_int_equal(yolk_engine_batch_create(engine, 2 * BLOCKS, &batch), YOLK_OK);
    (void)!yolk_peer_submit(here, batch, requests, 2 * BLOCKS, verdicts, &first);
    assert_int_equal(yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
    took = ms_since(start);
    assert_true(took <= LATE_MS);
    for (int i = 0; i < 2 * BLOCKS; i++) {
        struct yolk_task_status task;
        assert_int_equal(yolk_engine_batch_poll(engine, batch, first + (uint32_t)i, &task),
                         YOLK_OK);
        assert_true(task.terminal);
        if (i % 2 == 0)
            assert_int_not_equal(task.status, YOLK_OK);
        else
            assert_int_equal(task.status, YOLK_OK);
    }
    for (int i = 0; i < BLOCKS; i++)
        assert_memory_equal(local + (size_t)(2 * i + 1) * BLOCK, remote + (size_t)i * BLOCK, BLOCK);
    assert_int_equal(yolk_engine_batch_free(engine, batch), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(here), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(healthy), YOLK_OK);
    silent_end(&silent);
    free(local);
    free(remote);
}

/* -- C124 -- */

static void assert_told(struct yolk_engine *engine, uint64_t batch, uint32_t task,
                        enum yolk_status expected)
{
    struct yolk_task_status status;
    memset(&status, 0xee, sizeof(status));
    assert_int_equal(yolk_engine_batch_poll(engine, batch, task, &status), expected);
    assert_true(yolk_last_error()[0] != '\0');
    /* Written all the same: a loop until it is terminal ends. */
    assert_int_equal(status.terminal, 1);
    assert_int_equal(status.status, expected);
    assert_int_equal(status.transferred, 0);
    assert_string_equal(status.transport, "");
}

static void c124_wrong_numbers_are_errors(void **state)
{
    (void)state;
    static struct storm_world w;
    storm_open(&w, 2);
    uint64_t batch, freed;
    uint32_t pending = 77;
    assert_int_equal(yolk_engine_batch_create(w.engine, 4, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_create(w.engine, 4, &freed), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(w.engine, freed), YOLK_OK);
    assert_told(w.engine, freed, 0, YOLK_ERR_STALE);
    assert_told(w.engine, 0, 0, YOLK_ERR_STALE);
    assert_told(w.engine, UINT64_MAX, 0, YOLK_ERR_STALE);
    assert_told(w.engine, batch, 0, YOLK_ERR_INVALID); /* nothing was submitted */
    assert_told(w.engine, batch, UINT32_MAX, YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_batch_progress(w.engine, freed, &pending), YOLK_ERR_STALE);
    assert_int_equal(pending, 0);
    assert_int_equal(yolk_engine_batch_wait(w.engine, freed, 0), YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_batch_cancel(w.engine, freed, 0), YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_batch_cancel(w.engine, batch, 9), YOLK_ERR_INVALID);
    assert_int_equal(yolk_engine_batch_free(w.engine, freed), YOLK_ERR_STALE);
    assert_int_equal(yolk_engine_batch_free(w.engine, batch), YOLK_OK);
    storm_close(&w);
}

static void assert_c_told(transfer_engine_t engine, batch_id_t batch, size_t task)
{
    struct transfer_status status;
    memset(&status, 0xee, sizeof(status));
    assert_true(getTransferStatus(engine, batch, task, &status) < 0);
    assert_int_equal(status.status, STATUS_FAILED);
    assert_int_equal(status.transferred_bytes, 0);
}

static void c124_in_mooncakes_c_interface(void **state)
{
    (void)state;
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 0);
    assert_non_null(engine);
    batch_id_t batch = allocateBatchID(engine, 4), freed = allocateBatchID(engine, 4);
    assert_int_equal(freeBatchID(engine, freed), 0);
    assert_c_told(engine, freed, 0);
    assert_c_told(engine, batch, 0);
    assert_c_told(engine, batch, SIZE_MAX);
    assert_c_told(engine, INVALID_BATCH, 0);
    assert_c_told(engine, 12345, 0);
    assert_true(freeBatchID(engine, freed) < 0);
    assert_int_equal(freeBatchID(engine, batch), 0);
    destroyTransferEngine(engine);
}

static void assert_tent_told(tent_engine_t engine, tent_batch_id_t batch, size_t task)
{
    tent_status_t status;
    memset(&status, 0xee, sizeof(status));
    assert_true(tent_task_status(engine, batch, task, &status) != 0);
    assert_int_equal(status.status, STATUS_FAILED);
    assert_int_equal(status.transferred_bytes, 0);
    memset(&status, 0xee, sizeof(status));
    if (task == 0) {
        assert_true(tent_overall_status(engine, batch, &status) != 0);
        assert_int_equal(status.status, STATUS_FAILED);
    }
}

static void c124_in_tents_c_interface(void **state)
{
    (void)state;
    tent_engine_t engine = tent_create_engine();
    assert_non_null(engine);
    tent_batch_id_t batch = tent_allocate_batch(engine, 4), freed = tent_allocate_batch(engine, 4);
    assert_int_equal(tent_free_batch(engine, freed), 0);
    assert_tent_told(engine, freed, 0);
    assert_tent_told(engine, 12345, 0);
    assert_tent_told(engine, batch, 3);
    assert_tent_told(engine, batch, SIZE_MAX);
    assert_true(tent_free_batch(engine, freed) != 0);
    assert_int_equal(tent_free_batch(engine, batch), 0);
    tent_destroy_engine(engine);
}

/* -- C128 -- */

enum { ENDPOINTS_MAX = 64, PEERS = 500 };

static struct {
    _Atomic int open, most, opened;
    enum yolk_status (*open_target)(void *, const char *, uint64_t, uint64_t, uint64_t, void **);
    void (*close_target)(void *, void *);
} few;

static enum yolk_status open_one_of_few(void *endpoint, const char *text, uint64_t segment,
                                        uint64_t size, uint64_t session, void **target)
{
    if (few.open == ENDPOINTS_MAX)
        return (enum yolk_status)base_fail(YOLK_ERR_LIMIT, 0, "no endpoint is left of %d",
                                           ENDPOINTS_MAX);
    enum yolk_status status = few.open_target(endpoint, text, segment, size, session, target);
    few.open += status == YOLK_OK;
    few.opened += status == YOLK_OK;
    few.most = few.open > few.most ? few.open : few.most;
    return status;
}

static void close_one_of_few(void *endpoint, void *target)
{
    few.open--;
    few.close_target(endpoint, target);
}

struct many_peers {
    struct yolk_engine *engine;
    struct yolk_served *served[PEERS];
    uint64_t segments[PEERS];
    uint8_t memory[PEERS][64], local[PEERS][64];
};

static void many_open(struct many_peers *m)
{
    static struct yolk_transport_ops limited;
    const struct yolk_transport_ops *const all[] = {&limited};
    struct yolk_engine_options options;
    memset(&few, 0, sizeof(few));
    limited = *transport_loop_ops();
    limited.name = "few";
    limited.caps &= ~YOLK_CAP_SAME_PROCESS;
    few.open_target = limited.open_target;
    few.close_target = limited.close_target;
    limited.open_target = open_one_of_few;
    limited.close_target = close_one_of_few;
    yolk_engine_options_init(&options);
    options.transports = all;
    options.transport_count = 1;
    assert_int_equal(yolk_engine_create(&options, &m->engine), YOLK_OK);
    assert_int_equal(yolk_engine_register(m->engine, m->local, sizeof(m->local)), YOLK_OK);
    for (uint32_t i = 0; i < PEERS; i++) {
        fill(m->memory[i], sizeof(m->memory[i]), i);
        const struct yolk_serve_options serve = {.struct_size = sizeof(serve),
                                                 .memory = m->memory[i],
                                                 .size = sizeof(m->memory[i]),
                                                 .segment = 100 + i};
        assert_int_equal(yolk_engine_serve(m->engine, &serve, &m->served[i]), YOLK_OK);
        const struct yolk_segment_descriptor descriptor = {100 + i, 1, sizeof(m->memory[i]),
                                                           yolk_served_endpoints(m->served[i])};
        assert_int_equal(yolk_engine_segment_open(m->engine, &descriptor, 1, &m->segments[i]),
                         YOLK_OK);
    }
}

static struct yolk_request many_request(struct many_peers *m, uint32_t i)
{
    return (struct yolk_request){.opcode = YOLK_READ,
                                 .local = m->local[i],
                                 .segment = m->segments[i],
                                 .size = sizeof(m->local[i])};
}

/* Of peers [first, first + count), together in one batch. */
static void many_read(struct many_peers *m, uint32_t first, uint32_t count)
{
    struct yolk_request requests[PEERS];
    enum yolk_status verdicts[PEERS];
    uint64_t batch;
    memset(m->local, 0xee, sizeof(m->local));
    for (uint32_t i = 0; i < count; i++)
        requests[i] = many_request(m, first + i);
    assert_int_equal(yolk_engine_batch_create(m->engine, count, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(m->engine, batch, requests, count, verdicts, NULL),
                     YOLK_OK);
    assert_int_equal(
        yolk_engine_batch_wait(m->engine, batch, yolk_engine_now_ns(m->engine) + 60 * NS_PER_S),
        YOLK_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct yolk_task_status task;
        assert_int_equal(yolk_engine_batch_poll(m->engine, batch, i, &task), YOLK_OK);
        assert_int_equal(task.status, YOLK_OK);
        assert_memory_equal(m->local[first + i], m->memory[first + i], sizeof(m->local[0]));
    }
    assert_int_equal(yolk_engine_batch_free(m->engine, batch), YOLK_OK);
    assert_true(few.most <= ENDPOINTS_MAX);
}

static void c128_more_peers_than_endpoints(void **state)
{
    (void)state;
    static struct many_peers m;
    many_open(&m);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < PEERS; i++)
            many_read(&m, i, 1);
    assert_int_equal(few.most, ENDPOINTS_MAX);
    /* What is used again and again keeps its endpoint: the one used longest ago goes. */
    int before = few.opened;
    many_read(&m, 0, 1);
    for (uint32_t i = 1; i < PEERS; i++) {
        many_read(&m, i, 1);
        many_read(&m, 0, 1);
    }
    assert_true(few.opened - before <= PEERS + 1);
    many_read(&m, 0, PEERS); /* all of them at once */
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(yolk_engine_segment_close(m.engine, m.segments[i]), YOLK_OK);
        yolk_engine_unserve(m.engine, m.served[i]);
    }
    assert_int_equal(few.open, 0);
    assert_int_equal(yolk_engine_destroy(m.engine), YOLK_OK);
}

/* -- C127 -- */

static uint64_t resident_bytes(void)
{
    uint64_t size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%" SCNu64 " %" SCNu64, &size, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Sizes of the case with YOLK_CASES_FULL=1; else as many, of less bytes each. */
static void c127_three_hundred_thousand_descriptors(void **state)
{
    (void)state;
    enum { COUNT = 300000, SPREAD = 1 << 20 };
    const uint64_t size = rounds(64, 4096);
    struct yolk_peer *here = peer_open(0), *there = peer_open(0);
    uint64_t segment;
    uint8_t *local = malloc(COUNT * size), *remote = malloc(SPREAD + 4096);
    struct yolk_request *requests = malloc(COUNT * sizeof(*requests));
    assert_non_null(local);
    assert_non_null(remote);
    assert_non_null(requests);
    fill(remote, SPREAD + 4096, 7);
    memset(local, 0xee, COUNT * size);
    assert_int_equal(yolk_peer_register(here, local, COUNT * size, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_register(there, remote, SPREAD + 4096, "*", YOLK_REMOTE_READ),
                     YOLK_OK);
    assert_int_equal(yolk_peer_open(here, yolk_peer_name(there), &segment), YOLK_OK);
    for (uint64_t i = 0; i < COUNT; i++)
        requests[i] =
            (struct yolk_request){.opcode = YOLK_READ,
                                  .local = local + i * size,
                                  .segment = segment,
                                  .offset = (uint64_t)(uintptr_t)remote + i * 7919 % SPREAD,
                                  .size = i % 100 == 99 ? 0 : size};
    assert_int_equal(yolk_peer_transfer(here, requests, 1000, 0), YOLK_OK); /* all is set up */
    uint64_t before = resident_bytes();
    enum yolk_status status =
        yolk_peer_transfer(here, requests, COUNT, clock_real_now_ns() + 100 * NS_PER_S);
    if (status != YOLK_OK)
        fail_msg("%s: %s", yolk_strerror(status), yolk_last_error());
    uint64_t grown = resident_bytes() > before ? resident_bytes() - before : 0;
    /* A task has its place in the batch; what is in flight is a window of them. */
    assert_true(grown < COUNT * UINT64_C(700));
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint8_t *want = remote + i * 7919 % SPREAD;
        for (uint64_t k = 0; k < size; k++)
            if (local[i * size + k] != (requests[i].size == 0 ? 0xee : want[k]))
                fail_msg("descriptor %" PRIu64 " is wrong", i);
    }
    assert_int_equal(yolk_peer_destroy(here), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(there), YOLK_OK);
    free(requests);
    free(local);
    free(remote);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c122_a_silent_peer_costs_one_timeout), /* first: it forks */
        cmocka_unit_test(c121_no_storm_of_connections),
        cmocka_unit_test(c121_another_transport_takes_over),
        cmocka_unit_test(c124_wrong_numbers_are_errors),
        cmocka_unit_test(c124_in_mooncakes_c_interface),
        cmocka_unit_test(c124_in_tents_c_interface),
        cmocka_unit_test(c127_three_hundred_thousand_descriptors),
        cmocka_unit_test(c128_more_peers_than_endpoints),
    };
    return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
