/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "engine/metrics.h"
#include "platform/thread.h"

enum { RDMA = 0, TCP = 1 };
#define US UINT64_C(1000)

static struct metrics *metrics;
static struct metrics_run run;

static int set_up(void **state)
{
    (void)state;
    metrics = aligned_alloc(64, sizeof(*metrics));
    assert_non_null(metrics);
    memset(metrics, 0, sizeof(*metrics));
    run = (struct metrics_run){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(metrics);
    return 0;
}

static struct metrics_view view(void)
{
    struct metrics_view v = {.metrics = metrics};
    v.names[RDMA] = "rdma";
    v.names[TCP] = "tcp";
    v.names[METRICS_NO_TRANSPORT] = "none";
    return v;
}

static char *text_of(int (*write)(const struct metrics_view *, struct base_buf *))
{
    struct metrics_view v = view();
    struct base_buf out;
    base_buf_init(&out, 1 << 20);
    assert_int_equal(write(&v, &out), YOLK_OK);
    assert_int_equal(base_buf_append(&out, "", 1), YOLK_OK);
    return (char *)out.data;
}

/* The value of one series as it is printed: of "name{labels}". */
static double prometheus(const char *series)
{
    char *text = text_of(metrics_prometheus);
    char line[256];
    snprintf(line, sizeof(line), "\n%s ", series);
    const char *found = strstr(text, line);
    if (found == NULL)
        fail_msg("no series %s in\n%s", series, text);
    double value = strtod(found + strlen(line), NULL);
    free(text);
    return value;
}

static double json_number(const char *name, const char *inside, const char *deeper)
{
    char *text = text_of(metrics_json);
    struct base_json *json;
    assert_int_equal(base_json_parse("metrics", text, strlen(text), &json), YOLK_OK);
    const struct base_json *v = base_json_member(json, name);
    if (inside != NULL && v != NULL)
        v = base_json_member(v, inside);
    if (deeper != NULL && v != NULL)
        v = base_json_member(v, deeper);
    if (v == NULL || v->type != BASE_JSON_NUMBER)
        fail_msg("no number %s/%s/%s in %s", name, inside ? inside : "", deeper ? deeper : "",
                 text);
    double value = strtod(v->text, NULL);
    base_json_free(json);
    free(text);
    return value;
}

static void end_one(struct metrics_request request)
{
    metrics_requests_over(&metrics->shards[0], &run, &request, 1);
}

static void show(void)
{
    metrics_run_end(&metrics->shards[0], &run);
}

static void bytes_and_latency_count_once_for_a_request(void **state)
{
    (void)state;
    metrics_attempts(&metrics->shards[0], TCP, METRICS_READ, 1);
    end_one((struct metrics_request){.operation = METRICS_READ,
                                     .transport = TCP,
                                     .size = 5000,
                                     .latency_ns = 700 * US,
                                     .queue_ns = 20 * US,
                                     .dispatch_ns = 8 * US,
                                     .transport_ns = 672 * US,
                                     .attempt_ns = 672 * US});
    show();
    show(); /* what is shown is not counted again */
    assert_true(prometheus("tent_read_bytes_total{transport=\"tcp\"}") == 5000);
    assert_true(prometheus("tent_read_requests_total{transport=\"tcp\"}") == 1);
    assert_true(prometheus("tent_read_failures_total{transport=\"tcp\"}") == 0);
    assert_true(prometheus("tent_write_bytes_total{transport=\"tcp\"}") == 0);
    assert_true(prometheus("tent_read_latency_us_bucket{le=\"500\"}") == 0);
    assert_true(prometheus("tent_read_latency_us_bucket{le=\"1000\"}") == 1);
    assert_true(prometheus("tent_read_latency_us_bucket{le=\"1000000\"}") == 1);
    assert_true(prometheus("tent_read_latency_us_bucket{le=\"+Inf\"}") == 1);
    assert_true(prometheus("tent_read_latency_us_sum") == 700);
    assert_true(prometheus("tent_read_latency_us_count") == 1);
    assert_true(prometheus("tent_read_size_bytes_bucket{le=\"4096\"}") == 0);
    assert_true(prometheus("tent_read_size_bytes_bucket{le=\"16384\"}") == 1);
    assert_true(prometheus("tent_stage_queue_wait_us_bucket{le=\"10\"}") == 0);
    assert_true(prometheus("tent_stage_queue_wait_us_bucket{le=\"50\"}") == 1);
    assert_true(prometheus("tent_stage_dispatch_us_bucket{le=\"10\"}") == 1);
    assert_true(prometheus("tent_stage_transport_us_bucket{le=\"500\"}") == 0);
    assert_true(prometheus("tent_stage_transport_us_bucket{le=\"1000\"}") == 1);
    assert_true(prometheus("tent_transport_attempts_total{transport=\"tcp\",operation=\"read\"}") ==
                1);
    assert_true(prometheus("tent_transport_attempt_latency_us_count{transport=\"tcp\",operation="
                           "\"read\"}") == 1);
}

static void a_failover_is_two_attempts_of_one_request(void **state)
{
    (void)state;
    metrics_attempts(&metrics->shards[0], RDMA, METRICS_WRITE, 1);
    metrics_attempt_failed(&metrics->shards[0], RDMA, METRICS_WRITE, 90 * US);
    metrics_failover(metrics, RDMA, TCP);
    metrics_attempts(&metrics->shards[0], TCP, METRICS_WRITE, 1);
    end_one((struct metrics_request){.operation = METRICS_WRITE,
                                     .transport = TCP,
                                     .size = 64,
                                     .latency_ns = 300 * US,
                                     .attempt_ns = 150 * US});
    show();
    assert_true(json_number("tent_transport_attempts_total", NULL, NULL) == 2);
    assert_true(json_number("tent_transport_attempt_failures_total", NULL, NULL) == 1);
    assert_true(json_number("tent_write_requests_total", NULL, NULL) == 1);
    assert_true(json_number("tent_write_failures_total", NULL, NULL) == 0);
    assert_true(prometheus("tent_transport_failover_total{from=\"rdma\",to=\"tcp\"}") == 1);
    assert_true(prometheus("tent_transport_failover_total{from=\"tcp\",to=\"rdma\"}") == 0);
    assert_true(prometheus("tent_transport_attempt_failures_total{transport=\"rdma\",operation="
                           "\"write\"}") == 1);
    assert_true(prometheus("tent_transport_attempt_latency_us_bucket{transport=\"rdma\","
                           "operation=\"write\",le=\"100\"}") == 1);
    assert_true(prometheus("tent_transport_attempt_latency_us_bucket{transport=\"tcp\","
                           "operation=\"write\",le=\"100\"}") == 0);
}

static void a_failed_request_adds_no_bytes(void **state)
{
    (void)state;
    metrics_attempts(&metrics->shards[0], TCP, METRICS_READ, 1);
    metrics_attempt_failed(&metrics->shards[0], TCP, METRICS_READ, 0);
    end_one((struct metrics_request){.operation = METRICS_READ,
                                     .transport = TCP,
                                     .failed = true,
                                     .size = 1 << 20,
                                     .latency_ns = 5 * US});
    end_one((struct metrics_request){
        .operation = METRICS_READ, .transport = METRICS_NO_TRANSPORT, .failed = true, .size = 77});
    show();
    assert_true(json_number("tent_read_bytes_total", NULL, NULL) == 0);
    assert_true(json_number("tent_read_requests_total", NULL, NULL) == 2);
    assert_true(json_number("tent_read_failures_total", NULL, NULL) == 2);
    assert_true(json_number("tent_read_latency_us", "count", NULL) == 0);
    assert_true(json_number("tent_read_size_bytes", "count", NULL) == 0);
    assert_true(prometheus("tent_read_failures_total{transport=\"none\"}") == 1);
    assert_true(prometheus("tent_transport_attempt_failures_total{transport=\"tcp\",operation="
                           "\"read\"}") == 1);
}

static void deadlines_have_their_own_figures_also_when_it_failed(void **state)
{
    (void)state;
    /* Half of the time, all of it, and three times as long. */
    const struct metrics_request half = {
        .transport = TCP, .size = 1, .latency_ns = 500 * US, .window_ns = 1000 * US};
    struct metrics_request all = half, late = half;
    all.latency_ns = 1000 * US;
    late.latency_ns = 3000 * US;
    late.failed = true;
    end_one(half);
    end_one(all);
    end_one(late);
    end_one((struct metrics_request){.transport = TCP, .latency_ns = 9999 * US});
    show();
    assert_true(json_number("tent_deadline_mlu_permille", "count", NULL) == 3);
    assert_true(json_number("tent_deadline_mlu_permille", "sum", NULL) == 500 + 1000 + 3000);
    assert_true(prometheus("tent_deadline_mlu_permille_bucket{le=\"250\"}") == 0);
    assert_true(prometheus("tent_deadline_mlu_permille_bucket{le=\"500\"}") == 1);
    assert_true(prometheus("tent_deadline_mlu_permille_bucket{le=\"1000\"}") == 2);
    assert_true(prometheus("tent_deadline_mlu_permille_bucket{le=\"5000\"}") == 3);
    assert_true(prometheus("tent_deadline_infeasible_total{transport=\"tcp\"}") == 1);
}

static void zeros_are_shown(void **state)
{
    (void)state;
    static const char *const SERIES[] = {
        "tent_read_bytes_total{transport=\"rdma\"}",
        "tent_write_failures_total{transport=\"none\"}",
        "tent_transport_attempts_total{transport=\"rdma\",operation=\"write\"}",
        "tent_deadline_infeasible_total{transport=\"tcp\"}",
        "tent_transport_failover_total{from=\"rdma\",to=\"tcp\"}",
        "tent_read_latency_us_bucket{le=\"100\"}",
        "tent_read_latency_us_count",
        "tent_stage_transport_us_sum",
        "yolk_engine_path_bytes_total{transport=\"tcp\",path=\"bounce\"}",
    };
    for (size_t i = 0; i < sizeof(SERIES) / sizeof(SERIES[0]); i++)
        assert_true(prometheus(SERIES[i]) == 0);
    assert_true(json_number("tent_write_latency_us", "buckets", "1000000") == 0);
    assert_true(json_number("tent_write_bytes_total", NULL, NULL) == 0);
}

/* The bounds as TENT documents them, and that both texts say the same of each. */
static void both_texts_agree_on_every_bound(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t bounds[12];
    } ROWS[] = {
        {"tent_read_latency_us", {100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000}},
        {"tent_write_latency_us", {100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000}},
        {"tent_read_size_bytes",
         {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28,
          1 << 30}},
        {"tent_write_size_bytes",
         {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28,
          1 << 30}},
        {"tent_deadline_mlu_permille", {100, 250, 500, 750, 900, 1000, 1250, 1500, 2000, 5000}},
        {"tent_stage_queue_wait_us", {10, 50, 100, 500, 1000, 5000, 10000, 50000, 100000, 500000}},
        {"tent_stage_dispatch_us", {10, 50, 100, 500, 1000, 5000, 10000, 50000, 100000, 500000}},
        {"tent_stage_transport_us", {10, 50, 100, 500, 1000, 5000, 10000, 50000, 100000, 500000}},
    };
    /* One request at each bound and one beyond it, of both operations. */
    for (size_t o = 0; o < 2; o++)
        for (size_t i = 0; i < 24; i++)
            end_one((struct metrics_request){.operation = o,
                                             .transport = RDMA,
                                             .size = (UINT64_C(1) << (10 + i)) + i % 2,
                                             .latency_ns = (UINT64_C(50) << i) * US,
                                             .queue_ns = (UINT64_C(5) << i) * US,
                                             .dispatch_ns = (UINT64_C(6) << i) * US,
                                             .transport_ns = (UINT64_C(7) << i) * US,
                                             .window_ns = 1000 * US});
    show();
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        double below = 0;
        for (size_t b = 0; ROWS[i].bounds[b] != 0; b++) {
            char series[160], bound[24];
            snprintf(bound, sizeof(bound), "%llu", (unsigned long long)ROWS[i].bounds[b]);
            snprintf(series, sizeof(series), "%s_bucket{le=\"%s\"}", ROWS[i].name, bound);
            below += json_number(ROWS[i].name, "buckets", bound);
            assert_true(prometheus(series) == below);
        }
        char count[96];
        snprintf(count, sizeof(count), "%s_count", ROWS[i].name);
        assert_true(prometheus(count) == json_number(ROWS[i].name, "count", NULL));
        assert_true(prometheus(count) > below);
    }
}

