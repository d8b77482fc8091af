/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that people write: configurations. */
#ifndef PLATFORM_TEXT_FILE_H
#define PLATFORM_TEXT_FILE_H

#include "base/buf.h"
#include "base/json.h"
#include "yolk/status.h"

/*
 * Appends all of the file to `out`, which bounds its size. A pipe is read too (a shell's <(…)), but
 * whoever writes to it has TEXT_FILE_WAIT_MS for each piece. CONFIG: the text names `what`, the
 * path and why: it cannot be opened or read, is neither a file nor a pipe, is too large, nobody
 * writes.
 */
enum { TEXT_FILE_WAIT_MS = 1000 };
YOLK_MUST_USE int text_file_read(const char *what, const char *path, struct base_buf *out);

/* A file of JSON. To be freed by base_json_free. */
YOLK_MUST_USE int text_file_json(const char *what, const char *path, struct base_json **out);
/* The same of what a variable holds: the path of such a file, or an object itself. CONFIG also for
 * what is neither. */
YOLK_MUST_USE int text_json(const char *what, const char *path_or_text, struct base_json **out);

#endif
