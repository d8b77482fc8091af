/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"

struct status_row {
    int status;
    const char *name;
    const char *text;
};

#define ROW(name, text)                                                                            \
    {                                                                                              \
        name, #name, text                                                                          \
    }

static const struct status_row STATUS_ROWS[] = {
    ROW(YOLK_OK, "ok"),
    ROW(YOLK_ERR_INVALID, "invalid argument"),
    ROW(YOLK_ERR_NOT_FOUND, "not found"),
    ROW(YOLK_ERR_EXISTS, "already exists"),
    ROW(YOLK_ERR_NO_SPACE, "no space"),
    ROW(YOLK_ERR_AGAIN, "not now, try again"),
    ROW(YOLK_ERR_TIMEOUT, "deadline passed"),
    ROW(YOLK_ERR_CANCELED, "canceled"),
    ROW(YOLK_ERR_HAS_LEASE, "the object is leased to a reader"),
    ROW(YOLK_ERR_LEASE_EXPIRED, "the read guard expired before the bytes arrived"),
    ROW(YOLK_ERR_NOT_READY, "the object is still being written"),
    ROW(YOLK_ERR_TOO_LARGE, "too large"),
    ROW(YOLK_ERR_BUFFER_SMALL, "the buffer is too small"),
    ROW(YOLK_ERR_NOT_REGISTERED, "the memory is not registered"),
    ROW(YOLK_ERR_BUSY, "in use"),
    ROW(YOLK_ERR_STALE, "the identity belongs to an earlier life"),
    ROW(YOLK_ERR_UNSUPPORTED, "not supported"),
    ROW(YOLK_ERR_ACCESS, "access refused by the provider"),
    ROW(YOLK_ERR_CORRUPT, "the bytes do not match their checksum"),
    ROW(YOLK_ERR_STUCK, "the outcome is unknown and the memory never went quiet"),
    ROW(YOLK_ERR_NO_MEMORY, "out of memory"),
    ROW(YOLK_ERR_LIMIT, "too many at once"),
    ROW(YOLK_ERR_EOF, "the data ended early"),
    ROW(YOLK_ERR_OVERLAP, "the range overlaps another"),
    ROW(YOLK_ERR_QUOTA, "the tenant's quota is used up"),
    ROW(YOLK_ERR_NO_TENANT, "no such tenant"),
    ROW(YOLK_ERR_PIN_LIMIT, "hard pins have their share of every segment"),
    ROW(YOLK_ERR_LINK, "the connection broke"),
    ROW(YOLK_ERR_REFUSED, "connection refused"),
    ROW(YOLK_ERR_PROTOCOL, "the peer broke the protocol"),
    ROW(YOLK_ERR_IO, "input/output failed"),
    ROW(YOLK_ERR_PEER_DEAD, "the peer is gone"),
    ROW(YOLK_ERR_AUTH, "authentication failed"),
    ROW(YOLK_ERR_VERSION, "no common protocol version"),
    ROW(YOLK_ERR_NO_ROUTE, "no transport reaches the peer"),
    ROW(YOLK_ERR_SYSTEM, "the operating system refused"),
    ROW(YOLK_ERR_FORKED, "used in a forked child"),
    ROW(YOLK_ERR_CLOSED, "used after close"),
    ROW(YOLK_ERR_CONFIG, "wrong setting"),
};

static _Thread_local char last_error[MAX_LAST_ERROR];

static const struct status_row *status_row(int status)
{
    for (size_t i = 0; i < sizeof(STATUS_ROWS) / sizeof(STATUS_ROWS[0]); i++) {
        if (STATUS_ROWS[i].status == status)
            return &STATUS_ROWS[i];
    }
    return NULL;
}

const char *yolk_strerror(int status)
{
    const struct status_row *row = status_row(status > 0 ? YOLK_OK : status);
    return row != NULL ? row->text : "unknown status";
}

const char *yolk_status_name(int status)
{
    const struct status_row *row = status_row(status > 0 ? YOLK_OK : status);
    return row != NULL ? row->name : "YOLK_ERR_UNKNOWN";
}

enum yolk_scope yolk_status_scope(int status)
{
    if (status >= 0)
        return YOLK_SCOPE_NONE;
    if (status > -100)
        return YOLK_SCOPE_REQUEST;
    if (status > -200)
        return YOLK_SCOPE_LINK;
    if (status > -300)
        return YOLK_SCOPE_PEER;
    return YOLK_SCOPE_PROCESS;
}

const char *yolk_last_error(void)
{
    return last_error;
}

void base_error_clear(void)
{
    last_error[0] = '\0';
}

/* Formats into `text` and answers how many bytes it has. */
static size_t format_text(char text[MAX_LAST_ERROR], const char *format, va_list arguments)
{
    int written = vsnprintf(text, MAX_LAST_ERROR, format, arguments);
    if (written < 0)
        text[0] = '\0';
    return strnlen(text, MAX_LAST_ERROR - 1);
}

int base_fail(int status, int errnum, const char *format, ...)
{
    /* Into a buffer first: an argument may be the present last error. */
    char text[MAX_LAST_ERROR];
    va_list arguments;
    va_start(arguments, format);
    size_t used = format_text(text, format, arguments);
    va_end(arguments);
    if (errnum != 0) {
        char reason[128];
        snprintf(text + used, sizeof(text) - used, ": %s",
                 strerror_r(errnum, reason, sizeof(reason)));
    }
    memcpy(last_error, text, sizeof(text));
    return status;
}

int base_fail_context(int status, const char *format, ...)
{
    char text[MAX_LAST_ERROR];
    va_list arguments;
    va_start(arguments, format);
    size_t used = format_text(text, format, arguments);
    va_end(arguments);
    snprintf(text + used, sizeof(text) - used, ": %s",
             last_error[0] != '\0' ? last_error : yolk_strerror(status));
    memcpy(last_error, text, sizeof(text));
    return status;
}
