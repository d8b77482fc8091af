/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine's io_uring can do with a file when nothing stands above it: the ceiling that
 * `yolk bench ssd` measures us against. Registered file, no checks, one kind of io. */
#ifndef TRANSPORT_URING_BARE_H
#define TRANSPORT_URING_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include "yolk/status.h"

struct uring_bare {
    int descriptor;
    bool write;
    uint32_t depth;
    uint32_t size;           /* of each io */
    uint32_t count;          /* of ios */
    uint32_t batch;          /* so many are waited for before the next are begun, as users do */
    const uint64_t *offsets; /* one an io */
    uint8_t *memory;         /* batch * size bytes */
};

/* Keeps up to `depth` ios under way until all were made. SYSTEM, or IO for one that failed or was
 * short.
 */
YOLK_MUST_USE enum yolk_status uring_bare_run(const struct uring_bare *work);

#endif
