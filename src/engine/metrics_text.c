/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of the engine's metrics. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "engine/metrics_table.h"

static const struct metrics_bounds LATENCY = {
    9, {100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000}};
static const struct metrics_bounds SIZE = {11,
                                           {1024, 4096, 16384, 65536, 262144, 1048576, 4194304,
                                            16777216, 67108864, 268435456, 1073741824}};
static const struct metrics_bounds PERMILLE = {
    10, {100, 250, 500, 750, 900, 1000, 1250, 1500, 2000, 5000}};
static const struct metrics_bounds STAGE = {
    10, {10, 50, 100, 500, 1000, 5000, 10000, 50000, 100000, 500000}};

const struct metrics_bounds *metrics_bounds_of(enum metrics_distribution which)
{
    static const struct metrics_bounds *const ALL[METRICS_DISTRIBUTIONS] = {
        &LATENCY, &LATENCY, &SIZE, &SIZE, &PERMILLE, &STAGE, &STAGE, &STAGE};
    return ALL[which];
}

const struct metrics_row metrics_distribution_rows[METRICS_DISTRIBUTIONS] = {
    [METRICS_READ_LATENCY] = {"tent_read_latency_us", "",
                              "time from submit to end of reads that moved all, in microseconds"},
    [METRICS_WRITE_LATENCY] = {"tent_write_latency_us", "",
                               "time from submit to end of writes that moved all, in microseconds"},
    [METRICS_READ_SIZE] = {"tent_read_size_bytes", "", "sizes of reads that moved all"},
    [METRICS_WRITE_SIZE] = {"tent_write_size_bytes", "", "sizes of writes that moved all"},
    [METRICS_DEADLINE] = {"tent_deadline_mlu_permille", "",
                          "time taken by requests with a deadline, in thousandths of the time that "
                          "it left them; over 1000 is too late"},
    [METRICS_QUEUE_WAIT] = {"tent_stage_queue_wait_us", "",
                            "time from submit until it was the request's turn, in microseconds"},
    [METRICS_DISPATCH] = {"tent_stage_dispatch_us", "",
                          "time from then until a transport took it, in microseconds"},
    [METRICS_TRANSPORT] = {"tent_stage_transport_us", "",
                           "time from then to its end, in microseconds"},
};

const struct metrics_row metrics_attempt_latency_row = {
    "tent_transport_attempt_latency_us", "transport, operation",
    "time of one attempt, whatever its end, in microseconds"};

const struct metrics_row metrics_family_rows[METRICS_FAMILIES] = {
    [METRICS_READ_BYTES] = {"tent_read_bytes_total", "transport", "bytes of reads that moved all"},
    [METRICS_WRITE_BYTES] = {"tent_write_bytes_total", "transport",
                             "bytes of writes that moved all"},
    [METRICS_READ_REQUESTS] = {"tent_read_requests_total", "transport",
                               "reads that ended, the failed ones too, by the last transport"},
    [METRICS_WRITE_REQUESTS] = {"tent_write_requests_total", "transport",
                                "writes that ended, the failed ones too, by the last transport"},
    [METRICS_READ_FAILURES] = {"tent_read_failures_total", "transport",
                               "reads that ended before all was moved: failed, canceled, out of "
                               "time, stuck"},
    [METRICS_WRITE_FAILURES] = {"tent_write_failures_total", "transport",
                                "writes that ended before all was moved: failed, canceled, out of "
                                "time, stuck"},
    [METRICS_INFEASIBLE] = {"tent_deadline_infeasible_total", "transport",
                            "requests that ended after their deadline, whole or not"},
    [METRICS_ATTEMPTS] = {"tent_transport_attempts_total", "transport, operation",
                          "times that a request was given to a transport"},
    [METRICS_ATTEMPT_FAILURES] = {"tent_transport_attempt_failures_total", "transport, operation",
                                  "of those, the ones that the transport failed"},
    [METRICS_FAILOVERS] = {"tent_transport_failover_total", "from, to",
                           "requests that went on with another transport"},
    [METRICS_PATH_BYTES] = {"yolk_engine_path_bytes_total", "transport, path",
                            "bytes by their way: direct, staged through host memory, or bounce "
                            "over a page of the transport's for want of alignment"},
};

