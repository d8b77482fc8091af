/* SPDX-License-Identifier: Apache-2.0 */
/* On which file system a path lies. */
#ifndef CLI_MOUNT_H
#define CLI_MOUNT_H

#include <stdbool.h>

#include <yolk/status.h>

struct cli_mount {
    char type[32];     /* "ext4" */
    char source[256];  /* "/dev/vda" */
    char point[256];   /* "/" */
    char options[512]; /* of the mount, then of the file system */
    unsigned major, minor;
};
/* NOT_FOUND, with the reason. */
YOLK_MUST_USE int cli_mount_of(const char *path, struct cli_mount *out);

#endif
