/* SPDX-License-Identifier: Apache-2.0 */
/* The network devices of this machine and what memory they are near to, as Mooncake's show_link
 * prints them. */
#ifndef COMPAT_SHOW_LINKS_H
#define COMPAT_SHOW_LINKS_H

#include <stdbool.h>

#include <yolk/status.h>

#include "base/buf.h"

/* Of two texts of yolk_topology: the whole one and the matrix. json: {"local_nics": [...],
 * "topology": {...}}; else lines for people. */
YOLK_MUST_USE enum yolk_status compat_show_links(const char *topology, const char *matrix,
                                                 bool json, struct base_buf *out);

#endif
