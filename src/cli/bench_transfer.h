/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks moved in batches by the engine, in the closed loop of Mooncake's tebench: each thread
 * makes a batch, submits it, waits for its end, frees it, and begins again; beside it, in turn and
 * for the same time, a bare loop that moves the same blocks. */
#ifndef CLI_BENCH_TRANSFER_H
#define CLI_BENCH_TRANSFER_H

#include "cli/bench.h"
#include "yolk/engine.h"

enum { TRANSFER_THREADS_MAX = 64, TRANSFER_BATCH_MAX = 1 << 20, TRANSFER_TURNS_MAX = 32 };

enum transfer_op { TRANSFER_READ, TRANSFER_WRITE, TRANSFER_MIX };

struct transfer_options {
    const char *transport; /* null loop shm tcp uring posix */
    /* "": a process of our own serves the memory, a file of our own in `path` is read and written;
     * else what bench_transfer_serve printed, or file://PATH. */
    const char *target;
    const char *path;
    const char *host; /* of a target: where others reach it */
    const uint8_t *secret;
    size_t secret_size;
    enum transfer_op op;
    uint64_t buffer_bytes; /* on each side */
    uint64_t seed;
    bool random; /* places in the target drawn for each block; else the same in each batch */
    bool check;  /* each byte that arrives is looked at; the time of that does not count */
};

struct transfer_case {
    uint64_t block;
    uint32_t batch, threads;
    uint64_t turn_ms; /* of ours, and of the bare loop */
    uint32_t turns;
};

struct transfer_figures {
    double bytes_per_s;
    const char *ceiling_name; /* NULL: none */
    double ceiling_bytes_per_s;
    double ceiling_cpu_s_per_gb;
    double latency_ns, p50_ns, p99_ns, p999_ns;     /* of a batch */
    double cpu_s_per_gb;                            /* of both sides where the target is ours */
    double copied;                                  /* bytes for each byte delivered */
    double system_calls, allocations, instructions; /* of a request, in its own thread */
    char reason[128], instructions_reason[128];     /* why one of them is NAN */
};

struct transfer;

YOLK_MUST_USE enum yolk_status bench_transfer_open(const struct transfer_options *options,
                                                   struct transfer **out);
void bench_transfer_close(struct transfer *t);
/* Whether the blocks of all threads fit into the buffers. */
bool bench_transfer_fits(const struct transfer *t, const struct transfer_case *c);
YOLK_MUST_USE enum yolk_status bench_transfer_run(struct transfer *t, const struct transfer_case *c,
                                                  struct transfer_figures *out);
/* Serves memory to initiators in other processes; ready is told the name to open it by, or what is
 * wrong, and returns when it is to end. */
YOLK_MUST_USE enum yolk_status
bench_transfer_serve(const struct transfer_options *options,
                     void (*ready)(void *self, enum yolk_status status, const char *name),
                     void *self);

/* ---- bench_latency.c ---- */

/* Times, each known to 1 in 32. */
enum { LATENCY_PARTS = 32, LATENCY_CLASSES = 64 };
struct bench_latency {
    uint64_t counts[LATENCY_CLASSES * LATENCY_PARTS];
    uint64_t count;
    uint64_t sum_ns;
};
void bench_latency_add(struct bench_latency *l, uint64_t ns);
void bench_latency_merge(struct bench_latency *l, const struct bench_latency *more);
double bench_latency_quantile(const struct bench_latency *l, double share);

/* ---- bench_pattern.c: bytes that say where they belong ---- */

void bench_pattern_fill(uint8_t *to, uint64_t offset, uint64_t size, uint64_t salt);
/* Of the first byte that is wrong: its place from `data` on; `size` if there is none. */
uint64_t bench_pattern_check(const uint8_t *data, uint64_t offset, uint64_t size, uint64_t salt);

#endif
