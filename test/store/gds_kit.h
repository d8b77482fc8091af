/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the GDS tier share: stores with a GDS file, and values in the memory of a GPU.
 * They run on the fakes, or with YOLK_TEST_DEVICE=real on what the machine has (then
 * MOONCAKE_GDS_TEST_PATH, or else YOLK_TEST_PATH, is the folder of the file).
 */
#ifndef GDS_KIT_H
#define GDS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <yolk/store.h>

#include "cli/gpu.h"
#include "served_master.h"

enum { GDS_SIZE = 300001, GDS_BATCH = 8 }; /* of a value: not of whole units */

struct gds_world {
    char folder[512];
    char path[544];
    bool served; /* the master is behind a socket, so that stores may come and go */
    struct master master;
    struct cli_gpu *gpu; /* room for GDS_BATCH values */
    uint8_t *host;       /* as much */
};

/* Begins the program anew so that it finds the fakes. To be called first in main(); true: without a
 * GPU, the tests are skipped. */
bool gds_kit_begin(char **argv);
bool gds_kit_real(void);
/* A command for the fake cuFile; 0 on the real thing. */
long gds_kit_fake(const char *commands);
/* The same for the fake driver. */
long gds_kit_fake_cuda(const char *commands);
void gds_kit_fake_only(void);

void gds_world_open(struct gds_world *w, bool served);
void gds_world_close(struct gds_world *w);
void gds_master_start(struct gds_world *w);
void gds_master_stop(struct gds_world *w);

/* With a GDS file of `capacity` bytes (0: none) and a memory segment (0: none). */
void gds_options(const struct gds_world *w, struct yolk_store_options *options, const char *name,
                 uint64_t memory, uint64_t capacity);
struct yolk_store *gds_open_with(struct gds_world *w, const struct yolk_store_options *options);
struct yolk_store *gds_open(struct gds_world *w, const char *name, uint64_t memory,
                            uint64_t capacity);
/* Recounts first. */
void gds_close(struct gds_world *w, struct yolk_store *store);

void gds_fill(uint8_t *to, size_t size, uint64_t key);
/* Of GDS_SIZE bytes, in two slices of the GPU's memory; the result. */
int64_t gds_put(struct gds_world *w, struct yolk_store *store, uint64_t key);
int64_t gds_put_with(struct gds_world *w, struct yolk_store *store, uint64_t key,
                     const struct yolk_put_options *options);
/* The medium it was read from, or why not. The bytes are right. */
int64_t gds_get(struct gds_world *w, struct yolk_store *store, uint64_t key);
/* Where it lies now: a bit for each medium; *gds is the descriptor, if there is one. */
unsigned gds_where(struct yolk_store *store, uint64_t key, struct yolk_gds_descriptor *gds);
enum { IN_MEMORY = 1 << YOLK_MEDIUM_MEMORY, IN_GDS = 1 << YOLK_MEDIUM_GDS };
/* Until no lease is in the way. */
int64_t gds_clear(struct yolk_store *store, uint64_t key, const char *segment);
/* A figure of yolk_store_stat; -1: there is none. */
double gds_figure(struct yolk_store *store, const char *name);
/* Until it is 0: the master may have to say so first. */
void gds_await_none(struct yolk_store *store, const char *name);

#endif
