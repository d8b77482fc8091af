/* SPDX-License-Identifier: Apache-2.0 */
/* Shared libraries that are loaded because somebody named their path: their code runs in this
 * process, so a file that others may change is refused. */
#ifndef PLATFORM_LIBRARY_H
#define PLATFORM_LIBRARY_H

#include "yolk/status.h"

/* CONFIG: the path is relative, no file, no shared library, or one of another kind of machine.
 * ACCESS: it, or its folder, may be written by everybody. SYSTEM: the loader refused it. The text
 * begins with the path. */
YOLK_MUST_USE int library_open(const char *path, void **library);
/* NULL: it exports no such symbol. */
void *library_symbol(void *library, const char *name);
/* Its code is gone afterwards, unless another library_open of the same file lasts. */
void library_close(void *library);

#endif
