/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of host memory of NUMA nodes that GPUs reach (EGM), given to the store in chunks: planned
 * (egm_plan.h), set up and torn down step by step (egm_steps.h). What the steps do is a driver's: a
 * function that can be made to fail in each place.
 */
#ifndef YOLK_STORE_EGM_POOL_H
#define YOLK_STORE_EGM_POOL_H

#include "base/buf.h"
#include "store/egm_plan.h"
#include "store/egm_steps.h"

struct egm_settings {
    const char *nodes; /* egm_numa_nodes; NULL: auto */
    uint64_t capacity;
    uint64_t chunk_bytes_max; /* MC_MAX_MR_SIZE; 0: EGM_CHUNK_DEFAULT */
};
#define EGM_CHUNK_DEFAULT (UINT64_C(1) << 40)

struct egm_driver {
    void *self;
    /* The NUMA nodes nearest to the GPUs, in any order, some perhaps more than once. */
    int (*discover)(void *self, uint32_t ids[EGM_NODES_MAX], uint32_t *count);
    int (*granularity)(void *self, uint32_t node, uint64_t *out);
    /* Before the first step: how many chunks there will be. */
    int (*prepare)(void *self, const struct egm_plan *plan);
    /* Does one step. *left, at first false: a step of set-up failed and left something behind, so
     * its reverse is due. */
    int (*step)(void *self, enum egm_step step, uint32_t chunk, bool *left);
};

enum egm_health {
    EGM_HEALTHY = 0,
    EGM_CLEANUP_PENDING = 3, /* what is left goes with another close */
    EGM_QUARANTINED = 4,     /* the driver would not give memory back: close again, or end the
                              * process */
};

struct device;
/* What "auto" means on this machine: the NUMA nodes that CUDA names for its GPUs, sorted, each
 * once. Only CUDA is asked, neither PCI nor network cards. UNSUPPORTED, naming the GPU: it cannot.
 */
YOLK_MUST_USE int egm_discover(struct device *device, uint32_t ids[EGM_NODES_MAX], uint32_t *count);

struct egm_pool;

/* CONFIG, the text naming the setting and the rule; or why a step failed. On failure *out is NULL
 * if nothing is left, else the pool, of which egm_pool_close takes up what is left. The driver is
 * borrowed until the pool is gone. */
YOLK_MUST_USE int egm_pool_open(const struct egm_settings *settings,
                                const struct egm_driver *driver, struct egm_pool **out);
/* Frees it if nothing is left; else why not, and it may be called again. NULL is allowed. */
YOLK_MUST_USE int egm_pool_close(struct egm_pool *pool);

enum egm_health egm_pool_health(const struct egm_pool *pool);
/* Lines "mooncake_egm_store_pool_NAME VALUE". */
YOLK_MUST_USE int egm_pool_stat(const struct egm_pool *pool, struct base_buf *lines);

#endif
