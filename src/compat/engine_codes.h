/* SPDX-License-Identifier: Apache-2.0 */
/* The error numbers of Mooncake's transfer engine. */
#ifndef COMPAT_ENGINE_CODES_H
#define COMPAT_ENGINE_CODES_H

#include <yolk/status.h>

enum compat_engine_code {
    COMPAT_ENGINE_INVALID_ARGUMENT = -1,
    COMPAT_ENGINE_TOO_MANY_REQUESTS = -2,
    COMPAT_ENGINE_ADDRESS_NOT_REGISTERED = -3,
    COMPAT_ENGINE_BATCH_BUSY = -4,
    COMPAT_ENGINE_DEVICE_NOT_FOUND = -6,
    COMPAT_ENGINE_ADDRESS_OVERLAPPED = -7,
    COMPAT_ENGINE_DNS = -101,
    COMPAT_ENGINE_SOCKET = -102,
    COMPAT_ENGINE_REJECT_HANDSHAKE = -104,
    COMPAT_ENGINE_METADATA = -200,
    COMPAT_ENGINE_ENDPOINT = -201,
    COMPAT_ENGINE_CONTEXT = -202,
    COMPAT_ENGINE_MEMORY = -302,
    COMPAT_ENGINE_NOT_IMPLEMENTED = -303,
};

/* YOLK_OK: 0; what has no number of its own: -1. */
int compat_engine_code_of(enum yolk_status status);

#endif
