/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench large`: what a node with much memory does to others when it comes and goes. It mounts
 * its segment while another client reads and a process sleeps and wakes; then it closes, or is
 * killed. Once with the pages shm has, once with transparent ones of 2 MiB. The one that measures
 * opens no store and has no threads, so that it may fork at any time. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "platform/memory.h"
#include "platform/thread.h"

enum { SESSION_TTL_MS = 2000, TIMEOUT_MS = 300000, NAP_NS = 2000000, VALUE_BYTES = 4096 };
enum { CORES_PROMISED = 16 };
#define FULL_BYTES  (64 * GIB)
#define QUICK_BYTES (1 * GIB)

/* Seen by all of the processes. */
struct shared {
    _Atomic uint64_t call_worst_ns, calls, failed; /* of the client that reads */
    _Atomic uint64_t nap_worst_ns;                 /* how late the sleeper was woken */
    _Atomic uint64_t open_ns, close_ns;            /* of the large node */
    _Atomic uint64_t huge_bytes;                   /* of its pages, those of 2 MiB */
    _Atomic uint64_t expired;                      /* sessions, as the master counts them */
};

struct large {
    struct shared *shared;
    struct bench_cluster cluster;
    struct bench_child reader, sleeper;
    uint64_t bytes;
    const char *transport; /* of the large node */
};

/* ---- the processes ---- */
static void worst(_Atomic uint64_t *figure, uint64_t ns)
{
    uint64_t before = *figure;
    while (ns > before && !atomic_compare_exchange_weak(figure, &before, ns))
        ;
}

static enum yolk_status run_sleeper(void *self, int stop_fd, int word_fd)
{
    struct large *large = self;
    const struct timespec nap = {0, NAP_NS};
    bench_child_say(word_fd, YOLK_OK, "");
    while (bench_child_is_wanted(stop_fd)) {
        uint64_t start = bench_now_ns();
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
        uint64_t took = bench_now_ns() - start;
        worst(&large->shared->nap_worst_ns, took > NAP_NS ? took - NAP_NS : 0);
    }
    return YOLK_OK;
}

static uint64_t figure_of(const char *text, const char *name)
{
    const char *at = text != NULL ? strstr(text, name) : NULL;
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static enum yolk_status read_on(struct large *large, struct yolk_store *store, int stop_fd)
{
    struct shared *shared = large->shared;
    static uint8_t value[VALUE_BYTES];
    const struct timespec pause = {0, NAP_NS / 4};
    struct yolk_slice slice = {value, sizeof(value)};
    struct yolk_kv kv = {.key = "v0", .key_size = 2, .slices = &slice, .slice_count = 1};
    char *text = NULL;
    while (bench_child_is_wanted(stop_fd)) {
        uint64_t start = bench_now_ns();
        shared->failed += yolk_store_get(store, &kv, 1) != YOLK_OK || kv.result != VALUE_BYTES;
        worst(&shared->call_worst_ns, bench_now_ns() - start);
        shared->calls++;
        if (shared->calls % 256 == 0 && yolk_store_stat(store, &text) == YOLK_OK) {
            shared->expired = figure_of(text, "\nsessions_expired_total ");
            free(text);
        }
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
    return yolk_store_close(store);
}

static enum yolk_status open_store(const struct large *large, struct yolk_store **out,
                                   uint64_t segment_bytes, const char *transport)
{
    struct yolk_store_options options;
    yolk_store_options_init(&options);
    options.master = large->cluster.address;
    options.name = segment_bytes > 0 ? "bench-large" : "bench-reader";
    options.segment_size_bytes = segment_bytes;
    options.transport = transport;
    options.timeout_ms = TIMEOUT_MS;
    options.drain_grace_ms = 0;
    return yolk_store_open(&options, out);
}

static enum yolk_status run_reader(void *self, int stop_fd, int word_fd)
{
    struct yolk_store *store = NULL;
    enum yolk_status status = open_store(self, &store, 0, NULL);
    if (status == YOLK_OK)
        status = bench_fill(store, 1, VALUE_BYTES);
    bench_child_say(word_fd, status, "");
    return status == YOLK_OK ? read_on(self, store, stop_fd) : status;
}

/* Of this process, from the sum of all its mappings; 0 where the kernel does not tell. */
static uint64_t huge_bytes(void)
{
    char text[4096];
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    size_t n = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[n] = '\0';
    return (figure_of(text, "AnonHugePages:") + figure_of(text, "ShmemPmdMapped:") +
            figure_of(text, "Shared_Hugetlb:") + figure_of(text, "Private_Hugetlb:")) *
           KIB;
}

static enum yolk_status run_large(void *self, int stop_fd, int word_fd)
{
    struct large *large = self;
    struct yolk_store *store = NULL;
    uint64_t start = bench_now_ns();
    enum yolk_status status = open_store(large, &store, large->bytes, large->transport);
    large->shared->open_ns = bench_now_ns() - start;
    large->shared->huge_bytes = huge_bytes();
    bench_child_say(word_fd, status, "");
    if (status != YOLK_OK)
        return status;
    bench_child_wait_for_end(stop_fd);
    start = bench_now_ns();
    status = yolk_store_close(store);
    large->shared->close_ns = bench_now_ns() - start;
    return status;
}

/* ---- what a bare process needs for the same pages ---- */
struct bare {
    uint8_t *memory;
    uint64_t bytes;
    _Atomic uint64_t next;
};

static void populate(void *arg)
{
    struct bare *bare = arg;
    const uint64_t step = 32 * MIB;
    for (uint64_t at = atomic_fetch_add(&bare->next, step); at < bare->bytes;
         at = atomic_fetch_add(&bare->next, step))
        memory_map_ahead(bare->memory + at, bare->bytes - at < step ? bare->bytes - at : step,
                         true);
}

static enum yolk_status run_bare(void *self, int stop_fd, int word_fd)
{
    enum { THREADS_MAX = 16 };
    struct large *large = self;
    struct memory_segment_options options = {.name = "bench"};
    struct memory_segment segment;
    struct thread threads[THREADS_MAX] = {{0}};
    unsigned count = thread_cpu_count() < THREADS_MAX ? thread_cpu_count() : THREADS_MAX;
    int status = memory_segment_create(large->bytes, &options, &segment);
    if (status == YOLK_OK) {
        struct bare bare = {.memory = segment.address, .bytes = large->bytes};
        uint64_t start = bench_now_ns();
        for (unsigned i = 1; i < count && status == YOLK_OK; i++)
            status = thread_start(&threads[i], "bench-bare", populate, &bare);
        populate(&bare);
        for (unsigned i = 1; i < count; i++)
            thread_join(&threads[i]);
        large->shared->open_ns = bench_now_ns() - start;
    }
    bench_child_say(word_fd, (enum yolk_status)status, "");
    bench_child_wait_for_end(stop_fd);
    return (enum yolk_status)status;
}

/* ---- the measurement ---- */
struct outcome {
    double open_s, end_s;                /* mounting; closing, or from the kill to its end */
    double call_ms, nap_open_ms, nap_ms; /* the worst: of a get and of a sleep meanwhile */
    double huge_share;
};

static void forget(struct shared *shared)
{
    shared->call_worst_ns = 0;
    shared->nap_worst_ns = 0;
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static enum yolk_status come_and_go(struct large *large, bool kill_it, struct outcome *out)
{
    char word[BENCH_WORD_MAX];
    struct bench_child node;
    struct shared *shared = large->shared;
    forget(shared);
    enum yolk_status status =
        bench_child_start(&node, &(struct bench_child_run){run_large, large}, word);
    if (status != YOLK_OK)
        return status;
    out->open_s = (double)shared->open_ns / 1e9;
    out->call_ms = ms(shared->call_worst_ns);
    out->nap_open_ms = ms(shared->nap_worst_ns);
    out->huge_share = (double)shared->huge_bytes / (double)large->bytes;
    forget(shared);
    uint64_t start = bench_now_ns();
    if (kill_it && kill(node.pid, SIGKILL) != 0)
        status = base_fail(YOLK_ERR_SYSTEM, 0, "the node cannot be killed");
    bench_child_end(&node);
    out->end_s = kill_it ? bench_seconds_since(start) : (double)shared->close_ns / 1e9;
    out->call_ms =
        out->call_ms > ms(shared->call_worst_ns) ? out->call_ms : ms(shared->call_worst_ns);
    out->nap_ms = ms(shared->nap_worst_ns);
    return status;
}

static void add(struct bench_report *bench, const char *name, const char *unit, double value,
                bool judged, double limit)
{
    bench_add(bench, &(struct bench_row){.name = name,
                                         .unit = unit,
                                         .value = value,
                                         .bound = judged ? BENCH_VALUE_AT_MOST : BENCH_OPEN,
                                         .limit = limit});
}

static enum yolk_status measure_pages(struct bench_report *bench, struct large *large, bool huge,
                                      double bare_s)
{
    struct outcome close = {0}, killed = {0};
    large->transport = huge ? "tcp" : NULL; /* what tcp serves may be of transparent huge pages */
    enum yolk_status status = come_and_go(large, false, &close);
    if (status == YOLK_OK)
        status = come_and_go(large, true, &killed);
    if (status != YOLK_OK)
        return status;
    double gib = (double)large->bytes / (double)GIB;
    double open_s = close.open_s < killed.open_s ? close.open_s : killed.open_s;
    bool judged = !bench->quick && thread_cpu_count() >= CORES_PROMISED;
    bench_add(bench,
              &(struct bench_row){.name = huge ? "large mount, huge pages" : "large mount, shm",
                                  .unit = "GiB/s",
                                  .value = gib / open_s,
                                  .ceiling_name = "shm's pages made present, no store",
                                  .ceiling = gib / bare_s,
                                  .bound = judged ? BENCH_VALUE_AT_LEAST : BENCH_OPEN,
                                  .limit = 5});
    add(bench, huge ? "large share of 2 MiB, huge pages" : "large share of 2 MiB, shm", "of 1",
        close.huge_share, false, 0);
    add(bench, huge ? "large others' get, huge pages" : "large others' get, shm", "ms worst",
        close.call_ms > killed.call_ms ? close.call_ms : killed.call_ms, judged, 100);
    add(bench, huge ? "large close, huge pages" : "large close, shm", "s", close.end_s, false, 0);
    add(bench, huge ? "large close late, huge pages" : "large close late, shm", "ms worst",
        close.nap_ms, !bench->quick, 100);
    add(bench, huge ? "large kill, huge pages" : "large kill, shm", "s", killed.end_s, false, 0);
    add(bench, huge ? "large kill late, huge pages" : "large kill late, shm", "ms worst",
        killed.nap_ms, !bench->quick, 100);
    return status;
}

static enum yolk_status measure(struct bench_report *bench, struct large *large)
{
    char word[BENCH_WORD_MAX];
    struct bench_child bare;
    struct shared *shared = large->shared;
    enum yolk_status status =
        bench_child_start(&bare, &(struct bench_child_run){run_bare, large}, word);
    double bare_s = (double)shared->open_ns / 1e9;
    if (status != YOLK_OK)
        return status;
    bench_child_end(&bare);
    add(bench, "large segment", "GiB", (double)large->bytes / (double)GIB, false, 0);
    status = measure_pages(bench, large, false, bare_s);
    if (status == YOLK_OK)
        status = measure_pages(bench, large, true, bare_s);
    if (status != YOLK_OK)
        return status;
    add(bench, "large others' gets", "calls", (double)shared->calls, false, 0);
    add(bench, "large others' failed gets", "calls", (double)shared->failed, true, 0);
    /* Killed nodes go with their connections: a session that expires was not heard of in time. */
    add(bench, "large sessions expired", "sessions", (double)shared->expired, true, 0);
    return YOLK_OK;
}

/* Half of what there is, at most: the machine is others' too. */
static uint64_t size_here(bool quick)
{
    uint64_t wanted = quick ? QUICK_BYTES : FULL_BYTES, available = memory_available();
    if (available != UINT64_MAX && wanted > available * 5 / 8)
        wanted = available * 5 / 8 / GIB * GIB;
    return wanted > GIB ? wanted : GIB;
}

enum yolk_status bench_large(struct bench_report *bench)
{
    char word[BENCH_WORD_MAX];
    const struct bench_cluster_options options = {.segment_bytes = 64 * MIB,
                                                  .session_ttl_ms = SESSION_TTL_MS};
    struct large large = {.bytes = size_here(bench->quick)};
    large.shared = mmap(NULL, sizeof(*large.shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (large.shared == MAP_FAILED)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "figures of several processes");
    enum yolk_status status = bench_cluster_start(&large.cluster, &options);
    if (status == YOLK_OK)
        status =
            bench_child_start(&large.reader, &(struct bench_child_run){run_reader, &large}, word);
    if (status == YOLK_OK)
        status =
            bench_child_start(&large.sleeper, &(struct bench_child_run){run_sleeper, &large}, word);
    if (status == YOLK_OK)
        status = measure(bench, &large);
    bench_child_end(&large.sleeper);
    bench_child_end(&large.reader);
    bench_cluster_close(&large.cluster);
    munmap(large.shared, sizeof(*large.shared));
    return status;
}
