/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_REPLAY_MODEL_H
#define YOLK_CLI_REPLAY_MODEL_H

#include "cli/trace.h"

/* What a plain LRU cache of `capacity_blocks` (0: unbounded) would do with the trace: the number of
 * blocks read as part of a present prefix. Shares no code with the store. Returns 0, or -1 when
 * memory is out. */
int replay_model_lru(const struct trace *trace, size_t capacity_blocks, uint64_t *hits);

#endif
