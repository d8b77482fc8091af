/* SPDX-License-Identifier: Apache-2.0 */
/* The closed loop, and the bare loops in turn with it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_transfer_state.h"
#include "transport/file/served.h"
#include "transport/tcp/tcp.h"

enum { GO_BLOCKS_MAX = 4096, COST_BATCHES = 16 };

bool bench_transfer_fits(const struct transfer *t, const struct transfer_case *c)
{
    uint64_t bytes =
        t->segment_bytes < t->options.buffer_bytes ? t->segment_bytes : t->options.buffer_bytes;
    return c->block <= bytes && (uint64_t)c->batch * c->threads <= bytes / c->block;
}

void transfer_draw(struct transfer_worker *w, uint32_t count)
{
    const struct transfer_case *c = w->c;
    uint64_t first = (uint64_t)w->number * w->share, places = w->share / c->block;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t place = i % c->batch;
        if (w->t->options.random) { /* xorshift64 */
            w->drawn ^= w->drawn << 13;
            w->drawn ^= w->drawn >> 7;
            w->drawn ^= w->drawn << 17;
            place = w->drawn % places;
        }
        w->offsets[i] = first + place * c->block;
    }
}

/* ---- a batch of ours ---- */

static enum yolk_status move_batch(struct transfer_worker *w, enum yolk_opcode opcode,
                                   uint8_t *local)
{
    const struct transfer_case *c = w->c;
    struct transfer *t = w->t;
    uint64_t batch;
    struct yolk_task_status last;
    for (uint32_t i = 0; i < c->batch; i++)
        w->requests[i] = (struct yolk_request){.opcode = opcode,
                                               .local = local + i * c->block,
                                               .segment = t->segment,
                                               .offset = w->offsets[i],
                                               .size = c->block};
    enum yolk_status status = yolk_engine_batch_create(t->engine, c->batch, &batch);
    if (status != YOLK_OK)
        return status;
    status = yolk_engine_batch_submit(t->engine, batch, w->requests, c->batch, w->verdicts, NULL);
    if (status == YOLK_OK)
        status = yolk_engine_batch_wait(t->engine, batch, 0);
    /* The others are counted at the end of the turn. */
    if (status == YOLK_OK)
        status = yolk_engine_batch_poll(t->engine, batch, c->batch - 1, &last);
    if (status == YOLK_OK && last.status != YOLK_OK)
        status = base_fail(last.status, 0, "a request over %s: %s", last.transport,
                           yolk_strerror(last.status));
    enum yolk_status freed = yolk_engine_batch_free(t->engine, batch);
    return status == YOLK_OK ? freed : status;
}

static enum yolk_status look(struct transfer_worker *w, const uint8_t *local, uint64_t salt)
{
    for (uint32_t i = 0; i < w->c->batch; i++) {
        uint64_t wrong =
            bench_pattern_check(local + i * w->c->block, w->offsets[i], w->c->block, salt);
        if (wrong < w->c->block)
            return base_fail(YOLK_ERR_CORRUPT, 0, "byte %" PRIu64 " of the target came wrong",
                             w->offsets[i] + wrong);
    }
    return YOLK_OK;
}

/* What is written is read back, and that is what counts for nothing. */
static enum yolk_status check_batch(struct transfer_worker *w, enum yolk_opcode opcode)
{
    uint8_t *local = transfer_local(w);
    if (opcode == YOLK_READ)
        return look(w, local, 0);
    uint8_t *back = local + w->t->options.buffer_bytes;
    enum yolk_status status = move_batch(w, YOLK_READ, back);
    return status == YOLK_OK ? look(w, back, w->salt) : status;
}

