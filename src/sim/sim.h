/* SPDX-License-Identifier: Apache-2.0 */
/* The deterministic simulator: the real cores of the master, three nodes and two clients on virtual
 * time, with faults drawn from a seed. One thread; the same seed gives the same run to the last
 * byte. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/config.h"

/* What the settings say; `program` is how a seed is repeated. Answers the exit status. */
int sim_main(const struct base_config *config, const char *program);

#endif
