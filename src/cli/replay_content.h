/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_REPLAY_CONTENT_H
#define YOLK_CLI_REPLAY_CONTENT_H

#include <stddef.h>
#include <stdint.h>

/* A block's bytes are a function of its id and the offset, so that a reader can verify every byte
 * without having kept it: a byte of another block, of another offset or of nothing at all differs.
 */
void replay_content_fill(uint64_t id, void *out, size_t size);

/* The number of bytes that differ from what block `id` holds. */
uint64_t replay_content_check(uint64_t id, const void *data, size_t size);

#endif