static enum yolk_status step_ours(struct transfer_worker *w)
{
    enum transfer_op op = w->t->options.op;
    bool check = w->t->options.check;
    w->writes = op == TRANSFER_WRITE || (op == TRANSFER_MIX && (check || !w->writes));
    enum yolk_opcode opcode = w->writes ? YOLK_WRITE : YOLK_READ;
    uint64_t begun = bench_now_ns();
    transfer_draw(w, w->c->batch);
    if (check && w->writes) {
        w->salt++;
        for (uint32_t i = 0; i < w->c->batch; i++)
            bench_pattern_fill(transfer_local(w) + i * w->c->block, w->offsets[i], w->c->block,
                               w->salt);
        w->apart_ns += bench_now_ns() - begun;
        begun = bench_now_ns();
    }
    enum yolk_status status = move_batch(w, opcode, transfer_local(w));
    uint64_t over = bench_now_ns();
    bench_latency_add(w->latency, over - begun);
    w->blocks += w->c->batch;
    if (status == YOLK_OK && check) {
        status = check_batch(w, opcode);
        w->apart_ns += bench_now_ns() - over;
    }
    return status;
}

/* ---- a turn ---- */

static void work(void *arg)
{
    struct transfer_worker *w = arg;
    (void)pthread_barrier_wait(w->begin);
    uint64_t start = bench_now_ns(), now = start;
    w->blocks = 0;
    w->apart_ns = 0;
    do {
        w->status = w->step(w);
        now = bench_now_ns();
    } while (w->status == YOLK_OK && now < start + w->until_ns + w->apart_ns);
    w->seconds = (double)(now - start - w->apart_ns) / 1e9;
    if (w->status != YOLK_OK)
        snprintf(w->text, sizeof(w->text), "%s", yolk_last_error());
}

struct run {
    struct transfer *t;
    const struct transfer_case *c;
    struct transfer_worker *workers;
};

/* What a turn came to. */
struct rate {
    double bytes_per_s;
    double cpu_s_per_byte; /* of both sides */
};

/* Of all processes of the measurement; those that have no turn sleep. */
static uint64_t processor_ns(const struct transfer *t)
{
    const int pids[] = {getpid(), t->child.pid, t->echoes[0][0].pid, t->echoes[1][0].pid};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
        struct timespec its = {0};
        clockid_t clock;
        if (pids[i] > 0 && clock_getcpuclockid(pids[i], &clock) == 0)
            (void)clock_gettime(clock, &its);
        sum += (uint64_t)its.tv_sec * NS_PER_S + (uint64_t)its.tv_nsec;
    }
    return sum;
}

static enum yolk_status turn(struct run *r, enum yolk_status (*step)(struct transfer_worker *w),
                             uint32_t bare, uint64_t turn_ms, struct rate *out)
{
    uint32_t threads = r->c->threads, started = 0;
    uint64_t processor = processor_ns(r->t);
    pthread_barrier_t begin;
    enum yolk_status status = YOLK_OK;
    if (pthread_barrier_init(&begin, NULL, threads) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "a barrier");
    for (; started < threads && status == YOLK_OK; started++) {
        struct transfer_worker *w = &r->workers[started];
        w->step = step;
        w->bare = bare;
        w->begin = &begin;
        w->until_ns = turn_ms * NS_PER_MS;
        if (started + 1 < threads)
            status = (enum yolk_status)thread_start(&w->thread, "bench-worker", work, w);
    }
    /* The last one is this thread; without all of the others nobody would get past the barrier. */
    if (status != YOLK_OK)
        return status;
    work(&r->workers[threads - 1]);
    double seconds = 0, bytes = 0;
    for (uint32_t i = 0; i < threads; i++) {
        struct transfer_worker *w = &r->workers[i];
        if (i + 1 < threads)
            thread_join(&w->thread);
        if (status == YOLK_OK && w->status != YOLK_OK)
            status = base_fail(w->status, 0, "%s", w->text);
        bytes += (double)w->blocks * (double)r->c->block;
        seconds = w->seconds > seconds ? w->seconds : seconds;
    }
    (void)pthread_barrier_destroy(&begin);
    out->bytes_per_s = bytes / seconds;
    out->cpu_s_per_byte = (double)(processor_ns(r->t) - processor) / 1e9 / bytes;
    return status;
}

