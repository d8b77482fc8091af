/* SPDX-License-Identifier: Apache-2.0 */
/* Pages made present before they are needed: the first touch of one costs several times the copy
 * of what is in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/thread.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define CHUNK       ((size_t)32 << 20)
#define THREADS_MAX 16u

struct prefault {
    char *address;
    size_t size;
    size_t page;
    uint64_t deadline_ns;
    _Atomic size_t next;
    _Atomic size_t missing; /* where the first chunk begins that was given up */
    _Atomic int error;
};

/* For kernels before 5.14: an atomic "or 0" makes the page writable and never changes what another
 * thread wrote. */
static void touch_pages(char *address, size_t size, size_t page)
{
    for (size_t at = 0; at < size; at += page)
        __atomic_fetch_or(address + at, 0, __ATOMIC_RELAXED);
}

static int prefault_chunk(struct prefault *p, size_t at)
{
    size_t size = p->size - at < CHUNK ? p->size - at : CHUNK;
    int rc;
    do {
        if (clock_real_now_ns() >= p->deadline_ns)
            return ETIMEDOUT;
        rc = madvise(p->address + at, size, MADV_POPULATE_WRITE);
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc != 0 && errno != EINVAL)
        return errno;
    if (rc != 0)
        touch_pages(p->address + at, size, p->page);
    return 0;
}

static void prefault_run(void *arg)
{
    struct prefault *p = arg;
    for (;;) {
        size_t at = atomic_fetch_add(&p->next, CHUNK);
        if (at >= p->size)
            return;
        int error = p->error != 0 ? p->error : prefault_chunk(p, at);
        if (error == 0)
            continue;
        p->error = error;
        size_t missing = p->missing;
        while (at < missing && !atomic_compare_exchange_weak(&p->missing, &missing, at))
            ;
        return;
    }
}

int memory_prefault(void *address, size_t size, unsigned threads, uint64_t deadline_ns,
                    size_t *done)
{
    *done = 0;
    if (size == 0)
        return YOLK_OK;
    size_t page = memory_page_size();
    size_t lead = (uintptr_t)address & (page - 1);
    struct prefault p = {(char *)address - lead, size + lead, page, deadline_ns, 0, size + lead, 0};
    size_t chunks = (p.size + CHUNK - 1) / CHUNK;
    if (threads == 0)
        threads = thread_cpu_count();
    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    if (threads > chunks)
        threads = (unsigned)chunks;
    struct thread workers[THREADS_MAX] = {{0}};
    for (unsigned i = 1; i < threads; i++) {
        if (thread_start(&workers[i], "yolk-prefault", prefault_run, &p) != YOLK_OK)
            break; /* those that run, and this one, do all the work */
    }
    prefault_run(&p);
    for (unsigned i = 1; i < threads; i++)
        thread_join(&workers[i]);
    *done = p.missing > lead ? p.missing - lead : 0;
    if (p.error == ETIMEDOUT)
        return base_fail(YOLK_ERR_TIMEOUT, 0, "the time for it was over");
    if (p.error != 0)
        return base_fail(YOLK_ERR_NO_MEMORY, p.error, "cannot make %zu bytes of memory present",
                         size);
    return YOLK_OK;
}

void memory_map_ahead(void *address, size_t size, bool write)
{
    size_t lead = (uintptr_t)address & (memory_page_size() - 1);
    /* A kernel before 5.14 says EINVAL: each page is mapped at its first touch then. */
    (void)madvise((char *)address - lead, size + lead,
                  write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* ---- how much there is ---- */

static bool read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

static uint64_t machine_available(void)
{
    char text[4096];
    if (!read_text("/proc/meminfo", text, sizeof(text)))
        return UINT64_MAX;
    const char *line = strstr(text, "MemAvailable:");
    return line == NULL ? UINT64_MAX : strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024;
}

/* "max" and what is no number are no limit. */
static uint64_t group_figure(const char *group, const char *name)
{
    char path[600], text[64], *end;
    int n = snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, name);
    if (n < 0 || (size_t)n >= sizeof(path) || !read_text(path, text, sizeof(text)))
        return UINT64_MAX;
    uint64_t value = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : value;
}

/* The limits of all groups this one is inside of hold. (Version 2 only: the others are not in use
 * where a kernel is new enough for this project's other needs.) */
static uint64_t group_available(void)
{
    char text[512];
    uint64_t least = UINT64_MAX;
    if (!read_text("/proc/self/cgroup", text, sizeof(text)))
        return least;
    char *group = strstr(text, "0::/");
    if (group == NULL)
        return least;
    group += strlen("0::");
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        uint64_t limit = group_figure(group, "memory.max");
        uint64_t used = group_figure(group, "memory.current");
        if (limit != UINT64_MAX && used != UINT64_MAX) {
            uint64_t left = limit > used ? limit - used : 0;
            least = left < least ? left : least;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

uint64_t memory_available(void)
{
    uint64_t machine = machine_available(), group = group_available();
    return group < machine ? group : machine;
}
