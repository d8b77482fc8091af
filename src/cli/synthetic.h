/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_SYNTHETIC_H
#define YOLK_CLI_SYNTHETIC_H

#include "cli/trace.h"

/* A made-up chat workload with the statistics of a published conversation trace: about 24 blocks a
 * request, block 0 in every request, 36.6 % of references reusable with an unbounded cache, about
 * three quarters of the blocks seen once. The same seed gives the same trace. Returns 0 or -1 (no
 * memory). */
int synthetic_generate(struct trace *trace, uint64_t seed, size_t requests);

#endif
