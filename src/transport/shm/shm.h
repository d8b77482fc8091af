/* SPDX-License-Identifier: Apache-2.0 */
/* One machine: sealed memfd segments, handed over a Unix socket, copied in the caller's thread. */
#ifndef YOLK_TRANSPORT_SHM_H
#define YOLK_TRANSPORT_SHM_H

#include <yolk/transport.h>

/* Static table. Endpoint text: "/path/of/socket,instance". Serves memory of its memory_alloc only.
 */
const struct yolk_transport_ops *transport_shm_ops(void);

#endif
