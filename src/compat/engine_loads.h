/* SPDX-License-Identifier: Apache-2.0 */
/* The load of an engine's routes in the form that both of upstream's C interfaces give. */
#ifndef COMPAT_ENGINE_LOADS_H
#define COMPAT_ENGINE_LOADS_H

#include <stddef.h>

#include <yolk/engine.h>

/* The layout of both structures. */
struct compat_load {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps;
};
/* *count: in, room in loads; out, how many there are. */
YOLK_MUST_USE enum yolk_status compat_engine_loads(struct yolk_engine *engine,
                                                   struct compat_load *loads, size_t *count);

#endif
