/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: files and folders where the run of the tests removes what is left at its end, however
 * the test ended. */
#ifndef PLATFORM_TEMPORARY_KIT_H
#define PLATFORM_TEMPORARY_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEMPORARY_MAX = 96 }; /* an address of a Unix socket has 108 */

/* Room for TEMPORARY_MAX bytes with a name in it, for example "yolk-x-XXXXXX": puts the folder
 * before it, and returns it. */
static inline char *temporary_path(char *name)
{
    char made[2 * TEMPORARY_MAX];
    const char *folder = getenv("TMPDIR");
    int size = snprintf(made, sizeof(made), "%s/%s",
                        folder != NULL && folder[0] == '/' ? folder : "/tmp", name);
    if (size >= TEMPORARY_MAX) {
        fprintf(stderr, "TMPDIR is too long for tests: %s\n", made);
        abort();
    }
    memcpy(name, made, (size_t)size + 1);
    return name;
}

#endif
