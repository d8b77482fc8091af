/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_ENGINE_RUN_H
#define SIM_ENGINE_RUN_H

#include <stddef.h>
#include <stdint.h>

/* Runs one seed; answers the hash of what happened. failure: what went wrong first, else "". marks:
 * how often each of enum peer_mark happened, added to. */
uint64_t sim_engine_run(uint64_t seed, uint64_t steps, uint64_t *marks, char *failure,
                        size_t failure_size);

#endif
