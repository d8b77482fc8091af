/* SPDX-License-Identifier: Apache-2.0 */
/* What `yolk bench gpu` and `yolk bench gds` share: the GPU, memory on both sides, bare loops. */
#ifndef CLI_BENCH_GPU_H
#define CLI_BENCH_GPU_H

#include <jansson.h>

#include "cli/bench.h"
#include "device/cuda.h"
#include "device/device.h"

struct bench_gpu {
    struct device *device; /* as it comes */
    struct device *kernel; /* one that has small copies go by the gather kernel only */
    struct device *engine; /* and one by the copy engine only */
    int ordinal;
    bool check;       /* little of everything, each byte looked at, no speeds */
    size_t total;     /* bytes of each of the three memories */
    uint8_t *host;    /* pinned */
    uint8_t *back;    /* pinned, another one */
    uint8_t *gpu;     /* on the GPU */
    void *stream;     /* CUstream of the bare copies */
    int runs;         /* of each measurement */
    uint64_t pattern; /* of the last filling */
};

YOLK_MUST_USE enum yolk_status bench_gpu_open(struct bench_gpu *b, int ordinal, bool check);
/* The same with memories of this size; the kernel and the engine alone are not there. */
YOLK_MUST_USE enum yolk_status bench_gpu_open_sized(struct bench_gpu *b, int ordinal,
                                                    uint64_t size);
void bench_gpu_close(struct bench_gpu *b);

/* A status and text for what a call of the driver answered. */
int bench_gpu_call(const struct bench_gpu *b, cuda_result result, const char *what);
/* One copy by the driver alone. */
YOLK_MUST_USE enum yolk_status bench_gpu_bare(const struct bench_gpu *b, void *to, const void *from,
                                              size_t size);
/* Different bytes each time. */
void bench_gpu_fill(struct bench_gpu *b, uint8_t *memory, size_t size);

/* One way of moving `total` bytes in blocks: a contender of bench_in_turn. */
struct bench_gpu_run {
    struct bench_gpu *b;
    struct device *device; /* NULL: cuMemcpyAsync in a loop */
    enum device_direction direction;
    size_t block;
    bool scattered; /* block i of the GPU is a drawn one of the host's */
};
YOLK_MUST_USE enum yolk_status bench_gpu_move(void *run, double *seconds);
/* Moves by this run and looks at each byte. */
YOLK_MUST_USE enum yolk_status bench_gpu_verify(const struct bench_gpu_run *run);
/* The same without waiting for the end, over and over, until *over answers so; how many bytes went.
 */
YOLK_MUST_USE enum yolk_status bench_gpu_move_until(const struct bench_gpu_run *run,
                                                    bool (*over)(void *self), void *self,
                                                    uint64_t *bytes);

/* A kernel that computes beside all that. */
struct bench_busy {
    struct bench_gpu *b;
    cuda_module module;
    cuda_function function;
    cuda_stream stream;
    cuda_pointer out;
    uint32_t rounds, blocks, launches;
};
YOLK_MUST_USE enum yolk_status bench_busy_open(struct bench_busy *busy, struct bench_gpu *b);
void bench_busy_close(struct bench_busy *busy);
/* Seconds of all launches, alone or beside copies; *bytes of these. beside NULL: alone. */
YOLK_MUST_USE enum yolk_status bench_busy_run(struct bench_busy *busy,
                                              const struct bench_gpu_run *beside, double *seconds,
                                              uint64_t *bytes);

/* ---- what both commands print ---- */
struct bench_sheet {
    json_t *root, *rows;
    bool check;
    unsigned count, missed, failed;
};
void bench_sheet_open(struct bench_sheet *sheet, bool check);
/* With --check what was measured is left out: the row says only that it ran. */
void bench_sheet_add(struct bench_sheet *sheet, const struct bench_row *row);
/* A row that could not be measured, and why. */
void bench_sheet_skip(struct bench_sheet *sheet, const char *name, const char *reason);
/* A part that failed: what it said is shown, and others go on. True: it was well. */
bool bench_sheet_part(struct bench_sheet *sheet, const char *name, enum yolk_status status);
/* Writes the JSON, if path is not "", and the last line; the command's exit status. */
int bench_sheet_close(struct bench_sheet *sheet, const char *path);
/* The same where nothing is to be told. */
void bench_sheet_discard(struct bench_sheet *sheet);

#endif
