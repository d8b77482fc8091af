/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: how many threads this process has. */
#ifndef TRANSPORT_THREADS_KIT_H
#define TRANSPORT_THREADS_KIT_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Flags of a thread in /proc: on its way out (one that was joined can still be listed), and a
 * worker of the kernel for io_uring (those come and go as the kernel likes). */
enum { THREAD_EXITING = 0x4, THREAD_IO_WORKER = 0x10 };

static inline int thread_counts(const char *thread)
{
    char path[300], line[512] = "";
    unsigned flags = THREAD_EXITING; /* what cannot be read is gone */
    (void)snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    FILE *stat = fopen(path, "re");
    const char *rest = NULL; /* behind the name, which may hold anything */
    if (stat != NULL && fgets(line, sizeof line, stat) != NULL)
        rest = strrchr(line, ')');
    if (rest != NULL && sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
        flags = THREAD_EXITING;
    if (stat != NULL)
        (void)fclose(stat);
    return (flags & (THREAD_EXITING | THREAD_IO_WORKER)) == 0;
}

static inline int running_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *d = dir == NULL ? NULL : readdir(dir); d != NULL; d = readdir(dir))
        count += d->d_name[0] != '.' && thread_counts(d->d_name);
    if (dir != NULL)
        closedir(dir);
    return count;
}

#endif
