/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ssd.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define DEFAULT_PARENT "/var/tmp"

static int check_folder(const char *directory, bool ours)
{
    struct stat info;
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return base_fail(YOLK_ERR_CONFIG, errno,
                         errno == ENOENT ? "--ssd-path %s: the folder above it does not exist"
                                         : "--ssd-path %s: cannot make this folder",
                         directory);
    if ((ours ? lstat(directory, &info) : stat(directory, &info)) != 0)
        return base_fail(YOLK_ERR_CONFIG, errno, "--ssd-path %s: cannot look at it", directory);
    if (!S_ISDIR(info.st_mode))
        return base_fail(YOLK_ERR_CONFIG, 0, "--ssd-path %s: is no folder", directory);
    if (ours && info.st_uid != geteuid())
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "--ssd-path: the default %s belongs to user %u, not to this one: name "
                         "another folder",
                         directory, (unsigned)info.st_uid);
    if (access(directory, W_OK | X_OK) != 0)
        return base_fail(YOLK_ERR_CONFIG, errno, "--ssd-path %s: cannot write there", directory);
    return YOLK_OK;
}

int cli_ssd_file(const char *directory, char *out, size_t size)
{
    char made[64];
    bool ours = directory[0] == '\0';
    if (ours) {
        snprintf(made, sizeof made, DEFAULT_PARENT "/yolk-ssd-%u", (unsigned)geteuid());
        directory = made;
    }
    if (directory[0] != '/')
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "--ssd-path %.200s: must be an absolute path, one that begins with /",
                         directory);
    int length = snprintf(out, size, "%s/yolk", directory);
    if (length < 0 || (size_t)length >= size)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "--ssd-path %.200s...: has %zu bytes, and must have %zu at most",
                         directory, strlen(directory), size - sizeof("/yolk"));
    return check_folder(directory, ours);
}

int cli_ssd_temporary(char *out, size_t size)
{
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] != '/')
        parent = DEFAULT_PARENT;
    int length = snprintf(out, size, "%s/yolk-replay-XXXXXX", parent);
    if (length < 0 || (size_t)length >= size)
        return base_fail(YOLK_ERR_CONFIG, 0, "TMPDIR is too long");
    if (mkdtemp(out) == NULL)
        return base_fail(YOLK_ERR_SYSTEM, errno, "cannot make a folder for the disk's files in %s",
                         parent);
    return YOLK_OK;
}

void cli_ssd_remove(const char *directory)
{
    DIR *folder = opendir(directory);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            fprintf(stderr, "yolk: cannot remove %s/%s: %s\n", directory, entry->d_name,
                    strerror(errno));
    if (folder != NULL)
        closedir(folder);
    if (rmdir(directory) != 0)
        fprintf(stderr, "yolk: cannot remove %s: %s\n", directory, strerror(errno));
}
