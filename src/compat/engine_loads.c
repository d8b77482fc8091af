/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/engine_loads.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

enum { ROWS_MAX = 65536 };

enum yolk_status compat_engine_loads(struct yolk_engine *engine, struct compat_load *loads,
                                     size_t *count)
{
    size_t room = *count < ROWS_MAX ? *count : ROWS_MAX, there_are = room;
    struct yolk_engine_load *own = base_calloc(room + 1, sizeof(*own));
    if (own == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu rows", room);
    enum yolk_status status = yolk_engine_load_stats(engine, own, &there_are);
    if (status == YOLK_ERR_LIMIT)
        status = YOLK_OK; /* the count tells, as upstream's does */
    for (size_t i = 0; status == YOLK_OK && i < room && i < there_are; i++) {
        loads[i] = (struct compat_load){.inflight_bytes = own[i].inflight_bytes,
                                        .ewma_bandwidth_bps = (double)own[i].bandwidth_bytes};
        snprintf(loads[i].device_name, sizeof(loads[i].device_name), "%s:%.46s", own[i].transport,
                 own[i].device);
    }
    if (status == YOLK_OK)
        *count = there_are;
    free(own);
    return status;
}
