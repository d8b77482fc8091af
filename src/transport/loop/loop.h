/* SPDX-License-Identifier: Apache-2.0 */
/* Within one process: a memcpy in the caller's thread. The template to copy for a new transport. */
#ifndef YOLK_TRANSPORT_LOOP_H
#define YOLK_TRANSPORT_LOOP_H

#include <yolk/transport.h>

/* Static table. Endpoint text: "pid,token". */
const struct yolk_transport_ops *transport_loop_ops(void);

#endif
