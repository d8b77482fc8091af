/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a GPU for commands that make and check bytes there. */
#ifndef YOLK_CLI_GPU_H
#define YOLK_CLI_GPU_H

#include <stddef.h>

#include <yolk/status.h>

struct cli_gpu;

/* `size` bytes of memory of this GPU, as they are. UNSUPPORTED with the reason: no driver, no such
 * GPU. */
YOLK_MUST_USE int cli_gpu_open(int ordinal, size_t size, struct cli_gpu **out);
void *cli_gpu_memory(const struct cli_gpu *gpu);
/* [offset, offset + size) of it from and to memory of the host; over when they return. */
YOLK_MUST_USE int cli_gpu_write(struct cli_gpu *gpu, size_t offset, const void *from, size_t size);
YOLK_MUST_USE int cli_gpu_read(struct cli_gpu *gpu, size_t offset, void *to, size_t size);
void cli_gpu_close(struct cli_gpu *gpu);

#endif
