/* SPDX-License-Identifier: Apache-2.0 */
/* Moves nothing and is done at once: what a request costs without its bytes. */
#ifndef YOLK_TRANSPORT_NULL_H
#define YOLK_TRANSPORT_NULL_H

#include <yolk/transport.h>

const struct yolk_transport_ops *transport_null_ops(void);

#endif
