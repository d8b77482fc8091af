/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mount.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/error.h"

/* One line of mountinfo: "36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/vda rw,data=x".
 */
static bool read_line(const char *line, struct cli_mount *out)
{
    char options[256], more[256];
    const char *rest = strstr(line, " - ");
    return rest != NULL &&
           sscanf(line, "%*u %*u %u:%u %*s %255s %255s", &out->major, &out->minor, out->point,
                  options) == 4 &&
           sscanf(rest, " - %31s %255s %255s", out->type, out->source, more) == 3 &&
           snprintf(out->options, sizeof(out->options), "%s;%s", options, more) > 0;
}

int cli_mount_of(const char *path, struct cli_mount *out)
{
    char line[2048];
    struct stat info;
    struct cli_mount one;
    bool found = false;
    if (stat(path, &info) != 0)
        return base_fail(YOLK_ERR_NOT_FOUND, errno, "%s", path);
    FILE *file = fopen("/proc/self/mountinfo", "re");
    memset(out, 0, sizeof(*out));
    /* The last one of a device number that is mounted over it counts. */
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (!read_line(line, &one) || makedev(one.major, one.minor) != info.st_dev)
            continue;
        if (!found || strncmp(path, one.point, strlen(one.point)) == 0)
            *out = one;
        found = true;
    }
    if (file != NULL)
        fclose(file);
    return found ? YOLK_OK
                 : base_fail(YOLK_ERR_NOT_FOUND, 0,
                             "/proc/self/mountinfo names no mount of device %u:%u, of %s",
                             major(info.st_dev), minor(info.st_dev), path);
}
