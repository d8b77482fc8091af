/* SPDX-License-Identifier: Apache-2.0 */
/* Upstream's error numbers, which programs test for (-200: back off and try again; -704: not there;
 * -706: leased). */
#include <stdio.h>
#include <string.h>

#include "extension.h"

enum code {
    CODE_INTERNAL_ERROR = -1,
    CODE_NO_AVAILABLE_HANDLE = -200,
    CODE_INVALID_VERSION = -300,
    CODE_INVALID_PARAMS = -600,
    CODE_ILLEGAL_CLIENT = -601,
    CODE_REPLICA_IS_NOT_READY = -703,
    CODE_OBJECT_NOT_FOUND = -704,
    CODE_OBJECT_ALREADY_EXISTS = -705,
    CODE_OBJECT_HAS_LEASE = -706,
    CODE_LEASE_EXPIRED = -707,
    CODE_REPLICA_IS_GONE = -712,
    CODE_TRANSFER_FAIL = -800,
    CODE_CHECKSUM_MISMATCH = -801,
    CODE_RPC_FAIL = -900,
    CODE_RPC_TIMEOUT = -901,
    CODE_UNAVAILABLE_IN_CURRENT_STATUS = -1010,
    CODE_NOT_SUPPORTED = -1012,
};

static const struct {
    enum yolk_status status;
    enum code code;
} table[] = {
    {YOLK_ERR_INVALID, CODE_INVALID_PARAMS},
    {YOLK_ERR_NOT_FOUND, CODE_OBJECT_NOT_FOUND},
    {YOLK_ERR_EXISTS, CODE_OBJECT_ALREADY_EXISTS},
    {YOLK_ERR_NO_SPACE, CODE_NO_AVAILABLE_HANDLE},
    {YOLK_ERR_AGAIN, CODE_UNAVAILABLE_IN_CURRENT_STATUS},
    {YOLK_ERR_TIMEOUT, CODE_RPC_TIMEOUT},
    {YOLK_ERR_CANCELED, CODE_TRANSFER_FAIL},
    {YOLK_ERR_HAS_LEASE, CODE_OBJECT_HAS_LEASE},
    {YOLK_ERR_LEASE_EXPIRED, CODE_LEASE_EXPIRED},
    {YOLK_ERR_NOT_READY, CODE_REPLICA_IS_NOT_READY},
    /* Not NO_AVAILABLE_HANDLE: to wait and try again would never help. */
    {YOLK_ERR_TOO_LARGE, CODE_INVALID_PARAMS},
    {YOLK_ERR_BUFFER_SMALL, CODE_INVALID_PARAMS},
    {YOLK_ERR_NOT_REGISTERED, CODE_INVALID_PARAMS},
    {YOLK_ERR_BUSY, CODE_UNAVAILABLE_IN_CURRENT_STATUS},
    {YOLK_ERR_STALE, CODE_REPLICA_IS_GONE},
    {YOLK_ERR_UNSUPPORTED, CODE_NOT_SUPPORTED},
    {YOLK_ERR_ACCESS, CODE_TRANSFER_FAIL},
    {YOLK_ERR_CORRUPT, CODE_CHECKSUM_MISMATCH},
    {YOLK_ERR_STUCK, CODE_TRANSFER_FAIL},
    {YOLK_ERR_NO_MEMORY, CODE_INTERNAL_ERROR},
    {YOLK_ERR_LIMIT, CODE_UNAVAILABLE_IN_CURRENT_STATUS},
    {YOLK_ERR_EOF, CODE_TRANSFER_FAIL},
    {YOLK_ERR_OVERLAP, CODE_INVALID_PARAMS},
    {YOLK_ERR_LINK, CODE_RPC_FAIL},
    {YOLK_ERR_REFUSED, CODE_RPC_FAIL},
    {YOLK_ERR_PROTOCOL, CODE_RPC_FAIL},
    {YOLK_ERR_IO, CODE_TRANSFER_FAIL},
    {YOLK_ERR_PEER_DEAD, CODE_TRANSFER_FAIL},
    {YOLK_ERR_AUTH, CODE_ILLEGAL_CLIENT},
    {YOLK_ERR_VERSION, CODE_INVALID_VERSION},
    {YOLK_ERR_NO_ROUTE, CODE_TRANSFER_FAIL},
    {YOLK_ERR_SYSTEM, CODE_INTERNAL_ERROR},
    {YOLK_ERR_FORKED, CODE_UNAVAILABLE_IN_CURRENT_STATUS},
    {YOLK_ERR_CLOSED, CODE_INVALID_PARAMS},
    {YOLK_ERR_CONFIG, CODE_INVALID_PARAMS},
};
enum { TABLE_SIZE = sizeof(table) / sizeof(table[0]) };

static _Thread_local char last_text[1024];

int64_t code_of(int64_t status)
{
    if (status >= 0)
        return status;
    for (size_t i = 0; i < TABLE_SIZE; i++)
        if (table[i].status == status)
            return table[i].code;
    return CODE_INTERNAL_ERROR;
}

int64_t code_of_failure(int64_t status)
{
    const char *text = yolk_last_error();
    return code_with_text(status, text[0] != '\0' ? text : yolk_strerror((int)status));
}

int64_t code_with_text(int64_t status, const char *text)
{
    (void)snprintf(last_text, sizeof(last_text), "%s", text);
    return code_of(status);
}

const char *code_last_text(void)
{
    return last_text;
}

PyObject *code_table(void)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < TABLE_SIZE; i++) {
        PyObject *row = Py_BuildValue("(isi)", (int)table[i].status,
                                      yolk_status_name(table[i].status), (int)table[i].code);
        if (row == NULL || PyList_Append(list, row) != 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}
