/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of this machine in /sys, below a root, so that a tree of files can stand for
 * another machine. And where pages of this process lie. */
#ifndef PLATFORM_SYSFS_H
#define PLATFORM_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

enum { SYSFS_NAME_MAX = 64, SYSFS_PATH_MAX = 512 };

/* The first line of root/path without its newline, cut to fit; false and "" if it cannot be read.
 */
bool sysfs_line(const char *root, const char *path, char *out, size_t size);
/* A number, which may be negative; false: it is none. */
bool sysfs_number(const char *root, const char *path, int64_t *out);
/* Names in a folder, sorted as people count (nvme2 before nvme10), but those that begin with a dot
 * or are too long. How many there are, which may be more than fitted; 0 too if it is not there. */
size_t sysfs_names(const char *root, const char *path, char (*names)[SYSFS_NAME_MAX], size_t room);
/* Where a link ends, below the root and without it; false: nowhere. */
bool sysfs_real(const char *root, const char *path, char *out, size_t size);

/* The NUMA node of most of the pages of [pointer, pointer + size) that are present, of up to 256
 * looked at; touches none. NOT_FOUND: none is present. UNSUPPORTED: the kernel does not say. */
YOLK_MUST_USE int memory_node(const void *pointer, size_t size, int *node);

#endif