static enum yolk_status turn_of_ours(struct run *r, uint64_t turn_ms, struct rate *out)
{
    struct yolk_engine_stats before, after;
    yolk_engine_stats(r->t->engine, &before);
    enum yolk_status status = turn(r, step_ours, 0, turn_ms, out);
    yolk_engine_stats(r->t->engine, &after);
    uint64_t asked = after.tasks_submitted - before.tasks_submitted,
             done = after.tasks_ok - before.tasks_ok;
    if (status == YOLK_OK && asked != done)
        status = base_fail(YOLK_ERR_IO, 0, "%" PRIu64 " of %" PRIu64 " requests failed",
                           asked - done, asked);
    return status;
}

static void medians(const struct rate *turns, uint32_t count, struct rate *out)
{
    double rates[TRANSFER_TURNS_MAX], processor[TRANSFER_TURNS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        rates[i] = turns[i].bytes_per_s;
        processor[i] = turns[i].cpu_s_per_byte;
    }
    out->bytes_per_s = bench_median(rates, count);
    out->cpu_s_per_byte = bench_median(processor, count);
}

static void tell_rates(const struct run *r, const struct rate *ours,
                       const struct rate bare[BARE_MAX][TRANSFER_TURNS_MAX],
                       struct transfer_figures *out)
{
    struct rate median;
    medians(ours, r->c->turns, &median);
    out->bytes_per_s = median.bytes_per_s;
    out->cpu_s_per_gb = median.cpu_s_per_byte * 1e9;
    for (uint32_t b = 0; b < transfer_bare_count(r->t); b++) {
        medians(bare[b], r->c->turns, &median);
        if (out->ceiling_name != NULL && median.bytes_per_s <= out->ceiling_bytes_per_s)
            continue;
        out->ceiling_name = transfer_bare_name(r->t, b);
        out->ceiling_bytes_per_s = median.bytes_per_s;
        out->ceiling_cpu_s_per_gb = median.cpu_s_per_byte * 1e9;
    }
}

static enum yolk_status all_turns(struct run *r, struct transfer_figures *out)
{
    struct rate ours[TRANSFER_TURNS_MAX], bare[BARE_MAX][TRANSFER_TURNS_MAX], ignored;
    uint32_t bare_count = transfer_bare_count(r->t);
    /* One of each to warm up: connections, page tables, memory of batches. */
    enum yolk_status status = turn_of_ours(r, r->c->turn_ms / 4, &ignored);
    for (uint32_t i = 0; i < r->c->threads && status == YOLK_OK; i++)
        memset(r->workers[i].latency, 0, sizeof(*r->workers[i].latency));
    for (uint32_t b = 0; b < bare_count && status == YOLK_OK; b++)
        status = turn(r, transfer_bare_step, b, r->c->turn_ms / 4, &ignored);
    for (uint32_t i = 0; i < r->c->turns && status == YOLK_OK; i++) {
        status = turn_of_ours(r, r->c->turn_ms, &ours[i]);
        for (uint32_t b = 0; b < bare_count && status == YOLK_OK; b++)
            status = turn(r, transfer_bare_step, (b + i) % bare_count, r->c->turn_ms,
                          &bare[(b + i) % bare_count][i]);
    }
    if (status == YOLK_OK)
        tell_rates(r, ours, bare, out);
    return status;
}

/* ---- what it costs beside time ---- */

static enum yolk_status step_alone(void *self)
{
    return step_ours(self);
}

/* Bytes that were copied by somebody's processor on their way, as far as it is known here. */
static double bytes_copied(const struct transfer *t)
{
    struct yolk_engine_stats stats;
    struct file_transport_stats file;
    yolk_engine_stats(t->engine, &stats);
    file_transport_stats(&file);
    double moved = (double)(stats.bytes_read + stats.bytes_written);
    if (t->file != NULL)
        return (double)(file.bytes_bounced + file.bytes_cached);
    if (strcmp(t->options.transport, "null") == 0)
        return 0;
    if (strcmp(t->options.transport, "tcp") != 0)
        return moved;
    /* Into the sender's socket, out of the receiver's, and what small answers take. */
    return 2 * moved + (double)transport_tcp_staged_bytes();
}

