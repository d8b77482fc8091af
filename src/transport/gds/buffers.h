/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory registered with cuFile: once an allocation, however many ranges of it are used, so
 * that there are never more registrations than allocations. A slice names the registered base and
 * an offset, for cuFile knows a registration by its base only. All calls may come from any thread;
 * those that register call the library, so they come from threads of ours.
 */
#ifndef GDS_BUFFERS_H
#define GDS_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cufile.h"
#include "device/device.h"
#include "platform/thread.h"

enum { GDS_BUFFERS_MAX = 4096 };

struct gds_buffer {
    uint64_t base, size;
    uint64_t id; /* of the allocation; 0: the driver gives none */
    unsigned uses;
    bool registered; /* by us; else cuFile takes the memory by its own bounce buffers */
};

struct gds_buffers {
    struct device *device;
    const struct cufile *cufile;
    struct mutex lock;
    struct gds_buffer *entries; /* by base */
    unsigned count, room;
    uint64_t registrations;
};

void gds_buffers_init(struct gds_buffers *buffers, struct device *device,
                      const struct cufile *cufile);
/* What is left is cuFile's no more. */
void gds_buffers_deregister(struct gds_buffers *buffers);
void gds_buffers_fini(struct gds_buffers *buffers);

/*
 * The range will be used, until it is removed as often. *registered: cuFile has it registered, else
 * yolk_last_error() says why not (the memory can be used all the same, but not directly). Host
 * memory needs no registration and is never registered. LIMIT, NO_MEMORY; INVALID: a range over the
 * end of its allocation.
 */
YOLK_MUST_USE int gds_buffers_add(struct gds_buffers *buffers, const void *pointer, uint64_t size,
                                  bool *registered);
void gds_buffers_remove(struct gds_buffers *buffers, const void *pointer);
/* What a slice at this address says to cuFile: the base and the offset to it. An address that was
 * not added is its own base. */
void *gds_buffers_find(struct gds_buffers *buffers, const void *pointer, uint64_t *offset);
bool gds_buffers_are_registered(struct gds_buffers *buffers, const void *pointer);

#endif