/* Requests counted together give what they give one by one, in whatever order they end. */
static void runs_of_requests_lose_nothing(void **state)
{
    (void)state;
    uint64_t bytes[2] = {0}, failed[2] = {0};
    for (uint64_t i = 0; i < 1000; i++) {
        struct metrics_request request = {.operation = i / 7 % 2,
                                          .transport = i / 11 % 2 ? RDMA : TCP,
                                          .failed = i % 13 == 0,
                                          .size = 100 + i % 3,
                                          .latency_ns = i * US,
                                          .transport_ns = i * US};
        bytes[request.operation] += request.failed ? 0 : request.size;
        failed[request.operation] += request.failed;
        metrics_requests_over(&metrics->shards[i / 100 % METRICS_SHARDS], &run, &request, 1);
        if (i % 100 == 99)
            metrics_run_end(&metrics->shards[i / 100 % METRICS_SHARDS], &run);
    }
    assert_true(json_number("tent_read_bytes_total", NULL, NULL) == (double)bytes[0]);
    assert_true(json_number("tent_write_bytes_total", NULL, NULL) == (double)bytes[1]);
    assert_true(json_number("tent_read_failures_total", NULL, NULL) == (double)failed[0]);
    assert_true(json_number("tent_read_requests_total", NULL, NULL) +
                    json_number("tent_write_requests_total", NULL, NULL) ==
                1000);
    assert_true(json_number("tent_read_bytes_total_by", "transport=\"rdma\"", NULL) +
                    json_number("tent_read_bytes_total_by", "transport=\"tcp\"", NULL) ==
                (double)bytes[0]);
}