static enum yolk_status measure_cost(struct run *r, struct transfer_figures *out)
{
    struct bench_cost cost;
    struct transfer_worker *w = &r->workers[0];
    double copied = bytes_copied(r->t);
    struct yolk_engine_stats before, after;
    yolk_engine_stats(r->t->engine, &before);
    enum yolk_status status = bench_cost(step_alone, w, COST_BATCHES, &cost);
    if (status != YOLK_OK)
        return status;
    yolk_engine_stats(r->t->engine, &after);
    double batch = r->c->batch * (r->t->options.check && w->writes ? 2.0 : 1.0);
    out->system_calls = cost.system_calls / batch;
    out->allocations = cost.allocations / batch;
    out->instructions = cost.instructions / batch;
    memcpy(out->reason, cost.reason, sizeof(out->reason));
    memcpy(out->instructions_reason, cost.instructions_reason, sizeof(out->instructions_reason));
    double delivered = (double)(after.tasks_ok - before.tasks_ok) * (double)r->c->block;
    out->copied = delivered > 0 ? (bytes_copied(r->t) - copied) / delivered : 0;
    return YOLK_OK;
}

static void tell_latency(const struct run *r, struct transfer_figures *out)
{
    struct bench_latency *all = r->workers[0].latency;
    for (uint32_t i = 1; i < r->c->threads; i++)
        bench_latency_merge(all, r->workers[i].latency);
    out->latency_ns = (double)all->sum_ns / (double)all->count;
    out->p50_ns = bench_latency_quantile(all, 0.50);
    out->p99_ns = bench_latency_quantile(all, 0.99);
    out->p999_ns = bench_latency_quantile(all, 0.999);
}

/* ---- a case ---- */

static enum yolk_status make_worker(struct run *r, uint32_t number)
{
    struct transfer_worker *w = &r->workers[number];
    const struct transfer_case *c = r->c;
    uint64_t bytes = r->t->segment_bytes < r->t->options.buffer_bytes ? r->t->segment_bytes
                                                                      : r->t->options.buffer_bytes;
    w->t = r->t;
    w->c = c;
    w->number = number;
    w->share = bytes / c->threads / c->block * c->block;
    w->drawn = (r->t->options.seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + number + 1;
    uint64_t most = w->share / c->block;
    w->offset_count = (uint32_t)(most < GO_BLOCKS_MAX ? most : GO_BLOCKS_MAX);
    if (w->offset_count < c->batch)
        w->offset_count = c->batch;
    w->offsets = calloc(w->offset_count, sizeof(*w->offsets));
    w->requests = calloc(c->batch, sizeof(*w->requests));
    w->verdicts = calloc(c->batch, sizeof(*w->verdicts));
    w->latency = calloc(1, sizeof(*w->latency));
    return w->offsets != NULL && w->requests != NULL && w->verdicts != NULL && w->latency != NULL
               ? YOLK_OK
               : base_fail(YOLK_ERR_NO_MEMORY, 0, "requests of %u blocks", c->batch);
}

enum yolk_status bench_transfer_run(struct transfer *t, const struct transfer_case *c,
                                    struct transfer_figures *out)
{
    struct run r = {.t = t, .c = c, .workers = calloc(c->threads, sizeof(*r.workers))};
    enum yolk_status status = r.workers != NULL
                                  ? transfer_bare_prepare(t, c)
                                  : base_fail(YOLK_ERR_NO_MEMORY, 0, "%u callers", c->threads);
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; r.workers != NULL && i < c->threads && status == YOLK_OK; i++)
        status = make_worker(&r, i);
    if (status == YOLK_OK)
        status = all_turns(&r, out);
    if (status == YOLK_OK) {
        tell_latency(&r, out);
        status = measure_cost(&r, out);
    }
    for (uint32_t i = 0; r.workers != NULL && i < c->threads; i++) {
        free(r.workers[i].offsets);
        free(r.workers[i].requests);
        free(r.workers[i].verdicts);
        free(r.workers[i].latency);
    }
    free(r.workers);
    return status;
}
