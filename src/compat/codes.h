/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's error numbers, which programs test for (-200: back off and try again; -704: not there;
 * -706: leased), for the library's statuses: one table for the Python module and the C interface.
 */
#ifndef COMPAT_CODES_H
#define COMPAT_CODES_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

enum compat_code {
    COMPAT_INTERNAL_ERROR = -1,
    COMPAT_NO_AVAILABLE_HANDLE = -200,
    COMPAT_INVALID_VERSION = -300,
    COMPAT_INVALID_PARAMS = -600,
    COMPAT_ILLEGAL_CLIENT = -601,
    COMPAT_REPLICA_IS_NOT_READY = -703,
    COMPAT_OBJECT_NOT_FOUND = -704,
    COMPAT_OBJECT_ALREADY_EXISTS = -705,
    COMPAT_OBJECT_HAS_LEASE = -706,
    COMPAT_LEASE_EXPIRED = -707,
    COMPAT_REPLICA_IS_GONE = -712,
    COMPAT_TRANSFER_FAIL = -800,
    COMPAT_CHECKSUM_MISMATCH = -801,
    COMPAT_RPC_FAIL = -900,
    COMPAT_RPC_TIMEOUT = -901,
    COMPAT_UNAVAILABLE_IN_CURRENT_STATUS = -1010,
    COMPAT_NOT_SUPPORTED = -1012,
    COMPAT_TENANT_QUOTA_EXCEEDED = -1700,
    COMPAT_TENANT_NOT_REGISTERED = -1701,
};

struct compat_code_row {
    enum yolk_status status;
    enum compat_code code;
};

/* The number for a status; what is >= 0 stays. */
int64_t compat_code_of(int64_t status);
/* The table itself. */
const struct compat_code_row *compat_code_rows(size_t *count);

#endif