static void the_summary_is_one_line_as_tent_writes_it(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        end_one((struct metrics_request){.transport = TCP, .size = 500000000});
    end_one((struct metrics_request){.operation = METRICS_WRITE, .transport = TCP, .size = 999});
    end_one((struct metrics_request){.operation = METRICS_WRITE, .transport = TCP, .failed = true});
    show();
    char *text = text_of(metrics_summary);
    assert_string_equal(text, "Read: 1.50 GB (3 reqs, 0 fails) | Write: 999 B (2 reqs, 1 fails)\n");
    free(text);
}

static void labels_are_escaped(void **state)
{
    (void)state;
    char out[16];
    metrics_escape("a\"b\\c\n", out, sizeof(out));
    assert_string_equal(out, "a\\\"b\\\\c?");
    metrics_escape("0123456789abcdefgh", out, sizeof(out));
    assert_true(strlen(out) < sizeof(out));
    assert_memory_equal(out, "0123456789", 10);
}

enum { THREADS = 4, ROUNDS = 2000 };

static void count_much(void *arg)
{
    struct metrics_run own = {0};
    for (int i = 0; i < ROUNDS; i++) {
        const struct metrics_request request = {.transport = TCP, .size = (uint64_t)(i % 2)};
        metrics_requests_over(arg, &own, &request, 1);
        if (i % 8 == 7)
            metrics_run_end(arg, &own);
    }
    metrics_run_end(arg, &own);
}

static void threads_may_share_a_shard(void **state)
{
    (void)state;
    struct thread threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], "count", count_much, &metrics->shards[i / 2]),
                         YOLK_OK);
    free(text_of(metrics_json)); /* looking meanwhile harms nobody */
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    assert_true(json_number("tent_read_requests_total", NULL, NULL) == THREADS * ROUNDS);
    assert_true(json_number("tent_read_bytes_total", NULL, NULL) == THREADS * ROUNDS / 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(bytes_and_latency_count_once_for_a_request),
        TEST(a_failover_is_two_attempts_of_one_request),
        TEST(a_failed_request_adds_no_bytes),
        TEST(deadlines_have_their_own_figures_also_when_it_failed),
        TEST(zeros_are_shown),
        TEST(both_texts_agree_on_every_bound),
        TEST(runs_of_requests_lose_nothing),
        TEST(the_summary_is_one_line_as_tent_writes_it),
        cmocka_unit_test(labels_are_escaped),
        TEST(threads_may_share_a_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
