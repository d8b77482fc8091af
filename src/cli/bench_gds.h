/* SPDX-License-Identifier: Apache-2.0 */
/* What `yolk bench gds` is made of: a bare cuFile loop, the same by the engine, and files. */
#ifndef CLI_BENCH_GDS_H
#define CLI_BENCH_GDS_H

#include "cli/bench_gpu.h"
#include "device/cufile.h"
#include "platform/file.h"
#include "transport/gds/gds.h"
#include "yolk/engine.h"

enum { BENCH_GDS_DEPTH_MAX = 128 };

/* Slices of one size, so many under way at a time. */
struct bench_gds_work {
    bool write;
    uint64_t slice, bytes; /* bytes: a multiple of slice */
    uint32_t depth;
    uint32_t pieces; /* slices of an object, which lie apart in memory */
};

/* What a run took. */
struct bench_gds_took {
    double seconds, processor; /* the latter of the whole process */
};

/* A new file, all of whose blocks were written; cuFile knows it by its name, so that stays until it
 * is registered. */
YOLK_MUST_USE enum yolk_status bench_gds_file(const char *folder, const char *name,
                                              const struct bench_gpu *gpu, struct file **out,
                                              char path[512]);
/* What of it was made: file may be NULL, path "". */
void bench_gds_file_remove(struct file *file, const char *path);
/* Processor time of the process. */
uint64_t bench_gds_processor_ns(void);

/* ---- cuFile alone ---- */
struct bench_cufile {
    struct bench_gpu *gpu;
    const struct cufile *cufile;
    struct cufile_properties properties;
    cufile_handle file;
    uint8_t *memory; /* of the GPU, `size` bytes */
    uint64_t size;
    bool opened, registered;
};
/* After an engine with gds has been made: it tries the driver first, in another process. */
YOLK_MUST_USE enum yolk_status bench_cufile_open(struct bench_cufile *bare, struct bench_gpu *gpu,
                                                 struct file *file);
void bench_cufile_close(struct bench_cufile *bare);
/* The memory is registered with cuFile, or is not any more. */
YOLK_MUST_USE enum yolk_status bench_cufile_register(struct bench_cufile *bare, bool registered);
YOLK_MUST_USE enum yolk_status bench_cufile_run(struct bench_cufile *bare,
                                                const struct bench_gds_work *work,
                                                struct bench_gds_took *took);

/* ---- the engine ---- */
struct bench_gds_engine {
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment, size;
    uint8_t *memory;
    char transport[16]; /* that ran last */
};
struct bench_gds_engine_options {
    bool gds, uring;
    uint32_t depth;
    uint64_t slice; /* 0: the usual */
    struct file *file;
    uint64_t size; /* of the file and the memory */
    uint8_t *memory;
};
YOLK_MUST_USE enum yolk_status bench_gds_engine_open(struct bench_gds_engine *e,
                                                     const struct bench_gds_engine_options *o);
void bench_gds_engine_close(struct bench_gds_engine *e);
/* All in one batch, and waits for it. */
YOLK_MUST_USE enum yolk_status bench_gds_engine_run(struct bench_gds_engine *e,
                                                    const struct bench_gds_work *work,
                                                    struct bench_gds_took *took);
/* As slices that follow each other in the file and lie apart in memory, work->pieces an object, as
 * the layers of a block of KV cache do. bytes: a multiple of an object's. */
YOLK_MUST_USE enum yolk_status bench_gds_engine_pieces(struct bench_gds_engine *e,
                                                       const struct bench_gds_work *work,
                                                       struct bench_gds_took *took);
/* As many under way as work->depth, one after the other: microseconds of each. */
YOLK_MUST_USE enum yolk_status bench_gds_engine_latency(struct bench_gds_engine *e,
                                                        const struct bench_gds_work *work,
                                                        double *p50, double *p99);

/* ---- blocks of KV cache ---- */
/* Tells rates of blocks as models have them, and which slices and depth suit all. */
YOLK_MUST_USE enum yolk_status bench_gds_blocks(const struct bench_gds_engine_options *options,
                                                struct bench_sheet *sheet);

#endif
