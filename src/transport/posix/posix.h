/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this process through a bounded pool of threads that read and write; for where io_uring
 * is refused. */
#ifndef YOLK_TRANSPORT_POSIX_H
#define YOLK_TRANSPORT_POSIX_H

#include <yolk/transport.h>

/* Static table. Endpoint text: "pid,token". */
const struct yolk_transport_ops *transport_posix_ops(void);

#endif