/* ---- sums over the shards ---- */

struct sums {
    uint64_t counts[METRICS_BOUNDS_MAX + 1];
    uint64_t total;
    uint64_t sum;
};

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)counter, memory_order_relaxed);
}

/* The figure at this offset in each shard. */
static uint64_t over_shards(const struct metrics *metrics, size_t offset)
{
    uint64_t sum = 0;
    for (int i = 0; i < METRICS_SHARDS; i++)
        sum += get((const _Atomic uint64_t *)((const uint8_t *)&metrics->shards[i] + offset));
    return sum;
}

static void histogram_sums(const struct metrics *metrics, size_t offset, struct sums *out)
{
    out->total = 0;
    for (int b = 0; b <= METRICS_BOUNDS_MAX; b++) {
        out->counts[b] = over_shards(metrics, offset + offsetof(struct metrics_histogram, counts) +
                                                  (size_t)b * 8);
        out->total += out->counts[b];
    }
    out->sum = over_shards(metrics, offset + offsetof(struct metrics_histogram, sum));
}

static size_t calls_offset(size_t transport, size_t operation)
{
    return offsetof(struct metrics_shard, transports) +
           transport * sizeof(struct metrics_transport) +
           offsetof(struct metrics_transport, calls) + operation * sizeof(struct metrics_calls);
}

/* ---- the series ---- */

/* Where the texts differ: one series with its labels, one histogram, and what is around a family.
 */
struct printer {
    const struct metrics_view *view;
    struct base_buf *out;
    struct base_json_writer json;
    bool is_json;
    int status;
    const char *family; /* that is being printed */
    double total;       /* of its series */
    struct base_buf by_labels;
};

