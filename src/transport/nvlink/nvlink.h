/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of GPUs, and host memory with handles, that other processes copy from and to with their
 * GPUs. The first of these handles that works: fabric, which other machines of the NVLink domain
 * can import too; a descriptor over a Unix socket; CUDA IPC.
 */
#ifndef TRANSPORT_NVLINK_NVLINK_H
#define TRANSPORT_NVLINK_NVLINK_H

#include <stdint.h>

#include "yolk/transport.h"

const struct yolk_transport_ops *transport_nvlink_ops(void);

struct nvlink_figures {
    uint64_t imports;                  /* mappings made of memory of peers */
    uint64_t import_reuses;            /* a mapping that was there served another link */
    uint64_t unmaps;                   /* mappings given back */
    uint64_t unmaps_failed;            /* tries; each is tried again */
    uint64_t by_fabric, by_fd, by_ipc; /* of imports */
    uint64_t bytes_by_gpu, bytes_by_processor;
};
/* Of all endpoints of this process, since it began. */
void nvlink_figures(struct nvlink_figures *out);

#endif
