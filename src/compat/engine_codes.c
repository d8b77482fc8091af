/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/engine_codes.h"

#include <stddef.h>

int compat_engine_code_of(enum yolk_status status)
{
    static const struct {
        enum yolk_status status;
        enum compat_engine_code code;
    } rows[] = {
        {YOLK_ERR_LIMIT, COMPAT_ENGINE_TOO_MANY_REQUESTS},
        {YOLK_ERR_NOT_REGISTERED, COMPAT_ENGINE_ADDRESS_NOT_REGISTERED},
        {YOLK_ERR_BUSY, COMPAT_ENGINE_BATCH_BUSY},
        {YOLK_ERR_STUCK, COMPAT_ENGINE_BATCH_BUSY},
        {YOLK_ERR_UNSUPPORTED, COMPAT_ENGINE_DEVICE_NOT_FOUND},
        {YOLK_ERR_NO_ROUTE, COMPAT_ENGINE_DEVICE_NOT_FOUND},
        {YOLK_ERR_OVERLAP, COMPAT_ENGINE_ADDRESS_OVERLAPPED},
        {YOLK_ERR_LINK, COMPAT_ENGINE_SOCKET},
        {YOLK_ERR_REFUSED, COMPAT_ENGINE_SOCKET},
        {YOLK_ERR_TIMEOUT, COMPAT_ENGINE_SOCKET},
        {YOLK_ERR_PEER_DEAD, COMPAT_ENGINE_ENDPOINT},
        {YOLK_ERR_STALE, COMPAT_ENGINE_ENDPOINT},
        {YOLK_ERR_AUTH, COMPAT_ENGINE_REJECT_HANDSHAKE},
        {YOLK_ERR_VERSION, COMPAT_ENGINE_REJECT_HANDSHAKE},
        {YOLK_ERR_PROTOCOL, COMPAT_ENGINE_REJECT_HANDSHAKE},
        {YOLK_ERR_NOT_FOUND, COMPAT_ENGINE_METADATA},
        {YOLK_ERR_NO_MEMORY, COMPAT_ENGINE_MEMORY},
        {YOLK_ERR_CLOSED, COMPAT_ENGINE_CONTEXT},
        {YOLK_ERR_FORKED, COMPAT_ENGINE_CONTEXT},
    };
    if (status == YOLK_OK)
        return 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].status == status)
            return rows[i].code;
    return COMPAT_ENGINE_INVALID_ARGUMENT;
}
