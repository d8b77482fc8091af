/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a submit that fails at once. */
#ifndef TRANSPORT_FAILED_H
#define TRANSPORT_FAILED_H

#include <yolk/transport.h>

static inline enum yolk_submit submit_failed(struct yolk_io *io, int status)
{
    io->status = (enum yolk_status)status;
    io->transferred = 0;
    return YOLK_SUBMIT_FAILED;
}

#endif
