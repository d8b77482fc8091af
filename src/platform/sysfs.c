/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "platform/memory.h"

enum { PAGES_MAX = 256, NODES_MAX = 1024 };

static bool join(const char *root, const char *path, char out[PATH_MAX])
{
    int size = snprintf(out, PATH_MAX, "%s/%s", root, path);
    return size > 0 && size < PATH_MAX;
}

bool sysfs_line(const char *root, const char *path, char *out, size_t size)
{
    char whole[PATH_MAX];
    out[0] = '\0';
    int fd = join(root, path, whole) ? open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return false;
    ssize_t got = read(fd, out, size - 1);
    close(fd);
    out[got > 0 ? got : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    for (size_t end = strlen(out); end > 0 && out[end - 1] == ' '; end--)
        out[end - 1] = '\0';
    return got >= 0;
}

bool sysfs_number(const char *root, const char *path, int64_t *out)
{
    char text[32], *end;
    if (!sysfs_line(root, path, text, sizeof(text)) || text[0] == '\0')
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno != 0 || *end != '\0')
        return false;
    *out = value;
    return true;
}

/* Numbers in names by their value. */
static int compare_names(const void *left, const void *right)
{
    return strverscmp(left, right);
}

size_t sysfs_names(const char *root, const char *path, char (*names)[SYSFS_NAME_MAX], size_t room)
{
    char whole[PATH_MAX];
    size_t count = 0;
    DIR *dir = join(root, path, whole) ? opendir(whole) : NULL;
    if (dir == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length >= SYSFS_NAME_MAX)
            continue;
        if (count < room)
            memcpy(names[count], entry->d_name, length + 1);
        count++;
    }
    closedir(dir);
    qsort(names, count < room ? count : room, SYSFS_NAME_MAX, compare_names);
    return count;
}

bool sysfs_real(const char *root, const char *path, char *out, size_t size)
{
    char whole[PATH_MAX], real_root[PATH_MAX], real[PATH_MAX];
    out[0] = '\0';
    if (!join(root, path, whole) || realpath(root[0] != '\0' ? root : "/", real_root) == NULL ||
        realpath(whole, real) == NULL)
        return false;
    size_t length = strcmp(real_root, "/") == 0 ? 0 : strlen(real_root);
    if (strncmp(real, real_root, length) != 0 || real[length] != '/')
        return false;
    int written = snprintf(out, size, "%s", real + length + 1);
    return written > 0 && (size_t)written < size;
}

int memory_node(const void *pointer, size_t size, int *node)
{
    size_t page = memory_page_size();
    uintptr_t first = (uintptr_t)pointer / page * page;
    size_t pages = size == 0 ? 1 : ((uintptr_t)pointer + size - 1 - first) / page + 1;
    size_t looked = pages < PAGES_MAX ? pages : PAGES_MAX;
    void *addresses[PAGES_MAX];
    int nodes[PAGES_MAX];
    uint16_t counts[NODES_MAX] = {0};
    for (size_t i = 0; i < looked; i++) {
        addresses[i] = (void *)(first + (uintptr_t)(i * pages / looked) * page);
        nodes[i] = -ENOENT;
    }
    if (syscall(SYS_move_pages, 0, looked, addresses, NULL, nodes, 0) != 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, errno, "the kernel does not say where pages lie");
    int best = -1;
    for (size_t i = 0; i < looked; i++) {
        if (nodes[i] < 0 || nodes[i] >= NODES_MAX)
            continue;
        counts[nodes[i]]++;
        if (best < 0 || counts[nodes[i]] > counts[best])
            best = nodes[i];
    }
    if (best < 0)
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "no page of the range is present");
    *node = best;
    return YOLK_OK;
}
