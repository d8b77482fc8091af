/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this process through io_uring. */
#ifndef YOLK_TRANSPORT_URING_H
#define YOLK_TRANSPORT_URING_H

#include <yolk/transport.h>

/* Static table. Endpoint text: "pid,token". */
const struct yolk_transport_ops *transport_uring_ops(void);

#endif
