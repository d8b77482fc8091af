/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench transfers`: what is promised of the engine's transports, each beside the bare loop of
 * its turns. Places are drawn, so that neither side finds its source in a cache, and no two blocks
 * can be moved as one. */
#include <stdio.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_transfer.h"

enum { TURNS = 9, TURN_MS = 400, QUICK_TURNS = 5, QUICK_TURN_MS = 40 };
#define BUFFER_BYTES       (1 * GIB)
#define QUICK_BUFFER_BYTES (128 * MIB)

static enum yolk_status open_over(const struct bench_report *bench, const char *transport,
                                  bool random, struct transfer **out)
{
    const struct transfer_options options = {
        .transport = transport,
        .target = "",
        .path = ".",
        .host = "127.0.0.1",
        .op = TRANSFER_READ,
        .buffer_bytes = bench->quick ? QUICK_BUFFER_BYTES : BUFFER_BYTES,
        .seed = 1,
        .random = random,
    };
    return bench_transfer_open(&options, out);
}

static enum yolk_status run(const struct bench_report *bench, struct transfer *t, uint64_t block,
                            uint32_t batch, struct transfer_figures *figures)
{
    const struct transfer_case c = {.block = block,
                                    .batch = batch,
                                    .threads = 1,
                                    .turn_ms = bench->quick ? QUICK_TURN_MS : TURN_MS,
                                    .turns = bench->quick ? QUICK_TURNS : TURNS};
    return bench_transfer_run(t, &c, figures);
}

/* A rate beside the bare loop's. */
static enum yolk_status add_rate(struct bench_report *bench, struct transfer *t, const char *name,
                                 uint64_t block, uint32_t batch, double promised, double *rate)
{
    struct transfer_figures f;
    enum yolk_status status = run(bench, t, block, batch, &f);
    if (status != YOLK_OK)
        return status;
    *rate = f.bytes_per_s;
    bench_add(bench, &(struct bench_row){.name = name,
                                         .unit = "GB/s",
                                         .value = f.bytes_per_s / 1e9,
                                         .ceiling_name = f.ceiling_name,
                                         .ceiling = f.ceiling_bytes_per_s / 1e9,
                                         .bound = promised > 0 ? BENCH_RATIO_AT_LEAST : BENCH_OPEN,
                                         .limit = promised});
    return YOLK_OK;
}

enum { DESCRIPTORS = 100000 };

/* 10^5 blocks in one call: what each takes beyond its bytes. */
static enum yolk_status add_descriptors(struct bench_report *bench, struct transfer *t,
                                        const char *name, const char *beyond, uint64_t block,
                                        double limit_ns)
{
    struct transfer_figures f;
    enum yolk_status status = run(bench, t, block, DESCRIPTORS, &f);
    if (status != YOLK_OK)
        return status;
    double ours = (double)block / f.bytes_per_s * 1e9,
           bare = (double)block / f.ceiling_bytes_per_s * 1e9;
    bench_add(bench, &(struct bench_row){.name = name,
                                         .unit = "cpu ns a block",
                                         .value = ours,
                                         .ceiling_name = f.ceiling_name,
                                         .ceiling = bare,
                                         .less_is_better = true});
    bench_add(bench, &(struct bench_row){.name = beyond,
                                         .unit = "cpu ns a block",
                                         .value = ours - bare,
                                         .bound = limit_ns > 0 ? BENCH_VALUE_AT_MOST : BENCH_OPEN,
                                         .limit = limit_ns});
    return YOLK_OK;
}

static enum yolk_status measure_shm(struct bench_report *bench, struct transfer *t)
{
    double rate;
    enum yolk_status status =
        add_rate(bench, t, "shm read 128 x 64 KiB", 64 * KIB, 128, 0.85, &rate);
    if (status == YOLK_OK)
        status = add_descriptors(bench, t, "shm read 100000 x 1 KiB",
                                 "shm read x 1 KiB, beyond copies", KIB, 100);
    if (status == YOLK_OK)
        status = add_descriptors(bench, t, "shm read 100000 x 512 B",
                                 "shm read x 512 B, beyond copies", 512, 0);
    return status;
}

/* Blocks of one buffer in order, as most callers have them. */
static enum yolk_status measure_shm_in_order(struct bench_report *bench, struct transfer *t)
{
    return add_descriptors(bench, t, "shm read 100000 x 1 KiB, in order",
                           "shm read x 1 KiB, in order, beyond", KIB, 100);
}

static enum yolk_status measure_tcp(struct bench_report *bench, struct transfer *t)
{
    double large, alone;
    struct transfer_figures f;
    enum yolk_status status = add_rate(bench, t, "tcp read 1 MiB", MIB, 1, 0.85, &alone);
    if (status == YOLK_OK)
        status = add_rate(bench, t, "tcp read 32 x 1 MiB", MIB, 32, 0.85, &large);
    if (status == YOLK_OK)
        status = run(bench, t, 4 * KIB, 2048, &f);
    if (status == YOLK_OK)
        bench_add(bench, &(struct bench_row){.name = "tcp read 2048 x 4 KiB",
                                             .unit = "GB/s",
                                             .value = f.bytes_per_s / 1e9,
                                             .ceiling_name = "its rate at 32 x 1 MiB",
                                             .ceiling = large / 1e9,
                                             .bound = BENCH_RATIO_AT_LEAST,
                                             .limit = 0.60});
    if (status == YOLK_OK)
        status = add_descriptors(bench, t, "tcp read 100000 x 1 KiB",
                                 "tcp read x 1 KiB, beyond bare", KIB, 0);
    return status;
}

static enum yolk_status measure_uring(struct bench_report *bench, struct transfer *t)
{
    double rate;
    enum yolk_status status = add_rate(bench, t, "uring read 64 x 1 MiB", MIB, 64, 0.95, &rate);
    if (status == YOLK_OK)
        status = add_rate(bench, t, "uring read 512 x 128 KiB", 128 * KIB, 512, 0.95, &rate);
    return status;
}

enum yolk_status bench_transfers(struct bench_report *bench)
{
    static const struct {
        const char *transport;
        bool random;
        enum yolk_status (*measure)(struct bench_report *bench, struct transfer *t);
    } all[] = {{"shm", true, measure_shm},
               {"shm", false, measure_shm_in_order},
               {"tcp", true, measure_tcp},
               {"uring", true, measure_uring}};
    enum yolk_status status = YOLK_OK;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == YOLK_OK; i++) {
        struct transfer *t;
        status = open_over(bench, all[i].transport, all[i].random, &t);
        if (status == YOLK_OK)
            status = all[i].measure(bench, t);
        bench_transfer_close(t);
    }
    return status;
}
