/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "yolk/status.h"

/*
 * Sets this thread's last error from the text, followed by the description of `errnum` unless that
 * is 0, and returns `status`, so that a function can end with `return base_fail(...)`.
 */
int base_fail(int status, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "text: " before the present last error and returns `status`; for adding context on the way
 * up. */
int base_fail_context(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

void base_error_clear(void);

/* For a status that means nothing to the caller, with a comment that says why; gcc warns of a cast
 * to void. */
static inline void base_ignore(int status)
{
    (void)status;
}

#endif
