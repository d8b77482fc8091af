/* SPDX-License-Identifier: Apache-2.0 */
/* What the suite is worth: a mistake is caught by the cases named for it, by all of them and by no
 * other. Each case runs in a process of its own, which may crash or hang. */
#ifndef CONFORMANCE_CAUGHT_H
#define CONFORMANCE_CAUGHT_H

#include "suite.h"

/* Whatever is wrong is so already, in this process. names: in the order of the suite, ended by
 * NULL. Those that have the wrapper for their subject are left out. */
void is_caught_by(const struct conformance_fixture *fixture, const char *const *names);

#endif