static void print(struct printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(struct printer *p, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (p->status == YOLK_OK && (size < 0 || (size_t)size >= sizeof(text)))
        p->status = YOLK_ERR_TOO_LARGE;
    if (p->status == YOLK_OK)
        p->status = base_buf_append(p->out, text, (size_t)size);
}

/* Whole numbers in full. */
static void format_value(char *out, size_t size, double value)
{
    if (value >= 0 && value < 9007199254740992.0 && value == (double)(uint64_t)value)
        snprintf(out, size, "%" PRIu64, (uint64_t)value);
    else
        snprintf(out, size, "%.9g", value);
    for (char *c = out; *c != '\0'; c++)
        if (*c == ',') /* of the host's language */
            *c = '.';
}

static void begin_family(struct printer *p, const char *name, const char *help, const char *type)
{
    p->family = name;
    p->total = 0;
    base_buf_clear(&p->by_labels);
    if (!p->is_json)
        print(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void series(struct printer *p, const char *labels, double value)
{
    char text[40];
    format_value(text, sizeof(text), value);
    p->total += value;
    if (!p->is_json) {
        print(p, labels[0] != '\0' ? "%s{%s} %s\n" : "%s%s %s\n", p->family, labels, text);
        return;
    }
    if (labels[0] == '\0')
        return;
    struct base_json_writer w = {.out = &p->by_labels, .status = p->status};
    base_json_raw(&w, "%s", p->by_labels.size > 0 ? "," : "");
    base_json_string(&w, labels, strlen(labels));
    base_json_raw(&w, ":%s", text);
    p->status = w.status;
}

static void end_family(struct printer *p)
{
    if (!p->is_json)
        return;
    char text[40];
    format_value(text, sizeof(text), p->total);
    base_json_name(&p->json, p->family);
    base_json_raw(&p->json, "%s", text);
    if (p->by_labels.size == 0)
        return;
    char name[128];
    snprintf(name, sizeof(name), "%s_by", p->family);
    base_json_name(&p->json, name);
    base_json_raw(&p->json, "{");
    if (p->json.status == YOLK_OK)
        p->json.status = base_buf_append(p->out, p->by_labels.data, p->by_labels.size);
    base_json_raw(&p->json, "}");
}

static void histogram_json(struct printer *p, const char *name, const struct metrics_bounds *bounds,
                           const struct sums *sums)
{
    base_json_name(&p->json, name);
    base_json_open(&p->json, '{');
    base_json_number(&p->json, "count", sums->total);
    base_json_number(&p->json, "sum", sums->sum);
    base_json_name(&p->json, "buckets");
    base_json_open(&p->json, '{');
    for (uint32_t b = 0; b < bounds->count; b++) {
        char bound[24];
        snprintf(bound, sizeof(bound), "%" PRIu64, bounds->at[b]);
        base_json_number(&p->json, bound, sums->counts[b]);
    }
    base_json_close(&p->json, '}');
    base_json_close(&p->json, '}');
}

/* labels: "" or with a comma behind. */
static void histogram_text(struct printer *p, const char *name, const char *labels,
                           const struct metrics_bounds *bounds, const struct sums *sums)
{
    uint64_t below = 0;
    for (uint32_t b = 0; b < bounds->count; b++) {
        below += sums->counts[b];
        print(p, "%s_bucket{%sle=\"%" PRIu64 "\"} %" PRIu64 "\n", name, labels, bounds->at[b],
              below);
    }
    print(p, "%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, sums->total);
    int size = (int)strlen(labels);
    const char *open = size > 0 ? "{" : "", *close = size > 0 ? "}" : "";
    size -= size > 0;
    print(p, "%s_sum%s%.*s%s %" PRIu64 "\n", name, open, size, labels, close, sums->sum);
    print(p, "%s_count%s%.*s%s %" PRIu64 "\n", name, open, size, labels, close, sums->total);
}

static const char *const OPERATIONS[METRICS_OPERATIONS] = {"read", "write"};
static const char *const PATHS[METRICS_PATHS] = {"direct", "staged", "bounce"};

static void attempt_histograms(struct printer *p)
{
    const struct metrics_row *row = &metrics_attempt_latency_row;
    struct sums all = {0};
    if (!p->is_json)
        print(p, "# HELP %s %s\n# TYPE %s histogram\n", row->name, row->help, row->name);
    for (size_t t = 0; t < METRICS_NO_TRANSPORT; t++) {
        for (size_t o = 0; o < METRICS_OPERATIONS && p->view->names[t] != NULL; o++) {
            struct sums sums;
            char labels[96];
            histogram_sums(p->view->metrics,
                           calls_offset(t, o) + offsetof(struct metrics_calls, attempt_latency),
                           &sums);
            snprintf(labels, sizeof(labels), "transport=\"%s\",operation=\"%s\",",
                     p->view->names[t], OPERATIONS[o]);
            if (!p->is_json)
                histogram_text(p, row->name, labels, &LATENCY, &sums);
            for (int b = 0; b <= METRICS_BOUNDS_MAX; b++)
                all.counts[b] += sums.counts[b];
            all.total += sums.total;
            all.sum += sums.sum;
        }
    }
    if (p->is_json)
        histogram_json(p, row->name, &LATENCY, &all);
}

static void histograms(struct printer *p)
{
    for (int i = 0; i < METRICS_DISTRIBUTIONS; i++) {
        const struct metrics_row *row = &metrics_distribution_rows[i];
        struct sums sums;
        histogram_sums(p->view->metrics,
                       offsetof(struct metrics_shard, distributions) +
                           (size_t)i * sizeof(struct metrics_histogram),
                       &sums);
        if (p->is_json) {
            histogram_json(p, row->name, metrics_bounds_of(i), &sums);
        } else {
            print(p, "# HELP %s %s\n# TYPE %s histogram\n", row->name, row->help, row->name);
            histogram_text(p, row->name, "", metrics_bounds_of(i), &sums);
        }
    }
    attempt_histograms(p);
}

/* A figure of each transport's calls of one operation. */
static void by_transport(struct printer *p, size_t operation, size_t member)
{
    for (size_t t = 0; t < METRICS_TRANSPORTS; t++) {
        char labels[64];
        if (p->view->names[t] == NULL)
            continue;
        snprintf(labels, sizeof(labels), "transport=\"%s\"", p->view->names[t]);
        series(p, labels,
               (double)over_shards(p->view->metrics, calls_offset(t, operation) + member));
    }
}

static void by_operation(struct printer *p, size_t member)
{
    for (size_t t = 0; t < METRICS_NO_TRANSPORT; t++) {
        for (size_t o = 0; o < METRICS_OPERATIONS && p->view->names[t] != NULL; o++) {
            char labels[96];
            snprintf(labels, sizeof(labels), "transport=\"%s\",operation=\"%s\"", p->view->names[t],
                     OPERATIONS[o]);
            series(p, labels, (double)over_shards(p->view->metrics, calls_offset(t, o) + member));
        }
    }
}

static void infeasible(struct printer *p)
{
    for (size_t t = 0; t < METRICS_TRANSPORTS; t++) {
        char labels[64];
        if (p->view->names[t] == NULL)
            continue;
        snprintf(labels, sizeof(labels), "transport=\"%s\"", p->view->names[t]);
        series(p, labels,
               (double)over_shards(p->view->metrics,
                                   offsetof(struct metrics_shard, transports) +
                                       t * sizeof(struct metrics_transport) +
                                       offsetof(struct metrics_transport, infeasible)));
    }
}

static void paths(struct printer *p)
{
    for (size_t t = 0; t < METRICS_NO_TRANSPORT; t++) {
        for (size_t path = 0; path < METRICS_PATHS && p->view->names[t] != NULL; path++) {
            char labels[96];
            snprintf(labels, sizeof(labels), "transport=\"%s\",path=\"%s\"", p->view->names[t],
                     PATHS[path]);
            series(p, labels,
                   (double)over_shards(p->view->metrics,
                                       offsetof(struct metrics_shard, transports) +
                                           t * sizeof(struct metrics_transport) +
                                           offsetof(struct metrics_transport, paths) + path * 8));
        }
    }
}

static void failovers(struct printer *p)
{
    for (size_t from = 0; from < METRICS_NO_TRANSPORT; from++) {
        for (size_t to = 0; to < METRICS_NO_TRANSPORT; to++) {
            char labels[96];
            if (p->view->names[from] == NULL || p->view->names[to] == NULL || from == to)
                continue;
            snprintf(labels, sizeof(labels), "from=\"%s\",to=\"%s\"", p->view->names[from],
                     p->view->names[to]);
            series(p, labels, (double)get(&p->view->metrics->failovers[from][to]));
        }
    }
}

static void families(struct printer *p)
{
    static const size_t MEMBERS[] = {offsetof(struct metrics_calls, bytes),
                                     offsetof(struct metrics_calls, requests),
                                     offsetof(struct metrics_calls, failures)};
    for (int f = 0; f < METRICS_FAMILIES; f++) {
        const struct metrics_row *row = &metrics_family_rows[f];
        begin_family(p, row->name, row->help, "counter");
        if (f <= METRICS_WRITE_FAILURES)
            by_transport(p, (size_t)f % 2, MEMBERS[f / 2]);
        else if (f == METRICS_INFEASIBLE)
            infeasible(p);
        else if (f == METRICS_FAILOVERS)
            failovers(p);
        else if (f == METRICS_PATH_BYTES)
            paths(p);
        else
            by_operation(p, f == METRICS_ATTEMPTS
                                ? offsetof(struct metrics_calls, attempts)
                                : offsetof(struct metrics_calls, attempt_failures));
        end_family(p);
    }
}

static void gauges(struct printer *p)
{
    for (size_t i = 0; i < p->view->gauge_count; i++) {
        const struct metrics_gauge *gauge = &p->view->gauges[i];
        if (i == 0 || strcmp(gauge->name, gauge[-1].name) != 0)
            begin_family(p, gauge->name, gauge->help, gauge->counter ? "counter" : "gauge");
        series(p, gauge->labels, gauge->value);
        if (i + 1 == p->view->gauge_count || strcmp(gauge->name, gauge[1].name) != 0)
            end_family(p);
    }
}

int metrics_prometheus(const struct metrics_view *view, struct base_buf *out)
{
    struct printer p = {.view = view, .out = out};
    families(&p);
    histograms(&p);
    gauges(&p);
    return p.status;
}

int metrics_json(const struct metrics_view *view, struct base_buf *out)
{
    struct printer p = {.view = view, .out = out, .is_json = true, .json = {.out = out}};
    base_buf_init(&p.by_labels, out->maximum);
    base_json_open(&p.json, '{');
    families(&p);
    histograms(&p);
    gauges(&p);
    base_json_close(&p.json, '}');
    base_buf_free(&p.by_labels);
    int status = p.status != YOLK_OK ? p.status : p.json.status;
    return status == YOLK_OK ? base_buf_append(out, "\n", 1) : status;
}

/* ---- for people ---- */

static void format_bytes(char *out, size_t size, uint64_t bytes)
{
    static const struct {
        double from;
        const char *unit;
    } UNITS[] = {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}};
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
        if ((double)bytes >= UNITS[i].from) {
            snprintf(out, size, "%.2f %s", (double)bytes / UNITS[i].from, UNITS[i].unit);
            return;
        }
    }
    snprintf(out, size, "%" PRIu64 " B", bytes);
}

int metrics_summary(const struct metrics_view *view, struct base_buf *out)
{
    uint64_t sums[METRICS_OPERATIONS][3] = {{0}};
    static const size_t MEMBERS[] = {offsetof(struct metrics_calls, bytes),
                                     offsetof(struct metrics_calls, requests),
                                     offsetof(struct metrics_calls, failures)};
    for (size_t o = 0; o < METRICS_OPERATIONS; o++)
        for (size_t m = 0; m < 3; m++)
            for (size_t t = 0; t < METRICS_TRANSPORTS; t++)
                sums[o][m] += over_shards(view->metrics, calls_offset(t, o) + MEMBERS[m]);
    char read[32], written[32];
    format_bytes(read, sizeof(read), sums[METRICS_READ][0]);
    format_bytes(written, sizeof(written), sums[METRICS_WRITE][0]);
    return base_buf_printf(out,
                           "Read: %s (%" PRIu64 " reqs, %" PRIu64 " fails) | Write: %s (%" PRIu64
                           " reqs, %" PRIu64 " fails)\n",
                           read, sums[METRICS_READ][1], sums[METRICS_READ][2], written,
                           sums[METRICS_WRITE][1], sums[METRICS_WRITE][2]);
}

void metrics_escape(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (; *text != '\0' && used + 2 < size; text++) {
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        out[used++] = (unsigned char)*text < ' ' ? '?' : *text;
    }
    out[used] = '\0';
}

static int markdown_row(struct base_buf *out, const struct metrics_row *row,
                        const struct metrics_bounds *bounds)
{
    int status = base_buf_printf(out, "| `%s` | %s | %s | %s", row->name,
                                 bounds != NULL ? "histogram" : "counter", row->labels, row->help);
    for (uint32_t b = 0; status == YOLK_OK && bounds != NULL && b < bounds->count; b++)
        status = base_buf_printf(out, "%s%" PRIu64, b == 0 ? "; bounds " : ", ", bounds->at[b]);
    return status == YOLK_OK ? base_buf_printf(out, " |\n") : status;
}

int metrics_markdown(struct base_buf *out)
{
    int status = YOLK_OK;
    for (int f = 0; f < METRICS_FAMILIES && status == YOLK_OK; f++)
        status = markdown_row(out, &metrics_family_rows[f], NULL);
    for (int i = 0; i < METRICS_DISTRIBUTIONS && status == YOLK_OK; i++)
        status = markdown_row(out, &metrics_distribution_rows[i], metrics_bounds_of(i));
    return status == YOLK_OK ? markdown_row(out, &metrics_attempt_latency_row, &LATENCY) : status;
}
