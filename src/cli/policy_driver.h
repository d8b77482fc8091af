/* SPDX-License-Identifier: Apache-2.0 */
#ifndef YOLK_CLI_POLICY_DRIVER_H
#define YOLK_CLI_POLICY_DRIVER_H

#include "cli/policy_models.h"
#include "master/policy.h"

/*
 * What the master's policy does with the trace in one segment of `capacity` blocks (at least 1),
 * without a master: it is told what a master would tell it when a client asks for a request's
 * keys, gets the longest present prefix and puts the rest. Sets the number of blocks read and
 * returns 0, or -1 when memory is out.
 */
int policy_drive(const struct master_policy *policy, const struct policy_trace *dense,
                 size_t capacity, uint64_t *hits);

#endif
