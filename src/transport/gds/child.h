/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GDS_CHILD_H
#define GDS_CHILD_H

#include <stdint.h>

#include "yolk/status.h"

/* Can cuFile's driver be opened, as tried by another process? UNSUPPORTED with the reason. NULL:
 * the libraries that the system finds. */
YOLK_MUST_USE int gds_child_probe(const char *cuda_library, const char *cufile_library,
                                  uint64_t timeout_ms);

#endif
