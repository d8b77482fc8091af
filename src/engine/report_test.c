/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says of itself after known transfers: metrics, load, quarantine. */
#include <yolk/engine.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "engine/metrics.h"
#include "engine/rig.h"
#include "platform/clock.h"
#include "platform/temporary_kit.h"
#include "platform/thread.h"
#include "transport/fault/fault.h"
#include "transport/loop/loop.h"
#include "transport/posix/posix.h"

enum { SIZE = 1 << 16, BLOCK = 4096, LIMIT_MS = 30 };
#define MS UINT64_C(1000000)

/* One engine under a virtual clock that serves to itself: `first` does what the faults say,
 * `second` is sound. */
struct pair {
    struct fault_control control;
    struct fault_options faults;
    struct yolk_transport_ops first, second;
    struct clock_sim clock;
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment;
    uint8_t memory[SIZE], local[SIZE];
};

static struct pair *pair_open_limited(size_t transports_used, uint64_t drain_limit_ms)
{
    struct pair *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->faults.inner = transport_loop_ops();
    p->faults.control = &p->control;
    transport_fault_make(&p->faults, &p->first);
    p->first.name = "first";
    p->second = *transport_loop_ops();
    p->second.name = "second";
    clock_sim_init(&p->clock, 1000 * MS);
    const struct yolk_transport_ops *transports[] = {&p->first, &p->second};
    const void *wrapped[] = {&p->faults, NULL};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = transports_used;
    options.wrapped = wrapped;
    options.drain_limit_ms = drain_limit_ms;
    options.merge = YOLK_SWITCH_OFF;
    options.transport.now_ns = clock_sim_clock(&p->clock).now_ns;
    options.transport.clock_self = clock_sim_clock(&p->clock).self;
    assert_int_equal(yolk_engine_create(&options, &p->engine), YOLK_OK);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = p->memory, .size = SIZE, .segment = 9};
    assert_int_equal(yolk_engine_serve(p->engine, &serve, &p->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {9, 1, SIZE,
                                                       yolk_served_endpoints(p->served)};
    assert_int_equal(yolk_engine_segment_open(p->engine, &descriptor, 5, &p->segment), YOLK_OK);
    assert_int_equal(yolk_engine_register(p->engine, p->local, SIZE), YOLK_OK);
    return p;
}

static struct pair *pair_open(size_t transports_used)
{
    return pair_open_limited(transports_used, 5000);
}

static void pair_close(struct pair *p)
{
    atomic_store(&p->control.release, 1);
    yolk_engine_unserve(p->engine, p->served);
    assert_int_equal(yolk_engine_destroy(p->engine), YOLK_OK);
    free(p);
}

static uint64_t submit(struct pair *p, enum yolk_opcode opcode, uint32_t blocks,
                       uint64_t deadline_ns)
{
    struct yolk_request requests[16];
    enum yolk_status verdicts[16];
    uint64_t batch;
    for (uint32_t i = 0; i < blocks; i++)
        requests[i] = (struct yolk_request){.opcode = opcode,
                                            .local = p->local + (size_t)i * BLOCK,
                                            .segment = p->segment,
                                            .offset = (uint64_t)i * BLOCK,
                                            .size = BLOCK,
                                            .deadline_ns = deadline_ns};
    assert_int_equal(yolk_engine_batch_create(p->engine, 16, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(p->engine, batch, requests, blocks, verdicts, NULL),
                     YOLK_OK);
    return batch;
}

static void finish(struct pair *p, uint64_t batch)
{
    assert_int_equal(yolk_engine_batch_wait(p->engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(p->engine, batch), YOLK_OK);
}

/* "name{labels}" of the Prometheus text. */
static double value_of(struct pair *p, const char *series)
{
    char *text, line[256];
    assert_int_equal(yolk_engine_metrics(p->engine, &text), YOLK_OK);
    snprintf(line, sizeof(line), "\n%s ", series);
    const char *found = strstr(text, line);
    if (found == NULL)
        fail_msg("no series %s in\n%s", series, text);
    double value = strtod(found + strlen(line), NULL);
    free(text);
    return value;
}

/* The sum over all labels, from the JSON. */
static double total_of(struct pair *p, const char *name)
{
    char *text;
    struct base_json *json;
    assert_int_equal(yolk_engine_metrics_json(p->engine, &text), YOLK_OK);
    if (base_json_parse("metrics", text, strlen(text), &json) != YOLK_OK)
        fail_msg("%s", text);
    const struct base_json *value = base_json_member(json, name);
    if (value == NULL || value->type != BASE_JSON_NUMBER)
        fail_msg("no number %s in %s", name, text);
    double number = strtod(value->text, NULL);
    base_json_free(json);
    free(text);
    return number;
}

static struct yolk_engine_load load_of(struct pair *p, const char *transport)
{
    struct yolk_engine_load loads[8];
    size_t count = 8;
    assert_int_equal(yolk_engine_load_stats(p->engine, loads, &count), YOLK_OK);
    for (size_t i = 0; i < count; i++)
        if (strcmp(loads[i].transport, transport) == 0)
            return loads[i];
    fail_msg("no route by %s in use", transport);
    return (struct yolk_engine_load){.segment = 0};
}

static void requests_count_once_and_bytes_once(void **state)
{
    (void)state;
    struct pair *p = pair_open(2);
    finish(p, submit(p, YOLK_READ, 10, 0));
    finish(p, submit(p, YOLK_WRITE, 3, 0));
    assert_true(value_of(p, "tent_read_requests_total{transport=\"first\"}") == 10);
    assert_true(value_of(p, "tent_read_bytes_total{transport=\"first\"}") == 10 * BLOCK);
    assert_true(value_of(p, "tent_write_requests_total{transport=\"first\"}") == 3);
    assert_true(value_of(p, "tent_write_bytes_total{transport=\"first\"}") == 3 * BLOCK);
    assert_true(value_of(p, "tent_read_bytes_total{transport=\"second\"}") == 0);
    assert_true(value_of(p, "tent_read_latency_us_count") == 10);
    assert_true(value_of(p, "tent_read_size_bytes_count") == 10);
    assert_true(value_of(p, "tent_read_size_bytes_sum") == 10 * BLOCK);
    assert_true(value_of(p, "tent_stage_transport_us_count") == 13);
    assert_true(
        value_of(p, "tent_transport_attempts_total{transport=\"first\",operation=\"read\"}") == 10);
    assert_true(value_of(p, "yolk_engine_path_bytes_total{transport=\"first\",path=\"direct\"}") ==
                13 * BLOCK);
    assert_true(total_of(p, "tent_transport_attempt_failures_total") == 0);
    assert_true(total_of(p, "yolk_engine_requests_in_flight") == 0);
    assert_true(total_of(p, "yolk_engine_batches") == 0);
    assert_true(total_of(p, "yolk_engine_registrations") == 1);
    assert_true(total_of(p, "yolk_engine_registered_bytes") == SIZE);
    char *line;
    assert_int_equal(yolk_engine_metrics_summary(p->engine, &line), YOLK_OK);
    assert_string_equal(line,
                        "Read: 40.96 KB (10 reqs, 0 fails) | Write: 12.29 KB (3 reqs, 0 fails)\n");
    free(line);
    pair_close(p);
}

static void a_failover_is_two_attempts_one_failed_of_one_request(void **state)
{
    (void)state;
    struct pair *p = pair_open(2);
    atomic_store(&p->control.dead, 1);
    finish(p, submit(p, YOLK_READ, 1, 0));
    assert_true(total_of(p, "tent_transport_attempts_total") == 2);
    assert_true(total_of(p, "tent_transport_attempt_failures_total") == 1);
    assert_true(total_of(p, "tent_read_requests_total") == 1);
    assert_true(total_of(p, "tent_read_failures_total") == 0);
    assert_true(total_of(p, "tent_transport_failover_total") == 1);
    assert_true(value_of(p, "tent_transport_failover_total{from=\"first\",to=\"second\"}") == 1);
    assert_true(value_of(p, "tent_read_bytes_total{transport=\"second\"}") == BLOCK);
    assert_true(value_of(p, "tent_transport_attempt_latency_us_count{transport=\"first\","
                            "operation=\"read\"}") == 1);
    pair_close(p);
}

static void a_failed_request_adds_no_bytes(void **state)
{
    (void)state;
    struct pair *p = pair_open(1);
    atomic_store(&p->control.dead, 1);
    finish(p, submit(p, YOLK_WRITE, 1, 0));
    assert_true(total_of(p, "tent_transport_attempts_total") == 1);
    assert_true(total_of(p, "tent_transport_attempt_failures_total") == 1);
    assert_true(total_of(p, "tent_write_requests_total") == 1);
    assert_true(total_of(p, "tent_write_failures_total") == 1);
    assert_true(total_of(p, "tent_write_bytes_total") == 0);
    assert_true(value_of(p, "tent_write_size_bytes_count") == 0);
    assert_true(value_of(p, "tent_write_latency_us_count") == 0);
    pair_close(p);
}

static void a_missed_deadline_has_its_own_counter(void **state)
{
    (void)state;
    struct pair *p = pair_open(1);
    p->faults.drop_permille = 1000; /* it comes back only by the cancel at the deadline */
    uint64_t batch = submit(p, YOLK_READ, 1, yolk_engine_now_ns(p->engine) + 10 * MS);
    clock_sim_advance(&p->clock, 25 * MS);
    finish(p, batch);
    assert_true(value_of(p, "tent_deadline_infeasible_total{transport=\"first\"}") == 1);
    assert_true(value_of(p, "tent_deadline_mlu_permille_bucket{le=\"2000\"}") == 0);
    assert_true(value_of(p, "tent_deadline_mlu_permille_bucket{le=\"5000\"}") == 1);
    assert_true(value_of(p, "tent_deadline_mlu_permille_sum") == 2500);
    /* And one that fails. */
    p->faults.drop_permille = 0;
    p->faults.stuck_permille = 1000;
    batch = submit(p, YOLK_READ, 1, yolk_engine_now_ns(p->engine) + 10 * MS);
    uint32_t pending = 1;
    for (int i = 0; i < 10 && pending > 0; i++) {
        clock_sim_advance(&p->clock, 2000 * MS);
        assert_int_equal(yolk_engine_batch_progress(p->engine, batch, &pending), YOLK_OK);
    }
    assert_int_equal(pending, 0);
    assert_true(total_of(p, "tent_read_failures_total") == 1);
    assert_true(total_of(p, "tent_deadline_infeasible_total") == 2);
    assert_true(value_of(p, "tent_deadline_mlu_permille_count") == 2);
    p->faults.stuck_permille = 0;
    atomic_store(&p->control.release, 1);
    finish(p, batch);
    /* In time: another sample, nothing infeasible. */
    finish(p, submit(p, YOLK_READ, 1, yolk_engine_now_ns(p->engine) + 10 * MS));
    assert_true(value_of(p, "tent_deadline_mlu_permille_count") == 3);
    assert_true(total_of(p, "tent_deadline_infeasible_total") == 2);
    pair_close(p);
}

static void load_shows_what_is_in_flight_and_how_fast_it_was(void **state)
{
    (void)state;
    struct pair *p = pair_open(2);
    size_t count = 0;
    assert_int_equal(yolk_engine_load_stats(p->engine, NULL, &count), YOLK_OK);
    assert_int_equal(count, 0); /* no route was used yet */
    p->faults.stuck_permille = 1000;
    uint64_t batch = submit(p, YOLK_READ, 3, 0);
    struct yolk_engine_load load = load_of(p, "first");
    assert_int_equal(load.inflight_bytes, 3 * BLOCK);
    assert_int_equal(load.inflight_ios, 3);
    assert_int_equal(load.bytes, 0);
    assert_int_equal(load.segment, p->segment);
    assert_true(load.device[0] != '\0');
    assert_true(total_of(p, "yolk_engine_route_inflight_bytes") == 3 * BLOCK);
    assert_true(total_of(p, "yolk_engine_requests_in_flight") == 3);
    clock_sim_advance(&p->clock, 2 * MS);
    atomic_store(&p->control.release, 1);
    finish(p, batch);
    load = load_of(p, "first");
    assert_int_equal(load.inflight_bytes, 0);
    assert_int_equal(load.inflight_ios, 0);
    assert_int_equal(load.bytes, 3 * BLOCK);
    assert_int_equal(load.ios, 3);
    assert_true(load.latency_ns > 2 * MS - 1000 && load.latency_ns < 2 * MS + 1000);
    assert_int_equal(load.bandwidth_bytes, 3 * BLOCK * 500);
    /* More routes than room. */
    struct yolk_request request = {
        .opcode = YOLK_READ, .local = p->local, .segment = p->segment, .size = 1, .hint = "second"};
    enum yolk_status verdict;
    assert_int_equal(yolk_engine_batch_create(p->engine, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(p->engine, batch, &request, 1, &verdict, NULL),
                     YOLK_OK);
    finish(p, batch);
    struct yolk_engine_load one;
    count = 1;
    assert_int_equal(yolk_engine_load_stats(p->engine, &one, &count), YOLK_ERR_LIMIT);
    assert_int_equal(count, 2);
    assert_string_equal(one.transport, "first");
    pair_close(p);
}

static struct clock_sim *copying_moves;

static enum yolk_submit copy_for_a_millisecond(void *channel, struct yolk_io *io)
{
    clock_sim_advance(copying_moves, MS);
    return transport_loop_ops()->submit(channel, io);
}

/* A copy in the caller's thread takes the transport's time, not that of the way to it. */
static void a_copy_in_submit_takes_its_time(void **state)
{
    (void)state;
    struct pair *p = pair_open(2);
    struct yolk_transport_ops copying = *transport_loop_ops();
    const struct yolk_transport_ops *transports[] = {&copying};
    struct pair q = {.engine = NULL};
    struct yolk_engine_options options;
    copying.submit = copy_for_a_millisecond;
    copying_moves = &p->clock;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    options.transport.now_ns = clock_sim_clock(&p->clock).now_ns;
    options.transport.clock_self = clock_sim_clock(&p->clock).self;
    assert_int_equal(yolk_engine_create(&options, &q.engine), YOLK_OK);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = p->memory, .size = SIZE, .segment = 3};
    struct yolk_served *served;
    assert_int_equal(yolk_engine_serve(q.engine, &serve, &served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {3, 1, SIZE, yolk_served_endpoints(served)};
    assert_int_equal(yolk_engine_segment_open(q.engine, &descriptor, 5, &q.segment), YOLK_OK);
    assert_int_equal(yolk_engine_register(q.engine, q.local, SIZE), YOLK_OK);
    const struct yolk_request request = {
        .opcode = YOLK_READ, .local = q.local, .segment = q.segment, .size = SIZE};
    enum yolk_status verdict;
    uint64_t batch;
    assert_int_equal(yolk_engine_batch_create(q.engine, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(q.engine, batch, &request, 1, &verdict, NULL),
                     YOLK_OK);
    finish(&q, batch);
    const struct yolk_engine_load load = load_of(&q, "loop");
    assert_int_equal(load.bandwidth_bytes, SIZE * UINT64_C(1000));
    yolk_engine_unserve(q.engine, served);
    assert_int_equal(yolk_engine_destroy(q.engine), YOLK_OK);
    pair_close(p);
}

static void the_state_of_breakers_is_shown(void **state)
{
    (void)state;
    struct pair *p = pair_open(2);
    atomic_store(&p->control.dead, 1);
    for (int i = 0; i < 3; i++)
        finish(p, submit(p, YOLK_READ, 1, 0));
    assert_int_equal(load_of(p, "first").breaker, YOLK_BREAKER_OPEN);
    assert_int_equal(load_of(p, "first").errors, 3);
    assert_int_equal(load_of(p, "second").breaker, YOLK_BREAKER_CLOSED);
    assert_true(total_of(p, "yolk_engine_breakers_open") == 1);
    assert_true(total_of(p, "yolk_engine_breakers_opened_total") == 1);
    clock_sim_advance(&p->clock, 1000 * MS);
    assert_int_equal(load_of(p, "first").breaker, YOLK_BREAKER_PROBING);
    atomic_store(&p->control.dead, 0);
    finish(p, submit(p, YOLK_READ, 1, 0));
    assert_int_equal(load_of(p, "first").breaker, YOLK_BREAKER_CLOSED);
    assert_true(total_of(p, "yolk_engine_breakers_open") == 0);
    pair_close(p);
}

static void wait_for_batches(struct pair *p, uint64_t wanted)
{
    struct yolk_engine_stats stats;
    uint64_t limit_ns = clock_after_ms(clock_real_now_ns(), 60000);
    do {
        yolk_engine_stats(p->engine, &stats);
        assert_true(clock_real_now_ns() < limit_ns);
    } while (stats.batches != wanted || stats.quarantined != wanted);
}

static void the_quarantine_is_shown_and_reaped(void **state)
{
    (void)state;
    struct pair *p = pair_open(1);
    p->faults.stuck_permille = 1000;
    uint64_t batch = submit(p, YOLK_READ, 2, 0);
    assert_int_equal(yolk_engine_batch_free(p->engine, batch), YOLK_OK);
    uint32_t pending;
    assert_int_equal(yolk_engine_batch_progress(p->engine, batch, &pending), YOLK_ERR_STALE);
    clock_sim_advance(&p->clock, 3000 * MS);
    assert_true(total_of(p, "yolk_engine_quarantined_batches") == 1);
    assert_true(total_of(p, "yolk_engine_quarantine_oldest_seconds") == 3);
    assert_true(total_of(p, "yolk_engine_batches") == 1);
    p->faults.stuck_permille = 0;
    /* Polls of another batch look at it too, and it stays as long as it is not quiet. */
    finish(p, submit(p, YOLK_READ, 1, 0));
    assert_true(total_of(p, "yolk_engine_quarantined_batches") == 1);
    atomic_store(&p->control.release, 1);
    wait_for_batches(p, 0);
    assert_true(total_of(p, "yolk_engine_quarantined_batches") == 0);
    assert_true(total_of(p, "yolk_engine_quarantined_batches_total") == 1);
    assert_true(total_of(p, "yolk_engine_quarantine_reaped_total") == 1);
    assert_true(total_of(p, "yolk_engine_quarantine_oldest_seconds") == 0);
    pair_close(p);
}

static void an_engine_ends_within_its_limit_and_can_be_asked_again(void **state)
{
    (void)state;
    struct pair *p = pair_open_limited(1, LIMIT_MS);
    p->faults.stuck_permille = 1000;
    (void)submit(p, YOLK_READ, 1, 0);
    yolk_engine_unserve(p->engine, p->served);
    uint64_t begin_ns = clock_real_now_ns();
    assert_int_equal(yolk_engine_destroy(p->engine), YOLK_ERR_BUSY);
    assert_true(clock_real_now_ns() - begin_ns >= LIMIT_MS * MS);
    assert_true(total_of(p, "yolk_engine_quarantined_batches") == 1);
    atomic_store(&p->control.release, 1);
    while (yolk_engine_destroy(p->engine) == YOLK_ERR_BUSY)
        assert_true(clock_real_now_ns() - begin_ns < 60000 * MS);
    free(p);
}

/* Whether files there can be read around the page cache. */
static bool file_takes_direct_reads(const char *path)
{
    void *block;
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    assert_int_equal(posix_memalign(&block, BLOCK, BLOCK), 0);
    bool direct = fd >= 0 && pread(fd, block, BLOCK, 0) == BLOCK;
    free(block);
    if (fd >= 0)
        close(fd);
    return direct;
}

static void read_file(struct yolk_engine *engine, uint64_t segment, void *to)
{
    const struct yolk_request request = {
        .opcode = YOLK_READ, .local = to, .segment = segment, .size = 2 * BLOCK};
    enum yolk_status verdict;
    struct yolk_task_status status;
    uint64_t batch;
    assert_int_equal(yolk_engine_batch_create(engine, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(engine, batch, 0, &status), YOLK_OK);
    assert_int_equal(status.status, YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(engine, batch), YOLK_OK);
}

static void unaligned_bytes_of_files_go_another_way(void **state)
{
    (void)state;
    char path[TEMPORARY_MAX] = "yolk-report-XXXXXX";
    static uint8_t text[2 * BLOCK];
    void *memory;
    int fd = mkstemp(temporary_path(path));
    assert_true(fd >= 0 && write(fd, text, sizeof(text)) == (ssize_t)sizeof(text) &&
                fsync(fd) == 0);
    close(fd);
    assert_int_equal(posix_memalign(&memory, BLOCK, 4 * BLOCK), 0);
    const struct yolk_transport_ops *transports[] = {transport_posix_ops()};
    struct yolk_engine_options options;
    struct pair p = {.engine = NULL};
    uint64_t segment;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    assert_int_equal(yolk_engine_create(&options, &p.engine), YOLK_OK);
    assert_int_equal(yolk_engine_register(p.engine, memory, 4 * BLOCK), YOLK_OK);
    assert_int_equal(yolk_engine_file_open(p.engine, path, 0, &segment, NULL), YOLK_OK);
    static const char DIRECT[] =
        "yolk_engine_path_bytes_total{transport=\"posix\",path=\"direct\"}";
    static const char BOUNCE[] =
        "yolk_engine_path_bytes_total{transport=\"posix\",path=\"bounce\"}";
    read_file(p.engine, segment, memory);
    assert_true(value_of(&p, DIRECT) == 2 * BLOCK);
    assert_true(value_of(&p, BOUNCE) == 0);
    read_file(p.engine, segment, (uint8_t *)memory + 100);
    if (file_takes_direct_reads(path)) {
        assert_true(value_of(&p, DIRECT) == 2 * BLOCK);
        assert_true(value_of(&p, BOUNCE) == 2 * BLOCK);
    } else {
        print_message("%s cannot be read around the page cache: nothing to align\n", path);
        assert_true(value_of(&p, DIRECT) == 4 * BLOCK);
    }
    assert_string_equal(load_of(&p, "posix").device, path);
    assert_int_equal(yolk_engine_segment_close(p.engine, segment), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(p.engine), YOLK_OK);
    free(memory);
    unlink(path);
}

/* The lines of docs/engine-metrics.md: of the counted ones from their table, of the others from
 * what is shown. */
static void the_document_names_every_figure(void **state)
{
    (void)state;
    struct pair *p = pair_open(2);
    struct base_buf rows;
    char *text, *page = calloc(1, 1 << 18);
    base_buf_init(&rows, 1 << 18);
    assert_int_equal(metrics_markdown(&rows), YOLK_OK);
    finish(p, submit(p, YOLK_READ, 1, 0)); /* so that a route has figures */
    assert_int_equal(yolk_engine_metrics(p->engine, &text), YOLK_OK);
    size_t counted = 0;
    for (char *at = strstr(text, "# HELP yolk_"); at != NULL; at = strstr(at + 1, "# HELP yolk_")) {
        char name[96], help[256], type[16], labels[256] = "", *value;
        assert_int_equal(sscanf(at, "# HELP %95s %255[^\n]\n# TYPE %*s %15s\n%*[^{ \n]{%255[^}]",
                                name, help, type, labels) >= 3,
                         true);
        counted++;
        if (strcmp(name, "yolk_engine_path_bytes_total") == 0)
            continue; /* of the table */
        assert_int_equal(base_buf_printf(&rows, "| `%s` | %s | ", name, type), YOLK_OK);
        for (char *label = labels; *label != '\0'; label = value) {
            size_t size = strcspn(label, "=");
            assert_int_equal(
                base_buf_printf(&rows, "%s%.*s", label == labels ? "" : ", ", (int)size, label),
                YOLK_OK);
            value = strchr(label + size + 2, '"') + 1;
            value += *value == ',';
        }
        assert_int_equal(base_buf_printf(&rows, " | %s |\n", help), YOLK_OK);
    }
    assert_true(counted > 20);
    assert_int_equal(base_buf_append(&rows, "", 1), YOLK_OK);
    FILE *file = fopen(YOLK_SOURCE_DIR "/docs/engine-metrics.md", "re");
    assert_non_null(file);
    assert_true(fread(page, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    char *table = strstr(page, "|---|---|---|---|\n");
    assert_non_null(table);
    table += strlen("|---|---|---|---|\n");
    size_t size = strlen((char *)rows.data);
    if (strncmp(table, (char *)rows.data, size) != 0 || table[size] == '|') {
        fputs((char *)rows.data, stderr);
        fail_msg("docs/engine-metrics.md should have these lines");
    }
    free(page);
    free(text);
    base_buf_free(&rows);
    pair_close(p);
}

enum { THREADS = SIZE / BLOCK, ROUNDS = 60 };

struct worker {
    struct pair *pair;
    uint64_t place; /* of a block that is this thread's alone */
    struct thread thread;
    int wrong; /* answers: a thread of its own cannot end the test */
};

static void expect(struct worker *w, enum yolk_status got, enum yolk_status wanted)
{
    w->wrong += got != wanted;
}

static uint64_t submit_halves(struct worker *w)
{
    struct pair *p = w->pair;
    struct yolk_request requests[2];
    enum yolk_status verdicts[2];
    uint64_t batch = 0;
    for (uint64_t i = 0; i < 2; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_WRITE,
                                            .local = p->local + w->place + i * BLOCK / 2,
                                            .segment = p->segment,
                                            .offset = w->place + i * BLOCK / 2,
                                            .size = BLOCK / 2};
    expect(w, yolk_engine_batch_create(p->engine, 2, &batch), YOLK_OK);
    expect(w, yolk_engine_batch_submit(p->engine, batch, requests, 2, verdicts, NULL), YOLK_OK);
    return batch;
}

static void allocate_submit_free(void *arg)
{
    struct worker *w = arg;
    struct yolk_engine *engine = w->pair->engine;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t batch = submit_halves(w);
        uint32_t pending;
        if (i % 2 == 0)
            expect(w, yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
        else if (i % 3 == 0)
            expect(w, yolk_engine_batch_progress(engine, batch, &pending), YOLK_OK);
        expect(w, yolk_engine_batch_free(engine, batch), YOLK_OK);
        expect(w, yolk_engine_batch_progress(engine, batch, &pending), YOLK_ERR_STALE);
    }
}

/* A batch that never becomes quiet keeps no other one from being reclaimed. */
static void c125_one_stuck_batch_and_many_threads(void **state)
{
    (void)state;
    struct pair *p = pair_open(1);
    struct worker workers[THREADS];
    p->faults.stuck_permille = 1000;
    uint64_t stuck = submit(p, YOLK_READ, 1, 0);
    assert_int_equal(yolk_engine_batch_free(p->engine, stuck), YOLK_OK);
    p->faults.stuck_permille = 0;
    p->faults.delay_permille = 300;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.pair = p, .place = (uint64_t)i * BLOCK};
        assert_int_equal(
            thread_start(&workers[i].thread, "batches", allocate_submit_free, &workers[i]),
            YOLK_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        thread_join(&workers[i].thread);
        assert_int_equal(workers[i].wrong, 0);
    }
    wait_for_batches(p, 1);
    struct yolk_engine_stats stats;
    yolk_engine_stats(p->engine, &stats);
    assert_int_equal(stats.quarantined, 1);
    assert_int_equal(stats.tasks_submitted, 1 + THREADS * ROUNDS * 2);
    atomic_store(&p->control.release, 1);
    wait_for_batches(p, 0);
    pair_close(p);
}

/* The slice behind the end of a file is the first to say so. */
static void bytes_before_the_end_arrive_whatever_comes_first(void **state)
{
    (void)state;
    enum { SLICES = 5, LAST = 100 };
    struct rig *r = rig_new(1);
    struct scripted *script = &r->scripts[0];
    script->hold = true;
    script->slice_max = BLOCK;
    r->options.attempts_max = 1;
    rig_open(r);
    uint64_t batch = rig_batch(r, 1);
    const struct yolk_request request = rig_request(r, YOLK_READ, 0, (uint64_t)SLICES * BLOCK);
    rig_submit(r, batch, &request, 1);
    assert_int_equal(scripted_held(script), SLICES);
    assert_true(scripted_end(script, SLICES - 1, YOLK_ERR_EOF, 0));
    assert_false(rig_poll(r, batch, 0).terminal);
    for (uint32_t i = 0; i < SLICES - 2; i++)
        assert_true(scripted_end(script, i, YOLK_OK, UINT64_MAX));
    assert_true(scripted_end(script, SLICES - 2, YOLK_ERR_EOF, LAST));
    rig_expect(r, batch, 0, YOLK_ERR_EOF, (SLICES - 2) * BLOCK + LAST);
    assert_memory_equal(r->local, r->memory, (SLICES - 2) * BLOCK + LAST);
    assert_int_equal(script->canceled, 0);
    rig_free(r, batch);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_count_once_and_bytes_once),
        cmocka_unit_test(a_failover_is_two_attempts_one_failed_of_one_request),
        cmocka_unit_test(a_failed_request_adds_no_bytes),
        cmocka_unit_test(a_missed_deadline_has_its_own_counter),
        cmocka_unit_test(load_shows_what_is_in_flight_and_how_fast_it_was),
        cmocka_unit_test(a_copy_in_submit_takes_its_time),
        cmocka_unit_test(the_state_of_breakers_is_shown),
        cmocka_unit_test(the_quarantine_is_shown_and_reaped),
        cmocka_unit_test(an_engine_ends_within_its_limit_and_can_be_asked_again),
        cmocka_unit_test(unaligned_bytes_of_files_go_another_way),
        cmocka_unit_test(bytes_before_the_end_arrive_whatever_comes_first),
        cmocka_unit_test(the_document_names_every_figure),
        cmocka_unit_test(c125_one_stuck_batch_and_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
