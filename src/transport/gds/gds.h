/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this process, to and from GPU memory, by cuFile. See docs/gpu.md. */
#ifndef TRANSPORT_GDS_H
#define TRANSPORT_GDS_H

#include <yolk/transport.h>

const struct yolk_transport_ops *transport_gds_ops(void);

/* How many files this process has registered with cuFile; the first `room` are told. */
size_t gds_files(struct yolk_file_figures *out, size_t room);

/* What of cuFile could be used, tried as an engine with these options would: UNSUPPORTED with the
 * reason. With path the file is tried too (by one read; by a temporary file beside it if writable),
 * and *out says what came of it; NULL: only the driver. */
enum yolk_status gds_try(const struct yolk_transport_options *options, const char *path,
                         int writable, struct yolk_file_figures *out);

struct gds_totals {
    uint64_t registrations; /* of GPU memory with cuFile, ever */
    uint64_t allocations;   /* registered now */
    uint64_t handles_idle;  /* batch handles in the pool */
};
/* Zeroes while cuFile is not open. */
void gds_totals(struct gds_totals *out);

#endif
