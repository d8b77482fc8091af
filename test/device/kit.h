/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of GPUs share. They run on the fake driver, or with YOLK_TEST_DEVICE=real on what
 * the machine has; a test that needs faults made runs on the fake only.
 */
#ifndef DEVICE_KIT_H
#define DEVICE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cuda.h"
#include "device/device.h"

bool kit_real(void);
/* The cuFile is a real one: then, or where YOLK_TEST_CUFILE names one to be run on the fake driver
 * (with LD_LIBRARY_PATH naming the folder of that). */
bool kit_real_cufile(void);
/* A command for the fake (test/fakes/cuda.h); 0 on the real thing. */
long kit_fake(const char *commands);
/* The same for the fake cuFile (test/fakes/cufile.h). */
long kit_fake_cufile(const char *commands);
/* Its path, or that of another fake in the same folder. */
const char *kit_fake_path(const char *name);
/* An empty file for direct I/O in YOLK_TEST_PATH (default: the working folder), to be unlinked by
 * its path, but not before cuFile knows it. */
int kit_file(char path[512]);
/* options may be NULL. The process ends as skipped where a real GPU is wanted and there is none. */
struct device *kit_open(const struct device_options *options);
int kit_open_status(const struct device_options *options, struct device **out);
/* Closes and asserts that the fake has nothing left of it. */
void kit_close(struct device *device);
/* Ends the process as skipped, unless on the fake. */
void kit_fake_only(void);
/* The same within a test: the others of the program run. */
void kit_fake_only_test(void);

/* The second mapping of memory of the fake GPU. */
void *kit_shadow(const void *pointer, size_t size);
void *kit_gpu_alloc(struct device *device, int ordinal, size_t size);
void kit_gpu_free(struct device *device, int ordinal, void *pointer);
/* Synchronous copies by the driver alone, not by what is tested. */
void kit_put(struct device *device, int ordinal, void *gpu, const void *host, size_t size);
void kit_get(struct device *device, int ordinal, void *host, const void *gpu, size_t size);

/* Same numbers each time. */
uint64_t kit_draw(uint64_t *state);
void kit_fill(void *memory, size_t size, uint64_t seed);

#define assert_status(call, wanted)                                                                \
    do {                                                                                           \
        long status_ = (call);                                                                     \
        if (status_ != (wanted))                                                                   \
            fprintf(stderr, "%s: %s\n", #call, yolk_last_error());                                 \
        assert_int_equal(status_, (wanted));                                                       \
    } while (0)
#define assert_ok(call) assert_status(call, YOLK_OK)
#define assert_error_text(part)                                                                    \
    do {                                                                                           \
        if (strstr(yolk_last_error(), (part)) == NULL)                                             \
            fail_msg("\"%s\" is not in \"%s\"", (part), yolk_last_error());                        \
    } while (0)

#endif
